//! Placeholders for values that moved to a body (`projection/bodies.rs`).
//!
//! Dialects have to send whole values, and a run may have more of them than fit into memory. So a dialect translates a
//! placeholder like any value, and the bodies get into the text of the events only when it is sent, one at a time.
//!
//! ```text
//! a text        "␀"<nonce>t<id>:<bytes>␁<preview>␂"
//! other JSON    {"␀"<nonce>j<id>:<bytes>␁":"<preview>␂"}
//! ```
//! A dialect may put JSON text into a string (arguments, results). The quote after the first mark tells how deep: each
//! level of strings doubles its backslashes. The nonce is the process's secret, so no producer can write a placeholder.

use super::frames::{ActivityView, Delta, Frame};
use memchr::memmem;
use proscenium_model::BlobId;
use proscenium_projection::bodies::{BODIES, is_within};
use proscenium_projection::change::ContentOperation;
use proscenium_projection::envelope_view::BLOB_PATH;
use proscenium_projection::members::{CLIPPED, TypedContent};
use proscenium_projection::operations;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

const START: char = '\u{E000}';
const MIDDLE: char = '\u{E001}';
const END: char = '\u{E002}';
/// The first byte of these characters.
const START_BYTE: u8 = 0xEE;

/// The kinds of activities of which a client gets whole values.
const KINDS: &[&str] = &["tool-call-progress", "action", "state", "run"];

/// Makes placeholders, and finds them again.
#[derive(Debug, Clone)]
pub struct Placeholders {
    nonce: std::sync::Arc<str>,
}

/// A placeholder in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Placeholder {
    /// The bytes of the text that the body replaces.
    pub place: Range<usize>,
    /// The body that belongs there.
    pub body: BlobId,
    is_json: bool,
    /// The number of strings around the value, its own included.
    depth: u32,
    /// The preview, as the text has it.
    preview: Range<usize>,
}

impl Placeholders {
    /// Makes the placeholders of a process from a random number.
    #[must_use]
    pub fn new(random: u128) -> Self {
        Self { nonce: format!("{random:032x}").into() }
    }

