//! The store of a node in a cluster: a copy of what the commits of the cluster's journal lead to.
//!
//! The directory has no journal of its own. A file names the cluster, so that no server takes the copy of one cluster
//! for another's, or for a store of its own; its lock keeps other processes out.
//!
//! A snapshot has every entry of the trees as they are after one commit. It does not depend on the engine's files.
//!
//! ```text
//! snapshot := "PSS1" applied:u64 position:u64 created:u64 entry… 255 count:u64
//! entry    := tree:u8 key_bytes:u32 value_bytes:u32 key value                              little-endian
//! ```

use super::purge::REMAINS_KEY;
use super::trees::{Batch, TreeName, Trees};
use super::{EmbeddedStore, FORMAT, JOURNAL_DIR, Shared, TREES_DIR, VERIFY_BYTES_MAX, create_private, format, in_path, sync_dir};
use crate::log::{Mark, StoreError};
use bytes::{BufMut, Bytes};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The file in the data directory that names the cluster.
const FILE: &str = "replica";
/// The form of a snapshot. A version with another tree or another form of an entry needs another one.
const MAGIC: &[u8; 4] = b"PSS1";
/// The byte after the last entry of a snapshot.
const END: u8 = u8::MAX;
/// Bytes of a snapshot that are written at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of entries in one batch of an import.
const BATCH_BYTES: usize = 8 << 20;

/// The data directory of a node, which this process has locked.
pub struct ReplicaDir {
    dir: PathBuf,
    lock: File,
    /// How far its store is; `None` if it has none.
    mark: Option<Mark>,
}

impl ReplicaDir {
    /// Locks the directory for a node of this cluster, and creates it.
    ///
    /// # Errors
    /// `Locked` when another process uses it, `Unsupported` when it belongs to another cluster or to a single server.
    pub fn open(dir: &Path, cluster: &str) -> Result<Self, StoreError> {
        let failed = |e: io::Error| StoreError::failed("opening the data directory", &in_path(dir, &e));
        create_private(dir).map_err(failed)?;
        let refuse = |found: String, remedy: &str| {
            Err(StoreError::Unsupported {
                path: dir.to_owned(),
                found,
                known: format!("a copy of the cluster {cluster}, or nothing"),
                remedy: remedy.into(),
            })
        };
        if dir.join(JOURNAL_DIR).exists() {
            return refuse(
                "the store of a single server".into(),
                "Give the node an empty directory; `proscenium cluster-seed` moves the data",
            );
        }
        let path = dir.join(FILE);
        let mut lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::Locked { path: dir.to_owned() }),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut named = String::new();
        lock.read_to_string(&mut named).map_err(failed)?;
        match named.trim() {
            "" => {
                writeln!(lock, "{cluster}").and_then(|()| lock.sync_all()).map_err(failed)?;
                sync_dir(dir)?;
            }
            found if found == cluster => {}
            found => return refuse(format!("a copy of the cluster {found}"), "Give the node the directory of its own cluster"),
        }
        // The format is written last: without it, a snapshot was not read to its end.
        let mark = match format::read(dir)? {
            Some(found @ format::FIRST_WITH_TREES..) => {
                if found < FORMAT {
                    // The cluster has all of it, so it needs no copy: an older version begins with an empty directory.
                    format::write_current(dir)?;
                }
                Some(
                    Trees::open(&dir.join(TREES_DIR))
                        .map_err(|(path, e)| super::engine_error(&path, "opening the store", &e))?
                        .opened_at(),
                )
            }
            _ => None,
        };
        Ok(Self { dir: dir.to_owned(), lock, mark })
    }

    /// How far the store in the directory is; `None` if it has none.
    #[must_use]
    pub const fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// How far the store of a snapshot is, by its first chunk.
    ///
    /// # Errors
    /// As [`Self::import`].
    pub fn mark_of(mut chunk: &[u8]) -> Result<Mark, StoreError> {
        read_head(&mut chunk)
    }

    /// Replaces the store by what a snapshot has.
    ///
    /// # Errors
    /// `Unsupported` for a snapshot in another form, which leaves the store as it is. `Corrupt` for a snapshot that ends
    /// too early, `Failed` when the disk or the reader fails.
    pub fn import(&mut self, mut snapshot: impl Read) -> Result<Mark, StoreError> {
        let mark = read_head(&mut snapshot)?;
        self.clear()?;
        import(&self.dir.join(TREES_DIR), mark, snapshot)?;
        format::write_current(&self.dir)?;
        self.mark = Some(mark);
        Ok(mark)
    }

    /// Removes the store.
    ///
    /// # Errors
    /// `Failed` when the disk fails.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        self.mark = None;
        for path in [self.dir.join(format::FILE), self.dir.join(TREES_DIR)] {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::failed("clearing the data directory", &in_path(&path, &e)));
                }
                _ => {}
            }
        }
        sync_dir(&self.dir)
    }

    /// Opens the store, which follows a journal with these bounds. An empty directory gets an empty store.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn into_store(self, bounds: (u64, u64)) -> Result<EmbeddedStore, StoreError> {
        if self.mark.is_none() {
            format::write_current(&self.dir)?;
        }
        let lock = self.lock;
        // What the cluster's journal has acknowledged is durable.
        let sync = move || {
            let _ = &lock;
            Ok(())
        };
        let shared = Shared::open(&self.dir.join(TREES_DIR), bounds, Box::new(sync), VERIFY_BYTES_MAX)?;
        EmbeddedStore::start_threads(shared)
    }

    /// The file that the process locks that has the store of a node open.
    #[must_use]
    pub fn lock_file(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Whether a data directory belongs to a node of a cluster; the name of the cluster.
    #[must_use]
    pub fn cluster_of(dir: &Path) -> Option<String> {
        fs::read_to_string(dir.join(FILE)).ok().map(|name| name.trim().to_owned())
    }
}

