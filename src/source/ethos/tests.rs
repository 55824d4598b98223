//! Tests of the Ethos adapter, event by event.
//! `tests/it/ethos.rs` replays the recordings.

use super::*;
use crate::model::{Owner, Persistence, Phase, SessionId, Surface};
use crate::source::Adapter;
use crate::source::bounded::{CALLS_ENDED_MAX, CALLS_OPEN_MAX};
use crate::source::members::NAME_CHARS_MAX;
use crate::source::samples::{given, object};
use proptest::prelude::*;
use serde_json::json;

pub(super) fn event(event_type: &str, mut members: Value) -> Value {
    members[TYPE] = event_type.into();
    members
}

pub(super) fn start() -> Value {
    event("run_start", json!({"provider": "p", "model": "m", "source": "global"}))
}

fn start_of(trace: &str) -> Value {
    event("run_start", json!({"provider": "p", "model": "m", "source": "global", "traceId": trace}))
}

pub(super) fn text(text: &str) -> Value {
    event("text_delta", json!({"text": text}))
}

fn thought(text: &str) -> Value {
    event("thinking_delta", json!({"thinking": text}))
}

pub(super) fn done(text: &str) -> Value {
    event("done", json!({"text": text, "turnCount": 1}))
}

fn done_of(trace: &str, text: &str) -> Value {
    event("done", json!({"text": text, "turnCount": 1, "traceId": trace}))
}

fn error(code: &str) -> Value {
    event("error", json!({"error": "it says why", "code": code}))
}

pub(super) fn call(id: &str, name: &str) -> Value {
    event("tool_start", json!({"toolCallId": id, "toolName": name, "args": {"x": 1}}))
}

pub(super) fn ended(id: &str, name: &str, result: &str) -> Value {
    event("tool_end", json!({"toolCallId": id, "toolName": name, "ok": true, "durationMs": 3, "result": result}))
}

pub(super) fn failed(id: &str, name: &str) -> Value {
    event("tool_end", json!({"toolCallId": id, "toolName": name, "ok": false, "durationMs": 3, "result": "no", "error": "no"}))
}

pub(super) fn progress(name: &str, members: Value) -> Value {
    let mut fact = event("tool_progress", json!({"toolName": name, "message": "…"}));
    fact.as_object_mut().unwrap().extend(object(members));
    fact
}

/// Adds this audience to the event.
pub(super) fn seen_by(audience: impl Into<Value>, mut fact: Value) -> Value {
    fact["audience"] = audience.into();
    fact
}

fn usage(input: u64, output: u64, cost: f64) -> Value {
    event("usage", json!({"inputTokens": input, "outputTokens": output, "estimatedCostUsd": cost}))
}

/// Adapts the facts one by one; saves and restores the adapter after each.
fn adapt_for(given: &Ids, facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    let mut adapter = (SOURCE.fresh)();
    let mut out = Vec::new();
    for fact in facts {
        adapter.adapt(object(fact), given, &mut out).unwrap();
        adapter = (SOURCE.restore)(&adapter.save()).unwrap();
    }
    out
}

pub(super) fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    adapt_for(&given(), facts)
}

pub(super) fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

/// Returns `event type phase` of each draft.
fn classes(drafts: &[Draft]) -> Vec<String> {
    drafts.iter().map(|d| format!("{} {}", d.event_type, d.phase)).collect()
}

pub(super) fn payload(draft: &Draft) -> Value {
    Value::Object(draft.payload.clone())
}

/// Returns `type message/part text` of each text or reasoning draft, without the source's prefix.
fn said(drafts: &[Draft]) -> Vec<String> {
    let short = |id: Option<&str>| id.unwrap_or("-").replace("ethos-", "");
    let one = |d: &Draft| {
        let (message, part) = (d.ids.message.as_ref().map(MessageId::as_str), d.ids.part.as_ref().map(PartId::as_str));
        format!("{} {}/{} {}", d.event_type, short(message), short(part), d.text("text").unwrap_or("-"))
    };
    drafts
        .iter()
        .filter(|d| d.event_type.as_str().starts_with("text.") || d.event_type.as_str().starts_with("reasoning."))
        .map(one)
        .collect()
}

// ── the lifecycle of a turn ──

#[test]
fn a_start_says_which_model_runs_and_by_which_trace() {
    let draft = last([start_of("trc")]);
    assert_eq!(classes(std::slice::from_ref(&draft)), ["run.started accepted"]);
    assert_eq!(payload(&draft), json!({"attempt": 1, "provider": "p", "model": "m", "source": "global"}));
    assert_eq!((&draft.extra["traceId"], draft.ids.turn.unwrap().as_str()), (&json!("trc"), "trc"));
    assert_eq!((draft.scope, draft.persistence, draft.ids.run.unwrap().as_str()), (Scope::Turn, Persistence::Snapshot, "run"));
}

#[test]
fn what_the_query_gave_wins_over_what_ethos_says() {
    let mut given = given();
    given.turn = TurnId::new("mine").ok();
    given.session = SessionId::new("mine").ok();
    let request =
        json!({"approvalId": "ap", "sessionId": "theirs", "toolCallId": "c", "toolName": "rm", "args": {}, "reason": null});
    for draft in adapt_for(&given, [start_of("trc"), event("tool.approval_required", json!({"request": request.clone()}))]) {
        assert_eq!((draft.ids.turn.unwrap().as_str(), draft.ids.session.unwrap().as_str()), ("mine", "mine"));
    }
    let draft = last([event("tool.approval_required", json!({"request": request}))]);
    assert_eq!(draft.ids.session.unwrap().as_str(), "theirs");
}

