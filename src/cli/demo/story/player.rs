//! The player of a scene: it carries out the steps of one agent, one after another.

use super::is_over;
use super::scene::{ReportedCall, Step};
use super::variables::{self, Variables};
use crate::cli::demo::Context;
use crate::cli::demo::actor::{Actor, PLAN, PlayError, REASONING, TEXT};
use crate::cli::demo::api::Producer;
use crate::cli::demo::control_router::{Control, RunIdentity};
use futures_util::future::BoxFuture;
use proscenium_reporter::{ProgressStatus, Reporter, ToolProgressEvent};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The interval between two reads of a run that the server has yet to end.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The pause after a fact that a viewer should see, in milliseconds.
const SHOW_MS: u64 = 350;

/// The teammates of a group.
type Group = JoinSet<Result<(), PlayError>>;

/// The player of one agent.
pub struct Player {
    context: Arc<Context>,
    variables: Variables,
    /// The agent's own run, from its begin to its end.
    actor: Option<Actor>,
    /// A further producer of the coordinator's run. The server keeps the order of each producer.
    lead: Producer,
    /// The run of the coordinator, whose interruption also stops this agent.
    lead_run: Option<String>,
    groups: HashMap<String, Group>,
    /// The scene to play if the viewer stops this one.
    if_stopped: Option<String>,
    /// The control that the scene handles, until it is acknowledged.
    control: Option<Control>,
}

impl Player {
    /// Creates the player of an agent. `lead`: the producer for facts outside its own run.
    pub fn new(context: &Arc<Context>, lead: Producer, variables: Variables) -> Self {
        let context = context.clone();
        Self { context, variables, actor: None, lead, lead_run: None, groups: HashMap::new(), if_stopped: None, control: None }
    }

    pub fn with_control(mut self, control: Control) -> Self {
        self.control = Some(control);
        self
    }

    /// Plays a scene to its end, and logs a failure.
    pub async fn play_logged(self, scene: &'static str) {
        if let Err(PlayError::Failed(error)) = self.play(scene.to_owned()).await {
            tracing::warn!(error, scene, "a scene of the demo failed");
        }
    }

