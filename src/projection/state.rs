//! `state`: the application's own state, as its source maintains it. One activity per log; the content is below
//! `state`.
//!
//! A patch that does not apply changes nothing and adds an entry to `diagnostics`; the next snapshot corrects the
//! state. If a patch was hidden from this audience, the patches that build on it are hidden too, until the next
//! snapshot.

use super::seen::Seen;
use super::{Scene, diagnostics, patch};
use crate::model::{EventType, Surface};
use serde_json::{Map, Value, json};

const KIND: &str = "state";

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let is_snapshot = match seen.class {
        EventType::StateSnapshot => true,
        EventType::StateDelta => false,
        _ => return,
    };
    // A state with a type is an activity of the source.
    if seen.text("activityType").is_some() {
        return;
    }
    let surface = if seen.surface == Surface::Unknown { Surface::Custom } else { seen.surface.clone() };
    if is_snapshot {
        let Some(state) = seen.said("state") else { return };
        let mut edit = scene.stage.open(KIND, KIND, surface, None);
        return edit.replace(Map::from_iter([("state".to_owned(), state.clone())]));
    }
    let Some(patch) = seen.get("patch") else { return };
    let mut edit = scene.stage.open(KIND, KIND, surface, None);
    if edit.get("state").is_none() {
        edit.set("state", json!({}));
    }
    let patch: Vec<Value> = patch::operations(patch).into_iter().map(under_state).collect();
    if let Err(error) = edit.apply(&patch) {
        diagnostics::note(scene, json!({ "kind": "patch_not_applied", "activityType": KIND, "error": error }));
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
