//! The other connectors: a turn, a second one with the log's conversation, and an approval, in each protocol.

use super::endpoint::{
    Endpoint, Reply, activities, post, say, start_server, start_server_on, text_of, wait_for_control, wait_for_status,
};
use crate::harness::{storage_in, with_timeout};
use proscenium::connect::CONNECTORS;
use proscenium::log::embedded::Sync;
use proscenium::source;
use serde_json::{Value, json};
use std::time::Duration;

fn user(id: &str, text: &str) -> Value {
    json!([{ "id": id, "role": "user", "content": text }])
}

/// Answers the only pending action of a run.
async fn decide(client: &crate::harness::Client, run: &str, control: &str) -> Value {
    let pending = async {
        loop {
            let shown = client.get(&format!("/v1/runs/{run}/activities?audience=user")).await;
            let all =
                if shown.status == 200 { shown.json()["activities"].as_array().cloned().unwrap_or_default() } else { vec![] };
            let asked = all.into_iter().find(|one| one["activityType"] == "action" && one["content"]["status"] == "pending");
            if let Some(asked) = asked {
                return asked;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = with_timeout("a question", pending).await;
    let answered =
        post(client, &format!("/v1/runs/{run}/controls"), &json!({ "control": control, "actionId": asked["activityId"] })).await;
    assert_eq!(answered.status, 202, "{answered:?}");
    asked
}

#[test]
fn every_connector_names_a_source() {
    for kind in CONNECTORS {
        assert!(source::by_name(kind.source).is_some(), "{}", kind.name);
    }
}

fn chat(id: &str, text: &str) -> Vec<Value> {
    vec![
        json!({ "type": "start", "messageId": id }),
        json!({ "type": "start-step" }),
        json!({ "type": "text-start", "id": "0" }),
        json!({ "type": "text-delta", "id": "0", "delta": text }),
        json!({ "type": "text-end", "id": "0" }),
        json!({ "type": "finish-step" }),
        json!({ "type": "finish", "finishReason": "stop" }),
    ]
}

#[tokio::test]
async fn an_ai_sdk_backend_gets_ui_messages_and_its_stream_is_the_answer() {
    let endpoint = Endpoint::start(vec![Reply::Events(chat("a1", "Bonjour")), Reply::Events(chat("a2", "Encore"))]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    assert_eq!(text_of(&say(&client, "t", "r1", user("u1", "Hello")).await), "Bonjour");
    let first = endpoint.received().await.body;
    assert_eq!(json!([first["id"], first["trigger"]]), json!(["t", "submit-message"]));
    assert_eq!(text_of(&say(&client, "t", "r2", user("u2", "Again")).await), "Encore");
    let messages = endpoint.received().await.body["messages"].clone();
    let said = |message: &Value| json!([message["role"], message["parts"].as_array().unwrap().last().unwrap()["text"]]);
    let said: Vec<_> = messages.as_array().unwrap().iter().map(said).collect();
    assert_eq!(json!(said), json!([["user", "Hello"], ["assistant", "Bonjour"], ["user", "Again"]]));
}

#[tokio::test]
async fn an_ai_sdk_approval_is_a_state_of_its_tool_part() {
    let asks = vec![
        json!({ "type": "start", "messageId": "a1" }),
        json!({ "type": "start-step" }),
        json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "rm", "input": { "path": "a" } }),
        json!({ "type": "tool-approval-request", "approvalId": "ask", "toolCallId": "c" }),
        json!({ "type": "finish-step" }),
        json!({ "type": "finish", "finishReason": "tool-calls" }),
    ];
    let mut goes_on = vec![
        json!({ "type": "start", "messageId": "a1" }),
        json!({ "type": "tool-output-available", "toolCallId": "c", "output": "gone" }),
    ];
    goes_on.extend(chat("a1", "Done").into_iter().skip(1));
    let endpoint = Endpoint::start(vec![Reply::Events(asks), Reply::Events(goes_on)]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    say(&client, "t", "r1", user("u1", "Delete")).await;
    endpoint.received().await;
    decide(&client, "r1", "approve").await;
    let messages = endpoint.received().await.body["messages"].clone();
    let part = messages[1]["parts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        json!([part["type"], part["state"], part["approval"]]),
        json!(["tool-rm", "approval-responded", { "id": "ask", "approved": true }])
    );
    wait_for_status(&client, "r1", "completed").await;
    assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], "approved");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_stream_ends_waits_for_its_end() {
    let asks = vec![
        json!({ "type": "start", "messageId": "a1" }),
        json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "rm", "input": {} }),
        json!({ "type": "tool-approval-request", "approvalId": "ask", "toolCallId": "c" }),
    ];
    let pause = vec![json!({ "type": "finish", "finishReason": "tool-calls" })];
    let mut goes_on = vec![
        json!({ "type": "start", "messageId": "a1" }),
        json!({ "type": "tool-output-available", "toolCallId": "c", "output": "gone" }),
    ];
    goes_on.extend(chat("a1", "Done").into_iter().skip(1));
    let (release, released) = tokio::sync::oneshot::channel();
    let endpoint = Endpoint::start(vec![Reply::Paused(asks, released, pause), Reply::Events(goes_on)]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    let send = json!({ "control": "send", "agentId": "helper", "value": { "runId": "r1", "messages": user("u1", "Delete") } });
    post(&client, "/v1/sessions/t/controls", &send).await;
    endpoint.received().await;
    decide(&client, "r1", "approve").await;
    let claimed = async {
        while client.get("/v1/runs/r1/controls").await.ok()["controls"][0]["status"] != "claimed" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_timeout("the claim of the answer", claimed).await;
    release.send(()).unwrap();
    endpoint.received().await;
    wait_for_status(&client, "r1", "completed").await;
    let control = client.get("/v1/runs/r1/controls").await.ok()["controls"][0].clone();
    assert_eq!(json!([control["status"], control["attempt"]]), json!(["acked", 1]));
}

#[tokio::test]
async fn a_message_that_was_sent_before_the_question_waits_for_its_decision() {
    let begins = vec![json!({ "type": "start", "messageId": "a1" })];
    let asks = vec![
        json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "rm", "input": {} }),
        json!({ "type": "tool-approval-request", "approvalId": "ask", "toolCallId": "c" }),
        json!({ "type": "finish", "finishReason": "tool-calls" }),
    ];
    let mut goes_on = vec![
        json!({ "type": "start", "messageId": "a1" }),
        json!({ "type": "tool-output-available", "toolCallId": "c", "output": "gone" }),
    ];
    goes_on.extend(chat("a1", "Done").into_iter().skip(1));
    let (release, released) = tokio::sync::oneshot::channel();
    let replies = vec![Reply::Paused(begins, released, asks), Reply::Events(goes_on), Reply::Events(chat("a2", "Second"))];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    let send =
        |run: &str| json!({ "control": "send", "agentId": "helper", "value": { "runId": run, "messages": user(run, run) } });
    post(&client, "/v1/sessions/t/controls", &send("r1")).await;
    endpoint.received().await;
    let sent = post(&client, "/v1/sessions/t/controls", &send("r2")).await.json()["controlId"].clone();
    let reaches = |status: &'static str| {
        let (client, sent) = (client.clone(), sent.clone());
        let reaching = async move {
            loop {
                let controls = client.get("/v1/sessions/t/controls").await.ok()["controls"].clone();
                if controls.as_array().unwrap().iter().any(|one| one["controlId"] == sent && one["status"] == status) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        with_timeout(status, reaching)
    };
    reaches("claimed").await;
    release.send(()).unwrap();
    reaches("queued").await;
    assert_eq!(client.get("/v1/runs/r1").await.ok()["status"], "waiting");
    decide(&client, "r1", "approve").await;
    wait_for_status(&client, "r2", "completed").await;
    assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], "approved");
    assert_eq!(client.get("/v1/runs/r1").await.ok()["status"], "completed");
}

