//! Old runs on object storage.
//!
//! ```text
//!   store ─▶ ObjectWriter ─▶ object storage          a run that ended long ago; then its rows leave the store
//!   store ─┬─ rows that it has ───────────────────────────┐
//!          └─ entry ARCHIVE ─▶ cache ◀─ object storage ───┴─▶ readers
//! ```
//! An archived log keeps in the store its place in lists, its state, the names of its bodies, the index of its appends and
//! its last row. All its rows up to a sequence, and its bodies, are in one object that never changes. The log's state entry
//! [`ARCHIVE`] names it. So every
//! reader gets the same rows as before, from [`ArchivedStore`], and positions and cursors stay.
//!
//! **Crashes.** The object is stored before the commit that names it. The rows leave the store with that commit and later
//! ones. So each row is in the store, in the object, or in both. An object that no log names is deleted by a sweep.
//!
//! **Reads.** A reader fetches the whole object into a directory of this process, whose size is bounded, and checks its
//! hash. Objects are fetched by the blocking threads of readers. So that storage which does not answer takes none from the
//! readers of other logs, at most [`FETCHES_MAX`] wait for it, each at most [`FETCH_TIME_MAX`]; after a failure no
//! reader asks again for [`PAUSE_AFTER_FAILURE`].

mod object;
mod store;

pub use object::{ArchivedObject, ObjectWriter};
pub use store::ArchivedStore;

use super::{Blob, LogId, Store, StoreError};
use crate::environment::{self, sabotage};
use crate::meter::Counter;
use crate::model::{BlobId, Epoch, Sequence};
use crate::object_storage::{self, ObjectStorage, StorageAddressError};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::Instant;

