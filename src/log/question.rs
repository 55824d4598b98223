//! The pending and the expired questions of a log: what tells whether a decision is about the question that was shown.
//!
//! One state entry per action. It holds positions, never the content of a question.

use super::{LogId, StoreError};
use crate::model::Sequence;
use serde::{Deserialize, Serialize};

/// Expired questions that a log remembers, so that a late decision learns why it is refused.
pub const EXPIRED_QUESTIONS_MAX: usize = 256;

/// The prefix of a question's state key; the action id follows.
pub const QUESTION_KEY_PREFIX: &str = "q:";

/// An action, by its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Its last request. A runtime that asks again after it accepted an answer needs another one.
    pub asked: Sequence,
    /// Whether its deadline passed without an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_expired: bool,
}

impl Question {
    /// Reads the question from a log's state entry.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are not a question.
    pub fn read(log: &LogId, entry: &[u8], saved: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(saved).map_err(|error| StoreError::unreadable(log, entry, &error))
    }
}
