//! Sources: the adapters that translate each runtime's vocabulary into ours.
//!
//! Each runtime has one module and one row in [`SOURCES`].
//!
//! An adapter is a state machine over the facts of one run: the same facts in the same order give the same drafts. Its
//! memory (open parts, pending actions) holds ids, counters and lengths, never bodies. The commit that stores the
//! resulting envelopes also stores the memory. An adapter never rejects unknown input: an unknown event type becomes
//! `diagnostic.changed`, and the draft carries an unknown member.

pub mod ag_ui;
pub mod agent_ui;
pub mod awaken;
mod digest;
pub mod ethos;
pub mod ledger;
mod members;
mod report;
pub mod turn_runner;

use crate::model::{ActionId, Draft, Ids, SessionId};
use serde_json::{Map, Value};

/// A fact as received: one JSON object in its source's vocabulary.
pub type Fact = Map<String, Value>;

/// Why an adapter rejected a fact.
/// Adapters accept all other input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    #[error("a fact must be a JSON object; this is {found}")]
    NotAnObject { found: &'static str },
    #[error("the fact has no {member:?}: it must name its event type, as text")]
    NoType { member: &'static str },
    #[error("the fact's {member:?} is invalid: {expected}")]
    BadMember { member: &'static str, expected: String },
}

impl FactError {
    /// The name of the invalid member.
    /// `None`: the whole fact is invalid.
    #[must_use]
    pub const fn member(&self) -> Option<&'static str> {
        match self {
            Self::NotAnObject { .. } => None,
            Self::NoType { member } | Self::BadMember { member, .. } => Some(member),
        }
    }

    /// Describes the expected value.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::NotAnObject { .. } => "an object".into(),
            Self::NoType { .. } => "the event type, as text".into(),
            Self::BadMember { expected, .. } => expected.clone(),
        }
    }
}

/// Translates the facts of one source into drafts and keeps the state needed between facts.
pub trait Adapter: Send {
    /// Adapts one fact and appends the resulting drafts (possibly none) to `out`.
    ///
    /// `given` holds the ids of the request's query. They override the source's own ids, except where the fact is
    /// clearly about another agent (a child agent).
    ///
    /// # Errors
    /// [`FactError`] if the fact is invalid. Memory and `out` are then unchanged.
    fn adapt(&mut self, fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError>;

    /// Serialises the memory for storage with the commit; [`SourceKind::restore`] reads it back.
    ///
    /// Equal memory gives equal bytes, so the committer need not store unchanged memory again.
    fn save(&self) -> Vec<u8>;
}

/// One source: its name on the wire, and how to create or restore its adapter.
pub struct SourceKind {
    /// The `source` query member.
    pub name: &'static str,
    /// Creates an adapter for the beginning of a run.
    pub fresh: fn() -> Box<dyn Adapter>,
    /// Restores an adapter from the bytes that [`Adapter::save`] returned.
    /// Fails on any other bytes.
    pub restore: fn(&[u8]) -> serde_json::Result<Box<dyn Adapter>>,
    /// Reads the answers that a fact brings to actions of earlier runs.
    ///
    /// The log that asked may be a different one than the fact's log, so this function reads the fact alone. `None`:
    /// runs of this source answer only their own actions.
    pub answers: Option<fn(&Fact) -> Vec<ActionAnswer>>,
}

/// The answer to an action that a run required.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionAnswer {
    /// The answered action.
    pub action: ActionId,
    /// The session that required the action, if the fact names one.
    pub session: Option<SessionId>,
    /// `approved`, `rejected`, `answered` or `cancelled`.
    pub outcome: &'static str,
    /// The answer's value.
    pub value: Option<Value>,
}

/// All supported sources.
pub static SOURCES: &[SourceKind] = &[agent_ui::SOURCE, awaken::SOURCE, ethos::SOURCE, turn_runner::SOURCE, ag_ui::SOURCE];

/// Returns the source with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static SourceKind> {
    SOURCES.iter().find(|source| source.name == name)
}

/// Names the type of a JSON value, for messages.
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

/// Helpers that the adapters' tests share.
#[cfg(test)]
mod samples {
    use super::{Fact, Ids, Value};
    use crate::model::RunId;

    pub(super) fn given() -> Ids {
        Ids { run: Some(RunId::new("run").unwrap()), ..Ids::default() }
    }

    pub(super) fn object(value: Value) -> Fact {
        let Value::Object(fact) = value else { panic!("{value} is not an object") };
        fact
    }
}
