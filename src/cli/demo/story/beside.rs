//! The agents beside the team.
//!
//! They are a profiler whose process dies, a scheduled background job, and a remote agent that waits for credentials.

use super::facts::{self, merge};
use super::{Context, PRODUCT, TEAM, Teammate, artifacts, is_over, lead_producer, run};
use crate::cli::demo::actor::{Actor, PlayError};
use crate::cli::demo::control_router::RunIdentity;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The interval between two reads of a stale run.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the output of the future, or `None` if the team is cancelled first.
async fn unless_cancelled<T>(context: &Context, session: &str, future: impl Future<Output = T>) -> Option<T> {
    let lead = run(session, "release");
    tokio::select! {
        biased;
        () = context.router.team_cancelled(&lead) => None,
        output = future => Some(output),
    }
}

/// Plays the profiler: it stops in the middle of a message without an end.
///
/// Later the server ends its run.
pub(super) async fn profile(context: Arc<Context>, session: String) -> Result<(), PlayError> {
    let mut pavel = Teammate::begin(&context, &session, "profiler", "benchmark", "benchmark").await?;
    pavel.report_status("running", "measures the start-up time").await?;
    pavel.publish_to_lead(&[facts::work_item("benchmark", json!({ "status": "running", "progress": 0.1 }))]).await?;
    if let Err(ended) = measure(&mut pavel.actor).await {
        return pavel.end(Err(ended)).await;
    }
    // The process dies here without an end of the run, so the run stays active.
    drop(pavel);
    report_lost_run(&context, &session).await
}

