//! Acknowledged means it is there: the real binary, killed at any moment of an ingest, over and over on one data directory.
//!
//! Producers number their facts, note what was acknowledged, and after each kill go on from there, repeating what was not. After
//! each restart every run must hold the facts 0, 1, 2 … once each, in order, under sequences without gaps; at least those that
//! were acknowledged, and of an atomic body all or nothing. `PROSCENIUM_KILLS` asks for more kills than the usual 50, and than the
//! usual 6 of the test with readers.

use crate::harness::{Client, Process, fact, serve_it, soon, world};
use crate::store::{copy, journal};
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::{AnyStore, StoreError};
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Facts of one atomic body.
const BATCH: u64 = 7;
/// Runs are left behind after this many kills, so that checking them stays cheap.
const KILLS_PER_RUN: u64 = 10;

/// One producer: its run, how it sends, and how far it was acknowledged.
pub struct Producer {
    run: String,
    streams: bool,
    pub acknowledged: AtomicU64,
}

/// Each of them produces, on a task of its own, until the server is gone.
pub fn all_produce(producers: &[Arc<Producer>], base: &str) -> Vec<tokio::task::JoinHandle<()>> {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let produce = |producer: &Arc<Producer>| {
        let (producer, http, base) = (producer.clone(), http.clone(), base.to_owned());
        tokio::spawn(async move { producer.produce(&http, &base).await })
    };
    producers.iter().map(produce).collect()
}

impl Producer {
    /// One that has sent nothing yet.
    pub fn new(run: String, streams: bool) -> Self {
        Self { run, streams, acknowledged: AtomicU64::new(0) }
    }

    fn numbers(from: u64, count: u64) -> Vec<Value> {
        let one = |n: u64| {
            fact("tool.result", json!({"toolCallId": format!("call-{n}"), "payload": {"n": n, "output": "x".repeat(200)}}))
        };
        (from..from + count).map(one).collect()
    }

    /// Sends until the server is gone.
    pub async fn produce(&self, client: &reqwest::Client, base: &str) {
        loop {
            let from = self.acknowledged.load(Ordering::SeqCst);
            let request = client
                .post(format!("{base}/v1/runs/{}/facts", self.run))
                .header("producer-id", "p")
                .header("producer-epoch", "1")
                .header("producer-seq", from.to_string());
            let (count, request) = if self.streams {
                let lines: Vec<Result<String, std::io::Error>> =
                    Self::numbers(from, 5 * BATCH).iter().map(|fact| Ok(format!("{fact}\n"))).collect();
                let body = reqwest::Body::wrap_stream(futures_util::stream::iter(lines));
                (5 * BATCH, request.header("content-type", "application/x-ndjson").body(body))
            } else {
                let body = json!(Self::numbers(from, BATCH)).to_string();
                (BATCH, request.header("content-type", "application/json").body(body))
            };
            let Ok(answer) = request.send().await else { return };
            if answer.status() == 503 {
                // It is stopping; what it has taken of this is not acknowledged.
                return;
            }
            assert_eq!(answer.status(), 200, "a server that answers takes what is numbered on from what it acknowledged");
            let Ok(receipt) = answer.json::<Value>().await else { return };
            assert_eq!(receipt["accepted"].as_u64().unwrap() + receipt["duplicates"].as_u64().unwrap(), count, "{receipt}");
            self.acknowledged.store(from + count, Ordering::SeqCst);
        }
    }

    /// Holds what the server has against what it promised; how many facts there are.
    pub async fn check(&self, client: &Client) -> u64 {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let answer = client.get(&format!("/v1/runs/{}", self.run)).await;
        if answer.status == 404 {
            assert_eq!(acknowledged, 0, "{} was acknowledged and is gone", self.run);
            return 0;
        }
        let events = client.events(&self.run, "audience=internal", 1000).await;
        for (i, event) in (0u64..).zip(&events) {
            assert_eq!(event["sequence"], i + 1, "{} has a gap", self.run);
            assert_eq!(event["payload"]["n"], i, "{}: each fact once and in order", self.run);
        }
        let there = events.len() as u64;
        assert!(there >= acknowledged, "{}: {acknowledged} acknowledged, {there} there", self.run);
        assert!(self.streams || there.is_multiple_of(BATCH), "{}: a body is there as a whole or not at all", self.run);
        there
    }
}

/// A small generator of moments (xorshift), so that a failure can be met again by its seed.
struct Moments(u64);

