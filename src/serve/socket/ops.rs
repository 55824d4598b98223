//! What may be asked on a WebSocket, and who does it.

use super::connection::{Close, Connection, Present, UNAUTHENTICATED};
use super::message::{Asked, answer, missing, refusal};
use crate::auth::Refusal;
use crate::auth::rights::Verb;
use crate::control::Answer;
use crate::log::LogId;
use crate::serve::access::{Target, Who, allow, unauthenticated};
use crate::serve::controls::refusal_of;
use crate::serve::facts::{self, Address};
use crate::serve::problem::Problem;
use crate::serve::request::{id_of, quoted};
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};
use std::pin::pin;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Subscribe,
    Unsubscribe,
    Publish,
    Claim,
    Unclaim,
    Ack,
    Nack,
    Ping,
    Auth,
}

impl Op {
    /// All of them. One that is not here cannot be asked.
    pub const ALL: [Self; 9] = [
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Publish,
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
            Self::Claim => "claim",
            Self::Unclaim => "unclaim",
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Ping => "ping",
            Self::Auth => "auth",
        }
    }

    /// The one of this name.
    fn of(name: &str) -> Result<Self, Problem> {
        Self::ALL.into_iter().find(|op| op.as_str() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str);
            let detail = format!("op is {}; it must be one of {}", quoted(name), known.join(", "));
            Problem::bad_request("unknown_op", detail).with("member", "op").with("expected", known.as_slice())
        })
    }
}

impl Connection<'_> {
    /// Does what a message asks for, and answers it.
    pub(super) async fn obey(&mut self, text: &str) {
        let asked = match Asked::of(text) {
            Ok(asked) => asked,
            Err(problem) => return self.refuse(None, &problem),
        };
        let id = match asked.id() {
            Ok(id) => id,
            Err(problem) => return self.refuse(None, &problem),
        };
        let op = asked.text("op").and_then(Op::of);
        if self.who.is_none() && !matches!(op, Ok(Op::Auth)) {
            let problem = unauthenticated(&Refusal::Missing);
            self.closing = Some(Close::unauthenticated("the first message has to be auth", problem));
            return;
        }
        let done = match op {
            Ok(Op::Subscribe) => self.subscribe(&asked, id.as_ref()).await.map(Some),
            Ok(Op::Unsubscribe) => self.unsubscribe(id.as_ref()).map(Some),
            Ok(Op::Publish) => {
                let published = self.publish(&asked, id.as_ref()).await;
                published.inspect_err(|problem| self.app.meters.refused.add(problem.code)).map(|()| None)
            }
            Ok(Op::Claim) => self.claim(&asked, id.as_ref()).await.map(Some),
            Ok(Op::Unclaim) => self.unclaim(id.as_ref()).map(Some),
            Ok(Op::Ack) => self.answer_control(&asked, id.as_ref(), Ok(Answer::Ack), "acked").await.map(|()| None),
            Ok(Op::Nack) => {
                let says = refusal_of(&asked.members);
                self.answer_control(&asked, id.as_ref(), says, "nacked").await.map(|()| None)
            }
            Ok(Op::Ping) => Ok(Some(answer("pong", id.as_ref(), json!({})))),
            Ok(Op::Auth) => self.authenticate(&asked, id.as_ref()).map(Some),
            Err(problem) => Err(problem),
        };
        match done {
            Ok(answer) => self.answers.extend(answer),
            Err(problem) => self.refuse(id.as_ref(), &problem),
        }
    }

    pub(super) fn refuse(&mut self, id: Option<&Value>, problem: &Problem) {
        self.app.meters.problems.add(problem.code);
        self.answers.push_back(refusal(id, problem));
    }

    /// Says who is there, or that the same one has another token. That one has to allow everything that the one before does: what
    /// is open stays open.
    pub(super) fn authenticate(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let who = match Who::by_token(self.app, asked.text("token")?) {
            Ok(who) => who,
            Err(problem) if self.who.is_some() => return Err(problem),
            Err(problem) => {
                // It is told why by the answer.
                self.closing = Some(Close::with(CloseCode::Library(UNAUTHENTICATED), "the token is not good", None));
                return Err(problem);
            }
        };
        if let (Some(before), Some(now)) = (self.who.as_ref().and_then(|present| present.who.grant()), who.grant())
            && !(now.is_of(before) && now.rights.cover(&before.rights))
        {
            let detail = "the token is somebody else's, or allows less than the one before; open another connection for it";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "token"));
        }
        let told = who.grant().map_or(json!({}), |grant| {
            let until = i64::try_from(grant.expires).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
            json!({ "audience": grant.rights.audience, "expiresAt": until.map(|until| until.to_string()) })
        });
        self.who = Some(match self.who.take() {
            Some(before) => before.with(who),
            None => Present::new(self.app, who).inspect_err(|_| {
                self.closing = Some(Close::with(CloseCode::Again, "too much is open under tokens of this sub", None));
            })?,
        });
        self.socket.get_mut().room = None;
        Ok(answer("authenticated", id, told))
    }

    /// Who is there, which [`Self::obey`] has made sure of.
    pub(super) fn known(&self) -> Result<&Who, Problem> {
        self.who.as_ref().map(|present| &present.who).ok_or_else(|| unauthenticated(&Refusal::Missing))
    }

    pub(super) async fn publish(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<(), Problem> {
        let id = id.ok_or_else(|| missing("id"))?.clone();
        let facts = asked.facts.ok_or_else(|| missing("facts"))?;
        let query = asked.query(&["runId", "sessionId", "source"])?;
        let mut given = asked.object("ids")?.ids()?;
        let session = query.get("sessionId").map(|session| id_of("sessionId", session)).transpose()?;
        let log = match (query.get("runId"), session) {
            (Some(run), session) => {
                given.session = given.session.or(session);
                LogId::Run(id_of("runId", run)?)
            }
            (None, Some(session)) => LogId::Session(session),
            (None, None) => return Err(missing("runId")),
        };
        let numbering = asked.object("producer")?;
        let names = ["producer.id", "producer.epoch", "producer.seq"];
        let producer = facts::producer(names, ["id", "epoch", "seq"].map(|member| numbering.get(member)))?;
        let target = match &log {
            LogId::Run(run) => Target::Run(run),
            LogId::Session(session) => Target::Session(session),
        };
        let (app, who) = (self.app, self.known()?.clone());
        let pass = allow(app, &who, Verb::Publish, target, None).await?;
        let to = Address::new(&pass, log, query.get("source"), given, producer)?;
        let delivery = facts::delivery(app, &to, Bytes::copy_from_slice(facts.get().as_bytes()))?;
        let admitted = {
            let mut admitting = pin!(app.ingest.admit(&delivery));
            match facts::ready_now(admitting.as_mut()).await {
                Some(admitted) => admitted,
                None => {
                    // See `ready_now`.
                    while let Some(answer) = self.publishes.next().await {
                        self.answers.push_back(answer);
                    }
                    admitting.await
                }
            }
        };
        let pending = facts::submit(app, delivery, admitted).await?;
        let meters = app.meters.clone();
        self.publishes.push_back(Box::pin(async move {
            match facts::durable(pending).await {
                Ok(receipt) => answer("ack", Some(&id), receipt),
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
