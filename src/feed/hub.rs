//! Hubs: one log, its views, and the flushes that bring their rings to the log's tail.

use super::fan_out::{Listeners, give_way};
use super::pace::Flushed;
use super::ring::{FrameSpan, Ring};
use super::{Feed, Frames};
use crate::encode::native::Encoder;
use crate::environment;
use crate::log::commit::{Log, Tail};
use crate::log::row::Rows;
use crate::model::{Audience, Sequence};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// One log for one audience in one kind of frames, shared by all of its readers.
pub(super) struct SharedView {
    pub audience: Audience,
    pub frames: Frames,
    pub ring: Mutex<Ring>,
    /// Held by the reader that builds the fold; the others wait for it.
    pub building: tokio::sync::Mutex<()>,
    listeners: Mutex<Listeners>,
}

impl SharedView {
    /// Subscribes a reader, and returns the log's tail.
    ///
    /// The first reader restarts a ring that is not at the tail, under the lock that the next reader takes: that one cannot
    /// find an outdated ring.
    pub fn subscribe<T>(&self, log: &Log, join: impl FnOnce(&mut Listeners) -> T) -> (T, Tail) {
        let mut listeners = self.listeners.lock();
        let tail = if listeners.is_empty() { self.restart_if_moved(log) } else { log.tail() };
        (join(&mut listeners), tail)
    }

    /// The view's readers.
    pub fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock()
    }

    /// Restarts the ring at the log's tail, which it returns, unless the ring is there.
    ///
    /// The tail is read under the lock, because an earlier one may have been erased since.
    pub fn restart_if_moved(&self, log: &Log) -> Tail {
        let mut ring = self.ring.lock();
        let tail = log.tail();
        if !ring.is_at(&tail) {
            ring.restart(&tail);
        }
        tail
    }

    /// Whether the view has no readers. An idle view does no work; its first reader brings it up to date.
    pub fn is_idle(&self) -> bool {
        self.listeners.lock().is_empty()
    }
}

/// One log and its views.
pub(super) struct Hub {
    pub log: Arc<Log>,
    pub encoder: Encoder,
    /// The views for events and for activities, per audience; created at the first use.
    pub views: [OnceLock<Box<SharedView>>; 6],
    pub readers: AtomicUsize,
    /// The earliest time of the next flush.
    pub next_flush_at: Mutex<Option<Instant>>,
    /// Flushes on their way to readers.
    pub fan_outs: AtomicUsize,
    /// Whether the next flush waits for their arrival.
    pub waits_for_arrival: AtomicBool,
}

impl Hub {
    pub fn new(log: Arc<Log>) -> Self {
        log.watch();
        let encoder = Encoder::new(&log.id);
        Self {
            views: Default::default(),
            encoder,
            log,
            readers: AtomicUsize::new(0),
            next_flush_at: Mutex::new(None),
            fan_outs: AtomicUsize::new(0),
            waits_for_arrival: AtomicBool::new(false),
        }
    }

    pub fn view(&self, audience: Audience, frames: Frames) -> &SharedView {
        let at = audience.index() + if frames == Frames::Events { 0 } else { Audience::ALL.len() };
        self.views[at].get_or_init(|| {
            let ring = Mutex::new(Ring::new(&self.log.tail()));
            Box::new(SharedView { audience, frames, ring, building: tokio::sync::Mutex::default(), listeners: Mutex::default() })
        })
    }

