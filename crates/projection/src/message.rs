//! `message`: messages in parts, streamed and then reconciled.
//!
//! A part's text grows by chunks. Its final text is never appended again: it is compared with the streamed text, and
//! only the difference changes. Reasoning, tools and approvals are activities of their own; clients interleave them
//! with parts by `opened`.

use super::activity_set::{Activity, Edit};
use super::envelope_view::{EnvelopeView, FactText};
use super::members::{
    Any, CLIPPED, Flag, List, Mark, PARTS, REFS, Str, TEXT, TextStatus, TypedContent, WITHHELD, WITHHELD_ABOUT, content,
};
use super::{FoldState, View, carry, feedback, list, message_key};
use proscenium_model::fact::{MessagesFact, WordsFact};
use proscenium_model::{AgentId, EventType, MessageId, PartId, PartKind, Surface};
use serde_json::{Map, Value, json};

/// The activity type.
pub const KIND: &str = "message";

content! {
    MESSAGE = "message", "A message, in parts.";
    "role": Str, Always as ROLE, "The role of the author: assistant, user and so on.";
    "status": TextStatus, Always as STATUS, "Whether the message may still grow (streaming).";
    "parts": List, Always with json!({ "type": "array", "items": part::PART.object() }),
        "The parts, in the order in which they appeared, at most 4096. No part is ever removed; a retracted one is empty and interrupted.";
    "agentId": Str, Sometimes as AGENT_ID, "The agent that wrote the message.";
    "attachments": Any, Sometimes as ATTACHMENTS, "The message's attachments: references, never bodies.";
    "refs": Any, Sometimes, "The references of the whole message.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
    "clipped": Flag, Sometimes, "The message reached its limit of 4096 parts; the log contains further ones.";
    "feedback": List, Sometimes with feedback::schema(), feedback::FEEDBACK_ABOUT;
}

/// The members of a part.
pub mod part {
    use crate::members::{Any, CLIPPED_ABOUT, Flag, Mark, Position, Str, Text, TextStatus, WITHHELD_ABOUT, content, open_set};
    use proscenium_model::PartKind;

    content! {
        PART = "message-part", "A part of a message.";
        "partId": Str, Always as ID, "The id of the part, unique within the message.";
        "kind": Str, Always as KIND with open_set(PartKind::NAMES),
            "The kind of the part; image, file or a source's own name for a kind that the seed does not name.";
        "opened": Position, Always as OPENED,
            "The sequence of the envelope that opened the part. Clients interleave parts and calls by it.";
        "status": TextStatus, Always as STATUS, "Whether the part may still grow (streaming).";
        "text": Text, Always, "The text of the part.";
        "refs": Any, Sometimes, "The part's references.";
        "withheld": Mark, Sometimes, WITHHELD_ABOUT;
        "clipped": Flag, Sometimes, CLIPPED_ABOUT;
    }
}

/// The most parts of one message. Further ones are left out, and the message says so (`clipped`).
pub(super) const PARTS_MAX: usize = 4096;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::TextDelta | EventType::TextFinal => add_words(envelope, &envelope.fact(), fold),
        EventType::MessagesSnapshot => snapshot(envelope, fold),
        EventType::FeedbackGiven => {
            let Some(message) = &envelope.ids.message else { return };
            let id = message_key(fold.teammate(envelope), message.as_str());
            if let Some(mut edit) = fold.activities.edit(KIND, &id) {
                feedback::apply(envelope, &mut edit);
            }
        }
        _ => {}
    }
}

/// The author and the id of a message, as facts name them. `None`: it is no message of a fact.
#[must_use]
pub fn author_and_id(view: &View, message: &Activity) -> Option<(Option<AgentId>, MessageId)> {
    let (agent, own) = (message.content.read(AGENT_ID).and_then(|id| AgentId::new(id).ok()), view.run_and_agent().1);
    let teammate = agent.as_ref().filter(|agent| own.as_ref() != Some(agent));
    let id = teammate.and_then(|agent| message.id.strip_prefix(agent.as_str())?.strip_prefix('/'));
    Some((agent, MessageId::new(id.unwrap_or(&message.id)).ok()?))
}

