//! The replay of a loaded session: history, not new work.
//!
//! An agent sends the whole session again as ordinary updates. What the log has already stays as it is; the rest becomes
//! a window of messages.

use super::calls::{content_text, is_final};
use super::{EventHandler, block_text};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{diagnostic, id_from, next_id, repair, take_id, take_list, take_text};
use proscenium_model::{Draft, EventType, MessageId, PartKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The kinds of updates that repeat content.
pub(super) const CONTENT: &[&str] = &[
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message",
    "agent_message",
    "agent_thought",
    "tool_call",
    "tool_call_update",
    "tool_call_content_chunk",
    "plan",
    "plan_update",
    "plan_removed",
];

/// The messages that the adapter makes of a replay begin with this.
const HISTORY: &str = "acp-history";

/// A message of a replay, as far as its chunks have come.
///
/// An agent may cut a message in other places than before, so only all chunks together are the text that the log has. The
/// messages of the chunks are retracted then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PastMessage {
    event_type: Box<str>,
    named: Option<MessageId>,
    text: TextDigest,
    /// The numbers of the messages that the adapter made of the chunks. None, if the last is below the first.
    first: u64,
    last: u64,
}

impl EventHandler<'_> {
    /// Recognises a replay whose request is not visible: only a replay shows a prompt outside a turn.
    pub(super) fn detect_replay(&mut self, kind: &str) {
        let memory = &mut *self.memory;
        let is_replay = kind == "user_message_chunk" && memory.turns.is_empty() && !memory.is_second;
        if let Some(session) = self.session.clone().filter(|_| is_replay && memory.sees_responses && !memory.sees_client) {
            memory.loading.add(session);
        }
    }

    pub(super) fn history(&mut self, kind: &str, update: Fact) {
        if !kind.ends_with("_chunk") {
            self.memory.past = None;
        }
        match kind {
            "user_message_chunk" | "user_message" => self.past_text(kind, "user", PartKind::UserText, update),
            "agent_message_chunk" | "agent_message" => self.past_text(kind, "assistant", PartKind::AssistantText, update),
            "agent_thought_chunk" | "agent_thought" => self.past_text(kind, "assistant", PartKind::ReasoningSummary, update),
            "tool_call" | "tool_call_update" => self.past_call(kind, update),
            _ => self.push(diagnostic("history", kind, update)),
        }
    }

    fn past_text(&mut self, event_type: &str, role: &str, kind: PartKind, mut update: Fact) {
        let named: Option<MessageId> = take_id(&mut update, "messageId");
        let blocks = take_list(&mut update, "content");
        let text: String = blocks.iter().filter_map(block_text).collect();
        let past = self.past_message(event_type, named.as_ref(), &text);
        if self.memory.texts.has(&TextDigest::of(text.as_bytes())) || self.memory.texts.has(&past.text) {
            (past.first..=past.last).for_each(|n| self.push(repair(&id_from(&format!("{HISTORY}-{n}")), json!([]))));
            self.memory.past = Some(PastMessage { first: past.last + 1, ..past });
            return self.repeated(event_type, text, update);
        }
        // Each chunk is a message of its own, because a window never adds to a message that it has.
        let message: MessageId = next_id(HISTORY, &mut self.memory.messages_made);
        self.memory.past = Some(PastMessage { last: self.memory.messages_made, ..past });
        let mut parts = vec![json!({ "partId": "text", "kind": kind.as_str(), "text": [text] })];
        parts.retain(|part| part["text"][0] != "");
        parts.extend(blocks.into_iter().filter(|block| block_text(block).is_none()).map(|block| {
            let kind = block.get("type").cloned().unwrap_or(Value::Null);
            json!({ "kind": kind, "content": block })
        }));
        let mut shaped =
            Map::from_iter([("messageId".to_owned(), Value::from(message.as_str())), ("role".to_owned(), role.into())]);
        shaped.extend(named.map(|named| ("sourceMessageId".to_owned(), named.as_str().into())));
        shaped.insert("parts".into(), parts.into());
        shaped.extend(update);
        self.window(shaped);
    }

    /// The message of a replay with a further chunk: the one that this chunk continues, or a new one.
    fn past_message(&mut self, event_type: &str, named: Option<&MessageId>, text: &str) -> PastMessage {
        let made = self.memory.messages_made;
        let continues = |past: &PastMessage| {
            event_type == &*past.event_type && event_type.ends_with("_chunk") && past.named.as_ref() == named && past.last == made
        };
        let new = || PastMessage {
            event_type: event_type.into(),
            named: named.cloned(),
            text: TextDigest::default(),
            first: made + 1,
            last: made,
        };
        let mut past = self.memory.past.take().filter(continues).unwrap_or_else(new);
        past.text.update(text.as_bytes());
        past
    }

    fn past_call(&mut self, event_type: &str, mut update: Fact) {
        let Some(call) = self.call_of(&update) else { return self.push(diagnostic("history", event_type, update)) };
        if self.memory.calls.know(&call, &self.out) {
            return self.push(diagnostic("repeated", event_type, update));
        }
        update.shift_remove("toolCallId");
        let ends = update.get("status").and_then(Value::as_str).is_some_and(is_final);
        let kind = if event_type == "tool_call" { PartKind::ToolCall } else { PartKind::ToolResult };
        let name = self.tool_name.take().or_else(|| take_text(&mut update, "name"));
        let mut part =
            Map::from_iter([("partId".to_owned(), Value::from(call.as_str())), ("kind".to_owned(), kind.as_str().into())]);
        part.insert("toolCallId".into(), call.as_str().into());
        part.extend(name.map(|name| ("toolName".to_owned(), name.into())));
        if ends && let Some(text) = content_text(update.get("content")) {
            part.insert("text".into(), json!([text]));
        }
        part.extend(update);
        let message: MessageId = next_id(HISTORY, &mut self.memory.messages_made);
        self.window(Map::from_iter([
            ("messageId".to_owned(), message.as_str().into()),
            ("role".to_owned(), "tool".into()),
            ("parts".to_owned(), json!([part])),
        ]));
    }

    fn window(&mut self, message: Map<String, Value>) {
        self.push(Draft::new(EventType::MessagesSnapshot).with("mode", "window").with("messages", json!([message])));
    }
}
