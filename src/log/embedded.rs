//! The on-disk store: fjall, an LSM tree, with the rows of all logs in commit order.
//!
//! ```text
//! rows     position                → rows of one append
//! index    log number, last seq.   → position                  without rows also the end of the gap: `IndexEntry`
//! state    log number, entry key   → entry
//! bodies   log number, body id     → body                       large bodies lie in files of their own
//!          log number, 0 kind seq. → checkpoint                 no id begins with the byte 0
//! names    l                      → the store's epoch
//!          n kind id               → log number, epoch          c kind number → epoch, id        in the order of creation
//!          b body id               → log number                 d number      → nothing          tombstone of an erased log
//!          seal                    → the header of the last batch, see `journal`
//! ```
//!
//! Rows lie in commit order. Otherwise the engine's compaction would sort the interleaved appends of many logs over and
//! over, and commits would wait for it. A group is one engine batch, so it is stored as a whole or not at all, and a
//! reader's snapshot never sees part of one. A log's number is its place in the order of creation. The store never
//! reuses numbers and positions.
//!
//! Opening a data directory yields exactly the data that was written there, or an error that names a damaged file:
//! [`journal`], [`tables`] and [`tail`] check what the engine would trust. The store never repairs by guessing. It
//! accepts one kind of damage, with a warning: a last journal that was cut short, because such a store equals an
//! earlier state of itself.
//!
//! Erasing a log hides it from every reader at once. Its bytes leave the disk when the engine next rewrites their
//! files.

mod examine;
mod format;
mod journal;
mod tables;
pub(in crate::log) mod tail;

pub use examine::{Defect, StoreInspection};
pub use format::CURRENT as FORMAT;

use super::{
    Append, AppendOutcome, Blob, Compaction, Limit, ListedLog, LoadedLog, LogId, LogKind, META, Store, StoreError, StoredAppend,
    panic_message,
};
use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;
use fjall::config::FilterPolicy;
use fjall::{
    AbstractTree, CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch,
    PersistMode, Readable, Slice, Snapshot,
};
use journal::{BatchHeader, RecoveredJournal};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tail::{DurableMark, TailFile};
use tokio::sync::{oneshot, watch};

/// When commits reach the disk.
///
/// In every mode a commit is whole or absent, and nothing after an absent commit is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before the store answers them. Acknowledged data survives a killed process and a power loss.
    Always,
    /// Together, once per interval.
    ///
    /// Acknowledged data survives a killed process; a power loss costs at most the last interval.
    Interval(Duration),
    /// When the operating system writes them, and when the store is closed.
    ///
    /// Acknowledged data survives a killed process; a power loss may cost minutes.
    Never,
}

/// Up to this many bytes of tables, opening a store reads and checks every table completely.
///
/// That is about one second of work.
const VERIFY_BYTES_MAX: u64 = 1 << 30;
/// Log heads that stay in memory for the next append.
///
/// At this count the writer drops all and reads them again.
const CACHED_HEADS_MAX: usize = 1 << 16;
/// Keys that one batch removes while the maintenance thread deletes a log.
///
/// It bounds how long commits wait.
const DELETE_KEYS_MAX: usize = 1024;
/// From this many adjacent appends on, one scan reads them; single look-ups are faster for fewer.
const SCAN_APPENDS_MIN: usize = 4;

/// The key of the store's epoch, which is the epoch of its first append.
const EPOCH_KEY: &[u8] = b"l";

const CACHE_BYTES: u64 = 64 << 20;
/// Memory for rows that are in no table yet.
///
/// The engine uses up to four times as much while it writes tables.
const ROWS_MEMORY_BYTES: u64 = 32 << 20;
const OTHER_MEMORY_BYTES: u64 = 8 << 20;
/// The engine keeps journals until tables hold all their entries.
///
/// This bounds their size on disk and the start-up time.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
/// Bodies of at least this size lie outside the tables, because compaction rewrites tables.
const BODY_APART_BYTES: u32 = 4 << 10;

/// Whether opening a store of an older format keeps a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepCopy {
    Yes,
    /// The directory is a copy itself.
    No,
}

/// Logs on disk. Dropping the store closes and syncs it.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    maintenance: Option<(mpsc::Sender<PendingDelete>, JoinHandle<()>)>,
}

struct Shared {
    names: Keyspace,
    rows: Keyspace,
    index: Keyspace,
    state: Keyspace,
    bodies: Keyspace,
    db: Database,
    sync: Sync,
    /// Why the maintenance thread ended before the store was closed.
    failed: watch::Sender<Option<StoreError>>,
    // Last: it holds the directory lock, which must outlive the engine.
    writer: Mutex<Writer>,
}

/// The state that one writer at a time may use.
struct Writer {
    /// The header of the last batch.
    header: BatchHeader,
    /// The heads of logs that were written recently.
    heads: HashMap<LogId, LogHead>,
    /// Why the store accepts no more writes, once a write has failed.
    failed: Option<StoreError>,
    tail: TailFile,
}

