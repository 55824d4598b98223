//! Reads the engine's journals before the engine does, to tell a torn end from corruption.
//!
//! fjall's own reader stops silently at the first entry that it cannot decode and truncates the file there. That is
//! right for a write that never finished, but loses data when a byte in the middle is damaged. Its checksum also leaves
//! out a batch's header, so a damaged sequence number passes. So every batch of this store carries a [`BatchHeader`].
//! The store opens a journal only after this module has checked every batch in it: structure, checksum, header, and
//! that no batch is missing.
//!
//! The format is that of fjall 3 (`src/journal/entry.rs`), all numbers little-endian; compression is off
//! (`embedded.rs`):
//!
//! ```text
//! file  := batch…  zeros                                             preallocated: a new file is 64 MiB of zeros
//! batch := 1:u8 items:u32 seqno:u64  item…  3:u8 checksum:u64 "FJL\x03"          checksum: xxh3 of all bytes of all items
//! item  := 2:u8 type:u8 compression:u8 keyspace:u64 key_bytes:u16 value_bytes:u32 stored_bytes:u32  key  value
//! ```

use super::tail::DurableMark;
use crate::log::StoreError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const MAGIC: &[u8; 4] = b"FJL\x03";
const START_BYTES: usize = 1 + 4 + 8;

/// The keyspace of the batch headers: the first one created.
pub const HEADER_KEYSPACE: u64 = 1;
/// The key of the batch header in every batch.
pub const HEADER_KEY: &[u8] = b"seal";

/// The largest distance from `seqno_min` to the engine's number.
///
/// The engine assigns that number after the header is made, and its own maintenance may take numbers in between.
const SEQNO_SLACK: u64 = 1 << 16;

/// The header of a batch, under a checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// A lower bound of the engine's sequence number for the batch, close to it.
    pub seqno_min: u64,
    /// The number of this batch: 1, 2, 3 …
    pub batch: u64,
    /// The position of the last append in this batch or before it.
    pub position: u64,
    /// The number of logs created in this batch or before it.
    pub created: u64,
}

impl BatchHeader {
    /// The stored value.
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (i, word) in [self.seqno_min, self.batch, self.position, self.created].into_iter().enumerate() {
            bytes[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a stored value; `None` when it is not a header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
        Some(Self { seqno_min: word(0), batch: word(1), position: word(2), created: word(3) })
    }
}

/// The result of reading all journals.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecoveredJournal {
    /// The last whole batch's sequence number and header; `None` when no journal has a batch.
    pub last: Option<(u64, BatchHeader)>,
}

/// Checks all journals in `dir` and cuts an unfinished batch off the last one.
///
/// After that, fjall reads only data that this function has checked. A broken batch at the end of the last journal is
/// one of three cases:
///
/// * The batch was not acknowledged. The function cuts it in any case, because a disk may write the pages
///   of one batch in any order. Exception: batches were synced one by one and a whole batch follows, which proves
///   corruption.
/// * The batch was acknowledged, and the file ends too early, by its length or in zeros. The function cuts it and
///   warns.
/// * The batch was acknowledged, and bytes are wrong. The store is corrupt.
///
/// # Errors
/// `Corrupt` with the file's path, `Failed` when a file cannot be read or cut.
pub fn recover(dir: &Path, mark: DurableMark) -> Result<RecoveredJournal, StoreError> {
    let files = journals(dir).map_err(|e| StoreError::failed("listing the journals", &e))?;
    let Some((active, sealed)) = files.split_last() else {
        return Err(corrupt(dir, "it has no journal (*.jnl)"));
    };
    let mut last = None;
    for path in sealed {
        let data = JournalData::read(path)?;
        let (end, broken) = scan_batches(path, &data.bytes, &mut last)?;
        if broken.is_some() {
            return Err(corrupt(path, &format!("the batch at byte {end} is damaged, and a later journal follows")));
        }
    }

    let data = JournalData::read(active)?;
    let (end, broken) = scan_batches(active, &data.bytes, &mut last)?;
    let reached = last.map_or(0, |(_, header): (u64, BatchHeader)| header.batch);
    let is_behind = reached < mark.batch;
    if let Some(broken) = broken {
        let rest = &data.bytes[end..];
        let is_corrupt =
            if is_behind { !is_truncated(broken, rest, data.is_padded) } else { mark.ordered && has_batch_after(rest) };
        if is_corrupt {
            return Err(corrupt(active, &format!("the batch at byte {end} was acknowledged and is damaged")));
        }
        cut(active, end).map_err(|e| StoreError::failed("cutting an unfinished batch off the journal", &e))?;
    }
    if is_behind && last.is_some() {
        tracing::warn!(
            journal = %active.display(), reached, acknowledged = mark.batch,
            "the journal ends before the last acknowledged batch because the file was cut; the store continues from its end"
        );
    }
    Ok(RecoveredJournal { last })
}

