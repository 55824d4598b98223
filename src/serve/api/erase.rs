//! Erasing runs, sessions and owners, permanently.

use super::controls::via;
use super::hydrate::no_such_run;
use super::sessions::no_such_session;
use crate::audit::{AuditEntry, Deed};
use crate::holds::Held;
use crate::log::LogId;
use crate::log::erased::ErasureTarget;
use crate::model::decided_by::{Decider, Via};
use crate::model::{OwnerId, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::http::response::no_store_json;
use crate::serve::maintenance::erase::{EraseError, begin, complete, erase_alone};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::json;
use std::collections::BTreeSet;
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
    let needing = app.branches.needing(&run).await?;
    if !needing.is_empty() {
        let named: Vec<_> = needing.into_iter().filter(|branch| authorization.has_session(branch)).collect();
        return Err(has_branches(&LogId::Run(run), &named));
    }
    match erase_run(&app, &run, &authorization.decider(via(&parts.headers))).await? {
        true => Ok(erased()),
        false => Err(no_such_run(&run)),
    }
}

/// Erases a run. Returns once no data of it can return to a reader, even after a crash. `false`: it does not exist.
///
/// # Errors
/// 409 for a run that is held, or the store's failure.
pub(in crate::serve) async fn erase_run(app: &Arc<App>, run: &RunId, by: &Decider) -> Result<bool, Problem> {
    Ok(erase_alone(app, run, audited(app, by).about(&LogId::Run(run.clone()))).await?)
}

/// `DELETE /v1/sessions/{session}`: erases a session, its runs, and, with `children=true`, those below it.
///
/// The answer comes once no data of them can return to a reader, even after a crash.
pub async fn session(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let session: SessionId = path_id("sessionId", &parts.uri)?;
    let query = Query::from_uri(&parts.uri);
    let below = Below { children: flag(&query, "children")?, branches: flag(&query, "branches")? == Some(true) };
    erase_session(&app, &authorization, session, below, via(&parts.headers)).await.map(|()| erased())
}

/// What is erased with a session.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct Below {
    /// Whether to erase the child sessions. `None`: it must have none.
    pub children: Option<bool>,
    /// Whether to erase the branches, which need what they have of the session. Otherwise it must have none.
    pub branches: bool,
}

/// Erases a session and its runs. Returns once no data of them can return to a reader, even after a crash.
///
/// # Errors
/// 404 for an unknown session, 409 for one with children or branches, or that is held, or the store's failure.
pub(in crate::serve) async fn erase_session(
    app: &App,
    authorization: &Authorization,
    session: SessionId,
    below: Below,
    via: Via,
) -> Result<(), Problem> {
    let is_under_way = ErasureTarget::Session(session.clone()).is_being_erased(app.logs.server_state());
    if !is_under_way && app.logs.sessions().created_order(&session).is_none() {
        return Err(no_such_session(&session));
    }
    let mut children = children_of(app, authorization, &session);
    match below.children {
        None if !children.is_empty() && !is_under_way => return Err(has_children(&session, &children)),
        Some(true) => {}
        _ => children.clear(),
    }
    let erased: BTreeSet<_> = std::iter::once(session.clone()).chain(children).collect();
    let branches = branches_of(app, &erased);
    // A branch that the token does not cover is neither named nor erased, and keeps the session.
    let are_covered = branches.iter().all(|branch| authorization.has_session(branch));
    let are_erased = below.branches && are_covered || is_under_way;
    if !branches.is_empty() && !are_erased {
        let named = branches.into_iter().filter(|branch| authorization.has_session(branch)).collect::<Vec<_>>();
        return Err(has_branches(&LogId::Session(session), &named));
    }
    erase_sessions(app, erased.into_iter().chain(branches).collect(), &authorization.decider(via)).await
}

/// Erases the sessions that the token's `sub` began and that the token covers, with those below them.
///
/// # Errors
/// 403 without a `sub`, 409 if one of them is held, or the store's failure.
pub(in crate::serve) async fn erase_own_sessions(app: &App, authorization: &Authorization, via: Via) -> Result<(), Problem> {
    let Some(sub) = authorization.subject() else {
        let detail = "This server has no authentication, so it does not know which sessions are yours. Nothing was erased. \
                      Erase them one by one.";
        return Err(forbidden("sub", detail.into()));
    };
    let mut own = app.logs.sessions().created_by(&sub);
    own.retain(|session| authorization.has_session(session));
    let below: Vec<_> = own.iter().flat_map(|session| children_of(app, authorization, session)).collect();
    let mut sessions: BTreeSet<_> = own.into_iter().chain(below).collect();
    sessions.extend(branches_of(app, &sessions));
    sessions.retain(|session| authorization.has_session(session));
    erase_sessions(app, sessions.into_iter().collect(), &authorization.decider(via)).await
}

/// The sessions below one, as far as the token covers them. The others it neither names nor erases.
fn children_of(app: &App, authorization: &Authorization, session: &SessionId) -> Vec<SessionId> {
    let mut children = app.logs.sessions().children_of(session);
    children.retain(|child| authorization.has_session(child));
    children
}

