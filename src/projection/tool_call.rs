//! `tool-call-progress`: a tool call from its first argument to its last output, as seed 002's `tool-call-progress.v1` with
//! the lifecycle of seed 003 beside it.
//!
//! `status` is what the call's author reports (pending, running, done, failed, cancelled), `state` where the call is in its
//! life. An end is final: late progress changes the `message` only, and a call that starts again is a new attempt.

use super::seen::Seen;
use super::stage::Edit;
use super::{Scene, number};
use crate::model::{EventType, Phase, Surface};
use serde_json::{Map, Value, json};

/// Also the `activityType` that seed 002's reporters use.
pub(super) const KIND: &str = "tool-call-progress";

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    use EventType as E;
    if seen.ends_run() {
        return end_all(scene);
    }
    if let E::ActionRequired = seen.class {
        return ask(seen, scene);
    }
    let (Some(id), E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed) =
        (&seen.ids.tool_call, &seen.class)
    else {
        return;
    };
    if seen.class == E::ToolProgress && seen.text("activityType").is_some_and(|kind| kind != KIND) {
        return;
    }
    let id = id.as_str();
    let is_known = scene.stage.get(KIND, id).is_some();
    let mut edit = scene.stage.open(KIND, id, Surface::ToolUi, seen.ids.agent.as_ref());
    if !is_known {
        begin(&mut edit, id);
    }
    edit.set_some("tool_name", seen.text("toolName").filter(|name| !name.is_empty()));
    let parent = seen.related("parentToolCallId").or_else(|| seen.get("parentToolCallId")).cloned();
    edit.set_some("parent_call_id", parent.filter(Value::is_string));
    match seen.class {
        E::ToolStarted => start(seen, &mut edit, id),
        E::ToolArgs => args(seen, &mut edit),
        E::ToolProgress => progress(seen, &mut edit),
        E::ToolOutputDelta => output(seen, &mut edit),
        _ => end(seen, &mut edit),
    }
}

fn begin(edit: &mut Edit<'_>, id: &str) {
    edit.set("schema", "tool-call-progress.v1");
    edit.set("node_id", id);
    edit.set("call_id", id);
    edit.set("tool_name", "");
    edit.say("status", "pending");
}

fn has_ended(edit: &Edit<'_>) -> bool {
    matches!(edit.text("state"), Some("output-available" | "output-error" | "cancelled"))
}

fn start(seen: &Seen, edit: &mut Edit<'_>, id: &str) {
    if has_ended(edit) {
        let name = edit.text("tool_name").unwrap_or_default().to_owned();
        edit.replace(Map::new());
        begin(edit, id);
        edit.set("tool_name", name);
    }
    edit.say("status", "running");
    edit.say("state", "running");
    edit.set_some("input", seen.get("input").cloned());
}

fn args(seen: &Seen, edit: &mut Edit<'_>) {
    let may_move = matches!(edit.text("state"), None | Some("running" | "input-streaming" | "input-available"));
    if let Some(input) = seen.payload.get("input") {
        edit.remove("input_text");
        edit.set("input", input.clone());
        if may_move {
            edit.say("state", "input-available");
        }
    } else if let Some(chunk) = seen.text("inputText") {
        edit.append("input_text", chunk);
        if may_move {
            edit.say("state", "input-streaming");
        }
    }
}

fn progress(seen: &Seen, edit: &mut Edit<'_>) {
    // A reporter may hand over the whole state as an activity's content.
    let content = seen.text("activityType").and_then(|_| seen.payload.get("content")).and_then(Value::as_object);
    let get = |member: &str| match content {
        Some(content) => content.get(member).filter(|value| !value.is_null()),
        None => seen.get(member),
    };
    let text = |member: &str| get(member).and_then(Value::as_str);
    edit.set_some("message", text("message"));
    if has_ended(edit) {
        return;
    }
    if let Some(patch) = seen.get("patch").filter(|_| content.is_none() && seen.get("activityType").is_some()) {
        // What cannot be applied changes nothing; the fact is in the log as it came.
        let _ = edit.apply(&super::custom::operations(patch));
        return;
    }
    for member in ["tool_name", "node_id", "parent_node_id", "parent_call_id"] {
        edit.set_some(member, text(member).filter(|text| !text.is_empty()));
    }
    for member in ["progress", "loaded", "total"] {
        edit.set_some(member, number(get(member)));
    }
    edit.say("status", text("status").unwrap_or("running"));
    edit.say("state", "progress");
}

fn output(seen: &Seen, edit: &mut Edit<'_>) {
    edit.append("output_text", seen.text("text").unwrap_or_default());
    refer(seen, edit);
    if !has_ended(edit) {
        edit.say("status", "running");
        edit.say("state", "progress");
    }
}

fn end(seen: &Seen, edit: &mut Edit<'_>) {
    let (status, state) = match (&seen.class, &seen.phase) {
        (EventType::ToolResult, _) => ("done", "output-available"),
        // It did not fail: somebody stopped it, or it never ran to an end.
        (_, Phase::Cancelled | Phase::Interrupted) => ("cancelled", "cancelled"),
        _ => ("failed", "output-error"),
    };
    edit.say("status", status);
    edit.say("state", state);
    edit.set_some("duration_ms", number(seen.get("durationMs")));
    if seen.is_withheld() {
        return edit.set("withheld", true);
    }
    edit.remove("withheld");
    edit.set_some("output", seen.payload.get("output").cloned());
    edit.set_some("structured", seen.get("structured").cloned());
    edit.set_some("cost_usd", number(seen.get("costUsd")));
    edit.set_some("truncated", seen.get("truncated").cloned());
    edit.set_some("untrusted", seen.get("untrusted").cloned());
    if state == "output-available" {
        edit.remove("error");
    } else {
        edit.set_some(
            "error",
            seen.get("error").map(|error| match error {
                Value::Object(_) => error.clone(),
                Value::String(message) => json!({ "message": message }),
                other => json!({ "message": other.to_string() }),
            }),
        );
        edit.set_some("never_started", seen.get("neverStarted").cloned());
    }
    refer(seen, edit);
}

fn refer(seen: &Seen, edit: &mut Edit<'_>) {
    edit.set_some("output_ref", seen.get("outputRef").or_else(|| seen.related("output")).cloned());
}

/// An approval that is about this call.
fn ask(seen: &Seen, scene: &mut Scene) {
    let (Some(call), Some(action)) = (&seen.ids.tool_call, &seen.ids.action) else { return };
    if let Some(mut edit) = scene.stage.edit(KIND, call.as_str()) {
        edit.set("action_id", action.as_str());
    }
}

/// The run has ended: no call goes on. One whose author reported an end of it keeps that.
fn end_all(scene: &mut Scene) {
    let ended = ["output-available", "output-error", "cancelled"];
    let state = |state: Option<&Value>| state.and_then(Value::as_str).is_some_and(|state| ended.contains(&state));
    for id in scene.stage.ids(KIND, |call| !state(call.content.get("state"))) {
        let mut edit = scene.stage.edit(KIND, &id).expect("just listed");
        let state = match edit.text("status") {
            Some("done") => "output-available",
            Some("failed") => "output-error",
            _ => {
                edit.say("status", "cancelled");
                "cancelled"
            }
        };
        edit.say("state", state);
    }
}
