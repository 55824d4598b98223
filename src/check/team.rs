//! Rules for teams: identities, lineage, handoffs, reviews and worker notifications.

use super::Findings;
use super::log::{CheckedLog, Entry};
use crate::model::{EventType, MemberRef};
use serde_json::Value;
use std::collections::BTreeMap;

/// A runtime entity: the ids that place it and the details that a client shows; one member per group.
struct Entity {
    name: &'static str,
    ids: &'static [&'static [&'static str]],
    details: &'static [&'static [&'static str]],
}

/// The seed's runtime entities with their required fields, including those of its team contract.
#[rustfmt::skip]
const ENTITIES: &[Entity] = &[
    Entity { name: "agent_turn", ids: &[&["sessionId"], &["threadId"], &["turnId", "runId"]], details: &[&["runtimeStatus", "status"]] },
    // Rule `agent-lineage` checks the parent.
    Entity {
        name: "subagent_turn", ids: &[&["agentId"]],
        details: &[
            &["agentName"], &["teamName"], &["role", "source"], &["model"], &["policy"], &["runtimeStatus", "status"],
            &["latestTurnStatus"], &["taskId"], &["spawnReason", "reason"],
        ],
    },
    Entity {
        name: "automation_job", ids: &[&["taskId"]],
        details: &[&["schedule", "wakeReason"], &["runtimeStatus", "status"], &["lastRunRef"]],
    },
    Entity {
        name: "external_task", ids: &[&["agentId"], &["remoteTaskId"]],
        details: &[&["capabilityRef"], &["runtimeStatus", "status"], &["inputNeeds", "authNeeds"]],
    },
    Entity {
        name: "work_item", ids: &[&["workItemId"]],
        details: &[
            &["title"], &["owner", "assignee"], &["status"], &["blocker"], &["priority"], &["dependencies"],
            &["artifactRefs", "evidenceRefs", "refs"],
        ],
    },
];

/// Returns whether the fact describes an entity. Other facts may name an entity only as their origin.
fn describes_entity(entry: &Entry) -> bool {
    ["agent.", "task.", "team.", "queue.", "run."].iter().any(|family| entry.is_in_family(family))
}

/// An entity whose facts lack required members.
struct IncompleteEntity<'l> {
    first: &'l Entry,
    missing: Vec<&'static [&'static str]>,
}

