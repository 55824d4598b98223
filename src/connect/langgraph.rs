//! `LangGraph` servers: a run on a thread, its stream, and a look at its end.
//!
//! The server keeps the state of a thread, so it gets only new messages. The thread's id follows from the session's. A
//! stream ends in the same way whether the run completed, waits or was cancelled, so the connector asks afterwards. A
//! run continues at the server while this process restarts, and the connector then joins it after the last event that
//! the log has. A server that kept no events has none from before, so the connector also reads the run's messages from
//! the state of the thread at the end.
//!
//! A branch has a copy of the thread, and its first run begins at the last checkpoint of the run that it left. Where the
//! point is not at the end of a run, the branch has a new thread, whose first run gets the conversation as messages.

use super::call::{ActionReply, Protocol, QuestionLife, Step, TurnInput, Upstream, UpstreamCall, uuid_of};
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
use crate::model::{AgentId, Control, SessionId, halves};
use futures_util::FutureExt;
use http::{HeaderValue, Method};
use reqwest::RequestBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use uuid::Uuid;

pub(super) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "langgraph",
    source: "langgraph",
    target: TargetKind::Url,
    options: &["assistant", "config", "context"],
    resolves: true,
    open,
};

fn open(entry: &AgentEntry, event_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    let assistant = entry.text_option("assistant")?.unwrap_or("agent").to_owned();
    let mut settings = entry.options.clone();
    settings.shift_remove("assistant");
    let endpoint = http_endpoint(entry, event_bytes_max)?;
    let threads_of = entry.shares_target.then(|| entry.name.clone());
    Ok(Box::new(LangGraphServer { endpoint, assistant, settings, threads_of }))
}

struct LangGraphServer {
    endpoint: HttpEndpoint,
    assistant: String,
    /// Further members of the request for a run.
    settings: Map<String, Value>,
    /// Its name, if another agent has the threads that are named like the sessions.
    threads_of: Option<AgentId>,
}

/// What the session remembers: its thread, and, until its first run, the checkpoint where that begins.
const THREAD: &str = "langgraphThread";
const CHECKPOINT: &str = "langgraphCheckpoint";
/// What the run remembers: the server's run, and how far the log has its stream.
const RUN: &str = "langgraphRun";
const EVENT: &str = "langgraphEvent";

impl Protocol for LangGraphServer {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let thread = self.thread(call);
            let joined = match call.input {
                TurnInput::Rejoin => memory::id(&call.memory.run, RUN).map(str::to_owned),
                _ => None,
            };
            let events = joined.as_ref().map(|_| EventPosition::of(&call.memory.run)).unwrap_or_default();
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            let request = match &joined {
                Some(run) => {
                    let request = endpoint.request(Method::GET, endpoint.address(&["threads", &thread, "runs", run, "stream"]));
                    events.join(request)
                }
                None => {
                    let address = endpoint.address(&["threads", &thread, "runs", "stream"]);
                    endpoint.request(Method::POST, address).json(&self.body(call))
                }
            };
            let stream = endpoint.open(request).await;
            let stream = stream.map_err(|error| if call.left_turn().is_some() { error.or_state_lost() } else { error })?;
            let (is_behind, again) = (joined.is_some(), events.count);
            let reader = LangGraphReader { thread, is_behind, run: joined, events, again, is_news: false, waits: None };
            Ok(Box::new(HttpUpstream { endpoint, stream, reader }) as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn can_rejoin(&self, memory: &Remembered) -> bool {
        memory.run.contains_key(RUN)
    }

    fn question_life(&self) -> QuestionLife {
        QuestionLife::UntilNewInput
    }

    fn open_questions<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Option<HashSet<String>>> {
        async {
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            Ok(open_interrupts(&state_of(&endpoint, &self.thread(call)).await?))
        }
        .boxed()
    }

    fn check_edit(&self, edit: &ActionReply) -> Result<(), &'static str> {
        edited(edit).map(drop).ok_or("The value must be what the action has as its input, with changes.")
    }

    fn fork_of(&self, left: &LeftTurn) -> Fork {
        let is_known = left.memory.session.contains_key(THREAD) && left.memory.run.contains_key(RUN);
        if left.is_at_end && is_known { Fork::State } else { Fork::Transcript }
    }

