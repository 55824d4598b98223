//! Schemas that many shapes consist of.

use crate::log::commit::SESSION_TITLE_CHARS_MAX;
use crate::model::{Phase, schema};
use crate::source::ledger::Status;
use serde_json::{Map, Value, json};

/// An object schema with required and optional members.
pub(super) fn object(purpose: &str, always: Value, sometimes: Value) -> Value {
    let (Value::Object(always), Value::Object(sometimes)) = (always, sometimes) else {
        unreachable!("both are object literals");
    };
    let required: Vec<_> = always.keys().cloned().collect();
    let properties: Map<_, _> = always.into_iter().chain(sometimes).collect();
    json!({ "description": purpose, "type": "object", "properties": properties, "required": required })
}

pub(super) fn shape(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

pub(super) fn count(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "integer", "minimum": 0 })
}

pub(super) fn text(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string" })
}

pub(super) fn flag(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "boolean" })
}

pub(super) fn or_null(mut schema: Value) -> Value {
    let kind = schema["type"].take();
    schema["type"] = json!([kind, "null"]);
    schema
}

pub(super) fn id() -> Value {
    json!({ "$ref": "#/components/schemas/AgentUiEvent/$defs/id" })
}

pub(super) fn time(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string", "format": "date-time" })
}

/// A title that a person gives.
pub(super) fn title_wanted() -> Value {
    let about = format!(
        "The title: 1 to {SESSION_TITLE_CHARS_MAX} characters without control characters. `null`: the title of the source."
    );
    json!({ "description": about, "type": ["string", "null"], "minLength": 1, "pattern": "\\S" })
}

pub(super) fn status() -> Value {
    use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
    let all = [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown];
    json!({ "description": "The status.", "enum": all.map(Status::as_str) })
}

pub(super) fn phase() -> Value {
    schema::open(Phase::NAMES, "The phase.")
}

pub(super) fn epoch() -> Value {
    text("The epoch of the log. A run that is erased and rewritten has another epoch, and its sequences and cursors start again.")
}

pub(super) fn next_cursor() -> Value {
    or_null(text("The cursor of the next page; null on the last page."))
}

pub(super) fn activation() -> Value {
    text("The query's `activation`.")
}
