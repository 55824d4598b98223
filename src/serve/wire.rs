//! Connections: streams and small posts on sockets of our own, everything else on hyper; over TLS, all of it.
//!
//! An open stream says nothing for most of its life. hyper keeps 8 to 20 KiB for each, a task on the bare socket about one,
//! and a delivery costs half; a post of one fact costs a third less. So each request's head is read
//! and checked ([`head`]) before anybody is chosen: a plain `GET …/stream` and a plain `POST …/facts` with a small JSON body stay here. With any other
//! request the connection goes to hyper, with the bytes that were already read, and stays there: same handlers, same answers.
//! With TLS the handshake agrees on HTTP/2 or HTTP/1.1 (ALPN), and hyper carries both.

use super::access::enter;
use super::facts::{Pace, is_address, is_lines};
use super::head::{self, Body, Checked, HEADERS_MAX, Head};
use super::meters;
use super::origin::{FETCH_SITE, known};
use super::problem::{CHALLENGE, Problem};
use super::request::is_stream;
use super::shares::{Client, Share};
use super::stream::{self, Answer, COPIED_BYTES_MAX, HEADERS, Stream};
use super::tls::{H2, Tls};
use super::trace::{self, Told};
use super::{App, told_to_stop};
use crate::ingest::Receipt;
use axum::response::IntoResponse;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use tracing::Instrument;

/// What a stalled reader may hold of frames that its socket does not take, in bytes; or one frame, if that is larger.
pub const HELD_BYTES_MAX: usize = 8 * 1024;
/// The largest body of a post that stays here, in bytes.
const POST_BYTES_MAX: u64 = 256 * 1024;
/// What is read at once of a request's head, in bytes: nearly all heads, and a small fact with them.
const READ_BYTES: usize = 4096;
/// What an HTTP/2 connection begins with, in bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// What one HTTP/2 stream may hold of an answer that its reader does not take, in bytes. hyper's own bound is 400 KiB.
const STREAM_BYTES_MAX: usize = 64 * 1024;
/// How long somebody who is sent away gets to read why.
const PARTING_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a connection may stay open without asking anything.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A connection's place among those that may be open at once. Every request that hyper carries brings it along: whoever takes
/// the connection over keeps it as long.
#[derive(Debug, Clone)]
pub struct Permit {
    _held: Arc<(OwnedSemaphorePermit, Share<Client>)>,
}

/// The server's connections.
pub struct Connections {
    free: Arc<Semaphore>,
    limit: usize,
}

impl Connections {
    /// Room for this many.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Accepts connections for ever.
    pub async fn accept(&self, listener: &TcpListener, app: Arc<App>, tls: Option<Arc<Tls>>) {
        let router = super::router(app.clone());
        loop {
            let (socket, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: others will be freed; spinning would only hold them longer.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            // Frames are written whole; waiting to fill a packet would only delay them.
            let _ = socket.set_nodelay(true);
            let place = self.free.clone().try_acquire_owned().map_err(|_| self.full());
            let place = place.and_then(|place| Ok((place, app.shares.take(Client::at(peer.ip()))?)));
            let place = match place {
                Ok(place) => place,
                Err(problem) => {
                    app.meters.problems.add(problem.code);
                    // To say so over TLS would take a handshake, of all things the dearest.
                    if tls.is_none() {
                        tokio::spawn(refuse(socket, problem, (app.world.now)()));
                    }
                    continue;
                }
            };
            app.meters.connections.add(1);
            let (app, router, permit) = (app.clone(), router.clone(), Permit { _held: Arc::new(place) });
            let tls = tls.clone();
            tokio::spawn(async move {
                let served = match tls {
                    None => connection(app, router, socket, permit.clone()).await,
                    Some(tls) => Box::pin(secured(app, router, tls, socket, permit.clone())).await,
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection broke");
                }
                drop(permit);
            });
        }
    }

    fn full(&self) -> Problem {
        let limit = self.limit;
        let detail = format!("the server has {limit} connections open, its limit; come back, or raise --connections-max");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail);
        problem.with("limit", limit).retry_after(2)
    }

