//! Every runtime's recordings, whole, through the server: whatever vocabulary a run was told in, what comes out is one ordered,
//! honest, filtered picture of it, and nothing in it is left open.
//!
//! What each runtime's events mean is held beside its adapter (`awaken`, `ethos`, `turn_runner`, `ag_ui`); here stands what must
//! hold for all of them. `cargo test --test it runtimes -- --nocapture` prints the tables.

use crate::activities::{Screen, read_activities};
use crate::harness::{AUDIENCES, Client, Transport, repository, start_local, to_ndjson};
use crate::retention::{state, still};
use crate::schema::assert_valid;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A folder of recordings, and the source that its facts are of.
const FOLDERS: &[(&str, &str)] = &[
    ("awaken", "awaken"),
    ("awaken-canonical", "awaken"),
    ("ethos", "ethos"),
    ("turn-runner", "turnrunner"),
    ("ag-ui", "ag-ui"),
];

/// Whatever looks like this was planted in a recording, and must come out nowhere.
const PLANTED: &[&str] = &["abcdef0123456789abcdef"];

/// One file of recorded facts.
pub struct Recording {
    pub name: String,
    pub source: &'static str,
    pub facts: Vec<Value>,
}

/// Every recording of every source, by name.
pub fn all() -> Vec<Recording> {
    let mut found = Vec::new();
    for (folder, source) in FOLDERS {
        let files = std::fs::read_dir(repository(&format!("tests/recordings/{folder}"))).expect("recordings");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("a recording");
            let facts = text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).expect("JSON"));
            let name = format!("{folder}/{}", path.file_name().and_then(|name| name.to_str()).expect("a name"));
            found.push(Recording { name, source, facts: facts.collect() });
        }
    }
    assert!(found.len() > 80, "{}", found.len());
    found
}

/// Plays a recording to a run of its own.
async fn play(client: &Client, run: &str, recording: &Recording) -> Value {
    let path = format!("/v1/runs/{run}/facts?source={}&sessionId=s-{run}", recording.source);
    let receipt = client.post_lines(&path, to_ndjson(&recording.facts)).await.ok();
    assert_eq!(receipt["accepted"], recording.facts.len(), "{}: {receipt}", recording.name);
    receipt
}

async fn activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    answer["activities"].as_array().expect("activities").clone()
}

