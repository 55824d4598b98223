//! Appends by the server itself, ordered after all accepted facts and before any later ones.

use super::delivery::BeginOwner;
use super::pending::ATTEMPTS_MAX;
use super::questions::Questions;
use super::stamp::StampContext;
use super::writer::{LogWriter, WriterState};
use super::{Core, Ingest};
use crate::log::agent_memory::AgentMemory;
use crate::log::commit::Summary;
use crate::log::control::{CLOSED_CONTROLS_MAX, ControlRecord, ControlState, WaitProgress, WaitState};
use crate::log::question::{Question, QuestionState};
use crate::log::server_state::EntryChange;
use crate::log::{Blob, LogId, StoreError};
use crate::model::fact::RunFact;
use crate::model::halves::Halves;
use crate::model::{ActionId, AgentId, Audience, ControlId, Draft, Epoch, EventType, Ids, Owner, RunId, ToolCallId};
use crate::source::ledger::Ledger;
use crate::waits::WaitingAction;
use serde_json::json;
use std::collections::BTreeMap;

/// What the server declares about a run whose source is silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The run is active, but its producers have been silent for a while.
    Stale,
    /// The run is over for this reason: no producer will end it.
    Settled {
        /// Stable, for programs.
        code: &'static str,
        /// For people.
        message: String,
    },
}

impl Verdict {
    /// The draft for the verdict, if the run's state permits it.
    fn draft(&self, view: &WriterView<'_>) -> Option<Draft> {
        let run = &view.summary.run;
        let mut draft = match self {
            Self::Stale if run.can_go_stale() && !run.stale => {
                let draft = Draft::new(EventType::RunStatus).with_fact(|run: &mut RunFact| run.stale = Some(true));
                draft.with_phase(run.phase.clone())
            }
            Self::Settled { code, message } if view.is_written && !run.status.is_end() => Draft::new(EventType::RunFailed)
                .with_fact(|run: &mut RunFact| {
                    run.synthetic = Some(true);
                    run.error = Some(Box::new(json!({ "code": code, "message": message })));
                    run.retryable = Some(Box::new(true.into()));
                }),
            _ => return None,
        };
        draft.owner = Owner::Diagnostics;
        Some(draft)
    }
}

/// The state of a log when the server appends to it.
pub struct WriterView<'d> {
    /// Whether the log was ever written.
    pub is_written: bool,
    pub epoch: Epoch,
    pub summary: &'d Summary,
    /// See [`Log::last_activity`](crate::log::commit::Log::last_activity).
    pub last_activity: Option<u64>,
    /// The controls that the log remembers.
    pub controls: &'d BTreeMap<ControlId, ControlRecord>,
    questions: &'d Questions,
    ledger: &'d Ledger,
    memories: &'d [AgentMemory],
}

impl<'d> WriterView<'d> {
    /// The audience of an event about these ids.
    #[must_use]
    pub fn audience_about(&self, ids: &Ids) -> Audience {
        self.ledger.audience_about(ids)
    }

    /// The audience of a call; `None` for a call that never started here.
    #[must_use]
    pub fn call(&self, call: &ToolCallId) -> Option<Audience> {
        self.ledger.call_audience(call)
    }

