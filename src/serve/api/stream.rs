//! SSE streams of frames.
//!
//! Each reader has one [`Stream`], whichever connection carries its bytes. The first byte is a comment, so that proxies
//! and clients see an open stream at once. `retry:` comes with the first data frame, because some clients deliver a
//! frame without data as an empty message.

use crate::auth::rights::Verb;
use crate::encode::encoded::EncodedFrames;
use crate::encode::native::heartbeat;
use crate::feed::fan_out::Followers;
use crate::feed::{AnyReader, LogSet, TryNext};
use crate::log::{LogId, StoreError};
use crate::model::{Audience, Cursor, RunId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, OpenAccess, authorize_runs};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, bad_id, path_id, start_at};
use crate::serve::stop_signal::StopWaiter;
use crate::serve::telemetry::meters::{Counted, Transport};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The headers of every stream: no intermediary may buffer, change or store it.
pub const HEADERS: [(&str, &str); 4] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
    ("x-content-type-options", "nosniff"),
];

/// The byte stream of one reader.
pub struct Stream {
    reader: AnyReader,
    counted: Counted,
    access: OpenAccess,
    has_opened: bool,
    /// The problem that ended it.
    problem: Option<Problem>,
    reconnect_delay_ms: Option<u64>,
    /// A large first page, which follows its `retry:` line.
    first_page: Option<EncodedFrames>,
    /// Runs while the stream is awaited.
    heartbeat_timer: Option<std::pin::Pin<Box<Sleep>>>,
    heartbeat: Duration,
    drain: Duration,
    stopping: StopWaiter,
}

/// Maximum size of frames that are copied for one reader, in bytes.
///
/// Larger frames stay in memory that readers share.
pub const COPIED_BYTES_MAX: usize = 64 * 1024;

/// Opens the stream that a request names. `None`: the client has received everything up to the end.
///
/// Its path is `/v1/runs/{run}/stream`, `/v1/sessions/{session}/stream` or `/v1/stream`.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn open(
    app: &Arc<App>,
    authorization: Authorization,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Box<Stream>>, Problem> {
    let query = Query::from_uri(uri);
    let (reader, authorization) = open_reader(app, authorization, uri, &query, headers).await?;
    if reader.has_seen_end() {
        return Ok(None);
    }
    Ok(Some(Box::new(Stream::new(app, reader, query.audience()?, authorization.open_counted(app)?))))
}

/// Opens the reader of a request, and authorizes all that it reads.
async fn open_reader(
    app: &Arc<App>,
    mut authorization: Authorization,
    uri: &Uri,
    query: &Query,
    headers: &HeaderMap,
) -> Result<(AnyReader, Authorization), Problem> {
    if let Some(format) = query.get("format") {
        let detail = format!("The format {format} is only available for the stream of one run. Omit it, or ask for one run.");
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"));
    }
    if let Some(version) = query.get("version") {
        let detail = format!("The query has version={version} without a format. Add a format, or omit the version.");
        return Err(Problem::bad_request("bad_query", detail).with("member", "version"));
    }
    let path = uri.path();
    let members = if path.starts_with("/v1/sessions/") {
        Some(LogSet::of_session(
            app.logs.clone(),
            path_id("sessionId", uri)?,
            query.is_set("children"),
            authorization.session_filter(),
        ))
    } else if path == "/v1/stream" {
        let runs = named_runs(query)?;
        authorization = authorize_runs(app, authorization, Verb::Read, &runs).await?;
        Some(LogSet::Named(runs.into_iter().map(LogId::Run).collect()))
    } else {
        None
    };
    let request = query.read_request()?;
    let start = start_at(start_param(query, headers))?;
    let reader = match members {
        Some(members) => AnyReader::Merged(Box::new(app.feed.read_merged(members, request, start))),
        None => AnyReader::One(app.feed.read(&LogId::Run(path_id("runId", uri)?), request, start).await?),
    };
    Ok((reader, authorization))
}

/// The position where a client wants to start, by its headers and its query.
pub(in crate::serve) fn start_param<'q>(query: &'q Query, headers: &'q HeaderMap) -> Option<&'q str> {
    // Last-Event-ID wins: a reconnecting EventSource adds it to its original URL.
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    resumed.or_else(|| query.get("last_event_id")).or_else(|| query.get("after"))
}

