//! Webhooks, through the binary: who hears of what, in which order, and what becomes of a receiver that fails.

use crate::harness::{Client, ClockedProcess, Process, fact, is_full, with_timeout};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A secret of 32 bytes.
pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A message that a receiver got, checked by the published library.
#[derive(Debug, Clone)]
pub struct Received {
    pub id: String,
    pub body: Value,
}

impl Received {
    pub fn kind(&self) -> &str {
        self.body["type"].as_str().expect("a message has a type")
    }
}

type Answers = Arc<Mutex<Box<dyn FnMut(&Received) -> Response + Send>>>;

/// A receiver of webhooks.
pub struct Receiver {
    pub url: String,
    received: mpsc::UnboundedReceiver<Received>,
    answers: Answers,
}

impl Receiver {
    /// A receiver that takes everything.
    pub async fn start() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let answers: Answers = Arc::new(Mutex::new(Box::new(|_| StatusCode::NO_CONTENT.into_response())));
        let app = Router::new().fallback(receive).with_state((sender, answers.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, received, answers }
    }

    /// Answers as `answer` says from now on.
    pub fn answer(&self, answer: impl FnMut(&Received) -> Response + Send + 'static) {
        *self.answers.lock() = Box::new(answer);
    }

    pub async fn next(&mut self) -> Received {
        with_timeout("a message", self.received.recv()).await.expect("the receiver runs")
    }

    /// What it got and the test has not read.
    pub fn rest(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }
}

async fn receive(
    State((sender, answers)): State<(mpsc::UnboundedSender<Received>, Answers)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let library = standardwebhooks::Webhook::new(SECRET).unwrap();
    let (id, at) = (headers["webhook-id"].to_str().unwrap().to_owned(), headers["webhook-timestamp"].to_str().unwrap());
    let at: i64 = at.parse().unwrap();
    // The library compares the time with its own clock, which a test does not set forward.
    if jiff::Timestamp::now().as_second().abs_diff(at) < 60 {
        library.verify(&body, &headers).expect("the published library takes the message");
    }
    assert_eq!(headers["webhook-signature"], library.sign(&id, at, &body).unwrap());
    let received = Received { id, body: serde_json::from_slice(&body).unwrap() };
    let answer = answers.lock()(&received);
    let _ = sender.send(received);
    answer
}

/// Writes a configuration file with one webhook named `ops`.
pub fn configure(dir: &Path, url: &str, more: &str) -> String {
    let file = dir.join("proscenium.toml");
    let table =
        format!("[[webhooks]]\nname = \"ops\"\nurl = \"{url}\"\nsecrets = [\"{SECRET}\"]\nallow-private = true\n{more}\n");
    std::fs::write(&file, table).unwrap();
    file.to_str().unwrap().to_owned()
}

fn started(session: &str) -> Value {
    fact("run.started", json!({ "sessionId": session, "agentId": "coder", "phase": "acting", "audience": "user" }))
}

fn asks(action: &str, title: &str) -> Value {
    let payload = json!({ "kind": "approval", "title": title });
    fact("action.required", json!({ "actionId": action, "audience": "user", "payload": payload }))
}

fn resolved(action: &str) -> Value {
    fact("action.resolved", json!({ "actionId": action, "payload": { "outcome": "approved" } }))
}

fn finished() -> Value {
    fact("run.finished", json!({ "phase": "completed" }))
}

async fn deliveries(client: &Client, webhook: &str) -> Vec<Value> {
    let listed = client.get(&format!("/v1/webhooks/{webhook}/deliveries")).await.ok();
    listed["deliveries"].as_array().unwrap().clone()
}

