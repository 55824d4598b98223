//! Whose a log is: decided with its first append, or when a run joins its session.

use super::Core;
use super::delivery::{BeginOwner, WriteScope, WriteTarget};
use super::quotas::Quota;
use super::receipt::{IngestError, OutOfScope};
use super::writer::LogWriter;
use crate::log::LogId;
use crate::log::sessions::{SessionClaim, Sessions};
use crate::model::{SessionId, SessionOwner};

impl LogWriter {
    /// Claims a session that the log joins or begins, and checks that the caller may.
    ///
    /// The writer holds the claim, so that the session has this owner when it appears.
    ///
    /// # Errors
    /// `RunOutOfScope` for a session of others, `OtherOwner` and `Quota`.
    pub fn claim_session(
        &mut self,
        core: &Core,
        session: &SessionId,
        parent: Option<&SessionId>,
        begin: &BeginOwner,
        scope: Option<&WriteScope>,
    ) -> Result<(), IngestError> {
        let sessions = core.logs.sessions();
        let is_new = sessions.with_owner(session, |owner| owner == SessionOwner::Absent);
        let claim = self.claim(sessions, session, parent, begin);
        let owner = SessionOwner::of(claim.as_ref().as_ref());
        if !scope.is_none_or(|scope| scope.allows(WriteTarget::Session(session, owner))) {
            return Err(IngestError::RunOutOfScope(OutOfScope::Session(session.clone())));
        }
        if begin.is_requested && *claim != begin.owner {
            return Err(IngestError::OtherOwner(session.clone()));
        }
        if is_new {
            core.quotas.check(sessions, claim.as_ref().as_ref(), &[Quota::Sessions])?;
        }
        self.claim = Some((session.clone(), claim));
        Ok(())
    }

    /// The owner of a session that the log joins or begins: the parent's, the run's own, or the caller's.
    fn claim(&self, sessions: &Sessions, session: &SessionId, parent: Option<&SessionId>, begin: &BeginOwner) -> SessionClaim {
        if let Some((_, claim)) = self.claim.as_ref().filter(|(claimed, _)| claimed == session) {
            return claim.clone();
        }
        let inherited = parent.filter(|parent| *parent != session).and_then(|parent| sessions.owner_of(parent));
        let owner = inherited.or_else(|| self.summary.extension.owner.clone()).or_else(|| begin.owner.clone());
        sessions.claim(session, owner.as_ref())
    }

    /// Whether the log's owner is not decided: it was never written, or its run has no session yet.
    pub const fn awaits_owner(&self) -> bool {
        !self.is_written || matches!(self.id, LogId::Run(_)) && self.summary.session_id.is_none()
    }

    /// Decides the log's owner after its first envelopes, or after its run has joined a session.
    pub fn settle_owner(&mut self, sessions: &Sessions, begin: &BeginOwner) {
        let session = match &self.id {
            LogId::Session(session) => Some(session),
            LogId::Run(_) => self.summary.session_id.as_ref(),
        };
        self.summary.extension.owner = match session.cloned() {
            Some(session) => {
                if sessions.created_order(&session).is_none() {
                    self.summary.extension.created_by.clone_from(&begin.created_by);
                }
                let claim = self.claim(sessions, &session, self.summary.parent_session_id.as_ref(), begin);
                let owner = claim.as_ref().clone();
                self.claim = Some((session, claim));
                owner
            }
            None => self.summary.extension.owner.clone().or_else(|| begin.owner.clone()),
        };
    }
}
