//! Handles the controls that change the team, its tasks and its artifacts.
//!
//! They are `retry`, `stop` and `close` of a teammate, `request_review`, `rollback`, `edit`, `delegate` and `wait`.
//!
//! Each control results in facts of its owner, and the page shows only those. The owner publishes the first fact before
//! it acknowledges the control, so that every acknowledged change has happened or has begun.

use super::Context;
use super::actor::{Actor, PlayError, REASONING, TEXT};
use super::api::Producer;
use super::control_router::{Control, RunIdentity};
use super::replies::excerpt;
use super::{facts, story};
use serde_json::{Value, json};
use std::sync::Arc;

/// The duration of the simulated work, in milliseconds.
const WORK_MS: u64 = 1500;

/// The reason for the rejection of a control.
type Rejection = &'static str;

impl Context {
    /// Handles a change, or rejects it with a reason.
    pub async fn handle_change(self: Arc<Self>, control: Control) {
        let handled = match control.text("control").unwrap_or_default() {
            "retry" => self.retry(&control).await,
            "stop" | "close" => self.stop_or_close(&control).await,
            "request_review" => self.review(&control).await,
            "rollback" => self.roll_back(&control).await,
            "edit" => self.edit(&control).await,
            "delegate" => self.delegate(&control).await,
            "wait" => self.wait_for(&control).await,
            _ => Err("the demo does not support this control"),
        };
        if let Err(reason) = handled {
            self.api.nack(&control.0, reason).await;
        }
    }

    /// Returns a producer for the log of a control.
    fn log_of(&self, control: &Control) -> Result<Producer, Rejection> {
        match (control.text("runId"), control.text("sessionId")) {
            (Some(run), _) => Ok(self.api.producer(run, &[])),
            (None, Some(session)) => Ok(self.api.session_producer(session)),
            (None, None) => Err("the control names neither a run nor a session"),
        }
    }

    /// Publishes the facts, and then acknowledges the control.
    async fn publish_and_ack(&self, log: &mut Producer, control: &Control, facts: &[Value]) -> Result<(), Rejection> {
        log.publish(facts).await.map_err(|_| "the server rejects these facts here")?;
        self.api.ack(&control.0).await;
        Ok(())
    }

    /// Publishes the result of an acknowledged control after a delay.
    async fn publish_result(&self, log: &mut Producer, facts: &[Value]) {
        self.pause(WORK_MS).await;
        if let Err(error) = log.publish(facts).await {
            tracing::warn!(%error, "cannot publish the result of a control of the demo");
        }
    }

    /// Repeats a call or a teammate's task, or starts another attempt of a run.
    async fn retry(self: &Arc<Self>, control: &Control) -> Result<(), Rejection> {
        if let Some(call) = control.text("toolCallId") {
            return self.retry_call(control, call).await;
        }
        if control.text("artifactId").is_some() {
            return Err("an artifact cannot be retried; request an edit or a review");
        }
        let summary = match control.text("runId") {
            Some(run) => self.api.run(run).await.map_err(|_| "cannot read the run")?,
            None => Value::Null,
        };
        // A control of a teammate's own run also names the teammate.
        let session = summary["sessionId"].as_str().unwrap_or_default();
        let is_own = |agent: &str| control.text("taskId").is_none() && session.ends_with(&format!("-{agent}"));
        match (teammate_of(control).filter(|(agent, _)| !is_own(agent)), control.text("runId")) {
            (Some(worker), _) => self.retry_task(control, worker).await,
            (None, Some(run)) => self.retry_run(control, run, &summary).await,
            (None, None) => Err("only runs, calls and tasks can be retried"),
        }
    }

    async fn retry_call(&self, control: &Control, call: &str) -> Result<(), Rejection> {
        let run = control.text("runId").ok_or("the control names no run of the call")?;
        let shown = self.api.activities(run).await.map_err(|_| "cannot read the run")?;
        let known = shown["activities"].as_array().into_iter().flatten();
        let known = known.filter(|of| of["activityType"] == "tool-call-progress").find(|of| of["activityId"] == call);
        let content = &known.ok_or("the run has no such call")?["content"];
        let again = format!("{call}-{}", control.id());
        let of = |event_type: &str, payload: Value| json!({ "type": event_type, "toolCallId": again, "audience": "user", "payload": payload });
        let started = json!({ "toolName": content["tool_name"], "input": content["input"], "retryOf": call });
        let mut log = self.log_of(control)?;
        self.publish_and_ack(&mut log, control, &[of("tool.started", started)]).await?;
        let output = json!({ "note": "The scripted answer is the same as before.", "retryOf": call });
        self.publish_result(&mut log, &[of("tool.result", json!({ "output": output, "durationMs": WORK_MS }))]).await;
        Ok(())
    }

