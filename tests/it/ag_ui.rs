//! AG-UI over the wire: recordings of real servers, encoders and SDKs pass through the real ingest.
//!
//! The tests compute the expected screens from the recorded events by AG-UI's own rules, and not by the server's code.
//! A recording that is added is therefore checked in the same way.

use crate::activities::read_activities;
use crate::harness::{AUDIENCES, Client, environment, recording, repository, serve_until, start_local, to_ndjson};
use crate::schema::{assert_activity, assert_valid};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::model::{Draft, Ids, RunId};
use proscenium::serve::maintenance::compact::Compactor;
use proscenium::serve::{KeepAlive, Limits, Server};
use proscenium::source::{DryRun, Fact, by_name};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The largest adapter memory of a recording, in bytes.
///
/// Ids, counters and lengths of a real run fit; a body would not.
const MEMORY_BYTES_MAX: usize = 12 * 1024;

/// The status in which each recorded run ends.
const ENDS: &[(&str, &str)] = &[
    ("awaken-encoder-blocked_by_policy", "failed"),
    ("awaken-encoder-cancel_mid_tool", "cancelled"),
    ("awaken-encoder-hitl_approve", "completed"),
    ("awaken-encoder-hitl_cancel", "completed"),
    ("awaken-encoder-long_40_steps", "completed"),
    ("awaken-encoder-multi_tool_parallel", "completed"),
    ("awaken-encoder-multi_tool_sequential", "completed"),
    ("awaken-encoder-short_text_reasoning", "completed"),
    ("awaken-encoder-subagent_progress_forwarded", "completed"),
    ("awaken-encoder-three_turns_one_thread", "completed"),
    ("awaken-encoder-tool_progress_activity", "completed"),
    ("scripted-sdk1.0-activity", "completed"),
    ("scripted-sdk1.0-cancelled", "cancelled"),
    ("scripted-sdk1.0-error_first", "failed"),
    ("scripted-sdk1.0-interrupt_resume", "completed"),
    ("scripted-sdk1.0-long_40_steps", "completed"),
    ("scripted-sdk1.0-state", "completed"),
    ("scripted-sdk1.0-text_reasoning", "completed"),
    ("scripted-sdk1.0-tools_interleaved", "completed"),
    ("server-agentic_chat-backend_tool", "completed"),
    ("server-agentic_chat-text", "completed"),
    ("server-agentic_chat-tool", "completed"),
    ("server-agentic_generative_ui-state", "completed"),
    ("server-human_in_the_loop-answer", "completed"),
    ("server-human_in_the_loop-ask", "completed"),
    ("server-shared_state", "completed"),
    ("server-tool_based_generative_ui", "completed"),
];

fn events(name: &str) -> Vec<Value> {
    let path = repository(&format!("tests/recordings/ag-ui/{name}.ndjson"));
    let text = std::fs::read_to_string(path).expect("the recording is readable");
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

async fn post_facts(client: &Client, run: &str, facts: &[Value]) -> Value {
    let receipt = client.post_lines(&format!("/v1/runs/{run}/facts?source=ag-ui"), to_ndjson(facts)).await.ok();
    assert_eq!(receipt["accepted"], facts.len(), "{receipt}");
    receipt
}

async fn post_recording(client: &Client, name: &str) {
    post_facts(client, name, &events(name)).await;
}

type Shown = BTreeMap<(String, String), Value>;

async fn read_screen(client: &Client, run: &str) -> Shown {
    read_activities(client, run, "audience=user").await
}

/// Returns the content of an activity; null if it does not exist.
fn content(shown: &Shown, kind: &str, id: &str) -> Value {
    shown.get(&(kind.to_owned(), id.to_owned())).map_or(Value::Null, |activity| activity["content"].clone())
}

/// Returns all activities of a kind, by id.
fn of_kind<'s>(shown: &'s Shown, kind: &str) -> Vec<(&'s str, &'s Value)> {
    shown.iter().filter(|((of, _), _)| of == kind).map(|((_, id), activity)| (id.as_str(), &activity["content"])).collect()
}

/// Returns a message's text, its parts joined.
fn text_of(content: &Value) -> String {
    let parts = content["parts"].as_array().into_iter().flatten();
    parts.flat_map(|part| part["text"].as_array().expect("a part has text").iter().filter_map(Value::as_str)).collect()
}

fn texts(shown: &Shown) -> BTreeMap<String, String> {
    of_kind(shown, "message").into_iter().map(|(id, message)| (id.to_owned(), text_of(message))).collect()
}

/// Returns the concatenated deltas of these events, by message.
fn streamed_texts(events: &[Value], event_type: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::<String, String>::new();
    for event in events.iter().filter(|event| event["type"] == event_type) {
        let text = texts.entry(event["messageId"].as_str().expect("an event has an id").to_owned()).or_default();
        text.push_str(event["delta"].as_str().expect("a delta is text"));
    }
    texts
}

/// Returns the ids of the calls that these events name.
fn calls(events: &[Value], event_type: &str) -> BTreeSet<String> {
    let of = events.iter().filter(|event| event["type"] == event_type);
    of.map(|event| event["toolCallId"].as_str().expect("an event has an id").to_owned()).collect()
}