/// Waits until the newest deliveries stand so.
async fn wait_for(client: &Client, webhook: &str, is_it: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    with_timeout("the deliveries", async {
        loop {
            let listed = deliveries(client, webhook).await;
            if is_it(&listed) {
                return listed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_receiver_hears_in_order_that_a_run_waits_goes_on_and_ends() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "include = \"activity\"\naudience = \"user\"");
    let process = Process::start_with(dir.path(), &["--config", &config, "--public-url", "https://agents.example.com/ui"]);
    let client = Client::new(process.at);
    client.append("r", &[started("s"), asks("a", "Delete the table?")]).await;
    let created = receiver.next().await;
    assert_eq!((created.kind(), &created.body["data"]["sessionId"]), ("session.created", &json!("s")));
    let waiting = receiver.next().await;
    assert_eq!(waiting.kind(), "run.waiting");
    let data = &waiting.body["data"];
    assert_eq!(data["title"], "Delete the table?");
    assert_eq!([&data["sessionId"], &data["runId"], &data["actionId"], &data["agentId"]], ["s", "r", "a", "coder"]);
    assert_eq!((&data["audience"], &data["status"]), (&json!("user"), &json!("waiting")));
    assert_eq!(data["url"], "https://agents.example.com/ui/#session=s&run=r&action=a&audience=user");
    assert_eq!(data["activity"]["content"]["title"], "Delete the table?");
    assert!(waiting.body["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    client.append("r", &[resolved("a"), finished()]).await;
    let kinds = [receiver.next().await, receiver.next().await].map(|received| received.kind().to_owned());
    assert_eq!(kinds, ["run.resumed", "run.completed"]);
    let listed = wait_for(&client, "ops", |listed| listed.iter().all(|one| one["status"] == "delivered")).await;
    assert_eq!(listed.len(), 4);
    assert_eq!(listed[0]["type"], "run.completed", "newest first");
    // A second request of the same action is no second wait, and a second action is one.
    client.append("q", &[started("s"), asks("a", "Really?"), asks("a", "Really?"), asks("b", "And this?")]).await;
    let waits = [receiver.next().await, receiver.next().await];
    assert_eq!(waits.map(|wait| wait.body["data"]["actionId"].clone()), ["a", "b"]);
    assert!(receiver.rest().is_empty());
}

#[tokio::test]
async fn a_receiver_hears_only_of_what_its_audience_sees_and_its_filters_name() {
    let (dir, mut users) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &users.url, "audience = \"user\"\nsessions = [\"acme/*\"]\nevents = [\"run.waiting\"]");
    let process = Process::start_with(dir.path(), &["--config", &config]);
    let client = Client::new(process.at);
    let hidden = fact("action.required", json!({ "actionId": "h", "audience": "internal", "payload": { "title": "Hidden?" } }));
    client.append("other", &[started("other/1"), asks("o", "Of another?")]).await;
    client.append("r", &[started("acme/1"), hidden, asks("a", "Shown?")]).await;
    let only = users.next().await;
    assert_eq!((only.kind(), &only.body["data"]["title"]), ("run.waiting", &json!("Shown?")));
    assert!(!only.body.to_string().contains("Hidden"));
    client.append("r", &[resolved("a"), asks("z", "The last?")]).await;
    assert_eq!(users.next().await.body["data"]["actionId"], "z", "and nothing between");
}

#[tokio::test]
async fn the_signed_head_of_a_log_is_sent_at_the_end_of_its_run_and_once_an_hour() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"log.head\"]");
    let process = ClockedProcess::start(dir.path(), &["--config", &config]);
    let client = &process.client;
    client.append("r", &[started("s"), asks("a", "Go?")]).await;
    process.advance(Duration::from_mins(61)).await;
    client.append("r", &[resolved("a")]).await;
    let hourly = receiver.next().await;
    client.append("r", &[asks("b", "And?"), finished()]).await;
    let last = receiver.next().await;
    let heads = [&hourly, &last].map(|received| received.body["data"]["head"].clone());
    assert!(heads[0]["sequence"].as_u64() < heads[1]["sequence"].as_u64(), "{heads:?}");
    assert_eq!((last.kind(), &heads[1]["runId"]), ("log.head", &json!("r")));
    let key = &client.get("/v1/keys").await.ok()["keys"][0];
    assert_eq!(heads[1]["kid"], key["kid"]);
    let keys = proscenium::record::signing::PublicKey::read_all(key.to_string().as_bytes()).unwrap();
    let head: proscenium::record::signing::SignedHead = serde_json::from_value(heads[1].clone()).unwrap();
    assert!(head.is_signed_by(&keys));
    assert!(receiver.rest().is_empty());
}

#[tokio::test]
async fn a_failed_message_is_repeated_with_its_id_also_after_a_restart_and_holds_up_its_run_only() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\", \"run.completed\"]");
    receiver.answer(|received| match received.body["data"]["runId"] == "r" {
        true => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        false => StatusCode::OK.into_response(),
    });
    let process = ClockedProcess::start(dir.path(), &["--config", &config]);
    process.client.append("r", &[started("s"), asks("a", "Go?")]).await;
    let first = receiver.next().await;
    process.client.append("r", &[resolved("a"), finished()]).await;
    process.client.append("q", &[started("t"), asks("b", "Other?")]).await;
    assert_eq!(receiver.next().await.body["data"]["runId"], "q", "another run does not wait");
    let stands = |listed: &[Value]| {
        let is_open = |one: &Value| one["attempts"] == 1 && one["status"] == "open";
        listed.iter().any(is_open) && listed.iter().any(|one| one["status"] == "delivered")
    };
    let listed = wait_for(&process.client, "ops", stands).await;
    let open: Vec<_> = listed.iter().filter(|one| one["status"] == "open").collect();
    assert_eq!(open.iter().map(|one| one["runId"].as_str().unwrap()).collect::<Vec<_>>(), ["r", "r"]);
    assert_eq!(open[1]["last"], json!({ "at": open[1]["last"]["at"], "status": 500, "error": "status" }));
    process.server.terminate();
    drop(process);
    // Down for an hour.
    receiver.answer(|_| StatusCode::OK.into_response());
    let process = ClockedProcess::start(dir.path(), &["--config", &config]);
    let mut again = Vec::new();
    process
        .advance_until("the repetition", Duration::from_secs(2), async || {
            again.extend(receiver.rest());
            again.len() >= 2
        })
        .await;
    assert_eq!(again[0].id, first.id, "the same message");
    assert_eq!(again[0].body, first.body, "as of the same moment");
    assert_eq!(again[1].kind(), "run.completed", "in the order of the log");
    wait_for(&process.client, "ops", |listed| listed.iter().all(|one| one["status"] == "delivered")).await;
    assert!(receiver.rest().is_empty());
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_nothing_until_a_test_succeeds() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\"]");
    receiver.answer(|_| StatusCode::GONE.into_response());
    let process = ClockedProcess::start(dir.path(), &["--config", &config]);
    let client = &process.client;
    client.append("r", &[started("s"), asks("a", "Go?")]).await;
    receiver.next().await;
    let webhook = with_timeout("the end", async {
        loop {
            let listed = client.get("/v1/webhooks").await.ok();
            if listed["webhooks"][0]["disabledAt"].is_string() {
                return listed["webhooks"][0].clone();
            }
        }
    })
    .await;
    assert_eq!((&webhook["id"], &webhook["configured"]), (&json!("ops"), &json!(true)));
    assert!(!webhook.to_string().contains("whsec"), "no list has secrets");
    client.append("q", &[started("s"), asks("b", "And?")]).await;
    process.advance(Duration::from_hours(30)).await;
    let tested = client.post("/v1/webhooks/ops/test", &[], "").await.ok();
    assert_eq!((&tested["delivered"], &tested["last"]["error"]), (&json!(false), &json!("gone")));
    assert_eq!(receiver.rest().iter().map(Received::kind).collect::<Vec<_>>(), ["test"], "nothing else was tried");
    receiver.answer(|_| StatusCode::OK.into_response());
    assert_eq!(client.post("/v1/webhooks/ops/test", &[], "").await.ok()["delivered"], true);
    assert_eq!(receiver.next().await.kind(), "test");
    let both: HashSet<_> =
        [receiver.next().await, receiver.next().await].map(|one| one.body["data"]["actionId"].to_string()).into();
    assert_eq!(both, HashSet::from(["\"a\"".to_owned(), "\"b\"".to_owned()]), "what waited");
}

