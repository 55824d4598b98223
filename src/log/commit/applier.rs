//! What follows every commit.
//!
//! The tails of logs, the lists of sessions and active runs, and the queues of controls.
//!
//! This is the only code that moves them, for what the store has at start and for each commit after it. It does not know
//! who wrote a commit.

use super::summary::Summary;
use super::tail::Log;
use crate::log::active_runs::ActiveRuns;
use crate::log::queues::Queues;
use crate::log::sessions::{AffectedWatchers, Sessions};
use crate::log::{Append, LogId, Store, StoreError};
use crate::model::{Epoch, RunId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The state that commits move.
pub(super) struct Applier {
    /// The position up to which the tails have moved.
    position: AtomicU64,
    store_epoch: OnceLock<Epoch>,
    /// Existing logs: logs of runs, and sessions' own logs.
    logs: AtomicU64,
    sessions: Sessions,
    active_runs: ActiveRuns,
    queues: Queues,
}

/// What the commits of one group have moved.
#[derive(Default)]
pub(super) struct Moved {
    /// The last position of the group.
    position: Option<u64>,
    affected: AffectedWatchers,
}

impl Applier {
    /// Builds the state from all that the store has.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn load(store: &impl Store) -> Result<Self, StoreError> {
        let (position, store_epoch) = (store.position()?, OnceLock::new());
        if let Some(known) = store.epoch()? {
            store_epoch.get_or_init(|| known);
        }
        let (logs, active_runs, queues) = (AtomicU64::new(0), ActiveRuns::default(), Queues::default());
        let add = |log: &LogId, summary: Option<&Summary>| {
            logs.fetch_add(1, Ordering::Relaxed);
            if let Some(summary) = summary {
                active_runs.apply(log, None, summary);
                queues.apply(log, None, summary);
            }
        };
        let sessions = Sessions::load(store, add)?;
        Ok(Self { position: AtomicU64::new(position), store_epoch, logs, sessions, active_runs, queues })
    }

    /// Applies committed appends of one log; returns whether to announce the log to its readers.
    ///
    /// `positions` has the position and the place of creation of each append, `summary` describes the log after them.
    pub fn apply(
        &self,
        log: &Log,
        appends: &[Append],
        positions: &[(u64, u64)],
        summary: Arc<Summary>,
        moved: &mut Moved,
    ) -> bool {
        let epoch = appends.last().expect("a submission has appends").epoch;
        let (position, created) = positions.last().copied().expect("each append has a position");
        moved.position = Some(position);
        self.store_epoch.get_or_init(|| epoch);
        let (before, is_announced) = log.publish(appends, positions, summary.clone());
        self.logs.fetch_add(u64::from(before.epoch != Some(epoch)), Ordering::Relaxed);
        let before = before.epoch.map(|_| &*before.summary);
        self.active_runs.apply(&log.id, before, &summary);
        self.queues.apply(&log.id, before, &summary);
        moved.affected.extend(self.sessions.apply(&log.id, created, before, &summary));
        is_announced
    }

    /// Makes the position of a group visible, after its tails.
    ///
    /// A reader that loads the position first finds everything up to it. Returns whom to notify.
    pub fn finish(&self, moved: Moved) -> AffectedWatchers {
        if let Some(position) = moved.position {
            self.position.store(position, Ordering::Release);
        }
        moved.affected
    }

    /// Applies the erasure of a log, which is then open like one that was never written.
    pub fn erase(&self, log: &Log) {
        let before = log.reset();
        if before.epoch.is_some() {
            self.forget_unreadable();
        }
        self.sessions.forget(&log.id, &before.summary).notify();
        self.quarantine(&log.id);
    }

    /// Applies the erasure of a log whose summary could not be read, so that it is in no list.
    pub fn forget_unreadable(&self) {
        self.logs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Excludes a log from background work.
    pub fn quarantine(&self, log: &LogId) {
        self.active_runs.forget(log);
        self.queues.forget(log);
    }

    /// The position up to which everything is visible.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// The store's epoch; `None` before the first commit ever.
    pub fn store_epoch(&self) -> Option<Epoch> {
        self.store_epoch.get().copied()
    }

    /// The number of logs.
    pub fn log_count(&self) -> u64 {
        self.logs.load(Ordering::Relaxed)
    }

    /// The index of sessions.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The active runs, unordered.
    pub fn active_runs(&self) -> Vec<RunId> {
        self.active_runs.runs()
    }

    /// The queues of open controls.
    pub const fn queues(&self) -> &Queues {
        &self.queues
    }
}
