//! The publisher: may put the page on the site only if the viewer says so. Yes and no are two ends of the story.

use super::{PRODUCT, Stage, Teammate, facts, lead_word, writer};
use crate::cli::demo::actor::{Actor, Decision, Ended};
use serde_json::{Value, json};
use std::sync::Arc;

/// Asks for the publisher, in the coordinator's run: the card shows who asks, and the click goes to the publisher's line.
pub(super) async fn may_publish(actor: &mut Actor) -> Result<Decision, Ended> {
    actor
        .publish(&[
            facts::stands("publisher", "needs_input", "asks whether the page may go public"),
            facts::item("publish", json!({ "status": "blocked", "blocker": "the viewer's approval" })),
        ])
        .await?;
    let what = json!({
        "kind": "delegated_permission", "message": format!("May Pia publish the release notes of {PRODUCT}? Everybody will see them."),
        "risk": "high", "toolName": "publish_page", "policyScope": "once, for version 3 of the page",
        "safeInput": { "page": "releases/4.2", "version": 3, "site": "docs.example" },
        "parentRouting": "coordinator", "agentName": "Pia",
    });
    actor.ask("publish-page", Some("publisher"), what).await
}

/// Yes: the page goes out.
pub(super) async fn publish(stage: &Arc<Stage>, session: &str) -> Result<(), Ended> {
    let mut pia = Teammate::begin(stage, session, "publisher", "publish", "publish").await?;
    let played = play(&mut pia).await;
    pia.end(played).await
}

async fn play(pia: &mut Teammate) -> Result<Value, Ended> {
    pia.stand("running", "publishes").await?;
    pia.tell(&[facts::item("publish", json!({ "status": "running", "blocker": null }))]).await?;
    deploy(&mut pia.actor).await?;
    pia.actor.speak("It is out: `docs.example/releases/4.2` — version 3, as you allowed. 🎉").await?;
    let about =
        |class: &str, told: Value| json!({ "type": class, "artifactId": writer::PAGE, "agentId": "publisher", "payload": told });
    let exported = json!({ "exportRef": "https://docs.example/releases/4.2", "exportFormat": "html", "status": "exported" });
    let shot = "A picture of the page as it is on the site.";
    pia.tell(&[
        about("artifact.export.started", json!({ "exportFormat": "html" })),
        about("artifact.export.completed", exported),
        facts::evidence("live-page", "publisher", "verification", "docs.example/releases/4.2", shot, "shots/releases-4.2"),
    ])
    .await?;
    Ok(json!({
        "summary": "Version 3 is on the site.", "resultRef": format!("/v1/runs/{}", pia.actor.place.run), "evidenceRefs": ["live-page"],
        "usage": { "inputTokens": 900, "outputTokens": 60 }, "durationMs": 5200, "toolCount": 1,
    }))
}

/// A tool that is careless: it prints the key with which it deploys, cut in two by its stream, and once more in its result. The
/// server takes it out before anything is stored. (The key is made up.)
async fn deploy(actor: &mut Actor) -> Result<(), Ended> {
    let key = format!("{}_{}", "ghp", "n0tArealKeyOnlyForTheDemo4p2x");
    let (left, right) = key.split_at(11);
    let call = "publish-page";
    let start = json!({ "toolName": "publish_page", "input": { "page": "releases/4.2", "version": 3 } });
    actor.say(json!({ "type": "tool.started", "toolCallId": call, "payload": start })).await?;
    for text in ["$ deploy releases/4.2\nusing DEPLOY_KEY=", left, right, "\nuploaded 14 files\n"] {
        let payload = json!({ "text": text, "channel": "stdout" });
        actor.say(json!({ "type": "tool.output.delta", "toolCallId": call, "audience": "user", "payload": payload })).await?;
    }
    let output =
        json!({ "url": "https://docs.example/releases/4.2", "files": 14, "log": format!("authorized by {key}"), "apiKey": key });
    let result = json!({ "output": output, "durationMs": 3900, "costUsd": 0.002 });
    actor.say(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await
}

/// No: the page stays a draft, and everybody is told so.
pub(super) async fn keep_as_draft(stage: &Arc<Stage>, session: &str) -> Result<(), Ended> {
    let kept = json!({ "status": "draft", "summary": "Not published: the viewer said no. Version 3 is kept as a draft." });
    let facts = [
        json!({ "type": "artifact.updated", "artifactId": writer::PAGE, "agentId": "publisher", "payload": kept }),
        facts::stands("publisher", "idle", "was not allowed to publish"),
        facts::item("publish", json!({ "status": "blocked", "blocker": "the viewer did not approve" })),
    ];
    Ok(lead_word(stage, session).publish(&facts).await?)
}
