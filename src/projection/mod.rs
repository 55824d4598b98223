//! The projection: what people look at, folded out of the log.
//!
//! One [`View`] a run and audience. It takes envelopes as that audience gets them, in order, and keeps *activities*: messages,
//! tool calls, approvals, teammates … each a JSON content that readers hold a copy of. What an envelope changes comes out as
//! snapshots of what is new and patches of what is not, made in the same stroke as the change ([`stage`]).
//!
//! It is a pure fold: the same envelopes for the same audience give the same activities and the same patches. No clock, no
//! randomness, no I/O. The filter stands before it, so a fact that gives an audience nothing can change nothing that it sees.
//! A view may be saved anywhere and restored: what follows is as if it had never been away.
//!
//! One file an activity, one row in [`PROJECTIONS`].

mod action;
mod agent;
mod artifact;
mod carry;
mod context;
mod custom;
mod diagnostics;
mod lifecycle;
mod message;
mod metrics;
mod patch;
mod queue;
pub mod retention;
mod review;
mod run;
pub mod schema;
pub mod seen;
mod session;
pub mod stage;
mod state;
mod task;
mod team;
mod thought;
mod tool_call;

use crate::log::LogId;
use crate::model::{AgentId, Audience, EventType, Sequence};
use crate::source::ledger::RunState;
use lifecycle::Ends;
use seen::Seen;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage::{Activity, Stage, Touch};

/// How one activity type comes about.
pub struct Projection {
    /// `activityType` on the wire; `custom` stands for those that sources name.
    pub kind: &'static str,
    /// What an envelope does to activities of this type. Asked for every envelope; most do nothing.
    fold: fn(&Seen, &mut Scene),
    /// Closes what is open of this type, for the run has ended. Asked with its end, and with whatever comes after it.
    end: fn(&mut Scene),
    /// By what a content says that its activity has ended.
    ends: Ends,
}

/// Of what outlives a run, or is never open.
const fn stays(_: &mut Scene) {}

/// Every activity type. An envelope that changes several gives their frames in this order.
pub static PROJECTIONS: &[Projection] = &[
    Projection { kind: "message", fold: message::fold, end: message::interrupt_all, ends: Ends::TEXT },
    Projection { kind: "reasoning", fold: thought::reasoning, end: thought::interrupt_reasoning, ends: Ends::TEXT },
    Projection { kind: "plan", fold: thought::plan, end: thought::interrupt_plans, ends: Ends::TEXT },
    Projection { kind: "tool-call-progress", fold: tool_call::fold, end: tool_call::end_all, ends: Ends::CALL },
    Projection { kind: "custom", fold: custom::fold, end: stays, ends: Ends::NEVER },
    Projection { kind: "action", fold: action::fold, end: action::interrupt_all, ends: Ends::ACTION },
    Projection { kind: "queue", fold: queue::fold, end: stays, ends: Ends::NEVER },
    Projection { kind: "task", fold: task::fold, end: lifecycle::leave_tasks, ends: Ends::WORK },
    Projection { kind: "agent", fold: agent::fold, end: lifecycle::leave_agents, ends: Ends::WORK },
    Projection { kind: "team", fold: team::team, end: stays, ends: Ends::TEAM },
    Projection { kind: "handoff", fold: team::handoff, end: lifecycle::leave_handoffs, ends: Ends::HANDOFF },
    Projection { kind: "worker-notification", fold: team::notification, end: stays, ends: Ends::NEVER },
    Projection { kind: "review", fold: review::fold, end: lifecycle::leave_reviews, ends: Ends::REVIEW },
    Projection { kind: "artifact", fold: artifact::artifact, end: lifecycle::leave_artifacts, ends: Ends::ARTIFACT },
    Projection { kind: "evidence", fold: artifact::evidence, end: stays, ends: Ends::NEVER },
    Projection { kind: "context", fold: context::context, end: stays, ends: Ends::NEVER },
    Projection { kind: "compaction", fold: context::compaction, end: context::end_compactions, ends: Ends::RUN },
    Projection { kind: "permission", fold: context::permission, end: stays, ends: Ends::NEVER },
    Projection { kind: "state", fold: state::fold, end: stays, ends: Ends::NEVER },
    Projection { kind: "session", fold: session::fold, end: stays, ends: Ends::SESSION },
    Projection { kind: "metrics", fold: metrics::fold, end: stays, ends: Ends::NEVER },
    Projection { kind: "diagnostics", fold: diagnostics::fold, end: stays, ends: Ends::NEVER },
    // Last: a run that has ended has ended everything before.
    Projection { kind: "run", fold: run::fold, end: stays, ends: Ends::RUN },
];

