//! Shapes of durable streams.

use super::parts::{flag, list, object, shape, text};
use serde_json::{Value, json};

fn item() -> Value {
    json!({ "anyOf": [shape("AgentUiEvent"), shape("Frame"), shape("AgUiEvent"), shape("ChatChunk")] })
}

pub(super) fn items() -> Value {
    let mut items = list(item());
    items["description"] =
        "The items of a durable stream, in order: envelopes, or what the query asked for: frames, or events of a format.".into();
    items
}

pub(super) fn event() -> Value {
    let control = object(
        "Where the items of the `data` event before it end.",
        json!({
            "streamNextOffset": text("The offset after them."),
            "streamCursor": text("What the next live request sends as `cursor`."),
        }),
        json!({
            "upToDate": flag("True: there are no more items now."),
            "streamClosed": flag("True: the run has ended, and the answer ends."),
        }),
    );
    json!({ "description": "The `data:` of an event of a live answer.", "anyOf": [items(), control] })
}
