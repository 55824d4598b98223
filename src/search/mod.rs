//! Search: which sessions have all words of a text that a person types.
//!
//! ```text
//!   log ─▶ indexer ─▶ parts ─▶ words ─▶ batch in memory ─▶ table        (one task, behind the commits)
//!                                            │               │
//!   words of a person ───────────────────────┴───────────────┴─▶ logs and parts that match, for one audience
//! ```
//!
//! The index is derived data of this process. Every node of a cluster has its own, in the directory `search` beside the
//! store's trees, which older versions leave alone. It has words and places, never a text: what a reader sees of a match
//! comes from the log, by its place, in the form that the reader's audience has ([`Search::text`]).
//!
//! **Order and crashes.** The indexer reads commits in their order, at most [`LOOK_INTERVAL`] after them. What it read
//! lately lies in a batch in memory, where searches find it. A save writes the batch, the position and the texts that are
//! still open as one table file. So after a crash the file is there or is not, and the indexer goes on from the last
//! saved position: a crash costs time only. An older store has no position, so the indexer begins with its first commit. An
//! index that is damaged, has another form, or is ahead of its store, is made anew in the same way.
//!
//! **Audiences.** A part belongs to the audiences that have its text, by the rows that the writer stamped. The key of
//! a word begins with them. So what an audience finds, and how long that takes, does not depend on what it may not see.
//! Rights and owners are the list's: it takes the matches as one more condition.
//!
//! **Erasure.** A match names its log by number. Numbers are never reused, and the index of sessions has no erased log. So
//! an erased text is not found from then on. A purge removes its words from all files ([`Search::purge`]). A compaction
//! removes only rows that change no text, and the text of a match is read from the rows that are left.
//!
//! **Cost.** One posting of a common word is about one byte, since a part is a number in its batch. A table of the engine
//! that the store uses already keeps this: its blocks are compressed, its files checked, and its merges bounded. Tantivy
//! was the other choice. It scores, which a list in its own order does not need, and brings about a hundred crates, threads that merge,
//! and a second engine whose files and crashes operators would have to know. The saving of one batch is the only
//! work that needs memory: [`BATCH_BYTES_MAX`] twice.

mod batch;
mod indexer;
mod parts;
mod table;
mod words;

pub use batch::PartPlace;
pub use indexer::{OPEN_BYTES_MAX, READ_LOGS_MAX};
pub use parts::{PartKind, TEXT_PART_BYTES_MAX, TextPart};
pub use table::BEGINNING_ENTRIES_MAX;
pub use words::{QUERY_WORDS_MAX, WORD_BYTES_MAX, WordQuery, excerpt};

use crate::log::archive::ArchiveEntry;
use crate::log::commit::Logs;
use crate::log::row::Rows;
use crate::log::{Limit, LogId, LogKind, Store, StoreError, log_of_number};
use crate::model::{Audience, Sequence};
use batch::{BATCH_PARTS_MAX, PartSet, TextBatch, word_key};
use indexer::{Indexer, LogPart};
use parking_lot::{Mutex, RwLock};
use parts::{AudienceSet, PartReader, bit_of};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use table::{Table, TableError};

/// The name of the directory in the data directory.
pub const DIR: &str = "search";
/// How long the indexer waits before it looks for new commits.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Looks without a new commit after which texts that are open, and have not grown, are found too.
const LOOKS_UNTIL_QUIET: u64 = 10;
/// Commits that the indexer reads in one step.
const COMMITS_PER_STEP: usize = 256;
/// The bytes of the batch in memory at which it is saved.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Commits without a save after which the position is saved, so that a start need not read them again.
const UNSAVED_COMMITS_MAX: u64 = 1 << 20;
/// What one read of a log fetches, and how many of them one text needs at most.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };
const TEXT_READS_MAX: usize = 8;

/// All archived runs are in the index.
const ARCHIVE_READ: u64 = u64::MAX;

