//! Small sessions beside the team: three wait for the viewer, one works for minutes, and one fails.
//!
//! They play once, so that the list of sessions and the inbox have more than one entry.

use super::Context;
use super::facts;
use crate::cli::demo::actor::{Actor, Decision, PlayError};
use crate::cli::demo::control_router::RunIdentity;
use serde_json::{Value, json};
use std::sync::Arc;

/// The agent of all errands.
pub(in crate::cli::demo) const AGENT: &str = "operator";

/// One small session with one run.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli::demo) struct Errand {
    pub session: &'static str,
    pub run: &'static str,
    title: &'static str,
    task: &'static str,
    script: Script,
}

#[derive(Debug, Clone, Copy)]
enum Script {
    Deploy,
    Digest,
    Triage,
    Index,
    Benchmark,
}

#[rustfmt::skip]
pub(in crate::cli::demo) const ERRANDS: [Errand; 5] = [
    Errand { session: "demo-benchmark", run: "demo-nightly-benchmark", title: "Nightly benchmark", task: "Run the nightly benchmark.", script: Script::Benchmark },
    Errand { session: "demo-index", run: "demo-upgrade-index", title: "Upgrade the search index", task: "Rebuild the search index with the new tokenizer.", script: Script::Index },
    Errand { session: "demo-triage", run: "demo-triage-issues", title: "Triage of 38 new issues", task: "Go through the new issues. Show me your plan before you label or close any.", script: Script::Triage },
    Errand { session: "demo-digest", run: "demo-support-digest", title: "Weekly support digest", task: "Write the weekly digest of the support tickets.", script: Script::Digest },
    Errand { session: "demo-keys", run: "demo-rotate-keys", title: "Rotate the staging keys", task: "Rotate the keys of staging, then deploy. Ask before you touch production.", script: Script::Deploy },
];

/// Plays one errand to its end.
pub(in crate::cli::demo) async fn play(context: Arc<Context>, errand: Errand) {
    if let Err(PlayError::Rejected(error)) = play_run(&context, errand).await {
        tracing::warn!(%error, run = errand.run, "an errand of the demo failed");
    }
}

async fn play_run(context: &Arc<Context>, errand: Errand) -> Result<(), PlayError> {
    let opened = json!({ "type": "session.opened", "payload": { "title": errand.title } });
    context.api.session_producer(errand.session).publish(&[opened]).await?;
    let identity = RunIdentity { run: errand.run.into(), session: errand.session.into(), agent: AGENT.into(), parent: None };
    let mut actor = Actor::begin(context, identity, json!({ "title": errand.title })).await?;
    let task = json!({ "role": "user", "text": errand.task });
    actor.publish(&[json!({ "type": "text.final", "messageId": format!("{}-task", errand.run), "payload": task })]).await?;
    if let Script::Benchmark = errand.script {
        return fail_benchmark(actor).await;
    }
    let played = match errand.script {
        Script::Deploy => deploy(&mut actor).await,
        Script::Digest => write_digest(&mut actor).await,
        Script::Triage => triage(&mut actor).await,
        Script::Index | Script::Benchmark => rebuild_index(&mut actor).await,
    };
    actor.end(played).await
}

/// Publishes the start of a call.
async fn start_call(actor: &mut Actor, call: &str, tool: &str, input: Value) -> Result<(), PlayError> {
    let payload = json!({ "toolName": tool, "input": input });
    actor.publish_and_pause(json!({ "type": "tool.started", "toolCallId": call, "payload": payload })).await
}

/// Publishes the result of a call, for all readers.
async fn end_call(actor: &mut Actor, call: &str, output: Value, duration_ms: u64) -> Result<(), PlayError> {
    let payload = json!({ "output": output, "durationMs": duration_ms });
    actor.publish_and_pause(json!({ "type": "tool.result", "toolCallId": call, "audience": "user", "payload": payload })).await
}

