//! The read path: what a log's readers get, in one loop.
//!
//! A reader is a number: the sequence after which it wants more. Per log and audience there is one [`View`], which encodes
//! each frame once and freezes what came since the last flush into one chunk that all readers share. Catching up, following
//! and recovering from slowness are the same loop at different numbers: what the view's bounded ring still holds is taken
//! from there, anything older is read from the log. A reader that stalls costs its number and nothing else.
//!
//! A flush is immediate when the view has been quiet for a tick, else it waits for the shared tick: a first token is not
//! delayed, and a burst costs each reader one socket write a tick. Nothing here can slow the write path; it only follows tails.

use crate::encode::native::Encoder;
use crate::log::row::{Row, Rows};
use crate::log::run::{Group, Log, Logs, Tail, rows_after};
use crate::log::{Limit, LogId, Store, StoreError};
use crate::model::{Audience, Cursor, Epoch, Sequence};
use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How the read path is sized.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The shortest time between two flushes of one log.
    pub tick: Duration,
    /// What one view keeps of its newest frames, in bytes.
    pub ring_bytes_max: usize,
    /// What all pages of older frames may take together, in bytes.
    pub pages_bytes_max: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { tick: Duration::from_millis(8), ring_bytes_max: 256 * 1024, pages_bytes_max: 64 * 1024 * 1024 }
    }
}

/// A page of older frames: this many rows, or this many bytes of them, whichever comes first.
const PAGE: Limit = Limit { rows: 1024, bytes: 128 * 1024 };

/// What a reader wants of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub audience: Audience,
    /// Only envelopes of these surfaces; all if empty.
    pub surfaces: Vec<Box<str>>,
    /// Only envelopes of these classes; all if empty.
    pub types: Vec<Box<str>>,
    /// Only what this agent says and does.
    pub agent: Option<Box<str>>,
}

impl Selection {
    fn is_all(&self) -> bool {
        self.surfaces.is_empty() && self.types.is_empty() && self.agent.is_none()
    }

