//! Compaction: what an ended run's readers need no more is taken out of its log, some time after its last fact.
//!
//! What may go, `projection::retention` says; here is when, and how much at once. One run at a time, in a thread that may wait,
//! with pauses: nobody is to notice. A run is taken in steps of a bounded size, each of which leaves a log that comes to the
//! same, so that it may be interrupted anywhere, by a late fact or by a crash, and is begun again when the run is quiet.

use super::App;
use crate::ingest::Thinned;
use crate::log::row::Rows;
use crate::log::run::{Compacted, Summary, Tail};
use crate::log::{Limit, LogId, LogKind, Rewritten, Store, StoreError};
use crate::model::{Epoch, Sequence};
use crate::projection::retention::{Thinning, dispensable};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs that are looked at before a pause.
const LISTED: usize = 256;
/// The shortest pause between two runs, or between two lists of them. A run that took longer is followed by as long a pause.
const PAUSE: Duration = Duration::from_millis(50);
/// From one look at all runs to the next: a quarter of what they are kept for, within these bounds.
const ROUND: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(10);

/// What is read from the store at once.
const PAGE: Limit = Limit { rows: 2048, bytes: 1024 * 1024 };
/// What one step rewrites, unless a single append is larger.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub appends: usize,
    /// Of what is left of them.
    pub bytes: usize,
}

/// Commits wait for a step to be written.
const STEP: Size = Size { appends: 8192, bytes: 8 * 1024 * 1024 };

/// Compacts the runs of one server.
#[derive(Clone)]
pub struct Compactor {
    app: Arc<App>,
    after: Duration,
    step: Size,
}

/// What compaction came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Runs that were looked through.
    pub runs: usize,
    /// Rows that are gone.
    pub rows: usize,
}

impl Compactor {
    pub(super) const fn new(app: Arc<App>, after: Duration) -> Self {
        Self { app, after, step: STEP }
    }

    /// With steps of another size.
    #[must_use]
    pub const fn stepping(mut self, step: Size) -> Self {
        self.step = step;
        self
    }

    /// Looks at all runs, again and again.
    pub(super) async fn keep(self) {
        loop {
            match self.round().await {
                Ok(Outcome { runs: 0, .. }) => {}
                Ok(Outcome { runs, rows }) => tracing::info!(runs, rows, "compacted"),
                // A failure of the store stops the server elsewhere.
                Err(error) => tracing::warn!(%error, "compacting"),
            }
            tokio::time::sleep((self.after / 4).clamp(*ROUND.start(), *ROUND.end())).await;
        }
    }

    /// Looks at all runs once, and compacts those whose time has come.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn round(&self) -> Result<Outcome, StoreError> {
        let mut came_to = Outcome::default();
        let mut before = None;
        loop {
            let listed = self.app.logs.list(LogKind::Run, before, LISTED).await?;
            before = listed.last().map(|last| last.created);
            for run in &listed {
                if !Summary::listed(run).is_some_and(|summary| self.is_due(&summary)) {
                    continue;
                }
                let begun = Instant::now();
                // Half-way is no place to stop, whoever asked.
                let (compactor, log) = (self.clone(), run.log.clone());
                let compacting = tokio::spawn(async move { compactor.run(&log).await });
                match compacting.await.expect("nobody aborts it, and a panic in it is one here") {
                    Ok(rows) => came_to.rows += rows,
                    Err(error) if error.is_of_one_log() => tracing::error!(%error, "a run is not compacted"),
                    Err(error) => return Err(error),
                }
                came_to.runs += 1;
                tokio::time::sleep(begun.elapsed().max(PAUSE)).await;
            }
            if listed.len() < LISTED {
                return Ok(came_to);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether a run has ended and been quiet for long enough: then whatever is in it is at least as old.
    fn is_due(&self, summary: &Summary) -> bool {
        let quiet_since = summary.last_activity.as_deref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        summary.run.status.is_end()
            && summary.compacted.considered < summary.last_sequence
            && quiet_since.is_some_and(|at| {
                let quiet = (self.app.world.now)().duration_since(at);
                // Of a clock that went back, nothing is old.
                Duration::try_from(quiet).is_ok_and(|quiet| quiet >= self.after)
            })
    }

    /// Compacts a run, step by step; how many rows are gone.
    async fn run(&self, id: &LogId) -> Result<usize, StoreError> {
        let App { logs, ingest, feed, .. } = &*self.app;
        let (mut reached, mut rows) = (Sequence::NONE, 0);
        loop {
            let tail = logs.log(id).await?.tail();
            let Some(epoch) = tail.epoch.filter(|_| self.is_due(&tail.summary)) else { break };
            let step = logs.work({
                let (app, id, tail, size) = (self.app.clone(), id.clone(), tail.clone(), self.step);
                move |store| plan(store, &id, epoch, &tail, reached, size, || app.stopping.borrow().is_some())
            });
            let Step { thinned, gone, through } = match step.await {
                Ok(step) => step,
                Err(Broken::Stopped) => break,
                Err(Broken::Store(error)) => return Err(error),
            };
            if !ingest.compact(id, &tail, thinned).await? {
                break;
            }
            rows += gone;
            reached = through;
        }
        if rows > 0 {
            feed.renew(id).await?;
        }
        Ok(rows)
    }
}

/// One step of a run's compaction.
struct Step {
    thinned: Thinned,
    /// How many rows it takes away.
    gone: usize,
    /// Up to here every row was considered.
    through: Sequence,
}

/// Why a step was not worked out.
enum Broken {
    Store(StoreError),
    /// The process is on its way out, and waits for every thread.
    Stopped,
}

/// What of the rows after `after` may go, of as many as one step takes.
fn plan<S: Store>(
    store: &S,
    log: &LogId,
    epoch: Epoch,
    tail: &Tail,
    after: Sequence,
    size: Size,
    is_stopping: impl Fn() -> bool,
) -> Result<Step, Broken> {
    let each_append = |take: &mut dyn FnMut(crate::log::Placed) -> bool| {
        let mut at = Sequence::NONE;
        while at < tail.last {
            if is_stopping() {
                return Err(Broken::Stopped);
            }
            let page = pollster::block_on(store.read(log, epoch, at, PAGE)).map_err(Broken::Store)?;
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
        let gone = dispensable(log, after, until, |take| {
            each_append(&mut |placed| {
                Rows(placed.rows).for_each(|row| take(&row));
                true
            })
        })?;
        let mut thinning = Thinning::new(&gone);
        let (mut appends, mut bytes, mut cut) = (Vec::<Rewritten>::new(), 0, None);
        each_append(&mut |placed| {
            let Some((last, rows)) = thinning.append(&placed.rows) else { return true };
            bytes += rows.len();
            // What follows the last row that goes is rewritten only to point to another one before it: of that there is little.
            if placed.before < until && !appends.is_empty() && (appends.len() >= size.appends || bytes > size.bytes) {
                cut = Some(placed.before);
                return false;
            }
            appends.push(Rewritten { position: placed.position, last, rows });
            true
        })?;
        if let Some(cut) = cut {
            until = cut;
            continue;
        }
        let known = tail.summary.compacted;
        let is_last = until == tail.last;
        let compacted = Compacted {
            times: known.times + u64::from(!gone.is_empty()),
            // Only there does what is left come to what there was.
            through: if gone.is_empty() { known.through } else { tail.last },
            considered: if is_last { tail.last } else { known.considered },
        };
        return Ok(Step { thinned: Thinned { appends, unseen: thinning.unseen, compacted }, gone: gone.len(), through: until });
    }
}
