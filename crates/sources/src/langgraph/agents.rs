//! Subgraphs and child agents: everything in a namespace below the root's.

use super::{EventHandler, id_from};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::name_of;
use proscenium_model::{AgentId, Draft, EventType, Phase, Surface};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A subgraph or a child agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Child {
    pub namespace: String,
    /// The name of its agent. `None`: a plain subgraph.
    name: Option<String>,
    /// Its last answer, which its parent's tool returns.
    answer: TextDigest,
    has_ended: bool,
}

/// Splits a namespace into that around it, and the node that runs it.
fn outer(namespace: &str) -> (&str, &str) {
    let (outer, own) = namespace.rsplit_once('|').unwrap_or(("", namespace));
    (outer, own.split_once(':').map_or(own, |(node, _)| node))
}

impl EventHandler<'_> {
    /// Sets the event's agent: that of its namespace, else another agent's name in the root graph.
    pub(super) fn enter_child(&mut self, agent: Option<&str>, node: Option<&str>) {
        if self.namespace.is_empty() {
            let Some(agent) = agent.filter(|agent| !agent.is_empty()) else { return };
            match &self.memory.root_agent {
                None => self.memory.root_agent = Some(name_of(agent)),
                Some(root) if *root == name_of(agent) => {}
                Some(_) => self.announce(&format!("agent:{}", name_of(agent)), Some(agent), agent),
            }
            return;
        }
        let namespace = self.namespace.clone();
        let (_, own) = outer(&namespace);
        let own = own.to_owned();
        self.announce(&namespace, agent, node.unwrap_or(&own));
    }

    fn announce(&mut self, namespace: &str, agent: Option<&str>, node: &str) {
        let id: AgentId = id_from(namespace);
        self.agent = Some(id.clone());
        let key = namespace.to_owned();
        let is_root_s = self.memory.root_agent.as_deref() == agent.map(name_of).as_deref();
        let agent = agent.filter(|name| !name.is_empty() && !is_root_s);
        match self.memory.children.find_mut(&key) {
            Some(child) => {
                if child.name.is_none() && agent.is_some() {
                    child.name = agent.map(name_of);
                    self.push(Draft::new(EventType::AgentChanged).with_some("agentName", agent).with_agent(id));
                }
            }
            None => {
                self.memory.children.add(Child {
                    namespace: key,
                    name: agent.map(name_of),
                    answer: TextDigest::default(),
                    has_ended: false,
                });
                let draft = self.spawned(&id, agent, node);
                self.push(draft);
            }
        }
    }

    fn spawned(&self, id: &AgentId, agent: Option<&str>, node: &str) -> Draft {
        let draft = Draft::new(EventType::AgentSpawned).with("status", "running").with("runtimeEntity", "subagent_turn");
        let mut draft = draft.with("agentName", agent.unwrap_or(node)).with("role", node);
        if agent.is_none() {
            draft.surface = Surface::TaskCapsule;
        }
        let (around, _) = outer(id.as_str());
        draft.with_ref("parentAgentId", (!around.is_empty()).then_some(around)).with_agent(id.clone())
    }

    pub(super) fn child_lifecycle(&mut self, event: &str, mut data: Fact) {
        let name = data.get("graph_name").and_then(Value::as_str).map(str::to_owned);
        let cause = data.get("cause").and_then(|cause| cause.get("tool_call_id")).and_then(Value::as_str).map(str::to_owned);
        let namespace = self.namespace.clone();
        // A graph that a tool calls is an agent; a graph that is a node is a part of its parent.
        self.enter_child(name.as_deref().filter(|_| cause.is_some()), name.as_deref());
        let id: AgentId = id_from(&namespace);
        let draft = match event {
            "started" | "running" => Draft::new(EventType::AgentChanged).with("status", "running"),
            "completed" => self.completed(&namespace, "completed"),
            "failed" => {
                self.completed(&namespace, "failed").with_phase(Phase::Failed).with_some("error", data.shift_remove("error"))
            }
            "interrupted" => Draft::new(EventType::AgentChanged).with("status", "waiting").with_phase(Phase::Waiting),
            _ => return self.keep("lifecycle", event, Value::Object(data)),
        };
        for known in ["graph_name", "cause", "namespace", "trigger_call_id"] {
            data.shift_remove(known);
        }
        self.push_carrying(draft.with_some("graphName", name).with_ref("parentToolCallId", cause).with_agent(id), data);
    }

    fn completed(&mut self, namespace: &str, status: &str) -> Draft {
        if let Some(child) = self.memory.children.find_mut(&namespace.to_owned()) {
            child.has_ended = true;
        }
        Draft::new(EventType::AgentCompleted).with("status", status)
    }

    /// Remembers a child's last text.
    pub(super) fn remember_answer(&mut self, text: TextDigest) {
        let namespace = self.namespace.clone();
        if let Some(child) = self.memory.children.find_mut(&namespace).filter(|_| !text.is_empty()) {
            child.answer = text;
        }
    }

    /// Ends the child whose answer its parent's tool returns.
    pub(super) fn answered_by(&mut self, text: &str) {
        let digest = TextDigest::of(text.as_bytes());
        let is_it = |child: &Child| !digest.is_empty() && child.answer == digest;
        self.end_child(is_it);
    }

    /// Ends the only child that a node of this namespace runs, because the node has ended.
    pub(super) fn node_ended(&mut self, node: &str) {
        let of_node = |child: &&Child| !child.has_ended && outer(&child.namespace) == (self.namespace.as_str(), node);
        let mut children = self.memory.children.iter().filter(of_node).map(|child| child.namespace.clone());
        let only = children.next().filter(|_| children.next().is_none());
        if let Some(only) = only {
            self.end_child(|child| child.namespace == only);
        }
    }

    fn end_child(&mut self, is_it: impl Fn(&Child) -> bool) {
        let here = self.namespace.clone();
        let below = |child: &&Child| !child.has_ended && outer(&child.namespace).0 == here && is_it(child);
        let Some(namespace) = self.memory.children.iter().find(below).map(|child| child.namespace.clone()) else { return };
        let draft = self.completed(&namespace, "completed").with_agent(id_from::<AgentId>(&namespace));
        self.push(draft);
    }

    /// The child with this name.
    pub(super) fn child_named(&self, name: &str) -> Option<AgentId> {
        let name = name_of(name);
        let child = self.memory.children.iter().find(|child| child.name.as_ref() == Some(&name))?;
        Some(id_from(&child.namespace))
    }
}
