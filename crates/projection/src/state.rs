//! `state`: the application's own state, as its source maintains it.
//!
//! One activity per log; the content is below `state`.
//!
//! A patch that does not apply changes nothing and adds an entry to `diagnostics`; the next snapshot corrects the
//! state. If a patch was hidden from this audience, the patches that build on it are hidden too, until the next
//! snapshot.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Flag, Object, content};
use super::{FoldState, bodies, diagnostics, patch};
use proscenium_model::fact::StateFact;
use proscenium_model::{EventType, Surface};
use serde_json::{Map, Value, json};

/// The activity type.
pub const KIND: &str = "state";

content! {
    APPLICATION_STATE = "state", "The application's own state, as its source maintains it. Its texts are never joined.";
    "state": Any, Always as STATE, "The state.";
    "clipped": Flag, Sometimes, bodies::CLIPPED_ABOUT;
    "bodies": Object, Sometimes with bodies::schema(), bodies::ABOUT;
}

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_snapshot = match envelope.event_type {
        EventType::StateSnapshot => true,
        EventType::StateDelta => false,
        _ => return,
    };
    let fact = envelope.fact();
    // `custom` has the others.
    let StateFact { state, patch, activity_type, content: _, replace: _, extra: _ } = &*fact;
    // A state with a type is an activity of the source.
    if activity_type.is_some() {
        return;
    }
    let surface = if envelope.surface == Surface::Unknown { Surface::Custom } else { envelope.surface.clone() };
    if is_snapshot {
        let Some(state) = state.as_deref() else { return };
        let mut content = Map::new();
        STATE.put(&mut content, state.clone());
        bodies::add(envelope, &mut content, ("state", "state"));
        return fold.activities.open(KIND, KIND, surface, None).replace(content);
    }
    let Some(patch) = patch.as_deref().filter(|patch| !patch.is_null()) else { return };
    let mut edit = fold.activities.open(KIND, KIND, surface, None);
    if !edit.has(STATE) {
        edit.set(STATE, json!({}));
    }
    let patch: Vec<Value> = patch::operations(patch).into_iter().map(under_state).collect();
    match edit.apply(&patch) {
        Ok(()) => bodies::follow_patch(envelope, &mut edit, &patch),
        Err(error) => {
            diagnostics::add_entry(fold, json!({ "kind": "patch_not_applied", "activityType": KIND, "error": error }));
        }
    }
}

/// Rewrites an operation on the state as an operation on the content that contains it.
fn under_state(mut operation: Value) -> Value {
    for member in ["path", "from"] {
        if let Some(Value::String(path)) = operation.get_mut(member) {
            path.insert_str(0, "/state");
        }
    }
    operation
}
