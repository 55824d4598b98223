//! `tool-call-progress`: a tool call from its first argument to its last output, as seed 002's `tool-call-progress.v1` with
//! the lifecycle of seed 003 beside it.
//!
//! `status` is what the call's author reports (pending, running, done, failed, cancelled), `state` where the call is in its
//! life. An end is final: late progress changes the `message` only, and a call that starts again is a new attempt. A call whose
//! result somebody outside of the run has to give (`awaits`) outlives the run's end, until it comes.

use super::seen::Seen;
use super::stage::Edit;
use super::{Scene, diagnostics, number, patch};
use crate::model::{EventType, MessageId, Phase, Surface, ToolCallId};
use serde_json::{Map, Value, json};

/// Also the `activityType` that seed 002's reporters use.
pub(super) const KIND: &str = "tool-call-progress";

/// Seed 002's `ProgressStatus`.
pub(super) const STATUSES: &[&str] = &["pending", "running", "done", "failed", "cancelled"];

/// Seed 003's tool lifecycle.
#[rustfmt::skip]
pub(super) const STATES: &[&str] = &[
    "input-streaming", "input-available", "running", "progress", "output-available", "output-error", "cancelled",
];

/// Seed 002's `ToolCallProgressState`.
#[rustfmt::skip]
const REPORTED: &[&str] = &[
    "schema", "node_id", "call_id", "tool_name", "status", "progress", "loaded", "total", "message", "parent_node_id",
    "parent_call_id",
];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    use EventType as E;
    if let E::ActionRequired = seen.class {
        return ask(seen, scene);
    }
    // A reporter's activity, by whatever class it came.
    let is_report = matches!(seen.class, E::ToolProgress | E::StateSnapshot | E::StateDelta)
        && seen.text("activityType").map_or(seen.class == E::ToolProgress, |kind| kind == KIND);
    if !is_report && !matches!(seen.class, E::ToolStarted | E::ToolArgs | E::ToolOutputDelta | E::ToolResult | E::ToolFailed) {
        return;
    }
    let Some(id) = call(seen) else { return };
    let is_known = scene.stage.get(KIND, id).is_some();
    let mut edit = scene.stage.open(KIND, id, Surface::ToolUi, seen.ids.agent.as_ref());
    if !is_known {
        begin(&mut edit, id);
    }
    if seen.class == E::ToolStarted && has_ended(&edit) {
        begin_again(&mut edit, id);
    }
    if is_report {
        if let Err(error) = progress(seen, &mut edit) {
            let note = json!({ "kind": "patch_not_applied", "activityType": KIND, "activityId": id, "error": error });
            diagnostics::note(scene, note);
        }
        return;
    }
    name(seen, &mut edit);
    match seen.class {
        E::ToolStarted => start(seen, &mut edit),
        E::ToolArgs => args(seen, &mut edit),
        E::ToolOutputDelta => output(seen, &mut edit),
        _ => end(seen, &mut edit),
    }
}

/// The call that the fact is about. An activity may give the id in its content, or, as Awaken does, in the place of a message's.
fn call(seen: &Seen) -> Option<&str> {
    let of = seen.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let is_activity = seen.text("activityType").is_some();
    let told = || seen.said("content").and_then(|content| content.get("call_id")).and_then(Value::as_str);
    let named = || told().filter(|id| ToolCallId::new(id).is_ok()).or_else(|| seen.ids.message.as_ref().map(MessageId::as_str));
    if is_activity { of.or_else(named) } else { of }
}

