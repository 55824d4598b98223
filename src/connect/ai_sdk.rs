//! AI SDK endpoints: `POST` a chat's messages, read a UI message stream.
//!
//! The endpoint gets the whole conversation (`send = "last"`: only the last message, but for the first of a branch, whose
//! chat the endpoint does not have). An answer is a state of the tool
//! part that asked. The protocol has no cancellation: closing the connection is all that a client can do.

use super::call::{ActionReply, Protocol, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::UpstreamError;
use super::http::{EventReader, HttpEndpoint, HttpUpstream, line_of};
use super::parts::{Part, parts};
use super::sse::SseMessage;
use super::{ConnectorKind, TargetKind, http_endpoint};
use crate::control::aside::AsideKind;
use crate::log::agent_memory::Remembered;
use crate::model::{Control, halves};
use futures_util::FutureExt;
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::future::ready;

pub(super) const CONNECTOR: ConnectorKind =
    ConnectorKind { name: "ai-sdk", source: "ai-sdk", target: TargetKind::Url, options: &["send"], resolves: false, open };

fn open(entry: &AgentEntry, event_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    let only_last = match entry.text_option("send")?.unwrap_or("all") {
        "all" => false,
        "last" => true,
        other => return Err(format!("send is {other:?}; it must be all or last")),
    };
    Ok(Box::new(AiSdkEndpoint { endpoint: http_endpoint(entry, event_bytes_max)?, only_last }))
}

struct AiSdkEndpoint {
    endpoint: HttpEndpoint,
    only_last: bool,
}

impl Protocol for AiSdkEndpoint {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let mut messages = chat_messages(call);
            call.own_ids.restore(&mut messages);
            if self.only_last && !call.needs_transcript() {
                messages.drain(..messages.len().saturating_sub(1));
            }
            let mut body = match &call.input {
                TurnInput::Messages { members, .. } => members.clone(),
                _ => Map::new(),
            };
            let last = messages.last().map_or(Value::Null, |message| message["id"].clone());
            body.insert("id".into(), call.session.as_str().into());
            body.insert("messages".into(), messages.into());
            body.entry("trigger").or_insert_with(|| "submit-message".into());
            if matches!(call.input, TurnInput::Replies(_)) {
                body.insert("messageId".into(), last);
            }
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            let request = endpoint.request(Method::POST, endpoint.url.clone()).json(&body);
            let stream = endpoint.open(request).await?;
            let upstream = HttpUpstream { endpoint, stream, reader: AiSdkReader::default() };
            Ok(Box::new(upstream) as Box<dyn Upstream>)
        }
        .boxed()
    }

    /// The endpoint gets further members of the page's request as they are, and its stream has no result of a request.
    fn carries(&self, kind: AsideKind) -> bool {
        kind == AsideKind::Action
    }
}

/// What the run remembers: the approvals that it asked for, by their ids, with [`KEPT`].
const APPROVALS: &str = "approvals";

/// Members of a request for approval that an answer repeats, and their names there.
///
/// The backend checks the answer with them, and users never see them.
const KEPT: [(&str, &str); 4] = [
    ("signature", "signature"),
    ("inputSchemaInput", "inputSchemaInput"),
    ("approvalDescriptor", "descriptor"),
    ("reason", "requestReason"),
];

