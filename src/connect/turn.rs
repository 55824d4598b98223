//! One turn of an agent: call it, store what it streams, cancel it, and end the run in every case.
//!
//! ```text
//! accepted ─▶ call ──▶ facts … ──▶ the run ended, or waits
//!               │ ▲       └─ failed, silent, cut off ─▶ run.failed, with a reason for operators
//!               └─┘ retry, while nothing has come
//! ```

use super::call::{ActionReply, Protocol, TurnInput, Upstream, UpstreamCall};
use super::conversation::{self, MEMORY};
use super::entry::AgentEntry;
use super::error::{RetryHint, UpstreamError, excerpt};
use crate::control::Answer;
use crate::log::LogId;
use crate::log::commit::Tail;
use crate::model::{Control, ControlId, Ids, RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::api::facts::publisher::FactPublisher;
use crate::serve::http::problem::Problem;
use crate::source::ledger::Status;
use crate::source::{self, SourceKind};
use http::HeaderMap;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// The first pause before a call is repeated. Each further one is twice as long, up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Time that a cancelled agent has to report its end.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the connector tries to store that a run failed, if the store is overloaded.
const END_ATTEMPTS_MAX: u32 = 5;

/// An agent that is connected.
pub(super) struct ConnectedAgent {
    pub app: Arc<App>,
    pub entry: AgentEntry,
    pub protocol: Box<dyn Protocol>,
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

    /// Does a turn, from its acceptance to the run's end or pause. Returns the answers that this call could not take.
    pub async fn run_turn(&self, job: TurnJob, mut commands: mpsc::UnboundedReceiver<TurnCommand>) -> Vec<LateReply> {
        let run = job.run.clone();
        let mut turn = match self.publisher(&job).await {
            Ok(publisher) => Turn { agent: self, publisher, job, memory: Map::new(), late: Vec::new(), is_cancelled: false },
            Err(problem) => {
                tracing::error!(agent = %self.entry.name, %run, reason = problem.detail, "a turn cannot begin");
                return Vec::new();
            }
        };
        let outcome = turn.work(&mut commands).await;
        turn.end(outcome).await;
        // A command that came too late has nothing left to do.
        commands.close();
        while let Some(command) = commands.recv().await {
            match command {
                TurnCommand::Cancel(control) => self.answer(&control, Answer::Ack).await,
                TurnCommand::Reply(control, reply) => turn.late.push((control, reply)),
                TurnCommand::Expired(_) => {}
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
    memory: Map<String, Value>,
    /// Answers that another call must bring.
    late: Vec<LateReply>,
    is_cancelled: bool,
}

impl Turn<'_> {
    async fn publish_native(&mut self, facts: &[Value]) -> Result<(), Problem> {
        let facts: Vec<String> = facts.iter().map(Value::to_string).collect();
        self.publisher.publish(&source::agent_ui::SOURCE, &facts).await
    }

    async fn status(&self) -> Result<Status, Problem> {
        Ok(self.agent.tail(&self.job.run).await?.summary.run.status)
    }

    /// Calls the agent until the run has ended or waits.
    async fn work(&mut self, commands: &mut mpsc::UnboundedReceiver<TurnCommand>) -> Result<(), UpstreamError> {
        let call = self.prepare().await?;
        if matches!(self.job.input, TurnInput::Messages { .. }) {
            // The message is safe, and the run exists: the control is done.
            self.acknowledge().await;
        }
        let first = self.call(&call, commands).await?;
        let Some((mut upstream, mut facts)) = first else { return Ok(()) };
        let mut deadline = None;
        loop {
            if let Some(news) = facts.take() {
                self.store(&mut *upstream, &news).await?;
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
                next = upstream.next() => match next? {
                    Some(news) => facts = Some(news),
                    None => break,
                },
                () = cancelled_for_long => return Ok(()),
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

    /// Stores the acceptance of the turn, and collects what the agent needs to know.
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
        let state = conversation::read(app, &self.job.session, entry.history, except, &pending).await?;
        self.memory = match is_new {
            true => Map::new(),
            false => self.agent.memory_of(&self.job.run).await?,
        };
        if let TurnInput::Messages { messages, .. } = &self.job.input {
            let mut facts = vec![json!({ "type": "run.status", "payload": { "status": "accepted" } })];
            facts.extend(conversation::facts(messages));
            self.memory.insert("protocol".into(), entry.connector.name.into());
            facts.push(self.memory_fact());
            self.publish_native(&facts).await?;
        }
        Ok(UpstreamCall {
            session: self.job.session.clone(),
            run: self.job.run.clone(),
            history: state.history,
            input: self.job.input.clone(),
            memory: self.memory.clone(),
            session_memory: state.memory,
            user_headers: self.user_headers()?,
            nonce: (app.environment.random)(),
        })
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

    /// What the connector remembers, as a fact for the internal audience.
    fn memory_fact(&self) -> Value {
        json!({ "type": "state.snapshot", "messageId": MEMORY, "audience": "internal",
            "payload": { "activityType": MEMORY, "content": self.memory } })
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
            let Some(hint) = error.retry.filter(|_| attempt < self.agent.entry.limits.retries) else { return Err(error) };
            let pause = match hint {
                RetryHint::After(pause) => pause,
                RetryHint::Backoff => BACKOFF_MIN * 2u32.saturating_pow(attempt),
            };
            attempt += 1;
            tracing::info!(agent = %self.agent.entry.name, run = %self.job.run, %error, attempt, "a call is repeated");
            tokio::select! {
                biased;
                () = cancelled(self.agent, commands, &mut self.late) => {
                    self.is_cancelled = true;
                    return Ok(None);
                }
                () = sleep(pause.min(BACKOFF_MAX)) => {}
            }
        }
    }

    /// Ends a call whose stream had no fact at all.
    async fn conclude_empty<T>(&mut self, mut upstream: Box<dyn Upstream>) -> Result<Option<T>, UpstreamError> {
        let last = upstream.conclude().await?;
        self.acknowledge().await;
        self.publish_native(&last).await?;
        Ok(None)
    }

    /// Stores facts. The first ones also answer the controls that asked for the call.
    async fn store(&mut self, upstream: &mut dyn Upstream, facts: &[String]) -> Result<(), UpstreamError> {
        if !facts.is_empty() {
            self.resolve().await?;
            self.publisher.publish(self.agent.source(), facts).await.map_err(|problem| refused(problem, facts))?;
            self.acknowledge().await;
        }
        if let Some(memory) = upstream.memory() {
            self.memory.extend(memory);
            let fact = self.memory_fact();
            self.publish_native(&[fact]).await?;
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
        let status = self.status().await?;
        if let Err(error) = outcome {
            tracing::warn!(agent = %self.agent.entry.name, run = %self.job.run, %error, "a turn failed");
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

const NO_STEERING: &str = "The agent takes no message in the middle of a turn. Queue it instead.";

/// The end of a run that the user stopped.
pub(super) fn cancelled_fact() -> Value {
    json!({ "type": "run.finished", "payload": { "status": "cancelled" } })
}

/// The end of a run whose call failed: the reason for operators, and for users that it failed.
pub(super) fn failure_facts(error: &UpstreamError) -> Vec<Value> {
    let reason = json!({ "kind": "connector", "code": error.code, "message": error.reason, "severity": "error" });
    let shown = json!({ "code": "agent_failed", "message": "The agent failed. The operators can see why." });
    vec![
        json!({ "type": "diagnostic.changed", "audience": "dashboard", "payload": reason }),
        json!({ "type": "run.failed", "payload": { "error": shown, "retryable": true } }),
    ]
}

/// Resolves once the user cancels a call that has no fact yet. Keeps answers for another call.
async fn cancelled(agent: &ConnectedAgent, commands: &mut mpsc::UnboundedReceiver<TurnCommand>, late: &mut Vec<LateReply>) {
    loop {
        match commands.recv().await {
            Some(TurnCommand::Cancel(control)) => return agent.answer(&control, Answer::Ack).await,
            Some(TurnCommand::Steer(control, _)) => agent.refuse(&control, NO_STEERING).await,
            Some(TurnCommand::Reply(control, reply)) => late.push((control, reply)),
            Some(TurnCommand::Expired(_)) => {}
            None => std::future::pending().await,
        }
    }
}

impl ConnectedAgent {
    /// What the connector stored about a run.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn memory_of(&self, run: &RunId) -> Result<Map<String, Value>, Problem> {
        let shown = crate::serve::clients::shown_activities(&self.app, run, crate::model::Audience::Internal, None).await?;
        Ok(shown
            .into_iter()
            .find(|activity| &*activity.kind == MEMORY)
            .map(|activity| Arc::unwrap_or_clone(activity.content))
            .unwrap_or_default())
    }
}
