//! Applies a source's patch completely or not at all, to contents of bounded size.
//!
//! The cost of a patch follows the patch's size, not the content's. The patch is applied in place and undone on
//! failure, and each change updates the content's size. Only three things cost as much as the content holds: shifting
//! list items, copying, and moving values deeper. These count as steps, of which a patch has at most [`STEPS_MAX`].

use json_patch::PatchOperation;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The largest content after a patch, in bytes as [`json_bytes`] counts them.
pub(super) const CONTENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The deepest level that a patch may build. Our own checkpoints and many JSON parsers stop at 128.
const DEPTH_MAX: usize = 96;

/// The most list items that one patch may shift, plus the values that it copies or moves deeper.
///
/// Without this limit a fact of 90 KB with 2,000 moves stalled the server for seconds.
pub(super) const STEPS_MAX: usize = 1 << 20;

/// The bytes of a text that count as one step.
const BYTES_PER_STEP: usize = 16;

/// The operations of a patch; a bare operation counts as a list of one.
pub(super) fn operations(patch: &Value) -> Vec<Value> {
    match patch {
        Value::Array(operations) => operations.clone(),
        bare => vec![bare.clone()],
    }
}

/// Applies a patch to a content, which stays an object. `known` caches the content's size.
///
/// # Errors
/// The reason why the patch does not apply. The content is then unchanged.
pub(super) fn apply(content: &mut Map<String, Value>, patch: &[Value], known: &mut Option<usize>) -> Result<(), String> {
    apply_within(content, patch, CONTENT_BYTES_MAX, known)
}

/// As [`apply`], to a content of at most `bytes_max`.
pub(super) fn apply_within(
    content: &mut Map<String, Value>,
    patch: &[Value],
    bytes_max: usize,
    known: &mut Option<usize>,
) -> Result<(), String> {
    for op in patch {
        let is = |member: &str, value: &str| op.get(member).and_then(Value::as_str) == Some(value);
        // Other operations ignore a member `value`.
        let gives_object = (is("op", "add") || is("op", "replace")) && op.get("value").is_some_and(Value::is_object);
        if is("path", "") && !is("op", "test") && !gives_object {
            return Err("The patch would make the content something other than an object.".into());
        }
    }
    let parsed: Vec<PatchOperation> = patch
        .iter()
        .map(PatchOperation::deserialize)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("The patch is not a JSON Patch: {error}."))?;
    let before = *known.get_or_insert_with(|| object_bytes(content));
    let mut change = PatchRun { document: Value::Object(std::mem::take(content)), ..PatchRun::default() };
    let outcome = change.apply(parsed).and_then(|()| change.bytes_after(before, bytes_max));
    if outcome.is_err() {
        change.undo_all();
    }
    let Value::Object(document) = change.document else { unreachable!("the check above allows only an object as the root") };
    *content = document;
    *known = Some(*outcome.as_ref().unwrap_or(&before));
    outcome.map(drop)
}

/// A patch that is being applied.
#[derive(Default)]
struct PatchRun {
    document: Value,
    /// The undo log; the last entry is undone first.
    undo: Vec<Undo>,
    /// The value in transit between two places.
    in_transit: Option<Value>,
    steps: usize,
    /// The bytes that the patch adds, and the bytes that it frees besides the values in `undo`.
    added: usize,
    freed: usize,
}

/// The undo of one change.
enum Undo {
    /// A value was inserted into the object or list at this pointer.
    Inserted(String, Slot),
    /// This value was removed; `None` for a move, whose value is in transit while it is undone.
    Removed(String, Slot, Option<Value>),
    /// This value was at this pointer before.
    Replaced(String, Value),
}

enum Slot {
    Member(String),
    Item(usize),
}

impl PatchRun {
    fn apply(&mut self, patch: Vec<PatchOperation>) -> Result<(), String> {
        for (i, op) in patch.into_iter().enumerate() {
            let path = op.path().to_string();
            self.step(op, &path).map_err(|error| format!("Operation {i} at {path:?}: {error}"))?;
        }
        Ok(())
    }

