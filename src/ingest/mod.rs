//! The write path: facts in, an append out.
//!
//! ```text
//! facts ─▶ parse ─▶ apply ─▶ ledger ─▶ guard ─▶ stamp ─▶ committer
//! ```
//! [`parse`] judges all facts of a delivery outside any lock. One [`LogWriter`] per log applies them in order under one
//! lock. It queues the log's append for the committer before
//! it releases the lock, so sequences are gapless and in order. The same append saves all state of the stages. Time and
//! randomness come from [`Environment`]. Nothing here knows readers.
//!
//! A delivery whose appends conflict was not stored. The server loads the log's state again and accepts the deliveries
//! in flight again, in order. The server never drops a writer with appends in flight, and never reuses a writer that a
//! panic left ahead of the store.
//!
//! Erasing a log, or rewriting its history, first retires its writer. By then everything that the writer accepted is in
//! the log; later deliveries wait for a new writer.
//!
//! Submodules, in the order in which they may use each other: [`quotas`] are those of an owner, [`delivery`] is the input, [`receipt`] the result,
//! [`rows`] the output, [`attempt`] the starts of an attempt, [`chaining`] the hash chain of the rows, [`parse`] the judgement of facts, [`questions`] what decisions are about, [`writer`] the writer with the state of the stages, [`owners`]
//! whose a log is, [`pending`]
//! the deliveries between writer and store. [`accept`] applies facts, [`stamp`] runs the ledger and the guard. Beside this path are [`answers`] (answers
//! to actions of other runs), [`amend`] (appends by the server itself), and [`maintenance`] (erasure and compaction).

mod quotas;

mod limits;

mod delivery;

mod questions;

mod receipt;

mod rows;

mod attempt;

mod chaining;

mod writer;

mod owners;

mod parse;

mod pending;

mod accept;

mod stamp;

mod answers;

mod amend;

mod maintenance;

pub use accept::ENVELOPES_BYTES_MAX;
pub use amend::{ServerAppend, Verdict, WriterView};
pub use delivery::{
    BeginOwner, Delivery, ENVELOPE_BYTES, Facts, PARSED_FACT_BYTES_MAX, PARSED_FACTS_MAX, PARSED_TEXT_BYTES_MAX, PRODUCERS_MAX,
    Producer, WriteScope, WriteTarget, envelope_bytes_with,
};
pub use limits::{IngestCounters, IngestLimits};
pub use maintenance::CompactionPlan;
pub use pending::{Admitted, Pending};
pub use quotas::{OwnerQuotas, Quota, QuotaExceeded};
pub use receipt::{IngestError, OutOfScope, Receipt, VIOLATIONS_MAX};
pub use stamp::{BlobMeta, new_blob_id};
pub use writer::unreadable_entries;

use crate::environment::Environment;
use crate::environment::threads::spawn_blocking;
use crate::guard::Policy;
use crate::log::commit::{Log, Logs};
use crate::log::{LogId, StoreError};
use crate::model::Epoch;
use dashmap::DashMap;
use parking_lot::Mutex;
use pending::InFlight;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, OwnedMutexGuard, Semaphore, watch};
use writer::{LogWriter, PendingAppend, WriterState};

/// The most idle logs that keep their writer for unsaved text of the guard.
///
/// The guard does not save text that may be most of a secret. Beyond this limit, such text reads `[redacted]`, as it
/// does after a restart.
pub const HOLDING_LOGS_MAX: usize = 1024;

/// The write path of all logs.
pub struct Ingest {
    core: Arc<Core>,
    writers: DashMap<LogId, Arc<WriterSlot>>,
    limits: IngestLimits,
    in_flight: Semaphore,
    /// Limits the large deliveries that are accepted at once.
    large: Semaphore,
    /// Notifies when a retired writer has left its slot.
    retired: watch::Sender<()>,
}

/// The data that accepting a delivery needs, on any thread.
struct Core {
    logs: Arc<Logs>,
    policy: Policy,
    environment: Environment,
    logs_max: u64,
    subjects_max: usize,
    quotas: OwnerQuotas,
    counts: IngestCounters,
}

/// A log's entry in the write path: its writer, once the log's state is loaded.
struct WriterSlot {
    log: Arc<Log>,
    writer: OnceCell<Arc<AsyncMutex<LogWriter>>>,
    /// The deliveries that the previous writer had submitted, in order.
    ///
    /// The next writer may have to accept them again.
    sent: Mutex<VecDeque<Weak<InFlight>>>,
    /// See [`LogWriter::void_epoch`].
    void_epoch: Option<Epoch>,
}

