//! Steps and their text.
//!
//! A step is one message across all reconnects, and the streamed chunks are its text.

use super::EventHandler;
use crate::Fact;
use crate::members::{byte_count, carry_all, next_id, repair, take_id, take_text, window_message};
use proscenium_model::{Audience, Draft, EventType, MessageId, Owner, PartId, PartKind, Persistence, Phase, Scope};
use serde_json::{Value, json};

impl EventHandler<'_> {
    pub(super) fn step_start(&mut self, mut fact: Fact) {
        self.seal();
        self.memory.message = take_id(&mut fact, "message_id");
        self.memory.message();
        self.step_status("started", fact);
    }

    pub(super) fn step_end(&mut self, fact: Fact) {
        self.seal();
        // Awaken silently drops a call with invalid JSON arguments. At this point all other calls are ready.
        self.drop_unready("its arguments were never complete");
        self.step_status("ended", fact);
        self.memory.message = None;
    }

    fn step_status(&mut self, step: &str, rest: Fact) {
        let draft = Draft::new(EventType::RunStatus).with("step", step).with_scope(Scope::Turn);
        self.push(carry_all(draft.with_audience(Audience::Dashboard), rest));
    }

    /// Ends the step's streams. The end events have no text: the streamed chunks are the text.
    pub(super) fn seal(&mut self) {
        if let Some(part) = self.memory.reasoning.take() {
            self.push(Draft::new(EventType::ReasoningSummary).with_message(self.memory.message.clone()).with_part(part));
        }
        self.memory.text = None;
        if std::mem::take(&mut self.memory.text_is_unsealed) {
            self.push(Draft::new(EventType::TextFinal).with_message(self.memory.message.clone()));
        }
    }

    pub(super) fn text_delta(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let message = memory.message();
        let part = memory.text.take().unwrap_or_else(|| next_id("awaken-part", &mut memory.parts_made));
        memory.text = Some(part.clone());
        memory.text_is_unsealed = true;
        memory.text_was_streamed = true;
        self.chunk(EventType::TextDelta, take_text(&mut fact, "delta"), message, part, fact);
    }

    pub(super) fn reasoning_delta(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let message = memory.message();
        let part = memory.reasoning.take().unwrap_or_else(|| next_id("awaken-part", &mut memory.parts_made));
        memory.reasoning = Some(part.clone());
        self.chunk(EventType::ReasoningDelta, take_text(&mut fact, "delta"), message, part, fact);
    }

    fn chunk(&mut self, class: EventType, text: Option<String>, message: MessageId, part: PartId, rest: Fact) {
        self.push(carry_all(Draft::new(class).with_text(text), rest).with_message(message).with_part(part));
    }

    pub(super) fn reasoning_encrypted_value(&mut self, mut fact: Fact) {
        // Only the provider can read the value, so the draft has only its length.
        let bytes = fact.shift_remove("encrypted_value").map_or(0, |value| byte_count(&value));
        let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "reasoning_encrypted_value").with("bytes", bytes);
        let draft = draft.with_owner(Owner::Model).with_scope(Scope::Part).with_phase(Phase::Reasoning);
        self.push(carry_all(draft.with_message(self.memory.message.clone()), fact));
    }

    /// Voids the step's streamed content: the provider's stream broke, and Awaken retries within the step.
    pub(super) fn stream_reset(&mut self, mut fact: Fact) {
        let reason = take_text(&mut fact, "reason");
        let message = self.memory.message();
        self.memory.text = None;
        self.memory.text_is_unsealed = false;
        self.memory.reasoning = None;
        let draft = carry_all(repair(&message, json!([])), fact).with_some("reason", reason.as_deref());
        let draft = draft.with_owner(Owner::Runtime).with_scope(Scope::Message).with_persistence(Persistence::EphemeralLive);
        self.push(draft.with_message(message));
        self.drop_unready(reason.as_deref().unwrap_or("the stream was reset"));
    }

    pub(super) fn messages_snapshot(&mut self, mut fact: Fact) {
        let messages = match fact.shift_remove("messages") {
            Some(Value::Array(messages)) => messages.into_iter().map(|message| self.convert_message(message)).collect(),
            _ => Vec::new(),
        };
        let draft = carry_all(Draft::new(EventType::MessagesSnapshot), fact).with("mode", "window").with("messages", messages);
        self.push(draft);
    }

    /// Converts a message of the history to the protocol's shape. Unknown members stay beside the parts.
    fn convert_message(&mut self, message: Value) -> Value {
        let Value::Object(mut message) = message else { return message };
        let named: Option<MessageId> = ["messageId", "message_id", "id"].iter().find_map(|member| take_id(&mut message, member));
        let id = named.unwrap_or_else(|| next_id("awaken-message", &mut self.memory.messages_made));
        let role = take_text(&mut message, "role").unwrap_or_else(|| "unknown".into());
        let kind = PartKind::of_role(&role);
        let mut parts = match message.shift_remove("parts") {
            Some(Value::Array(parts)) => parts,
            _ => Vec::new(),
        };
        match message.shift_remove("content") {
            Some(Value::String(text)) => parts.push(self.part(kind.as_str(), text)),
            Some(Value::Array(blocks)) => {
                let mut others = Vec::new();
                for block in blocks {
                    match block_text(&block) {
                        Some((None, text)) => parts.push(self.part(kind.as_str(), text)),
                        Some((Some(kind), text)) => parts.push(self.part(kind, text)),
                        None => others.push(block),
                    }
                }
                if !others.is_empty() {
                    message.insert("content".into(), Value::Array(others));
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => drop(message.insert("content".into(), other)),
        }
        window_message(&id, &role, None, parts, message)
    }

    fn part(&mut self, kind: &str, text: String) -> Value {
        let id: PartId = next_id("awaken-part", &mut self.memory.parts_made);
        json!({ "partId": id.as_str(), "kind": kind, "text": [text] })
    }
}

/// Returns the text of a text block, and its part kind if that differs from the role's.
fn block_text(block: &Value) -> Option<(Option<&'static str>, String)> {
    let text = |member: &str| block.get(member).and_then(Value::as_str).map(str::to_owned);
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some((None, text("text")?)),
        "reasoning" => Some((Some("reasoning_summary"), text("text")?)),
        "thinking" => Some((Some("reasoning_summary"), text("thinking")?)),
        _ => None,
    }
}
