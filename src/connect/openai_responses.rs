//! Endpoints of the Responses API.
//!
//! The endpoint gets the whole conversation with each turn. Answers to approvals name the response that asked. A run
//! completes at the end of its stream if the endpoint left calls of functions open. The page runs these, and the next
//! turn's conversation has the outputs. It does not name the response that called: the API then requires the outputs of
//! all its calls, but the page may have only some. With `background = true` the endpoint goes on while this process
//! restarts, and the connector then reads the response again (the source drops what it knows).
//!
//! The first turn of a branch names the response at the point instead of the conversation, if the endpoint says that it
//! stored that response, and the response left nothing open.

use super::call::{ActionReply, Protocol, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::UpstreamError;
use super::http::{EventReader, HttpEndpoint, HttpUpstream, line_of};
use super::memory;
use super::parts::{Part, parts};
use super::sse::SseMessage;
use super::{ConnectorKind, TargetKind, http_endpoint};
use crate::branches::LeftTurn;
use crate::encode::files::FileContent;
use crate::log::agent_memory::Remembered;
use crate::model::branch::Fork;
use crate::model::halves;
use crate::source::openai_responses::STREAM_ENDED;
use futures_util::FutureExt;
use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};
use std::future::ready;

pub(super) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "openai-responses",
    source: "openai-responses",
    target: TargetKind::Url,
    options: &["model", "instructions", "background", "tools"],
    resolves: false,
    open,
};

fn open(entry: &AgentEntry, event_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    let mut endpoint = http_endpoint(entry, event_bytes_max)?;
    if !endpoint.url.path().trim_end_matches('/').ends_with("/responses") {
        endpoint.url = endpoint.address(&["responses"]);
    }
    let is_background = entry.options.get("background").and_then(Value::as_bool).unwrap_or(false);
    Ok(Box::new(ResponsesEndpoint { endpoint, is_background, settings: entry.options.clone() }))
}

/// The event at the end of a response.
const COMPLETED: &str = "response.completed";

struct ResponsesEndpoint {
    endpoint: HttpEndpoint,
    is_background: bool,
    /// Members of every request.
    settings: Map<String, Value>,
}

/// What the run remembers: the last response, and whether a new turn can follow it.
const RESPONSE: &str = "response";
const CAN_FOLLOW: &str = "responseCanFollow";