impl Shared {
    /// Writes a snapshot of what the store has now, in chunks. `write` returns whether to go on.
    pub(super) fn export(&self, write: &mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> {
        let (mark, snapshot) = loop {
            // A snapshot must not have what was erased before it.
            self.wait_until_deleted();
            let writer = self.writer.lock();
            writer.check_usable()?;
            if self.purge.undeleted.load(Ordering::Acquire) == 0 {
                break (writer.mark, self.trees.snapshot());
            }
        };
        let (mut out, mut count) = (Vec::with_capacity(2 * CHUNK_BYTES), 0_u64);
        out.extend_from_slice(MAGIC);
        for word in [mark.applied, mark.position, mark.created] {
            out.put_u64_le(word);
        }
        for name in TreeName::ALL {
            for entry in snapshot.iter(name) {
                let (key, value) = self.entry(name, entry)?;
                if name == TreeName::Names && *key == *REMAINS_KEY {
                    continue;
                }
                out.put_u8(name as u8);
                out.put_u32_le(u32::try_from(key.len()).expect("a key is short"));
                out.put_u32_le(u32::try_from(value.len()).expect("a value is far smaller than 4 GiB"));
                out.put_slice(&key);
                out.put_slice(&value);
                count += 1;
                if out.len() >= CHUNK_BYTES && !write(std::mem::take(&mut out).into()) {
                    return Ok(None);
                }
            }
        }
        out.put_u8(END);
        out.put_u64_le(count);
        Ok(write(out.into()).then_some(mark))
    }
}

/// Reads what comes before a snapshot's entries: its form, and the position of its store.
fn read_head(snapshot: &mut impl Read) -> Result<Mark, StoreError> {
    let mut magic = [0; 4];
    snapshot.read_exact(&mut magic).map_err(unread)?;
    if magic != *MAGIC {
        return Err(StoreError::Unsupported {
            path: "the snapshot".into(),
            found: format!("the form {}", magic.escape_ascii()),
            known: MAGIC.escape_ascii().to_string(),
            remedy: "Upgrade this node; its data directory is as it was".into(),
        });
    }
    let mut word = || {
        let mut bytes = [0; 8];
        snapshot.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes)).map_err(unread)
    };
    Ok(Mark { applied: word()?, position: word()?, created: word()? })
}

/// Writes a snapshot's entries to trees in an empty directory.
fn import(dir: &Path, mark: Mark, mut snapshot: impl Read) -> Result<(), StoreError> {
    let engine = |(path, e): (PathBuf, lsm_tree::Error)| super::engine_error(&path, "writing a snapshot to the store", &e);
    let trees = Trees::open(dir).map_err(engine)?;
    let write_tables = || trees.write_sealed().map_err(|(of, e)| engine((trees.path(of), e)));
    let (mut batch, mut bytes, mut count) = (Batch::derived(), 0, 0);
    loop {
        let mut head = [0; 9];
        snapshot.read_exact(&mut head).map_err(unread)?;
        let [tree, key_and_value @ ..] = head;
        if tree == END {
            if u64::from_le_bytes(key_and_value) != count {
                return Err(damaged("entries are missing"));
            }
            break;
        }
        let name = *TreeName::ALL.get(usize::from(tree)).ok_or_else(|| damaged("it names an unknown tree"))?;
        let length = |at: usize| u32::from_le_bytes(key_and_value[at..at + 4].try_into().expect("four bytes")) as usize;
        let (mut key, mut value) = (vec![0; length(0)], vec![0; length(4)]);
        snapshot.read_exact(&mut key).and_then(|()| snapshot.read_exact(&mut value)).map_err(unread)?;
        (bytes, count) = (bytes + key.len() + value.len(), count + 1);
        batch.insert(name, key, value);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            trees.write(std::mem::replace(&mut batch, Batch::derived()));
            if trees.unsealed_bytes() >= 8 * BATCH_BYTES as u64 {
                // An import that ends early is begun again: the directory has no format yet.
                trees.seal(Mark::default());
                write_tables()?;
            }
        }
    }
    trees.write(batch);
    trees.seal(mark);
    write_tables()
}

fn unread(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
        _ => StoreError::failed("reading a snapshot", &error),
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt { path: "the snapshot".into(), what: what.into() }
}
