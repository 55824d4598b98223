//! Frames out and facts in over WebSocket (RFC 6455, subprotocol `proscenium.v1`): many subscriptions on one connection.
//!
//! A connection is one task and keeps no queue: its readers are asked for more only once the socket has taken what it was given,
//! and those that have something take turns, a chunk each. Answers go before frames; while too many wait to be taken, nothing
//! more is read. What a message asks for is read by the code that reads queries and bodies, and a frame is the very object that
//! SSE carries: there is one way to read a log, and this is another way to carry it.
//!
//! Who connects says who it is: in a header, by a ticket, or, as browsers can do neither of the first, with its first message.
//! Until then nothing is done for it and little is read. Each message is asked for at `access`, as a request is; when the token
//! is over, so is the connection.

use super::access::{Hold, Target, Who, allow, unauthenticated};
use super::controls::{claimed_by, handed, refusal_of, refused};
use super::facts::{self, Address};
use super::meters::{Counted, Transport};
use super::problem::Problem;
use super::request::{Query, bad_id, from, id_of};
use super::wire::{HELD_BYTES_MAX, Permit};
use super::{App, stopped};
use crate::auth::rights::Verb;
use crate::auth::tickets::Purpose;
use crate::auth::{Lease, Refusal};
use crate::control::{Answer, Claim, Handed};
use crate::encode::native;
use crate::feed::several::{self, Members};
use crate::feed::{From, Reading};
use crate::log::{AnyStore, LogId, StoreError};
use crate::model::{AgentId, ControlId, Cursor, RunId, SessionId};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// What is spoken here.
pub const SUBPROTOCOL: &str = "proscenium.v1";

/// What is read at once, and what is gathered before it is written, in bytes. A connection keeps room for the one from its
/// beginning, for the other from its first frame; by default it would be 128 KiB each.
const READ_BYTES: usize = 2048;
const WRITE_BYTES: usize = 4096;
/// What goes into one WebSocket frame, in bytes. A longer message goes in several: the library never gives back the room that
/// its longest frame took.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Messages that wait for their answers to be ready or taken; beyond it no more are read.
const ANSWERS_AHEAD_MAX: usize = 64;
/// Pings that may stay unanswered.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// How long a connection that is being closed gets to read what it was told, and what of its own words is thrown away meanwhile.
const PARTING_TIME_MAX: Duration = Duration::from_secs(2);
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// An id of a subscription or a publish, in bytes.
const ID_BYTES_MAX: usize = 256;

/// How long a connection may take to say who it is, and what may be read of it until then, in bytes.
const AUTH_TIME_MAX: Duration = Duration::from_secs(10);
const UNKNOWN_BYTES_MAX: usize = 16 * 1024;
/// The close code for whoever does not say who it is, or may not be here any more.
const UNAUTHENTICATED: u16 = 4401;

/// What may be asked.
const OPS: [&str; 9] = ["subscribe", "unsubscribe", "publish", "claim", "unclaim", "ack", "nack", "ping", "auth"];
/// What a subscription says of what it wants.
const SUBSCRIPTION: [&str; 11] =
    ["run", "session", "children", "frames", "audience", "surfaces", "surface", "type", "agentId", "replay", "after"];

type Socket = WebSocketStream<Gate>;

