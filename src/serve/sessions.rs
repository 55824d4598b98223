//! Hydration of sessions, in the order of seed 003: the list, the shell with what needs attention, the recent messages, and the
//! process behind them, each as far as is asked for.
//!
//! A session is its runs and its own log. What it shows comes out of the same folds as the live frames, so an audience finds
//! at rest what it would have seen live. Windows are cut at places that facts which arrive later do not move.

use super::App;
use super::access::Pass;
use super::hydrate::{described, echo, live, page_size, shown};
use super::problem::Problem;
use super::request::{Query, path_id};
use crate::log::run::{Summary, Tail};
use crate::log::{LogId, LogKind};
use crate::model::{Audience, Epoch, Sequence, SessionId};
use crate::projection::View;
use crate::projection::stage::Activity;
use crate::source::ledger::Status;
use axum::extract::State;
use axum::response::Response;
use http::Uri;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Runs of a session that its line in a list is made of: the newest.
const LISTED_RUNS_MAX: usize = 16;
/// Runs of a session that its snapshot is made of: the newest.
const SNAPSHOT_RUNS_MAX: usize = 32;
/// What a window holds unless another size is asked for.
const WINDOW: u64 = 50;

pub(super) fn no_such_session(session: &SessionId) -> Problem {
    let detail = format!("no fact of session {session} has been written; a stream of it would wait for the first");
    Problem::not_found("no_such_session", detail)
}

/// `GET /v1/sessions`: sessions, the newest first.
pub async fn sessions(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (limit, audience) = (page_size(&query)?, query.audience()?);
    let before = query.number("cursor")?;
    let mut listed = match pass.sessions() {
        None => app.logs.sessions().list(before, limit + 1),
        Some(names) => {
            let ids = names.iter().filter_map(|name| SessionId::new(name).ok()).filter(|session| pass.has_session(session));
            let placed = ids.filter_map(|session| Some((app.logs.sessions().place_of(&session)?, session)));
            let mut placed: Vec<_> = placed.filter(|(place, _)| before.is_none_or(|before| *place < before)).collect();
            placed.sort_unstable_by(|a, b| b.cmp(a));
            placed.truncate(limit + 1);
            placed
        }
    };
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next = listed.last().filter(|_| more).map(|(place, _)| place.to_string());
    let mut lines = Vec::with_capacity(listed.len());
    for (_, session) in &listed {
        // It may have been erased since it was listed.
        lines.extend(line(&app, session, audience).await?);
    }
    Ok(live(echo(&query, json!({ "sessions": lines, "nextCursor": next }))))
}

/// A session's line in a list.
async fn line(app: &App, session: &SessionId, audience: Audience) -> Result<Option<Value>, Problem> {
    let Some((logs, runs)) = app.logs.sessions().logs_of(session, LISTED_RUNS_MAX) else { return Ok(None) };
    let mut summaries = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        // One look-up in the order of creation; a log's whole state would be read for nothing.
        let kind = log.kind();
        let found = app.logs.list(kind, Some(created + 1), 1).await?.pop().filter(|listed| listed.log == log);
        summaries.extend(found.as_ref().and_then(Summary::listed).map(|summary| (kind, summary)));
    }
    Ok(Some(summed(app, session, &summaries, runs, audience)))
}