    fn step(&mut self, op: PatchOperation, path: &str) -> Result<(), String> {
        match op {
            PatchOperation::Add(op) => {
                check_depth(path, &op.value)?;
                self.added += json_bytes(&op.value);
                self.insert(path, op.value)
            }
            PatchOperation::Replace(op) => {
                check_depth(path, &op.value)?;
                self.added += json_bytes(&op.value);
                let target = self.document.pointer_mut(path).ok_or(NO_SUCH_PATH)?;
                let before = std::mem::replace(target, op.value);
                self.undo.push(Undo::Replaced(path.into(), before));
                Ok(())
            }
            PatchOperation::Remove(_) => {
                let (value, parent, slot) = self.remove(path)?;
                self.undo.push(Undo::Removed(parent, slot, Some(value)));
                Ok(())
            }
            PatchOperation::Move(op) => {
                let from = op.from.as_str();
                if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
                    return Err("A value cannot be moved into itself.".into());
                }
                // Only a move to a deeper place can make the content too deep.
                if path.matches('/').count() > from.matches('/').count() {
                    self.check_source(path, from)?;
                }
                let (value, parent, slot) = self.remove(from)?;
                self.undo.push(Undo::Removed(parent, slot, None));
                self.insert(path, value)
            }
            PatchOperation::Copy(op) => {
                self.added += self.check_source(path, op.from.as_str())?;
                let value = self.document.pointer(op.from.as_str()).ok_or(NO_SUCH_PATH)?.clone();
                self.insert(path, value)
            }
            PatchOperation::Test(op) => match self.document.pointer(path) {
                Some(value) if *value == op.value => Ok(()),
                Some(_) => Err("The value is different.".into()),
                None => Err(NO_SUCH_PATH.into()),
            },
        }
    }

    /// Checks that the value at `from` may be placed at `path`, and returns its size.
    fn check_source(&mut self, path: &str, from: &str) -> Result<usize, String> {
        let value = self.document.pointer(from).ok_or(NO_SUCH_PATH)?;
        add_steps_for(&mut self.steps, value)?;
        check_depth(path, value)?;
        Ok(json_bytes(value))
    }

    /// Inserts a value at a path. If that fails, the value stays in transit.
    fn insert(&mut self, path: &str, value: Value) -> Result<(), String> {
        let Some((parent, last)) = path.rsplit_once('/') else {
            self.undo.push(Undo::Replaced(path.into(), std::mem::replace(&mut self.document, value)));
            return Ok(());
        };
        let value = self.in_transit.insert(value);
        match self.document.pointer_mut(parent) {
            Some(Value::Object(map)) => {
                let name = unescaped(last);
                if let Some(target) = map.get_mut(&name) {
                    self.undo.push(Undo::Replaced(path.into(), std::mem::replace(target, value.take())));
                } else {
                    self.added += MEMBER_BYTES + name.len();
                    map.insert(name.clone(), value.take());
                    self.undo.push(Undo::Inserted(parent.into(), Slot::Member(name)));
                }
            }
            Some(Value::Array(items)) => {
                let at = if last == "-" { items.len() } else { index(last).ok_or(NO_SUCH_PATH)? };
                add_steps(&mut self.steps, items.len().checked_sub(at).ok_or(NO_SUCH_PATH)?)?;
                self.added += ITEM_BYTES;
                items.insert(at, value.take());
                self.undo.push(Undo::Inserted(parent.into(), Slot::Item(at)));
            }
            _ => return Err(NO_SUCH_PATH.into()),
        }
        self.in_transit = None;
        Ok(())
    }

    /// Removes a value from its object or list.
    fn remove(&mut self, path: &str) -> Result<(Value, String, Slot), String> {
        let (parent, last) = path.rsplit_once('/').ok_or(NO_SUCH_PATH)?;
        match self.document.pointer_mut(parent) {
            Some(Value::Object(map)) => {
                let name = unescaped(last);
                // A shifting removal is linear in the number of members, and the order of members has no meaning.
                let value = map.swap_remove(&name).ok_or(NO_SUCH_PATH)?;
                self.freed += MEMBER_BYTES + name.len();
                Ok((value, parent.into(), Slot::Member(name)))
            }
            Some(Value::Array(items)) => {
                let at = index(last).filter(|at| *at < items.len()).ok_or(NO_SUCH_PATH)?;
                add_steps(&mut self.steps, items.len() - at)?;
                self.freed += ITEM_BYTES;
                Ok((items.remove(at), parent.into(), Slot::Item(at)))
            }
            _ => Err(NO_SUCH_PATH.into()),
        }
    }

    /// The content's size after the patch.
    ///
    /// # Errors
    /// The size exceeds the limit.
    fn bytes_after(&self, before: usize, bytes_max: usize) -> Result<usize, String> {
        let gone = self.undo.iter().map(|undo| match undo {
            Undo::Removed(_, _, Some(value)) | Undo::Replaced(_, value) => json_bytes(value),
            Undo::Removed(_, _, None) | Undo::Inserted(..) => 0,
        });
        let after = (before + self.added).saturating_sub(self.freed + gone.sum::<usize>());
        if after > bytes_max {
            return Err(format!("The patch would make the content larger than {bytes_max} bytes, the limit."));
        }
        Ok(after)
    }

    fn undo_all(&mut self) {
        const PRESENT: &str = "the value existed when the patch changed it";
        for undo in self.undo.drain(..).rev() {
            match undo {
                Undo::Inserted(parent, slot) => {
                    let removed = match (self.document.pointer_mut(&parent).expect(PRESENT), slot) {
                        (Value::Object(map), Slot::Member(name)) => map.swap_remove(&name),
                        (Value::Array(items), Slot::Item(at)) => Some(items.remove(at)),
                        _ => None,
                    };
                    self.in_transit = removed;
                }
                Undo::Removed(parent, slot, value) => {
                    let value = value.or_else(|| self.in_transit.take()).expect(PRESENT);
                    match (self.document.pointer_mut(&parent).expect(PRESENT), slot) {
                        (Value::Object(map), Slot::Member(name)) => drop(map.insert(name, value)),
                        (Value::Array(items), Slot::Item(at)) => items.insert(at, value),
                        _ => {}
                    }
                }
                Undo::Replaced(path, before) => {
                    let target = self.document.pointer_mut(&path).expect(PRESENT);
                    self.in_transit = Some(std::mem::replace(target, before));
                }
            }
        }
    }
}