    async fn retry_task(&self, control: &Control, (agent, task): (&str, &str)) -> Result<(), Rejection> {
        let mut log = self.log_of(control)?;
        let begins = [task_status(task, "running"), facts::agent_status(agent, "running", "repeats the task")];
        self.publish_and_ack(&mut log, control, &begins).await?;
        let summary = "Repeated the task as the viewer requested.";
        let ends = if task == "link-check" { ["sleeping", "sleeping"] } else { ["done", "idle"] };
        self.publish_result(&mut log, &[task_status(task, ends[0]), facts::agent_status(agent, ends[1], summary)]).await;
        Ok(())
    }

    async fn retry_run(self: &Arc<Self>, control: &Control, run: &str, summary: &Value) -> Result<(), Rejection> {
        if !story::is_over(summary) {
            return Err("the run has not ended");
        }
        let session = summary["sessionId"].as_str().ok_or("the run belongs to no session")?;
        let agent = control.text("agentId").unwrap_or_default().to_owned();
        let identity = RunIdentity { run: run.to_owned(), session: session.to_owned(), agent, parent: None };
        let started = json!({ "trigger": "retry", "controlId": control.id() });
        let mut actor = Actor::begin(self, identity, started).await.map_err(|_| "the server rejects a new attempt")?;
        self.api.ack(&control.0).await;
        let played = async {
            actor.stream(REASONING, None, "Let me start again from the beginning. ").await?;
            actor.stream(TEXT, None, "Here is another attempt, as you asked. I am a script, so this time it simply works.").await
        }
        .await;
        if let Err(PlayError::Failed(error)) = actor.end(played).await {
            tracing::warn!(error, run, "an attempt of the demo failed");
        }
        Ok(())
    }

    /// Stops or closes a teammate or its task, if no run of it is playing.
    async fn stop_or_close(&self, control: &Control) -> Result<(), Rejection> {
        let Some((agent, task)) = teammate_of(control) else {
            if control.is("close") && control.text("runId").is_none() {
                let closed = json!({ "type": "session.closed", "payload": { "status": "closed" } });
                return self.publish_and_ack(&mut self.log_of(control)?, control, &[closed]).await;
            }
            return Err("the demo plays no such turn at the moment");
        };
        let mut log = self.log_of(control)?;
        let facts = match control.is("close") {
            true => vec![facts::agent_status(agent, "closed", "Closed by the viewer.")],
            false => vec![facts::agent_status(agent, "killed", "Stopped by the viewer."), task_status(task, "canceled")],
        };
        self.publish_and_ack(&mut log, control, &facts).await
    }

    /// Lets the editor review the target again.
    async fn review(&self, control: &Control) -> Result<(), Rejection> {
        let wanted = &control.0["value"];
        let artifact = control.text("artifactId").map(Value::from);
        let target = [wanted["target"].clone(), artifact.unwrap_or_default(), wanted.clone()];
        let target = target
            .into_iter()
            .find(|target| !target.is_null())
            .ok_or("the value must name the target of the review: { target }")?;
        let (id, evidence) = (format!("review-{}", control.id()), format!("review-notes-{}", control.id()));
        let of = |event_type: &str, more: Value| {
            let payload = facts::merge(json!({ "reviewId": id, "reviewer": "editor", "target": target }), more);
            json!({ "type": event_type, "agentId": "editor", "taskId": "review", "topology": "review_team", "payload": payload })
        };
        let mut log = self.log_of(control)?;
        let requested = of("review.requested", json!({ "title": "A review that the viewer requested" }));
        self.publish_and_ack(&mut log, control, &[requested, facts::agent_status("editor", "running", "reviews it again")])
            .await?;
        let summary = "Reviewed again: nothing to add.";
        let notes = facts::evidence(&evidence, "editor", "review", "Notes on another review", summary, "reviews/again");
        let completed = of("review.completed", json!({ "verdict": "passed", "summary": summary, "evidenceRefs": [evidence] }));
        self.publish_result(&mut log, &[notes, completed, facts::agent_status("editor", "idle", summary)]).await;
        Ok(())
    }

    /// Restores an earlier version of an artifact as a new version.
    async fn roll_back(&self, control: &Control) -> Result<(), Rejection> {
        let wanted = &control.0["value"]["version"];
        if wanted.is_null() {
            return Err("the value must name the version: { version }");
        }
        let summary = format!("Restored version {wanted}, as the viewer requested.");
        self.new_version(control, json!({ "summary": summary, "restores": wanted })).await
    }

    /// Publishes the viewer's text as the next version of the artifact.
    async fn edit(&self, control: &Control) -> Result<(), Rejection> {
        let words = match control.message_text() {
            words if words.is_empty() => control.0["value"].to_string(),
            words => words,
        };
        let change = json!({ "summary": "Edited by the viewer.", "preview": excerpt(&words), "body": words });
        self.new_version(control, change).await
    }

