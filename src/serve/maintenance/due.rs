//! What the rules of retention are due for.
//!
//! ```text
//!   sessions, newest first ─▶ trees that are silent and closed ─┐
//!                                                               ├─▶ DueItem: a rule, what it is about, its hold
//!   runs, newest first ─▶ those without a session; ended ones ──┘
//! ```
//! The task that acts and the dry run read the same [`DueItems`]. They come in pages: each page looks at a bounded number of
//! sessions or runs, and then rests as long as that took.
//!
//! What an erasing rule is about is a *tree*: a session with its child sessions and its branches, as a whole. It is due when
//! the newest activity in all of it is older than the rule's `after`, and none of its runs is open.

use super::compact::Compactor;
use super::ended_runs::rest_after;
use crate::log::commit::Summary;
use crate::log::erased::ErasureTarget;
use crate::log::sessions::{ANCESTORS_MAX, ListPlace, SessionSort, Sessions};
use crate::log::{LogKind, StoreError, log_of_number};
use crate::model::{Audience, OwnerId, RunId, SessionId, SessionOwner};
use crate::retention_rules::{RetentionAction, RetentionRule, RetentionRules};
use crate::serve::App;
use crate::source::ledger::Status;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::time::Instant;

/// Sessions, or runs, that one page looks at.
const PAGE: usize = 512;

/// What a rule is due for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueTarget {
    /// To erase: a session, those below it, and the number of their runs.
    Tree { root: SessionId, sessions: Vec<SessionId>, runs: usize },
    /// To erase: a run without a session.
    Run(RunId),
    /// To compact.
    EndedRun(RunId),
}

/// Something that a rule is due for.
#[derive(Debug, Clone)]
pub struct DueItem {
    /// The place of the rule in the list.
    pub rule: usize,
    pub found: DueTarget,
    /// In milliseconds since 1970.
    pub last_activity: i64,
    /// What the hold is on that keeps it.
    pub hold: Option<ErasureTarget>,
}

/// Where the look is.
enum Stage {
    Sessions(Option<ListPlace>),
    Runs(Option<u64>),
    Done,
}

/// All findings of one look at a server.
pub struct DueItems {
    app: Arc<App>,
    rules: Arc<RetentionRules>,
    /// In milliseconds since 1970.
    now: i64,
    stage: Stage,
}

impl DueItems {
    pub(in crate::serve) fn new(app: Arc<App>, rules: Arc<RetentionRules>) -> Self {
        let now = (app.environment.now)().as_millisecond();
        Self { app, rules, now, stage: Stage::Sessions(None) }
    }

    /// The findings of the next page. `None`: there are no more.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<Vec<DueItem>>, StoreError> {
        let started = Instant::now();
        let page = match self.stage {
            Stage::Sessions(before) => self.trees(before),
            Stage::Runs(before) => self.runs(before).await?,
            Stage::Done => return Ok(None),
        };
        rest_after(started).await;
        Ok(Some(page))
    }

    fn trees(&mut self, before: Option<ListPlace>) -> Vec<DueItem> {
        let sessions = self.app.logs.sessions();
        // Branches are in no list: their roots stand for them.
        let page = sessions.list(SessionSort::Created, None, before, PAGE);
        let erases = self.rules.0.iter().any(|rule| rule.then == RetentionAction::Erase);
        self.stage = match page.last() {
            Some((last, _)) if erases && page.len() == PAGE => Stage::Sessions(Some(*last)),
            _ => Stage::Runs(None),
        };
        if !erases {
            return Vec::new();
        }
        let roots = page.into_iter().map(|(_, session)| session).filter(|session| root_of(sessions, session) == *session);
        roots.filter_map(|root| tree_due(&self.app, &self.rules, &root, self.now)).collect()
    }

    async fn runs(&mut self, before: Option<u64>) -> Result<Vec<DueItem>, StoreError> {
        let mut candidates = Vec::new();
        let last = self.app.logs.runs().visit_before(before, PAGE, |row| {
            let status = row.status(Audience::Internal);
            let is_about = |rule: &RetentionRule| {
                rule.takes_owner(SessionOwner::of(row.owner()))
                    && rule.takes_status(status)
                    && row.ended().is_none_or(|ended| rule.due_at(ended) <= self.now)
                    && match rule.then {
                        RetentionAction::Erase => row.session().is_none(),
                        RetentionAction::Compact => status.is_end(),
                    }
            };
            if !is_open(status) && self.rules.0.iter().any(is_about) {
                candidates.push(row.created);
            }
        });
        self.stage = last.map_or(Stage::Done, |last| Stage::Runs(Some(last)));
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let (app, rules, now) = (self.app.clone(), self.rules.clone(), self.now);
        let judge = move |store: &dyn crate::log::Store| -> Result<Vec<DueItem>, StoreError> {
            let mut found = Vec::new();
            for created in candidates {
                let Some(listed) = log_of_number(store, LogKind::Run, created)? else { continue };
                let (Some(summary), crate::log::LogId::Run(run)) = (Summary::from_listed(&listed), listed.log) else { continue };
                found.extend(run_due(&app, &rules, &run, &summary, now));
            }
            Ok(found)
        };
        self.app.logs.work(judge).await
    }
}

/// Whether a run, or a session with one, is at work or waits.
const fn is_open(status: Status) -> bool {
    matches!(status, Status::Accepted | Status::Running | Status::Waiting)
}

