//! The store on this machine's disk: fjall, an LSM tree, with the rows of all logs in the order of their commits.
//!
//! ```text
//! rows     position                → rows of one append
//! index    log number, last seq.   → position                  where rows are gone: also up to where, see `Place`
//! state    log number, entry key   → entry
//! bodies   log number, body id     → body                       large ones in files of their own
//!          log number, 0 kind seq. → checkpoint                 no id begins with the byte 0
//! names    l                      → the store's life
//!          n kind id               → log number, epoch          c kind number → epoch, id        in the order of creation
//!          b body id               → log number                 d number      → nothing          being erased
//!          seal                    → what the last batch says of itself, see `journal`
//! ```
//!
//! Rows lie in commit order since appends of many logs, interleaved, would otherwise be sorted over and over by compaction,
//! and commits would wait for it. A group is one batch of the engine, so it is there as a whole or not at all, and a reader's
//! snapshot never sees part of one. A log's number is its place in the order of creation; numbers and positions are never
//! used twice.
//!
//! Whoever opens a data directory gets exactly what was written there, or an error that names a damaged file: [`journal`],
//! [`tables`] and [`tail`] check what the engine would take on trust. Nothing is repaired by guessing. One thing is let pass,
//! with a warning: a last journal that somebody has cut short, since that is a store as it was a moment before.
//!
//! An erased log is gone for every reader at once; its bytes leave the disk when the engine next rewrites their files.

mod examine;
mod journal;
mod tables;
mod tail;

pub use examine::{Examined, Finding};

use super::{
    Append, Blob, Compaction, Limit, Listed, Loaded, LogId, LogKind, META, Outcome, Placed, Store, StoreError, panic_message,
};
use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;
use fjall::config::FilterPolicy;
use fjall::{
    AbstractTree, CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch,
    PersistMode, Readable, Slice, Snapshot,
};
use journal::{Journaled, Seal};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tail::{Attested, Tail};
use tokio::sync::{oneshot, watch};

/// When commits reach the disk. Whatever the choice, a commit is whole or absent, and nothing after an absent one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before they are answered: what was acknowledged survives a killed process and a power loss.
    Always,
    /// Together, once in this time: what was acknowledged survives a killed process; a power loss takes at most the last
    /// interval.
    Interval(Duration),
    /// When the operating system sees fit, and when the store is closed: what was acknowledged survives a killed process; a
    /// power loss may take minutes.
    Never,
}

/// Tables up to this many bytes are read and checked as a whole whenever a store is opened: about a second's work.
const VERIFY_BYTES_MAX: u64 = 1 << 30;
/// Logs whose tails are kept in memory for the next append. When there are as many, all are forgotten and found again.
const KNOWN_MAX: usize = 1 << 16;
/// Keys that are removed at once when a log is swept away; commits wait for no more than this.
const SWEEP_KEYS: usize = 1024;
/// Appends that follow each other directly are read by one scan from this many on: fewer are found faster one by one.
const SCAN_FROM: usize = 4;

/// Which life of a store this is: the epoch that its first append brought.
const LIFE_KEY: &[u8] = b"l";

const CACHE_BYTES: u64 = 64 << 20;
/// Of rows that are in no table yet; up to four times as much while tables are being written.
const ROWS_MEMORY_BYTES: u64 = 32 << 20;
const OTHER_MEMORY_BYTES: u64 = 8 << 20;
/// Journals are kept until everything in them is in tables: this bounds the disk they use and the time a start takes.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
/// Bodies from this size on are kept out of the tables, which are rewritten by compaction.
const BODY_APART_BYTES: u32 = 4 << 10;

/// Logs on disk. Closing it, by dropping it, syncs.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    keeper: Option<(mpsc::Sender<Sweep>, JoinHandle<()>)>,
}

struct Shared {
    names: Keyspace,
    rows: Keyspace,
    index: Keyspace,
    state: Keyspace,
    bodies: Keyspace,
    db: Database,
    sync: Sync,
    /// Why the store's own thread ended before the store was closed.
    failed: watch::Sender<Option<StoreError>>,
    // Last, as it holds the lock of the directory: the engine must have let go before.
    writer: Mutex<Writer>,
}

/// What only one may touch at a time, to write.
struct Writer {
    /// What the last batch said of itself.
    seal: Seal,
    /// Tails of logs, of those that have been written lately.
    known: HashMap<LogId, Known>,
    /// Why nothing more can be written, once something could not.
    failed: Option<StoreError>,
    tail: Tail,
}

impl Writer {
    fn alive(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

#[derive(Debug, Clone, Copy)]
struct Known {
    number: u64,
    epoch: Epoch,
    last: Sequence,
}

/// Where the rows of one append are. One that lost its last rows has two places: up to the last that is left, and, empty, up to
/// the last that there was, so that positions go on saying how far the log had come.
#[derive(Debug, Clone, Copy)]
struct Place {
    last: Sequence,
    position: u64,
    /// Nothing is left here, nor from here up to this sequence, where a place ends.
    empty_to: Option<Sequence>,
}

/// A log that has lost its name, and whom to tell when the rest of it is gone.
struct Sweep {
    number: u64,
    /// Its appends up to here are gone. Without it each batch would search through the marks of all the removed ones again.
    swept: Sequence,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl EmbeddedStore {
    /// Opens or creates the store in the directory `dir`, which it makes when it is missing. It takes one process at a time.
    ///
    /// # Errors
    /// `Locked` when a process has it open, `Rot` when a file is not what was written, `Failed` when the disk fails.
    pub fn open(dir: &Path, sync: Sync) -> Result<Self, StoreError> {
        Self::open_checking(dir, sync, VERIFY_BYTES_MAX)
    }

    /// The same, reading and checking every file as a whole, however large.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_verified(dir: &Path, sync: Sync) -> Result<Self, StoreError> {
        Self::open_checking(dir, sync, u64::MAX)
    }

    fn open_checking(dir: &Path, sync: Sync, verify_bytes_max: u64) -> Result<Self, StoreError> {
        std::fs::create_dir_all(dir).map_err(|e| StoreError::failed("creating the data directory", &in_path(dir, &e)))?;
        let (mut tail, attested) = Tail::open(dir)?;
        let engine = dir.join("log");
        let attested = attested.unwrap_or_default();
        let journaled = if attested.made {
            check_version(&engine)?;
            tables::check(&engine.join("keyspaces"), verify_bytes_max)?;
            journal::recover(&engine, attested)?
        } else {
            make_room(&engine, &mut tail)?;
            Journaled::default()
        };

        let shared = Shared::open(&engine, sync, tail, attested, journaled)?;
        let unswept = shared.unswept()?;
        let shared = Arc::new(shared);
        let (orders, received) = mpsc::channel();
        let keeper = std::thread::Builder::new()
            .name("store-keeper".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let kept = std::panic::catch_unwind(AssertUnwindSafe(|| shared.keep(unswept, &received)));
                    let kept = kept.unwrap_or_else(|panic| {
                        Err(StoreError::failed("the store's upkeep", &format_args!("it panicked: {}", panic_message(&*panic))))
                    });
                    if let Err(error) = kept {
                        tracing::error!(%error, "the store's upkeep ended; nothing more is written");
                        shared.writer.lock().failed.get_or_insert_with(|| error.clone());
                        shared.failed.send_replace(Some(error));
                    }
                }
            })
            .map_err(|e| StoreError::failed("starting the store's thread", &e))?;
        Ok(Self { shared, keeper: Some((orders, keeper)) })
    }

