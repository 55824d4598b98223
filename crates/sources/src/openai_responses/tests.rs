//! Tests of the Responses adapter, event by event.
//! `tests/it/runtimes.rs` replays the recordings.

mod stream_end;

use super::*;
use crate::samples::{self, all, ends, find, object, payload};
use proscenium_model::{Audience, EventType, Owner, Phase};
use serde_json::json;

fn event(name: &str, mut members: Value) -> Value {
    members["type"] = format!("response.{name}").into();
    members
}

fn created(id: &str) -> Value {
    event("created", json!({"response": {"id": id, "model": "m", "output": [], "error": null}}))
}

fn follows(id: &str, previous: &str) -> Value {
    event("created", json!({"response": {"id": id, "model": "m", "previous_response_id": previous}}))
}

fn completed(output: Value) -> Value {
    event("completed", json!({"response": {"id": "r", "status": "completed", "output": output}}))
}

fn added(place: u64, item: Value) -> Value {
    event("output_item.added", json!({"output_index": place, "item": item}))
}

fn done(place: u64, item: Value) -> Value {
    event("output_item.done", json!({"output_index": place, "item": item}))
}

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function(call: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{call}"), "call_id": call, "name": "f", "arguments": arguments})
}

fn approval(id: &str) -> Value {
    json!({"type": "mcp_approval_request", "id": id, "server_label": "notes", "name": "delete", "arguments": "{\"id\":7}"})
}

fn delta(place: u64, text: &str) -> Value {
    event("output_text.delta", json!({"output_index": place, "content_index": 0, "item_id": "msg", "delta": text}))
}

fn wrapped(raw: Value) -> Value {
    json!({"type": "raw_response_event", "data": raw})
}

fn item(name: &str, members: Value) -> Value {
    json!({"type": "run_item_stream_event", "name": name, "item": members})
}

fn agent(name: &str) -> Value {
    json!({"type": "agent_updated_stream_event", "new_agent": {"name": name}})
}

fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
    samples::adapt(&SOURCE, facts)
}

/// Returns `event type phase` of each draft that users see.
fn seen(drafts: &[Draft]) -> Vec<String> {
    let seen = drafts.iter().filter(|draft| draft.audience == Audience::User);
    seen.map(|draft| format!("{} {}", draft.event_type, draft.phase)).collect()
}

/// Returns `type message/part text` of each draft of text or reasoning.
fn said(drafts: &[Draft]) -> Vec<String> {
    samples::said(drafts).into_iter().map(|said| said.replace("openai-responses-message-", "")).collect()
}

// ── responses and the run ──

#[test]
fn a_response_starts_and_completes_a_run() {
    let usage = json!({"input_tokens": 9, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}});
    let response =
        json!({"id": "r", "model": "m", "instructions": "be kind", "tools": [], "conversation": {"id": "conv"}, "user": null});
    let drafts = adapt([
        event("created", json!({"sequence_number": 0, "response": response})),
        event("in_progress", json!({"response": response})),
        event(
            "completed",
            json!({"response": {"id": "r", "model": "m", "instructions": "be kind", "output": [], "usage": usage}}),
        ),
    ]);
    assert_eq!(seen(&drafts), ["run.started accepted", "run.status acting", "run.finished completed"]);
    assert_eq!(payload(&drafts[0]), json!({"attempt": 1, "model": "m"}));
    assert!(drafts.iter().all(|draft| draft.ids.thread.as_ref().unwrap().as_str() == "conv"));
    let internal = find(&drafts, EventType::DiagnosticChanged);
    assert_eq!(
        (internal.audience, &internal.payload.to_value()["event"]["instructions"]),
        (Audience::Internal, &json!("be kind"))
    );
    let metric = find(&drafts, EventType::MetricChanged);
    assert_eq!(
        metric.payload.to_value()["usage"],
        json!({"inputTokens": 9, "outputTokens": 3, "thinkingTokens": 2, "llmCalls": 1})
    );
    assert_eq!(metric.audience, Audience::Dashboard);
}

#[test]
fn the_instructions_and_tools_of_a_response_reach_internal_readers_only() {
    let secret = "only for the model";
    let response = json!({"id": "r", "instructions": secret, "tools": [{"name": secret}], "metadata": {"x": secret}, "prompt_cache_key": secret});
    let kinds = ["created", "queued", "in_progress", "completed", "incomplete", "failed"];
    for draft in adapt(kinds.map(|kind| event(kind, json!({"response": response})))) {
        let text = format!("{:?}{:?}", draft.payload, draft.extra);
        assert!(draft.audience == Audience::Internal || !text.contains(secret), "{draft:?}");
    }
}

