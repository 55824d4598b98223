//! Tests of every AG-UI event in each dialect.
//! The tests save and restore the adapter after each event.

mod calls;
mod state;
mod text;

use super::SOURCE;
use super::event::{Kind, TYPE};
use super::map::{AGENTS_MAX, ENDED_STREAMS_MAX, INTERLEAVED_MAX, INTERNAL_MAX, REPORTS_MAX, STREAMS_MAX};
use crate::bounded::{CALLS_OPEN_MAX, PENDING_MAX};
use crate::ledger::Ledger;
use crate::members::known;
use crate::samples::{
    self, adapt_for, agent_of, call_of, class, classes, given, lengths, message_of, object, of_class, part_of, payload,
};
use crate::{ActionAnswer, DryRun, FactError};
use proscenium_model::{Audience, Draft, EventType, Owner, Phase, SessionId, Surface};
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

fn progress(id: &str, content: Value) -> Value {
    event("ACTIVITY_SNAPSHOT", json!({"messageId": id, "activityType": "tool-call-progress", "content": content}))
}

fn of(agent: &str, mut fact: Value) -> Value {
    fact["subagentRunId"] = agent.into();
    fact
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

/// Returns `type message/part text` of each draft, `-` for a missing item.
fn texts(drafts: &[Draft]) -> Vec<String> {
    let text = |d: &Draft| format!("{} {}/{} {}", d.event_type, message_of(d), part_of(d), d.text("text").unwrap_or("-"));
    drafts.iter().map(text).collect()
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
    let out = adapt_for(&SOURCE, &given, [begin]);
    assert_eq!((out[0].ids.session.as_ref().unwrap().as_str(), out[0].ids.thread.as_ref().unwrap().as_str()), ("mine", "t"));
}

#[test]
fn several_runs_of_one_stream_are_attempts_of_the_request_s_run() {
    let drafts = adapt([start("a"), finish("a"), start("b"), event("RUN_ERROR", json!({"message": "x"})), start("b")]);
    let expected =
        ["run.started accepted", "run.finished completed", "run.started accepted", "run.failed failed", "run.started accepted"];
    assert_eq!(classes(&drafts), expected);
    let attempts: Vec<_> = drafts.iter().filter_map(|d| d.payload.to_value().get("attempt")?.as_u64()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(drafts[2].refs, Some(json!({"runId": "b"})));
}

#[test]
fn an_end_under_another_id_than_the_start_is_the_end() {
    let draft = last([start("a"), finish("of-another-name")]);
    assert_eq!(class(&draft), "run.finished completed");
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
    assert_eq!(last([event("RUN_ERROR", json!({}))]).payload.to_value()["error"]["message"], "the run failed without saying why");
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
        (&drafts[1].payload.to_value()["usage"], &drafts[1].payload.to_value()["models"], drafts[1].audience),
        (&sum, &usage, Audience::Dashboard)
    );
    let failed = adapt([event("RUN_ERROR", json!({"message": "x", "usage": {"inputTokens": 1}}))]);
    assert_eq!(
        (classes(&failed)[0].as_str(), &failed[0].payload.to_value()["usage"]),
        ("metric.changed unknown", &json!({"inputTokens": 1}))
    );
}

#[test]
fn without_an_outcome_awaken_s_result_determines_the_end() {
    let end = |status: &str, reason: &str| {
        let result = json!({"response": "", "status": status, "status_reason": reason});
        let draft = last([start("r"), event("RUN_FINISHED", json!({"runId": "r", "result": result}))]);
        (class(&draft), draft)
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
    assert_eq!(blocked.payload.to_value()["error"], json!({"code": "blocked", "message": "forbidden: by rule"}));
    assert_eq!(blocked.owner, Owner::Policy);
    assert_eq!(end("done", "stopped:max_rounds").1.payload.to_value()["code"], "max_rounds");
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
    assert_eq!(call_of(of_result), "c");
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
        (event("TEXT_MESSAGE_START", json!({})), "messageId as an id"),
        (event("TOOL_CALL_START", json!({"toolCallId": 7})), "toolCallId as an id"),
        (event("TOOL_CALL_CHUNK", json!({"delta": "x"})), "toolCallId as an id"),
        (event("MESSAGES_SNAPSHOT", json!({"messages": {}})), "messages as a list"),
        (event("ACTIVITY_DELTA", json!({"messageId": "m", "activityType": "", "patch": []})), "activityType as a name"),
        (event("STATE_SNAPSHOT", json!({})), "snapshot as a value"),
        (event("SUBAGENT_ERROR", json!({"message": "x"})), "subagentRunId as an id"),
    ] {
        let draft = last([broken.clone()]);
        assert_eq!(
            (&draft.payload.to_value()["kind"], draft.audience),
            (&json!("malformed_event"), Audience::Internal),
            "{broken}"
        );
        assert_eq!(draft.payload.to_value()["expected"], expected, "{broken}");
    }
    let refused = DryRun::new(&SOURCE).adapt(object(json!({"event_type": "x"})), &given());
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
        let carried = drafts.iter().any(|d| d.extra.contains_key("ofTomorrow") || d.payload.to_value().get("event").is_some());
        assert!(carried, "{event_type} loses a member: {drafts:?}");
        assert!(drafts.iter().all(|d| d.payload.to_value().get("kind") != Some(&json!("malformed_event"))), "{event_type}");
    }
}

// ── memory ──

#[test]
fn memory_is_bounded_with_many_open_items() {
    let mut run = DryRun::new(&SOURCE);
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
            run.adapt(object(fact), &given()).unwrap();
        }
    }
    let lists = ["ended_streams", "calls", "pending", "interleaved", "agents", "reports", "internal_states"];
    let limits = [ENDED_STREAMS_MAX, CALLS_OPEN_MAX, PENDING_MAX, INTERLEAVED_MAX, AGENTS_MAX, REPORTS_MAX, INTERNAL_MAX];
    assert_eq!(lengths(&run, lists), limits);
    assert!(lengths(&run, ["streams"])[0] <= STREAMS_MAX && run.save().len() < 256 * 1024);
    let drafts = run.adapt(object(event("STATE_SNAPSHOT", json!({"snapshot": {}}))), &given()).unwrap();
    assert_eq!(drafts.last().unwrap().audience, Audience::Internal, "beyond the limit every state is internal");
}

#[test]
fn beyond_the_limit_the_oldest_open_message_ends() {
    let facts = (0..=STREAMS_MAX).map(|n| message("START", &format!("m{n}")));
    let drafts = adapt(facts);
    let expected = ["text.final m0/text -".to_owned(), format!("text.delta m{STREAMS_MAX}/text ")];
    assert_eq!(texts(&drafts)[STREAMS_MAX..], expected);
}
