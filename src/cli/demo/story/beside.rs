//! Who works beside the team: a profiler whose process dies, a teammate in the background who wakes up by its schedule, and a
//! remote one who is not let in yet.

use super::facts::{self, joined};
use super::{PRODUCT, Stage, TEAM, Teammate, is_over, lead_word, run};
use crate::cli::demo::actor::{Actor, Ended, Place};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// From one look at the run of somebody who is not heard of to the next.
const LOOK: Duration = Duration::from_millis(500);

/// What comes, unless the team is sent home before.
async fn rest_of<T>(stage: &Stage, session: &str, what: impl Future<Output = T>) -> Option<T> {
    let lead = run(session, "release");
    tokio::select! {
        biased;
        () = stage.desk.dismissed(&lead) => None,
        came = what => Some(came),
    }
}

/// The profiler: begins, and is gone in the middle of a word. Nobody says that its run has ended, until the server does.
pub(super) async fn profile(stage: Arc<Stage>, session: String) -> Result<(), Ended> {
    let mut pavel = Teammate::begin(&stage, &session, "profiler", "benchmark", "benchmark").await?;
    pavel.stand("running", "measures how long the start takes").await?;
    pavel.tell(&[facts::item("benchmark", json!({ "status": "running", "progress": 0.1 }))]).await?;
    if let Err(ended) = measure(&mut pavel.actor).await {
        return pavel.end(Err(ended)).await;
    }
    // Here the process is killed: no end, no good-bye. What is left of it is a run that goes on for ever.
    drop(pavel);
    bury(&stage, &session).await
}

