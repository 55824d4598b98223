//! Existing client libraries.
//!
//! A request becomes one control, and its stream goes on to the run's end or is cut off.
//!
//! Each test is a minimal client: a request on its own socket, of whose response it sees every byte. The test itself
//! acts as the agent. The details of each dialect are tested elsewhere (`encode`, and the real libraries).

use crate::harness::{Client, environment, fact, serve_until, storage_in, with_timeout};
use proscenium::encode::dialect_cursor::DialectCursor;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::embedded::Sync;
use proscenium::model::AgentId;
use proscenium::serve::access::origin::Origins;
use proscenium::serve::clients::requests::SEND_BYTES_MAX;
use proscenium::serve::clients::threads::RUNS_MAX;
use proscenium::serve::maintenance::controls::ControlMaintenance;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

fn server(store: Storage, pulse: KeepAlive) -> Server {
    Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), pulse, environment(jiff::Timestamp::now))
        .unwrap()
}

/// Starts a server in memory; returns its client and the maintenance of its controls.
async fn start_with_maintenance(pulse: KeepAlive) -> (Client, ControlMaintenance) {
    let server = server(Storage::memory(), pulse);
    let maintenance = server.control_maintenance();
    (serve_until(server, std::future::pending()).await.0, maintenance)
}

async fn client() -> Client {
    start_with_maintenance(KeepAlive::default()).await.0
}

/// The end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// HTTP's end of the body.
    Clean,
    /// The connection closed in the middle of the body.
    Cut,
}

/// One event as received.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    data: Value,
    /// The cursor, and whether its line came before the data.
    id: Option<(String, bool)>,
    has_retry: bool,
}

/// A response, read from its socket.
struct Response {
    socket: TcpStream,
    status: u16,
    headers: HashMap<String, String>,
    raw: Vec<u8>,
    /// Decoded text that is not parsed yet.
    text: String,
    /// The number of comment lines received.
    heartbeats: usize,
    end: Option<End>,
}

async fn send_request(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut socket = with_timeout("a connection", TcpStream::connect(client.at)).await.unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    socket.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut raw = Vec::new();
    let end = loop {
        if let Some(at) = memchr::memmem::find(&raw, b"\r\n\r\n") {
            break at;
        }
        assert!(with_timeout("a head", socket.read_buf(&mut raw)).await.unwrap() > 0, "{}", String::from_utf8_lossy(&raw));
    };
    let head = String::from_utf8(raw[..end].to_vec()).unwrap();
    raw.drain(..end + 4);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let named = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    let headers = named.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Response { socket, status, headers, raw, text: String::new(), heartbeats: 0, end: None }
}

async fn post(client: &Client, path: &str, body: &Value) -> Response {
    let answer = send_request(client, "POST", path, &[], &body.to_string()).await;
    assert_eq!(answer.status, 200, "{path}");
    answer
}

/// Posts JSON to an address whose response is not a stream.
async fn post_json(client: &Client, path: &str, body: &Value) -> crate::harness::Response {
    client.post(path, &[("content-type", "application/json")], body.to_string()).await
}

impl Response {
    fn decode(&mut self) {
        while let Some(line) = memchr::memmem::find(&self.raw, b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).unwrap(), 16).expect("a chunk's size");
            if self.raw.len() < line + 2 + size + 2 {
                return;
            }
            self.text.push_str(std::str::from_utf8(&self.raw[line + 2..][..size]).unwrap());
            self.raw.drain(..line + 2 + size + 2);
            if size == 0 {
                self.end = Some(End::Clean);
                return;
            }
        }
    }

    /// Reads once more; returns how the response ended, if it did.
    async fn read_more(&mut self) -> Option<End> {
        let before = self.text.len();
        self.decode();
        if self.end.is_none() && self.text.len() == before {
            match with_timeout("more of an answer", self.socket.read_buf(&mut self.raw)).await {
                Ok(1..) => self.decode(),
                Ok(0) | Err(_) => self.end = Some(End::Cut),
            }
        }
        self.end
    }

    /// Reads the next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(rest) = self.text.strip_prefix(":\n") {
                self.heartbeats += 1;
                self.text = rest.to_owned();
            }
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = parse_event(block);
                self.text = rest.to_owned();
                if event.data != "[DONE]" {
                    return Some(event);
                }
                continue;
            }
            if self.end.is_some() {
                return None;
            }
            self.read_more().await;
        }
    }

    /// Reads the next event, and panics at the end.
    async fn parse_event(&mut self) -> Value {
        self.next().await.expect("expected an event, but the response has ended").data
    }

    /// Reads events up to and including the first one of this type.
    async fn read_until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.parse_event().await);
            if events.last().is_some_and(|event| event["type"] == kind) {
                return events;
            }
        }
    }

    /// Reads all events, and asserts a clean end.
    async fn read_all(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event.data);
        }
        assert_eq!(self.end, Some(End::Clean), "{events:#?}");
        events
    }

    /// Waits for a first byte.
    async fn wait_until_open(mut self) -> Self {
        while self.heartbeats == 0 && !self.text.contains(":\n") {
            assert_eq!(self.read_more().await, None, "the response has ended");
        }
        self
    }
}

fn parse_event(block: &str) -> Event {
    let (mut data, mut id, mut has_retry) = (None, None, false);
    for line in block.split('\n').filter(|line| *line != ":") {
        match line.split_once(": ").unwrap_or_else(|| panic!("unexpected line: {line:?}")) {
            ("data", text) => {
                assert!(data.is_none(), "more than one data line: {block:?}");
                data = Some(if text == "[DONE]" { text.into() } else { serde_json::from_str(text).expect("the data is JSON") });
            }
            ("id", text) => id = Some((text.to_owned(), data.is_none())),
            ("retry", text) => has_retry = text.parse::<u64>().is_ok(),
            other => panic!("unexpected field: {other:?}"),
        }
    }
    Event { data: data.expect("an event has data"), id, has_retry }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("an event has a type")).collect()
}

/// Concatenates the text deltas of AG-UI or AI SDK events.
fn text_of(events: &[Value]) -> String {
    let is_text = |event: &&Value| matches!(event["type"].as_str(), Some("TEXT_MESSAGE_CONTENT" | "text-delta"));
    events.iter().filter(is_text).filter_map(|event| event["delta"].as_str()).collect()
}

fn user_message(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

fn run_input(thread: &str, run: &str, messages: &[Value]) -> Value {
    json!({ "threadId": thread, "runId": run, "messages": messages, "tools": [], "context": [], "protocolVersion": "1.0" })
}

fn resume_input(thread: &str, run: &str, interrupt: &str, status: &str, payload: Value) -> Value {
    let mut input = run_input(thread, run, &[]);
    input["resume"] = json!([{ "interruptId": interrupt, "status": status }]);
    if !payload.is_null() {
        input["resume"][0]["payload"] = payload;
    }
    input
}

fn ui_message(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn chat_input(id: &str, messages: &[Value]) -> Value {
    json!({ "id": id, "messages": messages, "trigger": "submit-message" })
}

async fn claim(client: &Client, agent: &str) -> Vec<Value> {
    let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim?wait=0"), &[], "").await.ok();
    claimed["controls"].as_array().unwrap().clone()
}

/// Waits for the only queued control, and claims it.
async fn claim_one(client: &Client, agent: &str) -> Value {
    let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim?wait=30"), &[], "").await.ok();
    let controls = claimed["controls"].as_array().unwrap();
    assert_eq!(controls.len(), 1, "{controls:#?}");
    controls[0].clone()
}

async fn settle_control(client: &Client, control: &Value, how: &str, more: Value) {
    let mut body = json!({ "lease": control["lease"] });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let path = format!("/v1/controls/{}/{how}", control["controlId"].as_str().unwrap());
    client.post(&path, &[], body.to_string()).await.ok();
}

async fn publish(client: &Client, thread: &str, run: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={thread}&agentId=helper");
    client.post(&path, &[("content-type", "application/json")], json!(facts).to_string()).await.ok();
}

fn started() -> Value {
    fact("run.started", json!({}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

fn user_text(id: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "payload": { "text": text, "role": "user" } }))
}

fn agent_text(id: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "payload": { "text": text } }))
}

fn action_required(action: &str, kind: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "payload": { "kind": kind, "message": "May I?" } }))
}

fn action_resolved(action: &str, outcome: &str) -> Value {
    fact("action.resolved", json!({ "actionId": action, "payload": { "outcome": outcome } }))
}

/// Publishes a whole turn: the user's message, the agent's message, and the end.
async fn publish_turn(client: &Client, thread: &str, run: &str, asked: (&str, &str), said: (&str, &str)) {
    let facts = [started(), user_text(asked.0, asked.1), agent_text(said.0, said.1), finished()];
    publish(client, thread, run, &facts).await;
}

// ── a new run ──

