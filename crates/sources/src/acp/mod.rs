//! The source `acp`: the Agent Client Protocol, JSON-RPC between an editor (the client) and an agent.
//!
//! A fact is one message: `{"from": "agent" | "client", "message": {…}}` where a tap sees both directions, the bare
//! message where it sees the agent's output, or `{"sessionId", "update"}` as an SDK's handlers receive it.
//!
//! * A turn lasts from the `session/prompt` request to its response. Nothing else marks it. Without the client's side the
//!   first update starts the turn, and a `stopReason` in any response ends it.
//! * Both ends number their requests from 0, so only the sender and the memory of open requests say what a response answers.
//! * A tool update replaces what it names. An update may be the first mention of its call.
//! * Between `session/load` and its response every update is history.
//! * Extension data (`_meta`) and everything about the connection are internal.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the three forms of a fact |
//! | `turn` | requests and responses; the lifecycle of a turn |
//! | `text` | messages and thoughts of the model |
//! | `history` | the replay of a loaded session |
//! | `calls` | tool calls, and what they change |
//! | `terminals` | the output of commands |
//! | `questions` | permissions and elicitations |
//! | `session` | plan, modes, usage, notices, compaction, child agents |

mod calls;
mod event;
mod history;
mod questions;
mod session;
mod terminals;
mod text;
mod turn;

use super::bounded::{Bounded, Calls, PENDING_MAX, keyed};
use super::digest::TextDigest;
use super::members::{block_text, carry_all, conversation_ids, diagnostic, id_from, internal, members_of, name_of};
use super::{Drafts, Fact, Parser, Runtime, SourceKind};
use calls::Call;
use event::{Event, Message, Sender};
use history::PastMessage;
use proscenium_model::{ActionId, AgentId, Draft, Ids, ThreadId, ToolCallId};
use questions::Pending;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use terminals::Terminal;
use text::OpenPart;
use turn::{AgentRequest, ClientRequest, Turn};

/// The source `acp`.
pub const SOURCE: SourceKind = SourceKind::of::<Acp>("acp");

/// The most open requests of one end.
/// Beyond this limit the oldest is forgotten: its response is then a diagnostic.
const REQUESTS_MAX: usize = 64;

/// The most sessions with an open message, and the most open turns.
const SESSIONS_MAX: usize = 32;

/// The most terminals whose output is assigned to calls.
const TERMINALS_MAX: usize = 64;

/// The most texts that a replay is compared with.
const TEXTS_MAX: usize = 512;

keyed! {
    Call: ToolCallId = id; Pending: ActionId = action; ClientRequest: String = id; AgentRequest: String = id;
    Turn: ThreadId = session; OpenPart: ThreadId = session; Terminal: String = id;
}

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Acp {
    /// The agent's own name.
    agent: Option<AgentId>,
    /// The first session. Ids of its calls stay as they are; those of other sessions get the session before them.
    session: Option<ThreadId>,
    /// Whether facts of the client arrive: turns then start and end only by its requests.
    sees_client: bool,
    /// Whether whole messages arrive, and not only the parameters of updates.
    sees_responses: bool,
    /// Whether the connection speaks the draft of protocol 2.
    is_second: bool,
    turns: Bounded<Turn, SESSIONS_MAX>,
    /// Sessions whose turn waits for the user to sign in.
    signed_out: Bounded<ActionId, SESSIONS_MAX>,
    client_requests: Bounded<ClientRequest, REQUESTS_MAX>,
    agent_requests: Bounded<AgentRequest, REQUESTS_MAX>,
    /// Sessions whose history is being replayed.
    loading: Bounded<ThreadId, SESSIONS_MAX>,
    /// Sessions of child agents.
    children: Bounded<ThreadId, SESSIONS_MAX>,
    parts: Bounded<OpenPart, SESSIONS_MAX>,
    /// Digests of the texts of this log, which a replay repeats.
    texts: Bounded<TextDigest, TEXTS_MAX>,
    messages_made: u64,
    parts_made: u64,
    artifacts_made: u64,
    calls: Calls<Call>,
    pending: Bounded<Pending, PENDING_MAX>,
    terminals: Bounded<Terminal, TERMINALS_MAX>,
    /// The message of a replay whose chunks arrive.
    past: Option<PastMessage>,
}

impl Runtime for Acp {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    const ADDED_FIELDS: usize = 1;

