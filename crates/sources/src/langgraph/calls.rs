//! Tool calls: the model's request, and the tool's message that ends it.
//!
//! A call exists from the model's first piece of it. It ends once, whichever of its results comes first.

use super::event::Message;
use super::{EventHandler, MADE, id_from};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{name_of, take_text};
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A call without a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: ToolCallId,
    pub name: String,
    agent: Option<AgentId>,
    /// The arguments as one JSON text. Empty: they are not complete.
    pub args: TextDigest,
}

/// The id of a call that its provider does not name.
pub(super) fn unnamed_call(message: &MessageId, index: u64) -> ToolCallId {
    id_from(&format!("{message}/{index}"))
}

/// Recognises arguments, with their members in any order.
pub(super) fn digest_of(args: &Value) -> TextDigest {
    TextDigest::of(sorted(args.clone()).to_string().as_bytes())
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(Map::from_iter(members))
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

impl EventHandler<'_> {
    /// Whether the call is open, has ended, or is part of the history.
    pub(super) fn knows_call(&self, id: &ToolCallId) -> bool {
        self.memory.calls.know(id, &self.out) || self.memory.past_calls.has(id)
    }

    /// Whether a message begins this call. `is_first`: the message has not named it before.
    ///
    /// A message comes again and again, with its calls. The id in another message is another call if the first has ended.
    pub(super) fn begins_call(&mut self, id: &ToolCallId, is_first: bool) -> bool {
        let is_known = || self.out.has_started(id) || self.memory.past_calls.has(id);
        let begins = !self.memory.calls.open.has(id) && (is_first || !is_known());
        if begins {
            self.memory.past_calls.take(id);
        }
        begins
    }

    fn call_has_ended(&self, id: &ToolCallId) -> bool {
        !self.memory.calls.open.has(id) && self.knows_call(id)
    }

    pub(super) fn about_call(&self, class: EventType, id: &ToolCallId) -> Draft {
        let call = self.memory.calls.open.find(id);
        let name = call.map(|call| call.name.clone()).filter(|name| !name.is_empty());
        let agent = call.map_or_else(|| self.agent.clone(), |call| call.agent.clone());
        Draft::new(class).with_tool_name(name).with_agent(agent).with_call(id.clone())
    }

    pub(super) fn start_call(&mut self, id: &ToolCallId, name: &str, message: Option<&MessageId>, is_streaming: bool) {
        let agent = message.and_then(|id| self.known(id)).map_or_else(|| self.agent.clone(), |known| known.agent.clone());
        self.memory.calls.start(Call { id: id.clone(), name: name_of(name), agent, args: TextDigest::default() });
        let draft = self.about_call(EventType::ToolStarted, id).with_tool_name(Some(name));
        let draft = draft.call(|call| call.state = is_streaming.then(|| "input-streaming".to_owned()));
        self.push(draft.with_owner(Owner::Model).with_message(message.cloned()));
    }

    pub(super) fn args_piece(&mut self, id: &ToolCallId, text: &str) {
        let draft = self.about_call(EventType::ToolArgs, id).call(|call| call.input_text = Some(text.to_owned()));
        self.push(draft.with_audience(Audience::Dashboard));
    }

    /// Handles the calls of a whole message. `is_new`: it did not come whole before.
    pub(super) fn whole_calls(&mut self, message: &MessageId, of: &mut Message, is_new: bool) {
        // A message without an id of its own is a new one each time it comes.
        let is_new = is_new && !message.as_str().starts_with(MADE);
        for (member, is_valid) in [("tool_calls", true), ("invalid_tool_calls", false)] {
            let calls = match of.members.get(member) {
                Some(Value::Array(calls)) => calls.clone(),
                _ => continue,
            };
            for (index, call) in (0..).zip(calls) {
                if is_valid {
                    self.whole_call(message, index, call, is_new);
                } else {
                    self.invalid_call(message, index, call, is_new);
                }
            }
        }
    }

    /// Starts a call of a whole message, unless it is known. `None`: it has ended.
    fn open_call(&mut self, message: &MessageId, index: u64, call: &Value, is_new: bool) -> Option<ToolCallId> {
        let id: ToolCallId = super::text_of(call, "id").map_or_else(|| unnamed_call(message, index), id_from);
        let is_first = is_new && self.known(message).is_some_and(|known| !known.has_streamed(&id));
        if self.begins_call(&id, is_first) {
            self.start_call(&id, super::text_of(call, "name").unwrap_or_default(), Some(message), false);
        }
        self.memory.calls.open.has(&id).then_some(id)
    }

    pub(super) fn whole_call(&mut self, message: &MessageId, index: u64, call: Value, is_new: bool) {
        let Some(id) = self.open_call(message, index, &call, is_new) else { return };
        let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
        let digest = digest_of(&args);
        match self.memory.calls.open.find_mut(&id) {
            // The same message again. An edit of the user's changes the arguments.
            Some(call) if call.args == digest => return,
            Some(call) => call.args = digest,
            None => return,
        }
        let draft = self.about_call(EventType::ToolArgs, &id).call(|call| call.input = Some(args.into()));
        self.push(draft.with_persistence(Persistence::Archive).with_message(message.clone()));
        self.memory.calls.forget_if_ended(&id, &self.out);
    }

    /// Reports a call whose arguments cannot be read: nothing runs.
    pub(super) fn invalid_call(&mut self, message: &MessageId, index: u64, call: Value, is_new: bool) {
        let Some(id) = self.open_call(message, index, &call, is_new) else { return };
        let text = super::text_of(&call, "error").unwrap_or("the arguments are no valid JSON").to_owned();
        let error = json!({ "code": "invalid_tool_call", "message": text });
        let draft = self.about_call(EventType::ToolFailed, &id).call(|call| {
            call.error = Some(error.into());
            call.never_started = Some(true);
        });
        self.memory.calls.end(&id);
        self.push(draft);
    }

    /// The one open call of this tool, for an event that does not name its call. An empty name is of any tool.
    pub(super) fn only_call(&self, tool: &str) -> Option<ToolCallId> {
        let tool = name_of(tool);
        self.memory.calls.only(|call| tool.is_empty() || call.name == tool).map(|call| call.id.clone())
    }

    /// Handles a tool's message, which ends its call.
    pub(super) fn tool_message(&mut self, message: &Message) {
        let Some(id) = message.call().or_else(|| self.only_call("")) else {
            return self.keep("tool_message", "message", Value::Object(message.members.clone()));
        };
        let mut output = message.members.clone();
        output.insert("content".into(), message.output());
        self.settle_answers();
        self.result(&id, Value::Object(output));
        self.answered_by(&message.text());
    }

    /// Ends a call with its tool's message, once.
    pub(super) fn result(&mut self, id: &ToolCallId, message: Value) {
        if self.call_has_ended(id) {
            return;
        }
        let mut message = super::event::object(Some(message));
        let output = message.shift_remove("content").unwrap_or(Value::Null);
        let failed = message.get("status").and_then(Value::as_str) == Some("error");
        let name = super::text_of(&Value::Object(message.clone()), "name").map(str::to_owned);
        let draft = self.about_call(if failed { EventType::ToolFailed } else { EventType::ToolResult }, id).call(|call| {
            if failed {
                let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                call.error = Some(json!({ "message": text }).into());
            } else {
                call.output = Some(output.into());
                call.status = Some("completed".to_owned());
            }
            call.tool_name = call.tool_name.take().or(name);
            call.structured = message.shift_remove("artifact").filter(|artifact| !artifact.is_null()).map(Box::new);
        });
        self.memory.calls.end(id);
        self.push(draft.with_audience(Audience::User));
    }

    /// Reports that a tool's error ended its call.
    pub(super) fn call_failed(&mut self, id: &ToolCallId, message: &str) {
        if self.call_has_ended(id) {
            return;
        }
        let draft = self.about_call(EventType::ToolFailed, id);
        let draft = draft.call(|call| call.error = Some(json!({ "message": message }).into()));
        self.memory.calls.end(id);
        self.push(draft);
    }

    /// Reports that a tool works. A call that nothing announced starts here.
    pub(super) fn call_runs(&mut self, id: &ToolCallId, name: &str, input: Option<Value>) {
        if self.call_has_ended(id) {
            return;
        }
        if !self.knows_call(id) {
            self.start_call(id, name, None, false);
            if let Some(input) = input {
                let draft = self.about_call(EventType::ToolArgs, id).call(|call| call.input = Some(input.into()));
                self.push(draft.with_persistence(Persistence::Archive));
            }
        }
        let draft = self.about_call(EventType::ToolProgress, id).call(|call| call.status = Some("running".to_owned()));
        self.push(draft.with_audience(Audience::User));
    }

    /// Handles an event of a tool in dialect B.
    pub(super) fn tool_event(&mut self, mut data: Fact) {
        self.ensure_started();
        self.enter_child(None, None);
        let event = take_text(&mut data, "event").unwrap_or_default();
        let name = data.get("tool_name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let named = take_text(&mut data, "tool_call_id").filter(|id| !id.is_empty());
        let Some(id) = named.map(|id| id_from::<ToolCallId>(&id)).or_else(|| self.only_call(&name)) else {
            return self.keep("tool_event", &event, Value::Object(data));
        };
        match event.as_str() {
            "tool-started" => {
                self.settle_answers();
                self.call_runs(&id, &name, data.shift_remove("input"));
            }
            "tool-output-delta" => {
                let delta = data.shift_remove("delta").unwrap_or(Value::Null);
                let text = delta.as_str().map_or_else(|| delta.to_string(), str::to_owned);
                let draft = self.about_call(EventType::ToolOutputDelta, &id).with_text(text).with_audience(Audience::User);
                self.push(draft);
            }
            "tool-finished" => match Message::of(data.shift_remove("output").unwrap_or(Value::Null)) {
                Some(mut message) => {
                    message.members.entry("tool_call_id").or_insert_with(|| id.as_str().into());
                    self.tool_message(&message);
                }
                None => self.result(&id, json!({ "content": null })),
            },
            "tool-error" => {
                let message = take_text(&mut data, "message").unwrap_or_else(|| "the tool failed without saying why".into());
                if is_interrupt(&message) {
                    return self.keep("tool_interrupted", &event, Value::Object(data));
                }
                self.call_failed(&id, &message);
            }
            _ => self.keep("tool_event", &event, Value::Object(data)),
        }
    }

    /// Reports progress that a tool writes into its own stream.
    pub(super) fn call_progress(&mut self, id: &ToolCallId, mut data: Fact) {
        let mut draft = self.about_call(EventType::ToolProgress, id);
        data.shift_remove("tool_call_id");
        let names =
            [("message", "message"), ("progress", "progress"), ("done", "loaded"), ("loaded", "loaded"), ("total", "total")];
        draft.move_members(&mut data, &names);
        draft.payload.extend(
            data.into_iter().map(|(member, value)| (if member == "status" { "toolStatus".into() } else { member }, value)),
        );
        (draft.audience, draft.phase) = (Audience::Dashboard, Phase::Acting);
        self.push(draft);
    }
}

/// Whether a tool's error is the way in which a graph stops to ask the user.
pub(super) fn is_interrupt(error: &str) -> bool {
    error.starts_with("GraphInterrupt") || error.starts_with("NodeInterrupt")
}
