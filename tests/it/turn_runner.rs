//! `TurnRunner`'s recordings through the real server: every turn ends, and telemetry has no influence.
//!
//! Properties of the adapter alone are tested on the adapter.

use crate::activities::{Screen, read_activities, without_times};
use crate::harness::{AUDIENCES, Client, Process, repository, start_local, to_ndjson};
use crate::schema::{assert_activity, assert_valid};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proscenium::model::{Draft, Ids, RunId};
use proscenium::source::{DryRun, SourceKind, by_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The largest adapter memory of a recording, in bytes.
///
/// Ids, counters and hashes of a real run fit; a body would not.
const MEMORY_BYTES_MAX: usize = 8 * 1024;

/// Every recording, and the status of its turn.
const ENDS: &[(&str, &str)] = &[
    // An abort that cannot be recognised: the naive form has neither its name nor its cause.
    ("abort_domexception_looks_like_error", "failed"),
    ("ack_in_output_pipeline", "completed"),
    ("error_executor_throws", "failed"),
    ("error_executor_throws_expanded", "failed"),
    ("error_input_pipeline", "failed"),
    ("error_nack", "failed"),
    ("gate_aborted_turn", "cancelled"),
    ("gate_approved", "completed"),
    ("gate_timeout", "completed"),
    ("long_40_iterations", "completed"),
    ("multi_tool", "completed"),
    ("short_text", "completed"),
    ("tool_failure", "completed"),
];

fn recording(name: &str) -> Vec<Value> {
    let path = repository(&format!("tests/recordings/turn-runner/handwritten-port-{name}.ndjson"));
    let text = std::fs::read_to_string(path).expect("the recording is readable");
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// Returns whether the fact is telemetry: it is for operators only, although it belongs to a turn.
fn is_telemetry(fact: &Value) -> bool {
    let event = fact["event"].as_str().expect("a fact has an event");
    ["log", "warning"].contains(&event) || ["toolExecution", "iteration"].iter().any(|family| event.starts_with(family))
}

/// Posts facts to a run; returns the receipt.
async fn post_facts(client: &Client, run: &str, facts: &[Value]) -> Value {
    let receipt = client.post_lines(&format!("/v1/runs/{run}/facts?source=turnrunner"), to_ndjson(facts)).await.ok();
    assert_eq!(receipt["accepted"], facts.len(), "{run}: {receipt}");
    receipt
}

async fn read_status(client: &Client, run: &str) -> String {
    client.get(&format!("/v1/runs/{run}")).await.ok()["status"].as_str().expect("a run has a status").to_owned()
}

type Shown = BTreeMap<(String, String), Value>;

/// Returns the contents of this type by id.
fn of_kind<'s>(shown: &'s Shown, kind: &str) -> BTreeMap<&'s str, &'s Value> {
    shown.iter().filter(|((of, _), _)| of == kind).map(|((_, id), activity)| (id.as_str(), &activity["content"])).collect()
}

fn joined_text(text: &Value) -> String {
    text.as_array().expect("text is a list of chunks").iter().map(|chunk| chunk.as_str().expect("a chunk is text")).collect()
}

/// Returns each message's text.
fn texts(shown: &Shown) -> BTreeMap<String, String> {
    let text = |content: &Value| {
        content["parts"].as_array().expect("a message has parts").iter().map(|part| joined_text(&part["text"])).collect()
    };
    of_kind(shown, "message").into_iter().map(|(id, content)| (id.to_owned(), text(content))).collect()
}

/// Concatenates the deltas by id.
fn streamed_texts(facts: &[Value], event: &str) -> BTreeMap<String, String> {
    let mut streamed = BTreeMap::<String, String>::new();
    for fact in facts.iter().filter(|fact| fact["event"] == event) {
        let delta = fact["payload"]["aDelta"].as_str().expect("a delta is text");
        streamed.entry(fact["payload"]["id"].as_str().expect("a fact has an id").to_owned()).or_default().push_str(delta);
    }
    streamed
}

/// Copies the facts as those of another turn.
fn as_turn(facts: &[Value], turn: &str) -> Vec<Value> {
    let mut facts = facts.to_vec();
    for fact in facts.iter_mut().filter(|fact| fact["payload"].get("turnId").is_some()) {
        fact["payload"]["turnId"] = json!(turn);
    }
    facts
}

/// Removes sequences and times of envelopes, and everything that comes from telemetry.
fn without_telemetry(mut shown: Shown) -> Shown {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.shift_remove("opened");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    shown.retain(|(kind, _), _| kind != "diagnostics" && kind != "metrics" && kind != "run");
    shown.values_mut().for_each(strip);
    without_times(shown)
}

async fn read_run(client: &Client, run: &str, audience: &str) -> Value {
    let shown = read_activities(client, run, &format!("audience={audience}")).await;
    of_kind(&shown, "run")[run].clone()
}

#[tokio::test]
async fn every_recorded_turn_ends_once_with_its_status_and_leaves_nothing_open() {
    let files = std::fs::read_dir(repository("tests/recordings/turn-runner")).expect("the directory is readable").count();
    assert_eq!(files, ENDS.len(), "every recording has a row");
    let client = start_local().await;
    for (name, expected) in ENDS {
        let facts = recording(name);
        let receipt = post_facts(&client, name, &facts).await;
        assert_eq!(receipt.get("violations"), None, "{name}");
        assert_eq!(read_status(&client, name).await, *expected, "{name}");
        let events = client.read_events(name, "audience=internal", 1000).await;
        let ends: Vec<_> =
            events.iter().filter(|event| ["run.finished", "run.failed"].contains(&event["type"].as_str().unwrap())).collect();
        assert_eq!(ends.len(), 1, "{name}");
        assert_eq!(Some(ends[0]), events.last(), "{name}: the end is the last event");
        for event in &events {
            let kind = event["payload"]["kind"].as_str().unwrap_or_default();
            let lost = ["unknown_event_type", "malformed_event", "unplaced_members", "write_after_seal", "stale_chunk"];
            assert!(!lost.contains(&kind), "{name}: {event}");
        }
        for audience in AUDIENCES {
            let shown = read_activities(&client, name, &format!("audience={audience}")).await;
            assert_eq!(read_run(&client, name, audience).await["status"], *expected, "{name}");
            for ((kind, id), activity) in &shown {
                let content = &activity["content"];
                assert_activity(kind, content);
                let open = [&content["status"], &content["state"]]
                    .into_iter()
                    .chain(content["parts"].as_array().into_iter().flatten().map(|part| &part["status"]))
                    .any(|status| {
                        ["streaming", "running", "pending", "progress", "input-available"].iter().any(|open| status == open)
                    });
                assert!(!open, "{name}: {kind} {id} is open for {audience}: {content}");
            }
            assert_eq!(texts(&shown), streamed_texts(&facts, "message"), "{name} for {audience}");
            let thoughts: BTreeMap<_, _> = of_kind(&shown, "reasoning")
                .into_values()
                .map(|t| (t["messageId"].as_str().unwrap().to_owned(), joined_text(&t["text"])))
                .collect();
            let expected = if audience == "user" { BTreeMap::new() } else { streamed_texts(&facts, "thought") };
            assert_eq!(thoughts, expected, "{name} for {audience}");
        }
    }
}

#[tokio::test]
async fn every_envelope_of_every_recording_is_valid_and_maps_every_member() {
    let client = start_local().await;
    for (name, _) in ENDS {
        post_facts(&client, name, &recording(name).into_iter().take(500).collect::<Vec<_>>()).await;
        for audience in AUDIENCES {
            for event in client.read_events(name, &format!("audience={audience}"), 1000).await {
                assert_valid("agentui-event.schema.json", &event);
                for internal in ["isComplete", "updatedAt", "full", "aDelta", "bus", "sourceTurnId"] {
                    assert_eq!(event.get(internal), None, "{name}: unmapped members: {event}");
                }
            }
        }
    }
}

#[tokio::test]
async fn lost_or_changed_telemetry_does_not_change_the_agent_s_activities() {
    let client = start_local().await;
    for (name, _) in ENDS {
        let facts = recording(name);
        let stripped: Vec<Value> = facts.iter().filter(|fact| !is_telemetry(fact)).cloned().collect();
        let change = |fact: &Value| match is_telemetry(fact) {
            true => json!({"bus": fact["bus"], "event": fact["event"], "payload": [fact["payload"]], "log": {"callId": 7}}),
            false => fact.clone(),
        };
        let garbled: Vec<Value> = facts.iter().map(change).collect();
        assert!(stripped.len() < facts.len() || *name == "error_input_pipeline", "{name}");
        let runs =
            [("whole", facts), ("stripped", stripped), ("garbled", garbled)].map(|(way, facts)| (format!("{name}-{way}"), facts));
        for (run, facts) in &runs {
            post_facts(&client, run, facts).await;
        }
        for audience in ["user", "dashboard"] {
            let mut seen = Vec::new();
            for (run, _) in &runs {
                let shown = read_activities(&client, run, &format!("audience={audience}")).await;
                seen.push((without_telemetry(shown), read_run(&client, run, audience).await));
            }
            assert_eq!(seen[1], seen[0], "{name} for {audience}: without telemetry");
            assert_eq!(seen[2], seen[0], "{name} for {audience}: with changed telemetry");
        }
    }
}

#[tokio::test]
async fn a_user_s_view_of_a_turn_is_the_same_with_and_without_telemetry_at_every_step() {
    let client = start_local().await;
    for name in ["gate_approved", "tool_failure"] {
        let facts = recording(name);
        for cut in 1..facts.len() {
            let whole = &facts[..cut];
            let stripped: Vec<Value> = whole.iter().filter(|fact| !is_telemetry(fact)).cloned().collect();
            let mut seen = Vec::new();
            for (run, facts) in [(format!("{name}-{cut}"), whole), (format!("{name}-{cut}-stripped"), stripped.as_slice())] {
                post_facts(&client, &run, facts).await;
                let shown = read_activities(&client, &run, "").await;
                seen.push((without_telemetry(shown), read_run(&client, &run, "user").await));
            }
            assert_eq!(seen[0], seen[1], "{name} after {cut}");
        }
    }
}

#[tokio::test]
async fn the_log_of_a_long_turn_contains_its_text_twice_and_not_once_per_chunk() {
    let client = start_local().await;
    let facts = recording("long_40_iterations");
    post_facts(&client, "r", &facts).await;
    let sum = |member: &str| -> usize { facts.iter().filter_map(|fact| fact["payload"][member].as_str()).map(str::len).sum() };
    let (deltas, fulls) = (sum("aDelta"), sum("full"));
    assert!(fulls > 15 * deltas, "{fulls} bytes of full, {deltas} of text: the recording does not suit the test");
    let exported = client.export("r", "audience=internal").await;
    let is_text =
        |event: &&Value| ["text.", "reasoning."].iter().any(|family| event["type"].as_str().unwrap().starts_with(family));
    let stored: usize = exported.iter().filter(is_text).filter_map(|event| event["payload"]["text"].as_str()).map(str::len).sum();
    assert_eq!(stored, 2 * deltas, "each chunk, and the whole text at the seal");
    assert!(exported.iter().all(|event| !event.to_string().contains("\"full\"")));
    let bytes: usize = exported.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes <= exported.len() * 700, "{bytes} bytes of {} envelopes", exported.len());
}

