//! Tests of the adapter, one rule per test.
//! The tests save and restore the adapter after each fact.

mod canonical;

use super::SOURCE;
use super::event::TYPE;
use crate::bounded::CALLS_OPEN_MAX;
use crate::report::PROGRESS;
use crate::samples::{
    self, adapt_for, call_of, class, classes, find, given, lengths, message_of, object, of_class, part_of, payload,
};
use crate::{DryRun, FactError};
use proscenium_model::{AgentId, Audience, Draft, EventType, Owner, Phase, SessionId, Surface};
use serde_json::{Value, json};

fn event(event_type: &str, mut members: Value) -> Value {
    members[TYPE] = event_type.into();
    members
}

fn start(run: &str) -> Value {
    event("run_start", json!({"thread_id": "t", "run_id": run, "identity": {"agent_id": "a", "origin": "user"}}))
}

fn finish_as(run: &str, termination: &str) -> Value {
    event("run_finish", json!({"thread_id": "t", "run_id": run, "termination": {"type": termination}}))
}

fn step(message: &str) -> Value {
    event("step_start", json!({"message_id": message}))
}

fn step_end() -> Value {
    event("step_end", json!({}))
}

fn text(delta: &str) -> Value {
    event("text_delta", json!({"delta": delta}))
}

fn call(id: &str) -> [Value; 2] {
    [
        event("tool_call_start", json!({"id": id, "name": "rm"})),
        event("tool_call_ready", json!({"id": id, "name": "rm", "arguments": {"path": "/"}})),
    ]
}

fn done(id: &str, outcome: &str, result: Value) -> Value {
    event("tool_call_done", json!({"id": id, "message_id": "", "result": result, "outcome": outcome}))
}

fn suspended(id: &str, mode: &str) -> Value {
    let ticket = json!({
        "suspension": {
            "id": format!("ask-{id}"), "action": "tool:PermissionConfirm", "message": "Sure?", "response_schema": {"type": "object"},
            "parameters": {"args": {"path": "/"}, "tool": "rm", "risk": "high", "options": ["yes"], "scope": "once"},
        },
        "pending": {"id": id, "name": "rm", "arguments": {"path": "/"}},
        "resume_mode": mode,
    });
    done(id, "suspended", json!({"tool_name": "rm", "status": "pending", "data": null, "message": "waits", "suspension": ticket}))
}

fn resumed(id: &str, result: Value) -> Value {
    event("tool_call_resumed", json!({"target_id": id, "result": result}))
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    adapt(facts).pop().unwrap()
}

#[test]
fn a_run_start_sets_session_thread_and_agent_and_keeps_awaken_s_run_id_as_a_reference() {
    let facts = event(
        "run_start",
        json!({"thread_id": "t", "run_id": "native", "parent_run_id": "p", "identity": {"thread_id": "t", "run_id": "native",
            "session_id": "s", "agent_id": "a", "origin": "user", "dispatch_id": "d"}}),
    );
    let draft = last([facts.clone()]);
    assert_eq!(draft.ids.session.as_ref().unwrap().as_str(), "s");
    assert_eq!(draft.ids.thread.as_ref().unwrap().as_str(), "t");
    assert_eq!(draft.ids.agent.as_ref().unwrap().as_str(), "a");
    assert_eq!(draft.ids.run.as_ref().unwrap().as_str(), "run");
    assert_eq!(draft.refs, Some(json!({"runId": "native", "parentRunId": "p"})));
    assert_eq!(payload(&draft), json!({"attempt": 1, "identity": {"origin": "user", "dispatch_id": "d"}}));

    let mut given = given();
    given.session = SessionId::new("mine").ok();
    given.agent = AgentId::new("boss").ok();
    let draft = adapt_for(&SOURCE, &given, [facts]).remove(0);
    assert_eq!((draft.ids.session.unwrap().as_str(), draft.ids.agent.unwrap().as_str()), ("mine", "boss"));
}

#[test]
fn a_suspension_is_a_pause_and_the_second_start_resumes_the_run() {
    let drafts = adapt([start("r"), finish_as("r", "suspended"), start("r"), finish_as("r", "natural_end")]);
    assert_eq!(classes(&drafts), ["run.started accepted", "run.status waiting", "run.status acting", "run.finished completed"]);
    assert_eq!(drafts[2].payload.to_value()["resumed"], true);
}

