//! `team`, `handoff` and `worker-notification`: how work is organised, handed over and reported.
//!
//! A worker's report never counts as the user's message, on any channel.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, STALE_ABOUT, Str, TEXT, TOPOLOGY_ABOUT, Text, content};
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::{EventType, Surface};

content! {
    TEAM = "team", "A team and its limits.";
    "topology": Str, Always as TOPOLOGY with topology_schema(), TOPOLOGY_ABOUT;
    "teamName": Any, Sometimes, "The team's name.";
    "teamPhase": Any, Sometimes, "The team's phase: forming, active, waiting, merging, done.";
    "teamParallelBudget": Any, Sometimes, "The number of members that may work at once.";
    "teamActiveCount": Any, Sometimes, "The number of members at work.";
    "teamQueuedCount": Any, Sometimes, "The number of members that wait.";
    "refs": Any, Sometimes, "Further references.";
}

content! {
    HANDOFF = "handoff",
    "A hand-off of work from one agent or user to another. It does not change the authors of earlier messages.";
    "status": Str, Always as STATUS,
        "The status as a fact states it, else accepted once acceptedAt or acceptedTime exists; else unknown.";
    "from": Any, Sometimes, "The previous owner of the work.";
    "to": Any, Sometimes, "The new owner of the work.";
    "reason": Any, Sometimes, "The reason for the hand-off.";
    "resumeTarget": Any, Sometimes, "The place where the work resumes.";
    "memoryBoundary": Any, Sometimes, "The part of the memory that is handed over.";
    "contextBoundary": Any, Sometimes, "The part of the context that is handed over.";
    "acceptedAt": Any, Sometimes as ACCEPTED_AT, "The time of acceptance, from its source.";
    "acceptedTime": Any, Sometimes as ACCEPTED_TIME, "The same as acceptedAt, by another name.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
}

content! {
    NOTIFICATION = "worker-notification", "A worker's report. It never counts as the user's message, on any channel.";
    "status": Any, Always, "The status as the worker states it; unknown if it states none.";
    "taskId": Str, Sometimes, "The task that the report is about.";
    "agentId": Str, Sometimes, "The worker.";
    "summary": Any, Sometimes, "The summary of the result.";
    "text": Text, Sometimes, "The text of the report, if it arrived as a user-role message.";
    "resultRef": Any, Sometimes, "A reference to the result.";
    "usage": Any, Sometimes, "The worker's usage.";
    "durationMs": Any, Sometimes, "The duration of the work, in milliseconds.";
    "toolCount": Any, Sometimes, "The number of tool calls.";
}

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
        Some(topology) => edit.set(TOPOLOGY, topology),
        None if !edit.has(TOPOLOGY) => edit.set(TOPOLOGY, "unknown"),
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
    let is_accepted = edit.has(ACCEPTED_AT) || edit.has(ACCEPTED_TIME);
    match edit.read(STATUS) {
        None | Some("unknown") => edit.set(STATUS, if is_accepted { "accepted" } else { "unknown" }),
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
        (Some(whole), true) => edit.set_text(TEXT, whole),
        (Some(chunk), false) => edit.append(TEXT, chunk),
        (None, _) => {}
    }
    if !edit.has(STATUS) {
        edit.set(STATUS, "unknown");
    }
}
