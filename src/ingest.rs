//! The write path: facts in, an append out.
//!
//! ```text
//! facts ─▶ adapter ─▶ ledger ─▶ guard ─▶ stamp ─▶ committer
//! ```
//! One [`Desk`] a log takes them in order under one lock, and the log's append is in the committer's line before the lock is
//! let go: so sequences are gapless and in order. Everything that the stages remember is saved in the same append. Time and
//! randomness come in with the request. Nothing here knows a reader.
//!
//! Whoever erases a log, or rewrites its past, takes its desk away first: what was taken there is in the log by then, what
//! comes after waits for a new one.

use crate::guard::{Guard, Guarded, Policy};
use crate::log::control::{ASKING_MAX, AskedAction, CLOSED_CONTROLS_MAX, CONTROL, ControlRecord, ControlState};
use crate::log::row::Row;
use crate::log::run::{Compacted, Log, Logs, Shown, Submission, Summary, Tail, summary_of};
use crate::log::{Append, Blob, Compaction, Loaded, LogId, META, Rewritten, Store, StoreError};
use crate::meter::Counter;
use crate::model::audience::{self, Audience, Sight};
use crate::model::{
    AgentId, BlobId, ControlId, Draft, Envelope, Epoch, EventType, Ids, Owner, Phase, ProducerId, RunId, Sequence, SessionId,
    ToolCallId,
};
use crate::source::ledger::{Ledger, RunState, Violation};
use crate::source::{self, Adapter, Answer, FactError, SourceKind};
use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit, oneshot, watch};
use uuid::Uuid;

/// The newest runs of a session that are asked whether an answer is for them.
const ASKING_RUNS_MAX: usize = 64;
/// Numbered producers of one log.
pub const PRODUCERS_MAX: usize = 10_000;

/// Where time and randomness come from: given by `main`, so that everything else is a function of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub now: fn() -> jiff::Timestamp,
    /// Random bits from the operating system.
    pub random: fn() -> u128,
}

/// What the write path bears, and what it does about more.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Facts under way to the store, in bytes of their bodies; beyond it producers wait.
    pub in_flight_bytes_max: usize,
    /// How long they wait, until they are told to come back.
    pub wait_max: Duration,
    /// Bytes under way from which on diagnostics and metrics are shed, which nobody's picture hangs on.
    pub shed_bytes_min: usize,
    /// Logs there may be, of runs and of sessions: of each something stays in memory. Those that are begun at the same moment
    /// may be a few more.
    pub logs_max: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: 128 * 1024 * 1024,
            wait_max: Duration::from_secs(10),
            shed_bytes_min: 64 * 1024 * 1024,
            logs_max: 1_000_000,
        }
    }
}

/// What was taken so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub accepted: Counter,
    pub duplicates: Counter,
    pub shed: Counter,
    pub envelopes: Counter,
    /// Bodies that were moved out of their envelopes, and their bytes.
    pub blobs: Counter,
    pub blob_bytes: Counter,
    /// Runs that were said to be stale, and that the server ended.
    pub stale: Counter,
    pub settled: Counter,
}

/// A producer's own numbering of its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: u64,
    /// The number of the body's first fact, from 0.
    pub seq: u64,
}

/// Facts of one source for one log.
pub struct Delivery {
    pub log: LogId,
    pub source: &'static SourceKind,
    /// Ids from the request.
    pub given: Ids,
    pub producer: Option<Producer>,
    pub facts: Vec<Value>,
    /// The size of the facts' text, in bytes.
    pub bytes: usize,
    /// All or nothing; else what stands before a bad fact is kept.
    pub atomic: bool,
    /// The log's life that the facts before these went to, if they are the rest of something.
    pub life: Option<Epoch>,
    /// What whoever delivers is kept to; nothing, for most.
    pub fence: Option<Fence>,
}

/// To which runs and sessions somebody may add. A run is theirs by its name or by its session, and the session is what the
/// run's first envelope that names one says: so where a delivery decides that, it is looked at here, in the one place
/// where nobody else can decide it meanwhile.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn(Reach<'_>) -> bool + Send + Sync>);

/// What a [`Fence`] is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'a> {
    /// A run that belongs to this session, if to any.
    Run(&'a RunId, Option<&'a SessionId>),
    /// A session, to bring a run into.
    Session(&'a SessionId),
}

impl Fence {
    /// A fence around what `has` says yes to.
    pub fn new(has: impl Fn(Reach<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(has))
    }

    fn has(&self, what: Reach<'_>) -> bool {
        (self.0)(what)
    }
}

/// What a fence leaves to be found out of a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owes {
    Nothing,
    /// If it names a session, one that is inside.
    NoOther,
    /// A session that is inside.
    Session,
}

/// What became of a delivery. Once it is returned, it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// `null` for a log that still has no envelope.
    #[serde(serialize_with = "as_text")]
    pub epoch: Option<Epoch>,
    pub accepted: u64,
    pub duplicates: u64,
    /// Diagnostics and metrics that were left out, for too much was under way. They are not in the log, and need not be sent again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shed: u64,
    /// The first envelope that the facts led to; `null` if they led to none.
    pub first_sequence: Option<Sequence>,
    /// The log's last envelope after them.
    pub last_sequence: Sequence,
    /// The first [`VIOLATIONS_MAX`] chunks that came after their stream was sealed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// How many more there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub violations_omitted: u64,
}

/// Violations that one answer names; a body may be as long as its runtime likes.
pub const VIOLATIONS_MAX: usize = 100;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn as_text<S: serde::Serializer>(epoch: &Option<Epoch>, to: S) -> Result<S::Ok, S::Error> {
    match epoch {
        Some(epoch) => to.collect_str(epoch),
        None => to.serialize_none(),
    }
}

impl Receipt {
    /// Adds what a later delivery of the same body came to.
    pub fn extend(&mut self, later: Self) {
        self.epoch = later.epoch.or(self.epoch);
        self.accepted += later.accepted;
        self.duplicates += later.duplicates;
        self.shed += later.shed;
        self.first_sequence = self.first_sequence.or(later.first_sequence);
        self.last_sequence = later.last_sequence;
        self.violations_omitted += later.violations_omitted;
        self.violations.extend(later.violations);
        self.bound();
    }

    fn bound(&mut self) {
        self.violations_omitted += self.violations.len().saturating_sub(VIOLATIONS_MAX) as u64;
        self.violations.truncate(VIOLATIONS_MAX);
    }
}

