//! The tail file: a second, independent record of how far the on-disk log must reach.
//!
//! A journal alone cannot tell a write that never finished from an acknowledged write that was damaged since: both end
//! in invalid bytes. So after each sync, the store writes the number of the last synced batch here. Opening the store
//! refuses a journal that ends earlier, unless its end is missing. The tail file itself is not synced after each write.
//! It survives a killed process. After a power loss it may be old; then it claims less, but never something wrong.
//!
//! ```text
//! file  := slot  zeros to 512  slot           two slots, written alternately: a torn write damages one slot only
//! slot  := turn:u64  batch:u64  flags:u64  xxh3(the 24 bytes before):u64              little-endian; the higher turn wins
//! flags := 1 the store was created completely  |  2 every batch was synced before the next one began
//!        |  4 a format file lies beside it
//! ```
//!
//! The file is also the lock of the data directory, because this store reads the journals before the engine takes its
//! own lock.

use crate::environment;
use crate::log::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The file's name in the data directory.
pub const FILE: &str = "tail";
const SLOT_BYTES: usize = 32;
/// Far enough apart that no disk writes both slots at once.
const SLOT_AT: [u64; 2] = [0, 512];
const LOCK_ATTEMPTS: u32 = 30;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const MADE: u64 = 1;
const ORDERED: u64 = 2;
const FORMAT: u64 = 4;

/// The content of the tail file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurableMark {
    /// Batches up to this number, counted from 1, are durable.
    pub batch: u64,
    /// The store was created completely; before that it holds no data to lose.
    pub made: bool,
    /// Every batch was synced before the next one began, so only the last batch can be unfinished.
    pub ordered: bool,
}

struct Slot {
    turn: u64,
    mark: DurableMark,
    has_format: bool,
}

/// The tail file. It stays open and locked while this value lives.
pub struct TailFile {
    file: File,
    path: PathBuf,
    turn: u64,
    has_format: bool,
}

