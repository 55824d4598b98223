//! The branches of sessions: trees, each with one root.
//!
//! A list shows a tree once, by its root: with the news of all of its branches, and with what its head is about.

use super::session::SessionOverview;
use super::{ANCESTORS_MAX, SessionTable, Sessions};
use crate::log::LogId;
use crate::model::branch::BranchOrigin;
use crate::model::{Audience, SessionId};
use std::collections::{BTreeSet, HashMap};

/// The branches that leave each session.
pub(super) type Branches = HashMap<SessionId, BTreeSet<SessionId>>;

/// A tree of branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTree {
    pub root: SessionId,
    /// The branch that existing clients read and write; the root itself if none is chosen.
    pub head: SessionId,
    /// All branches with their origins, in the order of creation.
    pub branches: Vec<(SessionId, BranchOrigin)>,
}

impl SessionTable {
    /// A session, the one that it branches from, and so on to the root.
    fn lineage_of<'s>(&'s self, session: &'s SessionId) -> impl Iterator<Item = &'s SessionId> {
        let above = |session: &&'s SessionId| self.sessions.get(*session)?.origin().map(|origin| &origin.parent.session_id);
        std::iter::successors(Some(session), above).take(ANCESTORS_MAX)
    }

    /// The root of a session's tree: the session itself if it is no branch.
    fn root_of<'s>(&'s self, session: &'s SessionId) -> &'s SessionId {
        self.lineage_of(session).last().unwrap_or(session)
    }

    /// The branches below a session, in the order of creation.
    pub(super) fn branches_below(&self, session: &SessionId) -> Vec<SessionId> {
        let mut found: Vec<SessionId> = Vec::new();
        let mut at = Some(session.clone());
        let mut next = 0;
        while let Some(parent) = at {
            found.extend(self.branches.get(&parent).into_iter().flatten().filter(|branch| *branch != session).cloned());
            at = found.get(next).cloned();
            next += 1;
        }
        found.sort_by_cached_key(|branch| self.sessions.get(branch).map_or(0, |branch| branch.created));
        found
    }

    /// Moves a branch from one parent to another, and tells its root of its news.
    pub(super) fn update_branch(
        &mut self,
        branch: &SessionId,
        left: Option<SessionId>,
        joined: Option<SessionId>,
        news: [i64; 3],
    ) {
        if left != joined {
            if let Some(left) = &left
                && let Some(branches) = self.branches.get_mut(left)
            {
                branches.remove(branch);
                if branches.is_empty() {
                    self.branches.remove(left);
                }
                let root = self.root_of(left).clone();
                self.sum_news_of_branches(&root);
            }
            if let Some(joined) = &joined {
                self.branches.entry(joined.clone()).or_default().insert(branch.clone());
            }
        }
        let Some(root) = joined.map(|joined| self.root_of(&joined).clone()).filter(|root| root != branch) else { return };
        if self.sessions.contains_key(&root) {
            self.update(&root, |root| {
                let known = &mut root.tree.get_or_insert_default().news;
                known.iter_mut().zip(news).for_each(|(known, news)| *known = news.max(*known));
            });
        }
    }

    /// Sums the news of a root's branches again.
    pub(super) fn sum_news_of_branches(&mut self, root: &SessionId) {
        if !self.sessions.contains_key(root) {
            return;
        }
        let mut all = [0; 3];
        for branch in self.branches_below(root) {
            let news = self.sessions.get(&branch).map(|branch| branch.news()).unwrap_or_default();
            all.iter_mut().zip(news).for_each(|(all, news)| *all = news.max(*all));
        }
        self.update(root, |root| root.tree.get_or_insert_default().news = all);
    }

    /// The branch that existing clients of this session read and write.
    fn head_of(&self, session: &SessionId) -> SessionId {
        let chosen = self.sessions.get(session).and_then(|session| session.tree.as_ref()?.head.as_ref());
        chosen.filter(|head| self.sessions.contains_key(head)).unwrap_or(session).clone()
    }
}

impl Sessions {
    /// What makes a session a branch. `None`: it is none.
    #[must_use]
    pub fn origin_of(&self, session: &SessionId) -> Option<BranchOrigin> {
        self.inner.read().sessions.get(session)?.origin().cloned()
    }