async fn report_use(actor: &mut Actor, tokens: [u64; 2], cost_usd: f64, duration_ms: u64) -> Result<(), PlayError> {
    actor.publish(&[facts::model_call(AGENT, "scripted-small", tokens, cost_usd, duration_ms)]).await
}

const KEYS: &str = "\
The keys of staging are rotated; the old ones are valid for one more hour.

| Service | New key | Restarted |
| --- | --- | --- |
| `gateway` | `k-2026-11-a` | yes |
| `search` | `k-2026-11-b` | yes |
| `billing` | `k-2026-11-c` | no |

`billing` reads its key at deployment only, and shares the pipeline with production:

```sh
deploy --env production --service billing --keys staging-2026-11
```";

async fn deploy(actor: &mut Actor) -> Result<(), PlayError> {
    actor.stream_reasoning("First the keys that no deployment needs, then the rest. ").await?;
    start_call(actor, "rotate", "rotate_keys", json!({ "environment": "staging", "services": ["gateway", "search", "billing"] }))
        .await?;
    actor.pause(1400).await?;
    end_call(actor, "rotate", json!({ "rotated": 3, "validUntil": "2026-11-30T00:00:00Z" }), 1380).await?;
    report_use(actor, [5200, 340], 0.03, 1900).await?;
    actor.stream_text(KEYS).await?;
    let input = json!({
        "command": ["deploy", "--env", "production", "--service", "billing", "--keys", "staging-2026-11"], "timeoutSeconds": 600,
    });
    let options = json!([
        { "optionId": "once", "kind": "allow_once", "label": "Run once", "description": "billing restarts on production, without other changes." },
        { "optionId": "always", "kind": "allow_always", "label": "Always for billing", "description": "Later deployments of billing run without a question." },
        { "optionId": "reject", "kind": "reject_once", "label": "Reject", "description": "billing keeps its old key, which expires in one hour." },
    ]);
    let known = json!({ "toolName": "deploy", "input": input });
    actor.publish(&[json!({ "type": "tool.args", "toolCallId": "deploy", "payload": known })]).await?;
    let request = json!({
        "kind": "tool_approval", "toolCallId": "deploy", "title": "Run deploy on production", "message": "This pipeline serves production, too.",
        "risk": "high", "toolName": "deploy", "parameters": input, "policyScope": "this command", "options": options,
    });
    let decision = actor.request_decision("deploy-production", None, request).await?;
    if !decision.is_approved {
        return actor.stream_text("I did not deploy. **billing keeps its old key**, which expires in one hour.").await;
    }
    start_call(actor, "deploy", "deploy", input).await?;
    for line in ["building billing 2.14.1\n", "2 of 2 instances healthy\n"] {
        let payload = json!({ "text": line, "channel": "stdout" });
        actor
            .publish_and_pause(
                json!({ "type": "tool.output.delta", "toolCallId": "deploy", "audience": "user", "payload": payload }),
            )
            .await?;
    }
    end_call(actor, "deploy", json!({ "healthy": 2 }), 9100).await?;
    actor.stream_text("Deployed. All three services use the new keys.").await
}

async fn write_digest(actor: &mut Actor) -> Result<(), PlayError> {
    start_call(actor, "tickets", "search_tickets", json!({ "since": "2026-11-16", "status": ["open", "solved"] })).await?;
    actor.pause(900).await?;
    end_call(actor, "tickets", json!({ "open": 41, "solved": 187 }), 880).await?;
    report_use(actor, [9100, 210], 0.05, 1500).await?;
    let schema = json!({
        "type": "object", "title": "Digest", "required": ["readers", "language"],
        "properties": {
            "readers": { "type": "string", "title": "For whom", "enum": ["support team", "product team", "everyone"] },
            "language": { "type": "string", "title": "Language", "enum": ["English", "Deutsch", "日本語"], "default": "English" },
            "length": { "type": "integer", "title": "Number of topics", "minimum": 1, "maximum": 10, "default": 5 },
            "quotes": { "type": "boolean", "title": "Quote customers", "default": false },
        },
    });
    let message = "Who reads the digest, and how long should it be?";
    let request = json!({ "kind": "structured_input", "message": message, "responseSchema": schema });
    let Decision { is_approved, value } = actor.request_decision("digest-form", None, request).await?;
    if !is_approved {
        return actor.stream_text("Then there is no digest this week.").await;
    }
    let readers = value["readers"].as_str().unwrap_or("the support team");
    actor.stream_text(&format!("**Digest for {readers}**\n\n1. Sign-in loops on old tablets (23 tickets)\n2. Export to CSV (18)\n3. Right-to-left text (9, solved by 4.2)")).await
}

