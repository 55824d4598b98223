//! The tables of seed 003 as data, compared with the code's defaults and mappings.
//!
//! Each constant is a table of the seed. Where the code differs from the seed's "typical" column, an exception names
//! the event type and the line of the seed that justifies it.

use crate::harness::{Client, fact, start_local};
use proscenium::check::DEMANDS;
use proscenium::model::taxonomy::EVENT_TYPES;
use proscenium::model::{ActionKind, Control, EventType, Owner, PartKind, Persistence, Phase, Scope, Surface, Topology};
use proscenium::projection::schemas;
use serde_json::{Value, json};

#[rustfmt::skip]
const OWNERS: &[&str] = &[
    "runtime", "model", "tool", "action", "artifact", "evidence", "context", "policy", "task", "agent", "session", "diagnostics",
    "ui_projection",
];
#[rustfmt::skip]
const SCOPES: &[&str] = &[
    "application", "workspace", "team", "session", "thread", "run", "turn", "message", "part", "task", "agent", "tool_call",
    "action_request", "artifact", "evidence",
];
#[rustfmt::skip]
const SURFACES: &[&str] = &[
    "composer", "conversation", "inline_process", "runtime_status", "tool_ui", "hitl", "task_capsule", "artifact_workspace",
    "timeline_evidence", "session_tabs", "diagnostics", "team_roster", "work_board", "delegation_graph", "handoff_lane",
    "worker_notifications", "review_lane", "teammate_transcript", "background_teammate", "remote_teammate", "team_policy",
];
#[rustfmt::skip]
const PERSISTENCES: &[&str] = &[
    "ephemeral_live", "transcript", "snapshot", "archive", "artifact_store", "evidence_pack", "diagnostics_log", "ui_local",
];
#[rustfmt::skip]
const CONTROLS: &[&str] = &[
    "send", "queue", "steer", "interrupt", "delegate", "assign", "continue_agent", "wait", "stop", "close", "request_review",
    "approve", "reject", "answer", "edit", "retry", "rollback", "export", "open_detail",
];
#[rustfmt::skip]
const TOPOLOGIES: &[&str] = &[
    "solo_run", "coordinator_team", "parallel_workers", "specialist_handoff", "review_team", "human_agent_board",
    "background_teammate", "remote_teammate",
];
#[rustfmt::skip]
const EVENT_CLASSES: &[&str] = &[
    "session.opened", "session.hydrated", "session.updated", "session.closed", "run.started", "run.status", "run.finished",
    "run.failed", "plan.delta", "plan.final", "text.delta", "text.final", "reasoning.delta", "reasoning.summary", "tool.started",
    "tool.args", "tool.progress", "tool.output.delta", "tool.result", "tool.failed", "action.required", "action.resolved",
    "queue.changed", "task.changed", "agent.changed", "agent.spawned", "agent.completed", "agent.handoff", "team.changed",
    "worker.notification", "review.requested", "review.completed", "context.changed", "context.compaction.started",
    "context.compaction.completed", "permission.changed", "artifact.created", "artifact.updated", "artifact.preview.ready",
    "artifact.version.created", "artifact.diff.ready", "artifact.export.started", "artifact.export.completed", "artifact.failed",
    "artifact.deleted", "artifact.changed", "evidence.changed", "state.snapshot", "state.delta", "messages.snapshot",
    "diagnostic.changed", "metric.changed",
];

/// The event types of the server's own, which the seed does not have.
const OWN_CLASSES: &[&str] = &["control.changed", "action.reminded", "action.escalated", "feedback.given"];

/// Phase, and its typical events.
const PHASES: &[(&str, &[&str])] = &[
    ("draft", &["state.delta"]),
    ("submitted", &["run.started", "queue.changed"]),
    ("accepted", &["run.status"]),
    ("routing", &["run.status", "task.changed", "team.changed"]),
    ("preparing", &["run.status", "context.changed"]),
    ("planning", &["plan.delta", "plan.final"]),
    ("reasoning", &["reasoning.delta", "reasoning.summary"]),
    ("acting", &["tool.*", "task.changed", "agent.changed"]),
    ("waiting", &["action.required", "queue.changed", "run.status", "agent.changed"]),
    ("reviewing", &["review.requested", "review.completed", "evidence.changed"]),
    ("producing", &["text.delta", "artifact.*", "evidence.changed"]),
    ("reconciling", &["text.final", "messages.snapshot"]),
    ("completed", &["run.finished", "tool.result", "agent.completed"]),
    ("failed", &["run.failed", "tool.failed", "artifact.failed", "agent.completed"]),
    ("cancelled", &["run.finished", "task.changed"]),
    ("interrupted", &["run.finished", "state.snapshot", "agent.handoff"]),
    ("archived", &["messages.snapshot", "evidence.changed", "worker.notification"]),
    ("hydrating", &["session.hydrated", "messages.snapshot"]),
];