#[tokio::test]
async fn writes_after_a_seal_change_nothing_and_are_reported_to_the_producer() {
    let client = start_local().await;
    let mut facts = recording("short_text");
    let end = facts.split_off(facts.len() - 2);
    post_facts(&client, "r", &facts).await;
    let before = read_activities(&client, "r", "audience=internal").await;
    let of = |event: &str, id: &str, delta: &str, is_complete: bool| {
        let payload =
            json!({"id": id, "aDelta": delta, "full": format!("Hello! How can I help?{delta}"), "isComplete": is_complete});
        json!({"bus": "functional", "event": event, "payload": payload})
    };
    let late =
        [of("message", "msg-1", " More.", false), of("thought", "th-1", " More.", false), of("message", "msg-1", " End.", true)];
    let receipt = post_facts(&client, "r", &late).await;
    let named: Vec<_> = receipt["violations"]
        .as_array()
        .expect("the receipt has violations")
        .iter()
        .map(|v| (v["index"].as_u64().unwrap(), v["code"].as_str().unwrap()))
        .collect();
    assert_eq!(named, [(0, "write_after_seal"), (1, "write_after_seal"), (2, "write_after_seal")]);
    let after = read_activities(&client, "r", "audience=internal").await;
    assert_eq!(texts(&after), texts(&before));
    assert_eq!(of_kind(&after, "reasoning"), of_kind(&before, "reasoning"));
    post_facts(&client, "r", &end).await;
    assert_eq!(read_status(&client, "r").await, "completed");
}

