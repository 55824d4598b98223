//! The read path: one loop that serves all readers of the logs.
//!
//! A reader is a number: the sequence after which its next frame comes. Per log, audience and kind of frame one
//! [`SharedView`] encodes each frame once. It freezes the frames since the last flush into one chunk that all readers
//! share. Catching up, following and recovering from a stall are the same loop at different numbers. Frames in the
//! view's bounded ring come from there. Older events come from the log; older activities are replaced by snapshots of
//! what has changed since. A stalled reader costs its number and nothing else.
//!
//! A flush is immediate if the view was idle for a tick, else it waits for the shared tick. So a first token is not
//! delayed, and a burst costs each reader one socket write per tick. The read path cannot slow the write path; it only
//! follows tails.

pub mod fan_out;
pub mod folds;
mod hub;
pub mod merged;
pub mod merged_reader;
pub mod reader;
mod ring;

#[cfg(test)]
mod tests;

use crate::log::commit::{CommittedGroup, CompactionState, Log, Logs, Tail, rows_after};
use crate::log::row::{Row, Rows};
use crate::log::{Limit, LogId, StoreError};
use crate::meter::{Counter, Histogram};
use crate::model::{AgentId, Audience, Cursor, Epoch, Sequence};
use crate::projection;
use crate::projection::activity_set::Activity;
use bytes::Bytes;
use dashmap::DashMap;
use fan_out::{Followers, Listeners};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hub::{Hub, SharedView};
use merged_reader::{LogSet, MergedReader};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use reader::Reader;
use ring::{Chunk, last_framed_of};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The sizes and the tick of the read path.
#[derive(Debug, Clone, Copy)]
pub struct FeedConfig {
    /// The shortest time between two flushes of one log.
    pub tick: Duration,
    /// The newest frames that one view keeps, in bytes.
    pub ring_bytes_max: usize,
    /// The limit of all cached pages of older frames together, in bytes.
    pub pages_bytes_max: u64,
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self { tick: Duration::from_millis(8), ring_bytes_max: 256 * 1024, pages_bytes_max: 64 * 1024 * 1024 }
    }
}

/// The counters of the read path.
#[derive(Debug, Default)]
pub struct ReaderCounts {
    /// Flushes, by the time from the commit of the first envelope until all readers were woken.
    pub flushes: Histogram,
    /// Frames that flushes encoded: once per audience and kind, for all readers.
    pub frames: Counter,
    /// Times that a reader's next frame was no longer in the ring.
    ///
    /// A reader of events then read the log; a reader of activities received snapshots.
    pub ring_misses: Counter,
}

/// A page of older frames: at most this many rows or bytes.
const PAGE: Limit = Limit { rows: 1024, bytes: 128 * 1024 };

/// Selects the frames of one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub audience: Audience,
    /// Only envelopes of these surfaces; empty: all.
    pub surfaces: Vec<Box<str>>,
    /// Only envelopes of these types; empty: all.
    pub types: Vec<Box<str>>,
    /// Only envelopes of this agent.
    pub agent: Option<Box<str>>,
}

impl Filter {
    fn is_all(&self) -> bool {
        self.types.is_empty() && self.is_all_activities()
    }

    fn is_all_activities(&self) -> bool {
        self.surfaces.is_empty() && self.agent.is_none()
    }

    /// Whether the filter accepts an activity, by its surface and agent.
    #[must_use]
    pub fn accepts_activity(&self, activity: &Activity) -> bool {
        self.accepts_parts(activity.surface.as_str(), activity.agent.as_ref().map(AgentId::as_str))
    }

    /// The filter on activities; `None` if it accepts all.
    fn activity_filter(&self) -> Option<&Self> {
        (!self.is_all_activities()).then_some(self)
    }

