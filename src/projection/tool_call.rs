//! `tool-call-progress`: a tool call from its first argument to its last output.
//!
//! It is seed 002's `tool-call-progress.v1` with the lifecycle of seed 003 beside it.
//!
//! `status` is the tool's own report (pending, running, done, failed, cancelled); `state` is the position in the
//! lifecycle. An end is final: later progress changes only `message`, and a call that starts again is a new attempt. A
//! call whose result a party outside the run supplies (`awaits`) outlives the run until the result arrives. A call that
//! waits for a decision is `pending`: it does not run before it is approved.

use super::activity_set::{Activity, CHAR_BYTES_MAX, Edit, joined};
use super::envelope_view::EnvelopeView;
use super::{ACTION_KIND, FoldState, bodies, diagnostics, number, patch};
use crate::model::envelope::END_WITHHELD;
use crate::model::{EventType, MessageId, Phase, Surface, TEXT_BYTES_MAX, ToolCallId};
use serde_json::{Map, Value, json};

/// The activity type, and the `activityType` of seed 002's reporters.
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
const REPORT_MEMBERS: &[&str] = &[
    "schema", "node_id", "call_id", "tool_name", "status", "progress", "loaded", "total", "message", "parent_node_id",
    "parent_call_id",
];

/// The most output channels that a call shows beside `stdout`. A further one sets `clipped`.
pub(super) const CHANNELS_MAX: usize = 8;
/// The longest name of an output channel, in bytes.
const CHANNEL_BYTES_MAX: usize = 256;

/// The most pending actions that are searched for one about a starting call.
const ACTIONS_SEARCHED_MAX: usize = 64;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    use EventType as E;
    match envelope.event_type {
        E::ActionRequired => return link_action(envelope, fold),
        E::ActionResolved => return on_action_resolved(envelope, fold),
        _ => {}
    }
    // A reporter's activity may arrive in any of these classes.
    let is_report = matches!(envelope.event_type, E::ToolProgress | E::StateSnapshot | E::StateDelta)
        && envelope.text("activityType").map_or(envelope.event_type == E::ToolProgress, |kind| kind == KIND);
    if !is_report
        && !matches!(envelope.event_type, E::ToolStarted | E::ToolArgs | E::ToolOutputDelta | E::ToolResult | E::ToolFailed)
    {
        return;
    }
    let Some(id) = call(envelope) else { return };
    let is_known = fold.activities.get(KIND, id).is_some();
    let waits = action_of(fold, id).is_some_and(|action| waiting_call(fold, &action) == Some(id));
    let asked = if matches!(envelope.event_type, E::ToolStarted | E::ToolArgs) { pending_action_about(fold, id) } else { None };
    let mut edit = fold.activities.open(KIND, id, Surface::ToolUi, envelope.ids.agent.as_ref());
    if !is_known {
        init(&mut edit, id);
        if is_report || is_end(&envelope.event_type) {
            edit.set("unannounced", true);
        }
    }
    let is_announced = edit.get("unannounced").is_none();
    if envelope.event_type == E::ToolStarted && has_ended(&edit) && is_announced {
        restart(&mut edit, id);
    }
    if is_report {
        if let Err(error) = progress(envelope, &mut edit, waits) {
            let note = json!({ "kind": "patch_not_applied", "activityType": KIND, "activityId": id, "error": error });
            diagnostics::add_entry(fold, note);
        }
        return;
    }
    set_tool_name(envelope, &mut edit);
    edit.set_some("source_call_id", envelope.text("sourceToolCallId"));
    if !is_end(&envelope.event_type) && (envelope.event_type == E::ToolStarted || !has_ended(&edit)) {
        edit.remove("unannounced");
    }
    match envelope.event_type {
        // The result came first. The start says whose it is.
        E::ToolStarted if has_ended(&edit) => set_input(envelope, &mut edit),
        E::ToolStarted if envelope.get(END_WITHHELD).is_some() => {
            set_input(envelope, &mut edit);
            edit.set_str("status", "done");
            edit.set_str("state", "output-available");
            edit.set("withheld", true);
        }
        E::ToolStarted => start(envelope, &mut edit),
        E::ToolArgs => args(envelope, &mut edit),
        E::ToolOutputDelta => output(envelope, &mut edit),
        _ => end(envelope, &mut edit),
    }
    if let Some(action) = asked {
        edit.set("action_id", action);
        mark_pending(&mut edit);
    }
}

