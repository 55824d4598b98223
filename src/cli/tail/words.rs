//! Words for the envelopes that need no rule of their own: what it is about, how that stands, and what was said of it.

use super::event::Event;
use crate::cli::screen::one_line;
use serde_json::Value;

/// Members of a payload that name what an envelope is about, the first one wins.
const NAMES: [&str; 7] = ["title", "name", "label", "summary", "objective", "agentName", "toolName"];
/// Members that say how it stands.
const STATES: [&str; 4] = ["status", "state", "outcome", "thumb"];
/// Members that say more about it.
const DETAILS: [&str; 5] = ["message", "text", "reason", "description", "note"];
/// Scalar members that are shown of a payload without any of these.
const SCALARS_MAX: usize = 4;

/// An envelope in words, such as `task "Write the tests": running, half of them pass`.
pub fn words(event: &Event<'_>) -> String {
    let event_type = event.id("type");
    let family = event_type.split('.').next().unwrap_or(event_type);
    let what = event_type.strip_suffix(".changed").unwrap_or(event_type).replace(['.', '_'], " ");
    let first = |members: &[&str]| members.iter().map(|member| event.text(member)).find(|text| !text.is_empty());
    let id = event.id(&format!("{family}Id"));
    let name = match first(&NAMES) {
        Some(name) => format!(" {name:?}"),
        None if id.is_empty() => String::new(),
        None => format!(" {id}"),
    };
    let error = Some(event.error()).filter(|error| !error.is_empty());
    let said: Vec<_> = [first(&STATES).map(str::to_owned), error, first(&DETAILS).map(one_line)].into_iter().flatten().collect();
    let said = if said.is_empty() && first(&NAMES).is_none() { scalars(event) } else { said };
    let withheld = if event.payload("withheld") == Some(&Value::Bool(true)) { " (not for this audience)" } else { "" };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{what}{name}{colon}{}{withheld}", said.join(", "))
}

/// The first scalar members of the payload.
fn scalars(event: &Event<'_>) -> Vec<String> {
    let members = event.0.get("payload").and_then(Value::as_object).into_iter().flatten();
    let shown = members.filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name} {}", one_line(text))),
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::Bool(flag) if name != "withheld" => Some(format!("{name} {flag}")),
        _ => None,
    });
    shown.take(SCALARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_envelope_of_any_type_is_a_sentence() {
        let of = |event: Value| words(&Event(event.as_object().unwrap()));
        let task = json!({ "type": "task.changed", "taskId": "t", "payload": { "title": "Write the tests", "status": "running", "message": "half of\nthem pass" } });
        assert_eq!(of(task), "task \"Write the tests\": running, half of them pass");
        let failed = json!({ "type": "artifact.failed", "artifactId": "a", "payload": { "error": { "code": "disk", "message": "full" } } });
        assert_eq!(of(failed), "artifact failed a: disk: full");
        let metric =
            json!({ "type": "metric.changed", "payload": { "inputTokens": 12, "model": "m", "nested": {}, "isFinal": true } });
        assert_eq!(of(metric), "metric: inputTokens 12, model m, isFinal true");
        assert_eq!(of(json!({ "type": "state.delta", "payload": { "withheld": true } })), "state delta (not for this audience)");
        assert_eq!(of(json!({ "type": "hologram.of.tomorrow" })), "hologram of tomorrow");
    }
}
