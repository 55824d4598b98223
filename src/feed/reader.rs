//! A reader of one log: its position, and the steps from there.

use super::fan_out::{FlushWaiter, Followers};
use super::hub::{Hub, SharedView};
use super::ring::{FrameSpan, HYDRATION_BYTES_MAX, Hydrated, HydrationPass, Ring, SINGLE_PAGE_BYTES_MAX};
use super::{Feed, Filter, Frames, ReadRequest, ReplayState, StartAt, TryNext};
use crate::encode::encoded::EncodedFrames;
use crate::environment::sabotage;
use crate::log::StoreError;
use crate::log::commit::Tail;
use crate::model::{Audience, Cursor, Epoch, Sequence};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A reader of one log.
pub struct Reader {
    feed: Arc<Feed>,
    hub: Arc<Hub>,
    audience: Audience,
    filter: Filter,
    frames: Frames,
    place: Waking,
    epoch: Option<Epoch>,
    after: Sequence,
    /// Where this reader was when it returned to the start: its snapshots must not be older.
    reached: Sequence,
    /// The last envelope of which this reader had a frame, if it needs that; `None` until it was looked up.
    prev: Option<Sequence>,
    /// Whether this reader of activities has all of them up to its position.
    is_hydrated: bool,
    /// The progress of the hydration.
    pass: Option<Box<HydrationPass>>,
    /// The most bytes of one page of the hydration.
    page_bytes_max: usize,
    replay: Replay,
    has_seen_end: bool,
    is_done: bool,
}

/// How the reader learns of its view's flushes.
enum Waking {
    /// By a wake of its own.
    Woken(FlushWaiter),
    /// By the task that serves it, under this key.
    Following(Arc<Followers>, usize),
}

/// Whether activities before the tail come as deltas.
enum Replay {
    Never,
    /// The activities at the reader's position on its way to the tail; rebuilt from the log if absent.
    On(Option<Box<ReplayState>>),
    /// As before, also each time that the reader has fallen behind: no snapshot replaces any change.
    Always(Option<Box<ReplayState>>),
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Waking::Following(followers, key) = &self.place {
            self.view().listeners().unfollow(followers, *key);
        }
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Step {
    Frames(EncodedFrames),
    Last(EncodedFrames),
    /// Read the next frames from the log.
    Page {
        epoch: Epoch,
        through: Sequence,
        is_ring_miss: bool,
    },
    /// Replay the next frames from the log.
    Replay(Epoch),
    /// Build the fold first.
    BuildFold,
    Wait,
    /// The log was erased, and its id is refused.
    Erased,
}

impl Reader {
    pub(super) fn new(
        feed: Arc<Feed>,
        hub: Arc<Hub>,
        request: ReadRequest,
        start: StartAt,
        place: FlushWaiter,
        tail: &Tail,
    ) -> Self {
        let ReadRequest { filter, frames, replay } = request;
        let audience = filter.audience;
        let (epoch, after) = match start {
            StartAt::Start => (None, Sequence::NONE),
            StartAt::Now => (tail.epoch, tail.last),
            StartAt::After(cursor) if sabotage::is(13) => (Some(cursor.epoch), cursor.after.next()),
            StartAt::After(cursor) if sabotage::is(14) => (Some(cursor.epoch), Sequence(cursor.after.0.saturating_sub(1))),
            StartAt::After(cursor) => (Some(cursor.epoch), cursor.after),
        };
        let has_seen_end = matches!(start, StartAt::After(cursor) if cursor.knows_end
            && tail.epoch == Some(cursor.epoch)
            && tail.summary.run.status.is_end()
            && tail.summary.seen_last[audience.index()] <= cursor.after);
        let replay = if replay && frames == Frames::Activities { Replay::On(None) } else { Replay::Never };
        let is_hydrated = frames == Frames::Events;
        let prev = (start == StartAt::Start).then_some(Sequence::NONE);
        let (pass, page_bytes_max, is_done) = (None, HYDRATION_BYTES_MAX, false);
        Self {
            feed,
            hub,
            audience,
            filter,
            frames,
            place: Waking::Woken(place),
            epoch,
            after,
            reached: Sequence::NONE,
            prev,
            is_hydrated,
            pass,
            page_bytes_max,
            replay,
            has_seen_end,
            is_done,
        }
    }

    /// Sends every change after the reader's position as a delta, however slow the reader is.
    ///
    /// One that fell behind reads the log. If a compaction has deleted changes of the log, the reader ends.
    #[must_use]
    pub fn with_every_change(mut self) -> Self {
        self.replay = Replay::Always(None);
        self
    }

