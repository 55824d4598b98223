//! The sent state: ids, lengths and digests, but no contents.
//!
//! Of a call it also has the members that decide how to translate its next change.

use super::call::{JsonCompactor, KnownCall, name};
use super::events::Bracket;
use super::items::{self, Body, Entry, Item, MessageIds, MessageKey, PartKind, is_message, part_key};
use crate::cow_map::CowMap;
use crate::frames::ActivityView;
use crate::sent_text::SentText;
use proscenium_projection::members::TypedContent;
use proscenium_projection::{message, surface};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A message that the reader has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SentMessage {
    Text {
        id: Box<str>,
        role: &'static str,
        digest: SentText,
    },
    Reasoning {
        id: Box<str>,
        digest: SentText,
    },
    Call {
        /// The id of the message.
        id: Box<str>,
        call: Box<str>,
        digest: SentText,
        compactor: JsonCompactor,
        call_state: KnownCall,
        /// Whether it belongs to the streamed run.
        is_current: bool,
    },
    Result(SentText),
    Activity {
        id: Box<str>,
        kind: Box<str>,
        surface: Option<SentSurface>,
    },
}

/// A surface that the reader has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SentSurface {
    /// The agent's name of it.
    pub id: Box<str>,
    /// Its state, if that is small and whole: then each change sends it whole again. Else changes are appended.
    pub state: Option<Arc<Map<String, Value>>>,
}

/// The largest state of a surface that each change sends whole, in bytes of its JSON text.
pub(super) const WHOLE_SURFACE_BYTES_MAX: usize = 16 * 1024;

impl SentSurface {
    /// A surface in this state.
    pub fn of(state: &Map<String, Value>) -> Self {
        let is_kept = !surface::is_partial(state) && json!(state).to_string().len() <= WHOLE_SURFACE_BYTES_MAX;
        let id = state.read(surface::SURFACE_ID).unwrap_or_default().into();
        Self { id, state: is_kept.then(|| Arc::new(state.clone())) }
    }
}

impl SentMessage {
    pub fn of(id: &str, item: &Item, is_current: bool) -> Self {
        let id = Box::from(id);
        match &item.body {
            Body::Text { role, text, .. } => Self::Text { id, role, digest: SentText::of(text) },
            Body::Reasoning { text, .. } => Self::Reasoning { id, digest: SentText::of(text) },
            Body::Call { id: call, arguments, compactor, call_state, .. } => Self::Call {
                id,
                call: call.clone(),
                digest: SentText::of(arguments),
                compactor: compactor.clone(),
                call_state: call_state.clone(),
                is_current,
            },
            Body::Result { result, .. } => Self::Result(result_digest(&result.content, &result.metadata)),
            Body::Activity { kind, content } => {
                let surface = (**kind == *surface::KIND).then(|| SentSurface::of(content));
                Self::Activity { id, kind: kind.clone(), surface }
            }
        }
    }

    /// The digest of its text, if the text can grow.
    pub fn digest_mut(&mut self) -> Option<&mut SentText> {
        match self {
            Self::Text { digest, .. } | Self::Reasoning { digest, .. } | Self::Call { digest, .. } => Some(digest),
            Self::Result(_) | Self::Activity { .. } => None,
        }
    }

    /// Its bracket, if it has one.
    pub fn bracket(&self) -> Option<Bracket> {
        match self {
            Self::Text { id, .. } => Some(Bracket::Text(id.clone())),
            Self::Reasoning { id, .. } => Some(Bracket::Reasoning(id.clone())),
            Self::Call { call, .. } => Some(Bracket::Call(call.clone())),
            Self::Result(_) | Self::Activity { .. } => None,
        }
    }

