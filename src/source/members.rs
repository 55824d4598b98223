//! A fact's members: how adapters take what they read, and carry what they do not.
//!
//! What is taken stands nowhere else afterwards; what cannot be read under its name stays where it is and is carried with the
//! rest. So nothing that a producer said is lost, and nothing of it can pass for what the server vouches for.

use super::{Fact, FactError};
use crate::model::id::IdError;
use crate::model::{Draft, EventType, Ids};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The envelope's own members. Under these names stands only what the server vouches for.
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

/// Carries a member that nobody here knows. One that would stand in the place of an envelope's own goes under its name with
/// `source` before it; where that is taken, what came first under it stays (an export that is imported twice).
pub(super) fn carry(draft: &mut Draft, member: String, value: Value) {
    if RESERVED.contains(&member.as_str()) || Ids::MEMBERS.contains(&member.as_str()) {
        draft.extra.entry(sourced(&member)).or_insert(value);
    } else {
        draft.extra.insert(member, value);
    }
}

/// `eventId` → `sourceEventId`.
fn sourced(member: &str) -> String {
    let mut letters = member.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).fold("source".to_owned(), |mut name, c| {
        name.push(c);
        name
    }) + letters.as_str()
}

/// What is wrong with an id, as the producer is told it.
pub(super) fn bad_id(member: &'static str, error: &IdError) -> FactError {
    FactError::BadMember { member, expected: error.to_string() }
}

/// A point in time as RFC 3339 in UTC: from such text, or from milliseconds since 1970.
pub(super) fn instant(value: &Value) -> Option<Box<str>> {
    let at = match value {
        Value::String(text) => text.parse::<Timestamp>().ok()?,
        Value::Number(number) => match number.as_i64() {
            Some(ms) => Timestamp::from_millisecond(ms).ok()?,
            // Microseconds: a float of today's milliseconds is exact to no more.
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
            _ => unreachable!("just seen to be text"),
        },
        _ => Err(FactError::NoType { member }),
    }
}

/// A fact of a type that this adapter does not know: kept whole, for internal eyes.
pub(super) fn unknown_type(name: &str, fact: Fact) -> Draft {
    Draft::new(EventType::DiagnosticChanged)
        .with("kind", "unknown_event_type")
        .with("eventType", name)
        .with("event", Value::Object(fact))
}

/// What is kept of an event that cannot be told as what it says it is: all of it, for internal eyes.
pub(super) fn diagnostic(kind: &str, event_type: &str, event: Fact) -> Draft {
    Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type).with("event", Value::Object(event))
}

/// Takes a member that is text; of any other kind it stays and is carried.
pub(super) fn take_text(map: &mut Map<String, Value>, member: &str) -> Option<String> {
    match map.get(member)? {
        Value::String(_) => match map.shift_remove(member) {
            Some(Value::String(text)) => Some(text),
            _ => unreachable!("just seen to be text"),
        },
        _ => None,
    }
}

/// Takes a member that names something. Many runtimes write "" where they have no name; what cannot be an id stays and is carried.
pub(super) fn take_id<T: FromStr>(map: &mut Map<String, Value>, member: &str) -> Option<T> {
    let text = map.get(member)?.as_str()?;
    let id = text.parse().ok();
    if id.is_some() || text.is_empty() {
        map.shift_remove(member);
    }
    id
}

/// Takes an id without which the event is about nothing.
pub(super) fn take_known_id<T: FromStr<Err = IdError>>(fact: &mut Fact, member: &'static str) -> Result<T, FactError> {
    take_text(fact, member).unwrap_or_default().parse().map_err(|error| bad_id(member, &error))
}

/// The draft with every remaining member of the event.
pub(super) fn carrying(mut draft: Draft, rest: Fact) -> Draft {
    for (member, value) in rest {
        carry(&mut draft, member, value);
    }
    draft
}

/// What a source may say of a question by our names, wherever it keeps what is its own.
#[rustfmt::skip]
const OF_A_QUESTION: &[&str] = &[
    "title", "message", "description", "risk", "scope", "policyScope", "plan", "versionId", "schema", "responseSchema", "options",
    "default", "expiresAt",
];

/// Takes what `own` says of a question by our names, unless the draft says it already: then it stays where it is.
pub(super) fn take_question(draft: &mut Draft, own: &mut Map<String, Value>) {
    for member in OF_A_QUESTION {
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