async fn read_events_of_type(client: &Client, run: &str, event_type: &str) -> Vec<Value> {
    client.read_events(run, &format!("audience=internal&type={event_type}"), 1000).await
}

#[tokio::test]
async fn every_recorded_run_ends_with_its_recorded_status() {
    let mut files: Vec<_> = std::fs::read_dir(repository("tests/recordings/ag-ui"))
        .expect("the directory is readable")
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(files, ENDS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "each recording has a row in ENDS");
    let client = start_local().await;
    for (name, end) in ENDS {
        post_recording(&client, name).await;
        let shown = read_screen(&client, name).await;
        let run = content(&shown, "run", name);
        assert_eq!(run["status"], *end, "{name}");
        assert_eq!(client.get(&format!("/v1/runs/{name}")).await.ok()["status"], *end, "{name}");
    }
}

#[tokio::test]
async fn readers_get_the_streamed_text_and_nothing_that_ended_stays_open() {
    let client = start_local().await;
    for (name, _) in ENDS {
        let events = events(name);
        post_facts(&client, name, &events).await;
        let shown = read_screen(&client, name).await;
        let texts = texts(&shown);
        for (message, text) in streamed_texts(&events, "TEXT_MESSAGE_CONTENT") {
            assert_eq!(texts[&message], text, "{name} {message}");
            assert_eq!(content(&shown, "message", &message)["status"], "complete", "{name} {message}");
        }
        for (message, text) in streamed_texts(&events, "REASONING_MESSAGE_CONTENT") {
            let thought = content(&shown, "reasoning", &format!("{message}/reasoning"));
            assert_eq!((&thought["text"], &thought["status"]), (&json!([text]), &json!("complete")), "{name} {message}");
        }
        let (asked, ended) = (calls(&events, "TOOL_CALL_START"), calls(&events, "TOOL_CALL_RESULT"));
        for call in &asked {
            let shown = content(&shown, "tool-call-progress", call);
            let state = if ended.contains(call) { "output-available" } else { "input-available" };
            assert_eq!(shown["state"], state, "{name} {call}: {shown}");
            let args = events.iter().filter(|event| event["type"] == "TOOL_CALL_ARGS" && event["toolCallId"] == **call);
            let args: String = args.map(|event| event["delta"].as_str().unwrap()).collect();
            assert_eq!(shown["input"], serde_json::from_str::<Value>(&args).unwrap(), "{name} {call}");
            let awaits = shown.get("awaits").and_then(Value::as_str);
            assert_eq!(awaits, (!ended.contains(call)).then_some("client"), "{name} {call}");
            assert_eq!(shown["status"] == "pending", !ended.contains(call), "{name} {call}");
        }
        assert!(of_kind(&shown, "action").iter().all(|(_, action)| action["status"] == "resolved"), "{name}");
        let open: Vec<_> = shown.values().filter(|activity| activity["content"]["status"] == "streaming").collect();
        assert!(open.is_empty(), "{name}: {open:?}");
    }
}

#[tokio::test]
async fn every_envelope_and_activity_of_every_recording_is_valid_for_every_audience() {
    let client = start_local().await;
    for (name, _) in ENDS {
        // The long recordings repeat the same few events a thousand times.
        let facts: Vec<Value> = events(name).into_iter().take(500).collect();
        post_facts(&client, name, &facts).await;
        for audience in AUDIENCES {
            for event in client.read_events(name, &format!("audience={audience}"), 1000).await {
                assert_valid("agentui-event.schema.json", &event);
            }
            for ((kind, _), activity) in read_activities(&client, name, &format!("audience={audience}")).await {
                assert_activity(&kind, &activity["content"]);
            }
        }
    }
}

