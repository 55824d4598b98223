//! The hash chain of a log: it shows later that no row was changed, added, removed or moved.
//!
//! ```text
//! row key := keyed(log key, sequence:u64)          leaf := keyed(row key, text)
//! chain   := hash(chain before ‖ leaf)             chain before the first row := hash(kind:u8 epoch:u64 from:u64 id)
//! ```
//! `hash` and `keyed` are BLAKE3 (plain and keyed); numbers are big-endian. The text is the row's for
//! [`Audience::Internal`], with line ends escaped as exports have them ([`escape_line_ends`]). A leaf without its row key
//! confirms no guess about the text, and a row key opens no other row. The log key is random and lies in the state of its
//! log, so an erasure of the log destroys it.
//!
//! The chain is state of the log, saved by the commit of its rows:
//!
//! | entry | value |
//! | --- | --- |
//! | `k` | the log key, and the first sequence of the chain |
//! | `k:e` | the chain's first sequence and the epoch in its start, if the log has another epoch since a restore |
//! | `h` | the head: the last sequence, and the chain's value there |
//! | `h:<sequence>` | a point: the chain's value at a decision, and at each 256th row |
//! | `x:<sequence>` | ranges that one step of a compaction removed: first, last, and the chain's value at both ends |
//!
//! A version without chains ignores these entries. If it appended meanwhile, the head is behind the log: the next row
//! then begins a new chain. So does the first row that this version adds to a log of an earlier one.

use super::row::{Row, internal_texts};
use super::{LogId, StoreError};
use crate::environment::sabotage;
use crate::model::json::escape_line_ends;
use crate::model::{Audience, Epoch, Sequence};
use bytes::{Buf, Bytes};
use std::collections::HashMap;

/// A BLAKE3 hash or key.
pub type Hash = [u8; 32];

/// The key of the state entry with the log key.
pub const LOG_KEY: &str = "k";
/// The key of the state entry with the head.
pub const HEAD: &str = "h";
/// The key of the state entry with the epoch of the chain's start, for a log that got another epoch.
pub const CHAIN_EPOCH: &str = "k:e";
const POINT_KEY_PREFIX: &str = "h:";
const REMOVED_KEY_PREFIX: &str = "x:";

/// The distance of the points that are saved besides those of decisions, in rows.
const POINT_ROWS: u64 = 256;

/// The bytes of an entry with a sequence and a hash.
const NUMBERED_BYTES: usize = 8 + 32;
/// The bytes of one removed range.
const RANGE_BYTES: usize = 8 + 8 + 32 + 32;

/// The key that opens one row's leaf.
#[must_use]
pub fn row_key(log_key: &Hash, sequence: Sequence) -> Hash {
    *blake3::keyed_hash(log_key, &sequence.0.to_be_bytes()).as_bytes()
}

/// The leaf of a text.
#[must_use]
pub fn leaf(row_key: &Hash, text: &[u8]) -> Hash {
    *blake3::keyed_hash(row_key, text).as_bytes()
}

/// The chain's value after a leaf.
#[must_use]
pub fn link(before: &Hash, leaf: &Hash) -> Hash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(before);
    both[32..].copy_from_slice(leaf);
    *blake3::hash(&both).as_bytes()
}

/// The chain's value before its first row.
#[must_use]
pub fn start(log: &LogId, epoch: Epoch, from: Sequence) -> Hash {
    let (kind, id) = match log {
        LogId::Run(id) => (0, id.as_str()),
        LogId::Session(id) => (1, id.as_str()),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]).update(&epoch.bits().to_be_bytes()).update(&from.0.to_be_bytes()).update(id.as_bytes());
    *hasher.finalize().as_bytes()
}

/// The leaf of a row.
#[must_use]
pub fn leaf_of_row(row_key: &Hash, row: &Row) -> Hash {
    leaf_of_text(row_key, row.view(Audience::Internal).unwrap_or_default())
}

fn leaf_of_text(row_key: &Hash, text: &[u8]) -> Hash {
    escape_line_ends(text).map_or_else(|| leaf(row_key, text), |escaped| leaf(row_key, &escaped))
}

/// A state entry to save: its key and its value.
pub type StateEntry = (Bytes, Option<Bytes>);

fn numbered(sequence: Sequence, hash: &Hash) -> Bytes {
    [&sequence.0.to_be_bytes(), &hash[..]].concat().into()
}

