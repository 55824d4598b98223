//! Every runtime's complete recordings through the server.
//!
//! The result is one ordered, filtered log per run with nothing left open.
//!
//! The meaning of each runtime's events is tested with its adapter (`awaken`, `ethos`, `turn_runner`, `ag_ui`); these
//! tests apply to all of them. `cargo test --test it runtimes -- --nocapture` prints the tables.

use crate::activities::{Screen, read_activities};
use crate::harness::{AUDIENCES, Client, FOLDERS, Transport, part_of, repository, start_local, to_ndjson};
use crate::retention::{start_with_stopped_clock, state};
use crate::schema::assert_valid;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Secrets planted in recordings, which no reader may see.
const PLANTED: &[&str] = &["abcdef0123456789abcdef"];

/// A file of recorded facts.
pub struct Recording {
    pub name: String,
    pub source: &'static str,
    pub facts: Vec<Value>,
}

/// Reads every recording of every source, by name.
pub fn read_recordings() -> Vec<Recording> {
    let mut found = Vec::new();
    for (folder, source) in FOLDERS {
        let files = std::fs::read_dir(repository(&format!("tests/recordings/{folder}"))).expect("the directory is readable");
        let mut paths: Vec<_> = files.map(|file| file.expect("the entry is readable").path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("the recording is readable");
            let facts = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .map(|line| serde_json::from_str(line).expect("every line is JSON"));
            let name = format!("{folder}/{}", path.file_name().and_then(|name| name.to_str()).expect("a file has a name"));
            found.push(Recording { name, source, facts: facts.collect() });
        }
    }
    assert!(found.len() > 80, "{}", found.len());
    found
}

/// Posts a recording to a run of its own.
async fn post_recording(client: &Client, run: &str, recording: &Recording) -> Value {
    let path = format!("/v1/runs/{run}/facts?source={}&sessionId=s-{run}", recording.source);
    let receipt = client.post_lines(&path, to_ndjson(&recording.facts)).await.ok();
    assert_eq!(receipt["accepted"], recording.facts.len(), "{}: {receipt}", recording.name);
    receipt
}

async fn list_activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    answer["activities"].as_array().expect("a page has activities").clone()
}

/// Returns the open activities: type, id and status.
///
/// A call that waits for the frontend's result may stay open.
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

/// The expected status of recordings without an end by the source, and the number of ends per attempt.
#[rustfmt::skip]
const EXCEPTIONS: &[(&str, &str, &[u64])] = &[
    // Awaken's bare loop stops at a provider's error without an end, and its stored events lack the end after a resume.
    ("awaken/error_unauthorized_no_terminal.ndjson", "running", &[0]),
    ("awaken-canonical/hitl_approve.drafts.ndjson", "running", &[0]),
    ("awaken-canonical/hitl_cancel.drafts.ndjson", "running", &[0]),
    // Handwritten, with every kind of termination: the first counts.
    ("awaken/handwritten-declared_but_unproduced.ndjson", "failed", &[6]),
    // Waits for a credential.
    ("ethos/hitl_credential_required.ndjson", "waiting", &[0]),
    // Stops with a question; another run in the same stream continues it.
    ("ag-ui/scripted-sdk1.0-interrupt_resume.ndjson", "completed", &[0, 1]),
    // Waits for an approval.
    ("ai-sdk/approval_automatic.ndjson", "waiting", &[0]),
    // The Agents SDK sends no end when it is cancelled or its model fails.
    ("openai-responses/agents-chatcmpl-cancel_immediate.ndjson", "running", &[0]),
    ("openai-responses/agents-chatcmpl-error_midstream.ndjson", "running", &[0]),
    // The caller runs a function now, and its next request is not in the file.
    ("openai-responses/endpoint-custom_tool_and_shell.ndjson", "running", &[0]),
    ("openai-responses/endpoint-dialect_no_sequence_numbers.ndjson", "running", &[0]),
    ("openai-responses/endpoint-unicode_split.ndjson", "running", &[0]),
];

/// Whether the runtime cannot say how a recording ends.
///
/// LangGraph's run stream just stops: whether the run is complete, cancelled or waiting is the same in it. Only its
/// caller can find out, or the server settles the run.
fn has_no_end(recording: &Recording) -> bool {
    let says_end =
        |fact: &Value| fact["event"] == "error" || fact["method"] == "lifecycle" || fact.to_string().contains("\"on_chain_end\"");
    recording.source == "langgraph" && !recording.facts.iter().any(says_end)
}

