//! One log: its tail, its newest rows, its watchers, and the last activity of its producers.

use crate::environment;
use crate::environment::sabotage;
use crate::log::moves::{Follower, Moves};
use crate::log::summary::Summary;
use crate::log::{Append, LogId, PlacedAppend, StoredAppend};
use crate::model::{Epoch, Sequence};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Bytes of newest rows that a watched log keeps for encoding. Readers read older rows from the store.
const RECENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of newest rows that a watched log keeps after their encoding.
const RECENT_BYTES_KEPT: usize = 16 * 1024;

/// The tail of a log, for readers: everything up to it is durable.
#[derive(Debug, Clone)]
pub struct Tail {
    /// `None` until the log is first written.
    pub epoch: Option<Epoch>,
    pub last: Sequence,
    pub summary: Arc<Summary>,
}

impl Default for Tail {
    /// The tail of a log that was never written. All of them share one summary.
    fn default() -> Self {
        static EMPTY: LazyLock<Arc<Summary>> = LazyLock::new(Arc::default);
        Self { epoch: None, last: Sequence::NONE, summary: EMPTY.clone() }
    }
}

impl Tail {
    /// The final status of the run, if it has ended.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        let status = self.summary.run.status;
        status.is_end().then(|| status.as_str())
    }
}

struct Recent {
    tail: Tail,
    /// The newest appends, oldest first, while the log is watched.
    rows: VecDeque<StoredAppend>,
    bytes: usize,
    /// The commit time of the first announced append.
    announced_at: Option<Instant>,
    /// The readers of several logs that this one belongs to.
    followers: Vec<Follower>,
}

impl Recent {
    fn list_move(&self) {
        for Follower { moves, member } in &self.followers {
            moves.add(*member);
        }
    }
}

/// One open log.
pub struct Log {
    pub id: LogId,
    recent: Mutex<Recent>,
    watchers: AtomicUsize,
    /// Set while a group announces the log, so that the log is announced once.
    announced: AtomicBool,
    /// The sequence at which the log is next reported as grown.
    ///
    /// See [`CommittedGroup::grown`](super::CommittedGroup::grown). `u64::MAX` while the last report is being handled.
    growth_mark: AtomicU64,
    /// [`CompactionState::times`](super::CompactionState::times), for frequent callers.
    compacted: AtomicU64,
    /// Counts signs of life from the log's producers: deliveries and closed connections.
    activity_count: AtomicU64,
    /// Streamed bodies that the server is reading for the log.
    ///
    /// Each is a connected producer, even if it is silent.
    bodies: AtomicUsize,
    /// Submissions between their writer and the store.
    in_flight: AtomicUsize,
    /// Notified when the last of them is committed or refused.
    idle: Notify,
    /// Held by readers that need an unchanged history while they read page after page.
    history: Arc<RwLock<()>>,
    /// Whether a request to rewrite the history excludes those readers, until the committer has answered it.
    is_being_rewritten: AtomicBool,
    /// Notified when one does.
    rewrite_begun: Notify,
}

/// The exclusive right to rewrite a log's history. Dropping it gives up the right.
pub struct HistoryRewrite {
    pub(super) log: Arc<Log>,
    _alone: OwnedRwLockWriteGuard<()>,
}

impl Drop for HistoryRewrite {
    fn drop(&mut self) {
        self.log.is_being_rewritten.store(false, Ordering::Release);
    }
}

/// The sequence at which a log is first announced as grown.
const FIRST_GROWTH_MARK: u64 = 2048;

impl Log {
    pub(super) fn new(id: LogId, tail: Tail) -> Self {
        Self {
            id,
            compacted: AtomicU64::new(tail.summary.compacted.times),
            recent: Mutex::new(Recent { tail, rows: VecDeque::new(), bytes: 0, announced_at: None, followers: Vec::new() }),
            watchers: AtomicUsize::new(0),
            announced: AtomicBool::new(false),
            growth_mark: AtomicU64::new(FIRST_GROWTH_MARK),
            activity_count: AtomicU64::new(0),
            bodies: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
            history: Arc::default(),
            is_being_rewritten: AtomicBool::new(false),
            rewrite_begun: Notify::new(),
        }
    }

