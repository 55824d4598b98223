//! `reasoning` and `plan`: the model's thoughts and intentions beside its messages.
//!
//! One activity per part.

use super::activity_set::{Activity, Edit, joined, text};
use super::envelope_view::EnvelopeView;
use super::{FoldState, carry, message_key};
use crate::model::{EventType, PartId, Surface};
use serde_json::Value;

pub(super) fn reasoning(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::ReasoningDelta => delta("reasoning", envelope, fold),
        EventType::ReasoningSummary => finalize("reasoning", envelope, fold),
        _ => {}
    }
}

pub(super) fn plan(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::PlanDelta => delta("plan", envelope, fold),
        EventType::PlanFinal => finalize("plan", envelope, fold),
        _ => {}
    }
}

/// The activity id of the message that the thought belongs to.
fn message(envelope: &EnvelopeView, fold: &FoldState) -> Option<String> {
    Some(message_key(fold.teammate(envelope), envelope.ids.message.as_ref()?.as_str()))
}

/// The activity id `messageId/partId`, with the teammate's prefix if it has one.
fn id(envelope: &EnvelopeView, fold: &FoldState) -> Option<String> {
    Some(format!("{}/{}", message(envelope, fold)?, envelope.ids.part.as_ref()?))
}

/// Sets the message and the part, which the id only contains joined.
fn set_message_ids(edit: &mut Edit<'_>, envelope: &EnvelopeView, message: &str) {
    if edit.get("messageId").is_none() {
        edit.set("messageId", message);
        edit.set_some("partId", envelope.ids.part.as_ref().map(PartId::as_str));
    }
}

fn delta(kind: &str, envelope: &EnvelopeView, fold: &mut FoldState) {
    let (Some(id), Some(message)) = (id(envelope, fold), message(envelope, fold)) else { return };
    let mut edit = fold.activities.open(kind, &id, Surface::InlineProcess, envelope.ids.agent.as_ref());
    set_message_ids(&mut edit, envelope, &message);
    edit.set_str("status", "streaming");
    edit.append("text", envelope.text("text").unwrap_or_default());
    carry::clipped_text(envelope, &mut edit);
}

fn finalize(kind: &str, envelope: &EnvelopeView, fold: &mut FoldState) {
    let whole = envelope.whole_text();
    let Some(message) = message(envelope, fold) else { return };
    let ids = match id(envelope, fold) {
        Some(id) => vec![id],
        None => streaming_ids_of(kind, &message, fold),
    };
    for id in &ids {
        let mut edit = fold.activities.open(kind, id, Surface::InlineProcess, envelope.ids.agent.as_ref());
        set_message_ids(&mut edit, envelope, &message);
        // A final text without a part covers all parts, so only a single part can take it.
        match whole.filter(|_| ids.len() == 1) {
            Some(whole) => edit.set_fact_text("text", whole),
            None if edit.get("text").is_none() => edit.set("text", text("")),
            None => {}
        }
        for member in ["plan", "steps", "entries", "summary"] {
            edit.set_some(member, envelope.get(member).filter(|_| !envelope.is_withheld()).cloned());
        }
        edit.set_some("withheld", envelope.is_withheld().then_some(true));
        edit.set_str("status", "complete");
    }
}

/// The streaming thoughts of a message: an end without a part ends all of them.
fn streaming_ids_of(kind: &str, message: &str, fold: &FoldState) -> Vec<String> {
    let member = |activity: &Activity, member: &str, is: &str| activity.content.get(member).and_then(Value::as_str) == Some(is);
    let ids = fold.activities.ids(kind, |a| member(a, "messageId", message) && member(a, "status", "streaming"));
    match ids.is_empty() {
        // Nothing was streamed: the text arrives complete, under an id of its own.
        true => vec![format!("{message}/{kind}")],
        false => ids.into_iter().map(Into::into).collect(),
    }
}

/// Applies the repair of a message to its thoughts, and returns the named parts that are thoughts.
///
/// Thoughts that the repair does not name are emptied and interrupted; named ones get its text.
pub(super) fn repair(fold: &mut FoldState, message: &str, named: &[Value]) -> Vec<String> {
    let member = |thought: &Activity, member: &str| thought.content.get(member).and_then(Value::as_str).map(str::to_owned);
    let mut thoughts = Vec::new();
    for kind in ["reasoning", "plan"] {
        for id in fold.activities.ids(kind, |thought| member(thought, "messageId").as_deref() == Some(message)) {
            let part = fold.activities.get(kind, &id).and_then(|thought| member(thought, "partId")).unwrap_or_default();
            let mut edit = fold.activities.edit(kind, &id).expect("the id was listed above");
            match named.iter().find(|named| named["partId"] == part.as_str()) {
                Some(named) => {
                    edit.set_text("text", joined(named.get("text")));
                    edit.set_str("status", "complete");
                    thoughts.push(part);
                }
                None => {
                    edit.set("text", text(""));
                    edit.set_str("status", "interrupted");
                }
            }
        }
    }
    thoughts
}

/// Interrupts the streaming reasoning, because the run has ended.
pub(super) fn interrupt_reasoning(fold: &mut FoldState) {
    interrupt_all("reasoning", fold);
}

/// Interrupts the streaming plans, because the run has ended.
pub(super) fn interrupt_plans(fold: &mut FoldState) {
    interrupt_all("plan", fold);
}

fn interrupt_all(kind: &str, fold: &mut FoldState) {
    for id in fold.activities.ids(kind, |a| a.content.get("status").and_then(Value::as_str) == Some("streaming")) {
        fold.activities.edit(kind, &id).expect("the id was listed above").set_str("status", "interrupted");
    }
}