    fn copy_state<'a>(&'a self, call: &'a UpstreamCall, left: &'a LeftTurn) -> Step<'a, Remembered> {
        async {
            let (thread, run) = (memory::id(&left.memory.session, THREAD), memory::id(&left.memory.run, RUN));
            let (Some(thread), Some(run), false) = (thread, run, call.memory.session.contains_key(THREAD)) else {
                return Ok(Remembered::default());
            };
            let endpoint = self.endpoint.with_headers(&call.user_headers);
            let post = async |what: &str, body: &Value| {
                let request = endpoint.request(Method::POST, endpoint.address(&["threads", thread, what])).json(body);
                endpoint.fetch(request).await.map_err(UpstreamError::or_state_lost)
            };
            let newest = post("history", &json!({ "limit": 1, "metadata": { "run_id": run } })).await?;
            let state = newest.get(0).filter(|state| state["metadata"]["run_id"] == *run);
            let checkpoint = state.and_then(|state| state["checkpoint"]["checkpoint_id"].as_str());
            let Some(checkpoint) = checkpoint else {
                return Err(UpstreamError::state_lost(format!("Thread {thread} has no checkpoint of run {run}.")));
            };
            let copy = post("copy", &json!({})).await?;
            let Some(copy) = copy["thread_id"].as_str() else {
                return Err(UpstreamError::new("agent_invalid_answer", "The copy of a thread has no thread_id."));
            };
            let session = memory::named([(THREAD, Some(copy)), (CHECKPOINT, Some(checkpoint))]);
            Ok(Remembered { session, ..Remembered::default() })
        }
        .boxed()
    }

    fn outlives_connection(&self) -> bool {
        true
    }
}

impl LangGraphServer {
    /// The thread of the call's session: the one that it had before, else one that follows from its id.
    fn thread(&self, call: &UpstreamCall) -> String {
        match (memory::id(&call.memory.session, THREAD), &self.threads_of) {
            (Some(known), _) => known.to_owned(),
            (None, Some(agent)) => uuid_of(&[call.session.as_str(), agent.as_str()]).to_string(),
            (None, None) => thread_of(&call.session),
        }
    }

    fn body(&self, call: &UpstreamCall) -> Value {
        let mut body = json!({
            "assistant_id": self.assistant, "if_not_exists": "create", "multitask_strategy": "reject",
            "stream_mode": ["messages-tuple", "updates", "custom"], "stream_subgraphs": true, "stream_resumable": true,
            "on_disconnect": "continue" });
        match &call.input {
            TurnInput::Messages { messages, .. } => {
                let mut before = if call.needs_transcript() { call.history.clone() } else { Vec::new() };
                call.own_ids.restore(&mut before);
                let new = messages.iter().map(|new| json!({ "id": new.id, "role": "user", "content": content(&new.content) }));
                body["input"] = json!({ "messages": before.iter().map(message_of).chain(new).collect::<Vec<_>>() });
                let checkpoint = call.left_turn().and_then(|_| memory::id(&call.memory.session, CHECKPOINT));
                if let Some(checkpoint) = checkpoint {
                    (body["checkpoint_id"], body["if_not_exists"]) = (checkpoint.into(), "reject".into());
                }
            }
            TurnInput::Replies(replies) => body["command"] = json!({ "resume": resume(replies) }),
            TurnInput::Rejoin => {}
        }
        for (member, value) in &self.settings {
            body[member] = value.clone();
        }
        body
    }
}

/// A message of the conversation as LangChain reads it.
fn message_of(message: &Value) -> Value {
    let said = message.get("content").filter(|said| !said.is_null()).map_or_else(|| "".into(), content);
    let mut of = json!({ "id": message["id"], "role": message["role"], "content": said });
    if let Some(call) = message.get("toolCallId") {
        of["tool_call_id"] = call.clone();
    }
    if let Some(calls) = message.get("toolCalls").and_then(Value::as_array) {
        let call = |call: &Value| {
            let text = call["function"]["arguments"].as_str().unwrap_or_default();
            let arguments = serde_json::from_str(text).ok().filter(Value::is_object);
            let arguments = arguments.unwrap_or_else(|| json!({ "arguments": text }));
            json!({ "type": "tool_call", "id": call["id"], "name": call["function"]["name"], "args": arguments })
        };
        of["tool_calls"] = calls.iter().map(call).collect();
    }
    of
}

