//! Connections: streams and small posts on the crate's own sockets, all else on hyper.
//!
//! An open stream is idle most of the time. hyper keeps 8 to 20 KiB for each; a task on the bare socket keeps about
//! one. A delivery here costs half, and a post of one fact a third less. So this module first reads and checks each
//! request's head ([`head`]). A plain `GET …/stream`, and a plain `POST …/facts` with a small JSON body, stay here. Any
//! other request moves its connection to hyper, with the bytes already read: same handlers, same answers. With TLS the
//! handshake selects HTTP/2 or HTTP/1.1 (ALPN), and hyper carries both.

use super::head::{self, BodyFraming, CheckedStream, HEADERS_MAX, RequestHead};
use super::tls::{H2, Tls};
use crate::ingest::Receipt;
use crate::serve::access::authorization::authorize_request;
use crate::serve::access::origin::{FETCH_SITE, check_host};
use crate::serve::access::quota::{Client, QuotaSlot};
use crate::serve::api::facts::{accept_body, is_facts_path};
use crate::serve::api::ops;
use crate::serve::api::stream::{self, COPIED_BYTES_MAX, HEADERS, Stream, StreamResponse};
use crate::serve::cluster;
use crate::serve::contract::operations::{METRICS_ACCESS, PUBLISH_ACCESS, STREAM_ACCESS};
use crate::serve::http::body::{BodyDeadline, is_lines};
use crate::serve::http::problem::{CHALLENGE, Problem};
use crate::serve::http::request::is_stream;
use crate::serve::telemetry::meters;
use crate::serve::telemetry::trace::{self, RequestRecord};
use crate::serve::{App, stop_requested};
use axum::Router;
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

/// Maximum unsent bytes that a stalled reader holds, unless a single frame is larger.
pub const UNSENT_BYTES_MAX: usize = 8 * 1024;
/// Maximum body of a post that stays here, in bytes.
const POST_BYTES_MAX: u64 = 256 * 1024;
/// Read size for a request's head, in bytes: enough for nearly all heads with a small fact.
const READ_BYTES: usize = 4096;
/// Length of the HTTP/2 connection preface, in bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// Maximum unsent bytes of one HTTP/2 stream. hyper's default is 400 KiB.
const HTTP2_STREAM_BYTES_MAX: usize = 64 * 1024;
/// Time that a refused client gets to read the reason.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum idle time between two requests of a connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// A connection's slot in the connection limits.
///
/// Every request on hyper carries it, so that a handler that takes over the connection keeps the slot.
#[derive(Debug, Clone)]
pub struct ConnectionPermit {
    _held: Arc<(OwnedSemaphorePermit, QuotaSlot<Client>)>,
}

/// The server's connections and their limit.
pub struct Connections {
    slots: Arc<Semaphore>,
    limit: usize,
}

impl Connections {
    /// Allows this many concurrent connections.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Accepts connections forever.
    pub async fn accept(&self, listener: &TcpListener, app: &Arc<App>, router: &Router, tls: Option<Arc<Tls>>) {
        loop {
            let (socket, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The process is probably out of file descriptors. Spinning would only delay their release.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            // Frames are written whole; Nagle's algorithm would only delay them.
            let _ = socket.set_nodelay(true);
            let slot = self.slots.clone().try_acquire_owned().map_err(|_| self.limit_problem());
            let slot = slot.and_then(|slot| Ok((slot, app.client_connections.acquire(Client::from_address(peer.ip()))?)));
            let slot = match slot {
                Ok(slot) => slot,
                Err(problem) => {
                    app.meters.problems.add(problem.code);
                    // An answer over TLS would need a handshake, the most expensive step of all.
                    if tls.is_none() {
                        tokio::spawn(refuse(socket, problem, (app.environment.now)()));
                    }
                    continue;
                }
            };
            app.meters.connections.add(1);
            let (app, router, permit) = (app.clone(), router.clone(), ConnectionPermit { _held: Arc::new(slot) });
            let tls = tls.clone();
            tokio::spawn(async move {
                let served = match tls {
                    None => serve_plain(app, router, socket, permit.clone()).await,
                    Some(tls) => Box::pin(serve_tls(app, router, tls, socket, permit.clone())).await,
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection failed");
                }
                drop(permit);
            });
        }
    }

    fn limit_problem(&self) -> Problem {
        let limit = self.limit;
        let detail = format!("The server has {limit} connections open, its limit. Retry later, or raise --connections-max.");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail);
        problem.with("limit", limit).with_retry_after(2)
    }

