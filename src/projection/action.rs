//! `action`: what waits for somebody's decision. Pending until its owner says otherwise: a reader's click changes nothing
//! here but `control`.

use super::seen::Seen;
use super::stage::Edit;
use super::{Scene, carry};
use crate::model::{EventType, Surface};
use serde_json::{Map, Value};

const KIND: &str = "action";

#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "message", "reason", "schema", "options", "risk", "input", "safeInput", "toolName", "expiresAt", "policyScope", "parentRouting",
    "agentName", "teamName", "runtimeEntity", "resumeMode",
];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    match seen.class {
        EventType::ActionRequired => required(seen, scene),
        EventType::ActionResolved => resolved(seen, scene),
        EventType::ControlChanged => control(seen, scene),
        _ => {}
    }
}

fn required(seen: &Seen, scene: &mut Scene) {
    let Some(mut edit) = open(seen, scene) else { return };
    // Asked again after an answer it is another question.
    if edit.get("status").is_some_and(|status| status != "pending") {
        edit.replace(Map::new());
    }
    edit.remove("control");
    edit.say("status", "pending");
    edit.set_some("kind", seen.text("kind"));
    carry::members(seen, &mut edit, MEMBERS);
    // Who asks: an approval that was delegated names its teammate.
    carry::ids(seen, &mut edit, &["toolCallId", "agentId", "taskId"]);
    name_kind(&mut edit);
}

fn open<'s>(seen: &Seen, scene: &'s mut Scene) -> Option<Edit<'s>> {
    let id = seen.ids.action.as_ref()?;
    Some(scene.stage.open(KIND, id.as_str(), Surface::Hitl, seen.ids.agent.as_ref()))
}

fn name_kind(edit: &mut Edit<'_>) {
    if edit.get("kind").is_none() {
        edit.set("kind", "unknown");
    }
}

fn resolved(seen: &Seen, scene: &mut Scene) {
    let Some(mut edit) = open(seen, scene) else { return };
    name_kind(&mut edit);
    edit.say("status", "resolved");
    match seen.is_withheld() {
        true => edit.set("withheld", true),
        false => {
            edit.remove("withheld");
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
    let goes_on = seen.get("requeued") == Some(&Value::Bool(true));
    match seen.text("status") {
        Some("expired" | "nacked" | "failed") if !goes_on => edit.remove("control"),
        _ => edit.set("control", "submitted"),
    }
}

/// The run has ended: nobody waits for an answer any more.
pub(super) fn interrupt_all(scene: &mut Scene) {
    for id in scene.stage.ids(KIND, |action| action.content.get("status").and_then(Value::as_str) == Some("pending")) {
        let mut edit = scene.stage.edit(KIND, &id).expect("just listed");
        edit.say("status", "interrupted");
        edit.remove("control");
    }
}