    /// The events that reopen its bracket.
    pub fn reopen(&self) -> Vec<Value> {
        match self {
            Self::Text { id, role, .. } => vec![json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": role })],
            Self::Reasoning { id, .. } => vec![
                json!({ "type": "REASONING_START", "messageId": id }),
                json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
            ],
            Self::Call { id, call, call_state, .. } => {
                let mut start =
                    json!({ "type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name(call_state.members()) });
                if id != call {
                    start["parentMessageId"] = (**id).into();
                }
                vec![start]
            }
            Self::Result(_) | Self::Activity { .. } => Vec::new(),
        }
    }
}

/// The digest of a result and its metadata.
pub(super) fn result_digest(content: &str, metadata: &Map<String, Value>) -> SentText {
    let mut digest = SentText::of(content);
    digest.push(&json!(metadata).to_string());
    digest
}

/// The messages that the client sent as its own copy of the thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClientMessages {
    texts: HashMap<Box<str>, ClientCopy>,
    calls: HashMap<Box<str>, SentText>,
    /// The id of the tool message for each call.
    results: HashMap<Box<str>, Box<str>>,
}

/// The client's copy of one message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ClientCopy {
    Text(SentText),
    /// More than text, which a text stream must not change.
    NonText,
}

impl ClientMessages {
    pub fn of(messages: &[Value]) -> Self {
        let mut has = Self::default();
        for message in messages {
            let text = |member: &str| message.get(member).and_then(Value::as_str);
            let Some(id) = text("id") else { continue };
            if let (Some("tool"), Some(call)) = (text("role"), text("toolCallId")) {
                has.results.insert(call.into(), id.into());
                continue;
            }
            let had = match message.get("content") {
                Some(Value::String(text)) => Some(ClientCopy::Text(SentText::of(text))),
                Some(Value::Array(_)) => Some(ClientCopy::NonText),
                _ => None,
            };
            has.texts.extend(had.map(|had| (id.into(), had)));
            for made in message.get("toolCalls").and_then(Value::as_array).into_iter().flatten() {
                if let Some(call) = made.get("id").and_then(Value::as_str) {
                    let arguments = made.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default();
                    has.calls.insert(call.into(), SentText::of(arguments));
                }
            }
        }
        has
    }

    /// The client's copy of a new message.
    pub fn copy_of(&self, id: &str, item: &Item) -> Option<ClientCopy> {
        match &item.body {
            Body::Text { .. } | Body::Reasoning { .. } => self.texts.get(id).copied(),
            Body::Call { id: call, .. } => self.calls.get(call).copied().map(ClientCopy::Text),
            Body::Result { call, .. } => self.results.contains_key(call).then_some(ClientCopy::NonText),
            Body::Activity { .. } => None,
        }
    }

    /// The id of the client's tool message for a call.
    pub fn result(&self, call: &str) -> Option<&str> {
        self.results.get(call).map(|id| &**id)
    }
}

/// An activity that was sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SentActivity {
    /// Its position among the activities.
    pub position: u32,
    /// The teammate that it belongs to.
    pub agent: Option<Box<str>>,
    /// The parts, if it is a message.
    pub message: Option<SentParts>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SentParts {
    pub role: Box<str>,
    pub parts: Arc<Vec<(MessageKey, PartKind)>>,
}

impl SentParts {
    /// Adds the next part.
    pub fn add(&mut self, message: &str, part: &Map<String, Value>) -> (MessageKey, PartKind) {
        let of = PartKind::of(part, &self.role);
        let is_first = !self.parts.iter().any(|(_, of)| *of == PartKind::Text);
        let key = part_key(message, part, of, is_first);
        Arc::make_mut(&mut self.parts).push((key.clone(), of));
        (key, of)
    }
}

/// Everything that the server knows about the reader's copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SentState {
    pub ids: MessageIds,
    pub messages: CowMap<MessageKey, SentMessage>,
    /// By kind, then id.
    activities: HashMap<Box<str>, CowMap<Box<str>, SentActivity>>,
    activity_count: u32,
    /// Messages outside the window: the server sends no further events about them.
    pub omitted: CowMap<MessageKey, ()>,
    pub client: Arc<ClientMessages>,
}

