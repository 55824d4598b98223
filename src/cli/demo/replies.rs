//! What comes of a viewer's words: `send` is a new turn at once, `queue` one after the turn that goes on, `continue_agent` a turn
//! of a teammate's; `assign` moves a work item, `export` exports an artifact.
//!
//! Each is a run, or a fact, of its own. A word into the turn that goes on (`steer`) is that turn's, in `actor`.

use super::Stage;
use super::actor::{Actor, Ended, Place};
use super::desk::Control;
use serde_json::{Value, json};
use std::sync::Arc;

/// The most of what somebody said that is repeated to him, in characters.
const REPEATED_CHARS_MAX: usize = 120;

/// The beginning of what somebody said, on one line.
pub fn gist(words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut gist: String = line.chars().take(REPEATED_CHARS_MAX).collect();
    if gist.len() < line.len() {
        gist.push('…');
    }
    gist
}

/// What the scripted agent has to say to that. It infers nothing of how anything stands: that is for facts.
fn answer(words: &str) -> String {
    let gist = gist(words);
    let about = match words.to_lowercase() {
        text if text.contains("thank") => "You are welcome! 🙂",
        text if text.contains('?') => {
            "A good question. I am a script, so the honest answer is on this page: look at the board and the timeline."
        }
        _ => "Noted. I am a script, so I only write it down; a runtime of yours would now begin to work on it.",
    };
    format!("You wrote: “{gist}”. {about}")
}

impl Stage {
    /// The session that a control is of: its own, or that of its run.
    async fn session_of(&self, control: &Control) -> Option<String> {
        if let Some(session) = control.text("sessionId") {
            return Some(session.to_owned());
        }
        let run = self.api.run(control.text("runId")?).await.ok()?;
        run["sessionId"].as_str().map(str::to_owned)
    }

    /// A new turn, at once.
    pub async fn reply(self: Arc<Self>, control: Control) {
        let Some(session) = self.session_of(&control).await else {
            return self.api.nack(&control.0, "its run belongs to no session").await;
        };
        if let Err(Ended::Refused(error)) = self.clone().turn(&session, &control, true).await {
            tracing::warn!(%error, session, "a reply of the demo broke off");
            self.api.nack(&control.0, "the server takes no such turn").await;
        }
    }

    /// A new turn, when those before it in the session are over.
    pub async fn reply_later(self: Arc<Self>, control: Control) {
        let Some(session) = self.session_of(&control).await else {
            return self.api.nack(&control.0, "its run belongs to no session").await;
        };
        self.desk.queue(&session, control.id(), &control.words());
        self.tell_queue(&session).await;
        // It is taken, and is in the queue for everybody to see; a lease would not last until its turn.
        self.api.ack(&control.0).await;
        self.desk.turn_comes(&session, control.id()).await;
        self.tell_queue(&session).await;
        if let Err(Ended::Refused(error)) = self.clone().turn(&session, &control, false).await {
            tracing::warn!(%error, session, "a queued reply of the demo broke off");
        }
        self.desk.moved();
    }

    /// Says in the session's own log what waits there.
    async fn tell_queue(&self, session: &str) {
        let queued = self.desk.queued(session);
        let items: Vec<Value> = queued.iter().map(|(id, words)| json!({ "turnId": id, "text": gist(words) })).collect();
        let mut queue = json!({ "queuedTurnCount": items.len(), "items": items });
        if !queued.is_empty() {
            queue["queueReason"] = "a turn of this session goes on".into();
        }
        let fact = json!({ "type": "queue.changed", "payload": queue });
        if let Err(error) = self.api.session_producer(session).publish(&[fact]).await {
            tracing::warn!(%error, session, "a queue was not told");
        }
    }

    /// One turn: what was said, and the script's answer.
    async fn turn(self: Arc<Self>, session: &str, control: &Control, is_new: bool) -> Result<(), Ended> {
        // A client with runs of its own says which one this is to be.
        let run = control.0["value"]["runId"].as_str().map_or_else(|| format!("demo-turn-{}", control.id()), str::to_owned);
        let agent = control.text("agentId").unwrap_or_default().to_owned();
        let place = Place { run, session: session.to_owned(), agent, parent: None };
        let mut actor = Actor::begin(&self, place, json!({ "trigger": control.0["control"] })).await?;
        let played = self.play_turn(&mut actor, control, is_new).await;
        match actor.end(played).await {
            Err(Ended::Refused(error)) => Err(Ended::Refused(error)),
            _ => Ok(()),
        }
    }

