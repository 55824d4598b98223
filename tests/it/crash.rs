//! Acknowledged means it is there: the real binary, killed at any moment of an ingest, over and over on one data directory.
//!
//! Producers number their facts, note what was acknowledged, and after each kill go on from there, repeating what was not. After
//! each restart every run must hold the facts 0, 1, 2 … once each, in order, under sequences without gaps; at least those that
//! were acknowledged, and of an atomic body all or nothing. `PROSCENIUM_KILLS` asks for more kills than the usual 50.

use crate::harness::{Client, Process, fact, soon};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let producing: Vec<_> = producers
            .iter()
            .map(|producer| {
                let (producer, http, base) = (producer.clone(), http.clone(), base.clone());
                tokio::spawn(async move { producer.produce(&http, &base).await })
            })
            .collect();
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