fn corrupt(path: &Path, what: &str) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), what: what.to_owned() }
}

/// The journals in the order in which the engine wrote them.
fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, path)));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// A journal's bytes up to the last nonzero byte.
struct JournalData {
    bytes: Vec<u8>,
    /// Whether zeros follow.
    is_padded: bool,
}

impl JournalData {
    fn read(path: &Path) -> Result<Self, StoreError> {
        let read = || -> io::Result<Self> {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            let end = data_end(&file, len)?;
            let mut bytes = vec![0; usize::try_from(end).expect("a journal fits into memory")];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(Self { bytes, is_padded: end < len })
        };
        read().map_err(|e| StoreError::failed("reading a journal", &e))
    }
}

fn data_end(file: &File, len: u64) -> io::Result<u64> {
    let mut chunk = vec![0; 1 << 18];
    let mut end = len;
    while end > 0 {
        let step = chunk.len().min(usize::try_from(end).unwrap_or(usize::MAX));
        end -= step as u64;
        file.read_exact_at(&mut chunk[..step], end)?;
        if let Some(at) = chunk[..step].iter().rposition(|byte| *byte != 0) {
            return Ok(end + at as u64 + 1);
        }
    }
    Ok(0)
}

fn cut(path: &Path, end: usize) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(end as u64)?;
    file.sync_all()
}

/// Scans the whole batches of one journal; returns where they end, and the error there, if any.
fn scan_batches(
    path: &Path,
    bytes: &[u8],
    last: &mut Option<(u64, BatchHeader)>,
) -> Result<(usize, Option<BatchError>), StoreError> {
    let mut at = 0;
    while at < bytes.len() {
        let batch = match Batch::parse(&bytes[at..]) {
            Ok(batch) => batch,
            Err(broken) => return Ok((at, Some(broken))),
        };
        if let Some((seqno, header)) = *last
            && (batch.header.batch != header.batch + 1 || batch.seqno <= seqno)
        {
            let what = format!("batch {} at byte {at} does not follow batch {}", batch.header.batch, header.batch);
            return Err(corrupt(path, &what));
        }
        *last = Some((batch.seqno, batch.header));
        at += batch.bytes;
    }
    Ok((at, None))
}

/// Why a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchError {
    /// The bytes end within the batch.
    Truncated,
    /// A byte has an invalid value.
    Invalid,
}

struct Batch {
    bytes: usize,
    seqno: u64,
    header: BatchHeader,
}

impl Batch {
    /// Parses the batch at the start of `from`.
    fn parse(from: &[u8]) -> Result<Self, BatchError> {
        let mut input = ByteReader(from);
        input.expect(START)?;
        let items = input.u32()?;
        let seqno = input.u64()?;
        let mut header = None;
        for _ in 0..items {
            input.expect(ITEM)?;
            let is_value = match input.u8()? {
                0 => true,
                1 | 2 => false,
                _ => return Err(BatchError::Invalid),
            };
            input.expect(0)?;
            let keyspace = input.u64()?;
            let (key_bytes, value_bytes, stored_bytes) = (input.u16()?, input.u32()?, input.u32()?);
            if value_bytes != stored_bytes {
                return Err(BatchError::Invalid);
            }
            let key = input.take(usize::from(key_bytes))?;
            let value = input.take(value_bytes as usize)?;
            if is_value && keyspace == HEADER_KEYSPACE && key == HEADER_KEY {
                header = BatchHeader::decode(value);
            }
        }
        let items_end = from.len() - input.0.len();
        input.expect(END)?;
        let checksum = input.u64()?;
        for byte in MAGIC {
            input.expect(*byte)?;
        }
        let header = header.ok_or(BatchError::Invalid)?;
        let is_numbered = seqno.checked_sub(header.seqno_min).is_some_and(|more| more < SEQNO_SLACK);
        if checksum != xxh3_64(&from[START_BYTES..items_end]) || !is_numbered {
            return Err(BatchError::Invalid);
        }
        Ok(Self { bytes: from.len() - input.0.len(), seqno, header })
    }
}

/// Reads bytes from the front.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], BatchError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(BatchError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BatchError> {
        Ok(self.take(N)?.try_into().expect("take(N) returns N bytes"))
    }

    fn u8(&mut self) -> Result<u8, BatchError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, BatchError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BatchError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BatchError> {
        self.array().map(u64::from_le_bytes)
    }

    fn expect(&mut self, byte: u8) -> Result<(), BatchError> {
        if self.u8()? == byte { Ok(()) } else { Err(BatchError::Invalid) }
    }
}

