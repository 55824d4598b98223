//! The projection: folds the log into the activities that clients show.
//!
//! One [`View`] per log and audience. It takes the envelopes of that audience in order and keeps *activities*:
//! messages, tool calls, approvals, teammates and so on. Each has a JSON content, of which readers hold a copy. The
//! view returns each envelope's changes as snapshots of new activities and patches of known ones; each patch is built
//! together with its change ([`activity_set`]).
//!
//! The fold is pure: the same envelopes for the same audience give the same activities and patches. It uses no clock,
//! no randomness and no I/O. The audience filter runs before it, so a fact that an audience may not see cannot change
//! its view. A view can be saved and restored anywhere; it then continues as if it had stayed in memory.
//!
//! One file per activity type, with the declaration of its content ([`members`]), and one row per type in
//! [`PROJECTIONS`].

#![warn(missing_docs)]

pub mod action;
pub mod activity_set;
pub mod agent;
mod artifact;
pub mod bodies;
mod carry;
pub mod change;
mod chunk;
mod context;
mod custom;
mod diagnostics;
pub mod envelope_view;
pub mod feedback;
mod lifecycle;
pub mod members;
pub mod message;
mod metrics;
pub mod operations;
mod patch;
mod queue;
mod review;
pub mod run;
mod session;
pub mod source_clock;
pub mod state;
mod subject;
pub mod surface;
mod task;
mod team;
pub mod thought;
pub mod tool_call;

use activity_set::{Activity, ActivitySet};
use change::Change;
use chunk::ChunkRows;
use envelope_view::EnvelopeView;
use lifecycle::EndRule;
use members::ContentSchema;
use proscenium_model::{AgentId, Audience, EventType, LogId, Sequence, Topology, schema};
use proscenium_sources::ledger::RunState;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use source_clock::SourceClock;

/// The kind of the action activity, which calls refer to.
pub const ACTION_KIND: &str = "action";

/// The fold of one activity type.
pub struct Projection {
    /// The declaration of its content, with `activityType`; `custom` covers all types that sources name.
    pub content: &'static ContentSchema,
    /// Applies an envelope to the activities of this type. Called for every envelope; most do nothing.
    fold: fn(&EnvelopeView, &mut FoldState),
    /// Closes the open activities of this type.
    ///
    /// Called for the run's end and for every later envelope that changes something.
    close: fn(&mut FoldState),
    /// The member and values by which a content states its end.
    end_rule: EndRule,
}

/// The `end` of types that outlive a run or are never open.
const fn keep_open(_: &mut FoldState) {}

/// Every activity type. An envelope that changes several types yields their frames in this order.
pub static PROJECTIONS: &[Projection] = &[
    Projection { content: &message::MESSAGE, fold: message::fold, close: message::interrupt_all, end_rule: EndRule::TEXT },
    Projection {
        content: &thought::REASONING,
        fold: thought::reasoning,
        close: thought::interrupt_reasoning,
        end_rule: EndRule::TEXT,
    },
    Projection { content: &thought::PLAN, fold: thought::plan, close: thought::interrupt_plans, end_rule: EndRule::TEXT },
    Projection { content: &tool_call::CALL, fold: tool_call::fold, close: tool_call::end_all, end_rule: EndRule::CALL },
    Projection { content: &custom::CUSTOM, fold: custom::fold, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &surface::SURFACE, fold: surface::fold, close: keep_open, end_rule: EndRule::SURFACE },
    Projection { content: &action::ACTION, fold: action::fold, close: action::interrupt_all, end_rule: EndRule::ACTION },
    Projection { content: &queue::QUEUE, fold: queue::fold, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &task::TASK, fold: task::fold, close: lifecycle::mark_tasks_stale, end_rule: EndRule::WORK },
    Projection { content: &agent::AGENT, fold: agent::fold, close: lifecycle::mark_agents_stale, end_rule: EndRule::WORK },
    Projection { content: &team::TEAM, fold: team::team, close: keep_open, end_rule: EndRule::TEAM },
    Projection {
        content: &team::HANDOFF,
        fold: team::handoff,
        close: lifecycle::mark_handoffs_stale,
        end_rule: EndRule::HANDOFF,
    },
    Projection { content: &team::NOTIFICATION, fold: team::notification, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &review::REVIEW, fold: review::fold, close: lifecycle::mark_reviews_stale, end_rule: EndRule::REVIEW },
    Projection {
        content: &artifact::ARTIFACT,
        fold: artifact::artifact,
        close: lifecycle::mark_artifacts_stale,
        end_rule: EndRule::ARTIFACT,
    },
    Projection { content: &artifact::EVIDENCE, fold: artifact::evidence, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &context::CONTEXT, fold: context::context, close: keep_open, end_rule: EndRule::NEVER },
    Projection {
        content: &context::COMPACTION,
        fold: context::compaction,
        close: context::end_compactions,
        end_rule: EndRule::RUN,
    },
    Projection { content: &context::PERMISSION, fold: context::permission, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &state::APPLICATION_STATE, fold: state::fold, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &session::SESSION, fold: session::fold, close: keep_open, end_rule: EndRule::SESSION },
    Projection { content: &metrics::METRICS, fold: metrics::fold, close: keep_open, end_rule: EndRule::NEVER },
    Projection { content: &diagnostics::DIAGNOSTICS, fold: diagnostics::fold, close: keep_open, end_rule: EndRule::NEVER },
    // The run is last: when it ends, all other activities have ended.
    Projection { content: &run::RUN, fold: run::fold, close: keep_open, end_rule: EndRule::RUN },
];

