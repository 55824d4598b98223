//! The session index: the sessions of a store, the runs of each session, and the parents of sessions.
//!
//! The index lies in memory and derives from the logs' summaries. The server reads it from the store at start; the
//! applier updates it before it answers an append. So the index knows every visible log.
//!
//! * A session exists when a log belongs to it: a run, or the session's own log.
//! * A session's place in the order of creation is that of its first log. The place is unique and survives a restart.
//!   It changes only when that first log is erased, or when an older run turns out to belong to the session.
//! * A session's parent is the one named by the first of its logs that names a parent. A parent need not exist itself.
//!
//! For each session the index counts pending actions and runs by status, and records the logs of its preview. A commit
//! updates these counts by the change of one log, so its cost does not depend on the number of runs. The pending
//! actions below a session are summed on demand ([`Sessions::pending_below`]), so a commit does no work for the
//! ancestors.
//!
//! A run of a session costs about 90 bytes plus its id, a session of one run about 170 bytes plus its id; a run without a session costs
//! nothing. The committer waits for readers of the index. So a reader holds the lock only while it copies the ids of
//! one session's runs or children.

use super::commit::Summary;
use super::{LogId, LogKind, Store, StoreError};
use crate::model::{Audience, RunId, SessionId};
use crate::source::ledger::Status;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::watch;

/// Logs per page while the server builds the index, and sessions that one lock acquisition reads.
const PAGE: usize = 1024;
/// Ancestors of a session that are notified of its new and erased logs. It bounds the work of a commit.
pub const ANCESTORS_MAX: usize = 256;

/// The sessions of one store.
#[derive(Default)]
pub struct Sessions {
    inner: RwLock<Inner>,
    /// The pending actions below each session, with the version of the counts that they were computed from.
    below: Mutex<Option<(u64, Arc<PendingBelow>)>>,
}

#[derive(Default)]
struct Inner {
    /// Boxed, because a table of many has room for twice as many.
    sessions: HashMap<SessionId, Box<Session>>,
    by_created: BTreeMap<u64, SessionId>,
    children: HashMap<SessionId, HashSet<SessionId>>,
    /// The sessions with pending actions in their own logs.
    with_pending: BTreeSet<SessionId>,
    /// Incremented when a session's own pending actions or its parent change.
    version: u64,
    /// Counters of the changes to a session and to its descendants, for the watchers of the session.
    watchers: HashMap<SessionId, watch::Sender<u64>>,
}

#[derive(Default)]
struct Session {
    created: u64,
    /// The parent, after the creation order of the first log that names one.
    parent: Option<(u64, SessionId)>,
    /// The session's own log: its creation order, the parent that it names, and its statistics.
    own: Option<Box<(u64, Option<SessionId>, LogStats)>>,
    /// Ordered by creation. The index is read newest first, so a run may come at either end.
    runs: VecDeque<Run>,
    /// Kept for a session of several runs only; others are summed on demand. Most sessions have one run.
    totals: Option<Box<Totals>>,
}

struct Run {
    created: u64,
    id: RunId,
    parent: Option<SessionId>,
    stats: LogStats,
}

/// The preview fields of a log, in the order of [`PreviewSources`].
const PREVIEW_FIELDS: usize = 5;

/// The logs that supply a session's title, preview text, unread count, pin and staleness.
///
/// Each is the session's own log if that has the field, otherwise the newest run that has it, given by kind and
/// creation order.
pub type PreviewSources = [Option<(LogKind, u64)>; PREVIEW_FIELDS];

/// The data of one log that session lists need, per audience where audiences differ.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LogStats {
    status: [Status; 3],
    pending: [u32; 3],
    /// Whether the server found the run stale.
    stale: [bool; 3],
    has_preview: [bool; PREVIEW_FIELDS],
    /// Milliseconds since 1970; 0 for none.
    last_activity: i64,
}

impl LogStats {
    fn of(summary: &Summary) -> Self {
        let seen = Audience::ALL.map(|audience| summary.run_for(audience));
        let preview = &summary.preview;
        let time = summary.last_activity.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        Self {
            status: seen.map(|run| run.status),
            pending: seen.map(|run| u32::try_from(run.pending.len()).unwrap_or(u32::MAX)),
            stale: seen.map(|run| run.stale),
            has_preview: [
                preview.title.is_some(),
                preview.message.is_some(),
                preview.unread.is_some(),
                preview.pinned.is_some(),
                preview.stale.is_some(),
            ],
            last_activity: time.map_or(0, jiff::Timestamp::as_millisecond),
        }
    }
}

/// The run statuses that determine a session's status, most urgent first.
const URGENT: [Status; 3] = [Status::Waiting, Status::Running, Status::Accepted];

/// The sums over a session's logs.
#[derive(Debug, Default, Clone, PartialEq)]
struct Totals {
    /// Runs in each of the [`URGENT`] statuses, per audience.
    urgent: [[u32; URGENT.len()]; 3],
    /// Pending actions, per audience.
    pending: [u64; 3],
    /// Runs that the server found stale, per audience.
    stale: [u32; 3],
    /// The newest run that has each preview field.
    newest: [Option<NonZeroU64>; PREVIEW_FIELDS],
    last_activity: i64,
}

