//! Messages in blocks (dialect B).
//!
//! Only the start of a message names it. Later events have only the namespace, whose open message they continue.

use super::EventHandler;
use super::calls::unnamed_call;
use super::event::{Dialect, object};
use super::messages::Known;
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{id_of, next_id, take_id, take_text};
use proscenium_model::{EventType, MessageId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most calls of a message in blocks.
const CALLS_MAX: usize = 64;

/// The open message of a namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenMessage {
    pub namespace: String,
    id: MessageId,
    /// Whether the dialect owns the message. Another one may bring the same.
    is_ours: bool,
    /// Whether it is a tool's message: its result comes from the tool's own event.
    is_tool: bool,
    call: Option<ToolCallId>,
    text: TextDigest,
    /// The calls of the message by the index of their block.
    calls: Vec<(u64, ToolCallId)>,
}

impl EventHandler<'_> {
    pub(super) fn block_event(&mut self, mut data: Fact) {
        self.ensure_started();
        let event = take_text(&mut data, "event").unwrap_or_default();
        // A tool's message stands in a namespace of its own below its agent's.
        let is_tool_start = event == "message-start" && data.get("role").and_then(Value::as_str) == Some("tool");
        if is_tool_start || self.open().is_some_and(|open| open.is_tool) {
            return self.tool_message_event(&event, data);
        }
        self.enter_child(None, None);
        if event == "message-start" {
            return self.block_message_start(data);
        }
        let Some((id, is_ours)) = self.open().map(|open| (open.id.clone(), open.is_ours)) else {
            return self.keep("block_without_message", &event, Value::Object(data));
        };
        let index = data.get("index").and_then(Value::as_u64).unwrap_or_default();
        match event.as_str() {
            "content-block-start" if is_ours => self.block_start(&id, index, &object(data.shift_remove("content"))),
            "content-block-delta" if is_ours => self.block_delta(&id, index, &object(data.shift_remove("delta"))),
            "content-block-finish" if is_ours => self.block_finish(&id, index, object(data.shift_remove("content"))),
            "message-finish" => self.block_message_finish(&id, data),
            "error" => self.keep("message_error", "messages", Value::Object(data)),
            _ if is_ours => self.keep("block", &event, Value::Object(data)),
            _ => {}
        }
    }

    fn open(&self) -> Option<&OpenMessage> {
        self.memory.open.find(&self.namespace)
    }

    fn block_message_start(&mut self, mut data: Fact) {
        let role = Self::role(&mut data);
        let id: MessageId = take_id(&mut data, "id").unwrap_or_else(|| next_id(super::MADE, &mut self.memory.messages_made));
        let is_ours = role != "human" && self.owns(&id, Dialect::Blocks);
        self.settle_answers();
        let namespace = self.namespace.clone();
        let (text, calls) = (TextDigest::default(), Vec::new());
        self.memory.open.add(OpenMessage { namespace, id, is_ours, is_tool: false, call: None, text, calls });
    }

    fn block_start(&mut self, message: &MessageId, index: u64, content: &Fact) {
        let kind = content.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind.starts_with("tool_call") {
            let name = content.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let named = content.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
            let call = named.map_or_else(|| unnamed_call(message, self.nth_call(index)), super::id_from);
            if let Some(open) = self.memory.open.find_mut(&self.namespace).filter(|open| open.calls.len() < CALLS_MAX) {
                open.calls.push((index, call.clone()));
            }
            if self.begins_call(&call, true) {
                self.start_call(&call, &name, Some(message), true);
            }
            if let Some(args) = content.get("args").and_then(Value::as_str).filter(|args| !args.is_empty()) {
                self.args_piece(&call, args);
            }
            return;
        }
        self.block_text(message, index, content);
    }

    /// The place of a block's call among the calls of the open message, as the whole message counts them.
    fn nth_call(&self, index: u64) -> u64 {
        let calls = self.open().map_or(&[][..], |open| &open.calls);
        calls.iter().position(|(at, _)| *at == index).unwrap_or(calls.len()) as u64
    }

    fn block_delta(&mut self, message: &MessageId, index: u64, delta: &Fact) {
        if delta.get("type").and_then(Value::as_str) == Some("tool-call-delta") {
            let call = self.open().and_then(|open| open.calls.iter().rfind(|(at, _)| *at == index).map(|(_, call)| call.clone()));
            if let (Some(call), Some(args)) = (call, delta.get("args").and_then(Value::as_str)) {
                self.args_piece(&call, args);
            }
            return;
        }
        self.block_text(message, index, delta);
    }

    /// Reports the text of a block's start or delta.
    fn block_text(&mut self, message: &MessageId, index: u64, of: &Fact) {
        let text = |member: &str| of.get(member).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = of.get("type").and_then(Value::as_str).unwrap_or_default();
        let (text, is_reasoning) = match kind {
            "text" | "text-delta" => (text("text"), false),
            "reasoning" | "reasoning-delta" => (text("reasoning"), true),
            "thinking" | "thinking-delta" => (text("thinking"), true),
            // A block that is no text is reported whole, when it is finished.
            _ => (None, false),
        };
        if let Some(text) = text {
            if let Some(open) = self.memory.open.find_mut(&self.namespace).filter(|_| !is_reasoning) {
                open.text.update(text.as_bytes());
            }
            self.piece(message, &index.to_string(), is_reasoning, text);
        }
    }

    fn block_finish(&mut self, message: &MessageId, index: u64, mut content: Fact) {
        let part = super::id_from(&index.to_string());
        match content.get("type").and_then(Value::as_str) {
            Some("text") => {
                let draft = self.part(EventType::TextFinal, message, part).with_text(take_text(&mut content, "text"));
                self.push(draft);
            }
            Some(kind @ ("reasoning" | "thinking")) => {
                let kind = kind.to_owned();
                let draft = self.part(EventType::ReasoningSummary, message, part).with_text(take_text(&mut content, &kind));
                self.push(draft);
            }
            Some("tool_call" | "tool_call_chunk") => {
                self.whole_call(message, self.nth_call(index), Value::Object(content), false);
            }
            Some("invalid_tool_call") => self.invalid_call(message, self.nth_call(index), Value::Object(content), false),
            _ => self.keep("block", "content-block-finish", Value::Object(content)),
        }
    }

    fn block_message_finish(&mut self, message: &MessageId, mut data: Fact) {
        let text = self.memory.open.take(&self.namespace).map(|open| open.text);
        if let Some(known) = self.memory.messages.find_mut(message)
            && known.dialect == Dialect::Blocks
        {
            known.whole = text;
        }
        if let Some(text) = text {
            self.remember_answer(text);
        }
        let metadata = object(data.shift_remove("metadata"));
        if let Some(reason) = metadata.get("finish_reason").and_then(Value::as_str) {
            self.stopped(reason);
        }
        if let Some(Value::Object(usage)) = data.shift_remove("usage") {
            self.usage(message, usage);
        }
    }

    /// Handles a tool's message in blocks. Its text is the result, where no tool event brings it.
    fn tool_message_event(&mut self, event: &str, mut data: Fact) {
        match event {
            "message-start" => {
                let id = take_id(&mut data, "id").unwrap_or_else(|| next_id(super::MADE, &mut self.memory.messages_made));
                let call = id_of(&data, "tool_call_id").or_else(|| self.only_call(""));
                let (namespace, text, calls) = (self.namespace.clone(), TextDigest::default(), Vec::new());
                self.memory.open.add(OpenMessage { namespace, id, is_ours: true, is_tool: true, call, text, calls });
            }
            "content-block-finish" => {
                let call = self.open().and_then(|open| open.call.clone());
                let text = data.get("content").and_then(|content| content.get("text")).cloned();
                if let (Some(call), Some(text)) = (call, text) {
                    self.result(&call, json!({ "content": text }));
                }
            }
            "message-finish" => drop(self.memory.open.take(&self.namespace)),
            _ => {}
        }
    }

    /// Registers a message that this dialect brings whole.
    pub(super) fn known(&self, id: &MessageId) -> Option<&Known> {
        self.memory.messages.find(id)
    }
}
