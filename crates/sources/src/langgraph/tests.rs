//! Tests of the LangGraph adapter: each trap in one sentence.

use super::*;
use crate::FactError;
use crate::samples::{self, object, of_class as of, shown, with};
use proscenium_model::{Audience, EventType, Phase};
use serde_json::json;
use std::collections::BTreeSet;

// ── dialect A ──

fn mode(name: &str, data: Value) -> Value {
    json!({"event": name, "data": data})
}

fn metadata(run: &str, attempt: u64) -> Value {
    mode("metadata", json!({"run_id": run, "attempt": attempt}))
}

fn start() -> Value {
    metadata("r", 1)
}

pub(super) fn chunk_with(id: &str, members: Value) -> Value {
    with(json!({"type": "AIMessageChunk", "id": id, "content": "", "tool_call_chunks": []}), members)
}

fn chunk(id: &str, text: &str) -> Value {
    mode(
        "messages",
        json!([chunk_with(id, json!({"content": text})), {"langgraph_node": "agent", "thread_id": "t", "auth": "hidden"}]),
    )
}

pub(super) fn ai(id: &str, text: &str) -> Value {
    json!({"type": "ai", "id": id, "content": text, "tool_calls": [], "invalid_tool_calls": []})
}

pub(super) fn calls(message: Value) -> Value {
    with(message, json!({"tool_calls": [{"id": "c", "name": "search", "args": {"q": "x"}}]}))
}

pub(super) fn tool(call: &str, members: Value) -> Value {
    with(
        json!({"type": "tool", "id": format!("tool-{call}"), "tool_call_id": call, "name": "search", "content": "found", "status": "success"}),
        members,
    )
}

fn updates(node: &str, messages: Value) -> Value {
    mode("updates", json!({node: {"messages": messages}}))
}

fn values(messages: Value) -> Value {
    mode("values", json!({"messages": messages}))
}

fn interrupt(id: &str, value: Value) -> Value {
    mode("updates", json!({"__interrupt__": [{"id": id, "value": value, "response_schema": null}]}))
}

fn within(namespace: &str, fact: Value) -> Value {
    let event = format!("{}|{namespace}", fact["event"].as_str().unwrap());
    with(fact, json!({"event": event}))
}

// ── dialect B ──

fn event_in(namespace: Value, method: &str, data: Value) -> Value {
    json!({"type": "event", "method": method, "seq": 1, "event_id": "a\u{0}b", "params": {"namespace": namespace, "timestamp": 0, "data": data}})
}

fn event(method: &str, data: Value) -> Value {
    event_in(json!([]), method, data)
}

fn lifecycle(name: &str) -> Value {
    event("lifecycle", json!({"event": name, "graph_name": "g"}))
}

// ── dialect C ──

pub(super) fn callback(name: &str, run: &str, parents: Value, data: Value) -> Value {
    json!({"event": name, "run_id": run, "name": "search", "tags": [], "metadata": {}, "parent_ids": parents, "data": data})
}

