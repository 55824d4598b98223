//! Authorization: every address under every kind of token, expiry during use, tickets, and pages of other origins.

mod agents;
mod clients;
mod decided_by;
mod expiry;
mod feedback;
mod hosts;
mod identity;
mod links;
mod lists;
mod matrix;
mod owners;
mod quotas;
mod runs;
mod search;
mod threads;

use crate::harness::{
    Client, DOCUMENTATION, Process, Sse, TRANSPORTS, Transport, environment, fact, repository, serve_until, to_ndjson,
    with_timeout,
};
use futures_util::{SinkExt, StreamExt};
use proscenium::auth::keys::TokenSigner;
use proscenium::auth::{AuthConfig, Authenticator};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::access::origin::Origins;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::{Error, Message};

pub const SECRET: &str = "a secret of the tests, of more than thirty-two bytes";
const OTHER_SECRET: &str = "another secret of the tests, of more than 32 bytes";
const FRIEND: &str = "https://app.example";
/// The lifetime in seconds of a token that expires during use: half of that of others. A [`TestClock`] passes it.
const SHORT_TTL_S: i64 = 1800;

/// The clock of one test's server: the machine's, and what the test added.
#[derive(Clone, Copy)]
pub struct TestClock {
    pub now: fn() -> jiff::Timestamp,
    pub ahead_s: &'static AtomicI64,
}

impl TestClock {
    /// Lets the tokens of [`SHORT_TTL_S`] expire.
    fn expire_short_tokens(self) {
        self.ahead_s.fetch_add(SHORT_TTL_S + 1, Ordering::Relaxed);
    }
}

/// A clock of its own for each use in the code, because the server takes a function without a state.
macro_rules! test_clock {
    () => {{
        static AHEAD_S: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
        fn now() -> jiff::Timestamp {
            jiff::Timestamp::now() + jiff::SignedDuration::from_secs(AHEAD_S.load(std::sync::atomic::Ordering::Relaxed))
        }
        crate::auth::TestClock { now, ahead_s: &AHEAD_S }
    }};
}
pub(crate) use test_clock;

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Signs a token with the secret, valid for an hour, with these claims of the server's own.
pub fn token(here: &Value) -> String {
    token_with_claims(&json!({ "sub": "user-1", "exp": now() + 3600, "proscenium": here }))
}

fn token_with_claims(claims: &Value) -> String {
    signed(SECRET, claims, None)
}

fn signed(key: &str, claims: &Value, kid: Option<&str>) -> String {
    TokenSigner::from_file(key.as_bytes()).unwrap().sign(claims, kid).unwrap()
}

/// A token for everything, with every audience.
pub fn admin() -> String {
    token(&json!({ "audience": "internal", "sessions": ["*"], "agents": ["*"], "owners": ["*"], "can": ["admin"] }))
}

fn reader(more: Value) -> String {
    let mut here = json!({ "can": ["read"] });
    here.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    token(&here)
}

/// A server with authentication, and its files.
struct AuthServer {
    client: Client,
    dir: TempDir,
}

impl AuthServer {
    async fn start() -> Self {
        Self::start_with_config(|_| {}).await
    }

    async fn start_with_config(change: impl FnOnce(&mut AuthConfig)) -> Self {
        Self::start_with_all(change, Limits::default(), jiff::Timestamp::now).await
    }

    async fn start_with_clock(clock: TestClock) -> Self {
        Self::start_with_all(|_| {}, Limits::default(), clock.now).await
    }

    /// Starts a server with these limits.
    async fn start_with_limits(limits: Limits) -> Self {
        Self::start_with_all(|_| {}, limits, jiff::Timestamp::now).await
    }