#[test]
fn a_turn_completes_with_the_whole_of_its_text() {
    let drafts = adapt([start(), text("a"), text("b"), done("ab")]);
    assert_eq!(said(&drafts), ["text.delta message-1/part-1 a", "text.delta message-1/part-1 b", "text.final message-1/- ab"]);
    let end = drafts.last().unwrap();
    assert_eq!(classes(std::slice::from_ref(end)), ["run.finished completed"]);
    assert_eq!(payload(end), json!({"status": "completed", "turnCount": 1}));
}

#[test]
fn the_first_end_holds_despite_later_ends() {
    for (first, expected) in [(done(""), "run.finished completed"), (error("llm_error"), "run.failed failed")] {
        for second in [done("more"), error("llm_error"), error("aborted")] {
            let drafts = adapt([start(), first.clone(), second.clone()]);
            assert_eq!(classes(&drafts)[1..], [expected, "diagnostic.changed unknown"], "{first} {second}");
            assert_eq!(drafts[2].payload["kind"], "late_end");
            assert_eq!(drafts[2].payload["eventType"], second["type"]);
        }
    }
}

#[test]
fn events_after_done_are_projected_and_end_nothing() {
    let plan = json!([{"toolCallId": "c", "toolName": "rm", "args": {"token": "t"}}]);
    let drafts = adapt([
        start(),
        text("a"),
        done("a"),
        progress("_compaction", json!({"message": "Compacted", "audience": "user"})),
        event("dry_run_summary", json!({"plan": plan, "capped": 2})),
    ]);
    assert_eq!(classes(&drafts)[4..], ["context.compaction.completed reconciling", "plan.final planning"]);
    assert_eq!(payload(&drafts[4]), json!({"compactionId": "ethos-compaction-1", "message": "Compacted"}));
    assert_eq!(payload(&drafts[5]), json!({"plan": plan, "capped": 2}));
    let (message, part) = (drafts[5].ids.message.as_ref().unwrap(), drafts[5].ids.part.as_ref().unwrap());
    assert_eq!((message.as_str(), part.as_str(), drafts[5].owner.clone()), ("ethos-message-1", "ethos-plan-1", Owner::Runtime));
}

#[test]
fn a_halted_turn_is_done_and_not_completed() {
    let halt = event("halt", json!({"kind": "budget", "rule": "cost-cap", "toolName": "x", "count": 3, "message": "Stopped"}));
    let drafts = adapt([start(), halt, done("")]);
    assert_eq!(classes(&drafts)[1..], ["run.status interrupted", "run.finished interrupted"]);
    let expected = json!({"kind": "budget", "rule": "cost-cap", "toolName": "x", "count": 3, "message": "Stopped"});
    assert_eq!((payload(&drafts[1]), drafts[1].owner.clone()), (expected, Owner::Runtime));
    assert_eq!(payload(&drafts[2]), json!({"status": "interrupted", "haltRule": "cost-cap", "turnCount": 1}));
    let watcher = last([event("halt", json!({"kind": "watcher", "rule": "loop", "message": "m"}))]);
    assert_eq!((watcher.owner, watcher.persistence), (Owner::Policy, Persistence::Archive));
    let next = adapt([start(), event("halt", json!({"kind": "budget"})), done(""), start(), done("")]);
    assert_eq!(classes(&next).last().unwrap(), "run.finished completed", "a halt does not affect the next turn");
}

#[test]
fn an_abort_is_a_cancellation_and_other_errors_are_failures() {
    let aborted = last([start(), error("aborted")]);
    assert_eq!(classes(std::slice::from_ref(&aborted)), ["run.finished cancelled"]);
    assert_eq!(payload(&aborted), json!({"status": "cancelled", "code": "aborted", "message": "it says why"}));
    for code in ["llm_error", "streaming_timeout", "context_overflow", "watcher_loop", "TIMEOUT", "UNKNOWN", "of_tomorrow"] {
        let failed = last([start(), error(code)]);
        assert_eq!(classes(std::slice::from_ref(&failed)), ["run.failed failed"]);
        assert_eq!(payload(&failed), json!({"status": "failed", "error": {"code": code, "message": "it says why"}}));
    }
    let thrown = |code: &str| event("error", json!({"code": code, "error": "This operation was aborted"}));
    for (fact, may_be) in [
        (thrown("llm_error"), true),
        (thrown("streaming_timeout"), false),
        (error("llm_error"), false),
        (event("done", json!({"text": "", "turnCount": 1})), true),
    ] {
        assert_eq!(last([start(), fact.clone()]).may_be_abort, may_be, "{fact:?}");
    }
    let halted = [start(), event("halt", json!({"kind": "budget", "rule": "r"})), event("done", json!({"text": ""}))];
    assert!(!last(halted).may_be_abort, "the halt already explains the interruption");
    let silent = last([event("error", json!({"code": 7}))]);
    assert_eq!(silent.payload["error"], json!({"message": "the turn failed without saying why"}));
    assert_eq!(silent.extra["code"], 7);
}