/// Returns the incomplete entities of a log, by name and id.
fn incomplete_entities<'l>(
    log: &'l CheckedLog,
    fields: fn(&Entity) -> &'static [&'static [&'static str]],
) -> BTreeMap<(&'static str, String), IncompleteEntity<'l>> {
    let mut known: BTreeMap<(&'static str, String), IncompleteEntity<'l>> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| describes_entity(entry)) {
        let Some(entity) = ENTITIES.iter().find(|entity| entry.payload_text("runtimeEntity") == Some(entity.name)) else {
            continue;
        };
        let id_members = ["taskId", "workItemId", "remoteTaskId", "agentId", "runId", "sessionId"];
        let id_members = if entity.name == "subagent_turn" { &["agentId"][..] } else { &id_members[..] };
        let id = id_members
            .iter()
            .find_map(|id| entry.envelope_text(id).or_else(|| entry.payload_text(id)))
            .unwrap_or_default()
            .to_owned();
        let incomplete =
            known.entry((entity.name, id)).or_insert_with(|| IncompleteEntity { first: entry, missing: fields(entity).to_vec() });
        incomplete.missing.retain(|group| !group.iter().any(|field| entry.has(field)));
    }
    known.retain(|_, incomplete| !incomplete.missing.is_empty());
    known
}

fn report_missing(log: &CheckedLog, fields: fn(&Entity) -> &'static [&'static [&'static str]], findings: &mut Findings<'_>) {
    for ((entity, id), incomplete) in incomplete_entities(log, fields) {
        let missing: Vec<String> = incomplete.missing.iter().map(|group| group.join(" or ")).collect();
        findings.report(incomplete.first, Some(&id), format!("no fact of {entity} {id} has {}", missing.join(", or ")));
    }
}

/// Requires the ids that place an entity.
pub(super) fn entity_ids(log: &CheckedLog, findings: &mut Findings<'_>) {
    report_missing(log, |entity| entity.ids, findings);
}

/// Requires the details that a client shows of an entity.
pub(super) fn entity_details(log: &CheckedLog, findings: &mut Findings<'_>) {
    report_missing(log, |entity| entity.details, findings);
}

/// Requires the parent of a child agent; reports one finding per agent, at its first fact.
///
/// An agent that works in the session of the run has its parent there.
pub(super) fn lineage(log: &CheckedLog, findings: &mut Findings<'_>) {
    let mut agents: BTreeMap<&str, (&Entry, bool)> = BTreeMap::new();
    let own = log.entries.iter().find_map(|entry| entry.envelope_text("sessionId"));
    for entry in &log.entries {
        let is_agents = matches!(entry.event_type, EventType::AgentSpawned | EventType::AgentChanged | EventType::AgentCompleted);
        let Some(agent) = entry.envelope_text("agentId").filter(|_| is_agents) else { continue };
        let (_, has_parent) = agents.entry(agent).or_insert((entry, false));
        *has_parent |= entry.has("parentSessionId") || own.is_some() && entry.envelope_text("sessionId") == own;
    }
    for (agent, (first, _)) in agents.into_iter().filter(|(_, (_, has_parent))| !has_parent) {
        findings.report(first, Some(agent), format!("no fact of agent {agent} has a parentSessionId"));
    }
}

/// Requires one member of each group in every entry of an event type.
fn require_members(log: &CheckedLog, findings: &mut Findings<'_>, event_type: &EventType, id: &str, groups: &[&[&str]]) {
    for entry in log.entries.iter().filter(|entry| entry.event_type == *event_type && !entry.view.is_withheld()) {
        let missing = entry.missing(groups);
        if !missing.is_empty() {
            let id = entry.envelope_text(id).or_else(|| entry.payload_text(id));
            findings.report(entry, id, format!("{event_type} has no {}", missing.join(", no ")));
        }
    }
}

/// Requires the sender, receiver and reason of a handoff.
pub(super) fn handoffs(log: &CheckedLog, findings: &mut Findings<'_>) {
    require_members(log, findings, &EventType::AgentHandoff, "handoffId", &[&["from"], &["to"], &["reason"]]);
}

/// Requires the resume target and the memory boundary of a handoff.
pub(super) fn handoff_details(log: &CheckedLog, findings: &mut Findings<'_>) {
    let groups: &[&[&str]] = &[&["resumeTarget"], &["memoryBoundary", "contextBoundary"]];
    require_members(log, findings, &EventType::AgentHandoff, "handoffId", groups);
}

/// The members that name the target of a review.
const TARGET: &[&[&str]] = &[&["target", "artifactId", "artifactRefs", "taskId"]];

/// Requires the target of a review, and the verdict of a completed one.
pub(super) fn reviews(log: &CheckedLog, findings: &mut Findings<'_>) {
    require_members(log, findings, &EventType::ReviewRequested, "reviewId", TARGET);
    // A verdict may omit the target if the request named it.
    let mut targets: Vec<&str> = Vec::new();
    for entry in &log.entries {
        let id = entry.payload_text("reviewId").or_else(|| entry.envelope_text("evidenceId"));
        let has_target = entry.missing(TARGET).is_empty();
        match entry.event_type {
            EventType::ReviewRequested if has_target => targets.extend(id),
            EventType::ReviewCompleted if !entry.view.is_withheld() => {
                let mut missing = entry.missing(&[&["verdict"]]);
                if !has_target && !id.is_some_and(|id| targets.contains(&id)) {
                    missing.push("target".into());
                }
                if !missing.is_empty() {
                    findings.report(entry, id, format!("review.completed has no {}", missing.join(", no ")));
                }
            }
            _ => {}
        }
    }
}

/// Requires the reviewer and the evidence of a verdict.
pub(super) fn review_details(log: &CheckedLog, findings: &mut Findings<'_>) {
    let groups: &[&[&str]] = &[&["reviewer", "agentId"], &["evidenceRefs", "evidenceId"]];
    require_members(log, findings, &EventType::ReviewCompleted, "reviewId", groups);
}

/// Requires the task, agent, status and summary of a worker notification.
pub(super) fn notifications(log: &CheckedLog, findings: &mut Findings<'_>) {
    let groups: &[&[&str]] = &[&["taskId"], &["agentId"], &["status"], &["summary", "text"]];
    require_members(log, findings, &EventType::WorkerNotification, "workerNotificationId", groups);
}

/// Requires the result reference of a worker notification.
pub(super) fn notification_details(log: &CheckedLog, findings: &mut Findings<'_>) {
    let groups: &[&[&str]] = &[&["resultRef", "transcriptRef", "artifactRefs", "refs"]];
    require_members(log, findings, &EventType::WorkerNotification, "workerNotificationId", groups);
}

/// Requires the topology of a team.
pub(super) fn topology(log: &CheckedLog, findings: &mut Findings<'_>) {
    let mut teams: BTreeMap<&str, (&Entry, bool)> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| entry.event_type == EventType::TeamChanged) {
        let Some(team) = entry.payload_text("teamId").or_else(|| entry.payload_text("teamName")) else { continue };
        let (_, has_topology) = teams.entry(team).or_insert((entry, false));
        *has_topology |= entry.envelope_text("topology").is_some();
    }
    for (team, (first, _)) in teams.into_iter().filter(|(_, (_, has_topology))| !has_topology) {
        findings.report(first, Some(team), format!("no fact of team {team} has a topology"));
    }
}

/// The seed's status values for tasks and teammates.
#[rustfmt::skip]
const STATUSES: &[&str] = &[
    "queued", "promoted", "removed", "started", "open", "claimed", "running", "blocked", "reviewing", "done", "scheduled",
    "sleeping", "waking", "paused", "failed", "completed", "spawning", "waiting", "needs_input", "plan_ready", "idle", "killed",
    "closed", "forming", "active", "merging", "handoff_requested", "accepted", "returned", "resumed", "requested", "passed",
    "changes_requested", "assigned", "commented", "submitted", "working", "input_required", "auth_required", "canceled",
    "cancelled", "rejected", "shutdown_requested", "unknown",
];

/// Requires a status of the seed.
pub(super) fn statuses(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let is_one = entry.event_type == EventType::TaskChanged
            || entry.is_in_family("agent.") && entry.event_type != EventType::AgentHandoff;
        for member in ["status", "runtimeStatus", "latestTurnStatus"].into_iter().filter(|_| is_one) {
            if let Some(status) = entry.payload_text(member).filter(|status| !STATUSES.contains(status)) {
                let id = entry
                    .envelope_text("taskId")
                    .filter(|_| entry.event_type == EventType::TaskChanged)
                    .or_else(|| entry.envelope_text("agentId"));
                findings.report(
                    entry,
                    id,
                    format!("{}: {member} has the value {status:?}, which the seed does not define", entry.event_type),
                );
            }
        }
    }
}

/// Requires a fact for each artifact or evidence that a reference names.
pub(super) fn dangling(log: &CheckedLog, findings: &mut Findings<'_>) {
    for (member, id_member, families) in
        [("evidenceRefs", "evidenceId", ["evidence.", "review."]), ("artifactRefs", "artifactId", ["artifact.", "artifact."])]
    {
        let known = log.entries.iter().filter(|entry| families.iter().any(|family| entry.is_in_family(family)));
        let known: Vec<&str> = known.filter_map(|entry| entry.envelope_text(id_member)).collect();
        for entry in &log.entries {
            for link in entry.get(member).and_then(MemberRef::list).into_iter().flatten() {
                let id = link.as_str().or_else(|| link.get(id_member).or_else(|| link.get("id")).and_then(Value::as_str));
                if let Some(id) = id.filter(|id| !known.contains(id)) {
                    findings.report(
                        entry,
                        Some(id),
                        format!("{} refers to {id} in {member}, but the log has no fact about it", entry.event_type),
                    );
                }
            }
        }
    }
}