#[tokio::test]
async fn every_recording_is_accepted_and_has_one_end_with_nothing_left_open() {
    let client = start_local().await;
    let (mut table, mut wrong) = (Vec::new(), Vec::new());
    for (n, recording) in part_of(read_recordings(), 4).iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        post_recording(&client, &run, recording).await;
        let events = client.read_events(&run, "audience=internal", 1000).await;
        let mut ends = Vec::new();
        for event in &events {
            assert_valid("agentui-event.schema.json", event);
            match event["type"].as_str().expect("an event has a type") {
                "run.started" => ends.push(0),
                "run.finished" | "run.failed" => match ends.last_mut() {
                    Some(ends) => *ends += 1,
                    None => ends.push(1),
                },
                _ => {}
            }
        }
        let run_state = client.get(&format!("/v1/runs/{run}?audience=internal")).await.ok();
        let status = run_state["status"].as_str().expect("a run has a status").to_owned();
        let known = EXCEPTIONS.iter().find(|(of, ..)| of == name);
        let mut left = Vec::new();
        for audience in AUDIENCES {
            left.extend(unfinished(&list_activities(&client, &run, audience).await));
        }
        let is_so = match known {
            Some((_, known, expected_ends)) => (status == *known, ends == *expected_ends),
            None if has_no_end(recording) => {
                (["running", "waiting"].contains(&status.as_str()), ends.iter().all(|ends| *ends == 0))
            }
            // A run that its runtime retries or continues after a pause has one end per attempt.
            None => (left.is_empty(), ends.iter().all(|ends| *ends == 1)),
        };
        if is_so != (true, true) {
            wrong.push(format!("{name} is {status}; ends {ends:?}; open {left:?}"));
        }
        // Settling closes the rest.
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        for audience in AUDIENCES {
            let left = unfinished(&list_activities(&client, &run, audience).await);
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

/// Reads an audience's view of a run from pages and from an export, and asserts that they agree.
async fn read_view(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let events = client.read_events(run, &format!("audience={audience}"), 1000).await;
    assert_eq!(client.export(run, &format!("audience={audience}")).await, events);
    events
}

#[tokio::test]
async fn users_see_nothing_internal_and_internal_readers_see_everything() {
    let client = start_local().await;
    let mut table = Vec::new();
    for (n, recording) in part_of(read_recordings(), 4).iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        let last = post_recording(&client, &run, recording).await["lastSequence"].as_u64().expect("the receipt has a sequence");
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        let mut counts = Vec::new();
        let mut before: Option<Vec<u64>> = None;
        for audience in AUDIENCES.iter().rev() {
            let events = read_view(&client, &run, audience).await;
            for event in &events {
                let own = AUDIENCES.iter().position(|a| event["audience"] == *a).expect("the audience is known");
                let reader = AUDIENCES.iter().position(|a| a == audience).expect("the audience is known");
                let is_edge = event["payload"]["withheld"] == true;
                let is_failure =
                    event["type"].as_str().is_some_and(|class| class.ends_with(".failed")) || event["phase"] == "failed";
                assert!(own <= reader || is_edge || is_failure, "{name} for {audience}: {event}");
                let text = event.to_string();
                assert!(!PLANTED.iter().any(|secret| text.contains(secret)), "{name} for {audience}: {event}");
            }
            let sequences: Vec<_> =
                events.iter().map(|event| event["sequence"].as_u64().expect("an event has a sequence")).collect();
            assert!(sequences.is_sorted_by(|a, b| a < b));
            if let Some(wider) = before.replace(sequences.clone()) {
                assert!(
                    sequences.iter().all(|sequence| wider.binary_search(sequence).is_ok()),
                    "{name}: a wider audience lacks an event"
                );
            } else {
                assert!(sequences.iter().copied().eq(1..=sequences.len() as u64), "{name}: internal readers lack an event");
                assert!(sequences.len() as u64 >= last);
            }
            // The stream, cut in the middle and resumed, has the same events.
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
async fn a_recording_cut_anywhere_is_settled_with_nothing_left_open() {
    let client = start_local().await;
    for (n, recording) in part_of(read_recordings(), 4).iter().enumerate().filter(|(_, recording)| recording.facts.len() < 100) {
        let (name, facts) = (&recording.name, recording.facts.len());
        for part in [1, facts / 3, facts * 2 / 3, facts - 1].map(|part| part.max(1)) {
            let run = format!("r{n}-{part}");
            let cut = Recording { name: name.clone(), source: recording.source, facts: recording.facts[..part].to_vec() };
            post_recording(&client, &run, &cut).await;
            client.post(&format!("/v1/runs/{run}/settle"), &[], "").await;
            for audience in AUDIENCES {
                let left = unfinished(&list_activities(&client, &run, audience).await);
                assert!(left.is_empty(), "{name} cut after {part} for {audience}: {left:?}");
            }
        }
    }
}

/// AI SDK chunks and Responses events name no run.
#[tokio::test]
async fn two_runs_in_one_stream_are_flagged_for_every_runtime_that_tells_them_apart() {
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
    let a2a = |member: &str, id: &str| json!({member: {"id": id, "taskId": id, "status": {"state": "TASK_STATE_WORKING"}}});
    flagged("a2a", vec![a2a("task", "a"), a2a("task", "b"), a2a("statusUpdate", "a")]).await;
    flagged(
        "ag-ui",
        vec![
            json!({"type": "RUN_STARTED", "threadId": "t", "runId": "a"}),
            json!({"type": "RUN_STARTED", "threadId": "u", "runId": "b"}),
        ],
    )
    .await;
}

#[tokio::test]
async fn chunks_of_the_ai_sdk_that_split_a_character_are_accepted_and_joined() {
    let client = start_local().await;
    let chunks = [r#"{"type":"text-delta","id":"0","delta":"Hi \ud83d"}"#, r#"{"type":"text-delta","id":"0","delta":"\udc4b!"}"#];
    let lines = client.post_lines("/v1/runs/lines/facts?source=ai-sdk", chunks.join("\n")).await.ok();
    let json = [("content-type", "application/json")];
    let list = client.post("/v1/runs/list/facts?source=ai-sdk", &json, format!("[{}]", chunks.join(","))).await.ok();
    assert_eq!((&lines["accepted"], &list["accepted"]), (&json!(2), &json!(2)));
    for run in ["lines", "list"] {
        let shown = list_activities(&client, run, "user").await;
        let message = shown.iter().find(|activity| activity["activityType"] == "message").expect("the run has a message");
        assert_eq!(message["content"]["parts"][0]["text"], json!(["Hi 👋!"]));
    }
}

/// Reads the recordings that are short enough to be read in every way.
fn short_recordings() -> Vec<Recording> {
    part_of(read_recordings(), 4).into_iter().filter(|recording| recording.facts.len() < 200).collect()
}

#[tokio::test]
async fn every_way_of_reading_every_recording_ends_with_the_same_activities() {
    let client = start_local().await;
    for (n, recording) in short_recordings().iter().enumerate() {
        let (name, run) = (&recording.name, format!("r{n}"));
        post_recording(&client, &run, recording).await;
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
                let mut next = screens.last().expect("the list is not empty").clone();
                next.apply(&frame);
                screens.push(next);
            }
            assert_eq!(screens.last().expect("the list is not empty").shown(), expected, "{name} for {audience}, from the start");
            let whole: Vec<_> = screens.iter().filter(|screen| screen.cursor.is_some() && !screen.ended).collect();
            for screen in whole.iter().step_by(whole.len() / 4 + 1) {
                // A cursor lies between envelopes: the server sends every frame after it again.
                let at = screens.iter().find(|other| other.cursor == screen.cursor).expect("the screen itself has this cursor");
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
async fn compaction_changes_no_activity_of_any_recording() {
    let (client, compactor) = start_with_stopped_clock().await;
    let recordings = short_recordings();
    let mut before = Vec::new();
    for (n, recording) in recordings.iter().enumerate() {
        let run = format!("r{n}");
        post_recording(&client, &run, recording).await;
        client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
        for audience in AUDIENCES {
            before.push(state(&client, &run, audience).await);
        }
    }
    let done = compactor.run_once().await.unwrap();
    assert_eq!(done.runs, recordings.len());
    assert!(done.rows > 0, "{done:?}");
    let mut before = before.into_iter();
    for (n, recording) in recordings.iter().enumerate() {
        for audience in AUDIENCES {
            let after = state(&client, &format!("r{n}"), audience).await;
            assert_eq!(Some(after), before.next(), "{} for {audience}", recording.name);
        }
    }
}
