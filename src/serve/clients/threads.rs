//! Threads: the conversations of existing clients, mapped to sessions and runs.
//!
//! A thread is the session of that id, and its runs are the session's runs in creation order. A run without a session
//! is a thread by itself, under its own id. The log summaries tell which run is active, which waits, and which was
//! requested and does not exist yet.

use super::{shown_activities, views_of};
use crate::control::aside::Aside;
use crate::encode::frames::ActivityView;
use crate::feed::lineage::FrozenLog;
use crate::ingest::WriterView;
use crate::log::LogId;
use crate::log::commit::Tail;
use crate::log::control::{ControlRecord, ControlState};
use crate::model::{ActionOutcome, Audience, Control, RunId, SessionId};
use crate::serve::App;
use crate::serve::http::problem::Problem;
use crate::source::ledger::{RunState, Status};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The newest runs of a thread that a client gets at once. Older runs are on further pages.
pub const RUNS_MAX: usize = 32;

/// A thread at one moment.
pub struct Thread {
    /// The id by which the client knows it.
    pub name: SessionId,
    /// The session that it reads and writes: the head of the tree.
    pub id: SessionId,
    /// Oldest first; at most [`RUNS_MAX`].
    pub runs: Vec<ThreadRun>,
    /// The number of all runs of the thread.
    pub run_count: usize,
    /// Requested runs without a log, oldest first.
    pub requested: Vec<RunId>,
}

/// A run of a thread.
pub struct ThreadRun {
    pub run: RunId,
    /// Its position in creation order.
    pub created: u64,
    pub tail: Tail,
    /// The part of it that the thread has, if the thread is a branch that left the run's session.
    pub frozen: Option<FrozenLog>,
}

/// A run as a thread shows it.
#[derive(Debug, Clone)]
pub struct ShownRun {
    pub run: RunId,
    frozen: Option<FrozenLog>,
}

impl ShownRun {
    /// The whole run of a log. `None`: it is the log of a session.
    #[must_use]
    pub fn own(log: &LogId) -> Option<Self> {
        Some(Self { run: run_of_log(log)?, frozen: None })
    }

    /// A run as a branch has it. `None`: it is the log of a session.
    #[must_use]
    pub fn frozen(frozen: FrozenLog) -> Option<Self> {
        Some(Self { run: run_of_log(&frozen.log)?, frozen: Some(frozen) })
    }

    /// Its activities.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn activities(&self, app: &App, audience: Audience) -> Result<Vec<ActivityView>, Problem> {
        let Some(frozen) = &self.frozen else { return shown_activities(app, &self.run, audience, None).await };
        let activities = app.feed.frozen_activities(frozen, audience).await?;
        Ok(views_of(app, &self.run, activities).await)
    }
}

impl ThreadRun {
    /// The run's state as this audience sees it.
    #[must_use]
    pub fn state(&self, audience: Audience) -> &RunState {
        self.tail.summary.run_for(audience)
    }

    fn is_active(&self, audience: Audience) -> bool {
        self.frozen.is_none() && self.state(audience).can_go_stale()
    }

    /// The run as the thread shows it.
    #[must_use]
    pub fn shown(&self) -> ShownRun {
        ShownRun { run: self.run.clone(), frozen: self.frozen.clone() }
    }
}

