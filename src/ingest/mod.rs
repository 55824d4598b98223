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
//!
//! Its rooms, in the order in which they may use each other: [`delivery`] is what comes in, [`receipt`] what goes back, [`desk`]
//! the stages' memory; [`take`] asks the adapter, [`stamp`] the ledger and the guard. Beside the line stand [`answers`] to what
//! other runs asked, [`amend`], by which the server itself adds to a log, and [`past`], which erases and rewrites.

mod load;

mod delivery;

mod receipt;

mod desk;

mod take;

mod stamp;

mod answers;

mod amend;

mod past;

pub use amend::{Amendment, Standing, Verdict};
pub use delivery::{Delivery, Fence, PRODUCERS_MAX, Producer, Reach};
pub use desk::unreadable_entries;
pub use load::{Counts, Load};
pub use past::Thinned;
pub use receipt::{IngestError, Outside, Pending, Receipt, VIOLATIONS_MAX};
pub use stamp::BlobMeta;

use crate::guard::Policy;
use crate::log::run::{Log, Logs, Submission};
use crate::log::{LogId, Store, StoreError};
use dashmap::DashMap;
use desk::{Desk, Post};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{OnceCell, Semaphore, oneshot, watch};

/// The most idle logs that keep their desk because the guard holds text that may be most of a secret and therefore is not saved.
/// Beyond it such a text reads `[redacted]`, as it does after a restart.
pub const HOLDING_LOGS_MAX: usize = 1024;

/// Where time and randomness come from: given by `main`, so that everything else is a function of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub now: fn() -> jiff::Timestamp,
    /// Random bits from the operating system.
    pub random: fn() -> u128,
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

    /// Puts an append in the line to the store. The caller holds the lock of the log's desk.
    fn post(&self, log: &Arc<Log>, (append, summary): Post) -> oneshot::Receiver<Result<(), StoreError>> {
        let (ack, durable) = oneshot::channel();
        self.logs.submit(Submission { log: log.clone(), append, summary, ack });
        durable
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
        Ok(Mutex::new(Desk::new(id.clone(), loaded, self.world)?))
    }

    /// Forgets the desks of logs that nobody writes at this moment and that have nothing under way. Their state is saved. A desk
    /// whose guard holds text that it does not save stays, for at most [`HOLDING_LOGS_MAX`] logs: a pause must not redact.
    pub fn sweep(&self) {
        let mut holding = 0;
        self.desks.retain(|_, seat| {
            Arc::strong_count(seat) > 1
                || seat.desk.get().is_some_and(|desk| {
                    let mut desk = desk.lock();
                    desk.touch_again() || {
                        holding += usize::from(desk.guard.is_lost_by_saving());
                        desk.guard.is_lost_by_saving() && holding <= HOLDING_LOGS_MAX
                    }
                })
        });
    }
}
