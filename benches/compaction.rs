//! Measures whether the compaction keeps up with the runs that end.
//!
//! ```text
//! cargo bench --bench compaction -- [runs a second, 200]
//! ```
//! For [`SECONDS`], so many runs a second begin and end, each with a streamed answer and a tool that reports its progress. They are
//! due a second later. The bench prints how many wait at the end, and how soon none does. `STORE_BENCH_DIR` selects the disk. Under
//! `cargo test` it runs on a few runs, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

mod load;
mod server;

use load::{bytes_in, cpu_ms, wait_until_indexed};
use serde_json::{Value, json};
use server::Server;
use std::time::{Duration, Instant};

/// How long runs are published, in seconds.
const SECONDS: u64 = 30;
/// Pieces of the answer, and reports of the tool, of one run.
const DELTAS: u64 = 60;
const REPORTS: u64 = 20;

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let per_second = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(200);
    let runs = if is_bench { SECONDS * per_second } else { 20 };
    let dir = tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory");
    let server = Server::start(dir.path(), &["--compact-after", "1"]);
    let begun = Instant::now();
    load::publish(&server, runs, |run| {
        let at = Duration::from_micros(run * 1_000_000 / per_second);
        std::thread::sleep(at.saturating_sub(begun.elapsed()));
        (format!("/v1/runs/run-{run:08}/facts?sessionId=session-{run:08}"), facts(run))
    });
    let published = begun.elapsed();
    let (done, waiting) = (value(&server, "proscenium_compactions_total"), value(&server, "proscenium_compaction_runs_waiting"));
    let seconds = published.as_secs_f64();
    println!(
        "{runs} runs published in {seconds:.1} s: {:.0} a second; compacted {done}, waiting {waiting}",
        runs as f64 / seconds
    );
    while value(&server, "proscenium_compactions_total") < runs {
        assert!(begun.elapsed() < published + Duration::from_mins(10), "the compaction ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    let behind = begun.elapsed().saturating_sub(published);
    wait_until_indexed(&server);
    let (rows, cpu) = (value(&server, "proscenium_compacted_rows_total"), cpu_ms(&server));
    let (later, mib) = (behind.as_secs_f64(), bytes_in(dir.path()) >> 20);
    println!("all compacted {later:.1} s later: {rows} envelopes removed, {mib} MiB on disk, {cpu} ms of processor time");
}

/// The value of a metric.
fn value(server: &Server, name: &str) -> u64 {
    let metrics = server.request("GET /metrics", "");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).expect("the metric is there")
}

/// The facts of one run.
fn facts(run: u64) -> Value {
    let mut facts = vec![json!({ "type": "run.started" })];
    facts.extend((0..REPORTS).map(|report| {
        json!({ "type": "tool.progress", "toolCallId": "t", "payload": { "toolName": "search", "progress": report, "total": REPORTS } })
    }));
    facts.push(json!({ "type": "tool.result", "toolCallId": "t", "payload": { "toolName": "search", "result": "found" } }));
    facts.extend((0..DELTAS).map(
        |piece| json!({ "type": "text.delta", "messageId": "a", "payload": { "text": format!("piece {piece} of {run}, ") } }),
    ));
    let whole: String = (0..DELTAS).map(|piece| format!("piece {piece} of {run}, ")).collect();
    facts.push(json!({ "type": "text.final", "messageId": "a", "payload": { "role": "assistant", "text": whole } }));
    facts.push(json!({ "type": "run.finished" }));
    facts.into()
}