    /// The number of compactions so far: [`CompactionState::times`](super::CompactionState::times).
    #[must_use]
    pub fn compaction_count(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// Prevents a rewrite of the history while the guard is held.
    pub(super) async fn lock_history(&self) -> OwnedRwLockReadGuard<()> {
        self.history.clone().read_owned().await
    }

    /// Excludes readers of the history, for a caller that asks the committer to rewrite it.
    pub async fn lock_for_rewrite(self: &Arc<Self>) -> HistoryRewrite {
        let alone = self.history.clone().write_owned().await;
        self.is_being_rewritten.store(true, Ordering::Release);
        self.rewrite_begun.notify_waiters();
        HistoryRewrite { log: self.clone(), _alone: alone }
    }

    /// Excludes readers of the history, for the committer that applies a rewrite of another process.
    ///
    /// A caller that waits for the committer may have excluded them already. Waiting for that caller would never end.
    pub(super) async fn lock_for_commit(&self) -> Option<OwnedRwLockWriteGuard<()>> {
        loop {
            let begun = self.rewrite_begun.notified();
            if self.is_being_rewritten.load(Ordering::Acquire) {
                return None;
            }
            tokio::select! {
                biased;
                alone = self.history.clone().write_owned() => return Some(alone),
                () = begun => {}
            }
        }
    }

    /// Records activity of a producer.
    pub fn touch(&self) {
        self.activity_count.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of recorded activities since the log was opened; `None` while a producer is connected.
    #[must_use]
    pub fn last_activity(&self) -> Option<u64> {
        (self.bodies.load(Ordering::Relaxed) == 0).then(|| self.activity_count.load(Ordering::Relaxed))
    }

    /// Records a connected producer for as long as the result is held.
    #[must_use]
    pub fn mark_connected(self: &Arc<Self>) -> Connected {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    /// Adds this log to `moves`, as this member, at every commit from now on.
    pub fn follow(&self, moves: &Arc<Moves>, member: usize) {
        self.recent.lock().followers.push(Follower { moves: moves.clone(), member });
    }

    /// Undoes [`Self::follow`].
    pub fn unfollow(&self, moves: &Arc<Moves>) {
        let followers = &mut self.recent.lock().followers;
        if let Some(at) = followers.iter().position(|follower| Arc::ptr_eq(&follower.moves, moves)) {
            followers.swap_remove(at);
        }
    }

    /// The current tail.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.recent.lock().tail.clone()
    }

    /// Keeps recent rows and announces commits from now on. [`Self::unwatch`] undoes it.
    pub fn watch(&self) -> Tail {
        let recent = self.recent.lock();
        self.watchers.fetch_add(1, Ordering::Relaxed);
        recent.tail.clone()
    }

    /// Undoes one [`Self::watch`].
    pub fn unwatch(&self) {
        let mut recent = self.recent.lock();
        if self.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            recent.rows = VecDeque::new();
            recent.bytes = 0;
            recent.announced_at = None;
        }
    }

    /// The tail, and the rows between `after` and the tail if all of them are still in memory.
    #[must_use]
    pub fn recent_rows_after(&self, after: Sequence) -> (Tail, Option<Vec<Bytes>>) {
        self.map_recent(after, |stored| stored.rows.clone())
    }

    /// Like [`Self::recent_rows_after`], with the position of each append.
    #[must_use]
    pub fn recent_appends_after(&self, after: Sequence) -> (Tail, Option<Vec<StoredAppend>>) {
        self.map_recent(after, StoredAppend::clone)
    }

    fn map_recent<T>(&self, after: Sequence, give: impl Fn(&StoredAppend) -> T) -> (Tail, Option<Vec<T>>) {
        let recent = self.recent.lock();
        let tail = recent.tail.clone();
        if after >= tail.last {
            return (tail, Some(Vec::new()));
        }
        let from = match recent.rows.back() {
            Some(newest) if newest.before <= after => recent.rows.len(),
            _ => recent.rows.partition_point(|stored| stored.before <= after),
        };
        let rows = (from > 0).then(|| recent.rows.range(from - usize::from(!sabotage::is(7))..).map(give).collect());
        (tail, rows)
    }

    /// Acknowledges the announcement, so that later commits announce the log again.
    ///
    /// Call this before handling the log. Returns the commit time of the first announced append.
    pub fn acknowledge_announcement(&self) -> Option<Instant> {
        self.announced.store(sabotage::is(5), Ordering::Release);
        self.recent.lock().announced_at.take()
    }

    /// The commit time of the first append whose announcement is not acknowledged.
    #[must_use]
    pub fn announced_at(&self) -> Option<Instant> {
        self.recent.lock().announced_at
    }

    /// Drops rows up to `until`, which are encoded by now. A few stay for readers with their own filter.
    pub fn drop_recent(&self, until: Sequence) {
        let mut recent = self.recent.lock();
        while recent.bytes > RECENT_BYTES_KEPT && recent.rows.get(1).is_some_and(|stored| stored.before <= until) {
            let dropped = recent.rows.pop_front().map_or(0, |stored| stored.rows.len());
            recent.bytes -= dropped;
        }
    }

    /// Announces the log as grown once it reaches `at`; `false` without effect if it is there already.
    pub fn announce_growth_at(&self, at: Sequence) -> bool {
        self.growth_mark.store(at.0, Ordering::SeqCst);
        // The committer checks the mark after it has moved the tail, so one of the two sees the other's change.
        !self.reaches_growth_mark(self.tail().last)
    }

    /// Whether the log has reached the growth mark, which this call clears.
    pub(super) fn reaches_growth_mark(&self, last: Sequence) -> bool {
        last.0 >= self.growth_mark.load(Ordering::SeqCst) && self.growth_mark.swap(u64::MAX, Ordering::SeqCst) != u64::MAX
    }

    /// Resets the log to one that was never written; returns its former tail.
    pub(super) fn reset(&self) -> Tail {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        // Unless the growth is being handled: the handler reads the tail after this.
        let _ =
            self.growth_mark.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| (at != u64::MAX).then_some(FIRST_GROWTH_MARK));
        self.compacted.store(0, Ordering::Release);
        recent.list_move();
        std::mem::take(&mut recent.tail)
    }

