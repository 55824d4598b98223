//! Hydration of sessions, in the order of seed 003: the list, the shell with what needs attention, the recent messages, and the
//! process behind them, each as far as is asked for.
//!
//! A session is its runs and its own log. What it shows comes out of the same folds as the live frames, so an audience finds
//! at rest what it would have seen live. Windows are cut at places that facts which arrive later do not move.

use super::App;
use super::access::Pass;
use super::hydrate::{described, echo, live, page_of, page_size, shown};
use super::problem::Problem;
use super::request::{Query, cursor, path_id};
use crate::feed::merged::{Merged, located};
use crate::feed::several;
use crate::log::run::{Shown, Summary, Tail};
use crate::log::sessions::{Line, ListedLogs, PendingBelow};
use crate::log::{LogId, LogKind, Store, StoreError};
use crate::model::{Audience, Cursor, Epoch, Sequence, SessionId};
use crate::projection::View;
use crate::projection::stage::Activity;
use crate::source::ledger::Status;
use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Runs of a session that its snapshot is made of: the newest.
const SNAPSHOT_RUNS_MAX: usize = 32;
/// Runs with pending actions that the snapshot is made of: the newest.
const ASKING_RUNS_MAX: usize = 64;
/// Sessions that a list looks at in one step.
const LOOKED_AT_ONCE: usize = 1024;
/// Sessions that one filtered list looks at in the index.
const FILTERED_MAX: usize = 64 * LOOKED_AT_ONCE;
/// Sessions that one search looks at: their texts are read from the store.
const SEARCHED_MAX: usize = 4 * LOOKED_AT_ONCE;
/// Logs that are merged into one order of events.
const MERGED_LOGS_MAX: usize = 4096;
/// Logs whose activities are in one answer.
const FOLDED_LOGS_MAX: usize = 128;
/// The most bytes of activities in one answer, before those of its last log.
const ACTIVITIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What a window holds unless another size is asked for.
const WINDOW: u64 = 50;

pub(super) fn no_such_session(session: &SessionId) -> Problem {
    let detail = format!("no fact of session {session} has been written; a stream of it would wait for the first");
    Problem::not_found("no_such_session", detail)
}

/// Which sessions a list is asked for.
struct Filter {
    /// The statuses that it takes; all if empty.
    statuses: Vec<Status>,
    /// Only sessions with a pending action, of their own or below.
    needs_action: bool,
    /// Lower case.
    text: Option<String>,
}

impl Filter {
    fn of(query: &Query) -> Result<Self, Problem> {
        let status = |name: Box<str>| {
            serde_json::from_value(Value::from(&*name)).map_err(|_| {
                let detail = format!("status is {name:?}; it must be the status of a session, or several with commas between");
                Problem::bad_request("bad_query", detail).with("member", "status")
            })
        };
        Ok(Self {
            statuses: query.list("status").into_iter().map(status).collect::<Result<_, _>>()?,
            needs_action: query.is_set("needsAction"),
            text: query.get("q").map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty()),
        })
    }

    /// Whether it takes a session by what the index knows.
    fn takes(&self, session: &Listed) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&session.line.status))
            && (!self.needs_action || session.line.pending + session.below > 0)
    }

    /// Whether it takes a session by its texts.
    fn finds(&self, session: &SessionId, shown: &Shown) -> bool {
        let Some(text) = &self.text else { return true };
        let preview = shown.preview.as_ref().map(|(_, preview)| &**preview);
        [Some(session.as_str()), shown.title.as_deref(), preview].into_iter().flatten().any(|of| of.to_lowercase().contains(text))
    }

    /// How many sessions are looked at in one step of a page of so many.
    fn step(&self, limit: usize) -> usize {
        let is_all = self.statuses.is_empty() && !self.needs_action && self.text.is_none();
        if is_all { limit + 1 } else { LOOKED_AT_ONCE }
    }

    /// How many sessions one answer looks at. An answer that ends there has a cursor, however few sessions it has.
    const fn looks_at_max(&self) -> usize {
        if self.text.is_some() { SEARCHED_MAX } else { FILTERED_MAX }
    }
}

/// A session that may be in a list.
struct Listed {
    place: u64,
    session: SessionId,
    line: Line,
    below: u64,
}

/// What waits below each session, as far as the reader may see it.
async fn pending_below(app: &App, pass: &Pass) -> Arc<PendingBelow> {
    let (logs, readable) = (app.logs.clone(), named(pass));
    // Where thousands of sessions wait, this takes milliseconds.
    app.logs
        .work(move |_| match readable {
            None => logs.sessions().pending_below(),
            Some(readable) => Arc::new(logs.sessions().pending_below_among(readable)),
        })
        .await
}

