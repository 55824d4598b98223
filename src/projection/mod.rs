//! The projection: folds the log into the activities that clients show.
//!
//! One [`View`] per log and audience. It takes the envelopes of that audience in order and keeps *activities*:
//! messages, tool calls, approvals, teammates and so on. Each has a JSON content, of which readers hold a copy. The
//! view returns each envelope's changes as snapshots of new activities and patches of known ones; each patch is built
//! together with its change ([`stage`]).
//!
//! The fold is pure: the same envelopes for the same audience give the same activities and patches. It uses no clock,
//! no randomness and no I/O. The audience filter runs before it, so a fact that an audience may not see cannot change
//! its view. A view can be saved and restored anywhere; it then continues as if it had stayed in memory.
//!
//! One file per activity type, one row per type in [`PROJECTIONS`].

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

/// The fold of one activity type.
pub struct Projection {
    /// `activityType` on the wire; `custom` covers all types that sources name.
    pub kind: &'static str,
    /// Applies an envelope to the activities of this type. Called for every envelope; most do nothing.
    fold: fn(&Seen, &mut Scene),
    /// Closes the open activities of this type. Called for the run's end and for every later envelope that changes
    /// something.
    end: fn(&mut Scene),
    /// The member and values by which a content states its end.
    ends: Ends,
}

/// The `end` of types that outlive a run or are never open.
const fn stays(_: &mut Scene) {}

/// Every activity type. An envelope that changes several types yields their frames in this order.
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
    // The run is last: when it ends, all other activities have ended.
    Projection { kind: "run", fold: run::fold, end: stays, ends: Ends::RUN },
];

/// The state of a fold: the activities, and the few facts that it keeps beside them.
#[derive(Debug, Clone)]
pub struct Scene {
    pub stage: Stage,
    /// The id of the log: its run's, or its session's.
    pub log: Box<str>,
    /// Whether the log is a run's.
    pub is_run: bool,
    /// The run's own agent. Messages of any other agent are a teammate's.
    pub own_agent: Option<AgentId>,
    /// The state of the run, from the envelopes of this audience.
    pub run: RunState,
    /// Whether the envelope follows the run's end. It is shown, but opens nothing.
    pub is_late: bool,
}

impl Scene {
    /// The agent of the fact, if it is a teammate.
    #[must_use]
    pub fn teammate<'s>(&self, seen: &'s Seen) -> Option<&'s AgentId> {
        seen.ids.agent.as_ref().filter(|agent| self.own_agent.as_ref() != Some(agent))
    }
}

/// The effect of one envelope on a view.
#[derive(Debug)]
pub struct Folded {
    /// The previous envelope that gave this view frames.
    pub prev: Sequence,
    /// The changed activities; empty for most envelopes of some types.
    pub touched: Vec<Touch>,
}

/// The activities of one log for one audience, at one sequence.
#[derive(Debug, Clone)]
pub struct View {
    pub audience: Audience,
    /// The last envelope that was folded, or skipped because this audience may not see it.
    pub through: Sequence,
    /// The last envelope that changed an activity.
    pub framed: Sequence,
    scene: Scene,
}

/// A saved view. Checkpoints of another `version` come from another fold and are not usable.
#[derive(Serialize, Deserialize)]
struct Saved<'v> {
    version: u32,
    through: Sequence,
    framed: Sequence,
    own_agent: Option<AgentId>,
    run: std::borrow::Cow<'v, RunState>,
    activities: std::borrow::Cow<'v, [Activity]>,
    /// Whether activities were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_over: bool,
}

/// The version of the fold. Increase it with every change of a fold's result.
const VERSION: u32 = 7;

impl View {
    /// Creates the view before the first envelope.
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

    /// Restores a saved view; `None` if another version of the fold saved it.
    ///
    /// # Errors
    /// If the bytes are not a saved view.
    pub fn restore(log: &LogId, audience: Audience, saved: &[u8]) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        // The version is read first, because the rest may have another shape.
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

    /// Serialises the view. Equal views give equal bytes.
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
        serde_json::to_vec(&saved).expect("a view is plain data and serializes")
    }

    /// Converts the view to another audience, which saw the same envelopes so far.
    #[must_use]
    pub fn by(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Folds the next envelope in this audience's form; `None` for one that the audience may not see.
    ///
    /// # Panics
    /// If envelopes arrive out of order, which is an error of the caller.
    pub fn fold(&mut self, sequence: Sequence, text: Option<&[u8]>) -> Folded {
        let Some(text) = text else {
            self.pass(sequence);
            return Folded { prev: self.framed, touched: Vec::new() };
        };
        match Seen::parse(sequence, text) {
            Some(seen) => self.fold_seen(&seen),
            None => {
                tracing::error!(log = %self.scene.log, %sequence, "a row of the log is not an envelope; the projection skips it");
                self.pass(sequence);
                Folded { prev: self.framed, touched: Vec::new() }
            }
        }
    }

    /// Advances past an envelope without folding it.
    fn pass(&mut self, sequence: Sequence) {
        assert!(sequence > self.through, "the caller passes each envelope once, in order");
        self.through = sequence;
    }

    /// Folds a parsed envelope: audiences with the same text share the parsing.
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
        // The previous attempt stopped without an end. A waiting attempt is excluded: this one may continue it.
        let was_broken_off = scene.is_run && seen.class == EventType::RunStarted && scene.run.attempt > 0 && scene.run.can_go_stale();
        scene.is_late = scene.is_run && scene.run.apply(&seen.class, &seen.phase, seen.ids.action.as_ref(), &seen.payload);
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

    /// The activity of a change.
    #[must_use]
    pub fn touched(&self, touch: &Touch) -> &Activity {
        &self.activities()[touch.at]
    }
}

/// Whether an activity has ended. For an activity that a source named, the end is unknown.
fn has_ended_by_content(activity: &Activity) -> bool {
    let of = PROJECTIONS.iter().find(|projection| projection.kind == &*activity.kind).filter(|_| !activity.is_custom);
    of.is_some_and(|projection| projection.ends.hold(&activity.content))
}

/// The value, if it is a number.
fn number(value: Option<&Value>) -> Option<Value> {
    value.filter(|value| value.is_number()).cloned()
}

#[cfg(test)]
mod tests;
