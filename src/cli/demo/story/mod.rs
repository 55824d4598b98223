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
//! Small sessions play once beside it, the errands. Some of them wait for the viewer, one works for minutes, and one
//! fails. They give the list of sessions and the inbox more than one entry.
//!
//! An agent with its own work has its own run, in a child session of the coordinator's session. Facts about the team
//! are in the coordinator's run.
//!
//! What each agent does is data: `scenes/*.ndjson`, one step per line. `scene` defines the steps, `variables` what
//! `{name}` stands for in them, and `player` carries them out.

mod player;
mod scene;
mod variables;

pub use player::Player;
pub use scene::{SceneError, Scenes};
pub use variables::Variables;

use super::{Context, visitor};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The agents whose controls this process claims.
///
/// They include the profiler, whose process has died, and the translator, which is remote: the coordinator claims for
/// them.
pub const AGENTS: &[&str] =
    &["coordinator", "researcher", "writer", "publisher", "link-watch", "editor", "profiler", "translator", "operator"];

/// The first run of the coordinator.
pub const FIRST_RUN: &str = "demo-1-release";

/// The errands: their scenes, sessions and runs.
pub const ERRANDS: [[&str; 3]; 5] = [
    ["errand-benchmark", "demo-benchmark", "demo-nightly-benchmark"],
    ["errand-index", "demo-index", "demo-upgrade-index"],
    ["errand-triage", "demo-triage", "demo-triage-issues"],
    ["errand-digest", "demo-digest", "demo-support-digest"],
    ["errand-keys", "demo-keys", "demo-rotate-keys"],
];

/// The pause between two rounds of the story, in milliseconds at speed 1, and its real minimum.
const ROUND_PAUSE_MS: u64 = 30_000;
const ROUND_PAUSE_MIN: Duration = Duration::from_secs(3);

/// Returns whether a run has ended, by the server's summary.
pub fn is_over(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled" | "interrupted"))
}

/// Plays the story once, or repeatedly.
pub async fn play(context: Arc<Context>) {
    for round in 1.. {
        let session = format!("demo-{round}");
        play_scene(&context, "coordinator", &session, &format!("{session}-release")).await;
        if context.is_once {
            return;
        }
        tokio::time::sleep(ROUND_PAUSE_MIN).await;
        context.pause(ROUND_PAUSE_MS).await;
    }
}

/// Plays one errand to its end.
pub async fn play_errand(context: Arc<Context>, [scene, session, run]: [&'static str; 3]) {
    play_scene(&context, scene, session, run).await;
}

/// Plays a scene to its end, with the decisions of the viewer if the demo is unattended.
async fn play_scene(context: &Arc<Context>, scene: &'static str, session: &str, run: &str) {
    let mut variables = Variables::default();
    variables.set("session", session.into());
    variables.set("run", run.into());
    let player = Player::new(context, context.api.producer(run, &[("sessionId", session)]), variables);
    tokio::select! {
        () = player.play_logged(scene) => {}
        () = visitor::decide(context, session), if context.is_unattended => {}
    }
}
