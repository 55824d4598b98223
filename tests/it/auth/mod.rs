//! Who may: every address under every kind of token, what is open when a token is over, tickets, and pages of other origins.

mod agents;
mod ends;
mod hosts;
mod matrix;
mod shares;
mod talks;

use crate::harness::{BOTH, Client, Process, Sse, Via, fact, lines, repository, serve_it, soon, world};
use futures_util::{SinkExt, StreamExt};
use proscenium::auth::keys::Signing;
use proscenium::auth::{Authority, Setup};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::memory::MemoryStore;
use proscenium::serve::origin::Origins;
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::{Error, Message};

const SECRET: &str = "a secret of the tests, of more than thirty-two bytes";
const OTHER_SECRET: &str = "another secret of the tests, of more than 32 bytes";
const FRIEND: &str = "https://app.example";
/// How long a token lasts that ends while it is used, in seconds: long enough to be used first, on a busy machine, too.
const SOON_OVER: i64 = 8;

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A token by the secret: for an hour, of whoever this says.
fn token(here: &Value) -> String {
    token_of(&json!({ "sub": "somebody", "exp": now() + 3600, "proscenium": here }))
}

fn token_of(claims: &Value) -> String {
    signed(SECRET, claims, None)
}

fn signed(key: &str, claims: &Value, kid: Option<&str>) -> String {
    Signing::of_file(key.as_bytes()).unwrap().sign(claims, kid).unwrap()
}

/// Everything, of every audience.
fn admin() -> String {
    token(&json!({ "audience": "internal", "sessions": ["*"], "agents": ["*"], "can": ["admin"] }))
}

fn reader(more: Value) -> String {
    let mut here = json!({ "can": ["read"] });
    here.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    token(&here)
}

/// A server that asks, and its files.
struct Guarded {
    client: Client,
    dir: TempDir,
}

