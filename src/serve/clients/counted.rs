//! Streams that a client of the AI SDK counts: `WorkflowChatTransport` of `@ai-sdk/workflow`.
//!
//! The client counts the chunks of an answer from 0. If the answer ends without a `finish` chunk, the client asks for
//! the rest with `GET {api}/{name}/stream?startIndex={count}`, at once and without a limit, but gives up after three
//! answers in a row without a chunk, and at the first one that is not 200 with a body. `{name}` is the answer's
//! `x-workflow-run-id`. A page that was loaded again knows only its chat: it sends the chat's id, and
//! `startIndex=0` or, to get only the newest chunks, a negative one. With that it expects the index of the last chunk in
//! `x-workflow-stream-tail-index`.
//!
//! **The count is the same for every reader**, because the chunks of such a stream are a function of the log alone; see
//! [`ai_sdk`](crate::encode::ai_sdk). Nothing stores them. The server translates the log again from where the stream
//! began, counts, and sends what follows. So it needs every change: a compacted log cannot give them, which is 410, and
//! the client loads the chat.
//!
//! **The name says what decides the chunks** ([`StreamName`]). A chat's id does not: it means the run that is active, or,
//! for a client that has chunks of it, the one that just ended. If that client lost its connection, its run ended, and
//! another one began before it asked again, it gets the other one's rest. A client with the name of its stream does not.
//!
//! **Every answer ends with `finish`.** A client that has all chunks, because they end with `abort` or `error`, asks once
//! more, and gets a `finish`. So does one that asks for the stream of a chat at rest: the 204 of the address without
//! `startIndex` is an error to it.

use super::ai_sdk_streams::{counted_dialect, open_requested_run};
use super::threads::Thread;
use super::view::{AI_SDK, ai_sdk_version};
use super::{DialectStream, StreamOpening};
use crate::auth::rights::Verb;
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::translator::IdPosition;
use crate::log::LogId;
use crate::model::{Audience, Cursor, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize};
use crate::serve::access::counted_stream::{HEADER, StreamForm, StreamName};
use crate::serve::access::requested_run::requested_in_thread;
use crate::serve::api::stream::HEADERS;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, bad_id, decoded_segment, id_of, quoted};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use std::sync::Arc;

/// The header with the index of a stream's last chunk, from which the client resolves a negative `startIndex`.
const TAIL_HEADER: &str = "x-workflow-stream-tail-index";

/// The whole body for a client that has every chunk.
const FINISHED: &str = "data: {\"type\":\"finish\"}\n\ndata: [DONE]\n\n";

/// A run's stream, and what decides its chunks.
struct Counted {
    run: RunId,
    form: StreamForm,
    /// The chat in which the run was requested, if it is not written yet.
    requested_in: Option<SessionId>,
}

/// The stream that a path names.
enum Named {
    Stream(Counted),
    /// A chat of which no run is active.
    AtRest,
}

/// Whether the log of a run lacks changes, because a compaction deleted them.
///
/// # Errors
/// The store's failure.
pub async fn is_compacted(app: &App, run: &RunId) -> Result<bool, Problem> {
    Ok(app.logs.log(&LogId::Run(run.clone())).await?.compaction_count() > 0)
}

/// 410 for a stream that cannot be counted.
#[must_use]
pub fn compacted(run: &RunId) -> Problem {
    let detail = format!(
        "The log of run {run} was compacted, so a client cannot go on within its stream. Load the chat, or all of the stream."
    );
    Problem::new(StatusCode::GONE, "compacted", detail).with("runId", run.as_str())
}

/// Adds the name of a run's stream to the answer that begins it.
pub fn with_name(app: &App, query: &Query, run: &RunId, form: StreamForm, mut response: Response) -> Response {
    let mut name = StreamName { run: run.clone(), form: None };
    let is_default = form.after.is_none() && query.get("version").is_none() && query.get("audience").is_none();
    let is_chat = || {
        let chat = SessionId::new(run.as_str()).ok();
        chat.is_none_or(|chat| app.logs.sessions().created_order(&chat).is_some())
    };
    // The id alone must mean this stream to a later request.
    if !is_default || name.to_string() != run.as_str() || is_chat() {
        name.form = Some(form);
    }
    let value = HeaderValue::from_str(&name.to_string()).expect("a name has only visible ASCII characters");
    response.headers_mut().insert(HEADER, value);
    response
}

/// `GET /ai-sdk/{agent}/{chat}/stream?startIndex=`: the chunks from this one on.
///
/// # Errors
/// 400 for an index that is not a number or lies beyond the stream's end, 404 for an unknown run, 410 for a compacted one.
pub async fn resume(app: &Arc<App>, authorization: Authorization, uri: &Uri, start: &str) -> Result<Response, Problem> {
    let query = Query::from_uri(uri);
    let start: i64 = start.parse().map_err(|_| {
        let detail = format!("startIndex is {}. It must be a whole number; a negative one counts from the end.", quoted(start));
        Problem::bad_request("bad_query", detail).with("member", "startIndex")
    })?;
    let counted = match named(app, &authorization, uri, &query, start).await? {
        Named::Stream(counted) => counted,
        Named::AtRest if start <= 0 => {
            let mut response = finished();
            response.headers_mut().extend((start < 0).then(|| tail_index(0)));
            return Ok(response);
        }
        Named::AtRest => return Err(beyond(start, 0)),
    };
    let (form, run) = (counted.form, counted.run.clone());
    if is_compacted(app, &run).await? {
        return Err(compacted(&run));
    }
    let (mut from, mut tail) = (u64::try_from(start).unwrap_or_default(), None);
    if start < 0 {
        let mut all = open(app, &authorization, &counted).await?;
        all.skip(u64::MAX);
        let Some(left) = all.catch_up().await? else {
            // It has failed, and says why.
            return Ok(with_name(app, &query, &run, form, all.respond(AI_SDK)));
        };
        let total = u64::MAX - left;
        from = total.saturating_sub(start.unsigned_abs());
        tail = Some(tail_index(total));
    }
    let mut stream = open(app, &authorization, &counted).await?;
    stream.skip(from);
    let response = match stream.catch_up().await? {
        Some(left) if left > 0 => return Err(beyond(start, from - left)),
        Some(_) if stream.is_over() => finished(),
        _ => stream.respond(AI_SDK),
    };
    let mut response = with_name(app, &query, &run, form, response);
    response.headers_mut().extend(tail);
    Ok(response)
}

