//! Erasing a log, and rewriting its past. Both take its desk away first.

use super::desk::{Desk, DeskState, to_json};
use super::pending::{ATTEMPTS_MAX, Commit};
use super::{Ingest, Seat};
use crate::log::run::{Compacted, Tail};
use crate::log::{Compaction, LogId, META, Rewritten, Store, StoreError};
use bytes::Bytes;
use std::sync::Arc;

/// What is to become of a log's past.
#[derive(Debug, Default)]
pub struct Thinned {
    pub appends: Vec<Rewritten>,
    /// How many rows that each audience saw are gone.
    pub unseen: [u64; 3],
    pub compacted: Compacted,
}

impl<S: Store> Ingest<S> {
    /// Erases a log with everything that was taken for it before, durably; `false` when it was never written. What is taken
    /// after begins a new life of it.
    ///
    /// A log whose state cannot be read has no desk, and is erased before there is one.
    ///
    /// It must run to its end, whoever asked for it: a task of its own.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn erase(&self, id: &LogId) -> Result<bool, StoreError> {
        let mut attempts = 1..;
        let (_open, mut is_erased) = self.core.logs.log_to_erase(id).await?;
        loop {
            let seat = self.seat(id).await?;
            let sit_down = async || match self.sit_down(&seat).await {
                // Nobody writes meanwhile: who would waits for this desk.
                Err(error) if error.is_of_one_log() => {
                    self.core.logs.erase(&seat.log).await?;
                    is_erased = true;
                    self.sit_down(&seat).await
                }
                desk => desk,
            };
            seat.desk.get_or_try_init(sit_down).await?;
            let (seat, mut desk) = self.writer(id).await?;
            if is_erased || !desk.written {
                return Ok(is_erased);
            }
            let (leave, mut commit) = self.leave(seat, &mut desk);
            drop(desk);
            match commit.wait().await {
                Ok(()) => {
                    self.core.logs.erase(&leave.seat.log).await?;
                    return Ok(true);
                }
                Err(_) if commit.is_refused() && attempts.next() < Some(ATTEMPTS_MAX) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes nothing more at this desk; and what waits for everything that was taken there.
    fn leave(&self, seat: Arc<Seat>, desk: &mut Desk) -> (Leave<'_, S>, Commit) {
        desk.state = DeskState::Retired;
        let nothing = desk.nothing();
        let commit = desk.submit(&self.core.logs, &seat.log, nothing);
        (Leave { ingest: self, seat }, commit)
    }

    /// Rewrites a log's past as it was found at this tail; `false` when the log has moved since, and nothing was done.
    ///
    /// It must run to its end, whoever asked for it: a task of its own.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, id: &LogId, found: &Tail, thinned: Thinned) -> Result<bool, StoreError> {
        let Some(epoch) = found.epoch else { return Ok(false) };
        let (leave, mut commit, mut summary) = {
            let (seat, mut desk) = self.writer(id).await?;
            let stands = (desk.epoch, desk.summary.last_sequence, desk.summary.compacted);
            if !desk.written || stands != (epoch, found.last, found.summary.compacted) {
                return Ok(false);
            }
            let (leave, commit) = self.leave(seat, &mut desk);
            (leave, commit, desk.summary.clone())
        };
        match commit.wait().await {
            Err(_) if commit.is_refused() => return Ok(false),
            committed => committed?,
        }
        for (count, unseen) in summary.seen_count.iter_mut().zip(thinned.unseen) {
            *count = count.saturating_sub(unseen);
        }
        summary.compacted = thinned.compacted;
        let state = vec![(Bytes::from_static(META), Some(to_json(&summary)))];
        let compaction = Compaction { log: id.clone(), epoch, last: found.last, appends: thinned.appends, state };
        self.core.logs.compact(&leave.seat.log, compaction, Arc::new(summary)).await
    }
}

/// The erasure or rewriting of a log. However it ends, who waits for a new desk gets one.
struct Leave<'i, S> {
    ingest: &'i Ingest<S>,
    seat: Arc<Seat>,
}

impl<S> Drop for Leave<'_, S> {
    fn drop(&mut self) {
        self.ingest.desks.remove_if(&self.seat.log.id, |_, seat| Arc::ptr_eq(seat, &self.seat));
        self.ingest.gone.send_replace(());
    }
}