    /// Waits until every connection has closed, at most this long.
    pub async fn wait_closed(&self, within: Duration) {
        let all = self.slots.acquire_many(u32::try_from(self.limit).unwrap_or(u32::MAX));
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!(
                open = self.limit - self.slots.available_permits(),
                "connections were still open at the end of the drain"
            );
        }
    }
}

/// Sends the reason and closes the connection.
async fn refuse(mut socket: TcpStream, problem: Problem, now: jiff::Timestamp) -> io::Result<()> {
    let sending = async {
        socket.write_all(&http_response(Err(problem), now, None, true)).await?;
        socket.shutdown().await?;
        // Closing a socket with unread input resets it, and the client would lose the answer.
        let mut void = [0; 512];
        while socket.read(&mut void).await? > 0 {}
        Ok(())
    };
    // A client that does not read the answer loses nothing.
    tokio::time::timeout(REFUSAL_TIME_MAX, sending).await.unwrap_or(Ok(()))
}

/// Maximum concurrent connections that a stopping server answers.
///
/// Further ones are closed without an answer.
const STOPPING_CONNECTIONS_MAX: usize = 64;
/// Maximum time of one such answer.
const STOPPING_TIME_MAX: Duration = Duration::from_secs(2);

/// Accepts connections forever and answers each that the server is stopping.
///
/// Health and metrics are still answered, so that a load balancer learns the state from the server itself. A TLS
/// connection is only closed: a handshake for each would be too expensive now.
pub async fn refuse_while_stopping(listener: &TcpListener, app: &Arc<App>, is_plain: bool) {
    let slots = Arc::new(Semaphore::new(STOPPING_CONNECTIONS_MAX));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !is_plain {
            continue;
        }
        let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
        let app = app.clone();
        tokio::spawn(async move {
            // A client that takes longer only sees the connection close.
            let _ = tokio::time::timeout(STOPPING_TIME_MAX, answer_while_stopping(&app, socket)).await;
            drop(slot);
        });
    }
}

/// Answers one request while the server is stopping.
async fn answer_while_stopping<S: AsyncRead + AsyncWrite + Unpin>(app: &App, mut socket: S) -> io::Result<()> {
    let mut read = BytesMut::new();
    while memchr::memmem::find(&read, b"\r\n\r\n").is_none() {
        if read.len() >= app.limits.head_bytes_max || socket.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
    let parsed = parse_head(&read);
    let path = parsed.as_ref().map(|(uri, _)| uri.path());
    // Metrics need the same authorization as at any other time.
    let may_read_metrics = match &parsed {
        Some((uri, headers)) if path == Some("/metrics") => {
            check_host(app, uri, headers).is_ok() && authorize_request(app, METRICS_ACCESS, uri, headers).await.is_ok()
        }
        _ => false,
    };
    let plain = |kind: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{body}")
            .into_bytes()
    };
    let text = match path {
        Some("/healthz") => plain("application/json", &ops::health().await.0.to_string()),
        Some("/metrics") if may_read_metrics => plain(meters::CONTENT_TYPE, &meters::text(app).await),
        _ => {
            app.meters.problems.add("stopping");
            http_response(Err(Problem::stopping()), (app.environment.now)(), None, true)
        }
    };
    socket.write_all(&text).await?;
    socket.shutdown().await
}

