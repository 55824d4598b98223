//! The runtime API of `CopilotKit`: agents, runs, joins and stops.
//!
//! Each call has its own address, and `POST /copilotkit` accepts all by their `method`, also those for threads. A run works as in [`ag_ui`]. A
//! join shows the thread's current state and continues with the active run. It ignores what the client already has. An
//! unknown thread is empty, which is no error.

use super::ag_ui::{self, ClientOptions, RunInput};
use super::copilot_threads::request_by_call;
use super::requests;
use super::threads::{JoinTarget, Thread};
use super::{DialectStream, PendingOpening, StreamOpening, body};
use crate::auth::rights::Verb;
use crate::control::DEFAULT_AGENT;
use crate::encode::ag_ui::{AgUi, AgUiOptions};
use crate::encode::translator::IdPosition;
use crate::encode::{Begin, Until};
use crate::log::commit::Summary;
use crate::log::{LogId, LogKind};
use crate::model::decided_by::Via;
use crate::model::{AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize, authorize_also};
use crate::serve::api::stream::HEADERS;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, segment};
use crate::serve::http::response::no_store_json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Request;
use http::request::Parts;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest runs whose agents are listed.
const AGENTS_OF_RUNS_MAX: usize = 256;

/// `GET /copilotkit/info`
pub async fn info(State(app): State<Arc<App>>, authorization: Authorization) -> Result<Response, Problem> {
    runtime_info(&app, &authorization).await
}

/// `POST /copilotkit/agent/{agent}/run`
pub async fn run(State(app): State<Arc<App>>, authorization: Authorization, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (agent, options) = (segment("agentId", &head.uri, 3)?, client_options(&head)?);
    let body = body::object(&app, &head.headers, body).await?;
    ag_ui::run(&app, authorization, &agent, RunInput::read(body, None)?, options).await
}

/// `POST /copilotkit/agent/{agent}/connect`
pub async fn connect(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    segment::<AgentId>("agentId", &head.uri, 3)?;
    let options = client_options(&head)?;
    let body = body::object(&app, &head.headers, body).await?;
    connect_stream(&app, authorization, body, options).await
}

/// `POST /copilotkit/agent/{agent}/stop/{thread}`
pub async fn stop(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    segment::<AgentId>("agentId", &head.uri, 3)?;
    let (thread, audience) = (segment("threadId", &head.uri, 5)?, Query::from_uri(&head.uri).audience()?);
    let body = body::object(&app, &head.headers, body).await?;
    stop_thread(&app, authorization, &thread, &body, audience).await
}

/// `POST /copilotkit`: any of the calls, by the body's `method`.
pub async fn call(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let options = client_options(&head)?;
    let mut call = body::object(&app, &head.headers, body).await?;
    let mut part = |member: &str| match call.shift_remove(member) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(part)) => Ok(part),
        Some(other) => Err(body::bad(member, crate::source::kind_of(&other), "an object")),
    };
    let (params, body) = (part("params")?, part("body")?);
    let audience = options.audience;
    let authorize_control = async |authorization: Authorization, agent: &AgentId| {
        authorize_also(&app, authorization, Verb::Control, Resource::Agent(agent), Some(audience)).await
    };
    let agent = || body::id::<AgentId>(&params, "agentId");
    match body::text(&call, "method")? {
        Some("info") => {
            let authorization = authorize_also(&app, authorization, Verb::Read, Resource::Unspecified, Some(audience)).await?;
            runtime_info(&app, &authorization).await
        }
        Some("agent/run") => {
            let agent = agent()?;
            let authorization = authorize_control(authorization, &agent).await?;
            ag_ui::run(&app, authorization, &agent, RunInput::read(body, None)?, options).await
        }
        Some("agent/connect") => connect_stream(&app, authorization, body, options).await,
        Some("agent/stop") => {
            let authorization = authorize_control(authorization, &agent()?).await?;
            stop_thread(&app, authorization, &body::id(&params, "threadId")?, &body, audience).await
        }
        Some("resource/request") => request_by_call(&app, &head, &params, body).await,
        other => {
            let expected = "info, agent/run, agent/connect, agent/stop or resource/request";
            Err(body::bad("method", other.unwrap_or("missing"), expected))
        }
    }
}

/// How a client wants its stream.
fn client_options(head: &Parts) -> Result<ClientOptions, Problem> {
    Ok(ClientOptions { via: Via::Copilotkit, ..ClientOptions::from_request(&Query::from_uri(&head.uri), &head.headers)? })
}