    /// Waits until nothing has the store in `dir` open; false when that takes longer than `time_max`. A server that has stopped
    /// still closes its files for a moment.
    #[must_use]
    pub fn wait_until_closed(dir: &Path, time_max: Duration) -> bool {
        let Ok(lock) = File::open(dir.join(tail::FILE)) else { return true };
        let begun = Instant::now();
        while matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            if begun.elapsed() > time_max {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Moves what is in memory and in journals into tables. The engine does this by itself when there is enough of it.
    ///
    /// # Errors
    /// `Failed`, `Rot`.
    #[doc(hidden)]
    pub fn settle(&self) -> Result<(), StoreError> {
        for keyspace in self.shared.keyspaces() {
            keyspace.rotate_memtable_and_wait().map_err(|e| self.shared.fault("settling the store", &e))?;
        }
        Ok(())
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some((orders, keeper)) = self.keeper.take() {
            drop(orders);
            // It catches its own panics.
            let _ = keeper.join();
        }
        let mut writer = self.shared.writer.lock();
        let closed = match &writer.failed {
            None => self.shared.sync_now(&mut writer).and_then(|()| {
                let attested = self.shared.attested(&writer);
                writer.tail.attest_for_good(attested)
            }),
            Some(_) => Ok(()),
        };
        if let Err(e) = closed {
            tracing::error!(error = %e, "closing the store");
        }
    }
}

/// The engine's version marker: it makes a new store beside the old one when this is not there.
fn check_version(engine: &Path) -> Result<(), StoreError> {
    let path = engine.join("version");
    match std::fs::read(&path) {
        Ok(bytes) if bytes == b"FJL\x03" => Ok(()),
        Ok(_) => Err(StoreError::Rot { path, what: "it is not the marker of a store of this version".into() }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(StoreError::Rot { path, what: "it is missing".into() }),
        Err(e) => Err(StoreError::failed("reading the store's version", &e)),
    }
}

/// Clears away a store that was never made completely, and says that a new one is being made.
fn make_room(engine: &Path, tail: &mut Tail) -> Result<(), StoreError> {
    let failed = |e: std::io::Error| StoreError::failed("creating the store", &in_path(engine, &e));
    if tail.is_new() && engine.exists() {
        let what = "it is missing or empty, but there is a store beside it".into();
        return Err(StoreError::Rot { path: tail.path().to_owned(), what });
    }
    tail.attest_for_good(Attested::default())?;
    if engine.exists() {
        std::fs::remove_dir_all(engine).map_err(failed)?;
    }
    std::fs::create_dir(engine).map_err(failed)?;
    sync_dir(engine.parent().expect("the engine's directory is in the data directory"))
}

/// What failed, and where.
fn in_path(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Makes the names in a directory last.
fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| StoreError::failed("syncing a directory", &in_path(dir, &e)))
}

impl Shared {
    fn open(engine: &Path, sync: Sync, tail: Tail, attested: Attested, journaled: Journaled) -> Result<Self, StoreError> {
        let options =
            |memory_bytes| KeyspaceCreateOptions::default().manual_journal_persist(true).max_memtable_size(memory_bytes);
        // Looked up by ranges and by positions that exist: no filter would ever turn a read away.
        let unfiltered = |memory_bytes| options(memory_bytes).filter_policy(FilterPolicy::disabled());
        let apart = KvSeparationOptions::default().separation_threshold(BODY_APART_BYTES).compression(CompressionType::None);
        let open = || -> Result<_, fjall::Error> {
            let db = Database::builder(engine)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES_MAX)
                // Ours to check: `journal` reads no compressed entries.
                .journal_compression(CompressionType::None)
                .manual_journal_persist(true)
                // One that only writes tables, so that commits need not wait for the one that compacts.
                .worker_threads(2)
                .open()?;
            let is_whole =
                !attested.made || ["names", "rows", "index", "state", "bodies"].iter().all(|name| db.keyspace_exists(name));
            let names = db.keyspace("names", || options(OTHER_MEMORY_BYTES))?;
            let rows = db.keyspace("rows", || unfiltered(ROWS_MEMORY_BYTES))?;
            let index = db.keyspace("index", || unfiltered(OTHER_MEMORY_BYTES))?;
            let state = db.keyspace("state", || options(OTHER_MEMORY_BYTES))?;
            let bodies = db.keyspace("bodies", || options(OTHER_MEMORY_BYTES).with_kv_separation(Some(apart.clone())))?;
            Ok((is_whole, db, names, rows, index, state, bodies))
        };
        // The engine asserts some of what it reads; every file has been checked, but a panic must name the store at least.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(open)).unwrap_or(Err(fjall::Error::Unrecoverable));
        let (is_whole, db, names, rows, index, state, bodies) = opened.map_err(|e| fault(engine, "opening the store", &e))?;
        let rot = |what: &str| StoreError::Rot { path: engine.to_owned(), what: what.into() };
        if !is_whole {
            return Err(rot("a keyspace is missing"));
        }
        assert_eq!(names.id(), journal::SEAL_KEYSPACE, "the first keyspace that is made keeps the seals");
        let writer = Writer { seal: Seal::default(), known: HashMap::new(), failed: None, tail };
        let (failed, writer) = (watch::Sender::new(None), Mutex::new(writer));
        let shared = Self { names, rows, index, state, bodies, db, sync, failed, writer };

        let sealed = shared.names.get(journal::SEAL_KEY).map_err(|e| shared.fault("reading the last seal", &e))?;
        let sealed =
            sealed.as_deref().map(|bytes| Seal::decode(bytes).ok_or_else(|| rot("the last seal is none"))).transpose()?;
        let tables_to = shared.keyspaces().filter_map(|keyspace| keyspace.tree.get_highest_persisted_seqno()).max();
        match journaled.last {
            Some((seqno, seal)) if sealed != Some(seal) || tables_to > Some(seqno) => {
                return Err(rot("tables and journals disagree; the journal has lost its end"));
            }
            None if sealed.unwrap_or_default().batch < attested.batch => {
                if tables_to.is_some() {
                    return Err(rot("acknowledged batches are in no journal and in no table"));
                }
                tracing::warn!(
                    acknowledged = attested.batch,
                    "something emptied the only journal; there is nothing left of the store"
                );
            }
            _ => {}
        }
        // The engine syncs what is in a keyspace's directory, not that there is one.
        sync_dir(&engine.join("keyspaces"))?;
        let mut writer = shared.writer.lock();
        writer.seal = sealed.unwrap_or_default();
        let attested = shared.attested(&writer);
        writer.tail.attest_for_good(attested)?;
        drop(writer);
        Ok(shared)
    }

    fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        [&self.names, &self.rows, &self.index, &self.state, &self.bodies].into_iter()
    }

