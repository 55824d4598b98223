//! Reading stored sessions.
//!
//! A client loads in the order of seed 003: the [list](super::session_list), the shell with what needs attention, the
//! recent messages, then the process details on request. A session is its runs and its own log. Its answers come from the same folds as the
//! live frames, so an audience finds here what it would have seen live. Page positions do not move when later facts
//! arrive.

use super::hydrate::{activity_json, page_response, run_json};
use super::session_list::entry_of;
use crate::feed::lineage::{FrozenLog, epoch_of};
use crate::feed::merged::{MergedLogs, sequence_at};
use crate::feed::merged_reader;
use crate::log::commit::Tail;
use crate::log::{LogId, LogKind, Store, StoreError};
use crate::model::{Audience, Cursor, Epoch, Sequence, SessionId};
use crate::projection::activity_set::Activity;
use crate::projection::{View, action};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, cursor, path_id};
use crate::serve::http::response::{echo, no_store_json};
use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The newest runs that a session's snapshot reads.
const SNAPSHOT_RUNS_MAX: usize = 32;
/// The newest runs with pending actions that the snapshot reads in addition.
const PENDING_RUNS_MAX: usize = 64;
/// Maximum logs that one request merges.
const MERGED_LOGS_MAX: usize = 4096;
/// Maximum logs whose activities one answer holds.
const FOLDED_LOGS_MAX: usize = 128;
/// Bytes of activities after which an answer takes no further log.
const ACTIVITIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default size of a window.
const WINDOW_DEFAULT: u64 = 50;

pub(in crate::serve) fn no_such_session(session: &SessionId) -> Problem {
    let detail = format!("Session {session} does not exist. A stream of it would wait for its first fact.");
    Problem::not_found("no_such_session", detail)
}

/// An existing log of a session, or one of its ancestors, as a branch has it.
struct SessionLog {
    created: u64,
    log: LogId,
    tail: Tail,
    epoch: Epoch,
    frozen: Option<FrozenLog>,
}

/// Loads a log of the session.
///
/// `None`: it was erased since it was listed, or rewritten in another session.
async fn session_log(app: &App, session: &SessionId, created: u64, log: LogId) -> Result<Option<SessionLog>, Problem> {
    let tail = app.logs.log(&log).await?.tail();
    let is_here = log.kind() == LogKind::Session || tail.summary.session_id.as_ref() == Some(session);
    Ok(tail.epoch.filter(|_| is_here).map(|epoch| SessionLog { created, log, tail, epoch, frozen: None }))
}

/// The logs of a session with those that it has of its ancestors, in the order of creation.
///
/// `is_wanted` decides by the place in that order.
async fn all_logs(
    app: &App,
    session: &SessionId,
    is_wanted: impl Fn(u64) -> bool,
) -> Result<Vec<(u64, LogId, Option<FrozenLog>)>, Problem> {
    let own = logs_of(app, session)?.into_iter().map(|(created, log)| (created, log, None));
    let frozen = app.feed.frozen_logs(session, usize::MAX).await?;
    let frozen = frozen.into_iter().map(|frozen| (frozen.created, frozen.log.clone(), Some(frozen)));
    let mut logs: Vec<_> = frozen.chain(own).filter(|(created, ..)| is_wanted(*created)).collect();
    logs.sort_unstable_by_key(|(created, ..)| *created);
    Ok(logs)
}

/// Loads one of [`all_logs`]. `None`: it was erased since it was listed, or rewritten in another session.
async fn any_log(
    app: &App,
    session: &SessionId,
    (created, log, frozen): (u64, LogId, Option<FrozenLog>),
) -> Result<Option<SessionLog>, Problem> {
    let Some(frozen) = frozen else { return session_log(app, session, created, log).await };
    let (tail, epoch) = (app.logs.log(&log).await?.tail(), frozen.epoch);
    let is_there = tail.epoch == Some(epoch);
    Ok(is_there.then_some(SessionLog { created, log, tail, epoch, frozen: Some(frozen) }))
}

/// The activities of a session's log. `None`: the log has another epoch by now.
async fn activities_of(
    app: &App,
    session_log: &SessionLog,
    audience: Audience,
    at: Option<Sequence>,
) -> Result<Option<Vec<Activity>>, Problem> {
    let activities = match &session_log.frozen {
        Some(frozen) => Some(app.feed.frozen_activities(frozen, audience).await?),
        None => app.feed.activities(&session_log.log, audience, at).await?.map(View::into_activities),
    };
    let now = app.logs.log(&session_log.log).await?.tail().epoch;
    Ok(activities.filter(|_| now == Some(session_log.epoch)))
}

