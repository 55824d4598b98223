//! The in-memory store.
//!
//! The simplest implementation of the contract, for tests, demos and servers with disposable logs.
//!
//! "Durable" here means until the process ends. The store never writes to a disk and has no limit but memory.

use super::figures::FIGURES;
use super::{
    Blob, Commit, Compaction, Limit, ListedLog, LoadedLog, LogHead, LogId, LogKind, META, Mark, PlacedAppend, Store, StoreError,
    StoredAppend,
};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};

/// Logs in memory, behind one lock. A holder keeps the lock only as long as it copies a few handles.
#[derive(Default)]
pub struct MemoryStore {
    inner: RwLock<StoredLogs>,
}

#[derive(Default)]
struct StoredLogs {
    logs: HashMap<LogId, StoredLog>,
    /// The logs in the order of creation.
    created: BTreeMap<u64, LogId>,
    /// Bodies, with the log that owns each.
    blobs: HashMap<BlobId, (LogId, Blob)>,
    mark: Mark,
    epoch: Option<Epoch>,
}

struct StoredLog {
    epoch: Epoch,
    created: u64,
    /// Ordered by sequence.
    appends: Vec<AppendEntry>,
    state: BTreeMap<Bytes, Bytes>,
    /// Keyed by kind and sequence.
    checkpoints: BTreeMap<(u8, Sequence), Bytes>,
}

struct AppendEntry {
    /// The log's last sequence after the append.
    last: Sequence,
    /// The last remaining row; [`Sequence::NONE`] when no row remains.
    left: Sequence,
    stored: StoredAppend,
}

impl StoredLog {
    fn last(&self) -> Sequence {
        self.appends.last().map_or(Sequence::NONE, |append| append.last)
    }

