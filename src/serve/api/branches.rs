//! Branches over HTTP: `POST /v1/sessions/{session}/branches`, and the branch that existing clients read and write.

use super::controls::{control_problem, via};
use super::link_decision::bad_member;
use super::session_list::entry_of;
use super::sessions::no_such_session;
use crate::auth::rights::Verb;
use crate::branches::{BRANCHES_MAX, BranchError, NewBranch};
use crate::model::decided_by::Decider;
use crate::model::{RunId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize_also, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, path_id};
use crate::serve::http::response::no_store_json;
use crate::source::kind_of;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;
const AFTER: &str = "{runId, sequence} or {messageId}";

/// Where a request wants the branch to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
enum After {
    Sequence(RunId, Sequence),
    Message(String),
}

/// A request for a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BranchRequest {
    after: After,
    id: Option<SessionId>,
}

impl BranchRequest {
    fn from_body(body: &Map<String, Value>) -> Result<Self, Problem> {
        let others = || bad_member("after", format!("The body must have after, {AFTER}, and may have sessionId; nothing else."));
        if body.keys().any(|member| !["after", "sessionId"].contains(&member.as_str())) {
            return Err(others().with("expected", AFTER));
        }
        let after = body.get("after").and_then(Value::as_object).ok_or_else(|| others().with("expected", AFTER))?;
        let refused = |member: &str, why: String| bad_member("after", format!("after.{member} {why}")).with("expected", AFTER);
        let members: Vec<&str> = after.keys().map(String::as_str).collect();
        let after = match members.as_slice() {
            ["messageId"] => match &after["messageId"] {
                Value::String(message) => After::Message(message.clone()),
                other => return Err(refused("messageId", format!("is {}. It must be a string.", kind_of(other)))),
            },
            ["runId", "sequence"] | ["sequence", "runId"] => {
                let run = after["runId"].as_str().ok_or_else(|| refused("runId", "must be the id of a run.".into()))?;
                let sequence = after["sequence"].as_u64().filter(|sequence| *sequence <= Sequence::MAX.0);
                let must = "must be a sequence of the run, or 0 for a branch that leaves before the run.";
                let sequence = sequence.ok_or_else(|| refused("sequence", must.into()))?;
                After::Sequence(id_of("after.runId", run)?, Sequence(sequence))
            }
            _ => return Err(bad_member("after", format!("after must be {AFTER}.")).with("expected", AFTER)),
        };
        let id = match body.get("sessionId") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id_of("sessionId", id)?),
            Some(other) => return Err(bad_member("sessionId", format!("sessionId is {}. It must be a string.", kind_of(other)))),
        };
        Ok(Self { after, id })
    }
}

/// The answer to a refused branch.
pub(in crate::serve) fn branch_problem(error: BranchError) -> Problem {
    let detail = error.to_string();
    match error {
        BranchError::NoSuchSession(session) => no_such_session(&session),
        BranchError::NoSuchPoint { .. } => Problem::not_found("no_such_point", detail).with("member", "after"),
        BranchError::NoSuchMessage { .. } => Problem::not_found("no_such_message", detail).with("member", "after"),
        BranchError::Exists(_) => Problem::new(StatusCode::CONFLICT, "session_exists", detail).with("member", "sessionId"),
        BranchError::IdTooLong(_) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", "sessionId")
        }
        BranchError::TooMany => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_branches", detail).with("limit", BRANCHES_MAX)
        }
        BranchError::NoSuchHead { .. } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", "head")
        }
        BranchError::Refused(refusal) => control_problem(refusal),
    }
}

/// `POST /v1/sessions/{session}/branches`: begins a session that goes on from a point of this one.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    app.disk.check_space()?;
    let session: SessionId = path_id("sessionId", request.uri())?;
    let audience = Query::from_uri(request.uri()).audience()?;
    if authorization.link().is_some() {
        return Err(forbidden("token", "A share link begins no session. Use a token of your own.".into()));
    }
    let by = authorization.requester(audience, via(request.headers()));
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let BranchRequest { after, id } = BranchRequest::from_body(&body)?;
    let authorization = authorize_also(&app, authorization, Verb::Read, Resource::Session(&session), Some(audience)).await?;
    if app.logs.sessions().created_order(&session).is_none() {
        return Err(no_such_session(&session));
    }
    let (run, sequence) = match after {
        After::Sequence(run, sequence) => (run, sequence),
        After::Message(message) => app.branches.after_message(&session, &message, audience).await.map_err(branch_problem)?,
    };
    let new = NewBranch { session: &session, run, sequence, id, name: None };
    let branch = app.branches.begin(new, &by).await.map_err(branch_problem)?;
    let entry = entry_of(&app, &authorization, audience, &branch).await?.ok_or_else(|| no_such_session(&branch))?;
    Ok((StatusCode::CREATED, no_store_json(entry)).into_response())
}

/// Takes the member `head` out of a body that changes a session, and does what it says. `false`: it has none.
pub(super) async fn take_head(
    app: &App,
    session: &SessionId,
    body: &mut Map<String, Value>,
    by: &Decider,
) -> Result<bool, Problem> {
    let head = match body.shift_remove("head") {
        None => return Ok(false),
        Some(Value::Null) => None,
        Some(Value::String(head)) => Some(id_of::<SessionId>("head", &head)?),
        Some(other) => {
            return Err(bad_member("head", format!("head is {}. It must be the id of a branch, or null.", kind_of(&other))));
        }
    };
    app.branches.set_head(session, head.as_ref(), by).await.map_err(branch_problem)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_names_one_point() {
        let read = |body: Value| BranchRequest::from_body(body.as_object().unwrap());
        let after = After::Sequence(RunId::new("r").unwrap(), Sequence(3));
        assert_eq!(read(json!({ "after": { "runId": "r", "sequence": 3 } })).unwrap(), BranchRequest { after, id: None });
        let after = After::Message("m".into());
        let id = Some(SessionId::new("b").unwrap());
        assert_eq!(read(json!({ "after": { "messageId": "m" }, "sessionId": "b" })).unwrap(), BranchRequest { after, id });
        for refused in [
            json!({}),
            json!({ "after": "m" }),
            json!({ "after": {} }),
            json!({ "after": { "runId": "r" } }),
            json!({ "after": { "runId": "r", "sequence": -1 } }),
            json!({ "after": { "runId": "r", "sequence": 1.5 } }),
            json!({ "after": { "runId": "r", "sequence": 1, "messageId": "m" } }),
            json!({ "after": { "messageId": 7 } }),
            json!({ "after": { "messageId": "m" }, "sessionId": 7 }),
            json!({ "after": { "messageId": "m" }, "title": "x" }),
        ] {
            assert_eq!(read(refused.clone()).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
        }
    }
}
