//! Frames out and facts in over WebSocket (RFC 6455, subprotocol `proscenium.v1`): many subscriptions on one connection.
//!
//! A connection is one task and keeps no queue: its readers are asked for more only once the socket has taken what it was given,
//! and those that have something take turns, a chunk each. Answers go before frames; while too many wait to be taken, nothing
//! more is read, and a connection whose pongs nobody takes is closed. What a message asks for is read by the code that reads queries and bodies, and a frame is the very object that
//! SSE carries: there is one way to read a log, and this is another way to carry it.
//!
//! Who connects says who it is: in a header, by a ticket, or, as browsers can do neither of the first, with its first message.
//! Until then nothing is done for it and little is read. Each message is asked for at `access`, as a request is; when the token
//! is over, so is the connection.

mod claims;
mod connection;
mod gate;
mod message;
mod ops;
mod subscriptions;

pub use ops::Op;

use super::App;
use super::access::Who;
use super::problem::Problem;
use super::wire::Permit;
use crate::auth::tickets::Purpose;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use connection::{Connection, Present};
use gate::{Gate, UNKNOWN_BYTES_MAX};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// What is spoken here.
pub const SUBPROTOCOL: &str = "proscenium.v1";

/// What is read at once, and what is gathered before it is written, in bytes. A connection keeps room for the one from its
/// beginning, for the other from its first frame; by default it would be 128 KiB each.
const READ_BYTES: usize = 2048;
const WRITE_BYTES: usize = 4096;
/// The most that is written and not taken, in bytes: a piece of a message, and the pongs that may be behind it.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// `GET /v1/ws`
pub async fn get(State(app): State<Arc<App>>, mut request: Request<Body>) -> Response {
    let (accept, named) = match handshake(request.method(), request.headers()) {
        Ok(agreed) => agreed,
        Err(problem) if problem.status == StatusCode::UPGRADE_REQUIRED => {
            return ([(header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_VERSION, "13")], problem).into_response();
        }
        Err(problem) => return problem.into_response(),
    };
    let who = Who::by_request(&app, request.uri(), request.headers(), Some(Purpose::Socket));
    let who = match who.and_then(|who| who.map(|who| Present::new(&app, who)).transpose()) {
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
                    .max_write_buffer_size(WRITE_BYTES_MAX)
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