impl Writer {
    fn check_usable(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

#[derive(Debug, Clone, Copy)]
struct LogHead {
    number: u64,
    epoch: Epoch,
    last: Sequence,
}

/// The location of one append's rows.
///
/// An append that lost its last rows has two entries: one up to the last remaining row, and an empty one up to its
/// former last row, so that positions still say how long the log was.
#[derive(Debug, Clone, Copy)]
struct IndexEntry {
    last: Sequence,
    position: u64,
    /// The end of a gap: no rows remain from this entry up to this sequence, at which an entry ends.
    empty_to: Option<Sequence>,
}

/// A log with a tombstone, and the caller to notify when its remaining data is deleted.
struct PendingDelete {
    number: u64,
    /// Its appends up to here are deleted.
    ///
    /// Without this, each batch would scan the engine's markers of all deleted keys again.
    deleted: Sequence,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl EmbeddedStore {
    /// Opens the store in the directory `dir`, or creates both. One process at a time can open it.
    ///
    /// A store of an older format is migrated; a copy of it stays in `dir` as `format-N`.
    ///
    /// # Errors
    /// `Locked` when another process has it open, `Unsupported` when a newer version wrote it, `Corrupt` when a file is
    /// damaged, `Failed` when the disk fails.
    pub fn open(dir: &Path, sync: Sync) -> Result<Self, StoreError> {
        Self::open_checking(dir, sync, VERIFY_BYTES_MAX, KeepCopy::Yes)
    }

    /// Opens the store like [`Self::open`], but reads and checks every file completely, however large.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_verified(dir: &Path, sync: Sync) -> Result<Self, StoreError> {
        Self::open_checking(dir, sync, u64::MAX, KeepCopy::Yes)
    }

    fn open_checking(dir: &Path, sync: Sync, verify_bytes_max: u64, keep_copy: KeepCopy) -> Result<Self, StoreError> {
        std::fs::create_dir_all(dir).map_err(|e| StoreError::failed("creating the data directory", &in_path(dir, &e)))?;
        // First of all, because a newer format may have another tail file.
        format::read(dir)?;
        let (mut tail, mark) = TailFile::open(dir)?;
        let engine = dir.join("log");
        let mark = mark.unwrap_or_default();
        let (found, recovered) = if mark.made {
            let found = format::read_stored(dir, &tail)?;
            format::check_engine(&engine)?;
            let files = tables::check(&engine.join("keyspaces"), verify_bytes_max)?;
            let recovered = journal::recover(&engine, mark)?;
            if found < FORMAT && keep_copy == KeepCopy::Yes {
                let copy = format::keep_copy(dir, found, &files)?;
                tracing::warn!(
                    from = found, to = FORMAT, copy = %copy.display(),
                    "the store is migrated; the copy of its older format stays until you delete it"
                );
            }
            (found, recovered)
        } else {
            prepare_new_store(&engine, &mut tail)?;
            format::write_current(dir)?;
            tail.set_has_format();
            (FORMAT, RecoveredJournal::default())
        };

        let shared = Shared::open(&engine, sync, tail, mark, recovered)?;
        if found < FORMAT {
            format::write_current(dir)?;
        }
        shared.writer.lock().tail.set_has_format();
        let pending_deletes = shared.pending_deletes()?;
        let shared = Arc::new(shared);
        let (requests, received) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("store-keeper".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let kept = std::panic::catch_unwind(AssertUnwindSafe(|| shared.run_maintenance(pending_deletes, &received)));
                    let kept = kept.unwrap_or_else(|panic| {
                        Err(StoreError::failed(
                            "the store's maintenance",
                            &format_args!("it panicked: {}", panic_message(&*panic)),
                        ))
                    });
                    if let Err(error) = kept {
                        tracing::error!(%error, "the store's maintenance thread ended; the store accepts no more writes");
                        shared.writer.lock().failed.get_or_insert_with(|| error.clone());
                        shared.failed.send_replace(Some(error));
                    }
                }
            })
            .map_err(|e| StoreError::failed("starting the store's maintenance thread", &e))?;
        Ok(Self { shared, maintenance: Some((requests, thread)) })
    }

    /// Waits until no process has the store in `dir` open; `false` when that takes longer than `time_max`.
    ///
    /// A stopped server still closes its files for a moment.
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

    /// Writes memtables and journals into tables. The engine does so by itself when they are large enough.
    ///
    /// # Errors
    /// `Failed`, `Corrupt`.
    #[doc(hidden)]
    pub fn flush_memtables(&self) -> Result<(), StoreError> {
        for keyspace in self.shared.keyspaces() {
            keyspace.rotate_memtable_and_wait().map_err(|e| self.shared.engine_error("flushing the memtables", &e))?;
        }
        Ok(())
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some((requests, thread)) = self.maintenance.take() {
            drop(requests);
            // The thread catches its own panics.
            let _ = thread.join();
        }
        let mut writer = self.shared.writer.lock();
        let closed = match &writer.failed {
            None => self.shared.sync_now(&mut writer).and_then(|()| {
                let mark = self.shared.durable_mark(&writer);
                writer.tail.record_synced(mark)
            }),
            Some(_) => Ok(()),
        };
        if let Err(e) = closed {
            tracing::error!(error = %e, "the store could not be closed cleanly");
        }
    }
}

/// Removes an incompletely created store, and records that the creation of a new one has begun.
fn prepare_new_store(engine: &Path, tail: &mut TailFile) -> Result<(), StoreError> {
    let failed = |e: std::io::Error| StoreError::failed("creating the store", &in_path(engine, &e));
    if tail.is_new() && engine.exists() {
        let what = "it is missing or empty, but a store lies beside it".into();
        return Err(StoreError::Corrupt { path: tail.path().to_owned(), what });
    }
    tail.record_synced(DurableMark::default())?;
    if engine.exists() {
        std::fs::remove_dir_all(engine).map_err(failed)?;
    }
    std::fs::create_dir(engine).map_err(failed)?;
    sync_dir(engine.parent().expect("the engine's directory is in the data directory"))
}

/// An I/O error with its path.
fn in_path(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Syncs a directory, so that the names in it are durable.
fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| StoreError::failed("syncing a directory", &in_path(dir, &e)))
}