    /// Waits until every connection has ended, at most this long.
    pub async fn drained(&self, within: Duration) {
        let all = self.free.acquire_many(u32::try_from(self.limit).unwrap_or(u32::MAX));
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!(
                open = self.limit - self.free.available_permits(),
                "connections were still open at the end of the drain"
            );
        }
    }
}

/// Tells somebody why nothing will come of it, and lets go.
async fn refuse(mut socket: TcpStream, problem: Problem, now: jiff::Timestamp) -> io::Result<()> {
    let told = async {
        socket.write_all(&answered(Err(problem), now, None, true)).await?;
        socket.shutdown().await?;
        // A socket that is dropped with something unread takes back what it has sent.
        let mut void = [0; 512];
        while socket.read(&mut void).await? > 0 {}
        Ok(())
    };
    // Whoever does not even read it loses nothing by it.
    tokio::time::timeout(PARTING_TIME_MAX, told).await.unwrap_or(Ok(()))
}

/// Connections that are told at once that the server is stopping; of more than that each is closed unheard.
const TURNED_AWAY_MAX: usize = 64;
/// How long one of them may take.
const TURNED_AWAY_TIME_MAX: Duration = Duration::from_secs(2);

/// Accepts connections for ever, and tells each that there is nothing to be had any more. Health and metrics are answered: those
/// who ask whether we are ready are to hear it from us.
///
/// Where TLS is spoken they hear it from the connection's end: a handshake for each would be dear, at such a time.
pub async fn turn_away(listener: &TcpListener, app: &Arc<App>, is_plain: bool) {
    let free = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !is_plain {
            continue;
        }
        let Ok(place) = free.clone().try_acquire_owned() else { continue };
        let app = app.clone();
        tokio::spawn(async move {
            // Whoever takes longer has his answer by the connection's end.
            let _ = tokio::time::timeout(TURNED_AWAY_TIME_MAX, farewell(&app, socket)).await;
            drop(place);
        });
    }
}

/// Answers one request of a connection that came too late.
async fn farewell<S: AsyncRead + AsyncWrite + Unpin>(app: &App, mut socket: S) -> io::Result<()> {
    let mut read = BytesMut::new();
    while memchr::memmem::find(&read, b"\r\n\r\n").is_none() {
        if read.len() >= app.limits.head_bytes_max || socket.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
    let asked = head_of(&read);
    let path = asked.as_ref().map(|(uri, _)| uri.path());
    // Whoever may not see them at other times may not now.
    let may_look = match &asked {
        Some((uri, headers)) if path == Some("/metrics") => {
            known(app, uri, headers).is_ok() && enter(app, meters::RIGHT, uri, headers).await.is_ok()
        }
        _ => false,
    };
    let plain = |kind: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{body}")
            .into_bytes()
    };
    let text = match path {
        Some("/healthz") => plain("application/json", &super::ops::health().await.0.to_string()),
        Some("/metrics") if may_look => plain(meters::CONTENT_TYPE, &meters::text(app).await),
        _ => {
            app.meters.problems.add("stopping");
            answered(Err(super::stopping()), (app.world.now)(), None, true)
        }
    };
    socket.write_all(&text).await?;
    socket.shutdown().await
}

/// The target and the headers of a request's head; `None` for what is none.
fn head_of(head: &[u8]) -> Option<(Uri, HeaderMap)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?;
    let pair = |header: &httparse::Header<'_>| {
        Some((HeaderName::from_bytes(header.name.as_bytes()).ok()?, HeaderValue::from_bytes(header.value).ok()?))
    };
    Some((request.path?.parse().ok()?, request.headers.iter().filter_map(pair).collect()))
}

