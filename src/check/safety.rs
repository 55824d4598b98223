//! What must not be in a log, or not for everybody: secrets, bodies, diagnostics, a runtime's internals, the state of a screen;
//! and what the server noted as it took the facts.

use super::Out;
use super::log::{Entry, Log};
use super::things::{compactions, speech};
use crate::guard::{Policy, redact_text, redact_value};
use crate::model::{Audience, EventType};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The member of a chunk: half a secret is none, so what is streamed is judged as a whole.
fn streamed(entry: &Entry) -> Option<&'static str> {
    use EventType as E;
    match entry.event_type {
        E::TextDelta | E::ReasoningDelta | E::PlanDelta | E::ToolOutputDelta => Some("text"),
        E::ToolArgs if entry.seen.member("input").is_none() => Some("inputText"),
        _ => None,
    }
}

/// The first place, as a JSON pointer, at which the two differ.
fn first_difference(before: &Value, after: &Value) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            // A member whose name is a secret has another one now, and must not be told.
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

/// Nothing looks like a secret. The finding says where, never what.
pub(super) fn secrets(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        let mut before = entry.map.clone();
        if let Some(payload) = before.get_mut("payload").and_then(Value::as_object_mut) {
            streamed(entry).and_then(|member| payload.shift_remove(member));
        }
        let before = Value::Object(before);
        let mut after = before.clone();
        redact_value(&mut after);
        // What was redacted before is the same again.
        if let Some(place) = first_difference(&before, &after) {
            out.say(entry, None, format!("{} holds what looks like a secret at {place}", entry.event_type));
        }
    }
    let is_secret = |text: &str| matches!(redact_text(text), Cow::Owned(_));
    for part in speech(log).parts.iter().filter(|part| is_secret(&part.text)) {
        let told = format!("what is streamed as {} part {} holds what looks like a secret", part.of.channel.name(), part.id());
        out.say(part.last, Some(&part.id()), told);
    }
    let mut streams: BTreeMap<(&str, &str, &str), (&Entry, String)> = BTreeMap::new();
    for entry in log.entries.iter().filter(|entry| entry.is_of("tool.")) {
        let (Some(member), Some(call)) = (streamed(entry), entry.word("toolCallId")) else { continue };
        let (last, text) =
            streams.entry((call, member, entry.text("channel").unwrap_or_default())).or_insert((entry, String::new()));
        *last = entry;
        text.push_str(entry.seen.text(member).unwrap_or_default());
    }
    for ((call, member, _), (last, _)) in streams.iter().filter(|(_, (_, text))| is_secret(text)) {
        let what = if *member == "text" { "the output" } else { "the arguments" };
        out.say(last, Some(call), format!("{what} streamed of call {call} holds what looks like a secret"));
    }
}

/// Members that are opened rather than folded: they go out of an envelope whole.
const OUTPUTS: &[&str] = &["output", "structured", "content", "result"];

/// The largest text in a value, in bytes, and where it stands.
fn largest(value: &Value) -> (usize, String) {
    let inside = |(name, value): (String, &Value)| {
        let (bytes, at) = largest(value);
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

/// Large bodies are elsewhere, and the envelope refers to them.
pub(super) fn large_bodies(log: &Log, out: &mut Out<'_>) {
    let bytes_max = Policy::default().inline_bytes_max;
    for entry in &log.entries {
        for (member, value) in &entry.seen.payload {
            let (bytes, at) = match OUTPUTS.contains(&member.as_str()) && !value.is_string() {
                true => (value.to_string().len(), String::new()),
                false => largest(value),
            };
            if bytes > bytes_max {
                let told =
                    format!("{} holds {bytes} bytes inline at /payload/{member}{at}, the limit is {bytes_max}", entry.event_type);
                out.say(entry, entry.word("toolCallId"), told);
            }
        }
    }
}

/// Members that hold an artifact's body.
const BODIES: &[&str] = &["body", "content", "contents", "data", "base64", "html", "markdown"];

/// An artifact's body is in its workspace.
pub(super) fn artifact_bodies(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_of("artifact.")) {
        if let Some(member) = BODIES.iter().find(|member| entry.has(member)) {
            let id = entry.word("artifactId");
            let told = format!("{} of artifact {} holds its body in {member}", entry.event_type, id.unwrap_or("unknown"));
            out.say(entry, id, told);
        }
    }
}

/// Diagnostics and metrics are not for users.
pub(super) fn diagnostics_audience(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.is_of("diagnostic.") || entry.is_of("metric.")) {
        if entry.audience() == Some(Audience::User) {
            out.say(entry, None, format!("{} is for users", entry.event_type));
        }
    }
}

