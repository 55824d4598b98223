//! `team`, `handoff` and `worker-notification`: how work is organised, handed over and reported.
//!
//! A worker's report never counts as the user's message, on any channel.

use super::envelope_view::EnvelopeView;
use super::{FoldState, carry, lifecycle};
use crate::model::{EventType, Surface};

pub(super) fn team(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::TeamChanged {
        return;
    }
    let Some(id) = carry::name(envelope, &["teamId", "teamName"]) else { return };
    let mut edit = fold.activities.open("team", &id, Surface::TeamRoster, None);
    #[rustfmt::skip]
    carry::members(envelope, &mut edit, &[
        "teamName", "teamPhase", "teamParallelBudget", "teamActiveCount", "teamQueuedCount", "status", "title",
        "summary", "runtimeEntity", "providerConcurrencyGroup", "providerParallelBudget", "queueReason", "retryableOverload",
        "policy", "coordinator", "memoryRefs", "workItemId", "assignee", "blocker", "artifactRefs", "evidenceRefs",
    ]);
    carry::members_in_brief(envelope, &mut edit, &["members", "agents", "roster"]);
    carry::refs(envelope, &mut edit);
    match envelope.text("topology") {
        Some(topology) => edit.set_str("topology", topology),
        None if edit.get("topology").is_none() => edit.set("topology", "unknown"),
        None => {}
    }
}

pub(super) fn handoff(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::AgentHandoff {
        return;
    }
    let Some(id) = carry::name(envelope, &["handoffId"]) else { return };
    let mut edit = fold.activities.open("handoff", &id, Surface::HandoffLane, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    #[rustfmt::skip]
    carry::members(envelope, &mut edit, &[
        "from", "to", "reason", "resumeTarget", "memoryBoundary", "contextBoundary", "acceptedAt", "acceptedTime", "status",
        "summary", "topology",
    ]);
    carry::ids(envelope, &mut edit, &["agentId", "taskId", "sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    carry::refs(envelope, &mut edit);
    let is_accepted = edit.get("acceptedAt").or_else(|| edit.get("acceptedTime")).is_some();
    match edit.text("status") {
        None | Some("unknown") => edit.set_str("status", if is_accepted { "accepted" } else { "unknown" }),
        Some(_) => {}
    }
}

pub(super) fn notification(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::WorkerNotification {
        return;
    }
    let Some(id) = carry::name(envelope, &["workerNotificationId"]) else { return };
    let mut edit = fold.activities.open("worker-notification", &id, Surface::WorkerNotifications, envelope.ids.agent.as_ref());
    #[rustfmt::skip]
    carry::members(envelope, &mut edit, &[
        "status", "summary", "resultRef", "usage", "durationMs", "toolCount", "agentName", "teamName", "runtimeEntity", "error",
        "transcriptRef", "artifactRefs", "evidenceRefs",
    ]);
    carry::ids(envelope, &mut edit, &["taskId", "agentId", "toolCallId", "sessionId", "parentSessionId"]);
    carry::refs(envelope, &mut edit);
    // A report in a user-role message: its chunks are appended, and its end has the whole text.
    match (envelope.text("text"), envelope.text("summary").is_some() || envelope.text("role").is_none()) {
        (Some(whole), true) => edit.set_text("text", whole),
        (Some(chunk), false) => edit.append("text", chunk),
        (None, _) => {}
    }
    if edit.get("status").is_none() {
        edit.set("status", "unknown");
    }
}
