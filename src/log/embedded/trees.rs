//! The trees of the store: five LSM trees whose entries become visible together.
//!
//! A tree has no journal. A new entry is in memory until a persist writes the memory of all trees to tables, tree by
//! tree in the order of [`TreeName::ALL`]. With its entries each tree writes the [`Mark`] of the commit up to which its
//! tables have everything. So after any crash, each tree says what it lacks, and the journal has it.
//!
//! A tree's files are immutable. Only the manifest changes, and a rename replaces it.

use crate::log::Mark;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, IterGuardImpl, KvSeparationOptions, Result, SeqNo,
    SequenceNumberCounter, Slice,
};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeName {
    Rows,
    Index,
    State,
    Names,
    Bodies,
}

impl TreeName {
    /// All trees, in the order in which a persist writes them.
    ///
    /// An erasure finds the rows to delete by the index, and the names to delete by the bodies. So the tree that it reads
    /// comes after the tree that it changes.
    pub const ALL: [Self; 5] = [Self::Rows, Self::Index, Self::State, Self::Names, Self::Bodies];

    /// The name of the tree's directory.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Index => "index",
            Self::State => "state",
            Self::Names => "names",
            Self::Bodies => "bodies",
        }
    }
}

/// The key of the mark in each tree. It follows every other key.
pub const MARK_KEY: &[u8] = &[u8::MAX];

fn encode_mark(mark: Mark) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (i, word) in [mark.applied, mark.position, mark.created].into_iter().enumerate() {
        bytes[i * 8..][..8].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

pub fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    let bytes: &[u8; 24] = bytes.try_into().ok()?;
    let word = |i: usize| u64::from_be_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
    Some(Mark { applied: word(0), position: word(1), created: word(2) })
}

/// Entries to write together.
pub struct Batch {
    /// The journal's position of the commit; `None` for what no commit says.
    commit: Option<u64>,
    entries: Vec<(TreeName, Slice, Option<Slice>)>,
}

impl Batch {
    /// A batch of the commit at this position.
    ///
    /// While the store recovers, a tree drops the entries that its tables have.
    pub const fn of_commit(position: u64) -> Self {
        Self { commit: Some(position), entries: Vec::new() }
    }

    /// A batch that no commit says: derived data, or what an erasure leaves. A crash may lose it.
    pub const fn derived() -> Self {
        Self { commit: None, entries: Vec::new() }
    }

    pub fn insert(&mut self, tree: TreeName, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.entries.push((tree, key.into(), Some(value.into())));
    }

    pub fn remove(&mut self, tree: TreeName, key: impl Into<Slice>) {
        self.entries.push((tree, key.into(), None));
    }

    /// The entries to set (`Some`) or to remove (`None`), in order.
    pub fn into_entries(self) -> Vec<(TreeName, Slice, Option<Slice>)> {
        self.entries
    }
}

/// The trees of one store. One writer at a time may write or seal.
pub struct Trees {
    dir: PathBuf,
    all: [AnyTree; 5],
    /// What the tables of each tree had when the store was opened.
    opened_at: [Mark; 5],
    /// Numbers the batches and the engine's own changes.
    next: SequenceNumberCounter,
    /// Entries with a lower number are visible.
    visible: AtomicU64,
    /// The open snapshots by number.
    snapshots: Mutex<BTreeMap<SeqNo, usize>>,
    /// Bytes of entries that were written since the last seal.
    unsealed_bytes: AtomicU64,
}

const CACHE_BYTES: u64 = 64 << 20;
const OPEN_FILES_MAX: usize = 256;
/// The size of a block of rows before compression. Rows are read in stretches, and compress better together.
const ROWS_BLOCK_BYTES: u32 = 16 << 10;
/// Bodies of at least this size lie outside the tables, because compaction rewrites tables.
const BODY_APART_BYTES: u32 = 4 << 10;
/// The size of the tables that a rewrite makes.
const REWRITTEN_TABLE_BYTES: u64 = 64 << 20;

