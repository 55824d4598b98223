//! Snapshots of messages: the history in the protocol's shape, and the non-message items in it.
//!
//! A snapshot is a window: it does not override streamed content. Reasoning and activities in it give the same drafts
//! as their own events. Calls after the last user message belong to the current run. The adapter reports a call that no
//! event streamed, because a backend's tools may appear only in the snapshot.

use super::EventHandler;
use super::streams::part_name;
use crate::Fact;
use crate::members::{
    block_text, byte_count, carry_all, id_of, input, internal, name_unnamed, next_id, take_id, take_list, take_members,
    take_text, window_message,
};
use proscenium_model::{AgentId, Draft, EventType, MessageId, PartId, PartKind, ToolCallId};
use serde_json::{Map, Value, json};

/// Members of a message, or of a call in it, that are for the internal audience.
const NARROWER: &[&str] = &["metadata", "rawEvent"];

/// Members of a message, or of a call in it, that only the model's provider can read.
const ENCRYPTED: &[&str] = &["encryptedValue", "encryptedContent"];

/// The items of a snapshot that are not messages of the window.
#[derive(Default)]
struct SnapshotExtras {
    /// Reasoning and activities, as drafts of their own events.
    drafts: Vec<Draft>,
    /// The internal members of each message.
    narrower: Vec<Value>,
    calls: Vec<RequestedCall>,
    results: Vec<CallAnswer>,
}

/// A call that a message requests.
struct RequestedCall {
    id: ToolCallId,
    name: String,
    arguments: String,
    message: MessageId,
    agent: Option<AgentId>,
}

/// A tool's message.
pub(super) struct CallAnswer {
    call: ToolCallId,
    message: Option<MessageId>,
    content: Option<Value>,
    error: Option<String>,
}

impl CallAnswer {
    /// Reads a tool's message, if `is_wanted` accepts its call.
    fn of(message: &Value, is_wanted: impl Fn(&ToolCallId) -> bool) -> Option<Self> {
        let message = message.as_object().filter(|message| message.get("role").and_then(Value::as_str) == Some("tool"))?;
        Some(Self {
            call: id_of(message, "toolCallId").filter(is_wanted)?,
            message: id_of(message, "id"),
            content: message.get("content").filter(|content| !content.is_null()).cloned(),
            error: message.get("error").and_then(Value::as_str).filter(|error| !error.is_empty()).map(str::to_owned),
        })
    }
}

