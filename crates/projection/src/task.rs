//! `task`: queued turns, work items, background jobs and remote tasks.
//!
//! The end of a run does not end a task: its owner states its status ([`lifecycle`]).

use super::envelope_view::EnvelopeView;
use super::members::{Any, List, Mark, Num, STALE_ABOUT, Str, TOPOLOGY_ABOUT, content, open_set};
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::{EventType, MemberRef, Phase, Surface, TaskId};
use serde_json::{Map, Value, json};

content! {
    TASK = "task",
    "A queued turn, work item, background job or remote task. The end of a run does not end it, but marks an open one as stale.";
    "status": Str, Always as STATUS,
        "The status as the owner states it; unknown if no fact states it, or if the task was running when its run ended.";
    "runtimeEntity": Str, Sometimes as RUNTIME_ENTITY
        with open_set(&["agent_turn", "subagent_turn", "automation_job", "external_task", "work_item"]),
        "The kind of the task in its runtime.";
    "title": Any, Sometimes, "The title of the task.";
    "assignee": Any, Sometimes, "The assignee of the task.";
    "blocker": Any, Sometimes, "The reason why the task is blocked.";
    "priority": Any, Sometimes, "The priority of the task.";
    "dependencies": Any, Sometimes, "The tasks that must be done before.";
    "progress": Any, Sometimes, "The progress of the task.";
    "attempts": List, Sometimes as ATTEMPTS, "The newest 20 failed attempts; they stay when the task is tried again.";
    "attemptCount": Num, Sometimes as ATTEMPT_COUNT, "The number of attempts, by the owner's count.";
    "schedule": Any, Sometimes, "The schedule of the task.";
    "wakeReason": Any, Sometimes, "The reason why the task was woken.";
    "lastRunRef": Any, Sometimes, "A reference to the task's last run.";
    "capabilityRef": Any, Sometimes, "A reference to the remote agent's card.";
    "inputNeeds": Any, Sometimes, "The input that the task needs.";
    "authNeeds": Any, Sometimes, "The permissions that the task needs.";
    "error": Any, Sometimes as ERROR, "The error, while the task is failed.";
    "comments": List, Sometimes as COMMENTS, "The newest 50 comments on the board.";
    "claimedBy": Any, Sometimes, "The party that has claimed the task.";
    "artifactRefs": Any, Sometimes, "Artifacts that the task made or needs.";
    "evidenceRefs": Any, Sometimes, "Evidence for the task.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
}

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
    let had_failed = edit.read(STATUS) == Some("failed");
    let stated = envelope.text("status").or_else(|| envelope.text("runtimeStatus"));
    match (stated, edit.read(STATUS)) {
        (Some(status), _) => edit.set(STATUS, status),
        (None, None) => edit.set(STATUS, if envelope.phase == Phase::Failed { "failed" } else { "unknown" }),
        (None, Some(_)) => {}
    }
    if had_failed && edit.read(STATUS) != Some("failed") {
        // The error belongs to the failed attempt, which stays in `attempts`.
        edit.remove(ERROR);
    }
    edit.set_some(RUNTIME_ENTITY, envelope.text("runtimeEntity"));
    carry::members(envelope, &mut edit, MEMBERS);
    carry::ids(envelope, &mut edit, &["sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    carry::ids(envelope, &mut edit, &["agentId"]);
    carry::refs(envelope, &mut edit);
    if let Some(comments) = envelope.get("comments").and_then(MemberRef::list) {
        edit.set(COMMENTS, carry::newest(comments, COMMENTS_MAX));
    }
    if let Some(comment) = comment(envelope) {
        edit.push_bounded(COMMENTS, comment, COMMENTS_MAX);
    }
    match envelope.get("attempts") {
        Some(MemberRef::Value(Value::Array(attempts))) => edit.set(ATTEMPTS, carry::newest(attempts, ATTEMPTS_MAX)),
        Some(MemberRef::Number(count)) => edit.set(ATTEMPT_COUNT, count.clone()),
        _ => {}
    }
    if !had_failed && edit.read(STATUS) == Some("failed") && envelope.get("attempts").and_then(MemberRef::list).is_none() {
        edit.push_bounded(ATTEMPTS, failed_attempt(envelope), ATTEMPTS_MAX);
    }
}

/// A single comment, with the sequence of its envelope.
fn comment(envelope: &EnvelopeView) -> Option<Value> {
    let mut comment = Map::from_iter([("sequence".to_owned(), json!(envelope.sequence))]);
    match envelope.get("comment")? {
        MemberRef::Value(Value::Object(stated)) => comment.extend(stated.clone()),
        text => drop(comment.insert("text".into(), text.into_value())),
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
        attempt.extend(envelope.get(member).map(|value| (member.to_owned(), value.into_value())));
    }
    Value::Object(attempt)
}