    async fn play_turn(&self, actor: &mut Actor, control: &Control, is_new: bool) -> Result<(), Ended> {
        let words = control.words();
        let said = json!({ "type": "text.final", "messageId": control.message(), "payload": { "role": "user", "text": words } });
        actor.publish(&[said]).await?;
        // What was asked for can be found now by whoever reloads: that is when it is taken.
        if is_new {
            self.api.ack(&control.0).await;
        }
        actor.think("Somebody wants something of me. What do I know that is a fact? ").await?;
        actor.speak(&answer(&words)).await
    }

    /// Gives a work item to somebody else: the board's owner says so.
    pub async fn assign(self: Arc<Self>, control: Control) {
        let (Some(run), Some(task)) = (control.text("runId"), control.text("taskId")) else {
            return self.api.nack(&control.0, "the board is that of a run, and the item has a taskId").await;
        };
        let value = &control.0["value"];
        let Some(assignee) = value.as_str().or_else(|| value["assignee"].as_str()) else {
            return self.api.nack(&control.0, "value says to whom: a name, or { assignee }").await;
        };
        let fact = json!({ "type": "task.changed", "taskId": task, "payload": { "assignee": assignee } });
        match self.api.producer(run, &[]).publish(&[fact]).await {
            Ok(()) => self.api.ack(&control.0).await,
            Err(_) => self.api.nack(&control.0, "the board takes no such change").await,
        }
    }

    /// Exports an artifact: its owner says when that begins, and where it is to be had.
    pub async fn export(self: Arc<Self>, control: Control) {
        if let (Some(run), Some(evidence)) = (control.text("runId"), control.text("evidenceId")) {
            let refs = json!([{ "rel": "export", "href": format!("exports/{evidence}.json") }]);
            let exported = json!({ "type": "evidence.changed", "evidenceId": evidence, "refs": refs });
            return match self.api.producer(run, &[]).publish(&[exported]).await {
                Ok(()) => self.api.ack(&control.0).await,
                Err(_) => self.api.nack(&control.0, "the evidence's owner takes no such request").await,
            };
        }
        let (Some(run), Some(artifact)) = (control.text("runId"), control.text("artifactId")) else {
            return self.api.nack(&control.0, "what is exported is an artifact or evidence of a run").await;
        };
        let mut producer = self.api.producer(run, &[]);
        let about = |class: &str, payload: Value| json!({ "type": class, "artifactId": artifact, "payload": payload });
        let begins = about("artifact.export.started", json!({ "exportFormat": "pdf" }));
        if producer.publish(&[begins]).await.is_err() {
            return self.api.nack(&control.0, "the artifact's owner takes no such request").await;
        }
        self.api.ack(&control.0).await;
        self.pause(1500).await;
        let done =
            about("artifact.export.completed", json!({ "exportFormat": "pdf", "exportRef": format!("exports/{artifact}.pdf") }));
        if let Err(error) = producer.publish(&[done]).await {
            tracing::warn!(%error, run, "an export of the demo broke off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_short_and_on_one_line() {
        assert_eq!(gist(" a\n b "), "a b");
        assert_eq!(gist(&"é".repeat(200)).chars().count(), REPEATED_CHARS_MAX + 1);
    }

    #[test]
    fn words_are_read_as_clients_put_them() {
        let words = |value: Value| Control(json!({ "value": value })).words();
        assert_eq!(words(json!("a")), "a");
        assert_eq!(words(json!({ "text": "a" })), "a");
        assert_eq!(words(json!({ "messages": [{ "role": "user", "content": "no" }, { "role": "user", "content": "a" }] })), "a");
        assert_eq!(words(json!({ "messages": [{ "parts": [{ "type": "text", "text": "a" }, { "text": "b" }] }] })), "ab");
    }
}
