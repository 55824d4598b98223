//! Existing clients: their own protocols and addresses, on ordinary streams.
//!
//! A [`DialectStream`] answers one such client. It reads the native frames of a run and writes the events of the
//! client's dialect as SSE. It starts, resumes after a cursor, and skips ahead when it is slow, like every reader.
//!
//! These clients treat a response that ends as a finished run. So a stream only ends after its dialect has written the
//! end. If the server must cut it off because it stops, the stream fails and its connection is reset.
//!
//! These clients also request runs and decide pending actions. Such a request becomes a control ([`requests`]), and the
//! response stays open while the control is on its way: a stream may start pending ([`DialectStream::after`]).

pub mod ag_ui;
pub mod ai_sdk;
pub mod bodies;
pub mod body;
pub mod copilotkit;
pub mod cursor;
pub mod requests;
pub mod tanstack;
pub mod threads;
pub mod view;

use crate::encode::encoded::{DecodedFrame, EncodedFrames};
use crate::encode::frames::{ActivityView, Frame};
use crate::encode::native::heartbeat;
use crate::encode::{Dialect, Flow};
use crate::feed::Frames;
use crate::feed::{AnyReader, Filter, ReadRequest, StartAt};
use crate::log::LogId;
use crate::model::json::escape_line_ends;
use crate::model::{Audience, Cursor, RunId, Sequence};
use crate::serve::access::authorization::{Authorization, OpenAccess};
use crate::serve::api::stream::{HEADERS, Stream};
use crate::serve::http::problem::Problem;
use crate::serve::{App, drain_elapsed};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bodies::{BodyReader, FilledText};
use bytes::Bytes;
use cursor::{DialectCursor, SentEvents};
use parking_lot::Mutex;
use serde_json::Value;
use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// The position of an event's `id:` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPosition {
    /// After its data: a client that commits the id as it reads it loses nothing when cut between the two.
    Last,
    /// Before its data: for clients that assign an id to the data that follows it (`TanStack`).
    First,
}

/// The start of a stream of a run that exists.
pub struct StreamOpening {
    pub run: RunId,
    pub audience: Audience,
    /// The position to resume after. `None`: the beginning.
    pub after: Option<DialectCursor>,
    /// Replays every change from there on, instead of the current state.
    pub replay: bool,
    pub ids: IdPosition,
    /// The earlier runs of the thread, oldest first; see [`Dialect::load_history`].
    pub earlier: Vec<RunId>,
    pub dialect: Box<dyn Dialect>,
}

/// The start of a stream that waits for its run.
pub struct PendingOpening {
    /// Resolves when the run has started. On an error the dialect reports the problem.
    pub start: StartFuture,
    pub audience: Audience,
    pub ids: IdPosition,
    /// The runs to show while it waits, oldest first.
    pub meanwhile: Option<Vec<RunId>>,
    pub dialect: Box<dyn Dialect>,
}

/// Resolves to the started run, or to the reason why it does not start.
pub type StartFuture = Pin<Box<dyn Future<Output = Result<Started, Problem>> + Send>>;

/// The run of a pending stream, once it exists; fields as in [`StreamOpening`].
pub struct Started {
    pub run: RunId,
    /// The authorization to read that run.
    pub authorization: Authorization,
    /// The cursor to resume after. `None`: the beginning.
    pub after: Option<Cursor>,
    pub replay: bool,
    /// `None`: the client has already been shown the earlier runs.
    pub earlier: Option<Vec<RunId>>,
}

/// The event stream of one client.
pub struct DialectStream {
    app: Arc<App>,
    source: FrameSource,
    dialect: SharedDialect,
    audience: Audience,
    earlier: Vec<RunId>,
    ids: IdPosition,
    /// The text that is being sent, and the bodies that belong into it.
    sending: FilledText,
    bodies: BodyReader,
    /// Sent with the first event.
    reconnect_delay_ms: Option<u64>,
    /// Events to send before all others.
    opening_events: Vec<Value>,
    /// The reader's position, once it has a cursor.
    position: Option<DialectCursor>,
    /// The events of the first envelope that the client received before it was cut off.
    already_sent: SentEvents,
    is_over: bool,
}

/// A dialect that a thread may work with while its stream waits.
type SharedDialect = Arc<Mutex<Box<dyn Dialect>>>;

/// The source of the native frames.
enum FrameSource {
    /// Waiting for the run.
    Pending(Box<PendingSource>),
    Stream(Box<Stream>),
}

/// A wait with the heartbeat and drain of a stream.
struct PendingSource {
    start: StartFuture,
    access: OpenAccess,
    has_opened: bool,
    heartbeat_timer: Pin<Box<Sleep>>,
    drain: Duration,
    stopping: watch::Receiver<Option<Instant>>,
}

