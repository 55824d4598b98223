//! Teams: who is who, whose child, who took over from whom, what workers and reviewers say.

use super::Out;
use super::log::{Entry, Log};
use crate::model::EventType;
use serde_json::Value;
use std::collections::BTreeMap;

/// A runtime's entity: what places it, and what a client shows of it. One of each group.
struct Entity {
    name: &'static str,
    places: &'static [&'static [&'static str]],
    shows: &'static [&'static [&'static str]],
}

/// The seed's runtime entities and their required fields, with those that its team contract adds.
#[rustfmt::skip]
const ENTITIES: &[Entity] = &[
    Entity { name: "agent_turn", places: &[&["sessionId"], &["threadId"], &["turnId", "runId"]], shows: &[&["runtimeStatus", "status"]] },
    // Its lineage is a rule of its own.
    Entity {
        name: "subagent_turn", places: &[&["agentId"]],
        shows: &[
            &["agentName"], &["teamName"], &["role", "source"], &["model"], &["policy"], &["runtimeStatus", "status"],
            &["latestTurnStatus"], &["taskId"], &["spawnReason", "reason"],
        ],
    },
    Entity {
        name: "automation_job", places: &[&["taskId"]],
        shows: &[&["schedule", "wakeReason"], &["runtimeStatus", "status"], &["lastRunRef"]],
    },
    Entity {
        name: "external_task", places: &[&["agentId"], &["remoteTaskId"]],
        shows: &[&["capabilityRef"], &["runtimeStatus", "status"], &["inputNeeds", "authNeeds"]],
    },
    Entity {
        name: "work_item", places: &[&["workItemId"]],
        shows: &[
            &["title"], &["owner", "assignee"], &["status"], &["blocker"], &["priority"], &["dependencies"],
            &["artifactRefs", "evidenceRefs", "refs"],
        ],
    },
];

/// Where a client reads of an entity. Other facts may name one that they come from.
fn tells_of_entity(entry: &Entry) -> bool {
    ["agent.", "task.", "team.", "queue.", "run."].iter().any(|family| entry.is_of(family))
}

/// What a thing lacks over all of its facts, at its first one.
struct Lack<'l> {
    first: &'l Entry,
    lacks: Vec<&'static [&'static str]>,
}

