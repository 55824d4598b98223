//! What follows every commit.
//!
//! The tails of logs, the lists of sessions, active runs and pending actions, the deadlines of actions, and the queues of
//! controls.
//!
//! This is the only code that moves them, for what the store has at start and for each commit after it. It does not know
//! which process wrote a commit.

use super::tail::{Log, Tail};
use crate::environment::sabotage;
use crate::log::active_runs::ActiveRuns;
use crate::log::deadlines::Deadlines;
use crate::log::list_changes::{ChangedRun, ListChange, ListChanges, differs};
use crate::log::pending_actions::{PendingActions, Replaced};
use crate::log::queues::Queues;
use crate::log::run_index::RunIndex;
use crate::log::run_outcomes::RunOutcomes;
use crate::log::server_state::ServerState;
use crate::log::sessions::{ANCESTORS_MAX, AffectedWatchers, Sessions, session_of};
use crate::log::status_changes::StatusChanges;
use crate::log::summary::Summary;
use crate::log::{LogId, LogKind, PlacedAppend, Store, StoreError};
use crate::log::{holds, marks};
use crate::model::{Epoch, RunId, SessionId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The state that commits move.
pub(super) struct Applier {
    /// The position up to which the tails have moved.
    position: AtomicU64,
    store_epoch: OnceLock<Epoch>,
    /// Existing logs: logs of runs, and sessions' own logs, without the server's.
    logs: AtomicU64,
    /// Logs that were erased since the start.
    erasures: AtomicU64,
    sessions: Sessions,
    runs: RunIndex,
    run_outcomes: RunOutcomes,
    active_runs: ActiveRuns,
    deadlines: Deadlines,
    pending_actions: PendingActions,
    queues: Queues,
    list_changes: ListChanges,
    server_state: ServerState,
    status_changes: StatusChanges,
}

/// What a commit has moved.
#[derive(Default)]
pub(super) struct Moved {
    /// The position of its last append.
    position: Option<u64>,
    affected: AffectedWatchers,
}

impl Moved {
    /// Includes appends that move nothing here, such as those of logs that cannot be read.
    pub fn reach(&mut self, appends: &[PlacedAppend]) {
        self.position = appends.last().map(|placed| placed.place.position).or(self.position);
    }
}

impl Applier {
    /// Builds the state from all that the store has.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let (position, store_epoch) = (store.mark().position, OnceLock::new());
        if let Some(known) = store.epoch()? {
            store_epoch.get_or_init(|| known);
        }
        let (logs, active_runs) = (AtomicU64::new(0), ActiveRuns::default());
        let (deadlines, pending_actions, queues) = (Deadlines::default(), PendingActions::default(), Queues::default());
        let runs = RunIndex::default();
        let add = |log: &LogId, created: u64, summary: Option<&Summary>| {
            logs.fetch_add(u64::from(!log.is_of_server()), Ordering::Relaxed);
            if let Some(summary) = summary {
                active_runs.apply(log, None, summary);
                deadlines.apply(log, None, summary);
                pending_actions.apply(log, summary);
                queues.apply(log, None, summary);
                if let LogId::Run(run) = log {
                    runs.apply(created, run, None, summary);
                }
            }
        };
        let sessions = Sessions::load(store, add)?;
        let server_state = ServerState::default();
        if let Some(loaded) = store.load(&LogId::of_server())? {
            server_state.load(&loaded)?;
        }
        let (list_changes, status_changes) = (ListChanges::new(position), StatusChanges::new(position));
        let position = AtomicU64::new(position);
        Ok(Self {
            position,
            store_epoch,
            logs,
            erasures: AtomicU64::new(0),
            sessions,
            runs,
            run_outcomes: RunOutcomes::default(),
            active_runs,
            deadlines,
            pending_actions,
            queues,
            list_changes,
            server_state,
            status_changes,
        })
    }

    /// Applies committed appends of one log, at least one; returns whether to announce the log to its readers.
    ///
    /// `summary` describes the log after them.
    pub fn append(&self, log: &Log, appends: &[PlacedAppend], summary: Arc<Summary>, moved: &mut Moved) -> bool {
        let PlacedAppend { append, place } = appends.last().expect("it is at least one");
        moved.position = Some(place.position);
        self.store_epoch.get_or_init(|| append.epoch);
        if log.id.is_of_server() {
            for placed in appends {
                self.server_state.apply(&placed.append.state);
                let sessions = |key: &[u8]| marks::session_of(key).or_else(|| holds::session_of(key));
                let marked = placed.append.state.iter().filter_map(|(key, _)| sessions(key)).map(ListChange::Session);
                self.list_changes.record(placed.place.position, marked);
            }
        }
        let (before, is_announced) = log.publish(appends, summary.clone());
        let is_new = before.epoch != Some(append.epoch) && !log.id.is_of_server();
        self.logs.fetch_add(u64::from(is_new), Ordering::Relaxed);
        let before = before.epoch.map(|_| &*before.summary);
        for placed in appends.iter().filter(|placed| !placed.append.rows.is_empty()) {
            self.status_changes.record(&log.id, placed.place.position, before, &summary);
        }
        self.replace_summary(log, place.number, before, &summary, place.position, moved);
        is_announced
    }

    /// Applies the compaction of a log; `summary` describes the log after it.
    pub fn compact(&self, log: &Log, number: u64, summary: Arc<Summary>, moved: &mut Moved) {
        let before = log.replace_history(summary.clone());
        self.replace_summary(log, number, Some(&before), &summary, self.position() + 1, moved);
    }

    fn replace_summary(&self, log: &Log, number: u64, before: Option<&Summary>, now: &Summary, position: u64, moved: &mut Moved) {
        self.active_runs.apply(&log.id, before, now);
        self.deadlines.apply(&log.id, before, now);
        let replaced = self.pending_actions.apply(&log.id, now);
        self.queues.apply(&log.id, before, now);
        let run = self.apply_run(&log.id, number, before, now);
        // The sessions whose counts change: before the log's session gets another parent, and afterwards.
        let moves = replaced.is_some() || before.is_some_and(|before| before.parent_session_id != now.parent_session_id);
        let depth = if moves { ANCESTORS_MAX } else { 0 };
        let mut changed = before.map_or_else(Vec::new, |before| self.session_and_ancestors(&log.id, before, depth));
        moved.affected.extend(self.sessions.apply(&log.id, number, before, now));
        if moves || changed.is_empty() {
            changed.extend(self.session_and_ancestors(&log.id, now, depth));
        }
        let asking = (!now.run.pending.is_empty()).then(|| ListChange::AskingLog(log.id.clone()));
        self.record_changes(position, changed, replaced.unwrap_or_default(), asking.into_iter().chain(run));
    }

    /// Updates the row of a run. Returns the change for lists of runs, if they show the run otherwise.
    fn apply_run(&self, log: &LogId, number: u64, before: Option<&Summary>, now: &Summary) -> Option<ListChange> {
        let LogId::Run(run) = log else { return None };
        self.runs.apply(number, run, before, now);
        let is_news = before.is_none_or(|before| differs(before, now));
        is_news.then(|| ListChange::Run(Arc::new(ChangedRun::of(number, run, now))))
    }

    /// The session of a log and up to `depth` of its ancestors, as changes.
    fn session_and_ancestors(&self, log: &LogId, summary: &Summary, depth: usize) -> Vec<ListChange> {
        let above = |session: &SessionId| self.sessions.parent_of(session);
        let sessions = std::iter::successors(session_of(log, summary).cloned(), above).take(1 + depth);
        // A list shows the branches of a tree as one entry.
        sessions.map(|session| ListChange::Session(self.sessions.root_of(&session))).collect()
    }

    /// Records what has changed for the readers of lists, and wakes the messages that may have become free.
    fn record_changes(
        &self,
        position: u64,
        changed: Vec<ListChange>,
        replaced: Replaced,
        of_log: impl Iterator<Item = ListChange>,
    ) {
        if let Some(scope) = replaced.freed {
            self.queues.wake(&scope);
        }
        let closed = replaced.closed.into_iter().map(ListChange::Closed);
        self.list_changes.record(position, closed.chain(of_log).chain(changed));
    }

    /// Makes the position of a commit visible, after its tails and the sets of logs that it changed.
    ///
    /// A reader that loads the position first finds everything up to it.
    pub fn finish(&self, moved: Moved) {
        moved.affected.notify();
        if let Some(position) = moved.position.filter(|_| !sabotage::is(4)) {
            self.position.store(position, Ordering::Release);
        }
        self.list_changes.notify();
        self.status_changes.notify();
    }

    /// Applies the erasure of a log, which is then open like one that was never written.
    ///
    /// `number` is the log's place in the order of creation. `log` is `None` if its summary could not be read. Such a log is
    /// in no list.
    pub fn erase(&self, id: &LogId, number: u64, log: Option<&Log>, moved: &mut Moved) {
        self.logs.fetch_sub(1, Ordering::Relaxed);
        self.erasures.fetch_add(1, Ordering::Relaxed);
        let mut changed = Vec::new();
        if let Some(log) = log {
            let last = if sabotage::is(20) { log.tail().summary } else { log.reset().summary };
            changed = self.session_and_ancestors(id, &last, ANCESTORS_MAX);
            moved.affected.extend(self.sessions.forget(id, &last));
            if let LogId::Run(run) = id {
                changed.push(ListChange::Run(Arc::new(ChangedRun::of(number, run, &last))));
            }
        }
        if id.kind() == LogKind::Run {
            self.runs.forget(number);
        }
        self.exclude(id, changed);
    }

    /// Excludes a log from background work.
    pub fn quarantine(&self, log: &LogId) {
        self.exclude(log, Vec::new());
    }

    fn exclude(&self, log: &LogId, changed: Vec<ListChange>) {
        self.active_runs.forget(log);
        self.deadlines.forget(log);
        self.queues.forget(log);
        let replaced = self.pending_actions.forget(log);
        self.record_changes(self.position() + 1, changed, replaced, std::iter::empty());
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

    /// The number of logs that were erased since the start.
    pub fn erasure_count(&self) -> u64 {
        self.erasures.load(Ordering::Relaxed)
    }

    /// The index of sessions.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The index of runs.
    pub const fn runs(&self) -> &RunIndex {
        &self.runs
    }

    /// Counts a run that ends with a commit of this process.
    ///
    /// Commits of other processes do not count: each end counts on the node that committed it.
    pub fn count_end(&self, log: &LogId, before: &Tail, now: &Summary) {
        if log.kind() == LogKind::Run {
            self.run_outcomes.apply(before.epoch.map(|_| &*before.summary), now);
        }
    }

    /// How the runs ended whose ends this process committed.
    pub const fn run_outcomes(&self) -> &RunOutcomes {
        &self.run_outcomes
    }

    /// The active runs, unordered.
    pub fn active_runs(&self) -> Vec<RunId> {
        self.active_runs.runs()
    }

    /// The deadlines of pending actions.
    pub const fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// The pending actions.
    pub const fn pending_actions(&self) -> &PendingActions {
        &self.pending_actions
    }

    /// What has changed in the lists.
    pub const fn list_changes(&self) -> &ListChanges {
        &self.list_changes
    }

    /// Which commits changed how a run stands.
    pub const fn status_changes(&self) -> &StatusChanges {
        &self.status_changes
    }

    /// The server's own state.
    pub const fn server_state(&self) -> &ServerState {
        &self.server_state
    }

    /// The queues of open controls.
    pub const fn queues(&self) -> &Queues {
        &self.queues
    }
}