#[tokio::test]
async fn a_seal_without_text_ends_its_message_before_the_turn_ends() {
    let client = start_local().await;
    let facts = recording("short_text");
    let at = facts
        .iter()
        .position(|fact| fact["event"] == "message" && fact["payload"]["isComplete"] == true)
        .expect("the recording has a seal");
    assert_eq!(facts[at]["payload"]["aDelta"], "");
    for (cut, expected) in [(at, "streaming"), (at + 1, "complete")] {
        let run = format!("r{cut}");
        post_facts(&client, &run, &facts[..cut]).await;
        let shown = read_activities(&client, &run, "").await;
        assert_eq!(of_kind(&shown, "message")["msg-1"]["status"], expected);
    }
}

#[tokio::test]
async fn an_unsealed_message_is_interrupted_by_the_end_of_its_turn() {
    let client = start_local().await;
    for name in ["error_executor_throws", "abort_domexception_looks_like_error"] {
        post_facts(&client, name, &recording(name)).await;
        let shown = read_activities(&client, name, "").await;
        assert_eq!(of_kind(&shown, "message")["msg-1"]["status"], "interrupted", "{name}");
    }
}

#[tokio::test]
async fn a_later_turn_of_the_same_stream_has_its_own_ids() {
    let client = start_local().await;
    let facts = recording("gate_approved");
    post_facts(&client, "r", &facts).await;
    post_facts(&client, "r", &as_turn(&recording("gate_timeout"), "second")).await;
    let shown = read_activities(&client, "r", "").await;
    let texts_of_turn = ["Deploying needs approval. ", "Finished."];
    let expected = [
        ("msg-1", texts_of_turn[0]),
        ("msg-2", texts_of_turn[1]),
        ("turnrunner-2-msg-1", texts_of_turn[0]),
        ("turnrunner-2-msg-2", texts_of_turn[1]),
    ];
    assert_eq!(texts(&shown), expected.map(|(id, text)| (id.to_owned(), text.to_owned())).into());
    let calls = of_kind(&shown, "tool-call-progress");
    assert_eq!(
        (&calls["call_d"]["state"], &calls["turnrunner-2-call_d"]["state"]),
        (&json!("output-available"), &json!("output-error"))
    );
    assert_eq!(of_kind(&shown, "action")["gate-prod-0"]["toolCallId"], "turnrunner-2-call_d", "the same gate opens again");
    assert_eq!(of_kind(&shown, "run")["r"]["attempt"], 2);
}

