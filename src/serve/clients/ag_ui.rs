//! AG-UI over HTTP: `POST /ag-ui/{agent}` runs, attaches and resumes; `GET` hydrates a thread and joins a run (`TanStack` AI).
//!
//! A post never runs anything twice. Its `runId` names the run: one that is there, or that was asked for already, is attached to,
//! and only what nobody knows is asked for. Whoever goes away ends nothing by it.

use super::asked::{self, Decision};
use super::place::Place;
use super::tanstack::{self, TanStack};
use super::threads::{RUNS_MAX, Thread};
use super::{Awaiting, Begun, Coming, Ids, Opening, Talk, body, shown};
use crate::auth::rights::Verb;
use crate::encode::ag_ui::{AgUi, Options, interrupts, messages, state};
use crate::encode::{Begin, Dialect, Until};
use crate::log::LogId;
use crate::log::run::Tail;
use crate::model::{AgentId, Audience, RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::access::{Pass, Target, Who, allow, further};
use crate::serve::hydrate::{echo, live, page_size};
use crate::serve::problem::Problem;
use crate::serve::request::{Query, id_of, segment};
use crate::serve::stream::HEADERS;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The protocol's name, for the agent that gets messages in it.
const PROTOCOL: &str = "ag-ui";

/// What a client asks for: AG-UI's `RunAgentInput`, read leniently.
pub(super) struct Input {
    pub thread: SessionId,
    pub run: RunId,
    pub messages: Vec<Value>,
    pub decisions: Vec<Decision>,
    pub is_v1: bool,
    /// Everything else that it says.
    pub rest: Map<String, Value>,
}

impl Input {
    /// Reads a body. `named` is the run's id where something else than the body gives it.
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
            messages: body::objects(&body, "messages")?,
            decisions: asked::decisions(&body::objects(&body, "resume")?)?,
            is_v1: is_v1(&body),
            rest: Map::new(),
        };
        for member in ["threadId", "runId", "messages", "resume"] {
            body.shift_remove(member);
        }
        Ok(Self { rest: body, ..read })
    }
}

/// Whether the client speaks AG-UI 1.0, by its body.
pub(super) fn is_v1(body: &Map<String, Value>) -> bool {
    body.get("protocolVersion").and_then(Value::as_str).is_some_and(|version| version.starts_with("1."))
}

/// How a client wants to be told.
pub(super) struct How {
    pub audience: Audience,
    pub ids: Ids,
    /// Whether it may be told of sub-agents.
    pub subagents: bool,
    /// Where it has got to, of the run that it asks for.
    pub after: Option<Place>,
}

impl How {
    /// What a request says of it, beside its body.
    ///
    /// # Errors
    /// 400 for what cannot be read.
    pub fn of(query: &Query, headers: &HeaderMap) -> Result<Self, Problem> {
        let (audience, subagents) = (query.audience()?, query.is_set("subagents"));
        let ids = if headers.contains_key(RUN_ID) { Ids::First } else { Ids::Last };
        Ok(Self { audience, ids, subagents, after: got_to(headers, None)? })
    }

    /// Whether it is `TanStack` AI that asks.
    fn is_tanstack(&self) -> bool {
        self.ids == Ids::First
    }

    fn dialect(&self, thread: &str, run: &RunId, begin: Begin, is_v1: bool, messages: Vec<Value>) -> Box<dyn Dialect> {
        let (thread, run, until) = (thread.to_owned(), run.to_string(), Until::Pause);
        let subagents = self.subagents || is_v1;
        let telling = AgUi::new(Options { thread, run, begin, until, is_v1, subagents, messages });
        match self.is_tanstack() {
            true => Box::new(TanStack::new(telling)),
            false => Box::new(telling),
        }
    }

    /// How whoever comes to a run that is there already begins: `TanStack` AI wants it from its start.
    fn joining(&self) -> Begin {
        if self.is_tanstack() { Begin::Told } else { Begin::Shown }
    }
}

/// `TanStack`'s header with the run's id.
const RUN_ID: &str = "x-run-id";

/// Where a client has got to: by the header, or by what its address says. From the start it has no cursor.
fn got_to(headers: &HeaderMap, offset: Option<&str>) -> Result<Option<Place>, Problem> {
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    match header.or(offset) {
        None | Some("" | "-1" | "start") => Ok(None),
        Some(text) => crate::serve::request::cursor("offset", text).map(Some),
    }
}

