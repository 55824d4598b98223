//! Sources: how the server reads each runtime's vocabulary.
//!
//! Each runtime has one folder and one row in [`SOURCES`]. A runtime does two things with a fact:
//!
//! * [`Runtime::PARSE`] understands the fact alone. It is pure, runs outside any lock, and is the only step that refuses.
//! * [`Runtime::apply`] relates the parsed fact to those before it. It cannot fail: the same facts in the same order give
//!   the same drafts.
//!
//! The state between facts (open parts, pending actions) holds ids, counters and lengths, never bodies. The commit that
//! stores the resulting envelopes also stores the state. A runtime never refuses unknown input: an unknown event type
//! becomes `diagnostic.changed`, and the draft carries an unknown member.

#![warn(missing_docs)]

pub mod a2a;
pub mod acp;
pub mod ag_ui;
pub mod agent_ui;
pub mod ai_sdk;
pub mod awaken;
mod bounded;
pub mod claude_stream_json;
mod digest;
mod dry_run;
pub mod ethos;
pub mod langgraph;
pub mod ledger;
mod members;
pub mod openai_responses;
mod report;
#[cfg(test)]
mod samples;
mod turn;
pub mod turn_runner;

/// The runtime that the guide "Add a runtime" adds, to keep the guide true.
#[cfg(test)]
#[path = "../../../tests/runtime/mod.rs"]
mod relay;

pub use dry_run::DryRun;

use ledger::{CallProgress, Ledger};
use proscenium_model::halves::{self, Halves};
use proscenium_model::stored::{self, StoredError};
use proscenium_model::{ActionId, Audience, Draft, Ids, SessionId, ToolCallId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::Any;
use std::ops::{Deref, DerefMut};

/// A fact as received: one JSON object in its source's vocabulary.
pub type Fact = Map<String, Value>;

/// Why [`Runtime::PARSE`] refused a fact. It accepts all other input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// The fact is other JSON than an object.
    #[error("a fact must be a JSON object; this is {found}")]
    NotAnObject {
        /// The kind of JSON.
        found: &'static str,
    },
    /// The fact does not say what it is.
    #[error("the fact has no {member:?}: it must name its event type, as text")]
    NoType {
        /// The member that should say it.
        member: &'static str,
    },
    /// A member that the fact needs has another type.
    #[error("the fact's {member:?} is invalid: {expected}")]
    BadMember {
        /// The member.
        member: &'static str,
        /// What it should be, in words.
        expected: String,
    },
}

impl FactError {
    /// The name of the invalid member. `None`: the whole fact is invalid.
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

/// A function that parses a fact, and fails if the fact is invalid.
pub type Parser<E> = fn(Fact) -> Result<E, FactError>;

/// What one runtime's facts mean. The value is the state of one run between two facts.
pub trait Runtime: Clone + Default + Serialize + DeserializeOwned + Send + 'static {
    /// A parsed fact, with its unknown members.
    type Event: Send + 'static;

    /// Parses a fact, or refuses it. The run's state does not matter.
    const PARSE: Parser<Self::Event>;

    /// The number of the last fields of the state that the stored form lacks, as [`stored::save_extended`] needs it.
    const ADDED_FIELDS: usize = 0;

    /// Whether these fields have other values than their defaults.
    #[must_use]
    fn has_added(&self) -> bool {
        false
    }

    /// Parses the text of a fact without a map between. `None`: [`Runtime::PARSE`] decides.
    ///
    /// Only a runtime whose facts are the most frequent needs it.
    #[must_use]
    fn parse_text(_text: &[u8]) -> Option<Result<Self::Event, FactError>> {
        None
    }

    /// Applies a parsed fact: changes the state and appends the resulting drafts (possibly none) to `out`.
    ///
    /// `given` holds the ids of the request's query. They override the source's own ids, except where the fact is
    /// clearly about another agent (a child agent). What the log knows, `out` tells: the state need not repeat it.
    fn apply(&mut self, event: Self::Event, given: &Ids, out: Drafts<'_>);

    /// Returns the answers that a fact brings to actions of earlier runs.
    ///
    /// The log that asked may be a different one than the fact's log, so this function has no state.
    fn answers(_event: &Self::Event) -> Vec<ActionAnswer> {
        Vec::new()
    }
}

/// A fact that its source has parsed.
pub struct Event {
    parsed: Box<dyn Any + Send>,
    /// See [`Runtime::answers`].
    pub answers: Vec<ActionAnswer>,
    /// Whether the texts of the event's drafts may have marks of halves.
    pub halves: Halves,
}

impl Event {
    fn of<R: Runtime>(event: R::Event) -> Self {
        Self { answers: R::answers(&event), parsed: Box::new(event), halves: Halves::Absent }
    }

    /// Notes that the fact was parsed with marks of halves. Answers leave for other logs, so their marks are settled.
    #[must_use]
    pub fn with_halves(mut self, halves: Halves) -> Self {
        self.halves = halves;
        if halves == Halves::Marked {
            self.answers.iter_mut().filter_map(|answer| answer.value.as_mut()).for_each(halves::settle);
        }
        self
    }
}

/// The drafts of a fact, beside the ledger of the log that they go to.
///
/// The ledger records the drafts after the whole fact, so it knows the log up to the fact before.
pub struct Drafts<'a> {
    /// What the log remembers of earlier facts.
    pub ledger: &'a Ledger,
    /// Where the drafts of this fact go, in order.
    pub drafts: &'a mut Vec<Draft>,
}