    fn attested(&self, writer: &Writer) -> Attested {
        Attested { batch: writer.seal.batch, made: true, ordered: self.sync == Sync::Always }
    }

    /// What a failure of the engine means. It does not say where: the damaged file is looked for.
    fn fault(&self, doing: &'static str, e: &fjall::Error) -> StoreError {
        let keyspaces = self.rows.path().parent().unwrap_or(self.rows.path());
        let fault = fault(keyspaces, doing, e);
        if !matches!(fault, StoreError::Rot { .. }) && !matches!(e, fjall::Error::Poisoned) {
            return fault;
        }
        self.keyspaces().find_map(|keyspace| tables::blame(keyspace.path())).unwrap_or(fault)
    }

    // Writing.

    fn commit(&self, group: &[Append], follows: impl Iterator<Item = bool>) -> Result<Vec<Outcome>, StoreError> {
        let mut writer = self.writer.lock();
        // Only between groups: within one, what is known is ahead of what is stored.
        if writer.known.len() >= KNOWN_MAX {
            writer.known.clear();
        }
        let committed = self.commit_group(&mut writer, group, follows);
        committed.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    fn commit_group(
        &self,
        writer: &mut Writer,
        group: &[Append],
        follows: impl Iterator<Item = bool>,
    ) -> Result<Vec<Outcome>, StoreError> {
        writer.alive()?;
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 1 + 3 * group.len());
        let mut outcomes = Vec::with_capacity(group.len());
        let (mut seal, mut refused) = (writer.seal, HashMap::new());
        for (append, follows) in group.iter().zip(follows) {
            let known = self.known(writer, &append.log)?;
            let behind = refused.get(&append.log).copied().filter(|_| follows);
            if let Some(conflict) = behind.or_else(|| append.conflict(known.map(|known| (known.epoch, known.last)))) {
                refused.insert(&append.log, conflict);
                outcomes.push(conflict);
                continue;
            }
            if let Some(Known { number: created, .. }) = known.filter(|_| append.is_empty()) {
                outcomes.push(Outcome::Committed { position: seal.position, created });
                continue;
            }
            let known = known.unwrap_or_else(|| {
                seal.created += 1;
                let known = Known { number: seal.created, epoch: append.epoch, last: Sequence::NONE };
                batch.insert(&self.names, name_key(&append.log), name_value(&known));
                batch.insert(&self.names, created_key(append.log.kind(), known.number), created_value(known.epoch, &append.log));
                known
            });
            if seal.position == 0 {
                batch.insert(&self.names, LIFE_KEY, append.epoch.bits().to_be_bytes());
            }
            seal.position += 1;
            self.put(&mut batch, append, known.number, seal.position);
            match writer.known.get_mut(&append.log) {
                Some(known) => known.last = append.last,
                None => {
                    writer.known.insert(append.log.clone(), Known { last: append.last, ..known });
                }
            }
            outcomes.push(Outcome::Committed { position: seal.position, created: known.number });
        }
        if !batch.is_empty() {
            self.write(writer, batch, seal, self.sync == Sync::Always)?;
        }
        Ok(outcomes)
    }

    fn put(&self, batch: &mut OwnedWriteBatch, append: &Append, number: u64, position: u64) {
        if !append.rows.is_empty() {
            batch.insert(&self.rows, position.to_be_bytes(), &append.rows[..]);
            batch.insert(&self.index, index_key(number, append.last), position.to_be_bytes());
        }
        self.set(batch, number, &append.state);
        for blob in &append.blobs {
            batch.insert(&self.names, body_name_key(blob.id.as_str().as_bytes()), number.to_be_bytes());
            batch.insert(&self.bodies, under(number, blob.id.as_str().as_bytes()), body_value(blob));
        }
    }

    fn set(&self, batch: &mut OwnedWriteBatch, number: u64, entries: &[(Bytes, Option<Bytes>)]) {
        for (key, value) in entries {
            let key = under(number, key);
            match value {
                Some(value) => batch.insert(&self.state, key, &value[..]),
                None => batch.remove(&self.state, key),
            }
        }
    }