impl Shared {
    fn open(
        engine: &Path,
        sync: Sync,
        tail: TailFile,
        mark: DurableMark,
        recovered: RecoveredJournal,
    ) -> Result<Self, StoreError> {
        let options =
            |memory_bytes| KeyspaceCreateOptions::default().manual_journal_persist(true).max_memtable_size(memory_bytes);
        // Reads use ranges and existing positions, so a filter would never reject one.
        let unfiltered = |memory_bytes| options(memory_bytes).filter_policy(FilterPolicy::disabled());
        let apart = KvSeparationOptions::default().separation_threshold(BODY_APART_BYTES).compression(CompressionType::None);
        let open = || -> Result<_, fjall::Error> {
            let db = Database::builder(engine)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES_MAX)
                // This store checks the journals; `journal` reads no compressed entries.
                .journal_compression(CompressionType::None)
                .manual_journal_persist(true)
                // One worker only writes tables, so that commits need not wait for the one that compacts.
                .worker_threads(2)
                .open()?;
            let is_whole =
                !mark.made || ["names", "rows", "index", "state", "bodies"].iter().all(|name| db.keyspace_exists(name));
            let names = db.keyspace("names", || options(OTHER_MEMORY_BYTES))?;
            let rows = db.keyspace("rows", || unfiltered(ROWS_MEMORY_BYTES))?;
            let index = db.keyspace("index", || unfiltered(OTHER_MEMORY_BYTES))?;
            let state = db.keyspace("state", || options(OTHER_MEMORY_BYTES))?;
            let bodies = db.keyspace("bodies", || options(OTHER_MEMORY_BYTES).with_kv_separation(Some(apart.clone())))?;
            Ok((is_whole, db, names, rows, index, state, bodies))
        };
        // The engine asserts some of the data that it reads. Every file is checked by now, but a panic must at least
        // name the store.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(open)).unwrap_or(Err(fjall::Error::Unrecoverable));
        let (is_whole, db, names, rows, index, state, bodies) =
            opened.map_err(|e| engine_error(engine, "opening the store", &e))?;
        let corrupt = |what: &str| StoreError::Corrupt { path: engine.to_owned(), what: what.into() };
        if !is_whole {
            return Err(corrupt("a keyspace is missing"));
        }
        assert_eq!(names.id(), journal::HEADER_KEYSPACE, "the first keyspace holds the batch headers");
        let writer = Writer { header: BatchHeader::default(), heads: HashMap::new(), failed: None, tail };
        let (failed, writer) = (watch::Sender::new(None), Mutex::new(writer));
        let shared = Self { names, rows, index, state, bodies, db, sync, failed, writer };