#[test]
fn a_later_response_of_an_open_run_is_a_step_and_answers_its_calls() {
    let drafts =
        adapt([created("r1"), done(0, function("c", "{\"a\":1}")), completed(json!([])), created("r2"), completed(json!([]))]);
    let expected = [
        "run.started accepted",
        "tool.started acting",
        "tool.args acting",
        "tool.progress acting",
        "run.status acting",
        "tool.result completed",
        "run.finished completed",
    ];
    assert_eq!(seen(&drafts), expected);
    assert_eq!(all(&drafts, EventType::ToolResult), [json!({"outcome": "unknown", "toolName": "f"})]);
}

#[test]
fn a_response_after_the_end_is_another_attempt() {
    let drafts = adapt([created("r1"), completed(json!([])), created("r2"), completed(json!([]))]);
    assert_eq!(ends(&drafts), ["run.finished completed"; 2]);
    assert_eq!(drafts.iter().filter_map(|draft| draft.payload.get("attempt")?.number()?.as_u64()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn repeated_events_of_a_resumed_stream_are_dropped_and_numbers_begin_again_in_each_response() {
    let at = |n: u64, mut event: Value| {
        event["sequence_number"] = n.into();
        event
    };
    let first = [at(0, created("r1")), at(1, delta(0, "a")), at(2, delta(0, "b"))];
    let again = [at(0, created("r1")), at(1, delta(0, "a")), at(2, delta(0, "b")), at(3, delta(0, "c"))];
    let next = [at(4, completed(json!([]))), at(0, created("r2")), at(1, delta(0, "d")), at(2, completed(json!([])))];
    let drafts = adapt(first.into_iter().chain(again).chain(next));
    let expected = ["text.delta 1-0/text-0 a", "text.delta 1-0/text-0 b", "text.delta 1-0/text-0 c", "text.final 1-0/text-0 -"];
    assert_eq!(said(&drafts)[..4], expected);
    assert_eq!(said(&drafts)[4..], ["text.delta 2-0/text-0 d", "text.final 2-0/text-0 -"]);
    let constant = adapt([at(0, created("x")), at(0, delta(0, "a")), at(0, delta(0, "b"))]);
    assert_eq!(said(&constant).len(), 2, "a server that always sends 0 does not number its events");
}

#[test]
fn a_resumed_stream_may_start_in_the_middle() {
    let drafts = adapt([delta(0, "b"), completed(json!([]))]);
    assert_eq!(
        seen(&drafts),
        ["run.started accepted", "text.delta producing", "text.final reconciling", "run.finished completed"]
    );
}

#[test]
fn an_error_is_read_flat_and_nested_and_only_the_first_end_counts() {
    let flat = json!({"type": "error", "code": "server_error", "message": "busy", "param": null});
    let nested = json!({"type": "error", "error": {"type": "too_many_requests", "code": null, "message": "busy"}});
    let failed = event("failed", json!({"response": {"id": "r", "error": {"code": "server_error", "message": "busy"}}}));
    for (error, code) in [(flat.clone(), "server_error"), (nested, "too_many_requests"), (failed.clone(), "server_error")] {
        let drafts = adapt([error, failed.clone()]);
        assert_eq!(ends(&drafts), ["run.failed failed"]);
        let reported = find(&drafts, EventType::RunFailed);
        assert_eq!(reported.payload.to_value()["error"], json!({"code": code, "message": "busy"}));
        assert_eq!(reported.payload.contains_key("retryable"), code == "server_error");
        assert_eq!(drafts.last().unwrap().payload.to_value()["kind"], "late_end");
    }
}

#[test]
fn an_incomplete_response_interrupts_the_run_with_its_reason() {
    let incomplete =
        |reason: &str| event("incomplete", json!({"response": {"id": "r", "incomplete_details": {"reason": reason}}}));
    for (reason, owner) in [("max_output_tokens", Owner::Runtime), ("content_filter", Owner::Policy)] {
        let half =
            json!({"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{\"a", "status": "incomplete"});
        let drafts = adapt([created("r"), done(0, half), incomplete(reason)]);
        let end = drafts.last().unwrap();
        assert_eq!((ends(&drafts), &end.owner), (vec!["run.finished interrupted".to_owned()], &owner));
        assert_eq!(payload(end), json!({"status": "interrupted", "reason": reason}));
        assert!(all(&drafts, EventType::ToolArgs).is_empty(), "half an input is not parsed");
    }
    assert!(ends(&adapt([created("r"), incomplete("steered")])).is_empty(), "a successor follows");
}

// ── text ──

#[test]
fn a_text_that_exists_five_times_reaches_the_screen_once() {
    let text = message("msg", "Hello")["content"][0].clone();
    let facts = [
        created("r"),
        added(0, json!({"type": "message", "id": "msg", "content": []})),
        event("content_part.added", json!({"output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": ""}})),
        delta(0, "Hel"),
        delta(0, "lo"),
        event("output_text.done", json!({"output_index": 0, "content_index": 0, "text": "Hello", "logprobs": []})),
        event("content_part.done", json!({"output_index": 0, "content_index": 0, "part": text})),
        done(0, message("msg", "Hello")),
        completed(json!([message("msg", "Hello")])),
    ];
    let drafts = adapt(facts);
    assert_eq!(said(&drafts), ["text.delta 1-0/text-0 Hel", "text.delta 1-0/text-0 lo", "text.final 1-0/text-0 Hello"]);
}

#[test]
fn any_later_whole_text_ends_a_part_that_no_earlier_event_ended() {
    let part =
        event("content_part.done", json!({"output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "ab"}}));
    for last in [part, done(0, message("other", "ab")), completed(json!([message("other", "ab")]))] {
        let drafts = adapt([created("r"), delta(0, "a"), last]);
        assert_eq!(said(&drafts)[..2], ["text.delta 1-0/text-0 a", "text.final 1-0/text-0 ab"]);
    }
}

#[test]
fn one_id_for_all_items_does_not_join_them() {
    let fake = |mut item: Value| {
        item["id"] = event::FAKE_ID.into();
        item
    };
    let text = |text: &str| {
        let mut event = delta(0, text);
        event["item_id"] = event::FAKE_ID.into();
        event
    };
    let facts = [
        created(event::FAKE_ID),
        text("a"),
        added(1, fake(function("c1", ""))),
        done(1, fake(function("c1", "{}"))),
        completed(json!([fake(message("x", "a")), fake(function("c1", "{}"))])),
        created(event::FAKE_ID),
        text("b"),
        completed(json!([fake(message("x", "b"))])),
    ];
    let drafts = adapt(facts);
    let expected = ["text.delta 1-0/text-0 a", "text.final 1-0/text-0 a", "text.delta 2-0/text-0 b", "text.final 2-0/text-0 b"];
    assert_eq!(said(&drafts), expected);
    assert_eq!(all(&drafts, EventType::ToolStarted).len(), 1);
}

#[test]
fn a_server_that_gives_each_item_place_0_keeps_its_items_apart() {
    let facts = [
        created("r"),
        added(0, json!({"type": "message", "id": "a", "content": []})),
        delta(0, "one"),
        added(0, json!({"type": "message", "id": "b", "content": []})),
        delta(0, "two"),
        completed(json!([message("x", "one"), message("y", "two")])),
    ];
    let expected =
        ["text.delta 1-0/text-0 one", "text.delta 1-1/text-0 two", "text.final 1-0/text-0 one", "text.final 1-1/text-0 two"];
    assert_eq!(said(&adapt(facts)), expected);
}

#[test]
fn a_refusal_is_text_and_marks_the_end() {
    let drafts = adapt([
        created("r"),
        event("refusal.delta", json!({"output_index": 0, "content_index": 0, "delta": "No"})),
        event("refusal.done", json!({"output_index": 0, "content_index": 0, "refusal": "No."})),
        completed(json!([])),
    ]);
    assert_eq!(said(&drafts), ["text.delta 1-0/refusal-0 No", "text.final 1-0/refusal-0 No."]);
    assert!(drafts.iter().filter(|draft| draft.ids.part.is_some()).all(|draft| draft.payload.to_value()["refusal"] == true));
    assert_eq!(payload(drafts.last().unwrap()), json!({"status": "completed", "refused": true}));
}

#[test]
fn summaries_are_for_users_and_raw_thoughts_for_operators() {
    let reasoning =
        json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "S"}], "encrypted_content": "x"});
    let drafts = adapt([
        created("r"),
        event("reasoning_summary_text.delta", json!({"output_index": 0, "summary_index": 0, "delta": "S", "obfuscation": "zz"})),
        event("reasoning_text.delta", json!({"output_index": 0, "content_index": 0, "delta": "T"})),
        event("reasoning_text.done", json!({"output_index": 0, "content_index": 0, "text": "T"})),
        done(0, reasoning),
    ]);
    let expected = [
        "reasoning.delta 1-0/summary-0 S",
        "reasoning.delta 1-0/thought-0 T",
        "reasoning.summary 1-0/thought-0 T",
        "reasoning.summary 1-0/summary-0 S",
    ];
    assert_eq!(said(&drafts), expected);
    let of = |part: &str| drafts.iter().find(|d| d.ids.part.as_ref().is_some_and(|id| id.as_str() == part)).unwrap();
    assert_eq!((of("summary-0").audience, of("thought-0").audience), (Audience::User, Audience::Dashboard));
    assert!(!of("summary-0").extra.contains_key("obfuscation"));
    let encrypted = drafts.last().unwrap();
    assert_eq!(
        (encrypted.audience, &encrypted.payload.to_value()["event"]["encrypted_content"]),
        (Audience::Internal, &json!("x"))
    );
}

#[test]
fn citations_are_reported_once() {
    let cited = json!({"type": "url_citation", "start_index": 0, "end_index": 2, "title": "T", "url": "https://e.example/"});
    let mut whole = message("msg", "ab");
    whole["content"][0]["annotations"] = json!([cited, cited]);
    let one = event(
        "output_text.annotation.added",
        json!({"output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": cited}),
    );
    let drafts = adapt([created("r"), delta(0, "ab"), one, done(0, whole.clone()), completed(json!([whole]))]);
    let evidence =
        json!({"kind": "url_citation", "url": "https://e.example/", "title": "T", "range": {"start_index": 0, "end_index": 2}});
    assert_eq!(all(&drafts, EventType::EvidenceChanged), [evidence.clone(), evidence]);
}

// ── calls ──

#[test]
fn a_function_call_is_known_by_its_call_id_and_ends_with_the_callers_output() {
    let drafts = adapt([
        created("r"),
        added(0, function("c", "")),
        event("function_call_arguments.delta", json!({"output_index": 0, "item_id": "fc_c", "delta": "{\"a\""})),
        event("function_call_arguments.done", json!({"output_index": 0, "item_id": "fc_c", "arguments": "{\"a\":1}"})),
        done(0, function("c", "{\"a\":1}")),
        completed(json!([function("c", "{\"a\":1}")])),
        json!({"type": "function_call_output", "call_id": "c", "output": "21"}),
    ]);
    let started = find(&drafts, EventType::ToolStarted);
    assert_eq!((&started.owner, started.ids.tool_call.as_ref().unwrap().as_str()), (&Owner::Model, "c"));
    assert_eq!(started.refs, Some(json!({"itemId": "fc_c"})));
    let args =
        drafts.iter().filter(|draft| draft.event_type == EventType::ToolArgs).map(|draft| (draft.audience, payload(draft)));
    let whole = json!({"input": {"a": 1}, "state": "input-available"});
    assert_eq!(args.collect::<Vec<_>>(), [(Audience::Dashboard, json!({"inputText": "{\"a\""})), (Audience::User, whole)]);
    assert_eq!(all(&drafts, EventType::ToolProgress), [json!({"status": "pending"})]);
    assert!(ends(&drafts).is_empty(), "the caller runs the call");
    assert_eq!(payload(drafts.last().unwrap()), json!({"toolName": "f", "output": "21"}));
}

#[test]
fn an_input_that_is_not_json_stays_text() {
    let custom = json!({"type": "custom_tool_call", "id": "ctc", "call_id": "c", "name": "sql", "input": "SELECT 1"});
    let drafts = adapt([created("r"), done(0, custom), done(1, function("d", "{\"x\":"))]);
    let inputs: Vec<_> = all(&drafts, EventType::ToolArgs).into_iter().map(|args| args["input"].clone()).collect();
    assert_eq!(inputs, [json!("SELECT 1"), json!("{\"x\":")]);
}

#[test]
fn a_tool_of_the_server_ends_with_its_item() {
    let search =
        json!({"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["q"], "results": [{"text": "hit"}]});
    let failed = json!({"type": "mcp_call", "id": "mcp", "status": "failed", "server_label": "notes", "name": "add", "arguments": "{}",
        "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "disk full"}]}});
    let drafts = adapt([
        created("r"),
        added(0, json!({"type": "file_search_call", "id": "fs", "status": "in_progress", "queries": [], "results": null})),
        event("file_search_call.searching", json!({"output_index": 0, "item_id": "fs"})),
        done(0, search),
        done(1, failed),
        completed(json!([])),
    ]);
    assert_eq!(all(&drafts, EventType::ToolProgress), [json!({"status": "running", "message": "searching"})]);
    assert_eq!(all(&drafts, EventType::ToolResult), [json!({"toolName": "file_search", "output": [{"text": "hit"}]})]);
    let error = json!({"code": "mcp_tool_execution_error", "message": "disk full"});
    let failed = json!({"error": error, "toolName": "mcp:notes/add", "output": {"status": "failed"}});
    assert_eq!(all(&drafts, EventType::ToolFailed), [failed]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}

#[test]
fn the_output_of_a_shell_goes_to_its_call_and_an_exit_code_is_no_failure() {
    let output = json!([{"outcome": {"type": "exit", "exit_code": 1}, "stdout": "", "stderr": "no"}]);
    let drafts = adapt([
        created("r"),
        added(0, json!({"type": "shell_call", "id": "sh", "call_id": "c", "action": {"commands": []}})),
        event("shell_call_command.delta", json!({"output_index": 0, "command_index": 0, "delta": "ls"})),
        done(0, json!({"type": "shell_call", "id": "sh", "call_id": "c", "action": {"commands": ["ls"]}})),
        added(1, json!({"type": "shell_call_output", "id": "sho", "call_id": "c"})),
        event(
            "shell_call_output_content.delta",
            json!({"output_index": 1, "item_id": "sho", "command_index": 0, "delta": {"stderr": "no"}}),
        ),
        done(1, json!({"type": "shell_call_output", "id": "sho", "call_id": "c", "output": output})),
        completed(json!([])),
    ]);
    assert_eq!(all(&drafts, EventType::ToolOutputDelta), [json!({"channel": "stderr", "text": "no"})]);
    assert_eq!(all(&drafts, EventType::ToolResult), [json!({"toolName": "shell", "output": output})]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}

#[test]
fn pictures_are_artifacts_and_never_in_an_output() {
    let call =
        json!({"type": "image_generation_call", "id": "ig", "status": "completed", "result": "AAAA", "output_format": "webp"});
    let partial = event(
        "image_generation_call.partial_image",
        json!({"output_index": 0, "item_id": "ig", "partial_image_index": 0, "partial_image_b64": "AA", "output_format": "webp"}),
    );
    let drafts = adapt([created("r"), partial, done(0, call), completed(json!([]))]);
    let pictures = all(&drafts, EventType::ArtifactChanged);
    assert_eq!(pictures[0]["body"], "data:image/webp;base64,AA");
    assert_eq!(pictures[1], json!({"kind": "image", "mediaType": "image/webp", "body": "data:image/webp;base64,AAAA"}));
    assert_eq!(find(&drafts, EventType::ToolResult).payload.to_value()["output"], json!({"status": "completed"}));
}

#[test]
fn tools_and_compactions_of_the_server_are_reported() {
    let drafts = adapt([
        created("r"),
        done(0, json!({"type": "mcp_list_tools", "id": "l", "server_label": "notes", "tools": [{"name": "add"}]})),
        event("mcp_list_tools.failed", json!({"output_index": 1, "item_id": "k"})),
        event("compaction.compacting", json!({"output_index": 2, "item_id": "cmp"})),
        done(2, json!({"type": "compaction", "id": "cmp", "encrypted_content": "x"})),
    ]);
    let context = find(&drafts, EventType::ContextChanged);
    assert_eq!(
        (context.audience, payload(context)),
        (Audience::Dashboard, json!({"kind": "mcp_list_tools", "server": "notes", "tools": [{"name": "add"}]}))
    );
    let id = json!({"compactionId": "openai-responses-compaction-1-2"});
    assert_eq!(all(&drafts, EventType::ContextCompactionStarted), std::slice::from_ref(&id));
    assert_eq!(all(&drafts, EventType::ContextCompactionCompleted), [id]);
    assert_eq!(drafts.last().unwrap().audience, Audience::Internal);
}

// ── approvals ──

#[test]
fn an_approval_request_makes_the_end_of_its_response_a_pause() {
    let facts = [created("r"), added(0, approval("a")), done(0, approval("a")), completed(json!([approval("a")]))];
    let drafts = adapt(facts);
    let asked = json!({"kind": "tool_approval", "toolName": "mcp:notes/delete", "input": {"id": 7}, "policyScope": "notes"});
    assert_eq!(all(&drafts, EventType::ActionRequired), [asked]);
    assert_eq!((ends(&drafts), &drafts.last().unwrap().phase), (Vec::new(), &Phase::Waiting));
}

#[test]
fn the_call_or_the_callers_answer_resolves_an_approval_and_a_response_without_either_rejects_it() {
    let call = json!({"type": "mcp_call", "id": "mcp", "status": "completed", "server_label": "notes", "name": "delete", "arguments": "{}",
        "approval_request_id": "a", "output": "deleted"});
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": "a", "approve": false, "reason": "no"});
    let asked = || [created("r1"), done(0, approval("a")), completed(json!([]))];
    for (rest, outcome) in [
        (vec![follows("r2", "r1"), done(0, call), completed(json!([]))], json!({"outcome": "approved"})),
        (vec![answer, follows("r2", "r1"), completed(json!([]))], json!({"outcome": "rejected", "reason": "no"})),
        (vec![follows("r2", "r1"), completed(json!([]))], json!({"outcome": "rejected"})),
    ] {
        let drafts = adapt(asked().into_iter().chain(rest));
        assert_eq!(all(&drafts, EventType::ActionResolved), [outcome]);
        assert_eq!(ends(&drafts), ["run.finished completed"]);
        assert_eq!(drafts.iter().filter(|draft| draft.payload.to_value().get("resumed") == Some(&json!(true))).count(), 1);
    }
}

#[test]
fn an_answer_names_the_action_of_an_earlier_run() {
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": "a", "approve": true});
    let answers = (SOURCE.parse)(object(answer)).unwrap().answers;
    assert_eq!((answers[0].action.as_str(), answers[0].outcome), ("a", "approved"));
}

// ── the Agents SDK ──

#[test]
fn items_that_repeat_raw_events_add_nothing_and_without_raw_events_they_are_the_items() {
    let called = item("tool_called", json!({"raw_item": function("c", "{}"), "agent": {"name": "A"}}));
    let made = item("message_output_created", json!({"raw_item": message("m", "Hi"), "agent": {"name": "A"}}));
    let raw = [
        wrapped(created("r")),
        wrapped(delta(0, "Hi")),
        wrapped(done(0, message("m", "Hi"))),
        wrapped(done(1, function("c", "{}"))),
    ];
    let with_raw = adapt(raw.into_iter().chain([made.clone(), called.clone()]));
    assert_eq!((said(&with_raw).len(), all(&with_raw, EventType::ToolStarted).len()), (2, 1));
    let without = adapt([made, called]);
    assert_eq!((said(&without), all(&without, EventType::ToolStarted).len()), (vec!["text.final 1-0/text-0 Hi".to_owned()], 1));
}

#[test]
fn an_output_of_a_tool_is_a_result_whatever_its_prose_says() {
    let output = |text: &str| {
        item("tool_output", json!({"raw_item": {"type": "function_call_output", "call_id": "c", "output": text}, "output": text}))
    };
    for text in ["Tool execution was not approved.", "An error occurred while running the tool. Please try again."] {
        let drafts = adapt([
            created("r"),
            done(0, function("c", "{}")),
            completed(json!([])),
            output(text),
            created("r2"),
            completed(json!([])),
        ]);
        assert_eq!(all(&drafts, EventType::ToolResult), [json!({"toolName": "f", "output": text})]);
        assert!(all(&drafts, EventType::ToolFailed).is_empty());
    }
}

#[test]
fn a_handoff_ends_the_call_that_asked_for_it() {
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "{}"});
    let drafts = adapt([
        agent("Triage"),
        wrapped(created("r")),
        wrapped(done(0, function("c", "{}"))),
        wrapped(completed(json!([]))),
        item("handoff_requested", json!({"raw_item": function("c", "{}"), "agent": {"name": "Triage"}})),
        item(
            "handoff_occured",
            json!({"raw_item": output, "source_agent": {"name": "Triage"}, "target_agent": {"name": "Billing"}}),
        ),
        agent("Billing"),
        agent("Billing"),
    ]);
    let handoffs = all(&drafts, EventType::AgentHandoff);
    assert_eq!(handoffs[0], json!({"status": "requested", "handoffId": "c", "from": "Triage", "to": "unknown", "reason": "f"}));
    assert_eq!(handoffs[1], json!({"status": "completed", "handoffId": "c", "from": "Triage", "to": "Billing", "reason": "f"}));
    assert_eq!(all(&drafts, EventType::ToolResult).len(), 1);
    let agents: Vec<_> = all(&drafts, EventType::AgentChanged).iter().map(|agent| agent["agentName"].clone()).collect();
    assert_eq!(agents, ["Triage", "Billing"], "the second event repeats the first");
}

// ── the rest ──

#[test]
fn unknown_events_and_events_without_a_member_stay_whole_for_internal_readers() {
    let facts = [
        event("of_tomorrow", json!({})),
        event("audio.delta", json!({"delta": "AA"})),
        event("output_text.delta", json!({"output_index": 0})),
        json!({"type": "function_call_output", "output": "x"}),
        json!({"type": "raw_response_event", "data": {"x": 1}}),
        json!({"type": "run_item_stream_event", "name": "tool_called", "item": {"raw_item": "x"}}),
        json!({"type": "agent_updated_stream_event", "new_agent": {}}),
        json!({"type": "of.tomorrow"}),
    ];
    let drafts = adapt(facts);
    let diagnostics: Vec<_> = drafts.iter().filter(|draft| draft.event_type == EventType::DiagnosticChanged).collect();
    assert_eq!(diagnostics.len(), 8);
    assert!(diagnostics.iter().all(|draft| draft.audience == Audience::Internal));
    let failed = adapt([event("steer.failed", json!({"error": {"message": "late"}}))]);
    assert_eq!(failed.last().unwrap().audience, Audience::Dashboard);
    assert!((SOURCE.parse)(object(json!({"delta": "x"}))).is_err());
}

#[test]
fn more_items_than_the_limit_forget_the_oldest() {
    let items = (0..=items::ITEMS_MAX as u64).map(|n| delta(n, "x"));
    let drafts = adapt([created("r")].into_iter().chain(items).chain([completed(json!([message("a", "y")]))]));
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    let again: Vec<_> = said(&drafts).into_iter().filter(|said| said.ends_with(" y")).collect();
    assert!(again.is_empty(), "a forgotten item is not completed again: {again:?}");
}

#[test]
fn a_response_whose_server_tools_are_complete_completes_the_run() {
    for call_id in [json!(""), json!("ws_1"), Value::Null] {
        let search = json!({"type": "web_search_call", "id": "fc_1_0", "call_id": call_id, "name": "web_search",
            "arguments": "{\"query\":\"x\"}", "status": "completed"});
        let drafts = adapt([created("r"), done(0, search), completed(json!([]))]);
        assert_eq!(ends(&drafts), ["run.finished completed"], "{call_id}");
        assert_eq!(find(&drafts, EventType::ToolArgs).payload.to_value()["input"], json!({"query": "x"}));
        assert!(drafts.iter().any(|draft| draft.event_type == EventType::ToolResult), "{call_id}");
    }
}

#[test]
fn a_call_whose_id_differs_between_its_announcement_and_its_item_is_one_call() {
    let search = |call: &str| json!({"type": "tool_search_call", "id": "ts_1", "call_id": call, "arguments": {"q": 1}, "status": "completed"});
    let output = json!({"type": "tool_search_output", "id": "tso_1", "call_id": "call_b", "output": "found"});
    let drafts =
        adapt([created("r"), added(0, search("call_a")), done(0, search("call_b")), done(1, output), completed(json!([]))]);
    let calls: Vec<_> =
        drafts.iter().filter(|draft| draft.event_type.as_str().starts_with("tool.")).map(samples::call_of).collect();
    assert!(calls.iter().all(|call| *call == "call_a"), "{calls:?}");
    assert_eq!(find(&drafts, EventType::ToolResult).payload.to_value()["output"], "found");
    assert_eq!(ends(&drafts), ["run.finished completed"]);
}
