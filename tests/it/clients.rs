//! Clients that exist already: what they ask for becomes a control, once; what comes of it is told to its end, or reset.
//!
//! Each test is such a client, as bare as it can be: a request on a socket of its own, of whose answer every byte is seen. The
//! agent is the test itself. What a dialect says in detail is held elsewhere (`encode`, and the real libraries).

use crate::harness::{Client, fact, serve_it, soon, world};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::memory::MemoryStore;
use proscenium::model::AgentId;
use proscenium::serve::clients::asked::SEND_BYTES_MAX;
use proscenium::serve::clients::place::Place;
use proscenium::serve::clients::threads::RUNS_MAX;
use proscenium::serve::controls::Keeper;
use proscenium::serve::origin::Origins;
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

fn server(store: AnyStore, pulse: Pulse) -> Server {
    Server::new(store, Policy::default(), Sizes::default(), Limits::default(), pulse, world(jiff::Timestamp::now)).unwrap()
}

/// A server in memory, and what keeps its controls.
async fn keeping(pulse: Pulse) -> (Client, Keeper) {
    let server = server(AnyStore::Memory(MemoryStore::new()), pulse);
    let keeper = server.keeper();
    (serve_it(server, std::future::pending()).await.0, keeper)
}

async fn client() -> Client {
    keeping(Pulse::default()).await.0
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// As HTTP ends a body.
    Clean,
    /// The connection went away in the middle.
    Cut,
}

/// One event as it came.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    data: Value,
    /// The cursor, and whether it stood before the data.
    id: Option<(String, bool)>,
    has_retry: bool,
}

/// An answer, read from its socket.
struct Answer {
    socket: TcpStream,
    status: u16,
    headers: HashMap<String, String>,
    raw: Vec<u8>,
    /// What is decoded and was not looked at.
    text: String,
    /// Comment lines that came.
    beats: usize,
    end: Option<End>,
}

async fn ask(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut socket = soon("a connection", TcpStream::connect(client.at)).await.unwrap();
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
        assert!(soon("a head", socket.read_buf(&mut raw)).await.unwrap() > 0, "{}", String::from_utf8_lossy(&raw));
    };
    let head = String::from_utf8(raw[..end].to_vec()).unwrap();
    raw.drain(..end + 4);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let named = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    let headers = named.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Answer { socket, status, headers, raw, text: String::new(), beats: 0, end: None }
}

async fn post(client: &Client, path: &str, body: &Value) -> Answer {
    let answer = ask(client, "POST", path, &[], &body.to_string()).await;
    assert_eq!(answer.status, 200, "{path}");
    answer
}

/// A post whose answer is no stream.
async fn asked(client: &Client, path: &str, body: &Value) -> crate::harness::Answer {
    client.post(path, &[("content-type", "application/json")], body.to_string()).await
}

impl Answer {
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

    /// Reads once more; how it ended, if it did.
    async fn more(&mut self) -> Option<End> {
        let before = self.text.len();
        self.decode();
        if self.end.is_none() && self.text.len() == before {
            match soon("more of an answer", self.socket.read_buf(&mut self.raw)).await {
                Ok(1..) => self.decode(),
                Ok(0) | Err(_) => self.end = Some(End::Cut),
            }
        }
        self.end
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(rest) = self.text.strip_prefix(":\n") {
                self.beats += 1;
                self.text = rest.to_owned();
            }
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = event(block);
                self.text = rest.to_owned();
                if event.data != "[DONE]" {
                    return Some(event);
                }
                continue;
            }
            if self.end.is_some() {
                return None;
            }
            self.more().await;
        }
    }

    /// The next event, which has to be there.
    async fn event(&mut self) -> Value {
        self.next().await.expect("an event, not the end").data
    }

    /// Events up to the first of this type, that one included.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            if events.last().is_some_and(|event| event["type"] == kind) {
                return events;
            }
        }
    }

    /// Everything up to the end, which has to be a clean one.
    async fn all(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event.data);
        }
        assert_eq!(self.end, Some(End::Clean), "{events:#?}");
        events
    }

    /// Waits for a first byte.
    async fn opened(mut self) -> Self {
        while self.beats == 0 && !self.text.contains(":\n") {
            assert_eq!(self.more().await, None, "the answer is over");
        }
        self
    }
}

fn event(block: &str) -> Event {
    let (mut data, mut id, mut has_retry) = (None, None, false);
    for line in block.split('\n').filter(|line| *line != ":") {
        match line.split_once(": ").unwrap_or_else(|| panic!("a line: {line:?}")) {
            ("data", text) => {
                assert!(data.is_none(), "one data line: {block:?}");
                data = Some(if text == "[DONE]" { text.into() } else { serde_json::from_str(text).expect("JSON") });
            }
            ("id", text) => id = Some((text.to_owned(), data.is_none())),
            ("retry", text) => has_retry = text.parse::<u64>().is_ok(),
            other => panic!("a field: {other:?}"),
        }
    }
    Event { data: data.expect("no event without data"), id, has_retry }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("every event has a type")).collect()
}

/// The text that events of AG-UI or of the AI SDK add up to.
fn text(events: &[Value]) -> String {
    let is_text = |event: &&Value| matches!(event["type"].as_str(), Some("TEXT_MESSAGE_CONTENT" | "text-delta"));
    events.iter().filter(is_text).filter_map(|event| event["delta"].as_str()).collect()
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

fn input(thread: &str, run: &str, messages: &[Value]) -> Value {
    json!({ "threadId": thread, "runId": run, "messages": messages, "tools": [], "context": [], "protocolVersion": "1.0" })
}

fn resumes(thread: &str, run: &str, interrupt: &str, status: &str, payload: Value) -> Value {
    let mut input = input(thread, run, &[]);
    input["resume"] = json!([{ "interruptId": interrupt, "status": status }]);
    if !payload.is_null() {
        input["resume"][0]["payload"] = payload;
    }
    input
}

fn ui(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn chat(id: &str, messages: &[Value]) -> Value {
    json!({ "id": id, "messages": messages, "trigger": "submit-message" })
}

async fn claim(client: &Client, agent: &str) -> Vec<Value> {
    let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim?wait=0"), &[], "").await.ok();
    claimed["controls"].as_array().unwrap().clone()
}

/// Claims the one control that there is, as soon as it is there.
async fn claim_one(client: &Client, agent: &str) -> Value {
    let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim?wait=30"), &[], "").await.ok();
    let controls = claimed["controls"].as_array().unwrap();
    assert_eq!(controls.len(), 1, "{controls:#?}");
    controls[0].clone()
}

async fn answer(client: &Client, control: &Value, how: &str, more: Value) {
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

fn asked_by(id: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "payload": { "text": text, "role": "user" } }))
}