#[tokio::test]
async fn a_new_run_becomes_one_send_control_and_streams_to_its_end() {
    let client = client().await;
    let mut body = run_input("t", "r", &[user_message("u1", "hello")]);
    body["state"] = json!({ "colour": "red" });
    body["forwardedProps"] = json!({ "model": "m" });
    body["parentRunId"] = json!("before");
    body["newInAgUi"] = json!([1]);
    let mut response = post(&client, "/ag-ui/helper", &body).await.wait_until_open().await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(response.headers[name], value);
    }
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["sessionId"], control["agentId"]]), json!(["send", "t", "helper"]));
    assert_eq!(
        control["value"],
        json!({
            "protocol": "ag-ui", "threadId": "t", "runId": "r", "messages": [user_message("u1", "hello")],
            "tools": [], "context": [], "protocolVersion": "1.0", "state": { "colour": "red" },
            "forwardedProps": { "model": "m" }, "parentRunId": "before", "newInAgUi": [1],
        })
    );
    publish(&client, "t", "r", &[started(), user_text("u1", "hello")]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let first = response.next().await.unwrap();
    assert!(first.has_retry, "retry is on the first event");
    assert_eq!(json!([first.data["type"], first.data["threadId"], first.data["runId"]]), json!(["RUN_STARTED", "t", "r"]));
    publish(&client, "t", "r", &[agent_text("a1", "Hello to you"), finished()]).await;
    let events = response.read_all().await;
    assert_eq!(text_of(&events), "Hello to you");
    assert_eq!(types(&events).last(), Some(&"RUN_FINISHED"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn messages_that_the_thread_has_are_not_sent_again() {
    let client = client().await;
    publish_turn(&client, "t", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    let known = [user_message("u1", "hello"), json!({ "id": "a1", "role": "assistant", "content": "Hi" })];
    let rules = json!({ "id": "s", "role": "system", "content": "be brief" });
    let news = [user_message("u2", "and now?"), json!({ "id": "f", "role": "tool", "toolCallId": "c", "content": "42" })];
    // A message older than the thread's last one is not new.
    let messages = [&[user_message("u0", "long ago"), rules.clone()], &known[..], &news[..]].concat();
    drop(post(&client, "/ag-ui/helper", &run_input("t", "r2", &messages)).await);
    let sent = claim_one(&client, "helper").await["value"]["messages"].clone();
    assert_eq!(sent, json!([rules, news[0], news[1]]));
}

#[tokio::test]
async fn a_repeated_post_submits_no_second_control() {
    let client = client().await;
    let body = run_input("t", "r", &[user_message("u1", "hello")]);
    let posts = (0..4).map(|_| post(&client, "/ag-ui/helper", &body));
    let all = futures_util::future::join_all(posts).await;
    let control = claim_one(&client, "helper").await;
    publish(&client, "t", "r", &[started(), user_text("u1", "hello"), agent_text("a1", "Hi")]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let mut late = post(&client, "/ag-ui/helper", &body).await;
    let shown = late.read_until("MESSAGES_SNAPSHOT").await;
    let ids: Vec<_> = shown[1]["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
    assert_eq!(json!(ids), json!(["u1", "a1"]), "a snapshot replaces the client's messages");
    publish(&client, "t", "r", &[finished()]).await;
    for response in all {
        let events = response.read_all().await;
        assert_eq!((text_of(&events).as_str(), types(&events).last()), ("Hi", Some(&"RUN_FINISHED")));
    }
    assert_eq!(types(&late.read_all().await), ["RUN_FINISHED"]);
    let after = post(&client, "/ag-ui/helper", &body).await.read_all().await;
    assert_eq!(types(&after), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    assert_eq!(client.get("/v1/sessions/t/controls").await.ok()["controls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_restarted_server_knows_the_submitted_request() {
    let dir = tempfile::tempdir().unwrap();
    let body = run_input("t", "r", &[user_message("u1", "hello")]);
    for restart in 0..2 {
        let store = storage_in(dir.path(), Sync::Never).await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let pulse = KeepAlive { drain: Duration::ZERO, ..KeepAlive::default() };
        let (client, serving) = serve_until(server(store, pulse), async { drop(stopped.await) }).await;
        drop(post(&client, "/ag-ui/helper", &body).await.wait_until_open().await);
        let controls = client.get("/v1/sessions/t/controls").await.ok();
        assert_eq!(controls["controls"].as_array().unwrap().len(), 1, "in restart {restart}");
        assert_eq!(claim_one(&client, "helper").await["attempt"], restart + 1);
        drop(stop);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn an_unclaimed_request_is_kept_alive_and_a_refusal_or_expiry_ends_it_with_an_error() {
    let (client, maintenance) =
        start_with_maintenance(KeepAlive { heartbeat: Duration::from_millis(20), ..KeepAlive::default() }).await;
    let later = async |seconds: u64| {
        let wall = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap());
        maintenance.run_once(Instant::now() + Duration::from_secs(seconds), wall).await.unwrap();
    };
    let mut waits = post(&client, "/ag-ui/helper", &run_input("t", "refused", &[])).await;
    while waits.heartbeats < 3 {
        assert_eq!(waits.read_more().await, None);
        waits.heartbeats = waits.text.matches(":\n").count();
    }
    let control = claim_one(&client, "helper").await;
    settle_control(&client, &control, "nack", json!({ "reason": "not today", "requeue": true })).await;
    let control = claim_one(&client, "helper").await;
    settle_control(&client, &control, "nack", json!({ "reason": "not today" })).await;
    let events = waits.read_all().await;
    assert_eq!(types(&events), ["RUN_STARTED", "RUN_ERROR"]);
    assert_eq!(events[1]["code"], "control_refused");
    assert!(events[1]["message"].as_str().unwrap().contains("not today"), "{}", events[1]);
    // A repeated request is the same request, with the same answer.
    let events = post(&client, "/ag-ui/helper", &run_input("t", "refused", &[])).await.read_all().await;
    assert_eq!(events[1]["code"], "control_refused");

    let waits = post(&client, "/copilotkit/agent/helper/run", &run_input("t", "expired", &[])).await.wait_until_open().await;
    let chunks = post(&client, "/ai-sdk/helper", &chat_input("c", &[ui_message("u", "hello")])).await.wait_until_open().await;
    later(2 * 24 * 3600).await;
    let events = waits.read_all().await;
    assert_eq!(json!([types(&events), events[1]["code"]]), json!([["RUN_STARTED", "RUN_ERROR"], "control_expired"]));
    let chunks = chunks.read_all().await;
    assert_eq!(types(&chunks).last(), Some(&"error"));
    assert!(chunks.last().unwrap()["errorText"].as_str().unwrap().contains("No worker of the agent took"), "{chunks:?}");
}

#[tokio::test]
async fn a_body_that_makes_no_run_is_rejected_with_the_member() {
    let client = client().await;
    for (path, body, member) in [
        ("/ag-ui/a", json!({ "runId": "r" }), "threadId"),
        ("/ag-ui/a", json!({ "threadId": "t" }), "runId"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "" }), "runId"),
        ("/ag-ui/a", json!({ "threadId": 7, "runId": "r" }), "threadId"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "r", "messages": "hello" }), "messages"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "r", "messages": ["hello"] }), "messages"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "r", "resume": [{ "status": "resolved" }] }), "interruptId"),
        ("/ag-ui/a", json!({ "threadId": "t", "runId": "r", "resume": [{ "interruptId": "i", "status": "done" }] }), "status"),
        ("/copilotkit/agent/a/run", json!({ "runId": "r" }), "threadId"),
        ("/copilotkit/agent/a/connect", json!({}), "threadId"),
        ("/copilotkit", json!({}), "method"),
        ("/copilotkit", json!({ "method": "agent/dance" }), "method"),
        ("/copilotkit", json!({ "method": "resource/request" }), "path"),
        ("/copilotkit", json!({ "method": "agent/run" }), "agentId"),
        ("/copilotkit", json!({ "method": "agent/run", "params": [] }), "params"),
        ("/copilotkit", json!({ "method": "agent/stop", "params": { "agentId": "a" } }), "threadId"),
        ("/ai-sdk/a", json!({ "messages": [] }), "id"),
        ("/ai-sdk/a", json!({ "id": "c", "messages": {} }), "messages"),
    ] {
        let problem = post_json(&client, path, &body).await.problem(422, "bad_member");
        assert_eq!(problem["member"], member, "{path} {body}");
    }
    let large = run_input("t", "r", &[user_message("u", &"x".repeat(SEND_BYTES_MAX))]);
    let problem = post_json(&client, "/ag-ui/a", &large).await.problem(413, "control_too_large");
    assert_eq!(problem["limit"], SEND_BYTES_MAX);
    let body = run_input("t", "r", &[user_message("u", "hello")]).to_string();
    client.post("/ag-ui/a", &[("content-type", "text/plain")], body).await.problem(415, "unsupported_media_type");
    client.get("/ag-ui/a").await.problem(400, "bad_query");
    client.get("/ag-ui/a?threadId=t&before=x").await.problem(400, "bad_cursor");
    client.get("/ai-sdk/a/c?version=4").await.problem(400, "bad_query");
    assert_eq!(client.get("/v1/sessions").await.ok()["sessions"], json!([]), "the server submitted nothing");
}

#[tokio::test]
async fn a_run_of_another_thread_is_rejected() {
    let client = client().await;
    publish_turn(&client, "theirs", "r", ("u", "a secret"), ("a", "kept")).await;
    let problem = post_json(&client, "/ag-ui/helper", &run_input("mine", "r", &[])).await.problem(409, "run_of_another_thread");
    assert_eq!(problem["member"], "runId");
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_disconnect_does_not_end_the_run() {
    let client = client().await;
    let body = run_input("t", "r", &[user_message("u1", "hello")]);
    drop(post(&client, "/ag-ui/helper", &body).await.wait_until_open().await);
    let control = claim_one(&client, "helper").await;
    publish(&client, "t", "r", &[started(), agent_text("a1", "Hi")]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let mut second = post(&client, "/ag-ui/helper", &body).await;
    second.read_until("MESSAGES_SNAPSHOT").await;
    drop(second);
    let third = post(&client, "/ag-ui/helper", &body).await;
    assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "running");
    assert_eq!(client.get("/v1/runs/r/controls").await.ok()["controls"], json!([]));
    publish(&client, "t", "r", &[finished()]).await;
    assert_eq!(types(&third.read_all().await).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn a_response_cut_off_before_the_run_s_end_ends_with_a_reset() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pulse = KeepAlive { drain: Duration::from_millis(50), ..KeepAlive::default() };
    let server = server(Storage::memory(), pulse);
    let (client, _) = serve_until(server, async { drop(stopped.await) }).await;
    publish(&client, "t", "r", &[started(), agent_text("a1", "Hi")]).await;
    publish(&client, "over", "done", &[started(), finished()]).await;
    let mut cut = Vec::new();
    for (path, body) in [
        ("/ag-ui/helper", run_input("t", "r", &[])),
        ("/ag-ui/helper", run_input("t", "waited-for", &[])),
        ("/copilotkit/agent/helper/connect", run_input("t", "x", &[])),
        ("/ai-sdk/helper", chat_input("c", &[ui_message("u", "hello")])),
    ] {
        cut.push(post(&client, path, &body).await.wait_until_open().await);
    }
    cut.push(send_request(&client, "GET", "/ai-sdk/helper/t/stream", &[], "").await.wait_until_open().await);
    cut.push(send_request(&client, "GET", "/ag-ui/helper?runId=r&offset=-1", &[], "").await.wait_until_open().await);
    drop(stop);
    for mut answer in cut {
        while answer.next().await.is_some() {}
        assert_eq!(answer.end, Some(End::Cut), "a clean end would mean that the run has ended");
    }
}

// ── interrupts ──

#[tokio::test]
async fn an_interrupt_s_answer_becomes_a_control_and_the_runtime_continues_the_run() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), user_text("u1", "delete it"), action_required("ask", "tool_approval")]).await;
    let paused = post(&client, "/ag-ui/helper", &run_input("t", "r1", &[])).await.read_all().await;
    let outcome = &paused.last().unwrap()["outcome"];
    assert_eq!(json!([outcome["type"], outcome["interrupts"][0]["id"]]), json!(["interrupt", "ask"]));

    let body = resume_input("t", "r2", "ask", "resolved", json!({ "approved": true, "note": "go" }));
    let response = post(&client, "/ag-ui/helper", &body).await.wait_until_open().await;
    let again = post(&client, "/ag-ui/helper", &body).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["actionId"], control["value"]]),
        json!(["approve", "r1", "ask", { "approved": true, "note": "go" }])
    );
    let shown = client.get("/v1/runs/r1/activities").await.ok();
    let action = shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityType"] == "action").unwrap();
    assert_eq!(json!([action["content"]["status"], action["content"]["control"]]), json!(["pending", "submitted"]));

    publish(&client, "t", "r1", &[action_resolved("ask", "approved"), agent_text("a1", "Deleted"), finished()]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    for response in [response, again] {
        let events = response.read_all().await;
        let (first, last) = (&events[0], events.last().unwrap());
        assert_eq!(
            json!([first["type"], first["runId"], last["type"], last["runId"]]),
            json!(["RUN_STARTED", "r2", "RUN_FINISHED", "r2"])
        );
        assert_eq!(last["outcome"]["type"], "success");
    }
    // Posted again after the end, it is the same run, and the server submits nothing.
    let events = post(&client, "/ag-ui/helper", &body).await.read_all().await;
    assert_eq!(types(&events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(client.get("/v1/runs/r1/controls").await.ok()["controls"].as_array().unwrap().len(), 1);
    assert_eq!(client.get("/v1/sessions/t").await.ok()["counts"]["runs"], 1, "the client's second run is not in the log");
}

#[tokio::test]
async fn the_control_follows_from_the_kind_of_question_and_the_answer() {
    let client = client().await;
    for (n, (kind, status, payload, control, value)) in [
        (
            "tool_approval",
            "resolved",
            json!({ "approved": false, "why": "no" }),
            "reject",
            json!({ "approved": false, "why": "no" }),
        ),
        ("tool_approval", "resolved", json!(true), "approve", json!(true)),
        ("tool_approval", "resolved", Value::Null, "approve", Value::Null),
        ("tool_approval", "resolved", json!({ "scope": "once" }), "approve", json!({ "scope": "once" })),
        ("tool_approval", "cancelled", Value::Null, "reject", Value::Null),
        ("structured_input", "resolved", json!({ "name": "Ada" }), "answer", json!({ "name": "Ada" })),
        ("clarification", "resolved", json!({ "approved": false }), "answer", json!({ "approved": false })),
        ("clarification", "cancelled", Value::Null, "reject", Value::Null),
        ("a_kind_of_its_own", "resolved", json!("blue"), "answer", json!("blue")),
        ("a_kind_of_its_own", "resolved", Value::Null, "approve", Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let run = format!("r{n}");
        publish(&client, &run, &run, &[started(), action_required("ask", kind)]).await;
        let response = post(&client, "/ag-ui/helper", &resume_input(&run, "next", "ask", status, payload)).await;
        let claimed = claim_one(&client, "helper").await;
        assert_eq!(json!([claimed["control"], claimed["value"]]), json!([control, value]), "{kind} {status}");
        settle_control(&client, &claimed, "nack", json!({ "reason": "never" })).await;
        let events = response.read_all().await;
        assert_eq!(events.last().unwrap()["code"], "control_refused", "{kind} {status}");
    }
}

#[tokio::test]
async fn an_unknown_interrupt_is_rejected_and_a_resolved_one_attaches_to_its_run() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), action_required("one", "tool_approval"), action_required("two", "tool_approval")])
        .await;
    let mut body = resume_input("t", "r2", "one", "resolved", Value::Null);
    body["resume"].as_array_mut().unwrap().push(json!({ "interruptId": "three", "status": "resolved" }));
    let problem = post_json(&client, "/ag-ui/helper", &body).await.problem(409, "action_not_pending");
    assert_eq!(problem["interruptId"], "three");
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new(), "the request is atomic");
    body["resume"][1]["interruptId"] = "two".into();
    let response = post(&client, "/ag-ui/helper", &body).await.wait_until_open().await;
    publish(&client, "t", "r1", &[action_resolved("one", "approved"), action_resolved("two", "approved"), finished()]).await;
    assert_eq!(types(&response.read_all().await).last(), Some(&"RUN_FINISHED"));
    // From another tab, too late.
    let late = post(&client, "/ag-ui/helper", &resume_input("t", "r3", "one", "cancelled", Value::Null)).await.read_all().await;
    assert_eq!(json!([late[0]["runId"], late.last().unwrap()["outcome"]["type"]]), json!(["r3", "success"]));
}

