//! What an endpoint may do wrong: each ends the run as failed, with a reason for operators only.

use super::endpoint::{Ending, Endpoint, Reply, activities, say, start_server, wait_for_status};
use crate::harness::ClockedProcess;
use serde_json::{Value, json};
use std::time::Duration;

fn agent(url: &str, settings: &str) -> String {
    format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{url}\"\n{settings}\n")
}

fn started() -> Value {
    json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })
}

/// Sends a message, and asserts that the run fails with this code; returns the reason.
async fn fails(url: &str, settings: &str, code: &str) -> String {
    agent_fails(&agent(url, settings), code).await
}

/// The same with any agent.
pub async fn agent_fails(agent: &str, code: &str) -> String {
    let client = start_server(agent).await;
    let events = say(&client, "t", "r", json!([{ "id": "u", "role": "user", "content": "Go" }])).await;
    let last = events.last().unwrap();
    assert_eq!(json!([last["type"], last["message"]]), json!(["RUN_ERROR", "The agent failed. The operators can see why."]));
    wait_for_status(&client, "r", "failed").await;
    for audience in ["user", "dashboard"] {
        let message = &activities(&client, "r", audience, "message").await[0];
        assert_eq!(message["parts"][0]["text"], json!(["Go"]), "the user's message is in the log");
        assert_eq!(activities(&client, "r", audience, "run").await[0]["error"]["code"], "agent_failed");
    }
    assert_eq!(activities(&client, "r", "user", "diagnostics").await, Vec::<Value>::new(), "users do not see the reason");
    let entries = activities(&client, "r", "dashboard", "diagnostics").await[0]["entries"].clone();
    let entry = entries.as_array().unwrap().last().unwrap().clone();
    assert_eq!(json!([entry["kind"], entry["code"]]), json!(["connector", code]), "{entry}");
    entry["message"].as_str().unwrap().to_owned()
}

async fn answering(reply: Reply, code: &str) -> String {
    let endpoint = Endpoint::start(vec![reply]).await;
    let reason = fails(&endpoint.url, "retries = 0", code).await;
    endpoint.received().await;
    assert_eq!(endpoint.unread().await, 0, "the call is not repeated");
    reason
}

#[tokio::test]
async fn an_endpoint_that_is_down() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert!(fails(&url, "retries = 1", "endpoint_unreachable").await.contains("refused"));
}

#[tokio::test]
async fn an_endpoint_that_never_answers() {
    let reason = {
        let endpoint = Endpoint::start(vec![Reply::Silence]).await;
        let reason = fails(&endpoint.url, "first-byte-seconds = 1", "endpoint_silent").await;
        endpoint.wait_until_closed().await;
        reason
    };
    assert!(reason.contains("sent nothing for 1 s"), "{reason}");
}

#[tokio::test]
async fn an_endpoint_that_falls_silent_in_mid_stream() {
    let endpoint = Endpoint::start(vec![Reply::Open(vec![started()])]).await;
    fails(&endpoint.url, "silence-seconds = 1", "endpoint_silent").await;
    endpoint.wait_until_closed().await;
}

#[tokio::test]
async fn an_endpoint_that_answers_with_an_error() {
    let reason = answering(Reply::Other(500, "text/plain", "boom"), "endpoint_failed").await;
    assert!(reason.contains("500") && reason.contains("boom"), "{reason}");
    answering(Reply::Other(422, "application/json", "{}"), "endpoint_refused").await;
    answering(Reply::Other(401, "application/json", "{}"), "endpoint_denies_access").await;
}

#[tokio::test]
async fn an_endpoint_with_another_content_type() {
    let reason = answering(Reply::Other(200, "text/html", "<p>Hello"), "endpoint_content_type").await;
    assert!(reason.contains("text/html") && reason.contains("<p>Hello"), "{reason}");
}

#[tokio::test]
async fn an_endpoint_that_closes_in_mid_stream() {
    answering(Reply::Events(vec![started()]), "endpoint_closed").await;
    answering(Reply::Cut(vec![started()]), "endpoint_closed").await;
    answering(Reply::Events(vec![]), "endpoint_closed").await;
}