    /// The row's text for this filter; `None` if the filter rejects it or the audience may not see it.
    #[must_use]
    pub fn text_of<'r>(&self, row: &'r Row) -> Option<&'r [u8]> {
        let view = row.view(self.audience)?;
        (self.is_all() || self.accepts(view)).then_some(view)
    }

    fn accepts(&self, view: &[u8]) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Dimensions<'e> {
            #[serde(borrow)]
            r#type: Cow<'e, str>,
            #[serde(borrow)]
            surface: Cow<'e, str>,
            #[serde(borrow, default)]
            agent_id: Option<Cow<'e, str>>,
        }
        let Ok(of) = serde_json::from_slice::<Dimensions<'_>>(view) else { return false };
        matches_list(&self.types, &of.r#type) && self.accepts_parts(&of.surface, of.agent_id.as_deref())
    }

    /// Whether the filter accepts this surface and agent.
    fn accepts_parts(&self, surface: &str, agent: Option<&str>) -> bool {
        matches_list(&self.surfaces, surface) && self.agent.as_ref().is_none_or(|wanted| agent == Some(wanted))
    }
}

/// Whether a list contains a value; an empty list contains all.
fn matches_list(list: &[Box<str>], value: &str) -> bool {
    list.is_empty() || list.iter().any(|name| **name == *value)
}

/// The kind of frames of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frames {
    /// Every envelope, unchanged.
    Events,
    /// The activities that the projection folds from the envelopes.
    Activities,
}

/// The frames that a reader requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    pub filter: Filter,
    pub frames: Frames,
    /// Whether activities from the reader's start on come as deltas, not as snapshots.
    pub replay: bool,
}

/// A reader of one log or of several logs.
pub enum AnyReader {
    One(Reader),
    Merged(Box<MergedReader>),
}

impl AnyReader {
    /// Whether the client need not reconnect; see [`Reader::has_seen_end`]. Always false for several logs.
    #[must_use]
    pub const fn has_seen_end(&self) -> bool {
        matches!(self, Self::One(reader) if reader.has_seen_end())
    }

    /// Waits for the next frames; `None` after the end of the only run. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self {
            Self::One(reader) => reader.next().await,
            // Boxed: a waiting reader of one log should not reserve space for it.
            Self::Merged(reader) => Box::pin(reader.next()).await.map(Some),
        }
    }

    /// The next frames, if the reader has them now; see [`Reader::try_next`].
    pub fn try_next(&mut self) -> TryNext {
        match self {
            Self::One(reader) => reader.try_next(),
            Self::Merged(_) => TryNext::Busy,
        }
    }

    /// Leaves the wakes of this reader to `followers`; see [`Reader::follow`].
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize) {
        if let Self::One(reader) = self {
            reader.follow(followers, key);
        }
    }

    /// Gives the reader its own wakes again; see [`Reader::unfollow`].
    pub fn unfollow(&mut self) {
        if let Self::One(reader) = self {
            reader.unfollow();
        }
    }

    /// Whether the last frame was returned; see [`Reader::is_done`].
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::One(reader) if reader.is_done())
    }

    /// The Error frame that ends the stream.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> Bytes {
        match self {
            Self::One(reader) => reader.error(problem),
            Self::Merged(reader) => reader.error(problem),
        }
    }

    /// Sends the only run's activities again; see [`Reader::restart`].
    pub fn restart(&mut self) {
        if let Self::One(reader) = self {
            reader.restart();
        }
    }

    /// Returns the reader to `cursor`; see [`Reader::rewind`].
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        match self {
            Self::One(reader) => reader.rewind(cursor),
            // A returned block has one log's frames of one round, and its consumer keeps it.
            Self::Merged(_) => false,
        }
    }
}

/// What a reader has without waiting.
pub enum TryNext {
    Frames(Bytes),
    /// Nothing before the log's next flush.
    Idle,
    /// [`AnyReader::next`] knows: the reader reads the log, or has returned its last frame.
    Busy,
}

/// The position at which a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    Start,
    Now,
    After(Cursor),
}

/// A page of a log's history, as activity frames.
struct ReplayPage {
    frames: Option<Bytes>,
    last: Sequence,
    state: Box<ReplayState>,
}