impl Drafts<'_> {
    /// Whether the log has an envelope about the call, also one before its start.
    #[must_use]
    pub fn know_call(&self, id: &ToolCallId) -> bool {
        let is_about = |draft: &Draft| draft.ids.tool_call.as_ref() == Some(id) && draft.event_type.as_str().starts_with("tool.");
        self.call_audience(id).is_some() || self.drafts.iter().any(is_about)
    }

    /// Returns the audience of the newest call under this id. `None`: the log has none.
    #[must_use]
    pub fn call_audience(&self, id: &ToolCallId) -> Option<Audience> {
        self.ledger.call_audience(&self.ledger.newest_call(id))
    }

    /// Whether the log has the start or the end of the call.
    #[must_use]
    pub fn has_begun(&self, id: &ToolCallId) -> bool {
        self.progress_of(id) != CallProgress::default()
    }

    /// Whether the log has the start of the call. A result may come before it.
    #[must_use]
    pub fn has_started(&self, id: &ToolCallId) -> bool {
        self.progress_of(id).has_started
    }

    /// Whether the log has the end of the call, also where it came before the start.
    #[must_use]
    pub fn has_ended(&self, id: &ToolCallId) -> bool {
        self.progress_of(id).has_ended
    }

    /// The progress of the newest call under this id, with the drafts of the fact at hand.
    fn progress_of(&self, id: &ToolCallId) -> CallProgress {
        let drafts = self.drafts.iter().filter(|draft| draft.ids.tool_call.as_ref() == Some(id));
        drafts.fold(self.ledger.progress_of(id), |progress, draft| progress.after(&draft.event_type))
    }

    /// Sets the time of the drafts from this one on.
    fn set_time(&mut self, from: usize, timestamp: Option<&str>) {
        self.drafts[from..].iter_mut().for_each(|draft| draft.timestamp = timestamp.map(Into::into));
    }

    /// The number of the attempt that a start begins now.
    #[must_use]
    pub fn next_attempt(&self) -> u64 {
        u64::from(self.ledger.run.attempt) + 1
    }
}

impl Deref for Drafts<'_> {
    type Target = Vec<Draft>;
    fn deref(&self) -> &Vec<Draft> {
        self.drafts
    }
}

impl DerefMut for Drafts<'_> {
    fn deref_mut(&mut self) -> &mut Vec<Draft> {
        self.drafts
    }
}

/// The state of any runtime.
pub trait Adapter: Send {
    /// Applies a fact that the same source has parsed, as [`Runtime::apply`].
    fn apply_event(&mut self, event: Event, given: &Ids, out: Drafts<'_>);

    /// Copies the state, to try facts on it.
    fn copy(&self) -> Box<dyn Adapter>;

    /// Serialises the state for storage with the commit; [`SourceKind::restore`] reads it back.
    ///
    /// Equal state gives equal bytes, so the committer need not store unchanged state again.
    fn save(&self) -> Vec<u8>;

    /// Returns the state as JSON, for people.
    fn describe(&self) -> Value;
}

impl<R: Runtime> Adapter for R {
    fn apply_event(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let event = event.parsed.downcast().expect("the source of a delivery parses all its facts");
        self.apply(*event, given, out);
    }

    fn copy(&self) -> Box<dyn Adapter> {
        Box::new(self.clone())
    }

    fn save(&self) -> Vec<u8> {
        stored::save_extended(self, R::ADDED_FIELDS, self.has_added())
    }

    fn describe(&self) -> Value {
        serde_json::to_value(self).expect("state has only string keys")
    }
}

/// One source: its name on the wire, and what its runtime does with facts.
pub struct SourceKind {
    /// The `source` query member.
    pub name: &'static str,
    /// Parses a fact, as [`Runtime::PARSE`].
    pub parse: Parser<Event>,
    /// Parses a fact's text, as [`Runtime::parse_text`].
    pub parse_text: fn(&[u8]) -> Option<Result<Event, FactError>>,
    /// Returns the state at the beginning of a run.
    pub fresh: fn() -> Box<dyn Adapter>,
    /// Restores the state from the bytes that [`Adapter::save`] returned.
    /// Fails on any other bytes, but for those of earlier releases.
    pub restore: fn(&[u8]) -> Result<Box<dyn Adapter>, StoredError>,
}

impl SourceKind {
    /// The source of this runtime.
    #[must_use]
    pub const fn of<R: Runtime>(name: &'static str) -> Self {
        Self {
            name,
            parse: |fact| R::PARSE(fact).map(Event::of::<R>),
            parse_text: |text| Some(R::parse_text(text)?.map(Event::of::<R>)),
            fresh: || Box::new(R::default()),
            restore: |saved| Ok(Box::new(stored::restore_extended::<R>(saved, R::ADDED_FIELDS)?)),
        }
    }
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
pub static SOURCES: &[SourceKind] = &[
    agent_ui::SOURCE,
    awaken::SOURCE,
    ethos::SOURCE,
    turn_runner::SOURCE,
    ag_ui::SOURCE,
    ai_sdk::SOURCE,
    openai_responses::SOURCE,
    acp::SOURCE,
    claude_stream_json::SOURCE,
    a2a::SOURCE,
    langgraph::SOURCE,
    #[cfg(test)]
    relay::SOURCE,
];

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

#[cfg(test)]
mod tests;