/// What a fold works on: the activities, and the little that it remembers beside them.
#[derive(Debug, Clone)]
pub struct Scene {
    pub stage: Stage,
    /// The id of the log: of its run, or of its session.
    pub log: Box<str>,
    /// Whether the log is a run's.
    pub is_run: bool,
    /// The agent that the run itself is of. What any other agent says is a teammate's.
    pub own_agent: Option<AgentId>,
    /// How the run stands, by what this audience saw.
    pub run: RunState,
    /// Whether the envelope came after the run's end. It is shown, and opens nothing.
    pub is_late: bool,
}

impl Scene {
    /// The agent of the fact, if it is not the run's own.
    #[must_use]
    pub fn teammate<'s>(&self, seen: &'s Seen) -> Option<&'s AgentId> {
        seen.ids.agent.as_ref().filter(|agent| self.own_agent.as_ref() != Some(agent))
    }
}

/// What one envelope did to a view.
#[derive(Debug)]
pub struct Folded {
    /// The envelope before it that gave this view frames.
    pub prev: Sequence,
    /// Nothing, for most envelopes of some kinds.
    pub touched: Vec<Touch>,
}

/// The activities of one log as one audience sees them, as of one sequence.
#[derive(Debug, Clone)]
pub struct View {
    pub audience: Audience,
    /// Every envelope up to here was folded, or was hidden.
    pub through: Sequence,
    /// The last envelope that gave frames.
    pub framed: Sequence,
    scene: Scene,
}

/// A view as it is saved. Another `version` is another fold, whose checkpoints mean nothing to this one.
#[derive(Serialize, Deserialize)]
struct Saved<'v> {
    version: u32,
    through: Sequence,
    framed: Sequence,
    own_agent: Option<AgentId>,
    run: std::borrow::Cow<'v, RunState>,
    activities: std::borrow::Cow<'v, [Activity]>,
    /// Whether some were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_over: bool,
}

/// Counts up whenever a fold changes what it makes of the same envelopes.
const VERSION: u32 = 8;

impl View {
    /// The view before the first envelope.
    #[must_use]
    pub fn new(log: &LogId, audience: Audience) -> Self {
        let (id, is_run) = match log {
            LogId::Run(id) => (id.as_str(), true),
            LogId::Session(id) => (id.as_str(), false),
        };
        let scene =
            Scene { stage: Stage::default(), log: id.into(), is_run, own_agent: None, run: RunState::default(), is_late: false };
        Self { audience, through: Sequence::NONE, framed: Sequence::NONE, scene }
    }

