//! Supervision: the end of a task ends the server, and unreadable stored data is an error with a name.

use crate::harness::{
    Client, ClockedProcess, Process, TIMEOUT, Transport, environment, fact, install_crypto_provider, serve_until, storage_in,
    with_timeout,
};
use crate::ops::read_metric;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::embedded::Sync;
use proscenium::log::testing::{OnDisk, on_disk};
use proscenium::log::{Append, LoadedLog, LogId, Storage, Store, StoreError};
use proscenium::model::{RunId, Sequence};
use proscenium::serve::{Failure, KeepAlive, Limits, Server};
use serde_json::json;
use std::io::{BufRead, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_lines_and_not_the_server() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for (stderr, format) in [(full(), "text"), (closed(), "text"), (full(), "json"), (closed(), "json")] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Process::command(dir.path(), "info");
        command.args(["--log-format", format]).stderr(stderr);
        let mut server = Process::spawn(command);
        let client = Client::new(server.at);
        for run in ["a", "b"] {
            client.append(run, &[fact("run.started", json!({}))]).await;
        }
        client.get("/v1/runs/none").await.problem(404, "no_such_run");
        assert!(read_metric(&client, "proscenium_log_lines_lost_total").await >= 1.0);
        server.terminate();
        assert!(server.wait().success(), "{format}: the server fails when it stops");
    }
}

#[tokio::test]
async fn a_clock_outside_the_years_of_http_dates_ends_nothing() {
    for now in [|| jiff::Timestamp::MIN, || jiff::Timestamp::MAX, || jiff::Timestamp::UNIX_EPOCH] {
        let (sizes, limits, keep_alive) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
        let server = Server::new(Storage::memory(), Policy::default(), sizes, limits, keep_alive, environment(now)).unwrap();
        let (client, _) = serve_until(server, std::future::pending()).await;
        client.append("r", &[fact("run.started", json!({"sessionId": "s"}))]).await;
        client.append("r", &[fact("action.required", json!({"actionId": "a", "expiresAt": "2026-01-01T00:00:00Z"}))]).await;
        client.post("/v1/sessions/s/controls", &[], json!({"control": "queue", "value": "x"}).to_string()).await;
        for path in ["/healthz", "/metrics", "/v1/runs/r", "/v1/runs/r/activities", "/v1/sessions", "/v1/attention"] {
            assert_eq!(client.get(path).await.status, 200, "{path} at {}", now());
        }
        let mut stream = client.open(Transport::Raw, "/v1/runs/r/stream?frames=events", None).await;
        assert_eq!(stream.next_frame().await.kind(), "Event");
    }
}

#[tokio::test]
async fn the_data_directory_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(&dir.path().join("above"));
    for path in ["above", "above/data"] {
        let mode = std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{path}");
    }
    drop(server);
}

/// Runs whose runtimes fall silent at once.
const SILENT_RUNS: usize = 40;

#[tokio::test]
async fn runs_that_fall_silent_together_are_a_few_lines_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Process::command(dir.path(), "info,proscenium::access=error");
    command.args(["--stale-after", "600", "--settle-after", "86400"]).stderr(Stdio::piped());
    let mut clocked = ClockedProcess::spawn(dir.path(), command);
    let client = &clocked.client;
    for n in 0..SILENT_RUNS {
        client.append(&n.to_string(), &[fact("run.started", json!({}))]).await;
    }
    let are_stale = async || read_metric(client, "proscenium_runs_stale_total").await >= SILENT_RUNS as f64;
    clocked.advance_until("all runs to be stale", std::time::Duration::from_mins(10), are_stale).await;
    clocked.server.terminate();
    let log = clocked.server.take_log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("silent")).collect();
    assert!((1..SILENT_RUNS / 2).contains(&lines.len()), "{lines:#?}");
}

