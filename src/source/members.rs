//! Members of a fact: adapters take the members that they read and carry all others.
//!
//! Taking a member removes it from the fact. A member with an unreadable value stays in the fact, and the draft carries
//! it with the rest. So no input of a producer is lost, and no carried member can pass for a member that the server
//! stamps.

use super::{Fact, FactError};
use crate::model::id::IdError;
use crate::model::{Draft, EventType, Ids};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The envelope's own members.
/// Only the server writes values under these names.
pub(super) const RESERVED: &[&str] = &[
    "type",
    "eventId",
    "sequence",
    "sourceSequence",
    "timestamp",
    "receivedAt",
    "owner",
    "scope",
    "phase",
    "surface",
    "persistence",
    "control",
    "topology",
    "audience",
    "startAudience",
    "payload",
    "refs",
    "rawEventRef",
];

/// Carries an unknown member in the draft.
///
/// A member that collides with one of the envelope's own gets the prefix `source`. If that name is taken too, the first
/// value stays (an export that is imported twice).
pub(super) fn carry(draft: &mut Draft, member: String, value: Value) {
    if RESERVED.contains(&member.as_str()) || Ids::MEMBERS.contains(&member.as_str()) {
        draft.extra.entry(source_prefixed(&member)).or_insert(value);
    } else {
        draft.extra.insert(member, value);
    }
}

/// Adds the prefix `source`: `eventId` → `sourceEventId`.
fn source_prefixed(member: &str) -> String {
    let mut letters = member.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).fold("source".to_owned(), |mut name, c| {
        name.push(c);
        name
    }) + letters.as_str()
}

/// Reports an invalid id to the producer.
pub(super) fn invalid_id_error(member: &'static str, error: &IdError) -> FactError {
    FactError::BadMember { member, expected: error.to_string() }
}

/// Converts RFC 3339 text, or milliseconds since 1970, to RFC 3339 text in UTC.
pub(super) fn parse_timestamp(value: &Value) -> Option<Box<str>> {
    let at = match value {
        Value::String(text) => text.parse::<Timestamp>().ok()?,
        Value::Number(number) => match number.as_i64() {
            Some(ms) => Timestamp::from_millisecond(ms).ok()?,
            // Microseconds: today's milliseconds as a float have no finer resolution.
            None => Timestamp::from_microsecond(number.as_f64().map(|ms| (ms * 1000.0).round() as i64)?).ok()?,
        },
        _ => return None,
    };
    Some(at.to_string().into())
}

/// Takes the fact's type out of `member`.
pub(super) fn take_type(fact: &mut Fact, member: &'static str) -> Result<String, FactError> {
    match fact.get(member) {
        Some(Value::String(text)) if !text.is_empty() => match fact.shift_remove(member) {
            Some(Value::String(text)) => Ok(text),
            _ => unreachable!("the match above found text"),
        },
        _ => Err(FactError::NoType { member }),
    }
}

/// Keeps a fact of an unknown type whole, as a diagnostic for the internal audience.
pub(super) fn unknown_type(name: &str, fact: Fact) -> Draft {
    Draft::new(EventType::DiagnosticChanged)
        .with("kind", "unknown_event_type")
        .with("eventType", name)
        .with("event", Value::Object(fact))
}

/// Keeps an event that the adapter cannot translate whole, as a diagnostic for the internal audience.
pub(super) fn diagnostic(kind: &str, event_type: &str, event: Fact) -> Draft {
    Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type).with("event", Value::Object(event))
}

/// Takes a member that is text.
/// A value of any other type stays in the map.
pub(super) fn take_text(map: &mut Map<String, Value>, member: &str) -> Option<String> {
    match map.get(member)? {
        Value::String(_) => match map.shift_remove(member) {
            Some(Value::String(text)) => Some(text),
            _ => unreachable!("the match above found text"),
        },
        _ => None,
    }
}

/// Takes a member that holds an id.
/// An invalid id stays in the map.
///
/// Many runtimes write `""` for a missing id; this function removes it.
pub(super) fn take_id<T: FromStr>(map: &mut Map<String, Value>, member: &str) -> Option<T> {
    let text = map.get(member)?.as_str()?;
    let id = text.parse().ok();
    if id.is_some() || text.is_empty() {
        map.shift_remove(member);
    }
    id
}

/// Takes an id that the event requires.
pub(super) fn take_required_id<T: FromStr<Err = IdError>>(fact: &mut Fact, member: &'static str) -> Result<T, FactError> {
    take_text(fact, member).unwrap_or_default().parse().map_err(|error| invalid_id_error(member, &error))
}

/// Carries every remaining member of the event in the draft.
pub(super) fn carry_all(mut draft: Draft, rest: Fact) -> Draft {
    for (member, value) in rest {
        carry(&mut draft, member, value);
    }
    draft
}

/// Members of a question for which sources use the protocol's own names.
#[rustfmt::skip]
const QUESTION_MEMBERS: &[&str] = &[
    "title", "message", "description", "risk", "scope", "policyScope", "plan", "versionId", "schema", "responseSchema", "options",
    "default", "expiresAt",
];

/// Moves a question's members from `own` to the draft.
/// A member that the draft already has stays in `own`.
pub(super) fn take_question(draft: &mut Draft, own: &mut Map<String, Value>) {
    for member in QUESTION_MEMBERS {
        if own.get(*member).is_some_and(|value| !value.is_null()) && !draft.payload.contains_key(*member) {
            draft.payload.extend(own.shift_remove(*member).map(|value| ((*member).to_owned(), value)));
        }
    }
    draft.ids.artifact = draft.ids.artifact.take().or_else(|| take_id(own, "artifactId"));
    draft.ids.evidence = draft.ids.evidence.take().or_else(|| take_id(own, "evidenceId"));
    if draft.refs.is_none() && own.get("refs").is_some_and(|refs| refs.is_array() || refs.is_object()) {
        draft.refs = own.shift_remove("refs");
    }
}
