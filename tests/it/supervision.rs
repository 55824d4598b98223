//! Nothing fails in silence: the end of a task is the server's end, and what is stored and cannot be read is an error with a name.

use crate::harness::{Client, PATIENCE, Via, fact, prepare, serve_it, soon, world};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::memory::MemoryStore;
use proscenium::log::{AnyStore, Append, Loaded, LogId, Store, StoreError};
use proscenium::model::{RunId, Sequence};
use proscenium::serve::{Failure, Limits, Pulse, Server};
use serde_json::json;
use std::io::{BufRead, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The real binary, in which one task panics: where it listened.
struct Broken {
    at: std::net::SocketAddr,
    child: std::process::Child,
}

impl Broken {
    fn start(task: &str, dir: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_proscenium"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data-dir"])
            .arg(dir.join("data"))
            .args(flags)
            .env("PROSCENIUM_PANIC_IN", task)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().rsplit_once("://").and_then(|(_, at)| at.parse().ok());
        Self { at: at.unwrap_or_else(|| panic!("{task}: {line:?}")), child }
    }

    /// Waits until it has ended: its exit code, and what it said.
    async fn end(mut self) -> (Option<i32>, String) {
        let process = self.child.id().to_string();
        let mut stderr = self.child.stderr.take().unwrap();
        let mut ended = tokio::task::spawn_blocking(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            (self.child.wait().unwrap().code(), said)
        });
        if let Ok(ended) = tokio::time::timeout(PATIENCE, &mut ended).await {
            return ended.unwrap();
        }
        // The test's runtime waits for the thread above, so the test would hang instead of failing.
        assert!(Command::new("kill").args(["-s", "KILL", &process]).status().unwrap().success());
        panic!("the process goes on after {PATIENCE:?}: {:?}", ended.await.unwrap());
    }
}

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "programs that are built to be used cannot be told to panic")]
async fn the_panic_of_any_task_ends_the_process_with_its_name_the_reason_and_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(place("cert"), cert.pem()).unwrap();
    std::fs::write(place("key"), signing_key.serialize_pem()).unwrap();
    std::fs::write(place("secret"), "0123456789abcdef0123456789abcdef0123456789abcdef").unwrap();
    let (cert, key, secret) = (place("cert"), place("key"), place("secret"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let tasks: [(&str, &[&str]); 11] = [
        ("follower", &[]),
        ("flusher", &[]),
        ("checkpointer", &[]),
        ("sweeper", &[]),
        ("settler", &[]),
        ("control-keeper", &[]),
        ("disk-watch", &[]),
        ("compactor", &["--compact-after", "3600"]),
        ("certificate-renewal", &tls),
        ("certificate-renewal-at-hangup", &tls),
        ("key-renewal", &["--auth-key", &secret]),
    ];
    for (task, flags) in tasks {
        let (code, said) = Broken::start(task, &dir.path().join(task), flags).end().await;
        assert_eq!(code, Some(1), "{task}: {said}");
        assert!(said.contains(&format!("the task {task} panicked: a test asked for this panic")), "{task}: {said}");
    }
}

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "programs that are built to be used cannot be told to panic")]
async fn the_panic_of_the_committer_answers_all_who_wait_and_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = Broken::start("committer", dir.path(), &[]);
    let client = Client::new(server.at);
    let mut reader = client.stream(Via::Raw, "r", "", None).await;
    reader.opened().await;
    let url = format!("http://{}/v1/runs/r/facts", server.at);
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    // An answer, or the end of the connection: not a silence.
    let answer = http.post(url).header("content-type", "application/json").body(r#"{"type":"run.started"}"#).send().await;
    assert!(answer.as_ref().map_or_else(|error| !error.is_timeout(), |answer| answer.status() == 500), "{answer:?}");
    let (code, said) = server.end().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the committer panicked: a test asked for this panic"), "{said}");
}

