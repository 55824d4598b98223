//! Tool calls and approvals.
//!
//! An output names only its call. A call that waits for a decision is approved when its output comes and rejected when
//! its denial comes: the decision itself travels in the client's next request. The output of a client's tool appears on
//! no stream, so the call ends when the model works again.

use super::turn::Resumption;
use super::{AiSdk, EventHandler, Unused};
use crate::Fact;
use crate::bounded::keyed;
use crate::members::{carry_all, id_of, name_of, next_id, take_checked_id, take_flag, take_id, take_text};
use crate::turn::{error, resolved};
use proscenium_model::{ActionId, ActionKind, Audience, Draft, EventType, Owner, Persistence, Phase, Scope, Surface, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The activity type of a preliminary output.
const OUTPUT: &str = "tool-output";

/// A call without a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    id: ToolCallId,
    name: String,
    /// The step that began the call.
    step: u64,
    /// Whether the input is complete.
    is_ready: bool,
    /// Whether the provider runs the call. The client must not.
    is_of_provider: bool,
    unused: Unused,
}

/// A pending approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    action: ActionId,
    call: ToolCallId,
}

keyed! { Call: ToolCallId = id; Pending: ActionId = action; }

/// Members of a call that are for users.
#[rustfmt::skip]
const CALL_MEMBERS: &[(&str, &str)] = &[
    ("title", "title"), ("dynamic", "dynamic"), ("providerExecuted", "providerExecuted"), ("inputEncoding", "inputEncoding"),
    ("synthetic", "synthetic"), ("app", "app"),
];

/// Members of the messages of sub-agents that hold the provider's data, not text.
const MESSAGE_INTERNALS: &[&str] =
    &["metadata", "providerMetadata", "callProviderMetadata", "resultProviderMetadata", "toolMetadata", "approval"];

impl AiSdk {
    /// Whether the run waits for a decision or for a client's tool.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty() || self.calls.open.iter().any(|call| call.is_ready && !call.is_of_provider)
    }

    fn is_pending(&self, call: &ToolCallId) -> bool {
        self.pending.iter().any(|pending| pending.call == *call)
    }
}

