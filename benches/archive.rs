//! Measures what old runs cost on disk and to read, before and after they are archived to a directory.
//!
//! ```text
//! cargo bench --bench archive -- [runs, 2000]
//! ```
//! Each run has a question, an answer that is streamed in pieces, and its final text. A cold read is the first one after a start:
//! it fetches the object. A warm one finds it in the cache. `STORE_BENCH_DIR` selects the disk. Under `cargo test` it runs on a few
//! runs, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

mod load;
mod server;

use load::{bytes_in, cpu_ms, wait_until_indexed};
use serde_json::{Value, json};
use server::Server;
use std::time::{Duration, Instant};

/// Pieces of an answer.
const PIECES: u64 = 60;
/// Runs that are read.
const READS: u64 = 101;

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let runs: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if is_bench { 2000 } else { 20 });
    let dir = tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory");
    let dir = dir.path().canonicalize().expect("it is there");
    let (data, objects) = (dir.join("data"), dir.join("objects"));
    let address = format!("file://{}", objects.display());
    let facts_of_all = runs * (PIECES + 4);

    let server = Server::start(&data, &[]);
    load::publish(&server, runs, |run| (format!("/v1/runs/run-{run:08}/facts?sessionId=session-{run:08}"), facts(run)));
    wait_until_indexed(&server);
    drop(server);
    let server = Server::start(&data, &[]);
    let stored = reads(&server, runs);
    drop(server);
    let before = bytes_in(&data);

    let server = Server::start(&data, &["--archive-to", &address, "--archive-after", "1s"]);
    let (begun, cpu) = (Instant::now(), cpu_ms(&server));
    while !server.request("GET /metrics", "").contains(&format!("\nproscenium_archived_runs_total {runs}\n")) {
        assert!(begun.elapsed() < Duration::from_mins(20), "all runs are archived");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_ms(&server) - cpu);
    println!("{runs} runs archived in {seconds:.1} s, {:.2} ms of processor time each", cpu as f64 / runs as f64);
    drop(server);

    let begun = Instant::now();
    let server = Server::start(&data, &["--archive-to", &address]);
    println!("a start with them takes {:.0} ms", begun.elapsed().as_secs_f64() * 1000.0);
    let (cold, warm) = (reads(&server, runs), reads(&server, runs));
    println!("first activities: stored {stored:.1} ms, cold {cold:.1} ms, warm {warm:.1} ms (medians)");
    drop(server);
    let per_fact = |bytes: u64| bytes as f64 / facts_of_all as f64;
    let (after, moved) = (bytes_in(&data) - bytes_in(&data.join("archive-cache")), bytes_in(&objects));
    println!(
        "bytes a fact: {:.0} before; after, {:.0} in the store and {:.0} in objects",
        per_fact(before),
        per_fact(after),
        per_fact(moved)
    );
}

/// The median time of the first read of some runs, in milliseconds.
fn reads(server: &Server, runs: u64) -> f64 {
    let mut took = Vec::new();
    for run in (0..runs).step_by(usize::try_from(runs.div_ceil(READS)).expect("few")) {
        let begun = Instant::now();
        let answer = server.request(&format!("GET /v1/runs/run-{run:08}/activities?audience=internal"), "");
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("answer of {run}")), "{answer}");
    }
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// The facts of one run.
fn facts(run: u64) -> Value {
    let mut facts = vec![
        json!({ "type": "run.started" }),
        json!({ "type": "text.final", "messageId": "q", "payload": { "role": "user", "text": format!("question of {run}") } }),
    ];
    let piece = |at: u64| format!("piece {} ", (at * 2_654_435_761 + run * 40_503) % 1_000_003);
    facts.extend((0..PIECES).map(|at| json!({ "type": "text.delta", "messageId": "a", "payload": { "text": piece(at) } })));
    let whole: String = (0..PIECES).map(piece).collect();
    facts.push(json!({ "type": "text.final", "messageId": "a", "payload": { "role": "assistant", "text": format!("{whole} answer of {run}") } }));
    facts.push(json!({ "type": "run.finished" }));
    facts.into()
}