    /// The view as it was saved; `None` for what another version of this fold saved.
    ///
    /// # Errors
    /// What was never saved as a view.
    pub fn restore(log: &LogId, audience: Audience, saved: &[u8]) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        // First, for the rest is as that version has it.
        if serde_json::from_slice::<Version>(saved)?.version != VERSION {
            return Ok(None);
        }
        let saved: Saved<'_> = serde_json::from_slice(saved)?;
        let mut view = Self::new(log, audience);
        (view.through, view.framed) = (saved.through, saved.framed);
        view.scene.own_agent = saved.own_agent;
        view.scene.run = saved.run.into_owned();
        view.scene.stage = Stage::restore(saved.activities.into_owned(), saved.is_over);
        Ok(Some(view))
    }

    /// The view as text. The same view is the same text.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let saved = Saved {
            version: VERSION,
            through: self.through,
            framed: self.framed,
            own_agent: self.scene.own_agent.clone(),
            run: std::borrow::Cow::Borrowed(&self.scene.run),
            activities: self.scene.stage.activities().into(),
            is_over: self.scene.stage.is_over(),
        };
        serde_json::to_vec(&saved).expect("our own plain data")
    }

    /// The same view as another audience's, to whom everything so far was the same.
    #[must_use]
    pub fn by(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Folds the next envelope, as this view's audience gets it; `None` for one that is hidden from it.
    ///
    /// # Panics
    /// When envelopes come out of order, which only the caller can have caused.
    pub fn fold(&mut self, sequence: Sequence, text: Option<&[u8]>) -> Folded {
        let Some(text) = text else {
            self.pass(sequence);
            return Folded { prev: self.framed, touched: Vec::new() };
        };
        match Seen::parse(sequence, text) {
            Some(seen) => self.fold_seen(&seen),
            None => {
                tracing::error!(log = %self.scene.log, %sequence, "a row of the log is no envelope; it shows nothing");
                self.pass(sequence);
                Folded { prev: self.framed, touched: Vec::new() }
            }
        }
    }

    /// Passes an envelope that is hidden from this audience.
    fn pass(&mut self, sequence: Sequence) {
        assert!(sequence > self.through, "envelopes are folded once, in order");
        self.through = sequence;
    }

    /// Folds an envelope that was read already: audiences that get the same text share the reading.
    pub fn fold_seen(&mut self, seen: &Seen) -> Folded {
        self.pass(seen.sequence);
        let scene = &mut self.scene;
        scene.stage.begin(seen.sequence, seen.received_at);
        if seen.is_hidden_failure() {
            diagnostics::count_hidden(scene);
            return self.finish(seen.sequence);
        }
        if seen.class == EventType::RunStarted && scene.own_agent.is_none() {
            scene.own_agent.clone_from(&seen.ids.agent);
        }
        // The attempt before broke off without a word. One that waits may be what this one goes on with.
        let was_broken_off = scene.is_run && seen.class == EventType::RunStarted && scene.run.attempt > 0 && scene.run.ages();
        scene.is_late = scene.is_run && scene.run.follow(&seen.class, &seen.phase, seen.ids.action.as_ref(), &seen.payload);
        let was_over = scene.stage.is_over();
        let has_ended = seen.ends_run() || scene.is_run && scene.run.status.is_end();
        for projection in PROJECTIONS {
            if was_broken_off {
                (projection.end)(scene);
            }
            (projection.fold)(seen, scene);
            if has_ended && (!scene.is_late || scene.stage.is_touched()) {
                (projection.end)(scene);
            }
        }
        if scene.stage.is_over() && !was_over {
            diagnostics::note(scene, json!({ "kind": "too_many_activities", "limit": stage::ACTIVITIES_MAX }));
            if scene.is_run {
                run::leaves_out(scene);
            }
        }
        self.finish(seen.sequence)
    }

    fn finish(&mut self, sequence: Sequence) -> Folded {
        let prev = self.framed;
        let touched = self.scene.stage.finish(has_ended_by_content);
        if !touched.is_empty() {
            self.framed = sequence;
        }
        Folded { prev, touched }
    }

    /// The activities, in the order in which they appeared.
    #[must_use]
    pub fn activities(&self) -> &[Activity] {
        self.scene.stage.activities()
    }

    /// The activity that was touched.
    #[must_use]
    pub fn touched(&self, touch: &Touch) -> &Activity {
        &self.activities()[touch.at]
    }
}

/// Whether an activity has ended. Of one that a source names, nothing tells.
fn has_ended_by_content(activity: &Activity) -> bool {
    let of = PROJECTIONS.iter().find(|projection| projection.kind == &*activity.kind).filter(|_| !activity.is_custom);
    of.is_some_and(|projection| projection.ends.hold(&activity.content))
}

/// A number's value as it stands, where it is one.
fn number(value: Option<&Value>) -> Option<Value> {
    value.filter(|value| value.is_number()).cloned()
}

#[cfg(test)]
mod tests;
