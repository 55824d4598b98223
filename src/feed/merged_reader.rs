//! A reader of several logs on one stream: each log in its own order, all in commit order.
//!
//! Its position is one number: the store's commit position, and the row within the append there. So it can be
//! interrupted anywhere and resume. Every event frame carries that position; of activities, the last frame of each
//! round does. A round covers everything committed when it began. The reader makes its frames block by block, as its
//! consumer takes them: it holds two blocks, or the activities of one log.

use super::fan_out::Listeners;
use super::hub::{Hub, SharedView};
use super::ring::last_framed_of;
use super::{Feed, Filter, Frames, PAGE, ReadRequest, ReplayState, StartAt};
use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::encode::native::Encoder;
use crate::log::commit::{Log, Logs, Moves};
use crate::log::row::{APPEND_ROWS_MAX, Row, Rows};
use crate::log::{LogId, StoreError, StoredAppend};
use crate::model::{Audience, Epoch, Sequence, SessionId};
use slab::Slab;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// The bits of a position that count the rows of an append.
const ROW_BITS: u32 = 20;
const _: () = assert!((APPEND_ROWS_MAX as u64) < ALL_ROWS, "two rows of an append must not share a position");

/// A position in commit order: this many rows of this append, and all appends before it.
pub(super) fn order_position(position: u64, rows: u64) -> Sequence {
    // Older appends had no limit and may be longer: a reader interrupted there reads some of their rows again.
    Sequence(position << ROW_BITS | rows.min(ALL_ROWS))
}

/// The row count that means all rows of an append.
pub(super) const ALL_ROWS: u64 = (1 << ROW_BITS) - 1;

/// The commit position and the row count of a position.
#[must_use]
pub const fn position_and_rows(at: Sequence) -> (u64, u64) {
    (at.0 >> ROW_BITS, at.0 & ALL_ROWS)
}

/// The position of a reader of several logs that has everything committed so far.
#[must_use]
pub fn now(logs: &Logs) -> Sequence {
    order_position(logs.position(), ALL_ROWS)
}

/// The bytes at which a block of frames is full: the reader continues when its consumer has taken it.
const BLOCK_BYTES_MAX: usize = 16 * 1024;

/// The most logs whose activities are read together.
pub(super) const FOLDS_AT_ONCE: usize = 64;

/// The most logs of one reader: each log costs memory.
pub(super) const MEMBERS_MAX: usize = 16_384;

/// The logs of a reader.
pub enum LogSet {
    /// The named logs.
    Named(Vec<LogId>),
    /// The current and future logs of a session.
    SessionLogs(SessionLogs),
}

/// The logs of a session: its runs and its own log; optionally also those of its descendants.
pub struct SessionLogs {
    logs: Arc<Logs>,
    session: SessionId,
    children: bool,
    changes: watch::Receiver<u64>,
    /// Which of its descendants are included; `None`: all.
    takes: Option<SessionPredicate>,
}

/// Decides whether a reader may follow a session.
pub type SessionPredicate = Arc<dyn Fn(&SessionId) -> bool + Send + Sync>;

impl LogSet {
    /// The logs of `session`, which may not exist yet.
    ///
    /// With `children` the logs of its descendants are included: all of them, or those that `takes` accepts.
    #[must_use]
    pub fn of_session(logs: Arc<Logs>, session: SessionId, children: bool, takes: Option<SessionPredicate>) -> Self {
        let changes = logs.sessions().watch(&session);
        Self::SessionLogs(SessionLogs { logs, session, children, changes, takes })
    }

    fn logs(&mut self) -> Vec<LogId> {
        let of = match self {
            Self::Named(logs) => return logs.clone(),
            Self::SessionLogs(of) => of,
        };
        of.changes.mark_unchanged();
        let sessions = of.logs.sessions();
        let mut below = if of.children { sessions.children_of(&of.session) } else { Vec::new() };
        if let Some(takes) = &of.takes {
            below.retain(|session| takes(session));
        }
        let mut logs = Vec::new();
        for session in std::iter::once(&of.session).chain(&below) {
            logs.extend(sessions.has_own_log(session).then(|| LogId::Session(session.clone())));
            logs.extend(sessions.runs_of(session).into_iter().map(LogId::Run));
        }
        logs
    }