/// Event types whose default phase differs from the table's phases, and the reason.
const OTHER_PHASES: &[(&str, &str, &str)] = &[
    ("run.started", "accepted", "Standard event classes: \"Runtime execution boundary started or was accepted.\""),
    ("run.status", "acting", "no phase of the table is typical; the sources' status events mean that the run is active"),
    ("state.snapshot", "unknown", "an application's state has no phase; `interrupted` is for bookmarks, `draft` for composers"),
    ("state.delta", "unknown", "an application's state has no phase; `interrupted` is for bookmarks, `draft` for composers"),
];

/// Owner, and the event types of its examples.
const OWNED: &[(&str, &[&str])] = &[
    ("runtime", &["run.*", "queue.changed", "state.*"]),
    ("model", &["text.*", "reasoning.*", "plan.*", "tool.args", "tool.started"]),
    ("tool", &["tool.*", "tool.started"]),
    ("action", &["action.*"]),
    ("artifact", &["artifact.*"]),
    ("evidence", &["evidence.changed", "review.*"]),
    ("context", &["context.*"]),
    ("policy", &["permission.changed"]),
    ("task", &["task.changed", "worker.notification"]),
    ("agent", &["agent.*", "team.changed", "worker.notification"]),
    ("session", &["session.*", "messages.snapshot"]),
    ("diagnostics", &["diagnostic.changed", "metric.changed"]),
];

/// Surface, and the event types of its responsibility ("Surface", "Message part taxonomy", "Team workbench contract").
const SHOWN: &[(&str, &[&str])] = &[
    ("composer", &["queue.changed"]),
    ("conversation", &["text.*", "messages.snapshot"]),
    ("inline_process", &["reasoning.*", "plan.*", "context.*"]),
    ("runtime_status", &["run.*"]),
    ("tool_ui", &["tool.*"]),
    ("hitl", &["action.*"]),
    ("task_capsule", &["task.changed"]),
    ("artifact_workspace", &["artifact.*"]),
    ("timeline_evidence", &["evidence.changed"]),
    ("session_tabs", &["session.*"]),
    ("diagnostics", &["diagnostic.changed", "metric.changed"]),
    ("team_roster", &["agent.spawned", "agent.changed", "agent.completed", "team.changed"]),
    ("handoff_lane", &["agent.handoff"]),
    ("worker_notifications", &["worker.notification"]),
    ("review_lane", &["review.*"]),
    ("team_policy", &["permission.changed"]),
    // The seed has no surface for an application's own state; its schema calls activities without an owner `custom`.
    ("custom", &["state.*"]),
];

/// Scope, and the event types that concern such an entity and no smaller one.
const TOUCHED: &[(&str, &[&str])] = &[
    ("team", &["team.changed"]),
    ("session", &["session.*", "queue.changed", "context.compaction.*"]),
    ("thread", &["state.*", "messages.snapshot"]),
    ("run", &["run.*", "permission.changed", "diagnostic.changed", "metric.changed"]),
    ("turn", &["plan.*", "context.changed"]),
    ("message", &["text.final"]),
    ("part", &["text.delta", "reasoning.*"]),
    ("task", &["task.changed"]),
    ("agent", &["agent.*", "worker.notification"]),
    ("tool_call", &["tool.*"]),
    ("action_request", &["action.*"]),
    ("artifact", &["artifact.*"]),
    ("evidence", &["evidence.changed", "review.*"]),
];

