//! Measures starts of the server: on a store of many runs, and on a journal that no table has.
//!
//! ```text
//! cargo bench --bench startup -- [runs of each store, 1000,100000] [MiB of each journal, 64]
//! ```
//! Each run has what a real one leaves in the store after a short conversation; the benchmark takes it from a run that it
//! ingested. Memory is the resident memory of the server once it is ready. `STORE_BENCH_DIR` selects the disk. Under
//! `cargo test` it starts on a few runs, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

mod server;

use bytes::Bytes;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::log::testing::on_disk;
use proscenium::log::{Append, Limit, LoadedLog, LogId, Store};
use proscenium::model::{RunId, Sequence};
use serde_json::json;
use server::Server;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The run that was ingested. The others have names of the same length.
const MODEL: &str = "run-00000000";
/// Logs of one commit.
const GROUP: usize = 512;
/// Bytes of rows of one append to the long journal.
const ROWS_BYTES: usize = 64 << 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let arg = |at: usize, bench: &'static str, test: &'static str| {
        args.get(at).cloned().unwrap_or_else(|| if is_bench { bench } else { test }.to_owned())
    };
    let model = Model::ingest();
    println!("store                      start ms   resident MiB");
    let report = |what: String, dir: &Path| {
        let begun = Instant::now();
        let server = Server::start(dir, &[]);
        let took = begun.elapsed().as_millis();
        println!("{what:26} {took:8} {:14}", server.resident_mib());
    };
    for runs in arg(0, "1000,100000", "20").split(',') {
        let dir = directory();
        model.write_copies(dir.path(), runs.parse().expect("a number"));
        report(format!("{runs} runs"), dir.path());
    }
    for mib in arg(1, "64", "1").split(',') {
        let dir = model.write_journal(mib.parse::<usize>().expect("a number") << 20);
        report(format!("{mib} MiB of journal"), dir.path());
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory")
}

fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).expect("an id"))
}

impl Server {
    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
    }
}

/// What a short conversation with a tool leaves in the store.
struct Model {
    loaded: LoadedLog,
    rows: Bytes,
}

impl Model {
    fn ingest() -> Self {
        let facts = json!([
            {"type": "run.started", "sessionId": MODEL, "payload": {"title": "A short conversation"}},
            {"type": "text.final", "messageId": "m1", "role": "user", "payload": {"text": "What is in the report?"}},
            {"type": "tool.started", "toolCallId": "c", "payload": {"toolName": "read", "arguments": {"path": "report.md"}}},
            {"type": "tool.result", "toolCallId": "c", "payload": {"output": "Twelve pages."}},
            {"type": "text.final", "messageId": "m2", "payload": {"text": "It has twelve pages."}},
            {"type": "run.finished"},
        ]);
        let dir = directory();
        let answer = Server::start(dir.path(), &[]).request(&format!("POST /v1/runs/{MODEL}/facts"), &facts.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let store = on_disk(dir.path(), Sync::Never).expect("opens");
        let loaded = store.load(&run(MODEL)).expect("reads").expect("exists");
        let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
        let read = store.read(&run(MODEL), loaded.epoch, Sequence::NONE, limit).expect("reads");
        Self { rows: read.iter().flat_map(|append| append.rows.iter().copied()).collect(), loaded }
    }

    /// Writes a store with this many runs like the model.
    fn write_copies(&self, dir: &Path, runs: usize) {
        let store = on_disk(dir, Sync::Never).expect("opens");
        let numbers: Vec<usize> = (0..runs).collect();
        for group in numbers.chunks(GROUP) {
            let appends: Vec<Append> = group.iter().map(|number| self.copy(&format!("run-{number:08}"))).collect();
            store.commit(&appends).expect("commits");
        }
    }

    fn copy(&self, name: &str) -> Append {
        let renamed = |bytes: &Bytes| {
            let mut bytes = bytes.to_vec();
            let found: Vec<usize> = memchr::memmem::find_iter(&bytes, MODEL.as_bytes()).collect();
            for at in found {
                bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
            }
            Bytes::from(bytes)
        };
        Append {
            log: run(name),
            epoch: self.loaded.epoch,
            expected: Sequence::NONE,
            last: self.loaded.last,
            rows: renamed(&self.rows),
            blobs: Vec::new(),
            state: self.loaded.state.iter().map(|(key, value)| (renamed(key), Some(renamed(value)))).collect(),
        }
    }

    /// Writes a data directory whose journal has this many bytes of records, and whose trees have nothing.
    ///
    /// A store forgets records once its tables have them. So each segment is copied before that.
    fn write_journal(&self, bytes: usize) -> tempfile::TempDir {
        let (dir, whole) = (directory(), directory());
        let (log, segments) = (run(MODEL), whole.path().join("journal"));
        std::fs::create_dir(&segments).expect("a directory");
        let store = on_disk(dir.path(), Sync::Never).expect("opens");
        let (mut written, mut newest) = (0, PathBuf::new());
        let keep = |path: &Path| {
            std::fs::copy(path, segments.join(path.file_name().expect("a name"))).expect("copies");
        };
        let mut sequence = 0;
        while written < bytes {
            let append = Append {
                log: log.clone(),
                epoch: self.loaded.epoch,
                expected: Sequence(sequence),
                last: Sequence(sequence + 1),
                // Bytes that compress about as well as text does.
                rows: (0..ROWS_BYTES).map(|at| b"abcdefgh"[(at * at + at / 7) % 8]).collect(),
                blobs: Vec::new(),
                state: self.copy(MODEL).state,
            };
            let current = newest_segment(dir.path());
            if current != newest && newest.exists() {
                keep(&newest);
            }
            newest = current;
            store.commit(&[append]).expect("commits");
            (sequence, written) = (sequence + 1, written + ROWS_BYTES);
        }
        drop(store);
        keep(&newest_segment(dir.path()));
        std::fs::copy(EmbeddedStore::lock_file(dir.path()), EmbeddedStore::lock_file(whole.path())).expect("copies");
        std::fs::copy(dir.path().join("format"), whole.path().join("format")).expect("copies");
        whole
    }
}

fn newest_segment(dir: &Path) -> PathBuf {
    let entries = dir.join("journal").read_dir().expect("a journal").map(|entry| entry.expect("readable").path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "seg")).max().expect("a segment")
}
