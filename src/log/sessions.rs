//! Which sessions there are, which runs each has, and which sessions are children of which.
//!
//! Logs say so themselves, in their summaries; this is an index of what they say, in memory: read from the store when it is
//! opened, kept by the committer from then on, before an append is answered. So whatever is visible is found here, too.
//!
//! * A session is there when a log says that it belongs to it: a run, or the session's own.
//! * It stands where the first of its logs stands in the order of their creation. That number belongs to no other session
//!   and is the same after a restart; it changes only when that first log is erased, or when an older run turns out to
//!   belong to the session.
//! * Its parent is the one that the first of its logs to name one names. A parent need not be there itself.
//!
//! For each session the index counts what its logs wait for, how its runs stand, and which log a list reads its texts from.
//! A commit changes these counts by what its one log changed, so its cost does not depend on the number of runs. What waits
//! below a session is summed when it is asked for ([`Sessions::pending_below`]): a commit does nothing for the ancestors.
//!
//! A run of a session costs about 90 bytes here and its id's text, a session about 200; a run of no session costs nothing. No
//! reader holds the lock for longer than it takes to copy the ids of one session's runs or children: the committer waits for it.

use super::run::Summary;
use super::{LogId, LogKind, Store, StoreError};
use crate::model::{Audience, RunId, SessionId};
use crate::source::ledger::Status;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::watch;

/// Logs that are listed at once when the index is built, and sessions that are read under one lock.
const PAGE: usize = 1024;
/// Ancestors of a session that learn of its new and erased logs: a commit walks up no further.
pub const ANCESTORS_MAX: usize = 256;

/// The sessions of one store.
#[derive(Default)]
pub struct Sessions {
    inner: RwLock<Inner>,
    /// What waited below each session, and at which version of the counts.
    below: Mutex<Option<(u64, Arc<PendingBelow>)>>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<SessionId, Session>,
    places: BTreeMap<u64, SessionId>,
    children: HashMap<SessionId, HashSet<SessionId>>,
    /// The sessions with pending actions of their own.
    asking: BTreeSet<SessionId>,
    /// Grows whenever a session's own pending actions or its parent change.
    version: u64,
    /// Counts what happens to a session and to those below it, for those who wait for that.
    watched: HashMap<SessionId, watch::Sender<u64>>,
}

#[derive(Default)]
struct Session {
    place: u64,
    /// The place of the log that names the parent first, and the parent.
    parent: Option<(u64, SessionId)>,
    /// Its own log's place, the parent that it names, and how it stands.
    own: Option<(u64, Option<SessionId>, Standing)>,
    /// In the order of creation.
    runs: Vec<Run>,
    totals: Totals,
}

struct Run {
    created: u64,
    id: RunId,
    parent: Option<SessionId>,
    standing: Standing,
}

/// The texts and flags of a log that a list shows, in the order of [`ListedLogs`].
const SHOWN: usize = 5;

/// The logs that a list takes a session's title, preview, unread count, pin and source-reported staleness from: the session's
/// own log where that has it, else the newest run that has it. Each log is given by its kind and its place of creation.
pub type ListedLogs = [Option<(LogKind, u64)>; SHOWN];

/// What a list needs of one log, per audience where audiences differ.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    status: [Status; 3],
    pending: [u32; 3],
    /// Whether the server found the run stale.
    stale: [bool; 3],
    shows: [bool; SHOWN],
    /// Milliseconds since 1970; 0 for none.
    last_activity: i64,
}

impl Standing {
    fn of(summary: &Summary) -> Self {
        let seen = Audience::ALL.map(|audience| summary.run_for(audience));
        let shown = &summary.shown;
        let time = summary.last_activity.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        Self {
            status: seen.map(|run| run.status),
            pending: seen.map(|run| u32::try_from(run.pending.len()).unwrap_or(u32::MAX)),
            stale: seen.map(|run| run.stale),
            shows: [
                shown.title.is_some(),
                shown.preview.is_some(),
                shown.unread.is_some(),
                shown.pinned.is_some(),
                shown.stale.is_some(),
            ],
            last_activity: time.map_or(0, jiff::Timestamp::as_millisecond),
        }
    }
}

/// The statuses that give a session its own, the most urgent first.
const URGENT: [Status; 3] = [Status::Waiting, Status::Running, Status::Accepted];

/// What a session's logs add up to.
#[derive(Default)]
struct Totals {
    /// Runs in each of the [`URGENT`] statuses, per audience.
    urgent: [[u32; URGENT.len()]; 3],
    /// Pending actions, per audience.
    pending: [u64; 3],
    /// Runs that the server found stale, per audience.
    stale: [u32; 3],
    /// The newest run that shows each member.
    newest: [Option<u64>; SHOWN],
    last_activity: i64,
}

