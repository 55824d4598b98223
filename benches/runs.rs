//! Measures lists of many runs: how long pages, filters, orders, facets and statistics take, and what the index costs.
//!
//! ```text
//! cargo bench --bench runs -- [runs, 100000]
//! RUNS_BENCH_BASELINE=other/proscenium cargo bench --bench runs -- 100000
//! ```
//! Each run has a start, a question of a user, a streamed answer, the usage of a model call, and an end; every tenth one
//! still waits for a decision. With a baseline, which is another build of the server, a tenth of the runs is sent to new
//! stores of both in turns, and the bench prints what this build takes more of processor time, disk and memory. `STORE_BENCH_DIR`
//! selects the disk. Under `cargo test` it runs on a few runs, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

mod load;
mod server;

use load::{bytes_in, cpu_ms, wait_until_indexed};
use serde_json::{Value, json};
use server::Server;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How often each request is sent.
const REPEATS: usize = 11;
/// Turns of both builds.
const TURNS: usize = 2;

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let runs = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if is_bench { 100_000 } else { 40 });
    let disk = std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into());
    if let Some(baseline) = std::env::var_os("RUNS_BENCH_BASELINE").map(PathBuf::from) {
        compare(&baseline, runs / 10, &disk);
    }

    let dir = tempfile::tempdir_in(disk).expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let begun = Instant::now();
    publish_runs(&server, runs);
    println!("{runs} runs ingested in {:.1} s", begun.elapsed().as_secs_f64());
    drop(server);
    let begun = Instant::now();
    let server = Server::start(dir.path(), &[]);
    println!("start in {:.2} s, {} MiB in memory", begun.elapsed().as_secs_f64(), memory_kib(&server) >> 10);
    wait_until_indexed(&server);
    println!("request                          matches   median ms   slowest ms");
    let words = format!("filter=unique{}", runs / 2);
    for (what, query) in [
        ("the newest, no filter", "limit=100"),
        ("first page", "sort=-started&limit=100"),
        ("page in the middle", &middle(&server)),
        ("by cost", "sort=-cost&limit=100"),
        ("by duration", "sort=duration&limit=100"),
        ("a status and an agent", "filter=status:waiting+agent:agent-2&limit=100"),
        ("costs of 7 days", "filter=cost:%3E0.03+since:7d&sort=-cost&limit=100"),
        ("a pattern", "filter=agent:*5+-status:completed&limit=100"),
        ("total and facets alone", "filter=&limit=1"),
        ("a rare word", &words),
        ("a word of every run", "filter=publish&limit=100"),
    ] {
        measure(&server, what, &format!("GET /v1/runs?audience=internal&{query}"));
    }
    measure(&server, "statistics of 7 days by hour", "GET /v1/stats?audience=internal&since=7d&by=hour");
    measure(&server, "statistics by agent", "GET /v1/stats?audience=internal&since=7d&by=agent");
}

/// A page after the cheaper half of the runs.
fn middle(server: &Server) -> String {
    let cursor = body(server, "GET /v1/runs?audience=internal&filter=cost:%3E0.025&sort=cost&limit=1")["nextCursor"].clone();
    format!("sort=cost&limit=100&cursor={}", cursor.as_str().unwrap_or_default())
}

fn body(server: &Server, request: &str) -> Value {
    let answer = server.request(request, "");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
}

fn measure(server: &Server, what: &str, request: &str) {
    let (mut took, mut matches) = (Vec::new(), Value::Null);
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let answer = server.request(request, "");
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
        matches = [&body["total"]["runs"], &body["total"]].into_iter().find(|total| total.is_u64()).cloned().unwrap_or_default();
    }
    took.sort_by(f64::total_cmp);
    println!("{what:30} {matches:>9} {:11.1} {:12.1}", took[REPEATS / 2], took[REPEATS - 1]);
}

/// What a build of the server takes.
#[derive(Default)]
struct Costs {
    cpu_ms: u64,
    disk: u64,
    /// After a start.
    memory_kib: u64,
}

/// Prints what this build takes more than the baseline.
fn compare(baseline: &Path, runs: u64, disk: &str) {
    let ours = Path::new(env!("CARGO_BIN_EXE_proscenium"));
    let mut all = [Costs::default(), Costs::default()];
    for _ in 0..TURNS {
        for (binary, costs) in [baseline, ours].into_iter().zip(&mut all) {
            let dir = tempfile::tempdir_in(disk).expect("a directory");
            let server = Server::start_binary(binary, dir.path(), &[]);
            publish_runs(&server, runs);
            costs.cpu_ms += cpu_ms(&server);
            drop(server);
            costs.disk += bytes_in(dir.path());
            costs.memory_kib += memory_kib(&Server::start_binary(binary, dir.path(), &[]));
        }
    }
    let [before, now] = all;
    let more = |before: u64, now: u64| 100.0 * (now as f64 / before.max(1) as f64 - 1.0);
    println!("processor time of ingest: {} ms, {:+.1} %", now.cpu_ms, more(before.cpu_ms, now.cpu_ms));
    println!("disk: {} KiB, {:+.1} %", now.disk >> 10, more(before.disk, now.disk));
    let bytes = (now.memory_kib as f64 - before.memory_kib as f64) * 1024.0 / (runs.max(1) * TURNS as u64) as f64;
    println!("memory after a start: {bytes:+.0} bytes a run");
}

/// The resident memory of a server, in KiB.
fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn publish_runs(server: &Server, runs: u64) {
    load::publish(server, runs, |run| (format!("/v1/runs/run-{run:08}/facts?sessionId=session-{:08}", run / 3), facts(run)));
}

/// The facts of one run.
fn facts(run: u64) -> Value {
    let usage = json!({ "inputTokens": 1000 + run % 977, "outputTokens": run % 313, "costUsd": (run % 53) as f64 / 1000.0 });
    let mut facts = vec![
        json!({ "type": "run.started", "agentId": format!("agent-{}", run % 20) }),
        json!({ "type": "text.final", "messageId": "q", "payload": { "role": "user", "text": format!("Publish unique{run}") } }),
    ];
    for word in ["I ", "have ", "published ", "the ", "notes."] {
        facts.push(json!({ "type": "text.delta", "messageId": "a", "payload": { "text": word } }));
    }
    facts.push(json!({ "type": "metric.changed", "audience": "dashboard", "payload": { "kind": "llm_call", "usage": usage } }));
    facts.push(match run % 10 {
        0 => json!({ "type": "action.required", "actionId": "a", "payload": { "kind": "tool_approval", "title": "Publish?" } }),
        1 => json!({ "type": "run.failed", "payload": { "error": { "message": "The disk is full" } } }),
        _ => json!({ "type": "run.finished" }),
    });
    facts.into()
}
