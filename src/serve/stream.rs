//! Frames out as SSE.
//!
//! One [`Stream`] a reader, whoever carries its bytes. The first byte is a comment, so that proxies and clients see an open
//! stream at once; `retry:` rides on the first data frame, for some clients deliver a frame without data as an empty message.

use super::access::{Hold, Pass, Right, allow_all};
use super::clients::place::Place;
use super::clients::view;
use super::meters::{Counted, Transport};
use super::problem::Problem;
use super::request::{Query, bad_id, cursor, from, is_stream, path_id};
use super::{App, stopped};
use crate::auth::rights::Verb;
use crate::encode::native::HEARTBEAT;
use crate::feed::several::Members;
use crate::feed::{From, Reading};
use crate::log::{AnyStore, LogId};
use crate::model::{Audience, Cursor, RunId};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// The headers of every stream: nothing between us and the reader may hold it back, change it or keep it.
pub const HEADERS: [(&str, &str); 4] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
    ("x-content-type-options", "nosniff"),
];

/// What a request for a stream comes to.
pub enum Answer {
    /// The reader has seen the end, and nothing came after: 204, which `EventSource` takes as a reason not to come back.
    NothingMore,
    Live(Box<Stream>),
}

/// One reader's stream of bytes.
pub struct Stream {
    reader: Reading<AnyStore>,
    counted: Counted,
    hold: Hold,
    opened: bool,
    over: bool,
    retry: Option<u64>,
    /// A large first page, which follows its `retry:` line.
    first_page: Option<Bytes>,
    beat: std::pin::Pin<Box<Sleep>>,
    every: Duration,
    drain: Duration,
    stopping: watch::Receiver<Option<Instant>>,
}

/// The largest frames that are copied for one reader, in bytes. Larger ones stay in memory that readers share.
pub const COPIED_BYTES_MAX: usize = 64 * 1024;

/// Runs that one stream may name.
const RUNS_MAX: usize = 256;

/// What it takes to open one.
pub const RIGHT: Right = Right::Watch;

/// Opens the stream that a request for `/v1/runs/{run}/stream`, `/v1/sessions/{session}/stream` or `/v1/stream` asks for.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn open(app: &Arc<App>, pass: Pass, uri: &Uri, headers: &HeaderMap) -> Result<Answer, Problem> {
    let query = Query::of(uri);
    let (reader, pass) = reading(app, pass, uri, &query, headers).await?;
    if reader.has_seen_the_end() {
        return Ok(Answer::NothingMore);
    }
    Ok(Answer::Live(Box::new(Stream::new(app, reader, query.audience()?, pass.open(app)?))))
}

/// What is to be read, and from where; and the pass for all of it.
async fn reading(
    app: &Arc<App>,
    mut pass: Pass,
    uri: &Uri,
    query: &Query,
    headers: &HeaderMap,
) -> Result<(Reading<AnyStore>, Pass), Problem> {
    if let Some(format) = query.get("format") {
        let detail = format!("format={format} is not served here; ask for no format, or for one run");
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"));
    }
    if let Some(version) = query.get("version") {
        let detail = format!("version={version} is a client's, of a format; ask for one, or for no version");
        return Err(Problem::bad_request("bad_query", detail).with("member", "version"));
    }
    let path = uri.path();
    let members = if path.starts_with("/v1/sessions/") {
        Some(Members::of_session(app.logs.clone(), path_id("sessionId", uri)?, query.is_set("children"), pass.takes()))
    } else if path == "/v1/stream" {
        let runs = named(query)?;
        pass = allow_all(app, pass, Verb::Read, &runs).await?;
        Some(Members::Named(runs.into_iter().map(LogId::Run).collect()))
    } else {
        None
    };
    let wanted = query.wanted()?;
    let from = from(place(query, headers))?;
    let reader = match members {
        Some(members) => Reading::Several(Box::new(app.feed.read_several(members, wanted, from))),
        None => Reading::One(app.feed.read(&LogId::Run(path_id("runId", uri)?), wanted, from).await?),
    };
    Ok((reader, pass))
}

/// Where a reader wants to begin, by its headers and its query.
fn place<'q>(query: &'q Query, headers: &'q HeaderMap) -> Option<&'q str> {
    // Last-Event-ID wins: it is what a reconnecting EventSource adds to the URL it was first given.
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    resumed.or_else(|| query.get("last_event_id")).or_else(|| query.get("after"))
}

