//! The lifecycle of a turn: its start, status and end, its cost, and its evaluations.
//!
//! The first end holds. Later events are projected but do not reopen the turn; a second end becomes a diagnostic.

use super::{CONCURRENT_TURNS_MAX, Ethos, EventHandler, Pending, action_id, take_audience};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{diagnostic, name_of, next_id, take_number, take_text};
use crate::turn::{TurnState, ended, error, failed, resolved, waiting};
use proscenium_model::{Audience, Draft, EventType, Owner, PartId, Persistence, Phase, Scope, Surface};
use serde_json::{Map, Value};

/// Error codes of a turn that Ethos refused before it started.
const REFUSALS: &[&str] = &["personality_locked", "BUDGET_EXCEEDED", "FS_REACH_INVALID", BUSY];

/// The web server's code for input that it dropped because a turn is running.
const BUSY: &str = "BUSY";

/// The message of the web platform's `AbortError`. Ethos' loop reports it as a failure of the model.
const ABORTED: &str = "This operation was aborted";

/// Token counts of a model's call. Ethos uses the protocol's names.
const TOKENS: &[&str] = &["inputTokens", "outputTokens", "cacheReadTokens", "cacheCreationTokens"];

/// Reads Ethos' trace id of the event's turn.
fn trace_of(fact: &Fact) -> Option<String> {
    fact.get("traceId").and_then(Value::as_str).filter(|trace| !trace.is_empty()).map(name_of)
}

/// The turn that an end event belongs to, if several turns are open.
enum TurnOwner {
    Current,
    /// The concurrent turn at this index.
    Concurrent(usize),
    /// A turn without a start in this run.
    Unknown,
}

impl Ethos {
    /// Returns the turn that `done` ends.
    ///
    /// The end of a turn has the turn's trace id. Without trace ids, `done` ends the current turn if its text continues
    /// the streamed text. Otherwise the current turn is the last to end.
    fn owner_of_end(&self, done: &Fact) -> TurnOwner {
        if !self.is_interleaved() {
            return TurnOwner::Current;
        }
        let trace = trace_of(done);
        let concurrent = self.concurrent_turns.iter().position(|other| *other == trace);
        let may_be_current = trace == self.trace && (trace.is_some() || self.turn_state == TurnState::Open);
        let goes_on = || {
            let text = done.get("text").and_then(Value::as_str).unwrap_or_default();
            self.has_streamed() && self.streamed.is_prefix_of(text)
        };
        match concurrent {
            Some(at) if !may_be_current || trace.is_none() && !goes_on() => TurnOwner::Concurrent(at),
            _ if may_be_current => TurnOwner::Current,
            _ => TurnOwner::Unknown,
        }
    }

    /// Starts another turn and clears the state of the previous one.
    fn begin(&mut self, trace: Option<String>) {
        self.turn_state = TurnState::Open;
        self.trace = trace;
        self.concurrent_turns.clear();
        self.forget_turn();
    }

    /// Clears the state of the running turn. The end of the run closes open items in the log.
    fn forget_turn(&mut self) {
        self.wants_credential = false;
        self.halted = None;
        (self.text, self.thought) = (None, None);
        self.streamed = TextDigest::default();
        (self.has_gap, self.ends_with_tools) = (false, false);
        self.results.clear();
        self.last_message = self.message.take().or(self.last_message.take());
        self.calls.end_all();
    }
}

