//! A reader of several logs on one stream, each in its own order, all in the order of commits.
//!
//! Its place is one number: how far the store's one commit order was read, and within the append there. So it can be cut off
//! anywhere and go on: of events, every frame carries its place; of activities the last frame of each round does, a round
//! being everything that was committed when it began. It holds no frames beyond those of one log in one round.

use super::reader::Frames;
use super::ring::framed;
use super::{Feed, From, Hub, PAGE, Past, Selection, View, Wanted};
use crate::encode::native::{place_cursor, without_cursors};
use crate::log::row::{APPEND_ROWS_MAX, Row, Rows};
use crate::log::run::Logs;
use crate::log::{LogId, Placed, Store, StoreError};
use crate::model::{Cursor, Epoch, Sequence, SessionId};
use bytes::Bytes;
use futures_util::future::select_all;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// Bits of a place that count the rows of an append.
const ROW_BITS: u32 = 20;
const _: () = assert!((APPEND_ROWS_MAX as u64) < ALL_ROWS, "no append has so many rows that two of them share a place");

/// A place in the order of commits: so many rows of that append, and all of those before it.
pub(super) fn place(position: u64, rows: u64) -> Sequence {
    // Before appends had a limit there were longer ones: a reader who is cut off there reads some of their rows again.
    Sequence(position << ROW_BITS | rows.min(ALL_ROWS))
}

/// The place after all of an append.
pub(super) const ALL_ROWS: u64 = (1 << ROW_BITS) - 1;

/// The two numbers of a place.
pub(super) const fn position_and_rows(at: Sequence) -> (u64, u64) {
    (at.0 >> ROW_BITS, at.0 & ALL_ROWS)
}

/// Where a reader of several logs stands who has everything there is.
#[must_use]
pub fn now<S: Store>(logs: &Logs<S>) -> Sequence {
    place(logs.position(), ALL_ROWS)
}

/// The most logs that one reader follows: each costs memory, and a little time with every fact of any of them.
pub(super) const MEMBERS_MAX: usize = 16_384;

/// Which logs a reader follows.
pub enum Members<S> {
    /// Those that were named.
    Named(Vec<LogId>),
    /// A session's: those of now, and those that come.
    OfSession(OfSession<S>),
}

/// The logs of a session: its runs and its own; of its descendants too, if that is asked for.
pub struct OfSession<S> {
    logs: Arc<Logs<S>>,
    session: SessionId,
    children: bool,
    changes: watch::Receiver<u64>,
    /// Which of its descendants are among them; all, for most readers.
    takes: Option<Takes>,
}

/// Whether a reader may follow a session.
pub type Takes = Arc<dyn Fn(&SessionId) -> bool + Send + Sync>;

impl<S: Store> Members<S> {
    /// The logs of `session`, which need not be there yet; with those of its descendants, if `children`: of all, or of those
    /// that the reader `takes`.
    #[must_use]
    pub fn of_session(logs: Arc<Logs<S>>, session: SessionId, children: bool, takes: Option<Takes>) -> Self {
        let changes = logs.sessions().watch(&session);
        Self::OfSession(OfSession { logs, session, children, changes, takes })
    }

