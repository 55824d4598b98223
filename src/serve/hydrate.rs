//! Reading at rest: runs, a run, its events by page, its export, and offloaded bodies.
//!
//! Everything comes out of the same rows as the live stream, so the audience rule was applied before any of this is asked.

use super::App;
use super::access::Pass;
use super::problem::Problem;
use super::request::{Query, path_id};
use crate::feed::Selection;
use crate::ingest::BlobMeta;
use crate::log::run::{Summary, Tail};
use crate::log::{Limit, LogId, LogKind};
use crate::model::{Audience, BlobId, Cursor, Epoch, RunId, Sequence};
use crate::projection::stage::Activity;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most that one page holds: items, and bytes of their text.
const PAGE_ITEMS_MAX: usize = 1000;
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Holes after which a page ends, however few events it has.
const HOLES_MAX: usize = 1000;
/// What one list looks at to find what its reader may see. It ends there with what it has, and a cursor.
const LOOKED_AT_MAX: usize = 4 * PAGE_ITEMS_MAX;
/// What is read from the store at once to fill a page.
const READ: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// Adds what every hydration answer echoes, so that a client can tell a late one apart.
pub(super) fn echo(query: &Query, mut answer: Value) -> Value {
    if let Some(activation) = query.get("activation") {
        answer["activation"] = activation.into();
    }
    answer
}

/// An answer that is true now, and that no cache may go on telling.
pub(super) fn live(answer: Value) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

pub(super) fn page_size(query: &Query) -> Result<usize, Problem> {
    let asked = query.number("limit")?.unwrap_or(PAGE_ITEMS_MAX as u64);
    Ok(usize::try_from(asked).unwrap_or(PAGE_ITEMS_MAX).clamp(1, PAGE_ITEMS_MAX))
}

/// 404 for a run that nobody has written.
#[must_use]
pub fn no_such_run(run: &RunId) -> Problem {
    let detail = format!("no run {run} has been written; a stream of it would wait for its first fact");
    Problem::not_found("no_such_run", detail)
}

pub(super) fn described(run: &str, epoch: Epoch, summary: &Summary, audience: Audience) -> Value {
    let stands = summary.run_for(audience);
    let mut shown = json!({
        "runId": run,
        "sessionId": summary.session_id,
        "threadId": summary.thread_id,
        "parentSessionId": summary.parent_session_id,
        "status": stands.status,
        "phase": stands.phase,
        "attempt": stands.attempt,
        "stale": stands.stale.then_some(true),
        "synthetic": stands.settled.then_some(true),
        "epoch": epoch.to_string(),
        "lastSequence": summary.last_sequence,
        "startedAt": summary.started_at,
        "endedAt": summary.ended_at,
        "lastActivity": summary.last_activity,
        "title": summary.shown.title,
        "preview": summary.shown.preview.as_ref().map(|(_, text)| text),
        "compacted": (summary.compacted.times > 0).then_some(true),
        "counts": { "events": summary.seen_count[audience.index()], "pendingActions": stands.pending.len() },
    });
    if let Value::Object(members) = &mut shown {
        members.retain(|_, value| !value.is_null());
    }
    shown
}

/// `GET /v1/runs`: runs, the newest first.
pub async fn runs(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (limit, audience) = (page_size(&query)?, query.audience()?);
    // Whoever may not see all runs finds his among the others.
    let page = if pass.has_everything() { limit + 1 } else { PAGE_ITEMS_MAX + 1 };
    let (mut runs, mut at, mut looked_at) = (Vec::new(), query.number("cursor")?, 0);
    let next = 'pages: loop {
        let listed = app.logs.list(LogKind::Run, at, page).await?;
        for run in &listed {
            let LogId::Run(id) = &run.log else { unreachable!("only runs were asked for") };
            if let Some(summary) = Summary::listed(run).filter(|summary| pass.has_run(id, summary)) {
                if runs.len() == limit {
                    break 'pages at;
                }
                runs.push(described(id.as_str(), run.epoch, &summary, audience));
            }
            at = Some(run.created);
        }
        looked_at += listed.len();
        if listed.len() < page {
            break None;
        }
        if looked_at >= LOOKED_AT_MAX {
            break at;
        }
    };
    let next = next.map(|next| next.to_string());
    Ok(live(echo(&query, json!({ "runs": runs, "nextCursor": next }))))
}

