//! The exporter: follows the log on the node that leads, and sends what has ended.

use super::TraceMeters;
use super::collector::{Collector, SendError};
use super::reading::TraceReader;
use crate::encode::gen_ai::Trace;
use crate::environment::{self, Environment};
use crate::feed::Feed;
use crate::ingest::Ingest;
use crate::log::commit::Logs;
use crate::log::server_state::{EntryChange, StateRecord};
use crate::log::{LogId, StoreError};
use crate::model::{Audience, Epoch, RunId, Sequence};
use crate::notify::follower::Follower;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause after a round, and the interval at which progress is saved.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Traces that are read and sent at once.
const TRACES_AT_ONCE_MAX: usize = 4;
/// The position is saved once the follower has read so many commits without a run that ended.
const SAVE_POSITION_EVERY: u64 = 65_536;
/// How long a run goes on until it leaves in part, in milliseconds, and again.
const PARTIAL_AFTER_MS: i64 = 3_600_000;
/// The interval of looks for such runs.
const PARTIAL_LOOK_INTERVAL: Duration = Duration::from_mins(5);
/// Runs that have left in part and go on. Further ones leave at their end only.
const PARTIALS_MAX: usize = 4096;
/// Runs that one look at the index visits before others go on.
const RUNS_PER_LOOK: usize = 512;
/// The pauses between attempts, from the first to the longest.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(1);
/// The least time between two log lines about refused traces.
const REFUSALS_INTERVAL: Duration = Duration::from_mins(1);

/// How far the runs that ended are exported.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ExportPosition {
    position: u64,
}

impl StateRecord for ExportPosition {
    const TABLE: &'static str = "trace-position";
}

/// The id of its only entry.
const POSITION_ID: &str = "position";

/// A run that has left in part. Its id is the run's place in the order of creation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct PartialExport {
    /// The last envelope that was read.
    sequence: Sequence,
    /// In milliseconds since 1970.
    at: i64,
}

impl StateRecord for PartialExport {
    const TABLE: &'static str = "trace-partial";
}

/// A run as of an envelope.
#[derive(Debug, Clone)]
struct RunAt {
    run: RunId,
    epoch: Epoch,
    sequence: Sequence,
}

/// A run that ended.
struct EndedRun {
    /// The position of the commit.
    position: u64,
    /// In milliseconds since 1970.
    at: i64,
    run: RunAt,
}

/// What the exporter uses of a server.
pub struct ExporterParts {
    pub environment: Environment,
    pub logs: Arc<Logs>,
    pub feed: Arc<Feed>,
    pub ingest: Arc<Ingest>,
    pub meters: Arc<TraceMeters>,
}

/// The exporter of one server.
pub struct Exporter {
    environment: Environment,
    logs: Arc<Logs>,
    feed: Arc<Feed>,
    ingest: Arc<Ingest>,
    meters: Arc<TraceMeters>,
    collector: Collector,
    reader: TraceReader,
    /// When the collector was reached last, while it is away.
    away_since: Mutex<Option<Instant>>,
    /// When a refusal was logged last, and how many were not.
    refusals: Mutex<(Option<Instant>, u64)>,
}

impl Exporter {
    /// Exports to a collector, with the contents that an audience sees, if any.
    #[must_use]
    pub fn new(parts: ExporterParts, collector: Collector, content: Option<Audience>) -> Arc<Self> {
        let ExporterParts { environment, logs, feed, ingest, meters } = parts;
        let reader = TraceReader { logs: logs.clone(), feed: feed.clone(), content };
        let (away_since, refusals) = (Mutex::default(), Mutex::default());
        Arc::new(Self { environment, logs, feed, ingest, meters, collector, reader, away_since, refusals })
    }