/// The activities at a reader's position in a log's history.
struct ReplayState {
    view: projection::View,
    /// The log's compaction count at that time; after another compaction the state is not usable.
    compacted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PageKey {
    log: LogId,
    epoch: Epoch,
    compacted: u64,
    audience: Audience,
    after: Sequence,
}

#[derive(Clone)]
struct MemoryWeighter;

impl Weighter<PageKey, Chunk> for MemoryWeighter {
    fn weight(&self, _: &PageKey, page: &Chunk) -> u64 {
        page.memory_bytes() as u64 + 256
    }
}

/// Runs `find` to find the readers of a log that has moved.
///
/// If it finds none, the log's next commit is announced again, and `find` runs once more: a reader that subscribed in
/// between may have missed a commit that was not announced.
fn find_readers<T>(log: &Log, find: impl Fn() -> Option<T>) -> Option<T> {
    find().or_else(|| {
        log.acknowledge_announcement();
        find()
    })
}

/// The read path of all logs.
pub struct Feed {
    logs: Arc<Logs>,
    hubs: DashMap<LogId, Arc<Hub>>,
    pages: Cache<PageKey, Chunk, MemoryWeighter>,
    sizes: FeedConfig,
    counts: ReaderCounts,
}

impl Feed {
    /// Creates the read path of `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs>, sizes: FeedConfig) -> Arc<Self> {
        let items = usize::try_from(sizes.pages_bytes_max / (PAGE.bytes as u64)).unwrap_or(usize::MAX).max(16);
        let pages = Cache::with_weighter(items, sizes.pages_bytes_max, MemoryWeighter);
        Arc::new(Self { logs, hubs: DashMap::new(), pages, sizes, counts: ReaderCounts::default() })
    }

    /// The tasks that follow the committer until it stops, by name.
    ///
    /// The first answers producers that wait for a commit, so that no answer waits for a fan-out. The second flushes
    /// the logs that moved. The third makes checkpoints of logs that have grown.
    #[must_use]
    pub fn tasks(
        self: &Arc<Self>,
        mut groups: mpsc::UnboundedReceiver<CommittedGroup>,
    ) -> [(&'static str, BoxFuture<'static, ()>); 3] {
        let (moved, flushes) = mpsc::unbounded_channel();
        let (grown, checkpoints) = mpsc::unbounded_channel();
        let answering = async move {
            while let Some(group) = groups.recv().await {
                for (ack, result) in group.acks {
                    // The producer may have disconnected; then the answer is not needed.
                    let _ = ack.send(result);
                }
                for log in group.moved {
                    let _ = moved.send(log);
                }
                for log in group.grown {
                    let _ = grown.send(log);
                }
            }
        };
        let checkpointing = folds::make_checkpoints_of_grown(self.logs.clone(), checkpoints);
        [
            ("follower", answering.boxed()),
            ("flusher", self.clone().flush_moved_logs(flushes).boxed()),
            ("checkpointer", checkpointing.boxed()),
        ]
    }

    /// Flushes logs as they move: at once if the last flush is a tick ago, else when the tick ends.
    async fn flush_moved_logs(self: Arc<Self>, mut moved: mpsc::UnboundedReceiver<Arc<Log>>) {
        // In due order: a flush that would be earlier than the one before it runs with that one.
        let mut due: VecDeque<(tokio::time::Instant, Arc<Hub>)> = VecDeque::new();
        loop {
            let next = due.front().map(|(at, _)| *at);
            let hub = tokio::select! {
                log = moved.recv() => match log {
                    Some(log) => find_readers(&log, || self.hubs.get(&log.id).map(|hub| hub.clone())),
                    None => return,
                },
                () = tokio::time::sleep_until(next.unwrap_or_else(tokio::time::Instant::now)), if next.is_some() => {
                    due.pop_front().map(|(_, hub)| hub)
                }
            };
            let Some(hub) = hub else { continue };
            if let Some(at) = self.flush_or_delay(&hub).await {
                let at = due.back().map_or(at.into(), |(last, _)| (*last).max(at.into()));
                due.push_back((at, hub));
            }
        }
    }

    /// Flushes the log if that is due; else returns the earliest time.
    async fn flush_or_delay(self: &Arc<Self>, hub: &Arc<Hub>) -> Option<Instant> {
        let now = Instant::now();
        let at = if hub.is_fanning_out() { Some(now + self.sizes.tick) } else { *hub.next_flush_at.lock() };
        let later = at.filter(|at| *at > now);
        if later.is_none() {
            hub.flush(self).await;
        }
        later
    }

