//! The committer thread and its queue.

use super::applier::{Applier, Moved};
use super::leadership::Leadership;
use super::open_logs::OpenLogs;
use super::orderer::{Follow, OrderedGroup, Orderer};
use super::tail::{HistoryRewrite, InFlightGuard, Log};
use crate::environment::sabotage;
use crate::environment::threads::Signal;
use crate::log::journal::Journal;
use crate::log::summary::Summary;
use crate::log::{Append, Commit, Compaction, Leader, LogId, META, Store, StoreError, panic_message};
use crate::meter::{Counter, Histogram};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// The most bytes of rows and bodies in one group. A larger submission is a group of its own.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most appends in one group.
const GROUP_APPENDS_MAX: usize = 2048;

/// Appends of one log on their way to the store.
///
/// One group commits all of them, so the store keeps all or none.
pub struct Submission {
    pub log: Arc<Log>,
    /// In order; at least one.
    pub appends: Vec<Append>,
    /// The log's summary after the commit.
    pub summary: Arc<Summary>,
    /// The writer's chain, and this submission's index in it, counted from 0.
    pub chain: Arc<Chain>,
    pub index: u64,
    /// Receives the result once the appends are durable and visible.
    pub ack: Ack,
}

/// The submissions of one log writer, in order.
///
/// Each submission builds on the one before it, so the first conflict ends the chain. The committer refuses that
/// submission and all after it, and the server must load the log's state again.
#[derive(Debug)]
pub struct Chain {
    /// The index of the submission that conflicted; `u64::MAX` while none has.
    conflict_at: AtomicU64,
}

impl Default for Chain {
    fn default() -> Self {
        Self { conflict_at: AtomicU64::new(u64::MAX) }
    }
}

impl Chain {
    /// Whether a submission conflicted.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.conflict_at.load(Ordering::Acquire) != u64::MAX
    }

    /// Whether nothing of this submission was stored, because it or an earlier one conflicted.
    #[must_use]
    pub fn has_refused(&self, index: u64) -> bool {
        index >= self.conflict_at.load(Ordering::Acquire)
    }

    fn end(&self, index: u64) {
        self.conflict_at.fetch_min(index, Ordering::AcqRel);
    }
}

/// A submission in the queue. While it exists, its log counts it as in flight.
pub(super) struct Queued {
    submission: Submission,
    in_flight: InFlightGuard,
}

impl Queued {
    pub fn new(submission: Submission) -> Self {
        let in_flight = InFlightGuard::of(&submission.log);
        Self { submission, in_flight }
    }

    /// Returns the submission when it was not queued after all.
    pub fn into_submission(self) -> Submission {
        self.submission
    }
}

/// What the committer is asked to commit.
pub(super) enum Request {
    Append(Queued),
    Rewrite(Rewrite),
    Lead(Leader, oneshot::Sender<Result<(), StoreError>>),
}

/// What one commit takes from the queue.
enum Work {
    Appends(Vec<Queued>),
    Rewrite(Rewrite),
    Lead(Leader, oneshot::Sender<Result<(), StoreError>>),
    /// Others have appended.
    CatchUp,
}

/// A change of a log's history.
pub(super) enum Rewrite {
    /// `summary` describes the log after the compaction.
    Compact {
        turn: HistoryRewrite,
        compaction: Compaction,
        summary: Arc<Summary>,
        done: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// `log` is `None` if the log's summary cannot be read.
    Erase { id: LogId, log: Option<Arc<Log>>, done: oneshot::Sender<Result<(), StoreError>> },
}

/// The caller that waits for a commit.
pub type Ack = oneshot::Sender<Result<(), StoreError>>;

/// The result of one commit.
///
/// Its receiver sends the acks first and then serves the logs. So one wake-up per group crosses threads, and no reader
/// delays an answer.
#[derive(Default)]
pub struct CommittedGroup {
    pub acks: Vec<(Ack, Result<(), StoreError>)>,
    /// The watched logs whose tails moved, in commit order.
    pub moved: Vec<Arc<Log>>,
    /// The logs that have reached the sequence of [`Log::announce_growth_at`].
    pub grown: Vec<Arc<Log>>,
    /// The logs that another node has erased. An erasure here tells their readers itself.
    pub erased: Vec<LogId>,
}

impl CommittedGroup {
    fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.moved.is_empty() && self.grown.is_empty() && self.erased.is_empty()
    }
}

