//! The source `ag-ui`: AG-UI events that agents send to frontends.
//!
//! The adapter accepts versions 1.0 and 0.0.5x; `type` is the discriminator. Events do not name their run. So the
//! adapter tracks the run's state, the open messages and calls, and the pending actions.
//!
//! * A chunk combines a start, a content and an end, and follows the same rules as those events.
//! * An interrupt is a pause, never an end: its answer arrives with the next run's start.
//! * The streamed chunks are the text.
//! * A result does not report success, and the adapter infers nothing from it.
//! * A runtime's own log data (`rawEvent`, `metadata`, a run's `input`) becomes a separate internal envelope.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.
//!
//! | module | what it adapts |
//! | --- | --- |
//! | `run` | starts, ends, interrupts, steps, usage |
//! | `resume` | the answers in a run's start, read without memory |
//! | `streams` | text and reasoning, whole or in chunks |
//! | `calls` | tool calls, and those that wait for the client |
//! | `messages` | snapshots of messages, and the answers in a run's input |
//! | `state` | state, activities, and untyped events (`CUSTOM`, `RAW`) |
//! | `agents` | sub-agents |

mod agents;
mod calls;
mod messages;
mod resume;
mod run;
mod state;
mod streams;

use super::bounded::{Bounded, Calls, PENDING_MAX};
use super::members::{Need, id_of, known, malformed, take_id, take_time, take_type, unknown_type, unmet};
use super::{ActionAnswer, Fact, FactError, Runtime, SourceKind};
use crate::model::{AgentId, Draft, EventType, Ids, MessageId, RunId, SessionId, ThreadId, ToolCallId};
use calls::Call;
use run::{Pending, TurnState};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use streams::{Chunk, Stream};

/// The source `ag-ui`.
pub const SOURCE: SourceKind = SourceKind::of::<AgUi>("ag-ui");

/// The discriminator.
const TYPE: &str = "type";

/// The event types of 1.0, and as aliases those that only 0.x has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Kind {
    RunStarted,
    RunFinished,
    RunError,
    StepStarted,
    StepFinished,
    TextMessageStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageChunk,
    ToolCallStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallChunk,
    ToolCallResult,
    StateSnapshot,
    StateDelta,
    MessagesSnapshot,
    ActivitySnapshot,
    ActivityDelta,
    Raw,
    Custom,
    #[serde(alias = "THINKING_START")]
    ReasoningStart,
    #[serde(alias = "THINKING_TEXT_MESSAGE_START")]
    ReasoningMessageStart,
    #[serde(alias = "THINKING_TEXT_MESSAGE_CONTENT")]
    ReasoningMessageContent,
    #[serde(alias = "THINKING_TEXT_MESSAGE_END")]
    ReasoningMessageEnd,
    ReasoningMessageChunk,
    #[serde(alias = "THINKING_END")]
    ReasoningEnd,
    ReasoningEncryptedValue,
    SubagentStarted,
    SubagentFinished,
    SubagentError,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Id, List, Name, Text, Value};
        match self {
            Self::StepStarted | Self::StepFinished => &[("stepName", Text)],
            Self::TextMessageStart | Self::TextMessageEnd => &[("messageId", Id)],
            Self::TextMessageContent => &[("messageId", Id), ("delta", Text)],
            Self::ReasoningMessageContent => &[("delta", Text)],
            Self::ToolCallStart | Self::ToolCallEnd | Self::ToolCallResult => &[("toolCallId", Id)],
            Self::ToolCallArgs => &[("toolCallId", Id), ("delta", Text)],
            Self::StateSnapshot => &[("snapshot", Value)],
            Self::StateDelta => &[("delta", Value)],
            Self::MessagesSnapshot => &[("messages", List)],
            Self::ActivitySnapshot => &[("messageId", Id), ("activityType", Name), ("content", Value)],
            Self::ActivityDelta => &[("messageId", Id), ("activityType", Name), ("patch", Value)],
            Self::SubagentStarted | Self::SubagentFinished | Self::SubagentError => &[("subagentRunId", Id)],
            _ => &[],
        }
    }

    const fn is_boundary(self) -> bool {
        matches!(self, Self::RunStarted | Self::RunFinished | Self::RunError)
    }

    /// Whether the event ends an item that a chunk opened.
    /// Chunk events end the item themselves.
    const fn ends_chunks(self) -> bool {
        use Kind::{ActivityDelta, ActivitySnapshot, Raw, ReasoningEncryptedValue};
        use Kind::{ReasoningMessageChunk, TextMessageChunk, ToolCallChunk};
        !matches!(
            self,
            Raw | ActivitySnapshot
                | ActivityDelta
                | ReasoningEncryptedValue
                | TextMessageChunk
                | ReasoningMessageChunk
                | ToolCallChunk
        )
    }
}