/// The state of a fold: the activities, and the few facts that it keeps beside them.
#[derive(Debug, Clone)]
pub struct FoldState {
    /// All activities so far.
    pub activities: ActivitySet,
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

impl FoldState {
    /// The agent of the fact, if it is a teammate.
    #[must_use]
    pub fn teammate<'s>(&self, envelope: &'s EnvelopeView) -> Option<&'s AgentId> {
        envelope.ids.agent.as_ref().filter(|agent| self.own_agent.as_ref() != Some(agent))
    }
}

/// The effect of one envelope on a view.
#[derive(Debug)]
pub struct FoldOutcome {
    /// The previous envelope that gave this view frames.
    pub prev: Sequence,
    /// The changed activities; empty for most envelopes of some types.
    pub changes: Vec<Change>,
}

/// The activities of one log for one audience, at one sequence.
#[derive(Debug, Clone)]
pub struct View {
    /// Who sees it.
    pub audience: Audience,
    /// The last envelope that was folded, or skipped because this audience may not see it.
    pub through: Sequence,
    /// The last envelope that changed an activity.
    pub last_framed: Sequence,
    state: FoldState,
    /// The rows that append to a text as the last visible one did.
    chunks: Option<Box<ChunkRows>>,
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
    clock: SourceClock,
}

/// The version of the fold. Increase it with every change of a fold's result: `tests/it/faces.rs` finds most.
pub const VERSION: u32 = 16;

impl View {
    /// Creates the view before the first envelope.
    #[must_use]
    pub fn new(log: &LogId, audience: Audience) -> Self {
        let (id, is_run) = match log {
            LogId::Run(id) => (id.as_str(), true),
            LogId::Session(id) => (id.as_str(), false),
        };
        let state = FoldState {
            activities: ActivitySet::default(),
            log: id.into(),
            is_run,
            own_agent: None,
            run: RunState::default(),
            is_late: false,
        };
        Self { audience, through: Sequence::NONE, last_framed: Sequence::NONE, state, chunks: None }
    }

    /// Creates the view at a sequence up to which the audience may see no envelope.
    #[must_use]
    pub fn at(log: &LogId, audience: Audience, through: Sequence) -> Self {
        Self { through, ..Self::new(log, audience) }
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
        (view.through, view.last_framed) = (saved.through, saved.framed);
        view.state.own_agent = saved.own_agent;
        view.state.run = saved.run.into_owned();
        view.state.activities = ActivitySet::restore(saved.activities.into_owned(), saved.is_over, saved.clock);
        Ok(Some(view))
    }

