//! Settling: no reader is left with a spinner that nobody will stop.
//!
//! A run that goes on, and of which nothing is heard for [`Patience::stale`], is said to be stale; after [`Patience::settle`]
//! it is said to be over. Both are envelopes of the run's own log, by the server and under its name. A run that waits for
//! somebody's decision does not age; only `POST /v1/runs/{run}/settle` ends it.
//!
//! What counts as hearing is any delivery, also one without a fact, and a streamed body for as long as it is open. Time counts
//! from when this server began to listen: that it was away itself says nothing of a runtime.

use super::App;
use super::hydrate::{live, no_such_run};
use super::problem::Problem;
use super::request::path_id;
use crate::ingest::Verdict;
use crate::log::LogId;
use crate::log::run::{Log, Tail};
use crate::model::{Epoch, RunId};
use axum::extract::State;
use axum::response::Response;
use http::Uri;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long silence is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until a run is said to be stale.
    pub stale: Duration,
    /// Until it is settled.
    pub settle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { stale: Duration::from_mins(1), settle: Duration::from_mins(5) }
    }
}

/// From one look at all runs that go on to the next: a sixth of the shorter patience, within these bounds.
const ROUND: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(5);

/// Runs that are looked at in one go; then whoever else has something to do has a turn.
const TURN_RUNS: usize = 256;

/// Listens to the runs of one server.
pub struct Settler {
    app: Arc<App>,
    patience: Patience,
    runs: HashMap<RunId, Heard>,
}

/// What was heard of a run, and since when nothing more.
struct Heard {
    /// Held, so that it goes on counting.
    log: Arc<Log>,
    /// See [`Log::heard`].
    count: Option<u64>,
    since: Instant,
}

impl Settler {
    pub(super) fn new(app: Arc<App>, patience: Patience) -> Self {
        Self { app, patience, runs: HashMap::new() }
    }

    /// Listens, until it is aborted.
    pub(super) async fn keep(mut self) {
        let pause = (self.patience.stale.min(self.patience.settle) / 6).clamp(*ROUND.start(), *ROUND.end());
        loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.round(Instant::now()).await {
                // A failure of the store stops the server elsewhere.
                tracing::warn!(%error, "settling");
            }
        }
    }

    /// Looks at every run that goes on, as of `now`.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn round(&mut self, now: Instant) -> Result<(), crate::log::StoreError> {
        if self.app.disk.has_room().is_err() {
            // There is no room to say so; it is said when there is.
            return Ok(());
        }
        let ongoing = self.app.logs.ongoing();
        let mut before = std::mem::replace(&mut self.runs, HashMap::with_capacity(ongoing.len()));
        for (nth, run) in ongoing.into_iter().enumerate() {
            if nth % TURN_RUNS == TURN_RUNS - 1 {
                tokio::task::yield_now().await;
            }
            let id = LogId::Run(run.clone());
            let mut known = match before.remove(&run) {
                Some(known) => known,
                None => match self.app.logs.log(&id).await {
                    Ok(log) => Heard { log, count: None, since: now },
                    Err(error) if error.is_of_one_log() => {
                        self.app.logs.set_aside(&id, &error);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            let heard = known.log.heard();
            if heard.is_none() || heard != known.count {
                (known.count, known.since) = (heard, now);
            }
            let silent = now.saturating_duration_since(known.since);
            let verdict = if silent >= self.patience.settle {
                let message = format!("nothing was heard of the run for {silent:.0?}; its runtime may be gone");
                Some(Verdict::Settled { code: "not_heard_of", message })
            } else if silent >= self.patience.stale && !known.log.tail().summary.run.stale {
                Some(Verdict::Stale)
            } else {
                None
            };
            if let Some(verdict) = verdict {
                match self.app.ingest.pronounce(&run, &verdict, heard).await {
                    Ok(false) => {}
                    Ok(true) => {
                        tracing::info!(%run, ?silent, settled = verdict != Verdict::Stale, "a run is not heard of any more");
                    }
                    Err(error) if error.is_of_one_log() => {
                        self.app.logs.set_aside(&id, &error);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.runs.insert(run, known);
        }
        Ok(())
    }
}

/// `POST /v1/runs/{run}/settle`: ends a run that nobody will end any more, also one that waits. One that has ended stays as
/// it is.
pub async fn post(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", &uri)?;
    app.disk.has_room()?;
    let log = app.logs.log(&LogId::Run(run.clone())).await?;
    if log.tail().epoch.is_none() {
        return Err(no_such_run(&run));
    }
    let verdict = Verdict::Settled { code: "settled", message: "somebody settled the run: its runtime will not end it".into() };
    let settled = app.ingest.pronounce(&run, &verdict, None).await?;
    let Tail { epoch, last, summary } = log.tail();
    let epoch = epoch.as_ref().map(Epoch::to_string);
    Ok(live(json!({
        "runId": run,
        "epoch": epoch,
        "status": summary.run.status,
        "phase": summary.run.phase,
        "lastSequence": last,
        "settled": settled,
    })))
}