const fn is_end(event_type: &EventType) -> bool {
    matches!(event_type, EventType::ToolResult | EventType::ToolFailed)
}

/// The latest action about a call.
pub(super) fn action_of(fold: &FoldState, call: &str) -> Option<String> {
    Some(fold.activities.get(KIND, call)?.content.get("action_id")?.as_str()?.to_owned())
}

/// The call of a pending action.
pub(super) fn waiting_call<'s>(fold: &'s FoldState, action: &str) -> Option<&'s str> {
    let action = fold.activities.get(ACTION_KIND, action).filter(|action| text(action, "status") == Some("pending"))?;
    text(action, "toolCallId")
}

fn text<'a>(activity: &'a Activity, member: &str) -> Option<&'a str> {
    activity.content.get(member).and_then(Value::as_str)
}

/// A pending action about a call, which may precede the call.
fn pending_action_about(fold: &FoldState, call: &str) -> Option<String> {
    let mut pending = fold.run.pending.iter().take(ACTIONS_SEARCHED_MAX);
    pending.find(|action| waiting_call(fold, action) == Some(call)).map(str::to_owned)
}

/// The call of the fact.
///
/// An activity may have the id in its content or, as with Awaken, in place of a message's id.
fn call(envelope: &EnvelopeView) -> Option<&str> {
    let of = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let is_activity = envelope.text("activityType").is_some();
    let stated = || envelope.member("content").and_then(|content| content.get("call_id")).and_then(Value::as_str);
    let named =
        || stated().filter(|id| ToolCallId::new(id).is_ok()).or_else(|| envelope.ids.message.as_ref().map(MessageId::as_str));
    if is_activity { of.or_else(named) } else { of }
}

/// Sets the tool's name and the parent call, if the fact has them.
fn set_tool_name(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some("tool_name", envelope.text("toolName").filter(|name| !name.is_empty()));
    let parent = envelope.related("parentToolCallId").or_else(|| envelope.get("parentToolCallId")).cloned();
    edit.set_some("parent_call_id", parent.filter(Value::is_string));
}

fn init(edit: &mut Edit<'_>, id: &str) {
    edit.set("schema", "tool-call-progress.v1");
    edit.set("node_id", id);
    edit.set("call_id", id);
    edit.set("tool_name", "");
    edit.set_str("status", "pending");
}

fn has_ended(edit: &Edit<'_>) -> bool {
    matches!(edit.text("state"), Some("output-available" | "output-error" | "cancelled"))
}

/// Reopens a call that only the server closed, because it had not heard from the run.
///
/// Returns whether it did.
fn reopen(edit: &mut Edit<'_>) -> bool {
    let is_ours = edit.get("synthetic").is_some();
    edit.remove("synthetic");
    is_ours
}

/// Starts another attempt under the same id: readers get a snapshot.
fn restart(edit: &mut Edit<'_>, id: &str) {
    let kept = ["tool_name", "reported"].map(|member| (member, edit.get(member).cloned()));
    edit.replace(Map::new());
    init(edit, id);
    for (member, value) in kept {
        edit.set_some(member, value);
    }
}

fn start(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.remove("awaits");
    edit.set_str("status", "running");
    edit.set_str("state", "running");
    set_input(envelope, edit);
    edit.set_some("message", envelope.text("message"));
}

fn set_input(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some("input", envelope.get("input").cloned());
    bodies::carry(envelope, edit, &[("input", "input")]);
}

fn args(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let may_move = match edit.text("state") {
        None | Some("running" | "input-streaming" | "input-available") => true,
        // A tool may report before its arguments arrive (Responses `in_progress`).
        Some("progress") => edit.get("input").is_none() && edit.get("input_text").is_none(),
        _ => false,
    };
    let mut state = None;
    if let Some(input) = envelope.payload.get("input") {
        edit.remove("input_text");
        edit.set("input", input.clone());
        bodies::carry(envelope, edit, &[("input", "input")]);
        state = Some("input-available");
    } else if let Some(chunk) = envelope.text("inputText") {
        edit.append("input_text", chunk);
        state = Some("input-streaming");
    }
    if state != Some("input-available") && envelope.text("state") == Some("input-available") {
        parse_streamed_input(edit);
        state = Some("input-available");
    }
    if let Some(state) = state.filter(|_| may_move) {
        edit.set_str("state", state);
    }
}

