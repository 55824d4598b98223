//! One session of the index: its logs, and the sums over them.

use super::orders::Placement;
use super::pending_below::ActionCounts;
use crate::log::summary::{Summary, SummaryExtension};
use crate::log::{LogId, LogKind};
use crate::model::branch::BranchOrigin;
use crate::model::{AgentId, Audience, OwnerId, RunId, SessionId};
use crate::source::ledger::Status;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Session {
    pub created: u64,
    /// See [`SessionOverview::version`].
    pub version: u64,
    /// The parent, after the creation order of the first log that names one.
    pub parent: Option<(u64, SessionId)>,
    /// Whose the session is.
    pub owner: Option<OwnerId>,
    /// The creation order of the log that began it, and the `sub` of the token.
    pub created_by: Option<(u64, Arc<str>)>,
    /// Whether a person archived it.
    pub archived: bool,
    /// The session's own log: its creation order, the parent that it names, and its statistics.
    pub own: Option<Box<(u64, Option<SessionId>, LogStats)>>,
    /// The place of the session among branches. Most sessions have none.
    pub tree: Option<Box<TreePlace>>,
    /// Ordered by creation. The index is read newest first, so a run may come at either end.
    pub runs: VecDeque<Run>,
    /// Kept for a session of several runs only; others are summed on demand. Most sessions have one run.
    pub totals: Option<Box<Totals>>,
}

/// The place of a session among branches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TreePlace {
    /// What makes it a branch.
    pub origin: Option<BranchOrigin>,
    /// The branch that existing clients of the session read and write.
    pub head: Option<SessionId>,
    /// When the last news of its branches came, per audience, in milliseconds since 1970; 0 for none.
    pub news: [i64; 3],
}

pub(super) struct Run {
    pub created: u64,
    pub id: RunId,
    parent: Option<SessionId>,
    agent: Option<AgentId>,
    pub stats: LogStats,
}

/// Agents that a session names.
pub const SESSION_AGENTS_MAX: usize = 16;
/// The newest runs of a session of which it names the agents.
const AGENT_RUNS_MAX: usize = 256;
/// Logs that may have the newest news of a session, by their times.
pub const NEWS_LOGS_MAX: usize = 32;
/// Commits of two logs may have the other order than their times, by less than this many milliseconds.
const NEWS_WITHIN_MS: i64 = 60_000;

/// The preview fields of a log, in the order of [`PreviewSources`].
const PREVIEW_FIELDS: usize = 5;

/// The logs that supply a session's title, preview text, unread count, pin and staleness.
///
/// Each is the session's own log if that has the field, otherwise the newest run that has it, given by kind and
/// creation order.
pub type PreviewSources = [Option<(LogKind, u64)>; PREVIEW_FIELDS];

/// The data of one log that session lists need, per audience where audiences differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LogStats {
    status: [Status; 3],
    pub pending: [u32; 3],
    /// The pending actions without a decision under way.
    unanswered: [u32; 3],
    /// Whether the server found the run stale.
    stale: [bool; 3],
    has_preview: [bool; PREVIEW_FIELDS],
    /// When its last news came, in milliseconds since 1970; 0 for none.
    news: [i64; 3],
}

impl LogStats {
    pub fn of(summary: &Summary) -> Self {
        let seen = Audience::ALL.map(|audience| summary.run_for(audience));
        let preview = &summary.preview;
        Self {
            status: seen.map(|run| run.status),
            pending: seen.map(|run| u32::try_from(run.pending.len()).unwrap_or(u32::MAX)),
            unanswered: Audience::ALL.map(|audience| u32::try_from(summary.unanswered(audience)).unwrap_or(u32::MAX)),
            stale: seen.map(|run| run.stale),
            has_preview: [
                preview.title.is_some() || summary.extension.title.is_some(),
                preview.message.is_some(),
                preview.unread.is_some(),
                preview.pinned.is_some(),
                preview.stale.is_some(),
            ],
            news: summary.news().at,
        }
    }
}

/// The run statuses that determine a session's status, most urgent first.
const URGENT: [Status; 3] = [Status::Waiting, Status::Running, Status::Accepted];

/// The sums over a session's logs.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Totals {
    /// Runs in each of the [`URGENT`] statuses, per audience.
    pub urgent: [[u32; URGENT.len()]; 3],
    pub actions: ActionCounts,
    /// Runs that the server found stale, per audience.
    pub stale: [u32; 3],
    /// The newest run that has each preview field.
    newest: [Option<NonZeroU64>; PREVIEW_FIELDS],
    /// When the last news came, per audience.
    pub news: [i64; 3],
}

