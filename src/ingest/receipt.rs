//! What goes back: a receipt for what is durable, or why it was not taken, or only up to a point.

use super::delivery::PRODUCERS_MAX;
use crate::log::StoreError;
use crate::model::{Epoch, ProducerId, RunId, Sequence, SessionId};
use crate::source::FactError;
use crate::source::ledger::Violation;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::oneshot;

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

    pub(super) fn bound(&mut self) {
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
    /// The text of a fact is not JSON. `kept` is what stood before it, durable; nothing where all or nothing was asked for.
    #[error("fact {index} is not JSON: {error}")]
    NotJson { index: u64, error: String, kept: Box<Receipt> },
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
    #[error(
        "The log has {limit} calls, messages, parts and other subjects, the limit. Nothing of this was accepted. Start another run."
    )]
    TooManySubjects { limit: usize },
    #[error("too much is under way to the store, and was for {0:?}; nothing of this was taken, send it again a little later")]
    Busy(Duration),
    #[error(
        "the log was erased while this body was being taken: what came before is gone with it; send the body again to begin anew"
    )]
    Erased,
    #[error(
        "the body's envelopes take {bytes} bytes, the limit is {limit}: the ids of the request stand in each of them. Nothing of \
         it was kept; send fewer facts at once, or as application/x-ndjson, which has no limit"
    )]
    EnvelopesTooLarge { bytes: usize, limit: usize },
    /// Our mistake: the writer's memory is thrown away and loaded again.
    #[error("the server made a mistake while it took the facts; its log says more. Nothing of them was kept")]
    Panicked,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IngestError {
    /// What was kept of the delivery.
    #[must_use]
    pub fn kept(&self) -> Option<&Receipt> {
        match self {
            Self::Fact { kept, .. } | Self::NotJson { kept, .. } | Self::Outside { kept, .. } => Some(kept),
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

pub(super) async fn committed(durable: &mut oneshot::Receiver<Result<(), StoreError>>) -> Result<(), StoreError> {
    let stopped = |_| StoreError::Failed { doing: "commit", why: "the server is stopping".into() };
    durable.await.map_err(stopped)?
}
