//! The table: batches on disk, as entries of an LSM tree in a directory of their own.
//!
//! ```text
//! audiences:1..=7  word  0  batch:u32 save:u32  → the numbers of its parts in the batch that have the word  big-endian
//! 0 d batch:u32 save:u32                        → the places of its parts
//! 0 o                                           → the texts that were open at the last save
//! 0 p                                           → how far the index is
//! ```
//! Several saves make a batch. No save reads what an earlier one wrote, and each writes its entries in order, past the memory
//! table of the engine: as a lookup and an insertion for each word, a save took as long as the splitting of the texts into words.
//!
//! A word's audiences come first. So a search reads no entry that only other audiences may see, and its time tells
//! nothing of them. What one save adds becomes one table file, which is there after a crash or is not.

use super::batch::{BATCH_PARTS_MAX, PartPlace, PartSet, Postings, TextBatch, decode_places, encode_places, word_key};
use super::parts::AudienceSet;
use super::words::WordQuery;
use crate::log::LogKind;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy};
use lsm_tree::{AbstractTree, AnyTree, Cache, CompressionType, Config, Guard, SeqNo, SequenceNumberCounter};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The form of the entries. An index in another form is made anew.
const FORM: u32 = 2;
const POSITION_KEY: &[u8] = b"\0p";
const OPEN_KEY: &[u8] = b"\0o";
const PLACES_PREFIX: &[u8] = b"\0d";
const CACHE_BYTES: u64 = 16 << 20;
/// Blocks are larger than usual: neighbouring words compress well.
const BLOCK_BYTES: u32 = 16 << 10;
/// The entries that a search reads for the beginning of a word, for each set of audiences. Later words are not found by it.
pub const BEGINNING_ENTRIES_MAX: usize = 8192;
/// Entries that a removal rewrites in memory before it writes them to a table.
const REWRITTEN_BYTES_MAX: usize = 8 << 20;
/// The size of the files that a removal makes.
const REWRITTEN_TABLE_BYTES: u64 = 64 << 20;

/// Why the table cannot be used. The index is then made anew.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("{0:?}")]
    Engine(#[from] lsm_tree::Error),
    #[error("an entry is damaged")]
    Damaged,
    #[error("it has another form")]
    OtherForm,
    #[error("the engine cannot open it")]
    Panicked,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// How far the index is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    form: u32,
    /// The epoch of the store.
    pub epoch: u64,
    /// The position of the last commit that is indexed.
    pub position: u64,
    /// The batch that the next save adds to, its saves and its parts.
    batch: u32,
    saves: u32,
    parts: usize,
}

/// The index on disk. One thread at a time may change it, while others read.
pub struct Table {
    dir: PathBuf,
    tree: AnyTree,
    next: SequenceNumberCounter,
    progress: Mutex<Progress>,
}

/// The key of what one save adds to a batch. `prefix`: of the places, or of a word.
fn batch_key(prefix: &[u8], batch: u32, save: u32) -> Vec<u8> {
    [prefix, &batch.to_be_bytes(), &save.to_be_bytes()].concat()
}

fn batch_of(key: &[u8]) -> Option<u32> {
    key.last_chunk::<8>().and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_be_bytes(*bytes))
}

impl Table {
    /// Opens the index in `dir`, or begins an empty one.
    ///
    /// # Errors
    /// [`TableError`] when it cannot be used.
    pub fn open(dir: &Path) -> Result<Self, TableError> {
        // The engine asserts some of the data that it reads.
        catch_unwind(AssertUnwindSafe(|| Self::open_tree(dir))).unwrap_or(Err(TableError::Panicked))
    }

