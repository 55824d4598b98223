//! Rows: an envelope as the log stores it, with its JSON for each audience.
//!
//! ```text
//! row   := length:u32  sequence:u64  prev:u64×3  view:(offset:u32 bytes:u32)×3  text…
//! ```
//! All numbers are little-endian; `length` counts the bytes after it. A view is a range of `text`: equal views share
//! one range, and a view of 0 bytes is hidden. `prev` is, per audience, the sequence of the previous row that this
//! audience sees, 0 for none. It has no meaning for an audience that does not see the row. So a reader of the log, live
//! or years later, finds the audience rule already applied and cannot apply it differently.

use crate::model::{Audience, LogId, RunId, Sequence, SessionId};
use bytes::{Buf, Bytes};
use serde::Deserialize;

const HEAD: usize = 8 + 3 * 8 + 3 * 8;

/// The most rows of one append.
///
/// A read returns whole appends, so this bounds the cost of the smallest one.
pub const APPEND_ROWS_MAX: usize = 1024;
/// Bytes of rows at which the writer closes an append and begins the next one.
///
/// An append exceeds this by at most one row.
pub const APPEND_BYTES_MAX: usize = 128 * 1024;

/// One row; it shares the bytes of its append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(Bytes);

impl Row {
    /// Appends the encoding of one row to `out`.
    ///
    /// `views` are the JSON texts in the order of [`Audience::ALL`]; `None` is hidden.
    pub fn encode(out: &mut Vec<u8>, sequence: Sequence, prev: [Sequence; 3], views: [Option<&[u8]>; 3]) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&sequence.0.to_le_bytes());
        for prev in prev {
            out.extend_from_slice(&prev.0.to_le_bytes());
        }
        let ranges = out.len();
        out.extend_from_slice(&[0; 24]);
        let text = out.len();
        let mut placed: [(u32, u32); 3] = [(0, 0); 3];
        for (i, view) in views.iter().enumerate() {
            let Some(view) = view else { continue };
            let twin = (0..i).find(|&j| views[j].is_some_and(|other| std::ptr::eq(other, *view)));
            placed[i] = twin.map_or_else(
                || {
                    let at = offset(out.len() - text);
                    out.extend_from_slice(view);
                    (at, offset(view.len()))
                },
                |j| placed[j],
            );
        }
        for (i, (at, len)) in placed.into_iter().enumerate() {
            out[ranges + i * 8..][..4].copy_from_slice(&at.to_le_bytes());
            out[ranges + i * 8 + 4..][..4].copy_from_slice(&len.to_le_bytes());
        }
        let length = offset(out.len() - start - 4);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends the encoding of the same row to `out`, with other `prev` values.
    pub fn encode_after(&self, out: &mut Vec<u8>, prev: [Sequence; 3]) {
        out.extend_from_slice(&offset(self.0.len()).to_le_bytes());
        out.extend_from_slice(&self.0[..8]);
        for prev in prev {
            out.extend_from_slice(&prev.0.to_le_bytes());
        }
        out.extend_from_slice(&self.0[32..]);
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn u32_at(&self, at: usize) -> usize {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes")) as usize
    }

    /// The row's size, in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.0.len()
    }

    /// The row's sequence.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        Sequence(self.u64_at(0))
    }

    /// The previous row that the audience sees.
    #[must_use]
    pub fn prev(&self, audience: Audience) -> Sequence {
        Sequence(self.u64_at(8 + 8 * audience.index()))
    }

    /// The log that its envelope names.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Names {
            run_id: Option<RunId>,
            session_id: Option<SessionId>,
        }
        let Names { run_id, session_id } = serde_json::from_slice(self.view(Audience::Internal)?).ok()?;
        run_id.map(LogId::Run).or_else(|| session_id.map(LogId::Session))
    }

    /// The envelope's JSON for the audience; `None` when it is hidden.
    #[must_use]
    pub fn view(&self, audience: Audience) -> Option<&[u8]> {
        let at = 32 + 8 * audience.index();
        let (from, len) = (self.u32_at(at), self.u32_at(at + 4));
        (len > 0).then(|| &self.0[HEAD + from..HEAD + from + len])
    }
}

fn offset(n: usize) -> u32 {
    u32::try_from(n).expect("a row is bounded by the largest fact, far below 4 GiB")
}

impl Row {
    /// Decodes a run of encoded rows, and checks that each lies within it.
    ///
    /// # Errors
    /// Why the bytes are not rows.
    pub fn decode_all(mut bytes: Bytes) -> Result<Vec<Self>, &'static str> {
        let mut rows = Vec::new();
        while !bytes.is_empty() {
            if bytes.len() < 4 {
                return Err("bytes follow the last row");
            }
            let length = bytes.get_u32_le() as usize;
            if length < HEAD || length > bytes.len() {
                return Err("a row's length is invalid");
            }
            let row = Self(bytes.split_to(length));
            let is_within = |audience: Audience| {
                let at = 32 + 8 * audience.index();
                HEAD + row.u32_at(at) + row.u32_at(at + 4) <= length
            };
            if !Audience::ALL.into_iter().all(is_within) {
                return Err("a row's text ends outside the row");
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// The bytes of a row's length, before the row.
pub const ROW_LENGTH_BYTES: usize = 4;

/// Iterates over a run of encoded rows, in order.
#[derive(Debug, Clone)]
pub struct Rows(pub Bytes);

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.0.len() < 4 {
            return None;
        }
        let length = self.0.get_u32_le() as usize;
        Some(Row(self.0.split_to(length)))
    }
}

/// The sequence and the text for [`Audience::Internal`] of each of these encoded rows, in order.
pub fn internal_texts(mut rows: &[u8]) -> impl Iterator<Item = (Sequence, &[u8])> {
    std::iter::from_fn(move || {
        let length = rows.try_get_u32_le().ok()? as usize;
        let (row, rest) = rows.split_at(length);
        rows = rest;
        let mut range = &row[32 + 8 * Audience::Internal.index()..];
        let (from, bytes) = (range.get_u32_le() as usize, range.get_u32_le() as usize);
        Some((Sequence((&row[..8]).get_u64_le()), &row[HEAD + from..][..bytes]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_view_per_audience_and_equal_views_share_their_text() {
        let mut out = Vec::new();
        let full = b"{\"full\":1}".as_slice();
        Row::encode(&mut out, Sequence(9), [Sequence(1), Sequence(2), Sequence(8)], [Some(b"{}"), Some(full), Some(full)]);
        Row::encode(&mut out, Sequence(10), [Sequence(9), Sequence(9), Sequence(9)], [None, None, Some(full)]);
        let rows: Vec<Row> = Rows(Bytes::from(out.clone())).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].sequence(), Sequence(9));
        assert_eq!(rows[0].view(Audience::User), Some(b"{}".as_slice()));
        assert_eq!(rows[0].view(Audience::Internal), Some(full));
        assert_eq!(rows[0].prev(Audience::Dashboard), Sequence(2));
        assert_eq!(rows[1].view(Audience::User), None);
        assert_eq!(rows[1].view(Audience::Internal), Some(full));
        assert_eq!(out.len(), 2 * (4 + HEAD) + 2 + full.len() + full.len(), "the row stores the shared view once");
        let mut again = Vec::new();
        rows[1].encode_after(&mut again, [Sequence(1), Sequence(2), Sequence(8)]);
        let moved = Rows(Bytes::from(again)).next().unwrap();
        assert_eq!(Audience::ALL.map(|audience| moved.prev(audience).0), [1, 2, 8]);
        assert_eq!((moved.sequence(), moved.view(Audience::Internal)), (Sequence(10), Some(full)));
    }
}