#[tokio::test]
async fn awaken_s_encoder_gives_the_same_texts_and_status_as_awaken_itself() {
    let client = start_local().await;
    let mut compared = 0;
    for (name, _) in ENDS {
        let Some(native) = name.strip_prefix("awaken-encoder-") else { continue };
        if !repository(&format!("tests/recordings/awaken/{native}.ndjson")).exists() {
            continue;
        }
        post_recording(&client, name).await;
        client.post_lines(&format!("/v1/runs/{native}/facts?source=awaken"), to_ndjson(&recording(native))).await.ok();
        let (encoded, own) = (read_screen(&client, name).await, read_screen(&client, native).await);
        assert_eq!(texts(&encoded), texts(&own), "{name}");
        assert_eq!(content(&encoded, "run", name)["status"], content(&own, "run", native)["status"], "{name}");
        let outputs = |shown: &Shown| {
            let calls = of_kind(shown, "tool-call-progress").into_iter();
            calls.map(|(id, call)| (id.to_owned(), call.get("output_text").cloned())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(outputs(&encoded), outputs(&own), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}

#[tokio::test]
async fn an_interrupt_pauses_the_run_with_an_action_each_and_the_next_run_s_input_resolves_them() {
    let client = start_local().await;
    let interrupts = json!([
        {"id": "a", "reason": "tool_call", "message": "Delete?", "toolCallId": "c", "responseSchema": {"type": "object"}},
        {"id": "b", "reason": "clarification", "message": "Which?", "expiresAt": "2026-12-31T23:59:59Z"},
    ]);
    let asked = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "one"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "rm"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "one", "outcome": {"type": "interrupt", "interrupts": interrupts}}),
    ];
    post_facts(&client, "r", &asked).await;
    let shown = read_screen(&client, "r").await;
    assert_eq!(content(&shown, "run", "r")["status"], "waiting");
    let (a, b) = (content(&shown, "action", "a"), content(&shown, "action", "b"));
    assert_eq!(
        (&a["status"], &a["kind"], &a["toolCallId"], &a["schema"]),
        (&json!("pending"), &json!("tool_approval"), &json!("c"), &json!({"type": "object"}))
    );
    assert_eq!(
        (&b["status"], &b["kind"], &b["expiresAt"]),
        (&json!("pending"), &json!("clarification"), &json!("2026-12-31T23:59:59Z"))
    );
    assert_eq!(content(&shown, "tool-call-progress", "c")["status"], "pending", "the call goes on after an answer");
    let resume = json!([
        {"interruptId": "a", "status": "resolved", "payload": {"approved": false}},
        {"interruptId": "b", "status": "cancelled"},
        {"interruptId": "of-another-log", "status": "resolved", "payload": 1},
    ]);
    let next = json!({"type": "RUN_STARTED", "threadId": "t", "runId": "two", "parentRunId": "one", "input": {"resume": resume}});
    post_facts(&client, "r", &[next]).await;
    let shown = read_screen(&client, "r").await;
    let outcome = |id: &str| (content(&shown, "action", id)["status"].clone(), content(&shown, "action", id)["outcome"].clone());
    assert_eq!((outcome("a"), outcome("b")), ((json!("resolved"), json!("rejected")), (json!("resolved"), json!("cancelled"))));
    let run = content(&shown, "run", "r");
    assert_eq!((&run["status"], &run["attempt"], &run["parentRunId"]), (&json!("accepted"), &json!(2), &json!("one")));
    let event_types: Vec<_> = read_events_of_type(&client, "r", "action.resolved,run.started").await;
    assert_eq!(
        event_types.iter().map(|e| e["type"].as_str().unwrap()).collect::<Vec<_>>()[1..],
        ["action.resolved", "action.resolved", "run.started"]
    );
    let kept = read_events_of_type(&client, "r", "diagnostic.changed").await;
    assert_eq!(
        kept.last().unwrap()["payload"]["input"]["resume"],
        resume,
        "an answer to an unknown interrupt is kept in a diagnostic"
    );
}

#[tokio::test]
async fn awaken_s_bare_interrupt_pauses_the_run_and_the_same_run_id_continues_it() {
    let client = start_local().await;
    let events = events("awaken-encoder-hitl_approve");
    let paused = events.iter().position(|event| event["type"] == "RUN_FINISHED").unwrap() + 1;
    post_facts(&client, "r", &events[..paused]).await;
    let shown = read_screen(&client, "r").await;
    assert_eq!(content(&shown, "run", "r")["status"], "waiting");
    let action = content(&shown, "action", "perm_call_del");
    assert_eq!((&action["status"], &action["kind"]), (&json!("pending"), &json!("tool_approval")));
    post_facts(&client, "r", &events[paused..=paused]).await;
    let shown = read_screen(&client, "r").await;
    assert_eq!((&content(&shown, "run", "r")["status"], &content(&shown, "run", "r")["attempt"]), (&json!("running"), &json!(1)));
    post_facts(&client, "r", &events[paused + 1..]).await;
    let shown = read_screen(&client, "r").await;
    assert_eq!(content(&shown, "action", "perm_call_del")["outcome"], "answered");
    assert_eq!(content(&shown, "tool-call-progress", "call_del")["output"], r#"{"by":"d-1","deleted":"feat/old"}"#);
}

#[tokio::test]
async fn a_call_that_waits_for_the_client_stays_pending_after_the_run_until_its_answer() {
    let client = start_local().await;
    let call = "9106be4e-af43-4b48-ab63-1e7a3dc6b35e";
    post_facts(&client, "r", &events("server-human_in_the_loop-ask")).await;
    for audience in AUDIENCES {
        let shown = read_activities(&client, "r", &format!("audience={audience}")).await;
        assert_eq!(content(&shown, "run", "r")["status"], "completed");
        let waiting = content(&shown, "tool-call-progress", call);
        assert_eq!((&waiting["status"], &waiting["awaits"]), (&json!("pending"), &json!("client")), "{audience}");
        assert_eq!(waiting["input"]["steps"].as_array().unwrap().len(), 10, "the client needs the input for its interface");
    }
    let mut answer = events("server-human_in_the_loop-answer");
    let tool = json!({"id": "x", "role": "tool", "toolCallId": call, "content": "{\"accepted\":true}"});
    answer[0]["input"] =
        json!({"threadId": "thread-agui-1", "runId": "run-6", "messages": [tool], "state": {"hidden": "SECRET"}});
    post_facts(&client, "r", &answer).await;
    let shown = read_screen(&client, "r").await;
    let ended = content(&shown, "tool-call-progress", call);
    assert_eq!((&ended["status"], &ended["output"], ended.get("awaits")), (&json!("done"), &json!("{\"accepted\":true}"), None));
    assert_eq!(
        (&content(&shown, "run", "r")["status"], &content(&shown, "run", "r")["attempt"]),
        (&json!("completed"), &json!(2))
    );
    assert!(!format!("{shown:?}").contains("SECRET"));
}

#[tokio::test]
async fn no_event_reveals_internal_members_to_a_narrower_audience() {
    let client = start_local().await;
    for (name, _) in ENDS {
        let marked: Vec<Value> = events(name)
            .into_iter()
            .take(300)
            .map(|mut event| {
                event["rawEvent"] = json!({"of": "LEAK"});
                event["metadata"] = json!({"of": "LEAK"});
                if event["type"] == "RUN_STARTED" {
                    event["input"] = json!({"state": "LEAK", "messages": [{"id": "u", "role": "user", "content": "LEAK"}]});
                }
                event
            })
            .collect();
        post_facts(&client, name, &marked).await;
        for audience in ["user", "dashboard"] {
            let events = client.read_events(name, &format!("audience={audience}"), 1000).await;
            assert!(!format!("{events:?}").contains("LEAK"), "{name} {audience}");
        }
        let kept = read_events_of_type(&client, name, "diagnostic.changed").await;
        let count = |kind: &str| kept.iter().filter(|event| event["payload"]["kind"] == kind).count();
        assert_eq!((count("raw_event"), count("metadata")), (marked.len(), marked.len()), "{name}");
        assert_eq!(count("run_input"), marked.iter().filter(|event| event["type"] == "RUN_STARTED").count(), "{name}");
    }
}

#[tokio::test]
async fn a_runtime_s_internal_state_is_for_the_audience_internal_only() {
    let client = start_local().await;
    for (name, _) in ENDS.iter().filter(|(name, _)| name.starts_with("awaken-encoder-") && !name.contains("long")) {
        post_recording(&client, name).await;
        for audience in ["user", "dashboard"] {
            let events = client.read_events(name, &format!("audience={audience}"), 1000).await;
            assert!(!format!("{events:?}").contains("__runtime"), "{name} {audience}");
        }
    }
    post_recording(&client, "scripted-sdk1.0-state").await;
    let state = content(&read_screen(&client, "scripted-sdk1.0-state").await, "state", "state");
    assert_eq!(state["state"], json!({"steps": [], "title": "Reset"}), "users see the application's own state");
}

#[tokio::test]
async fn content_after_its_end_is_refused_with_a_violation_and_changes_nothing() {
    let client = start_local().await;
    let message = |suffix: &str, text: Option<&str>| {
        let mut event = json!({"type": format!("TEXT_MESSAGE_{suffix}"), "messageId": "m"});
        if let Some(text) = text {
            event["delta"] = text.into();
        }
        event
    };
    let facts = [message("START", None), message("CONTENT", Some("a")), message("END", None), message("CONTENT", Some("late"))];
    let receipt = post_facts(&client, "r", &facts).await;
    assert_eq!((&receipt["violations"][0]["index"], &receipt["violations"][0]["code"]), (&json!(3), &json!("write_after_seal")));
    assert_eq!(texts(&read_screen(&client, "r").await)["m"], "a");
    post_facts(&client, "r", &[message("START", None), message("CONTENT", Some("b")), message("END", None)]).await;
    assert_eq!(texts(&read_screen(&client, "r").await)["m"], "ab", "a message that starts again continues");
}

#[tokio::test]
async fn chunk_events_lead_to_the_same_screen_as_start_content_and_end() {
    let client = start_local().await;
    for (name, _) in ENDS.iter().filter(|(name, _)| !name.contains("long")) {
        let whole = events(name);
        let mut chunks = Vec::new();
        let mut last = Value::Null;
        for event in &whole {
            let kind = event["type"].as_str().unwrap();
            let (of, suffix) = kind.rsplit_once('_').unwrap();
            let is_streamed = matches!(of, "TEXT_MESSAGE" | "REASONING_MESSAGE" | "TOOL_CALL");
            if !is_streamed || suffix == "RESULT" {
                last = Value::Null;
                chunks.push(event.clone());
                continue;
            }
            let mut chunk = event.clone();
            chunk["type"] = format!("{of}_CHUNK").into();
            let id = if of == "TOOL_CALL" { "toolCallId" } else { "messageId" };
            let this = json!([of, event[id]]);
            match suffix {
                "END" => continue,
                // A chunk that continues the last message may omit its id.
                _ if last == this => drop(chunk.as_object_mut().unwrap().shift_remove(id)),
                _ => last = this,
            }
            chunks.push(chunk);
        }
        let chunked = format!("{name}-in-chunks");
        post_facts(&client, name, &whole).await;
        post_facts(&client, &chunked, &chunks).await;
        let (expected, shown) = (read_screen(&client, name).await, read_screen(&client, &chunked).await);
        assert_eq!(texts(&shown), texts(&expected), "{name}");
        let calls = |shown: &Shown| {
            let of = |call: &Value| {
                json!([call["tool_name"], call["status"], call["state"], call["input"], call["output"], call["awaits"]])
            };
            of_kind(shown, "tool-call-progress").iter().map(|(id, call)| ((*id).to_owned(), of(call))).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(calls(&shown), calls(&expected), "{name}");
        assert!(of_kind(&shown, "message").iter().all(|(_, message)| message["status"] == "complete"), "{name}");
    }
}

#[tokio::test]
async fn activities_follow_snapshots_and_patches_and_replace_false_keeps_the_content() {
    let client = start_local().await;
    let events = events("scripted-sdk1.0-activity");
    let kept = events.iter().position(|event| event["replace"] == false).unwrap();
    post_facts(&client, "r", &events[..=kept]).await;
    let before = json!({"status": "running", "progress": 1, "lines": ["line 0", "line 1", "line 2", "line 3"]});
    assert_eq!(content(&read_screen(&client, "r").await, "PROGRESS", "act-1"), before);
    post_facts(&client, "r", &events[kept + 1..]).await;
    assert_eq!(content(&read_screen(&client, "r").await, "PROGRESS", "act-1"), json!({"status": "done", "progress": 1}));
}

#[tokio::test]
async fn a_patch_that_does_not_apply_becomes_a_diagnostic_and_ingest_continues() {
    let client = start_local().await;
    let delta =
        |id: &str, patch: Value| json!({"type": "ACTIVITY_DELTA", "messageId": id, "activityType": "log", "patch": patch});
    let facts = [
        delta("unheard-of", json!([{"op": "replace", "path": "/x/y", "value": 1}])),
        delta("unheard-of", json!({"op": "add", "path": "/line", "value": "bare"})),
        json!({"type": "ACTIVITY_SNAPSHOT", "messageId": "s", "activityType": "log", "content": "a string"}),
        delta("s", json!([{"op": "add", "path": "/line/deep", "value": "x"}])),
        json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/none", "value": 1}]}),
    ];
    post_facts(&client, "r", &facts).await;
    let shown = read_activities(&client, "r", "audience=internal").await;
    assert_eq!(content(&shown, "log", "unheard-of"), json!({"line": "bare"}));
    let notes = content(&shown, "diagnostics", "diagnostics")["entries"].as_array().unwrap().len();
    assert_eq!(notes, 3, "each patch that did not apply has an entry");
}

#[tokio::test]
async fn activities_with_one_message_id_are_distinguished_by_type() {
    let client = start_local().await;
    post_recording(&client, "awaken-encoder-tool_progress_activity").await;
    let shown = read_screen(&client, "awaken-encoder-tool_progress_activity").await;
    let call = content(&shown, "tool-call-progress", "call_idx_1");
    assert_eq!((&call["status"], &call["progress"], &call["tool_name"]), (&json!("done"), &json!(1.0), &json!("index_docs")));
    assert!(content(&shown, "index-log", "call_idx_1")["value"].as_str().unwrap().starts_with("opened index v3\n"));
}

#[tokio::test]
async fn a_child_s_progress_is_its_own_call_under_the_parent_s_call() {
    let client = start_local().await;
    post_recording(&client, "awaken-encoder-subagent_progress_forwarded").await;
    let shown = read_screen(&client, "awaken-encoder-subagent_progress_forwarded").await;
    let (child, parent) =
        (content(&shown, "tool-call-progress", "child_idx"), content(&shown, "tool-call-progress", "call_deleg"));
    assert_eq!(
        (&child["parent_call_id"], &child["status"], &child["tool_name"]),
        (&json!("call_deleg"), &json!("done"), &json!("index_docs"))
    );
    assert_eq!((&parent["message"], parent.get("parent_call_id")), (&json!("delegation to researcher completed"), None));
}

#[tokio::test]
async fn texts_of_sub_agents_go_to_their_own_transcripts() {
    let client = start_local().await;
    let own = |agent: &str, mut event: Value| {
        event["subagentRunId"] = agent.into();
        event
    };
    let start = json!({"type": "TEXT_MESSAGE_START", "messageId": "m"});
    let content_event = |text: &str| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text});
    let facts = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "one"}),
        json!({"type": "SUBAGENT_STARTED", "subagentRunId": "kid", "name": "researcher"}),
        start.clone(),
        own("kid", start),
        own("kid", content_event("of the kid")),
        own("kid", json!({"type": "TEXT_MESSAGE_END", "messageId": "m"})),
        own("kid", json!({"type": "STATE_SNAPSHOT", "snapshot": {"x": 1}})),
        content_event("of the lead"),
        json!({"type": "SUBAGENT_ERROR", "subagentRunId": "kid", "message": "lost"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "one"}),
    ];
    post_facts(&client, "r", &facts).await;
    let shown = read_screen(&client, "r").await;
    assert_eq!(texts(&shown), BTreeMap::from([("m".into(), "of the lead".into()), ("kid/m".into(), "of the kid".into())]));
    let surface = |id: &str| shown[&("message".to_owned(), id.to_owned())]["surface"].clone();
    assert_eq!((surface("m"), surface("kid/m")), (json!("conversation"), json!("teammate_transcript")));
    let agent = content(&shown, "agent", "kid");
    assert_eq!(
        (&agent["agentName"], &agent["status"], &agent["error"]),
        (&json!("researcher"), &json!("failed"), &json!({"message": "lost"}))
    );
    assert_eq!(content(&shown, "run", "r")["status"], "completed", "the sub-agent's error does not end the run");
    assert_eq!((content(&shown, "state", "state"), content(&shown, "subagent-state", "kid")), (Value::Null, json!({"x": 1})));
}

