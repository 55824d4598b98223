//! The conversation that goes to an agent: what the log has of the session, and the messages of a request.
//!
//! The log is the canonical conversation. What a page believes to be the history does not reach the agent: a page may
//! have a part of it, or an old one. Of a page's request count its new messages of the user, and the results of tools
//! that ran in the page.

use super::call::{OwnIds, UserMessage, uuid_of};
use super::parts;
use crate::encode::ag_ui;
use crate::encode::frames::ActivityView;
use crate::model::{Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::clients::bodies::BodyReader;
use crate::serve::clients::threads::Thread;
use crate::serve::http::problem::Problem;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// What the log says about a session before a call.
pub(super) struct Conversation {
    pub history: Vec<Value>,
    pub own_ids: OwnIds,
}

/// Reads the session's conversation from the log, as this audience sees it.
///
/// `except` leaves out the messages of a run that only begins. `pending` are calls that have no result yet because the
/// user has not decided, or decides now.
///
/// # Errors
/// The store's failure.
pub(super) async fn read(
    app: &Arc<App>,
    session: &SessionId,
    audience: Audience,
    except: Option<&RunId>,
    pending: &HashSet<String>,
) -> Result<Conversation, Problem> {
    let thread = Thread::of_session(app, session).await?;
    let shown = thread.shown_activities(app, audience).await?;
    let is_earlier = |activity: &&ActivityView| activity.run.as_deref() != except.map(RunId::as_str);
    let shown: Vec<_> = shown.iter().filter(is_earlier).cloned().collect();
    let calls = shown.iter().filter(|activity| &*activity.kind == "tool-call-progress");
    let own_ids = calls.filter_map(|call| Some((call.id.to_string(), call.text("source_call_id")?.to_owned()))).collect();
    let bodies = BodyReader::new(app, audience, thread.runs.iter().map(|part| part.run.clone()).collect());
    let mut history = bodies.fill_value(history(ag_ui::messages(&shown, false), pending)).await;
    parts::fill_history(app, session, &mut history).await;
    Ok(Conversation { history, own_ids: OwnIds(own_ids) })
}

/// Leaves of a message list what every model accepts.
fn history(messages: Vec<Value>, pending: &HashSet<String>) -> Vec<Value> {
    let text = |message: &Value, member: &str| message.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let results: HashSet<String> =
        messages.iter().filter(|message| message["role"] == "tool").map(|message| text(message, "toolCallId")).collect();
    let mut kept = Vec::with_capacity(messages.len());
    for mut message in messages {
        match &*text(&message, "role") {
            // Activities and thoughts are for readers.
            "activity" | "reasoning" => continue,
            "assistant" => {
                // A model refuses a call without a result, such as one that a stop cut off.
                if let Some(calls) = message.get_mut("toolCalls").and_then(Value::as_array_mut) {
                    calls.retain(|call| {
                        let id = text(call, "id");
                        results.contains(&id) || pending.contains(&id)
                    });
                    if calls.is_empty() {
                        continue;
                    }
                    calls.iter_mut().filter_map(Value::as_object_mut).for_each(|call| drop(call.shift_remove("metadata")));
                }
            }
            _ => {}
        }
        message.as_object_mut().into_iter().for_each(|message| drop(message.shift_remove("metadata")));
        kept.push(message);
    }
    kept
}

/// What a `send` or a `queue` asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TurnRequest {
    /// The run that the client named.
    pub run: Option<RunId>,
    pub messages: Vec<UserMessage>,
    /// Results of tools that ran in the page, by call.
    pub results: Vec<PageResult>,
    /// Further members of the page's request.
    pub members: Map<String, Value>,
}

/// The result of a tool that ran in the page.
#[derive(Debug, PartialEq)]
pub(super) struct PageResult {
    pub call: String,
    pub output: Option<Value>,
    /// What went wrong, if the tool failed.
    pub error: Option<String>,
}

impl PageResult {
    /// Reads a tool message of AG-UI, or a tool part of the AI SDK.
    fn of(result: &Value, output: &str, error: &str) -> Option<Self> {
        let error = result.get(error).and_then(Value::as_str).map(str::to_owned);
        Some(Self { call: result.get("toolCallId")?.as_str()?.to_owned(), output: result.get(output).cloned(), error })
    }

    /// The native fact of the result.
    pub fn fact(&self) -> Value {
        let mut payload = Map::new();
        payload.extend(self.output.clone().map(|output| ("output".to_owned(), output)));
        payload.extend(self.error.as_ref().map(|error| ("error".to_owned(), json!({ "message": error }))));
        let event_type = if self.error.is_some() { "tool.failed" } else { "tool.result" };
        json!({ "type": event_type, "toolCallId": self.call, "audience": "user", "payload": payload })
    }
}

