//! Parsing of messages, and formatting of replies.

use crate::model::halves;
use crate::serve::contract::operations::assert_message_described;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, bad_id, quoted};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// Maximum length of a subscription's or publish's id, in bytes.
const ID_BYTES_MAX: usize = 256;

/// Maximum length of a message's members, except its facts, in bytes of JSON.
///
/// The serving thread parses them, and a list of short names takes twenty times its length in memory. The largest that a
/// client needs are a control and the names of a filter.
const MEMBERS_BYTES_MAX: usize = 1024 * 1024;

/// A parsed message: its members, and its facts unparsed.
pub(super) struct ClientMessage<'m> {
    pub members: Map<String, Value>,
    pub facts: Option<&'m RawValue>,
    /// Why a member was not parsed.
    pub excess: Option<Problem>,
}

/// The members of a message, unparsed. One that exceeds [`MEMBERS_BYTES_MAX`] with those before it is left out.
#[derive(Default)]
struct RawMembers<'m> {
    members: Vec<(String, &'m RawValue)>,
    facts: Option<&'m RawValue>,
    excess: Option<Problem>,
}

impl<'m> Deserialize<'m> for RawMembers<'m> {
    fn deserialize<D: Deserializer<'m>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self::default())
    }
}

impl<'m> Visitor<'m> for RawMembers<'m> {
    type Value = Self;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a map")
    }

    fn visit_map<A: MapAccess<'m>>(mut self, mut map: A) -> Result<Self, A::Error> {
        let mut left = MEMBERS_BYTES_MAX;
        while let Some((member, value)) = map.next_entry::<String, &RawValue>()? {
            let bytes = member.len() + value.get().len();
            if member == "facts" {
                self.facts = Some(value);
            } else if bytes > left {
                self.excess.get_or_insert_with(|| members_too_long(&member, bytes));
            } else {
                left -= bytes;
                self.members.push((member, value));
            }
        }
        Ok(self)
    }
}

fn members_too_long(member: &str, bytes: usize) -> Problem {
    let member = quoted(member);
    let detail = format!(
        "{member} has {bytes} bytes. The members of a message, except facts, may have {MEMBERS_BYTES_MAX} bytes together. Shorten it."
    );
    Problem::bad_request("bad_query", detail).with("limit", MEMBERS_BYTES_MAX)
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
        let RawMembers { members, facts, excess } = serde_json::from_str(text).map_err(not_json)?;
        let read = members.into_iter().map(|(member, value)| Ok((member, halves::parse(value.get().as_bytes())?)));
        Ok(Self { members: read.collect::<Result<_, _>>().map_err(not_json)?, facts, excess })
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
