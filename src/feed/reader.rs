//! One reader of one log: a place, and how to go on from it.

use super::ring::{HYDRATION_BYTES_MAX, Pass, Ring};
use super::{Feed, From, Hub, PAGE, Past, Selection, View, Wanted};
use crate::encode::native::with_prev;
use crate::log::run::{Tail, rows_after};
use crate::log::{Store, StoreError};
use crate::model::{Audience, Cursor, Epoch, Sequence};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// What kind of frames a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frames {
    /// Every envelope, as it is.
    Events,
    /// What the envelopes come to: activities.
    Activities,
}

/// One reader of one log.
pub struct Reader<S> {
    feed: Arc<Feed<S>>,
    hub: Arc<Hub>,
    audience: Audience,
    selection: Selection,
    frames: Frames,
    moved: watch::Receiver<u64>,
    epoch: Option<Epoch>,
    after: Sequence,
    /// The last envelope of which this reader had a frame, where that is asked for; `None` until it was looked up.
    prev: Option<Sequence>,
    /// Whether this reader of activities has all that there was up to its place.
    is_hydrated: bool,
    /// How far it is with what it joins with.
    pass: Option<Box<Pass>>,
    /// The most that it takes of that at once, in bytes.
    page_bytes_max: usize,
    replay: Replay,
    nothing_more: bool,
    done: bool,
}

/// Whether activities before the tail come delta by delta.
enum Replay {
    Never,
    /// The activities at the reader's place, while it is on its way to the tail; made anew from the log when they are not there.
    On(Option<Box<Past>>),
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Step {
    Frames(Bytes),
    Last(Bytes),
    /// What comes next is in the log.
    Page(Epoch, Sequence),
    /// What comes next is to be replayed from the log.
    Replay(Epoch),
    /// Nobody has brought up the activities.
    Warm,
    Wait,
}

impl<S: Store> Reader<S> {
    pub(super) fn new(
        feed: Arc<Feed<S>>,
        hub: Arc<Hub>,
        wanted: Wanted,
        from: From,
        moved: watch::Receiver<u64>,
        tail: &Tail,
    ) -> Self {
        let Wanted { selection, frames, replay } = wanted;
        let audience = selection.audience;
        let (epoch, after) = match from {
            From::Start => (None, Sequence::NONE),
            From::Now => (tail.epoch, tail.last),
            From::After(cursor) => (Some(cursor.epoch), cursor.after),
        };
        let nothing_more = matches!(from, From::After(cursor) if cursor.knows_end
            && tail.epoch == Some(cursor.epoch)
            && tail.summary.run.status.is_end()
            && tail.summary.seen_last[audience.index()] <= cursor.after);
        let replay = if replay && frames == Frames::Activities { Replay::On(None) } else { Replay::Never };
        let is_hydrated = frames == Frames::Events;
        let prev = (from == From::Start).then_some(Sequence::NONE);
        let (pass, page_bytes_max, done) = (None, HYDRATION_BYTES_MAX, false);
        Self {
            feed,
            hub,
            audience,
            selection,
            frames,
            moved,
            epoch,
            after,
            prev,
            is_hydrated,
            pass,
            page_bytes_max,
            replay,
            nothing_more,
            done,
        }
    }

    /// Sets that the activities at the reader's place come as of one moment and each once, as a client needs them that shows
    /// them all at once. The reader then holds all of them.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.page_bytes_max = usize::MAX;
        self
    }

    /// Whether it wants only part of what the view has, which is taken out for this reader alone.
    fn is_filtered(&self) -> bool {
        match self.frames {
            Frames::Events => !self.selection.is_all(),
            Frames::Activities => !self.selection.is_all_activities(),
        }
    }

    /// Whether this reader knows that the run has ended and nothing that it may see came after: it need not connect again.
    #[must_use]
    pub const fn has_seen_the_end(&self) -> bool {
        self.nothing_more
    }