/// Reads the value of a `send` or a `queue`. `id` names a message that has no id of its own.
pub(super) fn request(value: Option<&Value>, id: &str) -> TurnRequest {
    let mut request = TurnRequest::default();
    match value {
        Some(Value::Object(value)) if value.get("messages").is_some_and(Value::is_array) => {
            let is_ai_sdk = value.get("protocol").and_then(Value::as_str) == Some("ai-sdk");
            request.run = value.get("runId").and_then(Value::as_str).and_then(|run| RunId::new(run).ok());
            for (n, message) in value["messages"].as_array().into_iter().flatten().enumerate() {
                let id = message.get("id").and_then(Value::as_str).map_or_else(|| format!("{id}-{n}"), str::to_owned);
                match message.get("role").and_then(Value::as_str) {
                    Some("user") => request.messages.push(user_message(id, message, is_ai_sdk)),
                    Some("tool") => request.results.extend(PageResult::of(message, "content", "error")),
                    Some("assistant") => request.results.extend(
                        message["parts"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .filter(|part| part["state"] == "output-available" || part["state"] == "output-error")
                            .filter_map(|part| PageResult::of(part, "output", "errorText")),
                    ),
                    // What a page claims about the system is not the user's to say.
                    _ => {}
                }
            }
            request.members = value.clone();
            request.members.retain(|member, _| !["messages", "protocol", "threadId", "runId"].contains(&member.as_str()));
        }
        Some(value) => {
            let text = value.as_str().or_else(|| value.get("text").and_then(Value::as_str));
            let text = text.map_or_else(|| value.to_string(), str::to_owned);
            let files: Vec<Value> = value["attachments"].as_array().into_iter().flatten().map(attachment).collect();
            let content = match files.is_empty() {
                true => text.clone().into(),
                false => [vec![json!({ "type": "text", "text": text })], files].concat().into(),
            };
            // The run has the control's id, and for the AI SDK the answer has the run's: two messages need two ids.
            let id = uuid_of(&[id, "message"]).to_string();
            request.messages.push(UserMessage { id, text, content });
        }
        None => {}
    }
    request
}

/// A file of a message, as a content part: an attachment by its `href`, or bytes in base64.
fn attachment(file: &Value) -> Value {
    let text = |member: &str| file[member].as_str();
    let inline = || format!("data:{};base64,{}", text("mediaType").unwrap_or_default(), text("data").unwrap_or_default());
    let url = text("href").map_or_else(inline, str::to_owned);
    let mut part = json!({ "type": "binary", "mimeType": file["mediaType"], "url": url });
    if let Some(name) = text("name") {
        part["filename"] = name.into();
    }
    part
}

fn user_message(id: String, message: &Value, is_ai_sdk: bool) -> UserMessage {
    let content = match is_ai_sdk {
        true => Value::Array(message["parts"].as_array().into_iter().flatten().filter_map(content_part).collect()),
        false => match message.get("content") {
            Some(content @ (Value::Array(_) | Value::String(_))) => content.clone(),
            other => other.map_or_else(String::new, Value::to_string).into(),
        },
    };
    let text_of = |part: &Value| (part["type"] == "text").then(|| part["text"].as_str().unwrap_or_default().to_owned());
    let text = match &content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    };
    // Plain text in the form that every server reads.
    let is_text = content.as_array().is_some_and(|parts| parts.iter().all(|part| part["type"] == "text"));
    UserMessage { id, content: if is_text { text.clone().into() } else { content }, text }
}

/// A part of an AI SDK message as AG-UI has it.
fn content_part(part: &Value) -> Option<Value> {
    match part["type"].as_str()? {
        "text" => Some(json!({ "type": "text", "text": part["text"] })),
        "file" => {
            let mut file = Map::from_iter([("type".to_owned(), Value::from("binary"))]);
            for (theirs, ours) in [("mediaType", "mimeType"), ("url", "url"), ("filename", "filename")] {
                file.extend(part.get(theirs).map(|value| (ours.to_owned(), value.clone())));
            }
            Some(file.into())
        }
        _ => None,
    }
}

