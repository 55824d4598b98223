//! The connection of a client's WebSocket to the leader of the cluster, on a node that follows.

use crate::auth::tickets::{Purpose, TICKET_TTL_SECS_MAX};
use crate::serve::App;
use crate::serve::access::authorization::Principal;
use crate::serve::cluster::{Cluster, no_leader};
use crate::serve::http::problem::Problem;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde_json::Value;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

type LeaderSocket = WebSocketStream<reqwest::Upgraded>;
/// What came from the leader. `None` when its connection has ended.
pub(super) type Received = Option<Result<Message, Error>>;

/// A connection to the leader.
pub(super) struct Upstream {
    sending: SplitSink<LeaderSocket, Message>,
    receiving: SplitStream<LeaderSocket>,
    /// Resolves when that node no longer leads.
    lost: BoxFuture<'static, ()>,
    /// The ids of the messages without a reply.
    pub waiting: Vec<Option<Value>>,
    /// The ids of the open claims.
    pub claims: Vec<Value>,
}

/// A ticket for a socket at the leader, which permits what the client may do. `None`: anyone may.
///
/// # Errors
/// 503 if none can be made now.
pub(in crate::serve) fn ticket_of(app: &App, principal: &Principal) -> Result<Option<String>, Problem> {
    let (Some(authenticator), Some(grant)) = (&app.authenticator, principal.grant()) else { return Ok(None) };
    let ticket = authenticator.ticket(grant, Purpose::Socket, None, TICKET_TTL_SECS_MAX);
    Ok(Some(ticket.map_err(|error| no_leader(&error.to_string()))?.0))
}

impl Upstream {
    /// Connects to the leader with a ticket of its own, which permits what the client may do.
    pub async fn connect(app: &App, cluster: &Cluster, principal: &Principal) -> Result<Self, Problem> {
        let ticket = ticket_of(app, principal)?;
        let query: Vec<_> = ticket.iter().map(|ticket| ("ticket", ticket.as_str())).collect();
        let (leader, upgraded) = cluster.open_socket("/v1/ws", &query).await?;
        let (sending, receiving) = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await.split();
        let membership = cluster.membership.clone();
        let lost = async move { membership.loses_leader(&leader).await }.boxed();
        Ok(Self { sending, receiving, lost, waiting: Vec::new(), claims: Vec::new() })
    }

    /// What the leader has sent.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        match self.lost.poll_unpin(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => self.receiving.poll_next_unpin(context),
        }
    }

    /// Sends a message. Returns what came meanwhile: the leader reads no message while its replies are not read.
    pub async fn send(&mut self, text: &str) -> Vec<Received> {
        let (mut received, receiving, lost) = (Vec::new(), &mut self.receiving, &mut self.lost);
        let mut sending = pin!(self.sending.send(Message::text(text)));
        loop {
            tokio::select! {
                sent = &mut sending => {
                    received.extend(sent.is_err().then_some(None));
                    return received;
                }
                message = receiving.next() => received.push(message),
                () = &mut *lost => received.push(None),
            }
            if received.last().is_some_and(Option::is_none) {
                return received;
            }
        }
    }
}
