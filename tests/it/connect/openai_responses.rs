//! The connector `openai-responses`: functions that the page runs.

use super::endpoint::{Endpoint, Reply, activities, events, post, say, start_server, start_server_on, text_of, wait_for_status};
use super::failures::agent_fails;
use crate::harness::storage_in;
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use tokio::sync::oneshot;

fn agent(endpoint: &Endpoint) -> String {
    format!("[helper]\nprotocol = \"openai-responses\"\nurl = \"{}\"\noptions = {{ model = \"m\" }}\nretries = 0\n", endpoint.url)
}

fn user(text: &str) -> Value {
    json!([{ "id": text, "role": "user", "content": text }])
}

/// The result of a function that ran in an AG-UI page.
fn result(call: &str, content: &str) -> Value {
    json!({ "id": format!("result-{call}"), "role": "tool", "toolCallId": call, "content": content })
}

fn output(call: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call, "output": output })
}

fn function(call: &str) -> Value {
    json!({ "id": format!("fc_{call}"), "type": "function_call", "call_id": call, "name": "where", "arguments": "{\"n\":1}", "status": "completed" })
}

/// The item of a call as the next conversation has it.
fn sent(call: &str) -> Value {
    json!({ "type": "function_call", "call_id": call, "name": "where", "arguments": "{\"n\":1}" })
}

fn text(text: &str) -> Value {
    json!({ "id": format!("m-{text}"), "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

/// The stream of a response with these items.
fn response(id: &str, output: &[Value]) -> Vec<Value> {
    let whole = |status: &str, output: &[Value]| json!({ "id": id, "object": "response", "status": status, "output": output });
    let items = output.iter().enumerate().flat_map(|(n, item)| {
        ["added", "done"].map(|step| json!({ "type": format!("response.output_item.{step}"), "output_index": n, "item": item }))
    });
    let begin = json!({ "type": "response.created", "response": whole("in_progress", &[]) });
    let end = json!({ "type": "response.completed", "response": whole("completed", output) });
    let mut events: Vec<Value> = [begin].into_iter().chain(items).chain([end]).collect();
    for (n, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(n);
    }
    events
}

/// An endpoint whose first response calls these functions, and whose second is a text.
async fn calling(calls: &[&str]) -> Endpoint {
    let calls: Vec<Value> = calls.iter().map(|call| function(call)).collect();
    let answers = [response("resp_1", &calls), response("resp_2", &[text("In Oslo")])];
    Endpoint::start(answers.map(Reply::Events).into()).await
}

/// The calls of a run: their ids, their states and whether they await the page.
async fn calls(client: &crate::harness::Client, run: &str) -> Value {
    let calls = activities(client, run, "user", "tool-call-progress").await;
    calls.iter().map(|call| json!([call["call_id"], call["status"], call.get("awaits")])).collect()
}

#[tokio::test]
async fn a_function_runs_in_the_page_and_its_output_is_in_the_next_call() {
    let endpoint = calling(&["c1"]).await;
    let client = start_server(&agent(&endpoint)).await;
    let called = say(&client, "t", "r1", user("Where?")).await;
    let of = |kind: &str| called.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("TOOL_CALL_START")[0]["toolCallId"], "c1", "{called:#?}");
    assert_eq!(of("TOOL_CALL_ARGS")[0]["delta"], "{\"n\":1}");
    assert_eq!(json!([of("TOOL_CALL_END").len(), of("TOOL_CALL_RESULT").len()]), json!([1, 0]), "the page has to run it");
    assert_eq!(called.last().unwrap()["type"], "RUN_FINISHED");
    wait_for_status(&client, "r1", "completed").await;
    assert_eq!(calls(&client, "r1").await, json!([["c1", "pending", "client"]]));
    endpoint.received().await;
    assert_eq!(text_of(&say(&client, "t", "r2", json!([result("c1", "Oslo")])).await), "In Oslo");
    assert_eq!(
        endpoint.received().await.body,
        json!({ "model": "m", "stream": true,
            "input": [{ "role": "user", "content": "Where?" }, sent("c1"), output("c1", "Oslo")] })
    );
    assert_eq!(calls(&client, "r1").await, json!([["c1", "done", null]]));
    wait_for_status(&client, "r2", "completed").await;
}

#[tokio::test]
async fn an_answer_comes_by_the_ai_sdk_too() {
    for (part, sent_output) in [
        (json!({ "state": "output-available", "output": { "city": "Oslo" } }), "{\"city\":\"Oslo\"}"),
        (json!({ "state": "output-error", "errorText": "No position." }), "{\"error\":{\"message\":\"No position.\"}}"),
    ] {
        let endpoint = calling(&["c1"]).await;
        let client = start_server(&agent(&endpoint)).await;
        let question = json!({ "id": "u", "role": "user", "parts": [{ "type": "text", "text": "Where?" }] });
        let body = json!({ "id": "t", "trigger": "submit-message", "messages": [question] });
        let called = events(&post(&client, "/ai-sdk/helper", &body).await);
        let of = |kind: &str| called.iter().rfind(|chunk| chunk["type"] == kind);
        let offered = of("tool-input-available").unwrap();
        assert_eq!(json!([offered["input"], offered["providerExecuted"]]), json!([{ "n": 1 }, false]), "{called:#?}");
        let has_output = |chunk: &Value| chunk["type"] == "tool-output-available" && chunk["preliminary"] != true;
        assert!(!called.iter().any(has_output) && of("tool-output-error").is_none(), "{called:#?}");
        endpoint.received().await;
        let mut tool = json!({ "type": "tool-where", "toolCallId": "c1", "input": { "n": 1 } });
        tool.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        let answer = json!({ "id": of("start").unwrap()["messageId"], "role": "assistant", "parts": [tool] });
        let body = json!({ "id": "t", "trigger": "submit-message", "messages": [question, answer] });
        events(&post(&client, "/ai-sdk/helper", &body).await);
        let input = endpoint.received().await.body["input"].clone();
        assert_eq!(input, json!([{ "role": "user", "content": "Where?" }, sent("c1"), output("c1", sent_output)]));
    }
}

#[tokio::test]
async fn several_functions_run_at_once_and_one_without_an_output_is_left_out() {
    for (answered, left) in [(vec!["c1", "c2"], "done"), (vec!["c2", "c1"], "done"), (vec!["c2"], "pending")] {
        let endpoint = calling(&["c1", "c2"]).await;
        let client = start_server(&agent(&endpoint)).await;
        say(&client, "t", "r1", user("Where?")).await;
        endpoint.received().await;
        assert_eq!(calls(&client, "r1").await, json!([["c1", "pending", "client"], ["c2", "pending", "client"]]));
        let results: Value = answered.iter().map(|call| result(call, &format!("of {call}"))).collect();
        assert_eq!(text_of(&say(&client, "t", "r2", results).await), "In Oslo");
        let input = endpoint.received().await.body["input"].as_array().unwrap()[1..].to_vec();
        let of = |call: &str| input.iter().filter(|item| item["call_id"] == call).cloned().collect::<Vec<_>>();
        for call in &answered {
            assert_eq!(of(call), [sent(call), output(call, &format!("of {call}"))], "{input:#?}");
        }
        assert_eq!(input.len(), 2 * answered.len(), "a model refuses a call without an output: {input:#?}");
        assert_eq!(calls(&client, "r1").await[0][1], left);
        wait_for_status(&client, "r2", "completed").await;
    }
}

#[tokio::test]
async fn a_function_of_the_last_response_may_be_answered_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = calling(&["c1"]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, serving) = start_server_on(store, &agent(&endpoint), async { drop(stopped.await) }).await;
    say(&client, "t", "r1", user("Where?")).await;
    endpoint.received().await;
    drop(client);
    stop.send(()).unwrap();
    serving.await.unwrap();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, _serving) = start_server_on(store, &agent(&endpoint), std::future::pending()).await;
    assert_eq!(calls(&client, "r1").await, json!([["c1", "pending", "client"]]));
    assert_eq!(text_of(&say(&client, "t", "r2", json!([result("c1", "Oslo")])).await), "In Oslo");
    let input = endpoint.received().await.body["input"].clone();
    assert_eq!(input, json!([{ "role": "user", "content": "Where?" }, sent("c1"), output("c1", "Oslo")]));
}

