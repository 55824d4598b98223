//! The events of ADK's two buses: what each says alone.

use crate::members::{known, malformed, name_unnamed, take_type, unknown_type};
use crate::{Fact, FactError};
use proscenium_model::Draft;
use serde::Deserialize;
use serde_json::Value;

/// The discriminator, beside `bus`.
const EVENT: &str = "event";

/// The events of both buses: first those of the functional one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Message,
    Thought,
    ToolCall,

    TurnStart,
    TurnEnd,
    DispatchStart,
    DispatchEnd,
    IterationStart,
    IterationEnd,
    ToolExecutionStart,
    ToolExecutionEnd,
    TurnGateOpen,
    TurnGateClosed,
    Log,
    Warning,
    Error,
}

impl Kind {
    /// Whether the bus has this event. Without a bus the name alone decides: event names are unique.
    fn is_on(self, bus: Option<&Value>) -> bool {
        let is_functional = matches!(self, Self::Message | Self::Thought | Self::ToolCall);
        match bus {
            None | Some(Value::Null) => true,
            Some(bus) => bus == if is_functional { "functional" } else { "observability" },
        }
    }

    /// Describes a required member that the event lacks.
    fn missing_member(self, fact: &Fact) -> Option<&'static str> {
        let said = |member: &str| fact.get("payload").and_then(|payload| payload.get(member));
        let names = |member: &str| said(member).and_then(Value::as_str).is_some();
        let is_text = |member: &str| said(member).is_some_and(Value::is_string);
        match self {
            Self::Message | Self::Thought | Self::ToolCall | Self::TurnGateOpen if !names("id") => Some("id as text"),
            Self::TurnGateClosed if !names("gateId") => Some("gateId as text"),
            Self::Message | Self::Thought
                if !is_text("aDelta") && !is_text("full") && said("isComplete") != Some(&Value::Bool(true)) =>
            {
                Some("aDelta or full as text, or isComplete")
            }
            _ => None,
        }
    }
}

/// A parsed fact.
pub(super) enum Event {
    Known {
        kind: Kind,
        name: String,
        /// Of any type for an error; an object otherwise.
        payload: Value,
        /// The members around the payload.
        rest: Fact,
    },
    /// An event without a meaning for the turn, as its diagnostic.
    Diagnostic(Box<Draft>),
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let name = take_type(&mut fact, EVENT)?;
    let Some(kind) = known::<Kind>(&name).filter(|kind| kind.is_on(fact.get("bus"))) else {
        return Ok(Event::Diagnostic(unknown_type(&name, fact).into()));
    };
    if let Some(expected) = kind.missing_member(&fact) {
        return Ok(Event::Diagnostic(malformed(&name, fact, expected).into()));
    }
    fact.shift_remove("bus");
    let payload = match fact.shift_remove("payload") {
        // JavaScript can throw a value of any type.
        payload if kind == Kind::Error => payload.unwrap_or_default(),
        Some(Value::Object(mut payload)) => {
            for id in ["id", "gateId"] {
                name_unnamed("turnrunner", &mut payload, id);
            }
            payload.into()
        }
        Some(Value::Null) | None => Fact::new().into(),
        Some(other) => {
            fact.insert("payload".into(), other);
            Fact::new().into()
        }
    };
    Ok(Event::Known { kind, name, payload, rest: fact })
}