/// Optional members.
/// Some servers write null for an absent member; the adapter ignores it.
#[rustfmt::skip]
const OPTIONAL: &[&str] = &[
    "timestamp", "rawEvent", "metadata", "subagentRunId", "parentRunId", "input", "protocolVersion", "result", "outcome",
    "interrupt", "usage", "code", "message", "role", "name", "messageId", "toolCallId", "toolCallName", "parentMessageId",
    "parentToolCallId", "parentSubagentRunId", "delta", "replace", "source", "title", "description", "threadId", "runId",
];

/// Members of any event that are for the internal audience, with the `kind` of their diagnostic.
const NARROWER: &[(&str, &str)] = &[("rawEvent", "raw_event"), ("metadata", "metadata")];

/// The adapter.
/// All its fields are memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AgUi {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// The number of starts, without resumptions.
    attempt: u64,
    /// The runtime's own id of the run; it may differ from the server's.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    /// Runs that started while another run was open.
    /// Their ends do not end the open run.
    interleaved: Bounded<RunId, { run::INTERLEAVED_MAX }>,
    /// Open streams, at most [`streams::OPEN_MAX`], the oldest first.
    streams: Vec<Stream>,
    /// Ended streams, at most [`streams::ENDED_MAX`].
    /// A stream that starts again continues in a new part.
    ended_streams: VecDeque<Stream>,
    /// The item that the last chunk opened, until another event ends it.
    chunk: Option<Chunk>,
    /// The message of reasoning events without an id.
    thinking: Option<MessageId>,
    /// Calls without a result, and ended ones.
    calls: Calls<Call>,
    /// Progress reports whose message id differs from the call's id.
    reports: Bounded<(MessageId, ToolCallId), { state::REPORTS_MAX }>,
    pending: Bounded<Pending, PENDING_MAX>,
    /// Running sub-agents.
    agents: Bounded<AgentId, { agents::OPEN_MAX }>,
    /// Agents whose state holds runtime internals, at most [`state::INTERNAL_MAX`].
    /// `None`: the run's own state.
    internal_states: Vec<Option<AgentId>>,
    messages_made: u64,
    actions_made: u64,
}

/// A parsed fact.
struct Event {
    timestamp: Option<Box<str>>,
    content: Content,
}

enum Content {
    Known(Box<Known>),
    /// An event without a meaning for the run, as its diagnostic.
    Diagnostic(Box<Draft>),
}

/// An event of a known type.
struct Known {
    kind: Kind,
    name: String,
    members: Fact,
    /// The sub-agent that the event names.
    agent: Option<AgentId>,
    /// A diagnostic for each internal member.
    internals: Vec<Draft>,
    /// The answers that a run's start brings.
    answers: Vec<ActionAnswer>,
}

impl Runtime for AgUi {
    type Event = Event;

    fn parse(mut fact: Fact) -> Result<Event, FactError> {
        let answers = resume::answers(&fact);
        let name = take_type(&mut fact, TYPE)?;
        let timestamp = take_time(&mut fact, "timestamp");
        let Some(kind) = known::<Kind>(&name) else {
            return Ok(Event { timestamp, content: Content::Diagnostic(unknown_type(&name, fact).into()) });
        };
        fact.retain(|member, value| !(value.is_null() && OPTIONAL.contains(&member.as_str())));
        if let Some(expected) = unmet(&fact, kind.needs()) {
            return Ok(Event { timestamp, content: Content::Diagnostic(malformed(&name, fact, &expected).into()) });
        }
        let internals = take_internals(&name, &mut fact);
        let agent = if kind.is_boundary() { None } else { take_id(&mut fact, "subagentRunId") };
        let known = Known { kind, name, members: fact, agent, internals, answers };
        Ok(Event { timestamp, content: Content::Known(known.into()) })
    }

