//! The Agents SDK: agents, handoffs, and items.
//!
//! Its items repeat the raw events, except for the outputs of calls and the handoffs. A handoff is a call of the model:
//! the handoff's output ends that call.

use super::event::RunItem;
use super::{EventHandler, event};
use crate::Fact;
use crate::members::{RuntimeId, take_text};
use proscenium_model::{AgentId, Draft, EventType, Phase, ToolCallId};
use serde_json::{Map, Value};

/// Reads the name of an agent.
fn name_of_agent(of: &Map<String, Value>, member: &str) -> Option<String> {
    of.get(member)?.get("name")?.as_str().map(str::to_owned)
}

impl EventHandler<'_> {
    pub(super) fn agent_updated(&mut self, mut fact: Fact) {
        let Some(name) = name_of_agent(&fact, "new_agent") else { return };
        let Some(agent) = AgentId::of(&name) else {
            return self.push_internal("agent", "agent_updated_stream_event", fact);
        };
        if let Some(Value::Object(agent)) = fact.get_mut("new_agent") {
            agent.shift_remove("name");
        }
        // The SDK names the agent again when it resumes a run.
        if self.memory.agent.as_ref() != Some(&agent) {
            self.memory.agent = Some(agent.clone());
            self.push(Draft::new(EventType::AgentChanged).with("agentName", name).with("status", "running").with_agent(agent));
        }
        fact.retain(|_, value| value.as_object().is_none_or(|members| !members.is_empty()));
        self.push_internal("agent", "agent_updated_stream_event", fact);
    }

    pub(super) fn run_item(&mut self, RunItem { name, mut item, members }: RunItem) {
        item.retain(|_, value| !value.is_null());
        match name.as_deref() {
            Some("handoff_requested") => return self.handoff("requested", item, members),
            Some("handoff_occured" | "handoff_occurred") => return self.handoff("completed", item, members),
            // The output as the SDK has it is the one that the tool returned.
            Some("tool_output" | "tool_search_output_created") => {
                if let Some(output) = members.get("output") {
                    item.insert("output".into(), output.clone());
                }
            }
            Some("mcp_approval_response") | None => {}
            Some(_) if self.memory.form.has_raw() => return,
            Some(_) => {}
        }
        if !self.memory.has_ended() {
            self.proceed();
        }
        self.whole_item(None, item);
    }

    fn handoff(&mut self, status: &str, mut item: Map<String, Value>, members: Fact) {
        let call = event::call_of(&item);
        let mut draft = Draft::new(EventType::AgentHandoff).with("status", status);
        draft.set("handoffId", call.as_ref().map(ToolCallId::as_str));
        draft.set("from", name_of_agent(&members, "source_agent").or_else(|| name_of_agent(&members, "agent")));
        draft = draft.with("to", name_of_agent(&members, "target_agent").unwrap_or_else(|| "unknown".into()));
        let asked = call.as_ref().and_then(|call| self.memory.calls.open.find(call)).map(|call| call.name.clone());
        draft.set("reason", take_text(&mut item, "name").or(asked));
        draft.phase = if status == "completed" { Phase::Completed } else { Phase::Acting };
        let agent = name_of_agent(&members, "agent").and_then(|name| AgentId::of(&name));
        self.push(draft.with_agent(agent).with_call(call));
        if status == "completed" {
            self.output_done(&mut item);
        }
    }
}
