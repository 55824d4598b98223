//! The source `langgraph`: LangGraph's streams, in its four dialects.
//!
//! * The run stream has no end event: the end of the body is the same for a run that is complete, cancelled or waiting.
//! * A message streams by its id and then comes whole, in updates and in the state, often several times. It is one text.
//! * An interrupt is announced up to six times, by one id. Nothing says that it was answered.
//! * A namespace is a subgraph or a child agent. Its text is not the answer.
//! * States, checkpoints and metadata hold anything, also of the account: internal.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the dialects, and the forms of a message |
//! | `run` | the lifecycle of the run, in each dialect |
//! | `messages` | messages: chunks, whole ones, edits |
//! | `blocks` | messages in blocks (dialect B) |
//! | `callbacks` | callables (dialect C) |
//! | `calls` | tool calls |
//! | `interrupts` | what waits for the user |
//! | `modes` | updates, values and the other stream modes |
//! | `agents` | subgraphs and child agents |

mod agents;
mod blocks;
mod callbacks;
mod calls;
mod event;
mod interrupts;
mod messages;
mod modes;
mod run;

use super::bounded::{Bounded, Calls, PENDING_MAX, keyed};
use super::members::{carry_all, conversation_ids, id_from, internal};
use super::turn::TurnState;
use super::{Drafts, Fact, Parser, Runtime, SourceKind};
use agents::Child;
use blocks::OpenMessage;
use callbacks::ToolRun;
use calls::Call;
use event::{Content, Event};
use interrupts::Pending;
use messages::{Known, Renamed};
use proscenium_model::{ActionId, AgentId, Draft, Ids, MessageId, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The ids of messages that have none. Such a message is another one each time it comes.
const MADE: &str = "langgraph-message";

/// The source `langgraph`.
pub const SOURCE: SourceKind = SourceKind::of::<LangGraph>("langgraph");

/// The most messages that are recognised when they come again.
const MESSAGES_MAX: usize = 64;

/// The most subgraphs and child agents.
const CHILDREN_MAX: usize = 64;

/// The most messages in blocks, one for each namespace, and the most tools at work in dialect C.
const OPEN_MAX: usize = 64;

keyed! {
    Call: ToolCallId = id; Pending: ActionId = action; Known: MessageId = id; Child: String = namespace;
    OpenMessage: String = namespace; ToolRun: String = run; Renamed: MessageId = id;
}

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct LangGraph {
    turn_state: TurnState,
    /// LangGraph's id of the run, and its own attempt.
    run: Option<String>,
    run_attempt: u64,
    thread: Option<ThreadId>,
    /// Whether the run asked for input since it started or was resumed.
    has_asked: bool,
    /// The name of the root agent.
    root_agent: Option<String>,
    /// Why the root's last model call stopped.
    finish_reason: Option<String>,
    /// Whether the metadata of messages was kept: it repeats with every token.
    has_metadata: bool,
    messages: Bounded<Known, MESSAGES_MAX>,
    open: Bounded<OpenMessage, OPEN_MAX>,
    tool_runs: Bounded<ToolRun, OPEN_MAX>,
    calls: Calls<Call>,
    /// Calls of the history, from before this run.
    past_calls: Bounded<ToolCallId, MESSAGES_MAX>,
    pending: Bounded<Pending, PENDING_MAX>,
    children: Bounded<Child, CHILDREN_MAX>,
    messages_made: u64,
    renamed: Bounded<Renamed, MESSAGES_MAX>,
}

impl Runtime for LangGraph {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    const ADDED_FIELDS: usize = 1;

    fn has_added(&self) -> bool {
        !self.renamed.is_empty()
    }

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let Event { timestamp, namespace, content } = event;
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, out, namespace, agent: None };
        match content {
            Content::Mode { mode, data, rest } => handler.mode(&mode, data, rest),
            Content::Lifecycle(data) => handler.lifecycle(data),
            Content::Block(data) => handler.block_event(data),
            Content::Tool(data) => handler.tool_event(data),
            Content::InterruptRequested(data) => handler.input_requested(data),
            Content::Callback(callback) => handler.callback(callback),
            Content::Diagnostic(draft) => handler.push(*draft),
        }
        handler.out.set_time(from, timestamp.as_deref());
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut LangGraph,
    given: &'a Ids,
    out: Drafts<'a>,
    /// The event's subgraph. Empty: the root graph.
    namespace: String,
    /// The child agent of the event.
    agent: Option<AgentId>,
}

impl EventHandler<'_> {
    /// Appends the draft with the run's ids. The request's ids override LangGraph's own, but for a child agent.
    fn push(&mut self, mut draft: Draft) {
        draft.ids.agent = draft.ids.agent.or_else(|| self.agent.clone());
        self.push_of_run(draft);
    }

    /// Appends a draft of the whole run, also where the event is a child's.
    fn push_of_run(&mut self, mut draft: Draft) {
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&conversation_ids(self.memory.thread.as_ref()));
        self.out.push(draft);
    }

    fn push_carrying(&mut self, draft: Draft, rest: Fact) {
        self.push(carry_all(draft, rest));
    }
}

fn text_of<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
