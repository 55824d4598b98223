//! Tests of events in the wrapper of Awaken's server.

use super::{SOURCE, TYPE, adapt, call, done, event, finish_as, last, resumed, start, step, suspended, text};
use crate::samples::{adapt_for, classes, given, object, payload, with};
use crate::{DryRun, FactError};
use proscenium_model::{Audience, Phase, SessionId};
use serde_json::{Value, json};

fn stored(native: Value, members: Value) -> Value {
    let fact = json!({
        "event_id": "e-1", "scopes": [{"scope_type": "thread", "thread_id": "t"}, {"scope_type": "run", "run_id": "r"}],
        "cursors_by_scope": [{"scope": "run:r", "cursor": "7"}], "event_kind": "Kind", "payload": native,
        "thread_id": "t", "run_id": "r", "causation_id": "e-0", "correlation_id": null, "origin": "runtime",
        "visibility": "public", "schema_version": 1, "created_at": "2026-01-02T03:04:05+02:00",
    });
    with(fact, members)
}

fn public(native: Value) -> Value {
    stored(native, json!({}))
}

fn sensitive(native: Value) -> Value {
    stored(native, json!({"visibility": "sensitive"}))
}

fn draft_of(native: Value) -> Value {
    json!({"fidelity": "domain_event", "draft": {
        "scopes": [{"scope_type": "thread", "thread_id": "t"}, {"scope_type": "run", "run_id": "r"}],
        "event_kind": "Kind", "payload": native, "origin": "runtime", "visibility": "public", "schema_version": 1,
    }})
}

#[test]
fn both_forms_give_the_same_drafts_as_the_bare_event() {
    let [begin, ready] = call("c");
    let natives =
        [start("r"), step("m"), text("a"), begin, ready, done("c", "succeeded", json!({"data": 1})), finish_as("r", "error")];
    let alone = adapt(natives.clone());
    for wrap in [public, draft_of] {
        let mut wrapped = adapt(natives.clone().map(wrap));
        for draft in &mut wrapped {
            assert!(draft.raw_event_ref.take().is_some() && draft.extra.is_empty(), "{:?}", draft.extra);
            draft.timestamp = None;
        }
        assert_eq!(wrapped, alone);
    }
}

#[test]
fn an_event_keeps_its_time_and_its_names_in_awaken_s_store() {
    let draft = last([stored(text("a"), json!({"of_tomorrow": [1]}))]);
    assert_eq!(draft.timestamp.as_deref(), Some("2026-01-02T01:04:05Z"));
    let names = json!({
        "eventId": "e-1", "eventKind": "Kind", "causationId": "e-0", "cursors": [{"scope": "run:r", "cursor": "7"}],
        "origin": "runtime", "visibility": "public", "schemaVersion": 1,
    });
    assert_eq!(draft.raw_event_ref, Some(names));
    assert_eq!(Value::Object(draft.extra), json!({"of_tomorrow": [1]}));
    let draft = last([stored(text("a"), json!({"created_at": "yesterday"}))]);
    assert_eq!((draft.timestamp, &draft.extra["created_at"]), (None, &json!("yesterday")));
}

#[test]
fn scopes_name_the_run_if_the_event_does_not() {
    let draft = last([draft_of(text("a"))]);
    assert_eq!(draft.ids.thread.as_ref().unwrap().as_str(), "t");
    assert_eq!(draft.ids.session.as_ref().unwrap().as_str(), "t");
    let boundary = last([draft_of(event("run_start", json!({"run_id": ""})))]);
    assert_eq!(boundary.refs, Some(json!({"runId": "r"})));
    assert_eq!(boundary.ids.thread.as_ref().unwrap().as_str(), "t");
    let mut given = given();
    given.session = SessionId::new("mine").ok();
    assert_eq!(adapt_for(&SOURCE, &given, [draft_of(text("a"))]).remove(0).ids.session.unwrap().as_str(), "mine");
    let odd = json!([{"scope_type": "tenant", "tenant_id": "x"}, {"scope_type": "run", "run_id": "r"}]);
    let draft = last([public(start("r")), stored(text("a"), json!({"scopes": odd, "thread_id": "elsewhere"}))]);
    assert_eq!(draft.extra["scopes"], json!([{"scope_type": "tenant", "tenant_id": "x"}]));
    assert_eq!((&draft.extra["thread_id"], draft.ids.thread.unwrap().as_str()), (&json!("elsewhere"), "t"));
}

#[test]
fn an_event_of_another_run_than_the_open_one_is_flagged_and_changes_nothing() {
    let other = json!({"run_id": "x", "scopes": [{"scope_type": "run", "run_id": "x"}]});
    let drafts = adapt([public(start("r")), stored(text("a"), other.clone()), stored(start("x"), other)]);
    assert_eq!(classes(&drafts)[1..], ["diagnostic.changed unknown", "diagnostic.changed unknown"]);
    assert!(drafts[1..].iter().all(|draft| draft.payload.to_value()["kind"] == "interleaved_run"));
    assert_eq!((&drafts[1].payload.to_value()["openRun"], &drafts[1].payload.to_value()["run"]), (&json!("r"), &json!("x")));
}