/// A connection that begins with a TLS handshake.
async fn secured(app: Arc<App>, router: axum::Router, tls: Arc<Tls>, socket: TcpStream, permit: Permit) -> io::Result<()> {
    let mut stopping = app.stopping.subscribe();
    let shaking = async {
        // A handshake begins with a byte that is no letter; HTTP with a method.
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            return Ok(Err(socket));
        }
        tls.acceptor().accept(socket).await.map(Ok)
    };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(app.limits.handshake_time_max, shaking) => shaken,
        _ = told_to_stop(&mut stopping) => return Ok(()),
    };
    match shaken {
        // Whoever it is has not even said hello; it can connect again.
        Err(_) => Ok(()),
        Ok(shaken) => match shaken? {
            Ok(socket) if socket.get_ref().1.alpn_protocol() == Some(H2) => http2_on(app, router, socket, permit).await,
            Ok(socket) => {
                let half_close = false;
                hyper_on(app, router, socket, BytesMut::new(), permit, half_close).await
            }
            Err(socket) => {
                let detail = "this port speaks TLS, and the request came without; use https://";
                let problem = Problem::bad_request("tls_required", detail);
                refuse(socket, problem, (app.world.now)()).await
            }
        },
    }
}

/// What a request's head says, as far as it matters here.
enum Request {
    Stream(Uri, HeaderMap),
    /// Facts in a JSON body of this many bytes.
    Facts(Uri, HeaderMap, usize),
    /// hyper's.
    Other,
    /// Nothing that can be read as one request.
    Refused(Problem),
    /// The client has nothing more to ask.
    Gone,
}

async fn connection(app: Arc<App>, router: axum::Router, mut socket: TcpStream, permit: Permit) -> io::Result<()> {
    let mut stopping = app.stopping.subscribe();
    let mut read = BytesMut::new();
    let mut patience = app.limits.head_time_max;
    loop {
        let request = tokio::select! {
            request = tokio::time::timeout(patience, read_request(&app, &mut socket, &mut read)) => request,
            _ = told_to_stop(&mut stopping) => return socket.shutdown().await,
        };
        match request {
            // No head in time, or nothing to ask for a while: whoever is there can connect again.
            Err(_) => return socket.shutdown().await,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Request::Gone)) => return Ok(()),
            Ok(Ok(Request::Stream(uri, headers))) => {
                drop((read, router, stopping));
                return Box::pin(stream_on(app, socket, uri, headers)).await;
            }
            Ok(Ok(Request::Facts(uri, headers, length))) => {
                let id = app.ids.of(&headers);
                let run = trace::run_of(uri.path());
                let route = if run.is_some() { "/v1/runs/{run}/facts" } else { "/v1/sessions/{session}/facts" };
                let told = Told::new(&id, "POST", Some(route), run, &headers);
                let body = read_body(&mut socket, &mut read, length, app.limits.body_time_max).await?;
                let is_cut = body.is_err();
                let answer = match body {
                    Ok(body) => {
                        let span = tracing::debug_span!("request", id = trace::text(&id), run);
                        let taking = async {
                            let pass = enter(&app, super::facts::RIGHT, &uri, &headers).await?;
                            super::facts::at_once(&app, &pass, &uri, &headers, body).await
                        };
                        // Boxed: else each idle stream keeps the room that a post takes.
                        told.traced(Box::pin(taking.instrument(span))).await
                    }
                    Err(problem) => {
                        app.meters.refused.add(problem.code);
                        Err(problem)
                    }
                };
                let (status, code) = answer.as_ref().map_or_else(|p| (p.status, Some(p.code)), |_| (StatusCode::OK, None));
                told.answered(&app, status, code);
                socket.write_all(&answered(answer, (app.world.now)(), Some(&id), is_cut)).await?;
                if is_cut {
                    // The rest of the body may still come, and is no request.
                    return socket.shutdown().await;
                }
                patience = KEEP_ALIVE;
            }
            Ok(Ok(Request::Other)) => {
                drop(stopping);
                return Box::pin(hyper_on(app, router, socket, read, permit, true)).await;
            }
            Ok(Ok(Request::Refused(problem))) => {
                app.meters.problems.add(problem.code);
                return refuse(socket, problem, (app.world.now)()).await;
            }
        }
    }
}

