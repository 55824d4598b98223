//! Agents of the server as agents of the Agent2Agent protocol: their cards, and their runs as tasks.
//!
//! A message without a task requests a run, whose id follows from the message's: a repeated message attaches to its
//! task. A message to a task that waits answers what it waits for. Nothing else changes a run.

mod list;
mod message;
mod push;

use super::ag_ui::{prepare, resume_position};
use super::bodies::BodyReader;
use super::requests::{self, Decision, SubmittedDecision, hashed_id};
use super::threads::Thread;
use super::{DialectStream, PendingOpening, Start, StartFuture, Started, StreamOpening, apart, body, shown_activities};
use crate::auth::rights::Verb;
use crate::control::rules::QUESTIONS;
use crate::encode::Begin;
use crate::encode::a2a::{A2a, A2aOptions, A2aVersion};
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::translator::IdPosition;
use crate::log::commit::Tail;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::Via;
use crate::model::{AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Principal, Resource, authorize, authorize_also};
use crate::serve::access::requested_run::requested_in_thread;
use crate::serve::acp::rpc::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcError};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, quoted, segment};
use crate::serve::http::response::no_store_json;
use crate::source::kind_of;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use message::Said;
use push::PushMethod;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for the end of its task before it is answered with the task as it is.
const TASK_WAIT_MAX: Duration = Duration::from_mins(5);
/// How long a cancellation waits for the end of its task before it is answered with the task as it is.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(10);
/// The most messages of the user in a task, and how many it has unless the client names another number.
const TASK_HISTORY_MAX: usize = 100;

const TASK_NOT_FOUND: i64 = -32001;
const TASK_NOT_CANCELABLE: i64 = -32002;
const UNSUPPORTED: i64 = -32004;
const CONTENT_NOT_SUPPORTED: i64 = -32005;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum A2aMethod {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Resubscribe,
    Push(PushMethod),
}

/// The methods, by their names in 0.3 and 1.0. `None`: 0.3 has none by JSON-RPC.
const METHODS: [(A2aMethod, Option<&str>, &str); 10] = [
    (A2aMethod::Send, Some("message/send"), "SendMessage"),
    (A2aMethod::Stream, Some("message/stream"), "SendStreamingMessage"),
    (A2aMethod::Get, Some("tasks/get"), "GetTask"),
    (A2aMethod::List, None, "ListTasks"),
    (A2aMethod::Cancel, Some("tasks/cancel"), "CancelTask"),
    (A2aMethod::Resubscribe, Some("tasks/resubscribe"), "SubscribeToTask"),
    (A2aMethod::Push(PushMethod::Set), Some("tasks/pushNotificationConfig/set"), "CreateTaskPushNotificationConfig"),
    (A2aMethod::Push(PushMethod::Get), Some("tasks/pushNotificationConfig/get"), "GetTaskPushNotificationConfig"),
    (A2aMethod::Push(PushMethod::List), Some("tasks/pushNotificationConfig/list"), "ListTaskPushNotificationConfigs"),
    (A2aMethod::Push(PushMethod::Delete), Some("tasks/pushNotificationConfig/delete"), "DeleteTaskPushNotificationConfig"),
];

/// Why a request is not answered: an error of the protocol, or of the connection.
enum Refusal {
    Rpc(RpcError),
    Problem(Problem),
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let code = match problem.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => TASK_NOT_FOUND,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => INVALID_PARAMS,
            StatusCode::CONFLICT => INVALID_REQUEST,
            StatusCode::GATEWAY_TIMEOUT => INTERNAL_ERROR,
            // Rights, limits and a server that cannot answer now are matters of HTTP.
            _ => return Self::Problem(problem),
        };
        Self::Rpc(RpcError::new(code, problem.detail.clone()).with(problem.to_json()))
    }
}

/// The task that a request is about, for its client.
struct Asked {
    app: Arc<App>,
    principal: Principal,
    audience: Audience,
    version: A2aVersion,
    /// The id of the JSON-RPC request.
    request: Value,
}

