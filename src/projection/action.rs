//! `action`: what waits for somebody's decision. Pending until its owner says otherwise: a reader's click changes nothing
//! here but `control`.

use super::Scene;
use super::seen::Seen;
use crate::model::{AgentId, EventType, Surface, TaskId, ToolCallId};
use serde_json::Value;

const KIND: &str = "action";

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    match seen.class {
        EventType::ActionRequired => required(seen, scene),
        EventType::ActionResolved => resolved(seen, scene),
        EventType::ControlChanged => control(seen, scene),
        _ if seen.ends_run() => interrupt_all(scene),
        _ => {}
    }
}

fn required(seen: &Seen, scene: &mut Scene) {
    let Some(id) = &seen.ids.action else { return };
    let mut edit = scene.stage.open(KIND, id.as_str(), Surface::Hitl, seen.ids.agent.as_ref());
    // Asked again, it waits again.
    for past in ["outcome", "value", "control", "withheld"] {
        edit.remove(past);
    }
    edit.set_some("kind", seen.text("kind"));
    edit.say("status", "pending");
    for member in ["message", "schema", "options", "risk", "input", "toolName", "expiresAt", "policyScope"] {
        edit.set_some(member, seen.get(member).cloned());
    }
    edit.set_some("toolCallId", seen.ids.tool_call.as_ref().map(ToolCallId::as_str));
    edit.set_some("agentId", seen.ids.agent.as_ref().map(AgentId::as_str));
    edit.set_some("taskId", seen.ids.task.as_ref().map(TaskId::as_str));
}

fn resolved(seen: &Seen, scene: &mut Scene) {
    let Some(id) = &seen.ids.action else { return };
    let mut edit = scene.stage.open(KIND, id.as_str(), Surface::Hitl, seen.ids.agent.as_ref());
    edit.say("status", "resolved");
    match seen.is_withheld() {
        true => edit.set("withheld", true),
        false => {
            edit.set_some("outcome", seen.text("outcome"));
            edit.set_some("value", seen.get("value").cloned());
        }
    }
    edit.remove("control");
}

/// A reader's answer is on its way to the action's owner, or got lost on it.
fn control(seen: &Seen, scene: &mut Scene) {
    let Some(id) = &seen.ids.action else { return };
    let Some(mut edit) = scene.stage.edit(KIND, id.as_str()).filter(|edit| edit.text("status") == Some("pending")) else {
        return;
    };
    match seen.text("status") {
        Some("expired") => edit.remove("control"),
        _ => edit.set("control", "submitted"),
    }
}

fn interrupt_all(scene: &mut Scene) {
    for id in scene.stage.ids(KIND, |action| action.content.get("status").and_then(Value::as_str) == Some("pending")) {
        let mut edit = scene.stage.edit(KIND, &id).expect("just listed");
        edit.say("status", "interrupted");
        edit.remove("control");
    }
}
