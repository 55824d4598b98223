//! The output of the dialect: the chunks of one frame, and the count of the message's parts.

use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::io;

/// The chunks to send, and the facts about the reader's message that further chunks depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageWriter {
    /// The client's major version.
    pub version: u8,
    /// The number of parts of the message, which is the index of the next one.
    pub parts: usize,
    /// Whether a sent part is wrong and the reader can drop the message.
    pub needs_reset: bool,
    pub chunks: Vec<Value>,
}

impl MessageWriter {
    pub const fn new(version: u8) -> Self {
        Self { version, parts: 0, needs_reset: false, chunks: Vec::new() }
    }

    /// Whether the client knows `reset-step`, which drops the parts that it has.
    pub const fn can_reset(&self) -> bool {
        self.version >= 7
    }

    pub fn push(&mut self, chunk: Value) {
        self.chunks.push(chunk);
    }

    /// Sends a chunk that adds a part to the message, and returns the part's index.
    pub fn add_part(&mut self, chunk: Value) -> usize {
        self.push(chunk);
        self.parts += 1;
        self.parts - 1
    }

    /// Sends a data part; one of the same type and id replaces the earlier one.
    pub fn data(&mut self, kind: &str, id: &str, data: Value, is_new: bool) {
        let chunk = data_part(kind, id, data);
        match is_new {
            true => drop(self.add_part(chunk)),
            false => self.push(chunk),
        }
    }
}

/// Builds a data part; the chunk equals the part.
pub(super) fn data_part(kind: &str, id: &str, data: Value) -> Value {
    json!({ "type": format!("data-{kind}"), "id": id, "data": data })
}

/// A writer that passes bytes to a function and stores nothing.
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

/// The hash of a value's JSON text.
pub(super) fn hash(value: &impl serde::Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_writer(Sink(&mut |bytes| hasher.write(bytes)), value).expect(INFALLIBLE);
    hasher.finish()
}

const INFALLIBLE: &str = "plain JSON serializes, and the sink accepts every byte";
