//! One connection: what comes is read while there is room for its answer, what is to go out goes when the socket takes it.

use super::claims::{Came, Claimer};
use super::gate::Gate;
use super::message::refusal;
use super::subscriptions::Turn;
use crate::auth::{Lease, Refusal};
use crate::encode::native;
use crate::serve::access::{Who, unauthenticated};
use crate::serve::problem::Problem;
use crate::serve::shares::Share;
use crate::serve::{App, stopped};
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

/// What goes into one WebSocket frame, in bytes. A longer message goes in several: the library never gives back the room that
/// its longest frame took.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Messages that wait for their answers to be ready or taken; beyond it no more are read.
const ANSWERS_AHEAD_MAX: usize = 64;
/// The answers among them, in bytes; or one answer, if that is larger.
const ANSWERS_BYTES_MAX: usize = 256 * 1024;
/// Pings of the other side that are answered while it reads no answer.
const PONGS_AHEAD_MAX: usize = 64;
/// Pings that may stay unanswered.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// How long a connection that is being closed gets to read what it was told, and what of its own words is thrown away meanwhile.
const PARTING_TIME_MAX: Duration = Duration::from_secs(2);
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a connection may take to say who it is.
const AUTH_TIME_MAX: Duration = Duration::from_secs(10);
/// The close code for whoever does not say who it is, or may not be here any more.
pub(super) const UNAUTHENTICATED: u16 = 4401;

pub(super) type Socket = WebSocketStream<Gate>;

/// A subscription's id, as JSON.
pub(super) type Sub = Arc<str>;

/// Whoever is there.
pub(super) struct Present {
    pub who: Who,
    /// That this is one of what the token's `sub` has open.
    _share: Option<Share<Box<str>>>,
}

impl Present {
    /// Counts this connection for whoever it is.
    pub(super) fn new(app: &App, who: Who) -> Result<Self, Problem> {
        Ok(Self { _share: who.share(app)?, who })
    }

    /// The same one, who has another token.
    pub(super) fn with(self, who: Who) -> Self {
        Self { who, ..self }
    }
}

/// One WebSocket.
pub(super) struct Connection<'a> {
    pub app: &'a App,
    pub socket: Socket,
    /// Who is there; `None` until that was said.
    pub who: Option<Present>,
    /// How it is to be closed after what was just said.
    pub closing: Option<Close>,
    /// Those that have nothing to hand over at the moment; whoever has something first is heard first.
    pub readers: FuturesUnordered<Abortable<BoxFuture<'static, Turn>>>,
    pub subscriptions: HashMap<Sub, AbortHandle>,
    /// The one whose turn it is.
    pub turn: Option<Turn>,
    pub publishes: FuturesOrdered<BoxFuture<'a, String>>,
    pub claimers: HashMap<Sub, Claimer>,
    pub claims: FuturesUnordered<Abortable<BoxFuture<'a, Came>>>,
    pub answers: VecDeque<String>,
    /// What is left of a long message.
    rest: Option<Bytes>,
    ping_due: bool,
    unanswered: u32,
    /// Whether the other side gave a sign of life since the last ping.
    heard: bool,
    /// Whether the socket took no more when it was last asked.
    stalled: bool,
    /// Pings that came since the socket last took everything.
    pinged: usize,
}

/// How we close a connection: what it is told before, if anything, and the close itself.
pub(super) struct Close {
    problem: Option<Problem>,
    code: CloseCode,
    reason: &'static str,
}

impl Close {
    pub(super) const fn with(code: CloseCode, reason: &'static str, problem: Option<Problem>) -> Self {
        Self { problem, code, reason }
    }

    pub(super) fn unauthenticated(reason: &'static str, problem: Problem) -> Self {
        Self::with(CloseCode::Library(UNAUTHENTICATED), reason, Some(problem))
    }
}

impl<'a> Connection<'a> {
    pub(super) fn new(app: &'a App, socket: Socket, who: Option<Present>) -> Self {
        Self {
            app,
            socket,
            who,
            closing: None,
            readers: FuturesUnordered::new(),
            subscriptions: HashMap::new(),
            turn: None,
            publishes: FuturesOrdered::new(),
            claimers: HashMap::new(),
            claims: FuturesUnordered::new(),
            answers: VecDeque::new(),
            rest: None,
            ping_due: false,
            unanswered: 0,
            heard: true,
            stalled: false,
            pinged: 0,
        }
    }