#[tokio::test]
async fn a_committer_that_has_ended_is_a_failure_also_for_a_server_that_is_told_to_stop() {
    prepare();
    // Which of the two is seen first is chance.
    for _ in 0..20 {
        let store = AnyStore::Memory(MemoryStore::new());
        let world = world(jiff::Timestamp::now);
        let server = Server::new(store, Policy::default(), Sizes::default(), Limits::default(), Pulse::default(), world);
        let server = server.unwrap().panicking_in(Some("committer".into()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let stop = async move {
            let url = format!("http://{at}/v1/runs/r/facts");
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let _ = http.post(url).header("content-type", "application/json").body(r#"{"type":"run.started"}"#).send().await;
        };
        match soon("the server to end", server.run(listener, stop)).await {
            Err(Failure::Store(error)) => assert!(error.to_string().contains("the committer panicked"), "{error}"),
            ended => panic!("{ended:?}"),
        }
    }
}

/// A server on this directory, which stops when it is told to and lets go of it.
async fn on(dir: &Path) -> (Client, impl AsyncFnOnce()) {
    let world = world(jiff::Timestamp::now);
    let server = Server::new(
        AnyStore::Embedded(opened(dir)),
        Policy::default(),
        Sizes::default(),
        Limits::default(),
        Pulse::default(),
        world,
    );
    let (stop, told) = oneshot::channel::<()>();
    let (client, serving) = serve_it(server.unwrap(), async move { drop(told.await) }).await;
    (client, async move || {
        drop(stop);
        soon("the server to stop", serving).await.unwrap();
    })
}

/// The store of a directory, once whoever had it has let go.
pub fn opened(dir: &Path) -> EmbeddedStore {
    loop {
        match EmbeddedStore::open(dir, Sync::Never) {
            Err(StoreError::Locked { .. }) => {}
            opened => return opened.unwrap(),
        }
    }
}

pub fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

/// The log as it is stored.
pub async fn loaded(store: &EmbeddedStore, name: &str) -> Loaded {
    store.load(&run(name)).await.unwrap().unwrap()
}

/// Sets one state entry of a run, past everything that looks at it.
pub async fn set(store: &EmbeddedStore, name: &str, key: &[u8], value: &[u8]) {
    let Loaded { epoch, last, .. } = loaded(store, name).await;
    let state = vec![(key.to_vec().into(), Some(value.to_vec().into()))];
    let append = Append { log: run(name), epoch, expected: last, last, rows: bytes::Bytes::new(), blobs: Vec::new(), state };
    store.commit(&[append]).await.unwrap();
}

/// A run that leaves an entry of every kind in its log's state.
pub async fn tell_everything(client: &Client, run: &str) {
    let numbered = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")];
    let facts = json!([
        fact("run.started", json!({"sessionId": "s"})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "dig"}})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": "x".repeat(40_000)}})),
        // What may be the beginning of a secret is held back.
        fact("text.delta", json!({"messageId": "m", "payload": {"text": "see sk-"}})),
    ]);
    client.post(&format!("/v1/runs/{run}/facts"), &numbered, facts.to_string()).await.ok();
    let control = json!({"control": "steer", "value": "left"});
    let answer =
        client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], control.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn each_entry_of_a_logs_state_that_cannot_be_read_is_named_and_other_logs_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (client, stop) = on(dir.path()).await;
    tell_everything(&client, "bad").await;
    client.accept("good", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    stop().await;
    let store = opened(dir.path());
    let whole = loaded(&store, "bad").await;
    drop(store);
    let kinds: std::collections::BTreeSet<u8> = whole.state.iter().map(|(key, _)| key[0]).collect();
    assert_eq!(kinds, b"acgmpt".iter().copied().collect(), "an entry of every kind");
    for (key, was) in &whole.state {
        let store = opened(dir.path());
        set(&store, "bad", key, b"{\"half").await;
        drop(store);
        let (client, stop) = on(dir.path()).await;
        let name = String::from_utf8_lossy(key);
        let problem = client.facts("bad", &json!([fact("run.status", json!({}))])).await.problem(500, "stored_state_unreadable");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("run bad") && detail.contains(&format!("{name:?}")), "{name}: {detail}");
        client.accept("good", &[fact("run.status", json!({"payload": {"message": "on"}}))]).await;
        let runs = client.get("/v1/runs").await.ok();
        let read = client.get("/v1/runs/bad").await;
        match &**key == b"m" {
            // Nothing is known of it, and nothing is made up.
            true => {
                read.problem(500, "stored_state_unreadable");
                assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
                assert_eq!(client.get("/v1/sessions").await.ok()["sessions"][0]["counts"]["runs"], 1);
            }
            false => {
                assert_eq!((read.ok()["lastSequence"].as_u64(), runs["runs"].as_array().unwrap().len()), (Some(whole.last.0), 2));
            }
        }
        stop().await;
        let store = opened(dir.path());
        assert_eq!(loaded(&store, "bad").await.last, whole.last, "nothing was written");
        set(&store, "bad", key, was).await;
    }
    let (client, stop) = on(dir.path()).await;
    client
        .accept("bad", &[fact("text.delta", json!({"messageId": "m", "payload": {"text": "live-abcdefgh0123456789 then"}}))])
        .await;
    let text = client
        .events("bad", "audience=internal", 100)
        .await
        .iter()
        .map(|event| event["payload"]["text"].to_string())
        .collect::<String>();
    assert!(text.contains("[redacted]") && !text.contains("abcdefgh"), "the state is whole again: {text}");
    stop().await;
}

