//! Tool calls: from the model's request to a result.
//! A result does not report success.
//!
//! If a run ends and a call has no result, the client must run the call. The call then waits beyond the run's end until
//! the client's answer arrives by any route. The adapter streams arguments and never stores them; the envelope that
//! reports complete arguments does not repeat them.

use super::streams::Chunk;
use super::{AgUi, EventHandler};
use crate::Fact;
use crate::bounded::keyed;
use crate::members::{carry_all, diagnostic, input, malformed, name_of, take_checked_id, take_id, take_text};
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, Owner, Persistence, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: ToolCallId,
    pub name: String,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// The length of the streamed arguments, in bytes.
    pub args_bytes: u64,
    /// Whether the model completed the request. A call with an incomplete request never runs.
    pub ready: bool,
    /// Whether the run was interrupted while the call was open.
    /// The runtime then runs the call, not the client.
    #[serde(default)]
    pub held: bool,
    /// Whether the client has been notified that the run awaits its result.
    #[serde(default)]
    pub awaited: bool,
}

keyed! { Call: ToolCallId = id; }

impl Call {
    fn new(id: ToolCallId, name: &str, agent: Option<AgentId>) -> Self {
        Self { id, name: name_of(name), agent, args_bytes: 0, ready: false, held: false, awaited: false }
    }
}

impl AgUi {
    /// Returns the one call that is ready and not held or awaited. `None`: no such call, or several.
    pub(super) fn only_ready_call(&self) -> Option<ToolCallId> {
        self.calls.only(|call| call.ready && !call.held && !call.awaited).map(|call| call.id.clone())
    }

    /// Ends every call of an ended run, except calls that await the client's result.
    pub(super) fn end_calls(&mut self) {
        self.calls.open.retain(|call| call.awaited);
    }

    /// Marks the open calls of an interrupted run as held: the runtime runs them, not the client.
    pub(super) fn hold_calls(&mut self) {
        self.calls.open.iter_mut().for_each(|call| call.held = true);
    }
}

