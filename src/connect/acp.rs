//! ACP agents: processes that speak JSON-RPC with an editor. The connector is the editor.
//!
//! It offers forms (elicitation), but no files and no terminals, so the agent uses its own. A process serves one session.
//! After a restart a new process loads the agent's session if it can, else it gets the conversation.
//!
//! A fact is a message with its direction, because both ends number their requests from 0.

use super::call::{ActionReply, Protocol, QuestionLife, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::UpstreamError;
use super::memory;
use super::parts::{Part, parts, refused, text_of};
use super::process::{AgentProcess, Pooled, ProcessPool, told};
use super::{ConnectorKind, TargetKind, process_pool};
use crate::encode::files::FileContent;
use crate::log::agent_memory::Remembered;
use crate::model::{Control, SessionId, halves};
use futures_util::FutureExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const CONNECTOR: ConnectorKind =
    ConnectorKind { name: "acp", source: "acp", target: TargetKind::Command, options: &[], resolves: false, open };

fn open(entry: &AgentEntry, line_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    Ok(Box::new(AcpAgent { pool: process_pool(entry, line_bytes_max)?, takes_images: Arc::default() }))
}

struct AcpAgent {
    pool: Arc<ProcessPool<AcpProcess>>,
    /// Whether the last process takes images, as it said when it started.
    takes_images: Arc<AtomicBool>,
}

/// What the session remembers: the agent's own session.
const SESSION: &str = "acpSession";
/// JSON-RPC: the method does not exist.
const NO_SUCH_METHOD: i64 = -32601;

impl Protocol for AcpAgent {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let TurnInput::Messages { messages, .. } = &call.input else {
                return Err(UpstreamError::new(
                    "process_ended",
                    "The agent's process has ended, and no longer waits for the answer.",
                ));
            };
            let (mut process, context) = match self.pool.take(&call.session).await {
                Some(process) => (process, None),
                None => self.start(call).await?,
            };
            let context = context.map(|text| json!({ "type": "text", "text": text }));
            let said = messages.iter().flat_map(|message| parts(&message.content));
            let said = said.map(|part| block(part, &process.prompt_abilities)).collect::<Result<Vec<_>, _>>();
            let said = match said {
                Ok(said) => said,
                Err(refused) => {
                    self.pool.keep(&call.session, process);
                    return Err(refused);
                }
            };
            let prompt: Vec<Value> = context.into_iter().chain(said).collect();
            let params = json!({ "sessionId": process.session, "prompt": prompt });
            let prompt = process.request("session/prompt", params, &mut Vec::new()).await?;
            // The log has the user's words already.
            let params = json!({ "sessionId": process.session, "prompt": [] });
            let request = json!({ "jsonrpc": "2.0", "id": prompt, "method": "session/prompt", "params": params });
            let facts = vec![json!({ "from": "client", "message": request }).to_string()];
            let session = memory::named([(SESSION, Some(process.session.as_str()))]);
            let news = Remembered { session, ..Remembered::default() };
            let (pool, session) = (self.pool.clone(), call.session.clone());
            Ok(Box::new(AcpTurn { pool, session, process: Some(process), prompt, facts, questions: Vec::new(), news })
                as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn states_images(&self) -> Option<Arc<AtomicBool>> {
        Some(self.takes_images.clone())
    }

    fn question_life(&self) -> QuestionLife {
        QuestionLife::WithinCall
    }

    /// None: the process that asked has ended, or it would have got the answer.
    fn open_questions<'a>(&'a self, _call: &'a UpstreamCall) -> Step<'a, Option<HashSet<String>>> {
        Box::pin(ready(Ok(Some(HashSet::new()))))
    }
}

impl AcpAgent {
    /// Starts a process with the agent's session, and the conversation if that session does not have it.
    async fn start(&self, call: &UpstreamCall) -> Result<(AcpProcess, Option<String>), UpstreamError> {
        let process = AgentProcess::start(&self.pool.command, &[], self.pool.line_bytes_max)?;
        let mut process = AcpProcess { process, session: String::new(), requests: 0, prompt_abilities: Value::Null };
        let client = json!({ "name": "proscenium", "version": env!("CARGO_PKG_VERSION") });
        let abilities = json!({ "elicitation": { "form": {} } });
        let offer = json!({ "protocolVersion": 1, "clientCapabilities": abilities, "clientInfo": client });
        let mut agent = self.ask(&mut process, "initialize", offer).await?;
        process.prompt_abilities = agent["agentCapabilities"]["promptCapabilities"].take();
        // An image goes as such, or as an embedded resource.
        let takes_images = ["image", "embeddedContext"].iter().any(|ability| process.prompt_abilities[*ability] == true);
        self.takes_images.store(takes_images, Ordering::Relaxed);
        // The protocol wants an absolute path.
        let directory =
            std::path::absolute(self.pool.command.directory.as_deref().unwrap_or(Path::new("."))).map_err(|error| {
                UpstreamError::new("process_not_started", format!("The agent's directory has no absolute path: {error}."))
            })?;
        let mut params = json!({ "cwd": directory, "mcpServers": [] });
        let known = memory::id(&call.memory.session, SESSION);
        if let Some(known) = known.filter(|_| agent["agentCapabilities"]["loadSession"] == true) {
            params["sessionId"] = known.into();
            // What it replays is in the log.
            if self.ask(&mut process, "session/load", params.clone()).await.is_ok() {
                known.clone_into(&mut process.session);
                return Ok((process, None));
            }
            params.as_object_mut().into_iter().for_each(|params| drop(params.shift_remove("sessionId")));
        }
        let session = self.ask(&mut process, "session/new", params).await?;
        let Some(session) = session["sessionId"].as_str() else {
            return Err(UpstreamError::new("agent_invalid_answer", "The agent's answer to session/new has no sessionId."));
        };
        session.clone_into(&mut process.session);
        Ok((process, told(&call.history)))
    }

    /// Sends a request and waits for its result. Everything else that comes meanwhile is about the connection.
    async fn ask(&self, process: &mut AcpProcess, method: &str, params: Value) -> Result<Value, UpstreamError> {
        let id = process.request(method, params, &mut Vec::new()).await?;
        loop {
            let line = process.process.next(Some(self.pool.limits.first_byte)).await?;
            let mut message = parse(&line)?;
            if let (Some(method), Some(request)) = (message["method"].as_str(), message.get("id")) {
                // No session is open yet, so no user can be asked.
                process.send(no_such_method(request, method), &mut Vec::new()).await?;
            } else if message.get("method").is_none() && message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(UpstreamError::new("agent_refused", format!("The agent refused {method}: {error}."))),
                    None => Ok(message["result"].take()),
                };
            }
        }
    }
}