/// Parses the target and the headers of a head. `None`: malformed.
fn parse_head(head: &[u8]) -> Option<(Uri, HeaderMap)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?;
    let pair = |header: &httparse::Header<'_>| {
        Some((HeaderName::from_bytes(header.name.as_bytes()).ok()?, HeaderValue::from_bytes(header.value).ok()?))
    };
    Some((request.path?.parse().ok()?, request.headers.iter().filter_map(pair).collect()))
}

/// Serves a connection that begins with a TLS handshake.
async fn serve_tls(app: Arc<App>, router: Router, tls: Arc<Tls>, socket: TcpStream, permit: ConnectionPermit) -> io::Result<()> {
    let mut stopping = app.stopping.subscribe();
    let handshake = async {
        // A TLS handshake begins with byte 0x16; an HTTP request begins with a letter.
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            return Ok(Err(socket));
        }
        tls.acceptor().accept(socket).await.map(Ok)
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(app.limits.handshake_time_max, handshake) => outcome,
        _ = stop_requested(&mut stopping) => return Ok(()),
    };
    match outcome {
        // The client did not finish the handshake in time; it can reconnect.
        Err(_) => Ok(()),
        Ok(outcome) => match outcome? {
            Ok(socket) if socket.get_ref().1.alpn_protocol() == Some(H2) => serve_http2(app, router, socket, permit).await,
            Ok(socket) => {
                let half_close = false;
                serve_http1(app, router, socket, BytesMut::new(), permit, half_close).await
            }
            Err(socket) => {
                let detail = "The request is plain HTTP, but this port requires TLS. Use https://.";
                let problem = Problem::bad_request("tls_required", detail);
                refuse(socket, problem, (app.environment.now)()).await
            }
        },
    }
}

/// The kind of a connection's next request.
enum NextRequest {
    Stream(Uri, HeaderMap),
    /// Facts in a JSON body of this many bytes.
    Facts(Uri, HeaderMap, usize),
    /// A request for hyper.
    Other,
    /// A head that is malformed or ambiguous.
    Refused(Problem),
    /// The client closed the connection.
    Gone,
}

async fn serve_plain(app: Arc<App>, router: Router, mut socket: TcpStream, permit: ConnectionPermit) -> io::Result<()> {
    let mut stopping = app.stopping.subscribe();
    let mut read = BytesMut::new();
    let mut time_max = app.limits.head_time_max;
    loop {
        let request = tokio::select! {
            request = tokio::time::timeout(time_max, read_request(&app, &mut socket, &mut read)) => request,
            _ = stop_requested(&mut stopping) => return socket.shutdown().await,
        };
        match request {
            // No head in time, or idle for too long; the client can reconnect.
            Err(_) => return socket.shutdown().await,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(NextRequest::Gone)) => return Ok(()),
            Ok(Ok(NextRequest::Stream(uri, headers))) => {
                drop((read, router, stopping));
                return Box::pin(serve_stream(app, socket, uri, headers, permit)).await;
            }
            Ok(Ok(NextRequest::Facts(uri, headers, length))) => {
                let id = app.request_ids.for_request(&headers);
                let run = trace::run_in_path(uri.path());
                let route = if run.is_some() { "/v1/runs/{run}/facts" } else { "/v1/sessions/{session}/facts" };
                let record = RequestRecord::new(&id, "POST", Some(route), run, &headers);
                let body = read_body(&mut socket, &mut read, length, app.limits.body_time_max).await?;
                let is_cut = body.is_err();
                let answer = match body {
                    Ok(body) => {
                        let span = tracing::debug_span!("request", id = trace::text(&id), run);
                        let accepting = async {
                            let authorization = authorize_request(&app, PUBLISH_ACCESS, &uri, &headers).await?;
                            accept_body(&app, &authorization, &uri, &headers, body).await
                        };
                        // Boxed, so that idle streams do not reserve the memory of a post.
                        record.traced(Box::pin(accepting.instrument(span))).await
                    }
                    Err(problem) => {
                        app.meters.refused.add(problem.code);
                        Err(problem)
                    }
                };
                let (status, code) = answer.as_ref().map_or_else(|p| (p.status, Some(p.code)), |_| (StatusCode::OK, None));
                record.answered(&app, status, code);
                socket.write_all(&http_response(answer, (app.environment.now)(), Some(&id), is_cut)).await?;
                if is_cut {
                    // The rest of the body may still arrive, and must not be parsed as a request.
                    return socket.shutdown().await;
                }
                time_max = IDLE_TIME_MAX;
            }
            Ok(Ok(NextRequest::Other)) => {
                drop(stopping);
                return Box::pin(serve_http1(app, router, socket, read, permit, true)).await;
            }
            Ok(Ok(NextRequest::Refused(problem))) => {
                app.meters.problems.add(problem.code);
                return refuse(socket, problem, (app.environment.now)()).await;
            }
        }
    }
}

