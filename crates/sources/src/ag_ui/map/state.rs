//! State, activities, and the untyped events `CUSTOM` and `RAW`.
//!
//! An application shares its state with its frontend on purpose. Awaken's encoder instead sends runtime internals as
//! state: such a snapshot and all changes to it are internal. An activity belongs to its source, except progress
//! reports of a tool, which belong to the call.

use super::EventHandler;
use crate::Fact;
use crate::bounded::Bounded;
use crate::members::{carry_all, take_checked_id, take_list, take_text};
use crate::report::{PROGRESS, call_of, report_draft};
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, Scope, Surface, ToolCallId};
use serde_json::{Map, Value};

/// The activity type in which Awaken's encoder streams a tool's output.
const OUTPUT: &str = "tool-stream-output";

/// The activity type of a sub-agent's state. The run's own state is the log's only `state`.
const SUBAGENT_STATE: &str = "subagent-state";

/// The most progress reports whose call the adapter remembers.
pub(in crate::ag_ui) const REPORTS_MAX: usize = 64;

/// The most agents with internal state that the adapter tracks.
/// Beyond this limit every state counts as internal.
pub(in crate::ag_ui) const INTERNAL_MAX: usize = 32;

impl EventHandler<'_> {
    // ── state ──

    pub(super) fn state_snapshot(&mut self, mut fact: Fact) {
        let snapshot = fact.shift_remove("snapshot").unwrap_or(Value::Null);
        let states = &mut self.memory.internal_states;
        if holds_internals(&snapshot) {
            remember_internal(states, self.agent.as_ref());
        } else if states.len() < INTERNAL_MAX {
            states.take(&self.agent);
        }
        let draft = self.state(EventType::StateSnapshot, fact).with("state", snapshot);
        self.push_own(draft);
    }

    pub(super) fn state_delta(&mut self, mut fact: Fact) {
        let patch = take_list(&mut fact, "delta");
        if patch.iter().any(touches_internals) {
            remember_internal(&mut self.memory.internal_states, self.agent.as_ref());
        }
        let draft = self.state(EventType::StateDelta, fact).with("patch", patch);
        self.push_own(draft);
    }

    /// Creates a draft about the state of the event's agent.
    fn state(&self, class: EventType, rest: Fact) -> Draft {
        let mut draft = carry_all(Draft::new(class), rest);
        if let Some(agent) = &self.agent {
            draft.payload.insert("activityType", SUBAGENT_STATE.into());
            draft.ids.message = MessageId::new(agent.as_str()).ok();
        }
        let states = &self.memory.internal_states;
        if states.contains(&self.agent) || states.len() >= INTERNAL_MAX {
            (draft.scope, draft.surface, draft.audience) = (Scope::Run, Surface::Diagnostics, Audience::Internal);
        }
        draft
    }

    // ── activities ──

    pub(super) fn activity_snapshot(&mut self, mut fact: Fact) {
        let target: MessageId = take_checked_id(&mut fact, "messageId");
        let activity = take_text(&mut fact, "activityType").unwrap_or_default();
        let content = fact.shift_remove("content").unwrap_or(Value::Null);
        let replace = fact.shift_remove("replace");
        if activity == PROGRESS {
            self.remember_report(&target, &content);
        }
        match content {
            Value::Object(content) if activity == PROGRESS && replace != Some(Value::Bool(false)) => {
                self.progress(&target, content, fact);
            }
            content => {
                let mut draft = self.activity(EventType::StateSnapshot, target, activity, fact).with("content", content);
                // The default of `replace` is true, so an absent member adds nothing.
                draft.set("replace", replace);
                self.push(draft);
            }
        }
    }

    pub(super) fn activity_delta(&mut self, mut fact: Fact) {
        let target: MessageId = take_checked_id(&mut fact, "messageId");
        let activity = take_text(&mut fact, "activityType").unwrap_or_default();
        let patch = take_list(&mut fact, "patch");
        let call = ToolCallId::new(target.as_str()).ok().filter(|_| activity == OUTPUT);
        if let (Some(call), Some(text)) = (call, streamed(&patch)) {
            let draft = carry_all(Draft::new(EventType::ToolOutputDelta).with_text(text), fact);
            return self.push(draft.with_agent(self.agent_of(&call)).with_call(call).with_audience(Audience::User));
        }
        let draft = self.activity(EventType::StateDelta, target, activity, fact).with("patch", patch);
        self.push(draft);
    }

    /// Creates a draft of a source's own activity.
    /// Awaken puts the id of the call in place of the message id.
    pub(super) fn activity(&self, class: EventType, target: MessageId, activity: String, rest: Fact) -> Draft {
        let call =
            ToolCallId::new(target.as_str()).ok().filter(|call| self.memory.calls.open.has(call) || self.out.know_call(call));
        let reported = || self.memory.reports.find(&target).map(|(_, call)| call.clone());
        let call = call.or_else(|| reported().filter(|_| activity == PROGRESS));
        let mut draft = carry_all(Draft::new(class).with("activityType", activity), rest);
        (draft.scope, draft.phase, draft.surface) = (Scope::Message, Phase::Acting, Surface::InlineProcess);
        draft.ids.agent = call.as_ref().map_or_else(|| self.agent.clone(), |call| self.agent_of(call));
        draft.ids.tool_call = call;
        draft.ids.message = Some(target);
        draft
    }

    fn agent_of(&self, call: &ToolCallId) -> Option<AgentId> {
        self.memory.calls.open.find(call).map_or_else(|| self.agent.clone(), |call| call.agent.clone())
    }

    /// Remembers the call of a report whose message id differs.
    /// Patches of the report name only the message id.
    fn remember_report(&mut self, target: &MessageId, content: &Value) {
        let Some(call) = content.as_object().and_then(call_of) else { return };
        self.memory.reports.take(target);
        if call.as_str() != target.as_str() {
            self.memory.reports.add((target.clone(), call));
        }
    }

    fn progress(&mut self, target: &MessageId, content: Map<String, Value>, rest: Fact) {
        let Some(id) = call_of(&content).or_else(|| ToolCallId::new(target.as_str()).ok()) else { return };
        let own = [self.memory.run.as_ref(), self.given.run.as_ref()];
        let (mut draft, is_child) = report_draft(id.clone(), content, own, rest);
        draft.ids.agent = self.agent_of(&id);
        let names_agent = draft.ids.agent.is_some();
        let mut draft = self.memory.about(draft, self.given);
        if is_child && !names_agent {
            // The report does not name the child's agent, and the child is not the agent of this run.
            draft.ids.agent = None;
        }
        self.out.push(draft);
    }

    // ── the rest ──

    /// Keeps an application's own event. Only the application knows its meaning.
    pub(super) fn custom(&mut self, mut fact: Fact) {
        let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", "custom");
        for member in ["name", "value"] {
            draft.set(member, fact.shift_remove(member));
        }
        (draft.owner, draft.surface, draft.persistence) = (Owner::Runtime, Surface::Custom, Persistence::EphemeralLive);
        draft.audience = Audience::Dashboard;
        self.push_own(carry_all(draft, fact));
    }

    /// Keeps the original event of the underlying runtime.
    pub(super) fn raw(&mut self, mut fact: Fact) {
        let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", "raw");
        for member in ["event", "source"] {
            draft.set(member, fact.shift_remove(member));
        }
        self.push_own(carry_all(draft, fact));
    }
}