    fn has_added(&self) -> bool {
        self.past.is_some()
    }

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let Event { sender, message, is_rpc, meta, tool_name } = event;
        self.sees_client |= sender == Sender::Client;
        self.sees_responses |= is_rpc;
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, out, session: None, tool_name };
        match (sender, message) {
            (_, Message::Update { session, kind, update }) => handler.update(session, &kind, update),
            (Sender::Client, Message::Request { id, method, params }) => handler.client_request(&id, &method, params),
            (Sender::Agent, Message::Request { id, method, params }) => handler.agent_request(&id, &method, params),
            (Sender::Client, Message::Response { id, outcome }) => handler.client_response(&id, outcome),
            (Sender::Agent, Message::Response { id, outcome }) => handler.agent_response(&id, outcome),
            (sender, Message::Notification { method, params }) => handler.notification(sender, &method, params),
            (_, Message::Diagnostic(draft)) => handler.push(*draft),
        }
        if !meta.is_empty() {
            let mut draft = internal("metadata", "_meta").with("meta", meta);
            draft.ids.tool_call = handler.out[from..].iter().find_map(|draft| draft.ids.tool_call.clone());
            handler.push(draft);
        }
    }
}

/// Handles one message: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut Acp,
    given: &'a Ids,
    out: Drafts<'a>,
    /// The session of the message.
    session: Option<ThreadId>,
    /// The tool that the agent names in its extension data.
    tool_name: Option<String>,
}

impl EventHandler<'_> {
    /// Appends the draft with the session's ids. The request's ids override ACP's own, but for a child agent.
    fn push(&mut self, mut draft: Draft) {
        let session = self.session.as_ref().or(self.memory.session.as_ref());
        if let Some(child) = session.filter(|session| self.memory.children.has(session)) {
            draft.ids.agent = draft.ids.agent.or_else(|| AgentId::new(child.as_str()).ok());
            draft.ids.thread = draft.ids.thread.or_else(|| Some(child.clone()));
        }
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&Ids { agent: self.memory.agent.clone(), ..conversation_ids(session) });
        self.out.push(draft);
    }

    fn push_carrying(&mut self, draft: Draft, rest: Fact) {
        self.push(carry_all(draft, rest));
    }

    /// Sets the session of the message.
    fn enter(&mut self, session: ThreadId) {
        self.memory.session.get_or_insert_with(|| session.clone());
        self.session = Some(session);
    }

    /// Returns the session of the message, else the log's first one.
    fn session(&self) -> Option<ThreadId> {
        self.session.clone().or_else(|| self.memory.session.clone())
    }

    /// The id in this log of a thing that is numbered within a session.
    fn scoped(&self, id: &str) -> String {
        match self.session.as_ref().filter(|session| self.memory.session.as_ref() != Some(*session)) {
            Some(other) => format!("{other}/{id}"),
            None => id.to_owned(),
        }
    }

    fn update(&mut self, session: ThreadId, kind: &str, update: Fact) {
        use text::Channel::{Answer, Prompt, Thought};
        self.enter(session);
        self.detect_replay(kind);
        let is_history = self.session.as_ref().is_some_and(|session| self.memory.loading.has(session));
        if is_history && history::CONTENT.contains(&kind) {
            return self.history(kind, update);
        }
        self.start_unseen_turn(kind, &update);
        match kind {
            "agent_message_chunk" => self.chunk(Answer, update),
            "agent_thought_chunk" => self.chunk(Thought, update),
            "user_message_chunk" => self.chunk(Prompt, update),
            "agent_message" => self.whole(Answer, update),
            "agent_thought" => self.whole(Thought, update),
            "user_message" => self.whole(Prompt, update),
            "tool_call" | "tool_call_update" => self.tool_update(kind, update),
            "tool_call_content_chunk" => self.tool_content_chunk(update),
            "terminal_update" => self.terminal_update(update),
            "terminal_output_chunk" => self.terminal_output_chunk(update),
            "plan" | "plan_update" | "plan_removed" => self.plan(kind, update),
            "state_update" => self.state_update(update),
            "current_mode_update" => self.mode(update),
            "config_option_update" | "session_info_update" => self.session_info(update),
            "available_commands_update" => self.commands(update),
            "usage_update" => self.usage_level(update),
            "notice" => self.notice(update),
            "compaction_update" => self.compaction(update),
            "subagent_update" => self.subagent(update),
            "compaction_summary_chunk" => self.push(diagnostic(kind, kind, update)),
            _ => self.push(super::members::unknown_type(kind, update)),
        }
    }
}

/// The key of a request's id in the memory.
fn request_key(id: &Value) -> String {
    name_of(&id.to_string())
}

/// The joined text of a list of content blocks. `None`: it has no text block.
fn texts_of(blocks: &[Value]) -> Option<String> {
    let texts: Vec<&str> = blocks.iter().filter_map(block_text).collect();
    (!texts.is_empty()).then(|| texts.join(""))
}

#[cfg(test)]
mod tests;