    /// The control that decided this pending action, or is on its way to do so.
    ///
    /// A control that the owner accepted no longer counts once the owner has asked again, and one that no owner claimed no
    /// longer counts once the question is another version.
    #[must_use]
    pub fn decision_of(&self, action: &ActionId) -> Option<&'d ControlRecord> {
        let question = self.questions.get(action).cloned().unwrap_or_default();
        let stands = |record: &&ControlRecord| match record.state {
            ControlState::Open if record.attempt > 0 => record.submitted_after >= question.opened,
            ControlState::Open => record.submitted_after >= question.changed,
            ControlState::Acked => record.submitted_after >= question.asked,
            ControlState::Nacked | ControlState::Expired => false,
        };
        let decisions = self.controls.values().filter(|record| record.is_decision_of(action) && !record.is_held());
        decisions.filter(stands).min_by_key(|record| record.queue_position)
    }

    /// The deadline of a pending action, in milliseconds since 1970.
    #[must_use]
    pub fn deadline_of(&self, action: &ActionId) -> Option<i64> {
        self.summary.pending_actions.iter().find(|pending| pending.action == *action)?.expires_at
    }

    /// A pending action, as rules see it.
    #[must_use]
    pub fn waiting(&self, action: &ActionId) -> Option<WaitingAction> {
        let asked = self.summary.pending_actions.iter().find(|pending| pending.action == *action);
        asked.map(|asked| self.summary.waiting(asked))
    }

    /// Whether the deadline of this action passed without an answer.
    #[must_use]
    pub fn has_expired(&self, action: &ActionId) -> bool {
        self.question(action).is_some_and(|question| question.state == QuestionState::Expired)
    }

    /// The question of an action.
    #[must_use]
    pub fn question(&self, action: &ActionId) -> Option<&Question> {
        self.questions.get(action)
    }

    /// Whether the question of this decision became another version after it was submitted.
    #[must_use]
    pub fn is_outdated(&self, decision: &ControlRecord) -> bool {
        let action = decision.ids().action.filter(|action| decision.is_decision_of(action));
        let question = action.and_then(|action| self.question(&action).cloned());
        question.is_some_and(|question| question.changed > decision.submitted_after)
    }

    /// What the connector of this agent remembers of the log.
    #[must_use]
    pub fn agent_memory(&self, agent: &AgentId, protocol: &str) -> Option<&AgentMemory> {
        self.memories.iter().find(|memory| memory.is_of(agent, protocol))
    }

    /// Whether this is a teammate of the run's own agent.
    #[must_use]
    pub fn is_teammate(&self, agent: &AgentId) -> bool {
        self.summary.agent.as_ref() != Some(agent) && self.ledger.knows_agent(agent)
    }
}

/// An append by the server: envelopes, and the controls that they describe, in one commit.
#[derive(Debug, Default)]
pub struct ServerAppend {
    pub drafts: Vec<Draft>,
    /// New or changed controls.
    pub controls: Vec<ControlRecord>,
    /// What the server did about actions that wait.
    pub waits: Vec<WaitProgress>,
    /// Whose the session is that begins with it.
    pub owner: BeginOwner,
    /// Changes of the server's own state, for the log of the server.
    pub entries: Vec<EntryChange>,
    /// Bodies to which no envelope refers yet, and removals of such.
    pub blobs: Vec<Blob>,
}

impl ServerAppend {
    /// One envelope, and the control that it describes.
    #[must_use]
    pub fn of(draft: Draft, control: ControlRecord) -> Self {
        Self { drafts: vec![draft], controls: vec![control], ..Self::default() }
    }

    /// Adds another append after this one.
    pub fn extend(&mut self, other: Self) {
        let Self { drafts, controls, waits, owner: _, entries, blobs } = other;
        self.drafts.extend(drafts);
        self.controls.extend(controls);
        self.waits.extend(waits);
        self.entries.extend(entries);
        self.blobs.extend(blobs);
    }

    const fn is_empty(&self) -> bool {
        let Self { drafts, controls, waits, owner: _, entries, blobs } = self;
        drafts.is_empty() && controls.is_empty() && waits.is_empty() && entries.is_empty() && blobs.is_empty()
    }
}

