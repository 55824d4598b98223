//! `--unattended`: approves every request, for unattended screens and for tests.
//!
//! It uses the same API as the page: it reads the session and submits controls.

use super::{Context, story};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The simulated time for a decision, in milliseconds.
const DECISION_MS: u64 = 3500;
/// The interval between two reads of the session.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Answers every pending action of the team's sessions until the demo ends.
pub(super) async fn decide(context: Arc<Context>) {
    for round in 1.. {
        let session = story::session(round);
        decide_all(&context, &session, &story::lead_run(&session)).await;
    }
}

/// Answers every pending action of an errand.
pub(super) async fn decide_errand(context: Arc<Context>, errand: story::Errand) {
    decide_all(&context, errand.session, errand.run).await;
}

/// Answers every pending action of a session until this run of it ends.
async fn decide_all(context: &Context, session: &str, run: &str) {
    while !decide_once(context, session, run).await {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Answers the pending actions of the session; returns whether this run of it has ended.
async fn decide_once(context: &Context, session: &str, until: &str) -> bool {
    // The session does not exist before its first fact.
    let Ok(shown) = context.api.session(session).await else { return false };
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
    shown["runs"].as_array().is_some_and(|runs| runs.iter().any(|run| run["runId"] == until && story::is_over(run)))
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