/// A part of a message as a content block, of a kind that the agent takes.
fn block(part: Part<'_>, abilities: &Value) -> Result<Value, UpstreamError> {
    let file = match part {
        Part::Text(text) => return Ok(json!({ "type": "text", "text": text })),
        Part::File(file) => file,
    };
    let data = match file.content {
        FileContent::Inline(data) => data,
        FileContent::Url(url) => {
            return Ok(json!({ "type": "resource_link", "uri": url, "name": file.shown_name(), "mimeType": file.media_type }));
        }
    };
    let takes = |ability: &str| abilities.get(ability) == Some(&Value::Bool(true));
    for kind in ["image", "audio"] {
        if file.is(kind) && takes(kind) {
            return Ok(json!({ "type": kind, "mimeType": file.media_type, "data": data }));
        }
    }
    if !takes("embeddedContext") {
        return Err(refused(&file, "its promptCapabilities do not have this kind."));
    }
    let name = utf8_percent_encode(file.shown_name(), NON_ALPHANUMERIC);
    let mut resource = json!({ "uri": format!("attachment:{name}"), "mimeType": file.media_type });
    match text_of(&file) {
        Some(text) => resource["text"] = text.into(),
        None => resource["blob"] = data.into(),
    }
    Ok(json!({ "type": "resource", "resource": resource }))
}

/// The answer to a request for something that the connector does not offer.
fn no_such_method(request: &Value, method: &str) -> Value {
    let error = json!({ "code": NO_SUCH_METHOD, "message": format!("the client has no method {method}") });
    json!({ "jsonrpc": "2.0", "id": request, "error": error })
}

fn parse(line: &str) -> Result<Value, UpstreamError> {
    halves::parse(line.as_bytes()).map_err(|error| {
        UpstreamError::new(
            "endpoint_not_json",
            format!("A line of the agent is not JSON: {error}. {}", super::error::excerpt(line)),
        )
    })
}

/// A process with an open session.
struct AcpProcess {
    process: AgentProcess,
    session: String,
    /// The number of requests so far.
    requests: u64,
    /// What the agent takes in a prompt beside texts and links.
    prompt_abilities: Value,
}

impl Pooled for AcpProcess {
    fn process(&mut self) -> &mut AgentProcess {
        &mut self.process
    }
}