/// Deliveries with more bytes of envelopes than this are accepted on a blocking thread.
///
/// On a serving thread, each MiB would delay all other connections by up to 200 ms.
pub const INLINE_BYTES_MAX: usize = 256 * 1024;
/// Large deliveries that are accepted at once. It leaves blocking threads for readers.
pub const LARGE_DELIVERIES_MAX: usize = 2;

impl Ingest {
    /// The write path into `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs>, policy: Policy, environment: Environment) -> Self {
        Self::build(logs, policy, environment, IngestLimits::default())
    }

    fn build(logs: Arc<Logs>, policy: Policy, environment: Environment, limits: IngestLimits) -> Self {
        let core = Arc::new(Core {
            logs,
            policy,
            environment,
            logs_max: limits.logs_max,
            subjects_max: limits.subjects_max,
            quotas: limits.quotas,
            counts: IngestCounters::default(),
        });
        let in_flight = Semaphore::new(limits.in_flight_bytes_max.min(Semaphore::MAX_PERMITS));
        let (writers, large, retired) = (DashMap::new(), Semaphore::new(LARGE_DELIVERIES_MAX), watch::Sender::new(()));
        Self { core, writers, limits, in_flight, large, retired }
    }

    /// Sets the load limits.
    #[must_use]
    pub fn with_limits(self, limits: IngestLimits) -> Self {
        let Core { logs, policy, environment, .. } = &*self.core;
        Self::build(logs.clone(), policy.clone(), *environment, limits)
    }

    /// The quotas of each owner.
    #[must_use]
    pub fn quotas(&self) -> &OwnerQuotas {
        &self.core.quotas
    }

    /// The counters of the write path.
    #[must_use]
    pub fn counts(&self) -> &IngestCounters {
        &self.core.counts
    }

    /// The memory of facts in flight to the store, in bytes, estimated before parsing.
    pub fn in_flight_bytes(&self) -> usize {
        self.limits.in_flight_bytes_max.saturating_sub(self.in_flight.available_permits())
    }

    /// Accepts facts and waits until their envelopes are durable and visible.
    ///
    /// # Errors
    /// [`IngestError`]. The log keeps nothing of an atomic delivery; of another one, what the error says.
    pub async fn deliver(&self, delivery: Delivery) -> Result<Receipt, IngestError> {
        let admitted = self.admit(&delivery).await?;
        self.submit(delivery, admitted).await?.durable().await
    }

    /// Waits up to [`IngestLimits::wait_max`] until the delivery fits into the memory for facts in flight.
    ///
    /// A caller that must wait has to finish its other deliveries first. Otherwise all callers could wait for each
    /// other.
    ///
    /// # Errors
    /// `Busy`; `ParsedFactTooLarge`, for a fact that no limit in flight would cover.
    pub async fn admit(&self, delivery: &Delivery) -> Result<Admitted<'_>, IngestError> {
        let (bytes, limit) = (delivery.facts.parsed_fact_bytes(), PARSED_FACT_BYTES_MAX);
        if bytes > limit {
            return Err(IngestError::ParsedFactTooLarge { bytes, limit });
        }
        let weight = delivery.memory_bytes().min(self.limits.in_flight_bytes_max);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let permit = match self.in_flight.try_acquire_many(weight) {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = Box::pin(tokio::time::timeout(self.limits.wait_max, self.in_flight.acquire_many(weight)));
                waiting.await.map_err(|_| IngestError::Busy(self.limits.wait_max))?.expect("the semaphore is never closed")
            }
        };
        let sheds = self.in_flight_bytes().saturating_sub(weight as usize) > self.limits.shed_bytes_min;
        Ok(Admitted { _permit: permit, sheds })
    }

    /// Accepts facts and queues their appends for the store, without waiting for the store.
    ///
    /// # Errors
    /// [`StoreError`] when the log's state cannot be loaded; `TooManyRuns` and `Panicked`, when nothing was accepted.
    pub async fn submit<'i>(&'i self, delivery: Delivery, admitted: Admitted<'i>) -> Result<Pending<'i>, IngestError> {
        let in_flight = InFlight::new(delivery, admitted.sheds);
        let of = in_flight.clone();
        let answers = self.run_work(in_flight.delivery.envelope_bytes(), move || of.parse()).await;
        if !answers.is_empty() {
            // Boxed, like everything that few deliveries need: callers move this future.
            Box::pin(self.forward_answers(&in_flight.delivery, answers)).await?;
        }
        self.submit_in_flight(&in_flight).await?;
        Ok(Pending { ingest: self, in_flight, durable: None, _admitted: admitted })
    }

    /// Makes the log's writer accept a delivery, unless another call did so meanwhile.
    async fn submit_in_flight(&self, in_flight: &Arc<InFlight>) -> Result<(), IngestError> {
        let delivery = &in_flight.delivery;
        let (slot, mut writer) = self.writer(&delivery.log).await?;
        if !in_flight.needs_accept() {
            return Ok(());
        }
        let (core, in_flight) = (self.core.clone(), in_flight.clone());
        self.run_work(delivery.envelope_bytes(), move || core.accept(&mut writer, &slot.log, &in_flight)).await
    }

    /// Runs work on about `bytes` bytes of envelopes where it delays no connection.
    async fn run_work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        if bytes <= INLINE_BYTES_MAX {
            return work();
        }
        let apart = async {
            let _turn = self.large.acquire().await.expect("the semaphore is never closed");
            let worked = spawn_blocking(work).await;
            worked.unwrap_or_else(|error| resume_unwind(error.into_panic()))
        };
        Box::pin(apart).await
    }

    /// Locks the writer of a log; opens a new one after a conflict or a panic.
    async fn writer(&self, id: &LogId) -> Result<(Arc<WriterSlot>, OwnedMutexGuard<LogWriter>), StoreError> {
        match self.free_writer(id) {
            Some(free) => Ok(free),
            None => Box::pin(self.wait_for_writer(id)).await,
        }
    }

    /// Locks the writer of a log, if it is open and free.
    fn free_writer(&self, id: &LogId) -> Option<(Arc<WriterSlot>, OwnedMutexGuard<LogWriter>)> {
        let slot = self.writers.get(id)?.clone();
        let writer = slot.writer.get()?.clone().try_lock_owned().ok()?;
        let is_usable = writer.state != WriterState::Retired && !self.is_outdated(&writer);
        is_usable.then_some((slot, writer))
    }

    /// Whether the log's state must be loaded again.
    fn is_outdated(&self, writer: &LogWriter) -> bool {
        writer.is_broken() || writer.leader != self.core.logs.leadership().changes()
    }

    async fn wait_for_writer(&self, id: &LogId) -> Result<(Arc<WriterSlot>, OwnedMutexGuard<LogWriter>), StoreError> {
        let mut retired = None;
        loop {
            let slot = self.slot(id).await?;
            let writer = slot.writer.get_or_try_init(|| self.open_writer(&slot)).await?;
            let mut writer = writer.clone().lock_owned().await;
            if writer.state == WriterState::Retired {
                drop(writer);
                self.core.logs.while_leading(self.wait_for_new_writer(&mut retired)).await?;
            } else if self.is_outdated(&writer) {
                self.replace_slot(&slot, &mut writer);
            } else {
                return Ok((slot, writer));
            }
        }
    }

    /// Replaces the slot unless another call did: its writer's state differs from the store.
    fn replace_slot(&self, slot: &Arc<WriterSlot>, writer: &mut LogWriter) {
        let Some(mut place) = self.writers.get_mut(&slot.log.id).filter(|place| Arc::ptr_eq(place, slot)) else { return };
        let void_epoch = (!writer.was_there && writer.chain.has_refused(0)).then_some(writer.epoch);
        let sent = Mutex::new(std::mem::take(&mut writer.sent));
        *place = Arc::new(WriterSlot { log: slot.log.clone(), writer: OnceCell::new(), sent, void_epoch });
    }

    /// Waits until a retired writer has left its slot.
    ///
    /// The first call only subscribes: the writer may have left before that.
    async fn wait_for_new_writer(&self, retired: &mut Option<watch::Receiver<()>>) {
        match retired {
            None => *retired = Some(self.retired.subscribe()),
            // It fails only when the sender is dropped, and `self` owns the sender.
            Some(retired) => drop(retired.changed().await),
        }
    }

    async fn slot(&self, id: &LogId) -> Result<Arc<WriterSlot>, StoreError> {
        if let Some(slot) = self.writers.get(id) {
            return Ok(slot.clone());
        }
        let log = self.core.logs.log(id).await?;
        let new = || Arc::new(WriterSlot { log, writer: OnceCell::new(), sent: Mutex::default(), void_epoch: None });
        Ok(self.writers.entry(id.clone()).or_insert_with(new).clone())
    }

    /// Opens a log's writer, which accepts the unstored deliveries of the previous writer again.
    async fn open_writer(&self, slot: &WriterSlot) -> Result<Arc<AsyncMutex<LogWriter>>, StoreError> {
        // Appends in flight are committed or refused first; only then is the log's tail known.
        self.core.logs.while_leading(slot.log.idle()).await?;
        // Before the state is loaded: a leader that comes after it makes this writer void.
        let leader = self.core.logs.leadership().changes();
        let loaded = self.core.logs.load(&slot.log.id).await?;
        let mut writer = LogWriter::new(slot.log.id.clone(), loaded, self.core.environment)?;
        (writer.void_epoch, writer.leader) = (slot.void_epoch, leader);
        // If this call is cancelled, each remaining delivery is accepted when its caller waits for it.
        let again: Vec<_> = slot.sent.lock().drain(..).filter_map(|sent| sent.upgrade()).collect();
        let again: Vec<_> = again.into_iter().filter(|sent| sent.needs_accept()).collect();
        let bytes = again.iter().map(|sent| sent.delivery.envelope_bytes()).fold(0, usize::saturating_add);
        let (core, log) = (self.core.clone(), slot.log.clone());
        let writer = self.run_work(bytes, move || {
            for in_flight in again {
                if writer.state == WriterState::Lost {
                    break;
                }
                if let Err(error) = core.accept(&mut writer, &log, &in_flight) {
                    in_flight.set(Err(error), None);
                }
            }
            writer
        });
        Ok(Arc::new(AsyncMutex::new(writer.await)))
    }

    /// Drops idle writers without appends in flight; their state is saved.
    ///
    /// A writer whose guard holds unsaved text stays, for at most [`HOLDING_LOGS_MAX`] logs, so that a pause does not
    /// redact.
    pub fn sweep(&self) {
        let mut holding = 0;
        self.writers.retain(|_, slot| {
            let mut stays = |writer: &Arc<AsyncMutex<LogWriter>>| {
                writer.try_lock().map_or(true, |mut writer| {
                    writer.take_used() || writer.has_waiting_callers() || {
                        let is_holding = writer.guard.is_lost_by_saving();
                        holding += usize::from(is_holding);
                        is_holding && holding <= HOLDING_LOGS_MAX
                    }
                })
            };
            Arc::strong_count(slot) > 1 || slot.log.has_in_flight() || slot.writer.get().is_some_and(&mut stays)
        });
    }

    /// The number of writers in memory.
    #[must_use]
    pub fn writer_count(&self) -> usize {
        self.writers.len()
    }
}