    fn set(&mut self, entries: &[(Bytes, Option<Bytes>)]) {
        for (key, value) in entries {
            match value {
                Some(value) => self.state.insert(key.clone(), value.clone()),
                None => self.state.remove(key),
            };
        }
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl StoredLogs {
    fn append(&mut self, PlacedAppend { append, place }: &PlacedAppend) {
        if place.creates {
            self.created.insert(place.number, append.log.clone());
            let (epoch, created) = (append.epoch, place.number);
            let log = StoredLog { epoch, created, appends: Vec::new(), state: BTreeMap::new(), checkpoints: BTreeMap::new() };
            self.logs.insert(append.log.clone(), log);
        }
        self.epoch.get_or_insert(append.epoch);
        self.mark.position = place.position;
        self.mark.created = self.mark.created.max(place.number);
        let log = self.logs.get_mut(&append.log).expect("an append without a conflict has a log");
        if !append.rows.is_empty() {
            let stored = StoredAppend { position: place.position, before: append.expected, rows: append.rows.clone() };
            log.appends.push(AppendEntry { last: append.last, left: append.last, stored });
        }
        log.set(&append.state);
        for blob in &append.blobs {
            match blob.is_removal() {
                true => drop(self.blobs.remove(&blob.id)),
                false => drop(self.blobs.insert(blob.id.clone(), (append.log.clone(), blob.clone()))),
            }
        }
    }

    fn compact(&mut self, compaction: &Compaction) {
        let log = self.logs.get_mut(&compaction.log).expect("a compaction applies to existing logs only");
        for rewritten in &compaction.appends {
            let at = log.appends.binary_search_by_key(&rewritten.position, |append| append.stored.position);
            let append = &mut log.appends[at.expect("a compaction rewrites only existing appends")];
            assert!(rewritten.last <= append.left, "a removed row does not come back");
            assert!(append.last < compaction.last || rewritten.last == compaction.last, "the log's last row stays");
            append.left = rewritten.last;
            append.stored.rows = rewritten.rows.clone();
        }
        log.set(&compaction.state);
        if !compaction.appends.is_empty() {
            log.checkpoints.clear();
        }
    }

    fn erase(&mut self, log: &LogId) {
        if let Some(erased) = self.logs.remove(log) {
            self.created.remove(&erased.created);
            self.blobs.retain(|_, (owner, _)| owner != log);
        }
    }
}

impl Store for MemoryStore {
    fn mark(&self) -> Mark {
        self.inner.read().mark
    }

    fn head(&self, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        let inner = self.inner.read();
        Ok(inner.logs.get(log).map(|log| LogHead { number: log.created, epoch: log.epoch, last: log.last() }))
    }

    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError> {
        let mut inner = self.inner.write();
        match commit {
            Commit::Group(appends) => appends.iter().for_each(|placed| inner.append(placed)),
            Commit::Compaction { compaction, .. } => inner.compact(compaction),
            Commit::Erasure { log, .. } => inner.erase(log),
            Commit::Leader(_) => {}
        }
        inner.mark.applied = position;
        Ok(())
    }

    /// All of it: the journal beside it ends with the process, too.
    fn persisted(&self) -> u64 {
        self.mark().applied
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let inner = self.inner.read();
        Ok(inner.logs.get(log).map(|log| LoadedLog {
            epoch: log.epoch,
            last: log.last(),
            state: log.state.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }))
    }

    fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        Ok(self.inner.read().epoch)
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(Sequence::NONE) };
        let until = log.appends.partition_point(|append| append.stored.position <= position);
        Ok(log.appends[..until].last().map_or(Sequence::NONE, |append| append.last))
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(None) };
        let at = log.appends.partition_point(|append| append.last < sequence);
        Ok(log.appends.get(at).map(|append| append.stored.position))
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(Vec::new()) };
        let from = log.appends.partition_point(|append| append.last <= after);
        let mut runs = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        for AppendEntry { left, stored, .. } in log.appends[from..].iter().filter(|append| append.left > after) {
            rows += left.0 - stored.before.max(after).0;
            bytes += stored.rows.len();
            let fits = rows <= limit.rows as u64 && bytes <= limit.bytes;
            if !fits && !runs.is_empty() {
                break;
            }
            runs.push(stored.clone());
        }
        Ok(runs)
    }

    fn committed(&self, after: u64, until: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let inner = self.inner.read();
        let appends = inner.logs.values().flat_map(|log| {
            let from = log.appends.partition_point(|append| append.stored.position <= after);
            log.appends[from..].iter().take(limit).map(|append| (append.stored.position, &append.stored.rows))
        });
        let mut found: Vec<_> = appends.filter(|(position, rows)| *position <= until && !rows.is_empty()).collect();
        found.sort_unstable_by_key(|(position, _)| *position);
        Ok(found.into_iter().take(limit).map(|(position, rows)| (position, rows.clone())).collect())
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        let inner = self.inner.read();
        let older = inner.created.range(..before.unwrap_or(u64::MAX)).rev();
        let of_kind = older.filter(|(_, log)| log.kind() == kind).take(limit);
        Ok(of_kind
            .map(|(created, id)| {
                let log = &inner.logs[id];
                let [meta, figures] = [META, FIGURES].map(|key| log.state.get(key).cloned().unwrap_or_default());
                ListedLog { log: id.clone(), epoch: log.epoch, created: *created, meta, figures }
            })
            .collect())
    }

    fn bodies(&self, log: &LogId, _: Epoch, after: Option<&BlobId>, _: usize) -> Result<Vec<Blob>, StoreError> {
        let inner = self.inner.read();
        let of_log = inner.blobs.values().filter(|(owner, blob)| owner == log && after.is_none_or(|after| blob.id > *after));
        let mut bodies: Vec<_> = of_log.map(|(_, blob)| blob.clone()).collect();
        bodies.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(bodies)
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        Ok(self.inner.read().blobs.get(id).map(|(_, blob)| blob.clone()))
    }

    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError> {
        let mut inner = self.inner.write();
        if let Some(log) = inner.logs.get_mut(log).filter(|log| log.epoch == epoch && sequence <= log.last()) {
            log.checkpoints.insert((kind, sequence), body);
        }
        Ok(())
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(None) };
        let newest = log.checkpoints.range((kind, Sequence::NONE)..=(kind, at)).next_back();
        Ok(newest.map(|((_, sequence), body)| (*sequence, body.clone())))
    }

    fn bytes(&self) -> u64 {
        0
    }
}
