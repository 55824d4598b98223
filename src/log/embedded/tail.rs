//! The tail file: how far the log on disk must reach, said by a second witness.
//!
//! A journal alone cannot tell a write that never finished from one that was finished, acknowledged, and damaged since: both
//! end in bytes that make no sense. So after each sync the number of the last batch that it covered goes here, and whoever
//! opens the store refuses a journal that ends earlier for any reason but a missing end. It is written without a sync of its
//! own: it survives a killed process; after a power loss it may be old, which makes it say less, never something wrong.
//!
//! ```text
//! file  := slot  zeros to 512  slot           two slots, written in turns: a torn write spoils one, the other still stands
//! slot  := turn:u64  batch:u64  flags:u64  xxh3(the 24 bytes before):u64              little-endian; the higher turn counts
//! flags := 1 the store was made completely  |  2 every batch was synced before the next was begun
//! ```
//!
//! It is also the lock of the data directory, since the journals are read before the engine takes its own.

use crate::log::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The file's name in the data directory.
pub const FILE: &str = "tail";
const SLOT_BYTES: usize = 32;
/// Far enough apart that no disk writes both at once.
const SLOT_AT: [u64; 2] = [0, 512];
const LOCK_ATTEMPTS: u32 = 30;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const MADE: u64 = 1;
const ORDERED: u64 = 2;

/// What the file attests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attested {
    /// Batches up to this number, counted from 1, are durable.
    pub batch: u64,
    /// The store was made completely; before that there is nothing in it to lose.
    pub made: bool,
    /// Every batch was synced before the next was begun, so that an unfinished one can only be the last.
    pub ordered: bool,
}

/// The tail file, open and locked for as long as this lives.
pub struct Tail {
    file: File,
    path: PathBuf,
    turn: u64,
}

impl Tail {
    /// Opens or creates the tail file of the data directory `dir` and takes its lock; what it attests is `None` when it is
    /// new.
    ///
    /// # Errors
    /// `Locked` when another process has it, `Rot` when neither slot can be read.
    pub fn open(dir: &Path) -> Result<(Self, Option<Attested>), StoreError> {
        let path = dir.join(FILE);
        let failed = |e: std::io::Error| StoreError::failed("opening the tail file", &format!("{}: {e}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        take_lock(&file, dir)?;
        let is_new = file.metadata().map_err(failed)?.len() == 0;
        let mut tail = Self { file, path, turn: 0 };
        if is_new {
            return Ok((tail, None));
        }
        let mut slots: Vec<_> = SLOT_AT.iter().filter_map(|at| tail.slot(*at)).collect();
        slots.sort_by_key(|(turn, _)| *turn);
        let Some((turn, attested)) = slots.pop() else {
            return Err(StoreError::Rot { path: tail.path, what: "neither of its two slots has a right checksum".into() });
        };
        tail.turn = turn;
        Ok((tail, Some(attested)))
    }

    /// Takes the lock of the data directory `dir`, and writes nothing.
    ///
    /// # Errors
    /// `Locked` when another process has it, `Failed` when there is no tail file.
    pub fn lock(dir: &Path) -> Result<File, StoreError> {
        let path = dir.join(FILE);
        let failed = |e: std::io::Error| StoreError::failed("opening the tail file", &format!("{}: {e}", path.display()));
        let file = File::open(&path).map_err(failed)?;
        take_lock(&file, dir)?;
        Ok(file)
    }

    fn slot(&self, at: u64) -> Option<(u64, Attested)> {
        let mut bytes = [0; SLOT_BYTES];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
        let attested = Attested { batch: word(1), made: word(2) & MADE != 0, ordered: word(2) & ORDERED != 0 };
        (word(3) == xxh3_64(&bytes[..24])).then_some((word(0), attested))
    }

    /// Attests it to whoever opens the store after this process has ended, however it ends.
    ///
    /// # Errors
    /// `Failed`, final like every failure to write.
    pub fn attest(&mut self, attested: Attested) -> Result<(), StoreError> {
        self.turn += 1;
        let flags = if attested.made { MADE } else { 0 } | if attested.ordered { ORDERED } else { 0 };
        let mut bytes = [0; SLOT_BYTES];
        for (i, word) in [self.turn, attested.batch, flags].into_iter().enumerate() {
            bytes[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..24]);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        self.file
            .write_all_at(&bytes, SLOT_AT[usize::from(self.turn % 2 == 1)])
            .map_err(|e| StoreError::failed("writing the tail file", &e))
    }

    /// Attests it in both slots, to last through a power loss too. For the ends of a store's life: this one waits for the disk.
    ///
    /// # Errors
    /// `Failed`.
    pub fn attest_for_good(&mut self, attested: Attested) -> Result<(), StoreError> {
        self.attest(attested)?;
        self.attest(attested)?;
        self.file.sync_all().map_err(|e| StoreError::failed("syncing the tail file", &e))
    }

    /// Nothing has ever been written to it.
    pub const fn is_new(&self) -> bool {
        self.turn == 0
    }

    /// Makes every later write fail, or lets it succeed again.
    #[cfg(test)]
    pub fn break_for_tests(&mut self, is_broken: bool) {
        self.file = OpenOptions::new().read(true).write(!is_broken).open(&self.path).unwrap();
    }

    /// The file, to name it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn take_lock(file: &File, dir: &Path) -> Result<(), StoreError> {
    // Whoever closed the file a moment ago may still hold a copy of it in a child that is being started: fork copies
    // descriptors, and only exec closes them.
    let mut attempts = 0..LOCK_ATTEMPTS;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if attempts.next().is_some() => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: dir.to_owned() }),
            Err(TryLockError::Error(e)) => return Err(StoreError::failed("locking the tail file", &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_slot_counts_and_a_spoiled_one_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let attested = |batch| Attested { batch, made: true, ordered: true };
        let (mut tail, found) = Tail::open(dir.path()).unwrap();
        assert_eq!(found, None);
        tail.attest(attested(6)).unwrap();
        tail.attest(attested(7)).unwrap();
        drop(tail);
        assert_eq!(Tail::open(dir.path()).unwrap().1, Some(attested(7)));

        let newer = OpenOptions::new().write(true).open(dir.path().join("tail")).unwrap();
        newer.write_all_at(&[9], SLOT_AT[0] + 8).unwrap();
        assert_eq!(Tail::open(dir.path()).unwrap().1, Some(attested(6)));

        newer.write_all_at(&[9], SLOT_AT[1] + 8).unwrap();
        assert!(matches!(Tail::open(dir.path()), Err(StoreError::Rot { .. })));
    }

    #[test]
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Tail::open(dir.path()).unwrap();
        assert!(matches!(Tail::open(dir.path()), Err(StoreError::Locked { .. })));
    }
}