/// Why a delivery was not taken, or only up to a point.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// One fact cannot be taken. `kept` is what stood before it, durable; nothing where all or nothing was asked for.
    #[error("fact {index}: {error}")]
    Fact { index: u64, error: FactError, kept: Box<Receipt> },
    /// One fact would take the run where whoever sends has no right to. `kept` is what stood before it.
    #[error("fact {index}: {error}")]
    Outside { index: u64, error: Outside, kept: Box<Receipt> },
    /// The whole run is somebody else's, or would be nobody's.
    #[error(transparent)]
    Foreign(Outside),
    #[error("producer {producer} sent fact {got}, but {expected} comes next; send from {expected} on")]
    ProducerGap { producer: ProducerId, got: u64, expected: u64 },
    #[error("producer {producer} is at epoch {current}, this is epoch {got}: a newer producer has taken over; stop sending")]
    ProducerFenced { producer: ProducerId, got: u64, current: u64 },
    #[error("the log already has {PRODUCERS_MAX} numbered producers, the limit; reuse a producer id")]
    TooManyProducers,
    #[error("the server keeps {limit} runs and sessions, its limit; erase some, or raise --runs-max")]
    TooManyRuns { limit: u64 },
    #[error("too much is under way to the store, and was for {0:?}; nothing of this was taken, send it again a little later")]
    Busy(Duration),
    #[error(
        "the log was erased while this body was being taken: what came before is gone with it; send the body again to begin anew"
    )]
    Erased,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IngestError {
    /// What was kept of the delivery.
    fn kept(&self) -> Option<&Receipt> {
        match self {
            Self::Fact { kept, .. } => Some(kept),
            _ => None,
        }
    }
}

/// Why a delivery is not for whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Outside {
    #[error("it would bring the run into session {0}, to which there is no right")]
    Session(SessionId),
    #[error(
        "there is no right to run {0}: it is not named, and is in no session that is; name such a session with its first fact"
    )]
    Run(RunId),
}

/// A delivery that is in the line to the store.
pub struct Pending<'i> {
    taken: Result<Receipt, IngestError>,
    durable: Option<oneshot::Receiver<Result<(), StoreError>>>,
    _permit: SemaphorePermit<'i>,
}

impl Pending<'_> {
    /// Whether a fact was refused: what follows it in the same body must not be sent.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.taken.is_err()
    }

    /// The log's life that it went to; `None` where nothing was written, or a fact was refused.
    #[must_use]
    pub fn life(&self) -> Option<Epoch> {
        self.taken.as_ref().ok().and_then(|receipt| receipt.epoch)
    }

    /// Waits until everything that was taken is durable and visible.
    ///
    /// # Errors
    /// As [`Ingest::deliver`].
    pub async fn durable(self) -> Result<Receipt, IngestError> {
        if let Some(durable) = self.durable {
            committed(durable).await?;
        }
        self.taken
    }
}

async fn committed(durable: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), StoreError> {
    let stopped = |_| StoreError::Failed { doing: "commit", why: "the server is stopping".into() };
    durable.await.map_err(stopped)?
}

/// The write path of all logs.
pub struct Ingest<S> {
    logs: Arc<Logs<S>>,
    desks: DashMap<LogId, Arc<Seat>>,
    policy: Policy,
    world: World,
    load: Load,
    in_flight: Semaphore,
    counts: Counts,
    /// Moves when a desk that was left is gone.
    gone: watch::Sender<()>,
}

/// A log's place at the write path: its desk, once its state is loaded.
struct Seat {
    log: Arc<Log>,
    desk: OnceCell<Mutex<Desk>>,
}