impl Guarded {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        Self::made(change, Limits::default()).await
    }

    /// One with these limits.
    async fn limited(limits: Limits) -> Self {
        Self::made(|_| {}, limits).await
    }

    async fn made(change: impl FnOnce(&mut Setup), limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, SECRET).unwrap();
        let mut setup = Setup { key: Some(key), service: "proscenium".into(), ..Setup::default() };
        for (name, file) in [("jwks", &mut setup.jwks), ("revoked", &mut setup.revoked)] {
            *file = Some(dir.path().join(name));
        }
        place(&dir.path().join("jwks"), r#"{"keys":[]}"#);
        place(&dir.path().join("revoked"), "");
        change(&mut setup);
        let world = world(jiff::Timestamp::now);
        let authority = Authority::open(setup, world).unwrap();
        let (policy, pulse) = (Policy { inline_bytes_max: 1024 }, Pulse::default());
        let store = AnyStore::Memory(MemoryStore::new());
        let server = Server::new(store, policy, Sizes::default(), limits, pulse, world).unwrap();
        let server = server.asking(authority, Origins::new([FRIEND]).unwrap());
        let (client, _) = serve_it(server, std::future::pending()).await;
        Self { client, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn get(&self, path: &str, token: &str) -> crate::harness::Answer {
        self.client.get_with(path, &[("authorization", &bearer(token))]).await
    }

    async fn post(&self, path: &str, token: &str, body: &Value) -> crate::harness::Answer {
        let headers = [("authorization", &*bearer(token)), ("content-type", "application/json")];
        self.client.post(path, &headers, body.to_string()).await
    }

    async fn publish(&self, run: &str, query: &str, token: &str, facts: &[Value]) -> crate::harness::Answer {
        self.post(&format!("/v1/runs/{run}/facts?{query}"), token, &json!(facts)).await
    }

    async fn stream(&self, via: Via, path: &str, token: &str, resume: Option<&str>) -> Sse {
        let socket = soon("a connection", TcpStream::connect(self.client.at)).await.unwrap();
        let bearer = bearer(token);
        let mut headers = vec![("authorization", &*bearer)];
        headers.extend(resume.map(|id| ("last-event-id", id)));
        Sse::ask(socket, via, path, &headers).await
    }

    async fn ticket(&self, token: &str, asked: Value) -> String {
        self.post("/v1/tickets", token, &asked).await.ok()["ticket"].as_str().unwrap().to_owned()
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Another file takes the place of this one.
fn place(path: &Path, text: &str) {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(path).unwrap();
}

/// What only internal readers may see, and what only those of session `s`.
const HIDDEN: &str = "xyzzy-internal";
const OWN: &str = "plugh-own";

/// A run `r` of session `s`, whose facts are of every audience, with a body of each; and a run `q` of session `t`.
async fn filled(guarded: &Guarded) -> [String; 2] {
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
    guarded.publish("r", "sessionId=s", &admin(), &facts).await.ok();
    guarded.publish("q", "sessionId=t", &admin(), &[fact("run.started", json!({}))]).await.ok();
    guarded.publish("gone", "sessionId=s", &admin(), &[fact("run.started", json!({}))]).await.ok();
    guarded.post("/v1/sessions/s/facts", &admin(), &json!([fact("session.opened", json!({}))])).await.ok();
    let events = guarded.get("/v1/runs/r/events?audience=internal", &admin()).await.ok();
    ["c", "d"].map(|call| {
        let result = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .find(|event| event["type"] == "tool.result" && event["toolCallId"] == call);
        result.unwrap()["refs"][0]["href"].as_str().expect("it was moved out").to_owned()
    })
}

#[tokio::test]
async fn what_is_not_had_answers_the_same_whether_it_is_there_or_not() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    guarded.publish("loose", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let token = token(&json!({ "sessions": ["t"], "runs": ["mine"], "can": ["admin"] }));
    for rest in ["", "/events", "/activities", "/export", "/stream"] {
        // In another session, in none, and not there.
        let answers = ["r", "loose", "abcde"].map(|run| (run, format!("/v1/runs/{run}{rest}")));
        let mut told = Vec::new();
        for (run, path) in answers {
            let answer = guarded.get(&path, &token).await;
            // Each has an id of its own, which says nothing of what was asked.
            let mut problem = answer.json();
            problem.as_object_mut().unwrap().remove("requestId");
            told.push((answer.status, problem.to_string().replace(&format!("run {run}:"), "run *:")));
        }
        assert_eq!(told[0].0, 403);
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:#?}");
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
async fn lists_show_what_may_be_seen_page_by_page_and_nothing_twice() {
    let guarded = Guarded::start().await;
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
            assert_eq!(pages, expected.len().div_ceil(limit), "no page is empty where little is looked at");
        }
    }
    let all = guarded.get("/v1/runs?limit=1000", &admin()).await.ok();
    assert_eq!(all["runs"].as_array().unwrap().len(), 60);
    let only_runs = reader(json!({ "runs": ["*"] }));
    assert_eq!(guarded.get("/v1/runs", &only_runs).await.ok()["runs"].as_array().unwrap().len(), 60);
    assert_eq!(guarded.get("/v1/sessions", &only_runs).await.ok()["sessions"], json!([]));
}

#[tokio::test]
async fn a_list_that_has_to_look_far_says_where_it_has_got_to() {
    let guarded = Guarded::start().await;
    let token = reader(json!({ "runs": ["the-oldest"] }));
    guarded.publish("the-oldest", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    let admin = bearer(&admin());
    let mut ws = Ws::connect(&guarded.client, "", &[("authorization", &admin)]).await.unwrap();
    for many in (0..5000).collect::<Vec<_>>().chunks(50) {
        for n in many {
            ws.say(json!({ "op": "publish", "id": n, "runId": format!("r{n}"), "facts": [fact("run.started", json!({}))] }))
                .await;
        }
        for _ in many {
            assert_eq!(ws.hear().await.unwrap()["op"], "ack");
        }
    }
    let first = guarded.get("/v1/runs", &token).await.ok();
    assert_eq!(first["runs"], json!([]));
    let next = first["nextCursor"].as_str().expect("it is not at the end");
    let second = guarded.get(&format!("/v1/runs?cursor={next}"), &token).await.ok();
    assert_eq!((&second["runs"][0]["runId"], &second["nextCursor"]), (&json!("the-oldest"), &Value::Null));
}

#[tokio::test]
async fn facts_stay_in_the_runs_and_sessions_of_who_sends_them() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
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
    // Nobody takes a run out of another session, or one that is in none.
    refused("r", "sessionId=t", &of_session, &named("t"), "run").await;
    refused("loose", "sessionId=t", &of_session, &named("t"), "run").await;
    refused("loose", "", &of_session, &[], "run").await;
    guarded.get("/v1/runs/n3", &admin()).await.problem(404, "no_such_run");
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok()["lastSequence"], 1);

    // Who has a run by its name may not bring it anywhere else.
    let of_run = token(&json!({ "runs": ["loose", "r", "n4"], "can": ["publish"] }));
    guarded.publish("n4", "", &of_run, &start()).await.ok();
    guarded.publish("r", "sessionId=s", &of_run, &named("s")).await.ok();
    let body = json!([fact("run.status", json!({})), fact("run.status", json!({ "sessionId": "t" }))]);
    let problem = guarded.post("/v1/runs/loose/facts", &of_run, &body).await.problem(403, "forbidden");
    assert_eq!((&problem["index"], &problem["missing"]), (&json!(1), &json!("session")));
    let headers = [("authorization", &*bearer(&of_run)), ("content-type", "application/x-ndjson")];
    let streamed = guarded.client.post("/v1/runs/loose/facts", &headers, lines(body.as_array().unwrap())).await;
    let problem = streamed.problem(403, "forbidden");
    assert_eq!((&problem["line"], &problem["accepted"]), (&json!(2), &json!(1)));
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok()["lastSequence"], 2);
    guarded.post("/v1/sessions/s/facts", &of_run, &json!(start())).await.problem(403, "forbidden");
    // And what a refused fact did to the adapter is undone.
    guarded.publish("loose", "", &of_run, &[fact("text.delta", json!({ "payload": { "text": "x" } }))]).await.ok();
    assert_eq!(guarded.get("/v1/runs/loose", &admin()).await.ok().get("sessionId"), None);
}

#[tokio::test]
async fn what_a_child_session_says_is_not_heard_by_who_has_only_its_parent() {
    let guarded = Guarded::start().await;
    let said = |text: &str| fact("text.delta", json!({ "payload": { "text": text } }));
    guarded.publish("up", "sessionId=parent", &admin(), &[said("from above")]).await.ok();
    guarded.publish("down", "sessionId=child&parentSessionId=parent", &admin(), &[said("from below")]).await.ok();
    let path = "/v1/sessions/parent/stream?children=true&frames=events";
    let told = async |token: &str, count: usize| {
        let mut stream = guarded.stream(Via::Raw, path, token, None).await;
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(stream.frame().await.data["event"]["payload"]["text"].as_str().unwrap().to_owned());
        }
        texts
    };
    assert_eq!(told(&reader(json!({ "sessions": ["parent", "child"] })), 2).await, ["from above", "from below"]);
    let only = reader(json!({ "sessions": ["parent"] }));
    guarded.publish("up", "", &admin(), &[said("again")]).await.ok();
    assert_eq!(told(&only, 2).await, ["from above", "again"]);
    assert_eq!(guarded.get("/v1/sessions/parent", &only).await.ok()["children"], json!([]));
    assert_eq!(guarded.get("/v1/sessions/parent", &admin()).await.ok()["children"], json!(["child"]));
}