const NO_SUCH_PATH: &str = "The path does not exist.";

/// Parses a list index (RFC 6901).
fn index(token: &str) -> Option<usize> {
    let is_index = token.bytes().all(|b| b.is_ascii_digit()) && (token.len() == 1 || !token.starts_with('0'));
    token.parse().ok().filter(|_| is_index)
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn add_steps(steps: &mut usize, more: usize) -> Result<(), String> {
    *steps += more;
    if *steps > STEPS_MAX {
        return Err(format!("The patch would shift, copy or move more than {STEPS_MAX} values, the limit of a patch."));
    }
    Ok(())
}

/// Spends the steps for visiting a value, and fails where they exceed the limit.
fn add_steps_for(steps: &mut usize, value: &Value) -> Result<(), String> {
    add_steps(steps, 1)?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| add_steps_for(steps, item)),
        Value::Object(map) => map.iter().try_for_each(|(name, value)| {
            add_steps(steps, name.len() / BYTES_PER_STEP)?;
            add_steps_for(steps, value)
        }),
        Value::String(text) => add_steps(steps, text.len() / BYTES_PER_STEP),
        _ => Ok(()),
    }
}

/// The bytes of a member and of an item, beside the value and the name's own bytes.
const MEMBER_BYTES: usize = 4;
const ITEM_BYTES: usize = 1;

