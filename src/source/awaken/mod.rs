//! The source `awaken`: the runtime's `AgentEvent`, with `event_type` as the discriminator.
//!
//! The adapter accepts bare events and events in the wrapper in which Awaken's server stores them (`canonical`). Events
//! name neither run nor message: both follow from the preceding boundaries (`run_start`, `step_start`). So the adapter
//! tracks the run's state.
//!
//! * A suspension is a pause, never an end.
//! * A step is one message, across all reconnects.
//! * The streamed chunks are the text. `result.response` (only the last message, or its tail) replaces nothing.
//! * State snapshots hold runtime internals and stay internal.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.

mod actions;
mod activities;
mod calls;
mod canonical;
mod messages;
mod run;
mod state;

use super::members::{diagnostic, take_type, unknown_type};
use super::{Adapter, Fact, FactError, SourceKind};
use crate::model::{ActionId, AgentId, Draft, Ids, MessageId, PartId, RunId, SessionId, ThreadId, ToolCallId, TurnId};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// The source `awaken`.
pub const SOURCE: SourceKind = SourceKind {
    name: "awaken",
    fresh: || Box::new(Awaken::default()),
    restore: |memory| Ok(Box::new(serde_json::from_slice::<Awaken>(memory)?)),
    answers: None,
};

/// The discriminator.
const TYPE: &str = "event_type";

/// The most open calls.
/// Beyond this limit the oldest counts as ended. Real steps have a handful.
const CALLS_OPEN_MAX: usize = 256;

/// The most ended calls that the adapter remembers, to assign late activities to them.
const CALLS_ENDED_MAX: usize = 64;

/// The lifecycle state of the run, according to its boundary events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TurnState {
    #[default]
    New,
    Open,
    /// Suspended, or finished with outstanding work.
    /// Another start of the same run resumes it.
    Paused,
    Ended,
}

/// A started call without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    id: ToolCallId,
    name: String,
    /// The length of the streamed arguments, in bytes.
    args_bytes: u64,
    /// Whether the model completed the request.
    /// A call with an incomplete request never runs.
    ready: bool,
}

/// A pending action.
/// Awaken's answers name only the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    call: ToolCallId,
    action: ActionId,
    approval: bool,
    /// The hash of the question, if it arrived in a wrapper: Awaken stores such a question twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
}

/// The adapter.
/// All its fields are memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Awaken {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// The number of starts, without resumptions.
    attempt: u64,
    /// Awaken's own id of the run; it may differ from the server's.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    /// The message of the current step.
    message: Option<MessageId>,
    /// The part that text continues.
    /// `None` after a tool call: text then starts a new part.
    text: Option<PartId>,
    text_is_unsealed: bool,
    reasoning: Option<PartId>,
    /// Whether this attempt belongs to a child agent.
    /// Its card on the roster ends with the attempt.
    is_subagent: bool,
    /// Whether this attempt has streamed any text.
    text_was_streamed: bool,
    messages_made: u64,
    parts_made: u64,
    calls: Vec<Call>,
    ended_calls: VecDeque<ToolCallId>,
    pending: Vec<Pending>,
    /// The hash of the last compaction state.
    compaction: Option<String>,
}

/// Returns the required members of an event.
/// Each is text, and an id must not be empty.
fn required(event_type: &str) -> &'static [&'static str] {
    match event_type {
        "text_delta" | "reasoning_delta" => &["delta"],
        "tool_call_start" | "tool_call_ready" | "tool_call_done" | "tool_call_cancel" => &["id"],
        "tool_call_delta" => &["id", "args_delta"],
        "tool_call_stream_delta" => &["id", "delta"],
        "tool_call_resumed" => &["target_id"],
        "activity_snapshot" | "activity_delta" => &["message_id", "activity_type"],
        _ => &[],
    }
}

impl Adapter for Awaken {
    fn adapt(&mut self, fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        if canonical::is_wrapped(&fact) { self.adapt_wrapped(fact, given, out) } else { self.adapt_native(fact, given, out) }
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
    }
}

