//! Lists the damage in a data directory that no server has open, without changing the directory.
//!
//! The store cannot be opened without writing: it applies what the journal has, and merges tables. So it opens a copy
//! in a temporary directory. Nearly all data is in files that are never written again; in the copy those are links to
//! the originals. This module checks the store's own invariants between trees. It does not interpret rows, state
//! entries or bodies.

use super::keys::{body_name_key, body_of, created_of, index_entry_of, log_key, name_key, name_of, number_of, tombstone_key};
use super::trees::TreeName;
use super::{EmbeddedStore, JOURNAL_DIR, KeepCopy, LogId, Shared, Sync, TREES_DIR, VERIFY_BYTES_MAX};
use super::{format, migrate, tables};
use crate::log::commit::Orderer;
use crate::log::journal::tail::{self, TailFile};
use crate::log::{LogKind, StoreError};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// One defect of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// The log, or the file or tree if the defect belongs to no log.
    pub at: String,
    /// The entry of `at`.
    pub entry: String,
    pub what: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.entry, self.what)
    }
}

/// A data directory under inspection. It is locked, so no server can start on it meanwhile.
pub struct StoreInspection {
    store: Arc<EmbeddedStore>,
    format: u32,
    _copy: TempDir,
    _lock: Option<File>,
}

impl StoreInspection {
    /// Opens a copy of the data directory.
    ///
    /// Returns the findings instead if files are damaged: then no store can be opened.
    ///
    /// # Errors
    /// `Locked` when a server has it open; `Unsupported` when a newer version wrote it; `Failed` when the directory has no store, or when copying fails.
    pub fn open(dir: &Path) -> Result<Result<Self, Vec<Defect>>, StoreError> {
        let failed = |e: std::io::Error| StoreError::failed("copying the data directory", &e);
        let found = match format::read(dir) {
            Ok(found) => found,
            Err(error) => return file_defect(&error, dir, dir).map(|finding| Err(vec![finding])).ok_or(error),
        };
        let format = found.unwrap_or(format::FIRST);
        let (trees, locked, entries) = match format >= format::FIRST_WITH_TREES {
            true => (dir.join(TREES_DIR), dir.join(JOURNAL_DIR), format::ENTRIES),
            false => (migrate::old_tables(dir), dir.to_owned(), format::OLD_ENTRIES),
        };
        if !trees.is_dir() {
            return Err(StoreError::failed("opening the store", &"the directory contains no store"));
        }
        // Without a tail file the directory cannot be locked, and the missing file is a finding.
        let lock = if locked.join(tail::FILE).exists() { Some(TailFile::lock(&locked)?) } else { None };
        let (listed, damaged) = tables::verify_all(&trees)?;
        if !damaged.is_empty() {
            return Ok(Err(damaged.into_iter().filter_map(|error| file_defect(&error, dir, dir)).collect()));
        }
        let copy = tempfile::tempdir().map_err(failed)?;
        for entry in entries {
            copy_entry(&dir.join(entry), &copy.path().join(entry), &trees).map_err(failed)?;
        }
        for file in &listed {
            let place = copy.path().join(file.strip_prefix(dir).unwrap_or(file));
            let original = std::path::absolute(file).map_err(failed)?;
            std::os::unix::fs::symlink(original, place).map_err(failed)?;
        }
        let opened = EmbeddedStore::open_checking(copy.path(), Sync::Never, VERIFY_BYTES_MAX, KeepCopy::No);
        let opened = opened.and_then(|(store, journal)| pollster::block_on(Orderer::open(Arc::new(store), Arc::new(journal))));
        match opened.map(|orderer| orderer.store().clone()) {
            Ok(store) => Ok(Ok(Self { store, format, _copy: copy, _lock: lock })),
            Err(error) => file_defect(&error, copy.path(), dir).map(|finding| Err(vec![finding])).ok_or(error),
        }
    }

