//! The writer: a plan, and an outline with a growing preview. `artifacts` has the versions of its page.

use super::{Context, PRODUCT, Teammate, artifacts, facts};
use crate::cli::demo::actor::{Actor, PlayError};
use proscenium_reporter::{ProgressStatus, Reporter};
use serde_json::{Value, json};
use std::sync::Arc;

const PLAN: &str = "1. One sentence on why to upgrade.\n\
                    2. Three changes, each with its source.\n\
                    3. What breaks, and how to migrate.\n";

pub(super) async fn outline(context: Arc<Context>, session: String) -> Result<(), PlayError> {
    let mut wanda = Teammate::begin(&context, &session, "writer", "draft", "draft").await?;
    let played = play(&mut wanda).await;
    wanda.end(played).await
}

async fn play(wanda: &mut Teammate) -> Result<Value, PlayError> {
    wanda.report_status("running", "plans the page").await?;
    wanda.actor.stream_plan(PLAN).await?;
    wanda.report_status("plan_ready", "the plan for the page is ready").await?;
    wanda.actor.pause(1800).await?;
    wanda.report_status("running", "the coordinator accepted the plan").await?;
    wanda.publish_to_lead(&[facts::work_item("draft", json!({ "status": "running", "progress": 0.3 }))]).await?;
    render(&mut wanda.actor).await?;
    wanda
        .actor
        .stream_text("The outline is done; the figures will come from the researcher. As a title: “Aurora 4.2: fünf Minuten weniger am Tag”?")
        .await?;
    wanda.actor.publish(&[facts::model_call("writer", "scripted-large", [6200, 1480], 0.09, 2900)]).await?;
    wanda.publish_to_lead(&artifacts::MIGRATION.facts()).await?;
    Ok(json!({
        "summary": "An outline of the page, with a preview.", "resultRef": format!("/v1/runs/{}", wanda.actor.identity.run),
        "usage": { "inputTokens": 6200, "outputTokens": 1480, "costUsd": 0.09 }, "durationMs": 19_000, "toolCount": 1,
    }))
}

/// Plays a tool with a custom activity.
async fn render(actor: &mut Actor) -> Result<(), PlayError> {
    let (call, tool) = ("render-outline", "render_page");
    let start = json!({ "toolName": tool, "input": { "template": "release-notes.md" } });
    actor.publish(&[json!({ "type": "tool.started", "toolCallId": call, "payload": start })]).await?;
    let identity = actor.identity.clone();
    let setup =
        Reporter::builder(actor.context.api.url(), &identity.run).with_session(&identity.session).with_agent(&identity.agent);
    let reporter = setup.start().unwrap_or_default();
    let report = reporter.call(call, tool).with_known_start();
    report.report_activity("page-preview", json!({ "title": PRODUCT, "sections": [] })).await;
    for (n, section) in ["Why upgrade", "What is new", "What breaks"].iter().enumerate() {
        let patch = json!([{ "op": "add", "path": "/sections/-", "value": section }]);
        report.report_activity_delta("page-preview", patch).await;
        report.report_progress(ProgressStatus::Running, Some(section), Some((n + 1) as f64 / 3.0)).await;
        actor.pause(700).await?;
    }
    if let Err(error) = reporter.close().await {
        tracing::warn!(%error, "the demo could not report all progress");
    }
    let result = json!({ "output": { "sections": 3 }, "durationMs": 2100 });
    actor.publish_and_pause(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await
}