#[tokio::test]
async fn an_ai_sdk_stream_without_its_mark_is_a_failure() {
    let half = chat("a1", "Half").into_iter().take(4).collect();
    let endpoint = Endpoint::start(vec![Reply::Events(half)]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    say(&client, "t", "r1", user("u1", "Hello")).await;
    wait_for_status(&client, "r1", "failed").await;
}

fn response(id: &str, output: Vec<Value>) -> Vec<Value> {
    let whole = |status: &str, output: &[Value]| json!({ "id": id, "object": "response", "status": status, "output": output });
    let mut events = vec![json!({ "type": "response.created", "response": whole("in_progress", &[]) })];
    for (n, item) in output.iter().enumerate() {
        events.push(json!({ "type": "response.output_item.added", "output_index": n, "item": item }));
        events.push(json!({ "type": "response.output_item.done", "output_index": n, "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": whole("completed", &output) }));
    for (n, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(n);
    }
    events
}

fn output_text(id: &str, text: &str) -> Value {
    json!({ "id": id, "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

#[tokio::test]
async fn a_responses_endpoint_gets_the_conversation_as_input() {
    let answers = ["Bonjour", "Encore"].map(|text| Reply::Events(response(text, vec![output_text(&format!("m-{text}"), text)])));
    let endpoint = Endpoint::start(answers.into()).await;
    let agent = format!("[helper]\nprotocol = \"openai-responses\"\nurl = \"{}\"\noptions = {{ model = \"m\" }}\n", endpoint.url);
    let client = start_server(&agent).await;
    assert_eq!(text_of(&say(&client, "t", "r1", user("u1", "Hello")).await), "Bonjour");
    let first = endpoint.received().await;
    assert_eq!(first.path, "/agent/responses");
    assert_eq!(first.body, json!({ "model": "m", "stream": true, "input": [{ "role": "user", "content": "Hello" }] }));
    say(&client, "t", "r2", user("u2", "Again")).await;
    let input = endpoint.received().await.body["input"].clone();
    let said = |item: &Value| json!([item["role"], item["content"]]);
    let said: Vec<_> = input.as_array().unwrap().iter().map(said).collect();
    assert_eq!(json!(said), json!([["user", "Hello"], ["assistant", "Bonjour"], ["user", "Again"]]));
}

#[tokio::test]
async fn a_responses_approval_names_the_response_that_asked() {
    for (control, approve, outcome) in [("approve", true, "approved"), ("reject", false, "rejected")] {
        let asks =
            json!({ "id": "mcpr_1", "type": "mcp_approval_request", "name": "rm", "server_label": "files", "arguments": "{}" });
        let answers = vec![
            Reply::Events(response("resp_1", vec![asks])),
            Reply::Events(response("resp_2", vec![output_text("m2", "Done")])),
        ];
        let endpoint = Endpoint::start(answers).await;
        let agent =
            format!("[helper]\nprotocol = \"openai-responses\"\nurl = \"{}\"\noptions = {{ model = \"m\" }}\n", endpoint.url);
        let client = start_server(&agent).await;
        say(&client, "t", "r1", user("u1", "Delete")).await;
        endpoint.received().await;
        decide(&client, "r1", control).await;
        let body = endpoint.received().await.body;
        assert_eq!(body["previous_response_id"], "resp_1");
        assert_eq!(
            body["input"],
            json!([{ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve }])
        );
        wait_for_status(&client, "r1", "completed").await;
        assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], outcome);
    }
}

pub(super) fn langgraph(endpoint: &Endpoint) -> String {
    format!("[helper]\nprotocol = \"langgraph\"\nurl = \"{}\"\noptions = {{ assistant = \"graph\" }}\n", endpoint.url)
}

pub(super) fn run_metadata(run: &str) -> (&'static str, Value) {
    ("metadata", json!({ "run_id": run, "attempt": 1 }))
}

/// The whole message of a node.
pub(super) fn node_says(id: &str, text: &str) -> (&'static str, Value) {
    ("updates", json!({ "model": { "messages": [{ "type": "ai", "id": id, "content": text, "tool_calls": [] }] } }))
}

fn ended(status: &str) -> Vec<Reply> {
    vec![Reply::Json(json!({ "run_id": "up", "status": status })), Reply::Json(json!({ "next": [], "tasks": [] }))]
}

/// The state of a thread whose graph asks these questions.
pub(super) fn asking(interrupts: &[&str]) -> Reply {
    let interrupts: Vec<Value> = interrupts.iter().map(|id| json!({ "id": id, "value": "?" })).collect();
    Reply::Json(json!({ "next": ["ask"], "tasks": [{ "id": "task", "interrupts": interrupts }] }))
}

#[tokio::test]
async fn a_langgraph_run_is_looked_at_after_its_stream_which_has_no_end() {
    for (status, ours) in [("success", "completed"), ("interrupted", "cancelled"), ("error", "failed")] {
        let mut answers = vec![Reply::Named(vec![run_metadata("up"), node_says("m1", "Bonjour")], false)];
        answers.extend(ended(status));
        let endpoint = Endpoint::start(answers).await;
        let client = start_server(&langgraph(&endpoint)).await;
        say(&client, "67e55044-10b1-426f-9247-bb680e5fe0c8", "r1", user("u1", "Hello")).await;
        wait_for_status(&client, "r1", ours).await;
        let sent = endpoint.received().await;
        assert_eq!(sent.path, "/agent/threads/67e55044-10b1-426f-9247-bb680e5fe0c8/runs/stream");
        let messages = json!({ "messages": [{ "id": "u1", "role": "user", "content": "Hello" }] });
        assert_eq!(json!([sent.body["assistant_id"], sent.body["input"]]), json!(["graph", messages]));
        assert!(endpoint.received().await.path.ends_with("/runs/up"));
        let messages = activities(&client, "r1", "user", "message").await;
        assert_eq!(messages.last().unwrap()["parts"][0]["text"], json!(["Bonjour"]));
    }
}

#[tokio::test]
async fn a_langgraph_interrupt_is_resumed_with_the_user_s_value() {
    let asks = ("updates", json!({ "__interrupt__": [{ "id": "i1", "value": { "question": "Which city?" } }] }));
    let mut answers = vec![
        Reply::Named(vec![run_metadata("up-1"), asks], false),
        asking(&["i1"]),
        Reply::Named(vec![run_metadata("up-2"), node_says("m1", "Oslo it is")], false),
    ];
    answers.extend(ended("success"));
    let endpoint = Endpoint::start(answers).await;
    let client = start_server(&langgraph(&endpoint)).await;
    say(&client, "t", "r1", user("u1", "Plan")).await;
    wait_for_status(&client, "r1", "waiting").await;
    endpoint.received().await;
    let answer = json!({ "control": "answer", "actionId": "i1", "value": "Oslo" });
    assert_eq!(post(&client, "/v1/runs/r1/controls", &answer).await.status, 202);
    assert!(endpoint.received().await.path.ends_with("/state"));
    let body = endpoint.received().await.body;
    assert_eq!(json!([body["command"], body["input"]]), json!([{ "resume": { "i1": "Oslo" } }, null]));
    wait_for_status(&client, "r1", "completed").await;
    let action = activities(&client, "r1", "user", "action").await[0].clone();
    assert_eq!(json!([action["outcome"], action["value"]]), json!(["answered", "Oslo"]));
}

#[tokio::test]
async fn changed_arguments_are_an_edit_for_langgraph_s_approvals() {
    let calls = json!([{ "name": "delete", "args": { "path": "a.txt" } }]);
    let review = json!({ "action_requests": calls, "review_configs": [{ "action_name": "delete", "allowed_decisions": ["approve", "edit"] }] });
    let asks = ("updates", json!({ "__interrupt__": [{ "id": "i1", "value": review }] }));
    let mut answers = vec![
        Reply::Named(vec![run_metadata("up-1"), asks], false),
        asking(&["i1"]),
        Reply::Named(vec![run_metadata("up-2"), node_says("m1", "Done")], false),
    ];
    answers.extend(ended("success"));
    let endpoint = Endpoint::start(answers).await;
    let client = start_server(&langgraph(&endpoint)).await;
    say(&client, "t", "r1", user("u1", "Delete")).await;
    wait_for_status(&client, "r1", "waiting").await;
    endpoint.received().await;
    let edit = |value: Value| json!({ "control": "edit", "actionId": "i1", "value": value });
    let other = post(&client, "/v1/runs/r1/controls", &edit(json!([]))).await.json();
    wait_for_control(&client, "r1", &other["controlId"], "nacked").await;
    let changed = json!([{ "name": "delete", "args": { "path": "b.txt" } }]);
    post(&client, "/v1/runs/r1/controls", &edit(changed.clone())).await;
    let decisions = json!([{ "type": "edit", "edited_action": changed[0] }]);
    endpoint.received().await;
    assert_eq!(endpoint.received().await.body["command"], json!({ "resume": { "i1": { "decisions": decisions } } }));
    wait_for_status(&client, "r1", "completed").await;
    assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], "approved");
}

#[tokio::test]
async fn a_stop_cancels_the_run_at_the_langgraph_server() {
    let endpoint =
        Endpoint::start(vec![Reply::Named(vec![run_metadata("up"), node_says("m1", "Once")], true), Reply::Json(json!({}))])
            .await;
    let client = start_server(&langgraph(&endpoint)).await;
    let page = tokio::spawn({
        let client = client.clone();
        async move { say(&client, "t", "r1", user("u1", "Tell")).await }
    });
    wait_for_status(&client, "r1", "running").await;
    endpoint.received().await;
    post(&client, "/v1/runs/r1/controls", &json!({ "control": "interrupt" })).await;
    assert!(endpoint.received().await.path.ends_with("/runs/up/cancel"));
    wait_for_status(&client, "r1", "cancelled").await;
    page.await.unwrap();
}

#[tokio::test]
async fn a_stop_before_the_first_event_cancels_the_run_at_the_langgraph_server() {
    let (release, released) = tokio::sync::oneshot::channel();
    let endpoint = Endpoint::start(vec![Reply::Late(released, vec![run_metadata("up")]), Reply::Json(json!({}))]).await;
    let client = start_server(&langgraph(&endpoint)).await;
    let send = json!({ "control": "send", "agentId": "helper", "value": { "runId": "r1", "messages": user("u1", "Go") } });
    post(&client, "/v1/sessions/t/controls", &send).await;
    endpoint.received().await;
    wait_for_status(&client, "r1", "accepted").await;
    let stop = post(&client, "/v1/runs/r1/controls", &json!({ "control": "stop" })).await.json();
    wait_for_control(&client, "r1", &stop["controlId"], "acked").await;
    // Only now does the server name the run, which would go on without the connection.
    release.send(()).unwrap();
    assert!(endpoint.received().await.path.ends_with("/runs/up/cancel"));
    wait_for_status(&client, "r1", "cancelled").await;
}

/// Starts a run `r1` with this message, and a new server on the same directory once the log has the agent's first facts.
async fn restart_in_mid_run(dir: &std::path::Path, table: &str, endpoint: &Endpoint, text: &str) -> crate::harness::Client {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let store = storage_in(dir, Sync::Never).await;
    let (client, serving) = start_server_on(store, table, async { drop(stopped.await) }).await;
    let send = json!({ "control": "send", "agentId": "helper", "value": { "runId": "r1", "messages": user("u1", text) } });
    post(&client, "/v1/sessions/t/controls", &send).await;
    endpoint.received().await;
    wait_for_status(&client, "r1", "running").await;
    stop.send(()).unwrap();
    serving.await.unwrap();
    start_server_on(storage_in(dir, Sync::Never).await, table, std::future::pending()).await.0
}

#[tokio::test]
async fn a_langgraph_run_is_joined_after_a_restart_and_its_state_has_what_was_missed() {
    for (next, status) in [(json!([]), "completed"), (json!(["ask"]), "waiting")] {
        joined_langgraph_run(&next, status).await;
    }
}

/// A joined run whose thread has these next steps.
async fn joined_langgraph_run(next: &Value, status: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut answers = vec![
        Reply::Named(vec![run_metadata("up"), node_says("m1", "Before")], true),
        Reply::Named(vec![node_says("m2", "After")], false),
    ];
    // What a node said between the two streams is only in the state of the thread.
    let said = |kind: &str, id: &str, text: &str| json!({ "type": kind, "id": id, "content": text });
    let thread = [said("human", "u0", "Hi"), said("ai", "m0", "Old"), said("human", "u1", "Go"), said("ai", "m1", "Before")];
    let thread = [&thread[..], &[said("ai", "m3", "Between"), said("ai", "m2", "After")]].concat();
    answers.push(Reply::Json(json!({ "values": { "messages": thread }, "next": next, "metadata": { "run_id": "up" } })));
    answers.push(Reply::Json(json!({ "run_id": "up", "status": "success" })));
    let endpoint = Endpoint::start(answers).await;
    let client = restart_in_mid_run(dir.path(), &langgraph(&endpoint), &endpoint, "Go").await;
    assert!(endpoint.received().await.path.ends_with("/runs/up/stream"));
    wait_for_status(&client, "r1", status).await;
    assert!(endpoint.received().await.path.ends_with("/state"));
    assert!(endpoint.received().await.path.ends_with("/runs/up"));
    assert_eq!(endpoint.unread().await, 0, "the state is read once");
    let texts = activities(&client, "r1", "user", "message").await;
    let texts: Vec<_> = texts.iter().map(|message| message["parts"][0]["text"][0].clone()).collect();
    assert_eq!(texts, ["Go", "Before", "After", "Between"]);
}

fn a2a(state: &str, text: &str) -> Value {
    let status = json!({ "state": state, "message": { "messageId": text, "role": "ROLE_AGENT", "parts": [{ "text": text }] } });
    json!({ "jsonrpc": "2.0", "id": "r1", "result": { "statusUpdate": { "taskId": "task-1", "contextId": "c", "status": status } } })
}

#[tokio::test]
async fn an_a2a_question_is_answered_in_its_task_and_the_next_turn_is_in_its_context() {
    let task = json!({ "jsonrpc": "2.0", "id": "r1", "result": { "task": { "id": "task-1", "contextId": "c", "status": { "state": "TASK_STATE_SUBMITTED" } } } });
    let message = json!({ "jsonrpc": "2.0", "id": "r2", "result": { "message": { "messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{ "text": "Of course" }] } } });
    let answers = vec![
        Reply::Events(vec![task, a2a("TASK_STATE_INPUT_REQUIRED", "Which city?")]),
        Reply::Events(vec![a2a("TASK_STATE_COMPLETED", "Oslo it is")]),
        Reply::Events(vec![message]),
    ];
    let endpoint = Endpoint::start(answers).await;
    let client = start_server(&format!("[helper]\nprotocol = \"a2a\"\nurl = \"{}\"\n", endpoint.url)).await;
    say(&client, "t", "r1", user("u1", "Plan")).await;
    let sent = endpoint.received().await;
    assert_eq!(sent.headers["a2a-version"], "1.0");
    assert_eq!(
        json!([sent.body["method"], sent.body["params"]["message"]]),
        json!(["SendStreamingMessage", { "messageId": "u1", "role": "ROLE_USER", "parts": [{ "text": "Plan" }] }])
    );
    let asked = activities(&client, "r1", "user", "action").await;
    assert_eq!(asked[0]["status"], "pending", "{asked:#?}");
    let summary = client.get("/v1/runs/r1/activities?audience=user").await.ok();
    let action = summary["activities"].as_array().unwrap().iter().find(|one| one["activityType"] == "action").unwrap();
    let answer = json!({ "control": "answer", "actionId": action["activityId"], "value": "Oslo" });
    assert_eq!(post(&client, "/v1/runs/r1/controls", &answer).await.status, 202);
    let sent = endpoint.received().await.body["params"]["message"].clone();
    assert_eq!(json!([sent["taskId"], sent["contextId"], sent["parts"]]), json!(["task-1", "c", [{ "text": "Oslo" }]]));
    wait_for_status(&client, "r1", "completed").await;
    say(&client, "t", "r2", user("u2", "Thanks")).await;
    let sent = endpoint.received().await.body["params"]["message"].clone();
    assert_eq!(json!([sent["taskId"], sent["contextId"]]), json!([null, "c"]));
    wait_for_status(&client, "r2", "completed").await;
}

#[tokio::test]
async fn an_a2a_task_that_ended_while_the_server_was_down_ends_its_run() {
    let task = |state: &str, more: Value| {
        let mut task = json!({ "id": "task-1", "contextId": "c", "status": { "state": state } });
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    };
    let refusal =
        json!({ "jsonrpc": "2.0", "id": "r1", "error": { "code": -32004, "message": "The task is in a terminal state" } });
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": "It is done" }] });
    let ended = task("TASK_STATE_COMPLETED", json!({ "artifacts": [artifact] }));
    let answers = vec![
        Reply::Open(vec![json!({ "jsonrpc": "2.0", "id": "r1", "result": { "task": task("TASK_STATE_WORKING", json!({})) } })]),
        Reply::Json(refusal),
        Reply::Json(json!({ "jsonrpc": "2.0", "id": "r1", "result": ended })),
    ];
    let endpoint = Endpoint::start(answers).await;
    let table = format!("[helper]\nprotocol = \"a2a\"\nurl = \"{}\"\n", endpoint.url);
    let dir = tempfile::tempdir().unwrap();
    let client = restart_in_mid_run(dir.path(), &table, &endpoint, "Work").await;
    assert_eq!(endpoint.received().await.body["method"], "SubscribeToTask");
    let asked = endpoint.received().await.body;
    assert_eq!(json!([asked["method"], asked["params"]]), json!(["GetTask", { "id": "task-1" }]));
    wait_for_status(&client, "r1", "completed").await;
    let said = activities(&client, "r1", "user", "message").await;
    assert_eq!(said.last().unwrap()["parts"][0]["text"], json!(["It is done"]));
}

/// Writes a program that speaks the lines of a test, and returns the agent's table.
pub(super) fn program(dir: &std::path::Path, protocol: &str, script: &str) -> String {
    let file = dir.join("agent.sh");
    std::fs::write(&file, script).unwrap();
    format!("[helper]\nprotocol = \"{protocol}\"\ncommand = [\"/bin/sh\", {:?}]\n", file.to_str().unwrap())
}

/// The answers of an ACP agent until its first prompt.
const ACP_START: &str = r#"
say() { printf '%s\n' "$1"; }
read -r line; say '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r line; case "$line" in *"\"cwd\":\"$(pwd -P)\""*) works=here;; *) works=elsewhere;; esac
say '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
text() { say "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$1\"}}}}"; }
end() { say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"result\":{\"stopReason\":\"$2\"}}"; }
"#;

#[tokio::test]
async fn an_acp_agent_stays_for_the_turns_of_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{ACP_START} text Bonjour; end 2 end_turn; read -r line; text Encore; end 3 end_turn; read -r line");
    let client = start_server(&program(dir.path(), "acp", &script)).await;
    assert_eq!(text_of(&say(&client, "t", "r1", user("u1", "Hello")).await), "Bonjour");
    assert_eq!(text_of(&say(&client, "t", "r2", user("u2", "Again")).await), "Encore");
    wait_for_status(&client, "r2", "completed").await;
}

#[tokio::test]
async fn an_acp_agent_works_in_its_directory_or_in_that_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let entry = program(dir.path(), "acp", &format!("{ACP_START} text $works; end 2 end_turn; read -r line"));
    let directory = dir.path().canonicalize().unwrap();
    for directory in ["directory = \".\"".to_owned(), format!("directory = {directory:?}"), String::new()] {
        let client = start_server(&format!("{entry}{directory}\n")).await;
        assert_eq!(text_of(&say(&client, "t", "r1", user("u1", "Hello")).await), "here", "{directory}");
    }
}

#[tokio::test]
async fn an_acp_permission_is_answered_with_an_offered_option() {
    for (control, option, outcome) in [("approve", "go", "approved"), ("reject", "stay", "rejected")] {
        let dir = tempfile::tempdir().unwrap();
        let asks = r#"say '{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c","title":"rm a"},"options":[{"optionId":"go","name":"Go","kind":"allow_once"},{"optionId":"stay","name":"Stay","kind":"reject_once"}]}}'"#;
        let script = format!(
            "{ACP_START} {asks}\nread -r line; case \"$line\" in *'\"optionId\":\"{option}\"'*) text Chosen;; *) text Wrong;; esac; end 2 end_turn; read -r line"
        );
        let client = start_server(&program(dir.path(), "acp", &script)).await;
        let page = tokio::spawn({
            let client = client.clone();
            async move { say(&client, "t", "r1", user("u1", "Delete")).await }
        });
        decide(&client, "r1", control).await;
        wait_for_status(&client, "r1", "completed").await;
        let texts = activities(&client, "r1", "user", "message").await;
        assert_eq!(texts.last().unwrap()["parts"][0]["text"], json!(["Chosen"]), "{texts:#?}");
        assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], outcome);
        page.await.unwrap();
    }
}

#[tokio::test]
async fn a_stop_reaches_an_acp_agent_which_reports_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "{ACP_START} text Working; read -r line; case \"$line\" in *session/cancel*) end 2 cancelled;; esac; read -r line"
    );
    let client = start_server(&program(dir.path(), "acp", &script)).await;
    let page = tokio::spawn({
        let client = client.clone();
        async move { say(&client, "t", "r1", user("u1", "Go")).await }
    });
    wait_for_status(&client, "r1", "running").await;
    post(&client, "/v1/runs/r1/controls", &json!({ "control": "interrupt" })).await;
    wait_for_status(&client, "r1", "cancelled").await;
    page.await.unwrap();
}