/// Reads until the next request can be classified.
///
/// Removes the heads of its own requests from `read`; leaves any other untouched.
async fn read_request(app: &App, socket: &mut TcpStream, read: &mut BytesMut) -> io::Result<NextRequest> {
    let (bytes_max, mut seen) = (app.limits.head_bytes_max, 0);
    loop {
        if !read.is_empty() {
            // The first bytes classify most connections.
            let start = &read[..read.len().min(5)];
            if !b"GET ".starts_with(&start[..start.len().min(4)]) && !b"POST ".starts_with(start) {
                return Ok(NextRequest::Other);
            }
            if head::may_be_whole(read, seen, bytes_max) {
                match head::check(read, bytes_max, &mut [httparse::EMPTY_HEADER; HEADERS_MAX]) {
                    Ok(Some(head)) => {
                        let (request, end) = (classify(app, &head).unwrap_or(NextRequest::Other), head.end);
                        if !matches!(request, NextRequest::Other) {
                            read.advance(end);
                        }
                        return Ok(request);
                    }
                    Ok(None) => seen = read.len(),
                    Err(problem) => return Ok(NextRequest::Refused(problem)),
                }
            }
        }
        // An idle connection keeps no buffer.
        if read.is_empty() {
            *read = BytesMut::new();
            socket.readable().await?;
        }
        read.reserve(READ_BYTES);
        if socket.read_buf(read).await? == 0 {
            return Ok(if read.is_empty() { NextRequest::Gone } else { NextRequest::Other });
        }
    }
}

