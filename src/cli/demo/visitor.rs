//! `--unattended`: a user who says yes to everything, for screens that nobody stands at, and for tests.
//!
//! It knows what the page knows, and does what the page does: it looks at the session, and posts a control.

use super::{Stage, story};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long somebody thinks, in milliseconds.
const THINKS: u64 = 3500;
/// From one look to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Decides whatever the team's session asks, for as long as the demo lasts.
pub(super) async fn decide(stage: Arc<Stage>) {
    for round in 1.. {
        let session = story::session(round);
        while !decide_once(&stage, &session).await {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Looks at the session, and answers what it asks; whether its story is over.
async fn decide_once(stage: &Stage, session: &str) -> bool {
    // Before the first fact there is no session yet.
    let Ok(shown) = stage.api.session(session).await else { return false };
    for action in shown["pendingActions"].as_array().into_iter().flatten() {
        let content = &action["content"];
        if content["control"] == "submitted" {
            continue;
        }
        stage.pause(THINKS).await;
        let (run, mut control) = (action["runId"].as_str().unwrap_or_default(), json!({ "actionId": action["activityId"] }));
        control["control"] = "approve".into();
        if !content["schema"].is_null() {
            control["control"] = "answer".into();
            control["value"] = example(&content["schema"]);
        }
        // It may have been decided meanwhile, at the page.
        if let Err(error) = stage.api.control(run, &control).await {
            tracing::info!(%error, run, "not decided");
        }
    }
    shown["runs"]
        .as_array()
        .is_some_and(|runs| runs.iter().any(|run| run["runId"] == story::run(session, "release") && story::is_over(run)))
}

/// A value that a schema takes: the default, else the first choice, else the least of its type.
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
        _ => "as you like".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_what_is_asked() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string", "default": "d" }, "b": { "enum": ["x", "y"] }, "c": { "type": "boolean" }, "n": { "type": "integer", "minimum": 3 },
        } });
        assert_eq!(example(&schema), json!({ "a": "d", "b": "x", "c": true, "n": 3 }));
    }
}
