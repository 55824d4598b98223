//! The source `claude-stream-json`: the lines that Claude Code prints with `--output-format stream-json`.
//!
//! A fact is one line of the process, or `{"from": "claude" | "host", "message": {…}}` where a tap sees both directions.
//! One process is one session with many turns, and each turn is an attempt of the run.
//!
//! * A text comes up to three times: in chunks, as an `assistant` line, and in the `result`. It is one text.
//! * `success` is no success: `is_error` and `terminal_reason` decide. An abort looks like an error.
//! * The answers to permissions are not in the output. The result of the call tells them.
//! * Lines with a `parent_tool_use_id` belong to a child agent. It may outlive the turn.
//! * Paths, whole files and the account are internal.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the two forms of a line |
//! | `turn` | the lifecycle of a turn, its cost, compaction |
//! | `stream` | the partial messages of the model |
//! | `lines` | whole messages, and the person's words |
//! | `calls` | tool calls, their results, and what they change |
//! | `questions` | permissions, plans and questions |
//! | `tasks` | child agents and background commands |

mod calls;
mod event;
mod lines;
mod questions;
mod stream;
mod tasks;
mod turn;

use super::bounded::{Bounded, Calls, PENDING_MAX, keyed};
use super::digest::TextDigest;
use super::members::{carry_all, conversation_ids, id_from, internal, unknown_type};
use super::turn::TurnState;
use super::{Drafts, Fact, Parser, Runtime, SourceKind};
use calls::Call;
use event::{Event, Kind};
use lines::LineCount;
use proscenium_model::{ActionId, AgentId, Draft, Ids, MessageId, TaskId, ThreadId, ToolCallId};
use questions::Pending;
use serde::{Deserialize, Serialize};
use stream::OpenMessage;
use tasks::{Child, Task};

/// The source `claude-stream-json`.
pub const SOURCE: SourceKind = SourceKind::of::<Claude>("claude-stream-json");

/// The most line ids that are remembered, to recognise a line that comes again.
const LINES_MAX: usize = 128;

/// The most messages whose lines are counted.
const MESSAGES_MAX: usize = 64;

/// The most child agents and background tasks.
const TASKS_MAX: usize = 64;

/// The most inputs of the host that are compared with what the process repeats.
const INPUTS_MAX: usize = 16;

keyed! {
    Call: ToolCallId = id; Pending: ActionId = action; LineCount: String = message; Child: AgentId = agent;
    Task: TaskId = id;
}

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Claude {
    session: Option<ThreadId>,
    turn_state: TurnState,
    /// Digests of the ids of the last lines.
    lines: Bounded<u64, LINES_MAX>,
    /// The partial message.
    message: Option<OpenMessage>,
    line_counts: Bounded<LineCount, MESSAGES_MAX>,
    /// Whether the turn has text of the main agent: its result then only repeats it.
    has_text: bool,
    /// The code of the last error of the model's API.
    api_error: Option<String>,
    /// Its HTTP status.
    api_status: Option<u64>,
    /// Whether the host interrupted the turn.
    is_interrupted: bool,
    /// What the process has cost before this turn.
    cost_usd: f64,
    calls: Calls<Call>,
    pending: Bounded<Pending, PENDING_MAX>,
    children: Bounded<Child, TASKS_MAX>,
    tasks: Bounded<Task, TASKS_MAX>,
    /// Digests of what the host sent as the person's words.
    inputs: Bounded<TextDigest, INPUTS_MAX>,
    /// Whether a compaction has started and not ended.
    is_compacting: bool,
    compactions_made: u64,
    messages_made: u64,
    /// How often the main agent has begun a message under an id.
    message_uses: Bounded<(MessageId, u64), MESSAGES_MAX>,
}

impl Runtime for Claude {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    const ADDED_FIELDS: usize = 1;

    fn has_added(&self) -> bool {
        !self.message_uses.is_empty()
    }

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let Event { is_from_host, line, session, timestamp, content } = event;
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, out, agent: None };
        if line.is_some_and(|line| handler.memory.lines.has(&line)) {
            return handler.push(internal("repeated_line", "line"));
        }
        if let Some(line) = line {
            handler.memory.lines.push(line);
        }
        handler.enter(session.as_deref(), content.as_ref().and_then(|content| content.as_ref().ok()));
        match content {
            Some(Ok((kind, fact))) if is_from_host => handler.host_line(kind, fact),
            Some(Ok((kind, fact))) => handler.line(kind, fact),
            Some(Err(draft)) => handler.push(*draft),
            None => {}
        }
        handler.out.set_time(from, timestamp.as_deref());
    }
}

/// Handles one line: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut Claude,
    given: &'a Ids,
    out: Drafts<'a>,
    /// The child agent of the line.
    agent: Option<AgentId>,
}

impl EventHandler<'_> {
    /// Appends the draft with the session's ids. The request's ids override Claude's own, but for a child agent.
    fn push(&mut self, mut draft: Draft) {
        draft.ids.agent = draft.ids.agent.or_else(|| self.agent.clone());
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&conversation_ids(self.memory.session.as_ref()));
        self.out.push(draft);
    }

    fn push_carrying(&mut self, draft: Draft, rest: Fact) {
        self.push(carry_all(draft, rest));
    }

    fn line(&mut self, kind: Kind, fact: Fact) {
        match kind {
            Kind::StreamEvent => self.stream_event(fact),
            Kind::Assistant => self.assistant(fact),
            Kind::User => self.user(fact),
            Kind::Result => self.result(fact),
            Kind::ControlRequest => self.control_request(fact),
            Kind::ControlResponse => self.control_response(fact),
            Kind::ControlCancelRequest => self.control_cancelled(fact),
            Kind::Init => self.init(fact),
            Kind::Status => self.status(fact),
            Kind::ThinkingTokens => self.working(fact),
            Kind::TaskStarted => self.task_started(fact),
            Kind::TaskProgress => self.task_progress(fact),
            Kind::TaskUpdated => self.task_updated(fact),
            Kind::TaskNotification => self.task_notification(fact),
            Kind::CompactBoundary => self.compact_boundary(fact),
            Kind::ApiRetry => self.api_retry(fact),
            Kind::PermissionDenied => self.permission_denied(fact),
            Kind::HookResponse => self.hook_response(fact),
            Kind::Notice => self.notice(fact),
        }
    }

    /// Handles a line that the host sends to the process.
    fn host_line(&mut self, kind: Kind, fact: Fact) {
        match kind {
            Kind::User => self.host_input(fact),
            Kind::ControlResponse => self.host_answer(fact),
            Kind::ControlRequest => {
                let subtype = fact.get("request").and_then(|request| request.get("subtype")).and_then(|name| name.as_str());
                self.memory.is_interrupted |= subtype == Some("interrupt");
                self.push(unknown_type("host/control_request", fact).with("kind", "host_request"));
            }
            _ => self.push(unknown_type("host", fact)),
        }
    }

    /// The id in this log of a call of the line's agent: a child may reuse an id of its parent.
    fn call_id(&self, id: &str) -> ToolCallId {
        let id = if id.is_empty() { "claude-stream-json-unnamed" } else { id };
        match &self.agent {
            Some(agent) => id_from(&format!("{agent}/{id}")),
            None => id_from(id),
        }
    }
}

#[cfg(test)]
mod tests;
