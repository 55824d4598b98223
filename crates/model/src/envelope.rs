//! The envelope: one fact in the Agent UI vocabulary, with its place in the log.

use super::audience::Audience;
use super::cursor::Sequence;
use super::fact::{CallFact, InPayload, MemberRef, Payload, WordsFact};
use super::id::{ActionId, AgentId, ArtifactId, EvidenceId, Ids, MessageId, PartId, TaskId, ToolCallId};
use super::json::{write_plain, write_text, write_value};
use super::taxonomy::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use uuid::Uuid;

/// The envelope's content that an adapter makes of a fact, before it has a place in a log.
///
/// [`Draft::new`] fills every dimension from the event type's defaults. An adapter then changes what its source knows
/// better.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// `type` on the wire.
    pub event_type: EventType,
    /// The producer's own time, RFC 3339 in UTC, if it gave one.
    pub timestamp: Option<Box<str>>,
    /// The producer's own number for the fact, if it gave one.
    pub source_sequence: Option<u64>,
    /// What the fact is about.
    pub ids: Ids,
    /// Who owns what it is about.
    pub owner: Owner,
    /// What it concerns: a call, a run, a session.
    pub scope: Scope,
    /// What the agent does meanwhile.
    pub phase: Phase,
    /// Where clients show it.
    pub surface: Surface,
    /// How long it is of use.
    pub persistence: Persistence,
    /// The control that it offers or answers.
    pub control: Option<Control>,
    /// How the work is organised.
    pub topology: Option<Topology>,
    /// Who may see it.
    pub audience: Audience,
    /// The audience of the fact's subject, stamped by the ledger; `None` for a fact without a subject.
    pub start_audience: Option<Audience>,
    /// The audience of the tool call that an action belongs to.
    ///
    /// Never on the wire: it would reveal a hidden call.
    pub call_audience: Option<Audience>,
    /// For a patch: the narrowest audience that lacks data which the patch builds on.
    ///
    /// Never on the wire: it would reveal that data.
    pub missed_by: Option<Audience>,
    /// For a request: the version of its question for readers that cannot see its call.
    ///
    /// Never on the wire: together with the version of all other readers, it would reveal changes of the call.
    pub request_version: Option<u32>,
    /// For an end: whether an abort looks the same in its source.
    ///
    /// Then a request to stop decides which of the two it was. Never on the wire.
    pub may_be_abort: bool,
    /// For a chunk: whether it continues a part that has ended.
    ///
    /// A source that learns of an end before all chunks have come sets it. Never on the wire.
    pub reopens: bool,
    /// What the fact says. Its family is that of the event type.
    pub payload: Payload,
    /// Ids and links to other places: an array of `{rel, …}`, or a map by relation.
    pub refs: Option<Value>,
    /// A safe reference to the raw event, never the event.
    pub raw_event_ref: Option<Value>,
    /// Unknown top-level members, carried unchanged.
    pub extra: Map<String, Value>,
}

impl Draft {
    /// A draft with the defaults of this event type, no ids and an empty payload.
    #[must_use]
    pub fn new(event_type: EventType) -> Self {
        let defaults = event_type.defaults();
        Self {
            timestamp: None,
            source_sequence: None,
            ids: Ids::default(),
            owner: defaults.owner.clone(),
            scope: defaults.scope.clone(),
            phase: defaults.phase.clone(),
            surface: defaults.surface.clone(),
            persistence: defaults.persistence.clone(),
            control: None,
            topology: None,
            audience: defaults.audience,
            start_audience: None,
            call_audience: None,
            missed_by: None,
            request_version: None,
            may_be_abort: false,
            reopens: false,
            payload: Payload::empty(&event_type),
            refs: None,
            raw_event_ref: None,
            extra: Map::new(),
            event_type,
        }
    }

