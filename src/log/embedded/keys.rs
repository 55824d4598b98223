//! Keys and values of the trees. Numbers are big-endian, so that their order is the order of keys.

use crate::log::{Blob, LogHead, LogId, LogKind};
use crate::model::{Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;

/// The key of the store's epoch, which is the epoch of its first append.
pub const EPOCH_KEY: &[u8] = b"l";

/// The location of one append's rows.
///
/// An append that lost its last rows has two entries: one up to the last remaining row, and an empty one up to its
/// former last row, so that positions still say how long the log was.
#[derive(Debug, Clone, Copy)]
pub struct IndexEntry {
    pub last: Sequence,
    pub position: u64,
    /// The end of a gap: no rows remain from this entry up to this sequence, at which an entry ends.
    pub empty_to: Option<Sequence>,
}

pub fn name_key(log: &LogId) -> Vec<u8> {
    let (kind, id) = tagged(log);
    [b"n", &[kind], id].concat()
}

pub fn name_value(head: &LogHead) -> Vec<u8> {
    [head.number.to_be_bytes(), head.epoch.bits().to_be_bytes()].concat()
}

pub fn name_of(value: &[u8]) -> Option<(u64, Epoch)> {
    Some((number_of(value.get(..8)?)?, Epoch::from_random(number_of(value.get(8..)?)?)))
}

pub fn created_key(kind: LogKind, number: u64) -> Vec<u8> {
    [b"c", &[tag(kind)], &number.to_be_bytes()[..]].concat()
}

pub fn created_value(epoch: Epoch, log: &LogId) -> Vec<u8> {
    [&epoch.bits().to_be_bytes()[..], tagged(log).1].concat()
}

pub fn created_of(kind: LogKind, value: &[u8]) -> Option<(Epoch, LogId)> {
    let (epoch, id) = value.split_at_checked(8)?;
    let id = std::str::from_utf8(id).ok()?;
    let log = match kind {
        LogKind::Run => LogId::Run(RunId::new(id).ok()?),
        LogKind::Session => LogId::Session(SessionId::stored(id).ok()?),
    };
    Some((Epoch::from_random(number_of(epoch)?), log))
}

pub fn tag(kind: LogKind) -> u8 {
    match kind {
        LogKind::Run => b'r',
        LogKind::Session => b's',
    }
}

pub fn tagged(log: &LogId) -> (u8, &[u8]) {
    let id = match log {
        LogId::Run(id) => id.as_str(),
        LogId::Session(id) => id.as_str(),
    };
    (tag(log.kind()), id.as_bytes())
}

pub fn tombstone_key(number: u64) -> Vec<u8> {
    [b"d", &number.to_be_bytes()[..]].concat()
}

pub fn body_name_key(id: &[u8]) -> Vec<u8> {
    [b"b", id].concat()
}

pub fn index_key(number: u64, last: Sequence) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&last.0.to_be_bytes());
    key
}

pub fn emptied_value(position: u64, empty_to: Sequence) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&position.to_be_bytes());
    value[8..].copy_from_slice(&empty_to.0.to_be_bytes());
    value
}

pub fn index_entry_of(key: &[u8], value: &[u8]) -> Option<IndexEntry> {
    let (position, empty_to) = value.split_at_checked(8)?;
    let empty_to = if empty_to.is_empty() { None } else { Some(Sequence(number_of(empty_to)?)) };
    Some(IndexEntry { last: last_of(key)?, position: number_of(position)?, empty_to })
}

pub fn last_of(key: &[u8]) -> Option<Sequence> {
    number_of(key.get(8..)?).map(Sequence)
}

/// A key of the log in `state` and `bodies`.
pub fn log_key(number: u64, key: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], key].concat()
}

pub fn checkpoint_key(number: u64, kind: u8, sequence: Sequence) -> Vec<u8> {
    log_key(number, &[&[0, kind], &sequence.0.to_be_bytes()[..]].concat())
}

pub fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

pub fn body_value(blob: &Blob) -> Vec<u8> {
    let meta_bytes = u32::try_from(blob.meta.len()).expect("a body's metadata is far below 4 GiB");
    [&meta_bytes.to_be_bytes()[..], &blob.meta, &blob.body].concat()
}

pub fn body_of(value: &[u8]) -> Option<(Bytes, Bytes)> {
    let (meta_bytes, rest) = value.split_first_chunk::<4>()?;
    let (meta, body) = rest.split_at_checked(u32::from_be_bytes(*meta_bytes) as usize)?;
    Some((Bytes::copy_from_slice(meta), Bytes::copy_from_slice(body)))
}