impl Totals {
    /// Adds or subtracts a log. Of the session's own log only the pending actions count.
    fn count(&mut self, stats: &LogStats, is_run: bool, is_in: bool) {
        let change = |count: &mut u32, by: bool| match is_in {
            true => *count += u32::from(by),
            false => *count -= u32::from(by),
        };
        for reader in 0..Audience::ALL.len() {
            let ActionCounts { pending, unanswered } = &mut self.actions;
            for (total, count) in [(pending, stats.pending), (unanswered, stats.unanswered)] {
                let count = u64::from(count[reader]);
                total[reader] = if is_in { total[reader] + count } else { total[reader] - count };
            }
            if is_run {
                for (count, status) in self.urgent[reader].iter_mut().zip(URGENT) {
                    change(count, stats.status[reader] == status);
                }
                change(&mut self.stale[reader], stats.stale[reader]);
            }
        }
    }

    /// Merges the preview fields of a log. A log loses no field but a person's title, and its news only grow.
    fn merge_preview(&mut self, stats: &LogStats, run: Option<u64>) {
        for (newest, _) in self.newest.iter_mut().zip(stats.has_preview).filter(|(_, has_preview)| *has_preview) {
            *newest = run.and_then(NonZeroU64::new).max(*newest);
        }
        for (newest, news) in self.news.iter_mut().zip(stats.news) {
            *newest = news.max(*newest);
        }
    }
}

impl Session {
    /// Replaces the statistics of a log; `false` when the log is unknown.
    ///
    /// Every commit calls this, so it reads no other log.
    pub fn update_log(&mut self, log: &LogId, created: u64, stats: LogStats) -> bool {
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
    pub fn totals(&self) -> Cow<'_, Totals> {
        self.totals.as_deref().map_or_else(|| Cow::Owned(self.sum()), Cow::Borrowed)
    }

