//! Writes of a WebSocket on a node that follows: the leader of the cluster answers them.
//!
//! The first write opens a WebSocket to the leader, with the rights of the client. Messages go there as they came, and the
//! leader's replies go to the client as they are. If that connection ends, every message without a reply and every open
//! claim gets `no_leader`. Subscriptions are served here, and stay open.

use super::connection::Connection;
use super::message::ClientMessage;
use super::ops::SocketOperation;
use crate::auth::tickets::{Purpose, TICKET_TTL_SECS_MAX};
use crate::serve::App;
use crate::serve::access::authorization::Principal;
use crate::serve::cluster::{Cluster, no_leader};
use crate::serve::http::problem::Problem;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

type LeaderSocket = WebSocketStream<reqwest::Upgraded>;
/// What came from the leader. `None` when its connection has ended.
type Received = Option<Result<Message, Error>>;

/// A connection to the leader.
pub(super) struct Upstream {
    sending: SplitSink<LeaderSocket, Message>,
    receiving: SplitStream<LeaderSocket>,
    /// Resolves when that node no longer leads.
    lost: BoxFuture<'static, ()>,
    /// The ids of the messages without a reply.
    waiting: Vec<Option<Value>>,
    /// The ids of the open claims.
    claims: Vec<Value>,
}

/// The members of a reply that say which message it answers.
#[derive(Deserialize)]
struct ReplyHead<'r> {
    op: &'r str,
    id: Option<Value>,
}

impl Upstream {
    /// Connects to the leader with a ticket of its own, which permits what the client may do.
    async fn connect(app: &App, cluster: &Cluster, principal: &Principal) -> Result<Self, Problem> {
        let ticket = match (&app.authenticator, principal.grant()) {
            (Some(authenticator), Some(grant)) => {
                let ticket = authenticator.ticket(grant, Purpose::Socket, None, TICKET_TTL_SECS_MAX);
                Some(ticket.map_err(|error| no_leader(&error.to_string()))?.0)
            }
            _ => None,
        };
        let (leader, upgraded) = cluster.open_socket(ticket.as_deref()).await?;
        let (sending, receiving) = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await.split();
        let membership = cluster.membership.clone();
        let lost = async move { membership.loses_leader(&leader).await }.boxed();
        Ok(Self { sending, receiving, lost, waiting: Vec::new(), claims: Vec::new() })
    }

    /// The number of messages without a reply.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        match self.lost.poll_unpin(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => self.receiving.poll_next_unpin(context),
        }
    }

    /// Sends a message. Returns what came meanwhile: the leader reads no message while its replies are not read.
    async fn send(&mut self, text: &str) -> Vec<Received> {
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

impl Connection<'_> {
    /// Whether the leader must answer this message, and another node leads.
    pub(super) fn is_for_leader(&self, op: SocketOperation, id: Option<&Value>) -> bool {
        let is_write = match op {
            SocketOperation::Publish | SocketOperation::Claim | SocketOperation::Ack | SocketOperation::Nack => true,
            SocketOperation::Unclaim => {
                self.upstream.as_ref().is_some_and(|upstream| upstream.claims.iter().any(|claim| Some(claim) == id))
            }
            _ => false,
        };
        is_write && !self.app.logs.leadership().leads()
    }

    /// Sends a message to the leader, whose reply follows.
    pub(super) async fn forward(&mut self, text: &str, id: Option<&Value>) -> Result<(), Problem> {
        if self.upstream.is_none() {
            let cluster = self.app.cluster.as_ref().filter(|_| !self.is_forwarded);
            let cluster = cluster.ok_or_else(|| no_leader("This node does not lead the cluster. Send the message again."))?;
            let (app, principal) = (self.app, self.principal()?.clone());
            self.upstream = Some(Upstream::connect(app, cluster, &principal).await?);
        }
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        upstream.waiting.push(id.cloned());
        for received in upstream.send(text).await {
            self.relay(received);
        }
        Ok(())
    }

    /// Gives the leader the new token of the client, if a connection to it is open.
    pub(super) async fn renew_upstream(&mut self, message: &ClientMessage<'_>) -> Result<(), Problem> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        // Without an id, so that its reply is known.
        let auth = serde_json::json!({ "op": SocketOperation::Auth.as_str(), "token": message.text("token")? });
        for received in upstream.send(&auth.to_string()).await {
            self.relay(received);
        }
        Ok(())
    }

    /// Relays what the leader has sent, as far as the client has space for replies.
    pub(super) fn poll_upstream(&mut self, context: &mut Context<'_>) {
        while self.takes_replies()
            && let Some(upstream) = &mut self.upstream
            && let Poll::Ready(received) = upstream.poll(context)
        {
            self.relay(received);
        }
    }

    /// Waits for the replies of the leader, before the connection closes.
    pub(super) async fn drain_upstream(&mut self) {
        while let Some(upstream) = self.upstream.as_mut().filter(|upstream| upstream.waiting() > 0) {
            let received = poll_fn(|context| upstream.poll(context)).await;
            self.relay(received);
        }
    }

    fn relay(&mut self, received: Received) {
        let Some(upstream) = &mut self.upstream else { return };
        match received {
            Some(Ok(Message::Text(text))) => {
                let Ok(ReplyHead { op, id }) = serde_json::from_str(&text) else { return };
                match op {
                    // The node itself has answered the client.
                    "authenticated" if id.is_none() => return,
                    "control" => {}
                    _ => {
                        if let Some(at) = upstream.waiting.iter().position(|waiting| *waiting == id) {
                            upstream.waiting.remove(at);
                        }
                        upstream.claims.retain(|claim| Some(claim) != id.as_ref());
                        upstream.claims.extend(id.filter(|_| op == "claiming"));
                    }
                }
                self.replies.push_back(text.to_string());
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => {
                let upstream = self.upstream.take();
                let problem = no_leader(
                    "The connection to the leader ended, so it is unknown whether the message was stored. Send it again; \
                     producer numbers make a repeat safe.",
                );
                if let Some(Upstream { waiting, claims, .. }) = upstream {
                    for id in waiting.into_iter().chain(claims.into_iter().map(Some)) {
                        self.refuse(id.as_ref(), &problem);
                    }
                }
            }
            Some(Ok(_)) => {}
        }
    }
}
