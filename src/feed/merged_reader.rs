//! A reader of several logs on one stream: each log in its own order, all in commit order.
//!
//! Its position is one number: the store's commit position, and the row within the append there. So it can be
//! interrupted anywhere and resume. Every event frame carries that position. The End of a run follows its last event,
//! with a later cursor of the same position: a reader that resumes at the event's cursor still gets the End. Of
//! activities, the last frame of each round has a cursor, and the Ends of the round precede it. A round covers
//! everything committed when it began. The reader makes its frames block by block, as its consumer takes them: it holds
//! two blocks and a page of a hydration or a flush of one log. A log with more than that waits for the next round.

mod events;

use super::blocks::Blocks;
use super::fan_out::Listeners;
use super::hub::Hub;
use super::log_set::LogSet;
use super::merged::{ALL_ROWS, order_position, sequence_at};
use super::ring::{HYDRATION_BYTES_MAX, Hydrated, HydrationPass, last_framed_of};
use super::{Feed, Frames, ReadRequest, ReplayState, StartAt, TryNext};
use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::encode::native::Encoder;
use crate::environment::sabotage;
use crate::log::commit::{Log, Logs, Moves};
use crate::log::{LogId, Store, StoreError};
use crate::model::{Audience, Cursor, Epoch, Sequence};
use slab::Slab;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// The position of a reader of several logs that has everything committed so far.
#[must_use]
pub fn now(logs: &Logs) -> Sequence {
    order_position(logs.position(), ALL_ROWS)
}

/// The most logs whose activities are read together.
pub(super) const FOLDS_AT_ONCE: usize = 64;

/// The most logs of one reader: each log costs memory.
pub(super) const MEMBERS_MAX: usize = 16_384;

/// One log of several.
struct MemberLog {
    hub: Arc<Hub>,
    audience: Audience,
    frames: Frames,
    moves: Arc<Moves>,
    epoch: Option<Epoch>,
    after: Sequence,
    is_hydrated: bool,
    /// The progress of the hydration.
    pass: Option<Box<HydrationPass>>,
    /// The last sequence that the reader's filter accepted; `None` until it is known.
    prev: Option<Sequence>,
    /// The log's activities at the reader's position, during a replay.
    replayed: Option<Box<ReplayState>>,
    /// Whether deltas lead on from the reader's activities; otherwise it needs snapshots.
    can_replay: bool,
    /// Whether the reader has not received the log's end.
    ///
    /// It read the log from its start, or the log has moved since.
    end_pending: bool,
}

/// The end of a run that the reader has read as a whole.
struct RunEnd<'m> {
    encoder: &'m Encoder,
    epoch: Epoch,
    sequence: Sequence,
    status: &'static str,
}

impl MemberLog {
    /// Calls `push` if the reader has all of a run that has ended, and lacks only its End. The stream stays open.
    fn push_end(&mut self, push: impl FnOnce(RunEnd<'_>)) {
        if sabotage::is(35) || !self.end_pending || !(self.is_hydrated || self.frames == Frames::Events) {
            return;
        }
        let tail = self.hub.log.tail();
        if let (Some(status), Some(epoch)) = (tail.end(), tail.epoch)
            && (self.epoch, self.after) == (Some(epoch), tail.last)
        {
            self.end_pending = false;
            push(RunEnd { encoder: &self.hub.encoder, epoch, sequence: self.after, status });
        }
    }
}

impl Drop for MemberLog {
    fn drop(&mut self) {
        self.hub.log.unfollow(&self.moves);
        self.hub.view(self.audience, self.frames).listeners().leave_set(&self.moves);
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Step {
    Frames(EncodedFrames),
    Load(Load),
    Wait,
    /// One of the logs was erased, and its id is refused.
    Erased(LogId),
}

/// What the reader needs from the store before its next frames.
enum Load {
    /// The logs that are new to the set.
    Logs,
    /// Where events of these members are.
    Members(Vec<events::Missing>),
    /// The next events of a member that is first in the queue.
    Page(usize, Epoch),
    /// The folds of the members that are next in the round.
    Folds,
    /// The next frames of a member from its log.
    Replay(usize, Epoch),
}

/// A reader of several logs.
pub struct MergedReader {
    feed: Arc<Feed>,
    request: ReadRequest,
    membership: LogSet,
    members: Slab<MemberLog>,
    keys: HashMap<LogId, usize>,
    /// The members that may have more for this reader. It looks at no other.
    active: Vec<usize>,
    moves: Arc<Moves>,
    /// The epochs of erased logs: for a log with another epoch the reader gets a Reset.
    erased: HashMap<LogId, Epoch>,
    /// The position at which new members start during the first join.
    start: StartAt,
    /// The position of the last event.
    at: Sequence,
    /// The position of a round that has begun, and, of activities, the number of active members that had their turn.
    round: Option<(u64, usize)>,
    /// The members that have more events.
    queue: events::Queue,
    /// The members of a round of activities that have more: further rounds continue with them.
    behind: Vec<usize>,
    /// The frames for the consumer. The open block waits for the end of a round of activities, to get its cursor.
    ready: Blocks,
    is_joined: bool,
    /// Whether new logs may have to be joined; stays set until a join completes.
    join_pending: bool,
}

impl MergedReader {
    /// Creates a reader of these logs.
    #[must_use]
    pub fn new(feed: Arc<Feed>, request: ReadRequest, membership: LogSet, start: StartAt) -> Self {
        let moves = membership.moves();
        let at = match start {
            StartAt::After(cursor) => cursor.after,
            StartAt::Start | StartAt::Now => Sequence::NONE,
        };
        Self {
            feed,
            request,
            membership,
            members: Slab::new(),
            keys: HashMap::new(),
            active: Vec::new(),
            moves,
            erased: HashMap::new(),
            start,
            at,
            round: None,
            queue: events::Queue::default(),
            behind: Vec::new(),
            ready: Blocks::new(),
            is_joined: false,
            join_pending: true,
        }
    }

    fn store_epoch(&self) -> Epoch {
        self.feed.logs.store_epoch()
    }

    /// The Error frame that ends the stream.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> EncodedFrames {
        // The error belongs to no single log. It names the first, because every frame names one.
        match (self.members.iter().next(), &self.membership) {
            (Some((_, member)), _) => member.hub.encoder.error(member.after, problem),
            (None, logs) => Encoder::new(&logs.first()).error(Sequence::NONE, problem),
        }
    }

    /// Waits for the next frames. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<EncodedFrames, StoreError> {
        loop {
            match self.advance().await? {
                TryNext::Frames(frames) => return Ok(frames),
                TryNext::Idle | TryNext::Busy => self.moves.woken().await,
            }
        }
    }

