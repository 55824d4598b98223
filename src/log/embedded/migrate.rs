//! From older formats to the current one.
//!
//! Format 3 has the files of the current one, which only gets another number. Of formats 1 and 2, the trees of the former
//! engine become this store's trees.
//!
//! ```text
//! data directory, formats 1 and 2     format  tail  log/{version, N.jnl, keyspaces/N/…}
//! data directory, formats 3 and 4     format  journal/{tail, N.seg}  trees/{rows, index, state, names, bodies}/…
//! ```
//!
//! The former engine is a layer over the same trees: it keeps a journal, and its tables have the same form. So it is
//! opened once, and writes what its journals have into tables. These files become the new trees. The new journal begins
//! empty.
//!
//! The number in the format file is written last. A crash before that leaves the old store as it was, but for journals
//! that became tables, and the next start migrates again. The copy that stays is the way back.

use super::trees::{Batch, TreeName, Trees};
use super::{JOURNAL_DIR, KeepCopy, TREES_DIR, engine_error, format, in_path, sync_dir, tables};
use crate::log::journal::tail::{self, TailFile};
use crate::log::{Mark, StoreError};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the former engine.
const ENGINE_DIR: &str = "log";
/// The trees that are being made.
const PART: &str = "trees.part";
/// The key of the last batch's header, in the names.
const HEADER_KEY: &[u8] = b"seal";

/// Whether `dir` has a store of format 1 or 2.
pub fn is_old_store(dir: &Path) -> bool {
    dir.join(ENGINE_DIR).exists() || dir.join(tail::FILE).exists()
}

/// Where a store of format 1 or 2 has its tables.
pub fn old_tables(dir: &Path) -> PathBuf {
    dir.join(ENGINE_DIR).join("keyspaces")
}

/// Makes a store of the current format of the store in `dir`, whose format file says `found`.
///
/// # Errors
/// `Locked`, `Unsupported`, `Corrupt`, `Failed`.
pub fn migrate(dir: &Path, found: Option<u32>, verify_bytes_max: u64, keep_copy: KeepCopy) -> Result<(), StoreError> {
    let (tail, mark) = TailFile::open(dir)?;
    let (engine, mark) = (dir.join(ENGINE_DIR), mark.unwrap_or_default());
    if tail.is_new() && engine.exists() {
        let what = "it is missing or empty, but a store lies beside it".into();
        return Err(StoreError::Corrupt { path: tail.path().to_owned(), what });
    }
    // A store whose creation did not finish holds no data.
    if !mark.made {
        return format::write_current(dir);
    }
    if found.is_none() && tail.has_format() {
        return Err(StoreError::Corrupt { path: dir.join(format::FILE), what: "it is missing".into() });
    }
    let found = found.unwrap_or(format::FIRST);
    format::check_engine(&engine)?;
    announce(1, "its tables are checked");
    let files = tables::check(&old_tables(dir), verify_bytes_max)?;
    if keep_copy == KeepCopy::Yes {
        announce(2, "it is copied");
        keep(dir, found, &files)?;
    }
    announce(3, "its journals become tables");
    let old = OldStore::open(&engine)?;
    if old.batch < mark.batch {
        let what = format!("{} commits were acknowledged, and only {} are there", mark.batch, old.batch);
        return Err(StoreError::Corrupt { path: engine, what });
    }
    for leftover in [PART, TREES_DIR].map(|name| dir.join(name)) {
        remove_dir(&leftover)?;
    }
    announce(4, "its tables become the new trees");
    let part = dir.join(PART);
    old.move_to(&part)?;
    let trees = Trees::open(&part).map_err(|(path, e)| engine_error(&path, "opening the migrated store", &e))?;
    let mut batch = Batch::derived();
    batch.remove(TreeName::Names, HEADER_KEY);
    trees.write(batch);
    trees.seal(Mark { applied: 0, position: old.position, created: old.created });
    trees.write_sealed().map_err(|(of, e)| engine_error(&trees.path(of), "writing the migrated store", &e))?;
    drop(trees);
    fs::rename(&part, dir.join(TREES_DIR)).map_err(|e| failed(&part, &e))?;
    sync_dir(dir)?;
    format::write_current(dir)
}

/// Gives the store in `dir`, which has the current files and the older format `found`, the number of the current format.
///
/// # Errors
/// `Locked`, `Corrupt`, `Failed`.
pub fn renumber(dir: &Path, found: u32, verify_bytes_max: u64, keep_copy: KeepCopy) -> Result<(), StoreError> {
    let _lock = TailFile::lock(&dir.join(JOURNAL_DIR))?;
    let files = tables::check(&dir.join(TREES_DIR), verify_bytes_max)?;
    if keep_copy == KeepCopy::Yes {
        keep(dir, found, &files)?;
    }
    format::write_current(dir)
}

