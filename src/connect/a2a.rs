//! A2A agents over JSON-RPC, protocol 1.0 or 0.3.
//!
//! The agent keeps the conversation of a context, so it gets only new messages. A branch has a new context, whose first
//! message begins with the conversation in words. A pause ends the stream, not the task:
//! the answer is a message to the same task. After a restart the connector subscribes to the task again. A task that
//! ended meanwhile takes no subscription, and the connector reads it whole.

use super::call::{ActionReply, Protocol, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::UpstreamError;
use super::http::{EventReader, HttpEndpoint, HttpUpstream, NO_STREAM, line_of};
use super::memory;
use super::parts::{Part, parts};
use super::process::told;
use super::sse::SseMessage;
use super::{ConnectorKind, TargetKind, http_endpoint};
use crate::control::aside::{ACTION, AsideKind};
use crate::encode::files::FileContent;
use crate::log::agent_memory::Remembered;
use crate::model::{a2ui, halves};
use futures_util::FutureExt;
use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};

pub(super) const CONNECTOR: ConnectorKind =
    ConnectorKind { name: "a2a", source: "a2a", target: TargetKind::Url, options: &["version"], resolves: false, open };

fn open(entry: &AgentEntry, event_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    let dialect = match entry.text_option("version")?.unwrap_or("1.0") {
        "1.0" => &V1,
        "0.3" => &V03,
        other => return Err(format!("version is {other:?}; it must be \"1.0\" or \"0.3\"")),
    };
    Ok(Box::new(A2aAgent { endpoint: http_endpoint(entry, event_bytes_max)?, dialect }))
}

/// What the versions call their methods and members.
struct A2aDialect {
    version: &'static str,
    send: &'static str,
    subscribe: &'static str,
    get: &'static str,
    cancel: &'static str,
    role: &'static str,
    has_kinds: bool,
}

static V1: A2aDialect = A2aDialect {
    version: "1.0",
    send: "SendStreamingMessage",
    subscribe: "SubscribeToTask",
    get: "GetTask",
    cancel: "CancelTask",
    role: "ROLE_USER",
    has_kinds: false,
};
static V03: A2aDialect = A2aDialect {
    version: "0.3",
    send: "message/stream",
    subscribe: "tasks/resubscribe",
    get: "tasks/get",
    cancel: "tasks/cancel",
    role: "user",
    has_kinds: true,
};

struct A2aAgent {
    endpoint: HttpEndpoint,
    dialect: &'static A2aDialect,
}

/// What the run and its session remember.
const TASK: &str = "a2aTask";
const CONTEXT: &str = "a2aContext";

impl Protocol for A2aAgent {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let task = memory::id(&call.memory.run, TASK).map(str::to_owned);
            let (method, params) = match (&call.input, &task) {
                (TurnInput::Rejoin, Some(task)) => (self.dialect.subscribe, json!({ "id": task })),
                (input, task) => (self.dialect.send, json!({ "message": self.message(call, input, task.as_deref()) })),
            };
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            let request = rpc(&endpoint, self.dialect, method, call.run.as_str(), &params);
            let opened = endpoint.open(request).await;
            if let (TurnInput::Rejoin, Some(task), Err(UpstreamError { code: NO_STREAM, .. })) = (&call.input, &task, &opened) {
                let whole = self.task(&endpoint, call.run.as_str(), task).await?;
                return Ok(Box::new(EndedTask(Some(whole))) as Box<dyn Upstream>);
            }
            let stream = opened?;
            let reader = A2aReader { dialect: self.dialect, task, context: None, is_news: false };
            Ok(Box::new(HttpUpstream { endpoint, stream, reader }) as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn carries(&self, kind: AsideKind) -> bool {
        kind == AsideKind::Action
    }

    fn can_rejoin(&self, memory: &Remembered) -> bool {
        memory.run.contains_key(TASK)
    }

    fn outlives_connection(&self) -> bool {
        true
    }
}

fn rpc(endpoint: &HttpEndpoint, dialect: &A2aDialect, method: &str, id: &str, params: &Value) -> RequestBuilder {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    endpoint.request(Method::POST, endpoint.url.clone()).header("A2A-Version", dialect.version).json(&body)
}

impl A2aAgent {
    /// Reads a task whole, as a fact.
    async fn task(&self, endpoint: &HttpEndpoint, id: &str, task: &str) -> Result<Value, UpstreamError> {
        let answer = endpoint.fetch(rpc(endpoint, self.dialect, self.dialect.get, id, &json!({ "id": task }))).await?;
        match answer.get("result") {
            // In 0.3 the task says its kind.
            Some(task) if self.dialect.has_kinds => Ok(task.clone()),
            Some(task) => Ok(json!({ "task": task })),
            None => Ok(answer),
        }
    }