    /// Opens a reader of a log, which may not be written yet.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(self: &Arc<Self>, id: &LogId, request: ReadRequest, start: StartAt) -> Result<Reader, StoreError> {
        let (hub, moved, tail) = self.subscribe(id, &request, |_, listeners| listeners.join()).await?;
        Ok(Reader::new(self.clone(), hub, request, start, moved, &tail))
    }

    /// Opens a reader of several logs, which may not be written yet.
    #[must_use]
    pub fn read_merged(self: &Arc<Self>, members: LogSet, request: ReadRequest, start: StartAt) -> MergedReader {
        MergedReader::new(self.clone(), request, members, start)
    }

    /// Subscribes to a log, and returns its tail at that time.
    async fn subscribe<T>(
        &self,
        id: &LogId,
        request: &ReadRequest,
        join: impl FnOnce(&Log, &mut Listeners) -> T,
    ) -> Result<(Arc<Hub>, T, Tail), StoreError> {
        let log = self.logs.log(id).await?;
        let hub = self.hubs.entry(id.clone()).or_insert_with(|| Arc::new(Hub::new(log))).clone();
        hub.readers.fetch_add(1, Ordering::Relaxed);
        let view = hub.view(request.filter.audience, request.frames);
        let (joined, tail) = view.subscribe(&hub.log, |listeners| join(&hub.log, listeners));
        Ok((hub, joined, tail))
    }

    /// Builds the fold of a view's activities at the log's tail, if the view has none.
    async fn build_fold(&self, hub: &Hub, view: &SharedView) -> Result<(), StoreError> {
        let _alone = view.building.lock().await;
        if view.ring.lock().fold.is_some() {
            return Ok(());
        }
        let (mut fold, mut of) = (projection::View::new(&hub.log.id, view.audience), None);
        let reading = |tail: &Tail| tail.epoch.map(|epoch| (epoch, tail.summary.compacted.times));
        loop {
            let tail = hub.log.tail();
            if let Some(epoch) = tail.epoch {
                fold = match of == reading(&tail) {
                    true => folds::catch_up(&self.logs, &hub.log.id, epoch, fold).await?,
                    false => folds::at(&self.logs, &hub.log.id, epoch, view.audience, tail.last).await?,
                };
                of = reading(&tail);
            }
            let mut ring = view.ring.lock();
            let (tail, rows) = hub.log.recent_rows_after(fold.through);
            if let (Some(rows), true) = (rows, reading(&tail) == of && fold.through <= tail.last) {
                for row in rows_after(rows, fold.through) {
                    fold.fold(row.sequence(), row.view(view.audience));
                }
                ring.restart(&tail);
                ring.fold = Some(Box::new(fold));
                return Ok(());
            }
            if reading(&tail) != of {
                // Meanwhile the log was first written, erased and rewritten, or compacted.
                (fold, of) = (projection::View::new(&hub.log.id, view.audience), None);
            }
            // Otherwise the log has moved beyond its rows in memory; the next round reads the store.
        }
    }

    /// Reads a page of a log's history after `after` as deltas.
    ///
    /// `state` is the activities there, if the reader still has them. Returns `None` if compaction has deleted rows
    /// there, so that the reader's activities no longer match the log.
    async fn replay(
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
                let view = folds::at(&self.logs, &hub.log.id, epoch, filter.audience, after).await?;
                Box::new(ReplayState { view, compacted })
            }
        };
        let filter = filter.activity_filter();
        let mut prev = last_framed_of(&state.view, filter);
        let rows = self.rows(&hub.log.id, epoch, after, PAGE).await?;
        if hub.log.compaction_count() != compacted {
            return Ok(None);
        }
        let chunk = Chunk::activities(&hub.encoder, epoch, &mut state.view, rows.into_iter());
        let frames = match filter {
            None => chunk.after(after),
            Some(filter) => chunk.filtered_after(after, epoch, filter, &mut prev),
        };
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
        let tail = self.logs.log(id).await?.tail();
        let Some(epoch) = tail.epoch else { return Ok(None) };
        let at = at.unwrap_or(tail.last).min(tail.last);
        folds::at(&self.logs, id, epoch, audience, at).await.map(Some)
    }

    /// Reads rows of a log after `after`, within `limit`, without compacted ones; empty only at the tail.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn rows(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Row>, StoreError> {
        Ok(rows_after(self.logs.read(id, epoch, after, limit).await?, after).collect())
    }

    /// The last row up to `end` that the filter accepts; searches backwards.
    async fn last_accepted(&self, id: &LogId, epoch: Epoch, filter: &Filter, mut end: Sequence) -> Result<Sequence, StoreError> {
        while end > Sequence::NONE {
            let after = Sequence(end.0.saturating_sub(PAGE.rows as u64));
            let mut from = after;
            let (mut found, mut is_hole) = (Sequence::NONE, true);
            while from < end {
                let rows = self.rows(id, epoch, from, PAGE).await?;
                let Some(last) = rows.last().map(Row::sequence) else { break };
                let taken = rows.iter().filter(|row| row.sequence() <= end && filter.text_of(row).is_some()).map(Row::sequence);
                found = taken.last().unwrap_or(found);
                is_hole &= rows[0].sequence() > end;
                from = last;
            }
            if found > Sequence::NONE {
                return Ok(found);
            }
            end = if is_hole { self.last_before(id, epoch, after.next()).await? } else { after };
        }
        Ok(Sequence::NONE)
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
    async fn prev_at(&self, id: &LogId, epoch: Epoch, filter: &Filter, after: Sequence) -> Result<Sequence, StoreError> {
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
    async fn page(&self, hub: &Hub, epoch: Epoch, audience: Audience, after: Sequence) -> Result<Chunk, StoreError> {
        let key = PageKey { log: hub.log.id.clone(), epoch, compacted: hub.log.compaction_count(), audience, after };
        let load = async || {
            let runs = self.logs.read(&hub.log.id, epoch, after, PAGE).await?;
            Ok(Chunk::events(&hub.encoder, epoch, audience, runs.into_iter().flat_map(Rows), after))
        };
        match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => Ok(page),
            Err(guard) => {
                let page = load().await?;
                // A page well below the limit ends at the tail, and will be longer at the next request.
                if page.bytes.len() >= PAGE.bytes / 2 || page.frame_count() >= PAGE.rows / 2 {
                    // If the placeholder was removed meanwhile, the page is only not cached.
                    let _ = guard.insert(page.clone());
                }
                Ok(page)
            }
        }
    }

    /// Drops all cached data of an erased log.
    ///
    /// After that its readers receive nothing more of it; they wait for its next epoch.
    pub async fn forget(self: &Arc<Self>, id: &LogId) {
        self.pages.retain(|page, _| page.log != *id);
        let Some(hub) = self.hubs.get(id).map(|hub| hub.clone()) else { return };
        for view in hub.views.iter().filter_map(OnceLock::get) {
            view.restart(&hub.log);
        }
        hub.flush(self).await;
    }

    /// Drops cached data of a log's history after a compaction, and makes the deleted checkpoints again.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn renew(&self, id: &LogId) -> Result<(), StoreError> {
        let log = self.logs.log(id).await?;
        let compacted = log.compaction_count();
        self.pages.retain(|page, _| page.log != *id || page.compacted == compacted);
        if let Some(hub) = self.hubs.get(id).map(|hub| hub.clone()) {
            for view in hub.views.iter().filter_map(OnceLock::get) {
                drop(hub.ring(view));
            }
        }
        let logs = self.logs.clone();
        self.logs.work(move |store| folds::make_checkpoints(store, &log, &logs.counts().checkpoints)).await.map(|_| ())
    }

    /// Drops views without readers.
    pub fn sweep(&self) {
        self.hubs.retain(|_, hub| {
            for view in hub.views.iter().filter_map(OnceLock::get).filter(|view| view.is_idle()) {
                view.ring.lock().fold = None;
            }
            Arc::strong_count(hub) > 1 || hub.readers.load(Ordering::Relaxed) > 0
        });
    }

    /// The counters of the read path.
    #[must_use]
    pub const fn counts(&self) -> &ReaderCounts {
        &self.counts
    }

    /// The time since the oldest commit that readers have not received; zero if there is none.
    #[must_use]
    pub fn lag(&self) -> Duration {
        let waiting = self.hubs.iter().filter(|hub| hub.readers.load(Ordering::Relaxed) > 0);
        let oldest = waiting.filter_map(|hub| hub.log.announced_at()).min();
        oldest.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// The size of the cache of older frames, in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// The number of readers; a reader of several logs counts once per log.
    #[must_use]
    pub fn reader_count(&self) -> usize {
        self.hubs.iter().map(|hub| hub.readers.load(Ordering::Relaxed)).sum()
    }
}