/// Whether a member's name anywhere in the value begins so.
fn names(value: &Value, prefix: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| name.starts_with(prefix) || names(value, prefix)),
        Value::Array(items) => items.iter().any(|item| names(item, prefix)),
        _ => false,
    }
}

/// A runtime's internals are for internal eyes.
pub(super) fn internals(log: &Log, out: &mut Out<'_>) {
    let has = |payload: &Map<String, Value>| {
        payload.iter().any(|(name, value)| name.starts_with("__runtime") || names(value, "__runtime"))
    };
    for entry in log.entries.iter().filter(|entry| entry.audience() != Some(Audience::Internal) && has(&entry.seen.payload)) {
        let audience = entry.word("audience").unwrap_or("unknown");
        out.say(entry, None, format!("{} for the audience {audience} holds a runtime's internals (__runtime)", entry.event_type));
    }
}

/// What a client folds away or drafts is no fact.
pub(super) fn screen_state(log: &Log, out: &mut Out<'_>) {
    for entry in &log.entries {
        let owner = entry.word("owner").filter(|owner| *owner == "ui_projection");
        let kept = entry.word("persistence").filter(|kept| *kept == "ui_local");
        if let Some(what) = owner.or(kept) {
            out.say(entry, None, format!("{} is a client's own state ({what})", entry.event_type));
        }
    }
}

/// A compaction that starts completes.
pub(super) fn compaction_never_ended(log: &Log, out: &mut Out<'_>) {
    for compaction in compactions(log).iter().filter(|compaction| compaction.end.is_none()) {
        out.say(compaction.begun, Some(&compaction.id), format!("compaction {} is {}", compaction.id, compaction.left()));
    }
}

/// Every event could be told as what it says it is.
pub(super) fn malformed(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.notes(&["malformed_event", "unknown_outcome"])) {
        let event = entry.text("eventType").unwrap_or("an event");
        let how = match (entry.text("expected"), entry.text("outcome")) {
            (Some(expected), _) => format!("expected {expected}"),
            (None, Some(outcome)) => format!("nobody knows the outcome {outcome:?}"),
            (None, None) => "the diagnostic keeps all of it".to_owned(),
        };
        out.say(entry, None, format!("{event} could not be told: {how}"));
    }
}

/// One run at a time.
pub(super) fn interleaved(log: &Log, out: &mut Out<'_>) {
    for entry in log.entries.iter().filter(|entry| entry.notes(&["interleaved_run"])) {
        let event = entry.text("eventType").unwrap_or("an event");
        let open = entry.text("openRun").map_or_else(String::new, |run| format!(" {run}"));
        out.say(entry, entry.text("openRun"), format!("{event} of another run came while run{open} was open"));
    }
}

/// Patches apply.
pub(super) fn patches(log: &Log, out: &mut Out<'_>) {
    for (sequence, note) in &log.notes {
        let text = |member: &str| note.get(member).and_then(Value::as_str);
        // The state of a run has neither type nor id.
        let of = match (text("activityType"), text("activityId")) {
            (Some(kind), Some(id)) => format!("{kind} {id}"),
            (kind, _) => kind.unwrap_or("state").to_owned(),
        };
        let told = format!("a patch of {of} does not apply: {}", text("error").unwrap_or("nobody said why"));
        out.say_at(*sequence, text("activityId"), told);
    }
}
