//! Bounded copies of contents that must be sent as a whole.
//!
//! A data part and a tool's preliminary output replace the previously sent value, and a delta contains only the change.
//! So the server keeps a copy and applies deltas to it, within limits. For a content beyond the limits the reader
//! receives the current state with the next snapshot, at the latest at the end of the stream.

use json_patch::PatchOperation;
use proscenium_projection::activity_set::value_at;
use proscenium_projection::change::{ContentOperation, Within};
use serde::Deserialize;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io;
use std::sync::Arc;

/// The largest content that is copied, in bytes.
pub const COPY_BYTES_MAX: usize = 256 * 1024;
/// The limit of all copies of one stream, in bytes.
pub const COPIES_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The most bytes sent per changed byte, where only a whole content can be sent.
///
/// A small change to a large content waits for further ones; deferred changes are sent before the stream ends.
const RESENT_PER_CHANGED_MAX: usize = 32;

/// Smaller contents are never deferred, in bytes: every operation is at least 16 bytes long.
pub(crate) const DEFERRED_BYTES_MIN: usize = 16 * RESENT_PER_CHANGED_MAX;

/// The memory budget for the copies of one stream, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CopyBudget {
    used_bytes: usize,
}

impl CopyBudget {
    /// Whether the budget is nearly used up, so that copies of little use should go.
    pub const fn is_nearly_full(&self) -> bool {
        self.used_bytes > COPIES_BYTES_MAX / 4 * 3
    }
}

/// A copy of a content; empty if the content was too large.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContentCopy {
    content: Option<Arc<Map<String, Value>>>,
    /// The size of its JSON text, in bytes: the same for readers who got the content in other ways.
    bytes: usize,
}

impl ContentCopy {
    /// The copied content.
    pub fn content(&self) -> Option<&Map<String, Value>> {
        self.content.as_deref()
    }

    /// The size of the copy, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this many unsent bytes are too few to send the whole content again.
    pub const fn should_defer(&self, unsent_bytes: usize) -> bool {
        unsent_bytes * RESENT_PER_CHANGED_MAX < self.bytes
    }

    /// Replaces the copy, if the content is within the limits.
    pub fn store(&mut self, content: &Arc<Map<String, Value>>, budget: &mut CopyBudget) {
        self.clear(budget);
        let bytes = json_bytes(&**content);
        if bytes <= COPY_BYTES_MAX && budget.used_bytes + bytes <= COPIES_BYTES_MAX {
            budget.used_bytes += bytes;
            *self = Self { content: Some(content.clone()), bytes };
        }
    }

    /// Applies operations to the copy. Returns false if no copy is left.
    pub fn apply(&mut self, operations: &[ContentOperation], budget: &mut CopyBudget) -> bool {
        let Some(content) = self.content.as_mut().map(Arc::make_mut) else { return false };
        let Some(bytes) = apply_counted(content, self.bytes, operations) else {
            self.clear(budget);
            return false;
        };
        budget.used_bytes = budget.used_bytes - self.bytes + bytes;
        self.bytes = bytes;
        if bytes > COPY_BYTES_MAX || budget.used_bytes > COPIES_BYTES_MAX {
            self.clear(budget);
            return false;
        }
        true
    }

    /// Drops the copy.
    pub fn clear(&mut self, budget: &mut CopyBudget) {
        budget.used_bytes -= std::mem::take(&mut self.bytes);
        self.content = None;
    }
}

/// The length of a value's JSON text, in bytes.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("plain JSON serializes, and the count takes every byte");
    count.0
}

/// Applies operations. Returns false if one does not apply.
pub(crate) fn apply(content: &mut Map<String, Value>, operations: &[ContentOperation]) -> bool {
    operations.iter().all(|operation| match operation {
        ContentOperation::FromSource(op) => apply_from_source(content, op),
        own => apply_own(content, own).is_some(),
    })
}

