//! The events: what a fact means without the facts before it.
//!
//! One source has four forms. A raw event is the JSON of one SSE `data:` line. The Agents SDK wraps raw events, and adds
//! items and agents. A bare input item is what the caller sends with its next request, and what no stream repeats. And
//! [`STREAM_ENDED`] is what the reader of a stream adds at its end.

use crate::members::{Need, RuntimeId, diagnostic, malformed, take_text, take_type, unknown_type, unmet};
use crate::{Fact, FactError};
use proscenium_model::time::parse_time;
use proscenium_model::{Draft, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Channel {
    Text,
    Refusal,
    /// A summary of the model's reasoning.
    Summary,
    /// The raw chain of thought.
    Thought,
}

/// The meaning of a raw event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Created,
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Error,
    ItemAdded,
    ItemDone,
    Delta(Channel),
    /// The whole text of a part, in this member.
    Done(Channel, &'static str),
    PartDone,
    Annotation,
    InputDelta,
    /// The whole input of a call, in this member.
    InputDone(&'static str),
    /// A step of a server's tool, by its name.
    ToolStatus,
    ShellOutput,
    PartialImage,
    Compacting,
    ListToolsFailed,
    SteerFailed,
    /// For internal readers only.
    Internal,
    /// Announces what the next event has whole. It has only ids.
    Announcement,
}

/// Returns the meaning of an event type, and the member that an event of the type must have.
fn kind_of(name: &str) -> Option<(Kind, &'static [(&'static str, Need)])> {
    use Channel::{Refusal, Summary, Text, Thought};
    const DELTA: &[(&str, Need)] = &[("delta", Need::Text)];
    const NONE: &[(&str, Need)] = &[];
    if name == "error" {
        return Some((Kind::Error, NONE));
    }
    Some(match name.strip_prefix("response.")? {
        "created" => (Kind::Created, NONE),
        "queued" => (Kind::Queued, NONE),
        "in_progress" => (Kind::InProgress, NONE),
        "completed" => (Kind::Completed, NONE),
        "incomplete" => (Kind::Incomplete, NONE),
        "failed" => (Kind::Failed, NONE),
        "output_item.added" => (Kind::ItemAdded, &[("item", Need::Object)]),
        "output_item.done" => (Kind::ItemDone, &[("item", Need::Object)]),
        "output_text.delta" => (Kind::Delta(Text), DELTA),
        "refusal.delta" => (Kind::Delta(Refusal), DELTA),
        "reasoning_summary_text.delta" => (Kind::Delta(Summary), DELTA),
        "reasoning_text.delta" => (Kind::Delta(Thought), DELTA),
        "output_text.done" => (Kind::Done(Text, "text"), &[("text", Need::Text)]),
        "refusal.done" => (Kind::Done(Refusal, "refusal"), &[("refusal", Need::Text)]),
        "reasoning_summary_text.done" => (Kind::Done(Summary, "text"), &[("text", Need::Text)]),
        "reasoning_text.done" => (Kind::Done(Thought, "text"), &[("text", Need::Text)]),
        "content_part.done" | "reasoning_summary_part.done" => (Kind::PartDone, &[("part", Need::Object)]),
        "output_text.annotation.added" => (Kind::Annotation, &[("annotation", Need::Object)]),
        "function_call_arguments.delta"
        | "mcp_call_arguments.delta"
        | "custom_tool_call_input.delta"
        | "code_interpreter_call_code.delta"
        | "shell_call_command.delta" => (Kind::InputDelta, DELTA),
        "function_call_arguments.done" | "mcp_call_arguments.done" => {
            (Kind::InputDone("arguments"), &[("arguments", Need::Text)])
        }
        "custom_tool_call_input.done" => (Kind::InputDone("input"), &[("input", Need::Text)]),
        "code_interpreter_call_code.done" => (Kind::InputDone("code"), &[("code", Need::Text)]),
        "shell_call_output_content.delta" => (Kind::ShellOutput, &[("delta", Need::Object)]),
        "image_generation_call.partial_image" => (Kind::PartialImage, &[("partial_image_b64", Need::Text)]),
        "compaction.compacting" => (Kind::Compacting, NONE),
        "mcp_list_tools.failed" => (Kind::ListToolsFailed, NONE),
        "steer.failed" => (Kind::SteerFailed, NONE),
        "content_part.added"
        | "reasoning_summary_part.added"
        | "shell_call_command.added"
        | "shell_call_command.done"
        | "shell_call_output_content.done"
        | "mcp_list_tools.in_progress"
        | "mcp_list_tools.completed" => (Kind::Announcement, NONE),
        other if other.starts_with("audio.") || other.starts_with("steer.") => (Kind::Internal, NONE),
        other => {
            let (tool, status) = other.split_once('.')?;
            let is_status =
                matches!(status, "in_progress" | "searching" | "interpreting" | "generating" | "completed" | "failed");
            (tool.ends_with("_call") && is_status).then_some((Kind::ToolStatus, NONE))?
        }
    })
}

/// A parsed fact.
pub(super) enum Event {
    Raw(Box<Raw>),
    /// An item of the Agents SDK, or a bare input item of the caller.
    Item(Box<RunItem>),
    /// The agent that runs from now on.
    Agent(Fact),
    /// The stream has ended.
    StreamEnded(Fact),
    /// An event that stays whole, for internal readers.
    Diagnostic(Box<Draft>),
}