    /// Whether the logs may have changed since they were last listed.
    fn has_changed(&self) -> bool {
        matches!(self, Self::SessionLogs(of) if of.changes.has_changed().unwrap_or(false))
    }

    /// Waits until the logs may have changed.
    async fn changed(&mut self) {
        if let Self::SessionLogs(of) = self
            && of.changes.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// One log of several.
struct Member {
    hub: Arc<Hub>,
    audience: Audience,
    frames: Frames,
    moves: Arc<Moves>,
    epoch: Option<Epoch>,
    after: Sequence,
    is_hydrated: bool,
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

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.log.unfollow(&self.moves);
        self.hub.view(self.audience, self.frames).listeners().leave_set(&self.moves);
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum MemberStep {
    /// The reader has everything of the log.
    Done,
    /// Build the fold first.
    BuildFold,
    /// Replay the next frames from the log.
    Replay(Epoch),
}

/// A reader of several logs.
pub struct MergedReader {
    feed: Arc<Feed>,
    request: ReadRequest,
    membership: LogSet,
    members: Slab<Member>,
    keys: HashMap<LogId, usize>,
    /// The members that may have more for this reader. It looks at no other.
    active: Vec<usize>,
    moves: Arc<Moves>,
    /// The epochs of erased logs: for a log with another epoch the reader gets a Reset.
    erased: HashMap<LogId, Epoch>,
    /// The position at which new members start during the first join.
    start: StartAt,
    /// The position of a round of activities that has begun, and the active members of which the reader has all.
    round: Option<(u64, usize)>,
    /// The members of that round whose history the reader replays, in further rounds.
    replaying: Vec<usize>,
    /// Blocks of frames. The last block of a round waits for the round's end, to get its cursor.
    ready: VecDeque<FrameBuffer>,
    is_joined: bool,
    /// Whether new logs may have to be joined; stays set until a join completes.
    join_pending: bool,
}

impl MergedReader {
    /// Creates a reader of these logs.
    #[must_use]
    pub fn new(feed: Arc<Feed>, request: ReadRequest, membership: LogSet, start: StartAt) -> Self {
        Self {
            feed,
            request,
            membership,
            members: Slab::new(),
            keys: HashMap::new(),
            active: Vec::new(),
            moves: Arc::default(),
            erased: HashMap::new(),
            start,
            round: None,
            replaying: Vec::new(),
            ready: VecDeque::new(),
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
            (None, LogSet::SessionLogs(of)) => Encoder::new(&LogId::Session(of.session.clone())).error(Sequence::NONE, problem),
            (None, LogSet::Named(logs)) => Encoder::new(&logs[0]).error(Sequence::NONE, problem),
        }
    }

    /// Waits for the next frames. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<EncodedFrames, StoreError> {
        loop {
            let waits_for_cursor = usize::from(self.round.is_some());
            if self.ready.len() > waits_for_cursor
                && let Some(frames) = self.ready.pop_front()
            {
                return Ok(frames.finish());
            }
            let has_advanced = match (self.request.frames, self.round) {
                (Frames::Activities, Some(_)) => self.activities().await?,
                (Frames::Activities, None) => {
                    self.round = Some((self.begin_round().await?, 0));
                    self.activities().await?
                }
                (Frames::Events, _) => {
                    let now = self.begin_round().await?;
                    self.events(now).await?
                }
            };
            // What was committed after the round began is announced.
            if self.ready.is_empty() && !has_advanced {
                tokio::select! {
                    () = self.moves.woken() => {}
                    () = self.membership.changed() => self.join_pending = true,
                }
            }
        }
    }

    /// Collects the members to look at. Returns the position up to which the round covers them.
    async fn begin_round(&mut self) -> Result<u64, StoreError> {
        // First: what was committed up to here has moved its members, and changed the set of logs.
        let now = self.feed.logs.position();
        if self.join_pending || self.membership.has_changed() {
            self.join_pending = true;
            self.join().await?;
        }
        self.active.extend(self.moves.take());
        self.active.sort_unstable();
        self.active.dedup();
        self.active.retain(|key| self.members.contains(*key));
        Ok(now)
    }

    /// Joins the new logs.
    async fn join(&mut self) -> Result<(), StoreError> {
        let logs = self.membership.logs();
        if logs.len() > MEMBERS_MAX {
            return Err(StoreError::TooManyLogs { count: logs.len(), limit: MEMBERS_MAX });
        }
        let store_epoch = self.store_epoch();
        let stay: HashSet<&LogId> = logs.iter().collect();
        self.keys.retain(|log, key| {
            let stays = stay.contains(log);
            if !stays {
                self.erased.extend(self.members.remove(*key).epoch.map(|epoch| (log.clone(), epoch)));
            }
            stays
        });
        let new: Vec<_> = logs.into_iter().filter(|log| !self.keys.contains_key(log)).collect();
        for log in self.feed.logs.open_all(&new).await? {
            let (id, key, moves) = (log.id.clone(), self.members.vacant_key(), &self.moves);
            let join = |log: &Log, listeners: &mut Listeners| {
                log.follow(moves, key);
                listeners.join_set(moves);
            };
            let (hub, (), tail) = self.feed.subscribe_open(log, &self.request, join);
            let mut member = Member {
                // If the epoch has changed, the first round finds that.
                epoch: self.erased.remove(&id).or(tail.epoch),
                after: Sequence::NONE,
                is_hydrated: false,
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
                    let after = self.sequence_at(&member, cursor.after).await?;
                    member.end_pending = after < tail.last || after == Sequence::NONE;
                    member.after = after;
                }
                // Positions of another store are meaningless here.
                StartAt::After(_) => {
                    let epoch = tail.epoch.unwrap_or(store_epoch);
                    push_to(&mut self.ready, store_epoch, &member.hub.encoder.reset(epoch, "epoch"));
                }
            }
            self.keys.insert(id, self.members.insert(member));
            self.active.push(key);
        }
        // From here on, every log that is new to this reader is a new log.
        (self.is_joined, self.join_pending) = (true, false);
        Ok(())
    }

    /// The last sequence of a log that a reader at this position has read.
    async fn sequence_at(&self, member: &Member, at: Sequence) -> Result<Sequence, StoreError> {
        let (position, rows) = position_and_rows(at);
        let Some(epoch) = member.epoch else { return Ok(Sequence::NONE) };
        let id = &member.hub.log.id;
        let last = self.feed.logs.locate(id, epoch, position).await?;
        let before = self.feed.logs.locate(id, epoch, position.saturating_sub(1)).await?;
        // The row count applies only if the append there belongs to this log.
        Ok(before.plus(rows).min(last))
    }

    /// Runs a round of events: everything committed up to `until`, as far as it can be ordered.
    ///
    /// Returns whether the reader has advanced.
    async fn events(&mut self, mut until: u64) -> Result<bool, StoreError> {
        let (mut came, store_epoch) = (Vec::<(usize, Vec<StoredAppend>)>::new(), self.store_epoch());
        for key in &self.active {
            let member = &mut self.members[*key];
            let tail = member.hub.log.tail();
            // An erased log keeps its old epoch, to tell it from the next one.
            if let Some(epoch) = tail.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
                if member.epoch.is_some() {
                    push_to(&mut self.ready, store_epoch, &member.hub.encoder.reset(epoch, "epoch"));
                }
                (member.epoch, member.after, member.prev, member.end_pending) = (Some(epoch), Sequence::NONE, None, true);
            }
            let Some(epoch) = tail.epoch.filter(|_| member.after < tail.last) else { continue };
            let appends = match member.hub.log.recent_appends_after(member.after) {
                (tail, Some(appends)) if tail.epoch == Some(epoch) => appends,
                _ => {
                    let page = self.feed.logs.read_appends(&member.hub.log.id, epoch, member.after, PAGE).await?;
                    if let Some(last) = page.last() {
                        // The log may continue after this page: no later append of another log may overtake that.
                        until = until.min(last.position);
                    }
                    page
                }
            };
            let is_past = member.after > Sequence::NONE && member.after < tail.summary.compacted.through;
            if member.prev.is_none() && (is_past || self.request.filter.of_frames(Frames::Events).is_some()) {
                let log = &member.hub.log.id;
                member.prev = Some(self.feed.prev_at(log, epoch, &self.request.filter, member.after).await?);
            }
            came.push((*key, appends));
        }
        let mut placed: Vec<(u64, usize, StoredAppend)> = Vec::new();
        let mut more = Vec::new();
        for (key, appends) in came {
            // A page without appends belongs to a log that was erased meanwhile; that moves it again.
            if appends.last().is_some_and(|last| last.position >= until) {
                more.push(key);
            }
            placed.extend(appends.into_iter().filter(|append| append.position <= until).map(|a| (a.position, key, a)));
        }
        placed.sort_by_key(|(position, ..)| *position);
        let has_advanced = !placed.is_empty();
        let mut out = FrameBuffer::new(store_epoch);
        for (position, key, append) in placed {
            let member = &mut self.members[key];
            let after = member.after;
            for row in Rows(append.rows).filter(|row| row.sequence() > after) {
                member.after = row.sequence();
                member.end_pending = true;
                let rows = (row.sequence().0 - append.before.0).min(ALL_ROWS - 1);
                event(&self.request.filter, member, &row, order_position(position, rows), &mut out);
            }
        }
        if !out.is_empty() {
            self.ready.push_back(out);
        }
        self.push_ends();
        self.active = more;
        Ok(has_advanced)
    }

