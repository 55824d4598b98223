//! The questions of a log: what tells whether a decision is about the question that was shown.
//!
//! One state entry per action. It holds positions and hashes, never the content of a question.

use super::{LogId, StoreError};
use crate::model::{Sequence, ToolCallId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Closed questions that a log remembers, so that a late decision learns why it is refused, and so that a question under
/// an id that was used before is another version.
pub const CLOSED_QUESTIONS_MAX: usize = 256;

/// The prefix of a question's state key; the action id follows.
pub const QUESTION_KEY_PREFIX: &str = "q:";

/// Whether a question waits for a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionState {
    #[default]
    Pending,
    /// Answered, or given up.
    Resolved,
    /// Its deadline passed without an answer.
    Expired,
}

/// The version of a question, for readers that see the same of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// 1, 2, 3 …: each content that differs from the one before is another.
    pub number: u32,
    /// The last envelope that changed or completed the content.
    pub since: Sequence,
}

impl Default for Version {
    fn default() -> Self {
        Self { number: 1, since: Sequence::NONE }
    }
}

/// The most publishers of one question that a log remembers. With more, each `sub` counts as one of them.
pub const PUBLISHERS_MAX: usize = 32;

/// The `sub`s of the tokens that published a question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Publishers(BTreeSet<Box<str>>);

impl Publishers {
    pub fn add(&mut self, sub: &str) {
        if self.0.len() <= PUBLISHERS_MAX {
            self.0.insert(sub.into());
        }
    }

    /// Whether this `sub` is among them, or could be.
    #[must_use]
    pub fn include(&self, sub: &str) -> bool {
        self.0.len() > PUBLISHERS_MAX || self.0.contains(sub)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An action, by its requests and the input of its call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Its last request. A runtime that asks again after it accepted an answer needs another one.
    pub asked: Sequence,
    #[serde(default)]
    pub state: QuestionState,
    /// As readers that see its call have it.
    #[serde(default)]
    pub whole: Version,
    /// As readers that only see its requests have it.
    #[serde(default)]
    pub request: Version,
    /// The first request since it was last closed.
    #[serde(default)]
    pub opened: Sequence,
    /// The last envelope that opened it, or made it another version.
    #[serde(default)]
    pub changed: Sequence,
    /// The hash of the last request.
    #[serde(default)]
    pub content: Box<str>,
    /// The call whose input it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCallId>,
    /// The approvals that its last request asks for; 0 if it does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approvals: u32,
    /// Who published its requests.
    #[serde(default, skip_serializing_if = "Publishers::is_empty")]
    pub publishers: Publishers,
    /// The hash of the call's input; `None` while the whole input is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
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