#[test]
fn a_refused_turn_fails_without_a_start_and_its_done_changes_nothing() {
    for code in ["personality_locked", "BUDGET_EXCEEDED", "FS_REACH_INVALID"] {
        let drafts = adapt([error(code), done("")]);
        assert_eq!(classes(&drafts), ["run.failed failed", "diagnostic.changed unknown"], "{code}");
        assert_eq!(drafts[0].payload["refused"], true);
    }
}

#[test]
fn a_turn_refused_after_an_ended_one_is_a_separate_failed_attempt() {
    let drafts = adapt([start(), text("a"), done("a"), error("personality_locked"), done("")]);
    let expected = ["run.finished completed", "run.started accepted", "run.failed failed", "diagnostic.changed unknown"];
    assert_eq!(classes(&drafts)[3..], expected);
    assert_eq!(payload(&drafts[4]), json!({"refused": true, "attempt": 2}));
    assert_eq!(drafts[5].payload["refused"], true);
}

#[test]
fn input_dropped_during_a_turn_does_not_end_the_turn() {
    let drafts = adapt([start(), text("a"), error("BUSY"), text("b"), done("ab")]);
    let status = &drafts[2];
    assert_eq!(payload(status), json!({"refused": true, "message": "it says why", "code": "BUSY"}));
    assert_eq!(
        classes(&drafts)[2..],
        ["run.status acting", "text.delta producing", "text.final reconciling", "run.finished completed"]
    );
    assert_eq!(last([error("BUSY")]).payload["refused"], true, "without an open turn, the error refuses a new one");
}

fn credential() -> Value {
    event(
        "credential_required",
        json!({"pluginId": "linear", "credentialKey": "LINEAR_TOKEN", "kind": "oauth", "label": "Connect Linear",
            "description": "to read issues", "authUrl": "https://linear.example/oauth?state=abc", "sessionKey": "s3",
            "pendingUserMessage": "list my issues"}),
    )
}

#[test]
fn a_turn_that_requests_a_credential_waits_and_has_not_ended() {
    let drafts = adapt([start(), credential(), event("done", json!({"text": "", "turnCount": 0}))]);
    assert_eq!(classes(&drafts)[1..], ["action.required waiting", "run.status waiting"]);
    let asked = &drafts[1];
    assert_eq!(asked.ids.action.as_ref().unwrap().as_str(), "cred:linear:LINEAR_TOKEN");
    let expected = json!({"kind": "credential_request", "message": "Connect Linear", "description": "to read issues",
        "credentialKind": "oauth", "pluginId": "linear", "credentialKey": "LINEAR_TOKEN", "hasWithheldAddress": true});
    assert_eq!(
        (payload(asked), asked.owner.clone(), asked.refs.clone()),
        (expected, Owner::Policy, Some(json!({"sessionKey": "s3"})))
    );
    assert_eq!((payload(&drafts[2]), drafts[2].scope.clone()), (json!({"status": "waiting", "turnCount": 0}), Scope::Turn));
}

#[test]
fn a_credential_request_keeps_neither_the_url_nor_the_user_s_message() {
    let mut broken = credential();
    broken["pluginId"] = Value::Null;
    let mut renamed = credential();
    renamed[TYPE] = "credential.required".into();
    for fact in [credential(), broken, renamed] {
        let kept = format!("{:?}", adapt([start(), fact]));
        assert!(!kept.contains("state=abc") && !kept.contains("list my issues"), "{kept}");
    }
}

#[test]
fn a_parked_turn_s_action_expires_at_the_next_start_and_a_second_done_ends_nothing() {
    let drafts = adapt([start(), credential(), done(""), done(""), start(), text("a"), done("a")]);
    let expected = [
        "run.status waiting",
        "diagnostic.changed unknown",
        "action.resolved acting",
        "run.started accepted",
        "text.delta producing",
        "text.final reconciling",
        "run.finished completed",
    ];
    assert_eq!(classes(&drafts)[2..], expected);
    assert_eq!(drafts[4].payload["outcome"], "expired");
    assert_eq!(drafts[4].ids.action, drafts[1].ids.action);
    assert_eq!(drafts[5].payload["attempt"], 2);
}

#[test]
fn a_parked_turn_that_resumes_can_end() {
    let drafts = adapt([start(), credential(), done(""), text("a"), done("a")]);
    assert_eq!(classes(&drafts).last().unwrap(), "run.finished completed");
    let failed = adapt([start(), credential(), done(""), error("aborted")]);
    assert_eq!(classes(&failed).last().unwrap(), "run.finished cancelled");
}

#[test]
fn parking_a_turn_ends_its_open_calls() {
    let drafts = adapt([start(), call("c", "rm"), credential(), done("")]);
    assert_eq!(classes(&drafts)[3..], ["tool.failed interrupted", "run.status waiting"]);
}

// ── two turns in one stream ──

