//! What is wrong in a data directory that no server has open. Nothing in it is changed.
//!
//! The engine cannot open a store without writing: it recovers journals, and takes up its upkeep. So it opens a copy in a
//! temporary directory, in which the files that are never written again, and they are nearly all of it, are links to the
//! originals. What the store promises about its keyspaces is checked here; what is in rows, state entries and bodies is not the
//! store's to interpret.

use super::tail::Tail;
use super::{EmbeddedStore, LogId, Shared, Sync, body_name_key, body_of, created_of, dead_key, name_key, name_of, number_of};
use super::{tables, under};
use crate::log::{LogKind, StoreError};
use fjall::{Keyspace, Readable};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// One thing that is wrong in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The log, or the file or keyspace where it is of none.
    pub at: String,
    /// What of it.
    pub entry: String,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.entry, self.what)
    }
}

/// A data directory that is being examined. It is locked: no server can be started on it meanwhile.
pub struct Examined {
    store: EmbeddedStore,
    _copy: TempDir,
    _lock: Option<File>,
}

impl Examined {
    /// Opens a copy of the data directory; or the damaged files, where there are any: then there is no store to look into.
    ///
    /// # Errors
    /// `Locked` when a server has it, `Failed` when there is no store or no copy can be made.
    pub fn open(dir: &Path) -> Result<Result<Self, Vec<Finding>>, StoreError> {
        let failed = |e: std::io::Error| StoreError::failed("copying the data directory", &e);
        let keyspaces = dir.join("log").join("keyspaces");
        if !keyspaces.is_dir() {
            return Err(StoreError::failed("opening the store", &"there is none in the directory"));
        }
        // Without a tail file there is nothing to lock, and something to find.
        let lock = if dir.join("tail").exists() { Some(Tail::lock(dir)?) } else { None };
        let (listed, damaged) = tables::examine(&keyspaces)?;
        if !damaged.is_empty() {
            return Ok(Err(damaged.into_iter().filter_map(|error| of_file(&error, dir, dir)).collect()));
        }
        let copy = tempfile::tempdir().map_err(failed)?;
        copy_dir(dir, copy.path(), &keyspaces).map_err(failed)?;
        for file in &listed {
            let place = copy.path().join(file.strip_prefix(dir).unwrap_or(file));
            let original = std::path::absolute(file).map_err(failed)?;
            std::os::unix::fs::symlink(original, place).map_err(failed)?;
        }
        match EmbeddedStore::open(copy.path(), Sync::Never) {
            Ok(store) => Ok(Ok(Self { store, _copy: copy, _lock: lock })),
            Err(error) => of_file(&error, copy.path(), dir).map(|finding| Err(vec![finding])).ok_or(error),
        }
    }

    /// The store, as a server would have it.
    #[must_use]
    pub const fn store(&self) -> &EmbeddedStore {
        &self.store
    }

    /// What of the keyspaces contradicts itself.
    ///
    /// # Errors
    /// [`StoreError`], when they cannot be read.
    pub fn findings(&self) -> Result<Vec<Finding>, StoreError> {
        self.store.shared.examine()
    }
}

/// A damaged file, by its name in the original directory.
fn of_file(error: &StoreError, seen: &Path, original: &Path) -> Option<Finding> {
    let StoreError::Rot { path, what } = error else { return None };
    let path = path.strip_prefix(seen).map_or_else(|_| path.clone(), |inner| original.join(inner));
    Some(Finding { at: path.display().to_string(), entry: "file".into(), what: what.clone() })
}

/// Copies a directory without the files of tables and bodies, which lie two below `keyspaces`.
fn copy_dir(from: &Path, to: &Path, keyspaces: &Path) -> std::io::Result<()> {
    for entry in from.read_dir()? {
        let entry = entry?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&place)?;
            copy_dir(&path, &place, keyspaces)?;
        } else if from.parent().and_then(Path::parent) != Some(keyspaces) {
            std::fs::copy(&path, &place)?;
        }
    }
    Ok(())
}

impl Shared {
    /// Every entry of every keyspace against the others.
    fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        let mut found = Vec::new();
        let logs = self.examine_names(&mut found)?;
        let log = |number: u64| logs.get(&number).map_or_else(|| format!("log number {number}"), ToString::to_string);
        let snapshot = self.db.snapshot();
        let is_dead = |number: u64| Ok::<_, StoreError>(self.get(&snapshot, &self.names, &dead_key(number))?.is_some());

