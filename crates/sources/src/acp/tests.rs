//! Tests of the ACP adapter: each trap of the protocol in one sentence.

use super::*;
use crate::FactError;
use crate::samples::{self, object, of_class as of, with};
use proscenium_model::{Audience, EventType, Owner, Phase};
use serde_json::json;

fn agent(message: Value) -> Value {
    json!({"from": "agent", "message": message})
}

fn client(message: Value) -> Value {
    json!({"from": "client", "message": message})
}

fn update_in(session: &str, update: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})
}

fn update(update: Value) -> Value {
    agent(update_in("s", update))
}

fn chunk(text: &str) -> Value {
    update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

fn call(id: &str, members: Value) -> Value {
    update(with(json!({"sessionUpdate": "tool_call_update", "toolCallId": id}), members))
}

fn prompt_in(session: &str, id: u64) -> Value {
    let prompt = json!([{"type": "text", "text": format!("Question {id}")}]);
    client(json!({"id": id, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}))
}

fn prompt() -> Value {
    prompt_in("s", 0)
}

fn stopped(reason: &str) -> Value {
    agent(json!({"id": 0, "result": {"stopReason": reason}}))
}

fn permission(id: u64, call: &str) -> Value {
    let options = json!([
        {"optionId": "no", "name": "Yes", "kind": "allow_once"},
        {"optionId": "yes", "name": "Never", "kind": "reject_always"},
    ]);
    let call = json!({"toolCallId": call, "title": "Remove", "rawInput": {"command": "rm"}});
    agent(
        json!({"id": id, "method": "session/request_permission", "params": {"sessionId": "s", "toolCall": call, "options": options}}),
    )
}

fn chosen(id: u64, option: &str) -> Value {
    client(json!({"id": id, "result": {"outcome": {"outcome": "selected", "optionId": option}}}))
}

fn drafts(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

fn classes(drafts: &[Draft]) -> Vec<&str> {
    drafts.iter().map(|draft| draft.event_type.as_str()).collect()
}

fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
    drafts(facts).pop().unwrap()
}

/// The members that all three forms of a fact share.
fn bare(fact: Value) -> Value {
    fact["message"].clone()
}

#[test]
fn a_turn_lasts_from_the_prompt_to_its_response() {
    let drafts = drafts([prompt(), chunk("He"), chunk("llo"), stopped("end_turn")]);
    let expected = ["run.started", "text.final", "text.delta", "text.delta", "text.final", "run.finished"];
    assert_eq!(classes(&drafts), expected);
    assert_eq!((drafts[1].text("role"), drafts[1].text("text")), (Some("user"), Some("Question 0")));
    assert_eq!((&drafts[2].ids.part, &drafts[2].ids.message), (&drafts[4].ids.part, &drafts[4].ids.message));
    assert_eq!((drafts[5].phase.clone(), drafts[5].text("reason")), (Phase::Completed, Some("end_turn")));
    assert_eq!((drafts[2].ids.thread.as_ref().unwrap().as_str(), drafts[2].ids.session.as_ref().unwrap().as_str()), ("s", "s"));
}

#[test]
fn a_response_belongs_to_the_request_of_the_other_end() {
    let drafts = drafts([prompt(), permission(0, "c"), chosen(0, "no"), chunk("Done."), stopped("end_turn")]);
    assert_eq!(of(&drafts, EventType::ActionResolved)[0].text("outcome"), Some("approved"));
    assert_eq!(drafts.last().unwrap().event_type, EventType::RunFinished);
}

#[test]
fn every_stop_reason_has_its_end() {
    for (reason, phase) in [
        ("end_turn", Phase::Completed),
        ("cancelled", Phase::Cancelled),
        ("max_tokens", Phase::Interrupted),
        ("max_turn_requests", Phase::Interrupted),
        ("refusal", Phase::Completed),
        ("of_tomorrow", Phase::Completed),
    ] {
        let end = last([prompt(), stopped(reason)]);
        assert_eq!((end.event_type.clone(), end.phase.clone()), (EventType::RunFinished, phase), "{reason}");
        assert_eq!(end.payload.contains_key("refused"), reason == "refusal");
    }
}

#[test]
fn an_error_response_fails_the_turn_with_its_details() {
    let error = json!({"code": -32603, "message": "Internal error", "data": {"details": "overloaded"}});
    let end = last([prompt(), chunk("API Error"), agent(json!({"id": 0, "error": error}))]);
    let expected = json!({"code": "-32603", "message": "Internal error", "details": "overloaded"});
    assert_eq!((end.event_type, &end.payload.to_value()["error"]), (EventType::RunFailed, &expected));
}

#[test]
fn an_agent_that_wants_a_sign_in_waits_for_it() {
    let error = agent(json!({"id": 0, "error": {"code": -32000, "message": "Sign in"}}));
    let drafts = drafts([prompt(), error, prompt_in("s", 1)]);
    let expected = ["run.started", "text.final", "action.required", "run.status", "action.resolved", "run.started", "text.final"];
    assert_eq!(classes(&drafts), expected);
    assert_eq!((drafts[2].text("kind"), drafts[3].phase.clone()), (Some("credential_request"), Phase::Waiting));
    assert_eq!(drafts[2].ids.action, drafts[4].ids.action);
}

#[test]
fn without_the_client_the_first_update_starts_a_turn_and_a_stop_reason_ends_it() {
    let facts = [chunk("Hi"), stopped("end_turn"), chunk("Again"), stopped("end_turn")].map(bare);
    let classes = drafts(facts).iter().map(|draft| draft.event_type.as_str().to_owned()).collect::<Vec<_>>();
    let turn = ["run.started", "text.delta", "text.final", "run.finished"];
    assert_eq!(classes, [turn, turn].concat());
}

#[test]
fn the_parameters_of_an_update_are_a_fact_without_turns() {
    let fact = |text: &str| json!({"sessionId": "s", "update": bare(chunk(text))["params"]["update"]});
    assert_eq!(classes(&drafts([fact("a"), fact("b")])), ["run.started", "text.delta", "text.delta"]);
}

#[test]
fn a_thought_is_never_the_same_part_as_the_text_of_its_id() {
    let said = |kind: &str| update(json!({"sessionUpdate": kind, "messageId": "m", "content": {"type": "text", "text": "x"}}));
    let drafts = drafts([prompt(), said("agent_thought_chunk"), said("agent_message_chunk"), stopped("end_turn")]);
    let (thought, text) = (&of(&drafts, EventType::ReasoningDelta)[0].ids, &of(&drafts, EventType::TextDelta)[0].ids);
    assert_eq!(thought.message, text.message);
    assert_ne!(thought.part, text.part);
    assert_eq!(of(&drafts, EventType::ReasoningSummary).len(), 1);
}

#[test]
fn a_message_without_an_id_ends_where_other_content_comes() {
    let drafts = drafts([prompt(), chunk("a"), call("c", json!({"title": "T"})), chunk("b"), stopped("end_turn")]);
    let texts = of(&drafts, EventType::TextDelta);
    assert_ne!(texts[0].ids.message, texts[1].ids.message);
}

#[test]
fn an_update_may_be_the_first_mention_of_a_call_and_a_later_announcement_is_an_update() {
    let announced = update(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Late", "status": "pending"}));
    let drafts = drafts([prompt(), call("c", json!({"title": "Read", "kind": "read", "status": "in_progress"})), announced]);
    let starts = of(&drafts, EventType::ToolStarted);
    assert_eq!((starts.len(), starts[0].text("toolName"), starts[0].text("message")), (1, Some("read"), Some("Read")));
    assert_eq!(drafts.last().unwrap().text("message"), Some("Late"));
}

#[test]
fn content_replaces_and_is_never_appended() {
    let content = |text: &str| json!({"content": [{"type": "content", "content": {"type": "text", "text": text}}]});
    let drafts = drafts([prompt(), call("c", content("1/2")), call("c", content("2/2"))]);
    let messages: Vec<_> = of(&drafts, EventType::ToolProgress).iter().map(|draft| draft.text("message")).collect();
    assert_eq!(messages, [Some("1/2"), Some("2/2")]);
}

#[test]
fn the_output_is_the_text_else_the_raw_output() {
    let text = json!({"status": "completed", "rawOutput": {"n": 1}, "content": [{"type": "content", "content": {"type": "text", "text": "one"}}]});
    let result = last([prompt(), call("c", text)]);
    assert_eq!(
        (&result.payload.to_value()["output"], &result.payload.to_value()["rawOutput"], result.audience),
        (&json!("one"), &json!({"n": 1}), Audience::User)
    );
    let result = last([prompt(), call("c", json!({"status": "completed", "rawOutput": {"n": 1}}))]);
    assert_eq!(result.payload.to_value()["output"], json!({"n": 1}));
    let failed = last([prompt(), call("c", json!({"status": "failed", "rawOutput": "no file"}))]);
    assert_eq!((failed.event_type, &failed.payload.to_value()["error"]), (EventType::ToolFailed, &json!({"message": "no file"})));
}

#[test]
fn a_repeated_input_or_diff_is_reported_once() {
    let members = json!({"rawInput": {"x": 1}, "content": [{"type": "diff", "path": "/a", "oldText": null, "newText": "b"}]});
    let drafts = drafts([prompt(), call("c", members.clone()), call("c", members)]);
    assert_eq!((of(&drafts, EventType::ToolArgs).len(), of(&drafts, EventType::ArtifactDiffReady).len()), (1, 1));
    let diff = of(&drafts, EventType::ArtifactDiffReady)[0];
    assert_eq!(
        (diff.text("path"), &diff.payload.to_value()["isNew"], &diff.payload.to_value()["bytes"]),
        (Some("/a"), &json!(true), &json!(1))
    );
}

#[test]
fn a_permission_may_be_the_first_mention_of_its_call() {
    let drafts = drafts([prompt(), permission(3, "c")]);
    let action = drafts.last().unwrap();
    assert_eq!(classes(&drafts[2..]), ["tool.started", "tool.args", "action.required"]);
    assert_eq!(
        (action.ids.action.as_ref().unwrap().as_str(), &action.payload.to_value()["input"]),
        ("s:3", &json!({"command": "rm"}))
    );
    assert_eq!((action.owner.clone(), action.text("title")), (Owner::Policy, None), "the title is the call's");
    assert_eq!(
        action.payload.to_value()["options"][0],
        json!({"optionId": "no", "name": "Yes", "kind": "allow_once", "label": "Yes"})
    );
}

#[test]
fn only_the_kind_of_an_option_says_what_was_chosen() {
    let outcome = |answer: Value| last([prompt(), permission(0, "c"), answer]).text("outcome").map(str::to_owned);
    assert_eq!(outcome(chosen(0, "no")).as_deref(), Some("approved"));
    assert_eq!(outcome(chosen(0, "yes")).as_deref(), Some("rejected"));
    let cancelled = client(json!({"id": 0, "result": {"outcome": {"outcome": "cancelled"}}}));
    assert_eq!(outcome(cancelled).as_deref(), Some("cancelled"));
}

#[test]
fn two_permissions_may_be_answered_in_the_other_order() {
    let drafts = drafts([prompt(), permission(0, "a"), permission(1, "b"), chosen(1, "yes"), chosen(0, "no")]);
    let answers: Vec<_> = of(&drafts, EventType::ActionResolved)
        .iter()
        .map(|draft| (draft.ids.tool_call.as_ref().unwrap().to_string(), draft.text("outcome").unwrap().to_owned()))
        .collect();
    assert_eq!(answers, [("b".into(), "rejected".into()), ("a".into(), "approved".into())]);
}

#[test]
fn without_the_client_the_next_status_of_the_call_answers_its_permission() {
    for (status, outcome) in [("in_progress", "approved"), ("completed", "approved"), ("failed", "rejected")] {
        let drafts = drafts([chunk("a"), permission(0, "c"), call("c", json!({"status": status}))].map(bare));
        assert_eq!(of(&drafts, EventType::ActionResolved)[0].text("outcome"), Some(outcome), "{status}");
    }
}

#[test]
fn an_elicitation_is_answered_rejected_or_cancelled() {
    let ask = agent(json!({"id": 0, "method": "elicitation/create",
        "params": {"sessionId": "s", "mode": "form", "message": "Which?", "requestedSchema": {"type": "object"}}}));
    for (action, outcome) in [("accept", "answered"), ("decline", "rejected"), ("cancel", "cancelled")] {
        let answer = client(json!({"id": 0, "result": {"action": action, "content": {"a": 1}}}));
        let drafts = drafts([prompt(), ask.clone(), answer]);
        let asked = of(&drafts, EventType::ActionRequired)[0];
        assert_eq!(
            (asked.text("kind"), &asked.payload.to_value()["schema"]),
            (Some("structured_input"), &json!({"type": "object"}))
        );
        let resolved = drafts.last().unwrap();
        assert_eq!((resolved.text("outcome"), &resolved.payload.to_value()["value"]), (Some(outcome), &json!({"a": 1})));
    }
}

#[test]
fn a_replay_is_history_and_never_new_text() {
    let load = client(json!({"id": 0, "method": "session/load", "params": {"sessionId": "s"}}));
    let past = |kind: &str, text: &str| update(json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}));
    let loaded = agent(json!({"id": 0, "result": {}}));
    let drafts = drafts([
        load.clone(),
        past("user_message_chunk", "Hi"),
        past("agent_thought_chunk", "Hm"),
        past("agent_message_chunk", "Hello"),
        call("c", json!({"status": "completed"})),
        loaded.clone(),
        prompt_in("s", 1),
        chunk("New"),
        agent(json!({"id": 1, "result": {"stopReason": "end_turn"}})),
        load,
        past("agent_message_chunk", "New"),
        loaded,
    ]);
    let windows = of(&drafts, EventType::MessagesSnapshot);
    assert_eq!(windows.iter().map(|draft| draft.text("mode").unwrap()).collect::<Vec<_>>(), ["window"; 4]);
    assert_eq!((of(&drafts, EventType::RunStarted).len(), of(&drafts, EventType::TextDelta).len()), (1, 1));
    assert_eq!(of(&drafts, EventType::ToolStarted).len(), 0);
}

