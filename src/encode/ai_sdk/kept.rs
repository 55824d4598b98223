//! Copies of contents that can only be said as a whole.
//!
//! A data part and a tool's preliminary output replace what was said before, and a delta tells only what changed. So what
//! changes is kept beside it, within bounds. What is too large for them is not followed: the reader is told it as it is then
//! with the next snapshot, at the latest at the end.

use super::page::weight;
use serde_json::{Map, Value};

/// The largest content of which a copy is kept, in bytes.
pub const COPY_BYTES_MAX: usize = 256 * 1024;
/// All copies of one stream, in bytes.
pub const COPIES_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How many times the bytes that changed may be said, where only a whole can be said: a large content with a small change waits
/// for further ones. What waits is said before the stream ends.
const WHOLE_PER_CHANGE: usize = 32;

/// Contents that are smaller never wait, in bytes: no operation is as small as that.
pub(super) const WAITS_FROM: usize = 16 * WHOLE_PER_CHANGE;

/// What all copies of a stream take, in bytes.
#[derive(Debug, Default)]
pub(super) struct Room {
    taken: usize,
}

impl Room {
    /// Whether there will soon be no more: what is hardly needed any more is to go.
    pub const fn is_tight(&self) -> bool {
        self.taken > COPIES_BYTES_MAX / 4 * 3
    }
}

/// A copy, unless it was too large.
#[derive(Debug, Default)]
pub(super) struct Kept {
    content: Option<Map<String, Value>>,
    /// At least as many bytes as the copy has.
    bytes: usize,
}

impl Kept {
    /// What is kept.
    pub const fn content(&self) -> Option<&Map<String, Value>> {
        self.content.as_ref()
    }

    /// At least as many bytes as the copy has.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes of changes are too few to say all of it again; where there is no copy, nothing can be said.
    pub fn waits(&mut self, unsaid: usize, room: &mut Room) -> bool {
        if unsaid * WHOLE_PER_CHANGE >= self.bytes {
            return false;
        }
        // It may have become smaller than is known.
        let exact = self.content.as_ref().map_or(0, weight);
        room.taken -= self.bytes - exact;
        self.bytes = exact;
        unsaid * WHOLE_PER_CHANGE < exact
    }

    /// Keeps a copy of this instead of what was kept.
    pub fn keep(&mut self, content: Map<String, Value>, room: &mut Room) {
        self.forget(room);
        let bytes = weight(&content);
        if bytes <= COPY_BYTES_MAX && room.taken + bytes <= COPIES_BYTES_MAX {
            room.taken += bytes;
            *self = Self { content: Some(content), bytes };
        }
    }

    /// Changes the copy as a patch says; false where there is none any more.
    pub fn follow(&mut self, patch: &[Value], room: &mut Room) -> bool {
        let Some(content) = &mut self.content else { return false };
        let brought: usize = patch.iter().map(weight).sum();
        let copies = patch.iter().any(|op| op["op"] == "copy");
        if !apply(content, patch) {
            self.forget(room);
            return false;
        }
        let mut bytes = self.bytes + brought;
        if copies || bytes > COPY_BYTES_MAX || room.taken + brought > COPIES_BYTES_MAX {
            bytes = weight(content);
        }
        room.taken = room.taken - self.bytes + bytes;
        self.bytes = bytes;
        if bytes > COPY_BYTES_MAX || room.taken > COPIES_BYTES_MAX {
            self.forget(room);
            return false;
        }
        true
    }

    /// Keeps nothing.
    pub fn forget(&mut self, room: &mut Room) {
        room.taken -= std::mem::take(&mut self.bytes);
        self.content = None;
    }
}

/// Applies a patch; false where it does not apply.
pub(super) fn apply(content: &mut Map<String, Value>, patch: &[Value]) -> bool {
    let Ok(patch) = patch.iter().map(serde::Deserialize::deserialize).collect::<Result<Vec<_>, _>>() else { return false };
    let mut document = Value::Object(std::mem::take(content));
    let outcome = json_patch::patch(&mut document, &patch);
    if let Value::Object(changed) = document {
        *content = changed;
    }
    outcome.is_ok()
}

/// What a text member says, its chunks joined; a text stands for itself.
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
    fn a_copy_follows_its_deltas() {
        let (mut kept, mut room) = (Kept::default(), Room::default());
        kept.keep(content(3), &mut room);
        let patch = [json!({"op": "add", "path": "/n", "value": 1}), json!({"op": "replace", "path": "/body", "value": "y"})];
        assert!(kept.follow(&patch, &mut room));
        assert_eq!(Value::Object(kept.content().unwrap().clone()), json!({"body": "y", "n": 1}));
        assert!(!kept.follow(&[json!({"op": "remove", "path": "/none"})], &mut room), "what does not apply is not followed");
        assert_eq!((kept.content(), room.taken), (None, 0));
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let (mut kept, mut room) = (Kept::default(), Room::default());
        kept.keep(content(COPY_BYTES_MAX), &mut room);
        assert_eq!((kept.content(), room.taken), (None, 0));
        kept.keep(content(COPY_BYTES_MAX - 1000), &mut room);
        assert!(kept.content().is_some());
        // It is the content that counts, not what changed it.
        let small = json!({"op": "replace", "path": "/body", "value": "z".repeat(700)});
        assert!(kept.follow(&[small], &mut room));
        let large = json!({"op": "add", "path": "/more", "value": "z".repeat(COPY_BYTES_MAX)});
        assert!(!kept.follow(&[large], &mut room));
        assert_eq!((kept.content(), room.taken), (None, 0));
    }

    #[test]
    fn all_copies_together_are_bounded() {
        let mut room = Room::default();
        let mut all: Vec<Kept> = (0..20).map(|_| Kept::default()).collect();
        for kept in &mut all {
            kept.keep(content(200 * 1024), &mut room);
        }
        let count = all.iter().filter(|kept| kept.content().is_some()).count();
        assert_eq!(count, COPIES_BYTES_MAX / (200 * 1024 + 11));
        assert!(room.taken <= COPIES_BYTES_MAX);
        all.iter_mut().for_each(|kept| kept.forget(&mut room));
        assert_eq!(room.taken, 0);
    }
}