    /// Continues a round of activities until a block is full, or until every member that has moved is at its tail.
    ///
    /// Returns whether the reader has more without waiting.
    async fn activities(&mut self) -> Result<bool, StoreError> {
        let Some((now, mut done)) = self.round else { return Ok(false) };
        while let Some(&key) = self.active.get(done) {
            if self.ready.len() > 1 {
                return Ok(true);
            }
            let (hub, audience) = (self.members[key].hub.clone(), self.request.filter.audience);
            let view = hub.view(audience, Frames::Activities);
            loop {
                match self.step(key, &hub, view) {
                    MemberStep::Done => break,
                    MemberStep::BuildFold => {
                        let next = self.active[done..].iter().take(FOLDS_AT_ONCE);
                        let hubs: Vec<_> = next.map(|key| self.members[*key].hub.clone()).collect();
                        self.feed.build_folds(&hubs, audience).await?;
                        // If another reader builds this one, wait for it.
                        self.feed.build_fold(&hub, view).await?;
                    }
                    MemberStep::Replay(epoch) => {
                        self.replay(key, &hub, epoch).await?;
                        self.replaying.push(key);
                        break;
                    }
                }
            }
            done += 1;
            self.round = Some((now, done));
        }
        self.round = None;
        if self.replaying.is_empty()
            && let Some(last) = self.ready.back_mut()
        {
            last.set_cursor_at(order_position(now, ALL_ROWS));
        }
        self.push_ends();
        self.active = std::mem::take(&mut self.replaying);
        Ok(!self.active.is_empty())
    }

