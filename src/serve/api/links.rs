//! Share links over HTTP: making, listing, revoking and opening them.
//!
//! What an opened link permits is in [`auth::links`](crate::auth::links) and, address by address, in
//! [`authorization`](crate::serve::access::authorization).

use super::controls::via;
use super::hydrate::no_such_run;
use super::link_decision::{bad_member, link_problem, text_of};
use super::sessions::no_such_session;
use crate::auth::links::{LinkMoment, LinkTarget};
use crate::auth::rights::Verb;
use crate::feed::Filter;
use crate::links::{LINK_DAYS_MAX, LinkError, LinkRecord, NewLink};
use crate::log::{Limit, LogId};
use crate::model::{Audience, Epoch, RunId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize_also};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, segment};
use crate::serve::http::response::no_store_json;
use crate::source::kind_of;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum size of a body here, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// Maximum and default number of links per page.
const PAGE_LINKS_MAX: u64 = 256;
/// The members of a request for a link.
const MEMBERS: [&str; 5] = ["sessionId", "runId", "until", "at", "can"];

/// The end of a link, in seconds since 1970.
fn until_of(body: &Map<String, Value>, now: jiff::Timestamp) -> Result<u64, Problem> {
    let expected = format!("a time within the next {LINK_DAYS_MAX} days, as RFC 3339");
    let refused = |why: String| bad_member("until", why).with("expected", expected.clone()).with("limit", LINK_DAYS_MAX);
    let text = text_of(body, "until")?.ok_or_else(|| refused(format!("until is missing. Send {expected}.")))?;
    let until: jiff::Timestamp =
        text.parse().map_err(|_| refused(format!("until is {text:?}, which is not a time. Send {expected}.")))?;
    let seconds = until.as_second() - now.as_second();
    match u64::try_from(seconds) {
        Err(_) | Ok(0) => Err(refused(format!("until is {text:?}, which is in the past. Send {expected}."))),
        Ok(left) if left > LINK_DAYS_MAX * 86_400 => {
            Err(refused(format!("until is {text:?}, more than {LINK_DAYS_MAX} days away. Send {expected}.")))
        }
        Ok(_) => Ok(u64::try_from(until.as_second()).unwrap_or(0)),
    }
}

/// Whether the link may decide.
fn may_decide_of(body: &Map<String, Value>) -> Result<bool, Problem> {
    let refused = |what: &str| {
        let detail = format!("can {what}. A link reads; the array may name control, for one decision.");
        bad_member("can", detail).with("expected", ["control"].as_slice())
    };
    match body.get("can") {
        None => Ok(false),
        Some(Value::Array(verbs)) => match verbs.iter().find(|verb| *verb != "control") {
            Some(other) => Err(refused(&format!("names {other}"))),
            None => Ok(!verbs.is_empty()),
        },
        Some(other) => Err(refused(&format!("is {}", kind_of(other)))),
    }
}

/// The envelopes of a run up to a sequence that users see.
async fn count_events(app: &App, run: &LogId, epoch: Epoch, at: Sequence) -> Result<u64, Problem> {
    let (filter, mut after, mut events) = (Filter::all(Audience::User), Sequence::NONE, 0);
    loop {
        let rows = app.feed.rows(run, epoch, after, Limit { rows: 1024, bytes: 1024 * 1024 }).await?;
        let shown = rows.iter().filter(|row| row.sequence() <= at && filter.text_of(row).is_some());
        events += shown.count() as u64;
        match rows.last().map(crate::log::row::Row::sequence) {
            Some(last) if last < at => after = last,
            _ => return Ok(events),
        }
    }
}