impl<S: Store> Ingest<S> {
    /// The write path into `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs<S>>, policy: Policy, world: World) -> Self {
        let load = Load::default();
        let in_flight = Semaphore::new(load.in_flight_bytes_max);
        let (desks, counts, gone) = (DashMap::new(), Counts::default(), watch::Sender::new(()));
        Self { logs, desks, policy, world, load, in_flight, counts, gone }
    }

    /// The same, which bears this much.
    #[must_use]
    pub fn bearing(self, load: Load) -> Self {
        Self { load, in_flight: Semaphore::new(load.in_flight_bytes_max), ..self }
    }

    /// What was taken so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Facts under way to the store, in bytes of their bodies.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.load.in_flight_bytes_max.saturating_sub(self.in_flight.available_permits())
    }

    /// Takes facts, and answers when what they led to is durable and visible.
    ///
    /// # Errors
    /// [`IngestError`]. Nothing of an atomic delivery is then kept; of another one, what the error says.
    pub async fn deliver(&self, delivery: Delivery) -> Result<Receipt, IngestError> {
        self.submit(delivery).await?.durable().await
    }

    /// Takes facts and puts them in the line to the store, without waiting for the store. Waits while too much is under way, for
    /// as long as [`Load::wait_max`] says.
    ///
    /// # Errors
    /// [`StoreError`] when the log's state cannot be loaded; `Busy` and `TooManyRuns`, when nothing was taken.
    pub async fn submit(&self, delivery: Delivery) -> Result<Pending<'_>, IngestError> {
        if let Some(answers) = delivery.source.answers {
            let told = delivery.facts.iter().filter_map(Value::as_object).flat_map(answers).collect::<Vec<_>>();
            if !told.is_empty() {
                self.pass_on(&delivery, told).await?;
            }
        }
        let weight = u32::try_from(delivery.bytes.clamp(1, self.load.in_flight_bytes_max)).unwrap_or(u32::MAX);
        let permit = match self.in_flight.try_acquire_many(weight) {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = tokio::time::timeout(self.load.wait_max, self.in_flight.acquire_many(weight));
                waiting.await.map_err(|_| IngestError::Busy(self.load.wait_max))?.expect("the semaphore is never closed")
            }
        };
        let mut gone = None;
        loop {
            let seat = self.seat(&delivery.log).await?;
            let desk = seat.desk.get_or_try_init(|| self.sit_down(&delivery.log)).await?;
            {
                let mut desk = desk.lock();
                if !desk.is_left {
                    if !desk.written && self.logs.log_count() >= self.load.logs_max {
                        return Err(IngestError::TooManyRuns { limit: self.load.logs_max });
                    }
                    seat.log.hear();
                    let sheds = self.in_flight_bytes() > self.load.shed_bytes_min;
                    let taken = desk.take(delivery, sheds, &self.policy, self.world);
                    self.count(taken.as_ref().map_or_else(IngestError::kept, Some), desk.outbox.as_ref());
                    let durable = desk.outbox.take().map(|post| self.post(&seat.log, post));
                    return Ok(Pending { taken, durable, _permit: permit });
                }
            }
            self.wait_for_a_new_desk(&mut gone).await;
        }
    }

    /// Counts what was taken of a delivery, and what it led to.
    fn count(&self, taken: Option<&Receipt>, post: Option<&Post>) {
        if let Some(taken) = taken {
            self.counts.accepted.add(taken.accepted);
            self.counts.duplicates.add(taken.duplicates);
            self.counts.shed.add(taken.shed);
        }
        if let Some((append, _)) = post {
            self.counts.envelopes.add(append.last.0 - append.expected.0);
            if !append.blobs.is_empty() {
                self.counts.blobs.add(append.blobs.len() as u64);
                self.counts.blob_bytes.add(append.blobs.iter().map(|blob| blob.body.len() as u64).sum());
            }
        }
    }

    /// Appends answers to the runs of the session that asked, where that is another run than the one that brings them. It is
    /// done before that run's own facts are taken: when they are sent again, what was asked is not pending any more, and
    /// nothing is answered twice.
    async fn pass_on(&self, delivery: &Delivery, answers: Vec<Answer>) -> Result<(), IngestError> {
        let LogId::Run(own) = &delivery.log else { return Ok(()) };
        let mut by_run: Vec<(RunId, SessionId, Arc<Summary>, Vec<Answer>)> = Vec::new();
        for answer in answers {
            let Some(session) = delivery.given.session.clone().or_else(|| answer.session.clone()) else { continue };
            let runs = self.logs.sessions().runs_of(&session);
            let is_inside = |run: &RunId| delivery.fence.as_ref().is_none_or(|fence| fence.has(Reach::Run(run, Some(&session))));
            for run in runs.into_iter().rev().filter(|run| run != own && is_inside(run)).take(ASKING_RUNS_MAX) {
                let summary = self.logs.log(&LogId::Run(run.clone())).await?.tail().summary;
                if !summary.run.pending.contains(answer.action.as_str()) {
                    continue;
                }
                match by_run.iter_mut().find(|(known, ..)| *known == run) {
                    Some((.., answers)) => answers.push(answer),
                    None => by_run.push((run, session, summary, vec![answer])),
                }
                break;
            }
        }
        for (run, session, summary, answers) in by_run {
            let is_all = summary.run.pending.iter().all(|asked| answers.iter().any(|answer| answer.action.as_str() == asked));
            let mut facts: Vec<_> = answers.into_iter().map(|answer| resolved(answer, own)).collect();
            if is_all && summary.run.paused {
                // It had said all that it would, but for these answers.
                facts.push(json!({ "type": "run.finished", "payload": { "status": "completed", "continuedBy": own } }));
            }
            let given = Ids { session: Some(session), ..Ids::default() };
            let (log, source) = (LogId::Run(run), &source::agent_ui::SOURCE);
            let (producer, life, fence) = (None, None, None);
            let delivery = Delivery { log, source, given, producer, facts, bytes: 0, atomic: true, life, fence };
            Box::pin(self.deliver(delivery)).await?;
        }
        Ok(())
    }

    /// Puts an append in the line to the store. The caller holds the lock of the log's desk.
    fn post(&self, log: &Arc<Log>, (append, summary): Post) -> oneshot::Receiver<Result<(), StoreError>> {
        let (ack, durable) = oneshot::channel();
        self.logs.submit(Submission { log: log.clone(), append, summary, ack });
        durable
    }

    /// Adds to a log what no source says: `decide` sees how the log stands, behind everything that was taken before and before
    /// anything that comes after, and says what is to be added, if anything. Answered once that is durable and visible, and what
    /// `decide` saw, too. `decide` may be asked again, if the log was erased or rewritten meanwhile; only the last answer counts.
    ///
    /// What is added is no sign of a producer.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn amend<T>(&self, id: &LogId, mut decide: impl FnMut(&Standing<'_>) -> (T, Amendment)) -> Result<T, StoreError> {
        let mut gone = None;
        let (answer, durable) = loop {
            let seat = self.seat(id).await?;
            let desk = seat.desk.get_or_try_init(|| self.sit_down(id)).await?;
            {
                let mut desk = desk.lock();
                if !desk.is_left {
                    let (answer, amendment) = decide(&desk.standing(seat.log.heard()));
                    let post = match amendment.is_empty() {
                        // It may rest on what is on its way to the store.
                        true => desk.written.then(|| desk.nothing()),
                        false => {
                            desk.add(amendment, &self.policy, self.world);
                            desk.outbox.take()
                        }
                    };
                    self.count(None, post.as_ref());
                    break (answer, post.map(|post| self.post(&seat.log, post)));
                }
            }
            self.wait_for_a_new_desk(&mut gone).await;
        };
        if let Some(durable) = durable {
            committed(durable).await?;
        }
        Ok(answer)
    }

    /// Says of a run what no source says: that nothing is heard of it, or that it is over. `false` when there is nothing to
    /// say: the run is not there, has ended, waits for somebody's decision (which is no silence), or, if `heard` is given, was
    /// heard of since.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn pronounce(&self, run: &RunId, verdict: &Verdict, heard: Option<u64>) -> Result<bool, StoreError> {
        let decide = |standing: &Standing<'_>| {
            let drafts = match heard.is_some() && standing.heard != heard {
                true => Vec::new(),
                false => verdict.draft(standing).into_iter().collect::<Vec<_>>(),
            };
            (!drafts.is_empty(), Amendment { drafts, ..Amendment::default() })
        };
        let is_said = self.amend(&LogId::Run(run.clone()), decide).await?;
        match verdict {
            _ if !is_said => {}
            Verdict::Stale => self.counts.stale.add(1),
            Verdict::Settled { .. } => self.counts.settled.add(1),
        }
        Ok(is_said)
    }

    /// Erases a log with everything that was taken for it before, durably; `false` when it was never written. What is taken
    /// after begins a new life of it.
    ///
    /// It must run to its end, whoever asked for it: a task of its own.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn erase(&self, id: &LogId) -> Result<bool, StoreError> {
        let mut gone = None;
        let (leave, durable) = loop {
            let seat = self.seat(id).await?;
            let desk = seat.desk.get_or_try_init(|| self.sit_down(id)).await?;
            {
                let mut desk = desk.lock();
                if !desk.is_left {
                    if !desk.written {
                        return Ok(false);
                    }
                    desk.is_left = true;
                    // Behind everything that was taken.
                    let durable = self.post(&seat.log, desk.nothing());
                    break (Leave { ingest: self, seat: seat.clone() }, durable);
                }
            }
            self.wait_for_a_new_desk(&mut gone).await;
        };
        committed(durable).await?;
        self.logs.erase(&leave.seat.log).await?;
        Ok(true)
    }

    /// Rewrites a log's past as it was found at this tail; `false` when the log has moved since, and nothing was done.
    ///
    /// It must run to its end, whoever asked for it: a task of its own.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, id: &LogId, found: &Tail, thinned: Thinned) -> Result<bool, StoreError> {
        let Some(epoch) = found.epoch else { return Ok(false) };
        let seat = self.seat(id).await?;
        let desk = seat.desk.get_or_try_init(|| self.sit_down(id)).await?;
        let (leave, durable, mut summary) = {
            let mut desk = desk.lock();
            let stands = (desk.epoch, desk.summary.last_sequence, desk.summary.compacted);
            if desk.is_left || !desk.written || stands != (epoch, found.last, found.summary.compacted) {
                return Ok(false);
            }
            desk.is_left = true;
            let durable = self.post(&seat.log, desk.nothing());
            (Leave { ingest: self, seat: seat.clone() }, durable, desk.summary.clone())
        };
        committed(durable).await?;
        for (count, unseen) in summary.seen_count.iter_mut().zip(thinned.unseen) {
            *count = count.saturating_sub(unseen);
        }
        summary.compacted = thinned.compacted;
        let state = vec![(Bytes::from_static(META), Some(to_json(&summary)))];
        let compaction = Compaction { log: id.clone(), epoch, last: found.last, appends: thinned.appends, state };
        self.logs.compact(&leave.seat.log, compaction, Arc::new(summary)).await
    }

    /// Waits until a desk that was left is gone. The first call only begins to listen: it may have gone before that.
    async fn wait_for_a_new_desk(&self, gone: &mut Option<watch::Receiver<()>>) {
        match gone {
            None => *gone = Some(self.gone.subscribe()),
            // It fails only when this value is gone, and it is borrowed.
            Some(gone) => drop(gone.changed().await),
        }
    }

    async fn seat(&self, id: &LogId) -> Result<Arc<Seat>, StoreError> {
        if let Some(seat) = self.desks.get(id) {
            return Ok(seat.clone());
        }
        let log = self.logs.log(id).await?;
        Ok(self.desks.entry(id.clone()).or_insert_with(|| Arc::new(Seat { log, desk: OnceCell::new() })).clone())
    }

    async fn sit_down(&self, id: &LogId) -> Result<Mutex<Desk>, StoreError> {
        let loaded = self.logs.load(id).await?;
        Ok(Mutex::new(Desk::new(id.clone(), loaded, self.world)))
    }

    /// Forgets the desks of logs that nobody writes at this moment and that have nothing under way. Their state is saved.
    pub fn sweep(&self) {
        self.desks.retain(|_, seat| Arc::strong_count(seat) > 1 || seat.desk.get().is_some_and(|desk| desk.lock().touch_again()));
    }
}