impl Core {
    /// Makes a writer accept a delivery, and queues the appends.
    fn accept(&self, writer: &mut LogWriter, log: &Arc<Log>, in_flight: &Arc<InFlight>) -> Result<(), IngestError> {
        if !writer.is_written && self.logs.log_count() >= self.logs_max {
            return Err(IngestError::TooManyRuns { limit: self.logs_max });
        }
        if writer.ledger.len() >= self.subjects_max {
            return Err(IngestError::TooManySubjects { limit: self.subjects_max });
        }
        log.touch();
        let InFlight { delivery, sheds, .. } = &**in_flight;
        let accepting = || writer.accept(delivery, in_flight.take_parsed(), *sheds, self);
        let Ok(taken) = catch_unwind(AssertUnwindSafe(accepting)) else {
            tracing::error!(log = %log.id, "accepting facts panicked; the server loads the log's state again");
            return Err(IngestError::Panicked);
        };
        let pending = writer.outbox.take();
        self.count(taken.as_ref().map_or_else(IngestError::kept, Some), pending.as_ref());
        let commit = pending.map(|pending| writer.submit(&self.logs, log, pending));
        if commit.is_some() {
            writer.track(in_flight);
        }
        in_flight.set(taken, commit);
        Ok(())
    }

    /// Counts the accepted facts and their appends.
    fn count(&self, taken: Option<&Receipt>, pending: Option<&PendingAppend>) {
        if let Some(taken) = taken {
            self.counts.accepted.add(taken.accepted);
            self.counts.duplicates.add(taken.duplicates);
            self.counts.shed.add(taken.shed);
        }
        for append in pending.iter().flat_map(|(appends, _)| appends) {
            self.counts.envelopes.add(append.last.0 - append.expected.0);
            // Neither removals nor bodies that move to the archive are new.
            for blob in append.blobs.iter().filter(|blob| !blob.body.is_empty()) {
                self.counts.blobs.add(1);
                self.counts.blob_bytes.add(blob.body.len() as u64);
            }
        }
    }
}
