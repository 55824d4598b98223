//! Which agent a message belongs to, and how AG-UI names it.

use crate::frames::ActivityView;
use proscenium_projection::members::TypedContent;
use proscenium_projection::{agent, message, run};
use serde_json::{Map, Value};

/// How a teammate's messages name their author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribution {
    /// As the sub-agent's (`subagentRunId`).
    Subagent,
    /// As the run's own, with the teammate's id in the metadata.
    Inline,
}

impl Attribution {
    /// Marks an event or a message as a teammate's.
    pub fn mark(self, of: &mut Value, agent: Option<&str>) {
        match (self, agent) {
            (_, None) => {}
            (Self::Subagent, Some(agent)) => of["subagentRunId"] = agent.into(),
            (Self::Inline, Some(agent)) => set_metadata(of, "agentId", agent.into()),
        }
    }
}

/// Sets a member of our own metadata.
pub(super) fn set_metadata(of: &mut Value, member: &str, value: Value) {
    of["metadata"]["proscenium"][member] = value;
}

pub(super) fn set_all_metadata(of: &mut Value, metadata: &Map<String, Value>) {
    for (member, value) in metadata {
        set_metadata(of, member, value.clone());
    }
}

/// The teammate of an activity; `None` if it belongs to the run's own agent.
pub(super) fn teammate(activity: &ActivityView, own: Option<&str>) -> Option<Box<str>> {
    let author = activity.agent.as_deref()?;
    let is_own = match &*activity.kind {
        _ if own == Some(author) => true,
        // A roster card belongs to the lead agent.
        agent::KIND => true,
        message::KIND | "reasoning" | "plan" => !activity.id.strip_prefix(author).is_some_and(|rest| rest.starts_with('/')),
        _ => false,
    };
    (!is_own).then(|| author.into())
}

/// The agent of a run, from its activities.
pub(super) fn own_agent(activities: &[ActivityView]) -> Option<&str> {
    activities.iter().find(|activity| &*activity.kind == run::KIND)?.content.read(run::AGENT_ID)
}
