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

use super::bounded::{Bounded, CALLS_OPEN_MAX, Calls, keyed};
use super::members::{Need, invalid_id_error, known, malformed, next_id, take_text, unknown_type, unmet};
use super::{Fact, FactError, Runtime, SourceKind};
use crate::model::{ActionId, AgentId, Draft, Ids, MessageId, PartId, RunId, SessionId, ThreadId, ToolCallId, TurnId};
use canonical::Wrapper;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The source `awaken`.
pub const SOURCE: SourceKind = SourceKind::of::<Awaken>("awaken");

/// The discriminator.
const TYPE: &str = "event_type";

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
    #[serde(default)]
    asked: Option<String>,
}

keyed! { Call: ToolCallId = id; Pending: ToolCallId = call; }

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
    calls: Calls<Call>,
    pending: Bounded<Pending, CALLS_OPEN_MAX>,
    /// The hash of the last compaction state.
    compaction: Option<String>,
}

/// The event types of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    RunStart,
    RunFinish,
    StepStart,
    StepEnd,
    TextDelta,
    ReasoningDelta,
    ReasoningEncryptedValue,
    ToolCallStart,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStreamDelta,
    ToolCallDone,
    ToolCallResumed,
    ToolCallCancel,
    StreamReset,
    ActivitySnapshot,
    ActivityDelta,
    MessagesSnapshot,
    InferenceComplete,
    StateSnapshot,
    StateDelta,
    Error,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Name, Text};
        match self {
            Self::TextDelta | Self::ReasoningDelta => &[("delta", Text)],
            Self::ToolCallStart | Self::ToolCallReady | Self::ToolCallDone | Self::ToolCallCancel => &[("id", Name)],
            Self::ToolCallDelta => &[("id", Name), ("args_delta", Text)],
            Self::ToolCallStreamDelta => &[("id", Name), ("delta", Text)],
            Self::ToolCallResumed => &[("target_id", Name)],
            Self::ActivitySnapshot | Self::ActivityDelta => &[("message_id", Name), ("activity_type", Name)],
            _ => &[],
        }
    }
}

/// A parsed fact.
enum Event {
    Bare(Native),
    Wrapped(Box<Wrapper>, Native),
    /// A wrapper without a native event, as its diagnostic.
    Malformed(Box<Draft>),
}

/// An event of the runtime.
struct Native {
    /// `Err`: the event stays whole, as this kind of diagnostic.
    kind: Result<Kind, Unread>,
    /// All members, with the event's type.
    members: Fact,
}

/// Why an event has no meaning for the run.
enum Unread {
    UnknownType,
    /// The member that it lacks.
    Malformed(String),
}

impl Native {
    /// Parses an event whose type is text.
    ///
    /// # Errors
    /// For an id that no reader accepts. Awaken's own ids are always valid.
    fn parse(members: Fact) -> Result<Self, FactError> {
        let kind = match known::<Kind>(name_of_type(&members)) {
            None => Err(Unread::UnknownType),
            Some(kind) => unmet(&members, kind.needs()).map_or(Ok(kind), |expected| Err(Unread::Malformed(expected))),
        };
        let id = match kind {
            Ok(Kind::StepStart) => Some("message_id"),
            Ok(kind) => kind.needs().first().map(|(member, _)| *member).filter(|member| member.ends_with("id")),
            Err(_) => None,
        };
        if let Some(member) = id
            && let Some(id) = members.get(member).and_then(Value::as_str).filter(|id| !id.is_empty())
        {
            ActionId::new(id).map_err(|error| invalid_id_error(member, &error))?;
        }
        Ok(Self { kind, members })
    }
}

/// Returns the event's type, without taking it.
fn name_of_type(members: &Fact) -> &str {
    members.get(TYPE).and_then(Value::as_str).unwrap_or_default()
}

impl Runtime for Awaken {
    type Event = Event;

    fn parse(fact: Fact) -> Result<Event, FactError> {
        match canonical::is_wrapped(&fact) {
            true => canonical::parse(fact),
            false if name_of_type(&fact).is_empty() => Err(FactError::NoType { member: TYPE }),
            false => Native::parse(fact).map(Event::Bare),
        }
    }

    fn apply(&mut self, event: Event, given: &Ids, out: &mut Vec<Draft>) {
        match event {
            Event::Bare(native) => self.apply_native(native, given, out),
            Event::Wrapped(wrapper, native) => self.apply_wrapped(*wrapper, native, given, out),
            Event::Malformed(draft) => out.push(self.about(*draft, given)),
        }
    }
}

impl Awaken {
    /// Applies an event of the runtime.
    fn apply_native(&mut self, Native { kind, members: mut fact }: Native, given: &Ids, out: &mut Vec<Draft>) {
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