#[test]
fn a_suspension_stored_under_two_kinds_is_one_question() {
    let kinds = |native: Value| {
        ["ToolCallSuspended", "ToolPermissionRequested"].map(|kind| stored(native.clone(), json!({"event_kind": kind})))
    };
    let [begin, ready] = call("c");
    let [first, second] = kinds(suspended("c", "replay_tool_call"));
    let facts = [public(begin), public(ready), first.clone(), second.clone(), public(resumed("c", json!(1)))];
    let drafts = adapt(facts.clone());
    let expected = [
        "tool.started acting",
        "tool.args acting",
        "action.required waiting",
        "diagnostic.changed unknown",
        "action.resolved acting",
        "tool.result completed",
    ];
    assert_eq!(classes(&drafts), expected);
    let repeated = &drafts[3];
    assert_eq!(repeated.audience, Audience::Internal);
    assert_eq!(
        payload(repeated),
        json!({"kind": "repeated_event", "eventType": "tool_call_done", "eventKind": "ToolPermissionRequested"})
    );
    assert_eq!(repeated.ids.action, drafts[2].ids.action);
    // The order of the two kinds does not matter. After an answer, the same suspension is a new question.
    let again = adapt(facts.into_iter().chain([second, first]));
    assert_eq!(classes(&again)[6..], ["action.required waiting", "diagnostic.changed unknown"]);
    let other = adapt([public(suspended("c", "replay_tool_call")), public(suspended("d", "replay_tool_call"))]);
    assert_eq!(classes(&other), ["action.required waiting", "action.required waiting"]);
}

#[test]
fn every_draft_of_a_non_public_event_is_internal() {
    let [begin, ready] = call("c");
    let end = done("c", "succeeded", json!({"data": {"agent_id": "kid"}, "metadata": {"child_run_id": "cr"}}));
    let drafts = adapt([step("m"), text("a"), begin, ready, suspended("c", "replay_tool_call"), end].map(sensitive));
    assert_eq!(drafts.len(), 8);
    assert!(drafts.iter().all(|draft| draft.audience == Audience::Internal), "{:?}", classes(&drafts));
    for visibility in [json!("audit"), json!("of_tomorrow"), json!(7)] {
        let draft = last([stored(text("a"), json!({"visibility": visibility}))]);
        assert_eq!(draft.audience, Audience::Internal, "{visibility}");
    }
    for visibility in [json!("public"), Value::Null] {
        let draft = last([stored(text("a"), json!({"visibility": visibility}))]);
        assert_eq!(draft.audience, Audience::User, "{visibility}");
    }
}

#[test]
fn a_non_public_run_s_status_is_visible_to_every_reader() {
    let blocked = event("run_finish", json!({"run_id": "r", "termination": {"type": "blocked", "value": "secret plan"}}));
    let drafts = adapt([start("r"), finish_as("r", "suspended"), start("r"), blocked].map(sensitive));
    let expected = [
        ("run.started", Audience::Internal),
        ("run.status", Audience::User),
        ("diagnostic.changed", Audience::Internal),
        ("run.status", Audience::User),
        ("diagnostic.changed", Audience::Internal),
        ("run.failed", Audience::Internal),
        ("diagnostic.changed", Audience::Internal),
    ];
    assert_eq!(drafts.iter().map(|draft| (draft.event_type.as_str(), draft.audience)).collect::<Vec<_>>(), expected);
    assert_eq!((payload(&drafts[1]), drafts[1].phase.clone()), (json!({"status": "waiting"}), Phase::Waiting));
    assert_eq!(payload(&drafts[3]), json!({"resumed": true}));
    assert_eq!(payload(&drafts[5]), json!({"status": "failed", "withheld": true}));
    assert_eq!((&drafts[5].refs, &drafts[5].raw_event_ref), (&None, &None));
    assert_eq!(drafts[6].payload.to_value()["event"]["error"], json!({"code": "blocked", "message": "secret plan"}));
    assert_eq!(drafts[6].payload.to_value()["message"], "secret plan");
}

#[test]
fn a_non_public_failure_shows_only_that_it_failed() {
    let [begin, ready] = call("c");
    let failed = sensitive(done("c", "failed", json!({"message": "secret plan"})));
    let drafts = adapt([public(begin), public(ready), failed]);
    assert_eq!(classes(&drafts)[2..], ["tool.failed failed", "diagnostic.changed unknown"]);
    assert_eq!(payload(&drafts[2]), json!({"withheld": true}));
    assert!(!format!("{:?}", drafts[2]).contains("secret plan"));
}

#[test]
fn a_wrapper_without_an_event_is_a_diagnostic_that_keeps_the_fact() {
    for payload in [json!("text"), json!(null), json!({"delta": "a"}), json!({"event_type": ""}), json!({"event_type": 7})] {
        for fact in [public(payload.clone()), draft_of(payload.clone())] {
            let draft = last([fact]);
            assert_eq!(
                (draft.payload.to_value()["kind"].as_str(), draft.audience),
                (Some("malformed_event"), Audience::Internal)
            );
            assert_eq!(draft.payload.to_value()["event"]["payload"], payload);
            assert_eq!(
                (&draft.payload.to_value()["eventType"], draft.payload.to_value()["event"].get("scopes").is_some()),
                (&json!("Kind"), true)
            );
        }
    }
    let inner = last([public(event("text_delta", json!({"delta": 7})))]);
    assert_eq!((&inner.payload.to_value()["kind"], inner.raw_event_ref.is_some()), (&json!("malformed_event"), true));
    let unknown = last([public(event("of_tomorrow", json!({})))]);
    assert_eq!(unknown.payload.to_value()["kind"], "unknown_event_type");
}

#[test]
fn a_fact_that_is_neither_an_event_nor_a_wrapper_is_rejected() {
    let mut run = DryRun::new(&SOURCE);
    let before = run.save();
    for fact in [json!({"payload": text("a")}), json!({"draft": {"payload": text("a")}}), json!({"event_kind": 7, "draft": 7})] {
        assert_eq!(run.adapt(object(fact), &given()), Err(FactError::NoType { member: TYPE }));
    }
    assert_eq!(run.save(), before, "a rejected fact changes nothing");
}
