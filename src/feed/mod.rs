//! The read path: what a log's readers get, in one loop.
//!
//! A reader is a number: the sequence after which it wants more. Per log, audience and kind of frame there is one [`View`],
//! which encodes each frame once and freezes what came since the last flush into one chunk that all readers share. Catching
//! up, following and recovering from slowness are the same loop at different numbers: what the view's bounded ring still holds
//! is taken from there; of events, anything older is read from the log, of activities it is made up for by snapshots of what
//! has changed since. A reader that stalls costs its number and nothing else.
//!
//! A flush is immediate when the view has been quiet for a tick, else it waits for the shared tick: a first token is not
//! delayed, and a burst costs each reader one socket write a tick. Nothing here can slow the write path; it only follows tails.

pub mod folds;
pub mod merged;
pub mod reader;
mod ring;
pub mod several;

#[cfg(test)]
mod tests;

use crate::encode::native::Encoder;
use crate::log::row::{Row, Rows};
use crate::log::run::{Compacted, Group, Log, Logs, Tail, rows_after};
use crate::log::{Limit, LogId, Store, StoreError};
use crate::meter::{Counter, Histogram};
use crate::model::{AgentId, Audience, Cursor, Epoch, Sequence};
use crate::projection;
use crate::projection::stage::Activity;
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use reader::{Frames, Reader};
use ring::{Chunk, Ring, framed};
use serde::Deserialize;
use several::{Members, Several};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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

/// What the read path has done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Flushes, each by how long its first envelope had been committed when all of its readers were told.
    pub flushes: Histogram,
    /// Frames that flushes encoded: once for all readers of an audience and kind.
    pub frames: Counter,
    /// Times that a reader wanted what its ring does not hold any more: of events it read the log, of activities it was brought
    /// forward by snapshots.
    pub ring_misses: Counter,
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
        self.types.is_empty() && self.is_all_activities()
    }

    fn is_all_activities(&self) -> bool {
        self.surfaces.is_empty() && self.agent.is_none()
    }

    /// Whether the selection takes an activity: by its surface and agent.
    #[must_use]
    pub fn takes_activity(&self, activity: &Activity) -> bool {
        self.has(activity.surface.as_str(), activity.agent.as_ref().map(AgentId::as_str))
    }

    /// What is to be chosen among activities; `None` where all are taken.
    fn among_activities(&self) -> Option<&Self> {
        (!self.is_all_activities()).then_some(self)
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
        is_among(&self.types, &of.r#type) && self.has(&of.surface, of.agent_id.as_deref())
    }

    /// Whether it takes what is of this surface and agent.
    fn has(&self, surface: &str, agent: Option<&str>) -> bool {
        is_among(&self.surfaces, surface) && self.agent.as_ref().is_none_or(|wanted| agent == Some(wanted))
    }
}

/// Whether a list has a value; one that says nothing has all.
fn is_among(list: &[Box<str>], value: &str) -> bool {
    list.is_empty() || list.iter().any(|name| **name == *value)
}

/// What a reader wants of a log, and in what shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub selection: Selection,
    pub frames: Frames,
    /// Activities from the place where the reader begins delta by delta, instead of as snapshots.
    pub replay: bool,
}

/// A reader of one log or of several.
pub enum Reading<S> {
    One(Reader<S>),
    Several(Box<Several<S>>),
}

impl<S: Store> Reading<S> {
    /// Whether this reader need not connect again; see [`Reader::has_seen_the_end`]. Of several logs there may always be more.
    #[must_use]
    pub const fn has_seen_the_end(&self) -> bool {
        matches!(self, Self::One(reader) if reader.has_seen_the_end())
    }

    /// The next frames, as soon as there are any; `None` after the end of the only run. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self {
            Self::One(reader) => reader.next().await,
            Self::Several(reader) => reader.next().await.map(Some),
        }
    }

    /// Whether nothing follows what was handed out; see [`Reader::is_over`].
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::One(reader) if reader.is_over())
    }

    /// The frame that tells why there will be no more.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> Bytes {
        match self {
            Self::One(reader) => reader.error(problem),
            Self::Several(reader) => reader.error(problem),
        }
    }

    /// Has the only run's activities come once more; see [`Reader::begin_again`].
    pub fn begin_again(&mut self) {
        if let Self::One(reader) = self {
            reader.begin_again();
        }
    }

    /// Gives back what was handed out after `cursor`; see [`Reader::rewind`].
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        match self {
            Self::One(reader) => reader.rewind(cursor),
            // What was handed out is one log's frames of one round, and stays with who has it.
            Self::Several(_) => false,
        }
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Now,
    After(Cursor),
}

