//! Subscriptions of a WebSocket. Ready readers take turns, a chunk each.

use super::connection::{Connection, ReadyReader, SubscriptionId};
use super::message::{ClientMessage, missing_member, reply};
use crate::auth::rights::Verb;
use crate::feed::{AnyReader, LogSet, StartAt, merged_reader};
use crate::log::LogId;
use crate::model::{Cursor, RunId, SessionId};
use crate::serve::access::authorization::{OpenAccess, Resource, authorize};
use crate::serve::api::lists;
use crate::serve::cluster::wait_until_reached;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, start_at};
use crate::serve::telemetry::meters::{Counted, Transport};
use crate::serve::transport::writers::UNSENT_BYTES_MAX;
use futures_util::future::{AbortHandle, Abortable};
use http::StatusCode;
use serde_json::{Value, json};

/// The members of a subscribe message.
const SUBSCRIBE_MEMBERS: [&str; 11] =
    ["run", "session", "children", "frames", "audience", "surfaces", "surface", "type", "agentId", "replay", "after"];

impl Connection<'_> {
    /// Reduces what the current reader holds while the socket is stalled.
    ///
    /// The reader rewinds, or keeps a copy of its small rest.
    pub(super) fn release_unsent(&mut self) {
        let Some(mut ready) = self.ready.take() else { return };
        if ready.frames.len() > UNSENT_BYTES_MAX {
            if !ready.is_last && ready.at.is_some_and(|at| ready.reader.rewind(at)) {
                return self.wait_for_frames(ready.sub, ready.reader, ready.counted, ready.access);
            }
        } else if !ready.frames.is_unique() {
            ready.frames = ready.frames.copied_after(b"");
        }
        self.ready = Some(ready);
    }

    /// Adds a reader to those that wait for their logs.
    pub(super) fn wait_for_frames(&mut self, sub: SubscriptionId, reader: AnyReader, counted: Counted, access: OpenAccess) {
        let (stop, stopped) = AbortHandle::new_pair();
        self.readers.push(Abortable::new(Box::pin(ReadyReader::wait(sub.clone(), reader, counted, access)), stopped));
        self.subscriptions.insert(sub, stop);
    }

    pub(super) async fn subscribe(&mut self, message: &ClientMessage<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?;
        let sub = SubscriptionId::from(id.to_string());
        if self.subscriptions.contains_key(&sub) {
            let detail = format!("Subscription {id} is already open. Unsubscribe it, or use another id.");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.subscriptions.len() >= limit {
            let detail = format!(
                "This connection has {limit} subscriptions open, its limit. Unsubscribe some, or open another connection."
            );
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let query = message.query(&SUBSCRIBE_MEMBERS)?;
        if message.members.contains_key("lists") {
            return self.subscribe_to_lists(message, &query, sub, id).await;
        }
        let (request, start) = (query.read_request()?, start_at(query.get("after"))?);
        let audience = request.filter.audience;
        let (app, principal) = (self.app, self.principal()?.clone());
        if let StartAt::After(cursor) = start {
            wait_until_reached(app, query.get("run"), &[cursor]).await?;
        }
        let (reader, access, epoch, sequence, recovered) = match (query.get("run"), query.get("session")) {
            (Some(run), None) => {
                let run = id_of::<RunId>("run", run)?;
                let authorization = authorize(app, &principal, Verb::Read, Resource::Run(&run), Some(audience)).await?;
                let log = LogId::Run(run);
                let tail = self.app.logs.log(&log).await?.tail();
                let is_valid = |after: Cursor| tail.epoch == Some(after.epoch) && after.after <= tail.last;
                let recovered = matches!(start, StartAt::After(after) if is_valid(after));
                let reader = AnyReader::One(self.app.feed.read(&log, request, start).await?);
                (reader, authorization.into_open_access(), tail.epoch, tail.last, recovered)
            }
            (None, Some(session)) => {
                let session = id_of::<SessionId>("session", session)?;
                let authorization = authorize(app, &principal, Verb::Read, Resource::Session(&session), Some(audience)).await?;
                let (children, takes) = (query.is_set("children"), authorization.session_filter());
                let members = LogSet::of_session(self.app.logs.clone(), session, children, takes);
                let (store_epoch, now) = (self.app.logs.store_epoch(), merged_reader::now(&self.app.logs));
                let recovered = matches!(start, StartAt::After(after) if after.epoch == store_epoch && after.after <= now);
                let reader = AnyReader::Merged(Box::new(self.app.feed.read_merged(members, request, start)));
                (reader, authorization.into_open_access(), Some(store_epoch), now, recovered)
            }
            (Some(_), Some(_)) => {
                let detail = "The message names both a run and a session. Name one of them.";
                return Err(Problem::bad_request("bad_query", detail).with("member", "session"));
            }
            (None, None) => return Err(missing_member("run")),
        };
        let counted = self.app.meters.reader(audience, Transport::WebSocket);
        self.wait_for_frames(sub, reader, counted, access);
        let epoch = epoch.map(|epoch| epoch.to_string());
        Ok(reply("subscribed", Some(id), json!({ "epoch": epoch, "sequence": sequence, "recovered": recovered })))
    }

    /// Subscribes to lists, which the member `lists` names as the query of a list stream does.
    async fn subscribe_to_lists(
        &mut self,
        message: &ClientMessage<'_>,
        query: &Query,
        sub: SubscriptionId,
        id: &Value,
    ) -> Result<String, Problem> {
        let (app, principal) = (self.app, self.principal()?.clone());
        let named = message.object("lists")?.or(query);
        let (audience, start) = (named.audience()?, start_at(named.get("after"))?);
        if let StartAt::After(cursor) = start {
            wait_until_reached(app, None, &[cursor]).await?;
        }
        let authorization = authorize(app, &principal, Verb::Read, Resource::Unspecified, Some(audience)).await?;
        let reader = lists::open(app, authorization.clone(), &named, start)?;
        let recovered = matches!(start, StartAt::After(after) if lists::resume(app, after).is_ok());
        let counted = app.meters.reader(audience, Transport::WebSocket);
        self.wait_for_frames(sub, reader, counted, authorization.into_open_access());
        let (epoch, sequence) = (app.logs.store_epoch().to_string(), merged_reader::now(&app.logs));
        Ok(reply("subscribed", Some(id), json!({ "epoch": epoch, "sequence": sequence, "recovered": recovered })))
    }

    /// Ends a subscription.
    ///
    /// It succeeds even without one, because the subscription's end may have been on its way.
    pub(super) fn unsubscribe(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?;
        let sub = SubscriptionId::from(id.to_string());
        if let Some(reading) = self.subscriptions.remove(&sub) {
            reading.abort();
        }
        self.ready.take_if(|ready| ready.sub == sub);
        Ok(reply("unsubscribed", Some(id), json!({})))
    }
}