/// The next event of a source.
enum SourceEvent {
    Heartbeat,
    Frames(EncodedFrames),
    Started(Started),
    Refused(Problem),
    /// The server cuts the stream before its end.
    Cut,
}

impl PendingSource {
    fn new(app: &App, authorization: Authorization, start: StartFuture) -> Result<Self, Problem> {
        let heartbeat_timer = Box::pin(tokio::time::sleep(app.keep_alive.heartbeat));
        let (drain, stopping) = (app.drain_delay(), app.stopping.subscribe());
        Ok(Self { start, access: authorization.open_counted(app)?, has_opened: false, heartbeat_timer, drain, stopping })
    }

    async fn next(&mut self, heartbeat: Duration) -> SourceEvent {
        if !self.has_opened {
            self.has_opened = true;
            return SourceEvent::Heartbeat;
        }
        tokio::select! {
            biased;
            () = drain_elapsed(&mut self.stopping, self.drain) => SourceEvent::Cut,
            problem = self.access.ended() => SourceEvent::Refused(problem),
            started = &mut self.start => started.map_or_else(SourceEvent::Refused, SourceEvent::Started),
            () = &mut self.heartbeat_timer => {
                self.heartbeat_timer.as_mut().reset(Instant::now() + heartbeat);
                SourceEvent::Heartbeat
            }
        }
    }
}

/// The activities of a run, as an audience sees them at a sequence. Empty for a run without a log.
///
/// Values that moved to a body are placeholders; a [`BodyReader`] puts the bodies into what is sent.
pub async fn shown_activities(
    app: &App,
    run: &RunId,
    audience: Audience,
    at: Option<Sequence>,
) -> Result<Vec<ActivityView>, Problem> {
    let view = app.feed.activities(&LogId::Run(run.clone()), audience, at).await?;
    let (placeholders, run) = (app.placeholders.clone(), run.clone());
    let shown = move || {
        let activities = view.iter().flat_map(crate::projection::View::activities);
        activities.map(|activity| placeholders.mark_activity(ActivityView::of(&run, activity))).collect()
    };
    Ok(apart(app, shown).await)
}

/// Translates what may be a long conversation where it delays no other request.
pub async fn apart<T: Send + 'static>(app: &App, translate: impl FnOnce() -> T + Send + 'static) -> T {
    app.logs.work(move |_| translate()).await
}

impl DialectStream {
    /// Opens the stream of a run that exists.
    ///
    /// # Errors
    /// The store's failure; 429 if the token's `sub` is at its connection limit.
    pub async fn open(app: &Arc<App>, authorization: Authorization, opening: StreamOpening) -> Result<Self, Problem> {
        let StreamOpening { run, audience, after, replay, ids, earlier, dialect } = opening;
        let dialect = Arc::new(Mutex::new(dialect));
        load_history(app, &earlier, audience, &dialect).await?;
        let already_sent = after.map(|position| position.sent).unwrap_or_default();
        // A half-sent envelope must be translated again exactly as the first time.
        let replay = replay || already_sent.count > 0;
        let started = Started { run, authorization, after: after.map(|position| position.cursor), replay, earlier: None };
        let position = started.after.map(DialectCursor::from);
        let run = started.run.clone();
        let stream = open_stream(app, started, audience, &dialect).await?;
        let mut opened = Self::new(app, FrameSource::Stream(Box::new(stream)), audience, ids, earlier, dialect);
        opened.bodies.cover(&run);
        Ok(Self { position, already_sent, ..opened })
    }

    /// Opens a stream that waits for its run. Until the run starts, `authorization` covers the wait.
    ///
    /// # Errors
    /// The store's failure; 429 if the token's `sub` is at its connection limit.
    pub async fn after(app: &Arc<App>, authorization: Authorization, opening: PendingOpening) -> Result<Self, Problem> {
        let PendingOpening { start, audience, ids, meanwhile, dialect } = opening;
        let dialect = Arc::new(Mutex::new(dialect));
        let mut opening_events = Vec::new();
        if let Some(earlier) = &meanwhile {
            load_history(app, earlier, audience, &dialect).await?;
            (_, opening_events) = translated(app, &dialect, &Frame::Hydrated {}).await;
        }
        let source = FrameSource::Pending(Box::new(PendingSource::new(app, authorization, start)?));
        Ok(Self { opening_events, ..Self::new(app, source, audience, ids, meanwhile.unwrap_or_default(), dialect) })
    }