#[tokio::test]
async fn redirects_and_private_addresses_are_refused_at_each_attempt() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\"]");
    let elsewhere = receiver.url.clone();
    receiver.answer(move |_| (StatusCode::TEMPORARY_REDIRECT, [("location", elsewhere.clone())]).into_response());
    let process = Process::start_with(dir.path(), &["--config", &config]);
    let client = Client::new(process.at);
    // The name has a private address only once it is resolved.
    let local = receiver.url.replace("127.0.0.1", "localhost");
    let json_body = [("content-type", "application/json")];
    let made = client.post("/v1/webhooks", &json_body, json!({ "url": local, "events": ["run.waiting"] }).to_string()).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let id = made["id"].as_str().unwrap();
    assert!(made["secrets"][0].as_str().unwrap().starts_with("whsec_"), "the server makes a secret, and shows it once");
    client.append("r", &[started("s"), asks("a", "Go?")]).await;
    assert_eq!(receiver.next().await.kind(), "run.waiting");
    let tried = |listed: &[Value]| listed.len() == 1 && listed[0]["attempts"] == 1;
    assert_eq!(wait_for(&client, "ops", tried).await[0]["last"]["error"], "redirect");
    assert_eq!(wait_for(&client, id, tried).await[0]["last"]["error"], "private_address");
    assert!(receiver.rest().is_empty(), "neither was followed");
    assert_eq!(client.delete(&format!("/v1/webhooks/{id}")).await.status, 204);
    client.get(&format!("/v1/webhooks/{id}/deliveries")).await.problem(404, "no_such_webhook");
    client.delete("/v1/webhooks/ops").await.problem(409, "webhook_configured");
}

