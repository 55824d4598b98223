//! Tests of the drafts of each event and of the outcome of a turn.

mod calls;

use super::SOURCE;
use super::map::IDS_MAX;
use crate::samples::{self, adapt_for, call_of, class, classes, given, lengths, message_of, object, payload};
use crate::{DryRun, FactError};
use proscenium_model::{Audience, Draft, EventType, Owner, Phase, Surface, TurnId};
use serde_json::{Value, json};

fn on(bus: &str, event: &str, payload: Value) -> Value {
    json!({"bus": bus, "event": event, "payload": payload})
}

fn functional(event: &str, payload: Value) -> Value {
    on("functional", event, payload)
}

fn observed(event: &str, payload: Value) -> Value {
    on("observability", event, payload)
}

fn start(turn: &str) -> Value {
    observed("turnStart", json!({"turnId": turn, "startedAt": "2026-11-21T22:07:31.911+01:00"}))
}

fn end(turn: &str) -> Value {
    observed(
        "turnEnd",
        json!({"turnId": turn, "startedAt": "2026-11-21T21:07:31.911Z", "endedAt": "2026-11-21T21:07:32Z", "durationMs": 89}),
    )
}

fn dispatched() -> Value {
    observed("dispatchStart", json!({"dispatchId": "d"}))
}

fn dispatch_end(status: &str) -> Value {
    observed("dispatchEnd", json!({"dispatchId": "d", "status": status, "iterations": 0, "durationMs": 1}))
}

fn nack(error: Value) -> Value {
    observed("dispatchEnd", json!({"dispatchId": "d", "status": "nack", "error": error}))
}

fn error(error: Value) -> Value {
    observed("error", error)
}

/// A chunk with the whole text of its stream.
fn chunk(id: &str, delta: &str, full: &str) -> Value {
    functional("message", json!({"id": id, "aDelta": delta, "full": full, "isComplete": false}))
}

fn seal(id: &str, full: &str) -> Value {
    functional("message", json!({"id": id, "aDelta": "", "full": full, "isComplete": true}))
}

fn call(id: &str, tool: &str, checksum: &str) -> Value {
    let args = json!({"path": "/"});
    functional(
        "toolCall",
        json!({"id": id, "tool": tool, "args": args, "checksum": checksum, "isComplete": false, "isError": false}),
    )
}

fn done(id: &str, is_error: bool, results: Value) -> Value {
    let args = json!({"path": "/"});
    functional(
        "toolCall",
        json!({"id": id, "tool": "rm", "args": args, "checksum": "c", "isComplete": true, "isError": is_error, "results": results}),
    )
}

fn executes(checksum: &str) -> Value {
    observed("toolExecutionStart", json!({"toolName": "rm", "turnId": "context", "callId": checksum, "args": {"path": "/"}}))
}

fn executed(checksum: &str) -> Value {
    observed(
        "toolExecutionEnd",
        json!({"toolName": "rm", "turnId": "context", "callId": checksum, "durationMs": 5, "isError": false}),
    )
}

fn gate(id: &str, reason: &str, payload: Value) -> Value {
    observed("turnGateOpen", json!({"id": id, "turnId": "t", "reason": reason, "payload": payload, "isSettled": false}))
}

