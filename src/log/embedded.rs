//! The on-disk store: LSM trees, with the rows of all logs in commit order, and the journal that they follow.
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
//! ```
//!
//! Rows lie in commit order. Otherwise the engine's compaction would sort the interleaved appends of many logs over and
//! over, and commits would wait for it. A reader's snapshot never sees part of a commit. A log's number is its place in
//! the order of creation. The store never reuses numbers and positions.
//!
//! A commit is durable when the journal has it. The trees have it in memory until they are persisted, which is when
//! enough has come, and when the store is closed. Opening the store applies the commits that the journal has and the
//! trees lack. So the store never trusts an end: the journal knows which of its records were acknowledged, and each tree
//! says which commit its tables hold. The store never repairs by guessing; a damaged file is an error that names it.
//!
//! Erasing a log hides it from every reader at once. Its bytes leave the disk when the engine next rewrites their
//! files, and when the journal forgets the records.

mod examine;
mod format;
mod migrate;
mod tables;
mod trees;

pub use super::journal::Sync;
pub use examine::{Defect, StoreInspection};
pub use format::CURRENT as FORMAT;

use super::encoding::{Commit, PlacedAppend};
use super::journal::{Appended, Journal, LocalJournal};
use super::{
    Append, AppendOutcome, Blob, Compaction, Limit, ListedLog, LoadedLog, LogId, LogKind, META, Store, StoreError, StoredAppend,
    panic_message,
};
use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;
use lsm_tree::{Guard, IterGuardImpl, Slice};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use trees::{Batch, Entries, Mark, Snapshot, TreeName, Trees};

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
/// Bytes of new entries at which the trees are persisted.
///
/// The trees hold up to twice as much in memory, and a start applies as much of the journal.
const PERSIST_BYTES: u64 = 64 << 20;
/// From this many bytes of new entries on, closing the store persists the trees. Less is applied at once by the next start.
const PERSIST_AT_CLOSE_BYTES: u64 = 4 << 20;
/// Bytes of records that a start reads from the journal at once.
const RECOVER_BYTES: usize = 8 << 20;
/// A start that applies many records says how far it is at this interval.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// The key of the store's epoch, which is the epoch of its first append.
const EPOCH_KEY: &[u8] = b"l";

/// The directory of the journal in the data directory.
const JOURNAL_DIR: &str = "journal";
/// The directory of the trees in the data directory.
const TREES_DIR: &str = "trees";

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
    /// Requests to the maintenance thread; `None` once the store is being closed.
    deletes: Option<mpsc::Sender<PendingDelete>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    trees: Trees,
    sync: Sync,
    /// Why a thread of the store ended before the store was closed.
    failed: watch::Sender<Option<StoreError>>,
    writer: Mutex<Writer>,
    persist: Persist,
    // Last: it holds the lock of the data directory, which must outlive the trees.
    journal: LocalJournal,
}

/// The state that one writer at a time may use.
struct Writer {
    /// What the trees have, in memory or in tables.
    mark: Mark,
    /// The heads of logs that were written recently.
    heads: HashMap<LogId, LogHead>,
    /// Why the store accepts no more writes, once a write has failed.
    failed: Option<StoreError>,
}