impl Totals {
    /// Adds or subtracts a log. Of the session's own log only the pending actions count.
    fn count(&mut self, stats: &LogStats, is_run: bool, is_in: bool) {
        let change = |count: &mut u32, by: bool| match is_in {
            true => *count += u32::from(by),
            false => *count -= u32::from(by),
        };
        for reader in 0..Audience::ALL.len() {
            let pending = u64::from(stats.pending[reader]);
            self.pending[reader] = if is_in { self.pending[reader] + pending } else { self.pending[reader] - pending };
            if is_run {
                for (count, status) in self.urgent[reader].iter_mut().zip(URGENT) {
                    change(count, stats.status[reader] == status);
                }
                change(&mut self.stale[reader], stats.stale[reader]);
            }
        }
    }

    /// Merges the preview fields of a log. A log never loses a field, and its last activity only grows.
    fn merge_preview(&mut self, stats: &LogStats, run: Option<u64>) {
        for (newest, _) in self.newest.iter_mut().zip(stats.has_preview).filter(|(_, has_preview)| *has_preview) {
            *newest = run.and_then(NonZeroU64::new).max(*newest);
        }
        self.last_activity = self.last_activity.max(stats.last_activity);
    }
}

impl Session {
    /// Replaces the statistics of a log; `false` when the log is unknown.
    ///
    /// Every commit calls this, so it reads no other log.
    fn update_log(&mut self, log: &LogId, created: u64, stats: LogStats) -> bool {
        let (known, run) = match log {
            LogId::Session(_) => (self.own.as_mut().map(|own| &mut own.2), None),
            LogId::Run(_) => {
                let at = self.runs.binary_search_by_key(&created, |run| run.created);
                (at.ok().map(|at| &mut self.runs[at].stats), Some(created))
            }
        };
        let Some(known) = known else { return false };
        let old = std::mem::replace(known, stats);
        if let Some(totals) = &mut self.totals {
            totals.count(&old, run.is_some(), false);
            totals.count(&stats, run.is_some(), true);
            totals.merge_preview(&stats, run);
        }
        true
    }

    /// The sums over the session's logs.
    fn totals(&self) -> Cow<'_, Totals> {
        self.totals.as_deref().map_or_else(|| Cow::Owned(self.sum()), Cow::Borrowed)
    }

    fn sum(&self) -> Totals {
        let mut totals = Totals::default();
        let own = self.own.iter().map(|own| (&own.2, None));
        let runs = self.runs.iter().map(|run| (&run.stats, Some(run.created)));
        for (stats, run) in own.chain(runs) {
            totals.count(stats, run.is_some(), true);
            totals.merge_preview(stats, run);
        }
        totals
    }

    /// The creation order of its first log; `None` when it has no log.
    fn first_created(&self) -> Option<u64> {
        let run = self.runs.front().map(|run| run.created);
        self.own.as_ref().map(|own| own.0).into_iter().chain(run).min()
    }

    /// The parent, after the creation order of the first log that names one.
    fn first_parent(&self) -> Option<(u64, SessionId)> {
        let own = self.own.as_ref().and_then(|own| Some((own.0, own.1.clone()?)));
        let run = self.runs.iter().find_map(|run| Some((run.created, run.parent.clone()?)));
        own.into_iter().chain(run).min_by_key(|(created, _)| *created)
    }

    /// Adds a log, or updates its parent and statistics.
    fn upsert_log(&mut self, log: &LogId, created: u64, parent: Option<SessionId>, stats: LogStats) {
        let is_namer = self.parent.as_ref().is_some_and(|(namer, _)| *namer == created);
        let is_known = self.update_log(log, created, stats);
        match log {
            LogId::Session(_) => self.own = Some(Box::new((created, parent.clone(), stats))),
            LogId::Run(id) => match self.runs.binary_search_by_key(&created, |run| run.created) {
                Ok(at) => self.runs[at].parent.clone_from(&parent),
                Err(at) => {
                    if self.runs.is_empty() {
                        // Most sessions have one run. The standard library would take room for four.
                        self.runs.reserve_exact(1);
                    }
                    self.runs.insert(at, Run { created, id: id.clone(), parent: parent.clone(), stats });
                }
            },
        }
        match &mut self.totals {
            _ if is_known => {}
            Some(totals) => {
                let run = (log.kind() == LogKind::Run).then_some(created);
                totals.count(&stats, run.is_some(), true);
                totals.merge_preview(&stats, run);
            }
            None => self.totals = (self.runs.len() > 1).then(|| Box::new(self.sum())),
        }
        match parent {
            Some(parent) if self.parent.as_ref().is_none_or(|(namer, _)| created <= *namer) => {
                self.parent = Some((created, parent));
            }
            None if is_namer => self.parent = self.first_parent(),
            _ => {}
        }
    }

    /// Removes a log, and recomputes what it may have supplied.
    fn remove_log(&mut self, log: &LogId) {
        match log {
            LogId::Session(_) => self.own = None,
            LogId::Run(id) => self.runs.retain(|run| run.id != *id),
        }
        self.totals = (self.runs.len() > 1).then(|| Box::new(self.sum()));
        self.parent = self.first_parent();
    }

    /// The overview of the session for an audience.
    fn overview(&self, reader: Audience) -> SessionOverview {
        let (totals, at) = (self.totals(), reader.index());
        let asks = self.own.as_ref().is_some_and(|own| own.2.pending[at] > 0);
        let urgent = URGENT.iter().zip(totals.urgent[at]).find(|(_, count)| *count > 0).map(|(status, _)| *status);
        let newest = || self.runs.back().map(|run| run.stats.status[at]);
        let mut preview_sources: PreviewSources = totals.newest.map(|run| Some((LogKind::Run, run?.get())));
        if let Some((created, _, own)) = self.own.as_deref() {
            for (place, _) in preview_sources.iter_mut().zip(own.has_preview).filter(|(_, has_preview)| *has_preview) {
                *place = Some((LogKind::Session, *created));
            }
        }
        SessionOverview {
            status: if asks { Status::Waiting } else { urgent.or_else(newest).unwrap_or(Status::Unknown) },
            runs: self.runs.len(),
            pending: totals.pending[at],
            is_stale: totals.stale[at] > 0,
            last_activity: jiff::Timestamp::from_millisecond(totals.last_activity).ok().filter(|_| totals.last_activity > 0),
            parent: self.parent.as_ref().map(|(_, parent)| parent.clone()),
            preview_sources,
        }
    }
}

