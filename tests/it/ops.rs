//! Operations: metrics, request ids, log lines, readiness, and a graceful stop.

use crate::crash::{Producer, spawn_producers, wait_for_progress};
use crate::harness::{Client, Process, Transport, fact, start_local, start_local_with, with_timeout};
use proscenium::environment::Environment;
use proscenium::feed::FeedConfig;
use proscenium::record::signing::SigningKey;
use proscenium::serve::Limits;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn read_metrics(client: &Client) -> String {
    let answer = client.get("/metrics").await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (200, &"text/plain; version=0.0.4; charset=utf-8".parse().unwrap())
    );
    String::from_utf8(answer.body).unwrap()
}

/// Reads the value of a sample by its name with labels; 0 if it does not exist.
pub async fn read_metric(client: &Client, name: &str) -> f64 {
    parse_sample(&read_metrics(client).await, name).unwrap_or(0.0)
}

fn parse_sample(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn traffic_is_counted_exactly() {
    let client = start_local().await;
    let mut sse = client.open_stream(Transport::Raw, "r", "audience=dashboard", None).await;
    sse.wait_until_open().await;
    let numbered = |seq: &'static str| {
        [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", seq)]
    };
    let body = json!([fact("run.started", json!({})), fact("text.delta", json!({"messageId": "m", "payload": {"text": "hi"}}))]);
    client.post("/v1/runs/r/facts", &numbered("0"), body.to_string()).await.ok();
    client.post("/v1/runs/r/facts", &numbered("0"), body.to_string()).await.ok();
    for n in 1..=2 {
        assert_eq!(sse.next_frame().await.sequence(), n);
    }
    let large = json!([fact("tool.result", json!({"toolCallId": "c", "payload": {"output": "x".repeat(40_000)}}))]);
    client.post_facts("r", &large).await.ok();
    client.post_facts("r", &json!([7])).await.problem(422, "not_an_object");
    client.post("/v1/runs/r/facts", &numbered("9"), body.to_string()).await.problem(409, "producer_gap");
    client.post_lines("/v1/runs/r/facts", "{\"type\":\"run.status\"}\nnot json\n").await.problem(422, "not_json");
    client.get("/nowhere").await.problem(404, "no_such_address");
    client.post("/v1/runs/r/settle", &[], "").await.ok();
    while sse.next().await.is_some() {}
    // The reader's end counts as soon as the server has noticed it.
    with_timeout("the reader's end", async {
        while read_metric(&client, "proscenium_readers{audience=\"dashboard\",transport=\"sse\"}").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let text = read_metrics(&client).await;
    for (name, expected) in [
        ("proscenium_facts_accepted_total", 4.0),
        ("proscenium_facts_duplicate_total", 2.0),
        ("proscenium_facts_shed_total", 0.0),
        ("proscenium_publishes_refused_total{code=\"not_an_object\"}", 1.0),
        ("proscenium_publishes_refused_total{code=\"producer_gap\"}", 1.0),
        ("proscenium_publishes_refused_total{code=\"not_json\"}", 1.0),
        ("proscenium_problems_total{code=\"not_an_object\"}", 1.0),
        ("proscenium_problems_total{code=\"no_such_address\"}", 1.0),
        // Four facts, and the end that the server appended.
        ("proscenium_envelopes_total", 5.0),
        ("proscenium_blobs_total", 1.0),
        ("proscenium_blob_bytes_total", 40_000.0),
        ("proscenium_runs_settled_total", 1.0),
        ("proscenium_runs_stale_total", 0.0),
        ("proscenium_in_flight_bytes", 0.0),
        ("proscenium_appends_waiting", 0.0),
        ("proscenium_logs", 1.0),
        ("proscenium_store_bytes", 0.0),
        ("proscenium_lag_seconds", 0.0),
        ("proscenium_ring_misses_total", 0.0),
        ("proscenium_checkpoints_total", 0.0),
        ("proscenium_readers{audience=\"user\",transport=\"ws\"}", 0.0),
        (concat!("proscenium_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        assert_eq!(parse_sample(&text, name), Some(expected), "{name} in {text}");
    }
    // Two facts, the run's status, and its end: the audience does not see the result.
    assert_eq!(parse_sample(&text, "proscenium_frames_total"), Some(4.0), "{text}");
    let between = |name: &str, least: f64, most: f64| {
        let is = parse_sample(&text, name).unwrap();
        assert!((least..=most).contains(&is), "{name} is {is} in {text}");
    };
    // Rejected and repeated bodies wait for their predecessors, and count as empty appends; so do those to the server's log.
    between("proscenium_appends_total", 4.0, 12.0);
    between("proscenium_commit_seconds_count", 1.0, 12.0);
    assert_eq!(
        parse_sample(&text, "proscenium_commit_seconds_bucket{le=\"+Inf\"}"),
        parse_sample(&text, "proscenium_commit_seconds_count")
    );
    between("proscenium_deliver_seconds_count", 1.0, 5.0);
    between("proscenium_deliveries_total{transport=\"sse\"}", 2.0, 5.0);
    assert_eq!(parse_sample(&text, "proscenium_deliveries_total{transport=\"ws\"}"), Some(0.0));
    let now = jiff::Timestamp::now().as_second() as f64;
    between("process_start_time_seconds", now - 60.0, now + 1.0);
    between("proscenium_connections", 1.0, 4.0);
    // Every sample belongs to a described metric, and every metric has a sample.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {name} ")) || text.contains(&format!("# TYPE {of} histogram")), "{line}");
    }
}

#[tokio::test]
async fn runs_are_counted_by_status_and_their_ends_by_agent() {
    let client = start_local().await;
    for (run, agent, end) in [
        ("a", "coder", Some("run.finished")),
        ("b", "coder", Some("run.failed")),
        ("c", "the \"writer\"", Some("run.finished")),
        ("d", "coder", None),
    ] {
        client.append(run, &[fact("run.started", json!({ "agentId": agent }))]).await;
        if let Some(end) = end {
            client.append(run, &[fact(end, json!({}))]).await;
        }
    }
    // What comes after the end is no other end.
    client.append("a", &[fact("run.status", json!({ "payload": { "message": "late" } }))]).await;
    let samples = [
        ("proscenium_runs{status=\"accepted\"}", 1.0),
        ("proscenium_runs{status=\"completed\"}", 2.0),
        ("proscenium_runs{status=\"failed\"}", 1.0),
        ("proscenium_runs_ended_total{agent=\"coder\",status=\"completed\"}", 1.0),
        ("proscenium_runs_ended_total{agent=\"coder\",status=\"failed\"}", 1.0),
        ("proscenium_runs_ended_total{agent=\"the \\\"writer\\\"\",status=\"completed\"}", 1.0),
        ("proscenium_run_seconds_bucket{agent=\"coder\",le=\"604800\"}", 2.0),
        ("proscenium_run_seconds_count{agent=\"coder\"}", 2.0),
    ];
    let text = read_metrics(&client).await;
    for (name, expected) in samples {
        assert_eq!(parse_sample(&text, name), Some(expected), "{name} in {text}");
    }
    assert_eq!(client.delete("/v1/runs/b").await.status, 204);
    let text = read_metrics(&client).await;
    assert_eq!(parse_sample(&text, "proscenium_runs{status=\"failed\"}"), Some(0.0), "{text}");
    assert_eq!(parse_sample(&text, samples[4].0), Some(1.0), "{text}");
}

#[tokio::test]
async fn ring_misses_and_readers_per_audience_and_transport_are_counted() {
    let client = start_local_with(FeedConfig { ring_bytes_max: 2000, ..FeedConfig::default() }, Limits::default()).await;
    let facts = vec![fact("text.delta", json!({"messageId": "m", "payload": {"text": "x".repeat(500)}})); 20];
    let mut first = client.open_stream(Transport::Hyper, "r", "audience=internal", None).await;
    first.wait_until_open().await;
    for fact in &facts {
        client.append("r", std::slice::from_ref(fact)).await;
    }
    assert_eq!(first.next_frame().await.sequence(), 1);
    let mut second = client.open_stream(Transport::Raw, "r", "audience=user", None).await;
    assert_eq!(second.next_frame().await.sequence(), 1);
    let text = read_metrics(&client).await;
    assert_eq!(parse_sample(&text, "proscenium_readers{audience=\"internal\",transport=\"sse\"}"), Some(1.0), "{text}");
    assert_eq!(parse_sample(&text, "proscenium_readers{audience=\"user\",transport=\"sse\"}"), Some(1.0), "{text}");
    assert!(parse_sample(&text, "proscenium_ring_misses_total").unwrap() >= 1.0, "the first events are in the log only: {text}");
}

#[tokio::test]
async fn every_response_has_a_request_id_and_a_problem_names_it() {
    let client = start_local().await;
    let given = [("x-request-id", "trace-7/a"), ("content-type", "application/json")];
    // On the server's own socket code, and on hyper.
    for path in ["/v1/runs/r/facts", "/v1/runs/r/settle"] {
        let answer = client.post(path, &given, "nonsense").await;
        assert_eq!(answer.headers["x-request-id"], "trace-7/a", "{path}");
        assert!(answer.status >= 400 && answer.json()["requestId"] == "trace-7/a", "{answer:?}");
        assert_eq!(answer.headers["content-length"].to_str().unwrap(), answer.body.len().to_string());
    }
    client.post_facts("r", &json!([{"type": "run.started"}])).await.ok();
    for (path, resume) in [("/healthz", false), ("/v1/runs/r", false), ("/v1/runs/r/stream", true)] {
        if resume {
            for via in crate::harness::TRANSPORTS {
                let stream = client.open(via, path, None).await;
                assert!(!stream.headers["x-request-id"].is_empty(), "{via:?}");
            }
            continue;
        }
        let ids: Vec<_> = [0, 1].map(|_| client.get_with(path, &[("x-request-id", "no id")])).into_iter().collect();
        let mut generated = Vec::new();
        for id in ids {
            generated.push(id.await.headers["x-request-id"].clone());
        }
        assert!(generated[0] != generated[1] && generated[0] != "no id", "{generated:?}");
    }
    let posted = client.post_facts("r", &json!([{"type": "run.status"}])).await;
    assert!(!posted.headers["x-request-id"].is_empty());
}

#[tokio::test]
async fn each_request_logs_one_line_with_its_route_and_without_its_query() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_proscenium"))
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn,proscenium::access=debug",
            "--log-format",
            "json",
            "--data-dir",
        ])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = Client::new(line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap());
    let headers = [("x-request-id", "one"), ("content-type", "application/json")];
    client.post("/v1/runs/r/facts?sessionId=hidden-query", &headers, "{\"type\":\"run.started\"}").await.ok();
    client.get_with("/v1/runs/r?ticket=hidden-query", &[("x-request-id", "two")]).await.ok();
    client.get_with("/v1/runs/none", &[("x-request-id", "three")]).await.problem(404, "no_such_run");
    let mut stream = client.open(Transport::Raw, "/v1/runs/r/stream?ticket=hidden-query", None).await;
    stream.wait_until_open().await;
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let stderr = BufReader::new(child.stderr.take().unwrap()).lines().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(stderr.iter().all(|line| !line.contains("hidden-query")), "{stderr:?}");
    let access_lines: Vec<Value> = stderr.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let access_lines: Vec<&Value> = access_lines.iter().filter(|line| line["target"] == "proscenium::access").collect();
    let of = |line: &Value| ["level", "method", "route", "run", "status", "code"].map(|member| line[member].clone());
    let expected = [
        json!(["DEBUG", "POST", "/v1/runs/{run}/facts", "r", 200, null]),
        json!(["DEBUG", "GET", "/v1/runs/{run}", "r", 200, null]),
        json!(["INFO", "GET", "/v1/runs/{run}", "none", 404, "no_such_run"]),
        json!(["DEBUG", "GET", "/v1/runs/{run}/stream", "r", 200, null]),
    ];
    assert_eq!(access_lines.iter().map(|line| json!(of(line))).collect::<Vec<_>>(), expected, "{stderr:#?}");
    assert_eq!(
        ["one", "two", "three"].map(Value::from).to_vec(),
        access_lines[..3].iter().map(|line| line["request"].clone()).collect::<Vec<_>>()
    );
    assert!(access_lines.iter().all(|line| line["micros"].is_u64() && line["timestamp"].is_string()), "{access_lines:#?}");
}

#[tokio::test]
async fn a_stopping_server_is_unready_at_once_and_ends_streams_during_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_with(dir.path(), &["--drain-ms", "1500"]);
    let client = Client::new(server.at);
    client.append("r", &[json!({"type": "run.started"})]).await;
    let mut streams = Vec::new();
    for n in 0..8 {
        let mut stream = client.open_stream(crate::harness::TRANSPORTS[n % 2], "r", "", None).await;
        assert_eq!(stream.next_frame().await.sequence(), 1);
        streams.push(stream);
    }
    assert_eq!(client.get("/readyz").await.ok()["status"], "ready");
    // A body in transit gets the number of its accepted facts.
    let mut body = TcpStream::connect(server.at).await.unwrap();
    body.write_all(
        b"POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
    )
    .await
    .unwrap();
    body.write_all(b"16\r\n{\"type\":\"run.status\"}\n\r\n").await.unwrap();
    assert_eq!(streams[0].next_frame().await.sequence(), 2);
    server.terminate();
    // A new connection each time, like a probe.
    let probe = async |path: &str| {
        let mut socket = TcpStream::connect(server.at).await.ok()?;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.ok()?;
        (!answer.is_empty()).then_some(answer)
    };
    let refused = with_timeout("the server's reaction to the signal", async {
        loop {
            // A connection stays open for the next request until the signal has arrived.
            match tokio::time::timeout(Duration::from_millis(200), probe("/readyz")).await {
                Ok(Some(answer)) if answer.starts_with("HTTP/1.1 503") => break answer,
                _ => {}
            }
        }
    })
    .await;
    assert!(refused.contains("\r\nretry-after: 1\r\n") && refused.contains("\"code\":\"stopping\""), "{refused}");
    let health = probe("/healthz").await;
    assert!(health.is_none_or(|health| health.starts_with("HTTP/1.1 200")), "the server is healthy until it exits");
    for stream in &mut streams {
        while let Some(frame) = stream.next().await {
            assert_ne!(frame.kind(), "End", "End would mean that the run has ended");
        }
    }
    let mut answer = String::new();
    with_timeout("the response to the body", body.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\"accepted\":1"), "{answer}");
    assert!(server.wait().success(), "a requested stop exits with success");
}