#[test]
fn two_turns_in_one_stream_are_flagged_and_their_texts_do_not_merge() {
    let drafts = adapt([
        start_of("A"),
        text("answer "),
        start_of("B"),
        text("an"),
        text("for A"),
        thought("hm"),
        usage(1, 1, 0.1),
        done_of("A", "answer for A"),
        text("swer for B"),
        done_of("B", "answer for B"),
    ]);
    let set_aside: Vec<_> = drafts.iter().filter(|d| d.payload.get("kind") == Some(&json!("interleaved_run"))).collect();
    let types: Vec<_> = set_aside.iter().map(|d| d.text("eventType").unwrap()).collect();
    assert_eq!(types, ["run_start", "text_delta", "text_delta", "thinking_delta", "text_delta", "done"]);
    assert!(set_aside.iter().all(|d| d.audience == Audience::Internal));
    assert_eq!((&set_aside[0].payload["openTrace"], &set_aside[0].payload["event"]["traceId"]), (&json!("A"), &json!("B")));
    assert_eq!(
        said(&drafts),
        ["text.delta message-1/part-1 answer ", "text.final message-1/- answer for A", "text.final message-2/- answer for B"]
    );
    let ends: Vec<_> = drafts.iter().filter(|d| d.event_type == EventType::RunFinished).collect();
    assert_eq!((ends.len(), &ends[0].payload["interleaved"]), (1, &json!(true)));
    let flagged = drafts.iter().filter(|d| d.event_type == EventType::MetricChanged).all(|d| d.payload["interleaved"] == true);
    assert!(flagged, "the turn of a cost event is ambiguous too");
}

#[test]
fn after_the_other_turn_ends_text_streams_again_and_the_end_fills_the_gap() {
    let drafts = adapt([
        start_of("A"),
        text("one "),
        start_of("B"),
        text("two "),
        done_of("B", "b"),
        text("three"),
        done_of("A", "one two three"),
    ]);
    assert_eq!(
        said(&drafts),
        [
            "text.delta message-1/part-1 one ",
            "text.final message-2/- b",
            "text.delta message-1/part-2 three",
            "text.final message-1/- one two three"
        ]
    );
    assert_eq!(drafts.last().unwrap().payload.get("interleaved"), None);
}

#[test]
fn turns_without_a_trace_are_distinguished_by_their_text_or_by_the_order_of_ends() {
    let ends = |facts: Vec<Value>| {
        let drafts = adapt(facts);
        (said(&drafts), drafts.iter().position(|d| d.event_type == EventType::RunFinished).unwrap() == drafts.len() - 1)
    };
    let (said_, _) = ends(vec![start(), text("mine "), start(), done("mine alone"), done("theirs")]);
    assert_eq!(said_[1..], ["text.final message-1/- mine alone", "text.final message-2/- theirs"]);
    let (said_, is_last) = ends(vec![start(), text("mine "), start(), done("theirs"), done("mine alone")]);
    assert_eq!(said_[1..], ["text.final message-2/- theirs", "text.final message-1/- mine alone"]);
    assert!(is_last);
    let (said_, is_last) = ends(vec![start(), start(), done("x"), done("y")]);
    assert_eq!(said_, ["text.final message-1/- x", "text.final message-2/- y"]);
    assert!(is_last);
    let (said_, _) = ends(vec![start(), start_of("B"), done_of("B", "theirs"), done("mine")]);
    assert_eq!(said_, ["text.final message-1/- theirs", "text.final message-2/- mine"]);
    let (said_, _) = ends(vec![start_of("A"), start(), done("theirs"), done_of("A", "mine")]);
    assert_eq!(said_, ["text.final message-1/- theirs", "text.final message-2/- mine"]);
}

#[test]
fn a_repeated_start_is_no_second_turn() {
    let drafts = adapt([start_of("A"), start_of("A"), text("a"), done_of("A", "a")]);
    assert_eq!(drafts[1].payload["kind"], "repeated_start");
    assert_eq!(said(&drafts), ["text.delta message-1/part-1 a", "text.final message-1/- a"]);
}

#[test]
fn an_error_among_several_turns_fails_the_run_rather_than_nothing() {
    let drafts = adapt([start_of("A"), start_of("B"), error("llm_error"), done_of("A", "a"), done_of("B", "b")]);
    assert_eq!(drafts[2].event_type, EventType::RunFailed);
    assert_eq!(drafts[2].payload["interleaved"], true);
    assert!(!drafts.iter().any(|d| d.event_type == EventType::RunFinished));
}

#[test]
fn the_end_of_an_unknown_turn_becomes_a_diagnostic() {
    let draft = last([start_of("A"), start_of("B"), done_of("C", "c")]);
    assert_eq!((&draft.payload["kind"], &draft.payload["event"]["text"]), (&json!("interleaved_run"), &json!("c")));
}

// ── text ──

#[test]
fn text_after_a_batch_of_calls_is_a_new_part_of_the_same_message() {
    let drafts = adapt([
        start(),
        text("a"),
        call("c", "x"),
        call("d", "y"),
        ended("c", "x", "1"),
        ended("d", "y", "2"),
        text("b"),
        text("c"),
        done("abc"),
    ]);
    assert_eq!(
        said(&drafts),
        [
            "text.delta message-1/part-1 a",
            "text.delta message-1/part-2 b",
            "text.delta message-1/part-2 c",
            "text.final message-1/- abc"
        ]
    );
}

#[test]
fn a_refused_call_starts_a_new_part_and_a_hidden_call_does_not() {
    let parts = |between: Vec<Value>| {
        let facts = [start(), text("a")].into_iter().chain(between).chain([text("b"), done("ab")]);
        said(&adapt(facts))[1].clone()
    };
    assert_eq!(parts(vec![failed("c", "x")]), "text.delta message-1/part-2 b");
    assert_eq!(parts(vec![seen_by("internal", call("c", "x")), ended("c", "x", "")]), "text.delta message-1/part-1 b");
    assert_eq!(
        parts(vec![seen_by("internal", call("c#1", "x")), seen_by("internal", failed("c#1", "x"))]),
        "text.delta message-1/part-1 b"
    );
}

