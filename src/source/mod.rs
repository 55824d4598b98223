//! Sources: each runtime's vocabulary, and its adapter into ours. One file a runtime, one row in [`SOURCES`].
//!
//! An adapter is a state machine over one run's facts: the same facts in the same order give the same drafts. Its memory
//! (open parts, pending actions) holds ids, counters and lengths, never bodies, and is saved in the commit of the envelopes
//! that it led to. An adapter never refuses what it does not know: an unknown event type becomes `diagnostic.changed`, an
//! unknown member is carried.

pub mod ag_ui;
pub mod agent_ui;
pub mod awaken;
pub mod ethos;
pub mod ledger;
mod members;
mod print;
mod report;
pub mod turn_runner;

use crate::model::{ActionId, Draft, Ids, SessionId};
use serde_json::{Map, Value};

/// A fact as it came: one JSON object in its source's vocabulary.
pub type Fact = Map<String, Value>;

/// Why a fact cannot be one. Everything else that a runtime may say is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    #[error("a fact is a JSON object, this is {found}")]
    NotAnObject { found: &'static str },
    #[error("the fact has no {member:?}: it must name its event type, as text")]
    NoType { member: &'static str },
    #[error("the fact's {member:?} cannot be taken: {expected}")]
    BadMember { member: &'static str, expected: String },
}

impl FactError {
    /// The member at fault, if one is.
    #[must_use]
    pub const fn member(&self) -> Option<&'static str> {
        match self {
            Self::NotAnObject { .. } => None,
            Self::NoType { member } | Self::BadMember { member, .. } => Some(member),
        }
    }

    /// What was expected in its place.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::NotAnObject { .. } => "an object".into(),
            Self::NoType { .. } => "the event type, as text".into(),
            Self::BadMember { expected, .. } => expected.clone(),
        }
    }
}

/// Turns one source's facts into drafts, remembering what it must between them.
pub trait Adapter: Send {
    /// Adapts one fact and appends what it becomes to `out` (possibly nothing). `given` are the ids of the request's query:
    /// they win over the source's own notion, except where the fact is plainly about somebody else (a child agent).
    ///
    /// # Errors
    /// [`FactError`] for what cannot be a fact. Then memory and `out` are as they were.
    fn adapt(&mut self, fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError>;

    /// The memory as text, as it is saved with the commit. [`SourceKind::restore`] takes it back. The same memory is the same
    /// text: what has not changed need not be saved again.
    fn save(&self) -> Vec<u8>;
}

/// One source: its name on the wire and how to make or restore its adapter.
pub struct SourceKind {
    /// The `source` query member.
    pub name: &'static str,
    /// An adapter at the beginning of a run.
    pub fresh: fn() -> Box<dyn Adapter>,
    /// An adapter as it was when `save` gave this; an error for what it did not save.
    pub restore: fn(&[u8]) -> serde_json::Result<Box<dyn Adapter>>,
    /// What a fact answers of that which runs before it have asked. It may be another log than the fact's that asked, which is
    /// why this is read off the fact alone. `None` for a source whose runs answer only themselves.
    pub answers: Option<fn(&Fact) -> Vec<Answer>>,
}

/// How something that a run asked was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What was asked.
    pub action: ActionId,
    /// The session in which it was asked, where the fact says so.
    pub session: Option<SessionId>,
    /// `approved`, `rejected`, `answered` or `cancelled`.
    pub outcome: &'static str,
    /// What was answered.
    pub value: Option<Value>,
}

/// Every source that is understood.
pub static SOURCES: &[SourceKind] = &[agent_ui::SOURCE, awaken::SOURCE, ethos::SOURCE, turn_runner::SOURCE, ag_ui::SOURCE];

/// The source of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static SourceKind> {
    SOURCES.iter().find(|source| source.name == name)
}

/// The name of a JSON value's kind, for messages.
#[must_use]
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// What the adapters' tests share.
#[cfg(test)]
mod samples {
    use super::{Fact, Ids, Value};
    use crate::model::RunId;

    pub(super) fn given() -> Ids {
        Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() }
    }

    pub(super) fn object(value: Value) -> Fact {
        let Value::Object(fact) = value else { panic!("{value} is no object") };
        fact
    }
}
