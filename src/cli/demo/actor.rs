//! A run that somebody plays: it says its facts one after another, at a human pace; asks, and truly waits for the answer; takes a
//! word in between, and ends when somebody interrupts it.
//!
//! A runtime of your own has the same few points of contact: publish, ask, look whether somebody wants something, end.

use super::Stage;
use super::api::Producer;
use super::desk::{Control, Seat};
use crate::cli::CliError;
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long an actor that waits is silent: then it says that it is still there, by an empty delivery.
const SIGN_OF_LIFE: Duration = Duration::from_secs(4);

/// Why a run is not played to its end.
#[derive(Debug)]
pub enum Ended {
    /// Somebody asked for it, by this control; or who leads the team is interrupted, and with it everybody.
    Interrupted(Option<Control>),
    /// The server takes a fact for none.
    Refused(CliError),
}

impl From<CliError> for Ended {
    fn from(error: CliError) -> Self {
        Self::Refused(error)
    }
}

/// How a viewer decided what was asked.
pub struct Decision {
    pub is_yes: bool,
    pub value: Value,
}

/// Where a run belongs.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub run: String,
    pub session: String,
    pub agent: String,
    /// The run and the session that this one is worked for.
    pub parent: Option<(String, String)>,
}

/// Who plays a run.
pub struct Actor {
    pub stage: Arc<Stage>,
    pub place: Place,
    producer: Producer,
    seat: Seat,
    /// Messages said so far: each gets an id of its own.
    messages: u32,
}

impl Actor {
    /// Takes a run up, and says that it starts.
    pub async fn begin(stage: &Arc<Stage>, place: Place, started: Value) -> Result<Self, Ended> {
        let mut ids = vec![("sessionId", place.session.as_str()), ("agentId", &place.agent)];
        let thread = format!("{}-main", place.session);
        ids.push(("threadId", &thread));
        let parent_thread = place.parent.as_ref().map(|(_, session)| format!("{session}-main")).unwrap_or_default();
        if let Some((_, session)) = &place.parent {
            ids.extend([("parentSessionId", session.as_str()), ("parentThreadId", &parent_thread)]);
        }
        let producer = stage.api.producer(&place.run, &ids);
        let seat = stage.desk.sit(&place);
        let mut actor = Self { stage: stage.clone(), place, producer, seat, messages: 0 };
        actor.publish(&[json!({ "type": "run.started", "payload": started })]).await?;
        Ok(actor)
    }

    /// Publishes facts as they are, at once.
    pub async fn publish(&mut self, facts: &[Value]) -> Result<(), Ended> {
        Ok(self.producer.publish(facts).await?)
    }

    /// Says one thing, and rests as long as somebody needs to see it.
    pub async fn say(&mut self, fact: Value) -> Result<(), Ended> {
        self.publish(&[fact]).await?;
        self.rest(350).await
    }

    /// Waits so many milliseconds, at the speed that is played, unless somebody wants something.
    pub async fn rest(&mut self, ms: u64) -> Result<(), Ended> {
        let stage = self.stage.clone();
        self.wait(stage.pause(ms)).await
    }

    /// Waits for something, and says now and then that it still does.
    pub async fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Ended> {
        let stage = self.stage.clone();
        let leader = self.place.parent.as_ref().map(|(run, _)| run.clone());
        let dismissed = async {
            match &leader {
                Some(run) => stage.desk.dismissed(run).await,
                None => std::future::pending().await,
            }
        };
        let (mut what, mut dismissed) = (pin!(what), pin!(dismissed));
        loop {
            tokio::select! {
                biased;
                control = self.seat.heard() => self.hear(control).await?,
                () = &mut dismissed => return Err(Ended::Interrupted(None)),
                came = &mut what => return Ok(came),
                () = tokio::time::sleep(SIGN_OF_LIFE) => self.publish(&[]).await?,
            }
        }
    }

    /// Takes what somebody wants while the run goes on.
    async fn hear(&mut self, control: Control) -> Result<(), Ended> {
        if control.is("steer") { self.take_a_word(control).await } else { Err(Ended::Interrupted(Some(control))) }
    }

    /// A word into the turn that goes on: it is in the run before it is acknowledged.
    async fn take_a_word(&mut self, control: Control) -> Result<(), Ended> {
        let (words, id) = (control.words(), control.id().to_owned());
        let heard = json!({ "type": "text.final", "messageId": id, "payload": { "role": "user", "text": words } });
        self.publish(&[heard]).await?;
        self.stage.api.ack(&control.0).await;
        self.publish(&[json!({ "type": "run.status", "payload": { "message": format!("Steered: {words}") } })]).await?;
        // Said in one go: a word in between must not interrupt itself.
        let text = format!("Understood — I will keep “{words}” in mind while I go on.");
        let reply = json!({ "type": "text.final", "messageId": format!("{id}-reply"), "payload": { "text": text } });
        self.publish(&[reply]).await
    }