    /// One batch, so that it is there as a whole or not at all.
    fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let known = self.known(&mut writer, &compaction.log)?;
        if !compaction.fits(known.map(|known| (known.epoch, known.last))) {
            return Ok(false);
        }
        let number = known.expect("a compaction fits no log that is not there").number;
        let snapshot = self.db.snapshot();
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2 + 2 * compaction.appends.len());
        let (before, until) = match (compaction.appends.first(), compaction.appends.last()) {
            (Some(first), Some(last)) => (
                self.last_at(&snapshot, number, first.position.saturating_sub(1))?,
                self.last_at(&snapshot, number, last.position)?,
            ),
            _ => (compaction.last, compaction.last),
        };
        // From the end, so that each append knows what became of those after it.
        let mut rewritten = compaction.appends.iter().rev().peekable();
        let mut empty_after = None;
        for entry in snapshot.range(&self.index, index_key(number, before.next())..index_key(number, until.next())).rev() {
            let place = self.place(entry)?;
            let append = rewritten.next_if(|rewritten| rewritten.position == place.position && place.empty_to.is_none());
            let left = append.map_or(place.last, |append| append.last);
            assert!(left <= place.last, "what is gone does not come back");
            assert!(left == place.last || place.last < compaction.last, "the log's last row stays");
            match append {
                Some(append) if append.rows.is_empty() => batch.remove(&self.rows, place.position.to_be_bytes()),
                Some(append) => batch.insert(&self.rows, place.position.to_be_bytes(), &append.rows[..]),
                None => {}
            }
            let is_empty = place.empty_to.is_some() || left < place.last;
            let empty_to = empty_after.or(place.empty_to).unwrap_or(place.last);
            if is_empty && place.empty_to != Some(empty_to) {
                batch.insert(&self.index, index_key(number, place.last), emptied_value(place.position, empty_to));
            }
            empty_after = is_empty.then_some(empty_to);
            if is_empty && left > Sequence::NONE && place.empty_to.is_none() {
                batch.insert(&self.index, index_key(number, left), place.position.to_be_bytes());
                empty_after = None;
            }
        }
        assert!(rewritten.next().is_none(), "only appends that are there are rewritten");
        let checkpoints = snapshot.prefix(&self.bodies, under(number, &[0]));
        for entry in checkpoints.take_while(|_| !compaction.appends.is_empty()) {
            batch.remove(&self.bodies, entry.key().map_err(|e| self.fault("reading the store", &e))?);
        }
        self.set(&mut batch, number, &compaction.state);
        let seal = writer.seal;
        self.write(&mut writer, batch, seal, self.sync == Sync::Always)?;
        Ok(true)
    }

    /// Synced like a commit, which a checkpoint would not need: but that every batch was synced before the next was begun is
    /// what tells a damaged journal from a torn one.
    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let known = self.known(&mut writer, log)?.filter(|known| known.epoch == epoch && sequence <= known.last);
        let Some(known) = known else { return Ok(()) };
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2);
        batch.insert(&self.bodies, checkpoint_key(known.number, kind, sequence), body);
        let seal = writer.seal;
        self.write(&mut writer, batch, seal, self.sync == Sync::Always)
    }

    /// Where the log stands for the next append.
    fn known(&self, writer: &mut Writer, log: &LogId) -> Result<Option<Known>, StoreError> {
        if let Some(known) = writer.known.get(log) {
            return Ok(Some(*known));
        }
        let known = self.find(&self.db.snapshot(), log)?;
        writer.known.extend(known.map(|known| (log.clone(), known)));
        Ok(known)
    }

    /// Seals and writes one batch. A failure is the last thing that happens to this store: what was being written may or may
    /// not be there, and a sync that is tried again can claim success for pages that the first one dropped.
    fn write(&self, writer: &mut Writer, mut batch: OwnedWriteBatch, seal: Seal, is_synced: bool) -> Result<(), StoreError> {
        writer.alive()?;
        let seal = Seal { seqno_min: self.db.seqno(), batch: writer.seal.batch + 1, ..seal };
        batch.insert(&self.names, journal::SEAL_KEY, seal.encode());
        let mode = if is_synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let written = batch.durability(Some(mode)).commit().map_err(|e| self.fault("writing a commit", &e)).and_then(|()| {
            writer.seal = seal;
            if is_synced { writer.tail.attest(self.attested(writer)) } else { Ok(()) }
        });
        written.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    fn sync_now(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.alive()?;
        let synced = self.db.persist(PersistMode::SyncData).map_err(|e| self.fault("syncing the journal", &e));
        let synced = synced.and_then(|()| writer.tail.attest(self.attested(writer)));
        synced.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    // Reading.

    /// Where the log stands in this snapshot.
    fn find(&self, snapshot: &Snapshot, log: &LogId) -> Result<Option<Known>, StoreError> {
        let Some(named) = self.get(snapshot, &self.names, &name_key(log))? else { return Ok(None) };
        let (number, epoch) = Self::decode(&self.names, name_of(&named))?;
        let mut appends = snapshot.range(&self.index, index_key(number, Sequence::NONE)..=index_key(number, Sequence(u64::MAX)));
        let last = appends.next_back().map(|entry| self.place(entry)).transpose()?.map_or(Sequence::NONE, |place| place.last);
        Ok(Some(Known { number, epoch, last }))
    }

    fn load(&self, log: &LogId) -> Result<Option<Loaded>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(known) = self.find(&snapshot, log)? else { return Ok(None) };
        let mut state = Vec::new();
        for entry in snapshot.prefix(&self.state, known.number.to_be_bytes()) {
            let (key, value) = self.entry(entry)?;
            state.push((Bytes::copy_from_slice(&key[8..]), Bytes::copy_from_slice(&value)));
        }
        Ok(Some(Loaded { epoch: known.epoch, last: known.last, state }))
    }

    /// The number of a log that has this epoch.
    fn numbered(&self, snapshot: &Snapshot, log: &LogId, epoch: Epoch) -> Result<Option<u64>, StoreError> {
        let Some(named) = self.get(snapshot, &self.names, &name_key(log))? else { return Ok(None) };
        let (number, found) = Self::decode(&self.names, name_of(&named))?;
        Ok((found == epoch).then_some(number))
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let snapshot = self.db.snapshot();
        match self.numbered(&snapshot, log, epoch)? {
            Some(number) => self.last_at(&snapshot, number, position),
            None => Ok(Sequence::NONE),
        }
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(number) = self.numbered(&snapshot, log, epoch)? else { return Ok(None) };
        let appends = index_key(number, sequence)..=index_key(number, Sequence(u64::MAX));
        let found = snapshot.range(&self.index, appends).next().map(|entry| self.place(entry)).transpose()?;
        Ok(found.map(|place| place.position))
    }

    /// The last sequence of a log's appends at or before this position.
    fn last_at(&self, snapshot: &Snapshot, number: u64, position: u64) -> Result<Sequence, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let Some(newest) = snapshot.range(&self.index, index_key(number, Sequence::NONE)..=end).next_back() else {
            return Ok(Sequence::NONE);
        };
        let newest = self.place(newest)?;
        if newest.position <= position {
            return Ok(newest.last);
        }
        // What is looked for lies at or after `from` and before `to`: halved until nothing lies between.
        let (mut from, mut to) = (Sequence::NONE, newest.last);
        while from.next() < to {
            let middle = Sequence(from.0 + (to.0 - from.0) / 2);
            let Some(found) = snapshot.range(&self.index, index_key(number, middle)..=end).next() else { break };
            let found = self.place(found)?;
            if found.position <= position { from = found.last } else { to = middle }
        }
        Ok(from)
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Placed>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(number) = self.numbered(&snapshot, log, epoch)?.filter(|_| after < Sequence::MAX) else {
            return Ok(Vec::new());
        };
        let places = self.places(&snapshot, number, after, limit.rows)?;
        let (mut read, mut ends) = (Vec::new(), Vec::with_capacity(places.len()));
        for stretch in places.chunk_by(|(_, a), (_, b)| b.position == a.position + 1) {
            if !self.gather(&snapshot, stretch, limit.bytes, &mut read, &mut ends)? {
                break;
            }
        }
        let read = Bytes::from(read);
        let mut from = 0;
        let placed = places.into_iter().zip(ends).map(|((before, Place { position, .. }), end)| Placed {
            position,
            before,
            rows: read.slice(std::mem::replace(&mut from, end)..end),
        });
        Ok(placed.collect())
    }

    /// The appends that hold the rows after `after`, as many as have `rows_max` such rows, at least one; each with the last
    /// sequence before it.
    fn places(
        &self,
        snapshot: &Snapshot,
        number: u64,
        after: Sequence,
        rows_max: usize,
    ) -> Result<Vec<(Sequence, Place)>, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let (mut before, mut places, mut rows) = (None, Vec::new(), 0);
        // From `after` itself: nearly every reader stands at the end of an append.
        let mut entries = snapshot.range(&self.index, index_key(number, after)..=end);
        while let Some(entry) = entries.next() {
            let place = self.place(entry)?;
            if let Some(empty_to) = place.empty_to {
                before = Some(empty_to);
                if empty_to > place.last {
                    entries = snapshot.range(&self.index, index_key(number, empty_to.next())..=end);
                }
                continue;
            }
            if place.last == after {
                before = Some(after);
                continue;
            }
            let follows = match before {
                Some(before) => before,
                None => {
                    let mut older = snapshot.range(&self.index, index_key(number, Sequence::NONE)..index_key(number, after));
                    older.next_back().map(|entry| self.place(entry)).transpose()?.map_or(Sequence::NONE, |place| place.last)
                }
            };
            rows += place.last.0 - follows.max(after).0;
            if rows > rows_max as u64 && !places.is_empty() {
                break;
            }
            before = Some(place.last);
            places.push((follows, place));
            if rows >= rows_max as u64 {
                break;
            }
        }
        Ok(places)
    }

    /// Reads the appends at consecutive positions, and notes where the rows of each end; `false` when there was no room for all
    /// of them.
    fn gather(
        &self,
        snapshot: &Snapshot,
        stretch: &[(Sequence, Place)],
        bytes_max: usize,
        read: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) -> Result<bool, StoreError> {
        let mut take = |rows: &[u8]| {
            let fits = read.is_empty() || read.len() + rows.len() <= bytes_max;
            if fits {
                read.extend_from_slice(rows);
                ends.push(read.len());
            }
            fits
        };
        if stretch.len() < SCAN_FROM {
            for (_, Place { position, .. }) in stretch {
                let rows = self.get(snapshot, &self.rows, &position.to_be_bytes())?;
                let rows = rows.ok_or_else(|| self.missing_row(*position))?;
                if !take(&rows) {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let (first, last) = (stretch[0].1.position, stretch[stretch.len() - 1].1.position);
        let mut scan = snapshot.range(&self.rows, first.to_be_bytes()..=last.to_be_bytes());
        for (_, Place { position, .. }) in stretch {
            let (key, rows) = self.entry(scan.next().ok_or_else(|| self.missing_row(*position))?)?;
            if *key != position.to_be_bytes() {
                return Err(self.missing_row(*position));
            }
            if !take(&rows) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An entry of the index.
    fn place(&self, entry: fjall::Guard) -> Result<Place, StoreError> {
        let (key, value) = self.entry(entry)?;
        Self::decode(&self.index, self.place_of(&key, &value))
    }

    fn place_of(&self, key: &[u8], value: &[u8]) -> Option<Place> {
        let (position, empty_to) = value.split_at_checked(8)?;
        let empty_to = if empty_to.is_empty() { None } else { Some(Sequence(number_of(empty_to)?)) };
        Some(Place { last: last_of(key)?, position: number_of(position)?, empty_to })
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let snapshot = self.db.snapshot();
        let end = created_key(kind, before.unwrap_or(u64::MAX));
        snapshot
            .range(&self.names, created_key(kind, 0)..end)
            .rev()
            .take(limit)
            .map(|entry| {
                let (key, value) = self.entry(entry)?;
                let created = Self::decode(&self.names, key.get(2..).and_then(number_of))?;
                let (epoch, log) = Self::decode(&self.names, created_of(kind, &value))?;
                let meta = self.get(&snapshot, &self.state, &under(created, META))?;
                Ok(Listed { log, epoch, created, meta: meta.map(|meta| Bytes::copy_from_slice(&meta)).unwrap_or_default() })
            })
            .collect()
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(owner) = self.get(&snapshot, &self.names, &body_name_key(id.as_str().as_bytes()))? else { return Ok(None) };
        let number = Self::decode(&self.names, number_of(&owner))?;
        // Its log may have been erased and its turn to be swept may not have come.
        if self.get(&snapshot, &self.names, &dead_key(number))?.is_some() {
            return Ok(None);
        }
        let Some(body) = self.get(&snapshot, &self.bodies, &under(number, id.as_str().as_bytes()))? else { return Ok(None) };
        let (meta, body) = Self::decode(&self.bodies, body_of(&body))?;
        Ok(Some(Blob { id: id.clone(), meta, body }))
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(known) = self.find(&snapshot, log)?.filter(|known| known.epoch == epoch) else { return Ok(None) };
        // One beyond the log's tail knows rows that a crash has taken. The order of the journal keeps it from being there;
        // nobody is to depend on that alone.
        let at = at.min(known.last);
        let (from, to) = (checkpoint_key(known.number, kind, Sequence::NONE), checkpoint_key(known.number, kind, at));
        let Some(newest) = snapshot.range(&self.bodies, from..=to).next_back() else { return Ok(None) };
        let (key, body) = self.entry(newest)?;
        let sequence = Self::decode(&self.bodies, key.get(10..).and_then(number_of))?;
        Ok(Some((Sequence(sequence), Bytes::copy_from_slice(&body))))
    }

    fn get(&self, snapshot: &Snapshot, from: &Keyspace, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        snapshot.get(from, key).map_err(|e| self.fault("reading the store", &e))
    }

    fn entry(&self, entry: fjall::Guard) -> Result<(Slice, Slice), StoreError> {
        entry.into_inner().map_err(|e| self.fault("reading the store", &e))
    }

    /// What is stored under a right checksum and yet is not what we store: not ours to interpret.
    fn decode<T>(from: &Keyspace, decoded: Option<T>) -> Result<T, StoreError> {
        decoded.ok_or_else(|| StoreError::Rot { path: from.path().to_owned(), what: "it holds an entry of another kind".into() })
    }

    fn missing_row(&self, position: u64) -> StoreError {
        StoreError::Rot { path: self.rows.path().to_owned(), what: format!("the rows at position {position} are missing") }
    }

    // Erasing: a log loses its name first, durably, and then the rest, a bounded batch at a time. Half of it is never to be
    // found, since everything is found by name; a body too is not shown while its log's number is marked dead.

    fn unname(&self, log: &LogId) -> Result<Option<u64>, StoreError> {
        let mut writer = self.writer.lock();
        let Some(known) = self.known(&mut writer, log)? else { return Ok(None) };
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 4);
        batch.remove(&self.names, name_key(log));
        batch.remove(&self.names, created_key(log.kind(), known.number));
        batch.insert(&self.names, dead_key(known.number), []);
        let seal = writer.seal;
        self.write(&mut writer, batch, seal, true)?;
        writer.known.remove(log);
        Ok(Some(known.number))
    }

    /// Logs whose erasure was begun and not finished.
    fn unswept(&self) -> Result<VecDeque<Sweep>, StoreError> {
        let dead = self.db.snapshot().prefix(&self.names, b"d");
        dead.map(|entry| {
            let key = self.entry(entry)?.0;
            let number = Self::decode(&self.names, key.get(1..).and_then(number_of))?;
            Ok(Sweep { number, swept: Sequence::NONE, done: None })
        })
        .collect()
    }

    /// Removes one batch of what is left of a nameless log; whether that was the last of it.
    fn sweep(&self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let number = sweep.number;
        assert!(!cfg!(test) || number < u64::MAX, "a test asked for this panic");
        let snapshot = self.db.snapshot();
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2 * SWEEP_KEYS + 2);
        let mut left = SWEEP_KEYS;
        let mut some = |entries: Iter| -> Vec<fjall::Guard> {
            let taken: Vec<_> = entries.take(left).collect();
            left -= taken.len();
            taken
        };
        let appends = index_key(number, sweep.swept.next())..=index_key(number, Sequence(u64::MAX));
        for entry in some(snapshot.range(&self.index, appends)) {
            let Place { last, position, .. } = self.place(entry)?;
            sweep.swept = last;
            batch.remove(&self.rows, position.to_be_bytes());
            batch.remove(&self.index, index_key(number, last));
        }
        for entry in some(snapshot.prefix(&self.state, number.to_be_bytes())) {
            batch.remove(&self.state, entry.key().map_err(|e| self.fault("reading the store", &e))?);
        }
        for entry in some(snapshot.prefix(&self.bodies, number.to_be_bytes())) {
            let key = entry.key().map_err(|e| self.fault("reading the store", &e))?;
            // A checkpoint has no name, and is found to have none.
            let name = body_name_key(&key[8..]);
            // Another log may have come to hold a body of the same name.
            if self.get(&snapshot, &self.names, &name)?.as_deref() == Some(&number.to_be_bytes()) {
                batch.remove(&self.names, name);
            }
            batch.remove(&self.bodies, key);
        }
        let is_last = left > 0;
        if is_last {
            batch.remove(&self.names, dead_key(number));
        }
        let mut writer = self.writer.lock();
        let seal = writer.seal;
        self.write(&mut writer, batch, seal, self.sync == Sync::Always)?;
        Ok(is_last)
    }

    /// The store's own thread: syncs at the interval, sweeps in between, ends when the store is dropped.
    fn keep(&self, mut sweeps: VecDeque<Sweep>, orders: &mpsc::Receiver<Sweep>) -> Result<(), StoreError> {
        let interval = match self.sync {
            Sync::Interval(interval) => Some(interval),
            Sync::Always | Sync::Never => None,
        };
        let mut synced = (Instant::now(), 0);
        loop {
            let pause = interval.map(|interval| interval.saturating_sub(synced.0.elapsed()));
            let order = match (sweeps.is_empty(), pause) {
                (false, _) => match orders.try_recv() {
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                    order => order.ok(),
                },
                (true, None) => match orders.recv() {
                    Err(mpsc::RecvError) => return Ok(()),
                    Ok(order) => Some(order),
                },
                (true, Some(pause)) => match orders.recv_timeout(pause) {
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                    order => order.ok(),
                },
            };
            sweeps.extend(order);
            if interval.is_some_and(|interval| synced.0.elapsed() >= interval) {
                synced = (Instant::now(), self.sync_if_newer(synced.1)?);
            }
            if let Some(mut sweep) = sweeps.pop_front() {
                match self.sweep(&mut sweep) {
                    Ok(false) => sweeps.push_front(sweep),
                    swept => {
                        if let Err(e) = &swept {
                            tracing::error!(error = %e, "sweeping an erased log; it is tried again at the next start");
                        }
                        sweep.done.take().map(|done| done.send(swept.map(|_| ())));
                    }
                }
            }
        }
    }

    /// Syncs unless the last batch is `synced` already; which batch is the last now.
    fn sync_if_newer(&self, synced: u64) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock();
        if writer.seal.batch > synced {
            self.sync_now(&mut writer)?;
        }
        Ok(writer.seal.batch)
    }
}

/// What a failure of the engine means when no file has been found damaged.
fn fault(path: &Path, doing: &'static str, e: &fjall::Error) -> StoreError {
    use fjall::{Error as E, LsmError as L};
    let is_short = |e: &std::io::Error| matches!(e.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData);
    match e {
        E::Locked => StoreError::Locked { path: path.to_owned() },
        E::Io(io) | E::Storage(L::Io(io)) if !is_short(io) => StoreError::failed(doing, io),
        E::Poisoned => StoreError::failed(doing, &"an earlier write, or the engine's upkeep, failed"),
        e => StoreError::Rot { path: path.to_owned(), what: format!("{doing}: {e:?}") },
    }
}

// Keys and values: numbers are big-endian, so that their order is the order of keys.

fn name_key(log: &LogId) -> Vec<u8> {
    let (kind, id) = tagged(log);
    [b"n", &[kind], id].concat()
}

fn name_value(known: &Known) -> Vec<u8> {
    [known.number.to_be_bytes(), known.epoch.bits().to_be_bytes()].concat()
}

fn name_of(value: &[u8]) -> Option<(u64, Epoch)> {
    Some((number_of(value.get(..8)?)?, Epoch::from_random(number_of(value.get(8..)?)?)))
}

fn created_key(kind: LogKind, number: u64) -> Vec<u8> {
    [b"c", &[tag(kind)], &number.to_be_bytes()[..]].concat()
}

fn created_value(epoch: Epoch, log: &LogId) -> Vec<u8> {
    [&epoch.bits().to_be_bytes()[..], tagged(log).1].concat()
}

fn created_of(kind: LogKind, value: &[u8]) -> Option<(Epoch, LogId)> {
    let (epoch, id) = value.split_at_checked(8)?;
    let id = std::str::from_utf8(id).ok()?;
    let log = match kind {
        LogKind::Run => LogId::Run(RunId::new(id).ok()?),
        LogKind::Session => LogId::Session(SessionId::new(id).ok()?),
    };
    Some((Epoch::from_random(number_of(epoch)?), log))
}

fn tag(kind: LogKind) -> u8 {
    match kind {
        LogKind::Run => b'r',
        LogKind::Session => b's',
    }
}

fn tagged(log: &LogId) -> (u8, &[u8]) {
    let id = match log {
        LogId::Run(id) => id.as_str(),
        LogId::Session(id) => id.as_str(),
    };
    (tag(log.kind()), id.as_bytes())
}

fn dead_key(number: u64) -> Vec<u8> {
    [b"d", &number.to_be_bytes()[..]].concat()
}

fn body_name_key(id: &[u8]) -> Vec<u8> {
    [b"b", id].concat()
}

fn index_key(number: u64, last: Sequence) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&last.0.to_be_bytes());
    key
}

