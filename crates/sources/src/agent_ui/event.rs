//! Facts in the native vocabulary: what each says alone.

use crate::members::{RESERVED, carry, invalid_id_error, parse_timestamp};
use crate::{Fact, FactError};
use proscenium_model::fact::{CallFact, Family, MessagesFact, PayloadSeed};
use proscenium_model::id::IdError;
use proscenium_model::{Audience, Draft, EventType, Ids, MemberRef, Payload, Phase, Scope};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A parsed fact: its draft, without the ids that follow from earlier facts.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub draft: Box<Draft>,
    /// A message of a worker in the user's role; `true` for its end.
    pub notification: Option<bool>,
}

pub(super) fn parse(fact: Fact) -> Result<Event, FactError> {
    let mut members = Members::default();
    for (member, value) in fact {
        members.add(Member::of(&member), value);
    }
    members.into_event()
}

/// Parses the text of a fact without a map between.
///
/// `None`: a member occurs twice, its type or an id is no text, its payload is no object, or the text is no JSON object.
pub(super) fn parse_text(text: &[u8]) -> Option<Result<Event, FactError>> {
    let (mut members, mut from) = (Members::default(), serde_json::Deserializer::from_slice(text));
    members.deserialize(&mut from).and_then(|()| from.end()).ok()?;
    (!members.is_repeated).then(|| members.into_event())
}

/// The members of a fact, as they come. Most facts have no others than a type, ids and a payload.
#[derive(Default)]
struct Members {
    event_type: Option<EventType>,
    ids: Ids,
    /// The first id that is none.
    bad_id: Option<(&'static str, IdError)>,
    payload: Option<Payload>,
    /// All others, with a type and ids that are no text.
    rest: Fact,
    /// Whether a member occurs twice. Only a map knows which value counts.
    is_repeated: bool,
}

/// The name of a member.
enum Member {
    Type,
    Payload,
    Id(&'static str),
    Other(String),
}

impl Member {
    fn of(name: &str) -> Self {
        match name {
            "type" => Self::Type,
            "payload" => Self::Payload,
            _ => Ids::member(name).map_or_else(|| Self::Other(name.to_owned()), Self::Id),
        }
    }
}

/// A text, borrowed if its JSON has no escapes.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

impl Members {
    fn add(&mut self, member: Member, value: Value) {
        let before = match (member, value) {
            (Member::Type, Value::String(text)) => return self.add_type(&text),
            (Member::Id(name), Value::String(text)) => return self.add_id(name, &text),
            (Member::Type, value) => {
                self.is_repeated |= self.event_type.is_some();
                self.rest.insert("type".to_owned(), value)
            }
            (Member::Payload, value) => return self.add_payload(Payload::of_value(self.family(), value)),
            (Member::Id(name), value) => {
                self.is_repeated |= self.ids.has(name) || self.bad_id.is_some();
                self.rest.insert(name.to_owned(), value)
            }
            (Member::Other(name), value) => self.rest.insert(name, value),
        };
        self.is_repeated |= before.is_some();
    }

    /// The family of the payload, by the type that stands before it in nearly every fact.
    fn family(&self) -> Family {
        self.event_type.as_ref().map_or(Family::Open, Family::from)
    }

    fn add_payload(&mut self, payload: Payload) {
        self.is_repeated |= self.payload.replace(payload).is_some();
    }

    fn add_type(&mut self, name: &str) {
        let before = self.event_type.replace(EventType::from(name));
        self.is_repeated |= before.is_some() || self.rest.contains_key("type");
    }

    fn add_id(&mut self, name: &'static str, text: &str) {
        let was_bad = self.bad_id.as_ref().is_some_and(|(bad, _)| *bad == name);
        self.is_repeated |= was_bad || self.ids.has(name) || self.rest.contains_key(name);
        if let Err(error) = self.ids.set(name, text) {
            self.bad_id.get_or_insert((name, error));
        }
    }