/// The problem in a stream's last frame, which has to come, whatever frames and heartbeats come before it.
async fn last_words(stream: &mut Sse) -> Value {
    let frame = soon("an Error frame", async {
        loop {
            let frame = stream.frame().await;
            if frame.kind() == "Error" {
                return frame;
            }
        }
    })
    .await;
    crate::schema::assert_valid("frames.schema.json", &frame.data);
    assert_eq!(stream.next().await, None, "nothing follows");
    frame.data["problem"].clone()
}

#[tokio::test]
async fn streams_end_with_their_token_in_words_on_both_carriers() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let short = token_of(&json!({ "sub": "somebody", "exp": now() + SOON_OVER, "proscenium": here }));
    let mut streams = Vec::new();
    for via in BOTH {
        for path in ["/v1/runs/r/stream", "/v1/runs/never/stream?frames=events", "/v1/sessions/s/stream", "/v1/stream?runs=r,q"] {
            streams.push(guarded.stream(via, path, &short, None).await);
        }
        streams.push(guarded.stream(via, "/v1/sessions/never/stream", &short, None).await);
    }
    let mut lasting = guarded.stream(Via::Raw, "/v1/runs/r/stream?frames=events", &admin(), None).await;
    for stream in &mut streams {
        assert_eq!(stream.status, 200);
        let problem = last_words(stream).await;
        assert_eq!(
            (&problem["status"], &problem["code"], &problem["reason"]),
            (&json!(401), &json!("unauthenticated"), &json!("expired"))
        );
    }
    for via in BOTH {
        assert_eq!(guarded.stream(via, "/v1/runs/r/stream", &short, None).await.status, 401);
    }
    lasting.frame().await;
    guarded.publish("r", "", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    assert!(lasting.all().await.iter().all(|frame| frame.kind() != "Error"));
}

