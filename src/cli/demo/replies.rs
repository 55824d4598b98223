//! Handles `send`, `queue`, `continue_agent`, `assign` and `export`.
//!
//! `send` starts a new turn, `queue` a turn after the running one, and `continue_agent` a turn of a teammate. `assign`
//! moves a work item, and `export` exports an artifact. Each produces its own run or fact. `actor` handles `steer` in
//! the running turn.

use super::Context;
use super::actor::{Actor, PlayError, REASONING, TEXT};
use super::control_router::{Control, RunIdentity};
use serde_json::{Value, json};
use std::sync::Arc;

/// The maximum length of a quotation of the viewer's text, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// Returns the beginning of a text on one line.
pub fn excerpt(words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut excerpt: String = line.chars().take(EXCERPT_CHARS_MAX).collect();
    if excerpt.len() < line.len() {
        excerpt.push('…');
    }
    excerpt
}

/// Returns the scripted reply.
///
/// It claims nothing about the state of the team, which only facts describe.
fn answer(words: &str) -> String {
    let excerpt = excerpt(words);
    let about = match words.to_lowercase() {
        text if text.contains("thank") => "You are welcome! 🙂",
        text if text.contains('?') => {
            "Good question. I am a script, so look at the board and the timeline on this page for the honest answer."
        }
        _ => "Noted. I am a script, so I only write it down; your own runtime would now start to work on it.",
    };
    format!("You wrote: “{excerpt}”. {about}")
}

impl Context {
    /// Returns the session of a control: its own, or that of its run.
    async fn session_of(&self, control: &Control) -> Option<String> {
        if let Some(session) = control.text("sessionId") {
            return Some(session.to_owned());
        }
        let run = self.api.run(control.text("runId")?).await.ok()?;
        run["sessionId"].as_str().map(str::to_owned)
    }

    /// Starts a new turn at once.
    pub async fn reply(self: Arc<Self>, control: Control) {
        let Some(session) = self.session_of(&control).await else {
            return self.api.nack(&control.0, "the run belongs to no session").await;
        };
        if let Err(PlayError::Failed(error)) = self.clone().turn(&session, &control, true).await {
            tracing::warn!(error, session, "a reply of the demo failed");
            self.api.nack(&control.0, "the server rejects this turn").await;
        }
    }

    /// Queues a new turn after the other turns of the session.
    pub async fn reply_later(self: Arc<Self>, control: Control) {
        let Some(session) = self.session_of(&control).await else {
            return self.api.nack(&control.0, "the run belongs to no session").await;
        };
        self.router.queue(&session, control.id(), &control.message_text());
        self.publish_queue(&session).await;
        // The queue now shows the turn. Acknowledge it here, because the lease would expire before the turn starts.
        self.api.ack(&control.0).await;
        self.router.wait_for_turn(&session, control.id()).await;
        self.publish_queue(&session).await;
        if let Err(PlayError::Failed(error)) = self.clone().turn(&session, &control, false).await {
            tracing::warn!(error, session, "a queued reply of the demo failed");
        }
        self.router.notify();
    }

    /// Publishes the queue in the session's own log.
    async fn publish_queue(&self, session: &str) {
        let queued = self.router.queued(session);
        let items: Vec<Value> = queued.iter().map(|(id, words)| json!({ "turnId": id, "text": excerpt(words) })).collect();
        let mut queue = json!({ "queuedTurnCount": items.len(), "items": items });
        if !queued.is_empty() {
            queue["queueReason"] = "a turn of this session is running".into();
        }
        let fact = json!({ "type": "queue.changed", "payload": queue });
        if let Err(error) = self.api.session_producer(session).publish(&[fact]).await {
            tracing::warn!(%error, session, "cannot publish a queue");
        }
    }

    /// Plays one turn: the viewer's message and the scripted reply.
    async fn turn(self: Arc<Self>, session: &str, control: &Control, is_new: bool) -> Result<(), PlayError> {
        // A client that creates its own run ids sends the id with the control.
        let run = control.0["value"]["runId"].as_str().map_or_else(|| format!("demo-turn-{}", control.id()), str::to_owned);
        let agent = control.text("agentId").unwrap_or_default().to_owned();
        let identity = RunIdentity { run, session: session.to_owned(), agent, parent: None };
        let mut actor = Actor::begin(&self, identity, json!({ "trigger": control.0["control"] })).await?;
        let played = self.play_turn(&mut actor, control, is_new).await;
        match actor.end(played).await {
            Err(PlayError::Failed(error)) => Err(PlayError::Failed(error)),
            _ => Ok(()),
        }
    }

