//! Which log: of a run, or of a session.

use super::{RunId, SessionId};
use std::fmt;

/// The identity of a log: the log of a run, or a session's own log for facts that belong to no run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogId {
    /// The log of a run.
    Run(RunId),
    /// The own log of a session.
    Session(SessionId),
}

impl LogId {
    /// The server's own log: what it keeps beside sessions and runs. It is in no list, and no request can name it.
    ///
    /// It is stored as a session's own log, so that a node of an earlier version in the same cluster can store it, too.
    #[must_use]
    pub fn of_server() -> Self {
        Self::Session(SessionId::of_server())
    }

    /// Whether this is [`Self::of_server`].
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        matches!(self, Self::Session(session) if session.is_of_server())
    }

    /// The run, if it is the log of one.
    #[must_use]
    pub const fn run(&self) -> Option<&RunId> {
        match self {
            Self::Run(run) => Some(run),
            Self::Session(_) => None,
        }
    }

    /// The kind of the log.
    #[must_use]
    pub const fn kind(&self) -> LogKind {
        match self {
            Self::Run(_) => LogKind::Run,
            Self::Session(_) => LogKind::Session,
        }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(id) => write!(f, "run {id}"),
            Self::Session(id) => write!(f, "session {id}"),
        }
    }
}

/// The kind of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// A run's log.
    Run,
    /// A session's log.
    Session,
}
