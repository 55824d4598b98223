//! The worker of one agent: claims its controls, and gives each to a turn.
//!
//! The turns of a session run one after the other, so that each sees the conversation that the earlier ones left. All
//! sessions together have [`turns_max`](super::entry::AgentEntry::turns_max) turns at work: what asks for a further one
//! stays in the agent's queue, in order, while decisions and stops pass it. Controls that wait here keep their claim; a
//! claim that expires meanwhile comes again, and replaces the old one.

use super::call::{ActionReply, QuestionLife, TurnInput};
use super::conversation::{self, PageResult};
use super::error::UpstreamError;
use super::parts::is_text_alone;
use super::turn::{ConnectedAgent, HeldControl, LateReply, TurnCommand, TurnJob, cancelled_fact, failure_facts, given_up_fact};
use crate::control::aside::Aside;
use crate::control::{Answer, Claim, ClaimedControl};
use crate::log::LogId;
use crate::log::control::SupersededAction;
use crate::log::deadlines::ActionOfLog;
use crate::log::queues::WorkRoom;
use crate::model::{ActionId, Audience, Control, RunId, SessionId};
use crate::serve::clients::bodies::BodyReader;
use crate::serve::clients::shown_activities;
use crate::serve::clients::threads::Thread;
use crate::serve::http::problem::Problem;
use crate::source::ledger::Status;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long a claim is exclusive: the longest lease.
const LEASE: Duration = Duration::from_mins(10);
/// Controls of one claim, and controls that wait for a session or for further answers.
const CONTROLS_PER_CLAIM: usize = 16;
const HELD_MAX: usize = 1024;
/// The pause after a failure of the store.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    agent: Arc<ConnectedAgent>,
    /// The turns at work, by run.
    active: HashMap<RunId, ActiveTurn>,
    /// The turns that wait for another one, the oldest first.
    waiting: VecDeque<TurnJob>,
    /// Answers to runs that wait for further ones.
    replies: HashMap<RunId, BTreeMap<String, (HeldControl, ActionReply)>>,
    /// The refusals of expired actions, for runs whose further actions wait for answers. At most [`HELD_MAX`] runs.
    expired: HashMap<RunId, Vec<ActionReply>>,
    turns: JoinSet<Vec<LateReply>>,
    /// The run of each task, also of one that panicked.
    tasks: HashMap<tokio::task::Id, RunId>,
}

struct ActiveTurn {
    session: SessionId,
    commands: mpsc::UnboundedSender<TurnCommand>,
}

impl Worker {
    pub fn new(agent: Arc<ConnectedAgent>) -> Self {
        let (active, replies, tasks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { agent, active, waiting: VecDeque::new(), replies, expired: HashMap::new(), turns: JoinSet::new(), tasks }
    }

    /// Works until the task is aborted.
    pub async fn run(mut self) {
        if let Err(problem) = self.recover().await {
            tracing::error!(agent = %self.agent.entry.name, reason = problem.detail, "cannot end the runs of the last process");
        }
        let mut expiries = self.agent.app.logs.deadlines().subscribe();
        loop {
            let agent = self.agent.clone();
            let app = &agent.app;
            let max = CONTROLS_PER_CLAIM.min(HELD_MAX.saturating_sub(self.held()));
            let claim = Claim { max, lease: LEASE, room: Some(self.room()), covers: None };
            let claimed = async {
                if claim.max == 0 {
                    return std::future::pending().await;
                }
                app.controls.claim(&app.logs, &app.ingest, &agent.entry.name, claim, None, || true).await
            };
            tokio::select! {
                Some(ended) = self.turns.join_next_with_id() => self.turn_ended(ended).await,
                expired = expiries.recv() => {
                    // A reader that lags lost some: their agents wait until they give up on their own.
                    let Ok(expired) = expired else { continue };
                    if let Err(problem) = self.action_expired(expired).await {
                        tracing::warn!(agent = %agent.entry.name, reason = problem.detail, "an expired action was not handled");
                    }
                }
                claimed = claimed => match claimed {
                    Ok(controls) => {
                        for control in controls {
                            self.take(control).await;
                        }
                    }
                    Err(error) => {
                        // A failure of the store stops the server elsewhere.
                        tracing::error!(agent = %agent.entry.name, %error, "cannot claim controls");
                        tokio::time::sleep(FAILURE_PAUSE).await;
                    }
                },
            }
        }
    }

    fn held(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|job| job.controls.len()).sum();
        waiting + self.replies.values().map(BTreeMap::len).sum::<usize>()
    }

