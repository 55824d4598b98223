//! Tests of dialect C.

use crate::langgraph::tests::{ai, callback, calls, chunk_with, drafts, texts, tool};
use crate::samples::of_class as of;
use proscenium_model::{Audience, EventType};
use serde_json::json;

#[test]
fn an_interrupt_between_callables_is_no_failure_and_no_success() {
    let none = || json!([]);
    let drafts = drafts([
        callback("on_chain_start", "root", none(), json!({"input": {}})),
        callback("on_chat_model_end", "model", json!(["root"]), json!({"output": calls(ai("m", ""))})),
        callback("on_tool_start", "t1", json!(["root"]), json!({"input": {"q": "x"}})),
        callback("on_tool_error", "t1", json!(["root"]), json!({"error": "GraphInterrupt((Interrupt(",  "tool_call_id": "c"})),
        callback("on_chain_stream", "root", none(), json!({"chunk": {"__interrupt__": [{"id": "i", "value": "Go?"}]}})),
        callback("on_chain_end", "root", none(), json!({"output": {}})),
        callback("on_chain_start", "root2", none(), json!({"input": {"resume": {"type": "approve"}}})),
        callback("on_tool_start", "t2", json!(["root2"]), json!({"input": {"q": "x"}})),
        callback("on_tool_end", "t2", json!(["root2"]), json!({"output": tool("c", json!({}))})),
        callback("on_chain_end", "root2", none(), json!({"output": {}})),
    ]);
    assert_eq!((of(&drafts, EventType::ToolFailed).len(), of(&drafts, EventType::RunFinished).len()), (0, 1));
    assert_eq!(of(&drafts, EventType::ActionResolved)[0].text("outcome"), Some("approved"));
    assert_eq!((of(&drafts, EventType::ToolStarted).len(), of(&drafts, EventType::ToolResult).len()), (1, 1));
}

#[test]
fn a_hidden_model_call_is_internal() {
    let mut hidden =
        callback("on_chat_model_stream", "m", json!(["root"]), json!({"chunk": chunk_with("h", json!({"content": "secret"}))}));
    hidden["tags"] = json!(["nostream"]);
    assert_eq!(drafts([hidden]).pop().unwrap().audience, Audience::Internal);
}

#[test]
fn a_serialised_message_is_unwrapped() {
    let wrapped = json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "AIMessageChunk"], "kwargs": {"id": "m", "content": "Hi"}});
    let bytes = callback("on_chain_stream", "root", json!([]), json!({"chunk": {"0": 101, "1": 118}}));
    let drafts = drafts([callback("on_chat_model_stream", "x", json!(["root"]), json!({"chunk": wrapped})), bytes]);
    assert_eq!(texts(&drafts, EventType::TextDelta), ["Hi"]);
}
