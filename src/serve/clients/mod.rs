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

pub mod a2a;
pub mod ag_ui;
pub mod ai_sdk;
pub mod ai_sdk_streams;
pub mod bodies;
pub mod body;
pub mod branching;
pub mod copilot_threads;
pub mod copilotkit;
pub mod counted;
pub mod items;
pub mod open_stream;
pub mod requests;
pub mod tanstack;
pub mod threads;
pub mod view;

use crate::encode::Flow;
use crate::encode::chunk::{Chunk, ChunkBuffer, LAST_CHUNK};
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::encoded::EncodedFrames;
use crate::encode::frames::{ActivityView, DecodedFrame, Delta, Frame};
use crate::encode::native::heartbeat;
use crate::encode::translations::{ReaderTranslator, Translated};
use crate::encode::translator::{IdPosition, PlainDialect, Translator};
use crate::environment::sabotage;
use crate::feed::Frames;
use crate::feed::fan_out::Followers;
use crate::feed::{AnyReader, Filter, ReadRequest, StartAt, TryNext};
use crate::log::LogId;
use crate::log::commit::CompactionState;
use crate::model::{Audience, Cursor, RunId, Sequence};
use crate::projection::View;
use crate::projection::activity_set::Activity;
use crate::projection::change::ContentOperation;
use crate::projection::tool_call::INPUT;
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, OpenAccess};
use crate::serve::api::stream::{HEADERS, Stream};
use crate::serve::http::problem::Problem;
use crate::serve::stop_signal::StopWaiter;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bodies::{BodyReader, FilledText};
use bytes::Bytes;
use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::Waker;
use std::time::Duration;
use threads::ShownRun;
use tokio::time::{Instant, Sleep};

/// The start of a stream of a run that exists.
pub struct StreamOpening {
    pub run: RunId,
    pub audience: Audience,
    /// The position to resume after. `None`: the beginning.
    pub after: Option<DialectCursor>,
    /// Replays every change from there on, instead of the current state.
    pub replay: bool,
    pub ids: IdPosition,
    /// The earlier runs of the thread, oldest first; see [`Translator::load_history`].
    pub earlier: Vec<ShownRun>,
    pub dialect: Box<dyn PlainDialect>,
}

/// The start of a stream that waits for its run.
pub struct PendingOpening {
    /// Resolves when the run has started. On an error the dialect reports the problem.
    pub start: StartFuture,
    pub audience: Audience,
    pub ids: IdPosition,
    /// The runs to show while it waits, oldest first.
    pub meanwhile: Option<Vec<ShownRun>>,
    pub dialect: Box<dyn PlainDialect>,
}

/// Resolves to what the stream waits for, or to the reason why that does not come.
pub type StartFuture = Pin<Box<dyn Future<Output = Result<Start, Problem>> + Send>>;

/// What a pending stream waits for.
pub enum Start {
    /// A run.
    Run(Started),
    /// These frames are all of it: the agent answered without a run.
    Answer(Vec<Frame>),
}

/// The run of a pending stream, once it exists; fields as in [`StreamOpening`].
pub struct Started {
    pub run: RunId,
    /// The authorization to read that run.
    pub authorization: Authorization,
    /// The cursor to resume after. `None`: the beginning.
    pub after: Option<Cursor>,
    pub replay: bool,
    /// `None`: the client has already been shown the earlier runs.
    pub earlier: Option<Vec<ShownRun>>,
}

/// The event stream of one client.
pub struct DialectStream {
    app: Arc<App>,
    source: FrameSource,
    translator: ReaderTranslator,
    audience: Audience,
    /// The run, once it exists.
    run: Option<RunId>,
    earlier: Vec<ShownRun>,
    catching_up: CatchingUp,
    /// Sent before the first event, by a line of its own: it differs from reader to reader.
    reconnect_delay_ms: Option<u64>,
    /// A text to send.
    chunk: Option<Chunk>,
    /// A text to send into which bodies belong.
    sending: FilledText,
    bodies: BodyReader,
    /// Frames that were read and are not translated.
    untranslated: Option<EncodedFrames>,
    /// Whether the activities of the run come again, before any other frame.
    must_restart: bool,
    is_over: bool,
    /// Whether a socket has the chunk after the last one.
    has_last_chunk: bool,
}