#[tokio::test]
async fn a_stopping_server_with_one_worker_ends_idle_streams_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than the pause between two looks at the streams, so that some of them are to end later than a look.
    let mut server = Process::start_with(dir.path(), &["--drain-ms", "2000", "--workers", "1"]);
    let client = Client::new(server.at);
    for run in ["r", "q"] {
        client.append(run, &[json!({"type": "run.started", "sessionId": "s"})]).await;
    }
    let (mut streams, mut cut) = (Vec::new(), Vec::new());
    let paths = [
        "/v1/runs/r/stream",
        "/v1/runs/r/stream?format=ag-ui",
        "/v1/sessions/s/stream",
        "/v1/stream?runs=r,q",
        "/v1/lists/stream?runs=true",
    ];
    for path in paths.iter().cycle().take(8 * paths.len()) {
        let mut stream = client.open(Transport::Raw, path, None).await;
        stream.wait_until_open().await;
        // A stream in a format of clients is cut, so that it does not look complete.
        let ends = if path.contains("format") { &mut cut } else { &mut streams };
        ends.push(stream);
    }
    server.terminate();
    for stream in &mut streams {
        stream.read_to_end().await;
    }
    assert!(server.wait().success(), "a requested stop exits with success");
}

#[tokio::test]
async fn a_server_that_is_asked_to_stop_during_its_start_stops() {
    let dir = tempfile::tempdir().unwrap();
    // A NATS server that says nothing, so that the start waits.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", silent.local_addr().unwrap());
    let mut command = Process::command(dir.path(), "warn");
    let key = dir.path().join("key.pem");
    std::fs::write(&key, SigningKey::generate(Environment::SYSTEM).to_pem()).unwrap();
    let cluster = ["--cluster", &url, "--cluster-name", "c", "--signing-key", key.to_str().unwrap()];
    let mut server = command.args(cluster).spawn().unwrap();
    let _waiting = with_timeout("the server's connection", silent.accept()).await.unwrap();
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    let status = with_timeout("the end of the server", tokio::task::spawn_blocking(move || server.wait())).await;
    assert!(status.unwrap().unwrap().success(), "a requested stop exits with success");
}

