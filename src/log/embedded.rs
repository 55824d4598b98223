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
//!          w                      → what erasures have left in the files of this store
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
//! files, and when the journal forgets the records: at the latest by a pass over all files (`purge`).

mod backup;
mod erase;
mod examine;
mod format;
mod keys;
mod migrate;
mod persist;
mod purge;
mod read;
mod replica;
mod restore;
mod rewrite;
mod salvage;
mod tables;
mod trees;

#[cfg(test)]
mod tests;

pub use super::journal::Sync;
pub use examine::{Defect, StoreInspection};
pub use format::CURRENT as FORMAT;
pub use replica::ReplicaDir;
pub use restore::{adopt, verify_restored};
pub use salvage::{Loss, Salvaged, salvage};

use super::journal::{Journal, LocalJournal};
use super::pinned::PinnedFiles;
use super::{
    Blob, Commit, Limit, ListedLog, LoadedLog, LogHead, LogId, LogKind, Mark, Place, PlacedAppend, Remains, Store, StoreError,
    StoredAppend, panic_message,
};
use crate::environment;
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use erase::PendingDelete;
use keys::{
    EPOCH_KEY, body_name_key, body_value, checkpoint_key, created_key, created_value, index_key, log_key, name_key, name_value,
    number_of, tombstone_key,
};
use parking_lot::Mutex;
use persist::Persist;
use purge::PurgeState;
use std::collections::HashMap;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use trees::{Batch, TreeName, Trees};

/// Up to this many bytes of tables, opening a store reads and checks every table completely.
///
/// That is about one second of work.
const VERIFY_BYTES_MAX: u64 = 1 << 30;
/// Log heads that stay in memory for the next append.
///
/// At this count the store drops all and reads them again.
const CACHED_HEADS_MAX: usize = 1 << 16;

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

/// Logs on disk. Dropping the store closes it.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    /// Requests to the thread that deletes erased logs; `None` once the store is being closed.
    deletes: Option<mpsc::Sender<PendingDelete>>,
    /// Whether the store has every commit that the journal had when both were opened.
    is_started: AtomicBool,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    trees: Trees,
    /// Why a thread of the store ended before the store was closed.
    failed: watch::Sender<Option<StoreError>>,
    writer: Mutex<Writer>,
    persist: Persist,
    purge: PurgeState,
    /// The last commit that the tables of all trees have.
    persisted: AtomicU64,
    /// Makes the journal durable. Last: it holds the lock of the data directory, which must outlive the trees.
    sync_journal: Box<dyn Fn() -> Result<(), StoreError> + Send + std::marker::Sync>,
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

impl EmbeddedStore {
    /// Opens the store in the directory `dir` and its journal, or creates them. One process at a time can open them.
    ///
    /// The store may lack the last commits of the journal: [`Orderer::open`](super::commit::Orderer::open) applies them.
    ///
    /// A store of an older format is migrated; a copy of it stays in `dir` as `format-N`.
    ///
    /// # Errors
    /// `Locked` when another process has it open, `Unsupported` when a newer version wrote it, `Corrupt` when a file is
    /// damaged, `Failed` when the disk fails.
    pub fn open(dir: &Path, sync: Sync) -> Result<(Self, LocalJournal), StoreError> {
        Self::open_checking(dir, sync, VERIFY_BYTES_MAX, KeepCopy::Yes)
    }

