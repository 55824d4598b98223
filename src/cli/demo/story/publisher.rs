//! The publisher: publishes the page only if the viewer approves.
//!
//! Each answer has its own end of the story.

use super::{Context, PRODUCT, Teammate, artifacts, facts, lead_producer};
use crate::cli::demo::actor::{Actor, Decision, PlayError};
use serde_json::{Value, json};
use std::sync::Arc;

/// Requests the approval in the coordinator's run on behalf of the publisher.
///
/// The card names the publisher as the requester.
pub(super) async fn may_publish(actor: &mut Actor) -> Result<Decision, PlayError> {
    actor
        .publish(&[
            facts::agent_status("publisher", "needs_input", "asks for permission to publish the page"),
            facts::work_item("publish", json!({ "status": "blocked", "blocker": "the viewer's approval" })),
        ])
        .await?;
    let options = json!([
        {
            "optionId": "once", "kind": "allow_once", "label": "Approve once",
            "description": "Pia publishes version 3 now. 2,140 subscribers get one mail.",
        },
        {
            "optionId": "session", "kind": "allow_always", "width": "session", "label": "Approve for this session",
            "description": "Pia publishes version 3, and each later version of this page without another question.",
        },
        {
            "optionId": "reject", "kind": "reject_once", "label": "Reject",
            "description": "Nothing is published. Version 3 stays a draft.",
        },
    ]);
    let request = json!({
        "kind": "delegated_permission", "title": format!("Publish the {PRODUCT} release notes"),
        "message": "The page is public at once. A rollback removes it, but not the mail to the subscribers.",
        "risk": "high", "toolName": "publish_page", "policyScope": "once, for version 3 of the page", "options": options,
        "safeInput": { "page": "releases/4.2", "version": 3, "site": "docs.example", "notify": "subscribers" },
        "parentRouting": "coordinator", "agentName": "Pia", "versionId": "3", "artifactRefs": [artifacts::PAGE],
        "evidenceRefs": ["review-notes-3", "tests-4.2"],
    });
    actor.request_decision("publish-page", Some("publisher"), request).await
}

/// Publishes the page after the approval.
pub(super) async fn publish(context: &Arc<Context>, session: &str) -> Result<(), PlayError> {
    let mut pia = Teammate::begin(context, session, "publisher", "publish", "publish").await?;
    let played = play(&mut pia).await;
    pia.end(played).await
}

async fn play(pia: &mut Teammate) -> Result<Value, PlayError> {
    pia.report_status("running", "publishes the page").await?;
    pia.publish_to_lead(&[facts::work_item("publish", json!({ "status": "running", "blocker": null }))]).await?;
    deploy(&mut pia.actor).await?;
    pia.actor.stream_text("The page is live: `docs.example/releases/4.2` — version 3, as you approved. 🎉").await?;
    let about = |event_type: &str, payload: Value| json!({ "type": event_type, "artifactId": artifacts::PAGE, "agentId": "publisher", "payload": payload });
    let exported = json!({ "exportRef": "https://docs.example/releases/4.2", "exportFormat": "html", "status": "exported" });
    let summary = "A screenshot of the published page.";
    pia.publish_to_lead(&[
        about("artifact.export.started", json!({ "exportFormat": "html" })),
        about("artifact.export.completed", exported),
        facts::evidence("live-page", "publisher", "verification", "docs.example/releases/4.2", summary, "shots/releases-4.2"),
    ])
    .await?;
    Ok(json!({
        "summary": "Version 3 is live on the site.", "resultRef": format!("/v1/runs/{}", pia.actor.identity.run), "evidenceRefs": ["live-page"],
        "usage": { "inputTokens": 900, "outputTokens": 60, "costUsd": 0.01 }, "durationMs": 5200, "toolCount": 1,
    }))
}

/// Plays a careless tool that leaks its deploy key.
///
/// The stream contains the key split over two chunks, and the result repeats it.
///
/// The server redacts the key before it stores anything. (The key is made up.)
async fn deploy(actor: &mut Actor) -> Result<(), PlayError> {
    let key = format!("{}_{}", "ghp", "n0tArealKeyOnlyForTheDemo4p2x");
    let (left, right) = key.split_at(11);
    let call = "publish-page";
    let start = json!({ "toolName": "publish_page", "input": { "page": "releases/4.2", "version": 3 } });
    actor.publish_and_pause(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    for text in ["$ deploy releases/4.2\nusing DEPLOY_KEY=", left, right, "\nuploaded 14 files\n"] {
        let payload = json!({ "text": text, "channel": "stdout" });
        actor
            .publish_and_pause(json!({ "type": "tool.output.delta", "toolCallId": call, "audience": "user", "payload": payload }))
            .await?;
    }
    let output =
        json!({ "url": "https://docs.example/releases/4.2", "files": 14, "log": format!("authorized by {key}"), "apiKey": key });
    let result = json!({ "output": output, "durationMs": 3900, "costUsd": 0.002 });
    actor.publish_and_pause(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await
}

/// Keeps the page as a draft after the rejection, and publishes that.
pub(super) async fn keep_as_draft(context: &Arc<Context>, session: &str) -> Result<(), PlayError> {
    let kept = json!({ "status": "draft", "summary": "Not published: the viewer declined. Version 3 is kept as a draft." });
    let facts = [
        json!({ "type": "artifact.updated", "artifactId": artifacts::PAGE, "agentId": "publisher", "payload": kept }),
        facts::agent_status("publisher", "idle", "did not get permission to publish"),
        facts::work_item("publish", json!({ "status": "blocked", "blocker": "the viewer did not approve" })),
    ];
    Ok(lead_producer(context, session).publish(&facts).await?)
}
