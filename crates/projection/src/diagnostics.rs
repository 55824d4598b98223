//! `diagnostics`: entries for an operator who looks for a fault.
//!
//! One activity per log, with the newest entries.

use super::envelope_view::EnvelopeView;
use super::members::{Count, List, content};
use super::{FoldState, entries_schema};
use proscenium_model::fact::{DiagnosticFact, FactFamily};
use proscenium_model::{EventType, MemberRef, Surface};
use serde_json::{Value, json};

content! {
    DIAGNOSTICS = "diagnostics", "Entries for an operator who looks for a fault: the newest 50.";
    "entries": List, Always as ENTRIES with entries_schema(&["sequence", "kind"]),
        "The entries, oldest first. The log contains all of them.";
    "hiddenFailures": Count, Sometimes as HIDDEN_FAILURES with json!({ "type": "integer", "minimum": 1 }),
        "The number of failed calls that this reader may not see.";
}

/// The most entries that the activity keeps; the log has all of them.
const ENTRIES_MAX: usize = 50;
/// The longest text in an entry of the projection's own (a source's name, an error), in characters.
const NOTE_CHARS_MAX: usize = 256;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_diagnostic = match &envelope.event_type {
        EventType::DiagnosticChanged => true,
        EventType::Other(class) => !class.starts_with("metric."),
        _ => false,
    };
    if !is_diagnostic {
        return;
    }
    // By its name: facts of unknown types have no fields.
    let kind = envelope.text("kind").unwrap_or_else(|| envelope.event_type.as_str());
    let mut entry = json!({ "sequence": envelope.sequence, "kind": kind });
    for (member, _) in DiagnosticFact::COPIED {
        if let Some(value @ (MemberRef::Text(_) | MemberRef::Number(_))) = envelope.get(member) {
            entry[*member] = value.into_value();
        }
    }
    push(fold, entry);
}

/// Counts a failed call that this audience may not see: seed 000 requires that a failure reaches users.
pub(super) fn count_hidden(fold: &mut FoldState) {
    let mut edit = fold.activities.open("diagnostics", "diagnostics", Surface::Diagnostics, None);
    if !edit.has(ENTRIES) {
        edit.set(ENTRIES, Vec::new());
    }
    let count = edit.read(HIDDEN_FAILURES).unwrap_or(0);
    edit.set(HIDDEN_FAILURES, count + 1);
}

/// Adds an entry of the projection's own about a fact that it cannot show.
pub(super) fn add_entry(fold: &mut FoldState, mut entry: Value) {
    for value in entry.as_object_mut().into_iter().flat_map(|entry| entry.values_mut()) {
        if let Value::String(text) = value
            && let Some((cut, _)) = text.char_indices().nth(NOTE_CHARS_MAX)
        {
            text.truncate(cut);
        }
    }
    entry["sequence"] = json!(fold.activities.now());
    push(fold, entry);
}

fn push(fold: &mut FoldState, entry: Value) {
    let mut edit = fold.activities.open("diagnostics", "diagnostics", Surface::Diagnostics, None);
    edit.push_bounded(ENTRIES, entry, ENTRIES_MAX);
}
