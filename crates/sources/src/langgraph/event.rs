//! The facts: four dialects, told apart by the shape of each fact, as one kind of event.
//!
//! | dialect | a fact |
//! | --- | --- |
//! | A, run stream | `{"event": "messages|ns", "data"}` |
//! | B, protocol events | `{"type": "event", "method", "params"}` |
//! | C, callbacks | `{"event": "on_…", "run_id", "data"}`, also as the data of an A event |
//! | D, parts | `{"type", "ns", "data"}` |

use super::id_from;
use crate::members::{diagnostic, malformed, members_of, take_id, take_list, take_text, take_time};
use crate::{Fact, FactError};
use proscenium_model::{Draft, MessageId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The dialect that gave a message first, and therefore owns it: two in one stream bring each token twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dialect {
    /// A and D: streams by mode.
    Modes,
    /// B.
    Blocks,
    /// C.
    Callbacks,
}

/// A parsed fact.
pub(super) struct Event {
    pub timestamp: Option<Box<str>>,
    /// The subgraph, its segments joined by `|`. Empty: the root graph.
    pub namespace: String,
    pub content: Content,
}

pub(super) enum Content {
    /// An event of a stream mode: what nodes and the server write.
    Mode {
        mode: String,
        data: Value,
        rest: Fact,
    },
    Lifecycle(Fact),
    /// An event of a message in blocks.
    Block(Fact),
    Tool(Fact),
    InterruptRequested(Fact),
    Callback(Callback),
    /// An event without a meaning for the run. It stays whole, for internal readers.
    Diagnostic(Box<Draft>),
}

/// An event of dialect C.
pub(super) struct Callback {
    pub event: String,
    pub name: String,
    /// The id of the callable, not of the run.
    pub run: String,
    pub is_root: bool,
    /// Whether the graph's author hides it.
    pub is_hidden: bool,
    pub metadata: Map<String, Value>,
    pub data: Map<String, Value>,
}

/// Tags of callables that no reader may see.
const HIDDEN: &[&str] = &["nostream", "langsmith:nostream", "langsmith:hidden"];

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    if fact.get("type").and_then(Value::as_str) == Some("event") {
        return Ok(protocol_event(fact));
    }
    if fact.get("event").is_some_and(Value::is_string) {
        return Ok(stream_event(fact));
    }
    let Some(mode) = take_text(&mut fact, "type").filter(|mode| !mode.is_empty()) else {
        return Err(FactError::NoType { member: "event" });
    };
    let namespace = joined(fact.shift_remove("ns"));
    let data = fact.shift_remove("data").unwrap_or(Value::Null);
    Ok(Event { timestamp: None, namespace, content: Content::Mode { mode, data, rest: fact } })
}

/// Parses dialect A, and C in it or by itself.
fn stream_event(mut fact: Fact) -> Event {
    if fact.contains_key("run_id") {
        return callback(fact);
    }
    let name = take_text(&mut fact, "event").unwrap_or_default();
    let (mode, namespace) = name.split_once('|').unwrap_or((&name, ""));
    let (mode, namespace) = (mode.to_owned(), namespace.to_owned());
    let data = fact.shift_remove("data").unwrap_or(Value::Null);
    match data {
        Value::Object(inner) if matches!(mode.as_str(), "events" | "data") && inner.contains_key("run_id") => callback(inner),
        data => Event { timestamp: None, namespace, content: Content::Mode { mode, data, rest: fact } },
    }
}

fn callback(mut fact: Fact) -> Event {
    let tags = take_list(&mut fact, "tags");
    let metadata = object(fact.shift_remove("metadata"));
    let namespace = metadata.get("langgraph_checkpoint_ns").and_then(Value::as_str).unwrap_or_default();
    // The last segment is the node itself.
    let namespace = namespace.rsplit_once('|').map_or("", |(outer, _)| outer).to_owned();
    let callback = Callback {
        event: take_text(&mut fact, "event").unwrap_or_default(),
        name: take_text(&mut fact, "name").unwrap_or_default(),
        run: take_text(&mut fact, "run_id").unwrap_or_default(),
        is_root: take_list(&mut fact, "parent_ids").is_empty(),
        is_hidden: tags.iter().filter_map(Value::as_str).any(|tag| HIDDEN.contains(&tag)),
        metadata,
        data: object(fact.shift_remove("data")),
    };
    Event { timestamp: None, namespace, content: Content::Callback(callback) }
}

/// Parses dialect B.
fn protocol_event(mut fact: Fact) -> Event {
    let method = take_text(&mut fact, "method").unwrap_or_default();
    let Some(Value::Object(mut params)) = fact.shift_remove("params") else {
        let draft = malformed(&method, fact, "params as an object");
        return Event { timestamp: None, namespace: String::new(), content: Content::Diagnostic(draft.into()) };
    };
    let timestamp = take_time(&mut params, "timestamp");
    let namespace = joined(params.shift_remove("namespace"));
    let mut data = params.shift_remove("data").unwrap_or(Value::Null);
    fact.shift_remove("type");
    // Only the position in its own stream: the log has another.
    for position in ["seq", "event_id"] {
        fact.shift_remove(position);
    }
    fact.extend(params);
    // In process, a message's event has its metadata beside it.
    if method == "messages"
        && let Value::Array(pair) = &mut data
        && !pair.is_empty()
    {
        data = pair.swap_remove(0);
    }
    let content = match (method.as_str(), data) {
        ("lifecycle", Value::Object(data)) => Content::Lifecycle(data),
        ("messages", Value::Object(data)) => Content::Block(data),
        ("tools", Value::Object(data)) => Content::Tool(data),
        ("input.requested", Value::Object(data)) => Content::InterruptRequested(data),
        ("values" | "updates", data) => Content::Mode { mode: method, data, rest: fact },
        (mode, data) if mode == "custom" || mode.starts_with("custom:") => {
            Content::Mode { mode: "custom".into(), data, rest: fact }
        }
        (_, data) => {
            fact.insert("data".into(), data);
            Content::Diagnostic(diagnostic("event", &method, fact).into())
        }
    };
    Event { timestamp, namespace, content }
}

