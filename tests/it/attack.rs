//! Hostile clients against the real binary: an attack costs at most its sender's own requests, and other clients
//! nothing.
//!
//! Beside each attack a [`Bystander`] requests `/healthz` and posts to a run of its own. The sizes are such that each
//! defect of the review would have blocked the server for several seconds, or have cost hundreds of megabytes, also in
//! a debug build.

use crate::activities::Screen;
use crate::harness::{Client, Process, Sse, Transport, fact, with_timeout};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The longest wait of the bystander for one answer, in a debug build on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause between two rounds.
const REST: Duration = Duration::from_millis(10);
const MIB: u64 = 1024 * 1024;

/// A second client on its own thread; every test checks that the server keeps serving it.
struct Bystander {
    stop: Arc<AtomicBool>,
    rounds: std::sync::mpsc::Receiver<()>,
    asking: std::thread::JoinHandle<(usize, Duration)>,
}

impl Bystander {
    /// Starts to send requests, and returns after the first answers.
    fn beside(at: SocketAddr) -> Self {
        let (stop, (served, rounds)) = (Arc::new(AtomicBool::new(false)), std::sync::mpsc::channel());
        let asking = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let (mut count, mut worst) = (0, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    for request in [GET_HEALTH, POST_FACT] {
                        let begun = Instant::now();
                        let answer = Self::ask(at, request).expect("the server answers within a minute");
                        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
                        worst = worst.max(begun.elapsed());
                    }
                    count += 1;
                    // The test must not block on it.
                    let _ = served.send(());
                    std::thread::sleep(REST);
                }
                (count, worst)
            }
        });
        rounds.recv_timeout(crate::harness::TIMEOUT).expect("the server serves the bystander before the attack");
        Self { stop, rounds, asking }
    }

    fn ask(at: SocketAddr, request: &str) -> std::io::Result<Vec<u8>> {
        let mut socket = std::net::TcpStream::connect(at)?;
        socket.set_read_timeout(Some(crate::harness::TIMEOUT))?;
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// Ends after one more round; panics if an answer took too long.
    fn was_served(self, beside: &str) {
        while self.rounds.try_recv().is_ok() {}
        self.rounds.recv_timeout(crate::harness::TIMEOUT).expect("the server serves the bystander after the attack");
        self.stop.store(true, Ordering::Relaxed);
        let (count, worst) = self.asking.join().expect("every answer to the bystander was 200");
        println!("attack: {beside}: {count} rounds, the longest wait {worst:.1?}");
        assert!(worst <= ANSWER_TIME_MAX, "{beside}: another client waited {worst:?} for an answer, of {ANSWER_TIME_MAX:?}");
    }
}

const GET_HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const POST_FACT: &str = "POST /v1/runs/bystander/facts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n{\"type\":\"run.status\"}";

/// Connects as a client that reads little: its system buffers next to nothing for it.
async fn stalling(at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    with_timeout("a connection", socket.connect(at)).await.unwrap()
}

/// Sends these bytes on a new connection, and reads until the server closes it.
async fn say(at: SocketAddr, what: &[u8]) -> String {
    let (mut reads, mut writes) = with_timeout("a connection", TcpStream::connect(at)).await.unwrap().into_split();
    let mut response = Vec::new();
    let writing = async {
        // The server may have answered and closed the connection already.
        let _ = writes.write_all(what).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        read = with_timeout("the server's close", reads.read_to_end(&mut response)) => drop(read.unwrap()),
        () = writing => {}
    }
    String::from_utf8(response).unwrap()
}

/// Parses the statuses and codes of the responses on a connection.
fn answers(response: &str) -> Vec<(u16, String)> {
    let answer = |text: &str| {
        let status = text.split(' ').next()?.parse().ok()?;
        let code = text.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
        Some((status, code.unwrap_or_default().to_owned()))
    };
    response.split("HTTP/1.1 ").skip(1).filter_map(answer).collect()
}

