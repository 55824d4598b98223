//! Claims the controls of all agents, and handles each.
//!
//! A run or an action that waits for a control gets it. Every other control has a scene in `controls.ndjson`, which
//! publishes the facts of its owner; the page shows only those. A scene acknowledges its control after the first fact,
//! so that every acknowledged change has happened or has begun. A control that cannot be handled is rejected with a
//! reason, so that the viewer sees it.

use super::Context;
use super::api::Producer;
use super::control_router::Control;
use super::story::{self, Player, Variables};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The delay before the next claim after a failed one.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum length of a quotation of the viewer's text, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// A teammate that a control may name.
struct Teammate {
    agent: &'static str,
    task: &'static str,
    /// The scene that publishes the status of its task.
    task_kind: &'static str,
}

const TEAMMATES: [Teammate; 7] = [
    Teammate { agent: "researcher", task: "research", task_kind: "task-on-board" },
    Teammate { agent: "writer", task: "draft", task_kind: "task-on-board" },
    Teammate { agent: "profiler", task: "benchmark", task_kind: "task-on-board" },
    Teammate { agent: "editor", task: "review", task_kind: "task-on-board" },
    Teammate { agent: "publisher", task: "publish", task_kind: "task-on-board" },
    Teammate { agent: "link-watch", task: "link-check", task_kind: "task-scheduled" },
    Teammate { agent: "translator", task: "translate", task_kind: "task-remote" },
];

impl Teammate {
    fn set(&self, variables: &mut Variables) {
        for (name, value) in [("agent", self.agent), ("task", self.task), ("taskKind", self.task_kind)] {
            variables.set(name, value.into());
        }
    }
}

/// The variables with members of the control.
const MEMBERS: [(&str, &str); 9] = [
    ("agent", "agentId"),
    ("artifact", "artifactId"),
    ("call", "toolCallId"),
    ("control", "controlId"),
    ("evidence", "evidenceId"),
    ("run", "runId"),
    ("session", "sessionId"),
    ("task", "taskId"),
    ("trigger", "control"),
];

/// Returns the teammate that a control names by its task or its id.
fn teammate_of(control: &Control) -> Option<&'static Teammate> {
    match control.text("taskId") {
        Some(task) => TEAMMATES.iter().find(|teammate| teammate.task == task),
        None => TEAMMATES.iter().find(|teammate| control.text("agentId") == Some(teammate.agent)),
    }
}

/// The reason for the rejection of a control.
type Rejection = &'static str;

const NO_ACTION: Rejection = "no run of the demo waits for this answer; a recording continues as recorded";
const UNREADABLE: Rejection = "cannot read the run";