/// Reads until the next request can be told. What stays here is taken out of `read`; of any other, nothing is.
async fn read_request(app: &App, socket: &mut TcpStream, read: &mut BytesMut) -> io::Result<Request> {
    let (bytes_max, mut seen) = (app.limits.head_bytes_max, 0);
    loop {
        if !read.is_empty() {
            // Most connections are told by their first bytes.
            let start = &read[..read.len().min(5)];
            if !b"GET ".starts_with(&start[..start.len().min(4)]) && !b"POST ".starts_with(start) {
                return Ok(Request::Other);
            }
            if head::may_be_whole(read, seen, bytes_max) {
                match head::check(read, bytes_max, &mut [httparse::EMPTY_HEADER; HEADERS_MAX]) {
                    Ok(Some(head)) => {
                        let (told, end) = (told(app, &head).unwrap_or(Request::Other), head.end);
                        if !matches!(told, Request::Other) {
                            read.advance(end);
                        }
                        return Ok(told);
                    }
                    Ok(None) => seen = read.len(),
                    Err(problem) => return Ok(Request::Refused(problem)),
                }
            }
        }
        // Memory only for those who speak: an idle connection keeps none.
        if read.is_empty() {
            *read = BytesMut::new();
            socket.readable().await?;
        }
        read.reserve(READ_BYTES);
        if socket.read_buf(read).await? == 0 {
            return Ok(if read.is_empty() { Request::Gone } else { Request::Other });
        }
    }
}