#[tokio::test]
async fn a_process_that_ends_fails_the_run_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let client = start_server(&program(dir.path(), "acp", "echo 'no licence found' >&2; exit 3")).await;
    say(&client, "t", "r1", user("u1", "Hello")).await;
    wait_for_status(&client, "r1", "failed").await;
    let entries = activities(&client, "r1", "dashboard", "diagnostics").await[0]["entries"].clone();
    let entry = entries.as_array().unwrap().last().unwrap().clone();
    assert_eq!(entry["code"], "process_ended");
    assert!(entry["message"].as_str().unwrap().contains("no licence found"), "{entry}");
}

#[tokio::test]
async fn a_program_of_claude_s_lines_is_told_the_answer_to_its_question() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
say() { printf '%s\n' "$1"; }
read -r line
say '{"type":"system","subtype":"init","session_id":"s","uuid":"1","model":"m","permissionMode":"default","tools":[]}'
say '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{"command":"rm a"}}}'
read -r line
case "$line" in *'"behavior":"allow"'*'"command":"rm a"'*) said=Allowed;; *'"behavior":"deny"'*) said=Denied;; *) said=Wrong;; esac
say "{\"type\":\"assistant\",\"session_id\":\"s\",\"uuid\":\"2\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"m1\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"$said\"}]}}"
say '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"3","result":"","num_turns":1,"result_index":0}'
read -r line
"#;
    for (control, said) in [("approve", "Allowed"), ("reject", "Denied")] {
        let client = start_server(&program(dir.path(), "claude-stream-json", script)).await;
        let page = tokio::spawn({
            let client = client.clone();
            async move { say(&client, "t", "r1", user("u1", "Delete")).await }
        });
        decide(&client, "r1", control).await;
        wait_for_status(&client, "r1", "completed").await;
        let texts = activities(&client, "r1", "user", "message").await;
        assert_eq!(texts.last().unwrap()["parts"][0]["text"], json!([said]), "{texts:#?}");
        page.await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_waits_for_an_answer_is_told_no_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
say() { printf '%s\n' "$1"; }
read -r line
say '{"type":"system","subtype":"init","session_id":"s","uuid":"1","model":"m","permissionMode":"default","tools":[]}'
say '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{"command":"rm a"}}}'
read -r line
case "$line" in *'"behavior":"deny"'*) said=Denied;; *) said=Wrong;; esac
say "{\"type\":\"assistant\",\"session_id\":\"s\",\"uuid\":\"2\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"m1\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"$said\"}]}}"
say '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"3","result":"","num_turns":1,"result_index":0}'
read -r line
"#;
    let client = start_server(&program(dir.path(), "claude-stream-json", script)).await;
    let page = tokio::spawn({
        let client = client.clone();
        async move { say(&client, "t", "r1", user("u1", "Delete")).await }
    });
    wait_for_status(&client, "r1", "waiting").await;
    let shown = client.get("/v1/runs/r1/activities?surfaces=hitl").await.ok()["activities"][0].clone();
    let payload = json!({ "kind": "tool_approval", "expiresAt": "2026-01-01T00:00:00Z" });
    let deadline = json!({ "type": "action.required", "actionId": shown["activityId"], "payload": payload });
    post(&client, "/v1/runs/r1/facts", &json!([deadline])).await.ok();
    wait_for_status(&client, "r1", "completed").await;
    let texts = activities(&client, "r1", "user", "message").await;
    assert_eq!(texts.last().unwrap()["parts"][0]["text"], json!(["Denied"]), "{texts:#?}");
    assert_eq!(activities(&client, "r1", "user", "action").await[0]["outcome"], "expired");
    page.await.unwrap();
}