impl Totals {
    /// Counts a log in, or out again. The session's own log counts by its actions alone.
    fn count(&mut self, standing: &Standing, is_run: bool, is_in: bool) {
        let change = |count: &mut u32, by: bool| match is_in {
            true => *count += u32::from(by),
            false => *count -= u32::from(by),
        };
        for reader in 0..Audience::ALL.len() {
            let pending = u64::from(standing.pending[reader]);
            self.pending[reader] = if is_in { self.pending[reader] + pending } else { self.pending[reader] - pending };
            if is_run {
                for (count, status) in self.urgent[reader].iter_mut().zip(URGENT) {
                    change(count, standing.status[reader] == status);
                }
                change(&mut self.stale[reader], standing.stale[reader]);
            }
        }
    }

    /// Takes in what a log shows. A log goes on showing what it showed, and its time only grows.
    fn show(&mut self, standing: &Standing, run: Option<u64>) {
        for (newest, _) in self.newest.iter_mut().zip(standing.shows).filter(|(_, shows)| *shows) {
            *newest = run.max(*newest);
        }
        self.last_activity = self.last_activity.max(standing.last_activity);
    }
}

impl Session {
    /// Replaces how a log stands; false when the log is not there yet. It looks at no other log, for every commit does this.
    fn stand(&mut self, log: &LogId, created: u64, standing: Standing) -> bool {
        let (known, run) = match log {
            LogId::Session(_) => (self.own.as_mut().map(|(.., known)| known), None),
            LogId::Run(_) => {
                let at = self.runs.binary_search_by_key(&created, |run| run.created);
                (at.ok().map(|at| &mut self.runs[at].standing), Some(created))
            }
        };
        let Some(known) = known else { return false };
        let old = std::mem::replace(known, standing);
        self.totals.count(&old, run.is_some(), false);
        self.totals.count(&standing, run.is_some(), true);
        self.totals.show(&standing, run);
        true
    }

    /// The place of its first log; `None` when it has none any more.
    fn first(&self) -> Option<u64> {
        let run = self.runs.first().map(|run| run.created);
        self.own.as_ref().map(|(created, ..)| *created).into_iter().chain(run).min()
    }

    /// The first of its logs that names a parent, and the parent.
    fn named(&self) -> Option<(u64, SessionId)> {
        let own = self.own.as_ref().and_then(|(created, parent, _)| Some((*created, parent.clone()?)));
        let run = self.runs.iter().find_map(|run| Some((run.created, run.parent.clone()?)));
        own.into_iter().chain(run).min_by_key(|(created, _)| *created)
    }

    /// Adds a log, or changes the parent that it names and how it stands.
    fn put(&mut self, log: &LogId, created: u64, parent: Option<SessionId>, standing: Standing) {
        let is_namer = self.parent.as_ref().is_some_and(|(namer, _)| *namer == created);
        let is_known = self.stand(log, created, standing);
        match log {
            LogId::Session(_) => self.own = Some((created, parent.clone(), standing)),
            LogId::Run(id) => match self.runs.binary_search_by_key(&created, |run| run.created) {
                Ok(at) => self.runs[at].parent.clone_from(&parent),
                Err(at) => self.runs.insert(at, Run { created, id: id.clone(), parent: parent.clone(), standing }),
            },
        }
        if !is_known {
            let run = (log.kind() == LogKind::Run).then_some(created);
            self.totals.count(&standing, run.is_some(), true);
            self.totals.show(&standing, run);
        }
        match parent {
            Some(parent) if self.parent.as_ref().is_none_or(|(namer, _)| created <= *namer) => {
                self.parent = Some((created, parent));
            }
            None if is_namer => self.parent = self.named(),
            _ => {}
        }
    }

    /// Removes a log, and finds again among the others what only it may have shown.
    fn take(&mut self, log: &LogId) {
        let gone = match log {
            LogId::Session(_) => self.own.take().map(|(.., standing)| standing),
            LogId::Run(id) => {
                let at = self.runs.iter().position(|run| run.id == *id);
                at.map(|at| self.runs.remove(at).standing)
            }
        };
        let Some(gone) = gone else { return };
        self.totals.count(&gone, log.kind() == LogKind::Run, false);
        (self.totals.newest, self.totals.last_activity) = ([None; SHOWN], 0);
        let own = self.own.iter().map(|(.., standing)| (standing, None));
        let runs = self.runs.iter().map(|run| (&run.standing, Some(run.created)));
        own.chain(runs).for_each(|(standing, run)| self.totals.show(standing, run));
        self.parent = self.named();
    }

    /// What a list says of it to an audience.
    fn line(&self, reader: Audience) -> Line {
        let (totals, at) = (&self.totals, reader.index());
        let asks = self.own.as_ref().is_some_and(|(.., own)| own.pending[at] > 0);
        let urgent = URGENT.iter().zip(totals.urgent[at]).find(|(_, count)| *count > 0).map(|(status, _)| *status);
        let newest = || self.runs.last().map(|run| run.standing.status[at]);
        let mut shown: ListedLogs = totals.newest.map(|run| Some((LogKind::Run, run?)));
        if let Some((created, _, own)) = &self.own {
            for (place, _) in shown.iter_mut().zip(own.shows).filter(|(_, shows)| *shows) {
                *place = Some((LogKind::Session, *created));
            }
        }
        Line {
            status: if asks { Status::Waiting } else { urgent.or_else(newest).unwrap_or(Status::Unknown) },
            runs: self.runs.len(),
            pending: totals.pending[at],
            is_stale: totals.stale[at] > 0,
            last_activity: jiff::Timestamp::from_millisecond(totals.last_activity).ok().filter(|_| totals.last_activity > 0),
            parent: self.parent.as_ref().map(|(_, parent)| parent.clone()),
            shown,
        }
    }
}

