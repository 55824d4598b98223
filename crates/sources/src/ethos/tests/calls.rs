//! Tests of tool calls.

use super::{adapt, call, done, ended, event, failed, last, progress, seen_by, start, text};
use crate::samples::{object, payload};
use proscenium_model::{Audience, EventType, Owner, Phase, Scope, Surface};
use serde_json::{Value, json};

// ── audience ──

#[test]
fn an_event_states_its_audience_and_an_unknown_one_is_internal_and_kept() {
    use Audience::{Dashboard, Internal, User};
    let of = |fact: Value| {
        let draft = last([fact]);
        (draft.audience, draft.extra.get("sourceAudience").cloned())
    };
    let kinds: [(fn() -> Value, Audience); 4] = [
        (|| call("c", "x"), User),
        (|| call("c#1", "x"), Internal),
        (|| progress("x", json!({})), Internal),
        (|| ended("c", "x", "1"), Internal),
    ];
    for (fact, absent) in kinds {
        assert_eq!(of(fact()), (absent, None));
        assert_eq!(of(seen_by(Value::Null, fact())), (absent, None));
        for (name, known) in [("user", User), ("dashboard", Dashboard), ("internal", Internal)] {
            assert_eq!(of(seen_by(name, fact())), (known, None));
        }
        for unknown in [json!("admin"), json!("User"), json!(7), json!(["user"])] {
            assert_eq!(of(seen_by(unknown.clone(), fact())), (Internal, Some(unknown)));
        }
    }
}

#[test]
fn a_failure_is_for_users_despite_its_audience_unless_it_is_nested() {
    use Audience::{Dashboard, Internal, User};
    let of = |fact: Value| {
        let draft = last([fact]);
        (draft.audience, draft.extra.get("sourceAudience").cloned())
    };
    assert_eq!(of(failed("c", "x")), (User, None));
    assert_eq!(of(seen_by("dashboard", failed("c", "x"))), (User, Some(json!("dashboard"))));
    assert_eq!(of(seen_by("admin", failed("c", "x"))), (User, Some(json!("admin"))));
    assert_eq!(of(failed("c#1", "x")), (Internal, None));
    assert_eq!(of(seen_by("internal", failed("c#1", "x"))), (Internal, None));
    assert_eq!(of(seen_by("dashboard", failed("c#1", "x"))), (Dashboard, None));
    assert_eq!(of(seen_by("admin", failed("c#1", "x"))), (Internal, Some(json!("admin"))));
}

#[test]
fn a_script_s_call_is_nested_in_its_parent() {
    let refs = |id: &str| last([call(id, "x")]).refs;
    assert_eq!(refs("toolu_1#2"), Some(json!({"parentToolCallId": "toolu_1"})));
    assert_eq!(refs("toolu_1#2#3"), Some(json!({"parentToolCallId": "toolu_1#2"})));
    assert_eq!(refs("script:1#2"), Some(json!({"parentToolCallId": "script:1"})));
    for id in ["toolu_1", "a#b", "#1", "a#", "a#-1"] {
        assert_eq!(refs(id), None, "{id}");
    }
    let end = last([call("c#1", "x"), failed("c#1", "x")]);
    assert_eq!(end.refs, Some(json!({"parentToolCallId": "c"})));
}

// ── progress ──

#[test]
fn a_percentage_is_a_hundredth_regardless_of_its_size() {
    for (percent, fraction) in [
        (json!(0), 0.0),
        (json!(1), 0.01),
        (json!(0.5), 0.005),
        (json!(33.4), 33.4 / 100.0),
        (json!(100), 1.0),
        (json!(250), 1.0),
        (json!(-3), 0.0),
    ] {
        let draft = last([progress("x", json!({"percent": percent}))]);
        assert_eq!(payload(&draft), json!({"toolName": "x", "message": "…", "progress": fraction, "percent": percent}));
    }
    let odd = last([progress("x", json!({"percent": "half"}))]);
    assert_eq!((odd.payload.to_value().get("progress"), &odd.extra["percent"]), (None, &json!("half")));
}

#[test]
fn progress_belongs_to_a_call_only_if_one_open_call_has_its_tool_name() {
    let joined = |facts: Vec<Value>| {
        let draft = last(facts.into_iter().chain([progress("bash", json!({}))]));
        assert_eq!(draft.scope, if draft.ids.tool_call.is_some() { Scope::ToolCall } else { Scope::Turn });
        draft.ids.tool_call.map(|id| id.as_str().to_owned())
    };
    assert_eq!(joined(vec![]), None);
    assert_eq!(joined(vec![call("a", "bash"), call("b", "grep")]), Some("a".to_owned()));
    assert_eq!(joined(vec![call("a", "bash"), call("b", "bash")]), None, "two open calls of one tool are indistinguishable");
    assert_eq!(joined(vec![call("a", "bash"), call("b", "bash"), ended("a", "bash", "")]), Some("b".to_owned()));
    assert_eq!(joined(vec![call("a", "bash"), ended("a", "bash", "")]), None, "progress does not reopen an ended call");
    assert_eq!(joined(vec![start(), call("a", "bash"), done("")]), None);
}

