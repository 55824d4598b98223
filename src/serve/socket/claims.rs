//! Controls on a WebSocket: an agent's are taken here, and answered.

use super::connection::{Connection, Sub};
use super::message::{Asked, answer, missing, refusal};
use crate::auth::rights::Verb;
use crate::control::{Answer, Claim, Handed};
use crate::log::StoreError;
use crate::model::{AgentId, ControlId};
use crate::serve::access::{Target, allow};
use crate::serve::controls::{claimed_by, handed, refused};
use crate::serve::problem::Problem;
use crate::serve::request::id_of;
use futures_util::future::{AbortHandle, Abortable};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Somebody who takes an agent's controls here, as they come.
pub(super) struct Claimer {
    agent: AgentId,
    claim: Claim,
    /// The leases that are not answered yet, each with its end.
    out: Vec<(Box<str>, Instant)>,
    waiting: AbortHandle,
    /// Whether it has as many as it may have, and waits for one of them to be answered or lost.
    is_full: bool,
}

/// What came for a claimer: nothing, when one of its leases was lost.
pub(super) struct Came {
    sub: Sub,
    controls: Result<Vec<Handed>, StoreError>,
}

impl Connection<'_> {
    /// Takes an agent's controls from now on, as many at once as the claim says.
    pub(super) async fn claim(&mut self, asked: &Asked<'_>, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        let sub = Sub::from(id.to_string());
        if self.claimers.contains_key(&sub) {
            let detail = format!("a claim {id} is open; unclaim it, or take another id");
            return Err(Problem::new(StatusCode::CONFLICT, "id_in_use", detail).with("member", "id"));
        }
        let limit = self.app.limits.subscriptions_max;
        if self.claimers.len() >= limit {
            let detail = format!("{limit} claims are open, the limit of a connection; unclaim some, or open another");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subscriptions", detail).with("limit", limit));
        }
        let (agent, claim) = claimed_by(&asked.query(&["agentId", "max", "leaseSeconds"])?)?;
        allow(self.app, self.known()?, Verb::Publish, Target::Agent(&agent), None).await?;
        let told = answer("claiming", Some(id), json!({ "agentId": agent }));
        let (waiting, _) = AbortHandle::new_pair();
        self.claimers.insert(sub.clone(), Claimer { agent, claim, out: Vec::new(), waiting, is_full: false });
        self.claim_on(&sub);
        Ok(told)
    }

    /// Waits for what comes for a claimer, or, if it has enough, for the first of its leases to be lost.
    pub(super) fn claim_on(&mut self, sub: &Sub) {
        let Some(claimer) = self.claimers.get_mut(sub) else { return };
        let now = Instant::now();
        claimer.out.retain(|(_, until)| *until > now);
        let room = claimer.claim.max.saturating_sub(claimer.out.len());
        let first = claimer.out.iter().map(|(_, until)| *until).min().filter(|_| room == 0);
        claimer.is_full = first.is_some();
        let (app, sub, agent) = (self.app, sub.clone(), claimer.agent.clone());
        let claim = Claim { max: room, ..claimer.claim };
        let (stop, stopped) = AbortHandle::new_pair();
        claimer.waiting = stop;
        let waiting = async move {
            let controls = match first {
                Some(until) => {
                    tokio::time::sleep_until(until).await;
                    Ok(Vec::new())
                }
                None => app.controls.claim(&app.logs, &app.ingest, &agent, claim, None).await,
            };
            Came { sub, controls }
        };
        self.claims.push(Abortable::new(Box::pin(waiting), stopped));
    }

    /// Hands on what came for a claimer.
    pub(super) fn came(&mut self, came: Came) {
        let id = || serde_json::from_str::<Value>(&came.sub).ok();
        match &came.controls {
            Ok(controls) => {
                if let Some(claimer) = self.claimers.get_mut(&came.sub) {
                    let until = Instant::now() + claimer.claim.lease;
                    claimer.out.extend(controls.iter().map(|control| (control.lease.clone(), until)));
                }
                self.answers.extend(controls.iter().map(|control| answer("control", id().as_ref(), handed(control))));
                self.claim_on(&came.sub);
            }
            Err(error) => {
                self.claimers.remove(&came.sub);
                self.refuse(id().as_ref(), &Problem::from(error.clone()));
            }
        }
    }

    /// What was handed over stays with whoever has it; nothing more comes.
    pub(super) fn unclaim(&mut self, id: Option<&Value>) -> Result<String, Problem> {
        let id = id.ok_or_else(|| missing("id"))?;
        if let Some(claimer) = self.claimers.remove(&*id.to_string()) {
            claimer.waiting.abort();
        }
        Ok(answer("unclaimed", Some(id), json!({})))
    }

    /// Takes what the owner says of a control; the answer comes once that is durable.
    pub(super) async fn answer_control(
        &mut self,
        asked: &Asked<'_>,
        id: Option<&Value>,
        says: Result<Answer, Problem>,
        op: &'static str,
    ) -> Result<(), Problem> {
        let pass = allow(self.app, self.known()?, Verb::Publish, Target::Several, None).await?;
        let says = says?;
        let control: ControlId = id_of("control", asked.text("control")?)?;
        let lease: Box<str> = asked.text("lease")?.into();
        let holder = self.claimers.iter_mut().find(|(_, claimer)| claimer.out.iter().any(|(known, _)| *known == lease));
        if let Some((sub, claimer)) = holder {
            claimer.out.retain(|(known, _)| *known != lease);
            if claimer.is_full {
                claimer.waiting.abort();
                let sub = sub.clone();
                self.claim_on(&sub);
            }
        }
        let (app, id) = (self.app, id.cloned());
        self.publishes.push_back(Box::pin(async move {
            let may = |agent: &AgentId| pass.has_agent(agent);
            match app.controls.answer(&app.logs, &app.ingest, &control, &lease, says, may).await {
                Ok(status) => answer(op, id.as_ref(), json!({ "controlId": control, "status": status })),
                Err(lost) => refusal(id.as_ref(), &refused(lost)),
            }
        }));
        Ok(())
    }
}
