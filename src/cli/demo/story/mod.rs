//! The story: a team ships the release notes page of Aurora 4.2, and the viewer makes two decisions.
//!
//! ```text
//! coordinator ─┬─ researcher   reads the commits (long tool, failing tool, 5 MB of output), hands off to
//!   demo-N-    ├─ writer       plans, drafts three versions
//!   release    ├─ profiler     dies during its measurements: the server settles its run
//!              ├─ link-watch   runs on a schedule
//!              ├─ translator   runs on another machine, and waits for credentials
//!              ├─ editor       reviews: first requests changes, then approves
//!              └─ publisher    asks the viewer for approval; each answer has its own end of the story
//! ```
//!
//! `errands` plays small sessions beside it, some of which wait for the viewer.
//!
//! An agent with its own work has its own run, in a child session of the coordinator's session. Facts about the team
//! are in the coordinator's run.

mod artifacts;
mod beside;
mod errands;
pub(super) mod facts;
mod lead;
mod publisher;
mod research;
mod review;
mod writer;

pub(super) use errands::{ERRANDS, Errand, play as play_errand};

use super::Context;
use super::actor::{Actor, PlayError};
use super::api::Producer;
use super::control_router::RunIdentity;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The agents whose controls this process claims.
///
/// They include the profiler, whose process has died, and the translator, which is remote: the coordinator claims for
/// them.
pub(super) const AGENTS: &[&str] =
    &["coordinator", "researcher", "writer", "publisher", "link-watch", "editor", "profiler", "translator", errands::AGENT];

/// The first run of the coordinator.
pub(super) const FIRST_RUN: &str = "demo-1-release";

/// The product of the release notes.
const PRODUCT: &str = "Aurora 4.2";
const TEAM: &str = "release-team";

/// The pause between two rounds of the story, in milliseconds at speed 1, and its real minimum.
const ROUND_PAUSE_MS: u64 = 30_000;
const ROUND_PAUSE_MIN: Duration = Duration::from_secs(3);

/// Returns the coordinator's session in this round.
pub(super) fn session(round: u64) -> String {
    format!("demo-{round}")
}

/// Returns the id of a run in a session.
pub(super) fn run(session: &str, name: &str) -> String {
    format!("{session}-{name}")
}

/// Returns whether a run has ended, by the server's summary.
pub(super) fn is_over(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled" | "interrupted"))
}

/// Plays the story once, or repeatedly.
pub(super) async fn play(context: Arc<Context>) {
    for round in 1.. {
        match lead::play_round(&context, &session(round)).await {
            Ok(()) | Err(PlayError::Interrupted(_)) => {}
            Err(PlayError::Rejected(error)) => tracing::warn!(%error, round, "the story failed"),
        }
        if context.is_once {
            return;
        }
        tokio::time::sleep(ROUND_PAUSE_MIN).await;
        context.pause(ROUND_PAUSE_MS).await;
    }
}

/// A working teammate: its own run, and a producer of the coordinator's run.
struct Teammate {
    actor: Actor,
    /// A further producer of the coordinator's run.
    ///
    /// A run may have several; the server keeps the order of each.
    lead: Producer,
    agent: &'static str,
    task: &'static str,
}

impl Teammate {
    /// Starts a teammate's run in its own session.
    async fn begin(
        context: &Arc<Context>,
        session: &str,
        agent: &'static str,
        name: &str,
        task: &'static str,
    ) -> Result<Self, PlayError> {
        let own = format!("{session}-{agent}");
        let lead = lead_producer(context, session);
        let parent = Some((run(session, "release"), session.to_owned()));
        let identity = RunIdentity { run: run(session, name), session: own, agent: agent.into(), parent };
        let actor = Actor::begin(context, identity, json!({ "parentRunId": run(session, "release"), "taskId": task })).await?;
        Ok(Self { actor, lead, agent, task })
    }

    /// Publishes facts in the coordinator's run.
    async fn publish_to_lead(&mut self, facts: &[Value]) -> Result<(), PlayError> {
        Ok(self.lead.publish(facts).await?)
    }

    /// Publishes the teammate's status in the coordinator's run.
    async fn report_status(&mut self, status: &str, message: &str) -> Result<(), PlayError> {
        let fact = facts::agent_status(self.agent, status, message);
        self.publish_to_lead(&[fact]).await
    }

    /// Ends the run, and reports the result or the interruption.
    async fn end(mut self, played: Result<Value, PlayError>) -> Result<(), PlayError> {
        let (agent, task, run) = (self.agent, self.task, self.actor.identity.run.clone());
        match self.actor.end(played).await {
            Ok(report) => Ok(self.lead.publish(&facts::completed(agent, task, report)).await?),
            Err(PlayError::Interrupted(control)) => {
                self.lead.publish(&facts::stopped(agent, task, &run)).await?;
                Err(PlayError::Interrupted(control))
            }
            Err(rejected) => Err(rejected),
        }
    }
}

/// Creates a further producer of the coordinator's run.
fn lead_producer(context: &Arc<Context>, session: &str) -> Producer {
    context.api.producer(&run(session, "release"), &[("sessionId", session)])
}
