//! Feedback: what people say of a message or of a run, in the content of either.
//!
//! The content has what stands: one entry for each person, which that person's later feedback replaces.

use super::activity_set::{Activity, Edit};
use super::envelope_view::EnvelopeView;
use super::members::{Any, List, Member, Position, Str, TypedContent, content};
use proscenium_model::decided_by;
use proscenium_model::fact::FeedbackFact;
use serde_json::{Map, Value, json};

/// The people whose feedback one message or run keeps.
pub const FEEDBACK_MAX: usize = 64;

/// The member of a message, and of a run.
pub const FEEDBACK: Member<List> = Member::new("feedback");
pub(super) const FEEDBACK_ABOUT: &str = "What people say of it: one entry for each of at most 64.";

content! {
    ENTRY = "feedback", "The feedback of one person that stands.";
    "feedbackId": Str, Always as ID, "The feedback. Later feedback of the same person has the same id.";
    "sequence": Position, Always as SEQUENCE, "The sequence of the newest envelope of it.";
    "thumb": Str, Sometimes as THUMB with json!({ "enum": ["up", "down"] }), "The thumb; absent if the person gave words alone.";
    "text": Str, Sometimes as WORDS, "The words, for dashboards and operators.";
    "givenBy": Any, Always as GIVEN_BY with decided_by::schema(), "Who gave it, and when.";
}

/// The schema of [`FEEDBACK`].
pub(super) fn schema() -> Value {
    json!({ "type": "array", "items": ENTRY.object() })
}

/// The feedback about an activity that stands, in the order in which it was first given.
pub fn entries(activity: &Activity) -> impl Iterator<Item = &Map<String, Value>> {
    activity.content.read(FEEDBACK).into_iter().flatten().filter_map(Value::as_object)
}

/// Applies a fact to the content of what it is about.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
pub(super) fn apply(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let fact = envelope.fact();
    let FeedbackFact { feedback, thumb, text, given_by, withdrawn, extra: _ } = &*fact;
    let (Some(id), Some(given_by)) = (feedback, given_by) else { return };
    let known = edit.read(FEEDBACK).and_then(|list| list.iter().position(|entry| entry.read(ID) == Some(id)));
    if *withdrawn == Some(true) {
        let kept = edit.read(FEEDBACK).into_iter().flatten().filter(|entry| entry.read(ID) != Some(id)).cloned();
        match kept.collect::<Vec<_>>() {
            kept if kept.is_empty() => edit.remove(FEEDBACK),
            kept => edit.set(FEEDBACK, kept),
        }
        return;
    }
    if let Some(mut entry) = known.and_then(|at| edit.item(FEEDBACK, at)) {
        entry.set(SEQUENCE, envelope.sequence);
        for (member, value) in [(THUMB, thumb), (WORDS, text)] {
            match value {
                Some(value) => entry.set(member, value.as_str()),
                None => entry.remove(member),
            }
        }
        entry.set(GIVEN_BY, (**given_by).clone());
    } else if edit.read(FEEDBACK).map_or(0, Vec::len) < FEEDBACK_MAX {
        let mut entry = Map::new();
        ID.put(&mut entry, id.as_str());
        SEQUENCE.put(&mut entry, envelope.sequence);
        for (member, value) in [(THUMB, thumb), (WORDS, text)] {
            if let Some(value) = value {
                member.put(&mut entry, value.as_str());
            }
        }
        GIVEN_BY.put(&mut entry, (**given_by).clone());
        edit.push(FEEDBACK, entry.into());
    }
}