/// Persistence, and the event types that are useful for as long.
const KEPT: &[(&str, &[&str])] = &[
    (
        "ephemeral_live",
        &["run.status", "plan.delta", "text.delta", "reasoning.delta", "tool.args", "tool.progress", "tool.output.delta"],
    ),
    ("transcript", &["text.final", "messages.snapshot"]),
    (
        "snapshot",
        &[
            "session.*",
            "run.started",
            "action.required",
            "queue.changed",
            "task.changed",
            "agent.changed",
            "agent.spawned",
            "team.changed",
            "context.changed",
            "state.*",
        ],
    ),
    (
        "archive",
        &[
            "run.finished",
            "run.failed",
            "plan.final",
            "reasoning.summary",
            "tool.started",
            "tool.result",
            "tool.failed",
            "action.resolved",
            "agent.completed",
            "agent.handoff",
            "worker.notification",
            "context.compaction.*",
            "permission.changed",
        ],
    ),
    ("artifact_store", &["artifact.*"]),
    ("evidence_pack", &["evidence.changed", "review.*"]),
    ("diagnostics_log", &["diagnostic.changed", "metric.changed"]),
];

/// Part, its owners, and its default surfaces.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("user_text", "session or runtime", &["conversation"]),
    ("assistant_text", "model or runtime", &["conversation"]),
    ("reasoning_summary", "model or runtime", &["inline_process"]),
    ("reasoning_detail", "model or runtime", &["inline_process"]),
    ("plan", "model or runtime", &["inline_process", "hitl"]),
    ("runtime_status", "runtime", &["runtime_status"]),
    ("tool_call", "model or tool", &["tool_ui"]),
    ("tool_result", "tool", &["tool_ui"]),
    ("action_required", "action or policy", &["hitl"]),
    ("artifact_ref", "artifact", &["artifact_workspace"]),
    ("evidence_ref", "evidence", &["timeline_evidence"]),
    ("context_event", "context", &["inline_process", "diagnostics"]),
    ("agent_task", "task", &["task_capsule", "work_board"]),
    ("agent_roster", "agent", &["team_roster"]),
    ("agent_handoff", "agent", &["handoff_lane", "delegation_graph"]),
    ("worker_notification", "agent or task", &["worker_notifications", "timeline_evidence"]),
    ("remote_agent_status", "agent or task", &["remote_teammate"]),
    ("file_change", "artifact or tool", &["artifact_workspace", "timeline_evidence"]),
    ("error", "Owning system", &["runtime_status", "tool_ui", "task_capsule"]),
    ("diagnostic", "diagnostics", &["diagnostics"]),
];

/// The facts of a part of this kind, where one event type suffices for its activity.
const PART_FACTS: &[(&str, &str, &str)] = &[
    ("user_text", "text.final", "message"),
    ("assistant_text", "text.delta", "message"),
    ("reasoning_summary", "reasoning.summary", "reasoning"),
    ("reasoning_detail", "reasoning.delta", "reasoning"),
    ("plan", "plan.final", "plan"),
    ("runtime_status", "run.status", "run"),
    ("tool_call", "tool.started", "tool-call-progress"),
    ("tool_result", "tool.result", "tool-call-progress"),
    ("action_required", "action.required", "action"),
    ("artifact_ref", "artifact.created", "artifact"),
    ("evidence_ref", "evidence.changed", "evidence"),
    ("context_event", "context.changed", "context"),
    ("agent_task", "task.changed", "task"),
    ("agent_roster", "agent.spawned", "agent"),
    ("agent_handoff", "agent.handoff", "handoff"),
    ("worker_notification", "worker.notification", "worker-notification"),
    ("diagnostic", "diagnostic.changed", "diagnostics"),
];

/// State, and the facts that lead to it.
fn lifecycle() -> Vec<(&'static str, Vec<Value>)> {
    let tool = |class: &str, members: Value| {
        let mut fact = fact(class, json!({"toolCallId": "c", "audience": "user", "payload": members}));
        if class == "run.finished" {
            fact = self::fact(class, json!({"phase": "cancelled"}));
        }
        fact
    };
    let started = || tool("tool.started", json!({"toolName": "t"}));
    let mut stopped = tool("tool.failed", json!({"error": {"message": "stopped"}}));
    stopped["phase"] = json!("cancelled");
    vec![
        ("input-streaming", vec![tool("tool.args", json!({"inputText": "{"}))]),
        ("input-available", vec![tool("tool.args", json!({"input": {}}))]),
        ("running", vec![started()]),
        ("progress", vec![started(), tool("tool.progress", json!({"progress": 0.5}))]),
        ("progress", vec![started(), tool("tool.output.delta", json!({"text": "x"}))]),
        ("output-available", vec![started(), tool("tool.result", json!({"output": 1}))]),
        ("output-error", vec![started(), tool("tool.failed", json!({"error": {"message": "no"}}))]),
        ("cancelled", vec![started(), stopped]),
        ("cancelled", vec![started(), tool("run.finished", json!({}))]),
    ]
}