impl Writer {
    fn check_usable(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

/// The order to write sealed memory to tables, and to merge tables.
#[derive(Default)]
struct Persist {
    state: Mutex<PersistState>,
    changed: Condvar,
}

#[derive(Default)]
struct PersistState {
    /// The mark of the sealed memory, which is being written.
    sealed: Option<Mark>,
    /// Whether tables may have to be merged.
    is_unmerged: bool,
    /// Logs whose data was deleted: before the seal, and since.
    deleted: [Vec<u64>; 2],
    is_closed: bool,
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
        let (trees, journal) = (dir.join(TREES_DIR), dir.join(JOURNAL_DIR));
        match format::read(dir)? {
            Some(FORMAT) => {}
            None if trees.exists() || journal.exists() => {
                return Err(StoreError::Corrupt {
                    path: dir.join(format::FILE),
                    what: "it is missing, but a store lies beside it".into(),
                });
            }
            found if found.is_some() || migrate::is_old_store(dir) => migrate::migrate(dir, found, verify_bytes_max, keep_copy)?,
            _ => format::write_current(dir)?,
        }
        let shared = Arc::new(Shared::open(&trees, &journal, sync, verify_bytes_max)?);
        migrate::remove_old_store(dir)?;
        let pending_deletes = shared.pending_deletes()?;
        let (deletes, requests) = mpsc::channel();
        let threads = vec![
            shared.spawn("store-keeper", move |shared| shared.run_maintenance(pending_deletes, &requests))?,
            shared.spawn("store-writer", Shared::run_persists)?,
            shared.spawn("store-merger", Shared::run_merges)?,
        ];
        Ok(Self { shared, deletes: Some(deletes), threads })
    }

    /// Waits until no process has the store in `dir` open; `false` when that takes longer than `time_max`.
    ///
    /// A stopped server still closes its files for a moment.
    #[must_use]
    pub fn wait_until_closed(dir: &Path, time_max: Duration) -> bool {
        let Ok(lock) = File::open(Self::lock_file(dir)) else { return true };
        let begun = Instant::now();
        while matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            if begun.elapsed() > time_max {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// The file that the process locks that has the store in `dir` open.
    #[must_use]
    pub fn lock_file(dir: &Path) -> PathBuf {
        LocalJournal::lock_file(&dir.join(JOURNAL_DIR))
    }

    /// Persists the trees, so that the journal forgets. The store does so by itself when enough has been written.
    ///
    /// # Errors
    /// `Failed`, `Corrupt`.
    #[doc(hidden)]
    pub fn persist(&self) -> Result<(), StoreError> {
        let mut writer = self.shared.writer.lock();
        self.shared.begin_persist(&mut writer)?;
        self.shared.wait_until_persisted(&mut writer)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.deletes = None;
        let mut writer = self.shared.writer.lock();
        let closed = match &writer.failed {
            None => self.shared.close(&mut writer),
            Some(_) => Ok(()),
        };
        drop(writer);
        self.shared.persist.state.lock().is_closed = true;
        self.shared.persist.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The thread catches its own panics.
            let _ = thread.join();
        }
        if let Err(e) = closed {
            tracing::error!(error = %e, "the store could not be closed cleanly");
        }
    }
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
    /// Opens the trees and the journal, and applies what the trees lack.
    fn open(trees: &Path, journal: &Path, sync: Sync, verify_bytes_max: u64) -> Result<Self, StoreError> {
        let journal = LocalJournal::open(journal, sync, random_u64)?;
        tables::check(trees, verify_bytes_max)?;
        // The engine asserts some of the data that it reads. A panic must at least name the store.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| Trees::open(trees)));
        let trees = match opened {
            Ok(opened) => opened.map_err(|(path, e)| damaged_file(&path, "opening the store", &e))?,
            Err(_) => return Err(StoreError::Corrupt { path: trees.to_owned(), what: "the engine cannot open it".into() }),
        };
        let mark = trees.opened_at();
        let writer = Writer { mark, heads: HashMap::new(), failed: None };
        let (failed, persist) = (watch::Sender::new(None), Persist::default());
        let shared = Self { trees, sync, failed, writer: Mutex::new(writer), persist, journal };
        shared.recover()?;
        Ok(shared)
    }

    /// Applies the commits that the journal has and the trees lack.
    fn recover(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let ((first, last), mut reported) = (self.journal.bounds(), Instant::now());
        let corrupt = |what: String| StoreError::Corrupt { path: self.trees.dir().to_owned(), what };
        let from = writer.mark.applied;
        if from > last {
            return Err(corrupt(format!("it has the commit {from}, and the journal beside it ends with {last}")));
        }
        if from + 1 < first {
            return Err(corrupt(format!("it lacks the commits {} to {}, which the journal no longer has", from + 1, first - 1)));
        }
        while writer.mark.applied < last {
            for record in self.journal.records(writer.mark.applied, RECOVER_BYTES)? {
                let commit = Commit::decode(record.body).map_err(|what| StoreError::Corrupt {
                    path: self.journal.dir().to_owned(),
                    what: format!("the record {} is no commit: {what}", record.position),
                })?;
                self.apply(&mut writer, record.position, &commit)?;
            }
            self.write_tables_if_due(&mut writer)?;
            if reported.elapsed() > PROGRESS_INTERVAL {
                reported = Instant::now();
                let (done, of) = (writer.mark.applied - from, last - from);
                tracing::info!(done, of, "applying commits of the journal to the store");
            }
        }
        Ok(())
    }

    /// Persists the trees while no other thread runs.
    fn write_tables_if_due(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if self.trees.unsealed_bytes() >= PERSIST_BYTES {
            self.trees.seal(writer.mark);
            self.write_tables(writer.mark)?;
            self.release(writer)?;
        }
        Ok(())
    }

    fn close(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        self.sync_now(writer)?;
        if self.trees.unsealed_bytes() >= PERSIST_AT_CLOSE_BYTES {
            self.begin_persist(writer)?;
        }
        self.wait_until_persisted(writer)
    }

    /// Starts a thread of the store. If it ends with an error or a panic, the store accepts no more writes.
    fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce(&Self) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<JoinHandle<()>, StoreError> {
        let shared = Arc::clone(self);
        let run = move || {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| work(&shared)));
            let ended = ended.unwrap_or_else(|panic| {
                Err(StoreError::failed("the store's maintenance", &format_args!("it panicked: {}", panic_message(&*panic))))
            });
            if let Err(error) = ended {
                tracing::error!(%error, thread = name, "a thread of the store ended; the store accepts no more writes");
                shared.writer.lock().failed.get_or_insert_with(|| error.clone());
                shared.failed.send_replace(Some(error));
                shared.persist.changed.notify_all();
            }
        };
        let builder = std::thread::Builder::new().name(name.into());
        builder.spawn(run).map_err(|e| StoreError::failed("starting a thread of the store", &e))
    }

    fn engine_error(&self, doing: &'static str, of: TreeName, e: &lsm_tree::Error) -> StoreError {
        damaged_file(&self.trees.path(of), doing, e)
    }

