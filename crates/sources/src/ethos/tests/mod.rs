//! Tests of the Ethos adapter, event by event.
//! `tests/it/ethos.rs` replays the recordings.

mod calls;
mod others;
mod text;

use super::SOURCE;
use super::event::{SERVER_EVENTS, TYPE};
use super::map::{CONCURRENT_TURNS_MAX, RESULTS_MAX};
use crate::bounded::{CALLS_OPEN_MAX, PENDING_MAX};
use crate::digest::TextDigest;
use crate::members::NAME_CHARS_MAX;
use crate::samples::{self, adapt_for, class, classes, given, lengths, object, of_class, payload, with};
use crate::{DryRun, FactError};
use proptest::prelude::*;
use proscenium_model::{Audience, Draft, EventType, Owner, Persistence, Phase, Scope, SessionId, Surface, TurnId};
use serde_json::{Value, json};

fn event(event_type: &str, mut members: Value) -> Value {
    members[TYPE] = event_type.into();
    members
}

fn start() -> Value {
    event("run_start", json!({"provider": "p", "model": "m", "source": "global"}))
}

fn start_of(trace: &str) -> Value {
    event("run_start", json!({"provider": "p", "model": "m", "source": "global", "traceId": trace}))
}

fn text(text: &str) -> Value {
    event("text_delta", json!({"text": text}))
}

fn thought(text: &str) -> Value {
    event("thinking_delta", json!({"thinking": text}))
}

fn done(text: &str) -> Value {
    event("done", json!({"text": text, "turnCount": 1}))
}

fn done_of(trace: &str, text: &str) -> Value {
    event("done", json!({"text": text, "turnCount": 1, "traceId": trace}))
}

fn error(code: &str) -> Value {
    event("error", json!({"error": "it says why", "code": code}))
}

fn call(id: &str, name: &str) -> Value {
    event("tool_start", json!({"toolCallId": id, "toolName": name, "args": {"x": 1}}))
}

fn ended(id: &str, name: &str, result: &str) -> Value {
    event("tool_end", json!({"toolCallId": id, "toolName": name, "ok": true, "durationMs": 3, "result": result}))
}

fn failed(id: &str, name: &str) -> Value {
    event("tool_end", json!({"toolCallId": id, "toolName": name, "ok": false, "durationMs": 3, "result": "no", "error": "no"}))
}

fn progress(name: &str, members: Value) -> Value {
    with(event("tool_progress", json!({"toolName": name, "message": "…"})), members)
}

/// Adds this audience to the event.
fn seen_by(audience: impl Into<Value>, mut fact: Value) -> Value {
    fact["audience"] = audience.into();
    fact
}

