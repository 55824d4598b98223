//! `team`, `handoff` and `worker-notification`: how the work is organised, who has it, and the reports of workers.
//!
//! A worker's report never counts as the user's message, whatever channel carried it.

use super::seen::Seen;
use super::{Scene, carry, lifecycle};
use crate::model::{EventType, Surface};

pub(super) fn team(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::TeamChanged {
        return;
    }
    let Some(id) = carry::name(seen, &["teamId", "teamName"]) else { return };
    let mut edit = scene.stage.open("team", &id, Surface::TeamRoster, None);
    #[rustfmt::skip]
    carry::members(seen, &mut edit, &[
        "teamName", "teamPhase", "teamParallelBudget", "teamActiveCount", "teamQueuedCount", "status", "title",
        "summary", "runtimeEntity", "providerConcurrencyGroup", "providerParallelBudget", "queueReason", "retryableOverload",
        "policy", "coordinator", "memoryRefs", "workItemId", "assignee", "blocker", "artifactRefs", "evidenceRefs",
    ]);
    carry::members_in_brief(seen, &mut edit, &["members", "agents", "roster"]);
    carry::refs(seen, &mut edit);
    match seen.text("topology") {
        Some(topology) => edit.say("topology", topology),
        None if edit.get("topology").is_none() => edit.set("topology", "unknown"),
        None => {}
    }
}

pub(super) fn handoff(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::AgentHandoff {
        return;
    }
    let Some(id) = carry::name(seen, &["handoffId"]) else { return };
    let mut edit = scene.stage.open("handoff", &id, Surface::HandoffLane, seen.ids.agent.as_ref());
    lifecycle::lift(&mut edit);
    #[rustfmt::skip]
    carry::members(seen, &mut edit, &[
        "from", "to", "reason", "resumeTarget", "memoryBoundary", "contextBoundary", "acceptedAt", "acceptedTime", "status",
        "summary", "topology",
    ]);
    carry::ids(seen, &mut edit, &["agentId", "taskId", "sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    carry::refs(seen, &mut edit);
    let is_accepted = edit.get("acceptedAt").or_else(|| edit.get("acceptedTime")).is_some();
    match edit.text("status") {
        None | Some("unknown") => edit.say("status", if is_accepted { "accepted" } else { "unknown" }),
        Some(_) => {}
    }
}

pub(super) fn notification(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::WorkerNotification {
        return;
    }
    let Some(id) = carry::name(seen, &["workerNotificationId"]) else { return };
    let mut edit = scene.stage.open("worker-notification", &id, Surface::WorkerNotifications, seen.ids.agent.as_ref());
    #[rustfmt::skip]
    carry::members(seen, &mut edit, &[
        "status", "summary", "resultRef", "usage", "durationMs", "toolCount", "agentName", "teamName", "runtimeEntity", "error",
        "transcriptRef", "artifactRefs", "evidenceRefs",
    ]);
    carry::ids(seen, &mut edit, &["taskId", "agentId", "toolCallId", "sessionId", "parentSessionId"]);
    carry::refs(seen, &mut edit);
    // A report in a user-role message: its chunks are appended, and its end has the whole text.
    match (seen.text("text"), seen.text("summary").is_some() || seen.text("role").is_none()) {
        (Some(whole), true) => edit.set_text("text", whole),
        (Some(chunk), false) => edit.append("text", chunk),
        (None, _) => {}
    }
    if edit.get("status").is_none() {
        edit.set("status", "unknown");
    }
}
