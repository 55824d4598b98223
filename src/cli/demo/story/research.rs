//! The researcher: reads the changes.
//!
//! One of its tools reports progress, one fails and is retried, and one outputs 5 MB.

use super::{Context, PRODUCT, Teammate, artifacts, facts};
use crate::cli::demo::actor::{Actor, PlayError};
use proscenium_reporter::{ProgressStatus, Reporter, ToolProgressEvent};
use serde_json::{Value, json};
use std::sync::Arc;

/// The size of the test log, in bytes.
///
/// It is far above the inline limit of an envelope, so the server offloads it.
const OUTPUT_BYTES: usize = 5_000_000;

/// The number of commits, and the number of batches that the tool reads them in.
const COMMITS: u64 = 340;
const BATCHES: u64 = 17;

/// The researcher's answer.
const FOUND: &str = "\
### Three changes matter to readers

| Change | For readers | Source |
| --- | --- | --- |
| Plugins load on first use | Start-up takes **0.81 s** instead of 1.31 s | `8f1c2` |
| Bidirectional layout | The editor supports 日本語 and العربية | #4711 |
| API v1 is removed | Naïve clients will break — *naïve* as in `GET /v1/items` | `c77e0` |

The measurements are in `start-times.csv`. 🚧";

pub(super) async fn research(context: Arc<Context>, session: String) -> Result<(), PlayError> {
    let mut rui = Teammate::begin(&context, &session, "researcher", "research", "research").await?;
    let played = play(&mut rui).await;
    rui.end(played).await
}

async fn play(rui: &mut Teammate) -> Result<Value, PlayError> {
    rui.report_status("running", "reads the commits since 4.1").await?;
    rui.publish_to_lead(&[facts::work_item("research", json!({ "status": "running", "progress": 0.1 }))]).await?;
    let actor = &mut rui.actor;
    actor
        .stream_reasoning("I have three sources: the commits since v4.1.0, the closed issues, and the log of the last test run. ")
        .await?;
    read_commits(actor).await?;
    rui.publish_to_lead(&[facts::work_item("research", json!({ "progress": 0.6 }))]).await?;
    fetch_issue(&mut rui.actor).await?;
    run_tests(&mut rui.actor).await?;
    rui.actor.stream_text(FOUND).await?;
    rui.actor.publish(&[facts::model_call("researcher", "scripted-large", [18_400, 920], 0.21, 3400)]).await?;
    for file in [artifacts::TEST_REPORT, artifacts::START_TIMES, artifacts::CHART] {
        rui.publish_to_lead(&file.facts()).await?;
    }
    let cite =
        |id: &str, title: &str, summary: &str, href: &str| facts::evidence(id, "researcher", "citation", title, summary, href);
    rui.publish_to_lead(&[
        cite("commit-8f1c2", "commit 8f1c2: load plugins on first use", "start-up from 1.31 s to 0.81 s", "git/aurora/8f1c2"),
        cite("issue-4711", "issue #4711: right-to-left input", "closed for 4.2", "issues/4711"),
        facts::evidence("tests-4.2", "researcher", "trace", "test run of 4.2", "12,480 passed, 0 failed", "ci/runs/9912"),
    ])
    .await?;
    Ok(json!({
        "summary": "Three changes that matter to readers, each with its source.",
        "resultRef": format!("/v1/runs/{}", rui.actor.identity.run),
        "evidenceRefs": ["commit-8f1c2", "issue-4711", "tests-4.2"],
        "usage": { "inputTokens": 18_400, "outputTokens": 920, "costUsd": 0.21 }, "durationMs": 41_000, "toolCount": 4,
    }))
}