impl AcpProcess {
    /// Sends a request and returns its id.
    async fn request(&mut self, method: &str, params: Value, facts: &mut Vec<String>) -> Result<u64, UpstreamError> {
        let id = self.requests;
        self.requests += 1;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }), facts).await?;
        Ok(id)
    }

    async fn send(&mut self, message: Value, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        facts.push(json!({ "from": "client", "message": message }).to_string());
        self.process.write(&message).await
    }
}

/// A turn: from the prompt to its answer.
struct AcpTurn {
    pool: Arc<ProcessPool<AcpProcess>>,
    session: SessionId,
    /// `None` once the turn is over.
    process: Option<AcpProcess>,
    /// The id of the prompt.
    prompt: u64,
    /// Facts that the log does not have yet.
    facts: Vec<String>,
    /// Requests that wait for the user.
    questions: Vec<Question>,
    news: Remembered,
}

struct Question {
    request: Value,
    kind: QuestionKind,
}

enum QuestionKind {
    /// A permission with these options.
    Permission(Vec<Value>),
    /// A form (elicitation) of this schema.
    Form(Value),
}

impl Question {
    /// Whether an action of the source stands for it: its id has the session's and that of the request.
    fn is_asked_by(&self, session: &str, action: &str) -> bool {
        let id = self.request.as_str().map_or_else(|| self.request.to_string(), str::to_owned);
        action.strip_prefix(session).and_then(|rest| rest.strip_prefix(':')) == Some(id.as_str())
    }

    /// The result of the request for an answer.
    fn result(&self, reply: &ActionReply) -> Value {
        match &self.kind {
            QuestionKind::Permission(options) => json!({ "outcome": permission(options, reply) }),
            QuestionKind::Form(_) if reply.control == Control::Reject => json!({ "action": "decline" }),
            QuestionKind::Form(schema) => json!({ "action": "accept", "content": filled_in(schema, reply) }),
        }
    }

    /// The result of the request when the turn is cancelled.
    fn cancelled(&self) -> Value {
        match self.kind {
            QuestionKind::Permission(_) => json!({ "outcome": { "outcome": "cancelled" } }),
            QuestionKind::Form(_) => json!({ "action": "cancel" }),
        }
    }
}

/// The outcome of a permission: the option that the reply names, else a plain yes or no for this once.
///
/// Nothing chooses a wider option than the user did.
fn permission(options: &[Value], reply: &ActionReply) -> Value {
    let named = reply.value.as_ref().and_then(|value| value.get("optionId").and_then(Value::as_str).or_else(|| value.as_str()));
    let by_id = options.iter().find(|option| named.is_some() && option["optionId"].as_str() == named);
    let names_none = reply.value.as_ref().is_none_or(|value| value.get("optionId").is_none());
    let kind = match (&reply.control, reply.is_approved()) {
        (Control::Approve, true) => Some("allow_once"),
        (_, false) => Some("reject_once"),
        // Words are no permission.
        _ => None,
    };
    let by_kind = || options.iter().find(|option| names_none && kind.is_some_and(|kind| option["kind"] == *kind));
    match by_id.or_else(by_kind) {
        Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
        None => json!({ "outcome": "cancelled" }),
    }
}

/// The content of a form. An answer that is no object is the value of the form's first field.
fn filled_in(schema: &Value, reply: &ActionReply) -> Value {
    let first = schema["properties"].as_object().and_then(|fields| fields.keys().next());
    match (reply.value.clone().unwrap_or_default(), first) {
        (Value::Null, _) | (_, None) => json!({}),
        (Value::Object(content), _) => content.into(),
        (value, Some(field)) => json!({ field: value }),
    }
}

impl AcpTurn {
    /// Sends a message. The log gets it with the next facts, also if the caller goes away meanwhile.
    async fn send(&mut self, message: Value) -> Result<(), UpstreamError> {
        let Self { process, facts, .. } = self;
        let process = process.as_mut().ok_or_else(|| UpstreamError::cut("The turn has ended."))?;
        process.send(message, facts).await
    }

    async fn answer(&mut self, request: Value, result: Value) -> Result<(), UpstreamError> {
        self.send(json!({ "jsonrpc": "2.0", "id": request, "result": result })).await
    }

