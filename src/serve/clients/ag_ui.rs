//! AG-UI over HTTP.
//!
//! `POST /ag-ui/{agent}` runs, attaches and resumes. `GET` loads a thread or joins a run (`TanStack` AI).
//!
//! A post never runs anything twice. Its `runId` names the run. An existing or already requested run is attached to;
//! only an unknown run is requested. A new question under the id of a known run is refused. Disconnecting does not end
//! the run.

use super::bodies::BodyReader;
use super::branching::{Leave, branch_off, take_head};
use super::requests::{self, AsideOutcome, Decision};
use super::tanstack::{self, TanStack};
use super::threads::{RUNS_MAX, ShownRun, Thread, frozen_runs};
use super::{DialectStream, PendingOpening, Start, StartFuture, Started, StreamOpening, apart, body, shown_activities};
use crate::auth::rights::Verb;
use crate::control::Requester;
use crate::control::aside::Aside;
use crate::encode::ag_ui::adapted::AdaptedAgUi;
use crate::encode::ag_ui::{AgUi, AgUiOptions, interrupts, messages, state, text_of};
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::frames::{ActivityView, Frame};
use crate::encode::translator::{IdPosition, PlainDialect};
use crate::encode::{Begin, Until};
use crate::log::LogId;
use crate::log::commit::Tail;
use crate::model::decided_by::Via;
use crate::model::{AgentId, Audience, Cursor, RunId, Sequence, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Principal, Resource, authorize, authorize_also};
use crate::serve::access::requested_run::requested_in_thread;
use crate::serve::api::stream::HEADERS;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, segment};
use crate::serve::http::response::echo;
use crate::source::ledger::Status;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The protocol's name in the messages to the agent.
const PROTOCOL: &str = "ag-ui";

/// A client's request: AG-UI's `RunAgentInput`, read leniently.
pub(super) struct RunInput {
    pub thread: SessionId,
    pub run: RunId,
    pub messages: Vec<Value>,
    pub decisions: Vec<Decision>,
    pub is_v1: bool,
    /// All other members.
    pub rest: Map<String, Value>,
}

impl RunInput {
    /// Reads a body. `named`: the run's id, if the body does not give it.
    ///
    /// # Errors
    /// 422 that names the member.
    pub fn read(mut body: Map<String, Value>, named: Option<RunId>) -> Result<Self, Problem> {
        let read = Self {
            thread: body::id(&body, "threadId")?,
            run: match named {
                Some(run) => run,
                None => body::id(&body, "runId")?,
            },
            messages: body::take_objects(&mut body, "messages")?,
            decisions: requests::decisions(&body::take_objects(&mut body, "resume")?)?,
            is_v1: is_v1(&body),
            rest: Map::new(),
        };
        for member in ["threadId", "runId"] {
            body.shift_remove(member);
        }
        Ok(Self { rest: body, ..read })
    }
}

/// Returns whether the client speaks AG-UI 1.0, by its body.
pub(super) fn is_v1(body: &Map<String, Value>) -> bool {
    body.get("protocolVersion").and_then(Value::as_str).is_some_and(|version| version.starts_with("1."))
}

/// How a client wants its stream.
pub(super) struct ClientOptions {
    pub audience: Audience,
    pub ids: IdPosition,
    /// Whether it understands sub-agent events.
    pub subagents: bool,
    pub via: Via,
    /// Its position in the run that it requests.
    pub after: Option<DialectCursor>,
}

impl ClientOptions {
    /// Reads the options from the query and the headers.
    ///
    /// # Errors
    /// 400 for an invalid value.
    pub fn from_request(query: &Query, headers: &HeaderMap) -> Result<Self, Problem> {
        let (audience, subagents) = (query.audience()?, query.is_set("subagents"));
        let ids = if headers.contains_key(RUN_ID) { IdPosition::First } else { IdPosition::Last };
        let via = if ids == IdPosition::First { Via::Tanstack } else { Via::AgUi };
        Ok(Self { audience, ids, subagents, via, after: resume_position(headers, None)? })
    }

    /// Returns whether the client is `TanStack` AI.
    fn is_tanstack(&self) -> bool {
        self.ids == IdPosition::First
    }

