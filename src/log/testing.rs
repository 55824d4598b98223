//! A store with its journal, for tests and benchmarks that write without a server.

use crate::log::commit::Orderer;
use crate::log::embedded::{EmbeddedStore, Sync};
use crate::log::journal::{Journal, LocalJournal, MemoryJournal};
use crate::log::memory::MemoryStore;
use crate::log::{Append, AppendOutcome, Compaction, LogId, Store, StoreError};
use parking_lot::Mutex;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A store, and what orders its commits. Dereferences to the store.
pub struct Ordered<S, J> {
    store: Arc<S>,
    pub journal: Arc<J>,
    /// One commit at a time.
    orderer: Mutex<Orderer<S, J>>,
}

/// The store of a data directory.
pub type OnDisk = Ordered<EmbeddedStore, LocalJournal>;

/// An empty store in memory.
#[must_use]
pub fn in_memory() -> Ordered<MemoryStore, MemoryJournal> {
    Ordered::new(MemoryStore::new(), Arc::default()).expect("an empty store opens")
}

/// Opens the store in a directory, or creates both.
///
/// # Errors
/// As [`EmbeddedStore::open`] and [`Orderer::open`].
pub fn on_disk(dir: &Path, sync: Sync) -> Result<OnDisk, StoreError> {
    let (store, journal) = EmbeddedStore::open(dir, sync)?;
    Ordered::new(store, Arc::new(journal))
}

impl<S: Store, J: Journal> Ordered<S, J> {
    /// Applies what the store lacks of the journal.
    ///
    /// # Errors
    /// As [`Orderer::open`].
    pub fn new(store: S, journal: Arc<J>) -> Result<Self, StoreError> {
        let store = Arc::new(store);
        let orderer = pollster::block_on(Orderer::open(store.clone(), journal.clone()))?;
        Ok(Self { store, journal, orderer: Mutex::new(orderer) })
    }

    /// Commits a group of appends, none of which depends on another.
    ///
    /// # Errors
    /// As [`Orderer::append`].
    pub fn commit(&self, group: &[Append]) -> Result<Vec<AppendOutcome>, StoreError> {
        self.commit_linked(group, &vec![false; group.len()])
    }

    /// See [`Orderer::append`].
    ///
    /// # Errors
    /// As [`Orderer::append`].
    pub fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<AppendOutcome>, StoreError> {
        let ordered = pollster::block_on(self.orderer.lock().append(group.to_vec(), follows))?;
        Ok(ordered.compared.into_iter().map(|(outcome, _)| outcome).collect())
    }

    /// See [`Orderer::compact`]; returns whether it did.
    ///
    /// # Errors
    /// As [`Orderer::compact`].
    pub fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        Ok(pollster::block_on(self.orderer.lock().compact(compaction.clone()))?.is_some())
    }

    /// See [`Orderer::erase`].
    ///
    /// # Errors
    /// As [`Orderer::erase`].
    pub fn erase(&self, log: &LogId) -> Result<bool, StoreError> {
        pollster::block_on(self.orderer.lock().erase(log)).map(|erased| erased.is_some())
    }

    /// See [`Journal::flush`].
    ///
    /// # Errors
    /// As [`Journal::flush`].
    pub fn flush(&self) -> Result<(), StoreError> {
        pollster::block_on(self.journal.flush())
    }

    /// The size of the store and of its journal, in bytes.
    #[must_use]
    pub fn bytes_with_journal(&self) -> u64 {
        self.store.bytes() + self.journal.bytes()
    }
}

impl<S, J> Deref for Ordered<S, J> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}