/// The agents that a client can address.
///
/// They are the configured ones, those with workers or queued controls, those of recent visible runs, and the default
/// agent; and whether a worker waits for controls.
async fn agents(app: &App, authorization: &Authorization) -> Result<BTreeMap<String, bool>, Problem> {
    let mut names: BTreeMap<String, bool> = BTreeMap::from([(DEFAULT_AGENT.to_owned(), false)]);
    let configured = app.agents.iter().map(|agent| (agent.clone(), false));
    let known = configured.chain(app.logs.queues().agents()).filter(|(agent, _)| authorization.has_agent(agent));
    let absent = app.absent_agents.lock().clone();
    names.extend(known.map(|(agent, waits)| (agent.to_string(), waits && !absent.contains(&agent))));
    for listed in app.logs.list(LogKind::Run, None, AGENTS_OF_RUNS_MAX).await? {
        let Some(summary) = Summary::from_listed(&listed) else { continue };
        let is_seen = matches!(&listed.log, LogId::Run(run) if authorization.has_run(run, &summary));
        if let Some(agent) = summary.agent.filter(|_| is_seen) {
            names.entry(agent.to_string()).or_default();
        }
    }
    Ok(names)
}

async fn runtime_info(app: &App, authorization: &Authorization) -> Result<Response, Problem> {
    let named = |(name, is_present): (String, bool)| {
        // As docs/src/reference/resume.md describes it, and `proscenium conform` proves it.
        let capabilities = json!({ "transport": { "streaming": true, "resumable": true } });
        let agent = json!({
            "name": name,
            "description": "",
            "className": "Proscenium",
            "capabilities": capabilities,
            "present": is_present,
        });
        (name, agent)
    };
    let agents: Map<String, Value> = agents(app, authorization).await?.into_iter().map(named).collect();
    let threads = json!({ "list": true, "inspect": true, "mutations": true, "realtimeMetadata": false });
    Ok(no_store_json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": agents,
        "mode": "sse",
        "audioFileTranscriptionEnabled": false,
        "threadEndpoints": threads,
        "singleRoute": { "resourceOperations": true, "threadEndpoints": threads },
        "suggestions": false,
        "a2uiEnabled": false,
        "openGenerativeUIEnabled": false,
        "telemetryDisabled": true,
    })))
}

async fn connect_stream(
    app: &Arc<App>,
    authorization: Authorization,
    mut body: Map<String, Value>,
    options: ClientOptions,
) -> Result<Response, Problem> {
    // A join's `runId` names a run that will never exist, so it is ignored.
    let id: SessionId = body::id(&body, "threadId")?;
    let messages = body::take_objects(&mut body, "messages")?;
    let is_v1 = ag_ui::is_v1(&body);
    let ClientOptions { audience, subagents, .. } = options;
    let principal = authorization.principal().clone();
    let authorization = authorize_also(app, authorization, Verb::Read, Resource::Thread(&id), Some(audience)).await?;
    let thread = Thread::find(app, &id).await?;
    let dialect = |run: &RunId| {
        let (thread, run, subagents) = (id.to_string(), run.to_string(), subagents || is_v1);
        let (begin, until) = (Begin::Snapshot, Until::Pause);
        Box::new(AgUi::new(AgUiOptions { thread, run, begin, until, is_v1, subagents, messages: messages.clone() }))
    };
    let stream = match thread.join_target(audience) {
        // CopilotKit treats any status but 200 as an error, so an empty stream is the answer.
        None => return Ok((HEADERS, Body::empty()).into_response()),
        Some(JoinTarget::Run(part)) => {
            let authorization = authorize(app, &principal, Verb::Read, Resource::Run(&part.run), Some(audience)).await?;
            let (run, dialect, earlier) = (part.run.clone(), dialect(&part.run), thread.other_runs(&part.run));
            let opening = StreamOpening { run, audience, after: None, replay: false, ids: IdPosition::Last, earlier, dialect };
            DialectStream::open(app, authorization, opening).await?
        }
        Some(JoinTarget::Requested(run)) => {
            let (dialect, meanwhile) = (dialect(run), Some(thread.other_runs(run)));
            let start = ag_ui::await_run(app, &principal, &thread.id, run.clone(), audience);
            DialectStream::after(
                app,
                authorization,
                PendingOpening { start, audience, ids: IdPosition::Last, meanwhile, dialect },
            )
            .await?
        }
    };
    Ok(stream.respond(&[]))
}

/// Requests a stop of the thread's active run.
///
/// `CopilotKit` names the run by its own id, if it knows one.
async fn stop_thread(
    app: &App,
    authorization: Authorization,
    thread: &SessionId,
    body: &Map<String, Value>,
    audience: Audience,
) -> Result<Response, Problem> {
    let by = authorization.requester(audience, Via::Copilotkit);
    authorize_also(app, authorization, Verb::Control, Resource::Thread(thread), Some(audience)).await?;
    let run = body::text(body, "runId")?.and_then(|run| RunId::new(run).ok());
    let thread = Thread::find(app, thread).await?;
    Ok(no_store_json(requests::stop(app, &thread, run.as_ref(), &by).await?.to_json()))
}
