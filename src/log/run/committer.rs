//! The one thread that commits, and the line to it.

use super::summary::Summary;
use super::tail::Log;
use crate::log::ongoing::Ongoing;
use crate::log::queues::Queues;
use crate::log::sessions::{Changed, Sessions};
use crate::log::{Append, Outcome, Store, StoreError, panic_message};
use crate::meter::{Counter, Histogram};
use crate::model::Epoch;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// The most that one group commits, in bytes of rows and bodies; what is larger goes alone.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most appends in one group.
const GROUP_APPENDS_MAX: usize = 2048;

/// An append on its way to the store.
pub struct Submission {
    pub log: Arc<Log>,
    pub append: Append,
    /// The log's summary once this is committed.
    pub summary: Arc<Summary>,
    /// Answered when the append is durable and visible.
    pub ack: Ack,
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
    pub submissions: VecDeque<Submission>,
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
    fn next_group(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.line.waiting.lock();
        while waiting.submissions.is_empty() {
            if waiting.is_closed {
                return None;
            }
            self.line.came.wait(&mut waiting);
        }
        let mut bytes = 0;
        let fits = |submission: &&Submission| {
            let room = bytes < GROUP_BYTES_MAX;
            bytes += weight(submission);
            room
        };
        let count = waiting.submissions.iter().take(GROUP_APPENDS_MAX).take_while(fits).count();
        Some(waiting.submissions.drain(..count).collect())
    }

    fn commit(&self, group: Vec<Submission>) -> Result<(), ()> {
        let (appends, waiting): (Vec<Append>, Vec<_>) = group.into_iter().map(|s| (s.append, (s.log, s.summary, s.ack))).unzip();
        let begun = Instant::now();
        let outcomes = pollster::block_on(self.store.commit(&appends));
        self.counts.commits.observe(begun.elapsed());
        self.counts.appends.add(appends.len() as u64);
        let mut done = Group { acks: Vec::with_capacity(appends.len()), moved: Vec::new(), grown: Vec::new() };
        let outcomes = outcomes.map_err(|error| {
            tracing::error!(%error, "the store failed; stopping, for what was being written may or may not be there");
            self.failed.send_replace(Some(error.clone()));
            error
        });
        let (mut reached, mut changed) = (None, Changed::default());
        for (i, (log, summary, ack)) in waiting.into_iter().enumerate() {
            let result = match outcomes.as_ref().map(|outcomes| outcomes[i]) {
                Ok(Outcome::Committed { position, created }) => {
                    reached = Some(position);
                    self.life.get_or_init(|| appends[i].epoch);
                    let (before, is_announced) = log.publish(&appends[i], position, summary.clone());
                    let is_new = before.epoch != Some(appends[i].epoch);
                    self.counts.logs.fetch_add(u64::from(is_new), Ordering::Relaxed);
                    let before = before.epoch.map(|_| &*before.summary);
                    self.ongoing.note(&log.id, before, &summary);
                    self.queues.note(&log.id, before, &summary);
                    changed.extend(self.sessions.note(&log.id, created, before, &summary));
                    if is_announced {
                        done.moved.push(log.clone());
                    }
                    if log.has_grown(appends[i].last) {
                        done.grown.push(log);
                    }
                    Ok(())
                }
                Ok(Outcome::Conflict { last, epoch }) => {
                    let why = format!("{} stands at {last} in {epoch:?}; somebody else writes it", log.id);
                    Err(StoreError::Failed { doing: "append", why })
                }
                Err(error) => Err(error.clone()),
            };
            done.acks.push((ack, result));
        }
        // After the tails: who reads it first must find them where it says that they are.
        if let Some(position) = reached {
            self.position.store(position, Ordering::Release);
        }
        // Without a receiver the process is on its way out.
        let _ = self.groups.send(done);
        changed.tell();
        outcomes.map(|_| ()).map_err(|_| ())
    }
}

fn weight(submission: &Submission) -> usize {
    submission.append.rows.len() + submission.append.blobs.iter().map(|blob| blob.body.len()).sum::<usize>()
}
