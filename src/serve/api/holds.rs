//! Legal holds over HTTP: setting, lifting and listing them.
//!
//! All need the verb `admin`: who may erase what is its own must not be able to lift a hold on it. And all need the audience
//! `dashboard`: users learn neither of a hold nor of its reason.

use super::controls::via;
use super::link_decision::{bad_member, text_of};
use super::session_updates::check_members;
use super::sessions::no_such_session;
use crate::holds::{HOLD_REASON_CHARS_MAX, HOLDS_MAX, HoldError};
use crate::log::erased::ErasureTarget;
use crate::model::Audience;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::http::response::no_store_json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body of a request, in bytes: it fits the longest reason, however it is escaped.
const HOLD_BODY_BYTES_MAX: usize = 16 * 1024;

fn reason_of(body: &Map<String, Value>) -> Result<&str, Problem> {
    check_members(body, &["reason"])?;
    let expected = format!("1 to {HOLD_REASON_CHARS_MAX} characters without control characters");
    let refused = |why: &str| bad_member("reason", format!("reason {why}. Send {expected}.")).with("expected", expected.clone());
    let reason = text_of(body, "reason")?.unwrap_or_default().trim();
    match reason.chars().count() {
        0 => Err(refused("is empty")),
        count if count > HOLD_REASON_CHARS_MAX => {
            Err(refused(&format!("has {count} characters")).with("limit", HOLD_REASON_CHARS_MAX))
        }
        _ if reason.chars().any(char::is_control) => Err(refused("has a control character")),
        _ => Ok(reason),
    }
}

impl From<HoldError> for Problem {
    fn from(error: HoldError) -> Self {
        match error {
            HoldError::NoSuchSession(session) => no_such_session(&session),
            HoldError::BeingErased(what) => {
                let detail = format!("The {what} is being erased, which nothing stops. No hold was set.");
                Self::new(StatusCode::CONFLICT, "erasure_under_way", detail)
            }
            HoldError::TooMany(limit) => {
                let detail = format!("The server has {HOLDS_MAX} legal holds, its limit. No hold was set. Lift some.");
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_holds", detail).with("limit", limit)
            }
            HoldError::Store(error) => error.into(),
        }
    }
}

async fn put(app: &App, authorization: &Authorization, on: ErasureTarget, request: Request) -> Result<Response, Problem> {
    authorization.check_audience(Audience::Dashboard)?;
    app.disk.check_space()?;
    let by = authorization.decider(via(request.headers()));
    let body = read_object(app, request, HOLD_BODY_BYTES_MAX).await?;
    let hold = app.holds.set(&on, reason_of(&body)?, by).await?;
    Ok(no_store_json(hold.to_json(&on)))
}

async fn lift(app: &App, authorization: &Authorization, on: ErasureTarget, parts: &Parts) -> Result<Response, Problem> {
    authorization.check_audience(Audience::Dashboard)?;
    match app.holds.lift(&on, authorization.decider(via(&parts.headers))).await? {
        true => Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
        false => {
            let detail = format!("No hold is on {on} itself. Its owner, or a session above it, may have one: GET /v1/holds.");
            Err(Problem::not_found("no_such_hold", detail))
        }
    }
}

/// The owner of a request's path, which the token must cover.
fn owner_of(authorization: &Authorization, uri: &Uri) -> Result<ErasureTarget, Problem> {
    let owner = path_id("ownerId", uri)?;
    authorization.check_owner(&owner)?;
    Ok(ErasureTarget::Owner(owner))
}

/// `PUT /v1/sessions/{session}/hold`
pub async fn put_on_session(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request,
) -> Result<Response, Problem> {
    let on = ErasureTarget::Session(path_id("sessionId", request.uri())?);
    put(&app, &authorization, on, request).await
}

/// `PUT /v1/owners/{owner}/hold`
pub async fn put_on_owner(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request,
) -> Result<Response, Problem> {
    let on = owner_of(&authorization, request.uri())?;
    put(&app, &authorization, on, request).await
}

/// `DELETE /v1/sessions/{session}/hold`
pub async fn lift_of_session(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    parts: Parts,
) -> Result<Response, Problem> {
    let on = ErasureTarget::Session(path_id("sessionId", &parts.uri)?);
    lift(&app, &authorization, on, &parts).await
}

/// `DELETE /v1/owners/{owner}/hold`
pub async fn lift_of_owner(State(app): State<Arc<App>>, authorization: Authorization, parts: Parts) -> Result<Response, Problem> {
    let on = owner_of(&authorization, &parts.uri)?;
    lift(&app, &authorization, on, &parts).await
}

/// `GET /v1/holds`: the holds on what the token covers.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    authorization.check_audience(Audience::Dashboard)?;
    let query = Query::from_uri(&uri);
    let limit = query.page_size()?;
    let after = query.get("cursor").unwrap_or_default().to_owned();
    let covers = |on: &ErasureTarget| match on {
        ErasureTarget::Session(session) => authorization.has_session(session),
        ErasureTarget::Owner(owner) => authorization.check_owner(owner).is_ok(),
    };
    // In the order of their keys.
    let all = app.holds.all().into_iter().filter(|(on, _)| on.key() > after && covers(on));
    let mut page: Vec<_> = all.take(limit + 1).collect();
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| has_more).map(|(on, _)| on.key());
    let holds: Vec<_> = page.iter().map(|(on, hold)| hold.to_json(on)).collect();
    Ok(no_store_json(json!({ "holds": holds, "nextCursor": next })))
}