impl EventHandler<'_> {
    pub(super) fn messages_snapshot(&mut self, mut fact: Fact) {
        let messages = take_list(&mut fact, "messages");
        let is_user = |message: &Value| message.get("role").and_then(Value::as_str) == Some("user");
        let own_from = messages.iter().rposition(is_user).map_or(0, |at| at + 1);
        let mut extras = SnapshotExtras::default();
        let mut window = Vec::with_capacity(messages.len());
        for (n, mut message) in messages.into_iter().enumerate() {
            if let Value::Object(members) = &mut message {
                name_unnamed("ag-ui", members, "toolCallId");
            }
            extras.results.extend(CallAnswer::of(&message, |call| n >= own_from || self.memory.calls.open.has(call)));
            let calls_before = extras.calls.len();
            window.extend(self.convert_message(message, &mut extras));
            if n < own_from {
                extras.calls.truncate(calls_before);
            }
        }
        let draft = Draft::new(EventType::MessagesSnapshot).with("mode", "window").with("messages", window);
        self.push_own(carry_all(draft, fact));
        for mut draft in extras.drafts {
            draft.ids.agent = draft.ids.agent.or_else(|| self.agent.clone());
            self.push(draft);
        }
        for call in extras.calls {
            self.announce(call);
        }
        for answer in extras.results {
            self.answer_call(answer);
        }
        if !extras.narrower.is_empty() {
            self.push(internal("metadata", "MESSAGES_SNAPSHOT").with("messages", extras.narrower));
        }
    }

    /// Converts a message to the protocol's shape. `None`: the item has its own envelope beside the window.
    fn convert_message(&mut self, message: Value, extras: &mut SnapshotExtras) -> Option<Value> {
        let Value::Object(mut message) = message else { return Some(message) };
        message.retain(|_, value| !value.is_null());
        let id: MessageId =
            take_id(&mut message, "id").unwrap_or_else(|| next_id("ag-ui-message", &mut self.memory.messages_made));
        let agent: Option<AgentId> = take_id(&mut message, "subagentRunId");
        let role = take_text(&mut message, "role").unwrap_or_else(|| "unknown".into());
        extras.narrower.extend(narrower(&mut message, &[("messageId", id.as_str())]));
        match role.as_str() {
            "reasoning" => {
                extras.drafts.extend(self.reasoning_draft(id, agent, message));
                return None;
            }
            "activity" if message.get("activityType").and_then(Value::as_str).is_some_and(|name| !name.is_empty()) => {
                let name = take_text(&mut message, "activityType").unwrap_or_default();
                let content = message.shift_remove("content").unwrap_or(Value::Null);
                let draft = self.activity(EventType::StateSnapshot, id, name, message).with("content", content).with_agent(agent);
                extras.drafts.push(draft);
                return None;
            }
            _ => {}
        }
        let call: Option<ToolCallId> = id_of(&message, "toolCallId");
        let kind = PartKind::of_role(&role);
        let kind = kind.as_str();
        let mut parts = content_parts(&mut message, kind);
        if let Some(call) = call.as_ref().filter(|_| role == "tool") {
            if parts.is_empty() {
                add_text(&mut parts, kind, "");
            }
            for part in &mut parts {
                part["toolCallId"] = call.as_str().into();
            }
        }
        match message.shift_remove("toolCalls") {
            Some(Value::Array(calls)) => {
                for call in calls {
                    parts.push(self.call_part(call, &id, agent.as_ref(), extras));
                }
            }
            Some(odd) => drop(message.insert("toolCalls".into(), odd)),
            None => {}
        }
        Some(window_message(&id, &role, agent, parts, message))
    }

    /// Converts reasoning of the history into a draft, unless the run streamed it.
    fn reasoning_draft(&self, id: MessageId, agent: Option<AgentId>, mut message: Map<String, Value>) -> Option<Draft> {
        if self.memory.knows_thought(&id) {
            return None;
        }
        let text = match message.shift_remove("content") {
            Some(Value::String(text)) => text,
            Some(Value::Array(blocks)) => blocks.iter().filter_map(block_text).collect::<String>(),
            _ => String::new(),
        };
        let draft = carry_all(Draft::new(EventType::ReasoningSummary).with_text(text), message);
        Some(draft.with_message(id).with_part(PartId::new(&part_name("reasoning", 1)).ok()).with_agent(agent))
    }

    fn call_part(&self, call: Value, message: &MessageId, agent: Option<&AgentId>, extras: &mut SnapshotExtras) -> Value {
        let Value::Object(mut call) = call else { return json!({ "kind": "tool_call", "call": call }) };
        call.retain(|_, value| !value.is_null());
        name_unnamed("ag-ui", &mut call, "id");
        let id: Option<ToolCallId> = take_id(&mut call, "id");
        let of = [("messageId", message.as_str()), ("toolCallId", id.as_ref().map_or("", ToolCallId::as_str))];
        extras.narrower.extend(narrower(&mut call, &of));
        let mut function = take_members(&mut call, "function", "function");
        let name = take_text(&mut function, "name").unwrap_or_default();
        let arguments = take_text(&mut function, "arguments").unwrap_or_default();
        let mut part = Map::new();
        part.extend(id.as_ref().map(|id| ("partId".to_owned(), id.as_str().into())));
        part.insert("kind".into(), "tool_call".into());
        part.extend(id.as_ref().map(|id| ("toolCallId".to_owned(), id.as_str().into())));
        part.insert("toolName".into(), name.as_str().into());
        let (member, value) = input(&arguments);
        part.insert(member.into(), value);
        call.shift_remove("type");
        for (member, value) in call.into_iter().chain(function) {
            part.entry(member).or_insert(value);
        }
        extras.calls.extend(id.map(|id| RequestedCall { id, name, arguments, message: message.clone(), agent: agent.cloned() }));
        Value::Object(part)
    }

    /// Reports a call of this run that no event announced.
    fn announce(&mut self, call: RequestedCall) {
        if self.memory.calls.know(&call.id, &self.out) {
            return;
        }
        let own = self.agent.clone();
        self.agent = call.agent.or(self.agent.take());
        self.start_call(call.id.clone(), &call.name, Some(call.message), Map::new());
        self.agent = own;
        self.report_whole_args(&call.id, &call.arguments);
    }

    /// Returns the answers to open calls in a run's input.
    pub(super) fn answered_calls(&self, input: &Value) -> Vec<CallAnswer> {
        let messages = input.get("messages").and_then(Value::as_array);
        let is_open = |call: &ToolCallId| self.memory.calls.open.has(call);
        messages.into_iter().flatten().filter_map(|message| CallAnswer::of(message, is_open)).collect()
    }

    /// Ends an open call with its tool's message. For any other call the message is history.
    pub(super) fn answer_call(&mut self, answer: CallAnswer) {
        match answer.error {
            _ if !self.memory.calls.open.has(&answer.call) => {}
            Some(error) => self.failure(answer.call, answer.message, error, answer.content),
            None => self.result(answer.call, answer.message, answer.content, None, Map::new()),
        }
    }
}