    fn commit(&self, group: &[Append], follows: impl Iterator<Item = bool>) -> Result<Vec<AppendOutcome>, StoreError> {
        let mut writer = self.writer.lock();
        // Only between groups: within a group, the cached heads are ahead of the stored data.
        if writer.heads.len() >= CACHED_HEADS_MAX {
            writer.heads.clear();
        }
        let committed = self.check(&mut writer, group, follows).and_then(|(outcomes, accepted)| {
            if !accepted.is_empty() {
                self.order(&mut writer, &Commit::Group(accepted))?;
            }
            Ok(outcomes)
        });
        committed.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    /// Compares each append with the head of its log, and places those that can follow.
    fn check(
        &self,
        writer: &mut Writer,
        group: &[Append],
        follows: impl Iterator<Item = bool>,
    ) -> Result<(Vec<AppendOutcome>, Vec<PlacedAppend>), StoreError> {
        writer.check_usable()?;
        let (mut outcomes, mut accepted) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        let (mut mark, mut refused) = (writer.mark, HashMap::new());
        for (append, follows) in group.iter().zip(follows) {
            let head = self.head(writer, &append.log)?;
            let behind = refused.get(&append.log).copied().filter(|_| follows);
            if let Some(conflict) = behind.or_else(|| append.conflict(head.map(|head| (head.epoch, head.last)))) {
                refused.insert(&append.log, conflict);
                outcomes.push(conflict);
                continue;
            }
            if let Some(LogHead { number: created, .. }) = head.filter(|_| append.is_empty()) {
                outcomes.push(AppendOutcome::Committed { position: mark.position, created });
                continue;
            }
            let number = head.map_or(mark.created + 1, |head| head.number);
            mark.created = mark.created.max(number);
            mark.position += 1;
            match writer.heads.get_mut(&append.log) {
                Some(head) => head.last = append.last,
                None => {
                    writer.heads.insert(append.log.clone(), LogHead { number, epoch: append.epoch, last: append.last });
                }
            }
            accepted.push(PlacedAppend { append: append.clone(), position: mark.position, number, creates: head.is_none() });
            outcomes.push(AppendOutcome::Committed { position: mark.position, created: number });
        }
        Ok((outcomes, accepted))
    }

    /// Appends a commit to the journal and applies it.
    ///
    /// After a failure the store accepts no more writes: the data may or may not be on disk, and a repeated sync can
    /// report success for pages that the first one dropped.
    fn order(&self, writer: &mut MutexGuard<'_, Writer>, commit: &Commit) -> Result<(), StoreError> {
        writer.check_usable()?;
        let ordered = self.journal.append_record(writer.mark.applied, &[commit.encode()]).and_then(|appended| match appended {
            Appended::At(position) => self.apply(writer, position, commit),
            Appended::Moved { last } => {
                Err(StoreError::failed("appending to the journal", &format_args!("another writer appended the record {last}")))
            }
        });
        ordered.inspect_err(|e| writer.failed = Some(e.clone()))?;
        self.persist_if_due(writer)
    }

    /// Applies a commit to the trees. While the store recovers, a tree may have it already.
    fn apply(&self, writer: &mut Writer, position: u64, commit: &Commit) -> Result<(), StoreError> {
        let mut batch = Batch::of_commit(position);
        match commit {
            Commit::Group(appends) => {
                for placed in appends {
                    put(&mut batch, placed);
                    writer.mark.position = placed.position;
                    writer.mark.created = writer.mark.created.max(placed.number);
                }
            }
            Commit::Compaction { number, compaction } => self.rewrite(&mut batch, position, *number, compaction)?,
            Commit::Erasure { number, log } => {
                batch.remove(TreeName::Names, name_key(log));
                batch.remove(TreeName::Names, created_key(log.kind(), *number));
                batch.insert(TreeName::Names, tombstone_key(*number), []);
                writer.heads.remove(log);
            }
        }
        self.trees.write(batch);
        writer.mark.applied = position;
        Ok(())
    }

    /// Persists the trees if enough has been written, and waits if the last persist cannot keep up.
    fn persist_if_due(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        if self.trees.unsealed_bytes() < PERSIST_BYTES {
            return Ok(());
        }
        let is_writing = self.persist.state.lock().sealed.is_some();
        if is_writing && self.trees.unsealed_bytes() < 2 * PERSIST_BYTES {
            return Ok(());
        }
        self.begin_persist(writer)
    }

    /// Seals the memory of the trees, for the thread that writes it to tables.
    fn begin_persist(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        self.wait_until_persisted(writer)?;
        let mut state = self.persist.state.lock();
        self.trees.seal(writer.mark);
        state.sealed = Some(writer.mark);
        let [before, since] = &mut state.deleted;
        before.append(since);
        self.persist.changed.notify_all();
        Ok(())
    }

    fn wait_until_persisted(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        let mut state = self.persist.state.lock();
        while state.sealed.is_some() {
            // A thread that fails says so, and it needs the writer's lock for that.
            drop(state);
            MutexGuard::unlocked(writer, || {
                let mut state = self.persist.state.lock();
                if state.sealed.is_some() && self.failed.borrow().is_none() {
                    self.persist.changed.wait_for(&mut state, Duration::from_millis(100));
                }
            });
            writer.check_usable()?;
            state = self.persist.state.lock();
        }
        Ok(())
    }

    /// Writes sealed memory to tables, until the store is closed.
    fn run_persists(&self) -> Result<(), StoreError> {
        loop {
            let mark = {
                let mut state = self.persist.state.lock();
                loop {
                    match state.sealed {
                        Some(mark) => break mark,
                        None if state.is_closed => return Ok(()),
                        None => self.persist.changed.wait(&mut state),
                    }
                }
            };
            self.write_tables(mark)?;
            let deleted = {
                let mut state = self.persist.state.lock();
                (state.sealed, state.is_unmerged) = (None, true);
                self.persist.changed.notify_all();
                std::mem::take(&mut state.deleted[0])
            };
            self.release(&mut self.writer.lock())?;
            if !deleted.is_empty() {
                // Their data is gone from the tables too, so that no start has to delete it again.
                let mut batch = Batch::derived();
                for number in deleted {
                    batch.remove(TreeName::Names, tombstone_key(number));
                }
                let _writer = self.writer.lock();
                self.trees.write(batch);
            }
        }
    }

    fn write_tables(&self, mark: Mark) -> Result<(), StoreError> {
        // First, so that no table has what a power loss may take from the journal.
        if self.sync != Sync::Always {
            self.journal.sync()?;
        }
        self.trees.write_sealed().map_err(|(of, e)| self.engine_error("writing tables", of, &e))?;
        self.journal.forget_before(mark.applied + 1)
    }

    /// Lets go of memory that tables have, and of tables that were merged. The writer's lock holds writes back.
    fn release(&self, _writer: &mut Writer) -> Result<(), StoreError> {
        self.trees.release().map_err(|(of, e)| self.engine_error("releasing tables", of, &e))
    }

    /// Merges tables after each persist, until the store is closed.
    fn run_merges(&self) -> Result<(), StoreError> {
        let is_closed = || self.persist.state.lock().is_closed;
        loop {
            {
                let mut state = self.persist.state.lock();
                while !std::mem::take(&mut state.is_unmerged) {
                    if state.is_closed {
                        return Ok(());
                    }
                    self.persist.changed.wait(&mut state);
                }
            }
            self.trees.compact(is_closed).map_err(|(of, e)| self.engine_error("merging tables", of, &e))?;
            self.release(&mut self.writer.lock())?;
        }
    }

    fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let head = self.head(&mut writer, &compaction.log)?;
        if !compaction.applies_to(head.map(|head| (head.epoch, head.last))) {
            return Ok(false);
        }
        let number = head.expect("a compaction applies to existing logs only").number;
        self.order(&mut writer, &Commit::Compaction { number, compaction: compaction.clone() })?;
        Ok(true)
    }

