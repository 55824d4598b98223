//! WebSocket connections (RFC 6455, subprotocol `proscenium.v1`).
//!
//! A connection carries many subscriptions and publishes. It is one task without queues. It asks its readers for more
//! only when the socket has taken the last chunk, and ready readers take turns, a chunk each. Replies go before frames.
//! While too many replies wait, the connection reads no further messages, and it closes if the client does not read its
//! pongs. The code for queries and bodies also parses messages, and a frame is the same object as on SSE.
//!
//! A client authenticates by a header, by a ticket, or with its first message, because browsers can only do the last
//! two. Until then the server reads little and does nothing for it. Each message is authorized like a request. The
//! connection closes when its token ends.

mod claims;
mod connection;
mod driver;
mod forward;
mod gate;
mod message;
mod ops;
mod subscriptions;
mod upstream;

pub(in crate::serve) use connection::{ReadyReader, SubscriptionId};
pub use ops::SocketOperation;
pub(in crate::serve) use upstream::ticket_of;

use crate::auth::tickets::Purpose;
use crate::serve::App;
use crate::serve::access::authorization::Principal;
use crate::serve::access::quota::ConnectionPermit;
use crate::serve::cluster;
use crate::serve::http::problem::Problem;
use crate::serve::transport::peer::Peer;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use connection::{AuthenticatedClient, Connection};
use gate::{ReadLimited, UNAUTHENTICATED_BYTES_MAX};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The supported subprotocol.
pub const SUBPROTOCOL: &str = "proscenium.v1";

/// Read buffer and write batch, in bytes.
///
/// A connection keeps the first from its start and the second from its first frame; the library's default is 128 KiB
/// each.
const READ_BYTES: usize = 2048;
const WRITE_BYTES: usize = 4096;
/// Maximum unsent bytes: a piece of a message, and the pongs behind it.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// `GET /v1/ws`
pub async fn get(State(app): State<Arc<App>>, mut request: Request<Body>) -> Response {
    let (accept, named) = match handshake(request.method(), request.headers(), Some(SUBPROTOCOL)) {
        Ok(agreed) => agreed,
        Err(problem) => return refuse(problem),
    };
    let principal = Principal::from_request(&app, request.uri(), request.headers(), Some(Purpose::Socket)).await;
    let client =
        match principal.and_then(|principal| principal.map(|principal| AuthenticatedClient::new(&app, principal)).transpose()) {
            Ok(client) => client,
            Err(problem) => return problem.into_response(),
        };
    let is_forwarded = cluster::is_forwarded(request.headers());
    let permit = request.extensions_mut().remove::<ConnectionPermit>();
    let peer = request.extensions_mut().remove::<Peer>();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let config = WebSocketConfig::default()
                    .read_buffer_size(READ_BYTES)
                    .write_buffer_size(WRITE_BYTES)
                    .max_write_buffer_size(WRITE_BYTES_MAX)
                    .max_message_size(Some(app.limits.body_bytes_max))
                    .max_frame_size(Some(app.limits.body_bytes_max));
                let bytes_left = client.is_none().then_some(UNAUTHENTICATED_BYTES_MAX);
                let limited = ReadLimited { io: TokioIo::new(io), bytes_left };
                let socket = WebSocketStream::from_raw_socket(limited, Role::Server, Some(config)).await;
                Connection::new(&app, socket, peer, client, is_forwarded).run().await;
            }
            Err(error) => tracing::debug!(%error, "a connection failed before its upgrade to a WebSocket"),
        }
        drop(permit);
    });
    switching(&accept, named.then_some(SUBPROTOCOL))
}

/// The answer to a request that does not become a WebSocket.
pub(in crate::serve) fn refuse(problem: Problem) -> Response {
    match problem.status {
        StatusCode::UPGRADE_REQUIRED => {
            ([(header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_VERSION, "13")], problem).into_response()
        }
        _ => problem.into_response(),
    }
}

/// The answer that makes a connection a WebSocket.
pub(in crate::serve) fn switching(accept: &str, subprotocol: Option<&'static str>) -> Response {
    let mut response = http::Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(subprotocol) = subprotocol {
        response = response.header(header::SEC_WEBSOCKET_PROTOCOL, subprotocol);
    }
    response.body(Body::empty()).expect("the response headers are valid")
}

/// Checks the handshake. Returns the accept key, and whether the client offers the subprotocol by name.
///
/// An address without a subprotocol takes a client that offers none.
pub(in crate::serve) fn handshake(
    method: &Method,
    headers: &HeaderMap,
    subprotocol: Option<&'static str>,
) -> Result<(String, bool), Problem> {
    let words = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).collect::<Vec<_>>()
    };
    let has_word = |name: HeaderName, word: &str| words(name).iter().any(|value| value.eq_ignore_ascii_case(word));
    let is_handshake = method == Method::GET
        && has_word(header::CONNECTION, "upgrade")
        && has_word(header::UPGRADE, "websocket")
        && has_word(header::SEC_WEBSOCKET_VERSION, "13");
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake) else {
        let detail = "This address accepts only WebSocket connections (RFC 6455, version 13). Connect with a WebSocket client.";
        return Err(Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail));
    };
    let offered = words(header::SEC_WEBSOCKET_PROTOCOL);
    if !offered.is_empty() && subprotocol.is_none_or(|known| !offered.contains(&known)) {
        let known = subprotocol.unwrap_or("none");
        let detail = format!("The client offers the subprotocols {offered:?}. This address supports {known}.");
        return Err(Problem::bad_request("bad_subprotocol", detail).with("expected", known));
    }
    Ok((derive_accept_key(key.as_bytes()), !offered.is_empty()))
}