/// Whether an acknowledged, unreadable batch lacks its end, rather than containing wrong bytes.
///
/// `rest` begins with the batch and ends with the last nonzero byte.
fn is_truncated(broken: BatchError, rest: &[u8], is_padded: bool) -> bool {
    // A batch with its own end marker is complete: a parser that needs more bytes read a damaged length.
    let has_an_end = rest.ends_with(MAGIC);
    // The last byte of the end marker reads zero, as a flipped bit can cause, and more zeros follow. In the middle of a
    // file, a batch that lacks one byte of its end is damaged, not cut.
    let has_all_but_one_byte = is_padded && rest.ends_with(&MAGIC[..3]);
    broken == BatchError::Truncated && !has_an_end && !has_all_but_one_byte
}

/// Whether a whole batch lies anywhere after a broken one.
fn has_batch_after(rest: &[u8]) -> bool {
    memchr::memmem::find_iter(rest, MAGIC).any(|at| Batch::parse(&rest[at + MAGIC.len()..]).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(keyspace: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = vec![ITEM, 0, 0];
        out.extend(keyspace.to_le_bytes());
        out.extend((key.len() as u16).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
        out.extend([key, value].concat());
        out
    }

    fn batch(number: u64, body: &[u8]) -> Vec<u8> {
        let header = BatchHeader { seqno_min: number * 10, batch: number, position: number, created: 1 };
        let items = [item(7, b"key", body), item(HEADER_KEYSPACE, HEADER_KEY, &header.encode())].concat();
        let mut out = vec![START];
        out.extend(2u32.to_le_bytes());
        out.extend((number * 10 + 3).to_le_bytes());
        out.extend(&items);
        out.push(END);
        out.extend(xxh3_64(&items).to_le_bytes());
        out.extend(MAGIC);
        out
    }

    /// The last batch recovered from `bytes`, and the length that remains; `None` for corruption.
    fn check(bytes: &[u8], batch: u64, ordered: bool) -> Option<(u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        std::fs::write(&path, bytes).unwrap();
        match recover(dir.path(), DurableMark { batch, made: true, ordered }) {
            Ok(found) => Some((found.last.map_or(0, |(_, header)| header.batch), path.metadata().unwrap().len())),
            Err(StoreError::Corrupt { path: named, .. }) => {
                assert!(named.starts_with(dir.path()), "{}", named.display());
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn a_last_batch_that_is_cut_anywhere_is_dropped_even_if_acknowledged() {
        let first = batch(1, b"one");
        let both = [first.clone(), batch(2, b"FJL two\0\0\0")].concat();
        for len in first.len()..both.len() {
            let whole = Some((1, first.len() as u64));
            assert_eq!(check(&both[..len], 1, true), whole, "cut at {len}, not acknowledged");
            assert_eq!(check(&both[..len], 2, true), whole, "cut at {len}, acknowledged");
        }
    }

    #[test]
    fn zeros_after_the_end_are_preallocated_space() {
        let first = batch(1, b"one");
        let both = [first.clone(), batch(2, b"two")].concat();
        let padded = |len: usize| [&both[..len], &[0; 300]].concat();
        assert_eq!(check(&padded(both.len()), 2, true).map(|(last, _)| last), Some(2));
        for len in first.len()..both.len() {
            assert_eq!(check(&padded(len), 1, true).map(|(last, _)| last), Some(1), "not acknowledged, zeros from {len}");
            let acknowledged = check(&padded(len), 2, true).map(|(last, _)| last);
            assert_eq!(acknowledged, (len + 1 < both.len()).then_some(1), "acknowledged, zeros from {len}");
        }
    }

    #[test]
    fn a_flipped_bit_in_an_acknowledged_batch_is_reported_or_harmless() {
        let both = [batch(1, b"one"), batch(2, b"two")].concat();
        for room in [0, 300] {
            let both = [&both[..], &vec![0; room]].concat();
            let data = both.len() - room;
            for at in 0..data {
                for bit in 0..8 {
                    let mut bytes = both.clone();
                    bytes[at] ^= 1 << bit;
                    // A batch's sequence number may differ within the slack: the order of batches stays.
                    if let Some((last, len)) = check(&bytes, 2, true) {
                        assert_eq!((last, len), (2, both.len() as u64), "bit {bit} of byte {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_byte_before_a_whole_batch_is_corruption_when_batches_are_synced_one_by_one() {
        let mut bytes = [batch(1, b"one"), batch(2, b"two"), batch(3, b"three")].concat();
        let at = batch(1, b"one").len() + 20;
        bytes[at] ^= 0x40;
        assert_eq!(check(&bytes, 1, true), None);
        assert_eq!(check(&bytes, 1, false), Some((1, batch(1, b"one").len() as u64)), "pages may be lost in any order");
    }

    #[test]
    fn a_missing_batch_is_corruption() {
        let bytes = [batch(1, b"one"), batch(3, b"three")].concat();
        assert_eq!(check(&bytes, 3, true), None);
    }
}