    fn open_tree(dir: &Path) -> Result<Self, TableError> {
        let next = SequenceNumberCounter::new(1);
        // A search reads ranges of keys, which no filter rejects.
        let tree = Config::new(dir, next.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .filter_policy(FilterPolicy::disabled())
            .index_block_partitioning_policy(PartitioningPolicy::all(true))
            .open()?;
        next.fetch_max(tree.get_highest_persisted_seqno().map_or(1, |last| last + 1));
        let mut progress = Progress { form: FORM, ..Progress::default() };
        if let Some(saved) = tree.get(POSITION_KEY, SeqNo::MAX)? {
            progress = serde_json::from_slice(&saved).map_err(|_| TableError::Damaged)?;
        }
        if progress.form != FORM {
            return Err(TableError::OtherForm);
        }
        Ok(Self { dir: dir.to_owned(), tree, next, progress: Mutex::new(progress) })
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        *self.progress.lock()
    }

    /// The texts that were open at the last save.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn open_texts<T: for<'t> Deserialize<'t>>(&self) -> Result<Option<T>, TableError> {
        let Some(saved) = self.tree.get(OPEN_KEY, SeqNo::MAX)? else { return Ok(None) };
        serde_json::from_slice(&saved).map(Some).map_err(|_| TableError::Damaged)
    }

