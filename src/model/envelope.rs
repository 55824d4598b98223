//! The envelope: one fact in the Agent UI vocabulary, with its place in the log.

use super::audience::Audience;
use super::cursor::Sequence;
use super::id::Ids;
use super::taxonomy::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

/// What an adapter makes of a fact: the envelope's content, not yet anywhere in a log.
///
/// [`Draft::new`] fills every dimension from the class table; an adapter then changes what its source knows better.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// `type` on the wire.
    pub class: EventType,
    /// The producer's own time, RFC 3339 UTC, where it gave one.
    pub timestamp: Option<Box<str>>,
    /// The producer's own number for the fact, where it gave one.
    pub source_sequence: Option<u64>,
    pub ids: Ids,
    pub owner: Owner,
    pub scope: Scope,
    pub phase: Phase,
    pub surface: Surface,
    pub persistence: Persistence,
    pub control: Option<Control>,
    pub topology: Option<Topology>,
    pub audience: Audience,
    /// The audience of the thing that this is about, stamped by the ledger; `None` for what is about no thing.
    pub start_audience: Option<Audience>,
    /// The audience of the tool call that an action is about. Never on the wire: it would tell of a hidden call.
    pub call_audience: Option<Audience>,
    /// Of a patch: the narrowest audience that lacks something on which it builds. Never on the wire, for the same reason.
    pub missed_by: Option<Audience>,
    /// Of an end: whether an abort looks like this, too, in its source. Then a request to stop decides what it was. Never on the
    /// wire.
    pub may_be_abort: bool,
    pub payload: Map<String, Value>,
    /// Ids and links to elsewhere: an array of `{rel, …}`, or a map by relation.
    pub refs: Option<Value>,
    /// A safe reference to the raw event, never the event.
    pub raw_event_ref: Option<Value>,
    /// Top-level members that nobody here knows, carried as they came.
    pub extra: Map<String, Value>,
}

impl Draft {
    /// A draft of this class with the class table's dimensions, no ids and an empty payload.
    #[must_use]
    pub fn new(class: EventType) -> Self {
        let defaults = class.defaults();
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
            may_be_abort: false,
            payload: Map::new(),
            refs: None,
            raw_event_ref: None,
            extra: Map::new(),
            class,
        }
    }

    /// Sets a payload member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.payload.insert(member.into(), value.into());
        self
    }

    /// A member of the fact: from its top level, else from its payload.
    #[must_use]
    pub fn said(&self, member: &str) -> Option<&Value> {
        self.extra.get(member).or_else(|| self.payload.get(member))
    }

    /// The text of a payload member, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.payload.get(member).and_then(Value::as_str)
    }

    /// Adds a reference by its relation. `refs` is an array of `{rel, …}` when `value` is an object and nothing else made it
    /// a map, else a map by relation.
    pub fn add_ref(&mut self, rel: &str, value: Value) {
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

fn related(rel: &str, mut link: Map<String, Value>) -> Value {
    link.shift_insert(0, "rel".into(), Value::String(rel.into()));
    Value::Object(link)
}

/// One envelope of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    pub sequence: Sequence,
    /// UUID v7: unique, and ordered by time across logs.
    pub event_id: Uuid,
    /// When the server took the fact, RFC 3339 UTC.
    pub received_at: Box<str>,
    pub draft: Draft,
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let d = &self.draft;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("type", &d.class)?;
        map.serialize_entry("eventId", self.event_id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()))?;
        map.serialize_entry("sequence", &self.sequence)?;
        if let Some(n) = d.source_sequence {
            map.serialize_entry("sourceSequence", &n)?;
        }
        if let Some(timestamp) = &d.timestamp {
            map.serialize_entry("timestamp", timestamp)?;
        }
        map.serialize_entry("receivedAt", &self.received_at)?;
        let mut failed = None;
        d.ids.for_each(|member, id| {
            if failed.is_none() {
                failed = map.serialize_entry(member, id).err();
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        map.serialize_entry("owner", &d.owner)?;
        map.serialize_entry("scope", &d.scope)?;
        map.serialize_entry("phase", &d.phase)?;
        map.serialize_entry("surface", &d.surface)?;
        map.serialize_entry("persistence", &d.persistence)?;
        if let Some(control) = &d.control {
            map.serialize_entry("control", control)?;
        }
        if let Some(topology) = &d.topology {
            map.serialize_entry("topology", topology)?;
        }
        map.serialize_entry("audience", &d.audience)?;
        if let Some(start) = &d.start_audience {
            map.serialize_entry("startAudience", start)?;
        }
        if !d.payload.is_empty() {
            map.serialize_entry("payload", &d.payload)?;
        }
        if let Some(refs) = &d.refs {
            map.serialize_entry("refs", refs)?;
        }
        if let Some(raw) = &d.raw_event_ref {
            map.serialize_entry("rawEventRef", raw)?;
        }
        for (member, value) in &d.extra {
            map.serialize_entry(member, value)?;
        }
        map.end()
    }
}

impl Envelope {
    /// Appends the envelope's JSON to `out`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("an envelope has only string keys, and a Vec takes every byte");
    }
}