impl Asked {
    fn options(&self, context: &str, run: &RunId) -> A2aOptions {
        A2aOptions { version: self.version, context: context.to_owned(), task: run.to_string(), request: self.request.clone() }
    }

    fn dialect(&self, context: &str, run: &RunId, begin: Begin) -> Box<A2a> {
        Box::new(A2a::new(self.options(context, run), begin))
    }

    /// Answers with a result, whose bodies are in their places: those of these runs.
    fn respond(&self, runs: Vec<RunId>, result: Value) -> Response {
        let answer = json!({ "jsonrpc": "2.0", "id": self.request, "result": result });
        BodyReader::new(&self.app, self.audience, runs).respond(answer)
    }

    /// The task as it is now.
    async fn task(&self, context: &str, run: &RunId, history: usize) -> Result<Value, Problem> {
        let shown = shown_activities(&self.app, run, self.audience, None).await?;
        let options = self.options(context, run);
        Ok(apart(&self.app, move || options.task(&shown, history)).await)
    }
}

/// `GET /a2a/{agent}/.well-known/agent-card.json`
pub async fn card(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let agent: AgentId = segment("agentId", &uri, 2)?;
    let host = uri.authority().map(http::uri::Authority::as_str);
    let host = host.or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or("localhost");
    let forwarded = headers.get("x-forwarded-proto").and_then(|scheme| scheme.to_str().ok());
    let is_https = app.is_https || forwarded == Some("https");
    let path = uri.path().trim_end_matches(CARD).to_owned();
    let url = format!("{}://{host}{path}", if is_https { "https" } else { "http" });
    let text = ["text/plain", "application/json"];
    let any = [&text[..], &["*/*"]].concat();
    let interface = |version: &str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version });
    let mut card = json!({
        "name": agent,
        "description": format!("The agent {agent}, behind Proscenium."),
        "version": env!("CARGO_PKG_VERSION"),
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "supportedInterfaces": [interface("1.0"), interface("0.3")],
        "capabilities": { "streaming": true, "pushNotifications": true },
        "defaultInputModes": any,
        "defaultOutputModes": text,
        "skills": [{ "id": agent, "name": agent, "description": format!("Talk to {agent}."), "tags": ["agent"] }],
    });
    if !authorization.principal().is_anonymous() {
        card["securitySchemes"] = json!({ "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        card["securityRequirements"] = json!([{ "schemes": { "bearer": { "list": [] } } }]);
    }
    Ok(no_store_json(card))
}

/// What follows an agent's address in that of its card.
const CARD: &str = "/.well-known/agent-card.json";

/// `POST /a2a/{agent}`
pub async fn call(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent: AgentId = segment("agentId", &head.uri, 2)?;
    let audience = Query::from_uri(&head.uri).audience()?;
    let after = resume_position(&head.headers, None)?;
    let mut call = match body::object(&app, &head.headers, body).await {
        Ok(call) => call,
        Err(problem) if matches!(problem.code, "not_json" | "not_an_object" | "too_deep") => {
            let code = if problem.code == "not_json" { PARSE_ERROR } else { INVALID_REQUEST };
            return Ok(failed(&Value::Null, RpcError::new(code, problem.detail.clone()).with(problem.to_json())));
        }
        Err(problem) => return Err(problem),
    };
    let id = call.shift_remove("id").unwrap_or_default();
    let answered = answer(app, authorization, &agent, audience, after, id.clone(), call).await;
    match answered {
        Ok(response) => Ok(response),
        Err(Refusal::Rpc(error)) => Ok(failed(&id, error)),
        Err(Refusal::Problem(problem)) => Err(problem),
    }
}

fn failed(id: &Value, RpcError { code, message, data }: RpcError) -> Response {
    let error = json!({ "code": code, "message": message, "data": data });
    no_store_json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

async fn answer(
    app: Arc<App>,
    authorization: Authorization,
    agent: &AgentId,
    audience: Audience,
    after: Option<DialectCursor>,
    request: Value,
    mut call: Map<String, Value>,
) -> Result<Response, Refusal> {
    if !matches!(request, Value::Null | Value::Number(_) | Value::String(_)) || call.get("jsonrpc") != Some(&"2.0".into()) {
        let detail =
            "The body is no request of JSON-RPC 2.0: it needs \"jsonrpc\": \"2.0\", and an id that is a string or a number.";
        return Err(RpcError::new(INVALID_REQUEST, detail).into());
    }
    let name = call.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (method, version) = method_of(&name)?;
    let params = match call.shift_remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(other) => return Err(wrong("params", kind_of(&other), "an object")),
    };
    let asked = Asked { app, principal: authorization.principal().clone(), audience, version, request };
    match method {
        A2aMethod::Send | A2aMethod::Stream => {
            let authorization =
                authorize_also(&asked.app, authorization, Verb::Control, Resource::Agent(agent), Some(audience)).await?;
            send(asked, authorization, agent, params, method == A2aMethod::Stream).await
        }
        A2aMethod::Get => {
            let (run, context, tail) = find_task(&asked, &params, "id", Verb::Read).await?;
            let result = match tail {
                Some(_) => asked.task(&context, &run, history_of(&params)?).await?,
                None => asked.options(&context, &run).requested(false),
            };
            Ok(asked.respond(vec![run], result))
        }
        A2aMethod::List => list::answer(&asked, agent, &params).await,
        A2aMethod::Cancel => cancel(asked, authorization, &params).await,
        A2aMethod::Push(method) => {
            let result = push::answer(&asked, &authorization, method, &params).await?;
            Ok(no_store_json(json!({ "jsonrpc": "2.0", "id": asked.request, "result": result })))
        }
        A2aMethod::Resubscribe => {
            let (run, context, tail) = find_task(&asked, &params, "id", Verb::Read).await?;
            let dialect = asked.dialect(&context, &run, Begin::Snapshot);
            let Asked { app, principal, audience, .. } = asked;
            if tail.is_none() {
                let thread = context.parse().map_err(|_| not_found(run.as_str()))?;
                let start = super::ag_ui::await_run(&app, &principal, &thread, run, audience);
                let opening = PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect };
                return Ok(DialectStream::after(&app, authorization, opening).await?.respond(&[]));
            }
            let authorization = authorize(&app, &principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
            let (ids, earlier) = (IdPosition::Last, Vec::new());
            let opening = StreamOpening { run, audience, after, replay: false, ids, earlier, dialect };
            Ok(DialectStream::open(&app, authorization, opening).await?.respond(&[]))
        }
    }
}

/// The method of this name, and the version that it belongs to.
fn method_of(name: &str) -> Result<(A2aMethod, A2aVersion), RpcError> {
    for (method, old, new) in METHODS {
        if old == Some(name) {
            return Ok((method, A2aVersion::V03));
        }
        if name == new {
            return Ok((method, A2aVersion::V10));
        }
    }
    let known = METHODS.iter().flat_map(|(_, old, new)| old.iter().chain([new]).copied()).collect::<Vec<_>>().join(", ");
    Err(RpcError::new(METHOD_NOT_FOUND, format!("The method {} is not served. The methods are {known}.", quoted(name))))
}

/// A member that is something else than it must be.
fn wrong(member: &str, found: &str, expected: &str) -> Refusal {
    RpcError::params(member, format!("{member} is {found}. It must be {expected}.")).into()
}

/// How many messages of the user the client wants.
fn history_of(params: &Map<String, Value>) -> Result<usize, Refusal> {
    match params.get("historyLength") {
        None | Some(Value::Null) => Ok(TASK_HISTORY_MAX),
        Some(length) => match length.as_u64() {
            Some(length) => Ok(usize::try_from(length).unwrap_or(usize::MAX).min(TASK_HISTORY_MAX)),
            None => Err(wrong("historyLength", kind_of(length), "a number from 0 on")),
        },
    }
}

fn not_found(task: &str) -> RpcError {
    RpcError::new(TASK_NOT_FOUND, format!("No task has the id {}, or it is not yours.", quoted(task)))
}

/// The run of the task that a member names, its context, and its state; no state if it was requested and is not written.
///
/// A task that the client may not see gets the answer of one that does not exist.
async fn find_task(
    asked: &Asked,
    params: &Map<String, Value>,
    member: &str,
    verb: Verb,
) -> Result<(RunId, String, Option<Tail>), Refusal> {
    let name = match params.get(member) {
        Some(Value::String(name)) => name,
        other => return Err(wrong(member, other.map_or("missing", kind_of), "the id of a task")),
    };
    let run = RunId::new(name).map_err(|_| not_found(name))?;
    let (app, principal, audience) = (&asked.app, &asked.principal, Some(asked.audience));
    let hidden = |problem: Problem| match problem.status {
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND if problem.members.get("missing") != Some(&verb.as_str().into()) => {
            Refusal::from(not_found(name))
        }
        _ => problem.into(),
    };
    authorize(app, principal, verb, Resource::RequestedRun(&run), audience).await.map_err(hidden)?;
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() {
        let thread = requested_in_thread(app, &run).ok_or_else(|| not_found(name))?;
        return Ok((run, thread.to_string(), None));
    }
    authorize(app, principal, verb, Resource::Run(&run), audience).await.map_err(hidden)?;
    let context = tail.summary.session_id.as_ref().map_or(run.as_str(), SessionId::as_str).to_owned();
    Ok((run, context, Some(tail)))
}

/// Whether a client waits for the end of its task.
fn is_blocking(params: &Map<String, Value>) -> bool {
    let configuration = params.get("configuration");
    let flag = |member: &str| configuration.and_then(|of| of[member].as_bool());
    flag("blocking").unwrap_or(true) && !flag("returnImmediately").unwrap_or(false)
}

/// Answers a message: it begins a task, or answers what a task waits for.
async fn send(
    asked: Asked,
    authorization: Authorization,
    agent: &AgentId,
    mut params: Map<String, Value>,
    streams: bool,
) -> Result<Response, Refusal> {
    let said = Said::read(&mut params)?;
    let configuration = params.get("configuration").and_then(Value::as_object).cloned().unwrap_or_default();
    let (history, push) = (history_of(&configuration)?, push::of_message(&asked, &configuration)?);
    let (app, audience) = (asked.app.clone(), asked.audience);
    let ((authorization, context, run, start), begin) = match said.task.clone() {
        None => (begin_task(&asked, authorization, agent, said, push).await?, Begin::Replay),
        Some(task) => (continue_task(&asked, authorization, &task, said, push).await?, Begin::Snapshot),
    };
    if streams || is_blocking(&params) {
        let dialect = asked.dialect(&context, &run, begin);
        let opening = PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect };
        let stream = DialectStream::after(&app, authorization, opening).await?;
        if streams {
            return Ok(stream.respond(&[]));
        }
        // After that time the client gets the task as it is, and asks again.
        if let Ok(failed) = tokio::time::timeout(TASK_WAIT_MAX, read_to_pause(stream)).await {
            failed?;
        }
    }
    let is_written = app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_some();
    let task = match is_written {
        true => asked.task(&context, &run, history).await?,
        false => asked.options(&context, &run).requested(false),
    };
    // In 1.0 a member says whether the answer is a task or a message.
    let result = if asked.version == A2aVersion::V10 { json!({ "task": task }) } else { task };
    Ok(asked.respond(vec![run], result))
}