fn numbered_key(prefix: &str, sequence: Sequence) -> Bytes {
    Bytes::from(format!("{prefix}{:016x}", sequence.0))
}

/// The end of a chain, where its log's writer adds to it.
#[derive(Debug, Clone)]
pub struct ChainEnd {
    key: Hash,
    from: Sequence,
    last: Sequence,
    value: Hash,
    /// The last sequence at the last save; `None` for a chain that was never saved.
    saved: Option<Sequence>,
    /// Points since the last save.
    points: Vec<(Sequence, Hash)>,
}

impl ChainEnd {
    /// Begins a chain after a row, with a random key.
    #[must_use]
    pub fn begin(log: &LogId, epoch: Epoch, last: Sequence, key: Hash) -> Self {
        let from = last.next();
        Self { key, from, last, value: start(log, epoch, from), saved: None, points: Vec::new() }
    }

    /// The end of a stored chain, if the chain reaches the log's last row.
    #[must_use]
    pub fn restore(record: &ChainRecord, last: Sequence) -> Option<Self> {
        let ChainRecord { key, from, head: (at, value), .. } = record;
        (*at == last).then(|| Self { key: *key, from: *from, last, value: *value, saved: Some(last), points: Vec::new() })
    }

    /// Adds the next row of the log. `is_decision`: its place is saved.
    pub fn push(&mut self, sequence: Sequence, text: &[u8], is_decision: bool) {
        self.value = link(&self.value, &leaf_of_text(&row_key(&self.key, sequence), text));
        self.last = sequence;
        if is_decision || sequence.0.is_multiple_of(POINT_ROWS) {
            self.points.push((sequence, self.value));
        }
    }

    /// Adds the next rows of the log, as an append has them. The places of `decisions` are saved.
    pub fn push_rows(&mut self, rows: &[u8], decisions: &[Sequence]) {
        let mut decisions = decisions.iter().peekable();
        for (sequence, text) in internal_texts(rows) {
            self.push(sequence, text, decisions.next_if_eq(&&sequence).is_some());
        }
    }

    /// The entries that changed since the last call.
    pub fn take_changed(&mut self) -> Vec<StateEntry> {
        let before = self.saved.replace(self.last);
        if before == Some(self.last) {
            return Vec::new();
        }
        let mut entries = Vec::with_capacity(2 + self.points.len());
        if before.is_none() {
            let value = [&self.key[..], &self.from.0.to_be_bytes()].concat();
            entries.push((Bytes::from_static(LOG_KEY.as_bytes()), Some(value.into())));
        }
        if !(sabotage::is(48) && self.last.0.is_multiple_of(4)) {
            entries.push((Bytes::from_static(HEAD.as_bytes()), Some(numbered(self.last, &self.value))));
        }
        let points = self.points.drain(..);
        entries.extend(points.map(|(at, value)| (numbered_key(POINT_KEY_PREFIX, at), Some(value.to_vec().into()))));
        entries
    }
}

/// Rows that compaction removed, with the chain's value at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedRange {
    pub first: Sequence,
    pub last: Sequence,
    pub before: Hash,
    pub after: Hash,
}

/// A log's chain as its state has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRecord {
    pub key: Hash,
    /// The first row of the chain. The rows before it are in no chain.
    pub from: Sequence,
    /// The epoch of the chain's start; `None` if it is the log's.
    epoch: Option<Epoch>,
    /// The last row of the chain, and the chain's value there.
    pub head: (Sequence, Hash),
    /// The chain's value at further rows, present or removed.
    known: HashMap<Sequence, Hash>,
}

