//! Tests of the adapter of Claude Code's lines: each trap in one sentence.

use super::*;
use crate::FactError;
use crate::samples::{self, object, of_class as of, shown, with};
use proscenium_model::{Audience, EventType, Phase, Surface};
use serde_json::{Value, json};

fn init() -> Value {
    json!({"type": "system", "subtype": "init", "session_id": "s", "model": "m", "permissionMode": "default", "cwd": "/hidden"})
}

fn stream(event: Value) -> Value {
    json!({"type": "stream_event", "event": event, "parent_tool_use_id": null})
}

fn begin(id: &str) -> Value {
    stream(json!({"type": "message_start", "message": {"id": id}}))
}

fn block(index: u64, block: Value) -> Value {
    stream(json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: u64, delta: Value) -> Value {
    stream(json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn text_delta(text: &str) -> Value {
    delta(0, json!({"type": "text_delta", "text": text}))
}

fn assistant(id: &str, block: Value) -> Value {
    json!({"type": "assistant", "message": {"id": id, "model": "m", "content": [block]}, "parent_tool_use_id": null})
}

fn said(id: &str, text: &str) -> Value {
    assistant(id, json!({"type": "text", "text": text}))
}

fn tool_use(id: &str, name: &str, input: Value) -> Value {
    assistant("m", json!({"type": "tool_use", "id": id, "name": name, "input": input}))
}

fn result_of(id: &str, members: Value) -> Value {
    let block = with(json!({"type": "tool_result", "tool_use_id": id, "content": "out"}), members);
    json!({"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": null})
}

fn stop(members: Value) -> Value {
    with(
        json!({"type": "result", "subtype": "success", "is_error": false, "result": "Hello", "terminal_reason": "completed"}),
        members,
    )
}

fn ask(id: &str, call: &str, tool: &str) -> Value {
    json!({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool", "tool_name": tool,
        "input": {"command": "rm"}, "tool_use_id": call, "permission_suggestions": [
            {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "rm"}]}, {"type": "setMode", "mode": "acceptEdits", "destination": "session"}]}})
}

fn decided(decision: &str) -> Value {
    json!({"tool_result_meta": [{"id": "c", "permission_decision": {"decision": decision, "source": "user_temporary"}}]})
}

fn task(subtype: &str, members: Value) -> Value {
    with(json!({"type": "system", "subtype": subtype, "task_id": "a"}), members)
}

fn child(fact: Value) -> Value {
    with(fact, json!({"parent_tool_use_id": "c", "agent_id": "a"}))
}

