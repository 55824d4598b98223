//! What one person keeps of a session: how far it was read, and whether it is pinned.
//!
//! A mark is an entry of the [server's own state](super::server_state). Its id has the hash of the `sub` and the session.

use super::server_state::{self, StateRecord};
use crate::model::{Sequence, SessionId};
use serde::{Deserialize, Serialize};

/// The mark of one person on one session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionMark {
    /// The position in the order of commits up to which it was read, as cursors of sessions count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_to: Option<Sequence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// When it was last set, in milliseconds since 1970.
    pub used_at: i64,
    /// The newest log of the session then, by creation. A session that began later under the same id is another one.
    pub newest: u64,
}

impl StateRecord for SessionMark {
    const TABLE: &'static str = "mark";
}

impl SessionMark {
    /// Marks are dropped in this order: those that pin nothing first, then the least recently set.
    #[must_use]
    pub const fn drop_order(&self) -> (bool, i64) {
        (matches!(self.pinned, Some(true)), self.used_at)
    }
}

/// The prefix of the ids of a person's marks.
#[must_use]
pub fn prefix_of(sub: &str) -> String {
    server_state::hashed_prefix(sub)
}

/// The id of a person's mark on a session.
#[must_use]
pub fn id_of(sub: &str, session: &SessionId) -> String {
    prefix_of(sub) + session.as_str()
}

/// Whether the mark with this id is on this session.
#[must_use]
pub fn is_on(id: &str, session: &SessionId) -> bool {
    id.split_once(':').is_some_and(|(_, of)| of == session.as_str())
}

/// The session of a mark, by the key of its state entry; `None` for any other entry.
#[must_use]
pub fn session_of(key: &[u8]) -> Option<SessionId> {
    let (_, session) = server_state::id_of::<SessionMark>(key)?.split_once(':')?;
    SessionId::new(session).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::server_state::EntryChange;

    #[test]
    fn a_mark_has_the_session_in_its_key_and_no_sub() {
        let session: SessionId = "a:b".parse().unwrap();
        let id = id_of("ann@example.org", &session);
        let change = EntryChange::set(&id, &SessionMark::default());
        assert_eq!(session_of(&change.key), Some(session.clone()));
        assert!(is_on(&id, &session) && !is_on(&id, &"b".parse().unwrap()));
        assert!(id.starts_with(&prefix_of("ann@example.org")) && !id.contains("ann"));
        assert_eq!(session_of(b"server:link:a:b"), None);
    }
}