/// The runs that a query names, each once.
fn named(query: &Query) -> Result<Vec<RunId>, Problem> {
    let mut runs = Vec::new();
    for name in query.list("runs") {
        let run = RunId::new(&name).map_err(|error| bad_id("runs", &error.to_string()))?;
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    if runs.is_empty() || runs.len() > RUNS_MAX {
        let detail = format!("the query's runs names {} runs; it must name 1 to {RUNS_MAX}, separated by commas", runs.len());
        return Err(Problem::bad_request("bad_query", detail).with("member", "runs").with("limit", RUNS_MAX));
    }
    Ok(runs)
}

impl Stream {
    /// What a reader gets, for as long as its pass holds.
    #[must_use]
    pub fn new(app: &App, reader: Reading<AnyStore>, audience: Audience, hold: Hold) -> Self {
        Self {
            reader,
            counted: app.meters.reader(audience, Transport::Sse),
            hold,
            opened: false,
            over: false,
            retry: Some(app.retry()),
            first_page: None,
            beat: Box::pin(tokio::time::sleep(app.pulse.heartbeat)),
            every: app.pulse.heartbeat,
            drain: app.moment_in_drain(),
            stopping: app.stopping.subscribe(),
        }
    }

    /// How long the reader is to wait before it comes back, in milliseconds, for whoever frames what it is told otherwise; once.
    pub const fn take_retry(&mut self) -> Option<u64> {
        self.retry.take()
    }

    /// Has the reader begin anew; see [`Reading::begin_again`].
    pub fn begin_again(&mut self) {
        self.reader.begin_again();
    }

    /// Gives back the frames after `cursor`; see [`Reading::rewind`].
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        self.reader.rewind(cursor)
    }

    /// The next bytes to send; `None` when the stream is over. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Bytes> {
        if !self.opened {
            self.opened = true;
            return Some(Bytes::from_static(HEARTBEAT));
        }
        if let Some(page) = self.first_page.take() {
            return Some(page);
        }
        if self.over {
            return None;
        }
        let frames = tokio::select! {
            biased;
            // First, or a reader that is always behind would never hear of it.
            () = stopped(&mut self.stopping, self.drain) => return None,
            problem = self.hold.over() => return Some(self.refused(&problem)),
            frames = self.reader.next() => frames,
            () = &mut self.beat => {
                self.beat.as_mut().reset(Instant::now() + self.every);
                return Some(Bytes::from_static(HEARTBEAT));
            }
        };
        let frames = match frames {
            Ok(frames) => match self.hold.check() {
                Ok(()) => frames?,
                Err(problem) => self.refused(&problem),
            },
            Err(error) => self.refused(&error.into()),
        };
        self.counted.delivered();
        let Some(retry) = self.retry.take() else { return Some(frames) };
        let line = format!("retry: {retry}\n");
        if frames.len() <= COPIED_BYTES_MAX {
            return Some([line.as_bytes(), &frames].concat().into());
        }
        // Readers share a page. A copy of a large one would be one stalled reader's own.
        self.first_page = Some(frames);
        Some(line.into())
    }
}

impl Stream {
    /// The last frame: a client cannot see a status any more, but it can read why there is nothing after this.
    fn refused(&mut self, problem: &Problem) -> Bytes {
        self.over = true;
        self.reader.error(&problem.to_json())
    }
}

/// A run's stream in the words of another client.
async fn in_format(
    app: &Arc<App>,
    pass: Pass,
    uri: &Uri,
    headers: &HeaderMap,
    query: &Query,
    format: &str,
) -> Result<Response, Problem> {
    let run = path_id::<RunId>("runId", uri)?;
    let place: Option<Place> = match place(query, headers) {
        Some("now") => {
            let detail = "after=now cannot be had in a format: what was not told cannot be gone on with";
            return Err(Problem::bad_request("bad_query", detail).with("member", "after"));
        }
        Some(text) if !["", "start"].contains(&text) => Some(cursor("after", text)?),
        _ => None,
    };
    if let Some(Place { cursor, .. }) = place {
        let reader = app.feed.read(&LogId::Run(run.clone()), query.wanted()?, From::After(cursor)).await?;
        if reader.has_seen_the_end() {
            return Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response());
        }
    }
    view::get(app, pass, run, (query, place, query.audience()?), format).await
}

/// Any of the streams, on a connection that hyper carries.
pub async fn get(State(app): State<Arc<App>>, pass: Pass, uri: Uri, headers: HeaderMap) -> Response {
    let query = Query::of(&uri);
    if let Some(format) = query.get("format").filter(|_| is_stream(uri.path())) {
        return match in_format(&app, pass, &uri, &headers, &query, format).await {
            Ok(response) => response,
            Err(problem) => problem.into_response(),
        };
    }
    match open(&app, pass, &uri, &headers).await {
        Ok(Answer::Live(stream)) => {
            let frames = futures_util::stream::unfold(stream, async |mut stream| {
                stream.next().await.map(|bytes| (Ok::<_, std::convert::Infallible>(bytes), stream))
            });
            (HEADERS, Body::from_stream(frames)).into_response()
        }
        Ok(Answer::NothingMore) => ([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response(),
        Err(problem) => problem.into_response(),
    }
}