    /// The store, as a server would open it.
    #[must_use]
    pub fn store(&self) -> &EmbeddedStore {
        &self.store
    }

    /// The format of the directory, which a server may migrate.
    #[must_use]
    pub const fn format(&self) -> u32 {
        self.format
    }

    /// The contradictions between the trees.
    ///
    /// # Errors
    /// [`StoreError`] when a tree cannot be read.
    pub fn findings(&self) -> Result<Vec<Defect>, StoreError> {
        self.store.shared.examine()
    }
}

/// The finding for a damaged file, by its path in the original directory.
fn file_defect(error: &StoreError, seen: &Path, original: &Path) -> Option<Defect> {
    let StoreError::Corrupt { path, what } = error else { return None };
    let path = path.strip_prefix(seen).map_or_else(|_| path.clone(), |inner| original.join(inner));
    Some(Defect { at: path.display().to_string(), entry: "file".into(), what: what.clone() })
}

/// Copies a file, or a directory without the table and body files, which lie two levels below `trees`.
fn copy_entry(from: &Path, to: &Path, trees: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        std::fs::create_dir(to)?;
        for entry in from.read_dir()? {
            let name = entry?.file_name();
            copy_entry(&from.join(&name), &to.join(&name), trees)?;
        }
    } else if from.exists() && from.ancestors().nth(3) != Some(trees) {
        std::fs::copy(from, to)?;
    }
    Ok(())
}

impl Shared {
    /// Checks every entry of every tree against the others.
    fn examine(&self) -> Result<Vec<Defect>, StoreError> {
        let mut found = Vec::new();
        let logs = self.examine_names(&mut found)?;
        let log = |number: u64| logs.get(&number).map_or_else(|| format!("log number {number}"), ToString::to_string);
        let snapshot = self.trees.snapshot();
        let is_tombstoned =
            |number: u64| Ok::<_, StoreError>(self.get(&snapshot, TreeName::Names, &tombstone_key(number))?.is_some());

        // Every append's rows must exist, and belong to one append only. Those of an erased log may be deleted already.
        let mut claimed = Vec::new();
        for entry in snapshot.iter(TreeName::Index) {
            let (key, value) = self.entry(TreeName::Index, entry)?;
            let (Some(number), Some(place)) = (key.get(..8).and_then(number_of), index_entry_of(&key, &value)) else {
                found.push(stray_entry(TreeName::Index, &key));
                continue;
            };
            let is_erased = is_tombstoned(number)?;
            if !logs.contains_key(&number) && !is_erased {
                found.push(Defect { at: log(number), entry: "index".into(), what: "it belongs to no named log".into() });
            }
            if place.empty_to.is_none() {
                claimed.push((place.position, number, place.last, is_erased));
            }
        }
        claimed.sort_unstable();
        let mut rows = snapshot.iter(TreeName::Rows).map(|entry| {
            let key = self.key(TreeName::Rows, entry)?;
            Ok::<_, StoreError>(number_of(&key).unwrap_or(u64::MAX))
        });
        let mut next = rows.next().transpose()?;
        for (position, number, last, is_erased) in claimed {
            while let Some(unclaimed) = next.filter(|there| *there < position) {
                found.push(unclaimed_rows(unclaimed));
                next = rows.next().transpose()?;
            }
            if next == Some(position) {
                next = rows.next().transpose()?;
            } else if !is_erased {
                let what = format!("its rows, at position {position}, are missing or belong to another append too");
                found.push(Defect { at: log(number), entry: format!("append up to sequence {last}"), what });
            }
        }
        while let Some(unclaimed) = next {
            found.push(unclaimed_rows(unclaimed));
            next = rows.next().transpose()?;
        }

        for entry in snapshot.iter(TreeName::State) {
            let key = self.key(TreeName::State, entry)?;
            match key.get(..8).and_then(number_of) {
                Some(number) if logs.contains_key(&number) || is_tombstoned(number)? => {}
                _ => found.push(stray_entry(TreeName::State, &key)),
            }
        }
        for entry in snapshot.iter(TreeName::Bodies) {
            let (key, value) = self.entry(TreeName::Bodies, entry)?;
            let Some((number, id)) = key.split_at_checked(8).and_then(|(number, id)| Some((number_of(number)?, id))) else {
                found.push(stray_entry(TreeName::Bodies, &key));
                continue;
            };
            if is_tombstoned(number)? {
                continue;
            }
            if !logs.contains_key(&number) {
                found.push(stray_entry(TreeName::Bodies, &key));
            } else if id.first() != Some(&0) && body_of(&value).is_none() {
                found.push(Defect {
                    at: log(number),
                    entry: format!("body {}", printable(id)),
                    what: "it cannot be read".into(),
                });
            } else if id.first() != Some(&0) && self.get(&snapshot, TreeName::Names, &body_name_key(id))?.is_none() {
                found.push(Defect { at: log(number), entry: format!("body {}", printable(id)), what: "it has no name".into() });
            }
        }
        Ok(found)
    }

