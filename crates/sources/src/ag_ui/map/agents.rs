//! Sub-agents: each has a card on the roster and its own transcript.

use super::EventHandler;
use crate::Fact;
use crate::members::{carry_all, take_text};
use crate::turn::take_error;
use proscenium_model::{AgentId, Draft, EventType, Phase};
use serde_json::Value;

/// The most running sub-agents that the adapter tracks.
///
/// Beyond this limit the adapter evicts the oldest. The end of the run then does not end that sub-agent.
pub(in crate::ag_ui) const AGENTS_MAX: usize = 64;

impl EventHandler<'_> {
    pub(super) fn subagent_started(&mut self, mut fact: Fact) {
        let name = take_text(&mut fact, "name").filter(|name| !name.is_empty());
        let mut draft = self.agent(EventType::AgentSpawned, "running");
        draft.set("agentName", name);
        draft.set("description", take_text(&mut fact, "description"));
        for (member, rel) in [
            ("parentSubagentRunId", "parentAgentId"),
            ("parentToolCallId", "parentToolCallId"),
            ("parentMessageId", "parentMessageId"),
        ] {
            draft.add_ref(rel, take_text(&mut fact, member));
        }
        if let Some(agent) = self.agent.clone() {
            self.memory.agents.add(agent);
        }
        self.push_own(carry_all(draft, fact));
    }

    pub(super) fn subagent_finished(&mut self, mut fact: Fact) {
        let outcome = fact.get("outcome").map(|outcome| outcome.get("type").unwrap_or(outcome)).and_then(Value::as_str);
        let mut draft = match outcome {
            None | Some("success") => self.agent(EventType::AgentCompleted, "completed"),
            Some("suspended") => {
                let asked = fact.get("outcome").and_then(|outcome| outcome.get("interruptIds")).cloned();
                self.agent(EventType::AgentChanged, "waiting").with_phase(Phase::Waiting).with_some("interruptIds", asked)
            }
            Some(_) => self.agent(EventType::AgentCompleted, "unknown").with_phase(Phase::Unknown),
        };
        if draft.text("status") != Some("unknown") {
            fact.shift_remove("outcome");
        }
        draft.set("result", fact.shift_remove("result"));
        self.forget_agent();
        self.push_own(carry_all(draft, fact));
    }

    pub(super) fn subagent_error(&mut self, mut fact: Fact) {
        let error = take_error(&mut fact, "the sub-agent failed without saying why");
        let draft = self.agent(EventType::AgentCompleted, "failed").with_phase(Phase::Failed).with("error", error);
        self.forget_agent();
        self.push_own(carry_all(draft, fact));
    }

    fn agent(&self, class: EventType, status: &str) -> Draft {
        Draft::new(class).with("runtimeEntity", "subagent_turn").with("status", status).with("runtimeStatus", status)
    }

    fn forget_agent(&mut self) {
        if let Some(agent) = &self.agent {
            self.memory.agents.take(agent);
        }
    }

    /// Ends the sub-agents that still run when their run ends: no later event can end them.
    pub(super) fn end_agents(&mut self, phase: &Phase) {
        let (status, phase) = match phase {
            Phase::Cancelled => ("cancelled", Phase::Cancelled),
            _ => ("interrupted", Phase::Interrupted),
        };
        for agent in self.memory.agents.take_all() {
            let draft = self.agent(EventType::AgentCompleted, status).with_phase(phase.clone()).with_agent(agent);
            self.push(draft);
        }
    }

    /// Whether this event may continue an item that `opener` opened. An event that names no agent may.
    pub(super) fn may_continue(&self, opener: Option<&AgentId>) -> bool {
        self.agent.is_none() || self.agent.as_ref() == opener
    }
}