const TRIAGE_PLAN: &str = "1. Close the 6 duplicates, each with a link to the original.\n\
                           2. Label the other 32 by area.\n\
                           3. Ask 9 reporters for the steps to reproduce.\n";

async fn triage(actor: &mut Actor) -> Result<(), PlayError> {
    start_call(actor, "issues", "list_issues", json!({ "state": "open", "label": null, "limit": 50 })).await?;
    actor.pause(1100).await?;
    end_call(actor, "issues", json!({ "issues": 38, "likelyDuplicates": 6 }), 1050).await?;
    report_use(actor, [14_300, 560], 0.08, 2100).await?;
    actor.stream_plan(TRIAGE_PLAN).await?;
    let plan = json!([
        { "step": "Close the 6 duplicates, each with a link to the original", "status": "pending" },
        { "step": "Label the other 32 by area", "status": "pending" },
        { "step": "Ask 9 reporters for the steps to reproduce", "status": "pending" },
    ]);
    let request = json!({
        "kind": "plan_decision", "title": "Start the triage", "message": "Reporters get a mail for each change.", "risk": "medium",
        "plan": plan, "policyScope": "these 38 issues",
    });
    match actor.request_decision("triage-plan", None, request).await?.is_approved {
        true => actor.stream_text("Done: 6 closed, 32 labelled, 9 questions asked.").await,
        false => actor.stream_text("I did not change any issue.").await,
    }
}

/// The number of steps of the long call.
const SHARDS: u64 = 64;

/// Plays a call of several minutes.
async fn rebuild_index(actor: &mut Actor) -> Result<(), PlayError> {
    start_call(actor, "reindex", "rebuild_index", json!({ "shards": SHARDS, "tokenizer": "icu-2" })).await?;
    for shard in 1..=SHARDS {
        let message = format!("{shard} of {SHARDS} shards");
        let progress = shard as f64 / SHARDS as f64;
        let payload = json!({ "progress": progress, "loaded": shard, "total": SHARDS, "message": message, "status": "running" });
        actor
            .publish(&[json!({ "type": "tool.progress", "toolCallId": "reindex", "audience": "user", "payload": payload })])
            .await?;
        actor.pause(3500).await?;
    }
    end_call(actor, "reindex", json!({ "documents": 4_182_113, "shards": SHARDS }), 224_000).await?;
    actor.stream_text("The new index is in use. Searches in 日本語 find parts of words now.").await
}

/// Plays a run that fails.
async fn fail_benchmark(mut actor: Actor) -> Result<(), PlayError> {
    start_call(&mut actor, "bench", "run_benchmark", json!({ "suite": "start", "runs": 50 })).await?;
    actor.pause(1200).await?;
    let error = json!({ "code": "no_space", "message": "No space left on the runner's disk after 18 of 50 starts." });
    let failed = json!({ "error": error, "durationMs": 78_000 });
    actor.publish(&[json!({ "type": "tool.failed", "toolCallId": "bench", "payload": failed })]).await?;
    report_use(&mut actor, [1800, 90], 0.01, 700).await?;
    actor.publish(&[json!({ "type": "run.failed", "payload": { "error": error } })]).await
}