    /// Opens the store like [`Self::open`], but reads and checks every file completely, however large.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_verified(dir: &Path, sync: Sync) -> Result<(Self, LocalJournal), StoreError> {
        Self::open_checking(dir, sync, u64::MAX, KeepCopy::Yes)
    }

    fn open_checking(
        dir: &Path,
        sync: Sync,
        verify_bytes_max: u64,
        keep_copy: KeepCopy,
    ) -> Result<(Self, LocalJournal), StoreError> {
        create_private(dir).map_err(|e| StoreError::failed("creating the data directory", &in_path(dir, &e)))?;
        if let Some(cluster) = ReplicaDir::cluster_of(dir) {
            return Err(StoreError::Unsupported {
                path: dir.to_owned(),
                found: format!("a copy of the cluster {cluster}"),
                known: "the store of a single server".into(),
                remedy: "Start it with --cluster, or give --data-dir another directory".into(),
            });
        }
        let (trees, journal) = (dir.join(TREES_DIR), dir.join(JOURNAL_DIR));
        match format::read(dir)? {
            Some(FORMAT) => {}
            None if trees.exists() || journal.exists() => {
                return Err(StoreError::Corrupt {
                    path: dir.join(format::FILE),
                    what: "it is missing, but a store lies beside it".into(),
                });
            }
            Some(found @ format::FIRST_WITH_TREES..) => migrate::renumber(dir, found, verify_bytes_max, keep_copy)?,
            found if found.is_some() || migrate::is_old_store(dir) => migrate::migrate(dir, found, verify_bytes_max, keep_copy)?,
            _ => format::write_current(dir)?,
        }
        let journal = LocalJournal::open(&journal, sync, || environment::random() as u64)?;
        let shared = Shared::open(&trees, journal.bounds(), Box::new(journal.syncer()), verify_bytes_max)?;
        migrate::remove_old_store(dir)?;
        Ok((Self::start_threads(shared)?, journal))
    }

    fn start_threads(shared: Shared) -> Result<Self, StoreError> {
        shared.load_remains()?;
        let shared = Arc::new(shared);
        let (deletes, requests) = mpsc::channel();
        let threads = vec![
            shared.spawn("store-keeper", move |shared| shared.run_deletes(&requests))?,
            shared.spawn("store-writer", Shared::run_persists)?,
            shared.spawn("store-merger", Shared::run_merges)?,
        ];
        Ok(Self { shared, deletes: Some(deletes), is_started: AtomicBool::new(false), threads })
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
            environment::sleep_thread(Duration::from_millis(5));
        }
        true
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.shared.trees.data_dir()
    }

    /// The file that the process locks that has the store in `dir` open.
    #[must_use]
    pub fn lock_file(dir: &Path) -> PathBuf {
        LocalJournal::lock_file(&dir.join(JOURNAL_DIR))
    }

    /// Persists the trees, so that the journal may forget. The store does so by itself when enough has been written.
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

impl EmbeddedStore {
    fn request_delete(&self, pending: PendingDelete) {
        let deletes = self.deletes.as_ref().expect("the store closes the channel only when it is dropped");
        // A thread that has ended says why by itself, and the next start deletes what a tombstone names.
        let _ = deletes.send(pending);
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

/// Creates a directory, and those above it, for this user alone: logs have what people and tools said.
fn create_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Syncs a directory, so that the names in it are durable.
fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| StoreError::failed("syncing a directory", &in_path(dir, &e)))
}