#[test]
fn a_late_chunk_continues_the_last_part_and_ends_it_again() {
    let late = drafts([prompt(), chunk("a"), stopped("cancelled"), chunk("b"), chunk("c")]);
    assert_eq!(classes(&late[5..]), ["text.delta", "text.final", "text.delta", "text.final"]);
    assert!(late[5..].iter().all(|draft| draft.ids.part == late[2].ids.part && draft.ids.message == late[2].ids.message));
    assert_eq!((late[2].reopens, late[5].reopens), (false, true));
    let next = drafts([prompt(), chunk("a"), stopped("end_turn"), prompt(), chunk("b"), stopped("end_turn")]);
    assert_ne!(next[2].ids.message, next[7].ids.message);
    assert_eq!(of(&next, EventType::TextFinal).len(), 4, "the next turn ends no part of the one before");
    let late = last([prompt(), stopped("end_turn"), call("c", json!({"status": "in_progress"}))]);
    assert_eq!(late.text("kind"), Some("late_call"));
}

#[test]
fn a_prompt_that_the_agent_repeats_in_chunks_is_said_once() {
    let user = |text: &str| update(json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}));
    let drafts = drafts([prompt(), user("Ques"), user("tion 0"), chunk("Hi"), user("Mine"), stopped("end_turn")]);
    let texts: Vec<_> = drafts.iter().filter(|draft| draft.payload.contains_key("role")).filter_map(|d| d.text("text")).collect();
    assert_eq!(texts, ["Question 0", "Mine"], "words after the agent's own are new");
    let repeated = drafts.iter().filter(|draft| draft.text("kind") == Some("repeated"));
    assert_eq!(repeated.filter_map(|draft| draft.payload.get("event")?.get("text")?.as_str()).collect::<String>(), "Question 0");
}