    /// The row's text for this selection; `None` when it gets nothing of it.
    #[must_use]
    pub fn of<'r>(&self, row: &'r Row) -> Option<&'r [u8]> {
        let view = row.view(self.audience)?;
        (self.is_all() || self.takes(view)).then_some(view)
    }

    fn takes(&self, view: &[u8]) -> bool {
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
        let among = |list: &[Box<str>], value: &str| list.is_empty() || list.iter().any(|name| **name == *value);
        among(&self.surfaces, &of.surface)
            && among(&self.types, &of.r#type)
            && self.agent.as_ref().is_none_or(|agent| of.agent_id.as_deref() == Some(agent))
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Now,
    After(Cursor),
}

/// Frames of the rows `(after, last]`, encoded.
#[derive(Debug, Clone)]
struct Chunk {
    after: Sequence,
    last: Sequence,
    bytes: Bytes,
    /// Where each frame begins.
    marks: Box<[(Sequence, u32)]>,
}

impl Chunk {
    /// The frames after `after`; `None` if there are none.
    fn after(&self, after: Sequence) -> Option<Bytes> {
        if after <= self.after {
            return (!self.bytes.is_empty()).then(|| self.bytes.clone());
        }
        let (_, from) = self.marks.get(self.marks.partition_point(|(sequence, _)| *sequence <= after))?;
        Some(self.bytes.slice(*from as usize..))
    }
}

/// One log as one audience gets it, for all of its readers.
struct View {
    audience: Audience,
    ring: Mutex<Ring>,
    /// What the view's readers wait for, so many at each: a flush opens one after the other.
    gates: Mutex<Vec<Gate>>,
}

/// Counts flushes; readers wait for it to move.
type Gate = Arc<watch::Sender<u64>>;

/// Readers at one gate. Between gates whatever else came gets its turn, so that a thousand writes do not stand between a
/// producer and its answer.
const GATE_READERS: usize = 16;

impl View {
    /// A place to wait at, and whether it is the only one.
    fn gate(&self) -> (watch::Receiver<u64>, bool) {
        let mut gates = self.gates.lock();
        gates.retain(|gate| gate.receiver_count() > 0);
        let first = gates.is_empty();
        if let Some(gate) = gates.iter().find(|gate| gate.receiver_count() < GATE_READERS) {
            return (gate.subscribe(), first);
        }
        let gate = Gate::default();
        let place = gate.subscribe();
        gates.push(gate);
        (place, first)
    }

    /// Whether nobody reads it. Then nothing is done for it: the first reader to come brings it up to date.
    fn is_idle(&self) -> bool {
        self.gates.lock().iter().all(|gate| gate.receiver_count() == 0)
    }
}

struct Ring {
    epoch: Option<Epoch>,
    /// The ring holds every frame of `(base, through]`.
    base: Sequence,
    through: Sequence,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// How the run ended, as of `through`.
    ended: Option<&'static str>,
}

/// One log and its views.
struct Hub {
    log: Arc<Log>,
    encoder: Encoder,
    views: [View; 3],
    readers: AtomicUsize,
    /// The earliest moment of the next flush.
    rested: Mutex<Option<Instant>>,
}

impl Hub {
    fn new(log: Arc<Log>) -> Self {
        let tail = log.watch();
        let view = |audience| View {
            audience,
            ring: Mutex::new(Ring {
                epoch: tail.epoch,
                base: tail.last,
                through: tail.last,
                chunks: VecDeque::new(),
                bytes: 0,
                ended: end_of(&tail),
            }),
            gates: Mutex::default(),
        };
        let encoder = Encoder::new(&log.id);
        Self { views: Audience::ALL.map(view), encoder, log, readers: AtomicUsize::new(0), rested: Mutex::new(None) }
    }

    /// Encodes what came since the last flush, for every audience that somebody reads, and wakes its readers.
    async fn flush(&self, ring_bytes_max: usize) {
        self.log.take_announcement();
        let read = || self.views.iter().filter(|view| !view.is_idle());
        for view in read() {
            self.encode(view, ring_bytes_max);
        }
        self.log.forget(read().map(|view| view.ring.lock().through).min().unwrap_or(Sequence::MAX));
        for view in read() {
            // As they are now: who comes at another gate meanwhile finds the ring as it is and has nothing to miss.
            let gates = view.gates.lock().clone();
            for (n, gate) in gates.iter().enumerate() {
                if n > 0 {
                    tokio::task::yield_now().await;
                    // The committer is a thread: where it shares this core, it would wait for a whole time slice.
                    std::thread::yield_now();
                }
                gate.send_modify(|flushes| *flushes += 1);
            }
        }
    }

    /// Brings a view's ring to the log's tail.
    fn encode(&self, view: &View, ring_bytes_max: usize) {
        let mut ring = view.ring.lock();
        let (tail, rows) = self.log.recent_after(ring.through);
        match (rows, tail.epoch) {
            (Some(rows), Some(epoch)) if ring.epoch.is_none_or(|known| known == epoch) => {
                ring.epoch = tail.epoch;
                if !rows.is_empty() {
                    let chunk = self.encoder.chunk(epoch, view.audience, rows.into_iter().flat_map(Rows), ring.through);
                    ring.push(chunk, ring_bytes_max);
                }
                ring.ended = end_of(&tail);
            }
            // More came between two flushes than the log keeps at hand, or its life began anew: readers read the log.
            _ => ring.restart(&tail),
        }
    }
}

/// How the run has ended, if it has.
fn end_of(tail: &Tail) -> Option<&'static str> {
    let status = tail.summary.run.status;
    status.is_end().then(|| status.as_str())
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.log.unwatch();
    }
}

impl Ring {
    fn push(&mut self, chunk: Chunk, bytes_max: usize) {
        self.through = chunk.last;
        self.bytes += chunk.bytes.len();
        self.chunks.push_back(chunk);
        while self.bytes > bytes_max && self.chunks.len() > 1 {
            let dropped = self.chunks.pop_front().expect("more than one");
            self.bytes -= dropped.bytes.len();
            self.base = dropped.last;
        }
    }

    /// Begins anew at the log's tail.
    fn restart(&mut self, tail: &Tail) {
        self.chunks.clear();
        self.bytes = 0;
        self.epoch = tail.epoch;
        self.base = tail.last;
        self.through = tail.last;
        self.ended = end_of(tail);
    }
}

