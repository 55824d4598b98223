//! What AG-UI's events mean.

mod agents;
mod calls;
mod messages;
mod run;
mod state;
mod streams;

pub(super) use agents::AGENTS_MAX;
pub(super) use run::INTERLEAVED_MAX;
pub(super) use state::{INTERNAL_MAX, REPORTS_MAX};
pub(super) use streams::{ENDED_STREAMS_MAX, STREAMS_MAX};

use super::event::{Event, Kind, Known, parse};
use crate::bounded::{Bounded, Calls, PENDING_MAX};
use crate::turn::TurnState;
use crate::{ActionAnswer, Drafts, Parser, Runtime};
use calls::Call;
use proscenium_model::{AgentId, Draft, Ids, MessageId, RunId, SessionId, ThreadId, ToolCallId};
use run::Pending;
use serde::{Deserialize, Serialize};
use streams::{Chunk, Stream};

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgUi {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// The runtime's own id of the run; it may differ from the server's.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    /// Runs that started while another run was open. Their ends do not end the open run.
    interleaved: Bounded<RunId, INTERLEAVED_MAX>,
    /// Open streams, the oldest first.
    streams: Bounded<Stream, STREAMS_MAX>,
    /// Ended streams. One that starts again continues in a new part.
    ended_streams: Bounded<Stream, ENDED_STREAMS_MAX>,
    /// The item that the last chunk opened, until another event ends it.
    chunk: Option<Chunk>,
    /// The message of reasoning events without an id.
    thinking: Option<MessageId>,
    /// Calls without a result.
    calls: Calls<Call>,
    /// Progress reports whose message id differs from the call's id.
    reports: Bounded<(MessageId, ToolCallId), REPORTS_MAX>,
    pending: Bounded<Pending, PENDING_MAX>,
    /// Running sub-agents.
    agents: Bounded<AgentId, AGENTS_MAX>,
    /// Agents whose state holds runtime internals. `None`: the run's own state.
    internal_states: Bounded<Option<AgentId>, INTERNAL_MAX>,
    messages_made: u64,
    actions_made: u64,
}

impl Runtime for AgUi {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn apply(&mut self, Event { timestamp, content }: Event, given: &Ids, out: Drafts<'_>) {
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, agent: None, out };
        match content {
            Ok(known) => handler.event(*known),
            Err(draft) => handler.push(*draft),
        }
        handler.out.set_time(from, timestamp.as_deref());
    }

    fn answers(event: &Event) -> Vec<ActionAnswer> {
        event.content.as_ref().map_or_else(|_| Vec::new(), |known| known.answers.clone())
    }
}

impl AgUi {
    /// Adds the run's current ids to the draft. The request's ids override the source's own.
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
    out: Drafts<'a>,
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
        use crate::turn::Channel::{Reasoning, Text};
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
