//! Messages: pieces by their id, then whole, then edited.
//!
//! A whole message that was streamed reconciles. One that comes again is nothing new, and another text under a known id
//! is an edit.

use super::calls::unnamed_call;
use super::event::{Dialect, Message, MessageKind};
use super::{EventHandler, MADE, id_from};
use crate::bounded::Bounded;
use crate::digest::TextDigest;
use crate::members::{name_of, next_id, repair, take_counts, take_text};
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, PartId, Persistence, Surface, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most parts of a message that are remembered, and the most calls.
const PARTS_MAX: usize = 64;

/// A message of this log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Known {
    pub id: MessageId,
    pub dialect: Dialect,
    pub agent: Option<AgentId>,
    /// Whether more of it may come in this run: pieces, or the whole message.
    pub is_open: bool,
    /// The text of the whole message. `None`: only pieces have come.
    pub whole: Option<TextDigest>,
    /// The parts that were streamed, and whether each is reasoning.
    parts: Vec<(PartId, bool)>,
    /// The text that was streamed, without reasoning.
    streamed: TextDigest,
    /// The calls that were streamed, by their index in the message.
    calls: Bounded<(u64, ToolCallId), PARTS_MAX>,
    has_usage: bool,
}

/// The other id of a message that was streamed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Renamed {
    pub id: MessageId,
    /// Its id in the log.
    of: MessageId,
}

impl Known {
    /// Whether these are the text and the calls that were streamed, and no whole message has confirmed them.
    fn is_whole_of(&self, text: TextDigest, calls: &[ToolCallId]) -> bool {
        let (is_streamed, has_calls) = (!self.parts.is_empty() || !self.calls.is_empty(), !self.calls.is_empty());
        self.is_open
            && is_streamed
            && self.streamed == text
            && (has_calls || !text.is_empty())
            && self.calls.iter().all(|(_, call)| calls.contains(call))
    }

    pub fn new(id: MessageId, dialect: Dialect, agent: Option<AgentId>) -> Self {
        Self {
            id,
            dialect,
            agent,
            is_open: true,
            whole: None,
            parts: Vec::new(),
            streamed: TextDigest::default(),
            calls: Bounded::default(),
            has_usage: false,
        }
    }

    /// Whether a piece of the message named the call.
    pub fn has_streamed(&self, call: &ToolCallId) -> bool {
        self.calls.iter().any(|(_, streamed)| streamed == call)
    }
}