/// What the server says of a run when its source says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A run that goes on has not been heard of for a while.
    Stale,
    /// The run is over, for this reason: nobody will end it any more.
    Settled {
        /// Stable, for programs.
        code: &'static str,
        /// For people.
        message: String,
    },
}

impl Verdict {
    /// What it comes to, if it comes to anything.
    fn draft(&self, standing: &Standing<'_>) -> Option<Draft> {
        let run = &standing.summary.run;
        let mut draft = match self {
            Self::Stale if run.ages() && !run.stale => {
                let mut draft = Draft::new(EventType::RunStatus).with("stale", true);
                draft.phase = run.phase.clone();
                draft
            }
            Self::Settled { code, message } if standing.written && !run.status.is_end() => {
                let error = json!({ "code": code, "message": message });
                Draft::new(EventType::RunFailed).with("synthetic", true).with("error", error).with("retryable", true)
            }
            _ => return None,
        };
        draft.owner = Owner::Diagnostics;
        Some(draft)
    }
}

/// How a log stands at the moment at which the server adds something of its own.
pub struct Standing<'d> {
    /// Whether anybody has written it.
    pub written: bool,
    pub summary: &'d Summary,
    /// See [`Log::heard`].
    pub heard: Option<u64>,
    /// The controls that the log remembers.
    pub controls: &'d BTreeMap<ControlId, ControlRecord>,
    ledger: &'d Ledger,
}

impl Standing<'_> {
    /// Who may know of something that is done to these.
    #[must_use]
    pub fn audience_about(&self, ids: &Ids) -> Audience {
        self.ledger.audience_about(ids)
    }

    /// The audience of a call; `None` for one that never started here.
    #[must_use]
    pub fn call(&self, call: &ToolCallId) -> Option<Audience> {
        self.ledger.call(call)
    }

    /// Whether this is a teammate of the run's own agent.
    #[must_use]
    pub fn is_teammate(&self, agent: &AgentId) -> bool {
        self.summary.agent.as_ref() != Some(agent) && self.ledger.knows_agent(agent)
    }
}

/// What the server adds to a log: envelopes, and the controls that they tell of, in one commit.
#[derive(Debug, Default)]
pub struct Amendment {
    pub drafts: Vec<Draft>,
    /// Controls that are new or have changed.
    pub controls: Vec<ControlRecord>,
}

impl Amendment {
    const fn is_empty(&self) -> bool {
        self.drafts.is_empty() && self.controls.is_empty()
    }
}

/// An answer as a fact of the run that asked.
fn resolved(answer: Answer, by: &RunId) -> Value {
    let mut payload = json!({ "outcome": answer.outcome });
    if let Some(value) = answer.value {
        payload["value"] = value;
    }
    json!({ "type": "action.resolved", "actionId": answer.action, "payload": payload, "refs": { "answeredByRunId": by } })
}

/// What is to become of a log's past.
#[derive(Debug, Default)]
pub struct Thinned {
    pub appends: Vec<Rewritten>,
    /// How many rows that each audience saw are gone.
    pub unseen: [u64; 3],
    pub compacted: Compacted,
}

/// The erasure or rewriting of a log. However it ends, who waits for a new desk gets one.
struct Leave<'i, S> {
    ingest: &'i Ingest<S>,
    seat: Arc<Seat>,
}