    /// Serialises the view. Equal views give equal bytes.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let saved = Saved {
            version: VERSION,
            through: self.through,
            framed: self.last_framed,
            own_agent: self.state.own_agent.clone(),
            run: std::borrow::Cow::Borrowed(&self.state.run),
            activities: self.state.activities.activities().into(),
            is_over: self.state.activities.has_omissions(),
            clock: self.state.activities.clock(),
        };
        serde_json::to_vec(&saved).expect("a view is plain data and serializes")
    }

    /// What the view keeps beside its activities.
    #[must_use]
    pub fn remaining_state(&self) -> Value {
        let Self { last_framed, state: FoldState { own_agent, run, activities, .. }, .. } = self;
        serde_json::to_value((last_framed, own_agent, run, activities.clock())).expect("the state is plain data")
    }

    /// The run's own agent and its state, which no activity holds as a whole.
    #[must_use]
    pub const fn run_and_agent(&self) -> (&RunState, &Option<AgentId>) {
        (&self.state.run, &self.state.own_agent)
    }

    /// Converts the view to another audience, which saw the same envelopes so far.
    #[must_use]
    pub fn for_audience(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Folds the next envelope in this audience's form; `None` for one that the audience may not see.
    ///
    /// # Panics
    /// If envelopes arrive out of order, which is an error of the caller.
    pub fn fold(&mut self, sequence: Sequence, text: Option<&[u8]>) -> FoldOutcome {
        let Some(text) = text else {
            self.advance(sequence);
            return FoldOutcome { prev: self.last_framed, changes: Vec::new() };
        };
        if let Some(outcome) = self.fold_chunk(sequence, text) {
            return outcome;
        }
        match EnvelopeView::parse(sequence, text) {
            Some(envelope) => self.fold_row(&envelope, text),
            None => {
                tracing::error!(log = %self.state.log, %sequence, "a row of the log is not an envelope; the projection skips it");
                self.advance(sequence);
                FoldOutcome { prev: self.last_framed, changes: Vec::new() }
            }
        }
    }

    /// Folds the next envelope without parsing it; `None` if it is not the next chunk of a text.
    pub fn fold_chunk(&mut self, sequence: Sequence, text: &[u8]) -> Option<FoldOutcome> {
        let chunks = self.chunks.take()?;
        if !chunks.fold(text, sequence, &mut self.state.activities) {
            return None;
        }
        self.chunks = Some(chunks);
        self.advance(sequence);
        Some(self.finish(sequence))
    }

    /// The rows that [`Self::fold_chunk`] folds.
    #[must_use]
    pub fn chunks(&self) -> Option<&ChunkRows> {
        self.chunks.as_deref()
    }

    /// Folds an envelope that was parsed from this text.
    pub fn fold_row(&mut self, envelope: &EnvelopeView, text: &[u8]) -> FoldOutcome {
        let outcome = self.fold_envelope(envelope);
        self.chunks = ChunkRows::of(text, envelope, &outcome).map(Box::new);
        outcome
    }

    /// Advances past an envelope without folding it.
    fn advance(&mut self, sequence: Sequence) {
        assert!(sequence > self.through, "the caller passes each envelope once, in order");
        self.through = sequence;
    }

    /// Folds a parsed envelope: audiences with the same text share the parsing.
    pub fn fold_envelope(&mut self, envelope: &EnvelopeView) -> FoldOutcome {
        self.chunks = None;
        self.advance(envelope.sequence);
        let fold = &mut self.state;
        fold.activities.begin_envelope(envelope.sequence, envelope.received_at, envelope.timestamp);
        if envelope.is_hidden_failure() {
            diagnostics::count_hidden(fold);
            return self.finish(envelope.sequence);
        }
        if envelope.event_type.begins_run(&envelope.phase) && fold.own_agent.is_none() {
            fold.own_agent.clone_from(&envelope.ids.agent);
        }
        // The previous attempt stopped without an end. A waiting attempt is excluded: this one may continue it.
        let has_unended_attempt = fold.is_run
            && envelope.event_type == EventType::RunStarted
            && fold.run.attempt > 0
            && fold.run.can_go_stale()
            && !fold.run.is_continued_by(&envelope.payload);
        fold.is_late =
            fold.is_run && fold.run.apply(&envelope.event_type, &envelope.phase, envelope.ids.action.as_ref(), &envelope.payload);
        let was_over = fold.activities.has_omissions();
        let has_ended = envelope.ends_run() || fold.is_run && fold.run.status.is_end();
        for projection in PROJECTIONS {
            if has_unended_attempt {
                (projection.close)(fold);
            }
            (projection.fold)(envelope, fold);
            if has_ended && (!fold.is_late || fold.activities.has_changes()) {
                (projection.close)(fold);
            }
        }
        if fold.activities.has_omissions() && !was_over {
            diagnostics::add_entry(fold, json!({ "kind": "too_many_activities", "limit": activity_set::ACTIVITIES_MAX }));
            if fold.is_run {
                run::mark_omissions(fold);
            }
        }
        self.finish(envelope.sequence)
    }

    fn finish(&mut self, sequence: Sequence) -> FoldOutcome {
        let prev = self.last_framed;
        let changes = self.state.activities.finish_envelope(has_ended_by_content);
        if !changes.is_empty() {
            self.last_framed = sequence;
        }
        FoldOutcome { prev, changes }
    }

    /// The activities, in the order in which they appeared.
    #[must_use]
    pub fn activities(&self) -> &[Activity] {
        self.state.activities.activities()
    }

    /// The activities alone, in the order in which they appeared.
    #[must_use]
    pub fn into_activities(self) -> Vec<Activity> {
        self.state.activities.into_activities()
    }

    /// The activities as a branch has them that leaves the log here: what was open is interrupted.
    ///
    /// Without those that are about the session itself: a branch has its own.
    #[must_use]
    pub fn into_frozen(mut self) -> Vec<Activity> {
        let through = self.through;
        if self.state.is_run && through > Sequence::NONE && !self.state.run.status.is_end() {
            let received_at = self.activities().iter().map(|activity| activity.updated_at).max().unwrap_or_default();
            let end = json!({
                "type": EventType::RunFinished.as_str(), "phase": "interrupted", "surface": "runtime_status",
                "receivedAt": received_at.to_string(), "payload": { "status": "interrupted" },
            });
            self.fold(through.next(), Some(end.to_string().as_bytes()));
        }
        let mut frozen = self.state.activities.into_activities();
        frozen.retain(|activity| ![session::SESSION.kind, queue::QUEUE.kind].contains(&&*activity.kind));
        for activity in &mut frozen {
            activity.sequence = activity.sequence.min(through);
        }
        frozen
    }

    /// The activity of a change.
    #[must_use]
    pub fn changed_activity(&self, change: &Change) -> &Activity {
        &self.activities()[change.index]
    }
}

