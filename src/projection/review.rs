//! `review`: a request to a reviewer or verifier, and its verdict, in one activity.

use super::envelope_view::EnvelopeView;
use super::{FoldState, carry, lifecycle};
use crate::model::{EventType, Phase, Surface};

/// Verdicts that are also a status.
const VERDICTS: &[&str] = &["passed", "changes_requested", "failed"];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_request = match envelope.event_type {
        EventType::ReviewRequested => true,
        EventType::ReviewCompleted => false,
        _ => return,
    };
    let Some(id) = carry::name(envelope, &["reviewId"]) else { return };
    let mut edit = fold.activities.open("review", &id, Surface::ReviewLane, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    edit.remove("withheld");
    if is_request {
        // A new request reopens the verdict.
        edit.remove("verdict");
        edit.remove("requestedFixes");
    }
    let by_class = match (is_request, &envelope.phase) {
        (true, _) => "requested",
        (false, Phase::Failed) => "failed",
        (false, Phase::Cancelled) => "cancelled",
        (false, _) => envelope.text("verdict").filter(|verdict| VERDICTS.contains(verdict)).unwrap_or("completed"),
    };
    edit.set_str("status", envelope.text("status").unwrap_or(by_class));
    if envelope.is_withheld() {
        return edit.set("withheld", true);
    }
    #[rustfmt::skip]
    carry::members(envelope, &mut edit, &[
        "reviewer", "target", "verdict", "evidenceRefs", "artifactRefs", "requestedFixes", "summary", "reason", "title",
        "topology",
    ]);
    carry::ids(envelope, &mut edit, &["evidenceId", "artifactId", "taskId", "agentId"]);
    carry::refs(envelope, &mut edit);
}