/// How far a stream has read what its log had when it began.
#[derive(Default)]
struct CatchingUp {
    is_done: bool,
    /// Whether a heartbeat is due, because [`DialectStream::catch_up`] took the one that opens the stream.
    owes_heartbeat: bool,
}

/// The next part of a stream.
enum Piece {
    Chunk(Chunk),
    /// A part of a text with bodies.
    Text(Bytes),
    /// The server cuts the stream before its end.
    Cut,
    End,
}

impl Piece {
    /// Its bytes in chunks.
    fn into_frames(self) -> EncodedFrames {
        match self {
            Self::Chunk(chunk) => chunk.into_bytes().into(),
            Self::Text(text) => Chunk::of(&text).into_bytes().into(),
            Self::Cut | Self::End => Bytes::new().into(),
        }
    }
}

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
    stopping: StopWaiter,
}

/// The next event of a source.
enum SourceEvent {
    Heartbeat,
    Frames(EncodedFrames),
    Started(Started),
    Answered(Vec<Frame>),
    Refused(Problem),
    /// The server cuts the stream before its end.
    Cut,
}

impl PendingSource {
    fn new(app: &App, authorization: Authorization, start: StartFuture) -> Result<Self, Problem> {
        let heartbeat_timer = Box::pin(tokio::time::sleep(app.keep_alive.heartbeat));
        let (drain, stopping) = (app.drain_delay(), app.stopping.waiter());
        Ok(Self { start, access: authorization.open_counted(app)?, has_opened: false, heartbeat_timer, drain, stopping })
    }