#[tokio::test]
async fn a_backend_s_tools_become_calls_though_only_a_snapshot_names_them() {
    let client = start_local().await;
    post_recording(&client, "server-agentic_chat-backend_tool").await;
    let shown = read_screen(&client, "server-agentic_chat-backend_tool").await;
    let call = content(&shown, "tool-call-progress", "53de13c3-20e7-42da-8ecd-aa88f7fc3b26");
    assert_eq!((&call["tool_name"], &call["status"]), (&json!("lookup_weather"), &json!("done")));
    assert_eq!(call["input"], json!({"city": "San Francisco", "weather": "sunny"}));
    assert_eq!(call["output"], "The weather in San Francisco is sunny.");
    let part = &content(&shown, "message", "d598dc6e-26e4-4f4a-957e-a9a99ee90c14")["parts"][0];
    assert_eq!((&part["kind"], &part["toolCallId"]), (&json!("tool_call"), &json!("53de13c3-20e7-42da-8ecd-aa88f7fc3b26")));
    assert_eq!(texts(&shown)["u1"], "backend_tool");
}

#[tokio::test]
async fn a_tool_result_in_parts_or_prose_is_a_result() {
    let client = start_local().await;
    post_recording(&client, "scripted-sdk1.0-tools_interleaved").await;
    let results = read_events_of_type(&client, "scripted-sdk1.0-tools_interleaved", "tool.result").await;
    let outcomes: Vec<_> = results.iter().map(|result| (&result["payload"]["outcome"], &result["payload"]["output"])).collect();
    let unknown = json!("unknown");
    assert_eq!(outcomes[0], (&unknown, &json!("{\"status\":404,\"error\":\"not found\"}")));
    assert_eq!(outcomes[1], (&unknown, &json!([{"type": "text", "text": "3 hits"}])));
    assert!(read_events_of_type(&client, "scripted-sdk1.0-tools_interleaved", "tool.failed").await.is_empty());
}