    async fn start_with_all(change: impl FnOnce(&mut AuthConfig), limits: Limits, now: fn() -> jiff::Timestamp) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, SECRET).unwrap();
        let mut setup = AuthConfig { key: Some(key), service: "proscenium".into(), ..AuthConfig::default() };
        for (name, file) in [("jwks", &mut setup.jwks), ("revoked", &mut setup.revoked)] {
            *file = Some(dir.path().join(name));
        }
        replace_file(&dir.path().join("jwks"), r#"{"keys":[]}"#);
        replace_file(&dir.path().join("revoked"), "");
        change(&mut setup);
        let environment = environment(now);
        let authority = Authenticator::open(setup, environment).unwrap();
        let (policy, pulse) = (Policy { inline_bytes_max: 1024 }, KeepAlive::default());
        let store = Storage::memory();
        let server = Server::new(store, policy, FeedConfig::default(), limits, pulse, environment).unwrap();
        let server = server.with_documentation(DOCUMENTATION);
        let server = server.with_auth(authority, Origins::new([FRIEND]).unwrap());
        let (client, _) = serve_until(server, std::future::pending()).await;
        Self { client, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn get(&self, path: &str, token: &str) -> crate::harness::Response {
        self.client.get_with(path, &[("authorization", &bearer(token))]).await
    }

    async fn post(&self, path: &str, token: &str, body: &Value) -> crate::harness::Response {
        let headers = [("authorization", &*bearer(token)), ("content-type", "application/json")];
        self.client.post(path, &headers, body.to_string()).await
    }

    async fn publish(&self, run: &str, query: &str, token: &str, facts: &[Value]) -> crate::harness::Response {
        self.post(&format!("/v1/runs/{run}/facts?{query}"), token, &json!(facts)).await
    }

    async fn open_stream(&self, via: Transport, path: &str, token: &str, resume: Option<&str>) -> Sse {
        let socket = with_timeout("a connection", TcpStream::connect(self.client.at)).await.unwrap();
        let bearer = bearer(token);
        let mut headers = vec![("authorization", &*bearer)];
        headers.extend(resume.map(|id| ("last-event-id", id)));
        Sse::open(socket, via, path, &headers).await
    }

    async fn ticket(&self, token: &str, asked: Value) -> String {
        self.post("/v1/tickets", token, &asked).await.ok()["ticket"].as_str().unwrap().to_owned()
    }
}

/// A client of a server with authentication that may do everything, and the files of the server.
pub async fn start_as_admin() -> (Client, TempDir) {
    let AuthServer { client, dir } = AuthServer::start().await;
    (Client::with_token(client.at, &admin()), dir)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Replaces a file by another one, as an editor or a deployment does.
fn replace_file(path: &Path, text: &str) {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(path).unwrap();
}

/// A text for internal readers only, and a text for readers of session `s` only.
const HIDDEN: &str = "xyzzy-internal";
const OWN: &str = "plugh-own";

/// Writes run `r` of session `s`, with facts and a body for every audience, and run `q` of session `t`.
///
/// Returns the addresses of the hidden body and of the own body.
async fn write_example_runs(guarded: &AuthServer) -> [String; 2] {
    let large = |mark: &str| format!("{mark} {}", "long text ".repeat(400));
    let hidden = json!({ "output": large(HIDDEN) });
    let own = json!({ "output": large(OWN) });
    let facts = [
        fact("run.started", json!({ "payload": { "title": OWN } })),
        fact("text.delta", json!({ "messageId": "m", "payload": { "text": OWN } })),
        fact("tool.started", json!({ "toolCallId": "c", "audience": "internal", "payload": { "toolName": HIDDEN } })),
        fact("tool.result", json!({ "toolCallId": "c", "audience": "internal", "payload": hidden })),
        fact("tool.started", json!({ "toolCallId": "d", "payload": { "toolName": "t" } })),
        fact("tool.result", json!({ "toolCallId": "d", "audience": "user", "payload": own })),
    ];
    let here = json!({ "sessions": ["*"], "owners": ["*"], "can": ["admin"] });
    let writer = token_with_claims(&json!({ "sub": "writer", "exp": now() + 3600, "proscenium": here }));
    guarded.publish("r", "sessionId=s&owner=acme", &writer, &facts).await.ok();
    guarded.publish("q", "sessionId=t&owner=other", &writer, &[fact("run.started", json!({}))]).await.ok();
    guarded.publish("gone", "sessionId=s", &writer, &[fact("run.started", json!({}))]).await.ok();
    guarded.post("/v1/sessions/s/facts", &writer, &json!([fact("session.opened", json!({}))])).await.ok();
    let events = guarded.get("/v1/runs/r/events?audience=internal", &admin()).await.ok();
    ["c", "d"].map(|call| {
        let result = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .find(|event| event["type"] == "tool.result" && event["toolCallId"] == call);
        result.unwrap()["refs"][0]["href"].as_str().expect("the body is offloaded").to_owned()
    })
}

#[tokio::test]
async fn a_forbidden_run_and_a_missing_run_get_the_same_answer() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    guarded.publish("loose", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let token = token(&json!({ "sessions": ["t"], "runs": ["mine"], "can": ["admin"] }));
    for rest in ["", "/events", "/activities", "/export", "/stream"] {
        // In another session, in none, and not there.
        let answers = ["r", "loose", "abcde"].map(|run| (run, format!("/v1/runs/{run}{rest}")));
        let mut problems = Vec::new();
        for (run, path) in answers {
            let answer = guarded.get(&path, &token).await;
            // Each problem has its own request id, which says nothing about the run.
            let mut problem = answer.json();
            problem.as_object_mut().unwrap().remove("requestId");
            problems.push((answer.status, problem.to_string().replace(&format!("run {run}:"), "run *:")));
        }
        assert_eq!(problems[0].0, 403);
        assert!(problems.windows(2).all(|pair| pair[0] == pair[1]), "{problems:#?}");
    }
    let sessions = ["s", "abcde"].map(|session| format!("/v1/sessions/{session}"));
    for path in sessions {
        assert_eq!(guarded.get(&path, &token).await.problem(403, "forbidden")["missing"], "session");
    }
    guarded.get("/v1/runs/mine", &token).await.problem(404, "no_such_run");
    let headers = [("authorization", &*bearer(&token))];
    for run in ["r", "loose", "abcde"] {
        guarded.client.post(&format!("/v1/runs/{run}/settle"), &headers, "").await.problem(403, "forbidden");
    }
}

#[tokio::test]
async fn lists_contain_every_visible_item_once_page_by_page() {
    let guarded = AuthServer::start().await;
    let mut mine = (Vec::new(), Vec::new());
    for n in 0..60 {
        let (run, session) = (format!("run-{n}"), format!("session-{}", n % 20));
        let is_mine = n % 20 == 3 || n % 20 == 7 || n == 30;
        guarded.publish(&run, &format!("sessionId={session}"), &admin(), &[fact("run.started", json!({}))]).await.ok();
        if is_mine {
            mine.0.insert(0, run);
        }
    }
    mine.1.extend(["session-7".to_owned(), "session-3".to_owned()]);
    let token = reader(json!({ "sessions": ["session-7", "session-3", "session-never"], "runs": ["run-30", "run-never"] }));
    for (list, member, expected) in [("runs", "runId", &mine.0), ("sessions", "sessionId", &mine.1)] {
        for limit in [1, 2, 3, 100] {
            let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let query = if cursor.is_empty() { String::new() } else { format!("&cursor={cursor}") };
                let page = guarded.get(&format!("/v1/{list}?limit={limit}{query}"), &token).await.ok();
                let items = page[list].as_array().unwrap();
                assert!(items.len() <= limit);
                seen.extend(items.iter().map(|item| item[member].as_str().unwrap().to_owned()));
                pages += 1;
                match page["nextCursor"].as_str() {
                    Some(next) => cursor = next.to_owned(),
                    None => break,
                }
            }
            assert_eq!(&seen, expected, "{list} by {limit}");
            assert_eq!(pages, expected.len().div_ceil(limit), "no page is empty when few items are scanned");
        }
    }
    let all = guarded.get("/v1/runs?limit=1000", &admin()).await.ok();
    assert_eq!(all["runs"].as_array().unwrap().len(), 60);
    let only_runs = reader(json!({ "runs": ["*"] }));
    assert_eq!(guarded.get("/v1/runs", &only_runs).await.ok()["runs"].as_array().unwrap().len(), 60);
    assert_eq!(guarded.get("/v1/sessions", &only_runs).await.ok()["sessions"], json!([]));
}

#[tokio::test]
async fn a_list_that_reaches_its_scan_limit_returns_a_cursor_to_continue() {
    let guarded = AuthServer::start().await;
    let token = reader(json!({ "runs": ["the-oldest"] }));
    guarded.publish("the-oldest", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let admin = bearer(&admin());
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &admin)]).await.unwrap();
    for many in (0..5000).collect::<Vec<_>>().chunks(50) {
        for n in many {
            ws.send(json!({ "op": "publish", "id": n, "runId": format!("r{n}"), "facts": [fact("run.started", json!({}))] }))
                .await;
        }
        for _ in many {
            assert_eq!(ws.receive().await.unwrap()["op"], "ack");
        }
    }
    let first = guarded.get("/v1/runs", &token).await.ok();
    assert_eq!(first["runs"], json!([]));
    let next = first["nextCursor"].as_str().expect("the scan is not at the end");
    let second = guarded.get(&format!("/v1/runs?cursor={next}"), &token).await.ok();
    assert_eq!((&second["runs"][0]["runId"], &second["nextCursor"]), (&json!("the-oldest"), &Value::Null));
}

