//! Responses and the run: starts, pauses and ends.
//!
//! The first response starts the run, and the later ones are its steps. A response completes the run if nothing waits:
//! neither an approval nor a call that the caller runs. The end of the stream completes a run whose functions the client
//! has to run.

use super::event::{FAKE_ID, STREAM_ENDED};
use super::{EventHandler, OpenAiResponses, TurnState};
use crate::Fact;
use crate::bounded::Calls;
use crate::members::{carry_all, diagnostic, name_of, take_text};
use crate::turn::{ended, error, waiting};
use proscenium_model::{Audience, Draft, EventType, Owner, Phase, ThreadId};
use serde_json::{Map, Value, json};

/// Members of a response that every event about it repeats.
#[rustfmt::skip]
const REPEATED: &[&str] = &[
    "id", "object", "created_at", "status", "background", "model", "instructions", "tools", "tool_choice", "parallel_tool_calls",
    "temperature", "top_p", "top_logprobs", "reasoning", "text", "truncation", "store", "metadata", "previous_response_id",
    "conversation", "max_output_tokens", "max_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "user",
    "completed_at",
];

/// Counts of a usage: their place in it, and the protocol's name.
const COUNTS: &[(&str, &str)] = &[
    ("/input_tokens", "inputTokens"),
    ("/output_tokens", "outputTokens"),
    ("/total_tokens", "totalTokens"),
    ("/input_tokens_details/cached_tokens", "cacheReadTokens"),
    ("/input_tokens_details/cache_write_tokens", "cacheCreationTokens"),
    ("/output_tokens_details/reasoning_tokens", "thinkingTokens"),
];

/// Error codes after which the same request may succeed.
const RETRYABLE: &[&str] = &["rate_limit_exceeded", "server_error"];

/// Takes the response of an event.
fn take_response(fact: &mut Fact) -> Map<String, Value> {
    match fact.shift_remove("response") {
        Some(Value::Object(mut response)) => {
            response.retain(|_, value| !value.is_null());
            response
        }
        _ => Map::new(),
    }
}

