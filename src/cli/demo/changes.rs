//! What comes of a viewer's `retry`, `stop` and `close` of a teammate, `request_review`, `rollback`, `edit`, `delegate` and `wait`.
//!
//! Each ends in facts of the owner's: the page shows those, and never its own wish. The fact comes first, then the
//! acknowledgement: what was acknowledged has happened, or has begun.

use super::Stage;
use super::actor::{Actor, Ended, Place};
use super::api::Producer;
use super::desk::Control;
use super::replies::gist;
use super::story::{self, facts};
use serde_json::{Value, json};
use std::sync::Arc;

/// How long such work takes, in milliseconds.
const WORK: u64 = 1500;

/// Why a control is not taken.
type Refusal = &'static str;

impl Stage {
    /// Takes a change, or says why not.
    pub async fn change(self: Arc<Self>, control: Control) {
        let taken = match control.text("control").unwrap_or_default() {
            "retry" => self.retry(&control).await,
            "stop" | "close" => self.release(&control).await,
            "request_review" => self.review(&control).await,
            "rollback" => self.roll_back(&control).await,
            "edit" => self.edit(&control).await,
            "delegate" => self.delegate(&control).await,
            "wait" => self.wait_for(&control).await,
            _ => Err("the demo's script has no part for that"),
        };
        if let Err(reason) = taken {
            self.api.nack(&control.0, reason).await;
        }
    }

    /// The log that a control is of: where its facts go.
    fn log_of(&self, control: &Control) -> Result<Producer, Refusal> {
        match (control.text("runId"), control.text("sessionId")) {
            (Some(run), _) => Ok(self.api.producer(run, &[])),
            (None, Some(session)) => Ok(self.api.session_producer(session)),
            (None, None) => Err("it names neither a run nor a session"),
        }
    }

    /// Publishes the facts, and then acknowledges.
    async fn done(&self, log: &mut Producer, control: &Control, facts: &[Value]) -> Result<(), Refusal> {
        log.publish(facts).await.map_err(|_| "the server takes no such facts here")?;
        self.api.ack(&control.0).await;
        Ok(())
    }

    /// Publishes what came of it, after a while. It was acknowledged; a viewer that waits sees the facts.
    async fn finish(&self, log: &mut Producer, facts: &[Value]) {
        self.pause(WORK).await;
        if let Err(error) = log.publish(facts).await {
            tracing::warn!(%error, "what came of a control of the demo was not told");
        }
    }

    /// A call once more, a teammate's task once more, or another attempt of a run.
    async fn retry(self: &Arc<Self>, control: &Control) -> Result<(), Refusal> {
        if let Some(call) = control.text("toolCallId") {
            return self.call_again(control, call).await;
        }
        if control.text("artifactId").is_some() {
            return Err("an artifact is not retried; ask for an edit or a review of it");
        }
        let stands = match control.text("runId") {
            Some(run) => self.api.run(run).await.map_err(|_| "the run cannot be read")?,
            None => Value::Null,
        };
        // A control of a teammate's own run names the teammate, too.
        let session = stands["sessionId"].as_str().unwrap_or_default();
        let is_own = |agent: &str| control.text("taskId").is_none() && session.ends_with(&format!("-{agent}"));
        match (worker(control).filter(|(agent, _)| !is_own(agent)), control.text("runId")) {
            (Some(worker), _) => self.work_again(control, worker).await,
            (None, Some(run)) => self.attempt_again(control, run, &stands).await,
            (None, None) => Err("only runs, calls and tasks are retried"),
        }
    }

    async fn call_again(&self, control: &Control, call: &str) -> Result<(), Refusal> {
        let run = control.text("runId").ok_or("a call is one of a run")?;
        let shown = self.api.activities(run).await.map_err(|_| "its run cannot be read")?;
        let known = shown["activities"].as_array().into_iter().flatten();
        let known = known.filter(|of| of["activityType"] == "tool-call-progress").find(|of| of["activityId"] == call);
        let content = &known.ok_or("the run has no such call")?["content"];
        let again = format!("{call}-{}", control.id());
        let of =
            |class: &str, payload: Value| json!({ "type": class, "toolCallId": again, "audience": "user", "payload": payload });
        let started = json!({ "toolName": content["tool_name"], "input": content["input"], "retryOf": call });
        let mut log = self.log_of(control)?;
        self.done(&mut log, control, &[of("tool.started", started)]).await?;
        let output = json!({ "note": "The script has the same answer as before.", "retryOf": call });
        self.finish(&mut log, &[of("tool.result", json!({ "output": output, "durationMs": WORK }))]).await;
        Ok(())
    }