#[tokio::test]
async fn who_is_revoked_and_whose_key_is_gone_is_cut_off_and_nobody_else() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
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
    place(&guarded.file("jwks"), &json!({ "keys": [oct("one", &one), oct("two", &two)] }).to_string());
    let claims = |sub: &str| json!({ "sub": sub, "exp": now() + 3600, "proscenium": { "sessions": ["*"], "can": ["admin"] } });
    let of_one = signed(&one, &claims("anna"), Some("one"));
    let of_two = signed(&two, &claims("bob"), Some("two"));
    // The server has to have seen the file.
    soon("the key set to be read again", async {
        while guarded.get("/v1/runs", &of_one).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut first = guarded.stream(Via::Raw, "/v1/runs/r/stream", &of_one, None).await;
    let mut second = guarded.stream(Via::Hyper, "/v1/runs/r/stream", &of_two, None).await;
    let mut third = guarded.stream(Via::Raw, "/v1/runs/r/stream?frames=events", &admin(), None).await;
    // A body that is being sent, too.
    let (lines_in, body) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(4);
    let body = reqwest::Body::wrap_stream(futures_util::stream::unfold(body, async |mut body| Some((body.recv().await?, body))));
    let headers = [("authorization", bearer(&of_two)), ("content-type", "application/x-ndjson".to_owned())];
    let client = guarded.client.clone();
    let sending = tokio::spawn(async move {
        client.post("/v1/runs/r/facts", &headers.each_ref().map(|(name, value)| (*name, &**value)), body).await
    });
    lines_in.send(Ok(lines(&[fact("text.delta", json!({ "payload": { "text": "streamed" } }))]))).await.unwrap();

    place(&guarded.file("jwks"), &json!({ "keys": [oct("two", &two)] }).to_string());
    assert_eq!(last_words(&mut first).await["reason"], "key_removed");
    assert_eq!(guarded.get("/v1/runs", &of_one).await.problem(401, "unauthenticated")["code"], "unauthenticated");
    place(&guarded.file("revoked"), "bob\n");
    assert_eq!(last_words(&mut second).await["reason"], "revoked");
    let cut = soon("the body to be refused", sending).await.unwrap().problem(401, "unauthenticated");
    assert_eq!((&cut["reason"], &cut["accepted"]), (&json!("revoked"), &json!(1)));
    guarded.publish("r", "", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    assert!(third.all().await.iter().all(|frame| frame.kind() != "Error"));
}

#[tokio::test]
async fn a_run_that_is_written_anew_in_another_session_is_not_shown_to_who_had_the_first() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let of_session = reader(json!({ "sessions": ["s"] }));
    let mut streams = Vec::new();
    for path in ["/v1/runs/r/stream?frames=events", "/v1/stream?runs=r&frames=events", "/v1/sessions/s/stream?frames=events"] {
        let mut stream = guarded.stream(Via::Raw, path, &of_session, None).await;
        stream.frame().await;
        streams.push(stream);
    }
    let headers = bearer(&admin());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let erase = http.delete(format!("http://{}/v1/runs/r", guarded.client.at)).header("authorization", headers);
    assert_eq!(erase.send().await.unwrap().status(), 204);
    guarded.publish("r", "sessionId=t", &admin(), &[fact("text.delta", json!({ "payload": { "text": HIDDEN } }))]).await.ok();
    for stream in &mut streams[..2] {
        assert_eq!(last_words(stream).await["missing"], "run");
        assert!(!String::from_utf8_lossy(&stream.bytes).contains(HIDDEN));
    }
    guarded.publish("s2", "sessionId=s", &admin(), &[fact("run.finished", json!({}))]).await.ok();
    while streams[2].frame().await.data["runId"] != "s2" {}
    assert!(!String::from_utf8_lossy(&streams[2].bytes).contains(HIDDEN));
}

#[tokio::test]
async fn a_ticket_opens_one_stream_and_the_same_reader_comes_back_with_it() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let dashboard = reader(json!({ "audience": "dashboard", "sessions": ["s"] }));
    let open = async |via, path: &str, resume: Option<&str>| {
        let socket = TcpStream::connect(guarded.client.at).await.unwrap();
        let headers: Vec<_> = resume.iter().map(|id| ("last-event-id", *id)).collect();
        Sse::ask(socket, via, path, &headers).await
    };
    for via in BOTH {
        let ticket = guarded.ticket(&dashboard, json!({ "for": "stream", "run": "r", "ttlSeconds": 5 })).await;
        let path = format!("/v1/runs/r/stream?frames=events&ticket={ticket}");
        assert_eq!(open(via, &format!("/v1/runs/gone/stream?ticket={ticket}"), None).await.status, 403);
        // That was its use.
        assert_eq!(open(via, &path, None).await.status, 401);

        let ticket = guarded.ticket(&dashboard, json!({ "for": "stream", "run": "r" })).await;
        let path = format!("/v1/runs/r/stream?frames=events&audience=dashboard&ticket={ticket}");
        let mut first = open(via, &path, None).await;
        let frame = first.frame().await;
        assert_eq!(open(via, &path, None).await.status, 401, "good once");
        let mut again = open(via, &path, Some(frame.id())).await;
        assert_eq!(again.frame().await.sequence(), frame.sequence() + 1);
        assert_eq!(last_words(&mut first).await["reason"], "resumed_elsewhere");
        for elsewhere in ["/v1/runs/r", "/v1/runs/r/events", "/v1/runs"] {
            guarded.client.get(&format!("{elsewhere}?ticket={ticket}")).await.problem(401, "unauthenticated");
        }
        assert_eq!(open(via, &format!("{path}&x=1").replace("dashboard", "internal"), Some(frame.id())).await.status, 403);
    }
}