    async fn new_version(&self, control: &Control, change: Value) -> Result<(), Rejection> {
        let (Some(run), Some(artifact)) = (control.text("runId"), control.text("artifactId")) else {
            return Err("the control must name a run and an artifact");
        };
        let shown = self.api.activities(run).await.map_err(|_| "cannot read the run")?;
        let known = shown["activities"].as_array().into_iter().flatten();
        let known = known.filter(|of| of["activityType"] == "artifact").find(|of| of["activityId"] == artifact);
        let versions =
            known.ok_or("the run has no such artifact")?["content"]["versions"].as_array().cloned().unwrap_or_default();
        let number = versions.iter().filter_map(|version| version["version"].as_u64()).max().unwrap_or(0) + 1;
        let of_restored =
            versions.iter().find(|version| !version["version"].is_null() && version["version"] == change["restores"]);
        if !change["restores"].is_null() && of_restored.is_none() {
            return Err("the artifact has no such version");
        }
        let (mut preview, mut body) = (change["preview"].clone(), change["body"].clone());
        if let Some(restored) = of_restored {
            preview = restored["preview"].clone();
            let fact = self.api.event(run, restored["sequence"].as_u64().unwrap_or_default()).await;
            body = fact.map_err(|_| "cannot read the version")?["payload"]["body"].clone();
        }
        let reference = format!("artifacts/{artifact}/{number}");
        let mut payload = json!({
            "version": number, "versionId": number.to_string(), "summary": change["summary"], "preview": preview, "ref": reference,
        });
        if !body.is_null() {
            payload["body"] = body;
        }
        let created = json!({ "type": "artifact.version.created", "artifactId": artifact, "payload": payload });
        self.publish_and_ack(&mut self.log_of(control)?, control, &[created]).await
    }

    /// Adds a work item to the board for a teammate.
    async fn delegate(&self, control: &Control) -> Result<(), Rejection> {
        let value = &control.0["value"];
        let agent = value["assignee"].as_str().or(value["agentId"].as_str()).unwrap_or("researcher");
        let words = match control.message_text() {
            words if words.is_empty() => value["title"].as_str().or(value["task"].as_str()).unwrap_or_default().to_owned(),
            words => words,
        };
        if words.is_empty() {
            return Err("the value must name the task: a text, or { text, assignee }");
        }
        let task = format!("delegated-{}", control.id());
        let mut log = self.log_of(control)?;
        let item = json!({ "title": excerpt(&words), "assignee": agent, "status": "running", "dependencies": [] });
        self.publish_and_ack(&mut log, control, &[facts::work_item(&task, item)]).await?;
        self.publish_result(&mut log, &[facts::work_item(&task, json!({ "status": "done", "progress": 1 }))]).await;
        Ok(())
    }

    /// Publishes that the coordinator waits for a teammate, which it does anyway.
    async fn wait_for(&self, control: &Control) -> Result<(), Rejection> {
        let teammate = teammate_of(control).map_or("the team", |(agent, _)| agent);
        let payload = json!({ "message": format!("Waiting for {teammate}, as the viewer requested.") });
        let fact = match control.text("runId") {
            Some(_) => json!({ "type": "run.status", "payload": payload }),
            None => json!({ "type": "session.updated", "payload": payload }),
        };
        self.publish_and_ack(&mut self.log_of(control)?, control, &[fact]).await
    }
}

/// The teammates, and their tasks.
const TEAMMATES: [(&str, &str); 7] = [
    ("researcher", "research"),
    ("writer", "draft"),
    ("profiler", "benchmark"),
    ("editor", "review"),
    ("publisher", "publish"),
    ("link-watch", "link-check"),
    ("translator", "translate"),
];

/// Returns the teammate that a control names by its task or its id, and the task.
pub fn teammate_of(control: &Control) -> Option<(&'static str, &'static str)> {
    let all = || TEAMMATES.into_iter();
    match control.text("taskId") {
        Some(task) => all().find(|(_, of)| *of == task),
        None => all().find(|(agent, _)| control.text("agentId") == Some(*agent)),
    }
}

/// Builds the fact about the status of any task.
fn task_status(task: &str, status: &str) -> Value {
    let other = |entity: &str, topology: &str| {
        let payload = json!({ "runtimeEntity": entity, "status": status, "runtimeStatus": status });
        json!({ "type": "task.changed", "taskId": task, "topology": topology, "payload": payload })
    };
    match task {
        "link-check" => {
            let mut job = other("automation_job", "background_teammate");
            job["surface"] = "background_teammate".into();
            job
        }
        "translate" => other("external_task", "remote_teammate"),
        _ => facts::work_item(task, json!({ "status": status })),
    }
}
