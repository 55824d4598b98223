//! The one thread that commits, and the line to it.

use super::summary::Summary;
use super::tail::{Log, UnderWay};
use crate::log::ongoing::Ongoing;
use crate::log::queues::Queues;
use crate::log::sessions::{Changed, Sessions};
use crate::log::{Append, Outcome, Store, StoreError, panic_message};
use crate::meter::{Counter, Histogram};
use crate::model::Epoch;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// The most that one group commits, in bytes of rows and bodies; a submission that is larger goes alone.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most appends in one group.
const GROUP_APPENDS_MAX: usize = 2048;

/// Appends of one log on their way to the store. They are committed in one group, so that all of them are stored, or none.
pub struct Submission {
    pub log: Arc<Log>,
    /// In order; at least one.
    pub appends: Vec<Append>,
    /// The log's summary once this is committed.
    pub summary: Arc<Summary>,
    /// The writer's chain, and the place in it, counted from 0.
    pub chain: Arc<Chain>,
    pub number: u64,
    /// Answered when the appends are durable and visible.
    pub ack: Ack,
}

/// What one writer of a log has submitted, in order. Each submission builds on the one before it, so the first that conflicts
/// ends the chain: the committer refuses it and everything behind it, and the writer must load the log's state again.
#[derive(Debug)]
pub struct Chain {
    /// The number of the submission that conflicted; `u64::MAX` while there is none.
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

    /// Whether nothing of this submission was stored, because it or one before it conflicted.
    #[must_use]
    pub fn has_refused(&self, number: u64) -> bool {
        number >= self.conflict_at.load(Ordering::Acquire)
    }

    fn end(&self, number: u64) {
        self.conflict_at.fetch_min(number, Ordering::AcqRel);
    }
}

/// A submission in the queue. While it exists, its log counts it as under way.
pub(super) struct Queued {
    submission: Submission,
    under_way: UnderWay,
}

impl Queued {
    pub fn new(submission: Submission) -> Self {
        let under_way = UnderWay::of(&submission.log);
        Self { submission, under_way }
    }

    /// The submission, which was not queued after all.
    pub fn into_submission(self) -> Submission {
        self.submission
    }
}

/// Who waits for a commit.
pub type Ack = oneshot::Sender<Result<(), StoreError>>;

/// What one group commit did. Whoever runs the runtime answers the acks first, then looks after the logs: so one wake
/// crosses threads per group, and no reader delays an answer.
pub struct Group {
    pub acks: Vec<(Ack, Result<(), StoreError>)>,
    /// The watched logs whose tails moved, in commit order.
    pub moved: Vec<Arc<Log>>,
    /// The logs that have grown as far as [`Log::announce_grown_at`] asked.
    pub grown: Vec<Arc<Log>>,
}

/// What the committer has done since it was started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Groups that were committed, and how long each took.
    pub commits: Histogram,
    /// Appends in them.
    pub appends: Counter,
    /// Logs there are: of runs, and of sessions of their own.
    pub(super) logs: AtomicU64,
    /// Checkpoints that were saved.
    pub checkpoints: Counter,
}

/// The line to the committer.
#[derive(Default)]
pub(super) struct Line {
    pub waiting: Mutex<Waiting>,
    pub came: Condvar,
    /// Whether the committer panics at the next group, for tests of what follows.
    pub panics: AtomicBool,
}

impl Line {
    /// Nobody submits any more: the committer ends when it has committed what waits.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_one();
    }
}

#[derive(Default)]
pub(super) struct Waiting {
    pub submissions: VecDeque<Queued>,
    /// Whether somebody is about to wake the committer.
    pub is_announced: bool,
    /// Nobody submits any more, or nobody commits.
    pub is_closed: bool,
}

pub(super) struct Committer<S> {
    pub store: Arc<S>,
    pub position: Arc<AtomicU64>,
    pub life: Arc<OnceLock<Epoch>>,
    pub sessions: Arc<Sessions>,
    pub ongoing: Arc<Ongoing>,
    pub queues: Arc<Queues>,
    pub line: Arc<Line>,
    pub groups: mpsc::UnboundedSender<Group>,
    pub failed: watch::Sender<Option<StoreError>>,
    pub counts: Arc<Counts>,
}

