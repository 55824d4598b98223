//! Measures the time per fact at each stage of the pipeline, and prints the bytes per fact.
//!
//! `cargo bench` runs the benchmarks. `cargo test --benches` runs each once, so that they keep working. The facts are
//! those of a real Awaken run of 3,385 events.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use proscenium::encode::encoded::FrameBuffer;
use proscenium::encode::native::Encoder;
use proscenium::environment::Environment;
use proscenium::feed::{Feed, FeedConfig};
use proscenium::guard::{Guard, Policy};
use proscenium::ingest::{Delivery, Ingest};
use proscenium::log::commit::Logs;
use proscenium::log::journal::MemoryJournal;
use proscenium::log::memory::MemoryStore;
use proscenium::log::{Limit, LogId};
use proscenium::model::{Audience, BlobId, Draft, Ids, RunId, Sequence};
use proscenium::projection::View;
use proscenium::source::ledger::Ledger;
use proscenium::source::{self, Drafts, Fact};
use serde_json::Value;
use std::sync::Arc;

const RECORDING: &str = include_str!("../tests/recordings/awaken/long_40_steps.ndjson");

fn environment() -> Environment {
    Environment { now: || jiff::Timestamp::UNIX_EPOCH, random: || 4 }
}

fn facts() -> Vec<Fact> {
    RECORDING.lines().map(|line| serde_json::from_str(line).expect("the recording is JSON")).collect()
}

fn adapted(facts: Vec<Fact>) -> Vec<Draft> {
    let source = source::by_name("awaken").expect("a source");
    let (mut adapter, ledger, mut drafts) = ((source.fresh)(), Ledger::default(), Vec::new());
    for fact in facts {
        let event = (source.parse)(fact).expect("the recording is valid");
        adapter.apply_event(event, &Ids::default(), Drafts { ledger: &ledger, drafts: &mut drafts });
    }
    drafts
}

fn recorded(mut drafts: Vec<Draft>) -> Vec<Draft> {
    let mut ledger = Ledger::default();
    for draft in &mut drafts {
        ledger.record(draft, 0);
    }
    drafts
}

fn blob_id() -> BlobId {
    BlobId::new("b").expect("an id")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn delivery(run: &str) -> Delivery {
    let facts = facts().into_iter().map(Value::Object).collect::<Vec<_>>().into();
    let (log, source) = (LogId::Run(RunId::new(run).expect("an id")), source::by_name("awaken").expect("a source"));
    Delivery { atomic: false, ..Delivery::new(log, source, facts) }
}

fn stages(criterion: &mut Criterion) {
    let count = facts().len() as u64;
    let mut group = criterion.benchmark_group("stage");
    group.throughput(Throughput::Elements(count)).sample_size(20);
    group.bench_function("parse", |b| b.iter(facts));
    group.bench_function("adapt", |b| b.iter_batched(facts, adapted, BatchSize::LargeInput));
    group.bench_function("ledger", |b| b.iter_batched(|| adapted(facts()), recorded, BatchSize::LargeInput));
    group.bench_function("guard", |b| {
        b.iter_batched(
            || recorded(adapted(facts())),
            |drafts| {
                let (mut guard, policy, mut count) = (Guard::new(), Policy::default(), 0);
                for mut draft in drafts {
                    guard.pass(&policy, &mut blob_id, &mut draft, proscenium::model::halves::Halves::Absent, &mut |_| count += 1);
                }
                count
            },
            BatchSize::LargeInput,
        );
    });

    let runtime = runtime();
    let (ingest, feed, logs) = runtime.block_on(async {
        let (logs, groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).expect("opens");
        let feed = Feed::new(logs.clone(), FeedConfig::default());
        for (_, task) in feed.tasks(groups) {
            tokio::spawn(task);
        }
        (Ingest::new(logs.clone(), Policy::default(), environment()), feed, logs)
    });
    let mut n = 0;
    group.bench_function("adapt to append, in memory", |b| {
        b.iter_batched(
            || {
                n += 1;
                delivery(&format!("r{n}"))
            },
            |delivery| runtime.block_on(ingest.deliver(delivery)).expect("the server accepts the facts"),
            BatchSize::LargeInput,
        );
    });

    let log = LogId::Run(RunId::new("r1").expect("an id"));
    let rows = runtime.block_on(async {
        let epoch = logs.log(&log).await.expect("a log").tail().epoch.expect("written");
        let mut rows = Vec::new();
        while let Ok(page) = feed.rows(&log, epoch, Sequence(rows.len() as u64), Limit { rows: 1000, bytes: 1 << 20 }).await
            && !page.is_empty()
        {
            rows.extend(page);
        }
        (epoch, rows)
    });
    let encoder = Encoder::new(&log);
    let encode = || {
        let mut out = FrameBuffer::new(rows.0);
        for row in &rows.1 {
            if let Some(view) = row.view(Audience::Internal) {
                encoder.event(&mut out, row.sequence(), row.sequence(), row.prev(Audience::Internal), view);
            }
        }
        out.finish()
    };
    group.bench_function("encode", |b| b.iter(encode));
    let fold = |audience: Audience| {
        let mut view = View::new(&log, audience);
        for row in &rows.1 {
            view.fold(row.sequence(), row.view(audience));
        }
        view
    };
    for audience in Audience::ALL {
        group.bench_function(format!("fold for {audience}"), |b| b.iter(|| fold(audience)));
    }
    group.finish();

    let envelopes: usize = rows.1.iter().filter_map(|row| row.view(Audience::Internal)).map(<[u8]>::len).sum();
    println!(
        "bytes per fact: {} as sent, {} as an envelope, {} as a frame; {} facts gave {} envelopes",
        RECORDING.len() as u64 / count,
        envelopes as u64 / count,
        encode().len() as u64 / count,
        count,
        rows.1.len()
    );
}

criterion_group!(benches, stages);
criterion_main!(benches);
