//! `message`: messages in parts, streamed and then reconciled.
//!
//! A part's text grows by chunks. Its final text is never appended again: it is compared with the streamed text, and
//! only the difference changes. Reasoning, tools and approvals are activities of their own; clients interleave them
//! with parts by `opened`.

use super::activity_set::{CLIPPED, Edit, joined, text};
use super::envelope_view::{EnvelopeView, FactText};
use super::{FoldState, carry, message_key};
use crate::model::{AgentId, EventType, PartKind, Surface};
use serde_json::{Map, Value, json};

const KIND: &str = "message";

/// Members of a part that is not plain text: an image, a file, a file change, a reference.
#[rustfmt::skip]
const PART_MEMBERS: &[&str] = &[
    "title", "name", "path", "url", "uri", "href", "ref", "source", "mediaType", "mimeType", "alt", "language", "range", "size",
    "bytes", "sha256", "diff", "diffRef", "diffStat", "previewRef", "versionId", "citations", "artifactRefs", "evidenceRefs",
];

/// The most parts of one message. Further ones are left out, and the message says so (`clipped`).
pub(super) const PARTS_MAX: usize = 4096;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    match envelope.event_type {
        EventType::TextDelta => delta(envelope, fold),
        EventType::TextFinal => finalize(envelope, fold),
        EventType::MessagesSnapshot => snapshot(envelope, fold),
        _ => {}
    }
}

fn delta(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(message) = &envelope.ids.message else { return };
    let role = envelope.text("role").unwrap_or("assistant");
    let id = message_key(fold.teammate(envelope), message.as_str());
    let mut edit = open(fold, &id, envelope.ids.agent.as_ref(), role);
    let part = envelope.ids.part.as_ref().map_or(message.as_str(), |part| part.as_str());
    let chunk = envelope.text("text").unwrap_or_default();
    match find(&edit, part) {
        Some(at) => {
            let mut part = edit.item("parts", at).expect("`find` returned the index");
            part.append("text", chunk);
            part.set_str("status", "streaming");
        }
        None => add(&mut edit, new_part(part, &kind_of(envelope, role), envelope, "streaming", chunk)),
    }
    carry_details(envelope, &mut edit, Some(part));
    edit.set_str("status", "streaming");
}

