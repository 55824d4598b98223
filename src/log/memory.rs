//! The in-memory store.
//!
//! The simplest implementation of the contract, for tests, demos and servers with disposable logs.
//!
//! "Durable" here means until the process ends. The store never writes to a disk and has no limit but memory.

use super::{
    Append, AppendOutcome, Blob, Compaction, Limit, ListedLog, LoadedLog, LogId, LogKind, META, Store, StoreError, StoredAppend,
};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Logs in memory, behind one lock. A holder keeps the lock only as long as it copies a few handles.
#[derive(Default)]
pub struct MemoryStore {
    inner: RwLock<Inner>,
    gate: Gate,
}

/// A gate that every commit passes. While closed it delays commits as a slow disk would; for tests.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Delays commits from now on.
    pub fn close(&self) {
        *self.0.0.lock() = true;
    }

    /// Releases all commits.
    pub fn open(&self) {
        *self.0.0.lock() = false;
        self.0.1.notify_all();
    }

    fn wait_open(&self) {
        let (is_closed, opened) = &*self.0;
        opened.wait_while(&mut is_closed.lock(), |is_closed| *is_closed);
    }
}

#[derive(Default)]
struct Inner {
    logs: HashMap<LogId, Log>,
    /// The logs in the order of creation.
    created: BTreeMap<u64, LogId>,
    /// Bodies, with the log that owns each.
    blobs: HashMap<BlobId, (LogId, Blob)>,
    created_last: u64,
    position_last: u64,
    epoch: Option<Epoch>,
}

struct Log {
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

impl Log {
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

    /// An empty store, and the gate that its commits pass.
    #[must_use]
    pub fn with_gate() -> (Self, Gate) {
        let store = Self::default();
        let gate = store.gate.clone();
        (store, gate)
    }
}

impl Inner {
    fn append(&mut self, append: &Append) -> AppendOutcome {
        let current = self.logs.get(&append.log).map(|log| (log.epoch, log.last()));
        if let Some(conflict) = append.conflict(current) {
            return conflict;
        }
        let created = match self.logs.get(&append.log) {
            Some(log) if append.is_empty() => {
                return AppendOutcome::Committed { position: self.position_last, created: log.created };
            }
            Some(log) => log.created,
            None => {
                self.created_last += 1;
                self.created.insert(self.created_last, append.log.clone());
                self.created_last
            }
        };
        let log = self.logs.entry(append.log.clone()).or_insert_with(|| Log {
            epoch: append.epoch,
            created,
            appends: Vec::new(),
            state: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
        });
        self.epoch.get_or_insert(append.epoch);
        self.position_last += 1;
        if !append.rows.is_empty() {
            let stored = StoredAppend { position: self.position_last, before: append.expected, rows: append.rows.clone() };
            log.appends.push(AppendEntry { last: append.last, left: append.last, stored });
        }
        log.set(&append.state);
        for blob in &append.blobs {
            self.blobs.insert(blob.id.clone(), (append.log.clone(), blob.clone()));
        }
        AppendOutcome::Committed { position: self.position_last, created }
    }
}

impl Store for MemoryStore {
    async fn commit(&self, group: &[Append]) -> Result<Vec<AppendOutcome>, StoreError> {
        self.commit_linked(group, &vec![false; group.len()]).await
    }

    async fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<AppendOutcome>, StoreError> {
        self.gate.wait_open();
        let mut inner = self.inner.write();
        let mut refused = HashMap::new();
        let outcomes = group.iter().zip(follows).map(|(append, follows)| {
            let outcome = match refused.get(&append.log) {
                Some(conflict) if *follows => *conflict,
                _ => inner.append(append),
            };
            if outcome.position().is_none() {
                refused.insert(&append.log, outcome);
            }
            outcome
        });
        Ok(outcomes.collect())
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let inner = self.inner.read();
        Ok(inner.logs.get(log).map(|log| LoadedLog {
            epoch: log.epoch,
            last: log.last(),
            state: log.state.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }))
    }

    fn position(&self) -> Result<u64, StoreError> {
        Ok(self.inner.read().position_last)
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

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        let inner = self.inner.read();
        let older = inner.created.range(..before.unwrap_or(u64::MAX)).rev();
        let of_kind = older.filter(|(_, log)| log.kind() == kind).take(limit);
        Ok(of_kind
            .map(|(created, id)| {
                let log = &inner.logs[id];
                let meta = log.state.get(META).cloned().unwrap_or_default();
                ListedLog { log: id.clone(), epoch: log.epoch, created: *created, meta }
            })
            .collect())
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

    async fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        let mut inner = self.inner.write();
        let log = inner.logs.get_mut(&compaction.log);
        let current = log.as_ref().map(|log| (log.epoch, log.last()));
        let Some(log) = log.filter(|_| compaction.applies_to(current)) else { return Ok(false) };
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
        Ok(true)
    }

    async fn erase(&self, log: &LogId) -> Result<(), StoreError> {
        let mut inner = self.inner.write();
        if let Some(erased) = inner.logs.remove(log) {
            inner.created.remove(&erased.created);
            inner.blobs.retain(|_, (owner, _)| owner != log);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        0
    }
}
