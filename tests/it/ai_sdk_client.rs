//! A reader like the AI SDK's clients (`processUIMessageStream` of versions 5, 6 and 7), but stricter.
//!
//! It panics on every chunk that a client would throw at, drop or misread.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A chunk's type, the first version that has it, its required members, and its optional members.
type Known = (&'static str, u8, &'static [(&'static str, Is)], &'static [(&'static str, Is)]);

#[derive(Clone, Copy)]
enum Is {
    Text,
    True,
    Flag,
    Object,
    Any,
    Reason,
}

const ID: (&str, Is) = ("id", Is::Text);
const CALL: (&str, Is) = ("toolCallId", Is::Text);
const DELTA: (&str, Is) = ("delta", Is::Text);
/// A call without `dynamic` is not found (version 5). A call that `providerExecuted` does not mark is the client's to
/// execute.
const EXECUTED: [(&str, Is); 2] = [("dynamic", Is::True), ("providerExecuted", Is::Flag)];

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    ("start", 5, &[("messageId", Is::Text)], &[]),
    ("start-step", 5, &[], &[]),
    ("finish-step", 5, &[], &[]),
    ("reset-step", 7, &[], &[]),
    ("finish", 5, &[("finishReason", Is::Reason)], &[]),
    ("abort", 5, &[], &[("reason", Is::Text)]),
    ("error", 5, &[("errorText", Is::Text)], &[]),
    ("message-metadata", 5, &[("messageMetadata", Is::Object)], &[]),
    ("text-start", 5, &[ID], &[("providerMetadata", Is::Object)]),
    ("text-delta", 5, &[ID, DELTA], &[]),
    ("text-end", 5, &[ID], &[]),
    ("reasoning-start", 5, &[ID], &[("providerMetadata", Is::Object)]),
    ("reasoning-delta", 5, &[ID, DELTA], &[]),
    ("reasoning-end", 5, &[ID], &[]),
    ("tool-input-start", 5, &[CALL, ("toolName", Is::Text), EXECUTED[0], EXECUTED[1]], &[]),
    ("tool-input-delta", 5, &[CALL, ("inputTextDelta", Is::Text)], &[]),
    ("tool-input-available", 5, &[CALL, ("toolName", Is::Text), ("input", Is::Any), EXECUTED[0], EXECUTED[1]], &[]),
    ("tool-output-available", 5, &[CALL, ("output", Is::Any), EXECUTED[0]], &[("preliminary", Is::True), ("providerExecuted", Is::True)]),
    ("tool-output-error", 5, &[CALL, ("errorText", Is::Text), EXECUTED[0]], &[("providerExecuted", Is::True)]),
    ("tool-output-denied", 6, &[CALL], &[]),
    ("tool-approval-request", 6, &[CALL, ("approvalId", Is::Text)], &[("reason", Is::Text)]),
    ("tool-approval-response", 7, &[("approvalId", Is::Text), ("approved", Is::Flag)], &[("reason", Is::Text)]),
];
const DATA: &[(&str, Is)] = &[ID, ("data", Is::Any)];

/// A client that holds one message and reads the chunks that extend it.
#[derive(Debug, Clone)]
pub struct Reader {
    version: u8,
    pub message: Value,
    /// Open texts, by channel and id: the index of their part.
    open: BTreeMap<(String, String), usize>,
    /// The last chunk, after it has arrived.
    pub ended: Option<Value>,
    /// The number of corrections received.
    pub corrections: usize,
    /// The number of texts that continued after their end.
    pub reopened: usize,
    /// Texts that have ended, by channel and id.
    closed: BTreeSet<(String, String)>,
}

impl Reader {
    pub fn new(version: u8) -> Self {
        let message = json!({ "id": null, "role": "assistant", "parts": [] });
        Self { version, message, open: BTreeMap::new(), ended: None, corrections: 0, reopened: 0, closed: BTreeSet::new() }
    }

    /// Starts another response: the client continues with the message that it has.
    pub fn start_response(&mut self) {
        (self.open, self.ended) = (BTreeMap::new(), None);
    }

    /// Reads all chunks of one stream.
    pub fn read<'c>(version: u8, chunks: impl IntoIterator<Item = &'c Value>) -> Self {
        let mut reader = Self::new(version);
        chunks.into_iter().for_each(|chunk| reader.apply(chunk));
        reader
    }

    fn parts(&mut self) -> &mut Vec<Value> {
        self.message["parts"].as_array_mut().expect("a message has parts")
    }

    fn push(&mut self, part: Value) -> usize {
        self.parts().push(part);
        self.parts().len() - 1
    }

    fn call(&mut self, chunk: &Value) -> &mut Map<String, Value> {
        let id = chunk["toolCallId"].clone();
        let call = self.parts().iter_mut().rfind(|part| part["toolCallId"] == id);
        call.unwrap_or_else(|| panic!("the message does not have the call: {chunk}"))
            .as_object_mut()
            .expect("a part is an object")
    }

    fn check(&self, chunk: &Value) {
        let of = chunk.as_object().unwrap_or_else(|| panic!("not an object: {chunk}"));
        let kind = chunk["type"].as_str().unwrap_or_else(|| panic!("no type: {chunk}"));
        let data: Known = ("data-", 5, DATA, &[]);
        let known = KNOWN.iter().find(|known| known.0 == kind).or(kind.starts_with("data-").then_some(&data));
        let (_, since, must, may) = known.unwrap_or_else(|| panic!("unknown type: {chunk}"));
        assert!(self.version >= *since, "version {} does not know {chunk}", self.version);
        for (member, is) in *must {
            assert!(of.contains_key(*member) && self.fits(&of[*member], *is), "{member} of {chunk}");
        }
        for (member, value) in of.iter().filter(|(member, _)| *member != "type") {
            let is = must.iter().chain(*may).find(|(known, _)| known == member);
            assert!(is.is_some_and(|(_, is)| self.fits(value, *is)), "{member} of {chunk}");
        }
    }

    fn fits(&self, value: &Value, is: Is) -> bool {
        match is {
            Is::Text => value.is_string(),
            Is::True => *value == true,
            Is::Flag => value.is_boolean(),
            Is::Object => value.is_object(),
            Is::Any => true,
            Is::Reason => {
                let reason = value.as_str().unwrap_or_default();
                ["stop", "length", "content-filter", "tool-calls", "error", "other"].contains(&reason)
                    || reason == "interrupted" && self.version >= 7
            }
        }
    }

    /// Applies a chunk.
    pub fn apply(&mut self, chunk: &Value) {
        self.check(chunk);
        assert!(self.ended.is_none(), "a chunk after the end: {chunk}");
        let kind = chunk["type"].as_str().expect("checked");
        assert!(!self.message["id"].is_null() || ["start", "error"].contains(&kind), "a chunk before the start: {chunk}");
        match kind {
            "start" => {
                assert!(
                    self.message["id"].is_null() || self.message["id"] == chunk["messageId"],
                    "the id of another message: {chunk}"
                );
                self.message["id"] = chunk["messageId"].clone();
            }
            "start-step" => {
                assert_eq!(*self.parts(), Vec::<Value>::new(), "a message has one step");
                self.push(json!({ "type": "step-start" }));
            }
            "finish-step" => assert!(self.open.is_empty(), "versions 5 and 6 forget open texts: {:?}", self.open),
            "reset-step" => {
                self.parts().truncate(1);
                self.open.clear();
                self.closed.clear();
            }
            "finish" | "abort" | "error" => {
                assert!(self.open.is_empty(), "still open at the end: {:?}", self.open);
                self.ended = Some(chunk.clone());
            }
            "message-metadata" => {
                let metadata_members = chunk["messageMetadata"].as_object().expect("checked").clone();
                match self.message.get_mut("metadata").and_then(Value::as_object_mut) {
                    Some(metadata) => metadata.extend(metadata_members),
                    None => self.message["metadata"] = metadata_members.into(),
                }
            }
            _ if kind.starts_with("data-") => self.data(chunk),
            _ if kind.starts_with("tool-") => self.tool(kind, chunk),
            _ => self.text(chunk),
        }
    }

    fn data(&mut self, chunk: &Value) {
        self.corrections += usize::from(chunk["type"] == "data-correction");
        let is_it = |part: &&mut Value| part["type"] == chunk["type"] && part["id"] == chunk["id"];
        match self.parts().iter_mut().find(is_it) {
            Some(part) => part["data"] = chunk["data"].clone(),
            None => drop(self.push(chunk.clone())),
        }
    }

    fn text(&mut self, chunk: &Value) {
        let kind = chunk["type"].as_str().expect("checked");
        let (channel, suffix) = kind.split_once('-').expect("the type has a channel and a suffix");
        let key = (channel.to_owned(), chunk["id"].as_str().expect("checked").to_owned());
        if suffix == "start" {
            assert!(!self.open.contains_key(&key), "already open: {chunk}");
            let mut part = json!({ "type": channel, "text": "", "state": "streaming" });
            if channel == "reasoning" {
                part["id"] = key.1.as_str().into();
            }
            if let Some(metadata) = chunk.get("providerMetadata") {
                part["providerMetadata"] = metadata.clone();
            }
            self.reopened += usize::from(self.closed.contains(&key));
            let at = self.push(part);
            self.open.insert(key, at);
            return;
        }
        let at = *self.open.get(&key).unwrap_or_else(|| panic!("not open: {chunk}"));
        let part = &mut self.parts()[at];
        match suffix {
            "delta" => {
                assert_ne!(chunk["delta"], "", "an empty delta");
                part["text"] =
                    format!("{}{}", part["text"].as_str().expect("text"), chunk["delta"].as_str().expect("checked")).into();
            }
            _ => {
                part["state"] = "done".into();
                self.open.remove(&key);
                self.closed.insert(key);
            }
        }
    }

    fn tool(&mut self, kind: &str, chunk: &Value) {
        match kind {
            "tool-input-start" => {
                let id = chunk["toolCallId"].clone();
                if !self.parts().iter().any(|part| part["toolCallId"] == id) {
                    self.push(json!({ "type": "dynamic-tool", "toolCallId": id, "providerExecuted": true }));
                }
                let call = self.call(chunk);
                let members = [("toolName", &chunk["toolName"]), ("providerExecuted", &chunk["providerExecuted"])];
                update(call, "input-streaming", &members);
            }
            "tool-input-delta" => {
                let more = chunk["inputTextDelta"].as_str().expect("checked");
                assert!(!more.is_empty(), "an empty delta");
                let call = self.call(chunk);
                assert_eq!(call["state"], "input-streaming", "{chunk}");
                let text = format!("{}{more}", call.get("rawInput").and_then(Value::as_str).unwrap_or_default());
                // Real clients also parse the incomplete arguments.
                call.insert("rawInput".into(), text.into());
            }
            "tool-input-available" => {
                let members = ["toolName", "input", "providerExecuted"].map(|member| (member, &chunk[member]));
                update(self.call(chunk), "input-available", &members);
            }
            "tool-approval-request" => {
                let version = self.version;
                let call = self.call(chunk);
                assert_ne!(call["state"], "input-streaming", "an approval request before the arguments: {chunk}");
                call.insert("state".into(), "approval-requested".into());
                let mut approval = json!({ "id": chunk["approvalId"] });
                if let Some(reason) = chunk.get("reason") {
                    assert!(version >= 7, "{chunk}");
                    approval["requestReason"] = reason.clone();
                }
                call.insert("approval".into(), approval);
            }
            "tool-approval-response" => {
                let asked = |part: &&mut Value| part["approval"]["id"] == chunk["approvalId"];
                let call = self.parts().iter_mut().find(asked).unwrap_or_else(|| panic!("no such approval request: {chunk}"));
                call["state"] = "approval-responded".into();
                call["approval"]["approved"] = chunk["approved"].clone();
                if let Some(reason) = chunk.get("reason") {
                    call["approval"]["reason"] = reason.clone();
                }
            }
            "tool-output-denied" => {
                let call = self.call(chunk);
                for left in ["output", "preliminary", "errorText"] {
                    assert!(!call.contains_key(left), "a denied call has an output: {call:?}");
                }
                call.insert("state".into(), "output-denied".into());
            }
            _ => {
                let call = self.call(chunk);
                assert_ne!(call["state"], "input-streaming", "an output before the arguments: {chunk}");
                let input = call.get("input").cloned().expect("a call has arguments");
                let mut members = vec![("input", &input)];
                let state = if kind == "tool-output-error" { "output-error" } else { "output-available" };
                let given = ["output", "preliminary", "errorText", "providerExecuted"];
                members.extend(given.iter().filter_map(|name| Some((*name, chunk.get(*name)?))));
                update(call, state, &members);
            }
        }
    }
}

/// Sets a call's part as each of its chunks does: every chunk sets all of these members.
fn update(call: &mut Map<String, Value>, state: &str, members: &[(&str, &Value)]) {
    for member in ["input", "output", "errorText", "rawInput", "preliminary"] {
        call.shift_remove(member);
    }
    call.insert("state".into(), state.into());
    for (member, value) in members {
        call.insert((*member).into(), (*value).clone());
    }
}

/// Returns the message as a client of this version has it.
///
/// Version 6 has no chunk for an approval's answer.
pub fn as_seen_by(message: &Value, version: u8) -> Value {
    let mut message = message.clone();
    if version == 6 {
        for part in message["parts"].as_array_mut().into_iter().flatten() {
            if let Some(approval) = part.get_mut("approval").and_then(Value::as_object_mut) {
                approval.shift_remove("approved");
            }
        }
    }
    message
}
