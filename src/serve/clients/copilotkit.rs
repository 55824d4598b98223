//! What `CopilotKit` asks of its runtime: which agents there are, runs, joins and stops; each at an address of its own, or all at
//! one (`POST /copilotkit` with a `method`).
//!
//! A run is as at [`ag_ui`]. A join shows the thread as it stands, whatever the client has of it, and goes on with what goes on;
//! of a thread that nobody knows there is nothing to show, which is no error.

use super::ag_ui::{self, How, Input};
use super::asked;
use super::threads::{Joined, Thread};
use super::{Awaiting, Ids, Opening, Talk, body};
use crate::auth::rights::Verb;
use crate::control::DEFAULT_AGENT;
use crate::encode::ag_ui::{AgUi, Options};
use crate::encode::{Begin, Until};
use crate::log::run::Summary;
use crate::log::{LogId, LogKind};
use crate::model::{AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::{Pass, Target, allow, further};
use crate::serve::hydrate::live;
use crate::serve::problem::Problem;
use crate::serve::request::{Query, segment};
use crate::serve::stream::HEADERS;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Request;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs whose agents are listed: the newest.
const AGENTS_OF_RUNS_MAX: usize = 256;

/// `GET /copilotkit/info`
pub async fn info(State(app): State<Arc<App>>, pass: Pass) -> Result<Response, Problem> {
    told(&app, &pass).await
}

/// `POST /copilotkit/agent/{agent}/run`
pub async fn run(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (agent, how) = (segment("agentId", &head.uri, 3)?, How::of(&Query::of(&head.uri), &head.headers)?);
    let body = body::object(&app, &head.headers, body).await?;
    ag_ui::run(&app, pass, &agent, Input::read(body, None)?, how).await
}

/// `POST /copilotkit/agent/{agent}/connect`
pub async fn connect(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    segment::<AgentId>("agentId", &head.uri, 3)?;
    let how = How::of(&Query::of(&head.uri), &head.headers)?;
    let body = body::object(&app, &head.headers, body).await?;
    joined(&app, pass, body, how).await
}

/// `POST /copilotkit/agent/{agent}/stop/{thread}`
pub async fn stop(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    segment::<AgentId>("agentId", &head.uri, 3)?;
    let (thread, audience) = (segment("threadId", &head.uri, 5)?, Query::of(&head.uri).audience()?);
    let body = body::object(&app, &head.headers, body).await?;
    stopped(&app, pass, &thread, &body, audience).await
}

/// `POST /copilotkit`: any of them, by the body's `method`.
pub async fn call(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let how = How::of(&Query::of(&head.uri), &head.headers)?;
    let call = body::object(&app, &head.headers, body).await?;
    let part = |member: &str| match call.get(member) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(part)) => Ok(part.clone()),
        Some(other) => Err(body::bad(member, crate::source::kind_of(other), "an object")),
    };
    let (params, body) = (part("params")?, part("body")?);
    let audience = how.audience;
    let asks = async |pass: Pass, agent: &AgentId| further(&app, pass, Verb::Control, Target::Agent(agent), Some(audience)).await;
    let agent = || body::id::<AgentId>(&params, "agentId");
    match body::text(&call, "method")? {
        Some("info") => {
            let pass = further(&app, pass, Verb::Read, Target::Several, Some(audience)).await?;
            told(&app, &pass).await
        }
        Some("agent/run") => {
            let agent = agent()?;
            let pass = asks(pass, &agent).await?;
            ag_ui::run(&app, pass, &agent, Input::read(body, None)?, how).await
        }
        Some("agent/connect") => joined(&app, pass, body, how).await,
        Some("agent/stop") => {
            let pass = asks(pass, &agent()?).await?;
            stopped(&app, pass, &body::id(&params, "threadId")?, &body, audience).await
        }
        other => {
            let expected = "info, agent/run, agent/connect or agent/stop";
            Err(body::bad("method", other.unwrap_or("missing"), expected))
        }
    }
}