impl Ingest {
    /// Appends to a log on behalf of the server.
    ///
    /// `decide` gets the log's state after all accepted facts and returns the additions, if any. The call returns once
    /// the additions, and everything that `decide` saw, are durable and visible. After a conflict the server calls
    /// `decide` again; only the last result counts. The append does not count as activity of a producer.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn append_as_server<T>(
        &self,
        id: &LogId,
        mut decide: impl FnMut(&WriterView<'_>) -> (T, ServerAppend),
    ) -> Result<T, StoreError> {
        let mut attempts = 1..;
        loop {
            let (slot, mut writer) = self.writer(id).await?;
            let (answer, addition) = decide(&writer.view(slot.log.last_activity()));
            if !addition.is_empty() {
                self.core.logs.check_not_erased(id, writer.summary.session_id.as_ref())?;
            }
            let pending = match addition.is_empty() {
                // The decision may depend on appends in flight.
                true => writer.is_written.then(|| writer.barrier()),
                false => {
                    writer.add(addition, &self.core);
                    writer.outbox.take()
                }
            };
            let Some(pending) = pending else { return Ok(answer) };
            if !id.is_of_server() {
                self.core.count(None, Some(&pending));
            }
            let mut commit = writer.submit(&self.core.logs, &slot.log, pending);
            drop(writer);
            match commit.wait().await {
                Ok(()) => return Ok(answer),
                Err(StoreError::NotLeader) => return Err(StoreError::NotLeader),
                Err(_) if commit.is_refused() && attempts.next() < Some(ATTEMPTS_MAX) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends to the server's own log: envelopes, and entries of its state, in one commit.
    ///
    /// # Errors
    /// As [`Self::append_as_server`].
    pub async fn append_to_server(&self, drafts: &[Draft], entries: &[EntryChange]) -> Result<(), StoreError> {
        let append = || ServerAppend { drafts: drafts.to_vec(), entries: entries.to_vec(), ..ServerAppend::default() };
        self.append_as_server(&LogId::of_server(), |_| ((), append())).await
    }

    /// Reads the state of a log: after all accepted facts, once they are durable, or, on a node that follows, as its store
    /// has it.
    ///
    /// A writer on a node that follows would not see what the leader appends.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read<T>(&self, id: &LogId, mut read: impl FnMut(&WriterView<'_>) -> T) -> Result<T, StoreError> {
        if self.core.logs.leadership().leads() {
            return self.append_as_server(id, |view| (read(view), ServerAppend::default())).await;
        }
        let loaded = self.core.logs.load(id).await?;
        let writer = LogWriter::new(id.clone(), loaded, self.core.environment)?;
        Ok(read(&writer.view(None)))
    }

    /// Declares a run stale or over. `false` when the run's state does not permit it.
    ///
    /// That is the case if the run does not exist, has ended, or waits for a user's decision, which is not silence. If
    /// `heard` is given, it is also the case if a producer was active since.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn declare(&self, run: &RunId, verdict: &Verdict, last_activity: Option<u64>) -> Result<bool, StoreError> {
        let decide = |view: &WriterView<'_>| {
            let drafts = match last_activity.is_some() && view.last_activity != last_activity {
                true => Vec::new(),
                false => verdict.draft(view).into_iter().collect::<Vec<_>>(),
            };
            (!drafts.is_empty(), ServerAppend { drafts, ..ServerAppend::default() })
        };
        let is_said = self.append_as_server(&LogId::Run(run.clone()), decide).await?;
        match verdict {
            _ if !is_said => {}
            Verdict::Stale => self.core.counts.stale.add(1),
            Verdict::Settled { .. } => self.core.counts.settled.add(1),
        }
        Ok(is_said)
    }
}

