//! Sub-agents: who is at work, and what a client was told of it.
//!
//! A client knows each of them once in a run of its own, from a start to an end. One that goes on after its end is told of no
//! more; that what it says is its own shows by its name on that.

use super::events::Attribution;
use super::run::{change, kept};
use crate::encode::frames::Shown;
use serde_json::{Map, Value, json};

/// Members of an agent that matter here.
const MEMBERS: &[&str] = &["agentName", "status", "error"];
/// Statuses of an agent that has nothing more to do.
const DONE: &[&str] = &["completed", "failed", "killed", "cancelled", "interrupted", "closed", "done"];

/// Sub-agents, each in the order in which it was met.
#[derive(Debug, Default)]
pub(super) struct Agents {
    known: Vec<Agent>,
}

#[derive(Debug)]
struct Agent {
    id: Box<str>,
    members: Map<String, Value>,
    /// Whether the client was told of it in this run, and of its end.
    told: Told,
    /// Whether it was met since all was shown anew.
    is_met: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Start,
    End,
}

impl Agents {
    /// Begins to meet them anew. What was told, was told.
    pub fn forget(&mut self) {
        self.known.retain(|agent| agent.told != Told::Nothing);
        self.known.iter_mut().for_each(|agent| agent.is_met = false);
    }

    /// Ends what was told of those who are none after all.
    pub fn drop_unmet(&mut self, events: &mut Vec<Value>) {
        self.known.iter_mut().filter(|agent| !agent.is_met).for_each(|agent| agent.finish(events));
        self.known.retain(|agent| agent.is_met);
    }

    fn find(&mut self, id: &str) -> &mut Agent {
        let at = self.known.iter().position(|agent| *agent.id == *id).unwrap_or_else(|| {
            self.known.push(Agent { id: id.into(), members: Map::new(), told: Told::Nothing, is_met: true });
            self.known.len() - 1
        });
        self.known[at].is_met = true;
        &mut self.known[at]
    }

    /// Whether it was met.
    pub fn knows(&self, agent: &str) -> bool {
        self.known.iter().any(|known| *known.id == *agent)
    }

    pub fn meet(&mut self, agent: Option<&str>) {
        if let Some(id) = agent {
            self.find(id);
        }
    }

    pub fn stand(&mut self, shown: &Shown) {
        self.find(&shown.id).members = kept(MEMBERS, &shown.content);
    }

    pub fn follow(&mut self, id: &str, patch: &[Value]) {
        change(&mut self.find(id).members, MEMBERS, patch);
    }

    /// What a reader that comes back was told of them.
    pub fn resume(&mut self) {
        for agent in &mut self.known {
            agent.told = if agent.is_done() { Told::End } else { Told::Start };
        }
    }

    /// Says that those are at work who are, as far as it was not said.
    pub fn start(&mut self, attribution: Attribution, events: &mut Vec<Value>) {
        if attribution == Attribution::Subagent {
            self.known.iter_mut().for_each(|agent| agent.begin(events));
        }
    }

    /// One of them is about to say something.
    pub fn speak(&mut self, agent: Option<&str>, events: &mut Vec<Value>) {
        if let Some(id) = agent {
            self.find(id).begin(events);
        }
    }

    /// One of them is another than before.
    pub fn change(&mut self, id: &str, events: &mut Vec<Value>) {
        let agent = self.find(id);
        agent.begin(events);
        if agent.is_done() {
            agent.finish(events);
        }
    }

    /// The client's run ends, and with it what it knows of them.
    pub fn stop(&mut self, events: &mut Vec<Value>) {
        for agent in &mut self.known {
            agent.finish(events);
            agent.told = Told::Nothing;
        }
    }
}

impl Agent {
    fn text(&self, member: &str) -> Option<&str> {
        self.members.get(member).and_then(Value::as_str)
    }

    fn is_done(&self) -> bool {
        self.text("status").is_some_and(|status| DONE.contains(&status))
    }

    fn begin(&mut self, events: &mut Vec<Value>) {
        if self.told == Told::Nothing && !self.is_done() {
            let name = self.text("agentName").unwrap_or(&self.id);
            events.push(json!({ "type": "SUBAGENT_STARTED", "subagentRunId": self.id, "name": name }));
            self.told = Told::Start;
        }
    }

    fn finish(&mut self, events: &mut Vec<Value>) {
        if self.told != Told::Start {
            return;
        }
        self.told = Told::End;
        let failure = self.text("status").filter(|status| self.is_done() && !matches!(*status, "completed" | "closed" | "done"));
        events.push(match failure {
            None => json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": self.id }),
            Some(status) => {
                let message = self.members.get("error").and_then(|error| error.get("message").or(Some(error))?.as_str());
                let message = message.unwrap_or("the sub-agent did not come to an end");
                json!({ "type": "SUBAGENT_ERROR", "subagentRunId": self.id, "message": message, "code": status })
            }
        });
    }
}
