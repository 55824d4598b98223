//! Everything that can be read of a damaged store's files: entries of tables, block by block, and records of the journal.
//!
//! The engine refuses a table with one wrong byte in its table of contents, and stops at a block with one. Blocks have
//! checksums of their own, so each is found by its magic and read alone. Neither a manifest nor an index is needed. What
//! is read goes into trees without structure, where the number of each entry says which is the newest.

use super::Loss;
use crate::log::embedded::keys::{created_key, log_key, name_key, number_of, tombstone_key};
use crate::log::embedded::trees::{Batch, MARK_KEY, TreeName, decode_mark};
use crate::log::embedded::{JOURNAL_DIR, TREES_DIR, in_path, put, set_state, tables};
use crate::log::journal::salvage::{JournalDefect, read_all};
use crate::log::{Commit, Compaction, Mark, StoreError};
use lsm_tree::coding::Decode;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock};
use lsm_tree::{AbstractTree, AnyTree, CompressionType, Config, Guard, SeqNo, SequenceNumberCounter, Slice, ValueType};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The begin of each block of a table.
const BLOCK_MAGIC: [u8; 4] = [b'L', b'S', b'M', 3];
/// The begin of each body in a file of bodies, and the bytes before its key.
const BODY_MAGIC: &[u8; 4] = b"BLOB";
const BODY_HEADER_BYTES: usize = 4 + 16 + 8 + 2 + 4 + 4;
/// The largest value of a body before compression that is believed.
const BODY_BYTES_MAX: usize = 1 << 30;
/// Bytes in memory at which entries are written to tables.
const FLUSH_BYTES: u64 = 64 << 20;

/// The entries of a damaged store.
pub struct Sources {
    trees: [AnyTree; 5],
    unwritten: u64,
    /// The number of the next entry that is newer than all others.
    next: SeqNo,
    /// What the tables of each tree have.
    marks: [Mark; 5],
    /// The numbers of erased logs.
    pub erased: BTreeSet<u64>,
    /// The last position of a commit, as far as known.
    pub last_commit: u64,
}

impl Sources {
    /// Reads the store in `dir`. `work` is a directory for what is read.
    pub fn read(dir: &Path, work: &Path, losses: &mut Vec<Loss>) -> Result<Self, StoreError> {
        let open = |name: TreeName| {
            let next = SequenceNumberCounter::default();
            let config = Config::new(work.join(name.as_str()), next.clone(), next);
            config.open().map_err(|e| StoreError::failed("making room for what is read", &format_args!("{e:?}")))
        };
        let [rows, index, state, names, bodies] = TreeName::ALL.map(open);
        let mut sources = Self {
            trees: [rows?, index?, state?, names?, bodies?],
            unwritten: 0,
            next: 1,
            marks: [Mark::default(); 5],
            erased: BTreeSet::new(),
            last_commit: 0,
        };
        for name in TreeName::ALL {
            sources.read_tree(name, &dir.join(TREES_DIR).join(name.as_str()), losses)?;
        }
        sources.write_tables()?;
        sources.read_journal(&dir.join(JOURNAL_DIR), losses)?;
        sources.write_tables()?;
        let erased = sources.iter(TreeName::Names).filter_map(|entry| {
            let (key, _) = entry.ok()?;
            key.strip_prefix(b"d").and_then(number_of)
        });
        let erased: BTreeSet<_> = erased.collect();
        sources.erased.extend(erased);
        Ok(sources)
    }

