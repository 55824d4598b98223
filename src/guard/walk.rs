//! Secrets in JSON: by the names of members, and by their looks in every text, key and id.
//!
//! Knows structure, not streams: a text is whole here. Depth is bounded by ingest (JSON depth 64), so recursion is safe.

use super::names::bears_secret;
use super::secrets::{MARK, redact_text};
use crate::model::{Draft, Ids};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;

/// Where a value stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Plain,
    /// Under a secret-bearing name, however deep: every text goes.
    Secret,
    /// In the `properties` of a JSON Schema, where names are declared, not given values.
    Declarations,
}

/// Members of a schema that describe a field and never hold its content.
const DESCRIBING: &[&str] = &["type", "title", "description", "format", "$ref", "pattern", "contentEncoding"];

/// Takes every secret out of `value`; says whether there was one.
pub fn redact_value(value: &mut Value) -> bool {
    redact(value, Place::Plain)
}

fn redact(value: &mut Value, place: Place) -> bool {
    match value {
        Value::String(text) if place == Place::Secret => hide(text),
        Value::String(text) => redact_string(text),
        Value::Array(items) => items.iter_mut().fold(false, |found, item| redact(item, place) | found),
        Value::Object(map) => redact_map(map, place),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// An empty text stays: that a secret is missing is no secret, and its absence is what someone will be looking for.
fn hide(text: &mut String) -> bool {
    let hides = !text.is_empty() && text != MARK;
    if hides {
        *text = MARK.into();
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

fn redact_map(map: &mut Map<String, Value>, place: Place) -> bool {
    let names_value = names_its_value(map);
    let mut found = false;
    for (name, value) in map.iter_mut() {
        found |= match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            _ if place == Place::Secret || (names_value && name == "value") => redact(value, Place::Secret),
            Value::Object(fields) if place == Place::Declarations && is_declaration(fields) => {
                let inner = if bears_secret(name) { Place::Secret } else { Place::Plain };
                redact_declaration(fields, inner)
            }
            _ if bears_secret(name) => redact(value, Place::Secret),
            Value::Object(_) if name == "properties" => redact(value, Place::Declarations),
            _ => redact(value, Place::Plain),
        };
    }
    redact_keys(map) | found
}

/// Whether an object's `value` belongs to a secret-bearing name that stands beside it: a JSON Patch operation, whose `path`
/// names the member, or an entry of a list of headers or variables.
fn names_its_value(map: &Map<String, Value>) -> bool {
    map.contains_key("value")
        && ["path", "name", "key"].iter().any(|member| match map.get(*member) {
            Some(Value::String(path)) => path.split('/').any(bears_secret),
            _ => false,
        })
}

fn is_declaration(fields: &Map<String, Value>) -> bool {
    ["type", "$ref", "anyOf", "oneOf", "allOf", "enum"].iter().any(|member| fields.contains_key(*member))
}

/// A field's declaration in a schema. A form that asks for a password must still say that it is a text and how it is called;
/// its default, its examples and whatever else it holds are what they would be anywhere.
fn redact_declaration(fields: &mut Map<String, Value>, place: Place) -> bool {
    let mut found = false;
    for (name, value) in fields.iter_mut() {
        found |= match (name.as_str(), value) {
            (name, value @ Value::String(_)) if DESCRIBING.contains(&name) => redact(value, Place::Plain),
            ("properties", Value::Object(inner)) => inner.iter_mut().fold(false, |found, (name, value)| {
                let place = if bears_secret(name) { Place::Secret } else { place };
                found
                    | match value {
                        Value::Object(fields) if is_declaration(fields) => redact_declaration(fields, place),
                        value => redact(value, place),
                    }
            }),
            ("items", Value::Object(inner)) => redact_declaration(inner, place),
            (name, value) => redact(value, if bears_secret(name) { Place::Secret } else { place }),
        };
    }
    redact_keys(fields) | found
}

/// Members whose very name is a secret (a map by API key) keep their value under another one.
fn redact_keys(map: &mut Map<String, Value>) -> bool {
    if map.keys().all(|name| matches!(redact_text(name), Cow::Borrowed(_))) {
        return false;
    }
    // Counting goes on from the last name that reads the same: in a map by API key all of them do, and counting from 2 for each
    // made the work quadratic.
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

/// Takes every secret out of a draft. A streamed text is not in it meanwhile: it is decided chunk by chunk.
pub(super) fn redact_draft(draft: &mut Draft) {
    redact_ids(&mut draft.ids);
    redact_words(draft);
    redact_map(&mut draft.payload, Place::Plain);
    draft.refs.as_mut().map(redact_value);
    draft.raw_event_ref.as_mut().map(redact_value);
    redact_map(&mut draft.extra, Place::Plain);
}

/// An id that looks like a secret becomes a hash of it, not a mark: facts about one thing must still find each other, in
/// this run and in the next.
fn redact_ids(ids: &mut Ids) {
    ids.rewrite(|id| match redact_text(id) {
        Cow::Borrowed(_) => None,
        Cow::Owned(_) => Some(pseudonym(id)),
    });
}

fn pseudonym(id: &str) -> String {
    format!("redacted-{}", HEXLOWER.encode(&Sha256::digest(id.as_bytes())[..8]))
}

/// Event types and dimensions that nobody named are carried as they came (`model/taxonomy.rs`), and so is the time: text of
/// the producer's, like any other.
fn redact_words(draft: &mut Draft) {
    use crate::model::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
    macro_rules! redact_other {
        ($($word:expr => $kind:ident),* $(,)?) => {$(
            if let $kind::Other(text) = $word && let Cow::Owned(redacted) = redact_text(text) {
                *$word = $kind::Other(redacted.into());
            }
        )*};
    }
    redact_other! {
        &mut draft.class => EventType,
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
    use serde_json::json;

    #[track_caller]
    fn check(mut before: Value, after: Value) {
        let changes = before != after;
        assert_eq!(redact_value(&mut before), changes);
        assert_eq!(before, after);
        assert!(!redact_value(&mut before), "redacting twice is redacting once: {before}");
    }

    #[test]
    fn every_text_under_a_secret_bearing_name_goes_and_numbers_booleans_nulls_and_empty_texts_stay() {
        check(
            json!({"auth": {"apiKey": "k", "credentials": {"user": "u", "tags": ["a", "b"], "n": 7, "on": true, "none": null, "gone": ""}}}),
            json!({"auth": {"apiKey": "[redacted]", "credentials": {"user": "[redacted]", "tags": ["[redacted]", "[redacted]"], "n": 7, "on": true, "none": null, "gone": ""}}}),
        );
    }

    #[test]
    fn counts_keys_and_plain_names_stay() {
        let usage = json!({"usage": {"inputTokens": 12, "total_tokens": "13"}, "sessionKey": "main", "primaryKey": "id",
            "tokenizer": "cl100k", "cookiePolicy": "strict", "next": {"key": "v"}});
        check(usage.clone(), usage);
    }

    #[test]
    fn a_member_whose_name_is_a_secret_is_renamed_and_stays_apart_from_its_like() {
        check(
            json!({"sk-live-abcdef0123456789abcdef": 1, "sk-live-abcdef0123456789abcdeg": 2, "x": 3}),
            json!({"[redacted]": 1, "[redacted]2": 2, "x": 3}),
        );
    }

    #[test]
    fn a_patch_or_a_header_list_names_its_value_in_a_sibling() {
        check(
            json!([{"op": "replace", "path": "/env/DB_PASSWORD", "value": "hunter2"}, {"name": "Authorization", "value": "Basic eA=="}]),
            json!([{"op": "replace", "path": "/env/DB_PASSWORD", "value": "[redacted]"}, {"name": "Authorization", "value": "[redacted]"}]),
        );
        let plain = json!({"op": "add", "path": "/text/-", "value": "hello"});
        check(plain.clone(), plain);
    }

    #[test]
    fn a_form_may_ask_for_a_password_but_not_come_with_one() {
        check(
            json!({"schema": {"type": "object", "properties": {"password": {"type": "string", "title": "Password", "default": "hunter2"}, "user": {"type": "string", "default": "me"}}}}),
            json!({"schema": {"type": "object", "properties": {"password": {"type": "string", "title": "Password", "default": "[redacted]"}, "user": {"type": "string", "default": "me"}}}}),
        );
        check(json!({"properties": {"password": "hunter2"}}), json!({"properties": {"password": "[redacted]"}}));
    }
}
