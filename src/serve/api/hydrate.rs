//! Reading stored data: runs, a run, its events by page, its export, and offloaded bodies.
//!
//! All answers come from the same rows as the live stream, so the audience rule was already applied.

use crate::auth::links::LinkMoment;
use crate::environment::sabotage;
use crate::feed::Filter;
use crate::ingest::BlobMeta;
use crate::log::commit::{Summary, Tail};
use crate::log::figures::Usage;
use crate::log::{Limit, LogId};
use crate::model::{Audience, BlobId, Cursor, Epoch, RunId, Sequence};
use crate::projection::action;
use crate::projection::activity_set::Activity;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use crate::serve::http::response::{echo, no_store_json};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum bytes of the text of one page.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum holes of one page, however few events it has.
const HOLES_MAX: usize = 1000;
/// What one store read fetches to fill a page.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// 404 for a run without a log.
#[must_use]
pub fn no_such_run(run: &RunId) -> Problem {
    let detail = format!("Run {run} does not exist. A stream of it would wait for its first fact.");
    Problem::not_found("no_such_run", detail)
}

/// How long a run took, in milliseconds. `None`: it has not ended.
fn duration_ms(summary: &Summary) -> Option<u64> {
    let at = |time: &Option<Box<str>>| Some(time.as_deref()?.parse::<jiff::Timestamp>().ok()?.as_millisecond());
    let (started, ended) = at(&summary.started_at).zip(at(&summary.ended_at))?;
    Some(u64::try_from(ended - started).unwrap_or(0))
}

/// A usage as JSON, without what no model call reported.
pub(super) fn usage_json(usage: Usage) -> Value {
    let members = [
        ("inputTokens", usage.input_tokens.map(Value::from)),
        ("outputTokens", usage.output_tokens.map(Value::from)),
        ("costUsd", usage.cost_usd().map(Value::from)),
    ];
    members.into_iter().filter_map(|(member, value)| Some((member.to_owned(), value?))).collect::<Map<_, _>>().into()
}

pub(super) fn run_json(run: &str, epoch: Epoch, summary: &Summary, audience: Audience) -> Value {
    let state = summary.run_for(audience);
    let mut shown = json!({
        "runId": run,
        "sessionId": summary.session_id,
        "threadId": summary.thread_id,
        "parentSessionId": summary.parent_session_id,
        "status": state.status,
        "phase": state.phase,
        "attempt": state.attempt,
        "stale": state.stale.then_some(true),
        "synthetic": state.settled.then_some(true),
        "epoch": epoch.to_string(),
        "lastSequence": summary.last_sequence,
        "agentId": summary.agent,
        "startedAt": summary.started_at,
        "endedAt": summary.ended_at,
        "durationMs": duration_ms(summary),
        "usage": summary.figures.as_ref().and_then(|figures| figures.usage(audience)).map(usage_json),
        "lastActivity": summary.news().time(audience).map(|time| format!("{time:.3}")),
        "title": summary.preview.title,
        "preview": summary.preview.message.as_ref().map(|(_, text)| text),
        "compacted": (summary.compacted.times > 0).then_some(true),
        "counts": { "events": summary.seen_count[audience.index()], "pendingActions": state.pending.len() },
    });
    if let Value::Object(members) = &mut shown {
        members.retain(|_, value| !value.is_null());
    }
    shown
}

/// The existing run of a request, with its tail and epoch.
pub(super) async fn existing_run(app: &App, uri: &Uri) -> Result<(RunId, Tail, Epoch), Problem> {
    let run: RunId = path_id("runId", uri)?;
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    match tail.epoch {
        Some(epoch) => Ok((run, tail, epoch)),
        None => Err(no_such_run(&run)),
    }
}

