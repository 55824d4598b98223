//! Turns and their dispatches: the start, the outcome and the failure cause of a run.
//!
//! `turnEnd` ends the turn but has no outcome; the preceding dispatch has it. An error alone does not fail the turn: a
//! tool, or code that runs after the answer, may have thrown it. An error decides the outcome only if no dispatch has
//! ended.

use super::failure::{Cause, text};
use super::{EventHandler, TurnRunner};
use crate::Fact;
use crate::members::{diagnostic, take_id, take_time};
use crate::turn::TurnState;
use proscenium_model::{Audience, Draft, EventType, Phase, Scope, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The outcome of a dispatch, as the dispatch reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Ack,
    Nack,
    Aborted,
    /// The dispatch ended with an unknown status.
    Unknown,
}

impl TurnRunner {
    fn begin_turn(&mut self, turn: Option<TurnId>) {
        self.used.begin_turn();
        self.turn_state = TurnState::Open;
        self.turn = turn;
        self.turns += 1;
        self.forget_outcome();
        self.is_aborting = false;
        self.streams.clear();
        self.calls.clear();
    }

    /// Ends the turn. Open items stay in memory, because their ends may arrive late.
    fn end_turn(&mut self) {
        self.turn_state = TurnState::Ended;
        self.forget_outcome();
    }

    fn forget_outcome(&mut self) {
        self.is_dispatched = false;
        self.outcome = None;
        self.is_degraded = false;
        self.cause = None;
    }

    fn is_another_turn(&self, payload: &Fact) -> bool {
        let named = payload.get("turnId").and_then(Value::as_str).filter(|id| !id.is_empty());
        named.is_some_and(|named| self.turn.as_ref().is_some_and(|turn| turn.as_str() != named))
    }

    /// Returns the phase in which the turn ended.
    fn phase(&self) -> Phase {
        let is_abort = self.cause.as_ref().is_some_and(|cause| cause.is_abort);
        match self.outcome {
            Some(Outcome::Ack) => Phase::Completed,
            Some(Outcome::Aborted) => Phase::Cancelled,
            Some(Outcome::Nack | Outcome::Unknown) | None if is_abort => Phase::Cancelled,
            Some(Outcome::Nack) => Phase::Failed,
            Some(Outcome::Unknown) | None if self.cause.is_some() => Phase::Failed,
            // A turn that is aborted before its dispatch ends without further events.
            None if !self.is_dispatched && self.used.turn.is_empty() => Phase::Cancelled,
            Some(Outcome::Unknown) | None => Phase::Unknown,
        }
    }
}

