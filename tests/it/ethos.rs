//! Ethos' recordings through the real server: the activities that users, operators and developers see.
//!
//! Each recording ends as its turn did, with no open activity and no text lost or repeated. Each pitfall of this source
//! has a test, on the recording that contains it or on a few events.

use crate::activities::{Screen, read_activities};
use crate::harness::{AUDIENCES, Client, Transport, fact, repository, start_local, to_ndjson};
use crate::schema::{assert_activity, assert_valid};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use proscenium::model::{Draft, EventType, Ids, RunId};
use proscenium::source::{DryRun, SourceKind, by_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The final status of each recording's run.
const ENDS: [(&str, &str); 19] = [
    ("abort_before_start", "cancelled"),
    ("abort_mid_text", "completed"),
    ("abort_mid_text_provider_throws", "failed"),
    ("approval_announced_not_gated", "completed"),
    ("approval_gate_waits_silently", "completed"),
    ("context_meta", "completed"),
    ("dry_run_summary_after_done", "completed"),
    ("error_context_overflow", "failed"),
    ("error_llm_midstream", "failed"),
    ("halt_budget_then_done", "interrupted"),
    ("handwritten-declared_but_unproduced", "completed"),
    ("hitl_credential_required", "waiting"),
    ("long_60_iterations", "completed"),
    ("refused_personality_locked", "failed"),
    ("rejected_without_start", "completed"),
    ("return_direct", "completed"),
    ("short_text_thinking", "completed"),
    ("tool_progress_audiences", "completed"),
    ("two_sessions_interleaved", "completed"),
];

/// The largest adapter memory of a recording, in bytes.
///
/// Ids, counters and digests of a real turn fit; a body would not.
const MEMORY_BYTES_MAX: usize = 8 * 1024;

/// Activities by type and id.
type Shown = BTreeMap<(String, String), Value>;

fn source() -> &'static SourceKind {
    by_name("ethos").unwrap()
}

fn recording(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(repository(&format!("tests/recordings/ethos/{name}.ndjson"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Posts facts of Ethos to a run.
async fn post_facts(client: &Client, run: &str, facts: &[Value]) {
    let receipt = client.post_lines(&format!("/v1/runs/{run}/facts?source=ethos"), to_ndjson(facts)).await.ok();
    assert_eq!((&receipt["accepted"], receipt.get("violations")), (&json!(facts.len()), None), "{run}");
}

async fn post_recording(name: &str) -> Client {
    let client = start_local().await;
    post_facts(&client, "r", &recording(name)).await;
    client
}

async fn read_screen(client: &Client, audience: &str) -> Shown {
    read_activities(client, "r", &format!("audience={audience}")).await
}

fn content<'s>(shown: &'s Shown, kind: &str, id: &str) -> &'s Value {
    &shown.get(&(kind.to_owned(), id.to_owned())).unwrap_or_else(|| panic!("no {kind} {id} in {:?}", shown.keys()))["content"]
}

/// Returns the contents of all activities of a type, in the order of appearance.
fn of_kind<'s>(shown: &'s Shown, kind: &str) -> Vec<&'s Value> {
    let mut found: Vec<_> = shown.iter().filter(|((of, _), _)| of == kind).map(|(_, activity)| activity).collect();
    found.sort_by_key(|activity| activity["opened"].as_u64());
    found.into_iter().map(|activity| &activity["content"]).collect()
}

fn joined_text(text: &Value) -> String {
    text.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// Returns the texts of a message's parts.
fn part_texts(message: &Value) -> Vec<String> {
    message["parts"].as_array().unwrap().iter().map(|part| joined_text(&part["text"])).collect()
}

/// Returns the text of all messages of a screen.
fn all_text(shown: &Shown) -> String {
    of_kind(shown, "message").into_iter().flat_map(part_texts).collect()
}

/// Returns the text that a recording streams.
fn streamed_text(facts: &[Value], member: &str) -> String {
    let kind = format!("{}_delta", if member == "text" { "text" } else { "thinking" });
    facts.iter().filter(|fact| fact["type"] == kind).filter_map(|fact| fact[member].as_str()).collect()
}

async fn read_events(client: &Client, audience: &str) -> Vec<Value> {
    client.read_events("r", &format!("audience={audience}"), 1000).await
}

fn of_type<'e>(events: &'e [Value], class: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == class).collect()
}

/// Returns whether the activity is active or pending.
fn is_open(kind: &str, content: &Value) -> bool {
    let ended = ["output-available", "output-error", "cancelled"];
    match kind {
        "message" => content["parts"].as_array().unwrap().iter().chain([content]).any(|of| of["status"] == "streaming"),
        "reasoning" | "plan" => content["status"] == "streaming",
        "tool-call-progress" => !ended.iter().any(|state| content["state"] == *state),
        "action" => content["status"] == "pending",
        "compaction" => content["status"] == "running",
        _ => false,
    }
}

