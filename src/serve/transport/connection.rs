//! Connections: streams and small posts on the crate's own sockets, all else on hyper.
//!
//! An open stream is idle most of the time. hyper keeps 8 to 20 KiB for each; a task on the bare socket keeps about
//! one. A delivery here costs half, and a post of one fact a third less. So this module first reads and checks each
//! request's head ([`head`]). A plain `GET …/stream`, and a plain `POST …/facts` with a small JSON body, stay here. Any
//! other request moves its connection to hyper, with the bytes already read: same handlers, same answers. With TLS the
//! handshake selects HTTP/2 or HTTP/1.1 (ALPN), and hyper carries both.

use super::descriptors::DescriptorLimit;
use super::head::{self, BodyFraming, HEADERS_MAX, RequestHead};
use super::http1_answer::Http1Answer;
use super::on_hyper::{serve_http1, serve_http2};
use super::peer::SharedSocket;
use super::refusal::{self, refuse};
use super::tls::{H2, Tls};
use super::writers::{LiveStream, Writers};
use crate::serve::App;
use crate::serve::access::authorization::authorize_request;
use crate::serve::access::origin::{FETCH_SITE, admit};
use crate::serve::access::quota::{Client, ConnectionPermit};
use crate::serve::api::facts::{accept_body, is_facts_path};
use crate::serve::clients::open_stream::OpenStream;
use crate::serve::clients::view::{self, RunStream};
use crate::serve::cluster;
use crate::serve::contract::operations::{PUBLISH_ACCESS, STREAM_ACCESS};
use crate::serve::http::body::{BodyDeadline, is_lines};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::stream_route;
use crate::serve::telemetry::trace::{self, RequestRecord};
use axum::Router;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::Instrument;

/// Maximum body of a post that stays here, in bytes.
const POST_BYTES_MAX: u64 = 256 * 1024;
/// Read size for a request's head, in bytes: enough for nearly all heads with a small fact.
const READ_BYTES: usize = 4096;
/// The most bytes that the system keeps unsent for a connection.
///
/// More of them would make a slow reader's frames older, and cost memory for one that does not read. What is on its way
/// is not limited, so that a distant reader gets all that its line carries.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;
/// Maximum refused connections that wait for their clients to read the reason.
const REFUSALS_MAX: usize = 64;
/// Maximum idle time between two requests of a connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// The server's connections and their limit.
pub struct Connections {
    slots: Arc<Semaphore>,
    limit: usize,
    descriptors: DescriptorLimit,
    /// Slots of connections that receive the reason for their refusal.
    refusals: Arc<Semaphore>,
    writers: Arc<Writers>,
}