    /// The next frames, or [`TryNext::Idle`]. It reads the store, but waits for no commit.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn advance(&mut self) -> Result<TryNext, StoreError> {
        loop {
            match self.step() {
                Step::Frames(frames) => return Ok(TryNext::Frames(frames)),
                Step::Wait => return Ok(TryNext::Idle),
                Step::Erased(log) => return Err(StoreError::Erased { log: log.to_string() }),
                // Boxed: most readers wait, and should not reserve space for this.
                Step::Load(load) => Box::pin(self.load(load)).await?,
            }
        }
    }

    /// The next frames, if the reader has them without reading the store.
    pub fn try_next(&mut self) -> TryNext {
        self.moves.begin_look();
        match self.step() {
            Step::Frames(frames) => TryNext::Frames(frames),
            Step::Wait => TryNext::Idle,
            Step::Load(_) | Step::Erased(_) => TryNext::Busy,
        }
    }

    /// Leaves the wakes of this reader to a task that calls [`Self::try_next`] once now, and whenever it is woken.
    pub fn follow(&self, waker: &Waker) {
        self.moves.set_waker(waker);
    }

    /// The next step without waiting.
    fn step(&mut self) -> Step {
        loop {
            // Members that are behind, and new ones, have more before the cursor.
            let is_in_round = self.round.is_some() || !self.active.is_empty();
            let waits_for_cursor = is_in_round && self.request.frames == Frames::Activities;
            if let Some(frames) = if waits_for_cursor { self.ready.next_finished() } else { self.ready.next() } {
                return Step::Frames(frames);
            }
            if self.round.is_none() {
                // First: what was committed up to here has moved its members, and changed the set of logs.
                let now = self.feed.logs.position();
                self.join_pending |= self.moves.has_changed();
                if self.join_pending {
                    return Step::Load(Load::Logs);
                }
                self.active.extend(self.moves.take());
                self.active.sort_unstable();
                self.active.dedup();
                self.active.retain(|key| self.members.contains(*key));
                if let Some(erased) = self.erased_member() {
                    return Step::Erased(erased);
                }
                self.round = Some((now, 0));
            }
            let advanced = match self.request.frames {
                Frames::Activities => self.activities(),
                Frames::Events => self.events(),
            };
            match advanced {
                Err(load) => return Step::Load(load),
                // What was committed after the round began is announced.
                Ok(false) if self.ready.is_empty() => return Step::Wait,
                Ok(_) => {}
            }
        }
    }

    /// A log that was erased, of those that the client has named. The set of a session's logs shrinks instead.
    fn erased_member(&self) -> Option<LogId> {
        let named = || self.active.iter().map(|key| &self.members[*key].hub.log);
        let is_erased = |log: &&Arc<Log>| self.feed.is_erased(&log.id) && log.tail().epoch.is_none();
        self.membership.session().is_none().then(|| named().find(is_erased).map(|log| log.id.clone())).flatten()
    }