    /// Sets a payload member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.payload.insert(member, value.into());
        self
    }

    /// Moves members unchanged into the payload, each under its new name. It drops null values.
    pub fn move_members(&mut self, from: &mut Map<String, Value>, members: &[(&str, &str)]) {
        for (member, ours) in members {
            self.set(ours, from.shift_remove(*member).filter(|value| !value.is_null()));
        }
    }

    /// Moves members into the payload, as [`Self::move_members`].
    #[must_use]
    pub fn with_moved(mut self, from: &mut Map<String, Value>, members: &[(&str, &str)]) -> Self {
        self.move_members(from, members);
        self
    }

    /// Sets a payload member, if there is a value.
    pub fn set(&mut self, member: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.payload.insert(member, value.into());
        }
    }

    /// Sets a payload member, if there is a value.
    #[must_use]
    pub fn with_some(mut self, member: &str, value: Option<impl Into<Value>>) -> Self {
        self.set(member, value);
        self
    }

    /// Changes what the fact says. The event type must be one of this family.
    #[must_use]
    pub fn with_fact<F: InPayload>(mut self, change: impl FnOnce(&mut F)) -> Self {
        change(self.payload.fact_mut().expect("the event type is of the family"));
        self
    }

    /// As [`Self::with_fact`], of a tool call.
    #[must_use]
    pub fn call(self, change: impl FnOnce(&mut CallFact)) -> Self {
        self.with_fact(change)
    }

    /// As [`Self::with_fact`], of a text, of reasoning or of a plan.
    #[must_use]
    pub fn words(self, change: impl FnOnce(&mut WordsFact)) -> Self {
        self.with_fact(change)
    }

    /// Sets the text of words, or a chunk of output.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<Option<String>>) -> Self {
        match &mut self.payload {
            Payload::Words(words) => words.text = text.into(),
            Payload::Call(call) => call.text = text.into(),
            _ => self.set("text", text.into()),
        }
        self
    }

    /// Sets the name of the tool that the fact is about, if there is a name.
    #[must_use]
    pub fn with_tool_name(mut self, name: Option<impl Into<String>>) -> Self {
        let Some(name) = name.map(Into::into) else { return self };
        match &mut self.payload {
            Payload::Call(call) => call.tool_name = Some(name),
            other => other.insert("toolName", name.into()),
        }
        self
    }

    /// Adds a reference, as [`Self::add_ref`].
    #[must_use]
    pub fn with_ref(mut self, rel: &str, value: Option<impl Into<Value>>) -> Self {
        self.add_ref(rel, value);
        self
    }

    /// What the fact says, as one of this family. A member at the top level wins.
    #[must_use]
    pub fn fact<F: InPayload>(&self) -> Cow<'_, F> {
        self.payload.overlaid(&self.extra)
    }

    /// A member of the fact, from its top level or else from its payload.
    #[must_use]
    pub fn member(&self, member: &str) -> Option<MemberRef<'_>> {
        self.extra.get(member).map(MemberRef::from).or_else(|| self.payload.get(member))
    }

    /// The text of a payload member, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.payload.text(member)
    }

    /// Adds a reference by its relation, if there is a value.
    ///
    /// `refs` becomes an array of `{rel, …}` if `value` is an object and `refs` is not a map yet; otherwise a map by
    /// relation.
    pub fn add_ref(&mut self, rel: &str, value: Option<impl Into<Value>>) {
        let Some(value) = value.map(Into::into) else { return };
        match (&mut self.refs, value) {
            (None, Value::Object(link)) => self.refs = Some(Value::Array(vec![related(rel, link)])),
            (Some(Value::Array(list)), Value::Object(link)) => list.push(related(rel, link)),
            (Some(Value::Array(list)), value) => list.push(serde_json::json!({ "rel": rel, "id": value })),
            (Some(Value::Object(map)), value) => {
                let mut name = rel.to_owned();
                let mut n = 2;
                while map.contains_key(&name) {
                    name = format!("{rel}{n}");
                    n += 1;
                }
                map.insert(name, if let Value::Object(link) = value { related(rel, link) } else { value });
            }
            (refs, value) => {
                let mut map = Map::new();
                if let Some(foreign) = refs.take() {
                    map.insert("ref".into(), foreign);
                }
                map.insert(rel.into(), value);
                *refs = Some(Value::Object(map));
            }
        }
    }
}

/// Defines builder methods that set a field.
macro_rules! builders {
    ($($method:ident: $($field:ident).+ = $type:ty;)*) => {
        impl Draft {
            $(
                #[must_use]
                #[doc = concat!("Sets `", stringify!($($field).+), "`.")]
                pub fn $method(mut self, value: impl Into<$type>) -> Self {
                    self.$($field).+ = value.into();
                    self
                }
            )*
        }
    };
}

