//! Connections that get no service: the server has too many, or is stopping.

use super::head::HEADERS_MAX;
use super::http1_answer::Http1Answer;
use crate::serve::App;
use crate::serve::access::authorization::authorize_request;
use crate::serve::access::origin::check_host;
use crate::serve::api::ops;
use crate::serve::contract::operations::METRICS_ACCESS;
use crate::serve::http::problem::Problem;
use crate::serve::telemetry::meters;
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Time that a refused client gets to read the reason.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Sends the reason and closes the connection.
pub async fn refuse(mut socket: TcpStream, problem: Problem, now: jiff::Timestamp) -> io::Result<()> {
    let sending = async {
        socket.write_all(&answer(problem, now)).await?;
        socket.shutdown().await?;
        // Closing a socket with unread input resets it, and the client would lose the answer.
        let mut void = [0; 512];
        while socket.read(&mut void).await? > 0 {}
        Ok(())
    };
    // A client that does not read the answer loses nothing.
    tokio::time::timeout(REFUSAL_TIME_MAX, sending).await.unwrap_or(Ok(()))
}

/// The reason as the last answer of a connection.
pub(super) fn answer(problem: Problem, now: jiff::Timestamp) -> Vec<u8> {
    Http1Answer::new(now, None).whole(Err(problem), true)
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
            Http1Answer::new((app.environment.now)(), None).whole(Err(Problem::stopping()), true)
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
