//! The stores that a server can run on, each with its journal.

use super::embedded::EmbeddedStore;
use super::journal::{LocalJournal, MemoryJournal, Sync};
use super::memory::MemoryStore;
use super::{Commit, Limit, ListedLog, LoadedLog, LogHead, LogId, LogKind, Mark, Store, StoreError, StoredAppend};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use std::path::Path;
use tokio::sync::watch;

/// A store and the journal that it follows.
pub enum Storage {
    /// In memory, until the process ends.
    Memory(MemoryStore, MemoryJournal),
    /// In a data directory.
    Embedded(EmbeddedStore, LocalJournal),
}

impl Storage {
    /// An empty store in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new(), MemoryJournal::default())
    }

    /// Opens the store in the directory `dir`, or creates both.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn open(dir: &Path, sync: Sync) -> Result<Self, StoreError> {
        EmbeddedStore::open(dir, sync).map(|(store, journal)| Self::Embedded(store, journal))
    }
}

/// A store of any kind.
pub enum AnyStore {
    Memory(MemoryStore),
    Embedded(EmbeddedStore),
}

macro_rules! each_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            Self::Embedded($store) => $call,
        }
    };
}

impl Store for AnyStore {
    fn mark(&self) -> Mark {
        each_store!(self, store => store.mark())
    }

    fn head(&self, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        each_store!(self, store => store.head(log))
    }

    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError> {
        each_store!(self, store => store.apply(position, commit))
    }

    fn start(&self) -> Result<(), StoreError> {
        each_store!(self, store => store.start())
    }

    fn persisted(&self) -> u64 {
        each_store!(self, store => store.persisted())
    }

    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        each_store!(self, store => store.load(log))
    }

    fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        each_store!(self, store => store.epoch())
    }

    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        each_store!(self, store => store.locate(log, epoch, position))
    }

    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        each_store!(self, store => store.position_of(log, epoch, sequence))
    }

    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        each_store!(self, store => store.read(log, epoch, after, limit))
    }

    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        each_store!(self, store => store.list(kind, before, limit))
    }

    fn blob(&self, id: &BlobId) -> Result<Option<super::Blob>, StoreError> {
        each_store!(self, store => store.blob(id))
    }

    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError> {
        each_store!(self, store => store.save_checkpoint(log, epoch, kind, sequence, body))
    }

    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        each_store!(self, store => store.checkpoint(log, epoch, kind, at))
    }

    fn bytes(&self) -> u64 {
        each_store!(self, store => store.bytes())
    }

    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        each_store!(self, store => store.failure())
    }
}