        let stored_header =
            shared.names.get(journal::HEADER_KEY).map_err(|e| shared.engine_error("reading the last header", &e))?;
        let stored_header = stored_header
            .as_deref()
            .map(|bytes| BatchHeader::decode(bytes).ok_or_else(|| corrupt("the last batch header is invalid")))
            .transpose()?;
        let tables_to = shared.keyspaces().filter_map(|keyspace| keyspace.tree.get_highest_persisted_seqno()).max();
        match recovered.last {
            Some((seqno, header)) if stored_header != Some(header) || tables_to > Some(seqno) => {
                return Err(corrupt("tables and journals disagree: the end of the journal is missing"));
            }
            None if stored_header.unwrap_or_default().batch < mark.batch => {
                if tables_to.is_some() {
                    return Err(corrupt("acknowledged batches are in no journal and no table"));
                }
                tracing::warn!(acknowledged = mark.batch, "the only journal was emptied; the store has lost all data");
            }
            _ => {}
        }
        // The engine syncs the contents of a keyspace's directory, but not the directory's own name.
        sync_dir(&engine.join("keyspaces"))?;
        let mut writer = shared.writer.lock();
        writer.header = stored_header.unwrap_or_default();
        let mark = shared.durable_mark(&writer);
        writer.tail.record_synced(mark)?;
        drop(writer);
        Ok(shared)
    }

    fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        [&self.names, &self.rows, &self.index, &self.state, &self.bodies].into_iter()
    }

    fn durable_mark(&self, writer: &Writer) -> DurableMark {
        DurableMark { batch: writer.header.batch, made: true, ordered: self.sync == Sync::Always }
    }

    /// Translates an engine error. The engine does not name the damaged file, so this looks for it.
    fn engine_error(&self, doing: &'static str, e: &fjall::Error) -> StoreError {
        let keyspaces = self.rows.path().parent().unwrap_or(self.rows.path());
        let fault = engine_error(keyspaces, doing, e);
        if !matches!(fault, StoreError::Corrupt { .. }) && !matches!(e, fjall::Error::Poisoned) {
            return fault;
        }
        self.keyspaces().find_map(|keyspace| tables::find_corrupt_file(keyspace.path())).unwrap_or(fault)
    }

    fn commit(&self, group: &[Append], follows: impl Iterator<Item = bool>) -> Result<Vec<AppendOutcome>, StoreError> {
        let mut writer = self.writer.lock();
        // Only between groups: within a group, the cached heads are ahead of the stored data.
        if writer.heads.len() >= CACHED_HEADS_MAX {
            writer.heads.clear();
        }
        let committed = self.commit_group(&mut writer, group, follows);
        committed.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    fn commit_group(
        &self,
        writer: &mut Writer,
        group: &[Append],
        follows: impl Iterator<Item = bool>,
    ) -> Result<Vec<AppendOutcome>, StoreError> {
        writer.check_usable()?;
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 1 + 3 * group.len());
        let mut outcomes = Vec::with_capacity(group.len());
        let (mut header, mut refused) = (writer.header, HashMap::new());
        for (append, follows) in group.iter().zip(follows) {
            let head = self.head(writer, &append.log)?;
            let behind = refused.get(&append.log).copied().filter(|_| follows);
            if let Some(conflict) = behind.or_else(|| append.conflict(head.map(|head| (head.epoch, head.last)))) {
                refused.insert(&append.log, conflict);
                outcomes.push(conflict);
                continue;
            }
            if let Some(LogHead { number: created, .. }) = head.filter(|_| append.is_empty()) {
                outcomes.push(AppendOutcome::Committed { position: header.position, created });
                continue;
            }
            let head = head.unwrap_or_else(|| {
                header.created += 1;
                let head = LogHead { number: header.created, epoch: append.epoch, last: Sequence::NONE };
                batch.insert(&self.names, name_key(&append.log), name_value(&head));
                batch.insert(&self.names, created_key(append.log.kind(), head.number), created_value(head.epoch, &append.log));
                head
            });
            if header.position == 0 {
                batch.insert(&self.names, EPOCH_KEY, append.epoch.bits().to_be_bytes());
            }
            header.position += 1;
            self.put(&mut batch, append, head.number, header.position);
            match writer.heads.get_mut(&append.log) {
                Some(head) => head.last = append.last,
                None => {
                    writer.heads.insert(append.log.clone(), LogHead { last: append.last, ..head });
                }
            }
            outcomes.push(AppendOutcome::Committed { position: header.position, created: head.number });
        }
        if !batch.is_empty() {
            self.write(writer, batch, header, self.sync == Sync::Always)?;
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
            batch.insert(&self.bodies, log_key(number, blob.id.as_str().as_bytes()), body_value(blob));
        }
    }

    fn set(&self, batch: &mut OwnedWriteBatch, number: u64, entries: &[(Bytes, Option<Bytes>)]) {
        for (key, value) in entries {
            let key = log_key(number, key);
            match value {
                Some(value) => batch.insert(&self.state, key, &value[..]),
                None => batch.remove(&self.state, key),
            }
        }
    }

    /// Compacts in one batch, so that readers see all of it or none.
    fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let head = self.head(&mut writer, &compaction.log)?;
        if !compaction.applies_to(head.map(|head| (head.epoch, head.last))) {
            return Ok(false);
        }
        let number = head.expect("a compaction applies to existing logs only").number;
        let snapshot = self.db.snapshot();
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2 + 2 * compaction.appends.len());
        let (before, until) = match (compaction.appends.first(), compaction.appends.last()) {
            (Some(first), Some(last)) => (
                self.last_at(&snapshot, number, first.position.saturating_sub(1))?,
                self.last_at(&snapshot, number, last.position)?,
            ),
            _ => (compaction.last, compaction.last),
        };
        // Backwards, so that each append knows whether the appends after it became empty.
        let mut rewritten = compaction.appends.iter().rev().peekable();
        let mut empty_after = None;
        for entry in snapshot.range(&self.index, index_key(number, before.next())..index_key(number, until.next())).rev() {
            let indexed = self.index_entry(entry)?;
            let append = rewritten.next_if(|rewritten| rewritten.position == indexed.position && indexed.empty_to.is_none());
            let left = append.map_or(indexed.last, |append| append.last);
            assert!(left <= indexed.last, "a removed row does not come back");
            assert!(left == indexed.last || indexed.last < compaction.last, "the log's last row stays");
            match append {
                Some(append) if append.rows.is_empty() => batch.remove(&self.rows, indexed.position.to_be_bytes()),
                Some(append) => batch.insert(&self.rows, indexed.position.to_be_bytes(), &append.rows[..]),
                None => {}
            }
            let is_empty = indexed.empty_to.is_some() || left < indexed.last;
            let empty_to = empty_after.or(indexed.empty_to).unwrap_or(indexed.last);
            if is_empty && indexed.empty_to != Some(empty_to) {
                batch.insert(&self.index, index_key(number, indexed.last), emptied_value(indexed.position, empty_to));
            }
            empty_after = is_empty.then_some(empty_to);
            if is_empty && left > Sequence::NONE && indexed.empty_to.is_none() {
                batch.insert(&self.index, index_key(number, left), indexed.position.to_be_bytes());
                empty_after = None;
            }
        }
        assert!(rewritten.next().is_none(), "a compaction rewrites only existing appends");
        let checkpoints = snapshot.prefix(&self.bodies, log_key(number, &[0]));
        for entry in checkpoints.take_while(|_| !compaction.appends.is_empty()) {
            batch.remove(&self.bodies, entry.key().map_err(|e| self.engine_error("reading the store", &e))?);
        }
        self.set(&mut batch, number, &compaction.state);
        let header = writer.header;
        self.write(&mut writer, batch, header, self.sync == Sync::Always)?;
        Ok(true)
    }

    /// Saves a checkpoint, synced like a commit.
    ///
    /// The checkpoint itself would not need that. But the check that tells a damaged journal from a torn one relies on
    /// every batch being synced before the next begins.
    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let head = self.head(&mut writer, log)?.filter(|head| head.epoch == epoch && sequence <= head.last);
        let Some(head) = head else { return Ok(()) };
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2);
        batch.insert(&self.bodies, checkpoint_key(head.number, kind, sequence), body);
        let header = writer.header;
        self.write(&mut writer, batch, header, self.sync == Sync::Always)
    }

    /// The log's head, from the cache or from the store.
    fn head(&self, writer: &mut Writer, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        if let Some(head) = writer.heads.get(log) {
            return Ok(Some(*head));
        }
        let head = self.find_head(&self.db.snapshot(), log)?;
        writer.heads.extend(head.map(|head| (log.clone(), head)));
        Ok(head)
    }

    /// Adds the header and writes one batch.
    ///
    /// After a failure the store accepts no more writes: the data may or may not be on disk, and a repeated sync can
    /// report success for pages that the first one dropped.
    fn write(
        &self,
        writer: &mut Writer,
        mut batch: OwnedWriteBatch,
        header: BatchHeader,
        is_synced: bool,
    ) -> Result<(), StoreError> {
        writer.check_usable()?;
        let header = BatchHeader { seqno_min: self.db.seqno(), batch: writer.header.batch + 1, ..header };
        batch.insert(&self.names, journal::HEADER_KEY, header.encode());
        let mode = if is_synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let written =
            batch.durability(Some(mode)).commit().map_err(|e| self.engine_error("writing a commit", &e)).and_then(|()| {
                writer.header = header;
                if is_synced { writer.tail.record(self.durable_mark(writer)) } else { Ok(()) }
            });
        written.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    fn sync_now(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.check_usable()?;
        let synced = self.db.persist(PersistMode::SyncData).map_err(|e| self.engine_error("syncing the journal", &e));
        let synced = synced.and_then(|()| writer.tail.record(self.durable_mark(writer)));
        synced.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    /// The log's head in this snapshot.
    fn find_head(&self, snapshot: &Snapshot, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        let Some(named) = self.get(snapshot, &self.names, &name_key(log))? else { return Ok(None) };
        let (number, epoch) = Self::decode(&self.names, name_of(&named))?;
        let mut appends = snapshot.range(&self.index, index_key(number, Sequence::NONE)..=index_key(number, Sequence(u64::MAX)));
        let last =
            appends.next_back().map(|entry| self.index_entry(entry)).transpose()?.map_or(Sequence::NONE, |indexed| indexed.last);
        Ok(Some(LogHead { number, epoch, last }))
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(head) = self.find_head(&snapshot, log)? else { return Ok(None) };
        let mut state = Vec::new();
        for entry in snapshot.prefix(&self.state, head.number.to_be_bytes()) {
            let (key, value) = self.entry(entry)?;
            state.push((Bytes::copy_from_slice(&key[8..]), Bytes::copy_from_slice(&value)));
        }
        Ok(Some(LoadedLog { epoch: head.epoch, last: head.last, state }))
    }

    /// The number of the log, if it has this epoch.
    fn log_number(&self, snapshot: &Snapshot, log: &LogId, epoch: Epoch) -> Result<Option<u64>, StoreError> {
        let Some(named) = self.get(snapshot, &self.names, &name_key(log))? else { return Ok(None) };
        let (number, found) = Self::decode(&self.names, name_of(&named))?;
        Ok((found == epoch).then_some(number))
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let snapshot = self.db.snapshot();
        match self.log_number(&snapshot, log, epoch)? {
            Some(number) => self.last_at(&snapshot, number, position),
            None => Ok(Sequence::NONE),
        }
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)? else { return Ok(None) };
        let appends = index_key(number, sequence)..=index_key(number, Sequence(u64::MAX));
        let found = snapshot.range(&self.index, appends).next().map(|entry| self.index_entry(entry)).transpose()?;
        Ok(found.map(|indexed| indexed.position))
    }

    /// The last sequence of a log's appends at or before this position.
    fn last_at(&self, snapshot: &Snapshot, number: u64, position: u64) -> Result<Sequence, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let Some(newest) = snapshot.range(&self.index, index_key(number, Sequence::NONE)..=end).next_back() else {
            return Ok(Sequence::NONE);
        };
        let newest = self.index_entry(newest)?;
        if newest.position <= position {
            return Ok(newest.last);
        }
        // Binary search: the result lies at or after `from` and before `to`.
        let (mut from, mut to) = (Sequence::NONE, newest.last);
        while from.next() < to {
            let middle = Sequence(from.0 + (to.0 - from.0) / 2);
            let Some(found) = snapshot.range(&self.index, index_key(number, middle)..=end).next() else { break };
            let found = self.index_entry(found)?;
            if found.position <= position { from = found.last } else { to = middle }
        }
        Ok(from)
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)?.filter(|_| after < Sequence::MAX) else {
            return Ok(Vec::new());
        };
        let indexed_appends = self.index_entries_after(&snapshot, number, after, limit.rows)?;
        let (mut read, mut ends) = (Vec::new(), Vec::with_capacity(indexed_appends.len()));
        for stretch in indexed_appends.chunk_by(|(_, a), (_, b)| b.position == a.position + 1) {
            if !self.read_rows(&snapshot, stretch, limit.bytes, &mut read, &mut ends)? {
                break;
            }
        }
        let read = Bytes::from(read);
        let mut from = 0;
        let stored = indexed_appends.into_iter().zip(ends).map(|((before, IndexEntry { position, .. }), end)| StoredAppend {
            position,
            before,
            rows: read.slice(std::mem::replace(&mut from, end)..end),
        });
        Ok(stored.collect())
    }

    /// The appends with the rows after `after`, each with the last sequence before it.
    ///
    /// They have up to `rows_max` such rows, but the result has at least one append.
    fn index_entries_after(
        &self,
        snapshot: &Snapshot,
        number: u64,
        after: Sequence,
        rows_max: usize,
    ) -> Result<Vec<(Sequence, IndexEntry)>, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let (mut before, mut indexed_appends, mut rows) = (None, Vec::new(), 0);
        // From `after` itself: nearly every reader is at the end of an append.
        let mut entries = snapshot.range(&self.index, index_key(number, after)..=end);
        while let Some(entry) = entries.next() {
            let indexed = self.index_entry(entry)?;
            if let Some(empty_to) = indexed.empty_to {
                before = Some(empty_to);
                if empty_to > indexed.last {
                    entries = snapshot.range(&self.index, index_key(number, empty_to.next())..=end);
                }
                continue;
            }
            if indexed.last == after {
                before = Some(after);
                continue;
            }
            let follows = match before {
                Some(before) => before,
                None => {
                    let mut older = snapshot.range(&self.index, index_key(number, Sequence::NONE)..index_key(number, after));
                    older
                        .next_back()
                        .map(|entry| self.index_entry(entry))
                        .transpose()?
                        .map_or(Sequence::NONE, |indexed| indexed.last)
                }
            };
            rows += indexed.last.0 - follows.max(after).0;
            if rows > rows_max as u64 && !indexed_appends.is_empty() {
                break;
            }
            before = Some(indexed.last);
            indexed_appends.push((follows, indexed));
            if rows >= rows_max as u64 {
                break;
            }
        }
        Ok(indexed_appends)
    }

    /// Reads the appends at consecutive positions into `read`, and the end of each into `ends`.
    ///
    /// Returns `false` when not all of them fit.
    fn read_rows(
        &self,
        snapshot: &Snapshot,
        stretch: &[(Sequence, IndexEntry)],
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
        if stretch.len() < SCAN_APPENDS_MIN {
            for (_, IndexEntry { position, .. }) in stretch {
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
        for (_, IndexEntry { position, .. }) in stretch {
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

    /// Decodes an entry of the index.
    fn index_entry(&self, entry: fjall::Guard) -> Result<IndexEntry, StoreError> {
        let (key, value) = self.entry(entry)?;
        Self::decode(&self.index, self.decode_index_entry(&key, &value))
    }

    fn decode_index_entry(&self, key: &[u8], value: &[u8]) -> Option<IndexEntry> {
        let (position, empty_to) = value.split_at_checked(8)?;
        let empty_to = if empty_to.is_empty() { None } else { Some(Sequence(number_of(empty_to)?)) };
        Some(IndexEntry { last: last_of(key)?, position: number_of(position)?, empty_to })
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
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
                let meta = self.get(&snapshot, &self.state, &log_key(created, META))?;
                Ok(ListedLog { log, epoch, created, meta: meta.map(|meta| Bytes::copy_from_slice(&meta)).unwrap_or_default() })
            })
            .collect()
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(owner) = self.get(&snapshot, &self.names, &body_name_key(id.as_str().as_bytes()))? else { return Ok(None) };
        let number = Self::decode(&self.names, number_of(&owner))?;
        // Its log may have a tombstone while the body still waits for deletion.
        if self.get(&snapshot, &self.names, &tombstone_key(number))?.is_some() {
            return Ok(None);
        }
        let Some(body) = self.get(&snapshot, &self.bodies, &log_key(number, id.as_str().as_bytes()))? else { return Ok(None) };
        let (meta, body) = Self::decode(&self.bodies, body_of(&body))?;
        Ok(Some(Blob { id: id.clone(), meta, body }))
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let snapshot = self.db.snapshot();
        let Some(head) = self.find_head(&snapshot, log)?.filter(|head| head.epoch == epoch) else { return Ok(None) };
        // A checkpoint beyond the log's tail knows rows that a crash removed. The journal's order prevents that case,
        // but this read must not depend on it alone.
        let at = at.min(head.last);
        let (from, to) = (checkpoint_key(head.number, kind, Sequence::NONE), checkpoint_key(head.number, kind, at));
        let Some(newest) = snapshot.range(&self.bodies, from..=to).next_back() else { return Ok(None) };
        let (key, body) = self.entry(newest)?;
        let sequence = Self::decode(&self.bodies, key.get(10..).and_then(number_of))?;
        Ok(Some((Sequence(sequence), Bytes::copy_from_slice(&body))))
    }

    fn get(&self, snapshot: &Snapshot, from: &Keyspace, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        snapshot.get(from, key).map_err(|e| self.engine_error("reading the store", &e))
    }

    fn entry(&self, entry: fjall::Guard) -> Result<(Slice, Slice), StoreError> {
        entry.into_inner().map_err(|e| self.engine_error("reading the store", &e))
    }

    /// Reports an entry with a right checksum and an unknown format as corrupt.
    fn decode<T>(from: &Keyspace, decoded: Option<T>) -> Result<T, StoreError> {
        decoded.ok_or_else(|| StoreError::Corrupt {
            path: from.path().to_owned(),
            what: "it holds an entry of an unknown format".into(),
        })
    }

    fn missing_row(&self, position: u64) -> StoreError {
        StoreError::Corrupt { path: self.rows.path().to_owned(), what: format!("the rows at position {position} are missing") }
    }

    // Erasing first writes a durable tombstone, then deletes the data in bounded batches. Readers find everything by
    // name, so they never see a half-erased log. They also skip a body while its log's number has a tombstone.

    fn tombstone(&self, log: &LogId) -> Result<Option<u64>, StoreError> {
        let mut writer = self.writer.lock();
        let Some(head) = self.head(&mut writer, log)? else { return Ok(None) };
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 4);
        batch.remove(&self.names, name_key(log));
        batch.remove(&self.names, created_key(log.kind(), head.number));
        batch.insert(&self.names, tombstone_key(head.number), []);
        let header = writer.header;
        self.write(&mut writer, batch, header, true)?;
        writer.heads.remove(log);
        Ok(Some(head.number))
    }

    /// The logs whose deletion has begun and has not finished.
    fn pending_deletes(&self) -> Result<VecDeque<PendingDelete>, StoreError> {
        let dead = self.db.snapshot().prefix(&self.names, b"d");
        dead.map(|entry| {
            let key = self.entry(entry)?.0;
            let number = Self::decode(&self.names, key.get(1..).and_then(number_of))?;
            Ok(PendingDelete { number, deleted: Sequence::NONE, done: None })
        })
        .collect()
    }

    /// Deletes one batch of the data of a log with a tombstone; whether that was the last batch.
    fn delete_batch(&self, pending: &mut PendingDelete) -> Result<bool, StoreError> {
        let number = pending.number;
        assert!(!cfg!(test) || number < u64::MAX, "a test asked for this panic");
        let snapshot = self.db.snapshot();
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), 2 * DELETE_KEYS_MAX + 2);
        let mut left = DELETE_KEYS_MAX;
        let mut some = |entries: Iter| -> Vec<fjall::Guard> {
            let taken: Vec<_> = entries.take(left).collect();
            left -= taken.len();
            taken
        };
        let appends = index_key(number, pending.deleted.next())..=index_key(number, Sequence(u64::MAX));
        for entry in some(snapshot.range(&self.index, appends)) {
            let IndexEntry { last, position, .. } = self.index_entry(entry)?;
            pending.deleted = last;
            batch.remove(&self.rows, position.to_be_bytes());
            batch.remove(&self.index, index_key(number, last));
        }
        for entry in some(snapshot.prefix(&self.state, number.to_be_bytes())) {
            batch.remove(&self.state, entry.key().map_err(|e| self.engine_error("reading the store", &e))?);
        }
        for entry in some(snapshot.prefix(&self.bodies, number.to_be_bytes())) {
            let key = entry.key().map_err(|e| self.engine_error("reading the store", &e))?;
            // A checkpoint has no name, so the look-up below finds none.
            let name = body_name_key(&key[8..]);
            // Another log may meanwhile own a body of the same name.
            if self.get(&snapshot, &self.names, &name)?.as_deref() == Some(&number.to_be_bytes()) {
                batch.remove(&self.names, name);
            }
            batch.remove(&self.bodies, key);
        }
        let is_last = left > 0;
        if is_last {
            batch.remove(&self.names, tombstone_key(number));
        }
        let mut writer = self.writer.lock();
        let header = writer.header;
        self.write(&mut writer, batch, header, self.sync == Sync::Always)?;
        Ok(is_last)
    }

    /// Syncs at the interval and deletes in between, until the store is dropped.
    fn run_maintenance(
        &self,
        mut deletes: VecDeque<PendingDelete>,
        requests: &mpsc::Receiver<PendingDelete>,
    ) -> Result<(), StoreError> {
        let interval = match self.sync {
            Sync::Interval(interval) => Some(interval),
            Sync::Always | Sync::Never => None,
        };
        let mut synced = (Instant::now(), 0);
        loop {
            let pause = interval.map(|interval| interval.saturating_sub(synced.0.elapsed()));
            let order = match (deletes.is_empty(), pause) {
                (false, _) => match requests.try_recv() {
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                    order => order.ok(),
                },
                (true, None) => match requests.recv() {
                    Err(mpsc::RecvError) => return Ok(()),
                    Ok(order) => Some(order),
                },
                (true, Some(pause)) => match requests.recv_timeout(pause) {
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                    order => order.ok(),
                },
            };
            deletes.extend(order);
            if interval.is_some_and(|interval| synced.0.elapsed() >= interval) {
                synced = (Instant::now(), self.sync_if_newer(synced.1)?);
            }
            if let Some(mut pending) = deletes.pop_front() {
                match self.delete_batch(&mut pending) {
                    Ok(false) => deletes.push_front(pending),
                    swept => {
                        if let Err(e) = &swept {
                            tracing::error!(error = %e, "an erased log could not be deleted; the next start tries again");
                        }
                        pending.done.take().map(|done| done.send(swept.map(|_| ())));
                    }
                }
            }
        }
    }

    /// Syncs, unless `synced` is the last batch; returns the number of the last batch.
    fn sync_if_newer(&self, synced: u64) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock();
        if writer.header.batch > synced {
            self.sync_now(&mut writer)?;
        }
        Ok(writer.header.batch)
    }
}

