//! Hostile clients against the real binary.
//!
//! An attack costs at most its sender's own requests, and other clients nothing.
//!
//! Beside each attack a [`Bystander`] requests `/healthz` and posts to a run of its own. The sizes are such that each
//! defect of the review would have blocked the server for several seconds, or have cost hundreds of megabytes, also in
//! a debug build.

use crate::activities::Screen;
use crate::harness::{AUDIENCES, Client, Process, Sse, TRANSPORTS, Transport, fact, serving_cpu_ms_of, to_ndjson, with_timeout};
use crate::redaction::{ended, output, outputs, started, with_hidden_tail};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The most processor time that the serving thread may spend while the bystander waits for one answer, in a debug build.
///
/// What other threads of the server do meanwhile delays no client, but on a busy machine it adds up during a wait.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause between two rounds.
const REST: Duration = Duration::from_millis(10);
const MIB: u64 = 1024 * 1024;
/// How often a cost is measured until it is within its bounds: other work adds to it, and nothing takes away from it.
const ATTEMPTS: usize = 4;

/// A second client on its own thread; every test checks that the server keeps serving it.
struct Bystander {
    stop: Arc<AtomicBool>,
    rounds: std::sync::mpsc::Receiver<()>,
    asking: std::thread::JoinHandle<Waits>,
}

/// The longest waits for an answer, and the number of rounds.
#[derive(Default)]
struct Waits {
    rounds: usize,
    longest: Duration,
    /// The longest part of a wait for `/healthz` in which the serving thread worked: it alone answers that. On a busy
    /// machine the rest of the wait belongs to others.
    worked: Duration,
}

impl Bystander {
    /// Starts to send requests, and returns after the first answers.
    fn beside(server: &Process) -> Self {
        Self::asking(server, &[GET_HEALTH, POST_FACT])
    }

    /// The same with these requests.
    fn asking(server: &Process, requests: &'static [&'static str]) -> Self {
        let (at, process) = (server.at, server.id());
        let (stop, (served, rounds)) = (Arc::new(AtomicBool::new(false)), std::sync::mpsc::channel());
        let asking = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut waits = Waits::default();
                while !stop.load(Ordering::Relaxed) {
                    for request in requests {
                        let (begun, before) = (Instant::now(), serving_cpu_ms_of(process));
                        let answer = Self::ask(at, request).expect("the server answers before the timeout");
                        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
                        let (waited, worked) =
                            (begun.elapsed(), Duration::from_millis(serving_cpu_ms_of(process).saturating_sub(before)));
                        waits.longest = waits.longest.max(waited);
                        if *request == GET_HEALTH {
                            waits.worked = waits.worked.max(worked.min(waited));
                        }
                    }
                    waits.rounds += 1;
                    // The test must not block on it.
                    let _ = served.send(());
                    std::thread::sleep(REST);
                }
                waits
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

    /// Ends after one more round and returns the longest wait for an answer.
    ///
    /// Panics if an answer took too long.
    fn was_served(self, beside: &str) -> Duration {
        while self.rounds.try_recv().is_ok() {}
        self.rounds.recv_timeout(crate::harness::TIMEOUT).expect("the server serves the bystander after the attack");
        self.stop.store(true, Ordering::Relaxed);
        let Waits { rounds, longest, worked } = self.asking.join().expect("every answer to the bystander was 200");
        println!(
            "attack: {beside}: {rounds} rounds, the longest wait {longest:.1?}, in which its serving thread worked {worked:.1?}"
        );
        assert!(worked <= ANSWER_TIME_MAX, "{beside}: the serving thread worked {worked:?} before another client had its answer");
        longest
    }
}

const GET_HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const GET_RUN: &str = "GET /v1/runs/bystander HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
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

/// Sends frames and reads nothing until the server accepts no more or has closed; then reads everything.
///
/// Returns the bytes sent and the close code.
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

// Entry 1. A store that answers nothing for 20 s, and a conflict of two writers, need a gate before the store: tests/it/writers.rs.

/// Sends a request and hangs up before its answer.
async fn send_and_leave(at: SocketAddr, request: &str) {
    let mut socket = with_timeout("a connection", TcpStream::connect(at)).await.unwrap();
    with_timeout("the request to be sent", socket.write_all(request.as_bytes())).await.unwrap();
}

#[tokio::test]
async fn large_bodies_sent_three_times_at_once_to_one_run_are_stored_once_and_in_order() {
    const PRODUCERS: usize = 4;
    const BODIES: usize = 3;
    /// A body of these is large enough that it leaves the serving thread.
    const FACTS: usize = 200;
    let text = |n: usize| format!("{n} {}", "word ".repeat(400));
    let chunk = move |producer: &str, n: usize| fact("text.delta", json!({"messageId": producer, "payload": {"text": text(n)}}));
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let mut writing = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let (client, producer) = (client.clone(), format!("p{producer}"));
        writing.spawn(async move {
            for first in (0..BODIES).map(|body| body * FACTS) {
                let body = json!((first..first + FACTS).map(|n| chunk(&producer, n)).collect::<Vec<_>>()).to_string();
                let seq = first.to_string();
                let headers = [
                    ("content-type", "application/json"),
                    ("producer-id", &*producer),
                    ("producer-epoch", "1"),
                    ("producer-seq", &seq),
                ];
                let head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let length = body.len();
                let request =
                    format!("POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {length}\r\n\r\n{body}");
                let post = || async { client.post("/v1/runs/r/facts", &headers, body.clone()).await.ok() };
                let (one, other, ()) = tokio::join!(post(), post(), send_and_leave(client.at, &request));
                let sum = |member: &str| [&one, &other].map(|receipt| receipt[member].as_u64().unwrap()).iter().sum::<u64>();
                // The client that left may have been the first.
                let (accepted, duplicates, facts) = (sum("accepted"), sum("duplicates"), FACTS as u64);
                assert!(accepted + duplicates == 2 * facts && [0, facts].contains(&accepted), "{one} and {other}");
            }
        });
    }
    let streamed: Vec<_> = (0..BODIES * FACTS).map(|n| chunk("lines", n)).collect();
    let receipt = client.post_lines("/v1/runs/r/facts", to_ndjson(&streamed)).await.ok();
    assert_eq!((&receipt["accepted"], &receipt["duplicates"]), (&json!(BODIES * FACTS), &json!(0)));
    writing.join_all().await;
    beside.was_served("large bodies for one run");
    // All of it was acknowledged, so it outlives the process.
    server.kill();
    let server = Process::start_in(dir.path());
    let stored = client.for_server(server.at).export("r", "audience=internal").await;
    let mut numbers = std::collections::BTreeMap::<&str, Vec<usize>>::new();
    for event in &stored {
        let number = event["payload"]["text"].as_str().unwrap().split(' ').next().unwrap().parse().unwrap();
        numbers.entry(event["messageId"].as_str().unwrap()).or_default().push(number);
    }
    assert_eq!(numbers.len(), PRODUCERS + 1);
    for (producer, numbers) in numbers {
        assert!(numbers.iter().copied().eq(0..BODIES * FACTS), "{producer}: {numbers:?}");
    }
}

