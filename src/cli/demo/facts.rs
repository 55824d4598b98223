//! The facts that several handlers of controls send.

use serde_json::{Value, json};

/// Returns the first object with the members of the second added or replaced.
pub fn merge(mut base: Value, more: Value) -> Value {
    for (member, value) in more.as_object().into_iter().flatten() {
        base[member] = value.clone();
    }
    base
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

/// Builds a citation or another piece of evidence whose content is elsewhere.
pub fn evidence(id: &str, agent: &str, kind: &str, title: &str, summary: &str, href: &str) -> Value {
    json!({
        "type": "evidence.changed", "evidenceId": id, "agentId": agent, "refs": [{ "rel": "source", "href": href }],
        "payload": { "kind": kind, "title": title, "summary": summary, "status": "verified", "source": href },
    })
}
