//! Limits: each is reached through the server, has its own code, and affects no other client.

use crate::harness::{Client, ClockedProcess, environment, fact, serve_until, start_local_with, to_ndjson, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::ingest::IngestLimits;
use proscenium::log::Storage;
use proscenium::log::journal::{Gate, MemoryJournal};
use proscenium::log::memory::MemoryStore;
use proscenium::serve::maintenance::disk::DiskReserve;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: u64 = 1024 * 1024;

fn server(journal: MemoryJournal, limits: Limits) -> Server {
    let environment = environment(jiff::Timestamp::now);
    Server::new(
        Storage::Memory(MemoryStore::new(), journal),
        Policy::default(),
        FeedConfig::default(),
        limits,
        KeepAlive::default(),
        environment,
    )
    .unwrap()
}

/// Starts a server whose commits pass a gate; returns its client and the gate.
async fn start_with_gate(ingest: IngestLimits) -> (Client, Gate) {
    let (journal, gate) = MemoryJournal::with_gate();
    let server = server(journal, Limits { ingest, ..Limits::default() });
    (serve_until(server, std::future::pending()).await.0, gate)
}

fn started() -> Value {
    json!([{"type": "run.started"}])
}

/// Sends these parts on a new connection, and reads until the server closes it.
async fn send_raw(client: &Client, parts: &[&str], pause: Duration) -> String {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    for part in parts {
        // The server may have answered and closed the connection already.
        let _ = socket.write_all(part.as_bytes()).await;
        tokio::time::sleep(pause).await;
    }
    let mut response = Vec::new();
    let _ = with_timeout("the server's close", socket.read_to_end(&mut response)).await;
    String::from_utf8(response).unwrap()
}

/// Repeats a request until the server answers with this status.
async fn retry_until(what: &str, status: u16, mut ask: impl AsyncFnMut() -> u16) {
    with_timeout(what, async {
        while ask().await != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_json_body_is_rejected_on_both_transports_and_a_steady_one_accepted() {
    let limits = Limits { body_time_max: Duration::from_millis(200), ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    // The server's own socket code reads the first body; hyper reads the second, for its transfer encoding.
    for head in ["content-length: 1000", "transfer-encoding: chunked"] {
        let head =
            format!("POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{head}\r\n\r\n");
        let first = if head.contains("chunked") { "2\r\n[ \r\n" } else { "[ " };
        let answer = send_raw(&client, &[&head, first], Duration::ZERO).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"body_too_slow\""), "{answer}");
    }
    // The bodies of controls, and of answers to them.
    for path in ["/v1/runs/r/controls", "/v1/sessions/s/controls", "/v1/controls/c/ack", "/v1/controls/c/nack"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n");
        let answer = send_raw(&client, &[&head, "{ "], Duration::ZERO).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"body_too_slow\""), "{path}: {answer}");
    }
    // 16 KiB extend the limit by a second.
    let large = json!([fact("text.delta", json!({"payload": {"text": "x".repeat(40_000)}}))]).to_string();
    let head = format!(
        "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        large.len()
    );
    let (first, rest) = large.split_at(large.len() - 10);
    let answer = send_raw(&client, &[&(head + first), rest], Duration::from_millis(300)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_silent_streamed_body_is_ended_and_a_blank_line_counts_as_activity() {
    let limits = Limits { line_time_max: Duration::from_millis(400), ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    let head = "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let line = "17\r\n{\"type\":\"run.started\"}\n\r\n";
    let blank = "1\r\n\n\r\n";
    let answer = send_raw(&client, &[head, line, blank, blank, blank, blank, blank, line], Duration::from_millis(100)).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"body_silent\""), "{answer}");
    assert!(answer.contains("\"accepted\":2"), "the lines before are kept and counted: {answer}");
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 2);
}

#[tokio::test]
async fn connections_per_client_are_limited_and_a_closed_one_frees_its_slot() {
    let limits = Limits { connections_per_client_max: 2, ..Limits::default() };
    let client = start_local_with(FeedConfig::default(), limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(client.at).await.unwrap();
        socket.write_all(b"GET /v1/runs/r/stream HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 15];
        with_timeout("the stream's head", socket.read_exact(&mut first)).await.unwrap();
        held.push(socket);
    }
    let refused = send_raw(&client, &[], Duration::ZERO).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("\"code\":\"too_many_connections_of_client\""), "{refused}");
    assert!(refused.contains("\r\nretry-after: 2\r\n") && refused.contains("\"limit\":2"), "{refused}");
    drop(held);
    retry_until("a free slot", 200, async || {
        let answer =
            send_raw(&client, &["GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"], Duration::ZERO).await;
        if answer.starts_with("HTTP/1.1 200") { 200 } else { 429 }
    })
    .await;
}

#[tokio::test]
async fn a_producer_above_its_rate_gets_a_retry_time_and_others_are_unaffected() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--publish-rate", "1", "--publish-burst", "1000"]);
    let client = &clocked.client;
    let facts = |count: usize| json!(vec![fact("run.status", json!({})); count]);
    client.post_facts("r", &facts(1000)).await.ok();
    let answer = client.post_facts("r", &facts(600)).await;
    let problem = answer.problem(429, "publish_rate");
    // The wait is for six hundred facts, less the time since the first body.
    let wait = problem["retryAfter"].as_u64().unwrap();
    assert!(problem["limit"] == 1 && (1..=600).contains(&wait), "{problem}");
    assert_eq!(answer.headers["retry-after"], wait.to_string().as_str());
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 1000, "the server kept no fact of the body");
    // Another run and a named producer have rates of their own.
    client.post_facts("s", &facts(1000)).await.ok();
    let headers = |seq: &'static str| {
        [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", seq)]
    };
    client.post("/v1/runs/r/facts", &headers("0"), facts(1000).to_string()).await.ok();
    client.post("/v1/runs/r/facts", &headers("1000"), facts(600).to_string()).await.problem(429, "publish_rate");
    clocked.advance(Duration::from_secs(wait)).await;
    client.post_facts("r", &facts(600)).await.ok();
    client.post("/v1/runs/r/facts", &headers("1000"), facts(600).to_string()).await.ok();
    // The server reads a streamed body more slowly, and rejects no fact.
    let lines = to_ndjson(facts(1624).as_array().unwrap());
    let sending = tokio::spawn({
        let client = client.clone();
        async move { client.post_lines("/v1/runs/t/facts", lines).await }
    });
    retry_until("its first facts", 200, async || client.get("/v1/runs/t").await.status).await;
    clocked.advance_until("its last facts", Duration::from_secs(30), async || sending.is_finished()).await;
    assert_eq!(sending.await.unwrap().ok()["accepted"], 1624);
    let events = client.read_events("t", "audience=internal", 1000).await;
    let [first, last] = [0, 1623].map(|at| events[at]["receivedAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    let took = last.duration_since(first).as_secs();
    assert!(took >= 624, "1624 facts less a burst of 1000 take 624 s: {took} s");
}

#[tokio::test]
async fn ingest_above_its_bytes_limit_waits_and_is_then_rejected_with_a_retry_time() {
    let ingest = IngestLimits {
        in_flight_bytes_max: 400,
        wait_max: Duration::from_millis(100),
        shed_bytes_min: 400,
        ..IngestLimits::default()
    };
    let (client, gate) = start_with_gate(ingest).await;
    client.post_facts("r", &started()).await.ok();
    gate.close();
    let large = json!([fact("text.delta", json!({"messageId": "m", "payload": {"text": "x".repeat(500)}}))]);
    let waiting = tokio::spawn({
        let (client, large) = (client.clone(), large.clone());
        async move { client.post_facts("r", &large).await }
    });
    // The budget is used up as soon as that append is in flight.
    wait_for_bytes_in_flight(&client, 400).await;
    let answer = client.post_facts("s", &large).await;
    let problem = answer.problem(503, "busy");
    assert_eq!((&problem["retryAfter"], &answer.headers["retry-after"]), (&json!(1), &"1".parse().unwrap()));
    client.get("/v1/runs/r").await.ok();
    gate.open();
    waiting.await.unwrap().ok();
    client.post_facts("s", &large).await.ok();
}

#[tokio::test]
async fn only_diagnostics_and_metrics_are_shed_under_load() {
    let ingest = IngestLimits { shed_bytes_min: 300, ..IngestLimits::default() };
    let (client, gate) = start_with_gate(ingest).await;
    client.post_facts("r", &started()).await.ok();
    gate.close();
    let large = json!([fact("text.delta", json!({"messageId": "m", "payload": {"text": "x".repeat(500)}}))]);
    let post = |run: &'static str, seq: Option<&'static str>, body: String| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut headers = vec![("content-type", "application/json")];
            if let Some(seq) = seq {
                headers.extend([("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", seq)]);
            }
            client.post(&format!("/v1/runs/{run}/facts"), &headers, body).await.ok()
        })
    };
    let first = post("s", None, large.to_string());
    wait_for_bytes_in_flight(&client, 500).await;
    let mixed = json!([
        fact("diagnostic.changed", json!({"payload": {"kind": "noise"}})),
        fact("text.delta", json!({"messageId": "m", "payload": {"text": "kept"}})),
        fact("metric.changed", json!({"payload": {"usage": {"inputTokens": 3}}})),
        fact("diagnostic.of_their_own", json!({})),
        fact("tool.progress", json!({"toolCallId": "c", "payload": {"message": "kept, too"}})),
    ]);
    let second = post("r", Some("0"), mixed.to_string());
    wait_for_bytes_in_flight(&client, 500 + mixed.to_string().len()).await;
    gate.open();
    first.await.unwrap();
    let receipt = second.await.unwrap();
    assert_eq!(
        (&receipt["accepted"], &receipt["shed"], &receipt["lastSequence"]),
        (&json!(2), &json!(3), &json!(3)),
        "{receipt}"
    );
    // Shed facts count as settled: numbers continue after them, and a repeated body is a duplicate as a whole.
    let again = post("r", Some("0"), mixed.to_string()).await.unwrap();
    assert_eq!((&again["duplicates"], again.get("shed")), (&json!(5), None), "{again}");
    let calm = json!([fact("diagnostic.changed", json!({"payload": {"kind": "noise"}}))]);
    assert_eq!(post("r", Some("5"), calm.to_string()).await.unwrap()["accepted"], 1, "without load nothing is shed");
    let metrics = String::from_utf8(client.get("/metrics").await.body).unwrap();
    assert!(metrics.contains("\nproscenium_facts_shed_total 3\n"), "{metrics}");
}