fn drafts(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn end(result: Value) -> Draft {
    let drafts = drafts([init(), result]);
    drafts.into_iter().find(|draft| draft.event_type.is_run_boundary() && draft.event_type != EventType::RunStarted).unwrap()
}

#[test]
fn a_text_that_comes_three_times_is_one_text() {
    let text = json!({"type": "text", "text": ""});
    let drafts =
        drafts([init(), begin("m"), block(0, text), text_delta("Hel"), text_delta("lo"), said("m", "Hello"), stop(json!({}))]);
    assert_eq!(shown(&drafts), ["run.started", "text.delta", "text.delta", "text.delta", "text.final", "run.finished"]);
    let (chunk, whole) = (of(&drafts, EventType::TextDelta)[1], of(&drafts, EventType::TextFinal)[0]);
    assert_eq!((&chunk.ids.message, &chunk.ids.part), (&whole.ids.message, &whole.ids.part));
    assert_eq!(of(&drafts, EventType::RunFinished)[0].payload.to_value().get("result"), None);
}

#[test]
fn without_partial_messages_only_the_lines_have_the_text() {
    let drafts = drafts([init(), said("m", "One"), said("m", "Two"), stop(json!({}))]);
    let parts: Vec<_> = of(&drafts, EventType::TextFinal).iter().map(|d| d.ids.part.clone().unwrap().to_string()).collect();
    assert_eq!(parts, ["0", "1"], "a line has no index: it is the ordinal of its message's lines");
}

#[test]
fn success_with_an_error_is_a_failure() {
    for reason in ["api_error", "prompt_too_long"] {
        let end = end(stop(json!({"is_error": true, "terminal_reason": reason, "result": "Too long", "api_error_status": 529})));
        assert_eq!(
            (end.event_type, &end.payload.to_value()["error"]),
            (EventType::RunFailed, &json!({"code": reason, "message": "Too long"}))
        );
        assert_eq!(end.payload.to_value()["retryable"], true);
    }
}

#[test]
fn a_sentence_about_an_error_is_shown_and_is_no_answer() {
    let sentence = with(said("x", "API Error: hidden"), json!({"error": "authentication_failed"}));
    let drafts = drafts([init(), sentence, stop(json!({"is_error": true, "terminal_reason": "api_error"}))]);
    assert_eq!(of(&drafts, EventType::TextFinal).len(), 0);
    let notice = &of(&drafts, EventType::RunStatus)[0];
    assert_eq!((notice.text("message"), notice.audience), (Some("API Error: hidden"), Audience::User));
    assert_eq!(of(&drafts, EventType::RunFailed)[0].payload.to_value()["error"]["code"], "authentication_failed");
}

#[test]
fn an_abort_is_cancelled_and_its_errors_are_internal() {
    for reason in ["aborted_streaming", "aborted_tools"] {
        let members =
            json!({"subtype": "error_during_execution", "is_error": true, "terminal_reason": reason, "errors": ["hidden"]});
        let drafts = drafts([init(), stop(members)]);
        let end = of(&drafts, EventType::RunFinished)[0];
        assert_eq!(end.phase, Phase::Cancelled);
        assert!(!format!("{:?}", end.payload).contains("hidden"));
    }
}

#[test]
fn a_limit_interrupts_the_turn() {
    for subtype in ["error_max_turns", "error_max_budget_usd"] {
        let end = end(stop(json!({"subtype": subtype, "is_error": true})));
        assert_eq!((end.phase.clone(), end.text("reason")), (Phase::Interrupted, Some(subtype)));
    }
    let other = end(stop(json!({"subtype": "error_max_structured_output_retries", "is_error": true})));
    assert_eq!(other.event_type, EventType::RunFailed);
}

#[test]
fn an_init_after_a_result_is_the_next_attempt_and_one_in_mid_turn_is_none() {
    let drafts = drafts([init(), init(), stop(json!({})), init()]);
    let attempts: Vec<_> =
        of(&drafts, EventType::RunStarted).iter().map(|draft| draft.payload.to_value()["attempt"].clone()).collect();
    assert_eq!(attempts, [json!(1), json!(2)]);
    let started = of(&drafts, EventType::RunStarted)[0];
    assert_eq!((started.text("model"), started.ids.thread.as_ref().unwrap().as_str()), (Some("m"), "s"));
}

#[test]
fn a_process_of_another_session_in_one_stream_is_flagged() {
    let drafts = drafts([init(), with(init(), json!({"session_id": "t"}))]);
    assert!(drafts.iter().any(|draft| draft.text("kind") == Some("interleaved_run")));
}

#[test]
fn a_line_that_comes_again_adds_nothing() {
    let line = with(said("m", "x"), json!({"uuid": "u"}));
    let drafts = drafts([init(), line.clone(), line]);
    assert_eq!((of(&drafts, EventType::TextFinal).len(), drafts.last().unwrap().text("kind")), (1, Some("repeated_line")));
}

#[test]
fn only_a_person_speaks_as_the_user() {
    let user = |content: Value, members: Value| {
        with(json!({"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": null}), members)
    };
    let users = |facts: Vec<Value>| of(&drafts(facts), EventType::TextFinal).len();
    assert_eq!(users(vec![user(json!("[Request interrupted by user]"), json!({}))]), 0);
    assert_eq!(users(vec![user(json!([{"type": "text", "text": "Resume directly"}]), json!({}))]), 0);
    assert_eq!(users(vec![user(json!("The summary"), json!({"isReplay": true, "isSynthetic": true}))]), 0);
    assert_eq!(users(vec![user(json!("<local-command-stdout>x"), json!({"isReplay": true}))]), 0);
    assert_eq!(users(vec![user(json!("My words"), json!({"isReplay": true}))]), 1);
    let host = json!({"from": "host", "message": user(json!("My words"), json!({}))});
    assert_eq!(users(vec![host.clone()]), 1);
    assert_eq!(users(vec![host, user(json!("My words"), json!({"isReplay": true}))]), 1, "a replay repeats what the host sent");
}

#[test]
fn a_broken_stream_retracts_what_got_no_line() {
    let text = json!({"type": "text", "text": ""});
    let broken = with(stream(json!({"type": "message_stop"})), json!({"abandoned_blocks": {"from_block_index": 0}}));
    let drafts = drafts([init(), begin("m"), block(0, text.clone()), text_delta("Half"), broken, begin("n"), block(0, text)]);
    let repair = of(&drafts, EventType::MessagesSnapshot)[0];
    assert_eq!((repair.text("mode"), &repair.payload.to_value()["messages"][0]["parts"]), (Some("repair"), &json!([])));
}

#[test]
fn a_broken_stream_keeps_the_blocks_that_got_a_line() {
    let text = json!({"type": "text", "text": ""});
    let tool = json!({"type": "tool_use", "id": "c", "name": "Read"});
    let broken = with(stream(json!({"type": "message_stop"})), json!({"abandoned_blocks": {"from_block_index": 1}}));
    let facts = [init(), begin("m"), block(0, text.clone()), said("m", "Kept"), block(1, text), block(2, tool), broken];
    let drafts = drafts(facts);
    let finals: Vec<_> = of(&drafts, EventType::TextFinal).iter().map(|draft| draft.text("text").unwrap()).collect();
    assert_eq!((finals, of(&drafts, EventType::MessagesSnapshot).len()), (vec!["Kept", ""], 0));
    assert_eq!(of(&drafts, EventType::ToolFailed)[0].phase, Phase::Cancelled);
}

#[test]
fn the_result_of_a_call_answers_its_permission() {
    let outcome = |result: Value| {
        let drafts = drafts([init(), tool_use("c", "Bash", json!({})), ask("r", "c", "Bash"), result]);
        of(&drafts, EventType::ActionResolved)[0].text("outcome").unwrap().to_owned()
    };
    assert_eq!(outcome(with(result_of("c", json!({})), decided("accept"))), "approved");
    assert_eq!(outcome(with(result_of("c", json!({"is_error": true})), decided("accept"))), "approved");
    assert_eq!(outcome(with(result_of("c", json!({"is_error": true})), decided("reject"))), "rejected");
    assert_eq!(outcome(result_of("c", json!({"is_error": true}))), "rejected");
    assert_eq!(outcome(result_of("c", json!({}))), "approved");
    assert_eq!(outcome(json!({"type": "control_cancel_request", "request_id": "r"})), "cancelled");
    let host = |answer: Value| json!({"from": "host", "message": {"type": "control_response", "response": {"request_id": "r", "response": answer}}});
    assert_eq!(outcome(host(json!({"behavior": "allow"}))), "approved");
    assert_eq!(outcome(host(json!({"behavior": "deny"}))), "rejected");
}

#[test]
fn a_permission_offers_what_the_program_suggests() {
    let drafts = drafts([init(), ask("r", "c", "Bash")]);
    let action = of(&drafts, EventType::ActionRequired)[0];
    assert_eq!((action.text("kind"), &action.payload.to_value()["input"]), (Some("tool_approval"), &json!({"command": "rm"})));
    let labels: Vec<_> =
        action.payload.get("options").unwrap().list().unwrap().iter().map(|option| option["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["Allow", "Always allow Bash(rm)", "Allow, and use the mode acceptEdits", "Reject"]);
    let widths: Vec<_> = action.payload.get("options").unwrap().list().unwrap().iter().map(|option| &option["width"]).collect();
    assert_eq!(widths[1..3], [&json!("always"), &json!("session")], "the destination of the permission is its width");
}

#[test]
fn questions_and_plans_are_requests_of_their_own_kind() {
    let questions =
        json!({"questions": [{"question": "Which?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]}]});
    let mut question = ask("r", "c", "AskUserQuestion");
    question["request"]["input"] = questions;
    let answer = with(result_of("c", json!({})), json!({"tool_use_result": {"answers": {"Which?": "Red"}}}));
    let drafts = drafts([
        init(),
        question,
        answer,
        tool_use("p", "ExitPlanMode", json!({"plan": "1. Go"})),
        ask("q", "p", "ExitPlanMode"),
    ]);
    let asked = of(&drafts, EventType::ActionRequired);
    assert_eq!((asked[0].text("kind"), asked[1].text("kind")), (Some("structured_input"), Some("plan_decision")));
    assert_eq!(asked[0].payload.to_value()["schema"]["properties"]["Which?"]["enum"], json!(["Red", "Blue"]));
    let red = json!({"optionId": "Red", "label": "Red", "kind": "answer", "value": {"Which?": "Red"}});
    assert_eq!(asked[0].payload.to_value()["options"][0], red);
    let resolved = of(&drafts, EventType::ActionResolved)[0];
    assert_eq!((resolved.text("outcome"), &resolved.payload.to_value()["value"]), (Some("answered"), &json!({"Which?": "Red"})));
    assert_eq!(of(&drafts, EventType::PlanFinal)[0].text("text"), Some("1. Go"), "the plan is in the call, not in the request");
}

#[test]
fn a_command_that_an_interrupt_stops_is_cancelled_and_was_started() {
    let meta = json!({"tool_result_meta": [{"id": "c", "non_execution_kind": "user-rejected"}]});
    let rejected = with(result_of("c", json!({"is_error": true})), meta);
    let receipt = json!({"type": "control_response", "response": {"response": {"still_queued": []}}});
    let failed = |facts: Vec<Value>| of(&drafts(facts), EventType::ToolFailed)[0].clone();
    let interrupted = failed(vec![init(), tool_use("c", "Bash", json!({})), receipt, rejected.clone()]);
    assert_eq!((interrupted.phase, interrupted.payload.to_value().get("neverStarted")), (Phase::Cancelled, None));
    let refused = failed(vec![init(), tool_use("c", "Bash", json!({})), rejected]);
    assert_eq!((refused.phase, &refused.payload.to_value()["neverStarted"]), (Phase::Failed, &json!(true)));
}

#[test]
fn a_turn_that_ends_with_an_open_permission_waits() {
    let drafts = drafts([init(), ask("r", "c", "Bash"), stop(json!({}))]);
    assert_eq!(of(&drafts, EventType::RunFinished).len(), 0);
    assert_eq!(of(&drafts, EventType::RunStatus).last().unwrap().phase, Phase::Waiting);
}

#[test]
fn arguments_are_streamed_and_then_whole() {
    let tool = json!({"type": "tool_use", "id": "c", "name": "Read", "input": {}});
    let json_delta = |text: &str| delta(0, json!({"type": "input_json_delta", "partial_json": text}));
    let facts =
        [init(), begin("m"), block(0, tool), json_delta(""), json_delta("{\"a\""), tool_use("c", "Read", json!({"a": 1}))];
    let drafts = drafts(facts);
    let args = of(&drafts, EventType::ToolArgs);
    assert_eq!((args.len(), args[0].text("inputText"), args[0].audience), (2, Some("{\"a\""), Audience::Dashboard));
    assert_eq!((&args[1].payload.to_value()["input"], of(&drafts, EventType::ToolStarted).len()), (&json!({"a": 1}), 1));
}

#[test]
fn a_child_speaks_apart_and_its_calls_have_its_name() {
    let drafts = drafts([
        init(),
        tool_use("c", "Task", json!({})),
        task("task_started", json!({"task_type": "local_agent", "tool_use_id": "c", "subagent_type": "reviewer"})),
        child(json!({"type": "user", "message": {"content": [{"type": "text", "text": "Review"}]}})),
        child(tool_use("c", "Read", json!({}))),
        child(said("m", "Fine")),
        child(result_of("c", json!({}))),
        task("task_updated", json!({"patch": {"status": "completed"}})),
        task("task_notification", json!({"status": "completed", "summary": "Fine", "output_file": "/hidden"})),
        result_of("c", json!({})),
    ]);
    let texts = of(&drafts, EventType::TextFinal);
    assert!(
        texts
            .iter()
            .all(|draft| draft.surface == Surface::TeammateTranscript && draft.ids.agent.as_ref().unwrap().as_str() == "a")
    );
    assert_eq!(texts[0].text("role"), Some("user"), "its first text is its prompt");
    let calls: Vec<_> =
        of(&drafts, EventType::ToolStarted).iter().map(|d| d.ids.tool_call.clone().unwrap().to_string()).collect();
    assert_eq!(calls, ["c", "a/c"], "a child may reuse an id of its parent");
    let results: Vec<_> =
        of(&drafts, EventType::ToolResult).iter().map(|d| d.ids.tool_call.clone().unwrap().to_string()).collect();
    assert_eq!(results, ["a/c", "c"]);
    assert_eq!((of(&drafts, EventType::AgentCompleted).len(), of(&drafts, EventType::WorkerNotification).len()), (1, 1));
}

#[test]
fn the_launch_in_the_background_ends_the_call_and_not_the_agent() {
    let launched = with(result_of("c", json!({})), json!({"tool_use_result": {"isAsync": true}}));
    let started = task("task_started", json!({"task_type": "local_agent", "tool_use_id": "c", "is_backgrounded": true}));
    let drafts = drafts([init(), tool_use("c", "Task", json!({})), started, launched, stop(json!({})), child(said("n", "Late"))]);
    assert_eq!(
        (of(&drafts, EventType::AgentCompleted).len(), of(&drafts, EventType::ToolResult)[0].audience),
        (0, Audience::Dashboard)
    );
    assert_eq!(of(&drafts, EventType::RunStarted).len(), 1, "a child's line starts no turn");
}

#[test]
fn a_result_waits_for_the_agents_in_the_background_and_their_end_leads_to_the_answer() {
    let started = task("task_started", json!({"task_type": "local_agent", "tool_use_id": "c"}));
    let ended = task("task_notification", json!({"status": "completed"}));
    let turns = [init(), started, said("m", "I wait."), stop(json!({})), ended, init(), said("n", "Done."), stop(json!({}))];
    let drafts = drafts(turns);
    let lifecycle =
        |draft: &&Draft| draft.event_type.as_str().starts_with("run.") || draft.event_type == EventType::AgentCompleted;
    let lifecycle: Vec<_> =
        drafts.iter().filter(lifecycle).map(|draft| (draft.event_type.as_str(), draft.text("status").unwrap_or("-"))).collect();
    let expected = [
        ("run.started", "-"),
        ("run.status", "waiting"),
        ("agent.completed", "completed"),
        ("run.status", "-"),
        ("run.finished", "completed"),
    ];
    assert_eq!(lifecycle, expected);
    assert_eq!(of(&drafts, EventType::RunStatus)[1].payload.to_value()["resumed"], true);
}

#[test]
fn a_turn_that_fails_does_not_wait_for_its_agents() {
    let started = task("task_started", json!({"task_type": "local_agent", "tool_use_id": "c"}));
    let drafts = drafts([init(), started, stop(json!({"is_error": true, "terminal_reason": "api_error"}))]);
    assert_eq!(of(&drafts, EventType::RunFailed).len(), 1);
}

#[test]
fn a_slow_command_is_its_call_and_a_background_command_is_a_task() {
    let started = |is_backgrounded: bool| {
        task("task_started", json!({"task_type": "local_bash", "is_backgrounded": is_backgrounded, "tool_use_id": "c"}))
    };
    assert_eq!(drafts([init(), started(false)]).last().unwrap().event_type, EventType::ToolProgress);
    assert_eq!(drafts([init(), started(true)]).last().unwrap().event_type, EventType::TaskChanged);
}

#[test]
fn a_provider_s_tool_has_its_result_in_the_assistant_message() {
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "w", "content": [{"title": "T", "encrypted_content": "hidden"}]});
    let request = assistant("m", json!({"type": "server_tool_use", "id": "w", "name": "web_search", "input": {"query": "q"}}));
    let failed = json!({"type": "web_search_tool_result", "tool_use_id": "w", "content": {"error_code": "unavailable"}});
    let drafts = drafts([init(), request, assistant("m", found), assistant("m", failed)]);
    assert_eq!(of(&drafts, EventType::ToolResult)[0].payload.to_value()["output"], json!([{"title": "T"}]));
    assert_eq!(of(&drafts, EventType::ToolFailed)[0].payload.to_value()["error"]["code"], "unavailable");
}

#[test]
fn an_edit_has_a_diff_and_tasks_come_from_the_structured_result() {
    let patch = json!({"tool_use_result": {"filePath": "/a", "originalFile": "hidden", "structuredPatch": [{"lines": [" x", "-y", "+z", "+w"]}]}});
    let task = json!({"tool_use_result": {"task": {"id": "1", "subject": "Read"}}});
    let drafts = drafts([
        init(),
        tool_use("e", "Edit", json!({})),
        with(result_of("e", json!({})), patch),
        tool_use("t", "TaskCreate", json!({})),
        with(result_of("t", json!({})), task),
    ]);
    let diff = of(&drafts, EventType::ArtifactDiffReady)[0];
    assert_eq!((diff.text("path"), &diff.payload.to_value()["diffStat"]), (Some("/a"), &json!({"added": 2, "removed": 1})));
    let todo = of(&drafts, EventType::TaskChanged)[0];
    assert_eq!(
        (todo.text("title"), todo.text("status"), todo.surface.clone()),
        (Some("Read"), Some("open"), Surface::TaskCapsule)
    );
}

#[test]
fn a_turn_costs_what_the_process_cost_more_than_before() {
    let spent = |total: f64| stop(json!({"total_cost_usd": total, "usage": {"input_tokens": 3}}));
    let drafts = drafts([init(), spent(0.5), init(), spent(0.75), init(), spent(0.25)]);
    let costs: Vec<_> =
        of(&drafts, EventType::MetricChanged).iter().map(|draft| draft.payload.to_value()["usage"]["costUsd"].clone()).collect();
    assert_eq!(costs, [json!(0.5), json!(0.25), json!(0.25)]);
}

#[test]
fn a_compaction_before_the_init_belongs_to_the_turn_that_it_starts() {
    let status = |members: Value| with(json!({"type": "system", "subtype": "status"}), members);
    let drafts = drafts([
        status(json!({"status": "compacting"})),
        status(json!({"status": null, "compact_result": "success"})),
        init(),
        json!({"type": "system", "subtype": "compact_boundary", "compact_metadata": {"trigger": "manual"}}),
        status(json!({"status": "compacting"})),
        status(json!({"status": null, "compact_result": "failed", "compact_error": "x"})),
    ]);
    assert_eq!(of(&drafts, EventType::RunStarted).len(), 1);
    let ends = of(&drafts, EventType::ContextCompactionCompleted);
    assert_eq!((ends.len(), ends[0].phase.clone(), ends[1].phase.clone()), (2, Phase::Reconciling, Phase::Failed));
    assert_eq!(
        of(&drafts, EventType::ContextCompactionStarted)[0].payload.to_value()["compactionId"],
        ends[0].payload.to_value()["compactionId"]
    );
}

#[test]
fn what_is_internal_never_reaches_a_user() {
    let drafts = drafts([
        init(),
        json!({"type": "control_response", "response": {"response": {"account": "hidden"}}}),
        tool_use("c", "Read", json!({})),
        with(result_of("c", json!({})), json!({"tool_use_result": {"file": "hidden"}})),
        assistant("m", json!({"type": "redacted_thinking", "data": "hidden"})),
        json!({"type": "system", "subtype": "hook_response", "stdout": "hidden"}),
        json!({"type": "system", "subtype": "of_tomorrow", "x": "hidden"}),
        json!({"type": "rate_limit_event", "x": "hidden"}),
        stop(json!({"permission_denials": ["hidden"], "modelUsage": "hidden"})),
    ]);
    for draft in &drafts {
        assert!(
            draft.audience != Audience::User || !format!("{:?}{:?}", draft.payload, draft.extra).contains("hidden"),
            "{draft:?}"
        );
    }
    assert!(drafts.iter().filter(|draft| format!("{:?}{:?}", draft.payload, draft.extra).contains("hidden")).count() >= 6);
}

#[test]
fn only_a_fact_that_is_no_line_is_refused() {
    let refused = |fact: Value| (SOURCE.parse)(object(fact)).err();
    assert_eq!(refused(json!({"x": 1})), Some(FactError::NoType { member: "type" }));
    assert_eq!(refused(json!({"from": "moon", "message": {}})).unwrap().member(), Some("from"));
    assert_eq!(refused(json!({"from": "host"})).unwrap().member(), Some("message"));
    assert_eq!(refused(json!({"type": "assistant"})), None);
    assert_eq!(drafts([json!({"type": "assistant"})])[0].text("kind"), Some("malformed_event"));
    assert_eq!(drafts([json!({"type": "keep_alive"})]).len(), 0);
}

#[test]
fn a_line_of_a_session_file_is_refused_by_name_and_a_line_of_the_process_is_not() {
    let line = json!({"type": "user", "parentUuid": null, "isSidechain": false, "sessionId": "s", "message": {"role": "user", "content": "Hi"}});
    let lines =
        [line.clone(), json!({"from": "claude", "message": line}), json!({"type": "summary", "summary": "Hi", "leafUuid": "u"})];
    for line in lines {
        let refused = event::parse(object(line)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("session file") && refused.contains("stream-json --verbose"), "{refused}");
    }
    assert!(event::parse(object(said("m", "Hi"))).is_ok());
}

#[test]
fn an_image_that_a_tool_returns_is_an_image_and_no_text_in_base64() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}});
    let content = json!([{"type": "text", "text": "A picture"}, image]);
    let drafts =
        drafts([init(), tool_use("c", "Read", json!({"file_path": "a.png"})), result_of("c", json!({"content": content}))]);
    let of = |kind: EventType| drafts.iter().find(|draft| draft.event_type == kind).unwrap();
    let (artifact, result) = (of(EventType::ArtifactChanged), of(EventType::ToolResult));
    let members = ["kind", "mediaType", "body"].map(|member| artifact.payload.to_value()[member].clone());
    assert_eq!(json!(members), json!(["image", "image/png", "data:image/png;base64,iVBORw0K"]));
    let id = artifact.ids.artifact.as_ref().unwrap();
    assert_eq!(result.payload.to_value()["output"][1], json!({"type": "image", "mediaType": "image/png", "artifactId": id}));
    assert_eq!(artifact.ids.tool_call, result.ids.tool_call);
}
