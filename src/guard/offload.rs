//! Large bodies: what does not fit into an envelope is moved out of it, and a preview and a reference stay.
//!
//! An envelope is read by every reader, kept in memory while it is fresh and folded again on every restart; a body is read by
//! who asks for it. The largest things go first, and only as much as it takes: a projection can still fold what stays.

use super::secrets::MARK;
use super::{Body, Policy};
use crate::model::{BlobId, Draft, EventType};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The longest preview, in bytes of its text.
const PREVIEW_BYTES_MAX: usize = 1024;
/// A payload's JSON is at most this many times `inline_bytes_max`: room for a window of messages whose every text fits.
pub(super) const PAYLOAD_FACTOR: usize = 8;
/// The most bodies of one envelope; where more would be needed, the member that holds them goes whole. References are paid
/// for by everyone who reads the envelope.
pub(super) const BODIES_MAX: usize = 32;
/// Members that go whole: outputs are opened, not folded.
const OUTPUTS: &[&str] = &["output", "structured", "content", "result"];
/// Where members end up that are too many rather than too large.
const REST: &str = "…";

/// Moves out of `draft` what is larger than the policy allows.
pub(super) fn offload(policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, draft: &mut Draft, bodies: &mut Vec<Body>) {
    let inline_bytes_max = policy.inline_bytes_max;
    let mut room = inline_bytes_max;
    let fits = weigh_map(&draft.payload, &mut room)
        && weigh_map(&draft.extra, &mut room)
        && draft.refs.iter().chain(&draft.raw_event_ref).all(|value| weigh(value, &mut room));
    if fits {
        return;
    }
    let mut mover = Mover { inline_bytes_max, new_id, bodies, links: Vec::new() };
    mover.relieve("/payload", &mut draft.payload);
    // What stands at the envelope's top level shares one bound.
    let mut top = std::mem::take(&mut draft.extra);
    for (name, value) in [("refs", draft.refs.take()), ("rawEventRef", draft.raw_event_ref.take())] {
        if let Some(value) = value {
            top.insert(name.into(), value);
        }
    }
    mover.relieve("", &mut top);
    draft.refs = top.shift_remove("refs");
    draft.raw_event_ref = top.shift_remove("rawEventRef");
    draft.extra = top;
    for link in mover.links {
        if draft.class == EventType::ToolResult && link["member"] == "/payload/output" {
            draft.payload.insert("outputRef".into(), link["href"].clone());
        }
        draft.add_ref("output", link);
    }
}

/// Takes an upper bound of the value's JSON off `room`; false once there is none left. Most drafts are far from any limit,
/// and this tells without writing JSON.
fn weigh(value: &Value, room: &mut usize) -> bool {
    match value {
        Value::String(text) => weigh_text(text, room),
        Value::Array(items) => spend(2, room) && items.iter().all(|item| spend(1, room) && weigh(item, room)),
        Value::Object(map) => weigh_map(map, room),
        Value::Null | Value::Bool(_) | Value::Number(_) => spend(32, room),
    }
}

fn weigh_map(map: &Map<String, Value>, room: &mut usize) -> bool {
    spend(2, room) && map.iter().all(|(name, value)| spend(2, room) && weigh_text(name, room) && weigh(value, room))
}

/// A control character takes six bytes.
const fn weigh_text(text: &str, room: &mut usize) -> bool {
    spend(2 + 6 * text.len(), room)
}

const fn spend(bytes: usize, room: &mut usize) -> bool {
    match room.checked_sub(bytes) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    }
}

/// The length of the value's JSON text, in bytes.
pub(super) fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("JSON has text keys, and counting never fails");
    count.0
}

struct Mover<'a> {
    inline_bytes_max: usize,
    new_id: &'a mut dyn FnMut() -> BlobId,
    bodies: &'a mut Vec<Body>,
    links: Vec<Value>,
}

