//! A new store from what can be read of a damaged one. The damaged one is not changed.
//!
//! ```text
//!   tables, block by block ─┐                        ┌─▶ whole logs: as they were
//!                           ├─▶ entries ─▶ by log ───┼─▶ logs that lack rows: like compacted ones, with a gap
//!   journal, record by ─────┘                        └─▶ rows without a log's summary: lines for `proscenium import`
//!   record
//! ```
//! A log keeps its rows and their sequences. The rows behind a gap refer to the row before it, and the summary counts
//! what is left, as after a compaction. The chain of hashes of such a log ends: its next row begins another one. Every
//! log gets a new epoch, so that no client takes what comes next for what it had.

mod sources;

use super::keys::{
    EPOCH_KEY, body_name_key, body_of, created_key, created_of, created_value, index_entry_of, index_key, log_key, name_key,
    name_value, number_of,
};
use super::trees::{Batch, TreeName, Trees};
use super::{
    EmbeddedStore, FORMAT, JOURNAL_DIR, ReplicaDir, TREES_DIR, create_private, engine_error, format, in_path, restore, sync_dir,
};
use crate::log::hash_chain::{CHAIN_EPOCH, ChainRecord, HEAD, LOG_KEY};
use crate::log::row::Row;
use crate::log::summary::Summary;
use crate::log::{LogHead, LogId, LogKind, META, Mark, StoreError};
use crate::model::{Audience, Epoch, Sequence};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use sources::Sources;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of entries that are written at once.
const WRITE_BYTES: u64 = 64 << 20;
/// The directory, in the new one, of rows that no log can hold.
const ASIDE_DIR: &str = "salvaged";

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// `file`, `commits`, `rows` or `log`.
    pub kind: &'static str,
    /// The file or the log; empty for commits.
    pub at: String,
    /// The first and the last commit or sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    pub what: String,
}

impl Loss {
    fn file(path: &Path, what: &str) -> Self {
        Self { kind: "file", at: path.display().to_string(), from: None, to: None, what: what.into() }
    }

    fn commits(from: u64, to: u64, what: &str) -> Self {
        Self { kind: "commits", at: String::new(), from: Some(from), to: Some(to), what: what.into() }
    }

    fn rows(log: &LogId, from: u64, to: u64, what: &str) -> Self {
        Self { kind: "rows", at: log.to_string(), from: Some(from), to: Some(to), what: what.into() }
    }

    fn log(log: &LogId, what: String) -> Self {
        Self { kind: "log", at: log.to_string(), from: None, to: None, what }
    }
}

/// What a salvage made.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Salvaged {
    /// Logs that lack nothing that their own entries name.
    pub whole: u64,
    /// Logs that lack rows.
    pub repaired: u64,
    /// Logs whose rows lie beside the store, because the store cannot hold them.
    pub aside: u64,
    /// The position of the last commit.
    pub position: u64,
    pub losses: Vec<Loss>,
}

/// Writes everything readable of the store in `dir` to a new store in `out`, which does not exist or is empty.
///
/// # Errors
/// `Locked` when a server has the damaged store open, `Unsupported` for another format, `Failed` when the disk fails.
pub fn salvage(dir: &Path, out: &Path) -> Result<Salvaged, StoreError> {
    let failed = |path: &Path, e: &std::io::Error| StoreError::failed("salvaging the store", &in_path(path, e));
    if !dir.join(TREES_DIR).is_dir() && !dir.join(JOURNAL_DIR).is_dir() {
        return Err(StoreError::failed(
            "salvaging the store",
            &format_args!("{} contains no store of this format", dir.display()),
        ));
    }
    let lock = if ReplicaDir::cluster_of(dir).is_some() { ReplicaDir::lock_file(dir) } else { EmbeddedStore::lock_file(dir) };
    let lock = File::open(lock).ok();
    if lock.as_ref().is_some_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock))) {
        return Err(StoreError::Locked { path: dir.to_owned() });
    }
    let mut made = Salvaged::default();
    match format::read(dir) {
        Ok(Some(format::FIRST_WITH_TREES..)) => {}
        Ok(None) => made.losses.push(Loss::file(&dir.join(format::FILE), "it is missing")),
        Ok(Some(older)) => {
            return Err(StoreError::Unsupported {
                path: dir.to_owned(),
                found: format!("store format {older}"),
                known: format!("formats {} to {FORMAT} for this", format::FIRST_WITH_TREES),
                remedy: "Use the version that wrote it".into(),
            });
        }
        Err(StoreError::Corrupt { path, what }) => made.losses.push(Loss::file(&path, &what)),
        Err(error) => return Err(error),
    }
    create_private(out).map_err(|e| failed(out, &e))?;
    let work = tempfile::tempdir_in(out).map_err(|e| failed(out, &e))?;
    let sources = Sources::read(dir, work.path(), &mut made.losses)?;
    let trees = Trees::open(&out.join(TREES_DIR)).map_err(|(path, e)| engine_error(&path, "making the new store", &e))?;
    let mark = Assembly { sources: &sources, trees: &trees, out, made: &mut made }.run()?;
    drop(trees);
    drop(sources);
    work.close().map_err(|e| failed(out, &e))?;
    restore::begin(out, mark)?;
    sync_dir(out)?;
    made.position = mark.applied;
    Ok(made)
}