    async fn work_again(&self, control: &Control, (agent, task): (&str, &str)) -> Result<(), Refusal> {
        let mut log = self.log_of(control)?;
        let begins = [task_stands(task, "running"), facts::stands(agent, "running", "works on it once more")];
        self.done(&mut log, control, &begins).await?;
        let summary = "Done once more, as the viewer asked.";
        let ends = if task == "link-check" { ["sleeping", "sleeping"] } else { ["done", "idle"] };
        self.finish(&mut log, &[task_stands(task, ends[0]), facts::stands(agent, ends[1], summary)]).await;
        Ok(())
    }

    async fn attempt_again(self: &Arc<Self>, control: &Control, run: &str, stands: &Value) -> Result<(), Refusal> {
        if !story::is_over(stands) {
            return Err("the run still goes on");
        }
        let session = stands["sessionId"].as_str().ok_or("the run belongs to no session")?;
        let agent = control.text("agentId").unwrap_or_default().to_owned();
        let place = Place { run: run.to_owned(), session: session.to_owned(), agent, parent: None };
        let started = json!({ "trigger": "retry", "controlId": control.id() });
        let mut actor = Actor::begin(self, place, started).await.map_err(|_| "the server takes no new attempt")?;
        self.api.ack(&control.0).await;
        let played = async {
            actor.think("Once more, from the beginning. ").await?;
            actor.speak("Another attempt, as you asked. I am a script, so this time it simply works.").await
        }
        .await;
        if let Err(Ended::Refused(error)) = actor.end(played).await {
            tracing::warn!(%error, run, "an attempt of the demo broke off");
        }
        Ok(())
    }

    /// A teammate, or its task, of which nothing is played: its owner says that it is stopped or closed.
    async fn release(&self, control: &Control) -> Result<(), Refusal> {
        let Some((agent, task)) = worker(control) else {
            if control.is("close") && control.text("runId").is_none() {
                let closed = json!({ "type": "session.closed", "payload": { "status": "closed" } });
                return self.done(&mut self.log_of(control)?, control, &[closed]).await;
            }
            return Err("no run of the demo plays that turn now");
        };
        let mut log = self.log_of(control)?;
        let told = match control.is("close") {
            true => vec![facts::stands(agent, "closed", "Closed by the viewer.")],
            false => vec![facts::stands(agent, "killed", "Stopped by the viewer."), task_stands(task, "canceled")],
        };
        self.done(&mut log, control, &told).await
    }

    /// The editor looks at it once more.
    async fn review(&self, control: &Control) -> Result<(), Refusal> {
        let wanted = &control.0["value"];
        let artifact = control.text("artifactId").map(Value::from);
        let target = [wanted["target"].clone(), artifact.unwrap_or_default(), wanted.clone()];
        let target =
            target.into_iter().find(|target| !target.is_null()).ok_or("value says what is to be reviewed: { target }")?;
        let (id, evidence) = (format!("review-{}", control.id()), format!("review-notes-{}", control.id()));
        let of = |class: &str, more: Value| {
            let payload = facts::joined(json!({ "reviewId": id, "reviewer": "editor", "target": target }), more);
            json!({ "type": class, "agentId": "editor", "taskId": "review", "topology": "review_team", "payload": payload })
        };
        let mut log = self.log_of(control)?;
        let requested = of("review.requested", json!({ "title": "A review, as the viewer asked" }));
        self.done(&mut log, control, &[requested, facts::stands("editor", "running", "reads it again")]).await?;
        let summary = "Read again: nothing to add.";
        let notes = facts::evidence(&evidence, "editor", "review", "Notes of another review", summary, "reviews/again");
        let completed = of("review.completed", json!({ "verdict": "passed", "summary": summary, "evidenceRefs": [evidence] }));
        self.finish(&mut log, &[notes, completed, facts::stands("editor", "idle", summary)]).await;
        Ok(())
    }

    /// An earlier version of an artifact is the current one again: as a version of its own.
    async fn roll_back(&self, control: &Control) -> Result<(), Refusal> {
        let wanted = &control.0["value"]["version"];
        if wanted.is_null() {
            return Err("value says to which version: { version }");
        }
        let summary = format!("Version {wanted} again, as the viewer asked.");
        self.new_version(control, json!({ "summary": summary, "restores": wanted })).await
    }