impl Mover<'_> {
    /// Moves out of `map`, which stands at the JSON pointer `at`, first what is too large by itself, then as much as it takes.
    fn relieve(&mut self, at: &str, map: &mut Map<String, Value>) {
        for (name, value) in map.iter_mut() {
            self.fit(&pointer(at, name), name, value);
        }
        let bytes_max = PAYLOAD_FACTOR * self.inline_bytes_max;
        let mut bytes = json_bytes(map);
        if bytes <= bytes_max {
            return;
        }
        // The largest texts first: they are what a reader opens anyway, and the shape around them stays foldable.
        let mut texts = Vec::new();
        for (name, value) in map.iter() {
            list_texts(&pointer("", name), value, 2 * self.preview_bytes_max(), &mut texts);
        }
        texts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let mut root = Value::Object(std::mem::take(map));
        for (path, _) in texts {
            if bytes <= bytes_max || self.is_full() {
                break;
            }
            let text = root.pointer_mut(&path).expect("the path was just listed");
            self.replace(&format!("{at}{path}"), text);
            bytes = json_bytes(&root);
        }
        if let Value::Object(shape) = root {
            *map = shape;
        }
        // Then whole members, and last, where there are too many for that, all that is in the way, as one.
        let mut names: Vec<(String, usize)> = map.iter().map(|(name, value)| (name.clone(), json_bytes(value))).collect();
        names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (name, size) in names {
            if bytes <= bytes_max || self.is_full() || size <= 2 * self.preview_bytes_max() {
                break;
            }
            if let Some(value) = map.get_mut(&name) {
                self.replace(&pointer(at, &name), value);
            }
            bytes = json_bytes(map);
        }
        if bytes > bytes_max {
            self.gather(at, map, bytes - bytes_max);
        }
    }

    /// Moves what is too large by itself at or below `value`.
    fn fit(&mut self, at: &str, name: &str, value: &mut Value) {
        let is_text = value.is_string();
        if !self.is_too_large(value) {
            return;
        }
        let mut texts = Vec::new();
        list_texts("", value, self.inline_bytes_max, &mut texts);
        if is_text || OUTPUTS.contains(&name) || self.bodies.len() + texts.len() + 2 > BODIES_MAX {
            if !self.is_full() {
                self.replace(at, value);
            }
            return;
        }
        match value {
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.fit(&format!("{at}/{i}"), "", item);
                }
            }
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    self.fit(&pointer(at, name), name, value);
                }
            }
            _ => {}
        }
    }

    fn is_too_large(&self, value: &Value) -> bool {
        let mut room = self.inline_bytes_max;
        !weigh(value, &mut room) && json_bytes(value) > self.inline_bytes_max
    }

    /// Two bodies are kept back for what must be gathered in the end, of the payload and of the top level.
    fn is_full(&self) -> bool {
        self.bodies.len() + 2 >= BODIES_MAX
    }

    fn preview_bytes_max(&self) -> usize {
        PREVIEW_BYTES_MAX.min(self.inline_bytes_max)
    }

    /// Leaves a preview of `value` in its place.
    fn replace(&mut self, at: &str, value: &mut Value) {
        let (media_type, text) = match value.take() {
            Value::String(text) => ("text/plain; charset=utf-8", text),
            value => ("application/json", value.to_string()),
        };
        *value = Value::String(self.preview(&text));
        self.keep(at, media_type, text);
    }

    fn keep(&mut self, at: &str, media_type: &'static str, text: String) {
        let sha256 = HEXLOWER.encode(&Sha256::digest(text.as_bytes()));
        let id = (self.new_id)();
        self.links.push(json!({
            "href": format!("/v1/blobs/{id}"), "bytes": text.len(), "sha256": sha256, "member": at,
        }));
        self.bodies.push(Body { id, media_type, bytes: Bytes::from(text) });
    }

    fn preview(&self, text: &str) -> String {
        let mut end = self.preview_bytes_max().min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // A mark that is cut in two reads like text of the producer's.
        if let Some(at) =
            (1..MARK.len()).map(|n| end.saturating_sub(n)).find(|at| text.as_bytes()[*at..].starts_with(MARK.as_bytes()))
        {
            end = at;
        }
        format!("{}…", &text[..end])
    }

    /// Moves the largest members, names and all, into one body: `bytes` at least.
    fn gather(&mut self, at: &str, map: &mut Map<String, Value>, bytes: usize) {
        let mut names: Vec<(usize, String)> =
            map.iter().map(|(name, value)| (json_bytes(name) + json_bytes(value), name.clone())).collect();
        names.sort_by(|one, other| other.cmp(one));
        // What is gathered leaves a preview of up to six bytes a character, and its name.
        let mut gone = std::collections::HashSet::new();
        let mut freed = 0;
        for (size, name) in names {
            if freed >= bytes + 6 * self.preview_bytes_max() + 64 {
                break;
            }
            freed += size;
            gone.insert(name);
        }
        let (rest, kept) = std::mem::take(map).into_iter().partition(|(name, _)| gone.contains(name));
        *map = kept;
        let mut rest = Value::Object(rest);
        self.replace(at, &mut rest);
        map.insert(REST.into(), rest);
    }
}

/// The pointer of a member of what stands at `at` (RFC 6901).
fn pointer(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Lists every text at or below `value` whose JSON is longer than `bytes_min`.
fn list_texts(at: &str, value: &Value, bytes_min: usize, texts: &mut Vec<(String, usize)>) {
    match value {
        Value::String(text) if 2 + 6 * text.len() > bytes_min => {
            let bytes = json_bytes(text);
            if bytes > bytes_min {
                texts.push((at.into(), bytes));
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                list_texts(&format!("{at}/{i}"), item, bytes_min, texts);
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                list_texts(&pointer(at, name), value, bytes_min, texts);
            }
        }
        _ => {}
    }
}
