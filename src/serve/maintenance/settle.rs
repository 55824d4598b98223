//! Settling: ends runs whose runtime has gone silent, so that no client shows a spinner forever.
//!
//! An active run that is silent for [`StalenessLimits::stale_after`] becomes stale. After
//! [`StalenessLimits::settle_after`] the server ends it. Both are envelopes in the run's own log, written in the
//! server's name. A run that waits for a decision does not age; only `POST /v1/runs/{run}/settle` ends it.
//!
//! Any delivery counts as activity, even one without a fact, and so does an open streamed body. Time counts from when
//! this server started, because a server restart says nothing about the runtime.

use crate::ingest::Verdict;
use crate::log::LogId;
use crate::log::commit::Log;
use crate::model::RunId;
use crate::serve::App;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a run may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StalenessLimits {
    /// Silence after which a run is stale.
    pub stale_after: Duration,
    /// Silence after which a run is settled.
    pub settle_after: Duration,
}

impl Default for StalenessLimits {
    fn default() -> Self {
        Self { stale_after: Duration::from_mins(1), settle_after: Duration::from_mins(5) }
    }
}

/// Interval between two checks of all active runs: a sixth of the shorter limit, within this range.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(5);

/// Runs checked before the task yields to others.
const RUNS_PER_YIELD: usize = 256;

/// Detects silent runs of one server.
pub struct Settler {
    app: Arc<App>,
    limits: StalenessLimits,
    runs: HashMap<RunId, LastActivity>,
}

/// A run's last known activity.
struct LastActivity {
    /// Held, so that the log keeps counting its activity.
    log: Arc<Log>,
    /// The activity count at the last check; see [`Log::last_activity`].
    count: Option<u64>,
    since: Instant,
}

impl Settler {
    pub(in crate::serve) fn new(app: Arc<App>, limits: StalenessLimits) -> Self {
        Self { app, limits, runs: HashMap::new() }
    }

    /// Runs the checks until the task is aborted.
    pub(in crate::serve) async fn run(mut self) {
        let pause =
            (self.limits.stale_after.min(self.limits.settle_after) / 6).clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end());
        loop {
            tokio::time::sleep(pause).await;
            if !self.app.logs.leadership().leads() {
                continue;
            }
            if let Err(error) = self.run_once(Instant::now()).await {
                // A failure of the store stops the server elsewhere.
                tracing::warn!(%error, "cannot settle runs");
            }
        }
    }

    /// Checks every active run, as of `now`.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn run_once(&mut self, now: Instant) -> Result<(), crate::log::StoreError> {
        if self.app.disk.check_space().is_err() {
            // A full disk has no space for the envelope; a later check writes it.
            return Ok(());
        }
        let ongoing = self.app.logs.active_runs();
        let mut before = std::mem::replace(&mut self.runs, HashMap::with_capacity(ongoing.len()));
        let (mut stale, mut settled, mut example) = (0_usize, 0_usize, None);
        for (nth, run) in ongoing.into_iter().enumerate() {
            if nth % RUNS_PER_YIELD == RUNS_PER_YIELD - 1 {
                tokio::task::yield_now().await;
            }
            let id = LogId::Run(run.clone());
            let mut known = match before.remove(&run) {
                Some(known) => known,
                None => match self.app.logs.log(&id).await {
                    Ok(log) => LastActivity { log, count: None, since: now },
                    Err(error) if error.affects_one_log() => {
                        self.app.logs.quarantine(&id, &error);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            let activity = known.log.last_activity();
            if activity.is_none() || activity != known.count {
                (known.count, known.since) = (activity, now);
            }
            let silent = now.saturating_duration_since(known.since);
            let verdict = if silent >= self.limits.settle_after {
                let message = format!("no activity for {silent:.0?}; the run's runtime may be gone");
                Some(Verdict::Settled { code: "not_heard_of", message })
            } else if silent >= self.limits.stale_after && !known.log.tail().summary.run.stale {
                Some(Verdict::Stale)
            } else {
                None
            };
            if let Some(verdict) = verdict {
                match self.app.ingest.declare(&run, &verdict, activity).await {
                    Ok(false) => {}
                    Ok(true) => {
                        let is_settled = verdict != Verdict::Stale;
                        tracing::debug!(%run, ?silent, settled = is_settled, "a run has gone silent");
                        (stale, settled) = (stale + usize::from(!is_settled), settled + usize::from(is_settled));
                        example.get_or_insert_with(|| run.clone());
                    }
                    Err(error) if error.affects_one_log() => {
                        self.app.logs.quarantine(&id, &error);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.runs.insert(run, known);
        }
        // One line for all of them: a runtime that dies takes all its runs along.
        if let Some(run) = example {
            tracing::info!(stale, settled, %run, "runs have gone silent, such as this one");
        }
        Ok(())
    }
}