    /// Adds a batch durably, with how far the index then is and the texts that are open there.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn save(&self, batch: &TextBatch, epoch: u64, position: u64, open: &impl Serialize) -> Result<(), TableError> {
        let mut progress = Progress { epoch, position, ..self.progress() };
        if progress.parts + batch.places.len() > BATCH_PARTS_MAX {
            (progress.batch, progress.saves, progress.parts) = (progress.batch + 1, 0, 0);
        }
        let (number, save, base) = (progress.batch, progress.saves, progress.parts as u64);
        progress.saves += 1;
        progress.parts += batch.places.len();
        let mut entries = self.tree.ingestion()?;
        if !batch.places.is_empty() {
            entries.write(batch_key(PLACES_PREFIX, number, save), encode_places(&batch.places))?;
        }
        entries.write(OPEN_KEY, serde_json::to_vec(open).expect("plain data"))?;
        entries.write(POSITION_KEY, serde_json::to_vec(&progress).expect("plain data"))?;
        let mut words: Vec<_> = batch.postings.iter().collect();
        words.sort_unstable_by_key(|(word, _)| *word);
        let mut prefix = Vec::new();
        for (word, postings) in words {
            prefix.clear();
            prefix.extend_from_slice(word);
            prefix.push(0);
            entries.write(batch_key(&prefix, number, save), postings.after_others(base))?;
        }
        entries.finish()?;
        *self.progress.lock() = progress;
        self.tree.compact(Arc::new(Leveled::default()), self.next.get())?;
        self.release()
    }

    /// Writes what is in memory to a table file.
    fn write(&self) -> Result<(), TableError> {
        self.tree.rotate_memtable();
        self.tree.flush(&self.tree.get_flush_lock(), self.next.get())?;
        Ok(())
    }

    /// Lets go of files that were merged.
    fn release(&self) -> Result<(), TableError> {
        self.tree.get_version_history_lock().maintenance(&self.dir, self.next.get())?;
        Ok(())
    }

    /// The size of its files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.tree.disk_space()
    }

    /// The parts that match, by batch, with their places.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn find(&self, query: &WordQuery, audience: AudienceSet) -> Result<Vec<(Vec<PartPlace>, PartSet)>, TableError> {
        let mut found: Option<BTreeMap<u32, PartSet>> = None;
        for word in query.words() {
            let mut sets = BTreeMap::<u32, PartSet>::new();
            for audiences in (1..=7).filter(|audiences| audiences & audience != 0) {
                let key = word_key(audiences, &word.word);
                let (entries, max) = match word.is_beginning {
                    true => (self.tree.prefix(&key, SeqNo::MAX, None), BEGINNING_ENTRIES_MAX),
                    false => (self.tree.prefix([&key[..], &[0]].concat(), SeqNo::MAX, None), usize::MAX),
                };
                for entry in entries.take(max) {
                    let (key, value) = entry.into_inner()?;
                    let batch = batch_of(&key).ok_or(TableError::Damaged)?;
                    if found.as_ref().is_none_or(|found| found.contains_key(&batch))
                        && !sets.entry(batch).or_default().add(&value)
                    {
                        return Err(TableError::Damaged);
                    }
                }
            }
            if let Some(found) = &found {
                for (batch, set) in &mut sets {
                    set.intersect(&found[batch]);
                }
                sets.retain(|_, set| !set.is_empty());
            }
            if sets.is_empty() {
                return Ok(Vec::new());
            }
            found = Some(sets);
        }
        let mut all = Vec::new();
        for (batch, set) in found.unwrap_or_default() {
            let mut places = Vec::new();
            for entry in self.tree.prefix([PLACES_PREFIX, &batch.to_be_bytes()].concat(), SeqNo::MAX, None) {
                places.extend(decode_places(&entry.into_inner()?.1).ok_or(TableError::Damaged)?);
            }
            all.push((places, set));
        }
        Ok(all)
    }

    /// All logs that it has parts of.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn logs(&self) -> Result<HashMap<u64, LogKind>, TableError> {
        let mut logs = HashMap::new();
        for entry in self.tree.prefix(PLACES_PREFIX, SeqNo::MAX, None) {
            let (_, value) = entry.into_inner()?;
            let places = decode_places(&value).ok_or(TableError::Damaged)?;
            logs.extend(places.into_iter().map(|place| (place.log, place.log_kind)));
        }
        Ok(logs)
    }

    /// Removes the parts of logs from every file.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn remove(&self, is_gone: impl Fn(&PartPlace) -> bool, open: &impl Serialize) -> Result<(), TableError> {
        let mut gone: HashMap<u32, Vec<bool>> = HashMap::new();
        let mut changed = vec![(OPEN_KEY.to_vec(), Some(serde_json::to_vec(open).expect("plain data")))];
        for entry in self.tree.prefix(PLACES_PREFIX, SeqNo::MAX, None) {
            let (key, value) = entry.into_inner()?;
            let mut places = decode_places(&value).ok_or(TableError::Damaged)?;
            let marks: Vec<bool> = places.iter().map(|place| place.log != 0 && is_gone(place)).collect();
            // In the order of the saves, as the parts are numbered.
            gone.entry(batch_of(&key).ok_or(TableError::Damaged)?).or_default().extend(&marks);
            if marks.contains(&true) {
                for (place, _) in places.iter_mut().zip(&marks).filter(|(_, gone)| **gone) {
                    place.log = 0;
                }
                changed.push((key.to_vec(), Some(encode_places(&places))));
            }
        }
        let mut bytes = 0;
        gone.retain(|_, marks| marks.contains(&true));
        if !gone.is_empty() {
            for entry in self.tree.range::<&[u8], _>(&[1_u8][..].., SeqNo::MAX, None) {
                let (key, value) = entry.into_inner()?;
                let Some(marks) = batch_of(&key).and_then(|batch| gone.get(&batch)) else { continue };
                let postings = Postings::decode(&value).ok_or(TableError::Damaged)?;
                let is_gone = |number: u64| usize::try_from(number).is_ok_and(|number| marks.get(number) == Some(&true));
                let Some(kept) = postings.without(is_gone) else { continue };
                bytes += key.len() + kept.as_bytes().len();
                let value = (!kept.as_bytes().is_empty()).then(|| kept.as_bytes().to_vec());
                changed.push((key.to_vec(), value));
                if bytes >= REWRITTEN_BYTES_MAX {
                    bytes = 0;
                    // The places are last: without them, a pass that a crash cut off begins again.
                    self.change(changed.extract_if(.., |(key, _)| key[0] != 0));
                    self.write()?;
                }
            }
        }
        self.change(changed.into_iter());
        self.write()?;
        // Also without a change: an earlier pass may have been cut off before its files were rewritten.
        if self.tree.table_count() > 0 {
            self.tree.major_compact(REWRITTEN_TABLE_BYTES, self.next.get())?;
        }
        self.release()
    }

    fn change(&self, entries: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) {
        let number = self.next.next();
        for (key, value) in entries {
            match value {
                Some(value) => self.tree.insert(key, value, number),
                None => self.tree.remove(key, number),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sequence;
    use crate::search::parts::{PartKind, TextPart};

    fn batch(parts: &[(u64, AudienceSet, &str)]) -> TextBatch {
        let mut batch = TextBatch::default();
        for (log, audiences, text) in parts {
            let (first, last) = (Sequence(*log), Sequence(*log));
            let part =
                TextPart { kind: PartKind::Message, audiences: *audiences, first, last, message: None, text: (*text).into() };
            batch.push(*log, LogKind::Run, &part);
        }
        batch
    }

    /// The logs that a search finds.
    fn found(table: &Table, query: &str, audience: AudienceSet) -> Vec<u64> {
        let all = table.find(&WordQuery::parse(query).unwrap(), audience).unwrap();
        let of = |(places, set): &(Vec<PartPlace>, PartSet)| set.iter().map(|number| places[number].log).collect::<Vec<_>>();
        all.iter().flat_map(of).collect()
    }

    fn has_bytes(dir: &Path, bytes: &[u8]) -> bool {
        dir.read_dir().unwrap().any(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() {
                has_bytes(&path, bytes)
            } else {
                memchr::memmem::find(&std::fs::read(&path).unwrap(), bytes).is_some()
            }
        })
    }

    #[test]
    fn saves_add_to_a_batch_and_an_opened_table_has_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Table::open(dir.path()).unwrap();
        let table = open();
        table.save(&batch(&[(1, 7, "alpha beta"), (2, 4, "alpha gamma")]), 9, 10, &["open"]).unwrap();
        table.save(&batch(&[(3, 7, "alpha gamma"), (4, 6, "alphabet")]), 9, 20, &["more"]).unwrap();
        drop(table);
        let table = open();
        let Progress { epoch, position, batch: number, parts, .. } = table.progress();
        assert_eq!((epoch, position, number, parts), (9, 20, 0, 4));
        assert_eq!(table.open_texts::<Vec<String>>().unwrap().unwrap(), ["more"]);
        assert_eq!(found(&table, "alpha ", 4), [1, 2, 3]);
        assert_eq!(found(&table, "alpha ", 1), [1, 3]);
        assert_eq!(found(&table, "alpha", 2), [1, 3, 4]);
        assert_eq!(found(&table, "gamma alpha", 1), [3]);
        // A batch that has no place for the next one is followed by another.
        let many: Vec<_> = (0..40_000).map(|n| (n + 10, 7, if n == 7 { "alpha" } else { "delta" })).collect();
        table.save(&batch(&many), 9, 30, &[""]).unwrap();
        table.save(&batch(&many), 9, 40, &[""]).unwrap();
        assert_eq!((table.progress().batch, table.progress().parts), (1, 40_000));
        assert_eq!(found(&table, "alpha ", 1), [1, 3, 17, 17]);
        assert_eq!(found(&table, "delta", 1).len(), 2 * 39_999);
    }

    #[test]
    fn the_words_of_removed_logs_are_in_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let table = Table::open(dir.path()).unwrap();
        let secret = "zyxwvutsrq";
        table.save(&batch(&[(1, 7, &format!("common {secret}")), (2, 7, "common kept")]), 1, 1, &[secret]).unwrap();
        table.save(&batch(&[(4, 7, "common kept"), (1, 7, secret)]), 1, 2, &[secret]).unwrap();
        assert!(has_bytes(dir.path(), secret.as_bytes()));
        table.remove(|place| place.log == 1, &[""]).unwrap();
        assert!(!has_bytes(dir.path(), secret.as_bytes()));
        assert_eq!((found(&table, "common", 1), found(&table, "kept", 1)), (vec![2, 4], vec![2, 4]));
        assert!(!table.logs().unwrap().contains_key(&1));
        table.save(&batch(&[(3, 7, "common later")]), 1, 3, &[""]).unwrap();
        assert_eq!(found(&table, "common", 1), [2, 4, 3]);
        drop(table);
        assert_eq!(found(&Table::open(dir.path()).unwrap(), "common", 1), [2, 4, 3]);
    }
}