#[tokio::test]
async fn a_run_continued_under_another_id_is_streamed_under_the_client_s_id() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), action_required("ask", "tool_approval")]).await;
    let response = post(&client, "/ag-ui/helper", &resume_input("t", "r2", "ask", "resolved", json!({ "approved": true }))).await;
    publish(&client, "t", "r2", &[started(), agent_text("a2", "It goes on here"), finished()]).await;
    let events = response.read_all().await;
    assert_eq!(json!([events[0]["runId"], events.last().unwrap()["type"]]), json!(["r2", "RUN_FINISHED"]));
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").expect("the stream has a snapshot");
    assert!(snapshot.to_string().contains("It goes on here"), "{snapshot}");
}

// ── threads ──

#[tokio::test]
async fn a_thread_s_page_has_its_messages_its_active_run_and_its_interrupts() {
    let client = client().await;
    let empty = json!({ "threadId": "t", "messages": [], "activeRun": null, "interrupts": null, "page": { "truncated": false } });
    assert_eq!(client.get("/ag-ui/helper?threadId=t").await.ok(), empty, "an unknown thread is empty and no error");
    drop(post(&client, "/ag-ui/helper", &run_input("t", "r0", &[])).await.wait_until_open().await);
    assert_eq!(
        client.get("/ag-ui/helper?threadId=t").await.ok()["activeRun"],
        json!({ "runId": "r0" }),
        "the requested run is active"
    );

    publish_turn(&client, "t", "r0", ("u1", "hello"), ("a1", "Hi")).await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "look", "input": { "at": 1 } } }));
    let result = fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": { "seen": 2 } } }));
    let state = fact("state.snapshot", json!({ "payload": { "state": { "colour": "red" } } }));
    let thought = fact("reasoning.summary", json!({ "messageId": "th", "payload": { "text": "Where?" } }));
    publish(&client, "t", "r1", &[started(), user_text("u2", "look"), thought, call, result, state]).await;
    let rest = client.get("/ag-ui/helper?threadId=t&activation=7").await.ok();
    assert_eq!(
        json!([rest["activeRun"], rest["interrupts"], rest["state"], rest["activation"]]),
        json!([{ "runId": "r1" }, null, { "colour": "red" }, "7"])
    );
    let said: Vec<_> = rest["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user").cloned().collect();
    assert_eq!(
        said[0],
        json!({ "id": "u1", "role": "user", "content": "hello", "parts": [{ "type": "text", "content": "hello" }] })
    );
    let ids = |rest: &Value| -> Vec<Value> {
        rest["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
    };
    assert_eq!(ids(&rest), ["u1", "a1", "u2"], "the page omits the active run's own messages");

    publish(&client, "t", "r1", &[action_required("ask", "tool_approval")]).await;
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(json!([rest["activeRun"], rest["interrupts"]["runId"]]), json!([null, "r1"]));
    assert_eq!(rest["interrupts"]["pending"][0]["id"], "ask");
    let bound = json!({ "v": 1, "kind": "generic", "interruptId": "ask", "interruptedRunId": "r1", "generation": 0 });
    assert_eq!(rest["interrupts"]["pending"][0]["metadata"]["tanstack:interruptBinding"], bound);
    let called =
        rest["messages"].as_array().unwrap().iter().find(|message| message["toolCalls"].is_array()).expect("the page has a call");
    let arguments = called["toolCalls"][0]["function"]["arguments"].as_str().unwrap();
    let thought = json!({ "type": "thinking", "content": "Where?", "stepId": "reasoning:th/agentui-part-1" });
    assert_eq!(called["parts"][0], thought, "reasoning is a part of its message");
    assert_eq!(
        called["parts"][1],
        json!({
        "type": "tool-call", "id": "c", "name": "look", "arguments": arguments, "input": { "at": 1 }, "state": "complete",
        "output": { "seen": 2 } })
    );
    assert_eq!(json!([called["parts"][2]["type"], called["parts"][2]["toolCallId"]]), json!(["tool-result", "c"]));

    let asking = json!({ "control": "approve", "actionId": "ask" });
    assert_eq!(post_json(&client, "/v1/runs/r1/controls", &asking).await.status, 202);
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(json!([rest["activeRun"], rest["interrupts"]]), json!([{ "runId": "r1" }, null]), "an answered run is active");
    publish(&client, "t", "r1", &[action_resolved("ask", "approved"), finished()]).await;
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(json!([rest["activeRun"], rest["interrupts"]]), json!([null, null]));
}

