//! Subscriptions of a WebSocket: those that have something to say take turns, a chunk each.

use super::connection::{Connection, Sub};
use super::message::{Asked, answer, missing};
use crate::auth::rights::Verb;
use crate::feed::several::{self, Members};
use crate::feed::{From, Reading};
use crate::log::{AnyStore, LogId};
use crate::model::{Cursor, RunId, SessionId};
use crate::serve::access::{Hold, Target, allow};
use crate::serve::meters::{Counted, Transport};
use crate::serve::problem::Problem;
use crate::serve::request::{from, id_of};
use crate::serve::wire::HELD_BYTES_MAX;
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable};
use http::StatusCode;
use serde_json::{Value, json};

/// What a subscription says of what it wants.
const SUBSCRIPTION: [&str; 11] =
    ["run", "session", "children", "frames", "audience", "surfaces", "surface", "type", "agentId", "replay", "after"];

/// A reader and what it has to say.
pub(super) struct Turn {
    pub sub: Sub,
    pub reader: Reading<AnyStore>,
    pub counted: Counted,
    pub hold: Hold,
    /// What of its chunk was not handed over yet.
    pub frames: Bytes,
    /// The cursor of the frame that was handed over last, if that had one.
    pub at: Option<Cursor>,
    /// Whether nothing follows the chunk.
    pub is_last: bool,
}

impl Turn {
    /// Resolves as soon as there is anything to say.
    pub(super) async fn of(sub: Sub, mut reader: Reading<AnyStore>, counted: Counted, hold: Hold) -> Self {
        let (frames, is_last) = match reader.next().await {
            Ok(Some(frames)) => match hold.check() {
                Ok(()) => (frames, reader.is_over()),
                Err(problem) => (reader.error(&problem.to_json()), true),
            },
            Ok(None) => (Bytes::new(), true),
            Err(error) => (reader.error(&Problem::from(error).to_json()), true),
        };
        Self { sub, reader, counted, hold, frames, at: None, is_last }
    }
}

impl Connection<'_> {
    /// What a reader whose socket takes no more may hold is little, and its own: the rest is given back, to be had again.
    pub(super) fn hold_back(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        if turn.frames.len() > HELD_BYTES_MAX {
            if !turn.is_last && turn.at.is_some_and(|at| turn.reader.rewind(at)) {
                return self.read_on(turn.sub, turn.reader, turn.counted, turn.hold);
            }
        } else if !turn.frames.is_unique() {
            turn.frames = Bytes::copy_from_slice(&turn.frames);
        }
        self.turn = Some(turn);
    }

    /// Puts a reader among those that wait for their logs to move.
    pub(super) fn read_on(&mut self, sub: Sub, reader: Reading<AnyStore>, counted: Counted, hold: Hold) {
        let (stop, stopped) = AbortHandle::new_pair();
        self.readers.push(Abortable::new(Box::pin(Turn::of(sub.clone(), reader, counted, hold)), stopped));
        self.subscriptions.insert(sub, stop);
    }

    pub(super) async fn subscribe(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if self.subscriptions.contains_key(&sub) {
            let detail = format!("a subscription {id} is open; unsubscribe it, or take another id");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.subscriptions.len() >= limit {
            let detail = format!("{limit} subscriptions are open, the limit of a connection; unsubscribe some, or open another");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let query = asked.query(&SUBSCRIPTION)?;
        let (wanted, from) = (query.wanted()?, from(query.get("after"))?);
        let audience = wanted.selection.audience;
        let (app, who) = (self.app, self.known()?.clone());
        let (reader, hold, epoch, sequence, recovered) = match (query.get("run"), query.get("session")) {
            (Some(run), None) => {
                let run = id_of::<RunId>("run", run)?;
                let pass = allow(app, &who, Verb::Read, Target::Run(&run), Some(audience)).await?;
                let log = LogId::Run(run);
                let tail = self.app.logs.log(&log).await?.tail();
                let goes_on = |after: Cursor| tail.epoch == Some(after.epoch) && after.after <= tail.last;
                let recovered = matches!(from, From::After(after) if goes_on(after));
                let reader = Reading::One(self.app.feed.read(&log, wanted, from).await?);
                (reader, pass.hold(), tail.epoch, tail.last, recovered)
            }
            (None, Some(session)) => {
                let session = id_of::<SessionId>("session", session)?;
                let pass = allow(app, &who, Verb::Read, Target::Session(&session), Some(audience)).await?;
                let (children, takes) = (query.is_set("children"), pass.takes());
                let members = Members::of_session(self.app.logs.clone(), session, children, takes);
                let (life, now) = (self.app.logs.life(), several::now(&self.app.logs));
                let recovered = matches!(from, From::After(after) if after.epoch == life && after.after <= now);
                let reader = Reading::Several(Box::new(self.app.feed.read_several(members, wanted, from)));
                (reader, pass.hold(), Some(life), now, recovered)
            }
            (Some(_), Some(_)) => {
                let detail = "a subscription is to a run or to a session; this one names both";
                return Err(Problem::bad_request("bad_query", detail).with("member", "session"));
            }
            (None, None) => return Err(missing("run")),
        };
        let counted = self.app.meters.reader(audience, Transport::WebSocket);
        self.read_on(sub, reader, counted, hold);
        let epoch = epoch.map(|epoch| epoch.to_string());
        Ok(answer("subscribed", Some(id), json!({ "epoch": epoch, "sequence": sequence, "recovered": recovered })))
    }

    /// Whether there was anything to let go of or not: its end may have been on its way.
    pub(super) fn unsubscribe(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if let Some(reading) = self.subscriptions.remove(&sub) {
            reading.abort();
        }
        self.turn.take_if(|turn| turn.sub == sub);
        Ok(answer("unsubscribed", Some(id), json!({})))
    }
}