/// What a list says of a session to one audience, and where it finds the texts. All of the session's logs count, however many
/// there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub status: Status,
    pub runs: usize,
    /// The pending actions of the session itself.
    pub pending: u64,
    /// Whether the server found one of its runs stale.
    pub is_stale: bool,
    pub last_activity: Option<jiff::Timestamp>,
    pub parent: Option<SessionId>,
    pub shown: ListedLogs,
}

/// How many actions are pending in the sessions below each session, where there are any.
#[derive(Debug, Default)]
pub struct PendingBelow(HashMap<SessionId, [u64; 3]>);

impl PendingBelow {
    /// Those below one session that an audience sees.
    #[must_use]
    pub fn of(&self, session: &SessionId, audience: Audience) -> u64 {
        self.0.get(session).map_or(0, |counts| counts[audience.index()])
    }
}

/// A session that asks, or one above it.
struct Node {
    id: SessionId,
    own: [u64; 3],
    below: [u64; 3],
    parent: Option<usize>,
    /// Children among the nodes whose counts have not been added to this one yet.
    children_left: usize,
}

/// Sums the pending actions of all descendants, each counted once. The time is linear in the number of nodes, at any depth.
fn sum_up(mut nodes: Vec<Node>) -> PendingBelow {
    let plus = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|reader| a[reader] + b[reader]);
    let mut done: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].children_left == 0).collect();
    let mut next = 0;
    while let Some(at) = done.get(next).copied() {
        next += 1;
        let Some(parent) = nodes[at].parent else { continue };
        let sum = plus(nodes[at].own, nodes[at].below);
        let above = &mut nodes[parent];
        above.below = plus(above.below, sum);
        above.children_left -= 1;
        if above.children_left == 0 {
            done.push(parent);
        }
    }
    // What is left are circles of parents: all that hangs on one is below each of its sessions, except the session itself.
    for first in 0..nodes.len() {
        let mut circle = Vec::new();
        let mut at = first;
        while nodes[at].children_left > 0 {
            nodes[at].children_left = 0;
            circle.push(at);
            at = nodes[at].parent.expect("each session of a circle has a parent");
        }
        let sum = circle.iter().fold([0; 3], |sum, at| plus(sum, plus(nodes[*at].own, nodes[*at].below)));
        for at in circle {
            nodes[at].below = std::array::from_fn(|reader| sum[reader] - nodes[at].own[reader]);
        }
    }
    let below = nodes.into_iter().filter(|node| node.below != [0; 3]);
    PendingBelow(below.map(|node| (node.id, node.below)).collect())
}

/// Who waits for what has changed. Telling them takes as long as there are many; nobody is to wait for that.
#[must_use]
#[derive(Default)]
pub struct Changed(HashMap<SessionId, watch::Sender<u64>>);

impl Changed {
    /// Adds what else has changed.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Tells those who wait.
    pub fn tell(self) {
        for changes in self.0.into_values() {
            changes.send_modify(|count| *count += 1);
        }
    }
}

/// The session that a log belongs to as its summary says.
fn session_of<'a>(log: &'a LogId, summary: &'a Summary) -> Option<&'a SessionId> {
    match log {
        LogId::Session(id) => Some(id),
        LogId::Run(_) => summary.session_id.as_ref(),
    }
}