#[test]
fn each_turn_has_a_message_of_its_own() {
    let drafts = adapt([start(), text("a"), done("a"), start(), text("b"), done("b")]);
    assert_eq!(said(&drafts)[2..], ["text.delta message-2/part-2 b", "text.final message-2/- b"]);
}

#[test]
fn text_returned_by_a_tool_is_a_part_beside_the_streamed_text() {
    let drafts =
        adapt([start(), text("One moment. "), usage(1, 1, 0.1), call("c", "card"), ended("c", "card", "Card"), done("Card")]);
    assert_eq!(
        said(&drafts),
        ["text.delta message-1/part-1 One moment. ", "text.final message-1/part-2 Card", "text.final message-1/- -"]
    );
    // The web server may flush text after a call that the text preceded.
    let drafts =
        adapt([start(), usage(1, 1, 0.1), call("c", "card"), ended("c", "card", "Card"), text("One moment. "), done("Card")]);
    assert_eq!(said(&drafts)[1..], ["text.final message-1/part-2 Card", "text.final message-1/- -"]);
    // Without a result event, the position of the text identifies it.
    let silent = event("tool_end", json!({"toolCallId": "c", "toolName": "card", "ok": true, "durationMs": 1}));
    let drafts = adapt([start(), text("One moment. "), call("c", "card"), silent, done("Card")]);
    assert_eq!(said(&drafts)[1..], ["text.final message-1/part-2 Card", "text.final message-1/- -"]);
    // Without streamed text, the tool's text is the whole message.
    let drafts = adapt([start(), call("c", "card"), ended("c", "card", "Card"), done("Card")]);
    assert_eq!(said(&drafts), ["text.final message-1/- Card"]);
}

#[test]
fn a_tool_result_before_further_model_text_is_not_the_final_text() {
    let batch = [call("c", "x"), ended("c", "x", "42")];
    let drafts = adapt([start()].into_iter().chain(batch).chain([text("It is 4"), usage(1, 1, 0.1), done("42")]));
    assert_eq!(said(&drafts)[1..], ["text.final message-1/- 42"]);
}

#[test]
fn text_with_a_gap_is_not_attributed_to_a_tool() {
    let other = [start_of("B"), text("two "), done_of("B", "b")];
    let rest = [text("three "), call("c", "x"), ended("c", "x", "1"), done_of("A", "one two three ")];
    let drafts = adapt([start_of("A"), text("one ")].into_iter().chain(other).chain(rest));
    assert_eq!(said(&drafts).last().unwrap(), "text.final message-1/- one two three ");
}

#[test]
fn streamed_text_that_equals_a_tool_result_appears_once() {
    let drafts = adapt([start(), call("c", "x"), ended("c", "x", "42"), text("42"), done("42")]);
    assert_eq!(said(&drafts), ["text.delta message-1/part-1 42", "text.final message-1/- 42"]);
}

#[test]
fn an_end_with_more_text_than_streamed_is_the_text() {
    let whole = |facts: Vec<Value>| said(&adapt(facts)).pop().unwrap();
    assert_eq!(whole(vec![start(), text("a"), call("c", "x"), ended("c", "x", "1"), done("ab")]), "text.final message-1/- ab");
    assert_eq!(whole(vec![text("b"), call("c", "x"), ended("c", "x", "1"), done("ab")]), "text.final message-1/- ab");
    assert_eq!(whole(vec![start(), text("a"), text("c"), done("abc")]), "text.final message-1/- abc");
    assert_eq!(whole(vec![start(), done("never streamed")]), "text.final message-1/- never streamed");
    assert_eq!(whole(vec![start(), text("a"), done("")]), "text.final message-1/- -", "the streamed chunks are the text");
}

#[test]
fn a_turn_without_text_has_no_message() {
    assert_eq!(said(&adapt([start(), done("")])), Vec::<String>::new());
}

#[test]
fn a_failed_turn_does_not_seal_its_text() {
    assert_eq!(said(&adapt([start(), text("a"), error("llm_error")])), ["text.delta message-1/part-1 a"]);
}

#[test]
fn reasoning_is_for_operators_and_ends_when_the_model_continues_with_something_else() {
    let drafts =
        adapt([start(), thought("h"), thought("m"), text("a"), thought("then"), call("c", "x"), thought("so"), done("a")]);
    assert_eq!(
        said(&drafts),
        [
            "reasoning.delta message-1/thought-1 h",
            "reasoning.delta message-1/thought-1 m",
            "reasoning.summary message-1/thought-1 -",
            "text.delta message-1/part-1 a",
            "reasoning.delta message-1/thought-2 then",
            "reasoning.summary message-1/thought-2 -",
            "reasoning.delta message-1/thought-3 so",
            "reasoning.summary message-1/thought-3 -",
            "text.final message-1/- a"
        ]
    );
    let thoughts = drafts.iter().filter(|d| d.event_type.as_str().starts_with("reasoning."));
    assert!(thoughts.into_iter().all(|d| d.audience == Audience::Dashboard));
}

