//! The part of its ancestors that a branch has.
//!
//! A branch leaves a session at a point of one of its runs. It has every run of that session as it stood when the point was
//! committed, and what that session has of its own ancestors. This part is frozen: no later fact changes it. It is folded
//! again from the ancestors' rows, so a compaction leaves the rows up to a point alone.

use super::Feed;
use crate::log::sessions::{ANCESTORS_MAX, Sessions};
use crate::log::{LogId, Store, StoreError, log_of_number};
use crate::model::branch::BranchPoint;
use crate::model::{Audience, Epoch, Sequence, SessionId};
use crate::projection::activity_set::Activity;

/// A log of an ancestor, as a branch has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenLog {
    /// The log's place in the order of creation.
    pub created: u64,
    pub log: LogId,
    pub epoch: Epoch,
    /// The last sequence that the branch has.
    pub until: Sequence,
}

/// What a branch has that leaves at this point, the newest log first, at most so many.
fn frozen_logs(
    store: &dyn Store,
    sessions: &Sessions,
    point: &BranchPoint,
    logs_max: usize,
) -> Result<Vec<FrozenLog>, StoreError> {
    let mut frozen = Vec::new();
    let mut next = Some(point.clone());
    for _ in 0..ANCESTORS_MAX {
        let Some(BranchPoint { session_id, run_id, sequence }) = next else { break };
        next = sessions.origin_of(&session_id).map(|origin| origin.parent);
        let (mut logs, _) = sessions.logs_of(&session_id, usize::MAX).unwrap_or_default();
        logs.sort_unstable_by_key(|(created, _)| std::cmp::Reverse(*created));
        let left = logs.iter().find(|(_, log)| matches!(log, LogId::Run(run) if *run == run_id));
        let Some(position) = left.map(|(created, log)| position_of(store, *created, log, sequence)).transpose()?.flatten() else {
            continue;
        };
        for (created, log) in logs {
            if frozen.len() >= logs_max {
                return Ok(frozen);
            }
            let Some(epoch) = epoch_of(store, created, &log)? else { continue };
            let is_left = matches!(&log, LogId::Run(run) if *run == run_id);
            let until = if is_left { sequence } else { store.locate(&log, epoch, position)? };
            if until > Sequence::NONE {
                frozen.push(FrozenLog { created, log, epoch, until });
            }
        }
    }
    Ok(frozen)
}

/// The commit position of a point: everything up to it is in the branch, but for later rows of the run itself.
fn position_of(store: &dyn Store, created: u64, log: &LogId, sequence: Sequence) -> Result<Option<u64>, StoreError> {
    let Some(epoch) = epoch_of(store, created, log)? else { return Ok(None) };
    Ok(match sequence {
        // Before the run.
        Sequence::NONE => store.position_of(log, epoch, Sequence(1))?.map(|first| first - 1),
        sequence => store.position_of(log, epoch, sequence)?,
    })
}

/// The epoch of the log of this place in the order of creation. `None`: it was erased, and its id perhaps used again.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn epoch_of(store: &dyn Store, created: u64, log: &LogId) -> Result<Option<Epoch>, StoreError> {
    Ok(log_of_number(store, log.kind(), created)?.filter(|found| found.log == *log).map(|found| found.epoch))
}

/// The last sequence of a run that a branch needs as it is: a compaction leaves the rows up to it.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn last_frozen(
    store: &dyn Store,
    sessions: &Sessions,
    session: &SessionId,
    log: &LogId,
    epoch: Epoch,
    last: Sequence,
) -> Result<Sequence, StoreError> {
    let (logs, _) = sessions.logs_of(session, usize::MAX).unwrap_or_default();
    let mut needed = Sequence::NONE;
    for origin in sessions.points_in(session) {
        let BranchPoint { run_id, sequence, .. } = origin.parent;
        let Some((created, left)) = logs.iter().find(|(_, log)| matches!(log, LogId::Run(run) if *run == run_id)) else {
            continue;
        };
        let until = match position_of(store, *created, left, sequence)? {
            _ if left == log => sequence,
            Some(position) => store.locate(log, epoch, position)?,
            None => continue,
        };
        // A compaction leaves the activities at the end of a log as they are.
        if until < last {
            needed = needed.max(until);
        }
    }
    Ok(needed)
}

impl Feed {
    /// What a session has of its ancestors: logs, the oldest first, at most the newest `logs_max`. Empty for a session that is
    /// no branch.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn frozen_logs(&self, session: &SessionId, logs_max: usize) -> Result<Vec<FrozenLog>, StoreError> {
        match self.logs.sessions().origin_of(session) {
            None => Ok(Vec::new()),
            Some(origin) => self.logs_before(origin.parent, logs_max).await,
        }
    }

    /// What a branch has that leaves at this point: logs, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn frozen_logs_at(&self, point: &BranchPoint) -> Result<Vec<FrozenLog>, StoreError> {
        self.logs_before(point.clone(), usize::MAX).await
    }

    async fn logs_before(&self, point: BranchPoint, logs_max: usize) -> Result<Vec<FrozenLog>, StoreError> {
        let logs = self.logs.clone();
        let mut frozen = self.logs.work(move |store| frozen_logs(store, logs.sessions(), &point, logs_max)).await?;
        frozen.reverse();
        Ok(frozen)
    }

    /// The activities of a log as a branch has them.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn frozen_activities(&self, frozen: &FrozenLog, audience: Audience) -> Result<Vec<Activity>, StoreError> {
        let log = self.logs.log(&frozen.log).await?;
        let view = super::folds::at(&self.logs, &log, frozen.epoch, audience, frozen.until).await?;
        Ok(view.into_frozen())
    }
}