#[tokio::test]
async fn a_log_that_cannot_be_read_can_be_deleted_and_begins_anew() {
    for key in [b"m", b"g"] {
        let dir = tempfile::tempdir().unwrap();
        let (client, stop) = on(dir.path()).await;
        tell_everything(&client, "bad").await;
        stop().await;
        let store = opened(dir.path());
        let was = loaded(&store, "bad").await;
        set(&store, "bad", key, b"{\"half").await;
        drop(store);
        let (client, stop) = on(dir.path()).await;
        client.facts("bad", &json!([fact("run.status", json!({}))])).await.problem(500, "stored_state_unreadable");
        assert_eq!(client.delete("/v1/runs/bad").await.status, 204);
        client.get("/v1/runs/bad").await.problem(404, "no_such_run");
        assert_eq!(client.accept("bad", &[fact("run.started", json!({}))]).await["lastSequence"], 1);
        let runs = client.get("/v1/runs").await.ok();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
        assert_ne!(runs["runs"][0]["epoch"], was.epoch.to_string());
        client.delete("/v1/runs/bad").await;
        assert_eq!(client.delete("/v1/runs/bad").await.status, 404);
        stop().await;
    }
}

#[tokio::test]
async fn a_log_whose_index_entry_cannot_be_read_is_named_when_the_server_starts() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (client, stop) = on(&data).await;
    tell_everything(&client, "bad").await;
    stop().await;
    let store = opened(&data);
    set(&store, "bad", b"m", b"7").await;
    drop(store);
    let server = Broken::start("nothing", dir.path(), &[]);
    Client::new(server.at).get("/readyz").await.ok();
    assert!(Command::new("kill").args(["-s", "TERM", &server.child.id().to_string()]).status().unwrap().success());
    let (code, said) = server.end().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("run bad") && said.contains("entry \"m\""), "{said}");
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_read_is_made_up_for_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (client, stop) = on(dir.path()).await;
    tell_everything(&client, "r").await;
    let whole = client.get("/v1/runs/r/activities?audience=internal").await.ok();
    stop().await;
    let store = opened(dir.path());
    let log = loaded(&store, "r").await;
    store.save_checkpoint(&run("r"), log.epoch, 2, Sequence(2), "{\"version\":".into()).await.unwrap();
    drop(store);
    let (client, stop) = on(dir.path()).await;
    assert_eq!(client.get("/v1/runs/r/activities?audience=internal").await.ok(), whole);
    stop().await;
}