    async fn play_turn(&self, actor: &mut Actor, control: &Control, is_new: bool) -> Result<(), PlayError> {
        let words = control.message_text();
        let payload = json!({ "role": "user", "text": words });
        actor.publish(&[json!({ "type": "text.final", "messageId": control.message_id(), "payload": payload })]).await?;
        // The message is durable, so a client that reloads finds it. Now the control can be acknowledged.
        if is_new {
            self.api.ack(&control.0).await;
        }
        actor.stream(REASONING, None, "The viewer sent me a message. Which facts do I have about it? ").await?;
        actor.stream(TEXT, None, &answer(&words)).await
    }

    /// Assigns a work item, and publishes the change as the owner of the board.
    pub async fn assign(self: Arc<Self>, control: Control) {
        let (Some(run), Some(task)) = (control.text("runId"), control.text("taskId")) else {
            return self.api.nack(&control.0, "the control must name a run and a task").await;
        };
        let value = &control.0["value"];
        let Some(assignee) = value.as_str().or_else(|| value["assignee"].as_str()) else {
            return self.api.nack(&control.0, "the value must name the assignee: a name, or { assignee }").await;
        };
        let fact = json!({ "type": "task.changed", "taskId": task, "payload": { "assignee": assignee } });
        match self.api.producer(run, &[]).publish(&[fact]).await {
            Ok(()) => self.api.ack(&control.0).await,
            Err(_) => self.api.nack(&control.0, "the server rejects this change of the board").await,
        }
    }

    /// Exports an artifact or evidence: its owner publishes the start, and the link to the result.
    pub async fn export(self: Arc<Self>, control: Control) {
        if let (Some(run), Some(evidence)) = (control.text("runId"), control.text("evidenceId")) {
            let refs = json!([{ "rel": "export", "href": format!("exports/{evidence}.json") }]);
            let exported = json!({ "type": "evidence.changed", "evidenceId": evidence, "refs": refs });
            return match self.api.producer(run, &[]).publish(&[exported]).await {
                Ok(()) => self.api.ack(&control.0).await,
                Err(_) => self.api.nack(&control.0, "the server rejects this export of the evidence").await,
            };
        }
        let (Some(run), Some(artifact)) = (control.text("runId"), control.text("artifactId")) else {
            return self.api.nack(&control.0, "the control must name a run, and an artifact or evidence").await;
        };
        let mut producer = self.api.producer(run, &[]);
        let about = |event_type: &str, payload: Value| json!({ "type": event_type, "artifactId": artifact, "payload": payload });
        let begins = about("artifact.export.started", json!({ "exportFormat": "pdf" }));
        if producer.publish(&[begins]).await.is_err() {
            return self.api.nack(&control.0, "the server rejects this export of the artifact").await;
        }
        self.api.ack(&control.0).await;
        self.pause(1500).await;
        let done =
            about("artifact.export.completed", json!({ "exportFormat": "pdf", "exportRef": format!("exports/{artifact}.pdf") }));
        if let Err(error) = producer.publish(&[done]).await {
            tracing::warn!(%error, run, "an export of the demo failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(" a\n b "), "a b");
        assert_eq!(excerpt(&"é".repeat(200)).chars().count(), EXCERPT_CHARS_MAX + 1);
    }

    #[test]
    fn the_text_of_a_control_is_read_in_every_clients_form() {
        let words = |value: Value| Control(json!({ "value": value })).message_text();
        assert_eq!(words(json!("a")), "a");
        assert_eq!(words(json!({ "text": "a" })), "a");
        assert_eq!(words(json!({ "messages": [{ "role": "user", "content": "no" }, { "role": "user", "content": "a" }] })), "a");
        assert_eq!(words(json!({ "messages": [{ "parts": [{ "type": "text", "text": "a" }, { "text": "b" }] }] })), "ab");
    }
}
