//! Activities over the wire: every way of reading ends with the state that the server has.

use crate::harness::{
    AUDIENCES, Client, Frame, Transport, fact, list_recordings, recording, start_local, start_local_with, to_ndjson, with_timeout,
};
use proscenium::environment::Environment;
use proscenium::feed::{Feed, FeedConfig};
use proscenium::guard::Policy;
use proscenium::ingest::{Delivery, Ingest};
use proscenium::log::commit::Logs;
use proscenium::log::journal::MemoryJournal;
use proscenium::log::memory::MemoryStore;
use proscenium::log::{Limit, LogId};
use proscenium::model::{Audience, RunId, Sequence};
use proscenium::projection::View;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Lists every Awaken recording except the long one, which has tests of its own.
fn short_recordings() -> Vec<String> {
    let mut names = list_recordings("awaken");
    names.retain(|name| name != "long_40_steps");
    assert!(names.len() > 15);
    names
}

/// A reader that does exactly what the protocol requires of a reader.
#[derive(Debug, Default, Clone)]
pub struct Screen {
    activities: BTreeMap<(String, String), Value>,
    pub last: Option<u64>,
    pub cursor: Option<String>,
    pub hydrated: usize,
    pub ended: bool,
}

fn key(of: &Value) -> (String, String) {
    (
        of["activityType"].as_str().expect("an activity has a type").into(),
        of["activityId"].as_str().expect("an activity has an id").into(),
    )
}

/// Picks the members that both a snapshot and a page state about an activity.
fn stated(of: &Value) -> Value {
    assert!(of["openedAt"].is_string() && of["updatedAt"].is_string(), "{of}");
    let members = ["opened", "openedAt", "updatedAt", "endedAt", "surface", "content"];
    members.iter().map(|member| ((*member).to_owned(), of[*member].clone())).collect()
}

impl Screen {
    /// Builds a screen from a page of activities.
    pub fn from_page(answer: &Value) -> Self {
        let activities =
            answer["activities"].as_array().expect("a page has activities").iter().map(|a| (key(a), stated(a))).collect();
        Self { activities, ..Self::default() }
    }

    pub fn apply(&mut self, frame: &Frame) {
        let data = &frame.data;
        if let (Some(prev), Some(last)) = (data["prev"].as_u64(), self.last) {
            // The frames of one envelope share its sequence.
            assert!(prev == last || data["sequence"].as_u64() == Some(last), "a gap after {last}: {data}");
        }
        match frame.kind() {
            "ActivitySnapshot" => {
                self.activities.insert(key(data), stated(data));
            }
            "ActivityDelta" => {
                let patch: json_patch::Patch = serde_json::from_value(data["patch"].clone()).expect("a JSON Patch");
                assert!(!patch.0.is_empty(), "{data}");
                let known = self.activities.get_mut(&key(data)).unwrap_or_else(|| panic!("a delta without a snapshot: {data}"));
                json_patch::patch(&mut known["content"], &patch).unwrap_or_else(|error| panic!("{error}: {data} on {known}"));
                known["updatedAt"] = data["at"].clone();
                match data["ended"].as_bool() {
                    Some(true) => known["endedAt"] = data["at"].clone(),
                    Some(false) => known["endedAt"] = Value::Null,
                    None => {}
                }
            }
            "Hydrated" => self.hydrated += 1,
            "End" => self.ended = true,
            "Reset" => *self = Self::default(),
            other => panic!("{other}: {data}"),
        }
        if frame.kind() != "End" && frame.kind() != "Reset" {
            // The snapshot of a reader that joins may be older than a frame that the reader had before.
            self.last = self.last.max(data["sequence"].as_u64());
        }
        self.cursor = frame.id.clone().or(self.cursor.take());
    }

    /// Returns the activities with their chunks of text joined.
    pub fn shown(&self) -> BTreeMap<(String, String), Value> {
        let mut shown = self.activities.clone();
        for ((kind, _), activity) in &mut shown {
            join(kind, &mut activity["content"]);
        }
        shown
    }
}

