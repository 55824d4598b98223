//! The run: its starts, steps, pauses and ends.
//!
//! The open calls decide whether a `finish` is a pause, never its reason: `tool-calls` is also the reason of a reached
//! stop condition, and `stop` that of an approval that the provider waits for.

use super::event::Kind;
use super::{AiSdk, EventHandler, TurnState};
use crate::Fact;
use crate::members::{carry_all, diagnostic, take_id, take_text};
use crate::turn::{ended, failed, waiting};
use proscenium_model::{Audience, Draft, EventType, MessageId, Owner, Persistence, Phase, Scope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

/// How a run continues after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Resumption {
    /// The same message continues: the client answered.
    Answered,
    /// Another message begins: the client asked for something else.
    Abandoned,
}

impl EventHandler<'_> {
    /// Opens or resumes the run before a chunk that implies it. Some backends send no `start`.
    pub(super) fn proceed(&mut self, kind: Kind) {
        match self.memory.turn_state {
            TurnState::New if kind != Kind::Start => self.begin(None, Map::new()),
            TurnState::Paused if kind.is_work() => {
                self.memory.turn_state = TurnState::Open;
                self.memory.resumption = Some(Resumption::Answered);
                self.status_of_start(true, Map::new());
            }
            _ => {}
        }
        if kind.is_of_model() {
            self.close_answered_calls();
        }
    }

    pub(super) fn start(&mut self, mut fact: Fact) {
        let named: Option<MessageId> = take_id(&mut fact, "messageId");
        let metadata = fact.shift_remove("messageMetadata");
        match self.memory.turn_state {
            TurnState::New | TurnState::Ended => self.begin(named, fact),
            state => {
                let is_same = named.is_none() || named == self.memory.message;
                let waited = state == TurnState::Paused;
                if waited {
                    self.memory.resumption = Some(if is_same { Resumption::Answered } else { Resumption::Abandoned });
                }
                let continues = waited || named.is_some() && is_same;
                if !is_same {
                    self.memory.message = named;
                    self.memory.tokens = Default::default();
                }
                self.memory.turn_state = TurnState::Open;
                self.status_of_start(continues, fact);
            }
        }
        self.metadata("start", metadata);
    }

    /// Starts an attempt.
    fn begin(&mut self, message: Option<MessageId>, rest: Fact) {
        let AiSdk { messages_made, parts_made, actions_made, artifacts_made, evidence_made, data_parts, .. } = *self.memory;
        *self.memory = AiSdk {
            turn_state: TurnState::Open,
            message,
            messages_made,
            parts_made,
            actions_made,
            artifacts_made,
            evidence_made,
            data_parts,
            ..AiSdk::default()
        };
        let draft = Draft::new(EventType::RunStarted).with("attempt", self.out.next_attempt());
        self.push(carry_all(draft.with_message(self.memory.message.clone()), rest));
    }

    /// Reports a start within the run: a continuation, or the next message.
    fn status_of_start(&mut self, is_resumed: bool, rest: Fact) {
        let draft = Draft::new(EventType::RunStatus).with_some("resumed", is_resumed.then_some(true));
        let draft = draft.with_persistence(Persistence::Snapshot).with_message(self.memory.message.clone());
        self.push(carry_all(draft, rest));
    }

    // ── steps ──

    pub(super) fn start_step(&mut self, fact: Fact) {
        self.memory.steps += 1;
        self.memory.step_parts.clear();
        self.push(carry_all(self.step("started"), fact));
    }

    pub(super) fn finish_step(&mut self, fact: Fact) {
        self.push(carry_all(self.step("ended").with_phase(Phase::Reconciling), fact));
    }

    fn step(&self, edge: &str) -> Draft {
        let draft = Draft::new(EventType::RunStatus).with("step", edge).with("stepId", self.memory.steps);
        draft.with_scope(Scope::Turn).with_audience(Audience::Dashboard)
    }

    /// Voids the current step: the workflow runs it again. Each first attempt begins with a reset of nothing.
    pub(super) fn reset_step(&mut self, fact: Fact) {
        self.empty_parts_of_step();
        self.drop_calls_of_step();
        self.push(carry_all(self.step("reset"), fact));
    }

    // ── ends ──

    pub(super) fn error(&mut self, mut fact: Fact) {
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end("error", fact);
        }
        let message = take_text(&mut fact, "errorText").unwrap_or_else(|| "the run failed without saying why".into());
        self.fail(message, fact);
    }

    fn fail(&mut self, message: String, rest: Fact) {
        self.end(carry_all(failed(json!({ "message": message })), rest));
    }

    pub(super) fn abort(&mut self, mut fact: Fact) {
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end("abort", fact);
        }
        let draft = ended(Phase::Cancelled, "cancelled").with_some("reason", take_text(&mut fact, "reason"));
        self.end(carry_all(draft, fact));
    }

    pub(super) fn finish(&mut self, mut fact: Fact) {
        self.metadata_of("finish", &mut fact);
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end("finish", fact);
        }
        let reason = take_text(&mut fact, "finishReason");
        if self.memory.waits() {
            return self.pause(reason, fact);
        }
        match reason.as_deref() {
            Some("error") => self.fail("the model failed without saying why".into(), fact),
            None | Some("stop" | "tool-calls") => {
                self.end_streams();
                // If nothing waits for the result of a call, a stop condition was reached.
                let is_truncated = reason.as_deref() == Some("tool-calls");
                let draft = ended(Phase::Completed, "completed").with_some("truncated", is_truncated.then_some(true));
                self.close(carry_all(draft.with_some("finishReason", reason), fact));
            }
            Some(_) => {
                self.close(carry_all(ended(Phase::Interrupted, "interrupted").with("finishReason", reason), fact));
            }
        }
    }

    fn pause(&mut self, reason: Option<String>, rest: Fact) {
        self.end_streams();
        self.await_client();
        self.memory.turn_state = TurnState::Paused;
        self.push(carry_all(waiting().with_some("finishReason", reason), rest));
    }

    /// Ends the run; nothing of it continues.
    fn end(&mut self, draft: Draft) {
        self.close_streams();
        self.memory.calls.end_all();
        self.close(draft);
    }

    /// Ends the run. Parts and calls of another stream of the same body may still continue.
    fn close(&mut self, draft: Draft) {
        self.memory.pending.clear();
        self.memory.turn_state = TurnState::Ended;
        self.push(draft);
    }

    /// Keeps an end after the run's end, and closes what began after that.
    fn late_end(&mut self, event_type: &str, fact: Fact) {
        self.end_streams();
        self.interrupt_calls();
        self.push(diagnostic("late_end", event_type, fact).with_owner(Owner::Runtime));
    }
}