impl Encoder {
    /// Encodes the frames that `audience` gets of rows after `after`.
    fn chunk(&self, epoch: Epoch, audience: Audience, rows: impl Iterator<Item = Row>, after: Sequence) -> Chunk {
        let mut bytes = Vec::with_capacity(1024);
        let mut marks = Vec::new();
        let mut last = after;
        for row in rows.filter(|row| row.sequence() > after) {
            last = row.sequence();
            if let Some(view) = row.view(audience) {
                marks.push((last, u32::try_from(bytes.len()).expect("a chunk is bounded far below 4 GiB")));
                self.event(&mut bytes, epoch, last, row.prev(audience), view);
            }
        }
        Chunk { after, last, bytes: bytes.into(), marks: marks.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PageKey {
    log: LogId,
    epoch: Epoch,
    audience: Audience,
    after: Sequence,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<PageKey, Chunk> for ByBytes {
    fn weight(&self, _: &PageKey, page: &Chunk) -> u64 {
        page.bytes.len() as u64 + page.marks.len() as u64 * 16 + 256
    }
}

/// The read path of all logs.
pub struct Feed<S> {
    logs: Arc<Logs<S>>,
    hubs: DashMap<LogId, Arc<Hub>>,
    pages: Cache<PageKey, Chunk, ByBytes>,
    sizes: Sizes,
}

impl<S: Store> Feed<S> {
    /// The read path of `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs<S>>, sizes: Sizes) -> Arc<Self> {
        let items = usize::try_from(sizes.pages_bytes_max / (PAGE.bytes as u64)).unwrap_or(usize::MAX).max(16);
        let pages = Cache::with_weighter(items, sizes.pages_bytes_max, ByBytes);
        Arc::new(Self { logs, hubs: DashMap::new(), pages, sizes })
    }

    /// Follows the committer until it stops: answers what waits for a commit, then has the logs flushed that moved.
    pub async fn follow(self: Arc<Self>, mut groups: mpsc::UnboundedReceiver<Group>) {
        let (moved, flushes) = mpsc::unbounded_channel();
        let answering = async {
            while let Some(group) = groups.recv().await {
                for (ack, result) in group.acks {
                    // The producer may be gone; then nobody needs the answer.
                    let _ = ack.send(result);
                }
                for log in group.moved {
                    let _ = moved.send(log);
                }
            }
            drop(moved);
        };
        // A task of its own: an answer never waits for a fan-out.
        let flushing = tokio::spawn(self.clone().flush_as_they_move(flushes));
        answering.await;
        flushing.abort();
    }

    /// Flushes logs as they move: at once where the last flush is a tick ago, else when it will be.
    async fn flush_as_they_move(self: Arc<Self>, mut moved: mpsc::UnboundedReceiver<Arc<Log>>) {
        let mut due: VecDeque<(tokio::time::Instant, Arc<Hub>)> = VecDeque::new();
        loop {
            let next = due.front().map(|(at, _)| *at);
            let log = tokio::select! {
                log = moved.recv() => match log {
                    Some(log) => log,
                    None => return,
                },
                () = tokio::time::sleep_until(next.unwrap_or_else(tokio::time::Instant::now)), if next.is_some() => {
                    // Everything that has fallen due by now goes with it.
                    let until = tokio::time::Instant::now();
                    while due.front().is_some_and(|(at, _)| *at <= until) {
                        let (_, hub) = due.pop_front().expect("just seen");
                        self.flush(&hub).await;
                    }
                    continue;
                }
            };
            let Some(hub) = self.hubs.get(&log.id).map(|hub| hub.clone()) else {
                log.take_announcement();
                continue;
            };
            let rested = hub.rested.lock().filter(|at| *at > Instant::now());
            match rested {
                None => self.flush(&hub).await,
                Some(at) => {
                    // In the order in which they fall due; one that would come earlier goes with the one before it.
                    let at = due.back().map_or(at.into(), |(last, _)| (*last).max(at.into()));
                    due.push_back((at, hub));
                }
            }
        }
    }

    async fn flush(&self, hub: &Hub) {
        let begun = Instant::now();
        hub.flush(self.sizes.ring_bytes_max).await;
        // A fan-out that takes longer than a tick rests too: that time is for what comes in, and the more of it goes out in one
        // write the sooner all is out.
        let rest = (begun.elapsed() / 4).min(self.sizes.tick / 2);
        *hub.rested.lock() = Some((begun + self.sizes.tick).max(Instant::now() + rest));
    }

    /// A reader of a log, which need not have been written yet.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(self: &Arc<Self>, id: &LogId, selection: Selection, from: From) -> Result<Reader<S>, StoreError> {
        let log = self.logs.log(id).await?;
        let hub = self.hubs.entry(id.clone()).or_insert_with(|| Arc::new(Hub::new(log))).clone();
        hub.readers.fetch_add(1, Ordering::Relaxed);
        let view = &hub.views[selection.audience.index()];
        let (moved, is_first) = view.gate();
        let tail = hub.log.tail();
        if is_first {
            view.ring.lock().restart(&tail);
        }
        let (epoch, after) = match from {
            From::Start => (None, Sequence::NONE),
            From::Now => (tail.epoch, tail.last),
            From::After(cursor) => (Some(cursor.epoch), cursor.after),
        };
        let nothing_more = matches!(from, From::After(cursor) if cursor.knows_end
            && tail.epoch == Some(cursor.epoch)
            && tail.summary.run.status.is_end()
            && tail.summary.seen_last[selection.audience.index()] <= cursor.after);
        let filter = (!selection.is_all()).then(|| Filter { selection: selection.clone(), prev: None });
        Ok(Reader {
            feed: self.clone(),
            audience: selection.audience,
            hub,
            moved,
            epoch,
            after,
            filter,
            nothing_more,
            done: false,
        })
    }

    /// Rows of a log after `after`, as many as `limit` allows; empty at the tail.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn rows(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Row>, StoreError> {
        Ok(rows_after(self.logs.read(id, epoch, after, limit).await?, after).collect())
    }

    /// A page of older frames, shared by all who ask while it is cached.
    async fn page(&self, hub: &Hub, epoch: Epoch, audience: Audience, after: Sequence) -> Result<Chunk, StoreError> {
        let key = PageKey { log: hub.log.id.clone(), epoch, audience, after };
        let load = async || {
            let runs = self.logs.read(&hub.log.id, epoch, after, PAGE).await?;
            Ok(hub.encoder.chunk(epoch, audience, runs.into_iter().flat_map(Rows), after))
        };
        match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => Ok(page),
            Err(guard) => {
                let page = load().await?;
                // A page that stops short of the limit ends at the tail, and will be longer the next time.
                if page.bytes.len() >= PAGE.bytes / 2 || page.marks.len() >= PAGE.rows / 2 {
                    // Somebody may have removed the placeholder; then it is only not cached.
                    let _ = guard.insert(page.clone());
                }
                Ok(page)
            }
        }
    }