/// The index of texts.
pub struct Search {
    /// Where it is on disk. `None`: it is in memory only.
    dir: Option<PathBuf>,
    table: RwLock<Option<Arc<Table>>>,
    memory: RwLock<Memory>,
    indexer: Mutex<Indexer>,
    /// The position of the last commit that searches find.
    position: AtomicU64,
    /// The same, as saved.
    saved: AtomicU64,
    /// In an index that is made anew: the last archived run that was read. [`ARCHIVE_READ`]: all were.
    archived: AtomicU64,
    /// Whether a search found the table damaged.
    is_damaged: AtomicBool,
}

#[derive(Default)]
struct Memory {
    active: TextBatch,
    /// Batches that are being saved; without a table, all older ones.
    full: Vec<Arc<TextBatch>>,
}

impl Search {
    /// Opens the index in `dir`, or one in memory. `logs` are those of the store that it follows.
    #[must_use]
    pub fn open(dir: Option<PathBuf>, logs: &Logs) -> Self {
        let search = Self {
            table: RwLock::default(),
            memory: RwLock::default(),
            indexer: Mutex::default(),
            position: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            archived: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
            dir,
        };
        if let Some(dir) = &search.dir {
            match Table::open(dir).and_then(|table| search.resume(table, logs)) {
                Ok(true) => {}
                Ok(false) => search.reset("it is ahead of the store, or of another one"),
                Err(error) => search.reset(&error.to_string()),
            }
        }
        search
    }

    /// Goes on with a table; `false` if it is not of this store.
    fn resume(&self, table: Table, logs: &Logs) -> Result<bool, TableError> {
        let progress = table.progress();
        // A node of a cluster applies after its start what it had applied before, and the cluster keeps its order.
        let is_ahead = progress.position > logs.position() && !logs.leadership().is_of_cluster();
        if is_ahead || progress.position > 0 && progress.epoch != logs.store_epoch().bits() {
            return Ok(false);
        }
        // Its last process was reading archived runs, and how far is unknown.
        if progress.position == 0 && !table.logs()?.is_empty() {
            return Ok(false);
        }
        self.archived.store(if progress.position > 0 { ARCHIVE_READ } else { 0 }, Ordering::Release);
        *self.indexer.lock() = Indexer::load(table.open_texts()?.unwrap_or_default());
        self.position.store(progress.position, Ordering::Release);
        self.saved.store(progress.position, Ordering::Release);
        *self.table.write() = Some(Arc::new(table));
        Ok(true)
    }

    /// Begins an empty index.
    fn reset(&self, why: &str) {
        let mut indexer = self.indexer.lock();
        self.reset_with(&mut indexer, why);
    }

