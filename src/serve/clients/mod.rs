//! Clients that exist already: their own words and addresses, on streams like any other.
//!
//! A [`Talk`] is one answer to one such client: native frames of a run go in, the events of its dialect come out, as SSE. It
//! begins, goes on after a cursor, and is brought forward when it is slow as every reader is.
//!
//! Such clients take a response that just ends for a run that is done. So none ends before its dialect has said the end: one
//! that must be cut off, for the server stops, fails, and its connection is reset.

pub mod view;

use super::App;
use super::access::Pass;
use super::problem::Problem;
use super::stream::{HEADERS, Stream};
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
use serde_json::Value;
use std::io;
use std::sync::Arc;

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
    /// From the start, or after a cursor. There is no sense in [`From::Now`]: what is not told cannot be gone on with.
    pub from: From,
    /// Every change from the start of the run, as it came, instead of what it has come to.
    pub replay: bool,
    pub ids: Ids,
    /// The runs before this one in its thread, the oldest first; see [`Dialect::recall`].
    pub earlier: Vec<RunId>,
    pub dialect: Box<dyn Dialect>,
}

/// One client's answer.
pub struct Talk {
    app: Arc<App>,
    stream: Stream,
    dialect: Box<dyn Dialect>,
    audience: Audience,
    earlier: Vec<RunId>,
    ids: Ids,
    /// Rides on the first event.
    retry: Option<u64>,
    /// Native frames that were not looked at yet.
    frames: Bytes,
    is_over: bool,
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
    /// The store's.
    pub async fn open(app: &Arc<App>, pass: Pass, opening: Opening) -> Result<Self, Problem> {
        let Opening { run, audience, from, replay, ids, earlier, mut dialect } = opening;
        recall(app, &earlier, audience, &mut *dialect).await?;
        if let From::After(Cursor { after, .. }) = from {
            dialect.resume(shown(app, &run, audience, Some(after)).await?);
        }
        let selection = Selection { audience, surfaces: Vec::new(), types: Vec::new(), agent: None };
        let wanted = Wanted { selection, frames: Frames::Activities, replay };
        let reader = app.feed.read(&LogId::Run(run), wanted, from).await?;
        let mut stream = Stream::new(app, Reading::One(reader), audience, pass.hold());
        let retry = stream.take_retry();
        let app = app.clone();
        Ok(Self { app, stream, retry, dialect, audience, earlier, ids, frames: Bytes::new(), is_over: false })
    }

    /// The next bytes to send; `None` when all was told. Dropping the future loses nothing that was not read.
    ///
    /// # Errors
    /// The stream is cut before its end, and must not look as if it had come to one.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.is_over {
            if self.frames.is_empty() {
                match self.stream.next().await {
                    Some(heartbeat) if heartbeat == HEARTBEAT => return Some(Ok(heartbeat)),
                    Some(frames) => self.frames = frames,
                    None => return Some(Err(io::ErrorKind::ConnectionReset.into())),
                }
            }
            let mut out = Vec::new();
            if let Err(problem) = self.tell(&mut out).await {
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

    /// Says what the frames at hand come to.
    async fn tell(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        while let Some((frame, cursor)) = frames::next(&mut self.frames) {
            let is_error = matches!(frame, Frame::Error { .. });
            let mut events = Vec::new();
            let mut flow = self.dialect.frame(frame, &mut events);
            if flow == Flow::On && cursor.is_some() {
                flow = self.dialect.settle(&mut events);
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
                    recall(&self.app, &self.earlier, self.audience, &mut *self.dialect).await?;
                    self.stream.begin_again();
                }
            }
        }
        self.frames = Bytes::new();
        Ok(())
    }

    /// Appends events; the cursor stands on the last.
    fn say(&mut self, events: &[Value], cursor: Option<Cursor>, out: &mut Vec<u8>) {
        use io::Write;
        for (n, event) in (1..).zip(events) {
            let id = cursor.filter(|_| n == events.len());
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

/// Tells a dialect what was shown in the runs before.
async fn recall(app: &App, earlier: &[RunId], audience: Audience, dialect: &mut dyn Dialect) -> Result<(), Problem> {
    let mut all = Vec::new();
    for run in earlier {
        all.extend(shown(app, run, audience, None).await?);
    }
    dialect.recall(all);
    Ok(())
}
