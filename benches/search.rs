//! Measures the search in texts on a store of many sessions: how long it takes, and what its index costs.
//!
//! ```text
//! cargo bench --bench search -- [sessions, 100000]
//! ```
//! Each session has a question, an answer that is streamed in deltas, and its final text. Words have the frequencies of
//! a language (Zipf) in a vocabulary of 30,000. The processor time of the index is that of a start that makes it anew, without
//! that of a start that has it: other work on the machine changes it little. `STORE_BENCH_DIR` selects the disk. Under `cargo test` it
//! runs on a few sessions, as a smoke test.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

mod load;
mod server;

use load::{bytes_in, cpu_ms, wait_until_indexed};
use serde_json::{Value, json};
use server::Server;
use std::fmt::Write as _;
use std::time::Instant;

/// Different words.
const VOCABULARY: u64 = 30_000;
/// Words of a question, of an answer, and of one delta.
const QUESTION_WORDS: usize = 15;
const ANSWER_WORDS: usize = 100;
const DELTA_WORDS: usize = 5;
/// How often each search is asked.
const REPEATS: usize = 21;

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let sessions = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if is_bench { 100_000 } else { 40 });
    let dir = tempfile::tempdir_in(std::env::var("STORE_BENCH_DIR").unwrap_or_else(|_| ".".into())).expect("a directory");
    let (data, index) = (dir.path().join("data"), dir.path().join("data/search"));

    let server = Server::start(&data, &[]);
    let begun = Instant::now();
    load::publish(&server, sessions, |session| {
        (format!("/v1/runs/run-{session:08}/facts?sessionId=session-{session:08}"), facts(session))
    });
    let published = begun.elapsed();
    wait_until_indexed(&server);
    let (behind, ingest_ms) = (begun.elapsed().saturating_sub(published), cpu_ms(&server));
    println!("{sessions} sessions ingested in {:.1} s, the index {:.2} s later", published.as_secs_f64(), behind.as_secs_f64());
    drop(server);
    let (all, of_index) = (bytes_in(&data), bytes_in(&index));
    let store = all - of_index;
    println!("store {} MiB, index {} MiB: {:.1} % more", store >> 20, of_index >> 20, 100.0 * of_index as f64 / store as f64);

    let server = Server::start(&data, &[]);
    wait_until_indexed(&server);
    let start_ms = cpu_ms(&server);
    println!("search                         found   median ms   slowest ms");
    let rare = format!("unique{}", sessions / 2);
    for (what, words) in [
        ("the list without a search", ""),
        ("a rare word", rare.as_str()),
        ("a word in every text", "w0"),
        ("a word of many texts", "w7"),
        ("three words", "w0+w3+w40"),
        ("the beginning of a word", "w1"),
        ("a rare and a common word", &format!("w0+{rare}")),
        ("no text", "absent"),
    ] {
        let search = if words.is_empty() { String::new() } else { format!("&in=text&q={words}") };
        let path = format!("GET /v1/sessions?sort=updated&limit=50{search}");
        let mut took = Vec::new();
        let mut found = 0;
        for _ in 0..REPEATS {
            let begun = Instant::now();
            let answer = server.request(&path, "");
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
            let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
            found = body["sessions"].as_array().expect("a list").len();
        }
        took.sort_by(f64::total_cmp);
        println!("{what:30} {found:5} {:11.1} {:12.1}", took[REPEATS / 2], took[REPEATS - 1]);
    }
    drop(server);

    std::fs::remove_dir_all(&index).expect("the index is there");
    let server = Server::start(&data, &[]);
    let begun = Instant::now();
    wait_until_indexed(&server);
    let index_ms = cpu_ms(&server).saturating_sub(start_ms);
    let without = ingest_ms.saturating_sub(index_ms).max(1);
    println!("the index of an older store takes {:.1} s", begun.elapsed().as_secs_f64());
    println!("processor time: ingest {without} ms, index {index_ms} ms: {:.1} % more", 100.0 * index_ms as f64 / without as f64);
}

/// A repeatable source of words.
struct Speaker(u64);

impl Speaker {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word: the n-th one about as often as 1/n.
    fn word(&mut self) -> String {
        let part = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        format!("w{}", (VOCABULARY as f64).powf(part) as u64 - 1)
    }

    fn words(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.word()).collect()
    }
}

/// The facts of one session.
fn facts(session: u64) -> Value {
    let mut speaker = Speaker(session.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut question = speaker.words(QUESTION_WORDS).join(" ");
    write!(question, " unique{session}").expect("a string takes it");
    let mut answer = speaker.words(ANSWER_WORDS);
    answer[0] = "w0".into();
    let mut facts = vec![
        json!({ "type": "run.started" }),
        json!({ "type": "text.final", "messageId": "q", "payload": { "role": "user", "text": question } }),
    ];
    for words in answer.chunks(DELTA_WORDS) {
        let text = words.join(" ") + " ";
        facts.push(json!({ "type": "text.delta", "messageId": "a", "payload": { "text": text } }));
    }
    facts.push(json!({ "type": "text.final", "messageId": "a", "payload": { "text": answer.join(" ") + " " } }));
    facts.push(json!({ "type": "run.finished" }));
    facts.into()
}