    fn logs(&mut self) -> Vec<LogId> {
        let of = match self {
            Self::Named(logs) => return logs.clone(),
            Self::OfSession(of) => of,
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

    /// Whether there may be others than when they were last asked for.
    fn has_changed(&self) -> bool {
        matches!(self, Self::OfSession(of) if of.changes.has_changed().unwrap_or(false))
    }

    /// Waits until there may be others.
    async fn changed(&mut self) {
        if let Self::OfSession(of) = self
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
    moved: watch::Receiver<u64>,
    epoch: Option<Epoch>,
    after: Sequence,
    is_hydrated: bool,
    /// The last sequence that the reader's selection took; `None` until the first, or until it was looked up.
    prev: Option<Sequence>,
    /// Its activities at the reader's place, while they are replayed.
    replayed: Option<Box<Past>>,
    /// Whether deltas lead on from what the reader has of it; else snapshots must.
    can_replay: bool,
    /// Whether its end is still to be told: it was read from its beginning, or has moved since.
    owes_end: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Step {
    Frames(Vec<u8>),
    /// Nobody has brought up the activities.
    Cold,
    /// What comes next is to be replayed.
    Replay(Epoch),
}

/// One reader of several logs.
pub struct Several<S> {
    feed: Arc<Feed<S>>,
    wanted: Wanted,
    membership: Members<S>,
    members: Vec<Member>,
    /// The lives of logs that were erased: of another one the reader is told to forget them.
    erased: HashMap<LogId, Epoch>,
    /// Where new members are joined: what they have beyond is new.
    from: From,
    /// Frames that are ready; the last of a round waits for the round's end, to take its cursor.
    ready: VecDeque<Vec<u8>>,
    is_joined: bool,
    /// Whether there may be logs that are to be taken in; until that is done, however often it is interrupted.
    owes_join: bool,
}

impl<S: Store> Several<S> {
    /// A reader of these logs.
    #[must_use]
    pub fn new(feed: Arc<Feed<S>>, wanted: Wanted, membership: Members<S>, from: From) -> Self {
        let (members, erased, ready) = (Vec::new(), HashMap::new(), VecDeque::new());
        Self { feed, wanted, membership, members, erased, from, ready, is_joined: false, owes_join: true }
    }

    fn life(&self) -> Epoch {
        self.feed.logs.life()
    }

    /// The frame that tells why there will be no more.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> Bytes {
        // It is of no run in particular; it names the first, for every frame names one.
        match self.members.first() {
            Some(member) => member.hub.encoder.error(member.after, problem).into(),
            None => {
                let mut frame = serde_json::json!({ "frame": "Error", "sequence": 0, "problem": problem });
                match &self.membership {
                    Members::OfSession(of) => frame["sessionId"] = of.session.as_str().into(),
                    Members::Named(logs) => {
                        if let Some(LogId::Run(run)) = logs.first() {
                            frame["runId"] = run.as_str().into();
                        }
                    }
                }
                Bytes::from(format!("data: {frame}\n\n"))
            }
        }
    }

    /// The next frames, as soon as there are any. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Bytes, StoreError> {
        loop {
            if let Some(frames) = self.ready.pop_front() {
                return Ok(frames.into());
            }
            for member in &mut self.members {
                member.moved.mark_unchanged();
            }
            if self.owes_join || self.membership.has_changed() {
                self.owes_join = true;
                self.join().await?;
            }
            let is_whole = match self.wanted.frames {
                Frames::Events => self.events().await?,
                Frames::Activities => self.activities().await?,
            };
            if self.ready.is_empty() && is_whole {
                self.moved().await;
            }
        }
    }

    /// Waits until a log has moved, or there may be others.
    async fn moved(&mut self) {
        if self.members.is_empty() {
            self.membership.changed().await;
            self.owes_join = true;
            return;
        }
        let moves = self.members.iter_mut().map(|member| Box::pin(member.moved.changed()));
        tokio::select! {
            _ = select_all(moves) => {}
            () = self.membership.changed() => self.owes_join = true,
        }
    }

    /// Takes in the logs that are new.
    async fn join(&mut self) -> Result<(), StoreError> {
        let logs = self.membership.logs();
        if logs.len() > MEMBERS_MAX {
            return Err(StoreError::TooManyLogs { count: logs.len(), limit: MEMBERS_MAX });
        }
        self.members.retain(|member| {
            let stays = logs.contains(&member.hub.log.id);
            self.erased.extend(member.epoch.filter(|_| !stays).map(|epoch| (member.hub.log.id.clone(), epoch)));
            stays
        });
        for id in logs {
            if self.members.iter().any(|member| member.hub.log.id == id) {
                continue;
            }
            let (hub, moved, tail) = self.feed.place(&id, &self.wanted).await?;
            let mut member = Member {
                // Where it is another, the first round finds that out.
                epoch: self.erased.remove(&id).or(tail.epoch),
                after: Sequence::NONE,
                is_hydrated: false,
                prev: None,
                replayed: None,
                can_replay: true,
                owes_end: true,
                hub,
                moved,
            };
            match self.from {
                // What came after the reader is read from its beginning.
                _ if self.is_joined => {}
                From::Start => {}
                From::Now => (member.after, member.owes_end) = (tail.last, false),
                From::After(cursor) if cursor.epoch == self.life() => {
                    let after = self.located(&member, cursor.after).await?;
                    member.owes_end = after < tail.last || after == Sequence::NONE;
                    member.after = after;
                }
                // Another store's places mean nothing here.
                From::After(_) => {
                    let epoch = tail.epoch.unwrap_or_else(|| self.life());
                    self.ready.push_back(without_cursors(&member.hub.encoder.reset(epoch, "epoch")));
                }
            }
            self.members.push(member);
        }
        // From here on, what a log has that is new to this reader is new altogether.
        (self.is_joined, self.owes_join) = (true, false);
        Ok(())
    }

    /// How far a log was read by a reader who stood at this place.
    async fn located(&self, member: &Member, at: Sequence) -> Result<Sequence, StoreError> {
        let (position, rows) = position_and_rows(at);
        let Some(epoch) = member.epoch else { return Ok(Sequence::NONE) };
        let id = &member.hub.log.id;
        let last = self.feed.logs.locate(id, epoch, position).await?;
        let before = self.feed.logs.locate(id, epoch, position.saturating_sub(1)).await?;
        // Only where the append there is of this log do its rows count.
        Ok(before.plus(rows).min(last))
    }

    /// A round of events: what was committed when it began, or as much of it as can be put in order. False when there is more.
    async fn events(&mut self) -> Result<bool, StoreError> {
        let mut is_whole = true;
        let mut until = self.feed.logs.position();
        let mut came: Vec<(usize, Vec<Placed>)> = Vec::new();
        for (n, member) in self.members.iter_mut().enumerate() {
            let tail = member.hub.log.tail();
            // One that was erased keeps its old epoch, to tell it from a new one.
            if let Some(epoch) = tail.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
                if member.epoch.is_some() {
                    self.ready.push_back(without_cursors(&member.hub.encoder.reset(epoch, "epoch")));
                }
                (member.epoch, member.after, member.prev, member.owes_end) = (Some(epoch), Sequence::NONE, None, true);
            }
            let Some(epoch) = tail.epoch.filter(|_| member.after < tail.last) else { continue };
            let appends = match member.hub.log.recent_placed_after(member.after) {
                (tail, Some(appends)) if tail.epoch == Some(epoch) => appends,
                _ => {
                    let page = self.feed.logs.read_placed(&member.hub.log.id, epoch, member.after, PAGE).await?;
                    if let Some(last) = page.last() {
                        // It may go on after this page: nothing of another log that comes later may overtake that.
                        until = until.min(last.position);
                        is_whole = false;
                    }
                    page
                }
            };
            let is_past = member.after > Sequence::NONE && member.after < tail.summary.compacted.through;
            if member.prev.is_none() && (is_past || !self.wanted.selection.is_all()) {
                let log = &member.hub.log.id;
                member.prev = Some(self.feed.prev_at(log, epoch, &self.wanted.selection, member.after).await?);
            }
            came.push((n, appends));
        }
        let mut placed: Vec<(u64, usize, Placed)> = Vec::new();
        for (n, appends) in came {
            placed.extend(appends.into_iter().filter(|append| append.position <= until).map(|a| (a.position, n, a)));
        }
        placed.sort_by_key(|(position, ..)| *position);
        let life = self.life();
        let mut out = Vec::new();
        for (position, n, append) in placed {
            let member = &mut self.members[n];
            let after = member.after;
            for row in Rows(append.rows).filter(|row| row.sequence() > after) {
                member.after = row.sequence();
                member.owes_end = true;
                let rows = (row.sequence().0 - append.before.0).min(ALL_ROWS - 1);
                let at = Cursor::at(life, place(position, rows));
                event(&self.wanted.selection, member, &row, at, &mut out);
            }
        }
        if !out.is_empty() {
            self.ready.push_back(out);
        }
        self.ends();
        Ok(is_whole)
    }

    /// A round of activities: every log's, brought to its tail. False when there is more.
    async fn activities(&mut self) -> Result<bool, StoreError> {
        let now = self.feed.logs.position();
        let before = self.ready.len();
        // A log that is still replayed has more than what is sent of it in this round.
        let mut is_whole = true;
        for n in 0..self.members.len() {
            let (hub, audience) = (self.members[n].hub.clone(), self.wanted.selection.audience);
            let view = hub.view(audience, Frames::Activities);
            let frames = loop {
                match self.step(n, &hub, view) {
                    Step::Frames(frames) => break frames,
                    Step::Cold => self.feed.warm(&hub, view).await?,
                    Step::Replay(epoch) => {
                        is_whole = false;
                        break self.replay(n, &hub, epoch).await?;
                    }
                }
            };
            if !frames.is_empty() {
                self.ready.push_back(without_cursors(&frames));
            }
        }
        let cursor = Cursor::at(self.life(), place(now, ALL_ROWS));
        if is_whole
            && self.ready.len() > before
            && let Some(last) = self.ready.back_mut()
        {
            place_cursor(last, cursor);
        }
        self.ends();
        Ok(is_whole)
    }

    /// A page of a log's past, delta by delta.
    async fn replay(&mut self, n: usize, hub: &Hub, epoch: Epoch) -> Result<Vec<u8>, StoreError> {
        let member = &mut self.members[n];
        let selection = &self.wanted.selection;
        let Some(page) = self.feed.replay(hub, epoch, selection, member.after, member.replayed.take()).await? else {
            member.can_replay = member.after == Sequence::NONE;
            return Ok(Vec::new());
        };
        (member.after, member.replayed, member.owes_end) = (page.last, Some(page.past), true);
        Ok(page.frames.map(Vec::from).unwrap_or_default())
    }

    /// What a log's activities have become since.
    fn step(&mut self, n: usize, hub: &Hub, view: &View) -> Step {
        let member = &mut self.members[n];
        let chosen = self.wanted.selection.among_activities();
        // A flush may be due; what it would wake others for, this reader takes now.
        hub.encode(view, self.feed.sizes.ring_bytes_max);
        let mut ring = hub.ring(view);
        let Some(fold) = ring.fold.as_ref() else { return Step::Cold };
        let mut out = Vec::new();
        if let Some(epoch) = ring.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
            let is_new = member.epoch.is_none();
            if !is_new {
                out.extend_from_slice(&hub.encoder.reset(epoch, "epoch"));
            }
            (member.epoch, member.after, member.owes_end) = (Some(epoch), Sequence::NONE, true);
            member.can_replay = true;
            // Who was told that there is nothing yet knows all there was.
            member.is_hydrated &= is_new;
        }
        if let (true, false, Some(epoch)) = (self.wanted.replay && member.can_replay, member.is_hydrated, ring.epoch)
            && member.after < ring.through
            && out.is_empty()
        {
            return Step::Replay(epoch);
        }
        member.replayed = None;
        if !member.is_hydrated || member.after < ring.base {
            let (frames, last) = ring.hydration(&hub.encoder, member.after, chosen);
            out.extend_from_slice(&frames);
            member.owes_end |= member.after < ring.through;
            (member.is_hydrated, member.after, member.prev) = (true, ring.through, Some(last));
            return Step::Frames(out);
        }
        let mut prev = member.prev.unwrap_or_else(|| framed(fold, chosen));
        let epoch = ring.epoch.unwrap_or_else(|| self.feed.logs.life());
        for chunk in ring.chunks.iter().filter(|chunk| chunk.last > member.after) {
            let frames = match chosen {
                None => chunk.after(member.after),
                Some(chosen) => chunk.chosen_after(member.after, epoch, chosen, &mut prev),
            };
            out.extend_from_slice(&frames.unwrap_or_default());
            member.owes_end = true;
        }
        (member.after, member.prev) = (member.after.max(ring.through), Some(prev));
        Step::Frames(out)
    }

    /// Tells of the runs that have ended and are all told. Nothing but the run ends with it.
    fn ends(&mut self) {
        let is_told = |member: &&mut Member| member.is_hydrated || self.wanted.frames == Frames::Events;
        for member in self.members.iter_mut().filter(|member| member.owes_end).filter(is_told) {
            let tail = member.hub.log.tail();
            if let (Some(status), Some(epoch)) = (tail.end(), tail.epoch)
                && (member.epoch, member.after) == (Some(epoch), tail.last)
            {
                member.owes_end = false;
                self.ready.push_back(without_cursors(&member.hub.encoder.end(epoch, member.after, status)));
            }
        }
    }
}

/// Appends an event, if the selection takes it.
fn event(selection: &Selection, member: &mut Member, row: &Row, at: Cursor, out: &mut Vec<u8>) {
    let Some(view) = selection.of(row) else { return };
    // What the reader had before, which need not be in the log any more.
    let prev = member.prev.replace(row.sequence()).unwrap_or_else(|| row.prev(selection.audience));
    member.hub.encoder.event(out, at, row.sequence(), prev, view);
}
