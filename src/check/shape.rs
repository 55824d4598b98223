//! Rules for the members of an envelope, and for the members that each event type requires.

use super::Findings;
use super::lifecycles::is_custom;
use super::log::{CheckedLog, Entry};
use crate::model::{Audience, Control, EventType, MemberRef, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde_json::Value;

/// Requires the envelope's own members with their types.
pub(super) fn members(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        for fault in &entry.faults {
            findings.report(entry, None, format!("{}: {fault}", entry.event_type));
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

/// Requires dimension values of the seed.
pub(super) fn dimensions(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        for (dimension, names) in DIMENSIONS {
            if let Some(value) = entry.envelope_text(dimension).filter(|value| !names.contains(value)) {
                findings.report(entry, None, format!("{}: {dimension} has the unknown value {value:?}", entry.event_type));
            }
        }
    }
}

/// Requires event types of the seed.
pub(super) fn event_types(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        if let EventType::Other(event_type) = &entry.event_type {
            findings.report(entry, None, format!("the event type {event_type:?} is unknown"));
        } else if entry.is_server_diagnostic(&["unknown_event_type"]) {
            let event_type = entry.payload_text("eventType").unwrap_or("unnamed");
            findings.report(
                entry,
                None,
                format!("the source sent an event type that its adapter does not support: {event_type:?}"),
            );
        }
    }
}

/// Requires one of the three audiences.
pub(super) fn audiences(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let own = entry.envelope.get("audience").filter(|_| entry.audience().is_none());
        let is_unknown = |audience: &&Value| audience.as_str().is_none_or(|name| Audience::parse(name).is_none());
        if let Some(audience) = own.or_else(|| entry.envelope.get("sourceAudience")).filter(is_unknown) {
            findings.report(
                entry,
                None,
                format!("{}: the audience {audience} is unknown and counts as internal", entry.event_type),
            );
        }
    }
}

/// Returns the ids that an event type requires: one per group.
fn required_ids(entry: &Entry) -> &'static [&'static [&'static str]] {
    use EventType as E;
    match &entry.event_type {
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => &[&["messageId"]],
        E::ToolProgress if is_custom(entry) => &[&["toolCallId", "messageId"]],
        // A source that cannot assign progress to one call reports it for the turn.
        E::ToolProgress if entry.envelope_text("scope").is_some_and(|scope| scope != "tool_call") => &[],
        E::ToolFailed if entry.view.is_hidden_failure() => &[],
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => &[&["toolCallId"]],
        E::ActionRequired | E::ActionResolved | E::ActionReminded | E::ActionEscalated => &[&["actionId"]],
        E::EvidenceChanged => &[&["evidenceId"]],
        E::AgentSpawned | E::AgentChanged | E::AgentCompleted => &[&["agentId"]],
        E::TaskChanged => &[&["taskId", "workItemId", "remoteTaskId"]],
        E::ReviewRequested | E::ReviewCompleted => &[&["reviewId", "evidenceId"]],
        E::TeamChanged => &[&["teamId", "teamName"]],
        _ if entry.is_in_family("artifact.") => &[&["artifactId"]],
        _ => &[],
    }
}

/// Requires the id of the fact's subject.
pub(super) fn ids(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        for group in required_ids(entry).iter().filter(|group| !group.iter().any(|id| entry.has(id))) {
            findings.report(entry, None, format!("{} has no {}", entry.event_type, group.join(" or ")));
        }
    }
}

/// Requires the part id of a chunk.
pub(super) fn part_ids(log: &CheckedLog, findings: &mut Findings<'_>) {
    use EventType as E;
    let is_chunk = |entry: &&Entry| matches!(entry.event_type, E::TextDelta | E::ReasoningDelta | E::PlanDelta);
    for entry in log.entries.iter().filter(is_chunk).filter(|entry| !entry.has("partId")) {
        findings.report(entry, entry.envelope_text("messageId"), format!("{} has no partId", entry.event_type));
    }
}

/// Requires an error message of a failure.
pub(super) fn failures(log: &CheckedLog, findings: &mut Findings<'_>) {
    use EventType as E;
    for entry in &log.entries {
        if !matches!(entry.event_type, E::ToolFailed | E::RunFailed | E::ArtifactFailed) || entry.view.is_withheld() {
            continue;
        }
        let has_message = match entry.get("error") {
            Some(MemberRef::Value(Value::Object(error))) => {
                error.get("message").and_then(Value::as_str).is_some_and(|message| !message.is_empty())
            }
            Some(error) => error.text().is_some(),
            None => entry.event_type == E::ArtifactFailed && (entry.has("reason") || entry.has("message")),
        };
        if !has_message {
            let id = entry.envelope_text("toolCallId").or_else(|| entry.envelope_text("artifactId"));
            findings.report(entry, id, format!("{} has no error message", entry.event_type));
        }
    }
}

/// Requires the id, role and parts of each message in a snapshot.
pub(super) fn snapshots(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.event_type == EventType::MessagesSnapshot) {
        let Some(messages) = entry.view.get("messages").and_then(MemberRef::list) else {
            findings.report(entry, None, "messages.snapshot has no messages".into());
            continue;
        };
        for (n, message) in messages.iter().enumerate() {
            let is_text = |member: &str| message.get(member).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            let mut missing: Vec<&str> = ["messageId", "role"].into_iter().filter(|member| !is_text(member)).collect();
            if !message.get("parts").is_some_and(Value::is_array) {
                missing.push("parts");
            }
            if !missing.is_empty() {
                let id = message.get("messageId").and_then(Value::as_str);
                findings.report(entry, id, format!("message {n} of the snapshot has no {}", missing.join(", no ")));
            }
        }
    }
}