impl<S> Drop for Leave<'_, S> {
    fn drop(&mut self) {
        self.ingest.desks.remove_if(&self.seat.log.id, |_, seat| Arc::ptr_eq(seat, &self.seat));
        self.ingest.gone.send_replace(());
    }
}

/// Whether nobody's picture hangs on it.
fn is_dispensable(draft: &Draft) -> bool {
    let class = draft.class.as_str();
    class.starts_with("diagnostic.") || class.starts_with("metric.")
}

/// An append, and the log's summary once it is committed.
type Post = (Append, Arc<Summary>);

/// What stands between a log's facts and its appends: the stages and their memory.
struct Desk {
    id: LogId,
    epoch: Epoch,
    written: bool,
    summary: Summary,
    ledger: Ledger,
    /// How the run stands by what users, and what operators, saw.
    seen_runs: [RunState; 2],
    guard: Guard,
    adapters: Vec<Seated>,
    producers: HashMap<ProducerId, Numbering>,
    /// The controls that are open, and the newest of those that are not.
    controls: BTreeMap<ControlId, ControlRecord>,
    /// Those that were changed or forgotten since they were last saved.
    controls_changed: Vec<ControlId>,
    /// The guard's memory as it was last saved; empty for none.
    guard_saved: Bytes,
    event_ids: EventIds,
    outbox: Option<Post>,
    used: bool,
    /// The log is being erased or rewritten: nothing is taken here any more.
    is_left: bool,
}

/// Why a fact of a delivery is refused.
enum Refused {
    Fact(FactError),
    Outside(Outside),
}

struct Seated {
    kind: &'static SourceKind,
    adapter: Box<dyn Adapter>,
    saved: Vec<u8>,
}

/// How far a producer's numbers were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Numbering {
    epoch: u64,
    next: u64,
}

/// A counter of ids: one draw of randomness when a desk is opened, then one more each. A draw per append would be a system
/// call per append.
struct EventIds {
    millis: u64,
    bits: u128,
}

impl EventIds {
    fn next(&mut self) -> Uuid {
        self.bits = self.bits.wrapping_add(1);
        let bytes: [u8; 16] = self.bits.to_be_bytes();
        uuid::Builder::from_unix_timestamp_millis(self.millis, bytes[6..].try_into().expect("ten bytes")).into_uuid()
    }
}