#[tokio::test]
async fn interleaved_turns_are_flagged_and_not_merged() {
    let client = start_local().await;
    let first = recording("short_text");
    let second = as_turn(&recording("multi_tool"), "second");
    let mut facts = first[..8].to_vec();
    facts.push(second[0].clone());
    facts.extend_from_slice(&first[8..]);
    facts.push(second.last().expect("the recording has an end").clone());
    post_facts(&client, "r", &facts).await;
    let events = client.read_events("r", "audience=internal", 1000).await;
    let flagged = events.iter().filter(|event| event["payload"]["kind"] == "interleaved_run").count();
    assert_eq!((flagged, read_status(&client, "r").await.as_str()), (2, "completed"));
    assert_eq!(events.iter().filter(|event| event["type"] == "run.started").count(), 1);
    assert_eq!(texts(&read_activities(&client, "r", "").await), streamed_texts(&first, "message"));
}

#[tokio::test]
async fn a_gate_is_an_action_that_only_its_source_resolves() {
    let client = start_local().await;
    for (name, outcome, state) in [
        ("gate_approved", "approved", "output-available"),
        ("gate_timeout", "expired", "output-error"),
        ("gate_aborted_turn", "cancelled", "cancelled"),
    ] {
        let facts = recording(name);
        let open = facts.iter().position(|fact| fact["event"] == "turnGateOpen").expect("the recording has a gate");
        post_facts(&client, name, &facts[..=open]).await;
        assert_eq!(read_status(&client, name).await, "waiting", "{name}");
        let shown = read_activities(&client, name, "").await;
        let asked = &of_kind(&shown, "action")["gate-prod-0"];
        assert_eq!(
            (&asked["status"], &asked["kind"], &asked["toolCallId"]),
            (&json!("pending"), &json!("tool_approval"), &json!("call_d"))
        );
        assert_eq!(
            (&asked["risk"], &asked["input"]["env"], &asked["toolName"]),
            (&json!("high"), &json!("prod"), &json!("deploy"))
        );
        assert_eq!(of_kind(&shown, "tool-call-progress")["call_d"]["action_id"], "gate-prod-0");
        post_facts(&client, name, &facts[open + 1..]).await;
        let shown = read_activities(&client, name, "").await;
        let answered = &of_kind(&shown, "action")["gate-prod-0"];
        assert_eq!((&answered["status"], &answered["outcome"]), (&json!("resolved"), &json!(outcome)), "{name}");
        assert_eq!(of_kind(&shown, "tool-call-progress")["call_d"]["state"], state, "{name}");
    }
}