impl EventHandler<'_> {
    // ── starts ──

    /// Opens the run before an event that implies it: a resumed stream starts in the middle of a response.
    pub(super) fn proceed(&mut self) {
        if self.memory.turn_state == TurnState::New {
            self.begin(Map::new(), Map::new());
        }
    }

    /// Whether an event repeats one of the current response, because a resumed stream overlaps. Remembers its number.
    pub(super) fn is_repeated(&mut self, sequence: Option<u64>) -> bool {
        let Some(number) = sequence else { return false };
        let last = self.memory.sequence;
        // A server that always sends 0 does not number its events.
        if last.is_some_and(|last| number < last || number == last && number > 0) {
            return true;
        }
        self.memory.sequence = Some(number);
        false
    }

    pub(super) fn created(&mut self, mut fact: Fact, sequence: Option<u64>) {
        let response = take_response(&mut fact);
        let id = response.get("id").and_then(Value::as_str).map(name_of);
        let is_known = id.is_some() && id == self.memory.response && id.as_deref() != Some(FAKE_ID);
        if is_known && !self.memory.response_is_over && sequence <= self.memory.sequence {
            return;
        }
        self.close_parts();
        let memory = &mut *self.memory;
        (memory.response, memory.sequence) = (id, sequence);
        (memory.response_is_over, memory.has_refused, memory.has_forgotten_items) = (false, false, false);
        memory.continues = response.contains_key("previous_response_id");
        memory.responses += 1;
        memory.items.clear();
        match self.memory.turn_state {
            TurnState::New | TurnState::Ended => self.begin(response, fact),
            state => {
                self.close_answered_calls();
                self.memory.turn_state = TurnState::Open;
                let mut draft = Draft::new(EventType::RunStatus).with("step", "started");
                match state {
                    TurnState::Paused => draft = draft.with("resumed", true),
                    _ => draft.audience = Audience::Dashboard,
                }
                self.describe(draft, response, fact);
            }
        }
    }

    /// Starts an attempt of the run.
    fn begin(&mut self, response: Map<String, Value>, rest: Fact) {
        let memory = &mut *self.memory;
        memory.turn_state = TurnState::Open;
        memory.pending.clear();
        memory.calls = Calls::default();
        memory.ended.clear();
        memory.other_names.clear();
        // A stream that was resumed in its middle has no event that counts the response.
        memory.responses = memory.responses.max(1);
        let draft = Draft::new(EventType::RunStarted).with("attempt", self.out.next_attempt());
        self.describe(draft, response, rest);
    }

    /// Reports a response: its model and ids for users, and what it was asked with for internal readers.
    fn describe(&mut self, mut draft: Draft, mut response: Map<String, Value>, rest: Fact) {
        draft.set("model", response.get("model").cloned());
        for (member, rel) in [("id", "responseId"), ("previous_response_id", "previousResponseId")] {
            draft.add_ref(rel, response.get(member).filter(|id| id.is_string()).cloned());
        }
        let conversation = response.get("conversation").map(|conversation| conversation.get("id").unwrap_or(conversation));
        if let Some(thread) = conversation.and_then(Value::as_str).and_then(|id| ThreadId::new(id).ok()) {
            self.memory.thread = Some(thread);
        }
        self.push(carry_all(draft, rest));
        for member in ["output", "usage"] {
            response.shift_remove(member);
        }
        self.push_internal("response", "response.created", response);
    }

    pub(super) fn response_status(&mut self, phase: &str, mut fact: Fact) {
        take_response(&mut fact);
        self.push(carry_all(Draft::new(EventType::RunStatus).with_phase(phase), fact));
    }

    // ── ends ──

    pub(super) fn completed(&mut self, mut fact: Fact) {
        self.end_response("response.completed", &mut fact);
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end("response.completed", fact);
        }
        self.reject_unanswered();
        self.close_parts();
        if !self.memory.pending.is_empty() {
            self.memory.turn_state = TurnState::Paused;
            return self.push(carry_all(waiting(), fact));
        }
        if self.leave_calls_to_the_caller() {
            let draft = Draft::new(EventType::RunStatus).with("step", "ended");
            return self.push(carry_all(draft, fact));
        }
        let draft = ended(Phase::Completed, "completed").with_some("refused", self.memory.has_refused.then_some(true));
        self.end(carry_all(draft, fact));
    }

    /// Completes the run if the last response left calls of functions to the client, and nothing on the stream ran them.
    ///
    /// A stream that breaks within a response completes nothing. The tools of the Agents SDK run at the agent.
    pub(super) fn stream_ended(&mut self, fact: Fact) {
        let memory = &self.memory;
        let is_over = memory.turn_state == TurnState::Open && memory.response_is_over && !memory.form.is_of_agents_sdk();
        if is_over && self.await_client() {
            return self.end(carry_all(ended(Phase::Completed, "completed"), fact));
        }
        self.push_internal("stream", STREAM_ENDED, fact);
    }

    pub(super) fn incomplete(&mut self, mut fact: Fact) {
        let details = fact.get("response").and_then(|response| response.get("incomplete_details"));
        let reason = details.and_then(|details| details.get("reason")).and_then(Value::as_str).map(str::to_owned);
        self.end_response("response.incomplete", &mut fact);
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end("response.incomplete", fact);
        }
        if reason.as_deref() == Some("steered") {
            self.close_parts();
            let draft = Draft::new(EventType::RunStatus).with("reason", reason);
            return self.push(carry_all(draft, fact));
        }
        let owner = if reason.as_deref() == Some("content_filter") { Owner::Policy } else { Owner::Runtime };
        let draft = ended(Phase::Interrupted, "interrupted").with_some("reason", reason).with_owner(owner);
        self.end(carry_all(draft, fact));
    }

    pub(super) fn failed(&mut self, mut fact: Fact) {
        let error = fact.get("response").and_then(|response| response.get("error")).cloned();
        self.end_response("response.failed", &mut fact);
        self.fail("response.failed", error, fact);
    }

    /// Ends the run with an error: flat by the types, nested by some servers.
    pub(super) fn error(&mut self, mut fact: Fact) {
        let error = fact.shift_remove("error").unwrap_or_else(|| {
            let members = ["code", "message", "param"].iter();
            Value::Object(members.filter_map(|member| fact.shift_remove_entry(*member)).collect())
        });
        self.fail("error", Some(error), fact);
    }

    fn fail(&mut self, event_type: &str, reported: Option<Value>, rest: Fact) {
        if self.memory.turn_state == TurnState::Ended {
            return self.late_end(event_type, rest);
        }
        let text = |member: &str| reported.as_ref().and_then(|error| error.get(member)).and_then(Value::as_str);
        let code = text("code").or_else(|| text("type"));
        let message = text("message").or_else(|| reported.as_ref().and_then(Value::as_str));
        let is_retryable = code.is_some_and(|code| RETRYABLE.contains(&code)).then_some(true);
        let error = error(code, message.unwrap_or("the response failed without saying why"));
        let draft = Draft::new(EventType::RunFailed).with("status", "failed").with_some("retryable", is_retryable);
        self.end(carry_all(draft.with("error", error), rest));
    }

    /// Takes the response out of its last event: completes the items, and reports the usage.
    fn end_response(&mut self, event_type: &str, fact: &mut Fact) {
        let mut response = take_response(fact);
        if let Some(Value::Array(output)) = response.shift_remove("output") {
            self.complete_items(output);
        }
        if let Some(usage) = response.shift_remove("usage") {
            let counts = COUNTS.iter().filter_map(|(at, ours)| Some(((*ours).to_owned(), usage.pointer(at)?.as_u64()?.into())));
            let usage: Map<_, _> = counts.chain([("llmCalls".to_owned(), json!(1))]).collect();
            let draft = Draft::new(EventType::MetricChanged).with("kind", "llm_call").with("usage", usage);
            self.push(draft.with_audience(Audience::Dashboard));
        }
        response.retain(|member, _| {
            !REPEATED.contains(&member.as_str()) && !matches!(member.as_str(), "error" | "incomplete_details")
        });
        self.push_internal("response", event_type, response);
        self.memory.response_is_over = true;
    }

    fn end(&mut self, draft: Draft) {
        self.memory.end_calls();
        self.memory.pending.clear();
        self.memory.turn_state = TurnState::Ended;
        self.push(draft);
    }

    /// Keeps an end after the run's end. Some servers send both `error` and `response.failed`.
    fn late_end(&mut self, event_type: &str, fact: Fact) {
        self.push(diagnostic("late_end", event_type, fact));
    }

    pub(super) fn operators_diagnostic(&mut self, event_type: &str, mut fact: Fact) {
        let draft = Draft::new(EventType::DiagnosticChanged).with("kind", event_type.trim_start_matches("response."));
        let draft = draft.with_some("message", take_text(&mut fact, "message")).with("event", Value::Object(fact));
        self.push(draft.with_audience(Audience::Dashboard));
    }
}

impl OpenAiResponses {
    /// Whether the run has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.turn_state == TurnState::Ended
    }
}