/// The approximate length of the content's JSON text, in bytes.
fn object_bytes(content: &Map<String, Value>) -> usize {
    content.iter().map(|(name, value)| MEMBER_BYTES + name.len() + json_bytes(value)).sum()
}

/// Checks the depth of a value at this path.
///
/// # Errors
/// The value would be deeper than [`DEPTH_MAX`].
pub(super) fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    if path.matches('/').count() + depth(value) > DEPTH_MAX {
        return Err(format!("The patch would build deeper than {DEPTH_MAX} levels, the limit."));
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

/// The approximate length of the value's JSON text, in bytes.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.iter().map(|item| ITEM_BYTES + json_bytes(item)).sum::<usize>(),
        Value::Object(map) => 2 + object_bytes(map),
        Value::String(text) => 2 + text.len(),
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;

    fn content(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_patch_that_fails_halfway_changes_nothing() {
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
            apply(&mut after, &[op.clone(), fail.clone()], &mut None).unwrap_err();
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
            json!({"op": "copy", "from": "/n", "path": "", "value": {}}),
            json!({"op": "move", "from": "/n", "path": "", "value": {}}),
        ] {
            let mut after = content(json!({"a": {}, "n": 1}));
            apply(&mut after, std::slice::from_ref(&op), &mut None).unwrap_err();
            assert_eq!(after, content(json!({"a": {}, "n": 1})), "{op}");
        }
    }

    #[test]
    fn a_patch_that_copies_into_itself_is_limited_by_size_and_by_depth() {
        let mut after = content(json!({"a": ["x".repeat(1000)]}));
        let grow = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        assert!(apply(&mut after, &vec![grow; 60], &mut None).unwrap_err().contains("limit"));
        let mut deep = content(json!({}));
        let path = |n: usize| "/a".repeat(n);
        let outcome =
            (1..200).try_for_each(|n| apply(&mut deep, &[json!({"op": "add", "path": path(n), "value": {}})], &mut None));
        assert!(outcome.unwrap_err().contains("deeper"));
        assert_eq!(depth(&Value::Object(deep)), DEPTH_MAX);
    }

    /// JSON of objects and lists with few names, so that random paths often exist.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!("text")), Just(Value::Null)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec((select(&["a", "b", "a/b", "c~"][..]), inner), 0..4).prop_map(|members| Value::Object(
                    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                )),
            ]
        })
    }

    fn operation() -> impl Strategy<Value = Value> {
        let path = || {
            vec(select(&["/a", "/b", "/a~1b", "/c~0", "/0", "/1", "/2", "/-", "/01", "/+1"][..]), 0..4)
                .prop_map(|tokens| tokens.concat())
        };
        let op = select(&["add", "remove", "replace", "move", "copy", "test"][..]);
        (op, path(), path(), value())
            .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_patch_acts_as_the_library_does_or_not_at_all_and_its_size_is_exact(
            before in vec((select(&["a", "b", "a/b", "c~"][..]), value()), 0..4),
            patch in vec(operation(), 1..6),
        ) {
            let before: Map<_, _> = before.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let (mut after, mut known) = (before.clone(), None);
            let outcome = apply(&mut after, &patch, &mut known);
            let mut document = Value::Object(before.clone());
            let parsed: json_patch::Patch = serde_json::from_value(json!(patch)).unwrap();
            // The library cannot always undo a failed patch, but its result is right.
            let expected = json_patch::patch_unsafe(&mut document, &parsed);
            match outcome {
                Ok(()) => {
                    prop_assert!(expected.is_ok());
                    prop_assert_eq!(&Value::Object(after.clone()), &document);
                }
                Err(error) => {
                    prop_assert!(expected.is_err() || error.contains("something other than an object"), "{error}");
                    prop_assert_eq!(&after, &before);
                }
            }
            prop_assert!(known.is_none_or(|known| known == object_bytes(&after)));
        }
    }

    /// The number of steps that a patch takes.
    fn steps(content: &Map<String, Value>, patch: Value) -> usize {
        let mut change = PatchRun { document: Value::Object(content.clone()), ..PatchRun::default() };
        change.apply(serde_json::from_value(patch).unwrap()).unwrap();
        change.steps
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn the_work_for_a_patch_does_not_grow_with_the_content() {
        let rounds = |n: usize| -> Vec<Value> {
            let rounds = [json!({"op": "move", "from": "/a", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a"})];
            rounds.into_iter().cycle().take(n).collect()
        };
        let of = |n: usize| content(json!({"a": {"list": vec![json!({"x": "y"}); n]}, "c": vec![1; n]}));
        for n in [10, 100_000] {
            assert_eq!(steps(&of(n), json!(rounds(2_000))), 0);
            assert_eq!(steps(&of(n), json!([{"op": "move", "from": "/a/list", "path": "/list"}])), 0);
            assert_eq!(steps(&of(n), json!([{"op": "add", "path": "/c/-", "value": 1}])), 0);
            assert_eq!(steps(&of(n), json!([{"op": "remove", "path": format!("/c/{}", n - 1)}])), 1);
            assert_eq!(steps(&of(n), json!([{"op": "replace", "path": "/a", "value": 1}, {"op": "remove", "path": "/c"}])), 0);
        }
        // The same holds for the time, as far as a busy machine shows it: a copy would take 100 times as long.
        let time = |n: usize, patch: &[Value]| {
            let (mut content, mut known) = (of(n), None);
            apply(&mut content, &[], &mut known).unwrap();
            let once = |_| {
                let start = std::time::Instant::now();
                apply(&mut content, patch, &mut known).unwrap();
                start.elapsed()
            };
            (0..9).map(once).min().unwrap()
        };
        let (small, large) = (time(1_000, &rounds(2_000)), time(100_000, &rounds(2_000)));
        assert!(large < 50 * small, "{small:?} and {large:?}");
    }

    #[test]
    fn a_patch_beyond_the_step_limit_is_refused_and_changes_nothing() {
        let n = STEPS_MAX / 8;
        let before = content(json!({"list": vec![json!({"x": 1}); n], "texts": ["x".repeat(4096)], "deep": {}}));
        let shift = json!({"op": "move", "from": "/list/0", "path": "/list/-"});
        let deeper = json!({"op": "move", "from": "/list", "path": "/deep/list"});
        let back = json!({"op": "move", "from": "/deep/list", "path": "/list"});
        let copy = json!({"op": "copy", "from": "/list", "path": "/copy"});
        let copy_text = json!({"op": "copy", "from": "/texts/0", "path": "/texts/-"});
        for (patch, may) in [
            (vec![shift.clone(); 8], true),
            (vec![shift; 9], false),
            (vec![deeper.clone(), back.clone(), deeper.clone(), back.clone(), deeper.clone(), back.clone()], true),
            ([deeper, back].into_iter().cycle().take(8).collect(), false),
            (vec![copy.clone(); 3], true),
            (vec![copy; 4], false),
            (vec![copy_text.clone(); 3_000], true),
            (vec![copy_text; 4_200], false),
        ] {
            let (mut after, mut known) = (before.clone(), None);
            let outcome = apply(&mut after, &patch, &mut known);
            assert_eq!(outcome.is_ok(), may, "{outcome:?} {}", patch[0]);
            assert!(outcome.is_ok() || (outcome.unwrap_err().contains("the limit of a patch") && after == before));
            assert_eq!(known, Some(object_bytes(&after)));
        }
    }

    #[test]
    fn a_bare_operation_is_a_patch_of_one() {
        assert_eq!(operations(&json!({"op": "remove", "path": "/a"})), vec![json!({"op": "remove", "path": "/a"})]);
        assert_eq!(operations(&json!([])), Vec::<Value>::new());
    }
}