    /// Rewrites appends, the index and the state of a log, and removes its checkpoints.
    fn rewrite(&self, batch: &mut Batch, position: u64, number: u64, compaction: &Compaction) -> Result<(), StoreError> {
        let snapshot = self.trees.snapshot();
        for append in &compaction.appends {
            match append.rows.is_empty() {
                true => batch.remove(TreeName::Rows, append.position.to_be_bytes()),
                false => batch.insert(TreeName::Rows, append.position.to_be_bytes(), &append.rows[..]),
            }
        }
        // A tree that has the commit may have later ones too, so what it says is not what the commit changed.
        if self.trees.lacked(TreeName::Index, position) {
            self.rewrite_index(batch, &snapshot, number, compaction)?;
        }
        if self.trees.lacked(TreeName::Bodies, position) && !compaction.appends.is_empty() {
            for entry in snapshot.prefix(TreeName::Bodies, log_key(number, &[0])) {
                batch.remove(TreeName::Bodies, self.key(TreeName::Bodies, entry)?);
            }
        }
        set_state(batch, number, &compaction.state);
        Ok(())
    }

    fn rewrite_index(
        &self,
        batch: &mut Batch,
        snapshot: &Snapshot<'_>,
        number: u64,
        compaction: &Compaction,
    ) -> Result<(), StoreError> {
        let (before, until) = match (compaction.appends.first(), compaction.appends.last()) {
            (Some(first), Some(last)) => (
                self.last_at(snapshot, number, first.position.saturating_sub(1))?,
                self.last_at(snapshot, number, last.position)?,
            ),
            _ => (compaction.last, compaction.last),
        };
        // Backwards, so that each append knows whether the appends after it became empty.
        let mut rewritten = compaction.appends.iter().rev().peekable();
        let mut empty_after = None;
        let range = index_key(number, before.next())..index_key(number, until.next());
        for entry in snapshot.range(TreeName::Index, range).rev() {
            let indexed = self.index_entry(entry)?;
            let append = rewritten.next_if(|rewritten| rewritten.position == indexed.position && indexed.empty_to.is_none());
            let left = append.map_or(indexed.last, |append| append.last);
            assert!(left <= indexed.last, "a removed row does not come back");
            assert!(left == indexed.last || indexed.last < compaction.last, "the log's last row stays");
            let is_empty = indexed.empty_to.is_some() || left < indexed.last;
            let empty_to = empty_after.or(indexed.empty_to).unwrap_or(indexed.last);
            if is_empty && indexed.empty_to != Some(empty_to) {
                batch.insert(TreeName::Index, index_key(number, indexed.last), emptied_value(indexed.position, empty_to));
            }
            empty_after = is_empty.then_some(empty_to);
            if is_empty && left > Sequence::NONE && indexed.empty_to.is_none() {
                batch.insert(TreeName::Index, index_key(number, left), indexed.position.to_be_bytes());
                empty_after = None;
            }
        }
        assert!(rewritten.next().is_none(), "a compaction rewrites only existing appends");
        Ok(())
    }