    pub(super) async fn run(&mut self) {
        let mut stopping = self.app.stopping.subscribe();
        let moment = self.app.moment_in_drain();
        let every = self.app.pulse.heartbeat;
        let mut beat = pin!(tokio::time::sleep(every));
        let mut unknown = self.who.is_none().then(|| Box::pin(tokio::time::sleep(AUTH_TIME_MAX)));
        let close = loop {
            if self.who.is_some() {
                unknown = None;
            }
            // Another one, once the connection has another token.
            let mut lease = self.who.as_ref().and_then(|present| present.who.lease());
            let came = tokio::select! {
                biased;
                () = stopped(&mut stopping, moment) => {
                    break Some(Close::with(CloseCode::Away, "the server is stopping; come back with your cursors", None));
                }
                problem = over(lease.as_mut()) => break Some(Close::unauthenticated("the token is over", problem)),
                () = passed(unknown.as_mut()) => {
                    let problem = unauthenticated(&Refusal::Missing);
                    break Some(Close::unauthenticated("nobody has said who is there", problem));
                }
                () = &mut beat => {
                    beat.as_mut().reset(Instant::now() + every);
                    if self.is_mute() {
                        break Some(Close::with(CloseCode::Policy, "two pings were not answered", None));
                    }
                    continue;
                }
                came = poll_fn(|context| self.poll(context)) => came,
            };
            self.heard = true;
            match came {
                // Boxed, so that a quiet connection does not keep room for it.
                Ok(Some(Message::Text(text))) => {
                    Box::pin(self.obey(&text)).await;
                    if let Some(close) = self.closing.take() {
                        break Some(close);
                    }
                }
                Ok(Some(Message::Ping(_))) => {
                    self.pinged += 1;
                    if self.pinged > PONGS_AHEAD_MAX && !poll_fn(|context| self.poll_flushed(context)).await {
                        break Some(Close::with(CloseCode::Policy, "pings come, and their pongs are not read", None));
                    }
                }
                Ok(Some(Message::Pong(_) | Message::Frame(_))) => {}
                Ok(Some(Message::Close(_)) | None) => break None,
                Ok(Some(Message::Binary(_))) => {
                    let detail = "a message is binary; send JSON as a text message";
                    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail);
                    break Some(Close::with(CloseCode::Unsupported, "messages are JSON text", Some(problem)));
                }
                Err(error) => break self.fault(&error),
            }
        };
        // The other side may be gone, or not read: then it is not told.
        let _ = tokio::time::timeout(PARTING_TIME_MAX, Box::pin(self.part(close))).await;
    }

    /// Counts a heartbeat: whether too many pings were left unanswered. Else another one is due.
    fn is_mute(&mut self) -> bool {
        self.unanswered = if std::mem::take(&mut self.heard) { 0 } else { self.unanswered + 1 };
        self.ping_due = true;
        self.unanswered >= PINGS_UNANSWERED_MAX
    }

    /// How to close after what could not be read as a message; `None` where nobody is left to be told.
    fn fault(&self, error: &Error) -> Option<Close> {
        match error {
            Error::Capacity(_) => {
                let limit = self.app.limits.body_bytes_max;
                let detail = format!("a message is larger than {limit} bytes, the limit; send its facts in parts");
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("limit", limit);
                Some(Close::with(CloseCode::Size, "a message is too large", Some(problem)))
            }
            Error::Utf8(_) => {
                let problem = Problem::bad_request("not_json", "a text message is not UTF-8; send JSON");
                Some(Close::with(CloseCode::Invalid, "a text message is not UTF-8", Some(problem)))
            }
            Error::Protocol(_) => Some(Close::with(CloseCode::Protocol, "that is not how WebSocket goes", None)),
            _ => None,
        }
    }

    /// Moves whatever can be moved without waiting. Resolves with a message that came, `None` at the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        loop {
            let had_room = self.has_room();
            if had_room && let Poll::Ready(came) = self.socket.poll_next_unpin(context) {
                return Poll::Ready(came.transpose());
            }
            self.send(context)?;
            if had_room || !self.has_room() {
                return Poll::Pending;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.answers.len() + self.publishes.len() < ANSWERS_AHEAD_MAX
            && self.answers.iter().map(String::len).sum::<usize>() < ANSWERS_BYTES_MAX
    }

    /// Whether the socket takes everything that was handed over.
    fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        match self.socket.poll_flush_unpin(context) {
            Poll::Ready(flushed) => {
                self.pinged = 0;
                Poll::Ready(flushed.is_ok())
            }
            Poll::Pending if tokio::task::coop::has_budget_remaining() => Poll::Ready(false),
            // This task has had its share for now.
            Poll::Pending => Poll::Pending,
        }
    }

    /// Hands over for as long as the socket takes more.
    fn send(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        // Whether or not the socket takes the answers: what is under way to the store has a limit that all producers share.
        while let Poll::Ready(Some(answer)) = self.publishes.poll_next_unpin(context) {
            self.answers.push_back(answer);
        }
        while self.has_room()
            && let Poll::Ready(Some(came)) = self.claims.poll_next_unpin(context)
        {
            // Else it is one that was let go of.
            if let Ok(came) = came {
                self.came(came);
            }
        }
        if self.stalled {
            let Poll::Ready(flushed) = self.socket.poll_flush_unpin(context) else { return Ok(()) };
            flushed?;
            // Somebody has read. That is a sign of life: a ping may be far behind in what a slow reader has before it.
            (self.stalled, self.heard, self.pinged) = (false, true, 0);
        }
        loop {
            let Poll::Ready(ready) = self.socket.poll_ready_unpin(context) else {
                // Else it is this task that has had its share for now; it will be woken for more.
                if tokio::task::coop::has_budget_remaining() {
                    self.stalled = true;
                    self.hold_back();
                }
                return Ok(());
            };
            ready?;
            match self.next(context) {
                Some(message) => self.socket.start_send_unpin(message)?,
                None => break,
            }
        }
        match self.socket.poll_flush_unpin(context) {
            Poll::Ready(flushed) => {
                self.pinged = 0;
                flushed
            }
            Poll::Pending => {
                self.stalled = tokio::task::coop::has_budget_remaining();
                Ok(())
            }
        }
    }

    /// The next that there is to hand over.
    fn next(&mut self, context: &mut Context<'_>) -> Option<Message> {
        if let Some(rest) = self.rest.take() {
            return Some(self.piece(rest, Data::Continue));
        }
        if std::mem::take(&mut self.ping_due) {
            return Some(Message::Ping(Bytes::new()));
        }
        if let Some(answer) = self.answers.pop_front() {
            return Some(self.piece(answer.into(), Data::Text));
        }
        loop {
            if let Some(mut turn) = self.turn.take() {
                if let Some((text, at)) = native::message(&mut turn.frames, &turn.sub) {
                    turn.at = at;
                    turn.counted.delivered();
                    self.turn = Some(turn);
                    return Some(self.piece(text.into(), Data::Text));
                }
                match turn.is_last {
                    true => drop(self.subscriptions.remove(&turn.sub)),
                    false => self.read_on(turn.sub, turn.reader, turn.counted, turn.hold),
                }
            }
            match self.readers.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(turn))) => self.turn = Some(turn),
                // One that was let go of.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }

    /// As much of a message as goes out at once; the rest is kept.
    fn piece(&mut self, mut text: Bytes, kind: Data) -> Message {
        let piece = text.split_to(text.len().min(PIECE_BYTES_MAX));
        let is_last = text.is_empty();
        self.rest = (!is_last).then_some(text);
        Message::Frame(Frame::message(piece, OpCode::Data(kind), is_last))
    }

    /// Ends the connection: with the close that the other side sent, or with ours after everything that it has to be told.
    async fn part(&mut self, close: Option<Close>) -> Result<(), Error> {
        let Some(Close { problem, code, reason }) = close else {
            self.socket.flush().await?;
            return Ok(self.socket.get_mut().shutdown().await?);
        };
        while let Some(rest) = self.rest.take() {
            let piece = self.piece(rest, Data::Continue);
            self.socket.feed(piece).await?;
        }
        while let Some(answer) = self.publishes.next().await {
            self.answers.push_back(answer);
        }
        self.answers.extend(problem.map(|problem| refusal(None, &problem)));
        while let Some(answer) = self.answers.pop_front() {
            self.socket.feed(Message::Text(answer.into())).await?;
        }
        self.socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        let io = self.socket.get_mut();
        io.shutdown().await?;
        // A socket that is dropped with something unread takes back what it has sent.
        let (mut void, mut discarded) = ([0; 512], 0);
        while discarded < DISCARD_BYTES_MAX {
            match io.read(&mut void).await? {
                0 => break,
                read => discarded += read,
            }
        }
        Ok(())
    }
}

/// Waits until a token is over; for ever where nobody was asked for one.
async fn over(lease: Option<&mut Lease>) -> Problem {
    match lease {
        Some(lease) => unauthenticated(&Refusal::Ended(lease.ended().await)),
        None => std::future::pending().await,
    }
}

/// Waits until a time is up, if there is one.
async fn passed(sleep: Option<&mut Pin<Box<tokio::time::Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}