/// One log as one audience gets it, in one kind of frames, for all of its readers.
struct View {
    audience: Audience,
    frames: Frames,
    ring: Mutex<Ring>,
    /// Held by the reader that brings up the activities; the others wait for it.
    warming: tokio::sync::Mutex<()>,
    /// What the view's readers wait for, so many at each: a flush opens one after the other.
    gates: Mutex<Vec<Gate>>,
}

/// Counts flushes; readers wait for it to move.
type Gate = Arc<watch::Sender<u64>>;

/// Envelopes in one flush from which on a log is taken for one that is written as fast as it goes.
const FLAT_OUT: u64 = 8;

/// Readers at one gate. Between gates whatever else came gets its turn, so that a thousand writes do not stand between a
/// producer and its answer.
const GATE_READERS: usize = 16;

impl View {
    /// A place to wait at, and the log's tail. The first reader to come brings the ring there, under the lock under which it
    /// comes: one that comes next finds no ring of before.
    fn join(&self, log: &Log) -> (watch::Receiver<u64>, Tail) {
        let mut gates = self.gates.lock();
        gates.retain(|gate| gate.receiver_count() > 0);
        let tail = if gates.is_empty() { self.restart(log) } else { log.tail() };
        if let Some(gate) = gates.iter().find(|gate| gate.receiver_count() < GATE_READERS) {
            return (gate.subscribe(), tail);
        }
        let gate = Gate::default();
        let place = gate.subscribe();
        gates.push(gate);
        (place, tail)
    }

    /// Begins anew at the log's tail, which is looked up meanwhile: one that was looked up before may have been erased since.
    fn restart(&self, log: &Log) -> Tail {
        let mut ring = self.ring.lock();
        let tail = log.tail();
        ring.restart(&tail);
        tail
    }

    /// Whether nobody reads it. Then nothing is done for it: the first reader to come brings it up to date.
    fn is_idle(&self) -> bool {
        self.gates.lock().iter().all(|gate| gate.receiver_count() == 0)
    }
}

/// One log and its views.
struct Hub {
    log: Arc<Log>,
    encoder: Encoder,
    /// Events and activities, for each audience, of those that were ever read.
    views: [OnceLock<Box<View>>; 6],
    readers: AtomicUsize,
    /// The earliest moment of the next flush.
    rested: Mutex<Option<Instant>>,
}

impl Hub {
    fn new(log: Arc<Log>) -> Self {
        log.watch();
        let encoder = Encoder::new(&log.id);
        Self { views: Default::default(), encoder, log, readers: AtomicUsize::new(0), rested: Mutex::new(None) }
    }

    fn view(&self, audience: Audience, frames: Frames) -> &View {
        let at = audience.index() + if frames == Frames::Events { 0 } else { Audience::ALL.len() };
        self.views[at].get_or_init(|| {
            let ring = Mutex::new(Ring::new(&self.log.tail()));
            Box::new(View { audience, frames, ring, warming: tokio::sync::Mutex::default(), gates: Mutex::default() })
        })
    }