impl Sessions {
    /// Reads what the store's logs say. `also` is told it, too: it is read only once. A log whose summary cannot be read is named
    /// in the server's log, and is in no session.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn load(store: &impl Store, also: impl Fn(&LogId, Option<&Summary>)) -> Result<Self, StoreError> {
        let mut logs = Vec::new();
        for kind in [LogKind::Run, LogKind::Session] {
            let mut before = None;
            loop {
                let page = store.list(kind, before, PAGE).await?;
                before = page.last().map(|log| log.created);
                let is_last = page.len() < PAGE;
                logs.extend(page.into_iter().filter_map(|listed| {
                    let summary = Summary::listed(&listed);
                    also(&listed.log, summary.as_ref());
                    let summary = summary?;
                    let session = session_of(&listed.log, &summary)?.clone();
                    Some((listed.created, session, listed.log, Standing::of(&summary), summary.parent_session_id))
                }));
                if is_last {
                    break;
                }
            }
        }
        let mut inner = Inner::default();
        // Oldest first, so that each goes to the end of what is there.
        for (created, session, log, standing, parent) in logs.into_iter().rev() {
            inner.put(&session, &log, created, parent.as_ref(), standing);
        }
        Ok(Self { inner: RwLock::new(inner), below: Mutex::default() })
    }

    /// Takes in what a log of this place of creation says now, and no longer what it said `before`, if it was there.
    pub fn note(&self, log: &LogId, created: u64, before: Option<&Summary>, now: &Summary) -> Changed {
        let session = session_of(log, now);
        let mut changed = Changed::default();
        if session.is_none() && before.and_then(|before| session_of(log, before)).is_none() {
            return changed;
        }
        let standing = Standing::of(now);
        let mut inner = self.inner.write();
        let is_member =
            |before: &&Summary| session_of(log, before) == session && before.parent_session_id == now.parent_session_id;
        if let (Some(session), true) = (session, before.is_some_and(|before| is_member(&before))) {
            inner.change(session, |session| {
                session.stand(log, created, standing);
            });
            return changed;
        }
        if let Some(old) = before.and_then(|before| session_of(log, before)).filter(|old| Some(*old) != session) {
            inner.concerned(old, &mut changed);
            inner.take(old, log);
            inner.concerned(old, &mut changed);
        }
        if let Some(session) = session {
            // Those above it before this and those above it after.
            inner.concerned(session, &mut changed);
            inner.put(session, log, created, now.parent_session_id.as_ref(), standing);
            inner.concerned(session, &mut changed);
        }
        changed
    }

    /// Forgets a log that was erased, and that said this of itself.
    pub fn forget(&self, log: &LogId, said: &Summary) -> Changed {
        let mut changed = Changed::default();
        let Some(session) = session_of(log, said) else { return changed };
        let mut inner = self.inner.write();
        inner.concerned(session, &mut changed);
        inner.take(session, log);
        inner.concerned(session, &mut changed);
        changed
    }

    /// Up to `limit` sessions before a place, the newest created first, each with its place.
    #[must_use]
    pub fn list(&self, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
        let inner = self.inner.read();
        let older = inner.places.range(..before.unwrap_or(u64::MAX)).rev().take(limit);
        older.map(|(place, session)| (*place, session.clone())).collect()
    }

    /// The place of a session; `None` when it is not there.
    #[must_use]
    pub fn place_of(&self, session: &SessionId) -> Option<u64> {
        self.inner.read().known.get(session).map(|session| session.place)
    }

    /// The session's runs, in the order of their creation.
    #[must_use]
    pub fn runs_of(&self, session: &SessionId) -> Vec<RunId> {
        let inner = self.inner.read();
        inner.known.get(session).map(|session| session.runs.iter().map(|run| run.id.clone()).collect()).unwrap_or_default()
    }

    /// The session's own log and its runs, each with its place of creation, the newest run first and its own log before all;
    /// and how many runs there are in all.
    #[must_use]
    pub fn logs_of(&self, session: &SessionId, runs_max: usize) -> Option<(Vec<(u64, LogId)>, usize)> {
        let inner = self.inner.read();
        let known = inner.known.get(session)?;
        let own = known.own.iter().map(|(created, ..)| (*created, LogId::Session(session.clone())));
        let runs = known.runs.iter().rev().take(runs_max).map(|run| (run.created, LogId::Run(run.id.clone())));
        Some((own.chain(runs).collect(), known.runs.len()))
    }

    /// What a list says of a session to this audience; `None` when it is not there.
    #[must_use]
    pub fn line(&self, session: &SessionId, audience: Audience) -> Option<Line> {
        self.inner.read().known.get(session).map(|session| session.line(audience))
    }

    /// The session's runs with actions that this audience is asked for, the newest first, each with its place of creation.
    #[must_use]
    pub fn asking_runs(&self, session: &SessionId, audience: Audience, runs_max: usize) -> Vec<(u64, RunId)> {
        let inner = self.inner.read();
        let runs = inner.known.get(session).into_iter().flat_map(|session| session.runs.iter().rev());
        let asking = runs.filter(|run| run.standing.pending[audience.index()] > 0).take(runs_max);
        asking.map(|run| (run.created, run.id.clone())).collect()
    }

    /// How many actions are pending below each session. It is summed again only when a count or a parent has changed.
    #[must_use]
    pub fn pending_below(&self) -> Arc<PendingBelow> {
        let version = self.inner.read().version;
        let mut known = self.below.lock();
        if let Some((_, below)) = known.as_ref().filter(|(at, _)| *at == version) {
            return below.clone();
        }
        let mut asking: Vec<SessionId> = Vec::new();
        loop {
            let inner = self.inner.read();
            let from = asking.last().map_or(Bound::Unbounded, Bound::Excluded);
            let page: Vec<_> = inner.asking.range::<SessionId, _>((from, Bound::Unbounded)).take(PAGE).cloned().collect();
            drop(inner);
            if page.is_empty() {
                break;
            }
            asking.extend(page);
        }
        let below = Arc::new(sum_up(self.nodes(asking)));
        *known = Some((version, below.clone()));
        below
    }

    /// The same for a reader to whom only these sessions count.
    #[must_use]
    pub fn pending_below_among(&self, sessions: Vec<SessionId>) -> PendingBelow {
        sum_up(self.nodes(sessions))
    }

    /// These sessions and all that are above them.
    fn nodes(&self, counted: Vec<SessionId>) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(counted.len());
        let mut places: HashMap<SessionId, usize> = HashMap::with_capacity(counted.len());
        let mut place = |nodes: &mut Vec<Node>, id: SessionId| {
            *places.entry(id).or_insert_with_key(|id| {
                nodes.push(Node { id: id.clone(), own: [0; 3], below: [0; 3], parent: None, children_left: 0 });
                nodes.len() - 1
            })
        };
        for id in counted {
            place(&mut nodes, id);
        }
        let (counted, mut at) = (nodes.len(), 0);
        while at < nodes.len() {
            let (inner, end) = (self.inner.read(), nodes.len().min(at + PAGE));
            for at in at..end {
                let Some(session) = inner.known.get(&nodes[at].id) else { continue };
                if at < counted {
                    nodes[at].own = session.totals.pending;
                }
                if let Some((_, parent)) = &session.parent {
                    let parent = place(&mut nodes, parent.clone());
                    nodes[at].parent = Some(parent);
                    nodes[parent].children_left += 1;
                }
            }
            at = end;
        }
        nodes
    }

    /// Whether the session has a log of its own.
    #[must_use]
    pub fn has_own_log(&self, session: &SessionId) -> bool {
        self.inner.read().known.get(session).is_some_and(|session| session.own.is_some())
    }

    /// The session's parent.
    #[must_use]
    pub fn parent_of(&self, session: &SessionId) -> Option<SessionId> {
        self.inner.read().parent_of(session).cloned()
    }

    /// All that are below a session, each once, whatever circles there are: its children, then theirs, and so on; those of
    /// one parent in the order of their creation.
    #[must_use]
    pub fn children_of(&self, session: &SessionId) -> Vec<SessionId> {
        let mut found = Vec::new();
        let mut seen = HashSet::from([session.clone()]);
        let mut next = Some(session.clone());
        let mut at = 0;
        while let Some(parent) = next {
            let mut children = self.inner.read().placed_children(&parent);
            children.sort_unstable();
            found.extend(children.into_iter().map(|(_, child)| child).filter(|child| seen.insert(child.clone())));
            next = found.get(at).cloned();
            at += 1;
        }
        found
    }

    /// Counts on when the session, which need not be there yet, or one below it gains or loses a log, a child or a parent.
    pub fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.inner.write().watched.entry(session.clone()).or_default().subscribe()
    }

    /// Forgets what nobody waits for.
    pub fn sweep(&self) {
        self.inner.write().watched.retain(|_, changes| changes.receiver_count() > 0);
    }
}

