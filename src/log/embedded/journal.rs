//! Reads the engine's journals before the engine does, to tell a torn end from rot.
//!
//! fjall's own reader stops quietly at the first entry that it cannot decode and cuts the file there: right for a write that
//! never finished, silent loss for a damaged byte in the middle. And its checksum leaves out a batch's header, so that a
//! damaged sequence number passes. So every batch of ours carries a [`Seal`], and a journal is opened only after each batch
//! in it has been checked here: structure, checksum, seal, and that none is missing between two.
//!
//! The format is fjall 3's (`src/journal/entry.rs`), all numbers little-endian; compression is off (`embedded.rs`):
//!
//! ```text
//! file  := batch…  zeros                                             written ahead of time: a new file is 64 MiB of zeros
//! batch := 1:u8 items:u32 seqno:u64  item…  3:u8 checksum:u64 "FJL\x03"          checksum: xxh3 of all bytes of all items
//! item  := 2:u8 type:u8 compression:u8 keyspace:u64 key_bytes:u16 value_bytes:u32 stored_bytes:u32  key  value
//! ```

use super::tail::Attested;
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

/// The keyspace of the seals: the first one that is made.
pub const SEAL_KEYSPACE: u64 = 1;
/// The key that every batch writes its seal under.
pub const SEAL_KEY: &[u8] = b"seal";

/// The engine numbers batches after the seal was made, and its own upkeep may draw numbers in between; only so many.
const SEQNO_SLACK: u64 = 1 << 16;

/// What every batch says about itself, under a checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seal {
    /// The engine's sequence number of the batch is this or a little more.
    pub seqno_min: u64,
    /// The number of this batch: 1, 2, 3 …
    pub batch: u64,
    /// The position of the last append in this batch or before it.
    pub position: u64,
    /// How many logs have been created, in this batch or before it.
    pub created: u64,
}

impl Seal {
    /// The value that is stored.
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (i, word) in [self.seqno_min, self.batch, self.position, self.created].into_iter().enumerate() {
            bytes[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The seal of a stored value; `None` when it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
        Some(Self { seqno_min: word(0), batch: word(1), position: word(2), created: word(3) })
    }
}

/// How the journals ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Journaled {
    /// The last whole batch's sequence number and seal; `None` when there is no batch in any journal.
    pub last: Option<(u64, Seal)>,
}

/// Checks all journals in `dir` and cuts what was never finished off the last one, so that fjall reads nothing that was not
/// checked here.
///
/// Of what is broken at the end of the last journal this is kept apart:
///
/// * nobody was told that it is durable: it is cut, whatever it looks like (a disk may write the pages of one batch in any
///   order) – unless batches are known to have been synced one by one and a whole one follows, which proves otherwise;
/// * somebody was told, and the file plainly ends too early, by its length or in zeros: it is cut, with a warning;
/// * somebody was told, and there are wrong bytes: rot.
///
/// # Errors
/// `Rot` with the file's path, `Failed` when a file cannot be read or cut.
pub fn recover(dir: &Path, attested: Attested) -> Result<Journaled, StoreError> {
    let files = journals(dir).map_err(|e| StoreError::failed("listing the journals", &e))?;
    let Some((active, sealed)) = files.split_last() else {
        return Err(rot(dir, "it has no journal (*.jnl)"));
    };
    let mut last = None;
    for path in sealed {
        let data = Data::read(path)?;
        let (end, broken) = walk(path, &data.bytes, &mut last)?;
        if broken.is_some() {
            return Err(rot(path, &format!("the batch at byte {end} is broken, and a later journal follows")));
        }
    }

    let data = Data::read(active)?;
    let (end, broken) = walk(active, &data.bytes, &mut last)?;
    let reached = last.map_or(0, |(_, seal): (u64, Seal)| seal.batch);
    let is_behind = reached < attested.batch;
    if let Some(broken) = broken {
        let rest = &data.bytes[end..];
        let is_rot =
            if is_behind { !ends_early(broken, rest, data.is_padded) } else { attested.ordered && is_followed_by_a_batch(rest) };
        if is_rot {
            return Err(rot(active, &format!("the batch at byte {end} was acknowledged and is broken")));
        }
        cut(active, end).map_err(|e| StoreError::failed("cutting an unfinished batch off the journal", &e))?;
    }
    if is_behind && last.is_some() {
        tracing::warn!(
            journal = %active.display(), reached, acknowledged = attested.batch,
            "the journal ends before the last acknowledged batch: something cut the file; going on from where it ends"
        );
    }
    Ok(Journaled { last })
}

