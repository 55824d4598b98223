//! `task`: queued turns, work items, background jobs and remote tasks.
//!
//! The end of a run does not end a task: its owner states its status ([`lifecycle`]).

use super::seen::Seen;
use super::{Scene, carry, lifecycle};
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

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::TaskChanged {
        return;
    }
    let id = seen.ids.task.as_ref().map(|id: &TaskId| id.as_str().to_owned());
    let Some(id) = id.or_else(|| carry::name(seen, &["workItemId", "remoteTaskId"])) else { return };
    let mut edit = scene.stage.open("task", &id, surface(seen), seen.ids.agent.as_ref());
    lifecycle::lift(&mut edit);
    let had_failed = edit.text("status") == Some("failed");
    let told = seen.text("status").or_else(|| seen.text("runtimeStatus"));
    match (told, edit.get("status")) {
        (Some(status), _) => edit.say("status", status),
        (None, None) => edit.say("status", if seen.phase == Phase::Failed { "failed" } else { "unknown" }),
        (None, Some(_)) => {}
    }
    if had_failed && edit.text("status") != Some("failed") {
        // The error belongs to the failed attempt, which stays in `attempts`.
        edit.remove("error");
    }
    edit.set_some("runtimeEntity", seen.text("runtimeEntity"));
    carry::members(seen, &mut edit, MEMBERS);
    carry::ids(seen, &mut edit, &["sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    edit.set_some("agentId", seen.ids.agent.as_ref().map(AgentId::as_str));
    carry::refs(seen, &mut edit);
    if let Some(comments) = seen.get("comments").and_then(Value::as_array) {
        edit.set("comments", carry::newest(comments, COMMENTS_MAX));
    }
    if let Some(comment) = comment(seen) {
        edit.push_bounded("comments", comment, COMMENTS_MAX);
    }
    match seen.get("attempts") {
        Some(Value::Array(attempts)) => edit.set("attempts", carry::newest(attempts, ATTEMPTS_MAX)),
        Some(count @ Value::Number(_)) => edit.set("attemptCount", count.clone()),
        _ => {}
    }
    if !had_failed && edit.text("status") == Some("failed") && !seen.get("attempts").is_some_and(Value::is_array) {
        edit.push_bounded("attempts", failed_attempt(seen), ATTEMPTS_MAX);
    }
}

/// A single comment, with the sequence of its envelope.
fn comment(seen: &Seen) -> Option<Value> {
    let mut comment = Map::from_iter([("sequence".to_owned(), json!(seen.sequence))]);
    match seen.get("comment")? {
        Value::Object(told) => comment.extend(told.clone()),
        text => drop(comment.insert("text".into(), text.clone())),
    }
    Some(Value::Object(comment))
}

/// The surface of the task, from its entity, its ids or the fact's surface.
fn surface(seen: &Seen) -> Surface {
    match seen.text("runtimeEntity") {
        Some("work_item") => return Surface::WorkBoard,
        Some("automation_job") => return Surface::BackgroundTeammate,
        Some("external_task") => return Surface::RemoteTeammate,
        _ => {}
    }
    if carry::name(seen, &["workItemId"]).is_some() {
        return Surface::WorkBoard;
    }
    if carry::name(seen, &["remoteTaskId"]).is_some() {
        return Surface::RemoteTeammate;
    }
    match &seen.surface {
        said @ (Surface::WorkBoard | Surface::BackgroundTeammate | Surface::RemoteTeammate) => said.clone(),
        _ => Surface::TaskCapsule,
    }
}

fn failed_attempt(seen: &Seen) -> Value {
    let mut attempt = Map::from_iter([("sequence".to_owned(), json!(seen.sequence)), ("status".to_owned(), json!("failed"))]);
    for member in ["error", "reason", "message", "lastRunRef"] {
        attempt.extend(seen.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    Value::Object(attempt)
}