/// The overview of a session for one audience, over all of its logs, with the sources of its preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOverview {
    pub status: Status,
    pub runs: usize,
    /// The pending actions of the session's own logs.
    pub pending: u64,
    /// Whether the server found one of its runs stale.
    pub is_stale: bool,
    pub last_activity: Option<jiff::Timestamp>,
    pub parent: Option<SessionId>,
    pub preview_sources: PreviewSources,
}

/// The number of pending actions below each session, for sessions with any.
#[derive(Debug, Default)]
pub struct PendingBelow(HashMap<SessionId, [u64; 3]>);

impl PendingBelow {
    /// The pending actions below one session that an audience sees.
    #[must_use]
    pub fn of(&self, session: &SessionId, audience: Audience) -> u64 {
        self.0.get(session).map_or(0, |counts| counts[audience.index()])
    }
}

/// A session with pending actions, or an ancestor of one.
struct Node {
    id: SessionId,
    own: [u64; 3],
    below: [u64; 3],
    parent: Option<usize>,
    /// Children among the nodes whose counts are not added to this node yet.
    children_left: usize,
}

/// Sums the pending actions of all descendants, each counted once.
///
/// The time is linear in the number of nodes, at any depth.
fn sum_pending_below(mut nodes: Vec<Node>) -> PendingBelow {
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
    // The remaining nodes are cycles of parents. Everything below a cycle is below each of its sessions, except the
    // session itself.
    for first in 0..nodes.len() {
        let mut cycle = Vec::new();
        let mut at = first;
        while nodes[at].children_left > 0 {
            nodes[at].children_left = 0;
            cycle.push(at);
            at = nodes[at].parent.expect("each session of a cycle has a parent");
        }
        let sum = cycle.iter().fold([0; 3], |sum, at| plus(sum, plus(nodes[*at].own, nodes[*at].below)));
        for at in cycle {
            nodes[at].below = std::array::from_fn(|reader| sum[reader] - nodes[at].own[reader]);
        }
    }
    let below = nodes.into_iter().filter(|node| node.below != [0; 3]);
    PendingBelow(below.map(|node| (node.id, node.below)).collect())
}

/// The watchers that a change affects.
///
/// Notifying them takes time in proportion to their number, so no lock is held for it.
#[must_use]
#[derive(Default)]
pub struct AffectedWatchers(HashMap<SessionId, watch::Sender<u64>>);

impl AffectedWatchers {
    /// Adds the watchers of another change.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Notifies the watchers.
    pub fn notify(self) {
        for changes in self.0.into_values() {
            changes.send_modify(|count| *count += 1);
        }
    }
}

/// The session that a log belongs to, by its summary.
fn session_of<'a>(log: &'a LogId, summary: &'a Summary) -> Option<&'a SessionId> {
    match log {
        LogId::Session(id) => Some(id),
        LogId::Run(_) => summary.session_id.as_ref(),
    }
}

