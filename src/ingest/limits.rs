//! The load limits of the write path, and its counters.

use super::quotas::OwnerQuotas;
use crate::meter::Counter;
use std::time::Duration;

/// The load limits of the write path.
#[derive(Debug, Clone, Copy)]
pub struct IngestLimits {
    /// Memory of facts in flight to the store, in bytes, estimated before parsing.
    ///
    /// Beyond it producers wait.
    pub in_flight_bytes_max: usize,
    /// How long a producer waits before it gets an error.
    pub wait_max: Duration,
    /// Bytes in flight from which on the server drops diagnostics and metrics. No activity needs them.
    pub shed_bytes_min: usize,
    /// Logs of runs and of sessions; each costs memory.
    ///
    /// Logs that are created at the same moment may exceed the limit slightly.
    pub logs_max: u64,
    /// Subjects of one log: calls, messages, parts, actions and so on.
    ///
    /// Each costs a key and a byte of memory while the log has a writer. One body may exceed the limit by the subjects
    /// of its own facts.
    pub subjects_max: usize,
    /// What the logs of one owner may take.
    pub quotas: OwnerQuotas,
}

impl Default for IngestLimits {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: 128 * 1024 * 1024,
            wait_max: Duration::from_secs(10),
            shed_bytes_min: 64 * 1024 * 1024,
            logs_max: 1_000_000,
            subjects_max: 1_000_000,
            quotas: OwnerQuotas::default(),
        }
    }
}

/// The counters of the write path.
#[derive(Debug, Default)]
pub struct IngestCounters {
    pub accepted: Counter,
    pub duplicates: Counter,
    pub shed: Counter,
    pub envelopes: Counter,
    /// Bodies that were moved out of their envelopes, and their bytes.
    pub blobs: Counter,
    pub blob_bytes: Counter,
    /// Runs that the server declared stale, and runs that it ended.
    pub stale: Counter,
    pub settled: Counter,
}