#[tokio::test]
async fn what_was_erased_is_not_told_and_a_delivery_can_be_repeated() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\"]");
    receiver.answer(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    let process = ClockedProcess::start(dir.path(), &["--config", &config]);
    let client = &process.client;
    client.append("r", &[started("s"), asks("a", "A secret?")]).await;
    let first = receiver.next().await;
    let id = first.id.as_str();
    wait_for(client, "ops", |listed| listed[0]["attempts"] == 1).await;
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    // Another run of the same name.
    client.append("r", &[started("s")]).await;
    process.advance(Duration::from_mins(1)).await;
    wait_for(client, "ops", |listed| listed[0]["status"] == "dropped").await;
    assert!(receiver.rest().is_empty());
    client.append("q", &[started("s"), asks("b", "Go?")]).await;
    receiver.answer(|_| StatusCode::OK.into_response());
    let second = receiver.next().await;
    wait_for(client, "ops", |listed| listed[0]["status"] != "open").await;
    let again = json!({ "deliveryId": second.id }).to_string();
    let json_body = [("content-type", "application/json")];
    let repeated = client.post("/v1/webhooks/ops/redeliver", &json_body, again).await;
    assert_eq!((repeated.status, &repeated.json()["status"]), (202, &json!("open")));
    assert_eq!(receiver.next().await.id, second.id);
    let none = json!({ "deliveryId": "msg_none" }).to_string();
    client.post("/v1/webhooks/ops/redeliver", &json_body, none).await.problem(404, "no_such_delivery");
    assert_ne!(second.id, id);
}