builders! {
    with_timestamp: timestamp = Option<Box<str>>;
    with_owner: owner = Owner;
    with_scope: scope = Scope;
    with_phase: phase = Phase;
    with_surface: surface = Surface;
    with_persistence: persistence = Persistence;
    with_audience: audience = Audience;
    with_agent: ids.agent = Option<AgentId>;
    with_message: ids.message = Option<MessageId>;
    with_part: ids.part = Option<PartId>;
    with_call: ids.tool_call = Option<ToolCallId>;
    with_action: ids.action = Option<ActionId>;
    with_task: ids.task = Option<TaskId>;
    with_artifact: ids.artifact = Option<ArtifactId>;
    with_evidence: ids.evidence = Option<EvidenceId>;
}

fn related(rel: &str, mut link: Map<String, Value>) -> Value {
    link.shift_insert(0, "rel".into(), Value::String(rel.into()));
    Value::Object(link)
}

/// The room for the JSON of an envelope with a short text, in bytes.
const SHORT_BYTES: usize = 512;

/// One envelope of a log.
///
/// It borrows its draft: a draft is large, and most envelopes are written once and dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope<'d> {
    /// Its number in the log.
    pub sequence: Sequence,
    /// UUID v7: unique, and ordered by time across logs.
    pub event_id: Uuid,
    /// When the server accepted the fact, RFC 3339 in UTC.
    pub received_at: &'d str,
    /// What it says.
    pub draft: Cow<'d, Draft>,
}

impl Envelope<'_> {
    /// Appends the envelope's JSON to `out`.
    ///
    /// Every row is written by this function, so it writes names and words as they are, without a serializer between.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let d = &self.draft;
        out.reserve(SHORT_BYTES);
        out.extend_from_slice(b"{\"type\":");
        write_text(out, d.event_type.as_str());
        let mut event_id = Uuid::encode_buffer();
        write_member(out, "eventId", self.event_id.as_hyphenated().encode_lower(&mut event_id));
        write_number(out, "sequence", self.sequence.0);
        if let Some(n) = d.source_sequence {
            write_number(out, "sourceSequence", n);
        }
        if let Some(timestamp) = &d.timestamp {
            write_member(out, "timestamp", timestamp);
        }
        write_member(out, "receivedAt", self.received_at);
        d.ids.for_each(|member, id| write_member(out, member, id));
        write_member(out, "owner", d.owner.as_str());
        write_member(out, "scope", d.scope.as_str());
        write_member(out, "phase", d.phase.as_str());
        write_member(out, "surface", d.surface.as_str());
        write_member(out, "persistence", d.persistence.as_str());
        if let Some(control) = &d.control {
            write_member(out, "control", control.as_str());
        }
        if let Some(topology) = &d.topology {
            write_member(out, "topology", topology.as_str());
        }
        write_member(out, "audience", d.audience.as_str());
        if let Some(start) = d.start_audience {
            write_member(out, "startAudience", start.as_str());
        }
        if !d.payload.is_empty() {
            write_name(out, "payload");
            d.payload.write_json(out);
        }
        for (member, value) in [("refs", &d.refs), ("rawEventRef", &d.raw_event_ref)] {
            if let Some(value) = value {
                write_name(out, member);
                write_value(out, value);
            }
        }
        for (member, value) in &d.extra {
            out.push(b',');
            write_text(out, member);
            out.push(b':');
            write_value(out, value);
        }
        out.push(b'}');
    }
}

impl Serialize for Envelope<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut json = Vec::new();
        self.write_json(&mut json);
        serde_json::from_slice::<Box<RawValue>>(&json).map_err(serde::ser::Error::custom)?.serialize(to)
    }
}

/// Writes the name of a member that is not the first. The name needs no escapes.
fn write_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_member(out: &mut Vec<u8>, name: &str, text: &str) {
    write_name(out, name);
    write_text(out, text);
}

fn write_number(out: &mut Vec<u8>, name: &str, number: u64) {
    write_name(out, name);
    write_plain(out, &number);
}