/// An append of a log.
struct StoredRows {
    position: u64,
    /// The sequence of its last row; 0 if the index does not say.
    last: Sequence,
    /// `None`: they are lost.
    rows: Option<Vec<Row>>,
}

/// A log, as its entries name it.
struct FoundLog {
    id: LogId,
    /// `None`: only its rows name it.
    epoch: Option<Epoch>,
}

/// The making of the new store.
struct Assembly<'s> {
    sources: &'s Sources,
    trees: &'s Trees,
    out: &'s Path,
    made: &'s mut Salvaged,
}

impl Assembly<'_> {
    fn run(mut self) -> Result<Mark, StoreError> {
        let mut logs = self.logs()?;
        let mut appends = self.appends()?;
        self.adopt_unclaimed(&mut logs, &mut appends)?;
        let position = appends.values().flatten().map(|(_, position)| *position).max().unwrap_or_default();
        let created = logs.keys().copied().max().unwrap_or_default();
        let is_empty = logs.is_empty();
        for (number, log) in logs {
            let appends = appends.remove(&number).unwrap_or_default();
            self.log(number, &log, appends)?;
            self.flush()?;
        }
        for (number, _) in appends.into_iter().filter(|(number, _)| !self.sources.erased.contains(number)) {
            let what = format!("log number {number} has an index, but neither a name nor a row");
            self.made.losses.push(Loss { kind: "log", at: format!("log number {number}"), from: None, to: None, what });
        }
        if !is_empty {
            let mut batch = Batch::derived();
            batch.insert(TreeName::Names, EPOCH_KEY, restore::random().to_be_bytes());
            self.trees.write(batch);
        }
        let known = self.sources.mark();
        let mark = Mark {
            applied: self.sources.last_commit.max(known.applied),
            position: position.max(known.position),
            created: created.max(known.created),
        };
        self.trees.seal(mark);
        self.write_tables()?;
        Ok(mark)
    }

    fn flush(&self) -> Result<(), StoreError> {
        if self.trees.unsealed_bytes() < WRITE_BYTES {
            return Ok(());
        }
        self.trees.seal(Mark::default());
        self.write_tables()
    }

    fn write_tables(&self) -> Result<(), StoreError> {
        self.trees.write_sealed().map_err(|(of, e)| engine_error(&self.trees.path(of), "writing the new store", &e))
    }

    /// The logs by number, from both lists of names.
    fn logs(&self) -> Result<BTreeMap<u64, FoundLog>, StoreError> {
        let mut logs = BTreeMap::new();
        for entry in self.sources.iter(TreeName::Names) {
            let (key, value) = entry?;
            let kind = match key.get(1) {
                Some(b'r') => LogKind::Run,
                Some(b's') => LogKind::Session,
                _ => continue,
            };
            let found = match key.first() {
                Some(b'c') => key.get(2..).and_then(number_of).zip(created_of(kind, &value)),
                Some(b'n') => super::keys::name_of(&value).and_then(|(number, epoch)| {
                    // The list of logs has the same bytes behind the epoch.
                    let listed = [&epoch.bits().to_be_bytes()[..], key.get(2..)?].concat();
                    Some((number, created_of(kind, &listed)?))
                }),
                _ => None,
            };
            if let Some((number, (epoch, id))) = found.filter(|(number, _)| !self.sources.erased.contains(number)) {
                logs.insert(number, FoundLog { id, epoch: Some(epoch) });
            }
        }
        Ok(logs)
    }

    /// The last sequence and the position of each append, by the number of its log.
    fn appends(&self) -> Result<BTreeMap<u64, Vec<(Sequence, u64)>>, StoreError> {
        let mut appends: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for entry in self.sources.iter(TreeName::Index) {
            let (key, value) = entry?;
            let place = index_entry_of(&key, &value).filter(|place| place.empty_to.is_none());
            if let (Some(number), Some(place)) = (key.get(..8).and_then(number_of), place) {
                appends.entry(number).or_default().push((place.last, place.position));
            }
        }
        Ok(appends)
    }

    /// Finds the log of rows that no index has, by what the rows say, and of indexes that no name has.
    fn adopt_unclaimed(
        &self,
        logs: &mut BTreeMap<u64, FoundLog>,
        appends: &mut BTreeMap<u64, Vec<(Sequence, u64)>>,
    ) -> Result<(), StoreError> {
        let mut claims: HashMap<u64, u64> = HashMap::new();
        for (number, places) in appends.iter() {
            claims.extend(places.iter().map(|(_, position)| (*position, *number)));
        }
        let mut numbers: HashMap<LogId, u64> = logs.iter().map(|(number, log)| (log.id.clone(), *number)).collect();
        let mut next = appends.keys().chain(logs.keys()).copied().max().unwrap_or_default() + 1;
        let mut unsorted = BTreeSet::new();
        for entry in self.sources.iter(TreeName::Rows) {
            let (key, rows) = entry?;
            let Some(position) = number_of(&key) else { continue };
            let claim = claims.get(&position).copied();
            if claim.is_some_and(|number| logs.contains_key(&number) || self.sources.erased.contains(&number)) {
                continue;
            }
            let Some(rows) = decoded(&rows) else { continue };
            let Some(id) = rows[0].log() else { continue };
            let number = claim.or_else(|| numbers.get(&id).copied()).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            if claim.is_none() {
                appends.entry(number).or_default().push((rows[rows.len() - 1].sequence(), position));
                unsorted.insert(number);
            }
            numbers.entry(id.clone()).or_insert(number);
            logs.entry(number).or_insert(FoundLog { id, epoch: None });
        }
        for number in unsorted {
            appends.entry(number).or_default().sort_unstable();
        }
        Ok(())
    }

    /// Writes one log.
    fn log(&mut self, number: u64, log: &FoundLog, places: Vec<(Sequence, u64)>) -> Result<(), StoreError> {
        let state: Vec<(Bytes, Bytes)> = self
            .sources
            .prefix(TreeName::State, &number.to_be_bytes())
            .map(|entry| entry.map(|(key, value)| (Bytes::copy_from_slice(&key[8..]), Bytes::copy_from_slice(&value))))
            .collect::<Result<_, _>>()?;
        let summary = state.iter().find(|(key, _)| key == META).and_then(|(_, meta)| Summary::read(&log.id, meta).ok());
        let mut appends = Vec::with_capacity(places.len());
        for (last, position) in places {
            let rows = self.sources.get(TreeName::Rows, &position.to_be_bytes())?;
            let rows = rows.as_deref().and_then(decoded);
            appends.push(StoredRows { position, last, rows });
        }
        let mut lost_bodies = self.without_bodies(number, &mut appends)?;
        let read = appends.iter().flat_map(|append| append.rows.iter().flatten()).count();
        let Some(mut summary) = summary else {
            let why = "its summary is lost, so the store cannot hold it";
            return self.put_aside(number, &log.id, &appends, &mut lost_bodies, why);
        };
        if read == 0 && summary.last_sequence > Sequence::NONE {
            return self.put_aside(number, &log.id, &appends, &mut lost_bodies, "none of its rows is left");
        }
        let lost = lost_ranges(&appends, &summary);
        for (from, to) in &lost {
            let is_of_bodies = lost_bodies.iter().any(|row| (*from..=*to).contains(&row.sequence().0));
            let what = if is_of_bodies { "they, or bodies of them, are unreadable" } else { "they are unreadable" };
            self.made.losses.push(Loss::rows(&log.id, *from, *to, what));
        }
        if !lost_bodies.is_empty() {
            self.write_aside(number, &log.id, &lost_bodies)?;
        }
        let (rewritten, is_changed) = relink(&appends, &mut summary, !lost.is_empty());
        let mut batch = Batch::derived();
        let head = LogHead { number, epoch: Epoch::from_random(restore::random()), last: Sequence::NONE };
        batch.insert(TreeName::Names, name_key(&log.id), name_value(&head));
        batch.insert(TreeName::Names, created_key(log.id.kind(), number), created_value(head.epoch, &log.id));
        for (position, last, rows) in rewritten {
            batch.insert(TreeName::Rows, position.to_be_bytes(), rows);
            batch.insert(TreeName::Index, index_key(number, last), position.to_be_bytes());
        }
        let chain = ChainRecord::read(&log.id, &state).ok().flatten().filter(|_| !is_changed).zip(log.epoch);
        for (key, value) in &state {
            let is_of_chain = [LOG_KEY, HEAD, CHAIN_EPOCH].iter().any(|name| key == name.as_bytes())
                || [b"h:", b"x:"].iter().any(|prefix| key.starts_with(*prefix));
            if key == META && is_changed {
                batch.insert(TreeName::State, log_key(number, META), &summary.save()[..]);
            } else if !is_of_chain || chain.is_some() {
                batch.insert(TreeName::State, log_key(number, key), &value[..]);
            }
        }
        if let Some((record, epoch)) = chain {
            let (name, value) = record.epoch_entry(epoch);
            batch.insert(TreeName::State, log_key(number, name.as_bytes()), value);
        }
        for entry in self.sources.prefix(TreeName::Bodies, &number.to_be_bytes()) {
            let (key, value) = entry?;
            // Checkpoints are derived again.
            if key.get(8).is_some_and(|first| *first != 0) && body_of(&value).is_some() {
                batch.insert(TreeName::Names, body_name_key(&key[8..]), number.to_be_bytes());
                batch.insert(TreeName::Bodies, key, value);
            }
        }
        self.trees.write(batch);
        match is_changed {
            true => self.made.repaired += 1,
            false => self.made.whole += 1,
        }
        Ok(())
    }

    /// Takes the rows away whose bodies are lost, and returns them.
    fn without_bodies(&self, number: u64, appends: &mut [StoredRows]) -> Result<Vec<Row>, StoreError> {
        let mut lost = Vec::new();
        for append in appends {
            let Some(rows) = append.rows.take() else { continue };
            let mut kept = Vec::with_capacity(rows.len());
            for row in rows {
                let mut has_all = true;
                for id in body_ids(&row) {
                    has_all &= self.has_body(number, &id)?;
                }
                if has_all { kept.push(row) } else { lost.push(row) }
            }
            append.rows = Some(kept);
        }
        Ok(lost)
    }

    fn has_body(&self, number: u64, id: &str) -> Result<bool, StoreError> {
        // A body belongs to one log, and rows of branches refer to bodies of others.
        let owner = self.sources.get(TreeName::Names, &body_name_key(id.as_bytes()))?.as_deref().and_then(number_of);
        for number in [Some(number), owner].into_iter().flatten().filter(|number| !self.sources.erased.contains(number)) {
            let body = self.sources.get(TreeName::Bodies, &log_key(number, id.as_bytes()))?;
            if body.is_some_and(|body| body_of(&body).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the rows of a log beside the store.
    fn put_aside(
        &mut self,
        number: u64,
        log: &LogId,
        appends: &[StoredRows],
        lost_bodies: &mut Vec<Row>,
        why: &str,
    ) -> Result<(), StoreError> {
        let mut rows = std::mem::take(lost_bodies);
        rows.extend(appends.iter().flat_map(|append| append.rows.iter().flatten()).cloned());
        rows.sort_unstable_by_key(Row::sequence);
        if rows.is_empty() {
            self.made.losses.push(Loss::log(log, format!("{why}; no row is readable")));
            return Ok(());
        }
        self.made.aside += 1;
        let file = self.write_aside(number, log, &rows)?;
        let what = format!("{why}; {} rows are in {}; import it with `proscenium import`", rows.len(), file.display());
        self.made.losses.push(Loss::log(log, what));
        Ok(())
    }

    /// Writes rows to a file as an export has them, and returns its path.
    fn write_aside(&self, number: u64, log: &LogId, rows: &[Row]) -> Result<PathBuf, StoreError> {
        let kind = if log.kind() == LogKind::Run { "run" } else { "session" };
        let (dir, name) = (self.out.join(ASIDE_DIR), format!("{kind}-{number}.ndjson"));
        let write = || -> std::io::Result<()> {
            create_private(&dir)?;
            let mut file = BufWriter::new(File::create(dir.join(&name))?);
            for text in rows.iter().filter_map(|row| row.view(Audience::Internal)) {
                file.write_all(text)?;
                file.write_all(b"\n")?;
            }
            file.into_inner()?.sync_all()
        };
        write().map_err(|e| StoreError::failed("writing rows beside the store", &in_path(&dir, &e)))?;
        Ok(Path::new(ASIDE_DIR).join(name))
    }
}

/// The rows of an append, if they are rows in order.
fn decoded(bytes: &[u8]) -> Option<Vec<Row>> {
    let rows = Row::decode_all(Bytes::copy_from_slice(bytes)).ok()?;
    (!rows.is_empty() && rows.is_sorted_by(|a, b| a.sequence() < b.sequence())).then_some(rows)
}

/// The sequences that a log lacks and that no compaction removed.
fn lost_ranges(appends: &[StoredRows], summary: &Summary) -> Vec<(u64, u64)> {
    let (mut ranges, mut last): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    let mut add = |from: u64, to: u64| match ranges.last_mut() {
        Some((_, end)) if from <= *end + 1 => *end = to.max(*end),
        _ if from <= to => ranges.push((from, to)),
        _ => {}
    };
    for append in appends {
        for row in append.rows.iter().flatten() {
            let sequence = row.sequence().0;
            // Within what a compaction considered, a gap may be its own.
            let from = (last + 1).max(summary.compacted.through.0.min(sequence) + 1);
            add(from, sequence.saturating_sub(1));
            last = sequence;
        }
        if append.rows.as_ref().is_none_or(Vec::is_empty) && append.last.0 > last {
            add(last + 1, append.last.0);
            last = append.last.0;
        }
    }
    if last < summary.last_sequence.0 {
        add(last + 1, summary.last_sequence.0);
    }
    ranges
}

/// The remaining rows of each append, each after the last one that its readers see, and the summary that counts them.
///
/// Returns whether the log is another one than before.
fn relink(appends: &[StoredRows], summary: &mut Summary, has_lost: bool) -> (Vec<(u64, Sequence, Vec<u8>)>, bool) {
    let (mut seen_last, mut seen_count, mut last) = ([Sequence::NONE; 3], [0_u64; 3], Sequence::NONE);
    let (mut rewritten, mut is_changed) = (Vec::new(), has_lost);
    for append in appends {
        let Some(rows) = append.rows.as_ref().filter(|rows| !rows.is_empty()) else { continue };
        let mut out = Vec::new();
        for row in rows {
            if row.sequence() <= last {
                continue;
            }
            let sees = |audience: Audience| row.view(audience).is_some();
            is_changed |= Audience::ALL.into_iter().any(|one| sees(one) && row.prev(one) != seen_last[one.index()]);
            row.encode_after(&mut out, seen_last);
            last = row.sequence();
            for audience in Audience::ALL.into_iter().filter(|audience| sees(*audience)) {
                (seen_last[audience.index()], seen_count[audience.index()]) = (last, seen_count[audience.index()] + 1);
            }
        }
        if !out.is_empty() {
            rewritten.push((append.position, last, out));
        }
    }
    is_changed |= (summary.seen_last, summary.seen_count, summary.last_sequence) != (seen_last, seen_count, last);
    if is_changed {
        (summary.seen_last, summary.seen_count, summary.last_sequence) = (seen_last, seen_count, last);
        summary.compacted.times += 1;
        summary.compacted.through = last;
        summary.compacted.considered = summary.compacted.considered.min(last);
        for news in summary.extension.news.iter_mut().flat_map(|news| &mut news.last) {
            *news = (*news).min(last);
        }
    }
    (rewritten, is_changed)
}

/// The ids of the bodies that a row refers to.
fn body_ids(row: &Row) -> Vec<String> {
    fn collect(refs: &Value, ids: &mut Vec<String>) {
        if let Some(id) = refs.get("href").and_then(Value::as_str).and_then(|href| href.strip_prefix("/v1/blobs/")) {
            ids.push(id.to_owned());
        }
        match refs {
            Value::Array(items) => items.iter().for_each(|item| collect(item, ids)),
            Value::Object(members) => members.values().for_each(|member| collect(member, ids)),
            _ => {}
        }
    }
    let Some(text) = row.view(Audience::Internal).filter(|text| memchr::memmem::find(text, b"/v1/blobs/").is_some()) else {
        return Vec::new();
    };
    let mut ids = Vec::new();
    if let Ok(envelope) = serde_json::from_slice::<Value>(text) {
        collect(&envelope["refs"], &mut ids);
    }
    ids
}
