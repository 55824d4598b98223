//! A store some of whose logs are archived.

use super::{Archive, ArchiveEntry, place_of_body};
use crate::log::pinned::PinnedFiles;
use crate::log::row::Rows;
use crate::log::{
    Blob, Commit, Limit, ListedLog, LoadedLog, LogHead, LogId, LogKind, Mark, Remains, Store, StoreError, StoredAppend,
    log_of_number,
};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;

/// Reads the rows of archived logs from their objects, and everything else from the store.
pub struct ArchivedStore<S> {
    store: S,
    archive: Arc<Archive>,
}

impl<S: Store> ArchivedStore<S> {
    pub const fn new(store: S, archive: Arc<Archive>) -> Self {
        Self { store, archive }
    }

    /// A body with its bytes, wherever they are. `None`: its log was erased meanwhile.
    fn with_body(&self, blob: Blob) -> Result<Option<Blob>, StoreError> {
        let Some((number, meta)) = place_of_body(&blob) else { return Ok(Some(blob)) };
        let Some(found) = log_of_number(&self.store, LogKind::Run, number)? else { return Ok(None) };
        let Some(entry) = ArchiveEntry::of(&self.store, &found.log, found.epoch)? else { return Ok(None) };
        let body = self.archive.body(&found.log, &entry, &blob.id)?;
        Ok(Some(Blob { id: blob.id, meta, body }))
    }
}

/// Whether rows after `after` are missing before the first of these appends.
///
/// An archived log keeps its last row, so a gap is always before a row.
fn begins_late(appends: &[StoredAppend], after: Sequence) -> bool {
    let first = appends.first().and_then(|append| Rows(append.rows.clone()).next());
    first.is_some_and(|row| row.sequence() > after.next())
}

#[deny(clippy::missing_trait_methods, reason = "a store that lacks one would be a store without it")]
impl<S: Store> Store for ArchivedStore<S> {
    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        let appends = self.store.read(log, epoch, after, limit)?;
        if !begins_late(&appends, after) {
            return Ok(appends);
        }
        let Some(entry) = ArchiveEntry::of(&self.store, log, epoch)? else { return Ok(appends) };
        if entry.through <= after {
            return Ok(appends);
        }
        let mut archived = self.archive.read(log, &entry, after, limit)?;
        // A reader takes a page with room left as the last one.
        if let Some(last) = archived.last().and_then(|append| Rows(append.rows.clone()).last()).map(|row| row.sequence()) {
            let rows = limit.rows.saturating_sub(usize::try_from(last.0 - after.0).unwrap_or(usize::MAX));
            let bytes = limit.bytes.saturating_sub(archived.iter().map(|append| append.rows.len()).sum());
            if last >= entry.through && rows > 0 && bytes > 0 {
                archived.extend(self.store.read(log, epoch, last, Limit { rows, bytes })?);
            }
        }
        Ok(if archived.is_empty() { appends } else { archived })
    }

    fn read_stored(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        self.store.read(log, epoch, after, limit)
    }

    fn mark(&self) -> Mark {
        self.store.mark()
    }

    fn head(&self, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        self.store.head(log)
    }

    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError> {
        self.store.apply(position, commit)
    }

    fn start(&self) -> Result<(), StoreError> {
        self.store.start()
    }

    fn persisted(&self) -> u64 {
        self.store.persisted()
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        self.store.load(log)
    }

    fn entry(&self, log: &LogId, epoch: Epoch, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.store.entry(log, epoch, key)
    }

    fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        self.store.epoch()
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        self.store.locate(log, epoch, position)
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        self.store.position_of(log, epoch, sequence)
    }

    fn committed(&self, after: u64, until: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.store.committed(after, until, limit)
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        self.store.list(kind, before, limit)
    }

    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        self.store.blob(id)?.map_or(Ok(None), |blob| self.with_body(blob))
    }

    fn bodies(&self, log: &LogId, epoch: Epoch, after: Option<&BlobId>, bytes_max: usize) -> Result<Vec<Blob>, StoreError> {
        let bodies = self.store.bodies(log, epoch, after, bytes_max)?;
        bodies.into_iter().filter_map(|blob| self.with_body(blob).transpose()).collect()
    }

    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError> {
        self.store.save_checkpoint(log, epoch, kind, sequence, body)
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        self.store.checkpoint(log, epoch, kind, at)
    }

    fn export(&self, write: &mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> {
        self.store.export(write)
    }

    fn pin(&self) -> Result<Option<PinnedFiles>, StoreError> {
        self.store.pin()
    }

    fn remains(&self) -> Remains {
        self.store.remains()
    }

    fn begin_rewrite(&self) {
        self.store.begin_rewrite();
    }

    fn forget_remains(&self, gone: &Remains) -> Result<(), StoreError> {
        self.store.forget_remains(gone)
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        self.store.failure()
    }
}
