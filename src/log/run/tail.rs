//! One log: where it stands, what of it is newest, who watches it, and when its producers were last heard of.

use super::summary::Summary;
use crate::log::{Append, LogId, Placed};
use crate::model::{Epoch, Sequence};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// What a watched log keeps of its newest rows for those who encode them, in bytes. What fell out is read from the store.
const RECENT_BYTES_MAX: usize = 1024 * 1024;

/// What is kept of them once they have been encoded.
const RECENT_BYTES_KEPT: usize = 16 * 1024;

/// Where a log stands, for its readers: everything in it is durable.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    /// `None` until the log is first written.
    pub epoch: Option<Epoch>,
    pub last: Sequence,
    pub summary: Arc<Summary>,
}

impl Tail {
    /// How the run has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        let status = self.summary.run.status;
        status.is_end().then(|| status.as_str())
    }
}

struct Recent {
    tail: Tail,
    /// The newest appends, oldest first, while somebody watches.
    rows: VecDeque<Placed>,
    bytes: usize,
    /// When the first of what is announced was committed.
    announced_at: Option<Instant>,
}

/// One log's tail.
pub struct Log {
    pub id: LogId,
    recent: Mutex<Recent>,
    watchers: AtomicUsize,
    /// Set while the log waits in a [`Group`](super::Group) to be looked after, so that it waits there once.
    announced: AtomicBool,
    /// The sequence at which the log is [`Group::grown`](super::Group::grown) next; far off while that is being looked after.
    grown_at: AtomicU64,
    /// [`Compacted::times`](super::Compacted::times), for those who ask often.
    compacted: AtomicU64,
    /// Counts what was heard of the log's producers, facts or less.
    heard: AtomicU64,
    /// Streamed bodies that are being read for it: somebody is there, whether or not he says something.
    bodies: AtomicUsize,
    /// Submissions between their writer and the store.
    under_way: AtomicUsize,
    /// Told when the last of them is committed or refused.
    idle: Notify,
    /// Held by those who need the log's past to stay as it is while they read page after page.
    pub(super) past: RwLock<()>,
}

/// How far a log grows before it is first announced as grown.
const GROWN_FIRST: u64 = 2048;

impl Log {
    pub(super) fn new(id: LogId, tail: Tail) -> Self {
        Self {
            id,
            compacted: AtomicU64::new(tail.summary.compacted.times),
            recent: Mutex::new(Recent { tail, rows: VecDeque::new(), bytes: 0, announced_at: None }),
            watchers: AtomicUsize::new(0),
            announced: AtomicBool::new(false),
            grown_at: AtomicU64::new(GROWN_FIRST),
            heard: AtomicU64::new(0),
            bodies: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            idle: Notify::new(),
            past: RwLock::new(()),
        }
    }