/// The runs that a query names, without duplicates.
fn named_runs(query: &Query) -> Result<Vec<RunId>, Problem> {
    let mut runs = Vec::new();
    for name in query.ids_of("runs")? {
        let run = RunId::new(&name).map_err(|error| bad_id("runs", &error.to_string()))?;
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    if runs.is_empty() {
        let detail = "The query names no run. Add runs=, with ids separated by commas or a runs= for each id.";
        return Err(Problem::bad_request("bad_query", detail).with("member", "runs"));
    }
    Ok(runs)
}

impl Stream {
    /// Creates a stream that lasts while `access` does.
    #[must_use]
    pub fn new(app: &App, reader: AnyReader, audience: Audience, access: OpenAccess) -> Self {
        Self {
            reader,
            counted: app.meters.reader(audience, Transport::Sse),
            access,
            has_opened: false,
            problem: None,
            reconnect_delay_ms: Some(app.reconnect_delay_ms()),
            first_page: None,
            heartbeat_timer: None,
            heartbeat: app.keep_alive.heartbeat,
            drain: app.drain_delay(),
            stopping: app.stopping.waiter(),
        }
    }

    /// Takes the reconnect delay, in milliseconds, for a caller that frames it in its own format.
    ///
    /// Returns it once.
    pub const fn take_reconnect_delay(&mut self) -> Option<u64> {
        self.reconnect_delay_ms.take()
    }

    /// Restarts the reader; see [`AnyReader::restart`].
    pub fn restart(&mut self) {
        self.reader.restart();
    }

    /// Whether no other reader may get the same frames; see [`AnyReader::is_alone`].
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.reader.is_alone()
    }

    /// Returns the frames after `cursor` to the reader; see [`AnyReader::rewind`].
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        self.reader.rewind(cursor)
    }

    /// Returns the next frames or bytes to send; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<EncodedFrames> {
        match self.next_by(async |reader| Ok(reader.next().await?.map_or(TryNext::Busy, TryNext::Frames))).await {
            TryNext::Frames(frames) => Some(frames),
            TryNext::Idle | TryNext::Busy => None,
        }
    }

    /// Like [`Self::next`], for a stream that was [`TryNext::Busy`]: it may be idle, or over if it is still busy.
    ///
    /// A stream that must end is never idle: it waits for its end, or for frames until then.
    pub async fn advance(&mut self) -> TryNext {
        match self.must_end() {
            true => self.next().await.map_or(TryNext::Busy, TryNext::Frames),
            false => self.next_by(AnyReader::advance).await,
        }
    }

    async fn next_by(&mut self, read: impl AsyncFnOnce(&mut AnyReader) -> Result<TryNext, StoreError>) -> TryNext {
        if let Some(frames) = self.at_hand() {
            return TryNext::Frames(frames);
        }
        if self.problem.is_some() {
            return TryNext::Busy;
        }
        let pause = self.heartbeat;
        let heartbeat_timer = self.heartbeat_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        let frames = tokio::select! {
            biased;
            // First, because a reader that is always behind would never notice the stop.
            () = self.stopping.elapsed(self.drain) => return TryNext::Busy,
            problem = self.access.ended() => return TryNext::Frames(self.last_frame(problem)),
            frames = read(&mut self.reader) => frames,
            () = heartbeat_timer.as_mut() => {
                heartbeat_timer.as_mut().reset(Instant::now() + pause);
                return TryNext::Frames(heartbeat());
            }
        };
        match frames {
            Ok(TryNext::Frames(frames)) => TryNext::Frames(self.checked(frames)),
            Ok(other) => other,
            Err(error) => TryNext::Frames(self.last_frame(error.into())),
        }
    }

    /// Returns the next bytes to send, if they are here now. A stream that ends is [`TryNext::Busy`].
    pub fn try_next(&mut self) -> TryNext {
        if let Some(frames) = self.at_hand() {
            return TryNext::Frames(frames);
        }
        if self.problem.is_some() || self.must_end() {
            return TryNext::Busy;
        }
        match self.reader.try_next() {
            TryNext::Frames(frames) => TryNext::Frames(self.checked(frames)),
            other => other,
        }
    }

    /// Leaves the wakes of this stream to a task, which calls [`Self::try_next`] and sends the heartbeats.
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize, waker: &Waker) {
        self.heartbeat_timer = None;
        self.reader.follow(followers, key, waker);
    }

    /// Gives the stream its own wakes again, for [`Self::next`].
    pub fn unfollow(&mut self) {
        self.reader.unfollow();
    }

    /// Whether the server is stopping, or the stream's token has ended.
    #[must_use]
    pub fn must_end(&self) -> bool {
        self.stopping.is_requested() || self.access.end_reason().is_some()
    }

    /// The problem that ended the stream, if one did.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        self.problem.clone()
    }

    /// The time between two heartbeats.
    #[must_use]
    pub const fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Converts the stream into a response.
    #[must_use]
    pub fn respond(self: Box<Self>) -> Response {
        let frames = futures_util::stream::unfold(self, async |mut stream| {
            stream.next().await.map(|frames| (Ok::<_, std::convert::Infallible>(frames.into_bytes()), stream))
        });
        (HEADERS, Body::from_stream(frames)).into_response()
    }

    /// What precedes the reader's next frames.
    fn at_hand(&mut self) -> Option<EncodedFrames> {
        if !self.has_opened {
            self.has_opened = true;
            return Some(heartbeat());
        }
        self.first_page.take()
    }

    /// Returns frames if they may still be sent, with the reconnect delay before the first.
    fn checked(&mut self, frames: EncodedFrames) -> EncodedFrames {
        let frames = match self.access.check() {
            Ok(()) => frames,
            Err(problem) => self.last_frame(problem),
        };
        self.counted.delivered();
        let Some(delay_ms) = self.reconnect_delay_ms.take() else { return frames };
        let line = format!("retry: {delay_ms}\n");
        if frames.len() <= COPIED_BYTES_MAX {
            return frames.copied_after(line.as_bytes());
        }
        // Readers share a page. A copy of a large page would belong to one stalled reader alone.
        self.first_page = Some(frames);
        Bytes::from(line).into()
    }

    /// Builds the last frame: the status is already sent, but the client can read why the stream ends.
    fn last_frame(&mut self, problem: Problem) -> EncodedFrames {
        let frame = self.reader.error(&problem.to_json());
        self.problem = Some(problem);
        frame
    }
}