impl Desk {
    fn new(id: LogId, loaded: Option<Loaded>, world: World) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "any 64 of the random bits will do")]
        let fresh = Epoch::from_random((world.random)() as u64);
        let epoch = loaded.as_ref().map_or(fresh, |l| l.epoch);
        let summary = loaded.as_ref().map(summary_of).unwrap_or_default();
        let state = loaded.as_ref().map(|l| l.state.as_slice()).unwrap_or_default();
        let under = |prefix: &'static str| {
            state
                .iter()
                .filter_map(move |(key, value)| Some((std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?, value)))
        };
        let things = under("t:").filter_map(|(key, value)| Some((key, *value.first()?)));
        let ledger = Ledger::restore(summary.run.clone(), things);
        let seen_runs = [Audience::User, Audience::Dashboard].map(|audience| summary.run_for(audience).clone());
        let json = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        let guard = under("g").next().map_or_else(Guard::new, |(_, saved)| Guard::restore(&json(saved)));
        let adapters = under("a:")
            .filter_map(|(name, saved)| {
                let kind = source::by_name(name)?;
                Some(Seated { kind, adapter: (kind.restore)(saved), saved: saved.to_vec() })
            })
            .collect();
        let producers = under("p:")
            .filter_map(|(id, saved)| Some((ProducerId::new(id).ok()?, serde_json::from_slice(saved).ok()?)))
            .collect();
        let controls = under(CONTROL)
            .filter_map(|(_, saved)| serde_json::from_slice::<ControlRecord>(saved).ok())
            .map(|record| (record.id.clone(), record))
            .collect();
        let guard_saved = under("g").next().map_or_else(Bytes::new, |(_, saved)| saved.clone());
        let written = loaded.is_some();
        Self {
            id,
            epoch,
            written,
            summary,
            ledger,
            seen_runs,
            guard,
            guard_saved,
            adapters,
            producers,
            controls,
            controls_changed: Vec::new(),
            event_ids: EventIds { millis: 0, bits: (world.random)() },
            outbox: None,
            used: true,
            is_left: false,
        }
    }

    /// Whether it was used since it was last asked.
    fn touch_again(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Takes a delivery: moves every stage and leaves an append in the outbox. An empty append goes out for what was all
    /// duplicates, too: its answer must not overtake the commit of what it repeats.
    ///
    /// `sheds` leaves out facts that come to nothing but diagnostics and metrics.
    fn take(&mut self, delivery: Delivery, sheds: bool, policy: &Policy, world: World) -> Result<Receipt, IngestError> {
        self.used = true;
        if delivery.life.is_some_and(|life| life != self.epoch) {
            return Err(IngestError::Erased);
        }
        let mut owes = match &delivery.fence {
            Some(fence) => self.outside(fence)?,
            None => Owes::Nothing,
        };
        let count = delivery.facts.len() as u64;
        let (duplicates, numbering) = self.known_head(delivery.producer.as_ref(), count)?;
        let mut receipt = Receipt {
            run_id: None,
            session_id: None,
            epoch: None,
            accepted: 0,
            duplicates,
            shed: 0,
            first_sequence: None,
            last_sequence: self.summary.last_sequence,
            violations: Vec::new(),
            violations_omitted: 0,
        };
        match &self.id {
            LogId::Run(id) => receipt.run_id = Some(id.clone()),
            LogId::Session(id) => receipt.session_id = Some(id.clone()),
        }
        let mut given = delivery.given;
        if let LogId::Run(id) = &self.id {
            given.run = Some(id.clone());
        }

        // The only stage that can refuse a fact comes first, for the whole delivery: what follows cannot fail.
        let seat = self.seat(delivery.source);
        let mut drafts = Vec::with_capacity(delivery.facts.len());
        let mut ends = Vec::with_capacity(delivery.facts.len());
        let mut refused = None;
        for (index, fact) in (0..count).zip(delivery.facts).skip(usize::try_from(duplicates).unwrap_or(usize::MAX)) {
            let begun = drafts.len();
            let before = (owes != Owes::Nothing).then(|| (seat.adapter.save(), drafts.len()));
            let adapted = match fact {
                Value::Object(fact) => seat.adapter.adapt(fact, &given, &mut drafts),
                other => Err(FactError::NotAnObject { found: source::kind_of(&other) }),
            };
            if let Err(error) = adapted {
                refused = Some((index, Refused::Fact(error)));
                break;
            }
            if let (Some((memory, from)), Some(fence)) = (before, &delivery.fence) {
                let named = drafts[from..].iter().find_map(|draft| draft.ids.session.as_ref().or(given.session.as_ref()));
                match named.map(|session| (fence.has(Reach::Session(session)), session)) {
                    Some((true, _)) => owes = Owes::Nothing,
                    Some((false, session)) => {
                        refused = Some((index, Refused::Outside(Outside::Session(session.clone()))));
                        seat.adapter = (seat.kind.restore)(&memory);
                        drafts.truncate(from);
                        break;
                    }
                    None => {}
                }
            }
            if sheds && drafts.len() > begun && drafts[begun..].iter().all(is_dispensable) {
                drafts.truncate(begun);
                receipt.shed += 1;
            }
            ends.push(drafts.len());
        }
        if let (Owes::Session, None, LogId::Run(run)) = (owes, &refused, self.id.clone()) {
            let named = given.session.as_ref().filter(|_| drafts.is_empty());
            if !named.is_some_and(|session| delivery.fence.as_ref().is_some_and(|fence| fence.has(Reach::Session(session)))) {
                let seat = self.seat(delivery.source);
                seat.adapter = (seat.kind.restore)(&seat.saved);
                return Err(IngestError::Foreign(Outside::Run(run)));
            }
        }
        let seat = self.seat(delivery.source);
        if refused.is_some() && delivery.atomic {
            seat.adapter = (seat.kind.restore)(&seat.saved);
            drafts.clear();
            ends.clear();
            receipt.shed = 0;
        }
        receipt.accepted = ends.len() as u64 - receipt.shed;

        let now = (world.now)();
        let first = self.summary.last_sequence;
        let mut blobs = Vec::new();
        let rows = self.stamp(drafts, &ends, duplicates, &given, policy, now, world, &mut blobs, &mut receipt.violations);
        receipt.bound();
        receipt.last_sequence = self.summary.last_sequence;
        if receipt.last_sequence > first {
            receipt.first_sequence = Some(first.next());
        }
        let producer = delivery.producer.zip(numbering).map(|(producer, mut numbering)| {
            numbering.next += receipt.accepted + receipt.shed;
            self.producers.insert(producer.id.clone(), numbering);
            (producer.id, numbering)
        });
        self.post(Some(delivery.source), producer, first, rows, blobs, !ends.is_empty());
        receipt.epoch = self.written.then_some(self.epoch);
        match refused {
            Some((index, Refused::Fact(error))) => Err(IngestError::Fact { index, error, kept: Box::new(receipt) }),
            Some((index, Refused::Outside(error))) => Err(IngestError::Outside { index, error, kept: Box::new(receipt) }),
            None => Ok(receipt),
        }
    }

    /// Whether the fence has this run, and what is still to be found out if that is not decided. A run with envelopes and without
    /// a session is nobody's but those who have it by name: else whoever has any session could take it there.
    fn outside(&self, fence: &Fence) -> Result<Owes, IngestError> {
        let LogId::Run(run) = &self.id else { return Ok(Owes::Nothing) };
        let session = self.summary.session_id.as_ref();
        match (session, fence.has(Reach::Run(run, session))) {
            (Some(_), true) => Ok(Owes::Nothing),
            (None, true) => Ok(Owes::NoOther),
            (None, false) if self.summary.last_sequence == Sequence::NONE => Ok(Owes::Session),
            _ => Err(IngestError::Foreign(Outside::Run(run.clone()))),
        }
    }

    fn standing(&self, heard: Option<u64>) -> Standing<'_> {
        let Self { written, summary, controls, ledger, .. } = self;
        Standing { written: *written, summary, heard, controls, ledger }
    }

    /// Takes in what the server adds, and leaves it in the outbox.
    fn add(&mut self, amendment: Amendment, policy: &Policy, world: World) {
        self.used = true;
        let Amendment { drafts, controls } = amendment;
        for record in controls {
            self.controls_changed.push(record.id.clone());
            self.controls.insert(record.id.clone(), record);
        }
        if !self.controls_changed.is_empty() {
            self.count_controls();
        }
        let run = if let LogId::Run(run) = &self.id { Some(run.clone()) } else { None };
        let session = if let LogId::Session(id) = &self.id { Some(id.clone()) } else { self.summary.session_id.clone() };
        let given = Ids { session, thread: self.summary.thread_id.clone(), run, ..Ids::default() };
        let (before, mut blobs) = (self.summary.last_sequence, Vec::new());
        let ends: Vec<_> = (1..=drafts.len()).collect();
        let rows = self.stamp(drafts, &ends, 0, &given, policy, (world.now)(), world, &mut blobs, &mut Vec::new());
        self.post(None, None, before, rows, blobs, true);
    }

    /// Forgets the oldest of too many closed controls, and notes those that are open in the summary.
    fn count_controls(&mut self) {
        let (mut open, mut closed): (Vec<_>, Vec<_>) = self.controls.values().partition(|of| of.state == ControlState::Open);
        open.sort_unstable_by_key(|record| record.number);
        closed.sort_unstable_by_key(|record| record.number);
        self.summary.controls = open.into_iter().map(ControlRecord::open).collect();
        let forgotten = closed.len().saturating_sub(CLOSED_CONTROLS_MAX);
        let forgotten: Vec<_> = closed.into_iter().take(forgotten).map(|record| record.id.clone()).collect();
        for id in forgotten {
            self.controls.remove(&id);
            self.controls_changed.push(id);
        }
    }

    /// The control that asked for the end of the attempt that goes on, unless its owner refused it or nobody took it in time.
    fn asked_to_stop(&self) -> Option<&ControlId> {
        let attempt = self.ledger.run.attempt.max(1);
        let asks = |record: &&ControlRecord| {
            record.stops_run
                && record.of_attempt.unwrap_or_default().max(1) == attempt
                && matches!(record.state, ControlState::Open | ControlState::Acked)
        };
        self.controls.values().filter(asks).min_by_key(|record| record.number).map(|record| &record.id)
    }

    fn seat(&mut self, kind: &'static SourceKind) -> &mut Seated {
        let at = self.adapters.iter().position(|seated| seated.kind.name == kind.name).unwrap_or_else(|| {
            self.adapters.push(Seated { kind, adapter: (kind.fresh)(), saved: Vec::new() });
            self.adapters.len() - 1
        });
        &mut self.adapters[at]
    }

    /// How many of a producer's facts are known already, and its numbering before the rest.
    fn known_head(&self, producer: Option<&Producer>, count: u64) -> Result<(u64, Option<Numbering>), IngestError> {
        let Some(Producer { id, epoch, seq }) = producer else { return Ok((0, None)) };
        let known = match self.producers.get(id) {
            None if self.producers.len() >= PRODUCERS_MAX => return Err(IngestError::TooManyProducers),
            None => Numbering { epoch: *epoch, next: 0 },
            Some(known) if known.epoch > *epoch => {
                return Err(IngestError::ProducerFenced { producer: id.clone(), got: *epoch, current: known.epoch });
            }
            Some(known) if known.epoch < *epoch => Numbering { epoch: *epoch, next: 0 },
            Some(known) => *known,
        };
        if *seq > known.next {
            return Err(IngestError::ProducerGap { producer: id.clone(), got: *seq, expected: known.next });
        }
        Ok(((known.next - seq).min(count), Some(known)))
    }

    /// Ledger, guard and stamp: drafts become encoded rows. `ends` says where each fact's drafts end.
    #[expect(clippy::too_many_arguments, reason = "the stages' whole context, in one call")]
    fn stamp(
        &mut self,
        drafts: Vec<Draft>,
        ends: &[usize],
        first_index: u64,
        given: &Ids,
        policy: &Policy,
        now: jiff::Timestamp,
        world: World,
        blobs: &mut Vec<Blob>,
        violations: &mut Vec<Violation>,
    ) -> Bytes {
        if drafts.is_empty() {
            return Bytes::new();
        }
        let received_at: Box<str> = format!("{now:.3}").into();
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        self.event_ids.millis = millis;
        let mut new_blob_id = || {
            let random = Uuid::from_u128((world.random)());
            BlobId::new(&random.simple().to_string()).expect("hexadecimal digits are an id")
        };
        let mut rows = Vec::with_capacity(drafts.len() * 640);
        let mut scratch = Scratch::default();
        let mut guarded = Vec::new();
        let mut fact = 0;
        for (n, mut draft) in drafts.into_iter().enumerate() {
            while ends.get(fact).is_some_and(|end| *end <= n) {
                fact += 1;
            }
            draft.ids.or(given);
            if draft.may_be_abort
                && !self.ledger.run.status.is_end()
                && let Some(control) = self.asked_to_stop()
            {
                cancelled(&mut draft, control);
            }
            violations.extend(self.ledger.enter(&mut draft, first_index + fact as u64));
            self.guard.pass(policy, &mut new_blob_id, draft, &mut guarded);
            for guarded in guarded.drain(..) {
                self.place(guarded, &received_at, &mut scratch, &mut rows, blobs);
            }
        }
        let summary = &mut self.summary;
        summary.run.clone_from(&self.ledger.run);
        summary.asking.retain(|asked| summary.run.pending.contains(asked.action.as_str()));
        let [user, dashboard] = &self.seen_runs;
        for (shown, seen) in [(&mut summary.run_for_user, user), (&mut summary.run_for_dashboard, dashboard)] {
            *shown = (*seen != summary.run).then(|| Box::new(seen.clone()));
        }
        self.summary.last_activity = Some(received_at.clone());
        self.summary.started_at.get_or_insert_with(|| received_at.clone());
        match self.summary.run.status.is_end() {
            true => drop(self.summary.ended_at.get_or_insert(received_at)),
            false => self.summary.ended_at = None,
        }
        Bytes::from(rows)
    }

    /// Gives one guarded draft its place, and writes its row: each audience's view of it.
    fn place(&mut self, guarded: Guarded, received_at: &str, scratch: &mut Scratch, rows: &mut Vec<u8>, blobs: &mut Vec<Blob>) {
        let (draft, bodies) = guarded.into_parts();
        let sequence = self.summary.last_sequence.next();
        let mut envelope = Envelope { sequence, event_id: self.event_ids.next(), received_at: received_at.into(), draft };
        name_by_sequence(&mut envelope);
        let sights = Audience::ALL.map(|reader| reader.sight(&envelope));
        let views = scratch.write(&envelope, sights, &self.ledger);
        Row::encode(rows, sequence, self.summary.seen_last, views);
        for (i, view) in views.iter().enumerate() {
            if view.is_some() {
                if let Some(run) = self.seen_runs.get_mut(i) {
                    let of = &envelope.draft;
                    run.follow(&of.class, &of.phase, of.ids.action.as_ref(), &of.payload);
                }
                self.summary.seen_last[i] = sequence;
                self.summary.seen_count[i] += 1;
            }
        }
        if !bodies.is_empty() {
            // Whoever sees the body of the envelope may read the bodies that it refers to; nobody else. A body of a snapshot of
            // messages cannot be filtered any more: it is for those from whom nothing is hidden.
            let is_snapshot = envelope.draft.class == EventType::MessagesSnapshot;
            let reads = |a: &Audience| sights[a.index()] == Sight::Body && !(is_snapshot && self.ledger.hides_from(*a));
            let readable = Audience::ALL.into_iter().find(reads).unwrap_or(Audience::Internal);
            blobs.extend(bodies.into_iter().map(|body| {
                let (run, session) = match self.id.clone() {
                    LogId::Run(run) => (Some(run), None),
                    LogId::Session(session) => (None, Some(session)),
                };
                let meta = BlobMeta { audience: readable, media_type: body.media_type.into(), run, session };
                let meta = serde_json::to_vec(&meta).expect("plain data").into();
                Blob { id: body.id, meta, body: body.bytes }
            }));
        }
        self.summary.last_sequence = sequence;
        if let Some(asked) = AskedAction::of(&envelope.draft) {
            let asking = &mut self.summary.asking;
            asking.retain(|known| known.action != asked.action);
            if asking.len() < ASKING_MAX {
                asking.push(asked);
            }
        }
        if envelope.draft.class == EventType::RunStarted && self.summary.agent.is_none() {
            self.summary.agent.clone_from(&envelope.draft.ids.agent);
        }
        if sights[Audience::User.index()] == Sight::Body {
            show(&mut self.summary.shown, &envelope.draft);
        }
        let of = &envelope.draft.ids;
        for (known, new) in
            [(&mut self.summary.session_id, &of.session), (&mut self.summary.parent_session_id, &of.parent_session)]
        {
            if known.is_none() {
                known.clone_from(new);
            }
        }
        if self.summary.thread_id.is_none() {
            self.summary.thread_id.clone_from(&of.thread);
        }
    }

    /// An append that changes nothing, and only waits for those before it.
    fn nothing(&self) -> Post {
        let last = self.summary.last_sequence;
        let (rows, blobs, state) = (Bytes::new(), Vec::new(), Vec::new());
        let append = Append { log: self.id.clone(), epoch: self.epoch, expected: last, last, rows, blobs, state };
        (append, Arc::new(self.summary.clone()))
    }

    /// Puts the append together: rows, bodies, and every state entry that changed. `source` is whose adapter may have moved.
    fn post(
        &mut self,
        source: Option<&'static SourceKind>,
        producer: Option<(ProducerId, Numbering)>,
        expected: Sequence,
        rows: Bytes,
        blobs: Vec<Blob>,
        moved: bool,
    ) {
        if !self.written && !moved {
            return;
        }
        let mut state = Vec::new();
        let set = |key: String, value: Vec<u8>| (Bytes::from(key), Some(Bytes::from(value)));
        if moved {
            self.written = true;
            state.push((Bytes::from_static(META), Some(to_json(&self.summary))));
            if let Some(source) = source {
                let seat = self.seat(source);
                let memory = seat.adapter.save();
                if memory != seat.saved {
                    seat.saved.clone_from(&memory);
                    state.push(set(format!("a:{}", seat.kind.name), memory));
                }
            }
            let guard = self.guard.save();
            let held = if guard.is_null() { Bytes::new() } else { to_json(&guard) };
            if held != self.guard_saved {
                state.push((Bytes::from_static(b"g"), (!held.is_empty()).then(|| held.clone())));
                self.guard_saved = held;
            }
            state.extend(self.ledger.take_changed().into_iter().map(|(key, byte)| set(format!("t:{key}"), vec![byte])));
            for id in std::mem::take(&mut self.controls_changed) {
                let saved = self.controls.get(&id).map(to_json);
                state.push((Bytes::from(format!("{CONTROL}{id}")), saved));
            }
            if let Some((id, numbering)) = producer {
                state.push(set(format!("p:{id}"), to_json(&numbering).into()));
            }
        }
        let append =
            Append { log: self.id.clone(), epoch: self.epoch, expected, last: self.summary.last_sequence, rows, blobs, state };
        self.outbox = Some((append, Arc::new(self.summary.clone())));
    }
}

