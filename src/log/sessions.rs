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
//! A run of a session costs about 120 bytes plus its id, a session of one run about 350 bytes plus its id; a run without a
//! session costs nothing. The committer waits for readers of the index. So a reader holds the lock only while it copies the ids of
//! one session's runs or children.

mod branches;
mod orders;
mod owners;
mod pending_below;
mod session;

#[cfg(test)]
mod tests;

pub use branches::BranchTree;
pub use orders::{ListPlace, SessionSort};
pub use owners::{OwnerUse, SessionClaim};
pub use pending_below::PendingBelow;
pub use session::{PreviewSources, SessionOverview};

use super::moves::Moves;
use super::summary::Summary;
use super::{LogId, LogKind, Store, StoreError};
use crate::model::{AgentId, Audience, RunId, SessionId};
use branches::Branches;
use orders::Orders;
use owners::Owners;
use parking_lot::{Mutex, RwLock};
use pending_below::{ActionCounts, Node, sum_pending_below};
use session::{LogStats, Session};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

/// Logs per page while the server builds the index, and sessions that one lock acquisition reads.
const PAGE: usize = 1024;
/// Ancestors of a session that are notified of its new and erased logs. It bounds the work of a commit.
pub const ANCESTORS_MAX: usize = 256;

/// Agents of which all runs share one copy of the id.
const SHARED_AGENTS_MAX: usize = 4096;

/// The sessions of one store.
#[derive(Default)]
pub struct Sessions {
    inner: RwLock<SessionTable>,
    /// The pending actions below each session, with the version of the counts that they were computed from.
    below: Mutex<Option<(u64, Arc<PendingBelow>)>>,
}

#[derive(Default)]
struct SessionTable {
    /// Ordered, so that those of a pattern are found. Boxed, because a table of many has room for twice as many.
    sessions: BTreeMap<SessionId, Box<Session>>,
    orders: Orders,
    /// The sessions that each `sub` began.
    creators: BTreeMap<Arc<str>, BTreeSet<SessionId>>,
    /// The first agents of runs: all runs of one of them share one copy of its id.
    agents: HashSet<AgentId>,
    children: HashMap<SessionId, HashSet<SessionId>>,
    branches: Branches,
    /// The sessions with pending actions in their own logs.
    with_pending: BTreeSet<SessionId>,
    /// Those of them that have a parent.
    children_with_pending: BTreeSet<SessionId>,
    /// The number of updates of sessions so far.
    updates: u64,
    /// Incremented when a session's own pending actions or its parent change.
    version: u64,
    watchers: HashMap<SessionId, SessionWatchers>,
    owners: Owners,
}

/// The readers of one session, which learn of changes to it and to its descendants.
type SessionWatchers = Arc<Mutex<Vec<Weak<Moves>>>>;

fn is_watching(watcher: &Weak<Moves>) -> bool {
    watcher.strong_count() > 0
}

/// The watchers that a change affects.
///
/// Notifying them takes time in proportion to their number, so no lock is held for it.
#[must_use]
#[derive(Default)]
pub struct AffectedWatchers(HashMap<SessionId, SessionWatchers>);

impl AffectedWatchers {
    /// Adds the watchers of another change.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Notifies the watchers.
    pub fn notify(self) {
        for watchers in self.0.into_values() {
            watchers.lock().iter().filter_map(Weak::upgrade).for_each(|moves| moves.change());
        }
    }
}

/// The session that a log belongs to, by its summary.
pub(super) fn session_of<'a>(log: &'a LogId, summary: &'a Summary) -> Option<&'a SessionId> {
    match log {
        log if log.is_of_server() => None,
        LogId::Session(id) => Some(id),
        LogId::Run(_) => summary.session_id.as_ref(),
    }
}