    /// The root of a session's tree: the session itself if it is no branch.
    #[must_use]
    pub fn root_of(&self, session: &SessionId) -> SessionId {
        self.inner.read().root_of(session).clone()
    }

    /// Whether a session is this one, or branches from it, however many branches are between.
    #[must_use]
    pub fn is_of_lineage(&self, ancestor: &SessionId, session: &SessionId) -> bool {
        self.inner.read().lineage_of(session).any(|of| of == ancestor)
    }

    /// The branch that existing clients of this session read and write: the session itself if none is chosen.
    #[must_use]
    pub fn head_of(&self, session: &SessionId) -> SessionId {
        self.inner.read().head_of(session)
    }

    /// The branches below a session, in the order of creation.
    #[must_use]
    pub fn branches_below(&self, session: &SessionId) -> Vec<SessionId> {
        let inner = self.inner.read();
        if inner.branches.is_empty() { Vec::new() } else { inner.branches_below(session) }
    }

    /// The points at which branches leave a session.
    #[must_use]
    pub fn points_in(&self, session: &SessionId) -> Vec<BranchOrigin> {
        let inner = self.inner.read();
        let branches = inner.branches.get(session).into_iter().flatten();
        branches.filter_map(|branch| inner.sessions.get(branch)?.origin().cloned()).collect()
    }

    /// The tree of a session. `None`: it has no branches and is none.
    #[must_use]
    pub fn tree_of(&self, session: &SessionId) -> Option<BranchTree> {
        let inner = self.inner.read();
        let root = inner.root_of(session);
        let below = inner.branches_below(root);
        let origin = |branch: SessionId| inner.sessions.get(&branch)?.origin().cloned().map(|origin| (branch, origin));
        let tree = BranchTree {
            root: root.clone(),
            head: inner.head_of(root),
            branches: below.into_iter().filter_map(origin).collect(),
        };
        (!tree.branches.is_empty()).then_some(tree)
    }

    /// The overview of a session, and, for a root, of its whole tree: it is about what the head is about.
    ///
    /// `may_see` decides about each branch. What leaves some out has the version 0: no other reader's is like it.
    #[must_use]
    pub fn tree_overview(
        &self,
        session: &SessionId,
        audience: Audience,
        may_see: impl Fn(&SessionId) -> bool,
    ) -> Option<SessionOverview> {
        let inner = self.inner.read();
        let known = inner.sessions.get(session)?;
        let mut overview = known.overview(audience);
        if known.tree.is_none() || known.origin().is_some() {
            return Some(overview);
        }
        let (head, branches) = (inner.head_of(session), inner.branches_below(session));
        let overviews: Vec<_> =
            branches.iter().filter_map(|branch| Some((branch, inner.sessions.get(branch)?.overview(audience)))).collect();
        // The right to a session may ask the index.
        drop(inner);
        let mut is_whole = true;
        for (branch, of_branch) in overviews {
            match may_see(branch) {
                true => overview.add_branch(&of_branch, (*branch == head).then(|| branch.clone())),
                false => is_whole = false,
            }
        }
        if !is_whole {
            overview.version = 0;
        }
        Some(overview)
    }

    /// The branch of a session that has this log. `None`: the session itself has it.
    #[must_use]
    pub fn branch_with(&self, session: &SessionId, log: &LogId) -> Option<SessionId> {
        let has = |branch: &SessionId| match log {
            LogId::Session(of) => of == branch,
            LogId::Run(run) => self.runs_of(branch).contains(run),
        };
        self.branches_below(session).into_iter().find(has)
    }

    /// The logs of a session and of its branches, by their places in the order of creation.
    #[must_use]
    pub fn tree_logs(&self, session: &SessionId, may_see: impl Fn(&SessionId) -> bool) -> Vec<(u64, LogId)> {
        let mut of = self.branches_below(session);
        of.retain(may_see);
        of.push(session.clone());
        of.iter().filter_map(|session| self.logs_of(session, usize::MAX)).flat_map(|(logs, _)| logs).collect()
    }
}
