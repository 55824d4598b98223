//! Whose sessions are.
//!
//! A session's owner is decided when it begins, and never changes. Every log of the session has it in its summary, so
//! erasing one log loses nothing. A run without a session may have an owner of its own.
//!
//! A session that begins is in no index until its first append is committed. Until then its writers hold a [`SessionClaim`], so
//! that two writers that begin it at once agree on its owner.

use super::{SessionTable, Sessions};
use crate::log::summary::Summary;
use crate::model::{OwnerId, SessionId, SessionOwner};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

/// What the logs of an owner take.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OwnerUse {
    pub sessions: u64,
    /// Bytes of envelopes and bodies, before compression.
    pub bytes: u64,
    /// Runs at work, and messages that wait for an agent.
    pub turns: u64,
}

/// What one log adds to the use of its owner.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct LogUse {
    bytes: u64,
    turns: u64,
}

impl LogUse {
    fn of(summary: &Summary) -> Self {
        let waiting = summary.controls.iter().filter(|control| control.asks_for_work()).count();
        Self { bytes: summary.extension.bytes, turns: waiting as u64 + u64::from(summary.run.can_go_stale()) }
    }
}

/// Whose a session is that exists or is about to begin. The session's writers share it.
pub type SessionClaim = Arc<Option<OwnerId>>;

/// The owners of one store.
#[derive(Default)]
pub(super) struct Owners {
    owned: BTreeMap<OwnerId, Owned>,
    /// Sessions that are about to begin.
    claims: HashMap<SessionId, Weak<Option<OwnerId>>>,
}

#[derive(Default)]
struct Owned {
    /// By their places in the order of creation.
    sessions: BTreeMap<u64, SessionId>,
    logs: u64,
    uses: LogUse,
}

impl Owners {
    /// The copy of an owner's name that all of its sessions share.
    pub fn known(&self, owner: &OwnerId) -> OwnerId {
        self.owned.get_key_value(owner).map_or(owner, |(known, _)| known).clone()
    }

    /// Moves a session of this owner from one place in the order of creation to another.
    pub fn move_session(&mut self, owner: &OwnerId, session: &SessionId, from: u64, to: Option<u64>) {
        let owned = self.owned.entry(owner.clone()).or_default();
        owned.sessions.remove(&from);
        owned.sessions.extend(to.map(|to| (to, session.clone())));
        self.drop_empty(owner);
    }

    /// Replaces what a log adds to the use of its owner. `None`: the log is new, or erased.
    pub fn replace_log(&mut self, before: Option<&Summary>, now: Option<&Summary>) {
        let owner_of = |summary: Option<&Summary>| summary.and_then(|summary| summary.extension.owner.clone());
        if let (Some(owner), Some(before)) = (owner_of(before), before.map(LogUse::of)) {
            let owned = self.owned.entry(owner.clone()).or_default();
            owned.logs = owned.logs.saturating_sub(1);
            owned.uses.bytes = owned.uses.bytes.saturating_sub(before.bytes);
            owned.uses.turns = owned.uses.turns.saturating_sub(before.turns);
            self.drop_empty(&owner);
        }
        if let (Some(owner), Some(now)) = (owner_of(now), now.map(LogUse::of)) {
            let owned = self.owned.entry(owner).or_default();
            owned.logs += 1;
            owned.uses.bytes += now.bytes;
            owned.uses.turns += now.turns;
        }
    }

    fn drop_empty(&mut self, owner: &OwnerId) {
        if self.owned.get(owner).is_some_and(|owned| owned.logs == 0 && owned.sessions.is_empty()) {
            self.owned.remove(owner);
        }
    }

    /// Forgets the claims that no writer holds.
    pub fn sweep(&mut self) {
        self.claims.retain(|_, claim| claim.strong_count() > 0);
    }
}

impl Sessions {
    /// Calls `with` with the owner of a session.
    pub fn with_owner<T>(&self, session: &SessionId, with: impl FnOnce(SessionOwner<'_>) -> T) -> T {
        let inner = self.inner.read();
        let known = inner.sessions.get(session);
        with(known.map_or(SessionOwner::Absent, |known| SessionOwner::of(known.owner.as_ref())))
    }

    /// The owner of a session, if it exists and has one.
    #[must_use]
    pub fn owner_of(&self, session: &SessionId) -> Option<OwnerId> {
        self.inner.read().sessions.get(session).and_then(|known| known.owner.clone())
    }

    /// The owner of a session that a writer joins. If the session does not exist, it begins, and `owner` is its owner,
    /// unless another writer has begun it with another one.
    pub fn claim(&self, session: &SessionId, owner: Option<&OwnerId>) -> SessionClaim {
        let mut inner = self.inner.write();
        let SessionTable { sessions, owners, .. } = &mut *inner;
        if let Some(known) = sessions.get(session) {
            return Arc::new(known.owner.clone());
        }
        let claimed = owners.claims.entry(session.clone()).or_default();
        claimed.upgrade().unwrap_or_else(|| {
            let claim = Arc::new(owner.cloned());
            *claimed = Arc::downgrade(&claim);
            claim
        })
    }

    /// What the logs of an owner take.
    #[must_use]
    pub fn use_of(&self, owner: &OwnerId) -> OwnerUse {
        self.inner.read().owners.owned.get(owner).map_or_else(OwnerUse::default, Owned::total)
    }

    /// What the logs of up to `limit` owners take, by their names.
    #[must_use]
    pub fn uses(&self, limit: usize) -> Vec<(OwnerId, OwnerUse)> {
        let inner = self.inner.read();
        inner.owners.owned.iter().take(limit).map(|(owner, owned)| (owner.clone(), owned.total())).collect()
    }

    /// Up to `limit` sessions of an owner created before `before`, newest first, each with its creation order.
    #[must_use]
    pub fn list_of(&self, owner: &OwnerId, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
        let inner = self.inner.read();
        let Some(owned) = inner.owners.owned.get(owner) else { return Vec::new() };
        let older = owned.sessions.range(..before.unwrap_or(u64::MAX)).rev().take(limit);
        older.map(|(place, session)| (*place, session.clone())).collect()
    }

    /// Up to `limit` sessions of an owner after a place in the order of creation, oldest first, each with its place.
    #[must_use]
    pub fn owned_after(&self, owner: &OwnerId, after: u64, limit: usize) -> Vec<(u64, SessionId)> {
        let inner = self.inner.read();
        let Some(owned) = inner.owners.owned.get(owner) else { return Vec::new() };
        let newer = owned.sessions.range(after.saturating_add(1)..).take(limit);
        newer.map(|(place, session)| (*place, session.clone())).collect()
    }

    /// The sessions whose ids begin with this text.
    #[must_use]
    pub fn beginning_with(&self, prefix: &str) -> Vec<SessionId> {
        let Ok(first) = SessionId::new(prefix) else { return Vec::new() };
        let inner = self.inner.read();
        let sessions = inner.sessions.range(first..).map(|(session, _)| session);
        sessions.take_while(|session| session.as_str().starts_with(prefix)).cloned().collect()
    }
}

impl Owned {
    fn total(&self) -> OwnerUse {
        OwnerUse { sessions: self.sessions.len() as u64, bytes: self.uses.bytes, turns: self.uses.turns }
    }
}