/// Counters of the committer since its start.
#[derive(Debug, Default)]
pub struct CommitCounters {
    /// The number and duration of group commits.
    pub commits: Histogram,
    /// Appends in those groups.
    pub appends: Counter,
    /// Saved checkpoints.
    pub checkpoints: Counter,
}

/// The queue of requests to the committer.
#[derive(Default)]
pub(super) struct CommitQueue {
    pub waiting: Mutex<Waiting>,
    pub arrived: Signal,
    /// Whether the committer has taken requests that it has not finished.
    pub is_working: AtomicBool,
    /// Whether the committer panics at the next group with an append of a run or a session; for tests.
    pub panics: AtomicBool,
}

impl CommitQueue {
    /// Adds a request and wakes the committer; `false` if the queue is closed.
    pub fn push(&self, request: Request) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed {
            waiting.requests.push_back(request);
            self.arrived.notify();
        }
        !waiting.is_closed
    }

    /// Has the committer apply what others have appended to the journal.
    pub fn catch_up(&self) {
        self.waiting.lock().is_behind = true;
        self.arrived.notify();
    }

    /// Closes the queue: the committer ends once it has committed all queued requests.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.arrived.notify();
    }
}

#[derive(Default)]
pub(super) struct Waiting {
    pub requests: VecDeque<Request>,
    /// Whether others have appended to the journal.
    pub is_behind: bool,
    /// Whether a task is about to wake the committer.
    pub is_announced: bool,
    /// Set when no further requests come, or when the committer has ended.
    pub is_closed: bool,
}

impl Waiting {
    /// Takes what one commit takes; `None` if nothing waits.
    fn take(&mut self) -> Option<Work> {
        if self.requests.is_empty() {
            return std::mem::take(&mut self.is_behind).then_some(Work::CatchUp);
        }
        let (mut bytes, mut appends, mut group) = (0, 0, Vec::new());
        while bytes < GROUP_BYTES_MAX && appends < GROUP_APPENDS_MAX {
            match self.requests.pop_front() {
                Some(Request::Append(queued)) => {
                    bytes += submission_bytes(&queued.submission);
                    appends += queued.submission.appends.len();
                    group.push(queued);
                }
                Some(Request::Rewrite(rewrite)) if group.is_empty() => return Some(Work::Rewrite(rewrite)),
                Some(Request::Lead(leader, done)) if group.is_empty() => return Some(Work::Lead(leader, done)),
                Some(other) => {
                    self.requests.push_front(other);
                    break;
                }
                None => break,
            }
        }
        Some(Work::Appends(group))
    }
}

pub(super) struct Committer<J> {
    pub orderer: Orderer<dyn Store, J, Follower>,
    pub queue: Arc<CommitQueue>,
    pub failed: watch::Sender<Option<StoreError>>,
    pub counts: Arc<CommitCounters>,
}

/// What follows each commit, of this process and of any other.
pub(super) struct Follower {
    pub applier: Arc<Applier>,
    pub open: Arc<OpenLogs>,
    pub groups: mpsc::UnboundedSender<CommittedGroup>,
    pub leadership: Arc<Leadership>,
}