#[tokio::test]
async fn facts_stay_in_the_runs_and_sessions_of_their_token() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    guarded.publish("loose", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let start = || [fact("run.started", json!({}))];
    let named = |session: &str| [fact("run.started", json!({ "sessionId": session }))];
    let of_session = token(&json!({ "sessions": ["t"], "can": ["publish", "read"] }));
    let refused = async |run: &str, query: &str, token: &str, facts: &[Value], missing: &str| {
        let problem = guarded.publish(run, query, token, facts).await.problem(403, "forbidden");
        assert_eq!(problem["missing"], missing, "{run} {query}");
    };
    // A new run, with its session in the query or in its first fact.
    guarded.publish("n1", "sessionId=t", &of_session, &start()).await.ok();
    guarded.publish("n2", "", &of_session, &named("t")).await.ok();
    guarded.publish("n2", "", &of_session, &start()).await.ok();
    guarded.publish("q", "", &of_session, &start()).await.ok();
    refused("n3", "", &of_session, &start(), "run").await;
    refused("n3", "", &of_session, &[], "run").await;
    refused("n3", "sessionId=s", &of_session, &start(), "session").await;
    refused("n3", "sessionId=t", &of_session, &named("s"), "session").await;
    // A token moves no run out of another session, and none that has no session.
    refused("r", "sessionId=t", &of_session, &named("t"), "run").await;
    refused("loose", "sessionId=t", &of_session, &named("t"), "run").await;
    refused("loose", "", &of_session, &[], "run").await;
    guarded.get("/v1/runs/n3", &admin()).await.problem(404, "no_such_run");
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok()["lastSequence"], 1);

    // A token for a run by name cannot move the run into any session.
    let of_run = token(&json!({ "runs": ["loose", "r", "n4"], "can": ["publish"] }));
    guarded.publish("n4", "", &of_run, &start()).await.ok();
    guarded.publish("r", "sessionId=s", &of_run, &named("s")).await.ok();
    let body = json!([fact("run.status", json!({})), fact("run.status", json!({ "sessionId": "t" }))]);
    let problem = guarded.post("/v1/runs/loose/facts", &of_run, &body).await.problem(403, "forbidden");
    assert_eq!((&problem["index"], &problem["missing"]), (&json!(1), &json!("session")));
    let headers = [("authorization", &*bearer(&of_run)), ("content-type", "application/x-ndjson")];
    let streamed = guarded.client.post("/v1/runs/loose/facts", &headers, to_ndjson(body.as_array().unwrap())).await;
    let problem = streamed.problem(403, "forbidden");
    assert_eq!((&problem["line"], &problem["accepted"]), (&json!(2), &json!(1)));
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok()["lastSequence"], 2);
    guarded.post("/v1/sessions/s/facts", &of_run, &json!(start())).await.problem(403, "forbidden");
    // The server undoes what a rejected fact changed in the adapter.
    guarded.publish("loose", "", &of_run, &[fact("text.delta", json!({ "payload": { "text": "x" } }))]).await.ok();
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok().get("sessionId"), None);
}

#[tokio::test]
async fn a_session_gets_only_a_parent_that_the_token_covers() {
    let guarded = AuthServer::start().await;
    let worker = token(&json!({ "sessions": ["mine", "also-mine"], "can": ["publish", "read"] }));
    let start = |members: Value| [fact("run.started", members)];
    guarded.publish("theirs", "sessionId=theirs", &admin(), &start(json!({}))).await.ok();
    guarded.publish("old", "sessionId=mine", &worker, &start(json!({}))).await.ok();
    let with_parent = |parent: &str| start(json!({ "sessionId": "mine", "parentSessionId": parent }));
    let refused = async |run: &str, query: &str, facts: &[Value]| {
        let problem = guarded.publish(run, query, &worker, facts).await.problem(403, "forbidden");
        assert_eq!(problem["missing"], "session", "{run} {query}");
    };
    for run in ["new", "old"] {
        refused(run, "", &with_parent("theirs")).await;
        refused(run, "sessionId=mine&parentSessionId=theirs", &start(json!({}))).await;
        let later = [&start(json!({ "sessionId": "mine" }))[..], &with_parent("theirs")].concat();
        refused(run, "", &later).await;
    }
    // The same name, written with an escape.
    let escaped = r#"[{"type":"run.started","sessionId":"mine","parentSession\u0049d":"theirs"}]"#;
    let headers = [("authorization", &*bearer(&worker)), ("content-type", "application/json")];
    guarded.client.post("/v1/runs/old/facts", &headers, escaped).await.problem(403, "forbidden");
    let of_log = json!(start(json!({ "parentSessionId": "theirs" })));
    guarded.post("/v1/sessions/mine/facts", &worker, &of_log).await.problem(403, "forbidden");
    assert_eq!(guarded.get("/v1/runs/old", &admin()).await.ok().get("parentSessionId"), None);
    guarded.publish("old", "", &worker, &with_parent("also-mine")).await.ok();
    assert_eq!(guarded.get("/v1/runs/old", &admin()).await.ok()["parentSessionId"], "also-mine");
    guarded.publish("new", "", &admin(), &with_parent("theirs")).await.ok();
}