impl Sessions {
    /// Builds the index from the store's logs, and calls `also` for each log with its place in the order of creation.
    ///
    /// A log with an unreadable summary is reported in the server's log and is in no session.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn load(store: &dyn Store, also: impl Fn(&LogId, u64, Option<&Summary>)) -> Result<Self, StoreError> {
        let mut inner = SessionTable::default();
        for kind in [LogKind::Run, LogKind::Session] {
            let mut before = None;
            loop {
                let page = store.list(kind, before, PAGE)?;
                before = page.last().map(|log| log.created);
                let is_last = page.len() < PAGE;
                for listed in page {
                    let summary = Summary::from_listed(&listed);
                    also(&listed.log, listed.created, summary.as_ref());
                    let Some(summary) = summary else { continue };
                    if summary.extension.owner.is_some() {
                        inner.owners.replace_log(None, Some(&summary));
                    }
                    let Some(session) = session_of(&listed.log, &summary) else { continue };
                    inner.upsert_log(session, &listed.log, listed.created, &summary, LogStats::of(&summary));
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
        let is_owned = [before, Some(now)].into_iter().flatten().any(|summary| summary.extension.owner.is_some());
        let has_session = session.is_some() || before.is_some_and(|before| session_of(log, before).is_some());
        if !is_owned && !has_session {
            return affected;
        }
        let stats = LogStats::of(now);
        let mut inner = self.inner.write();
        if is_owned {
            inner.owners.replace_log(before, Some(now));
        }
        let is_member = |before: &&Summary| {
            session_of(log, before) == session
                && before.parent_session_id == now.parent_session_id
                && before.agent == now.agent
                && before.extension.created_by == now.extension.created_by
        };
        if let (Some(session), true) = (session, before.is_some_and(|before| is_member(&before))) {
            inner.update(session, |session| {
                if log.kind() == LogKind::Session {
                    session.apply_extension(&now.extension);
                }
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
            inner.upsert_log(session, log, created, now, stats);
            inner.collect_affected(session, &mut affected);
        }
        affected
    }

    /// Removes an erased log; `last` is its last summary.
    pub fn forget(&self, log: &LogId, last: &Summary) -> AffectedWatchers {
        let mut affected = AffectedWatchers::default();
        let mut inner = self.inner.write();
        if last.extension.owner.is_some() {
            inner.owners.replace_log(Some(last), None);
        }
        let Some(session) = session_of(log, last) else { return affected };
        inner.collect_affected(session, &mut affected);
        inner.remove_log(session, log);
        inner.collect_affected(session, &mut affected);
        affected
    }

    /// Up to `limit` sessions before a place, newest first. `archived`: only those that are, or are not.
    #[must_use]
    pub fn list(
        &self,
        sort: SessionSort,
        archived: Option<bool>,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Vec<(ListPlace, SessionId)> {
        self.inner.read().orders.list(sort, archived, before, limit)
    }

    /// The places of these sessions, newest first, without those that do not exist.
    #[must_use]
    pub fn placed(&self, sessions: impl IntoIterator<Item = SessionId>, sort: SessionSort) -> Vec<(ListPlace, SessionId)> {
        let mut placed = Vec::new();
        let mut sessions = sessions.into_iter();
        loop {
            let inner = self.inner.read();
            let mut step = sessions.by_ref().take(PAGE).peekable();
            if step.peek().is_none() {
                break;
            }
            placed.extend(step.filter_map(|session| Some((inner.sessions.get(&session)?.placement()?.place(sort), session))));
        }
        placed.sort_unstable_by(|a, b| b.cmp(a));
        placed.dedup();
        placed
    }

    /// Keeps only the sessions with a log, by its place in the order of creation, that `takes`.
    pub fn retain_with_log(&self, sessions: &mut Vec<(ListPlace, SessionId)>, takes: impl Fn(u64) -> bool) {
        let inner = self.inner.read();
        sessions.retain(|(_, session)| {
            let branches = if inner.branches.is_empty() { Vec::new() } else { inner.branches_below(session) };
            let mut tree = std::iter::once(session).chain(&branches).filter_map(|session| inner.sessions.get(session));
            tree.any(|session| {
                session.own.as_ref().is_some_and(|own| takes(own.0)) || session.runs.iter().any(|run| takes(run.created))
            })
        });
    }

    /// The number of sessions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.read().sessions.len()
    }

    /// The number of sessions that tokens of this `sub` began.
    #[must_use]
    pub fn count_created_by(&self, sub: &str) -> usize {
        self.inner.read().creators.get(sub).map_or(0, BTreeSet::len)
    }

    /// The sessions that tokens of this `sub` began.
    #[must_use]
    pub fn created_by(&self, sub: &str) -> Vec<SessionId> {
        self.inner.read().creators.get(sub).into_iter().flatten().cloned().collect()
    }

    /// The logs that may have the newest news of a session for this audience, by kind and creation order, newest first.
    #[must_use]
    pub fn news_logs(&self, session: &SessionId, audience: Audience) -> Vec<(LogKind, u64)> {
        let inner = self.inner.read();
        let branches = if inner.branches.is_empty() { Vec::new() } else { inner.branches_below(session) };
        let tree = std::iter::once(session).chain(&branches).filter_map(|session| inner.sessions.get(session));
        tree.flat_map(|session| session.news_logs(audience)).collect()
    }

    /// The oldest logs of a session, by kind and creation order.
    #[must_use]
    pub fn oldest_logs(&self, session: &SessionId, max: usize) -> Vec<(LogKind, u64)> {
        self.inner.read().sessions.get(session).map_or_else(Vec::new, |session| session.oldest_logs(max))
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

    /// Up to `limit` of the session's runs after a place in the order of creation, oldest first, each with its place.
    #[must_use]
    pub fn runs_after(&self, session: &SessionId, after: u64, limit: usize) -> Vec<(u64, RunId)> {
        let inner = self.inner.read();
        let Some(known) = inner.sessions.get(session) else { return Vec::new() };
        let first = known.runs.partition_point(|run| run.created <= after);
        known.runs.range(first..).take(limit).map(|run| (run.created, run.id.clone())).collect()
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

    /// All runs of sessions with pending actions, unordered.
    #[must_use]
    pub fn all_runs_with_pending(&self) -> Vec<RunId> {
        let runs =
            self.with_pending().into_iter().flat_map(|session| self.runs_with_pending(&session, Audience::Internal, usize::MAX));
        runs.map(|(_, run)| run).collect()
    }

    /// The version of a session; see [`SessionOverview::version`].
    #[must_use]
    pub fn version(&self, session: &SessionId) -> Option<u64> {
        self.inner.read().sessions.get(session).map(|session| session.version)
    }

    /// The pending actions below each session. Summed again only when a count or a parent has changed.
    #[must_use]
    pub fn pending_below(&self) -> Arc<PendingBelow> {
        let version = self.inner.read().version;
        let mut known = self.below.lock();
        if let Some((_, below)) = known.as_ref().filter(|(at, _)| *at == version) {
            return below.clone();
        }
        let below = Arc::new(sum_pending_below(self.nodes(self.children_with_pending())));
        *known = Some((version, below.clone()));
        below
    }

    /// The pending actions below each session, for a reader that may see only the sessions that `may_see` accepts.
    #[must_use]
    pub fn pending_below_for(&self, may_see: impl Fn(&SessionId) -> bool) -> PendingBelow {
        let mut children = self.children_with_pending();
        children.retain(may_see);
        sum_pending_below(self.nodes(children))
    }

    /// The sessions with pending actions.
    fn with_pending(&self) -> Vec<SessionId> {
        self.page_by_page(|table| &table.with_pending)
    }

    /// The sessions with pending actions that have a parent. Only these count for another session.
    fn children_with_pending(&self) -> Vec<SessionId> {
        self.page_by_page(|table| &table.children_with_pending)
    }

    fn page_by_page(&self, of: impl Fn(&SessionTable) -> &BTreeSet<SessionId>) -> Vec<SessionId> {
        let mut found: Vec<SessionId> = Vec::new();
        loop {
            let inner = self.inner.read();
            let from = found.last().map_or(Bound::Unbounded, Bound::Excluded);
            let page: Vec<_> = of(&inner).range::<SessionId, _>((from, Bound::Unbounded)).take(PAGE).cloned().collect();
            drop(inner);
            if page.is_empty() {
                return found;
            }
            found.extend(page);
        }
    }

    /// These sessions and all of their ancestors.
    fn nodes(&self, counted: Vec<SessionId>) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(counted.len());
        let mut places: HashMap<SessionId, usize> = HashMap::with_capacity(counted.len());
        let mut place = |nodes: &mut Vec<Node>, id: SessionId| {
            *places.entry(id).or_insert_with_key(|id| {
                nodes.push(Node {
                    id: id.clone(),
                    own: ActionCounts::default(),
                    below: ActionCounts::default(),
                    parent: None,
                    children_left: 0,
                });
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
                    nodes[at].own = session.totals().actions;
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

    /// A watcher that changes when the session or a descendant gains or loses a log, a child or a parent.
    ///
    /// The session need not exist yet.
    pub fn watch(&self, session: &SessionId) -> Arc<Moves> {
        let (moves, mut inner) = (Arc::default(), self.inner.write());
        let mut watchers = inner.watchers.entry(session.clone()).or_default().lock();
        if watchers.len() == watchers.capacity() {
            watchers.retain(is_watching);
        }
        watchers.push(Arc::downgrade(&moves));
        moves
    }

    /// Removes the watchers and the claims that are gone.
    pub fn sweep(&self) {
        let mut inner = self.inner.write();
        inner.owners.sweep();
        inner.watchers.retain(|_, watchers| {
            let mut watchers = watchers.lock();
            watchers.retain(is_watching);
            !watchers.is_empty()
        });
    }
}

impl SessionTable {
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
            if let Some(watchers) = self.watchers.get(session) {
                affected.0.insert(session.clone(), watchers.clone());
            }
            next = self.parent_of(session);
        }
    }

    fn upsert_log(&mut self, session: &SessionId, log: &LogId, created: u64, summary: &Summary, stats: LogStats) {
        // A session is never its own child. All children share one copy of the parent's id.
        let parent = summary.parent_session_id.as_ref().filter(|parent| *parent != session);
        let parent = parent.map(|parent| self.children.get_key_value(parent).map_or(parent, |(known, _)| known).clone());
        let owner = summary.extension.owner.as_ref().map(|owner| self.owners.known(owner));
        let agent = summary.agent.as_ref().filter(|_| log.kind() == LogKind::Run).map(|agent| self.known_agent(agent));
        let creator = summary.extension.created_by.as_deref().map(|sub| match self.creators.get_key_value(sub) {
            Some((known, _)) => known.clone(),
            None => sub.into(),
        });
        self.update(session, |session| {
            session.owner = session.owner.take().or(owner);
            if log.kind() == LogKind::Session {
                session.apply_extension(&summary.extension);
            }
            if let Some(sub) = creator
                && session.created_by.as_ref().is_none_or(|(began, _)| created <= *began)
            {
                session.created_by = Some((created, sub));
            }
            session.upsert_log(log, created, parent, agent, stats);
        });
    }

    fn known_agent(&mut self, agent: &AgentId) -> AgentId {
        if let Some(known) = self.agents.get(agent) {
            return known.clone();
        }
        if self.agents.len() < SHARED_AGENTS_MAX {
            self.agents.insert(agent.clone());
        }
        agent.clone()
    }

    fn remove_log(&mut self, session: &SessionId, log: &LogId) {
        self.update(session, |session| session.remove_log(log));
    }

    /// Updates a session, and the data derived from it.
    fn update(&mut self, id: &SessionId, change: impl FnOnce(&mut Session)) {
        self.updates += 1;
        let session = self.sessions.entry(id.clone()).or_default();
        session.version = self.updates;
        let (place, parent) = (session.created, session.parent.as_ref().map(|(_, parent)| parent.clone()));
        let (before, was_owned) = (session.totals().actions, session.owner.is_some());
        let (from, creator) = (session.placement(), session.created_by.as_ref().map(|(_, sub)| sub.clone()));
        let left = session.origin().map(|origin| origin.parent.session_id.clone());
        change(session);
        let joined = session.origin().map(|origin| origin.parent.session_id.clone());
        let asks = session.totals().actions;
        let first = session.first_created();
        let now = session.parent.as_ref().map(|(_, parent)| parent.clone());
        session.created = first.unwrap_or(0);
        self.orders.replace(id, from, session.placement());
        let creator_now = session.created_by.as_ref().map(|(_, sub)| sub.clone());
        if creator_now != creator {
            if let Some(sub) = creator
                && let Some(began) = self.creators.get_mut(&sub)
            {
                began.remove(id);
                if began.is_empty() {
                    self.creators.remove(&sub);
                }
            }
            if let Some(sub) = creator_now {
                self.creators.entry(sub).or_default().insert(id.clone());
            }
        }
        if let Some(owner) = session.owner.clone().filter(|_| first != Some(place) || !was_owned) {
            self.owners.move_session(&owner, id, place, first);
        }
        let news = session.news();
        if first.is_none() {
            self.sessions.remove(id);
        }
        if left.is_some() || joined.is_some() {
            self.update_branch(id, left, joined, news);
        } else if place == 0 && self.branches.contains_key(id) {
            self.sum_news_of_branches(id);
        }
        if asks != before || now != parent {
            self.version += 1;
            let is_asking = asks.pending != [0; 3];
            let sets = [(&mut self.with_pending, is_asking), (&mut self.children_with_pending, is_asking && now.is_some())];
            for (set, is_in) in sets {
                if is_in {
                    set.insert(id.clone());
                } else {
                    set.remove(id);
                }
            }
        }
        if now != parent {
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
