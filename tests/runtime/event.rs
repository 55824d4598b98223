//! The events of Relay: what a fact means without the facts before it.

use crate::members::{Need, known, malformed, take_type, unknown_type, unmet};
use crate::{Fact, FactError};
use proscenium_model::Draft;
use serde::Deserialize;

/// The event types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Begin,
    Say,
    Call,
    Returned,
    End,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        match self {
            Self::Say => &[("text", Need::Text)],
            Self::Call => &[("id", Need::Id), ("tool", Need::Name)],
            Self::Returned => &[("id", Need::Id)],
            Self::Begin | Self::End => &[],
        }
    }
}

/// A parsed fact.
pub(super) enum Event {
    /// An event of a known type, with all its members but the type.
    Known(Kind, Fact),
    /// An event of another type, or one that lacks a member. It stays whole, for internal readers.
    Diagnostic(Box<Draft>),
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let name = take_type(&mut fact, "kind")?;
    let Some(kind) = known::<Kind>(&name) else { return Ok(Event::Diagnostic(unknown_type(&name, fact).into())) };
    Ok(match unmet(&fact, kind.needs()) {
        Some(expected) => Event::Diagnostic(malformed(&name, fact, &expected).into()),
        None => Event::Known(kind, fact),
    })
}
