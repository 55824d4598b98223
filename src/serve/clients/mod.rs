//! Clients that exist already: their own words and addresses, on streams like any other.
//!
//! A [`Talk`] is one answer to one such client: native frames of a run go in, the events of its dialect come out, as SSE. It
//! begins, goes on after a cursor, and is brought forward when it is slow as every reader is.
//!
//! Such clients take a response that just ends for a run that is done. So none ends before its dialect has said the end: one
//! that must be cut off, for the server stops, fails, and its connection is reset.
//!
//! They also ask for runs and decide what runs wait for. That is a control on its way ([`asked`]), and the answer is open while
//! it is on its way: a talk may begin with waiting ([`Talk::after`]).

pub mod ag_ui;
pub mod ai_sdk;
pub mod asked;
pub mod body;
pub mod copilotkit;
pub mod place;
pub mod tanstack;
pub mod threads;
pub mod view;

use super::access::{Hold, Pass};
use super::problem::Problem;
use super::stream::{HEADERS, Stream};
use super::{App, stopped};
use crate::encode::frames::{self, Frame, Shown};
use crate::encode::native::HEARTBEAT;
use crate::encode::{Dialect, Flow};
use crate::feed::reader::Frames;
use crate::feed::{From, Reading, Selection, Wanted};
use crate::log::LogId;
use crate::model::{Audience, Cursor, RunId, Sequence};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use place::{Place, Told};
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// Where an event's `id:` stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// After its data, where a client that commits an id as it reads it loses nothing that is cut between the two.
    Last,
    /// Before its data: for clients that give an id to the data that follows it (`TanStack`).
    First,
}

/// How a talk begins.
pub struct Opening {
    pub run: RunId,
    pub audience: Audience,
    /// After which envelope, and how much of the next; `None` for the start.
    pub after: Option<Place>,
    /// Every change from there on, as it came, instead of what it has come to.
    pub replay: bool,
    pub ids: Ids,
    /// The runs before this one in its thread, the oldest first; see [`Dialect::recall`].
    pub earlier: Vec<RunId>,
    pub dialect: Box<dyn Dialect>,
}

/// How a talk begins that has nothing to tell yet.
pub struct Awaiting {
    /// What is waited for. Where it comes to nothing, the dialect says why.
    pub coming: Coming,
    pub audience: Audience,
    pub ids: Ids,
    /// The runs that whoever joins is shown meanwhile, the oldest first.
    pub meanwhile: Option<Vec<RunId>>,
    pub dialect: Box<dyn Dialect>,
}

/// What a wait comes to, or why it comes to nothing.
pub type Coming = Pin<Box<dyn Future<Output = Result<Begun, Problem>> + Send>>;

/// What is to be told once it has come; as in [`Opening`].
pub struct Begun {
    pub run: RunId,
    /// To that run, by what is known of it by then.
    pub pass: Pass,
    /// After which envelope; `None` for the start.
    pub after: Option<Cursor>,
    pub replay: bool,
    /// `None` where whoever joins has been shown them meanwhile.
    pub earlier: Option<Vec<RunId>>,
}

/// One client's answer.
pub struct Talk {
    app: Arc<App>,
    source: Source,
    dialect: Box<dyn Dialect>,
    audience: Audience,
    earlier: Vec<RunId>,
    ids: Ids,
    /// Rides on the first event.
    retry: Option<u64>,
    /// What is to be said before anything else.
    first: Vec<Value>,
    /// Where the reader stands, once that has a name.
    place: Option<Place>,
    /// What the reader was told of the envelope that comes first, before it was cut off.
    heard: Told,
    /// Native frames that were not looked at yet.
    frames: Bytes,
    is_over: bool,
}

/// Where what is told comes from.
enum Source {
    /// Nowhere yet.
    Wait(Box<Wait>),
    Stream(Box<Stream>),
}

/// A wait, kept alive and cut off as a stream is.
struct Wait {
    coming: Coming,
    hold: Hold,
    opened: bool,
    beat: Pin<Box<Sleep>>,
    drain: Duration,
    stopping: watch::Receiver<Option<Instant>>,
}

/// What comes next.
enum Next {
    Beat,
    Frames(Bytes),
    Begun(Begun),
    Refused(Problem),
    /// The stream is cut before its end.
    Cut,
}

impl Wait {
    fn new(app: &App, pass: Pass, coming: Coming) -> Result<Self, Problem> {
        let beat = Box::pin(tokio::time::sleep(app.pulse.heartbeat));
        let (drain, stopping) = (app.moment_in_drain(), app.stopping.subscribe());
        Ok(Self { coming, hold: pass.open(app)?, opened: false, beat, drain, stopping })
    }

    async fn next(&mut self, every: Duration) -> Next {
        if !self.opened {
            self.opened = true;
            return Next::Beat;
        }
        tokio::select! {
            biased;
            () = stopped(&mut self.stopping, self.drain) => Next::Cut,
            problem = self.hold.over() => Next::Refused(problem),
            begun = &mut self.coming => begun.map_or_else(Next::Refused, Next::Begun),
            () = &mut self.beat => {
                self.beat.as_mut().reset(Instant::now() + every);
                Next::Beat
            }
        }
    }
}

