//! Requests beside the conversation: actions in generated interfaces, and requests of MCP Apps.

use super::endpoint::{Endpoint, Reply, activities, events, post, say, start_server, text_of, wait_for_status};
use crate::harness::Client;
use serde_json::{Value, json};

fn agent(endpoint: &Endpoint) -> String {
    format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{}\"\n", endpoint.url)
}

fn started(run: &str) -> Value {
    json!({ "type": "RUN_STARTED", "threadId": "t", "runId": run })
}

fn finished(run: &str, result: Value) -> Value {
    json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": run, "result": result })
}

fn message(id: &str, text: &str) -> [Value; 3] {
    [
        json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text }),
        json!({ "type": "TEXT_MESSAGE_END", "messageId": id }),
    ]
}

fn answer(run: &str, id: &str, text: &str) -> Reply {
    Reply::Events([vec![started(run)], message(id, text).to_vec(), vec![finished(run, Value::Null)]].concat())
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

/// A request without a message.
async fn ask(client: &Client, run: &str, forwarded: Value) -> Vec<Value> {
    ask_knowing(client, run, forwarded, json!([])).await
}

/// The same, as CopilotKit's renderers send it, with the conversation that they know.
async fn ask_knowing(client: &Client, run: &str, forwarded: Value, known: Value) -> Vec<Value> {
    let body = json!({ "threadId": "t", "runId": run, "messages": known, "forwardedProps": forwarded });
    events(&post(client, "/copilotkit/agent/helper/run", &body).await)
}

fn proxied() -> Value {
    json!({ "__proxiedMCPRequest": { "serverHash": "h", "method": "resources/read", "params": { "uri": "ui://app" } } })
}

fn clicked() -> Value {
    let action = json!({ "name": "book", "surfaceId": "s", "sourceComponentId": "b", "context": { "seat": "MARK-4C" }, "timestamp": "2026-01-01T00:00:00Z" });
    json!({ "a2uiAction": { "userAction": action }, "a2uiClientDataModel": { "s": { "draft": "SECRET-DRAFT" } } })
}

/// The runs of the thread, as this audience lists them.
async fn runs(client: &Client, audience: &str) -> Vec<String> {
    let session = client.get(&format!("/v1/sessions/t?audience={audience}")).await.json();
    let runs = session["runs"].as_array().unwrap_or_else(|| panic!("{session:#}"));
    runs.iter().filter_map(|run| run["runId"].as_str().map(str::to_owned)).collect()
}

/// The events of the session's own log, as this audience sees them.
async fn session_events(client: &Client, audience: &str) -> String {
    let events = client.get(&format!("/v1/sessions/t/events?audience={audience}")).await;
    String::from_utf8_lossy(&events.body).into_owned()
}

#[tokio::test]
async fn a_proxied_request_reaches_the_agent_and_its_result_the_page_without_a_run() {
    let resource = json!({ "contents": [{ "uri": "ui://app", "mimeType": "text/html;profile=mcp-app", "text": "<p>App</p>" }] });
    let replies = vec![answer("r1", "a1", "Hi"), Reply::Events(vec![started("x1"), finished("x1", resource.clone())])];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&agent(&endpoint)).await;
    say(&client, "t", "r1", json!([user("u1", "Hello")])).await;
    endpoint.received().await;
    let before = session_events(&client, "user").await;
    let known = json!([user("u1", "Hello"), { "id": "a1", "role": "assistant", "content": "Hi" }]);
    let got = ask_knowing(&client, "x1", proxied(), known).await;
    let types: Vec<_> = got.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((types, &got[1]["result"]), (vec!["RUN_STARTED", "RUN_FINISHED"], &resource), "{got:#?}");
    let received = endpoint.received().await.body;
    assert_eq!(received["forwardedProps"], proxied());
    assert_eq!(received["messages"].as_array().unwrap().len(), 2, "the agent gets the conversation, and no message more");
    for audience in ["user", "internal"] {
        assert_eq!(runs(&client, audience).await, ["r1"]);
    }
    assert_eq!(client.get("/v1/runs/x1?audience=internal").await.status, 404);
    assert_eq!(session_events(&client, "user").await, before, "the user's readers learn nothing of it");
    let internal = session_events(&client, "internal").await;
    for part in ["aside_request", "resources/read", "aside_answer", "<p>App</p>"] {
        assert!(internal.contains(part), "{part}: {internal}");
    }
}

#[tokio::test]
async fn a_large_result_reaches_the_page_whole_and_a_failure_says_so() {
    let page = "<p>App</p>\n".repeat(40_000);
    let resource = json!({ "contents": [{ "uri": "ui://app", "text": page }] });
    let error = json!({ "type": "RUN_ERROR", "message": "no such server", "code": "mcp" });
    let replies = vec![
        Reply::Events(vec![started("x1"), finished("x1", resource.clone())]),
        Reply::Events(vec![started("x2"), error]),
        Reply::Other(500, "text/plain", "broken inside"),
    ];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&agent(&endpoint)).await;
    let got = ask(&client, "x1", proxied()).await;
    assert_eq!(got.last().unwrap()["result"], resource);
    let again = ask(&client, "x1", proxied()).await;
    assert_eq!(again.last().unwrap()["result"], resource, "a repeated request gets the first answer");
    let failed = ask(&client, "x2", proxied()).await;
    let last = failed.last().unwrap();
    assert_eq!((&last["type"], &last["message"]), (&json!("RUN_ERROR"), &json!("no such server")));
    let broken = ask(&client, "x3", proxied()).await;
    let last = broken.last().unwrap();
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("agent_failed")), "{last}");
    assert!(!last.to_string().contains("broken inside"), "{last}");
    assert!(session_events(&client, "internal").await.contains("broken inside"), "operators see why");
}

