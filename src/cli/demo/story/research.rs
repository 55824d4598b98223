//! The researcher: reads what was changed. Its tools are a long one that reports its progress, one that fails and is tried again,
//! and one that puts out 5 MB.

use super::{PRODUCT, Stage, Teammate, facts};
use crate::cli::demo::actor::{Actor, Ended};
use proscenium_reporter::{ProgressStatus, Reporter, ToolProgressEvent};
use serde_json::{Value, json};
use std::sync::Arc;

/// What the log of the test run weighs, in bytes: far more than an envelope holds, so the server moves it to a body of its own.
const OUTPUT_BYTES: usize = 5_000_000;

/// Commits that there are to read, and in how many batches.
const COMMITS: u64 = 340;
const BATCHES: u64 = 17;

/// What there is to say.
const FOUND: &str = "Three things matter to readers: start-up is 38 % faster, the editor speaks 日本語 and العربية now, and the old \
                     v1 API goes — naïve clients break. 🚧";

pub(super) async fn research(stage: Arc<Stage>, session: String) -> Result<(), Ended> {
    let mut rui = Teammate::begin(&stage, &session, "researcher", "research", "research").await?;
    let played = play(&mut rui).await;
    rui.end(played).await
}

async fn play(rui: &mut Teammate) -> Result<Value, Ended> {
    rui.stand("running", "reads the commits since 4.1").await?;
    rui.tell(&[facts::item("research", json!({ "status": "running", "progress": 0.1 }))]).await?;
    let actor = &mut rui.actor;
    actor.think("Three sources: the commits since v4.1.0, the closed issues, and the log of the last test run. ").await?;
    read_commits(actor).await?;
    rui.tell(&[facts::item("research", json!({ "progress": 0.6 }))]).await?;
    fetch_issue(&mut rui.actor).await?;
    run_tests(&mut rui.actor).await?;
    rui.actor.speak(FOUND).await?;
    let cite =
        |id: &str, title: &str, summary: &str, href: &str| facts::evidence(id, "researcher", "citation", title, summary, href);
    rui.tell(&[
        cite("commit-8f1c2", "commit 8f1c2: load plugins on first use", "start-up from 1.31 s to 0.81 s", "git/aurora/8f1c2"),
        cite("issue-4711", "issue #4711: right-to-left input", "closed for 4.2", "issues/4711"),
        facts::evidence("tests-4.2", "researcher", "trace", "test run of 4.2", "12 480 passed, none failed", "ci/runs/9912"),
    ])
    .await?;
    Ok(json!({
        "summary": "Three changes that readers care about, each with its source.",
        "resultRef": format!("/v1/runs/{}", rui.actor.place.run),
        "evidenceRefs": ["commit-8f1c2", "issue-4711", "tests-4.2"],
        "usage": { "inputTokens": 18_400, "outputTokens": 920 }, "durationMs": 41_000, "toolCount": 4,
    }))
}

/// A long tool. Its author reports by seed 002's API, from a process and a producer of its own.
async fn read_commits(actor: &mut Actor) -> Result<(), Ended> {
    let (call, tool) = ("read-commits", "index_commits");
    actor.publish(&[
        json!({ "type": "tool.args", "toolCallId": call, "payload": { "toolName": tool, "input": { "from": "v4.1.0", "to": "v4.2.0" } } }),
        json!({ "type": "tool.started", "toolCallId": call, "payload": { "toolName": tool } }),
    ])
    .await?;
    let place = actor.place.clone();
    let setup = Reporter::builder(actor.stage.api.url(), &place.run).with_session(&place.session).with_agent(&place.agent);
    // Without a reporter the tool works as well, and nobody sees how far it is.
    let reporter = setup.start().unwrap_or_default();
    let report = reporter.call(call, tool).with_known_start();
    let batch = COMMITS / BATCHES;
    for n in 1..=BATCHES {
        let told = format!("{} of {COMMITS} commits", n * batch);
        let state = report.state(ProgressStatus::Running).message(told).progress(n as f64 / BATCHES as f64);
        report.report(state.with_loaded(n * batch).with_total(COMMITS)).await;
        // For whoever operates this; users see nothing of it.
        report.emit(ToolProgressEvent::new(tool, format!("batch {n}: {batch} commits, 1 request")).with_audience("dashboard"));
        actor.rest(420).await?;
    }
    report.report_progress(ProgressStatus::Done, Some("340 commits, 41 of them in view of users"), Some(1.0)).await;
    if let Err(error) = reporter.close().await {
        tracing::warn!(%error, "not all progress of the demo was reported");
    }
    let found = json!({ "commits": COMMITS, "inViewOfUsers": 41, "breaking": ["remove API v1"] });
    actor.say(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": { "output": found, "durationMs": 7140 } }))
        .await
}

/// A tool that fails, and is tried again as another call.
async fn fetch_issue(actor: &mut Actor) -> Result<(), Ended> {
    let start = |call: &str| {
        let asked = json!({ "toolName": "fetch_issue", "input": { "number": 4711 } });
        json!({ "type": "tool.started", "toolCallId": call, "payload": asked })
    };
    actor.say(start("issue-first-try")).await?;
    actor.rest(1200).await?;
    let error = json!({ "code": "timeout", "message": "the tracker did not answer within 10 s" });
    let failed = json!({ "error": error, "durationMs": 10_004 });
    actor.say(json!({ "type": "tool.failed", "toolCallId": "issue-first-try", "payload": failed })).await?;
    actor.think("The tracker is slow today. Once more. ").await?;
    actor.say(start("issue-second-try")).await?;
    let output = json!({ "title": "Right-to-left input", "state": "closed", "milestone": PRODUCT, "reporter": "Łukasz Žižka" });
    // An outsider wrote that: its source warns of it.
    let result = json!({ "output": output, "durationMs": 640, "untrusted": true });
    actor.say(json!({ "type": "tool.result", "toolCallId": "issue-second-try", "audience": "user", "payload": result })).await
}

/// A tool with 5 MB of output.
async fn run_tests(actor: &mut Actor) -> Result<(), Ended> {
    let start = json!({ "toolName": "test_log", "input": { "run": 9912 } });
    actor.say(json!({ "type": "tool.started", "toolCallId": "test-log", "payload": start })).await?;
    let result = json!({ "output": test_log(), "durationMs": 2210 });
    actor.say(json!({ "type": "tool.result", "toolCallId": "test-log", "audience": "user", "payload": result })).await
}

/// The log of a test run, a line a test, as long as it has to be.
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
    fn the_log_weighs_what_it_says() {
        assert_eq!(test_log().len(), OUTPUT_BYTES);
    }
}
