//! What several clients publish to a server, and what that costs it.

use crate::server::Server;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Clients that publish at once.
const CLIENTS: u64 = 8;

/// Publishes runs: of each number, the path with its query, and its facts.
pub fn publish(server: &Server, runs: u64, run: impl Fn(u64) -> (String, Value) + Sync) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let run = &run;
            scope.spawn(move || {
                for number in (client..runs).step_by(usize::try_from(CLIENTS).expect("few")) {
                    let (path, facts) = run(number);
                    let answer = server.request(&format!("POST {path}"), &facts.to_string());
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                }
            });
        }
    });
}

/// Waits until searches find all that was committed.
pub fn wait_until_indexed(server: &Server) {
    while !server.request("GET /metrics", "").contains("\nproscenium_search_commits_waiting 0\n") {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processor time that a server has taken, in milliseconds.
pub fn cpu_ms(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10
}

/// The bytes of the files below a directory.
pub fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = dir.read_dir() else { return 0 };
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() { bytes_in(&path) } else { path.metadata().map_or(0, |found| found.len()) }
        })
        .sum()
}
