//! Tool calls: from the model's wish to a result, which says nothing of success.
//!
//! A call that ends without a result when its run does is the client's to run: it waits, beyond the run's end, until the
//! client's answer comes by whatever way. Arguments are streamed and never kept here; that they are complete is said without
//! them.

use super::streams::Chunk;
use super::{AgUi, Step, known_id};
use crate::model::{AgentId, Audience, Draft, EventType, MessageId, Owner, Persistence, ToolCallId};
use crate::source::Fact;
use crate::source::members::{carrying, diagnostic, take_id, take_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Calls that are open at once; beyond that the oldest counts as ended here. Real runs have a handful.
pub(super) const OPEN_MAX: usize = 256;

/// Ended calls that are still known to be calls.
pub(super) const ENDED_MAX: usize = 64;

/// What is remembered of a tool's name, in characters.
const NAME_CHARS_MAX: usize = 128;

/// How deep arguments that came as text may be to be told as JSON, in levels. A fact itself may be as deep.
const INPUT_DEPTH_MAX: usize = 64;

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: ToolCallId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// How much of its arguments was streamed, in bytes.
    pub args_bytes: u64,
    /// Whether the model finished asking for it. A call that never got there never runs.
    pub ready: bool,
    /// Whether its run stopped to ask while it was open: then the runtime holds it, not the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Whether the client was told that its result is awaited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
}

impl Call {
    fn new(id: ToolCallId, name: &str, agent: Option<AgentId>) -> Self {
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        Self { id, name, agent, args_bytes: 0, ready: false, held: false, awaited: false }
    }
}

impl AgUi {
    pub(super) fn call(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    fn call_mut(&mut self, id: &ToolCallId) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    /// The call that waits to be run, if there is only one that it can be.
    pub(super) fn only_ready_call(&self) -> Option<ToolCallId> {
        let mut ready = self.calls.iter().filter(|call| call.ready && !call.held && !call.awaited);
        match (ready.next(), ready.next()) {
            (Some(call), None) => Some(call.id.clone()),
            _ => None,
        }
    }

    pub(super) fn knows_call(&self, id: &ToolCallId) -> bool {
        self.call(id).is_some() || self.ended_calls.contains(id)
    }

    fn open_call(&mut self, call: Call) {
        self.calls.retain(|open| open.id != call.id);
        self.ended_calls.retain(|ended| *ended != call.id);
        if self.calls.len() == OPEN_MAX {
            let oldest = self.calls.remove(0);
            self.remember_ended_call(oldest.id);
        }
        self.calls.push(call);
    }

    fn end_call(&mut self, id: &ToolCallId) {
        self.calls.retain(|open| open.id != *id);
        self.remember_ended_call(id.clone());
    }

    pub(super) fn remember_ended_call(&mut self, id: ToolCallId) {
        if self.ended_calls.contains(&id) {
            return;
        }
        if self.ended_calls.len() == ENDED_MAX {
            self.ended_calls.pop_front();
            self.has_forgotten_calls = true;
        }
        self.ended_calls.push_back(id);
    }

    /// The end of a run ends every call but those that the client is to answer.
    pub(super) fn end_calls(&mut self) {
        let (awaited, over): (Vec<_>, Vec<_>) = std::mem::take(&mut self.calls).into_iter().partition(|call| call.awaited);
        self.calls = awaited;
        for call in over {
            self.remember_ended_call(call.id);
        }
    }

    /// The run stopped to ask: what it asked for is not the client's to run.
    pub(super) fn hold_calls(&mut self) {
        for call in &mut self.calls {
            call.held = true;
        }
    }
}

impl Step<'_> {
    /// A draft about a call. Whose call it is its start has said; what goes on with it need not.
    fn tool(&self, class: EventType, id: ToolCallId, rest: Fact) -> Draft {
        let mut draft = carrying(Draft::new(class), rest);
        draft.ids.agent = self.memory.call(&id).map_or_else(|| self.agent.clone(), |call| call.agent.clone());
        draft.ids.tool_call = Some(id);
        draft
    }