    /// How often rows were taken out of its past: see [`Compacted::times`](super::Compacted::times).
    #[must_use]
    pub fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// Keeps the log's past as it is for as long as this is held: for a thread that may wait, and that lets go soon.
    pub fn hold_still(&self) -> RwLockReadGuard<'_, ()> {
        self.past.read()
    }

    /// A producer was heard of.
    pub fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a producer was heard of since the log was opened; `None` while one is on the line.
    #[must_use]
    pub fn heard(&self) -> Option<u64> {
        (self.bodies.load(Ordering::Relaxed) == 0).then(|| self.heard.load(Ordering::Relaxed))
    }

    /// A producer is on the line for as long as this is held.
    #[must_use]
    pub fn on_the_line(self: &Arc<Self>) -> OnTheLine {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        OnTheLine(self.clone())
    }

    /// Where the log stands now.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.recent.lock().tail.clone()
    }

    /// Keeps recent rows, and announces this log's commits, from now on. Balanced by [`Self::unwatch`].
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

    /// The tail, and the rows between `after` and it if they are all still at hand.
    #[must_use]
    pub fn recent_after(&self, after: Sequence) -> (Tail, Option<Vec<Bytes>>) {
        self.recent_appends(after, |placed| placed.rows.clone())
    }

    /// The same, with the place of each append in the order of all.
    #[must_use]
    pub fn recent_placed_after(&self, after: Sequence) -> (Tail, Option<Vec<Placed>>) {
        self.recent_appends(after, Placed::clone)
    }

    fn recent_appends<T>(&self, after: Sequence, give: impl Fn(&Placed) -> T) -> (Tail, Option<Vec<T>>) {
        let recent = self.recent.lock();
        let tail = recent.tail.clone();
        if after >= tail.last {
            return (tail, Some(Vec::new()));
        }
        let from = match recent.rows.back() {
            Some(newest) if newest.before <= after => recent.rows.len(),
            _ => recent.rows.partition_point(|placed| placed.before <= after),
        };
        let rows = (from > 0).then(|| recent.rows.range(from - 1..).map(give).collect());
        (tail, rows)
    }

    /// Whoever looks after the log says so first: what is committed from now on is announced anew. Returns when the first of
    /// what was announced was committed.
    pub fn take_announcement(&self) -> Option<Instant> {
        self.announced.store(false, Ordering::Release);
        self.recent.lock().announced_at.take()
    }

    /// When the first of what nobody has looked after yet was committed.
    #[must_use]
    pub fn announced_at(&self) -> Option<Instant> {
        self.recent.lock().announced_at
    }

    /// Lets go of rows up to `until`, which whoever encodes them has; a few stay for readers with a selection of their own.
    pub fn forget(&self, until: Sequence) {
        let mut recent = self.recent.lock();
        while recent.bytes > RECENT_BYTES_KEPT && recent.rows.get(1).is_some_and(|placed| placed.before <= until) {
            let dropped = recent.rows.pop_front().map_or(0, |placed| placed.rows.len());
            recent.bytes -= dropped;
        }
    }

    /// Announces the log as grown once it reaches `at`, and once only; false if it is there already, and will not be announced.
    pub fn announce_grown_at(&self, at: Sequence) -> bool {
        self.grown_at.store(at.0, Ordering::SeqCst);
        // Whoever commits looks at this after the tail has moved: one of the two sees the other.
        !self.has_grown(self.tail().last)
    }

    /// Whether the log has reached the place at which that is to be said.
    pub(super) fn has_grown(&self, last: Sequence) -> bool {
        last.0 >= self.grown_at.load(Ordering::SeqCst) && self.grown_at.swap(u64::MAX, Ordering::SeqCst) != u64::MAX
    }

    /// Makes it a log that nobody has written; what it was before.
    pub(super) fn unwrite(&self) -> Tail {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        // Unless that is being looked after; whoever does finds the tail as it is then.
        let _ = self.grown_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| (at != u64::MAX).then_some(GROWN_FIRST));
        self.compacted.store(0, Ordering::Release);
        std::mem::take(&mut recent.tail)
    }

    /// Its past is another now, of which this is known.
    pub(super) fn rewrite(&self, summary: Arc<Summary>) {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        self.compacted.store(summary.compacted.times, Ordering::Release);
        recent.tail.summary = summary;
    }

    /// Moves the tail past appends that were committed at these positions: where it was, and whether that is to be announced.
    pub(super) fn publish(&self, appends: &[Append], positions: &[(u64, u64)], summary: Arc<Summary>) -> (Tail, bool) {
        let mut recent = self.recent.lock();
        let watched = self.watchers.load(Ordering::Relaxed) > 0;
        let Append { epoch, last, .. } = *appends.last().expect("a submission has appends");
        let before = std::mem::replace(&mut recent.tail, Tail { epoch: Some(epoch), last, summary });
        for (append, (position, _)) in appends.iter().zip(positions).filter(|(append, _)| watched && !append.rows.is_empty()) {
            recent.bytes += append.rows.len();
            recent.rows.push_back(Placed { position: *position, before: append.expected, rows: append.rows.clone() });
            while recent.bytes > RECENT_BYTES_MAX && recent.rows.len() > 1 {
                let dropped = recent.rows.pop_front().map_or(0, |placed| placed.rows.len());
                recent.bytes -= dropped;
            }
        }
        let is_announced = watched && !self.announced.swap(true, Ordering::AcqRel);
        if watched {
            recent.announced_at.get_or_insert_with(Instant::now);
        }
        (before, is_announced)
    }

    /// Whether a submission of this log is between its writer and the store.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Waits until no submission of this log is between its writer and the store. What is loaded then is the whole log.
    pub async fn idle(&self) {
        loop {
            let mut told = std::pin::pin!(self.idle.notified());
            told.as_mut().enable();
            if !self.is_under_way() {
                return;
            }
            told.await;
        }
    }
}

/// A submission that its log counts as under way for as long as this is held.
pub(super) struct UnderWay(Arc<Log>);

impl UnderWay {
    pub(super) fn of(log: &Arc<Log>) -> Self {
        log.under_way.fetch_add(1, Ordering::AcqRel);
        Self(log.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A producer that sends a body as long as it likes; see [`Log::on_the_line`].
pub struct OnTheLine(Arc<Log>);

impl Drop for OnTheLine {
    fn drop(&mut self) {
        // That it has gone is the last that was heard of it.
        self.0.hear();
        self.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}