/// What of the activities still waits for something to happen: its type, its id and how it stands. A call that waits for the
/// frontend's own result goes on there.
fn unfinished(activities: &[Value]) -> Vec<(String, String, String)> {
    let is_open = |kind: &str, content: &Value| match kind {
        "message" | "reasoning" | "plan" => content["status"] == "streaming",
        "tool-call-progress" => {
            content["awaits"] != "client"
                && !["output-available", "output-error", "cancelled"].contains(&content["state"].as_str().unwrap_or(""))
        }
        "action" => content["status"] == "pending",
        "compaction" => content["status"] == "running",
        "run" => !["completed", "failed", "cancelled", "interrupted"].contains(&content["status"].as_str().unwrap_or("")),
        _ => false,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |a: &Value| (text(&a["activityType"]), text(&a["activityId"]), text(&a["content"]["status"]));
    activities.iter().filter(|a| is_open(a["activityType"].as_str().unwrap_or(""), &a["content"])).map(of).collect()
}

/// How a recording leaves its run where that is no end of the source's, and how many ends it tells an attempt.
#[rustfmt::skip]
const OTHERWISE: &[(&str, &str, &[u64])] = &[
    // Awaken's bare loop just stops at a provider's error, and its stored events leave out the end after a resume.
    ("awaken/error_unauthorized_no_terminal.ndjson", "running", &[0]),
    ("awaken-canonical/hitl_approve.drafts.ndjson", "running", &[0]),
    ("awaken-canonical/hitl_cancel.drafts.ndjson", "running", &[0]),
    // Typed by hand, one of every termination that there is: the first counts.
    ("awaken/handwritten-declared_but_unproduced.ndjson", "failed", &[6]),
    // Waits for somebody's credential.
    ("ethos/hitl_credential_required.ndjson", "waiting", &[0]),
    // Stops to ask, and is gone on with by another run in the same stream.
    ("ag-ui/scripted-sdk1.0-interrupt_resume.ndjson", "completed", &[0, 1]),
];

#[tokio::test]
async fn every_recording_goes_in_whole_and_ends_with_one_end_and_nothing_left_open() {
    let client = start_local().await;
    let (mut table, mut wrong) = (Vec::new(), Vec::new());
    for (n, recording) in all().iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        play(&client, &run, recording).await;
        let events = client.read_events(&run, "audience=internal", 1000).await;
        let mut ends = Vec::new();
        for event in &events {
            assert_valid("agentui-event.schema.json", event);
            match event["type"].as_str().expect("a type") {
                "run.started" => ends.push(0),
                "run.finished" | "run.failed" => match ends.last_mut() {
                    Some(ends) => *ends += 1,
                    None => ends.push(1),
                },
                _ => {}
            }
        }
        let stands = client.get(&format!("/v1/runs/{run}?audience=internal")).await.ok();
        let status = stands["status"].as_str().expect("a status").to_owned();
        let known = OTHERWISE.iter().find(|(of, ..)| of == name);
        let mut left = Vec::new();
        for audience in AUDIENCES {
            left.extend(unfinished(&activities(&client, &run, audience).await));
        }
        let is_so = match known {
            Some((_, known, told)) => (status == *known, ends == *told),
            // A run that its runtime tries again, or goes on with after a pause, has an end an attempt.
            None => (left.is_empty(), ends.iter().all(|ends| *ends == 1)),
        };
        if is_so != (true, true) {
            wrong.push(format!("{name} is {status}; ends {ends:?}; open {left:?}"));
        }
        // Whatever was left is closed when nobody comes back.
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        for audience in AUDIENCES {
            let left = unfinished(&activities(&client, &run, audience).await);
            assert!(left.is_empty(), "{name}: {left:?}");
        }
        table.push(format!(
            "{name:66} {:5} facts {:5} envelopes  {status:12} ends {ends:?}",
            recording.facts.len(),
            events.len()
        ));
    }
    println!("{}", table.join("\n"));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What an audience sees of a run: as the events' pages say, as an export says, and as a stream says that is cut in the middle.
async fn seen(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let events = client.read_events(run, &format!("audience={audience}"), 1000).await;
    assert_eq!(client.export(run, &format!("audience={audience}")).await, events);
    events
}

#[tokio::test]
async fn users_see_nothing_internal_and_no_secret_and_internal_readers_lose_nothing() {
    let client = start_local().await;
    let mut table = Vec::new();
    for (n, recording) in all().iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        let last = play(&client, &run, recording).await["lastSequence"].as_u64().expect("a sequence");
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        let mut counts = Vec::new();
        let mut before: Option<Vec<u64>> = None;
        for audience in AUDIENCES.iter().rev() {
            let events = seen(&client, &run, audience).await;
            for event in &events {
                let own = AUDIENCES.iter().position(|a| event["audience"] == *a).expect("an audience");
                let reader = AUDIENCES.iter().position(|a| a == audience).expect("an audience");
                let is_edge = event["payload"]["withheld"] == true;
                let is_failure =
                    event["type"].as_str().is_some_and(|class| class.ends_with(".failed")) || event["phase"] == "failed";
                assert!(own <= reader || is_edge || is_failure, "{name} for {audience}: {event}");
                let text = event.to_string();
                assert!(!PLANTED.iter().any(|secret| text.contains(secret)), "{name} for {audience}: {event}");
            }
            let sequences: Vec<_> = events.iter().map(|event| event["sequence"].as_u64().expect("a sequence")).collect();
            assert!(sequences.is_sorted_by(|a, b| a < b));
            if let Some(wider) = before.replace(sequences.clone()) {
                assert!(
                    sequences.iter().all(|sequence| wider.binary_search(sequence).is_ok()),
                    "{name}: who sees more sees this"
                );
            } else {
                assert!(sequences.iter().copied().eq(1..=sequences.len() as u64), "{name}: internal readers see all");
                assert!(sequences.len() as u64 >= last);
            }
            // Cut in the middle and taken up again, the stream is the same.
            let mut stream = client.open_stream(Transport::Raw, &run, &format!("audience={audience}"), None).await;
            let mut frames = Vec::new();
            for _ in 0..sequences.len() / 2 {
                frames.push(stream.next_frame().await);
            }
            drop(stream);
            let cursor = frames.last().map(|frame| frame.id().to_owned());
            let rest = client
                .open_stream(Transport::Raw, &run, &format!("audience={audience}"), cursor.as_deref())
                .await
                .read_all()
                .await;
            frames.extend(rest);
            assert_eq!(frames.pop().map(|end| end.kind().to_owned()).as_deref(), Some("End"), "{name}");
            let streamed: Vec<_> = frames.into_iter().map(|frame| frame.data["event"].clone()).collect();
            assert_eq!(streamed, events, "{name} for {audience}");
            counts.push(events.len());
        }
        table.push(format!("{name:66} user {:5}  dashboard {:5}  internal {:5}", counts[2], counts[1], counts[0]));
    }
    println!("{}", table.join("\n"));
}

#[tokio::test]
async fn a_recording_that_is_cut_anywhere_is_settled_with_nothing_left_open() {
    let client = start_local().await;
    for (n, recording) in all().iter().enumerate().filter(|(_, recording)| recording.facts.len() < 100) {
        let (name, facts) = (&recording.name, recording.facts.len());
        for part in [1, facts / 3, facts * 2 / 3, facts - 1].map(|part| part.max(1)) {
            let run = format!("r{n}-{part}");
            let cut = Recording { name: name.clone(), source: recording.source, facts: recording.facts[..part].to_vec() };
            play(&client, &run, &cut).await;
            client.post(&format!("/v1/runs/{run}/settle"), &[], "").await;
            for audience in AUDIENCES {
                let left = unfinished(&activities(&client, &run, audience).await);
                assert!(left.is_empty(), "{name} cut after {part} for {audience}: {left:?}");
            }
        }
    }
}