/// `GET /v1/ws`
pub async fn get(State(app): State<Arc<App>>, mut request: Request<Body>) -> Response {
    let (accept, named) = match handshake(request.method(), request.headers()) {
        Ok(agreed) => agreed,
        Err(problem) if problem.status == StatusCode::UPGRADE_REQUIRED => {
            return ([(header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_VERSION, "13")], problem).into_response();
        }
        Err(problem) => return problem.into_response(),
    };
    let who = match Who::by_request(&app, request.uri(), request.headers(), Some(Purpose::Socket)) {
        Ok(who) => who,
        Err(problem) => return problem.into_response(),
    };
    let permit = request.extensions_mut().remove::<Permit>();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let config = WebSocketConfig::default()
                    .read_buffer_size(READ_BYTES)
                    .write_buffer_size(WRITE_BYTES)
                    .max_message_size(Some(app.limits.body_bytes_max))
                    .max_frame_size(Some(app.limits.body_bytes_max));
                let room = who.is_none().then_some(UNKNOWN_BYTES_MAX);
                let gate = Gate { io: TokioIo::new(io), room };
                let socket = WebSocketStream::from_raw_socket(gate, Role::Server, Some(config)).await;
                Connection::new(&app, socket, who).run().await;
            }
            Err(error) => tracing::debug!(%error, "a connection broke before it was a WebSocket"),
        }
        drop(permit);
    });
    let mut response = http::Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept);
    if named {
        response = response.header(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    }
    response.body(Body::empty()).expect("these are headers")
}

/// What the answer says to the request's key, and whether the request asks for our subprotocol by name.
fn handshake(method: &Method, headers: &HeaderMap) -> Result<(String, bool), Problem> {
    let words = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).collect::<Vec<_>>()
    };
    let says = |name: HeaderName, word: &str| words(name).iter().any(|said| said.eq_ignore_ascii_case(word));
    let is_handshake = method == Method::GET
        && says(header::CONNECTION, "upgrade")
        && says(header::UPGRADE, "websocket")
        && says(header::SEC_WEBSOCKET_VERSION, "13");
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake) else {
        let detail = "this address speaks WebSocket (RFC 6455, version 13); connect with a WebSocket client";
        return Err(Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail));
    };
    let offered = words(header::SEC_WEBSOCKET_PROTOCOL);
    if !offered.is_empty() && !offered.contains(&SUBPROTOCOL) {
        let detail = format!("the subprotocols on offer are {offered:?}; this address speaks {SUBPROTOCOL}");
        return Err(Problem::bad_request("bad_subprotocol", detail).with("expected", SUBPROTOCOL));
    }
    Ok((derive_accept_key(key.as_bytes()), !offered.is_empty()))
}

/// A subscription's id, as JSON.
type Sub = Arc<str>;

/// Somebody who takes an agent's controls here, as they come.
struct Claimer {
    agent: AgentId,
    claim: Claim,
    /// The leases that are not answered yet, each with its end.
    out: Vec<(Box<str>, Instant)>,
    waiting: AbortHandle,
    /// Whether it has as many as it may have, and waits for one of them to be answered or lost.
    is_full: bool,
}

/// What came for a claimer: nothing, when one of its leases was lost.
struct Came {
    sub: Sub,
    controls: Result<Vec<Handed>, StoreError>,
}

/// A socket of which only so much is read, until somebody is known to be there.
struct Gate {
    io: TokioIo<Upgraded>,
    room: Option<usize>,
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(room) = self.room else { return Pin::new(&mut self.io).poll_read(context, into) };
        if room == 0 {
            return Poll::Ready(Err(io::Error::other("more was sent than is read of somebody who is not known")));
        }
        let mut part = vec![0; room.min(into.remaining())];
        let mut part = ReadBuf::new(&mut part);
        let polled = Pin::new(&mut self.io).poll_read(context, &mut part);
        into.put_slice(part.filled());
        let read = part.filled().len();
        self.room = Some(room - read);
        polled
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// One WebSocket.
struct Connection<'a> {
    app: &'a App,
    socket: Socket,
    /// Who is there; `None` until that was said.
    who: Option<Who>,
    /// How it is to be closed after what was just said.
    closing: Option<Close>,
    /// Those that have nothing to hand over at the moment; whoever has something first is heard first.
    readers: FuturesUnordered<Abortable<BoxFuture<'static, Turn>>>,
    subscriptions: HashMap<Sub, AbortHandle>,
    /// The one whose turn it is.
    turn: Option<Turn>,
    publishes: FuturesOrdered<BoxFuture<'a, String>>,
    claimers: HashMap<Sub, Claimer>,
    claims: FuturesUnordered<Abortable<BoxFuture<'a, Came>>>,
    answers: VecDeque<String>,
    /// What is left of a long message.
    rest: Option<Bytes>,
    ping_due: bool,
    unanswered: u32,
    /// Whether the other side gave a sign of life since the last ping.
    heard: bool,
    /// Whether the socket took no more when it was last asked.
    stalled: bool,
}

