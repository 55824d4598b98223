//! The ends of activities, and the activities that stay open when their run ends.
//!
//! A teammate, task, hand-off, review or artifact may outlive its run, so the run's end does not end it. But its facts
//! come from the run's log. So an open one becomes `stale`, and a running one also gets the status `unknown`: no client
//! shows work that no runtime reports. The next fact about it removes the mark.

use super::Scene;
use super::stage::Edit;
use serde_json::{Map, Value};

/// The member of a content, and the values of it that state an end. An unlisted value ends nothing.
pub struct Ends(pub &'static str, pub &'static [&'static str]);

impl Ends {
    /// For records that are not processes, and for types whose end only their source knows.
    pub const NEVER: Self = Self("status", &[]);
    pub const TEXT: Self = Self("status", &["complete", "interrupted"]);
    pub const CALL: Self = Self("state", &["output-available", "output-error", "cancelled"]);
    pub const ACTION: Self = Self("status", &["resolved", "interrupted"]);
    pub const RUN: Self = Self("status", &["completed", "failed", "cancelled", "interrupted"]);
    /// For tasks and teammates: seed 003's values and other spellings of them.
    #[rustfmt::skip]
    pub const WORK: Self = Self("status", &[
        "completed", "done", "failed", "cancelled", "canceled", "killed", "closed", "rejected", "removed", "interrupted", "stopped",
        "succeeded", "expired",
    ]);
    #[rustfmt::skip]
    pub const HANDOFF: Self = Self("status", &[
        "accepted", "returned", "resumed", "completed", "done", "failed", "cancelled", "canceled", "rejected", "declined", "expired",
    ]);
    #[rustfmt::skip]
    pub const REVIEW: Self = Self("status", &[
        "passed", "changes_requested", "failed", "completed", "done", "cancelled", "canceled", "approved", "rejected",
    ]);
    pub const TEAM: Self = Self("teamPhase", &["done"]);
    pub const ARTIFACT: Self = Self("status", &["failed", "deleted"]);
    pub const SESSION: Self = Self("status", &["closed"]);

    /// Whether an activity with this content has ended.
    #[must_use]
    pub fn hold(&self, content: &Map<String, Value>) -> bool {
        content.get(self.0).and_then(Value::as_str).is_some_and(|value| self.1.contains(&value))
    }
}

/// Statuses of an artifact in production. Any other status is of an existing artifact.
const IN_THE_MAKING: &[&str] = &["running", "streaming", "exporting", "producing", "preparing", "pending", "working"];

/// Statuses of work in progress.
const AT_WORK: &[&str] = &["running", "streaming"];

pub(super) fn leave_agents(scene: &mut Scene) {
    leave("agent", scene, |content| !Ends::WORK.hold(content));
}

pub(super) fn leave_tasks(scene: &mut Scene) {
    leave("task", scene, |content| !Ends::WORK.hold(content));
}

pub(super) fn leave_handoffs(scene: &mut Scene) {
    leave("handoff", scene, |content| !Ends::HANDOFF.hold(content));
}

pub(super) fn leave_reviews(scene: &mut Scene) {
    leave("review", scene, |content| !Ends::REVIEW.hold(content));
}

pub(super) fn leave_artifacts(scene: &mut Scene) {
    leave("artifact", scene, |content| Ends("status", IN_THE_MAKING).hold(content));
}

fn leave(kind: &str, scene: &mut Scene, is_open: impl Fn(&Map<String, Value>) -> bool) {
        // A fact after the run's end is current news about the activity.
    if !scene.is_run || scene.is_late {
        return;
    }
    for id in scene.stage.ids(kind, |activity| is_open(&activity.content)) {
        let mut edit = scene.stage.edit(kind, &id).expect("the id was listed above");
        if edit.text("status").is_some_and(|status| AT_WORK.contains(&status)) {
            edit.say("status", "unknown");
        }
        edit.set("stale", true);
    }
}

/// Removes the `stale` mark, because a fact about the activity arrived.
pub(super) fn lift(edit: &mut Edit<'_>) {
    edit.remove("stale");
}
