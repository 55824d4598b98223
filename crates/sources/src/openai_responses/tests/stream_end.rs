//! The end of the stream: which calls the client then has to run.

use super::*;
use proscenium_model::Persistence;

fn stream_ended() -> Value {
    json!({"type": event::STREAM_ENDED})
}

/// Returns the calls that await the client.
fn awaited(drafts: &[Draft]) -> Vec<&str> {
    let awaited = drafts.iter().filter(|draft| draft.payload.to_value().get("awaits") == Some(&json!("client")));
    awaited.map(|draft| draft.ids.tool_call.as_ref().unwrap().as_str()).collect()
}

#[test]
fn at_the_end_of_the_stream_the_client_has_to_run_the_functions_that_nothing_ran() {
    let calls = || [created("r"), done(0, function("a", "{}")), done(1, function("b", "{}")), completed(json!([]))];
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "21"});
    let before = adapt(calls());
    assert!(awaited(&before).is_empty() && ends(&before).is_empty(), "an agent may still send the outputs");
    for (facts, expected) in [(vec![], vec!["a", "b"]), (vec![output.clone()], vec!["b"])] {
        let drafts = adapt(calls().into_iter().chain(facts).chain([stream_ended(), stream_ended()]));
        assert_eq!(awaited(&drafts), expected);
        assert_eq!(ends(&drafts), ["run.finished completed"]);
        let waits = drafts.iter().find(|draft| draft.payload.contains_key("awaits")).unwrap();
        assert_eq!(payload(waits), json!({"toolName": "f", "status": "pending", "awaits": "client"}));
        assert_eq!((waits.audience, &waits.persistence), (Audience::User, &Persistence::Snapshot));
    }
    let later = adapt(calls().into_iter().chain([stream_ended(), output]));
    assert_eq!(all(&later, EventType::ToolResult), [json!({"output": "21"})], "a result may come after the run");
}

#[test]
fn the_end_of_a_stream_alone_completes_nothing() {
    let half =
        json!({"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{\"a", "status": "incomplete"});
    let computer = json!({"type": "computer_call", "id": "cu", "call_id": "c", "action": {"type": "click"}});
    let call = || done(0, function("c", "{}"));
    let called = item("tool_called", json!({"raw_item": function("c", "{}"), "agent": {"name": "A"}}));
    for (why, facts) in [
        ("the stream is empty", vec![]),
        ("the response is not over", vec![created("r"), call()]),
        ("the next response is not over", vec![created("r"), call(), completed(json!([])), created("r2")]),
        ("the arguments are not whole", vec![created("r"), done(0, half), completed(json!([]))]),
        ("the API defines the tool", vec![created("r"), done(0, computer), completed(json!([]))]),
        (
            "another response follows",
            vec![created("r"), event("incomplete", json!({"response": {"incomplete_details": {"reason": "steered"}}}))],
        ),
        ("the Agents SDK runs the tool", vec![created("r"), call(), completed(json!([])), called]),
        ("the Agents SDK wraps the response", [created("r"), call(), completed(json!([]))].map(wrapped).to_vec()),
        ("an agent of the Agents SDK runs", vec![agent("A"), created("r"), call(), completed(json!([]))]),
        ("an approval comes first", vec![created("r"), call(), done(1, approval("a")), completed(json!([]))]),
    ] {
        let drafts = adapt(facts.into_iter().chain([stream_ended()]));
        assert!(awaited(&drafts).is_empty() && ends(&drafts).is_empty(), "{why}: {drafts:?}");
    }
    let drafts = adapt([created("r"), completed(json!([])), stream_ended()]);
    assert_eq!(ends(&drafts), ["run.finished completed"]);
    assert_eq!(drafts.last().unwrap().event_type, EventType::RunFinished, "the end was known");
}