#[tokio::test]
async fn messages_of_two_runs_stay_apart_where_their_source_gives_them_no_id_or_the_same() {
    let response = |text: &str| {
        let item = json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] });
        vec![
            json!({ "type": "response.created", "response": { "id": text, "output": [] } }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": { "type": "message", "content": [] } }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
            json!({ "type": "response.completed", "response": { "id": text, "output": [item] } }),
        ]
    };
    let native = |text: &str| vec![started(), fact("text.final", json!({ "payload": { "text": text } })), finished()];
    // An agent may give the artifacts of all its tasks the same id.
    let task = |text: &str| {
        let artifact = json!({ "artifactId": "answer", "parts": [{ "text": text }] });
        let status = |state: &str| json!({ "state": format!("TASK_STATE_{state}") });
        vec![
            json!({ "task": { "id": text, "status": status("SUBMITTED") } }),
            json!({ "artifactUpdate": { "taskId": text, "artifact": artifact } }),
            json!({ "statusUpdate": { "taskId": text, "status": status("COMPLETED") } }),
        ]
    };
    let client = client().await;
    let mut joined = Vec::new();
    let sources = [("agentui", &native as &dyn Fn(&str) -> Vec<Value>), ("openai-responses", &response), ("a2a", &task)];
    for (source, facts) in sources {
        for (run, text) in [("one", "One"), ("two", "Two"), ("three", "Three")] {
            let path = format!("/v1/runs/{source}-{run}/facts?sessionId={source}&source={source}");
            post_json(&client, &path, &json!(facts(text))).await.ok();
        }
        let rest = client.get(&format!("/ag-ui/helper?threadId={source}")).await.ok();
        let shown: Vec<_> = rest["messages"].as_array().unwrap().iter().map(|message| message["content"].clone()).collect();
        assert_eq!(shown, ["One", "Two", "Three"], "{source}: at rest");
        let snapshot = |events: Vec<Value>| -> Vec<Value> {
            let snapshot = events.into_iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
            let messages = snapshot["messages"].as_array().unwrap().iter();
            messages.filter(|message| message["role"] != "activity").cloned().collect()
        };
        let join = post(&client, "/copilotkit/agent/helper/connect", &run_input(source, "x", &[])).await;
        joined.extend(snapshot(join.read_all().await));
        let mut ids = Vec::new();
        for run in ["one", "two", "three"] {
            let path = format!("/v1/runs/{source}-{run}/stream?format=ag-ui");
            let events = send_request(&client, "GET", &path, &[], "").await.read_all().await;
            ids.extend(snapshot(events).into_iter().map(|message| message["id"].clone()));
        }
        let at_rest: Vec<_> = rest["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
        assert_eq!(ids, at_rest, "{source}: a message has one id, in its run and in its thread");
    }
    let texts: Vec<_> = joined.iter().map(|message| message["content"].clone()).collect();
    assert_eq!(texts, ["One", "Two", "Three"].repeat(3), "joined");
}

