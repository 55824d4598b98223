//! What the client answers: decisions about actions. The first decision of any face stands.

use super::connection::{Asked, Connection, Job};
use super::session::log_of;
use crate::auth::rights::Verb;
use crate::control::rules::ControlRequest;
use crate::encode::acp::{ANSWER, Ask, AskedQuestion};
use crate::log::LogId;
use crate::model::decided_by::Via;
use crate::model::options::Effect;
use crate::model::{Control, ControlId};
use crate::serve::access::authorization::{Resource, authorize};
use crate::serve::api::controls::control_problem;
use crate::serve::clients::requests::hashed_id;
use futures_util::FutureExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl Connection {
    /// Takes an answer of the client. A late one, or a second one, changes nothing.
    pub(super) fn take_answer(&mut self, id: &Value, outcome: Result<Value, Value>) {
        let Some(Asked { session, question }) = id.as_u64().and_then(|id| self.asked.remove(&id)) else { return };
        // An error, and `cancelled`, decide nothing: the action waits for other clients.
        let Some((control, value)) = outcome.ok().and_then(|result| decision(&question, &result)) else { return };
        let (app, principal, audience) = (self.app.clone(), self.terms.principal.clone(), self.terms.audience);
        let number = id.to_string();
        self.jobs.push(
            async move {
                let decided = async {
                    let log = log_of(&session, &question.key.run);
                    let resource = match &log {
                        LogId::Run(run) => Resource::Run(run),
                        LogId::Session(session) => Resource::Session(session),
                    };
                    let authorization = authorize(&app, &principal, Verb::Control, resource, Some(audience)).await?;
                    app.disk.check_space()?;
                    let by = authorization.requester(audience, Via::Acp);
                    let random = (app.environment.random)().to_string();
                    let parts = [&*question.key.run, &question.key.id, session.as_str(), &number, &random];
                    let control_id = ControlId::new(&hashed_id(&parts)).expect("a short name is an id");
                    let targets = BTreeMap::from([("actionId".to_owned(), question.key.id.to_string())]);
                    let request = ControlRequest {
                        version: Some(question.version),
                        ..ControlRequest::new(control_id, control, targets, value)
                    };
                    app.controls.submit(&app.logs, &app.ingest, &log, &request, &by).await.map_err(control_problem)
                };
                if let Err(problem) = decided.await {
                    tracing::debug!(code = problem.code, reason = problem.detail, "a decision of an ACP client is refused");
                }
                Job::Done
            }
            .boxed(),
        );
    }
}

/// The control and its value for an answer. `None`: it decides nothing.
fn decision(question: &AskedQuestion, result: &Value) -> Option<(Control, Option<Value>)> {
    match &question.ask {
        Ask::Permission(_) => {
            let outcome = &result["outcome"];
            let option = outcome["optionId"].as_str().filter(|_| outcome["outcome"] == "selected")?;
            if question.effects.is_empty() {
                return match option {
                    "approve" => Some((Control::Approve, None)),
                    "reject" => Some((Control::Reject, None)),
                    _ => None,
                };
            }
            let effect = question.effects.iter().find(|(id, _)| **id == *option)?.1;
            let control = match effect {
                Effect::Allow => Control::Approve,
                Effect::Reject => Control::Reject,
                Effect::Answer => Control::Answer,
            };
            Some((control, Some(json!({ "optionId": option }))))
        }
        Ask::Elicitation(_) => match result["action"].as_str()? {
            "accept" => {
                let content = result.get("content").cloned().unwrap_or_default();
                let value = if question.is_plain_answer { content.get(ANSWER).cloned().unwrap_or_default() } else { content };
                Some((Control::Answer, Some(value)))
            }
            "decline" => Some((Control::Reject, None)),
            _ => None,
        },
    }
}