        // Where the rows of each append are: found once, and only there.
        let mut claimed = Vec::new();
        for entry in snapshot.iter(&self.index) {
            let (key, value) = self.entry(entry)?;
            let (Some(number), Some(place)) = (key.get(..8).and_then(number_of), self.place_of(&key, &value)) else {
                found.push(stray(&self.index, &key));
                continue;
            };
            if !logs.contains_key(&number) && !is_dead(number)? {
                found.push(Finding { at: log(number), entry: "index".into(), what: "it is of no log that has a name".into() });
            }
            if place.empty_to.is_none() {
                claimed.push((place.position, number, place.last));
            }
        }
        claimed.sort_unstable();
        let mut rows = snapshot.iter(&self.rows).map(|entry| {
            let key = entry.key().map_err(|e| self.fault("reading the store", &e))?;
            Ok::<_, StoreError>(number_of(&key).unwrap_or(u64::MAX))
        });
        let mut next = rows.next().transpose()?;
        for (position, number, last) in claimed {
            while let Some(unclaimed) = next.filter(|there| *there < position) {
                found.push(unclaimed_rows(unclaimed));
                next = rows.next().transpose()?;
            }
            if next == Some(position) {
                next = rows.next().transpose()?;
            } else {
                let what = format!("its rows, at position {position}, are missing or also another append's");
                found.push(Finding { at: log(number), entry: format!("append up to sequence {last}"), what });
            }
        }
        while let Some(unclaimed) = next {
            found.push(unclaimed_rows(unclaimed));
            next = rows.next().transpose()?;
        }

        for entry in snapshot.iter(&self.state) {
            let key = entry.key().map_err(|e| self.fault("reading the store", &e))?;
            match key.get(..8).and_then(number_of) {
                Some(number) if logs.contains_key(&number) || is_dead(number)? => {}
                _ => found.push(stray(&self.state, &key)),
            }
        }
        for entry in snapshot.iter(&self.bodies) {
            let (key, value) = self.entry(entry)?;
            let Some((number, id)) = key.split_at_checked(8).and_then(|(number, id)| Some((number_of(number)?, id))) else {
                found.push(stray(&self.bodies, &key));
                continue;
            };
            if is_dead(number)? {
                continue;
            }
            if !logs.contains_key(&number) {
                found.push(stray(&self.bodies, &key));
            } else if id.first() != Some(&0) && body_of(&value).is_none() {
                found.push(Finding { at: log(number), entry: format!("body {}", shown(id)), what: "it cannot be read".into() });
            } else if id.first() != Some(&0) && self.get(&snapshot, &self.names, &body_name_key(id))?.is_none() {
                found.push(Finding { at: log(number), entry: format!("body {}", shown(id)), what: "it has no name".into() });
            }
        }
        Ok(found)
    }

    /// The logs by their numbers, by both of their names, which agree.
    fn examine_names(&self, found: &mut Vec<Finding>) -> Result<BTreeMap<u64, LogId>, StoreError> {
        let snapshot = self.db.snapshot();
        let (mut logs, mut named) = (BTreeMap::new(), HashSet::new());
        for entry in snapshot.prefix(&self.names, b"c") {
            let (key, value) = self.entry(entry)?;
            let kind = match key.get(1) {
                Some(b'r') => Some(LogKind::Run),
                Some(b's') => Some(LogKind::Session),
                _ => None,
            };
            let read = kind.and_then(|kind| Some((number_of(key.get(2..)?)?, created_of(kind, &value)?)));
            let Some((number, (epoch, log))) = read else {
                found.push(stray(&self.names, &key));
                continue;
            };
            let name = self.get(&snapshot, &self.names, &name_key(&log))?;
            if name.as_deref().and_then(name_of) != Some((number, epoch)) {
                let what = "the list of logs has it with another number or epoch than its name".into();
                found.push(Finding { at: log.to_string(), entry: "name".into(), what });
            }
            named.insert(name_key(&log));
            logs.insert(number, log);
        }
        for entry in snapshot.prefix(&self.names, b"n") {
            let key = entry.key().map_err(|e| self.fault("reading the store", &e))?;
            if !named.contains(&key[..]) {
                let what = "it is in no list of logs".into();
                found.push(Finding {
                    at: format!("log {}", shown(key.get(2..).unwrap_or_default())),
                    entry: "name".into(),
                    what,
                });
            }
        }
        for entry in snapshot.prefix(&self.names, b"b") {
            let (key, value) = self.entry(entry)?;
            let body = number_of(&value).map(|number| (number, under(number, &key[1..])));
            let is_there = match body {
                Some((number, body)) => {
                    self.get(&snapshot, &self.names, &dead_key(number))?.is_some()
                        || self.get(&snapshot, &self.bodies, &body)?.is_some()
                }
                None => false,
            };
            if !is_there {
                let at =
                    number_of(&value).and_then(|number| logs.get(&number)).map_or_else(|| "names".into(), ToString::to_string);
                found.push(Finding { at, entry: format!("body {}", shown(&key[1..])), what: "it is missing".into() });
            }
        }
        Ok(logs)
    }
}