/// The run that a joining client follows, besides the earlier runs.
pub enum JoinTarget<'t> {
    Run(&'t ThreadRun),
    /// A requested run that does not exist yet.
    Requested(&'t RunId),
}

/// An action that a run asked.
pub struct AskedAction {
    /// The run that asked it.
    pub run: RunId,
    /// Whether it still waits for an answer.
    pub is_pending: bool,
    /// Why it takes no answer without a decision: it expired, or was superseded.
    pub ended: Option<ActionOutcome>,
    /// The action's kind, if known.
    pub kind: Option<Box<str>>,
    /// The tool call that it concerns, if any.
    pub call: Option<Box<str>>,
    /// Whether another run asks something else by the same id.
    pub is_ambiguous: bool,
}

impl Thread {
    /// Loads the thread that a client knows by this id: the head of its tree. An unknown thread has no runs.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn find(app: &App, id: &SessionId) -> Result<Self, Problem> {
        let thread = Self::of_session(app, &app.logs.sessions().head_of(id)).await?;
        Ok(Self { name: id.clone(), ..thread })
    }

    /// Loads the thread of a session.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn of_session(app: &App, id: &SessionId) -> Result<Self, Problem> {
        let (logs, run_count) = app.logs.sessions().logs_of(id, RUNS_MAX).unwrap_or_default();
        let mut runs = Vec::with_capacity(logs.len());
        for (created, log) in logs.into_iter().rev() {
            let LogId::Run(run) = &log else { continue };
            let tail = app.logs.log(&log).await?.tail();
            // The run may have been erased since it was listed.
            runs.extend(tail.epoch.is_some().then(|| ThreadRun { run: run.clone(), created, tail, frozen: None }));
        }
        let frozen = frozen_runs(app, id).await?;
        let run_count = run_count + frozen.len();
        let room = RUNS_MAX.saturating_sub(runs.len());
        let mut earlier = Vec::new();
        for frozen in frozen.into_iter().rev().take(room) {
            let Some(run) = run_of_log(&frozen.log) else { continue };
            let tail = app.logs.log(&frozen.log).await?.tail();
            earlier.push(ThreadRun { run, created: frozen.created, tail, frozen: Some(frozen) });
        }
        runs.splice(0..0, earlier.into_iter().rev());
        let mut thread = Self { name: id.clone(), id: id.clone(), runs, run_count, requested: Vec::new() };
        if app.logs.sessions().created_order(id).is_none() {
            thread.runs.extend(standalone_run(app, id).await?);
            thread.run_count = thread.runs.len();
        }
        if app.logs.sessions().has_own_log(id) {
            thread.requested = requested(app, id).await?;
        }
        Ok(thread)
    }

    /// Finds a run of the thread.
    #[must_use]
    pub fn find_run(&self, run: &RunId) -> Option<&ThreadRun> {
        self.runs.iter().find(|part| part.run == *run)
    }

    /// The newest run that is active and waits for no decision.
    #[must_use]
    pub fn active(&self, audience: Audience) -> Option<&ThreadRun> {
        self.runs.iter().rev().find(|part| part.is_active(audience))
    }

    /// The newest run that waits for a decision.
    #[must_use]
    pub fn waiting(&self, audience: Audience) -> Option<&ThreadRun> {
        let own = self.runs.iter().rev().filter(|part| part.frozen.is_none());
        own.into_iter().find(|part| part.state(audience).status == Status::Waiting)
    }

    /// The run that a joining client follows. `None`: the thread is unknown.
    ///
    /// It is the active run, else a requested, else a waiting, else the last one.
    #[must_use]
    pub fn join_target(&self, audience: Audience) -> Option<JoinTarget<'_>> {
        let requested = || self.requested.first().map(JoinTarget::Requested);
        let rests = || self.waiting(audience).or_else(|| self.runs.last()).map(JoinTarget::Run);
        self.active(audience).map(JoinTarget::Run).or_else(requested).or_else(rests)
    }

    /// The other runs, oldest first.
    #[must_use]
    pub fn other_runs(&self, run: &RunId) -> Vec<ShownRun> {
        self.runs.iter().filter(|part| part.run != *run).map(ThreadRun::shown).collect()
    }

    /// The activities of all runs, in order.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn shown_activities(&self, app: &App, audience: Audience) -> Result<Vec<ActivityView>, Problem> {
        let mut all = Vec::new();
        for part in &self.runs {
            all.extend(part.shown().activities(app, audience).await?);
        }
        Ok(all)
    }

    /// All actions that the runs asked this audience, by action id; of one run only, if `of` is a run of the thread.
    ///
    /// If two runs used one id, the pending action wins, else the newer run's.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn asked(
        &self,
        app: &App,
        of: Option<&RunId>,
        audience: Audience,
    ) -> Result<HashMap<Box<str>, AskedAction>, Problem> {
        let mut all: HashMap<Box<str>, AskedAction> = HashMap::new();
        let mut pending: HashMap<Box<str>, Map<String, Value>> = HashMap::new();
        let of = of.filter(|run| self.find_run(run).is_some());
        for part in self.runs.iter().filter(|part| of.is_none_or(|run| part.run == *run)) {
            let (state, whole) = (part.state(audience), &part.tail.summary.run);
            for shown in part.shown().activities(app, audience).await?.into_iter().filter(|shown| &*shown.kind == "action") {
                // What was open at the point where a branch leaves cannot be decided in the branch.
                let is_pending = part.frozen.is_none() && state.pending.contains(&shown.id) && whole.pending.contains(&shown.id);
                let text = |member: &str| shown.text(member).map(Into::into);
                // A runtime may ask a question again in the run that it continues in.
                let is_ambiguous = is_pending && {
                    let question = question_of(&shown.content);
                    pending.insert(shown.id.clone(), question.clone()).is_some_and(|other| other != question)
                };
                let (run, kind, call) = (part.run.clone(), text("kind"), text("toolCallId"));
                let mut undecided = [ActionOutcome::Expired, ActionOutcome::Superseded].into_iter();
                let ended = undecided.find(|outcome| !is_pending && shown.text("outcome") == Some(outcome.as_str()));
                let asked = AskedAction { run, is_pending, ended, kind, call, is_ambiguous };
                if is_pending || all.get(&shown.id).is_none_or(|known| !known.is_pending) {
                    all.insert(shown.id.clone(), asked);
                }
            }
        }
        Ok(all)
    }
}

