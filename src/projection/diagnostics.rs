//! `diagnostics`: what is of use to whoever looks for a fault. One activity a log, of the newest entries.

use super::Scene;
use super::seen::Seen;
use crate::model::{EventType, Surface};
use serde_json::{Value, json};

/// Entries that are kept; all of them are in the log.
const ENTRIES_MAX: usize = 50;
/// What is said of a source's names and of why a patch did not apply, in characters each.
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

/// Counts the failure of a call that this audience does not see: a failure always reaches users (seed 000).
pub(super) fn count_hidden(scene: &mut Scene) {
    let mut edit = scene.stage.open("diagnostics", "diagnostics", Surface::Diagnostics, None);
    if edit.get("entries").is_none() {
        edit.set("entries", json!([]));
    }
    let count = edit.get("hiddenFailures").and_then(Value::as_u64).unwrap_or(0);
    edit.set("hiddenFailures", count + 1);
}

/// An entry of the projection's own: something that it was told and could not show.
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