// ── every recording ──

#[test]
fn every_recording_has_a_row() {
    let mut names: Vec<String> = std::fs::read_dir(repository("tests/recordings/ethos"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ENDS.map(|(name, _)| name));
}

#[tokio::test]
async fn every_recording_ends_as_its_turn_did_with_nothing_open_and_its_text_once() {
    for (name, end) in ENDS {
        let client = post_recording(name).await;
        assert_eq!(client.get("/v1/runs/r").await.ok()["status"], end, "{name}");
        for audience in AUDIENCES {
            let shown = read_screen(&client, audience).await;
            let run = content(&shown, "run", "r");
            assert_eq!(run["status"], end, "{name} as {audience}");
            let text = streamed_text(&recording(name), "text");
            match name {
                "return_direct" => assert_eq!(all_text(&shown), format!("{text}Card: 3 options rendered")),
                "two_sessions_interleaved" => assert_eq!(all_text(&shown).chars().count(), text.chars().count()),
                _ => assert_eq!(all_text(&shown), text, "{name} as {audience}"),
            }
            let thoughts: String =
                of_kind(&shown, "reasoning").into_iter().map(|thought| joined_text(&thought["text"])).collect();
            let expected = if audience == "user" { String::new() } else { streamed_text(&recording(name), "thinking") };
            assert_eq!(thoughts, expected, "{name} as {audience}");
            for ((kind, id), activity) in &shown {
                let content = &activity["content"];
                let open = is_open(kind, content) && !(kind == "action" && end == "waiting");
                assert!(!open, "{name} as {audience}: {kind} {id} is open: {content}");
                assert_activity(kind, content);
            }
        }
    }
}

#[tokio::test]
async fn every_envelope_of_every_recording_is_valid_and_belongs_to_its_run() {
    for (name, _) in ENDS {
        let client = post_recording(name).await;
        for audience in AUDIENCES {
            for event in read_events(&client, audience).await {
                assert_valid("agentui-event.schema.json", &event);
                assert_eq!(event["runId"], "r", "{name}");
            }
        }
    }
}

#[tokio::test]
async fn every_way_of_reading_a_recording_ends_with_the_same_screen() {
    for (name, _) in ENDS {
        let client = post_recording(name).await;
        // A stream ends with its run.
        client.append("r", &[fact("run.finished", json!({}))]).await;
        for audience in AUDIENCES {
            let expected = read_screen(&client, audience).await;
            for query in [format!("audience={audience}"), format!("audience={audience}&replay=deltas")] {
                let frames = client.open_activities("r", &query, None).await.read_all().await;
                let mut screen = Screen::default();
                let mut middle = None;
                for (n, frame) in frames.iter().enumerate() {
                    screen.apply(frame);
                    if n >= frames.len() / 2 && middle.is_none() && frame.id.is_some() && frame.kind() != "End" {
                        middle = Some(screen.clone());
                    }
                }
                assert_eq!(screen.shown(), expected, "{name} {query}");
                if let Some(mut resumed) = middle {
                    let cursor = resumed.cursor.clone();
                    for frame in client.open_activities("r", &query, cursor.as_deref()).await.read_all().await {
                        resumed.apply(&frame);
                    }
                    assert_eq!(resumed.shown(), expected, "{name} {query} from the middle");
                }
            }
        }
    }
}

// ── audience ──

#[tokio::test]
async fn a_progress_recording_shows_1_fact_to_users_2_to_operators_and_all_to_developers() {
    let facts = recording("tool_progress_audiences");
    let messages = |events: &[Value]| {
        let of = of_type(events, "tool.progress").into_iter().map(|e| e["payload"]["message"].as_str().unwrap().to_owned());
        of.collect::<Vec<_>>()
    };
    for (audience, count) in AUDIENCES.into_iter().zip([1, 2, 7]) {
        let query = format!("audience={audience}");
        let client = post_recording("tool_progress_audiences").await;
        let whole = read_events(&client, audience).await;
        assert_eq!(messages(&whole).len(), count, "{audience}");
        assert_eq!(messages(&whole)[0], "Reading 1.3 MB, this will take a few seconds");
        // The same from any cursor, and over a reconnection during the turn.
        let frames = client.open_stream(Transport::Raw, "r", &query, None).await.read_all().await;
        for (n, frame) in frames.iter().enumerate().filter(|(_, frame)| frame.kind() == "Event") {
            let rest = client.open_stream(Transport::Raw, "r", &query, frame.id.as_deref()).await.read_all().await;
            let seen = frames[..=n].iter().chain(&rest).filter(|frame| frame.kind() == "Event");
            let seen: Vec<Value> = seen.map(|frame| frame.data["event"].clone()).collect();
            assert_eq!(seen, whole, "{audience} again after {n}");
        }
        let client = start_local().await;
        let mut stream = client.open_stream(Transport::Raw, "r", &query, None).await;
        post_facts(&client, "r", &facts[..9]).await;
        let (mut seen, mut cursor) = (Vec::new(), None);
        while messages(&seen).is_empty() {
            let frame = stream.next_frame().await;
            cursor = frame.id.clone();
            seen.push(frame.data["event"].clone());
        }
        drop(stream);
        post_facts(&client, "r", &facts[9..]).await;
        let rest = client.open_stream(Transport::Raw, "r", &query, cursor.as_deref()).await.read_all().await;
        seen.extend(rest.iter().filter(|frame| frame.kind() == "Event").map(|frame| frame.data["event"].clone()));
        assert_eq!(messages(&seen).len(), count, "{audience} live");
        let screen = read_screen(&client, audience).await;
        assert_eq!(content(&screen, "tool-call-progress", "toolu_01")["message"], messages(&whole)[count - 1].as_str());
    }
}

#[tokio::test]
async fn users_see_a_call_end_and_only_developers_see_its_output() {
    let client = post_recording("tool_progress_audiences").await;
    for audience in AUDIENCES {
        let shown = read_screen(&client, audience).await;
        let call = content(&shown, "tool-call-progress", "toolu_01");
        assert_eq!(
            (&call["state"], &call["duration_ms"], &call["input"]),
            (&json!("output-available"), &json!(5), &json!({"path": "app.log"}))
        );
        match audience {
            "internal" => assert_eq!(call["output"], "# app.log\n1: first line\n2: naïve «ünïcode» 😀\n"),
            _ => assert_eq!((call.get("output"), &call["withheld"]), (None, &json!(true))),
        }
    }
}

#[tokio::test]
async fn nested_calls_and_their_failures_are_hidden_from_users() {
    let client = post_recording("long_60_iterations").await;
    let facts = recording("long_60_iterations");
    let inner = |fact: &&Value| fact["toolCallId"].as_str().is_some_and(|id| id.contains('#'));
    let starts = facts.iter().filter(inner).filter(|fact| fact["type"] == "tool_start").count();
    let failures = facts.iter().filter(inner).filter(|fact| fact["ok"] == false).count();
    assert!(starts > 30 && failures > 5);
    for audience in AUDIENCES {
        let shown = read_screen(&client, audience).await;
        let nested: Vec<_> =
            of_kind(&shown, "tool-call-progress").into_iter().filter(|call| call.get("parent_call_id").is_some()).collect();
        let failed = nested.iter().filter(|call| call["state"] == "output-error").count();
        let expected = if audience == "internal" { (starts, failures) } else { (0, 0) };
        assert_eq!((nested.len(), failed), expected, "{audience}");
        assert!(
            nested.iter().all(|call| call["call_id"].as_str().unwrap().starts_with(call["parent_call_id"].as_str().unwrap()))
        );
        let hidden = read_events(&client, audience)
            .await
            .iter()
            .filter(|event| event["toolCallId"].as_str().is_some_and(|id| id.contains('#')))
            .count();
        assert_eq!(hidden > 0, audience == "internal", "{audience}");
    }
}

#[tokio::test]
async fn a_call_refused_before_its_start_is_shown_to_users() {
    let client = post_recording("rejected_without_start").await;
    let shown = read_screen(&client, "user").await;
    for (id, message) in
        [("toolu_dep", "Denied by user: not on a Friday"), ("toolu_bad", "malformed tool arguments: {\"cmd\": oops ][")]
    {
        let call = content(&shown, "tool-call-progress", id);
        assert_eq!((&call["state"], &call["error"]["message"]), (&json!("output-error"), &json!(message)));
        assert_eq!(call["never_started"], true);
    }
    assert_eq!(content(&shown, "tool-call-progress", "toolu_ok").get("never_started"), None);
}

#[tokio::test]
async fn results_without_a_start_have_their_own_audience_and_failures_are_for_users() {
    let client = post_recording("handwritten-declared_but_unproduced").await;
    let calls = async |audience: &str| {
        let shown = read_screen(&client, audience).await;
        of_kind(&shown, "tool-call-progress")
            .into_iter()
            .map(|call| call["call_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(calls("user").await, ["toolu_2", "toolu_4"]);
    assert_eq!(calls("dashboard").await, ["toolu_2", "toolu_3", "toolu_4"]);
    let user = read_screen(&client, "user").await;
    assert_eq!(content(&user, "tool-call-progress", "toolu_2")["output"], "done");
    assert_eq!(content(&user, "tool-call-progress", "toolu_4")["error"]["message"], "ENOENT");
    assert!(user.keys().all(|(kind, _)| kind != "review" && kind != "diagnostics"));
}

#[tokio::test]
async fn an_unknown_audience_is_treated_as_internal_and_kept() {
    let client = post_recording("handwritten-declared_but_unproduced").await;
    for audience in AUDIENCES {
        let events = read_events(&client, audience).await;
        let progress = of_type(&events, "tool.progress");
        assert_eq!(progress.len(), usize::from(audience == "internal"), "{audience}");
        assert!(progress.iter().all(|event| event["audience"] == "internal" && event["sourceAudience"] == "admin"));
        let unknown: Vec<_> = of_type(&events, "diagnostic.changed").into_iter().map(|e| e["payload"].clone()).collect();
        let expected =
            json!({"kind": "unknown_event_type", "eventType": "brand_new_event_from_a_later_release", "event": {"foo": 1}});
        assert_eq!(unknown, if audience == "internal" { vec![expected] } else { Vec::new() });
    }
}

#[tokio::test]
async fn no_reader_sees_a_recording_s_secret() {
    for (name, secrets) in [
        ("dry_run_summary_after_done", &["abcdef0123456789"][..]),
        ("hitl_credential_required", &["state=abc", "linear.example", "list my issues"]),
    ] {
        let client = post_recording(name).await;
        for path in ["events?", "export?", "activities?"] {
            let body = client.get(&format!("/v1/runs/r/{path}audience=internal")).await.body;
            let body = String::from_utf8(body).unwrap();
            assert!(body.len() > 300, "{name}: {path} gives {body}");
            for secret in secrets {
                assert!(!body.contains(secret), "{name}: {path} has {secret}");
            }
        }
    }
}

// ── ends of a turn ──

#[tokio::test]
async fn a_plan_and_a_compaction_after_done_are_shown_and_the_run_stays_completed() {
    let client = post_recording("dry_run_summary_after_done").await;
    let compaction =
        json!({"type": "tool_progress", "toolName": "_compaction", "message": "Compacted 40 messages", "audience": "user"});
    post_facts(&client, "r", &[compaction]).await;
    let shown = read_screen(&client, "user").await;
    assert_eq!(content(&shown, "run", "r")["status"], "completed");
    let plan = content(&shown, "plan", "ethos-message-1/ethos-plan-1");
    assert_eq!(
        (&plan["status"], &plan["plan"][1]),
        (&json!("complete"), &json!({"toolCallId": "toolu_p2", "toolName": "web_search", "args": {"q": "x"}}))
    );
    let compaction = content(&shown, "compaction", "ethos-compaction-1");
    assert_eq!((&compaction["status"], &compaction["message"]), (&json!("completed"), &json!("Compacted 40 messages")));
    let frames = client.open_stream(Transport::Raw, "r", "", None).await.read_all().await;
    assert_eq!(frames.last().unwrap().data["status"], "completed");
}

#[tokio::test]
async fn a_refused_turn_does_not_take_the_previous_turn_s_success() {
    let client = post_recording("refused_personality_locked").await;
    let user = read_events(&client, "user").await;
    let ends: Vec<_> =
        user.iter().filter(|e| ["run.started", "run.finished", "run.failed"].iter().any(|class| e["type"] == *class)).collect();
    let outcomes: Vec<_> = ends.iter().map(|e| (e["type"].as_str().unwrap(), e["payload"].get("refused").is_some())).collect();
    assert_eq!(outcomes, [("run.started", false), ("run.finished", false), ("run.started", true), ("run.failed", true)]);
    let shown = read_screen(&client, "user").await;
    let run = content(&shown, "run", "r");
    assert_eq!((&run["attempt"], &run["error"]["code"]), (&json!(2), &json!("personality_locked")));
    // A refusal without an earlier turn is not a start.
    post_facts(&client, "alone", &recording("refused_personality_locked")[4..]).await;
    let run = client.get("/v1/runs/alone").await.ok();
    assert_eq!(run["status"], "failed");
    assert_eq!(of_type(&client.read_events("alone", "", 10).await, "run.started").len(), 0);
}

#[tokio::test]
async fn a_halted_turn_is_interrupted_and_names_its_rule() {
    let client = post_recording("halt_budget_then_done").await;
    let user = read_events(&client, "user").await;
    let halt = of_type(&user, "run.status")[0];
    assert_eq!(
        (&halt["payload"]["rule"], &halt["payload"]["count"], &halt["phase"]),
        (&json!("identical-streak"), &json!(3), &json!("interrupted"))
    );
    let end = of_type(&user, "run.finished")[0];
    assert_eq!((&end["phase"], &end["payload"]["haltRule"]), (&json!("interrupted"), &json!("identical-streak")));
    let shown = read_screen(&client, "user").await;
    let notices = content(&shown, "run", "r")["notices"].as_array().unwrap().clone();
    assert_eq!(notices.len(), 2, "a report without an open call, and the halt");
    assert_eq!(notices[0]["toolName"], "web_search");
}

#[tokio::test]
async fn a_turn_waiting_for_a_credential_stays_open_until_the_next_turn() {
    let client = post_recording("hitl_credential_required").await;
    let id = "cred:linear:LINEAR_TOKEN";
    let screen = read_screen(&client, "user").await;
    let action = content(&screen, "action", id);
    assert_eq!(
        (&action["kind"], &action["status"], &action["message"]),
        (&json!("credential_request"), &json!("pending"), &json!("Connect Linear"))
    );
    assert_eq!(content(&screen, "run", "r")["phase"], "waiting");
    let session = client.get("/v1/runs/r").await.ok();
    assert_eq!(session["status"], "waiting");
    post_facts(&client, "r", &recording("short_text_thinking")).await;
    let screen = read_screen(&client, "user").await;
    assert_eq!(content(&screen, "action", id)["outcome"], "expired");
    let run = content(&screen, "run", "r");
    assert_eq!((&run["status"], &run["attempt"]), (&json!("completed"), &json!(2)));
}

#[tokio::test]
async fn an_abort_is_reported_as_on_the_wire_and_its_text_is_kept() {
    for (name, status) in [
        ("abort_mid_text", "complete"),
        ("abort_mid_text_provider_throws", "interrupted"),
        ("error_llm_midstream", "interrupted"),
    ] {
        let client = post_recording(name).await;
        let shown = read_screen(&client, "user").await;
        let message = content(&shown, "message", "ethos-message-1");
        assert_eq!(
            (message["status"].as_str(), part_texts(message).concat()),
            (Some(status), streamed_text(&recording(name), "text")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_approval_that_is_announced_but_not_gated_is_not_pending() {
    let client = post_recording("approval_announced_not_gated").await;
    let shown = read_screen(&client, "internal").await;
    assert!(of_kind(&shown, "action").is_empty());
    let permission = content(&shown, "permission", "toolu_dep");
    assert_eq!((&permission["requiresApproval"], &permission["gated"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn two_interleaved_turns_are_flagged_and_keep_separate_texts() {
    let client = post_recording("two_sessions_interleaved").await;
    for audience in AUDIENCES {
        let shown = read_screen(&client, audience).await;
        let texts: Vec<_> = of_kind(&shown, "message").into_iter().map(|message| part_texts(message).concat()).collect();
        assert_eq!(texts, ["answer for A still A", "answer for B still B"], "{audience}");
    }
    let internal = read_events(&client, "internal").await;
    let flagged = of_type(&internal, "diagnostic.changed");
    assert!(flagged.iter().all(|event| event["payload"]["kind"] == "interleaved_run"));
    let types: Vec<_> = flagged.iter().map(|event| event["payload"]["eventType"].as_str().unwrap()).collect();
    assert_eq!(
        (types[0], types.iter().filter(|kind| **kind == "text_delta").count(), types.last().unwrap()),
        ("run_start", 12, &"done")
    );
    assert_eq!(of_type(&internal, "run.finished").len(), 1);
    let others = internal.iter().filter(|event| event["type"] != "diagnostic.changed" && event["type"] != "run.started");
    assert!(others.into_iter().all(|event| event["payload"]["interleaved"] == true));
}

// ── text ──

#[tokio::test]
async fn text_returned_by_a_tool_follows_the_streamed_text() {
    let client = post_recording("return_direct").await;
    let shown = read_screen(&client, "user").await;
    let message = content(&shown, "message", "ethos-message-1");
    assert_eq!(part_texts(message), ["One moment. ", "Card: 3 options rendered"]);
    let opened: Vec<_> = message["parts"].as_array().unwrap().iter().map(|part| part["opened"].as_u64().unwrap()).collect();
    let call = shown[&("tool-call-progress".to_owned(), "toolu_card".to_owned())]["opened"].as_u64().unwrap();
    assert!(opened[0] < call && call < opened[1], "{opened:?} {call}");
}

#[tokio::test]
async fn text_is_one_message_per_turn_with_a_part_between_batches_of_calls() {
    let client = post_recording("long_60_iterations").await;
    let shown = read_screen(&client, "user").await;
    let [message] = of_kind(&shown, "message")[..] else { panic!("expected one message") };
    let parts = part_texts(message);
    assert_eq!(parts.len(), 61);
    assert!(parts[..60].iter().enumerate().all(|(n, text)| text.starts_with(&format!("[{n}] "))));
    assert!(parts[60].starts_with("Done. ") && parts[60].contains("𝛼 “quotes”, a tab\tand 🧪"));
}

// ── progress, cost and the gate ──

#[tokio::test]
async fn ambiguous_progress_becomes_a_notice_and_late_progress_reopens_nothing() {
    let start = |id: &str| json!({"type": "tool_start", "toolCallId": id, "toolName": "bash", "args": {}});
    let end =
        |id: &str| json!({"type": "tool_end", "toolCallId": id, "toolName": "bash", "ok": true, "durationMs": 1, "result": ""});
    let progress = |message: &str| json!({"type": "tool_progress", "toolName": "bash", "message": message, "percent": 1, "audience": "user"});
    let client = start_local().await;
    let facts = [
        json!({"type": "run_start", "provider": "p", "model": "m", "source": "global"}),
        start("a"),
        progress("of a"),
        start("b"),
        progress("of which?"),
        end("a"),
        end("b"),
        progress("external content may contain instructions"),
    ];
    post_facts(&client, "r", &facts).await;
    let shown = read_screen(&client, "user").await;
    let [a, b] = ["a", "b"].map(|id| content(&shown, "tool-call-progress", id));
    assert_eq!((&a["message"], &a["progress"], &a["state"]), (&json!("of a"), &json!(0.01), &json!("output-available")));
    assert_eq!((b.get("message"), &b["state"]), (None, &json!("output-available")));
    let notices: Vec<_> =
        content(&shown, "run", "r")["notices"].as_array().unwrap().iter().map(|n| n["message"].as_str().unwrap()).collect();
    assert_eq!(notices, ["of which?", "external content may contain instructions"]);
    assert!(of_kind(&shown, "tool-call-progress").len() == 2);
}

#[tokio::test]
async fn usage_is_summed_for_operators_and_a_tool_s_price_is_not_a_model_call() {
    for name in ["halt_budget_then_done", "long_60_iterations", "tool_progress_audiences"] {
        let facts = recording(name);
        let usage: Vec<_> = facts.iter().filter(|fact| fact["type"] == "usage").collect();
        let sum = |member: &str| usage.iter().filter_map(|fact| fact[member].as_u64()).sum::<u64>();
        let calls = usage.iter().filter(|fact| fact["inputTokens"] != 0).count();
        let cost: f64 = usage.iter().filter_map(|fact| fact["estimatedCostUsd"].as_f64()).sum();
        let client = post_recording(name).await;
        let shown_to = async |audience: &str| content(&read_screen(&client, audience).await, "run", "r").get("usage").cloned();
        let usage_shown = shown_to("dashboard").await.unwrap();
        for member in ["inputTokens", "outputTokens"] {
            assert_eq!(usage_shown[member], sum(member), "{name} {member}");
        }
        for member in ["cacheReadTokens", "cacheCreationTokens"] {
            assert_eq!(usage_shown.get(member).and_then(Value::as_u64).unwrap_or(0), sum(member), "{name} {member}");
        }
        assert_eq!(usage_shown["llmCalls"], calls, "{name}");
        assert!((usage_shown["costUsd"].as_f64().unwrap() - cost).abs() < 1e-9, "{name}: {usage_shown}");
        assert_eq!(shown_to("user").await, None);
        let internal = read_events(&client, "internal").await;
        let prices: Vec<_> =
            of_type(&internal, "metric.changed").into_iter().filter(|e| e["payload"]["kind"] == "tool_cost").collect();
        assert_eq!(prices.len(), usage.len() - calls, "{name}");
        assert!(prices.iter().all(|event| event["toolCallId"].is_string()), "{name}");
    }
}

#[tokio::test]
async fn the_web_server_s_gate_makes_the_run_wait_until_its_answer() {
    let client = start_local().await;
    let ask = json!({"type": "tool.approval_required", "request": {"approvalId": "ap", "sessionId": "s", "toolCallId": "c",
        "toolName": "bash", "args": {"cmd": "ls"}, "reason": null}});
    let question = json!({"type": "clarify.request", "requestId": "q", "question": "Which?", "options": ["a", "b"], "defaultDeadlineAt": "2026-01-01T00:00:00Z"});
    post_facts(&client, "r", &[json!({"type": "run_start", "provider": "p", "model": "m", "source": "global"}), ask, question])
        .await;
    let status = async || client.get("/v1/runs/r").await.ok()["status"].clone();
    assert_eq!(status().await, "waiting");
    let screen = read_screen(&client, "user").await;
    let action = content(&screen, "action", "ap");
    assert_eq!(
        (&action["kind"], &action["status"], &action["toolName"]),
        (&json!("tool_approval"), &json!("pending"), &json!("bash"))
    );
    let options =
        ["a", "b"].map(|text| json!({ "label": text, "value": text, "optionId": text, "effect": "answer", "width": "unknown" }));
    assert_eq!(content(&screen, "action", "q")["options"], json!(options));
    post_facts(
        &client,
        "r",
        &[json!({"type": "approval.resolved", "approvalId": "ap", "decision": "allow", "decidedBy": "tab"})],
    )
    .await;
    assert_eq!(status().await, "waiting", "the question is still open");
    post_facts(&client, "r", &[json!({"type": "clarify.resolved", "requestId": "q", "source": "user"})]).await;
    assert_eq!(status().await, "running");
    let screen = read_screen(&client, "user").await;
    assert_eq!(
        (&content(&screen, "action", "ap")["outcome"], &content(&screen, "action", "q")["outcome"]),
        (&json!("approved"), &json!("answered"))
    );
    post_facts(&client, "r", &[json!({"type": "done", "text": "", "turnCount": 1})]).await;
    assert_eq!(status().await, "completed");
}

// ── properties of the adapter ──

fn given() -> Ids {
    Ids { run: Some(RunId::new("r").unwrap()), ..Ids::default() }
}

fn adapt_with(adapter: &mut DryRun, fact: &Value) -> Vec<Draft> {
    adapter.adapt(fact.as_object().unwrap().clone(), &given()).unwrap()
}

/// Adapts facts with one adapter, and with one that is restored after every fact.
///
/// Asserts that they agree.
fn adapt(facts: &[Value], context: &str) -> Vec<Draft> {
    let (mut lasting, mut restored) = (DryRun::new(source()), DryRun::new(source()));
    let mut all = Vec::new();
    for (n, fact) in facts.iter().enumerate() {
        let drafts = adapt_with(&mut lasting, fact);
        assert_eq!(adapt_with(&mut restored, fact), drafts, "{context}, fact {n}");
        let memory = restored.save();
        assert_eq!(memory, lasting.save(), "{context}, fact {n}");
        let bytes = memory.len();
        assert!(bytes <= MEMORY_BYTES_MAX, "{context}, fact {n}: memory is {bytes} bytes, the limit is {MEMORY_BYTES_MAX}");
        restored.restore(&memory).unwrap();
        all.extend(drafts);
    }
    all
}

/// Asserts that no attempt ends twice.
fn assert_one_end_an_attempt(drafts: &[Draft], context: &str) {
    let mut has_ended = false;
    for draft in drafts {
        match draft.event_type {
            EventType::RunStarted => has_ended = false,
            EventType::RunFinished | EventType::RunFailed => {
                assert!(!std::mem::replace(&mut has_ended, true), "{context}: an attempt ends twice");
            }
            _ => {}
        }
    }
}

#[test]
fn an_adapter_restored_between_any_two_facts_gives_the_same_drafts() {
    for (name, _) in ENDS {
        let facts = recording(name);
        let drafts = adapt(&facts, name);
        assert!(drafts.len() >= facts.len(), "{name}: a fact has no draft");
        assert_one_end_an_attempt(&drafts, name);
    }
}

#[test]
fn unknown_members_survive_on_every_recorded_event() {
    for (name, _) in ENDS {
        let mut facts = recording(name);
        for (n, fact) in facts.iter_mut().enumerate() {
            fact["ofTomorrow"] = json!(n);
        }
        let marker = |d: &Draft| d.extra.get("ofTomorrow").or_else(|| d.payload.get("event")?.get("ofTomorrow"))?.as_u64();
        let mut carried: Vec<_> = adapt(&facts, name).iter().filter_map(marker).collect();
        carried.dedup();
        assert_eq!(carried, (0..facts.len() as u64).collect::<Vec<_>>(), "{name}");
    }
}

/// The faults that a stream may have.
#[derive(Debug, Clone)]
enum Fault {
    Removed(Index),
    Duplicated(Index),
    Swapped(Index, Index),
    CutAt(Index),
    /// A member of an event has another type.
    TypeChanged(Index, Index, u8),
    /// A member is missing.
    MemberRemoved(Index, Index),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        any::<Index>().prop_map(Fault::Removed),
        any::<Index>().prop_map(Fault::Duplicated),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Fault::Swapped(a, b)),
        any::<Index>().prop_map(Fault::CutAt),
        (any::<Index>(), any::<Index>(), any::<u8>()).prop_map(|(at, member, kind)| Fault::TypeChanged(at, member, kind)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, member)| Fault::MemberRemoved(at, member)),
    ]
}

fn apply_fault(facts: &mut Vec<Value>, mishap: &Fault) {
    if facts.is_empty() {
        return;
    }
    let member_of = |fact: &Value, member: &Index| {
        let members: Vec<_> = fact.as_object().unwrap().keys().filter(|member| *member != "type").cloned().collect();
        (!members.is_empty()).then(|| members[member.index(members.len())].clone())
    };
    let count = facts.len();
    match mishap {
        Fault::Removed(at) => drop(facts.remove(at.index(count))),
        Fault::Duplicated(at) => facts.insert(at.index(count), facts[at.index(count)].clone()),
        Fault::Swapped(a, b) => facts.swap(a.index(count), b.index(count)),
        Fault::CutAt(at) => facts.truncate(at.index(count)),
        Fault::TypeChanged(at, member, kind) => {
            let fact = &mut facts[at.index(count)];
            if let Some(member) = member_of(fact, member) {
                let odd = [json!(null), json!(true), json!(-1.5), json!(""), json!("x".repeat(300)), json!([1]), json!({"a": 1})];
                fact[member] = odd[usize::from(*kind) % odd.len()].clone();
            }
        }
        Fault::MemberRemoved(at, member) => {
            let fact = &mut facts[at.index(count)];
            if let Some(member) = member_of(fact, member) {
                fact.as_object_mut().unwrap().remove(&member);
            }
        }
    }
}

/// Builds every event of the web server, by its contract.
fn pushes() -> Vec<Value> {
    vec![
        json!({"type": "stream_meta", "requestId": "q"}),
        json!({"type": "message_persisted", "messageId": "msg_1", "role": "assistant"}),
        json!({"type": "tool.approval_required", "request": {"approvalId": "ap", "sessionId": "s", "toolCallId": "c", "toolName": "x", "args": {}, "reason": "r"}}),
        json!({"type": "approval.resolved", "approvalId": "ap", "decision": "allow", "decidedBy": "tab"}),
        json!({"type": "clarify.request", "requestId": "q", "question": "?", "options": ["a"], "jobId": "j", "defaultDeadlineAt": null}),
        json!({"type": "clarify.resolved", "requestId": "q", "source": "cancel"}),
        json!({"type": "run.update", "jobId": "j", "runner": "local", "status": "running", "now": "reads", "elapsedMs": 5, "spendUsd": 0.1, "toolCount": 2}),
        json!({"type": "cron.fired", "jobId": "j", "ranAt": "2026-01-01T00:00:00.000Z", "outputPath": "/tmp/x", "sessionKey": "k"}),
        json!({"type": "mesh.changed", "agents": [{"agentId": "a", "capabilities": [], "activeSessions": 0}]}),
        json!({"type": "evolve.skill_pending", "skillId": "s", "personalityId": null, "proposedAt": "2026-01-01T00:00:00Z"}),
        json!({"type": "evolve.skill_applied", "skillId": "s", "personalityId": null, "appliedAt": "2026-01-01T00:00:00Z"}),
        json!({"type": "notification", "message": "m", "source": "cron"}),
        json!({"type": "memory.captured", "count": 1}),
        json!({"type": "protocol.upgrade_required", "serverVersion": "2", "clientVersionExpected": "1"}),
    ]
}

/// Generates two recordings in sequence, with the web server's events between, and faults.
fn any_stream() -> impl Strategy<Value = Vec<Value>> {
    let names: Vec<_> = ENDS.iter().map(|(name, _)| *name).filter(|name| *name != "long_60_iterations").collect();
    let recorded = || prop::sample::select(names.clone()).prop_map(recording);
    (recorded(), prop::bool::ANY, recorded(), prop::collection::vec(fault(), 0..12)).prop_map(
        |(first, pushed, second, mishaps)| {
            let mut facts = [first, if pushed { pushes() } else { Vec::new() }, second].concat();
            for mishap in &mishaps {
                apply_fault(&mut facts, mishap);
            }
            facts
        },
    )
}

proptest! {
    #![proptest_config(Config { cases: 300, ..Config::default() })]

    #[test]
    fn the_adapter_accepts_any_faulty_stream_and_ends_no_attempt_twice(facts in any_stream()) {
        let drafts = adapt(&facts, "a stream with faults");
        assert_one_end_an_attempt(&drafts, "a stream with faults");
        prop_assert!(drafts.len() >= facts.len());
    }
}

#[test]
fn a_faulty_stream_gives_valid_events_and_leaves_nothing_open_after_its_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(start_local());
    let number = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 40, ..Config::default() });
    let check = |facts: Vec<Value>| {
        let run = format!("r{}", number.replace(number.get() + 1));
        runtime.block_on(async {
            client.post_lines(&format!("/v1/runs/{run}/facts?source=ethos&sessionId=s"), to_ndjson(&facts)).await.ok();
            client.append(&run, &[fact("run.finished", json!({}))]).await;
            for audience in AUDIENCES {
                let query = format!("audience={audience}");
                for event in client.read_events(&run, &query, 1000).await {
                    assert_valid("agentui-event.schema.json", &event);
                }
                for ((kind, id), activity) in read_activities(&client, &run, &query).await {
                    assert_activity(&kind, &activity["content"]);
                    assert!(!is_open(&kind, &activity["content"]), "{kind} {id}: {activity}");
                }
            }
        });
        Ok(())
    };
    runner.run(&any_stream(), check).unwrap();
}
