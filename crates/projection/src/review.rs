//! `review`: a request to a reviewer or verifier, and its verdict, in one activity.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Mark, STALE_ABOUT, Str, TOPOLOGY_ABOUT, WITHHELD, WITHHELD_ABOUT, content};
use super::{FoldState, carry, lifecycle, topology_schema};
use proscenium_model::fact::ReviewFact;
use proscenium_model::{EventType, Phase, Surface};
use serde_json::Value;

content! {
    REVIEW = "review" of ReviewFact { VERDICT = "verdict", REQUESTED_FIXES = "requestedFixes" }, "A request to a reviewer, and its verdict.";
    "status": Str, Always as STATUS,
        "requested, reviewing, passed, changes_requested, failed and others; completed if no verdict states more.";
    "refs": Any, Sometimes, "Further references.";
    "topology": Str, Sometimes with topology_schema(), TOPOLOGY_ABOUT;
    "stale": Mark, Sometimes, STALE_ABOUT;
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
}

/// Verdicts that are also a status.
const VERDICTS: &[&str] = &["passed", "changes_requested", "failed"];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_request = match envelope.event_type {
        EventType::ReviewRequested => true,
        EventType::ReviewCompleted => false,
        _ => return,
    };
    let fact = envelope.fact();
    let ReviewFact { review, status, verdict, extra: _ } = &*fact;
    let Some(id) = carry::name([review]) else { return };
    let mut edit = fold.activities.open("review", &id, Surface::ReviewLane, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    edit.remove(WITHHELD);
    if is_request {
        // A new request reopens the verdict.
        edit.remove(VERDICT);
        edit.remove(REQUESTED_FIXES);
    }
    let by_class = match (is_request, &envelope.phase) {
        (true, _) => "requested",
        (false, Phase::Failed) => "failed",
        (false, Phase::Cancelled) => "cancelled",
        (false, _) => {
            let verdict = verdict.as_deref().and_then(Value::as_str);
            verdict.filter(|verdict| VERDICTS.contains(verdict)).unwrap_or("completed")
        }
    };
    edit.set(STATUS, status.as_deref().unwrap_or(by_class));
    if envelope.is_withheld() {
        return edit.set(WITHHELD, true);
    }
    carry::copied::<ReviewFact>(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["evidenceId", "artifactId", "taskId", "agentId"]);
    carry::refs(envelope, &mut edit);
}