impl EventHandler<'_> {
    pub(super) fn run_start(&mut self, fact: Fact) {
        let trace = trace_of(&fact);
        match self.memory.turn_state {
            // The events up to the ends do not identify their turn, so the adapter only flags the start.
            TurnState::Open => return self.interleave(trace, fact),
            TurnState::Paused => self.expire_pending(),
            TurnState::New if self.memory.has_streamed() => self.answer(None),
            TurnState::New | TurnState::Ended => {}
        }
        self.memory.begin(trace);
        self.start(Draft::new(EventType::RunStarted), fact);
    }

    fn start(&mut self, draft: Draft, mut fact: Fact) {
        let names = ["provider", "model", "source"].map(|member| (member, member));
        let draft = draft.with("attempt", self.out.next_attempt()).with_moved(&mut fact, &names);
        self.push_carrying(draft.with_scope(Scope::Turn), fact);
    }

    /// Handles a turn that starts while another is open.
    ///
    /// From now on streamed text becomes diagnostics, so that two turns do not merge into one text. Each end contains
    /// the whole text of its turn.
    fn interleave(&mut self, trace: Option<String>, fact: Fact) {
        let open = self.memory.trace.clone();
        let is_repeated = trace.is_some() && (trace == open || self.memory.concurrent_turns.contains(&trace));
        if !is_repeated && self.memory.concurrent_turns.len() < CONCURRENT_TURNS_MAX {
            self.memory.concurrent_turns.push(trace);
        }
        self.end_thought();
        self.memory.text = None;
        let kind = if is_repeated { "repeated_start" } else { "interleaved_run" };
        self.push(diagnostic(kind, "run_start", fact).with("openTrace", open));
    }

    /// Expires the pending actions of the previous turn. Ethos does not report their outcome.
    fn expire_pending(&mut self) {
        for pending in self.memory.pending.take_all() {
            let draft = resolved(pending.action, pending.call, "expired", Owner::Policy);
            self.push(draft.with("reason", "the next turn began"));
        }
    }

    pub(super) fn done(&mut self, mut fact: Fact) {
        match self.memory.owner_of_end(&fact) {
            TurnOwner::Current => {}
            TurnOwner::Concurrent(at) => return self.concurrent_turn_done(at, fact),
            TurnOwner::Unknown => return self.set_aside("done", fact),
        }
        if matches!(self.memory.turn_state, TurnState::Ended | TurnState::Paused) {
            return self.push(diagnostic("late_end", "done", fact));
        }
        let text = take_text(&mut fact, "text");
        self.answer(text);
        let memory = &mut *self.memory;
        let mut draft = match (memory.wants_credential, &memory.halted) {
            (true, _) => waiting(),
            (false, Some(_)) => ended(Phase::Interrupted, "interrupted"),
            (false, None) => ended(Phase::Completed, "completed"),
        };
        draft.set("haltRule", memory.halted.clone());
        draft.set("turnCount", take_number(&mut fact, "turnCount"));
        draft.scope = Scope::Turn;
        // A provider that simply stops on abort produces an ordinary end.
        draft.may_be_abort = draft.phase == Phase::Completed;
        if draft.event_type == EventType::RunStatus {
            self.interrupt_calls();
            self.push_carrying(draft, fact);
            self.memory.forget_turn();
            self.memory.turn_state = TurnState::Paused;
        } else {
            self.end(draft, fact);
        }
    }

    fn end(&mut self, draft: Draft, rest: Fact) {
        self.push_carrying(draft, rest);
        self.memory.forget_turn();
        self.memory.pending.clear();
        self.memory.turn_state = TurnState::Ended;
    }

    /// Ends a concurrent turn. Its text becomes a separate message.
    fn concurrent_turn_done(&mut self, at: usize, mut fact: Fact) {
        if let Some(text) = take_text(&mut fact, "text").filter(|text| !text.is_empty()) {
            let message = next_id("ethos-message", &mut self.memory.messages_made);
            self.whole(Some(text), message, None);
        }
        self.set_aside("done", fact);
        self.memory.concurrent_turns.remove(at);
    }

    pub(super) fn error(&mut self, mut fact: Fact) {
        let code = fact.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_refused = REFUSALS.contains(&code.as_str());
        match self.memory.turn_state {
            // The error is about dropped input, not about the open turn.
            TurnState::Open | TurnState::Paused if code == BUSY => return self.dropped_input(fact),
            // Ethos refused a new turn before its start event. Only a start reopens an ended run.
            TurnState::Ended if is_refused => {
                self.memory.begin(None);
                self.start(Draft::new(EventType::RunStarted).with("refused", true), Map::new());
            }
            TurnState::Ended => return self.push(diagnostic("late_end", "error", fact)),
            TurnState::New | TurnState::Open | TurnState::Paused => {}
        }
        let message = take_text(&mut fact, "error");
        if code == "aborted" {
            fact.shift_remove("code");
            let draft = ended(Phase::Cancelled, "cancelled").with("code", code).with_some("message", message);
            return self.end(draft.with_scope(Scope::Turn), fact);
        }
        let message = message.unwrap_or_else(|| "the turn failed without saying why".into());
        let may_be_abort = code == "llm_error" && message == ABORTED;
        let mut draft = failed(error(take_text(&mut fact, "code"), message)).with_some("refused", is_refused.then_some(true));
        (draft.scope, draft.may_be_abort) = (Scope::Turn, may_be_abort);
        self.end(draft, fact);
    }

    fn dropped_input(&mut self, mut fact: Fact) {
        let phase = if self.memory.turn_state == TurnState::Paused { Phase::Waiting } else { Phase::Acting };
        let draft = Draft::new(EventType::RunStatus).with("refused", true).with_phase(phase);
        self.push_carrying(draft.with_moved(&mut fact, &[("error", "message"), ("code", "code")]), fact);
    }

    pub(super) fn halt(&mut self, mut fact: Fact) {
        let kind = fact.get("kind").and_then(Value::as_str).unwrap_or_default();
        let owner = if kind == "watcher" { Owner::Policy } else { Owner::Runtime };
        if self.memory.turn_state != TurnState::Ended {
            self.memory.halted = Some(name_of(fact.get("rule").and_then(Value::as_str).unwrap_or("unknown")));
        }
        let members = ["kind", "rule", "toolName", "count", "message"].map(|member| (member, member));
        let draft = Draft::new(EventType::RunStatus).with_moved(&mut fact, &members).with_owner(owner);
        let draft = draft.with_scope(Scope::Turn).with_phase(Phase::Interrupted).with_persistence(Persistence::Archive);
        self.push_carrying(draft, fact);
    }

    pub(super) fn context_meta(&mut self, mut fact: Fact) {
        let draft = Draft::new(EventType::ContextChanged).with_moved(&mut fact, &[("data", "meta")]);
        let draft = draft.with_surface(Surface::Diagnostics).with_persistence(Persistence::DiagnosticsLog);
        self.push_carrying(draft.with_audience(Audience::Internal), fact);
    }

    /// Reports the usage of a model call, or the cost of a tool call.
    ///
    /// A tool's cost has no tokens and comes directly after the end of the call.
    pub(super) fn usage(&mut self, mut fact: Fact) {
        let mut usage = Map::new();
        for member in TOKENS {
            usage.extend(take_number(&mut fact, member).map(|count| ((*member).to_owned(), count.into())));
        }
        let cost = take_number(&mut fact, "estimatedCostUsd").map(Value::from);
        let is_some = |number: &Value| number.as_f64().is_some_and(|n| n != 0.0);
        let is_of_a_tool = !usage.values().any(is_some) && cost.as_ref().is_some_and(is_some);
        usage.extend(cost.map(|cost| ("costUsd".to_owned(), cost)));
        let paid = self.just_ended.take().filter(|_| is_of_a_tool).map(|paid| paid.call);
        let mut draft = Draft::new(EventType::MetricChanged).with_audience(Audience::Dashboard);
        if is_of_a_tool {
            // A cost in any other position does not name its cause.
            draft = draft.with("kind", if paid.is_some() { "tool_cost" } else { "cost" });
            draft.scope = if paid.is_some() { Scope::ToolCall } else { Scope::Turn };
        } else {
            usage.insert("llmCalls".into(), 1.into());
            self.memory.results.clear();
            draft = draft.with("kind", "llm_call");
            draft.scope = Scope::Turn;
        }
        if let Some(paid) = paid {
            // Only readers that can see the call see its cost.
            draft.audience = self.out.call_audience(&paid).map_or(draft.audience, |start| start.max(draft.audience));
            draft.ids.tool_call = Some(paid);
        }
        draft.phase = Phase::Producing;
        self.push_carrying(draft.with("usage", Value::Object(usage)), fact);
    }

    /// Reports that the turn waits for a credential. Ethos' own frontend requests it from the user.
    pub(super) fn credential_required(&mut self, mut fact: Fact, has_address: bool) {
        let part = |member: &str| fact.get(member).and_then(Value::as_str).unwrap_or_default();
        let action = action_id("cred", &format!("{}:{}", part("pluginId"), part("credentialKey")));
        let names = [
            ("label", "message"),
            ("description", "description"),
            ("kind", "credentialKind"),
            ("pluginId", "pluginId"),
            ("credentialKey", "credentialKey"),
        ];
        let draft = Draft::new(EventType::ActionRequired).with("kind", "credential_request").with_moved(&mut fact, &names);
        let draft = draft.with_some("hasWithheldAddress", has_address.then_some(true)).with_owner(Owner::Policy);
        let draft = draft.with_ref("sessionKey", take_text(&mut fact, "sessionKey")).with_action(action.clone());
        if self.memory.turn_state != TurnState::Ended {
            self.memory.wants_credential = true;
            self.memory.pending.add(Pending { action, call: None });
        }
        self.push_carrying(draft, fact);
    }

    /// Reports the plan of a dry run. The event arrives after the turn's end.
    pub(super) fn dry_run_summary(&mut self, mut fact: Fact) {
        let part: PartId = next_id("ethos-plan", &mut self.memory.plans_made);
        let ended = self.memory.last_message.clone().filter(|_| self.memory.message.is_none());
        let message = ended.unwrap_or_else(|| self.memory.message());
        let plan = fact.shift_remove("plan").filter(|plan| !plan.is_null());
        let draft = Draft::new(EventType::PlanFinal).words(|words| words.plan = plan.map(Box::new));
        let draft = draft.with_moved(&mut fact, &[("capped", "capped")]);
        self.push_carrying(draft.with_owner(Owner::Runtime).with_message(message).with_part(part), fact);
    }

    pub(super) fn evaluators_complete(&mut self, mut fact: Fact) {
        self.memory.reviews_made += 1;
        let mut draft = Draft::new(EventType::ReviewCompleted).with("reviewer", "evaluators");
        draft = draft.with("reviewId", format!("ethos-review-{}", self.memory.reviews_made));
        let results = fact.get("results").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let passed: Option<Vec<bool>> = results.iter().map(|result| result.get("pass").and_then(Value::as_bool)).collect();
        // The draft has no verdict if no evaluator ran or if one of them did not decide.
        if let Some(passed) = passed.filter(|passed| !passed.is_empty()) {
            draft = draft.with("verdict", if passed.contains(&false) { "failed" } else { "passed" });
        }
        let draft = draft.with_moved(&mut fact, &[("results", "results")]);
        self.push_carrying(draft.with_scope(Scope::Turn).with_audience(Audience::Dashboard), fact);
    }

    /// Handles a notice of the loop itself, which Ethos sends under a reserved tool name.
    pub(super) fn loop_notice(&mut self, name: &str, mut fact: Fact) {
        let audience = take_audience(&mut fact, Audience::Internal);
        if name == "_compaction" {
            return self.compacted(audience, fact);
        }
        let mut draft = Draft::new(EventType::RunStatus).with("notice", name);
        draft.move_members(&mut fact, &[("message", "message"), ("percent", "percent")]);
        draft.owner = if name == "_watcher" { Owner::Policy } else { Owner::Runtime };
        draft.phase = match name {
            "_watcher" | "_budget" | "_approval" => Phase::Interrupted,
            _ if self.memory.turn_state == TurnState::Paused => Phase::Waiting,
            _ => Phase::Acting,
        };
        (draft.scope, draft.audience) = (Scope::Turn, audience);
        self.push_carrying(draft, fact);
    }

    fn compacted(&mut self, audience: Audience, mut fact: Fact) {
        let made = &mut self.memory.compactions_made[audience.index()];
        *made += 1;
        let id = match audience {
            Audience::User => format!("ethos-compaction-{made}"),
            narrower => format!("ethos-{narrower}-compaction-{made}"),
        };
        let draft = Draft::new(EventType::ContextCompactionCompleted).with("compactionId", id).with_audience(audience);
        self.push_carrying(draft.with_moved(&mut fact, &[("message", "message"), ("percent", "percent")]), fact);
    }

    /// Ends the open calls of a turn that pauses. Only the end of a run closes calls by itself.
    fn interrupt_calls(&mut self) {
        for call in self.memory.calls.end_all() {
            let error = error(Some("interrupted"), "the turn stopped before the call ended");
            let draft = Draft::new(EventType::ToolFailed).with_tool_name(Some(call.name)).with_call(call.id);
            let draft = draft.call(|call| call.error = Some(Box::new(error.into())));
            self.push(draft.with_owner(Owner::Runtime).with_phase(Phase::Interrupted));
        }
    }
}
