//! The coordinator: takes the viewer's task, gathers a team, asks, and tells how it came out. Its run is the one to look at.

use super::facts::{self, MEMBERS, item};
use super::{PRODUCT, Stage, TEAM, beside, publisher, research, review, run, writer};
use crate::cli::demo::actor::{Actor, Ended, Place};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Tells the story once, in this session.
pub(super) async fn lead(stage: &Arc<Stage>, session: &str) -> Result<(), Ended> {
    let title = format!("Release notes of {PRODUCT}");
    let mut shell = stage.api.session_producer(session);
    let opened = json!({ "title": title, "pinned": true, "preview": "A page that says what is new." });
    let opened = json!({ "type": "session.opened", "payload": opened });
    shell.publish(&[opened]).await?;
    let place = Place { run: run(session, "release"), session: session.into(), agent: "coordinator".into(), parent: None };
    let mut actor = Actor::begin(stage, place, json!({ "title": title })).await?;
    let mut team = JoinSet::new();
    let played = play(&mut actor, session, &mut team).await;
    if let Err(Ended::Interrupted(_)) = &played {
        // Who is interrupted takes his team along, and ends after them.
        stage.desk.dismiss(&actor.place.run);
        while team.join_next().await.is_some() {}
        actor.publish(&[team_stands("done", 0)]).await?;
    }
    actor.end(played).await?;
    shell.publish(&[json!({ "type": "session.updated", "payload": { "status": "done", "unread": 1 } })]).await?;
    Ok(())
}

type Team = JoinSet<Result<(), Ended>>;

async fn play(actor: &mut Actor, session: &str, team: &mut Team) -> Result<(), Ended> {
    accept(actor).await?;
    gather(actor, session).await?;
    let stage = &actor.stage.clone();
    // Those that nobody waits for before the end.
    team.spawn(beside::profile(stage.clone(), session.to_owned()));
    team.spawn(beside::watch_links(stage.clone(), session.to_owned()));
    team.spawn(beside::translate(stage.clone(), session.to_owned()));
    let mut drafting: Team = JoinSet::new();
    drafting.spawn(research::research(stage.clone(), session.to_owned()));
    drafting.spawn(writer::outline(stage.clone(), session.to_owned()));
    actor.publish(&[team_stands("active", 3)]).await?;
    actor
        .say(json!({ "type": "run.status", "payload": { "status": "acting", "message": "Three teammates are at work." } }))
        .await?;
    let came = actor.wait(all(&mut drafting)).await;
    if came.is_err() {
        actor.stage.desk.dismiss(&actor.place.run);
        while drafting.join_next().await.is_some() {}
    }
    let stopped = came?;
    merge(actor, stopped).await?;
    let headline = ask_for_headline(actor).await?;
    revise(actor, &headline).await?;
    compact(actor).await?;
    let is_public = publisher::may_publish(actor).await?.is_yes;
    if is_public {
        let (stage, session) = (stage.clone(), session.to_owned());
        team.spawn(async move { publisher::publish(&stage, &session).await });
    } else {
        publisher::keep_as_draft(stage, session).await?;
    }
    actor.wait(all(team)).await?;
    finish(actor, &headline, is_public, stopped == 0).await
}

/// Waits for all of them; how many were stopped, or did not come back.
async fn all(team: &mut Team) -> usize {
    let mut stopped = 0;
    while let Some(ended) = team.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(Ended::Refused(error))) => {
                tracing::warn!(%error, "a teammate of the story broke off");
                stopped += 1;
            }
            Ok(Err(Ended::Interrupted(_))) | Err(_) => stopped += 1,
        }
    }
    stopped
}

const THOUGHT: &str = "The page has to be true before it is pretty. Research and outline can go side by side; the review \
                       comes after both, and nothing goes public without a yes. 🧭 ";

const PLAN: &str = "1. Research and outline, side by side.\n\
                    2. One question to the viewer: the headline.\n\
                    3. Review, until it passes.\n\
                    4. Ask, then publish.\n";

const PROMISE: &str = "I put a small team on it — Rui reads the commits, Wanda drafts, Edith reviews, Pia publishes. \
                       I will ask you twice. ✅";

/// The task comes in, and the coordinator makes up its mind.
async fn accept(actor: &mut Actor) -> Result<(), Ended> {
    let task = format!("Please ship the release notes page of {PRODUCT} today. Ask me before anything becomes public.");
    actor.say(json!({ "type": "text.final", "messageId": "task", "payload": { "role": "user", "text": task } })).await?;
    for (status, message) in [("routing", "Choosing who works on it."), ("preparing", "Reading what the team remembers.")] {
        actor.say(json!({ "type": "run.status", "payload": { "status": status, "message": message } })).await?;
    }
    actor.publish(&[budget(31_200, &["the figures of the profiler"]), memory(), allowed(), checklist()]).await?;
    let metric =
        json!({ "model": "scripted-large", "durationMs": 1800, "usage": { "inputTokens": 31_200, "outputTokens": 410 } });
    let slow = json!({ "kind": "slow_tracker", "message": "the issue tracker answers after 4 s", "severity": "warning" });
    actor
        .publish(&[
            json!({ "type": "metric.changed", "payload": metric }),
            json!({ "type": "diagnostic.changed", "payload": slow }),
        ])
        .await?;
    actor.think(THOUGHT).await?;
    actor.plan(PLAN).await?;
    actor.speak(PROMISE).await
}

