//! Controls over HTTP: asked for by whoever looks at a run, claimed and answered by whoever owns what they would change.
//!
//! A long poll holds nothing but its place at the agent's line, and ends early when the server stops. What is not taken, or not
//! answered, is looked after by one task ([`Keeper`]).

use super::access::Pass;
use super::facts::{check_depth, is_lines};
use super::hydrate::{echo, live, no_such_run, page_size};
use super::problem::Problem;
use super::request::{Query, id_of, path_id};
use super::sessions::no_such_session;
use super::{App, told_to_stop};
use crate::control::rules::{Bad, Wish};
use crate::control::{self, Answer, CONTROL_BYTES_MAX, Claim, Handed, Refusal};
use crate::log::control::OPEN_CONTROLS_MAX;
use crate::log::{LogId, StoreError};
use crate::model::{AgentId, ControlId};
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest poll, in seconds; what asks for more waits as long as this.
const WAIT_SECS_MAX: u64 = 60;
/// Controls that one claim may get: unless it says, and at most.
const CLAIM: u64 = 16;
const CLAIM_MAX: u64 = 100;
/// How long a lease holds, in seconds: unless the claim says, and at most. At least one.
const LEASE_SECS: u64 = 30;
const LEASE_SECS_MAX: u64 = 600;
/// The longest time between two looks at what may have run out.
const ROUND: Duration = Duration::from_millis(250);

/// `POST /v1/runs/{run}/controls` and `POST /v1/sessions/{session}/controls`: recorded, and in the line of who takes it.
pub async fn post(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, Problem> {
    app.disk.has_room()?;
    let (head, body) = request.into_parts();
    let log = log_of(&head.uri)?;
    let audience = Query::of(&head.uri).audience()?;
    let body = object(&app, &head.headers, body).await?;
    let given = match &log {
        LogId::Run(run) => run.as_str(),
        LogId::Session(session) => session.as_str(),
    };
    let wish = Wish::read(body, log.kind(), given, (app.world.now)()).map_err(bad)?;
    let id = app.controls.submit(&app.logs, &app.ingest, &log, &wish, audience).await.map_err(refused)?;
    Ok((StatusCode::ACCEPTED, live(json!({ "controlId": id, "status": "queued" }))).into_response())
}

/// `GET /v1/runs/{run}/controls` and `GET /v1/sessions/{session}/controls`: the controls of a log, in the order in which they
/// were asked for.
pub async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let (log, query) = (log_of(&uri)?, Query::of(&uri));
    let (limit, after) = (page_size(&query)?, query.number("cursor")?.unwrap_or(0));
    let listed = control::list(&app.logs, &log, query.audience()?, after, limit).await?;
    let (controls, next) = match (listed, &log) {
        (Some(listed), _) => listed,
        (None, LogId::Run(run)) => return Err(no_such_run(run)),
        // It may have runs alone.
        (None, LogId::Session(session)) if app.logs.sessions().place_of(session).is_some() => (Vec::new(), None),
        (None, LogId::Session(session)) => return Err(no_such_session(session)),
    };
    let next = next.map(|number| number.to_string());
    Ok(live(echo(&query, json!({ "controls": controls, "nextCursor": next }))))
}

/// `POST /v1/agents/{agent}/controls/claim`: what is in the agent's line, under leases; empty when nothing came in time.
pub async fn claim(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let agent: AgentId = path_id("agentId", &uri)?;
    let query = Query::of(&uri);
    let wanted = wanted(&query)?;
    let wait = query.number("wait")?.unwrap_or(0).min(WAIT_SECS_MAX);
    let until = Instant::now() + Duration::from_secs(wait);
    let mut stopping = app.stopping.subscribe();
    let mut hold = if wait > 0 { pass.open(&app)? } else { pass.hold() };
    let controls = tokio::select! {
        biased;
        // Who waits may have lost the right to it meanwhile.
        problem = hold.over() => return Err(problem),
        claimed = app.controls.claim(&app.logs, &app.ingest, &agent, wanted, Some(until)) => claimed?,
        _ = told_to_stop(&mut stopping) => Vec::new(),
    };
    Ok(live(json!({ "agentId": agent, "controls": controls })))
}

/// `POST /v1/controls/{control}/ack`: its owner took it.
pub async fn ack(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    answer(&app, &pass, request, |_| Ok(Answer::Ack)).await
}

/// `POST /v1/controls/{control}/nack`: its owner refuses it, or gives it back.
pub async fn nack(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    answer(&app, &pass, request, refusal_of).await
}

async fn answer(
    app: &App,
    pass: &Pass,
    request: Request<Body>,
    says: fn(&Map<String, Value>) -> Result<Answer, Problem>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let id: ControlId = path_id("controlId", &head.uri)?;
    let body = object(app, &head.headers, body).await?;
    let lease = match body.get("lease") {
        Some(Value::String(lease)) => lease.as_str(),
        _ => return Err(bad_member("lease", "lease is missing; it is in what was claimed")),
    };
    let may = |agent: &AgentId| pass.has_agent(agent);
    let status = app.controls.answer(&app.logs, &app.ingest, &id, lease, says(&body)?, may).await.map_err(refused)?;
    Ok(live(json!({ "controlId": id, "status": status })))
}

