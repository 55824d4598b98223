//! Readers that stall cost those that read nothing, and the server little.
//!
//! Readers of one run get facts at a steady pace, first alone, then beside as many that read nothing. How long facts are under
//! way to those that read, and what the server's memory grows by, come out side by side of one run. A stalled reader is one whose
//! socket takes no more, so that the server holds something back for it: between two processes of one machine the system would
//! take megabytes for it first, hence a segment's usual size on a network.
//!
//! `PROSCENIUM_STALLED=2000 cargo test --release --test it load -- --nocapture` measures it at full size, and holds the memory to
//! its bound; the test alone asks only that the stalled ones do stall, and that everybody gets everything.

use crate::harness::{Client, Process, fact, with_timeout};
use serde_json::json;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What one fact says beside its number, in bytes.
const TEXT_BYTES: usize = 4096;
/// Facts of each stretch that is measured, and of the one before it.
const FACTS: u64 = 200;
const FACTS_BEFORE: u64 = 64;
/// How much time there is for each delivery: a fact comes as often as all healthy readers can have it so.
const PAUSE: Duration = Duration::from_micros(50);
/// What a reader that stalls lets its own system keep for it, in bytes, and in one segment.
const STALLED_BUFFER: u32 = 4096;
const STALLED_SEGMENT: u32 = 1460;
/// What a stalled reader may cost, in KiB, and how much longer facts may be under way beside it, as a factor.
const STALLED_KIB_MAX: f64 = 20.0;
const SLOWER_MAX: f64 = 1.5;

/// Opens a stream of events and reads its first byte of a body.
async fn open(at: SocketAddr, stalls: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if stalls {
        socket.set_recv_buffer_size(STALLED_BUFFER).unwrap();
        socket2::SockRef::from(&socket).set_tcp_mss(STALLED_SEGMENT).unwrap();
    }
    let mut stream = with_timeout("a connection", socket.connect(at)).await.unwrap();
    stream.write_all(b"GET /v1/runs/r/stream?frames=events&after=now HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    with_timeout("a head", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

/// Reads events until the one with this number has come; how long each was under way, in microseconds.
async fn read(stream: &mut TcpStream, begun: Instant, last: u64) -> Vec<u64> {
    let (mut came, mut took, mut text) = (Vec::new(), Vec::new(), Vec::with_capacity(64 * 1024));
    loop {
        text.clear();
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "the stream ends early");
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

/// Publishes facts of these numbers to healthy readers at a steady pace; the 99th percentile of how long they were under way.
async fn p99(client: &Client, readers: &mut Vec<TcpStream>, begun: Instant, numbers: Range<u64>) -> Duration {
    let last = numbers.end - 1;
    let reading: Vec<_> = readers
        .drain(..)
        .map(|mut stream| {
            tokio::spawn(async move {
                let took = read(&mut stream, begun, last).await;
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
        let (stream, took) = with_timeout("a healthy reader", reading).await.unwrap();
        assert_eq!(took.len() as u64, count, "each once");
        all.extend(took);
        readers.push(stream);
    }
    all.sort_unstable();
    Duration::from_micros(all[all.len() * 99 / 100])
}

/// How many of these connections the server cannot have written all to that it had for them, of this many bytes, as the system
/// tells; `None` where it does not.
fn stalled_count(at: SocketAddr, stalled: &[TcpStream], bytes: usize) -> Option<usize> {
    let ports: HashSet<u16> = stalled.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let port = |address: &str| u16::from_str_radix(address.split(':').nth(1)?, 16).ok();
    let waiting = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (port(words.next()?)?, port(words.next()?)?);
        let queued = usize::from_str_radix(words.nth(1)?.split(':').next()?, 16).ok()?;
        (local == at.port() && ports.contains(&remote)).then_some(queued)
    };
    let queued = table.lines().filter_map(waiting);
    Some(queued.filter(|queued| *queued > 0 && queued + 4 * (STALLED_BUFFER as usize) < bytes).count())
}

#[tokio::test]
async fn readers_that_stall_beside_as_many_that_read_keep_nobody_waiting() {
    let asked: Option<usize> = std::env::var("PROSCENIUM_STALLED").ok().and_then(|n| n.parse().ok());
    let each = asked.unwrap_or(40);
    let mut server = Process::start();
    let client = Client::new(server.at);
    client.append("r", &[fact("run.started", json!({}))]).await;
    let begun = Instant::now();
    let mut healthy = Vec::new();
    for _ in 0..each {
        healthy.push(open(server.at, false).await);
    }
    let mut n = 0;
    let mut numbers = |count: u64| {
        n += count;
        n - count..n
    };
    // What a server keeps for its first readers and facts is there before anything is measured.
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE + FACTS)).await;
    let unread = server.resident_kib();
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE)).await;
    let alone = p99(&client, &mut healthy, begun, numbers(FACTS)).await;
    let before = server.resident_kib();

    let mut stalled = Vec::new();
    for _ in 0..each {
        stalled.push(open(server.at, true).await);
    }
    p99(&client, &mut healthy, begun, numbers(FACTS_BEFORE)).await;
    let is_all = || stalled_count(server.at, &stalled, FACTS_BEFORE as usize * TEXT_BYTES).is_none_or(|count| count == each);
    with_timeout("all of them to stall", async {
        while !is_all() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let last = numbers(FACTS);
    let beside = p99(&client, &mut healthy, begun, last.clone()).await;
    assert!(is_all(), "they still stall");
    let kib = |from: u64, to: u64| to.saturating_sub(from) as f64 / each as f64;
    let (own, grown) = (kib(unread, before), kib(before, server.resident_kib()));
    let slower = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "load: {each} healthy readers: p99 {alone:.1?} alone, {beside:.1?} beside {each} stalled ones: {slower:.2} x, of {SLOWER_MAX} x; \
         the server grew by {grown:.1} KiB a stalled reader, of {STALLED_KIB_MAX} KiB, and by {own:.1} KiB without them"
    );
    assert!(asked.is_none() || grown <= STALLED_KIB_MAX, "{grown:.1} KiB a stalled reader");
    // Nothing was lost to those that stalled, either.
    for stream in stalled.iter_mut().step_by((each / 8).max(1)) {
        let took = with_timeout("a reader that reads again", read(stream, begun, last.end - 1)).await;
        assert_eq!(took.len() as u64, FACTS_BEFORE + FACTS);
    }
    server.terminate();
    drop((healthy, stalled));
    assert!(server.wait().success());
}