impl Protocol for ResponsesEndpoint {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            let known = memory::id(&call.memory.run, RESPONSE);
            let (request, sent) = match (&call.input, known) {
                (TurnInput::Rejoin, Some(response)) => {
                    let mut address = endpoint.address(&[response]);
                    address.set_query(Some("stream=true"));
                    (endpoint.request(Method::GET, address), Vec::new())
                }
                (input, _) => {
                    let (body, sent) = self.body(call, input, known);
                    (endpoint.request(Method::POST, endpoint.url.clone()).json(&body), sent)
                }
            };
            let follows = followed(call).map(str::to_owned);
            let stream = endpoint.open(request).await.map_err(|error| match follows {
                // Not all endpoints answer 404.
                Some(_) if error.reason.contains("previous_response") => UpstreamError::state_lost(error.reason),
                Some(_) => error.or_state_lost(),
                None => error,
            })?;
            let is_background = self.is_background;
            let reader = ResponsesReader { sent, is_background, follows, ..ResponsesReader::default() };
            Ok(Box::new(HttpUpstream { endpoint, stream, reader }) as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn can_rejoin(&self, memory: &Remembered) -> bool {
        self.is_background && memory.run.contains_key(RESPONSE)
    }

    /// A further run between the turn and the point is in no response.
    fn fork_of(&self, left: &LeftTurn) -> Fork {
        let can_follow = left.is_at_end && left.is_last && left.memory.run.get(CAN_FOLLOW) == Some(&Value::Bool(true));
        if can_follow && left.memory.run.contains_key(RESPONSE) { Fork::State } else { Fork::Transcript }
    }

    fn outlives_connection(&self) -> bool {
        self.is_background
    }
}

/// The response that a call follows instead of the conversation.
fn followed(call: &UpstreamCall) -> Option<&str> {
    memory::id(&call.left_turn()?.memory.run, RESPONSE)
}

/// Whether a new turn can follow a response: it is stored, and nothing in it waits for an answer.
fn can_follow(response: &Value) -> bool {
    let is_closed = |item: &Value| {
        let kind = item["type"].as_str().unwrap_or_default();
        ["message", "reasoning", "compaction", "mcp_call", "mcp_list_tools"].contains(&kind) || HOSTED_CALLS.contains(&kind)
    };
    response["store"] == true && response["output"].as_array().is_some_and(|output| output.iter().all(is_closed))
}

/// Calls that the API answers itself.
const HOSTED_CALLS: [&str; 4] = ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"];

impl ResponsesEndpoint {
    /// The body of a call, and its items that no stream repeats.
    fn body(&self, call: &UpstreamCall, input: &TurnInput, known: Option<&str>) -> (Value, Vec<String>) {
        let mut body = self.settings.clone();
        body.insert("stream".into(), true.into());
        if self.is_background {
            body.insert("store".into(), true.into());
        }
        let (items, sent) = match input {
            TurnInput::Replies(replies) => {
                let mut items: Vec<Value> = replies.iter().map(answer_item).collect();
                call.own_ids.restore(&mut items);
                let sent = items.iter().map(Value::to_string).collect();
                body.extend(known.map(|response| ("previous_response_id".to_owned(), response.into())));
                (items, sent)
            }
            TurnInput::Messages { messages, .. } => {
                let followed = followed(call);
                body.extend(followed.map(|response| ("previous_response_id".to_owned(), response.into())));
                let before: &[Value] = if followed.is_some() { &[] } else { &call.history };
                let mut items: Vec<Value> = before.iter().flat_map(items_of).collect();
                items.extend(messages.iter().map(|new| json!({ "role": "user", "content": content(&new.content) })));
                call.own_ids.restore(&mut items);
                (items, Vec::new())
            }
            TurnInput::Rejoin => (Vec::new(), Vec::new()),
        };
        body.insert("input".into(), items.into());
        (body.into(), sent)
    }
}

/// A message of the conversation as input items.
fn items_of(message: &Value) -> Vec<Value> {
    match message["role"].as_str() {
        Some("tool") => {
            let output = message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned);
            vec![json!({ "type": "function_call_output", "call_id": message["toolCallId"], "output": output })]
        }
        Some(role) => {
            let text = message.get("content").filter(|content| !content.is_null());
            let text = text.map(|text| json!({ "role": role, "content": content(text) }));
            let calls = message["toolCalls"].as_array().into_iter().flatten().map(|call| {
                let function = &call["function"];
                json!({ "type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": function["arguments"] })
            });
            text.into_iter().chain(calls).collect()
        }
        None => Vec::new(),
    }
}

fn content(content: &Value) -> Value {
    let part = |part: Part<'_>| match part {
        Part::Text(text) => json!({ "type": "input_text", "text": text }),
        Part::File(file) if file.is("image") => json!({ "type": "input_image", "image_url": file.url() }),
        Part::File(file) => match file.content {
            FileContent::Url(url) => json!({ "type": "input_file", "file_url": url }),
            FileContent::Inline(_) => json!({ "type": "input_file", "filename": file.shown_name(), "file_data": file.url() }),
        },
    };
    match content {
        Value::Array(_) => parts(content).into_iter().map(part).collect(),
        other => other.clone(),
    }
}

