//! The operations of a WebSocket.

use super::connection::{AuthenticatedClient, CLOSE_UNAUTHENTICATED, Close, Connection};
use super::message::{ClientMessage, missing_member, refusal, reply};
use crate::auth::TokenError;
use crate::auth::rights::Verb;
use crate::control::Answer;
use crate::log::LogId;
use crate::serve::access::authorization::{Principal, Resource, authorize, unauthenticated};
use crate::serve::api::controls::{control_too_large, nack_answer};
use crate::serve::api::facts::{self, Destination};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{id_of, quoted};
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};
use std::pin::pin;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// An operation of a WebSocket message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOperation {
    Subscribe,
    Unsubscribe,
    Publish,
    Submit,
    Claim,
    Unclaim,
    Ack,
    Nack,
    Ping,
    Auth,
}

impl SocketOperation {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Publish,
        Self::Submit,
        Self::Claim,
        Self::Unclaim,
        Self::Ack,
        Self::Nack,
        Self::Ping,
        Self::Auth,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Publish => "publish",
            Self::Submit => "submit",
            Self::Claim => "claim",
            Self::Unclaim => "unclaim",
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Ping => "ping",
            Self::Auth => "auth",
        }
    }

    /// Finds the operation of this name.
    fn of(name: &str) -> Result<Self, Problem> {
        Self::ALL.into_iter().find(|op| op.as_str() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str);
            let detail = format!("op is {}. It must be one of {}.", quoted(name), known.join(", "));
            Problem::bad_request("unknown_op", detail).with("member", "op").with("expected", known.as_slice())
        })
    }
}