/// Joins the chunks of the members that the protocol defines as text.
fn join(kind: &str, content: &mut Value) {
    let join_one = |text: Option<&mut Value>| {
        if let Some(Value::Array(chunks)) = text {
            let joined: String = chunks.iter().filter_map(Value::as_str).collect();
            *chunks = if joined.is_empty() { Vec::new() } else { vec![joined.into()] };
        }
    };
    match kind {
        "message" => content["parts"].as_array_mut().into_iter().flatten().for_each(|part| join_one(part.get_mut("text"))),
        "reasoning" | "plan" => join_one(content.get_mut("text")),
        "tool-call-progress" => ["input_text", "output_text"].into_iter().for_each(|member| join_one(content.get_mut(member))),
        _ => {}
    }
}

/// Reads a run's activities from the server's page.
pub async fn read_activities(client: &Client, run: &str, query: &str) -> BTreeMap<(String, String), Value> {
    Screen::from_page(&client.get(&format!("/v1/runs/{run}/activities?{query}")).await.ok()).activities
}

/// Removes times, which differ between two servers that received the same facts.
pub fn without_times(mut shown: BTreeMap<(String, String), Value>) -> BTreeMap<(String, String), Value> {
    for activity in shown.values_mut().filter_map(Value::as_object_mut) {
        activity.retain(|member, _| !["openedAt", "updatedAt", "endedAt"].contains(&member.as_str()));
        let decided_by = activity.get_mut("content").and_then(|content| content.get_mut("decidedBy"));
        decided_by.and_then(Value::as_object_mut).map(|by| by.shift_remove("at"));
    }
    shown
}

async fn post_recording(client: &Client, run: &str, name: &str) {
    client.post_lines(&format!("/v1/runs/{run}/facts?source=awaken"), to_ndjson(&recording(name))).await.ok();
}

/// Ends a run, so that its streams end.
async fn finish_run(client: &Client, run: &str) {
    client.append(run, &[fact("run.finished", json!({}))]).await;
}