#[tokio::test]
async fn an_action_in_a_surface_leaves_a_run_only_if_the_agent_says_something() {
    let update = json!([{ "version": "v0.9", "updateDataModel": { "surfaceId": "s", "path": "/booked", "value": true } }]);
    let activity = json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": "a2ui-surface", "content": { "a2ui_operations": update } });
    let replies = vec![
        answer("r1", "a1", "Hi"),
        Reply::Events(vec![started("x1"), finished("x1", Value::Null)]),
        Reply::Events([vec![started("x2")], message("a2", "Booked").to_vec(), vec![finished("x2", Value::Null)]].concat()),
        Reply::Events(vec![started("x3"), activity, finished("x3", Value::Null)]),
    ];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&agent(&endpoint)).await;
    say(&client, "t", "r1", json!([user("u1", "Hello")])).await;
    endpoint.received().await;
    let quiet = ask(&client, "x1", clicked()).await;
    assert_eq!(quiet.last().unwrap()["type"], "RUN_FINISHED", "{quiet:#?}");
    assert_eq!(endpoint.received().await.body["forwardedProps"], clicked(), "the agent gets the client's data model");
    assert_eq!(runs(&client, "internal").await, ["r1"]);
    let said = ask(&client, "x2", clicked()).await;
    assert_eq!(text_of(&said), "Booked", "{said:#?}");
    wait_for_status(&client, "x2", "completed").await;
    let shown = ask(&client, "x3", clicked()).await;
    assert!(shown.iter().any(|event| event["type"] == "ACTIVITY_DELTA"), "{shown:#?}");
    assert_eq!(runs(&client, "user").await, ["x3", "x2", "r1"]);
    for run in ["x2", "x3"] {
        assert!(
            activities(&client, run, "user", "message").await.iter().all(|message| message["role"] != "user"),
            "no message is made up"
        );
    }
    let all = session_events(&client, "internal").await;
    assert!(all.contains("MARK-4C") && !all.contains("SECRET-DRAFT"), "{all}");
    assert!(!session_events(&client, "user").await.contains("MARK-4C"));
}

#[tokio::test]
async fn a_question_that_a_proxied_request_raises_is_asked_in_the_thread() {
    let asked = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "x1", "outcome": { "type": "interrupt", "interrupts": [{ "id": "ask", "reason": "tool_call", "message": "May the app delete it?" }] } });
    let replies = vec![
        Reply::Events(vec![started("x1"), asked]),
        Reply::Events(vec![started("x2"), finished("x2", json!({ "contents": [] }))]),
        Reply::Events(vec![started("x1"), finished("x1", json!({ "deleted": true }))]),
    ];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&agent(&endpoint)).await;
    let paused = ask(&client, "x1", proxied()).await;
    assert_eq!(paused.last().unwrap()["outcome"]["interrupts"][0]["id"], "ask", "{paused:#?}");
    endpoint.received().await;
    // What an app asks meanwhile neither waits for the decision nor gives it up.
    let beside = ask(&client, "x2", proxied()).await;
    assert_eq!(beside.last().unwrap()["result"], json!({ "contents": [] }), "{beside:#?}");
    endpoint.received().await;
    let body = json!({ "threadId": "t", "runId": "r9", "messages": [], "resume": [{ "interruptId": "ask", "status": "resolved", "payload": { "approved": true } }] });
    let resumed = events(&post(&client, "/ag-ui/helper", &body).await);
    assert_eq!(resumed.last().unwrap()["result"], json!({ "deleted": true }), "{resumed:#?}");
}

#[tokio::test]
async fn a_protocol_without_a_form_for_the_request_refuses_it() {
    let endpoint = Endpoint::start(Vec::new()).await;
    let config = format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url);
    let client = start_server(&config).await;
    let refused = ask(&client, "x1", proxied()).await;
    let last = refused.last().unwrap();
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("control_refused")), "{refused:#?}");
    assert!(last["message"].as_str().unwrap().contains("no form for __proxiedMCPRequest"), "{last}");
}

#[tokio::test]
async fn an_a2a_agent_gets_an_action_as_a_part_and_the_data_model_beside_it() {
    for (version, part) in [("1.0", json!({})), ("0.3", json!({ "kind": "data" }))] {
        let task = json!({ "jsonrpc": "2.0", "id": "x1", "result": { "task": { "id": "task", "contextId": "c", "status": { "state": "TASK_STATE_COMPLETED" } } } });
        let endpoint = Endpoint::start(vec![Reply::Events(vec![task])]).await;
        let config =
            format!("[helper]\nprotocol = \"a2a\"\nurl = \"{}\"\noptions = {{ version = \"{version}\" }}\n", endpoint.url);
        let client = start_server(&config).await;
        let got = ask(&client, "x1", clicked()).await;
        assert_eq!(got.last().unwrap()["type"], "RUN_FINISHED", "{got:#?}");
        let sent = endpoint.received().await.body["params"]["message"].clone();
        let mut expected = json!({ "data": { "version": "v0.9", "action": clicked()["a2uiAction"]["userAction"] }, "metadata": { "mimeType": "application/a2ui+json" } });
        expected.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        assert_eq!(sent["parts"], json!([expected]));
        assert_eq!(sent["metadata"], json!({ "a2uiClientDataModel": clicked()["a2uiClientDataModel"] }));
    }
}