    /// The logs by number. Checks that both names of each log agree.
    fn examine_names(&self, found: &mut Vec<Defect>) -> Result<BTreeMap<u64, LogId>, StoreError> {
        let snapshot = self.trees.snapshot();
        let (mut logs, mut named) = (BTreeMap::new(), HashSet::new());
        for entry in snapshot.prefix(TreeName::Names, b"c") {
            let (key, value) = self.entry(TreeName::Names, entry)?;
            let kind = match key.get(1) {
                Some(b'r') => Some(LogKind::Run),
                Some(b's') => Some(LogKind::Session),
                _ => None,
            };
            let read = kind.and_then(|kind| Some((number_of(key.get(2..)?)?, created_of(kind, &value)?)));
            let Some((number, (epoch, log))) = read else {
                found.push(stray_entry(TreeName::Names, &key));
                continue;
            };
            let name = self.get(&snapshot, TreeName::Names, &name_key(&log))?;
            if name.as_deref().and_then(name_of) != Some((number, epoch)) {
                let what = "the list of logs has another number or epoch for it than its name".into();
                found.push(Defect { at: log.to_string(), entry: "name".into(), what });
            }
            named.insert(name_key(&log));
            logs.insert(number, log);
        }
        for entry in snapshot.prefix(TreeName::Names, b"n") {
            let key = self.key(TreeName::Names, entry)?;
            if !named.contains(&key[..]) {
                let what = "it is not in the list of logs".into();
                found.push(Defect {
                    at: format!("log {}", printable(key.get(2..).unwrap_or_default())),
                    entry: "name".into(),
                    what,
                });
            }
        }
        for entry in snapshot.prefix(TreeName::Names, b"b") {
            let (key, value) = self.entry(TreeName::Names, entry)?;
            let body = number_of(&value).map(|number| (number, log_key(number, &key[1..])));
            let is_there = match body {
                Some((number, body)) => {
                    self.get(&snapshot, TreeName::Names, &tombstone_key(number))?.is_some()
                        || self.get(&snapshot, TreeName::Bodies, &body)?.is_some()
                }
                None => false,
            };
            if !is_there {
                let at =
                    number_of(&value).and_then(|number| logs.get(&number)).map_or_else(|| "names".into(), ToString::to_string);
                found.push(Defect { at, entry: format!("body {}", printable(&key[1..])), what: "it is missing".into() });
            }
        }
        Ok(logs)
    }
}

fn unclaimed_rows(position: u64) -> Defect {
    Defect { at: "rows".into(), entry: format!("position {position}"), what: "no log's index refers to it".into() }
}

/// The finding for an entry that belongs to no log or that this store did not write.
fn stray_entry(of: TreeName, key: &[u8]) -> Defect {
    Defect { at: format!("tree {}", of.as_str()), entry: format!("key {}", printable(key)), what: "it belongs to no log".into() }
}