impl Trees {
    /// Opens the trees in `dir`, and creates those that do not exist.
    ///
    /// # Errors
    /// The engine's error, with the directory of the tree.
    pub fn open(dir: &Path) -> std::result::Result<Self, (PathBuf, lsm_tree::Error)> {
        let (next, cache) = (SequenceNumberCounter::new(1), Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)));
        let files = Arc::new(DescriptorTable::new(OPEN_FILES_MAX));
        let open = |name: TreeName| {
            let path = dir.join(name.as_str());
            // The engine's own idea of what is visible would let a reader see half of a batch: it moves with the engine's
            // maintenance. This store keeps its own.
            // A table of small entries has a filter of megabytes. As one block it would be too large for the cache, and each
            // read of the table would read it from its file. Tables of earlier versions have it as one block: it stays in memory.
            let config = Config::new(&path, next.clone(), SequenceNumberCounter::default())
                .use_cache(cache.clone())
                .use_descriptor_table(Some(files.clone()))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4));
            let config = match name {
                // Reads use ranges and existing positions, so a filter would never reject one.
                TreeName::Rows => {
                    config.filter_policy(FilterPolicy::disabled()).data_block_size_policy(BlockSizePolicy::all(ROWS_BLOCK_BYTES))
                }
                TreeName::Index => config.filter_policy(FilterPolicy::disabled()),
                TreeName::Bodies => {
                    // Bodies are written once. What is stale in their files was erased, or was a checkpoint: a rewrite of
                    // all tables leaves none of it.
                    let apart = KvSeparationOptions::default().separation_threshold(BODY_APART_BYTES);
                    let apart = apart.staleness_threshold(f32::MIN_POSITIVE).age_cutoff(1.0);
                    config.with_kv_separation(Some(apart.compression(CompressionType::Lz4)))
                }
                TreeName::State | TreeName::Names => config,
            };
            let tree = config.open().map_err(|e| (path.clone(), e))?;
            let mark = tree.get(MARK_KEY, SeqNo::MAX).map_err(|e| (path.clone(), e))?;
            let mark = mark.map(|bytes| decode_mark(&bytes).ok_or((path, lsm_tree::Error::Unrecoverable))).transpose()?;
            next.fetch_max(tree.get_highest_persisted_seqno().map_or(1, |last| last + 1));
            Ok((tree, mark.unwrap_or_default()))
        };
        let [rows, index, state, names, bodies] = TreeName::ALL.map(open);
        let [rows, index, state, names, bodies] = [rows?, index?, state?, names?, bodies?];
        let opened_at = [rows.1, index.1, state.1, names.1, bodies.1];
        let visible = AtomicU64::new(next.get());
        Ok(Self {
            dir: dir.to_owned(),
            all: [rows.0, index.0, state.0, names.0, bodies.0],
            opened_at,
            next,
            visible,
            snapshots: Mutex::default(),
            unsealed_bytes: AtomicU64::new(0),
        })
    }

    /// The data directory, which has the directory of the trees.
    pub fn data_dir(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Where the tree's files are.
    pub fn path(&self, name: TreeName) -> PathBuf {
        self.dir.join(name.as_str())
    }

    fn tree(&self, name: TreeName) -> &AnyTree {
        &self.all[name as usize]
    }

    /// What the tables of all trees had when the store was opened.
    pub fn opened_at(&self) -> Mark {
        self.opened_at.into_iter().min_by_key(|mark| mark.applied).expect("there are five trees")
    }

    /// Whether the tables of this tree lacked the commit when the store was opened.
    pub const fn lacked(&self, name: TreeName, commit: u64) -> bool {
        commit > self.opened_at[name as usize].applied
    }

    /// Writes a batch. Its entries become visible together.
    pub fn write(&self, batch: Batch) {
        let (number, mut bytes) = (self.next.next(), 0);
        for (name, key, value) in batch.entries {
            if batch.commit.is_some_and(|commit| !self.lacked(name, commit)) {
                continue;
            }
            let (added, _) = match value {
                Some(value) => self.tree(name).insert(key, value, number),
                None => self.tree(name).remove(key, number),
            };
            bytes += added;
        }
        self.unsealed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.visible.store(number + 1, Ordering::Release);
    }

    /// The bytes of entries that were written since the last seal.
    pub fn unsealed_bytes(&self) -> u64 {
        self.unsealed_bytes.load(Ordering::Relaxed)
    }

    /// Closes the memory of all trees, with this mark in each, for [`Self::write_sealed`].
    ///
    /// The caller has written what was sealed before.
    pub fn seal(&self, mark: Mark) {
        let mut batch = Batch::derived();
        for name in TreeName::ALL {
            batch.insert(name, MARK_KEY, encode_mark(mark));
        }
        self.write(batch);
        for tree in &self.all {
            tree.rotate_memtable();
        }
        self.unsealed_bytes.store(0, Ordering::Relaxed);
    }

    /// Writes sealed memory to tables, durably.
    ///
    /// # Errors
    /// The engine's error, with the tree.
    pub fn write_sealed(&self) -> std::result::Result<(), (TreeName, lsm_tree::Error)> {
        for name in TreeName::ALL {
            let tree = self.tree(name);
            tree.flush(&tree.get_flush_lock(), self.unused_below()).map_err(|e| (name, e))?;
        }
        Ok(())
    }

    /// Merges tables until the engine finds no more to merge, or until `is_ended`.
    ///
    /// # Errors
    /// The engine's error, with the tree.
    pub fn compact(&self, is_ended: impl Fn() -> bool) -> std::result::Result<(), (TreeName, lsm_tree::Error)> {
        let strategy = Arc::new(Leveled::default());
        for name in TreeName::ALL {
            let tree = self.tree(name);
            let mut version = None;
            while version != Some(tree.current_version().id()) && !is_ended() {
                version = Some(tree.current_version().id());
                tree.compact(strategy.clone(), self.unused_below()).map_err(|e| (name, e))?;
            }
        }
        Ok(())
    }

    /// Lets go of the memory and the files that no snapshot needs. No write may run.
    ///
    /// # Errors
    /// The engine's error, with the tree.
    pub fn release(&self) -> std::result::Result<(), (TreeName, lsm_tree::Error)> {
        // The engine has numbered its new list of tables. Snapshots from now on use it.
        self.visible.store(self.next.get(), Ordering::Release);
        let oldest = self.oldest_snapshot();
        for name in TreeName::ALL {
            self.tree(name).get_version_history_lock().maintenance(&self.path(name), oldest).map_err(|e| (name, e))?;
        }
        Ok(())
    }

    /// Rewrites all tables, without what was removed, or until `is_ended`.
    ///
    /// # Errors
    /// The engine's error, with the tree.
    pub fn rewrite(&self, is_ended: impl Fn() -> bool) -> std::result::Result<(), (TreeName, lsm_tree::Error)> {
        for name in TreeName::ALL {
            // Large bodies lie in files of their own: the first round finds which are stale, the second one rewrites those.
            let rounds = if name == TreeName::Bodies { 2 } else { 1 };
            let tree = self.tree(name);
            for _ in 0..rounds {
                if tree.table_count() > 0 && !is_ended() {
                    tree.major_compact(REWRITTEN_TABLE_BYTES, self.unused_below()).map_err(|e| (name, e))?;
                }
            }
        }
        Ok(())
    }

    /// The number that the next snapshot has.
    pub fn snapshot_number(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Whether a snapshot is open that was opened before this number was reached.
    pub fn has_snapshot_before(&self, number: SeqNo) -> bool {
        self.snapshots.lock().keys().next().is_some_and(|oldest| *oldest < number)
    }

    /// The size of all tables, in bytes.
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(AbstractTree::disk_space).sum()
    }

    /// A view of what is visible now.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { trees: self, number: self.register() }
    }

    /// Keeps what is visible now, like an open snapshot, until [`Self::unregister`] is called with the number.
    pub fn register(&self) -> SeqNo {
        let mut open = self.snapshots.lock();
        // Under the lock, so that no compaction drops what this snapshot is about to see.
        let number = self.visible.load(Ordering::Acquire);
        *open.entry(number).or_default() += 1;
        number
    }

    /// Ends what [`Self::register`] began.
    pub fn unregister(&self, number: SeqNo) {
        let mut open = self.snapshots.lock();
        let count = open.get_mut(&number).expect("an open snapshot is registered");
        *count -= 1;
        if *count == 0 {
            open.remove(&number);
        }
    }

    /// The mark that the tables of all trees have. `None` if they differ, or before the first persist.
    ///
    /// The caller holds writes and persists back.
    pub fn persisted_mark(&self) -> Option<Mark> {
        let mark = |tree: &AnyTree| tree.get(MARK_KEY, SeqNo::MAX).ok().flatten().and_then(|bytes| decode_mark(&bytes));
        let first = mark(&self.all[0])?;
        self.all.iter().all(|tree| mark(tree) == Some(first)).then_some(first)
    }

    /// The number of a tree's list of tables, and what keeps the files of this list.
    pub fn version(&self, name: TreeName) -> (u64, Box<dyn Any + Send + Sync>) {
        let version = self.tree(name).current_version();
        (version.id(), Box::new(version))
    }

    /// The number of the oldest open snapshot, or of the next one.
    fn oldest_snapshot(&self) -> SeqNo {
        let open = self.snapshots.lock();
        open.keys().next().copied().unwrap_or_else(|| self.visible.load(Ordering::Acquire))
    }

    /// No snapshot sees an older version of an entry that was replaced below this number.
    fn unused_below(&self) -> SeqNo {
        self.oldest_snapshot().saturating_sub(1)
    }
}