#[test]
fn a_blank_chunk_opens_no_message() {
    let drafts = drafts([prompt(), chunk(""), chunk("\n"), chunk("Hi"), chunk("\n"), chunk("you"), stopped("end_turn")]);
    let texts: Vec<_> =
        of(&drafts, EventType::TextDelta).iter().filter_map(|draft| draft.text("text").map(str::to_owned)).collect();
    assert_eq!(texts.concat(), "Hi\nyou");
}

#[test]
fn a_turn_whose_prompt_is_not_visible_begins_a_message_of_its_own() {
    let turns = drafts([chunk("a"), stopped("end_turn"), chunk("b"), stopped("end_turn")]);
    let deltas: Vec<_> = turns.iter().filter(|draft| draft.event_type == EventType::TextDelta).collect();
    let [first, second] = deltas[..] else { panic!("not two chunks: {deltas:?}") };
    assert!(first.ids.message != second.ids.message && !second.reopens, "{second:?}");
}

#[test]
fn a_late_result_of_a_call_is_its_result() {
    let late =
        last([prompt(), call("c", json!({"kind": "read"})), stopped("end_turn"), call("c", json!({"status": "completed"}))]);
    assert_eq!(late.event_type, EventType::ToolResult);
}

#[test]
fn the_output_of_a_terminal_is_its_new_tail() {
    let ask = |id: u64, method: &str| agent(json!({"id": id, "method": method, "params": {"sessionId": "s", "terminalId": "t"}}));
    let say = |id: u64, result: Value| client(json!({"id": id, "result": result}));
    let drafts = drafts([
        prompt(),
        ask(0, "terminal/create"),
        say(0, json!({"terminalId": "t"})),
        call("c", json!({"content": [{"type": "terminal", "terminalId": "t"}]})),
        ask(1, "terminal/output"),
        say(1, json!({"output": "ab", "truncated": false})),
        ask(2, "terminal/output"),
        say(2, json!({"output": "abcd", "truncated": false})),
        ask(3, "terminal/output"),
        say(3, json!({"output": "cdef", "truncated": true})),
    ]);
    let output: Vec<_> = of(&drafts, EventType::ToolOutputDelta).iter().map(|draft| draft.text("text").unwrap()).collect();
    assert_eq!(output, ["ab", "cd", "cdef"]);
}

