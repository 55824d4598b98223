//! Patches that a source made: applied as a whole or not at all, to contents that stay bounded.
//!
//! A patch costs what it changes, except where it moves or copies: the library cannot take back half a move, and copies grow
//! a content without a body on the wire. Such a patch works on a copy, and counts.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

/// The most that a content may come to by patches, in bytes; about, as [`weight`] has it.
pub(super) const CONTENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep a patch may build. Our own checkpoints and many a reader's JSON stop at 128.
const DEPTH_MAX: usize = 96;

/// A patch's operations: a bare one is wrapped.
pub(super) fn operations(patch: &Value) -> Vec<Value> {
    match patch {
        Value::Array(operations) => operations.clone(),
        bare => vec![bare.clone()],
    }
}

/// Applies a patch to a content, which stays an object.
///
/// # Errors
/// Why it does not apply. Then nothing has changed.
pub(super) fn apply(content: &mut Map<String, Value>, patch: &[Value]) -> Result<(), String> {
    for op in patch {
        let is = |member: &str, value: &str| op.get(member).and_then(Value::as_str) == Some(value);
        if is("path", "") && !is("op", "test") && !op.get("value").is_some_and(Value::is_object) {
            return Err("it would make the content something other than an object".into());
        }
    }
    let parsed: json_patch::Patch =
        serde_json::from_value(Value::Array(patch.to_vec())).map_err(|error| format!("it is no JSON Patch: {error}"))?;
    let mut carries = false;
    for op in &parsed.0 {
        match op {
            PatchOperation::Add(op) => is_shallow(op.path.as_str(), &op.value)?,
            PatchOperation::Replace(op) => is_shallow(op.path.as_str(), &op.value)?,
            PatchOperation::Move(_) | PatchOperation::Copy(_) => carries = true,
            PatchOperation::Remove(_) | PatchOperation::Test(_) => {}
        }
    }
    if carries {
        return apply_to_copy(content, &parsed.0);
    }
    let mut document = Value::Object(std::mem::take(content));
    let outcome = json_patch::patch(&mut document, &parsed).map_err(|error| error.to_string());
    *content = object(document);
    outcome
}

fn object(document: Value) -> Map<String, Value> {
    let Value::Object(content) = document else { unreachable!("the root is only ever replaced by an object: asked above") };
    content
}

fn apply_to_copy(content: &mut Map<String, Value>, patch: &[PatchOperation]) -> Result<(), String> {
    let mut document = Value::Object(content.clone());
    let mut bytes = weight(&document);
    for op in patch {
        let moved = match op {
            PatchOperation::Move(op) => document.pointer(op.from.as_str()).map(|value| (op.path.as_str(), value, false)),
            PatchOperation::Copy(op) => document.pointer(op.from.as_str()).map(|value| (op.path.as_str(), value, true)),
            _ => None,
        };
        if let Some((path, value, is_copy)) = moved {
            is_shallow(path, value)?;
            bytes += if is_copy { weight(value) } else { 0 };
            if bytes > CONTENT_BYTES_MAX {
                return Err(format!("it would copy the content to more than {CONTENT_BYTES_MAX} bytes, the limit"));
            }
        }
        json_patch::patch(&mut document, std::slice::from_ref(op)).map_err(|error| error.to_string())?;
    }
    *content = object(document);
    Ok(())
}

/// What a patch may add to a content, in bytes: what its operations bring. Copies are counted as they are made.
pub(super) fn brings(patch: &[Value]) -> usize {
    patch.iter().filter_map(|op| op.get("value")).map(weight).sum()
}

/// About as many bytes as the content's text has.
pub(super) fn weight_of(content: &Map<String, Value>) -> usize {
    content.iter().map(|(name, value)| 4 + name.len() + weight(value)).sum()
}

/// Whether a value at this path keeps a content within what may be built.
///
/// # Errors
/// What it is too deep for.
pub(super) fn is_shallow(path: &str, value: &Value) -> Result<(), String> {
    if path.matches('/').count() + depth(value) > DEPTH_MAX {
        return Err(format!("it would build deeper than {DEPTH_MAX} levels, the limit"));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About as many bytes as the value's text has.
fn weight(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.iter().map(|item| 1 + weight(item)).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(name, value)| 4 + name.len() + weight(value)).sum::<usize>(),
        Value::String(text) => 2 + text.len(),
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn content(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_patch_that_fails_halfway_changes_nothing_not_even_by_a_move() {
        let before = content(json!({"a": 1, "list": [1, 2]}));
        let fail = json!({"op": "test", "path": "/a", "value": 9});
        for op in [
            json!({"op": "move", "from": "/a", "path": "/nowhere/b"}),
            json!({"op": "add", "path": "/list/-", "value": 3}),
            json!({"op": "copy", "from": "/a", "path": "/list/0"}),
            json!({"op": "remove", "path": "/list/0"}),
            json!({"op": "replace", "path": "", "value": {}}),
        ] {
            let mut after = before.clone();
            apply(&mut after, &[op.clone(), fail.clone()]).unwrap_err();
            assert_eq!(after, before, "{op}");
        }
    }

    #[test]
    fn a_content_stays_an_object() {
        for op in [
            json!({"op": "replace", "path": "", "value": [1]}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "copy", "from": "/a", "path": ""}),
            json!({"op": "move", "from": "/a", "path": ""}),
        ] {
            let mut after = content(json!({"a": {}}));
            apply(&mut after, std::slice::from_ref(&op)).unwrap_err();
            assert_eq!(after, content(json!({"a": {}})), "{op}");
        }
    }

    #[test]
    fn what_copies_itself_is_stopped_by_size_and_by_depth() {
        let mut after = content(json!({"a": ["x".repeat(1000)]}));
        let grow = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        assert!(apply(&mut after, &vec![grow; 60]).unwrap_err().contains("limit"));
        let mut deep = content(json!({}));
        let path = |n: usize| "/a".repeat(n);
        let outcome = (1..200).try_for_each(|n| apply(&mut deep, &[json!({"op": "add", "path": path(n), "value": {}})]));
        assert!(outcome.unwrap_err().contains("deeper"));
        assert_eq!(depth(&Value::Object(deep)), DEPTH_MAX);
    }

    #[test]
    fn a_bare_operation_is_a_patch_of_one() {
        assert_eq!(operations(&json!({"op": "remove", "path": "/a"})), vec![json!({"op": "remove", "path": "/a"})]);
        assert_eq!(operations(&json!([])), Vec::<Value>::new());
    }
}