    /// The turns that can begin now. One further message of each session may wait here for the turn before it: more would
    /// go before the older messages of other sessions.
    fn room(&self) -> WorkRoom {
        let turns = self.agent.entry.turns_max.saturating_sub(self.active.len());
        // The scope of a run without a session is the run.
        let scopes = |job: &TurnJob| [LogId::Session(job.session.clone()), LogId::Run(run_of(&job.session))];
        WorkRoom { turns, busy: self.waiting.iter().flat_map(scopes).collect() }
    }

    /// Ends or continues the runs that the previous process left at work.
    async fn recover(&mut self) -> Result<(), Problem> {
        let agent = self.agent.clone();
        for run in agent.app.logs.active_runs() {
            let summary = agent.tail(&run).await?.summary;
            if summary.agent.as_ref() != Some(&agent.entry.name) {
                continue;
            }
            // Another worker of the same name may be at work on its own runs.
            let Some(memory) = agent.memory_of(&run).await? else { continue };
            let session = summary.session_id.clone().unwrap_or_else(|| session_of(&run));
            // The headers of the call that was cut off are lost.
            if agent.protocol.can_rejoin(&memory) && agent.entry.forward_headers.is_empty() {
                self.enqueue(TurnJob { run, session, input: TurnInput::Rejoin, controls: Vec::new(), aside: None }).await;
            } else {
                let why = "The server restarted in the middle of the run, and cannot read on.";
                agent.publish(&run, Some(session), &failure_facts(&UpstreamError::new("server_restarted", why))).await?;
            }
        }
        if agent.protocol.question_life() == QuestionLife::WithinCall {
            self.give_up_waiting_runs().await?;
        }
        Ok(())
    }

    /// Ends the runs that wait for answers that no process still wants.
    async fn give_up_waiting_runs(&self) -> Result<(), Problem> {
        let agent = &self.agent;
        for run in agent.app.logs.sessions().all_runs_with_pending() {
            let is_of_agent = agent.tail(&run).await?.summary.agent.as_ref() == Some(&agent.entry.name);
            if is_of_agent && agent.memory_of(&run).await?.is_some() {
                let why = "The server restarted while the run waited, and the agent's process ended with it.";
                agent.give_up(&run, failure_facts(&UpstreamError::new("server_restarted", why))).await?;
            }
        }
        Ok(())
    }

    /// Gives a claimed control to its turn.
    async fn take(&mut self, control: ClaimedControl) {
        let held = HeldControl {
            id: control.control_id.clone(),
            lease: control.lease.clone(),
            control: control.control.clone(),
            value: control.value.clone(),
            action: control.targets.get("actionId").cloned(),
            user_headers: control.user_headers.clone(),
        };
        let taken = match &control.control {
            Control::Send | Control::Queue => self.request(control, &held).await,
            Control::Approve | Control::Reject | Control::Answer => self.reply(control.run_id, &held).await,
            Control::Edit if held.action.is_some() => self.reply(control.run_id, &held).await,
            Control::Interrupt | Control::Stop => self.stop(control.run_id, &held).await,
            Control::Steer => self.steer(control.run_id, &held).await,
            other => {
                let name = self.agent.entry.connector.name;
                self.agent.refuse(&held, format!("{name} has nothing for the control {other}.")).await;
                Ok(())
            }
        };
        if let Err(problem) = taken {
            tracing::warn!(agent = %self.agent.entry.name, control = %held.id, reason = problem.detail, "a control was not taken");
            self.agent.answer(&held, Answer::Nack { reason: Some(problem.detail), requeue: true }).await;
        }
    }

