//! AG-UI events and messages as JSON.
//!
//! No member is null, and our own members stand below `metadata.proscenium`.

use super::attribution::{Attribution, set_all_metadata};
use super::items::{Body, Item};
use proscenium_projection::surface;
use serde_json::{Map, Value, json};

/// The message as a snapshot has it, without its call's result.
pub(super) fn message(id: &str, item: &Item, attribution: Attribution) -> Value {
    let agent = item.agent.as_deref();
    let mut message = match &item.body {
        Body::Text { role, text, files, .. } => {
            let content: Value = match files.is_empty() {
                true => text.as_str().into(),
                false => std::iter::once(json!({ "type": "text", "text": text })).chain(files.iter().cloned()).collect(),
            };
            json!({ "id": id, "role": role, "content": content })
        }
        Body::Reasoning { text, .. } => json!({ "id": id, "role": "reasoning", "content": text }),
        Body::Call { id: call, name, arguments, .. } => {
            let mut made = json!({ "id": call, "type": "function", "function": { "name": name, "arguments": arguments } });
            if attribution == Attribution::Inline {
                // A call is not a message, so it carries the mark itself, as its start event does.
                attribution.mark(&mut made, agent);
                return json!({ "id": id, "role": "assistant", "toolCalls": [made] });
            }
            json!({ "id": id, "role": "assistant", "toolCalls": [made] })
        }
        Body::Result { call, result, .. } => {
            let mut message = json!({ "id": id, "role": "tool", "toolCallId": call, "content": result.content });
            set_all_metadata(&mut message, &result.metadata);
            message
        }
        Body::Activity { kind, content } if **kind == *surface::KIND => {
            json!({ "id": id, "role": "activity", "activityType": kind, "content": surface::shown(content) })
        }
        Body::Activity { kind, content } => json!({ "id": id, "role": "activity", "activityType": kind, "content": content }),
    };
    attribution.mark(&mut message, agent);
    message
}

/// The event that gives a reader the whole content of an activity.
pub(super) fn activity(id: &str, kind: &str, content: &Map<String, Value>) -> Value {
    if *kind != *surface::KIND {
        return json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": kind, "content": content });
    }
    let content = surface::shown(content);
    json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": kind, "content": content, "replace": true })
}

/// The event that appends messages to those of a surface.
pub(super) fn append_to_surface(id: &str, messages: Vec<Value>) -> Value {
    let append = |message: Value| json!({ "op": "add", "path": "/a2ui_operations/-", "value": message });
    let patch: Vec<Value> = messages.into_iter().map(append).collect();
    json!({ "type": "ACTIVITY_DELTA", "messageId": id, "activityType": surface::KIND, "patch": patch })
}

/// The events that open a bracket, or the one event of a message without a bracket.
pub(super) fn begin(id: &str, item: &Item, attribution: Attribution) -> Vec<Value> {
    let mut events = match &item.body {
        Body::Text { role, .. } => vec![json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": role })],
        Body::Reasoning { .. } => vec![
            json!({ "type": "REASONING_START", "messageId": id }),
            json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
        ],
        Body::Call { id: call, name, .. } => {
            let mut event = json!({ "type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name });
            // Without the member, a client gives the message the call's id.
            if **call != *id {
                event["parentMessageId"] = id.into();
            }
            vec![event]
        }
        Body::Result { call, result, .. } => {
            let mut event = json!({ "type": "TOOL_CALL_RESULT", "messageId": id, "toolCallId": call, "content": result.content });
            set_all_metadata(&mut event, &result.metadata);
            vec![event]
        }
        // An earlier run created it: a client that has its messages keeps them.
        Body::Activity { kind, content } if **kind == *surface::KIND && surface::is_partial(content) => {
            let mut event = activity(id, kind, &Map::new());
            event["replace"] = false.into();
            vec![event, append_to_surface(id, surface::messages(content))]
        }
        Body::Activity { kind, content } => vec![activity(id, kind, content)],
    };
    for event in &mut events {
        attribution.mark(event, item.agent.as_deref());
    }
    events
}

/// An open bracket: its ids, to append to it, to end it and to reopen it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bracket {
    Text(Box<str>),
    Reasoning(Box<str>),
    /// The call's id.
    Call(Box<str>),
}

impl Bracket {
    /// The bracket of a message; `None` for a message sent in one event.
    pub fn of(id: &str, item: &Item) -> Option<Self> {
        match &item.body {
            Body::Text { .. } => Some(Self::Text(id.into())),
            Body::Reasoning { .. } => Some(Self::Reasoning(id.into())),
            Body::Call { id: call, .. } => Some(Self::Call(call.clone())),
            Body::Result { .. } | Body::Activity { .. } => None,
        }
    }

    /// The event that appends a delta.
    pub fn content(&self, delta: &str) -> Value {
        match self {
            Self::Text(id) => json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta }),
            Self::Reasoning(id) => json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": delta }),
            Self::Call(id) => json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": delta }),
        }
    }

    /// The events that end the bracket.
    pub fn end(&self) -> Vec<Value> {
        match self {
            Self::Text(id) => vec![json!({ "type": "TEXT_MESSAGE_END", "messageId": id })],
            Self::Reasoning(id) => vec![
                json!({ "type": "REASONING_MESSAGE_END", "messageId": id }),
                json!({ "type": "REASONING_END", "messageId": id }),
            ],
            Self::Call(id) => vec![json!({ "type": "TOOL_CALL_END", "toolCallId": id })],
        }
    }
}
