//! The session: plan, modes, usage, notices, compaction, child agents.

use super::{EventHandler, id_from};
use crate::Fact;
use crate::members::{malformed, take_text};
use proscenium_model::{
    AgentId, Audience, Draft, EventType, MessageId, Owner, PartId, Payload, Persistence, Phase, Scope, Surface, ThreadId,
};
use serde_json::Value;

impl EventHandler<'_> {
    /// Replaces the plan. In protocol 1 a session has one plan, without an id.
    pub(super) fn plan(&mut self, event_type: &str, mut update: Fact) {
        if let Some(Value::Object(plan)) = update.get("plan").cloned() {
            update.shift_remove("plan");
            update.extend(plan);
        }
        let plan = take_text(&mut update, "planId");
        let entries = match update.shift_remove("entries") {
            Some(Value::Array(entries)) => entries,
            None if event_type == "plan_removed" || update.contains_key("content") => Vec::new(),
            odd => {
                update.extend(odd.map(|odd| ("entries".to_owned(), odd)));
                return self.push(malformed(event_type, update, "entries as a list"));
            }
        };
        self.close_part();
        let draft = Draft::new(EventType::PlanFinal).words(|words| {
            words.entries = Some(Box::new(entries.into()));
            words.text = take_text(&mut update, "content");
        });
        let draft = draft.with_persistence(Persistence::Snapshot).with_message(id_from::<MessageId>(&self.scoped("acp-plan")));
        self.push_carrying(draft.with_part(id_from::<PartId>(plan.as_deref().unwrap_or("plan"))), update);
    }

    pub(super) fn mode(&mut self, mut update: Fact) {
        let draft = Draft::new(EventType::PermissionChanged).with_moved(&mut update, &[("currentModeId", "mode")]);
        self.push_carrying(draft.with_scope(Scope::Session), update);
    }

    /// Reports options of the session, its title, and other facts about it. A null clears.
    pub(super) fn session_info(&mut self, update: Fact) {
        self.push(Draft { payload: Payload::read(&EventType::SessionUpdated, update), ..Draft::new(EventType::SessionUpdated) });
    }

    pub(super) fn commands(&mut self, mut update: Fact) {
        let draft = Draft::new(EventType::SessionUpdated).with_moved(&mut update, &[("availableCommands", "commands")]);
        self.push_carrying(draft.with_audience(Audience::Dashboard), update);
    }

    /// Reports how full the context is: a level, which must not be summed.
    pub(super) fn usage_level(&mut self, mut update: Fact) {
        let mut draft = Draft::new(EventType::MetricChanged).with("kind", "context_window").with("unit", "tokens");
        draft.set("value", update.get("used").cloned());
        draft.move_members(&mut update, &["used", "size", "cost"].map(|member| (member, member)));
        self.push_carrying(draft.with_scope(Scope::Session).with_audience(Audience::Dashboard), update);
    }

    pub(super) fn notice(&mut self, mut update: Fact) {
        let names = [("title", "message"), ("description", "description"), ("severity", "severity")];
        let mut draft =
            Draft::new(EventType::RunStatus).with("notice", true).with_moved(&mut update, &names).with_scope(Scope::Turn);
        if !self.memory.pending.is_empty() {
            draft.phase = Phase::Waiting;
        }
        self.push_carrying(draft, update);
    }

    pub(super) fn compaction(&mut self, mut update: Fact) {
        self.close_part();
        let status = take_text(&mut update, "status").unwrap_or_else(|| "completed".into());
        let starts = status == "in_progress";
        let class = if starts { EventType::ContextCompactionStarted } else { EventType::ContextCompactionCompleted };
        let mut draft = Draft::new(class).with("status", if starts { "running" } else { status.as_str() });
        draft.phase = match status.as_str() {
            "failed" => Phase::Failed,
            "cancelled" => Phase::Cancelled,
            _ => Phase::Reconciling,
        };
        draft.move_members(&mut update, &["compactionId", "summary", "error"].map(|member| (member, member)));
        draft.set("compactionId", draft.text("compactionId").map(|id| self.scoped(id)));
        self.push_carrying(draft, update);
    }

    /// Reports a child agent. It is known by its session, and idle is no end of it.
    pub(super) fn subagent(&mut self, mut update: Fact) {
        let child = ["sessionId", "subagentSessionId", "childSessionId"].iter().find_map(|member| take_text(&mut update, member));
        let Some(child) = child.and_then(|child| ThreadId::new(&child).ok()) else {
            return self.push(malformed("subagent_update", update, "sessionId as an id"));
        };
        let is_known = self.memory.children.has(&child);
        let class = if is_known { EventType::AgentChanged } else { EventType::AgentSpawned };
        let mut draft = Draft::new(class).with("runtimeEntity", "subagent_turn");
        let members =
            [("name", "agentName"), ("title", "agentName"), ("status", "status"), ("state", "status"), ("message", "message")];
        draft.move_members(&mut update, &members);
        if let Some(call) = self.call_of(&update) {
            update.shift_remove("toolCallId");
            draft.add_ref("parentToolCallId", Some(call.as_str()));
        }
        (draft.owner, draft.surface) = (Owner::Agent, Surface::TeamRoster);
        draft.ids.agent = AgentId::new(child.as_str()).ok();
        self.memory.children.add(child);
        self.push_carrying(draft, update);
    }
}
