//! Which commits changed how a run stands: its status, its actions, its controls, or that it exists.
//!
//! ```text
//!   commit ─▶ applier ─▶ StatusChanges: positions ─▶ the follower, which reads those appends and no other
//! ```
//!
//! Most facts are pieces of text. A reader of every commit that wants only what changed would read all of them. The
//! positions serve several readers, so none of them removes any: the oldest go when there are too many.

use super::LogId;
use super::summary::Summary;
use crate::model::Audience;
use crate::source::ledger::RunState;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::watch;

/// Positions that are remembered. A reader that is further behind reads every commit.
pub const STATUS_CHANGES_MAX: usize = 65_536;

/// The positions of commits that changed how a run stands.
pub struct StatusChanges {
    inner: Mutex<Positions>,
    wake: watch::Sender<()>,
}

struct Positions {
    /// Nothing is known of commits up to this one.
    unknown_to: u64,
    known: BTreeSet<u64>,
    /// Whether one was recorded that the readers were not woken for.
    is_new: bool,
}

/// What a reader does after a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextChange {
    /// It reads the commit at this position; those before it changed nothing.
    At(u64),
    /// Nothing has changed since.
    Nothing,
    /// It reads every commit up to this position.
    Unknown(u64),
}

impl StatusChanges {
    /// Knows nothing of commits up to `position`, where the store was opened.
    #[must_use]
    pub fn new(position: u64) -> Self {
        let inner = Positions { unknown_to: position, known: BTreeSet::new(), is_new: false };
        Self { inner: Mutex::new(inner), wake: watch::Sender::default() }
    }

    /// Records the commit at this position if it changed how a run stands.
    pub(super) fn record(&self, log: &LogId, position: u64, before: Option<&Summary>, now: &Summary) {
        if log.is_of_server() || before.is_some_and(|before| !differs(before, now)) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.known.insert(position);
        inner.is_new = true;
        if inner.known.len() > STATUS_CHANGES_MAX {
            inner.unknown_to = inner.known.pop_first().unwrap_or_default();
        }
    }

    /// Wakes the readers, if a change was recorded. Most commits are pieces of text.
    pub(super) fn notify(&self) {
        if std::mem::take(&mut self.inner.lock().is_new) && self.wake.receiver_count() > 0 {
            self.wake.send_replace(());
        }
    }

    /// What a reader does that has read everything up to `position`.
    #[must_use]
    pub fn after(&self, position: u64) -> NextChange {
        let inner = self.inner.lock();
        if position < inner.unknown_to {
            return NextChange::Unknown(inner.unknown_to);
        }
        inner.known.range(position + 1..).next().map_or(NextChange::Nothing, |next| NextChange::At(*next))
    }

    /// A receiver that changes with each recorded change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}

/// Whether two summaries of a log differ in how it stands, for any audience.
fn differs(before: &Summary, now: &Summary) -> bool {
    let moved = |audience: &Audience| {
        let (before, now) = (before.run_for(*audience), now.run_for(*audience));
        let stands = |run: &RunState| (run.status, run.attempt, run.paused, run.settled);
        stands(before) != stands(now) || !before.pending.is_same(&now.pending)
    };
    Audience::ALL.iter().any(moved)
        || before.pending_actions != now.pending_actions
        || before.extension.actions != now.extension.actions
        || before.controls != now.controls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ledger::Status;

    #[test]
    fn a_reader_is_led_to_the_commits_that_changed_a_run() {
        let (changes, log) = (StatusChanges::new(10), LogId::Run("r".parse().unwrap()));
        let begun = Summary::default();
        let mut ended = begun.clone();
        ended.run.status = Status::Completed;
        changes.record(&log, 12, None, &begun);
        changes.record(&log, 13, Some(&begun), &begun.clone());
        changes.record(&log, 14, Some(&begun), &ended);
        changes.record(&LogId::of_server(), 15, None, &begun);
        assert_eq!(changes.after(3), NextChange::Unknown(10));
        assert_eq!([10, 12, 14].map(|after| changes.after(after)), [NextChange::At(12), NextChange::At(14), NextChange::Nothing]);
        assert_eq!(changes.after(13), NextChange::At(14), "several readers read them, each at its own pace");
    }
}
