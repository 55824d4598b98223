//! Sub-agents: which ones are active, and which events the client has received about them.
//!
//! Within one of its runs, a client sees each sub-agent once, from a start to an end. A sub-agent that resumes after
//! its end gets no second start; its later messages still carry its id.

use super::attribution::Attribution;
use super::run_state::{change, select_members};
use crate::frames::ActivityView;
use proscenium_projection::agent;
use proscenium_projection::change::ContentOperation;
use proscenium_projection::members::TypedContent;
use serde_json::{Map, Value, json};

/// Whether this module reads a content member of an agent.
fn is_read(member: &str) -> bool {
    [agent::AGENT_NAME.name(), agent::STATUS.name(), "error"].contains(&member)
}
/// Statuses of an agent that has finished.
const FINAL_STATUSES: &[&str] = &["completed", "failed", "killed", "cancelled", "interrupted", "closed", "done"];

/// The sub-agents, in the order in which they appeared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Agents {
    known: Vec<Agent>,
}

#[derive(Debug, Clone, PartialEq)]
struct Agent {
    id: Box<str>,
    members: Map<String, Value>,
    /// The events that the client received about it in this run.
    announced: Announced,
    /// Whether it appeared again since the last snapshot began.
    has_appeared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    Nothing,
    Start,
    End,
}

impl Agents {
    /// Starts a new snapshot: forgets which agents appeared, but not which events the client received.
    pub fn begin_snapshot(&mut self) {
        self.known.retain(|agent| agent.announced != Announced::Nothing);
        self.known.iter_mut().for_each(|agent| agent.has_appeared = false);
    }

    /// Ends the agents that the client knows and the snapshot lacks. They get no second start in this run.
    pub fn end_absent(&mut self, events: &mut Vec<Value>) {
        self.known.iter_mut().filter(|agent| !agent.has_appeared).for_each(|agent| agent.finish(events));
    }

    fn find(&mut self, id: &str) -> &mut Agent {
        let at = self.known.iter().position(|agent| *agent.id == *id).unwrap_or_else(|| {
            self.known.push(Agent { id: id.into(), members: Map::new(), announced: Announced::Nothing, has_appeared: true });
            self.known.len() - 1
        });
        self.known[at].has_appeared = true;
        &mut self.known[at]
    }

    /// Whether the agent has appeared.
    pub fn contains(&self, agent: &str) -> bool {
        self.known.iter().any(|known| *known.id == *agent && known.has_appeared)
    }

    pub fn record(&mut self, agent: Option<&str>) {
        if let Some(id) = agent {
            self.find(id);
        }
    }

    pub fn load(&mut self, activity: &ActivityView) {
        self.find(&activity.id).members = select_members(is_read, &activity.content);
    }

    pub fn apply(&mut self, id: &str, operations: &[ContentOperation]) {
        change(&mut self.find(id).members, is_read, operations);
    }

    /// Restores the sent events of a reader that resumes.
    pub fn restore(&mut self) {
        for agent in &mut self.known {
            agent.announced = if agent.is_done() { Announced::End } else { Announced::Start };
        }
    }

    /// Announces every active agent that the client does not know yet.
    pub fn announce_active(&mut self, attribution: Attribution, events: &mut Vec<Value>) {
        if attribution == Attribution::Subagent {
            self.known.iter_mut().for_each(|agent| agent.begin(events));
        }
    }

    /// Announces the author of the next message.
    pub fn announce(&mut self, agent: Option<&str>, events: &mut Vec<Value>) {
        if let Some(id) = agent {
            self.find(id).begin(events);
        }
    }

    /// Announces the new status of one agent.
    pub fn update_status(&mut self, id: &str, events: &mut Vec<Value>) {
        let agent = self.find(id);
        agent.begin(events);
        if agent.is_done() {
            agent.finish(events);
        }
    }

    /// Ends all agents, because the client's run ends.
    pub fn end_all(&mut self, events: &mut Vec<Value>) {
        for agent in &mut self.known {
            agent.finish(events);
            agent.announced = Announced::Nothing;
        }
        self.known.retain(|agent| agent.has_appeared);
    }
}

impl Agent {
    fn is_done(&self) -> bool {
        self.members.read(agent::STATUS).is_some_and(|status| FINAL_STATUSES.contains(&status))
    }

    fn begin(&mut self, events: &mut Vec<Value>) {
        if self.announced == Announced::Nothing && !self.is_done() {
            let name = self.members.read(agent::AGENT_NAME).unwrap_or(&self.id);
            events.push(json!({ "type": "SUBAGENT_STARTED", "subagentRunId": self.id, "name": name }));
            self.announced = Announced::Start;
        }
    }

    fn finish(&mut self, events: &mut Vec<Value>) {
        if self.announced != Announced::Start {
            return;
        }
        self.announced = Announced::End;
        let failure = self
            .members
            .read(agent::STATUS)
            .filter(|status| self.is_done() && !matches!(*status, "completed" | "closed" | "done"));
        events.push(match failure {
            None => json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": self.id }),
            Some(status) => {
                let message = self.members.get("error").and_then(|error| error.get("message").or(Some(error))?.as_str());
                let message = message.unwrap_or("The sub-agent ended without a result.");
                json!({ "type": "SUBAGENT_ERROR", "subagentRunId": self.id, "message": message, "code": status })
            }
        });
    }
}