#[tokio::test]
async fn a_ticket_is_for_something_that_its_maker_may() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
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
    // Of a server that asks nobody a client gets one all the same.
    let open = crate::harness::local().await;
    let made = open.post("/v1/tickets", &[], r#"{"for":"ws"}"#).await.ok();
    assert!(made["ticket"].is_string() && made["expiresAt"].is_string());
}

/// A WebSocket.
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
        soon("a handshake", tokio_tungstenite::client_async(request, socket)).await.map(|(socket, _)| Self(socket))
    }

    async fn open(client: &Client) -> Self {
        Self::connect(client, "", &[]).await.unwrap()
    }

    async fn say(&mut self, what: Value) {
        soon("a message to be taken", self.0.send(Message::text(what.to_string()))).await.unwrap();
    }

    /// The next message, or the code of the close.
    async fn hear(&mut self) -> Result<Value, u16> {
        loop {
            match soon("a message", self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return Ok(serde_json::from_str(&text).unwrap()),
                Message::Close(close) => return Err(close.unwrap().code.into()),
                _ => {}
            }
        }
    }

    /// The answer to this; frames before it are dropped.
    async fn ask(&mut self, what: Value) -> Value {
        self.say(what).await;
        loop {
            let said = self.hear().await.unwrap();
            if said.get("op").is_some() {
                return said;
            }
        }
    }
}

