//! `queue`: the queued turns and the reason.
//!
//! One activity per session; per run, if the run has no session.

use super::envelope_view::EnvelopeView;
use super::members::{List, TypedContent, content};
use super::{FoldState, carry, list, run};
use proscenium_model::fact::{FactFamily, QueueFact};
use proscenium_model::{EventType, Surface};
use serde_json::{Value, json};

content! {
    QUEUE = "queue" of QueueFact {
        QUEUED_TURN_COUNT = "queuedTurnCount", QUEUE_REASON = "queueReason", RETRYABLE_OVERLOAD = "retryableOverload"
    },

    "The queued turns, the reason, and what steers the run; also members with the source's own names, bounded. One per session, or per run if the run has no session.";
    "items": List, Sometimes as ITEMS, "The head of the queue, at most 100 items.";
}

/// The most items that the activity shows, from the head of the queue.
const ITEMS_MAX: usize = 100;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::QueueChanged {
        return;
    }
    let fact = envelope.fact();
    let QueueFact { items, queued_turn_count, queue_reason, retryable_overload, extra: _ } = &*fact;
    let FoldState { activities, log, .. } = fold;
    // The session of the fact, else of its run, else the log itself.
    let session = envelope.ids.session.as_ref().map(|session| session.as_str().to_owned());
    let of_run = || Some(activities.get(run::KIND, log)?.content.read(run::SESSION_ID)?.to_owned());
    let id = session.or_else(of_run).unwrap_or_else(|| log.to_string());
    let mut edit = activities.open("queue", &id, Surface::Composer, None);
    carry::copied::<QueueFact>(envelope, &mut edit);
    // Further members of the source: what steers the run, and the order of the queue.
    carry::all_in_brief(envelope, &mut edit, QueueFact::MEMBERS);
    match list(items) {
        Some(items) => {
            edit.set(ITEMS, items.iter().take(ITEMS_MAX).cloned().collect::<Vec<_>>());
            if queued_turn_count.is_none() {
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
    if queued_turn_count.as_deref().and_then(Value::as_u64) == Some(0) {
        for (member, reason) in [(QUEUE_REASON, queue_reason), (RETRYABLE_OVERLOAD, retryable_overload)] {
            if reason.is_none() {
                edit.remove(member);
            }
        }
    }
}