impl ChainRecord {
    /// Reads the chain from the state of a log; `None` for a log without one.
    ///
    /// # Errors
    /// `Unreadable`, with the entry that cannot be read.
    pub fn read<'s>(log: &LogId, state: impl IntoIterator<Item = &'s (Bytes, Bytes)>) -> Result<Option<Self>, StoreError> {
        let (mut key, mut epoch, mut head, mut known) = (None, None, None, HashMap::new());
        for (entry, value) in state {
            let unreadable = || StoreError::unreadable(log, entry, &"it is no part of a hash chain");
            let Ok(name) = std::str::from_utf8(entry) else { continue };
            if name == LOG_KEY {
                let (bytes, from) = value.split_at_checked(32).ok_or_else(unreadable)?;
                let from = from.try_into().map_err(|_| unreadable())?;
                key = Some((hash_of(bytes), Sequence(u64::from_be_bytes(from))));
            } else if name == CHAIN_EPOCH {
                let ([from, bits], []) = value.as_chunks::<8>() else { return Err(unreadable()) };
                epoch = Some((Sequence(u64::from_be_bytes(*from)), Epoch::from_random(u64::from_be_bytes(*bits))));
            } else if name == HEAD {
                if value.len() != NUMBERED_BYTES {
                    return Err(unreadable());
                }
                head = Some((Sequence((&value[..]).get_u64()), hash_of(&value[8..])));
            } else if let Some(at) = name.strip_prefix(POINT_KEY_PREFIX) {
                let at = u64::from_str_radix(at, 16).map_err(|_| unreadable())?;
                if value.len() != 32 {
                    return Err(unreadable());
                }
                known.insert(Sequence(at), hash_of(value));
            } else if name.starts_with(REMOVED_KEY_PREFIX) {
                let (ranges, rest) = value.as_chunks::<RANGE_BYTES>();
                if !rest.is_empty() {
                    return Err(unreadable());
                }
                for mut range in ranges.iter().map(|range| &range[..]) {
                    let (first, last) = (range.get_u64(), Sequence(range.get_u64()));
                    known.insert(Sequence(first.saturating_sub(1)), hash_of(&range[..32]));
                    known.insert(last, hash_of(&range[32..]));
                }
            }
        }
        // An entry of an earlier chain of this log does not concern this one.
        let epoch_from = |from| epoch.filter(|(of, _)| *of == from).map(|(_, epoch)| epoch);
        Ok(key.zip(head).map(|((key, from), head)| Self { key, from, epoch: epoch_from(from), head, known }))
    }

    /// The epoch of the chain, of a log that has this epoch.
    #[must_use]
    pub fn epoch_of(&self, log: Epoch) -> Epoch {
        self.epoch.unwrap_or(log)
    }

    /// The state entry that keeps the chain of a log that gets another epoch.
    #[must_use]
    pub fn epoch_entry(&self, log: Epoch) -> (&'static str, [u8; 16]) {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.from.0.to_be_bytes());
        value[8..].copy_from_slice(&self.epoch_of(log).bits().to_be_bytes());
        (CHAIN_EPOCH, value)
    }

    /// The key that opens a row.
    #[must_use]
    pub fn row_key(&self, sequence: Sequence) -> Hash {
        row_key(&self.key, sequence)
    }

    /// The chain's value at a row, if it was saved.
    #[must_use]
    pub fn value_at(&self, sequence: Sequence) -> Option<Hash> {
        if sequence == self.head.0 {
            return Some(self.head.1);
        }
        self.known.get(&sequence).copied().filter(|_| sequence >= self.from)
    }

    /// Whether the chain has this row.
    #[must_use]
    pub fn has(&self, sequence: Sequence) -> bool {
        (self.from..=self.head.0).contains(&sequence)
    }
}

/// Follows a stored chain over the rows of its log, which must come in order.
pub struct ChainWalk<'r> {
    record: &'r ChainRecord,
    start: Hash,
    /// The last row, and the chain's value after it.
    at: (Sequence, Option<Hash>),
}

impl<'r> ChainWalk<'r> {
    /// Begins before the first row.
    #[must_use]
    pub fn new(log: &LogId, epoch: Epoch, record: &'r ChainRecord) -> Self {
        Self { record, start: start(log, record.epoch_of(epoch), record.from), at: (Sequence::NONE, None) }
    }

    /// The chain's value before and after the next row; `None` outside of the chain, and where it is not known.
    pub fn row(&mut self, row: &Row) -> (Option<Hash>, Option<Hash>) {
        let (sequence, record) = (row.sequence(), self.record);
        if !record.has(sequence) {
            return (None, None);
        }
        let (at, value) = self.at;
        let before = match sequence {
            sequence if sequence == record.from => Some(self.start),
            sequence if at.next() == sequence => value,
            sequence => record.value_at(Sequence(sequence.0 - 1)),
        };
        let after = || before.map(|before| link(&before, &leaf_of_row(&record.row_key(sequence), row)));
        let after = record.value_at(sequence).or_else(after);
        self.at = (sequence, after);
        (before, after)
    }
}