/// An unchanging view of the trees.
pub struct Snapshot<'t> {
    trees: &'t Trees,
    number: SeqNo,
}

/// Entries in the order of their keys.
pub type Entries = Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send>;

impl Snapshot<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// The engine's error.
    pub fn get(&self, from: TreeName, key: &[u8]) -> Result<Option<Slice>> {
        self.trees.tree(from).get(key, self.number)
    }

    /// The size of the value of a key, in bytes; 0 without one.
    ///
    /// # Errors
    /// The engine's error.
    pub fn size_of(&self, from: TreeName, key: &[u8]) -> Result<u64> {
        Ok(self.trees.tree(from).size_of(key, self.number)?.map_or(0, u64::from))
    }

    /// The entries with keys in this range.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, of: TreeName, range: R) -> Entries {
        self.trees.tree(of).range(range, self.number, None)
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix(&self, of: TreeName, prefix: impl AsRef<[u8]>) -> Entries {
        self.trees.tree(of).prefix(prefix, self.number, None)
    }

    /// All entries of a tree.
    pub fn iter(&self, of: TreeName) -> Entries {
        self.range(of, ..MARK_KEY)
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.trees.unregister(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that this thread has read from files.
    fn read_bytes() -> u64 {
        let counters = std::fs::read_to_string("/proc/thread-self/io").expect("Linux counts what a thread reads");
        counters.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("the counter").parse().expect("a number")
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "no other system counts what a thread reads")]
    fn a_first_read_of_a_table_of_many_entries_does_not_read_its_whole_filter() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Trees::open(dir.path()).map_err(|(_, error)| error).unwrap();
        let key = |n: u64| n.to_be_bytes().repeat(2);
        let trees = open();
        for part in 0..5 {
            let mut batch = Batch::derived();
            for n in 0..40_000 {
                batch.insert(TreeName::State, key(part * 40_000 + n), b"an entry".to_vec());
            }
            trees.write(batch);
            trees.seal(Mark::default());
            trees.write_sealed().unwrap();
        }
        trees.compact(|| false).unwrap();
        drop(trees);
        let before = read_bytes();
        // To open a tree reads its mark.
        let trees = open();
        assert_eq!(&*trees.snapshot().get(TreeName::State, &key(100_000)).unwrap().unwrap(), b"an entry");
        let read = read_bytes() - before;
        assert!(read < 128 << 10, "of a filter of 250 kB and an index, {read} bytes are read");
    }
}
