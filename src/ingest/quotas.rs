//! The quotas of an owner.

use crate::log::sessions::{OwnerUse, Sessions};
use crate::model::OwnerId;
use std::fmt;

/// The most that the logs of one owner may take. `None`: no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnerQuotas {
    pub sessions: Option<u64>,
    /// Bytes of envelopes and bodies, before compression.
    pub bytes: Option<u64>,
    /// Runs at work, and messages that wait for an agent.
    pub turns: Option<u64>,
}

/// A quota of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    Sessions,
    Bytes,
    Turns,
}

impl Quota {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Bytes => "bytes",
            Self::Turns => "turns",
        }
    }
}

/// An owner has used up a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct QuotaExceeded {
    pub quota: Quota,
    pub limit: u64,
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match self.quota {
            Quota::Sessions => write!(f, "the owner has {limit} sessions, its quota; erase some, or raise --owner-sessions-max"),
            Quota::Bytes => {
                write!(f, "the logs of the owner take {limit} bytes, its quota; erase some, or raise --owner-bytes-max")
            }
            Quota::Turns => write!(
                f,
                "{limit} turns of the owner are at work or wait for an agent, its quota; wait for one, or raise --owner-turns-max"
            ),
        }
    }
}

impl OwnerQuotas {
    /// Whether there is any.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.sessions.is_some() || self.bytes.is_some() || self.turns.is_some()
    }

    /// Fails if the owner has used up one of these quotas.
    ///
    /// # Errors
    /// [`QuotaExceeded`], for the first of them.
    pub fn check(&self, sessions: &Sessions, owner: Option<&OwnerId>, of: &[Quota]) -> Result<(), QuotaExceeded> {
        let Some(owner) = owner.filter(|_| self.is_any()) else { return Ok(()) };
        let OwnerUse { sessions, bytes, turns } = sessions.use_of(owner);
        let exceeded = of.iter().find_map(|quota| {
            let (used, limit) = match quota {
                Quota::Sessions => (sessions, self.sessions?),
                Quota::Bytes => (bytes, self.bytes?),
                Quota::Turns => (turns, self.turns?),
            };
            (used >= limit).then_some(QuotaExceeded { quota: *quota, limit })
        });
        exceeded.map_or(Ok(()), Err)
    }
}
