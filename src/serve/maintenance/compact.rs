//! Compaction: removes rows of an ended run that readers no longer need, some time after its last fact.
//!
//! `retention` decides which rows may go. This module decides when, and how many at once. It plans one step at a time on a
//! blocking thread, and rests as long as that took, so that clients do not notice. Steps of several runs wait for the
//! disk together, as one group of commits. Each step is bounded and leaves a log with the same final activities. A late
//! fact or a crash may therefore interrupt it anywhere; it starts again when the run is quiet.

use crate::feed::lineage::last_frozen;
use crate::ingest::CompactionPlan;
use crate::log::commit::{CompactionState, Summary, Tail};
use crate::log::hash_chain::{ChainRecord, ChainWalk, add_removed, removed_entry};
use crate::log::row::Rows;
use crate::log::run_index::Upkeep;
use crate::log::{Limit, LogId, RewrittenAppend, Store, StoreError};
use crate::model::{Epoch, Sequence};
use crate::retention::{RowRemover, deletable_rows};
use crate::serve::App;
use crate::serve::maintenance::ended_runs;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Runs that are compacted at once: one step is planned while others are written.
const RUNS_AT_ONCE: usize = 16;
/// The shortest rest: timers are not more precise than a millisecond.
const REST_MIN: Duration = Duration::from_millis(10);

/// What one store read fetches.
const READ_LIMIT: Limit = Limit { rows: 2048, bytes: 1024 * 1024 };
/// The maximum that one step rewrites, except that a single append may be larger.
#[derive(Debug, Clone, Copy)]
pub struct StepSize {
    pub appends: usize,
    /// Bytes of the rewritten appends.
    pub bytes: usize,
}

/// The default. Commits wait while a step is written, so it is small.
const STEP_SIZE: StepSize = StepSize { appends: 8192, bytes: 8 * 1024 * 1024 };

/// Compacts the ended runs of one server.
#[derive(Clone)]
pub struct Compactor {
    app: Arc<App>,
    after: Duration,
    step: StepSize,
    pace: Arc<Pace>,
}

/// The result of one scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Runs that were compacted.
    pub runs: usize,
    /// Rows that were removed.
    pub rows: usize,
}

impl Compactor {
    pub(in crate::serve) fn new(app: Arc<App>, after: Duration) -> Self {
        Self { app, after, step: STEP_SIZE, pace: Arc::default() }
    }

    /// Sets the maximum size of a step.
    #[must_use]
    pub const fn with_step_size(mut self, step: StepSize) -> Self {
        self.step = step;
        self
    }

    /// Looks at all runs periodically.
    pub(in crate::serve) async fn run(self) {
        loop {
            ended_runs::next_look(&self.app, self.after).await;
            match self.run_once().await {
                Ok(CompactionOutcome { runs: 0, .. }) => {}
                Ok(CompactionOutcome { runs, rows }) => tracing::info!(runs, rows, "compacted"),
                // A store failure stops the server through the committer.
                Err(error) => tracing::warn!(%error, "cannot compact runs"),
            }
        }
    }

    /// Looks at all runs once, and compacts those that are due.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn run_once(&self) -> Result<CompactionOutcome, StoreError> {
        let mut outcome = CompactionOutcome::default();
        let (waiting, meters) = (|| ended_runs::waiting(&self.app, Upkeep::Compaction, self.after), &self.app.meters);
        meters.compactions_waiting.set(waiting().map(|runs| runs.len() as u64).sum());
        let compact = |run| {
            let compactor = self.clone();
            async move { compactor.compact_run(&LogId::Run(run)).await }
        };
        let done = |rows: Option<usize>| {
            if let Some(rows) = rows {
                outcome.runs += 1;
                outcome.rows += rows;
                meters.compactions.add(1);
                meters.compacted_rows.add(rows as u64);
            }
            meters.compactions_waiting.dec();
        };
        ended_runs::each(waiting(), RUNS_AT_ONCE, compact, done).await?;
        Ok(outcome)
    }

    /// Returns whether a run is to be compacted: it is quiet, and no hold keeps it.
    fn is_due(&self, summary: &Summary) -> bool {
        let (session, owner) = (summary.session_id.as_ref(), summary.extension.owner.as_ref());
        self.is_quiet(summary) && self.app.holds.covering_run(session, owner).is_none()
    }

    /// Returns whether a run has rested, and has rows that no compaction has considered.
    pub(super) fn is_quiet(&self, summary: &Summary) -> bool {
        summary.compacted.considered < summary.last_sequence
            && summary.extension.archived_through == Sequence::NONE
            && ended_runs::has_rested(&self.app, summary, self.after)
    }

    /// Compacts a run step by step. Returns the number of removed rows; `None` if it is not due.
    pub(super) async fn compact_run(&self, id: &LogId) -> Result<Option<usize>, StoreError> {
        let App { logs, ingest, feed, .. } = &*self.app;
        let (mut reached, mut rows) = (Sequence::NONE, None);
        loop {
            let tail = logs.log(id).await?.tail();
            let Some(epoch) = tail.epoch.filter(|_| self.is_due(&tail.summary)) else { break };
            if let Some(session) = tail.summary.session_id.clone() {
                let (app, id, last) = (self.app.clone(), id.clone(), tail.last);
                let needed = move |store: &dyn Store| last_frozen(store, app.logs.sessions(), &session, &id, epoch, last);
                reached = reached.max(logs.work(needed).await?);
            }
            let step = logs.work({
                let (app, id, tail, size) = (self.app.clone(), id.clone(), tail.clone(), self.step);
                move |store| plan_step(store, &id, epoch, &tail, reached, size, || app.stopping.is_requested())
            });
            let CompactionStep { plan, removed, through } = match self.pace.work(step).await {
                Ok(step) => step,
                Err(StepError::Stopped) => break,
                Err(StepError::Store(error)) => return Err(error),
            };
            if !ingest.compact(id, &tail, plan).await? {
                break;
            }
            *rows.get_or_insert(0) += removed;
            reached = through;
        }
        if rows.is_some_and(|rows| rows > 0) {
            feed.renew(id).await?;
        }
        Ok(rows)
    }
}

