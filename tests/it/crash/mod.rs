//! Acknowledged means it is there: the real binary, killed at any moment of an ingest, over and over on one data directory.
//!
//! Producers number their facts, note what was acknowledged, and after each kill go on from there, repeating what was not. After
//! each restart every run must hold the facts 0, 1, 2 … once each, in order, under sequences without gaps; at least those that
//! were acknowledged, and of an atomic body all or nothing. Under a mixed load readers come back with their cursors
//! ([`follower`]), and controls are asked for, claimed, answered and dropped all the while ([`office`]); [`power`] cuts the last
//! commits at any byte.
//!
//! `PROSCENIUM_KILLS` asks for more kills than the usual 50 without readers and 6 with them, and makes the cuts try every byte:
//! `PROSCENIUM_KILLS=200 cargo test --release --test it crash -- --nocapture` prints what it found as one line of figures.

mod figures;
mod follower;
mod office;
mod power;

use crate::harness::{Client, Process, fact, soon};
use figures::Figures;
use follower::Follower;
use office::Office;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Facts of one atomic body.
const BATCH: u64 = 7;
/// Runs are left behind after this many kills, so that checking them stays cheap.
const KILLS_PER_RUN: u64 = 10;
/// However long the test takes, no run is given up meanwhile.
const PATIENT: [&str; 4] = ["--stale-after", "31536000", "--settle-after", "31536000"];
/// How many read, how many produce, and on the runs of how many of those somebody asks for controls.
const READERS: u64 = 50;
const PRODUCERS: u64 = 8;
const ASKERS: u64 = 4;

/// How many kills were asked for, in the long form.
fn kills() -> Option<u64> {
    std::env::var("PROSCENIUM_KILLS").ok().and_then(|n| n.parse().ok())
}

/// One producer: its run, how it sends, and how far it was acknowledged.
pub struct Producer {
    run: String,
    streams: bool,
    pub acknowledged: AtomicU64,
}

/// Waits until so many facts more are acknowledged to all of them together.
pub async fn get_on(producers: &[Arc<Producer>], more: u64) {
    let acknowledged = || producers.iter().map(|producer| producer.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
    let least = acknowledged() + more;
    soon("more to be acknowledged", async {
        while acknowledged() < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
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

/// All that a run's log tells; nothing of a run that is not there.
async fn story(client: &Client, run: &str) -> Vec<Value> {
    match client.get(&format!("/v1/runs/{run}")).await.status {
        404 => Vec::new(),
        _ => client.events(run, "audience=internal", 1000).await,
    }
}

/// How many sequences a run's log lacks, or has out of their place.
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
        let found = self.found(&story(client, &self.run).await);
        found.hold();
        found.acknowledged + found.beyond
    }

    /// What is wrong with its run, of which this is told.
    fn found(&self, events: &[Value]) -> Figures {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let facts = events.iter().filter(|event| event["type"] == "tool.result");
        let numbers: Vec<u64> = facts.map(|fact| fact["payload"]["n"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted(), "{}: in order: {numbers:?}", self.run);
        let there: BTreeSet<u64> = numbers.iter().copied().collect();
        let count = there.len() as u64;
        assert!(self.streams || count.is_multiple_of(BATCH), "{}: a body is there as a whole or not at all", self.run);
        Figures {
            acknowledged,
            beyond: count.saturating_sub(acknowledged),
            lost: (0..acknowledged).filter(|n| !there.contains(n)).count() as u64,
            duplicated: numbers.len() as u64 - count,
            // Of facts beyond what was acknowledged none may be left out, either.
            gaps: gaps(events) + there.last().map_or(0, |last| last + 1 - count),
            ..Figures::default()
        }
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
    let kills = kills().unwrap_or(50);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Moments(0x9e37_79b9_7f4a_7c15);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let mut found = Figures { kills, ..Figures::default() };
    for kill in 0..=kills {
        let server = Process::start_with(dir.path(), &PATIENT);
        let client = Client::new(server.at);
        let leaves = kill == kills || kill.is_multiple_of(KILLS_PER_RUN);
        for producer in &producers {
            let here = producer.found(&story(&client, &producer.run).await);
            here.hold();
            found.beyond += here.beyond;
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
        let producing = all_produce(&producers, &base);
        // Every other kill hits an ingest that goes on, however slow the machine; the others may come before anything does.
        if kill.is_multiple_of(2) {
            get_on(&producers, 1).await;
        }
        tokio::time::sleep(Duration::from_micros(moments.below(120_000))).await;
        server.kill();
        for task in producing {
            soon("a producer to notice that the server is gone", task).await.unwrap();
        }
    }
    assert!(found.acknowledged > kills, "the kills hit an ingest: {found:?}");
    found.tell();
}

#[tokio::test]
async fn killed_under_a_mixed_load_nobody_misses_a_fact_and_every_control_is_there_once_and_answered_once() {
    let kills = kills().unwrap_or(6);
    let dir = tempfile::tempdir().unwrap();
    let mut moments = Moments(0x2545_f491_4f6c_dd1d);
    let mut producers: Vec<Arc<Producer>> = Vec::new();
    let mut followers: Vec<Follower> = Vec::new();
    let office = Arc::new(Office::default());
    let mut found = Figures { kills, ..Figures::default() };
    for kill in 0..=kills {
        let server = Process::start_with(dir.path(), &PATIENT);
        let client = Client::new(server.at);
        let leaves = kill == kills || kill.is_multiple_of(KILLS_PER_RUN);
        for producer in &producers {
            let told = story(&client, &producer.run).await;
            let mut here = producer.found(&told);
            here.add(&office.found(&client, &producer.run, &told).await);
            here.hold();
            found.beyond += here.beyond;
            found.acknowledged += if leaves { here.acknowledged } else { 0 };
        }
        // Those who leave their run have to have seen all of it; the others are cut off again wherever they are.
        if leaves {
            found.add(&office.close(&client).await);
            for follower in &mut followers {
                found.add(&follower.check(&client).await);
            }
            found.hold();
            producers = (0..PRODUCERS).map(|n| Arc::new(Producer::new(format!("m{kill}-{n}"), n % 2 == 1))).collect();
            let run = |n: u64| format!("m{kill}-{}", n % PRODUCERS);
            followers = (0..READERS).map(|n| Follower::new(run(n), n % (2 * PRODUCERS) < PRODUCERS)).collect();
        }
        if kill == kills {
            break;
        }
        if leaves {
            office.open((0..ASKERS).map(|n| format!("m{kill}-{n}")));
        }
        let base = format!("http://{}", server.at);
        let mut working = all_produce(&producers, &base);
        working.extend(office.all_work(server.at));
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
        // There is no asking of a run that nobody has written.
        soon("a first fact of each run", async {
            while producers.iter().any(|producer| producer.acknowledged.load(Ordering::SeqCst) == 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // Every other kill comes when there is much under way, however slow the machine.
        if kill.is_multiple_of(2) {
            office.busy().await;
        }
        office.rested().await;
        tokio::time::sleep(Duration::from_micros(moments.below(150_000))).await;
        server.kill();
        for task in working {
            soon("whoever works to notice that the server is gone", task).await.unwrap();
        }
        for task in following {
            followers.push(soon("a reader to notice that the server is gone", task).await.unwrap());
        }
    }
    // What was answered is not offered to anybody by another server, either.
    let server = Process::start_with(dir.path(), &PATIENT);
    found.add(&office.find_nothing(&Client::new(server.at)).await);
    assert!(
        found.acknowledged > kills && found.followed > found.acknowledged,
        "the kills hit an ingest that was read: {found:?}"
    );
    found.tell();
}