/// The session that a session is below, through parents and branches.
fn above(sessions: &Sessions, session: &SessionId) -> Option<SessionId> {
    let parent = sessions.parent_of(session).or_else(|| sessions.origin_of(session).map(|origin| origin.parent.session_id));
    parent.filter(|parent| sessions.created_order(parent).is_some())
}

/// The session at the top of a session's tree.
#[must_use]
pub fn root_of(sessions: &Sessions, session: &SessionId) -> SessionId {
    let (mut at, mut seen) = (session.clone(), HashSet::new());
    while let Some(parent) = above(sessions, &at).filter(|_| seen.len() < ANCESTORS_MAX) {
        if !seen.insert(at.clone()) {
            return first_of_circle(sessions, at);
        }
        at = parent;
    }
    at
}

/// Of sessions that are above each other, the first by name: it stands for all of them.
fn first_of_circle(sessions: &Sessions, start: SessionId) -> SessionId {
    let circle = std::iter::successors(above(sessions, &start), |at| above(sessions, at).filter(|_| *at != start));
    circle.take(ANCESTORS_MAX).min().unwrap_or(start)
}

/// A session with all below it.
fn tree_of(sessions: &Sessions, root: &SessionId) -> Vec<SessionId> {
    let (mut found, mut seen) = (vec![root.clone()], HashSet::from([root.clone()]));
    let mut at = 0;
    while at < found.len() {
        let below = sessions.children_of(&found[at]).into_iter().chain(sessions.branches_below(&found[at]));
        let new: Vec<_> = below.filter(|below| seen.insert(below.clone())).collect();
        found.extend(new);
        at += 1;
    }
    found
}

/// What the rules are due for with a session and all below it.
pub(in crate::serve) fn tree_due(app: &App, rules: &RetentionRules, root: &SessionId, now: i64) -> Option<DueItem> {
    let sessions = app.logs.sessions();
    let activity = |session: &SessionId| {
        let overview = sessions.overview(session, Audience::Internal)?;
        let last = overview.last_activity.map(jiff::Timestamp::as_millisecond);
        last.filter(|_| !is_open(overview.status)).map(|last| (last, overview.runs, overview.status))
    };
    let (mut last_activity, _, status) = activity(root)?;
    let is_about = |rule: &RetentionRule, last: i64| {
        rule.then == RetentionAction::Erase && rule.takes_status(status) && rule.due_at(last) <= now
    };
    // Most sessions are too new for every rule.
    if !rules.0.iter().any(|rule| is_about(rule, last_activity)) {
        return None;
    }
    let tree = tree_of(sessions, root);
    let mut runs = 0;
    for session in &tree {
        let (last, count, _) = activity(session)?;
        (last_activity, runs) = (last_activity.max(last), runs + count);
    }
    let takes_owners =
        |rule: &RetentionRule| tree.iter().all(|session| sessions.with_owner(session, |owner| rule.takes_owner(owner)));
    let rule = rules.0.iter().position(|rule| is_about(rule, last_activity) && takes_owners(rule))?;
    // A hold on one of them keeps all: no half of a conversation is erased.
    let hold = if app.holds.is_empty() { None } else { tree.iter().find_map(|session| app.holds.covering(session)) };
    Some(DueItem { rule, found: DueTarget::Tree { root: root.clone(), sessions: tree, runs }, last_activity, hold })
}

/// Whether an erasing rule is due for a run without a session.
pub(in crate::serve) fn is_run_due(rule: &RetentionRule, summary: &Summary, now: i64) -> bool {
    let owner: Option<&OwnerId> = summary.extension.owner.as_ref();
    rule.then == RetentionAction::Erase
        && summary.session_id.is_none()
        && !is_open(summary.run.status)
        && rule.takes_status(summary.run.status)
        && rule.takes_owner(SessionOwner::of(owner))
        && last_activity_of(summary).is_some_and(|last| rule.due_at(last) <= now)
}

fn last_activity_of(summary: &Summary) -> Option<i64> {
    let last = summary.last_activity.as_deref()?.parse::<jiff::Timestamp>().ok()?;
    Some(last.as_millisecond())
}

/// What the rules are due for with a run: to erase it, if it has no session; else to compact it, if its session stays.
fn run_due(app: &Arc<App>, rules: &RetentionRules, run: &RunId, summary: &Summary, now: i64) -> Option<DueItem> {
    let last_activity = last_activity_of(summary)?;
    let hold = app.holds.covering_run(summary.session_id.as_ref(), summary.extension.owner.as_ref());
    let finding = |rule, found| DueItem { rule, found, last_activity, hold: hold.clone() };
    if let Some(rule) = rules.0.iter().position(|rule| is_run_due(rule, summary, now)) {
        return Some(finding(rule, DueTarget::Run(run.clone())));
    }
    let owner = SessionOwner::of(summary.extension.owner.as_ref());
    let is_about = |rule: &&RetentionRule| {
        rule.then == RetentionAction::Compact
            && rule.takes_owner(owner)
            && rule.takes_status(summary.run.status)
            && Compactor::new(app.clone(), rule.after).is_quiet(summary)
    };
    let rule = rules.0.iter().position(|rule| is_about(&rule))?;
    let root = summary.session_id.as_ref().map(|session| root_of(app.logs.sessions(), session));
    let is_erased = root.is_some_and(|root| tree_due(app, rules, &root, now).is_some());
    (!is_erased).then(|| finding(rule, DueTarget::EndedRun(run.clone())))
}