    /// Asks the viewer something and waits for the answer: for ever, if nobody comes. Until this run's own fact says so, nothing
    /// is decided.
    pub async fn ask(&mut self, action: &str, asker: Option<&str>, what: Value) -> Result<Decision, Ended> {
        let asker = asker.unwrap_or(&self.place.agent).to_owned();
        // Listening comes before asking: whoever answers at once is heard.
        let mut answers = self.stage.desk.listen(&self.place.run, action);
        let about =
            |class: &str, payload: Value| json!({ "type": class, "actionId": action, "agentId": asker, "payload": payload });
        self.publish(&[about("action.required", what)]).await?;
        let control = match self.wait(answers.next()).await {
            Ok(control) => control,
            Err(ended) => {
                self.publish(&[about("action.resolved", json!({ "outcome": "cancelled" }))]).await?;
                return Err(ended);
            }
        };
        let is_yes = !control.is("reject") && control.0["value"]["approved"] != false;
        let outcome = match (is_yes, control.is("answer")) {
            (false, _) => "rejected",
            (true, true) => "answered",
            (true, false) => "approved",
        };
        let value = control.0["value"].clone();
        let mut resolved = json!({ "outcome": outcome });
        if !value.is_null() {
            resolved["value"] = value.clone();
        }
        // First the fact, then the acknowledgement: what was acknowledged has happened.
        self.publish(&[about("action.resolved", resolved)]).await?;
        self.stage.api.ack(&control.0).await;
        Ok(Decision { is_yes, value })
    }

    /// An id for the next message.
    pub fn message(&mut self) -> String {
        self.messages += 1;
        format!("{}-message-{}", self.place.run, self.messages)
    }

    /// Says a text, word by word, and seals it.
    pub async fn speak(&mut self, text: &str) -> Result<(), Ended> {
        let message = self.message();
        self.stream(["text.delta", "text.final"], &message, None, text).await
    }

    /// The same, as a teammate who works in this run.
    pub async fn speak_as(&mut self, agent: &str, text: &str) -> Result<(), Ended> {
        let message = self.message();
        self.stream(["text.delta", "text.final"], &message, Some(agent), text).await
    }

    /// Thinks aloud.
    pub async fn think(&mut self, text: &str) -> Result<(), Ended> {
        let message = self.message();
        self.stream(["reasoning.delta", "reasoning.summary"], &message, None, text).await
    }

    /// Makes a plan.
    pub async fn plan(&mut self, text: &str) -> Result<(), Ended> {
        let message = self.message();
        self.stream(["plan.delta", "plan.final"], &message, None, text).await
    }

    async fn stream(&mut self, classes: [&str; 2], message: &str, agent: Option<&str>, text: &str) -> Result<(), Ended> {
        let agent = agent.unwrap_or(&self.place.agent).to_owned();
        let part = format!("{message}-part");
        let fact = |class: &str, text: &str| {
            let said = json!({ "text": text });
            json!({ "type": class, "messageId": message, "partId": part, "agentId": agent, "payload": said })
        };
        for words in text.split_inclusive([' ', '\n']) {
            self.publish(&[fact(classes[0], words)]).await?;
            let ms = 25 + self.stage.random(45);
            self.rest(ms).await?;
        }
        self.publish(&[fact(classes[1], text)]).await?;
        self.rest(250).await
    }

    /// Ends the run as it was played: by its own last fact, or as interrupted.
    pub async fn end<T>(mut self, played: Result<T, Ended>) -> Result<T, Ended> {
        match played {
            Ok(came) => {
                self.publish(&[json!({ "type": "run.finished", "payload": { "status": "completed" } })]).await?;
                Ok(came)
            }
            Err(Ended::Interrupted(control)) => {
                let why = json!({ "status": "interrupted", "message": "Interrupted by the viewer." });
                self.publish(&[json!({ "type": "run.finished", "payload": why })]).await?;
                if let Some(control) = &control {
                    self.stage.api.ack(&control.0).await;
                }
                Err(Ended::Interrupted(control))
            }
            Err(refused) => {
                let error = json!({ "code": "refused", "message": "The demo's own script went wrong; its log says how." });
                // It may be this fact, too, that is refused.
                let _ = self.publish(&[json!({ "type": "run.failed", "payload": { "error": error } })]).await;
                Err(refused)
            }
        }
    }
}
