//! The writer: a plan, an outline with a growing preview, and three versions of the page.

use super::{Context, PRODUCT, Teammate, facts};
use crate::cli::demo::actor::{Actor, PlayError};
use proscenium::reporter::{ProgressStatus, Reporter};
use serde_json::{Value, json};
use std::sync::Arc;

/// The id of the page's artifact.
pub(super) const PAGE: &str = "release-notes";

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
    Ok(json!({
        "summary": "An outline of the page, with a preview.", "resultRef": format!("/v1/runs/{}", wanda.actor.identity.run),
        "usage": { "inputTokens": 6200, "outputTokens": 1480 }, "durationMs": 19_000, "toolCount": 1,
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

fn about_page(event_type: &str, payload: Value) -> Value {
    json!({ "type": event_type, "artifactId": PAGE, "agentId": "writer", "taskId": "draft", "payload": payload })
}

/// Builds the facts about the new page. They hold a preview and a `ref`, and never the body.
pub(super) fn created() -> Vec<Value> {
    vec![
        about_page(
            "artifact.created",
            json!({ "title": format!("{PRODUCT}: release notes"), "kind": "document", "mimeType": "text/markdown", "path": "site/releases/4.2.md" }),
        ),
        version(
            1,
            "An outline with the three changes.",
            "# Aurora 4.2\n\n- Start-up is faster\n- Right-to-left input\n- API v1 is gone",
        ),
        about_page(
            "artifact.preview.ready",
            json!({ "previewRef": "previews/release-notes/1", "preview": "Aurora 4.2: faster, in more languages, without API v1." }),
        ),
    ]
}

fn version(number: u32, summary: &str, preview: &str) -> Value {
    about_page(
        "artifact.version.created",
        json!({
            "version": number, "summary": summary, "preview": preview, "ref": format!("artifacts/release-notes/{number}"),
            "bytes": 1800 + 640 * number,
        }),
    )
}

/// Builds the facts about another version and its diff.
pub(super) fn revised(number: u32, summary: &str, preview: &str, diff: &str) -> Vec<Value> {
    let from = number - 1;
    let payload = json!({
        "diffRef": format!("artifacts/release-notes/{from}..{number}"), "diffStat": { "added": 6 * number, "removed": number },
        "summary": diff,
    });
    vec![version(number, summary, preview), about_page("artifact.diff.ready", payload)]
}