    /// The view's ring, after removing frames of rows that compaction has deleted.
    pub fn ring<'v>(&self, view: &'v SharedView) -> MutexGuard<'v, Ring> {
        let mut ring = view.ring.lock();
        if ring.compacted != self.log.compaction_count() {
            ring.drop_history(&self.log.tail());
        }
        ring
    }

    /// The views that have readers.
    fn read(&self) -> impl Iterator<Item = &SharedView> {
        self.views.iter().filter_map(|view| view.get()).map(|view| &**view).filter(|view| !view.is_idle())
    }

    /// Encodes the frames since the last flush, for every view with readers, and wakes the readers.
    pub async fn flush(self: &Arc<Self>, feed: &Arc<Feed>) {
        let begun = environment::instant();
        let committed = self.log.acknowledge_announcement();
        let mut flushed = Flushed::default();
        for view in self.read() {
            let before = view.ring.lock().through;
            let (frames, bytes) = self.encode(view, feed.sizes.ring_bytes_max);
            feed.counts.frames.add(frames as u64);
            let envelopes = view.ring.lock().through.0.saturating_sub(before.0);
            flushed = Flushed { envelopes: flushed.envelopes.max(envelopes), bytes: flushed.bytes.max(bytes) };
        }
        self.log.drop_recent(self.read().map(|view| view.ring.lock().through).min().unwrap_or(Sequence::MAX));
        let fan_out = FanOut::new(feed.clone(), self.clone(), begun, flushed, committed);
        for view in self.read() {
            let groups = view.listeners.lock().announce(&fan_out);
            for (n, group) in groups.iter().enumerate() {
                if n > 0 {
                    give_way(&feed.logs).await;
                }
                group.wake();
            }
        }
    }

    /// Defers the next flush to the arrival of the one that readers are still to take; the flusher then looks at the log
    /// again. Returns whether there is one.
    pub fn defer_to_arrival(&self) -> bool {
        self.waits_for_arrival.store(true, Ordering::SeqCst);
        // If the flush has just arrived, one of the two sides takes the mark.
        self.fan_outs.load(Ordering::SeqCst) > 0 || !self.waits_for_arrival.swap(false, Ordering::SeqCst)
    }

    /// Brings a view's ring to the log's tail. Returns the number of encoded frames, and their bytes.
    pub fn encode(&self, view: &SharedView, ring_bytes_max: usize) -> (usize, usize) {
        let mut ring = self.ring(view);
        let (tail, rows) = self.log.recent_rows_after(ring.through);
        match (rows, tail.epoch) {
            (Some(rows), Some(epoch)) if ring.epoch.is_none_or(|known| known == epoch) => {
                ring.epoch = tail.epoch;
                let rows = rows.into_iter().flat_map(Rows);
                let buffer = ring.buffer(epoch);
                let chunk = match (view.frames, &mut ring.fold) {
                    (Frames::Events, _) => FrameSpan::events(&self.encoder, epoch, view.audience, rows, ring.through),
                    (Frames::Activities, Some(fold)) => FrameSpan::activities(&self.encoder, buffer, fold, rows),
                    // No reader has built the fold yet; the first one starts at the tail.
                    (Frames::Activities, None) => {
                        ring.restart(&tail);
                        return (0, 0);
                    }
                };
                let encoded = (chunk.frames.frame_count(), chunk.frames.len());
                if chunk.last > chunk.after {
                    ring.push(chunk, ring_bytes_max);
                }
                ring.ended = tail.end();
                return encoded;
            }
            // The log was never written, and the ring knows that. It keeps its fold; otherwise readers would rebuild it
            // forever.
            (_, None) if ring.epoch.is_none() => {}
            // The log has more rows since the last flush than it keeps in memory, or its epoch changed: readers read
            // the store.
            _ => ring.restart(&tail),
        }
        (0, 0)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.log.unwatch();
    }
}

/// A flush on its way to readers. Its drop is the arrival, and sets the time of the log's next flush.
struct FanOut {
    feed: Arc<Feed>,
    hub: Arc<Hub>,
    begun: Instant,
    flushed: Flushed,
    /// The commit of the first envelope.
    committed: Option<Instant>,
}

impl FanOut {
    fn new(feed: Arc<Feed>, hub: Arc<Hub>, begun: Instant, flushed: Flushed, committed: Option<Instant>) -> Arc<Self> {
        hub.fan_outs.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self { feed, hub, begun, flushed, committed })
    }
}

impl Drop for FanOut {
    fn drop(&mut self) {
        let (now, tick, hub) = (environment::instant(), self.feed.sizes.tick, &self.hub);
        let is_behind = hub.log.announced_at().is_some();
        *hub.next_flush_at.lock() = Some(self.flushed.next_flush_at(self.committed, self.begun, now, tick, is_behind));
        let is_last = hub.fan_outs.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && hub.waits_for_arrival.swap(false, Ordering::SeqCst) {
            self.feed.flush_again(hub.log.clone());
        }
        if let Some(committed) = self.committed.filter(|_| self.flushed.envelopes > 0) {
            self.feed.counts.flushes.observe(now.saturating_duration_since(committed));
        }
    }
}