impl Inner {
    fn parent_of(&self, session: &SessionId) -> Option<&SessionId> {
        self.known.get(session)?.parent.as_ref().map(|(_, parent)| parent)
    }

    fn placed_children(&self, parent: &SessionId) -> Vec<(u64, SessionId)> {
        let children = self.children.get(parent).into_iter().flatten();
        children.map(|child| (self.known.get(child).map_or(0, |session| session.place), child.clone())).collect()
    }

    /// Who waits for the session, or for one above it.
    fn concerned(&self, session: &SessionId, changed: &mut Changed) {
        if self.watched.is_empty() {
            return;
        }
        let mut seen = HashSet::new();
        let mut next = Some(session);
        while let Some(session) = next.filter(|session| seen.len() <= ANCESTORS_MAX && seen.insert(*session)) {
            if let Some(changes) = self.watched.get(session) {
                changed.0.insert(session.clone(), changes.clone());
            }
            next = self.parent_of(session);
        }
    }

    fn put(&mut self, session: &SessionId, log: &LogId, created: u64, parent: Option<&SessionId>, standing: Standing) {
        // Nobody is a child of itself. And one text of an id will do.
        let parent = parent.filter(|parent| *parent != session);
        let parent = parent.map(|parent| self.children.get_key_value(parent).map_or(parent, |(known, _)| known).clone());
        self.change(session, |session| session.put(log, created, parent, standing));
    }

    fn take(&mut self, session: &SessionId, log: &LogId) {
        self.change(session, |session| session.take(log));
    }

