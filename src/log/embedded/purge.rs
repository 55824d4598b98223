//! The removal of what erasures leave in files.
//!
//! An erasure hides a log, and a thread then deletes its entries. The engine only notes that; the bytes stay in tables
//! until they are rewritten, and in the journal until it drops their records. What waits is counted, durably, in the
//! same batch as the deletions ([`Remains`]).
//!
//! ```text
//!   deletions done ─▶ memory to tables ─▶ every table rewritten ─▶ the journal drops what tables have ─▶ nothing waits
//!                            (the thread that merges tables)                    (the caller)
//! ```
//! A pass that is cut off leaves the count, so the next one does all of it.

use super::Shared;
use super::trees::{Batch, TreeName};
use crate::environment::{self, Environment};
use crate::log::{Remains, StoreError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The key of what erasures have left, in the tree of names. It concerns the files of this store alone.
pub(super) const REMAINS_KEY: &[u8] = b"w";
/// The interval at which the thread looks whether a step of another thread is done.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What erasures have left, and how far its removal is.
#[derive(Default)]
pub(super) struct PurgeState {
    /// Logs whose deletion was requested and is not done.
    pub undeleted: AtomicU64,
    remains: parking_lot::Mutex<Remains>,
}

fn encode(remains: &Remains) -> Vec<u8> {
    let words = [remains.since.unwrap_or_default().cast_unsigned(), remains.bytes, remains.commit];
    words.map(u64::to_be_bytes).concat()
}

fn decode(value: &[u8]) -> Option<Remains> {
    let (words, []) = value.as_chunks::<8>() else { return None };
    let &[since, bytes, commit] = words else { return None };
    let [since, bytes, commit] = [since, bytes, commit].map(u64::from_be_bytes);
    Some(Remains { bytes, since: Some(since.cast_signed()), commit, rewritten: 0 })
}

impl Shared {
    pub(super) fn load_remains(&self) -> Result<(), StoreError> {
        if let Some(value) = self.get(&self.trees.snapshot(), TreeName::Names, REMAINS_KEY)? {
            *self.purge.remains.lock() = self.decode(TreeName::Names, decode(&value))?;
        }
        Ok(())
    }

    pub(super) fn remains(&self) -> Remains {
        *self.purge.remains.lock()
    }

    /// Counts deleted entries, in the batch that deletes them. The caller has the writer's lock.
    pub(super) fn count_remains(&self, batch: &mut Batch, bytes: u64, commit: u64) {
        let mut remains = self.purge.remains.lock();
        remains.since.get_or_insert_with(|| (Environment::SYSTEM.now)().as_millisecond());
        remains.bytes += bytes;
        remains.commit = commit;
        batch.insert(TreeName::Names, REMAINS_KEY, encode(&remains));
    }

    /// Notes that what a pass found is gone from every file.
    pub(super) fn forget_remains(&self, gone: &Remains) -> Result<(), StoreError> {
        let writer = self.writer.lock();
        writer.check_usable()?;
        let (mut remains, mut batch) = (self.purge.remains.lock(), Batch::derived());
        if remains.commit == gone.commit {
            *remains = Remains { rewritten: remains.rewritten, ..Remains::default() };
            batch.remove(TreeName::Names, REMAINS_KEY);
        } else {
            // What was erased since the pass began has a pass of its own, although the tables may already be without it:
            // the journal is not.
            remains.rewritten = remains.rewritten.min(gone.commit);
            remains.bytes = remains.bytes.saturating_sub(gone.bytes);
            remains.since = Some((Environment::SYSTEM.now)().as_millisecond());
            batch.insert(TreeName::Names, REMAINS_KEY, encode(&remains));
        }
        self.trees.write(batch);
        Ok(())
    }

    /// Waits until no deletion is under way.
    pub(super) fn wait_until_deleted(&self) {
        while self.purge.undeleted.load(Ordering::Acquire) > 0 && !self.persist.state.lock().is_closed {
            environment::sleep_thread(POLL_INTERVAL);
        }
    }

    /// Rewrites the tables without what was deleted before the call.
    pub(super) fn rewrite_tables(&self) -> Result<(), StoreError> {
        self.wait_until_deleted();
        let commit = self.remains().commit;
        {
            let mut writer = self.writer.lock();
            self.begin_persist(&mut writer)?;
            self.wait_until_persisted(&mut writer)?;
        }
        let is_closed = || self.persist.state.lock().is_closed;
        self.trees.rewrite(is_closed).map_err(|(of, e)| self.engine_error("rewriting tables", of, &e))?;
        // A reader that began before keeps the former files.
        let now = self.trees.snapshot_number();
        while self.trees.has_snapshot_before(now) && !is_closed() {
            environment::sleep_thread(POLL_INTERVAL);
        }
        self.release(&mut self.writer.lock())?;
        if !is_closed() {
            self.purge.remains.lock().rewritten = commit;
        }
        Ok(())
    }
}
