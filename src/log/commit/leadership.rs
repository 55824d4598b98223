//! Which process appends to the journal.
//!
//! A journal of one process has no leader: that process always appends. In a cluster the leader is the node whose
//! leader record is the last one in the journal, as long as it believes so itself. The fence of the journal, not this
//! belief, keeps two nodes from appending.

use crate::log::Leader;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Whether this process appends.
#[derive(Debug)]
pub struct Leadership {
    is_alone: bool,
    /// The last leader record of the journal.
    last: Mutex<Option<Leader>>,
    leads: watch::Sender<bool>,
}

impl Leadership {
    /// For a journal that only this process appends to.
    pub fn alone() -> Self {
        Self { is_alone: true, last: Mutex::default(), leads: watch::Sender::new(true) }
    }

    /// For a journal of a cluster: this process follows until it has appended a leader record.
    pub fn of_cluster() -> Self {
        Self { is_alone: false, leads: watch::Sender::new(false), ..Self::alone() }
    }

    /// Whether this process may append.
    pub fn leads(&self) -> bool {
        self.is_alone || *self.leads.borrow()
    }

    /// Whether this process may append, when it changes.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// The last leader record of the journal.
    pub fn last(&self) -> Option<Leader> {
        self.last.lock().clone()
    }

    /// Records a leader record of this process (`is_own`) or of another.
    pub fn apply(&self, leader: Leader, is_own: bool) {
        *self.last.lock() = Some(leader);
        self.leads.send_replace(is_own);
    }

    /// Stops appending, because the lease may have ended.
    pub fn step_down(&self) {
        if !self.is_alone {
            self.leads.send_replace(false);
        }
    }
}