/// The conversation as UI messages.
///
/// A tool's call and its result are one part. A step begins where an answer goes on after tools.
fn chat_messages(call: &UpstreamCall) -> Vec<Value> {
    let of_call = |message: &Value| Some((message["toolCallId"].as_str()?.to_owned(), message["content"].clone()));
    let results: HashMap<String, Value> =
        call.history.iter().filter(|message| message["role"] == "tool").filter_map(of_call).collect();
    let replies: HashMap<&str, &ActionReply> = match &call.input {
        TurnInput::Replies(replies) => replies.iter().filter_map(|reply| Some((reply.asked("toolCallId")?, reply))).collect(),
        _ => HashMap::new(),
    };
    let mut chat: Vec<Value> = Vec::new();
    for message in &call.history {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "tool" => continue,
            "assistant" => {}
            _ => {
                chat.push(json!({ "id": message["id"], "role": role, "parts": message_parts(&message["content"]) }));
                continue;
            }
        }
        if chat.last().is_none_or(|last| last["role"] != "assistant") {
            chat.push(json!({ "id": message["id"], "role": "assistant", "parts": [{ "type": "step-start" }] }));
        }
        let Some(parts) = chat.last_mut().and_then(|last| last["parts"].as_array_mut()) else { continue };
        if message.get("content").is_some_and(|content| !content.is_null()) {
            if parts.last().is_some_and(|last| last.get("toolCallId").is_some()) {
                parts.push(json!({ "type": "step-start" }));
            }
            parts.extend(message_parts(&message["content"]));
        }
        for tool in message["toolCalls"].as_array().into_iter().flatten() {
            let id = tool["id"].as_str().unwrap_or_default();
            let reply = replies.get(id).copied();
            let kept = reply.and_then(|reply| call.memory.run.get(APPROVALS)?.get(reply.own_action())?.as_object());
            parts.push(tool_part(tool, results.get(id), reply, kept));
        }
    }
    if let TurnInput::Messages { messages, .. } = &call.input {
        chat.extend(messages.iter().map(|new| json!({ "id": new.id, "role": "user", "parts": message_parts(&new.content) })));
    }
    chat
}

fn message_parts(content: &Value) -> Vec<Value> {
    let part = |part: Part<'_>| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::File(file) => file.to_ai_sdk(),
    };
    parts(content).into_iter().map(part).collect()
}

/// The part of a call: with its result, or with the user's decision and what the request for it must get back.
fn tool_part(tool: &Value, result: Option<&Value>, reply: Option<&ActionReply>, kept: Option<&Map<String, Value>>) -> Value {
    let function = &tool["function"];
    let arguments = function["arguments"].as_str().unwrap_or_default();
    let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
    let name = function["name"].as_str().unwrap_or_default();
    let mut part = json!({ "type": format!("tool-{name}"), "toolCallId": tool["id"], "input": input });
    match (result, reply) {
        (Some(result), _) => {
            part["state"] = "output-available".into();
            // A tool's output is JSON; a message of a tool has it as text.
            let output = result.as_str().and_then(|text| serde_json::from_str(text).ok());
            part["output"] = output.unwrap_or_else(|| result.clone());
        }
        (None, Some(reply)) if reply.control == Control::Answer => {
            part["state"] = "output-available".into();
            part["output"] = reply.value.clone().unwrap_or_default();
        }
        (None, Some(reply)) => {
            part["state"] = "approval-responded".into();
            part["approval"] = json!({ "id": reply.own_action(), "approved": reply.is_approved() });
            for (member, value) in kept.into_iter().flatten() {
                part["approval"][member] = value.clone();
            }
            if let Some(reason) = reply.reason() {
                part["approval"]["reason"] = reason.into();
            }
        }
        (None, None) => part["state"] = "input-available".into(),
    }
    part
}

#[derive(Default)]
struct AiSdkReader {
    /// Whether `[DONE]` came: the only proof that nothing is missing.
    is_complete: bool,
    approvals: Map<String, Value>,
    /// Whether the last of them is not remembered yet.
    is_news: bool,
}

impl AiSdkReader {
    /// Notes what the answer to a request for approval must repeat.
    fn note_approval(&mut self, chunk: &str) {
        // Most chunks are text.
        if !chunk.contains("tool-approval-request") {
            return;
        }
        let Ok(chunk) = halves::parse(chunk.as_bytes()) else { return };
        let Some(id) = chunk["approvalId"].as_str().filter(|_| chunk["type"] == "tool-approval-request") else { return };
        let kept = KEPT.iter().filter_map(|(theirs, ours)| Some(((*ours).to_owned(), chunk.get(*theirs)?.clone())));
        self.approvals.insert(id.to_owned(), kept.collect::<Map<_, _>>().into());
        self.is_news = true;
    }
}