/// How we close a connection: what it is told before, if anything, and the close itself.
struct Close {
    problem: Option<Problem>,
    code: CloseCode,
    reason: &'static str,
}

impl Close {
    const fn with(code: CloseCode, reason: &'static str, problem: Option<Problem>) -> Self {
        Self { problem, code, reason }
    }

    fn unauthenticated(reason: &'static str, problem: Problem) -> Self {
        Self::with(CloseCode::Library(UNAUTHENTICATED), reason, Some(problem))
    }
}

/// A reader and what it has to say.
struct Turn {
    sub: Sub,
    reader: Reading<AnyStore>,
    counted: Counted,
    hold: Hold,
    /// What of its chunk was not handed over yet.
    frames: Bytes,
    /// The cursor of the frame that was handed over last, if that had one.
    at: Option<Cursor>,
    /// Whether nothing follows the chunk.
    is_last: bool,
}

impl Turn {
    /// Resolves as soon as there is anything to say.
    async fn of(sub: Sub, mut reader: Reading<AnyStore>, counted: Counted, hold: Hold) -> Self {
        let (frames, is_last) = match reader.next().await {
            Ok(Some(frames)) => match hold.check() {
                Ok(()) => (frames, reader.is_over()),
                Err(problem) => (reader.error(&problem.to_json()), true),
            },
            Ok(None) => (Bytes::new(), true),
            Err(error) => (reader.error(&Problem::from(error).to_json()), true),
        };
        Self { sub, reader, counted, hold, frames, at: None, is_last }
    }
}

