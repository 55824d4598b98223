//! Answers that one run delivers to actions of another run.

use super::Ingest;
use super::delivery::{Delivery, WriteTarget};
use super::receipt::IngestError;
use crate::log::LogId;
use crate::log::commit::Summary;
use crate::model::{Ids, RunId, SessionId};
use crate::source::{self, ActionAnswer};
use serde_json::{Value, json};
use std::sync::Arc;

/// The newest runs of a session that may receive an answer.
const ANSWERED_RUNS_MAX: usize = 64;

impl Ingest {
    /// Appends answers to the runs of the session that asked, if those are not the delivering run.
    ///
    /// This happens before the delivering run accepts its own facts. When a client sends those again, the actions are
    /// no longer pending, so no action is answered twice.
    pub(super) async fn forward_answers(&self, delivery: &Delivery, answers: Vec<ActionAnswer>) -> Result<(), IngestError> {
        let LogId::Run(own) = &delivery.log else { return Ok(()) };
        let mut by_run: Vec<(RunId, SessionId, Arc<Summary>, Vec<ActionAnswer>)> = Vec::new();
        for answer in answers {
            let Some(session) = delivery.given.session.clone().or_else(|| answer.session.clone()) else { continue };
            let index = self.core.logs.sessions();
            let (runs, owner) = (index.runs_of(&session), index.owner_of(&session));
            let is_in_scope = |run: &RunId| {
                let target = WriteTarget::Run(run, Some(&session), owner.as_ref());
                delivery.write_scope.as_ref().is_none_or(|write_scope| write_scope.allows(target))
            };
            for run in runs.into_iter().rev().filter(|run| run != own && is_in_scope(run)).take(ANSWERED_RUNS_MAX) {
                let summary = self.core.logs.log(&LogId::Run(run.clone())).await?.tail().summary;
                if !summary.run.pending.contains(answer.action.as_str()) {
                    continue;
                }
                match by_run.iter_mut().find(|(known, ..)| *known == run) {
                    Some((.., answers)) => answers.push(answer),
                    None => by_run.push((run, session, summary, vec![answer])),
                }
                break;
            }
        }
        for (run, session, summary, answers) in by_run {
            let is_all = summary.run.pending.iter().all(|asked| answers.iter().any(|answer| answer.action.as_str() == asked));
            let mut facts: Vec<_> = answers.into_iter().map(|answer| resolved(answer, own)).collect();
            if is_all && summary.run.paused {
                // The asking run had paused; only these answers were missing.
                facts.push(json!({ "type": "run.finished", "payload": { "status": "completed", "continuedBy": own } }));
            }
            let given = Ids { session: Some(session), ..Ids::default() };
            let (log, source) = (LogId::Run(run), &source::agent_ui::SOURCE);
            Box::pin(self.deliver(Delivery { given, ..Delivery::new(log, source, facts.into()) })).await?;
        }
        Ok(())
    }
}

/// The answer as a fact of the run that asked.
fn resolved(answer: ActionAnswer, by: &RunId) -> Value {
    let mut payload = json!({ "outcome": answer.outcome });
    if let Some(value) = answer.value {
        payload["value"] = value;
    }
    json!({ "type": "action.resolved", "actionId": answer.action, "payload": payload, "refs": { "answeredByRunId": by } })
}