/// Translates an engine error when no file is found to be damaged.
fn engine_error(path: &Path, doing: &'static str, e: &fjall::Error) -> StoreError {
    use fjall::{Error as E, LsmError as L};
    let is_short = |e: &std::io::Error| matches!(e.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData);
    match e {
        E::Locked => StoreError::Locked { path: path.to_owned() },
        E::Io(io) | E::Storage(L::Io(io)) if !is_short(io) => StoreError::failed(doing, io),
        E::Poisoned => StoreError::failed(doing, &"an earlier write, or the engine's maintenance, failed"),
        e => StoreError::Corrupt { path: path.to_owned(), what: format!("{doing}: {e:?}") },
    }
}

// Keys and values. Numbers are big-endian, so that their order is the order of keys.

fn name_key(log: &LogId) -> Vec<u8> {
    let (kind, id) = tagged(log);
    [b"n", &[kind], id].concat()
}

fn name_value(head: &LogHead) -> Vec<u8> {
    [head.number.to_be_bytes(), head.epoch.bits().to_be_bytes()].concat()
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

fn tombstone_key(number: u64) -> Vec<u8> {
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

/// A key of the log in `state` and `bodies`.
fn log_key(number: u64, key: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], key].concat()
}

fn checkpoint_key(number: u64, kind: u8, sequence: Sequence) -> Vec<u8> {
    log_key(number, &[&[0, kind], &sequence.0.to_be_bytes()[..]].concat())
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn body_value(blob: &Blob) -> Vec<u8> {
    let meta_bytes = u32::try_from(blob.meta.len()).expect("a body's metadata is far below 4 GiB");
    [&meta_bytes.to_be_bytes()[..], &blob.meta, &blob.body].concat()
}

fn body_of(value: &[u8]) -> Option<(Bytes, Bytes)> {
    let (meta_bytes, rest) = value.split_first_chunk::<4>()?;
    let (meta, body) = rest.split_at_checked(u32::from_be_bytes(*meta_bytes) as usize)?;
    Some((Bytes::copy_from_slice(meta), Bytes::copy_from_slice(body)))
}

impl Store for EmbeddedStore {
    async fn commit(&self, group: &[Append]) -> Result<Vec<AppendOutcome>, StoreError> {
        self.shared.commit(group, std::iter::repeat(false))
    }

    async fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<AppendOutcome>, StoreError> {
        self.shared.commit(group, follows.iter().copied())
    }

    async fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        self.shared.load(log)
    }

    async fn position(&self) -> Result<u64, StoreError> {
        Ok(self.shared.writer.lock().header.position)
    }

    async fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        let Some(bits) = self.shared.get(&self.shared.db.snapshot(), &self.shared.names, EPOCH_KEY)? else { return Ok(None) };
        Shared::decode(&self.shared.names, number_of(&bits)).map(|bits| Some(Epoch::from_random(bits)))
    }

    async fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        self.shared.locate(log, epoch, position)
    }

    async fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        self.shared.position_of(log, epoch, sequence)
    }

    async fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        self.shared.read(log, epoch, after, limit)
    }

    async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
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
        let Some(number) = self.shared.tombstone(log)? else { return Ok(()) };
        let (done, swept) = oneshot::channel();
        let (requests, _) = self.maintenance.as_ref().expect("the store joins the thread only when it is dropped");
        let ended = || StoreError::failed("erasing a log", &"the store's maintenance thread has ended");
        requests.send(PendingDelete { number, deleted: Sequence::NONE, done: Some(done) }).map_err(|_| ended())?;
        swept.await.map_err(|_| ended())?
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.sync_now(&mut self.shared.writer.lock())
    }

    async fn bytes(&self) -> u64 {
        // An unknown size is not worth an error.
        self.shared.db.disk_space().unwrap_or(0)
    }

    async fn failed(&self) -> StoreError {
        let mut failed = self.shared.failed.subscribe();
        match failed.wait_for(Option::is_some).await.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            // The sender is dropped with the store.
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::RewrittenAppend;

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
    fn the_store_fails_when_its_maintenance_thread_ends() {
        let patience = Duration::from_secs(30);
        let failed = |store: &EmbeddedStore| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let failed = runtime.block_on(async { tokio::time::timeout(patience, store.failed()).await });
            failed.expect("the failure is known").to_string()
        };
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        let (requests, _) = store.maintenance.as_ref().unwrap();
        requests.send(PendingDelete { number: u64::MAX, deleted: Sequence::NONE, done: None }).unwrap();
        let why = failed(&store);
        assert!(why.contains("maintenance") && why.contains("a test asked for this panic"), "{why}");
        assert_eq!(wait(store.commit(&[append(0)])).unwrap_err().to_string(), why);
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Interval(Duration::from_millis(1))).unwrap();
        store.shared.writer.lock().tail.break_for_tests(true);
        wait(store.commit(&[append(0)])).unwrap();
        assert!(failed(&store).contains("writing the tail file"), "the sync between commits failed");
    }

    const ALL: Limit = Limit { rows: usize::MAX, bytes: usize::MAX };

    #[test]
    fn the_next_start_finishes_an_interrupted_erasure_and_no_reader_sees_half_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        for expected in 0..DELETE_KEYS_MAX as u64 + 10 {
            wait(store.commit(&[append(expected)])).unwrap();
        }
        store.shared.save_checkpoint(&log(), Epoch::from_random(1), 0, Sequence(9), b"checkpoint").unwrap();
        let number = store.shared.tombstone(&log()).unwrap().unwrap();
        assert!(!store.shared.delete_batch(&mut PendingDelete { number, deleted: Sequence::NONE, done: None }).unwrap());
        let seen = || {
            assert_eq!(wait(store.load(&log())).unwrap(), None);
            assert_eq!(wait(store.blob(&BlobId::new("b9").unwrap())).unwrap(), None);
            assert_eq!(wait(store.list(LogKind::Run, None, 9)).unwrap(), []);
        };
        seen();
        // The log is written anew before the old data is deleted: the two share nothing but the name.
        wait(store.commit(&[append(0)])).unwrap();
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        let left = |keyspace: &Keyspace| store.shared.db.snapshot().prefix(keyspace, number.to_be_bytes()).count();
        while store.shared.names.contains_key(tombstone_key(number)).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!([&store.shared.index, &store.shared.state, &store.shared.bodies].map(left), [0, 0, 0]);
        assert_eq!(store.shared.db.snapshot().iter(&store.shared.rows).count(), 1);
        let read = wait(store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL)).unwrap();
        assert_eq!(read.iter().map(|stored| &stored.rows[..]).collect::<Vec<_>>(), [b"row 0"]);
        assert!(wait(store.blob(&BlobId::new("b0").unwrap())).unwrap().is_some());
    }

    #[test]
    fn compaction_frees_disk_space_and_erasure_frees_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Never).unwrap();
        let large = |expected: u64| {
            let noise = (0..4096_u64).map(|n| (n * n * 31 + expected * 7919) as u8 ^ ((n * expected) >> 7) as u8);
            Append { rows: noise.collect(), ..append(expected) }
        };
        let group: Vec<_> = (0..1000).map(large).collect();
        wait(store.commit(&group)).unwrap();
        let bytes = || {
            store.flush_memtables().unwrap();
            for keyspace in store.shared.keyspaces() {
                keyspace.major_compact().unwrap();
            }
            store.shared.keyspaces().map(Keyspace::disk_space).sum::<u64>()
        };
        let before = bytes();
        let gone = |position| RewrittenAppend { position, last: Sequence::NONE, rows: Bytes::new() };
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
        assert!(wait(store.load(&log())).unwrap().unwrap().last >= Sequence(1), "acknowledged data is present");
    }

    #[test]
    fn an_incompletely_created_store_is_created_anew_and_one_without_its_tail_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("log/0.jnl"), [0; 100]).unwrap();
        let refused = EmbeddedStore::open(dir.path(), Sync::Always);
        assert!(matches!(refused, Err(StoreError::Corrupt { path, .. }) if path == dir.path().join("tail")));
        TailFile::open(dir.path()).unwrap().0.record_synced(DurableMark::default()).unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
    }

    #[test]
    fn a_table_that_open_does_not_check_is_checked_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
        store.flush_memtables().unwrap();
        let tables = store.shared.rows.path().join("tables");
        drop(store);
        let table = tables.read_dir().unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&table).unwrap();
        let at = memchr::memmem::find(&bytes, b"row 0").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&table, bytes).unwrap();

        let is_named = |e: StoreError| matches!(e, StoreError::Corrupt { path, .. } if path == table);
        assert!(EmbeddedStore::open_verified(dir.path(), Sync::Always).is_err_and(is_named));
        let store = EmbeddedStore::open_checking(dir.path(), Sync::Always, 0, KeepCopy::Yes).unwrap();
        let read = wait(store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL));
        assert!(read.is_err_and(is_named));
    }
}