/// The run of a request, its tail, and its epoch.
async fn written(app: &App, uri: &Uri) -> Result<(RunId, Tail, Epoch), Problem> {
    let run: RunId = path_id("runId", uri)?;
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    match tail.epoch {
        Some(epoch) => Ok((run, tail, epoch)),
        None => Err(no_such_run(&run)),
    }
}

/// `GET /v1/runs/{run}`
pub async fn run(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (run, tail, epoch) = written(&app, &uri).await?;
    Ok(live(echo(&query, described(run.as_str(), epoch, &tail.summary, query.audience()?))))
}

/// A place given as a sequence or as a cursor of ours.
fn place(query: &Query, member: &'static str, epoch: Epoch) -> Result<Option<Sequence>, Problem> {
    let Some(text) = query.get(member).filter(|text| !text.is_empty()) else { return Ok(None) };
    if let Ok(sequence) = text.parse::<u64>() {
        return Ok(Some(Sequence(sequence).min(Sequence::MAX)));
    }
    let cursor: Cursor = text.parse().map_err(|_| {
        let detail = format!("the query's {member} is {text:?}; it must be a sequence, or a nextCursor of this run");
        Problem::bad_request("bad_cursor", detail).with("member", member)
    })?;
    if cursor.epoch != epoch {
        let detail = format!(
            "the query's {member} is of epoch {}, the run is now at {epoch}: it was written anew; start again",
            cursor.epoch
        );
        return Err(Problem::new(StatusCode::GONE, "epoch_changed", detail).with("expected", epoch.to_string()));
    }
    Ok(Some(cursor.after))
}

/// One page of a run's events.
#[derive(Default)]
struct Page {
    /// The events' texts, in order.
    events: Vec<(Sequence, Bytes)>,
    /// Where there is nothing any more: the first and the last sequence of each stretch.
    holes: Vec<(Sequence, Sequence)>,
    /// The place where the next page begins; `None` after the last.
    next: Option<Sequence>,
}

impl Page {
    /// Notes that nothing lies between these two, if anything did.
    fn hole(&mut self, after: Sequence, before: Sequence) {
        if after.next() >= before {
            return;
        }
        let to = Sequence(before.0 - 1);
        match self.holes.last_mut() {
            Some((_, last)) if last.next() > after => *last = to,
            _ => self.holes.push((after.next(), to)),
        }
    }
}

/// The first events in `(after, before)` that the selection takes; all of them, where there is no limit.
async fn forward(
    app: &App,
    log: &LogId,
    epoch: Epoch,
    want: &Selection,
    after: Sequence,
    before: Sequence,
    limit: Option<usize>,
) -> Result<Page, Problem> {
    let mut page = Page::default();
    let (mut at, mut bytes) = (after, 0);
    // A page costs what it holds; where the selection leaves out most rows, more are read each time.
    let mut read = Limit { rows: limit.map_or(READ.rows, |limit| (limit + 1).min(READ.rows)), ..READ };
    loop {
        let rows = app.feed.rows(log, epoch, at, read).await?;
        read.rows = (2 * read.rows).min(READ.rows);
        if rows.is_empty() {
            return Ok(page);
        }
        for row in &rows {
            let view = want.of(row).filter(|_| row.sequence() < before);
            let is_full =
                |limit| page.holes.len() >= HOLES_MAX || view.is_some() && (page.events.len() == limit || bytes > PAGE_BYTES_MAX);
            if limit.is_some_and(is_full) {
                page.next = Some(at);
                return Ok(page);
            }
            page.hole(at, row.sequence().min(before));
            if row.sequence() >= before {
                return Ok(page);
            }
            at = row.sequence();
            if let Some(view) = view {
                bytes += view.len();
                page.events.push((at, Bytes::copy_from_slice(view)));
            }
        }
    }
}