/// A message's content in the blocks that LangChain's models of any provider read.
fn content(content: &Value) -> Value {
    let block = |part: Part<'_>| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::File(file) if file.is("image") => json!({ "type": "image_url", "image_url": { "url": file.url() } }),
        Part::File(file) => {
            let mut block = json!({ "type": "file", "mime_type": file.media_type, "filename": file.shown_name() });
            let (kind, member, value) = match file.content {
                FileContent::Inline(data) => ("base64", "data", data),
                FileContent::Url(url) => ("url", "url", url),
            };
            (block["source_type"], block[member]) = (kind.into(), value.into());
            block
        }
    };
    match content {
        Value::Array(_) => parts(content).into_iter().map(block).collect(),
        other => other.clone(),
    }
}

/// The thread of a session: its id, if that is a UUID, else one made from it.
fn thread_of(session: &SessionId) -> String {
    Uuid::parse_str(session.as_str()).unwrap_or_else(|_| uuid_of(&[session.as_str()])).to_string()
}

/// The answers, by interrupt. A bare value would answer the question that the thread asks by then.
fn resume(replies: &[ActionReply]) -> Value {
    replies.iter().map(|reply| (reply.own_action().to_owned(), resume_value(reply))).collect::<Map<_, _>>().into()
}

/// An answer as the graph expects it: decisions for the approval middleware, else the user's own value.
fn resume_value(reply: &ActionReply) -> Value {
    let given = reply.value.clone();
    let is_decision = |value: &Value| value.get("decisions").is_some() || value.get("type").is_some_and(Value::is_string);
    if let Some(value) = given.filter(|value| reply.control == Control::Answer || is_decision(value)) {
        return value;
    }
    if let Some(edited) = edited(reply).filter(|_| reply.control == Control::Edit) {
        return edited;
    }
    if reply.asked("kind") != Some("tool_approval") {
        return reply.value.clone().unwrap_or_else(|| reply.is_approved().into());
    }
    let mut decision = json!({ "type": if reply.is_approved() { "approve" } else { "reject" } });
    if let Some(reason) = reply.reason().filter(|_| !reply.is_approved()) {
        decision["message"] = reason.into();
    }
    // The middleware asks about several calls at once, and then wants a decision for each, in order.
    match requests(reply) {
        Some(requests) => json!({ "decisions": vec![decision; requests.len().max(1)] }),
        None if reply.asked.contains_key("toolCallId") => decision,
        None => json!({ "decisions": [decision] }),
    }
}

/// The calls that an action asks about, if it may ask about several.
fn requests(reply: &ActionReply) -> Option<&Vec<Value>> {
    ["input", "parameters"].iter().find_map(|member| reply.asked.get(*member)?.as_array())
}

/// The decisions by which the user's changed calls or arguments are carried out. `None` if they are not of this action.
fn edited(reply: &ActionReply) -> Option<Value> {
    let edit = |name: &Value, args: &Value| json!({ "type": "edit", "edited_action": { "name": name, "args": args } });
    let given = reply.value.as_ref()?;
    match (requests(reply), given) {
        _ if reply.asked("kind") != Some("tool_approval") => None,
        (Some(requests), Value::Array(given)) if given.len() == requests.len() => {
            let decisions = requests.iter().zip(given).map(|(request, given)| match given == request {
                true => Some(json!({ "type": "approve" })),
                false => Some(edit(given.get("name")?, given.get("args")?)),
            });
            Some(json!({ "decisions": decisions.collect::<Option<Vec<_>>>()? }))
        }
        (None, Value::Object(_)) => Some(edit(reply.asked.get("toolName")?, given)),
        _ => None,
    }
}

/// How far the log has the stream of a run.
///
/// The server's ids are not unique: several events in a row may share one, and a stream that is joined after an id
/// begins after the last of them. So the connector joins after the id before, and skips the events that it counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct EventPosition {
    /// The last id, and the number of events that had it.
    last: Option<String>,
    count: u64,
    /// The last id before it.
    before: Option<String>,
}

impl EventPosition {
    fn of(memory: &Map<String, Value>) -> Self {
        memory.get(EVENT).and_then(|known| serde_json::from_value(known.clone()).ok()).unwrap_or_default()
    }

    /// Notes the id of an event.
    fn note(&mut self, id: &str) {
        if self.last.as_deref() == Some(id) {
            self.count += 1;
        } else {
            *self = Self { last: Some(id.to_owned()), count: 1, before: self.last.take() };
        }
    }