fn unclaimed_rows(position: u64) -> Finding {
    Finding { at: "rows".into(), entry: format!("position {position}"), what: "the index of no log leads there".into() }
}

/// An entry that nothing leads to, or that is none of ours.
fn stray(of: &Keyspace, key: &[u8]) -> Finding {
    Finding { at: format!("keyspace {}", of.name()), entry: format!("key {}", shown(key)), what: "it is of no log".into() }
}

/// A key for people: as text where it is that.
fn shown(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => data_encoding::HEXLOWER.encode(key),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OwnedWriteBatch, index_key};
    use super::*;
    use crate::log::{Append, Blob, META, Store};
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
            blobs: vec![Blob { id, meta: Bytes::new(), body: Bytes::new() }],
            state: vec![(Bytes::from_static(META), Some(Bytes::from("{}")))],
        }
    }

    /// What is found after this was written past everything that keeps the keyspaces in agreement.
    fn found(damage: impl Fn(&Shared, &mut OwnedWriteBatch)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), Sync::Never).unwrap();
        let appends = [append("a", 0), append("a", 1), append("b", 0), append("gone", 0)];
        pollster::block_on(store.commit(&appends)).unwrap();
        pollster::block_on(store.erase(&appends[3].log)).unwrap();
        let mut batch = OwnedWriteBatch::with_capacity(store.shared.db.clone(), 4);
        damage(&store.shared, &mut batch);
        let mut writer = store.shared.writer.lock();
        let seal = writer.seal;
        store.shared.write(&mut writer, batch, seal, true).unwrap();
        drop(writer);
        drop(store);
        let examined = Examined::open(dir.path()).unwrap().ok().unwrap();
        examined.findings().unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keyspaces_that_disagree_are_found_whichever_side_is_wrong() {
        let nothing = found(|_, _| {});
        assert!(nothing.is_empty(), "{nothing:?}");
        let a = LogId::Run(RunId::new("a").unwrap());
        let of = |number: u64| number.to_be_bytes();
        let check = |damage: &dyn Fn(&Shared, &mut OwnedWriteBatch), expected: &[&str]| {
            let found = found(damage);
            assert_eq!(found.len(), expected.len(), "{found:?}, and not {expected:?}");
            for (line, begins) in found.iter().zip(expected) {
                assert!(line.starts_with(begins), "{line}, and not {begins}");
            }
        };
        check(
            &|of_store, batch| batch.remove(&of_store.rows, of(2)),
            &["run a: append up to sequence 2: its rows, at position 2"],
        );
        check(&|of_store, batch| batch.insert(&of_store.rows, of(9), "rows"), &["rows: position 9: "]);
        check(&|of_store, batch| batch.remove(&of_store.index, index_key(1, Sequence(1))), &["rows: position 1: "]);
        let shared = |of_store: &Shared, batch: &mut OwnedWriteBatch| {
            batch.insert(&of_store.index, index_key(2, Sequence(1)), of(2));
        };
        check(&shared, &["run b: append up to sequence 1: its rows, at position 2", "rows: position 3: "]);
        let nobodys = |of_store: &Shared, batch: &mut OwnedWriteBatch| batch.insert(&of_store.state, under(77, b"m"), "{}");
        check(&nobodys, &["keyspace state: key 000000000000004d6d: it is of no log"]);
        check(&|of_store, batch| batch.remove(&of_store.bodies, under(1, b"a0")), &["run a: body a0: it is missing"]);
        check(&|of_store, batch| batch.insert(&of_store.bodies, under(1, b"a0"), "x"), &["run a: body a0: it cannot be read"]);
        check(&|of_store, batch| batch.remove(&of_store.names, body_name_key(b"a0")), &["run a: body a0: it has no name"]);
        check(&|of_store, batch| batch.remove(&of_store.names, name_key(&a)), &["run a: name: "]);
        let unlisted = |of_store: &Shared, batch: &mut OwnedWriteBatch| {
            let c = LogId::Run(RunId::new("c").unwrap());
            batch.insert(&of_store.names, name_key(&c), [of(9), of(1)].concat());
        };
        check(&unlisted, &["log c: name: it is in no list of logs"]);
    }
}