impl EventHandler<'_> {
    pub(super) fn turn_start(&mut self, mut payload: Fact) {
        if self.memory.turn_state == TurnState::Open {
            // The events up to the ends do not identify their turn, so the adapter only flags the start.
            let open = self.memory.turn.as_ref().map_or(Value::Null, |turn| turn.as_str().into());
            let is_same = !open.is_null() && payload.get("turnId") == Some(&open);
            let kind = if is_same { "repeated_start" } else { "interleaved_run" };
            return self.push(diagnostic(kind, self.event, payload).with("openTurn", open));
        }
        let turn: Option<TurnId> = take_id(&mut payload, "turnId");
        self.memory.begin_turn(turn);
        let draft = Draft::new(EventType::RunStarted).with("attempt", self.memory.turns).with_scope(Scope::Turn);
        let draft = self.with_own_turn(draft.with_timestamp(take_time(&mut payload, "startedAt")));
        self.push_carrying(draft, payload);
    }

    pub(super) fn turn_end(&mut self, mut payload: Fact) {
        let is_another = self.memory.is_another_turn(&payload);
        match self.memory.turn_state {
            TurnState::Open | TurnState::Ended if is_another => {
                return self.push(diagnostic("interleaved_run", self.event, payload));
            }
            TurnState::Ended => return self.push(diagnostic("repeated_end", self.event, payload)),
            TurnState::New | TurnState::Open | TurnState::Paused => {}
        }
        // This may be the first event of a turn whose start was missed.
        self.memory.turn = take_id(&mut payload, "turnId").or(self.memory.turn.take());
        let phase = self.memory.phase();
        let is_nack = self.memory.outcome == Some(Outcome::Nack);
        let draft = match phase {
            Phase::Failed => {
                let cause = self.memory.cause.take().unwrap_or_default();
                let mut draft = Draft::new(EventType::RunFailed).with("error", cause.to_error());
                draft.may_be_abort = is_nack && cause.may_be_abort();
                draft
            }
            _ => Draft::new(EventType::RunFinished),
        };
        let draft = draft.with("status", phase.as_str()).with_some("degraded", self.memory.is_degraded.then_some(true));
        let draft = draft.with_scope(Scope::Turn).with_phase(phase).with_timestamp(take_time(&mut payload, "endedAt"));
        let draft = draft.with_moved(&mut payload, &[("startedAt", "startedAt"), ("durationMs", "durationMs")]);
        self.push_carrying(self.with_own_turn(draft), payload);
        self.memory.end_turn();
    }

    /// Adds ADK's own turn id as a reference, if the request has a different one.
    fn with_own_turn(&self, draft: Draft) -> Draft {
        let own = self.memory.turn.as_ref().filter(|own| self.given.turn.as_ref().is_some_and(|given| given != *own));
        draft.with_ref("turnId", own.map(TurnId::as_str))
    }

    pub(super) fn dispatch_start(&mut self, mut payload: Fact) {
        self.memory.is_dispatched = true;
        let draft = status(Phase::Preparing).with("dispatch", "started").with_timestamp(take_time(&mut payload, "startedAt"));
        self.push_carrying(draft.with_moved(&mut payload, &[("dispatchId", "dispatchId")]), payload);
    }

    pub(super) fn dispatch_end(&mut self, mut payload: Fact) {
        let memory = &mut *self.memory;
        memory.is_dispatched = true;
        memory.outcome = Some(match payload.get("status").and_then(Value::as_str) {
            Some("ack") => Outcome::Ack,
            Some("nack") => Outcome::Nack,
            Some("aborted") => Outcome::Aborted,
            _ => Outcome::Unknown,
        });
        let error = payload.shift_remove("error").filter(|error| !error.is_null());
        if let Some(error) = &error {
            // The dispatch's own error replaces an earlier one, which may be unrelated (a tool's error).
            memory.cause = Some(Cause::of(error));
        }
        let was_aborted = memory.cause.as_ref().is_some_and(|cause| cause.is_abort) && memory.outcome == Some(Outcome::Nack);
        memory.is_aborting |= was_aborted || memory.outcome == Some(Outcome::Aborted);
        let draft = status(Phase::Reconciling).with("dispatch", "ended").with_timestamp(take_time(&mut payload, "endedAt"));
        let members = [
            ("dispatchId", "dispatchId"),
            ("status", "dispatchStatus"),
            ("iterations", "iterations"),
            ("startedAt", "startedAt"),
            ("durationMs", "durationMs"),
        ];
        self.push_carrying(draft.with_moved(&mut payload, &members).with_some("error", error), payload);
    }

    pub(super) fn iteration_start(&mut self, mut payload: Fact) {
        let draft = status(Phase::Acting).with("step", "started").with_timestamp(take_time(&mut payload, "startedAt"));
        self.push_carrying(with_step_ids(draft, &mut payload), payload);
    }

    /// Reports an exception in full, for operators.
    ///
    /// The adapter stores it as a possible cause of the turn's end. After a successful dispatch it only marks the turn
    /// as degraded.
    pub(super) fn error(&mut self, error: Value) {
        let memory = &mut *self.memory;
        match (memory.outcome, &mut memory.cause) {
            (Some(Outcome::Ack), _) => memory.is_degraded = true,
            // A second report of the same error.
            (Some(_), Some(cause)) => cause.or(Cause::of(&error)),
            (_, cause) => *cause = Some(Cause::of(&error)),
        }
        let message = text(&error, "message").or_else(|| error.as_str().map(str::to_owned));
        let code = text(&error, "code").or_else(|| text(&error, "name"));
        let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "error").with("severity", "error");
        let draft = draft.with_some("message", message).with_some("code", code).with("error", error);
        self.push(draft.with_audience(Audience::Dashboard));
    }
}

/// Creates a status of the turn, for operators.
fn status(phase: Phase) -> Draft {
    Draft::new(EventType::RunStatus).with_phase(phase).with_audience(Audience::Dashboard)
}

/// Adds the dispatch and iteration ids.
pub(super) fn with_step_ids(draft: Draft, payload: &mut Fact) -> Draft {
    let step = match (payload.get("dispatchId"), payload.get("iteration")) {
        (Some(Value::String(dispatch)), Some(Value::Number(iteration))) => Some(format!("{dispatch}#{iteration}")),
        _ => None,
    };
    draft.with_some("stepId", step).with_moved(payload, &[("dispatchId", "dispatchId"), ("iteration", "iteration")])
}
