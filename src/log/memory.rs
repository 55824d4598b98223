//! The store in memory: the plainest reading of the contract, for tests, demos and servers whose logs may die with them.
//!
//! "Durable" here means until the process ends. What it never does: write to a disk, or bound itself; memory is the limit.

use super::{Append, Blob, Compaction, Limit, Listed, Loaded, LogId, LogKind, META, Outcome, Placed, Store, StoreError};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Logs in memory, behind one lock that nobody holds for longer than a copy of some handles takes.
#[derive(Default)]
pub struct MemoryStore {
    inner: RwLock<Inner>,
    gate: Gate,
}

/// What every commit of a store passes. Closed, it holds commits up as a slow disk would: for tests of what happens then.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// From now on commits wait.
    pub fn close(&self) {
        *self.0.0.lock() = true;
    }

    /// Lets go of them.
    pub fn open(&self) {
        *self.0.0.lock() = false;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let (is_closed, opened) = &*self.0;
        opened.wait_while(&mut is_closed.lock(), |is_closed| *is_closed);
    }
}

#[derive(Default)]
struct Inner {
    logs: HashMap<LogId, Log>,
    /// The logs in the order of their creation.
    created: BTreeMap<u64, LogId>,
    /// Bodies, and the log that each belongs to.
    blobs: HashMap<BlobId, (LogId, Blob)>,
    created_last: u64,
    position_last: u64,
    life: Option<Epoch>,
}

struct Log {
    epoch: Epoch,
    created: u64,
    /// In order.
    appends: Vec<Kept>,
    state: BTreeMap<Bytes, Bytes>,
    /// By kind and sequence.
    checkpoints: BTreeMap<(u8, Sequence), Bytes>,
}

struct Kept {
    /// The log's last sequence after it.
    last: Sequence,
    /// The last row that is left of it; nothing may be.
    left: Sequence,
    placed: Placed,
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

    /// An empty store, and what its commits pass.
    #[must_use]
    pub fn gated() -> (Self, Gate) {
        let store = Self::default();
        let gate = store.gate.clone();
        (store, gate)
    }
}

impl Inner {
    fn append(&mut self, append: &Append) -> Outcome {
        let standing = self.logs.get(&append.log).map(|log| (log.epoch, log.last()));
        if let Some(conflict) = append.conflict(standing) {
            return conflict;
        }
        let created = match self.logs.get(&append.log) {
            Some(log) if append.is_empty() => {
                return Outcome::Committed { position: self.position_last, created: log.created };
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
        self.life.get_or_insert(append.epoch);
        self.position_last += 1;
        if !append.rows.is_empty() {
            let placed = Placed { position: self.position_last, before: append.expected, rows: append.rows.clone() };
            log.appends.push(Kept { last: append.last, left: append.last, placed });
        }
        log.set(&append.state);
        for blob in &append.blobs {
            self.blobs.insert(blob.id.clone(), (append.log.clone(), blob.clone()));
        }
        Outcome::Committed { position: self.position_last, created }
    }
}

impl Store for MemoryStore {
    async fn commit(&self, group: &[Append]) -> Result<Vec<Outcome>, StoreError> {
        self.commit_linked(group, &vec![false; group.len()]).await
    }

    async fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<Outcome>, StoreError> {
        self.gate.pass();
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

    async fn load(&self, log: &LogId) -> Result<Option<Loaded>, StoreError> {
        let inner = self.inner.read();
        Ok(inner.logs.get(log).map(|log| Loaded {
            epoch: log.epoch,
            last: log.last(),
            state: log.state.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }))
    }

    async fn position(&self) -> Result<u64, StoreError> {
        Ok(self.inner.read().position_last)
    }

    async fn life(&self) -> Result<Option<Epoch>, StoreError> {
        Ok(self.inner.read().life)
    }

    async fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(Sequence::NONE) };
        let until = log.appends.partition_point(|append| append.placed.position <= position);
        Ok(log.appends[..until].last().map_or(Sequence::NONE, |append| append.last))
    }

    async fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(None) };
        let at = log.appends.partition_point(|append| append.last < sequence);
        Ok(log.appends.get(at).map(|append| append.placed.position))
    }

    async fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Placed>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(Vec::new()) };
        let from = log.appends.partition_point(|append| append.last <= after);
        let mut runs = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        for Kept { left, placed, .. } in log.appends[from..].iter().filter(|append| append.left > after) {
            rows += left.0 - placed.before.max(after).0;
            bytes += placed.rows.len();
            let fits = rows <= limit.rows as u64 && bytes <= limit.bytes;
            if !fits && !runs.is_empty() {
                break;
            }
            runs.push(placed.clone());
        }
        Ok(runs)
    }

    async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let inner = self.inner.read();
        let older = inner.created.range(..before.unwrap_or(u64::MAX)).rev();
        let of_kind = older.filter(|(_, log)| log.kind() == kind).take(limit);
        Ok(of_kind
            .map(|(created, id)| {
                let log = &inner.logs[id];
                let meta = log.state.get(META).cloned().unwrap_or_default();
                Listed { log: id.clone(), epoch: log.epoch, created: *created, meta }
            })
            .collect())
    }

    async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        Ok(self.inner.read().blobs.get(id).map(|(_, blob)| blob.clone()))
    }

    async fn save_checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        sequence: Sequence,
        body: Bytes,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner.write();
        if let Some(log) = inner.logs.get_mut(log).filter(|log| log.epoch == epoch && sequence <= log.last()) {
            log.checkpoints.insert((kind, sequence), body);
        }
        Ok(())
    }

    async fn checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let inner = self.inner.read();
        let Some(log) = inner.logs.get(log).filter(|log| log.epoch == epoch) else { return Ok(None) };
        let newest = log.checkpoints.range((kind, Sequence::NONE)..=(kind, at)).next_back();
        Ok(newest.map(|((_, sequence), body)| (*sequence, body.clone())))
    }

    async fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        let mut inner = self.inner.write();
        let log = inner.logs.get_mut(&compaction.log);
        let standing = log.as_ref().map(|log| (log.epoch, log.last()));
        let Some(log) = log.filter(|_| compaction.fits(standing)) else { return Ok(false) };
        for rewritten in &compaction.appends {
            let at = log.appends.binary_search_by_key(&rewritten.position, |append| append.placed.position);
            let append = &mut log.appends[at.expect("only appends that are there are rewritten")];
            assert!(rewritten.last <= append.left, "what is gone does not come back");
            assert!(append.last < compaction.last || rewritten.last == compaction.last, "the log's last row stays");
            append.left = rewritten.last;
            append.placed.rows = rewritten.rows.clone();
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

    async fn bytes(&self) -> u64 {
        0
    }
}
