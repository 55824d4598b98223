//! Tool calls, from the model's request to the end.
//!
//! A call whose request the model never completed ends with its step. The end of a delegating call also reports its
//! child.

use super::{Call, EventHandler};
use crate::Fact;
use crate::members::{RuntimeId, add_rest, carry_all, diagnostic, name_of, take_checked_id, take_id, take_members, take_text};
use crate::turn::error;
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, Scope, TaskId, ToolCallId};
use serde_json::{Map, Value};

impl EventHandler<'_> {
    pub(super) fn tool(&self, class: EventType, call: ToolCallId, rest: Fact) -> Draft {
        carry_all(Draft::new(class), rest).with_call(call)
    }

    pub(super) fn tool_call_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let name = take_text(&mut fact, "name").unwrap_or_default();
        self.memory.text = None;
        self.memory.calls.start(Call { id: id.clone(), name: name_of(&name), args_bytes: 0, ready: false });
        let draft = self.tool(EventType::ToolStarted, id, fact).with_tool_name(Some(name));
        // Until the arguments are complete, the call is the model's request and not yet the tool's work.
        self.push(draft.with_owner(Owner::Model).with_message(self.memory.message.clone()));
    }

    pub(super) fn tool_call_delta(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let text = take_text(&mut fact, "args_delta").unwrap_or_default();
        if let Some(call) = self.memory.calls.open.find_mut(&id) {
            call.args_bytes += text.len() as u64;
        }
        let draft = self.tool(EventType::ToolArgs, id, fact).call(|call| call.input_text = Some(text));
        self.push(draft.with_audience(Audience::Dashboard));
    }

    pub(super) fn tool_call_ready(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let name = take_text(&mut fact, "name").unwrap_or_default();
        let input = fact.shift_remove("arguments").unwrap_or(Value::Null);
        let mut draft = self.tool(EventType::ToolArgs, id.clone(), fact).call(|call| call.input = Some(input.into()));
        match self.memory.calls.open.find_mut(&id) {
            Some(call) => call.ready = true,
            None => {
                self.memory.calls.start(Call { id: id.clone(), name: name_of(&name), args_bytes: 0, ready: true });
                draft = draft.with_tool_name(Some(name));
            }
        }
        self.memory.calls.forget_if_ended(&id, &self.out);
        self.push(draft.with_persistence(Persistence::Archive));
    }

    pub(super) fn tool_call_stream_delta(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let name = take_text(&mut fact, "name");
        let text = take_text(&mut fact, "delta");
        let is_announced = self.memory.calls.know(&id, &self.out);
        let draft = self.tool(EventType::ToolOutputDelta, id, fact).with_text(text);
        self.push(draft.with_tool_name(name.filter(|_| !is_announced)).with_audience(Audience::User));
    }

    pub(super) fn tool_call_cancel(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let name = take_text(&mut fact, "name");
        let reason = take_text(&mut fact, "reason").unwrap_or_else(|| "cancelled before it ran".into());
        self.memory.calls.end(&id);
        let draft = self.never_ran(id, &reason, fact).with_tool_name(name);
        self.push(draft);
    }

    /// Creates the end of a call that the runtime cancelled before it ran.
    ///
    /// The body is for operators. By the audience rule, every reader that saw the start sees the end.
    pub(super) fn never_ran(&self, id: ToolCallId, reason: &str, rest: Fact) -> Draft {
        let draft = self.tool(EventType::ToolFailed, id, rest).call(|call| {
            call.error = Some(Box::new(error(Some("cancelled"), reason).into()));
            call.never_started = Some(true);
        });
        let draft = draft.with_owner(Owner::Runtime);
        draft.with_phase(Phase::Cancelled).with_audience(Audience::Dashboard)
    }

    pub(super) fn drop_unready(&mut self, reason: &str) {
        let dropped = self.memory.calls.open.iter().filter(|call| !call.ready).map(|call| call.id.clone()).collect::<Vec<_>>();
        for call in dropped.iter().filter_map(|id| self.memory.calls.end(id)).collect::<Vec<_>>() {
            let draft = self.never_ran(call.id, reason, Map::new());
            self.push(draft.with_tool_name(Some(call.name)).with("inputTextBytes", call.args_bytes));
        }
    }

    /// Ends the calls of an attempt that stopped without an end event.
    pub(super) fn interrupt_calls(&mut self) {
        for call in self.memory.calls.end_all() {
            let error = error(Some("interrupted"), "the run was started again before the call ended");
            let draft = self.tool(EventType::ToolFailed, call.id, Map::new()).with_tool_name(Some(call.name));
            let draft = draft.call(|call| call.error = Some(Box::new(error.into())));
            self.push(draft.with_owner(Owner::Runtime).with_phase(Phase::Interrupted));
        }
        self.memory.pending.clear();
    }

    pub(super) fn tool_call_done(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "id");
        let message: Option<MessageId> = take_id(&mut fact, "message_id");
        let outcome = take_text(&mut fact, "outcome");
        let mut result = take_members(&mut fact, "result", "data");
        let outcome = match (outcome.as_deref(), result.get("status").and_then(Value::as_str)) {
            (Some("succeeded"), _) | (None, Some("success")) => EventType::ToolResult,
            (Some("suspended"), _) | (None, Some("pending")) => EventType::ActionRequired,
            (Some("failed"), _) | (None, Some("error")) => EventType::ToolFailed,
            (outcome, _) => {
                let outcome = outcome.unwrap_or_default().to_owned();
                fact.insert("result".into(), Value::Object(result));
                return self.push(diagnostic("unknown_outcome", "tool_call_done", fact).with("outcome", outcome).with_call(id));
            }
        };
        result.shift_remove("status");
        let known = || self.memory.calls.open.find(&id).map(|call| call.name.clone());
        let name = take_text(&mut result, "tool_name").or_else(known);
        let draft = self.tool(outcome, id, fact).with_message(message).with_tool_name(name);
        match draft.event_type {
            EventType::ActionRequired => self.suspended(draft, result),
            EventType::ToolFailed => self.failed(draft, result),
            _ => self.succeeded(draft, result),
        }
    }

    fn succeeded(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        self.end_of(&draft);
        let output = result.shift_remove("data").unwrap_or(Value::Null);
        let data = has_child(&result).then(|| output.clone());
        draft = draft.call(|call| {
            call.output = Some(output.into());
            call.status = Some("completed".to_owned());
        });
        draft.audience = Audience::User;
        add_rest(&mut draft, result);
        let child = child_of(&draft, data.as_ref(), "completed");
        self.push(draft);
        self.push_child(child);
    }

    fn failed(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        self.end_of(&draft);
        let data = result.shift_remove("data").filter(|v| !v.is_null());
        let detail = data.as_ref().and_then(|data| data.get("error"));
        let message = take_text(&mut result, "message")
            .or_else(|| detail.and_then(|e| e.get("message").unwrap_or(e).as_str()).map(str::to_owned))
            .unwrap_or_else(|| "the tool failed without saying why".into());
        let flag = |name: &str| result.get("metadata").and_then(|m| m.get(name)) == Some(&Value::Bool(true));
        // Awaken marks a cancelled tool only with this prefix (`ToolError::Cancelled`).
        let cancelled = message.starts_with("Cancelled:");
        let code = match (flag("timed_out"), flag("rejected"), cancelled) {
            (true, ..) => Some("timeout"),
            (_, true, _) => Some("rejected"),
            (.., true) => Some("cancelled"),
            _ => detail.and_then(|error| error.get("code")).and_then(Value::as_str),
        };
        let error = error(code, message.as_str());
        if flag("rejected") {
            self.rejected(&draft, &message);
        }
        draft = draft.call(|call| call.error = Some(Box::new(error.into())));
        if cancelled {
            draft.phase = Phase::Cancelled;
        }
        add_rest(&mut draft, result);
        let child = child_of(&draft, data.as_ref(), "failed");
        draft.set("data", data);
        self.push(draft);
        self.push_child(child);
    }

    /// Reports that a policy rejected the call, as an envelope beside the call's failure.
    fn rejected(&mut self, call: &Draft, message: &str) {
        let draft = Draft::new(EventType::PermissionChanged).with("decision", "denied").with("message", message);
        let draft = draft.with_tool_name(call.text("toolName"));
        self.push(draft.with_scope(Scope::ToolCall).with_call(call.ids.tool_call.clone()));
    }

    fn end_of(&mut self, draft: &Draft) {
        if let Some(id) = &draft.ids.tool_call {
            self.memory.calls.end(id);
        }
    }

    fn push_child(&mut self, child: Option<[Draft; 2]>) {
        for draft in child.into_iter().flatten() {
            if draft.event_type != EventType::AgentCompleted || draft.ids.agent.is_some() {
                let mut completed = self.memory.about(draft.clone(), self.given);
                // The draft is about the child, which may have no known agent id, and never about this run's agent.
                completed.ids.agent = draft.ids.agent;
                self.out.push(completed);
            }
        }
    }
}