/// An answer: to the request of a tool server, or the output of a function.
fn answer_item(reply: &ActionReply) -> Value {
    if reply.control == crate::model::Control::Answer
        && let Some(call) = reply.asked("toolCallId")
    {
        let output = reply.value.clone().unwrap_or_default();
        let output = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
        return json!({ "type": "function_call_output", "call_id": call, "output": output });
    }
    let mut item =
        json!({ "type": "mcp_approval_response", "approval_request_id": reply.own_action(), "approve": reply.is_approved() });
    if let Some(reason) = reply.reason() {
        item["reason"] = reason.into();
    }
    item
}

#[derive(Default)]
struct ResponsesReader {
    /// Items of the call that belong into the log, until the first event.
    sent: Vec<String>,
    is_background: bool,
    /// The response that the call followed, until the endpoint's first event.
    follows: Option<String>,
    response: Option<String>,
    /// Whether a new turn can follow the response, as far as it is not remembered yet.
    news: Option<bool>,
    /// Whether the log has events of the stream, and not its end.
    is_open: bool,
}

impl EventReader for ResponsesReader {
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        if message.data.trim() == "[DONE]" {
            return Ok(());
        }
        self.is_open = true;
        facts.append(&mut self.sent);
        let is_end = message.event == COMPLETED || message.data.contains(COMPLETED);
        if (self.response.is_none() || is_end)
            && let Ok(event) = halves::parse(message.data.as_bytes())
            && let Some(id) = event["response"]["id"].as_str()
        {
            let response = &event["response"];
            if let Some(follows) = self.follows.take()
                && response.get("previous_response_id").is_some_and(|followed| *followed != *follows)
            {
                return Err(UpstreamError::state_lost("The endpoint did not continue from the response that the call names."));
            }
            let known = self.response.get_or_insert_with(|| id.to_owned());
            self.news = Some(event["type"] == COMPLETED && known == id && can_follow(response));
        }
        facts.push(line_of(message.data));
        Ok(())
    }

    fn read_missed<'a>(&'a mut self, _endpoint: &'a HttpEndpoint) -> Step<'a, Option<Vec<String>>> {
        let end = std::mem::take(&mut self.is_open).then(|| vec![json!({ "type": STREAM_ENDED }).to_string()]);
        Box::pin(ready(Ok(end)))
    }

    fn cancellation(&self, endpoint: &HttpEndpoint) -> Option<RequestBuilder> {
        let response = self.response.as_deref().filter(|_| self.is_background)?;
        Some(endpoint.request(Method::POST, endpoint.address(&[response, "cancel"])))
    }

    fn news(&mut self) -> Remembered {
        let Some(can_follow) = self.news.take() else { return Remembered::default() };
        let mut run = memory::named([(RESPONSE, self.response.as_deref())]);
        run.insert(CAN_FOLLOW.into(), can_follow.into());
        Remembered { run, ..Remembered::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples::reply;
    use super::*;
    use crate::model::Control;

    #[test]
    fn the_conversation_becomes_input_items() {
        let call = json!({ "id": "c", "function": { "name": "rm", "arguments": "{}" } });
        let of = |message: Value| json!(items_of(&message));
        assert_eq!(of(json!({ "role": "user", "content": "Hi" })), json!([{ "role": "user", "content": "Hi" }]));
        assert_eq!(
            of(json!({ "role": "assistant", "toolCalls": [call] })),
            json!([{ "type": "function_call", "call_id": "c", "name": "rm", "arguments": "{}" }])
        );
        assert_eq!(
            of(json!({ "role": "tool", "toolCallId": "c", "content": "ok" })),
            json!([{ "type": "function_call_output", "call_id": "c", "output": "ok" }])
        );
    }

    #[test]
    fn a_decision_names_the_request_and_an_output_its_call() {
        assert_eq!(
            answer_item(&reply("mcpr_1", Control::Reject, json!("no"), json!({}))),
            json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": false, "reason": "no" })
        );
        assert_eq!(
            answer_item(&reply("a", Control::Answer, json!({ "n": 1 }), json!({ "toolCallId": "c" }))),
            json!({ "type": "function_call_output", "call_id": "c", "output": "{\"n\":1}" })
        );
    }
}