    /// Lets go of everything of a log that was erased. When this returns, its readers get nothing of it any more: they wait for
    /// its new life.
    pub async fn forget(&self, id: &LogId) {
        self.pages.retain(|page, _| page.log != *id);
        let Some(hub) = self.hubs.get(id).map(|hub| hub.clone()) else { return };
        let tail = hub.log.tail();
        for view in &hub.views {
            view.ring.lock().restart(&tail);
        }
        self.flush(&hub).await;
    }

    /// Forgets views that nobody reads.
    pub fn sweep(&self) {
        self.hubs.retain(|_, hub| Arc::strong_count(hub) > 1 || hub.readers.load(Ordering::Relaxed) > 0);
    }

    /// How many readers there are.
    #[must_use]
    pub fn reader_count(&self) -> usize {
        self.hubs.iter().map(|hub| hub.readers.load(Ordering::Relaxed)).sum()
    }
}

/// What only part of a view's readers want: encoded for this reader alone.
struct Filter {
    selection: Selection,
    /// The last sequence before this reader's place that the selection takes; `None` until it was looked up.
    prev: Option<Sequence>,
}

/// One reader of one log.
pub struct Reader<S> {
    feed: Arc<Feed<S>>,
    hub: Arc<Hub>,
    audience: Audience,
    moved: watch::Receiver<u64>,
    epoch: Option<Epoch>,
    after: Sequence,
    filter: Option<Filter>,
    nothing_more: bool,
    done: bool,
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Step {
    Frames(Bytes),
    Last(Bytes),
    Page(Epoch, Sequence),
    Wait,
}

impl<S: Store> Reader<S> {
    /// Whether this reader knows that the run has ended and nothing that it may see came after: it need not connect again.
    #[must_use]
    pub const fn has_seen_the_end(&self) -> bool {
        self.nothing_more
    }