impl<S: Store> Committer<S> {
    /// Commits until nobody can submit any more, or the store fails. A panic is a failure of the store, too: what was being
    /// written may or may not be there.
    pub fn run(self) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while let Some(group) = self.next_group() {
                assert!(!self.line.panics.load(Ordering::Relaxed), "a test asked for this panic");
                if self.commit(group).is_err() {
                    break;
                }
            }
        }));
        if let Err(panic) = ended {
            let why = format!("the committer panicked: {}", panic_message(&*panic));
            tracing::error!(why, "the committer ended; stopping");
            self.failed.send_replace(Some(StoreError::Failed { doing: "commit", why }));
        }
        let mut waiting = self.line.waiting.lock();
        waiting.is_closed = true;
        // Dropped unanswered: who waits for them is told that the server is stopping.
        waiting.submissions.clear();
    }

    /// What has come, in its order and within a group's bounds; waits for something to come. `None` when nothing can.
    fn next_group(&self) -> Option<Vec<Queued>> {
        let mut waiting = self.line.waiting.lock();
        while waiting.submissions.is_empty() {
            if waiting.is_closed {
                return None;
            }
            self.line.came.wait(&mut waiting);
        }
        let (mut bytes, mut appends) = (0, 0);
        let fits = |queued: &&Queued| {
            let room = bytes < GROUP_BYTES_MAX && appends < GROUP_APPENDS_MAX;
            bytes += weight(&queued.submission);
            appends += queued.submission.appends.len();
            room
        };
        let count = waiting.submissions.iter().take_while(fits).count();
        Some(waiting.submissions.drain(..count).collect())
    }

    fn commit(&self, group: Vec<Queued>) -> Result<(), ()> {
        let mut done = Group { acks: Vec::with_capacity(group.len()), moved: Vec::new(), grown: Vec::new() };
        let (mut appends, mut follows, mut waiting) = (Vec::new(), Vec::new(), Vec::with_capacity(group.len()));
        let mut chains = HashSet::new();
        for Queued { submission, under_way } in group {
            let Submission { log, appends: own, summary, chain, number, ack } = submission;
            // Behind a conflict the store is not asked: the log may stand by chance where this one expects it.
            if chain.is_broken() {
                done.acks.push((ack, Err(conflict(&log))));
                continue;
            }
            let from = appends.len();
            let is_first = chains.insert(Arc::as_ptr(&chain));
            follows.extend((0..own.len()).map(|n| n > 0 || !is_first));
            appends.extend(own);
            waiting.push((from..appends.len(), log, summary, chain, number, ack, under_way));
        }
        let begun = Instant::now();
        let outcomes = pollster::block_on(self.store.commit_linked(&appends, &follows));
        self.counts.commits.observe(begun.elapsed());
        self.counts.appends.add(appends.len() as u64);
        let mut failed = outcomes.as_ref().err().cloned();
        let (mut reached, mut changed) = (None, Changed::default());
        for (range, log, summary, chain, number, ack, under_way) in waiting {
            let Ok(outcomes) = &outcomes else {
                done.acks.push((ack, Err(failed.clone().expect("the store has failed"))));
                continue;
            };
            let own = &appends[range.clone()];
            let outcomes = &outcomes[range];
            let positions: Vec<_> = outcomes.iter().filter_map(Outcome::position).collect();
            if positions.len() < own.len() {
                chain.end(number);
            }
            let result = if chain.is_broken() {
                if own.iter().zip(outcomes).any(|(append, outcome)| !append.is_empty() && outcome.position().is_some()) {
                    // A store that knows no links, and another writer that moved the log exactly as far as this one would have.
                    let why = format!("{} was written by two writers at once; its stored state is not trusted", log.id);
                    failed.get_or_insert(StoreError::Failed { doing: "append", why });
                }
                Err(conflict(&log))
            } else {
                reached = positions.last().map(|(position, _)| *position).or(reached);
                let Append { epoch, last, .. } = *own.last().expect("a submission has appends");
                let created = positions.last().map_or(0, |(_, created)| *created);
                self.life.get_or_init(|| epoch);
                let (before, is_announced) = log.publish(own, &positions, summary.clone());
                let is_new = before.epoch != Some(epoch);
                self.counts.logs.fetch_add(u64::from(is_new), Ordering::Relaxed);
                let before = before.epoch.map(|_| &*before.summary);
                self.ongoing.note(&log.id, before, &summary);
                self.queues.note(&log.id, before, &summary);
                changed.extend(self.sessions.note(&log.id, created, before, &summary));
                if is_announced {
                    done.moved.push(log.clone());
                }
                if log.has_grown(last) {
                    done.grown.push(log);
                }
                Ok(())
            };
            // The tail has moved, or the chain is known to be broken: a writer that is loaded from now on sees either.
            drop(under_way);
            done.acks.push((ack, result));
        }
        // After the tails: who reads it first must find them where it says that they are.
        if let Some(position) = reached {
            self.position.store(position, Ordering::Release);
        }
        if let Some(error) = &failed {
            tracing::error!(%error, "the store failed; stopping, for what was being written may or may not be there");
            self.failed.send_replace(Some(error.clone()));
        }
        // Without a receiver the process is on its way out.
        let _ = self.groups.send(done);
        changed.tell();
        failed.map_or(Ok(()), |_| Err(()))
    }
}

fn conflict(log: &Log) -> StoreError {
    let why = format!("{} does not stand where its writer left it; another writer has appended to it", log.id);
    StoreError::Failed { doing: "append", why }
}

fn weight(submission: &Submission) -> usize {
    let bytes = |append: &Append| append.rows.len() + append.blobs.iter().map(|blob| blob.body.len()).sum::<usize>();
    submission.appends.iter().map(bytes).sum()
}