/// `POST /ag-ui/{agent}`
pub async fn post(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent = segment("agentId", &head.uri, 2)?;
    let how = How::of(&Query::of(&head.uri), &head.headers)?;
    let named = head.headers.get(RUN_ID).and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let named = named.map(|id| id_of("X-Run-Id", id)).transpose()?;
    let input = Input::read(body::object(&app, &head.headers, body).await?, named)?;
    run(&app, pass, &agent, input, how).await
}

/// Answers a `RunAgentInput`.
pub(super) async fn run(app: &Arc<App>, pass: Pass, agent: &AgentId, input: Input, how: How) -> Result<Response, Problem> {
    let (id, audience) = (input.thread.clone(), how.audience);
    let who = pass.who().clone();
    let pass = further(app, pass, Verb::Control, Target::Thread(&id), Some(audience)).await?;
    let pass = further(app, pass, Verb::Read, Target::Thread(&id), Some(audience)).await?;
    let thread = Thread::find(app, &id).await?;
    let own = own(app, &who, &id, &input.run, audience).await?;

    let decided = submit(app, &thread, &input, own.is_some(), audience).await?;
    // What is there to be told at once: the run itself, or, after a cursor, the one that the cursor is of.
    let goes_on = decided.last().filter(|_| how.after.is_some() && !is_of(how.after, own.as_ref()));
    let own_run = own.as_ref().filter(|_| decided.is_empty() || is_of(how.after, own.as_ref())).map(|_| &input.run);
    if let Some(run) = goes_on.map(|decision| &decision.run).or(own_run).cloned() {
        let pass = allow(app, &who, Verb::Read, Target::Run(&run), Some(audience)).await?;
        let dialect = how.dialect(id.as_str(), &input.run, how.joining(), input.is_v1, input.messages);
        let (after, ids, earlier) = (how.after, how.ids, thread.beside(&run));
        let opening = Opening { run, audience, after, replay: false, ids, earlier, dialect };
        return Ok(Talk::open(app, pass, opening).await?.respond(&[]));
    }
    let begin = if decided.is_empty() { Begin::Told } else { how.joining() };
    let is_tanstack = how.is_tanstack();
    let dialect = how.dialect(id.as_str(), &input.run, begin, input.is_v1, input.messages.clone());
    let named = input.run.clone();
    if decided.is_empty() {
        let value = value(app, &thread, input, audience).await?;
        asked::send(app, &id, &named, agent, value, audience).await?;
    }
    let coming = {
        let app = app.clone();
        Box::pin(async move {
            if decided.is_empty() {
                let run = asked::begun(&app, id.clone(), named).await?;
                return ready(&app, &who, &id, run, audience, true).await;
            }
            let actions: Vec<_> = decided.iter().map(|decision| decision.action.clone()).collect();
            let run = asked::decided(&app, decided, named, audience).await?;
            let begun = ready(&app, &who, &id, run, audience, false).await?;
            // This one goes on with the messages that it has.
            let paused = if is_tanstack { asked::paused_at(&app, &begun.run, &actions).await? } else { None };
            Ok(Begun { after: paused, ..begun })
        })
    };
    let awaiting = Awaiting { coming, audience, ids: how.ids, meanwhile: None, dialect };
    Ok(Talk::after(app, pass, awaiting).await?.respond(&[]))
}

/// Whether a place is of this run.
fn is_of(place: Option<Place>, run: Option<&Tail>) -> bool {
    place.is_some_and(|place| run.is_some_and(|tail| tail.epoch == Some(place.cursor.epoch)))
}

/// How the run stands that a client names in a thread; `None` for one that nobody has written.
async fn own(app: &App, who: &Who, thread: &SessionId, run: &RunId, audience: Audience) -> Result<Option<Tail>, Problem> {
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() {
        return Ok(None);
    }
    allow(app, who, Verb::Read, Target::Run(run), Some(audience)).await?;
    match &tail.summary.session_id {
        Some(session) if session != thread => {
            let detail =
                format!("run {run} is one of thread {session}, and the request is for thread {thread}; name it otherwise");
            Err(Problem::new(StatusCode::CONFLICT, "run_of_another_thread", detail).with("member", "runId"))
        }
        _ => Ok(Some(tail)),
    }
}

