//! `queue`: the queued turns and the reason.
//!
//! One activity per session; per run, if the run has no session.

use super::envelope_view::EnvelopeView;
use super::{FoldState, carry};
use crate::model::{EventType, Surface};
use serde_json::{Value, json};

/// The most items that the activity shows, from the head of the queue.
const ITEMS_MAX: usize = 100;

const MEMBERS: &[&str] = &[
    "queuedTurnCount",
    "queueReason",
    "retryableOverload",
    "providerConcurrencyGroup",
    "providerParallelBudget",
    "status",
    "runtimeStatus",
    "message",
];

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::QueueChanged {
        return;
    }
    let FoldState { activities, log, .. } = fold;
    // The session of the fact, else of its run, else the log itself.
    let session = envelope.ids.session.as_ref().map(|session| session.as_str().to_owned());
    let of_run = || Some(activities.get("run", log)?.content.get("sessionId")?.as_str()?.to_owned());
    let id = session.or_else(of_run).unwrap_or_else(|| log.to_string());
    let mut edit = activities.open("queue", &id, Surface::Composer, None);
    carry::members(envelope, &mut edit, MEMBERS);
    // Further members of the source: what steers the run, and the order of the queue.
    carry::all_in_brief(envelope, &mut edit, &[MEMBERS, &["items"]].concat());
    match envelope.get("items").and_then(Value::as_array) {
        Some(items) => {
            edit.set("items", items.iter().take(ITEMS_MAX).cloned().collect::<Vec<_>>());
            if envelope.member("queuedTurnCount").is_none() {
                edit.set("queuedTurnCount", items.len());
            }
        }
        // A list whose length differs from the count is outdated.
        None if edit
            .get("items")
            .and_then(Value::as_array)
            .is_some_and(|items| edit.get("queuedTurnCount").is_some_and(|count| *count != json!(items.len()))) =>
        {
            edit.remove("items");
        }
        None => {}
    }
    if envelope.get("queuedTurnCount").and_then(Value::as_u64) == Some(0) {
        for reason in ["queueReason", "retryableOverload"] {
            if envelope.member(reason).is_none() {
                edit.remove(reason);
            }
        }
    }
}