/// An activity as JSON, with the log that it belongs to.
fn log_activity_json(session_log: &SessionLog, activity: &Activity) -> Value {
    let mut activity = activity_json(activity);
    let (member, id) = match &session_log.log {
        LogId::Run(id) => ("runId", id.as_str()),
        LogId::Session(id) => ("sessionId", id.as_str()),
    };
    activity[member] = id.into();
    activity
}

/// `GET /v1/sessions/{session}`: the shell, and what needs attention.
pub async fn session(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (session, audience): (SessionId, _) = (path_id("sessionId", &uri)?, query.audience()?);
    let index = app.logs.sessions();
    let missing = || no_such_session(&session);
    let (mut logs, count) = index.logs_of(&session, SNAPSHOT_RUNS_MAX).ok_or_else(missing)?;
    // Older runs with pending actions need attention, too.
    let newest: HashSet<u64> = logs.iter().map(|(created, _)| *created).collect();
    let asking = index.runs_with_pending(&session, audience, PENDING_RUNS_MAX);
    logs.extend(asking.into_iter().filter(|(place, _)| !newest.contains(place)).map(|(place, run)| (place, LogId::Run(run))));
    let mut parts = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        parts.extend(session_log(&app, &session, created, log).await?);
    }
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    let mut of_kind = Map::new();
    for (member, _) in SNAPSHOT {
        of_kind.insert((*member).into(), json!([]));
    }
    for session_log in &parts {
        if let LogId::Run(run) = &session_log.log {
            runs.push(run_json(run.as_str(), session_log.epoch, &session_log.tail.summary, audience));
        }
        let activities = match activities_of(&app, session_log, audience, None).await {
            Ok(activities) => activities,
            // What the others have is shown.
            Err(problem) if problem.is_of_archive() => {
                unreadable.extend(session_log.log.run());
                continue;
            }
            Err(problem) => return Err(problem),
        };
        for activity in activities.iter().flatten() {
            let entry = SNAPSHOT.iter().find(|(_, takes)| takes(activity));
            if let Some(Value::Array(list)) = entry.and_then(|(member, _)| of_kind.get_mut(*member)) {
                list.push(log_activity_json(session_log, activity));
            }
        }
    }
    let mut answer = entry_of(&app, &authorization, audience, &session).await?.ok_or_else(missing)?;
    answer["truncated"] = (count > runs.len()).into();
    answer["runs"] = runs.into();
    let mut children = app.logs.sessions().children_of(&session);
    children.retain(|child| authorization.has_session(child));
    answer["children"] = json!(children);
    if !unreadable.is_empty() {
        answer["unreadable"] = json!(unreadable);
    }
    if let Value::Object(members) = &mut answer {
        members.extend(tree_json(&app, &authorization, &session));
        members.extend(of_kind);
    }
    Ok(no_store_json(echo(&query, answer)))
}

/// What the shell of a session says of its tree. Empty for a session without branches.
fn tree_json(app: &App, authorization: &Authorization, session: &SessionId) -> Map<String, Value> {
    let mut members = Map::new();
    let Some(tree) = app.logs.sessions().tree_of(session) else { return members };
    let branches = tree.branches.iter().filter(|(branch, _)| authorization.has_session(branch));
    let branches = branches.map(|(branch, origin)| json!({ "sessionId": branch, "parent": origin.parent, "fork": origin.fork }));
    members.insert("branches".into(), branches.collect());
    members.insert("head".into(), json!(tree.head));
    members.insert("root".into(), json!(tree.root));
    members
}

/// The activities that a session's snapshot lists, by member.
const SNAPSHOT: &[(&str, fn(&Activity) -> bool)] = &[
    ("pendingActions", action::is_pending),
    ("queue", |activity| &*activity.kind == "queue"),
    ("tasks", |activity| &*activity.kind == "task"),
    ("team", |activity| matches!(&*activity.kind, "agent" | "team")),
];

/// `GET /v1/sessions/{session}/window`: the recent messages.
pub async fn window(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.number("messages")?.unwrap_or(WINDOW_DEFAULT);
    let (session, messages, next) = activity_window(&app, &uri, &query, limit, |activity| &*activity.kind == "message").await?;
    let answer = json!({
        "sessionId": session,
        "messages": messages,
        "truncated": next.is_some(),
        "nextCursor": next,
        // The parts that a client loads when the user opens them.
        "deferred": ["process", "artifacts", "evidence", "transcripts", "outputs"],
    });
    Ok(no_store_json(echo(&query, answer)))
}