    /// Replaces the log's history; `summary` describes the log after it. Returns the former summary.
    pub(super) fn replace_history(&self, summary: Arc<Summary>) -> Arc<Summary> {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        self.compacted.store(summary.compacted.times, Ordering::Release);
        std::mem::replace(&mut recent.tail.summary, summary)
    }

    /// Moves the tail past committed appends; returns the former tail, and whether to announce the log.
    pub(super) fn publish(&self, appends: &[PlacedAppend], summary: Arc<Summary>) -> (Tail, bool) {
        let mut recent = self.recent.lock();
        let watched = self.watchers.load(Ordering::Relaxed) > 0;
        let Append { epoch, last, .. } = appends.last().expect("a commit of a log has appends").append;
        let before = std::mem::replace(&mut recent.tail, Tail { epoch: Some(epoch), last, summary });
        for PlacedAppend { append, place } in appends.iter().filter(|placed| watched && !placed.append.rows.is_empty()) {
            recent.bytes += append.rows.len();
            let (position, before, rows) = (place.position, append.expected, append.rows.clone());
            recent.rows.push_back(StoredAppend { position, before, rows });
            while recent.bytes > RECENT_BYTES_MAX && recent.rows.len() > 1 {
                let dropped = recent.rows.pop_front().map_or(0, |stored| stored.rows.len());
                recent.bytes -= dropped;
            }
        }
        let is_announced = watched && !self.announced.swap(true, Ordering::AcqRel);
        if watched {
            recent.announced_at.get_or_insert_with(environment::instant);
        }
        if !sabotage::is(6) {
            recent.list_move();
        }
        (before, is_announced)
    }

    /// Whether a submission of this log is in flight between its writer and the store.
    #[must_use]
    pub fn has_in_flight(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Waits until no submission of this log is in flight. A load then sees the whole log.
    pub async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if !self.has_in_flight() {
                return;
            }
            idle.await;
        }
    }
}

/// A submission in flight; its log counts it as long as this is held.
pub(super) struct InFlightGuard(Arc<Log>);

impl InFlightGuard {
    pub(super) fn of(log: &Arc<Log>) -> Self {
        log.in_flight.fetch_add(1, Ordering::AcqRel);
        Self(log.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A connected producer that streams a body; see [`Log::mark_connected`].
pub struct Connected(Arc<Log>);

impl Drop for Connected {
    fn drop(&mut self) {
        // Disconnecting is the producer's last activity.
        self.0.touch();
        self.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}