/// Reads the stream of a task until the task ends or waits.
///
/// # Errors
/// Why the stream failed.
async fn read_to_pause(mut stream: DialectStream) -> Result<(), Refusal> {
    let mut last = Bytes::new();
    while let Some(part) = stream.next().await {
        last = part.map_err(|_| Problem::stopping())?;
    }
    // A stream that fails says so in its last event.
    let mut events = last.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
    let failed = events.next_back().and_then(|event| serde_json::from_slice::<Value>(event).ok());
    match failed.and_then(|mut event| RpcError::from_json(event["error"].take())) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

type Ready = (Authorization, String, RunId, StartFuture);

/// Requests the run of a new task, once.
async fn begin_task(
    asked: &Asked,
    authorization: Authorization,
    agent: &AgentId,
    said: Said,
    push: Option<Map<String, Value>>,
) -> Result<Ready, Refusal> {
    let (app, audience) = (&asked.app, asked.audience);
    let by = authorization.requester(audience, Via::A2a);
    let sub = by.decider.sub.clone().unwrap_or_default();
    let context = match &said.context {
        Some(context) => context.clone(),
        None => SessionId::new(&hashed_id(&["a2a", agent.as_str(), &said.id, &sub])).expect("hexadecimal digits are an id"),
    };
    let authorization = authorize_also(app, authorization, Verb::Control, Resource::Thread(&context), Some(audience)).await?;
    let authorization = authorize_also(app, authorization, Verb::Read, Resource::Thread(&context), Some(audience)).await?;
    let run = hashed_id(&["a2a", agent.as_str(), context.as_str(), &said.id, &sub]);
    let run = RunId::new(&run).expect("hexadecimal digits are an id");
    let thread = Thread::find(app, &context).await?;
    // First, so that nothing of the task happens before.
    if let Some(push) = push {
        push::save(asked, &authorization, &run, &push).await?;
    }
    let is_written = app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_some();
    // A message that is sent again has its files in the session already.
    if !is_written && requested_in_thread(app, &run).is_none() {
        app.disk.check_space()?;
        let message = said.into_message(app, &thread.id, &by).await?;
        let sent = json!({ "protocol": "a2a", "threadId": thread.id, "runId": run });
        let value = requests::value_of(Map::new(), sent, vec![message]);
        requests::send(app, &thread.id, &run, agent, value, &by).await?;
    }
    let (app, principal, named) = (app.clone(), asked.principal.clone(), run.clone());
    let start = Box::pin(async move {
        let run = requests::wait_until_written(&app, thread.id.clone(), named).await?;
        prepare(&app, &principal, &thread.id, run, audience, true).await.map(Start::Run)
    });
    Ok((authorization, context.to_string(), run, start))
}

/// Answers what a task waits for.
async fn continue_task(
    asked: &Asked,
    authorization: Authorization,
    task: &str,
    said: Said,
    push: Option<Map<String, Value>>,
) -> Result<Ready, Refusal> {
    let (app, audience) = (&asked.app, asked.audience);
    if !said.files.is_empty() {
        let detail = "message.parts has files. An answer has none: send them in a message without a taskId, in the same context.";
        return Err(RpcError::new(CONTENT_NOT_SUPPORTED, detail).with(json!({ "member": "message.parts" })).into());
    }
    let named = Map::from_iter([("message.taskId".to_owned(), Value::from(task))]);
    let (run, context, tail) = find_task(asked, &named, "message.taskId", Verb::Control).await?;
    if said.context.as_ref().is_some_and(|named| named.as_str() != context) {
        return Err(wrong("message.contextId", "that of another task", &format!("missing, or {context}")));
    }
    let status = tail.map(|tail| tail.summary.run_for(audience).status);
    if status.is_none_or(crate::source::ledger::Status::is_end) {
        let detail = format!("Task {run} takes no message: it has ended, or has not begun. Send the message without a taskId.");
        return Err(RpcError::new(UNSUPPORTED, detail).into());
    }
    let thread = context.parse().map_err(|_| not_found(task))?;
    let thread = Thread::of_session(app, &thread).await?;
    let known = thread.asked(app, Some(&run), audience).await?;
    let pending: Vec<_> = known.iter().filter(|(_, asked)| asked.run == run && asked.is_pending).collect();
    if pending.is_empty() {
        let detail = format!("Task {run} waits for nothing. Send the message without a taskId, in the same context.");
        return Err(RpcError::new(UNSUPPORTED, detail).into());
    }
    let decisions = if said.data.is_empty() {
        match pending[..] {
            [(action, of)] if of.kind.as_deref().is_some_and(|kind| QUESTIONS.contains(&kind)) => {
                let action = action.parse().map_err(|_| not_found(action))?;
                vec![Decision { action, version: None, is_answered: true, is_output: false, value: Some(said.text.into()) }]
            }
            _ => {
                let detail = format!(
                    "Task {run} waits for a decision, which words do not give. Send a data part such as {}, with the id of one \
                     of the interrupts of its status.",
                    json!({ "interruptId": "…", "status": "resolved", "payload": { "approved": true } })
                );
                return Err(RpcError::params("message.parts", detail).into());
            }
        }
    } else {
        requests::decisions(&said.data)?
    };
    if let Some(push) = push {
        push::save(asked, &authorization, &run, &push).await?;
    }
    let by = authorization.requester(audience, Via::A2a);
    let mut decided: Vec<SubmittedDecision> = Vec::with_capacity(decisions.len());
    for decision in &decisions {
        let Some(of) = known.get(decision.action.as_str()).filter(|of| of.run == run) else {
            let detail = format!("Task {run} asked nothing by the interrupt {}. Get the task again.", decision.action);
            return Err(RpcError::params("message.parts", detail).into());
        };
        decided.push(requests::decide(app, of, decision, &[&said.id], &by).await?);
    }
    let (app, principal, session, named) = (app.clone(), asked.principal.clone(), thread.id, run.clone());
    let start = Box::pin(async move {
        let run = requests::wait_until_resumed(&app, decided, named, audience).await?;
        let started = prepare(&app, &principal, &session, run, audience, false).await?;
        Ok(Start::Run(Started { earlier: None, ..started }))
    });
    Ok((authorization, context, run, start))
}

/// Asks the owner of a task's run to stop it, or withdraws its request.
async fn cancel(asked: Asked, authorization: Authorization, params: &Map<String, Value>) -> Result<Response, Refusal> {
    let (app, audience) = (&asked.app, asked.audience);
    let (run, context, tail) = find_task(&asked, params, "id", Verb::Control).await?;
    let by = authorization.requester(audience, Via::A2a);
    let session = context.parse::<SessionId>().map_err(|_| not_found(run.as_str()))?;
    let ended = || RpcError::new(TASK_NOT_CANCELABLE, format!("Task {run} has ended."));
    let Some(tail) = tail else {
        let id = requests::send_id(&session, &run);
        return match app.controls.withdraw(&app.logs, &app.ingest, &LogId::Session(session), &id).await.map_err(Problem::from)? {
            true => {
                let task = asked.options(&context, &run).requested(true);
                Ok(asked.respond(vec![run], task))
            }
            false => Err(ended().into()),
        };
    };
    let thread = Thread::of_session(app, &session).await?;
    let is_over = |tail: &Tail| tail.summary.run_for(audience).status.is_end();
    // A stop without a run at work would stop another run of the thread.
    if is_over(&tail) || thread.find_run(&run).is_none_or(|part| part.frozen.is_some() || is_over(&part.tail)) {
        return Err(ended().into());
    }
    requests::stop(app, &thread, Some(&run), &by).await?;
    let read = authorize(app, &asked.principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
    let (dialect, ids, earlier) = (asked.dialect(&context, &run, Begin::Snapshot), IdPosition::Last, Vec::new());
    let opening = StreamOpening { run: run.clone(), audience, after: None, replay: false, ids, earlier, dialect };
    let stream = DialectStream::open(app, read, opening).await?;
    if let Ok(failed) = tokio::time::timeout(CANCEL_WAIT_MAX, read_to_pause(stream)).await {
        failed?;
    }
    let task = asked.task(&context, &run, TASK_HISTORY_MAX).await?;
    Ok(asked.respond(vec![run], task))
}