/// The sessions that the reader may read, where those are not all.
fn named(pass: &Pass) -> Option<Vec<SessionId>> {
    let ids = pass.sessions()?.iter().filter_map(|name| SessionId::new(name).ok());
    Some(ids.filter(|session| pass.has_session(session)).collect())
}

/// `GET /v1/sessions`: sessions, the newest first.
pub async fn sessions(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (limit, audience, filter) = (page_size(&query)?, query.audience()?, Filter::of(&query)?);
    let below = pending_below(&app, &pass).await;
    let index = app.logs.sessions();
    let mut at = query.number("cursor")?;
    let named = named(&pass).map(|ids| {
        let mut placed: Vec<_> = ids.into_iter().filter_map(|session| Some((index.place_of(&session)?, session))).collect();
        placed.sort_unstable_by(|a, b| b.cmp(a));
        placed.dedup();
        placed
    });
    let (mut lines, mut looked_at, step) = (Vec::new(), 0, filter.step(limit));
    let next = 'pages: loop {
        let page: Vec<_> = match &named {
            None => index.list(at, step),
            Some(placed) => placed.iter().filter(|(place, _)| at.is_none_or(|at| *place < at)).take(step).cloned().collect(),
        };
        let (count, last) = (page.len(), page.last().map(|(place, _)| *place));
        let listed = page.into_iter().filter_map(|(place, session)| {
            // It may have been erased since it was listed.
            let line = index.line(&session, audience)?;
            let below = below.of(&session, audience);
            Some(Listed { place, session, line, below })
        });
        let listed = listed.filter(|listed| filter.takes(listed));
        // A search may turn each of them away.
        let needed = if filter.text.is_some() { usize::MAX } else { limit + 1 - lines.len() };
        let mut listed: Vec<Listed> = listed.take(needed).collect();
        let shown = shown_in_lists(&app, listed.iter().map(|listed| listed.line.shown).collect()).await?;
        for (listed, shown) in listed.drain(..).zip(shown) {
            if !filter.finds(&listed.session, &shown) {
                continue;
            }
            if lines.len() == limit {
                break 'pages at;
            }
            at = Some(listed.place);
            lines.push(summed(&listed.session, &listed.line, &shown, listed.below));
        }
        if count < step {
            break None;
        }
        (at, looked_at) = (last, looked_at + count);
        if looked_at >= filter.looks_at_max() {
            break at;
        }
    };
    let next = next.map(|next| next.to_string());
    Ok(live(echo(&query, json!({ "sessions": lines, "nextCursor": next }))))
}

/// The texts and flags that lists show of sessions: for each one, out of the logs that the index names.
async fn shown_in_lists(app: &App, of: Vec<ListedLogs>) -> Result<Vec<Shown>, StoreError> {
    app.logs
        .work(move |store| {
            let read = |kind: LogKind, created: u64| {
                let found = pollster::block_on(store.list(kind, Some(created + 1), 1))?.pop();
                // It may have been erased just now.
                let summary = found.filter(|found| found.created == created).as_ref().and_then(Summary::listed);
                Ok(summary.map(|summary| summary.shown).unwrap_or_default())
            };
            let one = |logs: ListedLogs| {
                let mut known: Vec<((LogKind, u64), Shown)> = Vec::new();
                for (kind, created) in logs.into_iter().flatten() {
                    if known.iter().all(|(place, _)| *place != (kind, created)) {
                        known.push(((kind, created), read(kind, created)?));
                    }
                }
                let of = |at: usize| known.iter().find(|(place, _)| Some(*place) == logs[at]).map(|(_, shown)| shown);
                Ok(Shown {
                    title: of(0).and_then(|shown| shown.title.clone()),
                    preview: of(1).and_then(|shown| shown.preview.clone()),
                    unread: of(2).and_then(|shown| shown.unread),
                    pinned: of(3).and_then(|shown| shown.pinned),
                    stale: of(4).and_then(|shown| shown.stale),
                })
            };
            of.into_iter().map(one).collect()
        })
        .await
}

