//! The coordinator: accepts the viewer's task, forms the team, asks the viewer, and reports the result.

use super::facts::{self, MEMBERS, work_item};
use super::{Context, PRODUCT, TEAM, artifacts, beside, publisher, research, review, run, writer};
use crate::cli::demo::actor::{Actor, PlayError};
use crate::cli::demo::control_router::RunIdentity;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Plays the story once, in this session.
pub(super) async fn play_round(context: &Arc<Context>, session: &str) -> Result<(), PlayError> {
    let title = format!("Release notes of {PRODUCT}");
    let mut shell = context.api.session_producer(session);
    let opened = json!({ "title": title, "pinned": true, "preview": "A page about what is new." });
    let opened = json!({ "type": "session.opened", "payload": opened });
    shell.publish(&[opened]).await?;
    let identity =
        RunIdentity { run: run(session, "release"), session: session.into(), agent: "coordinator".into(), parent: None };
    let mut actor = Actor::begin(context, identity, json!({ "title": title })).await?;
    let mut team = JoinSet::new();
    let played = play(&mut actor, session, &mut team).await;
    if let Err(PlayError::Interrupted(_)) = &played {
        // An interrupted coordinator cancels its team, and ends after it.
        context.router.cancel_team(&actor.identity.run);
        while team.join_next().await.is_some() {}
        actor.publish(&[team_status("done", 0)]).await?;
    }
    actor.end(played).await?;
    shell.publish(&[json!({ "type": "session.updated", "payload": { "status": "done", "unread": 1 } })]).await?;
    Ok(())
}

type Team = JoinSet<Result<(), PlayError>>;

async fn play(actor: &mut Actor, session: &str, team: &mut Team) -> Result<(), PlayError> {
    accept(actor).await?;
    gather(actor, session).await?;
    let context = &actor.context.clone();
    // The coordinator waits for these agents only at the end.
    team.spawn(beside::profile(context.clone(), session.to_owned()));
    team.spawn(beside::watch_links(context.clone(), session.to_owned()));
    team.spawn(beside::translate(context.clone(), session.to_owned()));
    let mut drafting: Team = JoinSet::new();
    drafting.spawn(research::research(context.clone(), session.to_owned()));
    drafting.spawn(writer::outline(context.clone(), session.to_owned()));
    actor.publish(&[team_status("active", 3)]).await?;
    actor
        .publish_and_pause(
            json!({ "type": "run.status", "payload": { "status": "acting", "message": "Three teammates are working." } }),
        )
        .await?;
    let stopped = actor.wait_for(count_stopped(&mut drafting)).await;
    if stopped.is_err() {
        actor.context.router.cancel_team(&actor.identity.run);
        while drafting.join_next().await.is_some() {}
    }
    let stopped = stopped?;
    merge(actor, stopped).await?;
    let headline = ask_for_headline(actor).await?;
    revise(actor, &headline).await?;
    compact(actor).await?;
    let is_public = publisher::may_publish(actor).await?.is_approved;
    if is_public {
        let (context, session) = (context.clone(), session.to_owned());
        team.spawn(async move { publisher::publish(&context, &session).await });
    } else {
        publisher::keep_as_draft(context, session).await?;
    }
    actor.wait_for(count_stopped(team)).await?;
    finish(actor, &headline, is_public, stopped == 0).await
}

/// Waits for all tasks, and returns the number of those that were stopped or failed.
async fn count_stopped(team: &mut Team) -> usize {
    let mut stopped = 0;
    while let Some(ended) = team.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(PlayError::Rejected(error))) => {
                tracing::warn!(%error, "a teammate of the story failed");
                stopped += 1;
            }
            Ok(Err(PlayError::Interrupted(_))) | Err(_) => stopped += 1,
        }
    }
    stopped
}

const THOUGHT: &str = "The page has to be correct before it is pretty. Research and outline can run in parallel; the review \
                       comes after both, and nothing goes public without approval. 🧭 ";

const PLAN: &str = "1. Research and outline in parallel.\n\
                    2. Ask the viewer for the headline.\n\
                    3. Review until it passes.\n\
                    4. Ask for approval, then publish.\n";

