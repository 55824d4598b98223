//! Readers that stall cost those that read nothing, and the server little.
//!
//! `PROSCENIUM_STALLED=2000 cargo test --release --test it load -- --nocapture` measures it at full size; the test alone asks
//! only that everybody gets everything.

use crate::harness::{Client, Process, fact, soon};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What one fact says beside its number, in bytes.
const TEXT_BYTES: usize = 4096;
/// What a reader that stalls lets its own system keep for it, in bytes.
const STALLED_BUFFER: u32 = 4096;

/// Opens a stream of events and reads its first byte of a body.
async fn open(at: SocketAddr, buffer: Option<u32>) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes).unwrap();
    }
    let mut stream = soon("a connection", socket.connect(at)).await.unwrap();
    stream.write_all(b"GET /v1/runs/r/stream?frames=events&after=now HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    soon("a head", stream.read_exact(&mut head)).await.unwrap();
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

/// Publishes facts of these numbers to healthy readers, one after the other; the 99th percentile of how long they were under way.
async fn p99(client: &Client, readers: &mut Vec<TcpStream>, begun: Instant, numbers: std::ops::Range<u64>) -> Duration {
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
    for n in numbers {
        let sent = begun.elapsed().as_micros() as u64;
        let payload = json!({"n": n, "sentMicros": sent, "text": "x".repeat(TEXT_BYTES)});
        client.accept("r", &[fact("text.delta", json!({"messageId": n.to_string(), "payload": payload}))]).await;
    }
    let mut all = Vec::new();
    for reading in reading {
        let (stream, took) = soon("a healthy reader", reading).await.unwrap();
        assert_eq!(took.len() as u64, count, "each once");
        all.extend(took);
        readers.push(stream);
    }
    all.sort_unstable();
    Duration::from_micros(all[all.len() * 99 / 100])
}

#[tokio::test]
async fn readers_that_stall_beside_as_many_that_read_keep_nobody_waiting() {
    let each: usize = std::env::var("PROSCENIUM_STALLED").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let facts = 200;
    let mut server = Process::start();
    let client = Client::new(server.at);
    client.accept("r", &[fact("run.started", json!({}))]).await;
    let begun = Instant::now();
    let mut healthy = Vec::new();
    for _ in 0..each {
        healthy.push(open(server.at, None).await);
    }
    let alone = p99(&client, &mut healthy, begun, 0..facts).await;
    let before = server.resident_kib();
    let mut stalled = Vec::new();
    for _ in 0..each {
        stalled.push(open(server.at, Some(STALLED_BUFFER)).await);
    }
    let beside = p99(&client, &mut healthy, begun, facts..2 * facts).await;
    let grown = server.resident_kib().saturating_sub(before);
    println!(
        "{each} healthy readers: p99 {alone:.1?} alone, {beside:.1?} beside {each} stalled ones, of which each took {:.1} KiB",
        grown as f64 / each as f64
    );
    // Nothing was lost to those that stalled, either.
    for stream in stalled.iter_mut().step_by((each / 8).max(1)) {
        let took = soon("a reader that reads again", read(stream, begun, 2 * facts - 1)).await;
        assert_eq!(took.len() as u64, facts);
    }
    server.terminate();
    drop((healthy, stalled));
    assert!(server.wait().success());
}
