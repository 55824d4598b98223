//! Parsing of messages, and formatting of replies.

use crate::model::halves;
use crate::serve::contract::operations::assert_message_described;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, bad_id};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum length of a subscription's or publish's id, in bytes.
const ID_BYTES_MAX: usize = 256;

/// A parsed message: its members, and its facts unparsed.
pub(super) struct ClientMessage<'m> {
    pub members: Map<String, Value>,
    pub facts: Option<&'m RawValue>,
}

impl<'m> ClientMessage<'m> {
    pub(super) fn of(text: &'m str) -> Result<Self, Problem> {
        let not_json = |error: serde_json::Error| {
            let problem = match error.is_data() {
                true => Problem::bad_request("not_an_object", format!("The message is not a JSON object: {error}.")),
                false => Problem::bad_request("not_json", format!("The message is not JSON: {error}.")),
            };
            problem.with("expected", "one JSON object a message")
        };
        let mut members: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(not_json)?;
        let facts = members.remove("facts");
        let read = members.into_iter().map(|(member, value)| Ok((member, halves::parse(value.get().as_bytes())?)));
        Ok(Self { members: read.collect::<Result<_, _>>().map_err(not_json)?, facts })
    }

    /// Reads a required text member.
    pub(super) fn text(&self, member: &'static str) -> Result<&str, Problem> {
        match self.members.get(member) {
            Some(Value::String(text)) => Ok(text),
            Some(other) if !other.is_null() => {
                let detail = format!("{member} is {}. It must be text.", crate::source::kind_of(other));
                Err(Problem::bad_request("bad_query", detail).with("member", member))
            }
            _ => Err(missing_member(member)),
        }
    }

    /// Reads the id that the reply repeats.
    pub(super) fn id(&self) -> Result<Option<Value>, Problem> {
        match self.members.get("id") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(id)) if id.is_empty() || id.len() > ID_BYTES_MAX => {
                Err(bad_id("id", &format!("it has {} bytes; it must have 1 to {ID_BYTES_MAX}", id.len())))
            }
            Some(id @ (Value::String(_) | Value::Number(_))) => Ok(Some(id.clone())),
            Some(other) => Err(bad_id("id", &format!("it is {}; it must be text or a number", crate::source::kind_of(other)))),
        }
    }

    /// Reads some members as a query; others are ignored.
    pub(super) fn query(&self, members: &[&str]) -> Result<Query, Problem> {
        let named = |member: &&str| Some(((*member).to_owned(), self.members.get(*member)?.clone()));
        Query::from_object(&members.iter().filter_map(named).collect())
    }

    /// Reads the members of an object; empty if it is absent.
    pub(super) fn object(&self, member: &'static str) -> Result<Query, Problem> {
        match self.members.get(member) {
            None | Some(Value::Null) => Ok(Query::default()),
            Some(Value::Object(object)) => Query::from_object(object),
            Some(other) => {
                let detail = format!("{member} is {}. It must be an object.", crate::source::kind_of(other));
                Err(Problem::bad_request("bad_query", detail).with("member", member))
            }
        }
    }
}

pub(super) fn missing_member(member: &'static str) -> Problem {
    Problem::bad_request("missing_member", format!("{member} is missing. This op requires it.")).with("member", member)
}

/// Formats a reply.
pub(super) fn reply(op: &str, id: Option<&Value>, members: impl Serialize) -> String {
    #[derive(Serialize)]
    struct Answer<'v, M> {
        op: &'v str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'v Value>,
        #[serde(flatten)]
        members: M,
    }
    serde_json::to_string(&Answer { op, id, members }).expect("a reply serializes to JSON")
}

pub(super) fn refusal(id: Option<&Value>, problem: &Problem) -> String {
    assert_message_described(problem.status, problem.code);
    reply("error", id, problem.to_json())
}