/// Opens a WebSocket by hand, to send frames that no library would send.
async fn web_socket(at: SocketAddr) -> TcpStream {
    let mut socket = stalling(at).await;
    let head = "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(with_timeout("a handshake", socket.read_u8()).await.unwrap());
    }
    assert!(response.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&response));
    socket
}

/// Builds a client's masked frame; the mask is zero.
fn web_socket_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const FINAL: u8 = 0x80;
    const MASKED: u8 = 0x80;
    const LONG: u8 = 0x7e;
    let head = match payload.len() {
        short @ 0..=125 => vec![FINAL | opcode, MASKED | short as u8],
        long => [&[FINAL | opcode, MASKED | LONG][..], &u16::try_from(long).unwrap().to_be_bytes()].concat(),
    };
    [&head, &[0; 4][..], payload].concat()
}

/// Sends frames and reads nothing until the server accepts no more or has closed; then reads everything. Returns the
/// bytes sent and the close code.
async fn flood(mut socket: TcpStream, frames: &[u8], bytes_max: usize) -> (usize, Option<u16>) {
    let mut sent = 0;
    while sent < bytes_max {
        match tokio::time::timeout(Duration::from_millis(500), socket.write(&frames[sent % frames.len()..])).await {
            Ok(Ok(written)) => sent += written,
            Ok(Err(_)) | Err(_) => break,
        }
    }
    let mut response = Vec::new();
    // The server may have closed the connection with unsent data.
    let _ = with_timeout("the end of the connection", socket.read_to_end(&mut response)).await;
    let mut at = 0;
    while let Some([first, length, ..]) = response.get(at..) {
        let (head, length) = match length {
            126 => (4, usize::from(u16::from_be_bytes([response[at + 2], response[at + 3]]))),
            short => (2, usize::from(*short)),
        };
        if *first == 0x88 {
            return (sent, Some(u16::from_be_bytes([response[at + 2], response[at + 3]])));
        }
        at += head + length;
    }
    (sent, None)
}

// Entry 8.