/// The message that facts name by this author and id.
#[must_use]
pub fn message_of<'v>(view: &'v View, agent: Option<&AgentId>, id: &MessageId) -> Option<&'v Activity> {
    let own = view.run_and_agent().1;
    let key = message_key(agent.filter(|agent| own.as_ref() != Some(agent)), id.as_str());
    view.activities().iter().find(|activity| &*activity.kind == KIND && *activity.id == *key)
}

/// Whether a message has a part of this id.
#[must_use]
pub fn has_part(message: &Activity, part: &str) -> bool {
    message.content.read(PARTS).is_some_and(|parts| parts.iter().any(|known| known.read(part::ID) == Some(part)))
}

/// Adds what a fact says to its message.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
fn add_words(envelope: &EnvelopeView, fact: &WordsFact, fold: &mut FoldState) {
    #[rustfmt::skip]
    let WordsFact {
        text, role, kind, attachments,
        // Thoughts have the first ones. `EnvelopeView::is_withheld` reads the mark.
        summary: _, plan: _, steps: _, entries: _, withheld: _, status: _, extra: _,
    } = fact;
    let Some(message) = &envelope.ids.message else { return };
    let role = role.as_deref().unwrap_or("assistant");
    let kind = kind.as_deref().filter(|kind| !kind.is_empty()).map_or_else(|| PartKind::of_role(role), PartKind::from);
    let id = message_key(fold.teammate(envelope), message.as_str());
    let mut edit = open(fold, &id, envelope.ids.agent.as_ref(), role);
    if envelope.event_type == EventType::TextDelta {
        let part = envelope.ids.part.as_ref().map_or(message.as_str(), PartId::as_str);
        delta(envelope, &mut edit, part, &kind, text.as_deref().unwrap_or_default());
        carry_details(envelope, &mut edit, attachments.as_deref(), Some(part));
        return edit.set(STATUS, TextStatus::Streaming);
    }
    let whole = envelope.whole_text(text.as_deref());
    match &envelope.ids.part {
        Some(part) => {
            finalize_part(envelope, &mut edit, part.as_str(), &kind, whole);
            mark_clipped(&mut edit, whole, Some(part.as_str()));
            carry_details(envelope, &mut edit, attachments.as_deref(), Some(part.as_str()));
            if envelope.is_withheld()
                && let Some(at) = find(&edit, part.as_str())
            {
                edit.item(PARTS, at).expect("`find` returned the index").set(WITHHELD, true);
            }
            let is_open = parts(&edit).iter().any(|part| part.read(part::STATUS) == Some(TextStatus::Streaming));
            edit.set(STATUS, if is_open { TextStatus::Streaming } else { TextStatus::Complete });
        }
        None => {
            if let Some(whole) = whole {
                reconcile(&mut edit, whole, &kind, envelope);
            }
            mark_clipped(&mut edit, whole, None);
            carry_details(envelope, &mut edit, attachments.as_deref(), None);
            if parts(&edit).len() == 1
                && let Some(mut only) = edit.item(PARTS, 0)
            {
                carry_part_members(envelope, &mut only);
            }
            for at in 0..parts(&edit).len() {
                complete_part(&mut edit, at, None);
            }
            edit.set_some(WITHHELD, envelope.is_withheld().then_some(true));
            edit.set(STATUS, TextStatus::Complete);
        }
    }
}

fn delta(envelope: &EnvelopeView, edit: &mut Edit<'_>, part: &str, kind: &PartKind, chunk: &str) {
    match find(edit, part) {
        Some(at) => {
            let mut part = edit.item(PARTS, at).expect("`find` returned the index");
            part.append(TEXT, chunk);
            part.set(part::STATUS, TextStatus::Streaming);
        }
        None => add(edit, new_part(part, kind.as_str(), envelope, TextStatus::Streaming, chunk)),
    }
}

