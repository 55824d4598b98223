//! The stores that a server can run on, each with its journal.

use super::StoreError;
use super::embedded::EmbeddedStore;
use super::journal::{LocalJournal, MemoryJournal, Sync};
use super::memory::MemoryStore;
use std::path::Path;

/// A store and the journal that it follows.
pub enum Storage {
    /// In memory, until the process ends.
    Memory(MemoryStore, MemoryJournal),
    /// In a data directory.
    Embedded(EmbeddedStore, LocalJournal),
    /// In a data directory that follows the stream of a cluster.
    #[cfg(feature = "cluster")]
    Replica(EmbeddedStore, std::sync::Arc<super::journal::JetStreamJournal>),
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

    /// The data directory. `None`: the store is in memory.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Memory(..) => None,
            Self::Embedded(store, _) => Some(store.dir()),
            #[cfg(feature = "cluster")]
            Self::Replica(store, _) => Some(store.dir()),
        }
    }
}
