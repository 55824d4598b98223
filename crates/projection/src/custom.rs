//! Activities that a source names itself.
//!
//! They are seed 002's `report_activity` and `report_activity_delta`, and AG-UI's activities.
//!
//! The content is the source's, unchanged. A patch that does not apply changes nothing and adds an entry to
//! `diagnostics`; the source's next snapshot corrects the content. If a patch was hidden from this audience, the
//! patches that build on it are hidden too, until the next snapshot.

use super::envelope_view::EnvelopeView;
use super::members::content;
use super::{FoldState, diagnostics, patch, tool_call};
use proscenium_model::a2ui::ACTIVITY_TYPE;
use proscenium_model::fact::{CallFact, StateFact};
use proscenium_model::{EventType, MessageId, Surface, ToolCallId};
use serde_json::{Map, Value, json};

content! {
    CUSTOM = "custom",
    "An activity that a source names. The content is the source's, unchanged and never joined. A bare text becomes { text: [ … ] }, and any other value that is not an object becomes { value: … }. If the type and id equal those of our own activity, the type gets the prefix `custom:`.";
}

/// What a fact says of an activity that its source names.
pub(super) struct SourceActivity<'f> {
    pub kind: &'f str,
    pub id: &'f str,
    pub content: Option<&'f Value>,
    pub patch: Option<&'f Value>,
    pub replace: Option<bool>,
}

/// Reads the activity that a fact names, if it names one.
pub(super) fn with_source_activity(envelope: &EnvelopeView, read: impl FnOnce(SourceActivity<'_>)) {
    use EventType as E;
    let (call, state);
    let (kind, content, patch, replace) = match envelope.event_type {
        E::ToolProgress => {
            call = envelope.fact::<CallFact>();
            let content = call.content.as_deref().or_else(|| call.extra.get("state"));
            (call.activity_type.as_deref(), content, call.patch.as_deref(), call.replace)
        }
        E::StateSnapshot | E::StateDelta => {
            state = envelope.fact::<StateFact>();
            let content = state.content.as_deref().or(state.state.as_deref());
            (state.activity_type.as_deref(), content, state.patch.as_deref(), state.replace)
        }
        _ => return,
    };
    let Some(kind) = kind.filter(|kind| !kind.is_empty()) else { return };
    let call = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let Some(id) = call.or_else(|| envelope.ids.message.as_ref().map(MessageId::as_str)) else { return };
    read(SourceActivity { kind, id, content, patch: patch.filter(|patch| !patch.is_null()), replace });
}

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    with_source_activity(envelope, |of| {
        // These have projections of their own.
        if ![tool_call::KIND, ACTIVITY_TYPE].contains(&of.kind) {
            fold_activity(envelope, &of, fold);
        }
    });
}

fn fold_activity(envelope: &EnvelopeView, of: &SourceActivity<'_>, fold: &mut FoldState) {
    let SourceActivity { kind, id, content, patch, replace } = *of;
    let is_known = fold.activities.has_custom(kind, id);
    let mut edit = fold.activities.open_custom(kind, id, Surface::ToolUi, envelope.ids.agent.as_ref());
    if edit.is_discarded() {
        return;
    }
    let Some(content) = content else {
        let Some(patch) = patch else { return };
        if let Err(error) = edit.apply(&patch::operations(patch)) {
            let note = json!({ "kind": "patch_not_applied", "activityType": kind, "activityId": id, "error": error });
            diagnostics::add_entry(fold, note);
        }
        return;
    };
    // AG-UI: a snapshot with `replace: false` is only for readers without the activity.
    if is_known && replace == Some(false) {
        return;
    }
    edit.replace(match content {
        Value::Object(content) => content.clone(),
        Value::String(text) => Map::from_iter([("text".to_owned(), json!([text]))]),
        Value::Null => Map::new(),
        other => Map::from_iter([("value".to_owned(), other.clone())]),
    });
}
