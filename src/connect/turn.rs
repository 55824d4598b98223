//! One turn of an agent: call it, store what it streams, cancel it, and end the run in every case.
//!
//! ```text
//! accepted ─▶ call ──▶ facts … ──▶ the run ended, or waits
//!               │ ▲       └─ failed, silent, cut off ─▶ run.failed, with a reason for operators
//!               └─┘ retry, while nothing has come
//! ```

use super::ag_ui;
use super::call::{ActionReply, BranchStart, Protocol, QuestionLife, TurnInput, Upstream, UpstreamCall};
use super::conversation;
use super::entry::AgentEntry;
use super::error::{RetryHint, STATE_LOST, UpstreamError, excerpt};
use super::http::ENDPOINT_UNREACHABLE;
use super::memory;
use super::parts;
use crate::branches::LeftTurn;
use crate::control::Answer;
use crate::control::aside::{ASIDE_ANSWER, ASIDE_REQUEST, Aside};
use crate::guard::KnownSecrets;
use crate::ingest::WriterView;
use crate::log::LogId;
use crate::log::agent_memory::{AgentMemory, MemoryWrite, Remembered};
use crate::log::commit::Tail;
use crate::model::branch::Fork;
use crate::model::{Control, ControlId, Draft, EventType, Ids, Phase, RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::api::facts::publisher::FactPublisher;
use crate::serve::clients::threads::RUNS_MAX;
use crate::serve::contract::kinds::RUN_EXISTS;
use crate::serve::http::problem::Problem;
use crate::source::ledger::Status;
use crate::source::{self, DryRun, SourceKind};
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

/// The first pause before a call is repeated. Each further one is twice as long, up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Time that a cancelled agent has to report its end.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(10);
/// Facts that a cancelled agent may send until its end. The log gets none of them; beyond, the call is cut off.
const CANCELLED_FACTS_MAX: usize = 1024;
/// Runs whose lost state is remembered. Beyond, a branch finds out again.
const LOST_STATES_MAX: usize = 1024;
/// How often the connector tries to store that a run failed, if the store is overloaded.
const END_ATTEMPTS_MAX: u32 = 5;

/// An agent that is connected.
pub(super) struct ConnectedAgent {
    pub app: Arc<App>,
    pub entry: AgentEntry,
    pub protocol: Box<dyn Protocol>,
    /// The credentials of the entry.
    pub secrets: KnownSecrets,
    /// Signals that a call could not connect.
    pub was_unreachable: Notify,
    /// The runs after which the agent no longer has its state, at most [`LOST_STATES_MAX`].
    pub lost_states: Mutex<HashSet<RunId>>,
}

/// A claimed control that the connector has to answer.
#[derive(Debug, Clone)]
pub(super) struct HeldControl {
    pub id: ControlId,
    pub lease: Box<str>,
    pub control: Control,
    pub value: Option<Value>,
    pub action: Option<String>,
    pub user_headers: Option<HeaderMap>,
}

/// A turn to do.
#[derive(Debug, Clone)]
pub(super) struct TurnJob {
    pub run: RunId,
    pub session: SessionId,
    pub input: TurnInput,
    /// The controls that asked for it.
    pub controls: Vec<HeldControl>,
    /// The request beside the conversation that it brings. It has no run until the agent says something to readers.
    pub aside: Option<Aside>,
}

/// An answer that another call must bring.
pub(super) type LateReply = (HeldControl, ActionReply);

/// What may happen to a turn at work.
#[derive(Debug)]
pub(super) enum TurnCommand {
    Cancel(HeldControl),
    Steer(HeldControl, String),
    Reply(HeldControl, ActionReply),
    /// The deadline of an action passed: the answer is no, and no control brought it.
    Expired(ActionReply),
    /// A message superseded what the turn asks.
    Abandon,
}

impl ConnectedAgent {
    /// Answers a control. A lost lease is no failure: the control comes again.
    pub async fn answer(&self, control: &HeldControl, answer: Answer) {
        let app = &self.app;
        let answered = app.controls.answer(&app.logs, &app.ingest, &control.id, &control.lease, answer, |_| true).await;
        if let Err(error) = answered {
            tracing::debug!(agent = %self.entry.name, control = %control.id, %error, "a control was not answered");
        }
    }

    /// Refuses a control.
    pub async fn refuse(&self, control: &HeldControl, reason: impl Into<String>) {
        self.answer(control, Answer::Nack { reason: Some(reason.into()), requeue: false }).await;
    }

    /// Answers a control that asks for a run that exists.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn answer_for_existing_run(&self, run: &RunId, control: &HeldControl) -> Result<(), Problem> {
        let memory = self.memory_of(run).await?;
        match memory.as_ref().and_then(|memory| memory::id(&memory.run, CONTROL)) {
            // It began the run, and its acknowledgement was lost.
            Some(id) if id == control.id.as_str() => self.answer(control, Answer::Ack).await,
            _ => self.refuse(control, format!("Run {run} exists already. Choose another runId.")).await,
        }
        Ok(())
    }

    /// The tail of a run.
    pub async fn tail(&self, run: &RunId) -> Result<Tail, Problem> {
        Ok(self.app.logs.log(&LogId::Run(run.clone())).await?.tail())
    }

    fn source(&self) -> &'static SourceKind {
        source::by_name(self.entry.connector.source).expect("every connector names a source")
    }

    async fn publisher(&self, job: &TurnJob) -> Result<FactPublisher<'_>, Problem> {
        let thread = ThreadId::new(job.session.as_str()).ok();
        let ids = Ids { session: Some(job.session.clone()), thread, agent: Some(self.entry.name.clone()), ..Ids::default() };
        FactPublisher::connect(&self.app, LogId::Run(job.run.clone()), ids).await
    }

    /// Publishes native facts of a run that has no turn.
    ///
    /// # Errors
    /// As [`FactPublisher::publish`].
    pub async fn publish(&self, run: &RunId, session: Option<SessionId>, facts: &[Value]) -> Result<(), Problem> {
        let ids = Ids { session, agent: Some(self.entry.name.clone()), ..Ids::default() };
        let mut publisher = FactPublisher::connect(&self.app, LogId::Run(run.clone()), ids).await?;
        publisher.publish(&source::agent_ui::SOURCE, &lines(facts), None).await
    }

    /// Ends a run whose questions the agent has given up.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub async fn give_up(&self, run: &RunId, end: Vec<Value>) -> Result<(), Problem> {
        let summary = self.tail(run).await?.summary;
        let mut facts: Vec<Value> = summary.run.pending.iter().map(superseded_fact).collect();
        facts.extend(end);
        self.publish(run, summary.session_id.clone(), &facts).await
    }

    /// Does a turn, from its acceptance to the run's end or pause. Returns the answers that this call could not take.
    pub async fn run_turn(&self, job: TurnJob, mut commands: mpsc::UnboundedReceiver<TurnCommand>) -> Vec<LateReply> {
        let run = job.run.clone();
        let mut turn = match self.publisher(&job).await {
            Ok(mut publisher) => {
                let headers = job.controls.iter().filter_map(|control| control.user_headers.as_ref());
                let secrets = Arc::new(headers.fold(self.secrets.clone(), KnownSecrets::with_headers));
                publisher.hide(secrets.clone());
                let (memory, late, branch_start, answer) = (Remembered::default(), Vec::new(), None, Map::new());
                Turn { agent: self, publisher, job, memory, branch_start, secrets, late, is_cancelled: false, answer }
            }
            Err(problem) => {
                tracing::error!(agent = %self.entry.name, %run, reason = problem.detail, "a turn cannot begin");
                return Vec::new();
            }
        };
        match turn.begin().await {
            Ok(true) => {
                let outcome = turn.work(&mut commands).await;
                turn.end(outcome).await;
            }
            Ok(false) => {}
            Err(problem) => turn.fail_to_begin(problem).await,
        }
        // A command that came too late has nothing left to do.
        commands.close();
        while let Some(command) = commands.recv().await {
            match command {
                TurnCommand::Cancel(control) => self.answer(&control, Answer::Ack).await,
                TurnCommand::Reply(control, reply) => turn.late.push((control, reply)),
                TurnCommand::Expired(_) | TurnCommand::Abandon => {}
                TurnCommand::Steer(control, _) => self.refuse(&control, "The turn has ended. Send a new message.").await,
            }
        }
        turn.late
    }
}