impl LogWriter {
    fn view(&self, last_activity: Option<u64>) -> WriterView<'_> {
        let Self { is_written, epoch, summary, controls, questions, ledger, memories, .. } = self;
        WriterView { is_written: *is_written, epoch: *epoch, summary, last_activity, controls, questions, ledger, memories }
    }

    /// Adds envelopes and controls, and leaves the appends in the outbox.
    fn add(&mut self, addition: ServerAppend, core: &Core) {
        self.is_used = true;
        // Until the append is complete: a panic leaves the writer in this state.
        self.state = WriterState::Lost;
        let ServerAppend { mut drafts, controls, waits, owner, entries, blobs } = addition;
        self.server_entries = entries;
        for record in controls {
            self.note_decision(&record);
            self.controls_changed.push(record.id.clone());
            self.controls.insert(record.id.clone(), record);
        }
        for progress in waits {
            self.note_progress(&progress);
        }
        if !self.controls_changed.is_empty() {
            self.count_controls();
        }
        let run = if let LogId::Run(run) = &self.id { Some(run.clone()) } else { None };
        let session = match &self.id {
            // It belongs to no session.
            id if id.is_of_server() => None,
            LogId::Session(id) => Some(id.clone()),
            LogId::Run(_) => self.summary.session_id.clone(),
        };
        let given = Ids { session, thread: self.summary.thread_id.clone(), run, ..Ids::default() };
        let (before, awaits_owner) = (self.summary.last_sequence, self.awaits_owner());
        let (policy, environment, halves) = (&core.policy, core.environment, Halves::Absent);
        let now = (environment.now)();
        let context = StampContext { given: &given, source: None, policy, environment, now, halves, publisher: None };
        let mut stamped = self.begin_stamp(context, drafts.len());
        self.stamp(&mut drafts, 0, context, &mut stamped);
        let mut rows = self.end_stamp(stamped).rows;
        for blob in blobs {
            rows.push_blob(blob);
        }
        if awaits_owner {
            self.settle_owner(core.logs.sessions(), &owner);
        }
        self.prepare_append(None, None, before, rows, true, None);
        self.state = WriterState::Active;
    }

    /// Notes whether a decision about a pending action is under way.
    fn note_decision(&mut self, record: &ControlRecord) {
        let Some(action) = record.ids().action.filter(|_| record.control.decides()) else { return };
        let Some(detail) = self.summary.extension.actions.get_mut(&action) else { return };
        match record.state {
            ControlState::Open if record.is_held() => drop(detail.control.take_if(|known| *known == record.id)),
            ControlState::Open => detail.control = Some(record.id.clone()),
            // The answer waits for the runtime to resolve the action.
            ControlState::Acked => {}
            ControlState::Nacked | ControlState::Expired => drop(detail.control.take_if(|known| *known == record.id)),
        }
    }

    fn note_progress(&mut self, WaitProgress { action, steps, deadline }: &WaitProgress) {
        let Some(detail) = self.summary.extension.actions.get_mut(action) else { return };
        let state = detail.wait.take().map_or_else(WaitState::default, |wait| *wait);
        // Its runtime's wish for the deadline is fulfilled once.
        let on_expiry = state.on_expiry.filter(|_| deadline.is_none());
        detail.wait = WaitState { steps: *steps, on_expiry, ..state }.into_stored();
        let asked = self.summary.pending_actions.iter_mut().find(|asked| asked.action == *action);
        if let (Some(asked), Some(_)) = (asked, deadline) {
            asked.expires_at = *deadline;
        }
    }

    /// Forgets the oldest closed controls beyond the limit, and lists the open ones in the summary.
    fn count_controls(&mut self) {
        let (mut open, mut closed): (Vec<_>, Vec<_>) = self.controls.values().partition(|of| of.state == ControlState::Open);
        open.sort_unstable_by_key(|record| record.queue_position);
        closed.sort_unstable_by_key(|record| record.queue_position);
        let waiting = open.iter().filter_map(|record| Some((record.queue_position, record.waits?)));
        self.summary.extension.waiting = waiting.collect();
        let held = open.iter().filter(|record| record.is_held());
        self.summary.extension.held = held.map(|record| record.queue_position).collect();
        self.summary.controls = open.into_iter().map(ControlRecord::to_open).collect();
        let forgotten = closed.len().saturating_sub(CLOSED_CONTROLS_MAX);
        let forgotten: Vec<_> = closed.into_iter().take(forgotten).map(|record| record.id.clone()).collect();
        for id in forgotten {
            self.controls.remove(&id);
            self.controls_changed.push(id);
        }
    }
}
