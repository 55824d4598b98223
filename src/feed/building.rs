//! Builds the folds of views: a reader follows activities from the state at the log's tail.

use super::hub::{Hub, SharedView};
use super::{Feed, Frames, folds};
use crate::log::StoreError;
use crate::log::commit::{Tail, rows_after};
use crate::model::{Audience, Epoch, Sequence};
use crate::projection::View;
use std::sync::Arc;

/// The history that a fold belongs to: the log's epoch, and its compaction count; `None` for a log without rows.
type History = Option<(Epoch, u64)>;

fn history_at(tail: &Tail) -> History {
    tail.epoch.map(|epoch| (epoch, tail.summary.compacted.times))
}

/// The epoch of a log that has something to show to this audience. A log without needs no fold.
fn shown_epoch(tail: &Tail, audience: Audience) -> Option<Epoch> {
    tail.epoch.filter(|_| tail.summary.seen_last[audience.index()] > Sequence::NONE)
}

impl Feed {
    /// Builds the fold of a view's activities at the log's tail, if the view has none.
    pub(super) async fn build_fold(&self, hub: &Hub, view: &SharedView) -> Result<(), StoreError> {
        let _alone = view.building.lock().await;
        if view.ring.lock().fold.is_some() {
            return Ok(());
        }
        self.complete_fold(hub, view, None).await
    }

    /// Builds the missing folds of the activities of these hubs, with one visit to the store.
    ///
    /// It leaves out those that another reader is building.
    pub(super) async fn build_folds(&self, hubs: &[Arc<Hub>], audience: Audience) -> Result<(), StoreError> {
        let mut building = Vec::new();
        for hub in hubs {
            let (view, tail) = (hub.view(audience, Frames::Activities), hub.log.tail());
            if let Ok(alone) = view.building.try_lock()
                && view.ring.lock().fold.is_none()
            {
                building.push((hub, view, tail, alone));
            }
        }
        let stored =
            |(hub, _, tail, _): &(&Arc<Hub>, _, Tail, _)| Some((hub.log.clone(), shown_epoch(tail, audience)?, tail.last));
        let mut folds = folds::at_all(&self.logs, building.iter().filter_map(stored).collect(), audience).await?.into_iter();
        for (hub, view, tail, _alone) in building {
            let fold = shown_epoch(&tail, audience).and_then(|_| folds.next());
            self.complete_fold(hub, view, fold.map(|fold| (fold, history_at(&tail)))).await?;
        }
        Ok(())
    }

    /// Brings a fold to the log's tail, and gives it to the view.
    async fn complete_fold(&self, hub: &Hub, view: &SharedView, begun: Option<(View, History)>) -> Result<(), StoreError> {
        let (mut fold, mut history) = match begun {
            Some((fold, history)) => (fold, Some(history)),
            None => (View::new(&hub.log.id, view.audience), None),
        };
        loop {
            let tail = hub.log.tail();
            if history != Some(history_at(&tail)) {
                // Perhaps the log was first written, erased and rewritten, or compacted since the last round.
                fold = match shown_epoch(&tail, view.audience) {
                    Some(epoch) => folds::at(&self.logs, &hub.log, epoch, view.audience, tail.last).await?,
                    None => View::at(&hub.log.id, view.audience, tail.last),
                };
                history = Some(history_at(&tail));
            }
            {
                let mut ring = view.ring.lock();
                let (tail, rows) = hub.log.recent_rows_after(fold.through);
                if let Some(rows) = rows.filter(|_| history == Some(history_at(&tail)) && fold.through <= tail.last) {
                    for row in rows_after(rows, fold.through) {
                        fold.fold(row.sequence(), row.view(view.audience));
                    }
                    ring.restart(&tail);
                    ring.fold = Some(Box::new(fold));
                    return Ok(());
                }
            }
            // The log has moved beyond its rows in memory.
            if let Some((epoch, _)) = history.flatten() {
                fold = folds::catch_up(&self.logs, &hub.log, epoch, fold).await?;
            }
        }
    }
}
