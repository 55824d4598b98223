//! `POST /v1/tickets`: for readers that can send no header.

use super::App;
use super::access::{Pass, Target, allow};
use super::facts::{Pace, read_whole};
use super::hydrate::live;
use super::problem::Problem;
use super::request::id_of;
use crate::auth::rights::Verb;
use crate::auth::tickets::{Only, Purpose, SECONDS_MAX, TooMany};
use crate::model::{RunId, SessionId};
use crate::source::kind_of;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body, in bytes.
const BODY_BYTES_MAX: usize = 4096;

/// What may be asked for.
const MEMBERS: [&str; 4] = ["for", "run", "session", "ttlSeconds"];

/// Makes a ticket, for whoever may do with it what it is for.
pub async fn post(State(app): State<Arc<App>>, pass: Pass, request: Request) -> Result<Response, Problem> {
    let body = read_whole(Body::new(request.into_body()), BODY_BYTES_MAX, &Pace::new(app.limits.body_time_max)).await?;
    let asked: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request("not_json", format!("the body is no JSON object: {error}")).with("expected", "one JSON object")
    })?;
    if let Some(unknown) = asked.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
        let detail = format!("{unknown} is nothing that a ticket has; it has {}", MEMBERS.join(", "));
        return Err(Problem::bad_request("bad_query", detail).with("member", unknown.as_str()));
    }
    let text = |member: &'static str| match asked.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => {
            let detail = format!("{member} is {}; it must be text", kind_of(other));
            Err(Problem::bad_request("bad_query", detail).with("member", member))
        }
    };
    let purpose = match text("for")? {
        Some("stream") => Purpose::Stream,
        Some("ws") => Purpose::Socket,
        other => {
            let detail = format!("for is {:?}; it must be stream or ws", other.unwrap_or_default());
            return Err(Problem::bad_request("bad_query", detail)
                .with("member", "for")
                .with("expected", ["stream", "ws"].as_slice()));
        }
    };
    let seconds = match asked.get("ttlSeconds") {
        None => SECONDS_MAX,
        Some(seconds) => seconds.as_u64().filter(|seconds| (1..=SECONDS_MAX).contains(seconds)).ok_or_else(|| {
            let detail = format!("ttlSeconds is {seconds}; it must be a whole number from 1 to {SECONDS_MAX}");
            Problem::bad_request("bad_query", detail).with("member", "ttlSeconds").with("limit", SECONDS_MAX)
        })?,
    };
    let only = match (text("run")?, text("session")?) {
        (None, None) => None,
        (Some(run), None) => Some(Only::Run(id_of::<RunId>("run", run)?)),
        (None, Some(session)) => Some(Only::Session(id_of::<SessionId>("session", session)?)),
        (Some(_), Some(_)) => {
            let detail = "a ticket is for a run or for a session; this one names both";
            return Err(Problem::bad_request("bad_query", detail).with("member", "session"));
        }
    };
    if purpose == Purpose::Stream || only.is_some() {
        let target = match &only {
            None => Target::Several,
            Some(Only::Run(run)) => Target::Run(run),
            Some(Only::Session(session)) => Target::Session(session),
        };
        // Of a WebSocket's messages each is asked for when it comes.
        let verb = if purpose == Purpose::Stream { Some(Verb::Read) } else { Verb::ALL.into_iter().find(|v| pass.can(*v)) };
        allow(&app, pass.who(), verb.unwrap_or(Verb::Read), target, None).await?;
    }
    let now = (app.world.now)().as_second();
    let (ticket, until) = match (&app.authority, pass.who().grant()) {
        (Some(authority), Some(grant)) => {
            let made = authority.ticket(grant, purpose, only, seconds);
            made.map_err(|error @ TooMany(limit)| {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tickets", error.to_string()).with("limit", limit)
            })?
        }
        // Nobody will ask for it; a client that always makes one works here, too.
        _ => (format!("{:032x}", (app.world.random)()), u64::try_from(now).unwrap_or(0) + seconds),
    };
    let until = i64::try_from(until).ok().and_then(|until| jiff::Timestamp::from_second(until).ok());
    Ok(live(json!({ "ticket": ticket, "expiresAt": until.map(|until| until.to_string()) })))
}
