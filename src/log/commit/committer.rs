//! The committer thread and its queue.

use super::applier::{Applier, Moved};
use super::summary::Summary;
use super::tail::{InFlightGuard, Log};
use crate::log::{Append, AppendOutcome, Store, StoreError, panic_message};
use crate::meter::{Counter, Histogram};
use futures_util::FutureExt;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

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

/// The caller that waits for a commit.
pub type Ack = oneshot::Sender<Result<(), StoreError>>;

/// The result of one group commit.
///
/// Its receiver sends the acks first and then serves the logs. So one wake-up per group crosses threads, and no reader
/// delays an answer.
pub struct CommittedGroup {
    pub acks: Vec<(Ack, Result<(), StoreError>)>,
    /// The watched logs whose tails moved, in commit order.
    pub moved: Vec<Arc<Log>>,
    /// The logs that have reached the sequence of [`Log::announce_growth_at`].
    pub grown: Vec<Arc<Log>>,
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

/// The queue of submissions to the committer.
#[derive(Default)]
pub(super) struct CommitQueue {
    pub waiting: Mutex<Waiting>,
    pub arrived: Condvar,
    /// Whether the committer panics at the next group; for tests.
    pub panics: AtomicBool,
}

impl CommitQueue {
    /// Closes the queue: the committer ends once it has committed all queued submissions.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.arrived.notify_one();
    }
}

#[derive(Default)]
pub(super) struct Waiting {
    pub submissions: VecDeque<Queued>,
    /// Whether a task is about to wake the committer.
    pub is_announced: bool,
    /// Set when no further submissions come, or when the committer has ended.
    pub is_closed: bool,
}

pub(super) struct Committer<S> {
    pub store: Arc<S>,
    pub applier: Arc<Applier>,
    pub queue: Arc<CommitQueue>,
    pub groups: mpsc::UnboundedSender<CommittedGroup>,
    pub failed: watch::Sender<Option<StoreError>>,
    pub counts: Arc<CommitCounters>,
}

impl<S: Store> Committer<S> {
    /// Commits until the queue is closed and empty, or until the store fails.
    ///
    /// A panic counts as a failure of the store: the data being written may or may not be on disk.
    pub async fn run(self) {
        let work = async {
            while let Some(group) = self.next_group() {
                assert!(!self.queue.panics.load(Ordering::Relaxed), "a test asked for this panic");
                if self.commit(group).await.is_err() {
                    break;
                }
            }
        };
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            let why = format!("the committer panicked: {}", panic_message(&*panic));
            tracing::error!(why, "the committer ended; the server stops");
            self.failed.send_replace(Some(StoreError::Failed { doing: "commit", why }));
        }
        let mut waiting = self.queue.waiting.lock();
        waiting.is_closed = true;
        // Dropped unanswered: their callers get the error that the server is stopping.
        waiting.submissions.clear();
    }

    /// Takes the queued submissions in order, within a group's bounds; waits for the first one.
    ///
    /// `None` when the queue is closed.
    fn next_group(&self) -> Option<Vec<Queued>> {
        let mut waiting = self.queue.waiting.lock();
        while waiting.submissions.is_empty() {
            if waiting.is_closed {
                return None;
            }
            self.queue.arrived.wait(&mut waiting);
        }
        let (mut bytes, mut appends) = (0, 0);
        let fits = |queued: &&Queued| {
            let room = bytes < GROUP_BYTES_MAX && appends < GROUP_APPENDS_MAX;
            bytes += submission_bytes(&queued.submission);
            appends += queued.submission.appends.len();
            room
        };
        let count = waiting.submissions.iter().take_while(fits).count();
        Some(waiting.submissions.drain(..count).collect())
    }

    async fn commit(&self, group: Vec<Queued>) -> Result<(), ()> {
        let mut done = CommittedGroup { acks: Vec::with_capacity(group.len()), moved: Vec::new(), grown: Vec::new() };
        let (mut appends, mut follows, mut waiting) = (Vec::new(), Vec::new(), Vec::with_capacity(group.len()));
        let mut chains = HashSet::new();
        for Queued { submission, in_flight } in group {
            let Submission { log, appends: own, summary, chain, index, ack } = submission;
            // After a conflict the committer does not ask the store: the log's tail may match `expected` by chance.
            if chain.is_broken() {
                done.acks.push((ack, Err(conflict(&log))));
                continue;
            }
            let from = appends.len();
            let is_first = chains.insert(Arc::as_ptr(&chain));
            follows.extend((0..own.len()).map(|n| n > 0 || !is_first));
            appends.extend(own);
            waiting.push((from..appends.len(), log, summary, chain, index, ack, in_flight));
        }
        let begun = Instant::now();
        let outcomes = self.store.commit_linked(&appends, &follows).await;
        self.counts.commits.observe(begun.elapsed());
        self.counts.appends.add(appends.len() as u64);
        let mut failed = outcomes.as_ref().err().cloned();
        let mut moved = Moved::default();
        for (range, log, summary, chain, index, ack, in_flight) in waiting {
            let Ok(outcomes) = &outcomes else {
                done.acks.push((ack, Err(failed.clone().expect("the store failed"))));
                continue;
            };
            let own = &appends[range.clone()];
            let outcomes = &outcomes[range];
            let positions: Vec<_> = outcomes.iter().filter_map(AppendOutcome::position).collect();
            if positions.len() < own.len() {
                chain.end(index);
            }
            let result = if chain.is_broken() {
                if own.iter().zip(outcomes).any(|(append, outcome)| !append.is_empty() && outcome.position().is_some()) {
                    // The store does not support links, and another writer moved the log exactly as far as this one
                    // would have.
                    let why = format!("two writers wrote {} at once; its stored state cannot be trusted", log.id);
                    failed.get_or_insert(StoreError::Failed { doing: "append", why });
                }
                Err(conflict(&log))
            } else {
                let last = own.last().expect("a submission has appends").last;
                let is_announced = self.applier.apply(&log, own, &positions, summary, &mut moved);
                if is_announced {
                    done.moved.push(log.clone());
                }
                if log.reaches_growth_mark(last) {
                    done.grown.push(log);
                }
                Ok(())
            };
            // Only now: a writer that loads the log from here on sees the moved tail or the broken chain.
            drop(in_flight);
            done.acks.push((ack, result));
        }
        let affected = self.applier.finish(moved);
        if let Some(error) = &failed {
            tracing::error!(%error, "the store failed; the server stops, because the data being written may or may not be on disk");
            self.failed.send_replace(Some(error.clone()));
        }
        // Without a receiver the process is shutting down.
        let _ = self.groups.send(done);
        affected.notify();
        failed.map_or(Ok(()), |_| Err(()))
    }
}

fn conflict(log: &Log) -> StoreError {
    let why = format!("another writer has appended to {}; its tail is not the expected one", log.id);
    StoreError::Failed { doing: "append", why }
}

fn submission_bytes(submission: &Submission) -> usize {
    let bytes = |append: &Append| append.rows.len() + append.blobs.iter().map(|blob| blob.body.len()).sum::<usize>();
    submission.appends.iter().map(bytes).sum()
}