#[test]
fn a_suspended_run_may_be_cancelled_without_starting_again() {
    let drafts = adapt([start("r"), finish_as("r", "suspended"), finish_as("r", "cancelled"), start("r")]);
    assert_eq!(classes(&drafts)[1..], ["run.status waiting", "run.finished cancelled", "run.started accepted"]);
}

#[test]
fn another_run_may_start_while_the_first_is_suspended() {
    let drafts = adapt([start("r"), finish_as("r", "suspended"), start("x"), finish_as("x", "natural_end")]);
    assert_eq!(classes(&drafts)[2..], ["run.started accepted", "run.finished completed"]);
}

#[test]
fn a_start_after_an_end_is_another_attempt() {
    let drafts = adapt([start("r"), finish_as("r", "error"), start("r"), finish_as("r", "natural_end"), start("other")]);
    let attempts: Vec<_> = drafts.iter().filter_map(|d| d.payload.to_value().get("attempt")?.as_u64()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(drafts[4].refs, Some(json!({"runId": "other"})));
}

#[test]
fn a_run_that_starts_within_another_is_flagged_and_ends_nothing() {
    let facts = [start("r"), step("m"), text("a"), start("x"), text("b"), finish_as("x", "natural_end"), text("c")];
    let drafts = adapt(facts);
    let flagged = of_class(&drafts, EventType::DiagnosticChanged);
    assert_eq!(flagged.len(), 2);
    assert!(flagged.iter().all(|d| d.payload.to_value()["kind"] == "interleaved_run" && d.audience == Audience::Internal));
    assert_eq!(flagged[0].payload.to_value()["event"]["run_id"], "x");
    assert!(!drafts.iter().any(|d| d.event_type == EventType::RunFinished));
    let parts: Vec<_> = drafts.iter().filter(|d| d.event_type == EventType::TextDelta).map(|d| d.ids.part.clone()).collect();
    assert!(parts.iter().all(|part| *part == parts[0]));
}

#[test]
fn a_restart_without_an_end_closes_all_open_items() {
    let [begin, ready] = call("c");
    let drafts = adapt([start("r"), step("m"), text("a"), begin, ready, start("r")]);
    let expected = ["text.final reconciling", "tool.failed interrupted", "run.started accepted"];
    assert_eq!(classes(&drafts)[drafts.len() - 3..], expected);
}

#[test]
fn every_termination_is_distinguished() {
    let ends = |termination: Value, result: Value| {
        let draft = last([start("r"), event("run_finish", json!({"run_id": "r", "termination": termination, "result": result}))]);
        (class(&draft), draft)
    };
    let waiting = json!({"status": "waiting", "status_reason": "awaiting_tasks"});
    for (termination, result, expected) in [
        (json!({"type": "natural_end"}), json!({"status": "done"}), "run.finished completed"),
        (json!({"type": "natural_end"}), waiting, "run.status waiting"),
        (json!({"type": "behavior_requested"}), Value::Null, "run.finished completed"),
        (json!({"type": "plugin_requested"}), Value::Null, "run.finished completed"),
        (json!({"type": "cancelled"}), json!({"status": "waiting"}), "run.finished cancelled"),
        (json!({"type": "suspended"}), Value::Null, "run.status waiting"),
        (json!({"type": "of_tomorrow", "value": 7}), Value::Null, "run.finished unknown"),
        (Value::Null, Value::Null, "run.finished unknown"),
    ] {
        assert_eq!(ends(termination.clone(), result).0, expected, "{termination}");
    }
    let (stopped, draft) = ends(json!({"type": "stopped", "value": {"code": "max_rounds", "detail": "25"}}), Value::Null);
    assert_eq!(stopped, "run.finished interrupted");
    assert_eq!((&draft.payload.to_value()["code"], &draft.payload.to_value()["detail"]), (&json!("max_rounds"), &json!("25")));
    let (blocked, draft) = ends(json!({"type": "blocked", "value": "forbidden"}), Value::Null);
    assert_eq!((blocked.as_str(), draft.owner.clone()), ("run.failed failed", Owner::Policy));
    assert_eq!(draft.payload.to_value()["error"], json!({"code": "blocked", "message": "forbidden"}));
    let (error, draft) = ends(json!({"type": "error", "value": "no key"}), Value::Null);
    assert_eq!(error, "run.failed failed");
    assert_eq!(draft.payload.to_value()["error"], json!({"message": "no key"}));
}

#[test]
fn a_step_is_one_message_and_its_end_seals_the_streams_without_repeating_the_text() {
    let thought = event("reasoning_delta", json!({"delta": "hm"}));
    let [begin, ready] = call("c");
    let drafts = adapt([start("r"), step("m"), thought, text("a"), text("b"), begin, text("c"), ready, step_end()]);
    let named = |d: &Draft| {
        let name = format!("{} {}/{} {}", d.event_type, message_of(d), part_of(d), d.text("text").unwrap_or("-"));
        name.replace("awaken-", "")
    };
    let expected = [
        "reasoning.delta m/part-1 hm",
        "text.delta m/part-2 a",
        "text.delta m/part-2 b",
        "tool.started m/- -",
        "text.delta m/part-3 c",
        "tool.args -/- -",
        "reasoning.summary m/part-1 -",
        "text.final m/- -",
        "run.status -/- -",
    ];
    assert_eq!(drafts[2..].iter().map(named).collect::<Vec<_>>(), expected);
    assert!(drafts[2..].iter().all(|d| d.ids.turn.as_ref().unwrap().as_str() == "m"));
    assert_eq!(drafts.last().unwrap().audience, Audience::Dashboard);
}

#[test]
fn a_step_without_an_id_gets_a_generated_id() {
    let drafts = adapt([step(""), text("a"), step_end(), text("b")]);
    let messages: Vec<_> = drafts.iter().filter_map(|d| d.ids.message.as_ref().map(|m| m.as_str().to_owned())).collect();
    assert_eq!(messages, ["awaken-message-1", "awaken-message-1", "awaken-message-2"]);
}

#[test]
fn the_response_is_the_answer_only_if_no_text_was_streamed() {
    let end = |response: &str| {
        event("run_finish", json!({"run_id": "r", "termination": {"type": "natural_end"}, "result": {"response": response}}))
    };
    let finals = |facts: Vec<Value>| {
        let drafts = adapt(facts);
        drafts
            .iter()
            .filter(|d| d.event_type == EventType::TextFinal)
            .map(|d| d.text("text").map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(finals(vec![start("r"), step("m"), step_end(), end("whole")]), [Some("whole".to_owned())]);
    assert_eq!(finals(vec![start("r"), step("m"), text("who"), text("le"), step_end(), end("le")]), [None]);
    assert_eq!(finals(vec![start("r"), end("")]), []);
}

#[test]
fn a_reset_voids_the_step_s_streams_and_later_chunks_are_new_parts_of_the_same_message() {
    let begin = event("tool_call_start", json!({"id": "half", "name": "rm"}));
    let args = event("tool_call_delta", json!({"id": "half", "args_delta": "{\"pa"}));
    let reset = event("stream_reset", json!({"reason": "reset by peer"}));
    let [whole, ready] = call("whole");
    let drafts = adapt([step("m"), text("a"), whole, ready, begin, args, reset, text("b"), step_end()]);
    let repair = find(&drafts, EventType::MessagesSnapshot);
    assert_eq!(repair.payload.to_value()["mode"], "repair");
    assert_eq!(repair.payload.to_value()["messages"], json!([{"messageId": "m", "role": "assistant", "parts": []}]));
    let failed = of_class(&drafts, EventType::ToolFailed);
    assert_eq!(failed.len(), 1, "a ready call continues");
    assert_eq!(call_of(failed[0]), "half");
    assert_eq!((failed[0].phase.clone(), failed[0].audience), (Phase::Cancelled, Audience::Dashboard));
    assert_eq!(
        (&failed[0].payload.to_value()["neverStarted"], &failed[0].payload.to_value()["inputTextBytes"]),
        (&json!(true), &json!(4))
    );
    let texts = of_class(&drafts, EventType::TextDelta);
    assert_eq!(texts[0].ids.message, texts[1].ids.message);
    assert_ne!(texts[0].ids.part, texts[1].ids.part);
    assert_eq!(of_class(&drafts, EventType::TextFinal).len(), 1);
}

#[test]
fn a_reset_without_later_chunks_leaves_nothing_to_seal() {
    let drafts = adapt([step("m"), text("a"), event("stream_reset", json!({})), step_end()]);
    assert_eq!(classes(&drafts)[2..], ["messages.snapshot reconciling", "run.status acting"]);
}

#[test]
fn a_call_goes_from_request_to_result() {
    let [begin, ready] = call("c");
    let args = event("tool_call_delta", json!({"id": "c", "args_delta": "{"}));
    let output = event("tool_call_stream_delta", json!({"id": "c", "name": "rm", "delta": "gone"}));
    let end = done(
        "c",
        "succeeded",
        json!({"tool_name": "rm", "status": "success", "data": {"n": 1}, "message": null,
        "metadata": {"mcp.server": "web"}, "of_tomorrow": 1}),
    );
    let drafts = adapt([begin, args, ready, output, end]);
    let seen: Vec<_> = drafts.iter().map(|d| format!("{} {} {}", d.event_type, d.owner, d.audience)).collect();
    let expected = [
        "tool.started model user",
        "tool.args model dashboard",
        "tool.args model user",
        "tool.output.delta tool user",
        "tool.result tool user",
    ];
    assert_eq!(seen, expected);
    assert_eq!(payload(&drafts[0]), json!({"toolName": "rm"}));
    assert_eq!(payload(&drafts[2]), json!({"input": {"path": "/"}}));
    assert_eq!(payload(&drafts[3]), json!({"text": "gone"}));
    let result =
        json!({"toolName": "rm", "output": {"n": 1}, "status": "completed", "metadata": {"mcp.server": "web"}, "of_tomorrow": 1});
    assert_eq!(payload(&drafts[4]), result);
    assert!(drafts.iter().all(|d| call_of(d) == "c"));
}

#[test]
fn each_of_awaken_s_failure_forms_is_recognised() {
    let failed = |result: Value| adapt([done("c", "failed", result)]);
    let code = |drafts: &[Draft]| drafts.last().unwrap().payload.to_value()["error"].get("code").cloned();
    let plain = failed(json!({"status": "error", "data": null, "message": "boom"}));
    assert_eq!((classes(&plain), code(&plain)), (vec!["tool.failed failed".to_owned()], None));
    let timeout = failed(json!({"message": "Timeout: 30s", "metadata": {"timed_out": true}}));
    assert_eq!(code(&timeout), Some(json!("timeout")));
    let cancelled = failed(json!({"message": "Cancelled: run cancelled"}));
    assert_eq!((classes(&cancelled), code(&cancelled)), (vec!["tool.failed cancelled".to_owned()], Some(json!("cancelled"))));
    let rejected = failed(json!({"message": "forbidden", "metadata": {"rejected": true}}));
    assert_eq!(classes(&rejected), ["permission.changed acting", "tool.failed failed"]);
    assert_eq!(rejected[0].owner, Owner::Policy);
    let coded = failed(json!({"message": "[E] 502", "data": {"error": {"code": "E", "message": "502"}}}));
    assert_eq!(code(&coded), Some(json!("E")));
    assert_eq!(coded[0].payload.to_value()["data"], json!({"error": {"code": "E", "message": "502"}}));
    let silent = failed(json!({"message": null}));
    assert_eq!(silent[0].payload.to_value()["error"]["message"], "the tool failed without saying why");
}

#[test]
fn the_resume_mode_of_a_suspended_call_sets_the_action_kind() {
    let [begin, ready] = call("c");
    let ask = |mode: &str| last([begin.clone(), ready.clone(), suspended("c", mode)]);
    let approval = ask("replay_tool_call");
    assert_eq!((approval.event_type.clone(), approval.owner.clone()), (EventType::ActionRequired, Owner::Policy));
    assert_eq!(approval.ids.action.as_ref().unwrap().as_str(), "ask-c");
    assert_eq!(call_of(&approval), "c");
    let expected = json!({
        "toolName": "rm", "kind": "tool_approval", "message": "Sure?", "schema": {"type": "object"}, "options": ["yes"],
        "risk": "high", "input": {"path": "/"}, "resumeMode": "replay_tool_call", "action": "tool:PermissionConfirm",
        "scope": "once",
    });
    assert_eq!(payload(&approval), expected);
    let client = ask("use_decision_as_tool_result");
    assert_eq!((client.owner.clone(), &client.payload.to_value()["kind"]), (Owner::Action, &json!("structured_input")));
    assert_eq!(ask("pass_decision_to_tool").payload.to_value()["kind"], "structured_input");
}

#[test]
fn an_answer_resolves_its_action_and_its_result_sets_the_call_s_end() {
    let answered = |mode: &str, result: Value| {
        let [begin, ready] = call("c");
        let drafts = adapt([begin, ready, suspended("c", mode), resumed("c", result)]);
        assert_eq!(drafts[3].ids.action.as_ref().unwrap().as_str(), "ask-c");
        (drafts[3].payload.to_value()["outcome"].clone(), classes(&drafts[4..]).remove(0), drafts)
    };
    let (outcome, end, drafts) = answered("replay_tool_call", json!({"deleted": 1}));
    assert_eq!((outcome, end.as_str()), (json!("approved"), "tool.result completed"));
    assert_eq!(payload(&drafts[4]), json!({"status": "completed", "toolName": "rm", "output": {"deleted": 1}}));
    assert_eq!(drafts[3].payload.to_value().get("value"), None);
    let (outcome, end, drafts) = answered("replay_tool_call", json!({"approved": false}));
    assert_eq!((outcome, end.as_str()), (json!("rejected"), "tool.failed cancelled"));
    assert_eq!(drafts[4].payload.to_value()["neverStarted"], true);
    let (outcome, end, drafts) = answered("replay_tool_call", json!({"error": "disk full", "hint": 1}));
    assert_eq!((outcome, end.as_str()), (json!("approved"), "tool.failed failed"));
    assert_eq!(payload(&drafts[4]), json!({"error": {"message": "disk full"}, "hint": 1, "toolName": "rm"}));
    let (outcome, end, drafts) = answered("use_decision_as_tool_result", json!({"data": {"x": 1}, "metadata": {"m": 1}}));
    assert_eq!((outcome, end.as_str()), (json!("answered"), "tool.result completed"));
    assert_eq!(
        (&drafts[4].payload.to_value()["output"], &drafts[4].payload.to_value()["metadata"]),
        (&json!({"x": 1}), &json!({"m": 1}))
    );
    let (outcome, ..) = answered("use_decision_as_tool_result", json!({"approved": false}));
    assert_eq!(outcome, "cancelled");
}

#[test]
fn an_answer_may_name_the_suspension_instead_of_the_call() {
    let [begin, ready] = call("c");
    let drafts = adapt([begin, ready, suspended("c", "replay_tool_call"), resumed("ask-c", json!(1))]);
    assert!(drafts[3..].iter().all(|d| call_of(d) == "c"));
    let unasked = adapt([resumed("c", json!(1))]);
    assert_eq!(classes(&unasked), ["tool.result completed"]);
}

#[test]
fn a_call_with_an_incomplete_request_ends_with_its_step() {
    let drafts = adapt([step("m"), event("tool_call_start", json!({"id": "c", "name": "rm"})), step_end()]);
    assert_eq!(classes(&drafts)[2..], ["tool.failed cancelled", "run.status acting"]);
    let cancelled = last([event("tool_call_cancel", json!({"id": "c", "name": "rm", "reason": "stream broke"}))]);
    assert_eq!(
        payload(&cancelled),
        json!({"error": {"code": "cancelled", "message": "stream broke"}, "neverStarted": true, "toolName": "rm"})
    );
}

fn activity(target: &str, name: &str, content: Value) -> Value {
    event("activity_snapshot", json!({"message_id": target, "activity_type": name, "content": content, "replace": true}))
}

#[test]
fn progress_uses_the_protocol_s_names_and_keeps_the_rest() {
    let content = json!({"schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "tool_name": "rm",
        "status": "running", "progress": 0.5, "loaded": 1, "total": 2, "message": "half", "run_id": "r"});
    let draft = last([start("r"), activity("c", PROGRESS, content)]);
    let expected = json!({"toolName": "rm", "status": "running", "progress": 0.5, "loaded": 1, "total": 2, "message": "half",
        "schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "run_id": "r"});
    assert_eq!(payload(&draft), expected);
    assert_eq!((draft.audience, draft.refs.clone()), (Audience::User, None));
}

#[test]
fn other_activities_belong_to_a_known_call_or_to_a_message() {
    let [begin, _] = call("c");
    let draft = last([begin, activity("c", "log", json!("line"))]);
    assert_eq!(payload(&draft), json!({"activityType": "log", "content": "line", "replace": true}));
    assert_eq!((draft.ids.tool_call.unwrap().as_str(), draft.ids.message), ("c", None));
    let draft = last([event("activity_snapshot", json!({"message_id": "m", "activity_type": "plan", "content": {}}))]);
    assert_eq!(payload(&draft), json!({"activityType": "plan", "content": {}}));
    assert_eq!((draft.ids.tool_call, draft.ids.message.unwrap().as_str()), (None, "m"));
    for (patch, expected) in
        [(json!({"op": "add"}), json!([{"op": "add"}])), (json!([]), json!([])), (Value::Null, json!([null]))]
    {
        let draft = last([event("activity_delta", json!({"message_id": "m", "activity_type": "plan", "patch": patch}))]);
        assert_eq!((&draft.payload.to_value()["patch"], draft.audience), (&expected, Audience::User));
    }
}

#[test]
fn the_end_of_a_delegating_call_reports_its_child() {
    let result = json!({"tool_name": "delegate", "status": "success", "message": null, "metadata": {"child_run_id": "cr"},
        "data": {"agent_id": "researcher", "response": "found", "status": "completed"}});
    let drafts = adapt([start("r"), done("c", "succeeded", result)]);
    assert_eq!(classes(&drafts)[1..], ["tool.result completed", "worker.notification archived", "agent.completed completed"]);
    assert!(drafts[2..].iter().all(|d| d.ids.agent.as_ref().unwrap().as_str() == "researcher"));
    assert_eq!(drafts[2].payload.to_value()["summary"], "found");
    assert_eq!(drafts[2].refs, Some(json!({"childRunId": "cr"})));
    let nameless = adapt([start("r"), done("c", "failed", json!({"message": "no", "metadata": {"child_run_id": "cr"}}))]);
    assert_eq!(classes(&nameless)[1..], ["tool.failed failed", "worker.notification archived"]);
    assert_eq!(nameless[2].ids.agent, None);
}

#[test]
fn a_child_agent_s_run_spawns_and_completes_the_agent() {
    let begin = event(
        "run_start",
        json!({"thread_id": "t", "run_id": "r", "parent_run_id": "p",
        "identity": {"agent_id": "kid", "parent_thread_id": "pt", "parent_tool_call_id": "pc", "origin": "subagent"}}),
    );
    let drafts = adapt([begin.clone(), finish_as("r", "suspended"), begin, finish_as("r", "cancelled")]);
    let expected = [
        "run.started accepted",
        "agent.spawned acting",
        "run.status waiting",
        "run.status acting",
        "agent.completed cancelled",
        "run.finished cancelled",
    ];
    assert_eq!(classes(&drafts), expected);
    assert_eq!(drafts[1].ids.agent.as_ref().unwrap().as_str(), "kid");
    assert_eq!(drafts[1].ids.parent_thread.as_ref().unwrap().as_str(), "pt");
    assert_eq!(drafts[1].refs, Some(json!({"runId": "r", "parentRunId": "p", "parentToolCallId": "pc"})));
}

#[test]
fn state_is_internal_and_a_compaction_is_reported_once_by_its_numbers() {
    let state = |total: u64| {
        let boundary = json!({"summary": "SECRET", "pre_tokens": 900, "post_tokens": 90, "timestamp_ms": 1_767_225_600_000_i64});
        let boundaries = vec![boundary; total as usize];
        let compaction = json!({"boundaries": boundaries, "total_compactions": total});
        event("state_snapshot", json!({"snapshot": {"revision": 1, "extensions": {"__context_compaction": compaction}}}))
    };
    let drafts = adapt([state(0), state(1), state(1), state(2)]);
    let (states, compactions): (Vec<_>, Vec<_>) = drafts.iter().partition(|d| d.event_type == EventType::StateSnapshot);
    assert!(states.iter().all(|d| d.audience == Audience::Internal && d.surface == Surface::Diagnostics));
    assert_eq!(compactions.len(), 2);
    let expected = json!({"compactionId": "awaken-compaction-1", "totalCompactions": 1, "preTokens": 900, "postTokens": 90});
    assert_eq!(payload(compactions[0]), expected);
    assert_eq!(compactions[0].timestamp.as_deref(), Some("2026-01-01T00:00:00Z"));
    let delta = last([event("state_delta", json!({"delta": [{"op": "add"}]}))]);
    assert_eq!((delta.audience, payload(&delta)), (Audience::Internal, json!({"patch": [{"op": "add"}]})));
}

#[test]
fn encrypted_reasoning_keeps_only_its_length() {
    let draft = last([event("reasoning_encrypted_value", json!({"encrypted_value": "b3BhcXVl", "provider": "x"}))]);
    assert_eq!(payload(&draft), json!({"kind": "reasoning_encrypted_value", "bytes": 8}));
    assert_eq!((draft.audience, &draft.extra["provider"]), (Audience::Internal, &json!("x")));
}

#[test]
fn usage_has_the_protocol_s_names() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "cache_read_tokens": 1, "of_tomorrow": 9});
    let draft = last([event("inference_complete", json!({"model": "m", "usage": usage, "duration_ms": 5}))]);
    let expected = json!({"model": "m", "durationMs": 5,
        "usage": {"inputTokens": 3, "outputTokens": 2, "cacheReadTokens": 1, "of_tomorrow": 9}});
    assert_eq!((payload(&draft), draft.audience), (expected, Audience::Dashboard));
}

#[test]
fn a_history_window_has_the_protocol_s_shape() {
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"id": "m", "role": "assistant", "tool_calls": [1], "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}, {"type": "image", "url": "/i"},
        ]},
        {"id": "s", "role": "system", "content": "be nice"},
        "odd",
    ]);
    let draft = last([event("messages_snapshot", json!({"messages": messages}))]);
    let shaped = json!([
        {"messageId": "awaken-message-1", "role": "user", "parts": [{"partId": "awaken-part-1", "kind": "user_text", "text": ["hi"]}]},
        {"messageId": "m", "role": "assistant", "parts": [
            {"partId": "awaken-part-2", "kind": "reasoning_summary", "text": ["hm"]},
            {"partId": "awaken-part-3", "kind": "assistant_text", "text": ["hello"]},
        ], "tool_calls": [1], "content": [{"type": "image", "url": "/i"}]},
        {"messageId": "s", "role": "system", "parts": [{"partId": "awaken-part-4", "kind": "diagnostic", "text": ["be nice"]}]},
        "odd",
    ]);
    assert_eq!((&draft.payload.to_value()["mode"], &draft.payload.to_value()["messages"]), (&json!("window"), &shaped));
}