/// Hands on what the client decides.
async fn submit(
    app: &App,
    thread: &Thread,
    input: &Input,
    is_known: bool,
    audience: Audience,
) -> Result<Vec<asked::Submitted>, Problem> {
    if input.decisions.is_empty() {
        return Ok(Vec::new());
    }
    let asks = thread.asked(app, audience).await?;
    let mut asked = Vec::with_capacity(input.decisions.len());
    for decision in &input.decisions {
        match asks.get(decision.action.as_str()) {
            Some(of) => asked.push((of, decision)),
            None if is_known => {}
            None => {
                let action = &decision.action;
                let detail = format!("nothing in thread {} asks by interrupt {action}; look at the thread again", thread.id);
                let problem = Problem::new(StatusCode::CONFLICT, "action_not_pending", detail);
                return Err(problem.with("member", "interruptId").with("interruptId", action.as_str()));
            }
        }
    }
    let mut submitted = Vec::with_capacity(asked.len());
    for (of, decision) in asked {
        let by = [thread.id.as_str(), input.run.as_str()];
        submitted.push(asked::decide(app, of, decision, &by, audience).await?);
    }
    Ok(submitted)
}

/// What the agent is told of a new run.
async fn value(app: &App, thread: &Thread, input: Input, audience: Audience) -> Result<Value, Problem> {
    let shown = thread.shown(app, audience).await?;
    let known = asked::known_ids(&shown, &messages(&shown, input.is_v1));
    let news = asked::news(&input.messages, &known);
    let told = json!({ "protocol": PROTOCOL, "threadId": input.thread, "runId": input.run, "messages": news });
    Ok(asked::value_of(input.rest, told))
}

/// What there is to tell of a run that is written by now.
pub(super) async fn ready(
    app: &App,
    who: &Who,
    thread: &SessionId,
    run: RunId,
    audience: Audience,
    replay: bool,
) -> Result<Begun, Problem> {
    let pass = allow(app, who, Verb::Read, Target::Run(&run), Some(audience)).await?;
    let earlier = Some(Thread::find(app, thread).await?.beside(&run));
    Ok(Begun { run, pass, after: None, replay, earlier })
}

/// `GET /ag-ui/{agent}`: a run, live; or a thread at rest.
pub async fn get(State(app): State<Arc<App>>, pass: Pass, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let query = Query::of(&uri);
    let run = query.get("runId").map(|run| id_of::<RunId>("runId", run)).transpose()?;
    let thread = query.get("threadId").map(|thread| id_of::<SessionId>("threadId", thread)).transpose()?;
    let offset = query.get("last_event_id").or(query.get("offset"));
    let how = How { ids: Ids::First, after: got_to(&headers, offset)?, ..How::of(&query, &HeaderMap::new())? };
    let (limit, before) = (page_size(&query)?, query.get("before").filter(|before| !before.is_empty()));
    match (run, thread) {
        (Some(run), thread) => join(&app, pass, run, thread, how).await,
        (None, Some(thread)) => {
            hydrate(&app, &thread, how.audience, limit, before).await.map(|answer| live(echo(&query, answer)))
        }
        (None, None) => {
            let detail = "the query names neither a threadId, to look at, nor a runId, to join";
            Err(Problem::bad_request("bad_query", detail).with("member", "threadId"))
        }
    }
}

/// The run, as to whoever has any part of it. One that was asked for is waited for; of one that nobody knows there is nothing.
async fn join(app: &Arc<App>, pass: Pass, run: RunId, thread: Option<SessionId>, how: How) -> Result<Response, Problem> {
    let (who, audience) = (pass.who().clone(), how.audience);
    let Tail { epoch, summary, .. } = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if epoch.is_none() {
        let Some(id) = asked::thread_of(app, &run) else { return Ok((HEADERS, Body::empty()).into_response()) };
        // It waits for a first event for so long only.
        let meanwhile = Some(Vec::new());
        let dialect = how.dialect(id.as_str(), &run, how.joining(), false, Vec::new());
        let coming = coming(app, &who, &id, run, audience);
        let awaiting = Awaiting { coming, audience, ids: how.ids, meanwhile, dialect };
        return Ok(Talk::after(app, pass, awaiting).await?.respond(&[]));
    }
    // What is waited for is allowed for as long as it is not there.
    let pass = allow(app, &who, Verb::Read, Target::Run(&run), Some(audience)).await?;
    let name = summary.session_id.as_ref().or(thread.as_ref()).map(SessionId::as_str);
    let name = name.or(summary.thread_id.as_ref().map(ThreadId::as_str)).unwrap_or(run.as_str()).to_owned();
    let earlier = match &summary.session_id {
        Some(session) => Thread::find(app, session).await?.beside(&run),
        None => Vec::new(),
    };
    let dialect = how.dialect(&name, &run, how.joining(), false, Vec::new());
    let opening = Opening { run, audience, after: how.after, replay: false, ids: how.ids, earlier, dialect };
    Ok(Talk::open(app, pass, opening).await?.respond(&[]))
}

