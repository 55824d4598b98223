//! Records as messages of a stream: a record is one message, or several of which the last one commits.
//!
//! ```text
//! message := version:u8  flags:u8  writer:u64  position:u64  part:u32  body          little-endian
//! flags   := 1 for the last part of a record
//! ```
//!
//! A writer that ends, or that another writer fences, may leave parts without a last one. A reader ignores them: a part
//! counts only directly after the part before it, of the same writer and record.

use crate::log::journal::Record;
use bytes::{Buf, BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;
const LAST: u8 = 1;
/// The bytes before a message's body.
pub const HEADER_BYTES: usize = 22;

/// A message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPart {
    /// The random number of the process that wrote it.
    pub writer: u64,
    /// The position of its record.
    pub position: u64,
    /// Its index in the record, from 0.
    pub index: u32,
    pub is_last: bool,
    pub body: Bytes,
}

impl RecordPart {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + self.body.len());
        out.put_u8(VERSION);
        out.put_u8(u8::from(self.is_last) * LAST);
        out.put_u64_le(self.writer);
        out.put_u64_le(self.position);
        out.put_u32_le(self.index);
        out.put_slice(&self.body);
        out.freeze()
    }

    /// Decodes a message. `None` if another program wrote it.
    pub fn decode(mut from: Bytes) -> Option<Self> {
        if from.len() < HEADER_BYTES || from.get_u8() != VERSION {
            return None;
        }
        let is_last = from.get_u8() & LAST != 0;
        let (writer, position, index) = (from.get_u64_le(), from.get_u64_le(), from.get_u32_le());
        Some(Self { writer, position, index, is_last, body: from })
    }

    /// Whether both are the same part of the same record, so that a repeated publish has succeeded before.
    pub const fn is_same(&self, other: &Self) -> bool {
        self.writer == other.writer && self.position == other.position && self.index == other.index
    }
}

/// Splits a body into the parts of one record.
pub fn split(writer: u64, position: u64, mut body: Bytes, part_bytes_max: usize) -> Vec<RecordPart> {
    let mut parts = Vec::with_capacity(body.len() / part_bytes_max + 1);
    loop {
        let rest = body.split_off(body.len().min(part_bytes_max));
        let index = u32::try_from(parts.len()).expect("a record has few parts");
        parts.push(RecordPart { writer, position, index, is_last: rest.is_empty(), body });
        if rest.is_empty() {
            return parts;
        }
        body = rest;
    }
}

/// Puts records together from messages in the order of the stream.
#[derive(Default)]
pub struct Assembler {
    parts: Vec<RecordPart>,
}

impl Assembler {
    /// Adds the next message; returns the record that it completes.
    pub fn add(&mut self, part: RecordPart) -> Option<Record> {
        let follows = self
            .parts
            .last()
            .is_some_and(|before| before.is_same(&RecordPart { index: part.index.wrapping_sub(1), ..part.clone() }));
        if !follows {
            self.parts.clear();
            if part.index > 0 {
                return None;
            }
        }
        let (is_last, position) = (part.is_last, part.position);
        self.parts.push(part);
        if !is_last {
            return None;
        }
        let parts = std::mem::take(&mut self.parts);
        let body = match &parts[..] {
            [only] => only.body.clone(),
            parts => parts.iter().map(|part| &part.body[..]).collect::<Vec<_>>().concat().into(),
        };
        Some(Record { position, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(messages: impl IntoIterator<Item = RecordPart>) -> Vec<Record> {
        let mut assembler = Assembler::default();
        let decoded = messages.into_iter().map(|part| RecordPart::decode(part.encode()).expect("it is a message"));
        decoded.filter_map(|part| assembler.add(part)).collect()
    }

    #[test]
    fn a_record_of_any_size_is_put_together_as_it_was_split() {
        for bytes in [0, 1, 9, 10, 11, 20, 35] {
            let body: Bytes = (0..bytes).collect::<Vec<u8>>().into();
            assert_eq!(records(split(7, 3, body.clone(), 10)), [Record { position: 3, body }], "{bytes}");
        }
    }

    #[test]
    fn parts_without_a_last_one_are_no_record() {
        let [torn, other] = [7, 8].map(|writer| split(writer, 3, Bytes::from_static(b"abcdefghij"), 4));
        let body = other.iter().flat_map(|part| part.body.clone()).collect::<Bytes>();
        let expected = [Record { position: 3, body }];
        // A writer that ended after its second part, before another one wrote.
        assert_eq!(records(torn[..2].iter().chain(&other).cloned()), expected);
        // A writer whose first part was refused, and whose later parts were on their way.
        assert_eq!(records(other.iter().chain(&torn[1..]).cloned()), expected);
        // Parts of one record with another writer's message between them.
        assert_eq!(records([&torn[0], &other[0], &torn[1], &torn[2]].map(Clone::clone)), []);
    }

    #[test]
    fn a_message_of_another_program_is_no_part() {
        assert_eq!(RecordPart::decode(Bytes::from_static(b"hello")), None);
        assert_eq!(RecordPart::decode(Bytes::from(vec![9; 40])), None);
    }
}