fn closed(id: &str, result: &str) -> Value {
    observed("turnGateClosed", json!({"gateId": id, "turnId": "t", "result": result, "settledAt": "2026-11-21T21:07:32Z"}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

/// Returns `event type message text` of each draft with a message.
fn texts(drafts: &[Draft]) -> Vec<String> {
    let of = |d: &Draft| format!("{} {} {}", d.event_type, message_of(d), d.text("text").unwrap_or("-"));
    drafts.iter().filter(|d| d.ids.message.is_some()).map(of).collect()
}

#[test]
fn a_turn_is_a_run_with_its_own_timestamps_and_turn_id() {
    let drafts = adapt([start("t"), dispatched(), dispatch_end("ack"), end("t")]);
    let expected = ["run.started accepted", "run.status preparing", "run.status reconciling", "run.finished completed"];
    assert_eq!(classes(&drafts), expected);
    assert!(drafts.iter().all(|d| d.ids.turn.as_ref().unwrap().as_str() == "t" && d.ids.run.as_ref().unwrap().as_str() == "run"));
    assert_eq!(drafts[0].timestamp.as_deref(), Some("2026-11-21T21:07:31.911Z"));
    assert_eq!(payload(&drafts[0]), json!({"attempt": 1}));
    assert_eq!((drafts[1].audience, drafts[2].audience), (Audience::Dashboard, Audience::Dashboard));
    let expected = json!({"dispatch": "ended", "dispatchId": "d", "dispatchStatus": "ack", "iterations": 0, "durationMs": 1});
    assert_eq!(payload(&drafts[2]), expected);
    let expected = json!({"status": "completed", "startedAt": "2026-11-21T21:07:31.911Z", "durationMs": 89});
    assert_eq!((payload(&drafts[3]), drafts[3].scope.as_str()), (expected, "turn"));

    let mut given = given();
    given.turn = TurnId::new("mine").ok();
    let draft = adapt_for(&SOURCE, &given, [start("t")]).remove(0);
    assert_eq!((draft.ids.turn.unwrap().as_str(), draft.refs), ("mine", Some(json!({"turnId": "t"}))));
}

#[test]
fn a_dispatch_determines_the_turn_s_outcome() {
    let ends = |facts: Vec<Value>| {
        let drafts = adapt([start("t")].into_iter().chain(facts).chain([end("t")]));
        let ends: Vec<_> =
            drafts.iter().filter(|d| matches!(d.event_type, EventType::RunFinished | EventType::RunFailed)).cloned().collect();
        assert_eq!(ends.len(), 1, "{drafts:?}");
        assert_eq!(drafts.last(), ends.last());
        class(&ends[0])
    };
    let plain = json!({"name": "E", "code": "E"});
    for (facts, expected) in [
        (vec![dispatched(), dispatch_end("ack")], "run.finished completed"),
        (vec![dispatched(), dispatch_end("aborted")], "run.finished cancelled"),
        (vec![dispatched(), dispatch_end("nack")], "run.failed failed"),
        (vec![dispatched(), nack(plain.clone()), error(plain.clone())], "run.failed failed"),
        // An error of a tool, or of code that runs after the answer, does not fail the turn.
        (vec![dispatched(), error(plain.clone()), dispatch_end("ack")], "run.finished completed"),
        (vec![dispatched(), dispatch_end("ack"), error(plain.clone())], "run.finished completed"),
        (vec![dispatched(), dispatch_end("aborted"), error(plain.clone())], "run.finished cancelled"),
        (vec![observed("warning", json!({"kind": "w", "error": {}})), dispatch_end("ack")], "run.finished completed"),
        // Without a dispatch, the input pipeline failed or was aborted.
        (vec![error(plain)], "run.failed failed"),
        (vec![error(json!({"name": "AbortError"}))], "run.finished cancelled"),
        (vec![], "run.finished cancelled"),
        // Without a reported outcome, the phase is unknown.
        (vec![dispatched()], "run.finished unknown"),
        (vec![seal("m", "a")], "run.finished unknown"),
        (vec![dispatch_end("of_tomorrow")], "run.finished unknown"),
        (vec![dispatch_end("of_tomorrow"), error(json!({}))], "run.failed failed"),
    ] {
        assert_eq!(ends(facts.clone()), expected, "{facts:?}");
    }
}

#[test]
fn an_abort_in_the_form_of_an_error_cancels_the_turn() {
    let wrapped = json!({"name": "E_X", "code": "E_X", "cause": {"name": "AbortError", "message": "This operation was aborted", "code": 20}});
    let drafts = adapt([
        start("t"),
        dispatched(),
        call("c", "rm", "c"),
        nack(wrapped.clone()),
        done("c", true, json!("stopped")),
        end("t"),
    ]);
    assert_eq!(classes(&drafts)[4..], ["run.status reconciling", "tool.failed cancelled", "run.finished cancelled"]);
    assert_eq!(drafts[6].payload.to_value().get("error"), None);
    let second = last([start("t"), nack(json!({"name": "E_X"})), error(wrapped), end("t")]);
    assert_eq!((second.event_type, second.phase), (EventType::RunFinished, Phase::Cancelled));
    let code = "E_LLM_EXECUTION_EXECUTOR_ERROR";
    for (first, again, may_be) in [
        (json!({"code": code}), json!({"code": code}), true),
        (json!({"code": code, "message": "529 overloaded"}), json!({}), false),
        (json!({"code": code}), json!({"code": code, "message": "529 overloaded"}), false),
        (json!({}), json!({}), false),
        (json!({"name": "E_X"}), json!({}), false),
    ] {
        let end = last([start("t"), nack(first.clone()), error(again), end("t")]);
        assert_eq!((end.event_type, end.may_be_abort), (EventType::RunFailed, may_be), "{first}");
    }
    let naive = last([start("t"), nack(json!({"name": "E_X"})), error(json!({"name": "E_X"})), end("t")]);
    assert_eq!(naive.event_type, EventType::RunFailed, "the error is not explicitly an abort");
}

#[test]
fn an_error_in_any_form_is_reported_once() {
    let failed =
        |first: Value, again: Value| last([start("t"), nack(first), error(again), end("t")]).payload.to_value()["error"].clone();
    let naive = json!({"name": "E_X", "code": "E_X", "status": 500, "fatal": false});
    assert_eq!(
        failed(naive.clone(), naive.clone()),
        json!({"code": "E_X", "message": "the turn failed with E_X, without a message"})
    );
    assert_eq!(failed(json!({}), json!({})), json!({"message": "the turn failed without saying why"}));
    let expanded = json!({"name": "E_X", "message": "it threw: 529 overloaded", "code": "E_X"});
    assert_eq!(failed(expanded.clone(), expanded.clone()), json!({"code": "E_X", "message": "it threw: 529 overloaded"}));
    assert_eq!(failed(naive, expanded), json!({"code": "E_X", "message": "it threw: 529 overloaded"}));
    assert_eq!(failed(Value::Null, json!("bare text")), json!({"message": "bare text"}));
    // The dispatch's own error overrides an earlier error of a tool.
    let facts = [start("t"), error(json!({"message": "a tool's"})), nack(json!({"message": "its own"})), end("t")];
    assert_eq!(last(facts).payload.to_value()["error"], json!({"message": "its own"}));
}

#[test]
fn every_exception_is_reported_in_full_to_operators_at_once() {
    let thrown = json!({"name": "E_X", "message": "it threw", "cause": {"message": "deep"}, "stack": "at x"});
    let draft = last([start("t"), error(thrown.clone())]);
    let expected = json!({"kind": "error", "severity": "error", "message": "it threw", "code": "E_X", "error": thrown});
    assert_eq!(
        (draft.event_type.clone(), draft.audience, payload(&draft)),
        (EventType::DiagnosticChanged, Audience::Dashboard, expected)
    );
    for thrown in [json!("text"), Value::Null, json!([1]), json!({})] {
        assert_eq!(last([error(thrown.clone())]).payload.to_value()["error"], thrown);
    }
}

#[test]
fn an_error_after_the_answer_marks_the_turn_degraded() {
    let drafts = adapt([start("t"), dispatched(), dispatch_end("ack"), error(json!({"message": "no disk"})), end("t")]);
    assert_eq!(classes(&drafts)[3..], ["diagnostic.changed unknown", "run.finished completed"]);
    assert_eq!((&drafts[4].payload.to_value()["degraded"], drafts[4].payload.to_value().get("error")), (&json!(true), None));
    let next = last([start("t"), dispatch_end("ack"), error(json!({})), end("t"), start("u"), dispatch_end("ack"), end("u")]);
    assert_eq!(next.payload.to_value().get("degraded"), None);
}

#[test]
fn a_repeated_start_or_end_counts_once() {
    let drafts = adapt([start("t"), start("t"), dispatch_end("ack"), end("t"), end("t")]);
    let kinds: Vec<_> = drafts.iter().filter_map(|d| d.text("kind")).collect();
    assert_eq!(kinds, ["repeated_start", "repeated_end"]);
    assert_eq!(drafts.iter().filter(|d| d.event_type.is_run_boundary()).count(), 2);
}

#[test]
fn an_end_without_a_start_ends_the_turn() {
    assert_eq!(classes(&adapt([dispatch_end("ack"), end("t")]))[1], "run.finished completed");
    let drafts = adapt([start("t"), dispatch_end("ack"), end("t"), dispatch_end("aborted"), end("u")]);
    assert_eq!(drafts[4].payload.to_value()["kind"], "interleaved_run", "after an end only a start opens a turn");
}

#[test]
fn the_chunks_are_the_text_and_only_the_seal_has_the_whole() {
    let drafts = adapt([chunk("m", "a", "a"), chunk("m", "", "a"), chunk("m", "b", "ab"), seal("m", "ab")]);
    assert_eq!(texts(&drafts), ["text.delta m a", "text.delta m b", "text.final m ab"]);
    assert!(drafts.iter().all(|d| d.ids.part.as_ref().unwrap().as_str() == "turnrunner-text" && d.extra.is_empty()));
    assert!(drafts.iter().all(|d| d.audience == Audience::User));
}

#[test]
fn a_seal_with_or_without_text_ends_the_stream() {
    let sealing = functional(
        "message",
        json!({"id": "m", "aDelta": "b", "full": "ab", "isComplete": true, "completedAt": "2026-01-01T00:00:00Z"}),
    );
    let drafts = adapt([chunk("m", "a", "a"), sealing]);
    assert_eq!(texts(&drafts), ["text.delta m a", "text.delta m b", "text.final m ab"]);
    assert_eq!(drafts[2].payload.to_value()["completedAt"], "2026-01-01T00:00:00Z");
    let bare = functional("message", json!({"id": "m", "isComplete": true}));
    assert_eq!(texts(&adapt([chunk("m", "a", "a"), bare])), ["text.delta m a", "text.final m -"]);
    let kept_no_account = functional("message", json!({"id": "m", "aDelta": "", "full": "", "isComplete": true}));
    assert_eq!(texts(&adapt([chunk("m", "a", "a"), kept_no_account.clone()])), ["text.delta m a", "text.final m -"]);
    assert_eq!(texts(&adapt([kept_no_account])), ["text.final m "], "a message may be empty");
}

#[test]
fn thoughts_are_for_operators_and_have_separate_ids_from_messages() {
    let thought = |delta: &str, full: &str, is_complete: bool| {
        functional("thought", json!({"id": "1", "aDelta": delta, "full": full, "isComplete": is_complete}))
    };
    let drafts = adapt([
        thought("a", "a", false),
        chunk("1", "x", "x"),
        thought("b", "ab", false),
        thought("", "ab", true),
        seal("1", "x"),
    ]);
    let expected = ["reasoning.delta 1 a", "text.delta 1 x", "reasoning.delta 1 b", "reasoning.summary 1 ab", "text.final 1 x"];
    assert_eq!(texts(&drafts), expected);
    for draft in &drafts {
        let is_thought = draft.event_type.as_str().starts_with("reasoning");
        assert_eq!(draft.audience, if is_thought { Audience::Dashboard } else { Audience::User });
        let part = if is_thought { "turnrunner-thought" } else { "turnrunner-text" };
        assert_eq!(draft.ids.part.as_ref().unwrap().as_str(), part);
    }
}

#[test]
fn a_different_stream_is_repaired_and_continues() {
    let drafts = adapt([chunk("m", "ax", "ax"), chunk("m", "c", "abbc"), chunk("m", "d", "abbcd"), seal("m", "abbcd")]);
    let expected = ["text.delta m ax", "messages.snapshot m -", "text.delta m d", "text.final m abbcd"];
    assert_eq!(texts(&drafts), expected);
    let part = json!({"partId": "turnrunner-text", "kind": "assistant_text", "text": ["abbc"]});
    assert_eq!(drafts[1].payload.to_value()["messages"], json!([{"messageId": "m", "role": "assistant", "parts": [part]}]));
    assert_eq!(drafts[1].payload.to_value()["mode"], "repair");
    let thought = |delta: &str, full: &str, seals: bool| {
        functional("thought", json!({"id": "m", "aDelta": delta, "full": full, "isComplete": seals}))
    };
    let drafts = adapt([thought("ax", "ax", false), thought("c", "abbc", false), thought("", "abbc", true)]);
    let expected = ["reasoning.delta m ax", "reasoning.delta m c", "reasoning.summary m abbc"];
    assert_eq!(texts(&drafts), expected, "the seal corrects a thought");
}

#[test]
fn a_repeated_chunk_adds_nothing() {
    let drafts =
        adapt([chunk("m", "a", "a"), chunk("m", "b", "ab"), chunk("m", "b", "ab"), chunk("m", "a", "a"), seal("m", "ab")]);
    assert_eq!(texts(&drafts), ["text.delta m a", "text.delta m b", "diagnostic.changed m -", "text.final m ab"]);
    let expected =
        json!({"kind": "stale_chunk", "eventType": "message", "event": {"aDelta": "a"}, "toldBytes": 2, "fullBytes": 1});
    assert_eq!(payload(&drafts[2]), expected);
}

#[test]
fn a_chunk_after_the_seal_keeps_its_part_so_that_the_ledger_rejects_it() {
    let drafts = adapt([chunk("m", "a", "a"), seal("m", "a"), chunk("m", "b", "ab"), seal("m", "ab"), chunk("n", "c", "c")]);
    let expected = ["text.delta m a", "text.final m a", "text.delta m b", "diagnostic.changed m -", "text.delta n c"];
    assert_eq!(texts(&drafts), expected);
    assert_eq!((&drafts[2].ids.part, &drafts[3].payload.to_value()["kind"]), (&drafts[0].ids.part, &json!("write_after_seal")));
}

#[test]
fn a_later_turn_may_reuse_an_id() {
    let turn = |id: &str, text: &str| [start(id), chunk("m", text, text), seal("m", text), dispatch_end("ack"), end(id)];
    let drafts = adapt(turn("a", "one").into_iter().chain(turn("b", "two")).chain(turn("c", "three")));
    let expected = [
        "text.delta m one",
        "text.final m one",
        "text.delta turnrunner-2-m two",
        "text.final turnrunner-2-m two",
        "text.delta turnrunner-3-m three",
        "text.final turnrunner-3-m three",
    ];
    assert_eq!(texts(&drafts), expected);
    let again: Vec<_> = drafts.iter().filter_map(|d| d.refs.as_ref()?.get("nativeId")).collect();
    assert_eq!(again, ["m", "m"]);
    let calls = adapt([start("a"), call("c", "rm", "c"), end("a"), start("b"), call("c", "rm", "c"), call("d", "rm", "d")]);
    let names: Vec<_> = calls.iter().filter(|d| d.event_type == EventType::ToolStarted).map(call_of).collect();
    assert_eq!(names, ["c", "turnrunner-2-c", "d"], "only a reused id gets a prefix");
    let long = "x".repeat(256);
    let named = adapt([start("a"), chunk(&long, "a", "a"), end("a"), start("b"), chunk(&long, "b", "b")]);
    let name = named.last().unwrap().ids.message.as_ref().unwrap().as_str().to_owned();
    assert!(name.starts_with("turnrunner-2-") && name.len() < 40, "{name}");
}

#[test]
fn logs_are_internal_and_warnings_and_errors_are_for_operators() {
    let log = |level: &str| {
        last([observed(
            "log",
            json!({"dispatchId": "d", "iteration": 0, "emittedAt": "2026-11-21T21:07:31Z", "level": level, "kind": "retry", "message": "m", "payload": {"n": 1}}),
        )])
    };
    let expected = json!({"kind": "retry", "eventType": "log", "message": "m", "data": {"n": 1}, "severity": "warn", "stepId": "d#0", "dispatchId": "d", "iteration": 0});
    assert_eq!((payload(&log("warn")), log("warn").timestamp.as_deref()), (expected, Some("2026-11-21T21:07:31Z")));
    for (level, audience) in [("trace", Audience::Internal), ("info", Audience::Internal), ("error", Audience::Dashboard)] {
        assert_eq!((log(level).event_type, log(level).audience), (EventType::DiagnosticChanged, audience));
    }
    let warning = last([observed("warning", json!({"source": "s", "message": "m", "error": {}}))]);
    let expected =
        json!({"kind": "warning", "eventType": "warning", "severity": "warning", "message": "m", "source": "s", "error": {}});
    assert_eq!((payload(&warning), warning.audience), (expected, Audience::Dashboard));
    let iteration = last([observed("iterationEnd", json!({"dispatchId": "d", "iteration": 1, "durationMs": 7}))]);
    let expected = json!({"name": "iteration", "durationMs": 7, "stepId": "d#1", "dispatchId": "d", "iteration": 1});
    assert_eq!((iteration.event_type.clone(), payload(&iteration)), (EventType::MetricChanged, expected));
}

#[test]
fn garbled_telemetry_stays_telemetry() {
    let names = ["log", "warning", "iterationEnd", "toolExecutionStart", "toolExecutionEnd"];
    for event in names {
        for payload in
            [Value::Null, json!("x"), json!([1]), json!({"callId": 7, "level": {}, "kind": [], "emittedAt": "soon"}), json!({})]
        {
            let drafts = adapt([observed(event, payload.clone())]);
            assert_eq!(drafts.len(), 1, "{event} {payload}");
            assert!(matches!(drafts[0].event_type, EventType::DiagnosticChanged | EventType::MetricChanged), "{event} {payload}");
        }
    }
}

#[test]
fn the_bus_is_optional_and_unknown_events_are_kept() {
    let mut without = chunk("m", "a", "a");
    without.as_object_mut().unwrap().remove("bus");
    assert_eq!(texts(&adapt([without])), ["text.delta m a"]);
    for fact in [
        functional("of_tomorrow", json!({"x": 1})),
        observed("generationStats", json!({})),
        functional("turnEnd", json!({})),
        observed("message", json!({"id": "m", "aDelta": "a"})),
        on("third", "message", json!({"id": "m", "aDelta": "a"})),
        json!({"bus": 7, "event": "message", "payload": {"id": "m", "aDelta": "a"}}),
    ] {
        let draft = last([fact.clone()]);
        assert_eq!(
            (draft.event_type.clone(), draft.audience, &draft.payload.to_value()["kind"]),
            (EventType::DiagnosticChanged, Audience::Internal, &json!("unknown_event_type"))
        );
        assert_eq!(
            (&draft.payload.to_value()["eventType"], &draft.payload.to_value()["event"]["payload"]),
            (&fact["event"], &fact["payload"])
        );
    }
}

#[test]
fn an_event_without_a_required_member_is_kept_as_malformed() {
    for fact in [
        functional("message", json!({"aDelta": "a"})),
        functional("message", json!({"id": "m", "aDelta": 7})),
        functional("thought", json!("text")),
        functional("toolCall", json!({"id": 7})),
        observed("turnGateOpen", json!({"reason": "tool_approval"})),
        observed("turnGateClosed", json!({"id": "g"})),
    ] {
        let draft = last([fact.clone()]);
        assert_eq!(
            (&draft.payload.to_value()["kind"], draft.audience),
            (&json!("malformed_event"), Audience::Internal),
            "{fact}"
        );
        assert_eq!(draft.payload.to_value()["event"]["payload"], fact["payload"]);
    }
    let refused = |fact: Value| DryRun::new(&SOURCE).adapt(object(fact), &given()).unwrap_err();
    for fact in [json!({}), json!({"type": "message"}), json!({"event": 7}), json!({"event": ""})] {
        assert_eq!(refused(fact), FactError::NoType { member: "event" });
    }
    let boundary = json!({"event": "turnEnd", "payload": "odd"});
    let draft = last([start("t"), dispatch_end("ack"), boundary]);
    assert_eq!(
        (draft.event_type, &draft.extra["sourcePayload"]),
        (EventType::RunFinished, &json!("odd")),
        "an end with an invalid payload still ends the turn"
    );
}

#[test]
fn unknown_members_are_carried_and_forge_nothing() {
    let mut fact = chunk("m", "a", "a");
    fact["around"] = json!(1);
    fact["audience"] = json!("internal");
    fact["payload"]["within"] = json!(2);
    fact["payload"]["eventId"] = json!("e");
    fact["payload"]["around"] = json!(3);
    let draft = last([fact]);
    let carried = json!({"around": 3, "sourceAudience": "internal", "within": 2, "sourceEventId": "e", "fact.around": 1});
    assert_eq!(Value::Object(draft.extra), carried);
    assert_eq!(draft.audience, Audience::User);
    let mut empty = chunk("m", "", "");
    empty["payload"]["within"] = json!(2);
    let draft = last([empty]);
    assert_eq!(
        (&draft.payload.to_value()["kind"], &draft.payload.to_value()["event"]),
        (&json!("unplaced_members"), &json!({"within": 2}))
    );
}

#[test]
fn memory_is_bounded_with_many_open_items() {
    let used = |run: &DryRun| run.adapter.describe()["used"].clone();
    let mut run = DryRun::new(&SOURCE);
    let take = |run: &mut DryRun, fact: Value| run.adapt(object(fact), &given()).unwrap();
    for n in 0..400 {
        take(&mut run, chunk(&format!("m{n}"), "a", "a"));
        take(&mut run, call(&format!("c{n}"), "rm", "c"));
        take(&mut run, gate(&format!("g{n}"), "tool_approval", json!({})));
    }
    assert_eq!(lengths(&run, ["streams", "calls", "gates"]), [64, 256, 64]);
    assert_eq!((used(&run)["turn"].as_array().unwrap().len(), &used(&run)["turn_has_more"]), (IDS_MAX, &json!(true)));
    take(&mut run, chunk("m0", "b", "ab"));
    assert_eq!(lengths(&run, ["streams"]), [64], "an evicted stream starts anew");
    take(&mut run, start("t"));
    assert_eq!((&used(&run)["earlier_has_more"], &used(&run)["earlier"]), (&json!(true), &json!([])));
    let never = take(&mut run, chunk("never", "a", "a"));
    assert_eq!(message_of(&never[0]), "turnrunner-1-never", "any id may be a reused one");

    let mut run = DryRun::new(&SOURCE);
    for n in 0..3 * IDS_MAX / 2 {
        if n % 100 == 0 {
            take(&mut run, observed("turnEnd", json!({})));
            take(&mut run, start(&format!("t{n}")));
        }
        take(&mut run, seal(&format!("m{n}"), "a"));
        assert!(["earlier", "turn"].iter().all(|ids| used(&run)[ids].as_array().unwrap().len() <= IDS_MAX));
    }
    assert_eq!(used(&run)["earlier_has_more"], true);
}

#[test]
fn a_body_is_never_stored() {
    const TELLING: &str = "Zq9xV7";
    let mut run = DryRun::new(&SOURCE);
    let secret = || json!(TELLING);
    for fact in [
        start("t"),
        chunk("m", TELLING, TELLING),
        functional("toolCall", json!({"id": "k", "tool": TELLING, "args": {"a": secret()}, "checksum": TELLING})),
        gate("g", TELLING, json!({"tool": TELLING, "args": secret(), "message": secret()})),
        observed("log", json!({"message": secret(), "payload": secret()})),
        nack(json!({"message": format!("password {TELLING}"), "code": format!("k={TELLING}"), "stack": secret()})),
        error(json!({"message": format!("token: {TELLING}")})),
    ] {
        run.adapt(object(fact), &given()).unwrap();
        let memory = run.save();
        let text = String::from_utf8_lossy(&memory);
        assert!(!text.contains(TELLING) && !run.adapter.describe().to_string().contains(TELLING), "{text}");
    }
}