    /// A view's ring, without what is not in the log any more.
    fn ring<'v>(&self, view: &'v View) -> MutexGuard<'v, Ring> {
        let mut ring = view.ring.lock();
        if ring.compacted != self.log.compacted() {
            ring.forget_past(&self.log.tail());
        }
        ring
    }

    /// The views that somebody reads.
    fn read(&self) -> impl Iterator<Item = &View> {
        self.views.iter().filter_map(|view| view.get()).map(|view| &**view).filter(|view| !view.is_idle())
    }

    /// Encodes what came since the last flush, for every audience that somebody reads, and wakes its readers. Returns how many
    /// envelopes came.
    async fn flush(&self, ring_bytes_max: usize, counts: &Counts) -> u64 {
        let committed = self.log.take_announcement();
        let mut flushed = 0;
        for view in self.read() {
            let before = view.ring.lock().through;
            counts.frames.add(self.encode(view, ring_bytes_max) as u64);
            flushed = flushed.max(view.ring.lock().through.0.saturating_sub(before.0));
        }
        self.log.forget(self.read().map(|view| view.ring.lock().through).min().unwrap_or(Sequence::MAX));
        for view in self.read() {
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
        if let Some(committed) = committed.filter(|_| flushed > 0) {
            counts.flushes.observe(committed.elapsed());
        }
        flushed
    }

    /// Brings a view's ring to the log's tail; how many frames that took.
    fn encode(&self, view: &View, ring_bytes_max: usize) -> usize {
        let mut ring = self.ring(view);
        let (tail, rows) = self.log.recent_after(ring.through);
        match (rows, tail.epoch) {
            (Some(rows), Some(epoch)) if ring.epoch.is_none_or(|known| known == epoch) => {
                ring.epoch = tail.epoch;
                let rows = rows.into_iter().flat_map(Rows);
                let chunk = match (view.frames, &mut ring.fold) {
                    (Frames::Events, _) => Chunk::events(&self.encoder, epoch, view.audience, rows, ring.through),
                    (Frames::Activities, Some(fold)) => Chunk::activities(&self.encoder, epoch, fold, rows),
                    // Nobody has brought it up yet; whoever does begins at the tail.
                    (Frames::Activities, None) => {
                        ring.restart(&tail);
                        return 0;
                    }
                };
                let frames = chunk.frame_count();
                if chunk.last > chunk.after {
                    ring.push(chunk, ring_bytes_max);
                }
                ring.ended = tail.end();
                return frames;
            }
            // Nobody has written it, and the ring knows that: what it has of activities stays, or whoever brings them up would do
            // so without end.
            (_, None) if ring.epoch.is_none() => {}
            // More came between two flushes than the log keeps at hand, or its life ended or began anew: readers read the log.
            _ => ring.restart(&tail),
        }
        0
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.log.unwatch();
    }
}

/// A page of a log's past, as frames of activities.
struct Replayed {
    frames: Option<Bytes>,
    last: Sequence,
    past: Box<Past>,
}

/// The activities at a reader's place in a log's past.
struct Past {
    view: projection::View,
    /// How often the log was compacted when they were made: what is left of it goes on from no others.
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
struct ByBytes;

impl Weighter<PageKey, Chunk> for ByBytes {
    fn weight(&self, _: &PageKey, page: &Chunk) -> u64 {
        page.weight() as u64 + 256
    }
}

/// What `find` finds of the readers of a log that has moved. Where there are none the log is announced anew from here on, and then
/// they are looked for again: a reader that came in between may have missed a commit that was not announced.
fn read_or_let_go<T>(log: &Log, find: impl Fn() -> Option<T>) -> Option<T> {
    find().or_else(|| {
        log.take_announcement();
        find()
    })
}

/// The read path of all logs.
pub struct Feed<S> {
    logs: Arc<Logs<S>>,
    hubs: DashMap<LogId, Arc<Hub>>,
    pages: Cache<PageKey, Chunk, ByBytes>,
    sizes: Sizes,
    counts: Counts,
}

impl<S: Store> Feed<S> {
    /// The read path of `logs`.
    #[must_use]
    pub fn new(logs: Arc<Logs<S>>, sizes: Sizes) -> Arc<Self> {
        let items = usize::try_from(sizes.pages_bytes_max / (PAGE.bytes as u64)).unwrap_or(usize::MAX).max(16);
        let pages = Cache::with_weighter(items, sizes.pages_bytes_max, ByBytes);
        Arc::new(Self { logs, hubs: DashMap::new(), pages, sizes, counts: Counts::default() })
    }