/// The header of a stream with so many chunks.
fn tail_index(count: u64) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(TAIL_HEADER), HeaderValue::from(i64::try_from(count).unwrap_or(i64::MAX) - 1))
}

fn beyond(start: i64, count: u64) -> Problem {
    let detail = format!("startIndex is {start}, and the stream has {count} chunks. Send the number of chunks that you have.");
    Problem::bad_request("bad_query", detail).with("member", "startIndex").with("limit", count)
}

/// The answer to a client that has all of a stream's chunks.
fn finished() -> Response {
    let mut response = (HEADERS, Body::from(FINISHED)).into_response();
    let headers = AI_SDK.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// Finds the stream that a path names: by its own name, by a chat, or by a run.
async fn named(app: &App, authorization: &Authorization, uri: &Uri, query: &Query, start: i64) -> Result<Named, Problem> {
    let text = decoded_segment("chatId", uri, 3)?;
    let form = StreamForm { version: ai_sdk_version(query)?, audience: query.audience()?, after: None };
    if let Some(StreamName { run, form: own }) = StreamName::parse(&text) {
        return of_run(app, run, own.unwrap_or(form)).await;
    }
    let chat: SessionId = id_of("chatId", &text)?;
    let thread = Thread::find(app, &chat).await?;
    // A client that has chunks of a chat may ask when its run has just ended.
    let last = thread.runs.last().filter(|_| start > 0);
    let active = thread.active(form.audience);
    let requested = thread.requested.first().filter(|_| active.is_none());
    if let Some(run) = active.map(|part| &part.run).or(requested).or(last.map(|part| &part.run)) {
        let requested_in = requested.is_some().then(|| thread.id.clone());
        return Ok(Named::Stream(Counted { run: run.clone(), form, requested_in }));
    }
    let run = RunId::new(&text).map_err(|error| bad_id("chatId", &error.to_string()))?;
    match thread.run_count > 0 || app.logs.sessions().created_order(&chat).is_some() {
        true => Ok(Named::AtRest),
        false => match of_run(app, run.clone(), form).await {
            Err(problem) if problem.status == StatusCode::NOT_FOUND => {
                match authorize(app, authorization.principal(), Verb::Read, Resource::Run(&run), None).await {
                    Err(erased) if erased.status == StatusCode::GONE => Err(erased),
                    // Nothing has the id yet, so its reader can have no chunks.
                    _ if start <= 0 => Ok(Named::AtRest),
                    _ => Err(problem),
                }
            }
            found => found,
        },
    }
}

/// The stream of a run that exists, or that was requested.
async fn of_run(app: &App, run: RunId, form: StreamForm) -> Result<Named, Problem> {
    let is_written = app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_some();
    let requested_in = requested_in_thread(app, &run).filter(|_| !is_written);
    if !is_written && requested_in.is_none() {
        return Err(Problem::not_found("no_such_run", format!("Run {run} does not exist.")));
    }
    Ok(Named::Stream(Counted { run, form, requested_in }))
}

/// Opens a stream from where it began.
async fn open(app: &Arc<App>, authorization: &Authorization, counted: &Counted) -> Result<DialectStream, Problem> {
    let Counted { run, form: StreamForm { version, audience, after }, requested_in } = counted;
    if let Some(chat) = requested_in {
        let resource = Resource::RequestedRun(run);
        let authorization = authorize(app, authorization.principal(), Verb::Read, resource, Some(*audience)).await?;
        let dialect = counted_dialect(run, *version);
        return open_requested_run(app, authorization, chat, run.clone(), *audience, dialect).await;
    }
    open_written(app, authorization, run, *audience, *version, *after).await
}

/// Opens the stream of an existing run, after one of its pauses.
async fn open_written(
    app: &Arc<App>,
    authorization: &Authorization,
    run: &RunId,
    audience: Audience,
    version: u8,
    after: Option<Cursor>,
) -> Result<DialectStream, Problem> {
    let authorization = authorize(app, authorization.principal(), Verb::Read, Resource::Run(run), Some(audience)).await?;
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if let Some(cursor) = after.filter(|cursor| tail.epoch != Some(cursor.epoch)) {
        let detail = format!("The stream of run {run} continues after {cursor}, which is of an earlier epoch of the log.");
        return Err(Problem::new(StatusCode::GONE, "epoch_changed", detail));
    }
    let dialect = counted_dialect(run, version);
    let (run, ids, after) = (run.clone(), IdPosition::Last, after.map(DialectCursor::from));
    let opening = StreamOpening { run, audience, after, replay: true, ids, earlier: Vec::new(), dialect };
    DialectStream::open(app, authorization, opening).await
}
