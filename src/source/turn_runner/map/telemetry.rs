//! Telemetry for operators of the agent.
//!
//! It becomes only diagnostics and metrics. Messages, calls and runs do not depend on it.

use super::EventHandler;
use super::calls::{Call, Execution};
use super::turns::move_step_ids;
use crate::model::{Audience, Draft, EventType, Owner, Phase, Scope};
use crate::source::Fact;
use crate::source::digest::hash_of;
use crate::source::members::{move_members, take_text, take_time};
use serde_json::Value;

/// Log levels that operators see.
const OPERATOR_LEVELS: &[&str] = &["warn", "warning", "error", "fatal"];

impl EventHandler<'_> {
    pub(super) fn log(&mut self, payload: Fact) {
        let is_for_operators = payload.get("level").and_then(Value::as_str).is_some_and(|level| OPERATOR_LEVELS.contains(&level));
        self.note(payload, &[("level", "severity")], if is_for_operators { Audience::Dashboard } else { Audience::Internal });
    }

    /// Reports a warning. The turn continues.
    pub(super) fn warning(&mut self, payload: Fact) {
        self.note(payload, &[("source", "source"), ("error", "error")], Audience::Dashboard);
    }

    fn note(&mut self, mut payload: Fact, members: &[(&str, &str)], audience: Audience) {
        let kind = take_text(&mut payload, "kind").filter(|kind| !kind.is_empty()).unwrap_or_else(|| self.event.to_owned());
        let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", self.event);
        draft.set("severity", (self.event == "warning").then_some("warning"));
        draft.audience = audience;
        draft.timestamp = take_time(&mut payload, "emittedAt");
        move_members(&mut draft, &mut payload, &[("message", "message"), ("payload", "data")]);
        move_members(&mut draft, &mut payload, members);
        move_step_ids(&mut draft, &mut payload);
        self.carry_remaining(payload);
        self.push(draft);
    }

    pub(super) fn iteration_end(&mut self, mut payload: Fact) {
        let mut draft = Draft::new(EventType::MetricChanged).with("name", "iteration");
        (draft.phase, draft.audience) = (Phase::Acting, Audience::Dashboard);
        draft.timestamp = take_time(&mut payload, "endedAt");
        move_members(&mut draft, &mut payload, &[("startedAt", "startedAt"), ("durationMs", "durationMs")]);
        move_step_ids(&mut draft, &mut payload);
        self.carry_remaining(payload);
        self.push(draft);
    }

    pub(super) fn tool_execution_start(&mut self, mut payload: Fact) {
        let mut draft = self.execution("started", &mut payload, Execution::None, Execution::Running);
        draft.timestamp = take_time(&mut payload, "startedAt");
        // These are the validated arguments; they may differ in type from the call's own.
        move_members(&mut draft, &mut payload, &[("args", "input")]);
        self.carry_remaining(payload);
        self.push(draft);
    }

    /// Reports that the tool's handler has returned.
    /// The call's end is a separate fact on the functional bus.
    pub(super) fn tool_execution_end(&mut self, mut payload: Fact) {
        let mut draft = self.execution("ended", &mut payload, Execution::Running, Execution::Over);
        draft.timestamp = take_time(&mut payload, "endedAt");
        let members = [("startedAt", "startedAt"), ("durationMs", "durationMs"), ("isError", "isError")];
        move_members(&mut draft, &mut payload, &members);
        self.carry_remaining(payload);
        self.push(draft);
    }

    /// Creates the draft of an execution event, and advances its call from state `from` to state `to`.
    ///
    /// An execution names only a checksum. Of several calls with this checksum, the first one in state `from` advances.
    fn execution(&mut self, kind: &str, payload: &mut Fact, from: Execution, to: Execution) -> Draft {
        let mut draft = Draft::new(EventType::MetricChanged).with("name", "tool_execution").with("kind", kind);
        if let Some(checksum) = take_text(payload, "callId") {
            let hash = Some(hash_of(&checksum));
            let is_next = |call: &&mut Call| call.checksum == hash && call.execution == from;
            if let Some(call) = self.memory.calls.iter_mut().find(is_next) {
                call.execution = to;
                draft.ids.tool_call = Some(call.id.clone());
            }
            draft.add_ref("checksum", Some(checksum));
        }
        // Despite its name this is not the turn's id but the dispatch context's, which no other event has.
        draft.add_ref("dispatchContextId", take_text(payload, "turnId"));
        move_members(&mut draft, payload, &[("toolName", "toolName")]);
        (draft.owner, draft.scope, draft.phase) = (Owner::Tool, Scope::ToolCall, Phase::Acting);
        draft.audience = Audience::Dashboard;
        draft
    }
}