/// The real binary, in which one task panics.
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

    /// Waits for the process's end; returns its exit code and its log.
    async fn end(mut self) -> (Option<i32>, String) {
        let process = self.child.id().to_string();
        let mut stderr = self.child.stderr.take().unwrap();
        let mut ended = tokio::task::spawn_blocking(move || {
            let mut log = String::new();
            stderr.read_to_string(&mut log).unwrap();
            (self.child.wait().unwrap().code(), log)
        });
        if let Ok(ended) = tokio::time::timeout(TIMEOUT, &mut ended).await {
            return ended.unwrap();
        }
        // The test's runtime waits for the thread above, so the test would hang instead of failing.
        assert!(Command::new("kill").args(["-s", "KILL", &process]).status().unwrap().success());
        panic!("the process still runs after {TIMEOUT:?}: {:?}", ended.await.unwrap());
    }
}

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "programs that are built to be used cannot be stopped to panic")]
async fn a_panic_of_any_task_ends_the_process_with_its_name_the_reason_and_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(place("cert"), cert.pem()).unwrap();
    std::fs::write(place("key"), signing_key.serialize_pem()).unwrap();
    std::fs::write(place("secret"), "0123456789abcdef0123456789abcdef0123456789abcdef").unwrap();
    let (cert, key, secret) = (place("cert"), place("key"), place("secret"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let tasks: [(&str, &[&str]); 13] = [
        ("follower", &[]),
        ("flusher", &[]),
        ("checkpointer", &[]),
        ("sweeper", &[]),
        ("eraser", &[]),
        ("purger", &[]),
        ("settler", &[]),
        ("control-keeper", &[]),
        ("disk-watch", &[]),
        ("compactor", &["--compact-after", "3600"]),
        ("certificate-renewal", &tls),
        ("certificate-renewal-at-hangup", &tls),
        ("key-renewal", &["--auth-key", &secret]),
    ];
    for (task, flags) in tasks {
        let (code, log) = Broken::start(task, &dir.path().join(task), flags).end().await;
        assert_eq!(code, Some(1), "{task}: {log}");
        assert!(log.contains(&format!("the task {task} panicked: a test asked for this panic")), "{task}: {log}");
    }
}

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "programs that are built to be used cannot be stopped to panic")]
async fn a_panic_of_the_committer_answers_every_waiting_request_and_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = Broken::start("committer", dir.path(), &[]);
    let client = Client::new(server.at);
    let mut reader = client.open_stream(Transport::Raw, "r", "", None).await;
    reader.wait_until_open().await;
    let url = format!("http://{}/v1/runs/r/facts", server.at);
    let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
    // A response, or the end of the connection, but no timeout.
    let answer = http.post(url).header("content-type", "application/json").body(r#"{"type":"run.started"}"#).send().await;
    assert!(answer.as_ref().map_or_else(|error| !error.is_timeout(), |answer| answer.status() == 500), "{answer:?}");
    let (code, log) = server.end().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the committer panicked: a test asked for this panic"), "{log}");
}