    async fn load(&mut self, load: Load) -> Result<(), StoreError> {
        match load {
            Load::Logs => self.join().await,
            Load::Members(missing) => self.load_members(missing).await,
            Load::Page(member, epoch) => self.load_page(member, epoch).await,
            Load::Folds => self.load_folds().await,
            Load::Replay(member, epoch) => self.replay(member, epoch).await,
        }
    }

    /// Whether the reader begins with nothing.
    fn has_nothing(&self) -> bool {
        match self.start {
            StartAt::Start => true,
            StartAt::Now => false,
            StartAt::After(cursor) => cursor.epoch != self.store_epoch(),
        }
    }

    /// Sends what a branch has of its ancestors, as snapshots. It never changes.
    async fn push_frozen(&mut self) -> Result<(), StoreError> {
        let Some(LogId::Session(session)) = self.membership.session() else { return Ok(()) };
        if self.request.frames == Frames::Events {
            return Ok(());
        }
        let filter = &self.request.filter;
        for frozen in self.feed.frozen_logs(&session, MEMBERS_MAX).await? {
            let (encoder, mut frames) = (Encoder::new(&frozen.log), FrameBuffer::new(frozen.epoch));
            let activities = self.feed.frozen_activities(&frozen, filter.audience).await?;
            for activity in activities.iter().filter(|activity| filter.accepts_activity(activity)) {
                encoder.snapshot(&mut frames, activity.sequence, None, activity);
            }
            self.ready.copy(&frames.finish());
        }
        Ok(())
    }

    /// Joins the new logs.
    async fn join(&mut self) -> Result<(), StoreError> {
        self.moves.mark_unchanged();
        if let Some(erased) = self.membership.session().filter(|session| self.feed.is_erased(session)) {
            return Err(StoreError::Erased { log: erased.to_string() });
        }
        let logs = self.membership.logs();
        if logs.len() > MEMBERS_MAX {
            return Err(StoreError::TooManyLogs { count: logs.len(), limit: MEMBERS_MAX });
        }
        let store_epoch = self.store_epoch();
        let stay: HashSet<&LogId> = logs.iter().collect();
        self.keys.retain(|log, key| {
            let stays = stay.contains(log);
            if !stays {
                self.queue.remove(*key);
                self.erased.extend(self.members.remove(*key).epoch.map(|epoch| (log.clone(), epoch)));
            }
            stays
        });
        let new: Vec<_> = logs.into_iter().filter(|log| !self.keys.contains_key(log)).collect();
        if !self.is_joined && self.has_nothing() {
            self.push_frozen().await?;
        }
        for log in self.feed.logs.open_all(&new).await? {
            let (id, key, moves) = (log.id.clone(), self.members.vacant_key(), &self.moves);
            let join = |log: &Log, listeners: &mut Listeners| {
                log.follow(moves, key);
                listeners.join_set(moves);
            };
            let (hub, (), tail) = self.feed.subscribe_open(log, &self.request, join);
            let mut member = MemberLog {
                // If the epoch has changed, the first round finds that.
                epoch: self.erased.remove(&id).or(tail.epoch),
                after: Sequence::NONE,
                is_hydrated: false,
                pass: None,
                prev: None,
                replayed: None,
                can_replay: true,
                end_pending: true,
                hub,
                audience: self.request.filter.audience,
                frames: self.request.frames,
                moves: moves.clone(),
            };
            match self.start {
                // A log that appears after the first join is read from its start.
                _ if self.is_joined => {}
                StartAt::Start => {}
                StartAt::Now => (member.after, member.end_pending) = (tail.last, false),
                StartAt::After(cursor) if cursor.epoch == store_epoch => {
                    let (log, epoch) = (member.hub.log.id.clone(), member.epoch);
                    let locate = move |store: &dyn Store| epoch.map(|epoch| sequence_at(store, &log, epoch, cursor.after));
                    let (after, is_last_event) = self.feed.logs.query(locate).await.transpose()?.unwrap_or_default();
                    // The End follows the last event, and has a cursor of its own.
                    let owes_end = is_last_event && !cursor.knows_end;
                    member.end_pending = owes_end || after < tail.last || after == Sequence::NONE;
                    member.after = if sabotage::is(36) { after.next() } else { after };
                }
                // Positions of another store are meaningless here.
                StartAt::After(_) => {
                    let epoch = tail.epoch.unwrap_or(store_epoch);
                    self.ready.copy(&member.hub.encoder.reset(epoch, "epoch"));
                }
            }
            self.keys.insert(id, self.members.insert(member));
            self.active.push(key);
        }
        // From here on, every log that is new to this reader is a new log.
        (self.is_joined, self.join_pending) = (true, false);
        Ok(())
    }