#[tokio::test]
async fn every_way_of_reading_a_recording_ends_with_the_same_activities() {
    let client = start_local().await;
    for name in &short_recordings() {
        post_recording(&client, name, name).await;
        finish_run(&client, name).await;
        for audience in AUDIENCES {
            let query = format!("audience={audience}");
            let expected = read_activities(&client, name, &query).await;
            assert!(expected.contains_key(&("run".into(), name.clone())), "{name}");
            let mut snapshot = Screen::default();
            for frame in client.open_activities(name, &query, None).await.read_all().await {
                snapshot.apply(&frame);
            }
            assert_eq!((snapshot.shown(), snapshot.hydrated, snapshot.ended), (expected.clone(), 1, true), "{name} {audience}");

            let replay = format!("{query}&replay=deltas");
            let frames = client.open_activities(name, &replay, None).await.read_all().await;
            let mut screens = vec![Screen::default()];
            for frame in &frames {
                let mut next = screens.last().expect("the list is not empty").clone();
                next.apply(frame);
                screens.push(next);
            }
            assert_eq!(screens.last().expect("the list is not empty").shown(), expected, "{name} {audience} from the start");
            for screen in screens.iter().skip(1).step_by(7).filter(|screen| screen.cursor.is_some() && !screen.ended) {
                for query in [&query, &replay] {
                    // A cursor lies between envelopes: the server sends every frame after it again.
                    let at = screens.iter().find(|s| s.cursor == screen.cursor).expect("the screen itself has this cursor");
                    let mut resumed = at.clone();
                    for frame in client.open_activities(name, query, screen.cursor.as_deref()).await.read_all().await {
                        resumed.apply(&frame);
                    }
                    assert_eq!(resumed.shown(), expected, "{name} {query} from {:?}", screen.cursor);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_tool_that_reports_ten_batches_is_shown_running_and_then_done() {
    let client = start_local().await;
    let mut stream = client.open_activities("r", "", None).await;
    assert_eq!(stream.next_frame().await.kind(), "Hydrated", "a run without facts is empty");
    let mut screen = Screen::default();
    let progress = |status: &str, n: u32| {
        let content = json!({
            "schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "tool_name": "index_docs",
            "status": status, "progress": f64::from(n) / 10.0, "message": format!("Indexed batch {n}/10"),
        });
        json!({"event_type": "activity_snapshot", "message_id": "c", "activity_type": "tool-call-progress", "content": content, "replace": true})
    };
    let mut statuses = Vec::new();
    let steps = (0..=10).map(|n| progress("running", n)).chain([progress("done", 10)]);
    for step in steps {
        client.post("/v1/runs/r/facts?source=awaken", &[("content-type", "application/json")], step.to_string()).await.ok();
        let mut frame = stream.next_frame().await;
        while frame.data["activityType"] != "tool-call-progress" {
            screen.apply(&frame);
            frame = stream.next_frame().await;
        }
        screen.apply(&frame);
        let content = screen.shown()[&("tool-call-progress".to_owned(), "c".to_owned())]["content"].clone();
        assert_eq!(content["schema"], "tool-call-progress.v1");
        statuses.push((frame.kind().to_owned(), content["status"].as_str().unwrap().to_owned(), content["progress"].as_f64()));
    }
    assert_eq!(statuses[0], ("ActivitySnapshot".into(), "running".into(), Some(0.0)));
    assert_eq!(statuses[5], ("ActivityDelta".into(), "running".into(), Some(0.5)));
    assert_eq!(statuses.last().unwrap(), &("ActivityDelta".into(), "done".into(), Some(1.0)));
}

#[tokio::test]
async fn a_page_at_a_sequence_shows_what_a_live_reader_saw_at_it() {
    let client = start_local().await;
    post_recording(&client, "r", "tool_progress_activity").await;
    finish_run(&client, "r").await;
    let mut screen = Screen::default();
    let mut seen = BTreeMap::new();
    for frame in client.open_activities("r", "replay=deltas&audience=internal", None).await.read_all().await {
        screen.apply(&frame);
        if frame.id.is_some() && frame.kind() != "End" && frame.kind() != "Hydrated" {
            seen.insert(frame.sequence(), screen.shown());
        }
    }
    assert!(seen.len() > 20);
    for (sequence, shown) in seen {
        assert_eq!(read_activities(&client, "r", &format!("audience=internal&at={sequence}")).await, shown, "at {sequence}");
    }
    assert!(read_activities(&client, "r", "at=0").await.is_empty());
}

#[tokio::test]
async fn a_reader_of_one_surface_gets_only_that_surface_without_gaps() {
    let client = start_local().await;
    post_recording(&client, "r", "multi_tool_sequential").await;
    finish_run(&client, "r").await;
    for query in ["surfaces=tool_ui", "surfaces=conversation,runtime_status", "surfaces=tool_ui&replay=deltas"] {
        let mut screen = Screen::default();
        for frame in client.open_activities("r", query, None).await.read_all().await {
            screen.apply(&frame);
        }
        assert_eq!(screen.shown(), read_activities(&client, "r", query).await, "{query}");
        assert!(!screen.shown().is_empty());
    }
}

#[tokio::test]
async fn a_reader_behind_the_ring_catches_up_by_snapshots() {
    let sizes = FeedConfig { ring_bytes_max: 2048, ..FeedConfig::default() };
    let client = start_local_with(sizes, Limits::default()).await;
    let mut stream = client.open_activities("r", "", None).await;
    let mut screen = Screen::default();
    screen.apply(&stream.next_frame().await);
    let text = |n: usize| fact("text.delta", json!({"messageId": "m", "partId": "p", "text": format!("{n} ")}));
    for chunk in (0..2000).collect::<Vec<_>>().chunks(100) {
        client.append("r", &chunk.iter().map(|n| text(*n)).collect::<Vec<_>>()).await;
    }
    finish_run(&client, "r").await;
    while let Some(frame) = stream.next().await {
        screen.apply(&frame);
    }
    assert_eq!(screen.shown(), read_activities(&client, "r", "").await);
}

#[tokio::test]
async fn a_reader_of_several_runs_without_facts_gets_hydrated_at_sequence_zero() {
    let client = start_local().await;
    for query in ["", "&replay=deltas"] {
        let mut stream = client.open(Transport::Raw, &format!("/v1/stream?runs=a,b{query}"), None).await;
        let frame = stream.next_frame().await;
        assert_eq!((frame.kind(), frame.sequence()), ("Hydrated", 0), "{query}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_epoch_gets_a_reset_and_then_the_activities() {
    let client = start_local().await;
    client.append("r", &[fact("text.delta", json!({"messageId": "m", "text": "a"}))]).await;
    finish_run(&client, "r").await;
    let frames = client.open_activities("r", "", Some("00000000deadbeef:2")).await.read_all().await;
    assert_eq!((frames[0].kind(), &frames[0].data["reason"]), ("Reset", &json!("epoch")));
    let epoch = client.get("/v1/runs/r").await.ok()["epoch"].as_str().unwrap().to_owned();
    let frames = client.open_activities("r", "", Some(&format!("{epoch}:200"))).await.read_all().await;
    assert_eq!((frames[0].kind(), &frames[0].data["reason"]), ("Reset", &json!("expired")));
    let mut screen = Screen::default();
    for frame in &frames {
        screen.apply(frame);
    }
    assert_eq!(screen.shown(), read_activities(&client, "r", "").await);
    let cursor = screen.cursor.expect("End has a cursor");
    let answer = client.get_with("/v1/runs/r/stream", &[("last-event-id", &cursor)]).await;
    assert_eq!(answer.status, 204, "a reader that has seen End gets 204");
}

#[tokio::test]
async fn activities_of_a_long_run_take_fewer_bytes_than_its_events() {
    let client = start_local().await;
    post_recording(&client, "r", "long_40_steps").await;
    finish_run(&client, "r").await;
    for audience in AUDIENCES {
        let mut bytes = Vec::new();
        for query in [format!("frames=events&audience={audience}"), format!("replay=deltas&audience={audience}")] {
            let frames = client.open(Transport::Raw, &format!("/v1/runs/r/stream?{query}"), None).await.read_all().await;
            bytes.push(frames.iter().map(|frame| frame.text.len()).sum::<usize>());
        }
        let (events, activities) = (bytes[0], bytes[1]);
        println!("{audience}: {events} bytes of events, {activities} of activities");
        assert!(activities * 10 <= events * 8, "{audience}: {activities} of {events}");
    }
}

#[tokio::test]
async fn a_message_chunk_costs_the_same_at_any_length_of_the_message() {
    let client = start_local().await;
    let chunk = || fact("text.delta", json!({"messageId": "m", "partId": "p", "text": "four"}));
    let count = std::env::var("PROSCENIUM_CHUNKS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    client.post_lines("/v1/runs/r/facts", to_ndjson(&(0..count).map(|_| chunk()).collect::<Vec<_>>())).await.ok();
    let mut stream = client.open_activities("r", "replay=deltas", None).await;
    let mut sizes = Vec::new();
    loop {
        match stream.next_frame().await {
            frame if frame.kind() == "Hydrated" => break,
            frame if frame.kind() == "ActivityDelta" => sizes.push(frame.text.len()),
            _ => {}
        }
    }
    assert_eq!(sizes.len(), count - 1);
    let mut n = 10;
    while n < count {
        println!("chunk {n}: {} bytes", sizes[n]);
        n *= 10;
    }
    // Only the numbers in the frame grow: sequence, prev and cursor.
    let (first, last) = (sizes[0], sizes[count - 2]);
    assert!(last - first <= 3 * count.to_string().len(), "{first} and {last}");
    let whole = read_activities(&client, "r", "").await;
    let text = &whole[&("message".to_owned(), "m".to_owned())]["content"]["parts"][0]["text"];
    assert_eq!((text.as_array().unwrap().len(), text[0].as_str().unwrap().len()), (1, 4 * count));
}

#[tokio::test]
async fn joining_late_costs_as_much_as_the_visible_state_and_not_the_history() {
    let client = start_local().await;
    let mut bytes = Vec::new();
    for (run, count) in [("short", 2_000), ("long", 60_000)] {
        let progress = |n: usize| {
            let event_type = if n == 0 { "tool.started" } else { "tool.progress" };
            let payload = json!({"message": format!("{:06}", n % 7), "progress": 0.5, "toolName": "dig"});
            fact(event_type, json!({"toolCallId": "c", "audience": "user", "payload": payload}))
        };
        let facts: Vec<_> = (0..count).map(progress).collect();
        client.post_lines(&format!("/v1/runs/{run}/facts"), to_ndjson(&facts)).await.ok();
        let mut stream = client.open_activities(run, "", None).await;
        let mut size = 0;
        loop {
            let frame = stream.next_frame().await;
            size += frame.text.len();
            if frame.kind() == "Hydrated" {
                break;
            }
        }
        bytes.push(size);
    }
    assert!(bytes[1] <= 2 * bytes[0], "{bytes:?}");
}

#[tokio::test]
async fn checkpoints_of_a_growing_log_do_not_change_its_activities() {
    let (logs, groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).expect("an empty store opens");
    let environment = Environment { now: || jiff::Timestamp::UNIX_EPOCH, random: || 7 };
    let ingest = Ingest::new(logs.clone(), Policy::default(), environment);
    let feed = Feed::new(logs.clone(), FeedConfig::default());
    for (_, task) in feed.tasks(groups) {
        tokio::spawn(task);
    }
    let log = LogId::Run(RunId::new("r").unwrap());
    let deliver = async |name: &str| {
        let facts = recording(name);
        let source = proscenium::source::by_name("awaken").unwrap();
        let delivery = Delivery { atomic: false, ..Delivery::new(log.clone(), source, facts.into()) };
        ingest.deliver(delivery).await.unwrap();
    };
    deliver("long_40_steps").await;
    let tail = logs.log(&log).await.unwrap().tail();
    let epoch = tail.epoch.unwrap();
    let found = with_timeout("a checkpoint", async {
        loop {
            match logs.checkpoint(&log, epoch, Audience::User.index() as u8, Sequence::MAX).await.unwrap() {
                Some((at, _)) => return at,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert!(found.await > Sequence(2000));
    deliver("tool_progress_activity").await;
    for audience in Audience::ALL {
        let with = feed.activities(&log, audience, None).await.unwrap().unwrap();
        let mut without = View::new(&log, audience);
        for row in feed.rows(&log, epoch, Sequence::NONE, Limit { rows: usize::MAX, bytes: usize::MAX }).await.unwrap() {
            without.fold(row.sequence(), row.view(audience));
        }
        assert_eq!(with.save(), without.save(), "{audience}");
    }
}

#[tokio::test]
async fn a_reader_of_several_runs_without_facts_waits_for_them() {
    let client = start_local().await;
    let mut stream = client.open(Transport::Raw, "/v1/stream?runs=a,b", None).await;
    for _ in 0..2 {
        assert_eq!(stream.next_frame().await.kind(), "Hydrated");
    }
    client.append("b", &[fact("run.started", json!({}))]).await;
    let first = stream.next_frame().await;
    assert_eq!((first.kind(), &first.data["runId"]), ("ActivitySnapshot", &json!("b")));
}
