//! An AG-UI client that behaves like `@ag-ui/client` 1.0.0 and 0.0.59.
//!
//! It panics where they throw or warn, and reduces events to the same messages.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The version of the emulated client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 0.0.59, in a stream without sub-agents.
    Old,
    V1,
}

/// The members of each event: required ones, then optional ones.
const EVENTS: &[(&str, &str, &str)] = &[
    ("RUN_STARTED", "threadId runId", "protocolVersion"),
    ("RUN_FINISHED", "threadId runId", "outcome result"),
    ("RUN_ERROR", "message", "code"),
    ("TEXT_MESSAGE_START", "messageId role", "subagentRunId"),
    ("TEXT_MESSAGE_CONTENT", "messageId delta", ""),
    ("TEXT_MESSAGE_END", "messageId", ""),
    ("REASONING_START", "messageId", "subagentRunId"),
    ("REASONING_MESSAGE_START", "messageId role", "subagentRunId"),
    ("REASONING_MESSAGE_CONTENT", "messageId delta", ""),
    ("REASONING_MESSAGE_END", "messageId", ""),
    ("REASONING_END", "messageId", ""),
    ("TOOL_CALL_START", "toolCallId toolCallName", "parentMessageId subagentRunId"),
    ("TOOL_CALL_ARGS", "toolCallId delta", ""),
    ("TOOL_CALL_END", "toolCallId", ""),
    ("TOOL_CALL_RESULT", "messageId toolCallId content", "subagentRunId"),
    ("STATE_SNAPSHOT", "snapshot", ""),
    ("STATE_DELTA", "delta", ""),
    ("MESSAGES_SNAPSHOT", "messages", ""),
    ("ACTIVITY_SNAPSHOT", "messageId activityType content", "subagentRunId"),
    ("ACTIVITY_DELTA", "messageId activityType patch", ""),
    ("SUBAGENT_STARTED", "subagentRunId name", ""),
    ("SUBAGENT_FINISHED", "subagentRunId", ""),
    ("SUBAGENT_ERROR", "subagentRunId message", "code"),
];

/// Members that may hold any value.
const OPAQUE: &[&str] = &["snapshot", "content", "metadata", "result"];