impl EventHandler<'_> {
    /// Handles a message, in any form and place.
    pub(super) fn message(&mut self, mut message: Message, dialect: Dialect) {
        message.id = message.id.map(|id| self.logged_id(id));
        match message.kind {
            MessageKind::Chunk => self.chunk(message, dialect),
            MessageKind::Model => self.whole_message(message, dialect),
            MessageKind::Tool => self.tool_message(&message),
            MessageKind::Human => self.human_message(&message),
            MessageKind::Remove => self.remove(&message),
            MessageKind::Other => {
                let (id, members) = (message.id, Value::Object(message.members));
                self.push(super::internal("message", "message").with("message", members).with_message(id));
            }
        }
    }

    /// The id that a message has in the log.
    fn logged_id(&self, id: MessageId) -> MessageId {
        self.memory.renamed.find(&id).map_or(id, |renamed| renamed.of.clone())
    }

    /// Whether the log has a message, under this or another id.
    pub(super) fn knows_message(&self, id: &MessageId) -> bool {
        self.memory.messages.has(id) || self.memory.renamed.has(id)
    }

    /// Returns the log's id of a whole message that was streamed under another id, as LangChain does with some models.
    fn find_renamed(&mut self, id: &MessageId, message: &Message, text: TextDigest) -> Option<MessageId> {
        let calls = message.members.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        let calls: Vec<ToolCallId> = calls.filter_map(|call| super::text_of(call, "id").map(id_from)).collect();
        let agent = self.agent_of(message);
        let is_it = |known: &&Known| known.agent == agent && known.is_whole_of(text, &calls);
        let of = self.memory.messages.iter().rfind(is_it)?.id.clone();
        self.memory.renamed.add(Renamed { id: id.clone(), of: of.clone() });
        Some(of)
    }

    /// Returns whether this dialect may add to the message; registers a message that is new.
    pub(super) fn owns(&mut self, id: &MessageId, dialect: Dialect) -> bool {
        if let Some(known) = self.memory.messages.find(id) {
            return known.dialect == dialect;
        }
        self.memory.messages.add(Known::new(id.clone(), dialect, self.agent.clone()));
        true
    }

    pub(super) fn chunk(&mut self, message: Message, dialect: Dialect) {
        let Some(id) = message.id.clone() else { return self.keep("chunk_without_id", "chunk", Value::Object(message.members)) };
        if !self.owns(&id, dialect) {
            return;
        }
        self.settle_answers();
        // A whole message never grows; JavaScript repeats it under the type of a whole one.
        if self.memory.messages.find(&id).is_some_and(|known| known.whole.is_some()) {
            return;
        }
        for (part, is_reasoning, text) in message.parts() {
            if !text.is_empty() {
                self.piece(&id, &part, is_reasoning, text);
            }
        }
        for piece in message.members.get("tool_call_chunks").and_then(Value::as_array).into_iter().flatten() {
            self.call_piece(&id, piece);
        }
        self.model_call_details(&id, &message);
        if message.is_last() {
            self.complete_streamed(&id);
        }
    }

    /// Ends a message whose last piece has come. Its node may never return it.
    fn complete_streamed(&mut self, id: &MessageId) {
        self.reconcile(id, Vec::new());
        let Some(known) = self.memory.messages.find_mut(id) else { return };
        let streamed = *known.whole.insert(known.streamed);
        self.remember_answer(streamed);
    }

    /// Reports a piece of a text.
    pub(super) fn piece(&mut self, id: &MessageId, part: &str, is_reasoning: bool, text: String) {
        let part: PartId = id_from(part);
        let Some(known) = self.memory.messages.find_mut(id) else { return };
        if !known.parts.iter().any(|(streamed, _)| *streamed == part) && known.parts.len() < PARTS_MAX {
            known.parts.push((part.clone(), is_reasoning));
        }
        if !is_reasoning {
            known.streamed.update(text.as_bytes());
        }
        let class = if is_reasoning { EventType::ReasoningDelta } else { EventType::TextDelta };
        let draft = self.part(class, id, part).with_text(text);
        self.push(draft);
    }

    /// Reports a piece of a call. Only the first piece names it: the others have its index in the message.
    fn call_piece(&mut self, message: &MessageId, piece: &Value) {
        let index = piece.get("index").and_then(Value::as_u64).unwrap_or_default();
        let args = piece.get("args").and_then(Value::as_str).filter(|args| !args.is_empty());
        let name = super::text_of(piece, "name");
        let named = super::text_of(piece, "id");
        let calls = self.memory.messages.find(message).map_or(&[][..], |known| &known.calls);
        let known = calls.iter().rfind(|(at, _)| *at == index).map(|(_, call)| call.clone());
        let call: ToolCallId = match (known, named) {
            (Some(call), None) => call,
            (Some(call), Some(named)) if call == id_from(named) => call,
            (_, Some(named)) => id_from(named),
            // A provider without ids for calls.
            (None, None) if name.is_some() => unnamed_call(message, index),
            (None, None) => return,
        };
        let is_first = !calls.iter().any(|(_, known)| *known == call);
        if let Some(known) = self.memory.messages.find_mut(message)
            && !known.calls.iter().any(|(at, id)| *at == index && *id == call)
        {
            known.calls.push((index, call.clone()));
        }
        if self.begins_call(&call, is_first) {
            self.start_call(&call, name.unwrap_or_default(), Some(message), true);
        }
        if let Some(args) = args {
            self.args_piece(&call, args);
        }
    }

    /// Creates a draft about a part of a message, with the message's own agent.
    pub(super) fn part(&self, class: EventType, id: &MessageId, part: PartId) -> Draft {
        let mut draft = Draft::new(class);
        draft.ids.agent = self.memory.messages.find(id).map_or_else(|| self.agent.clone(), |known| known.agent.clone());
        if draft.ids.agent.is_some() && matches!(draft.event_type, EventType::TextDelta | EventType::TextFinal) {
            draft.surface = Surface::TeammateTranscript;
        }
        (draft.ids.message, draft.ids.part) = (Some(id.clone()), Some(part));
        draft
    }

    pub(super) fn whole_message(&mut self, mut message: Message, dialect: Dialect) {
        let id = message.id.take().unwrap_or_else(|| next_id(MADE, &mut self.memory.messages_made));
        let digest = TextDigest::of(message.text().as_bytes());
        let id = match self.memory.messages.has(&id) {
            true => id,
            false => self.find_renamed(&id, &message, digest).unwrap_or(id),
        };
        let known = self.memory.messages.find(&id).map(|known| known.whole);
        let parts = message.parts();
        match known {
            // The same message again, in an update, in the state, or from the parent graph.
            Some(Some(whole)) if whole == digest => {}
            Some(Some(_)) => self.edit(&id, &parts),
            Some(None) => self.reconcile(&id, parts),
            None => {
                self.settle_answers();
                self.memory.messages.add(Known::new(id.clone(), dialect, self.agent_of(&message)));
                self.reconcile(&id, parts);
            }
        }
        if let Some(known) = self.memory.messages.find_mut(&id) {
            (known.whole, known.is_open) = (Some(digest), false);
        }
        self.whole_calls(&id, &mut message, !matches!(known, Some(Some(_))));
        self.model_call_details(&id, &message);
        self.remember_answer(digest);
    }

    /// Finalises the parts of a message, with its whole text.
    fn reconcile(&mut self, id: &MessageId, parts: Vec<(String, bool, String)>) {
        let streamed = self.memory.messages.find(id).map(|known| known.parts.clone()).unwrap_or_default();
        let mut seen = Vec::new();
        for (name, is_reasoning, text) in parts {
            let part: PartId = id_from(&name);
            if text.is_empty() && !streamed.iter().any(|(known, _)| *known == part) {
                continue;
            }
            let class = if is_reasoning { EventType::ReasoningSummary } else { EventType::TextFinal };
            let draft = self.part(class, id, part.clone()).with_text(text);
            seen.push(part);
            self.push(draft);
        }
        // What was streamed under another name ends as it was streamed.
        for (part, is_reasoning) in streamed.into_iter().filter(|(part, _)| !seen.contains(part)) {
            let class = if is_reasoning { EventType::ReasoningSummary } else { EventType::TextFinal };
            let draft = self.part(class, id, part);
            self.push(draft);
        }
    }

    /// Reports another text of a known message.
    fn edit(&mut self, id: &MessageId, parts: &[(String, bool, String)]) {
        let parts: Vec<Value> = parts
            .iter()
            .map(|(part, is_reasoning, text)| {
                let kind = if *is_reasoning { "reasoning_summary" } else { "assistant_text" };
                json!({ "partId": part, "kind": kind, "text": [text] })
            })
            .collect();
        self.repair(id, parts);
    }

    fn repair(&mut self, id: &MessageId, parts: Vec<Value>) {
        let agent = self.memory.messages.find(id).and_then(|known| known.agent.clone());
        self.push(repair(id, parts.into()).with_agent(agent));
    }

    fn remove(&mut self, message: &Message) {
        let Some(id) = &message.id else { return };
        match self.memory.messages.find(id).map(|known| known.whole) {
            Some(Some(whole)) if whole.is_empty() => {}
            Some(_) => self.repair(id, Vec::new()),
            // Readers never saw it.
            None => self.keep("remove", "message", json!({ "id": id.as_str() })),
        }
        if let Some(known) = self.memory.messages.find_mut(id) {
            (known.whole, known.is_open) = (Some(TextDigest::default()), false);
        }
    }

    /// Reports what the user said, or what a child was asked.
    fn human_message(&mut self, message: &Message) {
        let id = message.id.clone().unwrap_or_else(|| next_id(MADE, &mut self.memory.messages_made));
        if self.memory.messages.has(&id) {
            return;
        }
        self.remember_whole(id.clone(), &message.text());
        let draft = self.part(EventType::TextFinal, &id, id_from("0")).words(|words| {
            words.role = Some("user".to_owned());
            words.text = Some(message.text());
        });
        self.push(draft.with_persistence(Persistence::Transcript));
    }

    pub(super) fn remember_whole(&mut self, id: MessageId, text: &str) {
        let mut known = Known::new(id, Dialect::Modes, self.agent.clone());
        (known.whole, known.is_open) = (Some(TextDigest::of(text.as_bytes())), false);
        self.memory.messages.add(known);
    }

    /// Handles a message that grows by repeating itself: only its new tail is new.
    pub(super) fn accumulated(&mut self, mut message: Message) {
        message.id = message.id.map(|id| self.logged_id(id));
        let (MessageKind::Chunk | MessageKind::Model, Some(id)) = (message.kind, message.id.clone()) else {
            return self.message(message, Dialect::Modes);
        };
        if !self.owns(&id, Dialect::Modes) {
            return;
        }
        let text = message.text();
        let known = self.memory.messages.find(&id).map(|known| (known.streamed, known.whole.is_some()));
        match known {
            Some((_, true)) | None => {}
            Some((streamed, false)) if streamed.is_prefix_of(&text) => {
                let tail = text[streamed.len()..].to_owned();
                if !tail.is_empty() {
                    self.piece(&id, "0", false, tail);
                }
            }
            Some((_, false)) => {
                self.edit(&id, &[("0".to_owned(), false, text.clone())]);
                if let Some(known) = self.memory.messages.find_mut(&id) {
                    known.streamed = TextDigest::of(text.as_bytes());
                }
            }
        }
        if message.finish_reason().is_some() && known.is_some_and(|(_, is_whole)| !is_whole) {
            self.complete_streamed(&id);
        }
    }

    /// Reads what a model's call used, and why it stopped.
    fn model_call_details(&mut self, id: &MessageId, message: &Message) {
        if let Some(reason) = message.finish_reason() {
            self.stopped(reason);
        }
        if let Some(Value::Object(usage)) = message.members.get("usage_metadata") {
            self.usage(id, usage.clone());
        }
    }

    /// Remembers why the root's model stopped.
    pub(super) fn stopped(&mut self, reason: &str) {
        if self.agent.is_none() {
            self.memory.finish_reason = Some(name_of(reason));
        }
    }

    /// Reports the tokens of a model's call, once.
    pub(super) fn usage(&mut self, id: &MessageId, mut usage: Map<String, Value>) {
        let Some(known) = self.memory.messages.find_mut(id).filter(|known| !known.has_usage) else { return };
        known.has_usage = true;
        let mut counts = take_counts(&mut usage, &[("input_tokens", "inputTokens"), ("output_tokens", "outputTokens")]);
        let details = |member: &str, count: &str| {
            usage.get(member).and_then(|details| details.get(count)).filter(|n| n.is_number()).cloned()
        };
        let more = [
            ("cacheReadTokens", details("input_token_details", "cache_read")),
            ("cacheCreationTokens", details("input_token_details", "cache_creation")),
            ("thinkingTokens", details("output_token_details", "reasoning")),
        ];
        for (member, count) in more {
            counts.extend(count.map(|count| (member.to_owned(), count)));
        }
        let draft = Draft::new(EventType::MetricChanged).with("kind", "llm_call").with("usage", counts);
        self.push(draft.with_audience(Audience::Dashboard).with_message(id.clone()));
    }

    /// The messages that were streamed and never came whole.
    fn streaming(&self) -> Vec<MessageId> {
        let open = self.memory.messages.iter().filter(|known| known.is_open && known.whole.is_none());
        open.map(|known| known.id.clone()).collect()
    }

    /// Ends the parts of the messages that were streamed and never came whole.
    pub(super) fn close_messages(&mut self) {
        self.streaming().iter().for_each(|id| self.complete_streamed(id));
    }

    /// Empties the messages that a failed attempt left unfinished: the next attempt writes them again.
    pub(super) fn retract_unfinished(&mut self) {
        for id in self.streaming() {
            self.repair(&id, Vec::new());
            if let Some(known) = self.memory.messages.find_mut(&id) {
                (known.is_open, known.whole) = (false, Some(TextDigest::default()));
            }
        }
    }

    /// The agent of a whole message: that of the event, else the child whose name it has.
    fn agent_of(&self, message: &Message) -> Option<AgentId> {
        let name = message.members.get("name").and_then(Value::as_str);
        self.agent.clone().or_else(|| self.child_named(name?))
    }

    /// Takes the role of a message in blocks.
    pub(super) fn role(data: &mut Map<String, Value>) -> String {
        take_text(data, "role").unwrap_or_else(|| "ai".into())
    }
}