    /// Plays a scene, and ends the run if the viewer stops it.
    pub fn play(mut self, scene: String) -> BoxFuture<'static, Result<(), PlayError>> {
        Box::pin(async move {
            let mut played = self.play_scene(&scene).await;
            if let Err(PlayError::Interrupted(_)) = &played {
                // A coordinator cancels its team, and ends after it.
                if let Some(actor) = self.actor.as_ref().filter(|_| !self.groups.is_empty()) {
                    self.context.router.cancel_team(&actor.identity.run);
                }
                for group in self.groups.values_mut() {
                    while group.join_next().await.is_some() {}
                }
                if let Some(scene) = self.if_stopped.take()
                    && let Err(error) = self.play_scene(&scene).await
                {
                    played = Err(error);
                }
            }
            if let (Err(PlayError::Failed(_)), Some(control)) = (&played, self.control.take()) {
                self.context.api.nack(&control.0, "the server rejects these facts here").await;
            }
            match self.actor.take() {
                Some(actor) if played.is_err() => actor.end(played).await,
                _ => played,
            }
        })
    }

    /// Plays the steps of a scene.
    fn play_scene<'a>(&'a mut self, scene: &'a str) -> BoxFuture<'a, Result<(), PlayError>> {
        Box::pin(async move {
            let context = self.context.clone();
            for line in context.scenes.lines(scene) {
                self.variables.set("now", (context.environment.now)().to_string().into());
                self.play_step(line.step(&self.variables)?).await?;
            }
            Ok(())
        })
    }

    async fn play_step(&mut self, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Scene(_) => {}
            Step::Begin { run, session, agent, parent, started } => {
                self.lead_run = parent.as_ref().map(|(run, _)| run.clone());
                let identity = RunIdentity { run, session, agent, parent };
                self.actor = Some(Actor::begin(&self.context, identity, started).await?);
            }
            Step::Publish(facts) => match &mut self.actor {
                Some(actor) => actor.publish(&facts).await?,
                None => self.lead.publish(&facts).await?,
            },
            Step::Show(fact) => {
                self.actor()?.publish(&[fact]).await?;
                self.actor()?.pause(SHOW_MS).await?;
            }
            Step::Lead(facts) => self.lead.publish(&facts).await?,
            Step::Session { id, facts } => self.context.api.session_producer(&id).publish(&facts).await?,
            Step::Pause(ms) => {
                let context = self.context.clone();
                self.wait_for(context.pause(ms)).await?;
            }
            Step::Text(text) => self.actor()?.stream(TEXT, None, &text).await?,
            Step::Reasoning(text) => self.actor()?.stream(REASONING, None, &text).await?,
            Step::Plan(text) => self.actor()?.stream(PLAN, None, &text).await?,
            Step::Say { agent, text } => self.actor()?.stream(TEXT, Some(&agent), &text).await?,
            Step::Message => {
                let message = self.actor()?.message();
                self.variables.set("message", message.into());
            }
            Step::Report(call) => self.report(&call).await?,
            Step::Decide { action, agent, request, sets, approved, rejected } => {
                let decision = self.actor()?.request_decision(&action, agent.as_deref(), request).await?;
                for (name, default) in sets {
                    let given = decision.value[&name].as_str().or(decision.value.as_str());
                    let given = given.filter(|text| decision.is_approved && !text.is_empty());
                    self.variables.set(&name, given.map_or(default, Value::from));
                }
                self.follow(if decision.is_approved { approved } else { rejected }).await?;
            }
            Step::Set(values) => self.variables.set_all(values),
            Step::Play { scene, each, times } => {
                for (count, own) in variables::repetitions(each, times) {
                    self.variables.set_all(count);
                    self.variables.set_all(own);
                    self.play_scene(&scene).await?;
                }
            }
            Step::Start { scene, group, with } => self.start(scene, group, with)?,
            Step::Wait { group, done, stopped } => {
                let mut waited = self.groups.remove(&group).unwrap_or_default();
                let counted = self.wait_for(count_stopped(&mut waited)).await;
                // If the viewer stops the coordinator, the teammates end with it.
                self.groups.insert(group, waited);
                self.follow(if counted? == 0 { done } else { stopped }).await?;
            }
            Step::Settle(run) => self.settle(&run).await?,
            Step::Finish => {
                if let Some(actor) = self.actor.take() {
                    actor.end(Ok(())).await?;
                }
            }
            Step::Abandon => self.actor = None,
            Step::IfStopped(scene) => self.if_stopped = Some(scene),
            Step::Ack => {
                if let Some(control) = self.control.take() {
                    self.context.api.ack(&control.0).await;
                }
            }
        }
        Ok(())
    }

    fn actor(&mut self) -> Result<&mut Actor, PlayError> {
        self.actor.as_mut().ok_or_else(|| PlayError::Failed("the scene has begun no run".into()))
    }

    /// Waits for a future; handles controls meanwhile.
    async fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> Result<T, PlayError> {
        match (&mut self.actor, &self.lead_run) {
            (Some(actor), _) => actor.wait_for(future).await,
            (None, None) => Ok(future.await),
            (None, Some(run)) => tokio::select! {
                biased;
                () = self.context.router.team_cancelled(run) => Err(PlayError::Interrupted(None)),
                output = future => Ok(output),
            },
        }
    }

    /// Plays the scene that follows, if there is one.
    async fn follow(&mut self, scene: Option<String>) -> Result<(), PlayError> {
        match scene {
            Some(scene) => self.play_scene(&scene).await,
            None => Ok(()),
        }
    }

    /// Starts a teammate, with a producer of this run of its own.
    fn start(&mut self, scene: String, group: String, with: Map<String, Value>) -> Result<(), PlayError> {
        let identity = self.actor()?.identity.clone();
        let lead = self.context.api.producer(&identity.run, &[("sessionId", &identity.session)]);
        let mut variables = self.variables.clone();
        variables.set_all(with);
        let mut teammate = Self::new(&self.context, lead, variables);
        teammate.lead_run = Some(identity.run);
        self.groups.entry(group).or_default().spawn(teammate.play(scene));
        Ok(())
    }

    /// Plays a tool that reports its progress.
    async fn report(&mut self, call: &ReportedCall) -> Result<(), PlayError> {
        let actor = self.actor()?;
        let identity = &actor.identity;
        let setup = Reporter::builder(actor.context.api.url(), &identity.run);
        // Without a reporter the tool still works, but shows no progress.
        let reporter = setup.with_session(&identity.session).with_agent(&identity.agent).start().unwrap_or_default();
        let report = reporter.call(&call.call, &call.tool).with_known_start();
        let activity = call.activity.as_deref().unwrap_or_default();
        if let Some(content) = &call.content {
            report.report_activity(activity, content.clone()).await;
        }
        let count = call.messages.len() as u64;
        for (n, message) in (1..).zip(&call.messages) {
            if let Some(list) = &call.list {
                let patch = json!([{ "op": "add", "path": list, "value": message }]);
                report.report_activity_delta(activity, patch).await;
            }
            let mut state = report.state(ProgressStatus::Running).with_message(message).with_progress(n as f64 / count as f64);
            if let Some(total) = call.total {
                state = state.with_loaded(n * total / count).with_total(total);
            }
            report.report(state).await;
            if let Some(note) = &call.note {
                // Only operators see these notes.
                let note = note.replace('#', &n.to_string());
                report.emit(ToolProgressEvent::new(&call.tool, note).with_audience("dashboard"));
            }
            actor.pause(call.pace_ms).await?;
        }
        if call.done.is_some() {
            report.report_progress(ProgressStatus::Done, call.done.as_deref(), Some(1.0)).await;
        }
        if let Err(error) = reporter.close().await {
            tracing::warn!(%error, "the demo could not report all progress");
        }
        Ok(())
    }

    /// Waits until the server has ended a silent run, or requests it at once if the demo has no pauses or is stopped.
    async fn settle(&mut self, run: &str) -> Result<(), PlayError> {
        let context = self.context.clone();
        let settled = async {
            while context.speed > 0.0 && !is_over(&context.api.run(run).await?) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok::<_, PlayError>(())
        };
        self.wait_for(settled).await.unwrap_or(Ok(()))?;
        context.api.settle(run).await?;
        Ok(())
    }
}

/// Waits for all teammates, and returns the number of those that were stopped or failed.
async fn count_stopped(group: &mut Group) -> usize {
    let mut stopped = 0;
    while let Some(ended) = group.join_next().await {
        match ended {
            Ok(Ok(())) => continue,
            Ok(Err(PlayError::Failed(error))) => tracing::warn!(error, "a teammate of the story failed"),
            Ok(Err(PlayError::Interrupted(_))) | Err(_) => {}
        }
        stopped += 1;
    }
    stopped
}