/// The last events before `before` that the selection takes, in order.
async fn backward(
    app: &App,
    log: &LogId,
    epoch: Epoch,
    want: &Selection,
    before: Sequence,
    limit: usize,
) -> Result<Page, Problem> {
    let mut page = Page::default();
    let mut end = before;
    while end > Sequence(1) {
        let start = Sequence(end.0.saturating_sub(1 + READ.rows as u64));
        let mut stretch = forward(app, log, epoch, want, start, end, None).await?;
        let is_hole = stretch.holes == [(start.next(), Sequence(end.0 - 1))];
        // A hole may be as long as a log: it is not read through stretch by stretch.
        end = if is_hole { app.feed.left_before(log, epoch, start.next()).await?.next() } else { start.next() };
        if let (true, Some((from, _))) = (is_hole, stretch.holes.first_mut()) {
            *from = end;
        }
        if let (Some((_, to)), Some((from, last))) = (stretch.holes.last_mut(), page.holes.first().copied())
            && to.next() == from
        {
            *to = last;
            page.holes.remove(0);
        }
        page.holes.splice(0..0, stretch.holes);
        page.events.splice(0..0, stretch.events);
        if page.events.len() > limit {
            page.events.drain(..page.events.len() - limit);
            let first = page.events[0].0;
            page.holes.retain(|(from, _)| *from > first);
            page.next = Some(first);
            break;
        }
        if page.holes.len() >= HOLES_MAX && end > Sequence(1) {
            page.next = Some(end);
            break;
        }
    }
    Ok(page)
}

/// `GET /v1/runs/{run}/events`: with `before` alone the newest before it, else forward from `after`; always in order.
pub async fn events(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (want, limit) = (query.selection()?, page_size(&query)?);
    let (run, tail, epoch) = written(&app, &uri).await?;
    let log = LogId::Run(run);
    let (after, before) = (place(&query, "after", epoch)?, place(&query, "before", epoch)?);
    let page = match (after, before) {
        (None, Some(before)) => backward(&app, &log, epoch, &want, before.min(tail.last.next()), limit).await?,
        (after, before) => {
            let before = before.unwrap_or(Sequence::MAX);
            forward(&app, &log, epoch, &want, after.unwrap_or_default(), before, Some(limit)).await?
        }
    };
    let next = page.next.map(|sequence| Cursor::at(epoch, sequence).to_string());
    let mut rest = echo(&query, json!({ "nextCursor": next, "truncated": next.is_some(), "epoch": epoch.to_string() }));
    if !page.holes.is_empty() {
        rest["holes"] = page.holes.iter().map(|(from, to)| json!([from, to])).collect();
    }
    Ok(page_of("events", page.events.iter().map(|(_, event)| &**event), &rest))
}