/// A session as a list and its shell show it.
fn summed(session: &SessionId, line: &Line, shown: &Shown, below: u64) -> Value {
    let mut summed = json!({
        "sessionId": session,
        "title": shown.title,
        "status": line.status,
        "preview": shown.preview.as_ref().map(|(_, text)| text),
        "counts": { "runs": line.runs, "pendingActions": line.pending + below, "pendingActionsBelow": below },
        "unread": shown.unread,
        "pinned": shown.pinned,
        "stale": if line.is_stale { Some(true) } else { shown.stale },
        "lastActivity": line.last_activity.map(|time| format!("{time:.3}")),
        "parentSessionId": line.parent,
    });
    if let Value::Object(members) = &mut summed {
        members.retain(|_, value| !value.is_null());
    }
    summed
}

/// A log of a session that was written.
struct Part {
    created: u64,
    log: LogId,
    tail: Tail,
    epoch: Epoch,
}

/// A log of the session; `None` when it is gone. It may have been erased since it was listed, and written anew in
/// another session.
async fn part(app: &App, session: &SessionId, created: u64, log: LogId) -> Result<Option<Part>, Problem> {
    let tail = app.logs.log(&log).await?.tail();
    let is_here = log.kind() == LogKind::Session || tail.summary.session_id.as_ref() == Some(session);
    Ok(tail.epoch.filter(|_| is_here).map(|epoch| Part { created, log, tail, epoch }))
}

/// A part's activities; none of another life of its log than the one that was looked at.
async fn activities_of(app: &App, part: &Part, audience: Audience, at: Option<Sequence>) -> Result<Option<View>, Problem> {
    let view = app.feed.activities(&part.log, audience, at).await?;
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
    let index = app.logs.sessions();
    let missing = || no_such_session(&session);
    let (mut logs, count) = index.logs_of(&session, SNAPSHOT_RUNS_MAX).ok_or_else(missing)?;
    // An older run with pending actions needs attention, too.
    let newest: HashSet<u64> = logs.iter().map(|(created, _)| *created).collect();
    let asking = index.asking_runs(&session, audience, ASKING_RUNS_MAX);
    logs.extend(asking.into_iter().filter(|(place, _)| !newest.contains(place)).map(|(place, run)| (place, LogId::Run(run))));
    let mut parts = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        parts.extend(part(&app, &session, created, log).await?);
    }
    let mut runs = Vec::new();
    let mut of_kind = Map::new();
    for (member, _) in SNAPSHOT {
        of_kind.insert((*member).into(), json!([]));
    }
    for part in &parts {
        if let LogId::Run(run) = &part.log {
            runs.push(described(run.as_str(), part.epoch, &part.tail.summary, audience));
        }
        let Some(view) = activities_of(&app, part, audience, None).await? else { continue };
        for activity in view.activities() {
            let wanted = SNAPSHOT.iter().find(|(_, takes)| takes(activity));
            if let Some(Value::Array(list)) = wanted.and_then(|(member, _)| of_kind.get_mut(*member)) {
                list.push(shown_of(part, activity));
            }
        }
    }
    let line = index.line(&session, audience).ok_or_else(missing)?;
    let shown = shown_in_lists(&app, vec![line.shown]).await?.pop().unwrap_or_default();
    let below = pending_below(&app, &pass).await.of(&session, audience);
    let mut answer = summed(&session, &line, &shown, below);
    answer["truncated"] = (count > runs.len()).into();
    answer["runs"] = runs.into();
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

/// A place in the order of commits, out of a cursor of this store.
fn commit_place(app: &App, query: &Query, member: &'static str) -> Result<Option<Sequence>, Problem> {
    let Some(text) = query.get(member).filter(|text| !text.is_empty()) else { return Ok(None) };
    let given: Cursor = cursor(member, text)?;
    let life = app.logs.life();
    if given.epoch != life {
        let detail = format!("the query's {member} is of epoch {}, this store is of {life}; begin anew without it", given.epoch);
        return Err(Problem::new(StatusCode::GONE, "epoch_changed", detail).with("expected", life.to_string()));
    }
    Ok(Some(given.after))
}

/// The session's logs, in the order of creation.
fn logs_of(app: &App, session: &SessionId) -> Result<Vec<(u64, LogId)>, Problem> {
    let (mut logs, _) = app.logs.sessions().logs_of(session, usize::MAX).ok_or_else(|| no_such_session(session))?;
    logs.sort_unstable_by_key(|(created, _)| *created);
    Ok(logs)
}