    /// The next frames, as soon as there are any; `None` after the run's end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.done {
            return Ok(None);
        }
        loop {
            self.moved.mark_unchanged();
            match self.step() {
                Step::Frames(bytes) => return Ok(Some(bytes)),
                Step::Last(bytes) => {
                    self.done = true;
                    return Ok(Some(bytes));
                }
                Step::Page(epoch, through) => {
                    if let Some(bytes) = self.catch_up(epoch, through).await? {
                        return Ok(Some(bytes));
                    }
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

    /// Gives back what was handed out after `cursor`, to be had again; false if that is not possible any more.
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        if self.epoch != Some(cursor.epoch) || cursor.after > self.after || cursor.knows_end {
            return false;
        }
        self.after = cursor.after;
        self.done = false;
        if let Some(filter) = &mut self.filter {
            filter.prev = Some(cursor.after);
        }
        true
    }

    /// What can be had without waiting.
    fn step(&mut self) -> Step {
        let hub = self.hub.clone();
        let ring = hub.views[self.audience.index()].ring.lock();
        let Some(epoch) = ring.epoch else { return Step::Wait };
        match self.epoch {
            Some(known) if known != epoch => return Step::Frames(self.reset(epoch, "epoch")),
            Some(_) if self.after > ring.through && self.after > hub.log.tail().last => {
                return Step::Frames(self.reset(epoch, "expired"));
            }
            _ => self.epoch = Some(epoch),
        }
        if self.after >= ring.through {
            return match ring.ended {
                // Only where nothing was committed since: a later start is on its way to the ring. A page may have taken this
                // reader past what the ring knows; then what the ring says of the end is old, and a flush is due.
                Some(status) if self.after == ring.through && hub.log.tail().last <= self.after => {
                    Step::Last(hub.encoder.end(epoch, self.after, status).into())
                }
                _ => Step::Wait,
            };
        }
        if self.after < ring.base || self.filter.is_some() {
            return Step::Page(epoch, ring.through);
        }
        // Nearly every reader wants what came last.
        let from = match ring.chunks.back() {
            Some(newest) if newest.after <= self.after => ring.chunks.len() - 1,
            _ => ring.chunks.partition_point(|chunk| chunk.last <= self.after),
        };
        for chunk in ring.chunks.range(from..) {
            let frames = chunk.after(self.after);
            self.after = chunk.last;
            if let Some(frames) = frames {
                return Step::Frames(frames);
            }
        }
        Step::Wait
    }

    fn reset(&mut self, epoch: Epoch, reason: &str) -> Bytes {
        self.epoch = Some(epoch);
        self.after = Sequence::NONE;
        if let Some(filter) = &mut self.filter {
            filter.prev = None;
        }
        self.hub.encoder.reset(epoch, reason).into()
    }

    /// Reads the log from where this reader stands; `None` if there was nothing for it.
    async fn catch_up(&mut self, epoch: Epoch, through: Sequence) -> Result<Option<Bytes>, StoreError> {
        let chunk = match &self.filter {
            None => self.feed.page(&self.hub, epoch, self.audience, self.after).await?,
            Some(filter) => {
                let mut prev = match filter.prev {
                    Some(prev) => prev,
                    None => self.last_before(epoch, &filter.selection).await?,
                };
                let rows = match self.hub.log.recent_after(self.after) {
                    (tail, Some(runs)) if tail.epoch == Some(epoch) => rows_after(runs, self.after).collect(),
                    _ => self.feed.rows(&self.hub.log.id, epoch, self.after, PAGE).await?,
                };
                let (mut bytes, mut last) = (Vec::new(), self.after);
                for row in rows {
                    last = row.sequence();
                    if let Some(view) = filter.selection.of(&row) {
                        self.hub.encoder.event(&mut bytes, epoch, last, prev, view);
                        prev = last;
                    }
                }
                self.filter.as_mut().expect("matched above").prev = Some(prev);
                Chunk { after: self.after, last, bytes: bytes.into(), marks: Box::default() }
            }
        };
        if chunk.last == self.after {
            // Nothing where the ring says there is something: the log was erased under this reader. Its new life, or its
            // end, comes as a flush.
            tracing::debug!(log = %self.hub.log.id, after = %self.after, through = %through, "nothing to read where there was");
            if self.moved.changed().await.is_err() {
                self.done = true;
            }
            return Ok(None);
        }
        self.after = chunk.last;
        Ok((!chunk.bytes.is_empty()).then_some(chunk.bytes))
    }

    /// The last row up to this reader's place that the selection takes, looked for backwards.
    async fn last_before(&self, epoch: Epoch, selection: &Selection) -> Result<Sequence, StoreError> {
        let mut end = self.after;
        while end > Sequence::NONE {
            let after = Sequence(end.0.saturating_sub(PAGE.rows as u64));
            let mut from = after;
            let mut found = Sequence::NONE;
            while from < end {
                let rows = self.feed.rows(&self.hub.log.id, epoch, from, PAGE).await?;
                let Some(last) = rows.last().map(Row::sequence) else { break };
                let taken = rows.iter().filter(|row| row.sequence() <= end && selection.of(row).is_some()).map(Row::sequence);
                found = taken.last().unwrap_or(found);
                from = last;
            }
            if found > Sequence::NONE {
                return Ok(found);
            }
            end = after;
        }
        Ok(Sequence::NONE)
    }
}
