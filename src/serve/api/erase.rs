//! Erasing runs, sessions and owners, permanently.

use super::controls::via;
use super::hydrate::no_such_run;
use super::sessions::no_such_session;
use crate::audit::{AuditEntry, Deed};
use crate::log::LogId;
use crate::log::erased::ErasureTarget;
use crate::model::{OwnerId, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::http::response::no_store_json;
use crate::serve::maintenance::erase::{begin, complete, erase_log};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Child sessions that a refusal names.
const NAMED_CHILDREN_MAX: usize = 100;
/// How long a request waits for the erasure of an owner, in seconds: the default and the maximum.
const OWNER_WAIT_SECS_MAX: u64 = 10;

/// `DELETE /v1/runs/{run}`: erases a run.
///
/// The answer comes once no data of the run can return to a reader, even after a crash.
pub async fn run(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let run: RunId = path_id("runId", &parts.uri)?;
    let log = LogId::Run(run.clone());
    if app.logs.log(&log).await.is_ok_and(|log| log.tail().epoch.is_none()) {
        return Err(no_such_run(&run));
    }
    // Before the erasure: a crash between the two must not hide who asked for it.
    audited(&app, &authorization, &parts).about(&log).record(&app.ingest).await?;
    match erase_log(&app, &log).await? {
        true => Ok(erased()),
        false => Err(no_such_run(&run)),
    }
}

/// `DELETE /v1/sessions/{session}`: erases a session, its runs, and, with `children=true`, those below it.
///
/// The answer comes once no data of them can return to a reader, even after a crash.
pub async fn session(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let session: SessionId = path_id("sessionId", &parts.uri)?;
    let with_children = flag(&Query::from_uri(&parts.uri), "children")?;
    let target = ErasureTarget::Session(session.clone());
    let is_under_way = target.is_being_erased(app.logs.server_state());
    if !is_under_way && app.logs.sessions().created_order(&session).is_none() {
        return Err(no_such_session(&session));
    }
    // What the token does not cover is nothing to it: neither named nor erased.
    let mut children = app.logs.sessions().children_of(&session);
    children.retain(|child| authorization.has_session(child));
    match with_children {
        None if !children.is_empty() && !is_under_way => return Err(has_children(&session, &children)),
        Some(true) => {}
        _ => children.clear(),
    }
    let sessions: Vec<_> = std::iter::once(session).chain(children).collect();
    let entry = audited(&app, &authorization, &parts);
    let audit = sessions.iter().map(|session| entry.clone().about(&LogId::Session(session.clone()))).collect();
    let targets: Vec<_> = sessions.into_iter().map(ErasureTarget::Session).collect();
    begin(&app, &targets, audit).await?;
    complete(&app, &targets).await?;
    Ok(erased())
}

/// `DELETE /v1/owners/{owner}`: erases all sessions and runs of an owner.
pub async fn owner(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let owner: OwnerId = path_id("ownerId", &parts.uri)?;
    authorization.check_owner(&owner)?;
    let wait = Query::from_uri(&parts.uri).number("wait")?.unwrap_or(OWNER_WAIT_SECS_MAX).min(OWNER_WAIT_SECS_MAX);
    let targets = [ErasureTarget::Owner(owner.clone())];
    begin(&app, &targets, vec![audited(&app, &authorization, &parts).with_id(owner.as_str())]).await?;
    let completing = tokio::time::timeout(Duration::from_secs(wait), complete(&app, &targets));
    if wait > 0
        && let Ok(completed) = completing.await
    {
        return completed.map(|()| erased()).map_err(Problem::from);
    }
    let left = app.logs.sessions().use_of(&owner).sessions;
    Ok((StatusCode::ACCEPTED, no_store_json(json!({ "ownerId": owner, "sessions": left }))).into_response())
}

fn audited(app: &App, authorization: &Authorization, parts: &Parts) -> AuditEntry {
    AuditEntry::new(Deed::Erase, authorization.decider(via(&parts.headers)), (app.environment.now)())
}

fn erased() -> Response {
    ([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()
}

/// A flag that has another meaning when it is absent.
fn flag(query: &Query, member: &'static str) -> Result<Option<bool>, Problem> {
    match query.get(member) {
        None => Ok(None),
        Some("" | "true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(other) => {
            let detail = format!("The query's {member} is {other:?}. It must be true or false.");
            Err(Problem::bad_request("bad_query", detail).with("member", member))
        }
    }
}

fn has_children(session: &SessionId, children: &[SessionId]) -> Problem {
    let (count, named) = (children.len(), &children[..children.len().min(NAMED_CHILDREN_MAX)]);
    let detail = format!(
        "Session {session} has {count} child sessions. Nothing was erased. Repeat the request with children=true to erase them \
         with it, or with children=false to keep them."
    );
    Problem::new(StatusCode::CONFLICT, "has_children", detail).with("count", count).with("sessionIds", json!(named))
}