    fn reset_with(&self, indexer: &mut Indexer, why: &str) {
        let Some(dir) = &self.dir else { return };
        tracing::warn!(path = %dir.display(), why, "the index of texts is made anew; searches find what is indexed so far");
        let mut table = self.table.write();
        *table = None;
        let removed = match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Table::open(dir),
        };
        // Without a directory the index goes on in memory: the disk's failure is reported elsewhere.
        let removed = removed.inspect_err(|error| tracing::error!(%error, "the index of texts has no directory"));
        *table = removed.ok().map(Arc::new);
        *self.memory.write() = Memory::default();
        *indexer = Indexer::default();
        self.position.store(0, Ordering::Release);
        self.saved.store(0, Ordering::Release);
        self.archived.store(0, Ordering::Release);
        self.is_damaged.store(false, Ordering::Release);
    }

    /// Follows the commits until the task is aborted.
    pub async fn run(self: Arc<Self>, logs: Arc<Logs>) {
        let mut quiet_looks = 0;
        loop {
            let (search, of) = (self.clone(), logs.clone());
            match logs.index(move |store| search.step(store, &of, quiet_looks == LOOKS_UNTIL_QUIET)).await {
                Ok(true) => quiet_looks = 0,
                Ok(false) => {
                    quiet_looks = if quiet_looks == LOOKS_UNTIL_QUIET { 0 } else { quiet_looks + 1 };
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
                Err(error) => {
                    // A failure of the store stops the server elsewhere.
                    tracing::warn!(%error, "cannot index texts; trying again");
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
            }
        }
    }

    /// Reads on. Returns whether there is more to read.
    fn step(&self, store: &dyn Store, logs: &Logs, takes_quiet: bool) -> Result<bool, StoreError> {
        let mut indexer = self.indexer.lock();
        if self.is_damaged.load(Ordering::Acquire) {
            self.reset_with(&mut indexer, "an entry is damaged");
        }
        let archived = self.archived.load(Ordering::Acquire);
        if archived != ARCHIVE_READ {
            let next = logs.runs().next_archived(archived);
            if let Some((number, run)) = &next {
                self.add(&archived_parts(store, *number, &LogId::Run(run.clone()))?);
            }
            self.archived.store(next.map_or(ARCHIVE_READ, |(number, _)| number), Ordering::Release);
            return Ok(true);
        }
        let (after, visible) = (self.position.load(Ordering::Acquire), logs.position());
        // After the position: each erasure before it counts.
        let erasures = logs.erasure_count();
        let mut parts = Vec::new();
        let mut has_more = false;
        if after < visible {
            let commits = store.committed(after, visible, COMMITS_PER_STEP)?;
            has_more = commits.len() == COMMITS_PER_STEP;
            let reached = commits.last().map(|(position, _)| *position).filter(|_| has_more).unwrap_or(visible);
            indexer.read(store, erasures, commits, &mut parts)?;
            self.add(&parts);
            self.position.store(reached, Ordering::Release);
        }
        if takes_quiet {
            parts.clear();
            indexer.give_open(true, &mut parts);
            self.add(&parts);
        }
        let unsaved = self.position.load(Ordering::Acquire).saturating_sub(self.saved.load(Ordering::Acquire));
        let is_full = {
            let memory = self.memory.read();
            memory.active.bytes() >= BATCH_BYTES_MAX || memory.active.places.len() >= BATCH_PARTS_MAX / 2
        };
        if is_full || unsaved >= UNSAVED_COMMITS_MAX {
            self.save(&mut indexer, logs);
        }
        Ok(has_more)
    }

    fn add(&self, parts: &[LogPart]) {
        if parts.is_empty() {
            return;
        }
        let mut memory = self.memory.write();
        for (number, kind, part) in parts {
            if memory.active.is_full() {
                let full = std::mem::take(&mut memory.active);
                memory.full.push(Arc::new(full));
            }
            memory.active.push(*number, *kind, part);
        }
    }

    /// Saves what is in memory.
    fn save(&self, indexer: &mut Indexer, logs: &Logs) {
        let batches = {
            let mut memory = self.memory.write();
            let full = Arc::new(std::mem::take(&mut memory.active));
            memory.full.push(full);
            memory.full.clone()
        };
        let (epoch, position) = (logs.store_epoch().bits(), self.position.load(Ordering::Acquire));
        let Some(table) = self.table.read().clone() else {
            self.saved.store(position, Ordering::Release);
            return;
        };
        let last = batches.len() - 1;
        // The position is right once the last batch is saved.
        let from = table.progress().position;
        let one = |(at, batch): (usize, &Arc<TextBatch>)| {
            let (position, open) = if at == last { (position, indexer.open()) } else { (from, Vec::new()) };
            table.save(batch, epoch, position, &open)
        };
        let saved = batches.iter().enumerate().try_for_each(one);
        match saved {
            Ok(()) => {
                self.memory.write().full.clear();
                self.saved.store(position, Ordering::Release);
            }
            Err(error) => self.reset_with(indexer, &error.to_string()),
        }
    }

    /// Saves what is in memory, before the process ends.
    pub fn close(&self, logs: &Logs) {
        let mut indexer = self.indexer.lock();
        if self.position() > self.saved.load(Ordering::Acquire) {
            self.save(&mut indexer, logs);
        }
    }

    /// The position of the last commit that searches find.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// The bytes in memory that are not saved.
    #[must_use]
    pub fn unsaved_bytes(&self) -> usize {
        let memory = self.memory.read();
        memory.active.bytes() + memory.full.iter().map(|batch| batch.bytes()).sum::<usize>()
    }

    /// The size of the files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.table.read().as_ref().map_or(0, |table| table.bytes())
    }

    /// Removes the words of erased logs from memory and from every file.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn purge(&self, store: &dyn Store, logs: &Logs) -> Result<(), StoreError> {
        // The indexer waits: what it reads afterwards is no longer of an erased log.
        let mut indexer = self.indexer.lock();
        indexer.forget_erased(store)?;
        let mut known: HashMap<u64, LogKind> = HashMap::new();
        {
            let memory = self.memory.read();
            let batches = memory.full.iter().map(|batch| &**batch).chain([&memory.active]);
            known.extend(batches.flat_map(|batch| &batch.places).map(|place| (place.log, place.log_kind)));
        }
        let table = self.table.read().clone();
        let of_table = table.as_ref().map(|table| table.logs()).transpose();
        match of_table {
            Ok(logs) => known.extend(logs.into_iter().flatten()),
            Err(error) => {
                self.reset_with(&mut indexer, &error.to_string());
                return Ok(());
            }
        }
        let mut gone = HashSet::new();
        for (number, kind) in known.into_iter().filter(|(number, _)| *number > 0) {
            if log_of_number(store, kind, number)?.is_none() {
                gone.insert(number);
            }
        }
        let is_gone = |place: &PartPlace| gone.contains(&place.log);
        {
            let mut memory = self.memory.write();
            memory.active = memory.active.without(is_gone);
            memory.full = memory.full.iter().map(|batch| Arc::new(batch.without(is_gone))).collect();
        }
        if self.position() > self.saved.load(Ordering::Acquire) {
            self.save(&mut indexer, logs);
        }
        let removed = table.map_or(Ok(()), |table| table.remove(is_gone, &indexer.open()));
        if let Err(error) = removed {
            self.reset_with(&mut indexer, &error.to_string());
        }
        Ok(())
    }

    /// What matches for an audience.
    ///
    /// # Errors
    /// `Failed` when the table cannot be read; the index is then made anew.
    pub fn find(&self, query: &WordQuery, audience: Audience) -> Result<Found, StoreError> {
        let mut found = Found::default();
        if query.is_empty() {
            return Ok(found);
        }
        let audience = bit_of(audience);
        let full = {
            let memory = self.memory.read();
            if let Some(set) = find_in(&memory.active, query, audience) {
                found.add(memory.active.places.clone(), set);
            }
            memory.full.clone()
        };
        for batch in full {
            if let Some(set) = find_in(&batch, query, audience) {
                found.add(batch.places.clone(), set);
            }
        }
        let table = self.table.read().clone();
        let of_table = table.map_or_else(|| Ok(Vec::new()), |table| table.find(query, audience));
        for (places, set) in of_table.map_err(|error| self.damaged(&error))? {
            found.add(places, set);
        }
        Ok(found)
    }

    fn damaged(&self, error: &TableError) -> StoreError {
        self.is_damaged.store(true, Ordering::Release);
        StoreError::failed("reading the index of texts", error)
    }

    /// The texts of a match, as an audience has them in the log. Any of them may be the one that matched.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn text(store: &dyn Store, log: &LogId, place: &PartPlace, audience: Audience) -> Result<Vec<TextPart>, StoreError> {
        let Some(head) = store.head(log)?.filter(|head| head.number == place.log) else { return Ok(Vec::new()) };
        let (mut reader, mut parts) = (PartReader::default(), Vec::new());
        let mut after = Sequence(place.first.0.saturating_sub(1));
        for _ in 0..TEXT_READS_MAX {
            let appends = store.read(log, head.epoch, after, READ_LIMIT)?;
            let rows = appends.into_iter().flat_map(|append| Rows(append.rows)).filter(|row| row.sequence() > after);
            let mut last = None;
            for row in rows {
                last = Some(row.sequence());
                if row.sequence() > place.last {
                    break;
                }
                reader.read_for(&row, audience, &mut parts);
            }
            match last {
                Some(last) if last < place.last => after = last,
                _ => break,
            }
        }
        reader.give_open(false, &mut parts);
        parts.retain(|part| part.kind == place.kind);
        Ok(parts)
    }
}