fn has_child(result: &Map<String, Value>) -> bool {
    result.get("metadata").is_some_and(|metadata| metadata.get("child_run_id").is_some_and(Value::is_string))
}

/// Builds the child's notification and completion at the end of a delegating call.
fn child_of(call: &Draft, data: Option<&Value>, otherwise: &str) -> Option<[Draft; 2]> {
    let run = call.payload.get("metadata")?.get("child_run_id")?.as_str()?.to_owned();
    let member = |member: &str| data.and_then(|data| data.get(member));
    let status = member("status").and_then(Value::as_str).unwrap_or(otherwise).to_owned();
    let agent = member("agent_id").and_then(Value::as_str).and_then(AgentId::of);
    let child = |class: EventType| {
        let draft = Draft::new(class).with("status", status.as_str()).with("runtimeEntity", "subagent_turn");
        let draft = draft.with_agent(agent.clone()).with_task(TaskId::of(&run)).with_call(call.ids.tool_call.clone());
        draft.with_ref("childRunId", Some(run.as_str()))
    };
    let mut notice = child(EventType::WorkerNotification);
    notice.set("summary", member("response").cloned());
    let mut done = child(EventType::AgentCompleted);
    done.set("agentName", agent.as_ref().map(AgentId::as_str));
    if status == "failed" {
        done.phase = Phase::Failed;
    }
    Some([notice, done])
}