/// Takes the internal and the encrypted members of a message or call.
/// `None`: it has neither.
///
/// Internal readers get the internal members, and only the length of the encrypted ones.
fn narrower(of: &mut Map<String, Value>, ids: &[(&str, &str)]) -> Option<Value> {
    let mut internals = Map::new();
    for member in NARROWER {
        internals.extend(of.shift_remove(*member).map(|value| ((*member).to_owned(), value)));
    }
    let encrypted: usize = ENCRYPTED.iter().filter_map(|member| of.shift_remove(*member)).map(|value| byte_count(&value)).sum();
    if encrypted > 0 {
        internals.insert("encryptedBytes".into(), encrypted.into());
    }
    if internals.is_empty() {
        return None;
    }
    internals.extend(ids.iter().filter(|(_, id)| !id.is_empty()).map(|(member, id)| ((*member).to_owned(), Value::from(*id))));
    Some(Value::Object(internals))
}

/// Takes a message's content as parts: text, and other blocks (images, files) under their own type.
fn content_parts(message: &mut Map<String, Value>, kind: &str) -> Vec<Value> {
    let mut parts = Vec::new();
    let rest = match message.shift_remove("content") {
        Some(Value::String(text)) => {
            add_text(&mut parts, kind, &text);
            None
        }
        Some(Value::Array(blocks)) => {
            let mut others = Vec::new();
            for block in blocks {
                match block_text(&block) {
                    Some(text) => add_text(&mut parts, kind, text),
                    None => others.extend(add_block(&mut parts, block)),
                }
            }
            (!others.is_empty()).then_some(Value::Array(others))
        }
        other => other,
    };
    message.extend(rest.map(|rest| ("content".to_owned(), rest)));
    parts
}

/// Adds text as a message's next part, with the part id that streaming would give it.
fn add_text(parts: &mut Vec<Value>, kind: &str, text: &str) {
    let id = part_name("text", parts.len() + 1);
    parts.push(json!({ "partId": id, "kind": kind, "text": [text] }));
}

/// Adds a non-text content block as a message's next part. Returns a block without a type.
fn add_block(parts: &mut Vec<Value>, mut block: Value) -> Option<Value> {
    let Some(kind) = block.as_object_mut().and_then(|block| take_text(block, "type")) else { return Some(block) };
    let id = part_name(&kind, parts.len() + 1);
    let mut part = Map::from_iter([("partId".to_owned(), Value::from(id)), ("kind".to_owned(), kind.into())]);
    for (member, value) in block.as_object().cloned().unwrap_or_default() {
        part.entry(member).or_insert(value);
    }
    parts.push(part.into());
    None
}