/// Returns the tool output in a patch of Awaken's encoder: a single operation `add /delta`.
fn streamed(patch: &[Value]) -> Option<String> {
    let [operation] = patch else { return None };
    let says = |member: &str, text: &str| operation.get(member).and_then(Value::as_str) == Some(text);
    let text = operation.get("value").and_then(Value::as_str)?;
    (says("op", "add") && says("path", "/delta")).then(|| text.to_owned())
}

fn remember_internal(states: &mut Bounded<Option<AgentId>, INTERNAL_MAX>, agent: Option<&AgentId>) {
    if states.len() < INTERNAL_MAX {
        states.add(agent.cloned());
    }
}

/// Whether a state holds `extensions.__runtime.*`, like Awaken's.
fn holds_internals(state: &Value) -> bool {
    state.get("extensions").is_some_and(are_internals)
}

fn are_internals(extensions: &Value) -> bool {
    extensions.as_object().is_some_and(|map| map.keys().any(|name| name.starts_with("__runtime")))
}

/// Whether an operation writes or reads runtime internals.
fn touches_internals(operation: &Value) -> bool {
    let points = |member: &str| {
        let pointer = operation.get(member).and_then(Value::as_str).unwrap_or_default();
        pointer.starts_with("/extensions/__runtime")
    };
    let value = operation.get("value").unwrap_or(&Value::Null);
    points("path")
        || points("from")
        || match operation.get("path").and_then(Value::as_str) {
            Some("") => holds_internals(value),
            Some("/extensions") => are_internals(value),
            _ => false,
        }
}
