//! Awaken's events, bare or wrapped: what each says alone.

mod canonical;

pub(super) use canonical::{Wrapper, hash_of};

use crate::members::{Need, known, name_unnamed, unmet};
use crate::{Fact, FactError};
use proscenium_model::Draft;
use serde::Deserialize;
use serde_json::Value;

/// The discriminator.
pub(super) const TYPE: &str = "event_type";

/// The event types of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    RunStart,
    RunFinish,
    StepStart,
    StepEnd,
    TextDelta,
    ReasoningDelta,
    ReasoningEncryptedValue,
    ToolCallStart,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStreamDelta,
    ToolCallDone,
    ToolCallResumed,
    ToolCallCancel,
    StreamReset,
    ActivitySnapshot,
    ActivityDelta,
    MessagesSnapshot,
    InferenceComplete,
    StateSnapshot,
    StateDelta,
    Error,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Id, Name, Text};
        match self {
            Self::TextDelta | Self::ReasoningDelta => &[("delta", Text)],
            Self::ToolCallStart | Self::ToolCallReady | Self::ToolCallDone | Self::ToolCallCancel => &[("id", Id)],
            Self::ToolCallDelta => &[("id", Id), ("args_delta", Text)],
            Self::ToolCallStreamDelta => &[("id", Id), ("delta", Text)],
            Self::ToolCallResumed => &[("target_id", Id)],
            Self::ActivitySnapshot | Self::ActivityDelta => &[("message_id", Id), ("activity_type", Name)],
            _ => &[],
        }
    }
}

/// A parsed fact.
pub(super) enum Event {
    Bare(Native),
    Wrapped(Box<Wrapper>, Native),
    /// A wrapper without a native event, as its diagnostic.
    Malformed(Box<Draft>),
}

/// An event of the runtime.
pub(super) struct Native {
    /// `Err`: the event stays whole, as this kind of diagnostic.
    pub kind: Result<Kind, Unread>,
    /// All members, with the event's type.
    pub members: Fact,
}

/// Why an event has no meaning for the run.
pub(super) enum Unread {
    UnknownType,
    /// The member that it lacks.
    Malformed(String),
}

impl Native {
    /// Parses an event whose type is text.
    fn parse(mut members: Fact) -> Self {
        let kind = match known::<Kind>(name_of_type(&members)) {
            None => Err(Unread::UnknownType),
            Some(kind) => unmet(&members, kind.needs()).map_or(Ok(kind), |expected| Err(Unread::Malformed(expected))),
        };
        for (member, _) in kind.iter().flat_map(|kind| kind.needs()).filter(|(_, need)| *need == Need::Id) {
            name_unnamed("awaken", &mut members, member);
        }
        Self { kind, members }
    }

    pub fn event_type(&self) -> &str {
        name_of_type(&self.members)
    }
}

/// Returns the event's type, without taking it.
fn name_of_type(members: &Fact) -> &str {
    members.get(TYPE).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn parse(fact: Fact) -> Result<Event, FactError> {
    match canonical::is_wrapped(&fact) {
        true => Ok(canonical::parse(fact)),
        false if name_of_type(&fact).is_empty() => Err(FactError::NoType { member: TYPE }),
        false => Ok(Event::Bare(Native::parse(fact))),
    }
}
