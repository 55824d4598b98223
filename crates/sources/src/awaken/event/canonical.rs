//! Awaken's canonical wrapper: events as Awaken's server stores and replays them.
//!
//! The wrapper has two forms, distinguished by the position of `event_kind`: a stored event, and the draft of one
//! (`{fidelity, draft}`). The adapter handles the inner event like a bare one. The wrapper adds the visibility, the
//! time, the run and the event's names in Awaken's store (`rawEventRef`).
//!
//! Two rules apply only to wrapped events. Awaken stores a suspended call twice, under two kinds; both are one
//! question. A wrapped event names its run, so the adapter can identify and flag events of another run.

use super::{Event, Native, TYPE};
use crate::Fact;
use crate::members::{conversation_ids, malformed, take_text, take_time};
use data_encoding::HEXLOWER;
use proscenium_model::{Draft, ThreadId};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The wrapper's members about the event itself, with their names in `rawEventRef`.
#[rustfmt::skip]
const MARKS: &[(&str, &str)] = &[
    ("event_id", "eventId"), ("event_kind", "eventKind"), ("causation_id", "causationId"), ("correlation_id", "correlationId"),
    ("cursors_by_scope", "cursors"), ("origin", "origin"), ("visibility", "visibility"), ("fidelity", "fidelity"),
    ("schema_version", "schemaVersion"),
];

/// The members around a native event.
pub(in crate::awaken) struct Wrapper {
    pub kind: String,
    /// The event's names in Awaken's store.
    marks: Map<String, Value>,
    pub thread: Option<String>,
    pub run: Option<String>,
    created: Option<Box<str>>,
    pub is_public: bool,
    /// The hash of the question that the event asks.
    pub question: Option<String>,
    /// Unknown members.
    pub rest: Fact,
}

/// Whether the fact is a wrapped event.
pub(super) fn is_wrapped(fact: &Fact) -> bool {
    let names_kind = |of: &Fact| of.get("event_kind").is_some_and(Value::is_string);
    !fact.get(TYPE).is_some_and(Value::is_string)
        && (names_kind(fact) || fact.get("draft").and_then(Value::as_object).is_some_and(names_kind))
}

/// Converts both forms of the wrapper into one.
fn flattened(mut fact: Fact) -> Fact {
    let Some(Value::Object(mut inner)) = fact.shift_remove("draft") else { return fact };
    for (member, value) in fact {
        inner.entry(member).or_insert(value);
    }
    inner
}

impl Wrapper {
    /// Reads the wrapper. The caller has already taken the payload.
    fn take(mut fact: Fact) -> Self {
        let kind = fact.get("event_kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_public = match fact.get("visibility") {
            // Without a visibility the event type table decides. Any value but `public` fails closed.
            None | Some(Value::Null) => true,
            Some(said) => said == "public",
        };
        let taken = |(theirs, ours): &(&str, &str)| Some(((*ours).to_owned(), fact.shift_remove(*theirs)?));
        let marks = MARKS.iter().filter_map(taken).filter(|(_, value)| !value.is_null()).collect();
        let (thread, run) = (take_scope(&mut fact, "thread"), take_scope(&mut fact, "run"));
        let created = take_time(&mut fact, "created_at");
        Self { kind, marks, thread, run, created, is_public, question: None, rest: fact }
    }

    /// Adds missing ids to a boundary event. Other events have no ids of their own.
    fn complete(&self, native: &mut Fact) {
        if !matches!(native.get(TYPE).and_then(Value::as_str), Some("run_start" | "run_finish")) {
            return;
        }
        for (member, id) in [("thread_id", &self.thread), ("run_id", &self.run)] {
            let lacks = native.get(member).is_none_or(|own| own.is_null() || own == "");
            native.extend(id.clone().filter(|_| lacks).map(|id| (member.to_owned(), id.into())));
        }
    }

    /// Adds the wrapper's time, names and ids to a draft of the event.
    pub fn mark(&self, draft: &mut Draft) {
        draft.timestamp = draft.timestamp.take().or_else(|| self.created.clone());
        draft.raw_event_ref = Some(Value::Object(self.marks.clone())).filter(|_| !self.marks.is_empty());
        let thread = self.thread.as_deref().and_then(|id| ThreadId::new(id).ok());
        draft.ids.fill_from(&conversation_ids(thread.as_ref()));
    }
}

/// Takes the wrapper's thread or run id. A scope with a different id stays and is carried.
fn take_scope(fact: &mut Fact, kind: &str) -> Option<String> {
    let member = format!("{kind}_id");
    let mut id = take_text(fact, &member).filter(|id| !id.is_empty());
    if let Some(Value::Array(scopes)) = fact.get_mut("scopes") {
        scopes.retain(|scope| {
            let is_whole = scope.as_object().is_some_and(|scope| scope.len() == 2);
            let named = scope.get(&member).and_then(Value::as_str).filter(|_| is_whole && scope["scope_type"] == kind);
            let Some(named) = named.filter(|named| id.as_deref().is_none_or(|id| id == *named)) else { return true };
            id.get_or_insert_with(|| named.to_owned());
            false
        });
        if scopes.is_empty() {
            fact.shift_remove("scopes");
        }
    }
    id
}

/// Hashes the question of a suspended call. `None`: the event is no question.
fn question(native: &Fact) -> Option<String> {
    let status = native.get("result").and_then(|result| result.get("status"));
    let outcome = native.get("outcome").filter(|outcome| outcome.is_string());
    let asks = outcome.map_or_else(|| status.is_some_and(|status| status == "pending"), |outcome| outcome == "suspended");
    (native[TYPE] == "tool_call_done" && asks)
        .then(|| hash_of(&serde_json::to_string(native).expect("JSON object keys are strings")))
}

/// Parses a wrapped event.
pub(super) fn parse(fact: Fact) -> Event {
    let mut fact = flattened(fact);
    let is_native = |payload: &Value| payload.get(TYPE).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let Some(payload) = fact.get_mut("payload").filter(|payload| is_native(payload)).and_then(Value::as_object_mut) else {
        let kind = fact.get("event_kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let expected = "payload as the native event: an object that names its event_type";
        return Event::Malformed(malformed(&kind, fact, expected).into());
    };
    let mut native = std::mem::take(payload);
    fact.shift_remove("payload");
    let mut wrapper = Wrapper::take(fact);
    wrapper.complete(&mut native);
    wrapper.question = question(&native);
    Event::Wrapped(wrapper.into(), Native::parse(native))
}

/// Hashes a text, to compare it.
pub(in crate::awaken) fn hash_of(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..8])
}
