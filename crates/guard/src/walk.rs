//! Redacts secrets in JSON: by the names of members, and by their form in every text, key and id.
//!
//! It knows structure, not streams: every text is whole here. Ingest limits the depth of JSON to 64, so recursion is
//! safe.

use super::names::{is_piece, is_secret, is_secret_name, traces_of};
use super::secrets::{REDACTED, redact_text};
use data_encoding::HEXLOWER;
use proscenium_model::fact::MemberMut;
use proscenium_model::halves;
use proscenium_model::{Draft, Ids, MemberRef};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;

/// The context of a value.
#[derive(Clone, Copy, PartialEq)]
enum Context {
    Plain,
    /// Below a secret name, at any depth: every text is redacted.
    Secret,
    /// In the `properties` of a JSON Schema, where members declare names and have no values.
    Declarations,
}

/// Members of a schema that describe a field and never contain its value.
const DESCRIPTIVE_MEMBERS: &[&str] =
    &["type", "title", "description", "format", "$ref", "pattern", "contentEncoding", "required", "propertyOrdering"];

/// Members of a schema that contain schemas: one, or a list of them.
const INNER_SCHEMAS: &[&str] = &["items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "additionalProperties"];

/// Members of a schema that contain schemas by name.
const NAMED_SCHEMAS: &[&str] = &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Members of a schema that contain the field's value.
const VALUE_MEMBERS: &[&str] = &["default", "examples", "example", "const", "enum"];

/// Redacts every secret in `value`. Returns whether it found one.
pub fn redact_value(value: &mut Value) -> bool {
    redact(value, Context::Plain)
}

fn redact(value: &mut Value, context: Context) -> bool {
    match value {
        Value::String(text) if context == Context::Secret => redact_whole(text),
        Value::String(text) => redact_string(text),
        Value::Array(items) => items.iter_mut().fold(false, |found, item| redact(item, context) | found),
        Value::Object(map) => redact_map(map, context),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Redacts a text.
///
/// An empty text stays: a missing secret is not a secret, and an operator looks for its absence.
fn redact_whole(text: &mut String) -> bool {
    let hides = !text.is_empty() && text != REDACTED;
    if hides {
        *text = REDACTED.into();
    }
    hides
}

fn redact_string(text: &mut String) -> bool {
    match redact_text(text) {
        Cow::Borrowed(_) => false,
        Cow::Owned(redacted) => {
            *text = redacted;
            true
        }
    }
}

fn redact_map(map: &mut Map<String, Value>, context: Context) -> bool {
    redact_members(map, context, names_its_value(|member| map.get(member).map(MemberRef::from)))
}

/// Redacts the members of an object. `names_value`: its `value` belongs to a secret name beside it.
fn redact_members(map: &mut Map<String, Value>, context: Context, names_value: bool) -> bool {
    let (mut found, mut may_rename) = (false, false);
    for (name, value) in map.iter_mut() {
        let traces = traces_of(name);
        may_rename |= traces.has_place();
        found |= match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            _ if context == Context::Secret || (names_value && name == "value") => redact(value, Context::Secret),
            Value::Object(fields) if context == Context::Declarations && is_declaration(fields) => {
                let inner = if is_secret(name, traces) { Context::Secret } else { Context::Plain };
                redact_declaration(fields, inner)
            }
            Value::String(text) if is_piece(name, text) => redact_string(text),
            _ if is_secret(name, traces) => redact(value, Context::Secret),
            Value::Object(_) if NAMED_SCHEMAS.contains(&name.as_str()) => redact(value, Context::Declarations),
            _ => redact(value, Context::Plain),
        };
    }
    (may_rename && redact_keys(map)) | found
}

/// Whether an object's `value` belongs to a secret name beside it.
///
/// That is so in a JSON Patch operation, whose `path` names the member, and in an entry of a list of headers or
/// variables.
fn names_its_value<'m>(get: impl Fn(&str) -> Option<MemberRef<'m>>) -> bool {
    let is_secret = |member: &str| get(member).and_then(MemberRef::text).is_some_and(|path| path.split('/').any(is_secret_name));
    get("value").is_some() && ["path", "name", "key"].into_iter().any(is_secret)
}

fn is_declaration(fields: &Map<String, Value>) -> bool {
    let describes = |name: &String| {
        [DESCRIPTIVE_MEMBERS, INNER_SCHEMAS, NAMED_SCHEMAS, VALUE_MEMBERS].iter().any(|known| known.contains(&name.as_str()))
    };
    ["type", "$ref", "anyOf", "oneOf", "allOf", "enum"].iter().any(|member| fields.contains_key(*member))
        || fields.keys().all(describes)
}

/// Redacts a field's declaration in a schema.
///
/// A form that asks for a password keeps its type and title; its default, its examples and all else are redacted like
/// any value.
fn redact_declaration(fields: &mut Map<String, Value>, context: Context) -> bool {
    let mut found = false;
    for (name, value) in fields.iter_mut() {
        found |= match (name.as_str(), value) {
            (name, value @ (Value::String(_) | Value::Array(_))) if DESCRIPTIVE_MEMBERS.contains(&name) => {
                redact(value, Context::Plain)
            }
            (name, Value::Object(inner)) if NAMED_SCHEMAS.contains(&name) => {
                inner.iter_mut().fold(false, |found, (name, value)| {
                    let context = if is_secret_name(name) { Context::Secret } else { context };
                    found
                        | match value {
                            Value::Object(fields) if is_declaration(fields) => redact_declaration(fields, context),
                            value => redact(value, context),
                        }
                })
            }
            (name, Value::Object(inner)) if INNER_SCHEMAS.contains(&name) => redact_declaration(inner, context),
            (name, Value::Array(schemas)) if INNER_SCHEMAS.contains(&name) => schemas.iter_mut().fold(false, |found, schema| {
                found
                    | match schema {
                        Value::Object(fields) => redact_declaration(fields, context),
                        value => redact(value, context),
                    }
            }),
            (name, value) => redact(value, if is_secret_name(name) { Context::Secret } else { context }),
        };
    }
    redact_keys(fields) | found
}

/// Renames members whose name itself is a secret (a map by API key); they keep their values.
fn redact_keys(map: &mut Map<String, Value>) -> bool {
    if map.keys().all(|name| matches!(redact_text(name), Cow::Borrowed(_))) {
        return false;
    }
    // The count continues from the last equal name: in a map by API key all names become equal, and counting from 2 for
    // each made the work quadratic.
    let mut next = HashMap::<String, usize>::new();
    for (name, value) in std::mem::take(map) {
        let redacted = redact_text(&name).into_owned();
        let mut unique = redacted.clone();
        while map.contains_key(&unique) {
            let n = next.entry(redacted.clone()).or_insert(1);
            *n += 1;
            unique = format!("{redacted}{n}");
        }
        map.insert(unique, value);
    }
    true
}

/// Redacts every secret in a draft.
///
/// A streamed text is not part of it meanwhile: the stream decides that chunk by chunk.
pub(super) fn redact_draft(draft: &mut Draft, known_ids: &mut Ids) {
    redact_ids(&mut draft.ids, known_ids);
    redact_words(draft);
    // No field has a name of secrets (tested).
    let names_value = names_its_value(|member| draft.payload.get(member));
    draft.payload.each_field_mut(|name, member| {
        let context = if names_value && name == "value" { Context::Secret } else { Context::Plain };
        match member {
            MemberMut::Text(text) => redact_string(text),
            MemberMut::Value(value) => redact(value, context),
        };
    });
    redact_members(draft.payload.open_mut(), Context::Plain, names_value);
    draft.refs.as_mut().map(redact_value);
    draft.raw_event_ref.as_mut().map(redact_value);
    redact_map(&mut draft.extra, Context::Plain);
}

/// Joins or replaces the marks of halves in a draft. Ids have none.
pub(super) fn settle_halves(draft: &mut Draft) {
    draft.payload.each_field_mut(|_, member| match member {
        MemberMut::Text(text) => halves::settle_text(text),
        MemberMut::Value(value) => halves::settle(value),
    });
    halves::settle_map(draft.payload.open_mut());
    halves::settle_map(&mut draft.extra);
    draft.refs.iter_mut().chain(&mut draft.raw_event_ref).for_each(halves::settle);
}

/// Replaces an id that looks like a secret by its hash, not by a mark.
///
/// Facts about one object must still match, in this run and in the next.
fn redact_ids(ids: &mut Ids, known: &mut Ids) {
    ids.rewrite_unknown(known, |id| match redact_text(id) {
        Cow::Borrowed(_) => None,
        Cow::Owned(_) => Some(hashed_id(id)),
    });
}

fn hashed_id(id: &str) -> String {
    format!("redacted-{}", HEXLOWER.encode(&Sha256::digest(id.as_bytes())[..8]))
}

/// Redacts unknown event types and dimensions, and the time: all are the producer's text.
///
/// The server carries them unchanged (`model/taxonomy.rs`).
fn redact_words(draft: &mut Draft) {
    use proscenium_model::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
    macro_rules! redact_other {
        ($($word:expr => $kind:ident),* $(,)?) => {$(
            if let $kind::Other(text) = $word && let Cow::Owned(redacted) = redact_text(text) {
                *$word = $kind::Other(redacted.into());
            }
        )*};
    }
    redact_other! {
        &mut draft.event_type => EventType,
        &mut draft.owner => Owner,
        &mut draft.scope => Scope,
        &mut draft.phase => Phase,
        &mut draft.surface => Surface,
        &mut draft.persistence => Persistence,
    }
    if let Some(control) = &mut draft.control {
        redact_other! { control => Control }
    }
    if let Some(topology) = &mut draft.topology {
        redact_other! { topology => Topology }
    }
    if let Some(time) = &mut draft.timestamp
        && let Cow::Owned(redacted) = redact_text(time)
    {
        *time = redacted.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proscenium_model::EventType;
    use proscenium_model::fact::Family;
    use serde_json::json;

    #[track_caller]
    fn check(mut before: Value, after: Value) {
        let changes = before != after;
        assert_eq!(redact_value(&mut before), changes);
        assert_eq!(before, after);
        assert!(!redact_value(&mut before), "a second redaction changes nothing: {before}");
    }

    #[test]
    fn texts_below_a_secret_name_are_redacted_and_numbers_booleans_nulls_and_empty_texts_stay() {
        check(
            json!({"auth": {"apiKey": "k", "credentials": {"user": "u", "tags": ["a", "b"], "n": 7, "on": true, "none": null, "gone": ""}}}),
            json!({"auth": {"apiKey": "[redacted]", "credentials": {"user": "[redacted]", "tags": ["[redacted]", "[redacted]"], "n": 7, "on": true, "none": null, "gone": ""}}}),
        );
    }

    #[test]
    fn no_field_of_a_fact_has_a_name_that_decides_what_is_redacted() {
        for name in Family::TYPED.iter().flat_map(|family| family.members()) {
            assert!(!is_secret_name(name) && !NAMED_SCHEMAS.contains(name), "{name}");
        }
    }

    #[test]
    fn a_sibling_names_the_value_of_a_fact_whether_they_have_fields_or_not() {
        for event_type in [EventType::ActionResolved, EventType::MetricChanged, EventType::from("x.y")] {
            for (name, expected) in [("apiKey", "[redacted]"), ("speed", "hunter2")] {
                let mut draft = Draft::new(event_type.clone()).with("name", name).with("value", "hunter2");
                redact_draft(&mut draft, &mut Ids::default());
                assert_eq!(draft.text("value"), Some(expected), "{event_type} {name}");
            }
        }
    }

    #[test]
    fn counts_keys_and_plain_names_stay() {
        let usage = json!({"usage": {"inputTokens": 12, "total_tokens": "13"}, "sessionKey": "main", "primaryKey": "id",
            "tokenizer": "cl100k", "cookiePolicy": "strict", "next": {"key": "v"}});
        check(usage.clone(), usage);
    }

    #[test]
    fn members_whose_name_is_a_secret_are_renamed_and_stay_distinct() {
        check(
            json!({"sk-live-abcdef0123456789abcdef": 1, "sk-live-abcdef0123456789abcdeg": 2, "x": 3}),
            json!({"[redacted]": 1, "[redacted]2": 2, "x": 3}),
        );
    }

    #[test]
    fn a_sibling_names_the_value_of_a_patch_or_a_header() {
        check(
            json!([{"op": "replace", "path": "/env/DB_PASSWORD", "value": "hunter2"}, {"name": "Authorization", "value": "Basic eA=="}]),
            json!([{"op": "replace", "path": "/env/DB_PASSWORD", "value": "[redacted]"}, {"name": "Authorization", "value": "[redacted]"}]),
        );
        let plain = json!({"op": "add", "path": "/text/-", "value": "hello"});
        check(plain.clone(), plain);
    }

    #[test]
    fn a_form_may_declare_a_password_but_not_contain_one() {
        check(
            json!({"schema": {"type": "object", "properties": {"password": {"type": "string", "title": "Password", "default": "hunter2"}, "user": {"type": "string", "default": "me"}}}}),
            json!({"schema": {"type": "object", "properties": {"password": {"type": "string", "title": "Password", "default": "[redacted]"}, "user": {"type": "string", "default": "me"}}}}),
        );
        check(json!({"properties": {"password": "hunter2"}}), json!({"properties": {"password": "[redacted]"}}));
        let optional = json!({"$defs": {"token": {"description": "A key"}}, "properties": {
            "token": {"anyOf": [{"type": "string", "minLength": 8}, {"type": "null"}], "default": null, "title": "Token"},
            "credentials": {"type": "object", "required": ["user"], "properties": {"user": {"type": ["string", "null"]}}},
        }});
        check(optional.clone(), optional);
        check(
            json!({"properties": {"token": {"anyOf": [{"type": "string", "default": "hunter2"}]}}}),
            json!({"properties": {"token": {"anyOf": [{"type": "string", "default": "[redacted]"}]}}}),
        );
    }

    #[test]
    fn a_piece_of_a_model_s_text_is_no_token() {
        let pieces = json!([{"token": "hello"}, {"token": " the"}, {"nextPageToken": "CAoQAA"}, {"cookies": ["oat", "ginger"]}]);
        check(pieces.clone(), pieces);
        check(json!({"token": "d34db33f"}), json!({"token": "[redacted]"}));
    }
}
