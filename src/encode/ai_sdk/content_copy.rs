//! Bounded copies of contents that must be sent as a whole.
//!
//! A data part and a tool's preliminary output replace the previously sent value, and a delta contains only the change.
//! So the server keeps a copy and applies deltas to it, within limits. For a content beyond the limits the reader
//! receives the current state with the next snapshot, at the latest at the end of the stream.

use super::message_writer::json_bytes;
use serde_json::{Map, Value};

/// The largest content that is copied, in bytes.
pub const COPY_BYTES_MAX: usize = 256 * 1024;
/// The limit of all copies of one stream, in bytes.
pub const COPIES_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The most bytes sent per changed byte, where only a whole content can be sent.
///
/// A small change to a large content waits for further ones; deferred changes are sent before the stream ends.
const RESENT_PER_CHANGED_MAX: usize = 32;

/// Smaller contents are never deferred, in bytes: every operation is at least 16 bytes long.
pub(super) const DEFERRED_BYTES_MIN: usize = 16 * RESENT_PER_CHANGED_MAX;

/// The memory budget for the copies of one stream, in bytes.
#[derive(Debug, Default)]
pub(super) struct CopyBudget {
    used_bytes: usize,
}

impl CopyBudget {
    /// Whether the budget is nearly used up, so that copies of little use should go.
    pub const fn is_nearly_full(&self) -> bool {
        self.used_bytes > COPIES_BYTES_MAX / 4 * 3
    }
}

/// A copy of a content; empty if the content was too large.
#[derive(Debug, Default)]
pub(super) struct ContentCopy {
    content: Option<Map<String, Value>>,
    /// An upper bound of the copy's size, in bytes.
    bytes: usize,
}

impl ContentCopy {
    /// The copied content.
    pub const fn content(&self) -> Option<&Map<String, Value>> {
        self.content.as_ref()
    }

    /// An upper bound of the copy's size, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this many unsent bytes are too few to send the whole content again.
    pub fn should_defer(&mut self, unsent_bytes: usize, budget: &mut CopyBudget) -> bool {
        if unsent_bytes * RESENT_PER_CHANGED_MAX >= self.bytes {
            return false;
        }
        // The content may have shrunk below the upper bound.
        let exact = self.content.as_ref().map_or(0, json_bytes);
        budget.used_bytes -= self.bytes - exact;
        self.bytes = exact;
        unsent_bytes * RESENT_PER_CHANGED_MAX < exact
    }

    /// Replaces the copy, if the content is within the limits.
    pub fn store(&mut self, content: Map<String, Value>, budget: &mut CopyBudget) {
        self.clear(budget);
        let bytes = json_bytes(&content);
        if bytes <= COPY_BYTES_MAX && budget.used_bytes + bytes <= COPIES_BYTES_MAX {
            budget.used_bytes += bytes;
            *self = Self { content: Some(content), bytes };
        }
    }

    /// Applies a patch to the copy. Returns false if no copy is left.
    pub fn apply_patch(&mut self, patch: &[Value], budget: &mut CopyBudget) -> bool {
        let Some(content) = &mut self.content else { return false };
        let brought: usize = patch.iter().map(json_bytes).sum();
        let copies = patch.iter().any(|op| op["op"] == "copy");
        if !apply(content, patch) {
            self.clear(budget);
            return false;
        }
        let mut bytes = self.bytes + brought;
        if copies || bytes > COPY_BYTES_MAX || budget.used_bytes + brought > COPIES_BYTES_MAX {
            bytes = json_bytes(content);
        }
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

/// Applies a patch. Returns false if it does not apply.
pub(super) fn apply(content: &mut Map<String, Value>, patch: &[Value]) -> bool {
    let Ok(patch) = patch.iter().map(serde::Deserialize::deserialize).collect::<Result<Vec<_>, _>>() else { return false };
    let mut document = Value::Object(std::mem::take(content));
    let outcome = json_patch::patch(&mut document, &patch);
    if let Value::Object(changed) = document {
        *content = changed;
    }
    outcome.is_ok()
}

/// The text of a member: its chunks joined, or the string itself.
pub(super) fn joined(member: Option<&Value>) -> std::borrow::Cow<'_, str> {
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
    use serde_json::json;

    fn content(bytes: usize) -> Map<String, Value> {
        Map::from_iter([("body".to_owned(), Value::from("x".repeat(bytes)))])
    }

    #[test]
    fn a_copy_applies_deltas() {
        let (mut copy, mut budget) = (ContentCopy::default(), CopyBudget::default());
        copy.store(content(3), &mut budget);
        let patch = [json!({"op": "add", "path": "/n", "value": 1}), json!({"op": "replace", "path": "/body", "value": "y"})];
        assert!(copy.apply_patch(&patch, &mut budget));
        assert_eq!(Value::Object(copy.content().unwrap().clone()), json!({"body": "y", "n": 1}));
        assert!(!copy.apply_patch(&[json!({"op": "remove", "path": "/none"})], &mut budget), "the patch does not apply");
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
    }

    #[test]
    fn a_content_beyond_the_limit_is_not_copied() {
        let (mut copy, mut budget) = (ContentCopy::default(), CopyBudget::default());
        copy.store(content(COPY_BYTES_MAX), &mut budget);
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
        copy.store(content(COPY_BYTES_MAX - 1000), &mut budget);
        assert!(copy.content().is_some());
        // The size of the content counts, not the size of its changes.
        let small = json!({"op": "replace", "path": "/body", "value": "z".repeat(700)});
        assert!(copy.apply_patch(&[small], &mut budget));
        let large = json!({"op": "add", "path": "/more", "value": "z".repeat(COPY_BYTES_MAX)});
        assert!(!copy.apply_patch(&[large], &mut budget));
        assert_eq!((copy.content(), budget.used_bytes), (None, 0));
    }

    #[test]
    fn the_copies_of_a_stream_have_a_common_limit() {
        let mut budget = CopyBudget::default();
        let mut all: Vec<ContentCopy> = (0..20).map(|_| ContentCopy::default()).collect();
        for copy in &mut all {
            copy.store(content(200 * 1024), &mut budget);
        }
        let count = all.iter().filter(|copy| copy.content().is_some()).count();
        assert_eq!(count, COPIES_BYTES_MAX / (200 * 1024 + 11));
        assert!(budget.used_bytes <= COPIES_BYTES_MAX);
        for copy in &mut all {
            copy.clear(&mut budget);
        }
        assert_eq!(budget.used_bytes, 0);
    }
}