#[tokio::test]
async fn a_reader_of_a_parent_session_gets_nothing_of_its_child_session() {
    let guarded = AuthServer::start().await;
    let message = |text: &str| fact("text.delta", json!({ "payload": { "text": text } }));
    guarded.publish("up", "sessionId=parent", &admin(), &[message("from above")]).await.ok();
    guarded.publish("down", "sessionId=child&parentSessionId=parent", &admin(), &[message("from below")]).await.ok();
    let path = "/v1/sessions/parent/stream?children=true&frames=events";
    let texts = async |token: &str, count: usize| {
        let mut stream = guarded.open_stream(Transport::Raw, path, token, None).await;
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(stream.next_frame().await.data["event"]["payload"]["text"].as_str().unwrap().to_owned());
        }
        texts
    };
    assert_eq!(texts(&reader(json!({ "sessions": ["parent", "child"] })), 2).await, ["from above", "from below"]);
    let only = reader(json!({ "sessions": ["parent"] }));
    guarded.publish("up", "", &admin(), &[message("again")]).await.ok();
    assert_eq!(texts(&only, 2).await, ["from above", "again"]);
    assert_eq!(guarded.get("/v1/sessions/parent", &only).await.ok()["children"], json!([]));
    assert_eq!(guarded.get("/v1/sessions/parent", &admin()).await.ok()["children"], json!(["child"]));
}

/// Reads up to the Error frame that ends a stream, and returns its problem.
async fn read_error(stream: &mut Sse) -> Value {
    let frame = with_timeout("an Error frame", async {
        loop {
            let frame = stream.next_frame().await;
            if frame.kind() == "Error" {
                return frame;
            }
        }
    })
    .await;
    crate::schema::assert_valid("frames.schema.json", &frame.data);
    assert_eq!(stream.next().await, None, "Error is the last frame");
    frame.data["problem"].clone()
}

#[tokio::test]
async fn streams_end_with_a_problem_when_their_token_expires_on_both_transports() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    write_example_runs(&guarded).await;
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let short = token_with_claims(&json!({ "sub": "user-1", "exp": now() + SHORT_TTL_S, "proscenium": here }));
    let mut streams = Vec::new();
    for via in TRANSPORTS {
        for path in ["/v1/runs/r/stream", "/v1/runs/never/stream?frames=events", "/v1/sessions/s/stream", "/v1/stream?runs=r,q"] {
            streams.push(guarded.open_stream(via, path, &short, None).await);
        }
        streams.push(guarded.open_stream(via, "/v1/sessions/never/stream", &short, None).await);
    }
    let mut lasting = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream?frames=events", &admin(), None).await;
    assert!(streams.iter().all(|stream| stream.status == 200));
    clock.expire_short_tokens();
    for stream in &mut streams {
        let problem = read_error(stream).await;
        assert_eq!(
            (&problem["status"], &problem["code"], &problem["reason"]),
            (&json!(401), &json!("unauthenticated"), &json!("expired"))
        );
    }
    for via in TRANSPORTS {
        assert_eq!(guarded.open_stream(via, "/v1/runs/r/stream", &short, None).await.status, 401);
    }
    lasting.next_frame().await;
    guarded.publish("r", "", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    assert!(lasting.read_all().await.iter().all(|frame| frame.kind() != "Error"));
}