/// The branches of these sessions that are none of them.
fn branches_of(app: &App, of: &BTreeSet<SessionId>) -> Vec<SessionId> {
    let mut branches: Vec<_> = of.iter().flat_map(|session| app.logs.sessions().branches_below(session)).collect();
    branches.retain(|branch| !of.contains(branch));
    branches.sort_unstable();
    branches.dedup();
    branches
}

/// Begins the erasure of these sessions, with its audit, and waits until they are gone.
async fn erase_sessions(app: &App, sessions: Vec<SessionId>, by: &Decider) -> Result<(), Problem> {
    let targets: Vec<_> = sessions.iter().cloned().map(ErasureTarget::Session).collect();
    let entry = audited(app, by);
    let audit: Vec<_> = sessions.into_iter().map(|session| entry.clone().about(&LogId::Session(session))).collect();
    // All begin before the wait: a client that goes away stops none of them.
    begin(app, &targets, &audit).await?;
    Ok(complete(app, &targets).await?)
}

/// `DELETE /v1/owners/{owner}`: erases all sessions and runs of an owner.
pub async fn owner(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let owner: OwnerId = path_id("ownerId", &parts.uri)?;
    authorization.check_owner(&owner)?;
    let wait = Query::from_uri(&parts.uri).number("wait")?.unwrap_or(OWNER_WAIT_SECS_MAX).min(OWNER_WAIT_SECS_MAX);
    let targets = [ErasureTarget::Owner(owner.clone())];
    let audit = audited(&app, &authorization.decider(via(&parts.headers))).with_id(owner.as_str());
    begin(&app, &targets, &[audit]).await?;
    let completing = tokio::time::timeout(Duration::from_secs(wait), complete(&app, &targets));
    if wait > 0
        && let Ok(completed) = completing.await
    {
        return completed.map(|()| erased()).map_err(Problem::from);
    }
    let left = app.logs.sessions().use_of(&owner).sessions;
    Ok((StatusCode::ACCEPTED, no_store_json(json!({ "ownerId": owner, "sessions": left }))).into_response())
}

fn audited(app: &App, by: &Decider) -> AuditEntry {
    AuditEntry::new(Deed::Erase, by.clone(), (app.environment.now)())
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

impl From<EraseError> for Problem {
    fn from(error: EraseError) -> Self {
        match error {
            EraseError::Held(held) => is_held(&held),
            EraseError::RunHeld(on) => held_by("The run is held", &on, None),
            EraseError::Store(error) => error.into(),
        }
    }
}

/// 409 for what a hold keeps. The reason of the hold is for those who may list holds.
fn is_held(held: &[Held]) -> Problem {
    let sessions = held.iter().filter_map(|held| match &held.what {
        ErasureTarget::Session(session) => Some(session),
        ErasureTarget::Owner(_) => None,
    });
    let named: Vec<_> = sessions.take(NAMED_CHILDREN_MAX).collect();
    let more = match held.len() {
        1 => String::new(),
        count => format!(", and so are {} others", count - 1),
    };
    let first = &held[0];
    let problem = held_by(&format!("The {} is held{more}", first.what), &first.on, Some(&first.what));
    match named.is_empty() {
        true => problem,
        false => problem.with("count", held.len()).with("sessionIds", json!(named)),
    }
}

fn held_by(what: &str, on: &ErasureTarget, erased: Option<&ErasureTarget>) -> Problem {
    let on = match on {
        // The token may not cover a session above the one that it covers.
        ErasureTarget::Session(_) if erased.is_some_and(|erased| erased != on) => "a session of it, or above it".to_owned(),
        ErasureTarget::Session(_) if erased.is_none() => "its session, or one above that".to_owned(),
        _ => on.to_string(),
    };
    let detail = format!("{what}. Nothing was erased. The hold on {on} must be lifted first, with the verb admin.");
    Problem::new(StatusCode::CONFLICT, "held", detail)
}

fn has_branches(of: &LogId, branches: &[SessionId]) -> Problem {
    let (count, named) = (branches.len(), &branches[..branches.len().min(NAMED_CHILDREN_MAX)]);
    let remedy = match of {
        LogId::Session(_) => "Repeat the request with branches=true to erase them with it, if your token covers them all.",
        LogId::Run(_) => "Erase the branches first, or the whole session with branches=true.",
    };
    let detail = format!("{of} is a part of {count} branches that you can see, or of others. Nothing was erased. {remedy}");
    Problem::new(StatusCode::CONFLICT, "has_branches", detail).with("count", count).with("sessionIds", json!(named))
}

fn has_children(session: &SessionId, children: &[SessionId]) -> Problem {
    let (count, named) = (children.len(), &children[..children.len().min(NAMED_CHILDREN_MAX)]);
    let detail = format!(
        "Session {session} has {count} child sessions. Nothing was erased. Repeat the request with children=true to erase them \
         with it, or with children=false to keep them."
    );
    Problem::new(StatusCode::CONFLICT, "has_children", detail).with("count", count).with("sessionIds", json!(named))
}
