//! A legal hold: what it says of a session or of an owner.
//!
//! A hold is an entry of the [server's own state](super::server_state). Its id is that of what it is on,
//! [`ErasureTarget::key`].

use super::erased::ErasureTarget;
use super::server_state::{self, StateRecord};
use crate::model::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A hold on a session, or on all that an owner has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldRecord {
    /// Why, as the person wrote it.
    pub reason: Box<str>,
    /// Who set it, and when: the members of `decidedBy`.
    pub by: Value,
}

impl StateRecord for HoldRecord {
    const TABLE: &'static str = "hold";
}

impl HoldRecord {
    /// The hold, with what it is on, for those who may see it.
    #[must_use]
    pub fn to_json(&self, on: &ErasureTarget) -> Value {
        let (member, id) = match on {
            ErasureTarget::Session(session) => ("sessionId", session.as_str()),
            ErasureTarget::Owner(owner) => ("ownerId", owner.as_str()),
        };
        json!({ member: id, "reason": self.reason, "by": self.by })
    }
}

/// The session of a hold, by the key of its state entry; `None` for any other entry.
#[must_use]
pub fn session_of(key: &[u8]) -> Option<SessionId> {
    match ErasureTarget::parse(server_state::id_of::<HoldRecord>(key)?)? {
        ErasureTarget::Session(session) => Some(session),
        ErasureTarget::Owner(_) => None,
    }
}