    /// A new turn.
    async fn request(&mut self, control: ClaimedControl, held: &HeldControl) -> Result<(), Problem> {
        let request = conversation::request(control.value.as_ref(), held.id.as_str());
        let run = request.run.unwrap_or_else(|| RunId::new(held.id.as_str()).expect("runs and controls share one id syntax"));
        if self.agent.tail(&run).await?.epoch.is_some() {
            self.agent.answer_for_existing_run(&run, held).await?;
            return Ok(());
        }
        let session = match (control.session_id, control.run_id) {
            (Some(session), _) => session,
            (None, Some(of)) => self.agent.tail(&of).await?.summary.session_id.clone().unwrap_or_else(|| session_of(&of)),
            (None, None) => session_of(&run),
        };
        let aside = Aside::of(control.value.as_ref());
        if let Some(reason) = aside.as_ref().and_then(|aside| self.refusal_of(aside, control.attempt)) {
            self.agent.refuse(held, reason).await;
            return Ok(());
        }
        self.leave(&control.supersedes).await?;
        self.store_results(&session, &request.results).await?;
        let input = TurnInput::Messages { messages: request.messages, members: request.members };
        self.enqueue(TurnJob { run, session, input, controls: vec![held.clone()], aside }).await;
        Ok(())
    }

    /// Why a request beside the conversation cannot go to the agent.
    fn refusal_of(&self, aside: &Aside, attempt: u32) -> Option<String> {
        if !self.agent.protocol.carries(aside.kind) {
            let (name, what) = (self.agent.entry.connector.name, aside.request.keys().next().map_or("", String::as_str));
            return Some(format!("{name} has no form for {what}, so the agent cannot get it."));
        }
        // No run tells whether the agent got it.
        (attempt > 1).then(|| "The server may have sent the request to the agent before it restarted. Repeat it.".to_owned())
    }

    /// Ends the turns and the waiting runs whose questions a message superseded.
    async fn leave(&mut self, superseded: &[SupersededAction]) -> Result<(), Problem> {
        let runs: BTreeSet<&RunId> = superseded.iter().filter_map(|superseded| superseded.run.as_ref()).collect();
        for run in runs {
            if self.active.get(run).is_some_and(|turn| turn.commands.send(TurnCommand::Abandon).is_ok()) {
                continue;
            }
            self.expired.remove(run);
            for (reply, _) in self.replies.remove(run).unwrap_or_default().into_values() {
                self.agent.refuse(&reply, "A message superseded what the run asked.").await;
            }
            let summary = self.agent.tail(run).await?.summary;
            let is_left = summary.run.status == Status::Waiting && summary.run.pending.is_empty();
            if is_left && summary.agent.as_ref() == Some(&self.agent.entry.name) {
                self.agent.give_up(run, vec![given_up_fact()]).await?;
            }
        }
        Ok(())
    }

    /// Stores the results of tools that ran in the page, in the runs that called them.
    async fn store_results(&self, session: &SessionId, results: &[PageResult]) -> Result<(), Problem> {
        if results.is_empty() {
            return Ok(());
        }
        let app = &self.agent.app;
        let shown = Thread::of_session(app, session).await?.shown_activities(app, Audience::Internal).await?;
        for result in results {
            let awaits = shown.iter().find(|shown| *shown.id == *result.call && shown.content.contains_key("awaits"));
            let Some(run) = awaits.and_then(|shown| RunId::new(shown.run.as_deref()?).ok()) else { continue };
            self.agent.publish(&run, Some(session.clone()), &[result.fact()]).await?;
        }
        Ok(())
    }

    /// Starts a turn, or lets it wait for another one.
    async fn enqueue(&mut self, job: TurnJob) {
        let is_same = |waiting: &&mut TurnJob| {
            waiting.run == job.run && waiting.controls.iter().any(|of| job.controls.iter().any(|new| new.id == of.id))
        };
        match self.waiting.iter_mut().find(is_same) {
            // Its claim expired, and this is the new one.
            Some(waiting) => *waiting = job,
            None => self.waiting.push_back(job),
        }
        self.start_waiting().await;
    }