/// The application's own state, which the coordinator keeps: what a release needs.
fn checklist() -> Value {
    let state = json!({ "release": PRODUCT, "checklist": { "researched": false, "reviewed": false, "public": false } });
    json!({ "type": "state.snapshot", "payload": { "state": state } })
}

/// One box of it is ticked.
fn ticked(step: &str) -> Value {
    let patch = json!([{ "op": "replace", "path": format!("/checklist/{step}"), "value": true }]);
    json!({ "type": "state.delta", "payload": { "patch": patch } })
}

/// What fills the model's context, and what is missing in it.
fn budget(used: u64, missing: &[&str]) -> Value {
    let budget = json!({ "usedTokens": used, "maxTokens": 200_000 });
    json!({ "type": "context.changed", "payload": { "contextId": "budget", "kind": "budget", "budget": budget, "missing": missing } })
}

fn memory() -> Value {
    let refs =
        json!([{ "rel": "memory", "href": "memory/release-team/style" }, { "rel": "memory", "href": "memory/release-team/4.1" }]);
    let payload = json!({
        "contextId": "team-memory", "kind": "team_memory", "scope": "team", "title": "What the team remembers",
        "summary": "Plain words, no superlatives, a source for each figure.", "precedence": ["repository", "team", "session"],
    });
    json!({ "type": "context.changed", "scope": "team", "refs": refs, "payload": payload })
}

fn allowed() -> Value {
    let payload =
        json!({ "mode": "ask", "sandbox": "workspace", "network": "allow-list", "risk": "medium", "retention": "30 days" });
    json!({ "type": "permission.changed", "payload": payload })
}