impl Connection<'_> {
    /// Handles a message and replies to it.
    pub(super) async fn handle(&mut self, text: &str) {
        let message = match ClientMessage::of(text) {
            Ok(message) => message,
            Err(problem) => return self.refuse(None, &problem),
        };
        let id = match message.id() {
            Ok(id) => id,
            Err(problem) => return self.refuse(None, &problem),
        };
        let op = message.text("op").and_then(SocketOperation::of);
        if self.client.is_none() && !matches!(op, Ok(SocketOperation::Auth)) {
            let problem = unauthenticated(&TokenError::Missing);
            self.closing = Some(Close::unauthenticated("the first message must be auth", problem));
            return;
        }
        if let Some(excess) = &message.excess {
            return match op {
                Ok(SocketOperation::Submit) => self.refuse(id.as_ref(), &control_too_large()),
                _ => self.refuse(id.as_ref(), excess),
            };
        }
        if let Ok(op) = &op
            && self.is_for_leader(*op, id.as_ref())
        {
            if let Err(problem) = self.forward(text, id.as_ref()).await {
                self.refuse(id.as_ref(), &problem);
            }
            return;
        }
        let done = match op {
            Ok(SocketOperation::Subscribe) => self.subscribe(&message, id.as_ref()).await.map(Some),
            Ok(SocketOperation::Unsubscribe) => self.unsubscribe(id.as_ref()).map(Some),
            Ok(SocketOperation::Publish) => {
                let published = self.publish(&message, id.as_ref()).await;
                published.inspect_err(|problem| self.app.meters.refused.add(problem.code)).map(|()| None)
            }
            Ok(SocketOperation::Submit) => self.submit_control(text, &message, id.as_ref()).await.map(|()| None),
            Ok(SocketOperation::Claim) => self.claim(&message, id.as_ref()).await.map(Some),
            Ok(SocketOperation::Unclaim) => self.unclaim(id.as_ref()).map(Some),
            Ok(SocketOperation::Ack) => self.answer_control(&message, id.as_ref(), Ok(Answer::Ack), "acked").await.map(|()| None),
            Ok(SocketOperation::Nack) => {
                let answer = nack_answer(&message.members);
                self.answer_control(&message, id.as_ref(), answer, "nacked").await.map(|()| None)
            }
            Ok(SocketOperation::Ping) => Ok(Some(reply("pong", id.as_ref(), json!({})))),
            Ok(SocketOperation::Auth) => match self.authenticate(&message, id.as_ref()).await {
                Ok(answer) => self.renew_upstream(&message).await.map(|()| Some(answer)),
                Err(problem) => Err(problem),
            },
            Err(problem) => Err(problem),
        };
        match done {
            Ok(answer) => self.replies.extend(answer),
            Err(problem) => self.refuse(id.as_ref(), &problem),
        }
    }

    /// Authenticates the client, or replaces its token.
    ///
    /// A new token must permit everything that the previous one did, because open resources stay open.
    pub(super) async fn authenticate(&mut self, message: &ClientMessage<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let principal = match Principal::from_token(self.app, message.text("token")?).await {
            Ok(principal) => principal,
            Err(problem) if self.client.is_some() => return Err(problem),
            Err(problem) => {
                // The reply states the reason.
                self.closing = Some(Close::new(CloseCode::Library(CLOSE_UNAUTHENTICATED), "the token was rejected", None));
                return Err(problem);
            }
        };
        if let (Some(before), Some(now)) = (self.client.as_ref().and_then(|client| client.principal.grant()), principal.grant())
            && !(now.has_same_subject(before) && now.rights.covers(&before.rights))
        {
            let detail = "The token has another subject, or permits less than the previous one. Open another connection for it.";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "token"));
        }
        let body = principal.grant().map_or(json!({}), |grant| {
            let until = i64::try_from(grant.expires).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
            json!({ "audience": grant.rights.audience, "expiresAt": until.map(|until| until.to_string()) })
        });
        self.client = Some(match self.client.take() {
            Some(before) => before.with_principal(principal),
            None => AuthenticatedClient::new(self.app, principal).inspect_err(|_| {
                self.closing = Some(Close::new(CloseCode::Again, "the sub of the token is at its connection limit", None));
            })?,
        });
        self.socket.get_mut().bytes_left = None;
        Ok(reply("authenticated", id, body))
    }

    pub(super) async fn publish(&mut self, message: &ClientMessage<'_>, id: Option<&Value>) -> Result<(), Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?.clone();
        let facts = message.facts.ok_or_else(|| missing_member("facts"))?;
        let query = message.query(&["runId", "sessionId", "source", "owner"])?;
        let mut given = message.object("ids")?.ids()?;
        let session = query.get("sessionId").map(|session| id_of("sessionId", session)).transpose()?;
        let log = match (query.get("runId"), session) {
            (Some(run), session) => {
                given.session = given.session.or(session);
                LogId::Run(id_of("runId", run)?)
            }
            (None, Some(session)) => LogId::Session(session),
            (None, None) => return Err(missing_member("runId")),
        };
        let numbering = message.object("producer")?;
        let names = ["producer.id", "producer.epoch", "producer.seq"];
        let producer = facts::producer(names, ["id", "epoch", "seq"].map(|member| numbering.get(member)))?;
        let target = match &log {
            LogId::Run(run) => Resource::Run(run),
            LogId::Session(session) => Resource::Session(session),
        };
        let (app, principal) = (self.app, self.principal()?.clone());
        let authorization = authorize(app, &principal, Verb::Publish, target, None).await?;
        let to = Destination::new(&authorization, log, query.get("source"), given, producer)?;
        let to = to.with_owner(authorization.requested_owner(&query)?);
        let delivery = facts::prepare(app, &to, Bytes::copy_from_slice(facts.get().as_bytes()))?;
        let admitted = {
            let mut admitting = pin!(app.ingest.admit(&delivery));
            match facts::poll_once(admitting.as_mut()).await {
                Some(admitted) => admitted,
                None => {
                    // See `poll_once`.
                    while let Some(answer) = self.publishes.next().await {
                        self.replies.push_back(answer);
                    }
                    admitting.await
                }
            }
        };
        let pending = facts::submit(app, delivery, admitted).await?;
        let meters = app.meters.clone();
        self.publishes.push_back(Box::pin(async move {
            match facts::await_durable(pending).await {
                Ok(receipt) => reply("ack", Some(&id), receipt),
                Err(problem) => {
                    meters.refused.add(problem.code);
                    meters.problems.add(problem.code);
                    refusal(Some(&id), &problem)
                }
            }
        }));
        Ok(())
    }
}