async fn measure(actor: &mut Actor) -> Result<(), Ended> {
    actor.think("Cold starts, ten of them, on the reference machine. ").await?;
    let call = "cold-starts";
    let start = json!({ "toolName": "measure_start", "input": { "runs": 10, "cold": true } });
    actor.say(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    for n in 1..=4 {
        let message = format!("start {n} of 10: {} ms", 812 + 3 * n);
        let told = json!({ "progress": f64::from(n) / 10.0, "message": message, "status": "running" });
        actor.say(json!({ "type": "tool.progress", "toolCallId": call, "audience": "user", "payload": told })).await?;
        actor.rest(600).await?;
    }
    let text = json!({ "text": "So far the start takes about " });
    let message = actor.message();
    actor.say(json!({ "type": "text.delta", "messageId": message, "partId": format!("{message}-part"), "payload": text })).await
}

/// The coordinator's supervisor: waits until the server has settled the run, and says in the team what became of it.
async fn bury(stage: &Arc<Stage>, session: &str) -> Result<(), Ended> {
    let dead = run(session, "benchmark");
    // The server does so by itself, when nothing was heard for long enough. Who does not want to wait asks it to.
    let settled = async {
        while stage.speed > 0.0 && !is_over(&stage.api.run(&dead).await?) {
            tokio::time::sleep(LOOK).await;
        }
        Ok::<_, Ended>(())
    };
    rest_of(stage, session, settled).await.unwrap_or(Ok(()))?;
    stage.api.settle(&dead).await?;
    let summary = "Not heard of any more; the server settled its run. Its figures are not used.";
    let report = json!({
        "workerNotificationId": "profiler-benchmark", "status": "failed", "summary": summary,
        "resultRef": format!("/v1/runs/{dead}"),
    });
    let facts = [
        facts::stands("profiler", "failed", summary),
        json!({ "type": "worker.notification", "agentId": "profiler", "taskId": "benchmark", "payload": report }),
        facts::item(
            "benchmark",
            json!({ "status": "failed", "blocker": null, "error": { "code": "not_heard_of", "message": summary } }),
        ),
    ];
    Ok(lead_word(stage, session).publish(&facts).await?)
}

/// The one in the background: its schedule wakes it, it looks whether the page's links are alive, and it sleeps again.
pub(super) async fn watch_links(stage: Arc<Stage>, session: String) -> Result<(), Ended> {
    let mut lead = lead_word(&stage, &session);
    let (agent, own) = ("link-watch", format!("{session}-link-watch"));
    let (this, last) = (run(&session, "links"), "runs/links/yesterday");
    let schedule = json!({ "cron": "0 */6 * * *", "timeZone": "Europe/Vienna" });
    let job = |status: &str, more: Value| {
        let payload = json!({ "runtimeEntity": "automation_job", "status": status, "runtimeStatus": status });
        json!({
            "type": "task.changed", "taskId": "link-check", "agentId": agent, "surface": "background_teammate",
            "topology": "background_teammate", "payload": joined(payload, more),
        })
    };
    let spawned = json!({
        "type": "agent.spawned", "agentId": agent, "taskId": "link-check", "sessionId": own, "parentSessionId": session,
        "parentThreadId": format!("{session}-main"), "topology": "background_teammate",
        "payload": {
            "agentName": "Link watch", "teamName": TEAM, "role": "link checker", "source": "schedule", "model": "scripted-small",
            "status": "sleeping", "runtimeStatus": "sleeping", "schedule": schedule, "lastRunRef": last,
            "policy": { "mode": "read", "network": "docs.example" },
        },
    });
    let sleeping = json!({ "title": "Check the links of the site", "assignee": agent, "schedule": schedule, "lastRunRef": last });
    stage.api.session_producer(&own).publish(&[facts::opened("Link watch", "link checker", &session)]).await?;
    lead.publish(&[spawned, job("sleeping", sleeping)]).await?;
    if rest_of(&stage, &session, stage.pause(6000)).await.is_none() {
        // It was asleep, and so it stays.
        return Err(Ended::Interrupted(None));
    }
    let why = "its schedule: every six hours, at 12:00";
    lead.publish(&[
        job("waking", json!({ "wakeReason": why })),
        facts::stands(agent, "running", "woke up"),
        job("running", json!({ "lastRunRef": this })),
    ])
    .await?;
    let parent = Some((run(&session, "release"), session.clone()));
    let place = Place { run: this.clone(), session: own, agent: agent.into(), parent };
    let mut actor = Actor::begin(&stage, place, json!({ "wakeReason": why, "parentRunId": run(&session, "release") })).await?;
    let played = check_links(&mut actor).await;
    let ended = actor.end(played).await;
    let (status, summary) = match &ended {
        Ok(()) => ("sleeping", "214 links, all of them alive; sleeps until 18:00"),
        Err(_) => ("paused", "paused: its run was stopped"),
    };
    let mut stands = facts::stands(agent, status, summary);
    stands["payload"]["lastRunRef"] = this.as_str().into();
    lead.publish(&[job(status, json!({ "summary": summary, "lastRunRef": this })), stands]).await?;
    ended
}

async fn check_links(actor: &mut Actor) -> Result<(), Ended> {
    let call = "check-links";
    let start = json!({ "toolName": "check_links", "input": { "site": "docs.example" } });
    actor.say(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    actor.rest(2500).await?;
    let result = json!({ "output": { "links": 214, "dead": 0 }, "durationMs": 2470 });
    actor.say(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await?;
    actor.speak("All 214 links answer.").await
}

/// The remote one: what its card says, its task there, and that it has to be let in. One that is silent is not done.
pub(super) async fn translate(stage: Arc<Stage>, session: String) -> Result<(), Ended> {
    let mut lead = lead_word(&stage, &session);
    let (agent, card) = ("translator", "https://polyglot.example/.well-known/agent-card.json");
    let remote = |status: &str, more: Value| {
        let payload = json!({
            "runtimeEntity": "external_task", "remoteTaskId": "polyglot-7731", "capabilityRef": card, "status": status,
            "runtimeStatus": status, "title": format!("Translate the notes of {PRODUCT} into 日本語"),
        });
        json!({
            "type": "task.changed", "taskId": "translate", "agentId": agent, "topology": "remote_teammate",
            "payload": joined(payload, more),
        })
    };
    let spawned = json!({
        "type": "agent.spawned", "agentId": agent, "taskId": "translate", "sessionId": format!("{session}-{agent}"),
        "parentSessionId": session, "parentThreadId": format!("{session}-main"), "topology": "remote_teammate",
        "payload": {
            "agentName": "Polyglot", "teamName": TEAM, "role": "translator", "source": "remote", "model": "unknown",
            "runtimeStatus": "submitted", "capabilityRef": card, "remoteTaskId": "polyglot-7731",
            "policy": { "mode": "remote", "data": "public text only" },
        },
    });
    lead.publish(&[spawned, remote("submitted", json!({ "assignee": agent }))]).await?;
    let works = [remote("working", json!({})), facts::stands(agent, "running", "reads the outline")];
    let begins = async {
        stage.pause(3000).await;
        lead.publish(&works).await?;
        stage.pause(4000).await;
        Ok::<_, Ended>(())
    };
    let Some(begun) = rest_of(&stage, &session, begins).await else {
        let called_off = remote("canceled", json!({ "reason": "the release was called off" }));
        return Ok(lead.publish(&[called_off, facts::stands(agent, "idle", "called off")]).await?);
    };
    begun?;
    let needs = json!({ "scheme": "oauth2", "scopes": ["translate.write"], "reason": "its trial is over" });
    let waits = facts::stands(agent, "waiting", "has to be let in before it goes on");
    lead.publish(&[remote("auth_required", json!({ "authNeeds": needs, "blocker": "an account at polyglot.example" })), waits])
        .await?;
    Ok(())
}