#[tokio::test]
async fn usage_is_summed_over_models_and_runs_and_visible_from_dashboard() {
    let client = start_local().await;
    post_recording(&client, "scripted-sdk1.0-long_40_steps").await;
    let run = |shown: &Shown| content(shown, "run", "scripted-sdk1.0-long_40_steps");
    let shown = read_activities(&client, "scripted-sdk1.0-long_40_steps", "audience=dashboard").await;
    let sum = json!({"inputTokens": 4300, "outputTokens": 920, "totalTokens": 5220, "cacheReadTokens": 0});
    assert_eq!(run(&shown)["usage"], sum);
    assert_eq!(run(&read_screen(&client, "scripted-sdk1.0-long_40_steps").await).get("usage"), None);
}

#[tokio::test]
async fn a_nested_run_is_flagged_and_does_not_end_the_outer_run() {
    let client = start_local().await;
    let suffix = |suffix: &str, run: &str| json!({"type": format!("RUN_{suffix}"), "threadId": "t", "runId": run});
    post_facts(&client, "r", &[suffix("STARTED", "a"), suffix("STARTED", "b"), suffix("FINISHED", "b")]).await;
    assert_eq!(content(&read_screen(&client, "r").await, "run", "r")["status"], "accepted");
    let flagged = read_events_of_type(&client, "r", "diagnostic.changed").await;
    assert!(flagged.len() == 2 && flagged.iter().all(|event| event["payload"]["kind"] == "interleaved_run"));
    post_facts(&client, "r", &[suffix("FINISHED", "a")]).await;
    assert_eq!(content(&read_screen(&client, "r").await, "run", "r")["status"], "completed");
}