impl Moments {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[tokio::test]
async fn killed_at_any_moment_everything_acknowledged_is_there_once_in_order_and_nothing_is_half_there() {
    let kills: u64 = std::env::var("PROSCENIUM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Moments(0x9e37_79b9_7f4a_7c15);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let (mut facts, mut beyond) = (0, 0);
    for kill in 0..=kills {
        let server = Process::start_in(dir.path());
        let client = Client::new(server.at);
        for producer in &producers {
            let there = producer.check(&client).await;
            beyond += there - producer.acknowledged.load(Ordering::SeqCst);
        }
        if kill == kills {
            break;
        }
        if kill.is_multiple_of(KILLS_PER_RUN) {
            facts += producers.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
            let producer = |n| Producer::new(format!("r{kill}-{n}"), n % 2 == 1);
            producers = (0..4).map(|n| Arc::new(producer(n))).collect();
        }
        let base = format!("http://{}", server.at);
        let producing = all_produce(&producers, &base);
        tokio::time::sleep(Duration::from_micros(moments.below(120_000))).await;
        server.kill();
        for task in producing {
            soon("a producer to notice that the server is gone", task).await.unwrap();
        }
    }
    facts += producers.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
    println!("{kills} kills, {facts} facts acknowledged and found, {beyond} found beyond what was acknowledged");
    assert!(facts > kills, "the kills hit an ingest");
}

/// A reader that is cut off with every kill, and comes back with its cursor.
struct Follower {
    run: String,
    /// Of activities, or else of events.
    activities: bool,
    cursor: Option<String>,
    /// The last event's sequence.
    last: u64,
    /// What the activities come to.
    contents: HashMap<(String, String), Value>,
}

impl Follower {
    fn new(run: String, activities: bool) -> Self {
        Self { run, activities, cursor: None, last: 0, contents: HashMap::new() }
    }

    /// Reads until the server is gone, or there is nothing more up to this sequence.
    async fn follow(&mut self, at: SocketAddr, until: Option<u64>) {
        let Ok(mut socket) = TcpStream::connect(at).await else { return };
        let frames = if self.activities { "activities" } else { "events" };
        let resume = self.cursor.as_ref().map(|cursor| format!("last-event-id: {cursor}\r\n")).unwrap_or_default();
        let path = format!("/v1/runs/{}/stream?audience=internal&frames={frames}", self.run);
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n");
        if socket.write_all(request.as_bytes()).await.is_err() {
            return;
        }
        let mut read: Vec<u8> = Vec::new();
        while until.is_none_or(|until| self.last < until) {
            while let Some(end) = memchr::memmem::find(&read, b"\n\n") {
                let block = String::from_utf8(read.drain(..end + 2).collect()).unwrap();
                self.take(&block);
            }
            if until.is_some_and(|until| self.last >= until) {
                return;
            }
            match socket.read_buf(&mut read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Takes one frame, which the head of the answer may stand before.
    fn take(&mut self, block: &str) {
        let line = |start: &str| block.lines().find_map(|line| line.strip_prefix(start));
        let Some(data) = line("data: ") else { return };
        let frame: Value = serde_json::from_str(data).unwrap();
        let sequence = frame["sequence"].as_u64().unwrap();
        let key = || (frame["activityType"].as_str().unwrap().to_owned(), frame["activityId"].as_str().unwrap().to_owned());
        match frame["frame"].as_str().unwrap() {
            "Event" => {
                assert_eq!(
                    (sequence, frame["prev"].as_u64()),
                    (self.last + 1, Some(self.last)),
                    "{}: each once, in order",
                    self.run
                );
                assert_eq!(frame["event"]["payload"]["n"], sequence - 1);
                self.last = sequence;
            }
            "ActivitySnapshot" => drop(self.contents.insert(key(), frame["content"].clone())),
            "ActivityDelta" => {
                let patch: json_patch::Patch = serde_json::from_value(frame["patch"].clone()).unwrap();
                json_patch::patch(self.contents.get_mut(&key()).expect("a snapshot comes first"), &patch).unwrap();
            }
            "Hydrated" => {}
            other => panic!("{}: no crash is a reason for {other}: {frame}", self.run),
        }
        if let Some(cursor) = line("id: ") {
            self.cursor = Some(cursor.to_owned());
            self.last = self.last.max(sequence);
        }
    }

    /// Reads what there still is, and holds it against what the server has.
    async fn check(&mut self, client: &Client) {
        let answer = client.get(&format!("/v1/runs/{}/activities?audience=internal", self.run)).await;
        if answer.status == 404 {
            assert_eq!(self.last, 0, "{}: what was shown is gone", self.run);
            return;
        }
        let there = answer.ok();
        let last = there["sequence"].as_u64().unwrap();
        assert!(self.last <= last, "{}: {} was shown, {last} is there", self.run, self.last);
        soon("a reader to have all", self.follow(client.at, Some(last))).await;
        assert_eq!(self.last, last, "{}", self.run);
        if self.activities {
            let activities = there["activities"].as_array().unwrap();
            assert_eq!(self.contents.len(), activities.len());
            for activity in activities {
                let key = ["activityType", "activityId"].map(|member| activity[member].as_str().unwrap().to_owned());
                assert_eq!(self.contents.get(&key.into()), Some(&activity["content"]), "{}", self.run);
            }
        }
    }
}

#[tokio::test]
async fn killed_under_a_mixed_load_readers_that_come_back_have_missed_nothing_and_seen_nothing_that_is_gone() {
    let kills: u64 = std::env::var("PROSCENIUM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Moments(0x2545_f491_4f6c_dd1d);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let mut followers: Vec<Follower> = Vec::new();
    let (mut facts, mut frames) = (0, 0);
    for kill in 0..=kills {
        let server = Process::start_in(dir.path());
        let client = Client::new(server.at);
        for producer in &producers {
            producer.check(&client).await;
        }
        // Those who leave their run have to have seen all of it; the others are cut off again wherever they are.
        if kill == kills || kill.is_multiple_of(KILLS_PER_RUN) {
            for follower in &mut followers {
                follower.check(&client).await;
                frames += follower.last;
            }
            facts += producers.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
            producers = (0..8).map(|n| Arc::new(Producer::new(format!("m{kill}-{n}"), n % 2 == 1))).collect();
            followers = (0..50).map(|n| Follower::new(format!("m{kill}-{}", n % 8), n % 16 < 8)).collect();
        }
        if kill == kills {
            break;
        }
        let base = format!("http://{}", server.at);
        let producing = all_produce(&producers, &base);
        let at = server.at;
        let following: Vec<_> = std::mem::take(&mut followers)
            .into_iter()
            .map(|mut follower| {
                tokio::spawn(async move {
                    follower.follow(at, None).await;
                    follower
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(20_000 + moments.below(150_000))).await;
        server.kill();
        for task in producing {
            soon("a producer to notice that the server is gone", task).await.unwrap();
        }
        for task in following {
            followers.push(soon("a reader to notice that the server is gone", task).await.unwrap());
        }
    }
    println!("{kills} kills, {facts} facts acknowledged and found, {frames} envelopes followed by 50 readers");
    assert!(facts > kills && frames > facts, "the kills hit an ingest that was read: {facts} facts, {frames} seen");
}

/// A server on this directory, and what stops it and waits until the directory is free.
async fn serve_in(dir: &Path) -> (Client, impl AsyncFnOnce()) {
    let store = AnyStore::Embedded(EmbeddedStore::open(dir, Sync::Always).unwrap());
    let world = world(jiff::Timestamp::now);
    let pulse = Pulse { drain: Duration::ZERO, ..Pulse::default() };
    let server = Server::new(store, Policy::default(), Sizes::default(), Limits::default(), pulse, world).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (client, serving) = serve_it(server, async { drop(stopped.await) }).await;
    let dir = dir.to_owned();
    let end = async move || {
        drop(stop);
        soon("the server to end", serving).await.unwrap();
        loop {
            match EmbeddedStore::open(&dir, Sync::Always) {
                Err(StoreError::Locked { .. }) => tokio::task::yield_now().await,
                opened => return drop(opened.unwrap()),
            }
        }
    };
    (client, end)
}

#[tokio::test]
async fn a_producer_that_repeats_itself_after_a_power_cut_anywhere_in_the_last_commit_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let body = |from: u64| json!(Producer::numbers(from, BATCH)).to_string();
    let send = async |client: &Client, from: u64| {
        let from_text = from.to_string();
        let headers = [("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", from_text.as_str())];
        client.post("/v1/runs/r/facts", &headers, body(from)).await.ok()
    };
    let (client, end) = serve_in(dir.path()).await;
    for n in 0..3 {
        send(&client, n * BATCH).await;
    }
    end().await;
    let from = journal(dir.path()).metadata().unwrap().len();
    let (client, end) = serve_in(dir.path()).await;
    assert_eq!(send(&client, 3 * BATCH).await["accepted"], BATCH);
    end().await;
    let to = journal(dir.path()).metadata().unwrap().len();
    assert!(from < to, "{from} {to}");
    // Every byte is tried with the store alone; here it is the numbers, the ledger and the fold that go on with it.
    let cuts = (from..=to).filter(|len| (len - from).is_multiple_of(97) || to - len < 3);
    let mut outcomes = [0, 0];
    for len in cuts {
        let cut = tempfile::tempdir().unwrap();
        copy(dir.path(), cut.path());
        std::fs::OpenOptions::new().write(true).open(journal(cut.path())).unwrap().set_len(len).unwrap();
        let (client, end) = serve_in(cut.path()).await;
        let there = client.get("/v1/runs/r").await.ok()["lastSequence"].as_u64().unwrap();
        assert!([3 * BATCH, 4 * BATCH].contains(&there), "cut at {len}: a body is there as a whole or not at all");
        let again = send(&client, 3 * BATCH).await;
        let expected = if there == 4 * BATCH { [0, BATCH] } else { [BATCH, 0] };
        outcomes[usize::from(there == 4 * BATCH)] += 1;
        assert_eq!([&again["accepted"], &again["duplicates"]].map(|n| n.as_u64().unwrap()), expected, "cut at {len}");
        let events = client.events("r", "audience=internal", 1000).await;
        let numbers: Vec<_> = events.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..4 * BATCH).collect::<Vec<_>>(), "cut at {len}");
        let mut follower = Follower::new("r".into(), true);
        follower.check(&client).await;
        end().await;
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 0, "{outcomes:?}");
}
