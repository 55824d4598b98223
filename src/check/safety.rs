//! Rules for content that does not belong in a log, or not in a log for every audience.
//!
//! They cover secrets, large bodies, diagnostics, a runtime's internals and client state, and the diagnostics that the
//! server logged when it accepted the facts.

use super::Findings;
use super::lifecycles::{compactions, streams};
use super::log::{CheckedLog, Entry};
use crate::guard::{Policy, redact_text, redact_value, stays_inline};
use crate::model::{Audience, EventType, TEXT_BYTES_MAX};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Returns the text member of a chunk.
///
/// A chunk may hold half a secret, so the rule examines the joined stream.
fn streamed_member(entry: &Entry) -> Option<&'static str> {
    use EventType as E;
    match entry.event_type {
        E::TextDelta | E::ReasoningDelta | E::PlanDelta | E::ToolOutputDelta => Some("text"),
        E::ToolArgs if entry.view.member("input").is_none() => Some("inputText"),
        _ => None,
    }
}

/// Returns the JSON pointer of the first difference.
fn first_difference(before: &Value, after: &Value) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            // Redaction replaced a member name that is itself a secret, so the finding must not repeat it.
            before.iter().find_map(|(member, value)| match after.get(member) {
                Some(after) => first_difference(value, after).map(|rest| format!("/{member}{rest}")),
                None => Some("/[the name of a member]".into()),
            })
        }
        (Value::Array(before), Value::Array(after)) => {
            (0..).zip(before.iter().zip(after)).find_map(|(n, (a, b))| first_difference(a, b).map(|rest| format!("/{n}{rest}")))
        }
        (before, after) => (before != after).then(String::new),
    }
}

/// Rejects text that looks like a secret. The finding names the place and never the text.
pub(super) fn secrets(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let mut before = entry.envelope.clone();
        if let Some(payload) = before.get_mut("payload").and_then(Value::as_object_mut) {
            streamed_member(entry).and_then(|member| payload.shift_remove(member));
        }
        let before = Value::Object(before);
        let mut after = before.clone();
        redact_value(&mut after);
        // Redaction leaves a redacted text unchanged.
        if let Some(place) = first_difference(&before, &after) {
            findings.report(entry, None, format!("{} contains text that looks like a secret at {place}", entry.event_type));
        }
    }
    let is_secret = |text: &str| matches!(redact_text(text), Cow::Owned(_));
    for part in streams(log).parts.iter().filter(|part| is_secret(&part.text)) {
        let message =
            format!("the stream of {} part {} contains text that looks like a secret", part.key.channel.name(), part.id());
        findings.report(part.last, Some(&part.id()), message);
    }
    let mut streams: BTreeMap<(&str, &str, &str), (&Entry, String)> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| entry.is_in_family("tool.")) {
        let (Some(member), Some(call)) = (streamed_member(entry), entry.envelope_text("toolCallId")) else { continue };
        let (last, text) =
            streams.entry((call, member, entry.payload_text("channel").unwrap_or_default())).or_insert((entry, String::new()));
        *last = entry;
        text.push_str(entry.view.text(member).unwrap_or_default());
    }
    for ((call, member, _), (last, _)) in streams.iter().filter(|(_, (_, text))| is_secret(text)) {
        let stream = if *member == "text" { "output" } else { "argument" };
        findings.report(last, Some(call), format!("the {stream} stream of call {call} contains text that looks like a secret"));
    }
}

/// The members with a tool's output, which the server offloads as a whole.
const OUTPUT_MEMBERS: &[&str] = &["output", "structured", "content", "result"];

/// Returns the size of the largest text in a value, in bytes, and its JSON pointer.
fn largest_text(value: &Value) -> (usize, String) {
    let inside = |(name, value): (String, &Value)| {
        let (bytes, at) = largest_text(value);
        (bytes, format!("/{name}{at}"))
    };
    match value {
        Value::String(text) => (text.len(), String::new()),
        Value::Array(items) => {
            (0..).zip(items).map(|(n, item): (usize, _)| inside((n.to_string(), item))).max().unwrap_or_default()
        }
        Value::Object(map) => map.iter().map(|(name, value)| inside((name.clone(), value))).max().unwrap_or_default(),
        _ => (0, String::new()),
    }
}

/// Requires a reference in place of a large body.
pub(super) fn large_bodies(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let is_custom = entry.view.member("activityType").is_some();
        for (member, value) in entry.payload() {
            let bytes_max = match stays_inline(&entry.event_type, is_custom, member) {
                true => TEXT_BYTES_MAX,
                false => Policy::default().inline_bytes_max,
            };
            let (bytes, at) = match OUTPUT_MEMBERS.contains(&member.as_str()) && !value.is_string() {
                true => (value.to_string().len(), String::new()),
                false => largest_text(value),
            };
            if bytes > bytes_max {
                let message =
                    format!("{} holds {bytes} bytes inline at /payload/{member}{at}, the limit is {bytes_max}", entry.event_type);
                findings.report(entry, entry.envelope_text("toolCallId"), message);
            }
        }
    }
}