    pub(super) fn tool_call_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = known_id(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolCallName").unwrap_or_default();
        let parent = take_id(&mut fact, "parentMessageId");
        self.start_call(id, &name, parent, fact);
    }

    pub(super) fn start_call(&mut self, id: ToolCallId, name: &str, parent: Option<MessageId>, rest: Fact) {
        self.memory.open_call(Call::new(id.clone(), name, self.agent.clone()));
        let mut draft = self.tool(EventType::ToolStarted, id, rest).with("toolName", name);
        // Until its arguments are complete it is the model's wish, not yet the tool's work.
        draft.owner = Owner::Model;
        draft.ids.message = parent;
        self.push(draft);
    }

    pub(super) fn tool_call_args(&mut self, mut fact: Fact) {
        let id: ToolCallId = known_id(&mut fact, "toolCallId");
        let is_over = self.memory.call(&id).map_or_else(|| self.memory.ended_calls.contains(&id), |call| call.ready);
        if is_over {
            let mut draft = diagnostic("write_after_seal", "TOOL_CALL_ARGS", fact);
            draft.ids.tool_call = Some(id);
            return self.push_own(draft);
        }
        let text = take_text(&mut fact, "delta").unwrap_or_default();
        self.args(id, text, fact);
    }

    fn args(&mut self, id: ToolCallId, text: String, rest: Fact) {
        if self.memory.call(&id).is_none() {
            self.memory.open_call(Call::new(id.clone(), "", self.agent.clone()));
        }
        if let Some(call) = self.memory.call_mut(&id) {
            call.args_bytes += text.len() as u64;
        }
        let draft = self.tool(EventType::ToolArgs, id, rest).with("inputText", text);
        self.push(draft);
    }

    pub(super) fn tool_call_end(&mut self, mut fact: Fact) {
        let id: ToolCallId = known_id(&mut fact, "toolCallId");
        if !self.memory.knows_call(&id) {
            self.memory.open_call(Call::new(id.clone(), "", self.agent.clone()));
        }
        self.args_complete(&id, fact);
    }

    /// The arguments are complete, and what was streamed is all of them.
    pub(super) fn args_complete(&mut self, id: &ToolCallId, rest: Fact) {
        let mut draft = self.tool(EventType::ToolArgs, id.clone(), rest).with("state", "input-available");
        draft.persistence = Persistence::Archive;
        if let Some(call) = self.memory.call_mut(id) {
            call.ready = true;
            draft = draft.with("inputTextBytes", call.args_bytes);
        }
        self.push(draft);
    }

    /// The arguments as a whole, of a call that never streamed them.
    pub(super) fn args_whole(&mut self, id: &ToolCallId, text: &str) {
        match input(text) {
            ("input", input) => {
                let mut draft = self.tool(EventType::ToolArgs, id.clone(), Map::new()).with("input", input);
                draft.persistence = Persistence::Archive;
                if let Some(call) = self.memory.call_mut(id) {
                    (call.ready, call.args_bytes) = (true, text.len() as u64);
                }
                self.push(draft);
            }
            _ => {
                self.args(id.clone(), text.to_owned(), Map::new());
                self.args_complete(id, Map::new());
            }
        }
    }