    /// Asks for the events from here on. A server that numbers none sends what comes from now on.
    fn join(&self, request: RequestBuilder) -> RequestBuilder {
        let after = self.last.as_ref().map(|_| self.before.as_deref().unwrap_or("-1"));
        match after.and_then(|id| HeaderValue::from_str(id).ok()) {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        }
    }
}

struct LangGraphReader {
    thread: String,
    run: Option<String>,
    events: EventPosition,
    /// The events of the position's id that come again, because the stream was joined before them.
    again: u64,
    /// Whether the run's id or the position is not remembered yet.
    is_news: bool,
    /// Whether the stream lacks events from before it was joined.
    is_behind: bool,
    /// Whether the thread has further steps, if its state was read after the stream.
    waits: Option<bool>,
}

/// Whether a thread of this state has further steps: its run waits.
fn has_next(state: &Value) -> bool {
    state["next"].as_array().is_some_and(|next| !next.is_empty())
}

/// The ids of the interrupts of a thread in this state. `None`: the state does not list its tasks.
fn open_interrupts(state: &Value) -> Option<HashSet<String>> {
    let of_tasks = state["tasks"].as_array()?.iter().filter_map(|task| task["interrupts"].as_array());
    let all = of_tasks.chain(state["interrupts"].as_array()).flatten();
    let id = |interrupt: &Value| ["id", "interrupt_id"].iter().find_map(|member| Some(interrupt[*member].as_str()?.to_owned()));
    Some(all.filter_map(id).collect())
}

/// The messages of the thread's last turn, if its state is of this run.
///
/// The source knows the event of LangGraph's stream mode `messages`, and ignores what it has.
fn messages_of(run: Option<&str>, mut state: Value) -> Vec<String> {
    if state.pointer("/metadata/run_id").and_then(Value::as_str).is_some_and(|of| Some(of) != run) {
        return Vec::new();
    }
    let Some(Value::Array(mut messages)) = state.pointer_mut("/values/messages").map(Value::take) else { return Vec::new() };
    let begin = messages.iter().rposition(|message| message["type"] == "human").map_or(0, |asked| asked + 1);
    vec![json!({ "event": "messages/complete", "data": messages.split_off(begin) }).to_string()]
}

/// Reads the state of a thread.
async fn state_of(endpoint: &HttpEndpoint, thread: &str) -> Result<Value, UpstreamError> {
    endpoint.fetch(endpoint.request(Method::GET, endpoint.address(&["threads", thread, "state"]))).await
}