#[test]
fn the_plan_of_a_session_is_replaced_as_a_whole() {
    let plan = |entries: Value| update(json!({"sessionUpdate": "plan", "entries": entries}));
    let drafts = drafts([prompt(), plan(json!([{"content": "a", "status": "pending"}])), plan(json!([]))]);
    let plans = of(&drafts, EventType::PlanFinal);
    assert_eq!((&plans[0].ids.part, &plans[0].ids.message), (&plans[1].ids.part, &plans[1].ids.message));
    assert_eq!(plans[1].payload.to_value()["entries"], json!([]));
}

#[test]
fn how_full_the_context_is_is_a_level_and_no_sum() {
    let level = last([update(json!({"sessionUpdate": "usage_update", "used": 10, "size": 100}))]);
    assert_eq!(
        (level.event_type.clone(), level.payload.to_value().get("usage"), level.audience),
        (EventType::MetricChanged, None, Audience::Dashboard)
    );
}

#[test]
fn facts_about_a_session_start_no_turn() {
    for kind in ["available_commands_update", "current_mode_update", "session_info_update", "usage_update", "notice"] {
        let drafts = drafts([bare(update(json!({"sessionUpdate": kind, "title": "T"})))]);
        assert_eq!(of(&drafts, EventType::RunStarted).len(), 0, "{kind}");
    }
}