/// Action type, and its owners.
const ACTIONS: &[(&str, &str)] = &[
    ("tool_approval", "policy or runtime"),
    ("plan_decision", "runtime"),
    ("teammate_plan_decision", "agent or runtime"),
    ("structured_input", "action"),
    ("clarification", "runtime"),
    ("permission_grant", "policy"),
    ("delegated_permission", "policy or runtime"),
    ("credential_request", "policy or secret store"),
    ("artifact_review", "artifact or evidence"),
];

const CHECKLIST: &[&str] = &[
    "Listener binding occurs before submit.",
    "Runtime accepted/routing/preparing status can render before first text.",
    "Active message parts render in event/part order.",
    "Running reasoning and tools remain visible; completed process collapses into summaries.",
    "Final answer text remains clean and is reconciled without duplication.",
    "Tool input/progress/output/error state does not enter final answer text.",
    "Human-in-the-loop actions use stable ids and controlled write APIs.",
    "Queue and steer are visually and semantically distinct.",
    "Artifact body lives in Artifact Workspace, not in the transcript by default.",
    "Evidence, replay, review, and citations link to evidence facts.",
    "Multi-agent and background tasks use task/agent/team facts, not assistant prose.",
    "Team topology is visible when the runtime exposes coordinator, worker, handoff, board, background, review, or remote-agent facts.",
    "Worker notifications are distinguishable from real user messages and coordinator final text.",
    "Parent/child session/thread/task ids survive hydration, replay, evidence export, and transcript zoom.",
    "Delegated approvals identify the teammate/subagent that requested the action.",
    "Context and compaction are surfaced as facts or boundaries, not hidden text mutations.",
    "Missing facts render honest fallback states.",
    "Old sessions hydrate progressively and safely ignore stale results.",
    "Diagnostics and metrics stay outside normal conversation text.",
];

/// Task taxonomy item: its fact, its activity, and its default surfaces.
fn items() -> Vec<(&'static str, Value, &'static str, &'static [&'static str])> {
    let task = |members: Value| fact("task.changed", json!({"taskId": "t", "payload": members}));
    let agent = |class: &str, members: Value| fact(class, json!({"agentId": "g", "payload": members}));
    vec![
        ("Queued turn", task(json!({"status": "queued", "runtimeEntity": "agent_turn"})), "task", &["task_capsule"]),
        ("Work item", task(json!({"status": "open", "runtimeEntity": "work_item"})), "task", &["work_board"]),
        (
            "Background job",
            task(json!({"status": "sleeping", "runtimeEntity": "automation_job"})),
            "task",
            &["task_capsule", "background_teammate"],
        ),
        (
            "Teammate/subagent",
            agent("agent.spawned", json!({"status": "running"})),
            "agent",
            &["team_roster", "task_capsule", "session_tabs"],
        ),
        (
            "Coordinator team",
            fact("team.changed", json!({"payload": {"teamId": "m"}})),
            "team",
            &["team_roster", "delegation_graph", "worker_notifications"],
        ),
        ("Specialist handoff", agent("agent.handoff", json!({"handoffId": "h"})), "handoff", &["handoff_lane"]),
        ("Review teammate", fact("review.requested", json!({"payload": {"reviewId": "v"}})), "review", &["review_lane"]),
        (
            "Remote teammate task",
            task(json!({"status": "working", "runtimeEntity": "external_task"})),
            "task",
            &["remote_teammate"],
        ),
    ]
}

fn matches(pattern: &str, class: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == class, |family| class.starts_with(family))
}

