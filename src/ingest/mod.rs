//! The write path: facts in, an append out.
//!
//! ```text
//! facts ─▶ adapter ─▶ ledger ─▶ guard ─▶ stamp ─▶ committer
//! ```
//! One [`Desk`] a log takes them in order under one lock, and the log's append is in the committer's line before the lock is
//! let go: so sequences are gapless and in order. Everything that the stages remember is saved in the same append. Time and
//! randomness come in with the request. Nothing here knows a reader.
//!
//! A delivery whose appends conflict was not stored: the log's state is loaded again, and the deliveries that were on their way
//! are taken again in their order. A writer that has appends on their way is never let go of, and one that a panic left ahead of
//! the store is never used again.
//!
//! Whoever erases a log, or rewrites its past, takes its desk away first: what was taken there is in the log by then, what
//! comes after waits for a new one.
//!
//! Its rooms, in the order in which they may use each other: [`delivery`] is what comes in, [`receipt`] what goes back, [`desk`]
//! the stages' memory, [`pending`] what is on its way from there to the store; [`take`] asks the adapter, [`stamp`] the ledger and the guard. Beside the line stand [`answers`] to what
//! other runs asked, [`amend`], by which the server itself adds to a log, and [`past`], which erases and rewrites.

mod load;

mod delivery;

mod receipt;

mod desk;

mod pending;

mod take;

mod stamp;

mod answers;

mod amend;

mod past;

pub use amend::{Amendment, Standing, Verdict};
pub use delivery::{Delivery, ENVELOPE_BYTES, Facts, Fence, PRODUCERS_MAX, Producer, Reach, envelope_bytes_with};
pub use desk::unreadable_entries;
pub use load::{Counts, Load};
pub use past::Thinned;
pub use pending::{Admitted, Pending};
pub use receipt::{IngestError, Outside, Receipt, VIOLATIONS_MAX};
pub use stamp::BlobMeta;
pub use take::ENVELOPES_BYTES_MAX;

use crate::guard::Policy;
use crate::log::run::{Log, Logs};
use crate::log::{LogId, Store, StoreError};
use crate::model::Epoch;
use dashmap::DashMap;
use desk::{Desk, DeskState, Post};
use parking_lot::Mutex;
use pending::InFlight;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, OwnedMutexGuard, Semaphore, watch};

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
    core: Arc<Core<S>>,
    desks: DashMap<LogId, Arc<Seat>>,
    load: Load,
    in_flight: Semaphore,
    /// Whose turn it is to take a large delivery.
    large: Semaphore,
    /// Moves when a desk that was left is gone.
    gone: watch::Sender<()>,
}

/// What it takes to take a delivery, on whatever thread.
struct Core<S> {
    logs: Arc<Logs<S>>,
    policy: Policy,
    world: World,
    logs_max: u64,
    subjects_max: usize,
    counts: Counts,
}

/// A log's place at the write path: its desk, once its state is loaded.
struct Seat {
    log: Arc<Log>,
    desk: OnceCell<Arc<AsyncMutex<Desk>>>,
    /// What the desk before this one had sent, in order: it may have to be taken again.
    sent: Mutex<VecDeque<Weak<InFlight>>>,
    /// See [`Desk::void`].
    void: Option<Epoch>,
}

/// Deliveries that lead to more bytes of envelopes than this are taken on a thread that may be held up: on one that serves, each
/// MiB would keep all other connections waiting for up to 200 ms.
const SERVED_BYTES_MAX: usize = 256 * 1024;
/// Large deliveries that are taken at once: some threads are left for those who read.
pub const LARGE_AT_ONCE: usize = 2;

