//! `reasoning` and `plan`: the model's thoughts and intentions beside its messages.
//!
//! One activity per part.

use super::activity_set::{Activity, Edit};
use super::envelope_view::{EnvelopeView, FactText};
use super::members::{
    Any, CLIPPED_ABOUT, ContentSchema, Flag, Mark, Member, Str, TEXT, Text, TextStatus, TypedContent, WITHHELD, WITHHELD_ABOUT,
    content,
};
use super::{FoldState, carry, message_key, stated};
use proscenium_model::{EventType, PartId, Surface, WordsFact};
use serde_json::Value;

content! {
    REASONING = "reasoning", "The model's reasoning, beside its messages.";
    "status": TextStatus, Always as STATUS, "Whether the text may still grow (streaming).";
    "text": Text, Always, "The text.";
    "messageId": Str, Always as MESSAGE_ID, "The activity id of the message that it accompanies.";
    "partId": Str, Sometimes as PART_ID, "The id of its part in that message.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
    "clipped": Flag, Sometimes, CLIPPED_ABOUT;
}

/// The declared members of a plan: those of reasoning.
pub static PLAN: ContentSchema =
    ContentSchema { kind: "plan", about: "A plan of the model, beside its messages.", members: REASONING.members, copied: &[] };

pub(super) fn reasoning(envelope: &EnvelopeView, fold: &mut FoldState) {
    if matches!(envelope.event_type, EventType::ReasoningDelta | EventType::ReasoningSummary) {
        add_words("reasoning", envelope, &envelope.fact(), fold);
    }
}

pub(super) fn plan(envelope: &EnvelopeView, fold: &mut FoldState) {
    if matches!(envelope.event_type, EventType::PlanDelta | EventType::PlanFinal) {
        add_words("plan", envelope, &envelope.fact(), fold);
    }
}

/// Adds what a fact says to its thoughts.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
fn add_words(activity: &str, envelope: &EnvelopeView, fact: &WordsFact, fold: &mut FoldState) {
    #[rustfmt::skip]
    let WordsFact {
        text, plan, steps, entries, summary,
        // Messages have the first ones. `EnvelopeView::is_withheld` reads the mark.
        role: _, kind: _, attachments: _, withheld: _, status: _, extra: _,
    } = fact;
    if matches!(envelope.event_type, EventType::ReasoningDelta | EventType::PlanDelta) {
        return delta(activity, envelope, text.as_deref().unwrap_or_default(), fold);
    }
    let beside = [("plan", plan), ("steps", steps), ("entries", entries), ("summary", summary)];
    finalize(activity, envelope, envelope.whole_text(text.as_deref()), beside, fold);
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
    if !edit.has(MESSAGE_ID) {
        edit.set(MESSAGE_ID, message);
        edit.set_some(PART_ID, envelope.ids.part.as_ref().map(PartId::as_str));
    }
}

fn delta(kind: &str, envelope: &EnvelopeView, chunk: &str, fold: &mut FoldState) {
    let (Some(id), Some(message)) = (id(envelope, fold), message(envelope, fold)) else { return };
    let mut edit = fold.activities.open(kind, &id, Surface::InlineProcess, envelope.ids.agent.as_ref());
    set_message_ids(&mut edit, envelope, &message);
    edit.set(STATUS, TextStatus::Streaming);
    edit.append(TEXT, chunk);
    carry::clipped_text(envelope, &mut edit);
}

/// Ends thoughts. The members `beside` the text stay as the source states them.
fn finalize(
    kind: &str,
    envelope: &EnvelopeView,
    whole: Option<FactText<'_>>,
    beside: [(&'static str, &Option<Box<Value>>); 4],
    fold: &mut FoldState,
) {
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
            Some(whole) => edit.set_fact_text(TEXT, whole),
            None if !edit.has(TEXT) => edit.set(TEXT, ""),
            None => {}
        }
        for (member, value) in beside.into_iter().filter(|_| !envelope.is_withheld()) {
            edit.set_some(Member::<Any>::new(member), stated(value.as_deref()));
        }
        edit.set_some(WITHHELD, envelope.is_withheld().then_some(true));
        edit.set(STATUS, TextStatus::Complete);
    }
}

fn is_streaming(thought: &Activity) -> bool {
    thought.content.read(STATUS) == Some(TextStatus::Streaming)
}

/// The streaming thoughts of a message: an end without a part ends all of them.
fn streaming_ids_of(kind: &str, message: &str, fold: &FoldState) -> Vec<String> {
    let is_of = |thought: &Activity| thought.content.read(MESSAGE_ID) == Some(message) && is_streaming(thought);
    let ids = fold.activities.ids(kind, is_of);
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
    let mut thoughts = Vec::new();
    for kind in ["reasoning", "plan"] {
        for id in fold.activities.ids(kind, |thought| thought.content.read(MESSAGE_ID) == Some(message)) {
            let mut edit = fold.activities.edit(kind, &id).expect("the id was listed above");
            let part = edit.read(PART_ID).unwrap_or_default().to_owned();
            match named.iter().find(|named| named.read(PART_ID) == Some(&part)) {
                Some(named) => {
                    edit.set_text(TEXT, named.read(TEXT).unwrap_or_default());
                    edit.set(STATUS, TextStatus::Complete);
                    thoughts.push(part);
                }
                None => {
                    edit.set(TEXT, "");
                    edit.set(STATUS, TextStatus::Interrupted);
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
    for id in fold.activities.ids(kind, is_streaming) {
        fold.activities.edit(kind, &id).expect("the id was listed above").set(STATUS, TextStatus::Interrupted);
    }
}