#[tokio::test]
async fn a_turn_that_ends_with_an_open_gate_interrupts_the_action() {
    let client = start_local().await;
    let mut facts = recording("gate_aborted_turn");
    facts.retain(|fact| fact["event"] != "turnGateClosed" && fact["payload"]["isComplete"] != true);
    post_facts(&client, "r", &facts).await;
    let shown = read_activities(&client, "r", "").await;
    assert_eq!(read_status(&client, "r").await, "cancelled");
    assert_eq!(of_kind(&shown, "action")["gate-prod-0"]["status"], "interrupted");
    assert_eq!(of_kind(&shown, "tool-call-progress")["call_d"]["state"], "cancelled");
    // The gate may close after the turn: the action shows it, and the run stays ended.
    let trailing =
        recording("gate_aborted_turn").into_iter().find(|fact| fact["event"] == "turnGateClosed").expect("the gate closes");
    post_facts(&client, "r", &[trailing]).await;
    let shown = read_activities(&client, "r", "").await;
    assert_eq!(
        (read_status(&client, "r").await.as_str(), &of_kind(&shown, "action")["gate-prod-0"]["outcome"]),
        ("cancelled", &json!("cancelled"))
    );
}

#[tokio::test]
async fn two_identical_calls_are_two_calls_with_a_result_each() {
    let client = start_local().await;
    post_facts(&client, "r", &recording("multi_tool")).await;
    let events = client.read_events("r", "audience=internal", 1000).await;
    let count =
        |class: &str, call: &str| events.iter().filter(|event| event["type"] == class && event["toolCallId"] == call).count();
    for call in ["call_1", "call_2", "call_3", "call_4"] {
        let counts = ["tool.started", "tool.args", "tool.result", "metric.changed"].map(|class| count(class, call));
        assert_eq!(counts, [1, 1, 1, 2], "{call}");
    }
    let shown = read_activities(&client, "r", "").await;
    let calls = of_kind(&shown, "tool-call-progress");
    assert_eq!(
        (calls["call_1"].get("output"), &calls["call_1"]["output_ref"]["available"]),
        (None, &json!(false)),
        "the output is offloaded, not empty"
    );
    assert_eq!(calls["call_4"]["output"], "# b\nnaïve 😀");
    assert!(calls.values().all(|call| call["state"] == "output-available"));
}

#[tokio::test]
async fn failed_tools_have_an_error_and_the_turn_completes() {
    let client = start_local().await;
    post_facts(&client, "r", &recording("tool_failure")).await;
    let shown = read_activities(&client, "r", "").await;
    let why: BTreeMap<_, _> =
        of_kind(&shown, "tool-call-progress").into_iter().map(|(id, call)| (id, call["error"]["message"].as_str())).collect();
    let expected = [
        ("call_1", Some("ECONNRESET")),
        ("call_2", Some("\"n\" must be a number")),
        ("call_3", Some("Unknown tool \"nope\"")),
        ("call_4", None),
    ];
    assert_eq!(why, expected.into());
    let logged = read_activities(&client, "r", "audience=dashboard").await;
    let entries = of_kind(&logged, "diagnostics")["diagnostics"]["entries"].as_array().expect("diagnostics have entries").clone();
    assert!(
        entries
            .iter()
            .any(|entry| entry["kind"] == "tool-retry" && entry["message"] == "boom failed once" && entry["severity"] == "warn")
    );
    assert!(of_kind(&shown, "diagnostics").is_empty(), "users see no log entries");
}