#[tokio::test]
async fn a_long_thread_is_paged_without_gaps_or_repetitions() {
    let client = client().await;
    let runs = RUNS_MAX + 3;
    for n in 0..runs {
        publish_turn(&client, "t", &format!("r{n}"), (&format!("u{n}"), "q"), (&format!("a{n}"), "a")).await;
    }
    let expected: Vec<_> = (0..runs).flat_map(|n| [format!("u{n}"), format!("a{n}")]).collect();
    for limit in [1, 3, 64, 1000] {
        let (mut all, mut before, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = client.get(&format!("/ag-ui/helper?threadId=t&limit={limit}&before={before}")).await.ok();
            let ids = page["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap().to_owned());
            let ids: Vec<_> = ids.collect();
            assert!(ids.len() <= limit && !ids.is_empty(), "{page}");
            all.splice(0..0, ids);
            pages += 1;
            if pages == 1 {
                // A message that arrives meanwhile does not move the pages.
                publish_turn(&client, "t", &format!("later-{limit}"), ("u", "q"), ("a", "a")).await;
            }
            assert_eq!(page["page"]["truncated"], page["page"]["cursor"].is_string());
            match page["page"]["cursor"].as_str() {
                Some(cursor) => before = cursor.to_owned(),
                None => break,
            }
        }
        let seen: Vec<_> = all.into_iter().filter(|id| id.len() > 1 && !id.contains('~')).collect();
        assert_eq!(seen, expected, "by {limit}");
    }
}

#[tokio::test]
async fn a_run_without_a_session_is_a_thread_by_itself() {
    let client = client().await;
    client.append("alone", &[started(), agent_text("a1", "Hi"), action_required("ask", "tool_approval")]).await;
    let rest = client.get("/ag-ui/helper?threadId=alone").await.ok();
    assert_eq!(json!([rest["messages"][0]["id"], rest["interrupts"]["runId"]]), json!(["a1", "alone"]));
    let joined = post(&client, "/copilotkit/agent/helper/connect", &run_input("alone", "x", &[])).await.read_all().await;
    assert_eq!(json!([joined[0]["threadId"], joined[0]["runId"]]), json!(["alone", "alone"]));
}

// ── TanStack ──

#[tokio::test]
async fn a_post_with_last_event_id_resumes_after_that_event() {
    let client = client().await;
    let body = run_input("t", "r", &[user_message("u1", "hello")]).to_string();
    let mut response = send_request(&client, "POST", "/ag-ui/helper", &[("x-run-id", "r")], &body).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "a1", "payload": { "text": text } }));
    publish(&client, "t", "r", &[started(), user_text("u1", "hello"), delta("one ")]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let (mut seen, mut at) = (Vec::new(), None);
    while text_of(&seen) != "one " {
        let event = response.next().await.unwrap();
        if let Some((id, is_first)) = event.id {
            assert!(is_first, "TanStack relates an id to the data after it");
            at = Some(id);
        }
        seen.push(event.data);
    }
    drop(response);
    publish(&client, "t", "r", &[delta("two "), agent_text("a1", "one two three"), finished()]).await;
    let headers = [("x-run-id", "r"), ("last-event-id", at.as_deref().expect("the last event has an id"))];
    let rest = send_request(&client, "POST", "/ag-ui/helper", &headers, &body).await.read_all().await;
    assert_eq!(text_of(&rest), "two three");
    assert!(!types(&rest).contains(&"RUN_STARTED"), "RUN_STARTED is not repeated: {rest:#?}");
    assert_eq!(types(&rest).last(), Some(&"RUN_FINISHED"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    let joined = send_request(&client, "GET", "/ag-ui/helper?runId=r&offset=-1", &[], "").await.read_all().await;
    assert_eq!(text_of(&joined), "helloone two three", "without a cursor the stream starts at the beginning");
    assert_eq!(json!([types(&joined)[0], types(&joined).last()]), json!(["RUN_STARTED", "RUN_FINISHED"]));
    let offset = format!("/ag-ui/helper?runId=r&offset={}", at.unwrap());
    assert_eq!(text_of(&send_request(&client, "GET", &offset, &[], "").await.read_all().await), "two three");
    // An unknown run is an empty response and no error; a requested run is waited for.
    let unknown = send_request(&client, "GET", "/ag-ui/helper?runId=never&offset=-1", &[], "").await;
    assert_eq!((unknown.status, unknown.headers["content-length"].as_str()), (200, "0"));
    drop(post(&client, "/ag-ui/helper", &run_input("t", "r2", &[])).await.wait_until_open().await);
    assert_eq!(client.get("/ag-ui/helper?threadId=t").await.ok()["activeRun"], json!({ "runId": "r2" }));
    let mut joined = send_request(&client, "GET", "/ag-ui/helper?runId=r2&offset=-1", &[], "").await;
    // TanStack waits at most two seconds for its first event.
    assert_eq!(joined.read_until("RUN_STARTED").await[0]["runId"], "r2");
    publish(&client, "t", "r2", &[started(), agent_text("a2", "four"), finished()]).await;
    assert_eq!(text_of(&joined.read_all().await), "four");
    // The header names the run if the body does not.
    let nameless = json!({ "threadId": "t", "messages": [] }).to_string();
    let response = send_request(&client, "POST", "/ag-ui/helper", &[("x-run-id", "r")], &nameless).await;
    assert_eq!(response.read_all().await[0]["runId"], "r");
    let bad = client.post("/ag-ui/helper", &[("last-event-id", "x"), ("content-type", "application/json")], nameless).await;
    bad.problem(400, "bad_cursor");
}

/// Reads all events after an id.
async fn read_events_after(client: &Client, path: &str, id: &str) -> Vec<Event> {
    let mut answer = send_request(client, "GET", path, &[("last-event-id", id)], "").await;
    let mut events = Vec::new();
    // A reader that has the last event gets no stream.
    while answer.status == 200
        && let Some(event) = answer.next().await
    {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_reader_cut_off_inside_an_envelope_gets_exactly_its_remaining_events() {
    let client = client().await;
    let call = |kind: &str, payload: Value| fact(kind, json!({ "toolCallId": "c", "payload": payload }));
    publish(&client, "t", "r", &[started(), user_text("u1", "hello"), agent_text("a1", "one"), agent_text("a2", "two")]).await;
    let called = [
        call("tool.started", json!({ "toolName": "look", "input": { "at": "it" } })),
        call("tool.result", json!({ "toolName": "look", "input": { "at": "it" }, "output": "seen" })),
    ];
    publish(&client, "t", "r", &called).await;
    publish(
        &client,
        "t",
        "r",
        &[action_required("ask", "approval"), action_resolved("ask", "approved"), agent_text("a3", "three"), finished()],
    )
    .await;
    let path = "/v1/runs/r/stream?format=ag-ui&replay=deltas&protocolVersion=1.0";
    let whole = read_events_after(&client, path, "").await;
    let ids: Vec<_> = whole.iter().map(|event| event.id.clone().expect("every event has an id").0).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "every event has its own id");
    let within: Vec<_> = ids.iter().filter(|id| id.contains('.')).collect();
    assert!(within.len() > ids.len() / 3, "{ids:#?}");
    let plain = |events: &[Event]| events.iter().map(|event| (event.data.clone(), event.id.clone())).collect::<Vec<_>>();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(plain(&read_events_after(&client, path, id).await), plain(&whole[n + 1..]), "after {id}");
    }
    // TanStack resumes by its own address, and relates an id to the data after it.
    let [first, ..] = &read_events_after(&client, &format!("/ag-ui/helper?runId=r&offset={}", ids[1]), "").await[..] else {
        panic!("no events")
    };
    let (id, id_is_first) = first.id.as_ref().expect("every event has an id");
    assert!(id_is_first);
    assert_eq!(id.parse::<DialectCursor>().unwrap().cursor, ids[1].parse::<DialectCursor>().unwrap().cursor);
    // A cursor of other options gets everything again.
    let (same, digit) = within[0].split_at(within[0].len() - 1);
    let other = format!("{same}{}", 9 - digit.parse::<u8>().unwrap());
    let shown = read_events_after(&client, path, &other).await;
    assert!(shown.iter().any(|event| event.data["type"] == "MESSAGES_SNAPSHOT"), "{other}: {shown:#?}");
    // A native reader resumes at the envelope before.
    let place: DialectCursor = within[0].parse().unwrap();
    let native = client.open_activities("r", "", Some(within[0])).await.read_all().await;
    assert!(
        native.iter().filter(|frame| frame.kind() == "ActivitySnapshot").all(|frame| frame.sequence() > place.cursor.after.0)
    );
    assert!(native.len() > 2);
}

#[tokio::test]
async fn a_client_that_is_cut_before_its_run_shows_anything_resumes_within_it() {
    let client = client().await;
    let hidden = fact("diagnostic.note", json!({ "audience": "internal", "payload": { "n": 1 } }));
    publish(&client, "t", "r", std::slice::from_ref(&hidden)).await;
    for path in ["/v1/runs/r/stream?format=ag-ui&replay=deltas", "/v1/runs/r/stream?format=ag-ui", "/ag-ui/helper?runId=r"] {
        let mut begun = send_request(&client, "GET", path, &[], "").await;
        let id = loop {
            let Event { data, id, .. } = begun.next().await.expect("the run is at work");
            if data["type"] == "RUN_STARTED" {
                break id.expect("every event has an id").0;
            }
        };
        publish(&client, "t", "r", std::slice::from_ref(&hidden)).await;
        let mut resumed = send_request(&client, "GET", path, &[("last-event-id", &id)], "").await.wait_until_open().await;
        publish(&client, "t", "r", &[agent_text(&path.len().to_string(), "seen")]).await;
        let rest = resumed.read_until("TEXT_MESSAGE_START").await;
        assert!(!types(&rest).contains(&"RUN_STARTED"), "{path} after {id}: {rest:#?}");
    }
}

#[tokio::test]
async fn only_tanstack_ai_gets_an_open_text_again_after_a_snapshot() {
    let client = client().await;
    publish(&client, "t", "first", &[started(), agent_text("a", "Before."), finished()]).await;
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "m", "audience": "user", "payload": { "text": text } }));
    publish(&client, "t", "r", &[started(), delta("Still open")]).await;
    let mut text = "Still open".to_owned();
    for (query, repeats) in [("", false), ("&last_event_id=-1", false), ("&offset=-1", true)] {
        let mut stream = send_request(&client, "GET", &format!("/ag-ui/helper?runId=r{query}"), &[], "").await;
        stream.read_until("TEXT_MESSAGE_START").await;
        let shown = if repeats { text.clone() } else { ", more".to_owned() };
        publish(&client, "t", "r", &[delta(", more")]).await;
        let content = stream.read_until("TEXT_MESSAGE_CONTENT").await;
        assert_eq!(content.last().unwrap()["delta"], shown, "{query}");
        text += ", more";
    }
}