/// The activities of a run as an audience is shown them at a sequence; none of a run that was never written.
pub async fn shown(app: &App, run: &RunId, audience: Audience, at: Option<Sequence>) -> Result<Vec<Shown>, Problem> {
    let view = app.feed.activities(&LogId::Run(run.clone()), audience, at).await?;
    Ok(view.iter().flat_map(crate::projection::View::activities).map(|activity| Shown::of(run, activity)).collect())
}

impl Talk {
    /// Begins one.
    ///
    /// # Errors
    /// The store's; 429 where the token's `sub` has as much open as it may.
    pub async fn open(app: &Arc<App>, pass: Pass, opening: Opening) -> Result<Self, Problem> {
        let Opening { run, audience, after, replay, ids, earlier, mut dialect } = opening;
        recall(app, &earlier, audience, &mut *dialect).await?;
        let heard = after.map(|place| place.told).unwrap_or_default();
        // What it was told a part of comes once more as it came then.
        let replay = replay || heard.count > 0;
        let begun = Begun { run, pass, after: after.map(|place| place.cursor), replay, earlier: None };
        let place = begun.after.map(Place::from);
        let stream = stream(app, begun, audience, &mut *dialect).await?;
        Ok(Self { place, heard, ..Self::new(app, Source::Stream(Box::new(stream)), audience, ids, earlier, dialect) })
    }

    /// Begins one that has nothing to tell yet. Until it has, the pass is for what is waited for.
    ///
    /// # Errors
    /// The store's; 429 where the token's `sub` has as much open as it may.
    pub async fn after(app: &Arc<App>, pass: Pass, awaiting: Awaiting) -> Result<Self, Problem> {
        let Awaiting { coming, audience, ids, meanwhile, mut dialect } = awaiting;
        let mut first = Vec::new();
        if let Some(earlier) = &meanwhile {
            recall(app, earlier, audience, &mut *dialect).await?;
            dialect.frame(Frame::Hydrated {}, &mut first);
        }
        let source = Source::Wait(Box::new(Wait::new(app, pass, coming)?));
        Ok(Self { first, ..Self::new(app, source, audience, ids, meanwhile.unwrap_or_default(), dialect) })
    }

    fn new(app: &Arc<App>, source: Source, audience: Audience, ids: Ids, earlier: Vec<RunId>, dialect: Box<dyn Dialect>) -> Self {
        let (app, retry) = (app.clone(), Some(app.retry()));
        let (first, place, heard) = (Vec::new(), None, Told::default());
        Self { app, source, dialect, audience, earlier, ids, retry, first, place, heard, frames: Bytes::new(), is_over: false }
    }

    /// From here on there is something to tell.
    async fn begin(&mut self, mut begun: Begun) -> Result<(), Problem> {
        if let Some(earlier) = begun.earlier.take() {
            // Who is told what comes is shown nothing of before; unless it has to begin anew.
            if !begun.replay {
                recall(&self.app, &earlier, self.audience, &mut *self.dialect).await?;
            }
            self.earlier = earlier;
        }
        if let Source::Wait(wait) = &mut self.source {
            // One thing is open, not two.
            wait.hold = Hold::default();
        }
        self.place = begun.after.map(Place::from);
        self.source = Source::Stream(Box::new(stream(&self.app, begun, self.audience, &mut *self.dialect).await?));
        Ok(())
    }

