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

use super::members::{diagnostic, parse_timestamp, take_id, take_type, unknown_type};
use super::{ActionAnswer, Adapter, Fact, FactError, SourceKind};
use crate::model::{ActionId, AgentId, Draft, EventType, Ids, MessageId, RunId, SessionId, ThreadId, ToolCallId};
use calls::Call;
use run::{Pending, TurnState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::str::FromStr;
use streams::{Chunk, Stream};

/// The source `ag-ui`.
pub const SOURCE: SourceKind = SourceKind {
    name: "ag-ui",
    fresh: || Box::new(AgUi::default()),
    restore: |memory| Ok(Box::new(serde_json::from_slice::<AgUi>(memory)?)),
    answers: Some(resume::answers),
};

/// The discriminator.
const TYPE: &str = "type";

/// All event types: first those of 1.0, then those that only 0.x has.
#[rustfmt::skip]
const EVENTS: &[&str] = &[
    "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK",
    "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW",
    "CUSTOM", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_CHUNK", "REASONING_END", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED", "SUBAGENT_FINISHED",
    "SUBAGENT_ERROR",

    "THINKING_START", "THINKING_END", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END",
];

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

/// The required type of a required member.
#[derive(Debug, Clone, Copy)]
enum Need {
    Id,
    /// Non-empty text.
    Name,
    /// Text, possibly empty.
    Chunk,
    List,
    /// Any value, including null.
    Value,
}

impl Need {
    fn is_met(self, value: Option<&Value>) -> bool {
        match (self, value) {
            // All id types have the same format.
            (Self::Id, Some(Value::String(text))) => MessageId::new(text).is_ok(),
            (Self::Name, Some(Value::String(text))) => !text.is_empty(),
            (Self::Chunk, Some(Value::String(_))) | (Self::List, Some(Value::Array(_))) | (Self::Value, Some(_)) => true,
            _ => false,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "an id",
            Self::Name => "a name",
            Self::Chunk => "text",
            Self::List => "a list",
            Self::Value => "a value",
        }
    }
}

fn needs(event_type: &str) -> &'static [(&'static str, Need)] {
    use Need::{Chunk, Id, List, Name, Value};
    match event_type {
        "STEP_STARTED" | "STEP_FINISHED" => &[("stepName", Chunk)],
        "TEXT_MESSAGE_START" | "TEXT_MESSAGE_END" => &[("messageId", Id)],
        "TEXT_MESSAGE_CONTENT" => &[("messageId", Id), ("delta", Chunk)],
        "REASONING_MESSAGE_CONTENT" | "THINKING_TEXT_MESSAGE_CONTENT" => &[("delta", Chunk)],
        "TOOL_CALL_START" | "TOOL_CALL_END" | "TOOL_CALL_RESULT" => &[("toolCallId", Id)],
        "TOOL_CALL_ARGS" => &[("toolCallId", Id), ("delta", Chunk)],
        "STATE_SNAPSHOT" => &[("snapshot", Value)],
        "STATE_DELTA" => &[("delta", Value)],
        "MESSAGES_SNAPSHOT" => &[("messages", List)],
        "ACTIVITY_SNAPSHOT" => &[("messageId", Id), ("activityType", Name), ("content", Value)],
        "ACTIVITY_DELTA" => &[("messageId", Id), ("activityType", Name), ("patch", Value)],
        "SUBAGENT_STARTED" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => &[("subagentRunId", Id)],
        _ => &[],
    }
}

/// Whether an event of this type ends an item that a chunk opened.
/// Chunk events end the item themselves.
fn ends_chunks(event_type: &str) -> bool {
    !matches!(event_type, "RAW" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "REASONING_ENCRYPTED_VALUE")
        && !event_type.ends_with("_CHUNK")
}

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
    /// Runs that started while another run was open, at most [`run::INTERLEAVED_MAX`].
    /// Their ends do not end the open run.
    interleaved: VecDeque<RunId>,
    /// Open streams, at most [`streams::OPEN_MAX`], the oldest first.
    streams: Vec<Stream>,
    /// Ended streams, at most [`streams::ENDED_MAX`].
    /// A stream that starts again continues in a new part.
    ended_streams: VecDeque<Stream>,
    /// The item that the last chunk opened, until another event ends it.
    chunk: Option<Chunk>,
    /// The message of reasoning events without an id.
    thinking: Option<MessageId>,
    /// Calls without a result, at most [`calls::OPEN_MAX`], the oldest first.
    calls: Vec<Call>,
    /// Ended calls, at most [`calls::ENDED_MAX`].
    ended_calls: VecDeque<ToolCallId>,
    /// Whether more calls have ended than `ended_calls` holds.
    has_forgotten_calls: bool,
    /// Progress reports whose message id differs from the call's id, at most [`state::REPORTS_MAX`].
    reports: VecDeque<(MessageId, ToolCallId)>,
    /// Pending actions, at most [`run::PENDING_MAX`], the oldest first.
    pending: Vec<Pending>,
    /// Running sub-agents, at most [`agents::OPEN_MAX`], the oldest first.
    agents: Vec<AgentId>,
    /// Agents whose state holds runtime internals, at most [`state::INTERNAL_MAX`].
    /// `None`: the run's own state.
    internal_states: Vec<Option<AgentId>>,
    messages_made: u64,
    actions_made: u64,
}