#[test]
fn what_is_internal_never_reaches_a_user() {
    let secret = json!({"claudeCode": {"toolName": "Read", "toolResponse": "hidden"}});
    let drafts = drafts([
        client(json!({"id": 0, "method": "initialize", "params": {"clientInfo": "hidden"}})),
        agent(json!({"id": 0, "result": {"agentInfo": {"name": "A"}, "x": "hidden", "_meta": {"y": "hidden"}}})),
        prompt(),
        call(
            "c",
            json!({"status": "completed", "_meta": secret, "content": [{"type": "content", "_meta": "hidden", "content": {"type": "text", "text": "ok"}}]}),
        ),
        agent(json!({"id": 5, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "hidden"}})),
        client(json!({"id": 5, "result": {"content": "hidden"}})),
        agent(json!({"method": "_vendor/x", "params": {"x": "hidden"}})),
        update(json!({"sessionUpdate": "hologram", "x": "hidden"})),
    ]);
    for draft in &drafts {
        let shown = format!("{:?}{:?}", draft.payload, draft.extra).contains("hidden");
        assert!(!shown || draft.audience == Audience::Internal, "{draft:?}");
    }
    assert_eq!(of(&drafts, EventType::ToolResult)[0].text("toolName"), Some("Read"));
    assert_eq!(drafts.last().unwrap().ids.agent.as_ref().unwrap().as_str(), "A");
    assert!(drafts.iter().filter(|draft| format!("{:?}", draft.payload).contains("hidden")).count() >= 7);
}