#[tokio::test]
async fn a_web_socket_that_sends_pings_and_reads_no_pongs_is_closed_and_takes_no_memory() {
    let server = Process::start();
    let beside = Bystander::beside(server.at);
    let before = server.resident_kib();
    let pings = web_socket_frame(9, &[b'x'; 125]).repeat(1000);
    let (mut sent, mut closed) = (0, Vec::new());
    for _ in 0..2 {
        let (one, close) = flood(web_socket(server.at).await, &pings, 48 * MIB as usize).await;
        (sent, closed) = (sent + one, [closed, vec![close]].concat());
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    beside.was_served("endless pings");
    assert!(grown < 32, "{grown} MiB for {} MiB of pings", sent as u64 / MIB);
    assert!(sent < 64 * MIB as usize, "the server still accepts them");
    assert_eq!(closed, [Some(1008); 2]);
}

#[tokio::test]
async fn a_web_socket_that_reads_no_answers_is_paused_and_then_closed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--heartbeat-ms", "700"]);
    let beside = Bystander::beside(server.at);
    let before = server.resident_kib();
    let ping = web_socket_frame(1, br#"{"op":"ping"}"#).repeat(1000);
    // The answer to this message contains the message.
    let long = json!({ "op": "publish", "id": 1, "runId": "r", "source": "x".repeat(60_000), "facts": [] });
    for message in [ping, web_socket_frame(1, long.to_string().as_bytes())] {
        let (sent, closed) = flood(web_socket(server.at).await, &message, 64 * MIB as usize).await;
        assert!(sent < 48 * MIB as usize, "the server still accepts them");
        assert_eq!(closed, Some(1008), "after {sent} bytes");
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    beside.was_served("requests without end");
    assert!(grown < 32, "{grown} MiB");
}

// Entry 10. A test of the ring shows that the ring keeps nothing: the amount here is too small to measure.

#[tokio::test]
async fn a_reader_that_sees_no_event_of_a_run_still_gets_its_last_event_and_its_end() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(server.at);
    let mut readers = Vec::new();
    for query in ["audience=user", "audience=user&frames=events", "audience=user&surface=conversation,run"] {
        let mut reader = client.open_activities("r", query, None).await;
        reader.wait_until_open().await;
        readers.push(reader);
    }
    for n in 0..200 {
        client
            .append("r", &[fact("diagnostic.changed", json!({"audience": "internal", "payload": {"kind": "noise", "n": n}}))])
            .await;
    }
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for mut reader in readers {
        let frames = reader.read_all().await;
        assert_eq!(frames.last().map(|frame| (frame.kind(), frame.sequence())), Some(("End", 201)), "{frames:?}");
    }
    beside.was_served("facts that a reader does not see");
}

// Entry 12.

/// The size of the run's activities in MiB, and the number of readers that join in each way.
const ACTIVITIES_MIB: u64 = 8;
const READERS: usize = 8;

#[tokio::test]
async fn stalled_readers_that_join_a_large_run_cost_a_page_each() {
    let server = Process::start();
    let client = Client::new(server.at);
    // One activity is larger than a page.
    for _ in 0..32 {
        client.append("r", &[fact("text.delta", json!({"messageId": "large", "payload": {"text": "word ".repeat(6500)}}))]).await;
    }
    for n in 0..ACTIVITIES_MIB * 8 {
        let text =
            (0..4).map(|_| fact("text.delta", json!({"messageId": n.to_string(), "payload": {"text": "word ".repeat(6500)}})));
        client.append("r", &text.collect::<Vec<_>>()).await;
    }
    // The server allocates per-process state for its first reader before the measurement.
    let mut first = client.open_activities("r", "", None).await;
    while first.next_frame().await.kind() != "Hydrated" {}
    let beside = Bystander::beside(server.at);
    let before = server.resident_kib();
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for n in 0..READERS {
        // No two readers join at the same sequence.
        client.append("r", &[fact("text.delta", json!({"messageId": "0", "payload": {"text": "more"}}))]).await;
        for (via, query) in [(Transport::Raw, ""), (Transport::Hyper, ""), (Transport::Raw, "?surface=conversation")] {
            streams.push(Sse::open(stalling(server.at).await, via, &format!("/v1/runs/r/stream{query}"), &[]).await);
        }
        let mut socket = web_socket(server.at).await;
        let subscribe = json!({ "op": "subscribe", "id": n, "run": "r" }).to_string();
        socket.write_all(&web_socket_frame(1, subscribe.as_bytes())).await.unwrap();
        sockets.push(socket);
    }
    // The server has written to each reader as much as its socket accepts.
    beside.was_served("readers that join and read nothing");
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    println!("attack: {} stalled readers of {ACTIVITIES_MIB} MiB: {grown} MiB", READERS * 4);
    assert!(grown < 40, "{grown} MiB for {} readers of {ACTIVITIES_MIB} MiB", READERS * 4);
    // Readers that resume reading get the whole snapshot, and then the new events.
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for (stream, query) in streams.iter_mut().zip(["", "", "surface=conversation"]) {
        let mut screen = Screen::default();
        for frame in stream.read_all().await {
            screen.apply(&frame);
        }
        assert!(screen.hydrated == 1 && screen.ended, "{query:?}: {}", screen.hydrated);
        assert!(
            screen.shown() == Screen::from_page(&client.get(&format!("/v1/runs/r/activities?{query}")).await.ok()).shown(),
            "{query:?}"
        );
    }
}

// Entry 17.

#[tokio::test]
async fn a_request_head_above_the_limit_is_rejected_at_every_position_and_one_below_it_is_not() {
    let server = Process::start();
    let beside = Bystander::beside(server.at);
    let before = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for start in ["GET /v1/runs/r/stream", "POST /v1/runs/r/facts", "GET /healthz", "PUT /", "BREW /"] {
        for (first, expected) in [("", vec![]), (before, vec![(200, String::new())])] {
            for bytes in [17 * 1024, 786 * 1024] {
                let head = format!("{first}{start} HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(bytes));
                let refused = [expected.clone(), vec![(431, "head_too_large".to_owned())]].concat();
                assert_eq!(answers(&say(server.at, head.as_bytes()).await), refused, "{start} after {first:?}, {bytes} bytes");
            }
            let many = format!("{first}{start} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
            let refused = [expected, vec![(431, "head_too_large".to_owned())]].concat();
            assert_eq!(answers(&say(server.at, many.as_bytes()).await), refused, "{start} after {first:?}, many headers");
        }
    }
    for more in ["", "content-length: 0\r\n"] {
        let x = "x".repeat(15 * 1024);
        let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}x: {x}\r\n\r\n");
        assert_eq!(answers(&say(server.at, head.as_bytes()).await), [(200, String::new())]);
    }
    beside.was_served("large heads");
}

// Entry 18.

/// A request that an attacker hides behind another one.
const HIDDEN: &str = "POST /v1/runs/hidden/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{\"type\":\"run.started\"}";

#[tokio::test]
async fn an_ambiguous_request_is_rejected_and_nothing_behind_it_is_read() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(server.at);
    let lone = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let length = HIDDEN.len();
    let refused: Vec<(String, u16)> = [
        ("content-length: +2\r\n\r\n{}", 400),
        ("content-length: 0x2\r\n\r\n{}", 400),
        ("content-length: 2, 2\r\n\r\n{}", 400),
        ("content-length: 2\r\ncontent-length: 2\r\n\r\n{}", 400),
        ("content-length: 2\r\ncontent-length: {length}\r\n\r\n{}", 400),
        ("content-length: {length}\r\ncontent-length: 2\r\n\r\n{}", 400),
        ("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        ("transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        ("transfer-encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        ("transfer-encoding: identity\r\n\r\n{}", 501),
        ("content-length : 2\r\n\r\n{}", 400),
        ("transfer-encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        ("x: a\r\n content-length: 2\r\n\r\n", 400),
        ("x: a\r\n\ttransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}", 400),
        ("content-length: 2\n\r\n{}", 400),
        ("content-length: 2\n\n{}", 400),
        ("content-length: 2\r\n\n{}", 400),
        ("x: a\rcontent-length: 2\r\n\r\n{}", 400),
    ]
    .map(|(rest, status)| (rest.replace("{length}", &length.to_string()), status))
    .into();
    for (start, version) in [
        ("POST /v1/runs/r/facts", "HTTP/1.1"),
        ("GET /v1/runs/r/stream", "HTTP/1.1"),
        ("POST /v1/runs/r/controls", "HTTP/1.1"),
        ("PUT /", "HTTP/1.1"),
        ("POST /v1/runs/r/facts", "HTTP/1.0"),
    ] {
        for (rest, status) in &refused {
            for first in ["", lone, "\r\n"] {
                let code = if *status == 400 { "bad_head" } else { "unsupported_transfer_coding" };
                let all =
                    format!("{first}{start} {version}\r\nhost: localhost\r\ncontent-type: application/json\r\n{rest}{HIDDEN}");
                let mut expected = vec![(*status, code.to_owned())];
                if first == lone {
                    expected.insert(0, (200, String::new()));
                }
                let response = say(server.at, all.as_bytes()).await;
                assert_eq!(answers(&response), expected, "{all:?}: {response}");
            }
        }
    }
    // A body with invalid chunks ends the connection.
    for body in ["2\n{}\n0\n\n", "2\r\n{}0\r\n\r\n", "+2\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\n\n", "2;\n{}\r\n0\r\n\r\n"] {
        let all =
            format!("POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{body}{HIDDEN}");
        let response = answers(&say(server.at, all.as_bytes()).await);
        assert!(matches!(response.as_slice(), [] | [(400, _)]), "{body:?}: {response:?}");
    }
    client.get("/v1/runs/hidden").await.problem(404, "no_such_run");
    // The unambiguous form of the same requests is read once.
    let chunked = "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n16;x\r\n{\"type\":\"run.started\"}\r\n0\r\nx: y\r\n\r\n";
    let all = format!("{chunked}{HIDDEN}{chunked}GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(answers(&say(server.at, all.as_bytes()).await), vec![(200, String::new()); 4]);
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 2);
    assert_eq!(client.get("/v1/runs/hidden").await.ok()["lastSequence"], 1);
    beside.was_served("ambiguous requests");
}

#[tokio::test]
async fn data_after_a_rejected_web_socket_handshake_is_not_a_request() {
    let server = Process::start();
    let handshake = "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    for path in ["/v1/ws", "/healthz"] {
        let response = say(server.at, format!("{}{HIDDEN}", handshake.replace("/v1/ws", path)).as_bytes()).await;
        assert_eq!(answers(&response).len(), 1, "{response}");
    }
    Client::new(server.at).get("/v1/runs/hidden").await.problem(404, "no_such_run");
}

// Entries 2, 3 and 6.

/// Builds a query with every id, each of the maximum length.
fn long_ids() -> String {
    let ids = proscenium::model::Ids::MEMBERS.iter().filter(|member| !["runId", "sessionId"].contains(member));
    ids.map(|member| format!("{member}={}&", member.chars().cycle().take(256).collect::<String>())).collect()
}

#[tokio::test]
async fn long_ids_for_many_facts_take_little_memory_and_a_read_costs_its_own_size() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(server.at);
    let before = server.resident_kib();
    let facts = |count| format!("[{}]", vec![r#"{"type":"x"}"#; count].join(","));
    let (body, address) = (facts(15_000), format!("/v1/runs/r/facts?{}", long_ids()));
    let headers = [("content-type", "application/json")];
    let receipt = client.post(&address, &headers, body.clone()).await.ok();
    assert_eq!(receipt["accepted"], 15_000);
    let too_much = client.post(&address, &headers, facts(60_000)).await;
    too_much.problem(413, "envelopes_too_large");
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    let begun = Instant::now();
    assert_eq!(client.get("/v1/runs/r/events?limit=1&audience=internal").await.ok()["events"].as_array().unwrap().len(), 1);
    let read = begun.elapsed();
    beside.was_served("long ids for many facts");
    println!("attack: {} KiB of facts with long ids: {grown} MiB; one event read in {read:.1?}", body.len() / 1024);
    // The envelopes take 53 MiB, once in the append and once on their way to the store.
    assert!(grown < 140, "{grown} MiB for a body of {} KiB", body.len() / 1024);
    assert!(read < ANSWER_TIME_MAX, "{read:?} for one event");
}

#[tokio::test]
async fn a_body_with_too_many_facts_is_rejected_as_a_whole() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(server.at);
    let headers = [("content-type", "application/json")];
    for query in [String::new(), long_ids()] {
        let body = format!("[{}]", vec![r#"{"type":"x"}"#; 300_000].join(","));
        let answer = client.post(&format!("/v1/runs/r/facts?{query}"), &headers, body).await;
        assert_eq!(answer.problem(413, "too_many_facts")["limit"], 65_536);
    }
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    beside.was_served("more facts than a body may have");
}

// Entries 4 and 5.

#[tokio::test]
async fn secret_keys_and_long_keys_delay_no_other_client() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(server.at);
    let secrets: Value =
        (0..8000).map(|n| (format!("sk-live-abcdef0123456789{n:06}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    let long = json!({ "k".repeat(200_000): vec![0; 100_000] });
    let nested = (0..50).fold(json!(vec![0; 100_000]), |inner, n| json!({ format!("{n}{}", "k".repeat(1000)): inner }));
    let nested_long =
        (0..50).fold(json!("end"), |inner, n| json!({ format!("{n}{}", "k".repeat(10_000)): inner, "n": vec![n; 100] }));
    for (name, payload) in [("secrets", secrets), ("long", long), ("nested", nested), ("nested and long", nested_long)] {
        let begun = Instant::now();
        client.append("r", &[fact("custom.fact", json!({ "payload": { "of": payload } }))]).await;
        println!("attack: {name} keys: {:.1?}", begun.elapsed());
    }
    let stored = client.export("r", "audience=internal").await;
    assert!(!stored[0].to_string().contains("sk-live-abcdef0123456789"), "the keys are not redacted");
    beside.was_served("keys that are secrets, or long");
}

// Entry 14.

#[tokio::test]
async fn a_patch_with_many_moves_on_a_large_state_delays_no_other_client() {
    let server = Process::start();
    let client = Client::new(server.at);
    let patch = |operations: Value| fact("state.delta", json!({ "payload": { "patch": operations } }));
    client.append("r", &[patch(json!([{ "op": "add", "path": "/a", "value": {} }]))]).await;
    for n in 0..40 {
        // A larger state would be offloaded to a blob.
        let value = vec![0; 10_000];
        client.append("r", &[patch(json!([{ "op": "add", "path": format!("/a/{n}"), "value": value }]))]).await;
    }
    let mut reader = client.open_activities("r", "", None).await;
    while reader.next_frame().await.kind() != "Hydrated" {}
    let beside = Bystander::beside(server.at);
    let moves = (0..2000).map(|n| match n % 2 {
        0 => json!({ "op": "move", "from": "/a", "path": "/b" }),
        _ => json!({ "op": "move", "from": "/b", "path": "/a" }),
    });
    client.append("r", &[patch(moves.collect())]).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    while reader.next_frame().await.kind() != "End" {}
    beside.was_served("a patch of many moves");
}

// Clients that are slow, or that speak another protocol.

#[tokio::test]
async fn slow_and_malformed_clients_delay_no_other_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--head-time-ms", "1000", "--body-time-ms", "1000"]);
    let client = Client::new(server.at);
    // The server builds the description for its first request.
    client.get("/openapi.json").await.ok();
    let beside = Bystander::beside(server.at);
    let head = "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let half = [
        "P".to_owned(),
        "GET /v1/runs/r/stream HTTP/1.1\r\nhost: localhost\r\nx-half: ".to_owned(),
        format!("{head}content-length: 100000\r\n\r\n["),
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n["),
        format!("{head}content-length: 262145\r\n\r\n["),
        "\x16\x03\x01\x02".to_owned(),
        "GET /v1/runs/r/stream HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
    ];
    let mut held = Vec::new();
    for n in 0..30 * half.len() {
        let mut socket = stalling(server.at).await;
        socket.write_all(half[n % half.len()].as_bytes()).await.unwrap();
        held.push(socket);
    }
    // A head and a body that arrive byte by byte.
    let slow = tokio::spawn(async move {
        let text = format!(
            "{}x-slow: {}\r\ncontent-length: 2\r\n\r\n[]",
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
            "x".repeat(200)
        );
        let mut socket = TcpStream::connect(client.at).await.unwrap();
        socket.set_nodelay(true).unwrap();
        for byte in text.bytes() {
            if socket.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut response = [0; 12];
        with_timeout("the answer to the slow request", socket.read_exact(&mut response)).await.unwrap();
        assert_eq!(&response, b"HTTP/1.1 200");
    });
    // Endless requests without reading the responses.
    let mut many = stalling(server.at).await;
    let requests = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(2000);
    let _ = tokio::time::timeout(Duration::from_secs(2), many.write_all(requests.as_bytes())).await;
    slow.await.unwrap();
    // The server closes connections without a complete request.
    for (n, socket) in held.iter_mut().enumerate().filter(|(n, _)| n % half.len() != 6) {
        let mut response = Vec::new();
        let _ = with_timeout("the server's close", socket.read_to_end(&mut response)).await;
        let response = String::from_utf8_lossy(&response);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{:?}: {response}", half[n % half.len()]);
    }
    drop((held, many));
    beside.was_served("slow and odd clients");
}
