//! The answers that a run's start brings for what an earlier run has asked.
//!
//! AG-UI has no event that resolves an interrupt: the next run's input says how each was answered, and that run may be
//! another log than the one that holds the action. So they are read off the fact alone, without any memory.

use super::TYPE;
use crate::model::ActionId;
use crate::source::Fact;
use serde_json::Value;

/// How an action was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The interrupt's id.
    pub action: ActionId,
    /// `approved`, `rejected`, `answered` or `cancelled`.
    pub outcome: &'static str,
    /// What was answered.
    pub value: Option<Value>,
}

/// The answers in a `RUN_STARTED`; none in any other fact. An entry of a status that nobody knows says nothing.
#[must_use]
pub fn answers(fact: &Fact) -> Vec<Answer> {
    if fact.get(TYPE).and_then(Value::as_str) != Some("RUN_STARTED") {
        return Vec::new();
    }
    let resume = fact.get("input").and_then(|input| input.get("resume")).and_then(Value::as_array);
    resume.into_iter().flatten().filter_map(answer).collect()
}

fn answer(entry: &Value) -> Option<Answer> {
    let action = ActionId::new(entry.get("interruptId")?.as_str()?).ok()?;
    let value = entry.get("payload").filter(|payload| !payload.is_null());
    let outcome = match (entry.get("status")?.as_str()?, value.and_then(|value| value.get("approved"))) {
        ("resolved", Some(Value::Bool(true))) => "approved",
        ("resolved", Some(Value::Bool(false))) => "rejected",
        ("resolved", _) => "answered",
        ("cancelled", _) => "cancelled",
        _ => return None,
    };
    Some(Answer { action, outcome, value: value.cloned() })
}
