//! The writer: a plan that the coordinator accepts, an outline with a preview that grows, and the three versions of the page.

use super::{PRODUCT, Stage, Teammate, facts};
use crate::cli::demo::actor::{Actor, Ended};
use proscenium_reporter::{ProgressStatus, Reporter};
use serde_json::{Value, json};
use std::sync::Arc;

/// The page.
pub(super) const PAGE: &str = "release-notes";

const PLAN: &str = "1. One sentence that says why to upgrade.\n\
                    2. Three changes, each with its source.\n\
                    3. What breaks, and what to do.\n";

pub(super) async fn outline(stage: Arc<Stage>, session: String) -> Result<(), Ended> {
    let mut wanda = Teammate::begin(&stage, &session, "writer", "draft", "draft").await?;
    let played = play(&mut wanda).await;
    wanda.end(played).await
}

async fn play(wanda: &mut Teammate) -> Result<Value, Ended> {
    wanda.stand("running", "plans the page").await?;
    wanda.actor.plan(PLAN).await?;
    wanda.stand("plan_ready", "a plan of the page is ready").await?;
    wanda.actor.rest(1800).await?;
    wanda.stand("running", "the coordinator accepted the plan").await?;
    wanda.tell(&[facts::item("draft", json!({ "status": "running", "progress": 0.3 }))]).await?;
    render(&mut wanda.actor).await?;
    wanda
        .actor
        .speak("The outline stands; the figures come from the researcher — “Aurora 4.2: fünf Minuten weniger am Tag”?")
        .await?;
    Ok(json!({
        "summary": "An outline of the page, with a preview.", "resultRef": format!("/v1/runs/{}", wanda.actor.place.run),
        "usage": { "inputTokens": 6200, "outputTokens": 1480 }, "durationMs": 19_000, "toolCount": 1,
    }))
}

/// A tool with an activity of its own, which a page shows as it likes.
async fn render(actor: &mut Actor) -> Result<(), Ended> {
    let (call, tool) = ("render-outline", "render_page");
    let start = json!({ "toolName": tool, "input": { "template": "release-notes.md" } });
    actor.publish(&[json!({ "type": "tool.started", "toolCallId": call, "payload": start })]).await?;
    let place = actor.place.clone();
    let setup = Reporter::builder(actor.stage.api.url(), &place.run).with_session(&place.session).with_agent(&place.agent);
    let reporter = setup.start().unwrap_or_default();
    let report = reporter.call(call, tool).with_known_start();
    report.report_activity("page-preview", json!({ "title": PRODUCT, "sections": [] })).await;
    for (n, section) in ["Why upgrade", "What is new", "What breaks"].iter().enumerate() {
        let patch = json!([{ "op": "add", "path": "/sections/-", "value": section }]);
        report.report_activity_delta("page-preview", patch).await;
        report.report_progress(ProgressStatus::Running, Some(section), Some((n + 1) as f64 / 3.0)).await;
        actor.rest(700).await?;
    }
    if let Err(error) = reporter.close().await {
        tracing::warn!(%error, "not all progress of the demo was reported");
    }
    let result = json!({ "output": { "sections": 3 }, "durationMs": 2100 });
    actor.say(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await
}

fn about_page(class: &str, payload: Value) -> Value {
    json!({ "type": class, "artifactId": PAGE, "agentId": "writer", "taskId": "draft", "payload": payload })
}

/// The page as its artifact service tells of it: never its body, which is where `ref` says.
pub(super) fn created() -> Vec<Value> {
    vec![
        about_page(
            "artifact.created",
            json!({ "title": format!("{PRODUCT}: release notes"), "kind": "document", "mimeType": "text/markdown", "path": "site/releases/4.2.md" }),
        ),
        version(
            1,
            "An outline with three changes.",
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

/// Another version, and what it changes.
pub(super) fn revised(number: u32, summary: &str, preview: &str, diff: &str) -> Vec<Value> {
    let from = number - 1;
    let refers = json!({
        "diffRef": format!("artifacts/release-notes/{from}..{number}"), "diffStat": { "added": 6 * number, "removed": number },
        "summary": diff,
    });
    vec![version(number, summary, preview), about_page("artifact.diff.ready", refers)]
}
