//! `queue`: the queued turns and the reason.
//!
//! One activity per session; per run, if the run has no session.

use super::envelope_view::EnvelopeView;
use super::members::{Any, List, TypedContent, content};
use super::{FoldState, carry, run};
use proscenium_model::{EventType, MemberRef, Surface};
use serde_json::{Number, json};

content! {
    QUEUE = "queue",
    "The queued turns, the reason, and what steers the run; also members with the source's own names, bounded. One per session, or per run if the run has no session.";
    "queuedTurnCount": Any, Sometimes as QUEUED_TURN_COUNT, "The number of queued turns; absent if unknown.";
    "items": List, Sometimes as ITEMS, "The head of the queue, at most 100 items.";
    "queueReason": Any, Sometimes as QUEUE_REASON, "The reason why the turns wait.";
    "retryableOverload": Any, Sometimes as RETRYABLE_OVERLOAD, "Whether the reason is a temporary overload.";
    "providerConcurrencyGroup": Any, Sometimes, "The group that shares a provider's concurrency limit.";
    "providerParallelBudget": Any, Sometimes, "The number of turns that may run at once.";
}

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
    let of_run = || Some(activities.get(run::KIND, log)?.content.read(run::SESSION_ID)?.to_owned());
    let id = session.or_else(of_run).unwrap_or_else(|| log.to_string());
    let mut edit = activities.open("queue", &id, Surface::Composer, None);
    carry::members(envelope, &mut edit, MEMBERS);
    // Further members of the source: what steers the run, and the order of the queue.
    carry::all_in_brief(envelope, &mut edit, &[MEMBERS, &[ITEMS.name()]].concat());
    match envelope.get(ITEMS.name()).and_then(MemberRef::list) {
        Some(items) => {
            edit.set(ITEMS, items.iter().take(ITEMS_MAX).cloned().collect::<Vec<_>>());
            if envelope.member(QUEUED_TURN_COUNT.name()).is_none() {
                edit.set(QUEUED_TURN_COUNT, json!(items.len()));
            }
        }
        // A list whose length differs from the count is outdated.
        None if edit
            .read(ITEMS)
            .is_some_and(|items| edit.read(QUEUED_TURN_COUNT).is_some_and(|count| *count != json!(items.len()))) =>
        {
            edit.remove(ITEMS);
        }
        None => {}
    }
    if envelope.get(QUEUED_TURN_COUNT.name()).and_then(MemberRef::number).and_then(Number::as_u64) == Some(0) {
        for reason in [QUEUE_REASON, RETRYABLE_OVERLOAD] {
            if envelope.member(reason.name()).is_none() {
                edit.remove(reason);
            }
        }
    }
}