fn hash_of(bytes: &[u8]) -> Hash {
    bytes.try_into().expect("the caller has checked the length")
}

/// Adds a removed row to the ranges; rows must come in order.
pub fn add_removed(ranges: &mut Vec<RemovedRange>, sequence: Sequence, (before, after): (Option<Hash>, Option<Hash>)) {
    let (Some(before), Some(after)) = (before, after) else { return };
    match ranges.last_mut() {
        Some(range) if range.last.next() == sequence => {
            range.last = sequence;
            if !sabotage::is(53) {
                range.after = after;
            }
        }
        _ => ranges.push(RemovedRange { first: sequence, last: sequence, before, after }),
    }
}

/// The state entry with the ranges that one step of a compaction removes; `None` without ranges.
#[must_use]
pub fn removed_entry(ranges: &[RemovedRange]) -> Option<StateEntry> {
    let mut value = Vec::with_capacity(ranges.len() * RANGE_BYTES);
    for RemovedRange { first, last, before, after } in ranges {
        value.extend_from_slice(&first.0.to_be_bytes());
        value.extend_from_slice(&last.0.to_be_bytes());
        value.extend_from_slice(before);
        value.extend_from_slice(after);
    }
    Some((numbered_key(REMOVED_KEY_PREFIX, ranges.first()?.first), Some(value.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunId;

    fn log() -> LogId {
        LogId::Run(RunId::new("r").unwrap())
    }

    fn stored(end: &mut ChainEnd) -> Vec<(Bytes, Bytes)> {
        end.take_changed().into_iter().map(|(key, value)| (key, value.unwrap())).collect()
    }

    #[test]
    fn a_chain_goes_on_from_its_saved_end() {
        let epoch = Epoch::from_random(7);
        let mut whole = ChainEnd::begin(&log(), epoch, Sequence::NONE, [3; 32]);
        let mut first = ChainEnd::begin(&log(), epoch, Sequence::NONE, [3; 32]);
        for n in 1..=300 {
            whole.push(Sequence(n), b"text", n == 7);
            if n <= 100 {
                first.push(Sequence(n), b"text", n == 7);
            }
        }
        let state = stored(&mut first);
        assert_eq!(first.take_changed(), [], "nothing changed since");
        let record = ChainRecord::read(&log(), &state).unwrap().unwrap();
        assert!(ChainEnd::restore(&record, Sequence(101)).is_none(), "another version added a row");
        let mut rest = ChainEnd::restore(&record, Sequence(100)).unwrap();
        (101..=300).for_each(|n| rest.push(Sequence(n), b"text", false));
        assert_eq!(rest.value, whole.value);
        let record = ChainRecord::read(&log(), &stored(&mut whole)).unwrap().unwrap();
        assert_eq!((record.from, record.head), (Sequence(1), (Sequence(300), whole.value)));
        let saved: Vec<_> = (1..=300).filter(|n| record.value_at(Sequence(*n)).is_some()).collect();
        assert_eq!(saved, [7, 256, 300]);
    }

    #[test]
    fn a_chain_depends_on_the_log_its_epoch_and_its_first_row() {
        let session = LogId::Session(crate::model::SessionId::new("r").unwrap());
        let (one, two) = (Epoch::from_random(1), Epoch::from_random(2));
        let starts = [
            start(&log(), one, Sequence(1)),
            start(&log(), two, Sequence(1)),
            start(&log(), one, Sequence(2)),
            start(&session, one, Sequence(1)),
        ];
        for (n, start) in starts.iter().enumerate() {
            assert!(!starts[..n].contains(start), "{n}");
        }
    }

    #[test]
    fn an_entry_of_another_length_is_refused() {
        let good = || vec![(Bytes::from("k"), Bytes::from(vec![0; 40])), (Bytes::from("h"), Bytes::from(vec![0; 40]))];
        assert!(ChainRecord::read(&log(), &good()).unwrap().is_some());
        for (key, length) in [("k", 39), ("h", 41), ("h:0000000000000100", 31), ("h:z", 32), ("x:0000000000000001", 79)] {
            let mut state = good();
            state.retain(|(known, _)| known != key);
            state.push((key.into(), vec![0; length].into()));
            let error = ChainRecord::read(&log(), &state).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
