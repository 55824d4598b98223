//! The rows of one delivery on their way into appends.

use crate::log::Blob;
use crate::log::row::{APPEND_BYTES_MAX, APPEND_ROWS_MAX, Row};
use crate::model::Sequence;
use bytes::Bytes;

/// The room for one row, in bytes. Most rows need less.
const ROW_BYTES: usize = 640;

/// The rows of one append.
#[derive(Clone)]
pub(super) struct FullAppend {
    pub last: Sequence,
    pub rows: Bytes,
    /// The rows that are decisions.
    pub decisions: Vec<Sequence>,
}

/// The encoded rows of a delivery, split into bounded appends, and the bodies that they refer to.
#[derive(Default)]
pub(super) struct EncodedRows {
    full: Vec<FullAppend>,
    rows: Vec<u8>,
    decisions: Vec<Sequence>,
    count: usize,
    /// The envelopes from the open append on, as far as known.
    expected: usize,
    last: Sequence,
    blobs: Vec<Blob>,
    bytes: usize,
}

impl EncodedRows {
    /// The size of rows and bodies, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for the rows of this many envelopes.
    pub fn reserve(&mut self, envelopes: usize) {
        self.expected = envelopes;
        self.rows.reserve((envelopes * ROW_BYTES).min(APPEND_BYTES_MAX + ROW_BYTES));
    }

    pub fn push(&mut self, sequence: Sequence, prev: [Sequence; 3], views: [Option<&[u8]>; 3], is_decision: bool) {
        let before = self.rows.len();
        Row::encode(&mut self.rows, sequence, prev, views);
        self.bytes += self.rows.len() - before;
        (self.count, self.last) = (self.count + 1, sequence);
        if is_decision {
            self.decisions.push(sequence);
        }
        if self.count >= APPEND_ROWS_MAX || self.rows.len() >= APPEND_BYTES_MAX {
            self.cut();
        }
    }

    /// Completes the open append.
    pub fn cut(&mut self) {
        if self.count > 0 {
            let (rows, decisions) = (std::mem::take(&mut self.rows).into(), std::mem::take(&mut self.decisions));
            self.full.push(FullAppend { last: self.last, rows, decisions });
            self.reserve(self.expected.saturating_sub(self.count));
            self.count = 0;
        }
    }

    pub fn push_blob(&mut self, blob: Blob) {
        self.bytes += blob.body.len();
        self.blobs.push(blob);
    }

    /// The complete appends.
    pub fn full(&self) -> &[FullAppend] {
        &self.full
    }

    /// The appends, and all bodies.
    pub fn into_parts(mut self) -> (Vec<FullAppend>, Vec<Blob>) {
        self.cut();
        (self.full, self.blobs)
    }
}
