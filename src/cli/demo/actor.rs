//! The producer of one scripted run.
//!
//! It publishes facts one by one at a human pace, requests decisions and waits for them, accepts steering, and ends
//! when the viewer interrupts it. A runtime needs the same few calls: publish, request a decision, handle controls,
//! end.

use super::Context;
use super::api::Producer;
use super::control_router::{Control, ControlInbox, RunIdentity};
use crate::cli::CliError;
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a waiting actor sends an empty delivery.
///
/// It keeps the server from marking the run as stale.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(4);

/// The reason why a run stopped before its scripted end.
#[derive(Debug)]
pub enum PlayError {
    /// The viewer stopped the run with this control; `None`: the viewer stopped the coordinator.
    Interrupted(Option<Control>),
    /// The server rejected a fact, or a scene has an error.
    Failed(String),
}

impl From<CliError> for PlayError {
    fn from(error: CliError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The event types of a streamed text: of its parts, and of its end.
pub type Streamed = [&'static str; 2];
pub const TEXT: Streamed = ["text.delta", "text.final"];
pub const REASONING: Streamed = ["reasoning.delta", "reasoning.summary"];
pub const PLAN: Streamed = ["plan.delta", "plan.final"];

/// The viewer's decision.
pub struct Decision {
    pub is_approved: bool,
    pub value: Value,
}

/// The producer of one run.
pub struct Actor {
    pub context: Arc<Context>,
    pub identity: RunIdentity,
    producer: Producer,
    inbox: ControlInbox,
    /// The number of messages so far; each gets its own id.
    messages: u32,
}

impl Actor {
    /// Registers a run and publishes its start.
    pub async fn begin(context: &Arc<Context>, identity: RunIdentity, started: Value) -> Result<Self, PlayError> {
        let mut ids = vec![("sessionId", identity.session.as_str()), ("agentId", &identity.agent)];
        let thread = format!("{}-main", identity.session);
        ids.push(("threadId", &thread));
        let parent_thread = identity.parent.as_ref().map(|(_, session)| format!("{session}-main")).unwrap_or_default();
        if let Some((_, session)) = &identity.parent {
            ids.extend([("parentSessionId", session.as_str()), ("parentThreadId", &parent_thread)]);
        }
        let producer = context.api.producer(&identity.run, &ids);
        let inbox = context.router.register(&identity, None);
        let mut actor = Self { context: context.clone(), identity, producer, inbox, messages: 0 };
        actor.publish(&[json!({ "type": "run.started", "payload": started })]).await?;
        Ok(actor)
    }

    /// Publishes facts without a pause.
    pub async fn publish(&mut self, facts: &[Value]) -> Result<(), PlayError> {
        Ok(self.producer.publish(facts).await?)
    }

    /// Waits for this many milliseconds at the speed of the demo, and handles controls meanwhile.
    pub async fn pause(&mut self, ms: u64) -> Result<(), PlayError> {
        let context = self.context.clone();
        self.wait_for(context.pause(ms)).await
    }

    /// Waits for a future; handles controls and keeps the run alive meanwhile.
    pub async fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> Result<T, PlayError> {
        let context = self.context.clone();
        let leader = self.identity.parent.as_ref().map(|(run, _)| run.clone());
        let cancelled = async {
            match &leader {
                Some(run) => context.router.team_cancelled(run).await,
                None => std::future::pending().await,
            }
        };
        let (mut future, mut cancelled) = (pin!(future), pin!(cancelled));
        loop {
            tokio::select! {
                biased;
                control = self.inbox.next() => self.handle_control(control).await?,
                () = &mut cancelled => return Err(PlayError::Interrupted(None)),
                output = &mut future => return Ok(output),
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => self.publish(&[]).await?,
            }
        }
    }

    /// Handles a control of the running turn.
    async fn handle_control(&mut self, control: Control) -> Result<(), PlayError> {
        if control.is("steer") { self.steer(control).await } else { Err(PlayError::Interrupted(Some(control))) }
    }

    /// Steers the running turn: publishes the viewer's text, and then acknowledges the control.
    async fn steer(&mut self, control: Control) -> Result<(), PlayError> {
        let (words, id) = (control.message_text(), control.id().to_owned());
        let message = json!({ "type": "text.final", "messageId": id, "payload": { "role": "user", "text": words } });
        self.publish(&[message]).await?;
        self.context.api.ack(&control.0).await;
        self.publish(&[json!({ "type": "run.status", "payload": { "message": format!("Steered: {words}") } })]).await?;
        // The reply is one fact without pauses, so that no other control can interrupt it.
        let text = format!("Understood — I will keep “{words}” in mind as I continue.");
        let reply = json!({ "type": "text.final", "messageId": format!("{id}-reply"), "payload": { "text": text } });
        self.publish(&[reply]).await
    }

    /// Requests a decision from the viewer and waits for it without a time limit.
    ///
    /// The decision counts once this run has published its `action.resolved`.
    pub async fn request_decision(&mut self, action: &str, agent: Option<&str>, request: Value) -> Result<Decision, PlayError> {
        let agent = agent.unwrap_or(&self.identity.agent).to_owned();
        // Subscribe before the request, so that an immediate answer is not lost.
        let mut answers = self.context.router.register(&self.identity, Some(action));
        let about = |event_type: &str, payload: Value| json!({ "type": event_type, "actionId": action, "agentId": agent, "payload": payload });
        self.publish(&[about("action.required", request)]).await?;
        let control = match self.wait_for(answers.next()).await {
            Ok(control) => control,
            Err(ended) => {
                self.publish(&[about("action.resolved", json!({ "outcome": "cancelled" }))]).await?;
                return Err(ended);
            }
        };
        let is_approved = !control.is("reject") && control.0["value"]["approved"] != false;
        let outcome = match (is_approved, control.is("answer")) {
            (false, _) => "rejected",
            (true, true) => "answered",
            (true, false) => "approved",
        };
        let value = control.0["value"].clone();
        let mut resolved = json!({ "outcome": outcome });
        if !value.is_null() {
            resolved["value"] = value.clone();
        }
        // Acknowledge after the fact is durable, so that every acknowledged control has its fact.
        self.publish(&[about("action.resolved", resolved)]).await?;
        self.context.api.ack(&control.0).await;
        Ok(Decision { is_approved, value })
    }

    /// Returns an id for the next message.
    pub fn message(&mut self) -> String {
        self.messages += 1;
        format!("{}-message-{}", self.identity.run, self.messages)
    }

    /// Streams a text word by word, and ends it with its final. `agent`: a teammate that works in this run.
    pub async fn stream(&mut self, event_types: Streamed, agent: Option<&str>, text: &str) -> Result<(), PlayError> {
        let message = self.message();
        let agent = agent.unwrap_or(&self.identity.agent).to_owned();
        let part = format!("{message}-part");
        let fact = |event_type: &str, text: &str| {
            let payload = json!({ "text": text });
            json!({ "type": event_type, "messageId": message, "partId": part, "agentId": agent, "payload": payload })
        };
        for words in text.split_inclusive([' ', '\n']) {
            self.publish(&[fact(event_types[0], words)]).await?;
            let ms = 25 + self.context.random(45);
            self.pause(ms).await?;
        }
        self.publish(&[fact(event_types[1], text)]).await?;
        self.pause(250).await
    }

    /// Ends the run as completed, interrupted or failed.
    pub async fn end<T>(mut self, played: Result<T, PlayError>) -> Result<T, PlayError> {
        match played {
            Ok(output) => {
                self.publish(&[json!({ "type": "run.finished", "payload": { "status": "completed" } })]).await?;
                Ok(output)
            }
            Err(PlayError::Interrupted(control)) => {
                let payload = json!({ "status": "interrupted", "message": "Interrupted by the viewer." });
                self.publish(&[json!({ "type": "run.finished", "payload": payload })]).await?;
                if let Some(control) = &control {
                    self.context.api.ack(&control.0).await;
                }
                Err(PlayError::Interrupted(control))
            }
            Err(rejected) => {
                let error = json!({ "code": "refused", "message": "The script of the demo failed. See the log of the demo for the reason." });
                // The server may reject this fact as well.
                let _ = self.publish(&[json!({ "type": "run.failed", "payload": { "error": error } })]).await;
                Err(rejected)
            }
        }
    }
}
