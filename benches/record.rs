//! Measures what the hash chain of a log costs, and how fast an export with proofs is verified.
//!
//! `chain` hashes rows alone; `ingest` accepts facts of about the same rows in one delivery, in memory, with their chain.
//! The chain of all appends of a delivery but the last is made by a second thread: `taskset -c 0` shows the cost without
//! a free core.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use proscenium::environment::Environment;
use proscenium::feed::{Feed, FeedConfig};
use proscenium::guard::Policy;
use proscenium::ingest::{Delivery, Ingest};
use proscenium::log::LogId;
use proscenium::log::commit::Logs;
use proscenium::log::hash_chain::{ChainEnd, ChainRecord};
use proscenium::log::journal::MemoryJournal;
use proscenium::log::memory::MemoryStore;
use proscenium::log::row::{Row, Rows};
use proscenium::model::{Audience, Epoch, RunId, Sequence};
use proscenium::record::proof::ProofWriter;
use proscenium::record::signing::SigningKey;
use proscenium::record::verify::{Known, verify};
use proscenium::source;
use serde_json::{Value, json};
use std::sync::Arc;

const ROWS: u64 = 100_000;
const EPOCH: Epoch = Epoch::from_random(7);
const TEXT: &str = "The migration removed three indexes that no query used, and the job now ends in nine minutes. ";

fn run(name: &str) -> RunId {
    RunId::new(name).expect("an id")
}

/// Encoded rows of 400 bytes of text, as those of short messages.
fn rows() -> Vec<u8> {
    let mut rows = Vec::new();
    for n in 1..=ROWS {
        let id = u128::from(n) * 0x9e37_79b9_7f4a_7c15_f39c;
        let text = json!({
            "sequence": n, "eventId": format!("{id:032x}"), "type": "text.delta", "runId": "r", "messageId": "m",
            "receivedAt": "2026-01-01T00:00:00.000Z", "payload": {"text": TEXT.repeat(2)},
        });
        let text = text.to_string();
        let view = Some(text.as_bytes());
        Row::encode(&mut rows, Sequence(n), [Sequence(n - 1); 3], [view; 3]);
    }
    rows
}

fn chain_of(rows: &[u8]) -> ChainEnd {
    let mut chain = ChainEnd::begin(&LogId::Run(run("r")), EPOCH, Sequence::NONE, [9; 32]);
    chain.push_rows(rows, &[]);
    chain
}

fn export_of(rows: Vec<u8>) -> Vec<u8> {
    let state = chain_of(&rows).take_changed().into_iter().filter_map(|(key, value)| Some((key, value?))).collect::<Vec<_>>();
    let record = ChainRecord::read(&LogId::Run(run("r")), &state).expect("a chain");
    let mut out = Vec::new();
    let mut writer = ProofWriter::begin(LogId::Run(run("r")), EPOCH, Audience::Internal, Sequence(ROWS), record, &mut out);
    for row in Rows(rows.into()) {
        writer.row(&row, row.view(Audience::Internal), &mut out);
    }
    writer.end(&SigningKey::generate(Environment::SYSTEM), jiff::Timestamp::UNIX_EPOCH, &mut out);
    out
}

fn delivery(run_id: &str, facts: u64) -> Delivery {
    let fact = |_| json!({"type": "text.delta", "messageId": "m", "payload": {"text": TEXT.repeat(2)}});
    let facts = (0..facts).map(fact).collect::<Vec<Value>>().into();
    Delivery::new(LogId::Run(run(run_id)), source::by_name("agentui").expect("a source"), facts)
}

fn record(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    let rows = rows();
    group.bench_function("chain", |b| b.iter(|| chain_of(&rows)));
    let export = export_of(rows);
    group.bench_function("verify", |b| b.iter(|| verify(&export[..], &Known::default()).expect("all rows fit")));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ingest = runtime.block_on(async {
        let (logs, groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).expect("opens");
        for (_, task) in Feed::new(logs.clone(), FeedConfig::default()).tasks(groups) {
            tokio::spawn(task);
        }
        let environment = Environment { now: || jiff::Timestamp::UNIX_EPOCH, random: || 4 };
        Ingest::new(logs, Policy::default(), environment)
    });
    let mut n = 0;
    for facts in [50, 1000, ROWS] {
        group.throughput(Throughput::Elements(facts));
        group.bench_function(BenchmarkId::new("ingest", facts), |b| {
            b.iter_batched(
                || {
                    n += 1;
                    delivery(&format!("r{n}"), facts)
                },
                |delivery| runtime.block_on(ingest.deliver(delivery)).expect("the server accepts the facts"),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, record);
criterion_main!(benches);