impl EventHandler<'_> {
    /// Creates a draft about a call. The agent is that of the call's start; later events need not name it.
    fn tool(&self, class: EventType, id: ToolCallId, rest: Fact) -> Draft {
        carry_all(Draft::new(class), rest)
            .with_agent(self.memory.calls.open.find(&id).map_or_else(|| self.agent.clone(), |call| call.agent.clone()))
            .with_call(id)
    }

    pub(super) fn tool_call_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolCallName").unwrap_or_default();
        let parent = take_id(&mut fact, "parentMessageId");
        self.close_unanswered(&id);
        self.start_call(id, &name, parent, fact);
    }

    /// Ends a call whose request is complete, because another one starts under its id: its result is on no stream.
    ///
    /// An interrupted run announces the calls that it left again.
    fn close_unanswered(&mut self, id: &ToolCallId) {
        if self.memory.calls.open.find(id).is_some_and(|call| call.ready && !call.held && !call.awaited) {
            self.result(id.clone(), None, None, None, Map::new());
        }
    }

    pub(super) fn start_call(&mut self, id: ToolCallId, name: &str, parent: Option<MessageId>, rest: Fact) {
        self.memory.calls.start(Call::new(id.clone(), name, self.agent.clone()));
        let draft = self.tool(EventType::ToolStarted, id, rest).with_tool_name(Some(name));
        // Until the arguments are complete, the call is the model's request and not yet the tool's work.
        self.push(draft.with_owner(Owner::Model).with_message(parent));
    }

    pub(super) fn tool_call_args(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let is_over = self.memory.calls.open.find(&id).map_or_else(|| self.out.has_started(&id), |call| call.ready);
        if is_over {
            return self.push_own(diagnostic("write_after_seal", "TOOL_CALL_ARGS", fact).with_call(id));
        }
        let text = take_text(&mut fact, "delta").unwrap_or_default();
        self.args(id, text, fact);
    }

    fn args(&mut self, id: ToolCallId, text: String, rest: Fact) {
        if !self.memory.calls.open.has(&id) {
            self.memory.calls.start(Call::new(id.clone(), "", self.agent.clone()));
        }
        if let Some(call) = self.memory.calls.open.find_mut(&id) {
            call.args_bytes += text.len() as u64;
        }
        let draft = self.tool(EventType::ToolArgs, id, rest).call(|call| call.input_text = Some(text));
        self.push(draft);
    }

    pub(super) fn tool_call_end(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        if !self.memory.calls.know(&id, &self.out) {
            self.memory.calls.start(Call::new(id.clone(), "", self.agent.clone()));
        }
        self.report_complete_args(&id, fact);
    }

    /// Reports that the streamed arguments are complete.
    pub(super) fn report_complete_args(&mut self, id: &ToolCallId, rest: Fact) {
        let mut draft = self.tool(EventType::ToolArgs, id.clone(), rest);
        draft = draft.call(|call| call.state = Some("input-available".to_owned()));
        draft.persistence = Persistence::Archive;
        if let Some(call) = self.memory.calls.open.find_mut(id) {
            call.ready = true;
            draft = draft.with("inputTextBytes", call.args_bytes);
        }
        self.push(draft);
        self.memory.calls.forget_if_ended(id, &self.out);
    }

    /// Reports the whole arguments of a call that streamed none.
    pub(super) fn report_whole_args(&mut self, id: &ToolCallId, text: &str) {
        match input(text) {
            ("input", input) => {
                let draft = self.tool(EventType::ToolArgs, id.clone(), Map::new());
                let draft = draft.call(|call| call.input = Some(input.into()));
                if let Some(call) = self.memory.calls.open.find_mut(id) {
                    (call.ready, call.args_bytes) = (true, text.len() as u64);
                }
                self.push(draft.with_persistence(Persistence::Archive));
                self.memory.calls.forget_if_ended(id, &self.out);
            }
            _ => {
                self.args(id.clone(), text.to_owned(), Map::new());
                self.report_complete_args(id, Map::new());
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
            return self.push(malformed("TOOL_CALL_CHUNK", fact, "toolCallId as an id"));
        };
        let name = take_text(&mut fact, "toolCallName");
        if let Some(call) = self.memory.calls.open.find_mut(&id).filter(|_| name.is_none()) {
            // The chunks of two calls interleave: this call continues.
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
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let message = take_id(&mut fact, "messageId");
        let content = fact.shift_remove("content");
        let role = take_text(&mut fact, "role");
        self.result(id, message, content, role, fact);
    }

    /// Reports a result. AG-UI does not say whether the call succeeded.
    pub(super) fn result(
        &mut self,
        id: ToolCallId,
        message: Option<MessageId>,
        content: Option<Value>,
        role: Option<String>,
        rest: Fact,
    ) {
        let draft = self.tool(EventType::ToolResult, id.clone(), rest).with("outcome", "unknown");
        let draft = self.name_call(draft, &id).call(|call| call.output = content.map(Box::new));
        self.memory.calls.end(&id);
        self.push(draft.with_some("role", role).with_message(message).with_audience(Audience::User));
    }

    /// Reports a failure from a tool's message with an `error` member.
    pub(super) fn failure(&mut self, id: ToolCallId, message: Option<MessageId>, error: String, content: Option<Value>) {
        let draft = self.tool(EventType::ToolFailed, id.clone(), Map::new()).call(|call| {
            call.error = Some(json!({ "message": error }).into());
            call.output = content.map(Box::new);
        });
        let draft = self.name_call(draft, &id);
        self.memory.calls.end(&id);
        self.push(draft.with_message(message));
    }

    /// Adds the name of the call's tool, if known.
    pub(super) fn name_call(&self, draft: Draft, id: &ToolCallId) -> Draft {
        let call = self.memory.calls.open.find(id);
        draft.with_tool_name(call.map(|call| call.name.as_str()).filter(|name| !name.is_empty()))
    }

    /// Reports the calls that await the client's result after a successful run.
    ///
    /// If the run does not name them, they are the calls with complete arguments that the runtime does not hold.
    pub(super) fn await_client(&mut self, named: Option<Vec<ToolCallId>>) {
        let calls = &self.memory.calls.open;
        let waiting =
            named.unwrap_or_else(|| calls.iter().filter(|call| call.ready && !call.held).map(|call| call.id.clone()).collect());
        for id in waiting {
            match self.memory.calls.open.find(&id) {
                Some(call) if call.awaited => continue,
                None if self.out.has_begun(&id) => continue,
                None => self.memory.calls.start(Call::new(id.clone(), "", None)),
                Some(_) => {}
            }
            let draft = self.tool(EventType::ToolProgress, id.clone(), Map::new()).call(|call| {
                call.status = Some("pending".to_owned());
                call.awaits = Some("client".to_owned());
            });
            let draft = self.name_call(draft, &id);
            if let Some(call) = self.memory.calls.open.find_mut(&id) {
                call.awaited = true;
            }
            self.push(draft.with_audience(Audience::User).with_persistence(Persistence::Snapshot));
        }
    }
}