    pub fn sum(&self) -> Totals {
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
    pub fn first_created(&self) -> Option<u64> {
        let run = self.runs.front().map(|run| run.created);
        self.own.as_ref().map(|own| own.0).into_iter().chain(run).min()
    }

    /// The parent, after the creation order of the first log that names one.
    fn first_parent(&self) -> Option<(u64, SessionId)> {
        let own = self.own.as_ref().and_then(|own| Some((own.0, own.1.clone()?)));
        let run = self.runs.iter().find_map(|run| Some((run.created, run.parent.clone()?)));
        own.into_iter().chain(run).min_by_key(|(created, _)| *created)
    }

    /// Adds a log, or updates its parent, its agent and its statistics.
    pub fn upsert_log(&mut self, log: &LogId, created: u64, parent: Option<SessionId>, agent: Option<AgentId>, stats: LogStats) {
        let is_namer = self.parent.as_ref().is_some_and(|(namer, _)| *namer == created);
        let is_known = self.update_log(log, created, stats);
        match log {
            LogId::Session(_) => self.own = Some(Box::new((created, parent.clone(), stats))),
            LogId::Run(id) => match self.runs.binary_search_by_key(&created, |run| run.created) {
                Ok(at) => (self.runs[at].parent, self.runs[at].agent) = (parent.clone(), agent),
                Err(at) => {
                    if self.runs.is_empty() {
                        // Most sessions have one run. The standard library would take room for four.
                        self.runs.reserve_exact(1);
                    }
                    self.runs.insert(at, Run { created, id: id.clone(), parent: parent.clone(), agent, stats });
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
    pub fn remove_log(&mut self, log: &LogId) {
        match log {
            LogId::Session(_) => {
                self.own = None;
                self.apply_extension(&SummaryExtension::default());
            }
            LogId::Run(id) => self.runs.retain(|run| run.id != *id),
        }
        let is_there = |created: u64| {
            self.own.as_ref().is_some_and(|own| own.0 == created) || self.runs.iter().any(|run| run.created == created)
        };
        if self.created_by.as_ref().is_some_and(|(created, _)| !is_there(*created)) {
            self.created_by = None;
        }
        self.totals = (self.runs.len() > 1).then(|| Box::new(self.sum()));
        self.parent = self.first_parent();
    }

    /// Where the session is in the orders of lists; `None` without a log, and for a branch: its root stands for it.
    pub fn placement(&self) -> Option<Placement> {
        if self.origin().is_some() {
            return None;
        }
        let updated = self.news();
        let of = |created| Placement { created, updated, archived: self.archived };
        self.first_created().map(of)
    }

    /// When the last news of the session and of its branches came, per audience.
    pub fn news(&self) -> [i64; 3] {
        let mut news = self.totals.as_ref().map_or_else(|| self.sum().news, |totals| totals.news);
        if let Some(tree) = &self.tree {
            news.iter_mut().zip(tree.news).for_each(|(own, of_branches)| *own = (*own).max(of_branches));
        }
        news
    }

    /// Takes over what persons said of the session in its own log.
    pub fn apply_extension(&mut self, of: &SummaryExtension) {
        self.archived = of.archived;
        if self.tree.is_some() || of.branch.is_some() || of.head.is_some() {
            let tree = self.tree.get_or_insert_default();
            tree.origin = of.branch.as_deref().cloned();
            tree.head.clone_from(&of.head);
        }
    }

    /// What makes the session a branch.
    pub fn origin(&self) -> Option<&BranchOrigin> {
        self.tree.as_ref()?.origin.as_ref()
    }

    /// The agents of its newest runs, the newest first.
    pub fn agents(&self) -> Vec<AgentId> {
        let mut agents: Vec<AgentId> = Vec::new();
        for agent in self.runs.iter().rev().take(AGENT_RUNS_MAX).filter_map(|run| run.agent.as_ref()) {
            if agents.len() < SESSION_AGENTS_MAX && !agents.contains(agent) {
                agents.push(agent.clone());
            }
        }
        agents
    }

    /// The logs that may have the newest news of this audience, by kind and creation order.
    pub fn news_logs(&self, reader: Audience) -> Vec<(LogKind, u64)> {
        let at = reader.index();
        let own = self.own.iter().map(|own| (own.2.news[at], LogKind::Session, own.0));
        let runs = self.runs.iter().map(|run| (run.stats.news[at], LogKind::Run, run.created));
        let since = self.totals().news[at] - NEWS_WITHIN_MS;
        let mut logs: Vec<_> = own.chain(runs).filter(|(news, ..)| *news > since.max(0)).collect();
        logs.sort_unstable_by_key(|(news, _, created)| std::cmp::Reverse((*news, *created)));
        logs.into_iter().take(NEWS_LOGS_MAX).map(|(_, kind, created)| (kind, created)).collect()
    }

    /// Its oldest logs, by kind and creation order.
    pub fn oldest_logs(&self, max: usize) -> Vec<(LogKind, u64)> {
        let runs = self.runs.iter().take(max).map(|run| (LogKind::Run, run.created));
        let mut logs: Vec<_> = self.own.iter().map(|own| (LogKind::Session, own.0)).chain(runs).collect();
        logs.sort_unstable_by_key(|(_, created)| *created);
        logs.truncate(max);
        logs
    }

    /// The overview of the session for an audience.
    pub fn overview(&self, reader: Audience) -> SessionOverview {
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
            pending: totals.actions.pending[at],
            unanswered: totals.actions.unanswered[at],
            is_stale: totals.stale[at] > 0,
            last_activity: jiff::Timestamp::from_millisecond(self.news()[at]).ok().filter(|_| self.news()[at] > 0),
            archived: self.archived,
            created_by: self.created_by.as_ref().map(|(_, sub)| sub.clone()),
            agents: self.agents(),
            parent: self.parent.as_ref().map(|(_, parent)| parent.clone()),
            head: None,
            origin: self.origin().cloned(),
            preview_sources,
            version: self.version,
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
    /// Those of them without a decision under way.
    pub unanswered: u64,
    /// Whether the server found one of its runs stale.
    pub is_stale: bool,
    /// When the newest news came that the audience sees.
    pub last_activity: Option<jiff::Timestamp>,
    /// Whether a person archived it.
    pub archived: bool,
    /// The `sub` of the token that began it.
    pub created_by: Option<Arc<str>>,
    /// The agents of its newest runs, at most [`SESSION_AGENTS_MAX`].
    pub agents: Vec<AgentId>,
    pub parent: Option<SessionId>,
    /// The branch that existing clients read and write, of the root of a tree that has chosen one.
    pub head: Option<SessionId>,
    /// What makes the session a branch.
    pub origin: Option<BranchOrigin>,
    pub preview_sources: PreviewSources,
    /// Changes with each commit to one of its logs, and is never one that a session had before, while the process lives.
    ///
    /// What is read from the store after the overview is at least as new.
    pub version: u64,
}

impl SessionOverview {
    /// Adds a branch to the overview of its root. `head`: it is the branch that existing clients read and write.
    pub(super) fn add_branch(&mut self, branch: &Self, head: Option<SessionId>) {
        self.pending += branch.pending;
        self.unanswered += branch.unanswered;
        self.version = self.version.max(branch.version);
        if head.is_none() {
            return;
        }
        self.head = head;
        (self.status, self.is_stale, self.runs) = (branch.status, branch.is_stale, self.runs + branch.runs);
        // Its newest agents first.
        let older = std::mem::replace(&mut self.agents, branch.agents.clone());
        self.agents.extend(older.into_iter().filter(|agent| !branch.agents.contains(agent)));
        self.agents.truncate(SESSION_AGENTS_MAX);
        // The title stays that of the root.
        for (source, of_branch) in self.preview_sources.iter_mut().zip(branch.preview_sources).skip(1) {
            *source = of_branch.or(*source);
        }
    }
}