impl Connections {
    /// Allows this many concurrent connections.
    #[must_use]
    pub fn new(limit: usize, writers: Arc<Writers>) -> Self {
        let descriptors = DescriptorLimit::current();
        let admitted = descriptors.admitted();
        if admitted < limit as u64 {
            tracing::info!(
                limit,
                admitted,
                "the system's limit of open files allows fewer connections than --connections-max; raise the hard limit"
            );
        }
        let (slots, refusals) = (Arc::new(Semaphore::new(limit)), Arc::new(Semaphore::new(REFUSALS_MAX)));
        Self { slots, limit, descriptors, refusals, writers }
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
            #[cfg(target_os = "linux")]
            let _ = socket2::SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
            let slot = self.descriptors.check(&socket).and_then(|()| {
                let slot = self.slots.clone().try_acquire_owned().map_err(|_| self.limit_problem())?;
                Ok((slot, app.client_connections.acquire(Client::from_address(peer.ip()))?))
            });
            let slot = match slot {
                Ok(slot) => slot,
                Err(problem) => {
                    app.meters.problems.add(problem.code);
                    // An answer over TLS would need a handshake, the most expensive step of all.
                    if tls.is_none() {
                        self.refuse(socket, problem, (app.environment.now)());
                    }
                    continue;
                }
            };
            app.meters.connections.add(1);
            let (app, router, permit) = (app.clone(), router.clone(), ConnectionPermit::new(slot));
            let (tls, writers) = (tls.clone(), self.writers.clone());
            tokio::spawn(async move {
                let served = match tls {
                    None => serve_plain(app, router, writers, socket, permit.clone()).await,
                    Some(tls) => Box::pin(serve_tls(app, router, tls, socket, permit.clone())).await,
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection failed");
                }
                drop(permit);
            });
        }
    }

    /// Serves connections that the caller has accepted, by HTTP/1.1 on hyper.
    pub async fn serve_all<S>(&self, sockets: impl Stream<Item = S>, app: &Arc<App>, router: &Router)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut sockets = std::pin::pin!(sockets);
        let client = Client::from_address(Ipv4Addr::LOCALHOST.into());
        while let Some(socket) = sockets.next().await {
            let Ok(slot) = self.slots.clone().try_acquire_owned() else { continue };
            let Ok(of_client) = app.client_connections.acquire(client) else { continue };
            let (app, router, permit) = (app.clone(), router.clone(), ConnectionPermit::new((slot, of_client)));
            tokio::spawn(async move {
                if let Err(error) = serve_http1(app, router, socket, BytesMut::new(), permit, None).await {
                    tracing::debug!(%error, "a connection failed");
                }
            });
        }
    }

    /// Sends the reason. A refused connection keeps its descriptor for a moment, so few do at a time.
    fn refuse(&self, socket: TcpStream, problem: Problem, now: jiff::Timestamp) {
        match self.refusals.clone().try_acquire_owned() {
            Ok(slot) => drop(tokio::spawn(async move {
                // A client that has gone needs no reason.
                let _ = refuse(socket, problem, now).await;
                drop(slot);
            })),
            // Its client may see only the close.
            Err(_) => drop(socket.try_write(&refusal::answer(problem, now))),
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

/// Serves a connection that begins with a TLS handshake.
async fn serve_tls(app: Arc<App>, router: Router, tls: Arc<Tls>, socket: TcpStream, permit: ConnectionPermit) -> io::Result<()> {
    let stopping = app.stopping.waiter();
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
        _ = stopping.requested() => return Ok(()),
    };
    match outcome {
        // The client did not finish the handshake in time; it can reconnect.
        Err(_) => Ok(()),
        Ok(outcome) => match outcome? {
            Ok(socket) if socket.get_ref().1.alpn_protocol() == Some(H2) => serve_http2(app, router, socket, permit).await,
            Ok(socket) => serve_http1(app, router, socket, BytesMut::new(), permit, None).await,
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
    /// A stream, and the headers that its answer needs for the page's origin.
    Stream(Uri, HeaderMap, HeaderMap),
    /// Facts in a JSON body of this many bytes.
    Facts(Uri, HeaderMap, usize),
    /// A request for hyper.
    Other,
    /// A head that is malformed or ambiguous.
    Refused(Problem),
    /// The client closed the connection.
    Gone,
}

async fn serve_plain(
    app: Arc<App>,
    router: Router,
    writers: Arc<Writers>,
    mut socket: TcpStream,
    permit: ConnectionPermit,
) -> io::Result<()> {
    let stopping = app.stopping.waiter();
    let mut read = BytesMut::new();
    let mut time_max = app.limits.head_time_max;
    loop {
        let request = tokio::select! {
            request = tokio::time::timeout(time_max, read_request(&app, &mut socket, &mut read)) => request,
            _ = stopping.requested() => return socket.shutdown().await,
        };
        match request {
            // No head in time, or idle for too long; the client can reconnect.
            Err(_) => return socket.shutdown().await,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(NextRequest::Gone)) => return Ok(()),
            Ok(Ok(NextRequest::Stream(uri, headers, answer_headers))) => {
                drop((read, router, stopping));
                return Box::pin(serve_stream(app, &writers, socket, uri, headers, answer_headers, permit)).await;
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
                socket.write_all(&Http1Answer::new((app.environment.now)(), Some(&id)).whole(answer, is_cut)).await?;
                if is_cut {
                    // The rest of the body may still arrive, and must not be parsed as a request.
                    return socket.shutdown().await;
                }
                time_max = IDLE_TIME_MAX;
            }
            Ok(Ok(NextRequest::Other)) => {
                drop(stopping);
                let socket = SharedSocket::new(socket);
                let peer = Some(socket.peer());
                return Box::pin(serve_http1(app, router, socket, read, permit, peer)).await;
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
        "GET" if stream_route(path).is_some() => false,
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
        // The middleware of the router decides about posts of other origins.
        let names_origin = name == header::ORIGIN || name == FETCH_SITE && !matches!(header.value, b"same-origin" | b"none");
        if is_facts && names_origin {
            return None;
        }
        if name == header::CONNECTION && is_facts && !header.value.eq_ignore_ascii_case(b"keep-alive") {
            return None;
        }
        headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    // A request target has no fragment. One with a fragment matches no address.
    let uri: Uri = target.parse().ok().filter(|uri: &Uri| uri.path() == path)?;
    // The router's middleware answers an unknown host and a foreign origin.
    let answer_headers = admit(app, if is_facts { &Method::POST } else { &Method::GET }, &uri, &headers).ok()?;
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    match (is_facts, head.body) {
        (false, BodyFraming::Length(0)) if !has_length => Some(NextRequest::Stream(uri, headers, answer_headers)),
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

/// Opens a stream, and leaves it to the writers: this task reserves memory for every kind of request.
async fn serve_stream(
    app: Arc<App>,
    writers: &Arc<Writers>,
    mut socket: TcpStream,
    uri: Uri,
    headers: HeaderMap,
    answer_headers: HeaderMap,
    permit: ConnectionPermit,
) -> io::Result<()> {
    let (now, id) = ((app.environment.now)(), app.request_ids.for_request(&headers));
    let run = trace::run_in_path(uri.path());
    let record = RequestRecord::new(&id, "GET", stream_route(uri.path()), run, &headers);
    let span = tracing::debug_span!("request", id = trace::text(&id), run);
    let opening = async {
        cluster::wait_for_cursor(&app, &uri, &headers).await?;
        let authorization = authorize_request(&app, STREAM_ACCESS, &uri, &headers).await?;
        view::open(&app, authorization, &uri, &headers).await
    };
    let opened = record.traced(opening.instrument(span)).await;
    let (status, code) = match &opened {
        Ok(RunStream::Native(_) | RunStream::InFormat(..)) => (StatusCode::OK, None),
        Ok(RunStream::Ended) => (StatusCode::NO_CONTENT, None),
        Err(problem) => (problem.status, Some(problem.code)),
    };
    record.answered(&app, status, code);
    let answer = Http1Answer::new(now, Some(&id)).with(answer_headers);
    let response = match opened {
        Ok(RunStream::Native(stream)) => {
            writers.serve(LiveStream::new(socket, OpenStream::Native(stream), permit), answer.stream());
            return Ok(());
        }
        Ok(RunStream::InFormat(stream, further)) => {
            writers.serve(LiveStream::new(socket, OpenStream::InFormat(stream), permit), answer.chunked_stream(further));
            return Ok(());
        }
        Ok(RunStream::Ended) => answer.no_content(),
        Err(problem) => answer.whole(Err(problem), true),
    };
    socket.write_all(&response).await?;
    socket.shutdown().await
}