    fn read_tree(&mut self, name: TreeName, dir: &Path, losses: &mut Vec<Loss>) -> Result<(), StoreError> {
        let listed = match tables::read_current(dir) {
            Ok(manifest) => manifest.files.into_iter().map(|file| (file.path, Some(file.checksum))).collect(),
            Err(StoreError::Corrupt { path, what }) => {
                losses.push(Loss::file(&path, &format!("{what}; all files of the tree are read instead")));
                let files = [files_in(&dir.join("tables"))?, files_in(&dir.join("blobs"))?].concat();
                files.into_iter().map(|path| (path, None)).collect::<Vec<_>>()
            }
            Err(error) => return Err(error),
        };
        let is_body_file = |(path, _): &(PathBuf, Option<u128>)| path.parent().is_some_and(|dir| dir.ends_with("blobs"));
        let (body_files, table_files): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_body_file);
        let mut bodies = HashMap::new();
        for (path, _) in &body_files {
            if let (Some(id), Some(data)) = (id_of(path), read_file(path, losses)?) {
                bodies.insert(id, (path.clone(), data));
            }
        }
        let mut lost_bodies: BTreeMap<PathBuf, u64> = BTreeMap::new();
        let mut mark = (0, Mark::default());
        for (path, checksum) in &table_files {
            let Some(data) = read_file(path, losses)? else { continue };
            let mut taken = |key: &[u8], number: SeqNo, value: Option<Slice>| -> Result<(), StoreError> {
                self.next = self.next.max(number + 1);
                if key == MARK_KEY {
                    if let Some(read) = value.as_deref().and_then(decode_mark).filter(|_| number >= mark.0) {
                        mark = (number, read);
                    }
                    return Ok(());
                }
                self.insert(name, key, value, number)
            };
            let damage = read_blocks(&data, |key, number, kind, value| {
                let value = match kind {
                    ValueType::Value => Some(value),
                    ValueType::Tombstone | ValueType::WeakTombstone => None,
                    ValueType::Indirection => match body_of(&bodies, &value, key) {
                        Ok(body) => Some(body),
                        Err(path) => {
                            *lost_bodies.entry(path.unwrap_or_else(|| dir.join("blobs"))).or_default() += 1;
                            return Ok(());
                        }
                    },
                };
                taken(key, number, value)
            })?;
            if *checksum != Some(xxh3_128(&data)) {
                losses.extend(damage_of(path, damage, checksum.is_some()));
            }
        }
        losses.extend(lost_bodies.into_iter().map(|(path, count)| Loss::file(&path, &format!("{count} bodies are unreadable"))));
        self.marks[name as usize] = mark.1;
        self.last_commit = self.last_commit.max(mark.1.applied);
        Ok(())
    }

    /// Applies the commits that tables lack.
    fn read_journal(&mut self, dir: &Path, losses: &mut Vec<Loss>) -> Result<(), StoreError> {
        let applied = self.marks.iter().map(|mark| mark.applied).min().unwrap_or_default();
        let (mut expected, mut missing) = (applied + 1, Vec::new());
        let mut unreadable = Vec::new();
        let found = read_all(dir, |record| {
            if record.position > expected {
                missing.push((expected, record.position - 1));
            }
            expected = expected.max(record.position + 1);
            match Commit::decode(record.body) {
                Ok(commit) => self.apply(record.position, commit),
                Err(why) => {
                    unreadable.push((record.position, why));
                    Ok(())
                }
            }
        })?;
        for JournalDefect { path, bytes, what } in found.defects {
            losses.push(Loss::file(&path, &format!("bytes {} to {}: {what}", bytes.start, bytes.end)));
        }
        losses
            .extend(unreadable.into_iter().map(|(at, why)| Loss::commits(at, at, &format!("its content is unreadable: {why}"))));
        if expected <= found.acknowledged {
            missing.push((expected, found.acknowledged));
        }
        self.last_commit = self.last_commit.max(found.acknowledged).max(expected - 1);
        let in_tables = self.mark().applied;
        for (from, to) in missing {
            if from <= in_tables {
                let what = "a table that has a part of them is damaged, and the journal no longer has them";
                losses.push(Loss::commits(from, to.min(in_tables), what));
            }
            if to > in_tables {
                let what = "no file has them; facts, erasures and changes of state in them are lost";
                losses.push(Loss::commits(from.max(in_tables + 1), to, what));
            }
        }
        Ok(())
    }

    fn apply(&mut self, position: u64, commit: Commit) -> Result<(), StoreError> {
        let mut batch = Batch::of_commit(position);
        match commit {
            Commit::Group(appends) => appends.iter().for_each(|placed| put(&mut batch, placed)),
            Commit::Compaction { number, compaction } => self.compact(&mut batch, number, &compaction),
            Commit::Erasure { number, log } => {
                self.erased.insert(number);
                batch.remove(TreeName::Names, name_key(&log));
                batch.remove(TreeName::Names, created_key(log.kind(), number));
                batch.insert(TreeName::Names, tombstone_key(number), []);
            }
            Commit::Leader(_) => {}
        }
        let number = self.next;
        self.next += 1;
        for (tree, key, value) in batch.into_entries() {
            if position > self.marks[tree as usize].applied {
                self.insert(tree, &key, value, number)?;
            }
        }
        Ok(())
    }

    /// The rows and the state of a compaction. What the index says of rows is compared with them later.
    fn compact(&self, batch: &mut Batch, number: u64, compaction: &Compaction) {
        for append in &compaction.appends {
            match append.rows.is_empty() {
                true => batch.remove(TreeName::Rows, append.position.to_be_bytes()),
                false => batch.insert(TreeName::Rows, append.position.to_be_bytes(), &append.rows[..]),
            }
        }
        for (key, _) in self.prefix(TreeName::Bodies, &log_key(number, &[0])).filter_map(Result::ok) {
            batch.remove(TreeName::Bodies, key);
        }
        set_state(batch, number, &compaction.state);
    }

    fn insert(&mut self, tree: TreeName, key: &[u8], value: Option<Slice>, number: SeqNo) -> Result<(), StoreError> {
        let (added, _) = match value {
            Some(value) => self.trees[tree as usize].insert(key, value, number),
            None => self.trees[tree as usize].remove(key, number),
        };
        self.unwritten += added;
        if self.unwritten >= FLUSH_BYTES { self.write_tables() } else { Ok(()) }
    }

    fn write_tables(&mut self) -> Result<(), StoreError> {
        for tree in &self.trees {
            tree.rotate_memtable();
            let written = tree.flush(&tree.get_flush_lock(), 0);
            written.map_err(|e| StoreError::failed("writing what was read", &format_args!("{e:?}")))?;
        }
        self.unwritten = 0;
        Ok(())
    }

    /// How far the tables are.
    pub fn mark(&self) -> Mark {
        let max = |of: fn(&Mark) -> u64| self.marks.iter().map(of).max().unwrap_or_default();
        Mark { applied: max(|mark| mark.applied), position: max(|mark| mark.position), created: max(|mark| mark.created) }
    }

    /// The entries of a tree, in order.
    pub fn iter(&self, of: TreeName) -> impl Iterator<Item = Result<(Slice, Slice), StoreError>> {
        self.trees[of as usize].range::<&[u8], _>(.., SeqNo::MAX, None).map(opened)
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix(&self, of: TreeName, prefix: &[u8]) -> impl Iterator<Item = Result<(Slice, Slice), StoreError>> {
        self.trees[of as usize].prefix(prefix, SeqNo::MAX, None).map(opened)
    }

    /// The value of a key.
    pub fn get(&self, of: TreeName, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        let found = self.trees[of as usize].prefix(key, SeqNo::MAX, None).next().map(opened).transpose()?;
        Ok(found.filter(|(found, _)| **found == *key).map(|(_, value)| value))
    }
}

