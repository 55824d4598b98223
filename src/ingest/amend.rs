//! What the server itself adds to a log, behind everything that was taken before and before anything that comes after.

use super::desk::{Desk, DeskState};
use super::pending::ATTEMPTS_MAX;
use super::stamp::{EncodedRows, Stamping};
use super::{Ingest, World};
use crate::guard::Policy;
use crate::log::control::{CLOSED_CONTROLS_MAX, ControlRecord, ControlState};
use crate::log::run::Summary;
use crate::log::{LogId, Store, StoreError};
use crate::model::{AgentId, Audience, ControlId, Draft, EventType, Ids, Owner, RunId, ToolCallId};
use crate::source::ledger::Ledger;
use serde_json::json;
use std::collections::BTreeMap;

/// What the server says of a run when its source says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A run that goes on has not been heard of for a while.
    Stale,
    /// The run is over, for this reason: nobody will end it any more.
    Settled {
        /// Stable, for programs.
        code: &'static str,
        /// For people.
        message: String,
    },
}

impl Verdict {
    /// What it comes to, if it comes to anything.
    fn draft(&self, standing: &Standing<'_>) -> Option<Draft> {
        let run = &standing.summary.run;
        let mut draft = match self {
            Self::Stale if run.ages() && !run.stale => {
                let mut draft = Draft::new(EventType::RunStatus).with("stale", true);
                draft.phase = run.phase.clone();
                draft
            }
            Self::Settled { code, message } if standing.written && !run.status.is_end() => {
                let error = json!({ "code": code, "message": message });
                Draft::new(EventType::RunFailed).with("synthetic", true).with("error", error).with("retryable", true)
            }
            _ => return None,
        };
        draft.owner = Owner::Diagnostics;
        Some(draft)
    }
}

/// How a log stands at the moment at which the server adds something of its own.
pub struct Standing<'d> {
    /// Whether anybody has written it.
    pub written: bool,
    pub summary: &'d Summary,
    /// See [`Log::heard`](crate::log::run::Log::heard).
    pub heard: Option<u64>,
    /// The controls that the log remembers.
    pub controls: &'d BTreeMap<ControlId, ControlRecord>,
    ledger: &'d Ledger,
}

impl Standing<'_> {
    /// Who may know of something that is done to these.
    #[must_use]
    pub fn audience_about(&self, ids: &Ids) -> Audience {
        self.ledger.audience_about(ids)
    }

    /// The audience of a call; `None` for one that never started here.
    #[must_use]
    pub fn call(&self, call: &ToolCallId) -> Option<Audience> {
        self.ledger.call(call)
    }

    /// Whether this is a teammate of the run's own agent.
    #[must_use]
    pub fn is_teammate(&self, agent: &AgentId) -> bool {
        self.summary.agent.as_ref() != Some(agent) && self.ledger.knows_agent(agent)
    }
}

/// What the server adds to a log: envelopes, and the controls that they tell of, in one commit.
#[derive(Debug, Default)]
pub struct Amendment {
    pub drafts: Vec<Draft>,
    /// Controls that are new or have changed.
    pub controls: Vec<ControlRecord>,
}

impl Amendment {
    const fn is_empty(&self) -> bool {
        self.drafts.is_empty() && self.controls.is_empty()
    }
}

