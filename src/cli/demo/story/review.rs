//! The editor: reviews the page, requests changes, and approves the next version.
//!
//! It works in the coordinator's run.

use super::{artifacts, facts};
use crate::cli::demo::actor::{Actor, PlayError};
use serde_json::json;

/// The result of a review.
pub(super) struct Opinion {
    pub verdict: &'static str,
    pub summary: &'static str,
    pub fixes: &'static [&'static str],
}

pub(super) const CHANGES: Opinion = Opinion {
    verdict: "changes_requested",
    summary: "Good, but two claims have no evidence.",
    fixes: &[
        "Explain how start-up was measured, and on which machine.",
        "Tell users of API v1 how to migrate, and by which date.",
    ],
};

pub(super) const APPROVED: Opinion = Opinion { verdict: "passed", summary: "Approved: every claim has its source.", fixes: &[] };

/// Plays one review of a version of the page: the request, the reviewer's comment, and the verdict.
pub(super) async fn review(actor: &mut Actor, version: u32, opinion: &Opinion, comment: &str) -> Result<(), PlayError> {
    let (id, evidence) = (format!("review-of-version-{version}"), format!("review-notes-{version}"));
    let target = json!({ "artifactId": artifacts::PAGE, "version": version });
    let about =
        |event_type: &str| json!({ "type": event_type, "agentId": "editor", "taskId": "review", "topology": "review_team" });
    let mut requested = about("review.requested");
    requested["payload"] = json!({
        "reviewId": id, "reviewer": "editor", "target": target, "title": format!("Version {version} of the page"),
        "artifactRefs": [artifacts::PAGE],
    });
    actor
        .publish(&[
            facts::agent_status("editor", "running", "reviews the page"),
            facts::work_item("review", json!({ "status": "reviewing", "blocker": null })),
        ])
        .await?;
    actor.publish_and_pause(requested).await?;
    actor.pause(1200).await?;
    actor.stream_text_as("editor", comment).await?;
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
            facts::agent_status("editor", "idle", opinion.summary),
        ])
        .await?;
    actor.pause(900).await
}