    async fn next(&mut self, heartbeat: Duration) -> SourceEvent {
        if !self.has_opened {
            self.has_opened = true;
            return SourceEvent::Heartbeat;
        }
        tokio::select! {
            biased;
            () = self.stopping.elapsed(self.drain) => SourceEvent::Cut,
            problem = self.access.ended() => SourceEvent::Refused(problem),
            start = &mut self.start => match start {
                Ok(Start::Run(started)) => SourceEvent::Started(started),
                Ok(Start::Answer(frames)) => SourceEvent::Answered(frames),
                Err(problem) => SourceEvent::Refused(problem),
            },
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
    let at = at.map(|at| if sabotage::is(46) { Sequence(at.0.saturating_sub(1)) } else { at });
    let view = app.feed.activities(&LogId::Run(run.clone()), audience, at).await?;
    Ok(views_of(app, run, view.map(View::into_activities).unwrap_or_default()).await)
}

/// The activities of a run as dialects read them.
async fn views_of(app: &App, run: &RunId, activities: Vec<Activity>) -> Vec<ActivityView> {
    let (placeholders, run) = (app.placeholders.clone(), run.clone());
    let views = move || {
        let mark = |activity| placeholders.mark_activity(ActivityView::of(&run, activity));
        activities.iter().map(mark).collect()
    };
    apart(app, views).await
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
        let access = authorization.open_counted(app)?;
        Self::open_within(app, access, opening).await
    }

    /// Opens the stream of a run that exists. It lasts while `access` does.
    ///
    /// # Errors
    /// The store's failure.
    async fn open_within(app: &Arc<App>, access: OpenAccess, opening: StreamOpening) -> Result<Self, Problem> {
        let StreamOpening { run, audience, mut after, mut replay, ids, earlier, dialect } = opening;
        let mut translator = ReaderTranslator::new(Translator::new(dialect, ids));
        if precedes_compaction(app, &run, after).await? {
            (after, replay) = (None, false);
            translator.own().reset();
        }
        load_history(app, &earlier, audience, &mut translator).await?;
        let state = after.and_then(|position| position.within_state());
        // A half-sent envelope must be translated again exactly as the first time.
        let replay = replay || state.is_none() && after.is_some_and(|position| position.sent.count > 0);
        let from = state.or(after.map(|position| position.cursor));
        translator.own().resume_at(after.filter(|position| !sabotage::is(43) || position.sent.count == 0));
        let rest = match state {
            Some(of) => Some(show_state(app, &run, audience, of, &mut translator).await?),
            None => {
                resume(app, &run, from, audience, &mut translator).await?;
                None
            }
        };
        let stream = open_stream(app, &run, (from, replay), audience, access, &translator).await?;
        let mut opened = Self::new(app, FrameSource::Stream(Box::new(stream)), audience, earlier, translator);
        opened.bodies.cover(&run);
        opened.run = Some(run);
        if let Some(rest) = rest.filter(|_| !sabotage::is(44)) {
            opened.take(rest);
        }
        Ok(opened)
    }

    /// Does not send the next events: the client has counted so many.
    pub fn skip(&mut self, events: u64) {
        self.translator.own().skip(events.saturating_sub(u64::from(sabotage::is(42))));
    }

    /// Reads on until something is to be sent, or until the stream has read all that the log has now.
    ///
    /// Returns how many of the skipped events have not come; `None` if a later one is to be sent.
    ///
    /// # Errors
    /// The problem with which the stream would end.
    pub async fn catch_up(&mut self) -> Result<Option<u64>, Problem> {
        while self.chunk.is_none() && self.sending.is_done() && !self.is_over && !self.has_read_all().await? {
            match self.next_step().await? {
                Some(Piece::Cut | Piece::End) => return Err(self.cut_problem()),
                Some(Piece::Chunk(_) | Piece::Text(_)) => self.catching_up.owes_heartbeat = true,
                None => {}
            }
        }
        Ok(self.translator.get().unskipped())
    }

    /// Whether nothing follows in the log now, not even the run's end.
    ///
    /// `&mut`, because the future of a pending source may not be shared by threads.
    async fn has_read_all(&mut self) -> Result<bool, Problem> {
        let Some(run) = self.run.clone().filter(|_| self.catching_up.is_done) else {
            return Ok(self.catching_up.owes_heartbeat && matches!(self.source, FrameSource::Pending(_)));
        };
        Ok(self.app.logs.log(&LogId::Run(run)).await?.tail().end().is_none())
    }

    /// Why a stream was cut before anything of it was sent.
    fn cut_problem(&self) -> Problem {
        match (&self.source, &self.run) {
            (FrameSource::Stream(stream), Some(run)) if !stream.must_end() => counted::compacted(run),
            _ => Problem::stopping(),
        }
    }

    /// Whether the stream has ended with what was read.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Opens a stream that waits for its run. Until the run starts, `authorization` covers the wait.
    ///
    /// # Errors
    /// The store's failure; 429 if the token's `sub` is at its connection limit.
    pub async fn after(app: &Arc<App>, authorization: Authorization, opening: PendingOpening) -> Result<Self, Problem> {
        let PendingOpening { start, audience, ids, meanwhile, dialect } = opening;
        let mut translator = ReaderTranslator::new(Translator::new(dialect, ids));
        let mut shown = Vec::new();
        if let Some(earlier) = &meanwhile {
            load_history(app, earlier, audience, &mut translator).await?;
            shown = apart_with(app, &mut translator, |translator| {
                let mut shown = Vec::new();
                translator.write_history(&mut shown);
                shown
            })
            .await;
        }
        let source = FrameSource::Pending(Box::new(PendingSource::new(app, authorization, start)?));
        let opened = Self::new(app, source, audience, meanwhile.unwrap_or_default(), translator);
        Ok(Self { sending: FilledText::of(shown), ..opened })
    }

    fn new(
        app: &Arc<App>,
        source: FrameSource,
        audience: Audience,
        earlier: Vec<ShownRun>,
        translator: ReaderTranslator,
    ) -> Self {
        let (app, reconnect_delay_ms) = (app.clone(), Some(app.reconnect_delay_ms()));
        let bodies = BodyReader::new(&app, audience, earlier.iter().map(|shown| shown.run.clone()).collect());
        Self {
            app,
            source,
            translator,
            audience,
            run: None,
            earlier,
            catching_up: CatchingUp::default(),
            reconnect_delay_ms,
            chunk: None,
            sending: FilledText::of(Bytes::new()),
            bodies,
            untranslated: None,
            must_restart: false,
            is_over: false,
            has_last_chunk: false,
        }
    }

    /// Switches from waiting to reading the started run.
    async fn begin(&mut self, mut started: Started) -> Result<(), Problem> {
        if let Some(earlier) = started.earlier.take() {
            // A client that gets a replay is shown earlier runs only after a restart.
            if !started.replay {
                load_history(&self.app, &earlier, self.audience, &mut self.translator).await?;
            }
            self.earlier = earlier;
        }
        self.earlier.iter().map(|shown| &shown.run).chain([&started.run]).for_each(|run| self.bodies.cover(run));
        self.run = Some(started.run.clone());
        if let FrameSource::Pending(wait) = &mut self.source {
            // The wait and the stream count as one open connection.
            wait.access = OpenAccess::default();
        }
        self.translator.own().resume_at(started.after.map(DialectCursor::from));
        let Started { run, authorization, after, replay, .. } = started;
        resume(&self.app, &run, after, self.audience, &mut self.translator).await?;
        let access = authorization.open_counted(&self.app)?;
        let stream = open_stream(&self.app, &run, (after, replay), self.audience, access, &self.translator).await?;
        self.source = FrameSource::Stream(Box::new(stream));
        Ok(())
    }

    /// Returns the next bytes to send; `None` after the end. Cancel safe for frames that were not read.
    ///
    /// # Errors
    /// The stream is cut before its end, and the response must not look complete.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.next_piece().await {
            Piece::Chunk(chunk) => Some(Ok(chunk.text())),
            Piece::Text(text) => Some(Ok(text)),
            Piece::Cut => Some(Err(io::ErrorKind::ConnectionReset.into())),
            Piece::End => None,
        }
    }

    /// Like [`Self::next`], in chunks for a socket. A stream that is over, or that is cut, is [`TryNext::Busy`].
    pub async fn advance(&mut self) -> TryNext {
        match self.next_piece().await {
            piece @ (Piece::Chunk(_) | Piece::Text(_)) => TryNext::Frames(piece.into_frames()),
            Piece::End if !std::mem::replace(&mut self.has_last_chunk, true) => {
                TryNext::Frames(Bytes::from_static(LAST_CHUNK).into())
            }
            Piece::End | Piece::Cut => TryNext::Busy,
        }
    }

    /// The next chunk, if it is here now. A stream that has to wait for more than frames is [`TryNext::Busy`].
    pub fn try_next(&mut self) -> TryNext {
        loop {
            if let Some(piece) = self.at_hand() {
                return TryNext::Frames(piece.into_frames());
            }
            let has_more = !self.sending.is_done() || self.untranslated.is_some() || self.must_restart || self.is_over;
            let FrameSource::Stream(stream) = &mut self.source else { return TryNext::Busy };
            if has_more {
                return TryNext::Busy;
            }
            let frames = match stream.try_next() {
                TryNext::Frames(frames) => frames,
                other => return other,
            };
            if frames.frame_count() == 0 {
                return TryNext::Frames(heartbeat_chunk());
            }
            let shares = !stream.is_alone();
            let translated = match frames.ends_hydration() {
                true => frames.find_translation(&mut self.translator),
                false => frames.translate(&mut self.translator, &self.app.placeholders, shares),
            };
            let Some(translated) = translated else {
                self.untranslated = Some(frames);
                return TryNext::Busy;
            };
            self.take(translated);
        }
    }

    /// Leaves the wakes of this stream to a task; see [`Stream::follow`].
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize, waker: &Waker) {
        if let FrameSource::Stream(stream) = &mut self.source {
            stream.follow(followers, key, waker);
        }
    }

    /// Gives the stream its own wakes again.
    pub fn unfollow(&mut self) {
        if let FrameSource::Stream(stream) = &mut self.source {
            stream.unfollow();
        }
    }

    /// Whether the server is stopping, or the stream's token has ended.
    #[must_use]
    pub fn must_end(&self) -> bool {
        matches!(&self.source, FrameSource::Stream(stream) if stream.must_end())
    }

    /// The time between two heartbeats.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.app.keep_alive.heartbeat
    }

    /// Returns the next text; `None` at the end, or once all that the log has now was read. Cancel safe likewise.
    ///
    /// `waits`: it waits for more instead.
    ///
    /// # Errors
    /// The problem with which the stream would end.
    async fn next_text(&mut self, waits: bool) -> Result<Option<Bytes>, Problem> {
        loop {
            let piece = match self.ready_piece().await {
                Some(piece) => Some(piece),
                None if !waits && self.has_read_all().await? => return Ok(None),
                None => self.next_step().await?,
            };
            match piece {
                None => {}
                Some(Piece::Chunk(chunk)) => return Ok(Some(chunk.text())),
                Some(Piece::Text(text)) => return Ok(Some(text)),
                Some(Piece::End) => return Ok(None),
                Some(Piece::Cut) => return Err(self.cut_problem()),
            }
        }
    }

    /// The problem that ended the stream, if one did.
    fn problem(&self) -> Option<Problem> {
        let FrameSource::Stream(stream) = &self.source else { return None };
        stream.problem()
    }

    async fn ready_piece(&mut self) -> Option<Piece> {
        if let Some(piece) = self.at_hand() {
            return Some(piece);
        }
        let text = self.sending.next(&self.bodies).await.map(Piece::Text);
        text.or_else(|| self.is_over.then_some(Piece::End))
    }

    async fn next_piece(&mut self) -> Piece {
        loop {
            if let Some(piece) = self.ready_piece().await {
                return piece;
            }
            let outcome = match self.next_step().await {
                Ok(Some(piece)) => return piece,
                Ok(None) => continue,
                Err(problem) => problem,
            };
            let mut out = ChunkBuffer::new(0);
            self.translator.own().fail(outcome.to_json(), &mut out.text);
            self.is_over = true;
            self.chunk = Some(out.finish(None));
        }
    }

    /// What the stream can send without waiting.
    fn at_hand(&mut self) -> Option<Piece> {
        if std::mem::take(&mut self.catching_up.owes_heartbeat) {
            return Some(Piece::Text(heartbeat().into_bytes()));
        }
        if self.chunk.is_none() && self.sending.is_done() {
            return None;
        }
        let line = self.reconnect_delay_ms.take().map(|delay_ms| format!("retry: {delay_ms}\n"));
        line.map(|line| Piece::Text(line.into())).or_else(|| self.chunk.take().map(Piece::Chunk))
    }

    /// One step of a stream that has nothing to send. Returns what it gives to send beside translations.
    ///
    /// # Errors
    /// The problem with which the stream ends.
    async fn next_step(&mut self) -> Result<Option<Piece>, Problem> {
        if self.must_restart && self.translator.get().counts() {
            return self.restart_in_place().await;
        }
        if self.must_restart {
            load_history(&self.app, &self.earlier, self.audience, &mut self.translator).await?;
            if let FrameSource::Stream(stream) = &mut self.source {
                stream.restart();
            }
            self.must_restart = false;
            return Ok(None);
        }
        if self.untranslated.is_none() {
            match self.next_event().await {
                SourceEvent::Heartbeat => return Ok(Some(Piece::Text(heartbeat().into_bytes()))),
                SourceEvent::Cut => return Ok(Some(Piece::Cut)),
                SourceEvent::Started(started) => return self.begin(started).await.map(|()| None),
                SourceEvent::Answered(frames) => {
                    let mut out = ChunkBuffer::new(0);
                    for frame in &frames {
                        self.translator.own().translate_one(frame, None, &mut out.text);
                    }
                    (self.is_over, self.chunk) = (true, Some(out.finish(None)));
                    return Ok(None);
                }
                SourceEvent::Refused(problem) => return Err(problem),
                SourceEvent::Frames(frames) => self.untranslated = Some(frames),
            }
        }
        let Some(frames) = self.untranslated.clone() else { return Ok(None) };
        let translated = self.translate(&frames).await;
        self.untranslated = None;
        self.catching_up.is_done |= frames.ends_hydration();
        self.take(translated);
        Ok(None)
    }

    /// Shows the activities as of the envelope that needs it, and reads on from there.
    ///
    /// A counted stream must not depend on the time at which it is read, so it does not show the current state.
    async fn restart_in_place(&mut self) -> Result<Option<Piece>, Problem> {
        let (Some(cursor), Some(run)) = (self.translator.get().cursor(), self.run.clone()) else { return Ok(Some(Piece::Cut)) };
        let shown = shown_activities(&self.app, &run, self.audience, Some(cursor.after)).await?;
        let FrameSource::Stream(stream) = &mut self.source else { return Ok(Some(Piece::Cut)) };
        if counted::is_compacted(&self.app, &run).await? || !stream.rewind(cursor) {
            return Ok(Some(Piece::Cut));
        }
        let placeholders = self.app.placeholders.clone();
        let translated = apart_with(&self.app, &mut self.translator, move |translator| {
            let mut out = ChunkBuffer::new(0);
            let flow = translator.restart_at(cursor, shown, &mut out.text);
            Translated { chunk: out.finish(Some(&placeholders)), flow, is_own: true }
        })
        .await;
        self.must_restart = false;
        self.take(translated);
        Ok(None)
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

    /// Takes a translation of frames that the stream has read.
    fn take(&mut self, Translated { chunk, flow, is_own }: Translated) {
        self.app.meters.translations.add(u64::from(is_own));
        match flow {
            Flow::Continue => {}
            Flow::End => self.is_over = true,
            Flow::Restart => self.must_restart = true,
        }
        if chunk.has_placeholders() {
            self.sending = FilledText::of(chunk.text());
        } else if !chunk.is_empty() {
            self.chunk = Some(chunk);
        }
    }

    /// Translates frames, however long that takes.
    async fn translate(&mut self, frames: &EncodedFrames) -> Translated {
        // The next reader may join where this one did.
        let is_alone = matches!(&self.source, FrameSource::Stream(stream) if stream.is_alone());
        let shares = !is_alone || frames.ends_hydration();
        let translated = match frames.ends_hydration() {
            false => frames.translate(&mut self.translator, &self.app.placeholders, shares),
            true => match frames.find_translation(&mut self.translator) {
                Some(known) => Some(known),
                None => {
                    let (frames, placeholders, mut translator) =
                        (frames.clone(), self.app.placeholders.clone(), self.translator.clone());
                    let translate = move || (frames.translate(&mut translator, &placeholders, shares), translator);
                    let (translated, translator) = apart(&self.app, translate).await;
                    self.translator = translator;
                    translated
                }
            },
        };
        match translated {
            Some(translated) => translated,
            None => self.translate_with_arguments(frames).await,
        }
    }

    /// Translates frames of which a dialect compares the arguments that have moved to bodies.
    async fn translate_with_arguments(&mut self, frames: &EncodedFrames) -> Translated {
        let ((all, of), mut out, mut flow) = (frames.decoded(), ChunkBuffer::new(0), Flow::Continue);
        for DecodedFrame { frame, cursor } in &all[of] {
            let frame = self.whole_frame(frame).await;
            flow = self.translator.own().translate_one(&frame, *cursor, &mut out.text);
            if flow != Flow::Continue {
                break;
            }
        }
        Translated { chunk: out.finish(Some(&self.app.placeholders)), flow, is_own: true }
    }

    /// The frame with placeholders, and with whole arguments.
    async fn whole_frame<'f>(&mut self, frame: &'f Frame) -> Cow<'f, Frame> {
        let mut frame = self.app.placeholders.mark(frame);
        if let Cow::Owned(Frame::ActivityDelta(Delta { operations, .. })) = &mut frame {
            for operation in Arc::make_mut(operations) {
                if let ContentOperation::Add(at, input) | ContentOperation::Replace(at, input) = operation
                    && at.is(INPUT)
                {
                    *input = self.bodies.fill_value(input.take()).await;
                }
            }
        }
        frame
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