#[tokio::test]
async fn a_thousand_or_ten_thousand_events_at_once_arrive_each_once_and_those_of_a_run_in_order() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\", \"run.completed\"]");
    let process = Process::start_with(dir.path(), &["--config", &config]);
    let client = Client::new(process.at);
    let runs = if is_full() { 2500 } else { 250 };
    for run in 0..runs {
        let asked = (0..3).map(|action| asks(&format!("a{action}"), "Go?"));
        let facts: Vec<_> = std::iter::once(started("s")).chain(asked).chain([finished()]).collect();
        client.append(&format!("r{run}"), &facts).await;
    }
    let (mut ids, mut last) = (HashSet::new(), std::collections::HashMap::new());
    for _ in 0..runs * 4 {
        let received = receiver.next().await;
        let data = &received.body["data"];
        let before = last.insert(data["runId"].to_string(), data["sequence"].as_u64());
        assert!(before.flatten() < data["sequence"].as_u64(), "{received:?}");
        assert!(ids.insert(received.id.clone()), "{received:?}");
    }
    assert!(receiver.rest().is_empty());
}

#[tokio::test]
async fn a_receiver_that_never_answers_holds_up_no_other() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    // It takes connections, and nothing reads them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\"]");
    let hanging = format!(
        "[[webhooks]]\nname = \"hangs\"\nurl = \"http://{}/\"\nsecrets = [\"{SECRET}\"]\nallow-private = true\n",
        silent.local_addr().unwrap()
    );
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap() + &hanging).unwrap();
    let process = Process::start_with(dir.path(), &["--config", &config]);
    let client = Client::new(process.at);
    for run in 0..50 {
        client.append(&format!("r{run}"), &[started("s"), asks("a", "Go?")]).await;
    }
    for _ in 0..50 {
        receiver.next().await;
    }
    let hang = deliveries(&client, "hangs").await;
    assert!(hang.iter().all(|one| one["status"] == "open" && one["attempts"] == 0), "{hang:?}");
}

#[tokio::test]
async fn the_audit_names_who_decided_and_outlives_what_was_erased() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_in(dir.path());
    let client = Client::new(process.at);
    client.append("r", &[started("s"), asks("a", "A private question?")]).await;
    let decision = json!({ "control": "approve", "actionId": "a" }).to_string();
    let json_body = [("content-type", "application/json")];
    assert_eq!(client.post("/v1/runs/r/controls", &json_body, decision).await.status, 202);
    let entries = async || client.get("/v1/audit").await.ok()["entries"].as_array().unwrap().clone();
    with_timeout("the entry", async { while entries().await.len() < 2 {} }).await;
    assert_eq!(client.post("/v1/runs/r/settle", &[], "").await.ok()["settled"], true);
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    client.delete("/v1/runs/r").await.problem(410, "erased");
    let listed = entries().await;
    assert_eq!(
        listed.iter().map(|entry| entry["what"].as_str().unwrap()).collect::<Vec<_>>(),
        ["erase", "settle", "decision", "key.changed"]
    );
    let keys = client.get("/v1/keys").await.ok();
    assert_eq!(json!([listed[3]["id"], listed[3]["by"]["via"]]), json!([keys["keys"][0]["kid"], "cli"]));
    let decided = &listed[2];
    assert_eq!([&decided["runId"], &decided["actionId"], &decided["control"]], ["r", "a", "approve"]);
    assert_eq!(decided["by"]["via"], "rest");
    assert!(decided["by"]["at"].is_string() && decided["controlId"].is_string());
    assert!(!json!(listed).to_string().contains("private"), "ids, and no text");
    let page = client.get("/v1/audit?limit=2").await.ok();
    let rest = client.get(&format!("/v1/audit?limit=2&cursor={}", page["nextCursor"].as_str().unwrap())).await.ok();
    let pages = [&page, &rest].map(|page| page["entries"].as_array().unwrap().clone()).concat();
    assert_eq!(pages, listed);
    assert_eq!(rest["nextCursor"], Value::Null);
    let exported = String::from_utf8(client.get("/v1/audit/export").await.body).unwrap();
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, listed.iter().rev().cloned().collect::<Vec<_>>());
    client.get("/v1/audit?cursor=x").await.problem(400, "bad_cursor");
    // The log of the server is none of the sessions, and no request can name it.
    assert_eq!(client.get("/v1/sessions").await.ok()["sessions"], json!([]));
    client.get("/v1/sessions/proscenium:server").await.problem(400, "bad_id");
    process.terminate();
    drop(process);
    let process = Process::start_in(dir.path());
    assert_eq!(Client::new(process.at).get("/v1/audit").await.ok()["entries"].as_array().unwrap().clone(), listed);
}