/// Plays a long tool. It reports its progress by the API of seed 002, as a separate producer.
async fn read_commits(actor: &mut Actor) -> Result<(), PlayError> {
    let (call, tool) = ("read-commits", "index_commits");
    actor.publish(&[
        json!({ "type": "tool.args", "toolCallId": call, "payload": { "toolName": tool, "input": { "from": "v4.1.0", "to": "v4.2.0" } } }),
        json!({ "type": "tool.started", "toolCallId": call, "payload": { "toolName": tool } }),
    ])
    .await?;
    let identity = actor.identity.clone();
    let setup =
        Reporter::builder(actor.context.api.url(), &identity.run).with_session(&identity.session).with_agent(&identity.agent);
    // Without a reporter the tool still works, but shows no progress.
    let reporter = setup.start().unwrap_or_default();
    let report = reporter.call(call, tool).with_known_start();
    let batch = COMMITS / BATCHES;
    for n in 1..=BATCHES {
        let message = format!("{} of {COMMITS} commits", n * batch);
        let state = report.state(ProgressStatus::Running).with_message(message).with_progress(n as f64 / BATCHES as f64);
        report.report(state.with_loaded(n * batch).with_total(COMMITS)).await;
        // Only operators see these reports.
        report.emit(ToolProgressEvent::new(tool, format!("batch {n}: {batch} commits, 1 request")).with_audience("dashboard"));
        actor.pause(420).await?;
    }
    report.report_progress(ProgressStatus::Done, Some("340 commits, 41 of them visible to users"), Some(1.0)).await;
    if let Err(error) = reporter.close().await {
        tracing::warn!(%error, "the demo could not report all progress");
    }
    let found = json!({ "commits": COMMITS, "visibleToUsers": 41, "breaking": ["remove API v1"] });
    let result = json!({ "output": found, "durationMs": 7140, "costUsd": 0.01 });
    actor.publish_and_pause(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": result })).await
}

/// Plays a tool that fails, and retries it as another call.
async fn fetch_issue(actor: &mut Actor) -> Result<(), PlayError> {
    let start = |call: &str| {
        let payload = json!({ "toolName": "fetch_issue", "input": { "number": 4711 } });
        json!({ "type": "tool.started", "toolCallId": call, "payload": payload })
    };
    actor.publish_and_pause(start("issue-first-try")).await?;
    actor.pause(1200).await?;
    let error = json!({ "code": "timeout", "message": "The issue tracker did not respond within 10 s." });
    let failed = json!({ "error": error, "durationMs": 10_004 });
    actor.publish_and_pause(json!({ "type": "tool.failed", "toolCallId": "issue-first-try", "payload": failed })).await?;
    actor.stream_reasoning("The tracker is slow today. I will try again. ").await?;
    actor.publish_and_pause(start("issue-second-try")).await?;
    let output = json!({ "title": "Right-to-left input", "state": "closed", "milestone": PRODUCT, "reporter": "Łukasz Žižka" });
    // The text comes from outside the team, so the producer marks it as untrusted.
    let result = json!({ "output": output, "durationMs": 640, "untrusted": true });
    actor
        .publish_and_pause(
            json!({ "type": "tool.result", "toolCallId": "issue-second-try", "audience": "user", "payload": result }),
        )
        .await
}

/// Plays a tool with 5 MB of output.
async fn run_tests(actor: &mut Actor) -> Result<(), PlayError> {
    let start = json!({ "toolName": "test_log", "input": { "run": 9912 } });
    actor.publish_and_pause(json!({ "type": "tool.started", "toolCallId": "test-log", "payload": start })).await?;
    let result = json!({ "output": test_log(), "durationMs": 2210 });
    actor
        .publish_and_pause(json!({ "type": "tool.result", "toolCallId": "test-log", "audience": "user", "payload": result }))
        .await
}

/// Generates the log of a test run, one line per test.
fn test_log() -> String {
    let mut log = String::with_capacity(OUTPUT_BYTES + 100);
    for n in 1_u64.. {
        if log.len() >= OUTPUT_BYTES {
            break;
        }
        log.push_str(&format!("test aurora::suite_{:02}::case_{n:05} ... ok ({} ms)\n", n % 37, n * 7919 % 240));
    }
    log.truncate(OUTPUT_BYTES);
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_its_stated_size() {
        assert_eq!(test_log().len(), OUTPUT_BYTES);
    }
}