#[tokio::test]
async fn a_failed_turn_has_an_error_for_every_form_and_no_undefined_member() {
    let client = start_local().await;
    let naive = json!({
        "code": "E_LLM_EXECUTION_EXECUTOR_ERROR", "message": "the turn failed with E_LLM_EXECUTION_EXECUTOR_ERROR, without a message",
    });
    let expanded = json!({
        "code": "E_LLM_EXECUTION_EXECUTOR_ERROR", "message": "The LLM execution executor callback threw an error: 529 overloaded",
    });
    let input =
        json!({"code": "E_INPUT_PIPELINE_ERROR", "message": "the turn failed with E_INPUT_PIPELINE_ERROR, without a message"});
    for (name, expected) in [
        ("error_executor_throws", naive),
        ("error_executor_throws_expanded", expanded),
        ("error_input_pipeline", input),
        ("error_nack", json!({"message": "the turn failed without saying why"})),
    ] {
        post_facts(&client, name, &recording(name)).await;
        assert_eq!(read_run(&client, name, "user").await["error"], expected, "{name}");
        let log = client.export(name, "audience=internal").await;
        assert!(log.iter().all(|event| !event.to_string().contains("undefined")), "{name}");
    }
}

#[tokio::test]
async fn a_text_with_lost_chunks_is_complete_at_the_next_chunk() {
    let client = start_local().await;
    let facts = recording("long_40_iterations");
    let is_chunk = |fact: &Value| {
        ["message", "thought"].iter().any(|event| fact["event"] == *event) && fact["payload"]["isComplete"] == false
    };
    for keep in [2, 3, 7, usize::MAX] {
        let mut n = 0;
        let kept: Vec<Value> = facts
            .iter()
            .filter(|fact| {
                n += usize::from(is_chunk(fact));
                !is_chunk(fact) || n % keep == 0
            })
            .cloned()
            .collect();
        let run = format!("one-of-{keep}");
        post_facts(&client, &run, &kept).await;
        assert_eq!(texts(&read_activities(&client, &run, "").await), streamed_texts(&facts, "message"), "{run}");
        if keep != usize::MAX {
            // Without a seal, the text ends with the last chunk.
            let (cut, last) =
                kept.iter().enumerate().rfind(|(_, fact)| is_chunk(fact) && fact["event"] == "message").expect("a chunk is left");
            post_facts(&client, &format!("{run}-cut"), &kept[..=cut]).await;
            let id = last["payload"]["id"].as_str().expect("a chunk has an id");
            assert_eq!(
                texts(&read_activities(&client, &format!("{run}-cut"), "").await)[id],
                last["payload"]["full"].as_str().expect("a chunk has its full text")
            );
        }
    }
}

#[tokio::test]
async fn a_text_that_differs_from_its_stream_is_corrected_before_its_seal() {
    let client = start_local().await;
    let mut facts = recording("short_text");
    let first = facts.iter().position(|fact| fact["event"] == "message").expect("the recording has a message");
    facts[first]["payload"]["aDelta"] = json!("Ho");
    facts[first]["payload"]["full"] = json!("Ho");
    facts.remove(first + 1);
    let second = facts[first + 1]["payload"]["full"].as_str().expect("a chunk has its full text").to_owned();
    for (cut, expected) in [(first + 2, second.as_str()), (facts.len(), "Hello! How can I help?")] {
        post_facts(&client, &format!("r{cut}"), &facts[..cut]).await;
        assert_eq!(texts(&read_activities(&client, &format!("r{cut}"), "").await)["msg-1"], expected);
    }
}