/// An answer with a list of texts that are JSON already, before its other members.
pub(super) fn page_of<'t>(member: &str, texts: impl Iterator<Item = &'t [u8]>, rest: &Value) -> Response {
    let mut text = format!("{{\"{member}\":[").into_bytes();
    for (i, item) in texts.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.extend_from_slice(b"],");
    text.extend_from_slice(&rest.to_string().as_bytes()[1..]);
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// `GET /v1/runs/{run}/activities`: what there is to see now, or as of any sequence; of all surfaces or of some.
pub async fn activities(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (want, at) = (query.selection()?, query.number("at")?);
    let (run, _, epoch) = written(&app, &uri).await?;
    let at = at.map(|at| Sequence(at).min(Sequence::MAX));
    let view = app.feed.activities(&LogId::Run(run.clone()), want.audience, at).await?.ok_or_else(|| no_such_run(&run))?;
    let activities: Vec<_> = view.activities().iter().filter(|activity| want.takes_activity(activity)).map(shown).collect();
    let answer = json!({
        "runId": run,
        "epoch": epoch.to_string(),
        "sequence": view.through,
        "cursor": Cursor::at(epoch, view.through).to_string(),
        "activities": activities,
    });
    Ok(live(echo(&query, answer)))
}

/// An activity as REST gives it.
pub(super) fn shown(activity: &Activity) -> Value {
    let mut shown = json!({
        "activityType": activity.kind,
        "activityId": activity.id,
        "surface": activity.surface,
        "opened": activity.opened,
        "sequence": activity.sequence,
        "openedAt": activity.opened_at.to_string(),
        "updatedAt": activity.updated_at.to_string(),
        "content": activity.content,
    });
    if let Some(ended_at) = activity.ended_at {
        shown["endedAt"] = ended_at.to_string().into();
    }
    if let Some(agent) = &activity.agent {
        shown["agentId"] = agent.as_str().into();
    }
    shown
}

/// `GET /v1/runs/{run}/export`: the run's envelopes, a line each, as the audience sees them.
pub async fn export(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let (want, hold) = (query.selection()?, Arc::new(pass.hold()));
    let (run, tail, epoch) = written(&app, &uri).await?;
    let until = tail.last;
    let lines = futures_util::stream::try_unfold((app, LogId::Run(run), Sequence::NONE), move |(app, log, after)| {
        let (want, hold) = (want.clone(), hold.clone());
        async move {
            if after >= until {
                return Ok::<_, axum::BoxError>(None);
            }
            // Its reader may take its time. A body that is cut off is not taken for a whole one.
            if let Some(end) = hold.has_ended() {
                return Err(end.to_string().into());
            }
            let rows = app.feed.rows(&log, epoch, after, READ).await?;
            let Some(last) = rows.last().map(crate::log::row::Row::sequence) else { return Ok(None) };
            let mut text = Vec::new();
            for view in rows.iter().filter(|row| row.sequence() <= until).filter_map(|row| want.of(row)) {
                text.extend_from_slice(view);
                text.push(b'\n');
            }
            Ok(Some((Bytes::from(text), (app, log, last))))
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")], Body::from_stream(lines))
        .into_response())
}

/// Whether a body is of a log that is had.
async fn refers(app: &App, pass: &Pass, meta: &BlobMeta) -> Result<bool, Problem> {
    Ok(match (&meta.run, &meta.session) {
        _ if pass.has_everything() => true,
        (Some(run), _) => pass.has_run(run, &app.logs.log(&LogId::Run(run.clone())).await?.tail().summary),
        (None, Some(session)) => pass.has_session(session),
        // Of before that was kept.
        (None, None) => false,
    })
}

/// `GET /v1/blobs/{blob}`: an offloaded body, or a range of it. Who may not see the envelope that refers to it is told that
/// there is none.
pub async fn blob(State(app): State<Arc<App>>, pass: Pass, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let id: BlobId = path_id("blobId", &uri)?;
    let audience = Query::of(&uri).audience()?;
    let missing = || Problem::not_found("no_such_blob", format!("there is no body {id} for this audience"));
    let blob = app.logs.blob(&id).await?.ok_or_else(missing)?;
    let meta = BlobMeta::read(&blob)?;
    if !audience.admits(meta.audience) || !refers(&app, &pass, &meta).await? {
        return Err(missing());
    }
    let total = blob.body.len() as u64;
    let common = [
        (header::CONTENT_TYPE, meta.media_type.to_string()),
        (header::ACCEPT_RANGES, "bytes".into()),
        // A body never changes, but who may read it is decided here, not in a cache that others share.
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable".into()),
        // Whatever a tool put out must not run as a page of this origin.
        (header::CONTENT_SECURITY_POLICY, "sandbox".into()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
    ];
    let asked = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok())
        .and_then(|range| http_range_header::parse_range_header(range).ok());
    match asked.map(|ranges| ranges.validate(total)) {
        Some(Ok(ranges)) if ranges.len() == 1 => {
            let (from, to) = (*ranges[0].start(), *ranges[0].end());
            let place = |at: u64| usize::try_from(at).expect("within a body that is in memory");
            let part = blob.body.slice(place(from)..=place(to));
            Ok((StatusCode::PARTIAL_CONTENT, common, [(header::CONTENT_RANGE, format!("bytes {from}-{to}/{total}"))], part)
                .into_response())
        }
        Some(Err(_)) => {
            let detail = format!("the range lies outside of the body's {total} bytes");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", detail).with("limit", total);
            Ok(([(header::CONTENT_RANGE, format!("bytes */{total}"))], problem).into_response())
        }
        // Several ranges, or a header that is none: RFC 9110 lets us answer with the whole.
        _ => Ok((common, blob.body).into_response()),
    }
}
