//! Requests on hyper: all but streams and small posts on plain sockets.

use super::head::{self, CheckedStream};
use super::peer::Peer;
use crate::serve::App;
use crate::serve::access::quota::ConnectionPermit;
use crate::serve::api::controls::{ended_claim, is_claim_path};
use axum::Router;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderValue, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Maximum unsent bytes of one HTTP/2 stream. hyper's default is 400 KiB.
const HTTP2_STREAM_BYTES_MAX: usize = 64 * 1024;
/// Length of the HTTP/2 connection preface, in bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// The service that hyper calls for each request of a connection.
macro_rules! service {
    ($app:expr, $router:expr, $permit:expr, $refusal:expr, $peer:expr) => {{
        let (meters, router, permit) = ($app.meters.clone(), TowerToHyperService::new($router), $permit);
        let refusal: head::RefusedHead = $refusal;
        let peer: Option<Peer> = $peer;
        // The leader authorizes what a follower forwards; the follower itself has to notice that the client leaves.
        let forwards = $app.cluster.is_some();
        service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(permit.clone());
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            let is_claim = forwards && is_claim_path(request.uri().path());
            let claimant = peer.clone().filter(|_| is_claim).map(|peer| (peer, request.uri().clone()));
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
                    Ok(response) => while_present(claimant, response).await?,
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

/// Answers a request. A claim ends without a control once its client has left.
async fn while_present<F>(claimant: Option<(Peer, Uri)>, response: F) -> F::Output
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let Some((peer, uri)) = claimant else { return response.await };
    tokio::select! {
        biased;
        response = response => response,
        () = peer.left() => Ok(ended_claim(&uri).into_response()),
    }
}

/// Serves HTTP/1.1 through hyper. `read`: the bytes already read.
///
/// With a `peer`, a client that has shut down its sending side is still answered, but gets no control; without, it counts
/// as gone.
pub async fn serve_http1<S>(
    app: Arc<App>,
    router: Router,
    socket: S,
    read: BytesMut,
    permit: ConnectionPermit,
    peer: Option<Peer>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.limits.head_time_max).half_close(peer.is_some());
    let socket = CheckedStream::new(socket, read, app.limits.head_bytes_max);
    let service = service!(app, router, permit, socket.refusal(), peer);
    let connection = http.serve_connection(TokioIo::new(socket), service).with_upgrades();
    serve_until_stopped(&app, connection, UpgradeableConnection::graceful_shutdown).await
}

/// Serves HTTP/2 through hyper, with the configured stream limit.
///
/// hyper bounds the work that a client can cause by resetting its streams (CVE-2023-44487).
pub async fn serve_http2(
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
    let stopping = app.stopping.waiter();
    tokio::select! {
        spoken = tokio::time::timeout(app.limits.head_time_max, preface) => match spoken {
            Ok(spoken) => spoken?,
            Err(_) => return socket.shutdown().await,
        },
        _ = stopping.requested() => return socket.shutdown().await,
    }
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(app.limits.streams_max)
        .max_header_list_size(u32::try_from(app.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(HTTP2_STREAM_BYTES_MAX)
        // As for a WebSocket, a client that leaves a ping unanswered is gone.
        .keep_alive_interval(app.keep_alive.heartbeat)
        .keep_alive_timeout(app.keep_alive.heartbeat);
    let service = service!(app, router, permit, head::RefusedHead::default(), None);
    let connection = http.serve_connection(TokioIo::new(CheckedStream::unchecked(socket, read)), service);
    serve_until_stopped(&app, connection, http2::Connection::graceful_shutdown).await
}

/// Serves a connection to its end. After the stop signal it accepts no further request.
async fn serve_until_stopped<C>(app: &App, connection: C, take_no_more: impl FnOnce(Pin<&mut C>)) -> io::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    let stopping = app.stopping.waiter();
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        _ = stopping.requested() => None,
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
