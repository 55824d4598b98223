//! Awaken's events, bare or wrapped: what each says alone.

mod canonical;

pub(super) use canonical::{Wrapper, hash_of};

use crate::model::{ActionId, Draft};
use crate::source::members::{Need, invalid_id_error, known, unmet};
use crate::source::{Fact, FactError};
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
        use Need::{Name, Text};
        match self {
            Self::TextDelta | Self::ReasoningDelta => &[("delta", Text)],
            Self::ToolCallStart | Self::ToolCallReady | Self::ToolCallDone | Self::ToolCallCancel => &[("id", Name)],
            Self::ToolCallDelta => &[("id", Name), ("args_delta", Text)],
            Self::ToolCallStreamDelta => &[("id", Name), ("delta", Text)],
            Self::ToolCallResumed => &[("target_id", Name)],
            Self::ActivitySnapshot | Self::ActivityDelta => &[("message_id", Name), ("activity_type", Name)],
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
    ///
    /// # Errors
    /// For an id that no reader accepts. Awaken's own ids are always valid.
    fn parse(members: Fact) -> Result<Self, FactError> {
        let kind = match known::<Kind>(name_of_type(&members)) {
            None => Err(Unread::UnknownType),
            Some(kind) => unmet(&members, kind.needs()).map_or(Ok(kind), |expected| Err(Unread::Malformed(expected))),
        };
        let id = match kind {
            Ok(Kind::StepStart) => Some("message_id"),
            Ok(kind) => kind.needs().first().map(|(member, _)| *member).filter(|member| member.ends_with("id")),
            Err(_) => None,
        };
        if let Some(member) = id
            && let Some(id) = members.get(member).and_then(Value::as_str).filter(|id| !id.is_empty())
        {
            ActionId::new(id).map_err(|error| invalid_id_error(member, &error))?;
        }
        Ok(Self { kind, members })
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
        true => canonical::parse(fact),
        false if name_of_type(&fact).is_empty() => Err(FactError::NoType { member: TYPE }),
        false => Native::parse(fact).map(Event::Bare),
    }
}
