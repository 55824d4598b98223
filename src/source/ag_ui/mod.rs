//! AG-UI: the events that agents send to frontends, 1.0 and the 0.0.5x before it, told apart by `type`.
//!
//! The names on the wire say nothing of the run that they are of, so this adapter remembers where the run stands, which
//! messages and calls are open, and what it was asked. A chunk is a start, a content and an end in one, and opens and ends by
//! the same rules as theirs. An interrupt is a pause and never an end: its answer comes with the next run's start. What was
//! streamed is the text. A result says nothing of success, and nothing is read out of it. What a runtime tells its own logs
//! (`rawEvent`, `metadata`, a run's `input`) becomes an envelope of its own, for internal eyes. Never refuses an event type or
//! a member that it does not know, and never remembers a body.
//!
//! | module | what it adapts |
//! | --- | --- |
//! | `run` | starts, ends, interrupts, steps, usage |
//! | `resume` | the answers that a start brings, read without any memory |
//! | `streams` | text and reasoning, whole or in chunks |
//! | `calls` | tool calls, and those that wait for the client |
//! | `messages` | snapshots of messages, and the answers among a run's input |
//! | `state` | state, activities, and what is of no kind (`CUSTOM`, `RAW`) |
//! | `agents` | sub-agents |

mod agents;
mod calls;
mod messages;
mod resume;
mod run;
mod state;
mod streams;

use super::members::{diagnostic, instant, take_id, take_type, unknown_type};
use super::{Adapter, Answer, Fact, FactError, SourceKind};
use crate::model::{ActionId, AgentId, Draft, EventType, Ids, MessageId, RunId, SessionId, ThreadId, ToolCallId};
use calls::Call;
use run::{Life, Pending};
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

/// Every event type: 1.0's, and after them those that only 0.x has.
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

/// Members that an event may lack. Some servers write null for what they do not have; it says nothing.
#[rustfmt::skip]
const OPTIONAL: &[&str] = &[
    "timestamp", "rawEvent", "metadata", "subagentRunId", "parentRunId", "input", "protocolVersion", "result", "outcome",
    "interrupt", "usage", "code", "message", "role", "name", "messageId", "toolCallId", "toolCallName", "parentMessageId",
    "parentToolCallId", "parentSubagentRunId", "delta", "replace", "source", "title", "description", "threadId", "runId",
];

/// Members that are for internal eyes on any event, and what they are told as.
const NARROWER: &[(&str, &str)] = &[("rawEvent", "raw_event"), ("metadata", "metadata")];

/// What an event cannot do without.
#[derive(Debug, Clone, Copy)]
enum Need {
    Id,
    /// Text that is not empty.
    Name,
    /// Text of any length.
    Chunk,
    List,
    /// Of any kind, null included.
    Value,
}