fn says(id: &str, text: &str) -> Value {
    fact("text.final", json!({ "messageId": id, "payload": { "text": text } }))
}

fn requires(action: &str, kind: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "payload": { "kind": kind, "message": "May I?" } }))
}

fn resolved(action: &str, outcome: &str) -> Value {
    fact("action.resolved", json!({ "actionId": action, "payload": { "outcome": outcome } }))
}

/// A whole turn: what was asked, what is said to it, and the end.
async fn turn(client: &Client, thread: &str, run: &str, asked: (&str, &str), said: (&str, &str)) {
    let facts = [started(), asked_by(asked.0, asked.1), says(said.0, said.1), finished()];
    publish(client, thread, run, &facts).await;
}

// ── a run that is new ──

#[tokio::test]
async fn a_new_run_is_one_send_that_says_what_the_client_says_and_is_told_to_its_end() {
    let client = client().await;
    let mut body = input("t", "r", &[user("u1", "hello")]);
    body["state"] = json!({ "colour": "red" });
    body["forwardedProps"] = json!({ "model": "m" });
    body["parentRunId"] = json!("before");
    body["newInAgUi"] = json!([1]);
    let mut told = post(&client, "/ag-ui/helper", &body).await.opened().await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(told.headers[name], value);
    }
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["sessionId"], control["agentId"]]), json!(["send", "t", "helper"]));
    assert_eq!(
        control["value"],
        json!({
            "protocol": "ag-ui", "threadId": "t", "runId": "r", "messages": [user("u1", "hello")],
            "tools": [], "context": [], "protocolVersion": "1.0", "state": { "colour": "red" },
            "forwardedProps": { "model": "m" }, "parentRunId": "before", "newInAgUi": [1],
        })
    );
    publish(&client, "t", "r", &[started(), asked_by("u1", "hello")]).await;
    answer(&client, &control, "ack", json!({})).await;
    let first = told.next().await.unwrap();
    assert!(first.has_retry, "it rides on the first event");
    assert_eq!(json!([first.data["type"], first.data["threadId"], first.data["runId"]]), json!(["RUN_STARTED", "t", "r"]));
    publish(&client, "t", "r", &[says("a1", "Hello to you"), finished()]).await;
    let events = told.all().await;
    assert_eq!(text(&events), "Hello to you");
    assert_eq!(types(&events).last(), Some(&"RUN_FINISHED"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn what_the_thread_has_is_not_sent_again_and_what_it_never_had_is() {
    let client = client().await;
    turn(&client, "t", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    let known = [user("u1", "hello"), json!({ "id": "a1", "role": "assistant", "content": "Hi" })];
    let rules = json!({ "id": "s", "role": "system", "content": "be brief" });
    let news = [user("u2", "and now?"), json!({ "id": "f", "role": "tool", "toolCallId": "c", "content": "42" })];
    // Of before what the thread has: another time's.
    let messages = [&[user("u0", "long ago"), rules.clone()], &known[..], &news[..]].concat();
    drop(post(&client, "/ag-ui/helper", &input("t", "r2", &messages)).await);
    let sent = claim_one(&client, "helper").await["value"]["messages"].clone();
    assert_eq!(sent, json!([rules, news[0], news[1]]));
}

#[tokio::test]
async fn the_same_post_again_asks_for_nothing_again_whenever_it_comes() {
    let client = client().await;
    let body = input("t", "r", &[user("u1", "hello")]);
    let posts = (0..4).map(|_| post(&client, "/ag-ui/helper", &body));
    let all = futures_util::future::join_all(posts).await;
    let control = claim_one(&client, "helper").await;
    publish(&client, "t", "r", &[started(), asked_by("u1", "hello"), says("a1", "Hi")]).await;
    answer(&client, &control, "ack", json!({})).await;
    let mut late = post(&client, "/ag-ui/helper", &body).await;
    let shown = late.until("MESSAGES_SNAPSHOT").await;
    let ids: Vec<_> = shown[1]["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
    assert_eq!(json!(ids), json!(["u1", "a1"]), "all of it, in the place of what the client has");
    publish(&client, "t", "r", &[finished()]).await;
    for told in all {
        let events = told.all().await;
        assert_eq!((text(&events).as_str(), types(&events).last()), ("Hi", Some(&"RUN_FINISHED")));
    }
    assert_eq!(types(&late.all().await), ["RUN_FINISHED"]);
    let after = post(&client, "/ag-ui/helper", &body).await.all().await;
    assert_eq!(types(&after), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    assert_eq!(client.get("/v1/sessions/t/controls").await.ok()["controls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_was_started_anew_knows_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let body = input("t", "r", &[user("u1", "hello")]);
    for life in 0..2 {
        let store = loop {
            // The one before lets go of it in its own time.
            match EmbeddedStore::open(dir.path(), Sync::Never) {
                Ok(store) => break AnyStore::Embedded(store),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let pulse = Pulse { drain: Duration::ZERO, ..Pulse::default() };
        let (client, serving) = serve_it(server(store, pulse), async { drop(stopped.await) }).await;
        drop(post(&client, "/ag-ui/helper", &body).await.opened().await);
        let controls = client.get("/v1/sessions/t/controls").await.ok();
        assert_eq!(controls["controls"].as_array().unwrap().len(), 1, "in life {life}");
        assert_eq!(claim_one(&client, "helper").await["attempt"], life + 1);
        drop(stop);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn while_nobody_takes_it_the_answer_is_kept_alive_and_a_refusal_or_nobody_at_all_is_told() {
    let (client, keeper) = keeping(Pulse { heartbeat: Duration::from_millis(20), ..Pulse::default() }).await;
    let later = async |seconds: u64| {
        let wall = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap());
        keeper.round(Instant::now() + Duration::from_secs(seconds), wall).await.unwrap();
    };
    let mut waits = post(&client, "/ag-ui/helper", &input("t", "refused", &[])).await;
    while waits.beats < 3 {
        assert_eq!(waits.more().await, None);
        waits.beats = waits.text.matches(":\n").count();
    }
    let control = claim_one(&client, "helper").await;
    answer(&client, &control, "nack", json!({ "reason": "not today", "requeue": true })).await;
    let control = claim_one(&client, "helper").await;
    answer(&client, &control, "nack", json!({ "reason": "not today" })).await;
    let events = waits.all().await;
    assert_eq!(types(&events), ["RUN_STARTED", "RUN_ERROR"]);
    assert_eq!(events[1]["code"], "control_refused");
    assert!(events[1]["message"].as_str().unwrap().contains("not today"), "{}", events[1]);
    // Asked again it is the same request, with the same answer.
    let events = post(&client, "/ag-ui/helper", &input("t", "refused", &[])).await.all().await;
    assert_eq!(events[1]["code"], "control_refused");

    let waits = post(&client, "/copilotkit/agent/helper/run", &input("t", "expired", &[])).await.opened().await;
    let chunks = post(&client, "/ai-sdk/helper", &chat("c", &[ui("u", "hello")])).await.opened().await;
    later(2 * 24 * 3600).await;
    let events = waits.all().await;
    assert_eq!(json!([types(&events), events[1]["code"]]), json!([["RUN_STARTED", "RUN_ERROR"], "control_expired"]));
    let chunks = chunks.all().await;
    assert_eq!(types(&chunks).last(), Some(&"error"));
    assert!(chunks.last().unwrap()["errorText"].as_str().unwrap().contains("nobody took"), "{chunks:?}");
}

#[tokio::test]
async fn what_no_run_can_be_made_of_names_the_member() {
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
        ("/copilotkit", json!({ "method": "agent/run" }), "agentId"),
        ("/copilotkit", json!({ "method": "agent/run", "params": [] }), "params"),
        ("/copilotkit", json!({ "method": "agent/stop", "params": { "agentId": "a" } }), "threadId"),
        ("/ai-sdk/a", json!({ "messages": [] }), "id"),
        ("/ai-sdk/a", json!({ "id": "c", "messages": {} }), "messages"),
    ] {
        let problem = asked(&client, path, &body).await.problem(422, "bad_member");
        assert_eq!(problem["member"], member, "{path} {body}");
    }
    let large = input("t", "r", &[user("u", &"x".repeat(SEND_BYTES_MAX))]);
    let problem = asked(&client, "/ag-ui/a", &large).await.problem(413, "control_too_large");
    assert_eq!(problem["limit"], SEND_BYTES_MAX);
    let body = input("t", "r", &[user("u", "hello")]).to_string();
    client.post("/ag-ui/a", &[("content-type", "text/plain")], body).await.problem(415, "unsupported_media_type");
    client.get("/ag-ui/a").await.problem(400, "bad_query");
    client.get("/ag-ui/a?threadId=t&before=x").await.problem(400, "bad_cursor");
    client.get("/ai-sdk/a/c?version=4").await.problem(400, "bad_query");
    assert_eq!(client.get("/v1/sessions").await.ok()["sessions"], json!([]), "nothing came of any of it");
}

#[tokio::test]
async fn a_run_of_another_thread_is_not_shown_in_this_one() {
    let client = client().await;
    turn(&client, "theirs", "r", ("u", "a secret"), ("a", "kept")).await;
    let problem = asked(&client, "/ag-ui/helper", &input("mine", "r", &[])).await.problem(409, "run_of_another_thread");
    assert_eq!(problem["member"], "runId");
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn who_goes_away_ends_nothing() {
    let client = client().await;
    let body = input("t", "r", &[user("u1", "hello")]);
    drop(post(&client, "/ag-ui/helper", &body).await.opened().await);
    let control = claim_one(&client, "helper").await;
    publish(&client, "t", "r", &[started(), says("a1", "Hi")]).await;
    answer(&client, &control, "ack", json!({})).await;
    let mut second = post(&client, "/ag-ui/helper", &body).await;
    second.until("MESSAGES_SNAPSHOT").await;
    drop(second);
    let third = post(&client, "/ag-ui/helper", &body).await;
    assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "running");
    assert_eq!(client.get("/v1/runs/r/controls").await.ok()["controls"], json!([]));
    publish(&client, "t", "r", &[finished()]).await;
    assert_eq!(types(&third.all().await).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_before_its_end_is_reset() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pulse = Pulse { drain: Duration::from_millis(50), ..Pulse::default() };
    let server = server(AnyStore::Memory(MemoryStore::new()), pulse);
    let (client, _) = serve_it(server, async { drop(stopped.await) }).await;
    publish(&client, "t", "r", &[started(), says("a1", "Hi")]).await;
    publish(&client, "over", "done", &[started(), finished()]).await;
    let mut cut = Vec::new();
    for (path, body) in [
        ("/ag-ui/helper", input("t", "r", &[])),
        ("/ag-ui/helper", input("t", "waited-for", &[])),
        ("/copilotkit/agent/helper/connect", input("t", "x", &[])),
        ("/ai-sdk/helper", chat("c", &[ui("u", "hello")])),
    ] {
        cut.push(post(&client, path, &body).await.opened().await);
    }
    cut.push(ask(&client, "GET", "/ai-sdk/helper/t/stream", &[], "").await.opened().await);
    cut.push(ask(&client, "GET", "/ag-ui/helper?runId=r&offset=-1", &[], "").await.opened().await);
    drop(stop);
    for mut answer in cut {
        while answer.next().await.is_some() {}
        assert_eq!(answer.end, Some(End::Cut), "a clean end would say that the run is done");
    }
}

// ── what a run waits for ──

#[tokio::test]
async fn an_answer_to_an_interrupt_is_a_control_and_the_run_goes_on_when_its_runtime_says_so() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), asked_by("u1", "delete it"), requires("ask", "tool_approval")]).await;
    let paused = post(&client, "/ag-ui/helper", &input("t", "r1", &[])).await.all().await;
    let outcome = &paused.last().unwrap()["outcome"];
    assert_eq!(json!([outcome["type"], outcome["interrupts"][0]["id"]]), json!(["interrupt", "ask"]));

    let body = resumes("t", "r2", "ask", "resolved", json!({ "approved": true, "note": "go" }));
    let told = post(&client, "/ag-ui/helper", &body).await.opened().await;
    let again = post(&client, "/ag-ui/helper", &body).await.opened().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["actionId"], control["value"]]),
        json!(["approve", "r1", "ask", { "approved": true, "note": "go" }])
    );
    let shown = client.get("/v1/runs/r1/activities").await.ok();
    let action = shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityType"] == "action").unwrap();
    assert_eq!(json!([action["content"]["status"], action["content"]["control"]]), json!(["pending", "submitted"]));

    publish(&client, "t", "r1", &[resolved("ask", "approved"), says("a1", "Deleted"), finished()]).await;
    answer(&client, &control, "ack", json!({})).await;
    for told in [told, again] {
        let events = told.all().await;
        let (first, last) = (&events[0], events.last().unwrap());
        assert_eq!(
            json!([first["type"], first["runId"], last["type"], last["runId"]]),
            json!(["RUN_STARTED", "r2", "RUN_FINISHED", "r2"])
        );
        assert_eq!(last["outcome"]["type"], "success");
    }
    // Once more, when all is over: the same run, and nobody is asked again.
    let events = post(&client, "/ag-ui/helper", &body).await.all().await;
    assert_eq!(types(&events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(client.get("/v1/runs/r1/controls").await.ok()["controls"].as_array().unwrap().len(), 1);
    assert_eq!(client.get("/v1/sessions/t").await.ok()["counts"]["runs"], 1, "the client's second run is none of the log's");
}

#[tokio::test]
async fn what_an_answer_is_as_a_control_follows_from_what_is_asked() {
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
        publish(&client, &run, &run, &[started(), requires("ask", kind)]).await;
        let told = post(&client, "/ag-ui/helper", &resumes(&run, "next", "ask", status, payload)).await;
        let claimed = claim_one(&client, "helper").await;
        assert_eq!(json!([claimed["control"], claimed["value"]]), json!([control, value]), "{kind} {status}");
        answer(&client, &claimed, "nack", json!({ "reason": "never" })).await;
        let events = told.all().await;
        assert_eq!(events.last().unwrap()["code"], "control_refused", "{kind} {status}");
    }
}

#[tokio::test]
async fn an_interrupt_that_nobody_asks_by_is_refused_before_anything_is_asked_and_one_that_is_resolved_is_attached_to() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), requires("one", "tool_approval"), requires("two", "tool_approval")]).await;
    let mut body = resumes("t", "r2", "one", "resolved", Value::Null);
    body["resume"].as_array_mut().unwrap().push(json!({ "interruptId": "three", "status": "resolved" }));
    let problem = asked(&client, "/ag-ui/helper", &body).await.problem(409, "action_not_pending");
    assert_eq!(problem["interruptId"], "three");
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new(), "all of them, or none");
    body["resume"][1]["interruptId"] = "two".into();
    let told = post(&client, "/ag-ui/helper", &body).await.opened().await;
    publish(&client, "t", "r1", &[resolved("one", "approved"), resolved("two", "approved"), finished()]).await;
    assert_eq!(types(&told.all().await).last(), Some(&"RUN_FINISHED"));
    // From another tab, too late.
    let late = post(&client, "/ag-ui/helper", &resumes("t", "r3", "one", "cancelled", Value::Null)).await.all().await;
    assert_eq!(json!([late[0]["runId"], late.last().unwrap()["outcome"]["type"]]), json!(["r3", "success"]));
}

