//! The errors of a reporter: why it cannot start, and why reports are not acknowledged.

use crate::id::IdError;
use crate::trust::TrustError;

/// Why a reporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{url:?} is not a valid server address: {why}; use an address such as http://127.0.0.1:8787")]
    Url { url: String, why: String },
    #[error("the reporter's {member}: {error}")]
    Id { member: &'static str, error: IdError },
    #[error("the reporter's {member} is not visible ASCII, which its HTTP header requires")]
    Header { member: &'static str },
    #[error("a reporter needs a tokio runtime for its background task; start the reporter inside one")]
    NoRuntime,
    #[error("the system's randomness, which a reporter needs for its id, is unavailable: {0}")]
    NoRandomness(getrandom::Error),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("the HTTP client cannot be created: {0}")]
    Client(reqwest::Error),
}

/// Why some reports are not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The reporter still retries; a later `flush` may succeed.
    #[error("the server made no progress within the stall timeout: {why}; {waiting} reports are pending and will be retried")]
    Unreachable { waiting: u64, why: String },
    /// These reports are lost; the others are acknowledged.
    /// `flush` reports a loss once.
    #[error("{count} reports are lost: {why}")]
    Lost { count: u64, why: String },
    /// Permanent.
    #[error("a newer reporter (epoch {current}) uses this producer's id; this reporter sends nothing more")]
    Fenced { current: u64 },
    /// Permanent.
    #[error("the server rejects this reporter: {detail} ({status} {code}); the reporter sends nothing more")]
    Refused { status: u16, code: String, detail: String },
}