impl EventReader for LangGraphReader {
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        if let Some(id) = message.id.as_deref() {
            if self.again > 0 && self.events.last.as_deref() == Some(id) {
                self.again -= 1;
                return Ok(());
            }
            self.events.note(id);
            (self.again, self.is_news) = (0, true);
        }
        // The event's name is part of the protocol.
        let data = halves::parse(message.data.as_bytes())
            .map_err(|error| UpstreamError::new("endpoint_not_json", format!("An event of the stream is not JSON: {error}.")))?;
        if message.event == "metadata"
            && let Some(run) = data["run_id"].as_str()
        {
            self.is_news |= self.run.as_deref() != Some(run);
            self.run = Some(run.to_owned());
        }
        // The text as it came: the log joins halves of pairs that the parsed value has lost.
        let (event, data) = (json!(message.event), line_of(message.data));
        facts.push(format!(r#"{{"event":{event},"data":{data}}}"#));
        Ok(())
    }

    fn read_missed<'a>(&'a mut self, endpoint: &'a HttpEndpoint) -> Step<'a, Option<Vec<String>>> {
        async {
            if !self.is_behind {
                return Ok(None);
            }
            let state = state_of(endpoint, &self.thread).await?;
            (self.is_behind, self.waits) = (false, Some(has_next(&state)));
            Ok(Some(messages_of(self.run.as_deref(), state)))
        }
        .boxed()
    }

    fn conclude<'a>(&'a mut self, endpoint: &'a HttpEndpoint) -> Step<'a, Vec<Value>> {
        async {
            let Some(run) = &self.run else { return Err(UpstreamError::cut("The stream ended before the run began.")) };
            let address = endpoint.address(&["threads", &self.thread, "runs", run]);
            let known = endpoint.fetch(endpoint.request(Method::GET, address)).await?;
            let status = known["status"].as_str().unwrap_or_default();
            match status {
                "success" => {
                    let waits = match self.waits {
                        Some(waits) => waits,
                        None => has_next(&state_of(endpoint, &self.thread).await?),
                    };
                    let status = json!({ "type": "run.status", "payload": { "status": "waiting" } });
                    Ok(vec![if waits { status } else { json!({ "type": "run.finished" }) }])
                }
                "interrupted" => Ok(vec![super::turn::cancelled_fact()]),
                other => Err(UpstreamError::new("run_failed", format!("The server says of the run: {other}."))),
            }
        }
        .boxed()
    }

    fn cancellation(&self, endpoint: &HttpEndpoint) -> Option<RequestBuilder> {
        let mut address = endpoint.address(&["threads", &self.thread, "runs", self.run.as_deref()?, "cancel"]);
        address.set_query(Some("wait=0&action=interrupt"));
        Some(endpoint.request(Method::POST, address))
    }

    fn news(&mut self) -> Remembered {
        if !std::mem::take(&mut self.is_news) {
            return Remembered::default();
        }
        let mut run = memory::named([(RUN, self.run.as_deref())]);
        if self.events.last.is_some() {
            run.insert(EVENT.into(), serde_json::to_value(&self.events).expect("a position is plain data"));
        }
        let mut session = memory::named([(THREAD, Some(self.thread.as_str()))]);
        session.insert(CHECKPOINT.into(), Value::Null);
        Remembered { run, session }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples::reply;
    use super::*;

    #[test]
    fn an_answer_is_what_the_graph_waits_for() {
        let tools = |n: usize| json!({ "kind": "tool_approval", "input": vec![json!({ "name": "rm" }); n] });
        let approve = json!({ "type": "approve" });
        assert_eq!(
            resume_value(&reply("i", Control::Approve, Value::Null, tools(2))),
            json!({ "decisions": [approve, approve] })
        );
        assert_eq!(
            resume_value(&reply("i", Control::Reject, json!("no"), tools(1))),
            json!({ "decisions": [{ "type": "reject", "message": "no" }] })
        );
        let one = json!({ "kind": "tool_approval", "toolCallId": "c" });
        assert_eq!(resume_value(&reply("i", Control::Approve, Value::Null, one)), approve);
        let question = json!({ "kind": "clarification" });
        assert_eq!(resume_value(&reply("i", Control::Answer, json!("Oslo"), question.clone())), json!("Oslo"));
        assert_eq!(resume_value(&reply("i", Control::Reject, Value::Null, question.clone())), json!(false));
        let both = [reply("i", Control::Answer, json!(1), question.clone()), reply("j", Control::Answer, json!(2), question)];
        assert_eq!(resume(&both), json!({ "i": 1, "j": 2 }));
        assert_eq!(resume(&both[..1]), json!({ "i": 1 }), "it names its interrupt, so that it answers no other");
    }

    #[test]
    fn an_edit_changes_the_calls_that_differ_and_approves_the_others() {
        let calls = json!([{ "name": "rm", "args": { "path": "a" } }, { "name": "ls", "args": {} }]);
        let asked = json!({ "kind": "tool_approval", "input": calls });
        let mut changed = calls;
        changed[0]["args"]["path"] = "b".into();
        let edit = json!({ "type": "edit", "edited_action": { "name": "rm", "args": { "path": "b" } } });
        assert_eq!(
            resume_value(&reply("i", Control::Edit, changed.clone(), asked.clone())),
            json!({ "decisions": [edit, { "type": "approve" }] })
        );
        let one = json!({ "kind": "tool_approval", "toolCallId": "c", "toolName": "rm", "input": { "path": "a" } });
        assert_eq!(resume_value(&reply("i", Control::Edit, json!({ "path": "b" }), one.clone())), edit);
        let is_taken = |value: Value, asked: &Value| edited(&reply("i", Control::Edit, value, asked.clone())).is_some();
        assert!(!is_taken(json!([changed[0]]), &asked), "a call is missing");
        assert!(!is_taken(json!(["edit", "edit"]), &asked) && !is_taken(json!("edit"), &one));
        assert!(!is_taken(json!({}), &json!({ "kind": "clarification" })));
    }

    #[test]
    fn a_session_has_one_thread() {
        let thread = |session: &str| thread_of(&SessionId::new(session).unwrap());
        assert_eq!(thread("67e55044-10b1-426f-9247-bb680e5fe0c8"), "67e55044-10b1-426f-9247-bb680e5fe0c8");
        assert_eq!(thread("chat"), thread("chat"));
        assert_ne!(thread("chat"), thread("other"));
        assert!(Uuid::parse_str(&thread("chat")).is_ok());
    }
}