impl Awaken {
    /// Adapts a bare event of the runtime.
    fn adapt_native(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let event_type = take_type(&mut fact, TYPE)?;
        let has = |member: &str| {
            fact.get(member).and_then(Value::as_str).is_some_and(|text| !text.is_empty() || member.ends_with("delta"))
        };
        if let Some(member) = required(&event_type).iter().find(|member| !has(member)) {
            let malformed = diagnostic("malformed_event", &event_type, fact).with("expected", format!("{member} as text"));
            out.push(self.about(malformed, given));
            return Ok(());
        }
        let mut handler = EventHandler { memory: self, given, out };
        match event_type.as_str() {
            "run_start" => handler.run_start(fact),
            "run_finish" => handler.run_finish(fact),
            "step_start" => handler.step_start(fact)?,
            "step_end" => handler.step_end(fact),
            "text_delta" => handler.text_delta(fact),
            "reasoning_delta" => handler.reasoning_delta(fact),
            "reasoning_encrypted_value" => handler.reasoning_encrypted_value(fact),
            "tool_call_start" => handler.tool_call_start(fact)?,
            "tool_call_delta" => handler.tool_call_delta(fact)?,
            "tool_call_ready" => handler.tool_call_ready(fact)?,
            "tool_call_stream_delta" => handler.tool_call_stream_delta(fact)?,
            "tool_call_done" => handler.tool_call_done(fact)?,
            "tool_call_resumed" => handler.tool_call_resumed(fact)?,
            "tool_call_cancel" => handler.tool_call_cancel(fact)?,
            "stream_reset" => handler.stream_reset(fact),
            "activity_snapshot" => handler.activity_snapshot(fact)?,
            "activity_delta" => handler.activity_delta(fact)?,
            "messages_snapshot" => handler.messages_snapshot(fact),
            "inference_complete" => handler.inference_complete(fact),
            "state_snapshot" => handler.state_snapshot(fact),
            "state_delta" => handler.state_delta(fact),
            "error" => handler.error(fact),
            unknown => handler.push(unknown_type(unknown, fact)),
        }
        Ok(())
    }

    /// Adds the run's current ids to the draft.
    /// The request's ids override Awaken's own.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.fill_from(given);
        let own = Ids {
            session: self.session.clone(),
            thread: self.thread.clone(),
            turn: self.message.as_ref().and_then(|m| TurnId::new(m.as_str()).ok()),
            agent: self.agent.clone(),
            parent_thread: self.parent_thread.clone(),
            ..Ids::default()
        };
        draft.ids.fill_from(&own);
        draft
    }

    /// Returns the message of the current step.
    /// Generates an id if Awaken gives none.
    fn message(&mut self) -> MessageId {
        if self.message.is_none() {
            self.message = Some(self.new_message_id());
        }
        self.message.clone().expect("the lines above set the message")
    }

    // The prefix prevents collisions with ids that another source's adapter generates for the same run.
    fn new_message_id(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("awaken-message-{}", self.messages_made)).expect("a short name with a number is a valid id")
    }

    fn new_part_id(&mut self) -> PartId {
        self.parts_made += 1;
        PartId::new(&format!("awaken-part-{}", self.parts_made)).expect("a short name with a number is a valid id")
    }

    fn call(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    fn knows_call(&self, id: &ToolCallId) -> bool {
        self.call(id).is_some() || self.ended_calls.contains(id)
    }

    fn open_call(&mut self, call: Call) {
        self.calls.retain(|open| open.id != call.id);
        if self.calls.len() == CALLS_OPEN_MAX {
            let oldest = self.calls.remove(0);
            self.remember_ended(oldest.id);
        }
        self.calls.push(call);
    }

    fn end_call(&mut self, id: &ToolCallId) {
        self.calls.retain(|open| open.id != *id);
        self.remember_ended(id.clone());
    }

    fn remember_ended(&mut self, id: ToolCallId) {
        if self.ended_calls.contains(&id) {
            return;
        }
        if self.ended_calls.len() == CALLS_ENDED_MAX {
            self.ended_calls.pop_front();
        }
        self.ended_calls.push_back(id);
    }

    fn has_another_run(&self, fact: &Fact) -> bool {
        let native = fact.get("run_id").and_then(Value::as_str).filter(|id| !id.is_empty());
        native.is_some_and(|native| self.run.as_ref().is_some_and(|run| run.as_str() != native))
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut Awaken,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
}

impl EventHandler<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }
}

/// Hashes a text for equality checks.
fn hash_of(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..8])
}

/// Adds remaining members to the payload under their own names.
/// Existing members keep their value.
fn add_rest(draft: &mut Draft, rest: Map<String, Value>) {
    for (member, value) in rest {
        if member != "message" || !value.is_null() {
            draft.payload.entry(member).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