#[tokio::test]
async fn a_secret_in_streamed_arguments_is_redacted_before_the_input_is_visible() {
    let client = start_local().await;
    let args = |delta: &str| json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": delta});
    let key = format!("sk-{}", "a1B2".repeat(10));
    let facts = [
        json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "call"}),
        args(&format!("{{\"url\":\"https://e.test\",\"key\":\"{}", &key[..9])),
        args(&key[9..]),
        args("\"}"),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c"}),
    ];
    post_facts(&client, "r", &facts).await;
    let call = content(&read_activities(&client, "r", "audience=internal").await, "tool-call-progress", "c");
    assert_eq!(call["input"], json!({"url": "https://e.test", "key": "[redacted]"}));
    assert_eq!((call.get("input_text"), &call["state"]), (None, &json!("input-available")));
}

/// Starts a server whose clock stands still, with a compactor that takes every ended run.
async fn start_with_stopped_clock() -> (Client, Compactor) {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let store = Storage::memory();
    let clock = environment(|| jiff::Timestamp::UNIX_EPOCH);
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, clock).expect("an empty store opens");
    let compactor = server.compactor(Duration::ZERO);
    (serve_until(server, std::future::pending()).await.0, compactor)
}

#[tokio::test]
async fn compaction_removes_many_rows_and_no_activity_changes() {
    let (client, compactor) = start_with_stopped_clock().await;
    let names = ["server-human_in_the_loop-ask", "scripted-sdk1.0-long_40_steps", "awaken-encoder-multi_tool_parallel"];
    let mut before = Vec::new();
    for name in names {
        post_recording(&client, name).await;
        for audience in AUDIENCES {
            before.push(read_activities(&client, name, &format!("audience={audience}")).await);
        }
    }
    let removed = compactor.run_once().await.unwrap().rows;
    assert!(removed > 100, "{removed}");
    let mut expected = before.iter();
    for name in names {
        for audience in AUDIENCES {
            let shown = read_activities(&client, name, &format!("audience={audience}")).await;
            assert!(Some(&shown) == expected.next(), "{name} for {audience}");
        }
    }
    let call = "9106be4e-af43-4b48-ab63-1e7a3dc6b35e";
    assert_eq!(content(&before[0], "tool-call-progress", call)["awaits"], "client");
    let answer = json!({"type": "TOOL_CALL_RESULT", "messageId": "x", "toolCallId": call, "content": "yes"});
    post_facts(&client, names[0], &[answer]).await;
    assert_eq!(content(&read_screen(&client, names[0]).await, "tool-call-progress", call)["status"], "done");
}

