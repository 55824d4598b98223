//! `reasoning` and `plan`: the model's thoughts and intentions beside its messages. One activity per part.

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

/// The activity id `messageId/partId`, with the teammate's prefix if it has one.
fn id(seen: &Seen, scene: &Scene) -> Option<String> {
    Some(format!("{}/{}", message(seen, scene)?, seen.ids.part.as_ref()?))
}

/// Sets the message and the part, which the id only contains joined.
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
        // A final text without a part covers all parts, so only a single part can take it.
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

/// The streaming thoughts of a message: an end without a part ends all of them.
fn open_of_message(kind: &str, message: &str, scene: &Scene) -> Vec<String> {
    let member = |activity: &Activity, member: &str, is: &str| activity.content.get(member).and_then(Value::as_str) == Some(is);
    let ids = scene.stage.ids(kind, |a| member(a, "messageId", message) && member(a, "status", "streaming"));
    match ids.is_empty() {
        // Nothing was streamed: the text arrives complete, under an id of its own.
        true => vec![format!("{message}/{kind}")],
        false => ids.into_iter().map(Into::into).collect(),
    }
}

/// Applies the repair of a message to its thoughts, and returns the named parts that are thoughts.
///
/// Thoughts that the repair does not name are emptied and interrupted; named ones get its text.
pub(super) fn repair(scene: &mut Scene, message: &str, named: &[Value]) -> Vec<String> {
    let member = |thought: &Activity, member: &str| thought.content.get(member).and_then(Value::as_str).map(str::to_owned);
    let mut thoughts = Vec::new();
    for kind in ["reasoning", "plan"] {
        for id in scene.stage.ids(kind, |thought| member(thought, "messageId").as_deref() == Some(message)) {
            let part = scene.stage.get(kind, &id).and_then(|thought| member(thought, "partId")).unwrap_or_default();
            let mut edit = scene.stage.edit(kind, &id).expect("the id was listed above");
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

/// Interrupts the streaming reasoning, because the run has ended.
pub(super) fn interrupt_reasoning(scene: &mut Scene) {
    interrupt_all("reasoning", scene);
}

/// Interrupts the streaming plans, because the run has ended.
pub(super) fn interrupt_plans(scene: &mut Scene) {
    interrupt_all("plan", scene);
}

fn interrupt_all(kind: &str, scene: &mut Scene) {
    for id in scene.stage.ids(kind, |a| a.content.get("status").and_then(Value::as_str) == Some("streaming")) {
        scene.stage.edit(kind, &id).expect("the id was listed above").say("status", "interrupted");
    }
}