#[tokio::test]
async fn a_websocket_is_asked_who_it_is_and_each_message_what_it_may() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let client = &guarded.client;
    let token = token(&json!({ "sessions": ["t"], "runs": ["mine"], "can": ["read", "publish"] }));

    for what in [json!({ "op": "subscribe", "id": 1, "run": "q" }), json!({ "op": "ping" }), json!("?")] {
        let mut ws = Ws::open(client).await;
        ws.say(what).await;
        let refused = ws.hear().await.unwrap();
        assert!(refused["code"] == "unauthenticated" || refused["code"] == "not_an_object", "{refused}");
        if refused["code"] == "unauthenticated" {
            assert_eq!(ws.hear().await, Err(4401));
        }
    }
    let mut ws = Ws::open(client).await;
    assert_eq!(ws.ask(json!({ "op": "auth", "id": 1, "token": "a.b.c" })).await["code"], "unauthenticated");
    assert_eq!(ws.hear().await, Err(4401));

    let mut ws = Ws::open(client).await;
    let known = ws.ask(json!({ "op": "auth", "id": "me", "token": token })).await;
    assert_eq!((&known["op"], &known["id"], &known["audience"]), (&json!("authenticated"), &json!("me"), &json!("user")));
    let subscribed = ws.ask(json!({ "op": "subscribe", "id": "q", "run": "q" })).await;
    assert_eq!(subscribed["op"], "subscribed");
    for (what, missing) in [
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
        let refused = ws.ask(what.clone()).await;
        assert_eq!((&refused["code"], &refused["missing"]), (&json!("forbidden"), &json!(missing)), "{what}");
    }
    let ack = ws.ask(json!({ "op": "publish", "id": 2, "runId": "mine", "facts": [fact("run.started", json!({}))] })).await;
    assert_eq!(ack["op"], "ack");
    let only_reads = reader(json!({ "sessions": ["t"], "runs": ["mine"] }));
    assert_eq!(ws.ask(json!({ "op": "auth", "id": 3, "token": only_reads })).await["code"], "forbidden");

    for headers in [[("authorization", bearer("a.b.c"))], [("authorization", "Basic YTpi".to_owned())]] {
        let headers = headers.each_ref().map(|(name, value)| (*name, &**value));
        match Ws::connect(client, "", &headers).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status(), 401),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
    let header = bearer(&token);
    let mut by_header = Ws::connect(client, "", &[("authorization", &header)]).await.unwrap();
    assert_eq!(by_header.ask(json!({ "op": "ping", "id": 1 })).await["op"], "pong");
    let ticket = guarded.ticket(&token, json!({ "for": "ws", "run": "q" })).await;
    let mut by_ticket = Ws::connect(client, &format!("?ticket={ticket}"), &[]).await.unwrap();
    assert_eq!(by_ticket.ask(json!({ "op": "subscribe", "id": 1, "run": "q" })).await["op"], "subscribed");
    assert_eq!(by_ticket.ask(json!({ "op": "subscribe", "id": 2, "run": "mine" })).await["missing"], "run");
    assert!(Ws::connect(client, &format!("?ticket={ticket}"), &[]).await.is_err(), "good once");
}

#[tokio::test]
async fn a_websocket_that_does_not_say_who_it_is_is_not_kept() {
    let guarded = Guarded::start().await;
    let mut ws = Ws::open(&guarded.client).await;
    assert_eq!(ws.hear().await.unwrap()["code"], "unauthenticated");
    assert_eq!(ws.hear().await, Err(4401));
}