fn finalize_part(envelope: &EnvelopeView, edit: &mut Edit<'_>, part: &str, kind: &PartKind, whole: Option<FactText<'_>>) {
    match find(edit, part) {
        Some(at) => complete_part(edit, at, whole),
        None => {
            let whole = whole.map_or("", FactText::shown);
            add(edit, new_part(part, kind.as_str(), envelope, TextStatus::Complete, whole));
        }
    }
}

/// Adds the members beside a text: its part's references, and the attachments of the message.
fn carry_details(envelope: &EnvelopeView, edit: &mut Edit<'_>, attachments: Option<&Value>, part: Option<&str>) {
    if envelope.is_withheld() {
        return;
    }
    carry::member_in_brief(edit, ATTACHMENTS.name(), attachments);
    match part.and_then(|part| find(edit, part)).and_then(|at| edit.item(PARTS, at)) {
        Some(mut part) => {
            carry_part_members(envelope, &mut part);
            carry::refs(envelope, &mut part);
            if envelope.event_type == EventType::TextDelta {
                carry::clipped_text(envelope, &mut part);
            }
        }
        None => carry::refs(envelope, edit),
    }
}

fn carry_part_members(envelope: &EnvelopeView, part: &mut Edit<'_>) {
    // On plain text a source may use such members for another purpose.
    if PartKind::from(part.read(part::KIND).unwrap_or_default()).is_text() {
        return;
    }
    carry::copied_in_brief::<WordsFact>(envelope, part);
    carry::ids(envelope, part, &["artifactId", "evidenceId", "toolCallId", "taskId"]);
}

/// Makes the parts of a streamed message equal `whole`, and keeps as much of each part as possible.
fn reconcile(edit: &mut Edit<'_>, whole: FactText<'_>, kind: &PartKind, envelope: &EnvelopeView) {
    let kind = kind.as_str();
    let texts: Vec<(usize, String)> = (0..)
        .zip(parts(edit))
        .filter(|(_, part)| part.read(part::KIND) == Some(kind))
        .map(|(at, part)| (at, part.read(TEXT).unwrap_or_default().to_owned()))
        .collect();
    let streamed: String = texts.iter().map(|(_, text)| text.as_str()).collect();
    let whole = match whole {
        FactText::Beginning(beginning, _) if !texts.is_empty() && streamed.starts_with(beginning) => return,
        whole => whole.shown(),
    };
    let Some((last, _)) = texts.last() else {
        let id = envelope.ids.message.as_ref().map_or("", |message| message.as_str());
        return add(edit, new_part(id, kind, envelope, TextStatus::Complete, whole));
    };
    // A runtime may send only the tail of the streamed text (Awaken after a continuation), and trim it. The rest must
    // stay.
    if streamed.ends_with(whole) || streamed.trim_end().ends_with(whole.trim()) {
        return;
    }
    if let Some(rest) = whole.strip_prefix(&streamed) {
        return edit.item(PARTS, *last).expect("the index is one of the parts").append(TEXT, rest);
    }
    // The text differs from the streamed one: the parts of a common beginning stay, and the next part takes the rest.
    let mut rest = whole;
    let mut texts = texts.iter().peekable();
    while let Some((_, text)) = texts.next_if(|(_, text)| rest.starts_with(text.as_str())) {
        rest = &rest[text.len()..];
    }
    for (at, _) in texts {
        edit.item(PARTS, *at).expect("the index is one of the parts").set_text(TEXT, std::mem::take(&mut rest));
    }
}

