//! The cost of stalled readers for other readers and for the server.
//!
//! Readers of one run get facts at a steady pace: first alone, then beside as many readers that read nothing. One run
//! of the test compares the latency of the active readers and the growth of the server's memory. The socket of a
//! stalled reader accepts no more bytes, so that the server must keep data for it. Between two processes of one machine
//! the system would buffer megabytes first; the test therefore sets a segment size usual on networks.
//!
//! `PROSCENIUM_STALLED=2000 cargo test --release --test it load -- --nocapture` measures at full size and checks the
//! memory limit. The plain test only requires that the stalled readers stall, and that every reader gets every fact.

use crate::harness::{Client, Process, Transport, fact, with_timeout};
use serde_json::json;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The size of a fact's text, in bytes.
const TEXT_BYTES: usize = 4096;
/// Facts per measured stretch, and before it.
const FACTS: u64 = 200;
const FACTS_BEFORE: u64 = 64;
/// The time per delivery: the interval between facts is this, times the number of active readers.
const PAUSE: Duration = Duration::from_micros(50);
/// The receive buffer of a stalled reader, in bytes, and its segment size.
const STALLED_BUFFER: u32 = 4096;
const STALLED_SEGMENT: u32 = 1460;
/// The limits of a stalled reader's cost, in KiB, and of the latency's growth, as a factor.
const STALLED_KIB_MAX: f64 = 20.0;
const LATENCY_FACTOR_MAX: f64 = 1.5;

/// Opens a stream of events, and reads the first byte of its body.
async fn open_stream(at: SocketAddr, stalls: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if stalls {
        socket.set_recv_buffer_size(STALLED_BUFFER).unwrap();
        socket2::SockRef::from(&socket).set_tcp_mss(STALLED_SEGMENT).unwrap();
    }
    let mut stream = with_timeout("a TCP connection", socket.connect(at)).await.unwrap();
    stream.write_all(b"GET /v1/runs/r/stream?frames=events&after=now HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    with_timeout("a response head", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

/// Reads events up to the one with this number; returns each event's latency in microseconds.
async fn read_latencies(stream: &mut TcpStream, begun: Instant, last: u64) -> Vec<u64> {
    let (mut came, mut took, mut text) = (Vec::new(), Vec::new(), Vec::with_capacity(64 * 1024));
    loop {
        text.clear();
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "the stream ended early");
        let now = begun.elapsed().as_micros() as u64;
        came.extend_from_slice(&text);
        while let Some(end) = memchr::memmem::find(&came, b"\n\n") {
            let block: Vec<u8> = came.drain(..end + 2).collect();
            let number = |name: &[u8]| {
                let from = memchr::memmem::find(&block, name)? + name.len();
                std::str::from_utf8(&block[from..]).ok()?.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
            };
            let (Some(sent), Some(n)) = (number(b"\"sentMicros\":"), number(b"\"n\":")) else { continue };
            took.push(now.saturating_sub(sent));
            if n == last {
                return took;
            }
        }
    }
}

/// Publishes these facts at a steady pace; returns the 99th percentile of their latency.
async fn p99(client: &Client, readers: &mut Vec<TcpStream>, begun: Instant, numbers: Range<u64>) -> Duration {
    let last = numbers.end - 1;
    let reading: Vec<_> = readers
        .drain(..)
        .map(|mut stream| {
            tokio::spawn(async move {
                let took = read_latencies(&mut stream, begun, last).await;
                (stream, took)
            })
        })
        .collect();
    let count = numbers.end - numbers.start;
    let mut pace = tokio::time::interval(PAUSE * reading.len() as u32);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in numbers {
        pace.tick().await;
        let sent = begun.elapsed().as_micros() as u64;
        let payload = json!({"n": n, "sentMicros": sent, "text": "x".repeat(TEXT_BYTES)});
        client.append("r", &[fact("text.delta", json!({"messageId": n.to_string(), "payload": payload}))]).await;
    }
    let mut all = Vec::new();
    for reading in reading {
        let (stream, took) = with_timeout("an active reader", reading).await.unwrap();
        assert_eq!(took.len() as u64, count, "each fact arrives once");
        all.extend(took);
        readers.push(stream);
    }
    all.sort_unstable();
    Duration::from_micros(all[all.len() * 99 / 100])
}

/// The bytes that the system holds from the server for each of these connections, by its socket table; `None` if it has
/// none.
fn queued_for(at: SocketAddr, readers: &[TcpStream]) -> Option<Vec<usize>> {
    let ports: HashSet<u16> = readers.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let port = |address: &str| u16::from_str_radix(address.split(':').nth(1)?, 16).ok();
    let queued = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (port(words.next()?)?, port(words.next()?)?);
        let queued = usize::from_str_radix(words.nth(1)?.split(':').next()?, 16).ok()?;
        (local == at.port() && ports.contains(&remote)).then_some(queued)
    };
    Some(table.lines().filter_map(queued).collect())
}

