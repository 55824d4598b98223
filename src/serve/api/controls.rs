//! Controls over HTTP: clients submit them, and the owner of the target claims and answers them.
//!
//! A long poll only holds its place in the agent's queue, and ends early when the server stops. One task
//! ([`ControlMaintenance`](crate::serve::maintenance::controls::ControlMaintenance)) handles controls that are not
//! claimed or not answered in time.

use super::hydrate::no_such_run;
use super::link_decision;
use super::sessions::no_such_session;
use crate::auth::rights::Verb;
use crate::control::held::HELD_SECRETS_SHARE_BYTES_MAX;
use crate::control::rules::{ControlRequest, InvalidControl};
use crate::control::{self, Answer, CONTROL_BYTES_MAX, Claim, ClaimedControl, ControlError, Requester};
use crate::ingest::WriterView;
use crate::log::LogId;
use crate::log::control::OPEN_CONTROLS_MAX;
use crate::model::decided_by::Via;
use crate::model::{AgentId, ControlId, halves};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize};
use crate::serve::access::quota::quota_exceeded;
use crate::serve::http::body::{BodyDeadline, check_depth, is_lines, read_body};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, path_id};
use crate::serve::http::response::{echo, no_store_json};
use crate::serve::transport::peer::Peer;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum wait of a long poll, in seconds. A longer `wait` is lowered to it.
const WAIT_SECS_MAX: u64 = 60;
/// Controls per claim: default and maximum.
const CLAIM_DEFAULT: u64 = 16;
const CLAIM_MAX: u64 = 100;
/// Lease duration in seconds: default and maximum. The minimum is 1.
const LEASE_SECS_DEFAULT: u64 = 30;
const LEASE_SECS_MAX: u64 = 600;

/// Records a control and queues it for its owner.
///
/// `POST /v1/runs/{run}/controls` and `POST /v1/sessions/{session}/controls`.
pub async fn post(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    app.disk.check_space()?;
    let (head, body) = request.into_parts();
    let log = log_of(&head.uri)?;
    let audience = Query::from_uri(&head.uri).audience()?;
    let body = object(&app, &head.headers, body).await?;
    if let Some(link) = authorization.link() {
        let by = authorization.requester(audience, Via::Link);
        let (turn, body) = link_decision::reserve(&app, link, &log, body).await?;
        let submitted = submit(&app, &authorization, &log, body, by).await;
        // After a failure of the store, the control may be there.
        if submitted.as_ref().is_err_and(|problem| problem.status.is_client_error()) {
            turn.give_back().await?;
        }
        return Ok((StatusCode::ACCEPTED, no_store_json(submitted?)).into_response());
    }
    let mut by = authorization.requester(audience, via(&head.headers));
    if let LogId::Session(_) = log {
        by.owner = authorization.requested_owner(&Query::from_uri(&head.uri))?;
    }
    let answer = submit(&app, &authorization, &log, body, by).await?;
    Ok((StatusCode::ACCEPTED, no_store_json(answer)).into_response())
}

/// Records the control of a body or a message, and answers with its id.
///
/// # Errors
/// Why the control was refused.
pub(in crate::serve) async fn submit(
    app: &App,
    authorization: &Authorization,
    log: &LogId,
    body: Map<String, Value>,
    by: Requester,
) -> Result<Value, Problem> {
    let given = match log {
        LogId::Run(run) => run.as_str(),
        LogId::Session(session) => session.as_str(),
    };
    let request = ControlRequest::parse(body, log.kind(), given, (app.environment.now)()).map_err(bad_control)?;
    if request.on_behalf_of.is_some() && !authorization.can(Verb::Impersonate) {
        let detail = "The token may not decide for another person. Omit onBehalfOf, or use a token with the verb impersonate.";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", Verb::Impersonate.as_str()));
    }
    // The addresses of existing clients name the agent, too, and ask for the same right.
    if let Some(agent) = request.targets.get("agentId") {
        let agent: AgentId = id_of("agentId", agent)?;
        authorize(app, authorization.principal(), Verb::Control, Resource::Agent(&agent), None).await?;
    }
    let has_session = match log {
        LogId::Session(_) => true,
        LogId::Run(_) => {
            let summary = app.logs.log(log).await?.tail().summary;
            summary.session_id.as_ref().is_none_or(|session| authorization.has_session(session))
        }
    };
    let by = Requester { has_session, ..by };
    let submitted = app.controls.submit(&app.logs, &app.ingest, log, &request, &by).await.map_err(control_problem)?;
    let mut answer = json!({ "controlId": submitted.id, "status": "queued" });
    if let Some((have, need)) = submitted.approvals {
        (answer["have"], answer["need"]) = (have.into(), need.into());
    }
    Ok(answer)
}