impl<S: Store> Ingest<S> {
    /// The write path into `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs<S>>, policy: Policy, world: World) -> Self {
        Self::limited(logs, policy, world, Load::default())
    }

    fn limited(logs: Arc<Logs<S>>, policy: Policy, world: World, load: Load) -> Self {
        let core = Arc::new(Core {
            logs,
            policy,
            world,
            logs_max: load.logs_max,
            subjects_max: load.subjects_max,
            counts: Counts::default(),
        });
        let in_flight = Semaphore::new(load.in_flight_bytes_max.min(Semaphore::MAX_PERMITS));
        let (desks, large, gone) = (DashMap::new(), Semaphore::new(LARGE_AT_ONCE), watch::Sender::new(()));
        Self { core, desks, load, in_flight, large, gone }
    }

    /// The same, which bears this much.
    #[must_use]
    pub fn bearing(self, load: Load) -> Self {
        let Core { logs, policy, world, .. } = &*self.core;
        Self::limited(logs.clone(), policy.clone(), *world, load)
    }

    /// What was taken so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.core.counts
    }

    /// The memory that facts under way to the store take, in bytes, by what is known of them before they are parsed.
    pub fn in_flight_bytes(&self) -> usize {
        self.load.in_flight_bytes_max.saturating_sub(self.in_flight.available_permits())
    }

    /// Takes facts, and answers when what they led to is durable and visible.
    ///
    /// # Errors
    /// [`IngestError`]. Nothing of an atomic delivery is then kept; of another one, what the error says.
    pub async fn deliver(&self, delivery: Delivery) -> Result<Receipt, IngestError> {
        let admitted = self.admit(&delivery).await?;
        self.submit(delivery, admitted).await?.durable().await
    }

    /// Waits until the delivery fits into what may be under way, for as long as [`Load::wait_max`] says. A caller that has
    /// deliveries under way and has to wait must let go of those first, or all could end up waiting for each other.
    ///
    /// # Errors
    /// `Busy`.
    pub async fn admit(&self, delivery: &Delivery) -> Result<Admitted<'_>, IngestError> {
        let weight = delivery.memory_bytes().min(self.load.in_flight_bytes_max);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let permit = match self.in_flight.try_acquire_many(weight) {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = tokio::time::timeout(self.load.wait_max, self.in_flight.acquire_many(weight));
                waiting.await.map_err(|_| IngestError::Busy(self.load.wait_max))?.expect("the semaphore is never closed")
            }
        };
        let sheds = self.in_flight_bytes().saturating_sub(weight as usize) > self.load.shed_bytes_min;
        Ok(Admitted { _permit: permit, sheds })
    }

    /// Takes facts and puts them in the line to the store, without waiting for the store.
    ///
    /// # Errors
    /// [`StoreError`] when the log's state cannot be loaded; `TooManyRuns` and `Panicked`, when nothing was taken.
    pub async fn submit<'i>(&'i self, delivery: Delivery, admitted: Admitted<'i>) -> Result<Pending<'i, S>, IngestError> {
        let in_flight = InFlight::new(delivery, admitted.sheds);
        if let Some(answers) = in_flight.delivery.source.answers {
            let of = in_flight.clone();
            let answers = move || {
                let facts = &of.delivery.facts;
                // A fact that cannot be read is refused when its turn comes.
                let facts = (0..facts.len()).filter_map(|index| facts.get(index).ok());
                facts.filter_map(|fact| fact.as_object().map(answers)).flatten().collect::<Vec<_>>()
            };
            let told = self.work(in_flight.delivery.envelope_bytes(), answers).await;
            if !told.is_empty() {
                self.pass_on(&in_flight.delivery, told).await?;
            }
        }
        self.enter(&in_flight).await?;
        Ok(Pending { ingest: self, in_flight, durable: None, _admitted: admitted })
    }

    /// Has the log's writer take a delivery, unless another call has had it taken.
    async fn enter(&self, in_flight: &Arc<InFlight>) -> Result<(), IngestError> {
        let delivery = &in_flight.delivery;
        let (seat, mut desk) = self.writer(&delivery.log).await?;
        if !in_flight.is_to_be_taken() {
            return Ok(());
        }
        let (core, in_flight) = (self.core.clone(), in_flight.clone());
        self.work(delivery.envelope_bytes(), move || core.take(&mut desk, &seat.log, &in_flight)).await
    }

    /// Does work of about so many bytes of envelopes where it holds up nobody.
    async fn work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        if bytes <= SERVED_BYTES_MAX {
            return work();
        }
        let _turn = self.large.acquire().await.expect("the semaphore is never closed");
        let worked = tokio::task::spawn_blocking(work).await;
        worked.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }

    /// The writer of a log, with nobody else at it; loaded anew if it conflicted or was lost.
    async fn writer(&self, id: &LogId) -> Result<(Arc<Seat>, OwnedMutexGuard<Desk>), StoreError> {
        let mut gone = None;
        loop {
            let seat = self.seat(id).await?;
            let desk = seat.desk.get_or_try_init(|| self.sit_down(&seat)).await?;
            let mut desk = desk.clone().lock_owned().await;
            if desk.state == DeskState::Retired {
                drop(desk);
                self.wait_for_a_new_desk(&mut gone).await;
            } else if desk.is_broken() {
                self.replace(&seat, &mut desk);
            } else {
                return Ok((seat, desk));
            }
        }
    }

    /// Puts a new seat where this one is, if it is there still: its memory is not what the store has.
    fn replace(&self, seat: &Arc<Seat>, desk: &mut Desk) {
        let Some(mut place) = self.desks.get_mut(&seat.log.id).filter(|place| Arc::ptr_eq(place, seat)) else { return };
        let void = (!desk.was_there && desk.chain.has_refused(0)).then_some(desk.epoch);
        let sent = Mutex::new(std::mem::take(&mut desk.sent));
        *place = Arc::new(Seat { log: seat.log.clone(), desk: OnceCell::new(), sent, void });
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
        let log = self.core.logs.log(id).await?;
        let new = || Arc::new(Seat { log, desk: OnceCell::new(), sent: Mutex::default(), void: None });
        Ok(self.desks.entry(id.clone()).or_insert_with(new).clone())
    }

    /// Loads a log's writer, and has it take what the one before it had on its way and did not get stored.
    async fn sit_down(&self, seat: &Seat) -> Result<Arc<AsyncMutex<Desk>>, StoreError> {
        // What is on its way belongs to the log, or is refused; before that is known there is no saying where the log stands.
        seat.log.idle().await;
        let loaded = self.core.logs.load(&seat.log.id).await?;
        let mut desk = Desk::new(seat.log.id.clone(), loaded, self.core.world)?;
        desk.void = seat.void;
        // One whose turn is missed here, because this is given up, is taken when its caller asks what became of it.
        let again: Vec<_> = seat.sent.lock().drain(..).filter_map(|sent| sent.upgrade()).collect();
        let again: Vec<_> = again.into_iter().filter(|sent| sent.is_to_be_taken()).collect();
        let bytes = again.iter().map(|sent| sent.delivery.envelope_bytes()).fold(0, usize::saturating_add);
        let (core, log) = (self.core.clone(), seat.log.clone());
        let desk = self.work(bytes, move || {
            for in_flight in again {
                if desk.state == DeskState::Lost {
                    break;
                }
                if let Err(error) = core.take(&mut desk, &log, &in_flight) {
                    in_flight.set(Err(error), None);
                }
            }
            desk
        });
        Ok(Arc::new(AsyncMutex::new(desk.await)))
    }

    /// Forgets the desks of logs that nobody writes at this moment and that have nothing under way. Their state is saved. A desk
    /// whose guard holds text that it does not save stays, for at most [`HOLDING_LOGS_MAX`] logs: a pause must not redact.
    pub fn sweep(&self) {
        let mut holding = 0;
        self.desks.retain(|_, seat| {
            let mut stays = |desk: &Arc<AsyncMutex<Desk>>| {
                desk.try_lock().map_or(true, |mut desk| {
                    desk.touch_again() || desk.is_waited_for() || {
                        let is_holding = desk.guard.is_lost_by_saving();
                        holding += usize::from(is_holding);
                        is_holding && holding <= HOLDING_LOGS_MAX
                    }
                })
            };
            Arc::strong_count(seat) > 1 || seat.log.is_under_way() || seat.desk.get().is_some_and(&mut stays)
        });
    }

    /// How many logs have a writer in memory.
    #[must_use]
    pub fn writer_count(&self) -> usize {
        self.desks.len()
    }
}