#[tokio::test]
async fn two_runs_in_one_stream_are_flagged_whatever_runtime_they_are_of() {
    let client = start_local().await;
    let flagged = async |source: &str, facts: Vec<Value>| {
        let run = format!("two-{source}");
        client.post_lines(&format!("/v1/runs/{run}/facts?source={source}"), to_ndjson(&facts)).await.ok();
        let events = client.read_events(&run, "audience=internal&type=diagnostic.changed", 1000).await;
        let kinds: BTreeMap<String, usize> = events.iter().fold(BTreeMap::new(), |mut kinds, event| {
            *kinds.entry(event["payload"]["kind"].to_string()).or_default() += 1;
            kinds
        });
        assert!(kinds.contains_key("\"interleaved_run\""), "{source}: {kinds:?}");
    };
    flagged(
        "awaken",
        vec![
            json!({"event_type": "run_start", "thread_id": "t", "run_id": "a"}),
            json!({"event_type": "run_start", "thread_id": "u", "run_id": "b"}),
        ],
    )
    .await;
    flagged(
        "ethos",
        vec![
            json!({"type": "run_start", "provider": "p", "model": "m", "source": "global"}),
            json!({"type": "run_start", "provider": "p", "model": "m", "source": "global"}),
        ],
    )
    .await;
    let turn = |id: &str| json!({"bus": "observability", "event": "turnStart", "payload": {"turnId": id, "startedAt": "2026-01-01T00:00:00Z"}});
    flagged("turnrunner", vec![turn("a"), turn("b")]).await;
    flagged(
        "ag-ui",
        vec![
            json!({"type": "RUN_STARTED", "threadId": "t", "runId": "a"}),
            json!({"type": "RUN_STARTED", "threadId": "u", "runId": "b"}),
        ],
    )
    .await;
}

/// Recordings that are short enough to be read in every way.
fn short() -> Vec<Recording> {
    all().into_iter().filter(|recording| recording.facts.len() < 200).collect()
}

#[tokio::test]
async fn every_way_of_reading_any_runtime_s_recording_ends_with_the_same_activities() {
    let client = start_local().await;
    for (n, recording) in short().iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        play(&client, &run, recording).await;
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        for audience in AUDIENCES {
            let query = format!("audience={audience}");
            let expected = read_activities(&client, &run, &query).await;
            let mut joined = Screen::default();
            for frame in client.open_activities(&run, &query, None).await.read_all().await {
                joined.apply(&frame);
            }
            assert_eq!(joined.shown(), expected, "{name} for {audience}");
            let replay = format!("{query}&replay=deltas");
            let mut screens = vec![Screen::default()];
            for frame in client.open_activities(&run, &replay, None).await.read_all().await {
                let mut next = screens.last().expect("one").clone();
                next.apply(&frame);
                screens.push(next);
            }
            assert_eq!(screens.last().expect("one").shown(), expected, "{name} for {audience}, from the start");
            let whole: Vec<_> = screens.iter().filter(|screen| screen.cursor.is_some() && !screen.ended).collect();
            for screen in whole.iter().step_by(whole.len() / 4 + 1) {
                // A cursor stands between envelopes: what came after it comes again.
                let at = screens.iter().find(|other| other.cursor == screen.cursor).expect("itself at the least");
                let mut resumed = at.clone();
                for frame in client.open_activities(&run, &query, screen.cursor.as_deref()).await.read_all().await {
                    resumed.apply(&frame);
                }
                assert_eq!(resumed.shown(), expected, "{name} for {audience}, from {:?}", screen.cursor);
            }
        }
    }
}

#[tokio::test]
async fn compaction_changes_nothing_that_anybody_sees_of_any_runtime_s_recording() {
    let (client, compactor) = still().await;
    let recordings = short();
    let mut before = Vec::new();
    for (n, recording) in recordings.iter().enumerate() {
        let run = format!("r{n}");
        play(&client, &run, recording).await;
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        for audience in AUDIENCES {
            before.push(state(&client, &run, audience).await);
        }
    }
    let done = compactor.run_once().await.unwrap();
    assert_eq!(done.runs, recordings.len());
    assert!(done.rows > 100, "{done:?}");
    let mut before = before.into_iter();
    for (n, recording) in recordings.iter().enumerate() {
        for audience in AUDIENCES {
            let after = state(&client, &format!("r{n}"), audience).await;
            assert_eq!(Some(after), before.next(), "{} for {audience}", recording.name);
        }
    }
}