/// A raw event.
pub(super) struct Raw {
    pub kind: Kind,
    pub name: String,
    pub members: Fact,
    pub sequence: Option<u64>,
    /// When the response began or ended, in the event of its start or its end.
    pub timestamp: Option<Box<str>>,
    /// Whether the Agents SDK wrapped it.
    pub is_wrapped: bool,
}

/// A whole item.
pub(super) struct RunItem {
    /// What the Agents SDK reports. `None`: a bare input item.
    pub name: Option<String>,
    pub item: Map<String, Value>,
    /// The members of the SDK's item beside the raw item.
    pub members: Fact,
}

/// The type of the fact that a stream has ended.
///
/// Only the end shows that nothing answers the open calls of the last response: an agent that runs its own tools sends
/// their outputs, or another response, on the same stream.
pub const STREAM_ENDED: &str = "stream.ended";

/// The types of bare input items.
fn is_input_item(name: &str) -> bool {
    name.ends_with("_output") || name == "mcp_approval_response"
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let name = take_type(&mut fact, "type")?;
    Ok(match name.as_str() {
        "raw_response_event" => match fact.shift_remove("data") {
            Some(Value::Object(mut raw)) if raw.get("type").is_some_and(Value::is_string) => {
                let name = take_text(&mut raw, "type").unwrap_or_default();
                raw_event(name, raw, true)
            }
            odd => {
                fact.extend(odd.map(|odd| ("data".to_owned(), odd)));
                Event::Diagnostic(malformed(&name, fact, "data as an event with a type").into())
            }
        },
        "run_item_stream_event" => run_item(&name, fact),
        "agent_updated_stream_event" => match fact.get("new_agent").and_then(|agent| agent.get("name")) {
            Some(Value::String(_)) => Event::Agent(fact),
            _ => Event::Diagnostic(malformed(&name, fact, "new_agent with a name").into()),
        },
        STREAM_ENDED => Event::StreamEnded(fact),
        _ if is_input_item(&name) => input_item(name, fact),
        _ => raw_event(name, fact, false),
    })
}

fn raw_event(name: String, mut members: Fact, is_wrapped: bool) -> Event {
    let Some((kind, needs)) = kind_of(&name) else { return Event::Diagnostic(unknown_type(&name, members).into()) };
    if let Some(expected) = unmet(&members, needs) {
        return Event::Diagnostic(malformed(&name, members, &expected).into());
    }
    let sequence = members.shift_remove("sequence_number").as_ref().and_then(Value::as_u64);
    // Random padding, and a list that is empty unless the caller asks for it.
    members.shift_remove("obfuscation");
    members.retain(|member, value| !(value.is_null() || member == "logprobs" && value.as_array().is_some_and(Vec::is_empty)));
    let timestamp = time_of(kind, &members);
    Event::Raw(Raw { kind, name, members, sequence, timestamp, is_wrapped }.into())
}

/// The time of an event that starts or ends a response. No other event has one.
fn time_of(kind: Kind, members: &Fact) -> Option<Box<str>> {
    let member = match kind {
        Kind::Created => "created_at",
        Kind::Completed | Kind::Incomplete | Kind::Failed => "completed_at",
        _ => return None,
    };
    let at = parse_time(members.get("response")?.get(member)?)?;
    Some(at.to_string().into())
}

fn run_item(event_type: &str, mut fact: Fact) -> Event {
    let name = take_text(&mut fact, "name");
    match (name, fact.shift_remove("item")) {
        (Some(name), Some(Value::Object(mut members))) => match members.shift_remove("raw_item") {
            Some(Value::Object(item)) => {
                members.extend(fact);
                Event::Item(RunItem { name: Some(name), item, members }.into())
            }
            odd => {
                members.extend(odd.map(|odd| ("raw_item".to_owned(), odd)));
                Event::Diagnostic(diagnostic("item_without_raw_item", &name, members).into())
            }
        },
        (name, item) => {
            fact.extend(name.map(|name| ("name".to_owned(), name.into())));
            fact.extend(item.map(|item| ("item".to_owned(), item)));
            Event::Diagnostic(malformed(event_type, fact, "name as text, and item as an object").into())
        }
    }
}

fn input_item(name: String, mut item: Fact) -> Event {
    let needs: &[(&str, Need)] = match name.as_str() {
        "mcp_approval_response" => &[("approval_request_id", Need::Id), ("approve", Need::Flag)],
        _ => &[("call_id", Need::Id)],
    };
    if let Some(expected) = unmet(&item, needs) {
        return Event::Diagnostic(malformed(&name, item, &expected).into());
    }
    item.insert("type".into(), name.into());
    Event::Item(RunItem { name: None, item, members: Map::new() }.into())
}

/// Reads the id of a call: `call_id`, else the item's own id.
pub(super) fn call_of(item: &Map<String, Value>) -> Option<ToolCallId> {
    ToolCallId::of(named_call(item)?)
}

/// The name of a call, by the server.
pub(super) fn named_call(item: &Map<String, Value>) -> Option<&str> {
    let text = |member: &str| item.get(member).and_then(Value::as_str).filter(|id| !id.is_empty());
    text("call_id").or_else(|| text("id").filter(|id| *id != FAKE_ID))
}

/// The id that the Agents SDK gives every response and item of a chat-completions model.
pub(super) const FAKE_ID: &str = "__fake_id__";
