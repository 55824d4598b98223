//! `agent`: teammates, workers and remote collaborators, each with its own card and lineage.
//!
//! The end of a run does not end an agent: it may outlive the run, and its own facts state its end ([`lifecycle`]).

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::run::summed;
use super::{FoldState, carry, lifecycle};
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

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(agent) = &envelope.ids.agent else { return };
    if !matches!(envelope.event_type, EventType::AgentSpawned | EventType::AgentChanged | EventType::AgentCompleted) {
        // The cost of a teammate's model call.
        if envelope.event_type == EventType::MetricChanged
            && let Some(mut edit) = fold.activities.edit(KIND, agent.as_str())
        {
            add_usage(envelope, &mut edit);
        }
        return;
    }
    let mut edit = fold.activities.open(KIND, agent.as_str(), Surface::TeamRoster, Some(agent));
    lifecycle::clear_stale(&mut edit);
    if edit.get("agentName").is_none() {
        edit.set("agentName", agent.as_str());
    }
    edit.set_some("agentName", envelope.text("agentName").filter(|_| !envelope.is_withheld()));
    edit.set_str("status", status(envelope, &edit).to_owned().as_str());
    if envelope.is_withheld() {
        return edit.set("withheld", true);
    }
    edit.remove("withheld");
    if envelope.event_type == EventType::AgentSpawned {
        edit.remove("error");
    }
    carry::members(envelope, &mut edit, MEMBERS);
    carry::refs(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["parentSessionId", "parentThreadId", "taskId"]);
    // A later fact may name the parent's session as its own `sessionId`.
    if envelope.ids.parent_session.is_some() || edit.get("sessionId").is_none() {
        carry::ids(envelope, &mut edit, &["sessionId", "threadId"]);
    }
    edit.set_some("transcriptRef", envelope.related("transcript").filter(|_| envelope.get("transcriptRef").is_none()).cloned());
    add_usage(envelope, &mut edit);
}

/// The status: as the fact states it, else as its class implies, else unchanged.
fn status<'s>(envelope: &'s EnvelopeView, edit: &'s Edit<'_>) -> &'s str {
    let stated = envelope.text("status").or_else(|| envelope.text("runtimeStatus"));
    stated.unwrap_or_else(|| match (&envelope.event_type, &envelope.phase) {
        (EventType::AgentCompleted, Phase::Failed) => "failed",
        (EventType::AgentCompleted, Phase::Cancelled | Phase::Interrupted) => "killed",
        (EventType::AgentCompleted, _) => "completed",
        (EventType::AgentSpawned, _) => "running",
        _ => edit.text("status").unwrap_or("unknown"),
    })
}

fn add_usage(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    if let Some(usage) = envelope.get("usage").and_then(Value::as_object) {
        let sum = summed(edit.get("usage").and_then(Value::as_object), usage);
        edit.set("usage", sum);
    }
}