/// Adds the members beside a text: its part's references, and the attachments of the message.
fn carry_details(envelope: &EnvelopeView, edit: &mut Edit<'_>, part: Option<&str>) {
    if envelope.is_withheld() {
        return;
    }
    carry::members_in_brief(envelope, edit, &["attachments"]);
    match part.and_then(|part| find(edit, part)).and_then(|at| edit.item("parts", at)) {
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
    if PartKind::from(part.text("kind").unwrap_or_default()).is_text() {
        return;
    }
    carry::members_in_brief(envelope, part, PART_MEMBERS);
    carry::ids(envelope, part, &["artifactId", "evidenceId", "toolCallId", "taskId"]);
}

fn finalize(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(message) = &envelope.ids.message else { return };
    let role = envelope.text("role").unwrap_or("assistant");
    let id = message_key(fold.teammate(envelope), message.as_str());
    let mut edit = open(fold, &id, envelope.ids.agent.as_ref(), role);
    let whole = envelope.whole_text();
    match &envelope.ids.part {
        Some(part) => {
            match find(&edit, part.as_str()) {
                Some(at) => complete_part(&mut edit, at, whole),
                None => {
                    let whole = whole.map_or("", FactText::shown);
                    add(&mut edit, new_part(part.as_str(), &kind_of(envelope, role), envelope, "complete", whole));
                }
            }
            mark_clipped(envelope, &mut edit, Some(part.as_str()));
            carry_details(envelope, &mut edit, Some(part.as_str()));
            if envelope.is_withheld()
                && let Some(at) = find(&edit, part.as_str())
            {
                edit.item("parts", at).expect("`find` returned the index").set("withheld", true);
            }
            let is_open = parts(&edit).iter().any(|part| part.get("status").and_then(Value::as_str) == Some("streaming"));
            edit.set_str("status", if is_open { "streaming" } else { "complete" });
        }
        None => {
            if let Some(whole) = whole {
                reconcile(&mut edit, whole, &kind_of(envelope, role), envelope);
            }
            mark_clipped(envelope, &mut edit, None);
            carry_details(envelope, &mut edit, None);
            if parts(&edit).len() == 1
                && let Some(mut only) = edit.item("parts", 0)
            {
                carry_part_members(envelope, &mut only);
            }
            for at in 0..parts(&edit).len() {
                complete_part(&mut edit, at, None);
            }
            edit.set_some("withheld", envelope.is_withheld().then_some(true));
            edit.set_str("status", "complete");
        }
    }
}

/// Makes the parts of a streamed message equal `whole`, and keeps as much of each part as possible.
fn reconcile(edit: &mut Edit<'_>, whole: FactText<'_>, kind: &str, envelope: &EnvelopeView) {
    let of_kind = |part: &Value| part.get("kind").and_then(Value::as_str) == Some(kind);
    let texts: Vec<(usize, String)> = (0..)
        .zip(parts(edit))
        .filter(|(_, part)| of_kind(part))
        .map(|(at, part)| (at, joined(part.get("text")).to_owned()))
        .collect();
    let streamed: String = texts.iter().map(|(_, text)| text.as_str()).collect();
    let whole = match whole {
        FactText::Beginning(beginning, _) if !texts.is_empty() && streamed.starts_with(beginning) => return,
        whole => whole.shown(),
    };
    let Some((last, _)) = texts.last() else {
        let id = envelope.ids.message.as_ref().map_or("", |message| message.as_str());
        return add(edit, new_part(id, kind, envelope, "complete", whole));
    };
    // A runtime may send only the tail of the streamed text (Awaken after a continuation), and trim it. The rest must
    // stay.
    if streamed.ends_with(whole) || streamed.trim_end().ends_with(whole.trim()) {
        return;
    }
    if let Some(rest) = whole.strip_prefix(&streamed) {
        return edit.item("parts", *last).expect("the index is one of the parts").append("text", rest);
    }
    // The text differs from the streamed one: the parts of a common beginning stay, and the next part takes the rest.
    let mut rest = whole;
    let mut texts = texts.iter().peekable();
    while let Some((_, text)) = texts.next_if(|(_, text)| rest.starts_with(text.as_str())) {
        rest = &rest[text.len()..];
    }
    for (at, _) in texts {
        edit.item("parts", *at).expect("the index is one of the parts").set_text("text", std::mem::take(&mut rest));
    }
}

/// Marks a part, else the last one, if the activity shows less of its text than the fact says.
fn mark_clipped(envelope: &EnvelopeView, edit: &mut Edit<'_>, part: Option<&str>) {
    let Some(FactText::Beginning(_, bytes)) = envelope.whole_text() else { return };
    let shown: usize = match part {
        Some(part) => find(edit, part).map_or(0, |at| joined(parts(edit)[at].get("text")).len()),
        None => parts(edit).iter().map(|part| joined(part.get("text")).len()).sum(),
    };
    let at = part.map_or_else(|| parts(edit).len().checked_sub(1), |part| find(edit, part));
    if shown < bytes
        && let Some(mut part) = at.and_then(|at| edit.item("parts", at))
    {
        part.set(CLIPPED, true);
    }
}

/// Completes a part, with the text `whole` if that is given.
fn complete_part(edit: &mut Edit<'_>, at: usize, whole: Option<FactText<'_>>) {
    let mut part = edit.item("parts", at).expect("the caller passes an existing index");
    if let Some(whole) = whole {
        part.set_fact_text("text", whole);
    }
    if whole.is_some() || part.text("status") == Some("streaming") {
        part.set_str("status", "complete");
    }
}

fn snapshot(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_repair = envelope.text("mode") == Some("repair");
    for message in envelope.get("messages").and_then(Value::as_array).into_iter().flatten() {
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
                    if find(&edit, part["partId"].as_str().unwrap_or_default()).is_none() {
                        add(&mut edit, part);
                    }
                }
                carry_attachments(&mut edit, message);
                edit.set_str("status", "complete");
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
    let is_named = |part: &Value| named.iter().any(|named| named["partId"] == part["partId"]);
    let retracted: Vec<usize> = (0..).zip(parts(&edit)).filter(|(_, part)| !is_named(part)).map(|(at, _)| at).collect();
    for at in retracted {
        let mut part = edit.item("parts", at).expect("the index is one of the parts");
        part.set("text", text(""));
        part.set_str("status", "interrupted");
    }
    for part in &named {
        let part_id = part["partId"].as_str().unwrap_or_default();
        match find(&edit, part_id) {
            Some(at) => {
                let mut known = edit.item("parts", at).expect("`find` returned the index");
                known.set("kind", part["kind"].clone());
                known.set("text", part["text"].clone());
                known.set_str("status", "complete");
            }
            None if thoughts.iter().any(|thought| thought == part_id) => {}
            None => add(&mut edit, part.clone()),
        }
    }
    carry_attachments(&mut edit, message);
    edit.set_str("status", "complete");
}

/// Copies the members beside the parts of a snapshot's message.
fn carry_attachments(edit: &mut Edit<'_>, message: &Value) {
    for member in ["attachments", "refs"] {
        edit.set_some(member, message.get(member).filter(|value| !value.is_null()).map(carry::brief));
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
    let mut restored = new_part(&id, &kind, envelope, "complete", &whole);
    let members = restored.as_object_mut().expect("`new_part` returns an object");
    for (member, value) in part {
        members.entry(member).or_insert_with(|| value.clone());
    }
    restored
}

/// Interrupts the streaming messages, because the run has ended.
pub(super) fn interrupt_all(fold: &mut FoldState) {
    for id in fold.activities.ids(KIND, |message| message.content.get("status").and_then(Value::as_str) == Some("streaming")) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        for at in 0..parts(&edit).len() {
            let mut part = edit.item("parts", at).expect("the index is one of the parts");
            if part.text("status") == Some("streaming") {
                part.set_str("status", "interrupted");
            }
        }
        edit.set_str("status", "interrupted");
    }
}

fn open<'s>(fold: &'s mut FoldState, id: &str, agent: Option<&AgentId>, role: &str) -> Edit<'s> {
    let is_teammate = agent.is_some() && agent != fold.own_agent.as_ref();
    let surface = if is_teammate { Surface::TeammateTranscript } else { Surface::Conversation };
    let mut edit = fold.activities.open(KIND, id, surface, agent);
    if edit.get("role").is_none() {
        edit.set("role", role);
        edit.set_some("agentId", agent.map(AgentId::as_str));
        edit.set_str("status", "streaming");
        edit.set("parts", json!([]));
    }
    edit
}

fn parts<'e>(edit: &'e Edit<'_>) -> &'e [Value] {
    edit.get("parts").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The index of a part; searches from the end, because the newest parts grow.
fn find(edit: &Edit<'_>, id: &str) -> Option<usize> {
    parts(edit).iter().rposition(|part| part.get("partId").and_then(Value::as_str) == Some(id))
}

/// Adds a part, if the limit allows it.
fn add(edit: &mut Edit<'_>, part: Value) {
    match parts(edit).len() < PARTS_MAX {
        true => edit.push("parts", part),
        false => edit.set("clipped", true),
    }
}

fn new_part(id: &str, kind: &str, envelope: &EnvelopeView, status: &str, whole: &str) -> Value {
    json!({ "partId": id, "kind": kind, "opened": envelope.sequence, "status": status, "text": text(whole) })
}

/// The kind of a part: as its source states it, else seed 003's name for a text of this role.
fn kind_of(envelope: &EnvelopeView, role: &str) -> String {
    let said = envelope.payload.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty());
    said.map_or_else(|| PartKind::of_role(role).to_string(), str::to_owned)
}