impl Shared {
    /// Opens the trees beside a journal with these bounds, which `sync_journal` makes durable.
    fn open(
        dir: &Path,
        bounds: (u64, u64),
        sync_journal: Box<dyn Fn() -> Result<(), StoreError> + Send + std::marker::Sync>,
        verify_bytes_max: u64,
    ) -> Result<Self, StoreError> {
        tables::check(dir, verify_bytes_max)?;
        // The engine asserts some of the data that it reads. A panic must at least name the store.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| Trees::open(dir)));
        let corrupt = |what: String| StoreError::Corrupt { path: dir.to_owned(), what };
        let trees = match opened {
            Ok(opened) => opened.map_err(|(path, e)| damaged_file(&path, "opening the store", &e))?,
            Err(_) => return Err(corrupt("the engine cannot open it".into())),
        };
        let mark = trees.opened_at();
        let ((first, last), from) = (bounds, mark.applied);
        if from > last {
            return Err(corrupt(format!("it has the commit {from}, and the journal beside it ends with {last}")));
        }
        if from + 1 < first {
            return Err(corrupt(format!("it lacks the commits {} to {}, which the journal no longer has", from + 1, first - 1)));
        }
        Ok(Self {
            trees,
            failed: watch::Sender::new(None),
            writer: Mutex::new(Writer { mark, heads: HashMap::new(), failed: None }),
            persist: Persist::default(),
            purge: PurgeState::default(),
            persisted: AtomicU64::new(from),
            sync_journal,
        })
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

    /// Applies a commit to the trees. After a start, a tree may have it already.
    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        writer.check_usable()?;
        let applied = self.batch_of(&mut writer, position, commit).and_then(|batch| {
            self.trees.write(batch);
            writer.mark.applied = position;
            self.persist_if_due(&mut writer)
        });
        applied.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    /// The entries of a commit.
    fn batch_of(&self, writer: &mut Writer, position: u64, commit: &Commit) -> Result<Batch, StoreError> {
        let mut batch = Batch::of_commit(position);
        match commit {
            Commit::Group(appends) => {
                if writer.heads.len() >= CACHED_HEADS_MAX {
                    writer.heads.clear();
                }
                self.count_removals(&mut batch, position, appends)?;
                for placed @ PlacedAppend { append, place } in appends {
                    put(&mut batch, placed);
                    writer.mark.position = place.position;
                    writer.mark.created = writer.mark.created.max(place.number);
                    let head = LogHead { number: place.number, epoch: append.epoch, last: append.last };
                    match writer.heads.get_mut(&append.log) {
                        Some(known) => *known = head,
                        None => _ = writer.heads.insert(append.log.clone(), head),
                    }
                }
            }
            Commit::Compaction { number, compaction } => self.rewrite(&mut batch, position, *number, compaction)?,
            Commit::Erasure { number, log } => {
                batch.remove(TreeName::Names, name_key(log));
                batch.remove(TreeName::Names, created_key(log.kind(), *number));
                batch.insert(TreeName::Names, tombstone_key(*number), []);
                writer.heads.remove(log);
            }
            Commit::Leader(_) => {}
        }
        Ok(batch)
    }

    /// Counts the bodies that a group removes.
    fn count_removals(&self, batch: &mut Batch, position: u64, appends: &[PlacedAppend]) -> Result<(), StoreError> {
        let removals = appends.iter().flat_map(|PlacedAppend { append, place }| {
            let removed = append.blobs.iter().filter(|blob| blob.is_removal());
            removed.map(|blob| log_key(place.number, blob.id.as_str().as_bytes()))
        });
        let mut bytes = 0;
        for key in removals {
            let size = self.trees.snapshot().size_of(TreeName::Bodies, &key);
            bytes += size.map_err(|e| self.engine_error("reading the store", TreeName::Bodies, &e))?;
        }
        if bytes > 0 {
            self.count_remains(batch, bytes, position);
        }
        Ok(())
    }

    /// The log's head, from the cache or from the trees.
    fn head(&self, writer: &mut Writer, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        writer.check_usable()?;
        if let Some(head) = writer.heads.get(log) {
            return Ok(Some(*head));
        }
        let head = self.find_head(&self.trees.snapshot(), log)?;
        writer.heads.extend(head.map(|head| (log.clone(), head)));
        Ok(head)
    }

    /// Saves a checkpoint. The journal does not have it: it can be derived again.
    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let head = self.head(&mut writer, log)?.filter(|head| head.epoch == epoch && sequence <= head.last);
        let Some(head) = head else { return Ok(()) };
        let mut batch = Batch::derived();
        batch.insert(TreeName::Bodies, checkpoint_key(head.number, kind, sequence), body);
        self.trees.write(batch);
        self.persist_if_due(&mut writer)
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

fn put(batch: &mut Batch, PlacedAppend { append, place }: &PlacedAppend) {
    let Place { position, number, creates } = *place;
    if creates {
        let head = LogHead { number, epoch: append.epoch, last: Sequence::NONE };
        batch.insert(TreeName::Names, name_key(&append.log), name_value(&head));
        batch.insert(TreeName::Names, created_key(append.log.kind(), number), created_value(append.epoch, &append.log));
    }
    if position == 1 {
        batch.insert(TreeName::Names, EPOCH_KEY, append.epoch.bits().to_be_bytes());
    }
    if !append.rows.is_empty() {
        batch.insert(TreeName::Rows, position.to_be_bytes(), &append.rows[..]);
        batch.insert(TreeName::Index, index_key(number, append.last), position.to_be_bytes());
    }
    set_state(batch, number, &append.state);
    for blob in &append.blobs {
        let (name, key) = (body_name_key(blob.id.as_str().as_bytes()), log_key(number, blob.id.as_str().as_bytes()));
        if blob.is_removal() {
            batch.remove(TreeName::Names, name);
            batch.remove(TreeName::Bodies, key);
        } else {
            batch.insert(TreeName::Names, name, number.to_be_bytes());
            batch.insert(TreeName::Bodies, key, body_value(blob));
        }
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

impl Store for EmbeddedStore {
    fn mark(&self) -> Mark {
        self.shared.writer.lock().mark
    }

    fn head(&self, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        self.shared.head(&mut self.shared.writer.lock(), log)
    }

    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError> {
        let erased = if let Commit::Erasure { number, .. } = commit { Some(*number) } else { None };
        let erased = erased.filter(|_| self.is_started.load(Ordering::Relaxed));
        // Before the commit is visible: who sees it must see that a deletion waits.
        self.shared.purge.undeleted.fetch_add(u64::from(erased.is_some()), Ordering::AcqRel);
        self.shared.apply(position, commit)?;
        if let Some(number) = erased {
            self.request_delete(PendingDelete::new(number));
        }
        Ok(())
    }

    /// Deletes what earlier erasures left. Before, a commit that is applied again could bring some of it back.
    fn start(&self) -> Result<(), StoreError> {
        self.is_started.store(true, Ordering::Relaxed);
        let pending = self.shared.pending_deletes()?;
        self.shared.purge.undeleted.fetch_add(pending.len() as u64, Ordering::AcqRel);
        for pending in pending {
            self.request_delete(pending);
        }
        Ok(())
    }

    fn persisted(&self) -> u64 {
        self.shared.persisted.load(Ordering::Acquire)
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        self.shared.load(log)
    }

    fn entry(&self, log: &LogId, epoch: Epoch, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.shared.state_entry(log, epoch, key)
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

    fn committed(&self, after: u64, until: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.shared.committed(after, until, limit)
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        self.shared.list(kind, before, limit)
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        self.shared.blob(id)
    }

    fn bodies(&self, log: &LogId, epoch: Epoch, after: Option<&BlobId>, bytes_max: usize) -> Result<Vec<Blob>, StoreError> {
        self.shared.bodies(log, epoch, after, bytes_max)
    }

    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError> {
        self.shared.save_checkpoint(log, epoch, kind, sequence, &body)
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        self.shared.checkpoint(log, epoch, kind, at)
    }

    fn export(&self, write: &mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> {
        self.shared.export(write)
    }

    fn pin(&self) -> Result<Option<PinnedFiles>, StoreError> {
        self.shared.pin().map(Some)
    }

    fn remains(&self) -> Remains {
        self.shared.remains()
    }

    fn begin_rewrite(&self) {
        self.shared.persist.state.lock().wants_rewrite = true;
        self.shared.persist.changed.notify_all();
    }

    fn forget_remains(&self, gone: &Remains) -> Result<(), StoreError> {
        self.shared.forget_remains(gone)
    }

    fn bytes(&self) -> u64 {
        self.shared.trees.bytes()
    }

    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        Some(self.shared.failed.subscribe())
    }
}
