//! `diagnostics`: entries for an operator who looks for a fault. One activity per log, with the newest entries.

use super::Scene;
use super::seen::Seen;
use crate::model::{EventType, Surface};
use serde_json::{Value, json};

/// The most entries that the activity keeps; the log has all of them.
const ENTRIES_MAX: usize = 50;
/// The longest text in an entry of the projection's own (a source's name, an error), in characters.
const NOTE_CHARS_MAX: usize = 256;

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let is_diagnostic = match &seen.class {
        EventType::DiagnosticChanged => true,
        EventType::Other(class) => !class.starts_with("metric."),
        _ => false,
    };
    if !is_diagnostic {
        return;
    }
    let mut entry = json!({ "sequence": seen.sequence, "kind": seen.text("kind").unwrap_or_else(|| seen.class.as_str()) });
    for member in ["message", "code", "severity", "status"] {
        if let Some(value @ (Value::String(_) | Value::Number(_))) = seen.get(member) {
            entry[member] = value.clone();
        }
    }
    push(scene, entry);
}

/// Counts a failed call that this audience may not see: seed 000 requires that a failure reaches users.
pub(super) fn count_hidden(scene: &mut Scene) {
    let mut edit = scene.stage.open("diagnostics", "diagnostics", Surface::Diagnostics, None);
    if edit.get("entries").is_none() {
        edit.set("entries", json!([]));
    }
    let count = edit.get("hiddenFailures").and_then(Value::as_u64).unwrap_or(0);
    edit.set("hiddenFailures", count + 1);
}

/// Adds an entry of the projection's own about a fact that it cannot show.
pub(super) fn note(scene: &mut Scene, mut entry: Value) {
    for value in entry.as_object_mut().into_iter().flat_map(|entry| entry.values_mut()) {
        if let Value::String(text) = value
            && let Some((cut, _)) = text.char_indices().nth(NOTE_CHARS_MAX)
        {
            text.truncate(cut);
        }
    }
    entry["sequence"] = json!(scene.stage.now());
    push(scene, entry);
}

fn push(scene: &mut Scene, entry: Value) {
    let mut edit = scene.stage.open("diagnostics", "diagnostics", Surface::Diagnostics, None);
    edit.push_bounded("entries", entry, ENTRIES_MAX);
}