/// Applies operations to a content of this size. Returns the new size; `None` if one does not apply.
fn apply_counted(content: &mut Map<String, Value>, bytes: usize, operations: &[ContentOperation]) -> Option<usize> {
    operations.iter().try_fold(bytes, |bytes, operation| match operation {
        ContentOperation::FromSource(op) => {
            let grown = growth(content, op);
            apply_from_source(content, op)
                .then(|| grown.map_or_else(|| json_bytes(&*content), |(more, less)| bytes + more - less))
        }
        own => apply_own(content, own).map(|(more, less)| bytes + more - less),
    })
}

fn apply_from_source(content: &mut Map<String, Value>, op: &Value) -> bool {
    let Ok(op) = PatchOperation::deserialize(op) else { return false };
    let mut document = Value::Object(std::mem::take(content));
    let outcome = json_patch::patch(&mut document, &[op]);
    if let Value::Object(changed) = document {
        *content = changed;
    }
    outcome.is_ok()
}

/// Applies an operation of the fold. Returns the bytes that it adds to the content's text and takes from it.
fn apply_own(content: &mut Map<String, Value>, operation: &ContentOperation) -> Option<(usize, usize)> {
    use ContentOperation as Op;
    let at = operation.place()?;
    let object = match at.within {
        Within::Content => content,
        Within::Item(list, index) => content.get_mut(list)?.get_mut(index)?.as_object_mut()?,
        Within::Member(member) => content.get_mut(member)?.as_object_mut()?,
    };
    // A quoted name, a colon, and a comma if there are others.
    let beside = |others: usize| json_bytes(&at.member) + 1 + usize::from(others > 0);
    match operation {
        Op::Add(_, value) | Op::Replace(_, value) => match object.insert(at.member.clone().into_owned(), value.clone()) {
            Some(old) => Some((json_bytes(value), json_bytes(&old))),
            None => Some((json_bytes(value) + beside(object.len() - 1), 0)),
        },
        Op::Remove(_) => {
            let old = object.shift_remove(&*at.member)?;
            Some((0, json_bytes(&old) + beside(object.len())))
        }
        Op::Push(_, value) => {
            let items = object.get_mut(&*at.member)?.as_array_mut()?;
            items.push(value.clone());
            Some((json_bytes(value) + usize::from(items.len() > 1), 0))
        }
        Op::RemoveFirst(_) => {
            let items = object.get_mut(&*at.member)?.as_array_mut().filter(|items| !items.is_empty())?;
            let old = items.remove(0);
            Some((0, json_bytes(&old) + usize::from(!items.is_empty())))
        }
        Op::FromSource(_) => None,
    }
}

/// The bytes that a source's operation adds to a content's text and takes from it, if its path tells them.
fn growth(content: &Map<String, Value>, op: &Value) -> Option<(usize, usize)> {
    let (kind, path) = (op.get("op")?.as_str()?, op.get("path")?.as_str()?);
    let (parent, name) = path.rsplit_once('/')?;
    // A member of the content itself is no deep path.
    let (parent, old) = (value_at(content, parent)?, value_at(content, path).map(json_bytes));
    let (name, has_others) = match parent {
        // A quoted name and a colon. An escaped name is rare.
        Value::Object(members) if !name.contains('~') => (json_bytes(&name) + 1, members.len() > usize::from(old.is_some())),
        Value::Array(items) => (0, items.len() > usize::from(kind == "remove")),
        _ => return None,
    };
    let beside = name + usize::from(has_others);
    match (kind, old) {
        ("remove", Some(old)) => Some((0, old + beside)),
        ("replace", Some(old)) => Some((json_bytes(op.get("value")?), old)),
        ("add", Some(old)) if parent.is_object() => Some((json_bytes(op.get("value")?), old)),
        ("add", _) => Some((json_bytes(op.get("value")?) + beside, 0)),
        _ => None,
    }
}