/// Marks a part, else the last one, if the activity shows less of its text than the fact says.
fn mark_clipped(edit: &mut Edit<'_>, whole: Option<FactText<'_>>, part: Option<&str>) {
    let Some(FactText::Beginning(_, bytes)) = whole else { return };
    let shown: usize = match part {
        Some(part) => find(edit, part).map_or(0, |at| text_bytes(&parts(edit)[at])),
        None => parts(edit).iter().map(text_bytes).sum(),
    };
    let at = part.map_or_else(|| parts(edit).len().checked_sub(1), |part| find(edit, part));
    if shown < bytes
        && let Some(mut part) = at.and_then(|at| edit.item(PARTS, at))
    {
        part.set(CLIPPED, true);
    }
}

fn text_bytes(part: &Value) -> usize {
    part.read(TEXT).unwrap_or_default().len()
}

/// Completes a part, with the text `whole` if that is given.
fn complete_part(edit: &mut Edit<'_>, at: usize, whole: Option<FactText<'_>>) {
    let mut part = edit.item(PARTS, at).expect("the caller passes an existing index");
    if let Some(whole) = whole {
        part.set_fact_text(TEXT, whole);
    }
    if whole.is_some() || part.read(part::STATUS) == Some(TextStatus::Streaming) {
        part.set(part::STATUS, TextStatus::Complete);
    }
}

fn snapshot(envelope: &EnvelopeView, fold: &mut FoldState) {
    let fact = envelope.fact();
    let MessagesFact { messages, mode, extra: _ } = &*fact;
    let is_repair = mode.as_deref() == Some("repair");
    for message in list(messages).into_iter().flatten() {
        let id = message.get("messageId").or_else(|| message.get("id")).and_then(Value::as_str);
        let Some(id) = id.filter(|id| !id.is_empty()) else { continue };
        let named = message.get("agentId").and_then(Value::as_str).and_then(|id| AgentId::new(id).ok());
        let agent = named.as_ref().or(envelope.ids.agent.as_ref());
        let id = message_key(agent.filter(|agent| fold.own_agent.as_ref() != Some(agent)), id);
        let is_known = fold.activities.get(KIND, &id).is_some();
        let role = message.get("role").and_then(Value::as_str).unwrap_or("assistant");
        match (is_known, is_repair) {
            (true, true) => repair(envelope, fold, &id, role, message),
            // History does not override live facts.
            (true, false) => {}
            (false, _) => {
                let mut edit = open(fold, &id, agent, role);
                for (n, part) in parts_of_snapshot(message).into_iter().enumerate() {
                    let part = part_of_snapshot(envelope, part, n, role);
                    if find(&edit, part.read(part::ID).unwrap_or_default()).is_none() {
                        add(&mut edit, part);
                    }
                }
                carry_attachments(&mut edit, message);
                edit.set(STATUS, TextStatus::Complete);
            }
        }
    }
}

/// Repairs a message.
///
/// Parts that the snapshot does not name are emptied and interrupted, and stay in place.
fn repair(envelope: &EnvelopeView, fold: &mut FoldState, id: &str, role: &str, message: &Value) {
    let named: Vec<_> =
        parts_of_snapshot(message).into_iter().enumerate().map(|(n, part)| part_of_snapshot(envelope, part, n, role)).collect();
    let thoughts = super::thought::repair(fold, id, &named);
    let mut edit = fold.activities.edit(KIND, id).expect("the caller has found the message");
    let is_named = |part: &Value| named.iter().any(|named| named.read(part::ID) == part.read(part::ID));
    let retracted: Vec<usize> = (0..).zip(parts(&edit)).filter(|(_, part)| !is_named(part)).map(|(at, _)| at).collect();
    for at in retracted {
        let mut part = edit.item(PARTS, at).expect("the index is one of the parts");
        part.set(TEXT, "");
        part.set(part::STATUS, TextStatus::Interrupted);
    }
    for part in &named {
        let part_id = part.read(part::ID).unwrap_or_default();
        match find(&edit, part_id) {
            Some(at) => {
                let mut known = edit.item(PARTS, at).expect("`find` returned the index");
                known.set_some(part::KIND, part.read(part::KIND));
                known.set_some(TEXT, part.read(TEXT));
                known.set(part::STATUS, TextStatus::Complete);
            }
            None if thoughts.iter().any(|thought| thought == part_id) => {}
            None => add(&mut edit, part.clone()),
        }
    }
    carry_attachments(&mut edit, message);
    edit.set(STATUS, TextStatus::Complete);
}