/// Joins a namespace's segments.
fn joined(namespace: Option<Value>) -> String {
    match namespace {
        Some(Value::Array(segments)) => segments.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        Some(Value::String(one)) => one,
        _ => String::new(),
    }
}

pub(super) fn object(value: Option<Value>) -> Map<String, Value> {
    members_of(value.unwrap_or(Value::Null), "value")
}

/// A message of LangChain, in any of its forms.
pub(super) struct Message {
    pub kind: MessageKind,
    pub id: Option<MessageId>,
    pub members: Fact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// A piece of the model's message.
    Chunk,
    /// The model's whole message.
    Model,
    Tool,
    Human,
    /// The instruction to remove the message of this id.
    Remove,
    Other,
}

impl Message {
    /// Reads a message. `None`: the value is none.
    pub fn of(value: Value) -> Option<Self> {
        let Value::Object(mut members) = value else { return None };
        if members.contains_key("lc") {
            // The serialised form of a class: its name is the last of a path.
            let class = members.get("id").and_then(|path| path.as_array()?.last()?.as_str()).unwrap_or_default().to_owned();
            let Some(Value::Object(kwargs)) = members.shift_remove("kwargs") else { return None };
            members = kwargs;
            members.entry("type").or_insert(class.into());
        }
        let name = take_text(&mut members, "type")?;
        let is_chunk = name.ends_with("MessageChunk") && name.starts_with("AI") || members.contains_key("tool_call_chunks");
        let kind = match name.as_str() {
            _ if is_chunk => MessageKind::Chunk,
            "ai" | "AIMessage" | "assistant" => MessageKind::Model,
            "tool" | "ToolMessage" | "ToolMessageChunk" => MessageKind::Tool,
            "human" | "HumanMessage" | "user" => MessageKind::Human,
            "remove" | "RemoveMessage" => MessageKind::Remove,
            _ => MessageKind::Other,
        };
        Some(Self { kind, id: take_id(&mut members, "id"), members })
    }

    /// Reads a message of a place where only whole ones stand. JavaScript leaves the pieces of calls in them.
    pub fn whole(value: Value) -> Option<Self> {
        let message = Self::of(value)?;
        let kind = if message.kind == MessageKind::Chunk { MessageKind::Model } else { message.kind };
        Some(Self { kind, ..message })
    }

    /// The call of a tool's message.
    pub fn call(&self) -> Option<ToolCallId> {
        self.members.get("tool_call_id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(id_from)
    }

    /// Whether it is the last piece of its message.
    pub fn is_last(&self) -> bool {
        match self.members.get("chunk_position") {
            Some(position) => position == "last",
            None => self.finish_reason().is_some(),
        }
    }

    pub fn finish_reason(&self) -> Option<&str> {
        super::text_of(self.members.get("response_metadata")?, "finish_reason")
    }

    /// The parts of the content: a name, whether it is reasoning, and the text. Other blocks have none.
    pub fn parts(&self) -> Vec<(String, bool, String)> {
        let mut parts = Vec::new();
        match self.members.get("content") {
            Some(Value::String(text)) => parts.push(("0".to_owned(), false, text.clone())),
            Some(Value::Array(blocks)) => {
                for (n, block) in blocks.iter().enumerate() {
                    let index = match block.get("index") {
                        Some(Value::Number(index)) => index.to_string(),
                        Some(Value::String(index)) => crate::members::name_of(index),
                        _ => n.to_string(),
                    };
                    let text = |member: &str| block.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
                    match block.get("type").and_then(Value::as_str) {
                        Some("text") => parts.push((index, false, text("text"))),
                        Some("reasoning") => parts.push((index, true, text("reasoning"))),
                        Some("thinking") => parts.push((index, true, text("thinking"))),
                        None if block.is_string() => parts.push((index, false, block.as_str().unwrap_or_default().to_owned())),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        let beside = self.members.get("additional_kwargs").and_then(|more| more.get("reasoning_content")).and_then(Value::as_str);
        parts.extend(beside.filter(|text| !text.is_empty()).map(|text| ("reasoning".to_owned(), true, text.to_owned())));
        parts
    }

    /// The text of the content, without reasoning.
    pub fn text(&self) -> String {
        self.parts().into_iter().filter(|(_, is_reasoning, _)| !is_reasoning).map(|(_, _, text)| text).collect()
    }

    /// The content as a tool's output: its text, if it is only text.
    pub fn output(&self) -> Value {
        match self.members.get("content") {
            Some(Value::Array(blocks))
                if blocks.iter().all(|block| block.get("type").and_then(Value::as_str) == Some("text")) =>
            {
                self.text().into()
            }
            content => content.cloned().unwrap_or(Value::Null),
        }
    }
}
