//! The facts of ACP: one JSON-RPC message each, in three forms, understood without the messages before it.

use crate::members::{diagnostic, malformed, take_text};
use crate::{Fact, FactError};
use proscenium_model::{Draft, ThreadId};
use serde_json::{Map, Value};

/// The end of the connection that sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Agent,
    Client,
}

/// A parsed fact.
pub(super) struct Event {
    pub sender: Sender,
    pub message: Message,
    /// Whether the fact is a whole JSON-RPC message.
    pub is_rpc: bool,
    /// The extension data of all its objects, by JSON pointer. For internal readers.
    pub meta: Map<String, Value>,
    /// The tool that the agent names in its extension data.
    pub tool_name: Option<String>,
}

/// A JSON-RPC message. Both ends number their requests, so an id says nothing without the sender.
pub(super) enum Message {
    Request {
        id: Value,
        method: String,
        params: Fact,
    },
    Notification {
        method: String,
        params: Fact,
    },
    /// A `session/update`: its session, its kind, and its members with those beside it.
    Update {
        session: ThreadId,
        kind: String,
        update: Fact,
    },
    Response {
        id: Value,
        outcome: Result<Value, Value>,
    },
    /// A message that cannot be read. It stays whole, for internal readers.
    Diagnostic(Box<Draft>),
}

/// The member that says which end sent a message, in the recording of both directions.
const FROM: &str = "from";

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let sender = match fact.get(FROM).map(Value::as_str) {
        None | Some(Some("agent")) => Some(Sender::Agent),
        Some(Some("client")) => Some(Sender::Client),
        Some(_) => None,
    };
    if fact.contains_key(FROM) {
        match fact.get("message") {
            Some(Value::Object(_)) => {}
            _ => return Err(FactError::BadMember { member: "message", expected: "a JSON-RPC message, as an object".into() }),
        }
    }
    let Some(sender) = sender else {
        let draft = malformed("message", fact, "from as \"agent\" or \"client\"");
        let message = Message::Diagnostic(draft.into());
        return Ok(Event { sender: Sender::Agent, message, is_rpc: false, meta: Map::new(), tool_name: None });
    };
    if fact.shift_remove(FROM).is_some()
        && let Some(Value::Object(message)) = fact.shift_remove("message")
    {
        for (member, value) in message {
            fact.insert(member, value);
        }
    }
    let meta = Map::from_iter(take_meta(&mut fact));
    let tool_name = meta.iter().filter(|(at, _)| is_of_call(at)).find_map(|(_, meta)| tool_name(meta));
    let is_rpc = fact.contains_key("method") || fact.contains_key("id");
    Ok(Event { sender, message: message(fact)?, is_rpc, meta, tool_name })
}

fn message(mut fact: Fact) -> Result<Message, FactError> {
    fact.shift_remove("jsonrpc");
    if fact.contains_key("update") && !fact.contains_key("method") {
        return Ok(update(fact));
    }
    let id = fact.get("id").filter(|id| !id.is_null()).cloned();
    let Some(method) = take_text(&mut fact, "method").filter(|method| !method.is_empty()) else {
        let Some(id) = id else { return Err(FactError::NoType { member: "method" }) };
        fact.shift_remove("id");
        let outcome = match (fact.shift_remove("error").filter(|error| !error.is_null()), fact.shift_remove("result")) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            (None, None) => return Err(FactError::NoType { member: "method" }),
        };
        return Ok(Message::Response { id, outcome });
    };
    fact.shift_remove("id");
    let mut params = match fact.shift_remove("params") {
        Some(Value::Object(params)) => params,
        Some(odd) => Fact::from_iter([("params".to_owned(), odd)]),
        None => Fact::new(),
    };
    for (member, value) in fact {
        params.entry(member).or_insert(value);
    }
    Ok(match id {
        Some(id) => Message::Request { id, method, params },
        None if method == "session/update" => update(params),
        None => Message::Notification { method, params },
    })
}

fn update(mut params: Fact) -> Message {
    const TYPE: &str = "session/update";
    let session = params.get("sessionId").and_then(Value::as_str).and_then(|id| ThreadId::new(id).ok());
    let kind = params.get("update").and_then(|update| update.get("sessionUpdate")).and_then(Value::as_str).map(str::to_owned);
    let (Some(session), Some(kind)) = (session, kind.filter(|kind| !kind.is_empty())) else {
        return Message::Diagnostic(malformed(TYPE, params, "sessionId as an id, and update with a sessionUpdate").into());
    };
    params.shift_remove("sessionId");
    let Some(Value::Object(mut update)) = params.shift_remove("update") else {
        return Message::Diagnostic(diagnostic("malformed_event", TYPE, params).into());
    };
    update.shift_remove("sessionUpdate");
    for (member, value) in params {
        update.entry(member).or_insert(value);
    }
    Message::Update { session, kind, update }
}

/// Whether a JSON pointer is that of the extension data of a tool call.
fn is_of_call(at: &str) -> bool {
    at.ends_with("/update/_meta") || at.ends_with("/toolCall/_meta")
}

/// Reads the tool's name from an agent's extension data: `{"<agent>": {"toolName": …}}`.
fn tool_name(meta: &Value) -> Option<String> {
    let name = |of: &Value| of.get("toolName").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    name(meta).or_else(|| meta.as_object()?.values().find_map(name))
}

/// Takes the extension data out of an object and of all objects in it, with their JSON pointers.
///
/// Agents put whole tool responses and account data there.
fn take_meta(object: &mut Map<String, Value>) -> Vec<(String, Value)> {
    let mut found: Vec<_> = object.shift_remove("_meta").map(|meta| ("/_meta".to_owned(), meta)).into_iter().collect();
    for (member, value) in object {
        found.extend(take_meta_of(value).into_iter().map(|(at, meta)| (format!("/{member}{at}"), meta)));
    }
    found
}

fn take_meta_of(value: &mut Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(object) => take_meta(object),
        Value::Array(items) => {
            let found = items.iter_mut().enumerate().map(|(n, item)| (n, take_meta_of(item)));
            found.flat_map(|(n, found)| found.into_iter().map(move |(at, meta)| (format!("/{n}{at}"), meta))).collect()
        }
        _ => Vec::new(),
    }
}