    /// What follows the committer until it stops, each a task of its own, by its name: the first answers what waits for a
    /// commit, and no answer waits for a fan-out; the second flushes the logs that moved; the third makes checkpoints of those that
    /// have grown.
    #[must_use]
    pub fn tasks(self: &Arc<Self>, mut groups: mpsc::UnboundedReceiver<Group>) -> [(&'static str, BoxFuture<'static, ()>); 3] {
        let (moved, flushes) = mpsc::unbounded_channel();
        let (grown, checkpoints) = mpsc::unbounded_channel();
        let answering = async move {
            while let Some(group) = groups.recv().await {
                for (ack, result) in group.acks {
                    // The producer may be gone; then nobody needs the answer.
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
        let checkpointing = folds::checkpoint(self.logs.clone(), checkpoints);
        [
            ("follower", answering.boxed()),
            ("flusher", self.clone().flush_as_they_move(flushes).boxed()),
            ("checkpointer", checkpointing.boxed()),
        ]
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
            let Some(hub) = read_or_let_go(&log, || self.hubs.get(&log.id).map(|hub| hub.clone())) else { continue };
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
        let flushed = hub.flush(self.sizes.ring_bytes_max, &self.counts).await;
        // A fan-out that takes longer than a tick rests too: that time is for what comes in, and the more of it goes out in one
        // write the sooner all is out. Where many come between two flushes it rests longer: nobody is served sooner by more writes.
        let took = begun.elapsed();
        let rest = if flushed >= FLAT_OUT { took.min(self.sizes.tick * 2) } else { (took / 4).min(self.sizes.tick / 2) };
        *hub.rested.lock() = Some((begun + self.sizes.tick).max(Instant::now() + rest));
    }

    /// A reader of a log, which need not have been written yet.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(self: &Arc<Self>, id: &LogId, wanted: Wanted, from: From) -> Result<Reader<S>, StoreError> {
        let (hub, moved, tail) = self.place(id, &wanted).await?;
        Ok(Reader::new(self.clone(), hub, wanted, from, moved, &tail))
    }

    /// A reader of several logs, which need not have been written yet.
    #[must_use]
    pub fn read_several(self: &Arc<Self>, members: Members<S>, wanted: Wanted, from: From) -> Several<S> {
        Several::new(self.clone(), wanted, members, from)
    }

    /// A place among a log's readers, and the log's tail when that was taken.
    async fn place(&self, id: &LogId, wanted: &Wanted) -> Result<(Arc<Hub>, watch::Receiver<u64>, Tail), StoreError> {
        let log = self.logs.log(id).await?;
        let hub = self.hubs.entry(id.clone()).or_insert_with(|| Arc::new(Hub::new(log))).clone();
        hub.readers.fetch_add(1, Ordering::Relaxed);
        let (moved, tail) = hub.view(wanted.selection.audience, wanted.frames).join(&hub.log);
        Ok((hub, moved, tail))
    }

    /// Brings up a view's activities, as of the log's tail, unless they are.
    async fn warm(&self, hub: &Hub, view: &View) -> Result<(), StoreError> {
        let _alone = view.warming.lock().await;
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
            let (tail, rows) = hub.log.recent_after(fold.through);
            if let (Some(rows), true) = (rows, reading(&tail) == of && fold.through <= tail.last) {
                for row in rows_after(rows, fold.through) {
                    fold.fold(row.sequence(), row.view(view.audience));
                }
                ring.restart(&tail);
                ring.fold = Some(Box::new(fold));
                return Ok(());
            }
            if reading(&tail) != of {
                // Written for the first time, or anew, or compacted meanwhile.
                (fold, of) = (projection::View::new(&hub.log.id, view.audience), None);
            }
            // Else more came meanwhile than the log keeps at hand: it is in the store.
        }
    }

    /// A page of a log's past after `after`, delta by delta. `past` is the activities there, if the reader has them still. `None`
    /// when the reader's are not what the log comes to there any more: some of it was compacted away since.
    async fn replay(
        &self,
        hub: &Hub,
        epoch: Epoch,
        selection: &Selection,
        after: Sequence,
        past: Option<Box<Past>>,
    ) -> Result<Option<Replayed>, StoreError> {
        let Compacted { times: compacted, through, .. } = hub.log.tail().summary.compacted;
        let mut past = match past.filter(|past| past.view.through == after && past.compacted == compacted) {
            Some(past) => past,
            None if after > Sequence::NONE && after < through => return Ok(None),
            None => {
                let view = folds::at(&self.logs, &hub.log.id, epoch, selection.audience, after).await?;
                Box::new(Past { view, compacted })
            }
        };
        let chosen = selection.among_activities();
        let mut prev = framed(&past.view, chosen);
        let rows = self.rows(&hub.log.id, epoch, after, PAGE).await?;
        if hub.log.compacted() != compacted {
            return Ok(None);
        }
        let chunk = Chunk::activities(&hub.encoder, epoch, &mut past.view, rows.into_iter());
        let frames = match chosen {
            None => chunk.after(after),
            Some(chosen) => chunk.chosen_after(after, epoch, chosen, &mut prev),
        };
        Ok(Some(Replayed { frames, last: chunk.last, past }))
    }

    /// A log's activities for `audience`, as of `at` or its tail; `None` for a log that was never written.
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

    /// Rows of a log after `after`, as many as `limit` allows; empty at the tail only. What was compacted away is not among them.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn rows(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Row>, StoreError> {
        Ok(rows_after(self.logs.read(id, epoch, after, limit).await?, after).collect())
    }

