//! The identity and the order of calls, in every vocabulary.

use crate::samples::{call_of, find, given, object, of_class};
use crate::{DryRun, by_name};
use proscenium_model::{Draft, EventType};
use serde_json::{Value, json};

/// The facts of a call: those of the request, and the result. `n` distinguishes what stands around the call.
type Call = fn(id: &str, n: u32) -> (Vec<Value>, Value);

const CALLS: &[(&str, Call)] = &[
    ("ag-ui", |id, n| {
        let of = |name: &str, member: &str, value: &str| json!({ "type": format!("TOOL_CALL_{name}"), "toolCallId": id, member: value });
        let request = vec![of("START", "toolCallName", "ls"), of("ARGS", "delta", &format!("{{\"n\":{n}}}")), of("END", "x", "")];
        (request, of("RESULT", "content", &format!("result {n}")))
    }),
    ("ai-sdk", |id, n| {
        let request = json!({ "type": "tool-input-available", "toolCallId": id, "toolName": "ls", "input": { "n": n } });
        (vec![request], json!({ "type": "tool-output-available", "toolCallId": id, "output": format!("result {n}") }))
    }),
    ("awaken", |id, n| {
        let start = json!({ "event_type": "tool_call_start", "id": id, "name": "ls" });
        let ready = json!({ "event_type": "tool_call_ready", "id": id, "name": "ls", "arguments": { "n": n } });
        let result = json!({ "status": "success", "data": format!("result {n}") });
        (vec![start, ready], json!({ "event_type": "tool_call_done", "id": id, "outcome": "succeeded", "result": result }))
    }),
    ("ethos", |id, n| {
        let start = json!({ "type": "tool_start", "toolCallId": id, "toolName": "ls", "args": { "n": n } });
        (
            vec![start],
            json!({ "type": "tool_end", "toolCallId": id, "toolName": "ls", "ok": true, "result": format!("result {n}") }),
        )
    }),
    ("openai-responses", |id, n| {
        let item = json!({ "type": "function_call", "id": format!("fc_{n}"), "call_id": id, "name": "ls", "arguments": format!("{{\"n\":{n}}}"), "status": "completed" });
        let request = json!({ "type": "response.output_item.done", "output_index": n, "item": item });
        (vec![request], json!({ "type": "function_call_output", "call_id": id, "output": format!("result {n}") }))
    }),
    ("acp", |id, n| {
        let update = |members: Value| {
            let mut update = json!({ "toolCallId": id });
            update.as_object_mut().unwrap().extend(object(members));
            json!({ "sessionId": "s", "update": update })
        };
        let request =
            json!({ "sessionUpdate": "tool_call", "title": "List", "name": "ls", "kind": "read", "rawInput": { "n": n } });
        let content = json!([{ "type": "content", "content": { "type": "text", "text": format!("result {n}") } }]);
        (vec![update(request)], update(json!({ "sessionUpdate": "tool_call_update", "status": "completed", "content": content })))
    }),
    ("claude-stream-json", |id, n| {
        let of = |role: &str, block: Value| json!({ "type": role, "message": { "id": format!("m{n}"), "role": role, "content": [block] } });
        let request = of("assistant", json!({ "type": "tool_use", "id": id, "name": "ls", "input": { "n": n } }));
        (vec![request], of("user", json!({ "type": "tool_result", "tool_use_id": id, "content": format!("result {n}") })))
    }),
    ("langgraph", |id, n| {
        let of = |message: Value| json!({ "event": "updates", "data": { "node": { "messages": [message] } } });
        let calls = json!([{ "type": "tool_call", "id": id, "name": "ls", "args": { "n": n } }]);
        let request = of(json!({ "type": "ai", "id": format!("m{n}"), "content": "", "tool_calls": calls }));
        (
            vec![request],
            of(
                json!({ "type": "tool", "id": format!("t{n}"), "tool_call_id": id, "name": "ls", "content": format!("result {n}") }),
            ),
        )
    }),
    ("agentui", |id, n| {
        let start = json!({ "type": "tool.started", "toolCallId": id, "payload": { "toolName": "ls", "input": { "n": n } } });
        (vec![start], json!({ "type": "tool.result", "toolCallId": id, "payload": { "output": format!("result {n}") } }))
    }),
];

