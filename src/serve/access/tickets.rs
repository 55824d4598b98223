//! `POST /v1/tickets`: tickets for clients that cannot send headers.

use super::authorization::{Authorization, Resource, authorize};
use crate::auth::rights::Verb;
use crate::auth::tickets::{Purpose, TICKET_TTL_SECS_MAX, TicketScope, TooManyTickets};
use crate::model::{RunId, SessionId};
use crate::serve::App;
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::id_of;
use crate::serve::http::response::no_store_json;
use crate::source::kind_of;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum size of the body, in bytes.
const BODY_BYTES_MAX: usize = 4096;

/// The members of a request.
const MEMBERS: [&str; 4] = ["for", "run", "session", "ttlSeconds"];

/// Issues a ticket, if the client may do what it permits.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let asked = read_object(&app, request, BODY_BYTES_MAX).await?;
    if let Some(unknown) = asked.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
        let detail = format!("{unknown} is not a member of a ticket request. Its members are {}.", MEMBERS.join(", "));
        return Err(Problem::bad_request("bad_query", detail).with("member", unknown.as_str()));
    }
    let text = |member: &'static str| match asked.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => {
            let detail = format!("{member} is {}. It must be text.", kind_of(other));
            Err(Problem::bad_request("bad_query", detail).with("member", member))
        }
    };
    let purpose = match text("for")? {
        Some("stream") => Purpose::Stream,
        Some("ws") => Purpose::Socket,
        other => {
            let detail = format!("for is {:?}. It must be stream or ws.", other.unwrap_or_default());
            return Err(Problem::bad_request("bad_query", detail)
                .with("member", "for")
                .with("expected", ["stream", "ws"].as_slice()));
        }
    };
    let seconds = match asked.get("ttlSeconds") {
        None => TICKET_TTL_SECS_MAX,
        Some(seconds) => seconds.as_u64().filter(|seconds| (1..=TICKET_TTL_SECS_MAX).contains(seconds)).ok_or_else(|| {
            let detail = format!("ttlSeconds is {seconds}. It must be a whole number from 1 to {TICKET_TTL_SECS_MAX}.");
            Problem::bad_request("bad_query", detail).with("member", "ttlSeconds").with("limit", TICKET_TTL_SECS_MAX)
        })?,
    };
    let only = match (text("run")?, text("session")?) {
        (None, None) => None,
        (Some(run), None) => Some(TicketScope::Run(id_of::<RunId>("run", run)?)),
        (None, Some(session)) => Some(TicketScope::Session(id_of::<SessionId>("session", session)?)),
        (Some(_), Some(_)) => {
            let detail = "The request names both a run and a session. Name one of them.";
            return Err(Problem::bad_request("bad_query", detail).with("member", "session"));
        }
    };
    if purpose == Purpose::Stream || only.is_some() {
        let target = match &only {
            None => Resource::Unspecified,
            Some(TicketScope::Run(run)) => Resource::Run(run),
            Some(TicketScope::Session(session)) => Resource::Session(session),
        };
        // Each message of a WebSocket is authorized when it arrives.
        let verb =
            if purpose == Purpose::Stream { Some(Verb::Read) } else { Verb::ALL.into_iter().find(|v| authorization.can(*v)) };
        authorize(&app, authorization.principal(), verb.unwrap_or(Verb::Read), target, None).await?;
    }
    let now = (app.environment.now)().as_second();
    let (ticket, until) = match (&app.authenticator, authorization.principal().grant()) {
        (Some(authenticator), Some(grant)) => {
            let made = authenticator.ticket(grant, purpose, only, seconds);
            made.map_err(|error @ TooManyTickets(limit)| {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tickets", error.to_string()).with("limit", limit)
            })?
        }
        // Without authentication the server never checks it. A client that always requests a ticket works here, too.
        _ => (format!("{:032x}", (app.environment.random)()), u64::try_from(now).unwrap_or(0) + seconds),
    };
    let until = i64::try_from(until).ok().and_then(|until| jiff::Timestamp::from_second(until).ok());
    Ok(no_store_json(json!({ "ticket": ticket, "expiresAt": until.map(|until| until.to_string()) })))
}
