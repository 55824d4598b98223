//! The threads of `CopilotKit`: their list, what is in one, and what people do to one.
//!
//! A thread is a session. A run without a session is a thread by itself: it can be read and deleted, but no list has it,
//! and it has no title and no archive.
//!
//! Each request has an address of its own. The single endpoint takes all of them by its method `resource/request`, with
//! their path and their HTTP method ([`request_by_call`]).

use super::bodies::BodyReader;
use super::threads::{Thread, standalone_run};
use super::{apart, body};
use crate::control::DEFAULT_AGENT;
use crate::encode::ag_ui::{self, AgUiOptions};
use crate::encode::{Begin, Until};
use crate::model::decided_by::Via;
use crate::model::{AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, authorize_request};
use crate::serve::api::erase::{Below, erase_own_sessions, erase_run, erase_session};
use crate::serve::api::session_entry::began_at;
use crate::serve::api::session_list::{SessionList, entry_of};
use crate::serve::api::session_updates::update;
use crate::serve::api::sessions::no_such_session;
use crate::serve::contract::operations::at;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, path_id, quoted};
use crate::serve::http::response::no_store_json;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Request, StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The organization of every thread: this server has no organizations.
const ORGANIZATION: &str = "default";
/// The maker of a thread that the reader may not know, or that no token began.
const ANONYMOUS: &str = "anonymous";

/// A request for threads, by its own address or by the single endpoint.
pub struct ThreadsRequest {
    app: Arc<App>,
    authorization: Authorization,
    uri: Uri,
    /// Empty for a request that only reads.
    body: Map<String, Value>,
}

impl FromRequest<Arc<App>> for ThreadsRequest {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut head, body) = request.into_parts();
        let authorization = Authorization::from_request_parts(&mut head, app).await?;
        let body = match head.method.is_safe() {
            true => Map::new(),
            false => body::object(app, &head.headers, body).await?,
        };
        Ok(Self { app: app.clone(), authorization, uri: head.uri, body })
    }
}

/// Answers a request that the single endpoint got: `params` have its path and its HTTP method.
///
/// # Errors
/// 422 for the path or the method of no such request, or those of the request.
pub async fn request_by_call(
    app: &Arc<App>,
    head: &Parts,
    params: &Map<String, Value>,
    body: Map<String, Value>,
) -> Result<Response, Problem> {
    let text = |member| body::text(params, member).map(Option::unwrap_or_default);
    let (path, method) = (text("path")?, text("httpMethod")?);
    let refused = |member, text: &str, expected| body::bad(member, &quoted(text), expected);
    let expected = "/threads, or a path below it";
    let uri: Uri = format!("/copilotkit{path}").parse().map_err(|_| refused("path", path, expected))?;
    let mut operations: Vec<_> = at(uri.path()).filter(|one| one.path.starts_with("/copilotkit/threads")).collect();
    if operations.is_empty() {
        return Err(refused("path", path, expected));
    }
    // As in the router: `/threads/clear` names no thread.
    let is_named = operations.iter().any(|one| one.path == uri.path());
    operations.retain(|one| !is_named || one.path == uri.path());
    let operation = operations.into_iter().find(|one| one.method.as_str() == method);
    let operation = operation.ok_or_else(|| refused("httpMethod", method, "a method of that path, such as GET"))?;
    let authorization = authorize_request(app, operation.access_rule, &uri, &head.headers).await?;
    let authorized = authorization.clone();
    let request = ThreadsRequest { app: app.clone(), authorization, uri, body };
    let answer = match operation.id {
        "copilotThreads" => list(request).await,
        "copilotChange" => change(request).await,
        "copilotArchive" => archive(request).await,
        "copilotDelete" => delete(request).await,
        "copilotClear" => clear(State(request.app), request.authorization).await,
        "copilotMessages" => messages(request).await,
        "copilotEvents" => events(request).await,
        "copilotState" => state(request).await,
        _ => Err(subscribe().await),
    };
    match operation.method.is_safe() {
        true => authorized.check_read().and(answer),
        false => answer,
    }
}

/// `GET /copilotkit/threads`: the threads of an agent, those with the newest activity first.
pub async fn list(request: ThreadsRequest) -> Result<Response, Problem> {
    let ThreadsRequest { app, authorization, uri, .. } = request;
    let query = Query::from_uri(&uri);
    let agent: Option<AgentId> = query.get("agentId").map(|agent| id_of("agentId", agent)).transpose()?;
    let archived = (!query.is_set("includeArchived")).then_some(false);
    let (limit, audience) = (query.page_size()?, query.audience()?);
    let list = SessionList::of_agent(authorization, audience, agent.clone(), archived);
    let (page, next) = list.page_at(&app, query.get("cursor"), limit).await?;
    let threads = threads(&app, page, agent.as_ref()).await?;
    Ok(no_store_json(json!({ "threads": threads, "nextCursor": next })))
}