impl Need {
    fn is_met(self, value: Option<&Value>) -> bool {
        match (self, value) {
            // All ids are checked alike.
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

/// Whether an event of this type ends what a chunk has opened. Chunks themselves see to it.
fn ends_chunks(event_type: &str) -> bool {
    !matches!(event_type, "RAW" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "REASONING_ENCRYPTED_VALUE")
        && !event_type.ends_with("_CHUNK")
}

/// The adapter; all of it is memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AgUi {
    life: Life,
    /// Starts that were no resumption.
    attempt: u64,
    /// Their own id of the run, which need not be ours.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    /// Runs that began while another was open, at most [`run::INTERLEAVED_MAX`]: their ends are not that one's.
    interleaved: VecDeque<RunId>,
    /// What is open, at most [`streams::OPEN_MAX`], the oldest first.
    streams: Vec<Stream>,
    /// What has ended, at most [`streams::ENDED_MAX`]: one that begins again goes on in another part.
    ended_streams: VecDeque<Stream>,
    /// What the last chunk was of, while nothing has ended it.
    chunk: Option<Chunk>,
    /// The message of reasoning that names none.
    thinking: Option<MessageId>,
    /// Calls without a result, at most [`calls::OPEN_MAX`], the oldest first.
    calls: Vec<Call>,
    /// At most [`calls::ENDED_MAX`].
    ended_calls: VecDeque<ToolCallId>,
    /// Whether more calls have ended than are remembered.
    has_forgotten_calls: bool,
    /// Messages that report a call's progress under another id than the call's, at most [`state::REPORTS_MAX`].
    reports: VecDeque<(MessageId, ToolCallId)>,
    /// What was asked, at most [`run::PENDING_MAX`], the oldest first.
    pending: Vec<Pending>,
    /// Sub-agents at work, at most [`agents::OPEN_MAX`], the oldest first.
    agents: Vec<AgentId>,
    /// Whose state holds a runtime's internals, at most [`state::INTERNAL_MAX`]; the run's own is of nobody.
    internal_states: Vec<Option<AgentId>>,
    messages_made: u64,
    actions_made: u64,
}

impl Adapter for AgUi {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let answers = resume::answers(&fact);
        let event_type = take_type(&mut fact, TYPE)?;
        let timestamp = fact.get("timestamp").and_then(instant);
        if timestamp.is_some() {
            fact.shift_remove("timestamp");
        }
        let from = out.len();
        Step { memory: self, given, agent: None, out }.event(&event_type, fact, answers);
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
    /// The draft with the ids that hold for whatever this run now says. What was given wins over the source's own notion.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.or(given);
        draft.ids.or(&Ids { session: self.session.clone(), thread: self.thread.clone(), ..Ids::default() });
        draft
    }

    // The source in made-up ids keeps them away from those that another source's adapter makes up for the same run.
    fn made_message(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("ag-ui-message-{}", self.messages_made)).expect("a short name with a number is an id")
    }

    fn made_action(&mut self) -> ActionId {
        self.actions_made += 1;
        ActionId::new(&format!("ag-ui-action-{}", self.actions_made)).expect("a short name with a number is an id")
    }
}

/// One event on its way.
struct Step<'a> {
    memory: &'a mut AgUi,
    given: &'a Ids,
    /// The sub-agent that the event says it is of.
    agent: Option<AgentId>,
    out: &'a mut Vec<Draft>,
}

impl Step<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }

    /// The same, of what is the event's own agent's.
    fn push_own(&mut self, mut draft: Draft) {
        draft.ids.agent.clone_from(&self.agent);
        self.push(draft);
    }

    fn event(&mut self, event_type: &str, mut fact: Fact, answers: Vec<Answer>) {
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

    fn dispatch(&mut self, event_type: &str, fact: Fact, answers: Vec<Answer>) {
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
            _ => unreachable!("every event type has its line above: tested"),
        }
    }

    fn malformed(&mut self, event_type: &str, fact: Fact, expected: &str) {
        self.push(diagnostic("malformed_event", event_type, fact).with("expected", expected));
    }
}

/// The envelopes of what is narrower than the rest of its event.
fn narrower(event_type: &str, fact: &mut Fact) -> Vec<Draft> {
    let ids = Ids {
        message: id_of(fact, "messageId"),
        tool_call: id_of(fact, "toolCallId"),
        agent: id_of(fact, "subagentRunId"),
        ..Ids::default()
    };
    let told = NARROWER.iter().filter_map(|(member, kind)| {
        let mut draft = internal(kind, event_type).with(member, fact.shift_remove(*member)?);
        draft.ids.clone_from(&ids);
        Some(draft)
    });
    told.collect()
}

/// Something of an event that is for internal eyes.
fn internal(kind: &str, event_type: &str) -> Draft {
    Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type)
}

/// An id as the event says it; it stays there.
fn id_of<T: FromStr>(fact: &Fact, member: &str) -> Option<T> {
    fact.get(member)?.as_str()?.parse().ok()
}

/// Takes an id that the event was asked for before.
fn known_id<T: FromStr>(fact: &mut Fact, member: &str) -> T {
    take_id(fact, member).expect("an event that lacks it is malformed and comes no further")
}

#[cfg(test)]
mod tests;