#[tokio::test]
async fn a_webhook_that_cannot_be_used_is_refused_with_its_member_and_why() {
    let client = crate::harness::start_local().await;
    for (settings, member, why) in [
        (json!({ "url": "hook" }), "url", "not an absolute URL"),
        (json!({ "url": "ftp://example.com/" }), "url", "its scheme is ftp"),
        (json!({ "url": "https://user@example.com/" }), "url", "a user name"),
        (json!({ "url": "https://[::ffff:10.0.0.1]/" }), "url", "is not a public address"),
        (json!({ "url": "http://0x7f.1/" }), "url", "127.0.0.1 is not a public address"),
        (json!({ "url": "https://example.com/", "secrets": ["whsec_c2hvcnQ="] }), "secrets", "this one has 5 bytes"),
        (json!({ "url": "https://example.com/", "sessions": ["a*b"] }), "sessions", "before its end"),
        (json!({ "url": "https://example.com/", "sessions": [] }), "sessions", "be absent for all"),
        (json!({ "url": "https://example.com/", "allow-private": true }), "allow-private", "only the configuration file"),
        (json!({ "url": "https://example.com/", "events": ["run.begun"] }), "body", "unknown variant `run.begun`"),
        (json!({ "url": "https://example.com/", "color": "red" }), "settings", "unknown field `color`"),
    ] {
        let refused = client.post("/v1/webhooks", &[("content-type", "application/json")], settings.to_string()).await;
        let problem = refused.problem(422, "bad_member");
        assert_eq!(problem["member"], member, "{settings}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{settings}: {problem}");
    }
    client.post("/v1/webhooks", &[("content-type", "application/json")], "[]").await.problem(400, "not_json");
    assert_eq!(client.get("/v1/webhooks").await.ok()["webhooks"], json!([]), "nothing was made");
}

#[test]
fn a_webhook_of_the_file_that_cannot_be_used_stops_the_start() {
    for (table, why) in [
        ("url = \"https://example.com/\"", "[[webhooks]] 1: name: it must be a text"),
        ("name = \"ops\"\nurl = \"https://example.com/\"", "webhook ops: secrets: it must have 1 to 4 secrets"),
        (
            "name = \"ops\"\nurl = \"https://10.0.0.1/\"\nsecrets = [{ env = \"SECRET_OF_OPS\" }]",
            "webhook ops: url: 10.0.0.1 is not",
        ),
        (
            "name = \"ops\"\nurl = \"https://example.com/\"\nsecrets = [{ env = \"NOT_SET_AT_ALL\" }]",
            "webhook ops: secrets: the variable",
        ),
        ("name = \"ops\"\nurl = \"https://example.com/\"\nretries = 3", "webhook ops: "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proscenium.toml");
        std::fs::write(&file, format!("[[webhooks]]\n{table}\n")).unwrap();
        let mut command = Process::command(dir.path(), "error");
        command.env("SECRET_OF_OPS", SECRET).args(["--config", file.to_str().unwrap()]);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(why), "{table}: {error}");
        assert!(!error.contains(SECRET), "{table}: {error}");
    }
}