/// Keeps a copy of the store as it is, as the way back.
fn keep(dir: &Path, found: u32, files: &HashSet<PathBuf>) -> Result<(), StoreError> {
    let copy = format::keep_copy(dir, found, files)?;
    tracing::warn!(
        from = found, to = format::CURRENT, copy = %copy.display(),
        "the store is migrated; the copy of its older format stays until you delete it"
    );
    Ok(())
}

/// Logs that a step begins. Those of a large store take minutes, and an operator must see that the start is not stuck.
fn announce(step: u8, what: &str) {
    tracing::info!(step = %format_args!("{step} of 4"), "the store is migrated: {what}");
}

/// Removes what the migration left of the old store.
///
/// # Errors
/// `Failed`.
pub fn remove_old_store(dir: &Path) -> Result<(), StoreError> {
    remove_dir(&dir.join(ENGINE_DIR))?;
    let tail = dir.join(tail::FILE);
    if tail.exists() {
        fs::remove_file(&tail).map_err(|e| failed(&tail, &e))?;
    }
    Ok(())
}

fn remove_dir(dir: &Path) -> Result<(), StoreError> {
    if dir.exists() { fs::remove_dir_all(dir).map_err(|e| failed(dir, &e)) } else { Ok(()) }
}

fn failed(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::failed("migrating the store", &in_path(path, error))
}

/// A store of format 1 or 2, all of whose entries are in tables.
struct OldStore {
    /// The directory of each tree.
    trees: Vec<(TreeName, PathBuf)>,
    /// The number of its last batch.
    batch: u64,
    /// The position of its last append.
    position: u64,
    /// The number of its logs.
    created: u64,
}

impl OldStore {
    /// Opens the store, writes all entries to tables, and closes it.
    fn open(engine: &Path) -> Result<Self, StoreError> {
        let failed = |e: fjall::Error| match e {
            fjall::Error::Io(io) | fjall::Error::Storage(lsm_tree::Error::Io(io)) => failed(engine, &io),
            e => StoreError::Corrupt { path: engine.to_owned(), what: format!("opening the store of the older format: {e:?}") },
        };
        let corrupt = |what: String| StoreError::Corrupt { path: engine.to_owned(), what };
        let db = Database::builder(engine).open().map_err(failed)?;
        let open = |name: TreeName| {
            if !db.keyspace_exists(name.as_str()) {
                return Err(corrupt(format!("the keyspace {} is missing", name.as_str())));
            }
            let keyspace = db.keyspace(name.as_str(), KeyspaceCreateOptions::default).map_err(failed)?;
            Ok((name, keyspace))
        };
        let keyspaces = TreeName::ALL.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let names = |(name, keyspace): &(TreeName, Keyspace)| (*name == TreeName::Names).then(|| keyspace.clone());
        let header = keyspaces.iter().find_map(names).expect("all trees are there").get(HEADER_KEY).map_err(failed)?;
        // A store that was never written has none.
        let words = header.as_deref().map_or(Some([0; 4]), header_words);
        let [_, batch, position, created] = words.ok_or_else(|| corrupt("the last batch header is invalid".into()))?;
        for (_, keyspace) in &keyspaces {
            keyspace.rotate_memtable_and_wait().map_err(failed)?;
        }
        let trees = keyspaces.iter().map(|(name, keyspace)| (*name, keyspace.path().to_owned())).collect();
        Ok(Self { trees, batch, position, created })
    }

    /// Makes the trees in `part`: links to the tables, and copies of the manifests.
    fn move_to(&self, part: &Path) -> Result<(), StoreError> {
        let linked = HashSet::from(["tables", "blobs"]);
        for (name, from) in &self.trees {
            let to = part.join(name.as_str());
            fs::create_dir_all(&to).map_err(|e| failed(&to, &e))?;
            let entries = fs::read_dir(from).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for entry in entries.map_err(|e| failed(from, &e))? {
                let (path, place) = (entry.path(), to.join(entry.file_name()));
                let is_linked = entry.file_name().to_str().is_some_and(|name| linked.contains(name));
                let made = if is_linked { link_files(&path, &place) } else { fs::copy(&path, &place).map(|_| ()) };
                made.map_err(|e| failed(&path, &e))?;
            }
            sync_dir(&to)?;
        }
        sync_dir(part)
    }
}

/// The four numbers of a batch header.
fn header_words(bytes: &[u8]) -> Option<[u64; 4]> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: [[u8; 8]; 4] = words.try_into().ok().filter(|_| rest.is_empty())?;
    Some(words.map(u64::from_le_bytes))
}

/// Links each file of a directory, or copies it where the file system has no links.
fn link_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if fs::hard_link(entry.path(), &place).is_err() {
            fs::copy(entry.path(), &place)?;
            fs::File::open(&place)?.sync_all()?;
        }
    }
    fs::File::open(to)?.sync_all()
}