/// Whether an activity has ended. For an activity that a source named, the end is unknown.
fn has_ended_by_content(activity: &Activity) -> bool {
    let of = PROJECTIONS.iter().find(|projection| projection.content.kind == &*activity.kind).filter(|_| !activity.is_custom);
    of.is_some_and(|projection| projection.end_rule.is_met(&activity.content))
}

/// Every content's document in `schema/activities/`, with its activity type.
#[must_use]
pub fn schemas() -> Vec<(&'static str, Value)> {
    PROJECTIONS.iter().map(|projection| (projection.content.kind, projection.content.document())).collect()
}

/// The schema of a `topology`.
fn topology_schema() -> Value {
    members::open_set(Topology::NAMES)
}

/// The schema of a list of entries with these members.
fn entries_schema(required: &[&str]) -> Value {
    let properties = json!({ "sequence": schema::sequence("The sequence of the envelope that added the entry.", 1) });
    let entry = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": true });
    json!({ "type": "array", "items": entry })
}

/// A copy of a fact's member, unless it is null.
fn stated(member: Option<&Value>) -> Option<Value> {
    member.filter(|value| !value.is_null()).cloned()
}

/// A fact's member, if it is a list.
fn list(member: &Option<Box<Value>>) -> Option<&Vec<Value>> {
    member.as_deref().and_then(Value::as_array)
}

#[cfg(test)]
mod tests;

/// A message's activity id: a teammate's messages have the teammate's id as a prefix.
fn message_key(agent: Option<&AgentId>, message: &str) -> String {
    agent.map_or_else(|| message.to_owned(), |agent| format!("{agent}/{message}"))
}
