//! Measures a late join: the time from the request for a run's activities to `Hydrated`.
//!
//! Two runs on the embedded store have the same visible state, but one is a hundred times as long. The benchmark also
//! prints the bytes of a join, and the bytes of a chunk at several positions of a long message.

use criterion::{Criterion, criterion_group, criterion_main};
use proscenium::environment::Environment;
use proscenium::feed::Frames;
use proscenium::feed::{Feed, FeedConfig, Filter, ReadRequest, StartAt};
use proscenium::guard::Policy;
use proscenium::ingest::{Delivery, Ingest};
use proscenium::log::LogId;
use proscenium::log::commit::Logs;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::model::{Audience, RunId, Sequence};
use proscenium::source;
use serde_json::{Value, json};
use std::sync::Arc;

const RUNS: [(&str, usize); 2] = [("2,000 facts", 2_000), ("200,000 facts", 200_000)];
const CHUNKS: usize = 100_000;

fn environment() -> Environment {
    Environment { now: || jiff::Timestamp::UNIX_EPOCH, random: || 4 }
}

fn log(run: &str) -> LogId {
    LogId::Run(RunId::new(run).expect("an id"))
}

/// Builds the n-th progress of one call. The size of the resulting content does not depend on `n`.
fn progress(n: usize) -> Value {
    let event_type = if n == 0 { "tool.started" } else { "tool.progress" };
    json!({
        "type": event_type, "toolCallId": "c", "audience": "user",
        "payload": { "toolName": "dig", "progress": 0.5, "message": format!("{:06}", n % 7) },
    })
}

fn chunk(_: usize) -> Value {
    json!({ "type": "text.delta", "messageId": "m", "partId": "p", "payload": { "text": "four" } })
}

async fn write(ingest: &Ingest, run: &str, count: usize, fact: impl Fn(usize) -> Value) {
    for from in (0..count).step_by(1000) {
        let facts = (from..count.min(from + 1000)).map(&fact).collect::<Vec<_>>();
        let source = source::by_name("agentui").expect("a source");
        let delivery = Delivery { atomic: false, ..Delivery::new(log(run), source, facts.into()) };
        ingest.deliver(delivery).await.expect("the server accepts the facts");
    }
}

/// Reads a run's activities up to `Hydrated`, frame by frame.
async fn join(feed: &Arc<Feed>, run: &str, replay: bool, mut each: impl FnMut(&[u8])) {
    let filter = Filter::all(Audience::User);
    let request = ReadRequest { filter, frames: Frames::Activities, replay };
    let mut reader = feed.read(&log(run), request, StartAt::Start).await.expect("a reader");
    while let Ok(Some(mut frames)) = reader.next().await {
        while let Some((frame, cursor)) = frames.next_frame() {
            each(&frame);
            if cursor.is_some() && frame.starts_with(br#"{"frame":"Hydrated""#) {
                return;
            }
        }
    }
}

fn joins(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let (feed, logs) = runtime.block_on(async {
        let (store, journal) = EmbeddedStore::open(dir.path(), Sync::Never).expect("a store");
        let (logs, groups) = Logs::open(store, Arc::new(journal)).expect("opens");
        let feed = Feed::new(logs.clone(), FeedConfig::default());
        for (_, task) in feed.tasks(groups) {
            tokio::spawn(task);
        }
        let ingest = Ingest::new(logs.clone(), Policy::default(), environment());
        for (run, count) in RUNS {
            write(&ingest, run, count, progress).await;
        }
        write(&ingest, "chunks", CHUNKS, chunk).await;
        (feed, logs)
    });
    // Wait for the checkpoints, which the server saves some time after the last fact.
    runtime.block_on(async {
        let id = log(RUNS[1].0);
        let tail = logs.log(&id).await.expect("a log").tail();
        let epoch = tail.epoch.expect("written");
        loop {
            let found = logs.checkpoint(&id, epoch, 0, Sequence::MAX).await.expect("the store answers");
            if found.is_some_and(|(at, _)| at.plus(4096) >= tail.last) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let mut group = criterion.benchmark_group("join");
    group.sample_size(30);
    for (run, _) in RUNS {
        let mut bytes = 0;
        runtime.block_on(join(&feed, run, false, |frame| bytes += frame.len()));
        println!("join a run of {run}: {bytes} bytes to Hydrated");
        group.bench_function(run, |b| {
            b.iter(|| {
                // Drop the cached state, as the server does for a run without readers.
                feed.sweep();
                runtime.block_on(join(&feed, run, false, |_| ()));
            });
        });
    }
    group.finish();
    let mut sizes = Vec::new();
    runtime.block_on(join(&feed, "chunks", true, |frame| sizes.push(frame.len())));
    for at in [10, 100, 1_000, 10_000, CHUNKS - 1] {
        println!("chunk {at} of a message: {} bytes", sizes[at]);
    }
}

criterion_group!(benches, joins);
criterion_main!(benches);