/// A turn at work.
struct Turn<'a> {
    agent: &'a ConnectedAgent,
    publisher: FactPublisher<'a>,
    job: TurnJob,
    memory: Remembered,
    /// With what the agent begins in a branch, until it has.
    branch_start: Option<BranchStart>,
    /// The credentials of the agent, and the headers of its users: no fact repeats them.
    secrets: Arc<KnownSecrets>,
    /// Answers that another call must bring.
    late: Vec<LateReply>,
    is_cancelled: bool,
    /// What the agent answers a request beside the conversation: `result` or `error`.
    answer: Map<String, Value>,
}

impl Turn<'_> {
    async fn publish_native(&mut self, facts: &[Value]) -> Result<(), Problem> {
        self.publisher.publish(&source::agent_ui::SOURCE, &lines(facts), None).await
    }

    async fn status(&self) -> Result<Status, Problem> {
        Ok(self.agent.tail(&self.job.run).await?.summary.run.status)
    }

    /// Calls the agent until the run has ended or waits.
    async fn work(&mut self, commands: &mut mpsc::UnboundedReceiver<TurnCommand>) -> Result<(), UpstreamError> {
        let mut call = self.prepare().await?;
        let is_new = matches!(self.job.input, TurnInput::Messages { .. });
        if self.job.aside.is_some() {
            // Its answer comes with the acknowledgement.
        } else if is_new {
            // The message is safe, and the run exists: the control is done.
            self.acknowledge().await;
        } else if !self.drop_given_up(&mut call).await? {
            return Ok(());
        }
        self.copy_state(&mut call).await?;
        let first = self.call(&call, commands).await?;
        let Some((mut upstream, mut facts)) = first else { return Ok(()) };
        if self.job.aside.is_some() {
            if !self.listen(&mut *upstream, &mut facts, commands).await? {
                return Ok(());
            }
            self.job.aside = None;
            self.begin_run().await?;
            self.acknowledge().await;
        }
        if is_new && self.agent.protocol.question_life() != QuestionLife::UntilAnswered {
            self.give_up_earlier_runs().await?;
        }
        let (mut deadline, mut facts_dropped) = (None, 0);
        loop {
            match facts.take() {
                Some(news) if self.is_cancelled => facts_dropped += news.len(),
                Some(news) => self.store(&mut *upstream, &news).await?,
                None => {}
            }
            if facts_dropped > CANCELLED_FACTS_MAX {
                return Ok(());
            }
            if self.is_cancelled && deadline.is_none() {
                deadline = Some(Instant::now() + CANCEL_TIME_MAX);
            }
            let cancelled_for_long = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(command) = commands.recv() => {
                    if self.obey(&mut *upstream, command).await? {
                        return Ok(());
                    }
                }
                // Before the next facts: an agent that goes on writing always has some.
                () = cancelled_for_long => return Ok(()),
                next = upstream.next() => match next? {
                    Some(news) => facts = Some(news),
                    None => break,
                },
            }
        }
        match self.status().await? {
            status if status.is_end() || status == Status::Waiting || self.is_cancelled => Ok(()),
            _ => {
                let last = upstream.conclude().await?;
                Ok(self.publish_native(&last).await?)
            }
        }
    }

    /// Stores the acceptance of a new turn, and finds the memory of an earlier one. `false`: nothing is left to do.
    async fn begin(&mut self) -> Result<bool, Problem> {
        if !matches!(self.job.input, TurnInput::Messages { .. }) {
            self.memory = self.agent.memory_of(&self.job.run).await?.unwrap_or_default();
            return self.drop_decided().await;
        }
        self.memory = self.agent.memory_of_session(&self.job.session).await?;
        self.branch_start = self.agent.branch_start(&self.job.session, &self.memory).await?;
        match &self.job.aside {
            Some(aside) => self.log_aside(json!({ "kind": ASIDE_REQUEST, "request": aside.request })).await?,
            None => self.begin_run().await?,
        }
        Ok(true)
    }

    /// Stores the acceptance of a new turn.
    async fn begin_run(&mut self) -> Result<(), Problem> {
        let TurnInput::Messages { messages, .. } = &self.job.input else { return Ok(()) };
        let mut facts = vec![json!({ "type": "run.status", "payload": { "status": "accepted" } })];
        facts.extend(conversation::facts(messages));
        let control = self.job.controls.first().map(|control| control.id.as_str());
        self.memory.run = memory::named([(CONTROL, control)]);
        let memory = MemoryWrite::First(self.agent.memory(self.memory.clone()));
        self.publisher.publish(&source::agent_ui::SOURCE, &lines(&facts), Some(memory)).await
    }

    /// Stores a fact about a request beside the conversation, for internal readers of the session.
    async fn log_aside(&self, payload: Value) -> Result<(), Problem> {
        let ids = Ids { session: Some(self.job.session.clone()), agent: Some(self.agent.entry.name.clone()), ..Ids::default() };
        let mut fact = json!({ "type": "diagnostic.changed", "audience": "internal", "payload": payload });
        fact["payload"]["controlId"] = self.job.controls.first().map(|control| control.id.as_str()).into();
        let mut publisher = FactPublisher::connect(&self.agent.app, LogId::Session(self.job.session.clone()), ids).await?;
        publisher.hide(self.secrets.clone());
        publisher.publish(&source::agent_ui::SOURCE, &lines(&[fact]), None).await
    }

    /// Reads what the agent answers to a request beside the conversation, until it says something to readers.
    ///
    /// `true`: it did, and `facts` has all so far. `false`: it has answered.
    async fn listen(
        &mut self,
        upstream: &mut dyn Upstream,
        facts: &mut Option<Vec<String>>,
        commands: &mut mpsc::UnboundedReceiver<TurnCommand>,
    ) -> Result<bool, UpstreamError> {
        let mut run = DryRun::new(self.agent.source());
        let ids = Ids { run: Some(self.job.run.clone()), ..Ids::default() };
        let mut held = Vec::new();
        loop {
            let mut is_said = false;
            for fact in facts.take().into_iter().flatten() {
                let drafts = serde_json::from_str(&fact).ok().and_then(|fact| run.adapt(fact, &ids).ok()).unwrap_or_default();
                for draft in &drafts {
                    is_said |= !is_quiet(draft);
                    let member = match draft.event_type {
                        EventType::RunFailed => "error",
                        EventType::RunFinished => "result",
                        _ => continue,
                    };
                    self.answer.extend(draft.member(member).map(|value| (member.to_owned(), value.into_value())));
                }
                held.push(fact);
            }
            if is_said || held.len() > ASIDE_FACTS_MAX {
                *facts = Some(held);
                return Ok(true);
            }
            tokio::select! {
                biased;
                Some(command) = commands.recv() => {
                    if self.obey(upstream, command).await? || self.is_cancelled {
                        return Ok(false);
                    }
                }
                next = upstream.next() => match next? {
                    Some(news) => *facts = Some(news),
                    None => return Ok(false),
                },
            }
        }
    }

    /// Stores the answer to a request beside the conversation.
    async fn end_aside(&mut self, outcome: &Result<(), UpstreamError>) -> Result<(), Problem> {
        let mut payload = Map::from_iter([("kind".to_owned(), Value::from(ASIDE_ANSWER))]);
        match outcome {
            Ok(()) if self.is_cancelled => {
                drop(payload.insert("error".into(), json!({ "message": "The request was cancelled." })));
            }
            Ok(()) => payload.extend(self.answer.clone()),
            Err(error) => {
                payload.insert("error".into(), json!({ "code": "agent_failed", "message": AGENT_FAILED }));
                payload.insert("reason".into(), self.secrets.mask(&error.to_string()).into());
            }
        }
        self.log_aside(payload.into()).await?;
        self.acknowledge().await;
        Ok(())
    }

    /// Answers the controls of a turn that did not begin.
    async fn fail_to_begin(&mut self, problem: Problem) {
        tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, reason = problem.detail, "a turn cannot begin");
        let is_begun = self.agent.memory_of(&self.job.run).await.is_ok_and(|memory| memory.is_some());
        if is_begun && problem.code != RUN_EXISTS.code {
            return self.end(Err(problem.into())).await;
        }
        // Nothing is written here: the run may be another producer's.
        for control in std::mem::take(&mut self.job.controls) {
            let is_answered =
                problem.code == RUN_EXISTS.code && self.agent.answer_for_existing_run(&self.job.run, &control).await.is_ok();
            if !is_answered {
                self.agent.answer(&control, Answer::Nack { reason: Some(problem.detail.clone()), requeue: true }).await;
            }
        }
    }

    /// Drops answers to questions that were resolved while the turn waited. `false`: none is left.
    async fn drop_decided(&mut self) -> Result<bool, Problem> {
        if !matches!(self.job.input, TurnInput::Replies(_)) {
            return Ok(true);
        }
        let summary = self.agent.tail(&self.job.run).await?.summary;
        // The refusal of an expired action has no control, and its action is resolved.
        let is_decided = |control: &HeldControl| !summary.run.pending.contains(control.action.as_deref().unwrap_or_default());
        let decided: HashSet<_> =
            self.job.controls.iter().filter(|of| is_decided(of)).filter_map(|of| of.action.clone()).collect();
        self.keep_replies(|action| !decided.contains(action)).await;
        Ok(!self.job.controls.is_empty())
    }

    /// Drops answers to questions that the agent no longer asks: they would reach another one. `false`: none is left.
    async fn drop_given_up(&mut self, call: &mut UpstreamCall) -> Result<bool, UpstreamError> {
        if !matches!(call.input, TurnInput::Replies(_)) {
            return Ok(true);
        }
        let Some(open) = self.agent.protocol.open_questions(call).await? else { return Ok(true) };
        let asked = self.job.controls.iter().filter_map(|control| control.action.as_deref());
        let mut facts: Vec<Value> = asked.filter(|action| !open.contains(*action)).map(superseded_fact).collect();
        let is_left = self.keep_replies(|action| open.contains(action)).await;
        call.input = self.job.input.clone();
        facts.extend((!is_left).then(given_up_fact));
        self.publish_native(&facts).await?;
        Ok(is_left)
    }

    /// Keeps the answers to these actions, and refuses the other controls. `false`: none is left.
    async fn keep_replies(&mut self, is_kept: impl Fn(&str) -> bool) -> bool {
        let TurnInput::Replies(replies) = &mut self.job.input else { return true };
        replies.retain(|reply| is_kept(reply.action.as_str()));
        let is_left = !replies.is_empty();
        let is_kept = |control: &HeldControl| control.action.as_deref().is_none_or(&is_kept);
        let (kept, dropped) = std::mem::take(&mut self.job.controls).into_iter().partition::<Vec<_>, _>(is_kept);
        self.job.controls = kept;
        for control in dropped {
            self.agent.refuse(&control, GIVEN_UP).await;
        }
        is_left
    }

    /// Ends the earlier runs of the session that wait: the agent got new input instead of their answers.
    async fn give_up_earlier_runs(&self) -> Result<(), Problem> {
        for run in self.agent.runs_of_session(&self.job.session).await? {
            let is_open = run != self.job.run && !self.agent.tail(&run).await?.summary.run.status.is_end();
            if is_open && self.agent.memory_of(&run).await?.is_some() {
                self.agent.give_up(&run, vec![given_up_fact()]).await?;
            }
        }
        Ok(())
    }

    /// Collects what the agent needs to know.
    async fn prepare(&mut self) -> Result<UpstreamCall, UpstreamError> {
        let (app, entry) = (&self.agent.app, &self.agent.entry);
        let is_new = matches!(self.job.input, TurnInput::Messages { .. });
        let pending = match &self.job.input {
            TurnInput::Replies(replies) => {
                replies.iter().filter_map(|reply| reply.asked("toolCallId")).map(str::to_owned).collect()
            }
            _ => HashSet::new(),
        };
        let except = is_new.then_some(&self.job.run);
        let conversation = conversation::read(app, &self.job.session, entry.history, except, &pending).await?;
        let mut input = self.job.input.clone();
        if let TurnInput::Messages { messages, .. } = &mut input {
            // An AG-UI agent gets the parts as they are.
            if entry.connector.name != ag_ui::CONNECTOR.name {
                parts::check_known(messages)?;
            }
            *messages = parts::with_attachments(app, &self.job.session, std::mem::take(messages)).await?;
        }
        Ok(UpstreamCall {
            session: self.job.session.clone(),
            run: self.job.run.clone(),
            history: conversation.history,
            input,
            memory: self.memory.clone(),
            user_headers: self.user_headers()?,
            nonce: (app.environment.random)(),
            own_ids: conversation.own_ids,
            branch_start: self.branch_start.clone(),
        })
    }

    /// Copies the agent's state for a branch, and remembers the copy.
    async fn copy_state(&mut self, call: &mut UpstreamCall) -> Result<(), UpstreamError> {
        let mut attempt = 0;
        let news = loop {
            let Some(left) = call.left_turn() else { return Ok(()) };
            let error = match self.agent.protocol.copy_state(call, left).await {
                Ok(news) => break news,
                Err(error) => error,
            };
            sleep(self.pause_before(error, &mut attempt)?).await;
        };
        if let Some(memory) = self.remember(news) {
            let message = "The agent continues with a copy of its state at the point of the branch.";
            let copied = json!({ "kind": "connector", "code": "agent_state_copied", "message": message, "severity": "info" });
            let fact = json!({ "type": "diagnostic.changed", "audience": "dashboard", "payload": copied });
            self.publisher.publish(&source::agent_ui::SOURCE, &lines(&[fact]), Some(memory)).await?;
            call.memory = self.memory.clone();
        }
        Ok(())
    }

    /// The pause before the next attempt, or the failure if there is none.
    fn pause_before(&self, error: UpstreamError, attempt: &mut u32) -> Result<Duration, UpstreamError> {
        if error.code == ENDPOINT_UNREACHABLE {
            self.agent.was_unreachable.notify_one();
        }
        let Some(hint) = error.retry.filter(|_| *attempt < self.agent.entry.limits.retries) else { return Err(error) };
        let pause = match hint {
            RetryHint::After(pause) => pause,
            RetryHint::Backoff => BACKOFF_MIN * 2u32.saturating_pow(*attempt),
        };
        *attempt += 1;
        tracing::info!(agent = %self.agent.entry.name, run = %self.job.run, %error, attempt, "a call is repeated");
        Ok(pause.min(BACKOFF_MAX))
    }

    /// The headers of the user who sent the newest control, as far as the agent gets them.
    fn user_headers(&self) -> Result<HeaderMap, UpstreamError> {
        let names = &self.agent.entry.forward_headers;
        if names.is_empty() {
            return Ok(HeaderMap::new());
        }
        self.job.controls.last().and_then(|control| control.user_headers.clone()).ok_or_else(|| {
            let names: Vec<_> = names.iter().map(http::HeaderName::as_str).collect();
            let why = "The server holds the user's headers only in memory, and lost them by a restart or under load";
            UpstreamError::new("user_headers_lost", format!("{why}: {}. Send the message again.", names.join(", ")))
        })
    }

    /// Takes over what the agent gave, for later calls.
    fn remember(&mut self, news: Remembered) -> Option<MemoryWrite> {
        let before = self.memory.clone();
        for name in memory::update(&mut self.memory, news) {
            tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, name, "a value of the agent cannot be remembered");
        }
        (self.memory != before).then(|| MemoryWrite::Later(self.agent.memory(self.memory.clone())))
    }

    /// Acknowledges the controls that asked for this turn.
    async fn acknowledge(&mut self) {
        for control in std::mem::take(&mut self.job.controls) {
            self.agent.answer(&control, Answer::Ack).await;
        }
    }

    /// Calls the agent, again while it does not accept the call, until its first facts.
    ///
    /// `None`: the user cancelled first.
    async fn call(
        &mut self,
        call: &UpstreamCall,
        commands: &mut mpsc::UnboundedReceiver<TurnCommand>,
    ) -> Result<Option<(Box<dyn Upstream>, Option<Vec<String>>)>, UpstreamError> {
        let mut attempt = 0;
        loop {
            let agent = self.agent;
            let mut beginning = pin!(async {
                let mut upstream = agent.protocol.call(call).await?;
                loop {
                    match upstream.next().await? {
                        Some(facts) if facts.is_empty() => {}
                        facts => return Ok((upstream, facts)),
                    }
                }
            });
            let outcome = tokio::select! {
                biased;
                () = cancelled(agent, commands, &mut self.late) => {
                    self.is_cancelled = true;
                    // Its first event has the id that a cancellation names.
                    if agent.protocol.outlives_connection()
                        && let Ok(Ok((mut upstream, _))) = timeout(CANCEL_TIME_MAX, beginning).await
                    {
                        self.cancel(&mut *upstream).await;
                    }
                    return Ok(None);
                }
                outcome = &mut beginning => outcome,
            };
            let error: UpstreamError = match outcome {
                Ok((upstream, None)) => return self.conclude_empty(upstream).await,
                Ok(begun) => return Ok(Some(begun)),
                Err(error) => error,
            };
            let pause = self.pause_before(error, &mut attempt)?;
            tokio::select! {
                biased;
                () = cancelled(self.agent, commands, &mut self.late) => {
                    self.is_cancelled = true;
                    return Ok(None);
                }
                () = sleep(pause) => {}
            }
        }
    }

    /// Ends a call whose stream had no fact at all.
    async fn conclude_empty<T>(&mut self, mut upstream: Box<dyn Upstream>) -> Result<Option<T>, UpstreamError> {
        let last = upstream.conclude().await?;
        if self.job.aside.is_none() {
            self.acknowledge().await;
            self.publish_native(&last).await?;
        }
        Ok(None)
    }

    /// Stores facts. The first ones also answer the controls that asked for the call.
    async fn store(&mut self, upstream: &mut dyn Upstream, facts: &[String]) -> Result<(), UpstreamError> {
        if !facts.is_empty() {
            self.resolve().await?;
            let mut news = upstream.news();
            if self.branch_start.take().is_some() {
                news.session.insert(BRANCH_BEGUN.into(), true.into());
            }
            let memory = self.remember(news);
            self.publisher.publish(self.agent.source(), facts, memory).await.map_err(|problem| refused(problem, facts))?;
            self.acknowledge().await;
        }
        Ok(())
    }

    /// Says how the actions were answered, once the call went through, if no fact of the source does.
    async fn resolve(&mut self) -> Result<(), Problem> {
        let TurnInput::Replies(replies) = &self.job.input else { return Ok(()) };
        if !self.agent.entry.connector.resolves || self.job.controls.is_empty() {
            return Ok(());
        }
        let resolved = |reply: &ActionReply| {
            let mut payload = Map::from_iter([("outcome".to_owned(), Value::from(reply.outcome()))]);
            payload.extend(reply.value.clone().map(|value| ("value".to_owned(), value)));
            json!({ "type": "action.resolved", "actionId": reply.action, "payload": payload })
        };
        let facts: Vec<Value> = replies.iter().map(resolved).collect();
        self.publish_native(&facts).await
    }

    /// Carries out a command. `true`: the turn is over.
    async fn obey(&mut self, upstream: &mut dyn Upstream, command: TurnCommand) -> Result<bool, UpstreamError> {
        match command {
            TurnCommand::Cancel(control) => {
                self.is_cancelled = true;
                let goes_on = self.cancel(upstream).await;
                self.agent.answer(&control, Answer::Ack).await;
                Ok(!goes_on)
            }
            TurnCommand::Abandon => {
                self.is_cancelled = true;
                Ok(!self.cancel(upstream).await)
            }
            TurnCommand::Steer(control, text) => {
                match upstream.steer(&text).await? {
                    true => self.agent.answer(&control, Answer::Ack).await,
                    false => self.agent.refuse(&control, NO_STEERING).await,
                }
                Ok(false)
            }
            TurnCommand::Reply(control, reply) => {
                match upstream.reply(&reply).await? {
                    true => self.agent.answer(&control, Answer::Ack).await,
                    false => self.late.push((control, reply)),
                }
                Ok(false)
            }
            TurnCommand::Expired(reply) => {
                // An agent that takes no answer in this call does not wait for one.
                upstream.reply(&reply).await?;
                Ok(false)
            }
        }
    }

    /// Asks the agent to stop. `true`: the stream will still report the end.
    async fn cancel(&self, upstream: &mut dyn Upstream) -> bool {
        match timeout(CANCEL_TIME_MAX, upstream.cancel()).await {
            Ok(Ok(goes_on)) => goes_on,
            Ok(Err(error)) => {
                tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, %error, "a cancellation failed");
                false
            }
            Err(_) => false,
        }
    }

    /// Makes sure that the run has ended, or waits.
    async fn end(&mut self, outcome: Result<(), UpstreamError>) {
        let mut pause = BACKOFF_MIN;
        for _ in 0..END_ATTEMPTS_MAX {
            match self.try_end(&outcome).await {
                Ok(()) => return,
                Err(problem) => {
                    tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, reason = problem.detail, "cannot end a run");
                    sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    async fn try_end(&mut self, outcome: &Result<(), UpstreamError>) -> Result<(), Problem> {
        if self.job.aside.is_some() {
            return self.end_aside(outcome).await;
        }
        let status = self.status().await?;
        if let Err(error) = outcome {
            let error = self.secrets.mask(&error.to_string()).into_owned();
            tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, error, "a turn failed");
        }
        if let (Err(UpstreamError { code: STATE_LOST, .. }), Some(BranchStart::State(left))) = (outcome, &self.branch_start) {
            self.agent.note_lost_state(&left.run);
        }
        let facts = match outcome {
            _ if status.is_end() => Vec::new(),
            _ if self.is_cancelled => vec![cancelled_fact()],
            Ok(()) => Vec::new(),
            Err(error) => failure_facts(error),
        };
        if !facts.is_empty() {
            self.publish_native(&facts).await?;
        }
        // The failure is the answer to what asked for the call.
        self.acknowledge().await;
        Ok(())
    }
}

/// The error of facts that the log did not accept. It quotes one that is not JSON.
fn refused(problem: Problem, facts: &[String]) -> UpstreamError {
    let invalid = facts.iter().find(|fact| serde_json::from_str::<serde::de::IgnoredAny>(fact).is_err());
    let mut error = UpstreamError::from(problem);
    if let Some(invalid) = invalid {
        error.reason.push_str(": ");
        error.reason.push_str(&excerpt(invalid));
    }
    error
}

/// The most facts that an agent may send before its answer is a run.
const ASIDE_FACTS_MAX: usize = 1024;

/// Whether a draft says nothing to the readers of a thread: it only carries the answer to a request beside it.
fn is_quiet(draft: &Draft) -> bool {
    use EventType as E;
    let is_of_run = matches!(
        draft.event_type,
        E::RunStarted | E::RunStatus | E::RunFinished | E::RunFailed | E::TaskChanged | E::DiagnosticChanged | E::MetricChanged
    );
    is_of_run && draft.phase != Phase::Waiting
}

/// What a run remembers: the control that began it.
const CONTROL: &str = "control";
/// What a branch remembers: that the agent has begun in it.
const BRANCH_BEGUN: &str = "branchBegun";

const GIVEN_UP: &str = "The agent no longer asks this. Nothing was decided.";

/// The end of a question that the agent has given up.
fn superseded_fact(action: &str) -> Value {
    json!({ "type": "action.resolved", "actionId": action, "payload": { "outcome": "superseded", "synthetic": true } })
}

/// The end of a run that waited for answers that the agent no longer wants.
pub(super) fn given_up_fact() -> Value {
    json!({ "type": "run.finished", "payload": { "status": "interrupted" } })
}

/// Facts as lines.
fn lines(facts: &[Value]) -> Vec<String> {
    facts.iter().map(Value::to_string).collect()
}

const NO_STEERING: &str = "The agent takes no message in the middle of a turn. Queue it instead.";

/// The end of a run that the user stopped.
pub(super) fn cancelled_fact() -> Value {
    json!({ "type": "run.finished", "payload": { "status": "cancelled" } })
}

const STATE_LOST_SHOWN: &str =
    "The agent no longer has its state at this point. Send the message again: the agent then gets the conversation in words.";
const AGENT_FAILED: &str = "The agent failed. The operators can see why.";

/// The end of a run whose call failed: the reason for operators, and for users that it failed.
pub(super) fn failure_facts(error: &UpstreamError) -> Vec<Value> {
    let reason = json!({ "kind": "connector", "code": error.code, "message": error.reason, "severity": "error" });
    // What is wrong with a user's own file is for the user.
    let is_of_user = error.code == parts::FILE_REFUSED;
    let shown = match error.code {
        parts::FILE_REFUSED => json!({ "code": error.code, "message": error.reason }),
        STATE_LOST => json!({ "code": error.code, "message": STATE_LOST_SHOWN }),
        _ => json!({ "code": "agent_failed", "message": AGENT_FAILED }),
    };
    vec![
        json!({ "type": "diagnostic.changed", "audience": "dashboard", "payload": reason }),
        json!({ "type": "run.failed", "payload": { "error": shown, "retryable": !is_of_user } }),
    ]
}

/// Resolves once the user cancels a call that has no fact yet. Keeps answers for another call.
async fn cancelled(agent: &ConnectedAgent, commands: &mut mpsc::UnboundedReceiver<TurnCommand>, late: &mut Vec<LateReply>) {
    loop {
        match commands.recv().await {
            Some(TurnCommand::Cancel(control)) => return agent.answer(&control, Answer::Ack).await,
            Some(TurnCommand::Abandon) => return,
            Some(TurnCommand::Steer(control, _)) => agent.refuse(&control, NO_STEERING).await,
            Some(TurnCommand::Reply(control, reply)) => late.push((control, reply)),
            Some(TurnCommand::Expired(_)) => {}
            None => std::future::pending().await,
        }
    }
}

impl ConnectedAgent {
    /// What the connector of this agent remembers of a run. `None`: it did not begin the run.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn memory_of(&self, run: &RunId) -> Result<Option<Remembered>, Problem> {
        let (agent, protocol) = (&self.entry.name, self.entry.connector.name);
        let read = |view: &WriterView<'_>| view.agent_memory(agent, protocol).map(|memory| memory.values.clone());
        Ok(self.app.ingest.read(&LogId::Run(run.clone()), read).await?)
    }

    /// The agent's newest runs of a session, the newest first.
    async fn runs_of_session(&self, session: &SessionId) -> Result<Vec<RunId>, Problem> {
        let (logs, _) = self.app.logs.sessions().logs_of(session, RUNS_MAX).unwrap_or_default();
        let mut runs = Vec::new();
        for (_, log) in logs {
            let LogId::Run(run) = log else { continue };
            if self.tail(&run).await?.summary.agent.as_ref() == Some(&self.entry.name) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// What the agent's newest run of a session left to later ones.
    async fn memory_of_session(&self, session: &SessionId) -> Result<Remembered, Problem> {
        for run in self.runs_of_session(session).await? {
            if let Some(memory) = self.memory_of(&run).await? {
                return Ok(Remembered { session: memory.session, ..Remembered::default() });
            }
        }
        Ok(Remembered::default())
    }

    /// What the agent knows in a branch, by its last turn before the point.
    pub fn fork_of(&self, left: Option<&LeftTurn>) -> Fork {
        match left {
            Some(left) if !self.lost_states.lock().contains(&left.run) => self.protocol.fork_of(left),
            _ => Fork::Transcript,
        }
    }

    /// With what the agent begins in a session. `None`: the session is no branch, or the agent has begun in it.
    async fn branch_start(&self, session: &SessionId, memory: &Remembered) -> Result<Option<BranchStart>, Problem> {
        let Some(origin) = self.app.logs.sessions().origin_of(session) else { return Ok(None) };
        if memory.session.contains_key(BRANCH_BEGUN) {
            return Ok(None);
        }
        let left = self.app.branches.left_turn(session, &self.entry.name, self.entry.connector.name).await?;
        // The session that it left may have gone on since the branch began.
        let left = left.filter(|left| origin.fork == Fork::State && self.fork_of(Some(left)) == Fork::State);
        Ok(Some(left.map_or(BranchStart::Transcript, BranchStart::State)))
    }

    fn note_lost_state(&self, run: &RunId) {
        let mut lost = self.lost_states.lock();
        if lost.len() < LOST_STATES_MAX {
            lost.insert(run.clone());
        }
    }

    fn memory(&self, values: Remembered) -> AgentMemory {
        AgentMemory { agent: self.entry.name.clone(), protocol: self.entry.connector.name.to_owned(), values }
    }
}