impl SentState {
    /// Creates the state for a client that sent these messages.
    pub fn of(client: Arc<ClientMessages>) -> Self {
        Self { client, ..Self::default() }
    }

    /// Records an activity and returns its position among the others.
    pub fn record_activity(&mut self, activity: &ActivityView, agent: Option<Box<str>>) -> u32 {
        let ids = self.activities.entry(activity.kind.clone()).or_default();
        let place = ids.get_or_insert_with(activity.id.clone(), || {
            self.activity_count += 1;
            SentActivity { position: self.activity_count, agent, message: None }
        });
        if is_message(activity) {
            let role = activity.content.read(message::ROLE).unwrap_or_default().into();
            let mut parts = SentParts { role, parts: Arc::default() };
            for part in items::parts(&activity.content) {
                parts.add(&activity.id, part);
            }
            place.message = Some(parts);
        }
        place.position
    }

    /// The record of a sent activity.
    pub fn activity(&self, kind: &str, id: &str) -> Option<&SentActivity> {
        self.activities.get(kind)?.get(id)
    }

    /// The record of a sent activity, to be changed.
    pub fn activity_mut(&mut self, kind: &str, id: &str) -> Option<&mut SentActivity> {
        self.activities.get_mut(kind)?.get_mut(id)
    }

    /// Records the messages of a snapshot.
    pub fn record_entries(&mut self, entries: &[Entry]) {
        for entry in entries.iter().flat_map(|entry| std::iter::once(entry).chain(entry.result.as_deref())) {
            self.messages.insert(entry.item.key.clone(), SentMessage::of(&entry.id, &entry.item, entry.is_current));
        }
    }

    /// The calls that the reader has without a result.
    pub fn calls_without_result(&self) -> HashSet<Box<str>> {
        let sent = self.messages.keys().filter_map(|key| match key {
            MessageKey::Call(call) if !self.messages.contains_key(&MessageKey::Result(call.clone())) => Some(call),
            _ => None,
        });
        let theirs = self.client.calls.keys().filter(|call| self.client.result(call).is_none());
        sent.chain(theirs).cloned().collect()
    }

    /// Reduces the client's own messages to `theirs`; for the rest the client now has the log's messages.
    pub fn keep_client_messages(&mut self, theirs: &[Value]) {
        let mut has = ClientMessages::of(theirs);
        let answered = |call: &str| self.messages.contains_key(&MessageKey::Result(call.into()));
        let results = self.client.results.iter().filter(|(call, _)| answered(call));
        has.results.extend(results.map(|(call, id)| (call.clone(), id.clone())));
        self.client = Arc::new(has);
    }

    /// The id of a new message.
    pub fn assign_id(&mut self, item: &Item) -> Box<str> {
        if let Body::Result { call, id, .. } = &item.body {
            if let Some(theirs) = self.client.result(call) {
                return theirs.into();
            }
            if let Some(given) = id.as_deref().filter(|id| self.ids.reserve(id)) {
                return given.into();
            }
        }
        self.ids.assign(&item.key, item.run.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_messages_are_indexed_by_their_ids() {
        let has = ClientMessages::of(&[
            json!({"id": "u", "role": "user", "content": "hi"}),
            json!({"id": "v", "role": "user", "content": [{"type": "image"}]}),
            json!({"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "x", "arguments": "{}"}}]}),
            json!({"id": "t", "role": "tool", "toolCallId": "c", "content": "1"}),
            json!({"role": "user", "content": "nameless"}),
        ]);
        assert!(matches!(has.texts["u"], ClientCopy::Text(digest) if digest == SentText::of("hi")));
        assert!(matches!(has.texts["v"], ClientCopy::NonText));
        assert_eq!((has.texts.len(), has.calls["c"], has.result("c")), (2, SentText::of("{}"), Some("t")));
    }
}
