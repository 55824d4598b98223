//! The facts that several agents send: identities, statuses and work items.

use super::{PRODUCT, TEAM, run};
use serde_json::{Value, json};

/// A member of the team.
pub struct Member {
    pub agent: &'static str,
    pub name: &'static str,
    pub role: &'static str,
    pub model: &'static str,
    /// The id of its task, and the reason why the coordinator started it.
    pub task: &'static str,
    pub reason: &'static str,
    /// The permission mode.
    pub mode: &'static str,
    pub topology: &'static str,
}

/// The members of the team, without the coordinator.
#[rustfmt::skip]
pub const MEMBERS: &[Member] = &[
    Member { agent: "researcher", name: "Rui", role: "researcher", model: "scripted-large", task: "research", reason: "reads the commits and the issues since 4.1", mode: "read", topology: "parallel_workers" },
    Member { agent: "writer", name: "Wanda", role: "writer", model: "scripted-large", task: "draft", reason: "writes the page", mode: "plan", topology: "parallel_workers" },
    Member { agent: "profiler", name: "Pavel", role: "profiler", model: "scripted-small", task: "benchmark", reason: "measures the start-up time for the page", mode: "read", topology: "parallel_workers" },
    Member { agent: "editor", name: "Edith", role: "reviewer", model: "scripted-large", task: "review", reason: "reviews the page before publication", mode: "read", topology: "review_team" },
    Member { agent: "publisher", name: "Pia", role: "publisher", model: "scripted-small", task: "publish", reason: "puts the page on the site", mode: "ask", topology: "coordinator_team" },
];

/// Returns the first object with the members of the second added or replaced.
pub fn merge(mut base: Value, more: Value) -> Value {
    for (member, value) in more.as_object().into_iter().flatten() {
        base[member] = value.clone();
    }
    base
}

/// Builds the opening of a child session, for that session's own log.
pub(super) fn session_opened(name: &str, role: &str, session: &str) -> Value {
    let title = format!("{name} ({role}) for {PRODUCT}");
    json!({ "type": "session.opened", "parentSessionId": session, "payload": { "title": title } })
}

/// Builds the facts of a new member: its parent, its task and its permissions.
pub(super) fn spawned(member: &Member, session: &str) -> [Value; 2] {
    let policy = json!({ "mode": member.mode, "sandbox": "workspace", "budgetUsd": 0.5 });
    let child = format!("{session}-{}", member.agent);
    // The reviewer works in the coordinator's run; every other member has its own run.
    let transcript = match member.role {
        "reviewer" => format!("/v1/runs/{}/activities?surfaces=teammate_transcript", run(session, "release")),
        _ => format!("/v1/sessions/{child}/window"),
    };
    let ids = json!({
        "agentId": member.agent, "taskId": member.task, "sessionId": child, "threadId": format!("{child}-main"),
        "parentSessionId": session, "parentThreadId": format!("{session}-main"),
    });
    let spawned = json!({
        "type": "agent.spawned", "topology": member.topology,
        "payload": {
            "agentName": member.name, "teamName": TEAM, "role": member.role, "source": "local", "model": member.model,
            "policy": policy, "runtimeEntity": "subagent_turn", "runtimeStatus": "idle", "latestTurnStatus": "queued",
            "queuedTurnCount": 0, "spawnReason": member.reason, "transcriptRef": transcript,
        },
    });
    let permitted = json!({
        "type": "permission.changed", "agentId": member.agent, "parentSessionId": session,
        "payload": {
            "mode": member.mode, "sandbox": "workspace", "network": "allow-list", "requiresApproval": member.mode == "ask",
        },
    });
    [merge(spawned, ids), permitted]
}

/// Builds the fact about the status of a member, with a short message.
pub fn agent_status(agent: &str, status: &str, message: &str) -> Value {
    let turn = match status {
        "idle" | "sleeping" | "completed" => "completed",
        "failed" | "killed" => "failed",
        other => other,
    };
    let payload = json!({ "status": status, "runtimeStatus": status, "latestTurnStatus": turn, "message": message });
    json!({ "type": "agent.changed", "agentId": agent, "payload": payload })
}

/// Builds a work item of the board, or a change of one.
pub fn work_item(id: &str, change: Value) -> Value {
    let payload = merge(json!({ "runtimeEntity": "work_item", "workItemId": id }), change);
    json!({ "type": "task.changed", "taskId": id, "surface": "work_board", "topology": "human_agent_board", "payload": payload })
}

/// Builds the facts of a finished member: its report, its status and its work item.
pub(super) fn completed(agent: &str, task: &str, mut report: Value) -> Vec<Value> {
    report["status"] = "completed".into();
    report["workerNotificationId"] = format!("{agent}-{task}").into();
    let mut status = agent_status(agent, "completed", report["summary"].as_str().unwrap_or_default());
    for member in ["usage", "durationMs", "toolCount"] {
        status["payload"][member] = report[member].clone();
    }
    vec![
        json!({ "type": "worker.notification", "agentId": agent, "taskId": task, "payload": report }),
        status,
        work_item(task, json!({ "status": "done", "progress": 1, "blocker": null })),
    ]
}

/// Builds the facts of a member that the viewer stopped.
pub(super) fn stopped(agent: &str, task: &str, run: &str) -> Vec<Value> {
    let summary = "Stopped by the viewer before it finished.";
    let (id, result) = (format!("{agent}-{task}"), format!("/v1/runs/{run}"));
    let report = json!({ "workerNotificationId": id, "status": "killed", "summary": summary, "resultRef": result });
    vec![
        json!({ "type": "worker.notification", "agentId": agent, "taskId": task, "payload": report }),
        agent_status(agent, "killed", summary),
        work_item(task, json!({ "status": "blocked", "blocker": "the worker was stopped" })),
    ]
}

/// Builds the fact about a model call: its tokens, its cost and its duration.
pub(super) fn model_call(agent: &str, model: &str, tokens: [u64; 2], cost_usd: f64, duration_ms: u64) -> Value {
    let usage = json!({ "inputTokens": tokens[0], "outputTokens": tokens[1], "costUsd": cost_usd });
    let payload = json!({ "model": model, "durationMs": duration_ms, "costUsd": cost_usd, "usage": usage });
    json!({ "type": "metric.changed", "agentId": agent, "payload": payload })
}

/// Builds a citation or another piece of evidence whose content is elsewhere.
pub fn evidence(id: &str, agent: &str, kind: &str, title: &str, summary: &str, href: &str) -> Value {
    json!({
        "type": "evidence.changed", "evidenceId": id, "agentId": agent, "refs": [{ "rel": "source", "href": href }],
        "payload": { "kind": kind, "title": title, "summary": summary, "status": "verified", "source": href },
    })
}