// ── the adapter alone ──

fn given() -> Ids {
    Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() }
}

fn adapt_with(adapter: &mut DryRun, fact: Fact) -> Vec<Draft> {
    adapter.adapt(fact, &given()).unwrap()
}

fn fact(event: &Value) -> Fact {
    event.as_object().expect("an event is an object").clone()
}

#[test]
fn no_recorded_event_is_flagged_and_every_recorded_member_is_mapped() {
    for (name, _) in ENDS {
        let mut adapter = DryRun::new(by_name("ag-ui").unwrap());
        for event in events(name) {
            for draft in adapt_with(&mut adapter, fact(&event)) {
                let kind = draft.text("kind").filter(|_| draft.event_type.as_str() == "diagnostic.changed");
                assert!(kind.is_none_or(|kind| kind == "reasoning_encrypted_value"), "{name}: {kind:?} {event}");
                assert!(draft.extra.is_empty(), "{name}: {:?} of {event}", draft.extra);
                assert_eq!(draft.ids.run.as_ref().map(RunId::as_str), Some("run"), "{name}");
                assert_eq!(draft.timestamp.is_some(), event.get("timestamp").is_some(), "{name}: {event}");
            }
        }
    }
}

#[test]
fn an_adapter_restored_between_any_two_facts_gives_the_same_drafts() {
    for (name, _) in ENDS {
        let source = by_name("ag-ui").unwrap();
        let (mut lasting, mut restored) = (DryRun::new(source), DryRun::new(source));
        for (n, event) in events(name).iter().enumerate() {
            assert_eq!(adapt_with(&mut restored, fact(event)), adapt_with(&mut lasting, fact(event)), "{name}, fact {n}");
            let memory = restored.save();
            assert_eq!(memory, lasting.save(), "{name}, fact {n}");
            let bytes = memory.len();
            assert!(bytes <= MEMORY_BYTES_MAX, "{name}, fact {n}: memory is {bytes} bytes, the limit is {MEMORY_BYTES_MAX}");
            restored.restore(&memory).unwrap();
        }
    }
}

/// Generates unexpected values for a member.
fn odd_value() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("a\u{7}b")),
        Just(json!("x".repeat(300))),
        Just(json!(-1)),
        Just(json!(1e300)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, 7, "x", {"id": 1}])),
        Just(json!({"type": "interrupt", "interrupts": [7, {"id": []}, {"metadata": 1}]})),
        Just(json!({"type": 7})),
        Just(
            json!({"resume": [{"interruptId": "i", "status": "resolved"}], "messages": [{"role": "tool", "toolCallId": "c"}, 7]})
        ),
        Just(json!([{"id": "m", "role": "assistant", "content": [7, {"type": "text"}], "toolCalls": [7, {"function": 7}]}])),
        Just(json!("m")),
        Just(json!("interrupt")),
    ];
    plain.boxed()
}

/// Generates changes to a recording: `(where, what, how, value)`.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, prop::sample::Index, Value)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<prop::sample::Index>(), odd_value()), 0..24)
}

