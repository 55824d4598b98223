//! What the trees have in memory becomes tables, and tables are merged.

use super::keys::tombstone_key;
use super::trees::{Batch, TreeName};
use super::{Shared, Writer};
use crate::log::{Mark, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of new entries at which the trees are persisted.
///
/// The trees hold up to twice as much in memory, and a start applies as much of the journal.
const PERSIST_BYTES: u64 = 64 << 20;
/// From this many bytes of new entries on, closing the store persists the trees. Less is applied at once by the next start.
const PERSIST_AT_CLOSE_BYTES: u64 = 4 << 20;

/// The order to write sealed memory to tables, and to merge tables.
#[derive(Default)]
pub struct Persist {
    pub state: Mutex<PersistState>,
    pub changed: Condvar,
}

#[derive(Default)]
pub struct PersistState {
    /// The mark of the sealed memory, which is being written.
    pub sealed: Option<Mark>,
    /// Whether tables may have to be merged.
    is_unmerged: bool,
    /// Whether to rewrite the tables, without what was deleted.
    pub wants_rewrite: bool,
    /// Logs whose data was deleted: before the seal, and since.
    pub deleted: [Vec<u64>; 2],
    pub is_closed: bool,
}

impl Shared {
    /// Persists the trees before the store is closed, if much is new.
    pub(super) fn close(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        if self.trees.unsealed_bytes() >= PERSIST_AT_CLOSE_BYTES {
            self.begin_persist(writer)?;
        }
        self.wait_until_persisted(writer)
    }

    /// Persists the trees if enough has been written, and waits if the last persist cannot keep up.
    pub(super) fn persist_if_due(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        if self.trees.unsealed_bytes() < PERSIST_BYTES {
            return Ok(());
        }
        let is_writing = self.persist.state.lock().sealed.is_some();
        if is_writing && self.trees.unsealed_bytes() < 2 * PERSIST_BYTES {
            return Ok(());
        }
        self.begin_persist(writer)
    }

    /// Seals the memory of the trees, for the thread that writes it to tables.
    pub(super) fn begin_persist(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        self.wait_until_persisted(writer)?;
        let mut state = self.persist.state.lock();
        self.trees.seal(writer.mark);
        state.sealed = Some(writer.mark);
        let [before, since] = &mut state.deleted;
        before.append(since);
        self.persist.changed.notify_all();
        Ok(())
    }

    pub(super) fn wait_until_persisted(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), StoreError> {
        let mut state = self.persist.state.lock();
        while state.sealed.is_some() {
            // A thread that fails says so, and it needs the writer's lock for that.
            drop(state);
            MutexGuard::unlocked(writer, || {
                let mut state = self.persist.state.lock();
                if state.sealed.is_some() && self.failed.borrow().is_none() {
                    self.persist.changed.wait_for(&mut state, Duration::from_millis(100));
                }
            });
            writer.check_usable()?;
            state = self.persist.state.lock();
        }
        Ok(())
    }

    /// Writes sealed memory to tables, until the store is closed.
    pub(super) fn run_persists(&self) -> Result<(), StoreError> {
        loop {
            let mark = {
                let mut state = self.persist.state.lock();
                loop {
                    match state.sealed {
                        Some(mark) => break mark,
                        None if state.is_closed => return Ok(()),
                        None => self.persist.changed.wait(&mut state),
                    }
                }
            };
            self.write_tables(mark)?;
            let deleted = {
                let mut state = self.persist.state.lock();
                (state.sealed, state.is_unmerged) = (None, true);
                self.persist.changed.notify_all();
                std::mem::take(&mut state.deleted[0])
            };
            self.release(&mut self.writer.lock())?;
            if !deleted.is_empty() {
                // Their data is gone from the tables too, so that no start has to delete it again.
                let mut batch = Batch::derived();
                for number in deleted {
                    batch.remove(TreeName::Names, tombstone_key(number));
                }
                let _writer = self.writer.lock();
                self.trees.write(batch);
            }
        }
    }

    fn write_tables(&self, mark: Mark) -> Result<(), StoreError> {
        // First, so that no table has what a power loss may take from the journal.
        (self.sync_journal)()?;
        self.trees.write_sealed().map_err(|(of, e)| self.engine_error("writing tables", of, &e))?;
        self.persisted.store(mark.applied, Ordering::Release);
        Ok(())
    }

    /// Lets go of memory that tables have, and of tables that were merged. The writer's lock holds writes back.
    pub(super) fn release(&self, _writer: &mut Writer) -> Result<(), StoreError> {
        self.trees.release().map_err(|(of, e)| self.engine_error("releasing tables", of, &e))
    }

    /// Merges tables after each persist, and rewrites them on request, until the store is closed.
    pub(super) fn run_merges(&self) -> Result<(), StoreError> {
        let is_closed = || self.persist.state.lock().is_closed;
        loop {
            let wants_rewrite = {
                let mut state = self.persist.state.lock();
                loop {
                    if state.is_closed {
                        return Ok(());
                    }
                    let wants_rewrite = std::mem::take(&mut state.wants_rewrite);
                    if std::mem::take(&mut state.is_unmerged) || wants_rewrite {
                        break wants_rewrite;
                    }
                    self.persist.changed.wait(&mut state);
                }
            };
            if wants_rewrite {
                self.rewrite_tables()?;
                continue;
            }
            self.trees.compact(is_closed).map_err(|(of, e)| self.engine_error("merging tables", of, &e))?;
            self.release(&mut self.writer.lock())?;
        }
    }
}