impl Adapter for AgUi {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let answers = resume::answers(&fact);
        let event_type = take_type(&mut fact, TYPE)?;
        let timestamp = fact.get("timestamp").and_then(parse_timestamp);
        if timestamp.is_some() {
            fact.shift_remove("timestamp");
        }
        let from = out.len();
        EventHandler { memory: self, given, agent: None, out }.event(&event_type, fact, answers);
        for draft in &mut out[from..] {
            draft.timestamp.clone_from(&timestamp);
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
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

    // The prefix prevents collisions with ids that another source's adapter generates for the same run.
    fn new_message_id(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("ag-ui-message-{}", self.messages_made)).expect("a short name with a number is a valid id")
    }

    fn new_action_id(&mut self) -> ActionId {
        self.actions_made += 1;
        ActionId::new(&format!("ag-ui-action-{}", self.actions_made)).expect("a short name with a number is a valid id")
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

    fn event(&mut self, event_type: &str, mut fact: Fact, answers: Vec<ActionAnswer>) {
        if !EVENTS.contains(&event_type) {
            return self.push(unknown_type(event_type, fact));
        }
        fact.retain(|member, value| !(value.is_null() && OPTIONAL.contains(&member.as_str())));
        if let Some((member, need)) = needs(event_type).iter().find(|(member, need)| !need.is_met(fact.get(*member))) {
            return self.malformed(event_type, fact, &format!("{member} as {}", need.as_str()));
        }
        let narrower = narrower(event_type, &mut fact);
        if !event_type.starts_with("RUN_") {
            self.agent = take_id(&mut fact, "subagentRunId");
        }
        if ends_chunks(event_type) {
            self.end_chunk();
        }
        self.dispatch(event_type, fact, answers);
        for draft in narrower {
            self.push(draft);
        }
    }

    fn dispatch(&mut self, event_type: &str, fact: Fact, answers: Vec<ActionAnswer>) {
        use streams::Channel::{Reasoning, Text};
        match event_type {
            "RUN_STARTED" => self.run_started(fact, answers),
            "RUN_FINISHED" => self.run_finished(fact),
            "RUN_ERROR" => self.run_error(fact),
            "STEP_STARTED" => self.step("started", fact),
            "STEP_FINISHED" => self.step("ended", fact),
            "TEXT_MESSAGE_START" => self.message_start(Text, fact),
            "TEXT_MESSAGE_CONTENT" => self.message_content(Text, fact),
            "TEXT_MESSAGE_END" => self.message_end(Text, event_type, fact),
            "TEXT_MESSAGE_CHUNK" => self.message_chunk(Text, fact),
            "REASONING_MESSAGE_START" | "THINKING_TEXT_MESSAGE_START" => self.message_start(Reasoning, fact),
            "REASONING_MESSAGE_CONTENT" | "THINKING_TEXT_MESSAGE_CONTENT" => self.message_content(Reasoning, fact),
            "REASONING_MESSAGE_END" | "THINKING_TEXT_MESSAGE_END" => self.message_end(Reasoning, event_type, fact),
            "REASONING_MESSAGE_CHUNK" => self.message_chunk(Reasoning, fact),
            "REASONING_START" | "THINKING_START" => self.reasoning_span("started", fact),
            "REASONING_END" | "THINKING_END" => self.reasoning_span("ended", fact),
            "REASONING_ENCRYPTED_VALUE" => self.reasoning_encrypted_value(fact),
            "TOOL_CALL_START" => self.tool_call_start(fact),
            "TOOL_CALL_ARGS" => self.tool_call_args(fact),
            "TOOL_CALL_END" => self.tool_call_end(fact),
            "TOOL_CALL_CHUNK" => self.tool_call_chunk(fact),
            "TOOL_CALL_RESULT" => self.tool_call_result(fact),
            "STATE_SNAPSHOT" => self.state_snapshot(fact),
            "STATE_DELTA" => self.state_delta(fact),
            "MESSAGES_SNAPSHOT" => self.messages_snapshot(fact),
            "ACTIVITY_SNAPSHOT" => self.activity_snapshot(fact),
            "ACTIVITY_DELTA" => self.activity_delta(fact),
            "SUBAGENT_STARTED" => self.subagent_started(fact),
            "SUBAGENT_FINISHED" => self.subagent_finished(fact),
            "SUBAGENT_ERROR" => self.subagent_error(fact),
            "CUSTOM" => self.custom(fact),
            "RAW" => self.raw(fact),
            _ => unreachable!("a test checks that the match lists every event type"),
        }
    }

    fn malformed(&mut self, event_type: &str, fact: Fact, expected: &str) {
        self.push(diagnostic("malformed_event", event_type, fact).with("expected", expected));
    }
}

/// Takes the event's internal members and returns a diagnostic for each.
fn narrower(event_type: &str, fact: &mut Fact) -> Vec<Draft> {
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

/// Reads an id of the event.
/// The member stays there.
fn id_of<T: FromStr>(fact: &Fact, member: &str) -> Option<T> {
    fact.get(member)?.as_str()?.parse().ok()
}

/// Takes an id that [`needs`] has already checked.
fn known_id<T: FromStr>(fact: &mut Fact, member: &str) -> T {
    take_id(fact, member).expect("the handler has rejected events without this id as malformed")
}

#[cfg(test)]
mod tests;
