//! `agent`: teammates, workers and remote collaborators, each with its own card and lineage.
//!
//! The end of a run does not end an agent: it may outlive the run, and its own facts state its end ([`lifecycle`]).

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, Object, STALE_ABOUT, Str, TOPOLOGY_ABOUT, WITHHELD, WITHHELD_ABOUT, content};
use super::run::summed;
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::{EventType, MemberRef, Phase, Surface};

content! {
    AGENT = "agent",
    "A teammate, worker or remote collaborator. The end of a run does not end it, but marks an open one as stale.";
    "agentName": Str, Always as AGENT_NAME, "The agent's name; its id if it has no name.";
    "status": Str, Always as STATUS,
        "The status as a fact states it, else runtimeStatus; unknown if neither exists, or if the agent was running when its run ended.";
    "teamName": Any, Sometimes, "The agent's team.";
    "role": Any, Sometimes, "The agent's role in the team.";
    "runtimeStatus": Any, Sometimes, "The status of the agent's runtime.";
    "latestTurnStatus": Any, Sometimes, "The status of the agent's last turn.";
    "queuedTurnCount": Any, Sometimes, "The number of turns that wait for the agent.";
    "source": Any, Sometimes, "The origin of the agent.";
    "transcriptRef": Any, Sometimes as TRANSCRIPT_REF, "A reference to the agent's transcript.";
    "parentSessionId": Str, Sometimes, "The session that spawned the agent.";
    "parentThreadId": Str, Sometimes, "The thread that spawned the agent.";
    "sessionId": Str, Sometimes as SESSION_ID, "The agent's own session.";
    "threadId": Str, Sometimes, "The agent's own thread.";
    "taskId": Str, Sometimes, "The task that the agent works on.";
    "model": Any, Sometimes, "The model that the agent uses.";
    "policy": Any, Sometimes, "The agent's policy.";
    "usage": Object, Sometimes as USAGE, "The usage of the agent's model calls, each member summed over the calls.";
    "schedule": Any, Sometimes, "The agent's schedule.";
    "wakeReason": Any, Sometimes, "The reason why the agent was woken.";
    "currentRunRef": Any, Sometimes, "A reference to the agent's current run.";
    "lastRunRef": Any, Sometimes, "A reference to the agent's last run.";
    "capabilityRef": Any, Sometimes, "A reference to the remote agent's card.";
    "remoteTaskId": Any, Sometimes, "The agent's task at the remote agent.";
    "inputNeeds": Any, Sometimes, "The input that the agent needs.";
    "authNeeds": Any, Sometimes, "The permissions that the agent needs.";
    "blocker": Any, Sometimes, "The reason why the agent is blocked.";
    "dependencies": Any, Sometimes, "The work that must be done before.";
    "progress": Any, Sometimes, "The progress of the agent's work.";
    "artifactRefs": Any, Sometimes, "Artifacts that the agent made or needs.";
    "evidenceRefs": Any, Sometimes, "Evidence for the agent's work.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
}

/// The activity type.
pub const KIND: &str = "agent";

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
    if !edit.has(AGENT_NAME) {
        edit.set(AGENT_NAME, agent.as_str());
    }
    edit.set_some(AGENT_NAME, envelope.text("agentName").filter(|_| !envelope.is_withheld()));
    edit.set(STATUS, status(envelope, &edit).to_owned());
    if envelope.is_withheld() {
        return edit.set(WITHHELD, true);
    }
    edit.remove(WITHHELD);
    if envelope.event_type == EventType::AgentSpawned {
        edit.remove_named("error");
    }
    carry::members(envelope, &mut edit, MEMBERS);
    carry::refs(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["parentSessionId", "parentThreadId", "taskId"]);
    // A later fact may name the parent's session as its own `sessionId`.
    if envelope.ids.parent_session.is_some() || !edit.has(SESSION_ID) {
        carry::ids(envelope, &mut edit, &["sessionId", "threadId"]);
    }
    edit.set_some(TRANSCRIPT_REF, envelope.related("transcript").filter(|_| envelope.get("transcriptRef").is_none()).cloned());
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
        _ => edit.read(STATUS).unwrap_or("unknown"),
    })
}

fn add_usage(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    if let Some(usage) = envelope.get("usage").and_then(MemberRef::object) {
        let sum = summed(edit.read(USAGE), usage);
        edit.set(USAGE, sum);
    }
}