    /// The last row up to `end` that the selection takes, looked for backwards.
    async fn last_taken(
        &self,
        id: &LogId,
        epoch: Epoch,
        selection: &Selection,
        mut end: Sequence,
    ) -> Result<Sequence, StoreError> {
        while end > Sequence::NONE {
            let after = Sequence(end.0.saturating_sub(PAGE.rows as u64));
            let mut from = after;
            let (mut found, mut is_hole) = (Sequence::NONE, true);
            while from < end {
                let rows = self.rows(id, epoch, from, PAGE).await?;
                let Some(last) = rows.last().map(Row::sequence) else { break };
                let taken = rows.iter().filter(|row| row.sequence() <= end && selection.of(row).is_some()).map(Row::sequence);
                found = taken.last().unwrap_or(found);
                is_hole &= rows[0].sequence() > end;
                from = last;
            }
            if found > Sequence::NONE {
                return Ok(found);
            }
            end = if is_hole { self.left_before(id, epoch, after.next()).await? } else { after };
        }
        Ok(Sequence::NONE)
    }

    /// The last sequence before `end` that the log has; looked for in leaps, for a hole may be as long as a log.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn left_before(&self, id: &LogId, epoch: Epoch, end: Sequence) -> Result<Sequence, StoreError> {
        // It lies at or after `from` and before `to`.
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

    /// What the next event's `prev` is for a reader whose place is `after`: the last row up to there that the selection takes.
    /// Where that very row was compacted away it is what the reader saw last all the same.
    async fn prev_at(&self, id: &LogId, epoch: Epoch, selection: &Selection, after: Sequence) -> Result<Sequence, StoreError> {
        let through = self.logs.log(id).await?.tail().summary.compacted.through;
        if after > Sequence::NONE && after < through {
            let rows = self.rows(id, epoch, Sequence(after.0 - 1), Limit { rows: 1, bytes: 0 }).await?;
            if rows.first().is_none_or(|row| row.sequence() != after) {
                return Ok(after);
            }
        }
        self.last_taken(id, epoch, selection, after).await
    }

    /// A page of older frames, shared by all who ask while it is cached.
    async fn page(&self, hub: &Hub, epoch: Epoch, audience: Audience, after: Sequence) -> Result<Chunk, StoreError> {
        let key = PageKey { log: hub.log.id.clone(), epoch, compacted: hub.log.compacted(), audience, after };
        let load = async || {
            let runs = self.logs.read(&hub.log.id, epoch, after, PAGE).await?;
            Ok(Chunk::events(&hub.encoder, epoch, audience, runs.into_iter().flat_map(Rows), after))
        };
        match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => Ok(page),
            Err(guard) => {
                let page = load().await?;
                // A page that stops short of the limit ends at the tail, and will be longer the next time.
                if page.bytes.len() >= PAGE.bytes / 2 || page.frame_count() >= PAGE.rows / 2 {
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
        for view in hub.views.iter().filter_map(OnceLock::get) {
            view.restart(&hub.log);
        }
        self.flush(&hub).await;
    }

    /// Lets go of what was encoded of a log's past before it was rewritten, and makes the checkpoints that went with it.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn renew(&self, id: &LogId) -> Result<(), StoreError> {
        let log = self.logs.log(id).await?;
        let compacted = log.compacted();
        self.pages.retain(|page, _| page.log != *id || page.compacted == compacted);
        if let Some(hub) = self.hubs.get(id).map(|hub| hub.clone()) {
            for view in hub.views.iter().filter_map(OnceLock::get) {
                drop(hub.ring(view));
            }
        }
        let logs = self.logs.clone();
        self.logs.work(move |store| folds::make(store, &log, &logs.counts().checkpoints)).await.map(|_| ())
    }

    /// Forgets views that nobody reads.
    pub fn sweep(&self) {
        self.hubs.retain(|_, hub| {
            for view in hub.views.iter().filter_map(OnceLock::get).filter(|view| view.is_idle()) {
                view.ring.lock().fold = None;
            }
            Arc::strong_count(hub) > 1 || hub.readers.load(Ordering::Relaxed) > 0
        });
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How long the oldest envelope has been committed that somebody reads and was not told of yet; nothing while there is none.
    #[must_use]
    pub fn lag(&self) -> Duration {
        let waiting = self.hubs.iter().filter(|hub| hub.readers.load(Ordering::Relaxed) > 0);
        let oldest = waiting.filter_map(|hub| hub.log.announced_at()).min();
        oldest.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// What the cache of older frames holds, in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// How many readers there are, of each log once.
    #[must_use]
    pub fn reader_count(&self) -> usize {
        self.hubs.iter().map(|hub| hub.readers.load(Ordering::Relaxed)).sum()
    }
}
