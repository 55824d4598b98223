//! The client, activities and runs, as the parts of the dialect name them.

use crate::frames::ActivityView;
use proscenium_projection::members::TypedContent;
use proscenium_projection::run;
use proscenium_sources::ledger::Status;
use serde_json::{Map, Value};

/// What the connected client can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcpOptions {
    /// It shows forms (`elicitation.form`).
    pub form: bool,
    /// It opens addresses (`elicitation.url`).
    pub url: bool,
    /// Its token may decide.
    pub decides: bool,
}

/// An activity of a session: its run (empty: the session's own log), type and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The run; empty for the session's own log.
    pub run: Box<str>,
    /// The activity type.
    pub kind: Box<str>,
    /// The activity id.
    pub id: Box<str>,
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnState {
    /// The run.
    pub run: Box<str>,
    /// Its status.
    pub status: Status,
    /// The number of its attempt.
    pub attempt: u64,
    /// Why it ended, in its source's word.
    pub reason: Option<Box<str>>,
    /// Why it failed, for people.
    pub error: Option<Box<str>>,
}

impl TurnState {
    /// The state of a run by its activity.
    pub(super) fn of(run: &str, content: &Map<String, Value>) -> Self {
        let text = |member: &str| content.get(member).and_then(Value::as_str).map(Into::into);
        Self {
            run: run.into(),
            status: content.read(run::STATUS).unwrap_or(Status::Unknown),
            attempt: content.get("attempt").and_then(Value::as_u64).unwrap_or(0),
            reason: text("reason"),
            error: content.get("error").and_then(|error| error.get("message")?.as_str()).map(Into::into),
        }
    }
}

impl Key {
    /// The key of an activity.
    #[must_use]
    pub fn of(run: Option<&str>, kind: &str, id: &str) -> Self {
        Self { run: run.unwrap_or_default().into(), kind: kind.into(), id: id.into() }
    }

    pub(super) fn of_view(activity: &ActivityView) -> Self {
        Self::of(activity.run.as_deref(), &activity.kind, &activity.id)
    }
}