// Entries 7 and 11. Restarts between the pieces are in tests/it/redaction.rs.

/// Waits until the server has closed this many idle runs.
///
/// Its sweep has then looked at every silent run, twice.
async fn sweeps_over_silent_runs(client: &Client, idle_runs: f64) {
    let open = || crate::ops::read_metric(client, "proscenium_logs_open");
    let before = open().await;
    with_timeout("the server to close idle runs", async {
        while open().await > before - idle_runs {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_pause_in_which_silent_runs_are_swept_shows_no_hidden_tail_and_redacts_no_address() {
    const IDLE_RUNS: usize = 30;
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let ends: [(&str, Vec<Value>); 4] = [
        ("result", vec![ended()]),
        ("finished", vec![fact("run.finished", json!({}))]),
        ("again", vec![ended(), started("user"), output(" and on", "user"), ended()]),
        ("settled", Vec::new()),
    ];
    // The guard keeps the first in memory, for it may be most of a secret. The other one is saved.
    const TAILS: [(&str, &str); 2] = [("long", "https://internal-host"), ("short", "internal sk-")];
    let all = |pause: &'static str| {
        let ends = ends.iter().map(|(end, facts)| (*end, facts));
        ends.flat_map(move |(end, facts)| TAILS.map(|(size, tail)| (format!("{pause}-{size}-{end}"), tail, facts)))
    };
    let mut readers = Vec::new();
    for pause in ["live", "silent"] {
        for (run, tail, _) in all(pause) {
            for frames in ["events", "activities"] {
                readers.push(client.open_activities(&run, &format!("audience=user&frames={frames}"), None).await);
            }
            client.append(&run, &with_hidden_tail(tail)).await;
        }
    }
    let chunk = |text: &str| fact("text.delta", json!({"messageId": "m", "payload": {"text": text}}));
    let addresses = [("http://localhost:", "3000/ "), ("http://git@host:22", "/x "), ("see sk-learn-contrib-pack", "ages. ")];
    for (n, (before, _)) in addresses.iter().enumerate() {
        client.append(&format!("address-{n}"), &[chunk(before)]).await;
    }
    let end = async |pause: &'static str| {
        for (run, tail, facts) in all(pause) {
            match facts.is_empty() {
                true => drop(client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok()),
                false => drop(client.append(&run, facts).await),
            }
            let [user, dashboard, internal] = outputs(&client, &run).await;
            let and_on = if run.ends_with("again") { " and on" } else { "" };
            assert_eq!((user.as_str(), dashboard.as_str()), (and_on, and_on), "{run}");
            assert_eq!(internal, format!("{tail}{and_on}"), "{run}");
            // So that the readers come to an end.
            client.post(&format!("/v1/runs/{run}/settle"), &[], "").await;
        }
    };
    end("live").await;
    for n in 0..IDLE_RUNS {
        client.append(&format!("idle-{n}"), &[fact("run.status", json!({}))]).await;
    }
    sweeps_over_silent_runs(&client, IDLE_RUNS as f64).await;
    end("silent").await;
    for (n, (before, after)) in addresses.iter().enumerate() {
        let run = format!("address-{n}");
        client.append(&run, &[chunk(after)]).await;
        for audience in AUDIENCES {
            let events = client.read_events(&run, &format!("audience={audience}"), 100).await;
            let text: String = events.iter().filter_map(|event| event["payload"]["text"].as_str()).collect();
            assert_eq!(text, format!("{before}{after}"));
        }
    }
    for reader in &mut readers {
        reader.read_all().await;
        let seen = String::from_utf8_lossy(&reader.bytes);
        assert!(!seen.contains("internal-host") && !seen.contains("sk-"), "a reader of what users see: {seen}");
    }
    beside.was_served("held tails");
}

// Entry 8.

#[tokio::test]
async fn a_web_socket_that_sends_pings_and_reads_no_pongs_is_closed_and_takes_no_memory() {
    let server = Process::start();
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
    let mut readers = Vec::new();
    for query in ["audience=user", "audience=user&frames=events", "audience=user&surface=conversation,runtime_status"] {
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
async fn stalled_readers_that_join_a_large_run_or_its_session_cost_a_page_each() {
    let server = Process::start();
    let client = Client::new(server.at);
    let delta = |message: &str, text: &str| {
        fact("text.delta", json!({"sessionId": "s", "messageId": message, "payload": {"text": text}}))
    };
    let words = "word ".repeat(6500);
    // One activity is larger than a page.
    for _ in 0..32 {
        client.append("r", &[delta("large", &words)]).await;
    }
    for n in 0..ACTIVITIES_MIB * 8 {
        client.append("r", &[0; 4].map(|_| delta(&n.to_string(), &words))).await;
    }
    // The server allocates per-process state for its first readers before the measurement.
    let ways = [(Transport::Raw, ""), (Transport::Hyper, ""), (Transport::Raw, "?surface=conversation")];
    let streams_of = ["/v1/runs/r/stream", "/v1/sessions/s/stream"];
    for path in streams_of {
        let mut first = Sse::open(TcpStream::connect(server.at).await.unwrap(), Transport::Raw, path, &[]).await;
        while first.next_frame().await.kind() != "Hydrated" {}
    }
    let beside = Bystander::beside(&server);
    let before = server.resident_kib();
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for n in 0..READERS {
        // No two rounds of readers join at the same sequence.
        client.append("r", &[delta("0", "more")]).await;
        for path in streams_of {
            for (via, query) in ways {
                streams.push((query, Sse::open(stalling(server.at).await, via, &format!("{path}{query}"), &[]).await));
            }
        }
        for (of, id) in [("run", "r"), ("session", "s")] {
            let subscribe = json!({"op": "subscribe", "id": n, (of): id});
            let mut socket = web_socket(server.at).await;
            socket.write_all(&web_socket_frame(1, subscribe.to_string().as_bytes())).await.unwrap();
            sockets.push(socket);
        }
    }
    // The server has written to each reader as much as its socket accepts.
    beside.was_served("readers that join and read nothing");
    let (grown, readers) = (server.resident_kib().saturating_sub(before) / 1024, streams.len() + sockets.len());
    println!("attack: {readers} stalled readers of {ACTIVITIES_MIB} MiB: {grown} MiB");
    assert!(grown < 64, "{grown} MiB for {readers} readers of {ACTIVITIES_MIB} MiB");
    // Readers that resume reading get the whole snapshot, and then the new events.
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for (query, stream) in &mut streams[..ways.len() * streams_of.len()] {
        let mut screen = Screen::default();
        // The stream of a session stays open.
        while !screen.ended {
            screen.apply(&stream.next_frame().await);
        }
        assert_eq!(screen.hydrated, 1, "{query:?}");
        assert!(
            screen.shown() == Screen::from_page(&client.get(&format!("/v1/runs/r/activities{query}")).await.ok()).shown(),
            "{query:?}"
        );
    }
}

/// What a reader sends that has nothing to send, and the most of it that the system's own buffers take.
const JUNK_BYTES: usize = 96 * MIB as usize;
const BUFFERED_BYTES_MAX: usize = 32 * MIB as usize;

/// Sends junk until the server has closed the connection, accepts no more, or has accepted all of it.
async fn send_junk(mut socket: TcpStream) -> usize {
    let (junk, mut sent) = (vec![b'x'; 64 * 1024], 0);
    while sent < JUNK_BYTES {
        match tokio::time::timeout(Duration::from_millis(500), socket.write(&junk)).await {
            Ok(Ok(written)) => sent += written,
            Ok(Err(_)) | Err(_) => break,
        }
    }
    sent
}

#[tokio::test]
async fn a_reader_that_sends_junk_is_read_for_16_kib_on_every_transport() {
    let server = Process::start();
    let client = Client::new(server.at);
    client.append("r", &[fact("text.delta", json!({"sessionId": "s", "messageId": "m", "payload": {"text": "x"}}))]).await;
    let beside = Bystander::beside(&server);
    let paths = [
        "/v1/runs/r/stream",
        "/v1/runs/r/stream?frames=events",
        "/v1/runs/r/stream?format=ag-ui",
        "/v1/runs/r/stream?format=ai-sdk",
        "/v1/sessions/s/stream",
        "/v1/stream?runs=r",
    ];
    for path in paths {
        for via in TRANSPORTS {
            let mut reader = client.open(via, path, None).await;
            reader.wait_until_open().await;
            let sent = send_junk(reader.into_socket()).await;
            assert!(sent < BUFFERED_BYTES_MAX, "{path} by {via:?}: the server read {sent} bytes of junk");
        }
    }
    // Less than the limit ends no stream: some clients send a line end after a request.
    let mut reader = client.open(Transport::Raw, "/v1/runs/r/stream?frames=events", None).await;
    reader.wait_until_open().await;
    reader.send(&[b'x'; 16 * 1024]).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    assert_eq!(reader.read_all().await.last().unwrap().kind(), "End");
    beside.was_served("readers that send junk");
}

/// The size of each hostile list, in bytes, and the number of subscriptions.
const LIST_BYTES: usize = 2 * MIB as usize;
const SUBSCRIPTIONS: usize = 64;

#[tokio::test]
async fn lists_of_names_beyond_their_limit_are_rejected_and_take_no_memory() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let mut socket = crate::socket::Ws::open(&client).await;
    let many: Vec<String> = (0..LIST_BYTES / 8).map(|n| format!("t{n:06}")).collect();
    let long = "x".repeat(LIST_BYTES);
    let hostile = |n: usize| match n % 5 {
        0 => json!({"type": many}),
        1 => json!({"type": [long]}),
        2 => json!({"surfaces": many}),
        3 => json!({"surface": "hitl,".repeat(LIST_BYTES / 5)}),
        _ => json!({"agentId": long}),
    };
    let ask = |n: usize, filter: Value| {
        let mut message = json!({"op": "subscribe", "id": n, "run": "r", "frames": "events"});
        message.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        message
    };
    socket.request(ask(1000, json!({}))).await;
    let before = server.resident_kib();
    for n in 0..SUBSCRIPTIONS {
        let answer = socket.request(ask(n, hostile(n))).await;
        assert!(["bad_query", "bad_id"].contains(&answer["code"].as_str().unwrap()), "{answer}");
        assert!(answer.to_string().len() < 2000, "the answer repeats the list");
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    // As many names as a list may have are taken, and cost a reader no comparison each.
    let most: Vec<String> = (0..256).map(|n| format!("{n:0>256}")).collect();
    for n in 0..SUBSCRIPTIONS {
        assert_eq!(socket.request(ask(n, json!({"type": most}))).await["op"], "subscribed");
    }
    for n in 0..50 {
        client.append("r", &[fact("run.status", json!({"payload": {"n": n}}))]).await;
    }
    for member in ["type", "surfaces", "surface", "status", "runs"] {
        let names = "a,".repeat(300);
        let path = if member == "runs" {
            "/v1/stream"
        } else if member == "status" {
            "/v1/sessions"
        } else {
            "/v1/runs/r/events"
        };
        let problem = client.get(&format!("{path}?{member}={names}")).await.problem(400, "bad_query");
        assert_eq!(problem["member"], member);
    }
    beside.was_served("filter lists");
    assert!(grown < 64, "{grown} MiB for {SUBSCRIPTIONS} refused filters of {} MiB", LIST_BYTES as u64 / MIB);
}

/// The size of a message with hostile members, below the limit of messages.
const MESSAGE_BYTES: usize = 24 * MIB as usize;

#[tokio::test]
async fn a_large_message_is_rejected_before_its_members_take_memory_and_its_facts_may_be_large() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let mut socket = crate::socket::Ws::open(&client).await;
    socket.request(json!({"op": "ping", "id": 1})).await;
    let before = server.resident_kib();
    let names = vec![r#""t""#; MESSAGE_BYTES / 4].join(",");
    let members: String = (0..MESSAGE_BYTES / 12).map(|n| format!(r#","m{n:06}":1"#)).collect();
    let long = "x".repeat(MESSAGE_BYTES);
    for (message, code, limit) in [
        (format!(r#"{{"op":"subscribe","run":"r","type":[{names}],"id":7}}"#), "bad_query", MIB),
        (format!(r#"{{"op":"subscribe","run":"r","id":7,"lists":[{names}]}}"#), "bad_query", MIB),
        (format!(r#"{{"op":"ping","id":7{members}}}"#), "bad_query", MIB),
        (format!(r#"{{"op":"ping","id":7,"{long}":1}}"#), "bad_query", MIB),
        (format!(r#"{{"op":"submit","id":7,"runId":"r","control":"send","value":"{long}"}}"#), "control_too_large", MIB / 4),
    ] {
        let answer = socket.request_text(message).await;
        assert_eq!((&answer["code"], &answer["id"]), (&json!(code), &json!(7)), "{answer}");
        assert_eq!(answer["limit"], limit, "{answer}");
        assert!(answer.to_string().len() < 2000, "the answer repeats the member");
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    let facts = [fact("text.delta", json!({"messageId": "m", "payload": {"text": "x".repeat(2 * MIB as usize)}}))];
    let answer = socket.request(json!({"op": "publish", "id": 8, "runId": "r", "facts": facts})).await;
    assert_eq!(answer["accepted"], 1, "{answer}");
    beside.was_served("large messages");
    assert!(grown < 5 * MESSAGE_BYTES as u64 / MIB, "{grown} MiB for messages of {MESSAGE_BYTES} bytes");
}

/// The limit of open files, and idle readers beyond it.
const FILES_MAX: usize = 400;
const IDLE_READERS: usize = 300;
/// Facts that fill several segments of the journal.
const SEGMENT_FACTS: usize = 30;

#[tokio::test]
async fn readers_beyond_the_limit_of_open_files_get_503_and_the_store_keeps_its_files() {
    let dir = tempfile::tempdir().unwrap();
    for start in 0..2 {
        let server = Process::start_with_files(dir.path(), FILES_MAX / 4, FILES_MAX);
        // This client keeps its connection.
        let client = Client::new(server.at);
        client.append("r", &[fact("run.started", json!({}))]).await;
        let (mut readers, mut refused) = (Vec::new(), 0);
        for _ in 0..IDLE_READERS {
            let socket = with_timeout("a connection", TcpStream::connect(server.at)).await.unwrap();
            let mut reader = Sse::open(socket, Transport::Raw, "/v1/runs/r/stream", &[]).await;
            match reader.status {
                200 => readers.push(reader),
                503 => {
                    refused += 1;
                    let problem: Value = serde_json::from_slice(&reader.body().await).unwrap();
                    assert_eq!(problem["code"], "too_many_connections", "{problem}");
                }
                other => panic!("status {other}"),
            }
        }
        assert!(readers.len() >= FILES_MAX / 4, "{} readers, the soft limit was not raised", readers.len());
        assert!(refused > 0, "nothing was refused");
        // Clients that are refused and stay take no more than a moment's share of the reserve.
        let mut staying = Vec::new();
        for _ in 0..IDLE_READERS {
            staying.push(with_timeout("a connection", TcpStream::connect(server.at)).await.unwrap());
        }
        let text = "x".repeat(MIB as usize);
        for n in 0..SEGMENT_FACTS {
            let message = format!("{start}-{n}");
            client.append("r", &[fact("text.delta", json!({"messageId": message, "payload": {"text": text}}))]).await;
        }
        client.get("/healthz").await.ok();
        // A place that becomes free is given again.
        drop((readers, staying));
        with_timeout("a free connection", async {
            loop {
                let socket = TcpStream::connect(server.at).await.unwrap();
                match Sse::open(socket, Transport::Raw, "/v1/runs/r/stream", &[]).await.status {
                    200 => break,
                    _ => tokio::time::sleep(REST).await,
                }
            }
        })
        .await;
    }
}

/// Pending actions of one run, and the facts of each kind that follow them.
const PENDING_ACTIONS: usize = 50_000;
const FACTS_BESIDE: usize = 40;

#[tokio::test]
async fn pending_actions_make_no_fact_slower_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let asked = |n: usize| fact("action.required", json!({"actionId": format!("a{n:06}"), "payload": {"title": "x"}}));
    let resolved =
        |n: usize| fact("action.resolved", json!({"actionId": format!("a{n:06}"), "payload": {"outcome": "approved"}}));
    let text = || fact("text.delta", json!({"messageId": "m", "payload": {"text": "x"}}));
    // What the same facts cost where nothing is pending.
    let cost = async |run: &str, attempt: usize| {
        let (before, written) = (server.cpu_ms(), bytes_written(&server));
        let first = attempt * FACTS_BESIDE;
        for n in first..first + FACTS_BESIDE {
            for fact in [text(), asked(PENDING_ACTIONS + n), resolved(n)] {
                client.append(run, &[fact]).await;
            }
        }
        (server.cpu_ms() - before, bytes_written(&server) - written)
    };
    client.append("quiet", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    let (quiet_ms, quiet_bytes) = cost("quiet", 0).await;
    client.append("r", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    let beside = Bystander::beside(&server);
    for first in (0..PENDING_ACTIONS).step_by(2000) {
        client.append("r", &(first..first + 2000).map(asked).collect::<Vec<_>>()).await;
    }
    // The summary has the first 256 of them; a copy of all would be half a megabyte for each fact.
    let bytes_max = quiet_bytes + 120 * 128 * 1024;
    let (mut ms, mut bytes) = (u64::MAX, u64::MAX);
    // Meanwhile the store may write tables of what came before, which each fact is written to once.
    for attempt in 0..ATTEMPTS {
        let (attempt_ms, attempt_bytes) = cost("r", attempt).await;
        (ms, bytes) = (ms.min(attempt_ms), bytes.min(attempt_bytes));
        if bytes < bytes_max {
            break;
        }
    }
    beside.was_served("pending actions");
    println!(
        "attack: 120 facts: {quiet_ms} ms and {quiet_bytes} bytes; beside {PENDING_ACTIONS} pending actions {ms} ms and {bytes} bytes"
    );
    assert!(bytes < bytes_max, "{bytes} bytes were written for 120 facts, {quiet_bytes} without the actions");
    // A restart, from the entries of single actions.
    server.kill();
    let server = Process::start_in(dir.path());
    let client = client.for_server(server.at);
    let counts = async || client.get("/v1/runs/r").await.ok()["counts"]["pendingActions"].as_u64().unwrap() as usize;
    assert_eq!(counts().await, PENDING_ACTIONS);
    client.append("r", &[resolved(PENDING_ACTIONS - 1)]).await;
    assert_eq!(counts().await, PENDING_ACTIONS - 1);
    client.append("r", &[fact("run.finished", json!({}))]).await;
    assert_eq!(counts().await, 0);
    server.kill();
    let server = Process::start_in(dir.path());
    assert_eq!(client.for_server(server.at).get("/v1/runs/r").await.ok()["counts"]["pendingActions"], 0);
}

/// The bytes that a process has written, to files and sockets; 0 where the system does not report them.
fn bytes_written(server: &Process) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", server.id())).unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok()).unwrap_or(0)
}

/// Actions that a run asked, and outputs in one message of a client.
const ASKED_ACTIONS: usize = 4000;
const OUTPUTS: usize = 80_000;
/// Runs of a long thread, and messages of each.
const THREAD_RUNS: usize = 16;
const RUN_MESSAGES: usize = 1500;

#[tokio::test]
async fn long_conversations_of_existing_clients_hold_no_thread() {
    let server = Process::start();
    let client = Client::new(server.at);
    let asked = |n: usize| {
        fact(
            "action.required",
            json!({"actionId": format!("a{n}"), "toolCallId": format!("c{n}"), "payload": {"kind": "tool_approval"}}),
        )
    };
    client.append("asked", &[fact("run.started", json!({"sessionId": "chat"}))]).await;
    for first in (0..ASKED_ACTIONS).step_by(1000) {
        client.append("asked", &(first..first + 1000).map(asked).collect::<Vec<_>>()).await;
    }
    client.append("asked", &[fact("action.resolved", json!({"actionId": "a0", "payload": {"outcome": "approved"}}))]).await;
    let said = |n: usize| fact("text.delta", json!({"messageId": format!("m{n}"), "payload": {"text": "some words"}}));
    for run in 0..THREAD_RUNS {
        let mut facts = vec![fact("run.started", json!({"sessionId": "thread"}))];
        facts.extend((0..RUN_MESSAGES).map(said));
        client.append(&format!("thread-{run}"), &facts).await;
        client.append(&format!("thread-{run}"), &[fact("run.finished", json!({}))]).await;
    }
    let beside = Bystander::beside(&server);
    let json = [("content-type", "application/json")];
    // Outputs of other calls, and the output of one call again and again.
    for call in [|n: usize| format!("z{n}"), |_: usize| "c0".to_owned()] {
        let before = crate::ops::read_metric(&client, "proscenium_appends_total").await;
        let part = |n: usize| json!({"type": "tool-x", "toolCallId": call(n), "state": "output-available", "output": 1});
        let message = json!({"id": "asked", "role": "assistant", "parts": (0..OUTPUTS).map(part).collect::<Vec<_>>()});
        let body = json!({"id": "chat", "messages": [message]}).to_string();
        client.post("/ai-sdk/helper?version=6", &json, body).await.problem(413, "control_too_large");
        let appends = crate::ops::read_metric(&client, "proscenium_appends_total").await - before;
        // The bystander appends as well, but not once for each of them.
        assert!(appends < OUTPUTS as f64 / 20.0, "{appends} appends for one request");
    }
    // Too many values are refused before they take memory.
    let before = server.resident_kib();
    let many = format!("[{}]", vec![r#"{"id":"m","role":"user","content":"x"}"#; 300_000].join(","));
    for (path, ids) in [
        ("/ag-ui/helper", r#""threadId":"t","runId":"r""#),
        ("/copilotkit/agent/helper/run", r#""threadId":"t","runId":"r""#),
        ("/copilotkit/agent/helper/connect", r#""threadId":"t","runId":"r""#),
        ("/ai-sdk/helper", r#""id":"t""#),
    ] {
        let problem = client.post(path, &json, format!("{{{ids},\"messages\":{many}}}")).await.problem(413, "body_too_large");
        assert_eq!(problem["limit"], 500_000, "{path}: {problem}");
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    // Text has commas as well.
    let text = json!({"threadId": "t", "runId": "r", "messages": [{"id": 1, "role": "user", "content": ",".repeat(600_000)}], "state": {"x": ["\"", "\\"]}});
    let mut accepted = Sse::post(TcpStream::connect(server.at).await.unwrap(), "/ag-ui/helper", &text.to_string()).await;
    assert_eq!(accepted.status, 200);
    accepted.wait_until_open().await;
    let page = client.get("/ag-ui/helper?threadId=thread").await.ok();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1000);
    client.get("/ai-sdk/helper/thread?version=6").await.ok();
    let joins = json!({"threadId": "thread", "runId": "x", "messages": []}).to_string();
    let mut joined = Sse::post(TcpStream::connect(server.at).await.unwrap(), "/copilotkit/agent/helper/connect", &joins).await;
    while !String::from_utf8_lossy(&joined.bytes).contains("MESSAGES_SNAPSHOT") {
        joined.read_more().await;
    }
    beside.was_served("long conversations");
    assert!(grown < 128, "{grown} MiB for refused conversations");
}

// Entry 17.

#[tokio::test]
async fn a_request_head_above_the_limit_is_rejected_at_every_position_and_one_below_it_is_not() {
    let server = Process::start();
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
    let before = server.resident_kib();
    let facts = |count| format!("[{}]", vec![r#"{"type":"x"}"#; count].join(","));
    let (body, address) = (facts(15_000), format!("/v1/runs/r/facts?{}", long_ids()));
    let headers = [("content-type", "application/json")];
    let receipt = client.post(&address, &headers, body.clone()).await.ok();
    assert_eq!(receipt["accepted"], 15_000);
    let too_much = client.post(&address, &headers, facts(60_000)).await;
    too_much.problem(413, "envelopes_too_large");
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    let before = server.cpu_ms();
    assert_eq!(client.get("/v1/runs/r/events?limit=1&audience=internal").await.ok()["events"].as_array().unwrap().len(), 1);
    let read = server.cpu_ms() - before;
    beside.was_served("long ids for many facts");
    println!(
        "attack: {} KiB of facts with long ids: {grown} MiB; one event read in {read} ms of processor time",
        body.len() / 1024
    );
    // The envelopes take 53 MiB, once in the append and once on their way to the store. The rest is the allocator's.
    assert!(grown < 180, "{grown} MiB for a body of {} KiB", body.len() / 1024);
    assert!(read < 2000, "{read} ms of processor time for one event");
}

#[tokio::test]
async fn a_body_with_too_many_facts_is_rejected_as_a_whole() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
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
    let beside = Bystander::beside(&server);
    let moves = (0..2000).map(|n| match n % 2 {
        0 => json!({ "op": "move", "from": "/a", "path": "/b" }),
        _ => json!({ "op": "move", "from": "/b", "path": "/a" }),
    });
    client.append("r", &[patch(moves.collect())]).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    while reader.next_frame().await.kind() != "End" {}
    beside.was_served("a patch of many moves");
}

// Entry 13.

#[tokio::test]
async fn bodies_that_wait_for_room_cost_little_more_than_their_text_and_reads_go_on() {
    const BODIES: usize = 8;
    const FACTS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--in-flight-max", "2MiB", "--busy-after-ms", "300000"]);
    let client = Client::new(server.at);
    client.append("bystander", &[fact("run.started", json!({}))]).await;
    // Producers wait for each other here, as they should. Readers do not.
    let beside = Bystander::asking(&server, &[GET_HEALTH, GET_RUN]);
    // Each is 2 MiB of text and, parsed, 32 MiB in memory.
    let one = format!(r#"{{"type":"x","payload":{{"of":[{}]}}}}"#, vec!["1"; 128 * 1024 - 64].join(","));
    let array = bytes::Bytes::from(format!("[{}]", [&*one; FACTS].join(",")));
    let streamed = bytes::Bytes::from([&*one; FACTS].join("\n"));
    let before = server.resident_kib();
    let posts: Vec<_> = (0..BODIES)
        .map(|n| {
            let (client, array, streamed) = (client.clone(), array.clone(), streamed.clone());
            tokio::spawn(async move {
                let path = format!("/v1/runs/r{n}/facts");
                match n % 2 {
                    0 => client.post(&path, &[("content-type", "application/json")], array).await.ok(),
                    // It waits group by group.
                    _ => client.post_lines(&path, streamed).await.ok(),
                }
            })
        })
        .collect();
    let mut peak = before;
    while posts.iter().any(|post| !post.is_finished()) {
        peak = peak.max(server.resident_kib());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for post in posts {
        assert_eq!(post.await.unwrap()["accepted"], FACTS);
    }
    beside.was_served("bodies that wait for room");
    let grown = peak.saturating_sub(before) / 1024;
    println!("attack: {BODIES} bodies of {} KiB at once: {grown} MiB", array.len() / 1024);
    // Their text is 16 MiB; all of them parsed would be a quarter of a GiB.
    assert!(grown < 125, "{grown} MiB for {BODIES} bodies of {} KiB", array.len() / 1024);
}

// Clients that are slow, or that speak another protocol.

#[tokio::test]
async fn slow_and_malformed_clients_delay_no_other_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--head-time-ms", "4000", "--body-time-ms", "4000"]);
    let client = Client::new(server.at);
    // The server builds the description for its first request.
    client.get("/openapi.json").await.ok();
    let beside = Bystander::beside(&server);
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
            "x".repeat(50)
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

// Entry 3.

#[tokio::test]
async fn a_fact_that_takes_too_much_memory_once_parsed_is_refused_and_the_same_as_text_is_not() {
    let server = Process::start();
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let nested = format!("[{}[0]]", "[0],".repeat(2 * MIB as usize));
    let before = server.resident_kib();
    let headers = [("content-type", "application/json")];
    let body = format!(r#"{{"type":"state.snapshot","payload":{{"state":{nested}}}}}"#);
    let problem = client.post("/v1/runs/r/facts", &headers, body.clone()).await.problem(413, "fact_too_large");
    assert_eq!(problem["limit"], 256 * 1024 * 1024);
    assert!(problem["detail"].as_str().unwrap().contains("once it is parsed"), "{problem}");
    let problem = client.post_lines("/v1/runs/r/facts", format!("{body}\n")).await.problem(413, "fact_too_large");
    assert!(problem["bytes"].as_u64() > problem["limit"].as_u64(), "{problem}");
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    assert!(grown < 200, "{grown} MiB for a body of {} KiB", body.len() / 1024);
    let text = fact("tool.result", json!({"toolCallId": "c", "payload": {"output": nested}})).to_string();
    assert_eq!(client.post("/v1/runs/r/facts", &headers, text).await.ok()["accepted"], 1);
    beside.was_served("a fact of nested arrays");
}

// The cost of any body.

/// An array of as many facts as fit into this many bytes, at most as many as a body may have.
fn facts_of(bytes: usize, fact: impl Fn(usize) -> String) -> String {
    const FACTS_MAX: usize = 65_536;
    let count = (bytes / (fact(0).len() + 1)).min(FACTS_MAX);
    format!("[{}]", (0..count).map(fact).collect::<Vec<_>>().join(","))
}

/// One fact of about this many bytes, whose state is an array of these items.
fn fact_of_items(bytes: usize, item: impl Fn(usize) -> String) -> String {
    let count = bytes / (item(0).len() + 1);
    let items = (0..count).map(item).collect::<Vec<_>>().join(",");
    format!(r#"{{"type":"state.snapshot","payload":{{"state":[{items}]}}}}"#)
}

/// What producers usually send: chunks of a few words.
fn ordinary(bytes: usize) -> String {
    facts_of(bytes, |n| {
        format!(
            r#"{{"type":"text.delta","messageId":"m","payload":{{"text":"chunk {n} of the words of a sentence, as a model says them "}}}}"#
        )
    })
}

fn tiny_facts(bytes: usize) -> String {
    facts_of(bytes, |_| r#"{"type":"x"}"#.to_owned())
}

fn distinct_ids(bytes: usize) -> String {
    let of = |n: usize| {
        let class = ["tool.started", "task.changed", "action.required", "text.delta"][n % 4];
        let ids = format!(r#""toolCallId":"c{n:06}","taskId":"t{n:06}","actionId":"a{n:06}","messageId":"m{n:06}""#);
        format!(r#"{{"type":"{class}",{ids},"payload":{{"text":"x","kind":"clarification"}}}}"#)
    };
    facts_of(bytes, of)
}

fn deep_nesting(bytes: usize) -> String {
    // A fact nests 64 levels at most, by default.
    const DEPTH: usize = 28;
    // Parsed, such a fact takes 80 times its text. The server refuses more than 256 MiB.
    fact_of_items(bytes.min(3 * MIB as usize), |_| format!("{}1{}", r#"[{"k":"#.repeat(DEPTH), "}]".repeat(DEPTH)))
}

fn secret_keys(bytes: usize) -> String {
    let member = |n: usize| format!(r#""sk-live-abcdef0123456789{n:07}":1"#);
    let members = (0..bytes / (member(0).len() + 1)).map(member).collect::<Vec<_>>().join(",");
    format!(r#"{{"type":"state.snapshot","payload":{{"state":{{{members}}}}}}}"#)
}

fn secret_texts(bytes: usize) -> String {
    fact_of_items(bytes, |n| format!(r#""sk-live-abcdef0123456789{n:07}""#))
}

fn long_text(bytes: usize) -> String {
    format!(r#"{{"type":"text.delta","messageId":"m","payload":{{"text":"{}"}}}}"#, "http://a:".repeat(bytes / 9))
}

fn long_secret(bytes: usize) -> String {
    let text = format!("-----BEGIN PRIVATE KEY-----{}", "-----END ".repeat(bytes / 9));
    format!(r#"{{"type":"tool.result","toolCallId":"c","payload":{{"output":"{text}"}}}}"#)
}

/// How many times as much as an ordinary body a hostile one may cost by the MiB.
///
/// It is at most six times as much. With the defects of entries 4 and 5 it was from fifty to several thousand times.
const HOSTILE_COST_MAX: f64 = 20.0;
/// Four times the size may cost eight times as much.
///
/// Linear work costs four times, quadratic work sixteen times.
const QUADRUPLE_COST_MAX: f64 = 8.0;
/// Below this, in milliseconds, the clock's ticks and what the server does beside decide.
const COST_NOISE_MS: f64 = 300.0;

/// The processor time that the server spends until its answer to a body, in milliseconds, and how long the answer took.
async fn cost(server: &Process, client: &Client, run: &str, body: String) -> (f64, Duration) {
    let (before, begun) = (server.cpu_ms(), Instant::now());
    client.post(&format!("/v1/runs/{run}/facts"), &[("content-type", "application/json")], body).await.ok();
    ((server.cpu_ms() - before) as f64, begun.elapsed())
}

/// Processor time decides here, and only relative to other bodies in the same run.
///
/// Neither a slow nor a busy machine changes that. The figures of a release build are printed by
/// `PROSCENIUM_TEST_BIN=target/release/proscenium cargo test --test it cost -- --nocapture`.
#[tokio::test]
async fn the_cost_of_a_body_is_linear_in_its_size_and_other_clients_are_served() {
    /// Each shape, and how much of it the serving thread takes itself.
    ///
    /// With its envelopes less than 256 KiB.
    const SHAPES: [(&str, fn(usize) -> String, usize); 8] = [
        ("tiny facts", tiny_facts, 6 * 1024),
        ("distinct ids", distinct_ids, 50 * 1024),
        ("deep nesting", deep_nesting, 250 * 1024),
        ("secret keys", secret_keys, 250 * 1024),
        ("secret texts", secret_texts, 250 * 1024),
        ("a long text", long_text, 250 * 1024),
        ("a long secret", long_secret, 250 * 1024),
        ("ordinary facts", ordinary, 50 * 1024),
    ];
    // The largest fact is 16 MiB by default. A debug build takes ten times as long, so it gets an eighth.
    let is_release = std::env::var_os("PROSCENIUM_TEST_BIN").is_some() || !cfg!(debug_assertions);
    let bytes_max = if is_release { 16 * MIB } else { 2 * MIB } as usize - 1024;
    let dir = tempfile::tempdir().unwrap();
    // There is room for each of them: waiting for room is entry 13.
    let server = Process::start_with(dir.path(), &["--in-flight-max", "4GiB", "--shed-above", "4GiB"]);
    let client = Client::new(server.at);
    let mib = |body: &str| body.len() as f64 / MIB as f64;
    let body = ordinary(2 * MIB as usize);
    let control = mib(&body);
    let control = cost(&server, &client, "control", body).await.0 / control;
    println!("attack: ordinary facts: {control:.0} ms of processor per MiB");
    let mut failed = Vec::new();
    for (name, shape, served_bytes) in SHAPES {
        let run = name.replace(' ', "-");
        let (quarter, whole, served) = (shape(bytes_max / 4), shape(bytes_max), shape(served_bytes));
        let (small_mib, large_mib, served_mib) = (mib(&quarter), mib(&whole), mib(&served));
        let beside = Bystander::beside(&server);
        let (mut small, mut large, mut time) = (f64::MAX, f64::MAX, Duration::MAX);
        let mut excess = None;
        for n in 0..ATTEMPTS {
            small = small.min(cost(&server, &client, &format!("{run}-quarter-{n}"), quarter.clone()).await.0);
            let (processor, answered) = cost(&server, &client, &format!("{run}-whole-{n}"), whole.clone()).await;
            (large, time) = (large.min(processor), time.min(answered));
            excess = if large > QUADRUPLE_COST_MAX * small + COST_NOISE_MS {
                Some(format!("{name}: a quarter takes {small} ms, the whole {large} ms"))
            } else if large > HOSTILE_COST_MAX * control * large_mib + COST_NOISE_MS {
                Some(format!("{name}: {large_mib:.1} MiB take {large} ms"))
            } else {
                None
            };
            if excess.is_none() {
                break;
            }
        }
        let wait = beside.was_served(name);
        let mut held = Duration::MAX;
        for n in 0..if is_release { 8 } else { 1 } {
            held = held.min(cost(&server, &client, &format!("{run}-{n}"), served.clone()).await.1);
        }
        let per_mib = |time: Duration, mib: f64| time.as_secs_f64() * 1000.0 / mib;
        println!(
            "attack: {name}: {large_mib:.1} MiB in {time:.1?}, {:.0} ms per MiB; processor {:.0} ms per MiB, {:.0} for a quarter of it; \
             another client waited {:.1} ms per MiB; {:.0} KiB held the serving thread for at most {held:.1?}",
            per_mib(time, large_mib),
            large / large_mib,
            small / small_mib,
            per_mib(wait, large_mib),
            served_mib * 1024.0,
        );
        failed.extend(excess);
    }
    assert!(failed.is_empty(), "an ordinary MiB takes {control} ms; {failed:?}");
}

// S6.

/// Sessions of one user that each want a program, and the default of `turns-max` for programs.
const SESSIONS: usize = 100;
const PROGRAMS_MAX: usize = 32;

/// A program that counts the turns at work, and answers once the file `go` exists.
const COUNTING_PROGRAM: &str = r#"
while read -r line; do
  : > "$DIR/at-work/$$"
  ls "$DIR/at-work" | wc -l >> "$DIR/counts"
  until [ -e "$DIR/go" ]; do sleep 0.1; done
  rm "$DIR/at-work/$$"
  echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"r","result":"","num_turns":1}'
done
"#;

/// A connected program of this name, with `DIR` in its environment.
fn program(dir: &std::path::Path, name: &str, script: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, script).unwrap();
    let environment = format!("environment = {{ DIR = {:?} }}", dir.to_str().unwrap());
    format!("[{name}]\nprotocol = \"claude-stream-json\"\ncommand = [\"/bin/sh\", {:?}]\n{environment}\n", file.to_str().unwrap())
}

/// Sends a message to an agent in a session, which begins the run of the same name.
async fn send_to(client: &Client, agent: &str, session: &str) {
    let value = json!({ "runId": session, "messages": [{ "id": "u", "role": "user", "content": "Go" }] });
    let body = json!({ "control": "send", "agentId": agent, "value": value }).to_string();
    let sent = client.post(&format!("/v1/sessions/{session}/controls"), &[("content-type", "application/json")], body).await;
    assert_eq!(sent.status, 202, "{sent:?}");
}

async fn wait_until_completed(client: &Client, run: &str) {
    crate::connect::endpoint::wait_for_status(client, run, "completed").await;
}

#[tokio::test]
async fn a_user_with_many_sessions_starts_a_limited_number_of_programs_and_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("at-work")).unwrap();
    let agents = [program(dir.path(), "helper", COUNTING_PROGRAM), program(dir.path(), "other", SILENT_PROGRAM)].concat();
    std::fs::write(dir.path().join("agents.toml"), agents).unwrap();
    let server = Process::start_with(dir.path(), &["--connect-file", dir.path().join("agents.toml").to_str().unwrap()]);
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    for n in 0..SESSIONS {
        send_to(&client, "helper", &format!("flood-{n}")).await;
    }
    let counts = || std::fs::read_to_string(dir.path().join("counts")).unwrap_or_default();
    let all_at_work = async {
        while counts().lines().count() < PROGRAMS_MAX {
            tokio::time::sleep(REST).await;
        }
    };
    with_timeout("as many programs as may work at once", all_at_work).await;
    // Another user's agent works, and a further message to the flooded one waits for its turn.
    send_to(&client, "helper", "patient").await;
    send_to(&client, "other", "elsewhere").await;
    wait_until_completed(&client, "elsewhere").await;
    assert_eq!(counts().lines().count(), PROGRAMS_MAX, "the rest is queued");
    std::fs::write(dir.path().join("go"), "").unwrap();
    wait_until_completed(&client, "patient").await;
    for n in 0..SESSIONS {
        wait_until_completed(&client, &format!("flood-{n}")).await;
    }
    let most = counts().lines().map(|count| count.trim().parse::<usize>().unwrap()).max();
    assert!(most.is_some_and(|most| most <= PROGRAMS_MAX), "{most:?} turns at once");
    assert_eq!(counts().lines().count(), SESSIONS + 1, "each message had one turn");
    beside.was_served("a user with many sessions of a program");
}

/// A program that answers each message with nothing.
const SILENT_PROGRAM: &str = r#"
while read -r line; do
  echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"r","result":"","num_turns":1}'
done
"#;

// S11.

/// The lines that an idle program writes, and the bytes of each: the limit of a line.
const LATE_LINES: u64 = 16;
const LATE_LINE_BYTES: u64 = 16 * MIB;

/// A program that writes large lines, and words of its own, after the end of each turn.
const LATE_PROGRAM: &str = r#"
words() { echo "{\"type\":\"assistant\",\"session_id\":\"s\",\"uuid\":\"$1\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"$1\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"$2\"}]}}"; }
n=0
while read -r line; do
  n=$((n + 1))
  words "own-$n" "turn $n"
  echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"s\",\"uuid\":\"r$n\",\"result\":\"\",\"num_turns\":1}"
  i=0
  while [ $i -lt LINES ]; do head -c BYTES /dev/zero | tr '\0' x; echo; i=$((i + 1)); done
  words "late-$n" "too late"
  : > "$DIR/wrote-$n"
done
"#;

#[tokio::test]
async fn an_idle_program_that_goes_on_writing_takes_no_memory_and_says_nothing_in_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let script = LATE_PROGRAM.replace("LINES", &LATE_LINES.to_string()).replace("BYTES", &(LATE_LINE_BYTES - 1).to_string());
    std::fs::write(dir.path().join("agents.toml"), program(dir.path(), "helper", &script)).unwrap();
    let server = Process::start_with(dir.path(), &["--connect-file", dir.path().join("agents.toml").to_str().unwrap()]);
    let client = Client::new(server.at);
    let beside = Bystander::beside(&server);
    let before = server.resident_kib();
    for n in 1..=2 {
        let value = json!({ "runId": format!("r{n}"), "messages": [{ "id": format!("u{n}"), "role": "user", "content": "Go" }] });
        let body = json!({ "control": "send", "agentId": "helper", "value": value }).to_string();
        client.post("/v1/sessions/s/controls", &[("content-type", "application/json")], body).await;
        wait_until_completed(&client, &format!("r{n}")).await;
        let wrote = async {
            while !dir.path().join(format!("wrote-{n}")).exists() {
                tokio::time::sleep(REST).await;
            }
        };
        with_timeout("the program to write all, because the server reads it", wrote).await;
    }
    let grown = server.resident_kib().saturating_sub(before) / 1024;
    println!("attack: {} MiB of late lines: {grown} MiB", 2 * LATE_LINES * LATE_LINE_BYTES / MIB);
    assert!(grown < 4 * LATE_LINE_BYTES / MIB, "{grown} MiB for lines that nothing reads");
    for n in 1..=2 {
        let events = client.get(&format!("/v1/runs/r{n}/events?audience=internal")).await.ok().to_string();
        assert!(events.contains(&format!("turn {n}")) && !events.contains("too late"), "{events}");
    }
    beside.was_served("an idle program that goes on writing");
}
