//! The history of a log: pages of older frames, replays, and the envelopes before a reader's position.

use super::hub::Hub;
use super::ring::{FrameSpan, last_framed_of};
use super::{Feed, Filter, Frames, folds};
use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::log::commit::{CompactionState, rows_after};
use crate::log::row::{Row, Rows};
use crate::log::{Limit, LogId, StoreError};
use crate::model::{Audience, Epoch, Sequence};
use crate::projection;
use quick_cache::Weighter;

/// A page of older frames: at most this many rows or bytes.
pub(super) const PAGE: Limit = Limit { rows: 1024, bytes: 128 * 1024 };

/// A page of a log's history, as activity frames.
pub(super) struct ReplayPage {
    pub frames: Option<EncodedFrames>,
    pub last: Sequence,
    pub state: Box<ReplayState>,
}

/// The activities at a reader's position in a log's history.
pub(super) struct ReplayState {
    view: projection::View,
    /// The log's compaction count at that time; after another compaction the state is not usable.
    compacted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub log: LogId,
    epoch: Epoch,
    pub compacted: u64,
    audience: Audience,
    after: Sequence,
}

#[derive(Clone)]
pub(super) struct MemoryWeighter;

impl Weighter<PageKey, FrameSpan> for MemoryWeighter {
    fn weight(&self, _: &PageKey, page: &FrameSpan) -> u64 {
        page.frames.memory_bytes() as u64 + 256
    }
}

impl Feed {
    /// Reads a page of a log's history after `after` as deltas.
    ///
    /// `state` is the activities there, if the reader still has them. Returns `None` if compaction has deleted rows
    /// there, so that the reader's activities no longer match the log.
    pub(super) async fn replay(
        &self,
        hub: &Hub,
        epoch: Epoch,
        filter: &Filter,
        after: Sequence,
        state: Option<Box<ReplayState>>,
    ) -> Result<Option<ReplayPage>, StoreError> {
        let CompactionState { times: compacted, through, .. } = hub.log.tail().summary.compacted;
        let mut state = match state.filter(|state| state.view.through == after && state.compacted == compacted) {
            Some(state) => state,
            None if after > Sequence::NONE && after < through => return Ok(None),
            None => {
                let view = folds::at(&self.logs, &hub.log, epoch, filter.audience, after).await?;
                Box::new(ReplayState { view, compacted })
            }
        };
        let filter = filter.of_frames(Frames::Activities);
        let mut prev = last_framed_of(&state.view, filter);
        let rows = self.rows(&hub.log.id, epoch, after, PAGE).await?;
        if hub.log.compaction_count() != compacted {
            return Ok(None);
        }
        let chunk = FrameSpan::activities(&hub.encoder, FrameBuffer::new(epoch), &mut state.view, rows.into_iter());
        let frames = chunk.after(after, filter, &mut prev);
        Ok(Some(ReplayPage { frames, last: chunk.last, state }))
    }

    /// The activities of a log for `audience`, at `at` or its tail; `None` for an unwritten log.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn activities(
        &self,
        id: &LogId,
        audience: Audience,
        at: Option<Sequence>,
    ) -> Result<Option<projection::View>, StoreError> {
        let log = self.logs.log(id).await?;
        let tail = log.tail();
        let Some(epoch) = tail.epoch else { return Ok(None) };
        let at = at.unwrap_or(tail.last).min(tail.last);
        folds::at(&self.logs, &log, epoch, audience, at).await.map(Some)
    }

    /// Reads rows of a log after `after`, within `limit`, without compacted ones; empty only at the tail.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn rows(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Row>, StoreError> {
        Ok(rows_after(self.logs.read(id, epoch, after, limit).await?, after).collect())
    }

    /// The last row up to `end` that the filter accepts.
    ///
    /// Searches backwards, to the nearest checkpoint that knows the last row of each kind.
    async fn last_accepted(&self, id: &LogId, epoch: Epoch, filter: &Filter, mut end: Sequence) -> Result<Sequence, StoreError> {
        let known = match end.0 > PAGE.rows as u64 {
            true => folds::last_seen_at(&self.logs, id, epoch, filter.audience, end).await?,
            false => None,
        };
        let known = known.and_then(|(at, seen)| Some((at, seen.last_accepted(filter)?)));
        let (from, before) = known.unwrap_or_default();
        while end > from {
            let after = Sequence(end.0.saturating_sub(PAGE.rows as u64)).max(from);
            let mut read = after;
            let (mut found, mut is_hole) = (Sequence::NONE, true);
            while read < end {
                let rows = self.rows(id, epoch, read, PAGE).await?;
                let Some(last) = rows.last().map(Row::sequence) else { break };
                let taken = rows.iter().filter(|row| row.sequence() <= end && filter.text_of(row).is_some()).map(Row::sequence);
                found = taken.last().unwrap_or(found);
                is_hole &= rows[0].sequence() > end;
                read = last;
            }
            if found > Sequence::NONE {
                return Ok(found);
            }
            end = if is_hole { self.last_before(id, epoch, after.next()).await? } else { after };
        }
        Ok(before)
    }

    /// The last remaining sequence before `end`; a binary search, because a gap may be as long as the log.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn last_before(&self, id: &LogId, epoch: Epoch, end: Sequence) -> Result<Sequence, StoreError> {
        // The result is at or after `from` and before `to`.
        let (mut from, mut to) = (Sequence::NONE, end);
        while from.next() < to {
            let middle = Sequence(from.0 + (to.0 - from.0) / 2);
            let rows = self.rows(id, epoch, Sequence(middle.0 - 1), Limit { rows: 1, bytes: 0 }).await?;
            match rows.iter().map(Row::sequence).take_while(|sequence| *sequence < end).last() {
                Some(found) => from = found,
                None => to = middle,
            }
        }
        Ok(from)
    }

    /// The `prev` of the next event for a reader at `after`: the last row that the filter accepts.
    ///
    /// If compaction deleted that row, the value is `after`, because the reader saw that row last.
    pub(super) async fn prev_at(
        &self,
        id: &LogId,
        epoch: Epoch,
        filter: &Filter,
        after: Sequence,
    ) -> Result<Sequence, StoreError> {
        let through = self.logs.log(id).await?.tail().summary.compacted.through;
        if after > Sequence::NONE && after < through {
            let rows = self.rows(id, epoch, Sequence(after.0 - 1), Limit { rows: 1, bytes: 0 }).await?;
            if rows.first().is_none_or(|row| row.sequence() != after) {
                return Ok(after);
            }
        }
        self.last_accepted(id, epoch, filter, after).await
    }

    /// A page of older frames, shared by all readers while it is cached.
    pub(super) async fn page(
        &self,
        hub: &Hub,
        epoch: Epoch,
        audience: Audience,
        after: Sequence,
    ) -> Result<FrameSpan, StoreError> {
        let key = PageKey { log: hub.log.id.clone(), epoch, compacted: hub.log.compaction_count(), audience, after };
        let load = async || {
            let runs = self.logs.read(&hub.log.id, epoch, after, PAGE).await?;
            Ok(FrameSpan::events(&hub.encoder, epoch, audience, runs.into_iter().flat_map(Rows), after))
        };
        match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => Ok(page),
            Err(guard) => {
                let page = load().await?;
                // A page well below the limit ends at the tail, and will be longer at the next request.
                if page.frames.len() >= PAGE.bytes / 2 || page.frames.frame_count() >= PAGE.rows / 2 {
                    // If the placeholder was removed meanwhile, the page is only not cached.
                    let _ = guard.insert(page.clone());
                }
                Ok(page)
            }
        }
    }
}
