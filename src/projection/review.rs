//! `review`: a request to a reviewer or verifier, and its verdict, in one activity.

use super::seen::Seen;
use super::{Scene, carry, lifecycle};
use crate::model::{EventType, Phase, Surface};

/// Verdicts that are also a status.
const VERDICTS: &[&str] = &["passed", "changes_requested", "failed"];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let is_request = match seen.class {
        EventType::ReviewRequested => true,
        EventType::ReviewCompleted => false,
        _ => return,
    };
    let Some(id) = carry::name(seen, &["reviewId"]) else { return };
    let mut edit = scene.stage.open("review", &id, Surface::ReviewLane, seen.ids.agent.as_ref());
    lifecycle::lift(&mut edit);
    edit.remove("withheld");
    if is_request {
        // A new request reopens the verdict.
        edit.remove("verdict");
        edit.remove("requestedFixes");
    }
    let by_class = match (is_request, &seen.phase) {
        (true, _) => "requested",
        (false, Phase::Failed) => "failed",
        (false, Phase::Cancelled) => "cancelled",
        (false, _) => seen.text("verdict").filter(|verdict| VERDICTS.contains(verdict)).unwrap_or("completed"),
    };
    edit.say("status", seen.text("status").unwrap_or(by_class));
    if seen.is_withheld() {
        return edit.set("withheld", true);
    }
    #[rustfmt::skip]
    carry::members(seen, &mut edit, &[
        "reviewer", "target", "verdict", "evidenceRefs", "artifactRefs", "requestedFixes", "summary", "reason", "title",
        "topology",
    ]);
    carry::ids(seen, &mut edit, &["evidenceId", "artifactId", "taskId", "agentId"]);
    carry::refs(seen, &mut edit);
}
