//! The forms of a fact: what it means without the facts before it.

use crate::members::{Need, Parsed, parse_timestamp, require, unknown_type};
use crate::{Fact, FactError};
use serde_json::{Map, Value};

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Task,
    Status,
    Artifact,
    Message,
    /// A JSON-RPC error: the server's code failed.
    Error,
}

impl Kind {
    /// The name in 1.0 is a member, and in 0.3 the value of `kind`.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "task" => Self::Task,
            "statusUpdate" | "status-update" => Self::Status,
            "artifactUpdate" | "artifact-update" => Self::Artifact,
            "message" => Self::Message,
            _ => return None,
        })
    }

    const fn needs(self) -> &'static [(&'static str, Need)] {
        match self {
            Self::Task => &[("id", Need::Id), ("status", Need::Object)],
            Self::Status => &[("status", Need::Object)],
            Self::Artifact => &[("artifact", Need::Object)],
            Self::Message => &[("parts", Need::List)],
            Self::Error => &[],
        }
    }
}

/// A parsed fact.
pub(super) type Event = Parsed<Box<Known>>;

/// An event of a known kind.
pub(super) struct Known {
    pub kind: Kind,
    pub members: Fact,
    /// Unknown members of the envelope around the event.
    pub envelope: Fact,
    /// The server's time of the event.
    pub timestamp: Option<Box<str>>,
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let is_rpc = fact.contains_key("jsonrpc") || fact.contains_key("result") || fact.get("error").is_some_and(Value::is_object);
    if !is_rpc {
        return inner(fact, Map::new());
    }
    fact.shift_remove("jsonrpc");
    // The id of the request: all events of a stream have it.
    fact.shift_remove("id");
    match (fact.shift_remove("result"), fact.shift_remove("error")) {
        (_, Some(Value::Object(error))) => Ok(known(Kind::Error, error, fact)),
        (Some(Value::Object(result)), _) => inner(result, fact),
        _ => Err(FactError::BadMember { member: "result", expected: "an object, or an object in \"error\"".into() }),
    }
}

/// Parses the object inside an envelope.
fn inner(mut object: Fact, envelope: Fact) -> Result<Event, FactError> {
    if let Some(name) = object.get("kind").and_then(Value::as_str).map(str::to_owned) {
        object.shift_remove("kind");
        let Some(kind) = Kind::of(&name) else { return Ok(Err(unknown_type(&name, object).into())) };
        return Ok(known(kind, object, envelope));
    }
    // The answer to a request about a task is the task itself.
    if object.get("id").is_some_and(Value::is_string) && object.get("status").is_some_and(Value::is_object) {
        return Ok(known(Kind::Task, object, envelope));
    }
    let found = object.iter().find_map(|(member, value)| Some((member.clone(), Kind::of(member).filter(|_| value.is_object())?)));
    if let Some((member, kind)) = found {
        let Some(Value::Object(members)) = object.shift_remove(&member) else { unreachable!("`find_map` found an object") };
        object.extend(envelope);
        return Ok(known(kind, members, object));
    }
    match object.iter().find(|(_, value)| value.is_object()).map(|(member, _)| member.clone()) {
        Some(member) => Ok(Err(unknown_type(&member, object).into())),
        None => Err(FactError::NoType { member: "result" }),
    }
}

fn known(kind: Kind, mut members: Fact, envelope: Fact) -> Event {
    members.retain(|_, value| !value.is_null());
    let members = require("a2a", &format!("{kind:?}").to_lowercase(), members, kind.needs())?;
    let timestamp = members.get("status").and_then(|status| status.get("timestamp")).and_then(parse_timestamp);
    Ok(Known { kind, members, envelope, timestamp }.into())
}
