//! `agent`: teammates, workers and remote collaborators, each with its own card and lineage.
//!
//! The end of a run does not end an agent: it may outlive the run, and its own facts state its end ([`lifecycle`]).

use super::run::added;
use super::seen::Seen;
use super::stage::Edit;
use super::{Scene, carry, lifecycle};
use crate::model::{EventType, Phase, Surface};
use serde_json::Value;

const KIND: &str = "agent";

#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "teamName", "teamId", "role", "runtimeEntity", "runtimeStatus", "latestTurnStatus", "queuedTurnCount", "source",
    "color", "avatar", "model", "policy", "transcriptRef", "spawnReason", "reason", "summary", "resultRef", "toolCount",
    "durationMs", "queueReason", "retryableOverload", "providerConcurrencyGroup", "providerParallelBudget", "capabilityRef",
    "remoteTaskId", "inputNeeds", "authNeeds", "schedule", "wakeReason", "lastRunRef", "message", "error", "topology",
    "currentRunRef", "nextRunAt", "agentCard", "workItemId", "assignee", "blocker", "progress", "dependencies", "artifactRefs",
    "evidenceRefs", "permissionMode", "sandbox", "planMode", "budget", "toolActivity", "pendingInput",
];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let Some(agent) = &seen.ids.agent else { return };
    if !matches!(seen.class, EventType::AgentSpawned | EventType::AgentChanged | EventType::AgentCompleted) {
        // The cost of a teammate's model call.
        if seen.class == EventType::MetricChanged
            && let Some(mut edit) = scene.stage.edit(KIND, agent.as_str())
        {
            add_usage(seen, &mut edit);
        }
        return;
    }
    let mut edit = scene.stage.open(KIND, agent.as_str(), Surface::TeamRoster, Some(agent));
    lifecycle::lift(&mut edit);
    if edit.get("agentName").is_none() {
        edit.set("agentName", agent.as_str());
    }
    edit.set_some("agentName", seen.text("agentName").filter(|_| !seen.is_withheld()));
    edit.say("status", status(seen, &edit).to_owned().as_str());
    if seen.is_withheld() {
        return edit.set("withheld", true);
    }
    edit.remove("withheld");
    if seen.class == EventType::AgentSpawned {
        edit.remove("error");
    }
    carry::members(seen, &mut edit, MEMBERS);
    carry::refs(seen, &mut edit);
    carry::ids(seen, &mut edit, &["parentSessionId", "parentThreadId", "taskId"]);
        // A later fact may name the parent's session as its own `sessionId`.
    if seen.ids.parent_session.is_some() || edit.get("sessionId").is_none() {
        carry::ids(seen, &mut edit, &["sessionId", "threadId"]);
    }
    edit.set_some("transcriptRef", seen.related("transcript").filter(|_| seen.get("transcriptRef").is_none()).cloned());
    add_usage(seen, &mut edit);
}

/// The status: as the fact states it, else as its class implies, else unchanged.
fn status<'s>(seen: &'s Seen, edit: &'s Edit<'_>) -> &'s str {
    let told = seen.text("status").or_else(|| seen.text("runtimeStatus"));
    told.unwrap_or_else(|| match (&seen.class, &seen.phase) {
        (EventType::AgentCompleted, Phase::Failed) => "failed",
        (EventType::AgentCompleted, Phase::Cancelled | Phase::Interrupted) => "killed",
        (EventType::AgentCompleted, _) => "completed",
        (EventType::AgentSpawned, _) => "running",
        _ => edit.text("status").unwrap_or("unknown"),
    })
}

fn add_usage(seen: &Seen, edit: &mut Edit<'_>) {
    if let Some(usage) = seen.get("usage").and_then(Value::as_object) {
        let sum = added(edit.get("usage").and_then(Value::as_object), usage);
        edit.set("usage", sum);
    }
}