impl<J: Journal> Committer<J> {
    /// Commits until the queue is closed and empty, or until the store fails. At the end everything is durable.
    ///
    /// A panic counts as a failure of the store: the data being written may or may not be on disk.
    pub async fn run(self) {
        let work = async {
            while let Some(work) = self.next_work().await {
                match work {
                    Work::Appends(group) => {
                        // The server appends to its own log when it starts, before any request.
                        let is_asked = group.iter().any(|queued| !queued.submission.log.id.is_of_server());
                        assert!(!(is_asked && self.queue.panics.load(Ordering::Relaxed)), "a test asked for this panic");
                        self.append(group).await?;
                    }
                    Work::Rewrite(rewrite) => self.rewrite(rewrite).await?,
                    Work::Lead(leader, done) => self.lead(leader, done).await?,
                    // One part at a time, so that requests do not wait behind a long way.
                    Work::CatchUp if self.orderer.catch_up().await? => self.queue.catch_up(),
                    Work::CatchUp => {}
                }
            }
            self.orderer.flush().await
        };
        let ended = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
            Err(StoreError::Failed { doing: "commit", why: format!("the committer panicked: {}", panic_message(&*panic)) })
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the committer ended; the server stops, because the data being written may or may not be on disk");
            self.failed.send_replace(Some(error));
        }
        let mut waiting = self.queue.waiting.lock();
        waiting.is_closed = true;
        // Dropped unanswered: their callers get the error that the server is stopping.
        waiting.requests.clear();
    }

    /// Takes the queued appends in order, within a group's bounds, or one rewrite; waits for the first one.
    ///
    /// `None` when the queue is closed.
    async fn next_work(&self) -> Option<Work> {
        self.queue.is_working.store(false, Ordering::Relaxed);
        let take = |waiting: &mut Waiting| match waiting.take() {
            None => waiting.is_closed.then_some(None),
            Some(Work::CatchUp) => Some(Some(Work::CatchUp)),
            work => {
                self.queue.is_working.store(true, Ordering::Relaxed);
                Some(work)
            }
        };
        self.queue.arrived.wait_for(&self.queue.waiting, take).await
    }

    async fn append(&self, group: Vec<Queued>) -> Result<(), StoreError> {
        let mut done = CommittedGroup { acks: Vec::with_capacity(group.len()), ..CommittedGroup::default() };
        let (mut appends, mut follows, mut waiting) = (Vec::new(), Vec::new(), Vec::with_capacity(group.len()));
        let mut chains = HashSet::new();
        let erased = self.orderer.follow().applier.server_state().erased();
        for Queued { submission, in_flight } in group {
            let Submission { log, appends: own, summary, chain, index, ack } = submission;
            // Its writer accepted it before the log or its session was erased.
            if own.iter().any(|append| !append.is_empty()) && erased.refuses(&log.id, summary.session_id.as_ref()).is_some() {
                chain.end(index);
            }
            // After a conflict the committer does not compare: the log's tail may match `expected` by chance.
            if chain.has_refused(index) {
                done.acks.push((ack, Err(conflict(&log))));
                continue;
            }
            let (count, last) = (own.len(), own.last().expect("a submission has appends").last);
            let is_first = chains.insert(Arc::as_ptr(&chain));
            follows.extend((0..count).map(|n| n > 0 || !is_first));
            appends.extend(own);
            waiting.push((count, last, log, summary, chain, index, Some(ack), in_flight));
        }
        if sabotage::is(2) {
            for (.., ack, _) in &mut waiting {
                answer(ack, Ok(()));
            }
        }
        let (begun, count) = (Instant::now(), appends.len());
        let ordered = self.answered(self.orderer.append(appends, &follows), || {
            for ack in waiting.iter_mut().filter_map(|(.., ack, _)| ack.take()) {
                // If the caller is gone, it does not need the answer.
                let _ = ack.send(Err(StoreError::Unconfirmed));
            }
        });
        let (follower, ordered) = (self.orderer.follow(), ordered.await);
        self.counts.commits.observe(begun.elapsed());
        self.counts.appends.add(count as u64);
        let OrderedGroup { compared, placed } = match ordered {
            Ok(ordered) => ordered,
            Err(StoreError::NotLeader) => {
                for (_, _, log, _, chain, index, ack, in_flight) in waiting {
                    // The writers hold state that the log does not have.
                    chain.end(index);
                    drop((log, in_flight));
                    done.acks.extend(ack.map(|ack| (ack, Err(StoreError::NotLeader))));
                }
                follower.finish(Moved::default(), done);
                return Ok(());
            }
            Err(error) => {
                self.failed.send_replace(Some(error.clone()));
                done.acks.extend(waiting.into_iter().filter_map(|(.., ack, _)| Some((ack?, Err(error.clone())))));
                // Without a receiver the process is shutting down.
                let _ = follower.groups.send(done);
                return Err(error);
            }
        };
        let (mut compared, mut placed, mut moved) = (&compared[..], &placed[..], Moved::default());
        for (count, last, log, summary, chain, index, ack, in_flight) in waiting {
            let (outcomes, later) = compared.split_at(count);
            let (own, others) = placed.split_at(outcomes.iter().filter(|(_, place)| place.is_some()).count());
            (compared, placed) = (later, others);
            if outcomes.iter().any(|(outcome, _)| outcome.position().is_none()) {
                chain.end(index);
            }
            // A later submission of the chain may have been refused while this one was on its way.
            let result = if chain.has_refused(index) {
                assert!(own.is_empty(), "appends of one submission are linked, so all of them are kept or none");
                Err(conflict(&log))
            } else {
                if !own.is_empty() {
                    follower.applier.count_end(&log.id, &log.tail(), &summary);
                    if follower.applier.append(&log, own, summary, &mut moved) {
                        done.moved.extend((!sabotage::is(3)).then(|| log.clone()));
                    }
                }
                if log.reaches_growth_mark(last) {
                    done.grown.push(log);
                }
                Ok(())
            };
            // Only now: a writer that loads the log from here on sees the moved tail or the broken chain.
            drop(in_flight);
            done.acks.extend(ack.map(|ack| (ack, result)));
        }
        // The readers that this wakes must not make room for a committer that has nothing to do.
        self.queue.is_working.store(false, Ordering::Relaxed);
        follower.finish(moved, done);
        Ok(())
    }

    async fn lead(&self, leader: Leader, done: oneshot::Sender<Result<(), StoreError>>) -> Result<(), StoreError> {
        let (leadership, mut done) = (&self.orderer.follow().leadership, Some(done));
        let leading = self.orderer.lead(leader.clone(), || leadership.last());
        let led = self.answered(leading, || answer(&mut done, Err(StoreError::Unconfirmed))).await;
        let failed = final_error(&led);
        if led.is_ok() {
            // A caller that has given up no longer renews the lease.
            leadership.apply(leader, done.is_some());
        }
        answer(&mut done, led);
        failed.map_or(Ok(()), Err)
    }

    /// Waits until the journal has answered `ordering`.
    ///
    /// If that takes too long, `give_up` answers the callers of what is ordered, and this process refuses everything
    /// behind it until it leads again. What is ordered may still be stored.
    async fn answered<T>(&self, ordering: impl Future<Output = T>, give_up: impl FnOnce()) -> T {
        let (mut ordering, mut give_up) = (pin!(ordering), Some(give_up));
        loop {
            match select(ordering.as_mut(), pin!(self.orderer.journal().overdue())).await {
                Either::Left((ordered, _)) => return ordered,
                Either::Right(_) => {
                    self.orderer.follow().leadership.step_down();
                    if let Some(give_up) = give_up.take() {
                        give_up();
                    }
                    self.refuse_waiting();
                }
            }
        }
    }

    /// Refuses the queued requests, of which nothing is stored.
    fn refuse_waiting(&self) {
        let requests = std::mem::take(&mut self.queue.waiting.lock().requests);
        let mut done = CommittedGroup::default();
        for request in requests {
            match request {
                Request::Append(Queued { submission: Submission { chain, index, ack, .. }, in_flight }) => {
                    chain.end(index);
                    drop(in_flight);
                    done.acks.push((ack, Err(StoreError::NotLeader)));
                }
                // If a caller is gone, it does not need the answer.
                Request::Rewrite(Rewrite::Compact { done, .. }) => drop(done.send(Err(StoreError::NotLeader))),
                Request::Rewrite(Rewrite::Erase { done, .. }) | Request::Lead(_, done) => {
                    drop(done.send(Err(StoreError::NotLeader)));
                }
            }
        }
        self.orderer.follow().finish(Moved::default(), done);
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<(), StoreError> {
        let (follower, mut moved) = (self.orderer.follow(), Moved::default());
        match rewrite {
            Rewrite::Compact { turn, compaction, summary, done } => {
                let number = self.answered(self.orderer.compact(compaction), || {}).await;
                if let Ok(Some(number)) = number {
                    follower.applier.compact(&turn.log, number, summary, &mut moved);
                }
                let failed = final_error(&number);
                follower.finish(moved, CommittedGroup::default());
                drop(turn);
                // If the caller is gone, it does not need the answer.
                let _ = done.send(number.map(|number| number.is_some()));
                failed.map_or(Ok(()), Err)
            }
            Rewrite::Erase { id, log, done } => {
                let mut done = Some(done);
                let erasing = self.orderer.erase(&id);
                let is_erased = self.answered(erasing, || answer(&mut done, Err(StoreError::Unconfirmed))).await;
                if let Ok(Some(number)) = is_erased {
                    follower.applier.erase(&id, number, log.as_deref(), &mut moved);
                }
                let failed = final_error(&is_erased);
                follower.finish(moved, CommittedGroup::default());
                answer(&mut done, is_erased.map(|_| ()));
                failed.map_or(Ok(()), Err)
            }
        }
    }
}