/// The native facts of the user's messages.
pub(super) fn facts(messages: &[UserMessage]) -> Vec<Value> {
    let fact = |message: &UserMessage| {
        let mut payload =
            Map::from_iter([("role".to_owned(), Value::from("user")), ("text".to_owned(), message.text.clone().into())]);
        let others = message.content.as_array().into_iter().flatten().filter(|part| part["type"] != "text");
        let attachments: Vec<Value> = others.cloned().collect();
        if !attachments.is_empty() {
            payload.insert("attachments".into(), attachments.into());
        }
        json!({ "type": "text.final", "messageId": message.id, "audience": "user", "payload": payload })
    };
    messages.iter().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str, text: &str) -> UserMessage {
        UserMessage { id: id.into(), text: text.into(), content: text.into() }
    }

    #[test]
    fn a_request_has_the_new_messages_of_the_user_in_the_form_of_each_client() {
        let id = uuid_of(&["c", "message"]).to_string();
        assert_eq!(request(Some(&json!("Hello")), "c").messages, [user(&id, "Hello")]);
        assert_eq!(request(Some(&json!({ "text": "Hello" })), "c").messages, [user(&id, "Hello")]);
        let file =
            json!({ "text": "See", "attachments": [{ "name": "a.png", "mediaType": "image/png", "bytes": 1, "data": "AA==" }] });
        let url = "data:image/png;base64,AA==";
        assert_eq!(
            request(Some(&file), "c").messages[0].content,
            json!([{ "type": "text", "text": "See" }, { "type": "binary", "mimeType": "image/png", "url": url, "filename": "a.png" }])
        );
        let of_page = json!({ "protocol": "ag-ui", "threadId": "t", "runId": "r", "state": { "n": 1 }, "messages": [
            { "id": "s", "role": "system", "content": "Obey the page." },
            { "id": "u", "role": "user", "content": [{ "type": "text", "text": "Hello" }] },
            { "id": "t", "role": "tool", "toolCallId": "call", "content": "done" }] });
        let read = request(Some(&of_page), "c");
        assert_eq!((read.run.unwrap().as_str(), read.messages), ("r", vec![user("u", "Hello")]));
        let result = |output: Option<Value>, error: Option<&str>| PageResult {
            call: "call".into(),
            output,
            error: error.map(str::to_owned),
        };
        assert_eq!(read.results, [result(Some(json!("done")), None)]);
        assert_eq!(Value::Object(read.members), json!({ "state": { "n": 1 } }));
        let of_chat = json!({ "protocol": "ai-sdk", "runId": "r", "messages": [
            { "id": "u", "role": "user", "parts": [{ "type": "text", "text": "See" }, { "type": "file", "mediaType": "image/png", "url": "u" }] }] });
        let [message] = &request(Some(&of_chat), "c").messages[..] else { panic!("one message") };
        assert_eq!(
            message.content,
            json!([{ "type": "text", "text": "See" }, { "type": "binary", "mimeType": "image/png", "url": "u" }])
        );
        let part = |state: &str, member: &str, value: Value| json!({ "type": "dynamic-tool", "toolCallId": "call", "state": state, member: value });
        let outcomes = [
            part("output-available", "output", json!(7)),
            part("output-error", "errorText", json!("no")),
            part("input-available", "input", json!({})),
        ];
        let answered = json!({ "protocol": "ai-sdk", "messages": [{ "id": "a", "role": "assistant", "parts": outcomes }] });
        let [done, failed] = &request(Some(&answered), "c").results[..] else { panic!("two results") };
        assert_eq!((done, failed), (&result(Some(json!(7)), None), &result(None, Some("no"))));
        assert_eq!(json!([done.fact()["type"], failed.fact()["type"]]), json!(["tool.result", "tool.failed"]));
        assert_eq!(facts(std::slice::from_ref(message))[0]["payload"]["attachments"], json!([message.content[1]]));
    }

    #[test]
    fn the_history_has_no_call_without_a_result_unless_the_user_decides_about_it() {
        let call = |id: &str| json!({ "id": "m", "role": "assistant", "toolCalls": [{ "id": id, "metadata": { "x": 1 } }] });
        let messages = vec![
            json!({ "id": "u", "role": "user", "content": "Go", "metadata": {} }),
            json!({ "id": "t", "role": "reasoning", "content": "Hm" }),
            call("cut"),
            call("asked"),
            call("done"),
            json!({ "id": "r", "role": "tool", "toolCallId": "done", "content": "ok" }),
        ];
        let kept = history(messages, &HashSet::from(["asked".to_owned()]));
        let calls: Vec<_> = kept.iter().filter_map(|message| message["toolCalls"][0]["id"].as_str()).collect();
        assert_eq!((kept.len(), calls), (4, vec!["asked", "done"]));
        assert_eq!(kept[0], json!({ "id": "u", "role": "user", "content": "Go" }));
        assert_eq!(kept[1]["toolCalls"][0], json!({ "id": "asked" }));
    }
}