    /// Starts the turns that wait, as far as there is room and their sessions have none at work.
    ///
    /// A message does not start while an action of the agent is pending: the agent would give up its question. It goes
    /// back to the queue, which holds it.
    async fn start_waiting(&mut self) {
        while self.active.len() < self.agent.entry.turns_max {
            let is_free = |job: &TurnJob| self.active.values().all(|turn| turn.session != job.session);
            let Some(job) = self.waiting.iter().position(is_free).and_then(|at| self.waiting.remove(at)) else { return };
            let pending = self.agent.app.logs.pending_actions();
            let is_message = matches!(job.input, TurnInput::Messages { .. }) && job.aside.is_none();
            if is_message && pending.holds_back(&LogId::Session(job.session.clone()), &self.agent.entry.name) {
                for message in &job.controls {
                    self.agent.answer(message, Answer::Hold).await;
                }
            } else {
                self.start(job);
            }
        }
    }

    fn start(&mut self, job: TurnJob) {
        let (commands, received) = mpsc::unbounded_channel();
        let (agent, run) = (self.agent.clone(), job.run.clone());
        self.active.insert(run.clone(), ActiveTurn { session: job.session.clone(), commands });
        let task = self.turns.spawn(async move { agent.run_turn(job, received).await });
        self.tasks.insert(task.id(), run);
    }