fn team_stands(phase: &str, active: u32) -> Value {
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

/// The team and its board.
async fn gather(actor: &mut Actor, session: &str) -> Result<(), Ended> {
    actor.say(team_stands("forming", 0)).await?;
    for member in MEMBERS {
        let mut own = actor.stage.api.session_producer(&format!("{session}-{}", member.agent));
        own.publish(&[facts::opened(member.name, member.role, session)]).await?;
        actor.publish(&facts::spawned(member, session)).await?;
        actor.rest(250).await?;
    }
    let page = json!([writer::PAGE]);
    let board = [
        item(
            "research",
            json!({
                "title": "Find what matters to readers", "assignee": "researcher", "status": "assigned", "priority": "high", "dependencies": [],
                "evidenceRefs": ["commit-8f1c2"],
            }),
        ),
        item(
            "draft",
            json!({
                "title": "Write the page", "assignee": "writer", "status": "assigned", "priority": "high", "dependencies": ["research"],
                "artifactRefs": page,
            }),
        ),
        item(
            "benchmark",
            json!({
                "title": "Measure the start", "assignee": "profiler", "status": "assigned", "priority": "normal", "dependencies": [],
            }),
        ),
        item(
            "review",
            json!({
                "title": "Review the page", "assignee": "editor", "status": "blocked", "priority": "high", "dependencies": ["draft"],
                "blocker": "there is no draft yet", "artifactRefs": page,
            }),
        ),
        item(
            "publish",
            json!({
                "title": "Publish the page", "assignee": "publisher", "status": "blocked", "priority": "normal", "dependencies": ["review"],
                "blocker": "the review", "artifactRefs": page,
            }),
        ),
    ];
    for card in board {
        actor.say(card).await?;
    }
    Ok(())
}

/// The results come together: the researcher hands over to the writer.
async fn merge(actor: &mut Actor, stopped: usize) -> Result<(), Ended> {
    actor.publish(&[team_stands("merging", 1)]).await?;
    if stopped == 0 {
        actor.publish(&[ticked("researched")]).await?;
    } else {
        actor.speak("Not everybody could finish; I go on with what is there, and say so on the page.").await?;
    }
    let handoff =
        |told: Value| json!({ "type": "agent.handoff", "taskId": "draft", "topology": "specialist_handoff", "payload": told });
    let mut transfer = json!({
        "handoffId": "research-to-draft", "from": "researcher", "to": "writer", "status": "handoff_requested",
        "reason": "the facts are there; now they need words", "resumeTarget": format!("the draft of {}", writer::PAGE),
        "memoryBoundary": "the team's memory, not the researcher's notes", "contextBoundary": "three changes, each with its source",
    });
    actor.say(handoff(transfer.clone())).await?;
    actor.rest(900).await?;
    transfer["status"] = "accepted".into();
    transfer["acceptedAt"] = (actor.stage.environment.now)().to_string().into();
    actor
        .publish(&[
            handoff(transfer),
            facts::stands("writer", "running", "writes the page"),
            item("draft", json!({ "status": "running", "progress": 0.5 })),
        ])
        .await?;
    for fact in writer::created() {
        actor.say(fact).await?;
    }
    Ok(())
}

/// The viewer's first decision: a question with a schema. Until somebody answers, the run waits.
async fn ask_for_headline(actor: &mut Actor) -> Result<String, Ended> {
    let schema = json!({
        "type": "object", "title": "The head of the page", "required": ["headline", "readers"],
        "properties": {
            "headline": {
                "type": "string", "title": "Headline", "minLength": 1, "maxLength": 80,
                "default": "Aurora 4.2: ready before your coffee ☕",
            },
            "readers": {
                "type": "string", "title": "For whom", "enum": ["everybody", "developers", "administrators"], "default": "everybody",
            },
            "breaking": { "type": "boolean", "title": "Begin with what breaks", "default": false },
        },
    });
    let message = "What shall stand at the head of the page, and for whom is it?";
    let what = json!({ "kind": "structured_input", "message": message, "schema": schema, "risk": "low" });
    let decision = actor.ask("headline", None, what).await?;
    let said = decision.value["headline"].as_str().or(decision.value.as_str()).filter(|said| decision.is_yes && !said.is_empty());
    Ok(said.map_or_else(|| format!("{PRODUCT}: release notes"), str::to_owned))
}

/// Two more versions, and a review of each.
async fn revise(actor: &mut Actor, headline: &str) -> Result<(), Ended> {
    let second = writer::revised(
        2,
        "Your headline, and the three changes in full.",
        &format!("# {headline}\n\nStart-up takes 0.81 s instead of 1.31 s."),
        "the head, and figures",
    );
    for fact in second {
        actor.say(fact).await?;
    }
    review::review(
        actor,
        2,
        &review::CHANGES,
        "“38 % faster” — on what machine? And who uses API v1 needs a way out, with a date. Otherwise: schön.",
    )
    .await?;
    actor.publish(&[facts::stands("writer", "running", "takes in the review")]).await?;
    let third = writer::revised(
        3,
        "Says how start-up was measured, and what to do about API v1.",
        &format!("# {headline}\n\nMeasured on the reference machine, ten cold starts. API v1 goes on 1 March."),
        "a footnote, and a way out",
    );
    for fact in third {
        actor.say(fact).await?;
    }
    review::review(actor, 3, &review::APPROVED, "Now every claim has its source. 👍").await?;
    let done = [
        facts::stands("writer", "idle", "the page passed"),
        item("draft", json!({ "status": "done", "progress": 1, "evidenceRefs": ["review-notes-3"] })),
        item("review", json!({ "status": "done", "progress": 1 })),
        ticked("reviewed"),
    ];
    actor.publish(&done).await
}

/// The context is full: its beginning becomes a summary, and everybody can see where.
async fn compact(actor: &mut Actor) -> Result<(), Ended> {
    actor.publish(&[budget(184_000, &[])]).await?;
    let started = json!({ "compactionId": "after-review", "reason": "184,000 of 200,000 tokens are used", "preTokens": 184_000 });
    actor.say(json!({ "type": "context.compaction.started", "payload": started })).await?;
    actor.rest(1500).await?;
    let completed = json!({
        "compactionId": "after-review", "postTokens": 22_400, "summary": "The task, the board, the verdicts and version 3 are kept.",
        "resumeTarget": "publish", "keptRefs": [writer::PAGE, "review-notes-3"],
    });
    actor.publish(&[json!({ "type": "context.compaction.completed", "payload": completed }), budget(22_400, &[])]).await
}

/// The answer: what came of it, and what did not.
async fn finish(actor: &mut Actor, headline: &str, is_public: bool, is_complete: bool) -> Result<(), Ended> {
    let metric =
        json!({ "model": "scripted-large", "durationMs": 2600, "usage": { "inputTokens": 22_400, "outputTokens": 640 } });
    actor.publish(&[json!({ "type": "metric.changed", "payload": metric }), team_stands("done", 0)]).await?;
    let end = if is_public {
        "is public: `docs.example/releases/4.2`."
    } else {
        "is finished and, as you wished, not public: version 3 is kept as a draft."
    };
    if is_public {
        actor.publish(&[ticked("public")]).await?;
    }
    let proof = if is_complete {
        "Every claim has its source. ✨"
    } else {
        "Not everybody was let finish, so read it once more yourself."
    };
    let text = format!(
        "“{headline}” {end} {proof}\n\nTwo things did not work out:\n\n\
         * **The profiler** was not heard of any more, so the page names the figures of the commits.\n\
         * **The translation** into 日本語 waits until somebody lets the translator in.\n"
    );
    actor.speak(&text).await
}