/// `POST /v1/links`: makes a link to a run or a session.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    app.disk.check_space()?;
    let via = via(request.headers());
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    if let Some(unknown) = body.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
        let detail = format!("{unknown} is not a member of a link. Its members are {}.", MEMBERS.join(", "));
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail).with("member", unknown.as_str()));
    }
    let (run, session) = (text_of(&body, "runId")?, text_of(&body, "sessionId")?);
    let log = match (run, session) {
        (Some(run), None) => LogId::Run(id_of::<RunId>("runId", run)?),
        (None, Some(session)) => LogId::Session(id_of::<SessionId>("sessionId", session)?),
        _ => return Err(bad_member("runId", "A link leads to one run or to one session. Send runId or sessionId.")),
    };
    let resource = match &log {
        LogId::Run(run) => Resource::Run(run),
        LogId::Session(session) => Resource::Session(session),
    };
    let may_decide = may_decide_of(&body)?;
    let mut authorization = authorization;
    for verb in [Verb::Share, Verb::Read].into_iter().chain(may_decide.then_some(Verb::Control)) {
        authorization = authorize_also(&app, authorization, verb, resource, None).await?;
    }
    let until = until_of(&body, (app.environment.now)())?;
    let maker = authorization.principal().grant().map(|grant| grant.holder());
    if maker.is_none()
        && let Some(member) = ["at", "can"].into_iter().find(|member| body.contains_key(*member))
    {
        let detail =
            format!("The server has no authentication, so it cannot hold a reader to {member}. Omit it, or require tokens.");
        return Err(bad_member(member, detail));
    }
    let (target, at) = match &log {
        LogId::Run(run) => {
            let tail = app.logs.log(&log).await?.tail();
            let epoch = tail.epoch.ok_or_else(|| no_such_run(run))?;
            let at = moment_of(&app, &body, &log, epoch, tail.last).await?;
            (LinkTarget::Run(run.clone(), epoch.bits()), at)
        }
        LogId::Session(session) => {
            if body.contains_key("at") {
                return Err(bad_member("at", "at is a sequence of a run. Send runId, or omit at."));
            }
            let (logs, _) = app.logs.sessions().logs_of(session, 1).ok_or_else(|| no_such_session(session))?;
            let newest = logs.iter().map(|(created, _)| *created).max().unwrap_or(0);
            (LinkTarget::Session(session.clone(), newest), None)
        }
    };
    if at.is_some() && may_decide {
        return Err(bad_member("can", "A link to a past moment decides nothing. Omit at or can."));
    }
    let by = authorization.requester(Audience::User, via).decider;
    let made = app.links.make(NewLink { target, maker, until, at, may_decide }, &by).await.map_err(link_problem)?;
    let answer = json!({
        "id": made.id,
        "url": app.notifier.page_address(&format!("link={}", made.secret)),
        "until": time_of(until),
    });
    Ok((StatusCode::CREATED, no_store_json(answer)).into_response())
}

/// The moment that a link shows, by the body's `at`.
async fn moment_of(
    app: &App,
    body: &Map<String, Value>,
    run: &LogId,
    epoch: Epoch,
    last: Sequence,
) -> Result<Option<LinkMoment>, Problem> {
    let Some(at) = body.get("at") else { return Ok(None) };
    let sequence = at.as_u64().filter(|at| (1..=last.0).contains(at)).map(Sequence).ok_or_else(|| {
        bad_member("at", format!("at is {at}. It must be a sequence of the run, from 1 to {last}.")).with("limit", last.0)
    })?;
    let events = count_events(app, run, epoch, sequence).await?;
    Ok(Some(LinkMoment { sequence, events }))
}

fn time_of(seconds: u64) -> Option<String> {
    jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok().map(|time| time.to_string())
}

fn time_of_ms(milliseconds: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(milliseconds).ok().map(|time| format!("{time:.3}"))
}

/// The members of an answer that name what a link leads to.
fn target_json(record: &LinkRecord) -> Map<String, Value> {
    let (member, id) = match record.target.log() {
        LogId::Run(run) => ("runId", run.to_string()),
        LogId::Session(session) => ("sessionId", session.to_string()),
    };
    let mut target = Map::from_iter([(member.to_owned(), id.into())]);
    target.extend(record.at.map(|at| ("at".to_owned(), at.sequence.0.into())));
    target
}