/// Waits until this many bytes are in flight to the store.
async fn wait_for_bytes_in_flight(client: &Client, bytes: usize) {
    with_timeout("the bytes in flight", async {
        while (crate::ops::read_metric(client, "proscenium_in_flight_bytes").await as usize) < bytes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_nearly_full_disk_rejects_facts_serves_reads_and_recovers() {
    let free = Arc::new(AtomicU64::new(100 * MIB));
    let probe = {
        let free = free.clone();
        Arc::new(move || Ok(free.load(Ordering::SeqCst)))
    };
    let server =
        server(MemoryJournal::default(), Limits::default()).with_disk_reserve(Some(DiskReserve { bytes: 50 * MIB, probe }));
    let client = serve_until(server, std::future::pending()).await.0;
    client.post_facts("r", &started()).await.ok();
    free.store(49 * MIB, Ordering::SeqCst);
    retry_until("the full disk", 507, async || client.post_facts("r", &started()).await.status).await;
    let last = client.get("/v1/runs/r").await.ok()["lastSequence"].clone();
    let answer = client.post_facts("r", &started()).await;
    let problem = answer.problem(507, "disk_full");
    assert_eq!((&problem["limit"], &problem["retryAfter"]), (&json!(50 * MIB), &json!(5)), "{problem}");
    client.post_lines("/v1/runs/r/facts", "{\"type\":\"run.started\"}\n").await.problem(507, "disk_full");
    client.post("/v1/runs/r/settle", &[], "").await.problem(507, "disk_full");
    client.get("/readyz").await.problem(503, "disk_full");
    assert_eq!(client.get("/readyz?for=reads").await.ok()["status"], "ready", "readers are not turned away");
    client.get("/readyz?for=writes").await.problem(400, "bad_query");
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], last, "reads work, and the server accepted nothing");
    free.store(50 * MIB, Ordering::SeqCst);
    retry_until("free disk space", 200, async || client.post_facts("r", &started()).await.status).await;
    assert_eq!(client.get("/readyz").await.ok()["status"], "ready");
}

#[tokio::test]
async fn a_run_above_the_limit_is_rejected_and_existing_runs_continue() {
    let ingest = IngestLimits { logs_max: 2, ..IngestLimits::default() };
    let client = start_local_with(FeedConfig::default(), Limits { ingest, ..Limits::default() }).await;
    client.post_facts("a", &started()).await.ok();
    client.post_facts("b", &started()).await.ok();
    assert_eq!(client.post_facts("c", &started()).await.problem(507, "too_many_runs")["limit"], 2);
    client.post_facts("a", &started()).await.ok();
    assert_eq!(client.get("/v1/runs/c").await.status, 404);
    assert_eq!(client.delete("/v1/runs/a").await.status, 204);
    client.post_facts("c", &started()).await.ok();
}

#[tokio::test]
async fn a_log_with_too_many_subjects_rejects_facts_and_can_still_be_settled() {
    let ingest = IngestLimits { subjects_max: 3, ..IngestLimits::default() };
    let client = start_local_with(FeedConfig::default(), Limits { ingest, ..Limits::default() }).await;
    let call = |n: u8| fact("tool.started", json!({"toolCallId": format!("c{n}"), "payload": {"toolName": "t"}}));
    client.post_facts("a", &json!([call(1), call(2)])).await.ok();
    client.post_facts("a", &json!([call(2), call(3)])).await.ok();
    let refused = client.post_facts("a", &json!([call(4)])).await.problem(422, "too_many_subjects");
    assert_eq!(refused["limit"], 3);
    let refused = client.post_lines("/v1/runs/a/facts", to_ndjson(&[call(4)])).await.problem(422, "too_many_subjects");
    assert_eq!(refused["accepted"], 0);
    assert_eq!(client.read_events("a", "", 100).await.len(), 4);
    client.post_facts("b", &json!([call(4)])).await.ok();
    let settled = client.post("/v1/runs/a/settle", &[], "").await.ok();
    assert_eq!(settled["settled"], true);
}

#[tokio::test]
async fn activities_above_the_limit_are_omitted_and_all_facts_are_accepted() {
    let client = start_local_with(FeedConfig::default(), Limits::default()).await;
    let count = proscenium::projection::activity_set::ACTIVITIES_MAX;
    let task = |n: usize| format!("{{\"type\":\"task.changed\",\"taskId\":\"t{n}\",\"payload\":{{\"status\":\"open\"}}}}\n");
    let receipt = client.post_lines("/v1/runs/r/facts", (0..count).map(task).collect::<String>()).await.ok();
    assert_eq!(receipt["accepted"], count);
    client.append("r", &[fact("action.required", json!({"actionId": "a", "payload": {"kind": "approval"}}))]).await;
    let all = client.get("/v1/runs/r/activities").await.ok();
    let of = |kind: &str| {
        let activities = all["activities"].as_array().unwrap().iter();
        activities.filter(|activity| activity["activityType"] == kind).collect::<Vec<_>>()
    };
    assert_eq!(of("task").len(), count - 1_000 - 1, "a thousand places are reserved for actions, and one for the run");
    assert_eq!(of("run")[0]["content"]["activitiesOmitted"], true);
    assert_eq!(of("action")[0]["content"]["status"], "pending");
    assert_eq!(of("diagnostics")[0]["content"]["entries"][0]["kind"], "too_many_activities");
    assert_eq!(
        client.get(&format!("/v1/runs/r/events?after={}&limit=2", count - 1)).await.ok()["events"].as_array().unwrap().len(),
        2
    );
}