/// `GET /v1/sessions/{session}/timeline`: the process details, newest window first.
pub async fn timeline(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.number("limit")?.unwrap_or(WINDOW_DEFAULT);
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
    let (session, items, next) = activity_window(&app, &uri, &query, limit, is_process).await?;
    let answer = json!({ "sessionId": session, "items": items, "truncated": next.is_some(), "nextCursor": next });
    Ok(no_store_json(echo(&query, answer)))
}

/// Reads a position in commit order from a cursor of this store.
fn commit_position(app: &App, query: &Query, member: &'static str) -> Result<Option<Sequence>, Problem> {
    let Some(text) = query.get(member).filter(|text| !text.is_empty()) else { return Ok(None) };
    let given: Cursor = cursor(member, text)?;
    let store_epoch = app.logs.store_epoch();
    if given.epoch != store_epoch {
        let detail = format!(
            "The query's {member} is of epoch {}, but this store has epoch {store_epoch}. Start again without it.",
            given.epoch
        );
        return Err(Problem::new(StatusCode::GONE, "epoch_changed", detail).with("expected", store_epoch.to_string()));
    }
    Ok(Some(given.after))
}

/// The session's logs, in creation order.
fn logs_of(app: &App, session: &SessionId) -> Result<Vec<(u64, LogId)>, Problem> {
    let (mut logs, _) = app.logs.sessions().logs_of(session, usize::MAX).ok_or_else(|| no_such_session(session))?;
    logs.sort_unstable_by_key(|(created, _)| *created);
    Ok(logs)
}

/// `GET /v1/sessions/{session}/events`: the envelopes of all its logs, in commit order.
pub async fn events(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let session: SessionId = path_id("sessionId", &uri)?;
    let (filter, limit) = (query.filter()?, query.page_size()?);
    let (after, before) = (commit_position(&app, &query, "after")?, commit_position(&app, &query, "before")?);
    // Taken first: every envelope up to this position is in the logs that are looked up next.
    let until = app.logs.position();
    let logs = logs_of(&app, &session)?;
    if logs.len() > MERGED_LOGS_MAX {
        let detail = format!(
            "Session {session} has {} logs. The limit for a merge is {MERGED_LOGS_MAX}. Read its runs one by one.",
            logs.len()
        );
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "session_too_large", detail).with("limit", MERGED_LOGS_MAX));
    }
    let page = app
        .logs
        .work(move |store| {
            let merged = MergedLogs { store, logs: epochs_of(store, logs)?, until };
            match (after, before) {
                (None, Some(before)) => merged.backward(&filter, before, limit),
                _ => merged.forward(&filter, after.unwrap_or_default(), before.unwrap_or(Sequence::MAX), limit),
            }
        })
        .await?;
    let cursor = |at: Sequence| Cursor::at(app.logs.store_epoch(), at).to_string();
    let cursors: Vec<_> = page.events.iter().map(|(at, _)| cursor(*at)).collect();
    let next = page.next.map(cursor);
    let truncated = next.is_some();
    let rest = json!({ "sessionId": session, "cursors": cursors, "nextCursor": next, "truncated": truncated });
    Ok(page_response("events", page.events.iter().map(|(_, event)| &**event), &echo(&query, rest)))
}

/// The epochs of a session's logs.
///
/// A log may have been erased since it was listed, and its id reused in another session. It then has another creation
/// position and is left out.
fn epochs_of(store: &dyn Store, logs: Vec<(u64, LogId)>) -> Result<Vec<(LogId, Epoch)>, StoreError> {
    let mut found = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        found.extend(epoch_of(store, created, &log)?.map(|epoch| (log, epoch)));
    }
    Ok(found)
}