    /// Continues the round of activities until a block is full, or until every active member had its turn.
    ///
    /// Returns whether the reader has more without waiting.
    fn activities(&mut self) -> Result<bool, Load> {
        let Some((now, mut done)) = self.round else { return Ok(false) };
        while let Some(&key) = self.active.get(done) {
            if self.ready.has_finished() {
                return Ok(true);
            }
            if !self.member_step(key)? {
                self.behind.push(key);
            }
            done += 1;
            self.round = Some((now, done));
        }
        self.round = None;
        for key in &self.active {
            self.members[*key].push_end(|end| {
                self.ready.copy(&end.encoder.end(end.epoch, end.sequence, end.status));
            });
        }
        if self.behind.is_empty() {
            self.ready.set_cursor(Cursor::at(self.feed.logs.store_epoch(), order_position(now, ALL_ROWS)));
        }
        self.active = std::mem::take(&mut self.behind);
        Ok(!self.active.is_empty())
    }

    /// Builds the folds of the next members of the round.
    async fn load_folds(&mut self) -> Result<(), StoreError> {
        let (audience, done) = (self.request.filter.audience, self.round.map_or(0, |(_, done)| done));
        let next = self.active[done..].iter().take(FOLDS_AT_ONCE);
        let hubs: Vec<_> = next.map(|key| self.members[*key].hub.clone()).collect();
        self.feed.build_folds(&hubs, audience).await?;
        // If another reader builds the first one, wait for it.
        self.feed.build_fold(&hubs[0], hubs[0].view(audience, Frames::Activities)).await
    }

    /// Reads a page of a log's history as deltas.
    ///
    /// The round stays at the log until its end: the reader holds the activities of one log.
    async fn replay(&mut self, key: usize, epoch: Epoch) -> Result<(), StoreError> {
        let member = &mut self.members[key];
        let filter = &self.request.filter;
        match self.feed.replay(&member.hub, epoch, filter, member.after, member.replayed.take()).await? {
            None => member.can_replay = member.after == Sequence::NONE,
            Some(page) => {
                (member.after, member.replayed, member.end_pending) = (page.last, Some(page.state), true);
                if let Some(frames) = &page.frames {
                    self.ready.copy(frames);
                }
            }
        }
        Ok(())
    }

    /// Adds the next frames of one log. Returns whether the reader has all of them.
    fn member_step(&mut self, key: usize) -> Result<bool, Load> {
        let member = &mut self.members[key];
        let hub = member.hub.clone();
        let view = hub.view(member.audience, Frames::Activities);
        let filter = self.request.filter.of_frames(Frames::Activities);
        // A flush may be due; this reader encodes its frames now.
        hub.encode(view, self.feed.sizes.ring_bytes_max);
        let mut ring = hub.ring(view);
        let Some(fold) = ring.fold.as_ref() else { return Err(Load::Folds) };
        let mut is_reset = false;
        if let Some(epoch) = ring.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
            is_reset = member.epoch.is_some();
            if is_reset {
                self.ready.copy(&hub.encoder.reset(epoch, "epoch"));
            }
            (member.epoch, member.after, member.end_pending) = (Some(epoch), Sequence::NONE, true);
            (member.can_replay, member.pass) = (true, None);
            // A reader of a log that was never written already had everything.
            member.is_hydrated &= !is_reset;
        }
        if let (true, false, Some(epoch)) = (self.request.replay && member.can_replay, member.is_hydrated, ring.epoch)
            && member.after < ring.through
            && !is_reset
            && member.pass.is_none()
        {
            return Err(Load::Replay(key, epoch));
        }
        member.replayed = None;
        if !member.is_hydrated || member.after < ring.base {
            member.is_hydrated = false;
            let (page, hydrated) = ring.hydrate(&hub.encoder, member.after, filter, &mut member.pass, HYDRATION_BYTES_MAX);
            let Some(Hydrated { through, framed }) = hydrated else {
                // Only the last page has a frame with a cursor.
                self.ready.push(page);
                return Ok(false);
            };
            self.ready.copy(&page);
            member.end_pending |= member.after < through;
            (member.is_hydrated, member.after, member.prev) = (true, through, Some(framed));
            return Ok(through == ring.through);
        }
        let (after, mut prev) = (member.after, member.prev.unwrap_or_else(|| last_framed_of(fold, filter)));
        for chunk in ring.chunks.iter().filter(|chunk| chunk.last > after) {
            if self.ready.has_finished() {
                return Ok(false);
            }
            if let Some(frames) = chunk.after(after, filter, &mut prev) {
                self.ready.copy(&frames);
            }
            (member.after, member.prev, member.end_pending) = (chunk.last, Some(prev), true);
        }
        (member.after, member.prev) = (member.after.max(ring.through), Some(prev));
        Ok(true)
    }
}
