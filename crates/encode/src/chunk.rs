//! Texts as chunks of an HTTP/1.1 body (RFC 9112, section 7.1).
//!
//! A stream of another protocol must not look complete when it is cut, so it is sent in chunks. A translation is written
//! as one chunk, so that readers also share the bytes around its text.

use super::placeholders::Placeholders;
use bytes::Bytes;
use std::ops::Range;

/// The room for the line before the text: the hexadecimal digits of a length, and the end of the line.
const HEAD_BYTES: usize = 2 * size_of::<usize>() + 2;
const LINE_END: &[u8] = b"\r\n";

/// The chunk after the last one of a body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A text on its way to readers. A clone shares it.
#[derive(Debug, Clone)]
pub struct Chunk {
    bytes: Bytes,
    text: Range<usize>,
    has_placeholders: bool,
}

impl Chunk {
    /// Copies a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let mut buffer = ChunkBuffer::new(text.len());
        buffer.text.extend_from_slice(text);
        buffer.finish(None)
    }

    /// The text alone.
    #[must_use]
    pub fn text(&self) -> Bytes {
        self.bytes.slice(self.text.clone())
    }

    /// The whole chunk.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Whether it has no text: as a chunk it would end the body.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.text.start == self.text.end
    }

    /// Whether bodies belong into the text.
    #[must_use]
    pub const fn has_placeholders(&self) -> bool {
        self.has_placeholders
    }
}

/// A chunk whose text is being written.
pub struct ChunkBuffer {
    /// The text, after room for its length.
    pub text: Vec<u8>,
}

impl ChunkBuffer {
    /// A buffer with room for a text of this many bytes.
    #[must_use]
    pub fn new(text_bytes: usize) -> Self {
        let mut text = Vec::with_capacity(HEAD_BYTES + text_bytes + LINE_END.len());
        text.resize(HEAD_BYTES, 0);
        Self { text }
    }

    /// The chunk. The placeholders are those that its text may have.
    #[must_use]
    pub fn finish(self, placeholders: Option<&Placeholders>) -> Chunk {
        let Self { mut text } = self;
        let end = text.len();
        let has_placeholders = placeholders.is_some_and(|placeholders| placeholders.find(&text, HEAD_BYTES).is_some());
        let head = format!("{:x}\r\n", end - HEAD_BYTES);
        let from = HEAD_BYTES - head.len();
        text[from..HEAD_BYTES].copy_from_slice(head.as_bytes());
        text.extend_from_slice(LINE_END);
        Chunk { bytes: Bytes::from(text).slice(from..), text: head.len()..end - from, has_placeholders }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_the_length_of_its_text_in_hexadecimal_digits() {
        for (text, chunk) in [("a", "1\r\na\r\n".to_owned()), (&"b".repeat(300), format!("12c\r\n{}\r\n", "b".repeat(300)))] {
            let of = Chunk::of(text.as_bytes());
            assert_eq!((of.text(), of.is_empty()), (Bytes::copy_from_slice(text.as_bytes()), false));
            assert_eq!(of.into_bytes(), chunk);
        }
        assert!(Chunk::of(b"").is_empty());
    }
}