#[test]
fn the_adapter_accepts_any_mutated_stream_and_restores_to_the_same_memory() {
    let streams: Vec<Vec<Value>> = ENDS.iter().map(|(name, _)| events(name).into_iter().take(120).collect()).collect();
    let kinds: Vec<String> = streams.iter().flatten().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let source = by_name("ag-ui").unwrap();
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let strategy = (any::<prop::sample::Index>(), mutations());
    let outcome = runner.run(&strategy, |(which, mutations)| {
        let mut events = which.get(&streams).clone();
        for (at, what, how, value) in mutations {
            if events.is_empty() {
                break;
            }
            let at = at.index(events.len());
            match what {
                0 => drop(events.remove(at)),
                1 => events.insert(at, events[at].clone()),
                2 => {
                    let other = how.index(events.len());
                    events.swap(at, other);
                }
                3 => {
                    let event = events[at].as_object_mut().unwrap();
                    let names: Vec<String> = event.keys().filter(|name| *name != "type").cloned().collect();
                    if !names.is_empty() {
                        event.insert(how.get(&names).clone(), value);
                    }
                }
                _ => {
                    let mut event = Map::from_iter([("type".to_owned(), json!(how.get(&kinds)))]);
                    for member in ["messageId", "toolCallId", "subagentRunId", "delta", "outcome", "input", "messages", "usage"] {
                        event.insert(member.to_owned(), value.clone());
                    }
                    events.insert(at, Value::Object(event));
                }
            }
        }
        let (mut lasting, mut restored) = (DryRun::new(source), DryRun::new(source));
        let mut ledger = proscenium::source::ledger::Ledger::default();
        for event in &events {
            let drafts = adapt_with(&mut lasting, fact(event));
            prop_assert_eq!(&adapt_with(&mut restored, fact(event)), &drafts);
            prop_assert!(!drafts.is_empty(), "{} gives no draft", event);
            let saved = restored.save();
            restored.restore(&saved).unwrap();
            for mut draft in drafts {
                ledger.record(&mut draft, 0);
            }
        }
        prop_assert_eq!(restored.save(), lasting.save());
        Ok(())
    });
    outcome.unwrap();
}

#[tokio::test]
async fn an_answer_resolves_the_asking_run_of_its_session_once_however_often_it_is_sent() {
    let client = start_local().await;
    let post_facts = async |run: &str, facts: Vec<Value>| {
        client.post_lines(&format!("/v1/runs/{run}/facts?source=ag-ui"), to_ndjson(&facts)).await.ok();
    };
    let start = |run: &str, input: Value| json!({"type": "RUN_STARTED", "threadId": "t", "runId": run, "input": input});
    let ask = |run: &str, ids: &[&str]| {
        let interrupts: Vec<_> = ids.iter().map(|id| json!({"id": id, "reason": "tool_approval"})).collect();
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": run, "outcome": {"type": "interrupt", "interrupts": interrupts}})
    };
    let state_of = async |run: &str| {
        let run = client.get(&format!("/v1/runs/{run}")).await.ok();
        json!([run["status"], run["lastSequence"], run["counts"]["pendingActions"]])
    };
    post_facts("one", vec![start("one", Value::Null), ask("one", &["a", "b"])]).await;
    post_facts(
        "elsewhere",
        vec![json!({"type": "RUN_STARTED", "threadId": "u", "runId": "elsewhere"}), ask("elsewhere", &["a"])],
    )
    .await;
    let before = state_of("one").await;
    assert_eq!(json!([before[0], before[2]]), json!(["waiting", 2]));
    let asked = before[1].as_u64().unwrap();

    // Half of the interrupts are answered: the run still waits.
    let half = json!({"resume": [{"interruptId": "a", "status": "resolved", "payload": {"approved": true}}]});
    for _ in 0..2 {
        post_facts("two", vec![start("two", half.clone())]).await;
    }
    assert_eq!(state_of("one").await, json!(["waiting", asked + 1, 1]));
    let rest = json!({"resume": [{"interruptId": "b", "status": "cancelled"}, {"interruptId": "never", "status": "cancelled"}]});
    for run in ["three", "three", "four"] {
        post_facts(run, vec![start(run, rest.clone())]).await;
    }
    assert_eq!(state_of("one").await, json!(["completed", asked + 3, 0]), "another run has answered all of its interrupts");
    let events = client.read_events("one", "audience=user", 10).await;
    let without_time = |event: &Value| {
        let mut event = event.clone();
        event.pointer_mut("/payload/decidedBy").and_then(Value::as_object_mut).map(|by| by.shift_remove("at"));
        json!([event["type"], event["actionId"], event["payload"], event["refs"]])
    };
    let resolved: Vec<_> = events[4..].iter().map(without_time).collect();
    let by = json!({"via": "runtime"});
    assert_eq!(
        resolved,
        [
            json!(["action.resolved", "a", {"outcome": "approved", "value": {"approved": true}, "decidedBy": by}, {"answeredByRunId": "two"}]),
            json!(["action.resolved", "b", {"outcome": "cancelled", "decidedBy": by}, {"answeredByRunId": "three"}]),
            json!(["run.finished", null, {"status": "completed", "continuedBy": "three"}, null]),
        ]
    );
    assert_eq!(state_of("elsewhere").await[0], "waiting", "a question with the same id in another session stays open");
}