impl<S: Store> Core<S> {
    /// Has a writer take a delivery, and puts what it leads to in the queue to the store.
    fn take(&self, desk: &mut Desk, log: &Arc<Log>, in_flight: &Arc<InFlight>) -> Result<(), IngestError> {
        if !desk.written && self.logs.log_count() >= self.logs_max {
            return Err(IngestError::TooManyRuns { limit: self.logs_max });
        }
        if desk.ledger.len() >= self.subjects_max {
            return Err(IngestError::TooManySubjects { limit: self.subjects_max });
        }
        log.hear();
        let taking = || desk.take(&in_flight.delivery, in_flight.sheds, &self.policy, self.world);
        let Ok(taken) = catch_unwind(AssertUnwindSafe(taking)) else {
            tracing::error!(log = %log.id, "taking facts panicked; the log's state is loaded again");
            return Err(IngestError::Panicked);
        };
        let post = desk.outbox.take();
        self.count(taken.as_ref().map_or_else(IngestError::kept, Some), post.as_ref());
        let commit = post.map(|post| desk.submit(&self.logs, log, post));
        if commit.is_some() {
            desk.note(in_flight);
        }
        in_flight.set(taken, commit);
        Ok(())
    }

    /// Counts what was taken of a delivery, and what it led to.
    fn count(&self, taken: Option<&Receipt>, post: Option<&Post>) {
        if let Some(taken) = taken {
            self.counts.accepted.add(taken.accepted);
            self.counts.duplicates.add(taken.duplicates);
            self.counts.shed.add(taken.shed);
        }
        for append in post.iter().flat_map(|(appends, _)| appends) {
            self.counts.envelopes.add(append.last.0 - append.expected.0);
            if !append.blobs.is_empty() {
                self.counts.blobs.add(append.blobs.len() as u64);
                self.counts.blob_bytes.add(append.blobs.iter().map(|blob| blob.body.len() as u64).sum());
            }
        }
    }
}