    /// Sends the activities at the reader's position as one consistent snapshot, each activity once.
    ///
    /// Clients that show them all at once need this. The reader then holds all of them in memory.
    #[must_use]
    pub fn with_single_snapshot(mut self) -> Self {
        self.page_bytes_max = SINGLE_PAGE_BYTES_MAX;
        self
    }

    /// The filter, if it requires frames of the reader's own.
    fn own_filter(&self) -> Option<&Filter> {
        self.filter.of_frames(self.frames)
    }

    fn is_filtered(&self) -> bool {
        self.own_filter().is_some()
    }

    /// Whether the client's cursor covers the run's end and all it may see, so it need not reconnect.
    #[must_use]
    pub const fn has_seen_end(&self) -> bool {
        self.has_seen_end
    }

    /// Whether the reader has returned the last frame, including the run's end.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether its log has no other reader now.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.hub.readers.load(Ordering::Relaxed) <= 1
    }

    /// Waits for the next frames; `None` after the run's end. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<EncodedFrames>, StoreError> {
        loop {
            match self.read_on().await? {
                TryNext::Frames(frames) => return Ok(Some(frames)),
                TryNext::Busy => return Ok(None),
                TryNext::Idle => self.flushed().await,
            }
        }
    }

    /// The next frames, or [`TryNext::Idle`] where the view's last flush ends. It reads the log, but waits for no commit.
    ///
    /// After the run's end it is [`TryNext::Busy`]. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read_on(&mut self) -> Result<TryNext, StoreError> {
        if self.is_done {
            return Ok(TryNext::Busy);
        }
        // The steps that read the log are boxed: most readers wait, and should not reserve space for their state.
        loop {
            if let Waking::Woken(place) = &mut self.place {
                place.look();
            }
            match self.step() {
                Step::Frames(frames) => return Ok(TryNext::Frames(frames)),
                Step::Last(frames) => {
                    self.is_done = true;
                    return Ok(TryNext::Frames(frames));
                }
                Step::Page { epoch, through, is_ring_miss } => {
                    self.feed.counts.ring_misses.add(u64::from(is_ring_miss));
                    if let Some(frames) = Box::pin(self.catch_up(epoch, through)).await? {
                        return Ok(TryNext::Frames(frames));
                    }
                }
                Step::Replay(epoch) => {
                    if let Some(frames) = Box::pin(self.replay(epoch)).await? {
                        return Ok(TryNext::Frames(frames));
                    }
                    if self.is_done {
                        return Ok(TryNext::Busy);
                    }
                }
                Step::BuildFold => {
                    let hub = self.hub.clone();
                    Box::pin(self.feed.build_fold(&hub, hub.view(self.audience, self.frames))).await?;
                }
                Step::Wait => return Ok(TryNext::Idle),
                Step::Erased => return Err(StoreError::Erased { log: self.hub.log.id.to_string() }),
            }
        }
    }

    /// The epoch and the end of the log now.
    pub(super) fn committed(&self) -> (Option<Epoch>, Sequence) {
        let tail = self.hub.log.tail();
        (tail.epoch, tail.last)
    }

    /// Whether the reader lacks something that was committed up to there.
    pub(super) fn is_before(&self, (epoch, last): (Option<Epoch>, Sequence)) -> bool {
        epoch.is_some() && epoch == self.committed().0 && (self.epoch != epoch || self.after < last)
    }

    /// Where the reader is; `None` before its log was written.
    #[must_use]
    pub fn position(&self) -> Option<Cursor> {
        self.epoch.map(|epoch| Cursor::at(epoch, self.after))
    }

    /// The next frames, if the reader has them without reading the log.
    pub fn try_next(&mut self) -> TryNext {
        if self.is_done {
            return TryNext::Busy;
        }
        match self.step() {
            Step::Frames(frames) => TryNext::Frames(frames),
            Step::Last(frames) => {
                self.is_done = true;
                TryNext::Frames(frames)
            }
            Step::Wait => TryNext::Idle,
            Step::Page { .. } | Step::Replay(_) | Step::BuildFold | Step::Erased => TryNext::Busy,
        }
    }

    /// Leaves the wakes of this reader to `followers`, which know it as `key`.
    ///
    /// They call [`Self::try_next`] once now, and after each flush.
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize) {
        self.view().listeners().follow(followers, key);
        self.place = Waking::Following(followers.clone(), key);
    }

    /// Gives the reader its own wakes again, for [`Self::next`].
    pub fn unfollow(&mut self) {
        // First, so that the view is never without this reader.
        let place = self.view().listeners().join();
        if let Waking::Following(followers, key) = std::mem::replace(&mut self.place, Waking::Woken(place)) {
            self.view().listeners().unfollow(&followers, key);
        }
    }

    fn view(&self) -> &SharedView {
        self.hub.view(self.audience, self.frames)
    }

    /// The Error frame that ends the stream.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> EncodedFrames {
        self.hub.encoder.error(self.after, problem)
    }

    /// Returns to the start: the current snapshots of activities, or all events.
    ///
    /// A replay reads the log, which can be further than the last flush. The snapshots then wait for the next flush.
    pub fn restart(&mut self) {
        self.reached = self.reached.max(self.after);
        self.after = Sequence::NONE;
        self.prev = Some(Sequence::NONE);
        self.is_hydrated = self.frames == Frames::Events;
        self.pass = None;
        self.replay = Replay::Never;
        self.is_done = false;
    }

    /// Returns to `cursor`, so that later frames are sent again. Returns false if that is not possible.
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        if self.epoch != Some(cursor.epoch) || cursor.after > self.after || cursor.knows_end {
            return false;
        }
        self.after = cursor.after;
        self.is_done = false;
        self.prev = match self.frames {
            Frames::Events if self.is_filtered() => Some(cursor.after),
            // The cursor may be that of a hydration, which belongs to no frame.
            _ => None,
        };
        if self.frames == Frames::Activities {
            // Deltas come again if the ring still has them. A filtered reader gets snapshots: its `prev` would require
            // the activities at that time.
            self.is_hydrated = !self.is_filtered();
            self.pass = None;
            if let Replay::On(state) | Replay::Always(state) = &mut self.replay {
                // A reader that does not read keeps its position, and no activities.
                *state = None;
                self.is_hydrated = false;
            }
        }
        true
    }

    /// The next step without waiting.
    fn step(&mut self) -> Step {
        let hub = self.hub.clone();
        let view: &SharedView = hub.view(self.audience, self.frames);
        let mut ring = hub.ring(view);
        if self.frames == Frames::Activities && ring.fold.is_none() {
            return Step::BuildFold;
        }
        let Some(epoch) = ring.epoch else {
            if self.feed.is_erased(&hub.log.id) {
                return Step::Erased;
            }
            if self.is_hydrated {
                return Step::Wait;
            }
            // The log was never written. The reader now has everything, and a reader that follows from here misses
            // nothing.
            self.is_hydrated = true;
            return Step::Frames(ring.hydrate(&hub.encoder, Sequence::NONE, None, &mut None, usize::MAX).0);
        };
        let reached = self.after.max(self.reached);
        match self.epoch {
            Some(known) if known != epoch => return Step::Frames(self.reset(epoch, "epoch")),
            Some(_) if reached > ring.through && reached > hub.log.tail().last => {
                return Step::Frames(self.reset(epoch, "expired"));
            }
            _ => self.epoch = Some(epoch),
        }
        if let (Replay::On(_) | Replay::Always(_), false) = (&self.replay, self.is_hydrated) {
            // The replay continues until it reaches the ring; live frames follow.
            if self.after < ring.through {
                return Step::Replay(epoch);
            }
        }
        if self.frames == Frames::Activities && (!self.is_hydrated || self.after < ring.base) {
            if reached > ring.through {
                // The log has taken this reader beyond the ring; a flush is due.
                return Step::Wait;
            }
            self.feed.counts.ring_misses.add(u64::from(self.is_hydrated));
            self.is_hydrated = false;
            let is_always = matches!(self.replay, Replay::Always(_));
            if is_always && self.after < ring.base {
                return Step::Replay(epoch);
            }
            // The state of the log at the reader's position is not needed while it follows the ring.
            self.replay = if is_always { Replay::Always(None) } else { Replay::Never };
            let filter = self.filter.of_frames(self.frames);
            let (frames, hydrated) = ring.hydrate(&hub.encoder, self.after, filter, &mut self.pass, self.page_bytes_max);
            if let Some(Hydrated { through, framed }) = hydrated {
                (self.is_hydrated, self.after, self.prev) = (true, through, Some(framed));
            }
            return Step::Frames(frames);
        }
        if self.after < ring.through {
            // A filtered reader of events that resumes looks up its last one first.
            if self.frames == Frames::Events && (self.after < ring.base || (self.is_filtered() && self.prev.is_none())) {
                return Step::Page { epoch, through: ring.through, is_ring_miss: self.after < ring.base };
            }
            if let Some(frames) = self.chunk(&ring) {
                return Step::Frames(frames);
            }
        }
        match ring.ended {
            // The end counts only if nothing was committed since: a later start may be on its way to the ring. If a
            // page has taken this reader beyond the ring, the ring's end is outdated and a flush is due.
            Some(status) if self.after == ring.through && hub.log.tail().last <= self.after && !sabotage::is(30) => {
                Step::Last(hub.encoder.end(epoch, self.after, status))
            }
            _ => Step::Wait,
        }
    }

    /// The first chunk's frames that this reader gets.
    ///
    /// Without one, the reader advances to the ring's position.
    fn chunk(&mut self, ring: &Ring) -> Option<EncodedFrames> {
        // Nearly every reader needs only the newest chunk.
        let from = match ring.chunks.back() {
            Some(newest) if newest.after <= self.after => ring.chunks.len() - 1,
            _ => ring.chunks.partition_point(|chunk| chunk.last <= self.after),
        };
        for chunk in ring.chunks.range(from..) {
            let frames = self.frames_of(chunk);
            self.after = chunk.last.max(self.after);
            if frames.is_some() {
                return frames;
            }
        }
        // The envelopes after the last chunk gave this view no frames.
        self.after = ring.through;
        None
    }

    /// The frames of a chunk that this reader gets.
    fn frames_of(&mut self, chunk: &FrameSpan) -> Option<EncodedFrames> {
        // A reader without a filter gets the same frames, independent of its last one.
        let mut prev = self.prev.unwrap_or_default();
        let frames = chunk.after(self.after, self.own_filter(), &mut prev)?;
        self.prev = Some(prev);
        Some(frames)
    }

    fn reset(&mut self, epoch: Epoch, reason: &str) -> EncodedFrames {
        self.epoch = Some(epoch);
        (self.after, self.reached) = (Sequence::NONE, Sequence::NONE);
        self.prev = Some(Sequence::NONE);
        self.is_hydrated = self.frames == Frames::Events;
        self.pass = None;
        if let Replay::On(state) | Replay::Always(state) = &mut self.replay {
            *state = None;
        }
        self.hub.encoder.reset(epoch, reason)
    }

    /// Reads the log from the reader's position; `None` if it has no frames for the reader.
    async fn catch_up(&mut self, epoch: Epoch, through: Sequence) -> Result<Option<EncodedFrames>, StoreError> {
        let page = self.feed.page(&self.hub, epoch, self.audience, self.after).await?;
        if page.last == self.after {
            self.found_nothing(through).await;
            return Ok(None);
        }
        let frames = if self.is_filtered() || self.after < self.hub.log.tail().summary.compacted.through {
            // After a compaction, the row before this page in the log may not be the reader's last one.
            let mut prev = self.prev(epoch).await?;
            let frames = page.own_after(self.after, self.own_filter(), &mut prev);
            self.prev = Some(prev);
            frames
        } else {
            self.frames_of(&page)
        };
        self.after = page.last;
        Ok(frames)
    }

    /// The reader's last frame; looked up for a reader that has only a cursor.
    async fn prev(&self, epoch: Epoch) -> Result<Sequence, StoreError> {
        match self.prev {
            Some(prev) => Ok(prev),
            None => self.feed.prev_at(&self.hub.log.id, epoch, &self.filter, self.after).await,
        }
    }

    /// The frames of a page of the log as deltas; `None` if the page has none for this reader.
    async fn replay(&mut self, epoch: Epoch) -> Result<Option<EncodedFrames>, StoreError> {
        let (Replay::On(state) | Replay::Always(state)) = &mut self.replay else { return Ok(None) };
        let state = state.take();
        let page = self.feed.replay(&self.hub, epoch, &self.filter, self.after, state).await?;
        if matches!(self.replay, Replay::Always(_)) && self.hub.log.compaction_count() > 0 {
            self.is_done = true;
            return Ok(None);
        }
        let Some(page) = page else {
            if self.after > Sequence::NONE {
                // No deltas lead from the reader's activities to the current ones; it gets snapshots.
                self.replay = Replay::Never;
            }
            return Ok(None);
        };
        if page.last == self.after {
            self.found_nothing(self.after).await;
            return Ok(None);
        }
        self.after = page.last;
        if let Replay::On(state) | Replay::Always(state) = &mut self.replay {
            *state = Some(page.state);
        }
        Ok(page.frames)
    }

    /// Waits after a read that found no rows where the ring has some: the log was erased under this reader.
    ///
    /// A flush announces its next epoch or its end.
    async fn found_nothing(&mut self, through: Sequence) {
        tracing::debug!(log = %self.hub.log.id, after = %self.after, through = %through, "the log has no rows where the ring has some");
        self.flushed().await;
    }

    /// Waits for the view's next flush.
    pub(super) async fn flushed(&mut self) {
        match &mut self.place {
            Waking::Woken(place) => place.flushed().await,
            Waking::Following(..) => unreachable!("a reader that follows another task's wakes is not awaited"),
        }
    }
}