/// `PATCH /copilotkit/threads/{thread}`: renames a thread, or takes it out of the archive.
pub async fn change(request: ThreadsRequest) -> Result<Response, Problem> {
    let ThreadChange { thread, audience, agent, body } = ThreadChange::of(&request)?;
    let ThreadsRequest { app, authorization, .. } = request;
    update_thread(&app, &authorization, &thread, &body).await?;
    let entry = entry_of(&app, &authorization, audience, &thread).await?.ok_or_else(|| no_such_session(&thread))?;
    let changed = threads(&app, vec![(thread, entry)], agent.as_ref()).await?;
    Ok(no_store_json(changed.into_iter().next().unwrap_or_default()))
}

/// `POST /copilotkit/threads/{thread}/archive`
pub async fn archive(request: ThreadsRequest) -> Result<Response, Problem> {
    let ThreadChange { thread, .. } = ThreadChange::of(&request)?;
    let body = Map::from_iter([("archived".to_owned(), true.into())]);
    update_thread(&request.app, &request.authorization, &thread, &body).await?;
    Ok(no_store_json(json!({ "threadId": thread, "archived": true })))
}

/// `DELETE /copilotkit/threads/{thread}`: erases a thread with its child sessions.
///
/// The client asks its user whether to delete the conversation, and cannot ask about parts of it.
pub async fn delete(request: ThreadsRequest) -> Result<Response, Problem> {
    let ThreadChange { thread, .. } = ThreadChange::of(&request)?;
    let ThreadsRequest { app, authorization, .. } = request;
    let is_erased = match run_alone(&app, &thread).await? {
        Some(run) => erase_run(&app, &run, &authorization.decider(Via::Copilotkit)).await?,
        None => false,
    };
    if !is_erased {
        erase_session(&app, &authorization, thread.clone(), Below { children: Some(true), branches: true }, Via::Copilotkit)
            .await?;
    }
    Ok(no_store_json(json!({ "threadId": thread, "deleted": true })))
}

/// `POST /copilotkit/threads/clear`: erases the threads that the token's `sub` began.
pub async fn clear(State(app): State<Arc<App>>, authorization: Authorization) -> Result<Response, Problem> {
    erase_own_sessions(&app, &authorization, Via::Copilotkit).await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response())
}

/// `POST /copilotkit/threads/subscribe`
pub async fn subscribe() -> Problem {
    let detail = "This server has no live list for CopilotKit. GET /copilotkit/info says so: realtimeMetadata is false. \
                  Fetch the list again.";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no_live_list", detail)
}

/// `GET /copilotkit/threads/{thread}/messages`
pub async fn messages(request: ThreadsRequest) -> Result<Response, Problem> {
    let (thread, audience) = thread_to_read(&request).await?;
    let app = request.app;
    let shown = thread.shown_activities(&app, audience).await?;
    let messages = move || ag_ui::messages(&shown, false).into_iter().map(message).collect::<Vec<_>>();
    Ok(respond(&app, &thread, audience, json!({ "messages": apart(&app, messages).await })))
}

/// `GET /copilotkit/threads/{thread}/events`
pub async fn events(request: ThreadsRequest) -> Result<Response, Problem> {
    let (thread, audience) = thread_to_read(&request).await?;
    let app = request.app;
    let mut events = Vec::new();
    for part in &thread.runs {
        let shown = part.shown().activities(&app, audience).await?;
        let options = options(&thread.name, &part.run);
        events.extend(apart(&app, move || ag_ui::events(&shown, options)).await);
    }
    Ok(respond(&app, &thread, audience, json!({ "events": events })))
}

/// `GET /copilotkit/threads/{thread}/state`
pub async fn state(request: ThreadsRequest) -> Result<Response, Problem> {
    let (thread, audience) = thread_to_read(&request).await?;
    let app = request.app;
    let shown = thread.shown_activities(&app, audience).await?;
    // The client expects an object or null.
    let state = move || ag_ui::state(&shown).filter(Value::is_object);
    Ok(respond(&app, &thread, audience, json!({ "state": apart(&app, state).await })))
}

/// What a request says of the thread that it changes.
struct ThreadChange {
    thread: SessionId,
    audience: Audience,
    /// The agent in whose list the client shows the thread.
    agent: Option<AgentId>,
    /// The other members.
    body: Map<String, Value>,
}

impl ThreadChange {
    fn of(request: &ThreadsRequest) -> Result<Self, Problem> {
        let (thread, audience) = (path_id("threadId", &request.uri)?, Query::from_uri(&request.uri).audience()?);
        let mut body = request.body.clone();
        let agent = body::text(&body, "agentId")?.map(|_| body::id(&body, "agentId")).transpose()?;
        body.shift_remove("agentId");
        Ok(Self { thread, audience, agent, body })
    }
}

/// The run of this id, if it is a thread by itself.
async fn run_alone(app: &App, thread: &SessionId) -> Result<Option<RunId>, Problem> {
    match app.logs.sessions().created_order(thread) {
        Some(_) => Ok(None),
        None => Ok(standalone_run(app, thread).await?.map(|part| part.run)),
    }
}

