//! `action`: what waits for somebody's decision. Pending until its owner says otherwise: a reader's click changes nothing
//! here but `control`.

use super::seen::Seen;
use super::stage::{Activity, Edit};
use super::{Scene, carry, tool_call};
use crate::model::{EventType, Surface, ToolCallId};
use serde_json::{Map, Value, json};

pub(super) const KIND: &str = "action";

/// What a source says of the question. A member that tells of the call is also left out by `model::audience::trimmed`.
#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "title", "message", "reason", "description", "schema", "responseSchema", "options", "default", "risk", "scope", "toolName",
    "input", "safeInput", "parameters", "payload", "plan", "versionId", "artifactRefs", "evidenceRefs", "expiresAt",
    "policyScope", "parentRouting", "agentName", "teamName", "runtimeEntity", "resumeMode",
];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    match seen.class {
        EventType::ActionRequired => required(seen, scene),
        EventType::ActionResolved => resolved(seen, scene),
        EventType::ControlChanged => control(seen, scene),
        EventType::ToolStarted | EventType::ToolArgs => {
            let call = seen.ids.tool_call.as_ref().map(ToolCallId::as_str);
            if let Some(action) = call.and_then(|call| tool_call::action_of(scene, call)) {
                take_from_call(scene, &action);
            }
        }
        _ => {}
    }
}

fn text<'a>(activity: &'a Activity, member: &str) -> Option<&'a str> {
    activity.content.get(member).and_then(Value::as_str)
}

/// The call that a pending action is about.
pub(super) fn waiting_call<'s>(scene: &'s Scene, action: &str) -> Option<&'s str> {
    let action = scene.stage.get(KIND, action).filter(|action| text(action, "status") == Some("pending"))?;
    text(action, "toolCallId")
}

/// Takes the tool and its arguments from the call, where the action does not say them itself.
fn take_from_call(scene: &mut Scene, action: &str) {
    let Some(call) = waiting_call(scene, action).and_then(|call| scene.stage.get(tool_call::KIND, call)) else { return };
    let known = &scene.stage.get(KIND, action).expect("it waits").content;
    let mut taken = Vec::new();
    for (member, of_call) in [("toolName", "tool_name"), ("parameters", "input")] {
        let value = call.content.get(of_call).filter(|value| **value != "" && !known.contains_key(member));
        taken.extend(value.map(|value| (member, value.clone())));
    }
    let mut edit = scene.stage.edit(KIND, action).expect("it waits");
    for (member, value) in taken {
        edit.set(member, value);
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
    // Sources say one thing by either name.
    let schema = seen.get("responseSchema").or_else(|| seen.get("schema"));
    let same = [("schema", schema), ("responseSchema", schema), ("parameters", seen.get("input"))];
    for (member, value) in same.into_iter().filter(|(member, _)| seen.said(member).is_none()) {
        edit.set_some(member, value.cloned());
    }
    // `payload` holds a source's own members. A card needs this one: a sign-in cannot be typed as a password can.
    if let (Some(kind), None) = (seen.text("credentialKind"), seen.said("payload")) {
        edit.set("payload", json!({ "credentialKind": kind }));
    }
    // Who asks: an approval that was delegated names its teammate.
    carry::ids(seen, &mut edit, &["toolCallId", "agentId", "taskId", "artifactId", "evidenceId"]);
    carry::refs(seen, &mut edit);
    name_kind(&mut edit);
    if let Some(action) = &seen.ids.action {
        take_from_call(scene, action.as_str());
    }
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