impl EventHandler<'_> {
    /// Creates a draft about a call, with the members of the chunk that are for users in the payload.
    fn tool(class: EventType, id: ToolCallId, mut rest: Fact) -> Draft {
        let draft = Draft::new(class).with_moved(&mut rest, CALL_MEMBERS).with_call(id);
        carry_all(draft, rest)
    }

    // ── input ──

    pub(super) fn tool_input_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        self.start_call(id, fact);
    }

    /// Starts a call. An id that has ended may come again.
    fn start_call(&mut self, id: ToolCallId, mut fact: Fact) {
        let name = take_text(&mut fact, "toolName").unwrap_or_default();
        let is_of_provider = fact.get("providerExecuted") == Some(&Value::Bool(true));
        let step = self.memory.steps;
        self.memory.never_started.take(&id);
        let call =
            Call { id: id.clone(), name: name_of(&name), step, is_ready: false, is_of_provider, unused: Unused::default() };
        self.memory.calls.start(call);
        let draft = Self::tool(EventType::ToolStarted, id, fact).call(|call| {
            call.tool_name = Some(name);
            call.state = Some("input-streaming".to_owned());
        });
        // Until the input is complete, the call is the model's request and not yet the tool's work.
        let draft = draft.with_owner(Owner::Model).with_message(self.memory.message());
        self.push(draft);
    }

    pub(super) fn tool_input_delta(&mut self, text: String, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        if !self.memory.calls.know(&id, &self.out) {
            self.start_call(id.clone(), Map::from_iter([("synthetic".to_owned(), Value::Bool(true))]));
        }
        let draft = Self::tool(EventType::ToolArgs, id, fact).call(|call| call.input_text = Some(text));
        self.push(draft.with_audience(Audience::Dashboard));
    }

    pub(super) fn tool_input_available(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let input = fact.shift_remove("input");
        self.start_unless_open(&id, &mut fact);
        let is_of_provider = fact.get("providerExecuted") == Some(&Value::Bool(true));
        if let Some(call) = self.memory.calls.open.find_mut(&id) {
            call.is_ready = true;
            call.is_of_provider |= is_of_provider;
        }
        let draft = Self::tool(EventType::ToolArgs, id.clone(), fact).call(|call| {
            call.state = Some("input-available".to_owned());
            // An absent input was undefined in the backend.
            call.input = Some(input.unwrap_or(Value::Null).into());
        });
        self.push(draft.with_persistence(Persistence::Archive));
        self.memory.calls.forget_if_ended(&id, &self.out);
    }

    /// Starts a call whose input was not streamed; else removes what the start has reported.
    fn start_unless_open(&mut self, id: &ToolCallId, fact: &mut Fact) {
        if self.memory.calls.open.has(id) {
            fact.shift_remove("toolName");
            return;
        }
        let start = ["toolName", "title", "dynamic", "providerExecuted"].iter();
        let start = start.filter_map(|member| Some(((*member).to_owned(), fact.get(*member)?.clone())));
        self.start_call(id.clone(), start.collect());
        fact.shift_remove("toolName");
    }

    pub(super) fn tool_input_error(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        self.start_unless_open(&id, &mut fact);
        if let Some(input) = fact.shift_remove("input") {
            let draft = Self::tool(EventType::ToolArgs, id.clone(), Map::new());
            let draft = draft.call(|call| call.input = Some(input.into()));
            self.push(draft.with_persistence(Persistence::Archive));
        }
        let draft = self.failure(id.clone(), None, fact).call(|call| call.never_started = Some(true));
        self.memory.never_started.add(id);
        self.push(draft);
    }

    // ── approvals ──

    pub(super) fn approval_request(&mut self, mut fact: Fact) {
        let call: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        if take_flag(&mut fact, "isAutomatic") == Some(true) {
            let draft = self.permission(&mut fact, Some(call)).with("status", "requested");
            return self.push(carry_all(draft, fact));
        }
        let action: ActionId =
            take_id(&mut fact, "approvalId").unwrap_or_else(|| next_id("ai-sdk-action", &mut self.memory.actions_made));
        self.memory.pending.add(Pending { action: action.clone(), call: call.clone() });
        // The server takes the tool and its input from the call.
        let draft = Draft::new(EventType::ActionRequired).with("kind", ActionKind::ToolApproval.as_str());
        let draft = draft.with_moved(&mut fact, &[("reason", "message")]).with_owner(ActionKind::ToolApproval.owner());
        let draft = draft.with_message(self.memory.message()).with_action(action).with_call(call);
        self.push(carry_all(draft, fact));
    }

    pub(super) fn approval_response(&mut self, mut fact: Fact) {
        let is_approved = take_flag(&mut fact, "approved") == Some(true);
        let pending = id_of::<ActionId>(&fact, "approvalId");
        if let Some(pending) = pending.and_then(|id| self.memory.pending.take(&id)) {
            fact.shift_remove("approvalId");
            let draft = pending.resolved(if is_approved { "approved" } else { "rejected" });
            return self.push(carry_all(draft.with_moved(&mut fact, &[("reason", "reason")]), fact));
        }
        let status = if is_approved { "granted" } else { "denied" };
        let draft = self.permission(&mut fact, None).with("status", status).with("approved", is_approved);
        self.push(carry_all(draft, fact));
    }

    /// Creates a draft about a decision of the backend's policy. No person is asked.
    fn permission(&self, fact: &mut Fact, call: Option<ToolCallId>) -> Draft {
        let draft = Draft::new(EventType::PermissionChanged);
        let draft = draft.with_moved(fact, &[("approvalId", "permissionId"), ("reason", "reason")]);
        draft.with_scope(Scope::ToolCall).with_surface(Surface::ToolUi).with_call(call)
    }

    /// Resolves the pending approvals of a call: its output shows the decision.
    fn resolve(&mut self, call: &ToolCallId, outcome: &str) {
        while let Some(action) = self.memory.pending.iter().find(|pending| pending.call == *call).map(|p| p.action.clone()) {
            if let Some(pending) = self.memory.pending.take(&action) {
                self.push(pending.resolved(outcome));
            }
        }
    }

    // ── output ──

    pub(super) fn tool_output(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        self.resolve(&id, "approved");
        let mut output = fact.shift_remove("output");
        let internals = output.as_mut().and_then(take_message_internals);
        if take_flag(&mut fact, "preliminary") == Some(true) {
            return self.preliminary_output(id, output.unwrap_or(Value::Null), fact);
        }
        let draft = Self::tool(EventType::ToolResult, id.clone(), fact).call(|call| call.output = output.map(Box::new));
        let draft = self.end_call(draft, &id);
        self.push(draft.with_audience(Audience::User));
        if let Some(internals) = internals {
            let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "message_metadata").with("output", internals);
            self.push(draft.with_call(id));
        }
    }

    /// Names the call's tool, and ends the call.
    fn end_call(&mut self, draft: Draft, id: &ToolCallId) -> Draft {
        draft.with_tool_name(self.memory.calls.end(id).map(|call| call.name).filter(|name| !name.is_empty()))
    }

    /// Reports an output that a later one replaces. The last one comes again as the final output.
    fn preliminary_output(&mut self, id: ToolCallId, output: Value, rest: Fact) {
        let progress = output.get("progress").and_then(Value::as_number).cloned();
        let progress = progress.filter(|n| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n)));
        let draft = Self::tool(EventType::ToolProgress, id.clone(), rest).with_audience(Audience::User);
        self.push(draft.call(|call| {
            call.activity_type = Some(OUTPUT.to_owned());
            call.content = Some(as_object(output).into());
            call.replace = Some(true);
            call.progress.clone_from(&progress);
        }));
        if progress.is_some() {
            let draft = Self::tool(EventType::ToolProgress, id, Map::new()).call(|call| call.progress = progress);
            self.push(draft.with_audience(Audience::User));
        }
    }

    pub(super) fn tool_output_error(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        if self.memory.never_started.take(&id).is_some() {
            return;
        }
        self.resolve(&id, "approved");
        let draft = self.failure(id, None, fact);
        self.push(draft);
    }

    pub(super) fn tool_output_denied(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        self.resolve(&id, "rejected");
        let draft = self.failure(id, Some(("denied", "the call was not approved")), fact);
        let draft = draft.call(|call| call.never_started = Some(true));
        self.push(draft.with_phase(Phase::Cancelled));
    }

    /// Creates the end of a failed call, from its code and message or from the chunk's text.
    fn failure(&mut self, id: ToolCallId, reason: Option<(&str, &str)>, mut fact: Fact) -> Draft {
        let (code, message) = match reason {
            Some((code, message)) => (Some(code), Some(message.to_owned())),
            None => (None, take_text(&mut fact, "errorText")),
        };
        let error = error(code, message.unwrap_or_else(|| "the tool failed without saying why".into()));
        let draft = Self::tool(EventType::ToolFailed, id.clone(), fact);
        self.end_call(draft.call(|call| call.error = Some(Box::new(error.into()))), &id)
    }

    // ── around pauses and ends ──

    /// Reports the calls that a client's tool must answer. Calls without a complete input never run.
    pub(super) fn await_client(&mut self) {
        let unready: Vec<_> = self.memory.calls.open.iter().filter(|call| !call.is_ready).map(|call| call.id.clone()).collect();
        for id in unready {
            self.drop_call(id, "incomplete", "its input was never complete");
        }
        let calls = self.memory.calls.open.iter().filter(|call| !call.is_of_provider && !self.memory.is_pending(&call.id));
        for (id, name) in calls.map(|call| (call.id.clone(), call.name.clone())).collect::<Vec<_>>() {
            let draft = Self::tool(EventType::ToolProgress, id, Map::new()).call(|call| {
                call.tool_name = Some(name);
                call.status = Some("pending".to_owned());
                call.awaits = Some("client".to_owned());
            });
            self.push(draft.with_audience(Audience::User).with_persistence(Persistence::Snapshot));
        }
    }

    /// Ends the calls that the client answered or abandoned: after a pause, the model works again.
    pub(super) fn close_answered_calls(&mut self) {
        let Some(resumption) = self.memory.resumption.take() else { return };
        if resumption == Resumption::Abandoned {
            for pending in self.memory.pending.take_all() {
                let call = pending.call.clone();
                self.push(pending.resolved("cancelled"));
                self.drop_call(call, "abandoned", "the conversation continued without a decision");
            }
        }
        let calls = self.memory.calls.open.iter().filter(|call| call.is_ready && !call.is_of_provider);
        let calls: Vec<_> = calls.map(|call| call.id.clone()).filter(|id| !self.memory.is_pending(id)).collect();
        for id in calls {
            if resumption == Resumption::Abandoned {
                self.drop_call(id, "abandoned", "the conversation continued without a result");
                continue;
            }
            // The client sent the result to the backend.
            let draft = Self::tool(EventType::ToolResult, id.clone(), Map::new()).with("outcome", "unknown");
            let draft = self.end_call(draft, &id);
            self.push(draft.with_audience(Audience::User));
        }
    }

    /// Ends the open calls of the current step: the step is voided.
    pub(super) fn drop_calls_of_step(&mut self) {
        let step = self.memory.steps;
        let calls: Vec<_> = self.memory.calls.open.iter().filter(|call| call.step == step).map(|c| c.id.clone()).collect();
        for id in calls {
            self.resolve(&id, "cancelled");
            self.drop_call(id, "reset", "the step was reset");
        }
    }

    /// Ends a call that never ran.
    fn drop_call(&mut self, id: ToolCallId, code: &str, message: &str) {
        let draft = self.failure(id, Some((code, message)), Map::new()).call(|call| call.never_started = Some(true));
        self.push(draft.with_owner(Owner::Runtime).with_phase(Phase::Cancelled));
    }

    /// Ends the calls that are still open after the run's end.
    pub(super) fn interrupt_calls(&mut self) {
        for call in self.memory.calls.open.iter().map(|call| call.id.clone()).collect::<Vec<_>>() {
            let draft = self.failure(call, Some(("interrupted", "the run ended before the call")), Map::new());
            self.push(draft.with_owner(Owner::Runtime).with_phase(Phase::Interrupted));
        }
    }
}

impl Pending {
    fn resolved(self, outcome: &str) -> Draft {
        resolved(self.action, Some(self.call), outcome, ActionKind::ToolApproval.owner())
    }
}

/// Wraps a value that is not an object as the content of an activity.
pub(super) fn as_object(value: Value) -> Value {
    if value.is_object() { value } else { json!({ "value": value }) }
}

/// Takes the provider's data out of an output that is a sub-agent's message. `None`: it has none, or is no message.
fn take_message_internals(output: &mut Value) -> Option<Value> {
    let message = output.as_object_mut().filter(|message| message.get("role").is_some_and(|role| role == "assistant"))?;
    let mut taken = Vec::new();
    let mut take = |of: &mut Map<String, Value>| {
        let internals: Map<_, _> = MESSAGE_INTERNALS.iter().filter_map(|member| of.shift_remove_entry(*member)).collect();
        taken.extend((!internals.is_empty()).then_some(Value::Object(internals)));
    };
    let Some(Value::Array(parts)) = message.get_mut("parts") else { return None };
    parts.iter_mut().filter_map(Value::as_object_mut).for_each(&mut take);
    take(message);
    (!taken.is_empty()).then_some(Value::Array(taken))
}