const PROMISE: &str = "I have put a small team on it: Rui reads the commits, Wanda drafts, Edith reviews, and Pia publishes. \
                       I will ask you two questions. ✅";

/// Accepts the task and plans the work.
async fn accept(actor: &mut Actor) -> Result<(), PlayError> {
    let task = format!("Please ship the {PRODUCT} release notes page today. Ask me before anything goes public.");
    actor
        .publish_and_pause(json!({ "type": "text.final", "messageId": "task", "payload": { "role": "user", "text": task } }))
        .await?;
    for (status, message) in [("routing", "Choosing the team."), ("preparing", "Reading the team's memory.")] {
        actor.publish_and_pause(json!({ "type": "run.status", "payload": { "status": status, "message": message } })).await?;
    }
    actor.publish(&[budget(31_200, &["the profiler's figures"]), memory(), allowed(), checklist()]).await?;
    let slow = json!({ "kind": "slow_tracker", "message": "The issue tracker took 4 s to respond.", "severity": "warning" });
    actor
        .publish(&[
            facts::model_call("coordinator", "scripted-large", [31_200, 410], 0.32, 1800),
            json!({ "type": "diagnostic.changed", "payload": slow }),
        ])
        .await?;
    actor.stream_reasoning(THOUGHT).await?;
    actor.stream_plan(PLAN).await?;
    actor.stream_text(PROMISE).await
}

/// Builds the application state that the coordinator maintains: the checklist of the release.
fn checklist() -> Value {
    let state = json!({ "release": PRODUCT, "checklist": { "researched": false, "reviewed": false, "public": false } });
    json!({ "type": "state.snapshot", "payload": { "state": state } })
}

/// Builds the patch that checks off one item of the checklist.
fn check_off(step: &str) -> Value {
    let patch = json!([{ "op": "replace", "path": format!("/checklist/{step}"), "value": true }]);
    json!({ "type": "state.delta", "payload": { "patch": patch } })
}

/// Builds the fact about the use of the model's context, and the content that it lacks.
fn budget(used: u64, missing: &[&str]) -> Value {
    let budget = json!({ "usedTokens": used, "maxTokens": 200_000 });
    json!({ "type": "context.changed", "payload": { "contextId": "budget", "kind": "budget", "budget": budget, "missing": missing } })
}

fn memory() -> Value {
    let refs =
        json!([{ "rel": "memory", "href": "memory/release-team/style" }, { "rel": "memory", "href": "memory/release-team/4.1" }]);
    let payload = json!({
        "contextId": "team-memory", "kind": "team_memory", "scope": "team", "title": "Team memory",
        "summary": "Plain words, no superlatives, a source for each figure.", "precedence": ["repository", "team", "session"],
    });
    json!({ "type": "context.changed", "scope": "team", "refs": refs, "payload": payload })
}

fn allowed() -> Value {
    let payload =
        json!({ "mode": "ask", "sandbox": "workspace", "network": "allow-list", "risk": "medium", "retention": "30 days" });
    json!({ "type": "permission.changed", "payload": payload })
}

fn team_status(phase: &str, active: u32) -> Value {
    let queued = if phase == "forming" { 5 } else { 0 };
    json!({
        "type": "team.changed", "topology": "coordinator_team",
        "payload": {
            "teamId": TEAM, "teamName": "Release team", "teamPhase": phase, "teamParallelBudget": 3, "teamActiveCount": active,
            "teamQueuedCount": queued, "coordinator": "coordinator", "memoryRefs": ["memory/release-team/style"],
            "policy": { "approval": "before anything public", "budgetUsd": 2.5 },
        },
    })
}