/// The text of a member: its chunks joined, or the string itself.
pub(crate) fn joined(member: Option<&Value>) -> std::borrow::Cow<'_, str> {
    match member {
        Some(Value::String(text)) => text.into(),
        Some(Value::Array(chunks)) => match &chunks[..] {
            [Value::String(only)] => only.into(),
            chunks => chunks.iter().filter_map(Value::as_str).collect::<String>().into(),
        },
        _ => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proscenium_projection::operations;
    use serde_json::json;

    fn content(bytes: usize) -> Arc<Map<String, Value>> {
        Arc::new(Map::from_iter([("body".to_owned(), Value::from("x".repeat(bytes)))]))
    }

    #[test]
    fn a_copy_applies_deltas() {
        let (mut copy, mut budget) = (ContentCopy::default(), CopyBudget::default());
        copy.store(&content(3), &mut budget);
        let patch = [json!({"op": "add", "path": "/n", "value": 1}), json!({"op": "replace", "path": "/body", "value": "y"})];
        assert!(copy.apply(&patch.map(operations::read), &mut budget));
        assert_eq!(Value::Object(copy.content().unwrap().clone()), json!({"body": "y", "n": 1}));
        assert!(
            !copy.apply(&[operations::read(json!({"op": "remove", "path": "/none"}))], &mut budget),
            "the patch does not apply"
        );
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
    }

    #[test]
    fn a_content_beyond_the_limit_is_not_copied() {
        let (mut copy, mut budget) = (ContentCopy::default(), CopyBudget::default());
        copy.store(&content(COPY_BYTES_MAX), &mut budget);
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
        copy.store(&content(COPY_BYTES_MAX - 1000), &mut budget);
        assert!(copy.content().is_some());
        // The size of the content counts, not the size of its changes.
        let small = json!({"op": "replace", "path": "/body", "value": "z".repeat(700)});
        assert!(copy.apply(&[operations::read(small)], &mut budget));
        let large = json!({"op": "add", "path": "/more", "value": "z".repeat(COPY_BYTES_MAX)});
        assert!(!copy.apply(&[operations::read(large)], &mut budget));
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
    }

    #[test]
    fn the_copies_of_a_stream_have_a_common_limit() {
        let mut budget = CopyBudget::default();
        let mut all: Vec<ContentCopy> = (0..20).map(|_| ContentCopy::default()).collect();
        for copy in &mut all {
            copy.store(&content(200 * 1024), &mut budget);
        }
        let count = all.iter().filter(|copy| copy.content().is_some()).count();
        assert_eq!(count, COPIES_BYTES_MAX / (200 * 1024 + 11));
        assert!(budget.used_bytes <= COPIES_BYTES_MAX);
        for copy in &mut all {
            copy.clear(&mut budget);
        }
        assert_eq!(budget.used_bytes, 0);
    }

    fn member() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "é\"", "list"])
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i16>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(json!({"a": [1, "x"]})),
            Just(json!([]))
        ]
    }

    fn operation() -> impl Strategy<Value = Value> {
        let path = prop_oneof![
            member().prop_map(|name| format!("/{name}")),
            (member(), member()).prop_map(|(name, inner)| format!("/{name}/{inner}")),
            Just("/list/-".to_owned()),
            Just("/list/0".to_owned()),
            Just("/a/a/1".to_owned()),
        ];
        (path, value(), prop::sample::select(vec!["add", "replace", "remove", "copy"])).prop_map(|(path, value, op)| match op {
            "copy" => json!({ "op": op, "path": path, "from": "/list" }),
            _ => json!({ "op": op, "path": path, "value": value }),
        })
    }

    proptest! {
        #[test]
        fn the_size_of_a_copy_is_that_of_its_text(
            patches in prop::collection::vec(prop::collection::vec(operation(), 1..3), 1..20)
        ) {
            let (mut copy, mut budget) = (ContentCopy::default(), CopyBudget::default());
            let start = || Arc::new(json!({ "list": [1], "a": {} }).as_object().unwrap().clone());
            copy.store(&start(), &mut budget);
            for patch in patches {
                let operations: Vec<_> = patch.into_iter().map(operations::read).collect();
                if !copy.apply(&operations, &mut budget) {
                    copy.store(&start(), &mut budget);
                }
                prop_assert_eq!((copy.bytes(), budget.used_bytes), (json_bytes(copy.content().unwrap()), copy.bytes()));
            }
        }
    }
}