fn rot(path: &Path, what: &str) -> StoreError {
    StoreError::Rot { path: path.to_owned(), what: what.to_owned() }
}

/// The journals in the order of their writing.
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

/// A journal's bytes up to the last that is not zero.
struct Data {
    bytes: Vec<u8>,
    /// Zeros follow.
    is_padded: bool,
}

impl Data {
    fn read(path: &Path) -> Result<Self, StoreError> {
        let read = || -> io::Result<Self> {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            let end = data_end(&file, len)?;
            let mut bytes = vec![0; usize::try_from(end).expect("a journal fits into memory: it was written from there")];
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

/// Goes through the whole batches of one journal: where they end, and what was wrong there, if anything was.
fn walk(path: &Path, bytes: &[u8], last: &mut Option<(u64, Seal)>) -> Result<(usize, Option<Broken>), StoreError> {
    let mut at = 0;
    while at < bytes.len() {
        let batch = match Batch::parse(&bytes[at..]) {
            Ok(batch) => batch,
            Err(broken) => return Ok((at, Some(broken))),
        };
        if let Some((seqno, seal)) = *last
            && (batch.seal.batch != seal.batch + 1 || batch.seqno <= seqno)
        {
            let what = format!("batch {} at byte {at} does not follow batch {}", batch.seal.batch, seal.batch);
            return Err(rot(path, &what));
        }
        *last = Some((batch.seqno, batch.seal));
        at += batch.bytes;
    }
    Ok((at, None))
}

/// Why no batch could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// The bytes end within it.
    Short,
    /// A byte is not what it must be.
    Wrong,
}

struct Batch {
    bytes: usize,
    seqno: u64,
    seal: Seal,
}

impl Batch {
    /// The batch that `from` begins with.
    fn parse(from: &[u8]) -> Result<Self, Broken> {
        let mut input = Input(from);
        input.expect(START)?;
        let items = input.u32()?;
        let seqno = input.u64()?;
        let mut seal = None;
        for _ in 0..items {
            input.expect(ITEM)?;
            let is_value = match input.u8()? {
                0 => true,
                1 | 2 => false,
                _ => return Err(Broken::Wrong),
            };
            input.expect(0)?;
            let keyspace = input.u64()?;
            let (key_bytes, value_bytes, stored_bytes) = (input.u16()?, input.u32()?, input.u32()?);
            if value_bytes != stored_bytes {
                return Err(Broken::Wrong);
            }
            let key = input.take(usize::from(key_bytes))?;
            let value = input.take(value_bytes as usize)?;
            if is_value && keyspace == SEAL_KEYSPACE && key == SEAL_KEY {
                seal = Seal::decode(value);
            }
        }
        let items_end = from.len() - input.0.len();
        input.expect(END)?;
        let checksum = input.u64()?;
        for byte in MAGIC {
            input.expect(*byte)?;
        }
        let seal = seal.ok_or(Broken::Wrong)?;
        let is_numbered = seqno.checked_sub(seal.seqno_min).is_some_and(|more| more < SEQNO_SLACK);
        if checksum != xxh3_64(&from[START_BYTES..items_end]) || !is_numbered {
            return Err(Broken::Wrong);
        }
        Ok(Self { bytes: from.len() - input.0.len(), seqno, seal })
    }
}

/// Bytes to read from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Broken::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }

    fn u8(&mut self) -> Result<u8, Broken> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, Broken> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        self.array().map(u64::from_le_bytes)
    }

