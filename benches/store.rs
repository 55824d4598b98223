//! Measures the commits of the embedded store: 300-byte rows, round-robin over 500 runs.
//!
//! ```text
//! cargo bench --bench store -- [seconds per batch size, 35] [bytes of state per append, 0] [batch sizes, 1,64,512] [facts/s, unlimited] [always|never]
//! ```
//! The disk determines most of the result; `STORE_BENCH_DIR` selects it. Without syncs (`never`), the result is the CPU
//! cost. Under `cargo test` it runs for 20 ms per batch size, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

use bytes::Bytes;
use proscenium::log::embedded::Sync;
use proscenium::log::row::Row;
use proscenium::log::testing::on_disk;
use proscenium::log::{Append, AppendOutcome, Limit, LogId, Store};
use proscenium::model::{Epoch, RunId, Sequence};
use std::fmt::Write;
use std::time::{Duration, Instant};

const RUNS: usize = 500;
const ROW_BYTES: usize = 300;
const EPOCH: Epoch = Epoch::from_random(1);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let number = |i: usize, default: usize| args.get(i).map_or(default, |arg| arg.parse().expect("a number"));
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let pause = if is_bench { Duration::from_secs(number(0, 35) as u64) } else { Duration::from_millis(20) };
    let batches = args.get(2).map_or("1,64,512", String::as_str);
    println!(
        "batch    facts/s   commits   p50 ms   p99 ms p99.9 ms   max ms  over 10 ms   MB on disk   peak MB   scan/s  open ms"
    );
    for batch in batches.split(',') {
        let sync = if args.get(4).is_some_and(|arg| arg == "never") { Sync::Never } else { Sync::Always };
        measure(batch.parse().expect("a number"), pause, number(1, 0), number(3, usize::MAX), sync);
    }
}

fn measure(batch: usize, pause: Duration, state_bytes: usize, facts_s_max: usize, sync: Sync) {
    let dir = tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory");
    let store = on_disk(dir.path(), sync).expect("opens");
    let logs: Vec<LogId> = (0..RUNS).map(|n| LogId::Run(RunId::new(&format!("run-{n}")).expect("an id"))).collect();
    let mut lasts = vec![0_u64; RUNS];
    let mut commits = Vec::new();
    let mut next = 0;
    let start = Instant::now();
    while start.elapsed() < pause {
        let group: Vec<Append> = (0..batch)
            .map(|_| {
                let run = next % RUNS;
                next += 1;
                lasts[run] += 1;
                append(&logs[run], lasts[run], state_bytes, next as u64)
            })
            .collect();
        let due = Duration::from_secs_f64(next as f64 / facts_s_max as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let begun = Instant::now();
        let outcomes = store.commit(&group).expect("commits");
        commits.push(begun.elapsed());
        assert!(outcomes.iter().all(|outcome| matches!(outcome, AppendOutcome::Committed { .. })));
    }
    let facts_s = next as f64 / start.elapsed().as_secs_f64();
    commits.sort();
    let at = |share: f64| commits[((commits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let slow = commits.iter().filter(|commit| **commit > Duration::from_millis(10)).count();

    let begun = Instant::now();
    let mut bytes = 0;
    for (log, last) in logs.iter().zip(&lasts) {
        let (mut after, limit) = (0, Limit { rows: 4096, bytes: 1 << 20 });
        while after < *last {
            let read = store.read(log, EPOCH, Sequence(after), limit).expect("reads");
            let read: usize = read.iter().map(|append| append.rows.len()).sum();
            bytes += read;
            after += (read / ROW_BYTES) as u64;
        }
    }
    assert_eq!(bytes, next * ROW_BYTES, "a scan returns every row");
    let scan_s = next as f64 / begun.elapsed().as_secs_f64();
    drop(store);
    let begun = Instant::now();
    drop(on_disk(dir.path(), sync).expect("opens again"));
    println!(
        "{batch:5} {facts_s:10.0} {:9} {:8.2} {:8.2} {:8.2} {:8.2} {slow:11} {:12} {:9} {scan_s:8.0} {:8}",
        commits.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        disk_mb(dir.path()),
        peak_mb(),
        begun.elapsed().as_millis(),
    );
}

fn append(log: &LogId, last: u64, state_bytes: usize, salt: u64) -> Append {
    let mut rows = Vec::with_capacity(ROW_BYTES);
    // This text compresses about as well as events do.
    let mut text = format!(
        r#"{{"type":"text.delta","eventId":"{:032x}","payload":{{"text":""#,
        u128::from(salt) * 0x9e37_79b9_7f4a_7c15_f39c
    );
    while text.len() < ROW_BYTES - 60 {
        let _ = write!(text, "word{} ", salt.wrapping_mul(0x9e37_79b9) >> (text.len() % 24) & 0xfff);
    }
    text.truncate(ROW_BYTES - 60);
    let text = Some(text.as_bytes());
    Row::encode(&mut rows, Sequence(last), [Sequence(last - 1); 3], [text, text, text]);
    assert_eq!(rows.len(), ROW_BYTES);
    let state = Some((Bytes::from("s"), Some(Bytes::from(vec![b'x'; state_bytes]))));
    Append {
        log: log.clone(),
        epoch: EPOCH,
        expected: Sequence(last - 1),
        last: Sequence(last),
        rows: rows.into(),
        blobs: Vec::new(),
        state: state.filter(|_| state_bytes > 0).into_iter().collect(),
    }
}

fn disk_mb(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fn bytes(dir: &std::path::Path) -> u64 {
        let entries = dir.read_dir().expect("a directory").map(|entry| entry.expect("readable").path());
        entries.map(|path| if path.is_dir() { bytes(&path) } else { path.metadata().expect("a file").blocks() * 512 }).sum()
    }
    bytes(dir) >> 20
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}