#[test]
fn loop_notices_under_a_tool_name_are_no_tool_calls() {
    for (name, owner, phase) in [
        ("_watcher", Owner::Policy, Phase::Interrupted),
        ("_budget", Owner::Runtime, Phase::Interrupted),
        ("_approval", Owner::Runtime, Phase::Interrupted),
        ("_loop", Owner::Runtime, Phase::Acting),
    ] {
        let draft = last([start(), progress(name, json!({"message": "Stopped", "audience": "user"}))]);
        assert_eq!((draft.event_type.clone(), draft.owner.clone(), draft.phase.clone()), (EventType::RunStatus, owner, phase));
        assert_eq!((payload(&draft), draft.audience), (json!({"notice": name, "message": "Stopped"}), Audience::User));
    }
    assert_eq!(last([progress("_watcher", json!({}))]).audience, Audience::Internal);
    for fact in [call("c", "_watcher"), ended("c", "_compaction", ""), failed("c", "_x")] {
        let draft = last([fact.clone()]);
        assert_eq!(draft.payload.to_value()["kind"], "no_tool");
        assert_eq!(draft.payload.to_value()["event"]["toolName"], fact["toolName"]);
    }
}

#[test]
fn compactions_keep_their_audience_and_have_separate_ids() {
    let compaction = |audience: &str| progress("_compaction", json!({"audience": audience, "message": "m"}));
    let drafts = adapt(["internal", "user", "dashboard", "admin", "user"].map(compaction));
    let seen: Vec<_> = drafts.iter().map(|d| (d.audience.as_str(), d.text("compactionId").unwrap())).collect();
    let expected = [
        ("internal", "ethos-internal-compaction-1"),
        ("user", "ethos-compaction-1"),
        ("dashboard", "ethos-dashboard-compaction-1"),
        ("internal", "ethos-internal-compaction-2"),
        ("user", "ethos-compaction-2"),
    ];
    assert_eq!(seen, expected);
}

// ── calls ──

#[test]
fn a_call_starts_with_its_input_and_ends_with_its_output() {
    let end = event(
        "tool_end",
        json!({"toolCallId": "c", "toolName": "read", "ok": true, "durationMs": 812, "result": "text",
            "structured": {"_uiType": "card"}, "cost_usd": 0.01, "ofTomorrow": 1}),
    );
    let drafts = adapt([start(), text("a"), call("c", "read"), end]);
    assert_eq!(
        (payload(&drafts[2]), drafts[2].event_type.clone()),
        (json!({"toolName": "read", "input": {"x": 1}}), EventType::ToolStarted)
    );
    assert_eq!(drafts[2].ids.message.as_ref().unwrap().as_str(), "ethos-message-1");
    let given = json!({"toolName": "read", "structured": {"_uiType": "card"}, "durationMs": 812, "costUsd": 0.01,
        "status": "completed", "output": "text"});
    assert_eq!((payload(&drafts[3]), drafts[3].event_type.clone()), (given, EventType::ToolResult));
    assert_eq!(drafts[3].extra["ofTomorrow"], 1);
}

#[test]
fn a_failure_has_its_text_once_and_its_code_if_sent() {
    let error = |members: Value| {
        let mut fact = event("tool_end", json!({"toolCallId": "c", "toolName": "x", "ok": false, "durationMs": 1}));
        fact.as_object_mut().unwrap().extend(object(members));
        let draft = last([call("c", "x"), fact]);
        (draft.payload.to_value()["error"].clone(), draft.payload.to_value().get("output").cloned())
    };
    assert_eq!(error(json!({"result": "no", "error": "no"})), (json!({"message": "no"}), None));
    assert_eq!(error(json!({"result": "Denied"})), (json!({"message": "Denied"}), None));
    assert_eq!(error(json!({"result": "half", "error": "no"})), (json!({"message": "no"}), Some(json!("half"))));
    assert_eq!(error(json!({})), (json!({"message": "the tool failed without saying why"}), None));
    for code in ["input_invalid", "not_available", "execution_failed", "STALE_WRITE", "of_tomorrow"] {
        let coded = json!({"code": code, "message": "no"});
        assert_eq!(error(json!({"error": "no", "code": code})).0, coded);
        assert_eq!(error(json!({"error": {"message": "no", "code": code}})).0, coded);
    }
}