/// What the call is of, where the fact says so.
fn name(seen: &Seen, edit: &mut Edit<'_>) {
    edit.set_some("tool_name", seen.text("toolName").filter(|name| !name.is_empty()));
    let parent = seen.related("parentToolCallId").or_else(|| seen.get("parentToolCallId")).cloned();
    edit.set_some("parent_call_id", parent.filter(Value::is_string));
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

/// A call that only the server closed, for nobody was heard of its run, goes on when it is heard of again.
fn reopen(edit: &mut Edit<'_>) -> bool {
    let is_ours = edit.get("synthetic").is_some();
    edit.remove("synthetic");
    is_ours
}

/// Another attempt under the same id: readers get it as a whole.
fn begin_again(edit: &mut Edit<'_>, id: &str) {
    let kept = ["tool_name", "reported"].map(|member| (member, edit.get(member).cloned()));
    edit.replace(Map::new());
    begin(edit, id);
    for (member, value) in kept {
        edit.set_some(member, value);
    }
}

fn start(seen: &Seen, edit: &mut Edit<'_>) {
    edit.remove("awaits");
    edit.say("status", "running");
    edit.say("state", "running");
    edit.set_some("input", seen.get("input").cloned());
}

fn args(seen: &Seen, edit: &mut Edit<'_>) {
    let may_move = matches!(edit.text("state"), None | Some("running" | "input-streaming" | "input-available"));
    let mut state = None;
    if let Some(input) = seen.payload.get("input") {
        edit.remove("input_text");
        edit.set("input", input.clone());
        state = Some("input-available");
    } else if let Some(chunk) = seen.text("inputText") {
        edit.append("input_text", chunk);
        state = Some("input-streaming");
    }
    if state != Some("input-available") && seen.text("state") == Some("input-available") {
        streamed(edit);
        state = Some("input-available");
    }
    if let Some(state) = state.filter(|_| may_move) {
        edit.say("state", state);
    }
}

/// The arguments are complete, and were streamed. What is no JSON stays as it came.
fn streamed(edit: &mut Edit<'_>) {
    let input = serde_json::from_str::<Value>(edit.joined("input_text")).ok();
    if let Some(input) = input.filter(|input| patch::is_shallow("/input", input).is_ok()) {
        edit.remove("input_text");
        edit.set("input", input);
    }
}

/// What the call's author reports: members of a fact, seed 002's state as an activity's content, or a patch of that.
///
/// # Errors
/// Why a patch does not apply. It has changed nothing.
fn progress(seen: &Seen, edit: &mut Edit<'_>) -> Result<(), String> {
    let is_activity = seen.text("activityType").is_some();
    let content = seen.said("content").or_else(|| seen.said("state")).filter(|_| is_activity);
    let is_first = edit.text("state").is_none_or(|state| state != "progress");
    if content.is_some() && !is_first && seen.get("replace") == Some(&Value::Bool(false)) {
        return Ok(());
    }
    // The patch is of what was reported, which stands among members of ours: those are not its author's to change.
    let patched = match seen.get("patch").filter(|_| is_activity && content.is_none()) {
        Some(patch) => {
            let mut reported = reported(edit);
            patch::apply(&mut reported, &patch::operations(patch), &mut None)?;
            Some(reported)
        }
        None => None,
    };
    let content = patched.as_ref().or_else(|| content.and_then(Value::as_object));
    let get = |member: &str| match content {
        Some(content) => content.get(member).filter(|value| !value.is_null()),
        None => seen.get(member),
    };
    let text = |member: &str| get(member).and_then(Value::as_str);
    edit.set_some("message", text("message"));
    // Where reports are shown apart from their call, they stand where the first one came.
    if edit.get("reported").is_none() && seen.text("awaits").is_none() {
        edit.set("reported", seen.sequence.0);
    }
    if has_ended(edit) && !reopen(edit) {
        return Ok(());
    }
    name(seen, edit);
    for member in ["tool_name", "node_id", "parent_node_id", "parent_call_id"] {
        edit.set_some(member, text(member).filter(|text| !text.is_empty()));
    }
    // A fraction and nothing else: a number above 1 is of a unit that nobody can know.
    edit.set_some("progress", number(get("progress")).filter(|n| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n))));
    for member in ["loaded", "total"] {
        edit.set_some(member, number(get(member)));
    }
    // Nobody works on it: it stays where it is until whoever is named gives its result.
    if let Some(awaits) = seen.text("awaits") {
        edit.say("status", "pending");
        edit.say("awaits", awaits);
        return Ok(());
    }
    edit.remove("awaits");
    edit.say("status", text("status").filter(|status| STATUSES.contains(status)).unwrap_or("running"));
    edit.say("state", "progress");
    Ok(())
}

/// The reporter's part of the content.
fn reported(edit: &Edit<'_>) -> Map<String, Value> {
    let members = REPORTED.iter().filter_map(|member| Some(((*member).to_owned(), edit.get(member)?.clone())));
    members.collect()
}

fn output(seen: &Seen, edit: &mut Edit<'_>) {
    edit.append("output_text", seen.text("text").unwrap_or_default());
    refer(seen, edit);
    if !has_ended(edit) || reopen(edit) {
        edit.remove("awaits");
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
    edit.remove("synthetic");
    edit.remove("awaits");
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
        edit.say("action_id", action.as_str());
    }
}

/// The run has ended: no call goes on. One whose author reported an end of it keeps that; one whose result somebody else has to
/// give waits for it.
pub(super) fn end_all(scene: &mut Scene) {
    let is_settled = scene.run.settled;
    let ended = ["output-available", "output-error", "cancelled"];
    let state = |state: Option<&Value>| state.and_then(Value::as_str).is_some_and(|state| ended.contains(&state));
    for id in scene.stage.ids(KIND, |call| !state(call.content.get("state")) && !call.content.contains_key("awaits")) {
        let mut edit = scene.stage.edit(KIND, &id).expect("just listed");
        if is_settled {
            edit.set("synthetic", true);
        }
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
