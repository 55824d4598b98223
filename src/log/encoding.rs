//! Commits, and their form in a record of the journal.
//!
//! A commit says all that a store needs to apply it: each append has its position and the number of its log. So a store
//! that applies a commit again, or on another machine, reads nothing to decide, and ends with the same content.
//!
//! ```text
//! commit  := version:u8  kind:u8  group | compaction | erasure | leader
//! group   := count:u32 (position:u64 number:u64 creates:u8 log epoch:u64 expected:u64 last:u64 rows blobs state)…
//! compaction := number:u64 log epoch:u64 last:u64 count:u32 (position:u64 last:u64 rows)… state
//! erasure := number:u64 log
//! leader  := term:u64 node:bytes
//! log     := kind:u8 bytes       blobs := count:u32 (id meta body)…       state := count:u32 (key is_set:u8 [value])…
//! bytes   := length:u32 byte…    rows, id, meta, body, key, value := bytes                            little-endian
//! ```

use super::{Append, Blob, Compaction, LogId, LogKind, RewrittenAppend};
use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use bytes::{Buf, BufMut, Bytes};

/// A leader, as its record in the journal names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Grows with each leader.
    pub term: u64,
    /// The id of the node.
    pub node: String,
}

const VERSION: u8 = 1;
const GROUP: u8 = 1;
const COMPACTION: u8 = 2;
const ERASURE: u8 = 3;
const LEADER: u8 = 4;

/// What one record of the journal says.
#[derive(Debug, Clone)]
pub enum Commit {
    /// Appends that were committed together: all of them or none.
    Group(Vec<PlacedAppend>),
    /// A rewritten history of the log with this number.
    Compaction { number: u64, compaction: Compaction },
    /// The erasure of the log with this number.
    Erasure { number: u64, log: LogId },
    /// A node leads from here on. It changes nothing that a store keeps.
    Leader(Leader),
}

/// An append with its place in the order of all appends.
#[derive(Debug, Clone)]
pub struct PlacedAppend {
    pub append: Append,
    pub place: Place,
}

/// The place of an append in the order of all appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// See [`super::AppendOutcome::Committed`].
    pub position: u64,
    /// The log's place in the order of creation.
    pub number: u64,
    /// Whether the append creates the log.
    pub creates: bool,
}

impl Commit {
    /// The log of each append of a group, or the log that the commit rewrites.
    pub fn logs(&self) -> impl Iterator<Item = &LogId> {
        let (appends, other) = match self {
            Self::Group(appends) => (&appends[..], None),
            Self::Compaction { compaction, .. } => (&[][..], Some(&compaction.log)),
            Self::Erasure { log, .. } => (&[][..], Some(log)),
            Self::Leader(_) => (&[][..], None),
        };
        appends.iter().map(|placed| &placed.append.log).chain(other)
    }

    /// The appends of a group.
    #[must_use]
    pub fn into_appends(self) -> Vec<PlacedAppend> {
        match self {
            Self::Group(appends) => appends,
            Self::Compaction { .. } | Self::Erasure { .. } | Self::Leader(_) => Vec::new(),
        }
    }

