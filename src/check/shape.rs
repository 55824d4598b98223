//! What every envelope has, and what each class needs beside it.

use super::Out;
use super::log::{Entry, Log};
use super::things::is_custom;
use crate::model::{Audience, Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde_json::Value;

/// The envelope's own members are there, and are what they must be.
pub(super) fn members(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        for fault in &entry.faults {
            out.say(entry, None, format!("{}: {fault}", entry.event_type));
        }
    }
}

/// The dimensions and the values that the seed names.
const DIMENSIONS: &[(&str, &[&str])] = &[
    ("owner", Owner::NAMES),
    ("scope", Scope::NAMES),
    ("phase", Phase::NAMES),
    ("surface", Surface::NAMES),
    ("persistence", Persistence::NAMES),
    ("control", Control::NAMES),
    ("topology", Topology::NAMES),
];

/// Dimensions have values that the seed names.
pub(super) fn dimensions(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        for (dimension, names) in DIMENSIONS {
            if let Some(value) = entry.word(dimension).filter(|value| !names.contains(value)) {
                out.say(entry, None, format!("{}: unknown dimension: {dimension} is {value:?}", entry.event_type));
            }
        }
    }
}

/// Event classes are those of the seed.
pub(super) fn classes(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        if let EventType::Other(class) = &entry.event_type {
            out.say(entry, None, format!("nobody knows the class {class:?}"));
        } else if entry.notes(&["unknown_event_type"]) {
            let class = entry.text("eventType").unwrap_or("unnamed");
            out.say(entry, None, format!("the source has an event type that its adapter does not know: {class:?}"));
        }
    }
}

/// Audiences are three.
pub(super) fn audiences(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        let said = entry.map.get("audience").filter(|_| entry.audience().is_none()).or_else(|| entry.map.get("sourceAudience"));
        if let Some(said) = said.filter(|said| said.as_str().is_none_or(|said| Audience::parse(said).is_none())) {
            out.say(entry, None, format!("{}: nobody knows the audience {said}; it counts as internal", entry.event_type));
        }
    }
}

/// The ids that a class cannot do without: one of each group.
fn ids_of(entry: &Entry) -> &'static [&'static [&'static str]] {
    use EventType as E;
    match &entry.event_type {
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => &[&["messageId"]],
        E::ToolProgress if is_custom(entry) => &[&["toolCallId", "messageId"]],
        // Progress that its source cannot pin on one call is the turn's.
        E::ToolProgress if entry.word("scope").is_some_and(|scope| scope != "tool_call") => &[],
        E::ToolFailed if entry.seen.is_hidden_failure() => &[],
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => &[&["toolCallId"]],
        E::ActionRequired | E::ActionResolved => &[&["actionId"]],
        E::EvidenceChanged => &[&["evidenceId"]],
        E::AgentSpawned | E::AgentChanged | E::AgentCompleted => &[&["agentId"]],
        E::TaskChanged => &[&["taskId", "workItemId", "remoteTaskId"]],
        E::ReviewRequested | E::ReviewCompleted => &[&["reviewId", "evidenceId"]],
        E::TeamChanged => &[&["teamId", "teamName"]],
        _ if entry.is_of("artifact.") => &[&["artifactId"]],
        _ => &[],
    }
}

/// Every fact names what it is about.
pub(super) fn ids(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        for group in ids_of(entry).iter().filter(|group| !group.iter().any(|id| entry.has(id))) {
            out.say(entry, None, format!("{} has no {}", entry.event_type, group.join(", nor ")));
        }
    }
}

/// Chunks name the part that they belong to.
pub(super) fn part_ids(log: &Log, out: &mut Out<'_>) {
    use EventType as E;
    let is_chunk = |entry: &&Entry| matches!(entry.event_type, E::TextDelta | E::ReasoningDelta | E::PlanDelta);
    for entry in log.entries.iter().filter(is_chunk).filter(|entry| !entry.has("partId")) {
        out.say(entry, entry.word("messageId"), format!("{} has no partId", entry.event_type));
    }
}

/// What failed says why.
pub(super) fn failures(log: &Log, out: &mut Out<'_>) {
    use EventType as E;
    for entry in &log.entries {
        if !matches!(entry.event_type, E::ToolFailed | E::RunFailed | E::ArtifactFailed) || entry.seen.is_withheld() {
            continue;
        }
        let says = match entry.get("error") {
            Some(Value::Object(error)) => error.get("message").and_then(Value::as_str).is_some_and(|message| !message.is_empty()),
            Some(error) => error.is_string(),
            None => entry.event_type == E::ArtifactFailed && (entry.has("reason") || entry.has("message")),
        };
        if !says {
            let id = entry.word("toolCallId").or_else(|| entry.word("artifactId"));
            out.say(entry, id, format!("{} has no error message", entry.event_type));
        }
    }
}

/// A snapshot of messages says of each which it is, whose, and of what parts.
pub(super) fn snapshots(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.event_type == EventType::MessagesSnapshot) {
        let Some(messages) = entry.seen.get("messages").and_then(Value::as_array) else {
            out.say(entry, None, "messages.snapshot has no messages".into());
            continue;
        };
        for (n, message) in messages.iter().enumerate() {
            let is_text = |member: &str| message.get(member).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            let mut lacks: Vec<&str> = ["messageId", "role"].into_iter().filter(|member| !is_text(member)).collect();
            if !message.get("parts").is_some_and(Value::is_array) {
                lacks.push("parts");
            }
            if !lacks.is_empty() {
                let id = message.get("messageId").and_then(Value::as_str);
                out.say(entry, id, format!("message {n} of the snapshot lacks {}", lacks.join(", ")));
            }
        }
    }
}