/// Parses streamed arguments once they are complete. Text that is not JSON stays unchanged.
fn parse_streamed_input(edit: &mut Edit<'_>) {
    let input = serde_json::from_str::<Value>(edit.joined("input_text")).ok();
    if let Some(input) = input.filter(|input| patch::check_depth("/input", input).is_ok()) {
        edit.remove("input_text");
        edit.set("input", input);
        bodies::forget(edit, "/input");
    }
}

/// Applies the tool's own report.
///
/// It is members of a fact, seed 002's state as an activity's content, or a patch of that.
///
/// If the call `waits` for a decision, it stays pending unless the report states another status.
///
/// # Errors
/// The reason why a patch does not apply. The content is then unchanged.
fn progress(envelope: &EnvelopeView, edit: &mut Edit<'_>, waits: bool) -> Result<(), String> {
    let is_activity = envelope.text("activityType").is_some();
    let content = envelope.member("content").or_else(|| envelope.member("state")).filter(|_| is_activity);
    let is_first = edit.text("state").is_none_or(|state| state != "progress");
    if content.is_some() && !is_first && envelope.get("replace") == Some(&Value::Bool(false)) {
        return Ok(());
    }
    // The patch applies to the reported members only; the reporter must not change the others.
    let patched = match envelope.get("patch").filter(|_| is_activity && content.is_none()) {
        Some(patch) => {
            let mut reported = reported_members(edit);
            patch::apply(&mut reported, &patch::operations(patch), &mut None)?;
            Some(reported)
        }
        None => None,
    };
    let content = patched.as_ref().or_else(|| content.and_then(Value::as_object));
    let get = |member: &str| match content {
        Some(content) => content.get(member).filter(|value| !value.is_null()),
        None => envelope.get(member),
    };
    let text = |member: &str| get(member).and_then(Value::as_str);
    edit.set_some("message", text("message"));
    // Clients that show reports apart from their call place them at the first report.
    if edit.get("reported").is_none() && envelope.text("awaits").is_none() {
        edit.set("reported", envelope.sequence.0);
    }
    if has_ended(edit) && !reopen(edit) {
        return Ok(());
    }
    set_tool_name(envelope, edit);
    for member in ["tool_name", "node_id", "parent_node_id", "parent_call_id"] {
        edit.set_some(member, text(member).filter(|text| !text.is_empty()));
    }
    // Only a fraction is valid: the unit of a number above 1 is unknown.
    edit.set_some("progress", number(get("progress")).filter(|n| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n))));
    for member in ["loaded", "total"] {
        edit.set_some(member, number(get(member)));
    }
    // The run does not work on the call: it stays pending until the named party supplies the result.
    if let Some(awaits) = envelope.text("awaits") {
        edit.set_str("status", "pending");
        edit.set_str("awaits", awaits);
        return Ok(());
    }
    edit.remove("awaits");
    match text("status").filter(|status| STATUSES.contains(status)) {
        None | Some("pending") if waits => return Ok(()),
        status => edit.set_str("status", status.unwrap_or("running")),
    }
    edit.set_str("state", "progress");
    Ok(())
}

/// The reported members of the content.
fn reported_members(edit: &Edit<'_>) -> Map<String, Value> {
    let members = REPORT_MEMBERS.iter().filter_map(|member| Some(((*member).to_owned(), edit.get(member)?.clone())));
    members.collect()
}

fn output(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let chunk = envelope.text("text").unwrap_or_default();
    match envelope.text("channel").filter(|channel| !matches!(*channel, "" | "stdout")) {
        None => edit.append("output_text", chunk),
        Some(channel) => channel_output(edit, channel, chunk),
    }
    set_output_ref(envelope, edit);
    if !has_ended(edit) || reopen(edit) {
        edit.remove("awaits");
        edit.set_str("status", "running");
        edit.set_str("state", "progress");
    }
}

/// Appends to a named channel. All named channels share the limit of one text.
fn channel_output(edit: &mut Edit<'_>, channel: &str, chunk: &str) {
    let channels = edit.get("output_channels").and_then(Value::as_object);
    let is_known = channels.is_some_and(|channels| channels.contains_key(channel));
    let count = channels.map_or(0, Map::len);
    let used: usize = channels.into_iter().flatten().map(|(_, text)| joined(Some(text)).len()).sum();
    let room = TEXT_BYTES_MAX.saturating_sub(used);
    let is_taken = is_known || count < CHANNELS_MAX && channel.len() <= CHANNEL_BYTES_MAX;
    // After a cut before a long character, a later short one must not fill the gap.
    if !is_taken || room < CHAR_BYTES_MAX && edit.get("clipped").is_some() {
        return edit.set("clipped", true);
    }
    let whole = &chunk[..chunk.floor_char_boundary(room)];
    if whole.len() < chunk.len() {
        edit.set("clipped", true);
    }
    if let Some(mut channels) = edit.object("output_channels") {
        channels.append(channel, whole);
    }
}

