//! `agent`: teammates, workers and remote collaborators, each with its own card and lineage.
//!
//! The end of a run does not end an agent: it may outlive the run, and its own facts state its end ([`lifecycle`]).

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, Object, STALE_ABOUT, Str, TOPOLOGY_ABOUT, WITHHELD, WITHHELD_ABOUT, content};
use super::run::add_usage;
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::fact::{AgentFact, MetricFact};
use proscenium_model::{AgentId, EventType, Phase, Surface};

content! {
    AGENT = "agent" of AgentFact { TRANSCRIPT_REF = "transcriptRef" },
    "A teammate, worker or remote collaborator. The end of a run does not end it, but marks an open one as stale.";
    "agentName": Str, Always as AGENT_NAME, "The agent's name; its id if it has no name.";
    "status": Str, Always as STATUS,
        "The status as a fact states it, else runtimeStatus; unknown if neither exists, or if the agent was running when its run ended.";
    "parentSessionId": Str, Sometimes, "The session that spawned the agent.";
    "parentThreadId": Str, Sometimes, "The thread that spawned the agent.";
    "sessionId": Str, Sometimes as SESSION_ID, "The agent's own session.";
    "threadId": Str, Sometimes, "The agent's own thread.";
    "taskId": Str, Sometimes, "The task that the agent works on.";
    "usage": Object, Sometimes as USAGE, "The usage of the agent's model calls, each member summed over the calls.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
}

/// The activity type.
pub const KIND: &str = "agent";

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(agent) = &envelope.ids.agent else { return };
    match envelope.event_type {
        EventType::AgentSpawned | EventType::AgentChanged | EventType::AgentCompleted => {
            apply(envelope, &envelope.fact(), agent, fold);
        }
        // The cost of a teammate's model call.
        EventType::MetricChanged => {
            if let Some(mut edit) = fold.activities.edit(KIND, agent.as_str()) {
                add_usage(&mut edit, USAGE, &envelope.fact::<MetricFact>().usage);
            }
        }
        _ => {}
    }
}

fn apply(envelope: &EnvelopeView, fact: &AgentFact, agent: &AgentId, fold: &mut FoldState) {
    let AgentFact { agent_name, status, runtime_status, transcript, usage, extra: _ } = fact;
    let mut edit = fold.activities.open(KIND, agent.as_str(), Surface::TeamRoster, Some(agent));
    lifecycle::clear_stale(&mut edit);
    if !edit.has(AGENT_NAME) {
        edit.set(AGENT_NAME, agent.as_str());
    }
    edit.set_some(AGENT_NAME, agent_name.as_deref().filter(|_| !envelope.is_withheld()));
    let stated = status.as_deref().or(runtime_status.as_deref());
    edit.set(STATUS, stated.unwrap_or_else(|| implied_status(envelope, &edit)).to_owned());
    if envelope.is_withheld() {
        return edit.set(WITHHELD, true);
    }
    edit.remove(WITHHELD);
    if envelope.event_type == EventType::AgentSpawned {
        edit.remove_named("error");
    }
    carry::copied::<AgentFact>(envelope, &mut edit);
    carry::refs(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["parentSessionId", "parentThreadId", "taskId"]);
    // A later fact may name the parent's session as its own `sessionId`.
    if envelope.ids.parent_session.is_some() || !edit.has(SESSION_ID) {
        carry::ids(envelope, &mut edit, &["sessionId", "threadId"]);
    }
    let is_named = transcript.as_deref().is_some_and(|transcript| !transcript.is_null());
    edit.set_some(TRANSCRIPT_REF, envelope.related("transcript").filter(|_| !is_named).cloned());
    add_usage(&mut edit, USAGE, usage);
}

/// The status of a fact that states none: as its class implies, else unchanged.
fn implied_status<'s>(envelope: &EnvelopeView, edit: &'s Edit<'_>) -> &'s str {
    match (&envelope.event_type, &envelope.phase) {
        (EventType::AgentCompleted, Phase::Failed) => "failed",
        (EventType::AgentCompleted, Phase::Cancelled | Phase::Interrupted) => "killed",
        (EventType::AgentCompleted, _) => "completed",
        (EventType::AgentSpawned, _) => "running",
        _ => edit.read(STATUS).unwrap_or("unknown"),
    }
}