    /// Encodes the commit for a record.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Group(appends) => {
                return encode_group(appends.iter().map(|placed| (&placed.append, placed.place))).concat().into();
            }
            Self::Compaction { number, compaction } => {
                out.put_u8(COMPACTION);
                out.put_u64_le(*number);
                put_log(&mut out, &compaction.log);
                out.put_u64_le(compaction.epoch.bits());
                out.put_u64_le(compaction.last.0);
                put_count(&mut out, compaction.appends.len());
                for append in &compaction.appends {
                    out.put_u64_le(append.position);
                    out.put_u64_le(append.last.0);
                    put_bytes(&mut out, &append.rows);
                }
                put_state(&mut out, &compaction.state);
            }
            Self::Erasure { number, log } => {
                out.put_u8(ERASURE);
                out.put_u64_le(*number);
                put_log(&mut out, log);
            }
            Self::Leader(Leader { term, node }) => {
                out.put_u8(LEADER);
                out.put_u64_le(*term);
                put_bytes(&mut out, node.as_bytes());
            }
        }
        out.into()
    }

    /// Decodes a record's body. The commit shares its bytes.
    ///
    /// # Errors
    /// Why the bytes are no commit.
    pub fn decode(mut from: Bytes) -> Result<Self, &'static str> {
        let commit = Self::take(&mut from).ok_or("it ends too early, or names no log")?;
        if from.is_empty() { Ok(commit) } else { Err("bytes follow the commit") }
    }

    fn take(from: &mut Bytes) -> Option<Self> {
        if from.try_get_u8().ok()? != VERSION {
            return None;
        }
        match from.try_get_u8().ok()? {
            GROUP => take_all(from, take_append).map(Self::Group),
            COMPACTION => {
                let number = take_number(from)?;
                let (log, epoch) = (take_log(from)?, Epoch::from_random(take_number(from)?));
                let last = Sequence(take_number(from)?);
                let appends = take_all(from, |from| {
                    let (position, last) = (take_number(from)?, Sequence(take_number(from)?));
                    Some(RewrittenAppend { position, last, rows: take_bytes(from)? })
                })?;
                let state = take_state(from)?;
                Some(Self::Compaction { number, compaction: Compaction { log, epoch, last, appends, state } })
            }
            ERASURE => Some(Self::Erasure { number: take_number(from)?, log: take_log(from)? }),
            LEADER => Some(Self::Leader(Leader { term: take_number(from)?, node: take_text(from)? })),
            _ => None,
        }
    }
}

/// Rows and bodies of at least this many bytes are a part of their own, so that they are not copied.
const PART_BYTES_MIN: usize = 4096;

/// A commit that is being encoded, in parts.
#[derive(Default)]
struct Parts {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Parts {
    fn put_bytes(&mut self, bytes: &Bytes) {
        if bytes.len() < PART_BYTES_MIN {
            return put_bytes(&mut self.open, bytes);
        }
        put_count(&mut self.open, bytes.len());
        self.done.extend([std::mem::take(&mut self.open).into(), bytes.clone()]);
    }
}

/// Encodes a group for a record, as [`Commit::encode`] does. The parts follow each other.
pub fn encode_group<'a>(appends: impl Iterator<Item = (&'a Append, Place)> + Clone) -> Vec<Bytes> {
    let mut parts = Parts::default();
    parts.open.reserve(4096);
    parts.open.put_u8(VERSION);
    parts.open.put_u8(GROUP);
    put_count(&mut parts.open, appends.clone().count());
    for (append, Place { position, number, creates }) in appends {
        let out = &mut parts.open;
        out.put_u64_le(position);
        out.put_u64_le(number);
        out.put_u8(u8::from(creates));
        put_log(out, &append.log);
        out.put_u64_le(append.epoch.bits());
        out.put_u64_le(append.expected.0);
        out.put_u64_le(append.last.0);
        parts.put_bytes(&append.rows);
        put_count(&mut parts.open, append.blobs.len());
        for blob in &append.blobs {
            put_bytes(&mut parts.open, blob.id.as_str().as_bytes());
            put_bytes(&mut parts.open, &blob.meta);
            parts.put_bytes(&blob.body);
        }
        put_state(&mut parts.open, &append.state);
    }
    let Parts { mut done, open } = parts;
    done.push(open.into());
    done
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.put_u32_le(u32::try_from(count).expect("a commit is far smaller than 4 GiB"));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_log(out: &mut Vec<u8>, log: &LogId) {
    let (kind, id) = match log {
        LogId::Run(id) => (LogKind::Run, id.as_str()),
        LogId::Session(id) => (LogKind::Session, id.as_str()),
    };
    out.put_u8(kind as u8);
    put_bytes(out, id.as_bytes());
}

fn put_state(out: &mut Vec<u8>, state: &[(Bytes, Option<Bytes>)]) {
    put_count(out, state.len());
    for (key, value) in state {
        put_bytes(out, key);
        out.put_u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put_bytes(out, value);
        }
    }
}

fn take_number(from: &mut Bytes) -> Option<u64> {
    from.try_get_u64_le().ok()
}

fn take_bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = from.try_get_u32_le().ok()? as usize;
    (length <= from.len()).then(|| from.split_to(length))
}