/// Returns the rows whose event types match, by the most specific pattern.
///
/// An exact name precedes a family.
fn matching_rows<'t>(table: &[(&'t str, &[&str])], class: &str) -> Vec<&'t str> {
    let named: Vec<_> = table.iter().filter(|(_, of)| of.contains(&class)).map(|(name, _)| *name).collect();
    if !named.is_empty() {
        return named;
    }
    table.iter().filter(|(_, of)| of.iter().any(|pattern| matches(pattern, class))).map(|(name, _)| *name).collect()
}

/// Returns every event type of the seed with its default in one dimension.
fn defaults(of: fn(&proscenium::model::taxonomy::EventDefaults) -> &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    EVENT_TYPES
        .iter()
        .filter(|(class, _)| !OWN_CLASSES.contains(&class.as_str()))
        .map(move |(class, row)| (class.as_str(), of(row)))
}

#[test]
fn every_dimension_has_exactly_the_seed_s_names_in_order_and_unknown() {
    let phases: Vec<&str> = PHASES.iter().map(|(name, _)| *name).collect();
    let parts: Vec<&str> = PARTS.iter().map(|(name, ..)| *name).collect();
    let actions: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
    for (of, names, seed, more) in [
        ("owner", Owner::NAMES, OWNERS, &["unknown"][..]),
        ("scope", Scope::NAMES, SCOPES, &["unknown"]),
        ("phase", Phase::NAMES, &phases, &["unknown"]),
        ("surface", Surface::NAMES, SURFACES, &["custom", "unknown"]),
        ("persistence", Persistence::NAMES, PERSISTENCES, &["unknown"]),
        ("control", Control::NAMES, CONTROLS, &[]),
        ("topology", Topology::NAMES, TOPOLOGIES, &[]),
        ("event class", EventType::NAMES, EVENT_CLASSES, OWN_CLASSES),
        ("part", PartKind::NAMES, &parts, &[]),
        ("action type", ActionKind::NAMES, &actions, &[]),
    ] {
        assert_eq!(names, [seed, more].concat(), "{of}");
    }
}

