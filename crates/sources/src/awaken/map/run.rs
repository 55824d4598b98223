//! A run's boundaries: starts, suspensions, ends and restarts.
//!
//! A suspension is a pause, never an end. Events between two boundaries do not identify their run.

use super::EventHandler;
use crate::Fact;
use crate::members::{add_rest, carry_all, diagnostic, take_id, take_object, take_text};
use crate::turn::{TurnState, ended, error, failed, started, take_error, waiting};
use proscenium_model::{AgentId, Draft, EventType, Owner, Phase, RunId, SessionId, ThreadId};
use serde_json::{Map, Value};

/// The identity members of a run's boundary event.
struct Boundary {
    thread: Option<ThreadId>,
    run: Option<RunId>,
    parent_run: Option<String>,
    session: Option<SessionId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    parent_call: Option<String>,
    is_subagent: bool,
    /// The remaining members of `identity`.
    identity: Map<String, Value>,
}

impl Boundary {
    fn take(fact: &mut Fact) -> Self {
        let mut identity = take_object(fact, "identity");
        // The identity repeats the event's own ids. Different ids stay in the identity.
        for member in ["thread_id", "run_id", "parent_run_id"] {
            match identity.shift_remove(member) {
                Some(said) if fact.get(member).is_none() => drop(fact.insert(member.into(), said)),
                Some(said) if fact.get(member) != Some(&said) => drop(identity.insert(member.into(), said)),
                _ => {}
            }
        }
        let thread = take_id(fact, "thread_id");
        let run = take_id(fact, "run_id");
        Self {
            parent_run: take_text(fact, "parent_run_id"),
            session: take_id(&mut identity, "session_id"),
            parent_thread: take_id(&mut identity, "parent_thread_id"),
            agent: take_id(&mut identity, "agent_id"),
            parent_call: take_text(&mut identity, "parent_tool_call_id"),
            is_subagent: identity.get("origin").and_then(Value::as_str) == Some("subagent"),
            thread,
            run,
            identity,
        }
    }

    /// Writes the members that no id of the draft holds.
    fn write_to(self, draft: &mut Draft) {
        let run = self.run.filter(|run| draft.ids.run.as_ref() != Some(run)).map(|run| run.as_str().to_owned());
        for (rel, id) in [("runId", run), ("parentRunId", self.parent_run), ("parentToolCallId", self.parent_call)] {
            draft.add_ref(rel, id);
        }
        draft.set("identity", (!self.identity.is_empty()).then(|| Value::Object(self.identity)));
    }
}