impl Context {
    /// Claims and handles the controls of an agent until the demo ends.
    pub async fn serve_agent(self: Arc<Self>, agent: &'static str) {
        loop {
            match self.api.claim(agent).await {
                Ok(controls) => {
                    for control in controls {
                        tokio::spawn(self.clone().handle(Control(control)));
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Handles one control, or rejects it with a reason.
    async fn handle(self: Arc<Self>, mut control: Control) {
        let name = control.text("control").unwrap_or_default().to_owned();
        if let ("stop" | "close", Some(teammate)) = (&*name, teammate_of(&control)) {
            control.0["agentId"] = teammate.agent.into();
        }
        let routed = match &*name {
            "approve" | "reject" | "answer" => self.router.route_to_action(control),
            "edit" if control.text("actionId").is_some() => self.router.route_to_action(control),
            "interrupt" | "steer" | "stop" | "close" => self.router.route_to_run(control),
            _ => Err(control),
        };
        let Err(control) = routed else { return };
        match self.choose_scene(&control).await {
            Err(reason) => self.api.nack(&control.0, reason).await,
            Ok((scene, variables)) if name == "queue" => self.play_queued(&control, scene, variables).await,
            Ok((scene, variables)) => {
                let player = Player::new(&self, self.log_of(&control), variables).with_control(control);
                player.play_logged(scene).await;
            }
        }
    }

    /// Returns a producer for the log of a control.
    fn log_of(&self, control: &Control) -> Producer {
        match control.text("runId") {
            Some(run) => self.api.producer(run, &[]),
            None => self.api.session_producer(control.text("sessionId").unwrap_or_default()),
        }
    }

    /// Plays a turn after the other turns of its session.
    async fn play_queued(self: &Arc<Self>, control: &Control, scene: &'static str, variables: Variables) {
        let session = variables.text("session");
        self.router.queue(session, control.id(), &control.message_text());
        self.publish_queue(session).await;
        // The queue now shows the turn. Acknowledge it here, because the lease would expire before the turn starts.
        self.api.ack(&control.0).await;
        self.router.wait_for_turn(session, control.id()).await;
        self.publish_queue(session).await;
        Player::new(self, self.log_of(control), variables).play_logged(scene).await;
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

    /// Returns the scene that handles a control, with its variables.
    async fn choose_scene(&self, control: &Control) -> Result<(&'static str, Variables), Rejection> {
        let mut variables = Variables::default();
        for (name, member) in MEMBERS {
            variables.set(name, control.text(member).unwrap_or_default().into());
        }
        let (run, value, words) = (control.text("runId"), &control.0["value"], control.message_text());
        let teammate = teammate_of(control);
        variables.set("teammate", teammate.map_or("the team", |teammate| teammate.agent).into());
        variables.set("excerpt", excerpt(&words).into());
        let scene = match (control.text("control").unwrap_or_default(), teammate) {
            ("send" | "continue_agent" | "queue", _) => self.prepare_turn(control, &mut variables).await?,
            ("retry", _) => self.prepare_retry(control, &mut variables).await?,
            ("assign", _) => {
                if run.is_none() || control.text("taskId").is_none() {
                    return Err("the control must name a run and a task");
                }
                let assignee = value.as_str().or(value["assignee"].as_str());
                let assignee = assignee.ok_or("the value must name the assignee: a name, or { assignee }")?;
                variables.set("assignee", assignee.into());
                "assign"
            }
            ("export", _) => match (run, control.text("evidenceId"), control.text("artifactId")) {
                (Some(_), Some(_), _) => "export-evidence",
                (Some(_), None, Some(_)) => "export-artifact",
                _ => return Err("the control must name a run, and an artifact or evidence"),
            },
            (name @ ("stop" | "close"), Some(teammate)) => {
                teammate.set(&mut variables);
                if name == "stop" { "stop" } else { "close" }
            }
            ("close", None) if run.is_none() => "close-session",
            ("stop" | "close", None) | ("interrupt" | "steer", _) => {
                return Err("the demo plays no such turn at the moment");
            }
            ("request_review", _) => {
                let target = [&value["target"], &control.0["artifactId"], value].into_iter().find(|target| !target.is_null());
                let target = target.ok_or("the value must name the target of the review: { target }")?;
                variables.set("target", target.clone());
                "review-again"
            }
            ("approve" | "reject" | "answer", _) => return Err(NO_ACTION),
            ("edit", _) if control.text("actionId").is_some() => return Err(NO_ACTION),
            ("rollback", _) if value["version"].is_null() => return Err("the value must name the version: { version }"),
            ("rollback", _) => self.prepare_version(control, &mut variables, Some(&value["version"]), &words).await?,
            ("edit", _) if words.is_empty() => self.prepare_version(control, &mut variables, None, &value.to_string()).await?,
            ("edit", _) => self.prepare_version(control, &mut variables, None, &words).await?,
            ("delegate", _) => {
                let assignee = value["assignee"].as_str().or(value["agentId"].as_str()).unwrap_or("researcher");
                let title = Some(&*words).filter(|words| !words.is_empty());
                let title = title.or(value["title"].as_str()).or(value["task"].as_str()).filter(|title| !title.is_empty());
                let title = title.ok_or("the value must name the task: a text, or { text, assignee }")?;
                variables.set("assignee", assignee.into());
                variables.set("excerpt", excerpt(title).into());
                "delegate"
            }
            // The coordinator waits for its teammates anyway.
            ("wait", _) if run.is_some() => "wait-run",
            ("wait", _) => "wait-session",
            _ => return Err("the demo does not support this control"),
        };
        variables.set("words", words.into());
        Ok((scene, variables))
    }

    /// Prepares a turn: the viewer's message and the scripted reply.
    async fn prepare_turn(&self, control: &Control, variables: &mut Variables) -> Result<&'static str, Rejection> {
        if let Some(run) = control.text("runId").filter(|_| control.text("sessionId").is_none()) {
            let session = self.api.run(run).await.map_err(|_| UNREADABLE)?["sessionId"].take();
            variables.set("session", session);
        }
        if variables.text("session").is_empty() {
            return Err("the run belongs to no session");
        }
        // A client that creates its own run ids sends the id with the control.
        let turn = control.0["value"]["runId"].as_str().map_or_else(|| format!("demo-turn-{}", control.id()), str::to_owned);
        variables.set("turn", turn.into());
        variables.set("messageId", control.message_id().into());
        variables.set("answer", answer(&control.message_text()).into());
        Ok("turn")
    }

    /// Prepares the repetition of a call or of a teammate's task, or another attempt of a run.
    async fn prepare_retry(&self, control: &Control, variables: &mut Variables) -> Result<&'static str, Rejection> {
        let run = control.text("runId");
        if let Some(call) = control.text("toolCallId") {
            let run = run.ok_or("the control names no run of the call")?;
            let content = self.content(run, "tool-call-progress", call).await?.ok_or("the run has no such call")?;
            variables.set("tool", content["tool_name"].clone());
            variables.set("input", content["input"].clone());
            return Ok("retry-call");
        }
        if control.text("artifactId").is_some() {
            return Err("an artifact cannot be retried; request an edit or a review");
        }
        let summary = match run {
            Some(run) => self.api.run(run).await.map_err(|_| UNREADABLE)?,
            None => Value::Null,
        };
        let session = summary["sessionId"].as_str().unwrap_or_default();
        // A control of a teammate's own run also names the teammate.
        let is_own = |agent: &str| control.text("taskId").is_none() && session.ends_with(&format!("-{agent}"));
        if let Some(teammate) = teammate_of(control).filter(|teammate| !is_own(teammate.agent)) {
            teammate.set(variables);
            return Ok(if teammate.task == "link-check" { "retry-job" } else { "retry-task" });
        }
        match run {
            None => Err("only runs, calls and tasks can be retried"),
            Some(_) if !story::is_over(&summary) => Err("the run has not ended"),
            Some(_) if session.is_empty() => Err("the run belongs to no session"),
            Some(_) => {
                variables.set("session", session.into());
                Ok("retry-run")
            }
        }
    }

    /// Prepares the next version of an artifact: the viewer's words, or an earlier version that it restores.
    async fn prepare_version(
        &self,
        control: &Control,
        variables: &mut Variables,
        restores: Option<&Value>,
        words: &str,
    ) -> Result<&'static str, Rejection> {
        let (Some(run), Some(artifact)) = (control.text("runId"), control.text("artifactId")) else {
            return Err("the control must name a run and an artifact");
        };
        let content = self.content(run, "artifact", artifact).await?.ok_or("the run has no such artifact")?;
        let versions = content["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let number = versions.iter().filter_map(|version| version["version"].as_u64()).max().unwrap_or(0) + 1;
        let mut next = json!({
            "version": number, "versionId": number.to_string(), "summary": "Edited by the viewer.", "preview": excerpt(words),
            "ref": format!("artifacts/{artifact}/{number}"), "body": words,
        });
        if let Some(wanted) = restores {
            let restored = versions.iter().find(|version| version["version"] == *wanted);
            let restored = restored.ok_or("the artifact has no such version")?;
            let fact = self.api.event(run, restored["sequence"].as_u64().unwrap_or_default()).await;
            next["summary"] = format!("Restored version {wanted}, as the viewer requested.").into();
            next["preview"] = restored["preview"].clone();
            next["body"] = fact.map_err(|_| "cannot read the version")?["payload"]["body"].take();
        }
        if next["body"].is_null() {
            next.as_object_mut().and_then(|members| members.remove("body"));
        }
        variables.set("version", next);
        Ok("new-version")
    }

    /// Reads the content of an activity; `None` if the run has no such activity.
    async fn content(&self, run: &str, activity_type: &str, id: &str) -> Result<Option<Value>, Rejection> {
        let mut shown = self.api.activities(run).await.map_err(|_| UNREADABLE)?;
        let mut all = shown["activities"].as_array_mut().map(std::mem::take).unwrap_or_default().into_iter();
        Ok(all.find(|of| of["activityType"] == activity_type && of["activityId"] == id).map(|mut of| of["content"].take()))
    }
}

/// Returns the beginning of a text on one line.
fn excerpt(words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut excerpt: String = line.chars().take(EXCERPT_CHARS_MAX).collect();
    if excerpt.len() < line.len() {
        excerpt.push('…');
    }
    excerpt
}

/// Returns the scripted reply, which claims nothing about the state of the team: only facts describe it.
fn answer(words: &str) -> &'static str {
    match words.to_lowercase() {
        text if text.contains("thank") => "You are welcome! 🙂",
        text if text.contains('?') => {
            "Good question. I am a script, so look at the board and the timeline on this page for the honest answer."
        }
        _ => "Noted. I am a script, so I only write it down; your own runtime would now start to work on it.",
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
