//! What is said: streamed once, sealed, and kept apart from everything else.

use super::Out;
use super::log::{Entry, Log};
use super::things::{Channel, calls, speech};
use crate::model::EventType;
use crate::source::agent_ui::is_workers;
use serde_json::Value;

/// After its end a stream takes nothing more.
pub(super) fn write_after_seal(log: &Log, out: &mut Out<'_>) {
    for late in speech(log).late {
        out.say(late, late.word("messageId"), format!("{} comes after the end of its message or part", late.event_type));
    }
    for call in &calls(log) {
        for late in call.late.iter().filter(|late| late.event_type == EventType::ToolOutputDelta) {
            out.say(late, Some(&call.id), format!("{} of call {}, which has ended", late.event_type, call.called()));
        }
    }
    for entry in log.entries.iter().filter(|entry| entry.notes(&["write_after_seal"])) {
        let thing = entry.text("thing");
        let class = entry.text("eventType").unwrap_or("a chunk");
        out.say(entry, thing, format!("{class} of {} came after its end and was not applied", thing.unwrap_or("a stream")));
    }
}

/// How a final text differs from what was streamed; `None` where it is the same but for space around it.
fn difference(streamed: &str, whole: &str) -> Option<String> {
    let (said, last) = (streamed.trim(), whole.trim());
    let chars = |text: &str| text.chars().count();
    if said == last {
        return None;
    }
    Some(if last.strip_prefix(said).is_some_and(|rest| rest.trim() == said) {
        format!("it says what was streamed twice ({} characters)", chars(last))
    } else if let Some(rest) = last.strip_prefix(said) {
        format!("it goes on for {} characters that were never streamed", chars(rest))
    } else if said.starts_with(last) || said.ends_with(last) {
        format!("it lacks {} of the {} characters that were streamed", chars(said) - chars(last), chars(said))
    } else {
        let same = said.chars().zip(last.chars()).take_while(|(a, b)| a == b).count();
        format!("it differs from what was streamed after {same} characters")
    })
}

/// Whether the text was moved out of the envelope, and what stands there is a preview.
fn is_offloaded(entry: &Entry) -> bool {
    let links = match &entry.seen.refs {
        Some(Value::Array(links)) => links.iter().collect(),
        Some(Value::Object(links)) => links.values().collect(),
        _ => Vec::new(),
    };
    links.iter().any(|link| link.get("member").and_then(Value::as_str) == Some("/payload/text"))
}

/// A final text is what was streamed.
pub(super) fn final_text(log: &Log, out: &mut Out<'_>) {
    // A summary of reasoning may be one.
    for said in speech(log).finals.iter().filter(|said| said.of.channel != Channel::Reasoning) {
        let whole = said.entry.seen.text("text").unwrap_or_default();
        if said.streamed.is_empty() || is_offloaded(said.entry) {
            continue;
        }
        if let Some(how) = difference(&said.streamed, whole) {
            out.say(
                said.entry,
                Some(said.of.message),
                format!("{} of message {} is not its text: {how}", said.entry.event_type, said.of),
            );
        }
    }
}

/// What is streamed ends.
pub(super) fn part_never_ended(log: &Log, out: &mut Out<'_>) {
    for part in speech(log).parts.iter().filter(|part| part.end.is_none()) {
        let left = match part.cut {
            Some(end) => format!("still open when the run ends with {} at sequence {}", end.event_type, end.sequence),
            None => "still open where the log ends".into(),
        };
        out.say(part.last, Some(&part.id()), format!("{} part {} is {left}", part.of.channel.name(), part.id()));
    }
}

/// Only what is said stands in the conversation.
pub(super) fn only_text_in_conversation(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.word("surface") == Some("conversation")) {
        let is_said = entry.is_of("text.") || entry.event_type == EventType::MessagesSnapshot;
        // A card in the conversation may point to an artifact or to evidence.
        if !is_said && !entry.is_of("artifact.") && !entry.is_of("evidence.") {
            out.say(entry, None, format!("{} is meant for the conversation", entry.event_type));
        }
    }
}

/// What is said stands in the conversation, or in a teammate's transcript.
pub(super) fn text_elsewhere(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_of("text.")) {
        let surface = entry.word("surface").unwrap_or("unknown");
        if !matches!(surface, "conversation" | "teammate_transcript" | "unknown" | "custom") {
            out.say(entry, entry.word("messageId"), format!("{} is meant for the surface {surface}", entry.event_type));
        }
    }
}

/// What workers report never passes for the user's own words.
pub(super) fn worker_as_user(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        if entry.is_of("text.") && entry.text("role") == Some("user") && is_workers(|member| entry.get(member)) {
            out.say(entry, entry.word("messageId"), format!("{} of a worker has the role of the user", entry.event_type));
        }
        let messages = entry.seen.get("messages").filter(|_| entry.event_type == EventType::MessagesSnapshot);
        for message in messages.and_then(Value::as_array).into_iter().flatten() {
            if message.get("role").is_some_and(|role| role == "user") && is_workers(|member| message.get(member)) {
                let id = message.get("messageId").and_then(Value::as_str).unwrap_or_default();
                out.say(entry, Some(id), format!("message {id} of a worker has the role of the user"));
            }
        }
    }
}