/// `DELETE /v1/controls/{control}`: withdraws a control that no owner has claimed.
pub async fn withdraw(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let id: ControlId = path_id("controlId", &uri)?;
    let audience = Query::from_uri(&uri).audience()?;
    let unknown = || {
        let detail = format!("No open control {id} exists here: it is unknown, answered, expired or withdrawn.");
        Problem::not_found("no_such_control", detail)
    };
    let log = app.logs.queues().log_of(&id).ok_or_else(unknown)?;
    let summary = app.logs.log(&log).await?.tail().summary;
    let is_seen = |view: &WriterView<'_>| view.controls.get(&id).is_some_and(|known| audience.admits(known.audience));
    // One answer, whether a control does not exist or belongs to others.
    if !authorization.has_log(&log, summary.session_id.as_ref(), summary.extension.owner.as_ref())
        || !app.ingest.read(&log, is_seen).await?
    {
        return Err(unknown());
    }
    if !app.controls.withdraw(&app.logs, &app.ingest, &log, &id).await? {
        let detail = format!("Control {id} is claimed, so its owner decides about it. Wait for the answer.");
        return Err(Problem::new(StatusCode::CONFLICT, "control_claimed", detail).with("member", "controlId"));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The header in which the page and the command line name themselves.
pub const CLIENT: &str = "x-proscenium-client";

/// The face of a request to a native address.
pub(in crate::serve) fn via(headers: &HeaderMap) -> Via {
    match headers.get(CLIENT).map(HeaderValue::as_bytes) {
        Some(b"page") => Via::Page,
        Some(b"cli") => Via::Cli,
        _ => Via::Rest,
    }
}

/// Lists the controls of a log, in submission order.
///
/// `GET /v1/runs/{run}/controls` and `GET /v1/sessions/{session}/controls`.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let (log, query) = (log_of(&uri)?, Query::from_uri(&uri));
    let reader = authorization.requester(query.audience()?, Via::Rest);
    let (limit, after) = (query.page_size()?, query.number("cursor")?.unwrap_or(0));
    let listed = control::list(&app.logs, &log, &reader, after, limit).await?;
    let (controls, next) = match (listed, &log) {
        (Some(listed), _) => listed,
        (None, LogId::Run(run)) => return Err(no_such_run(run)),
        // The session may have runs but no log of its own.
        (None, LogId::Session(session)) if app.logs.sessions().created_order(session).is_some() => (Vec::new(), None),
        (None, LogId::Session(session)) => return Err(no_such_session(session)),
    };
    let next = next.map(|number| number.to_string());
    Ok(no_store_json(echo(&query, json!({ "controls": controls, "nextCursor": next }))))
}

/// `POST /v1/agents/{agent}/controls/claim`: leases controls from the agent's queue.
///
/// Empty if none came in time.
pub async fn claim(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    peer: Option<Extension<Peer>>,
    uri: Uri,
) -> Result<Response, Problem> {
    let agent: AgentId = path_id("agentId", &uri)?;
    let query = Query::from_uri(&uri);
    let claim_limits = Claim { covers: authorization.claim_filter(), ..claim_limits(&query)? };
    let wait = query.number("wait")?.unwrap_or(0).min(WAIT_SECS_MAX);
    let until = Instant::now() + Duration::from_secs(wait);
    let is_present = || peer.as_ref().is_none_or(|Extension(peer)| !peer.has_left());
    let left = async {
        match &peer {
            Some(Extension(peer)) => peer.left().await,
            None => pending().await,
        }
    };
    let stopping = app.stopping.waiter();
    let mut access = if wait > 0 { authorization.open_counted(&app)? } else { authorization.into_open_access() };
    let controls = tokio::select! {
        biased;
        // The token may end while the client waits.
        problem = access.ended() => return Err(problem),
        () = left => Vec::new(),
        claimed = app.controls.claim(&app.logs, &app.ingest, &agent, claim_limits, Some(until), is_present) => claimed?,
        _ = stopping.requested() => Vec::new(),
    };
    Ok(claimed(&agent, &controls))
}

/// Whether requests of this path wait for controls.
#[must_use]
pub fn is_claim_path(path: &str) -> bool {
    path.starts_with("/v1/agents/") && path.ends_with("/controls/claim")
}

/// The answer to a claim whose client has closed its side of the connection: the end of the socket ends the claim.
///
/// # Errors
/// For a path without an agent.
pub fn ended_claim(uri: &Uri) -> Result<Response, Problem> {
    let agent: AgentId = path_id("agentId", uri)?;
    Ok(claimed(&agent, &[]))
}

fn claimed(agent: &AgentId, controls: &[ClaimedControl]) -> Response {
    no_store_json(json!({ "agentId": agent, "controls": controls }))
}

/// `POST /v1/controls/{control}/ack`: the owner accepts the control.
pub async fn ack(State(app): State<Arc<App>>, authorization: Authorization, request: Request<Body>) -> Result<Response, Problem> {
    answer(&app, &authorization, request, |_| Ok(Answer::Ack)).await
}

/// `POST /v1/controls/{control}/nack`: the owner refuses the control or returns it to the queue.
pub async fn nack(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    answer(&app, &authorization, request, nack_answer).await
}

async fn answer(
    app: &App,
    authorization: &Authorization,
    request: Request<Body>,
    read_answer: fn(&Map<String, Value>) -> Result<Answer, Problem>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let id: ControlId = path_id("controlId", &head.uri)?;
    let body = object(app, &head.headers, body).await?;
    let lease = match body.get("lease") {
        Some(Value::String(lease)) => lease.as_str(),
        _ => return Err(bad_member("lease", "lease is missing. Send the lease of the claimed control.")),
    };
    let may = |agent: &AgentId| authorization.has_agent(agent);
    let status =
        app.controls.answer(&app.logs, &app.ingest, &id, lease, read_answer(&body)?, may).await.map_err(control_problem)?;
    Ok(no_store_json(json!({ "controlId": id, "status": status })))
}

/// Reads a nack from the members of a body or a message.
pub(in crate::serve) fn nack_answer(body: &Map<String, Value>) -> Result<Answer, Problem> {
    let reason = match body.get("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => Some(reason.clone()),
        Some(_) => return Err(bad_member("reason", "reason is not text. Send a string, or omit it.")),
    };
    match body.get("requeue") {
        None | Some(Value::Null) => Ok(Answer::Nack { reason, requeue: false }),
        Some(Value::Bool(requeue)) => Ok(Answer::Nack { reason, requeue: *requeue }),
        Some(_) => Err(bad_member("requeue", "requeue is not a boolean. Send true or false, or omit it.")),
    }
}

/// Reads the limits of a claim from its query or message.
pub(in crate::serve) fn claim_limits(query: &Query) -> Result<Claim, Problem> {
    let max = query.number("max")?.unwrap_or(CLAIM_DEFAULT).clamp(1, CLAIM_MAX);
    let lease = query.number("leaseSeconds")?.unwrap_or(LEASE_SECS_DEFAULT);
    if !(1..=LEASE_SECS_MAX).contains(&lease) {
        let detail = format!("leaseSeconds is {lease}. It must be 1 to {LEASE_SECS_MAX}.");
        return Err(Problem::bad_request("bad_query", detail).with("member", "leaseSeconds").with("limit", LEASE_SECS_MAX));
    }
    Ok(Claim { max: usize::try_from(max).unwrap_or(1), lease: Duration::from_secs(lease), room: None, covers: None })
}

fn bad_member(member: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", member)
}

fn log_of(uri: &Uri) -> Result<LogId, Problem> {
    Ok(match uri.path().starts_with("/v1/runs/") {
        true => LogId::Run(path_id("runId", uri)?),
        false => LogId::Session(path_id("sessionId", uri)?),
    })
}

/// Reads a body that is one JSON object.
async fn object(app: &App, headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    if is_lines(headers)? {
        let detail = "The body is NDJSON. Send one control at a time, as application/json.";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    let read = read_body(body, CONTROL_BYTES_MAX, &BodyDeadline::new(app.limits.body_time_max)).await;
    let text =
        read.map_err(|problem| if problem.status == StatusCode::PAYLOAD_TOO_LARGE { control_too_large() } else { problem })?;
    check_depth(&text, app.limits.depth_max)?;
    match halves::parse(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let detail = format!("The body is {}. It must be an object.", crate::source::kind_of(&other));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_an_object", detail).with("expected", "one JSON object"))
        }
        Err(error) => {
            let detail = format!("The body is not JSON: {error}. Nothing was recorded.");
            Err(Problem::bad_request("not_json", detail).with("expected", "one JSON object"))
        }
    }
}

/// Refuses a message that is larger than the body of a control may be.
///
/// # Errors
/// 413.
pub(in crate::serve) fn check_size(bytes: usize) -> Result<(), Problem> {
    if bytes > CONTROL_BYTES_MAX { Err(control_too_large()) } else { Ok(()) }
}

pub(in crate::serve) fn control_too_large() -> Problem {
    let remedy = "Store large content elsewhere, and send a reference.";
    let detail = format!("The control is larger than {CONTROL_BYTES_MAX} bytes, the limit. {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "control_too_large", detail).with("limit", CONTROL_BYTES_MAX)
}

fn bad_control(bad_control: InvalidControl) -> Problem {
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_control", bad_control.detail);
    problem.with("member", bad_control.member).with("expected", bad_control.expected)
}

/// Converts a refusal into a problem.
pub(in crate::serve) fn control_problem(refusal: ControlError) -> Problem {
    let detail = refusal.to_string();
    let conflict = |code| Problem::new(StatusCode::CONFLICT, code, detail.clone());
    match refusal {
        ControlError::Invalid(wrong) => bad_control(wrong),
        ControlError::NoSuchRun(_) => Problem::not_found("no_such_run", detail),
        ControlError::NoSuchSession(_) => Problem::not_found("no_such_session", detail),
        ControlError::OutOfScope(_) => Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "session"),
        ControlError::OtherOwner(_) => conflict("other_owner").with("member", "owner"),
        ControlError::Quota(exceeded) => quota_exceeded(&exceeded),
        ControlError::ActionNotPending { .. } => conflict("action_not_pending").with("member", "actionId"),
        ControlError::ActionExpired { .. } => conflict("action_expired").with("member", "actionId"),
        ControlError::ActionChanged { since, .. } => {
            conflict("action_changed").with("member", "actionId").with("sequence", since.0)
        }
        ControlError::ActionDecided { first, .. } => {
            conflict("action_not_pending").with("member", "actionId").with("controlId", first.as_str())
        }
        ControlError::WouldSupersede { actions } => conflict("would_supersede").with("actionIds", json!(actions)),
        ControlError::NotCounted { need, .. } => conflict("approval_not_counted").with("member", "actionId").with("need", need),
        ControlError::RunEnded { .. } => conflict("run_ended"),
        ControlError::Conflict(_) => conflict("control_conflict").with("member", "controlId"),
        ControlError::TooManySecrets => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_secrets", detail).with("limit", HELD_SECRETS_SHARE_BYTES_MAX)
        }
        ControlError::TooMany => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_controls", detail).with("limit", OPEN_CONTROLS_MAX)
        }
        ControlError::NotYours(_) => Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "agent"),
        ControlError::LeaseLost(_) => conflict("lease_lost").with("member", "lease"),
        ControlError::Store(error) => error.into(),
    }
}

/// Reads a claim from the members of a WebSocket message.
pub(in crate::serve) fn claim_request(query: &Query) -> Result<(AgentId, Claim), Problem> {
    let agent = query.get("agentId").ok_or_else(|| {
        Problem::bad_request("missing_member", "agentId is missing. This op requires it.").with("member", "agentId")
    })?;
    Ok((id_of("agentId", agent)?, claim_limits(query)?))
}

/// A claimed control as JSON.
#[must_use]
pub(in crate::serve) fn control_json(handed: &ClaimedControl) -> Value {
    serde_json::to_value(handed).expect("plain data with string keys")
}