/// `GET /v1/sessions/{session}/activities`: the activities of all its logs.
///
/// They are the current ones, or those at a position in commit order.
pub async fn activities(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let session: SessionId = path_id("sessionId", &uri)?;
    let filter = query.filter()?;
    let (at, after) = (commit_position(&app, &query, "at")?, query.number("cursor")?.unwrap_or(0));
    let now = merged_reader::now(&app.logs);
    let at = at.map_or(now, |at| at.min(now));
    let logs = all_logs(&app, &session, |created| created > after).await?;
    let last = logs.last().map(|(created, ..)| *created);
    let (mut texts, mut bytes, mut next) = (Vec::new(), 0, None);
    for (n, listed) in logs.into_iter().enumerate() {
        if n == FOLDED_LOGS_MAX || bytes > ACTIVITIES_BYTES_MAX {
            break;
        }
        next = Some(listed.0);
        let Some(session_log) = any_log(&app, &session, listed).await? else { continue };
        let (log, epoch) = (session_log.log.clone(), session_log.epoch);
        let (reached, _) = app.logs.work(move |store| sequence_at(store, &log, epoch, at)).await?;
        if reached == Sequence::NONE {
            continue;
        }
        let Some(activities) = activities_of(&app, &session_log, filter.audience, Some(reached)).await? else { continue };
        for activity in activities.iter().filter(|activity| filter.accepts_activity(activity)) {
            let text = serde_json::to_vec(&log_activity_json(&session_log, activity)).expect("plain data");
            bytes += text.len();
            texts.push(text);
        }
    }
    let next = next.filter(|next| Some(*next) < last).map(|next| next.to_string());
    let truncated = next.is_some();
    let cursor = Cursor::at(app.logs.store_epoch(), at).to_string();
    let rest = json!({ "sessionId": session, "cursor": cursor, "nextCursor": next, "truncated": truncated });
    Ok(page_response("activities", texts.iter().map(Vec::as_slice), &echo(&query, rest)))
}

/// The activities of the newest logs of a session at a position in commit order: by log, in the order of creation.
///
/// # Errors
/// 404 for an unknown session, or the store's failure.
pub(in crate::serve) async fn activities_at(
    app: &App,
    session: &SessionId,
    audience: Audience,
    at: Sequence,
) -> Result<Vec<(LogId, Vec<Activity>)>, Problem> {
    let mut logs = all_logs(app, session, |_| true).await?;
    // The session's own log is the oldest, and has what the session is.
    let surplus = logs.len().saturating_sub(FOLDED_LOGS_MAX);
    let mut place = 0;
    logs.retain(|(_, log, _)| {
        place += 1;
        place > surplus || log.kind() == LogKind::Session
    });
    let mut found = Vec::with_capacity(logs.len());
    for listed in logs {
        let Some(session_log) = any_log(app, session, listed).await? else { continue };
        let (log, epoch) = (session_log.log.clone(), session_log.epoch);
        let (reached, _) = app.logs.work(move |store| sequence_at(store, &log, epoch, at)).await?;
        if reached == Sequence::NONE {
            continue;
        }
        let activities = activities_of(app, &session_log, audience, Some(reached)).await?;
        found.extend(activities.map(|activities| (session_log.log, activities)));
    }
    Ok(found)
}

/// The position of an activity in a session.
///
/// It is the log's creation position, the sequence that opened the activity, and its index.
type ActivityPosition = (u64, Sequence, usize);

/// The last `limit` matching activities before the query's cursor, in order.
///
/// It also returns the cursor of the window before them.
async fn activity_window(
    app: &App,
    uri: &Uri,
    query: &Query,
    limit: u64,
    matches: impl Fn(&Activity) -> bool,
) -> Result<(SessionId, Vec<Value>, Option<String>), Problem> {
    let (session, audience): (SessionId, _) = (path_id("sessionId", uri)?, query.audience()?);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).clamp(1, 1000);
    let before = query.get("cursor").filter(|text| !text.is_empty()).map(parse_position).transpose()?;
    let logs = all_logs(app, &session, |at| before.is_none_or(|(created, ..)| at <= created)).await?;
    let mut found: Vec<(ActivityPosition, Value)> = Vec::new();
    // The logs load one by one, so that a window of a session with thousands of runs opens only what it needs.
    for listed in logs.into_iter().rev() {
        let Some(session_log) = &any_log(app, &session, listed).await? else { continue };
        let Some(activities) = activities_of(app, session_log, audience, None).await? else { continue };
        let placed = activities.iter().enumerate().map(|(n, activity)| ((session_log.created, activity.opened, n), activity));
        let older = placed.filter(|(place, activity)| before.is_none_or(|before| *place < before) && matches(activity));
        found.extend(
            older.rev().take(limit + 1 - found.len()).map(|(place, activity)| (place, log_activity_json(session_log, activity))),
        );
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

fn parse_position(text: &str) -> Result<ActivityPosition, Problem> {
    let mut numbers = text.split('-').map(str::parse::<u64>);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(created)), Some(Ok(opened)), Some(Ok(n)), None) => {
            Ok((created, Sequence(opened), usize::try_from(n).unwrap_or(usize::MAX)))
        }
        _ => {
            let detail = format!("The query's cursor is {text:?}. It must be a nextCursor of this session.");
            Err(Problem::bad_request("bad_cursor", detail).with("member", "cursor"))
        }
    }
}