    /// Whether everything was handed out, the run's end too.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.done
    }

    /// The next frames, as soon as there are any; `None` after the run's end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.done {
            return Ok(None);
        }
        // The steps that read the log are boxed: most readers wait, and should not keep room for them meanwhile.
        loop {
            self.moved.mark_unchanged();
            match self.step() {
                Step::Frames(bytes) => return Ok(Some(bytes)),
                Step::Last(bytes) => {
                    self.done = true;
                    return Ok(Some(bytes));
                }
                Step::Page(epoch, through) => {
                    if let Some(bytes) = Box::pin(self.catch_up(epoch, through)).await? {
                        return Ok(Some(bytes));
                    }
                }
                Step::Replay(epoch) => {
                    if let Some(bytes) = Box::pin(self.replay(epoch)).await? {
                        return Ok(Some(bytes));
                    }
                }
                Step::Warm => {
                    let hub = self.hub.clone();
                    Box::pin(self.feed.warm(&hub, hub.view(self.audience, self.frames))).await?;
                }
                Step::Wait => {
                    if self.moved.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The frame that tells why there will be no more.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> Bytes {
        self.hub.encoder.error(self.after, problem).into()
    }

    /// Goes back to where whoever joins begins: of activities what they have come to, of events all.
    pub fn begin_again(&mut self) {
        self.after = Sequence::NONE;
        self.prev = Some(Sequence::NONE);
        self.is_hydrated = self.frames == Frames::Events;
        self.pass = None;
        self.replay = Replay::Never;
        self.done = false;
    }

    /// Gives back what was handed out after `cursor`, to be had again; false if that is not possible any more.
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        if self.epoch != Some(cursor.epoch) || cursor.after > self.after || cursor.knows_end {
            return false;
        }
        self.after = cursor.after;
        self.done = false;
        self.prev = match self.frames {
            Frames::Events if self.is_filtered() => Some(cursor.after),
            // The cursor may be that of a hydration, which is no frame's.
            _ => None,
        };
        if self.frames == Frames::Activities {
            // Deltas again, where the ring still has them. With a selection it would take a look at the activities of then to know
            // its `prev`: snapshots do without.
            self.is_hydrated = !self.is_filtered();
            self.pass = None;
            if let Replay::On(past) = &mut self.replay {
                // A reader that does not read keeps its place, and no activities.
                *past = None;
                self.is_hydrated = false;
            }
        }
        true
    }

    /// What can be had without waiting.
    fn step(&mut self) -> Step {
        let hub = self.hub.clone();
        let view: &View = hub.view(self.audience, self.frames);
        let mut ring = hub.ring(view);
        if self.frames == Frames::Activities && ring.fold.is_none() {
            return Step::Warm;
        }
        let Some(epoch) = ring.epoch else {
            if self.is_hydrated {
                return Step::Wait;
            }
            // Nothing was written yet: that is all there is, and whoever listens from here on misses nothing.
            self.is_hydrated = true;
            return Step::Frames(ring.hydration(&hub.encoder, Sequence::NONE, None).0);
        };
        match self.epoch {
            Some(known) if known != epoch => return Step::Frames(self.reset(epoch, "epoch")),
            Some(_) if self.after > ring.through && self.after > hub.log.tail().last => {
                return Step::Frames(self.reset(epoch, "expired"));
            }
            _ => self.epoch = Some(epoch),
        }
        if let (Replay::On(_), false) = (&self.replay, self.is_hydrated) {
            // What comes live is the end of what is replayed, once that has reached what the ring has.
            if self.after < ring.through {
                return Step::Replay(epoch);
            }
        }
        if self.frames == Frames::Activities && (!self.is_hydrated || self.after < ring.base) {
            if self.after > ring.through {
                // A page took this reader past what the ring knows; a flush is due.
                return Step::Wait;
            }
            self.feed.counts.ring_misses.add(u64::from(self.is_hydrated));
            self.is_hydrated = false;
            self.replay = Replay::Never;
            let chosen = self.selection.among_activities();
            let mut pass = self.pass.take().map(|pass| *pass);
            let (bytes, framed) = ring.hydrate(&hub.encoder, self.after, chosen, &mut pass, self.page_bytes_max);
            self.pass = pass.map(Box::new);
            if framed.is_some() {
                (self.is_hydrated, self.after, self.prev) = (true, ring.through, framed);
            }
            return Step::Frames(bytes);
        }
        if self.after < ring.through {
            if self.frames == Frames::Events && (self.after < ring.base || self.is_filtered()) {
                self.feed.counts.ring_misses.add(u64::from(self.after < ring.base));
                return Step::Page(epoch, ring.through);
            }
            if let Some(frames) = self.chunk(&ring, epoch) {
                return Step::Frames(frames);
            }
        }
        match ring.ended {
            // Only where nothing was committed since: a later start is on its way to the ring. A page may have taken this
            // reader past what the ring knows; then what the ring says of the end is old, and a flush is due.
            Some(status) if self.after == ring.through && hub.log.tail().last <= self.after => {
                Step::Last(hub.encoder.end(epoch, self.after, status).into())
            }
            _ => Step::Wait,
        }
    }

    /// The frames of the first of the ring's chunks that has any for this reader. Without one, the reader is at the ring's place.
    fn chunk(&mut self, ring: &Ring, epoch: Epoch) -> Option<Bytes> {
        // Nearly every reader wants what came last.
        let from = match ring.chunks.back() {
            Some(newest) if newest.after <= self.after => ring.chunks.len() - 1,
            _ => ring.chunks.partition_point(|chunk| chunk.last <= self.after),
        };
        for chunk in ring.chunks.range(from..) {
            let frames = match self.is_filtered() {
                false => {
                    let frames = chunk.after(self.after);
                    self.prev = chunk.last_framed().or(self.prev);
                    frames
                }
                true => {
                    let prev = self.prev.as_mut().expect("a reader of activities that has a place was hydrated");
                    chunk.chosen_after(self.after, epoch, &self.selection, prev)
                }
            };
            self.after = chunk.last.max(self.after);
            if frames.is_some() {
                return frames;
            }
        }
        // What came after the last chunk gave this view no frames.
        self.after = ring.through;
        None
    }

    fn reset(&mut self, epoch: Epoch, reason: &str) -> Bytes {
        self.epoch = Some(epoch);
        self.after = Sequence::NONE;
        self.prev = Some(Sequence::NONE);
        self.is_hydrated = self.frames == Frames::Events;
        self.pass = None;
        if let Replay::On(past) = &mut self.replay {
            *past = None;
        }
        self.hub.encoder.reset(epoch, reason).into()
    }

    /// Reads the log from where this reader stands; `None` if there was nothing for it.
    async fn catch_up(&mut self, epoch: Epoch, through: Sequence) -> Result<Option<Bytes>, StoreError> {
        let (last, bytes) = match self.is_filtered() {
            false => {
                let page = self.feed.page(&self.hub, epoch, self.audience, self.after).await?;
                let mut bytes = page.bytes.clone();
                if page.last_framed().is_some() && self.after < self.hub.log.tail().summary.compacted.through {
                    // Where rows are gone, what a row follows in the log need not be what this reader had last.
                    let prev = self.prev(epoch).await?;
                    bytes = with_prev(bytes, prev);
                }
                self.prev = page.last_framed().or(self.prev);
                (page.last, bytes)
            }
            true => {
                let mut prev = self.prev(epoch).await?;
                let rows = match self.hub.log.recent_after(self.after) {
                    (tail, Some(runs)) if tail.epoch == Some(epoch) => rows_after(runs, self.after).collect(),
                    _ => self.feed.rows(&self.hub.log.id, epoch, self.after, PAGE).await?,
                };
                let (mut bytes, mut last) = (Vec::new(), self.after);
                for row in rows {
                    last = row.sequence();
                    if let Some(view) = self.selection.of(&row) {
                        self.hub.encoder.event(&mut bytes, Cursor::at(epoch, last), last, prev, view);
                        prev = last;
                    }
                }
                self.prev = Some(prev);
                (last, bytes.into())
            }
        };
        if last == self.after {
            self.found_nothing(through).await;
            return Ok(None);
        }
        self.after = last;
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// What this reader had last; looked up where it comes with nothing but a cursor.
    async fn prev(&self, epoch: Epoch) -> Result<Sequence, StoreError> {
        match self.prev {
            Some(prev) => Ok(prev),
            None => self.feed.prev_at(&self.hub.log.id, epoch, &self.selection, self.after).await,
        }
    }

    /// The frames of a page of the log, delta by delta; `None` if it gave this reader none.
    async fn replay(&mut self, epoch: Epoch) -> Result<Option<Bytes>, StoreError> {
        let Replay::On(past) = &mut self.replay else { return Ok(None) };
        let past = past.take();
        let Some(page) = self.feed.replay(&self.hub, epoch, &self.selection, self.after, past).await? else {
            if self.after > Sequence::NONE {
                // No deltas lead from what this reader has to what there is: snapshots do.
                self.replay = Replay::Never;
            }
            return Ok(None);
        };
        if page.last == self.after {
            self.found_nothing(self.after).await;
            return Ok(None);
        }
        self.after = page.last;
        self.replay = Replay::On(Some(page.past));
        Ok(page.frames)
    }

    /// Nothing where the ring says there is something: the log was erased under this reader. Its new life, or its end, comes
    /// as a flush.
    async fn found_nothing(&mut self, through: Sequence) {
        tracing::debug!(log = %self.hub.log.id, after = %self.after, through = %through, "nothing to read where there was");
        if self.moved.changed().await.is_err() {
            self.done = true;
        }
    }
}