/// Forms the team and its board.
async fn gather(actor: &mut Actor, session: &str) -> Result<(), PlayError> {
    actor.publish_and_pause(team_status("forming", 0)).await?;
    for member in MEMBERS {
        let mut own = actor.context.api.session_producer(&format!("{session}-{}", member.agent));
        own.publish(&[facts::session_opened(member.name, member.role, session)]).await?;
        actor.publish(&facts::spawned(member, session)).await?;
        actor.pause(250).await?;
    }
    let page = json!([artifacts::PAGE]);
    let board = [
        work_item(
            "research",
            json!({
                "title": "Find what matters to readers", "assignee": "researcher", "status": "assigned", "priority": "high", "dependencies": [],
                "evidenceRefs": ["commit-8f1c2"],
            }),
        ),
        work_item(
            "draft",
            json!({
                "title": "Write the page", "assignee": "writer", "status": "assigned", "priority": "high", "dependencies": ["research"],
                "artifactRefs": page,
            }),
        ),
        work_item(
            "benchmark",
            json!({
                "title": "Measure the start-up time", "assignee": "profiler", "status": "assigned", "priority": "normal", "dependencies": [],
            }),
        ),
        work_item(
            "review",
            json!({
                "title": "Review the page", "assignee": "editor", "status": "blocked", "priority": "high", "dependencies": ["draft"],
                "blocker": "no draft yet", "artifactRefs": page,
            }),
        ),
        work_item(
            "publish",
            json!({
                "title": "Publish the page", "assignee": "publisher", "status": "blocked", "priority": "normal", "dependencies": ["review"],
                "blocker": "the review", "artifactRefs": page,
            }),
        ),
    ];
    for card in board {
        actor.publish_and_pause(card).await?;
    }
    Ok(())
}

/// Merges the results: the researcher hands off to the writer.
async fn merge(actor: &mut Actor, stopped: usize) -> Result<(), PlayError> {
    actor.publish(&[team_status("merging", 1)]).await?;
    if stopped == 0 {
        actor.publish(&[check_off("researched")]).await?;
    } else {
        actor.stream_text("Not everyone could finish. I will continue with what we have, and say so on the page.").await?;
    }
    let handoff = |payload: Value| json!({ "type": "agent.handoff", "taskId": "draft", "topology": "specialist_handoff", "payload": payload });
    let mut transfer = json!({
        "handoffId": "research-to-draft", "from": "researcher", "to": "writer", "status": "handoff_requested",
        "reason": "the facts are complete; now they need words", "resumeTarget": format!("the draft of {}", artifacts::PAGE),
        "memoryBoundary": "the team's memory, not the researcher's notes", "contextBoundary": "three changes, each with its source",
    });
    actor.publish_and_pause(handoff(transfer.clone())).await?;
    actor.pause(900).await?;
    transfer["status"] = "accepted".into();
    transfer["acceptedAt"] = (actor.context.environment.now)().to_string().into();
    actor
        .publish(&[
            handoff(transfer),
            facts::agent_status("writer", "running", "writes the page"),
            work_item("draft", json!({ "status": "running", "progress": 0.5 })),
        ])
        .await?;
    for fact in artifacts::created() {
        actor.publish_and_pause(fact).await?;
    }
    show_chart(actor).await
}

/// Publishes a message with the chart as an image.
async fn show_chart(actor: &mut Actor) -> Result<(), PlayError> {
    let (chart, message) = (artifacts::CHART, actor.message());
    let text = "The research is complete. The change that readers will notice first:";
    let part = |name: &str, payload: Value| json!({ "type": "text.final", "messageId": message, "partId": format!("{message}-{name}"), "payload": payload });
    let image = json!({
        "kind": "image", "mediaType": chart.media_type, "name": chart.title, "alt": chart.summary, "url": chart.body(),
        "artifactRefs": [chart.id],
    });
    actor.publish(&[part("text", json!({ "text": text })), part("chart", image)]).await?;
    actor.pause(600).await
}

/// Requests the viewer's first decision, a question with a schema. The run waits for the answer.
async fn ask_for_headline(actor: &mut Actor) -> Result<String, PlayError> {
    let schema = json!({
        "type": "object", "title": "Top of the page", "required": ["headline", "readers"],
        "properties": {
            "headline": {
                "type": "string", "title": "Headline", "minLength": 1, "maxLength": 80,
                "default": "Aurora 4.2: ready before your coffee ☕",
            },
            "readers": {
                "type": "string", "title": "Audience", "enum": ["everyone", "developers", "administrators"], "default": "everyone",
            },
            "breaking": { "type": "boolean", "title": "Start with breaking changes", "default": false },
        },
    });
    let message = "Which headline should the page have, and who is it for?";
    let request = json!({ "kind": "structured_input", "message": message, "schema": schema, "risk": "low" });
    let decision = actor.request_decision("headline", None, request).await?;
    let given = decision.value["headline"].as_str().or(decision.value.as_str());
    let headline = given.filter(|text| decision.is_approved && !text.is_empty());
    Ok(headline.map_or_else(|| format!("{PRODUCT}: release notes"), str::to_owned))
}