impl TailFile {
    /// Opens or creates the tail file of the data directory `dir` and locks it.
    ///
    /// The mark is `None` for a new file.
    ///
    /// # Errors
    /// `Locked` when another process holds it, `Corrupt` when neither slot can be read.
    pub fn open(dir: &Path) -> Result<(Self, Option<DurableMark>), StoreError> {
        let path = dir.join(FILE);
        let failed = |e: std::io::Error| StoreError::failed("opening the tail file", &format!("{}: {e}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        take_lock(&file, dir)?;
        let is_new = file.metadata().map_err(failed)?.len() == 0;
        let mut tail = Self { file, path, turn: 0, has_format: false };
        if is_new {
            return Ok((tail, None));
        }
        let mut slots: Vec<_> = SLOT_AT.iter().filter_map(|at| tail.slot(*at)).collect();
        slots.sort_by_key(|slot| slot.turn);
        let Some(Slot { turn, mark, has_format }) = slots.pop() else {
            return Err(StoreError::Corrupt { path: tail.path, what: "neither of its two slots has a valid checksum".into() });
        };
        (tail.turn, tail.has_format) = (turn, has_format);
        Ok((tail, Some(mark)))
    }

    /// Locks the data directory `dir` without writing.
    ///
    /// # Errors
    /// `Locked` when another process holds it, `Failed` when the tail file does not exist.
    pub fn lock(dir: &Path) -> Result<File, StoreError> {
        let path = dir.join(FILE);
        let failed = |e: std::io::Error| StoreError::failed("opening the tail file", &format!("{}: {e}", path.display()));
        let file = File::open(&path).map_err(failed)?;
        take_lock(&file, dir)?;
        Ok(file)
    }

    fn slot(&self, at: u64) -> Option<Slot> {
        let mut bytes = [0; SLOT_BYTES];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
        let mark = DurableMark { batch: word(1), made: word(2) & MADE != 0, ordered: word(2) & ORDERED != 0 };
        (word(3) == xxh3_64(&bytes[..24])).then_some(Slot { turn: word(0), mark, has_format: word(2) & FORMAT != 0 })
    }

    /// Records the mark for the next process that opens the store, however this process ends.
    ///
    /// # Errors
    /// `Failed`, final like every failed write.
    pub fn record(&mut self, mark: DurableMark) -> Result<(), StoreError> {
        self.turn += 1;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(mark.made, MADE) | flag(mark.ordered, ORDERED) | flag(self.has_format, FORMAT);
        let mut bytes = [0; SLOT_BYTES];
        for (i, word) in [self.turn, mark.batch, flags].into_iter().enumerate() {
            bytes[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..24]);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        self.file
            .write_all_at(&bytes, SLOT_AT[usize::from(self.turn % 2 == 1)])
            .map_err(|e| StoreError::failed("writing the tail file", &e))
    }

    /// Records the mark in both slots and syncs, so that it survives a power loss too.
    ///
    /// For creating and closing a store.
    ///
    /// # Errors
    /// `Failed`.
    pub fn record_synced(&mut self, mark: DurableMark) -> Result<(), StoreError> {
        self.record(mark)?;
        self.record(mark)?;
        self.file.sync_all().map_err(|e| StoreError::failed("syncing the tail file", &e))
    }

    /// Whether the file was never written.
    pub const fn is_new(&self) -> bool {
        self.turn == 0
    }

    /// Whether a format file was written beside this file.
    pub const fn has_format(&self) -> bool {
        self.has_format
    }

    /// Makes every later write fail, or succeed again.
    #[cfg(test)]
    pub fn break_for_tests(&mut self, is_broken: bool) {
        self.file = OpenOptions::new().read(true).write(!is_broken).open(&self.path).unwrap();
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The last batch that the tail file in `dir` says is durable, without changing the file.
///
/// # Errors
/// What is wrong with the file.
pub fn read_mark(dir: &Path) -> Result<u64, &'static str> {
    let path = dir.join(FILE);
    let file = File::open(&path).map_err(|_| "it is missing or cannot be opened")?;
    let tail = TailFile { file, path, turn: 0, has_format: false };
    let newest = SLOT_AT.iter().filter_map(|at| tail.slot(*at)).max_by_key(|slot| slot.turn);
    newest.map(|slot| slot.mark.batch).ok_or("neither of its two slots has a valid checksum")
}

fn take_lock(file: &File, dir: &Path) -> Result<(), StoreError> {
    // A process that closed the file a moment ago may still share it with a child that is starting: fork copies
    // descriptors, and only exec closes them.
    let mut attempts = 0..LOCK_ATTEMPTS;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if attempts.next().is_some() => environment::sleep_thread(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: dir.to_owned() }),
            Err(TryLockError::Error(e)) => return Err(StoreError::failed("locking the tail file", &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_slot_counts_and_a_damaged_slot_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let mark = |batch| DurableMark { batch, made: true, ordered: true };
        let (mut tail, found) = TailFile::open(dir.path()).unwrap();
        assert_eq!(found, None);
        tail.record(mark(6)).unwrap();
        tail.record(mark(7)).unwrap();
        drop(tail);
        assert_eq!(TailFile::open(dir.path()).unwrap().1, Some(mark(7)));

        let newer = OpenOptions::new().write(true).open(dir.path().join("tail")).unwrap();
        newer.write_all_at(&[9], SLOT_AT[0] + 8).unwrap();
        assert_eq!(TailFile::open(dir.path()).unwrap().1, Some(mark(6)));

        newer.write_all_at(&[9], SLOT_AT[1] + 8).unwrap();
        assert!(matches!(TailFile::open(dir.path()), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn one_process_at_a_time_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let _first = TailFile::open(dir.path()).unwrap();
        assert!(matches!(TailFile::open(dir.path()), Err(StoreError::Locked { .. })));
    }
}