/// A run that was asked for, for whoever is shown its thread meanwhile.
pub(super) fn coming(app: &Arc<App>, who: &Who, thread: &SessionId, run: RunId, audience: Audience) -> Coming {
    let (app, who, thread) = (app.clone(), who.clone(), thread.clone());
    Box::pin(async move {
        let run = asked::begun(&app, thread.clone(), run).await?;
        let begun = ready(&app, &who, &thread, run, audience, false).await?;
        Ok(Begun { earlier: None, ..begun })
    })
}

/// A thread at rest: a page of its messages, what goes on, and what waits for somebody.
async fn hydrate(app: &App, id: &SessionId, audience: Audience, limit: usize, before: Option<&str>) -> Result<Value, Problem> {
    let thread = Thread::find(app, id).await?;
    let mut active = thread.active(audience).map(|part| &part.run).or(thread.sent.first());
    let (mut pending, waiting) = (Vec::new(), thread.waiting(audience).filter(|_| active.is_none()));
    if let Some(part) = waiting {
        pending = interrupts(&shown(app, &part.run, audience, None).await?);
        // All that it asked is answered: it is about to go on.
        active = Some(&part.run).filter(|_| pending.is_empty() && !part.stands(audience).pending.is_empty());
    }
    let interrupts = waiting
        .filter(|_| !pending.is_empty())
        .map(|part| json!({ "runId": part.run, "pending": tanstack::bound(pending, part.run.as_str()) }));
    let (messages, state, next) = page(app, &thread, active, audience, limit, before).await?;
    let mut answer = json!({
        "threadId": id,
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

/// The last `limit` messages of a thread before a cursor, in order, the state after them, and the cursor for those before them.
/// Runs are looked at in windows of [`RUNS_MAX`], which later runs do not move. Of a run that goes on there is what it answers:
/// whoever joins it is told the rest.
async fn page(
    app: &App,
    thread: &Thread,
    active: Option<&RunId>,
    audience: Audience,
    limit: usize,
    before: Option<&str>,
) -> Result<(Vec<Value>, Option<Value>, Option<String>), Problem> {
    let before = before.map(place).transpose()?;
    let mut runs: Vec<(u64, RunId)> = match app.logs.sessions().logs_of(&thread.id, usize::MAX) {
        Some((logs, _)) => logs.into_iter().filter_map(|(created, log)| Some((created, run_of(log)?))).collect(),
        None => thread.runs.iter().map(|part| (part.created, part.run.clone())).collect(),
    };
    runs.retain(|(created, _)| before.is_none_or(|(newest, _)| *created <= newest));
    let older = runs.get(RUNS_MAX).map(|(created, _)| created.to_string());
    runs.truncate(RUNS_MAX);
    let (mut all, mut past) = (Vec::new(), Vec::new());
    for (_, run) in runs.iter().rev() {
        let of_run = shown(app, run, audience, None).await?;
        if active != Some(run) {
            past.extend(of_run.iter().cloned());
        }
        all.extend(of_run);
    }
    let past: HashSet<Value> = messages(&past, true).into_iter().map(|message| message["id"].clone()).collect();
    let mut messages = tanstack::at_rest(messages(&all, true), |message| !past.contains(&message["id"]));
    messages.truncate(before.and_then(|(_, count)| count).unwrap_or(usize::MAX));
    let from = messages.len().saturating_sub(limit);
    let next = match runs.first() {
        Some((newest, _)) if from > 0 => Some(format!("{newest}-{from}")),
        _ => older,
    };
    messages.drain(..from);
    Ok((messages, state(&all), next))
}

fn run_of(log: LogId) -> Option<RunId> {
    match log {
        LogId::Run(run) => Some(run),
        LogId::Session(_) => None,
    }
}

/// A place among a thread's messages: a window by the place of its newest run, and how many of its messages are meant, if not
/// all.
fn place(text: &str) -> Result<(u64, Option<usize>), Problem> {
    let (newest, count) = text.split_once('-').map_or((text, None), |(newest, count)| (newest, Some(count)));
    let place = newest.parse().ok().zip(count.map(str::parse).transpose().ok());
    place.ok_or_else(|| {
        let detail = format!("the query's before is {text:?}; it must be a cursor of this thread's pages");
        Problem::bad_request("bad_cursor", detail).with("member", "before")
    })
}