    /// Replaces the previews in a frame.
    #[must_use]
    pub fn mark<'f>(&self, frame: &'f Frame) -> Cow<'f, Frame> {
        match frame {
            Frame::ActivitySnapshot(activity) => match self.marked_content(&activity.kind, &activity.content) {
                Some(content) => {
                    Cow::Owned(Frame::ActivitySnapshot(ActivityView { content: Arc::new(content), ..activity.clone() }))
                }
                None => Cow::Borrowed(frame),
            },
            Frame::ActivityDelta(delta) => match self.marked_operations(&delta.kind, &delta.operations) {
                Some(operations) => Cow::Owned(Frame::ActivityDelta(Delta { operations: operations.into(), ..delta.clone() })),
                None => Cow::Borrowed(frame),
            },
            _ => Cow::Borrowed(frame),
        }
    }

    /// Replaces the previews in an activity.
    #[must_use]
    pub fn mark_activity(&self, activity: ActivityView) -> ActivityView {
        match self.marked_content(&activity.kind, &activity.content) {
            Some(content) => ActivityView { content: Arc::new(content), ..activity },
            None => activity,
        }
    }

    fn marked_content(&self, kind: &str, content: &Map<String, Value>) -> Option<Map<String, Value>> {
        let bodies = content.read(BODIES).filter(|_| KINDS.contains(&kind))?;
        let mut whole = content.clone();
        whole.shift_remove(BODIES.name());
        whole.shift_remove(CLIPPED.name());
        let mut whole = Value::Object(whole);
        for (pointer, link) in bodies {
            whole.pointer_mut(pointer).into_iter().for_each(|value| self.replace(value, link));
        }
        let Value::Object(whole) = whole else { unreachable!("no pointer to a body is empty") };
        Some(whole)
    }

    /// The operations without the locations of bodies, and with placeholders for the previews that they set.
    fn marked_operations(&self, kind: &str, operations: &[ContentOperation]) -> Option<Vec<ContentOperation>> {
        let is_location = |operation: &ContentOperation| operation.is_about(BODIES) || operation.is_about(CLIPPED);
        if !KINDS.contains(&kind) {
            return None;
        }
        let bodies = operations.iter().rfind(|operation| operation.is_about(BODIES))?.sets(BODIES).and_then(Value::as_object);
        let mut whole: Vec<_> = operations.iter().filter(|operation| !is_location(operation)).cloned().collect();
        for (pointer, link) in bodies.into_iter().flatten() {
            let set = whole.iter_mut().rev().find_map(|operation| {
                let rest = operations::path(operation).len();
                is_within(pointer, &operations::path(operation)).then_some((operation, rest))
            });
            if let Some(value) = set.and_then(|(operation, rest)| operations::value_mut(operation)?.pointer_mut(&pointer[rest..]))
            {
                self.replace(value, link);
            }
        }
        Some(whole)
    }

    fn replace(&self, value: &mut Value, link: &Value) {
        let id = link.get("href").and_then(Value::as_str).and_then(|href| href.strip_prefix(BLOB_PATH));
        let (Some(id), Value::String(preview)) = (id.filter(|id| BlobId::new(id).is_ok()), &*value) else { return };
        let (bytes, nonce) = (link.get("bytes").and_then(Value::as_u64).unwrap_or(0), &self.nonce);
        let preview = preview.replace([START, MIDDLE, END], "\u{FFFD}");
        *value = if link.get("mediaType").and_then(Value::as_str) == Some("application/json") {
            json!({ format!("{START}\"{nonce}j{id}:{bytes}{MIDDLE}"): format!("{preview}{END}") })
        } else {
            format!("{START}\"{nonce}t{id}:{bytes}{MIDDLE}{preview}{END}").into()
        };
    }

    /// Whether the text has a placeholder.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        memmem::find(text, self.nonce.as_bytes()).is_some()
    }

    /// The first placeholder of a JSON text from `from` on.
    #[must_use]
    pub fn find(&self, text: &[u8], from: usize) -> Option<Placeholder> {
        // Nearly no text has a character of this block, and a search for one byte needs no preparation.
        let mut at = from + memchr::memchr(START_BYTE, &text[from..])?;
        loop {
            at += memmem::find(&text[at..], self.nonce.as_bytes())?;
            if let Some(found) = self.read(text, at).filter(|found| found.place.start >= from) {
                return Some(found);
            }
            at += self.nonce.len();
        }
    }

    /// Reads the placeholder whose nonce begins at `at`.
    fn read(&self, text: &[u8], at: usize) -> Option<Placeholder> {
        let (start, middle, end) = (START.to_string(), MIDDLE.to_string(), END.to_string());
        let before = text[..at].strip_suffix(b"\"")?;
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        let depth = (backslashes + 1).checked_ilog2().filter(|depth| *depth > 0 && 1 << depth == backslashes + 1)?;
        let begin = before[..before.len() - backslashes].strip_suffix(start.as_bytes())?.len();
        let rest = at + self.nonce.len();
        let is_json = match text.get(rest)? {
            b'j' => true,
            b't' => false,
            _ => return None,
        };
        let named = rest + 1..rest + 1 + memmem::find(&text[rest + 1..], middle.as_bytes())?;
        let (id, _) = std::str::from_utf8(&text[named.clone()]).ok()?.split_once(':')?;
        let body = BlobId::new(id).ok()?;
        let after = named.end + middle.len();
        let close = after + memmem::find(&text[after..], end.as_bytes())?;
        if !is_json {
            return Some(Placeholder { place: begin..close + end.len(), body, is_json, depth, preview: after..close });
        }
        // The quotes of the name and of the value are one level up.
        let quote = 1 << (depth - 1);
        let place = begin.checked_sub(quote + 1)?..close + end.len() + quote + 1;
        (text.get(place.start) == Some(&b'{') && text.get(place.end - 1) == Some(&b'}')).then(|| {
            let preview = after + 2 * quote + 1..close;
            Placeholder { place, body, is_json, depth, preview }
        })
    }
}

impl Placeholder {
    /// The bytes to send in the place of the placeholder: the body, or without one the preview.
    #[must_use]
    pub fn fill(&self, text: &[u8], body: Option<&[u8]>) -> Vec<u8> {
        match body.map(String::from_utf8_lossy) {
            Some(body) => {
                let strings = if self.is_json { self.depth - 1 } else { self.depth };
                (0..strings).fold(body.into_owned(), |text, _| escaped(&text)).into_bytes()
            }
            None if self.is_json => {
                let quote = (1..self.depth).fold("\"".to_owned(), |text, _| escaped(&text));
                [quote.as_bytes(), &text[self.preview.clone()], quote.as_bytes()].concat()
            }
            None => text[self.preview.clone()].to_vec(),
        }
    }
}