#[test]
fn every_event_type_has_the_seed_s_owner_scope_phase_surface_and_persistence() {
    let mut wrong = Vec::new();
    let mut check = |dimension: &str, class: &str, default: &str, allowed: &[&str]| {
        if !allowed.contains(&default) {
            wrong.push(format!("{class}: {dimension} is {default}, the seed has {allowed:?}"));
        }
    };
    for (class, owner) in defaults(|row| row.owner.as_str()) {
        check("owner", class, owner, &matching_rows(OWNED, class));
    }
    for (class, scope) in defaults(|row| row.scope.as_str()) {
        check("scope", class, scope, &matching_rows(TOUCHED, class));
    }
    for (class, surface) in defaults(|row| row.surface.as_str()) {
        check("surface", class, surface, &matching_rows(SHOWN, class));
    }
    for (class, persistence) in defaults(|row| row.persistence.as_str()) {
        check("persistence", class, persistence, &matching_rows(KEPT, class));
    }
    for (class, phase) in defaults(|row| row.phase.as_str()) {
        let typical = matching_rows(PHASES, class);
        let excepted: Vec<&str> = OTHER_PHASES.iter().filter(|(of, ..)| *of == class).map(|(_, phase, _)| *phase).collect();
        match (excepted.is_empty(), typical.is_empty()) {
            (false, _) => check("phase", class, phase, &excepted),
            (true, false) => check("phase", class, phase, &typical),
            // The seed defines no phase for an event type that no phase lists.
            (true, true) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_exception_differs_from_the_seed() {
    for (class, phase, why) in OTHER_PHASES {
        assert!(!matching_rows(PHASES, class).contains(phase), "{class}: {why}");
    }
}

#[test]
fn every_action_type_has_an_owner_of_the_seed() {
    for (kind, owners) in ACTIONS {
        let owner = ActionKind::from(*kind).owner();
        assert!(owners.split(" or ").any(|name| name == owner.as_str()), "{kind}: {owner}, the seed has {owners}");
    }
}

#[test]
fn the_contract_has_the_seed_s_tool_states_action_types_parts_and_topologies() {
    let documents = schemas();
    let schema = |kind: &str| &documents.iter().find(|(of, _)| *of == kind).expect("the schema exists").1;
    let states: Vec<&str> = lifecycle().into_iter().map(|(state, _)| state).collect();
    let mut states: Vec<&str> = states.into_iter().collect();
    states.dedup();
    assert_eq!(schema("tool-call-progress")["properties"]["state"]["enum"], json!(states));
    let actions: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(schema("action")["properties"]["kind"]["anyOf"][0]["enum"], json!(actions));
    let parts: Vec<&str> = PARTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(schema("message")["properties"]["parts"]["items"]["properties"]["kind"]["anyOf"][0]["enum"], json!(parts));
    assert_eq!(schema("team")["properties"]["topology"]["anyOf"][0]["enum"], json!(TOPOLOGIES));
}

#[test]
fn the_log_check_covers_every_validation_point_of_the_seed() {
    let points: Vec<&str> = DEMANDS.iter().filter(|demand| demand.origin == "checklist").map(|demand| demand.sentence).collect();
    assert_eq!(points, CHECKLIST);
}

async fn read_activity(client: &Client, run: &str, kind: &str) -> Value {
    let all = client.get(&format!("/v1/runs/{run}/activities?audience=internal")).await.ok();
    let activities = all["activities"].as_array().unwrap();
    activities.iter().find(|one| one["activityType"] == kind).unwrap_or_else(|| panic!("{run} has no {kind}: {all}")).clone()
}

#[tokio::test]
async fn every_part_s_facts_appear_on_a_default_surface_of_the_part() {
    let client = start_local().await;
    for (part, class, activity) in PART_FACTS {
        let (_, _, surfaces) = PARTS.iter().find(|(name, ..)| name == part).expect("the seed has the part");
        let ids = json!({"messageId": "m", "partId": "p", "toolCallId": "c", "actionId": "a", "artifactId": "f", "evidenceId": "e",
            "taskId": "t", "payload": {"text": "x", "role": if *part == "user_text" { "user" } else { "assistant" }, "message": "m"}});
        let mut fact = fact(class, ids);
        if class.starts_with("agent.") || class.starts_with("worker.") {
            fact["agentId"] = json!("g");
        }
        let run = format!("of-{part}");
        client.append(&run, &[fact]).await;
        let surface = read_activity(&client, &run, activity).await["surface"].clone();
        assert!(surfaces.contains(&surface.as_str().unwrap()), "{part}: {surface}, the seed has {surfaces:?}");
    }
}

#[tokio::test]
async fn every_item_of_the_task_taxonomy_appears_on_its_default_surface() {
    let client = start_local().await;
    for (n, (item, fact, activity, surfaces)) in items().into_iter().enumerate() {
        let run = format!("r{n}");
        client.append(&run, &[fact]).await;
        let surface = read_activity(&client, &run, activity).await["surface"].clone();
        assert!(surfaces.contains(&surface.as_str().unwrap()), "{item}: {surface}, the seed has {surfaces:?}");
    }
}

#[tokio::test]
async fn every_tool_event_leads_to_the_seed_s_state() {
    let client = start_local().await;
    for (n, (state, facts)) in lifecycle().into_iter().enumerate() {
        let run = format!("r{n}");
        client.append(&run, &facts).await;
        let last = facts.last().unwrap();
        assert_eq!(read_activity(&client, &run, "tool-call-progress").await["content"]["state"], state, "{last}");
    }
}

#[tokio::test]
async fn every_message_role_has_a_part_kind_of_the_seed() {
    let client = start_local().await;
    for role in ["user", "assistant", "system", "developer", "tool", "notification", "critic"] {
        for class in ["text.delta", "text.final", "messages.snapshot"] {
            let run = format!("{role}-{class}");
            let fact = match class {
                "messages.snapshot" => {
                    let message = json!({"messageId": "m", "role": role, "parts": [{"partId": "p", "text": "x"}]});
                    fact(class, json!({"payload": {"mode": "window", "messages": [message]}}))
                }
                _ => fact(class, json!({"messageId": "m", "partId": "p", "payload": {"role": role, "text": "x"}})),
            };
            client.append(&run, &[fact]).await;
            let message = read_activity(&client, &run, "message").await;
            let kind = message["content"]["parts"][0]["kind"].as_str().unwrap();
            assert!(PARTS.iter().any(|(name, ..)| *name == kind), "{role} by {class}: {kind}");
            assert_eq!(kind == "user_text", role == "user", "{role}");
            assert_eq!(kind == "assistant_text", ["assistant", "critic"].contains(&role), "{role}");
        }
    }
}