    async fn turn_ended(&mut self, ended: Result<(tokio::task::Id, Vec<LateReply>), tokio::task::JoinError>) {
        let (id, late) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(agent = %self.agent.entry.name, %error, "a turn panicked; the server will settle its run");
                (error.id(), Vec::new())
            }
        };
        let Some(run) = self.tasks.remove(&id) else { return };
        self.expired.remove(&run);
        self.active.remove(&run);
        for (held, reply) in late {
            if let Err(problem) = self.collect(&run, held, reply).await {
                tracing::warn!(agent = %self.agent.entry.name, %run, reason = problem.detail, "an answer was not taken");
            }
        }
        self.start_waiting().await;
    }

    /// An answer to an action. The call that brings it upstream needs the answers to all actions of the run.
    async fn reply(&mut self, run: Option<RunId>, held: &HeldControl) -> Result<(), Problem> {
        let agent = self.agent.clone();
        let (Some(run), Some(action)) = (run, &held.action) else {
            agent.refuse(held, "Name the run that asked, and its action.").await;
            return Ok(());
        };
        let action = ActionId::new(action).expect("a target of a control is an id");
        let asked = self.asked(&run, &action).await?;
        let reply = ActionReply { action, control: held.control.clone(), value: held.value.clone(), asked };
        let reply = reply.with_own_value();
        if held.control == Control::Edit
            && let Err(reason) = agent.protocol.check_edit(&reply)
        {
            agent.refuse(held, reason).await;
            return Ok(());
        }
        // It fails only for a turn that has just ended.
        let tell = |turn: &ActiveTurn| turn.commands.send(TurnCommand::Reply(held.clone(), reply.clone())).is_ok();
        if self.active.get(&run).is_some_and(tell) {
            return Ok(());
        }
        self.collect(&run, held.clone(), reply).await
    }

    /// An action as internal readers see it.
    async fn asked(&self, run: &RunId, action: &ActionId) -> Result<Map<String, Value>, Problem> {
        let shown = shown_activities(&self.agent.app, run, Audience::Internal, None).await?;
        let asked = shown.into_iter().find(|shown| &*shown.kind == "action" && *shown.id == *action.as_str());
        let asked = asked.map(|asked| Arc::unwrap_or_clone(asked.content)).unwrap_or_default();
        Ok(BodyReader::new(&self.agent.app, Audience::Internal, vec![run.clone()]).fill_value(asked).await)
    }

    /// Tells the turn at work that an action has expired, or brings the answers that only waited for that action.
    async fn action_expired(&mut self, expired: ActionOfLog) -> Result<(), Problem> {
        let LogId::Run(run) = expired.log else { return Ok(()) };
        let summary = self.agent.tail(&run).await?.summary;
        if summary.agent.as_ref() != Some(&self.agent.entry.name) {
            return Ok(());
        }
        let asked = self.asked(&run, &expired.action).await?;
        let reply = ActionReply { action: expired.action, control: Control::Reject, value: None, asked };
        if let Some(turn) = self.active.get(&run) {
            // It fails only for a turn that has just ended.
            let _ = turn.commands.send(TurnCommand::Expired(reply));
        } else if !summary.run.pending.is_empty() && (self.expired.len() < HELD_MAX || self.expired.contains_key(&run)) {
            self.expired.entry(run.clone()).or_default().push(reply);
        }
        self.bring_replies(&run).await
    }

    /// Keeps an answer until all actions of its run have one, and then begins the call that brings them.
    async fn collect(&mut self, run: &RunId, held: HeldControl, reply: ActionReply) -> Result<(), Problem> {
        let replies = self.replies.entry(run.clone()).or_default();
        let displaced = replies.insert(reply.action.to_string(), (held.clone(), reply)).map(|(displaced, _)| displaced);
        // The claim of the same control may have expired and come again.
        if let Some(displaced) = displaced.filter(|displaced| displaced.id != held.id) {
            self.agent.refuse(&displaced, "Another answer to this action took its place.").await;
        }
        self.bring_replies(run).await
    }

    /// Begins the call that brings the answers of a run, if each of its pending actions has one.
    async fn bring_replies(&mut self, run: &RunId) -> Result<(), Problem> {
        let Some(replies) = self.replies.remove(run) else { return Ok(()) };
        let tail = self.agent.tail(run).await?;
        let pending = &tail.summary.run.pending;
        let (replies, resolved): (BTreeMap<_, _>, BTreeMap<_, _>) =
            replies.into_iter().partition(|(action, _)| pending.contains(action));
        for (held, _) in resolved.into_values() {
            self.agent.answer(&held, Answer::Ack).await;
        }
        match replies.len() {
            0 => {}
            answered if answered < pending.len() => drop(self.replies.insert(run.clone(), replies)),
            _ => {
                let (controls, mut replies): (_, Vec<_>) = replies.into_values().unzip();
                replies.extend(self.expired.remove(run).unwrap_or_default());
                let session = tail.summary.session_id.clone().unwrap_or_else(|| session_of(run));
                let input = TurnInput::Replies(replies);
                self.enqueue(TurnJob { run: run.clone(), session, input, controls, aside: None }).await;
            }
        }
        Ok(())
    }

    async fn stop(&mut self, run: Option<RunId>, held: &HeldControl) -> Result<(), Problem> {
        let agent = self.agent.clone();
        let Some(run) = run else {
            agent.refuse(held, "Name the run to stop.").await;
            return Ok(());
        };
        if self.active.get(&run).is_some_and(|turn| turn.commands.send(TurnCommand::Cancel(held.clone())).is_ok()) {
            return Ok(());
        }
        let collected = self.replies.remove(&run).unwrap_or_default().into_values().map(|(reply, _)| reply);
        let waiting = self.waiting.iter().position(|job| job.run == run).and_then(|at| self.waiting.remove(at));
        for reply in collected.chain(waiting.into_iter().flat_map(|job| job.controls)) {
            agent.refuse(&reply, "The run was stopped before its agent got the answer.").await;
        }
        if agent.tail(&run).await?.summary.run.status == Status::Waiting {
            agent.publish(&run, None, &[cancelled_fact()]).await?;
        }
        agent.answer(held, Answer::Ack).await;
        Ok(())
    }

    async fn steer(&mut self, run: Option<RunId>, held: &HeldControl) -> Result<(), Problem> {
        let turn = run.and_then(|run| self.active.get(&run));
        let message = conversation::request(held.value.as_ref(), held.id.as_str()).messages.into_iter().next();
        if message.as_ref().is_some_and(|message| !is_text_alone(&message.content)) {
            let why = "An agent at work gets text alone. Send the files with a new message.";
            self.agent.refuse(held, why).await;
            return Ok(());
        }
        let text = message.map(|message| message.text);
        let is_told =
            turn.zip(text).is_some_and(|(turn, text)| turn.commands.send(TurnCommand::Steer(held.clone(), text)).is_ok());
        if !is_told {
            self.agent.refuse(held, "The run is not at work. Send a new message.").await;
        }
        Ok(())
    }
}

/// The session of a run that has none: a thread of its own.
fn session_of(run: &RunId) -> SessionId {
    SessionId::new(run.as_str()).expect("runs and sessions share one id syntax")
}

/// The run without a session whose thread this is.
fn run_of(session: &SessionId) -> RunId {
    RunId::new(session.as_str()).expect("runs and sessions share one id syntax")
}