    fn new(
        app: &Arc<App>,
        source: FrameSource,
        audience: Audience,
        ids: IdPosition,
        earlier: Vec<RunId>,
        dialect: SharedDialect,
    ) -> Self {
        let (app, reconnect_delay_ms) = (app.clone(), Some(app.reconnect_delay_ms()));
        let (opening_events, position, already_sent) = (Vec::new(), None, SentEvents::default());
        let bodies = BodyReader::new(&app, audience, earlier.clone());
        Self {
            app,
            source,
            dialect,
            audience,
            earlier,
            ids,
            sending: FilledText::of(Bytes::new()),
            bodies,
            reconnect_delay_ms,
            opening_events,
            position,
            already_sent,
            is_over: false,
        }
    }

    /// Switches from waiting to reading the started run.
    async fn begin(&mut self, mut started: Started) -> Result<(), Problem> {
        if let Some(earlier) = started.earlier.take() {
            // A client that gets a replay is shown earlier runs only after a restart.
            if !started.replay {
                load_history(&self.app, &earlier, self.audience, &self.dialect).await?;
            }
            self.earlier = earlier;
        }
        self.earlier.iter().chain([&started.run]).for_each(|run| self.bodies.cover(run));
        if let FrameSource::Pending(wait) = &mut self.source {
            // The wait and the stream count as one open connection.
            wait.access = OpenAccess::default();
        }
        self.position = started.after.map(DialectCursor::from);
        self.source = FrameSource::Stream(Box::new(open_stream(&self.app, started, self.audience, &self.dialect).await?));
        Ok(())
    }