fn opened(entry: lsm_tree::IterGuardImpl) -> Result<(Slice, Slice), StoreError> {
    entry.into_inner().map_err(|e| StoreError::failed("reading what was read of the store", &format_args!("{e:?}")))
}

fn id_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

/// The files of a directory; none if it does not exist.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = || -> std::io::Result<Vec<PathBuf>> { dir.read_dir()?.map(|entry| Ok(entry?.path())).collect() };
    match list() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|e| StoreError::failed("listing the store's files", &in_path(dir, &e))),
    }
}

/// The content of a file; `None` if it is missing, which is a loss.
fn read_file(path: &Path, losses: &mut Vec<Loss>) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(data) => Ok(Some(data)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            losses.push(Loss::file(path, "it is missing"));
            Ok(None)
        }
        Err(e) => Err(StoreError::failed("reading the store's files", &in_path(path, &e))),
    }
}

/// Gives each entry of each readable block of a table to `take`. Returns the ranges of unreadable bytes.
fn read_blocks(
    data: &[u8],
    mut take: impl FnMut(&[u8], SeqNo, ValueType, Slice) -> Result<(), StoreError>,
) -> Result<Vec<(usize, usize)>, StoreError> {
    let (mut at, mut damage) = (0, Vec::new());
    let mut bad = None;
    while at < data.len() {
        match block_at(&data[at..]) {
            Some((block, bytes)) => {
                damage.extend(bad.take().map(|from| (from, at)));
                if let Some(block) = block {
                    let inner = block.as_slice();
                    for item in block.iter() {
                        let rest = &inner[item.key.0..item.key.1];
                        let key = item
                            .prefix
                            .as_ref()
                            .map_or_else(|| rest.to_vec(), |prefix| [&inner[prefix.0..prefix.1], rest].concat());
                        let value = item.value.as_ref().map_or_else(Slice::empty, |value| Slice::from(&inner[value.0..value.1]));
                        take(&key, item.seqno, item.value_type, value)?;
                    }
                }
                at += bytes;
            }
            // Blocks follow each other. What else is in the file, its table of contents, is not needed.
            None => {
                bad.get_or_insert(at);
                at += 1 + memchr::memmem::find(&data[at + 1..], &BLOCK_MAGIC).unwrap_or(data.len() - at - 1);
            }
        }
    }
    Ok(damage)
}