async fn update_thread(
    app: &App,
    authorization: &Authorization,
    thread: &SessionId,
    body: &Map<String, Value>,
) -> Result<(), Problem> {
    if let Some(run) = run_alone(app, thread).await? {
        let detail = format!(
            "Thread {run} is a run without a session, so it has no title and no archive. Report runs with a sessionId to have \
             a thread that can be changed."
        );
        return Err(Problem::not_found("no_such_session", detail));
    }
    update(app, thread, body, "name", &authorization.decider(Via::Copilotkit)).await
}

/// The threads of these sessions, with their entries in lists. `agent`: in whose list the client shows them.
async fn threads(app: &App, of: Vec<(SessionId, Value)>, agent: Option<&AgentId>) -> Result<Vec<Value>, Problem> {
    let began = began_at(app, of.iter().map(|(session, _)| session.clone()).collect()).await?;
    Ok(of.into_iter().zip(began).map(|((session, entry), began)| thread(&session, &entry, began, agent)).collect())
}

fn thread(session: &SessionId, entry: &Value, began: Option<jiff::Timestamp>, agent: Option<&AgentId>) -> Value {
    let agents = entry["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown_for = agent.map(AgentId::as_str).filter(|agent| agents.iter().any(|of| of == agent));
    let newest = agents.first().and_then(Value::as_str);
    let last_run = entry["lastActivity"].as_str();
    let began = began.map(|began| format!("{began:.3}"));
    // A session that was erased since it was listed has no beginning.
    let created = began.as_deref().or(last_run).unwrap_or_default();
    let mut thread = json!({
        "id": session,
        "organizationId": ORGANIZATION,
        "agentId": shown_for.or(newest).unwrap_or(DEFAULT_AGENT),
        "createdById": entry["createdBy"].as_str().unwrap_or(ANONYMOUS),
        "name": entry["title"],
        "archived": entry["archived"] == true,
        "createdAt": created,
        "updatedAt": last_run.unwrap_or(created),
    });
    if let Some(last_run) = last_run {
        thread["lastRunAt"] = last_run.into();
    }
    thread
}

/// The thread of a request that reads it. An unknown thread is empty, as in a join.
async fn thread_to_read(request: &ThreadsRequest) -> Result<(Thread, Audience), Problem> {
    let (thread, audience) = (path_id("threadId", &request.uri)?, Query::from_uri(&request.uri).audience()?);
    Ok((Thread::find(&request.app, &thread).await?, audience))
}

fn respond(app: &Arc<App>, thread: &Thread, audience: Audience, answer: Value) -> Response {
    let runs = thread.runs.iter().map(|part| part.run.clone()).collect();
    BodyReader::new(app, audience, runs).respond(answer)
}

fn options(thread: &SessionId, run: &RunId) -> AgUiOptions {
    AgUiOptions {
        thread: thread.to_string(),
        run: run.to_string(),
        begin: Begin::Replay,
        until: Until::Pause,
        is_v1: false,
        subagents: false,
        messages: Vec::new(),
    }
}

/// An AG-UI message in the form of this list: calls without nesting, and activities without their content.
fn message(mut message: Value) -> Value {
    let calls = message["toolCalls"].as_array().map(|calls| {
        let call =
            |call: &Value| json!({ "id": call["id"], "name": call["function"]["name"], "args": call["function"]["arguments"] });
        calls.iter().map(call).collect::<Value>()
    });
    let mut members = Map::new();
    let is_activity = message["role"] == "activity";
    for member in ["id", "role", "content", "toolCallId", "activityType"] {
        let value = message[member].take();
        if !value.is_null() && (member != "content" || !is_activity) {
            members.insert(member.to_owned(), value);
        }
    }
    members.extend(calls.map(|calls| ("toolCalls".to_owned(), calls)));
    members.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_members_that_the_inspector_reads_and_no_others() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "search", "arguments": "{}" } });
        for (given, expected) in [
            (
                json!({ "id": "u", "role": "user", "content": "Hi", "name": "x" }),
                json!({ "id": "u", "role": "user", "content": "Hi" }),
            ),
            (
                json!({ "id": "c", "role": "assistant", "content": null, "toolCalls": [call] }),
                json!({ "id": "c", "role": "assistant", "toolCalls": [{ "id": "c", "name": "search", "args": "{}" }] }),
            ),
            (
                json!({ "id": "r", "role": "tool", "content": "1", "toolCallId": "c" }),
                json!({ "id": "r", "role": "tool", "content": "1", "toolCallId": "c" }),
            ),
            (
                json!({ "id": "p", "role": "activity", "activityType": "plan", "content": { "items": [] } }),
                json!({ "id": "p", "role": "activity", "activityType": "plan" }),
            ),
        ] {
            assert_eq!(message(given), expected);
        }
    }
}