/// `GET /v1/runs/{run}`
pub async fn run(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (run, tail, epoch) = existing_run(&app, &uri).await?;
    if let Some(moment) = authorization.moment() {
        let view = app.feed.activities(&LogId::Run(run.clone()), query.audience()?, Some(moment.sequence)).await?;
        let view = view.ok_or_else(|| no_such_run(&run))?;
        return Ok(no_store_json(echo(&query, run_at_json(&run, epoch, moment, view.activities()))));
    }
    Ok(no_store_json(echo(&query, run_json(run.as_str(), epoch, &tail.summary, query.audience()?))))
}

/// A run as it stood at the moment of a link: what the activities of then say of it, and nothing of its summary.
fn run_at_json(run: &RunId, epoch: Epoch, moment: LinkMoment, activities: &[Activity]) -> Value {
    let shown = activities.iter().find(|activity| &*activity.kind == "run");
    let said = |member: &str| shown.and_then(|shown| shown.content.get(member)).cloned();
    let mut state = json!({
        "runId": run,
        "status": said("status").unwrap_or_else(|| "unknown".into()),
        "phase": said("phase").unwrap_or_else(|| "unknown".into()),
        "attempt": said("attempt").unwrap_or_else(|| 0.into()),
        "epoch": epoch.to_string(),
        "lastSequence": moment.sequence,
        "counts": {
            "events": moment.events,
            "pendingActions": activities.iter().filter(|activity| action::is_pending(activity)).count(),
        },
        "sessionId": said("sessionId"),
        "threadId": said("threadId"),
        "stale": said("stale"),
        "synthetic": said("synthetic"),
        "startedAt": shown.map(|shown| shown.opened_at.to_string()),
        "endedAt": shown.and_then(|shown| shown.ended_at).map(|ended| ended.to_string()),
        "lastActivity": activities.iter().map(|activity| activity.updated_at).max().map(|at| at.to_string()),
    });
    if let Value::Object(members) = &mut state {
        members.retain(|_, value| !value.is_null());
    }
    state
}

/// Reads a position: a sequence, or a cursor of this run.
fn position_param(query: &Query, member: &'static str, epoch: Epoch) -> Result<Option<Sequence>, Problem> {
    let Some(text) = query.get(member).filter(|text| !text.is_empty()) else { return Ok(None) };
    if let Ok(sequence) = text.parse::<u64>() {
        return Ok(Some(Sequence(sequence).min(Sequence::MAX)));
    }
    let cursor: Cursor = text.parse().map_err(|_| {
        let detail = format!("The query's {member} is {text:?}. It must be a sequence, or a nextCursor of this run.");
        Problem::bad_request("bad_cursor", detail).with("member", member)
    })?;
    if cursor.epoch != epoch {
        let detail = format!(
            "The query's {member} is of epoch {}, but the run was rewritten and has epoch {epoch}. Start again without it.",
            cursor.epoch
        );
        return Err(Problem::new(StatusCode::GONE, "epoch_changed", detail).with("expected", epoch.to_string()));
    }
    Ok(Some(cursor.after))
}

/// One page of a run's events.
#[derive(Default)]
struct Page {
    /// The events' JSON texts, in order.
    events: Vec<(Sequence, Bytes)>,
    /// Compacted ranges: the first and the last sequence of each.
    holes: Vec<(Sequence, Sequence)>,
    /// The position where the next page begins. `None`: this is the last.
    next: Option<Sequence>,
}