/// A key for display: text if it is printable, otherwise hexadecimal.
fn printable(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => data_encoding::HEXLOWER.encode(key),
    }
}

#[cfg(test)]
mod tests {
    use super::super::index_key;
    use super::super::trees::Batch;
    use super::*;
    use crate::log::testing::on_disk;
    use crate::log::{Append, Blob, META};
    use crate::model::{BlobId, Epoch, RunId, Sequence};
    use bytes::Bytes;

    fn append(log: &str, expected: u64) -> Append {
        let id = BlobId::new(&format!("{log}{expected}")).unwrap();
        Append {
            log: LogId::Run(RunId::new(log).unwrap()),
            epoch: Epoch::from_random(1),
            expected: Sequence(expected),
            last: Sequence(expected + 1),
            rows: Bytes::from("rows"),
            blobs: vec![Blob { id, meta: Bytes::from("m"), body: Bytes::new() }],
            state: vec![(Bytes::from_static(META), Some(Bytes::from("{}")))],
        }
    }

    /// The findings after `damage` was written, bypassing the code that keeps the trees consistent.
    fn found(damage: impl Fn(&mut Batch)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let store = on_disk(dir.path(), Sync::Never).unwrap();
        let appends = [append("a", 0), append("a", 1), append("b", 0), append("gone", 0)];
        store.commit(&appends).unwrap();
        store.erase(&appends[3].log).unwrap();
        let mut batch = Batch::derived();
        damage(&mut batch);
        store.shared.trees.write(batch);
        store.persist().unwrap();
        drop(store);
        let examined = StoreInspection::open(dir.path()).unwrap().ok().unwrap();
        examined.findings().unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn contradicting_trees_are_found_whichever_side_is_wrong() {
        let nothing = found(|_| {});
        assert!(nothing.is_empty(), "{nothing:?}");
        let a = LogId::Run(RunId::new("a").unwrap());
        let of = |number: u64| number.to_be_bytes();
        let check = |damage: &dyn Fn(&mut Batch), expected: &[&str]| {
            let found = found(damage);
            assert_eq!(found.len(), expected.len(), "{found:?} instead of {expected:?}");
            for (line, begins) in found.iter().zip(expected) {
                assert!(line.starts_with(begins), "{line} instead of {begins}");
            }
        };
        check(&|batch| batch.remove(TreeName::Rows, of(2)), &["run a: append up to sequence 2: its rows, at position 2"]);
        check(&|batch| batch.insert(TreeName::Rows, of(9), "rows"), &["rows: position 9: "]);
        check(&|batch| batch.remove(TreeName::Index, index_key(1, Sequence(1))), &["rows: position 1: "]);
        let shared = |batch: &mut Batch| {
            batch.insert(TreeName::Index, index_key(2, Sequence(1)), of(2));
        };
        check(&shared, &["run b: append up to sequence 1: its rows, at position 2", "rows: position 3: "]);
        let unowned = |batch: &mut Batch| batch.insert(TreeName::State, log_key(77, b"m"), "{}");
        check(&unowned, &["tree state: key 000000000000004d6d: it belongs to no log"]);
        check(&|batch| batch.remove(TreeName::Bodies, log_key(1, b"a0")), &["run a: body a0: it is missing"]);
        check(&|batch| batch.insert(TreeName::Bodies, log_key(1, b"a0"), "x"), &["run a: body a0: it cannot be read"]);
        check(&|batch| batch.remove(TreeName::Names, body_name_key(b"a0")), &["run a: body a0: it has no name"]);
        check(&|batch| batch.remove(TreeName::Names, name_key(&a)), &["run a: name: "]);
        let unlisted = |batch: &mut Batch| {
            let c = LogId::Run(RunId::new("c").unwrap());
            batch.insert(TreeName::Names, name_key(&c), [of(9), of(1)].concat());
        };
        check(&unlisted, &["log c: name: it is not in the list of logs"]);
    }
}