proptest! {
    #[test]
    fn a_text_is_recognised_regardless_of_chunk_boundaries(chunks in prop::collection::vec(".{0,6}", 0..12), other in ".{0,6}") {
        let whole: String = chunks.concat();
        let deltas = chunks.iter().map(|chunk| text(chunk));
        let drafts = adapt([start()].into_iter().chain(deltas).chain([call("c", "x"), ended("c", "x", "1"), done(&whole)]));
        let finals: Vec<_> = drafts.iter().filter(|d| d.event_type == EventType::TextFinal).collect();
        prop_assert_eq!(finals.len(), usize::from(!whole.is_empty()));
        prop_assert!(finals.iter().all(|d| d.ids.part.is_none() && d.text("text") == Some(whole.as_str())));
        let (one, both) = (TextDigest::of(whole.as_bytes()), format!("{whole}{other}"));
        prop_assert!(one.is_prefix_of(&both));
        prop_assert_eq!(one == TextDigest::of(both.as_bytes()), other.is_empty());
    }
}

// ── usage, and other edge cases ──

#[test]
fn usage_is_reported_and_a_tool_s_cost_is_no_model_call() {
    let llm = event(
        "usage",
        json!({"inputTokens": 812, "outputTokens": 9, "estimatedCostUsd": 0.0026, "cacheReadTokens": 700, "cacheCreationTokens": 5}),
    );
    let drafts = adapt([llm, call("c", "x"), ended("c", "x", "1"), usage(0, 0, 0.005), usage(0, 0, 0.005)]);
    let used = json!({"inputTokens": 812, "outputTokens": 9, "cacheReadTokens": 700, "cacheCreationTokens": 5, "costUsd": 0.0026, "llmCalls": 1});
    assert_eq!(payload(&drafts[0]), json!({"kind": "llm_call", "usage": used}));
    assert_eq!(
        (drafts[0].scope.clone(), drafts[0].phase.clone(), drafts[0].audience),
        (Scope::Turn, Phase::Producing, Audience::Dashboard)
    );
    let paid = json!({"kind": "tool_cost", "usage": {"inputTokens": 0, "outputTokens": 0, "costUsd": 0.005}});
    assert_eq!((payload(&drafts[3]), drafts[3].ids.tool_call.as_ref().unwrap().as_str()), (paid.clone(), "c"));
    assert_eq!(
        (&drafts[4].payload["kind"], drafts[4].ids.tool_call.clone()),
        (&json!("cost"), None),
        "only a cost event directly after the end bills the call"
    );
    assert_eq!(last([usage(0, 0, 0.0)]).payload["kind"], "llm_call", "an event without tokens and cost is a model call");
    let odd = last([event("usage", json!({"inputTokens": "many", "of_tomorrow": 3}))]);
    assert_eq!((&odd.payload["usage"], &odd.extra["inputTokens"]), (&json!({"llmCalls": 1}), &json!("many")));
}

#[test]
fn the_cost_of_a_hidden_call_is_visible_only_to_readers_of_the_call() {
    let draft = last([seen_by("internal", call("c", "x")), ended("c", "x", "1"), usage(0, 0, 0.005)]);
    assert_eq!((draft.audience, draft.ids.tool_call.unwrap().as_str()), (Audience::Internal, "c"));
}

#[test]
fn context_metadata_is_internal() {
    let draft = last([event("context_meta", json!({"data": {"skillFilesUsed": ["skills/git.md"]}}))]);
    assert_eq!(payload(&draft), json!({"meta": {"skillFilesUsed": ["skills/git.md"]}}));
    assert_eq!(
        (draft.event_type, draft.audience, draft.surface),
        (EventType::ContextChanged, Audience::Internal, Surface::Diagnostics)
    );
}

#[test]
fn a_review_passes_if_all_evaluators_pass_and_has_no_verdict_if_one_abstains() {
    let verdict = |results: Value| {
        let draft = last([event("evaluators_complete", json!({"results": results}))]);
        assert_eq!((draft.event_type.clone(), draft.audience), (EventType::ReviewCompleted, Audience::Dashboard));
        assert_eq!((&draft.payload["reviewId"], &draft.payload["results"]), (&json!("ethos-review-1"), &results));
        draft.payload.get("verdict").cloned()
    };
    assert_eq!(verdict(json!([{"name": "a", "pass": true}, {"name": "b", "pass": true}])), Some(json!("passed")));
    assert_eq!(verdict(json!([{"name": "a", "pass": true}, {"name": "b", "pass": false, "score": 0.4}])), Some(json!("failed")));
    assert_eq!(verdict(json!([{"name": "a"}])), None);
    assert_eq!(verdict(json!([])), None);
}

// ── events of the web server ──

#[test]
fn a_web_server_approval_is_pending_until_its_answer() {
    let request = json!({"approvalId": "ap", "sessionId": "s", "toolCallId": "c", "toolName": "bash", "args": {"cmd": "ls"},
        "reason": "destructive", "ofTomorrow": 1});
    let ask = event("tool.approval_required", json!({"request": request}));
    let resolve =
        |decision: &str| event("approval.resolved", json!({"approvalId": "ap", "decision": decision, "decidedBy": "tab"}));
    let drafts = adapt([start(), ask.clone(), resolve("deny")]);
    let expected = json!({"kind": "tool_approval", "toolName": "bash", "input": {"cmd": "ls"}, "message": "destructive"});
    assert_eq!(
        (classes(&drafts[1..2]), payload(&drafts[1]), drafts[1].owner.clone()),
        (vec!["action.required waiting".into()], expected, Owner::Policy)
    );
    assert_eq!(drafts[1].extra["ofTomorrow"], 1);
    for draft in &drafts[1..] {
        assert_eq!((draft.ids.action.as_ref().unwrap().as_str(), draft.ids.tool_call.as_ref().unwrap().as_str()), ("ap", "c"));
    }
    assert_eq!(payload(&drafts[2]), json!({"outcome": "rejected", "decision": "deny", "decidedBy": "tab"}));
    assert_eq!(last([ask.clone(), resolve("allow")]).payload["outcome"], "approved");
    let tomorrow = last([ask, resolve("of_tomorrow")]);
    assert_eq!((tomorrow.payload.get("outcome"), &tomorrow.payload["decision"]), (None, &json!("of_tomorrow")));
}

