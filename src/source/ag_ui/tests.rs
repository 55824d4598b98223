//! Tests of every AG-UI event in each dialect.
//! The tests save and restore the adapter after each event.

use super::resume::answers;
use super::*;
use crate::model::{ActionId, Audience, Owner, PartId, Phase, Surface};
use crate::source::Adapter;
use crate::source::bounded::{CALLS_ENDED_MAX, CALLS_OPEN_MAX};
use crate::source::members::known;
use crate::source::samples::{given, object};
use serde_json::{Value, json};

/// All event types: first those of 1.0, then those that only 0.x has.
#[rustfmt::skip]
const EVENTS: &[&str] = &[
    "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK",
    "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW",
    "CUSTOM", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_CHUNK", "REASONING_END", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED", "SUBAGENT_FINISHED",
    "SUBAGENT_ERROR",

    "THINKING_START", "THINKING_END", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END",
];

fn event(event_type: &str, mut members: Value) -> Value {
    members[TYPE] = event_type.into();
    members
}

fn start(run: &str) -> Value {
    event("RUN_STARTED", json!({"threadId": "t", "runId": run}))
}

fn finish(run: &str) -> Value {
    event("RUN_FINISHED", json!({"threadId": "t", "runId": run}))
}

fn finish_as(run: &str, outcome: Value) -> Value {
    event("RUN_FINISHED", json!({"threadId": "t", "runId": run, "outcome": outcome}))
}

fn asks(run: &str, interrupts: Value) -> Value {
    finish_as(run, json!({"type": "interrupt", "interrupts": interrupts}))
}

fn message(edge: &str, id: &str) -> Value {
    event(&format!("TEXT_MESSAGE_{edge}"), json!({"messageId": id}))
}

fn content(id: &str, delta: &str) -> Value {
    event("TEXT_MESSAGE_CONTENT", json!({"messageId": id, "delta": delta}))
}

fn chunk(members: Value) -> Value {
    event("TEXT_MESSAGE_CHUNK", members)
}

fn call(id: &str) -> [Value; 3] {
    [
        event("TOOL_CALL_START", json!({"toolCallId": id, "toolCallName": "rm", "parentMessageId": "m"})),
        event("TOOL_CALL_ARGS", json!({"toolCallId": id, "delta": "{}"})),
        event("TOOL_CALL_END", json!({"toolCallId": id})),
    ]
}

