//! The result of a delivery: a receipt for durable facts, or the error that refused them.

use super::delivery::PRODUCERS_MAX;
use super::quotas::QuotaExceeded;
use crate::log::StoreError;
use crate::model::{Epoch, ProducerId, RunId, Sequence, SessionId};
use crate::source::FactError;
use crate::source::ledger::Violation;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::oneshot;

/// The result of a delivery. Once it is returned, the facts are durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// `null` for a log without envelopes.
    #[serde(serialize_with = "as_text")]
    pub epoch: Option<Epoch>,
    pub accepted: u64,
    pub duplicates: u64,
    /// Diagnostics and metrics that the server dropped under load.
    ///
    /// They are not in the log and need not be sent again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shed: u64,
    /// The first envelope that the facts led to; `null` if they led to none.
    pub first_sequence: Option<Sequence>,
    /// The log's last envelope after the facts.
    pub last_sequence: Sequence,
    /// The first [`VIOLATIONS_MAX`] chunks that came after the end of their stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The number of further violations.
    #[serde(skip_serializing_if = "is_zero")]
    pub violations_omitted: u64,
}

/// The most violations in one answer; a body may be arbitrarily long.
pub const VIOLATIONS_MAX: usize = 100;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
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
    /// Adds the result of a later delivery of the same body.
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

/// Why a delivery was refused, as a whole or from one fact on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// One fact was refused. `kept` covers the facts before it, durable; empty for an atomic delivery.
    #[error("fact {index}: {error}")]
    Fact { index: u64, error: FactError, kept: Box<Receipt> },
    /// The text of a fact is not JSON.
    ///
    /// `kept` covers the facts before it, durable; empty for an atomic delivery.
    #[error("fact {index} is not JSON: {error}")]
    NotJson { index: u64, error: String, kept: Box<Receipt> },
    /// One fact would take the run outside the caller's write scope. `kept` covers the facts before it.
    #[error("fact {index}: {error}")]
    OutOfScope { index: u64, error: OutOfScope, kept: Box<Receipt> },
    /// The run itself is outside the caller's write scope.
    #[error(transparent)]
    RunOutOfScope(OutOfScope),
    /// The request names an owner.
    #[error(
        "Session {0} belongs to another owner than the request names. Nothing was accepted. Omit owner, or begin another session."
    )]
    OtherOwner(SessionId),
    #[error("Nothing was accepted: {0}.")]
    Quota(#[from] QuotaExceeded),
    #[error("producer {producer} sent fact {got}, but {expected} comes next; send from {expected} on")]
    ProducerGap { producer: ProducerId, got: u64, expected: u64 },
    #[error("producer {producer} is at epoch {current}, this is epoch {got}: a newer producer has taken over; stop sending")]
    ProducerFenced { producer: ProducerId, got: u64, current: u64 },
    #[error("the log has {PRODUCERS_MAX} numbered producers, the limit; reuse a producer id")]
    TooManyProducers,
    #[error("the server has {limit} runs and sessions, the limit; erase some, or raise --runs-max")]
    TooManyRuns { limit: u64 },
    #[error(
        "The log has {limit} calls, messages, parts and other subjects, the limit. Nothing of this was accepted. Start another run."
    )]
    TooManySubjects { limit: usize },
    #[error("ingest is overloaded: its memory stayed full for {0:?}. Nothing was accepted. Retry later.")]
    Busy(Duration),
    #[error(
        "the log was erased while the server accepted this body; earlier facts of the body are erased too. Send the whole body again."
    )]
    Erased,
    /// A connector's turn would begin in a run that another producer began.
    #[error("The run has envelopes of another producer already. Nothing was accepted. Choose another runId.")]
    RunExists,
    #[error(
        "the body's envelopes take {bytes} bytes, the limit is {limit}: the ids of the request stand in each of them. Nothing of \
         it was kept; send fewer facts at once, or as application/x-ndjson, which has no limit"
    )]
    EnvelopesTooLarge { bytes: usize, limit: usize },
    #[error(
        "A fact takes about {bytes} bytes of memory once it is parsed. The limit is {limit}. Nothing of this body or group was \
         accepted. Send fewer and larger values, or send the data as text."
    )]
    ParsedFactTooLarge { bytes: usize, limit: usize },
    /// A bug: the server discards the writer's state and loads it again.
    #[error("an internal error occurred while the server accepted the facts; its log has details. Nothing was kept.")]
    Panicked,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IngestError {
    /// The receipt for the part that was kept.
    #[must_use]
    pub fn kept(&self) -> Option<&Receipt> {
        match self {
            Self::Fact { kept, .. } | Self::NotJson { kept, .. } | Self::OutOfScope { kept, .. } => Some(kept),
            _ => None,
        }
    }
}

/// Why a delivery is outside the caller's write scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfScope {
    #[error("the run would join session {0}, which the token does not allow")]
    Session(SessionId),
    #[error(
        "the token does not allow run {0}: it names neither the run nor its session; name an allowed session in the run's first fact"
    )]
    Run(RunId),
}

pub(super) async fn committed(durable: &mut oneshot::Receiver<Result<(), StoreError>>) -> Result<(), StoreError> {
    let stopped = |_| StoreError::Failed { doing: "commit", why: "the server is stopping".into() };
    durable.await.map_err(stopped)?
}