/// A heartbeat in chunks for a socket.
#[must_use]
pub fn heartbeat_chunk() -> EncodedFrames {
    static CHUNK: LazyLock<EncodedFrames> = LazyLock::new(|| Chunk::of(heartbeat().as_ref()).into_bytes().into());
    CHUNK.clone()
}

/// Lets a thread work with the translator of a stream, which waits.
async fn apart_with<T: Send + 'static>(
    app: &App,
    translator: &mut ReaderTranslator,
    work: impl FnOnce(&mut Translator) -> T + Send + 'static,
) -> T {
    let mut taken = translator.clone();
    let (done, taken) = apart(app, move || (work(taken.own()), taken)).await;
    *translator = taken;
    done
}

/// Whether a client resumes where the log no longer tells what the client has.
///
/// A compaction leaves the activities at the end of a log as they are, but not those at the envelopes before.
async fn precedes_compaction(app: &App, run: &RunId, after: Option<DialectCursor>) -> Result<bool, Problem> {
    let Some(DialectCursor { cursor, .. }) = after else { return Ok(false) };
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    let CompactionState { times, through, .. } = tail.summary.compacted;
    Ok(tail.epoch == Some(cursor.epoch) && times > 0 && cursor.after < through)
}

/// Lets a dialect load the state that its client already has. A client of another epoch begins anew.
async fn resume(
    app: &App,
    run: &RunId,
    after: Option<Cursor>,
    audience: Audience,
    translator: &mut ReaderTranslator,
) -> Result<(), Problem> {
    let Some(cursor) = after.filter(|_| !sabotage::is(41)) else { return Ok(()) };
    let epoch = app.logs.log(&LogId::Run(run.clone())).await?.tail().epoch;
    if epoch.is_none_or(|epoch| epoch == cursor.epoch) {
        let known = shown_activities(app, run, audience, Some(cursor.after)).await?;
        apart_with(app, translator, move |translator| translator.resume(cursor.after, known)).await;
    }
    Ok(())
}

