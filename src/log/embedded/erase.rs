//! The deletion of erased logs.
//!
//! An erasure first commits a tombstone; then a thread deletes the data in bounded batches. Readers find everything by
//! name, so they never see a half-erased log. They also skip a body while its log's number has a tombstone. The journal
//! does not have the deletions, so the tombstone stays until tables have them.

use super::Shared;
use super::keys::{IndexEntry, body_name_key, index_key, number_of};
use super::trees::{Batch, Entries, TreeName};
use crate::log::StoreError;
use crate::model::Sequence;
use lsm_tree::IterGuardImpl;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

/// Keys that one batch removes. It bounds how long commits wait.
pub(super) const DELETE_KEYS_MAX: usize = 1024;

/// A log with a tombstone, whose data is being deleted.
pub(super) struct PendingDelete {
    number: u64,
    /// Its appends up to here are deleted.
    ///
    /// Without this, each batch would scan the engine's markers of all deleted keys again.
    deleted: Sequence,
}

impl PendingDelete {
    pub const fn new(number: u64) -> Self {
        Self { number, deleted: Sequence::NONE }
    }
}

impl Shared {
    /// The logs whose deletion has begun, and perhaps has not finished.
    pub(super) fn pending_deletes(&self) -> Result<Vec<PendingDelete>, StoreError> {
        let dead = self.trees.snapshot().prefix(TreeName::Names, b"d");
        dead.map(|entry| {
            let key = self.key(TreeName::Names, entry)?;
            let number = self.decode(TreeName::Names, key.get(1..).and_then(number_of))?;
            Ok(PendingDelete::new(number))
        })
        .collect()
    }

    /// Deletes one batch of the data of a log with a tombstone; whether that was the last batch.
    pub(super) fn delete_batch(&self, pending: &mut PendingDelete) -> Result<bool, StoreError> {
        let number = pending.number;
        assert!(!cfg!(test) || number < u64::MAX, "a test asked for this panic");
        let snapshot = self.trees.snapshot();
        let (mut batch, mut body_names, mut left, mut bytes) = (Batch::derived(), Vec::new(), DELETE_KEYS_MAX, 0);
        let size = |of, key: &[u8]| snapshot.size_of(of, key).map_err(|e| self.engine_error("reading the store", of, &e));
        let mut some = |entries: Entries| -> Vec<IterGuardImpl> {
            let taken: Vec<_> = entries.take(left).collect();
            left -= taken.len();
            taken
        };
        let appends = index_key(number, pending.deleted.next())..=index_key(number, Sequence(u64::MAX));
        for entry in some(snapshot.range(TreeName::Index, appends)) {
            let IndexEntry { last, position, .. } = self.index_entry(entry)?;
            pending.deleted = last;
            bytes += size(TreeName::Rows, &position.to_be_bytes())?;
            batch.remove(TreeName::Rows, position.to_be_bytes());
            batch.remove(TreeName::Index, index_key(number, last));
        }
        for entry in some(snapshot.prefix(TreeName::State, number.to_be_bytes())) {
            let (key, value) = self.entry(TreeName::State, entry)?;
            bytes += value.len() as u64;
            batch.remove(TreeName::State, key);
        }
        for entry in some(snapshot.prefix(TreeName::Bodies, number.to_be_bytes())) {
            let key = self.key(TreeName::Bodies, entry)?;
            bytes += size(TreeName::Bodies, &key)?;
            body_names.push(body_name_key(&key[8..]));
            batch.remove(TreeName::Bodies, key);
        }
        drop(snapshot);
        let mut writer = self.writer.lock();
        writer.check_usable()?;
        // Under the lock, because another log may own a body of the same name, also since the snapshot. A checkpoint has
        // no name, so none is found.
        let snapshot = self.trees.snapshot();
        for name in body_names {
            if self.get(&snapshot, TreeName::Names, &name)?.as_deref() == Some(&number.to_be_bytes()) {
                batch.remove(TreeName::Names, name);
            }
        }
        drop(snapshot);
        if bytes > 0 {
            self.count_remains(&mut batch, bytes, writer.mark.applied);
        }
        self.trees.write(batch);
        if left > 0 {
            self.persist.state.lock().deleted[1].push(number);
        }
        self.persist_if_due(&mut writer)?;
        Ok(left > 0)
    }

    /// Deletes what erasures leave, until the store is closed.
    pub(super) fn run_deletes(&self, requests: &mpsc::Receiver<PendingDelete>) -> Result<(), StoreError> {
        let mut pending = VecDeque::new();
        loop {
            let request = match pending.is_empty() {
                true => requests.recv().map_err(|_| mpsc::TryRecvError::Disconnected),
                false => requests.try_recv(),
            };
            match request {
                Ok(request) => pending.push_back(request),
                Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::TryRecvError::Empty) => {}
            }
            let Some(mut first) = pending.pop_front() else { continue };
            match self.delete_batch(&mut first) {
                Ok(false) => {
                    pending.push_front(first);
                    continue;
                }
                Ok(true) => {}
                Err(error) => tracing::error!(%error, "an erased log could not be deleted; the next start tries again"),
            }
            self.purge.undeleted.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
