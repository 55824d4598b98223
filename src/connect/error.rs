//! Why a call to an agent failed.

use crate::serve::http::problem::Problem;
use std::time::Duration;

/// The most characters of an endpoint's own words in a reason.
const EXCERPT_CHARS_MAX: usize = 500;

/// A failed call. Operators read `reason`; users see only that the run failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct UpstreamError {
    /// Stable, for programs.
    pub code: &'static str,
    pub reason: String,
    /// When to repeat the call, if a repetition before the first fact can do no harm.
    pub retry: Option<RetryHint>,
    /// Whether the endpoint does not know what the call names.
    pub is_missing: bool,
}

/// The code of a branch whose agent no longer has its state at the point.
pub const STATE_LOST: &str = "agent_state_lost";

/// When a failed call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryHint {
    /// After the connector's own backoff.
    Backoff,
    /// The endpoint named the time.
    After(Duration),
}

impl UpstreamError {
    /// A failure that a repetition does not cure, or that may have had an effect.
    pub fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), retry: None, is_missing: false }
    }

    /// The agent no longer has the state with which a branch begins.
    #[must_use]
    pub fn state_lost(reason: impl std::fmt::Display) -> Self {
        let next = "The next message gives it the conversation in words.";
        Self::new(STATE_LOST, format!("The agent no longer has its state at the point of the branch. {next} {reason}"))
    }

    /// [`Self::state_lost`], if the endpoint does not know what the call names.
    #[must_use]
    pub fn or_state_lost(self) -> Self {
        if self.is_missing { Self::state_lost(self.reason) } else { self }
    }

    /// The endpoint did not begin the work, so that the call may be repeated.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryHint) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The stream ended before the run did.
    #[must_use]
    pub fn cut(reason: impl Into<String>) -> Self {
        Self::new("endpoint_closed", reason)
    }
}

impl From<Problem> for UpstreamError {
    /// The log did not accept what the endpoint sent.
    fn from(problem: Problem) -> Self {
        let code = match problem.code {
            "not_json" => "endpoint_not_json",
            _ if problem.status.is_client_error() => "endpoint_invalid_fact",
            _ => "facts_not_stored",
        };
        Self::new(code, format!("{} ({})", problem.detail, problem.code))
    }
}

/// The beginning of a text that an endpoint sent.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