impl Sessions {
    /// Builds the index from the store's logs, and calls `also` for each log.
    ///
    /// A log with an unreadable summary is reported in the server's log and is in no session.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn load(store: &impl Store, also: impl Fn(&LogId, Option<&Summary>)) -> Result<Self, StoreError> {
        let mut inner = Inner::default();
        for kind in [LogKind::Run, LogKind::Session] {
            let mut before = None;
            loop {
                let page = store.list(kind, before, PAGE)?;
                before = page.last().map(|log| log.created);
                let is_last = page.len() < PAGE;
                for listed in page {
                    let summary = Summary::from_listed(&listed);
                    also(&listed.log, summary.as_ref());
                    let Some(summary) = summary else { continue };
                    let Some(session) = session_of(&listed.log, &summary) else { continue };
                    let (stats, parent) = (LogStats::of(&summary), summary.parent_session_id.as_ref());
                    inner.upsert_log(session, &listed.log, listed.created, parent, stats);
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(Self { inner: RwLock::new(inner), below: Mutex::default() })
    }

    /// Replaces a log's previous summary by its new one. `before` is `None` for a new log.
    pub fn apply(&self, log: &LogId, created: u64, before: Option<&Summary>, now: &Summary) -> AffectedWatchers {
        let session = session_of(log, now);
        let mut affected = AffectedWatchers::default();
        if session.is_none() && before.and_then(|before| session_of(log, before)).is_none() {
            return affected;
        }
        let stats = LogStats::of(now);
        let mut inner = self.inner.write();
        let is_member =
            |before: &&Summary| session_of(log, before) == session && before.parent_session_id == now.parent_session_id;
        if let (Some(session), true) = (session, before.is_some_and(|before| is_member(&before))) {
            inner.update(session, |session| {
                session.update_log(log, created, stats);
            });
            return affected;
        }
        if let Some(old) = before.and_then(|before| session_of(log, before)).filter(|old| Some(*old) != session) {
            inner.collect_affected(old, &mut affected);
            inner.remove_log(old, log);
            inner.collect_affected(old, &mut affected);
        }
        if let Some(session) = session {
            // The ancestors before the change and those after it.
            inner.collect_affected(session, &mut affected);
            inner.upsert_log(session, log, created, now.parent_session_id.as_ref(), stats);
            inner.collect_affected(session, &mut affected);
        }
        affected
    }

    /// Removes an erased log; `last` is its last summary.
    pub fn forget(&self, log: &LogId, last: &Summary) -> AffectedWatchers {
        let mut affected = AffectedWatchers::default();
        let Some(session) = session_of(log, last) else { return affected };
        let mut inner = self.inner.write();
        inner.collect_affected(session, &mut affected);
        inner.remove_log(session, log);
        inner.collect_affected(session, &mut affected);
        affected
    }

    /// Up to `limit` sessions created before `before`, newest first, each with its creation order.
    #[must_use]
    pub fn list(&self, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
        let inner = self.inner.read();
        let older = inner.by_created.range(..before.unwrap_or(u64::MAX)).rev().take(limit);
        older.map(|(place, session)| (*place, session.clone())).collect()
    }

    /// The session's place in the order of creation; `None` when it does not exist.
    #[must_use]
    pub fn created_order(&self, session: &SessionId) -> Option<u64> {
        self.inner.read().sessions.get(session).map(|session| session.created)
    }

    /// The session's runs, in the order of creation.
    #[must_use]
    pub fn runs_of(&self, session: &SessionId) -> Vec<RunId> {
        let inner = self.inner.read();
        inner.sessions.get(session).map(|session| session.runs.iter().map(|run| run.id.clone()).collect()).unwrap_or_default()
    }

    /// The session's own log, then its newest runs; and the total number of its runs.
    ///
    /// Each log comes with its creation order.
    #[must_use]
    pub fn logs_of(&self, session: &SessionId, runs_max: usize) -> Option<(Vec<(u64, LogId)>, usize)> {
        let inner = self.inner.read();
        let known = inner.sessions.get(session)?;
        let own = known.own.iter().map(|own| (own.0, LogId::Session(session.clone())));
        let runs = known.runs.iter().rev().take(runs_max).map(|run| (run.created, LogId::Run(run.id.clone())));
        Some((own.chain(runs).collect(), known.runs.len()))
    }

    /// The overview of a session for this audience; `None` when it does not exist.
    #[must_use]
    pub fn overview(&self, session: &SessionId, audience: Audience) -> Option<SessionOverview> {
        self.inner.read().sessions.get(session).map(|session| session.overview(audience))
    }

    /// The session's runs with pending actions for this audience, newest first.
    ///
    /// Each comes with its creation order.
    #[must_use]
    pub fn runs_with_pending(&self, session: &SessionId, audience: Audience, runs_max: usize) -> Vec<(u64, RunId)> {
        let inner = self.inner.read();
        let runs = inner.sessions.get(session).into_iter().flat_map(|session| session.runs.iter().rev());
        let with_pending = runs.filter(|run| run.stats.pending[audience.index()] > 0).take(runs_max);
        with_pending.map(|run| (run.created, run.id.clone())).collect()
    }

    /// The pending actions below each session. Summed again only when a count or a parent has changed.
    #[must_use]
    pub fn pending_below(&self) -> Arc<PendingBelow> {
        let version = self.inner.read().version;
        let mut known = self.below.lock();
        if let Some((_, below)) = known.as_ref().filter(|(at, _)| *at == version) {
            return below.clone();
        }
        let mut with_pending: Vec<SessionId> = Vec::new();
        loop {
            let inner = self.inner.read();
            let from = with_pending.last().map_or(Bound::Unbounded, Bound::Excluded);
            let page: Vec<_> = inner.with_pending.range::<SessionId, _>((from, Bound::Unbounded)).take(PAGE).cloned().collect();
            drop(inner);
            if page.is_empty() {
                break;
            }
            with_pending.extend(page);
        }
        let below = Arc::new(sum_pending_below(self.nodes(with_pending)));
        *known = Some((version, below.clone()));
        below
    }

    /// The pending actions below each session, for a reader that may see only `sessions`.
    #[must_use]
    pub fn pending_below_among(&self, sessions: Vec<SessionId>) -> PendingBelow {
        sum_pending_below(self.nodes(sessions))
    }

    /// These sessions and all of their ancestors.
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
                let Some(session) = inner.sessions.get(&nodes[at].id) else { continue };
                if at < counted {
                    nodes[at].own = session.totals().pending;
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

    /// Whether the session has its own log.
    #[must_use]
    pub fn has_own_log(&self, session: &SessionId) -> bool {
        self.inner.read().sessions.get(session).is_some_and(|session| session.own.is_some())
    }

    /// The session's parent.
    #[must_use]
    pub fn parent_of(&self, session: &SessionId) -> Option<SessionId> {
        self.inner.read().parent_of(session).cloned()
    }

    /// All descendants of a session, breadth first, each once even in a cycle.
    ///
    /// Children of one parent are ordered by creation.
    #[must_use]
    pub fn children_of(&self, session: &SessionId) -> Vec<SessionId> {
        let mut found = Vec::new();
        let mut seen = HashSet::from([session.clone()]);
        let mut next = Some(session.clone());
        let mut at = 0;
        while let Some(parent) = next {
            let mut children = self.inner.read().children_with_order(&parent);
            children.sort_unstable();
            found.extend(children.into_iter().map(|(_, child)| child).filter(|child| seen.insert(child.clone())));
            next = found.get(at).cloned();
            at += 1;
        }
        found
    }

    /// A counter that grows when the session or a descendant gains or loses a log, a child or a parent.
    ///
    /// The session need not exist yet.
    pub fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.inner.write().watchers.entry(session.clone()).or_default().subscribe()
    }

    /// Removes the counters without watchers.
    pub fn sweep(&self) {
        self.inner.write().watchers.retain(|_, changes| changes.receiver_count() > 0);
    }
}

impl Inner {
    fn parent_of(&self, session: &SessionId) -> Option<&SessionId> {
        self.sessions.get(session)?.parent.as_ref().map(|(_, parent)| parent)
    }

    fn children_with_order(&self, parent: &SessionId) -> Vec<(u64, SessionId)> {
        let children = self.children.get(parent).into_iter().flatten();
        children.map(|child| (self.sessions.get(child).map_or(0, |session| session.created), child.clone())).collect()
    }

    /// Collects the watchers of the session and of its ancestors.
    fn collect_affected(&self, session: &SessionId, affected: &mut AffectedWatchers) {
        if self.watchers.is_empty() {
            return;
        }
        let mut seen = HashSet::new();
        let mut next = Some(session);
        while let Some(session) = next.filter(|session| seen.len() <= ANCESTORS_MAX && seen.insert(*session)) {
            if let Some(changes) = self.watchers.get(session) {
                affected.0.insert(session.clone(), changes.clone());
            }
            next = self.parent_of(session);
        }
    }

    fn upsert_log(&mut self, session: &SessionId, log: &LogId, created: u64, parent: Option<&SessionId>, stats: LogStats) {
        // A session is never its own child. All children share one copy of the parent's id.
        let parent = parent.filter(|parent| *parent != session);
        let parent = parent.map(|parent| self.children.get_key_value(parent).map_or(parent, |(known, _)| known).clone());
        self.update(session, |session| session.upsert_log(log, created, parent, stats));
    }

    fn remove_log(&mut self, session: &SessionId, log: &LogId) {
        self.update(session, |session| session.remove_log(log));
    }

    /// Updates a session, and the data derived from it.
    fn update(&mut self, id: &SessionId, change: impl FnOnce(&mut Session)) {
        let session = self.sessions.entry(id.clone()).or_default();
        let (place, parent) = (session.created, session.parent.as_ref().map(|(_, parent)| parent.clone()));
        let pending = session.totals().pending;
        change(session);
        let asks = session.totals().pending;
        let first = session.first_created();
        let now = session.parent.as_ref().map(|(_, parent)| parent.clone());
        session.created = first.unwrap_or(0);
        if first != Some(place) {
            // A new session has order 0, at which there is no entry.
            self.by_created.remove(&place);
            self.by_created.extend(first.map(|first| (first, id.clone())));
        }
        if first.is_none() {
            self.sessions.remove(id);
        }
        if asks != pending {
            self.version += 1;
            match asks {
                [0, 0, 0] => drop(self.with_pending.remove(id)),
                _ => drop(self.with_pending.insert(id.clone())),
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
    use crate::log::testing::in_memory;
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

    /// A summary with this session and this parent; `""` for none.
    fn summary_of(session: &str, parent: &str) -> Summary {
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
    fn sessions_are_listed_newest_first_by_the_creation_of_their_first_log() {
        let sessions = Sessions::default();
        for (n, session) in (1..).zip(["s", "t", "s", "u", "t", "v"]) {
            sessions.apply(&run(&format!("r{n}")), n, None, &summary_of(session, "")).notify();
        }
        sessions.apply(&run("unowned"), 7, None, &summary_of("", "")).notify();
        sessions.apply(&own("w"), 8, None, &summary_of("", "")).notify();
        sessions.apply(&own("t"), 9, None, &summary_of("t", "")).notify();
        let first = sessions.list(None, 3);
        assert_eq!(first, [(8, id("w")), (6, id("v")), (4, id("u"))]);
        sessions.apply(&run("late"), 10, None, &summary_of("x", "")).notify();
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
    fn a_run_that_names_its_session_late_or_changes_it_keeps_its_creation_order() {
        let sessions = Sessions::default();
        sessions.apply(&run("a"), 1, None, &summary_of("", "")).notify();
        sessions.apply(&run("b"), 2, None, &summary_of("s", "")).notify();
        assert_eq!(sessions.list(None, 9), [(2, id("s"))]);
        sessions.apply(&run("a"), 1, Some(&summary_of("", "")), &summary_of("s", "")).notify();
        assert_eq!((runs(&sessions, "s"), sessions.created_order(&id("s"))), (vec!["a".into(), "b".into()], Some(1)));
        sessions.apply(&run("a"), 1, Some(&summary_of("s", "")), &summary_of("t", "s")).notify();
        assert_eq!((runs(&sessions, "s"), runs(&sessions, "t")), (vec!["b".into()], vec!["a".into()]));
        assert_eq!(sessions.list(None, 9), [(2, id("s")), (1, id("t"))]);
        assert_eq!(below(&sessions, "s"), ["t"]);
    }

    #[test]
    fn the_first_log_that_names_a_parent_decides_and_its_erasure_promotes_the_next() {
        let sessions = Sessions::default();
        sessions.apply(&run("a"), 1, None, &summary_of("s", "")).notify();
        sessions.apply(&run("b"), 5, None, &summary_of("s", "late")).notify();
        sessions.apply(&own("s"), 3, None, &summary_of("s", "own")).notify();
        assert_eq!((below(&sessions, "own"), below(&sessions, "late")), (vec!["s".into()], vec![]));
        assert_eq!(sessions.created_order(&id("own")), None, "it is named, and not there");
        sessions.apply(&run("a"), 1, Some(&summary_of("s", "")), &summary_of("s", "first")).notify();
        assert_eq!(sessions.parent_of(&id("s")), Some(id("first")));
        for (log, parent) in [(run("a"), Some(id("own"))), (own("s"), Some(id("late"))), (run("b"), None)] {
            assert!(sessions.created_order(&id("s")).is_some());
            sessions.forget(&log, &summary_of("s", "")).notify();
            assert_eq!(sessions.parent_of(&id("s")), parent);
        }
        assert_eq!((sessions.list(None, 9), below(&sessions, "late")), (vec![], vec![]));
        let inner = sessions.inner.read();
        assert!(inner.sessions.is_empty() && inner.children.is_empty(), "no trace of the session is left");
    }

    #[test]
    fn every_descendant_is_found_once_even_in_cycles() {
        let sessions = Sessions::default();
        for (n, (session, parent)) in
            (1..).zip([("root", "leaf"), ("b", "root"), ("a", "root"), ("leaf", "a"), ("self", "self"), ("c", "b")])
        {
            sessions.apply(&run(session), n, None, &summary_of(session, parent)).notify();
        }
        assert_eq!(below(&sessions, "root"), ["b", "a", "c", "leaf"]);
        assert_eq!(below(&sessions, "leaf"), ["root", "b", "a", "c"]);
        assert_eq!((below(&sessions, "self"), sessions.parent_of(&id("self"))), (vec![], None));
        let mut waiting = sessions.watch(&id("b"));
        sessions.apply(&run("more"), 9, None, &summary_of("leaf", "")).notify();
        assert!(!waiting.has_changed().unwrap(), "b is not above leaf");
        sessions.apply(&run("more"), 10, None, &summary_of("c", "")).notify();
        assert!(waiting.has_changed().unwrap());
        assert_eq!(*waiting.borrow_and_update(), 1);
    }

    /// A summary with this number of pending actions.
    fn summary_with(session: &str, parent: &str, pending: usize) -> Summary {
        let mut summary = summary_of(session, parent);
        summary.run.pending = (0..pending).map(|n| n.to_string()).collect();
        summary
    }

    #[test]
    fn pending_actions_count_at_every_level_above_and_follow_a_session_to_another_parent() {
        const LEVELS: u64 = 5000;
        let sessions = Sessions::default();
        for level in 1..=LEVELS {
            let summary = summary_with(&format!("s{level}"), &format!("s{}", level - 1), usize::from(level == LEVELS) * 3);
            sessions.apply(&run(&format!("r{level}")), level, None, &summary).notify();
        }
        let below = |session: &str| sessions.pending_below().of(&id(session), Audience::User);
        assert_eq!(["s0", "s1", "s4999", "s5000"].map(below), [3, 3, 3, 0]);
        // The session's own log is older than the log that names the parent.
        let (first, moved) = (summary_with("s2500", "", 0), summary_with("s2500", "elsewhere", 0));
        sessions.apply(&own("s2500"), 0, None, &first).notify();
        sessions.apply(&own("s2500"), 0, Some(&first), &moved).notify();
        assert_eq!(["s0", "s2499", "elsewhere", "s2500"].map(below), [0, 0, 3, 3]);
        assert!(Arc::ptr_eq(&sessions.pending_below(), &sessions.pending_below()), "the sum is computed once");
        let last = summary_with("s5000", "s4999", 3);
        sessions.apply(&run("r5000"), LEVELS, Some(&last), &summary_with("s5000", "s4999", 1)).notify();
        assert_eq!(["elsewhere", "s2500"].map(below), [1, 1]);
        sessions.forget(&run("r5000"), &last).notify();
        assert_eq!(["elsewhere", "s2500"].map(below), [0, 0]);
        assert!(sessions.inner.read().with_pending.is_empty());
    }

    #[test]
    fn a_commit_costs_the_same_in_a_session_with_many_runs() {
        const RUNS: u64 = 20_000;
        let time_of = |runs: u64| {
            let sessions = Sessions::default();
            let mut summary = summary_with("s", "", 1);
            summary.last_activity = Some("2026-01-01T00:00:00.000Z".into());
            for n in 1..=runs {
                sessions.apply(&run(&format!("r{n}")), n, None, &summary).notify();
            }
            let mut now = summary.clone();
            now.run.pending.insert("more".into());
            let once = || {
                let begun = std::time::Instant::now();
                for _ in 0..1000 {
                    sessions.apply(&run("r1"), 1, Some(&summary), &now).notify();
                }
                begun.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap()
        };
        let (few, many) = (time_of(1), time_of(RUNS));
        // Reading each run would take thousands of times as long.
        assert!(many < few * 20, "{many:?} with {RUNS} runs, {few:?} with one");
    }

    #[test]
    fn a_new_log_notifies_a_bounded_number_of_ancestors() {
        let sessions = Sessions::default();
        let levels = ANCESTORS_MAX as u64 + 50;
        for level in 1..=levels {
            sessions
                .apply(&run(&format!("r{level}")), level, None, &summary_of(&format!("s{level}"), &format!("s{}", level - 1)))
                .notify();
        }
        let (near, far) = (sessions.watch(&id("s60")), sessions.watch(&id("s10")));
        sessions.apply(&run("new"), levels + 1, None, &summary_of(&format!("s{levels}"), "")).notify();
        assert_eq!((near.has_changed().unwrap(), far.has_changed().unwrap()), (true, false));
    }

    #[test]
    fn the_status_of_a_session_follows_all_of_its_logs() {
        let sessions = Sessions::default();
        let summary_at = |status, time: &str| {
            let mut summary = summary_of("s", "");
            (summary.run.status, summary.last_activity) = (status, Some(time.into()));
            summary
        };
        let overview = || sessions.overview(&id("s"), Audience::User).unwrap();
        let time = || overview().last_activity.map(|time| format!("{time:.3}")).unwrap();
        let (old, new) =
            (summary_at(Status::Running, "2026-01-01T00:00:00.001Z"), summary_at(Status::Completed, "2026-01-02T00:00:00.500Z"));
        sessions.apply(&run("old"), 1, None, &old).notify();
        for n in 2..100 {
            sessions.apply(&run(&format!("r{n}")), n, None, &new).notify();
        }
        assert_eq!((overview().status, overview().runs, time()), (Status::Running, 99, "2026-01-02T00:00:00.500Z".into()));
        let mut waiting = summary_at(Status::Waiting, "2026-01-03T00:00:00.000Z");
        waiting.run.pending.insert("a".into());
        waiting.preview.set_title("Oldest");
        sessions.apply(&run("old"), 1, Some(&old), &waiting).notify();
        assert_eq!(
            (overview().status, overview().pending, overview().preview_sources[0]),
            (Status::Waiting, 1, Some((LogKind::Run, 1)))
        );
        let mut titled = new.clone();
        titled.preview.set_title("Newer");
        sessions.apply(&run("r50"), 50, Some(&new), &titled).notify();
        assert_eq!(overview().preview_sources[0], Some((LogKind::Run, 50)));
        sessions.apply(&own("s"), 100, None, &titled).notify();
        assert_eq!(overview().preview_sources[0], Some((LogKind::Session, 100)));
        sessions.forget(&own("s"), &titled).notify();
        sessions.forget(&run("r50"), &titled).notify();
        assert_eq!((overview().preview_sources[0], time()), (Some((LogKind::Run, 1)), "2026-01-03T00:00:00.000Z".into()));
        sessions.forget(&run("old"), &waiting).notify();
        assert_eq!((overview().status, overview().pending, overview().preview_sources[0]), (Status::Completed, 0, None));
        assert_eq!(time(), "2026-01-02T00:00:00.500Z");
        let inner = sessions.inner.read();
        let session = &inner.sessions[&id("s")];
        let totals = session.totals();
        assert!(session.totals.is_some(), "a session of several runs keeps its sums");
        assert_eq!(*totals, session.sum(), "and they equal those of its logs");
        assert_eq!((totals.urgent, totals.pending, totals.stale), ([[0; 3]; 3], [0; 3], [0; 3]));
    }

    #[test]
    fn a_watcher_of_a_session_is_notified_of_changes_to_it_and_below_it() {
        let sessions = Sessions::default();
        let mut above = sessions.watch(&id("above"));
        let mut other = sessions.watch(&id("other"));
        let mut was_notified = |what: &str| {
            assert!(!other.has_changed().unwrap(), "{what} concerns another session");
            let is_notified = above.has_changed().unwrap();
            above.mark_unchanged();
            is_notified
        };
        sessions.apply(&run("a"), 1, None, &summary_of("s", "")).notify();
        assert!(!was_notified("a session without a parent"));
        sessions.apply(&run("b"), 2, None, &summary_of("s", "above")).notify();
        assert!(was_notified("a child"));
        sessions.apply(&run("c"), 3, None, &summary_of("deep", "s")).notify();
        assert!(was_notified("a child's child"));
        sessions.forget(&run("c"), &summary_of("deep", "s")).notify();
        assert!(was_notified("the erasure of a grandchild"));
        sessions.apply(&run("b"), 2, Some(&summary_of("s", "above")), &summary_of("t", "")).notify();
        assert!(was_notified("a child that moves away"));
        sessions.apply(&run("d"), 4, None, &summary_of("s", "")).notify();
        assert!(!was_notified("a former child"));
        sessions.apply(&own("other"), 5, None, &summary_of("", "")).notify();
        assert!(other.has_changed().unwrap());
        other.mark_unchanged();
        drop(above);
        sessions.sweep();
        assert_eq!(sessions.inner.read().watchers.len(), 1);
    }

    #[tokio::test]
    async fn the_index_read_from_a_store_equals_the_index_kept_while_writing() {
        let store = in_memory();
        let kept = Sessions::default();
        for n in 0..3000_u64 {
            let log = if n % 50 == 7 { own(&format!("s{}", n % 90)) } else { run(&format!("r{n}")) };
            let parent = if n % 4 == 1 { format!("s{}", n % 7) } else { String::new() };
            let mut summary = match n % 3 {
                0 => summary_of("", ""),
                _ => summary_of(&format!("s{}", n % 90), &parent),
            };
            summary.run.pending.extend((0..n % 5).map(|n| n.to_string()));
            summary.last_activity = Some(format!("2026-01-01T00:{:02}:{:02}.000Z", n / 60, n % 60).into());
            let expected = Sequence::NONE;
            let meta = Bytes::from(serde_json::to_vec(&summary).unwrap());
            let state = vec![(Bytes::from_static(META), Some(meta))];
            let (epoch, rows) = (Epoch::from_random(1), Bytes::new());
            let append = Append { log: log.clone(), epoch, expected, last: expected, rows, blobs: Vec::new(), state };
            let outcomes = store.commit(&[append]).unwrap();
            let crate::log::AppendOutcome::Committed { created, .. } = outcomes[0] else { panic!("{outcomes:?}") };
            kept.apply(&log, created, None, &summary).notify();
        }
        let read = Sessions::load(&*store, |_, _| {}).unwrap();
        let all = kept.list(None, usize::MAX);
        assert!(all.len() > 50);
        assert_eq!(read.list(None, usize::MAX), all);
        for (_, session) in &all {
            assert_eq!(read.runs_of(session), kept.runs_of(session), "{session}");
            assert_eq!(read.parent_of(session), kept.parent_of(session), "{session}");
            assert_eq!(read.children_of(session), kept.children_of(session), "{session}");
            assert_eq!(read.has_own_log(session), kept.has_own_log(session), "{session}");
            assert_eq!(read.overview(session, Audience::User), kept.overview(session, Audience::User), "{session}");
            assert_eq!(
                read.pending_below().of(session, Audience::User),
                kept.pending_below().of(session, Audience::User),
                "{session}"
            );
        }
    }
}