fn result(id: &str) -> Value {
    event("TOOL_CALL_RESULT", json!({"messageId": "r", "toolCallId": id, "content": "gone", "role": "tool"}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    let mut adapter = (SOURCE.fresh)();
    let mut out = Vec::new();
    for fact in facts {
        adapter.adapt(object(fact), &given(), &mut out).unwrap();
        adapter = (SOURCE.restore)(&adapter.save()).unwrap();
    }
    out
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

/// Returns `event type phase` of each draft.
fn classes(drafts: &[Draft]) -> Vec<String> {
    drafts.iter().map(|d| format!("{} {}", d.event_type, d.phase)).collect()
}

fn payload(draft: &Draft) -> Value {
    Value::Object(draft.payload.clone())
}

/// Returns `type message/part text` of each draft, `-` for a missing item.
fn texts(drafts: &[Draft]) -> Vec<String> {
    let text = |d: &Draft| {
        let message = d.ids.message.as_ref().map_or("-", MessageId::as_str);
        let part = d.ids.part.as_ref().map_or("-", PartId::as_str);
        format!("{} {message}/{part} {}", d.event_type, d.text("text").unwrap_or("-"))
    };
    drafts.iter().map(text).collect()
}

fn of_class(drafts: &[Draft], class: EventType) -> Vec<&Draft> {
    drafts.iter().filter(|d| d.event_type == class).collect()
}

// ── the run ──

#[test]
fn a_start_sets_thread_and_session_and_keeps_the_runtime_s_run_id_as_a_reference() {
    let begin = event("RUN_STARTED", json!({"threadId": "t", "runId": "r", "parentRunId": "p", "protocolVersion": "1.0"}));
    let draft = last([begin.clone()]);
    assert_eq!((draft.ids.session.as_ref().unwrap().as_str(), draft.ids.thread.as_ref().unwrap().as_str()), ("t", "t"));
    assert_eq!(draft.ids.run.as_ref().unwrap().as_str(), "run");
    assert_eq!(draft.refs, Some(json!({"runId": "r", "parentRunId": "p"})));
    assert_eq!(payload(&draft), json!({"attempt": 1, "protocolVersion": "1.0"}));
    assert!(draft.extra.is_empty());

    let mut given = given();
    given.session = SessionId::new("mine").ok();
    let mut out = Vec::new();
    (SOURCE.fresh)().adapt(object(begin), &given, &mut out).unwrap();
    assert_eq!((out[0].ids.session.as_ref().unwrap().as_str(), out[0].ids.thread.as_ref().unwrap().as_str()), ("mine", "t"));
}

#[test]
fn several_runs_of_one_stream_are_attempts_of_the_request_s_run() {
    let drafts = adapt([start("a"), finish("a"), start("b"), event("RUN_ERROR", json!({"message": "x"})), start("b")]);
    let expected =
        ["run.started accepted", "run.finished completed", "run.started accepted", "run.failed failed", "run.started accepted"];
    assert_eq!(classes(&drafts), expected);
    let attempts: Vec<_> = drafts.iter().filter_map(|d| d.payload.get("attempt")?.as_u64()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(drafts[2].refs, Some(json!({"runId": "b"})));
}

#[test]
fn a_run_that_starts_within_another_is_flagged_and_ends_nothing() {
    let facts = [start("a"), message("START", "m"), start("b"), content("m", "x"), finish("b"), finish("a")];
    let drafts = adapt(facts);
    let expected = [
        "run.started accepted",
        "text.delta producing",
        "diagnostic.changed unknown",
        "text.delta producing",
        "diagnostic.changed unknown",
        "text.final reconciling",
        "run.finished completed",
    ];
    assert_eq!(classes(&drafts), expected);
    for flagged in [&drafts[2], &drafts[4]] {
        assert_eq!((&flagged.payload["kind"], flagged.audience), (&json!("interleaved_run"), Audience::Internal));
        assert_eq!(flagged.payload["event"]["runId"], "b");
    }
    assert_eq!(drafts[2].payload["openRun"], "a");
    assert_eq!(last([start("a"), start("a")]).payload["kind"], "interleaved_run", "the open run has no pending action");
}

#[test]
fn an_end_under_another_id_than_the_start_is_the_end() {
    let draft = last([start("a"), finish("of-another-name")]);
    assert_eq!(classes(std::slice::from_ref(&draft)), ["run.finished completed"]);
    assert_eq!((&draft.extra["sourceRunId"], draft.refs), (&json!("of-another-name"), Some(json!({"runId": "a"}))));
}

#[test]
fn each_kind_of_end_is_distinguished() {
    let end = |outcome: Value| classes(&adapt([start("r"), finish_as("r", outcome)])[1..]);
    assert_eq!(end(Value::Null), ["run.finished completed"]);
    assert_eq!(end(json!({"type": "success"})), ["run.finished completed"]);
    assert_eq!(end(json!("success")), ["run.finished completed"]);
    assert_eq!(end(json!({"type": "cancelled"})), ["run.finished cancelled"]);
    assert_eq!(end(json!({"type": "of_tomorrow", "x": 1})), ["run.finished unknown"]);
    assert_eq!(end(json!(7)), ["run.finished unknown"]);
    assert_eq!(end(json!({"type": "interrupt", "interrupts": []})), ["run.status waiting"]);
    let kept = last([start("r"), event("RUN_FINISHED", json!({"runId": "r", "result": {"ok": true}, "of_tomorrow": 1}))]);
    assert_eq!((payload(&kept), &kept.extra["of_tomorrow"]), (json!({"status": "completed", "result": {"ok": true}}), &json!(1)));
    let unknown = last([finish_as("r", json!({"type": "of_tomorrow", "x": 1}))]);
    assert_eq!(payload(&unknown), json!({"status": "unknown", "outcome": "of_tomorrow", "x": 1}));
}

#[test]
fn an_error_before_any_start_fails_the_run() {
    let draft = last([event("RUN_ERROR", json!({"message": "unauthorised", "code": "AUTH"}))]);
    assert_eq!((draft.event_type.clone(), draft.phase.clone()), (EventType::RunFailed, Phase::Failed));
    assert_eq!(payload(&draft), json!({"status": "failed", "error": {"code": "AUTH", "message": "unauthorised"}}));
    assert_eq!(last([event("RUN_ERROR", json!({}))]).payload["error"]["message"], "the run failed without saying why");
}

#[test]
fn usage_is_summed_over_models_and_reported_before_the_end() {
    let usage = json!([
        {"provider": "p", "model": "a", "inputTokens": 3, "outputTokens": 2, "cachedInputTokens": 1, "reasoningTokens": 7},
        {"model": "b", "inputTokens": 10, "cacheWriteInputTokens": 4, "ofTomorrow": 1, "odd": "x"},
    ]);
    let drafts = adapt([start("r"), event("RUN_FINISHED", json!({"runId": "r", "usage": usage}))]);
    assert_eq!(classes(&drafts)[1..], ["metric.changed unknown", "run.finished completed"]);
    let sum = json!({"inputTokens": 13, "outputTokens": 2, "cacheReadTokens": 1, "thinkingTokens": 7, "cacheCreationTokens": 4, "ofTomorrow": 1});
    assert_eq!(
        (&drafts[1].payload["usage"], &drafts[1].payload["models"], drafts[1].audience),
        (&sum, &usage, Audience::Dashboard)
    );
    let failed = adapt([event("RUN_ERROR", json!({"message": "x", "usage": {"inputTokens": 1}}))]);
    assert_eq!(
        (classes(&failed)[0].as_str(), &failed[0].payload["usage"]),
        ("metric.changed unknown", &json!({"inputTokens": 1}))
    );
}

#[test]
fn without_an_outcome_awaken_s_result_determines_the_end() {
    let end = |status: &str, reason: &str| {
        let result = json!({"response": "", "status": status, "status_reason": reason});
        let draft = last([start("r"), event("RUN_FINISHED", json!({"runId": "r", "result": result}))]);
        (classes(std::slice::from_ref(&draft)).remove(0), draft)
    };
    for (reason, expected) in [
        ("natural", "run.finished completed"),
        ("behavior_requested", "run.finished completed"),
        ("cancelled", "run.finished cancelled"),
        ("stopped:max_rounds", "run.finished interrupted"),
        ("blocked:forbidden", "run.failed failed"),
        ("error", "run.failed failed"),
    ] {
        assert_eq!(end("done", reason).0, expected, "{reason}");
    }
    assert_eq!(end("waiting", "awaiting_tasks").0, "run.status waiting");
    let (_, blocked) = end("done", "blocked:forbidden: by rule");
    assert_eq!(blocked.payload["error"], json!({"code": "blocked", "message": "forbidden: by rule"}));
    assert_eq!(blocked.owner, Owner::Policy);
    assert_eq!(end("done", "stopped:max_rounds").1.payload["code"], "max_rounds");
    let own = json!({"status": "done", "status_reason": "cancelled"});
    let draft = last([event("RUN_FINISHED", json!({"result": own}))]);
    assert_eq!(draft.phase, Phase::Completed, "an application's own result does not set the phase");
    let both =
        json!({"outcome": {"type": "success"}, "result": {"response": "", "status": "done", "status_reason": "cancelled"}});
    assert_eq!(last([event("RUN_FINISHED", both)]).phase, Phase::Completed, "an explicit outcome overrides the result");
}

#[test]
fn steps_are_for_operators() {
    let drafts = adapt(["STEP_STARTED", "STEP_FINISHED"].map(|edge| event(edge, json!({"stepName": "gather"}))));
    assert_eq!(payload(&drafts[0]), json!({"step": "started", "stepName": "gather"}));
    assert_eq!(payload(&drafts[1]), json!({"step": "ended", "stepName": "gather"}));
    assert!(drafts.iter().all(|d| d.event_type == EventType::RunStatus && d.audience == Audience::Dashboard));
}

// ── what is narrower than the rest ──

#[test]
fn a_runtime_s_log_data_becomes_a_separate_internal_envelope() {
    let facts = [
        event(
            "RUN_STARTED",
            json!({"runId": "r", "input": {"state": "SECRET"}, "rawEvent": "SECRET", "metadata": {"a": "SECRET"}}),
        ),
        event("TEXT_MESSAGE_CONTENT", json!({"messageId": "m", "delta": "x", "rawEvent": {"x": "SECRET"}})),
        event("TOOL_CALL_RESULT", json!({"toolCallId": "c", "content": "x", "metadata": {"x": "SECRET"}})),
        event("RAW", json!({"event": "SECRET", "source": "x"})),
        asks("r", json!([{"id": "i", "reason": "x", "metadata": {"x": "SECRET"}}])),
    ];
    let drafts = adapt(facts);
    let kinds: Vec<_> = of_class(&drafts, EventType::DiagnosticChanged).iter().map(|d| d.text("kind").unwrap()).collect();
    assert_eq!(kinds, ["run_input", "raw_event", "metadata", "raw_event", "metadata", "raw", "metadata"]);
    for draft in &drafts {
        let shows = format!("{:?} {:?}", draft.payload, draft.extra).contains("SECRET");
        assert_eq!(shows, draft.audience == Audience::Internal, "{draft:?}");
    }
    let of_result = drafts.iter().find(|d| d.text("eventType") == Some("TOOL_CALL_RESULT")).unwrap();
    assert_eq!(payload(of_result), json!({"kind": "metadata", "eventType": "TOOL_CALL_RESULT", "metadata": {"x": "SECRET"}}));
    assert_eq!(of_result.ids.tool_call.as_ref().unwrap().as_str(), "c");
    let of_interrupt = drafts.iter().rfind(|d| d.text("kind") == Some("metadata")).unwrap();
    assert_eq!(of_interrupt.ids.action.as_ref().unwrap().as_str(), "i");
}

#[test]
fn every_envelope_has_the_producer_s_time_and_an_invalid_time_is_carried() {
    let at = 1_764_000_000_133_i64;
    let drafts = adapt([event("RUN_STARTED", json!({"runId": "r", "timestamp": at, "rawEvent": 1}))]);
    assert!(drafts.len() == 2 && drafts.iter().all(|d| d.timestamp.as_deref() == Some("2025-11-24T16:00:00.133Z")));
    let draft = last([event("CUSTOM", json!({"name": "x", "value": 1, "timestamp": "soon"}))]);
    assert_eq!((draft.timestamp, &draft.extra["sourceTimestamp"]), (None, &json!("soon")));
}

#[test]
fn null_optional_members_are_ignored() {
    let nulls = json!({"messageId": "m", "role": null, "name": null, "timestamp": null, "rawEvent": null, "metadata": null, "subagentRunId": null});
    let draft = last([event("TEXT_MESSAGE_START", nulls)]);
    assert_eq!((payload(&draft), draft.extra.is_empty(), draft.ids.agent), (json!({"text": ""}), true, None));
    let [begin, ..] = call("c");
    let mut begin = begin;
    begin["parentMessageId"] = Value::Null;
    assert_eq!(last([begin]).ids.message, None);
    let nulls = json!({"runId": "r", "outcome": null, "result": null, "usage": null});
    assert_eq!(payload(&last([event("RUN_FINISHED", nulls)])), json!({"status": "completed"}));
    let nulls = json!({"runId": "r", "threadId": "t", "parentRunId": null, "input": null});
    assert_eq!(adapt([event("RUN_STARTED", nulls)]).len(), 1);
    assert_eq!(
        payload(&last([event("STATE_SNAPSHOT", json!({"snapshot": null}))])),
        json!({"state": null}),
        "here null is the value"
    );
}

#[test]
fn unknown_and_malformed_events_are_kept_internal_and_never_an_error() {
    let unknown = last([event("OF_TOMORROW", json!({"x": 1, "rawEvent": null}))]);
    assert_eq!((unknown.event_type.clone(), unknown.audience), (EventType::DiagnosticChanged, Audience::Internal));
    assert_eq!(
        payload(&unknown),
        json!({"kind": "unknown_event_type", "eventType": "OF_TOMORROW", "event": {"x": 1, "rawEvent": null}})
    );
    for (broken, expected) in [
        (event("TEXT_MESSAGE_CONTENT", json!({"messageId": "m", "delta": 7})), "delta as text"),
        (event("TEXT_MESSAGE_START", json!({"messageId": ""})), "messageId as an id"),
        (event("TEXT_MESSAGE_END", json!({"messageId": "a\nb"})), "messageId as an id"),
        (event("TOOL_CALL_START", json!({"toolCallId": "x".repeat(257)})), "toolCallId as an id"),
        (event("TOOL_CALL_CHUNK", json!({"delta": "x"})), "toolCallId as an id"),
        (event("MESSAGES_SNAPSHOT", json!({"messages": {}})), "messages as a list"),
        (event("ACTIVITY_DELTA", json!({"messageId": "m", "activityType": "", "patch": []})), "activityType as a name"),
        (event("STATE_SNAPSHOT", json!({})), "snapshot as a value"),
        (event("SUBAGENT_ERROR", json!({"message": "x"})), "subagentRunId as an id"),
    ] {
        let draft = last([broken.clone()]);
        assert_eq!((&draft.payload["kind"], draft.audience), (&json!("malformed_event"), Audience::Internal), "{broken}");
        assert_eq!(draft.payload["expected"], expected, "{broken}");
    }
    let refused = (SOURCE.fresh)().adapt(object(json!({"event_type": "x"})), &given(), &mut Vec::new());
    assert_eq!(refused, Err(FactError::NoType { member: TYPE }));
}

#[test]
fn every_event_type_gives_a_draft_even_without_members() {
    for event_type in EVENTS {
        assert!(known::<Kind>(event_type).is_some(), "{event_type}");
        let drafts = adapt([event(event_type, json!({}))]);
        assert!(!drafts.is_empty(), "{event_type}");
        let whole = json!({
            "messageId": "m", "toolCallId": "c", "delta": "x", "snapshot": {}, "messages": [], "activityType": "a", "content": {},
            "patch": [], "subagentRunId": "s", "stepName": "s", "ofTomorrow": 1,
        });
        let drafts = adapt([event(event_type, whole)]);
        let carried = drafts.iter().any(|d| d.extra.contains_key("ofTomorrow") || d.payload.get("event").is_some());
        assert!(carried, "{event_type} loses a member: {drafts:?}");
        assert!(drafts.iter().all(|d| d.payload.get("kind") != Some(&json!("malformed_event"))), "{event_type}");
    }
}

#[test]
fn unknown_members_are_carried_and_forge_nothing() {
    let mut odd = content("m", "x");
    odd["ofTomorrow"] = json!([1]);
    odd["audience"] = json!("internal");
    odd["eventId"] = json!("e");
    let draft = last([odd]);
    assert_eq!(Value::Object(draft.extra), json!({"ofTomorrow": [1], "sourceAudience": "internal", "sourceEventId": "e"}));
    assert_eq!(draft.audience, Audience::User);
}

// ── text ──

#[test]
fn a_message_streams_and_its_end_does_not_repeat_the_text() {
    let drafts = adapt([message("START", "m"), content("m", "a"), content("m", ""), content("m", "b"), message("END", "m")]);
    let expected =
        ["text.delta m/text ", "text.delta m/text a", "text.delta m/text ", "text.delta m/text b", "text.final m/text -"];
    assert_eq!(texts(&drafts), expected);
}

#[test]
fn several_messages_stream_at_once() {
    let facts = [
        message("START", "m"),
        message("START", "n"),
        content("m", "a"),
        content("n", "b"),
        message("END", "m"),
        content("n", "c"),
    ];
    let expected = ["m/text ", "n/text ", "m/text a", "n/text b", "m/text -", "n/text c"];
    let drafts = adapt(facts);
    assert_eq!(texts(&drafts).iter().map(|t| t.split_once(' ').unwrap().1).collect::<Vec<_>>(), expected);
}

#[test]
fn late_content_keeps_the_sealed_part_so_that_the_ledger_rejects_it() {
    let drafts = adapt([message("START", "m"), message("END", "m"), content("m", "late")]);
    assert_eq!(texts(&drafts)[2], "text.delta m/text late");
    let mut ledger = crate::source::ledger::Ledger::default();
    let refused: Vec<bool> = drafts.into_iter().map(|mut draft| ledger.record(&mut draft, 0).is_some()).collect();
    assert_eq!(refused, [false, false, true]);
}

#[test]
fn a_restarted_message_continues_in_another_part() {
    let once = || [message("START", "m"), content("m", "a"), message("END", "m")];
    let drafts = adapt(once().into_iter().chain(once()));
    assert_eq!(texts(&drafts)[3..], ["text.delta m/text-2 ", "text.delta m/text-2 a", "text.final m/text-2 -"]);
    let mut ledger = crate::source::ledger::Ledger::default();
    assert!(drafts.into_iter().all(|mut draft| ledger.record(&mut draft, 0).is_none()));
    assert_eq!(
        texts(&adapt([message("START", "m"), content("m", "a"), message("START", "m")]))[2],
        "text.delta m/text ",
        "it is open"
    );
}

#[test]
fn a_message_without_a_start_starts_with_its_first_chunk_and_an_end_without_a_start_is_flagged() {
    assert_eq!(texts(&adapt([content("m", "a"), message("END", "m")])), ["text.delta m/text a", "text.final m/text -"]);
    let draft = last([message("END", "m")]);
    assert_eq!((&draft.payload["kind"], draft.audience), (&json!("end_without_start"), Audience::Internal));
}

#[test]
fn a_role_other_than_assistant_is_kept() {
    let begin = event("TEXT_MESSAGE_START", json!({"messageId": "m", "role": "user", "name": "Ann"}));
    let drafts = adapt([begin, content("m", "a"), message("END", "m")]);
    assert!(drafts.iter().all(|d| d.payload["role"] == "user"));
    assert_eq!(drafts[0].extra["name"], "Ann");
    assert_eq!(last([event("TEXT_MESSAGE_START", json!({"messageId": "m", "role": "assistant"}))]).payload.get("role"), None);
}

#[test]
fn success_or_a_pause_ends_open_streams_and_a_failure_leaves_them_unsealed() {
    let open = || vec![start("r"), message("START", "m"), event("REASONING_MESSAGE_START", json!({"messageId": "m"}))];
    let ends = |end: Value| classes(&adapt(open().into_iter().chain([end]))[3..]);
    let sealed = ["text.final reconciling", "reasoning.summary reasoning"];
    assert_eq!(ends(finish("r"))[..2], sealed);
    assert_eq!(ends(finish_as("r", json!("interrupt")))[..2], sealed);
    assert_eq!(ends(finish_as("r", json!({"type": "cancelled"}))), ["run.finished cancelled"]);
    assert_eq!(ends(event("RUN_ERROR", json!({"message": "x"}))), ["run.failed failed"]);
}

// ── chunks ──

#[test]
fn chunks_inherit_their_message_until_another_event_ends_it() {
    let drafts = adapt([
        chunk(json!({"messageId": "m", "role": "assistant", "delta": "a"})),
        chunk(json!({"delta": "b"})),
        chunk(json!({"messageId": "m", "delta": "c"})),
        chunk(json!({"messageId": "n", "delta": "d"})),
        event("STEP_STARTED", json!({"stepName": "s"})),
    ]);
    let expected = [
        "text.delta m/text a",
        "text.delta m/text b",
        "text.delta m/text c",
        "text.final m/text -",
        "text.delta n/text d",
        "text.final n/text -",
        "run.status -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
}

#[test]
fn a_chunk_of_another_kind_ends_the_previous_item() {
    let drafts = adapt([
        chunk(json!({"messageId": "m", "delta": "a"})),
        event("REASONING_MESSAGE_CHUNK", json!({"messageId": "m", "delta": "hm"})),
        event("TOOL_CALL_CHUNK", json!({"toolCallId": "c", "toolCallName": "rm", "parentMessageId": "m", "delta": "{"})),
        event("TOOL_CALL_CHUNK", json!({"delta": "}"})),
        event("TOOL_CALL_CHUNK", json!({"toolCallId": "d", "toolCallName": "ls"})),
        chunk(json!({"messageId": "n", "delta": "b"})),
        finish("r"),
    ]);
    let expected = [
        "text.delta m/text a",
        "text.final m/text -",
        "reasoning.delta m/reasoning hm",
        "reasoning.summary m/reasoning -",
        "tool.started m/- -",
        "tool.args -/- -",
        "tool.args -/- -",
        "tool.args -/- -",
        "tool.started -/- -",
        "tool.args -/- -",
        "text.delta n/text b",
        "text.final n/text -",
        "tool.progress -/- -",
        "tool.progress -/- -",
        "run.finished -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert_eq!(payload(&drafts[7]), json!({"state": "input-available", "inputTextBytes": 2}));
    assert_eq!(payload(&drafts[9]), json!({"state": "input-available", "inputTextBytes": 0}));
}

#[test]
fn interleaved_call_chunks_continue_their_calls() {
    let chunk = |members: Value| event("TOOL_CALL_CHUNK", members);
    let drafts = adapt([
        chunk(json!({"toolCallId": "a", "toolCallName": "rm", "delta": "{"})),
        chunk(json!({"toolCallId": "b", "toolCallName": "ls", "delta": "{"})),
        chunk(json!({"toolCallId": "a", "delta": "}"})),
        chunk(json!({"toolCallId": "b", "delta": "}"})),
        finish("r"),
    ]);
    let called = |d: &Draft| {
        let call = d.ids.tool_call.as_ref().map_or("-", ToolCallId::as_str);
        format!("{} {call} {}", d.event_type, d.text("inputText").or(d.text("state")).unwrap_or("-"))
    };
    let expected = [
        "tool.started a -",
        "tool.args a {",
        "tool.args a input-available",
        "tool.started b -",
        "tool.args b {",
        "tool.args b input-available",
        "tool.args a }",
        "tool.args a input-available",
        "tool.args b }",
        "tool.args b input-available",
        "tool.progress a -",
        "tool.progress b -",
        "run.finished - -",
    ];
    assert_eq!(drafts.iter().map(called).collect::<Vec<_>>(), expected);
}

#[test]
fn accompanying_events_do_not_end_a_chunked_message() {
    for between in [
        event("RAW", json!({"event": 1})),
        event("ACTIVITY_SNAPSHOT", json!({"messageId": "a", "activityType": "x", "content": {}})),
        event("ACTIVITY_DELTA", json!({"messageId": "a", "activityType": "x", "patch": []})),
        event("REASONING_ENCRYPTED_VALUE", json!({"subtype": "message", "entityId": "m", "encryptedValue": "x"})),
        event("OF_TOMORROW", json!({})),
    ] {
        let drafts = adapt([chunk(json!({"messageId": "m", "delta": "a"})), between.clone(), chunk(json!({"delta": "b"}))]);
        assert_eq!((drafts.len(), texts(&drafts)[2].as_str()), (3, "text.delta m/text b"), "{between}");
    }
}

#[test]
fn the_last_chunked_message_ends_with_the_run() {
    let drafts = adapt([start("r"), chunk(json!({"messageId": "m", "delta": "a"})), event("RUN_ERROR", json!({"message": "x"}))]);
    assert_eq!(classes(&drafts)[1..], ["text.delta producing", "text.final reconciling", "run.failed failed"]);
}

#[test]
fn a_chunk_without_an_id_gets_a_generated_id() {
    let drafts = adapt([chunk(json!({"delta": "a"})), chunk(json!({"delta": "b"}))]);
    assert_eq!(texts(&drafts), ["text.delta ag-ui-message-1/text a", "text.delta ag-ui-message-1/text b"]);
}

// ── reasoning ──

#[test]
fn reasoning_and_text_share_a_message_in_separate_parts() {
    let reasoning = |edge: &str, members: Value| event(&format!("REASONING_{edge}"), members);
    let id = || json!({"messageId": "m"});
    let drafts = adapt([
        reasoning("START", id()),
        reasoning("MESSAGE_START", json!({"messageId": "m", "role": "reasoning"})),
        reasoning("MESSAGE_CONTENT", json!({"messageId": "m", "delta": "hm"})),
        message("START", "m"),
        reasoning("MESSAGE_END", id()),
        reasoning("END", id()),
    ]);
    let expected = [
        "run.status m/- -",
        "reasoning.delta m/reasoning ",
        "reasoning.delta m/reasoning hm",
        "text.delta m/text ",
        "reasoning.summary m/reasoning -",
        "run.status m/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert!(drafts.iter().all(|d| d.extra.is_empty()));
    assert_eq!(
        (drafts[0].phase.clone(), drafts[0].audience, &drafts[0].payload["reasoning"]),
        (Phase::Reasoning, Audience::Dashboard, &json!("started"))
    );
    assert_eq!((drafts[5].phase.clone(), &drafts[5].payload["reasoning"]), (Phase::Acting, &json!("ended")));
}

#[test]
fn thinking_events_without_ids_get_generated_ids() {
    let thinking = |edge: &str, members: Value| event(&format!("THINKING_{edge}"), members);
    let text = |delta: &str| thinking("TEXT_MESSAGE_CONTENT", json!({"delta": delta}));
    let drafts = adapt([
        thinking("START", json!({"title": "Plan"})),
        thinking("TEXT_MESSAGE_START", json!({})),
        text("a"),
        thinking("TEXT_MESSAGE_END", json!({})),
        text("b"),
        thinking("TEXT_MESSAGE_END", json!({})),
        thinking("END", json!({})),
        thinking("TEXT_MESSAGE_END", json!({})),
    ]);
    let expected = [
        "run.status -/- -",
        "reasoning.delta ag-ui-message-1/reasoning ",
        "reasoning.delta ag-ui-message-1/reasoning a",
        "reasoning.summary ag-ui-message-1/reasoning -",
        "reasoning.delta ag-ui-message-2/reasoning b",
        "reasoning.summary ag-ui-message-2/reasoning -",
        "run.status -/- -",
        "diagnostic.changed -/- -",
    ];
    assert_eq!(texts(&drafts), expected);
    assert_eq!(payload(&drafts[0]), json!({"reasoning": "started", "title": "Plan"}));
}

#[test]
fn encrypted_reasoning_keeps_only_its_length() {
    let value = |subtype: &str| json!({"subtype": subtype, "entityId": "x", "encryptedValue": "b3BhcXVl", "provider": "p"});
    let draft = last([event("REASONING_ENCRYPTED_VALUE", value("tool-call"))]);
    assert_eq!(
        payload(&draft),
        json!({"kind": "reasoning_encrypted_value", "bytes": 8, "subtype": "tool-call", "entityId": "x"})
    );
    assert_eq!(
        (draft.audience, draft.ids.tool_call.unwrap().as_str(), &draft.extra["provider"]),
        (Audience::Internal, "x", &json!("p"))
    );
    assert_eq!(last([event("REASONING_ENCRYPTED_VALUE", value("message"))]).ids.message.unwrap().as_str(), "x");
}

// ── tool calls ──

#[test]
fn a_call_goes_from_request_to_a_result_with_unknown_outcome() {
    let drafts = adapt(call("c").into_iter().chain([result("c")]));
    let seen: Vec<_> = drafts.iter().map(|d| format!("{} {} {} {}", d.event_type, d.owner, d.audience, d.persistence)).collect();
    let expected = [
        "tool.started model user archive",
        "tool.args model user ephemeral_live",
        "tool.args model user archive",
        "tool.result tool user archive",
    ];
    assert_eq!(seen, expected);
    assert_eq!((payload(&drafts[0]), drafts[0].ids.message.as_ref().unwrap().as_str()), (json!({"toolName": "rm"}), "m"));
    assert_eq!(payload(&drafts[1]), json!({"inputText": "{}"}));
    assert_eq!(payload(&drafts[2]), json!({"state": "input-available", "inputTextBytes": 2}));
    assert_eq!(payload(&drafts[3]), json!({"outcome": "unknown", "toolName": "rm", "output": "gone", "role": "tool"}));
    assert_eq!(drafts[3].ids.message.as_ref().unwrap().as_str(), "r");
}

#[test]
fn a_result_that_reads_like_a_failure_is_a_result_and_content_parts_are_kept() {
    for content in [json!("Error: disk full"), json!("{\"error\":\"no\"}"), json!([{"type": "text", "text": "3 hits"}])] {
        let draft = last([event("TOOL_CALL_RESULT", json!({"messageId": "", "toolCallId": "c", "content": content}))]);
        assert_eq!((draft.event_type.clone(), draft.phase.clone()), (EventType::ToolResult, Phase::Completed));
        assert_eq!(payload(&draft), json!({"outcome": "unknown", "output": content}));
        assert_eq!(draft.ids.message, None, "Awaken writes no id as an empty one");
    }
}

#[test]
fn arguments_after_their_end_are_flagged_and_a_second_start_accepts_them() {
    let late = || event("TOOL_CALL_ARGS", json!({"toolCallId": "c", "delta": "x"}));
    let flagged = last(call("c").into_iter().chain([late()]));
    assert_eq!((&flagged.payload["kind"], flagged.ids.tool_call.unwrap().as_str()), (&json!("write_after_seal"), "c"));
    assert_eq!(last(call("c").into_iter().chain([result("c"), late()])).payload["kind"], "write_after_seal");
    let [begin, ..] = call("c");
    assert_eq!(last(call("c").into_iter().chain([result("c"), begin, late()])).payload, object(json!({"inputText": "x"})));
}

#[test]
fn a_call_without_a_start_is_accepted() {
    let [_, args, end] = call("c");
    assert_eq!(classes(&adapt([args.clone(), end.clone()])), ["tool.args acting", "tool.args acting"]);
    assert_eq!(classes(&adapt([end, finish("r")])), ["tool.args acting", "tool.progress acting", "run.finished completed"]);
    assert_eq!(
        classes(&adapt([args, finish("r")])),
        ["tool.args acting", "run.finished completed"],
        "its arguments were never complete"
    );
}

#[test]
fn a_call_without_a_result_when_its_run_ends_well_waits_for_the_client() {
    let drafts = adapt([start("r")].into_iter().chain(call("c")).chain(call("d")).chain([result("d"), finish("r")]));
    let waits = of_class(&drafts, EventType::ToolProgress);
    assert_eq!(waits.len(), 1);
    assert_eq!(waits[0].ids.tool_call.as_ref().unwrap().as_str(), "c");
    assert_eq!(payload(waits[0]), json!({"status": "pending", "awaits": "client", "toolName": "rm"}));
    assert_eq!((waits[0].audience, waits[0].persistence.as_str()), (Audience::User, "snapshot"));
    for bad in [finish_as("r", json!({"type": "cancelled"})), event("RUN_ERROR", json!({"message": "x"}))] {
        let drafts = adapt([start("r")].into_iter().chain(call("c")).chain([bad]));
        assert!(of_class(&drafts, EventType::ToolProgress).is_empty());
    }
}

#[test]
fn a_run_that_names_its_pending_calls_awaits_only_those() {
    let outcome = json!({"type": "success", "pendingToolCallIds": ["d", "unheard-of"]});
    let drafts = adapt(call("c").into_iter().chain(call("d")).chain([finish_as("r", outcome)]));
    let waits: Vec<_> =
        of_class(&drafts, EventType::ToolProgress).iter().map(|d| d.ids.tool_call.clone().unwrap().to_string()).collect();
    assert_eq!(waits, ["d", "unheard-of"]);
    assert_eq!(drafts.last().unwrap().payload["pendingToolCallIds"], json!(["d", "unheard-of"]));
}

#[test]
fn the_client_s_answer_among_a_later_run_s_messages_ends_the_call_once() {
    let input = json!({"messages": [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "x", "role": "tool", "toolCallId": "unheard-of", "content": "?"},
        {"id": "a", "role": "tool", "toolCallId": "c", "content": "blue"},
        {"id": "b", "role": "tool", "toolCallId": "d", "content": "", "error": "denied"},
    ]});
    let again = || event("RUN_STARTED", json!({"runId": "s", "input": input}));
    let drafts = adapt(call("c").into_iter().chain(call("d")).chain([finish("r"), again(), finish("s"), again()]));
    let answered = of_class(&drafts, EventType::ToolResult);
    assert_eq!(answered.len(), 1);
    assert_eq!(payload(answered[0]), json!({"outcome": "unknown", "toolName": "rm", "output": "blue"}));
    assert_eq!(answered[0].ids.message.as_ref().unwrap().as_str(), "a");
    let failed = of_class(&drafts, EventType::ToolFailed);
    assert_eq!(
        (failed.len(), &failed[0].payload["error"]),
        (1, &json!({"message": "denied"})),
        "the message has an error member"
    );
    assert_eq!(of_class(&drafts, EventType::ToolProgress).len(), 2, "a waiting call is reported once");
}

#[test]
fn a_call_open_at_an_interrupt_does_not_await_the_client() {
    let ask = asks("r", json!([{"id": "i", "reason": "confirmation", "toolCallId": "c"}]));
    let drafts = adapt(call("c").into_iter().chain([ask, start("s"), finish("s")]));
    assert!(of_class(&drafts, EventType::ToolProgress).is_empty());
    assert_eq!(of_class(&drafts, EventType::ActionRequired)[0].payload["toolName"], "rm");
}

// ── asking and answering ──

#[test]
fn each_interrupt_is_an_action_and_the_run_waits() {
    let ask = asks(
        "r",
        json!([
            {"id": "i", "reason": "tool_call", "message": "Sure?", "toolCallId": "c", "responseSchema": {"type": "object"},
             "expiresAt": "2026-12-31T23:59:59Z", "ofTomorrow": 1},
            {"id": "j", "reason": "tool_approval", "subagentRunId": "kid", "message": null},
            {"reason": "input_required"},
        ]),
    );
    let drafts = adapt([start("r"), ask]);
    let expected = ["action.required waiting", "action.required waiting", "action.required waiting", "run.status waiting"];
    assert_eq!(classes(&drafts)[1..], expected);
    let first = json!({"kind": "tool_approval", "reason": "tool_call", "message": "Sure?", "schema": {"type": "object"},
        "expiresAt": "2026-12-31T23:59:59Z", "ofTomorrow": 1});
    assert_eq!((payload(&drafts[1]), drafts[1].owner.clone()), (first, Owner::Policy));
    assert_eq!((drafts[1].ids.action.as_ref().unwrap().as_str(), drafts[1].ids.tool_call.as_ref().unwrap().as_str()), ("i", "c"));
    assert_eq!(
        (payload(&drafts[2]), drafts[2].owner.clone()),
        (json!({"kind": "tool_approval", "reason": "tool_approval"}), Owner::Policy)
    );
    assert_eq!(drafts[2].ids.agent.as_ref().unwrap().as_str(), "kid");
    assert_eq!(drafts[4].ids.agent, None);
    assert_eq!(drafts[4].payload["status"], "waiting");
    assert_eq!(drafts[4].persistence.as_str(), "snapshot");
}

#[test]
fn an_interrupt_without_an_id_gets_a_generated_id() {
    let drafts = adapt([asks("r", json!([{"reason": "a"}, {"id": "", "reason": "b"}, "odd"]))]);
    let ids: Vec<_> = drafts.iter().filter_map(|d| Some(d.ids.action.as_ref()?.to_string())).collect();
    assert_eq!(ids, ["ag-ui-action-1", "ag-ui-action-2"]);
    assert_eq!(drafts.last().unwrap().payload["interrupt2"], "odd", "a value that is no interrupt stays in the payload");
}

#[test]
fn awaken_s_bare_interrupt_pauses_and_a_restart_of_the_run_resumes() {
    let interrupt = json!({"id": "perm", "reason": "tool:PermissionConfirm", "payload": {"tool": "rm"}});
    let ask = event("RUN_FINISHED", json!({"runId": "r", "outcome": "interrupt", "interrupt": interrupt}));
    let drafts = adapt([start("r"), ask, start("r"), finish("r")]);
    let expected = [
        "run.started accepted",
        "action.required waiting",
        "run.status waiting",
        "action.resolved acting",
        "run.status acting",
        "run.finished completed",
    ];
    assert_eq!(classes(&drafts), expected);
    let asked = json!({"kind": "tool_approval", "reason": "tool:PermissionConfirm", "payload": {"tool": "rm"}, "toolName": "rm"});
    assert_eq!((payload(&drafts[1]), drafts[1].ids.action.as_ref().unwrap().as_str()), (asked, "perm"));
    assert_eq!((payload(&drafts[3]), drafts[3].ids.action.as_ref().unwrap().as_str()), (json!({"outcome": "answered"}), "perm"));
    assert_eq!(payload(&drafts[4]), json!({"resumed": true}));
    let nameless = adapt([event("RUN_FINISHED", json!({"outcome": "interrupt", "interrupt": {}}))]);
    assert_eq!(nameless[0].ids.action.as_ref().unwrap().as_str(), "ag-ui-action-1");
}

fn resume(entries: Value) -> Value {
    event("RUN_STARTED", json!({"threadId": "t", "runId": "s", "parentRunId": "elsewhere", "input": {"resume": entries}}))
}

#[test]
fn answers_come_before_the_next_run_s_start() {
    let ask = asks(
        "r",
        json!(["a", "b", "c", "d", "e"].map(|id| json!({"id": id, "reason": "x", "toolCallId": format!("call-{id}")}))),
    );
    let entries = json!([
        {"interruptId": "a", "status": "resolved", "payload": {"approved": true}},
        {"interruptId": "b", "status": "resolved", "payload": {"approved": false, "reason": "no"}},
        {"interruptId": "c", "status": "resolved", "payload": "blue"},
        {"interruptId": "d", "status": "cancelled"},
        {"interruptId": "unheard-of", "status": "resolved"},
    ]);
    let drafts = adapt([start("r"), ask, resume(entries.clone())]);
    let after: Vec<_> = drafts[7..].to_vec();
    let expected = [
        "action.resolved acting",
        "action.resolved acting",
        "action.resolved acting",
        "action.resolved acting",
        "run.started accepted",
        "diagnostic.changed unknown",
    ];
    assert_eq!(classes(&after), expected, "one action has no answer, and one answer has no action");
    let outcomes: Vec<_> = after[..4].iter().map(payload).collect();
    let expected = [
        json!({"outcome": "approved", "value": {"approved": true}}),
        json!({"outcome": "rejected", "value": {"approved": false, "reason": "no"}}),
        json!({"outcome": "answered", "value": "blue"}),
        json!({"outcome": "cancelled"}),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(after[0].ids.tool_call.as_ref().unwrap().as_str(), "call-a");
    assert_eq!(after[4].refs, Some(json!({"runId": "s", "parentRunId": "elsewhere"})));
    assert_eq!(after[5].payload["input"]["resume"], entries, "the unknown answer stays in the input");
    assert_eq!(after[5].audience, Audience::Internal);
}

#[test]
fn a_continuation_of_an_interrupted_run_resolves_its_actions() {
    let next = |parent: Value| event("RUN_STARTED", json!({"runId": "s", "parentRunId": parent}));
    let ask = || asks("r", json!([{"id": "i", "reason": "x"}]));
    let resolved = |parent: Value| of_class(&adapt([start("r"), ask(), next(parent)]), EventType::ActionResolved).len();
    assert_eq!((resolved(json!("r")), resolved(json!("q")), resolved(Value::Null)), (1, 0, 0));
    let later =
        adapt([start("r"), ask(), next(Value::Null), finish("s"), resume(json!([{"interruptId": "i", "status": "cancelled"}]))]);
    assert_eq!(of_class(&later, EventType::ActionResolved).len(), 1, "another run left it open");
}

#[test]
fn answers_are_read_from_a_start_without_memory() {
    let entries = json!([
        {"interruptId": "a", "status": "resolved", "payload": {"approved": true}},
        {"interruptId": "b", "status": "cancelled", "payload": null},
        {"interruptId": "c", "status": "of_tomorrow"},
        {"interruptId": "", "status": "resolved"},
        {"status": "resolved"},
        7,
    ]);
    let expected = [("a", "approved", Some(json!({"approved": true}))), ("b", "cancelled", None)].map(|(id, outcome, value)| {
        let (action, session) = (ActionId::new(id).unwrap(), SessionId::new("t").ok());
        ActionAnswer { action, session, outcome, value }
    });
    assert_eq!(answers(&object(resume(entries.clone()))), expected);
    let mut other = resume(entries);
    other[TYPE] = "CUSTOM".into();
    assert_eq!(answers(&object(other)), []);
    assert_eq!(answers(&object(start("r"))), []);
    assert_eq!(answers(&object(event("RUN_STARTED", json!({"input": {"resume": 7}})))), []);
}

// ── messages ──

#[test]
fn a_messages_snapshot_is_a_window_in_the_protocol_s_shape() {
    let messages = json!([
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": "/i"}], "name": "Ann"},
        {"id": "a", "role": "assistant", "content": "so", "toolCalls": null, "encryptedValue": null},
        {"id": "s", "role": "system", "content": "be nice"},
        {"role": "user", "content": null},
        "odd",
    ]);
    let drafts = adapt([event("MESSAGES_SNAPSHOT", json!({"messages": messages}))]);
    let shaped = json!([
        {"messageId": "u", "role": "user", "parts": [{"partId": "text", "kind": "user_text", "text": ["look"]},
         {"partId": "image-2", "kind": "image", "url": "/i"}], "name": "Ann"},
        {"messageId": "a", "role": "assistant", "parts": [{"partId": "text", "kind": "assistant_text", "text": ["so"]}]},
        {"messageId": "s", "role": "system", "parts": [{"partId": "text", "kind": "diagnostic", "text": ["be nice"]}]},
        {"messageId": "ag-ui-message-1", "role": "user", "parts": []},
        "odd",
    ]);
    assert_eq!(drafts.len(), 1);
    assert_eq!(payload(&drafts[0]), json!({"mode": "window", "messages": shaped}));
}

fn backend_tool(id: &str) -> [Value; 2] {
    [
        json!({"id": format!("m-{id}"), "role": "assistant", "toolCalls": [
            {"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"city\":\"Rome\"}"}}]}),
        json!({"id": format!("r-{id}"), "role": "tool", "toolCallId": id, "content": "sunny"}),
    ]
}

#[test]
fn calls_that_only_a_snapshot_contains_start_once_and_history_does_not_repeat() {
    let [old, old_result] = backend_tool("old");
    let [new, new_result] = backend_tool("new");
    let user = json!({"id": "u", "role": "user", "content": "and now?"});
    let snapshot = || event("MESSAGES_SNAPSHOT", json!({"messages": [old, old_result, user, new, new_result]}));
    let drafts = adapt([snapshot(), snapshot()]);
    let expected = [
        "messages.snapshot reconciling",
        "tool.started acting",
        "tool.args acting",
        "tool.result completed",
        "messages.snapshot reconciling",
    ];
    assert_eq!(classes(&drafts), expected);
    let part = json!({"partId": "new", "kind": "tool_call", "toolCallId": "new", "toolName": "look", "input": {"city": "Rome"}});
    assert_eq!(drafts[0].payload["messages"][3], json!({"messageId": "m-new", "role": "assistant", "parts": [part]}));
    let result = json!({"messageId": "r-new", "role": "tool", "toolCallId": "new",
        "parts": [{"partId": "text", "kind": "tool_result", "text": ["sunny"], "toolCallId": "new"}]});
    assert_eq!(drafts[0].payload["messages"][4], result);
    assert_eq!((&drafts[1].payload["toolName"], drafts[1].ids.message.as_ref().unwrap().as_str()), (&json!("look"), "m-new"));
    assert_eq!(payload(&drafts[2]), json!({"input": {"city": "Rome"}}));
    assert_eq!(payload(&drafts[3]), json!({"outcome": "unknown", "toolName": "look", "output": "sunny"}));
    assert!(drafts[1..4].iter().all(|d| d.ids.tool_call.as_ref().unwrap().as_str() == "new"));
}

#[test]
fn a_snapshot_s_call_without_a_result_awaits_the_client_and_a_later_snapshot_may_end_it() {
    let [ask, answer] = backend_tool("c");
    let first = event("MESSAGES_SNAPSHOT", json!({"messages": [ask]}));
    let second = event("MESSAGES_SNAPSHOT", json!({"messages": [ask, answer]}));
    let drafts = adapt([start("r"), first, finish("r"), start("s"), second]);
    assert_eq!(of_class(&drafts, EventType::ToolProgress)[0].payload["awaits"], "client");
    assert_eq!(classes(&drafts[drafts.len() - 2..]), ["messages.snapshot reconciling", "tool.result completed"]);
}

#[test]
fn invalid_or_too_deep_json_arguments_stay_text() {
    for arguments in ["{\"half", &("[".repeat(80) + &"]".repeat(80))] {
        let call = json!({"id": "c", "function": {"name": "x", "arguments": arguments}});
        let drafts =
            adapt([event("MESSAGES_SNAPSHOT", json!({"messages": [{"id": "m", "role": "assistant", "toolCalls": [call]}]}))]);
        assert_eq!(drafts[0].payload["messages"][0]["parts"][0]["inputText"], *arguments);
        assert_eq!(
            (&drafts[2].payload["inputText"], &drafts[3].payload["state"]),
            (&json!(arguments), &json!("input-available"))
        );
    }
}

#[test]
fn reasoning_and_activities_of_a_snapshot_match_their_own_events() {
    let messages = json!([
        {"id": "t", "role": "reasoning", "content": "hm", "encryptedValue": "b3BhcXVl"},
        {"id": "live", "role": "reasoning", "content": "hm"},
        {"id": "a", "role": "activity", "activityType": "plan", "content": {"n": 1}, "subagentRunId": "kid"},
        {"id": "m", "role": "assistant", "content": "x", "metadata": {"k": 1}, "subagentRunId": "kid"},
    ]);
    let live = event("REASONING_MESSAGE_CONTENT", json!({"messageId": "live", "delta": "hm"}));
    let drafts = adapt([live, event("MESSAGES_SNAPSHOT", json!({"messages": messages}))]);
    assert_eq!(
        classes(&drafts)[1..],
        ["messages.snapshot reconciling", "reasoning.summary reasoning", "state.snapshot acting", "diagnostic.changed unknown"]
    );
    let kid = json!({"messageId": "m", "role": "assistant", "agentId": "kid", "parts": [{"partId": "text", "kind": "assistant_text", "text": ["x"]}]});
    assert_eq!(drafts[1].payload["messages"], json!([kid]));
    assert_eq!(texts(&drafts)[2], "reasoning.summary t/reasoning hm");
    assert_eq!(
        (payload(&drafts[3]), drafts[3].ids.agent.as_ref().unwrap().as_str()),
        (json!({"activityType": "plan", "content": {"n": 1}}), "kid")
    );
    let narrower = json!([{"encryptedBytes": 8, "messageId": "t"}, {"metadata": {"k": 1}, "messageId": "m"}]);
    assert_eq!((&drafts[4].payload["messages"], drafts[4].audience), (&narrower, Audience::Internal));
}

// ── state and activities ──

#[test]
fn state_is_for_users_unless_it_holds_runtime_internals() {
    let snapshot = |state: Value| event("STATE_SNAPSHOT", json!({"snapshot": state}));
    let delta = || event("STATE_DELTA", json!({"delta": [{"op": "add", "path": "/x", "value": 1}]}));
    let internals = json!({"revision": 1, "extensions": {"__runtime.run_lifecycle": {}}});
    let drafts = adapt([delta(), snapshot(internals), delta(), snapshot(json!({"x": 0})), delta()]);
    let audiences: Vec<_> = drafts.iter().map(|d| d.audience).collect();
    use Audience::{Internal, User};
    assert_eq!(audiences, [User, Internal, Internal, User, User]);
    assert_eq!(drafts[1].surface, Surface::Diagnostics);
    assert_eq!(payload(&drafts[0]), json!({"patch": [{"op": "add", "path": "/x", "value": 1}]}));
    for operation in [
        json!({"op": "add", "path": "/extensions/__runtime.x", "value": 1}),
        json!({"op": "copy", "from": "/extensions/__runtime.x", "path": "/y"}),
        json!({"op": "replace", "path": "", "value": {"extensions": {"__runtime.x": 1}}}),
        json!({"op": "add", "path": "/extensions", "value": {"__runtime.x": 1}}),
    ] {
        let drafts = adapt([event("STATE_DELTA", json!({"delta": operation})), delta()]);
        assert!(drafts.iter().all(|d| d.audience == Internal), "{operation}");
        assert_eq!(drafts[0].payload["patch"], json!([operation]), "a bare operation is wrapped");
    }
}

#[test]
fn activities_keep_their_id_and_type() {
    let snapshot = |members: Value| {
        let mut activity = json!({"messageId": "a", "activityType": "plan", "content": {"n": 1}});
        activity.as_object_mut().unwrap().extend(object(members));
        last([event("ACTIVITY_SNAPSHOT", activity)])
    };
    let draft = snapshot(json!({}));
    assert_eq!(payload(&draft), json!({"activityType": "plan", "content": {"n": 1}}), "the default of replace is true");
    assert_eq!(
        (draft.event_type.clone(), draft.ids.message.as_ref().unwrap().as_str(), draft.audience),
        (EventType::StateSnapshot, "a", Audience::User)
    );
    assert_eq!((draft.phase.clone(), draft.surface.clone()), (Phase::Acting, Surface::InlineProcess));
    assert_eq!(snapshot(json!({"replace": false})).payload["replace"], false);
    assert_eq!(snapshot(json!({"replace": null})).payload.get("replace"), None);
    let operation = json!({"op": "add", "path": "/line", "value": "x"});
    for (patch, expected) in [(operation.clone(), json!([operation])), (json!([]), json!([])), (Value::Null, json!([null]))] {
        let draft = last([event("ACTIVITY_DELTA", json!({"messageId": "a", "activityType": "plan", "patch": patch}))]);
        assert_eq!(
            (draft.event_type.clone(), payload(&draft)),
            (EventType::StateDelta, json!({"activityType": "plan", "patch": expected}))
        );
    }
    let [begin, ..] = call("a");
    let of_call = last([begin, event("ACTIVITY_SNAPSHOT", json!({"messageId": "a", "activityType": "log", "content": {}}))]);
    assert_eq!(of_call.ids.tool_call.unwrap().as_str(), "a", "Awaken puts the call in the message's place");
}

#[test]
fn awaken_s_tool_output_activity_is_tool_output() {
    let output =
        |patch: Value| event("ACTIVITY_DELTA", json!({"messageId": "c", "activityType": "tool-stream-output", "patch": patch}));
    let [begin, ..] = call("c");
    let draft = last([begin, output(json!([{"op": "add", "path": "/delta", "value": "line\n"}]))]);
    assert_eq!(
        (draft.event_type.clone(), payload(&draft), draft.audience),
        (EventType::ToolOutputDelta, json!({"text": "line\n"}), Audience::User)
    );
    assert_eq!(draft.ids.tool_call.unwrap().as_str(), "c");
    let odd = last([output(json!([{"op": "add", "path": "/other", "value": "x"}]))]);
    assert_eq!(odd.event_type, EventType::StateDelta);
}

fn progress(id: &str, content: Value) -> Value {
    event("ACTIVITY_SNAPSHOT", json!({"messageId": id, "activityType": "tool-call-progress", "content": content}))
}

#[test]
fn a_progress_report_belongs_to_its_call() {
    let content = json!({"schema": "tool-call-progress.v1", "call_id": "c", "tool_name": "rm", "status": "running", "progress": 0.5, "run_id": "r"});
    let draft = last([start("r"), progress("c", content.clone())]);
    let expected = json!({"toolName": "rm", "schema": "tool-call-progress.v1", "call_id": "c", "status": "running", "progress": 0.5, "run_id": "r"});
    assert_eq!((draft.event_type.clone(), payload(&draft), draft.refs), (EventType::ToolProgress, expected, None));
    assert_eq!((draft.audience, draft.ids.tool_call.unwrap().as_str()), (Audience::User, "c"));
    let patch = event("ACTIVITY_DELTA", json!({"messageId": "progress:c", "activityType": "tool-call-progress", "patch": []}));
    let patched = last([progress("progress:c", content.clone()), patch]);
    assert_eq!((patched.event_type, patched.ids.tool_call.unwrap().as_str()), (EventType::StateDelta, "c"));
    let mut kept = progress("c", content);
    kept["replace"] = false.into();
    let kept = last([kept]);
    assert_eq!((kept.event_type, &kept.payload["replace"]), (EventType::StateSnapshot, &json!(false)));
}

#[test]
fn a_child_s_progress_is_a_call_below_its_parent() {
    let draft = last([
        start("r"),
        progress("child", json!({"call_id": "child", "parent_call_id": "c", "run_id": "other", "status": "done"})),
    ]);
    assert_eq!((draft.ids.tool_call.as_ref().unwrap().as_str(), draft.ids.agent.clone()), ("child", None));
    assert_eq!(draft.refs, Some(json!({"parentToolCallId": "c", "childRunId": "other"})));
    assert_eq!((draft.surface, &draft.payload["runtimeEntity"]), (Surface::TaskCapsule, &json!("subagent_turn")));
}

#[test]
fn custom_events_are_for_operators() {
    let draft = last([event("CUSTOM", json!({"name": "PredictState", "value": [1]}))]);
    assert_eq!(
        (payload(&draft), draft.audience),
        (json!({"kind": "custom", "name": "PredictState", "value": [1]}), Audience::Dashboard)
    );
    let raw = last([event("RAW", json!({"event": {"x": 1}, "source": "lang"}))]);
    assert_eq!((payload(&raw), raw.audience), (json!({"kind": "raw", "event": {"x": 1}, "source": "lang"}), Audience::Internal));
}

// ── sub-agents ──

fn of(agent: &str, mut fact: Value) -> Value {
    fact["subagentRunId"] = agent.into();
    fact
}

#[test]
fn a_sub_agent_is_spawned_and_completes() {
    let begin = event(
        "SUBAGENT_STARTED",
        json!({"subagentRunId": "kid", "name": "researcher", "description": "digs", "parentToolCallId": "c", "parentSubagentRunId": "mid"}),
    );
    let drafts = adapt([begin, event("SUBAGENT_FINISHED", json!({"subagentRunId": "kid", "result": {"n": 1}}))]);
    assert_eq!(classes(&drafts), ["agent.spawned acting", "agent.completed completed"]);
    assert!(drafts.iter().all(|d| d.ids.agent.as_ref().unwrap().as_str() == "kid"));
    let expected = json!({"runtimeEntity": "subagent_turn", "status": "running", "runtimeStatus": "running", "agentName": "researcher", "description": "digs"});
    assert_eq!(payload(&drafts[0]), expected);
    assert_eq!(drafts[0].refs, Some(json!({"parentAgentId": "mid", "parentToolCallId": "c"})));
    assert_eq!((&drafts[1].payload["status"], &drafts[1].payload["result"]), (&json!("completed"), &json!({"n": 1})));
    let suspended =
        event("SUBAGENT_FINISHED", json!({"subagentRunId": "kid", "outcome": {"type": "suspended", "interruptIds": ["i"]}}));
    let draft = last([suspended]);
    assert_eq!(
        (draft.event_type.clone(), draft.phase.clone(), &draft.payload["interruptIds"]),
        (EventType::AgentChanged, Phase::Waiting, &json!(["i"]))
    );
    let failed = last([event("SUBAGENT_ERROR", json!({"subagentRunId": "kid", "message": "no", "code": "E"}))]);
    assert_eq!((failed.event_type.clone(), failed.phase.clone()), (EventType::AgentCompleted, Phase::Failed));
    assert_eq!(failed.payload["error"], json!({"code": "E", "message": "no"}));
}

#[test]
fn events_after_a_sub_agent_s_start_belong_to_it_without_naming_it() {
    let [begin, args, end] = call("c");
    let drafts = adapt([
        of("kid", message("START", "m")),
        content("m", "a"),
        message("START", "own"),
        content("own", "b"),
        message("END", "m"),
        of("kid", begin),
        args,
        end,
        result("c"),
        of("kid", event("STEP_STARTED", json!({"stepName": "s"}))),
        of("kid", chunk(json!({"messageId": "n", "delta": "c"}))),
        finish("r"),
    ]);
    let agents: Vec<_> = drafts.iter().map(|d| d.ids.agent.as_ref().map_or("-", AgentId::as_str)).collect();
    let expected = ["kid", "kid", "-", "-", "kid", "kid", "kid", "kid", "kid", "kid", "kid", "kid", "-", "-"];
    assert_eq!(agents, expected);
    assert!([0, 1, 4, 10, 11].iter().all(|at| drafts[*at].surface == Surface::TeammateTranscript));
    assert_eq!(drafts[2].surface, Surface::Conversation);
}

#[test]
fn the_same_message_id_of_two_agents_is_two_messages() {
    let drafts = adapt([
        message("START", "m"),
        of("kid", message("START", "m")),
        of("kid", content("m", "a")),
        of("kid", message("END", "m")),
        content("m", "b"),
    ]);
    let agents: Vec<_> = drafts.iter().map(|d| d.ids.agent.as_ref().map_or("-", AgentId::as_str)).collect();
    assert_eq!(agents, ["-", "kid", "kid", "kid", "-"]);
    assert!(drafts.iter().all(|d| d.ids.part.as_ref().unwrap().as_str() == "text"));
}

#[test]
fn a_sub_agent_s_state_is_not_the_run_s() {
    let internals = event("STATE_SNAPSHOT", json!({"snapshot": {"extensions": {"__runtime.x": 1}}}));
    let delta = || event("STATE_DELTA", json!({"delta": []}));
    let drafts = adapt([of("kid", internals), delta(), of("kid", delta())]);
    let audiences: Vec<_> = drafts.iter().map(|d| d.audience).collect();
    assert_eq!(audiences, [Audience::Internal, Audience::User, Audience::Internal]);
    assert_eq!(
        (&drafts[2].payload["activityType"], drafts[2].ids.message.as_ref().unwrap().as_str()),
        (&json!("subagent-state"), "kid")
    );
    assert_eq!(drafts[1].payload.get("activityType"), None);
}

#[test]
fn a_failed_run_ends_its_sub_agents_and_a_pause_does_not() {
    let begin = |id: &str| event("SUBAGENT_STARTED", json!({"subagentRunId": id, "name": id}));
    let drafts = adapt([
        start("r"),
        begin("a"),
        begin("b"),
        event("SUBAGENT_FINISHED", json!({"subagentRunId": "a"})),
        event("RUN_ERROR", json!({"message": "x"})),
    ]);
    assert_eq!(classes(&drafts)[4..], ["agent.completed interrupted", "run.failed failed"]);
    assert_eq!(drafts[4].ids.agent.as_ref().unwrap().as_str(), "b");
    let drafts = adapt([begin("a"), finish_as("r", json!({"type": "cancelled"}))]);
    assert_eq!(classes(&drafts)[1..], ["agent.completed cancelled", "run.finished cancelled"]);
    assert_eq!(classes(&adapt([begin("a"), finish_as("r", json!("interrupt"))]))[1..], ["run.status waiting"]);
}

// ── memory ──

#[test]
fn memory_is_bounded_with_many_open_items() {
    let mut adapter = AgUi::default();
    let mut out = Vec::new();
    for n in 0..400 {
        let id = format!("{n}-{}", "x".repeat(200));
        let [begin, args, end] = call(&id);
        let mut begin = begin;
        begin["toolCallName"] = "n".repeat(9999).into();
        for fact in [
            event("TEXT_MESSAGE_START", json!({"messageId": id, "role": "r".repeat(9999)})),
            begin,
            args,
            end,
            progress(&id, json!({"call_id": format!("of-{n}")})),
            event("SUBAGENT_STARTED", json!({"subagentRunId": id, "name": "x"})),
            of(&id, event("STATE_SNAPSHOT", json!({"snapshot": {"extensions": {"__runtime.x": 1}}}))),
            asks("r", json!([{"id": id, "reason": "x".repeat(9999)}])),
            start(&id),
            start(&format!("within-{id}")),
        ] {
            adapter.adapt(object(fact), &given(), &mut out).unwrap();
        }
    }
    assert!(adapter.streams.len() <= streams::OPEN_MAX);
    assert_eq!(adapter.ended_streams.len(), streams::ENDED_MAX);
    assert_eq!((adapter.calls.open.len(), adapter.calls.ended.len()), (CALLS_OPEN_MAX, CALLS_ENDED_MAX));
    assert_eq!((adapter.pending.len(), adapter.interleaved.len()), (PENDING_MAX, run::INTERLEAVED_MAX));
    assert_eq!((adapter.agents.len(), adapter.reports.len()), (agents::OPEN_MAX, state::REPORTS_MAX));
    assert_eq!(adapter.internal_states.len(), state::INTERNAL_MAX);
    assert!(adapter.calls.has_forgotten);
    assert!(adapter.save().len() < 256 * 1024, "{}", adapter.save().len());
    let draft = adapt_with(&mut adapter, event("STATE_SNAPSHOT", json!({"snapshot": {}})));
    assert_eq!(draft.audience, Audience::Internal, "beyond the limit every state is internal");
}

#[test]
fn beyond_the_limit_the_oldest_open_message_ends() {
    let facts = (0..=streams::OPEN_MAX).map(|n| message("START", &format!("m{n}")));
    let drafts = adapt(facts);
    let expected = ["text.final m0/text -".to_owned(), format!("text.delta m{}/text ", streams::OPEN_MAX)];
    assert_eq!(texts(&drafts)[streams::OPEN_MAX..], expected);
}

fn adapt_with(adapter: &mut AgUi, fact: Value) -> Draft {
    let mut out = Vec::new();
    adapter.adapt(object(fact), &given(), &mut out).unwrap();
    out.pop().unwrap()
}

#[test]
fn unreadable_memory_is_an_error() {
    assert!((SOURCE.restore)(b"{\"streams").is_err());
}