#[tokio::test]
async fn a_call_that_reports_before_it_has_arguments_is_opened_and_ended_once() {
    let client = client().await;
    let call = |kind: &str, payload: Value| fact(kind, json!({ "toolCallId": "c", "audience": "user", "payload": payload }));
    publish(&client, "t", "r", &[started(), call("tool.started", json!({ "toolName": "look" }))]).await;
    let path = "/v1/runs/r/stream?format=ag-ui&replay=deltas&protocolVersion=1.0";
    let mut response = send_request(&client, "GET", path, &[], "").await;
    let mut events = response.read_until("TOOL_CALL_START").await;
    publish(&client, "t", "r", &[call("tool.progress", json!({ "message": "in_progress" }))]).await;
    events.extend(response.read_until("ACTIVITY_SNAPSHOT").await);
    publish(&client, "t", "r", &[call("tool.args", json!({ "input": { "at": "it" } }))]).await;
    publish(&client, "t", "r", &[call("tool.result", json!({ "output": "seen" })), finished()]).await;
    events.extend(response.read_all().await);
    let calls: Vec<_> = types(&events).into_iter().filter(|class| class.starts_with("TOOL_CALL")).collect();
    assert_eq!(calls, ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]);
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_send_these_clients_headers() {
    let server = server(Storage::memory(), KeepAlive::default());
    let origins = Origins::new(["https://app.example"]).unwrap().with_headers(&[http::HeaderName::from_static("x-tenant")]);
    let server = server.with_auth(None, origins);
    let (client, _) = serve_until(server, std::future::pending()).await;
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type, authorization, last-event-id, x-run-id"),
    ];
    let response = send_request(&client, "OPTIONS", "/ag-ui/helper", &preflight, "").await;
    assert_eq!(response.status, 204);
    let of_libraries =
        ["cache-control", "traceparent", "tracestate", "sentry-trace", "baggage", "x-requested-with", "x-csrf-token", "x-tenant"];
    let allowed: Vec<_> = response.headers["access-control-allow-headers"].split(", ").collect();
    for header in ["content-type", "authorization", "last-event-id", "x-run-id"].iter().chain(&of_libraries) {
        assert!(allowed.contains(header), "{header} in {allowed:?}");
    }
    assert_eq!(response.headers["access-control-allow-methods"], "GET, POST, PUT, PATCH, DELETE");
    publish(&client, "t", "r", &[started(), finished()]).await;
    let body = run_input("t", "r", &[]).to_string();
    let response = send_request(&client, "POST", "/ag-ui/helper", &preflight[..1], &body).await;
    assert_eq!(response.headers["access-control-allow-origin"], "https://app.example");
    assert_eq!(types(&response.read_all().await).last(), Some(&"RUN_FINISHED"));
}

// ── CopilotKit ──

