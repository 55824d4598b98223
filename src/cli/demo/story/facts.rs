//! The facts that several of the team send: who is who, how somebody stands, what is on the board.

use super::{PRODUCT, TEAM, run};
use serde_json::{Value, json};

/// A member of the team.
pub struct Member {
    pub agent: &'static str,
    pub name: &'static str,
    pub role: &'static str,
    pub model: &'static str,
    /// What it works on, and why it was asked.
    pub task: &'static str,
    pub reason: &'static str,
    /// What it may do.
    pub mode: &'static str,
    pub topology: &'static str,
}

/// The team, but for its coordinator.
#[rustfmt::skip]
pub const MEMBERS: &[Member] = &[
    Member { agent: "researcher", name: "Rui", role: "researcher", model: "scripted-large", task: "research", reason: "reads the commits and the issues since 4.1", mode: "read", topology: "parallel_workers" },
    Member { agent: "writer", name: "Wanda", role: "writer", model: "scripted-large", task: "draft", reason: "writes the page", mode: "plan", topology: "parallel_workers" },
    Member { agent: "profiler", name: "Pavel", role: "profiler", model: "scripted-small", task: "benchmark", reason: "measures the start-up time that the page will claim", mode: "read", topology: "parallel_workers" },
    Member { agent: "editor", name: "Edith", role: "reviewer", model: "scripted-large", task: "review", reason: "reviews the page before anybody sees it", mode: "read", topology: "review_team" },
    Member { agent: "publisher", name: "Pia", role: "publisher", model: "scripted-small", task: "publish", reason: "puts the page on the site", mode: "ask", topology: "coordinator_team" },
];

/// An object with further members, or with others in their place.
pub fn joined(mut base: Value, more: Value) -> Value {
    for (member, value) in more.as_object().into_iter().flatten() {
        base[member] = value.clone();
    }
    base
}

/// A session of somebody's own, as a child of the coordinator's: for that session's log.
pub(super) fn opened(name: &str, role: &str, session: &str) -> Value {
    let title = format!("{name} ({role}) for {PRODUCT}");
    json!({ "type": "session.opened", "parentSessionId": session, "payload": { "title": title } })
}

/// A member joins: whose child it is, what for, and what it may do.
pub(super) fn spawned(member: &Member, session: &str) -> [Value; 2] {
    let policy = json!({ "mode": member.mode, "sandbox": "workspace", "budgetUsd": 0.5 });
    let child = format!("{session}-{}", member.agent);
    // Who reviews does so in the coordinator's run; whoever else has a run of its own.
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
    [joined(spawned, ids), permitted]
}

/// How a member stands, and a word about it.
pub fn stands(agent: &str, status: &str, message: &str) -> Value {
    let turn = match status {
        "idle" | "sleeping" | "completed" => "completed",
        "failed" | "killed" => "failed",
        other => other,
    };
    let payload = json!({ "status": status, "runtimeStatus": status, "latestTurnStatus": turn, "message": message });
    json!({ "type": "agent.changed", "agentId": agent, "payload": payload })
}

/// An item on the board, or what has changed of it.
pub fn item(id: &str, what: Value) -> Value {
    let payload = joined(json!({ "runtimeEntity": "work_item", "workItemId": id }), what);
    json!({ "type": "task.changed", "taskId": id, "surface": "work_board", "topology": "human_agent_board", "payload": payload })
}

/// A member is done: how it stands, what the board says, and its report, which is no word of the user's.
pub(super) fn completed(agent: &str, task: &str, mut report: Value) -> Vec<Value> {
    report["status"] = "completed".into();
    report["workerNotificationId"] = format!("{agent}-{task}").into();
    let summary = report["summary"].clone();
    vec![
        json!({ "type": "worker.notification", "agentId": agent, "taskId": task, "payload": report }),
        stands(agent, "completed", summary.as_str().unwrap_or_default()),
        item(task, json!({ "status": "done", "progress": 1, "blocker": null })),
    ]
}

/// Somebody stopped a member.
pub(super) fn stopped(agent: &str, task: &str, run: &str) -> Vec<Value> {
    let summary = "Stopped by the viewer before it was done.";
    let (id, result) = (format!("{agent}-{task}"), format!("/v1/runs/{run}"));
    let report = json!({ "workerNotificationId": id, "status": "killed", "summary": summary, "resultRef": result });
    vec![
        json!({ "type": "worker.notification", "agentId": agent, "taskId": task, "payload": report }),
        stands(agent, "killed", summary),
        item(task, json!({ "status": "blocked", "blocker": "its worker was stopped" })),
    ]
}

/// A citation or another piece of evidence, which is kept elsewhere.
pub fn evidence(id: &str, agent: &str, kind: &str, title: &str, summary: &str, href: &str) -> Value {
    json!({
        "type": "evidence.changed", "evidenceId": id, "agentId": agent, "refs": [{ "rel": "source", "href": href }],
        "payload": { "kind": kind, "title": title, "summary": summary, "status": "verified", "source": href },
    })
}