#[test]
fn a_question_includes_its_default_and_deadline() {
    let ask = event(
        "clarify.request",
        json!({"requestId": "q", "question": "Which?", "options": ["a", "b"], "default": "a", "jobId": "j", "defaultDeadlineAt": "2026-01-01T00:00:00.000Z"}),
    );
    let draft = last([ask.clone()]);
    let expected = json!({"kind": "clarification", "message": "Which?", "options": ["a", "b"], "default": "a", "expiresAt": "2026-01-01T00:00:00Z"});
    assert_eq!((payload(&draft), draft.owner.clone(), draft.ids.task.clone().unwrap().as_str()), (expected, Owner::Runtime, "j"));
    for (source, outcome) in
        [("user", "answered"), ("timeout-default", "expired"), ("timeout-no-default", "expired"), ("cancel", "cancelled")]
    {
        let answered = last([ask.clone(), event("clarify.resolved", json!({"requestId": "q", "source": source}))]);
        assert_eq!(payload(&answered), json!({"outcome": outcome, "resolvedBy": source}));
        assert_eq!(answered.ids.action, draft.ids.action);
    }
    let endless = last([event("clarify.request", json!({"requestId": "q", "question": "?", "defaultDeadlineAt": null}))]);
    assert_eq!((payload(&endless), endless.extra.len()), (json!({"kind": "clarification", "message": "?"}), 0));
    let odd = last([event("clarify.request", json!({"requestId": "q", "question": "?", "defaultDeadlineAt": "soon"}))]);
    assert_eq!(odd.extra["defaultDeadlineAt"], "soon");
}

#[test]
fn jobs_are_tasks_and_notifications_belong_to_the_session() {
    let job = event(
        "run.update",
        json!({"jobId": "j", "runner": "local", "status": "running", "now": "reads", "elapsedMs": 5, "spendUsd": 0.1, "toolCount": 2}),
    );
    let draft = last([start_of("trc"), job]);
    let expected = json!({"runtimeEntity": "automation_job", "status": "running", "message": "reads", "durationMs": 5, "toolCount": 2,
        "runner": "local", "usage": {"costUsd": 0.1}});
    assert_eq!(
        (payload(&draft), draft.event_type.clone(), draft.ids.task.unwrap().as_str()),
        (expected, EventType::TaskChanged, "j")
    );
    assert_eq!(draft.ids.turn, None, "a job does not belong to the turn");
    let cron = last([event(
        "cron.fired",
        json!({"jobId": "j", "ranAt": "2026-01-01T00:00:00.000Z", "outputPath": null, "sessionKey": "k"}),
    )]);
    assert_eq!(
        payload(&cron),
        json!({"runtimeEntity": "automation_job", "wakeReason": "cron", "ranAt": "2026-01-01T00:00:00.000Z"})
    );
    assert_eq!((cron.timestamp.as_deref(), cron.refs), (Some("2026-01-01T00:00:00Z"), Some(json!({"sessionKey": "k"}))));
    let notice = last([event(
        "notification_received",
        json!({"pluginId": "linear", "sessionKey": "k", "message": "done", "startTurn": false, "payload": {"issue": 7}}),
    )]);
    let expected =
        json!({"notification": {"message": "done", "pluginId": "linear", "startTurn": false, "payload": {"issue": 7}}});
    assert_eq!(
        (payload(&notice), notice.event_type, notice.surface),
        (expected, EventType::SessionUpdated, Surface::WorkerNotifications)
    );
    let push = last([event("notification", json!({"message": "hi", "source": "cron"}))]);
    assert_eq!(payload(&push), json!({"notification": {"message": "hi", "source": "cron"}}));
}

#[test]
fn the_server_s_message_id_does_not_change_the_adapter_s() {
    let persisted = |role: &str| event("message_persisted", json!({"messageId": "msg_1", "role": role}));
    let drafts = adapt([start(), text("a"), done("a"), persisted("assistant"), persisted("user")]);
    assert_eq!(payload(&drafts[4]), json!({"persisted": {"messageId": "msg_1", "role": "assistant"}}));
    assert_eq!((drafts[4].ids.message.as_ref().unwrap().as_str(), drafts[5].ids.message.clone()), ("ethos-message-1", None));
}

#[test]
fn server_events_are_kept_as_diagnostics() {
    for name in pushes::SERVER_EVENTS {
        let draft = last([event(name, json!({"requestId": "r"}))]);
        assert_eq!((draft.event_type, draft.audience), (EventType::DiagnosticChanged, Audience::Internal));
        assert_eq!((&draft.payload["kind"], &draft.payload["event"]), (&json!(name), &json!({"requestId": "r"})));
    }
}

// ── unknown input ──