impl<S: Store> Ingest<S> {
    /// Adds to a log what no source says: `decide` sees how the log stands, behind everything that was taken before and before
    /// anything that comes after, and says what is to be added, if anything. Answered once that is durable and visible, and what
    /// `decide` saw, too. `decide` may be asked again, if the append conflicts; only the last answer counts.
    ///
    /// What is added is no sign of a producer.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn amend<T>(&self, id: &LogId, mut decide: impl FnMut(&Standing<'_>) -> (T, Amendment)) -> Result<T, StoreError> {
        let mut attempts = 1..;
        loop {
            let (seat, mut desk) = self.writer(id).await?;
            let (answer, amendment) = decide(&desk.standing(seat.log.heard()));
            let post = match amendment.is_empty() {
                // It may rest on what is on its way to the store.
                true => desk.written.then(|| desk.nothing()),
                false => {
                    desk.add(amendment, &self.core.policy, self.core.world);
                    desk.outbox.take()
                }
            };
            let Some(post) = post else { return Ok(answer) };
            self.core.count(None, Some(&post));
            let mut commit = desk.submit(&self.core.logs, &seat.log, post);
            drop(desk);
            match commit.wait().await {
                Ok(()) => return Ok(answer),
                Err(_) if commit.is_refused() && attempts.next() < Some(ATTEMPTS_MAX) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says of a run what no source says: that nothing is heard of it, or that it is over. `false` when there is nothing to
    /// say: the run is not there, has ended, waits for somebody's decision (which is no silence), or, if `heard` is given, was
    /// heard of since.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn pronounce(&self, run: &RunId, verdict: &Verdict, heard: Option<u64>) -> Result<bool, StoreError> {
        let decide = |standing: &Standing<'_>| {
            let drafts = match heard.is_some() && standing.heard != heard {
                true => Vec::new(),
                false => verdict.draft(standing).into_iter().collect::<Vec<_>>(),
            };
            (!drafts.is_empty(), Amendment { drafts, ..Amendment::default() })
        };
        let is_said = self.amend(&LogId::Run(run.clone()), decide).await?;
        match verdict {
            _ if !is_said => {}
            Verdict::Stale => self.core.counts.stale.add(1),
            Verdict::Settled { .. } => self.core.counts.settled.add(1),
        }
        Ok(is_said)
    }
}

impl Desk {
    fn standing(&self, heard: Option<u64>) -> Standing<'_> {
        let Self { written, summary, controls, ledger, .. } = self;
        Standing { written: *written, summary, heard, controls, ledger }
    }

    /// Takes in what the server adds, and leaves it in the outbox.
    fn add(&mut self, amendment: Amendment, policy: &Policy, world: World) {
        self.used = true;
        // Until there is an append of it: a panic leaves the writer lost.
        self.state = DeskState::Lost;
        let Amendment { drafts, controls } = amendment;
        for record in controls {
            self.controls_changed.push(record.id.clone());
            self.controls.insert(record.id.clone(), record);
        }
        if !self.controls_changed.is_empty() {
            self.count_controls();
        }
        let run = if let LogId::Run(run) = &self.id { Some(run.clone()) } else { None };
        let session = if let LogId::Session(id) = &self.id { Some(id.clone()) } else { self.summary.session_id.clone() };
        let given = Ids { session, thread: self.summary.thread_id.clone(), run, ..Ids::default() };
        let (before, mut rows) = (self.summary.last_sequence, EncodedRows::default());
        let ends: Vec<_> = (1..=drafts.len()).collect();
        let stamping = Stamping { given: &given, policy, world, now: (world.now)() };
        self.stamp(drafts, &ends, 0, stamping, &mut rows, &mut Vec::new());
        self.post(None, None, before, rows, true);
        self.state = DeskState::Active;
    }

    /// Forgets the oldest of too many closed controls, and notes those that are open in the summary.
    fn count_controls(&mut self) {
        let (mut open, mut closed): (Vec<_>, Vec<_>) = self.controls.values().partition(|of| of.state == ControlState::Open);
        open.sort_unstable_by_key(|record| record.number);
        closed.sort_unstable_by_key(|record| record.number);
        self.summary.controls = open.into_iter().map(ControlRecord::open).collect();
        let forgotten = closed.len().saturating_sub(CLOSED_CONTROLS_MAX);
        let forgotten: Vec<_> = closed.into_iter().take(forgotten).map(|record| record.id.clone()).collect();
        for id in forgotten {
            self.controls.remove(&id);
            self.controls_changed.push(id);
        }
    }
}