/// Shows the state as of an envelope to a client that has some of its events, which are not sent again.
async fn show_state(
    app: &App,
    run: &RunId,
    audience: Audience,
    of: Cursor,
    translator: &mut ReaderTranslator,
) -> Result<Translated, Problem> {
    let shown = shown_activities(app, run, audience, Some(of.after)).await?;
    let placeholders = app.placeholders.clone();
    let show = move |translator: &mut Translator| {
        let mut out = ChunkBuffer::new(0);
        let flow = translator.show_state(of, shown, &mut out.text);
        Translated { chunk: out.finish(Some(&placeholders)), flow, is_own: true }
    };
    Ok(apart_with(app, translator, show).await)
}

/// Opens the native frames of a run, after a position, with every change or the current state.
async fn open_stream(
    app: &Arc<App>,
    run: &RunId,
    (after, replay): (Option<Cursor>, bool),
    audience: Audience,
    access: OpenAccess,
    translator: &ReaderTranslator,
) -> Result<Stream, Problem> {
    let start = after.map_or(StartAt::Start, StartAt::After);
    let filter = Filter::all(if sabotage::is(45) { Audience::Internal } else { audience });
    let request = ReadRequest { filter, frames: Frames::Activities, replay };
    let reader = app.feed.read(&LogId::Run(run.clone()), request, start).await?.with_single_snapshot();
    let reader = if translator.get().counts() { reader.with_every_change() } else { reader };
    let mut stream = Stream::new(app, AnyReader::One(reader), audience, access);
    // The dialect's own events carry the delay.
    stream.take_reconnect_delay();
    Ok(stream)
}

/// Gives a dialect the activities of the earlier runs.
async fn load_history(
    app: &App,
    earlier: &[ShownRun],
    audience: Audience,
    translator: &mut ReaderTranslator,
) -> Result<(), Problem> {
    let mut all = Vec::new();
    for run in earlier {
        all.extend(run.activities(app, audience).await?);
    }
    translator.own().load_history(all);
    Ok(())
}