#[tokio::test]
async fn a_stop_under_load_keeps_every_acknowledged_fact() {
    let dir = tempfile::tempdir().unwrap();
    let producers: Vec<_> = (0..8).map(|n| Arc::new(Producer::new(format!("r{n}"), n % 2 == 1))).collect();
    for round in 0..3 {
        let mut server = Process::start_with(dir.path(), &["--drain-ms", "300"]);
        let client = Client::new(server.at);
        let base = format!("http://{}", server.at);
        let producing = spawn_producers(&producers, &base);
        let mut readers = Vec::new();
        for n in 0..16 {
            let mut stream =
                client.open_stream(crate::harness::TRANSPORTS[n % 2], &format!("r{}", n % 8), "audience=internal", None).await;
            readers.push(tokio::spawn(async move {
                let mut last = 0;
                while let Some(frame) = stream.next().await {
                    assert_eq!(frame.sequence(), last + 1, "each event once and in order");
                    last = frame.sequence();
                }
                (n % 8, last)
            }));
        }
        // Waits until the server is under load, however slow the machine is.
        wait_for_progress(&producers, 40).await;
        tokio::time::sleep(Duration::from_millis(150 * round)).await;
        server.terminate();
        for task in producing {
            with_timeout("a producer's end", task).await.unwrap();
        }
        let mut seen = [0; 8];
        for reader in readers {
            let (run, last) = with_timeout("a reader's end", reader).await.unwrap();
            seen[run] = last.max(seen[run]);
        }
        assert!(server.wait().success());
        let server = Process::start_in(dir.path());
        let client = Client::new(server.at);
        for (producer, seen) in producers.iter().zip(seen) {
            let there = producer.check(&client).await;
            assert!(there >= seen, "{seen} events were shown, {there} are stored");
        }
    }
    let all: u64 = producers.iter().map(|producer| producer.acknowledged.load(Ordering::SeqCst)).sum();
    assert!(all > 100, "too little load: {all}");
}