fn verbs_of(may_decide: bool) -> Value {
    if may_decide { json!(["read", "control"]) } else { json!(["read"]) }
}

fn link_json(id: &str, record: &LinkRecord) -> Value {
    let mut link = json!({
        "id": id,
        "until": time_of(record.until),
        "createdAt": time_of_ms(record.created_at),
        "can": verbs_of(record.may_decide),
        "uses": record.uses,
        "usedAt": record.used_at.and_then(time_of_ms),
        "sub": record.maker.as_ref().map(|maker| &maker.subject),
        "decided": record.decided.as_ref().map(|decided| json!({
            "actionId": decided.action_id, "controlId": decided.control_id,
        })),
    });
    if let Value::Object(members) = &mut link {
        members.extend(target_json(record));
        members.retain(|_, value| !value.is_null());
    }
    link
}

/// Whether the client may list and revoke a link.
fn may_manage(authorization: &Authorization, record: &LinkRecord) -> bool {
    let Some(grant) = authorization.principal().grant() else { return true };
    let is_own = record.maker.as_ref().is_some_and(|maker| maker.subject == grant.subject);
    is_own || authorization.can(Verb::Admin) && authorization.is_unrestricted()
}

/// `GET /v1/links`: the links that the client made; for an `admin` of everything, all links.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = usize::try_from(query.number("limit")?.unwrap_or(PAGE_LINKS_MAX).clamp(1, PAGE_LINKS_MAX)).unwrap_or(1);
    let after = match query.get("cursor").filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => {
            let place = text.split_once('-').and_then(|(created, id)| Some((created.parse::<i64>().ok()?, id.to_owned())));
            let detail = || format!("The query's cursor is {text:?}. It must be a nextCursor of this list.");
            Some(place.ok_or_else(|| Problem::bad_request("bad_cursor", detail()).with("member", "cursor"))?)
        }
    };
    let follows = |id: &str, record: &LinkRecord| match &after {
        None => true,
        Some((created, last)) => record.created_at < *created || record.created_at == *created && *id > **last,
    };
    let (mut links, mut last, mut next) = (Vec::new(), None, None);
    for (id, record) in app.links.open() {
        if !may_manage(&authorization, &record) || !follows(&id, &record) || !app.links.is_there(&record.target).await? {
            continue;
        }
        if links.len() == limit {
            next = last;
            break;
        }
        last = Some(format!("{}-{id}", record.created_at));
        links.push(link_json(&id, &record));
    }
    Ok(no_store_json(json!({ "links": links, "nextCursor": next })))
}

/// `DELETE /v1/links/{link}`: ends a link, and what it has open.
pub async fn revoke(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let id = segment::<SessionId>("linkId", request.uri(), 3)?;
    let may = app.links.get(id.as_str()).is_some_and(|record| may_manage(&authorization, &record));
    let by = authorization.requester(Audience::User, via(request.headers())).decider;
    match may && app.links.revoke(id.as_str(), &by).await? {
        true => Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
        false => Err(link_problem(LinkError::Unknown)),
    }
}

/// `POST /v1/links/exchange`: opens a link by its secret.
pub async fn exchange(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let secret = text_of(&body, "secret")?.ok_or_else(|| bad_member("secret", "secret is missing. Send the link's secret."))?;
    let (id, record) = app.links.find(secret).await.map_err(link_problem)?;
    let token = match &app.authenticator {
        // One answer for each way in which the link has ended.
        Some(authenticator) => Some(authenticator.open_link(&id).map_err(|_| link_problem(LinkError::Unknown))?),
        None => None,
    };
    app.links.count_use(&id).await.map_err(link_problem)?;
    let mut answer = json!({ "until": time_of(record.until), "can": verbs_of(record.may_decide && record.decided.is_none()) });
    if let Value::Object(members) = &mut answer {
        members.extend(target_json(&record));
        if let Some((token, expires)) = token {
            members.insert("token".into(), token.into());
            members.insert("expiresAt".into(), json!(time_of(expires)));
        }
    }
    Ok(no_store_json(answer))
}
