//! Rules for actions: a request has the fields that an answer needs, and its owner answers it once.

use super::Findings;
use super::lifecycles::actions;
use super::log::{CheckedLog, Entry};
use crate::model::{ActionOutcome, EventType, MemberRef, options};
use crate::waits::{APPROVALS_MAX, approvals_of};

/// The seed's action types, each with the fields that its card requires: one field per group.
#[rustfmt::skip]
const KINDS: &[(&str, &[&[&str]])] = &[
    ("tool_approval", &[&["toolName", "toolCallId"], &["input", "safeInput", "parameters", "toolCallId"], &["risk", "scope", "policyScope", "payload"]]),
    ("plan_decision", &[]),
    ("teammate_plan_decision", &[&["agentId"]]),
    ("structured_input", &[&["schema", "responseSchema", "options"]]),
    ("clarification", &[&["message"]]),
    ("permission_grant", &[&["policyScope", "message"]]),
    ("delegated_permission", &[&["agentId"]]),
    ("credential_request", &[&["message", "schema", "responseSchema"]]),
    ("artifact_review", &[&["artifactId", "artifactRefs", "refs"]]),
];

/// The kinds of action that a teammate or subagent requests.
const DELEGATED: &[&str] = &["delegated_permission", "teammate_plan_decision"];

/// Requires `action.required` before `action.resolved`.
pub(super) fn never_required(log: &CheckedLog, findings: &mut Findings<'_>) {
    for action in actions(log).iter().filter(|action| !action.has_start) {
        findings.report(action.first_entry, Some(&action.id), format!("action {} is resolved but was never required", action.id));
    }
}

/// Requires that no action is pending when the run ends. A run that waits has not ended.
pub(super) fn pending_at_end(log: &CheckedLog, findings: &mut Findings<'_>) {
    for action in actions(log).iter().filter(|action| action.end.is_none()) {
        if let Some(end) = action.run_end {
            let message = format!(
                "action {} is still pending when the run ends with {} at sequence {}",
                action.id, end.event_type, end.sequence
            );
            findings.report(action.first_entry, Some(&action.id), message);
        }
    }
}

/// Requires at most one resolution per action.
pub(super) fn resolved_twice(log: &CheckedLog, findings: &mut Findings<'_>) {
    for action in &actions(log) {
        for end in &action.repeated_ends {
            let first = action.end.map_or(0, |end| end.sequence);
            findings.report(end, Some(&action.id), format!("action {} was already resolved at sequence {first}", action.id));
        }
    }
}

fn of_type(log: &CheckedLog, event_type: EventType) -> impl Iterator<Item = &Entry> {
    log.entries.iter().filter(move |entry| entry.event_type == event_type)
}

/// Requires a kind of the seed.
pub(super) fn kinds(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionRequired) {
        let id = entry.envelope_text("actionId");
        match entry.payload_text("kind") {
            None => findings.report(entry, id, format!("action {} has no kind", id.unwrap_or_default())),
            Some(kind) if !KINDS.iter().any(|(name, _)| *name == kind) => {
                findings.report(entry, id, format!("action {} has the unknown kind {kind:?}", id.unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
}

/// Requires the fields that the card of this kind shows, and a wait that the server can read.
pub(super) fn shapes(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionRequired) {
        let stated = |member| entry.get(member).map(MemberRef::into_value).filter(|stated| !stated.is_null());
        let id = entry.envelope_text("actionId");
        if let Some(approvals) = stated("approvals").filter(|approvals| !approvals_of(approvals).1) {
            let message =
                format!("action {} has approvals {approvals}, which is not 1 to {APPROVALS_MAX}", id.unwrap_or_default());
            findings.report(entry, id, message);
        }
        if let Some(wish) = stated("onExpiry").filter(|wish| *wish != "reject" && *wish != "approve") {
            let message = format!("action {} has onExpiry {wish}, which is neither reject nor approve", id.unwrap_or_default());
            findings.report(entry, id, message);
        }
        let Some((kind, shape)) = KINDS.iter().find(|(name, _)| entry.payload_text("kind") == Some(name)) else { continue };
        let missing = entry.missing(shape);
        // Rule `delegated-approval` reports a missing `agentId` of these kinds.
        if !missing.is_empty() && !DELEGATED.contains(kind) {
            let id = entry.envelope_text("actionId");
            findings.report(entry, id, format!("{kind} {} has no {}", id.unwrap_or_default(), missing.join(", no ")));
        }
    }
}

/// Requires the id of the agent that requests a delegated action.
pub(super) fn delegated(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionRequired) {
        let Some(kind) = entry.payload_text("kind").filter(|kind| DELEGATED.contains(kind)) else { continue };
        if !entry.has("agentId") {
            let id = entry.envelope_text("actionId");
            findings.report(
                entry,
                id,
                format!("{kind} {} has no agentId, so the requesting teammate is unknown", id.unwrap_or_default()),
            );
        }
    }
}

/// Requires the scope and input of a delegated action, and the route of its answer.
pub(super) fn delegated_details(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionRequired) {
        let Some(kind) = entry.payload_text("kind").filter(|kind| DELEGATED.contains(kind)) else { continue };
        let missing = entry.missing(&[&["policyScope"], &["safeInput", "input"], &["parentRouting"]]);
        if !missing.is_empty() {
            let id = entry.envelope_text("actionId");
            findings.report(entry, id, format!("{kind} {} has no {}", id.unwrap_or_default(), missing.join(", no ")));
        }
    }
}

/// Requires that a plain yes has an option, if options decide the request.
pub(super) fn plain_yes(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionRequired) {
        let Some(options) = entry.get("options") else { continue };
        let offered = options::offered(&options.to_value());
        let approves = entry.payload_text("kind") == Some("tool_approval");
        if (approves || options::decide(&offered)) && options::plain_choice(&offered, true).is_none() {
            let id = entry.envelope_text("actionId");
            findings.report(entry, id, format!("no option of action {} allows it only once", id.unwrap_or_default()));
        }
    }
}

/// Requires a known outcome of a resolution.
pub(super) fn outcomes(log: &CheckedLog, findings: &mut Findings<'_>) {
    for entry in of_type(log, EventType::ActionResolved).filter(|entry| !entry.view.is_withheld()) {
        let id = entry.envelope_text("actionId");
        match entry.payload_text("outcome") {
            None => findings.report(entry, id, format!("action {} is resolved without an outcome", id.unwrap_or_default())),
            Some(outcome) if !ActionOutcome::NAMES.contains(&outcome) => {
                findings.report(entry, id, format!("action {} has the unknown outcome {outcome:?}", id.unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
}
