//! Writes of a WebSocket on a node that follows: the leader of the cluster answers them.
//!
//! The first write opens a WebSocket to the leader, with the rights of the client. Messages go there as they came, and the
//! leader's replies go to the client as they are. If that connection ends, every message without a reply and every open
//! claim gets `no_leader`. Subscriptions are served here, and stay open.

use super::connection::Connection;
use super::message::ClientMessage;
use super::ops::SocketOperation;
use super::upstream::{Received, Upstream};
use crate::serve::cluster::no_leader;
use crate::serve::http::problem::Problem;
use serde::Deserialize;
use serde_json::Value;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio_tungstenite::tungstenite::Message;

/// The members of a reply that say which message it answers.
#[derive(Deserialize)]
struct ReplyHead<'r> {
    op: &'r str,
    id: Option<Value>,
}

impl Connection<'_> {
    /// Whether the leader must answer this message, and another node leads.
    pub(super) fn is_for_leader(&self, op: SocketOperation, id: Option<&Value>) -> bool {
        let is_write = match op {
            SocketOperation::Publish
            | SocketOperation::Submit
            | SocketOperation::Claim
            | SocketOperation::Ack
            | SocketOperation::Nack => true,
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
        while let Some(upstream) = self.upstream.as_mut().filter(|upstream| !upstream.waiting.is_empty()) {
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
