//! Legal holds: what is kept until a person lifts the hold, against rules and against requests to erase.
//!
//! ```text
//!   PUT …/hold ─▶ entry in the server's own log + audit ─▶ table on every node ─▶ each erasure and compaction asks
//! ```
//! A hold on a session covers the sessions below it, too: its children and its branches. A hold on an owner covers all that
//! the owner has and will have.

use crate::audit::{AuditEntry, Deed};
use crate::environment::Environment;
use crate::ingest::Ingest;
use crate::log::commit::Logs;
use crate::log::erased::ErasureTarget;
pub use crate::log::holds::HoldRecord;
use crate::log::server_state::EntryChange;
use crate::log::sessions::ANCESTORS_MAX;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{DecidedBy, Decider};
use crate::model::{OwnerId, SessionId};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// Holds of one server.
pub const HOLDS_MAX: usize = 10_000;
/// The longest reason of a hold, in characters.
pub const HOLD_REASON_CHARS_MAX: usize = 1000;

/// Why a hold is not set.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error("session {0} does not exist")]
    NoSuchSession(SessionId),
    /// The erasure has begun, and nothing stops it.
    #[error("{0} is being erased")]
    BeingErased(String),
    #[error("the server has {0} holds, its limit; lift some")]
    TooMany(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that a hold keeps, and what the hold is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub what: ErasureTarget,
    pub on: ErasureTarget,
}

/// The holds of one server.
pub struct Holds {
    environment: Environment,
    logs: Arc<Logs>,
    ingest: Arc<Ingest>,
    gate: Mutex<()>,
}

impl Holds {
    /// The holds that the logs of the server have.
    #[must_use]
    pub fn new(environment: Environment, logs: Arc<Logs>, ingest: Arc<Ingest>) -> Self {
        Self { environment, logs, ingest, gate: Mutex::default() }
    }

    /// Held from looking for holds until an erasure has begun, and from looking for erasures until a hold is set. Only
    /// the leader does either.
    pub async fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().await
    }

    /// The same, unless another task has it.
    #[must_use]
    pub fn try_gate(&self) -> Option<MutexGuard<'_, ()>> {
        self.gate.try_lock().ok()
    }

    /// Sets a hold, durably and with its audit. It replaces the one that is there.
    ///
    /// # Errors
    /// [`HoldError`]; then nothing has changed.
    pub async fn set(&self, on: &ErasureTarget, reason: &str, by: Decider) -> Result<HoldRecord, HoldError> {
        let _gate = self.gate().await;
        let (state, sessions) = (self.logs.server_state(), self.logs.sessions());
        let owner = match on {
            ErasureTarget::Session(session) if sessions.created_order(session).is_none() => {
                return Err(HoldError::NoSuchSession(session.clone()));
            }
            ErasureTarget::Session(session) => sessions.owner_of(session).map(ErasureTarget::Owner),
            ErasureTarget::Owner(_) => None,
        };
        if let Some(target) = std::iter::once(on).chain(&owner).find(|target| target.is_being_erased(state)) {
            return Err(HoldError::BeingErased(target.to_string()));
        }
        if self.get(on).is_none() && state.length::<HoldRecord>() >= HOLDS_MAX {
            return Err(HoldError::TooMany(HOLDS_MAX));
        }
        let now = (self.environment.now)();
        let decided_by = DecidedBy { decider: by.clone(), at: format!("{now:.3}").into(), seen: None };
        let hold = HoldRecord { reason: reason.into(), by: decided_by.to_value() };
        let audit = audited(Deed::HoldSet, by, now, on).with_reason(reason);
        self.ingest.append_to_server(&[audit.draft()], &[EntryChange::set(&on.key(), &hold)]).await?;
        Ok(hold)
    }

    /// Lifts a hold, durably and with its audit. `false`: there is none.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn lift(&self, on: &ErasureTarget, by: Decider) -> Result<bool, StoreError> {
        let _gate = self.gate().await;
        if self.get(on).is_none() {
            return Ok(false);
        }
        let audit = audited(Deed::HoldLifted, by, (self.environment.now)(), on);
        self.ingest.append_to_server(&[audit.draft()], &[EntryChange::remove::<HoldRecord>(&on.key())]).await?;
        Ok(true)
    }

    /// The hold on exactly this.
    #[must_use]
    pub fn get(&self, on: &ErasureTarget) -> Option<HoldRecord> {
        if self.is_empty() { None } else { self.logs.server_state().get(&on.key()) }
    }

    /// All holds, by what they are on.
    #[must_use]
    pub fn all(&self) -> Vec<(ErasureTarget, HoldRecord)> {
        let all = self.logs.server_state().all::<HoldRecord>("").into_iter();
        all.filter_map(|(key, hold)| Some((ErasureTarget::parse(&key)?, hold))).collect()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.logs.server_state().length::<HoldRecord>() == 0
    }

    /// What the hold is on that covers a session: the session, one above it, or its owner.
    #[must_use]
    pub fn covering(&self, session: &SessionId) -> Option<ErasureTarget> {
        if self.is_empty() {
            return None;
        }
        let sessions = self.logs.sessions();
        let (mut at, mut seen) = (vec![session.clone()], HashSet::new());
        while let Some(session) = at.pop() {
            let owner = sessions.owner_of(&session).map(ErasureTarget::Owner);
            let found = std::iter::once(ErasureTarget::Session(session.clone())).chain(owner).find(|on| self.get(on).is_some());
            if found.is_some() {
                return found;
            }
            if seen.len() < ANCESTORS_MAX {
                let above = sessions.parent_of(&session).into_iter();
                let above = above.chain(sessions.origin_of(&session).map(|origin| origin.parent.session_id));
                at.extend(above.filter(|above| !seen.contains(above)));
            }
            seen.insert(session);
        }
        None
    }

    /// What the hold is on that covers a run of this session, or, without a session, of this owner.
    #[must_use]
    pub fn covering_run(&self, session: Option<&SessionId>, owner: Option<&OwnerId>) -> Option<ErasureTarget> {
        match session {
            Some(session) => self.covering(session),
            None => owner.cloned().map(ErasureTarget::Owner).filter(|on| self.get(on).is_some()),
        }
    }

    /// Those of these targets that a hold keeps. An owner is kept by a hold on one of its sessions, too.
    #[must_use]
    pub fn among(&self, targets: &[ErasureTarget]) -> Vec<Held> {
        if self.is_empty() {
            return Vec::new();
        }
        let on_one_of = |owner: &OwnerId| {
            let of_owner = |on: &ErasureTarget| match on {
                ErasureTarget::Session(session) => self.logs.sessions().owner_of(session).as_ref() == Some(owner),
                ErasureTarget::Owner(held) => held == owner,
            };
            self.all().into_iter().map(|(on, _)| on).find(of_owner)
        };
        let held = |what: &ErasureTarget| {
            let on = match what {
                ErasureTarget::Session(session) => self.covering(session),
                ErasureTarget::Owner(owner) => on_one_of(owner),
            };
            Some(Held { what: what.clone(), on: on? })
        };
        targets.iter().filter_map(held).collect()
    }
}

fn audited(what: Deed, by: Decider, now: jiff::Timestamp, on: &ErasureTarget) -> AuditEntry {
    let entry = AuditEntry::new(what, by, now);
    match on {
        ErasureTarget::Session(session) => entry.about(&LogId::Session(session.clone())),
        ErasureTarget::Owner(owner) => entry.with_id(owner.as_str()),
    }
}