/// A refusal, by the members of a body or of a message.
pub(super) fn refusal_of(body: &Map<String, Value>) -> Result<Answer, Problem> {
    let reason = match body.get("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => Some(reason.clone()),
        Some(_) => return Err(bad_member("reason", "reason is no text")),
    };
    match body.get("requeue") {
        None | Some(Value::Null) => Ok(Answer::Nack { reason, requeue: false }),
        Some(Value::Bool(requeue)) => Ok(Answer::Nack { reason, requeue: *requeue }),
        Some(_) => Err(bad_member("requeue", "requeue is neither true nor false")),
    }
}

/// What a claim asks for, by its query or its message.
pub(super) fn wanted(query: &Query) -> Result<Claim, Problem> {
    let max = query.number("max")?.unwrap_or(CLAIM).clamp(1, CLAIM_MAX);
    let lease = query.number("leaseSeconds")?.unwrap_or(LEASE_SECS);
    if !(1..=LEASE_SECS_MAX).contains(&lease) {
        let detail = format!("leaseSeconds is {lease}; it must be 1 to {LEASE_SECS_MAX}");
        return Err(Problem::bad_request("bad_query", detail).with("member", "leaseSeconds").with("limit", LEASE_SECS_MAX));
    }
    Ok(Claim { max: usize::try_from(max).unwrap_or(1), lease: Duration::from_secs(lease) })
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

/// A body that is one JSON object.
async fn object(app: &App, headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    if is_lines(headers)? {
        let detail = "the body is lines of JSON; send application/json, one control at a time";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
    }
    let text = to_bytes(body, CONTROL_BYTES_MAX).await.map_err(|_| {
        let remedy = "store what it is about elsewhere, and send a reference";
        let detail = format!("the body is larger than {CONTROL_BYTES_MAX} bytes, the limit for a control; {remedy}");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "control_too_large", detail).with("limit", CONTROL_BYTES_MAX)
    })?;
    check_depth(&text, app.limits.depth_max)?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let detail = format!("the body is {}; it must be an object", crate::source::kind_of(&other));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_an_object", detail).with("expected", "one JSON object"))
        }
        Err(error) => {
            let detail = format!("the body is not JSON: {error}; nothing was recorded");
            Err(Problem::bad_request("not_json", detail).with("expected", "one JSON object"))
        }
    }
}

fn bad(bad: Bad) -> Problem {
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_control", bad.detail);
    problem.with("member", bad.member).with("expected", bad.expected)
}

/// A refusal as a problem document.
pub(super) fn refused(refusal: Refusal) -> Problem {
    let detail = refusal.to_string();
    let conflict = |code| Problem::new(StatusCode::CONFLICT, code, detail.clone());
    match refusal {
        Refusal::Bad(wrong) => bad(wrong),
        Refusal::NoSuchRun(_) => Problem::not_found("no_such_run", detail),
        Refusal::NoSuchSession(_) => Problem::not_found("no_such_session", detail),
        Refusal::ActionNotPending { .. } => conflict("action_not_pending").with("member", "actionId"),
        Refusal::RunEnded { .. } => conflict("run_ended"),
        Refusal::Conflict(_) => conflict("control_conflict").with("member", "controlId"),
        Refusal::TooMany => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_controls", detail).with("limit", OPEN_CONTROLS_MAX)
        }
        Refusal::NotYours(_) => Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "agent"),
        Refusal::LeaseLost(_) => conflict("lease_lost").with("member", "lease"),
        Refusal::Store(error) => error.into(),
    }
}

/// The members of a claim over WebSocket.
pub(super) fn claimed_by(query: &Query) -> Result<(AgentId, Claim), Problem> {
    let agent = query.get("agentId").ok_or_else(|| {
        Problem::bad_request("missing_member", "agentId is missing; this op needs it").with("member", "agentId")
    })?;
    Ok((id_of("agentId", agent)?, wanted(query)?))
}

/// A control that was handed over, as a message's members.
#[must_use]
pub(super) fn handed(handed: &Handed) -> Value {
    serde_json::to_value(handed).expect("plain data with string keys")
}

/// Puts back what was taken for too long, and closes what nobody needs to take any more.
pub struct Keeper {
    app: Arc<App>,
}

impl Keeper {
    pub(super) const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Looks after the lines, until it is aborted.
    pub(super) async fn keep(self) {
        loop {
            // Whichever comes first: the next look, or something that is due at once.
            let _ = tokio::time::timeout(ROUND, self.app.logs.queues().sooner()).await;
            if let Err(error) = self.round(Instant::now(), (self.app.world.now)()).await {
                // A failure of the store stops the server elsewhere.
                tracing::warn!(%error, "keeping the controls");
            }
        }
    }

    /// Looks at them once, as of `now`, which is `wall` on the wall; how many were closed.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn round(&self, now: Instant, wall: jiff::Timestamp) -> Result<usize, StoreError> {
        self.app.controls.round(&self.app.logs, &self.app.ingest, now, wall).await
    }
}
