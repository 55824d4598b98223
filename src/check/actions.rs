//! What waits for somebody: asked with what it takes to answer, and answered by its owner alone.

use super::Out;
use super::log::{Entry, Log};
use super::things::actions;
use crate::model::EventType;

/// The seed's action types, and what each card must show: one of each group.
#[rustfmt::skip]
const KINDS: &[(&str, &[&[&str]])] = &[
    ("tool_approval", &[&["toolName", "toolCallId"], &["input", "safeInput", "parameters", "toolCallId"], &["risk", "scope", "policyScope", "payload"]]),
    ("plan_decision", &[]),
    ("teammate_plan_decision", &[&["agentId"]]),
    ("structured_input", &[&["schema", "options"]]),
    ("clarification", &[&["message"]]),
    ("permission_grant", &[&["policyScope", "message"]]),
    ("delegated_permission", &[&["agentId"]]),
    ("credential_request", &[&["message", "schema"]]),
    ("artifact_review", &[&["artifactId", "artifactRefs", "refs"]]),
];

/// Kinds that somebody else than the run's own agent asks for.
const DELEGATED: &[&str] = &["delegated_permission", "teammate_plan_decision"];

/// How an action is answered.
const OUTCOMES: &[&str] = &["approved", "rejected", "answered", "cancelled", "expired"];

/// What is resolved was required.
pub(super) fn never_required(log: &Log, out: &mut Out<'_>) {
    for action in actions(log).iter().filter(|action| !action.is_announced) {
        out.say(action.begun, Some(&action.id), format!("action {} is resolved and was never required", action.id));
    }
}

/// What is required is resolved before the run ends. A run that waits has not ended.
pub(super) fn pending_at_end(log: &Log, out: &mut Out<'_>) {
    for action in actions(log).iter().filter(|action| action.end.is_none()) {
        if let Some(end) = action.cut {
            let told = format!(
                "action {} is still pending when the run ends with {} at sequence {}",
                action.id, end.event_type, end.sequence
            );
            out.say(action.begun, Some(&action.id), told);
        }
    }
}

/// An action is resolved once.
pub(super) fn resolved_twice(log: &Log, out: &mut Out<'_>) {
    for action in &actions(log) {
        for again in &action.again {
            let first = action.end.map_or(0, |end| end.sequence);
            out.say(again, Some(&action.id), format!("action {} was resolved at sequence {first} already", action.id));
        }
    }
}

fn of_class(log: &Log, class: EventType) -> impl Iterator<Item = &Entry> {
    log.entries.iter().filter(move |entry| entry.event_type == class)
}

/// Actions are of the kinds that the seed names.
pub(super) fn kinds(log: &Log, out: &mut Out<'_>) {
    for entry in of_class(log, EventType::ActionRequired) {
        let id = entry.word("actionId");
        match entry.text("kind") {
            None => out.say(entry, id, format!("action {} has no kind", id.unwrap_or_default())),
            Some(kind) if !KINDS.iter().any(|(name, _)| *name == kind) => {
                out.say(entry, id, format!("action {} is of the kind {kind:?}, which nobody knows", id.unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
}

/// A card has what its kind must show.
pub(super) fn shapes(log: &Log, out: &mut Out<'_>) {
    for entry in of_class(log, EventType::ActionRequired) {
        let Some((kind, shape)) = KINDS.iter().find(|(name, _)| entry.text("kind") == Some(name)) else { continue };
        let lacks = entry.lacks(shape);
        // Who asks by way of another is a rule of its own.
        if !lacks.is_empty() && !DELEGATED.contains(kind) {
            let id = entry.word("actionId");
            out.say(entry, id, format!("{kind} {} has no {}", id.unwrap_or_default(), lacks.join(", no ")));
        }
    }
}

/// Who asks by way of another is named.
pub(super) fn delegated(log: &Log, out: &mut Out<'_>) {
    for entry in of_class(log, EventType::ActionRequired) {
        let Some(kind) = entry.text("kind").filter(|kind| DELEGATED.contains(kind)) else { continue };
        if !entry.has("agentId") {
            let id = entry.word("actionId");
            out.say(entry, id, format!("{kind} {} has no agentId: nobody knows which teammate asks", id.unwrap_or_default()));
        }
    }
}

/// And what it is about, and by which way its answer goes back.
pub(super) fn delegated_details(log: &Log, out: &mut Out<'_>) {
    for entry in of_class(log, EventType::ActionRequired) {
        let Some(kind) = entry.text("kind").filter(|kind| DELEGATED.contains(kind)) else { continue };
        let lacks = entry.lacks(&[&["policyScope"], &["safeInput", "input"], &["parentRouting"]]);
        if !lacks.is_empty() {
            let id = entry.word("actionId");
            out.say(entry, id, format!("{kind} {} has no {}", id.unwrap_or_default(), lacks.join(", no ")));
        }
    }
}

/// A resolution says how it came out.
pub(super) fn outcomes(log: &Log, out: &mut Out<'_>) {
    for entry in of_class(log, EventType::ActionResolved).filter(|entry| !entry.seen.is_withheld()) {
        let id = entry.word("actionId");
        match entry.text("outcome") {
            None => out.say(entry, id, format!("action {} is resolved without an outcome", id.unwrap_or_default())),
            Some(outcome) if !OUTCOMES.contains(&outcome) => {
                out.say(entry, id, format!("action {} has the outcome {outcome:?}, which nobody knows", id.unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
}