/// A client that has read some events.
#[derive(Debug, Clone)]
pub struct Client {
    version: Version,
    pub messages: Vec<Value>,
    pub state: Option<Value>,
    pub interrupts: Vec<Value>,
    /// The event that ended the last run, if none is open.
    pub boundary: Option<Value>,
    pub runs: usize,
    is_open: bool,
    has_begun: bool,
    /// The open brackets, by kind and id.
    open: BTreeSet<(&'static str, String)>,
    subagents: BTreeMap<String, bool>,
    /// The agent that opened each bracket, by kind and id; the empty name is the parent's.
    owners: BTreeMap<(&'static str, String), String>,
}

impl Client {
    /// Builds a client that already has these messages.
    pub fn new(version: Version, messages: &[Value]) -> Self {
        Self {
            version,
            messages: messages.to_vec(),
            state: None,
            interrupts: Vec::new(),
            boundary: None,
            runs: 0,
            is_open: false,
            has_begun: false,
            open: BTreeSet::new(),
            subagents: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Starts a new stream of the same client: verification starts again.
    pub fn rejoin(&mut self) {
        *self = Self {
            state: self.state.take(),
            interrupts: std::mem::take(&mut self.interrupts),
            ..Self::new(self.version, &self.messages)
        };
    }

    pub fn read(&mut self, event: &Value) {
        self.check(event);
        self.verify(event);
        self.reduce(event);
    }

    // ── schema checks ──

    fn check(&self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_else(|| panic!("no type: {event}"));
        let (_, must, may) = EVENTS.iter().find(|(name, ..)| *name == kind).unwrap_or_else(|| panic!("unknown: {event}"));
        let members = event.as_object().expect("an event is an object");
        for member in must.split_whitespace() {
            assert!(members.contains_key(member), "no {member}: {event}");
        }
        for (member, value) in members {
            let is_known = must.split_whitespace().chain(may.split_whitespace()).any(|name| name == member);
            assert!(is_known || member == "type" || member == "metadata", "{member}: {event}");
            let text =
                !OPAQUE.contains(&member.as_str()) && !["messages", "delta", "patch", "outcome"].contains(&member.as_str());
            assert!(!text || value.is_string(), "{member} is not text: {event}");
        }
        assert!(
            self.version == Version::V1 || members.get("subagentRunId").is_none() && !kind.starts_with("SUBAGENT"),
            "{event}"
        );
        match kind {
            "TEXT_MESSAGE_START" => {
                assert!(["developer", "system", "assistant", "user"].contains(&event["role"].as_str().unwrap()));
            }
            "REASONING_MESSAGE_START" => assert_eq!(event["role"], "reasoning"),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" => {
                assert!(!event["delta"].as_str().expect("a delta is text").is_empty(), "{event}");
            }
            "TOOL_CALL_RESULT" => assert!(event["content"].is_string(), "{event}"),
            "ACTIVITY_SNAPSHOT" => assert!(event["content"].is_object(), "{event}"),
            "ACTIVITY_DELTA" => assert!(event["patch"].as_array().is_some_and(|patch| !patch.is_empty()), "{event}"),
            "STATE_DELTA" => assert!(event["delta"].is_array(), "{event}"),
            "MESSAGES_SNAPSHOT" => {
                for message in event["messages"].as_array().expect("a snapshot has messages") {
                    self.check_message(message);
                }
            }
            "RUN_FINISHED" => self.check_outcome(event),
            _ => {}
        }
        if let Some(metadata) = event.get("metadata") {
            assert!(metadata.is_object(), "{event}");
        }
    }

    fn check_message(&self, message: &Value) {
        let allowed: &[&str] = match message["role"].as_str().unwrap_or_else(|| panic!("{message}")) {
            "developer" | "system" | "user" | "reasoning" => &["content"],
            "assistant" => &["content", "toolCalls"],
            "tool" => &["content", "toolCallId"],
            "activity" => &["activityType", "content"],
            other => panic!("role {other}"),
        };
        for (member, value) in message.as_object().expect("a message is an object") {
            let is_own = allowed.contains(&member.as_str());
            assert!(is_own || ["id", "role", "metadata", "subagentRunId"].contains(&member.as_str()), "{member}: {message}");
            assert!(!value.is_null(), "{member}: {message}");
        }
        assert!(message["id"].is_string());
        match message["role"].as_str().expect("a message has a role") {
            "activity" => assert!(message["content"].is_object() && message["activityType"].is_string(), "{message}"),
            "assistant" => {
                for call in message.get("toolCalls").and_then(Value::as_array).into_iter().flatten() {
                    assert!(call["id"].is_string() && call["type"] == "function", "{message}");
                    assert!(call["function"]["name"].is_string() && call["function"]["arguments"].is_string(), "{message}");
                }
            }
            "user" => assert!(message["content"].is_string() || message["content"].is_array(), "{message}"),
            _ => assert!(message["content"].is_string(), "{message}"),
        }
        assert!(self.version == Version::V1 || message.get("subagentRunId").is_none());
    }

    fn check_outcome(&self, event: &Value) {
        let Some(outcome) = event.get("outcome") else { return };
        let members: Vec<_> = outcome.as_object().expect("an outcome is an object").keys().map(String::as_str).collect();
        match (outcome["type"].as_str().expect("an outcome has a type"), self.version) {
            ("success", Version::Old) | ("cancelled", Version::V1) => assert_eq!(members, ["type"]),
            ("success", Version::V1) => assert!(members.iter().all(|name| ["type", "pendingToolCallIds"].contains(name))),
            ("interrupt", _) => {
                assert_eq!(members, ["type", "interrupts"]);
                let interrupts = outcome["interrupts"].as_array().expect("interrupts are a list");
                assert!(!interrupts.is_empty());
                for interrupt in interrupts {
                    for (member, value) in interrupt.as_object().expect("an interrupt is an object") {
                        match member.as_str() {
                            "id" | "reason" | "message" | "toolCallId" | "expiresAt" => assert!(value.is_string(), "{interrupt}"),
                            "subagentRunId" => assert!(value.is_string() && self.version == Version::V1, "{interrupt}"),
                            "responseSchema" | "metadata" => assert!(value.is_object(), "{interrupt}"),
                            other => panic!("{other}: {interrupt}"),
                        }
                    }
                    assert!(interrupt.get("id").is_some() && interrupt.get("reason").is_some());
                }
            }
            (other, _) => panic!("outcome {other}"),
        }
    }

    // ── order checks ──

    fn verify(&mut self, event: &Value) {
        let kind = event["type"].as_str().expect("checked");
        let id = |member: &str| event[member].as_str().expect("checked").to_owned();
        let begins = kind == "RUN_STARTED";
        if self.is_open {
            assert!(!begins, "a run is already open: {event}");
        } else {
            let had_finished = self.boundary.as_ref().is_some_and(|boundary| boundary["type"] == "RUN_FINISHED");
            assert!(begins || kind == "RUN_ERROR" && (had_finished || !self.has_begun), "no run is open: {event}");
        }
        self.has_begun = true;
        let tag = event.get("subagentRunId").and_then(Value::as_str);
        match kind {
            "RUN_STARTED" => {
                self.is_open = true;
                self.boundary = None;
                self.runs += 1;
                self.open.clear();
                self.subagents.clear();
                self.owners.clear();
            }
            "RUN_FINISHED" | "RUN_ERROR" => {
                let is_open = self.subagents.iter().find(|(_, is_open)| **is_open);
                // An error may come with things open; ours closes them first.
                assert!(self.open.is_empty() && is_open.is_none(), "open at the end: {:?} {is_open:?}: {event}", self.open);
                self.is_open = false;
                self.boundary = Some(event.clone());
            }
            "TEXT_MESSAGE_START" => self.opens("text", id("messageId"), tag),
            "TEXT_MESSAGE_CONTENT" => self.goes_on("text", &id("messageId")),
            "TEXT_MESSAGE_END" => self.ends("text", id("messageId")),
            "REASONING_START" => self.opens("span", id("messageId"), tag),
            "REASONING_MESSAGE_START" => self.opens("thought", id("messageId"), tag),
            "REASONING_MESSAGE_CONTENT" => self.goes_on("thought", &id("messageId")),
            "REASONING_MESSAGE_END" => self.ends("thought", id("messageId")),
            "REASONING_END" => self.ends("span", id("messageId")),
            "TOOL_CALL_START" => {
                if let Some(parent) = event.get("parentMessageId").and_then(Value::as_str)
                    && let (Some(owner), Some(tag)) = (self.owners.get(&("text", parent.to_owned())), tag)
                {
                    assert_eq!(owner, tag, "{event}");
                }
                self.opens("call", id("toolCallId"), tag);
            }
            "TOOL_CALL_ARGS" => self.goes_on("call", &id("toolCallId")),
            "TOOL_CALL_END" => self.ends("call", id("toolCallId")),
            "SUBAGENT_STARTED" => {
                assert!(self.subagents.insert(id("subagentRunId"), true).is_none(), "known: {event}");
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                assert_eq!(self.subagents.insert(id("subagentRunId"), false), Some(true), "not at work: {event}");
            }
            "MESSAGES_SNAPSHOT" => {
                for message in event["messages"].as_array().expect("checked") {
                    let owner = message.get("subagentRunId").and_then(Value::as_str).unwrap_or_default().to_owned();
                    let kinds: &[&'static str] = if message["role"] == "reasoning" { &["thought", "span"] } else { &["text"] };
                    for kind in kinds {
                        self.owners.insert((kind, message["id"].as_str().expect("checked").to_owned()), owner.clone());
                    }
                    for call in message.get("toolCalls").and_then(Value::as_array).into_iter().flatten() {
                        self.owners.insert(("call", call["id"].as_str().expect("checked").to_owned()), owner.clone());
                    }
                }
            }
            _ => {}
        }
    }

    fn opens(&mut self, kind: &'static str, id: String, tag: Option<&str>) {
        assert!(self.open.insert((kind, id.clone())), "{kind} {id} is open");
        let owner = self.owners.entry((kind, id)).or_insert_with(|| tag.unwrap_or_default().to_owned());
        assert!(tag.is_none_or(|tag| tag == owner), "{kind} is {owner}'s, not {tag:?}'s");
    }

    fn goes_on(&self, kind: &'static str, id: &str) {
        assert!(self.open.contains(&(kind, id.to_owned())), "{kind} {id} is not open");
    }

    fn ends(&mut self, kind: &'static str, id: String) {
        assert!(self.open.remove(&(kind, id.clone())), "{kind} {id} is not open");
    }

    // ── what it reduces to ──

    fn reduce(&mut self, event: &Value) {
        let id = |member: &str| event[member].as_str().expect("checked").to_owned();
        match event["type"].as_str().expect("checked") {
            "TEXT_MESSAGE_START" => self.create(event, id("messageId"), json!({ "role": event["role"], "content": "" })),
            "REASONING_MESSAGE_START" => self.create(event, id("messageId"), json!({ "role": "reasoning", "content": "" })),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let (id, delta) = (id("messageId"), id("delta"));
                let message = self.messages.iter_mut().find(|message| message["id"] == *id).expect("a message of that id");
                assert_ne!(message["role"], "activity", "{event}");
                let text = message["content"].as_str().unwrap_or_default().to_owned();
                message["content"] = (text + &delta).into();
            }
            "TOOL_CALL_START" => self.call(event),
            "TOOL_CALL_ARGS" => {
                let (id, delta) = (id("toolCallId"), id("delta"));
                let call = self.messages.iter_mut().find_map(|message| called(message, &id)).expect("a call of that id");
                let text = call["function"]["arguments"].as_str().expect("text").to_owned();
                call["function"]["arguments"] = (text + &delta).into();
            }
            "TOOL_CALL_RESULT" => {
                let mut message = json!({
                    "id": event["messageId"], "toolCallId": event["toolCallId"], "role": "tool", "content": event["content"],
                });
                mark(&mut message, event);
                merge_metadata(&mut message, event);
                let call = id("toolCallId");
                let owner = self.messages.iter_mut().position(|message| called(message, &call).is_some());
                let at = owner.map_or(self.messages.len(), |owner| {
                    let after = &self.messages[owner + 1..];
                    owner + 1 + after.iter().take_while(|message| message["role"] == "tool").count()
                });
                self.messages.insert(at, message);
            }
            "STATE_SNAPSHOT" => self.state = Some(event["snapshot"].clone()),
            "STATE_DELTA" => {
                let state = self.state.as_mut().expect("a snapshot of the state comes first");
                apply(state, &event["delta"]);
            }
            "MESSAGES_SNAPSHOT" => self.replace(event),
            "ACTIVITY_SNAPSHOT" => {
                let mut message = json!({
                    "id": event["messageId"], "role": "activity", "activityType": event["activityType"], "content": event["content"],
                });
                mark(&mut message, event);
                let known = self.messages.iter_mut().find(|message| message["id"] == event["messageId"]);
                let target = match known {
                    Some(known) => {
                        assert_eq!(known["role"], "activity", "another message has the id: {event}");
                        if let Some(metadata) = known.get("metadata") {
                            message["metadata"] = metadata.clone();
                        }
                        *known = message;
                        known
                    }
                    None => {
                        self.messages.push(message);
                        self.messages.last_mut().expect("just pushed")
                    }
                };
                merge_metadata(target, event);
            }
            "ACTIVITY_DELTA" => {
                let known = self.messages.iter_mut().find(|message| message["id"] == event["messageId"]);
                let known = known.unwrap_or_else(|| panic!("a delta of nothing: {event}"));
                assert_eq!(known["role"], "activity", "{event}");
                assert_eq!(known["activityType"], event["activityType"], "{event}");
                apply(&mut known["content"], &event["patch"]);
            }
            "RUN_FINISHED" => {
                let interrupts = event.pointer("/outcome/interrupts").and_then(Value::as_array);
                self.interrupts = interrupts.cloned().unwrap_or_default();
            }
            _ => {}
        }
    }

    fn create(&mut self, event: &Value, id: String, rest: Value) {
        let known = self.messages.iter_mut().find(|message| message["id"] == *id);
        let target = match known {
            Some(known) => {
                assert_ne!(known["role"], "activity", "{event}");
                known
            }
            None => {
                let mut message = Map::from_iter([("id".to_owned(), id.into())]);
                message.extend(rest.as_object().expect("an object").clone());
                let mut message = Value::Object(message);
                mark(&mut message, event);
                self.messages.push(message);
                self.messages.last_mut().expect("just pushed")
            }
        };
        merge_metadata(target, event);
    }

    fn call(&mut self, event: &Value) {
        let id = event["toolCallId"].as_str().expect("checked");
        if let Some(known) = self.messages.iter_mut().find_map(|message| called(message, id)) {
            assert_eq!(known["function"]["name"], event["toolCallName"], "a call that changes its name: {event}");
            return merge_metadata(known, event);
        }
        let mut call = json!({ "id": id, "type": "function", "function": { "name": event["toolCallName"], "arguments": "" } });
        merge_metadata(&mut call, event);
        let parent = event.get("parentMessageId").and_then(Value::as_str);
        if let Some(parent) = parent.and_then(|parent| self.messages.iter_mut().find(|message| message["id"] == parent)) {
            assert_eq!(parent["role"], "assistant", "{event}");
            match parent.get_mut("toolCalls") {
                Some(calls) => calls.as_array_mut().expect("calls").push(call),
                None => parent["toolCalls"] = json!([call]),
            }
            return;
        }
        let mut message = json!({ "id": parent.unwrap_or(id), "role": "assistant", "toolCalls": [call] });
        mark(&mut message, event);
        self.messages.push(message);
    }

    fn replace(&mut self, event: &Value) {
        let new = event["messages"].as_array().expect("checked");
        let ids: BTreeSet<_> = new.iter().map(|message| message["id"].as_str().expect("an id")).collect();
        assert_eq!(ids.len(), new.len(), "each id once: {event}");
        let has = |role: &str| new.iter().any(|message| message["role"] == role);
        let owns_all = event.pointer("/metadata/@ag-ui~1client/authoritativeActivityTypes") == Some(&Value::Null);
        assert_eq!(owns_all, self.version == Version::V1, "{event}");
        let stays = |message: &Value| {
            message["role"] == "activity" && !has("activity") && !owns_all || message["role"] == "reasoning" && !has("reasoning")
        };
        self.messages.retain(|message| ids.contains(message["id"].as_str().expect("an id")) || stays(message));
        for message in new {
            match self.messages.iter_mut().find(|known| known["id"] == message["id"]) {
                Some(known) => *known = message.clone(),
                None => self.messages.push(message.clone()),
            }
        }
    }
}

fn called<'m>(message: &'m mut Value, id: &str) -> Option<&'m mut Value> {
    message.get_mut("toolCalls")?.as_array_mut()?.iter_mut().find(|call| call["id"] == id)
}

fn mark(message: &mut Value, event: &Value) {
    if let Some(agent) = event.get("subagentRunId") {
        message["subagentRunId"] = agent.clone();
    }
}

fn merge_metadata(target: &mut Value, event: &Value) {
    for (key, value) in event.get("metadata").and_then(Value::as_object).into_iter().flatten() {
        target["metadata"][key] = value.clone();
    }
}

fn apply(document: &mut Value, patch: &Value) {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).expect("a JSON Patch");
    json_patch::patch(document, &patch).unwrap_or_else(|error| panic!("{error}: {patch:?} on {document}"));
}