#[test]
fn unknown_and_malformed_events_are_kept_internal_and_never_an_error() {
    let unknown = last([event("of_tomorrow", json!({"foo": 1}))]);
    assert_eq!((&unknown.payload["kind"], &unknown.payload["event"]), (&json!("unknown_event_type"), &json!({"foo": 1})));
    for broken in [
        event("text_delta", json!({"text": 7})),
        event("thinking_delta", json!({})),
        event("tool_start", json!({"toolCallId": "", "toolName": "x"})),
        event("tool_start", json!({"toolCallId": "x".repeat(257)})),
        event("tool_end", json!({"toolCallId": "c", "result": "whether it is well?"})),
        event("tool_end", json!({"toolCallId": "a\nb", "ok": true})),
        event("tool_progress", json!({"message": "of what?"})),
        event("tool_approval_required", json!({})),
        event("tool_approval_response", json!({"toolCallId": "c", "approved": "yes"})),
        event("credential_required", json!({"pluginId": "p"})),
        event("evaluators_complete", json!({"results": "good"})),
        event("dry_run_summary", json!({})),
        event("message_persisted", json!({"messageId": null})),
        event("tool.approval_required", json!({"request": {"approvalId": ""}})),
        event("tool.approval_required", json!({"request": "please"})),
        event("approval.resolved", json!({})),
        event("clarify.request", json!({})),
        event("clarify.resolved", json!({})),
        event("run.update", json!({"jobId": 7})),
        event("cron.fired", json!({})),
    ] {
        let draft = last([broken.clone()]);
        assert_eq!((&draft.payload["kind"], draft.audience), (&json!("malformed_event"), Audience::Internal), "{broken}");
        let mut event = object(broken);
        event.shift_remove(TYPE);
        assert_eq!(draft.payload["event"], Value::Object(event), "the diagnostic keeps the whole event");
    }
    let mut adapter = (SOURCE.fresh)();
    for fact in [json!({"event": "text_delta"}), json!({"type": 7}), json!({"type": ""})] {
        assert_eq!(adapter.adapt(object(fact), &given(), &mut Vec::new()), Err(FactError::NoType { member: TYPE }));
    }
}

#[test]
fn unknown_members_are_carried_and_forge_nothing() {
    let draft = last([event("text_delta", json!({"text": "a", "of_tomorrow": [1], "startAudience": "user", "eventId": "e"}))]);
    assert_eq!(Value::Object(draft.extra), json!({"of_tomorrow": [1], "sourceStartAudience": "user", "sourceEventId": "e"}));
    assert_eq!(draft.start_audience, None);
}

#[test]
fn an_audience_on_an_event_without_one_can_only_narrow_it() {
    let of = |fact: Value, audience: Value| last([start(), seen_by(audience, fact)]).audience;
    for said in [json!("internal"), json!("admin"), json!(7)] {
        assert_eq!(of(text("a"), said), Audience::Internal);
    }
    assert_eq!(of(text("a"), json!("dashboard")), Audience::Dashboard);
    assert_eq!(of(text("a"), Value::Null), Audience::User);
    assert_eq!(of(thought("a"), json!("user")), Audience::Dashboard);
    assert_eq!(of(event("context_meta", json!({})), json!("user")), Audience::Internal);
    assert_eq!(last([seen_by("admin", text("a"))]).extra["sourceAudience"], "admin");
}

#[test]
fn an_absent_url_is_not_reported_as_withheld() {
    let mut fact = credential();
    fact.as_object_mut().unwrap().shift_remove("authUrl");
    assert_eq!(last([fact]).payload.get("hasWithheldAddress"), None);
}

#[test]
fn an_action_id_is_built_from_a_name_of_any_length() {
    let long = "x".repeat(1000);
    let mut fact = credential();
    fact["credentialKey"] = long.as_str().into();
    let [one, other] = ["LINEAR_TOKEN", &long].map(|key| action_id("cred", key));
    assert_eq!((one.as_str(), other.as_str().len()), ("cred:LINEAR_TOKEN", 5 + 64));
    assert_eq!(last([fact]).event_type, EventType::ActionRequired);
}

#[test]
fn memory_is_bounded_with_many_open_items() {
    let mut adapter = Ethos::default();
    let mut out = Vec::new();
    let mut take = |fact: Value| adapter.adapt(object(fact), &given(), &mut out).unwrap();
    take(start());
    for n in 0..CALLS_OPEN_MAX + CALLS_ENDED_MAX + RESULTS_MAX {
        take(call(&format!("c{n}"), &"x".repeat(1000)));
        take(ended(&format!("r{n}"), "y", &n.to_string()));
        take(event("clarify.request", json!({"requestId": format!("q{n}")})));
        take(event("halt", json!({"rule": "r".repeat(1000)})));
    }
    for n in 0..=CONCURRENT_TURNS_MAX {
        take(start_of(&format!("{n}{}", "t".repeat(1000))));
    }
    assert_eq!((adapter.calls.open.len(), adapter.calls.ended.len()), (CALLS_OPEN_MAX, CALLS_ENDED_MAX));
    assert_eq!(
        (adapter.results.len(), adapter.pending.len(), adapter.concurrent_turns.len()),
        (RESULTS_MAX, PENDING_MAX, CONCURRENT_TURNS_MAX)
    );
    let longest = adapter
        .calls
        .open
        .iter()
        .map(|call| call.name.len())
        .chain(adapter.concurrent_turns.iter().flatten().map(String::len))
        .max();
    assert_eq!((longest, adapter.halted.as_ref().map(String::len)), (Some(NAME_CHARS_MAX), Some(NAME_CHARS_MAX)));
}