/// `GET /v1/sessions/{session}/events`: the envelopes of all of its logs, in the order of commits.
pub async fn events(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let session: SessionId = path_id("sessionId", &uri)?;
    let (want, limit) = (query.selection()?, page_size(&query)?);
    let (after, before) = (commit_place(&app, &query, "after")?, commit_place(&app, &query, "before")?);
    // Everything up to here is in the logs that are looked up after it.
    let until = app.logs.position();
    let logs = logs_of(&app, &session)?;
    if logs.len() > MERGED_LOGS_MAX {
        let detail = format!(
            "session {session} has {} logs, the limit for one merged order is {MERGED_LOGS_MAX}; read its runs one by one",
            logs.len()
        );
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "session_too_large", detail).with("limit", MERGED_LOGS_MAX));
    }
    let page = app
        .logs
        .work(move |store| {
            let merged = Merged { store, logs: epochs_of(store, logs)?, until };
            match (after, before) {
                (None, Some(before)) => merged.backward(&want, before, limit),
                _ => merged.forward(&want, after.unwrap_or_default(), before.unwrap_or(Sequence::MAX), limit),
            }
        })
        .await?;
    let cursor = |at: Sequence| Cursor::at(app.logs.life(), at).to_string();
    let cursors: Vec<_> = page.events.iter().map(|(at, _)| cursor(*at)).collect();
    let next = page.next.map(cursor);
    let truncated = next.is_some();
    let rest = json!({ "sessionId": session, "cursors": cursors, "nextCursor": next, "truncated": truncated });
    Ok(page_of("events", page.events.iter().map(|(_, event)| &**event), &echo(&query, rest)))
}

/// The epochs of a session's logs. A log may have been erased since it was listed, and its id written anew in another session:
/// then it has another place of creation, and is left out.
fn epochs_of(store: &impl Store, logs: Vec<(u64, LogId)>) -> Result<Vec<(LogId, Epoch)>, StoreError> {
    let mut found = Vec::with_capacity(logs.len());
    for (created, log) in logs {
        let listed = pollster::block_on(store.list(log.kind(), Some(created + 1), 1))?.pop();
        found.extend(listed.filter(|listed| listed.created == created && listed.log == log).map(|listed| (log, listed.epoch)));
    }
    Ok(found)
}

/// `GET /v1/sessions/{session}/activities`: what there is to see of all of its logs, now or as of a place in the order of commits.
pub async fn activities(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let session: SessionId = path_id("sessionId", &uri)?;
    let want = query.selection()?;
    let (at, after) = (commit_place(&app, &query, "at")?, query.number("cursor")?.unwrap_or(0));
    let now = several::now(&app.logs);
    let at = at.map_or(now, |at| at.min(now));
    let logs = logs_of(&app, &session)?;
    let last = logs.last().map(|(created, _)| *created);
    let (mut texts, mut bytes, mut next) = (Vec::new(), 0, None);
    for (n, (created, log)) in logs.into_iter().filter(|(created, _)| *created > after).enumerate() {
        if n == FOLDED_LOGS_MAX || bytes > ACTIVITIES_BYTES_MAX {
            break;
        }
        next = Some(created);
        let Some(part) = part(&app, &session, created, log).await? else { continue };
        let (log, epoch) = (part.log.clone(), part.epoch);
        let reached = app.logs.work(move |store| located(store, &log, epoch, at)).await?;
        if reached == Sequence::NONE {
            continue;
        }
        let Some(view) = activities_of(&app, &part, want.audience, Some(reached)).await? else { continue };
        for activity in view.activities().iter().filter(|activity| want.takes_activity(activity)) {
            let text = serde_json::to_vec(&shown_of(&part, activity)).expect("plain data");
            bytes += text.len();
            texts.push(text);
        }
    }
    let next = next.filter(|next| Some(*next) < last).map(|next| next.to_string());
    let truncated = next.is_some();
    let cursor = Cursor::at(app.logs.life(), at).to_string();
    let rest = json!({ "sessionId": session, "cursor": cursor, "nextCursor": next, "truncated": truncated });
    Ok(page_of("activities", texts.iter().map(Vec::as_slice), &echo(&query, rest)))
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
    let logs = app.logs.sessions().logs_of(&session, usize::MAX).ok_or_else(|| no_such_session(&session))?;
    let mut logs: Vec<_> = logs.0.into_iter().filter(|(at, _)| before.is_none_or(|(created, ..)| *at <= created)).collect();
    logs.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
    let mut found: Vec<(Place, Value)> = Vec::new();
    // One after the other: a window of a session with thousands of runs opens no more of them than it needs.
    for (created, log) in logs {
        let Some(part) = &part(app, &session, created, log).await? else { continue };
        let Some(view) = activities_of(app, part, audience, None).await? else { continue };
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
