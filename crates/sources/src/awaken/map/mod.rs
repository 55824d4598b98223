//! What Awaken's events mean.

mod actions;
mod activities;
mod calls;
mod messages;
mod run;
mod state;
mod wrapped;

use super::event::{Event, Kind, Native, TYPE, Unread, parse};
use crate::bounded::{Bounded, CALLS_OPEN_MAX, Calls, keyed};
use crate::members::{malformed, next_id, take_text, unknown_type};
use crate::turn::TurnState;
use crate::{Drafts, Fact, Parser, Runtime};
use proscenium_model::{ActionId, AgentId, Draft, Ids, MessageId, PartId, RunId, SessionId, ThreadId, ToolCallId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A started call without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    id: ToolCallId,
    name: String,
    /// The length of the streamed arguments, in bytes.
    args_bytes: u64,
    /// Whether the model completed the request. A call with an incomplete request never runs.
    ready: bool,
}

/// A pending action. Awaken's answers name only the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    call: ToolCallId,
    action: ActionId,
    approval: bool,
    /// The hash of the question, if it arrived in a wrapper: Awaken stores such a question twice.
    asked: Option<String>,
}

keyed! { Call: ToolCallId = id; Pending: ToolCallId = call; }

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Awaken {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// Awaken's own id of the run; it may differ from the server's.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    /// The message of the current step.
    message: Option<MessageId>,
    /// The part that text continues. `None` after a tool call: text then starts a new part.
    text: Option<PartId>,
    text_is_unsealed: bool,
    reasoning: Option<PartId>,
    /// Whether this attempt belongs to a child agent. Its card on the roster ends with the attempt.
    is_subagent: bool,
    /// Whether this attempt has streamed any text.
    text_was_streamed: bool,
    messages_made: u64,
    parts_made: u64,
    calls: Calls<Call>,
    pending: Bounded<Pending, CALLS_OPEN_MAX>,
    /// The hash of the last compaction state.
    compaction: Option<String>,
}

impl Runtime for Awaken {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn apply(&mut self, event: Event, given: &Ids, mut out: Drafts<'_>) {
        match event {
            Event::Bare(native) => self.apply_native(native, given, out),
            Event::Wrapped(wrapper, native) => self.apply_wrapped(*wrapper, native, given, out),
            Event::Malformed(draft) => out.push(self.about(*draft, given)),
        }
    }
}

impl Awaken {
    /// Applies an event of the runtime.
    fn apply_native(&mut self, Native { kind, members: mut fact }: Native, given: &Ids, out: Drafts<'_>) {
        let mut handler = EventHandler { memory: self, given, out };
        let event_type = take_text(&mut fact, TYPE).unwrap_or_default();
        let kind = match kind {
            Ok(kind) => kind,
            Err(Unread::UnknownType) => return handler.push(unknown_type(&event_type, fact)),
            Err(Unread::Malformed(expected)) => return handler.push(malformed(&event_type, fact, &expected)),
        };
        match kind {
            Kind::RunStart => handler.run_start(fact),
            Kind::RunFinish => handler.run_finish(fact),
            Kind::StepStart => handler.step_start(fact),
            Kind::StepEnd => handler.step_end(fact),
            Kind::TextDelta => handler.text_delta(fact),
            Kind::ReasoningDelta => handler.reasoning_delta(fact),
            Kind::ReasoningEncryptedValue => handler.reasoning_encrypted_value(fact),
            Kind::ToolCallStart => handler.tool_call_start(fact),
            Kind::ToolCallDelta => handler.tool_call_delta(fact),
            Kind::ToolCallReady => handler.tool_call_ready(fact),
            Kind::ToolCallStreamDelta => handler.tool_call_stream_delta(fact),
            Kind::ToolCallDone => handler.tool_call_done(fact),
            Kind::ToolCallResumed => handler.tool_call_resumed(fact),
            Kind::ToolCallCancel => handler.tool_call_cancel(fact),
            Kind::StreamReset => handler.stream_reset(fact),
            Kind::ActivitySnapshot => handler.activity_snapshot(fact),
            Kind::ActivityDelta => handler.activity_delta(fact),
            Kind::MessagesSnapshot => handler.messages_snapshot(fact),
            Kind::InferenceComplete => handler.inference_complete(fact),
            Kind::StateSnapshot => handler.state_snapshot(fact),
            Kind::StateDelta => handler.state_delta(fact),
            Kind::Error => handler.error(fact),
        }
    }

    /// Adds the run's current ids to the draft. The request's ids override Awaken's own.
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

    /// Returns the message of the current step. Generates an id if Awaken gives none.
    fn message(&mut self) -> MessageId {
        self.message.get_or_insert_with(|| next_id("awaken-message", &mut self.messages_made)).clone()
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
    out: Drafts<'a>,
}

impl EventHandler<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }
}
