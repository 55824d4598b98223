//! Rules for message text: streamed once, ended, and separate from everything else.

use super::Findings;
use super::lifecycles::{Channel, calls, streams};
use super::log::{CheckedLog, Entry};
use crate::model::{EventType, MemberRef};
use crate::source::agent_ui::is_workers;
use serde_json::Value;

/// Rejects chunks after the end of their stream.
pub(super) fn write_after_seal(log: &CheckedLog, findings: &mut Findings<'_>) {
    for late in streams(log).late {
        findings.report(
            late,
            late.envelope_text("messageId"),
            format!("{} follows the end of its message or part", late.event_type),
        );
    }
    for call in &calls(log) {
        for late in call.late.iter().filter(|late| late.event_type == EventType::ToolOutputDelta) {
            findings.report(late, Some(&call.id), format!("{} of call {}, which has ended", late.event_type, call.label()));
        }
    }
    for entry in log.entries.iter().filter(|entry| entry.is_server_diagnostic(&["write_after_seal"])) {
        let thing = entry.payload_text("thing");
        let event_type = entry.payload_text("eventType").unwrap_or("a chunk");
        findings.report(
            entry,
            thing,
            format!("the server did not apply {event_type}: it follows the end of {}", thing.unwrap_or("its stream")),
        );
    }
}

/// Describes how a final text differs from the streamed text; ignores whitespace around them.
fn describe_difference(streamed: &str, whole: &str) -> Option<String> {
    let (streamed, whole) = (streamed.trim(), whole.trim());
    let chars = |text: &str| text.chars().count();
    if streamed == whole {
        return None;
    }
    Some(if whole.strip_prefix(streamed).is_some_and(|rest| rest.trim() == streamed) {
        format!("it contains the streamed text twice ({} characters)", chars(whole))
    } else if let Some(rest) = whole.strip_prefix(streamed) {
        format!("it adds {} characters that were not streamed", chars(rest))
    } else if streamed.starts_with(whole) || streamed.ends_with(whole) {
        format!("it omits {} of the {} streamed characters", chars(streamed) - chars(whole), chars(streamed))
    } else {
        let same = streamed.chars().zip(whole.chars()).take_while(|(a, b)| a == b).count();
        format!("it differs from the streamed text after {same} characters")
    })
}

/// Returns whether the server offloaded the text and left a preview in the envelope.
fn is_offloaded(entry: &Entry) -> bool {
    let links = match &entry.view.refs {
        Some(Value::Array(links)) => links.iter().collect(),
        Some(Value::Object(links)) => links.values().collect(),
        _ => Vec::new(),
    };
    links.iter().any(|link| link.get("member").and_then(Value::as_str) == Some("/payload/text"))
}

/// Requires that a final text equals the streamed text.
pub(super) fn final_text(log: &CheckedLog, findings: &mut Findings<'_>) {
    // The final of a reasoning stream may be a summary.
    for last in streams(log).finals.iter().filter(|last| last.key.channel != Channel::Reasoning) {
        let whole = last.entry.view.text("text").unwrap_or_default();
        if last.streamed.is_empty() || is_offloaded(last.entry) {
            continue;
        }
        if let Some(difference) = describe_difference(&last.streamed, whole) {
            let message = format!("{} of message {} differs: {difference}", last.entry.event_type, last.key);
            findings.report(last.entry, Some(last.key.message), message);
        }
    }
}

/// Requires the end of each streamed part.
pub(super) fn part_never_ended(log: &CheckedLog, findings: &mut Findings<'_>) {
    for part in streams(log).parts.iter().filter(|part| part.end.is_none()) {
        let state = match part.run_end {
            Some(end) => format!("still open when the run ends with {} at sequence {}", end.event_type, end.sequence),
            None => "still open at the end of the log".into(),
        };
        findings.report(part.last, Some(&part.id()), format!("{} part {} is {state}", part.key.channel.name(), part.id()));
    }
}

/// Rejects everything but messages on the conversation surface.
pub(super) fn only_text_in_conversation(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.envelope_text("surface") == Some("conversation")) {
        let is_message = entry.is_in_family("text.") || entry.event_type == EventType::MessagesSnapshot;
        // A card in the conversation may link to an artifact or to evidence.
        if !is_message && !entry.is_in_family("artifact.") && !entry.is_in_family("evidence.") {
            findings.report(entry, None, format!("{} has the surface conversation", entry.event_type));
        }
    }
}

/// Requires message text on the conversation surface or in a teammate's transcript.
pub(super) fn text_elsewhere(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_in_family("text.")) {
        let surface = entry.envelope_text("surface").unwrap_or("unknown");
        if !matches!(surface, "conversation" | "teammate_transcript" | "unknown" | "custom") {
            findings.report(entry, entry.envelope_text("messageId"), format!("{} has the surface {surface}", entry.event_type));
        }
    }
}

/// Rejects worker notifications with the user role.
pub(super) fn worker_as_user(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        if entry.is_in_family("text.") && entry.payload_text("role") == Some("user") && is_workers(|member| entry.get(member)) {
            findings.report(
                entry,
                entry.envelope_text("messageId"),
                format!("{} of a worker has the role user", entry.event_type),
            );
        }
        let messages = entry.view.get("messages").filter(|_| entry.event_type == EventType::MessagesSnapshot);
        for message in messages.and_then(MemberRef::list).into_iter().flatten() {
            if message.get("role").is_some_and(|role| role == "user") && is_workers(|member| message.get(member)) {
                let id = message.get("messageId").and_then(Value::as_str).unwrap_or_default();
                findings.report(entry, Some(id), format!("message {id} of a worker has the role user"));
            }
        }
    }
}