    fn dialect(&self, thread: &str, run: &RunId, begin: Begin, is_v1: bool, messages: Vec<Value>) -> Box<dyn PlainDialect> {
        let (thread, run, until) = (thread.to_owned(), run.to_string(), Until::Pause);
        let subagents = self.subagents || is_v1;
        let dialect = AgUi::new(AgUiOptions { thread, run, begin, until, is_v1, subagents, messages });
        match self.is_tanstack() {
            true => Box::new(AdaptedAgUi::of(dialect, TanStack)),
            false => Box::new(dialect),
        }
    }

    /// How a client joins an existing run: `TanStack` AI wants its events from the start.
    fn begin_mode(&self) -> Begin {
        if self.is_tanstack() { Begin::Replay } else { Begin::Snapshot }
    }
}

/// The header in which `TanStack` sends the run's id.
const RUN_ID: &str = "x-run-id";

/// The client's position, by its header or its URL. `None`: the start.
pub(super) fn resume_position(headers: &HeaderMap, offset: Option<&str>) -> Result<Option<DialectCursor>, Problem> {
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    match header.or(offset) {
        None | Some("" | "-1" | "start") => Ok(None),
        Some(text) => crate::serve::http::request::cursor("offset", text).map(Some),
    }
}

/// `POST /ag-ui/{agent}`
pub async fn post(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent = segment("agentId", &head.uri, 2)?;
    let options = ClientOptions::from_request(&Query::from_uri(&head.uri), &head.headers)?;
    let named = head.headers.get(RUN_ID).and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let named = named.map(|id| id_of("X-Run-Id", id)).transpose()?;
    let input = RunInput::read(body::object(&app, &head.headers, body).await?, named)?;
    run(&app, authorization, &agent, input, options).await
}