/// What a session comes to, by its logs: its own first, then its runs, the newest first.
fn summed(app: &App, session: &SessionId, logs: &[(LogKind, Summary)], runs: usize, audience: Audience) -> Value {
    let stands = || logs.iter().filter(|(kind, _)| *kind == LogKind::Run).map(|(_, summary)| summary.run_for(audience));
    // What needs somebody comes before what goes on by itself, and that before what is over.
    let status = [Status::Waiting, Status::Running, Status::Accepted]
        .into_iter()
        .find(|status| stands().any(|run| run.status == *status))
        .or_else(|| stands().next().map(|run| run.status));
    let first = |of: fn(&Summary) -> Option<Value>| logs.iter().find_map(|(_, summary)| of(summary));
    let mut line = json!({
        "sessionId": session,
        "title": first(|summary| summary.shown.title.as_deref().map(Value::from)),
        "status": status.unwrap_or(Status::Unknown),
        "preview": first(|summary| summary.shown.preview.as_ref().map(|(_, text)| text.to_string().into())),
        "counts": { "runs": runs, "pendingActions": stands().map(|run| run.pending.len()).sum::<usize>() },
        "unread": first(|summary| summary.shown.unread.map(Value::from)),
        "pinned": first(|summary| summary.shown.pinned.map(Value::from)),
        "stale": first(|summary| summary.shown.stale.map(Value::from)),
        "lastActivity": logs.iter().filter_map(|(_, summary)| summary.last_activity.as_deref()).max(),
        "parentSessionId": app.logs.sessions().parent_of(session),
    });
    if let Value::Object(members) = &mut line {
        members.retain(|_, value| !value.is_null());
    }
    line
}

/// A log of a session that was written.
struct Part {
    created: u64,
    log: LogId,
    tail: Tail,
    epoch: Epoch,
}

/// The session's logs: its own first, then up to `runs_max` runs, the newest first; and how many runs there are.
async fn parts(app: &App, session: &SessionId, runs_max: usize) -> Result<(Vec<Part>, usize), Problem> {
    let (logs, runs) = app.logs.sessions().logs_of(session, runs_max).ok_or_else(|| no_such_session(session))?;
    let mut parts = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        let tail = app.logs.log(&log).await?.tail();
        // It may have been erased since it was listed, and written anew in another session.
        let is_here = log.kind() == LogKind::Session || tail.summary.session_id.as_ref() == Some(session);
        parts.extend(tail.epoch.filter(|_| is_here).map(|epoch| Part { created, log, tail, epoch }));
    }
    Ok((parts, runs))
}

/// A part's activities; none of another life of its log than the one that was looked at.
async fn activities(app: &App, part: &Part, audience: Audience) -> Result<Option<View>, Problem> {
    let view = app.feed.activities(&part.log, audience, None).await?;
    let now = app.logs.log(&part.log).await?.tail().epoch;
    Ok(view.filter(|_| now == Some(part.epoch)))
}

/// An activity as REST gives it, with the log that it is of.
fn shown_of(part: &Part, activity: &Activity) -> Value {
    let mut activity = shown(activity);
    let (member, id) = match &part.log {
        LogId::Run(id) => ("runId", id.as_str()),
        LogId::Session(id) => ("sessionId", id.as_str()),
    };
    activity[member] = id.into();
    activity
}

/// `GET /v1/sessions/{session}`: the shell, and what needs attention.
pub async fn session(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (session, audience): (SessionId, _) = (path_id("sessionId", &uri)?, query.audience()?);
    let (parts, count) = parts(&app, &session, SNAPSHOT_RUNS_MAX).await?;
    let mut runs = Vec::new();
    let mut of_kind = Map::new();
    for (member, _) in SNAPSHOT {
        of_kind.insert((*member).into(), json!([]));
    }
    for part in &parts {
        if let LogId::Run(run) = &part.log {
            runs.push(described(run.as_str(), part.epoch, &part.tail.summary, audience));
        }
        let Some(view) = activities(&app, part, audience).await? else { continue };
        for activity in view.activities() {
            let wanted = SNAPSHOT.iter().find(|(_, takes)| takes(activity));
            if let Some(Value::Array(list)) = wanted.and_then(|(member, _)| of_kind.get_mut(*member)) {
                list.push(shown_of(part, activity));
            }
        }
    }
    let logs: Vec<_> = parts.iter().map(|part| (part.log.kind(), (*part.tail.summary).clone())).collect();
    let mut answer = summed(&app, &session, &logs, count, audience);
    answer["runs"] = runs.into();
    answer["truncated"] = (count > SNAPSHOT_RUNS_MAX).into();
    let mut children = app.logs.sessions().children_of(&session);
    children.retain(|child| pass.has_session(child));
    answer["children"] = json!(children);
    if let Value::Object(members) = &mut answer {
        members.extend(of_kind);
    }
    Ok(live(echo(&query, answer)))
}