#[tokio::test]
async fn a_websocket_that_says_too_much_before_it_is_known_is_not_listened_to() {
    let guarded = Guarded::start().await;
    let mut ws = Ws::open(&guarded.client).await;
    let large = json!({ "op": "auth", "token": "x".repeat(1024 * 1024) });
    let _ = soon("it to be cut off", ws.0.send(Message::text(large.to_string()))).await;
    let heard = soon("the end", async {
        loop {
            match ws.0.next().await {
                Some(Ok(Message::Text(text))) => return Some(text.to_string()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    })
    .await;
    assert_eq!(heard, None);
}

#[tokio::test]
async fn a_websocket_ends_with_its_token_unless_it_has_another_by_then() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let here = json!({ "sessions": ["*"], "can": ["read"] });
    let until = |seconds: i64| token_of(&json!({ "sub": "somebody", "exp": now() + seconds, "proscenium": here }));
    let (mut ends, mut lasts) = (Ws::open(&guarded.client).await, Ws::open(&guarded.client).await);
    for ws in [&mut ends, &mut lasts] {
        assert_eq!(ws.ask(json!({ "op": "auth", "token": until(3) })).await["op"], "authenticated");
        assert_eq!(ws.ask(json!({ "op": "subscribe", "id": 1, "run": "never", "frames": "events" })).await["op"], "subscribed");
    }
    let stranger =
        token_of(&json!({ "sub": "else", "exp": now() + 3600, "proscenium": { "sessions": ["*"], "can": ["admin"] } }));
    assert_eq!(lasts.ask(json!({ "op": "auth", "id": 2, "token": stranger })).await["code"], "forbidden");
    assert_eq!(lasts.ask(json!({ "op": "auth", "token": until(3600) })).await["op"], "authenticated");
    let problem = ends.hear().await.unwrap();
    assert_eq!(
        (&problem["op"], &problem["code"], &problem["reason"]),
        (&json!("error"), &json!("unauthenticated"), &json!("expired"))
    );
    assert_eq!(ends.hear().await, Err(4401));
    guarded.publish("never", "", &admin(), &[fact("run.started", json!({}))]).await.ok();
    assert_eq!(lasts.hear().await.unwrap()["frame"], "Event");
}

#[tokio::test]
async fn a_page_of_another_origin_is_let_in_only_if_it_is_on_the_list() {
    let guarded = Guarded::start().await;
    filled(&guarded).await;
    let client = &guarded.client;
    let own = format!("http://{}", client.at);
    let admin = bearer(&admin());
    let fact = r#"{"type":"text.delta","payload":{"text":"x"}}"#;
    // With no type of content a browser sends it without asking.
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
        assert_eq!(client.get_with("/", &[("sec-fetch-site", site)]).await.status, 200, "a link leads here");
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
    assert_eq!(refused.headers["access-control-allow-origin"], FRIEND, "a page may read why");
    refused.problem(401, "unauthenticated");
    assert!(Ws::connect(client, "", &[("origin", FRIEND), ("authorization", &admin)]).await.is_ok());
    let socket = TcpStream::connect(client.at).await.unwrap();
    let mut stream = Sse::ask(socket, Via::Raw, "/v1/runs/r/stream", &[("origin", FRIEND), ("authorization", &admin)]).await;
    assert_eq!((stream.status, &*stream.headers["access-control-allow-origin"]), (200, FRIEND));
    stream.frame().await;
}

/// Asks as a browser does before it sends what a page wants.
async fn preflight(client: &Client, origin: &str) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    let question = format!(
        "OPTIONS /v1/runs/r/facts HTTP/1.1\r\nhost: {}\r\norigin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\nconnection: close\r\n\r\n",
        client.at
    );
    socket.write_all(question.as_bytes()).await.unwrap();
    let mut said = String::new();
    soon("an answer", socket.read_to_string(&mut said)).await.unwrap();
    said
}

#[tokio::test]
async fn a_browser_that_asks_first_is_told_what_a_page_may() {
    let guarded = Guarded::start().await;
    let told = preflight(&guarded.client, FRIEND).await;
    assert!(told.starts_with("HTTP/1.1 204 "), "{told}");
    for header in [
        "access-control-allow-origin: https://app.example\r\n",
        "access-control-allow-credentials: true\r\n",
        "access-control-allow-methods: GET, POST, DELETE\r\n",
        "authorization, content-type, last-event-id",
        "vary: Origin\r\n",
    ] {
        assert!(told.contains(header), "{header}: {told}");
    }
    let told = preflight(&guarded.client, "https://evil.example").await;
    assert!(told.starts_with("HTTP/1.1 403 ") && !told.contains("access-control-"), "{told}");
    let told = preflight(&crate::harness::local().await, FRIEND).await;
    assert!(
        told.starts_with("HTTP/1.1 403 ") && !told.contains("access-control-"),
        "no origin is on the list by default: {told}"
    );
}

#[tokio::test]
async fn the_page_says_what_it_may_do() {
    let page = crate::harness::local().await.get("/").await;
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
async fn where_nobody_is_asked_everybody_may_and_a_token_does_not_matter() {
    let client = crate::harness::local().await;
    client.accept("r", &[fact("run.started", json!({}))]).await;
    for header in ["Bearer nonsense", "Basic YTpi"] {
        client.get_with("/v1/runs/r?audience=internal", &[("authorization", header)]).await.ok();
    }
    assert_eq!(client.stream(Via::Raw, "r", "audience=internal&ticket=none", None).await.status, 200);
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
}

#[test]
fn a_token_is_made_at_the_command_line_and_is_good_for_its_commands() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    let make = |arguments: &[&str]| {
        let made = crate::cli::run(crate::cli::proscenium(&["token", "--key"]).arg(&secret).args(arguments));
        (made.status.code(), crate::cli::stdout(&made).trim().to_owned(), crate::cli::stderr(&made))
    };
    let (code, _, why) = make(&["--can", "read"]);
    assert!(code == Some(1) && why.contains("good for nothing"), "{why}");
    let (code, all, told) = make(&["--generate", "--sessions", "*", "--can", "read,publish", "--audience", "internal"]);
    assert_eq!((code, all.split('.').count(), all.lines().count()), (Some(0), 3, 1), "{told}");
    assert!(told.contains("--auth-key"), "{told}");
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (code, none, why) = make(&["--generate", "--sessions", "*"]);
    assert!(code == Some(1) && none.is_empty() && why.contains("exists"), "no key is overwritten: {why}");
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
    assert!(code == Some(1) && why.contains("audience is internal"), "{why}");
    assert!(run(&user, &["export", "copy", "--audience", "user"]).1.contains("for users"));
    assert!(run(&user, &["tail", "copy"]).1.contains("for users"));
    let (code, shown, why) = run(&all, &["check", "copy"]);
    assert_eq!(code, Some(0), "{shown}{why}");
    let help = crate::cli::run(crate::cli::proscenium(&["tail", "--help"]).env("PROSCENIUM_TOKEN", &all));
    assert!(!crate::cli::stdout(&help).contains(&all), "help shows no token");
}

#[tokio::test]
async fn keys_of_other_kinds_sign_at_the_command_line_and_only_the_public_half_is_served() {
    for kind in ["ed25519", "rsa"] {
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
async fn a_token_learns_nothing_of_what_waits_in_sessions_below_that_it_does_not_name() {
    let guarded = Guarded::start().await;
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "kind": "tool_approval" } }));
    for (run, session, parent) in [("r", "s", "none"), ("k", "kid", "s"), ("g", "grandkid", "kid")] {
        let ids = format!("sessionId={session}&parentSessionId={parent}");
        guarded.publish(run, &ids, &admin(), std::slice::from_ref(&asks)).await.ok();
    }
    let below = async |token: &str| {
        let list = guarded.get("/v1/sessions", token).await.ok();
        let line = list["sessions"].as_array().unwrap().iter().find(|line| line["sessionId"] == "s").unwrap()["counts"].clone();
        assert_eq!(guarded.get("/v1/sessions/s", token).await.ok()["counts"], line, "list and shell agree");
        [line["pendingActions"].as_u64().unwrap(), line["pendingActionsBelow"].as_u64().unwrap()]
    };
    assert_eq!(below(&admin()).await, [3, 2]);
    assert_eq!(below(&reader(json!({ "sessions": ["s"] }))).await, [1, 0]);
    assert_eq!(below(&reader(json!({ "sessions": ["s", "grandkid", "s"] }))).await, [2, 1]);
}

