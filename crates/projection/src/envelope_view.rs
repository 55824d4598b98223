//! An envelope in one audience's form, parsed for the fold.
//!
//! The server applied the audience rule when it wrote the row (`log::row`), so the fold cannot read a hidden member by
//! mistake.

use proscenium_model::fact::{CallFact, Family, InPayload, PayloadSeed};
use proscenium_model::visibility::HIDDEN_FAILURE;
use proscenium_model::{EventType, Ids, MemberRef, Payload, Phase, ReceivedAt, Sequence, Surface};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Where bodies are read; an identifier follows.
pub const BLOB_PATH: &str = "/v1/blobs/";

/// The text of a fact.
#[derive(Debug, Clone, Copy)]
pub enum FactText<'e> {
    /// The whole text.
    Whole(&'e str),
    /// The beginning of a text, and the length of the whole in bytes.
    Beginning(&'e str, usize),
}

impl<'e> FactText<'e> {
    /// The text as far as the envelope has it.
    #[must_use]
    pub const fn shown(self) -> &'e str {
        match self {
            Self::Whole(text) | Self::Beginning(text, _) => text,
        }
    }
}

/// The members of an envelope that the fold reads.
#[derive(Debug, Clone)]
pub struct EnvelopeView {
    /// Its number in the log.
    pub sequence: Sequence,
    /// The epoch (1970) for an envelope without a time, which a server's log never contains.
    pub received_at: ReceivedAt,
    /// The time that the source stated.
    pub timestamp: Option<ReceivedAt>,
    /// What kind of fact it states.
    pub event_type: EventType,
    /// What the fact is about.
    pub ids: Ids,
    /// What the agent does meanwhile.
    pub phase: Phase,
    /// Where clients show it.
    pub surface: Surface,
    /// What the fact says, without its members at the envelope's top level.
    pub payload: Payload,
    /// Links to other things, and to bodies.
    pub refs: Option<Value>,
    /// Top-level members beyond the envelope's own; `topology` counts as one of them.
    pub extra: Map<String, Value>,
}

impl EnvelopeView {
    /// Parses an envelope's JSON; `None` if it is not an envelope, which only a damaged store can contain.
    #[must_use]
    pub fn parse(sequence: Sequence, text: &[u8]) -> Option<Self> {
        let mut envelope: Self = serde_json::from_slice(text).ok()?;
        envelope.sequence = sequence;
        Some(envelope)
    }

    /// A member of the fact: from the envelope's top level, else from its payload. It may be null.
    #[must_use]
    pub fn member(&self, member: &str) -> Option<MemberRef<'_>> {
        self.extra.get(member).map(MemberRef::from).or_else(|| self.payload.get(member))
    }

    /// A member of the fact, if it exists and is not null.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<MemberRef<'_>> {
        self.member(member).filter(|value| !value.is_null())
    }

    /// A member of the fact, if it is a string.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.member(member).and_then(MemberRef::text)
    }

    /// What the fact says, as one of this family. A member at the envelope's top level wins.
    #[must_use]
    pub fn fact<F: InPayload>(&self) -> Cow<'_, F> {
        self.payload.overlaid(&self.extra)
    }

    /// Whether the envelope states an end without its body, which this audience may not see.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        self.payload.is_true("withheld")
    }

    /// Whether the envelope only states that a call failed which this audience may not see.
    #[must_use]
    pub fn is_hidden_failure(&self) -> bool {
        self.is_withheld() && self.payload.as_fact().is_some_and(|call: &CallFact| call.kind.as_deref() == Some(HIDDEN_FAILURE))
    }

    /// Whether it ends the run, and with it all open activities.
    #[must_use]
    pub const fn ends_run(&self) -> bool {
        matches!(self.event_type, EventType::RunFinished | EventType::RunFailed)
    }

    /// The links to bodies whose values moved out of the member at this pointer of the envelope, or from inside it.
    ///
    /// Each with the pointer below that member.
    pub fn moved(&self, member: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.refs.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(move |link| {
            let rest = link.get("member")?.as_str()?.strip_prefix(member)?;
            let is_body = link.get("href")?.as_str()?.starts_with(BLOB_PATH);
            (is_body && (rest.is_empty() || rest.starts_with('/'))).then_some((rest, link))
        })
    }

    /// The text of words, unless this audience may not see it.
    ///
    /// A text that is too long for an envelope has only its beginning there.
    #[must_use]
    pub fn whole_text<'t>(&self, text: Option<&'t str>) -> Option<FactText<'t>> {
        let text = text.filter(|_| !self.is_withheld())?;
        let moved = self.moved("/payload/text").next();
        Some(match moved.and_then(|(_, link)| link.get("bytes")?.as_u64()) {
            // Older envelopes mark the cut in the text.
            Some(bytes) => {
                FactText::Beginning(text.strip_suffix('…').unwrap_or(text), usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            None => FactText::Whole(text),
        })
    }

    /// The value of a relation in `refs`, which is a list of links or a map by relation.
    #[must_use]
    pub fn related(&self, rel: &str) -> Option<&Value> {
        match self.refs.as_ref()? {
            Value::Object(map) => map.get(rel),
            Value::Array(links) => {
                let link = links.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some(rel))?;
                Some(link.get("id").unwrap_or(link))
            }
            _ => None,
        }
    }
}