/// An end that an abort looks like, too, in a run that somebody asked to stop: that is what it was.
fn cancelled(draft: &mut Draft, by: &ControlId) {
    draft.class = EventType::RunFinished;
    draft.phase = Phase::Cancelled;
    let payload = &mut draft.payload;
    payload.insert("status".into(), Phase::Cancelled.as_str().into());
    payload.insert("cancelledBy".into(), by.as_str().into());
    payload.shift_remove("retryable");
    if let Some(error) = payload.shift_remove("error") {
        payload.insert("cause".into(), error);
    }
}

/// What is kept of a body beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobMeta {
    /// The widest audience that may read it.
    pub audience: Audience,
    pub media_type: Box<str>,
    /// Whose log refers to it: one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

fn to_json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("our own plain data").into()
}

/// Room for one envelope's texts, used again for the next.
#[derive(Default)]
struct Scratch {
    body: Vec<u8>,
    edge: Vec<u8>,
    own: [Vec<u8>; 3],
}

impl Scratch {
    /// Each audience's view of the envelope; equal views are the same slice.
    fn write(&mut self, envelope: &Envelope, sights: [Sight; 3], ledger: &Ledger) -> [Option<&[u8]>; 3] {
        self.body.clear();
        envelope.write_json(&mut self.body);
        if sights.contains(&Sight::Edge) {
            self.edge.clear();
            audience::edge(envelope).write_json(&mut self.edge);
        }
        for (i, reader) in Audience::ALL.into_iter().enumerate() {
            self.own[i].clear();
            match sights[i] {
                Sight::Trimmed => audience::trimmed(envelope).write_json(&mut self.own[i]),
                Sight::Body => {
                    if let Some(filtered) = ledger.messages_for(envelope, reader) {
                        filtered.write_json(&mut self.own[i]);
                    }
                }
                Sight::Hidden | Sight::Edge => {}
            }
        }
        let (body, edge, own) = (&self.body, &self.edge, &self.own);
        std::array::from_fn(|i| match sights[i] {
            Sight::Hidden => None,
            Sight::Edge => Some(edge.as_slice()),
            Sight::Body | Sight::Trimmed if !own[i].is_empty() => Some(own[i].as_slice()),
            Sight::Body | Sight::Trimmed => Some(body.as_slice()),
        })
    }
}

