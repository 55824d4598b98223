//! What the write path bears at once, and what it has taken so far.

use crate::meter::Counter;
use std::time::Duration;

/// What the write path bears, and what it does about more.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Memory of facts under way to the store, in bytes, by what is known of them before they are parsed; beyond it producers wait.
    pub in_flight_bytes_max: usize,
    /// How long they wait, until they are told to come back.
    pub wait_max: Duration,
    /// Bytes under way from which on diagnostics and metrics are shed, which nobody's picture hangs on.
    pub shed_bytes_min: usize,
    /// Logs there may be, of runs and of sessions: of each something stays in memory. Those that are begun at the same moment
    /// may be a few more.
    pub logs_max: u64,
    /// Subjects that the ledger of one log remembers: calls, messages, parts, actions and the like. Of each a key and a byte stay
    /// in memory while the log is written. One body may exceed the limit by what its own facts begin.
    pub subjects_max: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: 128 * 1024 * 1024,
            wait_max: Duration::from_secs(10),
            shed_bytes_min: 64 * 1024 * 1024,
            logs_max: 1_000_000,
            subjects_max: 1_000_000,
        }
    }
}

/// What was taken so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub accepted: Counter,
    pub duplicates: Counter,
    pub shed: Counter,
    pub envelopes: Counter,
    /// Bodies that were moved out of their envelopes, and their bytes.
    pub blobs: Counter,
    pub blob_bytes: Counter,
    /// Runs that were said to be stale, and that the server ended.
    pub stale: Counter,
    pub settled: Counter,
}