#[test]
fn an_error_fails_the_run_and_a_later_start_tries_again() {
    let drafts = adapt([start("r"), step("m"), text("a"), event("error", json!({"message": "boom", "code": "LLM"})), start("r")]);
    assert_eq!(classes(&drafts)[3..], ["text.final reconciling", "run.failed failed", "run.started accepted"]);
    assert_eq!(payload(&drafts[4]), json!({"error": {"code": "LLM", "message": "boom"}, "retryable": true}));
    assert_eq!(drafts[5].payload.to_value()["attempt"], 2);
}

#[test]
fn unknown_and_malformed_events_are_kept_internal_and_never_an_error() {
    let unknown = last([event("of_tomorrow", json!({"x": 1}))]);
    assert_eq!(
        (unknown.event_type.clone(), &unknown.payload.to_value()["event"]),
        (EventType::DiagnosticChanged, &json!({"x": 1}))
    );
    for broken in [
        event("text_delta", json!({"delta": 7})),
        event("tool_call_start", json!({"id": 7, "name": "x"})),
        event("tool_call_done", json!({"id": "c", "outcome": "of_tomorrow", "result": {"data": 1}})),
        event("activity_delta", json!({"message_id": "m"})),
    ] {
        let draft = last([broken.clone()]);
        assert_eq!((draft.event_type.clone(), draft.audience), (EventType::DiagnosticChanged, Audience::Internal), "{broken}");
    }
    let refused = |fact: Value| DryRun::new(&SOURCE).adapt(object(fact), &given()).unwrap_err();
    assert_eq!(refused(json!({"type": "text_delta"})), FactError::NoType { member: TYPE });
}

#[test]
fn memory_is_bounded_with_many_open_calls() {
    let mut run = DryRun::new(&SOURCE);
    for n in 0..CALLS_OPEN_MAX + 10 {
        for fact in call(&format!("c{n}")).into_iter().chain([suspended(&format!("c{n}"), "replay_tool_call")]) {
            run.adapt(object(fact), &given()).unwrap();
        }
    }
    assert_eq!(lengths(&run, ["calls", "pending"]), [CALLS_OPEN_MAX; 2]);
}