/// Counts the connections to which the server cannot have written all of these bytes; `None` if the system does not say.
fn stalled_count(at: SocketAddr, stalled: &[TcpStream], bytes: usize) -> Option<usize> {
    let queued = queued_for(at, stalled)?.into_iter();
    Some(queued.filter(|queued| *queued > 0 && queued + 4 * (STALLED_BUFFER as usize) < bytes).count())
}

#[tokio::test]
async fn the_system_holds_little_for_a_reader_that_stops_reading() {
    const FACTS: usize = 4000;
    let server = Process::start();
    let client = Client::new(server.at);
    client.append("r", &[fact("run.started", json!({}))]).await;
    let mut stalled = vec![open_stream(server.at, false).await];
    // The system gives a fast reader large buffers.
    let read = tokio::spawn(async move {
        let mut bytes = vec![0; 4 * 1024 * 1024];
        with_timeout("the first events", stalled[0].read_exact(&mut bytes)).await.unwrap();
        stalled
    });
    let text = "x".repeat(TEXT_BYTES);
    let facts: Vec<_> =
        (0..FACTS).map(|n| fact("text.delta", json!({"messageId": n.to_string(), "payload": {"text": text}}))).collect();
    for some in facts.chunks(100) {
        client.append("r", some).await;
    }
    let stalled = read.await.unwrap();
    client.append("r", &[fact("run.finished", json!({}))]).await;
    // The server has written what it can to the one reader when another has everything.
    client.open_stream(Transport::Raw, "r", "", None).await.read_all().await;
    let queued = queued_for(server.at, &stalled);
    println!("load: {queued:?} bytes wait in the system for a reader that stopped reading");
    assert!(queued.is_none_or(|queued| queued[0] <= 256 * 1024));
}

#[tokio::test]
async fn stalled_readers_do_not_delay_the_others() {
    let configured: Option<usize> = std::env::var("PROSCENIUM_STALLED").ok().and_then(|n| n.parse().ok());
    let each = configured.unwrap_or(40);
    let mut server = Process::start();
    let client = Client::new(server.at);
    client.append("r", &[fact("run.started", json!({}))]).await;
    let begun = Instant::now();
    let mut healthy = Vec::new();
    for _ in 0..each {
        healthy.push(open_stream(server.at, false).await);
    }
    let mut n = 0;
    let mut numbers = |count: u64| {
        n += count;
        n - count..n
    };
    // The server allocates per-process state for its first readers and facts before the measurement.
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE + FACTS)).await;
    let unread = server.resident_kib();
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE)).await;
    let alone = p99(&client, &mut healthy, begun, numbers(FACTS)).await;
    let before = server.resident_kib();

    let mut stalled = Vec::new();
    for _ in 0..each {
        stalled.push(open_stream(server.at, true).await);
    }
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE)).await;
    let is_all = || stalled_count(server.at, &stalled, FACTS_BEFORE as usize * TEXT_BYTES).is_none_or(|count| count == each);
    with_timeout("the stall of all readers", async {
        while !is_all() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let last = numbers(FACTS);
    let beside = p99(&client, &mut healthy, begun, last.clone()).await;
    assert!(is_all(), "the readers do not stall");
    let kib = |from: u64, to: u64| to.saturating_sub(from) as f64 / each as f64;
    let (own, grown) = (kib(unread, before), kib(before, server.resident_kib()));
    let slower = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "load: {each} healthy readers: p99 {alone:.1?} alone, {beside:.1?} beside {each} stalled ones: {slower:.2} x, of {LATENCY_FACTOR_MAX} x; \
         the server grew by {grown:.1} KiB a stalled reader, of {STALLED_KIB_MAX} KiB, and by {own:.1} KiB without them"
    );
    assert!(configured.is_none() || grown <= STALLED_KIB_MAX, "{grown:.1} KiB per stalled reader");
    // The stalled readers lose no fact, either.
    for stream in stalled.iter_mut().step_by((each / 8).max(1)) {
        let took = with_timeout("a reader that resumes reading", read_latencies(stream, begun, last.end - 1)).await;
        assert_eq!(took.len() as u64, FACTS_BEFORE + FACTS);
    }
    server.terminate();
    drop((healthy, stalled));
    assert!(server.wait().success());
}