#[tokio::test]
async fn a_revoked_token_and_a_removed_key_end_only_their_own_streams() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let (one, two) = ("1".repeat(32), "2".repeat(32));
    let oct = |kid: &str, secret: &str| {
        // 32 equal digits in base64url.
        let k = if secret.starts_with('1') {
            "MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE"
        } else {
            "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjI"
        };
        json!({ "kty": "oct", "kid": kid, "k": k })
    };
    replace_file(&guarded.file("jwks"), &json!({ "keys": [oct("one", &one), oct("two", &two)] }).to_string());
    let claims = |sub: &str| json!({ "sub": sub, "exp": now() + 3600, "proscenium": { "sessions": ["*"], "can": ["admin"] } });
    let of_one = signed(&one, &claims("anna"), Some("one"));
    let of_two = signed(&two, &claims("bob"), Some("two"));
    // Wait until the server has reloaded the file.
    with_timeout("a reload of the key set", async {
        while guarded.get("/v1/runs", &of_one).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut first = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream", &of_one, None).await;
    let mut second = guarded.open_stream(Transport::Hyper, "/v1/runs/r/stream", &of_two, None).await;
    let mut third = guarded.open_stream(Transport::Raw, "/v1/runs/r/stream?frames=events", &admin(), None).await;
    // A body in transit ends, too.
    let (lines_in, body) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(4);
    let body = reqwest::Body::wrap_stream(futures_util::stream::unfold(body, async |mut body| Some((body.recv().await?, body))));
    let headers = [("authorization", bearer(&of_two)), ("content-type", "application/x-ndjson".to_owned())];
    let client = guarded.client.clone();
    let sending = tokio::spawn(async move {
        client.post("/v1/runs/r/facts", &headers.each_ref().map(|(name, value)| (*name, &**value)), body).await
    });
    lines_in.send(Ok(to_ndjson(&[fact("text.delta", json!({ "payload": { "text": "streamed" } }))]))).await.unwrap();

    replace_file(&guarded.file("jwks"), &json!({ "keys": [oct("two", &two)] }).to_string());
    assert_eq!(read_error(&mut first).await["reason"], "key_removed");
    assert_eq!(guarded.get("/v1/runs", &of_one).await.problem(401, "unauthenticated")["code"], "unauthenticated");
    replace_file(&guarded.file("revoked"), "bob\n");
    assert_eq!(read_error(&mut second).await["reason"], "revoked");
    let cut = with_timeout("the rejection of the body", sending).await.unwrap().problem(401, "unauthenticated");
    assert_eq!((&cut["reason"], &cut["accepted"]), (&json!("revoked"), &json!(1)));
    guarded.publish("r", "", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    assert!(third.read_all().await.iter().all(|frame| frame.kind() != "Error"));
}

#[tokio::test]
async fn a_run_rewritten_in_another_session_is_hidden_from_readers_of_the_first() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let of_session = reader(json!({ "sessions": ["s"] }));
    let mut streams = Vec::new();
    for path in ["/v1/runs/r/stream?frames=events", "/v1/stream?runs=r&frames=events", "/v1/sessions/s/stream?frames=events"] {
        let mut stream = guarded.open_stream(Transport::Raw, path, &of_session, None).await;
        stream.next_frame().await;
        streams.push(stream);
    }
    let headers = bearer(&admin());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let erase = http.delete(format!("http://{}/v1/runs/r", guarded.client.at)).header("authorization", headers);
    assert_eq!(erase.send().await.unwrap().status(), 204);
    guarded.publish("r", "sessionId=t", &admin(), &[fact("text.delta", json!({ "payload": { "text": HIDDEN } }))]).await.ok();
    for stream in &mut streams[..2] {
        let error = read_error(stream).await;
        assert!(error["code"] == "erased" || error["missing"] == "run", "{error}");
        assert!(!String::from_utf8_lossy(&stream.bytes).contains(HIDDEN));
    }
    guarded.publish("s2", "sessionId=s", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    while streams[2].next_frame().await.data["runId"] != "s2" {}
    assert!(!String::from_utf8_lossy(&streams[2].bytes).contains(HIDDEN));
}

#[tokio::test]
async fn a_ticket_opens_one_stream_and_lets_the_same_reader_resume_it() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let dashboard = reader(json!({ "audience": "dashboard", "sessions": ["s"] }));
    let open = async |via, path: &str, resume: Option<&str>| {
        let socket = TcpStream::connect(guarded.client.at).await.unwrap();
        let headers: Vec<_> = resume.iter().map(|id| ("last-event-id", *id)).collect();
        Sse::open(socket, via, path, &headers).await
    };
    for via in TRANSPORTS {
        let ticket = guarded.ticket(&dashboard, json!({ "for": "stream", "run": "r", "ttlSeconds": 60 })).await;
        let path = format!("/v1/runs/r/stream?frames=events&ticket={ticket}");
        assert_eq!(open(via, &format!("/v1/runs/gone/stream?ticket={ticket}"), None).await.status, 403);
        // The rejected request has used up the ticket.
        assert_eq!(open(via, &path, None).await.status, 401);

        let ticket = guarded.ticket(&dashboard, json!({ "for": "stream", "run": "r" })).await;
        let path = format!("/v1/runs/r/stream?frames=events&audience=dashboard&ticket={ticket}");
        let mut first = open(via, &path, None).await;
        let frame = first.next_frame().await;
        assert_eq!(open(via, &path, None).await.status, 401, "a ticket is valid once");
        let mut again = open(via, &path, Some(frame.id())).await;
        assert_eq!(again.next_frame().await.sequence(), frame.sequence() + 1);
        assert_eq!(read_error(&mut first).await["reason"], "resumed_elsewhere");
        for elsewhere in ["/v1/runs/r", "/v1/runs/r/events", "/v1/runs"] {
            guarded.client.get(&format!("{elsewhere}?ticket={ticket}")).await.problem(401, "unauthenticated");
        }
        assert_eq!(open(via, &format!("{path}&x=1").replace("dashboard", "internal"), Some(frame.id())).await.status, 403);
    }
}

#[tokio::test]
async fn a_ticket_covers_only_something_that_its_token_permits() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let token = reader(json!({ "sessions": ["s"] }));
    let answer = guarded.post("/v1/tickets", &token, &json!({ "for": "stream", "session": "s", "ttlSeconds": 60 })).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let made = answer.ok();
    let expires: jiff::Timestamp = made["expiresAt"].as_str().unwrap().parse().unwrap();
    assert!((58..=60).contains(&(expires.as_second() - now())), "{made}");
    for (asked, status, code) in [
        (json!({ "for": "stream", "run": "q" }), 403, "forbidden"),
        (json!({ "for": "stream", "session": "t" }), 403, "forbidden"),
        (json!({ "for": "ws", "session": "t" }), 403, "forbidden"),
        (json!({ "for": "everything" }), 400, "bad_query"),
        (json!({}), 400, "bad_query"),
        (json!({ "for": "stream", "ttlSeconds": 61 }), 400, "bad_query"),
        (json!({ "for": "stream", "ttlSeconds": 0 }), 400, "bad_query"),
        (json!({ "for": "stream", "run": "r", "session": "s" }), 400, "bad_query"),
        (json!({ "for": "stream", "run": "" }), 400, "bad_id"),
        (json!({ "for": "stream", "audience": "internal" }), 400, "bad_query"),
        (json!([]), 400, "not_json"),
    ] {
        guarded.post("/v1/tickets", &token, &asked).await.problem(status, code);
    }
    // A server without authentication issues tickets, too.
    let open = crate::harness::start_local().await;
    let made = open.post("/v1/tickets", &[], r#"{"for":"ws"}"#).await.ok();
    assert!(made["ticket"].is_string() && made["expiresAt"].is_string());
}

/// A client's WebSocket.
struct Ws(WebSocketStream<TcpStream>);

impl Ws {
    async fn connect(client: &Client, query: &str, headers: &[(&str, &str)]) -> Result<Self, Error> {
        let mut request = http::Request::get(format!("ws://{}/v1/ws{query}", client.at))
            .header("host", client.at.to_string())
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let socket = TcpStream::connect(client.at).await.unwrap();
        let request = request.body(()).unwrap();
        with_timeout("a handshake", tokio_tungstenite::client_async(request, socket)).await.map(|(socket, _)| Self(socket))
    }

    async fn open(client: &Client) -> Self {
        Self::connect(client, "", &[]).await.unwrap()
    }

    async fn send(&mut self, message: Value) {
        with_timeout("the sending of a message", self.0.send(Message::text(message.to_string()))).await.unwrap();
    }

    /// Receives the next message, or the code of the close.
    async fn receive(&mut self) -> Result<Value, u16> {
        loop {
            match with_timeout("a message", self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return Ok(serde_json::from_str(&text).unwrap()),
                Message::Close(close) => return Err(close.unwrap().code.into()),
                _ => {}
            }
        }
    }

    /// Sends a message and returns its answer; drops frames before it.
    async fn request(&mut self, message: Value) -> Value {
        self.send(message).await;
        loop {
            let message = self.receive().await.unwrap();
            if message.get("op").is_some() {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn a_websocket_must_authenticate_and_every_message_is_authorized() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let client = &guarded.client;
    let token = token(&json!({ "sessions": ["t"], "runs": ["mine"], "can": ["read", "publish"] }));

    for message in [json!({ "op": "subscribe", "id": 1, "run": "q" }), json!({ "op": "ping" }), json!("?")] {
        let mut ws = Ws::open(client).await;
        ws.send(message).await;
        let refused = ws.receive().await.unwrap();
        assert!(refused["code"] == "unauthenticated" || refused["code"] == "not_an_object", "{refused}");
        if refused["code"] == "unauthenticated" {
            assert_eq!(ws.receive().await, Err(4401));
        }
    }
    let mut ws = Ws::open(client).await;
    assert_eq!(ws.request(json!({ "op": "auth", "id": 1, "token": "a.b.c" })).await["code"], "unauthenticated");
    assert_eq!(ws.receive().await, Err(4401));

    let mut ws = Ws::open(client).await;
    let known = ws.request(json!({ "op": "auth", "id": "me", "token": token })).await;
    assert_eq!((&known["op"], &known["id"], &known["audience"]), (&json!("authenticated"), &json!("me"), &json!("user")));
    let subscribed = ws.request(json!({ "op": "subscribe", "id": "q", "run": "q" })).await;
    assert_eq!(subscribed["op"], "subscribed");
    for (message, missing) in [
        (json!({ "op": "subscribe", "id": 1, "run": "r" }), "run"),
        (json!({ "op": "subscribe", "id": 1, "run": "abcde" }), "run"),
        (json!({ "op": "subscribe", "id": 1, "session": "s" }), "session"),
        (json!({ "op": "subscribe", "id": 1, "run": "q", "audience": "internal" }), "audience:internal"),
        (json!({ "op": "publish", "id": 1, "runId": "r", "facts": [fact("run.status", json!({}))] }), "run"),
        (json!({ "op": "publish", "id": 1, "sessionId": "s", "facts": [fact("run.status", json!({}))] }), "session"),
        (
            json!({ "op": "publish", "id": 1, "runId": "mine", "facts": [fact("run.started", json!({ "sessionId": "s" }))] }),
            "session",
        ),
    ] {
        let refused = ws.request(message.clone()).await;
        assert_eq!((&refused["code"], &refused["missing"]), (&json!("forbidden"), &json!(missing)), "{message}");
    }
    let ack = ws.request(json!({ "op": "publish", "id": 2, "runId": "mine", "facts": [fact("run.started", json!({}))] })).await;
    assert_eq!(ack["op"], "ack");
    let only_reads = reader(json!({ "sessions": ["t"], "runs": ["mine"] }));
    assert_eq!(ws.request(json!({ "op": "auth", "id": 3, "token": only_reads })).await["code"], "forbidden");

    for headers in [[("authorization", bearer("a.b.c"))], [("authorization", "Basic YTpi".to_owned())]] {
        let headers = headers.each_ref().map(|(name, value)| (*name, &**value));
        match Ws::connect(client, "", &headers).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status(), 401),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
    let header = bearer(&token);
    let mut by_header = Ws::connect(client, "", &[("authorization", &header)]).await.unwrap();
    assert_eq!(by_header.request(json!({ "op": "ping", "id": 1 })).await["op"], "pong");
    let ticket = guarded.ticket(&token, json!({ "for": "ws", "run": "q" })).await;
    let mut by_ticket = Ws::connect(client, &format!("?ticket={ticket}"), &[]).await.unwrap();
    assert_eq!(by_ticket.request(json!({ "op": "subscribe", "id": 1, "run": "q" })).await["op"], "subscribed");
    assert_eq!(by_ticket.request(json!({ "op": "subscribe", "id": 2, "run": "mine" })).await["missing"], "run");
    assert!(Ws::connect(client, &format!("?ticket={ticket}"), &[]).await.is_err(), "a ticket is valid once");
}

#[tokio::test]
async fn a_websocket_that_does_not_authenticate_in_time_is_closed() {
    let guarded = AuthServer::start().await;
    let mut ws = Ws::open(&guarded.client).await;
    assert_eq!(ws.receive().await.unwrap()["code"], "unauthenticated");
    assert_eq!(ws.receive().await, Err(4401));
}

#[tokio::test]
async fn a_websocket_that_sends_too_much_before_authentication_is_closed() {
    let guarded = AuthServer::start().await;
    let mut ws = Ws::open(&guarded.client).await;
    let large = json!({ "op": "auth", "token": "x".repeat(1024 * 1024) });
    let _ = with_timeout("the close", ws.0.send(Message::text(large.to_string()))).await;
    let received = with_timeout("the end", async {
        loop {
            match ws.0.next().await {
                Some(Ok(Message::Text(text))) => return Some(text.to_string()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    })
    .await;
    assert_eq!(received, None);
}

#[tokio::test]
async fn a_websocket_ends_with_its_token_unless_it_presents_another_in_time() {
    let clock = test_clock!();
    let guarded = AuthServer::start_with_clock(clock).await;
    write_example_runs(&guarded).await;
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let until = |seconds: i64| token_with_claims(&json!({ "sub": "user-1", "exp": now() + seconds, "proscenium": here }));
    let (mut ends, mut lasts) = (Ws::open(&guarded.client).await, Ws::open(&guarded.client).await);
    for ws in [&mut ends, &mut lasts] {
        assert_eq!(ws.request(json!({ "op": "auth", "token": until(SHORT_TTL_S) })).await["op"], "authenticated");
        assert_eq!(
            ws.request(json!({ "op": "subscribe", "id": 1, "run": "never", "frames": "events" })).await["op"],
            "subscribed"
        );
    }
    let stranger =
        token_with_claims(&json!({ "sub": "else", "exp": now() + 3600, "proscenium": { "sessions": ["*"], "can": ["admin"] } }));
    assert_eq!(lasts.request(json!({ "op": "auth", "id": 2, "token": stranger })).await["code"], "forbidden");
    assert_eq!(lasts.request(json!({ "op": "auth", "token": until(3600) })).await["op"], "authenticated");
    clock.expire_short_tokens();
    let problem = ends.receive().await.unwrap();
    assert_eq!(
        (&problem["op"], &problem["code"], &problem["reason"]),
        (&json!("error"), &json!("unauthenticated"), &json!("expired"))
    );
    assert_eq!(ends.receive().await, Err(4401));
    guarded.publish("never", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    assert_eq!(lasts.receive().await.unwrap()["frame"], "Event");
}

#[tokio::test]
async fn a_page_of_another_origin_is_rejected_unless_its_origin_is_allowed() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let client = &guarded.client;
    let own = format!("http://{}", client.at);
    let admin = bearer(&admin());
    let fact = r#"{"type":"text.delta","payload":{"text":"x"}}"#;
    // A browser sends a request without a content type without a preflight.
    let send = async |headers: &[(&str, &str)]| {
        let mut all = vec![("authorization", &*admin)];
        all.extend(headers);
        client.post("/v1/runs/r/facts", &all, fact).await
    };
    for foreign in
        ["http://evil.example", "null", "http://localhost:1", "https://app.example.evil.example", "https://app.example:444"]
    {
        let refused = send(&[("origin", foreign)]).await;
        assert!(!refused.headers.contains_key("access-control-allow-origin"));
        refused.problem(403, "foreign_origin");
        for path in ["/v1/runs/r", "/v1/runs/r/stream", "/healthz"] {
            client.get_with(path, &[("origin", foreign), ("authorization", &admin)]).await.problem(403, "foreign_origin");
        }
        let sub = Ws::connect(client, "", &[("origin", foreign), ("authorization", &admin)]).await;
        assert!(matches!(sub.err(), Some(Error::Http(answer)) if answer.status() == 403), "{foreign}");
    }
    for site in ["cross-site", "same-site", "nonsense"] {
        send(&[("sec-fetch-site", site)]).await.problem(403, "foreign_origin");
        assert_eq!(client.get_with("/", &[("sec-fetch-site", site)]).await.status, 200, "a link may lead to the page");
    }
    for site in ["same-origin", "none"] {
        send(&[("sec-fetch-site", site)]).await.ok();
    }
    let ours = send(&[("origin", &own), ("sec-fetch-site", "same-origin")]).await;
    assert!(!ours.headers.contains_key("access-control-allow-origin"));
    ours.ok();

    let friend = send(&[("origin", FRIEND), ("sec-fetch-site", "cross-site")]).await;
    assert_eq!(
        (&friend.headers["access-control-allow-origin"], &friend.headers["vary"]),
        (&FRIEND.parse().unwrap(), &"Origin".parse().unwrap())
    );
    assert_eq!(friend.headers["access-control-allow-credentials"], "true");
    friend.ok();
    let refused = client.get_with("/v1/runs/r", &[("origin", FRIEND)]).await;
    assert_eq!(refused.headers["access-control-allow-origin"], FRIEND, "an allowed page may read the problem");
    refused.problem(401, "unauthenticated");
    assert!(Ws::connect(client, "", &[("origin", FRIEND), ("authorization", &admin)]).await.is_ok());
    let socket = TcpStream::connect(client.at).await.unwrap();
    let mut stream =
        Sse::open(socket, Transport::Raw, "/v1/runs/r/stream", &[("origin", FRIEND), ("authorization", &admin)]).await;
    assert_eq!((stream.status, &*stream.headers["access-control-allow-origin"]), (200, FRIEND));
    stream.next_frame().await;
}

/// Sends the preflight that a browser sends before a page's request.
async fn preflight(client: &Client, origin: &str) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    let request = format!(
        "OPTIONS /v1/runs/r/facts HTTP/1.1\r\nhost: {}\r\norigin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\nconnection: close\r\n\r\n",
        client.at
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut message = String::new();
    with_timeout("an answer", socket.read_to_string(&mut message)).await.unwrap();
    message
}

#[tokio::test]
async fn a_preflight_states_what_a_page_may_send() {
    let guarded = AuthServer::start().await;
    let texts = preflight(&guarded.client, FRIEND).await;
    assert!(texts.starts_with("HTTP/1.1 204 "), "{texts}");
    for header in [
        "access-control-allow-origin: https://app.example\r\n",
        "access-control-allow-credentials: true\r\n",
        "access-control-allow-methods: GET, POST, PUT, PATCH, DELETE\r\n",
        "authorization, content-type, last-event-id",
        "vary: Origin\r\n",
    ] {
        assert!(texts.contains(header), "{header}: {texts}");
    }
    let texts = preflight(&guarded.client, "https://evil.example").await;
    assert!(texts.starts_with("HTTP/1.1 403 ") && !texts.contains("access-control-"), "{texts}");
    let texts = preflight(&crate::harness::start_local().await, FRIEND).await;
    assert!(texts.starts_with("HTTP/1.1 403 ") && !texts.contains("access-control-"), "no origin is allowed by default: {texts}");
}

#[tokio::test]
async fn the_page_is_served_with_restrictive_security_headers() {
    let page = crate::harness::start_local().await.get("/").await;
    for (header, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(page.headers[header], value);
    }
}

#[tokio::test]
async fn without_authentication_every_request_is_allowed_and_tokens_are_ignored() {
    let client = crate::harness::start_local().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    for header in ["Bearer nonsense", "Basic YTpi"] {
        client.get_with("/v1/runs/r?audience=internal", &[("authorization", header)]).await.ok();
    }
    assert_eq!(client.open_stream(Transport::Raw, "r", "audience=internal&ticket=none", None).await.status, 200);
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
}

#[test]
fn the_token_command_makes_tokens_that_the_other_commands_accept() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    let make = |arguments: &[&str]| {
        let made = crate::cli::run(crate::cli::proscenium(&["token", "--key"]).arg(&secret).args(arguments));
        (made.status.code(), crate::cli::stdout(&made).trim().to_owned(), crate::cli::stderr(&made))
    };
    let (code, _, why) = make(&["--can", "read"]);
    assert!(code == Some(1) && why.contains("grants access to nothing"), "{why}");
    let (code, all, texts) = make(&["--generate", "--sessions", "*", "--can", "read,publish", "--audience", "internal"]);
    assert_eq!((code, all.split('.').count(), all.lines().count()), (Some(0), 3, 1), "{texts}");
    assert!(texts.contains("--auth-key"), "{texts}");
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (code, none, why) = make(&["--generate", "--sessions", "*"]);
    assert!(code == Some(1) && none.is_empty() && why.contains("exists"), "the command overwrites no key: {why}");
    let (_, user, _) = make(&["--runs", "copy", "--ttl", "5m"]);

    let server = Process::start_with(dir.path(), &["--auth-key", secret.to_str().unwrap()]);
    let url = format!("http://{}", server.at);
    let file = dir.path().join("run.ndjson");
    std::fs::write(&file, "{\"type\":\"run.started\"}\n{\"type\":\"text.delta\",\"payload\":{\"text\":\"for users\"}}\n{\"type\":\"run.finished\"}\n").unwrap();
    let run = |token: &str, arguments: &[&str]| {
        let done = crate::cli::run(crate::cli::proscenium(arguments).args(["--url", &url]).env("PROSCENIUM_TOKEN", token));
        (done.status.code(), crate::cli::stdout(&done), crate::cli::stderr(&done))
    };
    let import = ["import", file.to_str().unwrap(), "--run", "copy"];
    for token in ["", "a.b.c"] {
        let (code, _, why) = run(token, &import);
        assert!(code == Some(1) && why.contains("unauthenticated"), "{why}");
    }
    let (_, _, why) = run(&user, &import);
    assert!(why.contains("forbidden") && why.contains("publish"), "{why}");
    assert_eq!(run(&all, &import).0, Some(0));
    assert!(run(&all, &["export", "copy"]).1.contains("for users"));
    let (code, _, why) = run(&user, &["export", "copy"]);
    assert!(code == Some(1) && why.contains("The audience internal is wider"), "{why}");
    assert!(run(&user, &["export", "copy", "--audience", "user"]).1.contains("for users"));
    assert!(run(&user, &["tail", "copy"]).1.contains("for users"));
    let (code, shown, why) = run(&all, &["check", "copy"]);
    assert_eq!(code, Some(0), "{shown}{why}");
    let help = crate::cli::run(crate::cli::proscenium(&["tail", "--help"]).env("PROSCENIUM_TOKEN", &all));
    assert!(!crate::cli::stdout(&help).contains(&all), "help does not show the token");
}

#[tokio::test]
async fn the_token_command_signs_with_other_keys_and_the_server_rejects_private_ones() {
    for kind in ["ed25519", "rsa", "p256"] {
        let key = |half: &str| repository(&format!("tests/keys/{kind}.{half}.pem"));
        let made = crate::cli::run(crate::cli::proscenium(&["token", "--sessions", "*", "--key"]).arg(key("private")));
        let token = crate::cli::stdout(&made).trim().to_owned();
        let dir = tempfile::tempdir().unwrap();
        let server = Process::start_with(dir.path(), &["--auth-key", key("public").to_str().unwrap()]);
        let client = Client::new(server.at);
        client.get_with("/v1/runs", &[("authorization", &bearer(&token))]).await.ok();
        client.get("/v1/runs").await.problem(401, "unauthenticated");
        let refused = crate::cli::run(crate::cli::proscenium(&["serve", "--store", "memory", "--auth-key"]).arg(key("private")));
        assert!(refused.status.code() == Some(1) && crate::cli::stderr(&refused).contains("private key"));
    }
}

#[tokio::test]
async fn a_token_gets_no_counts_of_descendant_sessions_that_it_does_not_name() {
    let guarded = AuthServer::start().await;
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "kind": "tool_approval" } }));
    for (run, session, parent) in [("r", "s", "none"), ("k", "kid", "s"), ("g", "grandkid", "kid")] {
        let ids = format!("sessionId={session}&parentSessionId={parent}");
        guarded.publish(run, &ids, &admin(), std::slice::from_ref(&asks)).await.ok();
    }
    let below = async |token: &str| {
        let list = guarded.get("/v1/sessions", token).await.ok();
        let line = list["sessions"].as_array().unwrap().iter().find(|line| line["sessionId"] == "s").unwrap()["counts"].clone();
        assert_eq!(guarded.get("/v1/sessions/s", token).await.ok()["counts"], line, "the list and the session agree");
        [line["pendingActions"].as_u64().unwrap(), line["pendingActionsBelow"].as_u64().unwrap()]
    };
    assert_eq!(below(&admin()).await, [3, 2]);
    assert_eq!(below(&reader(json!({ "sessions": ["s"] }))).await, [1, 0]);
    assert_eq!(below(&reader(json!({ "sessions": ["s", "grandkid", "s"] }))).await, [2, 1]);
}

#[tokio::test]
async fn no_log_line_contains_a_token_or_a_ticket() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_proscenium"))
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "trace", "--auth-key"])
        .arg(&secret)
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let logging = std::thread::spawn(move || {
        let mut log = String::new();
        stderr.read_to_string(&mut log).unwrap();
        log
    });
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let client = Client::new(line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap());

    let forged = signed(OTHER_SECRET, &json!({ "sub": "forger", "exp": now() + 3600 }), None);
    let expired = token_with_claims(&json!({ "sub": "late", "exp": now() - 1 }));
    let mut message = vec![admin(), forged, expired, "not-even-a-token-but-secret".to_owned()];
    for token in message.clone() {
        let header = bearer(&token);
        let headers = [("authorization", &*header), ("content-type", "application/json")];
        for path in ["/v1/runs", "/v1/runs/r", "/v1/nowhere", "/v1/runs/r/stream?format=x"] {
            client.get_with(path, &headers).await;
        }
        client.post("/v1/runs/r/facts", &headers, r#"{"type":"run.finished"}"#).await;
        client.post("/v1/runs/r/facts", &headers, "nonsense").await;
        client.delete(&format!("/v1/runs/r?ticket={token}")).await;
        client.get(&format!("/v1/runs/r/stream?ticket={token}")).await;
        let _ = Ws::connect(&client, &format!("?ticket={token}"), &[]).await;
        let mut ws = Ws::open(&client).await;
        ws.send(json!({ "op": "auth", "token": token })).await;
        let _ = ws.receive().await;
        let _ = Ws::connect(&client, "", &headers[..1]).await;
        let made = client.post("/v1/tickets", &headers, r#"{"for":"stream"}"#).await;
        if let Some(ticket) = made.json()["ticket"].as_str() {
            client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await;
            client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await.problem(401, "unauthenticated");
            message.push(ticket.to_owned());
        }
    }
    assert_eq!(message.len(), 5, "a ticket exists");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let log = logging.join().unwrap();
    assert!(log.contains("TRACE"), "lines of the log crate are missing: {log}");
    for secret in message.iter().map(String::as_str).chain([SECRET]) {
        assert!(!log.contains(secret), "{secret} is in the log");
        // Nor does the log contain its signature alone.
        assert!(!log.contains(secret.rsplit('.').next().unwrap()), "a part of {secret} is in the log");
    }
}
