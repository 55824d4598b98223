//! The facts: one line of the process each, bare or with its direction, understood without the lines before it.

use crate::digest::hash_of;
use crate::members::{Need, Parsed, diagnostic, parse_kind, require, take_id, take_members, take_text, take_time, take_type};
use crate::{Fact, FactError};
use proscenium_model::{AgentId, MessageId};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A parsed fact.
pub(super) struct Event {
    pub is_from_host: bool,
    /// The digest of the line's id.
    pub line: Option<u64>,
    pub session: Option<String>,
    pub timestamp: Option<Box<str>>,
    /// `None`: the line only shows that the process is alive.
    pub content: Option<Parsed<(Kind, Fact)>>,
}

/// The types of lines, those of `system` lines by their subtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    StreamEvent,
    Assistant,
    User,
    Result,
    ControlRequest,
    ControlResponse,
    ControlCancelRequest,
    #[serde(rename = "system/init")]
    Init,
    #[serde(rename = "system/status")]
    Status,
    #[serde(rename = "system/thinking_tokens")]
    ThinkingTokens,
    #[serde(rename = "system/task_started")]
    TaskStarted,
    #[serde(rename = "system/task_progress")]
    TaskProgress,
    #[serde(rename = "system/task_updated")]
    TaskUpdated,
    #[serde(rename = "system/task_notification")]
    TaskNotification,
    #[serde(rename = "system/compact_boundary")]
    CompactBoundary,
    #[serde(rename = "system/api_retry")]
    ApiRetry,
    #[serde(rename = "system/permission_denied")]
    PermissionDenied,
    #[serde(rename = "system/hook_response")]
    HookResponse,
    #[serde(rename = "system/informational", alias = "system/notification")]
    Notice,
}

impl Kind {
    /// Returns the required members of a line.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Id, Value};
        match self {
            Self::StreamEvent => &[("event", Value)],
            Self::Assistant | Self::User => &[("message", Value)],
            Self::ControlRequest | Self::ControlCancelRequest => &[("request_id", Id)],
            Self::ControlResponse => &[("response", Value)],
            Self::TaskStarted | Self::TaskProgress | Self::TaskUpdated | Self::TaskNotification => &[("task_id", Id)],
            _ => &[],
        }
    }
}

/// Lines that say nothing about the run, or that only their own frontend needs.
const ASIDE: &[&str] = &[
    "system/background_tasks_changed",
    "system/hook_started",
    "system/hook_progress",
    "system/session_state_changed",
    "system/local_command_output",
    "system/files_persisted",
    "system/memory_recall",
    "system/commands_changed",
    "system/model_refusal_no_fallback",
    "system/model_refusal_fallback",
    "rate_limit_event",
    "tool_progress",
    "tool_use_summary",
    "prompt_suggestion",
    "auth_status",
    "conversation_reset",
    "active_goal",
];

/// The member that says which end sent a line, in the recording of both directions.
const FROM: &str = "from";

/// Members of the lines of a session file, below `~/.claude/projects`, which the process never prints.
const OF_SESSION_FILES: [&str; 4] = ["parentUuid", "leafUuid", "isSidechain", "isSnapshotUpdate"];

/// Refuses a line of a session file: such a file never says that a turn has ended, so its run would stay at work.
fn refuse_session_file(line: &Fact) -> Result<(), FactError> {
    let Some(member) = OF_SESSION_FILES.into_iter().find(|member| line.contains_key(*member)) else { return Ok(()) };
    let expected = "a line that claude -p --output-format stream-json --verbose prints; this is a line of a session file of \
                    ~/.claude/projects, which has no end of a turn";
    Err(FactError::BadMember { member, expected: expected.into() })
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let mut is_from_host = false;
    if let Some(from) = fact.get(FROM).filter(|_| !fact.contains_key("type")) {
        match from.as_str() {
            Some("claude" | "host") => is_from_host = from == "host",
            _ => return Err(FactError::BadMember { member: FROM, expected: "\"claude\" or \"host\"".into() }),
        }
        fact = match fact.shift_remove("message") {
            Some(Value::Object(line)) => line,
            _ => return Err(FactError::BadMember { member: "message", expected: "a line of the process, as an object".into() }),
        };
    }
    refuse_session_file(&fact)?;
    let mut name = take_type(&mut fact, "type")?;
    if name == "system" {
        let subtype = take_text(&mut fact, "subtype").unwrap_or_default();
        name = format!("system/{subtype}");
    }
    let line = take_text(&mut fact, "uuid").map(|id| hash_of(&id));
    let session = take_text(&mut fact, "session_id");
    let timestamp = take_time(&mut fact, "timestamp");
    let content = match name.as_str() {
        "keep_alive" => None,
        name if ASIDE.contains(&name) => Some(Err(diagnostic(name, name, fact).into())),
        name => Some(parse_known(name, fact)),
    };
    Ok(Event { is_from_host, line, session, timestamp, content })
}

fn parse_known(name: &str, fact: Fact) -> Parsed<(Kind, Fact)> {
    let (kind, fact) = parse_kind::<Kind>(name, fact)?;
    Ok((kind, require("claude-stream-json", name, fact, kind.needs())?))
}

/// An `assistant` or `user` line: whose it is, its message, and the members beside it.
pub(super) struct Line {
    /// The call that started the child agent. `None`: the line is the main agent's.
    pub parent: Option<String>,
    pub agent: Option<AgentId>,
    pub message: Map<String, Value>,
    pub id: Option<MessageId>,
    pub blocks: Vec<Value>,
    pub rest: Fact,
}

impl Line {
    pub fn of(mut fact: Fact) -> Self {
        let parent = take_text(&mut fact, "parent_tool_use_id");
        fact.retain(|member, value| !(member == "parent_tool_use_id" && value.is_null()));
        let agent = take_id(&mut fact, "agent_id");
        let mut message = take_members(&mut fact, "message", "content");
        let blocks = match message.shift_remove("content") {
            Some(Value::Array(blocks)) => blocks,
            Some(Value::String(text)) => vec![serde_json::json!({ "type": "text", "text": text })],
            _ => Vec::new(),
        };
        Self { parent, agent, id: take_id(&mut message, "id"), message, blocks, rest: fact }
    }
}
