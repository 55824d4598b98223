//! Erasures of sessions and owners: those under way, and what was erased within the last day.
//!
//! ```text
//!     rule ─▶ ErasureRecord + ErasedRecord (one commit: refused) ─▶ nothing came? ─▶ audit ───────┐
//!   DELETE ─▶ ErasureRecord + audit ─▶ runs stopped ─▶ ErasedRecord ─▶ logs erased, a batch at a time ─▶ both swept
//!             (one commit: it completes)               (one commit: refused)         ◀──────────┘
//! ```
//! Both kinds of record are state of the server, so each node has them, and the next leader goes on where one ended.
//!
//! The committer refuses what comes after an [`ErasedRecord`] in the order of commits ([`ErasedLogs::refuses`]). So once
//! the record is committed, the index of sessions has every log that the erasure must find.

pub use super::erased_logs::{ERASED_IDS_MAX, ERASED_TIME, ErasedLogs, ErasedRecord};

use super::server_state::{ServerState, StateRecord};
use crate::model::{OwnerId, SessionId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far the erasure of a session or of an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErasureStage {
    /// A rule is about to erase it: it accepts nothing until the server knows that nothing came to it meanwhile.
    Confirming,
    /// Its runs at work get an interrupt, and may end by themselves.
    Stopping,
    /// It accepts nothing, and its logs are erased.
    Erasing,
}

/// An erasure under way. Its id is [`ErasureTarget::key`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureRecord {
    pub stage: ErasureStage,
    /// Of an owner: the number of logs that existed when it began. What begins later stays.
    #[serde(default)]
    pub created: u64,
}

impl StateRecord for ErasureRecord {
    const TABLE: &'static str = "erasure";
}

impl StateRecord for ErasedRecord {
    const TABLE: &'static str = Self::TABLE;
}

/// What an erasure of several logs is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ErasureTarget {
    Session(SessionId),
    Owner(OwnerId),
}

impl ErasureTarget {
    /// The id of its record.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Session(session) => format!("s:{session}"),
            Self::Owner(owner) => format!("o:{owner}"),
        }
    }

    /// Whether its erasure is under way.
    #[must_use]
    pub fn is_being_erased(&self, state: &ServerState) -> bool {
        state.get::<ErasureRecord>(&self.key()).is_some()
    }

    /// The target of a record's id.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        match key.split_once(':')? {
            ("s", session) => session.parse().ok().map(Self::Session),
            ("o", owner) => owner.parse().ok().map(Self::Owner),
            _ => None,
        }
    }
}

impl fmt::Display for ErasureTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Owner(owner) => write!(f, "owner {owner}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_were_written() {
        for target in [ErasureTarget::Session("s:t".parse().unwrap()), ErasureTarget::Owner("acme".parse().unwrap())] {
            assert_eq!(ErasureTarget::parse(&target.key()), Some(target));
        }
        assert_eq!(ErasureTarget::parse("s"), None);
    }
}
