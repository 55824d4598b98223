//! `team`, `handoff` and `worker-notification`: how work is organised, handed over and reported.
//!
//! A worker's report never counts as the user's message, on any channel.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, STALE_ABOUT, Str, TEXT, TOPOLOGY_ABOUT, Text, content};
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::fact::{HandoffFact, NotificationFact, TeamFact};
use proscenium_model::{EventType, Surface};
use serde_json::Value;

content! {
    TEAM = "team" of TeamFact, "A team and its limits.";
    "topology": Str, Always as TOPOLOGY with topology_schema(), TOPOLOGY_ABOUT;
    "refs": Any, Sometimes, "Further references.";
}

content! {
    HANDOFF = "handoff" of HandoffFact { ACCEPTED_AT = "acceptedAt", ACCEPTED_TIME = "acceptedTime" },
    "A hand-off of work from one agent or user to another. It does not change the authors of earlier messages.";
    "status": Str, Always as STATUS,
        "The status as a fact states it, else accepted once acceptedAt or acceptedTime exists; else unknown.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
}

content! {
    NOTIFICATION = "worker-notification" of NotificationFact, "A worker's report. It never counts as the user's message, on any channel.";
    "status": Any, Always, "The status as the worker states it; unknown if it states none.";
    "taskId": Str, Sometimes, "The task that the report is about.";
    "agentId": Str, Sometimes, "The worker.";
    "text": Text, Sometimes, "The text of the report, if it arrived as a user-role message.";
}

pub(super) fn team(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::TeamChanged {
        return;
    }
    let fact = envelope.fact();
    let TeamFact { team, team_name, topology, members, agents, roster, extra: _ } = &*fact;
    let Some(id) = carry::name([team, team_name]) else { return };
    let mut edit = fold.activities.open("team", &id, Surface::TeamRoster, None);
    carry::copied::<TeamFact>(envelope, &mut edit);
    for (member, value) in [("members", members), ("agents", agents), ("roster", roster)] {
        carry::member_in_brief(&mut edit, member, value.as_deref());
    }
    carry::refs(envelope, &mut edit);
    match topology.as_deref() {
        Some(topology) => edit.set(TOPOLOGY, topology),
        None if !edit.has(TOPOLOGY) => edit.set(TOPOLOGY, "unknown"),
        None => {}
    }
}

pub(super) fn handoff(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::AgentHandoff {
        return;
    }
    let fact = envelope.fact();
    let HandoffFact { handoff, extra: _ } = &*fact;
    let Some(id) = carry::name([handoff]) else { return };
    let mut edit = fold.activities.open("handoff", &id, Surface::HandoffLane, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    carry::copied::<HandoffFact>(envelope, &mut edit);
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
    let fact = envelope.fact();
    #[rustfmt::skip]
    let NotificationFact {
        notification, summary, text, role,
        // The native source reads the marks of a worker's message.
        is_worker_notification: _, origin: _, source: _, extra: _,
    } = &*fact;
    let Some(id) = carry::name([notification]) else { return };
    let mut edit = fold.activities.open("worker-notification", &id, Surface::WorkerNotifications, envelope.ids.agent.as_ref());
    carry::copied::<NotificationFact>(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["taskId", "agentId", "toolCallId", "sessionId", "parentSessionId"]);
    carry::refs(envelope, &mut edit);
    // A report in a user-role message: its chunks are appended, and its end has the whole text.
    let is_whole = summary.as_deref().is_some_and(Value::is_string) || role.is_none();
    match (text.as_deref(), is_whole) {
        (Some(whole), true) => edit.set_text(TEXT, whole),
        (Some(chunk), false) => edit.append(TEXT, chunk),
        (None, _) => {}
    }
    if !edit.has(STATUS) {
        edit.set(STATUS, "unknown");
    }
}