    pub(super) fn tool_call_chunk(&mut self, mut fact: Fact) {
        let named: Option<ToolCallId> = take_id(&mut fact, "toolCallId");
        let goes_on = match &self.memory.chunk {
            Some(Chunk::Called(call, opener)) if self.may_continue(opener.as_ref()) => {
                Some(call.clone()).filter(|call| named.as_ref().is_none_or(|named| named == call))
            }
            _ => None,
        };
        let text = take_text(&mut fact, "delta");
        if let Some(id) = goes_on {
            return self.args(id, text.unwrap_or_default(), fact);
        }
        self.end_chunk();
        let Some(id) = named else {
            fact.extend(text.map(|text| ("delta".to_owned(), text.into())));
            return self.malformed("TOOL_CALL_CHUNK", fact, "toolCallId as an id");
        };
        let name = take_text(&mut fact, "toolCallName");
        if let Some(call) = self.memory.call_mut(&id).filter(|_| name.is_none()) {
            // Another call came between: it goes on.
            call.ready = false;
            self.memory.chunk = Some(Chunk::Called(id.clone(), call.agent.clone()));
            return self.args(id, text.unwrap_or_default(), fact);
        }
        let parent = take_id(&mut fact, "parentMessageId");
        self.start_call(id.clone(), &name.unwrap_or_default(), parent, fact);
        self.memory.chunk = Some(Chunk::Called(id.clone(), self.agent.clone()));
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.args(id, text, Map::new());
        }
    }

    pub(super) fn tool_call_result(&mut self, mut fact: Fact) {
        let id: ToolCallId = known_id(&mut fact, "toolCallId");
        let message = take_id(&mut fact, "messageId");
        let content = fact.shift_remove("content");
        let role = take_text(&mut fact, "role");
        self.result(id, message, content, role, fact);
    }

    /// A result. Whether it is a good one nobody says.
    pub(super) fn result(
        &mut self,
        id: ToolCallId,
        message: Option<MessageId>,
        content: Option<Value>,
        role: Option<String>,
        rest: Fact,
    ) {
        let mut draft = self.tool(EventType::ToolResult, id.clone(), rest).with("outcome", "unknown");
        self.name_call(&mut draft, &id);
        draft.payload.extend(content.map(|content| ("output".to_owned(), content)));
        draft.payload.extend(role.map(|role| ("role".to_owned(), role.into())));
        draft.ids.message = message;
        draft.audience = Audience::User;
        self.memory.end_call(&id);
        self.push(draft);
    }

    /// A tool's message that says by its own member that the call failed.
    pub(super) fn failure(&mut self, id: ToolCallId, message: Option<MessageId>, error: String, content: Option<Value>) {
        let mut draft = self.tool(EventType::ToolFailed, id.clone(), Map::new()).with("error", json!({ "message": error }));
        self.name_call(&mut draft, &id);
        draft.payload.extend(content.map(|content| ("output".to_owned(), content)));
        draft.ids.message = message;
        self.memory.end_call(&id);
        self.push(draft);
    }

    /// Names the call's tool, where that is known.
    pub(super) fn name_call(&self, draft: &mut Draft, id: &ToolCallId) {
        if let Some(call) = self.memory.call(id).filter(|call| !call.name.is_empty()) {
            draft.payload.insert("toolName".into(), call.name.as_str().into());
        }
    }

    /// Tells which calls wait for the client's result, now that the run ends well. Where the run does not name them, they are
    /// those whose arguments are complete, and which nobody holds.
    pub(super) fn await_client(&mut self, named: Option<Vec<ToolCallId>>) {
        let calls = &self.memory.calls;
        let waiting =
            named.unwrap_or_else(|| calls.iter().filter(|call| call.ready && !call.held).map(|call| call.id.clone()).collect());
        for id in waiting {
            if self.memory.call(&id).is_some_and(|call| call.awaited) || self.memory.ended_calls.contains(&id) {
                continue;
            }
            if self.memory.call(&id).is_none() {
                self.memory.open_call(Call::new(id.clone(), "", None));
            }
            let mut draft = self.tool(EventType::ToolProgress, id.clone(), Map::new());
            draft = draft.with("status", "pending").with("awaits", "client");
            self.name_call(&mut draft, &id);
            (draft.audience, draft.persistence) = (Audience::User, Persistence::Snapshot);
            if let Some(call) = self.memory.call_mut(&id) {
                call.awaited = true;
            }
            self.push(draft);
        }
    }
}

/// Arguments that came as text, as JSON if they are: members of a payload. What is deeper than a fact may be stays text.
pub(super) fn input(text: &str) -> (&'static str, Value) {
    match serde_json::from_str(text) {
        Ok(input) if is_within(&input, INPUT_DEPTH_MAX) => ("input", input),
        _ => ("inputText", text.into()),
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(map) => levels > 0 && map.values().all(|value| is_within(value, levels - 1)),
        _ => true,
    }
}