fn end(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let (status, state) = match (&envelope.event_type, &envelope.phase) {
        (EventType::ToolResult, _) => ("done", "output-available"),
        // The call was stopped or did not finish; it did not fail.
        (_, Phase::Cancelled | Phase::Interrupted) => ("cancelled", "cancelled"),
        _ => ("failed", "output-error"),
    };
    edit.remove("synthetic");
    edit.remove("awaits");
    edit.set_str("status", status);
    edit.set_str("state", state);
    edit.set_some("duration_ms", number(envelope.get("durationMs")));
    if envelope.is_withheld() {
        return edit.set("withheld", true);
    }
    edit.remove("withheld");
    edit.set_some("output", envelope.payload.get("output").cloned());
    edit.set_some("structured", envelope.get("structured").cloned());
    edit.set_some("cost_usd", number(envelope.get("costUsd")));
    edit.set_some("truncated", envelope.get("truncated").cloned());
    edit.set_some("untrusted", envelope.get("untrusted").cloned());
    if state == "output-available" {
        edit.remove("error");
    } else {
        edit.set_some(
            "error",
            envelope.get("error").map(|error| match error {
                Value::Object(_) => error.clone(),
                Value::String(message) => json!({ "message": message }),
                other => json!({ "message": other.to_string() }),
            }),
        );
        edit.set_some("never_started", envelope.get("neverStarted").cloned());
    }
    let error = if envelope.text("error").is_some() { "error/message" } else { "error" };
    bodies::carry(envelope, edit, &[("output", "output"), ("structured", "structured"), ("error", error)]);
    set_output_ref(envelope, edit);
}

fn set_output_ref(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some("output_ref", envelope.get("outputRef").or_else(|| envelope.related("output")).cloned());
}

/// Links a call to its approval.
fn link_action(envelope: &EnvelopeView, fold: &mut FoldState) {
    let (Some(call), Some(action)) = (&envelope.ids.tool_call, &envelope.ids.action) else { return };
    if let Some(mut edit) = fold.activities.edit(KIND, call.as_str()) {
        edit.set_str("action_id", action.as_str());
        mark_pending(&mut edit);
    }
}

/// Marks a call as pending until the decision.
fn mark_pending(edit: &mut Edit<'_>) {
    if has_ended(edit) || edit.get("awaits").is_some() {
        return;
    }
    edit.set_str("status", "pending");
    if edit.text("state") != Some("input-streaming") {
        edit.set_str("state", "input-available");
    }
}

/// Continues an approved call. A refused call ends by its own fact.
fn on_action_resolved(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(action) = &envelope.ids.action else { return };
    let stated = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let Some(call) = stated.or_else(|| waiting_call(fold, action.as_str())).map(str::to_owned) else { return };
    let Some(mut edit) = fold.activities.edit(KIND, &call) else { return };
    let waits = edit.text("status") == Some("pending") && edit.get("awaits").is_none() && !has_ended(&edit);
    let is_about = edit.text("action_id") == Some(action.as_str());
    if waits && is_about && matches!(envelope.text("outcome"), Some("approved" | "answered")) {
        edit.set_str("status", "running");
        edit.set_str("state", "running");
    }
}

/// Ends the open calls, because the run has ended.
///
/// A call whose result another party supplies keeps waiting. A call that another run started and only reported here is
/// not open in this run: it keeps the end that its reports state.
pub(super) fn end_all(fold: &mut FoldState) {
    let is_settled = fold.run.settled;
    let ended = ["output-available", "output-error", "cancelled"];
    let state = |state: Option<&Value>| state.and_then(Value::as_str).is_some_and(|state| ended.contains(&state));
    for id in fold.activities.ids(KIND, |call| !state(call.content.get("state")) && !call.content.contains_key("awaits")) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        if is_settled {
            edit.set("synthetic", true);
        }
        let state = match edit.text("status").filter(|_| edit.get("unannounced").is_some()) {
            Some("done") => "output-available",
            Some("failed") => "output-error",
            _ => {
                edit.set_str("status", "cancelled");
                "cancelled"
            }
        };
        edit.set_str("state", state);
    }
}