#[tokio::test]
async fn an_endpoint_that_sends_no_json_or_no_event() {
    let reason = answering(
        Reply::Text("data: {\"type\":\"RUN_STARTED\"}\n\ndata: what?\n\n".into(), Ending::Regular),
        "endpoint_not_json",
    )
    .await;
    assert!(reason.contains("what?"), "{reason}");
    answering(Reply::Text("data: {\"type\":\"RUN_STARTED\"}\n\ndata: 7\n\n".into(), Ending::Regular), "endpoint_invalid_fact")
        .await;
}

#[tokio::test]
async fn an_endpoint_that_redirects_to_another_host() {
    let other = Endpoint::start(vec![]).await;
    let reason = answering(Reply::Redirect(other.url.clone()), "endpoint_redirects").await;
    assert!(reason.contains(&other.url), "{reason}");
    assert_eq!(other.unread().await, 0, "no credential goes there");
}

#[tokio::test]
async fn a_call_is_repeated_after_longer_and_longer_pauses_only_while_the_endpoint_did_not_begin() {
    let finished = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" });
    let busy = (0..8).map(|_| Reply::Other(503, "text/plain", "later"));
    let endpoint = Endpoint::start(busy.chain([Reply::Events(vec![started(), finished])]).collect()).await;
    let dir = tempfile::tempdir().unwrap();
    let agents = dir.path().join("agents.toml");
    std::fs::write(&agents, agent(&endpoint.url, "retries = 8")).unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--connect-file", agents.to_str().unwrap()]);
    let said = tokio::spawn({
        let client = clocked.client.clone();
        async move { say(&client, "t", "r", json!([{ "id": "u", "role": "user", "content": "Go" }])).await }
    });
    endpoint.received().await;
    let step = Duration::from_secs(1);
    for pause_ms in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        let passed = clocked.advance_until("the next call", step, async || endpoint.unread().await > 0).await;
        endpoint.received().await;
        assert!(passed + step >= Duration::from_millis(pause_ms), "{passed:?}, not {pause_ms} ms");
    }
    let events = said.await.unwrap();
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED", "{events:#?}");
    assert_eq!(endpoint.unread().await, 0);
}

#[tokio::test]
async fn credentials_reach_the_endpoint_and_no_envelope() {
    let finished = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" });
    let endpoint = Endpoint::start(vec![Reply::Events(vec![started(), finished])]).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "plain-words-of-the-operator\n").unwrap();
    let settings = format!("[helper.headers]\nauthorization = {{ file = {:?}, prefix = \"Bearer \" }}", secret.path());
    let client = start_server(&agent(&endpoint.url, &settings)).await;
    say(&client, "t", "r", json!([{ "id": "u", "role": "user", "content": "Go" }])).await;
    assert_eq!(endpoint.received().await.headers["authorization"], "Bearer plain-words-of-the-operator");
    let log = client.get("/v1/runs/r/events?audience=internal").await;
    assert_eq!(log.status, 200);
    assert!(!String::from_utf8_lossy(&log.body).contains("plain-words"), "a credential is in the log");
}

#[tokio::test]
async fn an_agent_whose_address_is_dead_is_not_present_until_something_listens_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let alive = Endpoint::start(vec![]).await;
    let other = agent(&alive.url, "").replace("helper", "other");
    let client = start_server(&format!("{}{other}", agent(&format!("http://{address}/agent"), ""))).await;
    let presence = async || {
        let agents = client.get("/copilotkit/info").await.ok()["agents"].clone();
        [agents["helper"]["present"] == true, agents["other"]["present"] == true]
    };
    let reaches = async |expected: [bool; 2]| {
        while presence().await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    crate::harness::with_timeout("the agent that answers", reaches([false, true])).await;
    let _listener = std::net::TcpListener::bind(address).unwrap();
    crate::harness::with_timeout("the agent that came later", reaches([true, true])).await;
}