#[tokio::test]
async fn readers_of_a_stream_end_with_the_activities_of_the_page() {
    let client = start_local().await;
    for (name, _) in ENDS.iter().filter(|(name, _)| *name != "long_40_iterations") {
        post_facts(&client, name, &recording(name)).await;
        for audience in AUDIENCES {
            for query in [format!("audience={audience}"), format!("audience={audience}&replay=deltas")] {
                let mut screen = Screen::default();
                for frame in client.open_activities(name, &query, None).await.read_all().await {
                    screen.apply(&frame);
                }
                assert_eq!(
                    screen.shown(),
                    read_activities(&client, name, &format!("audience={audience}")).await,
                    "{name} {query}"
                );
                assert!(screen.ended, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_fact_without_an_event_is_rejected_with_the_member_and_any_other_is_accepted() {
    let client = start_local().await;
    let post = async |fact: Value| {
        client.post("/v1/runs/r/facts?source=turnrunner", &[("content-type", "application/json")], fact.to_string()).await
    };
    for fact in
        [json!({"bus": "functional", "payload": {}}), json!({"event": 7}), json!({"event": null}), json!({"type": "message"})]
    {
        let answer = post(fact).await;
        assert_eq!((answer.status, answer.json()["member"].clone()), (422, json!("event")));
    }
    for fact in
        [json!({"event": "of_tomorrow"}), json!({"bus": "third", "event": "message"}), json!({"event": "toolCall", "payload": 7})]
    {
        post(fact).await.ok();
    }
}

/// Reads all bytes of the files below `dir`.
fn read_all_bytes(dir: &std::path::Path) -> Vec<u8> {
    let entries =
        std::fs::read_dir(dir).expect("the directory is readable").map(|entry| entry.expect("the entry is readable").path());
    entries
        .flat_map(|path| if path.is_dir() { read_all_bytes(&path) } else { std::fs::read(path).expect("the file is readable") })
        .collect()
}

#[tokio::test]
async fn a_secret_in_an_error_kept_until_its_turn_s_end_is_not_on_disk() {
    const SECRET_PARTS: &[&str] = &["abcdef0123456789", "Z7QXMPL4242WXYZ9", "correct-horse-battery", "7fa3b9c2d1e0f4a5b6c7d8e9"];
    let text = "refused sk-live-abcdef0123456789abcdef AKIAZ7QXMPL4242WXYZ9 postgres://app:correct-horse-battery@db/x Bearer 7fa3b9c2d1e0f4a5b6c7d8e9";
    let dir = tempfile::tempdir().expect("a temporary directory can be created");
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let mut facts = recording("error_executor_throws_expanded");
    let end = facts.pop().expect("the recording has an end");
    for fact in &mut facts {
        let error = if fact["event"] == "error" { &mut fact["payload"] } else { &mut fact["payload"]["error"] };
        if error.is_object() {
            error["message"] = json!(text);
            error["code"] = json!(text);
        }
    }
    // One fact per request: the adapter's memory is saved after each.
    for fact in &facts {
        post_facts(&client, "r", std::slice::from_ref(fact)).await;
    }
    post_facts(&client, "ended", &facts).await;
    post_facts(&client, "ended", &[end]).await;
    let shown = read_run(&client, "ended", "user").await;
    server.kill();
    let bytes = read_all_bytes(dir.path());
    for secret_part in SECRET_PARTS {
        assert!(memchr::memmem::find(&bytes, secret_part.as_bytes()).is_none(), "{secret_part} is on disk");
    }
    assert_eq!(shown["error"]["message"], "refused … … … Bearer …");
}

fn source() -> &'static SourceKind {
    by_name("turnrunner").unwrap()
}

fn adapt_with(adapter: &mut DryRun, fact: &Value) -> Vec<Draft> {
    let given = Ids { run: RunId::new("run").ok(), ..Ids::default() };
    adapter.adapt(fact.as_object().expect("a fact is an object").clone(), &given).unwrap_or_else(|_| {
        assert!(fact["event"].as_str().is_none_or(str::is_empty), "{fact}");
        Vec::new()
    })
}

/// Adapts the facts twice.
///
/// With one adapter, and with one that is saved and restored between any two facts.
fn assert_restores(facts: &[Value]) {
    let (mut lasting, mut restored) = (DryRun::new(source()), DryRun::new(source()));
    for (n, fact) in facts.iter().enumerate() {
        assert_eq!(adapt_with(&mut restored, fact), adapt_with(&mut lasting, fact), "fact {n}");
        let memory = restored.save();
        assert_eq!(memory, lasting.save(), "fact {n}");
        restored.restore(&memory).unwrap();
    }
}

#[test]
fn an_adapter_restored_between_any_two_facts_gives_the_same_from_a_bounded_memory() {
    for (name, _) in ENDS {
        let facts = recording(name);
        assert_restores(&facts);
        let mut adapter = DryRun::new(source());
        for fact in &facts {
            adapt_with(&mut adapter, fact);
            let bytes = adapter.save().len();
            assert!(bytes <= MEMORY_BYTES_MAX, "{name}: memory is {bytes} bytes, the limit is {MEMORY_BYTES_MAX}");
        }
    }
}

#[test]
fn unknown_members_survive_on_every_event() {
    for (name, _) in ENDS {
        let mut adapter = DryRun::new(source());
        for (n, mut fact) in recording(name).into_iter().enumerate() {
            // An `error` is the thrown value, which is kept whole.
            let within = if fact["event"] == "error" { "around" } else { "payload" };
            fact["ofTomorrow"] = json!({ "n": n });
            if within == "payload" {
                fact["payload"]["ofTomorrowWithin"] = json!(n);
            }
            let drafts: String =
                adapt_with(&mut adapter, &fact).iter().map(|d| format!("{:?} {:?}", d.payload, d.extra)).collect();
            assert!(drafts.contains("ofTomorrow\""), "{name}, fact {n}: {drafts}");
            assert!(within == "around" || drafts.contains("ofTomorrowWithin\""), "{name}, fact {n}: {drafts}");
        }
    }
}

/// The faults that a stream may have.
#[derive(Debug, Clone)]
enum Fault {
    Removed(usize),
    Duplicated(usize),
    Swapped(usize, usize),
    Cut(usize),
    /// A member of the payload has another value.
    ValueChanged(usize, usize, Value),
    /// The whole payload has another value.
    Replaced(usize, Value),
    Unnamed(usize),
}

fn any_value() -> impl Strategy<Value = Value> {
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1.5),
        json!(""),
        json!("é"),
        json!("x".repeat(300)),
        json!([]),
        json!([{}]),
        json!({}),
        json!({"name": "AbortError"}),
    ];
    proptest::sample::select(values.to_vec())
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let at = 0..10_000usize;
    prop_oneof![
        at.clone().prop_map(Fault::Removed),
        at.clone().prop_map(Fault::Duplicated),
        (at.clone(), at.clone()).prop_map(|(a, b)| Fault::Swapped(a, b)),
        at.clone().prop_map(Fault::Cut),
        (at.clone(), at.clone(), any_value()).prop_map(|(n, member, value)| Fault::ValueChanged(n, member, value)),
        (at.clone(), any_value()).prop_map(|(n, value)| Fault::Replaced(n, value)),
        at.prop_map(Fault::Unnamed),
    ]
}

fn apply_fault(facts: &mut Vec<Value>, fault: Fault) {
    if facts.is_empty() {
        return;
    }
    let count = facts.len();
    match fault {
        Fault::Removed(n) => drop(facts.remove(n % count)),
        Fault::Duplicated(n) => facts.insert(n % count, facts[n % count].clone()),
        Fault::Swapped(a, b) => facts.swap(a % count, b % count),
        Fault::Cut(n) => facts.truncate(count / 2 + n % count),
        Fault::ValueChanged(n, member, value) => {
            if let Some(payload) = facts[n % count]["payload"].as_object_mut().filter(|payload| !payload.is_empty()) {
                let at = member % payload.len();
                *payload.values_mut().nth(at).expect("the index is in range") = value;
            }
        }
        Fault::Replaced(n, value) => facts[n % count]["payload"] = value,
        Fault::Unnamed(n) => drop(facts[n % count].as_object_mut().expect("a fact is an object").shift_remove("event")),
    }
}

/// Checks a property over recordings with faults.
fn check_property(cases: u32, check: impl Fn(Vec<Value>)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let recordings: Vec<Vec<Value>> = ENDS.iter().map(|(name, _)| recording(name).into_iter().take(120).collect()).collect();
    let stories = (0..recordings.len(), 0..recordings.len(), proptest::collection::vec(any_fault(), 0..12));
    let outcome = runner.run(&stories, |(first, second, mishaps)| {
        let mut facts = [recordings[first].clone(), recordings[second].clone()].concat();
        for fault in mishaps {
            apply_fault(&mut facts, fault);
        }
        check(facts);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_adapter_accepts_any_faulty_stream_and_restores_to_the_same_memory() {
    check_property(400, |facts| assert_restores(&facts));
}

#[test]
fn a_faulty_stream_gives_valid_envelopes_and_activities() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("the runtime starts");
    let (client, runs) = (runtime.block_on(start_local()), std::cell::Cell::new(0));
    check_property(40, |mut facts| {
        runs.set(runs.get() + 1);
        facts.retain(|fact| fact["event"].is_string());
        runtime.block_on(async {
            let run = format!("r{}", runs.get());
            post_facts(&client, &run, &facts).await;
            for event in client.read_events(&run, "audience=internal", 1000).await {
                assert_valid("agentui-event.schema.json", &event);
            }
            for audience in AUDIENCES {
                for ((kind, _), activity) in read_activities(&client, &run, &format!("audience={audience}")).await {
                    assert_activity(&kind, &activity["content"]);
                }
            }
        });
    });
}
