//! Durability under SIGKILL.
//!
//! The real binary is killed at any moment of an ingest, many times on one data directory.
//!
//! Producers number their facts and note the acknowledgements. After each kill they continue, and repeat every
//! unacknowledged fact. After each restart every run must hold the facts 0, 1, 2 … once each, in order and without
//! gaps: at least the acknowledged ones, and all or none of an atomic body. Under a mixed load readers resume with
//! their cursors ([`follower`]), and workers submit, claim, answer and drop controls ([`control_load`]). [`power`] cuts
//! the last commits at any byte.
//!
//! `PROSCENIUM_KILLS` sets the number of kills, instead of 50 without readers and 6 with them, and makes the cuts try
//! every byte: `PROSCENIUM_KILLS=200 cargo test --release --test it crash -- --nocapture` prints its results as one
//! line of figures.

mod control_load;
mod figures;
mod follower;
mod power;

use crate::harness::{Client, Process, fact, with_timeout};
use control_load::ControlLoad;
use figures::Figures;
use follower::Follower;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Facts per atomic body.
const BATCH: u64 = 7;
/// The producers move to new runs after this many kills, so that checking a run stays cheap.
const KILLS_PER_RUN: u64 = 10;
/// Flags that keep the server from settling runs, however long the test takes.
const NO_STALENESS: [&str; 4] = ["--stale-after", "31536000", "--settle-after", "31536000"];
/// The numbers of readers, of producers, and of producers whose runs get controls.
const READERS: u64 = 50;
const PRODUCERS: u64 = 8;
const SUBMITTERS: u64 = 4;

/// Returns the number of kills in the long form.
pub fn kills() -> Option<u64> {
    std::env::var("PROSCENIUM_KILLS").ok().and_then(|n| n.parse().ok())
}

/// One producer: its run, how it sends, and the number of acknowledged facts.
pub struct Producer {
    run: String,
    streams: bool,
    pub acknowledged: AtomicU64,
}