    fn part(&self, part: Part<'_>) -> Value {
        match (part, self.dialect.has_kinds) {
            (Part::Text(text), true) => json!({ "kind": "text", "text": text }),
            (Part::Text(text), false) => json!({ "text": text }),
            (Part::File(file), has_kinds) => {
                let (of_03, of_1, value) = match file.content {
                    FileContent::Inline(data) => ("bytes", "raw", data),
                    FileContent::Url(url) => ("uri", "url", url),
                };
                match has_kinds {
                    true => {
                        json!({ "kind": "file", "file": { of_03: value, "mimeType": file.media_type, "name": file.shown_name() } })
                    }
                    false => json!({ of_1: value, "mediaType": file.media_type, "filename": file.shown_name() }),
                }
            }
        }
    }

    /// A user's action in a surface, as the A2UI extension has it.
    fn action(&self, members: &Map<String, Value>) -> Option<Value> {
        let action = members.get("forwardedProps")?.get(ACTION)?.get("userAction")?;
        let data = json!({ "version": "v0.9", "action": action });
        let mut part = json!({ "data": data, "metadata": { "mimeType": a2ui::MEDIA_TYPES[0] } });
        if self.dialect.has_kinds {
            part["kind"] = "data".into();
        }
        Some(part)
    }

    fn message(&self, call: &UpstreamCall, input: &TurnInput, task: Option<&str>) -> Value {
        let (id, parts): (_, Vec<Value>) = match input {
            TurnInput::Messages { messages, members } => {
                let before = if call.needs_transcript() { told(&call.history) } else { None };
                let before = before.as_deref().map(Part::Text);
                let said = before.into_iter().chain(messages.iter().flat_map(|message| parts(&message.content)));
                let action = self.action(members).filter(|_| messages.is_empty());
                (messages.last().map(|message| message.id.clone()), said.map(|part| self.part(part)).chain(action).collect())
            }
            TurnInput::Replies(replies) => {
                let said = replies.iter().map(|reply| self.part(Part::Text(&answer_text(reply))));
                (replies.first().map(|reply| format!("{}-answer", reply.action)), said.collect())
            }
            TurnInput::Rejoin => (None, Vec::new()),
        };
        let id = id.unwrap_or_else(|| call.run.to_string());
        let mut message = json!({ "messageId": id, "role": self.dialect.role, "parts": parts });
        if self.dialect.has_kinds {
            message["kind"] = "message".into();
        }
        if let TurnInput::Messages { members, .. } = input {
            for member in A2UI_METADATA {
                if let Some(value) = members.get("forwardedProps").and_then(|forwarded| forwarded.get(member)) {
                    message["metadata"][member] = value.clone();
                }
            }
        }
        if let Some(context) = memory::id(&call.memory.session, CONTEXT) {
            message["contextId"] = context.into();
        }
        if let (TurnInput::Replies(_), Some(task)) = (input, task) {
            message["taskId"] = task.into();
        }
        message
    }
}

/// What a page says of itself for the A2UI extension: what it can show, and its own data model.
const A2UI_METADATA: [&str; 2] = ["a2uiClientCapabilities", "a2uiClientDataModel"];

/// An answer in words: A2A has no other form.
fn answer_text(reply: &ActionReply) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (&reply.control, &reply.value) {
        (crate::model::Control::Answer, Some(value)) => value.get("text").map_or_else(|| text(value), text),
        _ => reply.reason().map_or_else(|| reply.outcome().to_owned(), |reason| format!("{}: {reason}", reply.outcome())),
    }
}

