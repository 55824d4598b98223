//! The editor: reads the page in the coordinator's run, asks for changes, and lets the next version pass.

use super::{facts, writer};
use crate::cli::demo::actor::{Actor, Ended};
use serde_json::json;

/// What a review comes to.
pub(super) struct Opinion {
    pub verdict: &'static str,
    pub summary: &'static str,
    pub fixes: &'static [&'static str],
}

pub(super) const CHANGES: Opinion = Opinion {
    verdict: "changes_requested",
    summary: "Good, but two claims stand there without proof.",
    fixes: &["Say how start-up was measured, and on what machine.", "Tell users of API v1 what to do, with a date."],
};

pub(super) const APPROVED: Opinion = Opinion { verdict: "passed", summary: "Approved: every claim has its source.", fixes: &[] };

/// One review of a version of the page: asked for, read aloud, and decided by the reviewer's own fact.
pub(super) async fn review(actor: &mut Actor, version: u32, opinion: &Opinion, says: &str) -> Result<(), Ended> {
    let (id, evidence) = (format!("review-of-version-{version}"), format!("review-notes-{version}"));
    let target = json!({ "artifactId": writer::PAGE, "version": version });
    let about = |class: &str| json!({ "type": class, "agentId": "editor", "taskId": "review", "topology": "review_team" });
    let mut requested = about("review.requested");
    requested["payload"] = json!({
        "reviewId": id, "reviewer": "editor", "target": target, "title": format!("Version {version} of the page"),
        "artifactRefs": [writer::PAGE],
    });
    actor
        .publish(&[
            facts::stands("editor", "running", "reads the page"),
            facts::item("review", json!({ "status": "reviewing", "blocker": null })),
        ])
        .await?;
    actor.say(requested).await?;
    actor.rest(1200).await?;
    actor.speak_as("editor", says).await?;
    let title = format!("Notes on version {version}");
    let href = format!("reviews/release-notes/{version}");
    let mut completed = about("review.completed");
    completed["payload"] = json!({
        "reviewId": id, "reviewer": "editor", "target": target, "verdict": opinion.verdict, "summary": opinion.summary,
        "evidenceRefs": [evidence, "commit-8f1c2"], "requestedFixes": opinion.fixes,
    });
    actor
        .publish(&[
            facts::evidence(&evidence, "editor", "review", &title, opinion.summary, &href),
            completed,
            facts::stands("editor", "idle", opinion.summary),
        ])
        .await?;
    actor.rest(900).await
}