    /// Saves a checkpoint. The journal does not have it: it can be derived again.
    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        writer.check_usable()?;
        let head = self.head(&mut writer, log)?.filter(|head| head.epoch == epoch && sequence <= head.last);
        let Some(head) = head else { return Ok(()) };
        let mut batch = Batch::derived();
        batch.insert(TreeName::Bodies, checkpoint_key(head.number, kind, sequence), body);
        self.trees.write(batch);
        self.persist_if_due(&mut writer)
    }

    /// The log's head, from the cache or from the store.
    fn head(&self, writer: &mut Writer, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        if let Some(head) = writer.heads.get(log) {
            return Ok(Some(*head));
        }
        let head = self.find_head(&self.trees.snapshot(), log)?;
        writer.heads.extend(head.map(|head| (log.clone(), head)));
        Ok(head)
    }

    fn sync_now(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.check_usable()?;
        self.journal.sync().inspect_err(|e| writer.failed = Some(e.clone()))
    }

    /// The log's head in this snapshot.
    fn find_head(&self, snapshot: &Snapshot<'_>, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        let Some(named) = self.get(snapshot, TreeName::Names, &name_key(log))? else { return Ok(None) };
        let (number, epoch) = self.decode(TreeName::Names, name_of(&named))?;
        let mut appends =
            snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..=index_key(number, Sequence(u64::MAX)));
        let last =
            appends.next_back().map(|entry| self.index_entry(entry)).transpose()?.map_or(Sequence::NONE, |indexed| indexed.last);
        Ok(Some(LogHead { number, epoch, last }))
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(head) = self.find_head(&snapshot, log)? else { return Ok(None) };
        let mut state = Vec::new();
        for entry in snapshot.prefix(TreeName::State, head.number.to_be_bytes()) {
            let (key, value) = self.entry(TreeName::State, entry)?;
            state.push((Bytes::copy_from_slice(&key[8..]), Bytes::copy_from_slice(&value)));
        }
        Ok(Some(LoadedLog { epoch: head.epoch, last: head.last, state }))
    }

    /// The number of the log, if it has this epoch.
    fn log_number(&self, snapshot: &Snapshot<'_>, log: &LogId, epoch: Epoch) -> Result<Option<u64>, StoreError> {
        let Some(named) = self.get(snapshot, TreeName::Names, &name_key(log))? else { return Ok(None) };
        let (number, found) = self.decode(TreeName::Names, name_of(&named))?;
        Ok((found == epoch).then_some(number))
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let snapshot = self.trees.snapshot();
        match self.log_number(&snapshot, log, epoch)? {
            Some(number) => self.last_at(&snapshot, number, position),
            None => Ok(Sequence::NONE),
        }
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)? else { return Ok(None) };
        let appends = index_key(number, sequence)..=index_key(number, Sequence(u64::MAX));
        let found = snapshot.range(TreeName::Index, appends).next().map(|entry| self.index_entry(entry)).transpose()?;
        Ok(found.map(|indexed| indexed.position))
    }

    /// The last sequence of a log's appends at or before this position.
    fn last_at(&self, snapshot: &Snapshot<'_>, number: u64, position: u64) -> Result<Sequence, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let Some(newest) = snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..=end).next_back() else {
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
            let Some(found) = snapshot.range(TreeName::Index, index_key(number, middle)..=end).next() else { break };
            let found = self.index_entry(found)?;
            if found.position <= position { from = found.last } else { to = middle }
        }
        Ok(from)
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        let snapshot = self.trees.snapshot();
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
        snapshot: &Snapshot<'_>,
        number: u64,
        after: Sequence,
        rows_max: usize,
    ) -> Result<Vec<(Sequence, IndexEntry)>, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let (mut before, mut indexed_appends, mut rows) = (None, Vec::new(), 0);
        // From `after` itself: nearly every reader is at the end of an append.
        let mut entries = snapshot.range(TreeName::Index, index_key(number, after)..=end);
        while let Some(entry) = entries.next() {
            let indexed = self.index_entry(entry)?;
            if let Some(empty_to) = indexed.empty_to {
                before = Some(empty_to);
                if empty_to > indexed.last {
                    entries = snapshot.range(TreeName::Index, index_key(number, empty_to.next())..=end);
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
                    let mut older = snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..index_key(number, after));
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
        snapshot: &Snapshot<'_>,
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
                let rows = self.get(snapshot, TreeName::Rows, &position.to_be_bytes())?;
                let rows = rows.ok_or_else(|| self.missing_row(*position))?;
                if !take(&rows) {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let (first, last) = (stretch[0].1.position, stretch[stretch.len() - 1].1.position);
        let mut scan = snapshot.range(TreeName::Rows, first.to_be_bytes()..=last.to_be_bytes());
        for (_, IndexEntry { position, .. }) in stretch {
            let (key, rows) = self.entry(TreeName::Rows, scan.next().ok_or_else(|| self.missing_row(*position))?)?;
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
    fn index_entry(&self, entry: IterGuardImpl) -> Result<IndexEntry, StoreError> {
        let (key, value) = self.entry(TreeName::Index, entry)?;
        self.decode(TreeName::Index, index_entry_of(&key, &value))
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        let snapshot = self.trees.snapshot();
        let end = created_key(kind, before.unwrap_or(u64::MAX));
        snapshot
            .range(TreeName::Names, created_key(kind, 0)..end)
            .rev()
            .take(limit)
            .map(|entry| {
                let (key, value) = self.entry(TreeName::Names, entry)?;
                let created = self.decode(TreeName::Names, key.get(2..).and_then(number_of))?;
                let (epoch, log) = self.decode(TreeName::Names, created_of(kind, &value))?;
                let meta = self.get(&snapshot, TreeName::State, &log_key(created, META))?;
                Ok(ListedLog { log, epoch, created, meta: meta.map(|meta| Bytes::copy_from_slice(&meta)).unwrap_or_default() })
            })
            .collect()
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(owner) = self.get(&snapshot, TreeName::Names, &body_name_key(id.as_str().as_bytes()))? else { return Ok(None) };
        let number = self.decode(TreeName::Names, number_of(&owner))?;
        // Its log may have a tombstone while the body still waits for deletion.
        if self.get(&snapshot, TreeName::Names, &tombstone_key(number))?.is_some() {
            return Ok(None);
        }
        let Some(body) = self.get(&snapshot, TreeName::Bodies, &log_key(number, id.as_str().as_bytes()))? else {
            return Ok(None);
        };
        let (meta, body) = self.decode(TreeName::Bodies, body_of(&body))?;
        Ok(Some(Blob { id: id.clone(), meta, body }))
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(head) = self.find_head(&snapshot, log)?.filter(|head| head.epoch == epoch) else { return Ok(None) };
        // A checkpoint beyond the log's tail knows rows that a crash removed. The journal's order prevents that case,
        // but this read must not depend on it alone.
        let at = at.min(head.last);
        let (from, to) = (checkpoint_key(head.number, kind, Sequence::NONE), checkpoint_key(head.number, kind, at));
        let Some(newest) = snapshot.range(TreeName::Bodies, from..=to).next_back() else { return Ok(None) };
        let (key, body) = self.entry(TreeName::Bodies, newest)?;
        let sequence = self.decode(TreeName::Bodies, key.get(10..).and_then(number_of))?;
        Ok(Some((Sequence(sequence), Bytes::copy_from_slice(&body))))
    }

    fn get(&self, snapshot: &Snapshot<'_>, from: TreeName, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        snapshot.get(from, key).map_err(|e| self.engine_error("reading the store", from, &e))
    }

    fn entry(&self, of: TreeName, entry: IterGuardImpl) -> Result<(Slice, Slice), StoreError> {
        entry.into_inner().map_err(|e| self.engine_error("reading the store", of, &e))
    }

    fn key(&self, of: TreeName, entry: IterGuardImpl) -> Result<Slice, StoreError> {
        entry.key().map_err(|e| self.engine_error("reading the store", of, &e))
    }

    /// Reports an entry with a right checksum and an unknown format as corrupt.
    fn decode<T>(&self, from: TreeName, decoded: Option<T>) -> Result<T, StoreError> {
        decoded.ok_or_else(|| StoreError::Corrupt {
            path: self.trees.path(from),
            what: "it holds an entry of an unknown format".into(),
        })
    }

    fn missing_row(&self, position: u64) -> StoreError {
        StoreError::Corrupt {
            path: self.trees.path(TreeName::Rows),
            what: format!("the rows at position {position} are missing"),
        }
    }

    // Erasing first commits a tombstone, then deletes the data in bounded batches. Readers find everything by name, so they
    // never see a half-erased log. They also skip a body while its log's number has a tombstone. The journal does not have
    // the deletions, so the tombstone stays until tables have them.

    fn tombstone(&self, log: &LogId) -> Result<Option<u64>, StoreError> {
        let mut writer = self.writer.lock();
        let Some(LogHead { number, .. }) = self.head(&mut writer, log)? else { return Ok(None) };
        self.order(&mut writer, &Commit::Erasure { number, log: log.clone() })?;
        self.sync_now(&mut writer)?;
        Ok(Some(number))
    }

    /// The logs whose deletion has begun, and perhaps has not finished.
    fn pending_deletes(&self) -> Result<VecDeque<PendingDelete>, StoreError> {
        let dead = self.trees.snapshot().prefix(TreeName::Names, b"d");
        dead.map(|entry| {
            let key = self.key(TreeName::Names, entry)?;
            let number = self.decode(TreeName::Names, key.get(1..).and_then(number_of))?;
            Ok(PendingDelete { number, deleted: Sequence::NONE, done: None })
        })
        .collect()
    }

    /// Deletes one batch of the data of a log with a tombstone; whether that was the last batch.
    fn delete_batch(&self, pending: &mut PendingDelete) -> Result<bool, StoreError> {
        let number = pending.number;
        assert!(!cfg!(test) || number < u64::MAX, "a test asked for this panic");
        let snapshot = self.trees.snapshot();
        let (mut batch, mut left) = (Batch::derived(), DELETE_KEYS_MAX);
        let mut some = |entries: Entries| -> Vec<IterGuardImpl> {
            let taken: Vec<_> = entries.take(left).collect();
            left -= taken.len();
            taken
        };
        let appends = index_key(number, pending.deleted.next())..=index_key(number, Sequence(u64::MAX));
        for entry in some(snapshot.range(TreeName::Index, appends)) {
            let IndexEntry { last, position, .. } = self.index_entry(entry)?;
            pending.deleted = last;
            batch.remove(TreeName::Rows, position.to_be_bytes());
            batch.remove(TreeName::Index, index_key(number, last));
        }
        for entry in some(snapshot.prefix(TreeName::State, number.to_be_bytes())) {
            batch.remove(TreeName::State, self.key(TreeName::State, entry)?);
        }
        for entry in some(snapshot.prefix(TreeName::Bodies, number.to_be_bytes())) {
            let key = self.key(TreeName::Bodies, entry)?;
            // A checkpoint has no name, so the look-up below finds none.
            let name = body_name_key(&key[8..]);
            // Another log may meanwhile own a body of the same name.
            if self.get(&snapshot, TreeName::Names, &name)?.as_deref() == Some(&number.to_be_bytes()) {
                batch.remove(TreeName::Names, name);
            }
            batch.remove(TreeName::Bodies, key);
        }
        drop(snapshot);
        let mut writer = self.writer.lock();
        writer.check_usable()?;
        self.trees.write(batch);
        if left > 0 {
            self.persist.state.lock().deleted[1].push(number);
        }
        self.persist_if_due(&mut writer)?;
        Ok(left > 0)
    }

    /// Syncs at the interval and deletes in between, until the store is closed.
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

    /// Syncs, unless `synced` is the last commit; returns the position of the last commit.
    fn sync_if_newer(&self, synced: u64) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock();
        if writer.mark.applied > synced {
            self.sync_now(&mut writer)?;
        }
        Ok(writer.mark.applied)
    }
}

/// Translates an engine error when no file is found to be damaged.
fn engine_error(path: &Path, doing: &'static str, e: &lsm_tree::Error) -> StoreError {
    let is_short = |e: &std::io::Error| matches!(e.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData);
    match e {
        lsm_tree::Error::Io(io) if !is_short(io) => StoreError::failed(doing, io),
        e => StoreError::Corrupt { path: path.to_owned(), what: format!("{doing}: {e:?}") },
    }
}

/// Translates an engine error of the tree in `path`. The engine does not name the damaged file, so this looks for it.
fn damaged_file(path: &Path, doing: &'static str, e: &lsm_tree::Error) -> StoreError {
    let fault = engine_error(path, doing, e);
    match fault {
        StoreError::Corrupt { .. } => tables::find_corrupt_file(path).unwrap_or(fault),
        fault => fault,
    }
}

/// A number that no two calls return, for the salts of the journal.
fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn put(batch: &mut Batch, PlacedAppend { append, position, number, creates }: &PlacedAppend) {
    if *creates {
        let head = LogHead { number: *number, epoch: append.epoch, last: Sequence::NONE };
        batch.insert(TreeName::Names, name_key(&append.log), name_value(&head));
        batch.insert(TreeName::Names, created_key(append.log.kind(), *number), created_value(append.epoch, &append.log));
    }
    if *position == 1 {
        batch.insert(TreeName::Names, EPOCH_KEY, append.epoch.bits().to_be_bytes());
    }
    if !append.rows.is_empty() {
        batch.insert(TreeName::Rows, position.to_be_bytes(), &append.rows[..]);
        batch.insert(TreeName::Index, index_key(*number, append.last), position.to_be_bytes());
    }
    set_state(batch, *number, &append.state);
    for blob in &append.blobs {
        batch.insert(TreeName::Names, body_name_key(blob.id.as_str().as_bytes()), number.to_be_bytes());
        batch.insert(TreeName::Bodies, log_key(*number, blob.id.as_str().as_bytes()), body_value(blob));
    }
}

fn set_state(batch: &mut Batch, number: u64, entries: &[(Bytes, Option<Bytes>)]) {
    for (key, value) in entries {
        let key = log_key(number, key);
        match value {
            Some(value) => batch.insert(TreeName::State, key, &value[..]),
            None => batch.remove(TreeName::State, key),
        }
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

fn index_entry_of(key: &[u8], value: &[u8]) -> Option<IndexEntry> {
    let (position, empty_to) = value.split_at_checked(8)?;
    let empty_to = if empty_to.is_empty() { None } else { Some(Sequence(number_of(empty_to)?)) };
    Some(IndexEntry { last: last_of(key)?, position: number_of(position)?, empty_to })
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

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        self.shared.load(log)
    }

    fn position(&self) -> Result<u64, StoreError> {
        Ok(self.shared.writer.lock().mark.position)
    }

    fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        let Some(bits) = self.shared.get(&self.shared.trees.snapshot(), TreeName::Names, EPOCH_KEY)? else { return Ok(None) };
        self.shared.decode(TreeName::Names, number_of(&bits)).map(|bits| Some(Epoch::from_random(bits)))
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        self.shared.locate(log, epoch, position)
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        self.shared.position_of(log, epoch, sequence)
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        self.shared.read(log, epoch, after, limit)
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        self.shared.list(kind, before, limit)
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        self.shared.blob(id)
    }

    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError> {
        self.shared.save_checkpoint(log, epoch, kind, sequence, &body)
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        self.shared.checkpoint(log, epoch, kind, at)
    }

    async fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        self.shared.compact(compaction)
    }

    async fn erase(&self, log: &LogId) -> Result<(), StoreError> {
        let Some(number) = self.shared.tombstone(log)? else { return Ok(()) };
        let (done, swept) = oneshot::channel();
        let requests = self.deletes.as_ref().expect("the store closes the channel only when it is dropped");
        let ended = || StoreError::failed("erasing a log", &"the store's maintenance thread has ended");
        requests.send(PendingDelete { number, deleted: Sequence::NONE, done: Some(done) }).map_err(|_| ended())?;
        swept.await.map_err(|_| ended())?
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.sync_now(&mut self.shared.writer.lock())
    }

    fn bytes(&self) -> u64 {
        self.shared.trees.bytes() + self.shared.journal.bytes()
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
        store.deletes.as_ref().unwrap().send(PendingDelete { number: u64::MAX, deleted: Sequence::NONE, done: None }).unwrap();
        let why = failed(&store);
        assert!(why.contains("maintenance") && why.contains("a test asked for this panic"), "{why}");
        assert_eq!(wait(store.commit(&[append(0)])).unwrap_err().to_string(), why);
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Interval(Duration::from_millis(1))).unwrap();
        store.shared.journal.break_for_tests(true);
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
            assert_eq!(store.load(&log()).unwrap(), None);
            assert_eq!(store.blob(&BlobId::new("b9").unwrap()).unwrap(), None);
            assert_eq!(store.list(LogKind::Run, None, 9).unwrap(), []);
        };
        seen();
        // The log is written anew before the old data is deleted: the two share nothing but the name.
        wait(store.commit(&[append(0)])).unwrap();
        drop(store);

        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        let left = |tree| store.shared.trees.snapshot().prefix(tree, number.to_be_bytes()).count();
        while store.shared.persist.state.lock().deleted[1].is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!([TreeName::Index, TreeName::State, TreeName::Bodies].map(left), [0, 0, 0]);
        assert_eq!(store.shared.trees.snapshot().iter(TreeName::Rows).count(), 1);
        store.persist().unwrap();
        let has_tombstone = || store.shared.trees.snapshot().get(TreeName::Names, &tombstone_key(number)).unwrap().is_some();
        while has_tombstone() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let read = store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL).unwrap();
        assert_eq!(read.iter().map(|stored| &stored.rows[..]).collect::<Vec<_>>(), [b"row 0"]);
        assert!(store.blob(&BlobId::new("b0").unwrap()).unwrap().is_some());
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
            store.persist().unwrap();
            store.shared.trees.compact_all();
            store.shared.trees.bytes()
        };
        let before = bytes();
        let gone = |position| RewrittenAppend { position, last: Sequence::NONE, rows: Bytes::new() };
        let appends = (1..1000).filter(|position| position % 10 != 0).map(gone).collect();
        let (epoch, last) = (Epoch::from_random(1), Sequence(1000));
        assert!(wait(store.compact(&Compaction { log: log(), epoch, last, appends, state: Vec::new() })).unwrap());
        let after = bytes();
        assert!(after * 8 < before, "{after} of {before}");
        assert_eq!(store.shared.trees.snapshot().iter(TreeName::Rows).count(), 100);
        wait(store.erase(&log())).unwrap();
        let left = |tree| store.shared.trees.snapshot().iter(tree).count();
        assert_eq!([TreeName::Index, TreeName::Rows].map(left), [0, 0]);
    }

    #[test]
    fn after_a_failed_write_every_later_commit_fails() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
        store.shared.journal.break_for_tests(true);
        assert!(matches!(wait(store.commit(&[append(1)])), Err(StoreError::Failed { .. })));
        store.shared.journal.break_for_tests(false);
        assert!(matches!(wait(store.commit(&[append(2)])), Err(StoreError::Failed { .. })));
        assert!(matches!(wait(store.erase(&log())), Err(StoreError::Failed { .. })));
        drop(store);
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        assert!(store.load(&log()).unwrap().unwrap().last >= Sequence(1), "acknowledged data is present");
    }

    #[test]
    fn an_incompletely_created_store_is_created_anew_and_one_without_its_parts_is_refused() {
        let open = |dir: &Path| EmbeddedStore::open(dir, Sync::Always);
        let is_named = |refused: Result<EmbeddedStore, StoreError>, named: &Path| match refused {
            Err(StoreError::Corrupt { path, .. }) => assert_eq!(path, named),
            other => panic!("{:?}", other.err()),
        };
        let dir = tempfile::tempdir().unwrap();
        format::write_current(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(JOURNAL_DIR)).unwrap();
        std::fs::write(dir.path().join(JOURNAL_DIR).join("next"), [0; 100]).unwrap();
        let store = open(dir.path()).unwrap();
        wait(store.commit(&[append(0)])).unwrap();
        store.persist().unwrap();
        wait(store.commit(&[append(1)])).unwrap();
        drop(store);

        for gone in [format::FILE, "journal/tail"] {
            let path = dir.path().join(gone);
            let content = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            is_named(open(dir.path()), &path);
            std::fs::write(&path, content).unwrap();
        }
        let (trees, aside) = (dir.path().join(TREES_DIR), dir.path().join("aside"));
        std::fs::rename(&trees, &aside).unwrap();
        let store = open(dir.path()).unwrap();
        assert_eq!(store.load(&log()).unwrap().unwrap().last, Sequence(2), "the journal still has every commit");
        drop(store);
        std::fs::remove_dir_all(&trees).unwrap();
        std::fs::rename(&aside, &trees).unwrap();
        std::fs::remove_dir_all(dir.path().join(JOURNAL_DIR)).unwrap();
        is_named(open(dir.path()), &trees);
    }

    #[test]
    fn a_table_that_open_does_not_check_is_checked_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Always).unwrap();
        // In another block than the mark, which is read first.
        let large = Append { rows: Bytes::from(format!("row 0{}", "x".repeat(100_000))), ..append(0) };
        wait(store.commit(&[large])).unwrap();
        store.persist().unwrap();
        let tables = store.shared.trees.path(TreeName::Rows).join("tables");
        drop(store);
        let table = tables.read_dir().unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&table).unwrap();
        let at = memchr::memmem::find(&bytes, b"row 0").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&table, bytes).unwrap();

        let is_named = |e: StoreError| matches!(e, StoreError::Corrupt { path, .. } if path == table);
        assert!(EmbeddedStore::open_verified(dir.path(), Sync::Always).is_err_and(is_named));
        let store = EmbeddedStore::open_checking(dir.path(), Sync::Always, 0, KeepCopy::Yes).unwrap();
        let read = store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL);
        assert!(read.is_err_and(is_named));
    }
}
