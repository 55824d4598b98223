//! `GET /acp`: the Agent Client Protocol, version 1, over WebSocket.
//!
//! ```text
//!  client ── JSON-RPC ─▶ rpc ─▶ requests ─▶ controls, lists, erasure         what REST asks, too
//!         ◀─ updates, answers, permissions ── frames ◀── the reader of each open session
//! ```
//! An editor on this address works with any agent whose runs the server has. A session of the client is a session of the
//! server, and a prompt is the control `send`. Updates come from the same reader as those of every client, so several
//! clients of a session see the same. A permission that one of them answers, or any other face, is withdrawn from the
//! others (`$/cancel_request`).
//!
//! A connection is one task without queues: it reads a message when it has sent what the last ones led to, and its
//! sessions take turns. The token comes with the upgrade. Each request is authorized like one by REST. On a node of a
//! cluster that follows, the connection is the leader's, passed on.

mod answers;
mod connection;
mod driver;
mod frames;
mod prompt;
mod relay;
mod requests;
pub(super) mod rpc;
mod session;

use crate::auth::TokenError;
use crate::auth::tickets::Purpose;
use crate::model::{AgentId, OwnerId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Principal, unauthenticated};
use crate::serve::access::quota::ConnectionPermit;
use crate::serve::cluster;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of};
use crate::serve::socket::{handshake, refuse, switching};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use connection::{Connection, Terms};
use http::{HeaderMap, Request, Uri};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Read buffer and write batch, in bytes.
const READ_BYTES: usize = 4096;
const WRITE_BYTES: usize = 4096;

/// `GET /acp`
pub async fn get(State(app): State<Arc<App>>, mut request: Request<Body>) -> Response {
    let accept = match handshake(request.method(), request.headers(), None) {
        Ok((accept, _)) => accept,
        Err(problem) => return refuse(problem),
    };
    let is_forwarded = cluster::is_forwarded(request.headers());
    let terms = match terms(&app, request.uri(), request.headers()).await {
        Ok(terms) => terms,
        Err(problem) => return problem.into_response(),
    };
    let permit = request.extensions_mut().remove::<ConnectionPermit>();
    let upgraded = hyper::upgrade::on(&mut request);
    let uri = request.uri().clone();
    tokio::spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let config = WebSocketConfig::default()
                    .read_buffer_size(READ_BYTES)
                    .write_buffer_size(WRITE_BYTES)
                    .max_message_size(Some(app.limits.body_bytes_max))
                    .max_frame_size(Some(app.limits.body_bytes_max));
                let socket = WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, Some(config)).await;
                match &app.cluster {
                    Some(cluster) if !is_forwarded && !app.logs.leadership().leads() => {
                        relay::relay(&app, cluster, &terms.principal, &uri, socket).await;
                    }
                    _ => Connection::new(app, socket, terms).run().await,
                }
            }
            Err(error) => tracing::debug!(%error, "a connection failed before its upgrade to a WebSocket"),
        }
        drop(permit);
    });
    switching(&accept, None)
}

/// Who connects, and to what.
async fn terms(app: &Arc<App>, uri: &Uri, headers: &HeaderMap) -> Result<Terms, Problem> {
    let principal = Principal::from_request(app, uri, headers, Some(Purpose::Socket)).await?;
    let principal = principal.ok_or_else(|| unauthenticated(&TokenError::Missing))?;
    let slot = principal.connection_slot(app)?;
    let query = Query::from_uri(uri);
    let agent = query.get("agentId").map(|agent| id_of::<AgentId>("agentId", agent)).transpose()?;
    let session = query.get("sessionId").map(|session| id_of::<SessionId>("sessionId", session)).transpose()?;
    // Sessions that begin here will be this owner's; a wrong name is an error now.
    if let Some(owner) = query.get("owner") {
        id_of::<OwnerId>("owner", owner)?;
    }
    Ok(Terms { principal, _slot: slot, agent, session, audience: query.audience()?, query })
}