    /// Returns the next bytes to send; `None` after the end. Cancel safe for frames that were not read.
    ///
    /// # Errors
    /// The stream is cut before its end, and the response must not look complete.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(piece) = self.sending.next(&self.bodies).await {
                return Some(Ok(piece));
            }
            if self.is_over {
                return None;
            }
            let mut out = Vec::new();
            if !self.opening_events.is_empty() {
                let opening_events = std::mem::take(&mut self.opening_events);
                self.write_events(&opening_events, None, &mut out);
                self.sending = FilledText::of(out);
                continue;
            }
            let outcome = match self.next_event().await {
                SourceEvent::Heartbeat => return Some(Ok(heartbeat().into_bytes())),
                SourceEvent::Cut => return Some(Err(io::ErrorKind::ConnectionReset.into())),
                SourceEvent::Started(started) => self.begin(started).await,
                SourceEvent::Refused(problem) => Err(problem),
                SourceEvent::Frames(frames) => self.translate(&frames, &mut out).await,
            };
            if let Err(problem) = outcome {
                // A native reader gets the problem in an error frame.
                let events = &mut Vec::new();
                self.dialect.lock().frame(&Frame::Error { problem: problem.to_json() }, events);
                self.write_events(events, None, &mut out);
                self.finish(&mut out);
            }
            self.sending = FilledText::of(out);
        }
    }

    async fn next_event(&mut self) -> SourceEvent {
        match &mut self.source {
            FrameSource::Pending(wait) => wait.next(self.app.keep_alive.heartbeat).await,
            FrameSource::Stream(stream) => match stream.next().await {
                Some(bytes) if bytes.frame_count() == 0 => SourceEvent::Heartbeat,
                Some(frames) => SourceEvent::Frames(frames),
                None => SourceEvent::Cut,
            },
        }
    }

    /// The frame with placeholders, or with whole arguments where the dialect compares them.
    async fn whole_frame<'f>(&mut self, frame: &'f Frame) -> Cow<'f, Frame> {
        let mut frame = self.app.placeholders.mark(frame);
        if let Cow::Owned(Frame::ActivityDelta { patch, .. }) = &mut frame
            && self.dialect.lock().compares_arguments()
        {
            let mut whole = patch.to_vec();
            for op in whole.iter_mut().filter(|op| op["path"] == "/input") {
                op["value"] = self.bodies.fill_value(op["value"].take()).await;
            }
            *patch = whole.into();
        }
        frame
    }

    /// Translates frames into events.
    async fn translate(&mut self, frames: &EncodedFrames, out: &mut Vec<u8>) -> Result<(), Problem> {
        let (all, of) = frames.decoded();
        for DecodedFrame { frame, cursor } in &all[of] {
            let frame = &*self.whole_frame(frame).await;
            let is_error = matches!(frame, Frame::Error { .. });
            let (mut flow, mut events) = translated(&self.app, &self.dialect, frame).await;
            if flow == Flow::Continue && cursor.is_some() {
                flow = self.dialect.lock().end_batch(&mut events);
            }
            if !events.is_empty() && !is_error && !self.already_sent.is_prefix_of(&events) {
                // The events differ from those that the client received, so it needs a reset.
                events.clear();
                self.already_sent = SentEvents::default();
                flow = self.dialect.lock().frame(&Frame::Reset { reason: "cursor".into() }, &mut events);
            }
            self.write_events(&events, *cursor, out);
            match flow {
                Flow::Continue if !is_error => {}
                Flow::Continue | Flow::End => {
                    self.finish(out);
                    return Ok(());
                }
                Flow::Restart => {
                    self.position = None;
                    load_history(&self.app, &self.earlier, self.audience, &self.dialect).await?;
                    if let FrameSource::Stream(stream) = &mut self.source {
                        stream.restart();
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes events, except those that the client already received.
    ///
    /// The last event carries the cursor; the others carry positions after the previous cursor.
    fn write_events(&mut self, events: &[Value], cursor: Option<Cursor>, out: &mut Vec<u8>) {
        use io::Write;
        let is_replayable = self.dialect.lock().is_replayable();
        // An error event was not sent before.
        let already_sent = if self.already_sent.is_prefix_of(events) { self.already_sent.count } else { 0 };
        if !events.is_empty() {
            self.already_sent = SentEvents::default();
        }
        if let Some(cursor) = cursor {
            self.position.get_or_insert(Cursor::at(cursor.epoch, Sequence::NONE).into());
        }
        for (n, event) in (1..).zip(events) {
            let event = event.to_string();
            if let Some(position) = &mut self.position {
                position.sent = position.sent.with_event(event.as_bytes());
            }
            if n <= already_sent {
                continue;
            }
            let within = self.position.filter(|_| is_replayable);
            let id = cursor.filter(|_| n == events.len()).map(DialectCursor::from).or(within);
            if let Some(reconnect_delay_ms) = self.reconnect_delay_ms.take() {
                writeln!(out, "retry: {reconnect_delay_ms}").expect(INFALLIBLE);
            }
            if let Some(id) = id.filter(|_| self.ids == IdPosition::First) {
                writeln!(out, "id: {id}").expect(INFALLIBLE);
            }
            let event = escape_line_ends(event.as_bytes()).unwrap_or_else(|| event.into_bytes());
            out.extend([b"data: ", &event[..], b"\n"].concat());
            if let Some(id) = id.filter(|_| self.ids == IdPosition::Last) {
                writeln!(out, "id: {id}").expect(INFALLIBLE);
            }
            out.push(b'\n');
        }
        self.position = cursor.map(DialectCursor::from).or(self.position);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.is_over = true;
        let end_marker = self.dialect.lock().end_marker();
        if let Some(end_marker) = end_marker {
            out.extend([b"data: ", end_marker.as_bytes(), b"\n\n"].concat());
        }
    }

    /// Converts the stream into a response. `further` are the dialect's own headers.
    #[must_use]
    pub fn respond(self, further: &'static [(&'static str, &'static str)]) -> Response {
        let stream = futures_util::stream::unfold(self, async |mut stream| stream.next().await.map(|bytes| (bytes, stream)));
        let mut response = (HEADERS, Body::from_stream(stream)).into_response();
        for (name, value) in further {
            response.headers_mut().insert(*name, http::HeaderValue::from_static(value));
        }
        response
    }
}

const INFALLIBLE: &str = "a Vec takes every byte";

/// Opens the native frames of a started run. The dialect loads the state that its client already has.
async fn open_stream(app: &Arc<App>, started: Started, audience: Audience, dialect: &SharedDialect) -> Result<Stream, Problem> {
    let Started { run, authorization, after, replay, .. } = started;
    if let Some(cursor) = after {
        let known = shown_activities(app, &run, audience, Some(cursor.after)).await?;
        let dialect = dialect.clone();
        apart(app, move || dialect.lock().resume(known)).await;
    }
    let start = after.map_or(StartAt::Start, StartAt::After);
    let filter = Filter::all(audience);
    let request = ReadRequest { filter, frames: Frames::Activities, replay };
    let reader = app.feed.read(&LogId::Run(run), request, start).await?.with_single_snapshot();
    let mut stream = Stream::new(app, AnyReader::One(reader), audience, authorization.open_counted(app)?);
    // The dialect's own events carry the delay.
    stream.take_reconnect_delay();
    Ok(stream)
}

/// Gives a dialect the activities of the earlier runs.
async fn load_history(app: &App, earlier: &[RunId], audience: Audience, dialect: &SharedDialect) -> Result<(), Problem> {
    let mut all = Vec::new();
    for run in earlier {
        all.extend(shown_activities(app, run, audience, None).await?);
    }
    dialect.lock().load_history(all);
    Ok(())
}

/// Translates a frame. The one that ends a snapshot may stand for a long conversation.
async fn translated(app: &App, dialect: &SharedDialect, frame: &Frame) -> (Flow, Vec<Value>) {
    let dialect = dialect.clone();
    let translate = move |frame: &Frame| {
        let mut events = Vec::new();
        (dialect.lock().frame(frame, &mut events), events)
    };
    match frame {
        Frame::Hydrated { .. } => {
            let frame = frame.clone();
            apart(app, move || translate(&frame)).await
        }
        _ => translate(frame),
    }
}