    fn apply(&mut self, Event { timestamp, content }: Event, given: &Ids, out: &mut Vec<Draft>) {
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, agent: None, out };
        match content {
            Content::Known(known) => handler.event(*known),
            Content::Diagnostic(draft) => handler.push(*draft),
        }
        for draft in &mut out[from..] {
            draft.timestamp.clone_from(&timestamp);
        }
    }

    fn answers(event: &Event) -> Vec<ActionAnswer> {
        match &event.content {
            Content::Known(known) => known.answers.clone(),
            Content::Diagnostic(_) => Vec::new(),
        }
    }
}

impl AgUi {
    /// Adds the run's current ids to the draft.
    /// The request's ids override the source's own.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.fill_from(given);
        draft.ids.fill_from(&Ids { session: self.session.clone(), thread: self.thread.clone(), ..Ids::default() });
        draft
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut AgUi,
    given: &'a Ids,
    /// The sub-agent that the event names.
    agent: Option<AgentId>,
    out: &'a mut Vec<Draft>,
}

impl EventHandler<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }

    /// Appends a draft of the event's agent.
    fn push_own(&mut self, mut draft: Draft) {
        draft.ids.agent.clone_from(&self.agent);
        self.push(draft);
    }

    fn event(&mut self, event: Known) {
        use streams::Channel::{Reasoning, Text};
        let Known { kind, name, members: fact, agent, internals, answers } = event;
        self.agent = agent;
        if kind.ends_chunks() {
            self.end_chunk();
        }
        match kind {
            Kind::RunStarted => self.run_started(fact, answers),
            Kind::RunFinished => self.run_finished(fact),
            Kind::RunError => self.run_error(fact),
            Kind::StepStarted => self.step("started", fact),
            Kind::StepFinished => self.step("ended", fact),
            Kind::TextMessageStart => self.message_start(Text, fact),
            Kind::TextMessageContent => self.message_content(Text, fact),
            Kind::TextMessageEnd => self.message_end(Text, &name, fact),
            Kind::TextMessageChunk => self.message_chunk(Text, fact),
            Kind::ReasoningMessageStart => self.message_start(Reasoning, fact),
            Kind::ReasoningMessageContent => self.message_content(Reasoning, fact),
            Kind::ReasoningMessageEnd => self.message_end(Reasoning, &name, fact),
            Kind::ReasoningMessageChunk => self.message_chunk(Reasoning, fact),
            Kind::ReasoningStart => self.reasoning_span("started", fact),
            Kind::ReasoningEnd => self.reasoning_span("ended", fact),
            Kind::ReasoningEncryptedValue => self.reasoning_encrypted_value(fact),
            Kind::ToolCallStart => self.tool_call_start(fact),
            Kind::ToolCallArgs => self.tool_call_args(fact),
            Kind::ToolCallEnd => self.tool_call_end(fact),
            Kind::ToolCallChunk => self.tool_call_chunk(fact),
            Kind::ToolCallResult => self.tool_call_result(fact),
            Kind::StateSnapshot => self.state_snapshot(fact),
            Kind::StateDelta => self.state_delta(fact),
            Kind::MessagesSnapshot => self.messages_snapshot(fact),
            Kind::ActivitySnapshot => self.activity_snapshot(fact),
            Kind::ActivityDelta => self.activity_delta(fact),
            Kind::SubagentStarted => self.subagent_started(fact),
            Kind::SubagentFinished => self.subagent_finished(fact),
            Kind::SubagentError => self.subagent_error(fact),
            Kind::Custom => self.custom(fact),
            Kind::Raw => self.raw(fact),
        }
        for draft in internals {
            self.push(draft);
        }
    }
}

/// Takes the event's internal members and returns a diagnostic for each.
fn take_internals(event_type: &str, fact: &mut Fact) -> Vec<Draft> {
    if NARROWER.iter().all(|(member, _)| !fact.contains_key(*member)) {
        return Vec::new();
    }
    let ids = Ids {
        message: id_of(fact, "messageId"),
        tool_call: id_of(fact, "toolCallId"),
        agent: id_of(fact, "subagentRunId"),
        ..Ids::default()
    };
    let diagnostics = NARROWER.iter().filter_map(|(member, kind)| {
        let mut draft = internal(kind, event_type).with(member, fact.shift_remove(*member)?);
        draft.ids.clone_from(&ids);
        Some(draft)
    });
    diagnostics.collect()
}

/// Creates a diagnostic for the internal audience.
fn internal(kind: &str, event_type: &str) -> Draft {
    Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type)
}

#[cfg(test)]
mod tests;