    /// The next bytes to send; `None` when all was told. Dropping the future loses nothing that was not read.
    ///
    /// # Errors
    /// The stream is cut before its end, and must not look as if it had come to one.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.is_over {
            let mut out = Vec::new();
            if !self.first.is_empty() {
                let first = std::mem::take(&mut self.first);
                self.say(&first, None, &mut out);
                return Some(Ok(out.into()));
            }
            let next = if self.frames.is_empty() { self.come().await } else { Next::Frames(std::mem::take(&mut self.frames)) };
            let told = match next {
                Next::Beat => return Some(Ok(Bytes::from_static(HEARTBEAT))),
                Next::Cut => return Some(Err(io::ErrorKind::ConnectionReset.into())),
                Next::Begun(begun) => self.begin(begun).await,
                Next::Refused(problem) => Err(problem),
                Next::Frames(frames) => {
                    self.frames = frames;
                    self.tell(&mut out).await
                }
            };
            if let Err(problem) = told {
                // What a native reader is told in a frame.
                let events = &mut Vec::new();
                self.dialect.frame(Frame::Error { problem: problem.to_json() }, events);
                self.say(events, None, &mut out);
                self.end(&mut out);
            }
            if !out.is_empty() {
                return Some(Ok(out.into()));
            }
        }
        None
    }

    async fn come(&mut self) -> Next {
        match &mut self.source {
            Source::Wait(wait) => wait.next(self.app.pulse.heartbeat).await,
            Source::Stream(stream) => match stream.next().await {
                Some(heartbeat) if heartbeat == HEARTBEAT => Next::Beat,
                Some(frames) => Next::Frames(frames),
                None => Next::Cut,
            },
        }
    }

    /// Says what the frames at hand come to.
    async fn tell(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        while let Some((frame, cursor)) = frames::next(&mut self.frames) {
            let is_error = matches!(frame, Frame::Error { .. });
            let mut events = Vec::new();
            let mut flow = self.dialect.frame(frame, &mut events);
            if flow == Flow::On && cursor.is_some() {
                flow = self.dialect.settle(&mut events);
            }
            if !events.is_empty() && !is_error && !self.heard.begins(&events) {
                // It was told otherwise than it would be now.
                events.clear();
                self.heard = Told::default();
                flow = self.dialect.frame(Frame::Reset { reason: "cursor".into() }, &mut events);
            }
            self.say(&events, cursor, out);
            match flow {
                Flow::On if !is_error => {}
                Flow::On | Flow::Over => {
                    self.end(out);
                    return Ok(());
                }
                Flow::Again => {
                    self.frames = Bytes::new();
                    self.place = None;
                    recall(&self.app, &self.earlier, self.audience, &mut *self.dialect).await?;
                    if let Source::Stream(stream) = &mut self.source {
                        stream.begin_again();
                    }
                }
            }
        }
        self.frames = Bytes::new();
        Ok(())
    }

    /// Appends events, but for those that the reader has heard already. The cursor stands on the last; those before it are places
    /// after the cursor before.
    fn say(&mut self, events: &[Value], cursor: Option<Cursor>, out: &mut Vec<u8>) {
        use io::Write;
        // Of an error it has heard nothing.
        let heard = if self.heard.begins(events) { self.heard.count } else { 0 };
        if !events.is_empty() {
            self.heard = Told::default();
        }
        if let Some(cursor) = cursor {
            self.place.get_or_insert(Cursor::at(cursor.epoch, Sequence::NONE).into());
        }
        for (n, event) in (1..).zip(events) {
            let event = event.to_string();
            if let Some(place) = &mut self.place {
                place.told = place.told.and(event.as_bytes());
            }
            if n <= heard {
                continue;
            }
            let within = self.place.filter(|_| self.dialect.retells());
            let id = cursor.filter(|_| n == events.len()).map(Place::from).or(within);
            if let Some(retry) = self.retry.take() {
                writeln!(out, "retry: {retry}").expect(INFALLIBLE);
            }
            if let Some(id) = id.filter(|_| self.ids == Ids::First) {
                writeln!(out, "id: {id}").expect(INFALLIBLE);
            }
            writeln!(out, "data: {event}").expect(INFALLIBLE);
            if let Some(id) = id.filter(|_| self.ids == Ids::Last) {
                writeln!(out, "id: {id}").expect(INFALLIBLE);
            }
            out.push(b'\n');
        }
        self.place = cursor.map(Place::from).or(self.place);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.is_over = true;
        if let Some(farewell) = self.dialect.farewell() {
            out.extend([b"data: ", farewell.as_bytes(), b"\n\n"].concat());
        }
    }

    /// The response that carries it. `further` are the dialect's own headers.
    pub fn respond(self, further: &'static [(&'static str, &'static str)]) -> Response {
        let talk = futures_util::stream::unfold(self, async |mut talk| talk.next().await.map(|bytes| (bytes, talk)));
        let mut response = (HEADERS, Body::from_stream(talk)).into_response();
        for (name, value) in further {
            response.headers_mut().insert(*name, http::HeaderValue::from_static(value));
        }
        response
    }
}

const INFALLIBLE: &str = "a Vec takes every byte";

/// The native frames of what has begun; the dialect knows what its reader has of it.
async fn stream(app: &Arc<App>, begun: Begun, audience: Audience, dialect: &mut dyn Dialect) -> Result<Stream, Problem> {
    let Begun { run, pass, after, replay, .. } = begun;
    if let Some(cursor) = after {
        dialect.resume(shown(app, &run, audience, Some(cursor.after)).await?);
    }
    let from = after.map_or(From::Start, From::After);
    let selection = Selection { audience, surfaces: Vec::new(), types: Vec::new(), agent: None };
    let wanted = Wanted { selection, frames: Frames::Activities, replay };
    let reader = app.feed.read(&LogId::Run(run), wanted, from).await?.at_once();
    let mut stream = Stream::new(app, Reading::One(reader), audience, pass.open(app)?);
    // It rides on an event of the dialect.
    stream.take_retry();
    Ok(stream)
}

/// Tells a dialect what was shown in the runs before.
async fn recall(app: &App, earlier: &[RunId], audience: Audience, dialect: &mut dyn Dialect) -> Result<(), Problem> {
    let mut all = Vec::new();
    for run in earlier {
        all.extend(shown(app, run, audience, None).await?);
    }
    dialect.recall(all);
    Ok(())
}