/// The runs that a session has of its ancestors, the oldest first.
///
/// # Errors
/// The store's failure.
pub async fn frozen_runs(app: &App, session: &SessionId) -> Result<Vec<FrozenLog>, Problem> {
    let mut frozen = app.feed.frozen_logs(session, usize::MAX).await?;
    frozen.retain(|frozen| run_of_log(&frozen.log).is_some());
    Ok(frozen)
}

fn run_of_log(log: &LogId) -> Option<RunId> {
    match log {
        LogId::Run(run) => Some(run.clone()),
        LogId::Session(_) => None,
    }
}

/// What an action asks, without what became of it.
fn question_of(content: &Map<String, Value>) -> Map<String, Value> {
    let mut question = content.clone();
    question.retain(|member, _| !["status", "control", "decidedBy"].contains(&member.as_str()));
    question
}

/// The run of this id that belongs to no session.
pub(super) async fn standalone_run(app: &App, id: &SessionId) -> Result<Option<ThreadRun>, Problem> {
    let run = RunId::new(id.as_str()).expect("runs and sessions share one id syntax");
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    let is_alone = tail.epoch.is_some() && tail.summary.session_id.is_none();
    Ok(is_alone.then_some(ThreadRun { run, created: 0, tail, frozen: None }))
}

/// The runs that were requested in this session and do not exist yet.
async fn requested(app: &App, session: &SessionId) -> Result<Vec<RunId>, Problem> {
    let open = |view: &WriterView<'_>| {
        let sends = view.controls.values().filter(|of| of.state == ControlState::Open && of.control == Control::Send);
        // It may have an answer without a run.
        let sends = sends.filter(|of| Aside::of(of.value.as_ref()).is_none());
        let mut sends: Vec<_> = sends.filter_map(|of| Some((of.queue_position, run_of(of)?))).collect();
        sends.sort_unstable();
        sends
    };
    let mut requested = Vec::new();
    for (_, run) in app.ingest.read(&LogId::Session(session.clone()), open).await? {
        if app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_none() {
            requested.push(run);
        }
    }
    Ok(requested)
}

/// The run that a `send` control names, if any.
fn run_of(send: &ControlRecord) -> Option<RunId> {
    RunId::new(send.value.as_ref()?.get("runId").and_then(Value::as_str)?).ok()
}