#[tokio::test]
async fn an_ended_committer_is_a_failure_also_during_a_stop() {
    install_crypto_provider();
    // Either event may be seen first.
    for _ in 0..20 {
        let store = Storage::memory();
        let environment = environment(jiff::Timestamp::now);
        let server =
            Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), KeepAlive::default(), environment);
        let server = server.unwrap().with_panic_in(Some("committer".into()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let stop = async move {
            let url = format!("http://{at}/v1/runs/r/facts");
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let _ = http.post(url).header("content-type", "application/json").body(r#"{"type":"run.started"}"#).send().await;
        };
        match with_timeout("the server's end", server.run(listener, stop)).await {
            Err(Failure::Store(error)) => assert!(error.to_string().contains("the committer panicked"), "{error}"),
            ended => panic!("{ended:?}"),
        }
    }
}

/// Starts a server on this directory.
///
/// Returns its client, and a function that stops it and releases the directory.
async fn on(dir: &Path) -> (Client, impl AsyncFnOnce()) {
    let environment = environment(jiff::Timestamp::now);
    let server = Server::new(
        storage_in(dir, Sync::Never).await,
        Policy::default(),
        FeedConfig::default(),
        Limits::default(),
        KeepAlive::default(),
        environment,
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let (client, serving) = serve_until(server.unwrap(), async move { drop(stopped.await) }).await;
    (client, async move || {
        drop(stop);
        with_timeout("the server's stop", serving).await.unwrap();
    })
}

/// Opens the store of a directory, after its last user has released it.
pub fn opened(dir: &Path) -> OnDisk {
    loop {
        match on_disk(dir, Sync::Never) {
            Err(StoreError::Locked { .. }) => {}
            opened => return opened.unwrap(),
        }
    }
}

pub fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

/// Loads the log as stored.
pub async fn loaded(store: &OnDisk, name: &str) -> LoadedLog {
    store.load(&run(name)).unwrap().unwrap()
}

/// Sets one state entry of a run, bypassing all checks.
pub async fn set(store: &OnDisk, name: &str, key: &[u8], value: &[u8]) {
    let LoadedLog { epoch, last, .. } = loaded(store, name).await;
    let state = vec![(key.to_vec().into(), Some(value.to_vec().into()))];
    let append = Append { log: run(name), epoch, expected: last, last, rows: bytes::Bytes::new(), blobs: Vec::new(), state };
    store.commit(&[append]).unwrap();
}

/// Writes a run whose log state has an entry of every kind.
pub async fn tell_everything(client: &Client, run: &str) {
    let numbered = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")];
    let facts = json!([
        fact("run.started", json!({"sessionId": "s"})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "dig"}})),
        fact("tool.result", json!({"toolCallId": "c", "payload": {"output": "x".repeat(40_000)}})),
        // The guard holds back a possible start of a secret.
        fact("text.delta", json!({"messageId": "m", "payload": {"text": "see sk-"}})),
    ]);
    client.post(&format!("/v1/runs/{run}/facts"), &numbered, facts.to_string()).await.ok();
    let control = json!({"control": "steer", "value": "left"});
    let answer =
        client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], control.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn each_unreadable_state_entry_is_named_and_other_logs_continue() {
    let dir = tempfile::tempdir().unwrap();
    let (client, stop) = on(dir.path()).await;
    tell_everything(&client, "bad").await;
    client.append("good", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    stop().await;
    let store = opened(dir.path());
    let whole = loaded(&store, "bad").await;
    drop(store);
    let kinds: std::collections::BTreeSet<u8> = whole.state.iter().map(|(key, _)| key[0]).collect();
    assert_eq!(kinds, b"acfghkmpst".iter().copied().collect(), "not an entry of every kind");
    for (key, was) in &whole.state {
        let store = opened(dir.path());
        set(&store, "bad", key, b"{\"half").await;
        drop(store);
        let (client, stop) = on(dir.path()).await;
        let name = String::from_utf8_lossy(key);
        let problem =
            client.post_facts("bad", &json!([fact("run.status", json!({}))])).await.problem(500, "stored_state_unreadable");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("run bad") && detail.contains(&format!("{name:?}")), "{name}: {detail}");
        client.append("good", &[fact("run.status", json!({"payload": {"message": "on"}}))]).await;
        let runs = client.get("/v1/runs").await.ok();
        let read = client.get("/v1/runs/bad").await;
        // The figures are read with the summary.
        match matches!(&**key, b"m" | b"f") {
            // The server knows nothing of the log, and invents nothing.
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
        assert_eq!(loaded(&store, "bad").await.last, whole.last, "the server wrote to the log");
        set(&store, "bad", key, was).await;
    }
    let (client, stop) = on(dir.path()).await;
    client
        .append("bad", &[fact("text.delta", json!({"messageId": "m", "payload": {"text": "live-abcdefgh0123456789 then"}}))])
        .await;
    let text = client
        .read_events("bad", "audience=internal", 100)
        .await
        .iter()
        .map(|event| event["payload"]["text"].to_string())
        .collect::<String>();
    assert!(text.contains("[redacted]") && !text.contains("abcdefgh"), "the state is not restored: {text}");
    stop().await;
}

#[tokio::test]
async fn an_unreadable_log_can_be_deleted_and_written_again() {
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
        client.post_facts("bad", &json!([fact("run.status", json!({}))])).await.problem(500, "stored_state_unreadable");
        assert_eq!(client.delete("/v1/runs/bad").await.status, 204);
        client.get("/v1/runs/bad").await.problem(410, "erased");
        assert_eq!(client.append("bad", &[fact("run.started", json!({}))]).await["lastSequence"], 1);
        let runs = client.get("/v1/runs").await.ok();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
        assert_ne!(runs["runs"][0]["epoch"], was.epoch.to_string());
        client.delete("/v1/runs/bad").await;
        assert_eq!(client.delete("/v1/runs/bad").await.status, 410);
        stop().await;
    }
}

#[tokio::test]
async fn an_unreadable_log_index_entry_is_named_at_the_server_s_start() {
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
    let (code, log) = server.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("run bad") && log.contains("entry \"m\""), "{log}");
}

#[tokio::test]
async fn an_unreadable_checkpoint_is_replaced_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (client, stop) = on(dir.path()).await;
    tell_everything(&client, "r").await;
    let whole = client.get("/v1/runs/r/activities?audience=internal").await.ok();
    stop().await;
    let store = opened(dir.path());
    let log = loaded(&store, "r").await;
    store.save_checkpoint(&run("r"), log.epoch, 2, Sequence(2), "{\"version\":".into()).unwrap();
    drop(store);
    let (client, stop) = on(dir.path()).await;
    assert_eq!(client.get("/v1/runs/r/activities?audience=internal").await.ok(), whole);
    stop().await;
}
