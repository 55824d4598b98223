//! The ends of activities, and the activities that stay open when their run ends.
//!
//! A teammate, task, hand-off, review or artifact may outlive its run, so the run's end does not end it. But its facts
//! come from the run's log. So an open one becomes `stale`, and a running one also gets the status `unknown`: no client
//! shows work that no runtime reports. The next fact about it removes the mark.

use super::FoldState;
use super::activity_set::Edit;
use super::members::{Member, STALE, Str};
use serde_json::{Map, Value};

/// The member of a content, and the values of it that state an end. An unlisted value ends nothing.
pub struct EndRule(pub &'static str, pub &'static [&'static str]);

impl EndRule {
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
    pub const SURFACE: Self = Self("status", &["failed", "deleted"]);
    pub const SESSION: Self = Self("status", &["closed"]);

    /// Whether an activity with this content has ended.
    #[must_use]
    pub fn is_met(&self, content: &Map<String, Value>) -> bool {
        content.get(self.0).and_then(Value::as_str).is_some_and(|value| self.1.contains(&value))
    }
}

/// The status of work, as its source states it.
const STATUS: Member<Str> = Member::new("status");

/// Statuses of an artifact in production. Any other status is of an existing artifact.
const PRODUCING_STATUSES: &[&str] = &["running", "streaming", "exporting", "producing", "preparing", "pending", "working"];

/// Statuses of work in progress.
const RUNNING_STATUSES: &[&str] = &["running", "streaming"];

pub(super) fn mark_agents_stale(fold: &mut FoldState) {
    mark_stale("agent", fold, |content| !EndRule::WORK.is_met(content));
}

pub(super) fn mark_tasks_stale(fold: &mut FoldState) {
    mark_stale("task", fold, |content| !EndRule::WORK.is_met(content));
}

pub(super) fn mark_handoffs_stale(fold: &mut FoldState) {
    mark_stale("handoff", fold, |content| !EndRule::HANDOFF.is_met(content));
}

pub(super) fn mark_reviews_stale(fold: &mut FoldState) {
    mark_stale("review", fold, |content| !EndRule::REVIEW.is_met(content));
}

pub(super) fn mark_artifacts_stale(fold: &mut FoldState) {
    mark_stale("artifact", fold, |content| EndRule("status", PRODUCING_STATUSES).is_met(content));
}

fn mark_stale(kind: &str, fold: &mut FoldState, is_open: impl Fn(&Map<String, Value>) -> bool) {
    // A fact after the run's end is current news about the activity.
    if !fold.is_run || fold.is_late {
        return;
    }
    for id in fold.activities.ids(kind, |activity| is_open(&activity.content)) {
        let mut edit = fold.activities.edit(kind, &id).expect("the id was listed above");
        if edit.read(STATUS).is_some_and(|status| RUNNING_STATUSES.contains(&status)) {
            edit.set(STATUS, "unknown");
        }
        edit.set(STALE, true);
    }
}

/// Removes the `stale` mark, because a fact about the activity arrived.
pub(super) fn clear_stale(edit: &mut Edit<'_>) {
    edit.remove(STALE);
}
