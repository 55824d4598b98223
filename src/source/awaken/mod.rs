//! Awaken: the runtime's `AgentEvent`, told apart by `event_type`, into our vocabulary; alone, or in the wrapper in which its
//! server stores it (`canonical`).
//!
//! Awaken names neither run nor message on its events: both come from the boundaries before them (`run_start`, `step_start`),
//! which is why this adapter remembers where a run stands. A suspension is a pause and never an end; a step is one message,
//! whatever reconnects happened in it; the text that was streamed is the text, and `result.response` (only the last message,
//! or its tail) replaces nothing. State snapshots hold the runtime's internals and stay internal. Never refuses an event
//! type or a member that it does not know, and never remembers a body.

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

/// Calls that are open at once; beyond that the oldest counts as ended here. Real steps have a handful.
const CALLS_OPEN_MAX: usize = 256;

/// Ended calls whose late activities are still known to be about a call.
const CALLS_ENDED_MAX: usize = 64;

/// Where the run stands, as far as its own boundaries say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Life {
    #[default]
    New,
    Open,
    /// Suspended, or finished with work outstanding: another start of the same run goes on.
    Paused,
    Ended,
}

/// A call that has started and not ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    id: ToolCallId,
    name: String,
    /// How much of its arguments was streamed, in bytes.
    args_bytes: u64,
    /// Whether the model finished asking for it. A call that never got there never runs.
    ready: bool,
}

/// An action that waits for its answer. Awaken answers by call id alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    call: ToolCallId,
    action: ActionId,
    approval: bool,
    /// The hash of the question, where it came in a wrapper: such a one comes twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
}

/// The adapter; all of it is memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Awaken {
    life: Life,
    /// Starts that were no resumption.
    attempt: u64,
    /// Awaken's own id of the run, which need not be ours.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    /// The message of the current step.
    message: Option<MessageId>,
    /// The part that text continues; `None` also after a tool call, when text begins a new part.
    text: Option<PartId>,
    text_is_unsealed: bool,
    reasoning: Option<PartId>,
    /// Whether this attempt is a child agent's, whose card on the roster ends with it.
    is_subagent: bool,
    /// Whether any text was streamed in this attempt.
    text_was_streamed: bool,
    messages_made: u64,
    parts_made: u64,
    calls: Vec<Call>,
    ended_calls: VecDeque<ToolCallId>,
    pending: Vec<Pending>,
    /// The hash of the last compaction state.
    compaction: Option<String>,
}

/// The members that an event cannot do without: text, and an id is not empty.
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
    /// Adapts an event as it comes out of the runtime.
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
        let mut step = Step { memory: self, given, out };
        match event_type.as_str() {
            "run_start" => step.run_start(fact),
            "run_finish" => step.run_finish(fact),
            "step_start" => step.step_start(fact)?,
            "step_end" => step.step_end(fact),
            "text_delta" => step.text_delta(fact),
            "reasoning_delta" => step.reasoning_delta(fact),
            "reasoning_encrypted_value" => step.reasoning_encrypted_value(fact),
            "tool_call_start" => step.tool_call_start(fact)?,
            "tool_call_delta" => step.tool_call_delta(fact)?,
            "tool_call_ready" => step.tool_call_ready(fact)?,
            "tool_call_stream_delta" => step.tool_call_stream_delta(fact)?,
            "tool_call_done" => step.tool_call_done(fact)?,
            "tool_call_resumed" => step.tool_call_resumed(fact)?,
            "tool_call_cancel" => step.tool_call_cancel(fact)?,
            "stream_reset" => step.stream_reset(fact),
            "activity_snapshot" => step.activity_snapshot(fact)?,
            "activity_delta" => step.activity_delta(fact)?,
            "messages_snapshot" => step.messages_snapshot(fact),
            "inference_complete" => step.inference_complete(fact),
            "state_snapshot" => step.state_snapshot(fact),
            "state_delta" => step.state_delta(fact),
            "error" => step.error(fact),
            unknown => step.push(unknown_type(unknown, fact)),
        }
        Ok(())
    }

    /// The draft with the ids that hold for whatever this run now says. What was given wins over Awaken's own notion.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.or(given);
        let own = Ids {
            session: self.session.clone(),
            thread: self.thread.clone(),
            turn: self.message.as_ref().and_then(|m| TurnId::new(m.as_str()).ok()),
            agent: self.agent.clone(),
            parent_thread: self.parent_thread.clone(),
            ..Ids::default()
        };
        draft.ids.or(&own);
        draft
    }

    /// The message of the current step; one is made up where Awaken gives none.
    fn message(&mut self) -> MessageId {
        if self.message.is_none() {
            self.message = Some(self.made_message());
        }
        self.message.clone().expect("just set")
    }

    // The source in made-up ids keeps them away from those that another source's adapter makes up for the same run.
    fn made_message(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("awaken-message-{}", self.messages_made)).expect("a short name with a number is an id")
    }

    fn made_part(&mut self) -> PartId {
        self.parts_made += 1;
        PartId::new(&format!("awaken-part-{}", self.parts_made)).expect("a short name with a number is an id")
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

/// One event on its way.
struct Step<'a> {
    memory: &'a mut Awaken,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
}

impl Step<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }
}

/// What a text is known by where only its sameness matters.
fn hash_of(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..8])
}

/// Adds members that have no place of their own, under their own names, where the payload does not have them yet.
fn add_rest(draft: &mut Draft, rest: Map<String, Value>) {
    for (member, value) in rest {
        if member != "message" || !value.is_null() {
            draft.payload.entry(member).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