/// Classifies a request. `None`: hyper handles it.
fn classify(app: &App, head: &RequestHead<'_, '_>) -> Option<NextRequest> {
    let request = &head.request;
    let target = request.path?;
    let path = target.split('?').next().unwrap_or(target);
    let is_facts = match request.method? {
        // A stream in another format must be reset when cut, not end cleanly; hyper does that.
        "GET" if is_stream(path) && !target.contains("format=") && (app.cluster.is_none() || !target.contains("ticket=")) => {
            false
        }
        // A node that follows forwards them.
        "POST" if is_facts_path(path) && app.logs.leadership().leads() => true,
        _ => return None,
    };
    if request.version != Some(1) {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        // These headers change the meaning of the connection or the body.
        if [header::UPGRADE, header::TRANSFER_ENCODING, header::EXPECT, header::CONTENT_ENCODING].contains(&name) {
            return None;
        }
        // The middleware of the router decides about other origins.
        if name == header::ORIGIN || name == FETCH_SITE && !matches!(header.value, b"same-origin" | b"none") {
            return None;
        }
        if name == header::CONNECTION && is_facts && !header.value.eq_ignore_ascii_case(b"keep-alive") {
            return None;
        }
        headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    // A request target has no fragment. One with a fragment matches no address.
    let uri: Uri = target.parse().ok().filter(|uri: &Uri| uri.path() == path)?;
    // The router's middleware answers an unknown host, too.
    check_host(app, &uri, &headers).ok()?;
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    match (is_facts, head.body) {
        (false, BodyFraming::Length(0)) if !has_length => Some(NextRequest::Stream(uri, headers)),
        (true, BodyFraming::Length(length))
            if has_length && length <= POST_BYTES_MAX && matches!(is_lines(&headers), Ok(false)) =>
        {
            Some(NextRequest::Facts(uri, headers, usize::try_from(length).ok()?))
        }
        _ => None,
    }
}

/// Reads a body of this length, or returns the problem of one that is too slow.
async fn read_body(
    socket: &mut TcpStream,
    read: &mut BytesMut,
    length: usize,
    grace: Duration,
) -> io::Result<Result<Bytes, Problem>> {
    read.reserve(length.saturating_sub(read.len()));
    if read.len() < length {
        let deadline = BodyDeadline::new(grace);
        while read.len() < length {
            match deadline.apply(read.len(), socket.read_buf(read)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => drop(read?),
                Err(problem) => return Ok(Err(problem)),
            }
        }
    }
    Ok(Ok(read.split_to(length).freeze()))
}

/// Formats a complete HTTP/1.1 response.
fn http_response(answer: Result<Receipt, Problem>, now: jiff::Timestamp, id: Option<&HeaderValue>, is_last: bool) -> Vec<u8> {
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
        Ok(receipt) => (StatusCode::OK, "application/json", serde_json::to_vec(&receipt).expect("a receipt serializes to JSON")),
        Err(problem) => {
            header("cache-control", "no-store");
            if let Some(seconds) = problem.retry_after_secs() {
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

/// Opens a stream, and leaves it to a task of its own: this one reserves memory for every kind of request.
async fn serve_stream(
    app: Arc<App>,
    mut socket: TcpStream,
    uri: Uri,
    headers: HeaderMap,
    permit: ConnectionPermit,
) -> io::Result<()> {
    let (now, id) = ((app.environment.now)(), app.request_ids.for_request(&headers));
    let run = trace::run_in_path(uri.path());
    let record = RequestRecord::new(&id, "GET", Some("/v1/runs/{run}/stream"), run, &headers);
    let span = tracing::debug_span!("request", id = trace::text(&id), run);
    let opening = async {
        cluster::wait_for_cursor(&app, &uri, &headers).await?;
        let authorization = authorize_request(&app, STREAM_ACCESS, &uri, &headers).await?;
        stream::open(&app, authorization, &uri, &headers).await
    };
    let opened = record.traced(opening.instrument(span)).await;
    let (status, code) = match &opened {
        Ok(StreamResponse::Live(_)) => (StatusCode::OK, None),
        Ok(StreamResponse::NoContent) => (StatusCode::NO_CONTENT, None),
        Err(problem) => (problem.status, Some(problem.code)),
    };
    record.answered(&app, status, code);
    let response = match opened {
        Ok(StreamResponse::Live(stream)) => {
            let head = stream_head(now, &id);
            tokio::spawn(async move {
                if let Err(error) = write_stream(socket, stream, head).await {
                    tracing::debug!(%error, "a connection failed");
                }
                drop(permit);
            });
            return Ok(());
        }
        Ok(StreamResponse::NoContent) => {
            let (date, id) = (httpdate::fmt_http_date(now.into()), trace::text(&id));
            format!("HTTP/1.1 204 No Content\r\nconnection: close\r\ncache-control: no-store\r\nx-request-id: {id}\r\ndate: {date}\r\n\r\n")
                .into_bytes()
        }
        Err(problem) => http_response(Err(problem), now, Some(&id), true),
    };
    socket.write_all(&response).await?;
    socket.shutdown().await
}

/// The response head of a stream.
///
/// Without a length the body ends with the connection. That needs no framing, so shared bytes can be written as they
/// are.
fn stream_head(now: jiff::Timestamp, id: &HeaderValue) -> Bytes {
    let (date, id) = (httpdate::fmt_http_date(now.into()), trace::text(id));
    let mut head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\nx-request-id: {id}\r\ndate: {date}\r\n");
    for (name, value) in HEADERS {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    head.into()
}

/// Writes a stream until it ends or its client disconnects.
async fn write_stream(mut socket: TcpStream, mut stream: Box<Stream>, mut bytes: Bytes) -> io::Result<()> {
    loop {
        while !bytes.is_empty() {
            match socket.try_write(&bytes) {
                Ok(written) => bytes.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    bytes = shrink_unsent(bytes, &mut stream);
                    socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            gone = closed_by_peer(&socket) => return gone,
        };
        match next {
            Some(next) => bytes = next,
            None => return socket.shutdown().await,
        }
    }
}

/// Reduces the bytes that a stalled reader holds to the rest of the current frame.
///
/// Everything after that frame is returned to the stream, to be read again when the socket accepts more. A small frame is
/// copied, so that the reader keeps no shared chunk alive. A large frame stays shared: it is nearly all of its chunk, and a
/// copy would belong to one reader alone.
fn shrink_unsent(rest: Bytes, stream: &mut Stream) -> Bytes {
    if rest.len() <= UNSENT_BYTES_MAX {
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
        // A frame without a cursor, or cut inside its cursor: keep the bytes.
        _ => rest,
    }
}

/// Resolves when the client has closed its side.
///
/// Further input is discarded: a stream's request is its only one.
async fn closed_by_peer(socket: &TcpStream) -> io::Result<()> {
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

/// The service that hyper calls for each request of a connection.
macro_rules! service {
    ($app:expr, $router:expr, $permit:expr, $refusal:expr) => {{
        let (meters, router, permit) = ($app.meters.clone(), TowerToHyperService::new($router), $permit);
        let refusal: head::RefusedHead = $refusal;
        service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(permit.clone());
            let refused = refusal.get().filter(|_| request.method().as_str() == head::REFUSED).cloned();
            if let Some(problem) = &refused {
                meters.problems.add(problem.code);
            }
            // Bytes after a WebSocket request were not checked, so they must not be parsed as another request.
            let is_last = refused.is_some()
                || request
                    .headers()
                    .get_all(header::UPGRADE)
                    .iter()
                    .any(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"));
            let response = refused.map_or_else(|| Ok(router.call(request)), Err);
            async move {
                let mut response = match response {
                    Ok(response) => response.await?,
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

/// Serves HTTP/1.1 through hyper. `read`: the bytes already read.
///
/// With `half_close` a client that has shut down its sending side is still answered; without, it counts as gone.
async fn serve_http1<S>(
    app: Arc<App>,
    router: Router,
    socket: S,
    read: BytesMut,
    permit: ConnectionPermit,
    half_close: bool,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.limits.head_time_max).half_close(half_close);
    let socket = CheckedStream::new(socket, read, app.limits.head_bytes_max);
    let service = service!(app, router, permit, socket.refusal());
    let connection = http.serve_connection(TokioIo::new(socket), service).with_upgrades();
    serve_until_stopped(&app, connection, UpgradeableConnection::graceful_shutdown).await
}

/// Serves HTTP/2 through hyper, with the configured stream limit.
///
/// hyper bounds the work that a client can cause by resetting its streams (CVE-2023-44487).
async fn serve_http2(
    app: Arc<App>,
    router: Router,
    mut socket: TlsStream<TcpStream>,
    permit: ConnectionPermit,
) -> io::Result<()> {
    // hyper would wait for a client's preface forever.
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
        _ = stop_requested(&mut stopping) => return socket.shutdown().await,
    }
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(app.limits.streams_max)
        .max_header_list_size(u32::try_from(app.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(HTTP2_STREAM_BYTES_MAX)
        // As for a WebSocket, a client that leaves a ping unanswered is gone.
        .keep_alive_interval(app.keep_alive.heartbeat)
        .keep_alive_timeout(app.keep_alive.heartbeat);
    let service = service!(app, router, permit, head::RefusedHead::default());
    let connection = http.serve_connection(TokioIo::new(CheckedStream::unchecked(socket, read)), service);
    serve_until_stopped(&app, connection, http2::Connection::graceful_shutdown).await
}

/// Serves a connection to its end. After the stop signal it accepts no further request.
async fn serve_until_stopped<C>(app: &App, connection: C, take_no_more: impl FnOnce(Pin<&mut C>)) -> io::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    let mut stopping = app.stopping.subscribe();
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stop_requested(&mut stopping) => None,
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
