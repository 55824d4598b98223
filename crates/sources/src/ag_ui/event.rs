//! AG-UI's events: what each says alone.

use crate::members::{Need, Parsed, RuntimeId, id_of, internal, parse_kind, require, take_id, take_time, take_type};
use crate::{ActionAnswer, Fact, FactError};
use proscenium_model::{ActionId, AgentId, Draft, Ids, SessionId};
use serde::Deserialize;
use serde_json::Value;

/// The discriminator.
pub(super) const TYPE: &str = "type";

/// The event types of 1.0, and as aliases those that only 0.x has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Kind {
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

    /// Whether the event ends an item that a chunk opened. Chunk events end the item themselves.
    pub const fn ends_chunks(self) -> bool {
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

/// Optional members. Some servers write null for an absent member; the adapter ignores it.
#[rustfmt::skip]
const OPTIONAL: &[&str] = &[
    "timestamp", "rawEvent", "metadata", "subagentRunId", "parentRunId", "input", "protocolVersion", "result", "outcome",
    "interrupt", "usage", "code", "message", "role", "name", "messageId", "toolCallId", "toolCallName", "parentMessageId",
    "parentToolCallId", "parentSubagentRunId", "delta", "replace", "source", "title", "description", "threadId", "runId",
];

/// Members of any event that are for the internal audience, with the `kind` of their diagnostic.
const NARROWER: &[(&str, &str)] = &[("rawEvent", "raw_event"), ("metadata", "metadata")];

/// A parsed fact.
pub(super) struct Event {
    pub timestamp: Option<Box<str>>,
    pub content: Parsed<Box<Known>>,
}

/// An event of a known type.
pub(super) struct Known {
    pub kind: Kind,
    pub name: String,
    pub members: Fact,
    /// The sub-agent that the event names.
    pub agent: Option<AgentId>,
    /// A diagnostic for each internal member.
    pub internals: Vec<Draft>,
    /// The answers that a run's start brings.
    pub answers: Vec<ActionAnswer>,
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let answers = answers(&fact);
    let name = take_type(&mut fact, TYPE)?;
    let timestamp = take_time(&mut fact, "timestamp");
    Ok(Event { timestamp, content: parse_known(name, fact, answers) })
}

fn parse_known(name: String, fact: Fact, answers: Vec<ActionAnswer>) -> Parsed<Box<Known>> {
    let (kind, mut fact) = parse_kind::<Kind>(&name, fact)?;
    fact.retain(|member, value| !(value.is_null() && OPTIONAL.contains(&member.as_str())));
    let mut fact = require("ag-ui", &name, fact, kind.needs())?;
    let internals = take_internals(&name, &mut fact);
    let agent = if kind.is_boundary() { None } else { take_id(&mut fact, "subagentRunId") };
    Ok(Known { kind, name, members: fact, agent, internals, answers }.into())
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

// AG-UI has no event that resolves an interrupt: the next run's start has the answers. That run may have another log than
// the action, so the answers are read from the fact alone.

/// Returns the answers in a `RUN_STARTED`; none for other facts.
/// It ignores entries with an unknown status.
fn answers(fact: &Fact) -> Vec<ActionAnswer> {
    if fact.get(TYPE).and_then(Value::as_str) != Some("RUN_STARTED") {
        return Vec::new();
    }
    let resume = fact.get("input").and_then(|input| input.get("resume")).and_then(Value::as_array);
    // The thread is the session unless the request names another.
    let session = fact.get("threadId").and_then(Value::as_str).and_then(|thread| SessionId::new(thread).ok());
    resume.into_iter().flatten().filter_map(|entry| answer(entry, session.clone())).collect()
}

fn answer(entry: &Value, session: Option<SessionId>) -> Option<ActionAnswer> {
    let action = ActionId::of(entry.get("interruptId")?.as_str()?)?;
    let value = entry.get("payload").filter(|payload| !payload.is_null());
    let outcome = match (entry.get("status")?.as_str()?, value.and_then(|value| value.get("approved"))) {
        ("resolved", Some(Value::Bool(true))) => "approved",
        ("resolved", Some(Value::Bool(false))) => "rejected",
        ("resolved", _) => "answered",
        ("cancelled", _) => "cancelled",
        _ => return None,
    };
    Some(ActionAnswer { action, session, outcome, value: value.cloned() })
}