impl Follow<dyn Store> for Follower {
    fn leads(&self) -> bool {
        self.leadership.leads()
    }

    async fn apply(&self, store: &dyn Store, position: u64, commit: Commit) -> Result<(), StoreError> {
        // Opened before the store has the commit, so that each tail moves from where it was.
        let mut logs = Vec::new();
        for id in commit.logs() {
            let log = match self.open.open(id, async || store.load(id)).await {
                Err(error) if error.affects_one_log() => None,
                log => Some(log?),
            };
            logs.push(log);
        }
        let history = match (&commit, &logs[..]) {
            (Commit::Compaction { .. }, [Some(log)]) => log.lock_for_commit().await,
            _ => None,
        };
        store.apply(position, &commit)?;
        let (mut moved, mut done) = (Moved::default(), CommittedGroup::default());
        match &commit {
            Commit::Group(appends) => {
                for (placed, log) in appends.iter().zip(&logs) {
                    let Some(log) = log else { continue };
                    let summary = self.summary_in(log, &placed.append.state);
                    if self.applier.append(log, std::slice::from_ref(placed), summary, &mut moved) {
                        done.moved.push(log.clone());
                    }
                    if log.reaches_growth_mark(placed.append.last) {
                        done.grown.push(log.clone());
                    }
                }
                moved.reach(appends);
            }
            Commit::Compaction { number, compaction } => {
                if let [Some(log)] = &logs[..] {
                    self.applier.compact(log, *number, self.summary_in(log, &compaction.state), &mut moved);
                }
            }
            Commit::Erasure { log: id, number } => {
                self.applier.erase(id, *number, logs.first().and_then(Option::as_deref), &mut moved);
                done.erased.push(id.clone());
            }
            Commit::Leader(leader) => self.leadership.apply(leader.clone(), false),
        }
        drop(history);
        self.finish(moved, done);
        Ok(())
    }
}