#[test]
fn a_failed_end_without_a_start_is_marked_never_started() {
    let never_started = |facts: Vec<Value>| last(facts).payload.to_value().get("neverStarted").cloned();
    assert_eq!(never_started(vec![failed("c", "x")]), Some(json!(true)));
    assert_eq!(never_started(vec![call("c", "x"), failed("c", "x")]), None);
    assert_eq!(never_started(vec![ended("c", "x", "1")]), None, "a call with a result ran, even without a start event");
    assert_eq!(never_started(vec![call("c", "x"), failed("c", "x"), failed("c", "x")]), None);
    assert_eq!(
        last([call("c", "x"), event("tool_end", json!({"toolCallId": "c", "ok": false}))]).payload.to_value()["toolName"],
        "x"
    );
}

#[test]
fn a_truncation_is_counted_in_the_registry_s_units() {
    let cut = |result: &str| last([ended("c", "x", result)]).payload.to_value().get("truncated").cloned();
    assert_eq!(cut("12345\n[truncated — 1005 chars total]"), Some(json!(1000)));
    assert_eq!(cut("12345\n[truncated -- 1005 chars total]"), Some(json!(1000)));
    assert_eq!(cut("12345[truncated -- 1005 chars total]\n"), Some(json!(1000)));
    assert_eq!(cut("a😀\n[truncated — 5 chars total]"), Some(json!(2)), "an emoji has two UTF-16 units");
    for unreadable in ["many", "", "-4", "99999999999999999999999", "1"] {
        assert_eq!(cut(&format!("12345\n[truncated -- {unreadable} chars total]")), Some(json!(true)), "{unreadable}");
    }
    assert_eq!(cut("<untrusted source=\"x\">12345\n[truncated — 1005 chars total]\n</untrusted>"), Some(json!(true)));
    for whole in ["", "[truncated", "[truncated — 5 chars total] and more", "chars total]"] {
        assert_eq!(cut(whole), None, "{whole}");
    }
    let kept = last([ended("c", "x", "12345\n[truncated — 1005 chars total]")]);
    assert_eq!(kept.text("output"), Some("12345\n[truncated — 1005 chars total]"));
}

#[test]
fn untrusted_output_is_recognised_by_ethos_marks() {
    let untrusted = |facts: Vec<Value>| last(facts).payload.to_value().get("untrusted").cloned();
    let flagged = |mut fact: Value, member: &str, flag: Value| {
        fact[member] = flag;
        fact
    };
    let wrapped = "<untrusted source=\"https://x\" tool=\"fetch\">\nhi\n</untrusted>";
    assert_eq!(untrusted(vec![ended("c", "x", wrapped)]), Some(json!(true)));
    assert_eq!(untrusted(vec![ended("c", "x", "see <untrusted source=\"x\"> there")]), None);
    assert_eq!(untrusted(vec![flagged(ended("c", "x", "hi"), "outputIsUntrusted", json!(true))]), Some(json!(true)));
    assert_eq!(untrusted(vec![flagged(ended("c", "x", "hi"), "untrusted", json!(false))]), None);
    assert_eq!(
        untrusted(vec![flagged(call("c", "x"), "outputIsUntrusted", json!(true)), ended("c", "x", "hi")]),
        Some(json!(true))
    );
    let odd = last([flagged(ended("c", "x", "hi"), "untrusted", json!("yes"))]);
    assert_eq!((odd.payload.to_value().get("untrusted"), &odd.extra["untrusted"]), (None, &json!("yes")));
}

#[test]
fn an_announced_approval_is_not_pending() {
    let announced = event("tool_approval_required", json!({"toolCallId": "c", "toolName": "deploy", "args": {"env": "prod"}}));
    let draft = last([announced]);
    assert_eq!((draft.event_type.clone(), draft.scope.clone()), (EventType::PermissionChanged, Scope::ToolCall));
    let expected =
        json!({"toolName": "deploy", "permissionId": "c", "requiresApproval": true, "gated": false, "input": {"env": "prod"}});
    assert_eq!((payload(&draft), draft.surface, draft.ids.action), (expected, Surface::ToolUi, None));
}

#[test]
fn an_approval_response_names_the_action_of_its_call() {
    let answer =
        |approved: bool| event("tool_approval_response", json!({"toolCallId": "c", "approved": approved, "reason": "r"}));
    let draft = last([answer(false)]);
    assert_eq!(draft.ids.action.as_ref().unwrap().as_str(), "approval:c");
    assert_eq!(payload(&draft), json!({"kind": "tool_approval", "outcome": "rejected", "reason": "r"}));
    let asked = event("tool.approval_required", json!({"request": {"approvalId": "ap", "toolCallId": "c"}}));
    let draft = last([asked, answer(true)]);
    assert_eq!((draft.ids.action.unwrap().as_str(), &draft.payload.to_value()["outcome"]), ("ap", &json!("approved")));
}