#[tokio::test]
async fn the_runtime_info_lists_the_agents() {
    let server = server(Storage::memory(), KeepAlive::default());
    let server = server.with_agents(vec![AgentId::new("named").unwrap()]);
    let (client, _) = serve_until(server, std::future::pending()).await;
    publish(&client, "t", "r", &[started()]).await;
    drop(post(&client, "/ag-ui/asked", &run_input("t2", "r2", &[])).await.wait_until_open().await);
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/v1/agents/waits/controls/claim?wait=60", &[], "").await })
    };
    let info = with_timeout("the agent with a waiting claim", async {
        loop {
            let info = client.get("/copilotkit/info").await.ok();
            if info["agents"].get("waits").is_some() {
                return info;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    waiting.abort();
    let capabilities = json!({ "transport": { "streaming": true, "resumable": true } });
    let agent = |name: &str| {
        let present = name == "waits";
        json!({ "name": name, "description": "", "className": "Proscenium", "capabilities": capabilities, "present": present })
    };
    let names = ["asked", "default", "helper", "named", "waits"];
    assert_eq!(info["agents"], names.iter().map(|name| ((*name).to_owned(), agent(name))).collect::<Value>());
    assert_eq!(
        json!([info["mode"], info["audioFileTranscriptionEnabled"], info["version"]]),
        json!(["sse", false, env!("CARGO_PKG_VERSION")])
    );
    let threads = json!({ "list": true, "inspect": true, "mutations": true, "realtimeMetadata": false });
    assert_eq!(info["threadEndpoints"], threads);
    assert_eq!(info["singleRoute"], json!({ "resourceOperations": true, "threadEndpoints": threads }));
    assert_eq!(json!([info["suggestions"], info["a2uiEnabled"], info["telemetryDisabled"]]), json!([false, false, true]));
    assert!(info.get("licenseStatus").is_none() && info.get("intelligence").is_none(), "{info}");
    let called = post_json(&client, "/copilotkit", &json!({ "method": "info" })).await.ok();
    assert_eq!((&called["agents"]["named"], &called["threadEndpoints"]), (&agent("named"), &threads));
}

#[tokio::test]
async fn a_connect_streams_the_thread_and_ends_with_its_state() {
    let client = client().await;
    let path = "/copilotkit/agent/helper/connect";
    let call = |thread: &str| json!({ "method": "agent/connect", "params": { "agentId": "helper" }, "body": run_input(thread, "x", &[]) });
    for unknown in [post(&client, path, &run_input("t", "x", &[])).await, post(&client, "/copilotkit", &call("t")).await] {
        assert_eq!(unknown.headers["content-type"], "text/event-stream");
        assert_eq!(
            unknown.headers.get("content-length").map(String::as_str),
            Some("0"),
            "an unknown thread has no events and no error"
        );
    }
    publish_turn(&client, "t", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    publish(&client, "t", "r2", &[started(), user_text("u2", "delete it"), action_required("ask", "tool_approval")]).await;
    for joined in [post(&client, path, &run_input("t", "x", &[])).await, post(&client, "/copilotkit", &call("t")).await] {
        let events = joined.read_all().await;
        assert_eq!(types(&events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
        assert_eq!(json!([events[0]["threadId"], events[0]["runId"]]), json!(["t", "r2"]), "the ids are those of the log");
        let text = events[1]["messages"].to_string();
        assert!(["hello", "Hi", "delete it"].iter().all(|said| text.contains(said)), "{text}");
        assert_eq!(events[2]["outcome"]["interrupts"][0]["id"], "ask", "the interrupt is there after a refresh");
    }
    // An active run comes before a waiting one, and a requested run is waited for after a snapshot of the thread.
    let body = run_input("t", "r3", &[user_message("u3", "and now?")]);
    drop(post(&client, "/copilotkit/agent/helper/run", &body).await.wait_until_open().await);
    let mut joined = post(&client, path, &run_input("t", "x", &[])).await;
    let shown = joined.read_until("MESSAGES_SNAPSHOT").await;
    assert_eq!(shown[0]["runId"], "r3");
    assert!(shown[1].to_string().contains("delete it"), "{}", shown[1]);
    publish(&client, "t", "r3", &[started(), user_text("u3", "and now?"), agent_text("a3", "Nothing"), finished()]).await;
    let events = joined.read_all().await;
    assert!(events.iter().any(|event| event.to_string().contains("Nothing")), "{events:#?}");
    assert_eq!(types(&events).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn a_stop_interrupts_the_active_run_and_withdraws_an_unclaimed_request() {
    let client = client().await;
    let stop = "/copilotkit/agent/helper/stop/t";
    let nothing = json!({ "stopped": false, "message": "no run of this thread is active" });
    assert_eq!(client.post(stop, &[], "").await.ok(), nothing);

    let waits = post(&client, "/ag-ui/helper", &run_input("t", "r1", &[])).await.wait_until_open().await;
    assert_eq!(post_json(&client, stop, &json!({ "runId": "r1" })).await.ok(), json!({ "stopped": true, "runId": "r1" }));
    let events = waits.read_all().await;
    assert_eq!(json!([types(&events).last(), events.last().unwrap()["code"]]), json!(["RUN_ERROR", "control_expired"]));
    assert!(events.last().unwrap()["message"].as_str().unwrap().contains("withdrawn"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());

    publish(&client, "t", "r2", &[started()]).await;
    publish(&client, "t", "r3", &[started()]).await;
    let response = post(&client, "/ag-ui/helper", &run_input("t", "r2", &[])).await;
    let call = json!({ "method": "agent/stop", "params": { "agentId": "helper", "threadId": "t" }, "body": { "runId": "r2" } });
    let stopped = post_json(&client, "/copilotkit", &call).await.ok();
    assert_eq!(json!([stopped["stopped"], stopped["runId"]]), json!([true, "r2"]));
    assert_eq!(post_json(&client, "/copilotkit", &call).await.ok(), stopped, "a repeated stop submits one control");
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["controlId"]]),
        json!(["interrupt", "r2", stopped["controlId"]])
    );
    publish(&client, "t", "r2", &[fact("run.finished", json!({ "payload": { "status": "cancelled" } }))]).await;
    assert_eq!(response.read_all().await.last().unwrap()["outcome"], json!({ "type": "cancelled" }));
    // A run that has ended or is not in the thread is ignored: the stop is for the active run.
    for named in ["elsewhere", "r2"] {
        assert_eq!(post_json(&client, stop, &json!({ "runId": named })).await.ok()["runId"], "r3");
    }
}

// ── AI SDK ──

#[tokio::test]
async fn a_chat_submits_each_message_once_and_every_stream_starts_at_the_beginning() {
    let client = client().await;
    let mut body = chat_input("c", &[ui_message("u1", "hello")]);
    body["model"] = json!("m");
    let response = post(&client, "/ai-sdk/helper?version=7", &body).await.wait_until_open().await;
    assert_eq!(response.headers["x-vercel-ai-ui-message-stream"], "v1");
    let again = post(&client, "/ai-sdk/helper?version=7", &body).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    let run = control["value"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(
        control["value"],
        json!({ "protocol": "ai-sdk", "threadId": "c", "runId": run, "trigger": "submit-message",
                "messages": [ui_message("u1", "hello")], "model": "m" })
    );
    let waiting = send_request(&client, "GET", "/ai-sdk/helper/c/stream", &[], "").await.wait_until_open().await;
    assert_eq!(waiting.status, 200, "the requested run is active");
    publish(&client, "c", &run, &[started(), user_text("u1", "hello"), agent_text("a1", "Hi")]).await;
    settle_control(&client, &control, "ack", json!({})).await;

    // The SDK sends no cursor. One from elsewhere changes nothing, as the client builds its message again.
    let cursor = [("last-event-id", "5f1c0a88e1b2c3d4:4")];
    let live = send_request(&client, "GET", "/ai-sdk/helper/c/stream", &cursor, "").await;
    let rest = client.get("/ai-sdk/helper/c").await.ok();
    assert_eq!(
        json!([rest["messages"], rest["activeRun"]["runId"]]),
        json!([[ui_message("u1", "hello")], run]),
        "the active run's own message comes with its stream"
    );
    publish(&client, "c", &run, &[finished()]).await;
    for response in [response, again, waiting, live] {
        let chunks = response.read_all().await;
        assert_eq!(json!([chunks[0]["type"], chunks[0]["messageId"]]), json!(["start", run]));
        assert_eq!((text_of(&chunks).as_str(), types(&chunks).last()), ("Hi", Some(&"finish")));
    }
    let idle = client.get("/ai-sdk/helper/c/stream").await;
    assert_eq!((idle.status, idle.body.len()), (204, 0));
    let rest = client.get("/ai-sdk/helper/c").await.ok();
    assert_eq!(
        json!([rest["activeRun"], rest["messages"][1]["id"], rest["messages"][1]["role"]]),
        json!([null, run, "assistant"])
    );
    assert_eq!(client.get("/ai-sdk/helper/never/stream").await.status, 204);
    assert_eq!(client.get("/ai-sdk/helper/never").await.ok()["messages"], json!([]));

    // The whole conversation comes along; the same post is the same run; another text under the same id is another run.
    let whole = [ui_message("u1", "hello"), rest["messages"][1].clone(), ui_message("u2", "more")];
    drop(post(&client, "/ai-sdk/helper", &chat_input("c", &whole)).await.wait_until_open().await);
    let second = claim_one(&client, "helper").await["value"].clone();
    assert_eq!(second["messages"], json!([ui_message("u2", "more")]));
    assert_eq!(text_of(&post(&client, "/ai-sdk/helper", &body).await.read_all().await), "Hi");
    drop(post(&client, "/ai-sdk/helper", &chat_input("c", &[ui_message("u1", "hello, you")])).await.wait_until_open().await);
    let edited = claim_one(&client, "helper").await["value"].clone();
    assert!(edited["runId"] != second["runId"] && edited["runId"] != run.as_str());
}

#[tokio::test]
async fn a_regeneration_starts_a_new_run_unless_one_is_active() {
    let client = client().await;
    publish_turn(&client, "c", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    let body = json!({ "id": "c", "messages": [ui_message("u1", "hello")], "trigger": "regenerate-message", "messageId": "r1" });
    let posts = (0..3).map(|_| post(&client, "/ai-sdk/helper", &body));
    let all = futures_util::future::join_all(posts).await;
    let control = claim_one(&client, "helper").await;
    let (run, branch) = (control["value"]["runId"].as_str().unwrap(), control["sessionId"].as_str().unwrap());
    assert_eq!(json!([control["value"]["trigger"], control["value"]["messageId"]]), json!(["regenerate-message", "r1"]));
    publish(&client, branch, run, &[started(), agent_text("a2", "Hello")]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let active = post(&client, "/ai-sdk/helper", &body).await;
    publish(&client, branch, run, &[finished()]).await;
    for response in all.into_iter().chain([active]) {
        assert_eq!(response.read_all().await[0]["messageId"], run);
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    let again = json!({ "id": "c", "messages": [ui_message("u1", "hello")], "trigger": "regenerate-message", "messageId": run });
    drop(post(&client, "/ai-sdk/helper", &again).await.wait_until_open().await);
    assert!(claim_one(&client, "helper").await["value"]["runId"] != run, "a later regeneration is another run");
}

/// Answers the only queued control with a whole turn in its session. Returns the control.
async fn answer_turn(client: &Client, said: (&str, &str)) -> Value {
    let control = claim_one(client, "helper").await;
    let (run, session) = (control["value"]["runId"].as_str().unwrap(), control["sessionId"].as_str().unwrap());
    let asked = control["value"]["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    let text = |message: &Value| message["parts"][0]["text"].as_str().or(message["content"].as_str()).unwrap().to_owned();
    let asked = asked.map(|message| user_text(message["id"].as_str().unwrap(), &text(message)));
    let facts: Vec<_> = [started()].into_iter().chain(asked).chain([agent_text(said.0, said.1), finished()]).collect();
    publish(client, session, run, &facts).await;
    settle_control(client, &control, "ack", json!({})).await;
    control
}

/// The texts of a chat, as a client loads it.
async fn chat_texts(client: &Client, chat: &str) -> Vec<String> {
    let loaded = client.get(&format!("/ai-sdk/helper/{chat}")).await.ok();
    let text = |message: &Value| {
        message["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    loaded["messages"].as_array().unwrap().iter().map(text).collect()
}

#[tokio::test]
async fn an_answer_is_regenerated_in_a_branch_and_the_client_may_go_back_to_the_first() {
    let client = client().await;
    publish_turn(&client, "c", "r1", ("u1", "One"), ("a1", "First")).await;
    publish_turn(&client, "c", "r2", ("u2", "Two"), ("a2", "Second")).await;
    let first = ["One", "First", "Two", "Second"];
    assert_eq!(chat_texts(&client, "c").await, first);
    let regenerates = json!({ "id": "c", "trigger": "regenerate-message", "messageId": "r2",
        "messages": [ui_message("u1", "One"), { "id": "r1", "role": "assistant", "parts": [] }, ui_message("u2", "Two")] });
    let answer = post(&client, "/ai-sdk/helper", &regenerates).await;
    let control = answer_turn(&client, ("b", "Second, again")).await;
    assert_eq!(control["value"]["messages"], json!([ui_message("u2", "Two")]), "the agent gets the question again");
    assert_eq!(control["value"]["threadId"], control["sessionId"], "it knows the branch by its own id");
    assert_eq!(text_of(&answer.read_all().await), "Second, again");
    assert_eq!(chat_texts(&client, "c").await, ["One", "First", "Two", "Second, again"]);
    let shell = client.get("/v1/sessions/c").await.ok();
    let branch = shell["head"].as_str().unwrap().to_owned();
    assert_eq!(json!([shell["branches"][0]["sessionId"], shell["branches"][0]["parent"]["runId"]]), json!([branch, "r2"]));
    let listed = client.get("/ai-sdk/helper").await.ok();
    assert_eq!(listed["chats"].as_array().unwrap().len(), 1, "a chat and its branches are one: {listed}");

    // The conversation goes on in the branch, by the id that the client has.
    let whole = [ui_message("u1", "One"), ui_message("u2", "Two"), ui_message("u3", "Three")];
    let more = post(&client, "/ai-sdk/helper", &chat_input("c", &whole)).await;
    let control = answer_turn(&client, ("d", "Third")).await;
    assert_eq!(json!([control["sessionId"], control["value"]["messages"]]), json!([branch, [ui_message("u3", "Three")]]));
    assert_eq!(text_of(&more.read_all().await), "Third");
    assert_eq!(chat_texts(&client, "c").await, ["One", "First", "Two", "Second, again", "Three", "Third"]);

    client.patch("/v1/sessions/c", &json!({ "head": null })).await.ok();
    assert_eq!(chat_texts(&client, "c").await, first);
    let answer = post(&client, "/ai-sdk/helper", &chat_input("c", &[ui_message("u4", "Four")])).await;
    assert_eq!(answer_turn(&client, ("e", "Fourth")).await["sessionId"], "c");
    drop(answer.read_all().await);
    client.patch("/v1/sessions/c", &json!({ "head": branch })).await.ok();
    assert_eq!(chat_texts(&client, "c").await.len(), 6);
}

#[tokio::test]
async fn an_edited_message_branches_and_a_shortened_list_of_messages_never_does() {
    let client = client().await;
    publish_turn(&client, "c", "r1", ("u1", "One"), ("a1", "First")).await;
    publish_turn(&client, "c", "r2", ("u2", "Two"), ("a2", "Second")).await;
    // Clients trim what they send, and send known messages as they were.
    for messages in [vec![ui_message("u3", "Three")], vec![ui_message("u1", "One"), ui_message("u4", "Four")]] {
        let answer = post(&client, "/ai-sdk/helper", &chat_input("c", &messages)).await;
        assert_eq!(answer_turn(&client, ("x", "More")).await["sessionId"], "c");
        drop(answer.read_all().await);
    }
    assert_eq!(client.get("/v1/sessions/c").await.ok()["branches"], Value::Null);
    let edited = ui_message("u2", "Two, or rather three");
    let sends =
        json!({ "id": "c", "trigger": "submit-message", "messageId": "u2", "messages": [ui_message("u1", "One"), edited] });
    // A repeated request is the same branch and the same run.
    let posts = (0..3).map(|_| post(&client, "/ai-sdk/helper", &sends));
    let answers = futures_util::future::join_all(posts).await;
    let control = answer_turn(&client, ("b", "Three it is")).await;
    assert_eq!(control["value"]["messages"], json!([edited]));
    for answer in answers {
        assert_eq!(text_of(&answer.read_all().await), "Three it is");
    }
    assert_eq!(chat_texts(&client, "c").await, ["One", "First", "Two, or rather three", "Three it is"]);
    assert_eq!(client.get("/v1/sessions/c").await.ok()["branches"].as_array().unwrap().len(), 1);
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_ag_ui_client_branches_by_an_older_parent_run_or_an_edited_message() {
    let client = client().await;
    for (n, text) in [(1, "One"), (2, "Two")] {
        publish_turn(&client, "t", &format!("r{n}"), (&format!("u{n}"), text), (&format!("a{n}"), "Answer")).await;
    }
    let mut follows = run_input("t", "r3", &[user_message("u3", "Three")]);
    follows["parentRunId"] = "r2".into();
    let answer = post(&client, "/ag-ui/helper", &follows).await;
    assert_eq!(answer_turn(&client, ("a3", "Answer")).await["sessionId"], "t", "the newest run is no older one");
    drop(answer.read_all().await);

    let mut older = run_input("t", "r4", &[user_message("u4", "Instead")]);
    older["parentRunId"] = "r1".into();
    let answer = post(&client, "/ag-ui/helper", &older).await;
    let control = answer_turn(&client, ("a4", "Answer")).await;
    assert_eq!(control["value"]["messages"], json!([user_message("u4", "Instead")]));
    let events = answer.read_all().await;
    assert!(events.iter().all(|event| event["threadId"].is_null() || event["threadId"] == "t"), "{events:?}");
    let texts = async || {
        let loaded = client.get("/ag-ui/helper?threadId=t").await.ok();
        assert_eq!(loaded["threadId"], "t");
        loaded["messages"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts().await, ["u1", "a1", "u4", "a4"]);

    let edited = run_input("t", "r5", &[user_message("u1", "One, changed")]);
    let answer = post(&client, "/ag-ui/helper", &edited).await;
    answer_turn(&client, ("a5", "Answer")).await;
    drop(answer.read_all().await);
    assert_eq!(texts().await, ["u1", "a5"]);
    let tree = client.get("/v1/sessions/t").await.ok();
    let parents: Vec<_> = tree["branches"].as_array().unwrap().iter().map(|of| of["parent"].clone()).collect();
    assert_eq!(
        json!(parents),
        json!([{ "sessionId": "t", "runId": "r1", "sequence": 4 }, { "sessionId": "t", "runId": "r1", "sequence": 0 }])
    );
}

#[tokio::test]
async fn an_approval_goes_to_the_asking_run_and_its_message_continues() {
    let client = client().await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "rm", "input": { "path": "a" } } }));
    let mut asks = action_required("ask", "tool_approval");
    asks["toolCallId"] = "c".into();
    publish(&client, "chat", "r", &[started(), user_text("u1", "delete it"), agent_text("a1", "May I?"), call, asks]).await;
    assert_eq!(client.get("/ai-sdk/helper/chat/stream").await.status, 204, "no stream before the decision");
    let rest = client.get("/ai-sdk/helper/chat?version=7").await.ok();
    let mut message = rest["messages"][1].clone();
    let parts = message["parts"].as_array_mut().unwrap();
    let part = parts.iter_mut().find(|part| part["state"] == "approval-requested").expect("the message has an approval request");
    assert_eq!(part["approval"]["id"], "ask");
    part["state"] = "approval-responded".into();
    part["approval"] = json!({ "id": "ask", "approved": true, "reason": "fine" });
    let body = chat_input("chat", &[ui_message("u1", "delete it"), message]);
    let response = post(&client, "/ai-sdk/helper?version=7", &body).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["actionId"], control["value"]]),
        json!(["approve", "r", "ask", { "approved": true, "reason": "fine" }])
    );
    let result = fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": "gone" } }));
    publish(&client, "chat", "r", &[action_resolved("ask", "approved"), result, agent_text("a2", "Done"), finished()]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    let again = post(&client, "/ai-sdk/helper?version=7", &body).await;
    for response in [response, again] {
        let chunks = response.read_all().await;
        assert_eq!(
            json!([chunks[0]["type"], chunks[0]["messageId"]]),
            json!(["start", "r"]),
            "the stream continues the client's message"
        );
        assert_eq!(text_of(&chunks), "Done", "the stream omits the text that the client has");
        assert!(types(&chunks).contains(&"tool-output-available"), "{chunks:#?}");
        assert_eq!(types(&chunks).last(), Some(&"finish"));
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_message_approved_twice_continues_from_its_last_stop() {
    let client = client().await;
    let asks = |call: &str| {
        let mut asks = action_required(&format!("ask-{call}"), "tool_approval");
        asks["toolCallId"] = call.into();
        [fact("tool.started", json!({ "toolCallId": call, "payload": { "toolName": "rm", "input": {} } })), asks]
    };
    let result =
        |call: &str| fact("tool.result", json!({ "toolCallId": call, "audience": "user", "payload": { "output": "gone" } }));
    let part = |call: &str, state: &str| {
        json!({ "type": "dynamic-tool", "toolName": "rm", "toolCallId": call, "state": state, "input": {}, "output": "gone",
            "approval": { "id": format!("ask-{call}"), "approved": true } })
    };
    publish(&client, "chat", "r", &[[started(), agent_text("a1", "First")].to_vec(), asks("c").to_vec()].concat()).await;
    let message = |parts: &[Value]| json!({ "id": "r", "role": "assistant", "parts": parts });
    let first = chat_input("chat", &[message(&[part("c", "approval-responded")])]);
    let response = post(&client, "/ai-sdk/helper?version=7", &first).await.wait_until_open().await;
    settle_control(&client, &claim_one(&client, "helper").await, "ack", json!({})).await;
    let goes_on = [action_resolved("ask-c", "approved"), result("c"), agent_text("a2", "Second")].to_vec();
    publish(&client, "chat", "r", &[goes_on, asks("d").to_vec()].concat()).await;
    assert_eq!(text_of(&response.read_all().await), "Second");

    let second = chat_input("chat", &[message(&[part("c", "output-available"), part("d", "approval-responded")])]);
    let response = post(&client, "/ai-sdk/helper?version=7", &second).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(control["actionId"], "ask-d", "the first approval is settled");
    publish(&client, "chat", "r", &[action_resolved("ask-d", "approved"), result("d"), agent_text("a3", "Third"), finished()])
        .await;
    settle_control(&client, &control, "ack", json!({})).await;
    let again = post(&client, "/ai-sdk/helper?version=7", &second).await;
    for response in [response, again] {
        assert_eq!(text_of(&response.read_all().await), "Third", "the stream omits the text that the client has");
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_tool_s_output_answers_its_question_once_and_otherwise_starts_a_run() {
    let client = client().await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "where", "input": {} } }));
    let mut asks = action_required("ask", "structured_input");
    asks["toolCallId"] = "c".into();
    publish(&client, "chat", "r", &[started(), call, asks]).await;
    let part = |call: &str| {
        json!({ "type": "dynamic-tool", "toolName": "where", "toolCallId": call, "state": "output-available",
        "input": {}, "output": { "city": "Oslo" } })
    };
    let message = |calls: &[&str]| json!({ "id": "r", "role": "assistant", "parts": calls.iter().map(|call| part(call)).collect::<Value>() });
    let body = chat_input("chat", &[message(&["other", "c"])]);
    let response = post(&client, "/ai-sdk/helper?version=6", &body).await.wait_until_open().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["actionId"], control["value"]]), json!(["answer", "ask", { "city": "Oslo" }]));
    publish(&client, "chat", "r", &[action_resolved("ask", "answered"), finished()]).await;
    settle_control(&client, &control, "ack", json!({})).await;
    assert_eq!(types(&response.read_all().await).last(), Some(&"finish"));
    assert_eq!(types(&post(&client, "/ai-sdk/helper?version=6", &body).await.read_all().await).last(), Some(&"finish"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    // An output that no action waits for goes to a new run.
    let news = message(&["other", "c", "later"]);
    drop(
        post(&client, "/ai-sdk/helper?version=6", &chat_input("chat", std::slice::from_ref(&news))).await.wait_until_open().await,
    );
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["value"]["messages"]]), json!(["send", [news]]));
}

#[tokio::test]
async fn a_chat_is_stopped_by_a_request_and_not_by_a_disconnect() {
    let client = client().await;
    publish(&client, "c", "r", &[started(), agent_text("a1", "Hi")]).await;
    drop(send_request(&client, "GET", "/ai-sdk/helper/c/stream", &[], "").await.wait_until_open().await);
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    let stopped = client.post("/ai-sdk/helper/c/stop", &[], "").await.ok();
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([stopped["stopped"], stopped["controlId"]]), json!([true, control["controlId"]]));
    assert_eq!(control["control"], "interrupt");
}