/// The members that hold an artifact's body.
const BODY_MEMBERS: &[&str] = &["body", "content", "contents", "data", "base64", "html", "markdown"];

/// Rejects artifact bodies outside the event that creates their version, which a client reads on demand.
pub(super) fn artifact_bodies(log: &CheckedLog, findings: &mut Findings<'_>) {
    let is_own = |entry: &&Entry| entry.event_type == EventType::ArtifactVersionCreated;
    for entry in log.entries.iter().filter(|entry| entry.is_in_family("artifact.") && !is_own(entry)) {
        if let Some(member) = BODY_MEMBERS.iter().find(|member| entry.has(member)) {
            let id = entry.envelope_text("artifactId");
            let message = format!("{} of artifact {} contains the body in {member}", entry.event_type, id.unwrap_or("unknown"));
            findings.report(entry, id, message);
        }
    }
}

/// Rejects diagnostics and metrics for the user audience.
///
/// An application's own data for its page (the AI SDK's transient parts) is no diagnosis: it has the surface `custom`.
pub(super) fn diagnostics_audience(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_in_family("diagnostic.") || entry.is_in_family("metric.")) {
        if entry.audience() == Some(Audience::User) && entry.envelope_text("surface") != Some("custom") {
            findings.report(entry, None, format!("{} has the audience user", entry.event_type));
        }
    }
}

/// Returns whether any member name in the value begins with the prefix.
fn has_member_with_prefix(value: &Value, prefix: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| name.starts_with(prefix) || has_member_with_prefix(value, prefix)),
        Value::Array(items) => items.iter().any(|item| has_member_with_prefix(item, prefix)),
        _ => false,
    }
}

/// Rejects a runtime's internals for any audience but the internal one.
pub(super) fn internals(log: &CheckedLog, findings: &mut Findings<'_>) {
    let has = |entry: &&Entry| {
        entry.payload().any(|(name, value)| name.starts_with("__runtime") || has_member_with_prefix(value, "__runtime"))
    };
    for entry in log.entries.iter().filter(|entry| entry.audience() != Some(Audience::Internal) && has(entry)) {
        let audience = entry.envelope_text("audience").unwrap_or("unknown");
        findings.report(
            entry,
            None,
            format!("{} has the audience {audience} and contains runtime internals (__runtime)", entry.event_type),
        );
    }
}

/// Rejects a client's own state, such as collapsed panels and drafts.
pub(super) fn screen_state(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in &log.entries {
        let owner = entry.envelope_text("owner").filter(|owner| *owner == "ui_projection");
        let persistence = entry.envelope_text("persistence").filter(|persistence| *persistence == "ui_local");
        if let Some(value) = owner.or(persistence) {
            findings.report(entry, None, format!("{} is a client's own state ({value})", entry.event_type));
        }
    }
}

/// Requires the end of a compaction.
pub(super) fn compaction_never_ended(log: &CheckedLog, findings: &mut Findings<'_>) {
    for compaction in compactions(log).iter().filter(|compaction| compaction.end.is_none()) {
        findings.report(
            compaction.first_entry,
            Some(&compaction.id),
            format!("compaction {} is {}", compaction.id, compaction.describe_open()),
        );
    }
}

/// Reports events that the server's adapter could not map.
pub(super) fn malformed(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_server_diagnostic(&["malformed_event", "unknown_outcome"])) {
        let event = entry.payload_text("eventType").unwrap_or("an event");
        let reason = match (entry.payload_text("expected"), entry.payload_text("outcome")) {
            (Some(expected), _) => format!("expected {expected}"),
            (None, Some(outcome)) => format!("the outcome {outcome:?} is unknown"),
            (None, None) => "the diagnostic contains the whole event".to_owned(),
        };
        findings.report(entry, None, format!("the adapter could not map {event}: {reason}"));
    }
}

/// Reports events of another run in one ingest stream.
pub(super) fn interleaved(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_server_diagnostic(&["interleaved_run"])) {
        let event = entry.payload_text("eventType").unwrap_or("an event");
        let open = entry.payload_text("openRun").map_or_else(String::new, |run| format!(" {run}"));
        findings.report(entry, entry.payload_text("openRun"), format!("{event} of another run came while run{open} was open"));
    }
}

/// Reports patches that the projection could not apply.
pub(super) fn patches(log: &CheckedLog, findings: &mut Findings<'_>) {
    for (sequence, diagnostic) in &log.failed_patches {
        let text = |member: &str| diagnostic.get(member).and_then(Value::as_str);
        // The state of a run has neither type nor id.
        let target = match (text("activityType"), text("activityId")) {
            (Some(kind), Some(id)) => format!("{kind} {id}"),
            (kind, _) => kind.unwrap_or("state").to_owned(),
        };
        let message = format!("a patch of {target} does not apply: {}", text("error").unwrap_or("the reason is unknown"));
        findings.report_at(*sequence, text("activityId"), message);
    }
}
