//! Frames of list streams, in the form of the native dialect.
//!
//! ```text
//! data: {"frame":"List","list":"attention","op":"put","key":"run/r/a","entry":{…}}
//! id: 00000000deadbeef:14
//!
//! ```

use super::encoded::{EncodedFrames, FrameBuffer};
use super::native::member;
use proscenium_model::{Cursor, Epoch, Sequence};
use serde_json::Value;

/// A change of one entry. `None`: the entry has left the list.
pub struct ListFrame<'a> {
    /// The name of the list.
    pub list: &'a str,
    /// The key of the entry, unique within the list.
    pub key: &'a str,
    /// The entry as it is now.
    pub entry: Option<&'a Value>,
}

impl ListFrame<'_> {
    /// Appends the frame. Only one with a cursor lets its reader resume.
    pub fn append(&self, out: &mut FrameBuffer, cursor: Option<Cursor>) {
        append(out, "List", cursor, |object| {
            member(object, "list", self.list);
            member(object, "op", if self.entry.is_some() { "put" } else { "remove" });
            member(object, "key", self.key);
            if let Some(entry) = self.entry {
                member(object, "entry", entry);
            }
        });
    }
}

/// The frame that follows the entries at the start: they are complete as of this cursor, or up to a limit.
#[must_use]
pub fn hydrated(cursor: Cursor, is_truncated: bool) -> EncodedFrames {
    let mut out = FrameBuffer::new(cursor.epoch);
    append(&mut out, "Hydrated", Some(cursor), |object| {
        if is_truncated {
            member(object, "truncated", &true);
        }
    });
    out.finish()
}

/// The frame of a reader that drops its entries: all of them follow again.
#[must_use]
pub fn reset(reason: &str) -> EncodedFrames {
    single("Reset", "reason", &reason.into())
}

/// The Error frame; the stream ends after it.
#[must_use]
pub fn error(problem: &Value) -> EncodedFrames {
    single("Error", "problem", problem)
}

fn single(frame: &str, name: &str, value: &Value) -> EncodedFrames {
    let mut out = FrameBuffer::new(Epoch::from_random(0));
    append(&mut out, frame, None, |object| member(object, name, value));
    out.finish()
}

fn append(out: &mut FrameBuffer, frame: &str, cursor: Option<Cursor>, members: impl FnOnce(&mut Vec<u8>)) {
    let object = out.begin(cursor.map_or(Sequence::NONE, |cursor| cursor.after));
    object.extend_from_slice(b"{\"frame\":\"");
    object.extend_from_slice(frame.as_bytes());
    object.push(b'"');
    members(object);
    object.push(b'}');
    out.end(None);
    if cursor.is_some() {
        out.set_cursor();
    }
}
