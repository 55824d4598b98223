//! Controls on a WebSocket: submitting them, and claiming and answering an agent's controls.

use super::connection::{ClaimResult, Claimer, Connection, SubscriptionId};
use super::message::{ClientMessage, missing_member, refusal, reply};
use crate::auth::rights::Verb;
use crate::control::{Answer, Claim, Requester};
use crate::log::LogId;
use crate::model::decided_by::Via;
use crate::model::{AgentId, ControlId};
use crate::serve::access::authorization::{Resource, authorize};
use crate::serve::api::controls::{self, check_size, claim_request, control_json, control_problem};
use crate::serve::http::body::check_depth;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::id_of;
use futures_util::future::{AbortHandle, Abortable};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

impl Connection<'_> {
    /// Opens a claim for an agent's controls, with the claim's limit on unanswered ones.
    pub(super) async fn claim(&mut self, message: &ClientMessage<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?;
        let sub = SubscriptionId::from(id.to_string());
        if self.claimers.contains_key(&sub) {
            let detail = format!("Claim {id} is already open. Unclaim it, or use another id.");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.claimers.len() >= limit {
            let detail = format!("This connection has {limit} claims open, its limit. Unclaim some, or open another connection.");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let (agent, claim) = claim_request(&message.query(&["agentId", "max", "leaseSeconds"])?)?;
        let authorization = authorize(self.app, self.principal()?, Verb::Publish, Resource::Agent(&agent), None).await?;
        let claim = Claim { covers: authorization.claim_filter(), ..claim };
        let body = reply("claiming", Some(id), json!({ "agentId": agent }));
        let (waiting, _) = AbortHandle::new_pair();
        self.claimers.insert(sub.clone(), Claimer { agent, claim, open_leases: Vec::new(), waiting, is_full: false });
        self.wait_for_controls(&sub);
        Ok(body)
    }

    /// Waits for controls of a claim, or, at its limit, for the first of its leases to expire.
    pub(super) fn wait_for_controls(&mut self, sub: &SubscriptionId) {
        let Some(claimer) = self.claimers.get_mut(sub) else { return };
        let now = Instant::now();
        claimer.open_leases.retain(|(_, until)| *until > now);
        let room = claimer.claim.max.saturating_sub(claimer.open_leases.len());
        let first = claimer.open_leases.iter().map(|(_, until)| *until).min().filter(|_| room == 0);
        claimer.is_full = first.is_some();
        let (app, sub, agent, peer) = (self.app, sub.clone(), claimer.agent.clone(), self.peer.clone());
        let claim = Claim { max: room, ..claimer.claim.clone() };
        let (stop, stopped) = AbortHandle::new_pair();
        claimer.waiting = stop;
        let waiting = async move {
            let controls = match first {
                Some(until) => {
                    tokio::time::sleep_until(until).await;
                    Ok(Vec::new())
                }
                None => {
                    let is_present = || peer.as_ref().is_none_or(|peer| !peer.has_left());
                    app.controls.claim(&app.logs, &app.ingest, &agent, claim, None, is_present).await
                }
            };
            ClaimResult { sub, controls }
        };
        self.claims.push(Abortable::new(Box::pin(waiting), stopped));
    }

    /// Sends the controls of a claim.
    pub(super) fn deliver_claim(&mut self, result: ClaimResult) {
        let id = || serde_json::from_str::<Value>(&result.sub).ok();
        match &result.controls {
            Ok(controls) => {
                if let Some(claimer) = self.claimers.get_mut(&result.sub) {
                    let until = Instant::now() + claimer.claim.lease;
                    claimer.open_leases.extend(controls.iter().map(|control| (control.lease.clone(), until)));
                }
                self.replies.extend(controls.iter().map(|control| reply("control", id().as_ref(), control_json(control))));
                self.wait_for_controls(&result.sub);
            }
            Err(error) => {
                self.claimers.remove(&result.sub);
                self.refuse(id().as_ref(), &Problem::from(error.clone()));
            }
        }
    }

    /// Ends a claim. Controls already sent keep their leases.
    pub(super) fn unclaim(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?;
        if let Some(claimer) = self.claimers.remove(&*id.to_string()) {
            claimer.waiting.abort();
        }
        Ok(reply("unclaimed", Some(id), json!({})))
    }

    /// Submits a control to a run or a session. The reply follows once it is durable.
    pub(super) async fn submit_control(
        &mut self,
        text: &str,
        message: &ClientMessage<'_>,
        id: Option<&Value>,
    ) -> Result<(), Problem> {
        let id = id.ok_or_else(|| missing_member("id"))?.clone();
        let query = message.query(&["runId", "sessionId", "audience", "owner"])?;
        let log = match (query.get("runId"), query.get("sessionId")) {
            (Some(run), _) => LogId::Run(id_of("runId", run)?),
            (None, Some(session)) => LogId::Session(id_of("sessionId", session)?),
            (None, None) => return Err(missing_member("runId")),
        };
        let resource = match &log {
            LogId::Run(run) => Resource::Run(run),
            LogId::Session(session) => Resource::Session(session),
        };
        let audience = query.audience()?;
        let (app, principal) = (self.app, self.principal()?.clone());
        let authorization = authorize(app, &principal, Verb::Control, resource, Some(audience)).await?;
        app.disk.check_space()?;
        check_size(text.len())?;
        check_depth(text.as_bytes(), app.limits.depth_max)?;
        let by = Requester { owner: authorization.requested_owner(&query)?, ..authorization.requester(audience, Via::Ws) };
        let mut body = message.members.clone();
        body.retain(|member, _| !["op", "id", "audience", "owner"].contains(&member.as_str()));
        self.publishes.push_back(Box::pin(async move {
            match controls::submit(app, &authorization, &log, body, by).await {
                Ok(submitted) => reply("submitted", Some(&id), submitted),
                Err(problem) => refusal(Some(&id), &problem),
            }
        }));
        Ok(())
    }

    /// Submits the owner's answer to a control. The reply follows once it is durable.
    pub(super) async fn answer_control(
        &mut self,
        message: &ClientMessage<'_>,
        id: Option<&Value>,
        answer: Result<Answer, Problem>,
        op: &'static str,
    ) -> Result<(), Problem> {
        let authorization = authorize(self.app, self.principal()?, Verb::Publish, Resource::Unspecified, None).await?;
        let answer = answer?;
        let control: ControlId = id_of("control", message.text("control")?)?;
        let lease: Box<str> = message.text("lease")?.into();
        let holder = self.claimers.iter_mut().find(|(_, claimer)| claimer.open_leases.iter().any(|(known, _)| *known == lease));
        if let Some((sub, claimer)) = holder {
            claimer.open_leases.retain(|(known, _)| *known != lease);
            if claimer.is_full {
                claimer.waiting.abort();
                let sub = sub.clone();
                self.wait_for_controls(&sub);
            }
        }
        let (app, id) = (self.app, id.cloned());
        self.publishes.push_back(Box::pin(async move {
            let may = |agent: &AgentId| authorization.has_agent(agent);
            match app.controls.answer(&app.logs, &app.ingest, &control, &lease, answer, may).await {
                Ok(status) => reply(op, id.as_ref(), json!({ "controlId": control, "status": status })),
                Err(lost) => refusal(id.as_ref(), &control_problem(lost)),
            }
        }));
        Ok(())
    }
}
