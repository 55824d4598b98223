//! Which process appends to the journal.
//!
//! A journal of one process has no leader: that process always appends. In a cluster the leader is the node whose
//! leader record is the last one in the journal, until its lease ends by its own clock. The fence of the journal, not
//! this belief, keeps two nodes from appending. The lease keeps a node that was paused or cut off from refusing what the
//! next leader would accept: a refusal appends nothing, so no fence stops it.

use crate::environment;
use crate::log::Leader;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::watch;

/// Whether this process appends.
#[derive(Debug)]
pub struct Leadership {
    is_alone: bool,
    /// The last leader record of the journal.
    last: Mutex<Option<Leader>>,
    leads: watch::Sender<bool>,
    /// When the lease ends.
    until: Mutex<Option<Instant>>,
    changes: AtomicU64,
}

impl Leadership {
    /// For a journal that only this process appends to.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            is_alone: true,
            last: Mutex::default(),
            leads: watch::Sender::new(true),
            until: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    /// For a journal of a cluster: this process follows until it has appended a leader record.
    #[must_use]
    pub fn of_cluster() -> Self {
        Self { is_alone: false, leads: watch::Sender::new(false), ..Self::alone() }
    }

    /// Whether others append to the journal, too.
    pub const fn is_of_cluster(&self) -> bool {
        !self.is_alone
    }

    /// Whether this process may append.
    pub fn leads(&self) -> bool {
        self.is_alone || *self.leads.borrow() && self.until.lock().is_some_and(|until| environment::instant() < until)
    }

    /// Whether this process may append, when it changes.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Counts the leaders. State in memory that a log's writer built under an earlier one may be behind the log.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The last leader record of the journal.
    pub fn last(&self) -> Option<Leader> {
        self.last.lock().clone()
    }

    /// Records a leader record of this process (`is_own`) or of another.
    pub fn apply(&self, leader: Leader, is_own: bool) {
        *self.last.lock() = Some(leader);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.leads.send_replace(is_own);
    }

    /// Lets this process append until its lease ends.
    pub fn extend(&self, until: Instant) {
        *self.until.lock() = Some(until);
    }

    /// Stops appending, because the lease may have ended.
    pub fn step_down(&self) {
        if !self.is_alone {
            self.leads.send_replace(false);
        }
    }
}
