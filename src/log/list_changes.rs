//! What has changed in the lists of sessions, of runs and of pending actions, for readers that follow them.
//!
//! ```text
//!   commit ─▶ indexes ─▶ ListChanges: the last change of each session and asking log ─▶ readers, each a number
//! ```
//!
//! A change names what to look at, never its content: a reader reads the indexes again. A later change of the same thing
//! replaces the earlier one, so a slow reader finds each thing once. Changes are numbered in this process, and have a
//! position in the order of commits, by which a reader resumes on any node. A reader that needs forgotten changes reads
//! the lists again.

use super::LogId;
use super::pending_actions::OpenAction;
use super::summary::Summary;
use crate::model::{ActionId, Audience, OwnerId, RunId, SessionId};
use crate::source::ledger::RunState;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

/// Changes that are remembered. A reader that is further behind reads the lists again.
pub const LIST_CHANGES_MAX: usize = 16_384;

/// Something whose entry in a list may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListChange {
    Session(SessionId),
    /// A run that lists show otherwise, or that was erased.
    Run(Arc<ChangedRun>),
    /// A log that asks: its pending actions may read otherwise.
    AskingLog(LogId),
    /// An action that is no longer pending.
    Closed(Arc<OpenAction>),
}

impl ListChange {
    fn key(&self) -> ChangeKey {
        match self {
            Self::Session(session) => ChangeKey::Session(session.clone()),
            Self::Run(run) => ChangeKey::Run(run.created),
            Self::AskingLog(log) => ChangeKey::Log(log.clone()),
            Self::Closed(asked) => ChangeKey::Action(asked.log.clone(), asked.action.clone()),
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
enum ChangeKey {
    Session(SessionId),
    Run(u64),
    Log(LogId),
    Action(LogId, ActionId),
}

/// A run that has changed, with what decides who may know of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangedRun {
    /// Its place in the order of creation.
    pub created: u64,
    pub run: RunId,
    pub session: Option<SessionId>,
    pub owner: Option<OwnerId>,
}

impl ChangedRun {
    #[must_use]
    pub fn of(created: u64, run: &RunId, summary: &Summary) -> Self {
        let (session, owner) = (summary.session_id.clone(), summary.extension.owner.clone());
        Self { created, run: run.clone(), session, owner }
    }
}

/// Whether lists of runs show a run otherwise than before, to any audience. Most commits are pieces of text and change
/// nothing there.
pub(super) fn differs(before: &Summary, now: &Summary) -> bool {
    let is_moved = |audience: &Audience| {
        let (before, now) = (before.run_for(*audience), now.run_for(*audience));
        let stands = |run: &RunState| (run.status, run.attempt, run.stale, run.settled);
        stands(before) != stands(now) || before.phase != now.phase || !before.pending.is_same(&now.pending)
    };
    Audience::ALL.iter().any(is_moved)
        || before.figures != now.figures
        || before.preview.title != now.preview.title
        || (&before.agent, &before.session_id, &before.thread_id) != (&now.agent, &now.session_id, &now.thread_id)
        || (&before.started_at, &before.ended_at) != (&now.started_at, &now.ended_at)
        || before.extension.owner != now.extension.owner
        || before.compacted.times != now.compacted.times
}

/// The last changes of one store.
pub struct ListChanges {
    inner: Mutex<ChangeTable>,
    wake: watch::Sender<()>,
}

struct ChangeTable {
    /// By number, each with the first position at which a reader has it.
    changes: BTreeMap<u64, (u64, ListChange)>,
    numbers: HashMap<ChangeKey, u64>,
    /// The number of the last change.
    last: u64,
    /// The number and the position of the last forgotten change.
    forgotten: (u64, u64),
}

impl ListChanges {
    /// No changes. `position` is that of the store at start: the changes up to there are forgotten.
    #[must_use]
    pub fn new(position: u64) -> Self {
        // An erasure has the position after the last append, and may be among them.
        let forgotten = (0, position + 1);
        let inner = ChangeTable { changes: BTreeMap::new(), numbers: HashMap::new(), last: 0, forgotten };
        Self { inner: Mutex::new(inner), wake: watch::Sender::default() }
    }

    /// Records changes. The indexes already have them.
    ///
    /// `position` is that of the append; of an erasure, the position after the last append.
    pub fn record(&self, position: u64, changes: impl IntoIterator<Item = ListChange>) {
        let mut inner = self.inner.lock();
        for change in changes {
            inner.record(position, change);
        }
    }

    /// Wakes the readers.
    pub fn notify(&self) {
        if self.wake.receiver_count() > 0 {
            self.wake.send_replace(());
        }
    }

    /// A receiver that changes with each [`Self::notify`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// The number of the last change.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.inner.lock().last
    }

    /// The number from which a reader goes on that has everything up to a position. `None`: it reads the lists again.
    #[must_use]
    pub fn resume(&self, position: u64) -> Option<u64> {
        let inner = self.inner.lock();
        let missed = inner.changes.iter().rev().take_while(|(_, (at, _))| *at > position).last();
        (position >= inner.forgotten.1).then(|| missed.map_or(inner.last, |(number, _)| number - 1))
    }

    /// Up to `limit` changes after a number, each with its own. `None`: some of them are forgotten.
    #[must_use]
    pub fn after(&self, number: u64, limit: usize) -> Option<Vec<(u64, ListChange)>> {
        let inner = self.inner.lock();
        let changes = || inner.changes.range(number + 1..).take(limit).map(|(at, (_, change))| (*at, change.clone()));
        (number >= inner.forgotten.0).then(|| changes().collect())
    }
}

impl ChangeTable {
    fn record(&mut self, position: u64, change: ListChange) {
        self.last += 1;
        if let Some(earlier) = self.numbers.insert(change.key(), self.last) {
            self.changes.remove(&earlier);
        }
        self.changes.insert(self.last, (position, change));
        if self.changes.len() > LIST_CHANGES_MAX
            && let Some((number, (position, change))) = self.changes.pop_first()
        {
            self.numbers.remove(&change.key());
            self.forgotten = (number, position.max(self.forgotten.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: impl ToString) -> ListChange {
        ListChange::Session(name.to_string().parse().unwrap())
    }

    #[test]
    fn a_slow_reader_finds_each_changed_thing_once_after_its_place() {
        let changes = ListChanges::new(10);
        changes.record(12, [session("a"), session("b")]);
        changes.record(13, [session("a")]);
        let named = |after| changes.after(after, 9).unwrap().into_iter().map(|(_, change)| change).collect::<Vec<_>>();
        assert_eq!(named(0), [session("b"), session("a")]);
        assert_eq!([11, 12, 13].map(|position| changes.resume(position)), [Some(1), Some(2), Some(3)]);
        assert_eq!(named(2), [session("a")]);
        assert_eq!(changes.resume(10), None, "an erasure before the start may have been missed");
    }

    #[test]
    fn a_reader_of_forgotten_changes_reads_the_lists_again() {
        let changes = ListChanges::new(0);
        let count = LIST_CHANGES_MAX as u64 + 5;
        for number in 1..=count {
            changes.record(number + 1, [session(number)]);
        }
        assert_eq!((changes.after(4, 1), changes.resume(5)), (None, None));
        assert_eq!((changes.after(5, 1).map(|found| found.len()), changes.resume(6)), (Some(1), Some(5)));
        let inner = changes.inner.lock();
        assert_eq!((inner.changes.len(), inner.numbers.len()), (LIST_CHANGES_MAX, LIST_CHANGES_MAX));
    }
}