/// A member's name, borrowed if its JSON text has no escapes.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = EnvelopeView;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an envelope")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvelopeView, A::Error> {
        let mut event_type: Option<EventType> = None;
        let mut envelope = EnvelopeView {
            sequence: Sequence::NONE,
            received_at: ReceivedAt::default(),
            timestamp: None,
            event_type: EventType::Other(Box::default()),
            ids: Ids::default(),
            phase: Phase::Unknown,
            surface: Surface::Unknown,
            payload: Payload::empty(Family::Open),
            refs: None,
            extra: Map::new(),
        };
        while let Some(Name(name)) = map.next_key()? {
            match &*name {
                "type" => event_type = Some(map.next_value()?),
                "phase" => envelope.phase = map.next_value()?,
                "surface" => envelope.surface = map.next_value()?,
                // The server writes the type first.
                "payload" => {
                    let family = event_type.as_ref().map_or(Family::Open, Family::from);
                    envelope.payload = map.next_value_seed(PayloadSeed(family))?;
                }
                "refs" => envelope.refs = map.next_value()?,
                "receivedAt" => {
                    let Name(time) = map.next_value()?;
                    envelope.received_at = ReceivedAt::parse(&time).unwrap_or_default();
                }
                "timestamp" => {
                    let Name(time) = map.next_value()?;
                    envelope.timestamp = ReceivedAt::parse(&time);
                }
                "eventId" | "sequence" | "sourceSequence" | "owner" | "scope" | "persistence" | "control" | "audience"
                | "startAudience" | "rawEventRef" => {
                    map.next_value::<IgnoredAny>()?;
                }
                member if Ids::MEMBERS.contains(&member) => match map.next_value()? {
                    Value::String(id) => envelope.ids.set(member, &id).map_err(de::Error::custom)?,
                    other => drop(envelope.extra.insert(member.into(), other)),
                },
                member => drop(envelope.extra.insert(member.into(), map.next_value()?)),
            }
        }
        envelope.event_type = event_type.ok_or_else(|| de::Error::missing_field("type"))?;
        envelope.payload = envelope.payload.into_family(&envelope.event_type);
        Ok(envelope)
    }
}

impl<'de> Deserialize<'de> for EnvelopeView {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EnvelopeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proscenium_model::WordsFact;
    use serde_json::json;

    fn envelope(envelope: &Value) -> EnvelopeView {
        EnvelopeView::parse(Sequence(7), envelope.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_member_is_read_from_the_top_level_before_the_payload() {
        let of = envelope(&json!({
            "type": "agent.spawned", "sequence": 7, "agentId": "a", "phase": "acting", "agentName": "top",
            "payload": {"agentName": "inner", "role": "researcher", "teamName": null},
        }));
        assert_eq!((of.text("agentName"), of.text("role"), of.text("teamName")), (Some("top"), Some("researcher"), None));
        assert_eq!((of.ids.agent.as_ref().unwrap().as_str(), &of.phase), ("a", &Phase::Acting));
    }

    #[test]
    fn what_a_fact_says_is_read_wherever_its_envelope_has_it_and_in_whatever_order() {
        let payload = json!({"toolName": "inner", "output": 1, "role": "user", "ofTomorrow": true});
        for text in [
            json!({"type": "tool.result", "toolName": "top", "payload": payload}),
            json!({"toolName": "top", "payload": payload, "type": "tool.result"}),
        ] {
            let of = envelope(&text);
            let call = of.fact::<CallFact>();
            assert_eq!((call.tool_name.as_deref(), call.output.as_deref()), (Some("top"), Some(&json!(1))));
            assert_eq!((of.text("toolName"), of.payload.text("toolName")), (Some("top"), Some("inner")));
            assert_eq!(of.member("ofTomorrow"), Some(MemberRef::Flag(true)));
        }
        let of = envelope(&json!({"type": "text.delta", "text": 7, "payload": {"text": "inner", "role": "user"}}));
        let words = of.fact::<WordsFact>();
        assert_eq!((&words.text, words.role.as_deref(), of.text("text")), (&None, Some("user"), None));
    }

    #[test]
    fn a_relation_is_read_from_a_list_of_links_and_from_a_map() {
        let list =
            envelope(&json!({"type": "x", "refs": [{"rel": "output", "href": "/v1/blobs/1"}, {"rel": "parent", "id": "p"}]}));
        assert_eq!(list.related("output").unwrap()["href"], "/v1/blobs/1");
        assert_eq!(list.related("parent"), Some(&json!("p")));
        assert_eq!(envelope(&json!({"type": "x", "refs": {"parent": "p"}})).related("parent"), Some(&json!("p")));
        assert!(EnvelopeView::parse(Sequence(1), b"{}").is_none());
    }
}