    fn expect(&mut self, byte: u8) -> Result<(), Broken> {
        if self.u8()? == byte { Ok(()) } else { Err(Broken::Wrong) }
    }
}

/// Whether an acknowledged batch that cannot be read is one whose end is missing, rather than one with wrong bytes in it.
/// `rest` begins with it and ends with the last byte that is not zero.
fn ends_early(broken: Broken, rest: &[u8], is_padded: bool) -> bool {
    // A batch with its own end is all there: what asks for more bytes is a damaged length.
    let has_an_end = rest.ends_with(MAGIC);
    // Its last byte a zero, as one flipped bit in two can make it, and more zeros after it: a batch that lacks one byte of
    // its end in the middle of a file has lost that byte to damage, not to a cut.
    let has_all_but_one_byte = is_padded && rest.ends_with(&MAGIC[..3]);
    broken == Broken::Short && !has_an_end && !has_all_but_one_byte
}

/// Whether a whole batch stands anywhere after a broken one.
fn is_followed_by_a_batch(rest: &[u8]) -> bool {
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
        let seal = Seal { seqno_min: number * 10, batch: number, position: number, created: 1 };
        let items = [item(7, b"key", body), item(SEAL_KEYSPACE, SEAL_KEY, &seal.encode())].concat();
        let mut out = vec![START];
        out.extend(2u32.to_le_bytes());
        out.extend((number * 10 + 3).to_le_bytes());
        out.extend(&items);
        out.push(END);
        out.extend(xxh3_64(&items).to_le_bytes());
        out.extend(MAGIC);
        out
    }

    /// The number of the last batch that is recovered from `bytes`, and the length that is left; `None` for rot.
    fn check(bytes: &[u8], batch: u64, ordered: bool) -> Option<(u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        std::fs::write(&path, bytes).unwrap();
        match recover(dir.path(), Attested { batch, made: true, ordered }) {
            Ok(found) => Some((found.last.map_or(0, |(_, seal)| seal.batch), path.metadata().unwrap().len())),
            Err(StoreError::Rot { path: named, .. }) => {
                assert!(named.starts_with(dir.path()), "{}", named.display());
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn a_last_batch_cut_anywhere_is_dropped_whoever_was_told_of_it() {
        let first = batch(1, b"one");
        let both = [first.clone(), batch(2, b"FJL two\0\0\0")].concat();
        for len in first.len()..both.len() {
            let whole = Some((1, first.len() as u64));
            assert_eq!(check(&both[..len], 1, true), whole, "cut at {len}, not acknowledged");
            assert_eq!(check(&both[..len], 2, true), whole, "cut at {len}, acknowledged");
        }
    }

    #[test]
    fn zeros_after_the_end_are_room_that_was_not_used() {
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
    fn a_wrong_bit_in_any_acknowledged_byte_is_rot_or_harmless() {
        let both = [batch(1, b"one"), batch(2, b"two")].concat();
        for room in [0, 300] {
            let both = [&both[..], &vec![0; room]].concat();
            let data = both.len() - room;
            for at in 0..data {
                for bit in 0..8 {
                    let mut bytes = both.clone();
                    bytes[at] ^= 1 << bit;
                    // Within the slack a batch's sequence number may differ: the order of batches stays.
                    if let Some((last, len)) = check(&bytes, 2, true) {
                        assert_eq!((last, len), (2, both.len() as u64), "bit {bit} of byte {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_byte_before_a_whole_batch_is_rot_when_batches_are_synced_one_by_one() {
        let mut bytes = [batch(1, b"one"), batch(2, b"two"), batch(3, b"three")].concat();
        let at = batch(1, b"one").len() + 20;
        bytes[at] ^= 0x40;
        assert_eq!(check(&bytes, 1, true), None);
        assert_eq!(check(&bytes, 1, false), Some((1, batch(1, b"one").len() as u64)), "pages may be lost in any order");
    }

    #[test]
    fn a_missing_batch_is_rot() {
        let bytes = [batch(1, b"one"), batch(3, b"three")].concat();
        assert_eq!(check(&bytes, 3, true), None);
    }
}
