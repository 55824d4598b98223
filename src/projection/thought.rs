//! `reasoning` and `plan`: what the model thinks and means to do, beside what it says. One activity a part.

use super::Scene;
use super::message::key;
use super::seen::Seen;
use super::stage::{Activity, Edit, joined, text};
use crate::model::{EventType, PartId, Surface};
use serde_json::Value;

pub(super) fn reasoning(seen: &Seen, scene: &mut Scene) {
    match seen.class {
        EventType::ReasoningDelta => delta("reasoning", seen, scene),
        EventType::ReasoningSummary => is_final("reasoning", seen, scene),
        _ => {}
    }
}

pub(super) fn plan(seen: &Seen, scene: &mut Scene) {
    match seen.class {
        EventType::PlanDelta => delta("plan", seen, scene),
        EventType::PlanFinal => is_final("plan", seen, scene),
        _ => {}
    }
}

/// The activity id of the message that the thought belongs to.
fn message(seen: &Seen, scene: &Scene) -> Option<String> {
    Some(key(scene.teammate(seen), seen.ids.message.as_ref()?.as_str()))
}

/// `messageId/partId`; a teammate's under the teammate's name.
fn id(seen: &Seen, scene: &Scene) -> Option<String> {
    Some(format!("{}/{}", message(seen, scene)?, seen.ids.part.as_ref()?))
}

/// Says of which message and part it is, beside the id that is made of both.
fn name(edit: &mut Edit<'_>, seen: &Seen, message: &str) {
    if edit.get("messageId").is_none() {
        edit.set("messageId", message);
        edit.set_some("partId", seen.ids.part.as_ref().map(PartId::as_str));
    }
}

fn delta(kind: &str, seen: &Seen, scene: &mut Scene) {
    let (Some(id), Some(message)) = (id(seen, scene), message(seen, scene)) else { return };
    let mut edit = scene.stage.open(kind, &id, Surface::InlineProcess, seen.ids.agent.as_ref());
    name(&mut edit, seen, &message);
    edit.say("status", "streaming");
    edit.append("text", seen.text("text").unwrap_or_default());
}

fn is_final(kind: &str, seen: &Seen, scene: &mut Scene) {
    let whole = seen.text("text").filter(|_| !seen.is_withheld());
    let Some(message) = message(seen, scene) else { return };
    let ids = match id(seen, scene) {
        Some(id) => vec![id],
        None => open_of_message(kind, &message, scene),
    };
    for id in &ids {
        let mut edit = scene.stage.open(kind, id, Surface::InlineProcess, seen.ids.agent.as_ref());
        name(&mut edit, seen, &message);
        // Without a part it covers them all: only a single one can take its text.
        match whole.filter(|_| ids.len() == 1) {
            Some(whole) => edit.set_text("text", whole),
            None if edit.get("text").is_none() => edit.set("text", text("")),
            None => {}
        }
        for member in ["plan", "steps", "summary"] {
            edit.set_some(member, seen.get(member).filter(|_| !seen.is_withheld()).cloned());
        }
        edit.set_some("withheld", seen.is_withheld().then_some(true));
        edit.say("status", "complete");
    }
}

/// What of a message's thoughts is still open: an end without a part ends all of it.
fn open_of_message(kind: &str, message: &str, scene: &Scene) -> Vec<String> {
    let member = |activity: &Activity, member: &str, is: &str| activity.content.get(member).and_then(Value::as_str) == Some(is);
    let ids = scene.stage.ids(kind, |a| member(a, "messageId", message) && member(a, "status", "streaming"));
    match ids.is_empty() {
        // Never streamed: it is there as a whole, under a part of its own.
        true => vec![format!("{message}/{kind}")],
        false => ids.into_iter().map(Into::into).collect(),
    }
}

/// A message was repaired: thoughts of it that are not named any more are emptied and closed, and those that are say what is
/// told of them. Gives the parts that are thoughts.
pub(super) fn repair(scene: &mut Scene, message: &str, named: &[Value]) -> Vec<String> {
    let member = |thought: &Activity, member: &str| thought.content.get(member).and_then(Value::as_str).map(str::to_owned);
    let mut thoughts = Vec::new();
    for kind in ["reasoning", "plan"] {
        for id in scene.stage.ids(kind, |thought| member(thought, "messageId").as_deref() == Some(message)) {
            let part = scene.stage.get(kind, &id).and_then(|thought| member(thought, "partId")).unwrap_or_default();
            let mut edit = scene.stage.edit(kind, &id).expect("just listed");
            match named.iter().find(|named| named["partId"] == part.as_str()) {
                Some(named) => {
                    edit.set_text("text", joined(named.get("text")));
                    edit.say("status", "complete");
                    thoughts.push(part);
                }
                None => {
                    edit.set("text", text(""));
                    edit.say("status", "interrupted");
                }
            }
        }
    }
    thoughts
}

/// The run has ended: nobody thinks any more.
pub(super) fn interrupt_reasoning(scene: &mut Scene) {
    interrupt_all("reasoning", scene);
}

/// The run has ended: no plan is being made any more.
pub(super) fn interrupt_plans(scene: &mut Scene) {
    interrupt_all("plan", scene);
}

fn interrupt_all(kind: &str, scene: &mut Scene) {
    for id in scene.stage.ids(kind, |a| a.content.get("status").and_then(Value::as_str) == Some("streaming")) {
        scene.stage.edit(kind, &id).expect("just listed").say("status", "interrupted");
    }
}