/// What a session's snapshot holds of its activities, by member.
const SNAPSHOT: &[(&str, fn(&Activity) -> bool)] = &[
    ("pendingActions", |activity| {
        &*activity.kind == "action" && activity.content.get("status").and_then(Value::as_str) == Some("pending")
    }),
    ("queue", |activity| &*activity.kind == "queue"),
    ("tasks", |activity| &*activity.kind == "task"),
    ("team", |activity| matches!(&*activity.kind, "agent" | "team")),
];

/// `GET /v1/sessions/{session}/window`: the recent messages.
pub async fn window(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let limit = query.number("messages")?.unwrap_or(WINDOW);
    let (session, messages, next) = windowed(&app, &uri, &query, limit, |activity| &*activity.kind == "message").await?;
    let answer = json!({
        "sessionId": session,
        "messages": messages,
        "truncated": next.is_some(),
        "nextCursor": next,
        // What a client asks for when it is looked at.
        "deferred": ["process", "artifacts", "evidence", "transcripts", "outputs"],
    });
    Ok(live(echo(&query, answer)))
}

/// `GET /v1/sessions/{session}/timeline`: the process behind the messages, the newest window first.
pub async fn timeline(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let limit = query.number("limit")?.unwrap_or(WINDOW);
    let is_process = |activity: &Activity| {
        activity.is_custom
            || matches!(
                &*activity.kind,
                "tool-call-progress"
                    | "reasoning"
                    | "plan"
                    | "evidence"
                    | "worker-notification"
                    | "handoff"
                    | "review"
                    | "compaction"
                    | "permission"
                    | "action"
                    | "artifact"
            )
    };
    let (session, items, next) = windowed(&app, &uri, &query, limit, is_process).await?;
    let answer = json!({ "sessionId": session, "items": items, "truncated": next.is_some(), "nextCursor": next });
    Ok(live(echo(&query, answer)))
}

/// A place in a session: of an activity, by its log's place of creation and by its own in the order in which they appeared.
type Place = (u64, Sequence, usize);

/// The last `limit` activities that are wanted before the query's cursor, in order, and the cursor for those before them.
async fn windowed(
    app: &App,
    uri: &Uri,
    query: &Query,
    limit: u64,
    wanted: impl Fn(&Activity) -> bool,
) -> Result<(SessionId, Vec<Value>, Option<String>), Problem> {
    let (session, audience): (SessionId, _) = (path_id("sessionId", uri)?, query.audience()?);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).clamp(1, 1000);
    let before = query.get("cursor").filter(|text| !text.is_empty()).map(place).transpose()?;
    let (mut parts, _) = parts(app, &session, usize::MAX).await?;
    parts.sort_by_key(|part| std::cmp::Reverse(part.created));
    let mut found: Vec<(Place, Value)> = Vec::new();
    for part in parts.iter().filter(|part| before.is_none_or(|(created, ..)| part.created <= created)) {
        let Some(view) = activities(app, part, audience).await? else { continue };
        let placed = view.activities().iter().enumerate().map(|(n, activity)| ((part.created, activity.opened, n), activity));
        let older = placed.filter(|(place, activity)| before.is_none_or(|before| *place < before) && wanted(activity));
        found.extend(older.rev().take(limit + 1 - found.len()).map(|(place, activity)| (place, shown_of(part, activity))));
        if found.len() > limit {
            break;
        }
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|((created, opened, n), _)| format!("{created}-{opened}-{n}"));
    found.reverse();
    Ok((session, found.into_iter().map(|(_, activity)| activity).collect(), next))
}

fn place(text: &str) -> Result<Place, Problem> {
    let mut numbers = text.split('-').map(str::parse::<u64>);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(created)), Some(Ok(opened)), Some(Ok(n)), None) => {
            Ok((created, Sequence(opened), usize::try_from(n).unwrap_or(usize::MAX)))
        }
        _ => {
            let detail = format!("the query's cursor is {text:?}; it must be a nextCursor of this session");
            Err(Problem::bad_request("bad_cursor", detail).with("member", "cursor"))
        }
    }
}