/// The request, if it is one of the plain ones that stay here.
fn told(app: &App, head: &Head<'_, '_>) -> Option<Request> {
    let request = &head.request;
    let target = request.path?;
    let path = target.split('?').next().unwrap_or(target);
    let is_facts = match request.method? {
        // In another client's words it must not seem to have come to its end when it is cut off: hyper resets.
        "GET" if is_stream(path) && !target.contains("format=") => false,
        "POST" if is_address(path) => true,
        _ => return None,
    };
    if request.version != Some(1) {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        // Each of these changes what the connection or the body means.
        if [header::UPGRADE, header::TRANSFER_ENCODING, header::EXPECT, header::CONTENT_ENCODING].contains(&name) {
            return None;
        }
        // What another origin may, and is told, is decided there.
        if name == header::ORIGIN || name == FETCH_SITE && !matches!(header.value, b"same-origin" | b"none") {
            return None;
        }
        if name == header::CONNECTION && is_facts && !header.value.eq_ignore_ascii_case(b"keep-alive") {
            return None;
        }
        headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    // A fragment is no part of a target; whoever sends one all the same means no address of ours.
    let uri: Uri = target.parse().ok().filter(|uri: &Uri| uri.path() == path)?;
    // Why a name is none of ours is told there, too.
    known(app, &uri, &headers).ok()?;
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    match (is_facts, head.body) {
        (false, Body::Length(0)) if !has_length => Some(Request::Stream(uri, headers)),
        (true, Body::Length(length)) if has_length && length <= POST_BYTES_MAX && matches!(is_lines(&headers), Ok(false)) => {
            Some(Request::Facts(uri, headers, usize::try_from(length).ok()?))
        }
        _ => None,
    }
}

/// A body of this length; or the problem of one that comes too slowly.
async fn read_body(
    socket: &mut TcpStream,
    read: &mut BytesMut,
    length: usize,
    grace: Duration,
) -> io::Result<Result<Bytes, Problem>> {
    read.reserve(length.saturating_sub(read.len()));
    if read.len() < length {
        let pace = Pace::new(grace);
        while read.len() < length {
            match pace.keep(read.len(), socket.read_buf(read)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(came) => drop(came?),
                Err(problem) => return Ok(Err(problem)),
            }
        }
    }
    Ok(Ok(read.split_to(length).freeze()))
}

/// The whole answer to a post, or to what is not even looked at.
fn answered(answer: Result<Receipt, Problem>, now: jiff::Timestamp, id: Option<&HeaderValue>, is_last: bool) -> Vec<u8> {
    let mut further = String::new();
    let mut header = |name: &str, value: &str| further.extend([name, ": ", value, "\r\n"]);
    if let Some(id) = id {
        header("x-request-id", trace::text(id));
    }
    if is_last {
        header("connection", "close");
    }
    if answer.as_ref().is_err_and(|problem| problem.status == StatusCode::UNAUTHORIZED) {
        header("www-authenticate", CHALLENGE);
    }
    let (status, kind, body) = match answer {
        Ok(receipt) => (StatusCode::OK, "application/json", serde_json::to_vec(&receipt).expect("a receipt is plain data")),
        Err(problem) => {
            header("cache-control", "no-store");
            if let Some(seconds) = problem.comes_back() {
                header("retry-after", &seconds.to_string());
            }
            let problem = match id {
                Some(id) => problem.with("requestId", trace::text(id)),
                None => problem,
            };
            (problem.status, "application/problem+json", problem.to_json().to_string().into())
        }
    };
    let mut text = Vec::with_capacity(body.len() + 200);
    let (date, length) = (httpdate::fmt_http_date(now.into()), body.len());
    write!(text, "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{further}date: {date}\r\n\r\n")
        .expect("a Vec takes every byte");
    text.extend_from_slice(&body);
    text
}

async fn stream_on(app: Arc<App>, mut socket: TcpStream, uri: Uri, headers: HeaderMap) -> io::Result<()> {
    let (now, id) = ((app.world.now)(), app.ids.of(&headers));
    let run = trace::run_of(uri.path());
    let told = Told::new(&id, "GET", Some("/v1/runs/{run}/stream"), run, &headers);
    let span = tracing::debug_span!("request", id = trace::text(&id), run);
    let opening = async {
        let pass = enter(&app, stream::RIGHT, &uri, &headers).await?;
        stream::open(&app, pass, &uri, &headers).await
    };
    let opened = told.traced(opening.instrument(span)).await;
    let (status, code) = match &opened {
        Ok(Answer::Live(_)) => (StatusCode::OK, None),
        Ok(Answer::NothingMore) => (StatusCode::NO_CONTENT, None),
        Err(problem) => (problem.status, Some(problem.code)),
    };
    told.answered(&app, status, code);
    let response = match opened {
        Ok(Answer::Live(stream)) => {
            let head = stream_head(now, &id);
            drop((app, uri, headers, id));
            return carry(&mut socket, *stream, head).await;
        }
        Ok(Answer::NothingMore) => {
            let (date, id) = (httpdate::fmt_http_date(now.into()), trace::text(&id));
            format!("HTTP/1.1 204 No Content\r\nconnection: close\r\ncache-control: no-store\r\nx-request-id: {id}\r\ndate: {date}\r\n\r\n")
                .into_bytes()
        }
        Err(problem) => answered(Err(problem), now, Some(&id), true),
    };
    socket.write_all(&response).await?;
    socket.shutdown().await
}

/// The head of a stream. Without a length the body ends with the connection, which costs no framing and lets us write shared
/// bytes as they are.
fn stream_head(now: jiff::Timestamp, id: &HeaderValue) -> Bytes {
    let (date, id) = (httpdate::fmt_http_date(now.into()), trace::text(id));
    let mut head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\nx-request-id: {id}\r\ndate: {date}\r\n");
    for (name, value) in HEADERS {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    head.into()
}

/// Carries a stream until it ends or its reader is gone.
async fn carry(socket: &mut TcpStream, mut stream: Stream, mut bytes: Bytes) -> io::Result<()> {
    loop {
        while !bytes.is_empty() {
            match socket.try_write(&bytes) {
                Ok(written) => bytes.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    bytes = held(bytes, &mut stream);
                    socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            gone = is_gone(socket) => return gone,
        };
        match next {
            Some(next) => bytes = next,
            None => return socket.shutdown().await,
        }
    }
}

/// The bytes that a stalled reader keeps: the rest of the frame that it is in the middle of. The reader gives back everything
/// after that frame and reads it again once the socket takes more. A small frame is copied, so that the reader keeps no shared
/// chunk alive. A large frame stays shared: it is nearly all of its chunk, and a copy would be one reader's own.
fn held(rest: Bytes, stream: &mut Stream) -> Bytes {
    if rest.len() <= HELD_BYTES_MAX {
        return Bytes::copy_from_slice(&rest);
    }
    let Some(end) = memchr::memmem::find(&rest, b"\n\n").map(|at| at + 2) else { return rest };
    let frame = &rest[..end];
    let cursor = memchr::memmem::rfind(frame, b"id: ").and_then(|at| std::str::from_utf8(&frame[at + 4..end - 2]).ok());
    match cursor.and_then(|cursor| cursor.parse().ok()) {
        Some(cursor) if stream.rewind(cursor) => match end {
            ..=COPIED_BYTES_MAX => Bytes::copy_from_slice(frame),
            _ => rest.slice(..end),
        },
        // A frame without a cursor, or one that is cut inside it: keep what there is.
        _ => rest,
    }
}

/// Resolves when the reader has closed its side. What it still says is thrown away: a stream's request is its only one.
async fn is_gone(socket: &TcpStream) -> io::Result<()> {
    let mut void = [0; 64];
    loop {
        socket.readable().await?;
        match socket.try_read(&mut void) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// What hyper calls for each request of a connection.
macro_rules! service {
    ($app:expr, $router:expr, $permit:expr, $refusal:expr) => {{
        let (meters, router, permit) = ($app.meters.clone(), TowerToHyperService::new($router), $permit);
        let refusal: head::Refusal = $refusal;
        service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(permit.clone());
            let refused = refusal.get().filter(|_| request.method().as_str() == head::REFUSED).cloned();
            if let Some(problem) = &refused {
                meters.problems.add(problem.code);
            }
            // What comes after a request for a WebSocket was not checked: it is no other request, whatever the answer.
            let is_last = refused.is_some()
                || request
                    .headers()
                    .get_all(header::UPGRADE)
                    .iter()
                    .any(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"));
            let answering = refused.map_or_else(|| Ok(router.call(request)), Err);
            async move {
                let mut response = match answering {
                    Ok(answering) => answering.await?,
                    Err(problem) => problem.into_response(),
                };
                if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    }};
}

/// HTTP/1.1, of which `read` was read already. With `half_close` a client that says no more is still answered; without, it is
/// gone.
async fn hyper_on<S>(
    app: Arc<App>,
    router: axum::Router,
    socket: S,
    read: BytesMut,
    permit: Permit,
    half_close: bool,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.limits.head_time_max).half_close(half_close);
    let socket = Checked::new(socket, read, app.limits.head_bytes_max);
    let service = service!(app, router, permit, socket.refusal());
    let connection = http.serve_connection(TokioIo::new(socket), service).with_upgrades();
    drained(&app, connection, UpgradeableConnection::graceful_shutdown).await
}

/// HTTP/2: as many streams as the limit says. What a client may make us do by taking back what it asked for (CVE-2023-44487) is
/// bounded by hyper.
async fn http2_on(app: Arc<App>, router: axum::Router, mut socket: TlsStream<TcpStream>, permit: Permit) -> io::Result<()> {
    // hyper would wait for a client's first words for ever.
    let mut read = BytesMut::with_capacity(PREFACE_BYTES);
    let preface = async {
        while read.len() < PREFACE_BYTES && socket.read_buf(&mut read).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let mut stopping = app.stopping.subscribe();
    tokio::select! {
        spoken = tokio::time::timeout(app.limits.head_time_max, preface) => match spoken {
            Ok(spoken) => spoken?,
            Err(_) => return socket.shutdown().await,
        },
        _ = told_to_stop(&mut stopping) => return socket.shutdown().await,
    }
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(app.limits.streams_max)
        .max_header_list_size(u32::try_from(app.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BYTES_MAX)
        // As a WebSocket: who leaves a ping unanswered is gone.
        .keep_alive_interval(app.pulse.heartbeat)
        .keep_alive_timeout(app.pulse.heartbeat);
    let service = service!(app, router, permit, head::Refusal::default());
    let connection = http.serve_connection(TokioIo::new(Checked::unchecked(socket, read)), service);
    drained(&app, connection, http2::Connection::graceful_shutdown).await
}

/// Serves a connection to its end; once the server is told to stop, it takes no more requests.
async fn drained<C>(app: &App, connection: C, take_no_more: impl FnOnce(Pin<&mut C>)) -> io::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    let mut stopping = app.stopping.subscribe();
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = told_to_stop(&mut stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            take_no_more(connection.as_mut());
            connection.await
        }
    };
    ended.map_err(io::Error::other)
}
