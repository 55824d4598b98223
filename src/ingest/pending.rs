//! Deliveries between a log's writer and the store, and what becomes of them.

use super::Ingest;
use super::delivery::Delivery;
use super::receipt::{IngestError, Receipt, committed};
use crate::log::run::Chain;
use crate::log::{Store, StoreError};
use crate::model::Epoch;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{SemaphorePermit, oneshot};

/// How often a delivery whose appends conflict is taken again before its caller gets an error.
pub(super) const ATTEMPTS_MAX: usize = 8;

/// A delivery until its caller has the answer. It keeps the facts, so that the log's next writer can take them again.
pub(super) struct InFlight {
    pub delivery: Delivery,
    /// Whether diagnostics and metrics are left out of it.
    pub sheds: bool,
    outcome: Mutex<Outcome>,
}

/// What became of a delivery the last time that it was taken.
#[derive(Default)]
struct Outcome {
    /// `None` until it was first taken.
    taken: Option<Result<Receipt, IngestError>>,
    commit: Option<Commit>,
}

/// A submission to the committer, and its place among those of its writer.
pub(super) struct Commit {
    pub chain: Arc<Chain>,
    pub number: u64,
    /// `None` once somebody waits for it.
    pub durable: Option<oneshot::Receiver<Result<(), StoreError>>>,
}

impl Commit {
    /// Whether nothing of it was stored, because the log did not stand where its writer left it.
    pub fn is_refused(&self) -> bool {
        self.chain.has_refused(self.number)
    }

    /// Waits for it.
    pub async fn wait(&mut self) -> Result<(), StoreError> {
        match self.durable.take() {
            Some(mut durable) => committed(&mut durable).await,
            None => Ok(()),
        }
    }
}

impl InFlight {
    pub fn new(delivery: Delivery, sheds: bool) -> Arc<Self> {
        Arc::new(Self { delivery, sheds, outcome: Mutex::default() })
    }

    /// Whether a writer has it to take: for the first time, or again after a conflict.
    pub fn is_to_be_taken(&self) -> bool {
        let outcome = self.outcome.lock();
        outcome.taken.is_none() || outcome.commit.as_ref().is_some_and(Commit::is_refused)
    }

    /// Notes what a writer made of it.
    pub fn set(&self, taken: Result<Receipt, IngestError>, commit: Option<Commit>) {
        *self.outcome.lock() = Outcome { taken: Some(taken), commit };
    }

    fn read<T>(&self, read: impl FnOnce(&Result<Receipt, IngestError>) -> T) -> Option<T> {
        self.outcome.lock().taken.as_ref().map(read)
    }
}

/// A delivery that a writer has taken and that is on its way to the store.
pub struct Pending<'i, S> {
    pub(super) ingest: &'i Ingest<S>,
    pub(super) in_flight: Arc<InFlight>,
    /// The commit that is waited for.
    pub(super) durable: Option<oneshot::Receiver<Result<(), StoreError>>>,
    pub(super) _admitted: Admitted<'i>,
}

/// A delivery's part of [`Load::in_flight_bytes_max`](super::Load::in_flight_bytes_max).
pub struct Admitted<'i> {
    pub(super) _permit: SemaphorePermit<'i>,
    /// Whether so much is under way beside it that diagnostics and metrics are left out.
    pub(super) sheds: bool,
}

impl<S: Store> Pending<'_, S> {
    /// Whether a fact was refused: what follows it in the same body must not be sent.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.in_flight.read(Result::is_err).unwrap_or(true)
    }

    /// The log's life that it went to; `None` where nothing was written, or a fact was refused.
    #[must_use]
    pub fn life(&self) -> Option<Epoch> {
        self.in_flight.read(|taken| taken.as_ref().ok()?.epoch).flatten()
    }

    /// Waits until everything that was taken is durable and visible. After a conflict, of which nothing was stored, the log's
    /// state is loaded and the delivery taken again. Dropping the future loses nothing: another call goes on.
    ///
    /// # Errors
    /// As [`Ingest::deliver`].
    pub async fn durable(&mut self) -> Result<Receipt, IngestError> {
        let mut refused = StoreError::Failed { doing: "append", why: "another writer was faster each time".into() };
        for _ in 0..ATTEMPTS_MAX {
            if self.durable.is_none() {
                if self.in_flight.is_to_be_taken() {
                    self.ingest.enter(&self.in_flight).await?;
                }
                self.durable = self.in_flight.outcome.lock().commit.as_mut().and_then(|commit| commit.durable.take());
            }
            let result = match &mut self.durable {
                Some(durable) => committed(durable).await,
                None => Ok(()),
            };
            self.durable = None;
            match result {
                Ok(()) => {
                    let unknown = || IngestError::Panicked;
                    return self.in_flight.read(Clone::clone).ok_or_else(unknown)?;
                }
                Err(error) => {
                    let outcome = self.in_flight.outcome.lock();
                    // It was refused, or is with the next writer already; else the store has failed.
                    let goes_on = |commit: &Commit| commit.is_refused() || commit.durable.is_some();
                    if outcome.commit.as_ref().is_some_and(|commit| !goes_on(commit)) {
                        return Err(error.into());
                    }
                    refused = error;
                }
            }
        }
        Err(refused.into())
    }
}