/// The entities of a log by name and id, and what none of their facts says.
fn lacking<'l>(
    log: &'l Log,
    fields: fn(&Entity) -> &'static [&'static [&'static str]],
) -> BTreeMap<(&'static str, String), Lack<'l>> {
    let mut known: BTreeMap<(&'static str, String), Lack<'l>> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| tells_of_entity(entry)) {
        let Some(entity) = ENTITIES.iter().find(|entity| entry.text("runtimeEntity") == Some(entity.name)) else { continue };
        let named = ["taskId", "workItemId", "remoteTaskId", "agentId", "runId", "sessionId"];
        let named = if entity.name == "subagent_turn" { &["agentId"][..] } else { &named[..] };
        let id = named.iter().find_map(|id| entry.word(id).or_else(|| entry.text(id))).unwrap_or_default().to_owned();
        let lack = known.entry((entity.name, id)).or_insert_with(|| Lack { first: entry, lacks: fields(entity).to_vec() });
        lack.lacks.retain(|group| !group.iter().any(|field| entry.has(field)));
    }
    known.retain(|_, lack| !lack.lacks.is_empty());
    known
}

fn tell_lacks(log: &Log, fields: fn(&Entity) -> &'static [&'static [&'static str]], out: &mut Out<'_>) {
    for ((entity, id), lack) in lacking(log, fields) {
        let lacks: Vec<String> = lack.lacks.iter().map(|group| group.join(" or ")).collect();
        out.say(lack.first, Some(&id), format!("{entity} {id} never says its {}", lacks.join(", its ")));
    }
}

/// An entity has what places it.
pub(super) fn entity_ids(log: &Log, out: &mut Out<'_>) {
    tell_lacks(log, |entity| entity.places, out);
}

/// An entity has what a client shows of it.
pub(super) fn entity_details(log: &Log, out: &mut Out<'_>) {
    tell_lacks(log, |entity| entity.shows, out);
}

/// A child says whose child it is. One finding an agent, at its first fact.
pub(super) fn lineage(log: &Log, out: &mut Out<'_>) {
    let mut agents: BTreeMap<&str, (&Entry, bool)> = BTreeMap::new();
    for entry in &log.entries {
        let is_agents = matches!(entry.event_type, EventType::AgentSpawned | EventType::AgentChanged | EventType::AgentCompleted);
        let Some(agent) = entry.word("agentId").filter(|_| is_agents) else { continue };
        let (_, has_parent) = agents.entry(agent).or_insert((entry, false));
        *has_parent |= entry.has("parentSessionId");
    }
    for (agent, (first, _)) in agents.into_iter().filter(|(_, (_, has_parent))| !has_parent) {
        out.say(first, Some(agent), format!("agent {agent} never says its parentSessionId"));
    }
}

/// Every entry of a class has all of these, one of each group.
fn complete(log: &Log, out: &mut Out<'_>, class: &EventType, id: &str, groups: &[&[&str]]) {
    for entry in log.entries.iter().filter(|entry| entry.event_type == *class && !entry.seen.is_withheld()) {
        let lacks = entry.lacks(groups);
        if !lacks.is_empty() {
            let id = entry.word(id).or_else(|| entry.text(id));
            out.say(entry, id, format!("{class} has no {}", lacks.join(", no ")));
        }
    }
}

/// A hand-off says from whom, to whom and why.
pub(super) fn handoffs(log: &Log, out: &mut Out<'_>) {
    complete(log, out, &EventType::AgentHandoff, "handoffId", &[&["from"], &["to"], &["reason"]]);
}

/// And where it goes on, and with what memory.
pub(super) fn handoff_details(log: &Log, out: &mut Out<'_>) {
    let groups: &[&[&str]] = &[&["resumeTarget"], &["memoryBoundary", "contextBoundary"]];
    complete(log, out, &EventType::AgentHandoff, "handoffId", groups);
}

/// What a review is of.
const TARGET: &[&[&str]] = &[&["target", "artifactId", "artifactRefs", "taskId"]];

/// A review says of what it is, and how it came out.
pub(super) fn reviews(log: &Log, out: &mut Out<'_>) {
    complete(log, out, &EventType::ReviewRequested, "reviewId", TARGET);
    // Which target a verdict is of, the request may have said.
    let mut targets: Vec<&str> = Vec::new();
    for entry in &log.entries {
        let id = entry.text("reviewId").or_else(|| entry.word("evidenceId"));
        let names = entry.lacks(TARGET).is_empty();
        match entry.event_type {
            EventType::ReviewRequested if names => targets.extend(id),
            EventType::ReviewCompleted if !entry.seen.is_withheld() => {
                let mut missing = entry.lacks(&[&["verdict"]]);
                if !names && !id.is_some_and(|id| targets.contains(&id)) {
                    missing.push("target".into());
                }
                if !missing.is_empty() {
                    out.say(entry, id, format!("review.completed has no {}", missing.join(", no ")));
                }
            }
            _ => {}
        }
    }
}

/// A verdict says who gave it and on what evidence.
pub(super) fn review_details(log: &Log, out: &mut Out<'_>) {
    let groups: &[&[&str]] = &[&["reviewer", "agentId"], &["evidenceRefs", "evidenceId"]];
    complete(log, out, &EventType::ReviewCompleted, "reviewId", groups);
}

/// A worker's notification says of which task, by whom, how it stands and what came of it.
pub(super) fn notifications(log: &Log, out: &mut Out<'_>) {
    let groups: &[&[&str]] = &[&["taskId"], &["agentId"], &["status"], &["summary", "text"]];
    complete(log, out, &EventType::WorkerNotification, "workerNotificationId", groups);
}

/// And where the result is.
pub(super) fn notification_details(log: &Log, out: &mut Out<'_>) {
    let groups: &[&[&str]] = &[&["resultRef", "transcriptRef", "artifactRefs", "refs"]];
    complete(log, out, &EventType::WorkerNotification, "workerNotificationId", groups);
}

/// A team says how its work is organised.
pub(super) fn topology(log: &Log, out: &mut Out<'_>) {
    let mut teams: BTreeMap<&str, (&Entry, bool)> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| entry.event_type == EventType::TeamChanged) {
        let Some(team) = entry.text("teamId").or_else(|| entry.text("teamName")) else { continue };
        let (_, is_said) = teams.entry(team).or_insert((entry, false));
        *is_said |= entry.word("topology").is_some();
    }
    for (team, (first, _)) in teams.into_iter().filter(|(_, (_, is_said))| !is_said) {
        out.say(first, Some(team), format!("team {team} never says its topology"));
    }
}

/// The seed's status values of tasks and teammates.
#[rustfmt::skip]
const STATUSES: &[&str] = &[
    "queued", "promoted", "removed", "started", "open", "claimed", "running", "blocked", "reviewing", "done", "scheduled",
    "sleeping", "waking", "paused", "failed", "completed", "spawning", "waiting", "needs_input", "plan_ready", "idle", "killed",
    "closed", "forming", "active", "merging", "handoff_requested", "accepted", "returned", "resumed", "requested", "passed",
    "changes_requested", "assigned", "commented", "submitted", "working", "input_required", "auth_required", "canceled",
    "cancelled", "rejected", "shutdown_requested", "unknown",
];

/// Tasks and teammates stand as the seed says that they can.
pub(super) fn statuses(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        let is_one = entry.event_type == EventType::TaskChanged || entry.is_of("agent.") && entry.event_type != EventType::AgentHandoff;
        for member in ["status", "runtimeStatus", "latestTurnStatus"].into_iter().filter(|_| is_one) {
            if let Some(status) = entry.text(member).filter(|status| !STATUSES.contains(status)) {
                let id = entry.word("taskId").filter(|_| entry.event_type == EventType::TaskChanged).or_else(|| entry.word("agentId"));
                out.say(entry, id, format!("{}: {member} is {status:?}, which the seed does not name", entry.event_type));
            }
        }
    }
}

/// What is referred to as evidence or artifact is somewhere in the log.
pub(super) fn dangling(log: &Log, out: &mut Out<'_>) {
    for (member, id_member, families) in
        [("evidenceRefs", "evidenceId", ["evidence.", "review."]), ("artifactRefs", "artifactId", ["artifact.", "artifact."])]
    {
        let told = log.entries.iter().filter(|entry| families.iter().any(|family| entry.is_of(family)));
        let told: Vec<&str> = told.filter_map(|entry| entry.word(id_member)).collect();
        for entry in &log.entries {
            for link in entry.get(member).and_then(Value::as_array).into_iter().flatten() {
                let id = link.as_str().or_else(|| link.get(id_member).or_else(|| link.get("id")).and_then(Value::as_str));
                if let Some(id) = id.filter(|id| !told.contains(id)) {
                    out.say(entry, Some(id), format!("{} refers to {id} by {member}, of which no fact tells", entry.event_type));
                }
            }
        }
    }
}