/// A task that ended while nothing read its stream.
struct EndedTask(Option<Value>);

impl Upstream for EndedTask {
    fn next(&mut self) -> Step<'_, Option<Vec<String>>> {
        let task = self.0.take().map(|task| vec![task.to_string()]);
        std::future::ready(Ok(task)).boxed()
    }
}

struct A2aReader {
    dialect: &'static A2aDialect,
    task: Option<String>,
    context: Option<String>,
    /// Whether the ids are not remembered yet.
    is_news: bool,
}

impl EventReader for A2aReader {
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        if self.context.is_none()
            && let Ok(event) = halves::parse(message.data.as_bytes())
        {
            self.note_ids(event.get("result").unwrap_or(&event));
        }
        facts.push(line_of(message.data));
        Ok(())
    }

    fn cancellation(&self, endpoint: &HttpEndpoint) -> Option<RequestBuilder> {
        let task = self.task.as_deref()?;
        Some(rpc(endpoint, self.dialect, self.dialect.cancel, "cancel", &json!({ "id": task })))
    }

    fn news(&mut self) -> Remembered {
        if !std::mem::take(&mut self.is_news) {
            return Remembered::default();
        }
        let (task, context) = (self.task.as_deref(), self.context.as_deref());
        Remembered { run: memory::named([(TASK, task)]), session: memory::named([(CONTEXT, context)]) }
    }
}

impl A2aReader {
    /// Notes the ids of a result: the task itself, or an update that names it.
    fn note_ids(&mut self, result: &Value) {
        let inner = ["task", "statusUpdate", "artifactUpdate", "message"].iter().find_map(|name| result.get(*name));
        let inner = inner.unwrap_or(result);
        let text = |member: &str| inner.get(member).and_then(Value::as_str).map(str::to_owned);
        let is_task = inner.get("taskId").is_none() && inner.get("messageId").is_none();
        self.context = text("contextId");
        self.task = text("taskId").or_else(|| text("id").filter(|_| is_task)).or(self.task.take());
        self.is_news = self.context.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples::reply;
    use super::*;
    use crate::model::Control;

    #[test]
    fn an_answer_is_said_in_words() {
        let said = |control: Control, value: Value| answer_text(&reply("a", control, value, json!({})));
        assert_eq!(said(Control::Answer, json!("Oslo")), "Oslo");
        assert_eq!(said(Control::Answer, json!({ "text": "Oslo" })), "Oslo");
        assert_eq!(said(Control::Answer, json!({ "n": 1 })), "{\"n\":1}");
        assert_eq!(said(Control::Approve, Value::Null), "approved");
        assert_eq!(said(Control::Reject, json!("too late")), "rejected: too late");
    }

    #[test]
    fn the_task_is_read_from_each_form_of_an_event() {
        for event in [
            json!({ "task": { "id": "t", "contextId": "c" } }),
            json!({ "statusUpdate": { "taskId": "t", "contextId": "c" } }),
            json!({ "kind": "task", "id": "t", "contextId": "c" }),
            json!({ "kind": "status-update", "taskId": "t", "contextId": "c" }),
        ] {
            let mut reader = A2aReader { dialect: &V1, task: None, context: None, is_news: false };
            reader.note_ids(&event);
            let ids = json!({ "run": { "a2aTask": "t" }, "session": { "a2aContext": "c" } });
            assert_eq!(serde_json::to_value(reader.news()).unwrap(), ids, "{event}");
        }
    }
}
