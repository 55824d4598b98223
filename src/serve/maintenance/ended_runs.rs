//! What compaction and archive share: which ended runs are due, and when they are looked at.

use crate::log::StoreError;
use crate::log::commit::Summary;
use crate::log::run_index::Upkeep;
use crate::model::RunId;
use crate::serve::App;
use futures_util::{StreamExt, stream};
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks at all runs: a quarter of the configured age, within this range.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(10);

/// Waits for the next look at all runs, for work that is due so long after their end, and until this server leads.
pub async fn next_look(app: &App, after: Duration) {
    tokio::time::sleep((after / 4).clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end())).await;
    until_leading(app).await;
}

/// Waits until this server leads.
pub async fn until_leading(app: &App) {
    while !app.logs.leadership().leads() {
        tokio::time::sleep(*CHECK_INTERVAL.start()).await;
    }
}

/// Waits as long as the work took that began then, so that at most half of the time is work.
pub async fn rest_after(started: Instant) {
    tokio::time::sleep(started.elapsed()).await;
}

/// The runs that may be due for this work, page by page: those that ended so long ago.
pub fn waiting(app: &App, work: Upkeep, after: Duration) -> impl Iterator<Item = Vec<RunId>> {
    let now = (app.environment.now)();
    let ended_by = now.as_millisecond().saturating_sub(i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
    let mut at = 0;
    std::iter::from_fn(move || {
        let (runs, reached) = app.logs.runs().waiting(work, at, ended_by);
        at = reached?;
        Some(runs)
    })
}

/// Works on each of these runs, `at_once` at a time. `work` returns what it did; `None` if the run was not due.
///
/// A run that cannot be read is reported and left out.
///
/// # Errors
/// [`StoreError`] that affects more than one run.
pub async fn each<T: Send + 'static, F>(
    runs: impl Iterator<Item = Vec<RunId>>,
    at_once: usize,
    work: impl Fn(RunId) -> F,
    mut done: impl FnMut(Option<T>),
) -> Result<(), StoreError>
where
    F: Future<Output = Result<Option<T>, StoreError>> + Send + 'static,
{
    for page in runs {
        // A task of its own, so that dropping this future does not stop a step halfway.
        let mut working = stream::iter(page).map(|run| tokio::spawn(work(run))).buffer_unordered(at_once);
        while let Some(result) = working.next().await {
            match result.expect("the work on a run panicked") {
                Err(error) if error.affects_one_log() => {
                    tracing::error!(%error, "cannot work on an ended run");
                    done(None);
                }
                result => done(result?),
            }
        }
    }
    Ok(())
}

/// Returns whether a run has ended and been quiet for long enough. All its rows are at least as old.
pub fn has_rested(app: &App, summary: &Summary, after: Duration) -> bool {
    let quiet_since = summary.last_activity.as_deref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let quiet = |at| (app.environment.now)().duration_since(at);
    // If the clock went backwards, no run has.
    let is_quiet = |at| Duration::try_from(quiet(at)).is_ok_and(|quiet| quiet >= after);
    summary.run.status.is_end() && quiet_since.is_some_and(is_quiet)
}
