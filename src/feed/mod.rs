//! The read path: one loop that serves all readers of the logs.
//!
//! A reader is a number: the sequence after which its next frame comes. Per log, audience and kind of frame one
//! [`SharedView`](hub::SharedView) encodes each frame once. It freezes the frames since the last flush into one chunk
//! that all readers share. Catching up, following and recovering from a stall are the same loop at different numbers.
//! Frames in the view's bounded ring come from there. Older events come from the log; older activities are replaced by
//! snapshots of what has changed since. A stalled reader costs its number and nothing else.
//!
//! A flush is immediate if the view was idle for a tick, else it waits for the shared tick, or longer after an expensive
//! flush ([`pace`]). So a first token is not delayed, and a burst costs each reader one socket write per flush. The read
//! path cannot slow the write path; it only follows tails.

mod any_reader;
mod blocks;
mod building;
pub mod fan_out;
mod filter;
pub mod folds;
mod history;
mod hub;
mod last_seen;
pub mod lineage;
mod log_set;
pub mod merged;
pub mod merged_reader;
mod pace;
pub mod reader;
mod ring;

#[cfg(test)]
mod tests;

pub use any_reader::{AnyReader, TryNext};
pub use filter::{Filter, Frames, Names, ReadRequest};
pub use log_set::{LogSet, SessionPredicate};

use crate::environment;
use crate::log::commit::{CommittedGroup, Log, Logs, Tail};
use crate::log::{LogId, StoreError};
use crate::meter::{Counter, Histogram};
use crate::model::{Cursor, Sequence};
use dashmap::DashMap;
use fan_out::Listeners;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use history::{MemoryWeighter, PAGE, PageKey, ReplayState};
use hub::Hub;
use merged_reader::MergedReader;
use quick_cache::sync::Cache;
use reader::Reader;
use ring::FrameSpan;
use std::collections::BTreeMap;
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

/// The position at which a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    Start,
    Now,
    After(Cursor),
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
    pages: Cache<PageKey, FrameSpan, MemoryWeighter>,
    sizes: FeedConfig,
    counts: ReaderCounts,
    /// The logs to flush, for the flusher.
    moved: OnceLock<mpsc::WeakUnboundedSender<Arc<Log>>>,
}

impl Feed {
    /// Creates the read path of `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs>, sizes: FeedConfig) -> Arc<Self> {
        let items = usize::try_from(sizes.pages_bytes_max / (PAGE.bytes as u64)).unwrap_or(usize::MAX).max(16);
        let pages = Cache::with_weighter(items, sizes.pages_bytes_max, MemoryWeighter);
        Arc::new(Self { logs, hubs: DashMap::new(), pages, sizes, counts: ReaderCounts::default(), moved: OnceLock::new() })
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
        // Weak: the flusher ends when the committer does.
        let _ = self.moved.set(moved.downgrade());
        let (grown, checkpoints) = mpsc::unbounded_channel();
        let feed = self.clone();
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
                for log in group.erased {
                    feed.forget(&log).await;
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
        // By time. A log is announced again only after its flush, so it is here at most once.
        let mut due: BTreeMap<(tokio::time::Instant, LogId), Arc<Hub>> = BTreeMap::new();
        loop {
            let next = due.first_key_value().map(|((at, _), _)| *at);
            let hub = tokio::select! {
                biased;
                () = tokio::time::sleep_until(next.unwrap_or_else(tokio::time::Instant::now)), if next.is_some() => {
                    due.pop_first().map(|(_, hub)| hub)
                }
                log = moved.recv() => match log {
                    Some(log) => find_readers(&log, || self.hubs.get(&log.id).map(|hub| hub.clone())),
                    None => return,
                },
            };
            let Some(hub) = hub else { continue };
            if let Some(at) = self.flush_or_delay(&hub).await {
                due.insert((at.into(), hub.log.id.clone()), hub);
            }
        }
    }

    /// Flushes the log if that is due; else returns the earliest time, unless the arrival of another flush decides it.
    async fn flush_or_delay(self: &Arc<Self>, hub: &Arc<Hub>) -> Option<Instant> {
        if hub.defer_to_arrival() {
            return None;
        }
        let now = environment::instant();
        let later = hub.next_flush_at.lock().filter(|at| *at > now);
        if later.is_none() {
            hub.flush(self).await;
        }
        later
    }

    /// Has the flusher look at a log again, whose flush has arrived.
    fn flush_again(&self, log: Arc<Log>) {
        if let Some(moved) = self.moved.get().and_then(mpsc::WeakUnboundedSender::upgrade) {
            // After the flusher's end there is no reader to flush for.
            let _ = moved.send(log);
        }
    }

    /// Opens a reader of a log, which may not be written yet.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(self: &Arc<Self>, id: &LogId, request: ReadRequest, start: StartAt) -> Result<Reader, StoreError> {
        let (hub, place, tail) = self.subscribe(id, &request, |_, listeners| listeners.join()).await?;
        Ok(Reader::new(self.clone(), hub, request, start, place, &tail))
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
        Ok(self.subscribe_open(self.logs.log(id).await?, request, join))
    }

    /// Subscribes to an open log, and returns its tail at that time.
    fn subscribe_open<T>(
        &self,
        log: Arc<Log>,
        request: &ReadRequest,
        join: impl FnOnce(&Log, &mut Listeners) -> T,
    ) -> (Arc<Hub>, T, Tail) {
        let hub = self.hubs.entry(log.id.clone()).or_insert_with(|| Arc::new(Hub::new(log))).clone();
        hub.readers.fetch_add(1, Ordering::Relaxed);
        let view = hub.view(request.filter.audience, request.frames);
        let (joined, tail) = view.subscribe(&hub.log, |listeners| join(&hub.log, listeners));
        (hub, joined, tail)
    }

    /// Whether the id of a log or of a session is refused, because it was erased.
    fn is_erased(&self, id: &LogId) -> bool {
        self.logs.server_state().erased().get(id).is_some()
    }

    /// Drops all cached data of an erased log.
    ///
    /// After that its readers receive nothing more of it. They wait for its next epoch, or end if its id is refused.
    pub async fn forget(self: &Arc<Self>, id: &LogId) {
        self.pages.retain(|page, _| page.log != *id);
        let Some(hub) = self.hubs.get(id).map(|hub| hub.clone()) else { return };
        for view in hub.views.iter().filter_map(OnceLock::get) {
            view.restart_if_moved(&hub.log);
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
        let mut due = Sequence::NONE;
        while due <= log.tail().last {
            due = folds::make_checkpoints(&self.logs, &log).await?;
        }
        Ok(())
    }

    /// Drops views without readers, and pages of hydrations that no reader holds.
    pub fn sweep(&self) {
        self.hubs.retain(|_, hub| {
            for view in hub.views.iter().filter_map(OnceLock::get) {
                let is_idle = view.is_idle();
                let mut ring = view.ring.lock();
                ring.drop_unread_pages();
                if is_idle {
                    ring.fold = None;
                }
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
        oldest.map_or(Duration::ZERO, environment::elapsed)
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