    /// Reads a message of the agent.
    async fn take(&mut self, line: &str) -> Result<(), UpstreamError> {
        let message = parse(line)?;
        // The text as it came: the log joins halves of pairs that the parsed value has lost.
        self.facts.push(format!(r#"{{"from":"agent","message":{line}}}"#));
        match (message["method"].as_str(), message.get("id")) {
            (None, Some(id)) if *id == self.prompt => {
                if let Some(process) = self.process.take() {
                    self.pool.keep(&self.session, process);
                }
            }
            (Some("session/request_permission"), Some(id)) => {
                let options = message["params"]["options"].as_array().cloned().unwrap_or_default();
                self.questions.push(Question { request: id.clone(), kind: QuestionKind::Permission(options) });
            }
            (Some("elicitation/create"), Some(id)) => {
                let schema = message["params"]["requestedSchema"].clone();
                self.questions.push(Question { request: id.clone(), kind: QuestionKind::Form(schema) });
            }
            // The connector offers nothing else.
            (Some(method), Some(id)) => {
                self.send(no_such_method(id, method)).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Upstream for AcpTurn {
    fn next(&mut self) -> Step<'_, Option<Vec<String>>> {
        async {
            if !self.facts.is_empty() {
                return Ok(Some(std::mem::take(&mut self.facts)));
            }
            // While the user decides, the agent has nothing to say.
            let limit = self.questions.is_empty().then_some(self.pool.limits.silence);
            let Some(process) = &mut self.process else { return Ok(None) };
            let line = process.process.next(limit).await?;
            self.take(&line).await?;
            Ok(Some(std::mem::take(&mut self.facts)))
        }
        .boxed()
    }

    fn cancel(&mut self) -> Step<'_, bool> {
        async {
            let session = self.process.as_ref().map(|process| process.session.clone());
            let params = json!({ "sessionId": session });
            self.send(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params })).await?;
            for question in std::mem::take(&mut self.questions) {
                let result = question.cancelled();
                self.answer(question.request, result).await?;
            }
            Ok(true)
        }
        .boxed()
    }

    fn reply<'a>(&'a mut self, reply: &'a ActionReply) -> Step<'a, bool> {
        async {
            let session = self.process.as_ref().map_or("", |process| &process.session);
            let Some(at) = self.questions.iter().position(|question| question.is_asked_by(session, reply.own_action())) else {
                return Ok(false);
            };
            let question = self.questions.remove(at);
            let result = question.result(reply);
            self.answer(question.request, result).await?;
            Ok(true)
        }
        .boxed()
    }

    fn news(&mut self) -> Remembered {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples::reply;
    use super::*;

    #[test]
    fn an_answer_is_one_of_the_offered_options() {
        let offered = |id: &str, kind: &str| json!({ "optionId": id, "name": id, "kind": kind });
        let options = vec![offered("always", "allow_always"), offered("yes", "allow_once"), offered("no", "reject_once")];
        let question = Question { request: json!(3), kind: QuestionKind::Permission(options) };
        let outcome = |control: Control, value: Value| question.result(&reply("s:3", control, value, json!({})));
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert_eq!(outcome(Control::Approve, Value::Null), selected("yes"));
        assert_eq!(outcome(Control::Reject, Value::Null), selected("no"));
        assert_eq!(outcome(Control::Answer, json!({ "optionId": "always" })), selected("always"));
        assert_eq!(outcome(Control::Approve, json!({ "optionId": "bogus" })), question.cancelled());
        assert_eq!(outcome(Control::Answer, json!("well")), question.cancelled());
        let wide = Question { request: json!(3), kind: QuestionKind::Permission(vec![offered("always", "allow_always")]) };
        assert_eq!(wide.result(&reply("s:3", Control::Approve, Value::Null, json!({}))), wide.cancelled());
        let question = Question { request: json!(3), kind: QuestionKind::Permission(vec![offered("yes", "allow_once")]) };
        assert_eq!(question.result(&reply("s:3", Control::Reject, Value::Null, json!({}))), question.cancelled());
        assert!(question.is_asked_by("session", "session:3") && !question.is_asked_by("session", "session:13"));
        assert!(!question.is_asked_by("session", "session:a:3"), "that is another request, whose id is text");
    }

    #[test]
    fn a_form_is_filled_in_declined_or_cancelled() {
        let schema =
            json!({ "type": "object", "properties": { "title": { "type": "string" }, "urgent": { "type": "boolean" } } });
        let form = Question { request: json!(0), kind: QuestionKind::Form(schema) };
        let result = |control: Control, value: Value| form.result(&reply("s:0", control, value, json!({})));
        let accepted = |content: Value| json!({ "action": "accept", "content": content });
        assert_eq!(result(Control::Answer, json!({ "title": "Fix" })), accepted(json!({ "title": "Fix" })));
        assert_eq!(result(Control::Answer, json!("Fix")), accepted(json!({ "title": "Fix" })));
        assert_eq!(result(Control::Reject, Value::Null), json!({ "action": "decline" }));
        assert_eq!(form.cancelled(), json!({ "action": "cancel" }));
    }
}