#[tokio::test]
async fn a_runtime_that_goes_on_in_another_run_is_told_under_the_client_s_name() {
    let client = client().await;
    publish(&client, "t", "r1", &[started(), requires("ask", "tool_approval")]).await;
    let told = post(&client, "/ag-ui/helper", &resumes("t", "r2", "ask", "resolved", json!({ "approved": true }))).await;
    publish(&client, "t", "r2", &[started(), says("a2", "It goes on here"), finished()]).await;
    let events = told.all().await;
    assert_eq!(json!([events[0]["runId"], events.last().unwrap()["type"]]), json!(["r2", "RUN_FINISHED"]));
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").expect("all of it");
    assert!(snapshot.to_string().contains("It goes on here"), "{snapshot}");
}

// ── a thread at rest ──

#[tokio::test]
async fn a_thread_at_rest_says_its_messages_what_goes_on_and_what_waits() {
    let client = client().await;
    let empty = json!({ "threadId": "t", "messages": [], "activeRun": null, "interrupts": null, "page": { "truncated": false } });
    assert_eq!(client.get("/ag-ui/helper?threadId=t").await.ok(), empty, "nobody knows it, which is no error");
    drop(post(&client, "/ag-ui/helper", &input("t", "r0", &[])).await.opened().await);
    assert_eq!(client.get("/ag-ui/helper?threadId=t").await.ok()["activeRun"], json!({ "runId": "r0" }), "it is asked for");

    turn(&client, "t", "r0", ("u1", "hello"), ("a1", "Hi")).await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "look", "input": { "at": 1 } } }));
    let result = fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": { "seen": 2 } } }));
    let state = fact("state.snapshot", json!({ "payload": { "state": { "colour": "red" } } }));
    let thought = fact("reasoning.summary", json!({ "messageId": "th", "payload": { "text": "Where?" } }));
    publish(&client, "t", "r1", &[started(), asked_by("u2", "look"), thought, call, result, state]).await;
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
    assert_eq!(ids(&rest), ["u1", "a1", "u2"], "whoever joins the run is told what it says");

    publish(&client, "t", "r1", &[requires("ask", "tool_approval")]).await;
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(json!([rest["activeRun"], rest["interrupts"]["runId"]]), json!([null, "r1"]));
    assert_eq!(rest["interrupts"]["pending"][0]["id"], "ask");
    let bound = json!({ "v": 1, "kind": "generic", "interruptId": "ask", "interruptedRunId": "r1", "generation": 0 });
    assert_eq!(rest["interrupts"]["pending"][0]["metadata"]["tanstack:interruptBinding"], bound);
    let called = rest["messages"].as_array().unwrap().iter().find(|message| message["toolCalls"].is_array()).expect("a call");
    let arguments = called["toolCalls"][0]["function"]["arguments"].as_str().unwrap();
    let thought = json!({ "type": "thinking", "content": "Where?", "stepId": "reasoning:th/agentui-part-1" });
    assert_eq!(called["parts"][0], thought, "a thought is a part of the message that it led to");
    assert_eq!(
        called["parts"][1],
        json!({
        "type": "tool-call", "id": "c", "name": "look", "arguments": arguments, "input": { "at": 1 }, "state": "complete",
        "output": { "seen": 2 } })
    );
    assert_eq!(json!([called["parts"][2]["type"], called["parts"][2]["toolCallId"]]), json!(["tool-result", "c"]));

    let asking = json!({ "control": "approve", "actionId": "ask" });
    assert_eq!(asked(&client, "/v1/runs/r1/controls", &asking).await.status, 202);
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(
        json!([rest["activeRun"], rest["interrupts"]]),
        json!([{ "runId": "r1" }, null]),
        "it is answered, and about to go on"
    );
    publish(&client, "t", "r1", &[resolved("ask", "approved"), finished()]).await;
    let rest = client.get("/ag-ui/helper?threadId=t").await.ok();
    assert_eq!(json!([rest["activeRun"], rest["interrupts"]]), json!([null, null]));
}