impl EventHandler<'_> {
    pub(super) fn run_start(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let is_another = memory.has_another_run(&fact);
        if is_another && memory.turn_state == TurnState::Open {
            // The events up to the ends do not identify their run, so the adapter only flags the start.
            let open = memory.run.as_ref().map_or(Value::Null, |run| run.as_str().into());
            return self.push(diagnostic("interleaved_run", "run_start", fact).with("openRun", open));
        }
        let resumed = memory.turn_state == TurnState::Paused && !is_another;
        if memory.turn_state == TurnState::Open {
            // Awaken's bare loop stops without an end event, and its mailbox then restarts the same run.
            self.seal();
            self.interrupt_calls();
        }
        let boundary = Boundary::take(&mut fact);
        let memory = &mut *self.memory;
        memory.turn_state = TurnState::Open;
        if is_another {
            (memory.session, memory.thread, memory.parent_thread, memory.agent) = (None, None, None, None);
        }
        self.store_ids(&boundary);
        if !resumed {
            self.memory.message = None;
            self.memory.text_was_streamed = false;
        }
        let draft = carry_all(started(resumed, self.out.next_attempt()), fact);
        let mut draft = self.memory.about(draft, self.given);
        let spawned = boundary.is_subagent && !resumed;
        boundary.write_to(&mut draft);
        let refs = draft.refs.clone();
        self.push(draft);
        if !resumed {
            self.memory.is_subagent = spawned;
        }
        if spawned {
            self.agent_spawned(refs);
        }
    }

    fn store_ids(&mut self, boundary: &Boundary) {
        let memory = &mut *self.memory;
        let session = boundary.session.clone().or_else(|| boundary.thread.as_ref().and_then(|t| SessionId::new(t.as_str()).ok()));
        memory.run = boundary.run.clone().or(memory.run.take());
        memory.session = session.or(memory.session.take());
        memory.thread = boundary.thread.clone().or(memory.thread.take());
        memory.parent_thread = boundary.parent_thread.clone().or(memory.parent_thread.take());
        // An end from Awaken's mailbox lacks the agent in its identity, but the agent is still the same.
        memory.agent = boundary.agent.clone().or(memory.agent.take());
    }

    fn agent_spawned(&mut self, refs: Option<Value>) {
        let mut draft = self.memory.about(Draft::new(EventType::AgentSpawned), self.given);
        let Some(agent) = &draft.ids.agent else { return };
        let name = agent.as_str().to_owned();
        draft = draft.with("agentName", name).with("runtimeEntity", "subagent_turn").with("runtimeStatus", "running");
        draft.refs = refs;
        self.push(draft);
    }

    /// Ends the run's child agent with the run: no other event ends it.
    fn agent_completed(&mut self, end: &Draft) {
        if std::mem::take(&mut self.memory.is_subagent) {
            let status = end.text("status").unwrap_or("failed").to_owned();
            let draft = Draft::new(EventType::AgentCompleted).with("status", status).with("runtimeEntity", "subagent_turn");
            let draft = self.memory.about(draft.with_phase(end.phase.clone()), self.given);
            self.out.extend(Some(draft).filter(|draft| draft.ids.agent.is_some()));
        }
    }

    pub(super) fn run_finish(&mut self, mut fact: Fact) {
        if self.memory.has_another_run(&fact) {
            return self.push(diagnostic("interleaved_run", "run_finish", fact));
        }
        let boundary = Boundary::take(&mut fact);
        if self.memory.run.is_none() {
            self.store_ids(&boundary);
        }
        let mut result = fact.shift_remove("result").filter(|v| !v.is_null());
        let response = result.as_mut().and_then(Value::as_object_mut).and_then(|result| take_text(result, "response"));
        let outstanding = result.as_ref().and_then(|r| r.get("status")).and_then(Value::as_str) == Some("waiting");
        let mut draft = finish(fact.shift_remove("termination"), outstanding);
        self.seal();
        if let Some(text) = response.filter(|text| !text.is_empty() && !self.memory.text_was_streamed) {
            self.memory.text_was_streamed = true;
            self.answer(text);
        }
        draft.set("result", result.filter(|r| r.as_object().is_none_or(|r| !r.is_empty())));
        self.memory.message = None;
        draft = self.memory.about(carry_all(draft, fact), self.given);
        boundary.write_to(&mut draft);
        if draft.event_type == EventType::RunStatus {
            self.memory.turn_state = TurnState::Paused;
        } else {
            self.agent_completed(&draft);
            self.end();
        }
        self.push(draft);
    }

    /// Reports the answer of a run that streamed no text.
    fn answer(&mut self, text: String) {
        let message = self.memory.message();
        self.push(Draft::new(EventType::TextFinal).with_text(text).with_message(message));
    }

    pub(super) fn error(&mut self, mut fact: Fact) {
        self.seal();
        self.memory.message = None;
        let error = take_error(&mut fact, "the run failed without saying why");
        let draft = carry_all(Draft::new(EventType::RunFailed).with("error", error).with("retryable", true), fact);
        self.agent_completed(&draft);
        self.end();
        self.push(draft);
    }

    /// Clears the open items. The run's end closes them in the log.
    fn end(&mut self) {
        self.memory.turn_state = TurnState::Ended;
        self.memory.pending.clear();
        self.memory.calls.end_all();
    }
}

/// Converts a termination into a draft.
/// A pause is a status; an unknown termination is an end with an unknown phase.
fn finish(termination: Option<Value>, outstanding: bool) -> Draft {
    let (name, value) = match termination {
        Some(Value::Object(mut termination)) => {
            let name = take_text(&mut termination, "type").unwrap_or_else(|| "unknown".into());
            (name, termination.shift_remove("value").unwrap_or(Value::Null))
        }
        Some(Value::String(name)) => (name, Value::Null),
        other => ("unknown".into(), other.unwrap_or(Value::Null)),
    };
    let failed = |code: Option<&str>| failed(error(code, value.as_str().unwrap_or("the run failed without saying why")));
    let mut draft = match name.as_str() {
        "suspended" => waiting(),
        "natural_end" if outstanding => waiting(),
        "natural_end" | "behavior_requested" | "plugin_requested" => ended(Phase::Completed, "completed"),
        "cancelled" => ended(Phase::Cancelled, "cancelled"),
        "stopped" => ended(Phase::Interrupted, "interrupted"),
        "blocked" => failed(Some("blocked")).with_owner(Owner::Policy),
        "error" => failed(None),
        _ => ended(Phase::Unknown, "unknown"),
    };
    draft.payload.insert("termination", name.into());
    match value {
        Value::Object(rest) => add_rest(&mut draft, rest),
        Value::Null => {}
        value if draft.event_type == EventType::RunFailed && value.is_string() => {}
        value => draft.payload.insert("value", value),
    }
    draft
}
