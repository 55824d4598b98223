//! The stream modes: messages, updates of nodes, the state, what nodes write, and the server's own records.

use super::event::{Dialect, Message, MessageKind, object};
use super::{EventHandler, MADE, TurnState, internal};
use crate::Fact;
use crate::members::{name_of, next_id};
use proscenium_model::{Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, Scope, Surface, ToolCallId};
use serde_json::{Map, Value, json};

/// The member of updates and states that holds interrupts.
const INTERRUPT: &str = "__interrupt__";

/// Members of the metadata of messages that name the agent and the thread.
const AGENT: &str = "lc_agent_name";

impl EventHandler<'_> {
    pub(super) fn mode(&mut self, mode: &str, data: Value, rest: Fact) {
        match mode {
            "metadata" => return self.metadata(data, rest),
            "error" => return self.error(data, rest),
            // Older servers and JavaScript end with a word that says nothing about the outcome.
            "end" | "feedback" | "checkpoints" | "debug" | "tasks" | "messages/metadata" => return self.keep(mode, mode, data),
            _ => {}
        }
        self.ensure_started();
        match mode {
            "messages" | "messages-tuple" => self.tuple(data),
            "messages/partial" => {
                for message in list(data).into_iter().filter_map(Message::of) {
                    self.enter_child(None, None);
                    self.accumulated(message);
                }
            }
            "messages/complete" => {
                self.enter_child(None, None);
                self.whole_list(data);
            }
            "updates" => self.updates(data),
            "values" => self.values(data, rest),
            "custom" => self.custom(data),
            _ => {
                let draft = internal("unknown_event_type", mode).with("data", data);
                self.push_carrying(draft, rest);
            }
        }
    }

    /// Handles a message with the metadata beside it.
    fn tuple(&mut self, data: Value) {
        let (message, metadata) = match data {
            Value::Array(mut pair) if pair.len() == 2 => (pair.remove(0), object(pair.pop())),
            message => (message, Map::new()),
        };
        let Some(message) = Message::of(message.clone()) else { return self.keep("message", "messages", message) };
        if let Some(thread) = metadata.get("thread_id").and_then(Value::as_str) {
            self.learn_thread(thread);
        }
        let agent = metadata.get(AGENT).and_then(Value::as_str);
        let node = metadata.get("langgraph_node").and_then(Value::as_str);
        self.enter_child(agent, node);
        self.message(message, Dialect::Modes);
        if !metadata.is_empty() && !std::mem::replace(&mut self.memory.has_metadata, true) {
            self.push(internal("metadata", "messages").with("metadata", metadata));
        }
    }

    fn whole_list(&mut self, data: Value) {
        for message in list(data).into_iter().filter_map(Message::whole) {
            self.message(message, Dialect::Modes);
        }
    }

    // ── updates ──

    /// Handles what nodes returned.
    pub(super) fn updates(&mut self, data: Value) {
        self.enter_child(None, None);
        let Value::Object(mut nodes) = data else { return self.keep("updates", "updates", data) };
        let is_cached = nodes.shift_remove("__metadata__").is_some_and(|about| about.get("cached") == Some(&Value::Bool(true)));
        if let Some(interrupts) = nodes.shift_remove(INTERRUPT) {
            self.interrupts(interrupts);
        }
        for (node, update) in nodes {
            if !is_cached {
                self.settle_answers();
            }
            let draft = Draft::new(EventType::RunStatus).with("step", "ended").with("stepId", node.as_str());
            let mut draft = draft.with_some("cached", is_cached.then_some(true));
            if self.memory.turn_state == TurnState::Paused {
                draft.phase = Phase::Waiting;
            }
            self.push(draft.with_scope(Scope::Turn).with_audience(Audience::Dashboard));
            // A node may return several commands.
            for update in if update.is_array() { list(update) } else { vec![update] } {
                self.update(&node, update);
            }
            if !is_cached {
                self.node_ended(&node);
            }
        }
    }

    fn update(&mut self, node: &str, update: Value) {
        let mut update = match update {
            Value::Null => return,
            Value::Object(update) => update,
            odd => return self.keep("update", node, odd),
        };
        if let Some(messages) = update.shift_remove("messages") {
            self.whole_list(messages);
        }
        if update.is_empty() {
            return;
        }
        let patch: Vec<_> =
            update.into_iter().map(|(key, value)| json!({ "op": "add", "path": pointer(&key), "value": value })).collect();
        let draft = self.state(EventType::StateDelta).with("patch", patch).with("stepId", node);
        self.push(draft.with_persistence(Persistence::Snapshot));
    }

    // ── the state ──

    fn values(&mut self, data: Value, mut rest: Fact) {
        self.enter_child(None, None);
        let Value::Object(mut state) = data else { return self.keep("values", "values", data) };
        // The state of a child comes before its own start.
        if let Some(messages) = state.shift_remove("messages") {
            self.state_messages(list(messages));
        }
        for interrupts in [state.shift_remove(INTERRUPT), rest.shift_remove("interrupts")].into_iter().flatten() {
            if interrupts.as_array().is_some_and(|list| !list.is_empty()) {
                self.interrupts(interrupts);
            }
        }
        if !state.is_empty() {
            let draft = self.state(EventType::StateSnapshot).with("state", Value::Object(state));
            self.push(draft);
        }
    }

    /// Creates a draft about the state of the event's graph. A state holds anything, so it is internal.
    fn state(&self, class: EventType) -> Draft {
        let mut draft = Draft::new(class).with_audience(Audience::Internal);
        if let Some(agent) = &self.agent {
            draft.payload.insert("activityType", "subgraph-state".into());
            draft.ids.message = MessageId::new(agent.as_str()).ok();
        }
        draft
    }

    /// Handles the messages of a state: history, what was streamed, and what no model streamed.
    fn state_messages(&mut self, messages: Vec<Value>) {
        let messages: Vec<Message> = messages.into_iter().filter_map(Message::whole).collect();
        let is_known = |message: &Message| {
            let by_id = message.id.as_ref().is_some_and(|id| self.knows_message(id));
            by_id || message.kind == MessageKind::Tool && message.call().is_some_and(|call| self.knows_call(&call))
        };
        let last_known = messages.iter().rposition(is_known);
        match last_known {
            Some(last) => {
                for (n, message) in messages.into_iter().enumerate() {
                    // Older messages that are not known were forgotten: they are history.
                    let is_edit =
                        message.id.as_ref().is_some_and(|id| self.knows_message(id)) || message.kind == MessageKind::Tool;
                    if n > last || is_edit && message.kind != MessageKind::Human {
                        self.state_message(message);
                    }
                }
            }
            None if self.agent.is_none() => self.history(messages),
            // A child begins with what it was asked.
            None => messages.into_iter().for_each(|message| self.message(message, Dialect::Modes)),
        }
    }

    /// Handles a message of the state. Only a call that is open can end here.
    fn state_message(&mut self, message: Message) {
        let is_open = |call| self.memory.calls.open.has(&call);
        if message.kind != MessageKind::Tool || message.call().is_some_and(is_open) {
            self.message(message, Dialect::Modes);
        }
    }

    /// Reports the messages that the thread had before this run.
    fn history(&mut self, messages: Vec<Message>) {
        let mut window = Vec::new();
        for message in messages {
            let (role, kind) = match message.kind {
                MessageKind::Human => ("user", "user_text"),
                MessageKind::Model | MessageKind::Chunk => ("assistant", "assistant_text"),
                MessageKind::Tool => ("tool", "tool_result"),
                MessageKind::Remove | MessageKind::Other => continue,
            };
            let id: MessageId = message.id.clone().unwrap_or_else(|| next_id(MADE, &mut self.memory.messages_made));
            let call = message.members.get("tool_call_id").cloned().filter(Value::is_string);
            let mut parts: Vec<Value> = message
                .parts()
                .into_iter()
                .map(|(part, is_reasoning, text)| {
                    let mut part =
                        json!({ "partId": part, "kind": if is_reasoning { "reasoning_summary" } else { kind }, "text": [text] });
                    if let Some(call) = &call {
                        part["toolCallId"] = call.clone();
                    }
                    part
                })
                .collect();
            for call in message.members.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                let (id, name, args) = (call.get("id"), call.get("name"), call.get("args"));
                if let Some(id) = id.and_then(Value::as_str) {
                    parts.push(json!({ "partId": id, "kind": "tool_call", "toolCallId": id, "toolName": name, "input": args }));
                    self.memory.past_calls.add(super::id_from(id));
                }
            }
            self.remember_whole(id.clone(), &message.text());
            window.push(json!({ "messageId": id.as_str(), "role": role, "parts": parts }));
        }
        if !window.is_empty() {
            self.push(Draft::new(EventType::MessagesSnapshot).with("mode", "window").with("messages", window));
        }
    }

    // ── what nodes write ──

    fn custom(&mut self, data: Value) {
        self.enter_child(None, None);
        let call = super::text_of(&data, "tool_call_id").map(super::id_from::<ToolCallId>);
        match (call.filter(|call| self.memory.calls.open.has(call)), data) {
            (Some(call), Value::Object(data)) => self.call_progress(&call, data),
            (_, data) => self.custom_event(None, data),
        }
    }

    pub(super) fn custom_event(&mut self, name: Option<&str>, data: Value) {
        let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "custom").with("activityType", "custom");
        let draft = draft.with("data", data).with_some("name", name.map(name_of)).with_owner(Owner::Runtime);
        let draft = draft.with_phase(Phase::Acting).with_surface(Surface::InlineProcess);
        self.push(draft.with_persistence(Persistence::EphemeralLive).with_audience(Audience::Dashboard));
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        one => vec![one],
    }
}

/// The JSON pointer of a member of the state.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}
