//! Telemetry for operators of the agent.
//!
//! It becomes only diagnostics and metrics. Messages, calls and runs do not depend on it.

use super::EventHandler;
use super::calls::{Call, Execution};
use super::turns::with_step_ids;
use crate::Fact;
use crate::digest::hash_of;
use crate::members::{take_text, take_time};
use proscenium_model::{Audience, Draft, EventType, Owner, Phase, Scope};
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
        let draft = Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", self.event);
        let draft = draft.with_some("severity", (self.event == "warning").then_some("warning")).with_audience(audience);
        let draft = draft.with_timestamp(take_time(&mut payload, "emittedAt"));
        let draft = draft.with_moved(&mut payload, &[("message", "message"), ("payload", "data")]);
        let draft = with_step_ids(draft.with_moved(&mut payload, members), &mut payload);
        self.push_carrying(draft, payload);
    }

    pub(super) fn iteration_end(&mut self, mut payload: Fact) {
        let draft = Draft::new(EventType::MetricChanged).with("name", "iteration").with_phase(Phase::Acting);
        let draft = draft.with_audience(Audience::Dashboard).with_timestamp(take_time(&mut payload, "endedAt"));
        let draft = draft.with_moved(&mut payload, &[("startedAt", "startedAt"), ("durationMs", "durationMs")]);
        self.push_carrying(with_step_ids(draft, &mut payload), payload);
    }

    pub(super) fn tool_execution_start(&mut self, mut payload: Fact) {
        let draft = self.execution("started", &mut payload, Execution::None, Execution::Running);
        let draft = draft.with_timestamp(take_time(&mut payload, "startedAt"));
        // These are the validated arguments; they may differ in type from the call's own.
        self.push_carrying(draft.with_moved(&mut payload, &[("args", "input")]), payload);
    }

    /// Reports that the tool's handler has returned.
    /// The call's end is a separate fact on the functional bus.
    pub(super) fn tool_execution_end(&mut self, mut payload: Fact) {
        let draft = self.execution("ended", &mut payload, Execution::Running, Execution::Over);
        let draft = draft.with_timestamp(take_time(&mut payload, "endedAt"));
        let members = ["startedAt", "durationMs", "isError"].map(|member| (member, member));
        self.push_carrying(draft.with_moved(&mut payload, &members), payload);
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
        let draft = draft.with_ref("dispatchContextId", take_text(payload, "turnId"));
        let draft = draft.with_moved(payload, &[("toolName", "toolName")]).with_owner(Owner::Tool);
        draft.with_scope(Scope::ToolCall).with_phase(Phase::Acting).with_audience(Audience::Dashboard)
    }
}
