//! Connections: streams and small posts on sockets of our own, everything else on hyper.
//!
//! An open stream says nothing for most of its life. hyper keeps 8 to 20 KiB for each, a task on the bare socket about one,
//! and a delivery costs half; a post of one fact costs a third less. So each request's head is read
//! before anybody is chosen: a plain `GET …/stream` and a plain `POST …/facts` with a small JSON body stay here. With any other
//! request the connection goes to hyper, with the bytes that were already read, and stays there: same handlers, same answers.

use super::access::enter;
use super::facts::{is_address, is_lines};
use super::origin::FETCH_SITE;
use super::problem::{CHALLENGE, Problem};
use super::request::is_stream;
use super::stream::{self, Answer, HEADERS, Stream};
use super::{App, told_to_stop};
use crate::ingest::Receipt;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a stalled reader may hold of frames that its socket does not take, in bytes; or one frame, if that is larger.
pub const HELD_BYTES_MAX: usize = 8 * 1024;
/// Headers of one request.
const HEADERS_MAX: usize = 100;
/// The largest body of a post that stays here, in bytes.
const POST_BYTES_MAX: usize = 256 * 1024;
/// What is read at once of a request's head, in bytes: nearly all heads, and a small fact with them.
const READ_BYTES: usize = 4096;
/// How long a connection may stay open without asking anything.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A connection's place among those that may be open at once. Every request that hyper carries brings it along: whoever takes
/// the connection over keeps it as long.
#[derive(Debug, Clone)]
pub struct Permit {
    _held: Arc<OwnedSemaphorePermit>,
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
    pub async fn accept(&self, listener: &TcpListener, app: Arc<App>) {
        let router = super::router(app.clone());
        loop {
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Out of descriptors, most likely: others will be freed; spinning would only hold them longer.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            // Frames are written whole; waiting to fill a packet would only delay them.
            let _ = socket.set_nodelay(true);
            let Ok(permit) = self.free.clone().try_acquire_owned() else {
                tokio::spawn(refuse(socket, self.limit));
                continue;
            };
            let (app, router, permit) = (app.clone(), router.clone(), Permit { _held: Arc::new(permit) });
            tokio::spawn(async move {
                if let Err(error) = connection(app, router, socket, permit.clone()).await {
                    tracing::debug!(%error, "a connection broke");
                }
                drop(permit);
            });
        }
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

async fn refuse(mut socket: TcpStream, limit: usize) {
    let body = format!(
        "{{\"type\":\"urn:proscenium:problem:too_many_connections\",\"title\":\"too many connections\",\"status\":503,\"code\":\"too_many_connections\",\"detail\":\"the server has {limit} connections open, its limit; come back, or raise --connections-max\",\"limit\":{limit}}}"
    );
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\nretry-after: 2\r\nconnection: close\r\n";
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // Whoever does not even read the refusal loses nothing by it.
    let _ = tokio::time::timeout(Duration::from_secs(1), socket.write_all(text.as_bytes())).await;
}

/// What a request's head says, as far as it matters here.
enum Request {
    Stream(Uri, HeaderMap),
    /// Facts in a JSON body of this many bytes.
    Facts(Uri, HeaderMap, usize),
    /// hyper's.
    Other,
    /// The client has nothing more to ask.
    Gone,
}

async fn connection(app: Arc<App>, router: axum::Router, mut socket: TcpStream, permit: Permit) -> io::Result<()> {
    let mut stopping = app.stopping.subscribe();
    let mut read = BytesMut::new();
    let mut patience = app.limits.head_time_max;
    loop {
        let request = tokio::select! {
            request = tokio::time::timeout(patience, read_request(&mut socket, &mut read, app.limits.head_bytes_max)) => request,
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
                let body = read_body(&mut socket, &mut read, length);
                let body = tokio::time::timeout(app.limits.head_time_max, body).await??;
                let answer = match enter(&app, super::facts::RIGHT, &uri, &headers).await {
                    Ok(pass) => super::facts::at_once(&app, &pass, &uri, &headers, &body).await,
                    Err(problem) => Err(problem),
                };
                socket.write_all(&answered(answer, (app.world.now)())).await?;
                patience = KEEP_ALIVE;
            }
            Ok(Ok(Request::Other)) => {
                drop(stopping);
                return Box::pin(hyper_on(app, router, Rewound { read: read.freeze(), socket }, permit)).await;
            }
        }
    }
}

/// Reads until the next request can be told. What stays here is taken out of `read`; of any other, nothing is.
async fn read_request(socket: &mut TcpStream, read: &mut BytesMut, limit: usize) -> io::Result<Request> {
    loop {
        if !read.is_empty() {
            // Most connections are told by their first bytes.
            let start = &read[..read.len().min(5)];
            if !b"GET ".starts_with(&start[..start.len().min(4)]) && !b"POST ".starts_with(start) {
                return Ok(Request::Other);
            }
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(read) {
                Ok(httparse::Status::Partial) if read.len() < limit => {}
                Ok(httparse::Status::Complete(end)) => {
                    let told = told(&request).unwrap_or(Request::Other);
                    if !matches!(told, Request::Other) {
                        read.advance(end);
                    }
                    return Ok(told);
                }
                // Whatever else it is, hyper knows what to answer.
                _ => return Ok(Request::Other),
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
fn told(request: &httparse::Request<'_, '_>) -> Option<Request> {
    let target = request.path?;
    let path = target.split('?').next().unwrap_or(target);
    let is_facts = match request.method? {
        "GET" if is_stream(path) => false,
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
    let uri: Uri = target.parse().ok()?;
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => None,
        (Some(length), None) => Some(length.to_str().ok()?.parse::<usize>().ok()?),
        _ => return None,
    };
    match (is_facts, length) {
        (false, None) => Some(Request::Stream(uri, headers)),
        (true, Some(length)) if length <= POST_BYTES_MAX && matches!(is_lines(&headers), Ok(false)) => {
            Some(Request::Facts(uri, headers, length))
        }
        _ => None,
    }
}

async fn read_body(socket: &mut TcpStream, read: &mut BytesMut, length: usize) -> io::Result<Bytes> {
    read.reserve(length.saturating_sub(read.len()));
    while read.len() < length {
        if socket.read_buf(read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(read.split_to(length).freeze())
}

/// The whole answer to a post.
fn answered(answer: Result<Receipt, Problem>, now: jiff::Timestamp) -> Vec<u8> {
    let challenge = match &answer {
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => format!("www-authenticate: {CHALLENGE}\r\n"),
        _ => String::new(),
    };
    let (status, kind, body) = match answer {
        Ok(receipt) => (StatusCode::OK, "application/json", serde_json::to_vec(&receipt).expect("a receipt is plain data")),
        Err(problem) => {
            (problem.status, "application/problem+json\r\ncache-control: no-store", problem.to_json().to_string().into())
        }
    };
    let mut text = Vec::with_capacity(body.len() + 160);
    let date = httpdate::fmt_http_date(now.into());
    write!(
        text,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{challenge}date: {date}\r\n\r\n",
        body.len()
    )
    .expect("a Vec takes every byte");
    text.extend_from_slice(&body);
    text
}

async fn stream_on(app: Arc<App>, mut socket: TcpStream, uri: Uri, headers: HeaderMap) -> io::Result<()> {
    let now = (app.world.now)();
    let opened = match enter(&app, stream::RIGHT, &uri, &headers).await {
        Ok(pass) => stream::open(&app, pass, &uri, &headers).await,
        Err(problem) => Err(problem),
    };
    let response = match opened {
        Ok(Answer::Live(stream)) => {
            drop((app, uri, headers));
            return carry(&mut socket, *stream, now).await;
        }
        Ok(Answer::NothingMore) => {
            let date = httpdate::fmt_http_date(now.into());
            format!("HTTP/1.1 204 No Content\r\nconnection: close\r\ncache-control: no-store\r\ndate: {date}\r\n\r\n")
                .into_bytes()
        }
        Err(problem) => answered(Err(problem), now),
    };
    socket.write_all(&response).await?;
    socket.shutdown().await
}

/// Carries a stream until it ends or its reader is gone.
async fn carry(socket: &mut TcpStream, mut stream: Stream, now: jiff::Timestamp) -> io::Result<()> {
    // Without a length the body ends with the connection, which costs no framing and lets us write shared bytes as they are.
    let date = httpdate::fmt_http_date(now.into());
    let mut head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ndate: {date}\r\n");
    for (name, value) in HEADERS {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    let mut bytes = Bytes::from(head);
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

/// What a reader that does not read must hold: the rest of the frame that it is in the middle of, as a copy. Everything after
/// it is given back, to be read again once the socket takes more; so a stalled reader keeps no shared chunk alive.
fn held(rest: Bytes, stream: &mut Stream) -> Bytes {
    if rest.len() <= HELD_BYTES_MAX {
        return Bytes::copy_from_slice(&rest);
    }
    let Some(end) = memchr::memmem::find(&rest, b"\n\n").map(|at| at + 2) else { return rest };
    let frame = &rest[..end];
    let cursor = memchr::memmem::rfind(frame, b"id: ").and_then(|at| std::str::from_utf8(&frame[at + 4..end - 2]).ok());
    match cursor.and_then(|cursor| cursor.parse().ok()) {
        Some(cursor) if stream.rewind(cursor) => Bytes::copy_from_slice(frame),
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

async fn hyper_on(app: Arc<App>, router: axum::Router, socket: Rewound, permit: Permit) -> io::Result<()> {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(permit.clone());
        router.call(request)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.limits.head_time_max).half_close(true);
    let connection = http.serve_connection(TokioIo::new(socket), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut stopping = app.stopping.subscribe();
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = told_to_stop(&mut stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(io::Error::other)
}

/// A socket of which something was already read.
struct Rewound {
    read: Bytes,
    socket: TcpStream,
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, into);
        }
        let count = self.read.len().min(into.remaining());
        into.put_slice(&self.read.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