impl Page {
    /// Records the hole between two sequences, if there is one.
    fn note_hole(&mut self, after: Sequence, before: Sequence) {
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

/// Reads the first events in `(after, before)` that match the filter. `limit: None`: all of them.
async fn forward(
    app: &App,
    log: &LogId,
    epoch: Epoch,
    filter: &Filter,
    after: Sequence,
    before: Sequence,
    limit: Option<usize>,
) -> Result<Page, Problem> {
    let mut page = Page::default();
    let (mut at, mut bytes) = (after, 0);
    // The first read is as small as the page. If the filter drops most rows, the reads grow.
    let mut read = Limit { rows: limit.map_or(READ_LIMIT.rows, |limit| (limit + 1).min(READ_LIMIT.rows)), ..READ_LIMIT };
    loop {
        let rows = app.feed.rows(log, epoch, at, read).await?;
        read.rows = (2 * read.rows).min(READ_LIMIT.rows);
        if rows.is_empty() {
            return Ok(page);
        }
        for row in &rows {
            let view = filter.text_of(row).filter(|_| row.sequence() < before);
            let is_full =
                |limit| page.holes.len() >= HOLES_MAX || view.is_some() && (page.events.len() == limit || bytes > PAGE_BYTES_MAX);
            if limit.is_some_and(is_full) {
                page.next = Some(at);
                return Ok(page);
            }
            page.note_hole(at, row.sequence().min(before));
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

/// Reads the last events before `before` that match the filter, in order.
async fn backward(
    app: &App,
    log: &LogId,
    epoch: Epoch,
    filter: &Filter,
    before: Sequence,
    limit: usize,
) -> Result<Page, Problem> {
    let mut page = Page::default();
    let mut end = before;
    while end > Sequence(1) {
        let start = Sequence(end.0.saturating_sub(1 + READ_LIMIT.rows as u64));
        let mut chunk = forward(app, log, epoch, filter, start, end, None).await?;
        let is_hole = chunk.holes == [(start.next(), Sequence(end.0 - 1))];
        // A hole may span the whole log, so it is skipped in one step.
        end = if is_hole { app.feed.last_before(log, epoch, start.next()).await?.next() } else { start.next() };
        if let (true, Some((from, _))) = (is_hole, chunk.holes.first_mut()) {
            *from = end;
        }
        if let (Some((_, to)), Some((from, last))) = (chunk.holes.last_mut(), page.holes.first().copied())
            && to.next() == from
        {
            *to = last;
            page.holes.remove(0);
        }
        page.holes.splice(0..0, chunk.holes);
        page.events.splice(0..0, chunk.events);
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

/// `GET /v1/runs/{run}/events`: a page of envelopes, always in order.
///
/// With only `before` it holds the newest events before it; else it reads forward from `after`.
pub async fn events(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (filter, limit) = (query.filter()?, query.page_size()?);
    let (run, tail, epoch) = existing_run(&app, &uri).await?;
    let log = LogId::Run(run);
    let (after, before) = (position_param(&query, "after", epoch)?, position_param(&query, "before", epoch)?);
    let end = authorization.moment().map_or(Sequence::MAX, |moment| moment.sequence.next());
    let page = match (after, before.map(|before| before.min(end))) {
        (None, Some(before)) => backward(&app, &log, epoch, &filter, before.min(tail.last.next()), limit).await?,
        (after, before) => {
            let before = before.unwrap_or(end);
            let after = if sabotage::is(40) { after.map(Sequence::next) } else { after };
            forward(&app, &log, epoch, &filter, after.unwrap_or_default(), before, Some(limit)).await?
        }
    };
    let next = page.next.map(|sequence| Cursor::at(epoch, sequence).to_string());
    let mut rest =
        echo(&query, json!({ "nextCursor": next, "truncated": next.is_some() && !sabotage::is(47), "epoch": epoch.to_string() }));
    if !page.holes.is_empty() {
        rest["holes"] = page.holes.iter().map(|(from, to)| json!([from, to])).collect();
    }
    Ok(page_response("events", page.events.iter().map(|(_, event)| &**event), &rest))
}

/// An answer with a list of JSON texts, followed by its other members.
pub(super) fn page_response<'t>(member: &str, texts: impl Iterator<Item = &'t [u8]>, rest: &Value) -> Response {
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

/// `GET /v1/runs/{run}/activities`: the activities now or at any sequence, of all surfaces or some.
pub async fn activities(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (filter, at) = (query.filter()?, query.number("at")?);
    let (run, _, epoch) = existing_run(&app, &uri).await?;
    let at = at.map(|at| Sequence(at).min(Sequence::MAX));
    let at = at.into_iter().chain(authorization.moment().map(|moment| moment.sequence)).min();
    let view = app.feed.activities(&LogId::Run(run.clone()), filter.audience, at).await?.ok_or_else(|| no_such_run(&run))?;
    let activities: Vec<_> =
        view.activities().iter().filter(|activity| filter.accepts_activity(activity)).map(activity_json).collect();
    let answer = json!({
        "runId": run,
        "epoch": epoch.to_string(),
        "sequence": view.through,
        "cursor": Cursor::at(epoch, view.through).to_string(),
        "activities": activities,
    });
    Ok(no_store_json(echo(&query, answer)))
}

/// An activity as JSON.
pub(super) fn activity_json(activity: &Activity) -> Value {
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
    let times = [
        ("endedAt", activity.ended_at),
        ("sourceOpenedAt", activity.source_opened_at),
        ("sourceEndedAt", activity.source_ended_at),
    ];
    for (member, time) in times {
        if let Some(time) = time {
            shown[member] = time.to_string().into();
        }
    }
    if let Some(agent) = &activity.agent {
        shown["agentId"] = agent.as_str().into();
    }
    shown
}

/// Returns whether the authorization covers the log of an offloaded body.
async fn may_read_blob(app: &App, authorization: &Authorization, meta: &BlobMeta) -> Result<bool, Problem> {
    Ok(match (&meta.run, &meta.session) {
        _ if authorization.is_unrestricted() => true,
        (Some(run), _) => authorization.has_run(run, &app.logs.log(&LogId::Run(run.clone())).await?.tail().summary),
        (None, Some(session)) => authorization.has_session(session),
        // Stored before blobs recorded their log.
        (None, None) => false,
    })
}

/// `GET /v1/blobs/{blob}`: an offloaded body, or a range of it.
///
/// 404 if the client may not see the envelope that refers to it.
pub async fn blob(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: BlobId = path_id("blobId", &uri)?;
    let audience = Query::from_uri(&uri).audience()?;
    let missing = || Problem::not_found("no_such_blob", format!("Blob {id} does not exist for this audience."));
    let blob = app.logs.blob(&id).await?.ok_or_else(missing)?;
    let meta = BlobMeta::read(&blob)?;
    if !audience.admits(meta.audience) || !may_read_blob(&app, &authorization, &meta).await? {
        return Err(missing());
    }
    let total = blob.body.len() as u64;
    // What a person attached is not shown in place, not even as an image: it could be anything.
    let disposition = meta.attachment.as_deref().map(|name| match name {
        "" => "attachment".to_owned(),
        name => format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC)),
    });
    let disposition = disposition.map(|disposition| [(header::CONTENT_DISPOSITION, disposition)]);
    let common = [
        (header::CONTENT_TYPE, meta.media_type.to_string()),
        (header::ACCEPT_RANGES, "bytes".into()),
        // A blob never changes, but a shared cache would bypass the access check.
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable".into()),
        // A tool's output must not run as a page of this origin.
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
            let index = |at: u64| usize::try_from(at).expect("the range lies within a body in memory");
            let part = blob.body.slice(index(from)..=index(to));
            let range = [(header::CONTENT_RANGE, format!("bytes {from}-{to}/{total}"))];
            Ok((StatusCode::PARTIAL_CONTENT, common, disposition, range, part).into_response())
        }
        Some(Err(_)) => {
            let detail = format!("The range lies outside the body's {total} bytes. Ask for less, or for all.");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", detail).with("limit", total);
            Ok(([(header::CONTENT_RANGE, format!("bytes */{total}"))], problem).into_response())
        }
        // Several ranges, or an invalid header: RFC 9110, section 14.2, permits answering with the whole body.
        _ => Ok((common, disposition, blob.body).into_response()),
    }
}
