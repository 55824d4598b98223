//! Erasure and compaction of a log. Both retire its writer first.

use super::pending::{ATTEMPTS_MAX, Commit};
use super::writer::{LogWriter, WriterState};
use super::{Ingest, WriterSlot};
use crate::log::commit::{CompactionState, Summary, Tail};
use crate::log::hash_chain::StateEntry;
use crate::log::{Compaction, LogId, META, RewrittenAppend, StoreError};
use crate::model::Sequence;
use bytes::Bytes;
use std::sync::Arc;

/// The plan of a compaction: the new history of a log.
#[derive(Debug, Default)]
pub struct CompactionPlan {
    pub appends: Vec<RewrittenAppend>,
    /// Per audience, the number of visible rows that the compaction removes.
    pub unseen: [u64; 3],
    pub compacted: CompactionState,
    /// How far the log is archived.
    pub archived_through: Sequence,
    /// State entries that change with it, such as the one of the hash chain that says which rows go.
    pub state: Vec<StateEntry>,
}

impl Ingest {
    /// Erases a log with all accepted facts, durably; `false` when the log was never written.
    ///
    /// Later facts start a new epoch.
    ///
    /// A log with unreadable state has no writer; it is erased before a writer opens.
    ///
    /// The call must run to its end even if the caller disconnects: spawn it as a task.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn erase(&self, id: &LogId) -> Result<bool, StoreError> {
        let mut attempts = 1..;
        let _alone = self.core.logs.archive().lock(id).await;
        let (_open, mut is_erased) = self.core.logs.open_for_erase(id).await?;
        loop {
            let slot = self.slot(id).await?;
            let open_writer = async || match self.open_writer(&slot).await {
                // No other writer can open meanwhile: callers wait for this slot.
                Err(error) if error.affects_one_log() => {
                    self.core.logs.erase(&slot.log).await?;
                    is_erased = true;
                    self.open_writer(&slot).await
                }
                writer => writer,
            };
            slot.writer.get_or_try_init(open_writer).await?;
            let (slot, mut writer) = self.writer(id).await?;
            if is_erased || !writer.is_written {
                return Ok(is_erased);
            }
            let (retired_writer, mut commit) = self.retire(slot, &mut writer);
            drop(writer);
            match commit.wait().await {
                Ok(()) => {
                    self.core.logs.erase(&retired_writer.slot.log).await?;
                    return Ok(true);
                }
                Err(_) if commit.is_refused() && attempts.next() < Some(ATTEMPTS_MAX) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Retires the writer; returns the commit that waits for everything that it accepted.
    fn retire(&self, slot: Arc<WriterSlot>, writer: &mut LogWriter) -> (RetiredWriter<'_>, Commit) {
        writer.state = WriterState::Retired;
        let nothing = writer.barrier();
        let commit = writer.submit(&self.core.logs, &slot.log, nothing);
        (RetiredWriter { ingest: self, slot }, commit)
    }

    /// Rewrites a log's history; `false`, without effect, when the log has moved since the tail `found`.
    ///
    /// The call must run to its end even if the caller disconnects: spawn it as a task.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, id: &LogId, found: &Tail, plan: CompactionPlan) -> Result<bool, StoreError> {
        let Some(epoch) = found.epoch else { return Ok(false) };
        // Before the writer is retired: later deliveries wait for a new one, and must not wait for readers.
        let turn = self.core.logs.log(id).await?.lock_for_rewrite().await;
        let (_retired_writer, mut commit, mut summary) = {
            let (slot, mut writer) = self.writer(id).await?;
            let stand = |summary: &Summary| (summary.last_sequence, summary.compacted, summary.extension.archived_through);
            let is_as_found = writer.epoch == epoch && stand(&writer.summary) == stand(&found.summary);
            if !writer.is_written || !is_as_found {
                return Ok(false);
            }
            let (retired_writer, commit) = self.retire(slot, &mut writer);
            (retired_writer, commit, writer.summary.clone())
        };
        match commit.wait().await {
            Err(_) if commit.is_refused() => return Ok(false),
            committed => committed?,
        }
        for (count, unseen) in summary.seen_count.iter_mut().zip(plan.unseen) {
            *count = count.saturating_sub(unseen);
        }
        summary.compacted = plan.compacted;
        summary.extension.archived_through = plan.archived_through;
        let meta = (Bytes::from_static(META), Some(summary.save()));
        let state = std::iter::once(meta).chain(plan.state).collect();
        let compaction = Compaction { log: id.clone(), epoch, last: found.last, appends: plan.appends, state };
        self.core.logs.compact(turn, compaction, Arc::new(summary)).await
    }
}

/// A retired writer during an erasure or a compaction.
///
/// Dropping it frees the slot, however the work ends.
struct RetiredWriter<'i> {
    ingest: &'i Ingest,
    slot: Arc<WriterSlot>,
}

impl Drop for RetiredWriter<'_> {
    fn drop(&mut self) {
        self.ingest.writers.remove_if(&self.slot.log.id, |_, slot| Arc::ptr_eq(slot, &self.slot));
        self.ingest.retired.send_replace(());
    }
}
