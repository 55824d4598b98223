//! `--unattended`: approves every request, for unattended screens and for tests.
//!
//! It uses the same API as the page: it reads the session and submits controls.

use super::Context;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The simulated time for a decision, in milliseconds.
const DECISION_MS: u64 = 3500;
/// The interval between two reads of the session.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Answers every pending action of a session, and never returns.
pub async fn decide(context: &Context, session: &str) {
    loop {
        // The session does not exist before its first fact.
        let shown = context.api.session(session).await.unwrap_or_default();
        for action in shown["pendingActions"].as_array().into_iter().flatten() {
            let content = &action["content"];
            if content["control"] == "submitted" {
                continue;
            }
            context.pause(DECISION_MS).await;
            let (run, mut control) = (action["runId"].as_str().unwrap_or_default(), json!({ "actionId": action["activityId"] }));
            control["control"] = "approve".into();
            if !content["schema"].is_null() {
                control["control"] = "answer".into();
                control["value"] = example(&content["schema"]);
            }
            // The viewer may have answered on the page meanwhile.
            if let Err(error) = context.api.control(run, &control).await {
                tracing::info!(%error, run, "cannot submit a decision");
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns a value that the schema accepts.
///
/// It is the default, else the first choice, else the minimum of the type.
fn example(schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let members = schema["properties"].as_object().into_iter().flatten();
            Value::Object(members.map(|(name, of)| (name.clone(), example(of))).collect::<Map<_, _>>())
        }
        Some("boolean") => true.into(),
        Some("number" | "integer") => schema["minimum"].as_i64().unwrap_or(0).into(),
        Some("array") => json!([]),
        _ => "your choice".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_matches_the_schema() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string", "default": "d" }, "b": { "enum": ["x", "y"] }, "c": { "type": "boolean" }, "n": { "type": "integer", "minimum": 3 },
        } });
        assert_eq!(example(&schema), json!({ "a": "d", "b": "x", "c": true, "n": 3 }));
    }
}
