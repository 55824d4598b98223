//! Deliveries between a log's writer and the store, and their results.

use super::Ingest;
use super::delivery::Delivery;
use super::parse::Parsed;
use super::receipt::{IngestError, Receipt, committed};
use crate::log::StoreError;
use crate::log::commit::Chain;
use crate::model::Epoch;
use crate::source::ActionAnswer;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{SemaphorePermit, oneshot};

/// Attempts to commit a delivery whose appends conflict, before its caller gets the error.
pub(super) const ATTEMPTS_MAX: usize = 8;

/// A delivery until its caller has the answer.
///
/// It keeps the facts, so that the log's next writer can accept them again.
pub(super) struct InFlight {
    pub delivery: Delivery,
    /// Whether the writer drops its diagnostics and metrics.
    pub sheds: bool,
    parsed: Mutex<Option<Parsed>>,
    outcome: Mutex<Acceptance>,
}

/// The result of a delivery's last acceptance.
#[derive(Default)]
struct Acceptance {
    /// `None` until the first acceptance.
    taken: Option<Result<Receipt, IngestError>>,
    commit: Option<Commit>,
}

/// A submission to the committer, with its index in the writer's chain.
pub(super) struct Commit {
    pub chain: Arc<Chain>,
    pub index: u64,
    /// `None` once a caller waits for it.
    pub durable: Option<oneshot::Receiver<Result<(), StoreError>>>,
}

impl Commit {
    /// Whether nothing of it was stored, because another writer had appended to the log.
    pub fn is_refused(&self) -> bool {
        self.chain.has_refused(self.index)
    }

    /// Waits for the commit.
    pub async fn wait(&mut self) -> Result<(), StoreError> {
        match self.durable.take() {
            Some(mut durable) => committed(&mut durable).await,
            None => Ok(()),
        }
    }
}

impl InFlight {
    pub fn new(delivery: Delivery, sheds: bool) -> Arc<Self> {
        Arc::new(Self { delivery, sheds, parsed: Mutex::default(), outcome: Mutex::default() })
    }

    /// Parses the delivery. Returns the answers that it brings to actions of other runs.
    pub fn parse(&self) -> Vec<ActionAnswer> {
        let mut parsed = Parsed::of(&self.delivery, 0);
        let answers = std::mem::take(&mut parsed.answers);
        *self.parsed.lock() = Some(parsed);
        answers
    }

    /// Takes the parsed delivery; parses it again when a writer had it before.
    pub fn take_parsed(&self) -> Parsed {
        self.parsed.lock().take().unwrap_or_else(|| Parsed::of(&self.delivery, 0))
    }

    /// Whether a writer must accept it: for the first time, or again after a conflict.
    pub fn needs_accept(&self) -> bool {
        let outcome = self.outcome.lock();
        outcome.taken.is_none() || outcome.commit.as_ref().is_some_and(Commit::is_refused)
    }

    /// Sets the result of an acceptance.
    pub fn set(&self, taken: Result<Receipt, IngestError>, commit: Option<Commit>) {
        *self.outcome.lock() = Acceptance { taken: Some(taken), commit };
    }

    fn read<T>(&self, read: impl FnOnce(&Result<Receipt, IngestError>) -> T) -> Option<T> {
        self.outcome.lock().taken.as_ref().map(read)
    }
}

/// An accepted delivery on its way to the store.
pub struct Pending<'i> {
    pub(super) ingest: &'i Ingest,
    pub(super) in_flight: Arc<InFlight>,
    /// The commit to wait for.
    pub(super) durable: Option<oneshot::Receiver<Result<(), StoreError>>>,
    pub(super) _admitted: Admitted<'i>,
}

/// A delivery's share of [`IngestLimits::in_flight_bytes_max`](super::IngestLimits::in_flight_bytes_max).
pub struct Admitted<'i> {
    pub(super) _permit: SemaphorePermit<'i>,
    /// Whether the load is so high that the writer drops diagnostics and metrics.
    pub(super) sheds: bool,
}

impl Pending<'_> {
    /// Whether a fact was refused. The caller must not send the rest of the same body then.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.in_flight.read(Result::is_err).unwrap_or(true)
    }

    /// The log's epoch; `None` if nothing was written or a fact was refused.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.in_flight.read(|taken| taken.as_ref().ok()?.epoch).flatten()
    }

    /// Waits until all accepted facts are durable and visible.
    ///
    /// After a conflict, which stores nothing, the server loads the log's state and accepts the delivery again.
    /// Dropping the future loses nothing: another call continues.
    ///
    /// # Errors
    /// As [`Ingest::deliver`].
    pub async fn durable(&mut self) -> Result<Receipt, IngestError> {
        let mut refused = StoreError::Failed { doing: "append", why: "another writer was faster at every attempt".into() };
        for _ in 0..ATTEMPTS_MAX {
            if self.durable.is_none() {
                if self.in_flight.needs_accept() {
                    Box::pin(self.ingest.submit_in_flight(&self.in_flight)).await?;
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
                // Another node has the log, so no attempt here can succeed.
                Err(StoreError::NotLeader) => return Err(StoreError::NotLeader.into()),
                Err(error) => {
                    let outcome = self.in_flight.outcome.lock();
                    // The submission was refused, or the next writer has it; otherwise the store has failed.
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