    /// Changes a session, and what is derived from it.
    fn change(&mut self, id: &SessionId, change: impl FnOnce(&mut Session)) {
        let session = self.known.entry(id.clone()).or_default();
        let (place, parent) = (session.place, session.parent.as_ref().map(|(_, parent)| parent.clone()));
        let pending = session.totals.pending;
        change(session);
        let asks = session.totals.pending;
        let first = session.first();
        let now = session.parent.as_ref().map(|(_, parent)| parent.clone());
        session.place = first.unwrap_or(0);
        if first != Some(place) {
            // Of a session that is new there is nothing at place 0.
            self.places.remove(&place);
            self.places.extend(first.map(|first| (first, id.clone())));
        }
        if first.is_none() {
            self.known.remove(id);
        }
        if asks != pending {
            self.version += 1;
            match asks {
                [0, 0, 0] => drop(self.asking.remove(id)),
                _ => drop(self.asking.insert(id.clone())),
            }
        }
        if now != parent {
            self.version += 1;
            if let Some(parent) = parent
                && let Some(children) = self.children.get_mut(&parent)
            {
                children.remove(id);
                if children.is_empty() {
                    self.children.remove(&parent);
                }
            }
            if let Some(now) = now {
                self.children.entry(now).or_default().insert(id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::memory::MemoryStore;
    use crate::log::{Append, META};
    use crate::model::{Epoch, Sequence};
    use bytes::Bytes;

    fn id(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    fn run(name: &str) -> LogId {
        LogId::Run(RunId::new(name).unwrap())
    }

    fn own(name: &str) -> LogId {
        LogId::Session(id(name))
    }

    /// A summary that names this session and this parent; `""` names none.
    fn says(session: &str, parent: &str) -> Summary {
        let named = |name: &str| (!name.is_empty()).then(|| id(name));
        Summary { session_id: named(session), parent_session_id: named(parent), ..Summary::default() }
    }

    fn names(sessions: impl IntoIterator<Item = SessionId>) -> Vec<String> {
        sessions.into_iter().map(|session| session.to_string()).collect()
    }

    fn runs(sessions: &Sessions, session: &str) -> Vec<String> {
        sessions.runs_of(&id(session)).iter().map(ToString::to_string).collect()
    }

    fn below(sessions: &Sessions, session: &str) -> Vec<String> {
        names(sessions.children_of(&id(session)))
    }

    #[test]
    fn sessions_are_listed_newest_first_by_the_place_of_their_first_log() {
        let sessions = Sessions::default();
        for (n, session) in (1..).zip(["s", "t", "s", "u", "t", "v"]) {
            sessions.note(&run(&format!("r{n}")), n, None, &says(session, "")).tell();
        }
        sessions.note(&run("nobody's"), 7, None, &says("", "")).tell();
        sessions.note(&own("w"), 8, None, &says("", "")).tell();
        sessions.note(&own("t"), 9, None, &says("t", "")).tell();
        let first = sessions.list(None, 3);
        assert_eq!(first, [(8, id("w")), (6, id("v")), (4, id("u"))]);
        sessions.note(&run("late"), 10, None, &says("x", "")).tell();
        assert_eq!(sessions.list(Some(4), 3), [(2, id("t")), (1, id("s"))]);
        assert_eq!(sessions.list(Some(1), 3), []);
        assert_eq!(
            (runs(&sessions, "s"), runs(&sessions, "t")),
            (vec!["r1".into(), "r3".into()], vec!["r2".into(), "r5".into()])
        );
        assert_eq!(["s", "t", "w"].map(|session| sessions.has_own_log(&id(session))), [false, true, true]);
        assert_eq!((runs(&sessions, "w"), runs(&sessions, "never")), (vec![], vec![]));
    }

    #[test]
    fn a_run_that_shows_its_session_late_or_changes_it_stands_where_it_was_created() {
        let sessions = Sessions::default();
        sessions.note(&run("a"), 1, None, &says("", "")).tell();
        sessions.note(&run("b"), 2, None, &says("s", "")).tell();
        assert_eq!(sessions.list(None, 9), [(2, id("s"))]);
        sessions.note(&run("a"), 1, Some(&says("", "")), &says("s", "")).tell();
        assert_eq!((runs(&sessions, "s"), sessions.place_of(&id("s"))), (vec!["a".into(), "b".into()], Some(1)));
        sessions.note(&run("a"), 1, Some(&says("s", "")), &says("t", "s")).tell();
        assert_eq!((runs(&sessions, "s"), runs(&sessions, "t")), (vec!["b".into()], vec!["a".into()]));
        assert_eq!(sessions.list(None, 9), [(2, id("s")), (1, id("t"))]);
        assert_eq!(below(&sessions, "s"), ["t"]);
    }

    #[test]
    fn the_first_log_that_names_a_parent_decides_and_erasing_it_leaves_it_to_the_next() {
        let sessions = Sessions::default();
        sessions.note(&run("a"), 1, None, &says("s", "")).tell();
        sessions.note(&run("b"), 5, None, &says("s", "late")).tell();
        sessions.note(&own("s"), 3, None, &says("s", "own")).tell();
        assert_eq!((below(&sessions, "own"), below(&sessions, "late")), (vec!["s".into()], vec![]));
        assert_eq!(sessions.place_of(&id("own")), None, "it is named, and not there");
        sessions.note(&run("a"), 1, Some(&says("s", "")), &says("s", "first")).tell();
        assert_eq!(sessions.parent_of(&id("s")), Some(id("first")));
        for (log, parent) in [(run("a"), Some(id("own"))), (own("s"), Some(id("late"))), (run("b"), None)] {
            assert!(sessions.place_of(&id("s")).is_some());
            sessions.forget(&log, &says("s", "")).tell();
            assert_eq!(sessions.parent_of(&id("s")), parent);
        }
        assert_eq!((sessions.list(None, 9), below(&sessions, "late")), (vec![], vec![]));
        let inner = sessions.inner.read();
        assert!(inner.known.is_empty() && inner.children.is_empty(), "nothing is left of it");
    }

    #[test]
    fn those_below_a_session_are_found_once_each_whatever_circles_there_are() {
        let sessions = Sessions::default();
        for (n, (session, parent)) in
            (1..).zip([("root", "leaf"), ("b", "root"), ("a", "root"), ("leaf", "a"), ("self", "self"), ("c", "b")])
        {
            sessions.note(&run(session), n, None, &says(session, parent)).tell();
        }
        assert_eq!(below(&sessions, "root"), ["b", "a", "c", "leaf"]);
        assert_eq!(below(&sessions, "leaf"), ["root", "b", "a", "c"]);
        assert_eq!((below(&sessions, "self"), sessions.parent_of(&id("self"))), (vec![], None));
        let mut waiting = sessions.watch(&id("b"));
        sessions.note(&run("more"), 9, None, &says("leaf", "")).tell();
        assert!(!waiting.has_changed().unwrap(), "it is not above leaf");
        sessions.note(&run("more"), 10, None, &says("c", "")).tell();
        assert!(waiting.has_changed().unwrap());
        assert_eq!(*waiting.borrow_and_update(), 1);
    }

    /// The same, with so many pending actions.
    fn asks(session: &str, parent: &str, pending: usize) -> Summary {
        let mut summary = says(session, parent);
        summary.run.pending = (0..pending).map(|n| n.to_string()).collect();
        summary
    }

    #[test]
    fn what_waits_far_below_is_counted_at_every_level_and_follows_a_session_to_another_parent() {
        const LEVELS: u64 = 5000;
        let sessions = Sessions::default();
        for level in 1..=LEVELS {
            let said = asks(&format!("s{level}"), &format!("s{}", level - 1), usize::from(level == LEVELS) * 3);
            sessions.note(&run(&format!("r{level}")), level, None, &said).tell();
        }
        let below = |session: &str| sessions.pending_below().of(&id(session), Audience::User);
        assert_eq!(["s0", "s1", "s4999", "s5000"].map(below), [3, 3, 3, 0]);
        // Its own log is older than what names the parent.
        let (first, moved) = (asks("s2500", "", 0), asks("s2500", "elsewhere", 0));
        sessions.note(&own("s2500"), 0, None, &first).tell();
        sessions.note(&own("s2500"), 0, Some(&first), &moved).tell();
        assert_eq!(["s0", "s2499", "elsewhere", "s2500"].map(below), [0, 0, 3, 3]);
        assert!(Arc::ptr_eq(&sessions.pending_below(), &sessions.pending_below()), "it is summed once");
        let last = asks("s5000", "s4999", 3);
        sessions.note(&run("r5000"), LEVELS, Some(&last), &asks("s5000", "s4999", 1)).tell();
        assert_eq!(["elsewhere", "s2500"].map(below), [1, 1]);
        sessions.forget(&run("r5000"), &last).tell();
        assert_eq!(["elsewhere", "s2500"].map(below), [0, 0]);
        assert!(sessions.inner.read().asking.is_empty());
    }

    #[test]
    fn a_commit_costs_no_more_in_a_session_of_many_runs() {
        const RUNS: u64 = 20_000;
        let time_of = |runs: u64| {
            let sessions = Sessions::default();
            let mut said = asks("s", "", 1);
            said.last_activity = Some("2026-01-01T00:00:00.000Z".into());
            for n in 1..=runs {
                sessions.note(&run(&format!("r{n}")), n, None, &said).tell();
            }
            let mut now = said.clone();
            now.run.pending.insert("more".into());
            let once = || {
                let begun = std::time::Instant::now();
                for _ in 0..1000 {
                    sessions.note(&run("r1"), 1, Some(&said), &now).tell();
                }
                begun.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap()
        };
        let (few, many) = (time_of(1), time_of(RUNS));
        // A look at each run would make it thousands of times as long.
        assert!(many < few * 20, "{many:?} with {RUNS} runs, {few:?} with one");
    }

    #[test]
    fn a_new_log_is_told_to_so_many_ancestors_and_no_more() {
        let sessions = Sessions::default();
        let levels = ANCESTORS_MAX as u64 + 50;
        for level in 1..=levels {
            sessions
                .note(&run(&format!("r{level}")), level, None, &says(&format!("s{level}"), &format!("s{}", level - 1)))
                .tell();
        }
        let (near, far) = (sessions.watch(&id("s60")), sessions.watch(&id("s10")));
        sessions.note(&run("new"), levels + 1, None, &says(&format!("s{levels}"), "")).tell();
        assert_eq!((near.has_changed().unwrap(), far.has_changed().unwrap()), (true, false));
    }

    #[test]
    fn how_a_session_stands_follows_all_of_its_logs() {
        let sessions = Sessions::default();
        let stands = |status, time: &str| {
            let mut said = says("s", "");
            (said.run.status, said.last_activity) = (status, Some(time.into()));
            said
        };
        let line = || sessions.line(&id("s"), Audience::User).unwrap();
        let time = || line().last_activity.map(|time| format!("{time:.3}")).unwrap();
        let (old, new) =
            (stands(Status::Running, "2026-01-01T00:00:00.001Z"), stands(Status::Completed, "2026-01-02T00:00:00.500Z"));
        sessions.note(&run("old"), 1, None, &old).tell();
        for n in 2..100 {
            sessions.note(&run(&format!("r{n}")), n, None, &new).tell();
        }
        assert_eq!((line().status, line().runs, time()), (Status::Running, 99, "2026-01-02T00:00:00.500Z".into()));
        let mut waiting = stands(Status::Waiting, "2026-01-03T00:00:00.000Z");
        waiting.run.pending.insert("a".into());
        waiting.shown.title("Oldest");
        sessions.note(&run("old"), 1, Some(&old), &waiting).tell();
        assert_eq!((line().status, line().pending, line().shown[0]), (Status::Waiting, 1, Some((LogKind::Run, 1))));
        let mut titled = new.clone();
        titled.shown.title("Newer");
        sessions.note(&run("r50"), 50, Some(&new), &titled).tell();
        assert_eq!(line().shown[0], Some((LogKind::Run, 50)));
        sessions.note(&own("s"), 100, None, &titled).tell();
        assert_eq!(line().shown[0], Some((LogKind::Session, 100)));
        sessions.forget(&own("s"), &titled).tell();
        sessions.forget(&run("r50"), &titled).tell();
        assert_eq!((line().shown[0], time()), (Some((LogKind::Run, 1)), "2026-01-03T00:00:00.000Z".into()));
        sessions.forget(&run("old"), &waiting).tell();
        assert_eq!((line().status, line().pending, line().shown[0]), (Status::Completed, 0, None));
        assert_eq!(time(), "2026-01-02T00:00:00.500Z");
        let inner = sessions.inner.read();
        let totals = &inner.known[&id("s")].totals;
        assert_eq!((totals.urgent, totals.pending, totals.stale), ([[0; 3]; 3], [0; 3], [0; 3]));
    }

    #[test]
    fn who_waits_for_a_session_learns_what_happens_to_it_and_below_it() {
        let sessions = Sessions::default();
        let mut above = sessions.watch(&id("above"));
        let mut other = sessions.watch(&id("other"));
        let mut told = |what: &str| {
            assert!(!other.has_changed().unwrap(), "{what} is not of its doing");
            let is_told = above.has_changed().unwrap();
            above.mark_unchanged();
            is_told
        };
        sessions.note(&run("a"), 1, None, &says("s", "")).tell();
        assert!(!told("a session of nobody's"));
        sessions.note(&run("b"), 2, None, &says("s", "above")).tell();
        assert!(told("a child"));
        sessions.note(&run("c"), 3, None, &says("deep", "s")).tell();
        assert!(told("a child's child"));
        sessions.forget(&run("c"), &says("deep", "s")).tell();
        assert!(told("its end"));
        sessions.note(&run("b"), 2, Some(&says("s", "above")), &says("t", "")).tell();
        assert!(told("a child that is one no more"));
        sessions.note(&run("d"), 4, None, &says("s", "")).tell();
        assert!(!told("who was a child"));
        sessions.note(&own("other"), 5, None, &says("", "")).tell();
        assert!(other.has_changed().unwrap());
        other.mark_unchanged();
        drop(above);
        sessions.sweep();
        assert_eq!(sessions.inner.read().watched.len(), 1);
    }

    #[tokio::test]
    async fn what_is_read_from_a_store_is_what_was_kept_while_it_was_written() {
        let store = MemoryStore::new();
        let kept = Sessions::default();
        for n in 0..3000_u64 {
            let log = if n % 50 == 7 { own(&format!("s{}", n % 90)) } else { run(&format!("r{n}")) };
            let parent = if n % 4 == 1 { format!("s{}", n % 7) } else { String::new() };
            let mut said = match n % 3 {
                0 => says("", ""),
                _ => says(&format!("s{}", n % 90), &parent),
            };
            said.run.pending.extend((0..n % 5).map(|n| n.to_string()));
            said.last_activity = Some(format!("2026-01-01T00:{:02}:{:02}.000Z", n / 60, n % 60).into());
            let expected = Sequence::NONE;
            let meta = Bytes::from(serde_json::to_vec(&said).unwrap());
            let state = vec![(Bytes::from_static(META), Some(meta))];
            let (epoch, rows) = (Epoch::from_random(1), Bytes::new());
            let append = Append { log: log.clone(), epoch, expected, last: expected, rows, blobs: Vec::new(), state };
            let outcomes = store.commit(&[append]).await.unwrap();
            let crate::log::Outcome::Committed { created, .. } = outcomes[0] else { panic!("{outcomes:?}") };
            kept.note(&log, created, None, &said).tell();
        }
        let read = Sessions::load(&store, |_, _| {}).await.unwrap();
        let all = kept.list(None, usize::MAX);
        assert!(all.len() > 50);
        assert_eq!(read.list(None, usize::MAX), all);
        for (_, session) in &all {
            assert_eq!(read.runs_of(session), kept.runs_of(session), "{session}");
            assert_eq!(read.parent_of(session), kept.parent_of(session), "{session}");
            assert_eq!(read.children_of(session), kept.children_of(session), "{session}");
            assert_eq!(read.has_own_log(session), kept.has_own_log(session), "{session}");
            assert_eq!(read.line(session, Audience::User), kept.line(session, Audience::User), "{session}");
            assert_eq!(
                read.pending_below().of(session, Audience::User),
                kept.pending_below().of(session, Audience::User),
                "{session}"
            );
        }
    }
}