#[tokio::test]
async fn no_token_and_no_ticket_is_in_any_line_of_the_log() {
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
    let expired = token_of(&json!({ "sub": "late", "exp": now() - 1 }));
    let mut said = vec![admin(), forged, expired, "not-even-a-token-but-secret".to_owned()];
    for token in said.clone() {
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
        ws.say(json!({ "op": "auth", "token": token })).await;
        let _ = ws.hear().await;
        let _ = Ws::connect(&client, "", &headers[..1]).await;
        let made = client.post("/v1/tickets", &headers, r#"{"for":"stream"}"#).await;
        if let Some(ticket) = made.json()["ticket"].as_str() {
            client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await;
            client.get(&format!("/v1/runs/r/stream?ticket={ticket}")).await.problem(401, "unauthenticated");
            said.push(ticket.to_owned());
        }
    }
    assert_eq!(said.len(), 5, "a ticket was made");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let log = logging.join().unwrap();
    assert!(log.contains("TRACE"), "what others say by way of the log crate is there, too: {log}");
    for secret in said.iter().map(String::as_str).chain([SECRET]) {
        assert!(!log.contains(secret), "{secret} is in the log");
        // Nor its signature alone.
        assert!(!log.contains(secret.rsplit('.').next().unwrap()), "a part of {secret} is in the log");
    }
}
