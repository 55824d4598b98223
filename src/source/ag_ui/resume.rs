//! The answers that a run's start brings to actions of earlier runs.
//!
//! AG-UI has no event that resolves an interrupt: the next run's input contains the answers. That run may have a
//! different log than the action. So this module reads the answers from the fact alone, without memory.

use super::TYPE;
use crate::model::{ActionId, SessionId};
use crate::source::{ActionAnswer, Fact};
use serde_json::Value;

/// Returns the answers in a `RUN_STARTED`; none for other facts.
/// It ignores entries with an unknown status.
pub(super) fn answers(fact: &Fact) -> Vec<ActionAnswer> {
    if fact.get(TYPE).and_then(Value::as_str) != Some("RUN_STARTED") {
        return Vec::new();
    }
    let resume = fact.get("input").and_then(|input| input.get("resume")).and_then(Value::as_array);
    // The thread is the session unless the request names another.
    let session = fact.get("threadId").and_then(Value::as_str).and_then(|thread| SessionId::new(thread).ok());
    resume.into_iter().flatten().filter_map(|entry| answer(entry, session.clone())).collect()
}

fn answer(entry: &Value, session: Option<SessionId>) -> Option<ActionAnswer> {
    let action = ActionId::new(entry.get("interruptId")?.as_str()?).ok()?;
    let value = entry.get("payload").filter(|payload| !payload.is_null());
    let outcome = match (entry.get("status")?.as_str()?, value.and_then(|value| value.get("approved"))) {
        ("resolved", Some(Value::Bool(true))) => "approved",
        ("resolved", Some(Value::Bool(false))) => "rejected",
        ("resolved", _) => "answered",
        ("cancelled", _) => "cancelled",
        _ => return None,
    };
    Some(ActionAnswer { action, session, outcome, value: value.cloned() })
}
