//! Marks: how far each person has read a session, and which sessions a person pinned.
//!
//! ```text
//!   PUT …/marks ─▶ entry in the server's own log ─▶ table on every node ─▶ `unread` and `pinned` of that person's lists
//! ```
//! A person is the `sub` of a token. Of a person, and of all, the server keeps a limited number of marks. It drops those
//! that pin nothing first, then the least recently set ones.

use crate::environment::Environment;
use crate::ingest::Ingest;
use crate::log::StoreError;
use crate::log::commit::Logs;
use crate::log::marks::{SessionMark, id_of, is_on, prefix_of};
use crate::log::server_state::EntryChange;
use crate::model::{Sequence, SessionId};
use std::sync::Arc;

/// Marks of one `sub`.
pub const MARKS_PER_SUB_MAX: usize = 1024;
/// Marks of one server.
pub const MARKS_MAX: usize = 100_000;
/// Marks that the server drops at once at its limit, so that it sorts them rarely.
const DROPPED_AT_ONCE: usize = 1024;
/// Entries of one append.
const APPEND_ENTRIES_MAX: usize = 1024;

/// A change of a mark. `None`: it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkChange {
    pub read_to: Option<ReadTo>,
    pub pinned: Option<bool>,
}

/// How far a session was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTo {
    /// Up to here, or further if it was read further before.
    AtLeast(Sequence),
    /// Nothing of it.
    Nothing,
}

/// The marks of one server.
pub struct Marks {
    environment: Environment,
    logs: Arc<Logs>,
    ingest: Arc<Ingest>,
    /// Held from reading a mark until its change is committed: only the leader changes marks.
    changing: tokio::sync::Mutex<()>,
}

impl Marks {
    /// The marks that the logs of the server have.
    #[must_use]
    pub fn new(environment: Environment, logs: Arc<Logs>, ingest: Arc<Ingest>) -> Self {
        Self { environment, logs, ingest, changing: tokio::sync::Mutex::default() }
    }

    /// The mark of a `sub` on a session.
    #[must_use]
    pub fn of(&self, sub: &str, session: &SessionId) -> Option<SessionMark> {
        let created = self.logs.sessions().created_order(session)?;
        self.logs.server_state().get::<SessionMark>(&id_of(sub, session)).filter(|mark| created <= mark.newest)
    }

    /// Changes the mark of a `sub` on a session, durably. `None`: the session does not exist.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn change(&self, sub: &str, session: &SessionId, change: MarkChange) -> Result<Option<SessionMark>, StoreError> {
        let _changing = self.changing.lock().await;
        let Some((logs, _)) = self.logs.sessions().logs_of(session, 1) else { return Ok(None) };
        let before = self.of(sub, session);
        let mut mark = before.clone().unwrap_or_default();
        mark.newest = logs.iter().map(|(created, _)| *created).max().unwrap_or(0).max(mark.newest);
        mark.used_at = (self.environment.now)().as_millisecond();
        mark.pinned = change.pinned.or(mark.pinned);
        mark.read_to = match change.read_to {
            Some(ReadTo::AtLeast(at)) => mark.read_to.max(Some(at)),
            Some(ReadTo::Nothing) => Some(Sequence::NONE),
            None => mark.read_to,
        };
        let id = id_of(sub, session);
        let mut entries = self.surplus(sub, &id).await;
        entries.push(EntryChange::set(&id, &mark));
        self.ingest.append_to_server(&[], &entries).await?;
        Ok(Some(mark))
    }

    /// Removes all marks on a session, durably.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn forget(&self, session: &SessionId) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let (logs, session) = (self.logs.clone(), session.clone());
        let marked = self.logs.work(move |_| logs.server_state().ids::<SessionMark>(|id| is_on(id, &session))).await;
        for ids in marked.chunks(APPEND_ENTRIES_MAX) {
            let entries: Vec<_> = ids.iter().map(|id| EntryChange::remove::<SessionMark>(id)).collect();
            self.ingest.append_to_server(&[], &entries).await?;
        }
        Ok(())
    }

    /// The removals that make room for a mark.
    async fn surplus(&self, sub: &str, id: &str) -> Vec<EntryChange> {
        let state = self.logs.server_state();
        if state.get::<SessionMark>(id).is_some() {
            return Vec::new();
        }
        let own = prefix_of(sub);
        let (prefix, dropped) = match state.count::<SessionMark>(&own) {
            count if count >= MARKS_PER_SUB_MAX => (own, count + 1 - MARKS_PER_SUB_MAX),
            _ if state.length::<SessionMark>() >= MARKS_MAX => (String::new(), DROPPED_AT_ONCE),
            _ => return Vec::new(),
        };
        let logs = self.logs.clone();
        // At the server's limit this reads all marks.
        let mut marks = self.logs.work(move |_| logs.server_state().all::<SessionMark>(&prefix)).await;
        marks.sort_unstable_by_key(|(_, mark)| mark.drop_order());
        marks.iter().take(dropped).map(|(id, _)| EntryChange::remove::<SessionMark>(id)).collect()
    }
}