fn usage(input: u64, output: u64, cost: f64) -> Value {
    event("usage", json!({"inputTokens": input, "outputTokens": output, "estimatedCostUsd": cost}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

/// Returns `type message/part text` of each text or reasoning draft, without the source's prefix.
fn said(drafts: &[Draft]) -> Vec<String> {
    samples::said(drafts).into_iter().map(|said| said.replace("ethos-", "")).collect()
}

// ── the lifecycle of a turn ──

#[test]
fn a_start_says_which_model_runs_and_by_which_trace() {
    let draft = last([start_of("trc")]);
    assert_eq!(class(&draft), "run.started accepted");
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
    for draft in
        adapt_for(&SOURCE, &given, [start_of("trc"), event("tool.approval_required", json!({"request": request.clone()}))])
    {
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
    assert_eq!(class(end), "run.finished completed");
    assert_eq!(payload(end), json!({"status": "completed", "turnCount": 1}));
}

#[test]
fn the_first_end_holds_despite_later_ends() {
    for (first, expected) in [(done(""), "run.finished completed"), (error("llm_error"), "run.failed failed")] {
        for second in [done("more"), error("llm_error"), error("aborted")] {
            let drafts = adapt([start(), first.clone(), second.clone()]);
            assert_eq!(classes(&drafts)[1..], [expected, "diagnostic.changed unknown"], "{first} {second}");
            assert_eq!(drafts[2].payload.to_value()["kind"], "late_end");
            assert_eq!(drafts[2].payload.to_value()["eventType"], second["type"]);
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
    assert_eq!(class(&aborted), "run.finished cancelled");
    assert_eq!(payload(&aborted), json!({"status": "cancelled", "code": "aborted", "message": "it says why"}));
    for code in ["llm_error", "streaming_timeout", "context_overflow", "watcher_loop", "TIMEOUT", "UNKNOWN", "of_tomorrow"] {
        let failed = last([start(), error(code)]);
        assert_eq!(class(&failed), "run.failed failed");
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
    assert_eq!(silent.payload.to_value()["error"], json!({"message": "the turn failed without saying why"}));
    assert_eq!(silent.extra["code"], 7);
}

#[test]
fn a_refused_turn_fails_without_a_start_and_its_done_changes_nothing() {
    for code in ["personality_locked", "BUDGET_EXCEEDED", "FS_REACH_INVALID"] {
        let drafts = adapt([error(code), done("")]);
        assert_eq!(classes(&drafts), ["run.failed failed", "diagnostic.changed unknown"], "{code}");
        assert_eq!(drafts[0].payload.to_value()["refused"], true);
    }
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
    assert_eq!(last([error("BUSY")]).payload.to_value()["refused"], true, "without an open turn, the error refuses a new one");
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
    assert_eq!(drafts[4].payload.to_value()["outcome"], "expired");
    assert_eq!(drafts[4].ids.action, drafts[1].ids.action);
    assert_eq!(drafts[5].payload.to_value()["attempt"], 2);
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
    let set_aside: Vec<_> =
        drafts.iter().filter(|d| d.payload.to_value().get("kind") == Some(&json!("interleaved_run"))).collect();
    let types: Vec<_> = set_aside.iter().map(|d| d.text("eventType").unwrap()).collect();
    assert_eq!(types, ["run_start", "text_delta", "text_delta", "thinking_delta", "text_delta", "done"]);
    assert!(set_aside.iter().all(|d| d.audience == Audience::Internal));
    assert_eq!(
        (&set_aside[0].payload.to_value()["openTrace"], &set_aside[0].payload.to_value()["event"]["traceId"]),
        (&json!("A"), &json!("B"))
    );
    assert_eq!(
        said(&drafts),
        ["text.delta message-1/part-1 answer ", "text.final message-1/- answer for A", "text.final message-2/- answer for B"]
    );
    let ends = of_class(&drafts, EventType::RunFinished);
    assert_eq!((ends.len(), &ends[0].payload.to_value()["interleaved"]), (1, &json!(true)));
    let flagged =
        drafts.iter().filter(|d| d.event_type == EventType::MetricChanged).all(|d| d.payload.to_value()["interleaved"] == true);
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
    assert_eq!(drafts.last().unwrap().payload.to_value().get("interleaved"), None);
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
    assert_eq!(drafts[1].payload.to_value()["kind"], "repeated_start");
    assert_eq!(said(&drafts), ["text.delta message-1/part-1 a", "text.final message-1/- a"]);
}

#[test]
fn an_error_among_several_turns_fails_the_run_rather_than_nothing() {
    let drafts = adapt([start_of("A"), start_of("B"), error("llm_error"), done_of("A", "a"), done_of("B", "b")]);
    assert_eq!(drafts[2].event_type, EventType::RunFailed);
    assert_eq!(drafts[2].payload.to_value()["interleaved"], true);
    assert!(!drafts.iter().any(|d| d.event_type == EventType::RunFinished));
}

#[test]
fn the_end_of_an_unknown_turn_becomes_a_diagnostic() {
    let draft = last([start_of("A"), start_of("B"), done_of("C", "c")]);
    assert_eq!(
        (&draft.payload.to_value()["kind"], &draft.payload.to_value()["event"]["text"]),
        (&json!("interleaved_run"), &json!("c"))
    );
}