impl<'a> Connection<'a> {
    fn new(app: &'a App, socket: Socket, who: Option<Who>) -> Self {
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
        }
    }

    async fn run(&mut self) {
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
            let mut lease = self.who.as_ref().and_then(Who::lease);
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
                Ok(Some(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
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
            (self.stalled, self.heard) = (false, true);
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
            Poll::Ready(flushed) => flushed,
            Poll::Pending => {
                self.stalled = tokio::task::coop::has_budget_remaining();
                Ok(())
            }
        }
    }

    /// What a reader whose socket takes no more may hold is little, and its own: the rest is given back, to be had again.
    fn hold_back(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        if turn.frames.len() > HELD_BYTES_MAX {
            if !turn.is_last && turn.at.is_some_and(|at| turn.reader.rewind(at)) {
                return self.read_on(turn.sub, turn.reader, turn.counted, turn.hold);
            }
        } else if !turn.frames.is_unique() {
            turn.frames = Bytes::copy_from_slice(&turn.frames);
        }
        self.turn = Some(turn);
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

    /// Puts a reader among those that wait for their logs to move.
    fn read_on(&mut self, sub: Sub, reader: Reading<AnyStore>, counted: Counted, hold: Hold) {
        let (stop, stopped) = AbortHandle::new_pair();
        self.readers.push(Abortable::new(Box::pin(Turn::of(sub.clone(), reader, counted, hold)), stopped));
        self.subscriptions.insert(sub, stop);
    }

    /// Does what a message asks for, and answers it.
    async fn obey(&mut self, text: &str) {
        let asked = match Asked::of(text) {
            Ok(asked) => asked,
            Err(problem) => return self.refuse(None, &problem),
        };
        let id = match asked.id() {
            Ok(id) => id,
            Err(problem) => return self.refuse(None, &problem),
        };
        if self.who.is_none() && !matches!(asked.op(), Ok("auth")) {
            let problem = unauthenticated(&Refusal::Missing);
            self.closing = Some(Close::unauthenticated("the first message has to be auth", problem));
            return;
        }
        let done = match asked.op() {
            Ok("subscribe") => self.subscribe(&asked, id.as_ref()).await.map(Some),
            Ok("unsubscribe") => self.unsubscribe(id.as_ref()).map(Some),
            Ok("publish") => {
                let published = self.publish(&asked, id.as_ref()).await;
                published.inspect_err(|problem| self.app.meters.refused.add(problem.code)).map(|()| None)
            }
            Ok("claim") => self.claim(&asked, id.as_ref()).await.map(Some),
            Ok("unclaim") => self.unclaim(id.as_ref()).map(Some),
            Ok("ack") => self.answer_control(&asked, id.as_ref(), Ok(Answer::Ack), "acked").await.map(|()| None),
            Ok("nack") => {
                let says = refusal_of(&asked.members);
                self.answer_control(&asked, id.as_ref(), says, "nacked").await.map(|()| None)
            }
            Ok("ping") => Ok(Some(answer("pong", id.as_ref(), json!({})))),
            Ok("auth") => self.authenticate(&asked, id.as_ref()).map(Some),
            Ok(other) => {
                let detail = format!("op is {other:?}; it must be one of {}", OPS.join(", "));
                Err(Problem::bad_request("unknown_op", detail).with("member", "op").with("expected", OPS.as_slice()))
            }
            Err(problem) => Err(problem),
        };
        match done {
            Ok(answer) => self.answers.extend(answer),
            Err(problem) => self.refuse(id.as_ref(), &problem),
        }
    }

    fn refuse(&mut self, id: Option<&Value>, problem: &Problem) {
        self.app.meters.problems.add(problem.code);
        self.answers.push_back(refusal(id, problem));
    }

    /// Says who is there, or that the same one has another token. That one has to allow everything that the one before does: what
    /// is open stays open.
    fn authenticate(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let who = match Who::by_token(self.app, asked.text("token")?) {
            Ok(who) => who,
            Err(problem) if self.who.is_some() => return Err(problem),
            Err(problem) => {
                // It is told why by the answer.
                self.closing = Some(Close::with(CloseCode::Library(UNAUTHENTICATED), "the token is not good", None));
                return Err(problem);
            }
        };
        if let (Some(before), Some(now)) = (self.who.as_ref().and_then(Who::grant), who.grant())
            && !(now.is_of(before) && now.rights.cover(&before.rights))
        {
            let detail = "the token is somebody else's, or allows less than the one before; open another connection for it";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "token"));
        }
        let told = who.grant().map_or(json!({}), |grant| {
            let until = i64::try_from(grant.expires).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
            json!({ "audience": grant.rights.audience, "expiresAt": until.map(|until| until.to_string()) })
        });
        self.who = Some(who);
        self.socket.get_mut().room = None;
        Ok(answer("authenticated", id, told))
    }

    /// Who is there, which [`Self::obey`] has made sure of.
    fn known(&self) -> Result<&Who, Problem> {
        self.who.as_ref().ok_or_else(|| unauthenticated(&Refusal::Missing))
    }

    async fn subscribe(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if self.subscriptions.contains_key(&sub) {
            let detail = format!("a subscription {id} is open; unsubscribe it, or take another id");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.subscriptions.len() >= limit {
            let detail = format!("{limit} subscriptions are open, the limit of a connection; unsubscribe some, or open another");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let query = asked.query(&SUBSCRIPTION)?;
        let (wanted, from) = (query.wanted()?, from(query.get("after"))?);
        let audience = wanted.selection.audience;
        let (app, who) = (self.app, self.known()?.clone());
        let (reader, hold, epoch, sequence, recovered) = match (query.get("run"), query.get("session")) {
            (Some(run), None) => {
                let run = id_of::<RunId>("run", run)?;
                let pass = allow(app, &who, Verb::Read, Target::Run(&run), Some(audience)).await?;
                let log = LogId::Run(run);
                let tail = self.app.logs.log(&log).await?.tail();
                let goes_on = |after: Cursor| tail.epoch == Some(after.epoch) && after.after <= tail.last;
                let recovered = matches!(from, From::After(after) if goes_on(after));
                let reader = Reading::One(self.app.feed.read(&log, wanted, from).await?);
                (reader, pass.hold(), tail.epoch, tail.last, recovered)
            }
            (None, Some(session)) => {
                let session = id_of::<SessionId>("session", session)?;
                let pass = allow(app, &who, Verb::Read, Target::Session(&session), Some(audience)).await?;
                let (children, takes) = (query.is_set("children"), pass.takes());
                let members = Members::of_session(self.app.logs.clone(), session, children, takes);
                let (life, now) = (self.app.logs.life(), several::now(&self.app.logs));
                let recovered = matches!(from, From::After(after) if after.epoch == life && after.after <= now);
                let reader = Reading::Several(Box::new(self.app.feed.read_several(members, wanted, from)));
                (reader, pass.hold(), Some(life), now, recovered)
            }
            (Some(_), Some(_)) => {
                let detail = "a subscription is to a run or to a session; this one names both";
                return Err(Problem::bad_request("bad_query", detail).with("member", "session"));
            }
            (None, None) => return Err(missing("run")),
        };
        let counted = self.app.meters.reader(audience, Transport::WebSocket);
        self.read_on(sub, reader, counted, hold);
        let epoch = epoch.map(|epoch| epoch.to_string());
        Ok(answer("subscribed", Some(id), json!({ "epoch": epoch, "sequence": sequence, "recovered": recovered })))
    }

    /// Whether there was anything to let go of or not: its end may have been on its way.
    fn unsubscribe(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if let Some(reading) = self.subscriptions.remove(&sub) {
            reading.abort();
        }
        self.turn.take_if(|turn| turn.sub == sub);
        Ok(answer("unsubscribed", Some(id), json!({})))
    }

    async fn publish(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<(), Problem> {
        let id = id.ok_or_else(|| missing("id"))?.clone();
        let facts = asked.facts.ok_or_else(|| missing("facts"))?;
        let query = asked.query(&["runId", "sessionId", "source"])?;
        let mut given = asked.object("ids")?.ids()?;
        let session = query.get("sessionId").map(|session| id_of("sessionId", session)).transpose()?;
        let log = match (query.get("runId"), session) {
            (Some(run), session) => {
                given.session = given.session.or(session);
                LogId::Run(id_of("runId", run)?)
            }
            (None, Some(session)) => LogId::Session(session),
            (None, None) => return Err(missing("runId")),
        };
        let numbering = asked.object("producer")?;
        let names = ["producer.id", "producer.epoch", "producer.seq"];
        let producer = facts::producer(names, ["id", "epoch", "seq"].map(|member| numbering.get(member)))?;
        let target = match &log {
            LogId::Run(run) => Target::Run(run),
            LogId::Session(session) => Target::Session(session),
        };
        let (app, who) = (self.app, self.known()?.clone());
        let pass = allow(app, &who, Verb::Publish, target, None).await?;
        let to = Address::new(&pass, log, query.get("source"), given, producer)?;
        let mut submitting = pin!(facts::submit(self.app, to, facts.get().as_bytes()));
        let submitted = match facts::ready_now(submitting.as_mut()).await {
            Some(submitted) => submitted,
            None => {
                // See `ready_now`.
                while let Some(answer) = self.publishes.next().await {
                    self.answers.push_back(answer);
                }
                submitting.await
            }
        };
        let (pending, meters) = (submitted?, self.app.meters.clone());
        self.publishes.push_back(Box::pin(async move {
            match facts::durable(pending).await {
                Ok(receipt) => answer("ack", Some(&id), receipt),
                Err(problem) => {
                    meters.refused.add(problem.code);
                    meters.problems.add(problem.code);
                    refusal(Some(&id), &problem)
                }
            }
        }));
        Ok(())
    }

    /// Takes an agent's controls from now on, as many at once as the claim says.
    async fn claim(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if self.claimers.contains_key(&sub) {
            let detail = format!("a claim {id} is open; unclaim it, or take another id");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.claimers.len() >= limit {
            let detail = format!("{limit} claims are open, the limit of a connection; unclaim some, or open another");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let (agent, claim) = claimed_by(&asked.query(&["agentId", "max", "leaseSeconds"])?)?;
        allow(self.app, self.known()?, Verb::Publish, Target::Agent(&agent), None).await?;
        let told = answer("claiming", Some(id), json!({ "agentId": agent }));
        let (waiting, _) = AbortHandle::new_pair();
        self.claimers.insert(sub.clone(), Claimer { agent, claim, out: Vec::new(), waiting, is_full: false });
        self.claim_on(&sub);
        Ok(told)
    }

    /// Waits for what comes for a claimer, or, if it has enough, for the first of its leases to be lost.
    fn claim_on(&mut self, sub: &Sub) {
        let Some(claimer) = self.claimers.get_mut(sub) else { return };
        let now = Instant::now();
        claimer.out.retain(|(_, until)| *until > now);
        let room = claimer.claim.max.saturating_sub(claimer.out.len());
        let first = claimer.out.iter().map(|(_, until)| *until).min().filter(|_| room == 0);
        claimer.is_full = first.is_some();
        let (app, sub, agent) = (self.app, sub.clone(), claimer.agent.clone());
        let claim = Claim { max: room, ..claimer.claim };
        let (stop, stopped) = AbortHandle::new_pair();
        claimer.waiting = stop;
        let waiting = async move {
            let controls = match first {
                Some(until) => {
                    tokio::time::sleep_until(until).await;
                    Ok(Vec::new())
                }
                None => app.controls.claim(&app.logs, &app.ingest, &agent, claim, None).await,
            };
            Came { sub, controls }
        };
        self.claims.push(Abortable::new(Box::pin(waiting), stopped));
    }

    /// Hands on what came for a claimer.
    fn came(&mut self, came: Came) {
        let id = || serde_json::from_str::<Value>(&came.sub).ok();
        match &came.controls {
            Ok(controls) => {
                if let Some(claimer) = self.claimers.get_mut(&came.sub) {
                    let until = Instant::now() + claimer.claim.lease;
                    claimer.out.extend(controls.iter().map(|control| (control.lease.clone(), until)));
                }
                self.answers.extend(controls.iter().map(|control| answer("control", id().as_ref(), handed(control))));
                self.claim_on(&came.sub);
            }
            Err(error) => {
                self.claimers.remove(&came.sub);
                self.refuse(id().as_ref(), &Problem::from(error.clone()));
            }
        }
    }

    /// What was handed over stays with whoever has it; nothing more comes.
    fn unclaim(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        if let Some(claimer) = self.claimers.remove(&*id.to_string()) {
            claimer.waiting.abort();
        }
        Ok(answer("unclaimed", Some(id), json!({})))
    }

    /// Takes what the owner says of a control; the answer comes once that is durable.
    async fn answer_control(
        &mut self,
        asked: &Asked<'_>,
        id: Option<&Value>,
        says: Result<Answer, Problem>,
        op: &'static str,
    ) -> Result<(), Problem> {
        allow(self.app, self.known()?, Verb::Publish, Target::Several, None).await?;
        let says = says?;
        let control: ControlId = id_of("control", asked.text("control")?)?;
        let lease: Box<str> = asked.text("lease")?.into();
        let holder = self.claimers.iter_mut().find(|(_, claimer)| claimer.out.iter().any(|(known, _)| *known == lease));
        if let Some((sub, claimer)) = holder {
            claimer.out.retain(|(known, _)| *known != lease);
            if claimer.is_full {
                claimer.waiting.abort();
                let sub = sub.clone();
                self.claim_on(&sub);
            }
        }
        let (app, id) = (self.app, id.cloned());
        self.publishes.push_back(Box::pin(async move {
            match app.controls.answer(&app.logs, &app.ingest, &control, &lease, says).await {
                Ok(status) => answer(op, id.as_ref(), json!({ "controlId": control, "status": status })),
                Err(lost) => refusal(id.as_ref(), &refused(lost)),
            }
        }));
        Ok(())
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

/// What a message asks for: its members, with the facts among them as they stand.
struct Asked<'m> {
    members: Map<String, Value>,
    facts: Option<&'m RawValue>,
}

impl<'m> Asked<'m> {
    fn of(text: &'m str) -> Result<Self, Problem> {
        let not_json = |error: serde_json::Error| {
            let problem = match error.is_data() {
                true => Problem::bad_request("not_an_object", format!("the message is no JSON object: {error}")),
                false => Problem::bad_request("not_json", format!("the message is not JSON: {error}")),
            };
            problem.with("expected", "one JSON object a message")
        };
        let mut members: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(not_json)?;
        let facts = members.remove("facts");
        let read = members.into_iter().map(|(member, value)| Ok((member, serde_json::from_str(value.get())?)));
        Ok(Self { members: read.collect::<Result<_, _>>().map_err(not_json)?, facts })
    }

    fn op(&self) -> Result<&str, Problem> {
        self.text("op")
    }

    /// A member that has to be there, and text.
    fn text(&self, member: &'static str) -> Result<&str, Problem> {
        match self.members.get(member) {
            Some(Value::String(text)) => Ok(text),
            Some(other) if !other.is_null() => {
                let detail = format!("{member} is {}; it must be text", crate::source::kind_of(other));
                Err(Problem::bad_request("bad_query", detail).with("member", member))
            }
            _ => Err(missing(member)),
        }
    }

    /// By what the answer is to be known.
    fn id(&self) -> Result<Option<Value>, Problem> {
        match self.members.get("id") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(id)) if id.is_empty() || id.len() > ID_BYTES_MAX => {
                Err(bad_id("id", &format!("it has {} bytes; it must have 1 to {ID_BYTES_MAX}", id.len())))
            }
            Some(id @ (Value::String(_) | Value::Number(_))) => Ok(Some(id.clone())),
            Some(other) => Err(bad_id("id", &format!("it is {}; it must be text or a number", crate::source::kind_of(other)))),
        }
    }

    /// These of its members; others mean nothing here.
    fn query(&self, members: &[&str]) -> Result<Query, Problem> {
        let named = |member: &&str| Some(((*member).to_owned(), self.members.get(*member)?.clone()));
        Query::of_object(&members.iter().filter_map(named).collect())
    }

    /// The members of an object; none if it is absent.
    fn object(&self, member: &'static str) -> Result<Query, Problem> {
        match self.members.get(member) {
            None | Some(Value::Null) => Ok(Query::default()),
            Some(Value::Object(object)) => Query::of_object(object),
            Some(other) => {
                let detail = format!("{member} is {}; it must be an object", crate::source::kind_of(other));
                Err(Problem::bad_request("bad_query", detail).with("member", member))
            }
        }
    }
}

fn missing(member: &'static str) -> Problem {
    Problem::bad_request("missing_member", format!("{member} is missing; this op needs it")).with("member", member)
}

/// An answer's text.
fn answer(op: &str, id: Option<&Value>, members: impl Serialize) -> String {
    #[derive(Serialize)]
    struct Answer<'v, M> {
        op: &'v str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'v Value>,
        #[serde(flatten)]
        members: M,
    }
    serde_json::to_string(&Answer { op, id, members }).expect("plain data with string keys")
}

fn refusal(id: Option<&Value>, problem: &Problem) -> String {
    super::routes::hold_message(problem);
    answer("error", id, problem.to_json())
}
