//! The logs of one reader: named ones, or those of a session.

use crate::log::LogId;
use crate::log::commit::{Logs, Moves};
use crate::model::SessionId;
use std::sync::Arc;

/// The logs of a reader.
pub enum LogSet {
    /// The named logs.
    Named(Vec<LogId>),
    /// The current and future logs of a session.
    SessionLogs(SessionLogs),
}

/// The logs of a session: its runs and its own log; optionally also those of its descendants.
pub struct SessionLogs {
    logs: Arc<Logs>,
    session: SessionId,
    children: bool,
    moves: Arc<Moves>,
    /// Which of these sessions are included; `None`: all.
    takes: Option<SessionPredicate>,
}

/// Decides whether a reader may follow a session.
pub type SessionPredicate = Arc<dyn Fn(&SessionId) -> bool + Send + Sync>;

impl LogSet {
    /// The logs of `session`, which may not exist yet.
    ///
    /// With `children` the logs of its descendants are included. `takes` decides about each session; `None`: all are.
    #[must_use]
    pub fn of_session(logs: Arc<Logs>, session: SessionId, children: bool, takes: Option<SessionPredicate>) -> Self {
        let moves = logs.sessions().watch(&session);
        Self::SessionLogs(SessionLogs { logs, session, children, moves, takes })
    }

    /// The logs, now.
    pub(super) fn logs(&self) -> Vec<LogId> {
        let of = match self {
            Self::Named(logs) => return logs.clone(),
            Self::SessionLogs(of) => of,
        };
        let sessions = of.logs.sessions();
        let mut members = vec![of.session.clone()];
        if of.children {
            members.extend(sessions.children_of(&of.session));
        }
        // The session itself may have been erased and begun by others.
        if let Some(takes) = &of.takes {
            members.retain(|session| takes(session));
        }
        let mut logs = Vec::new();
        for session in &members {
            logs.extend(sessions.has_own_log(session).then(|| LogId::Session(session.clone())));
            logs.extend(sessions.runs_of(session).into_iter().map(LogId::Run));
        }
        logs
    }

    /// What tells the reader of this set that the set has changed.
    pub(super) fn moves(&self) -> Arc<Moves> {
        match self {
            Self::Named(_) => Arc::default(),
            Self::SessionLogs(of) => of.moves.clone(),
        }
    }

    /// The own log of the session whose logs they are.
    pub(super) fn session(&self) -> Option<LogId> {
        match self {
            Self::Named(_) => None,
            Self::SessionLogs(of) => Some(LogId::Session(of.session.clone())),
        }
    }

    /// A log that stands for all of them.
    pub(super) fn first(&self) -> LogId {
        match self {
            Self::Named(logs) => logs[0].clone(),
            Self::SessionLogs(of) => LogId::Session(of.session.clone()),
        }
    }
}