    /// Reads a page of a log's history as deltas.
    async fn replay(&mut self, n: usize, hub: &Hub, epoch: Epoch) -> Result<(), StoreError> {
        let member = &mut self.members[n];
        let filter = &self.request.filter;
        let Some(page) = self.feed.replay(hub, epoch, filter, member.after, member.replayed.take()).await? else {
            member.can_replay = member.after == Sequence::NONE;
            return Ok(());
        };
        (member.after, member.replayed, member.end_pending) = (page.last, Some(page.state), true);
        if let Some(frames) = &page.frames {
            self.push(frames);
        }
        Ok(())
    }

    /// Adds frames of one log.
    fn push(&mut self, frames: &EncodedFrames) {
        push_to(&mut self.ready, self.feed.logs.store_epoch(), frames);
    }

    /// Adds the next frames of one log.
    fn step(&mut self, n: usize, hub: &Hub, view: &SharedView) -> MemberStep {
        let store_epoch = self.store_epoch();
        let member = &mut self.members[n];
        let filter = self.request.filter.of_frames(Frames::Activities);
        // A flush may be due; this reader encodes its frames now.
        hub.encode(view, self.feed.sizes.ring_bytes_max);
        let mut ring = hub.ring(view);
        let Some(fold) = ring.fold.as_ref() else { return MemberStep::BuildFold };
        let mut add = |frames: &EncodedFrames| push_to(&mut self.ready, store_epoch, frames);
        let mut is_reset = false;
        if let Some(epoch) = ring.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
            is_reset = member.epoch.is_some();
            if is_reset {
                add(&hub.encoder.reset(epoch, "epoch"));
            }
            (member.epoch, member.after, member.end_pending) = (Some(epoch), Sequence::NONE, true);
            member.can_replay = true;
            // A reader of a log that was never written already had everything.
            member.is_hydrated &= !is_reset;
        }
        if let (true, false, Some(epoch)) = (self.request.replay && member.can_replay, member.is_hydrated, ring.epoch)
            && member.after < ring.through
            && !is_reset
        {
            return MemberStep::Replay(epoch);
        }
        member.replayed = None;
        if !member.is_hydrated || member.after < ring.base {
            let (frames, last) = ring.hydration(&hub.encoder, member.after, filter);
            add(&frames);
            member.end_pending |= member.after < ring.through;
            (member.is_hydrated, member.after, member.prev) = (true, ring.through, Some(last));
            return MemberStep::Done;
        }
        let mut prev = member.prev.unwrap_or_else(|| last_framed_of(fold, filter));
        for chunk in ring.chunks.iter().filter(|chunk| chunk.last > member.after) {
            if let Some(frames) = chunk.after(member.after, filter, &mut prev) {
                add(&frames);
            }
            member.end_pending = true;
        }
        (member.after, member.prev) = (member.after.max(ring.through), Some(prev));
        MemberStep::Done
    }

    /// Sends the ends of runs that are fully sent. The stream stays open.
    fn push_ends(&mut self) {
        let is_sent = |member: &&mut Member| member.is_hydrated || self.request.frames == Frames::Events;
        let store_epoch = self.feed.logs.store_epoch();
        for key in &self.active {
            let member = &mut self.members[*key];
            if !member.end_pending || !is_sent(&member) {
                continue;
            }
            let tail = member.hub.log.tail();
            if let (Some(status), Some(epoch)) = (tail.end(), tail.epoch)
                && (member.epoch, member.after) == (Some(epoch), tail.last)
            {
                member.end_pending = false;
                push_to(&mut self.ready, store_epoch, &member.hub.encoder.end(epoch, member.after, status));
            }
        }
    }
}

/// Adds frames of one log to the last block, without its cursors: they are meaningless on a stream of several logs.
fn push_to(ready: &mut VecDeque<FrameBuffer>, epoch: Epoch, frames: &EncodedFrames) {
    if ready.back().is_none_or(|last| last.len() >= BLOCK_BYTES_MAX) {
        ready.push_back(FrameBuffer::new(epoch));
    }
    ready.back_mut().expect("a block was just added").append(frames);
}

/// Appends an event, if the filter accepts it.
fn event(filter: &Filter, member: &mut Member, row: &Row, position: Sequence, out: &mut FrameBuffer) {
    let Some(view) = filter.text_of(row) else { return };
    // The reader's previous event, which compaction may have deleted.
    let prev = member.prev.replace(row.sequence()).unwrap_or_else(|| row.prev(filter.audience));
    member.hub.encoder.event(out, position, row.sequence(), prev, view);
}