/// Publishes two more versions with a review of each.
async fn revise(actor: &mut Actor, headline: &str) -> Result<(), PlayError> {
    let second = artifacts::revised(
        2,
        "Adds your headline, and describes the three changes in full.",
        headline,
        "the headline, and figures",
    );
    for fact in second {
        actor.publish_and_pause(fact).await?;
    }
    review::review(
        actor,
        2,
        &review::CHANGES,
        "“38% faster” — on which machine? Users of API v1 also need a migration path with a date. Otherwise: schön.",
    )
    .await?;
    actor.publish(&[facts::agent_status("writer", "running", "works in the review comments")]).await?;
    let third = artifacts::revised(
        3,
        "Explains how start-up was measured, and how to migrate from API v1.",
        headline,
        "a footnote, and a migration path",
    );
    for fact in third {
        actor.publish_and_pause(fact).await?;
    }
    review::review(actor, 3, &review::APPROVED, "Now every claim has its source. 👍").await?;
    let done = [
        facts::agent_status("writer", "idle", "the page passed the review"),
        work_item("draft", json!({ "status": "done", "progress": 1, "evidenceRefs": ["review-notes-3"] })),
        work_item("review", json!({ "status": "done", "progress": 1 })),
        check_off("reviewed"),
    ];
    actor.publish(&done).await
}

/// Compacts the full context: a summary replaces its beginning, and the page shows the boundary.
async fn compact(actor: &mut Actor) -> Result<(), PlayError> {
    actor.publish(&[budget(184_000, &[])]).await?;
    let started = json!({ "compactionId": "after-review", "reason": "184,000 of 200,000 tokens are used", "preTokens": 184_000 });
    actor.publish_and_pause(json!({ "type": "context.compaction.started", "payload": started })).await?;
    actor.pause(1500).await?;
    let completed = json!({
        "compactionId": "after-review", "postTokens": 22_400, "summary": "The task, the board, the verdicts and version 3 are kept.",
        "resumeTarget": "publish", "keptRefs": [artifacts::PAGE, "review-notes-3"],
    });
    actor.publish(&[json!({ "type": "context.compaction.completed", "payload": completed }), budget(22_400, &[])]).await
}

/// Publishes the final answer, with the successes and the failures.
async fn finish(actor: &mut Actor, headline: &str, is_public: bool, is_complete: bool) -> Result<(), PlayError> {
    actor
        .publish(&[facts::model_call("coordinator", "scripted-large", [22_400, 640], 0.24, 2600), team_status("done", 0)])
        .await?;
    let end = if is_public {
        "is live: `docs.example/releases/4.2`."
    } else {
        "is finished and, as you decided, not public: version 3 is kept as a draft."
    };
    if is_public {
        actor.publish(&[check_off("public")]).await?;
    }
    let proof = if is_complete {
        "Every claim has its source. ✨"
    } else {
        "Not everyone could finish, so please read it again yourself."
    };
    let text = format!(
        "## “{headline}”\n\nThe page {end} {proof}\n\n\
         | Part | By | Result |\n| --- | --- | --- |\n\
         | Research | Rui | Three changes, each with its source |\n\
         | Page | Wanda | Version 3, after two reviews |\n\
         | Review | Edith | Approved |\n\n\
         Readers of API v1 find the way to API v2 with one command:\n\n\
         ```sh\npython migrate.py --dry-run src/*.py\n```\n\n\
         Two things did not work out:\n\n\
         * **The profiler** stopped responding, so the page uses the figures from the commits.\n\
         * **The translation** into 日本語 is waiting for the translator's credentials.\n"
    );
    actor.stream_text(&text).await
}