    /// Works while this node leads, until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut leads = self.logs.leadership().watch();
        loop {
            // The sender lives as long as the logs.
            let _ = leads.wait_for(|leads| *leads).await;
            let led = self.logs.while_leading(self.lead()).await;
            self.meters.oldest.set(0);
            match led {
                Ok(Ok(()) | Err(StoreError::NotLeader)) | Err(_) => {}
                // A failure of the store stops the server elsewhere.
                Ok(Err(error)) => tracing::warn!(%error, "cannot export traces; trying again"),
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    async fn lead(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut saved = match self.logs.server_state().get::<ExportPosition>(POSITION_ID) {
            Some(ExportPosition { position }) => position,
            // The first start exports nothing of what was before.
            None => {
                let position = self.logs.position();
                self.save(position, Vec::new()).await?;
                position
            }
        };
        let mut follower = Follower::new(self.logs.clone(), self.feed.clone(), saved);
        let mut commits = self.logs.status_changes().watch();
        let mut looked_at = environment::instant();
        while self.logs.leadership().leads() {
            let found = follower.step().await?;
            let ended = found.events.into_iter().filter_map(|(position, (event, _))| match event.log {
                LogId::Run(run) if event.kind.ends_run() => {
                    Some(EndedRun { position, at: event.at, run: RunAt { run, epoch: event.epoch, sequence: event.sequence } })
                }
                _ => None,
            });
            self.export(ended.collect(), follower.position, &mut saved).await?;
            if environment::elapsed(looked_at) >= PARTIAL_LOOK_INTERVAL {
                self.export_partials().await?;
                looked_at = environment::instant();
            }
            if !found.has_more {
                // Runs that end meanwhile leave together, with one commit for the position.
                tokio::time::sleep(ROUND_INTERVAL).await;
                let rest = PARTIAL_LOOK_INTERVAL.saturating_sub(environment::elapsed(looked_at));
                let _ = tokio::time::timeout(rest, commits.changed()).await;
            }
        }
        Ok(())
    }

    async fn save(&self, position: u64, mut entries: Vec<EntryChange>) -> Result<(), StoreError> {
        entries.push(EntryChange::set(POSITION_ID, &ExportPosition { position }));
        self.ingest.append_to_server(&[], &entries).await
    }

    /// Exports the runs that ended up to a position, and saves the progress.
    async fn export(self: &Arc<Self>, ended: Vec<EndedRun>, until: u64, saved: &mut u64) -> Result<(), StoreError> {
        let (mut done, mut progress, mut completed) = (0, *saved, Vec::new());
        let runs: Vec<RunAt> = ended.iter().map(|ended| ended.run.clone()).collect();
        let exports = stream::iter(runs).map(|run| self.clone().export_ended(run));
        let mut exports = exports.buffered(TRACES_AT_ONCE_MAX).boxed();
        while let Some(next) = ended.get(done) {
            self.meters.oldest.set(u64::try_from(next.at).unwrap_or(0));
            tokio::select! {
                Some(exported) = exports.next() => {
                    completed.extend(exported?);
                    done += 1;
                    progress = ended.get(done).map_or(until, |next| next.position - 1);
                }
                // The next one may wait for the collector for long.
                () = tokio::time::sleep(ROUND_INTERVAL), if progress > *saved => {
                    self.save(progress, std::mem::take(&mut completed)).await?;
                    *saved = progress;
                }
            }
        }
        self.meters.oldest.set(0);
        if !ended.is_empty() || until >= *saved + SAVE_POSITION_EVERY {
            self.save(until, completed).await?;
            *saved = until;
        }
        Ok(())
    }

    /// Exports a run that ended. Returns what to forget of it.
    async fn export_ended(self: Arc<Self>, of: RunAt) -> Result<Option<EntryChange>, StoreError> {
        let log = LogId::Run(of.run.clone());
        let number = self.logs.query(move |store| Ok(store.head(&log)?.map(|head| head.number))).await?;
        let key = number.map(partial_key);
        let before = key.as_ref().and_then(|key| self.logs.server_state().get::<PartialExport>(key));
        self.export_run(&of, before.map(|before| before.sequence), false).await?;
        Ok(before.and(key).map(|key| EntryChange::remove::<PartialExport>(&key)))
    }

    /// Reads and sends a trace, until the collector has it or refuses it. `before`: the envelope at which it left in part
    /// last. `is_partial`: only what has ended of it.
    ///
    /// Each attempt reads the run again: what was erased meanwhile does not leave.
    async fn export_run(&self, of: &RunAt, before: Option<Sequence>, is_partial: bool) -> Result<(), StoreError> {
        let mut pause = *PAUSES.start();
        loop {
            let sent = match self.reader.read(&of.run, of.epoch, of.sequence).await {
                Ok(None) => {
                    self.meters.traces.add("skipped");
                    return Ok(());
                }
                Ok(Some(trace)) => {
                    let mut trace = if is_partial { complete(trace) } else { trace };
                    if let Some(sequence) = before {
                        let sent = self.sent(&RunAt { sequence, ..of.clone() }).await?;
                        trace.spans.retain(|span| !sent.contains(&span.id));
                    }
                    self.collector.send(&trace).await
                }
                // The object storage of old runs is away.
                Err(error @ StoreError::Archived { .. }) => {
                    Err(SendError::Unavailable { why: error.to_string(), retry_after: None })
                }
                Err(error) if error.affects_one_log() => {
                    tracing::warn!(%error, run = %of.run, "a run cannot be read for its trace");
                    self.meters.traces.add("skipped");
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            match sent {
                Ok(()) => {
                    self.note_reached();
                    self.meters.traces.add(if is_partial { "partial" } else { "exported" });
                    return Ok(());
                }
                Err(SendError::Refused(why)) => {
                    self.note_reached();
                    self.note_refusal(&of.run, &why);
                    self.meters.traces.add("refused");
                    return Ok(());
                }
                Err(SendError::Unavailable { why, retry_after }) => {
                    self.note_away(&why);
                    // Up to a fifth longer, so that servers which failed together do not come back together.
                    let spread = pause.mul_f64(((self.environment.random)() % 200) as f64 / 1000.0);
                    tokio::time::sleep((pause + spread).max(retry_after.unwrap_or_default())).await;
                    pause = (pause * 2).min(*PAUSES.end());
                }
            }
        }
    }

    /// The spans that have left with a run that went on.
    async fn sent(&self, of: &RunAt) -> Result<HashSet<[u8; 8]>, StoreError> {
        let read = self.reader.read(&of.run, of.epoch, of.sequence).await?;
        let spans = read.into_iter().flat_map(|trace| complete(trace).spans);
        Ok(spans.map(|span| span.id).collect())
    }

    /// Exports what has ended of the runs that go on for long.
    async fn export_partials(&self) -> Result<(), StoreError> {
        let now = (self.environment.now)().as_millisecond();
        let mut known: HashMap<u64, PartialExport> = HashMap::new();
        for (key, before) in self.logs.server_state().all::<PartialExport>("") {
            let number = key.parse().unwrap_or_default();
            if self.logs.runs().with(number, |_| ()).is_some() {
                known.insert(number, before);
            } else {
                self.ingest.append_to_server(&[], &[EntryChange::remove::<PartialExport>(&key)]).await?;
            }
        }
        for (number, run) in self.long_runs(now, &known).await {
            let tail = match self.logs.log(&LogId::Run(run.clone())).await {
                Ok(log) => log.tail(),
                Err(error) if error.affects_one_log() => continue,
                Err(error) => return Err(error),
            };
            let Some(epoch) = tail.epoch else { continue };
            let of = RunAt { run, epoch, sequence: tail.last };
            let before = known.get(&number).map(|before| before.sequence);
            if before.is_none_or(|before| before < of.sequence) {
                self.export_run(&of, before, true).await?;
            }
            let partial = EntryChange::set(&partial_key(number), &PartialExport { sequence: of.sequence, at: now });
            self.ingest.append_to_server(&[], &[partial]).await?;
        }
        Ok(())
    }

    /// The runs that have gone on for long since their start and since they left in part.
    async fn long_runs(&self, now: i64, known: &HashMap<u64, PartialExport>) -> Vec<(u64, RunId)> {
        let (mut due, mut before, mut room) = (Vec::new(), None, PARTIALS_MAX.saturating_sub(known.len()));
        loop {
            let last = self.logs.runs().visit_before(before, RUNS_PER_LOOK, |row| {
                let is_long = row.started().is_some_and(|started| started + PARTIAL_AFTER_MS <= now);
                if !is_long || row.status(Audience::Internal).is_end() {
                    return;
                }
                match known.get(&row.created) {
                    Some(before) if before.at + PARTIAL_AFTER_MS > now => {}
                    None if room == 0 => {}
                    found => {
                        room -= usize::from(found.is_none());
                        due.push((row.created, row.run().clone()));
                    }
                }
            });
            if last.is_none() {
                return due;
            }
            before = last;
            tokio::task::yield_now().await;
        }
    }

    /// Logs the begin of an outage, and counts each attempt in it.
    fn note_away(&self, why: &str) {
        self.meters.failures.add(1);
        let mut away_since = self.away_since.lock();
        if away_since.is_none() {
            *away_since = Some(environment::instant());
            tracing::warn!(why, "the collector of traces does not take any; trying again until it does");
        }
    }

    fn note_reached(&self) {
        if let Some(since) = self.away_since.lock().take() {
            tracing::info!(after = ?environment::elapsed(since), "the collector of traces takes them again");
        }
    }

    fn note_refusal(&self, run: &RunId, why: &str) {
        let mut refusals = self.refusals.lock();
        if refusals.0.is_some_and(|at| environment::elapsed(at) < REFUSALS_INTERVAL) {
            refusals.1 += 1;
            return;
        }
        let more = std::mem::take(&mut refusals.1);
        refusals.0 = Some(environment::instant());
        tracing::warn!(%run, why, more, "the collector refused a trace, which is not sent again");
    }
}

/// The key of a run that has left in part.
fn partial_key(number: u64) -> String {
    format!("{number:020}")
}

/// What of a trace is sent while its run goes on: the spans that have ended, without the root.
fn complete(mut trace: Trace) -> Trace {
    let mut is_root = true;
    trace.spans.retain(|span| !std::mem::take(&mut is_root) && span.end.is_some());
    trace
}