async fn measure(actor: &mut Actor) -> Result<(), PlayError> {
    actor.stream_reasoning("I need ten cold starts on the reference machine. ").await?;
    let call = "cold-starts";
    let start = json!({ "toolName": "measure_start", "input": { "runs": 10, "cold": true } });
    actor.publish_and_pause(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    for n in 1..=4 {
        let message = format!("start {n} of 10: {} ms", 812 + 3 * n);
        let payload = json!({ "progress": f64::from(n) / 10.0, "message": message, "status": "running" });
        actor
            .publish_and_pause(json!({ "type": "tool.progress", "toolCallId": call, "audience": "user", "payload": payload }))
            .await?;
        actor.pause(600).await?;
    }
    let text = json!({ "text": "So far, start-up takes about " });
    let message = actor.message();
    actor
        .publish_and_pause(
            json!({ "type": "text.delta", "messageId": message, "partId": format!("{message}-part"), "payload": text }),
        )
        .await
}

/// Plays the coordinator's supervisor.
///
/// It waits until the server has settled the run, and reports the failure to the team.
async fn report_lost_run(context: &Arc<Context>, session: &str) -> Result<(), PlayError> {
    let lost = run(session, "benchmark");
    // The server settles a silent run after a time limit. Without pauses (speed 0), the supervisor requests it at once.
    let settled = async {
        while context.speed > 0.0 && !is_over(&context.api.run(&lost).await?) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok::<_, PlayError>(())
    };
    unless_cancelled(context, session, settled).await.unwrap_or(Ok(()))?;
    context.api.settle(&lost).await?;
    let summary = "The profiler stopped responding, and the server ended its run. Its figures are not used.";
    let report = json!({
        "workerNotificationId": "profiler-benchmark", "status": "failed", "summary": summary,
        "resultRef": format!("/v1/runs/{lost}"),
    });
    let facts = [
        facts::agent_status("profiler", "failed", summary),
        json!({ "type": "worker.notification", "agentId": "profiler", "taskId": "benchmark", "payload": report }),
        facts::work_item(
            "benchmark",
            json!({ "status": "failed", "blocker": null, "error": { "code": "not_heard_of", "message": summary } }),
        ),
    ];
    Ok(lead_producer(context, session).publish(&facts).await?)
}

/// Plays the background job: its schedule wakes it, it checks the page's links, and it sleeps again.
pub(super) async fn watch_links(context: Arc<Context>, session: String) -> Result<(), PlayError> {
    let mut lead = lead_producer(&context, &session);
    let (agent, own) = ("link-watch", format!("{session}-link-watch"));
    let (this, last) = (run(&session, "links"), "runs/links/yesterday");
    let schedule = json!({ "cron": "0 */6 * * *", "timeZone": "Europe/Vienna" });
    let job = |status: &str, more: Value| {
        let payload = json!({ "runtimeEntity": "automation_job", "status": status, "runtimeStatus": status });
        json!({
            "type": "task.changed", "taskId": "link-check", "agentId": agent, "surface": "background_teammate",
            "topology": "background_teammate", "payload": merge(payload, more),
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
    let sleeping = json!({ "title": "Check the links on the site", "assignee": agent, "schedule": schedule, "lastRunRef": last });
    context.api.session_producer(&own).publish(&[facts::session_opened("Link watch", "link checker", &session)]).await?;
    lead.publish(&[spawned, job("sleeping", sleeping)]).await?;
    if unless_cancelled(&context, &session, context.pause(6000)).await.is_none() {
        // The job is still asleep, so its status does not change.
        return Err(PlayError::Interrupted(None));
    }
    let reason = "schedule: every six hours, now 12:00";
    lead.publish(&[
        job("waking", json!({ "wakeReason": reason })),
        facts::agent_status(agent, "running", "woke up"),
        job("running", json!({ "lastRunRef": this })),
    ])
    .await?;
    let parent = Some((run(&session, "release"), session.clone()));
    let identity = RunIdentity { run: this.clone(), session: own, agent: agent.into(), parent };
    let mut actor =
        Actor::begin(&context, identity, json!({ "wakeReason": reason, "parentRunId": run(&session, "release") })).await?;
    let played = check_links(&mut actor).await;
    let ended = actor.end(played).await;
    if ended.is_ok() {
        lead.publish(&artifacts::LINK_REPORT.facts()).await?;
    }
    let (status, summary) = match &ended {
        Ok(()) => ("sleeping", "All 214 links work; next check at 18:00"),
        Err(_) => ("paused", "paused: the run was stopped"),
    };
    let mut status_fact = facts::agent_status(agent, status, summary);
    status_fact["payload"]["lastRunRef"] = this.as_str().into();
    lead.publish(&[job(status, json!({ "summary": summary, "lastRunRef": this })), status_fact]).await?;
    ended
}

async fn check_links(actor: &mut Actor) -> Result<(), PlayError> {
    let call = "check-links";
    let start = json!({ "toolName": "check_links", "input": { "site": "docs.example" } });
    actor.publish_and_pause(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    actor.pause(2500).await?;
    let result = json!({ "output": { "links": 214, "dead": 0 }, "durationMs": 2470 });
    actor.publish_and_pause(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await?;
    actor.stream_text("All 214 links work.").await
}

/// Plays the remote agent: its card, its task, and its need for credentials. It stays unfinished.
pub(super) async fn translate(context: Arc<Context>, session: String) -> Result<(), PlayError> {
    let mut lead = lead_producer(&context, &session);
    let (agent, card) = ("translator", "https://polyglot.example/.well-known/agent-card.json");
    let remote = |status: &str, more: Value| {
        let payload = json!({
            "runtimeEntity": "external_task", "remoteTaskId": "polyglot-7731", "capabilityRef": card, "status": status,
            "runtimeStatus": status, "title": format!("Translate the {PRODUCT} release notes into 日本語"),
        });
        json!({
            "type": "task.changed", "taskId": "translate", "agentId": agent, "topology": "remote_teammate",
            "payload": merge(payload, more),
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
    let working = [remote("working", json!({})), facts::agent_status(agent, "running", "reads the outline")];
    let begins = async {
        context.pause(3000).await;
        lead.publish(&working).await?;
        context.pause(4000).await;
        Ok::<_, PlayError>(())
    };
    let Some(begun) = unless_cancelled(&context, &session, begins).await else {
        let canceled = remote("canceled", json!({ "reason": "the release was cancelled" }));
        return Ok(lead.publish(&[canceled, facts::agent_status(agent, "idle", "cancelled")]).await?);
    };
    begun?;
    let needs = json!({ "scheme": "oauth2", "scopes": ["translate.write"], "reason": "the trial account has expired" });
    let waits = facts::agent_status(agent, "waiting", "needs credentials to continue");
    lead.publish(&[remote("auth_required", json!({ "authNeeds": needs, "blocker": "an account at polyglot.example" })), waits])
        .await?;
    Ok(())
}