#[test]
fn two_sessions_in_one_stream_are_flagged_and_their_calls_stay_apart() {
    let other = |update: Value| agent(update_in("t", update));
    let drafts = drafts([
        prompt(),
        prompt_in("t", 1),
        call("c", json!({"kind": "read"})),
        other(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "edit"})),
        agent(json!({"id": 1, "result": {"stopReason": "end_turn"}})),
        stopped("end_turn"),
    ]);
    let kinds: Vec<_> = of(&drafts, EventType::DiagnosticChanged).iter().map(|draft| draft.text("kind").unwrap()).collect();
    assert_eq!(kinds, ["interleaved_run", "interleaved_run"]);
    let calls: Vec<_> =
        of(&drafts, EventType::ToolStarted).iter().map(|d| d.ids.tool_call.clone().unwrap().to_string()).collect();
    assert_eq!(calls, ["c", "t/c"]);
    assert_eq!(of(&drafts, EventType::RunFinished).len(), 1);
}

#[test]
fn a_child_agent_speaks_in_its_own_session() {
    let child = update(json!({"sessionUpdate": "subagent_update", "sessionId": "child", "name": "Reviewer"}));
    let said =
        agent(update_in("child", json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}})));
    let drafts = drafts([prompt(), child.clone(), said, child, stopped("end_turn")]);
    let agents: Vec<_> = drafts[2..].iter().map(|draft| draft.ids.agent.as_ref().map(AgentId::as_str)).collect();
    assert_eq!(classes(&drafts[2..]), ["agent.spawned", "text.delta", "agent.changed", "text.final", "run.finished"]);
    assert_eq!(agents, [Some("child"), Some("child"), Some("child"), Some("child"), None]);
}

#[test]
fn the_second_protocol_marks_turns_by_the_session_state() {
    let state = |state: Value| update(json!({"sessionUpdate": "state_update", "state": state, "stopReason": "end_turn"}));
    let drafts = drafts([
        prompt(),
        agent(json!({"id": 0, "result": {"messageId": "u"}})),
        state(json!("running")),
        update(json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": "Buillt"}})),
        update(json!({"sessionUpdate": "agent_message", "messageId": "m", "content": [{"type": "text", "text": "Built"}]})),
        call("c", json!({"kind": "execute"})),
        update(
            json!({"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": {"type": "terminal", "terminalId": "t"}}),
        ),
        update(json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "Y8M="})),
        update(json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "qQo="})),
        state(json!("idle")),
    ]);
    let whole = of(&drafts, EventType::TextFinal)[1];
    assert_eq!((whole.text("text"), &whole.ids.part), (Some("Built"), &of(&drafts, EventType::TextDelta)[0].ids.part));
    let output: String = of(&drafts, EventType::ToolOutputDelta).iter().map(|draft| draft.text("text").unwrap()).collect();
    assert_eq!(output, "cé\n");
    assert_eq!(of(&drafts, EventType::RunFinished).len(), 1);
}

#[test]
fn only_a_fact_that_is_no_message_is_refused() {
    let refused = |fact: Value| (SOURCE.parse)(object(fact)).err();
    assert_eq!(refused(json!({"x": 1})), Some(FactError::NoType { member: "method" }));
    assert_eq!(refused(json!({"from": "agent"})).unwrap().member(), Some("message"));
    assert_eq!(refused(json!({"method": "session/update", "params": 7})), None);
    assert_eq!(refused(json!({"from": "moon", "message": {}})), None);
    assert_eq!(last([json!({"method": "session/update", "params": 7})]).text("kind"), Some("malformed_event"));
}