    fn into_event(self) -> Result<Event, FactError> {
        let Self { event_type, ids, bad_id, payload, rest, .. } = self;
        let named = event_type.filter(|class| !class.as_str().is_empty());
        let mut class = named.ok_or(FactError::NoType { member: "type" })?;
        let notification = is_worker_speech(&class, payload.as_ref(), &rest).then_some(class == EventType::TextFinal);
        if notification.is_some() {
            class = EventType::WorkerNotification;
        }
        if let Some((member, error)) = bad_id {
            return Err(invalid_id_error(member, &error));
        }
        let mut draft = Box::new(Draft { ids, ..Draft::new(class) });
        let knows_phase = matches!(rest.get("phase"), Some(Value::String(_)));
        let permission_scope = if draft.event_type == EventType::ActionRequired { scope_of_permission(&rest) } else { None };
        if let Some(payload) = payload {
            draft.payload = payload.into_family(&draft.event_type);
        }
        take_members(rest, &mut draft);
        if let Some(scope) = permission_scope {
            draft.payload.insert_missing("scope", scope);
        }
        read_ids_of_payload(&mut draft);
        if !knows_phase {
            refine_phase(&mut draft);
        }
        if draft.event_type == EventType::MessagesSnapshot {
            mark_notifications(&mut draft);
        }
        Ok(Event { draft, notification })
    }
}

/// Adds the members of a text. They are large, so they are filled in place.
impl<'de> DeserializeSeed<'de> for &mut Members {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Members {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a fact")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key()? {
            match member {
                // A value of another kind ends the attempt, except for null, which many serialisers write.
                Member::Type => match map.next_value()? {
                    Some(Text(name)) => self.add_type(&name),
                    None => self.add(Member::Type, Value::Null),
                },
                Member::Id(member) => match map.next_value()? {
                    Some(Text(id)) => self.add_id(member, &id),
                    None => self.add(Member::Id(member), Value::Null),
                },
                Member::Payload => {
                    let payload = map.next_value_seed(PayloadSeed(self.family()))?;
                    self.add_payload(payload);
                }
                member @ Member::Other(_) => self.add(member, map.next_value()?),
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Member;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(Member::of(name))
            }
        }
        from.deserialize_str(Name)
    }
}

/// Whether a message in the user's role carries the mark of a worker.
///
/// The marks are `isWorkerNotification: true`, and `origin` or `source` with the value `worker` or `subagent`. Such a
/// message must never appear as the user's own words (seed 003).
fn is_worker_speech(class: &EventType, payload: Option<&Payload>, rest: &Fact) -> bool {
    if !matches!(class, EventType::TextDelta | EventType::TextFinal) {
        return false;
    }
    let said = |member: &str| payload.and_then(|said| said.get(member)).or_else(|| rest.get(member).map(MemberRef::from));
    said("role").and_then(MemberRef::text) == Some("user") && is_workers(said)
}

/// Reads the scope of a question's permission: a `scope` that is no scope name of the protocol.
fn scope_of_permission(rest: &Fact) -> Option<Value> {
    let scope = rest.get("scope").filter(|scope| !scope.is_null())?;
    (!scope.as_str().is_some_and(|name| Scope::NAMES.contains(&name))).then(|| scope.clone())
}

/// Whether the producer marked the message as a worker's. `said` reads a member of the message.
pub fn is_workers<'a, V: Into<MemberRef<'a>>>(said: impl Fn(&str) -> Option<V>) -> bool {
    let said = |member: &str| said(member).map(Into::into);
    said("isWorkerNotification") == Some(MemberRef::Flag(true))
        || ["origin", "source"].iter().any(|m| matches!(said(m).and_then(MemberRef::text), Some("worker" | "subagent")))
}

/// Marks the notifications among the messages of a history window.
fn mark_notifications(draft: &mut Draft) {
    let window = draft.payload.fact_mut().and_then(|window: &mut MessagesFact| window.messages.as_mut());
    let messages = window.and_then(|messages| messages.as_array_mut()).into_iter().flatten();
    for message in messages.filter_map(Value::as_object_mut) {
        if message.get("role").and_then(Value::as_str) == Some("user") && is_workers(|member| message.get(member)) {
            message.insert("role".into(), "notification".into());
            let parts = message.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten();
            for part in parts.filter_map(Value::as_object_mut) {
                part.insert("kind".into(), "worker_notification".into());
            }
        }
    }
}

/// Moves the other members of the fact to their place in the draft: those that its family knows belong in the payload.
fn take_members(mut fact: Fact, draft: &mut Draft) {
    take_sequence(&mut fact, draft);
    let known = draft.payload.family().members();
    for (member, value) in fact {
        match (member.as_str(), value) {
            // Fails closed: any value but the three audience names makes the draft internal.
            ("audience", value) => {
                draft.audience = value.as_str().and_then(Audience::parse).unwrap_or_else(|| {
                    carry(draft, member, value);
                    Audience::Internal
                });
            }
            // Many serialisers write null for an absent member.
            (name, Value::Null) if RESERVED.contains(&name) || Ids::MEMBERS.contains(&name) => {}
            ("timestamp", value) => match parse_timestamp(&value) {
                Some(at) => draft.timestamp = Some(at),
                None => carry(draft, member, value),
            },
            ("owner", Value::String(name)) => draft.owner = name.as_str().into(),
            ("scope", Value::String(name)) => draft.scope = name.as_str().into(),
            ("phase", Value::String(name)) => draft.phase = name.as_str().into(),
            ("surface", Value::String(name)) => draft.surface = name.as_str().into(),
            ("persistence", Value::String(name)) => draft.persistence = name.as_str().into(),
            ("control", Value::String(name)) => draft.control = Some(name.as_str().into()),
            ("topology", Value::String(name)) => draft.topology = Some(name.as_str().into()),
            ("refs", refs @ (Value::Array(_) | Value::Object(_))) => draft.refs = Some(refs),
            ("rawEventRef", raw) => draft.raw_event_ref = Some(raw),
            (name, value) if known.contains(&name) && !draft.payload.contains_key(name) => {
                draft.payload.insert(member, value);
            }
            (_, value) => carry(draft, member, value),
        }
    }
}

/// Takes the producer's own sequence number.
///
/// In an exported envelope it is `sourceSequence`; `sequence` is then the position in the exporting log.
fn take_sequence(fact: &mut Fact, draft: &mut Draft) {
    let own = fact.shift_remove("sourceSequence").filter(|v| !v.is_null());
    let place = fact.shift_remove("sequence").filter(|v| !v.is_null());
    draft.source_sequence = own.as_ref().and_then(Value::as_u64);
    match own {
        Some(own) if draft.source_sequence.is_none() => carry(draft, "sourceSequence".into(), own),
        _ => {}
    }
    match place {
        Some(place) if draft.source_sequence.is_none() && place.is_u64() => draft.source_sequence = place.as_u64(),
        Some(place) => drop(draft.extra.insert("sourceLogSequence".into(), place)),
        None => {}
    }
}

/// Reads ids that only the payload has. The members stay there; an invalid id is the producer's data.
fn read_ids_of_payload(draft: &mut Draft) {
    // No field has the name of an id (tested).
    for (name, value) in draft.payload.open() {
        if let Value::String(text) = value {
            let _ = draft.ids.set(name, text);
        }
    }
}

/// Sets the phase from explicit payload members. The caller has checked that the fact has no phase.
fn refine_phase(draft: &mut Draft) {
    let status = draft.text("status");
    let phase = match (&draft.event_type, status) {
        (EventType::RunFinished, Some("cancelled" | "canceled")) => Phase::Cancelled,
        (EventType::RunFinished, Some("interrupted")) => Phase::Interrupted,
        (EventType::RunFinished | EventType::AgentCompleted, Some("failed")) => Phase::Failed,
        (EventType::RunStatus, Some(status)) if Phase::NAMES.contains(&status) => status.into(),
        (EventType::ToolFailed, _) if error_code(draft) == Some("cancelled") => Phase::Cancelled,
        _ => return,
    };
    draft.phase = phase;
}

fn error_code(draft: &Draft) -> Option<&str> {
    draft.payload.as_fact::<CallFact>()?.error.as_ref()?.get("code")?.as_str()
}