/// The agents that somebody can talk to: those that were named when the server was started, those that wait for controls or have
/// some in their line, those of recent runs that may be seen, and the one that takes what names none.
async fn agents(app: &App, pass: &Pass) -> Result<BTreeSet<String>, Problem> {
    let mut agents = app.logs.queues().agents();
    agents.extend(app.agents.iter().cloned());
    agents.retain(|agent| pass.has_agent(agent));
    let mut names: BTreeSet<String> = agents.iter().map(AgentId::to_string).collect();
    names.insert(DEFAULT_AGENT.to_owned());
    for listed in app.logs.list(LogKind::Run, None, AGENTS_OF_RUNS_MAX).await? {
        let Some(summary) = Summary::listed(&listed) else { continue };
        let is_seen = matches!(&listed.log, LogId::Run(run) if pass.has_run(run, &summary));
        names.extend(summary.agent.filter(|_| is_seen).map(|agent| agent.to_string()));
    }
    Ok(names)
}

async fn told(app: &App, pass: &Pass) -> Result<Response, Problem> {
    let named = |name: String| {
        let agent = json!({ "name": name, "description": "", "className": "Proscenium" });
        (name, agent)
    };
    let agents: Map<String, Value> = agents(app, pass).await?.into_iter().map(named).collect();
    Ok(live(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": agents,
        "mode": "sse",
        "audioFileTranscriptionEnabled": false,
    })))
}

async fn joined(app: &Arc<App>, pass: Pass, body: Map<String, Value>, how: How) -> Result<Response, Problem> {
    // A join names a run that there will never be; what it answers is of no matter.
    let id: SessionId = body::id(&body, "threadId")?;
    let messages = body::objects(&body, "messages")?;
    let is_v1 = ag_ui::is_v1(&body);
    let How { audience, subagents, .. } = how;
    let who = pass.who().clone();
    let pass = further(app, pass, Verb::Read, Target::Thread(&id), Some(audience)).await?;
    let thread = Thread::find(app, &id).await?;
    let dialect = |run: &RunId| {
        let (thread, run, subagents) = (id.to_string(), run.to_string(), subagents || is_v1);
        let (begin, until) = (Begin::Shown, Until::Pause);
        Box::new(AgUi::new(Options { thread, run, begin, until, is_v1, subagents, messages: messages.clone() }))
    };
    let talk = match thread.joined(audience) {
        // It may be told what there is of it, which is nothing; anything but 200 would be an error.
        None => return Ok((HEADERS, Body::empty()).into_response()),
        Some(Joined::Run(part)) => {
            let pass = allow(app, &who, Verb::Read, Target::Run(&part.run), Some(audience)).await?;
            let (run, dialect, earlier) = (part.run.clone(), dialect(&part.run), thread.beside(&part.run));
            let opening = Opening { run, audience, after: None, replay: false, ids: Ids::Last, earlier, dialect };
            Talk::open(app, pass, opening).await?
        }
        Some(Joined::Sent(run)) => {
            let (dialect, meanwhile) = (dialect(run), Some(thread.beside(run)));
            let coming = ag_ui::coming(app, &who, &id, run.clone(), audience);
            Talk::after(app, pass, Awaiting { coming, audience, ids: Ids::Last, meanwhile, dialect }).await?
        }
    };
    Ok(talk.respond(&[]))
}

/// Asks for the end of what goes on in a thread. `CopilotKit` names the run by the id that it gave it, where it knows of one.
async fn stopped(
    app: &App,
    pass: Pass,
    thread: &SessionId,
    body: &Map<String, Value>,
    audience: Audience,
) -> Result<Response, Problem> {
    further(app, pass, Verb::Control, Target::Thread(thread), Some(audience)).await?;
    let run = body::text(body, "runId")?.and_then(|run| RunId::new(run).ok());
    let thread = Thread::find(app, thread).await?;
    Ok(live(asked::stop(app, &thread, run.as_ref(), audience).await?.to_json()))
}
