//! `task`: queued turns, work items, background jobs and remote tasks.
//!
//! The end of a run does not end a task: its owner states its status ([`lifecycle`]).

use super::envelope_view::EnvelopeView;
use super::members::{Any, List, Mark, Num, STALE_ABOUT, Str, TOPOLOGY_ABOUT, content, open_set};
use super::{FoldState, carry, lifecycle, list, stated, topology_schema};
use proscenium_model::fact::TaskFact;
use proscenium_model::{EventType, Phase, Surface, TaskId};
use serde_json::{Map, Value, json};

content! {
    TASK = "task" of TaskFact,
    "A queued turn, work item, background job or remote task. The end of a run does not end it, but marks an open one as stale.";
    "status": Str, Always as STATUS,
        "The status as the owner states it; unknown if no fact states it, or if the task was running when its run ended.";
    "runtimeEntity": Str, Sometimes as RUNTIME_ENTITY
        with open_set(&["agent_turn", "subagent_turn", "automation_job", "external_task", "work_item"]),
        "The kind of the task in its runtime.";
    "attempts": List, Sometimes as ATTEMPTS, "The newest 20 failed attempts; they stay when the task is tried again.";
    "attemptCount": Num, Sometimes as ATTEMPT_COUNT, "The number of attempts, by the owner's count.";
    "error": Any, Sometimes as ERROR, "The error, while the task is failed.";
    "comments": List, Sometimes as COMMENTS, "The newest 50 comments on the board.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
}

/// The most failed attempts that the activity keeps; the newest stay.
const ATTEMPTS_MAX: usize = 20;
/// The most comments that the activity keeps; the newest stay.
const COMMENTS_MAX: usize = 50;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::TaskChanged {
        return;
    }
    let fact = envelope.fact();
    #[rustfmt::skip]
    let TaskFact {
        status, runtime_status, runtime_entity, work_item, remote_task, comments, comment, attempts, error, reason, message,
        last_run, extra: _,
    } = &*fact;
    let id = envelope.ids.task.as_ref().map(|id: &TaskId| id.as_str().to_owned());
    let Some(id) = id.or_else(|| carry::name([work_item, remote_task])) else { return };
    let surface = surface(envelope, runtime_entity.as_deref(), work_item, remote_task);
    let mut edit = fold.activities.open("task", &id, surface, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    let had_failed = edit.read(STATUS) == Some("failed");
    match (status.as_deref().or(runtime_status.as_deref()), edit.read(STATUS)) {
        (Some(status), _) => edit.set(STATUS, status),
        (None, None) => edit.set(STATUS, if envelope.phase == Phase::Failed { "failed" } else { "unknown" }),
        (None, Some(_)) => {}
    }
    if had_failed && edit.read(STATUS) != Some("failed") {
        // The error belongs to the failed attempt, which stays in `attempts`.
        edit.remove(ERROR);
    }
    edit.set_some(RUNTIME_ENTITY, runtime_entity.as_deref());
    carry::copied::<TaskFact>(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["sessionId", "threadId", "parentSessionId", "parentThreadId"]);
    carry::ids(envelope, &mut edit, &["agentId"]);
    carry::refs(envelope, &mut edit);
    if let Some(comments) = list(comments) {
        edit.set(COMMENTS, carry::newest(comments, COMMENTS_MAX));
    }
    // A single comment or attempt gets the sequence of its envelope.
    let entry = || Map::from_iter([("sequence".to_owned(), json!(envelope.sequence))]);
    if let Some(stated) = stated(comment.as_deref()) {
        let mut comment = entry();
        match stated {
            Value::Object(stated) => comment.extend(stated),
            text => drop(comment.insert("text".into(), text)),
        }
        edit.push_bounded(COMMENTS, comment.into(), COMMENTS_MAX);
    }
    match attempts.as_deref() {
        Some(Value::Array(attempts)) => edit.set(ATTEMPTS, carry::newest(attempts, ATTEMPTS_MAX)),
        Some(Value::Number(count)) => edit.set(ATTEMPT_COUNT, count.clone()),
        _ => {}
    }
    if !had_failed && edit.read(STATUS) == Some("failed") && list(attempts).is_none() {
        let mut attempt = entry();
        attempt.insert("status".to_owned(), json!("failed"));
        for (member, value) in [("error", error), ("reason", reason), ("message", message), ("lastRunRef", last_run)] {
            attempt.extend(stated(value.as_deref()).map(|value| (member.to_owned(), value)));
        }
        edit.push_bounded(ATTEMPTS, attempt.into(), ATTEMPTS_MAX);
    }
}

/// The surface of the task, from its entity, its ids or the fact's surface.
fn surface(
    envelope: &EnvelopeView,
    entity: Option<&str>,
    work_item: &Option<Box<Value>>,
    remote_task: &Option<Box<Value>>,
) -> Surface {
    match entity {
        Some("work_item") => return Surface::WorkBoard,
        Some("automation_job") => return Surface::BackgroundTeammate,
        Some("external_task") => return Surface::RemoteTeammate,
        _ => {}
    }
    if carry::name([work_item]).is_some() {
        return Surface::WorkBoard;
    }
    if carry::name([remote_task]).is_some() {
        return Surface::RemoteTeammate;
    }
    match &envelope.surface {
        said @ (Surface::WorkBoard | Surface::BackgroundTeammate | Surface::RemoteTeammate) => said.clone(),
        _ => Surface::TaskCapsule,
    }
}
