//! Compaction: removes rows of an ended run that readers no longer need, some time after its last fact.
//!
//! `retention` decides which rows may go. This module decides when, and how many at once. It compacts one
//! run at a time on a blocking thread, and rests after each as long as it took, so that clients do not notice. Each step is bounded and leaves a
//! log with the same final activities. A late fact or a crash may therefore interrupt it anywhere; it starts again when
//! the run is quiet.

use crate::ingest::CompactionPlan;
use crate::log::commit::{CompactionState, Summary, Tail};
use crate::log::hash_chain::{ChainRecord, ChainWalk, add_removed, removed_entry};
use crate::log::row::Rows;
use crate::log::{Limit, LogId, LogKind, RewrittenAppend, Store, StoreError};
use crate::model::{Epoch, Sequence};
use crate::retention::{RowRemover, deletable_rows};
use crate::serve::App;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Runs of one list.
const LIST_PAGE_RUNS: usize = 256;
/// Interval between two scans of all runs: a quarter of the configured age, within this range.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(10);

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
    pub(in crate::serve) const fn new(app: Arc<App>, after: Duration) -> Self {
        Self { app, after, step: STEP_SIZE }
    }

    /// Sets the maximum size of a step.
    #[must_use]
    pub const fn with_step_size(mut self, step: StepSize) -> Self {
        self.step = step;
        self
    }

    /// Scans all runs periodically.
    pub(in crate::serve) async fn run(self) {
        loop {
            if !self.app.logs.leadership().leads() {
                tokio::time::sleep(*CHECK_INTERVAL.start()).await;
                continue;
            }
            match self.run_once().await {
                Ok(CompactionOutcome { runs: 0, .. }) => {}
                Ok(CompactionOutcome { runs, rows }) => tracing::info!(runs, rows, "compacted"),
                // A store failure stops the server through the committer.
                Err(error) => tracing::warn!(%error, "cannot compact runs"),
            }
            tokio::time::sleep((self.after / 4).clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end())).await;
        }
    }

    /// Scans all runs once, and compacts those that are due.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn run_once(&self) -> Result<CompactionOutcome, StoreError> {
        let mut outcome = CompactionOutcome::default();
        let mut before = None;
        loop {
            let started = Instant::now();
            let listed = self.app.logs.list(LogKind::Run, before, LIST_PAGE_RUNS).await?;
            // At most half of the time is work, however many runs end. A fixed pause would limit the runs a second, and a
            // server that ends more would fall behind for good.
            rest_after(started).await;
            before = listed.last().map(|last| last.created);
            for run in &listed {
                if !Summary::from_listed(run).is_some_and(|summary| self.is_due(&summary)) {
                    continue;
                }
                let started = Instant::now();
                // A separate task, so that dropping this future does not stop a step halfway.
                let (compactor, log) = (self.clone(), run.log.clone());
                let compacting = tokio::spawn(async move { compactor.compact_run(&log).await });
                match compacting.await.expect("the compaction task panicked") {
                    Ok(rows) => outcome.rows += rows,
                    Err(error) if error.affects_one_log() => tracing::error!(%error, "cannot compact a run"),
                    Err(error) => return Err(error),
                }
                outcome.runs += 1;
                rest_after(started).await;
            }
            if listed.len() < LIST_PAGE_RUNS {
                return Ok(outcome);
            }
        }
    }

    /// Returns whether a run has ended and been quiet for long enough. All its rows are at least as old.
    fn is_due(&self, summary: &Summary) -> bool {
        let quiet_since = summary.last_activity.as_deref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        summary.run.status.is_end()
            && summary.compacted.considered < summary.last_sequence
            && quiet_since.is_some_and(|at| {
                let quiet = (self.app.environment.now)().duration_since(at);
                // If the clock went backwards, no run is due.
                Duration::try_from(quiet).is_ok_and(|quiet| quiet >= self.after)
            })
    }

    /// Compacts a run step by step. Returns the number of removed rows.
    async fn compact_run(&self, id: &LogId) -> Result<usize, StoreError> {
        let App { logs, ingest, feed, .. } = &*self.app;
        let (mut reached, mut rows) = (Sequence::NONE, 0);
        loop {
            let tail = logs.log(id).await?.tail();
            let Some(epoch) = tail.epoch.filter(|_| self.is_due(&tail.summary)) else { break };
            let step = logs.work({
                let (app, id, tail, size) = (self.app.clone(), id.clone(), tail.clone(), self.step);
                move |store| plan_step(store, &id, epoch, &tail, reached, size, || app.stopping.borrow().is_some())
            });
            let CompactionStep { plan, removed, through } = match step.await {
                Ok(step) => step,
                Err(StepError::Stopped) => break,
                Err(StepError::Store(error)) => return Err(error),
            };
            if !ingest.compact(id, &tail, plan).await? {
                break;
            }
            rows += removed;
            reached = through;
        }
        if rows > 0 {
            feed.renew(id).await?;
        }
        Ok(rows)
    }
}

/// Waits as long as the work took that began then.
async fn rest_after(started: Instant) {
    tokio::time::sleep(started.elapsed()).await;
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
        let is_last = until == tail.last;
        let compacted = CompactionState {
            times: known.times + u64::from(!removed.is_empty()),
            // Only at this sequence do the remaining rows yield the same activities as the original ones.
            through: if removed.is_empty() { known.through } else { tail.last },
            considered: if is_last { tail.last } else { known.considered },
        };
        return Ok(CompactionStep {
            plan: CompactionPlan { appends, unseen: remover.removed_visible, compacted, removed: removed_entry(&ranges) },
            removed: removed.len(),
            through: until,
        });
    }
}