fn emptied_value(position: u64, empty_to: Sequence) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&position.to_be_bytes());
    value[8..].copy_from_slice(&empty_to.0.to_be_bytes());
    value
}

fn last_of(key: &[u8]) -> Option<Sequence> {
    number_of(key.get(8..)?).map(Sequence)
}

/// A key of the log's own, in `state` and `bodies`.
fn under(number: u64, key: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], key].concat()
}

fn checkpoint_key(number: u64, kind: u8, sequence: Sequence) -> Vec<u8> {
    under(number, &[&[0, kind], &sequence.0.to_be_bytes()[..]].concat())
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn body_value(blob: &Blob) -> Vec<u8> {
    let meta_bytes = u32::try_from(blob.meta.len()).expect("what describes a body is far below 4 GiB");
    [&meta_bytes.to_be_bytes()[..], &blob.meta, &blob.body].concat()
}

fn body_of(value: &[u8]) -> Option<(Bytes, Bytes)> {
    let (meta_bytes, rest) = value.split_first_chunk::<4>()?;
    let (meta, body) = rest.split_at_checked(u32::from_be_bytes(*meta_bytes) as usize)?;
    Some((Bytes::copy_from_slice(meta), Bytes::copy_from_slice(body)))
}

impl Store for EmbeddedStore {
    async fn commit(&self, group: &[Append]) -> Result<Vec<Outcome>, StoreError> {
        self.shared.commit(group, std::iter::repeat(false))
    }

    async fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<Outcome>, StoreError> {
        self.shared.commit(group, follows.iter().copied())
    }

    async fn load(&self, log: &LogId) -> Result<Option<Loaded>, StoreError> {
        self.shared.load(log)
    }

    async fn position(&self) -> Result<u64, StoreError> {
        Ok(self.shared.writer.lock().seal.position)
    }

    async fn life(&self) -> Result<Option<Epoch>, StoreError> {
        let Some(life) = self.shared.get(&self.shared.db.snapshot(), &self.shared.names, LIFE_KEY)? else { return Ok(None) };
        Shared::decode(&self.shared.names, number_of(&life)).map(|bits| Some(Epoch::from_random(bits)))
    }

    async fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        self.shared.locate(log, epoch, position)
    }

    async fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        self.shared.position_of(log, epoch, sequence)
    }

    async fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Placed>, StoreError> {
        self.shared.read(log, epoch, after, limit)
    }

    async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        self.shared.list(kind, before, limit)
    }

    async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        self.shared.blob(id)
    }

    async fn save_checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        sequence: Sequence,
        body: Bytes,
    ) -> Result<(), StoreError> {
        self.shared.save_checkpoint(log, epoch, kind, sequence, &body)
    }

    async fn checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        self.shared.checkpoint(log, epoch, kind, at)
    }

    async fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        self.shared.compact(compaction)
    }

    async fn erase(&self, log: &LogId) -> Result<(), StoreError> {
        let Some(number) = self.shared.unname(log)? else { return Ok(()) };
        let (done, swept) = oneshot::channel();
        let (orders, _) = self.keeper.as_ref().expect("the thread is joined when the store is dropped, not before");
        let gone = || StoreError::failed("erasing a log", &"the store's thread has ended");
        orders.send(Sweep { number, swept: Sequence::NONE, done: Some(done) }).map_err(|_| gone())?;
        swept.await.map_err(|_| gone())?
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.sync_now(&mut self.shared.writer.lock())
    }

    async fn bytes(&self) -> u64 {
        // What cannot be told is not worth failing for.
        self.shared.db.disk_space().unwrap_or(0)
    }

    async fn failed(&self) -> StoreError {
        let mut failed = self.shared.failed.subscribe();
        match failed.wait_for(Option::is_some).await.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            // The sender is gone with the store.
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Rewritten;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn log() -> LogId {
        LogId::Run(RunId::new("a").unwrap())
    }

    fn append(expected: u64) -> Append {
        Append {
            log: log(),
            epoch: Epoch::from_random(1),
            expected: Sequence(expected),
            last: Sequence(expected + 1),
            rows: Bytes::from(format!("row {expected}")),
            blobs: vec![Blob { id: BlobId::new(&format!("b{expected}")).unwrap(), meta: Bytes::new(), body: Bytes::new() }],
            state: vec![(Bytes::from("k"), Some(Bytes::from("v")))],
        }
    }

    #[test]
    fn the_end_of_the_store_s_own_thread_is_the_store_s_failure() {
        let patience = Duration::from_secs(30);
        let failed = |store: &EmbeddedStore| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let failed = runtime.block_on(async { tokio::time::timeout(patience, store.failed()).await });
            failed.expect("its end is known").to_string()
        };
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        let (orders, _) = store.keeper.as_ref().unwrap();
        orders.send(Sweep { number: u64::MAX, swept: Sequence::NONE, done: None }).unwrap();
        let why = failed(&store);
        assert!(why.contains("upkeep") && why.contains("a test asked for this panic"), "{why}");
        assert_eq!(wait(store.commit(&[append(0)])).unwrap_err().to_string(), why);
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Interval(Duration::from_millis(1))).unwrap();
        store.shared.writer.lock().tail.break_for_tests(true);
        wait(store.commit(&[append(0)])).unwrap();
        assert!(failed(&store).contains("writing the tail file"), "the sync between commits has failed");
    }

    const ALL: Limit = Limit { rows: usize::MAX, bytes: usize::MAX };

    #[test]
    fn an_erasure_that_was_interrupted_is_finished_at_the_next_start_and_half_of_it_is_never_seen() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        for expected in 0..SWEEP_KEYS as u64 + 10 {
            wait(store.commit(&[append(expected)])).unwrap();
        }
        store.shared.save_checkpoint(&log(), Epoch::from_random(1), 0, Sequence(9), b"checkpoint").unwrap();
        let number = store.shared.unname(&log()).unwrap().unwrap();
        assert!(!store.shared.sweep(&mut Sweep { number, swept: Sequence::NONE, done: None }).unwrap());
        let seen = || {
            assert_eq!(wait(store.load(&log())).unwrap(), None);
            assert_eq!(wait(store.blob(&BlobId::new("b9").unwrap())).unwrap(), None);
            assert_eq!(wait(store.list(LogKind::Run, None, 9)).unwrap(), []);
        };
        seen();
        // Written anew before the rest is swept: the two have nothing in common but the name.
        wait(store.commit(&[append(0)])).unwrap();
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        let left = |keyspace: &Keyspace| store.shared.db.snapshot().prefix(keyspace, number.to_be_bytes()).count();
        while store.shared.names.contains_key(dead_key(number)).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!([&store.shared.index, &store.shared.state, &store.shared.bodies].map(left), [0, 0, 0]);
        assert_eq!(store.shared.db.snapshot().iter(&store.shared.rows).count(), 1);
        let read = wait(store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL)).unwrap();
        assert_eq!(read.iter().map(|placed| &placed.rows[..]).collect::<Vec<_>>(), [b"row 0"]);
        assert!(wait(store.blob(&BlobId::new("b0").unwrap())).unwrap().is_some());
    }

    #[test]
    fn what_was_compacted_away_is_given_back_to_the_disk_and_an_erasure_takes_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Never).unwrap();
        let large = |expected: u64| {
            let noise = (0..4096_u64).map(|n| (n * n * 31 + expected * 7919) as u8 ^ ((n * expected) >> 7) as u8);
            Append { rows: noise.collect(), ..append(expected) }
        };
        let group: Vec<_> = (0..1000).map(large).collect();
        wait(store.commit(&group)).unwrap();
        let bytes = || {
            store.settle().unwrap();
            for keyspace in store.shared.keyspaces() {
                keyspace.major_compact().unwrap();
            }
            store.shared.keyspaces().map(Keyspace::disk_space).sum::<u64>()
        };
        let before = bytes();
        let gone = |position| Rewritten { position, last: Sequence::NONE, rows: Bytes::new() };
        let appends = (1..1000).filter(|position| position % 10 != 0).map(gone).collect();
        let (epoch, last) = (Epoch::from_random(1), Sequence(1000));
        assert!(wait(store.compact(&Compaction { log: log(), epoch, last, appends, state: Vec::new() })).unwrap());
        let after = bytes();
        assert!(after * 8 < before, "{after} of {before}");
        assert_eq!(store.shared.db.snapshot().iter(&store.shared.rows).count(), 100);
        wait(store.erase(&log())).unwrap();
        let left = |keyspace: &Keyspace| store.shared.db.snapshot().iter(keyspace).count();
        assert_eq!([&store.shared.index, &store.shared.rows].map(left), [0, 0]);
    }

    #[test]
    fn after_a_failed_write_every_later_commit_fails() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
        store.shared.writer.lock().tail.break_for_tests(true);
        assert!(matches!(wait(store.commit(&[append(1)])), Err(StoreError::Failed { .. })));
        store.shared.writer.lock().tail.break_for_tests(false);
        assert!(matches!(wait(store.commit(&[append(2)])), Err(StoreError::Failed { .. })));
        assert!(matches!(wait(store.erase(&log())), Err(StoreError::Failed { .. })));
        drop(store);
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        assert!(wait(store.load(&log())).unwrap().unwrap().last >= Sequence(1), "and what was acknowledged is there");
    }

    #[test]
    fn a_store_that_was_never_made_completely_is_made_anew_and_one_without_its_tail_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("log/0.jnl"), [0; 100]).unwrap();
        let refused = EmbeddedStore::open(dir.path(), Sync::Always);
        assert!(matches!(refused, Err(StoreError::Rot { path, .. }) if path == dir.path().join("tail")));
        Tail::open(dir.path()).unwrap().0.attest_for_good(Attested::default()).unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
    }

    #[test]
    fn a_table_that_is_not_checked_at_the_start_is_checked_as_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
        store.settle().unwrap();
        let tables = store.shared.rows.path().join("tables");
        drop(store);
        let table = tables.read_dir().unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&table).unwrap();
        let at = memchr::memmem::find(&bytes, b"row 0").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&table, bytes).unwrap();

        let is_named = |e: StoreError| matches!(e, StoreError::Rot { path, .. } if path == table);
        assert!(EmbeddedStore::open_verified(dir.path(), Sync::Always).is_err_and(is_named));
        let store = EmbeddedStore::open_checking(dir.path(), Sync::Always, 0).unwrap();
        let read = wait(store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL));
        assert!(read.is_err_and(is_named));
    }
}