/// The key of the state entry that names the object of an archived log.
pub const ARCHIVE: &[u8] = b"archive";
/// Begins the metadata of a body that has moved. That of others is JSON.
const MOVED: u8 = 0;
/// The name of the cache's directory in the data directory.
pub const CACHE_DIR: &str = "archive-cache";
/// The readers that wait for object storage at once.
pub const FETCHES_MAX: usize = 2;
/// How long a reader waits for one object.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(20);
/// For how long readers of archived logs are refused after object storage failed.
pub const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Where the rows of a log are: the value of [`ARCHIVE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEntry {
    /// The object's path, below the address of `--archive-to`.
    pub object: String,
    pub bytes: u64,
    /// The BLAKE3 hash of its bytes, in hexadecimal.
    pub hash: String,
    /// It has all rows up to here.
    pub through: Sequence,
    /// By [`Audience::index`](crate::model::Audience::index).
    #[serde(default)]
    pub texts: [ListTexts; 3],
}

/// What lists show of an archived run to one audience. So they need no object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTexts {
    /// The title that the server made of the first message of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// Why the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
}

impl ArchiveEntry {
    /// The entry of a log. `None`: the log is not archived.
    ///
    /// # Errors
    /// [`StoreError`] from the store; `Unreadable`.
    pub fn of(store: &dyn Store, log: &LogId, epoch: Epoch) -> Result<Option<Self>, StoreError> {
        store.entry(log, epoch, ARCHIVE)?.map(|entry| Self::read(log, &entry)).transpose()
    }

    /// Reads the value of a state entry.
    ///
    /// # Errors
    /// `Unreadable`.
    pub fn read(log: &LogId, value: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(value).map_err(|why| StoreError::unreadable(log, ARCHIVE, &why))
    }

    /// The value of a state entry.
    #[must_use]
    pub fn save(&self) -> Bytes {
        serde_json::to_vec(self).expect("plain data").into()
    }
}

/// What the store keeps of a body that lies in the object of the log with this number.
#[must_use]
pub fn moved_body(number: u64, blob: &Blob) -> Blob {
    let number = if sabotage::is(58) { 0 } else { number };
    let meta = [&[MOVED][..], &number.to_be_bytes(), &blob.meta].concat();
    Blob { id: blob.id.clone(), meta: meta.into(), body: Bytes::new() }
}

/// The number of the log whose object has this body, and the body's own metadata; `None` if the store has it.
fn place_of_body(blob: &Blob) -> Option<(u64, Bytes)> {
    let mut meta = blob.meta.clone();
    (blob.body.is_empty() && meta.try_get_u8() == Ok(MOVED)).then_some(())?;
    Some((meta.try_get_u64().ok()?, meta))
}

/// The archive of one server: object storage, and what it has fetched lately.
pub struct Archive {
    target: Option<Arc<Target>>,
    /// Of each log that is being archived or erased.
    locks: Mutex<HashMap<LogId, Arc<tokio::sync::Mutex<()>>>>,
    /// The objects whose deletion failed, each with its log.
    left: Mutex<HashMap<String, LogId>>,
    /// Objects and bytes that were fetched, and fetches that failed.
    pub fetched: Counter,
    pub fetched_bytes: Counter,
    pub failed_fetches: Counter,
}

struct Target {
    storage: ObjectStorage,
    runtime: Handle,
    fetches: Semaphore,
    /// Until when readers are refused.
    paused: Mutex<Option<Instant>>,
    cache: Mutex<Cache>,
    dir: PathBuf,
}

/// The objects on this machine.
struct Cache {
    objects: HashMap<String, CachedObject>,
    bytes: u64,
    bytes_max: u64,
    uses: u64,
}

struct CachedObject {
    object: Arc<ArchivedObject>,
    path: PathBuf,
    bytes: u64,
    used: u64,
}

impl Cache {
    fn get(&mut self, name: &str) -> Option<Arc<ArchivedObject>> {
        self.uses += 1;
        let found = self.objects.get_mut(name)?;
        found.used = self.uses;
        Some(found.object.clone())
    }

    /// Adds an object, and removes those whose last use is the longest ago. Readers that have one go on.
    fn add(&mut self, name: &str, path: PathBuf, bytes: u64, object: Arc<ArchivedObject>) {
        // Two readers may have fetched it at once.
        self.remove(name);
        while self.bytes + bytes > self.bytes_max {
            let oldest = self.objects.iter().min_by_key(|(_, cached)| cached.used).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        self.objects.insert(name.to_owned(), CachedObject { object, path, bytes, used: self.uses });
    }

    fn remove(&mut self, name: &str) {
        if let Some(removed) = self.objects.remove(name) {
            self.bytes -= removed.bytes;
            remove_file(&removed.path);
        }
    }
}

fn remove_file(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(%error, path = %path.display(), "a cached archived run stays on disk");
    }
}

impl Archive {
    /// A server without object storage: it reads no archived logs.
    #[must_use]
    pub fn none() -> Self {
        let (fetched, fetched_bytes, failed_fetches) = Default::default();
        Self { target: None, locks: Mutex::default(), left: Mutex::default(), fetched, fetched_bytes, failed_fetches }
    }

    /// Uses object storage at an address, with the credentials of its provider's environment variables. Call it inside a
    /// tokio runtime.
    ///
    /// What was fetched lies in `dir`, which is emptied, in at most `cache_bytes_max` bytes; one object may have more.
    ///
    /// # Errors
    /// [`StorageAddressError`].
    pub fn open(address: &str, dir: &Path, cache_bytes_max: u64) -> Result<Self, StorageAddressError> {
        Self::on(ObjectStorage::open(address)?, dir, cache_bytes_max)
    }

    /// The same on object storage that is open.
    ///
    /// # Errors
    /// `Directory`.
    pub fn on(storage: ObjectStorage, dir: &Path, cache_bytes_max: u64) -> Result<Self, StorageAddressError> {
        let of_directory = |why| StorageAddressError::Directory { path: dir.to_owned(), why };
        match std::fs::remove_dir_all(dir) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(of_directory(why)),
            _ => std::fs::create_dir_all(dir).map_err(of_directory)?,
        }
        let target = Target {
            storage,
            runtime: Handle::current(),
            fetches: Semaphore::new(FETCHES_MAX),
            paused: Mutex::default(),
            cache: Mutex::new(Cache { objects: HashMap::new(), bytes: 0, bytes_max: cache_bytes_max, uses: 0 }),
            dir: dir.to_owned(),
        };
        Ok(Self { target: Some(Arc::new(target)), ..Self::none() })
    }

    /// Whether the server has object storage.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.target.is_some()
    }

    /// Waits until nothing else archives or erases a log, and keeps others from it while the guard lives.
    ///
    /// An object that is stored during an erasure would outlive it. A caller that needs the log's writer, too, locks first.
    pub async fn lock(&self, log: &LogId) -> Option<OwnedMutexGuard<()>> {
        self.target.as_ref()?;
        let lock = {
            let mut locks = self.locks.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(log.clone()).or_default().clone()
        };
        Some(lock.lock_owned().await)
    }

    /// Bytes of archived logs on this machine.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.target.as_ref().map_or(0, |target| target.cache.lock().bytes)
    }

    /// The object of a log, which it fetches if need be. It blocks.
    ///
    /// # Errors
    /// `Archived`.
    fn object(&self, log: &LogId, entry: &ArchiveEntry) -> Result<Arc<ArchivedObject>, StoreError> {
        let archived = |why: String| StoreError::Archived { log: log.to_string(), object: entry.object.clone(), why };
        let Some(target) = &self.target else { return Err(archived("the server was started without --archive-to".into())) };
        if let Some(object) = target.cache.lock().get(&entry.object) {
            return Ok(object);
        }
        if target.paused.lock().is_some_and(|until| Instant::now() < until) {
            return Err(archived(format!("{} did not answer a moment ago", target.storage.address())));
        }
        let (fetching, entry_of) = (target.clone(), entry.clone());
        let fetch = async move {
            let _turn = fetching.fetches.acquire().await;
            // Another reader may have fetched it meanwhile.
            let cached = fetching.cache.lock().get(&entry_of.object);
            match cached {
                Some(object) => Ok(object),
                None => fetching.fetch(&entry_of).await,
            }
        };
        let fetch = async { tokio::time::timeout(FETCH_TIME_MAX, fetch).await };
        let fetched = match environment::threads::wait_for(&target.runtime, fetch) {
            Some(Ok(fetched)) => fetched,
            Some(Err(_)) => {
                *target.paused.lock() = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                Err(format!("{} did not answer within {} seconds", target.storage.address(), FETCH_TIME_MAX.as_secs()))
            }
            None => Err("the server is stopping".into()),
        };
        match &fetched {
            Ok(_) => self.fetched.add(1),
            Err(_) => self.failed_fetches.add(1),
        }
        self.fetched_bytes.add(if fetched.is_ok() { entry.bytes } else { 0 });
        fetched.map_err(archived)
    }

    /// Rows of an archived log, as [`Store::read`] gives them. It blocks.
    ///
    /// # Errors
    /// `Archived`.
    fn read(
        &self,
        log: &LogId,
        entry: &ArchiveEntry,
        after: Sequence,
        limit: super::Limit,
    ) -> Result<Vec<super::StoredAppend>, StoreError> {
        self.object(log, entry)?.read(after, limit).map_err(|error| StoreError::Archived {
            log: log.to_string(),
            object: entry.object.clone(),
            why: error.to_string(),
        })
    }

    /// A body of an archived log. It blocks.
    ///
    /// # Errors
    /// `Archived`.
    fn body(&self, log: &LogId, entry: &ArchiveEntry, id: &BlobId) -> Result<Bytes, StoreError> {
        let archived = |why: String| StoreError::Archived { log: log.to_string(), object: entry.object.clone(), why };
        let body = self.object(log, entry)?.body(id).map_err(|error| archived(error.to_string()))?;
        body.ok_or_else(|| archived(format!("it has no body {id}")))
    }

    /// A file for an object that is being written.
    ///
    /// # Errors
    /// Those of the disk.
    ///
    /// # Panics
    /// Without object storage.
    pub fn draft(&self) -> std::io::Result<File> {
        tempfile::tempfile_in(&self.opened().dir)
    }

    fn opened(&self) -> &Target {
        self.target.as_ref().expect("the caller has asked for object storage")
    }

    /// Stores the object of a log: `file`, as an [`ObjectWriter`] has written it.
    ///
    /// # Errors
    /// `Archived`.
    ///
    /// # Panics
    /// Without object storage.
    pub async fn put(&self, log: &LogId, entry: &ArchiveEntry, file: File) -> Result<(), StoreError> {
        let target = self.opened();
        target.storage.put_file(&entry.object, file).await.map_err(|error| target.error(log, &entry.object, &error))
    }

    /// Deletes an object. It need not be there.
    ///
    /// # Errors
    /// `Archived`.
    ///
    /// # Panics
    /// Without object storage.
    pub async fn delete(&self, log: &LogId, object: &str) -> Result<(), StoreError> {
        let target = self.opened();
        target.cache.lock().remove(object);
        let deleted = target.storage.delete(object).await.map_err(|error| target.error(log, object, &error));
        let mut left = self.left.lock();
        match &deleted {
            Ok(()) => drop(left.remove(object)),
            // A sweep does not know the log.
            Err(_) => drop(left.entry(object.to_owned()).or_insert_with(|| log.clone())),
        }
        drop(left);
        deleted
    }

    /// Deletes the objects of a log: the one that it names, and those whose deletion failed.
    ///
    /// # Errors
    /// `Archived`.
    ///
    /// # Panics
    /// Without object storage.
    pub async fn delete_all(&self, log: &LogId, named: Option<String>) -> Result<(), StoreError> {
        let left: Vec<_> = self.left.lock().iter().filter(|(_, of)| *of == log).map(|(object, _)| object.clone()).collect();
        for object in left.into_iter().chain(named) {
            self.delete(log, &object).await?;
        }
        Ok(())
    }

    /// The names of all objects of a store, with the number of the log of each.
    ///
    /// # Errors
    /// `Archived`.
    ///
    /// # Panics
    /// Without object storage.
    pub async fn objects(&self, store: Epoch) -> Result<Vec<(u64, String)>, StoreError> {
        let target = self.opened();
        let below = store.to_string();
        let listed = target.storage.list(&below).await.map_err(|error| target.error(&LogId::of_server(), &below, &error))?;
        let numbered = listed.into_iter().filter_map(|object| {
            let number = object.name.split_once('-')?.0.parse().ok()?;
            Some((number, format!("{below}/{}", object.name)))
        });
        Ok(numbered.collect())
    }
}

/// The name of the object of a log.
#[must_use]
pub fn object_name(store: Epoch, number: u64, hash: &blake3::Hash) -> String {
    format!("{store}/{number}-{}", hash.to_hex())
}

impl Target {
    fn error(&self, log: &LogId, object: &str, why: &dyn std::fmt::Display) -> StoreError {
        StoreError::Archived {
            log: log.to_string(),
            object: object.to_owned(),
            why: format!("{}: {why}", self.storage.address()),
        }
    }

    /// Fetches an object into the cache.
    async fn fetch(&self, entry: &ArchiveEntry) -> Result<Arc<ArchivedObject>, String> {
        let failed = |error: object_storage::Error| {
            if !matches!(error, object_storage::Error::NotFound { .. }) {
                *self.paused.lock() = Some(Instant::now() + PAUSE_AFTER_FAILURE);
            }
            format!("{}: {error}", self.storage.address())
        };
        let of_disk = |error: std::io::Error| format!("{}: {error}", self.dir.display());
        let mut pieces = self.storage.get(&entry.object).await.map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.dir).map_err(of_disk)?;
        let mut hash = blake3::Hasher::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(failed)?;
            hash.update(&piece);
            file.write_all(&piece).map_err(of_disk)?;
        }
        let hash = hash.finalize().to_hex();
        if *hash != *entry.hash {
            return Err(format!("{}: the object has the hash {hash}, and the store says {}", self.storage.address(), entry.hash));
        }
        let opened = ArchivedObject::open(file.reopen().map_err(of_disk)?);
        let object = Arc::new(opened.map_err(|error| format!("{}: {error}", self.storage.address()))?);
        let (_, path) = file.keep().map_err(|error| of_disk(error.error))?;
        self.cache.lock().add(&entry.object, path, entry.bytes, object.clone());
        Ok(object)
    }
}