/// Waits until the producers together have this many more acknowledged facts.
pub async fn wait_for_progress(producers: &[Arc<Producer>], more: u64) {
    let acknowledged = || producers.iter().map(|producer| producer.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
    let least = acknowledged() + more;
    with_timeout("more acknowledgements", async {
        while acknowledged() < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Spawns a task per producer, which sends until the server is gone.
pub fn spawn_producers(producers: &[Arc<Producer>], base: &str) -> Vec<tokio::task::JoinHandle<()>> {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let produce = |producer: &Arc<Producer>| {
        let (producer, http, base) = (producer.clone(), http.clone(), base.to_owned());
        tokio::spawn(async move { producer.produce(&http, &base).await })
    };
    producers.iter().map(produce).collect()
}

/// Reads all events of a run; empty if the run does not exist.
async fn read_log(client: &Client, run: &str) -> Vec<Value> {
    match client.get(&format!("/v1/runs/{run}")).await.status {
        404 => Vec::new(),
        _ => client.read_events(run, "audience=internal", 1000).await,
    }
}

/// Counts the sequences that a run's log lacks or has out of order.
fn gaps(events: &[Value]) -> u64 {
    let (mut gaps, mut last) = (0, 0);
    for event in events {
        let sequence = event["sequence"].as_u64().unwrap();
        gaps += u64::from(sequence != last + 1);
        last = sequence;
    }
    gaps
}

impl Producer {
    /// Builds a producer that has sent nothing.
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
                // The server is stopping; it has not acknowledged this body.
                return;
            }
            assert_eq!(answer.status(), 200, "a server must accept facts numbered on from its acknowledgement");
            let Ok(receipt) = answer.json::<Value>().await else { return };
            assert_eq!(receipt["accepted"].as_u64().unwrap() + receipt["duplicates"].as_u64().unwrap(), count, "{receipt}");
            self.acknowledged.store(from + count, Ordering::SeqCst);
        }
    }

    /// Asserts that the server has every acknowledged fact; returns the number of facts.
    pub async fn check(&self, client: &Client) -> u64 {
        let found = self.found(&read_log(client, &self.run).await);
        found.assert_none_wrong();
        found.acknowledged + found.unacknowledged
    }

    /// Compares its run's events with the acknowledgements.
    fn found(&self, events: &[Value]) -> Figures {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let facts = events.iter().filter(|event| event["type"] == "tool.result");
        let numbers: Vec<u64> = facts.map(|fact| fact["payload"]["n"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted(), "{}: not in order: {numbers:?}", self.run);
        let there: BTreeSet<u64> = numbers.iter().copied().collect();
        let count = there.len() as u64;
        assert!(self.streams || count.is_multiple_of(BATCH), "{}: an atomic body is there in part", self.run);
        Figures {
            acknowledged,
            unacknowledged: count.saturating_sub(acknowledged),
            lost: (0..acknowledged).filter(|n| !there.contains(n)).count() as u64,
            duplicated: numbers.len() as u64 - count,
            // Facts beyond the acknowledged ones must have no gap, either.
            gaps: gaps(events) + there.last().map_or(0, |last| last + 1 - count),
            ..Figures::default()
        }
    }
}

/// A small random generator (xorshift), so that a failure can be reproduced by its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[tokio::test]
async fn sigkill_at_any_moment_keeps_every_acknowledged_fact_once_and_bodies_whole() {
    let kills = kills().unwrap_or(50);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Rng(0x9e37_79b9_7f4a_7c15);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let mut found = Figures { kills, ..Figures::default() };
    for kill in 0..=kills {
        let server = Process::start_with(dir.path(), &NO_STALENESS);
        let client = Client::new(server.at);
        let leaves = kill == kills || kill.is_multiple_of(KILLS_PER_RUN);
        for producer in &producers {
            let here = producer.found(&read_log(&client, &producer.run).await);
            here.assert_none_wrong();
            found.unacknowledged += here.unacknowledged;
            found.acknowledged += if leaves { here.acknowledged } else { 0 };
        }
        if kill == kills {
            break;
        }
        if leaves {
            let producer = |n| Producer::new(format!("r{kill}-{n}"), n % 2 == 1);
            producers = (0..4).map(|n| Arc::new(producer(n))).collect();
        }
        let base = format!("http://{}", server.at);
        let producing = spawn_producers(&producers, &base);
        // Every other kill hits a running ingest, however slow the machine is; the others may come before any fact.
        if kill.is_multiple_of(2) {
            wait_for_progress(&producers, 1).await;
        }
        tokio::time::sleep(Duration::from_micros(moments.below(120_000))).await;
        server.kill();
        for task in producing {
            with_timeout("a producer's end", task).await.unwrap();
        }
    }
    assert!(found.acknowledged > kills, "the kills did not hit an ingest: {found:?}");
    found.print_sum();
}

#[tokio::test]
async fn sigkill_under_mixed_load_loses_no_fact_for_readers_and_no_control() {
    let kills = kills().unwrap_or(6);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Rng(0x2545_f491_4f6c_dd1d);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let mut followers: Vec<Follower> = Vec::new();
    let controls = Arc::new(ControlLoad::default());
    let mut found = Figures { kills, ..Figures::default() };
    for kill in 0..=kills {
        let server = Process::start_with(dir.path(), &NO_STALENESS);
        let client = Client::new(server.at);
        let leaves = kill == kills || kill.is_multiple_of(KILLS_PER_RUN);
        for producer in &producers {
            let events = read_log(&client, &producer.run).await;
            let mut here = producer.found(&events);
            here.add(&controls.found(&client, &producer.run, &events).await);
            here.assert_none_wrong();
            found.unacknowledged += here.unacknowledged;
            found.acknowledged += if leaves { here.acknowledged } else { 0 };
        }
        // Readers that leave their run must have seen all of it; the others are cut off again at any point.
        if leaves {
            found.add(&controls.close(&client).await);
            for follower in &mut followers {
                found.add(&follower.check(&client).await);
            }
            found.assert_none_wrong();
            producers = (0..PRODUCERS).map(|n| Arc::new(Producer::new(format!("m{kill}-{n}"), n % 2 == 1))).collect();
            let run = |n: u64| format!("m{kill}-{}", n % PRODUCERS);
            followers = (0..READERS).map(|n| Follower::new(run(n), n % (2 * PRODUCERS) < PRODUCERS)).collect();
        }
        if kill == kills {
            break;
        }
        if leaves {
            controls.start_runs((0..SUBMITTERS).map(|n| format!("m{kill}-{n}")));
        }
        let base = format!("http://{}", server.at);
        let mut working = spawn_producers(&producers, &base);
        working.extend(controls.spawn_all(server.at));
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
        // A control needs a run that has facts.
        with_timeout("the first fact of each run", async {
            while producers.iter().any(|producer| producer.acknowledged.load(Ordering::SeqCst) == 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // Every other kill comes under load, however slow the machine is.
        if kill.is_multiple_of(2) {
            controls.wait_for_claims().await;
        }
        controls.wait_for_overdue().await;
        tokio::time::sleep(Duration::from_micros(moments.below(150_000))).await;
        server.kill();
        for task in working {
            with_timeout("a worker's end", task).await.unwrap();
        }
        for task in following {
            followers.push(with_timeout("a reader's end", task).await.unwrap());
        }
    }
    // The next server offers no answered control, either.
    let server = Process::start_with(dir.path(), &NO_STALENESS);
    found.add(&controls.check_idle(&Client::new(server.at)).await);
    assert!(found.acknowledged > kills && found.followed > found.acknowledged, "the kills did not hit a read ingest: {found:?}");
    found.print_sum();
}