    /// What the viewer wrote is the artifact's next version.
    async fn edit(&self, control: &Control) -> Result<(), Refusal> {
        let words = match control.words() {
            words if words.is_empty() => control.0["value"].to_string(),
            words => words,
        };
        self.new_version(control, json!({ "summary": "Edited by the viewer.", "preview": gist(&words) })).await
    }

    async fn new_version(&self, control: &Control, what: Value) -> Result<(), Refusal> {
        let (Some(run), Some(artifact)) = (control.text("runId"), control.text("artifactId")) else {
            return Err("what is changed is an artifact of a run");
        };
        let shown = self.api.activities(run).await.map_err(|_| "its run cannot be read")?;
        let known = shown["activities"].as_array().into_iter().flatten();
        let known = known.filter(|of| of["activityType"] == "artifact").find(|of| of["activityId"] == artifact);
        let versions =
            known.ok_or("the run has no such artifact")?["content"]["versions"].as_array().cloned().unwrap_or_default();
        let number = versions.iter().filter_map(|version| version["version"].as_u64()).max().unwrap_or(0) + 1;
        let of_restored = versions.iter().find(|version| !version["version"].is_null() && version["version"] == what["restores"]);
        if !what["restores"].is_null() && of_restored.is_none() {
            return Err("the artifact has no such version");
        }
        let preview = of_restored.map_or_else(|| what["preview"].clone(), |version| version["preview"].clone());
        let reference = format!("artifacts/{artifact}/{number}");
        let payload = json!({ "version": number, "summary": what["summary"], "preview": preview, "ref": reference });
        let created = json!({ "type": "artifact.version.created", "artifactId": artifact, "payload": payload });
        self.done(&mut self.log_of(control)?, control, &[created]).await
    }

    /// Another item on the board, and the teammate that does it.
    async fn delegate(&self, control: &Control) -> Result<(), Refusal> {
        let value = &control.0["value"];
        let agent = value["assignee"].as_str().or(value["agentId"].as_str()).unwrap_or("researcher");
        let words = match control.words() {
            words if words.is_empty() => value["title"].as_str().or(value["task"].as_str()).unwrap_or_default().to_owned(),
            words => words,
        };
        if words.is_empty() {
            return Err("value says what is to be done: a text, or { text, assignee }");
        }
        let task = format!("delegated-{}", control.id());
        let mut log = self.log_of(control)?;
        let item = json!({ "title": gist(&words), "assignee": agent, "status": "running", "dependencies": [] });
        self.done(&mut log, control, &[facts::item(&task, item)]).await?;
        self.finish(&mut log, &[facts::item(&task, json!({ "status": "done", "progress": 1 }))]).await;
        Ok(())
    }

    /// The coordinator waits for a teammate, and says so. It does that anyway.
    async fn wait_for(&self, control: &Control) -> Result<(), Refusal> {
        let whom = worker(control).map_or("the team", |(agent, _)| agent);
        let told = json!({ "message": format!("Waits for {whom}, as the viewer asked.") });
        let fact = match control.text("runId") {
            Some(_) => json!({ "type": "run.status", "payload": told }),
            None => json!({ "type": "session.updated", "payload": told }),
        };
        self.done(&mut self.log_of(control)?, control, &[fact]).await
    }
}

/// Those whose work is no work item of the board, and their tasks.
const BESIDE: [(&str, &str); 2] = [("link-watch", "link-check"), ("translator", "translate")];

/// The teammate that a control is about, by its task or by its own name; and its task.
pub fn worker(control: &Control) -> Option<(&'static str, &'static str)> {
    let all = || facts::MEMBERS.iter().map(|member| (member.agent, member.task)).chain(BESIDE);
    match control.text("taskId") {
        Some(task) => all().find(|(_, of)| *of == task),
        None => all().find(|(agent, _)| control.text("agentId") == Some(*agent)),
    }
}

/// How a task of any kind stands.
fn task_stands(task: &str, status: &str) -> Value {
    let beside = |entity: &str, topology: &str| {
        let payload = json!({ "runtimeEntity": entity, "status": status, "runtimeStatus": status });
        json!({ "type": "task.changed", "taskId": task, "topology": topology, "payload": payload })
    };
    match task {
        "link-check" => {
            let mut job = beside("automation_job", "background_teammate");
            job["surface"] = "background_teammate".into();
            job
        }
        "translate" => beside("external_task", "remote_teammate"),
        _ => facts::item(task, json!({ "status": status })),
    }
}