/// Answers a `RunAgentInput`.
pub(super) async fn run(
    app: &Arc<App>,
    authorization: Authorization,
    agent: &AgentId,
    input: RunInput,
    options: ClientOptions,
) -> Result<Response, Problem> {
    let (id, audience) = (input.thread.clone(), options.audience);
    let principal = authorization.principal().clone();
    let authorization = authorize_also(app, authorization, Verb::Control, Resource::Thread(&id), Some(audience)).await?;
    let authorization = authorize_also(app, authorization, Verb::Read, Resource::Thread(&id), Some(audience)).await?;
    let by = authorization.requester(audience, options.via);
    let thread = Thread::find(app, &id).await?;
    let existing_run = existing_run(app, &principal, &id, &input.run, audience).await?;

    if existing_run.is_some() && input.decisions.is_empty() && options.after.is_none() {
        check_asks_nothing_new(app, &thread, &input, audience).await?;
    }
    let decided = submit_decisions(app, &thread, &input, existing_run.is_some(), &by).await?;
    // A run that can be streamed at once: the named run, or the run of the client's cursor.
    let resumed = decided.last().filter(|_| options.after.is_some() && !is_of_run(options.after, existing_run.as_ref()));
    let run_to_attach = existing_run
        .as_ref()
        .filter(|_| decided.is_empty() || is_of_run(options.after, existing_run.as_ref()))
        .map(|_| &input.run);
    if let Some(run) = resumed.map(|decision| &decision.run).or(run_to_attach).cloned() {
        let authorization = authorize(app, &principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
        let dialect = options.dialect(id.as_str(), &input.run, options.begin_mode(), input.is_v1, input.messages);
        let (after, ids, earlier) = (options.after, options.ids, thread.other_runs(&run));
        let opening = StreamOpening { run, audience, after, replay: false, ids, earlier, dialect };
        return Ok(DialectStream::open(app, authorization, opening).await?.respond(&[]));
    }
    let begin = if decided.is_empty() { Begin::Replay } else { options.begin_mode() };
    let is_tanstack = options.is_tanstack();
    let dialect = options.dialect(id.as_str(), &input.run, begin, input.is_v1, input.messages.clone());
    let named = input.run.clone();
    let mut thread = thread;
    if decided.is_empty() {
        if let Some(leave) = leave(app, &thread, &input, audience).await? {
            thread = branch_off(app, thread, leave, &named, &by).await?;
        }
        let value = send_value(app, &thread, input, audience).await?;
        let is_aside = Aside::of(Some(&value)).is_some();
        let from = app.logs.log(&LogId::Session(thread.id.clone())).await?.tail().last;
        requests::send(app, &thread.id, &named, agent, value, &by).await?;
        take_head(app, &thread, &by).await?;
        if is_aside {
            let start = answer_aside(app, &principal, &thread.id, named, audience, from);
            let opening = PendingOpening { start, audience, ids: options.ids, meanwhile: None, dialect };
            return Ok(DialectStream::after(app, authorization, opening).await?.respond(&[]));
        }
    }
    let session = thread.id;
    let start = {
        let app = app.clone();
        Box::pin(async move {
            if decided.is_empty() {
                let run = requests::wait_until_written(&app, session.clone(), named).await?;
                return prepare(&app, &principal, &session, run, audience, true).await.map(Start::Run);
            }
            let actions: Vec<_> = decided.iter().map(|decision| decision.action.clone()).collect();
            let run = requests::wait_until_resumed(&app, decided, named, audience).await?;
            let started = prepare(&app, &principal, &session, run, audience, false).await?;
            // This client keeps the messages that it has.
            let paused = if is_tanstack { requests::paused_at(&app, &started.run, &actions).await? } else { None };
            Ok(Start::Run(Started { after: paused, ..started }))
        })
    };
    let opening = PendingOpening { start, audience, ids: options.ids, meanwhile: None, dialect };
    Ok(DialectStream::after(app, authorization, opening).await?.respond(&[]))
}

/// Where a request leaves the thread: it names an older run as the parent of its run, or edits a message of the user.
async fn leave(app: &App, thread: &Thread, input: &RunInput, audience: Audience) -> Result<Option<Leave>, Problem> {
    let parent = input.rest.get("parentRunId").and_then(Value::as_str);
    if let Some(leave) = parent.and_then(|parent| Leave::after_older_run(thread, parent, audience)) {
        return Ok(Some(leave));
    }
    let last = input.messages.last().filter(|last| last["role"] == "user");
    let last = last.filter(|last| last["content"].is_string() || last["content"].is_array());
    let Some((id, last)) = last.and_then(|last| Some((last["id"].as_str()?, last))) else { return Ok(None) };
    Leave::before_edited(app, thread, id, &text_of(last), audience).await
}

/// Returns whether a position belongs to this run.
fn is_of_run(cursor: Option<DialectCursor>, run: Option<&Tail>) -> bool {
    cursor.is_some_and(|cursor| run.is_some_and(|tail| tail.epoch == Some(cursor.cursor.epoch)))
}

/// The tail of the run that a client names in a thread. `None`: the run does not exist.
async fn existing_run(
    app: &App,
    principal: &Principal,
    thread: &SessionId,
    run: &RunId,
    audience: Audience,
) -> Result<Option<Tail>, Problem> {
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() {
        return Ok(None);
    }
    authorize(app, principal, Verb::Read, Resource::Run(run), Some(audience)).await?;
    match &tail.summary.session_id {
        Some(session) if app.logs.sessions().root_of(session) != app.logs.sessions().root_of(thread) => {
            let detail = format!("Run {run} belongs to thread {session}, not to thread {thread}. Use another run id.");
            Err(Problem::new(StatusCode::CONFLICT, "run_of_another_thread", detail).with("member", "runId"))
        }
        _ => Ok(Some(tail)),
    }
}

/// Refuses a new question under the id of a run that exists: the client would get the old answer, and the agent nothing.
///
/// The same request again is no new question; `TanStack` sends it to resume. A run whose runtime records no message of
/// the user does not tell, and is attached to.
async fn check_asks_nothing_new(app: &App, thread: &Thread, input: &RunInput, audience: Audience) -> Result<(), Problem> {
    let Some(last) = input.messages.last().filter(|message| message["role"] == "user") else { return Ok(()) };
    let is_v1 = input.is_v1;
    let shown = shown_activities(app, &input.run, audience, None).await?;
    let mut said = apart(app, move || messages(&shown, is_v1)).await;
    said.retain(|message| message["role"] == "user");
    let asked = text_of(last);
    let is_same = |message: &Value| message["id"] == last["id"] || text_of(message) == asked;
    if said.is_empty() || said.iter().any(is_same) {
        return Ok(());
    }
    let shown = thread.shown_activities(app, audience).await?;
    let of_thread = apart(app, move || messages(&shown, is_v1)).await;
    if of_thread.iter().any(|message| message["id"] == last["id"]) {
        return Ok(());
    }
    Err(requests::run_exists(&input.run))
}

/// Submits the client's decisions.
async fn submit_decisions(
    app: &App,
    thread: &Thread,
    input: &RunInput,
    is_known: bool,
    by: &Requester,
) -> Result<Vec<requests::SubmittedDecision>, Problem> {
    if input.decisions.is_empty() {
        return Ok(Vec::new());
    }
    let actions_asked = thread.asked(app, None, by.audience).await?;
    let mut asked = Vec::with_capacity(input.decisions.len());
    for decision in &input.decisions {
        let refuse = |why: &str| {
            let action = &decision.action;
            let detail = format!("{why} of thread {} asked by interrupt {action}. Reload the thread.", thread.name);
            let problem = Problem::new(StatusCode::CONFLICT, "action_not_pending", detail);
            problem.with("member", "interruptId").with("interruptId", action.as_str())
        };
        match actions_asked.get(decision.action.as_str()) {
            Some(of) if of.is_ambiguous => return Err(refuse("Several runs, with different questions,")),
            Some(of) => asked.push((of, decision)),
            None if is_known => {}
            None => return Err(refuse("No run")),
        }
    }
    let mut submitted = Vec::with_capacity(asked.len());
    for (of, decision) in asked {
        let request = [thread.id.as_str(), input.run.as_str()];
        submitted.push(requests::decide(app, of, decision, &request, by).await?);
    }
    Ok(submitted)
}

/// The value of the `send` that requests a new run.
async fn send_value(app: &App, thread: &Thread, input: RunInput, audience: Audience) -> Result<Value, Problem> {
    let shown = thread.shown_activities(app, audience).await?;
    // The agent knows a branch by its own id.
    let session = thread.id.clone();
    let value = move || {
        let known = requests::known_ids(&shown, &messages(&shown, input.is_v1));
        let new_messages = requests::new_messages(&input.messages, &known);
        let sent = json!({ "protocol": PROTOCOL, "threadId": session, "runId": input.run });
        requests::value_of(input.rest, sent, new_messages)
    };
    Ok(apart(app, value).await)
}

/// Describes a run that exists by now.
pub(super) async fn prepare(
    app: &App,
    principal: &Principal,
    thread: &SessionId,
    run: RunId,
    audience: Audience,
    replay: bool,
) -> Result<Started, Problem> {
    let authorization = authorize(app, principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
    let earlier = Some(Thread::of_session(app, thread).await?.other_runs(&run));
    Ok(Started { run, authorization, after: None, replay, earlier })
}

/// `GET /ag-ui/{agent}`: a live run, or a stored thread.
pub async fn get(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let query = Query::from_uri(&uri);
    let run = query.get("runId").map(|run| id_of::<RunId>("runId", run)).transpose()?;
    let thread = query.get("threadId").map(|thread| id_of::<SessionId>("threadId", thread)).transpose()?;
    let offset = query.get("last_event_id").or(query.get("offset"));
    let options = ClientOptions {
        // Only `TanStack` AI asks so.
        ids: if query.get("offset").is_some() { IdPosition::First } else { IdPosition::Last },
        after: resume_position(&headers, offset)?,
        ..ClientOptions::from_request(&query, &HeaderMap::new())?
    };
    let (limit, before) = (query.page_size()?, query.get("before").filter(|before| !before.is_empty()));
    match (run, thread) {
        (Some(run), thread) => join(&app, authorization, run, thread, options).await,
        (None, Some(thread)) => {
            let thread = Thread::find(&app, &thread).await?;
            let answer = hydrate(&app, &thread, options.audience, limit, before).await?;
            let runs = all_runs(&app, &thread).await?.into_iter().map(|(_, shown)| shown.run).collect();
            Ok(BodyReader::new(&app, options.audience, runs).respond(echo(&query, answer)))
        }
        (None, None) => {
            let detail = "The query has no threadId to load and no runId to join. Send one of them.";
            Err(Problem::bad_request("bad_query", detail).with("member", "threadId"))
        }
    }
}

/// Joins a run. A requested run is waited for; an unknown run has no events.
async fn join(
    app: &Arc<App>,
    authorization: Authorization,
    run: RunId,
    thread: Option<SessionId>,
    options: ClientOptions,
) -> Result<Response, Problem> {
    let (principal, audience) = (authorization.principal().clone(), options.audience);
    let Tail { epoch, summary, last, .. } = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    let Some(epoch) = epoch else {
        let Some(id) = requested_in_thread(app, &run) else { return Ok((HEADERS, Body::empty()).into_response()) };
        // An empty history makes the dialect send an event at once: this client gives up soon without one.
        let meanwhile = Some(Vec::new());
        let dialect = options.dialect(id.as_str(), &run, options.begin_mode(), false, Vec::new());
        let start = await_run(app, &principal, &id, run, audience);
        let opening = PendingOpening { start, audience, ids: options.ids, meanwhile, dialect };
        return Ok(DialectStream::after(app, authorization, opening).await?.respond(&[]));
    };
    // The rule for requested runs only holds while the run does not exist.
    let authorization = authorize(app, &principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
    let end = Cursor { epoch, after: last, knows_end: true };
    if options.after.is_some_and(|after| after.cursor == end) {
        return Ok((HEADERS, Body::empty()).into_response());
    }
    // The state now, then every change: so each event has the same id for all readers.
    let after = options.after.unwrap_or(DialectCursor::before_state(Cursor::at(epoch, last)));
    // A client knows the head of its thread by the id of the thread.
    let known_as = thread.as_ref().filter(|thread| Some(&app.logs.sessions().head_of(thread)) == summary.session_id.as_ref());
    let name = known_as.or(summary.session_id.as_ref()).or(thread.as_ref()).map(SessionId::as_str);
    let name = name.or(summary.thread_id.as_ref().map(ThreadId::as_str)).unwrap_or(run.as_str()).to_owned();
    let earlier = match &summary.session_id {
        Some(session) => Thread::of_session(app, session).await?.other_runs(&run),
        None => Vec::new(),
    };
    let dialect = options.dialect(&name, &run, options.begin_mode(), false, Vec::new());
    let (after, ids) = (Some(after), options.ids);
    let opening = StreamOpening { run, audience, after, replay: true, ids, earlier, dialect };
    Ok(DialectStream::open(app, authorization, opening).await?.respond(&[]))
}

/// Waits for a requested run, for a client that has been shown its thread.
pub(super) fn await_run(
    app: &Arc<App>,
    principal: &Principal,
    thread: &SessionId,
    run: RunId,
    audience: Audience,
) -> StartFuture {
    let (app, principal, thread) = (app.clone(), principal.clone(), thread.clone());
    Box::pin(async move {
        let run = requests::wait_until_written(&app, thread.clone(), run).await?;
        let started = prepare(&app, &principal, &thread, run, audience, false).await?;
        Ok(Start::Run(Started { earlier: None, ..started }))
    })
}

/// Waits for the answer to a request beside the conversation: a run of the thread, or only a result.
fn answer_aside(
    app: &Arc<App>,
    principal: &Principal,
    thread: &SessionId,
    run: RunId,
    audience: Audience,
    from: Sequence,
) -> StartFuture {
    let (app, principal, thread) = (app.clone(), principal.clone(), thread.clone());
    Box::pin(async move {
        match requests::wait_for_aside(&app, thread.clone(), run.clone(), from).await? {
            AsideOutcome::Run(run) => prepare(&app, &principal, &thread, run, audience, true).await.map(Start::Run),
            AsideOutcome::Answer(answer) => Ok(Start::Answer(run_with_answer(&run, answer))),
        }
    })
}

/// The frames of a run that only has this `result` or `error`.
fn run_with_answer(run: &RunId, mut answer: Map<String, Value>) -> Vec<Frame> {
    let status = if answer.contains_key("error") { Status::Failed } else { Status::Completed };
    answer.retain(|member, _| ["result", "error"].contains(&member.as_str()));
    answer.insert("status".into(), status.as_str().into());
    let name: Box<str> = run.as_str().into();
    let (kind, content) = (crate::projection::run::KIND.into(), Arc::new(answer));
    let of_run = ActivityView { run: Some(name.clone()), kind, id: name, opened: Sequence(1), agent: None, content };
    vec![Frame::ActivitySnapshot(of_run), Frame::Hydrated {}, Frame::End { status: status.as_str().into() }]
}

/// A stored thread: a page of its messages, its active run, and what it waits for.
async fn hydrate(app: &App, thread: &Thread, audience: Audience, limit: usize, before: Option<&str>) -> Result<Value, Problem> {
    let mut active = thread.active(audience).map(|part| &part.run).or(thread.requested.first());
    let (mut pending, waiting) = (Vec::new(), thread.waiting(audience).filter(|_| active.is_none()));
    if let Some(part) = waiting {
        let shown = shown_activities(app, &part.run, audience, None).await?;
        pending = apart(app, move || interrupts(&shown)).await;
        // Every action is answered, so the run is about to resume.
        active = Some(&part.run).filter(|_| pending.is_empty() && !part.state(audience).pending.is_empty());
    }
    let interrupts = waiting
        .filter(|_| !pending.is_empty())
        .map(|part| json!({ "runId": part.run, "pending": tanstack::with_bindings(pending, part.run.as_str()) }));
    let (messages, state, next) = page(app, thread, active, audience, limit, before).await?;
    let mut answer = json!({
        "threadId": thread.name,
        "messages": messages,
        "activeRun": active.map(|run| json!({ "runId": run })),
        "interrupts": interrupts,
        "page": match next {
            Some(cursor) => json!({ "truncated": true, "cursor": cursor }),
            None => json!({ "truncated": false }),
        },
    });
    if let Some(state) = state {
        answer["state"] = state;
    }
    Ok(answer)
}

/// One page of a thread: the last `limit` messages before a cursor, in order.
///
/// It comes with the state after them and the cursor of the previous page. Runs load in windows of [`RUNS_MAX`], which
/// later runs do not shift. Of the active run only the user's first messages are listed: a joining client streams the
/// rest.
async fn page(
    app: &App,
    thread: &Thread,
    active: Option<&RunId>,
    audience: Audience,
    limit: usize,
    before: Option<&str>,
) -> Result<(Vec<Value>, Option<Value>, Option<String>), Problem> {
    let before = before.map(place).transpose()?;
    let mut runs = all_runs(app, thread).await?;
    runs.retain(|(created, _)| before.is_none_or(|(newest, _)| *created <= newest));
    let older = runs.get(RUNS_MAX).map(|(created, _)| created.to_string());
    runs.truncate(RUNS_MAX);
    let (mut all, mut past) = (Vec::new(), Vec::new());
    for (_, shown) in runs.iter().rev() {
        let of_run = shown.activities(app, audience).await?;
        if active != Some(&shown.run) {
            past.extend(of_run.iter().cloned());
        }
        all.extend(of_run);
    }
    let listed = move || {
        let past: HashSet<Value> = messages(&past, true).into_iter().map(|message| message["id"].clone()).collect();
        let listed = tanstack::thread_messages(messages(&all, true), |message| !past.contains(&message["id"]));
        (listed, state(&all))
    };
    let (mut messages, state) = apart(app, listed).await;
    messages.truncate(before.and_then(|(_, count)| count).unwrap_or(usize::MAX));
    let from = messages.len().saturating_sub(limit);
    let next = match runs.first() {
        Some((newest, _)) if from > 0 => Some(format!("{newest}-{from}")),
        _ => older,
    };
    messages.drain(..from);
    Ok((messages, state, next))
}

/// The runs of a thread with their places in creation order, the newest first.
async fn all_runs(app: &App, thread: &Thread) -> Result<Vec<(u64, ShownRun)>, Problem> {
    let Some((logs, _)) = app.logs.sessions().logs_of(&thread.id, usize::MAX) else {
        return Ok(thread.runs.iter().rev().map(|part| (part.created, part.shown())).collect());
    };
    let own = logs.into_iter().filter_map(|(created, log)| Some((created, ShownRun::own(&log)?)));
    let frozen = frozen_runs(app, &thread.id).await?.into_iter().rev();
    let frozen = frozen.filter_map(|frozen| Some((frozen.created, ShownRun::frozen(frozen)?)));
    Ok(own.chain(frozen).collect())
}

/// A position among a thread's messages.
///
/// It names the window by its newest run, and how many of its messages to take (`None`: all).
fn place(text: &str) -> Result<(u64, Option<usize>), Problem> {
    let (newest, count) = text.split_once('-').map_or((text, None), |(newest, count)| (newest, Some(count)));
    let place = newest.parse().ok().zip(count.map(str::parse).transpose().ok());
    place.ok_or_else(|| {
        let detail = format!("The query's before is {text:?}. It must be a page cursor of this thread.");
        Problem::bad_request("bad_cursor", detail).with("member", "before")
    })
}