pub(super) fn drafts(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

pub(super) fn texts(drafts: &[Draft], class: EventType) -> Vec<String> {
    of(drafts, class).iter().map(|draft| draft.text("text").unwrap_or("-").to_owned()).collect()
}

#[test]
fn a_message_that_comes_in_pieces_in_an_update_and_in_the_state_is_one_text() {
    let facts = [
        start(),
        chunk("m", "He"),
        chunk("m", "llo"),
        updates("agent", json!([ai("m", "Hello")])),
        values(json!([ai("m", "Hello")])),
    ];
    let drafts = drafts(facts);
    assert_eq!(shown(&drafts), ["run.started", "text.delta", "text.delta", "text.final"]);
    assert_eq!(of(&drafts, EventType::TextDelta)[0].ids.part, of(&drafts, EventType::TextFinal)[0].ids.part);
    assert_eq!(drafts[0].refs, Some(json!({"runId": "r"})));
}

#[test]
fn a_message_that_comes_whole_under_another_id_is_one_text() {
    let whole = json!({"type": "ai", "id": "lc_run--1", "content": "Hello"});
    let last = json!([{"type": "AIMessageChunk", "id": "run-1", "content": "lo", "chunk_position": "last"}, {}]);
    for end in [chunk("run-1", "lo"), mode("messages", last)] {
        let edit = json!([{"type": "ai", "id": "lc_run--1", "content": "Hello!"}]);
        let facts = [start(), chunk("run-1", "Hel"), end, updates("agent", json!([whole])), values(json!([whole])), values(edit)];
        let drafts = drafts(facts);
        let messages: BTreeSet<_> = drafts.iter().filter_map(|draft| Some(draft.ids.message.as_ref()?.to_string())).collect();
        assert_eq!(messages.into_iter().collect::<Vec<_>>(), ["run-1"]);
        assert_eq!(of(&drafts, EventType::MessagesSnapshot)[0].payload.to_value()["messages"][0]["messageId"], "run-1");
    }
    let two = drafts([
        start(),
        chunk("a", "Yes"),
        updates("n", json!([{"type": "ai", "id": "a", "content": "Yes"}])),
        updates("n", json!([{"type": "ai", "id": "b", "content": "Yes"}])),
    ]);
    assert_eq!(of(&two, EventType::TextFinal).len(), 2, "a message that came whole is not another one");
}

#[test]
fn the_end_of_the_stream_is_no_end_of_the_run() {
    let drafts = drafts([start(), chunk("m", "x"), mode("end", Value::Null)]);
    assert!(!drafts.iter().any(|draft| matches!(draft.event_type, EventType::RunFinished | EventType::RunFailed)));
}

#[test]
fn only_an_error_ends_a_run_stream() {
    let drafts = drafts([start(), mode("error", json!({"error": "ValueError", "message": "bad"}))]);
    assert_eq!(of(&drafts, EventType::RunFailed)[0].payload.to_value()["error"], json!({"code": "ValueError", "message": "bad"}));
}

#[test]
fn an_accumulated_message_grows_by_its_tail() {
    let partial = |text: &str| mode("messages/partial", json!([ai("m", text)]));
    let drafts = drafts([start(), partial("He"), partial("Hello"), mode("messages/complete", json!([ai("m", "Hello")]))]);
    assert_eq!(texts(&drafts, EventType::TextDelta), ["He", "llo"]);
    assert_eq!(texts(&drafts, EventType::TextFinal), ["Hello"]);
}

#[test]
fn a_piece_is_known_by_its_type_or_by_its_pieces_of_calls() {
    let js = mode("messages", json!([{"type": "ai", "id": "m", "content": "a", "tool_call_chunks": []}, {}]));
    let canned = mode("messages", json!([ai("n", "whole"), {}]));
    let drafts = drafts([start(), js, canned]);
    assert_eq!(
        (texts(&drafts, EventType::TextDelta), texts(&drafts, EventType::TextFinal)),
        (vec!["a".into()], vec!["whole".into()])
    );
}

#[test]
fn pieces_of_a_call_are_joined_by_their_index_in_the_message() {
    let piece = |id: &str, members: Value| {
        mode(
            "messages",
            json!([
                chunk_with(
                    id,
                    json!({"tool_call_chunks": [members],
        "tool_calls": [{"name": "", "id": null, "args": {}}], "invalid_tool_calls": [{"name": null, "id": null, "args": "x"}]})
                ),
                {}
            ]),
        )
    };
    let drafts = drafts([
        start(),
        piece("m", json!({"id": "a", "name": "one", "args": "", "index": 0})),
        piece("m", json!({"id": null, "name": null, "args": "{\"x\"", "index": 0})),
        piece("n", json!({"id": "b", "name": "two", "args": "", "index": 0})),
        piece("n", json!({"id": null, "name": null, "args": "{\"y\"", "index": 0})),
    ]);
    let of_call = |class: EventType| {
        of(&drafts, class).iter().map(|draft| draft.ids.tool_call.clone().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (of_call(EventType::ToolStarted), of_call(EventType::ToolArgs)),
        (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
    );
    assert_eq!(of(&drafts, EventType::ToolFailed).len(), 0, "what a piece says of its own parse is nothing");
}

#[test]
fn a_call_ends_once_and_a_cached_update_ends_it_no_second_time() {
    let result = updates("tools", json!([tool("c", json!({"artifact": {"n": 1}}))]));
    let cached = mode("updates", json!({"tools": {"messages": [tool("c", json!({}))]}, "__metadata__": {"cached": true}}));
    let drafts = drafts([
        start(),
        updates("agent", json!([calls(ai("m", ""))])),
        mode("messages", json!([tool("c", json!({"artifact": {"n": 1}})), {}])),
        result,
        cached,
    ]);
    let results = of(&drafts, EventType::ToolResult);
    assert_eq!(
        (results.len(), &results[0].payload.to_value()["output"], &results[0].payload.to_value()["structured"]),
        (1, &json!("found"), &json!({"n": 1}))
    );
    assert_eq!(results[0].audience, Audience::User);
}

#[test]
fn only_the_status_of_a_tool_s_message_says_that_it_failed() {
    let failed = drafts([start(), updates("tools", json!([tool("c", json!({"status": "error", "content": "no"}))]))]);
    assert_eq!(of(&failed, EventType::ToolFailed)[0].payload.to_value()["error"], json!({"message": "no"}));
    let apology = drafts([start(), updates("tools", json!([tool("c", json!({"content": "Sorry"}))]))]);
    assert_eq!(of(&apology, EventType::ToolResult).len(), 1);
}

#[test]
fn a_call_with_arguments_that_are_no_json_fails_and_never_started() {
    let message = with(ai("m", ""), json!({"invalid_tool_calls": [{"id": "c", "name": "search", "args": "{", "error": null}]}));
    let failed = drafts([start(), updates("agent", json!([message]))]);
    assert_eq!(of(&failed, EventType::ToolFailed)[0].payload.to_value()["neverStarted"], true);
}

#[test]
fn another_text_of_a_known_message_is_an_edit_and_a_removal_empties_it() {
    let removed = updates("trim", json!([{"type": "remove", "id": "m", "content": ""}]));
    let drafts = drafts([start(), updates("a", json!([ai("m", "One")])), updates("b", json!([ai("m", "Two")])), removed]);
    let repairs = of(&drafts, EventType::MessagesSnapshot);
    assert_eq!(repairs.iter().map(|draft| draft.text("mode").unwrap()).collect::<Vec<_>>(), ["repair", "repair"]);
    assert_eq!(repairs[0].payload.to_value()["messages"][0]["parts"][0]["text"], json!(["Two"]));
    assert_eq!(repairs[1].payload.to_value()["messages"][0]["parts"], json!([]));
}

#[test]
fn the_text_of_a_message_is_that_of_its_text_blocks() {
    let blocks = json!([{"type": "thinking", "thinking": "Hm", "index": 0}, {"type": "text", "text": "Hi", "index": 1}, {"type": "image", "url": "u"}]);
    let drafts = drafts([start(), updates("agent", json!([with(ai("m", ""), json!({"content": blocks}))]))]);
    assert_eq!(
        (texts(&drafts, EventType::TextFinal), texts(&drafts, EventType::ReasoningSummary)),
        (vec!["Hi".into()], vec!["Hm".into()])
    );
    let beside = with(ai("n", "Hi"), json!({"additional_kwargs": {"reasoning_content": "Hm"}}));
    assert_eq!(texts(&drafts_of(beside), EventType::ReasoningSummary), ["Hm"]);
}

fn drafts_of(message: Value) -> Vec<Draft> {
    drafts([start(), updates("agent", json!([message]))])
}

#[test]
fn the_first_state_is_history_and_later_messages_are_new() {
    let human = json!({"type": "human", "id": "h", "content": "Hi"});
    let facts = [start(), values(json!([human, ai("old", "Old")])), values(json!([human, ai("old", "Old"), ai("new", "New")]))];
    let drafts = drafts(facts);
    let window = of(&drafts, EventType::MessagesSnapshot);
    assert_eq!(
        (window.len(), window[0].text("mode"), window[0].payload.to_value()["messages"].as_array().unwrap().len()),
        (1, Some("window"), 2)
    );
    assert_eq!(texts(&drafts, EventType::TextFinal), ["New"]);
}

#[test]
fn an_interrupt_that_is_announced_many_times_is_one_question() {
    let value = json!({"question": "Delete?", "options": ["approve", "reject"]});
    let announced = interrupt("i", value.clone());
    let in_state = mode("values", json!({"messages": [], "__interrupt__": [{"id": "i", "value": value}]}));
    let drafts = drafts([start(), within("a:1|b:2", announced.clone()), within("a:1", announced.clone()), announced, in_state]);
    let asked = of(&drafts, EventType::ActionRequired);
    assert_eq!((asked.len(), asked[0].text("kind"), asked[0].text("message")), (1, Some("clarification"), Some("Delete?")));
    let status = of(&drafts, EventType::RunStatus).into_iter().filter(|draft| draft.phase == Phase::Waiting).count();
    assert_eq!(status, 1);
}

#[test]
fn an_interrupt_of_an_older_version_has_no_id_and_is_one_question_too() {
    let old =
        mode("updates", json!({"__interrupt__": [{"value": "Go on?", "resumable": true, "ns": ["a:1"], "when": "during"}]}));
    let drafts = drafts([start(), old.clone(), old]);
    let asked = of(&drafts, EventType::ActionRequired);
    assert_eq!((asked.len(), asked[0].text("message")), (1, Some("Go on?")));
}

#[test]
fn a_breakpoint_waits_with_nothing_to_answer() {
    let drafts = drafts([start(), mode("updates", json!({"__interrupt__": []})), metadata("r2", 1)]);
    let waiting = of(&drafts, EventType::RunStatus)[0];
    assert_eq!((waiting.phase.clone(), &waiting.payload.to_value()["breakpoint"]), (Phase::Waiting, &json!(true)));
    assert_eq!(drafts.last().unwrap().payload.to_value()["resumed"], true);
}

#[test]
fn a_question_is_answered_once_the_resumed_run_goes_on_without_it() {
    let asked = || [start(), interrupt("a", json!("A?")), interrupt("b", json!("B?")), metadata("r2", 1)];
    let resumed = drafts(asked());
    assert_eq!(of(&resumed, EventType::ActionResolved).len(), 0, "nothing says yet which one was answered");
    assert_eq!(of(&resumed, EventType::RunStarted).len(), 1);
    let again = drafts(asked().into_iter().chain([interrupt("b", json!("B?"))]));
    let resolved: Vec<_> =
        of(&again, EventType::ActionResolved).iter().map(|d| d.ids.action.clone().unwrap().to_string()).collect();
    assert_eq!((resolved, of(&again, EventType::ActionRequired).len()), (vec!["a".into()], 2));
    let all = drafts(asked().into_iter().chain([updates("n", json!([ai("m", "x")]))]));
    assert_eq!(of(&all, EventType::ActionResolved).len(), 2);
}

#[test]
fn a_review_of_calls_finds_the_call_by_its_name_and_arguments() {
    let review = json!({"action_requests": [{"name": "search", "args": {"q": "x"}, "description": "Look?"}],
        "review_configs": [{"action_name": "search", "allowed_decisions": ["approve", "reject"]}]});
    let drafts = drafts([start(), updates("agent", json!([calls(ai("m", ""))])), interrupt("i", review)]);
    let asked = of(&drafts, EventType::ActionRequired)[0];
    assert_eq!((asked.text("kind"), asked.ids.tool_call.as_ref().unwrap().as_str()), (Some("tool_approval"), "c"));
    assert_eq!((asked.text("message"), &asked.payload.to_value()["input"][0]["args"]), (Some("Look?"), &json!({"q": "x"})));
    let options: Vec<_> =
        asked.payload.to_value()["options"].as_array().unwrap().iter().map(|option| option["optionId"].clone()).collect();
    assert_eq!(options, ["approve", "reject"]);
}

#[test]
fn an_interrupt_about_one_call_names_it() {
    let value =
        json!({"type": "tool_approval", "tool_call_id": "c", "name": "search", "args": {"q": "x"}, "description": "Look?"});
    let drafts = drafts([start(), interrupt("i", value)]);
    let asked = of(&drafts, EventType::ActionRequired)[0];
    assert_eq!(
        (asked.text("kind"), asked.ids.tool_call.as_ref().unwrap().as_str(), &asked.payload.to_value()["input"]),
        (Some("tool_approval"), "c", &json!({"q": "x"}))
    );
}

#[test]
fn the_server_s_retry_empties_the_unfinished_message_and_is_another_attempt() {
    let drafts = drafts([start(), chunk("m", "Half"), metadata("r", 2), chunk("n", "Whole")]);
    assert_eq!(of(&drafts, EventType::MessagesSnapshot)[0].text("mode"), Some("repair"));
    assert_eq!(of(&drafts, EventType::RunStarted).len(), 2);
    let joined = drafts_of_run([start(), chunk("m", "Half"), start()]);
    assert_eq!(of(&joined, EventType::RunStarted).len(), 1, "the same attempt is the same stream, joined again");
}

fn drafts_of_run<const N: usize>(facts: [Value; N]) -> Vec<Draft> {
    drafts(facts)
}

#[test]
fn a_child_s_text_is_not_the_answer() {
    let named = |fact: Value, name: &str| {
        let mut fact = fact;
        fact["data"][1]["lc_agent_name"] = name.into();
        fact
    };
    let drafts = drafts([
        start(),
        named(chunk("m", "Root"), "boss"),
        within("tools:1", named(chunk("n", "Child"), "helper")),
        within("tools:1", updates("model", json!([ai("n", "Child")]))),
        updates("tools", json!([tool("c", json!({"content": "Child"}))])),
        values(json!([ai("m", "Root"), ai("n", "Child")])),
    ]);
    let spawned = of(&drafts, EventType::AgentSpawned)[0];
    assert_eq!((spawned.text("agentName"), spawned.ids.agent.as_ref().unwrap().as_str()), (Some("helper"), "tools:1"));
    let speakers: Vec<_> = of(&drafts, EventType::TextDelta).iter().map(|d| d.ids.agent.clone().map(|a| a.to_string())).collect();
    assert_eq!(speakers, [None, Some("tools:1".into())]);
    assert_eq!(of(&drafts, EventType::AgentCompleted).len(), 1, "the tool returned its answer");
    assert_eq!(texts(&drafts, EventType::TextFinal), ["Child", "Root"], "the parent repeats the child's messages");
}

#[test]
fn a_node_that_runs_in_parallel_is_not_told_by_its_name() {
    let drafts = drafts([
        start(),
        chunk("a", "1"),
        chunk("b", "2"),
        updates("w", json!([ai("a", "1")])),
        updates("w", json!([ai("b", "2")])),
    ]);
    assert_eq!(texts(&drafts, EventType::TextFinal), ["1", "2"]);
}

#[test]
fn odd_values_of_modes_are_kept() {
    let facts = [
        start(),
        mode("updates", json!({"route": null})),
        mode("custom", json!("text")),
        mode("values", json!(7)),
        mode("of_tomorrow", json!([])),
    ];
    let drafts = drafts(facts);
    assert_eq!(of(&drafts, EventType::DiagnosticChanged).len(), 3);
    assert!(drafts.iter().any(|draft| draft.text("kind") == Some("unknown_event_type")));
}

#[test]
fn what_a_tool_writes_is_its_progress() {
    let progress = |call: &str| mode("custom", json!({"tool_call_id": call, "done": 1, "total": 3, "message": "one"}));
    let drafts = drafts([start(), updates("agent", json!([calls(ai("m", ""))])), progress("c"), progress("other")]);
    let reported = of(&drafts, EventType::ToolProgress)[0];
    assert_eq!(
        (&reported.payload.to_value()["loaded"], &reported.payload.to_value()["total"], reported.audience),
        (&json!(1), &json!(3), Audience::Dashboard)
    );
    assert_eq!(drafts.last().unwrap().text("activityType"), Some("custom"));
}

#[test]
fn tokens_are_counted_once_for_each_message() {
    let usage = json!({"usage_metadata": {"input_tokens": 1, "output_tokens": 2}});
    let piece = mode("messages", json!([chunk_with("m", usage.clone()), {}]));
    let drafts = drafts([start(), piece, updates("agent", json!([with(ai("m", "x"), usage)]))]);
    assert_eq!(of(&drafts, EventType::MetricChanged).len(), 1);
}

#[test]
fn what_is_internal_never_reaches_a_user() {
    let drafts = drafts([
        start(),
        chunk("m", "x"),
        chunk("m", "y"),
        mode("values", json!({"messages": [], "secret": "hidden"})),
        mode("updates", json!({"node": {"messages": [], "secret": "hidden"}})),
        mode("checkpoints", json!({"langgraph_auth_user": "hidden"})),
        mode("tasks", json!({"input": "hidden"})),
        mode("debug", json!("hidden")),
        mode("feedback", json!("hidden")),
    ]);
    for draft in &drafts {
        assert!(
            draft.audience == Audience::Internal || !format!("{:?}{:?}", draft.payload, draft.extra).contains("hidden"),
            "{draft:?}"
        );
    }
    assert_eq!(drafts.iter().filter(|draft| draft.text("kind") == Some("metadata")).count(), 1, "it repeats with every token");
}

#[test]
fn the_root_s_lifecycle_ends_the_run_and_waits_only_where_it_asked() {
    let of_end = |name: &str| drafts([lifecycle("running"), lifecycle(name)]).pop().unwrap();
    assert_eq!(of_end("completed").phase, Phase::Completed);
    assert_eq!((of_end("failed").event_type, of_end("interrupted").phase), (EventType::RunFailed, Phase::Cancelled));
    let asked = drafts([
        lifecycle("running"),
        event("input.requested", json!({"interrupt_id": "i", "payload": "Go?"})),
        lifecycle("interrupted"),
        lifecycle("running"),
    ]);
    assert_eq!(of(&asked, EventType::RunFinished).len(), 0);
    assert_eq!(
        (of(&asked, EventType::ActionRequired).len(), &asked.last().unwrap().payload.to_value()["resumed"]),
        (1, &json!(true))
    );
}

#[test]
fn an_answer_that_was_cut_off_is_interrupted() {
    for reason in ["length", "content_filter"] {
        let finish = event("messages", json!({"event": "message-finish", "metadata": {"finish_reason": reason}}));
        let begin = event("messages", json!({"event": "message-start", "role": "ai", "id": "m"}));
        let end = drafts([lifecycle("running"), begin, finish, lifecycle("completed")]).pop().unwrap();
        assert_eq!((end.phase.clone(), end.text("reason")), (Phase::Interrupted, Some(reason)));
    }
}

#[test]
fn blocks_continue_the_open_message_of_their_namespace() {
    let say = |namespace: Value, data: Value| event_in(namespace, "messages", data);
    let root = || json!([]);
    let child = || json!(["tools:1"]);
    let delta = |text: &str| json!({"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": text}});
    let drafts = drafts([
        lifecycle("running"),
        say(root(), json!({"event": "message-start", "role": "ai", "id": "m"})),
        say(child(), json!({"event": "message-start", "role": "ai", "id": "n"})),
        say(root(), delta("a")),
        say(child(), delta("b")),
        say(root(), json!({"event": "content-block-finish", "index": 0, "content": {"type": "text", "text": "a"}})),
        say(root(), json!({"event": "message-finish"})),
        event("values", json!({"messages": [{"type": "ai", "id": "m", "content": [{"type": "text", "text": "a", "index": 0}]}]})),
    ]);
    let said: Vec<_> = of(&drafts, EventType::TextDelta)
        .iter()
        .map(|d| (d.ids.message.clone().unwrap().to_string(), d.text("text").unwrap().to_owned()))
        .collect();
    assert_eq!(said, [("m".into(), "a".into()), ("n".into(), "b".into())]);
    assert_eq!(texts(&drafts, EventType::TextFinal), ["a"]);
}

#[test]
fn a_tool_s_message_in_blocks_is_no_child_and_no_second_result() {
    let finished = event("tools", json!({"event": "tool-finished", "tool_call_id": "c", "output": tool("c", json!({}))}));
    let begin = event_in(
        json!(["tools:c"]),
        "messages",
        json!({"event": "message-start", "role": "tool", "id": "t", "tool_call_id": "c"}),
    );
    let text = event_in(
        json!(["tools:c"]),
        "messages",
        json!({"event": "content-block-finish", "content": {"type": "text", "text": "found"}}),
    );
    let drafts = drafts([
        lifecycle("running"),
        event("tools", json!({"event": "tool-started", "tool_call_id": "c", "tool_name": "search"})),
        finished,
        begin,
        text,
    ]);
    assert_eq!(
        (
            of(&drafts, EventType::AgentSpawned).len(),
            of(&drafts, EventType::ToolResult).len(),
            of(&drafts, EventType::ToolStarted).len()
        ),
        (0, 1, 1)
    );
}

#[test]
fn an_interrupted_tool_starts_again_and_ends_once() {
    let started = || event("tools", json!({"event": "tool-started", "tool_call_id": "c", "tool_name": "search"}));
    let error = event("tools", json!({"event": "tool-error", "tool_call_id": "c", "message": "GraphInterrupt(())"}));
    let finished = event("tools", json!({"event": "tool-finished", "tool_call_id": "c", "output": tool("c", json!({}))}));
    let drafts = drafts([lifecycle("running"), started(), error, lifecycle("running"), started(), finished]);
    assert_eq!(
        (
            of(&drafts, EventType::ToolStarted).len(),
            of(&drafts, EventType::ToolFailed).len(),
            of(&drafts, EventType::ToolResult).len()
        ),
        (1, 0, 1)
    );
}

#[test]
fn the_first_dialect_of_a_message_owns_it() {
    let inner =
        callback("on_chat_model_stream", "x", json!(["root"]), json!({"chunk": chunk_with("m", json!({"content": "Hi"}))}));
    let drafts = drafts([start(), chunk("m", "Hi"), mode("events", inner)]);
    assert_eq!(texts(&drafts, EventType::TextDelta), ["Hi"]);
}

#[test]
fn the_parts_of_a_stream_in_process_are_the_modes_of_the_server() {
    let part = |mode: &str, data: Value| json!({"type": mode, "ns": [], "data": data});
    let drafts = drafts([
        part("messages", json!([chunk_with("m", json!({"content": "Hi"})), {}])),
        part("updates", json!({"a": {"messages": [ai("m", "Hi")]}})),
    ]);
    assert_eq!(shown(&drafts), ["run.started", "text.delta", "text.final"]);
    assert_eq!(of(&drafts, EventType::RunStarted)[0].payload.to_value()["synthetic"], true);
}

#[test]
fn only_a_fact_without_a_name_is_refused() {
    let refused = |fact: Value| (SOURCE.parse)(object(fact)).err();
    assert_eq!(refused(json!({"data": 1})), Some(FactError::NoType { member: "event" }));
    assert_eq!(refused(json!({"type": "event", "method": "values"})), None);
    assert_eq!(drafts([json!({"type": "event", "method": "values"})])[0].text("kind"), Some("malformed_event"));
}