/// What users are shown of a log in lists, by a fact that they see.
fn show(shown: &mut Shown, draft: &Draft) {
    match draft.class {
        EventType::TextDelta | EventType::TextFinal => {
            let Some(message) = &draft.ids.message else { return };
            let is_known = shown.preview.as_ref().is_some_and(|(of, _)| **of == *message.as_str());
            // A final text repeats what was streamed.
            if draft.class == EventType::TextDelta || !is_known {
                shown.preview(message.as_str(), draft.text("text").unwrap_or_default());
            }
        }
        EventType::SessionOpened | EventType::SessionUpdated | EventType::RunStarted => {
            let get = |member: &str| draft.extra.get(member).or_else(|| draft.payload.get(member));
            if let Some(title) = get("title").and_then(Value::as_str) {
                shown.title(title);
            }
            for (flag, member) in [(&mut shown.unread, "unread"), (&mut shown.pinned, "pinned"), (&mut shown.stale, "stale")] {
                *flag = get(member).and_then(Value::as_bool).or(*flag);
            }
        }
        _ => {}
    }
}

/// A hand-off, review or worker notification without an id is named by its sequence, a team by its name.
fn name_by_sequence(envelope: &mut Envelope) {
    let member = match envelope.draft.class {
        EventType::AgentHandoff => "handoffId",
        EventType::ReviewRequested | EventType::ReviewCompleted => "reviewId",
        EventType::WorkerNotification => "workerNotificationId",
        EventType::TeamChanged => "teamId",
        _ => return,
    };
    let draft = &mut envelope.draft;
    if draft.payload.contains_key(member) || draft.extra.contains_key(member) {
        return;
    }
    let name = match draft.payload.get("teamName") {
        Some(team) if member == "teamId" => team.clone(),
        _ if member == "teamId" => return,
        _ => Value::String(envelope.sequence.to_string()),
    };
    draft.payload.insert(member.into(), name);
}