impl EventReader for AiSdkReader {
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        match message.data.trim() {
            "[DONE]" => self.is_complete = true,
            _ => {
                self.note_approval(&message.data);
                facts.push(line_of(message.data));
            }
        }
        Ok(())
    }

    /// A writer of the backend's own may send no `finish`.
    fn conclude<'a>(&'a mut self, _endpoint: &'a HttpEndpoint) -> Step<'a, Vec<Value>> {
        Box::pin(ready(match self.is_complete {
            true => Ok(vec![json!({ "type": "run.finished" })]),
            false => Err(UpstreamError::cut("The endpoint closed its stream without [DONE].")),
        }))
    }

    fn news(&mut self) -> Remembered {
        let approvals = std::mem::take(&mut self.is_news).then(|| (APPROVALS.to_owned(), self.approvals.clone().into()));
        Remembered { run: approvals.into_iter().collect(), ..Remembered::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples;
    use super::*;

    #[test]
    fn an_answer_repeats_what_the_backend_checks_it_with() {
        let chunk = json!({ "type": "tool-approval-request", "approvalId": "ask", "toolCallId": "c", "signature": "sig",
            "inputSchemaInput": { "raw": 1 }, "approvalDescriptor": { "d": 1 }, "reason": "It deletes." });
        let mut reader = AiSdkReader::default();
        let message = SseMessage { event: String::new(), data: chunk.to_string(), id: None };
        reader.read(message, &mut Vec::new()).unwrap();
        let memory = reader.news();
        assert_eq!(reader.news(), Remembered::default(), "it is remembered once");
        let tool = json!({ "id": "c", "type": "function", "function": { "name": "rm", "arguments": "{}" } });
        let history = vec![json!({ "id": "a", "role": "assistant", "toolCalls": [tool] })];
        let reply = samples::reply("ask", Control::Approve, Value::Null, json!({ "toolCallId": "c" }));
        let call = UpstreamCall { memory, ..samples::call(history, TurnInput::Replies(vec![reply])) };
        assert_eq!(
            chat_messages(&call)[0]["parts"][1]["approval"],
            json!({ "id": "ask", "approved": true, "signature": "sig", "inputSchemaInput": { "raw": 1 },
                "descriptor": { "d": 1 }, "requestReason": "It deletes." })
        );
    }

    #[test]
    fn calls_results_and_decisions_are_parts_of_one_message() {
        let tool =
            |id: &str| json!({ "id": id, "type": "function", "function": { "name": "rm", "arguments": "{\"path\":\"a\"}" } });
        let history = vec![
            json!({ "id": "u", "role": "user", "content": "Delete" }),
            json!({ "id": "a", "role": "assistant", "content": "Let me look" }),
            json!({ "id": "b", "role": "assistant", "toolCalls": [tool("done")] }),
            json!({ "id": "c", "role": "tool", "toolCallId": "done", "content": "{\"n\":1}" }),
            json!({ "id": "d", "role": "assistant", "content": "And now" }),
            json!({ "id": "e", "role": "assistant", "toolCalls": [tool("asked")] }),
        ];
        let reply = samples::reply("ask", Control::Reject, json!({ "reason": "mine" }), json!({ "toolCallId": "asked" }));
        let chat = chat_messages(&samples::call(history, TurnInput::Replies(vec![reply])));
        let input = json!({ "path": "a" });
        assert_eq!(
            json!(chat),
            json!([{ "id": "u", "role": "user", "parts": [{ "type": "text", "text": "Delete" }] },
                { "id": "a", "role": "assistant", "parts": [
                    { "type": "step-start" }, { "type": "text", "text": "Let me look" },
                    { "type": "tool-rm", "toolCallId": "done", "input": input, "state": "output-available", "output": { "n": 1 } },
                    { "type": "step-start" }, { "type": "text", "text": "And now" },
                    { "type": "tool-rm", "toolCallId": "asked", "input": input, "state": "approval-responded",
                        "approval": { "id": "ask", "approved": false, "reason": "mine" } }] }])
        );
    }
}
