//! What is being said: the chunks of one frame, and how many parts the message has.

use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::io;

/// The reader's message, as far as saying more of it needs to know.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The client's major version.
    pub version: u8,
    /// Parts that the message has: the next one's index.
    pub parts: usize,
    /// Whether something that was said is not so any more, and the reader can be made to forget all that was said.
    pub is_spoilt: bool,
    pub chunks: Vec<Value>,
}

impl Page {
    pub const fn new(version: u8) -> Self {
        Self { version, parts: 0, is_spoilt: false, chunks: Vec::new() }
    }

    /// Whether the reader can be told to drop the parts that it has: `reset-step`.
    pub const fn can_retract(&self) -> bool {
        self.version >= 7
    }

    pub fn say(&mut self, chunk: Value) {
        self.chunks.push(chunk);
    }

    /// Says a chunk that adds a part to the message; its index.
    pub fn add(&mut self, chunk: Value) -> usize {
        self.say(chunk);
        self.parts += 1;
        self.parts - 1
    }

    /// A data part: the same type and id replace what was said before.
    pub fn data(&mut self, kind: &str, id: &str, data: Value, is_new: bool) {
        let chunk = data_part(kind, id, data);
        match is_new {
            true => drop(self.add(chunk)),
            false => self.say(chunk),
        }
    }
}

/// A data part; the chunk that says it is the part itself.
pub(super) fn data_part(kind: &str, id: &str, data: Value) -> Value {
    json!({ "type": format!("data-{kind}"), "id": id, "data": data })
}

/// Takes text and forgets it.
struct Sink<'s>(&'s mut dyn FnMut(&[u8]));

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A hash of what a value says.
pub(super) fn hash(value: &impl serde::Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_writer(Sink(&mut |bytes| hasher.write(bytes)), value).expect(PLAIN);
    hasher.finish()
}

/// The bytes of a value's text.
pub(super) fn weight(value: &impl serde::Serialize) -> usize {
    let mut bytes = 0;
    serde_json::to_writer(Sink(&mut |more| bytes += more.len()), value).expect(PLAIN);
    bytes
}

const PLAIN: &str = "plain JSON goes into a sink that takes everything";
