//! The story: a small team ships the release notes page of Aurora 4.2, and the viewer has two things to decide.
//!
//! ```text
//! coordinator ─┬─ researcher   reads the commits (long tool, failing tool, 5 MB of output), hands over to
//!   demo-N-    ├─ writer       plans, drafts three versions
//!   release    ├─ profiler     dies in the middle of its measurements: the server settles its run
//!              ├─ link-watch   wakes up by its schedule
//!              ├─ translator   on another machine, and not let in yet
//!              ├─ editor       reviews: changes requested, then passed
//!              └─ publisher    asks the viewer; yes and no are two ends of the story
//! ```
//!
//! Whoever has work of its own has a run of its own, in a session that is a child of the coordinator's; what concerns the team is
//! told in the coordinator's run.

mod beside;
pub(super) mod facts;
mod lead;
mod publisher;
mod research;
mod review;
mod writer;

use super::Stage;
use super::actor::{Actor, Ended, Place};
use super::api::Producer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Everybody whose controls are taken here. For those who are gone or elsewhere, the profiler and the translator, their
/// coordinator's process takes them.
pub(super) const AGENTS: &[&str] =
    &["coordinator", "researcher", "writer", "publisher", "link-watch", "editor", "profiler", "translator"];

/// The run to look at first.
pub(super) const FIRST_RUN: &str = "demo-1-release";

/// What is shipped.
const PRODUCT: &str = "Aurora 4.2";
const TEAM: &str = "release-team";

/// Between two tellings, in milliseconds of the story, and at least.
const INTERMISSION: u64 = 30_000;
const INTERMISSION_MIN: Duration = Duration::from_secs(3);

/// The session of the nth telling.
pub(super) fn session(round: u64) -> String {
    format!("demo-{round}")
}

/// A run of a telling.
pub(super) fn run(session: &str, name: &str) -> String {
    format!("{session}-{name}")
}

/// Whether a run, as the server describes it, has ended.
pub(super) fn is_over(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled" | "interrupted"))
}

/// Tells the story: once, or again and again.
pub(super) async fn tell(stage: Arc<Stage>) {
    for round in 1.. {
        match lead::lead(&stage, &session(round)).await {
            Ok(()) | Err(Ended::Interrupted(_)) => {}
            Err(Ended::Refused(error)) => tracing::warn!(%error, round, "the story broke off"),
        }
        if stage.is_once {
            return;
        }
        tokio::time::sleep(INTERMISSION_MIN).await;
        stage.pause(INTERMISSION).await;
    }
}

/// A teammate at work: its own run, and its word in the coordinator's.
struct Teammate {
    actor: Actor,
    /// A second producer of the coordinator's run: those of one run may be several, and are never reordered.
    lead: Producer,
    agent: &'static str,
    task: &'static str,
}

impl Teammate {
    /// Starts a teammate's run, in a session of its own.
    async fn begin(
        stage: &Arc<Stage>,
        session: &str,
        agent: &'static str,
        name: &str,
        task: &'static str,
    ) -> Result<Self, Ended> {
        let own = format!("{session}-{agent}");
        let lead = lead_word(stage, session);
        let parent = Some((run(session, "release"), session.to_owned()));
        let place = Place { run: run(session, name), session: own, agent: agent.into(), parent };
        let actor = Actor::begin(stage, place, json!({ "parentRunId": run(session, "release"), "taskId": task })).await?;
        Ok(Self { actor, lead, agent, task })
    }

    /// Says something in the coordinator's run.
    async fn tell(&mut self, facts: &[Value]) -> Result<(), Ended> {
        Ok(self.lead.publish(facts).await?)
    }

    /// Says there how it stands.
    async fn stand(&mut self, status: &str, message: &str) -> Result<(), Ended> {
        let fact = facts::stands(self.agent, status, message);
        self.tell(&[fact]).await
    }

    /// Ends its run, and reports: what came of it, or that somebody stopped it.
    async fn end(mut self, played: Result<Value, Ended>) -> Result<(), Ended> {
        let (agent, task, run) = (self.agent, self.task, self.actor.place.run.clone());
        match self.actor.end(played).await {
            Ok(report) => Ok(self.lead.publish(&facts::completed(agent, task, report)).await?),
            Err(Ended::Interrupted(control)) => {
                self.lead.publish(&facts::stopped(agent, task, &run)).await?;
                Err(Ended::Interrupted(control))
            }
            Err(refused) => Err(refused),
        }
    }
}

/// A producer of the coordinator's run, for whoever else has something to say there.
fn lead_word(stage: &Arc<Stage>, session: &str) -> Producer {
    stage.api.producer(&run(session, "release"), &[("sessionId", session)])
}
