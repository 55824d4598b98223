//! A scripted server: a test decides the outcome of each delivery.

use super::DeliveryOutcome;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub(crate) type Sender = mpsc::UnboundedSender<ScriptedRequest>;

/// A request as the scripted server receives it.
pub(crate) struct ScriptedRequest {
    pub seq: u64,
    pub facts: Vec<Value>,
    answer: oneshot::Sender<DeliveryOutcome>,
}

pub(super) async fn deliver(script: &Sender, seq: u64, facts: &[Bytes]) -> DeliveryOutcome {
    let unreachable = || DeliveryOutcome::Retry { why: "unreachable".into(), after: None };
    let facts = facts.iter().map(|fact| serde_json::from_slice(fact).expect("a fact is JSON")).collect();
    let (answer, answered) = oneshot::channel();
    match script.send(ScriptedRequest { seq, facts, answer }) {
        Ok(()) => answered.await.unwrap_or_else(|_| unreachable()),
        Err(_) => unreachable(),
    }
}

impl ScriptedRequest {
    pub fn answer(self, answer: DeliveryOutcome) {
        assert!(self.answer.send(answer).is_ok(), "the worker waits for the answer");
    }

    pub fn take(self) -> Vec<String> {
        let names = self.names();
        self.answer(DeliveryOutcome::Accepted { duplicates: 0 });
        names
    }

    /// Returns a short name of each fact.
    pub fn names(&self) -> Vec<String> {
        self.facts.iter().map(name).collect()
    }
}

pub(crate) fn name(fact: &Value) -> String {
    let payload = &fact["payload"];
    let words = [&payload["content"], &payload["patch"], &payload["content"]["message"], &payload["message"], &payload["kind"]];
    let kind = words.into_iter().rev().find(|word| word.is_string() || word.is_array()).unwrap_or(payload);
    kind.as_str().map_or_else(|| kind.to_string(), str::to_owned)
}