#[tokio::test]
async fn a_function_that_the_endpoint_runs_is_not_the_page_s() {
    let wrapped = |events: Vec<Value>| events.into_iter().map(|data| json!({ "type": "raw_response_event", "data": data }));
    let item = |name: &str, raw: Value| json!({ "type": "run_item_stream_event", "name": name, "item": { "raw_item": raw } });
    let first = || response("resp_1", &[function("c1")]);
    let last = || response("resp_2", &[text("In Oslo")]);
    let of_agents_sdk = wrapped(first())
        .chain([item("tool_called", function("c1")), item("tool_output", output("c1", "Oslo"))])
        .chain(wrapped(last()))
        .collect();
    for stream in [of_agents_sdk, [first(), vec![output("c1", "Oslo")], last()].concat(), [first(), last()].concat()] {
        let endpoint = Endpoint::start(vec![Reply::Events(stream)]).await;
        let client = start_server(&agent(&endpoint)).await;
        let events = say(&client, "t", "r1", user("Where?")).await;
        assert_eq!(text_of(&events), "In Oslo", "{events:#?}");
        wait_for_status(&client, "r1", "completed").await;
        assert_eq!(calls(&client, "r1").await, json!([["c1", "done", null]]));
    }
}

#[tokio::test]
async fn a_stream_that_does_not_leave_a_function_to_the_page_fails() {
    let first = response("resp_1", &[function("c1")]);
    let called = json!({ "type": "run_item_stream_event", "name": "tool_called", "item": { "raw_item": function("c1") } });
    for reply in [
        Reply::Cut(first.clone()),
        Reply::Events(first[..first.len() - 1].to_vec()),
        Reply::Events([first.clone(), vec![called]].concat()),
    ] {
        let endpoint = Endpoint::start(vec![reply]).await;
        agent_fails(&agent(&endpoint), "endpoint_closed").await;
    }
}
