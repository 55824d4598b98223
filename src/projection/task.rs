//! `task`: queued turns, work items, background jobs and remote tasks.
//!
//! The end of a run does not end a task: its owner states its status ([`lifecycle`]).

use super::envelope_view::EnvelopeView;
use super::{FoldState, carry, lifecycle};
use crate::model::{AgentId, EventType, Phase, Surface, TaskId};
use serde_json::{Map, Value, json};

/// The most failed attempts that the activity keeps; the newest stay.
const ATTEMPTS_MAX: usize = 20;
/// The most comments that the activity keeps; the newest stay.
const COMMENTS_MAX: usize = 50;

#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "runtimeStatus", "latestTurnStatus", "title", "assignee", "owner", "blocker", "priority", "dependencies",
    "progress", "schedule", "wakeReason", "lastRunRef", "capabilityRef", "inputNeeds", "authNeeds", "workItemId", "remoteTaskId",
    "artifactRefs", "evidenceRefs", "resultRef", "transcriptRef", "summary", "reason", "spawnReason", "message", "error",
    "queuedTurnCount", "queueReason", "retryableOverload", "providerConcurrencyGroup", "providerParallelBudget", "agentName",
    "teamName", "teamId", "usage", "durationMs", "toolCount", "topology", "claimedBy", "claims", "currentRunRef", "nextRunAt",
    "agentCard",
];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::TaskChanged {
        return;
    }
    let id = envelope.ids.task.as_ref().map(|id: &TaskId| id.as_str().to_owned());
    let Some(id) = id.or_else(|| carry::name(envelope, &["workItemId", "remoteTaskId"])) else { return };
    let mut edit = fold.activities.open("task", &id, surface(envelope), envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    let had_failed = edit.text("status") == Some("failed");
    let stated = envelope.text("status").or_else(|| envelope.text("runtimeStatus"));
    match (stated, edit.get("status")) {
        (Some(status), _) => edit.set_str("status", status),
        (None, None) => edit.set_str("status", if envelope.phase == Phase::Failed { "failed" } else { "unknown" }),
        (None, Some(_)) => {}
    }
    if had_failed && edit.text("status") != Some("failed") {
        // The error belongs to the failed attempt, which stays in `attempts`.
        edit.remove("error");
    }
    edit.set_some("runtimeEntity", envelope.text("runtimeEntity"));
    carry::members(envelope, &mut edit, MEMBERS);
    carry::ids(envelope, &mut edit, &["sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    edit.set_some("agentId", envelope.ids.agent.as_ref().map(AgentId::as_str));
    carry::refs(envelope, &mut edit);
    if let Some(comments) = envelope.get("comments").and_then(Value::as_array) {
        edit.set("comments", carry::newest(comments, COMMENTS_MAX));
    }
    if let Some(comment) = comment(envelope) {
        edit.push_bounded("comments", comment, COMMENTS_MAX);
    }
    match envelope.get("attempts") {
        Some(Value::Array(attempts)) => edit.set("attempts", carry::newest(attempts, ATTEMPTS_MAX)),
        Some(count @ Value::Number(_)) => edit.set("attemptCount", count.clone()),
        _ => {}
    }
    if !had_failed && edit.text("status") == Some("failed") && !envelope.get("attempts").is_some_and(Value::is_array) {
        edit.push_bounded("attempts", failed_attempt(envelope), ATTEMPTS_MAX);
    }
}

/// A single comment, with the sequence of its envelope.
fn comment(envelope: &EnvelopeView) -> Option<Value> {
    let mut comment = Map::from_iter([("sequence".to_owned(), json!(envelope.sequence))]);
    match envelope.get("comment")? {
        Value::Object(stated) => comment.extend(stated.clone()),
        text => drop(comment.insert("text".into(), text.clone())),
    }
    Some(Value::Object(comment))
}

/// The surface of the task, from its entity, its ids or the fact's surface.
fn surface(envelope: &EnvelopeView) -> Surface {
    match envelope.text("runtimeEntity") {
        Some("work_item") => return Surface::WorkBoard,
        Some("automation_job") => return Surface::BackgroundTeammate,
        Some("external_task") => return Surface::RemoteTeammate,
        _ => {}
    }
    if carry::name(envelope, &["workItemId"]).is_some() {
        return Surface::WorkBoard;
    }
    if carry::name(envelope, &["remoteTaskId"]).is_some() {
        return Surface::RemoteTeammate;
    }
    match &envelope.surface {
        said @ (Surface::WorkBoard | Surface::BackgroundTeammate | Surface::RemoteTeammate) => said.clone(),
        _ => Surface::TaskCapsule,
    }
}

fn failed_attempt(envelope: &EnvelopeView) -> Value {
    let mut attempt = Map::from_iter([("sequence".to_owned(), json!(envelope.sequence)), ("status".to_owned(), json!("failed"))]);
    for member in ["error", "reason", "message", "lastRunRef"] {
        attempt.extend(envelope.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    Value::Object(attempt)
}