/// The block at the begin of these bytes, and its size; no content for a block that has no entries.
fn block_at(data: &[u8]) -> Option<(Option<DataBlock>, usize)> {
    let header = Header::decode_from(&mut &data[..]).ok()?;
    let bytes = Header::serialized_len() + header.data_length as usize;
    let whole = data.get(..bytes)?;
    if header.block_type != BlockType::Data {
        let sum = lsm_tree::Checksum::from_raw(xxh3_128(&whole[Header::serialized_len()..]));
        return (sum == header.checksum).then_some((None, bytes));
    }
    let compressed = Block::from_reader(&mut &whole[..], CompressionType::Lz4);
    let is_plain = header.data_length == header.uncompressed_length;
    let block =
        compressed.ok().or_else(|| is_plain.then(|| Block::from_reader(&mut &whole[..], CompressionType::None).ok())?)?;
    Some((Some(DataBlock::new(block)), bytes))
}

/// What is lost of a table whose bytes in these ranges are no blocks.
fn damage_of(path: &Path, mut ranges: Vec<(usize, usize)>, is_known: bool) -> Vec<Loss> {
    // Other parts of the file only say where entries are.
    let Ok(entries) = tables::entries_of(path) else {
        let mut losses = vec![Loss::file(path, "its table of contents is damaged")];
        losses.extend(ranges.into_iter().map(|(from, to)| Loss::file(path, &format!("bytes {from} to {to} are no entries"))));
        return losses;
    };
    ranges.retain(|(from, to)| entries.start < *to as u64 && (*from as u64) < entries.end);
    if ranges.is_empty() && is_known {
        return vec![Loss::file(path, "it is damaged where it has no entries; all of them are readable")];
    }
    ranges.into_iter().map(|(from, to)| Loss::file(path, &format!("bytes {from} to {to} are unreadable"))).collect()
}

/// A number of seven bits in each byte, the lowest first.
fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A body in a file of its own, or the path of the file that should have it.
fn body_of(files: &HashMap<u64, (PathBuf, Vec<u8>)>, pointer: &[u8], key: &[u8]) -> Result<Slice, Option<PathBuf>> {
    let mut pointer = pointer;
    let (offset, file) = (varint(&mut pointer).ok_or(None)?, varint(&mut pointer).ok_or(None)?);
    let (path, data) = files.get(&file).ok_or(None)?;
    let read = || {
        let frame = data.get(usize::try_from(offset).ok()?..)?;
        let header = frame.first_chunk::<BODY_HEADER_BYTES>()?;
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
        let (key_bytes, value_bytes, stored) =
            (usize::from(u16::from_le_bytes([header[28], header[29]])), number(30), number(34));
        let found = frame.get(BODY_HEADER_BYTES..)?.get(..key_bytes)?;
        let value = frame.get(BODY_HEADER_BYTES + key_bytes..)?.get(..stored)?;
        let mut hasher = Xxh3::new();
        hasher.update(found);
        hasher.update(value);
        let is_whole = header.starts_with(BODY_MAGIC)
            && found == key
            && value_bytes <= BODY_BYTES_MAX
            && hasher.digest128().to_le_bytes() == header[4..20];
        let plain = is_whole.then(|| lz4_flex::decompress(value, value_bytes))?;
        plain.ok().or_else(|| (value_bytes == stored).then(|| value.to_vec()))
    };
    read().map(Slice::from).ok_or_else(|| Some(path.clone()))
}