/// The drafts of the facts, as the log has them.
fn stamped(run: &mut DryRun, facts: Vec<Value>) -> Vec<Draft> {
    let drafts =
        facts.into_iter().flat_map(|fact| run.stamp(object(fact), &given()).expect("the fact is valid")).collect::<Vec<_>>();
    drafts.into_iter().filter(|draft| draft.event_type.as_str().starts_with("tool.")).collect()
}

/// Asserts that the drafts are those of one call, the n-th.
#[track_caller]
fn assert_one_call(source: &str, drafts: &[Draft], n: u32) {
    let ids: Vec<&str> = drafts.iter().map(call_of).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() <= 256 && *id != "-"), "{source}: {ids:?}");
    assert_eq!(of_class(drafts, EventType::ToolStarted).len(), 1, "{source}");
    assert_eq!(find(drafts, EventType::ToolStarted).text("toolName"), Some("ls"), "{source}");
    let streamed: String = drafts.iter().filter_map(|draft| draft.text("inputText")).collect();
    let whole = drafts.iter().rev().find_map(|draft| draft.payload.to_value().get("input").cloned());
    assert_eq!(whole.unwrap_or_else(|| serde_json::from_str(&streamed).unwrap()), json!({ "n": n }), "{source}");
    assert_eq!(find(drafts, EventType::ToolResult).text("output"), Some(&*format!("result {n}")), "{source}");
}

#[track_caller]
fn assert_nothing_is_open(source: &str, run: &DryRun) {
    let state = run.adapter.describe();
    assert!(state.get("calls").is_none_or(|calls| *calls == json!([])), "{source}: {state}");
}

#[test]
fn a_call_is_kept_under_an_id_of_at_most_256_bytes_whatever_the_runtime_calls_it() {
    let long = "call_a1__thought__".to_owned() + &"QWJj".repeat(200);
    for id in ["plain", &long, "two\nlines", " at the edge ", ""] {
        for (source, call) in CALLS.iter().filter(|(source, _)| *source != "agentui") {
            let mut run = DryRun::new(by_name(source).unwrap());
            let (mut facts, result) = call(id, 1);
            facts.push(result);
            let drafts = stamped(&mut run, facts);
            assert_one_call(source, &drafts, 1);
            assert_nothing_is_open(source, &run);
        }
    }
}

#[test]
fn a_start_after_a_start_and_an_end_is_another_call() {
    for (source, call) in CALLS {
        let mut run = DryRun::new(by_name(source).unwrap());
        let mut ids = Vec::new();
        for n in 1..=9 {
            let (mut facts, result) = call("call_0", n);
            facts.push(result);
            let drafts = stamped(&mut run, facts);
            assert_one_call(source, &drafts, n);
            let start = find(&drafts, EventType::ToolStarted);
            let own = start.extra.get("sourceToolCallId").and_then(Value::as_str).unwrap_or(call_of(start));
            assert_eq!(own, "call_0", "{source}");
            ids.push(call_of(start).to_owned());
        }
        assert_eq!(ids[..3], ["call_0", "call_0~2", "call_0~3"], "{source}");
        ids.dedup();
        assert_eq!(ids.len(), 9, "{source}");
    }
}

#[test]
fn a_result_before_its_call_waits_for_it() {
    for (source, call) in CALLS {
        let mut run = DryRun::new(by_name(source).unwrap());
        let (request, result) = call("c", 1);
        let facts = std::iter::once(result).chain(request).collect();
        let drafts = stamped(&mut run, facts);
        assert_one_call(source, &drafts, 1);
        assert_eq!(of_class(&drafts, EventType::ToolResult).len(), 1, "{source}");
        assert_nothing_is_open(source, &run);
        let (request, _) = call("c", 2);
        let next = stamped(&mut run, request);
        assert!(next.iter().all(|draft| call_of(draft) == "c~2"), "{source}: after its start, the call is over");
    }
}
