//! What may be asked on a WebSocket, and who does it.

use super::connection::{Close, Connection, UNAUTHENTICATED};
use super::message::{Asked, answer, missing, refusal};
use crate::auth::Refusal;
use crate::auth::rights::Verb;
use crate::control::Answer;
use crate::log::LogId;
use crate::serve::access::{Target, Who, allow, unauthenticated};
use crate::serve::controls::refusal_of;
use crate::serve::facts::{self, Address};
use crate::serve::problem::Problem;
use crate::serve::request::id_of;
use futures_util::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};
use std::pin::pin;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What may be asked.
pub(super) const OPS: [&str; 9] = ["subscribe", "unsubscribe", "publish", "claim", "unclaim", "ack", "nack", "ping", "auth"];

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
        if self.who.is_none() && !matches!(asked.op(), Ok("auth")) {
            let problem = unauthenticated(&Refusal::Missing);
            self.closing = Some(Close::unauthenticated("the first message has to be auth", problem));
            return;
        }
        let done = match asked.op() {
            Ok("subscribe") => self.subscribe(&asked, id.as_ref()).await.map(Some),
            Ok("unsubscribe") => self.unsubscribe(id.as_ref()).map(Some),
            Ok("publish") => {
                let published = self.publish(&asked, id.as_ref()).await;
                published.inspect_err(|problem| self.app.meters.refused.add(problem.code)).map(|()| None)
            }
            Ok("claim") => self.claim(&asked, id.as_ref()).await.map(Some),
            Ok("unclaim") => self.unclaim(id.as_ref()).map(Some),
            Ok("ack") => self.answer_control(&asked, id.as_ref(), Ok(Answer::Ack), "acked").await.map(|()| None),
            Ok("nack") => {
                let says = refusal_of(&asked.members);
                self.answer_control(&asked, id.as_ref(), says, "nacked").await.map(|()| None)
            }
            Ok("ping") => Ok(Some(answer("pong", id.as_ref(), json!({})))),
            Ok("auth") => self.authenticate(&asked, id.as_ref()).map(Some),
            Ok(other) => {
                let detail = format!("op is {other:?}; it must be one of {}", OPS.join(", "));
                Err(Problem::bad_request("unknown_op", detail).with("member", "op").with("expected", OPS.as_slice()))
            }
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
        if let (Some(before), Some(now)) = (self.who.as_ref().and_then(Who::grant), who.grant())
            && !(now.is_of(before) && now.rights.cover(&before.rights))
        {
            let detail = "the token is somebody else's, or allows less than the one before; open another connection for it";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", "token"));
        }
        let told = who.grant().map_or(json!({}), |grant| {
            let until = i64::try_from(grant.expires).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
            json!({ "audience": grant.rights.audience, "expiresAt": until.map(|until| until.to_string()) })
        });
        self.who = Some(who);
        self.socket.get_mut().room = None;
        Ok(answer("authenticated", id, told))
    }

    /// Who is there, which [`Self::obey`] has made sure of.
    pub(super) fn known(&self) -> Result<&Who, Problem> {
        self.who.as_ref().ok_or_else(|| unauthenticated(&Refusal::Missing))
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
        let mut submitting = pin!(facts::submit(self.app, to, facts.get().as_bytes()));
        let submitted = match facts::ready_now(submitting.as_mut()).await {
            Some(submitted) => submitted,
            None => {
                // See `ready_now`.
                while let Some(answer) = self.publishes.next().await {
                    self.answers.push_back(answer);
                }
                submitting.await
            }
        };
        let (pending, meters) = (submitted?, self.app.meters.clone());
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
