//! Threads: what existing clients call a conversation, and what it is here.
//!
//! A thread is the session of that id; its runs are the session's, in the order of their creation. A run that names no session is
//! a thread by itself, under its own id. What a client needs of a thread is read off its logs' summaries: which run goes on, which
//! waits for somebody, and which was asked for and is not there yet.

use super::shown;
use crate::encode::frames::Shown;
use crate::ingest::{Amendment, Standing};
use crate::log::LogId;
use crate::log::control::{ControlRecord, ControlState};
use crate::log::run::Tail;
use crate::model::{Audience, Control, RunId, SessionId};
use crate::serve::App;
use crate::serve::problem::Problem;
use crate::source::ledger::{RunState, Status};
use serde_json::Value;
use std::collections::HashMap;

/// Runs of a thread that a client is shown at once: the newest. Those before them are in pages of their own.
pub const RUNS_MAX: usize = 32;

/// A thread, as it stands.
pub struct Thread {
    pub id: SessionId,
    /// The oldest first; no more than [`RUNS_MAX`].
    pub runs: Vec<Part>,
    /// How many runs there are in all.
    pub run_count: usize,
    /// Runs that somebody asked for, and of which nobody has written anything, the oldest first.
    pub sent: Vec<RunId>,
}

/// One run of a thread.
pub struct Part {
    pub run: RunId,
    /// Its place in the order of creation.
    pub created: u64,
    pub tail: Tail,
}

impl Part {
    /// How it stands, by what this audience saw of it.
    #[must_use]
    pub fn stands(&self, audience: Audience) -> &RunState {
        self.tail.summary.run_for(audience)
    }

    fn goes_on(&self, audience: Audience) -> bool {
        self.stands(audience).ages()
    }
}

/// What somebody who comes to a thread is shown, beside its earlier runs.
pub enum Joined<'t> {
    Run(&'t Part),
    /// It was asked for, and is waited for.
    Sent(&'t RunId),
}

/// The action that an answer is for.
pub struct Asked {
    /// The run that asked.
    pub run: RunId,
    /// Whether it still waits for an answer.
    pub is_pending: bool,
    /// The action type, where it is known.
    pub kind: Option<Box<str>>,
    /// The call that it is about.
    pub call: Option<Box<str>>,
}

impl Thread {
    /// The thread of this id; one that nobody knows has no runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(app: &App, id: &SessionId) -> Result<Self, Problem> {
        let (logs, run_count) = app.logs.sessions().logs_of(id, RUNS_MAX).unwrap_or_default();
        let mut runs = Vec::with_capacity(logs.len());
        for (created, log) in logs.into_iter().rev() {
            let LogId::Run(run) = &log else { continue };
            let tail = app.logs.log(&log).await?.tail();
            // It may have been erased just now.
            runs.extend(tail.epoch.is_some().then(|| Part { run: run.clone(), created, tail }));
        }
        let mut thread = Self { id: id.clone(), runs, run_count, sent: Vec::new() };
        if app.logs.sessions().place_of(id).is_none() {
            thread.runs.extend(alone(app, id).await?);
            thread.run_count = thread.runs.len();
        }
        if app.logs.sessions().has_own_log(id) {
            thread.sent = sent(app, id).await?;
        }
        Ok(thread)
    }

    /// Whether nobody has written or asked for anything of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.runs.is_empty() && self.sent.is_empty()
    }

    /// Whether this is one of its runs.
    #[must_use]
    pub fn part(&self, run: &RunId) -> Option<&Part> {
        self.runs.iter().find(|part| part.run == *run)
    }

    /// The newest run that goes on without anybody's decision.
    #[must_use]
    pub fn active(&self, audience: Audience) -> Option<&Part> {
        self.runs.iter().rev().find(|part| part.goes_on(audience))
    }

    /// The newest run that waits for somebody.
    #[must_use]
    pub fn waiting(&self, audience: Audience) -> Option<&Part> {
        self.runs.iter().rev().find(|part| part.stands(audience).status == Status::Waiting)
    }

    /// What somebody who comes is shown: what goes on, else what will, else what waits, else what was last. `None` of a thread
    /// that nobody knows.
    #[must_use]
    pub fn joined(&self, audience: Audience) -> Option<Joined<'_>> {
        let sent = || self.sent.first().map(Joined::Sent);
        let rests = || self.waiting(audience).or_else(|| self.runs.last()).map(Joined::Run);
        self.active(audience).map(Joined::Run).or_else(sent).or_else(rests)
    }

    /// The runs beside this one, the oldest first.
    #[must_use]
    pub fn beside(&self, run: &RunId) -> Vec<RunId> {
        self.runs.iter().map(|part| part.run.clone()).filter(|other| other != run).collect()
    }

    /// What there is to see of all of its runs, in order.
    ///
    /// # Errors
    /// The store's.
    pub async fn shown(&self, app: &App, audience: Audience) -> Result<Vec<Shown>, Problem> {
        let mut all = Vec::new();
        for part in &self.runs {
            all.extend(shown(app, &part.run, audience, None).await?);
        }
        Ok(all)
    }

    /// All that its runs have asked this audience, by the actions' ids. Where two runs have asked by one id it is the one that
    /// waits, else the newer one.
    ///
    /// # Errors
    /// The store's.
    pub async fn asked(&self, app: &App, audience: Audience) -> Result<HashMap<Box<str>, Asked>, Problem> {
        let mut all: HashMap<Box<str>, Asked> = HashMap::new();
        for part in &self.runs {
            let (stands, whole) = (part.stands(audience), &part.tail.summary.run);
            for shown in shown(app, &part.run, audience, None).await?.into_iter().filter(|shown| &*shown.kind == "action") {
                let is_pending = stands.pending.contains(&*shown.id) && whole.pending.contains(&*shown.id);
                let text = |member: &str| shown.text(member).map(Into::into);
                let asked = Asked { run: part.run.clone(), is_pending, kind: text("kind"), call: text("toolCallId") };
                if is_pending || all.get(&shown.id).is_none_or(|known| !known.is_pending) {
                    all.insert(shown.id.clone(), asked);
                }
            }
        }
        Ok(all)
    }
}

/// The run of this id, where it is a thread by itself.
async fn alone(app: &App, id: &SessionId) -> Result<Option<Part>, Problem> {
    let run = RunId::new(id.as_str()).expect("all ids obey one rule");
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    Ok((tail.epoch.is_some() && tail.summary.session_id.is_none()).then_some(Part { run, created: 0, tail }))
}

/// The runs that somebody asked for in this session, and that are not there yet.
async fn sent(app: &App, session: &SessionId) -> Result<Vec<RunId>, Problem> {
    let open = |standing: &Standing<'_>| {
        let sends = standing.controls.values().filter(|of| of.state == ControlState::Open && of.control == Control::Send);
        let mut sends: Vec<_> = sends.filter_map(|of| Some((of.number, run_of(of)?))).collect();
        sends.sort_unstable();
        (sends, Amendment::default())
    };
    let mut sent = Vec::new();
    for (_, run) in app.ingest.amend(&LogId::Session(session.clone()), open).await? {
        if app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_none() {
            sent.push(run);
        }
    }
    Ok(sent)
}

/// The run that a `send` asks for, where it names one.
fn run_of(send: &ControlRecord) -> Option<RunId> {
    RunId::new(send.value.as_ref()?.get("runId").and_then(Value::as_str)?).ok()
}