/// A text as the content of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The bytes of the bodies that the placeholders of a text stand for.
#[must_use]
pub(super) fn hidden_bytes(text: &str) -> usize {
    let bodies = text.match_indices(START).filter_map(|(at, _)| {
        let (named, _) = text[at..].split_once(MIDDLE)?;
        named.rsplit_once(':')?.1.parse::<usize>().ok()
    });
    bodies.fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(content: Value) -> Frame {
        let Value::Object(content) = content else { panic!("a content is an object") };
        Frame::ActivitySnapshot(ActivityView {
            run: None,
            kind: "tool-call-progress".into(),
            id: "c".into(),
            opened: proscenium_model::Sequence(1),
            agent: None,
            content: Arc::new(content),
        })
    }

    fn fill(placeholders: &Placeholders, text: &str, bodies: &[(&str, &str)]) -> String {
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(found) = placeholders.find(text.as_bytes(), at) {
            let body = bodies.iter().find(|(id, _)| *id == found.body.as_str());
            out.extend(&text.as_bytes()[at..found.place.start]);
            out.extend(found.fill(text.as_bytes(), body.map(|(_, body)| body.as_bytes())));
            at = found.place.end;
        }
        out.extend(&text.as_bytes()[at..]);
        String::from_utf8(out).unwrap()
    }

    fn content_of(frame: &Frame) -> Value {
        let Frame::ActivitySnapshot(activity) = frame else { panic!("{frame:?} is no snapshot") };
        Value::Object(Map::clone(&activity.content))
    }

    #[test]
    fn a_body_gets_back_into_its_place_however_deep_in_strings_it_is() {
        let placeholders = Placeholders::new(7);
        let bodies = json!({
            "/input/content": { "href": "/v1/blobs/b1", "bytes": 9 },
            "/output": { "href": "/v1/blobs/b2", "bytes": 13, "mediaType": "application/json" },
        });
        let content =
            json!({ "input": { "content": "a \"…", "path": "p" }, "output": "[1,{\"…", "bodies": bodies, "clipped": true });
        let marked = content_of(&placeholders.mark(&frame(content)));
        assert_eq!((marked.get("bodies"), marked.get("clipped")), (None, None));
        let (text, list) = ("a \"b\" \\ \n é", r#"[1,{"a":"\n\""}]"#);
        let stored = [("b1", text), ("b2", list)];
        let whole = json!({ "input": { "content": text, "path": "p" }, "output": serde_json::from_str::<Value>(list).unwrap() });
        let shown = json!({ "input": { "content": "a \"…", "path": "p" }, "output": "[1,{\"…" });
        let (mut marked, mut whole, mut shown) = (marked, whole, shown);
        for depth in 0..4 {
            assert_eq!(fill(&placeholders, &marked.to_string(), &stored), whole.to_string(), "{depth} strings around it");
            assert_eq!(fill(&placeholders, &marked.to_string(), &[]), shown.to_string(), "without bodies the previews stay");
            (marked, whole, shown) = (json!([marked.to_string()]), json!([whole.to_string()]), json!([shown.to_string()]));
        }
    }

    #[test]
    fn a_patch_has_placeholders_for_the_previews_that_it_sets() {
        let placeholders = Placeholders::new(7);
        let bodies =
            json!({ "/input/a": { "href": "/v1/blobs/b1", "bytes": 1 }, "/output": { "href": "/v1/blobs/b2", "bytes": 5 } });
        let patch = json!([
            { "op": "add", "path": "/output", "value": "ab…" },
            { "op": "add", "path": "/bodies", "value": bodies },
            { "op": "add", "path": "/clipped", "value": true },
        ]);
        let delta = json!({ "activityType": "tool-call-progress", "activityId": "c", "patch": patch });
        let delta = Frame::ActivityDelta(serde_json::from_value(delta).unwrap());
        let marked = placeholders.mark(&delta);
        let Frame::ActivityDelta(Delta { operations, .. }) = &*marked else { panic!("{marked:?} is no delta") };
        let patch = serde_json::to_value(operations).unwrap();
        let text = patch.to_string();
        assert_eq!(fill(&placeholders, &text, &[("b2", "abcde")]), r#"[{"op":"add","path":"/output","value":"abcde"}]"#);
        assert_eq!(hidden_bytes(patch[0]["value"].as_str().unwrap()), 5);
    }

    #[test]
    fn a_text_of_a_producer_is_no_placeholder() {
        let text = json!({ "a": format!("{START}\"{}tb1:5{MIDDLE}x{END}", "0".repeat(32)) }).to_string();
        assert!(!Placeholders::new(7).is_in(text.as_bytes()));
        assert_eq!(fill(&Placeholders::new(7), &text, &[("b1", "secret")]), text);
        // Not even with the nonce, if the rest is not as the server writes it.
        let nonce = format!("{:032x}", 7);
        for cut in [
            format!("{nonce}tb1:5"),
            format!("\"{nonce}"),
            format!("{START}\"{nonce}x"),
            format!("{START}\"{nonce}jb1:5{MIDDLE}{END}"),
        ] {
            let text = json!({ "a": cut }).to_string();
            assert_eq!(fill(&Placeholders::new(7), &text, &[("b1", "secret")]), text);
        }
    }

    #[test]
    fn only_the_servers_own_activities_have_bodies() {
        let content = json!({ "output": "a…", "bodies": { "/output": { "href": "/v1/blobs/b", "bytes": 5 } } });
        let Frame::ActivitySnapshot(mut activity) = frame(content) else { unreachable!("`frame` makes snapshots") };
        activity.kind = "chart".into();
        assert_eq!(Placeholders::new(7).mark_activity(activity.clone()), activity);
    }
}
