//! Readers that stall cost those that read nothing, and the server little.
//!
//! `PROSCENIUM_STALLED=2000 cargo test --release --test it load -- --nocapture` measures it at full size: how long events are
//! under way to healthy readers alone, beside as many that have stalled, and alone again, at a pace that the machine keeps up
//! with in all three. The test alone asks only that everybody gets everything.

use crate::harness::{Client, Process, fact, soon};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What one measured fact says beside its number, in bytes.
const TEXT_BYTES: usize = 256;
/// Between two measured facts.
const PACE: Duration = Duration::from_millis(50);
/// What is said to fill whatever the systems between keep for a reader that does not read: so many facts of so many bytes.
const FILLING: (u64, usize) = (64, 64 * 1024);
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

/// What comes to pass in one run, by numbered facts.
struct Story<'s> {
    client: &'s Client,
    begun: Instant,
    /// The number of the next fact.
    next: u64,
}

impl Story<'_> {
    async fn say(&mut self, text_bytes: usize) {
        let sent = self.begun.elapsed().as_micros() as u64;
        let payload = json!({"n": self.next, "sentMicros": sent, "text": "x".repeat(text_bytes)});
        self.client.accept("r", &[fact("text.delta", json!({"messageId": self.next.to_string(), "payload": payload}))]).await;
        self.next += 1;
    }

    /// Says this many facts, one each `pace`, to healthy readers who must get all of them; the 99th percentile of how long one
    /// was under way.
    async fn tell(&mut self, readers: &mut Vec<TcpStream>, facts: u64, text_bytes: usize, pace: Duration) -> Duration {
        let (begun, last) = (self.begun, self.next + facts - 1);
        let reading: Vec<_> = readers
            .drain(..)
            .map(|mut stream| {
                tokio::spawn(async move {
                    let took = read(&mut stream, begun, last).await;
                    (stream, took)
                })
            })
            .collect();
        let mut due = tokio::time::interval(pace.max(Duration::from_micros(1)));
        for _ in 0..facts {
            due.tick().await;
            self.say(text_bytes).await;
        }
        let mut all = Vec::new();
        for reading in reading {
            let (stream, took) = soon("a healthy reader", reading).await.unwrap();
            assert_eq!(took.len() as u64, facts, "each once");
            all.extend(took);
            readers.push(stream);
        }
        all.sort_unstable();
        Duration::from_micros(all[all.len() * 99 / 100])
    }

    /// The same at the measured pace, after some that are not looked at: what came before has settled by then.
    async fn measure(&mut self, readers: &mut Vec<TcpStream>, facts: u64) -> Duration {
        self.tell(readers, facts / 10, TEXT_BYTES, PACE).await;
        self.tell(readers, facts, TEXT_BYTES, PACE).await
    }
}

#[tokio::test]
async fn readers_that_stall_beside_as_many_that_read_keep_nobody_waiting() {
    let asked = std::env::var("PROSCENIUM_STALLED").ok().and_then(|n| n.parse().ok());
    let (each, facts) = (asked.unwrap_or(40), if asked.is_some() { 200 } else { 20 });
    let mut server = Process::start();
    let client = Client::new(server.at);
    client.accept("r", &[fact("run.started", json!({}))]).await;
    let mut story = Story { client: &client, begun: Instant::now(), next: 0 };
    let mut healthy = Vec::new();
    for _ in 0..each {
        healthy.push(open(server.at, None).await);
    }
    let (fillings, filling_bytes) = FILLING;
    // What a healthy reader takes once is not what a stalled one costs.
    story.tell(&mut healthy, fillings, filling_bytes, Duration::ZERO).await;
    let alone = story.measure(&mut healthy, facts).await;
    let before = server.resident_kib();
    let mut stalled = Vec::new();
    for _ in 0..each {
        stalled.push(open(server.at, Some(STALLED_BUFFER)).await);
    }
    let first = story.next;
    story.tell(&mut healthy, fillings, filling_bytes, Duration::ZERO).await;
    let beside = story.measure(&mut healthy, facts).await;
    let grown = server.resident_kib().saturating_sub(before);
    // Nothing was lost to those that stalled, either.
    for stream in stalled.iter_mut().step_by((each / 8).max(1)) {
        let took = soon("a reader that reads again", read(stream, story.begun, story.next - 1)).await;
        assert_eq!(took.len() as u64, story.next - first);
    }
    drop(stalled);
    let again = story.measure(&mut healthy, facts).await;
    println!(
        "{each} healthy readers: p99 {alone:.1?} alone, {beside:.1?} beside {each} stalled ones, {again:.1?} alone again; {:.1} KiB \
         for each stalled",
        grown as f64 / each as f64
    );
    server.terminate();
    drop(healthy);
    assert!(server.wait().success());
}