/// The parts of an archived run. None if its object cannot be read: others must not wait for it.
fn archived_parts(store: &dyn Store, number: u64, log: &LogId) -> Result<Vec<LogPart>, StoreError> {
    let Some(head) = store.head(log)?.filter(|head| head.number == number) else { return Ok(Vec::new()) };
    let through = ArchiveEntry::of(store, log, head.epoch)?.map_or(Sequence::NONE, |entry| entry.through);
    let (mut reader, mut parts, mut at) = (PartReader::default(), Vec::new(), Sequence::NONE);
    while at < through {
        let page = match store.read(log, head.epoch, at, READ_LIMIT) {
            Err(error @ StoreError::Archived { .. }) => {
                tracing::warn!(%error, "searches do not find the texts of an archived run");
                break;
            }
            page => page?,
        };
        if page.is_empty() {
            break;
        }
        for row in page.into_iter().flat_map(|append| Rows(append.rows)).filter(|row| row.sequence() > at).collect::<Vec<_>>() {
            at = row.sequence();
            if at <= through {
                reader.read(&row, &mut parts);
            }
        }
    }
    reader.give_open(false, &mut parts);
    Ok(parts.into_iter().map(|part| (number, log.kind(), part)).collect())
}

/// The parts of a batch in memory that match. `None`: none does.
fn find_in(batch: &TextBatch, query: &WordQuery, audience: AudienceSet) -> Option<PartSet> {
    let mut found: Option<PartSet> = None;
    for word in query.words() {
        let mut set = PartSet::default();
        if word.is_beginning {
            let begins = |key: &[u8]| key[0] & audience != 0 && key[1..].starts_with(word.word.as_bytes());
            for (_, postings) in batch.postings.iter().filter(|(key, _)| begins(key)) {
                set.add(postings.as_bytes());
            }
        } else {
            for audiences in (1..=7).filter(|audiences| audiences & audience != 0) {
                if let Some(postings) = batch.postings.get(&*word_key(audiences, &word.word)) {
                    set.add(postings.as_bytes());
                }
            }
        }
        if let Some(found) = &found {
            set.intersect(found);
        }
        if set.is_empty() {
            return None;
        }
        found = Some(set);
    }
    found
}