fn take_text(from: &mut Bytes) -> Option<String> {
    String::from_utf8(take_bytes(from)?.into()).ok()
}

fn take_flag(from: &mut Bytes) -> Option<bool> {
    match from.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn take_all<T>(from: &mut Bytes, take: impl Fn(&mut Bytes) -> Option<T>) -> Option<Vec<T>> {
    let count = from.try_get_u32_le().ok()?;
    (0..count).map(|_| take(from)).collect()
}

fn take_log(from: &mut Bytes) -> Option<LogId> {
    let (kind, id) = (from.try_get_u8().ok()?, take_text(from)?);
    match kind {
        kind if kind == LogKind::Run as u8 => RunId::new(&id).ok().map(LogId::Run),
        kind if kind == LogKind::Session as u8 => SessionId::stored(&id).ok().map(LogId::Session),
        _ => None,
    }
}

fn take_state(from: &mut Bytes) -> Option<Vec<(Bytes, Option<Bytes>)>> {
    take_all(from, |from| {
        let (key, is_set) = (take_bytes(from)?, take_flag(from)?);
        let value = if is_set { Some(take_bytes(from)?) } else { None };
        Some((key, value))
    })
}

fn take_append(from: &mut Bytes) -> Option<PlacedAppend> {
    let (position, number, creates) = (take_number(from)?, take_number(from)?, take_flag(from)?);
    let (log, epoch) = (take_log(from)?, Epoch::from_random(take_number(from)?));
    let (expected, last) = (Sequence(take_number(from)?), Sequence(take_number(from)?));
    let rows = take_bytes(from)?;
    let blobs = take_all(from, |from| {
        let id = BlobId::new(&take_text(from)?).ok()?;
        Some(Blob { id, meta: take_bytes(from)?, body: take_bytes(from)? })
    })?;
    let append = Append { log, epoch, expected, last, rows, blobs, state: take_state(from)? };
    Some(PlacedAppend { append, place: Place { position, number, creates } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits() -> Vec<Commit> {
        let log = LogId::Run(RunId::new("r").unwrap());
        let state = vec![(Bytes::from("k"), Some(Bytes::from("v"))), (Bytes::from("gone"), None)];
        let append = Append {
            log: log.clone(),
            epoch: Epoch::from_random(7),
            expected: Sequence(3),
            last: Sequence(4),
            rows: Bytes::from("row"),
            blobs: vec![Blob { id: BlobId::new("b").unwrap(), meta: Bytes::from("m"), body: Bytes::from("body") }],
            state: state.clone(),
        };
        // Its rows are a part of their own.
        let (log_of_session, rows) = (LogId::Session(SessionId::new("s").unwrap()), vec![b'r'; PART_BYTES_MIN].into());
        let of_session = Append { log: log_of_session, rows, blobs: Vec::new(), ..append.clone() };
        let appends = vec![RewrittenAppend { position: 9, last: Sequence(4), rows: Bytes::from("rest") }];
        let compaction = Compaction { log: log.clone(), epoch: append.epoch, last: Sequence(4), appends, state };
        vec![
            Commit::Group(vec![
                PlacedAppend { append, place: Place { position: 9, number: 2, creates: true } },
                PlacedAppend { append: of_session, place: Place { position: 10, number: 1, creates: false } },
            ]),
            Commit::Compaction { number: 2, compaction },
            Commit::Erasure { number: 2, log },
            Commit::Leader(Leader { term: 3, node: "n".into() }),
        ]
    }

    #[test]
    fn a_commit_is_decoded_as_it_was_encoded() {
        for commit in commits() {
            let decoded = Commit::decode(commit.encode()).unwrap();
            assert_eq!(format!("{decoded:?}"), format!("{commit:?}"));
        }
    }

    #[test]
    fn a_commit_that_is_cut_or_extended_is_refused() {
        for commit in commits() {
            let encoded = commit.encode();
            for end in 0..encoded.len() {
                assert!(Commit::decode(encoded.slice(..end)).is_err(), "cut at {end}");
            }
            let longer = [&encoded[..], b"x"].concat();
            assert_eq!(Commit::decode(longer.into()).unwrap_err(), "bytes follow the commit");
        }
    }
}