impl Follower {
    /// The summary that a commit saves with a log; the former one if it saves none that can be read.
    fn summary_in(&self, log: &Log, state: &[(Bytes, Option<Bytes>)]) -> Arc<Summary> {
        let saved = state.iter().rev().find(|(key, _)| key == META).and_then(|(_, value)| value.as_ref());
        match saved.map(|meta| Summary::read(&log.id, meta)) {
            Some(Ok(mut summary)) => {
                let entries = state.iter().map(|(key, value)| (&key[..], value.as_ref()));
                let before = log.tail().summary;
                summary.add_unlisted(&before, entries);
                let entries = state.iter().rev().filter_map(|(key, value)| Some((&key[..], value.as_deref()?)));
                if let Err(error) = summary.add_figures(&log.id, Some(&before), entries) {
                    tracing::error!(%error, "the run's usage is unknown until it is written again");
                }
                Arc::new(summary)
            }
            Some(Err(error)) => {
                tracing::error!(%error, "background tasks skip the log until it is repaired or deleted");
                self.applier.quarantine(&log.id);
                log.tail().summary
            }
            None => log.tail().summary,
        }
    }

    /// Shows readers and callers what a commit has moved.
    fn finish(&self, moved: Moved, done: CommittedGroup) {
        self.applier.finish(moved);
        if !done.is_empty() {
            // Without a receiver the process is shutting down.
            let _ = self.groups.send(done);
        }
    }
}

/// Answers a caller that has no answer yet.
fn answer<T>(waiting: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(waiting) = waiting.take() {
        // If the caller is gone, it does not need the answer.
        let _ = waiting.send(result);
    }
}

/// The error after which the committer must not go on.
fn final_error<T>(result: &Result<T, StoreError>) -> Option<StoreError> {
    result.as_ref().err().filter(|error| !matches!(error, StoreError::NotLeader)).cloned()
}

fn conflict(log: &Log) -> StoreError {
    let why = format!("another writer has appended to {}; its tail is not the expected one", log.id);
    StoreError::Failed { doing: "append", why }
}

fn submission_bytes(submission: &Submission) -> usize {
    let bytes = |append: &Append| append.rows.len() + append.blobs.iter().map(|blob| blob.body.len()).sum::<usize>();
    submission.appends.iter().map(bytes).sum()
}