/// Plans one step at a time, and rests after it as long as it took, so that clients do not notice.
///
/// A fixed pause would limit the runs a second, and a server that ends more would fall behind for good.
#[derive(Default)]
struct Pace {
    /// The rest that is owed.
    owed: tokio::sync::Mutex<Duration>,
}

impl Pace {
    async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        let mut owed = self.owed.lock().await;
        let started = Instant::now();
        let done = work.await;
        *owed += started.elapsed();
        if *owed >= REST_MIN {
            tokio::time::sleep(std::mem::take(&mut *owed)).await;
        }
        done
    }
}

/// One step of a run's compaction.
struct CompactionStep {
    plan: CompactionPlan,
    /// Rows that the step removes.
    removed: usize,
    /// Every row up to here was considered.
    through: Sequence,
}

/// Why a step was not planned.
enum StepError {
    Store(StoreError),
    /// The server is stopping and waits for every thread.
    Stopped,
}

/// Plans one step: the rows after `after` that may go.
fn plan_step(
    store: &dyn Store,
    log: &LogId,
    epoch: Epoch,
    tail: &Tail,
    after: Sequence,
    size: StepSize,
    is_stopping: impl Fn() -> bool,
) -> Result<CompactionStep, StepError> {
    let each_append = |take: &mut dyn FnMut(crate::log::StoredAppend) -> bool| {
        let mut at = Sequence::NONE;
        while at < tail.last {
            if is_stopping() {
                return Err(StepError::Stopped);
            }
            let page = store.read(log, epoch, at, READ_LIMIT).map_err(StepError::Store)?;
            if page.is_empty() {
                break;
            }
            for placed in page {
                at = Rows(placed.rows.clone()).last().map_or(at, |row| row.sequence());
                if !take(placed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    let mut until = tail.last;
    loop {
        let removed = deletable_rows(log, after, until, |take| {
            each_append(&mut |placed| {
                Rows(placed.rows).for_each(|row| take(&row));
                true
            })
        })?;
        let mut remover = RowRemover::new(&removed);
        let (mut appends, mut bytes, mut cut) = (Vec::<RewrittenAppend>::new(), 0, None);
        each_append(&mut |placed| {
            let Some((last, rows)) = remover.append(&placed.rows) else { return true };
            bytes += rows.len();
            // Rows after the last removed one are rewritten only to fix their back references. There are few of those.
            if placed.before < until && !appends.is_empty() && (appends.len() >= size.appends || bytes > size.bytes) {
                cut = Some(placed.before);
                return false;
            }
            appends.push(RewrittenAppend { position: placed.position, last, rows });
            true
        })?;
        if let Some(cut) = cut {
            until = cut;
            continue;
        }
        let known = tail.summary.compacted;
        let chain = store.load(log).map_err(StepError::Store)?.filter(|loaded| loaded.epoch == epoch);
        let chain = chain.map(|loaded| ChainRecord::read(log, &loaded.state)).transpose().map_err(StepError::Store)?.flatten();
        let mut ranges = Vec::new();
        if let (Some(chain), false) = (&chain, removed.is_empty()) {
            let (mut walk, mut going) = (ChainWalk::new(log, epoch, chain), removed.iter().peekable());
            each_append(&mut |placed| {
                for row in Rows(placed.rows) {
                    let ends = walk.row(&row);
                    if going.next_if(|sequence| **sequence == row.sequence()).is_some() {
                        add_removed(&mut ranges, row.sequence(), ends);
                    }
                }
                going.peek().is_some()
            })?;
        }
        let state = removed_entry(&ranges).into_iter().collect();
        let is_last = until == tail.last;
        let compacted = CompactionState {
            times: known.times + u64::from(!removed.is_empty()),
            // Only at this sequence do the remaining rows yield the same activities as the original ones.
            through: if removed.is_empty() { known.through } else { tail.last },
            considered: if is_last { tail.last } else { known.considered },
        };
        return Ok(CompactionStep {
            plan: CompactionPlan { appends, unseen: remover.removed_visible, compacted, state, ..CompactionPlan::default() },
            removed: removed.len(),
            through: until,
        });
    }
}