/// Copies the members beside the parts of a snapshot's message.
fn carry_attachments(edit: &mut Edit<'_>, message: &Value) {
    for member in [ATTACHMENTS, REFS] {
        edit.set_some(member, message.read(member).filter(|value| !value.is_null()).map(carry::brief));
    }
}

fn parts_of_snapshot(message: &Value) -> Vec<&Map<String, Value>> {
    message.get("parts").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).collect()
}

/// A part from a snapshot of messages: its text joined, and its other members unchanged.
fn part_of_snapshot(envelope: &EnvelopeView, part: &Map<String, Value>, n: usize, role: &str) -> Value {
    let whole: String = match part.get("text") {
        Some(Value::String(whole)) => whole.clone(),
        Some(Value::Array(chunks)) => chunks.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    };
    let id = part.get("partId").and_then(Value::as_str).map_or_else(|| n.to_string(), str::to_owned);
    let kind = part.get("kind").and_then(Value::as_str).map_or_else(|| PartKind::of_role(role).to_string(), str::to_owned);
    let mut restored = new_part(&id, &kind, envelope, TextStatus::Complete, &whole);
    let members = restored.as_object_mut().expect("`new_part` returns an object");
    for (member, value) in part {
        members.entry(member).or_insert_with(|| value.clone());
    }
    restored
}

/// Interrupts the streaming messages, because the run has ended.
pub(super) fn interrupt_all(fold: &mut FoldState) {
    for id in fold.activities.ids(KIND, |message| message.content.read(STATUS) == Some(TextStatus::Streaming)) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        for at in 0..parts(&edit).len() {
            let mut part = edit.item(PARTS, at).expect("the index is one of the parts");
            if part.read(part::STATUS) == Some(TextStatus::Streaming) {
                part.set(part::STATUS, TextStatus::Interrupted);
            }
        }
        edit.set(STATUS, TextStatus::Interrupted);
    }
}

fn open<'s>(fold: &'s mut FoldState, id: &str, agent: Option<&AgentId>, role: &str) -> Edit<'s> {
    let is_teammate = agent.is_some() && agent != fold.own_agent.as_ref();
    let surface = if is_teammate { Surface::TeammateTranscript } else { Surface::Conversation };
    let mut edit = fold.activities.open(KIND, id, surface, agent);
    if !edit.has(ROLE) {
        edit.set(ROLE, role);
        edit.set_some(AGENT_ID, agent.map(AgentId::as_str));
        edit.set(STATUS, TextStatus::Streaming);
        edit.set(PARTS, Vec::new());
    }
    edit
}

fn parts<'e>(edit: &'e Edit<'_>) -> &'e [Value] {
    edit.read(PARTS).map_or(&[], Vec::as_slice)
}

/// The index of a part; searches from the end, because the newest parts grow.
fn find(edit: &Edit<'_>, id: &str) -> Option<usize> {
    parts(edit).iter().rposition(|part| part.read(part::ID) == Some(id))
}

/// Adds a part, if the limit allows it.
fn add(edit: &mut Edit<'_>, part: Value) {
    match parts(edit).len() < PARTS_MAX {
        true => edit.push(PARTS, part),
        false => edit.set(CLIPPED, true),
    }
}

fn new_part(id: &str, kind: &str, envelope: &EnvelopeView, status: TextStatus, whole: &str) -> Value {
    let mut part = Map::new();
    part::ID.put(&mut part, id);
    part::KIND.put(&mut part, kind);
    part::OPENED.put(&mut part, envelope.sequence);
    part::STATUS.put(&mut part, status);
    TEXT.put(&mut part, whole);
    part.into()
}
