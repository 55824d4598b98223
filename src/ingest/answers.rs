//! Answers that one run brings and another asked for.

use super::Ingest;
use super::delivery::{Delivery, Reach};
use super::receipt::IngestError;
use crate::log::run::Summary;
use crate::log::{LogId, Store};
use crate::model::{Ids, RunId, SessionId};
use crate::source::{self, Answer};
use serde_json::{Value, json};
use std::sync::Arc;

/// The newest runs of a session that are asked whether an answer is for them.
const ASKING_RUNS_MAX: usize = 64;

impl<S: Store> Ingest<S> {
    /// Appends answers to the runs of the session that asked, where that is another run than the one that brings them. It is
    /// done before that run's own facts are taken: when they are sent again, what was asked is not pending any more, and
    /// nothing is answered twice.
    pub(super) async fn pass_on(&self, delivery: &Delivery, answers: Vec<Answer>) -> Result<(), IngestError> {
        let LogId::Run(own) = &delivery.log else { return Ok(()) };
        let mut by_run: Vec<(RunId, SessionId, Arc<Summary>, Vec<Answer>)> = Vec::new();
        for answer in answers {
            let Some(session) = delivery.given.session.clone().or_else(|| answer.session.clone()) else { continue };
            let runs = self.core.logs.sessions().runs_of(&session);
            let is_inside = |run: &RunId| delivery.fence.as_ref().is_none_or(|fence| fence.has(Reach::Run(run, Some(&session))));
            for run in runs.into_iter().rev().filter(|run| run != own && is_inside(run)).take(ASKING_RUNS_MAX) {
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
                // It had said all that it would, but for these answers.
                facts.push(json!({ "type": "run.finished", "payload": { "status": "completed", "continuedBy": own } }));
            }
            let given = Ids { session: Some(session), ..Ids::default() };
            let (log, source) = (LogId::Run(run), &source::agent_ui::SOURCE);
            let (producer, life, fence) = (None, None, None);
            let delivery = Delivery { log, source, given, producer, facts: facts.into(), atomic: true, life, fence };
            Box::pin(self.deliver(delivery)).await?;
        }
        Ok(())
    }
}

/// An answer as a fact of the run that asked.
fn resolved(answer: Answer, by: &RunId) -> Value {
    let mut payload = json!({ "outcome": answer.outcome });
    if let Some(value) = answer.value {
        payload["value"] = value;
    }
    json!({ "type": "action.resolved", "actionId": answer.action, "payload": payload, "refs": { "answeredByRunId": by } })
}