#[tokio::test]
async fn a_long_thread_comes_page_by_page_and_nothing_twice() {
    let client = client().await;
    let runs = RUNS_MAX + 3;
    for n in 0..runs {
        turn(&client, "t", &format!("r{n}"), (&format!("u{n}"), "q"), (&format!("a{n}"), "a")).await;
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
                // What comes meanwhile moves nothing.
                turn(&client, "t", &format!("later-{limit}"), ("u", "q"), ("a", "a")).await;
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
async fn a_run_that_names_no_session_is_a_thread_by_itself() {
    let client = client().await;
    client.accept("alone", &[started(), says("a1", "Hi"), requires("ask", "tool_approval")]).await;
    let rest = client.get("/ag-ui/helper?threadId=alone").await.ok();
    assert_eq!(json!([rest["messages"][0]["id"], rest["interrupts"]["runId"]]), json!(["a1", "alone"]));
    let joined = post(&client, "/copilotkit/agent/helper/connect", &input("alone", "x", &[])).await.all().await;
    assert_eq!(json!([joined[0]["threadId"], joined[0]["runId"]]), json!(["alone", "alone"]));
}

// ── TanStack ──

#[tokio::test]
async fn a_post_that_says_where_it_was_goes_on_from_there() {
    let client = client().await;
    let body = input("t", "r", &[user("u1", "hello")]).to_string();
    let mut told = ask(&client, "POST", "/ag-ui/helper", &[("x-run-id", "r")], &body).await.opened().await;
    let control = claim_one(&client, "helper").await;
    let delta = |text: &str| fact("text.delta", json!({ "messageId": "a1", "payload": { "text": text } }));
    publish(&client, "t", "r", &[started(), asked_by("u1", "hello"), delta("one ")]).await;
    answer(&client, &control, "ack", json!({})).await;
    let (mut seen, mut at) = (Vec::new(), None);
    while text(&seen) != "one " {
        let event = told.next().await.unwrap();
        if let Some((id, is_first)) = event.id {
            assert!(is_first, "it takes an id for that of the data after it");
            at = Some(id);
        }
        seen.push(event.data);
    }
    drop(told);
    publish(&client, "t", "r", &[delta("two "), says("a1", "one two three"), finished()]).await;
    let headers = [("x-run-id", "r"), ("last-event-id", at.as_deref().expect("an id"))];
    let rest = ask(&client, "POST", "/ag-ui/helper", &headers, &body).await.all().await;
    assert_eq!(text(&rest), "two three");
    assert!(!types(&rest).contains(&"RUN_STARTED"), "it is open there: {rest:#?}");
    assert_eq!(types(&rest).last(), Some(&"RUN_FINISHED"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    let joined = ask(&client, "GET", "/ag-ui/helper?runId=r&offset=-1", &[], "").await.all().await;
    assert_eq!(text(&joined), "helloone two three", "it has forgotten the run, and is told all of it");
    assert_eq!(json!([types(&joined)[0], types(&joined).last()]), json!(["RUN_STARTED", "RUN_FINISHED"]));
    let offset = format!("/ag-ui/helper?runId=r&offset={}", at.unwrap());
    assert_eq!(text(&ask(&client, "GET", &offset, &[], "").await.all().await), "two three");
    // One that nobody knows is no error, and nothing; one that was asked for is waited for.
    let unknown = ask(&client, "GET", "/ag-ui/helper?runId=never&offset=-1", &[], "").await;
    assert_eq!((unknown.status, unknown.headers["content-length"].as_str()), (200, "0"));
    drop(post(&client, "/ag-ui/helper", &input("t", "r2", &[])).await.opened().await);
    assert_eq!(client.get("/ag-ui/helper?threadId=t").await.ok()["activeRun"], json!({ "runId": "r2" }));
    let mut joined = ask(&client, "GET", "/ag-ui/helper?runId=r2&offset=-1", &[], "").await;
    // It waits for no more than two seconds for its first event.
    assert_eq!(joined.until("RUN_STARTED").await[0]["runId"], "r2");
    publish(&client, "t", "r2", &[started(), says("a2", "four"), finished()]).await;
    assert_eq!(text(&joined.all().await), "four");
    // The header names the run where the body does not.
    let nameless = json!({ "threadId": "t", "messages": [] }).to_string();
    let told = ask(&client, "POST", "/ag-ui/helper", &[("x-run-id", "r")], &nameless).await;
    assert_eq!(told.all().await[0]["runId"], "r");
    let bad = client.post("/ag-ui/helper", &[("last-event-id", "x"), ("content-type", "application/json")], nameless).await;
    bad.problem(400, "bad_cursor");
}

/// All events of an answer to somebody who has heard those up to an id.
async fn told(client: &Client, path: &str, id: &str) -> Vec<Event> {
    let mut answer = ask(client, "GET", path, &[("last-event-id", id)], "").await;
    let mut events = Vec::new();
    // Whoever has heard the end is told that there is no more.
    while answer.status == 200
        && let Some(event) = answer.next().await
    {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn whoever_is_cut_off_between_two_events_of_one_envelope_hears_the_others_and_none_twice() {
    let client = client().await;
    let call = |kind: &str, payload: Value| fact(kind, json!({ "toolCallId": "c", "payload": payload }));
    publish(&client, "t", "r", &[started(), asked_by("u1", "hello"), says("a1", "one"), says("a2", "two")]).await;
    let called = [
        call("tool.started", json!({ "toolName": "look", "input": { "at": "it" } })),
        call("tool.result", json!({ "toolName": "look", "input": { "at": "it" }, "output": "seen" })),
    ];
    publish(&client, "t", "r", &called).await;
    publish(&client, "t", "r", &[requires("ask", "approval"), resolved("ask", "approved"), says("a3", "three"), finished()])
        .await;
    let path = "/v1/runs/r/stream?format=ag-ui&replay=deltas&protocolVersion=1.0";
    let whole = told(&client, path, "").await;
    let ids: Vec<_> = whole.iter().map(|event| event.id.clone().expect("every event has an id").0).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no id is another event's");
    let within: Vec<_> = ids.iter().filter(|id| id.contains('.')).collect();
    assert!(within.len() > ids.len() / 3, "{ids:#?}");
    let plain = |events: &[Event]| events.iter().map(|event| (event.data.clone(), event.id.clone())).collect::<Vec<_>>();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(plain(&told(&client, path, id).await), plain(&whole[n + 1..]), "after {id}");
    }
    // TanStack asks by its own address, and takes an id for that of the data after it.
    let [first, ..] = &told(&client, &format!("/ag-ui/helper?runId=r&offset={}", ids[1]), "").await[..] else { panic!("events") };
    let (id, stands_first) = first.id.as_ref().expect("every event has an id");
    assert!(stands_first);
    assert_eq!(id.parse::<Place>().unwrap().cursor, ids[1].parse::<Place>().unwrap().cursor);
    // Whoever was told otherwise than it would be now is shown everything.
    let (same, digit) = within[0].split_at(within[0].len() - 1);
    let other = format!("{same}{}", 9 - digit.parse::<u8>().unwrap());
    let shown = told(&client, path, &other).await;
    assert!(shown.iter().any(|event| event.data["type"] == "MESSAGES_SNAPSHOT"), "{other}: {shown:#?}");
    // To a native reader it is the envelope before.
    let place: Place = within[0].parse().unwrap();
    let native = client.activities("r", "", Some(within[0])).await.all().await;
    assert!(
        native.iter().filter(|frame| frame.kind() == "ActivitySnapshot").all(|frame| frame.sequence() > place.cursor.after.0)
    );
    assert!(native.len() > 2);
}

#[tokio::test]
async fn a_page_of_a_friendly_origin_may_ask_as_these_clients_do() {
    let server = server(AnyStore::Memory(MemoryStore::new()), Pulse::default());
    let server = server.asking(None, Origins::new(["https://app.example"]).unwrap());
    let (client, _) = serve_it(server, std::future::pending()).await;
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type, authorization, last-event-id, x-run-id"),
    ];
    let told = ask(&client, "OPTIONS", "/ag-ui/helper", &preflight, "").await;
    assert_eq!(told.status, 204);
    for header in ["content-type", "authorization", "last-event-id", "x-run-id"] {
        assert!(told.headers["access-control-allow-headers"].contains(header), "{header}");
    }
    publish(&client, "t", "r", &[started(), finished()]).await;
    let body = input("t", "r", &[]).to_string();
    let told = ask(&client, "POST", "/ag-ui/helper", &preflight[..1], &body).await;
    assert_eq!(told.headers["access-control-allow-origin"], "https://app.example");
    assert_eq!(types(&told.all().await).last(), Some(&"RUN_FINISHED"));
}

// ── CopilotKit ──

#[tokio::test]
async fn a_runtime_tells_which_agents_there_are() {
    let server = server(AnyStore::Memory(MemoryStore::new()), Pulse::default());
    let server = server.naming(vec![AgentId::new("named").unwrap()]);
    let (client, _) = serve_it(server, std::future::pending()).await;
    publish(&client, "t", "r", &[started()]).await;
    drop(post(&client, "/ag-ui/asked", &input("t2", "r2", &[])).await.opened().await);
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/v1/agents/waits/controls/claim?wait=60", &[], "").await })
    };
    let info = soon("the agent that waits", async {
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
    let agent = |name: &str| json!({ "name": name, "description": "", "className": "Proscenium" });
    let names = ["asked", "default", "helper", "named", "waits"];
    assert_eq!(info["agents"], names.iter().map(|name| ((*name).to_owned(), agent(name))).collect::<Value>());
    assert_eq!(
        json!([info["mode"], info["audioFileTranscriptionEnabled"], info["version"]]),
        json!(["sse", false, env!("CARGO_PKG_VERSION")])
    );
    let called = asked(&client, "/copilotkit", &json!({ "method": "info" })).await.ok();
    assert_eq!(called["agents"]["named"], agent("named"));
}

#[tokio::test]
async fn a_join_shows_the_thread_and_ends_with_what_it_comes_to() {
    let client = client().await;
    let path = "/copilotkit/agent/helper/connect";
    let call =
        |thread: &str| json!({ "method": "agent/connect", "params": { "agentId": "helper" }, "body": input(thread, "x", &[]) });
    for unknown in [post(&client, path, &input("t", "x", &[])).await, post(&client, "/copilotkit", &call("t")).await] {
        assert_eq!(unknown.headers["content-type"], "text/event-stream");
        assert_eq!(unknown.headers.get("content-length").map(String::as_str), Some("0"), "no events, and no error");
    }
    turn(&client, "t", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    publish(&client, "t", "r2", &[started(), asked_by("u2", "delete it"), requires("ask", "tool_approval")]).await;
    for joined in [post(&client, path, &input("t", "x", &[])).await, post(&client, "/copilotkit", &call("t")).await] {
        let events = joined.all().await;
        assert_eq!(types(&events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
        assert_eq!(json!([events[0]["threadId"], events[0]["runId"]]), json!(["t", "r2"]), "that of the log");
        let text = events[1]["messages"].to_string();
        assert!(["hello", "Hi", "delete it"].iter().all(|said| text.contains(said)), "{text}");
        assert_eq!(events[2]["outcome"]["interrupts"][0]["id"], "ask", "it comes back after a refresh");
    }
    // What goes on comes before what waits, and what was asked for is waited for with the thread in sight.
    let body = input("t", "r3", &[user("u3", "and now?")]);
    drop(post(&client, "/copilotkit/agent/helper/run", &body).await.opened().await);
    let mut joined = post(&client, path, &input("t", "x", &[])).await;
    let shown = joined.until("MESSAGES_SNAPSHOT").await;
    assert_eq!(shown[0]["runId"], "r3");
    assert!(shown[1].to_string().contains("delete it"), "{}", shown[1]);
    publish(&client, "t", "r3", &[started(), asked_by("u3", "and now?"), says("a3", "Nothing"), finished()]).await;
    let events = joined.all().await;
    assert!(events.iter().any(|event| event.to_string().contains("Nothing")), "{events:#?}");
    assert_eq!(types(&events).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn a_stop_is_a_control_of_what_goes_on_and_withdraws_what_nobody_has_taken() {
    let client = client().await;
    let stop = "/copilotkit/agent/helper/stop/t";
    let nothing = json!({ "stopped": false, "message": "nothing goes on in this thread" });
    assert_eq!(client.post(stop, &[], "").await.ok(), nothing);

    let waits = post(&client, "/ag-ui/helper", &input("t", "r1", &[])).await.opened().await;
    assert_eq!(asked(&client, stop, &json!({ "runId": "r1" })).await.ok(), json!({ "stopped": true, "runId": "r1" }));
    let events = waits.all().await;
    assert_eq!(json!([types(&events).last(), events.last().unwrap()["code"]]), json!(["RUN_ERROR", "control_expired"]));
    assert!(events.last().unwrap()["message"].as_str().unwrap().contains("withdrawn"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());

    publish(&client, "t", "r2", &[started()]).await;
    publish(&client, "t", "r3", &[started()]).await;
    let told = post(&client, "/ag-ui/helper", &input("t", "r2", &[])).await;
    let call = json!({ "method": "agent/stop", "params": { "agentId": "helper", "threadId": "t" }, "body": { "runId": "r2" } });
    let stopped = asked(&client, "/copilotkit", &call).await.ok();
    assert_eq!(json!([stopped["stopped"], stopped["runId"]]), json!([true, "r2"]));
    assert_eq!(asked(&client, "/copilotkit", &call).await.ok(), stopped, "said twice it is asked once");
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["controlId"]]),
        json!(["interrupt", "r2", stopped["controlId"]])
    );
    publish(&client, "t", "r2", &[fact("run.finished", json!({ "payload": { "status": "cancelled" } }))]).await;
    assert_eq!(told.all().await.last().unwrap()["outcome"], json!({ "type": "cancelled" }));
    // A run that the thread does not have, or that is over, is not what is meant: then it is what goes on.
    for named in ["elsewhere", "r2"] {
        assert_eq!(asked(&client, stop, &json!({ "runId": named })).await.ok()["runId"], "r3");
    }
}

// ── AI SDK ──

#[tokio::test]
async fn a_chat_asks_once_for_each_message_and_its_stream_begins_anew_whenever_it_is_asked_for() {
    let client = client().await;
    let mut body = chat("c", &[ui("u1", "hello")]);
    body["model"] = json!("m");
    let told = post(&client, "/ai-sdk/helper?version=7", &body).await.opened().await;
    assert_eq!(told.headers["x-vercel-ai-ui-message-stream"], "v1");
    let again = post(&client, "/ai-sdk/helper?version=7", &body).await.opened().await;
    let control = claim_one(&client, "helper").await;
    let run = control["value"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(
        control["value"],
        json!({ "protocol": "ai-sdk", "threadId": "c", "runId": run, "trigger": "submit-message",
                "messages": [ui("u1", "hello")], "model": "m" })
    );
    let waiting = ask(&client, "GET", "/ai-sdk/helper/c/stream", &[], "").await.opened().await;
    assert_eq!(waiting.status, 200, "it is asked for");
    publish(&client, "c", &run, &[started(), asked_by("u1", "hello"), says("a1", "Hi")]).await;
    answer(&client, &control, "ack", json!({})).await;

    let live = ask(&client, "GET", "/ai-sdk/helper/c/stream", &[], "").await;
    let rest = client.get("/ai-sdk/helper/c").await.ok();
    assert_eq!(
        json!([rest["messages"], rest["activeRun"]["runId"]]),
        json!([[ui("u1", "hello")], run]),
        "its own comes with the stream"
    );
    publish(&client, "c", &run, &[finished()]).await;
    for told in [told, again, waiting, live] {
        let chunks = told.all().await;
        assert_eq!(json!([chunks[0]["type"], chunks[0]["messageId"]]), json!(["start", run]));
        assert_eq!((text(&chunks).as_str(), types(&chunks).last()), ("Hi", Some(&"finish")));
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

    // The whole conversation comes along; the same post is still the same one; another text under the same id is another.
    let whole = [ui("u1", "hello"), rest["messages"][1].clone(), ui("u2", "more")];
    drop(post(&client, "/ai-sdk/helper", &chat("c", &whole)).await.opened().await);
    let second = claim_one(&client, "helper").await["value"].clone();
    assert_eq!(second["messages"], json!([ui("u2", "more")]));
    assert_eq!(text(&post(&client, "/ai-sdk/helper", &body).await.all().await), "Hi");
    drop(post(&client, "/ai-sdk/helper", &chat("c", &[ui("u1", "hello, you")])).await.opened().await);
    let edited = claim_one(&client, "helper").await["value"].clone();
    assert!(edited["runId"] != second["runId"] && edited["runId"] != run.as_str());
}

#[tokio::test]
async fn a_regeneration_is_a_fresh_run_unless_one_goes_on() {
    let client = client().await;
    turn(&client, "c", "r1", ("u1", "hello"), ("a1", "Hi")).await;
    let body = json!({ "id": "c", "messages": [ui("u1", "hello")], "trigger": "regenerate-message", "messageId": "r1" });
    let posts = (0..3).map(|_| post(&client, "/ai-sdk/helper", &body));
    let all = futures_util::future::join_all(posts).await;
    let control = claim_one(&client, "helper").await;
    let run = control["value"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(json!([control["value"]["trigger"], control["value"]["messageId"]]), json!(["regenerate-message", "r1"]));
    publish(&client, "c", &run, &[started(), says("a2", "Hello")]).await;
    answer(&client, &control, "ack", json!({})).await;
    let active = post(&client, "/ai-sdk/helper", &body).await;
    publish(&client, "c", &run, &[finished()]).await;
    for told in all.into_iter().chain([active]) {
        assert_eq!(told.all().await[0]["messageId"], run.as_str());
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    drop(post(&client, "/ai-sdk/helper", &body).await.opened().await);
    assert!(claim_one(&client, "helper").await["value"]["runId"] != run.as_str(), "asked for once more it is another one");
}

#[tokio::test]
async fn an_approval_goes_to_the_run_that_asked_and_the_message_goes_on() {
    let client = client().await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "rm", "input": { "path": "a" } } }));
    let mut asks = requires("ask", "tool_approval");
    asks["toolCallId"] = "c".into();
    publish(&client, "chat", "r", &[started(), asked_by("u1", "delete it"), says("a1", "May I?"), call, asks]).await;
    assert_eq!(client.get("/ai-sdk/helper/chat/stream").await.status, 204, "nothing goes on until somebody decides");
    let rest = client.get("/ai-sdk/helper/chat?version=7").await.ok();
    let mut message = rest["messages"][1].clone();
    let parts = message["parts"].as_array_mut().unwrap();
    let part = parts.iter_mut().find(|part| part["state"] == "approval-requested").expect("it is asked for");
    assert_eq!(part["approval"]["id"], "ask");
    part["state"] = "approval-responded".into();
    part["approval"] = json!({ "id": "ask", "approved": true, "reason": "fine" });
    let body = chat("chat", &[ui("u1", "delete it"), message]);
    let told = post(&client, "/ai-sdk/helper?version=7", &body).await.opened().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(
        json!([control["control"], control["runId"], control["actionId"], control["value"]]),
        json!(["approve", "r", "ask", { "approved": true, "reason": "fine" }])
    );
    let result = fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": "gone" } }));
    publish(&client, "chat", "r", &[resolved("ask", "approved"), result, says("a2", "Done"), finished()]).await;
    answer(&client, &control, "ack", json!({})).await;
    let again = post(&client, "/ai-sdk/helper?version=7", &body).await;
    for told in [told, again] {
        let chunks = told.all().await;
        assert_eq!(json!([chunks[0]["type"], chunks[0]["messageId"]]), json!(["start", "r"]), "the message that the client has");
        assert_eq!(text(&chunks), "Done", "and what it has is not said again");
        assert!(types(&chunks).contains(&"tool-output-available"), "{chunks:#?}");
        assert_eq!(types(&chunks).last(), Some(&"finish"));
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_message_that_was_approved_twice_goes_on_from_where_it_stopped_last() {
    let client = client().await;
    let asks = |call: &str| {
        let mut asks = requires(&format!("ask-{call}"), "tool_approval");
        asks["toolCallId"] = call.into();
        [fact("tool.started", json!({ "toolCallId": call, "payload": { "toolName": "rm", "input": {} } })), asks]
    };
    let result =
        |call: &str| fact("tool.result", json!({ "toolCallId": call, "audience": "user", "payload": { "output": "gone" } }));
    let part = |call: &str, state: &str| {
        json!({ "type": "dynamic-tool", "toolName": "rm", "toolCallId": call, "state": state, "input": {}, "output": "gone",
            "approval": { "id": format!("ask-{call}"), "approved": true } })
    };
    publish(&client, "chat", "r", &[[started(), says("a1", "First")].to_vec(), asks("c").to_vec()].concat()).await;
    let message = |parts: &[Value]| json!({ "id": "r", "role": "assistant", "parts": parts });
    let first = chat("chat", &[message(&[part("c", "approval-responded")])]);
    let told = post(&client, "/ai-sdk/helper?version=7", &first).await.opened().await;
    answer(&client, &claim_one(&client, "helper").await, "ack", json!({})).await;
    let goes_on = [resolved("ask-c", "approved"), result("c"), says("a2", "Second")].to_vec();
    publish(&client, "chat", "r", &[goes_on, asks("d").to_vec()].concat()).await;
    assert_eq!(text(&told.all().await), "Second");

    let second = chat("chat", &[message(&[part("c", "output-available"), part("d", "approval-responded")])]);
    let told = post(&client, "/ai-sdk/helper?version=7", &second).await.opened().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(control["actionId"], "ask-d", "the first one is over");
    publish(&client, "chat", "r", &[resolved("ask-d", "approved"), result("d"), says("a3", "Third"), finished()]).await;
    answer(&client, &control, "ack", json!({})).await;
    let again = post(&client, "/ai-sdk/helper?version=7", &second).await;
    for told in [told, again] {
        assert_eq!(text(&told.all().await), "Third", "and nothing of what the client has");
    }
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
}

#[tokio::test]
async fn what_a_client_s_own_tool_gives_answers_who_waits_for_it_once_and_else_is_news() {
    let client = client().await;
    let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "where", "input": {} } }));
    let mut asks = requires("ask", "structured_input");
    asks["toolCallId"] = "c".into();
    publish(&client, "chat", "r", &[started(), call, asks]).await;
    let part = |call: &str| {
        json!({ "type": "dynamic-tool", "toolName": "where", "toolCallId": call, "state": "output-available",
        "input": {}, "output": { "city": "Oslo" } })
    };
    let message = |calls: &[&str]| json!({ "id": "r", "role": "assistant", "parts": calls.iter().map(|call| part(call)).collect::<Value>() });
    let body = chat("chat", &[message(&["other", "c"])]);
    let told = post(&client, "/ai-sdk/helper?version=6", &body).await.opened().await;
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["actionId"], control["value"]]), json!(["answer", "ask", { "city": "Oslo" }]));
    publish(&client, "chat", "r", &[resolved("ask", "answered"), finished()]).await;
    answer(&client, &control, "ack", json!({})).await;
    assert_eq!(types(&told.all().await).last(), Some(&"finish"));
    assert_eq!(types(&post(&client, "/ai-sdk/helper?version=6", &body).await.all().await).last(), Some(&"finish"));
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    // An output that nobody waits for is for a new run.
    let news = message(&["other", "c", "later"]);
    drop(post(&client, "/ai-sdk/helper?version=6", &chat("chat", std::slice::from_ref(&news))).await.opened().await);
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([control["control"], control["value"]["messages"]]), json!(["send", [news]]));
}

#[tokio::test]
async fn a_chat_is_stopped_by_asking_and_not_by_going_away() {
    let client = client().await;
    publish(&client, "c", "r", &[started(), says("a1", "Hi")]).await;
    drop(ask(&client, "GET", "/ai-sdk/helper/c/stream", &[], "").await.opened().await);
    assert_eq!(claim(&client, "helper").await, Vec::<Value>::new());
    let stopped = client.post("/ai-sdk/helper/c/stop", &[], "").await.ok();
    let control = claim_one(&client, "helper").await;
    assert_eq!(json!([stopped["stopped"], stopped["controlId"]]), json!([true, control["controlId"]]));
    assert_eq!(control["control"], "interrupt");
}