/// What a search found.
#[derive(Default)]
pub struct Found {
    batches: Vec<(Vec<PartPlace>, PartSet)>,
    /// The numbers of the logs, as bits.
    logs: Vec<u64>,
}

impl Found {
    fn add(&mut self, places: Vec<PartPlace>, set: PartSet) {
        for place in set.iter().filter_map(|number| places.get(number)).filter(|place| place.log > 0) {
            let (at, bit) = (usize::try_from(place.log / 64).unwrap_or(usize::MAX), place.log % 64);
            if at >= self.logs.len() {
                self.logs.resize(at + 1, 0);
            }
            self.logs[at] |= 1 << bit;
        }
        self.batches.push((places, set));
    }

    /// Whether a log has a match.
    #[must_use]
    pub fn has(&self, log: u64) -> bool {
        let at = usize::try_from(log / 64).unwrap_or(usize::MAX);
        self.logs.get(at).is_some_and(|word| word >> (log % 64) & 1 == 1)
    }

    fn places(&self) -> impl Iterator<Item = &PartPlace> {
        let of =
            |(places, set): &'_ (Vec<PartPlace>, PartSet)| -> Vec<usize> { set.iter().filter(|n| *n < places.len()).collect() };
        self.batches
            .iter()
            .flat_map(move |batch| of(batch).into_iter().map(|number| &batch.0[number]))
            .filter(|place| place.log > 0)
    }

    /// The logs that have a match, by number. `None`: they are more than `max`.
    #[must_use]
    pub fn logs(&self, max: usize) -> Option<BTreeMap<u64, LogKind>> {
        if self.logs.iter().map(|word| word.count_ones() as usize).sum::<usize>() > max {
            return None;
        }
        Some(self.places().map(|place| (place.log, place.log_kind)).collect())
    }

    /// The matches in these logs, the newest of each log first.
    #[must_use]
    pub fn parts_of(&self, logs: &HashSet<u64>) -> HashMap<u64, Vec<PartPlace>> {
        let mut parts: HashMap<u64, Vec<PartPlace>> = HashMap::new();
        for place in self.places().filter(|place| logs.contains(&place.log)) {
            parts.entry(place.log).or_default().push(*place);
        }
        for parts in parts.values_mut() {
            parts.sort_unstable_by_key(|place| std::cmp::Reverse(place.last));
            parts.dedup();
        }
        parts
    }
}
