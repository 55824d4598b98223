//! `tool-call-progress`: a tool call from its first argument to its last output.
//!
//! It is seed 002's `tool-call-progress.v1` with the lifecycle of seed 003 beside it.
//!
//! `status` is the tool's own report (pending, running, done, failed, cancelled); `state` is the position in the
//! lifecycle. An end is final: later progress changes only `message`, and a call that starts again is a new attempt. A
//! call whose result a party outside the run supplies (`awaits`) outlives the run until the result arrives. A call that
//! waits for a decision is `pending`: it does not run before it is approved.

use super::activity_set::{CHAR_BYTES_MAX, Edit};
use super::envelope_view::EnvelopeView;
use super::members::{
    ACTION_STATUS, ActionStatus, Any, CLIPPED, CallState, CallStatus, Flag, Mark, Member, MemberType, Num, OUTPUT_CHANNELS,
    OUTPUT_TEXT, Object, Position, Str, TOOL_CALL_ID, Text, TypedContent, WITHHELD, WITHHELD_ABOUT, content, joined,
};
use super::{ACTION_KIND, FoldState, bodies, diagnostics, number, patch};
use crate::model::envelope::END_WITHHELD;
use crate::model::{EventType, MessageId, Phase, Surface, TEXT_BYTES_MAX, ToolCallId};
use serde_json::{Map, Number, Value, json};

/// The activity type, and the `activityType` of seed 002's reporters.
pub const KIND: &str = "tool-call-progress";

content! {
    CALL = "tool-call-progress",
    "A tool call: seed 002's tool-call-progress.v1 with its own names, and the lifecycle of seed 003 beside it.";
    "schema": Str, Always as SCHEMA with json!({ "const": SCHEMA_NAME }), "The name of the reported state's schema.";
    "node_id": Str, Always as NODE_ID, "The call's node in the tree of calls.";
    "call_id": Str, Always as CALL_ID, "The id of the call.";
    "tool_name": Str, Always as TOOL_NAME, "The name of the tool; empty if unknown.";
    "status": CallStatus, Always as STATUS,
        "The status as the tool reports it; pending while the call waits for a decision (action_id).";
    "state": CallState, Sometimes as STATE, "The call's position in its lifecycle; absent before its first event.";
    "progress": Num, Sometimes as PROGRESS with json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        "The last reported progress, as a fraction.";
    "loaded": Num, Sometimes as LOADED, "The amount that is done, in the tool's own unit.";
    "total": Num, Sometimes as TOTAL, "The total amount, in the unit of loaded.";
    "message": Str, Sometimes as MESSAGE, "The tool's latest message about its progress.";
    "reported": Position, Sometimes as REPORTED, "The sequence of the envelope with the tool's first report.";
    "parent_node_id": Str, Sometimes as PARENT_NODE_ID, "The parent node in the tree of calls.";
    "parent_call_id": Str, Sometimes as PARENT_CALL_ID, "The call that made this one.";
    "source_call_id": Str, Sometimes as SOURCE_CALL_ID,
        "The runtime's own id of the call, where the server had to make call_id: the runtime used its id again, or no id is as long.";
    "input": Any, Sometimes as INPUT, "The arguments, parsed.";
    "input_text": Text, Sometimes as INPUT_TEXT, "The arguments while they stream; removed once they are parsed.";
    "output": Any, Sometimes as OUTPUT, "The call's result.";
    "output_text": Text, Sometimes, "The streamed output: the standard output, and output without a channel.";
    "output_channels": Object, Sometimes with json!({
            "type": "object", "additionalProperties": Text::schema(), "maxProperties": CHANNELS_MAX,
        }),
        "The streamed output of other channels by name, each a list of chunks like output_text. Together at most 4 MiB.";
    "unannounced": Mark, Sometimes as UNANNOUNCED,
        "No fact announced the call's start here: only progress reports mention it.";
    "output_ref": Any, Sometimes as OUTPUT_REF, "The location of the whole output.";
    "structured": Any, Sometimes as STRUCTURED, "The result in a form for programs.";
    "error": Object, Sometimes as ERROR, "The error of a failed call.";
    "never_started": Any, Sometimes as NEVER_STARTED, "Whether the call was given up before it ran.";
    "duration_ms": Num, Sometimes as DURATION_MS, "The duration of the call, in milliseconds.";
    "cost_usd": Num, Sometimes as COST_USD, "The cost of the call, in US dollars.";
    "truncated": Any, Sometimes as TRUNCATED, "The number of characters that the source cut from the result.";
    "untrusted": Any, Sometimes as UNTRUSTED, "Whether the source marks the result as untrusted.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
    "clipped": Flag, Sometimes,
        "The streamed output reached its limit of 4 MiB, and the rest is only in the log; or a value is a preview, and bodies names it.";
    "bodies": Object, Sometimes with bodies::schema(), bodies::ABOUT;
    "action_id": Str, Sometimes as ACTION_ID, "The action that asks for a decision about the call.";
    "synthetic": Mark, Sometimes as SYNTHETIC, "The server closed the call, because it received nothing more from the run.";
    "awaits": Str, Sometimes as AWAITS,
        "The party that has to supply the result, even after the run's end; removed once the result arrives.";
}

const SCHEMA_NAME: &str = "tool-call-progress.v1";

/// Seed 002's `ToolCallProgressState`: the members of a tool's own report.
pub const REPORT_MEMBERS: &[&str] = &[
    SCHEMA.name(),
    NODE_ID.name(),
    CALL_ID.name(),
    TOOL_NAME.name(),
    STATUS.name(),
    PROGRESS.name(),
    LOADED.name(),
    TOTAL.name(),
    MESSAGE.name(),
    PARENT_NODE_ID.name(),
    PARENT_CALL_ID.name(),
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
            edit.set(UNANNOUNCED, true);
        }
    }
    let is_announced = !edit.has(UNANNOUNCED);
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
    edit.set_some(SOURCE_CALL_ID, envelope.text("sourceToolCallId"));
    if !is_end(&envelope.event_type) && (envelope.event_type == E::ToolStarted || !has_ended(&edit)) {
        edit.remove(UNANNOUNCED);
    }
    match envelope.event_type {
        // The result came first. The start says whose it is.
        E::ToolStarted if has_ended(&edit) => set_input(envelope, &mut edit),
        E::ToolStarted if envelope.get(END_WITHHELD).is_some() => {
            set_input(envelope, &mut edit);
            edit.set(STATUS, CallStatus::Done);
            edit.set(STATE, CallState::OutputAvailable);
            edit.set(WITHHELD, true);
        }
        E::ToolStarted => start(envelope, &mut edit),
        E::ToolArgs => args(envelope, &mut edit),
        E::ToolOutputDelta => output(envelope, &mut edit),
        _ => end(envelope, &mut edit),
    }
    if let Some(action) = asked {
        edit.set(ACTION_ID, action);
        mark_pending(&mut edit);
    }
}

const fn is_end(event_type: &EventType) -> bool {
    matches!(event_type, EventType::ToolResult | EventType::ToolFailed)
}

/// The latest action about a call.
pub(super) fn action_of(fold: &FoldState, call: &str) -> Option<String> {
    Some(fold.activities.get(KIND, call)?.content.read(ACTION_ID)?.to_owned())
}

/// The call of a pending action.
pub(super) fn waiting_call<'s>(fold: &'s FoldState, action: &str) -> Option<&'s str> {
    let action = &fold.activities.get(ACTION_KIND, action)?.content;
    action.read(TOOL_CALL_ID).filter(|_| action.read(ACTION_STATUS) == Some(ActionStatus::Pending))
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
    edit.set_some(TOOL_NAME, envelope.text("toolName").filter(|name| !name.is_empty()));
    let parent = envelope.related("parentToolCallId").or_else(|| envelope.get("parentToolCallId"));
    edit.set_some(PARENT_CALL_ID, parent.and_then(Value::as_str));
}

fn init(edit: &mut Edit<'_>, id: &str) {
    edit.set(SCHEMA, SCHEMA_NAME);
    edit.set(NODE_ID, id);
    edit.set(CALL_ID, id);
    edit.set(TOOL_NAME, "");
    edit.set(STATUS, CallStatus::Pending);
}

fn has_ended(edit: &Edit<'_>) -> bool {
    edit.read(STATE).is_some_and(CallState::is_end)
}

/// Reopens a call that only the server closed, because it had not heard from the run.
///
/// Returns whether it did.
fn reopen(edit: &mut Edit<'_>) -> bool {
    let is_ours = edit.has(SYNTHETIC);
    edit.remove(SYNTHETIC);
    is_ours
}

/// Starts another attempt under the same id: readers get a snapshot.
fn restart(edit: &mut Edit<'_>, id: &str) {
    let (name, reported) = (edit.read(TOOL_NAME).map(str::to_owned), edit.read(REPORTED));
    edit.replace(Map::new());
    init(edit, id);
    edit.set_some(TOOL_NAME, name);
    edit.set_some(REPORTED, reported);
}

fn start(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.remove(AWAITS);
    edit.set(STATUS, CallStatus::Running);
    edit.set(STATE, CallState::Running);
    set_input(envelope, edit);
    edit.set_some(MESSAGE, envelope.text("message"));
}

fn set_input(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some(INPUT, envelope.get("input").cloned());
    bodies::carry(envelope, edit, &[("input", "input")]);
}

fn args(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let may_move = match edit.read(STATE) {
        None | Some(CallState::Running | CallState::InputStreaming | CallState::InputAvailable) => true,
        // A tool may report before its arguments arrive (Responses `in_progress`).
        Some(CallState::Progress) => !edit.has(INPUT) && !edit.has(INPUT_TEXT),
        Some(CallState::OutputAvailable | CallState::OutputError | CallState::Cancelled) => false,
    };
    let mut state = None;
    if let Some(input) = envelope.payload.get("input") {
        edit.remove(INPUT_TEXT);
        edit.set(INPUT, input.clone());
        bodies::carry(envelope, edit, &[("input", "input")]);
        state = Some(CallState::InputAvailable);
    } else if let Some(chunk) = envelope.text("inputText") {
        edit.append(INPUT_TEXT, chunk);
        state = Some(CallState::InputStreaming);
    }
    let is_complete = envelope.text("state").and_then(CallState::of) == Some(CallState::InputAvailable);
    if is_complete && state != Some(CallState::InputAvailable) {
        parse_streamed_input(edit);
        state = Some(CallState::InputAvailable);
    }
    edit.set_some(STATE, state.filter(|_| may_move));
}

/// Parses streamed arguments once they are complete. Text that is not JSON stays unchanged.
fn parse_streamed_input(edit: &mut Edit<'_>) {
    let input = serde_json::from_str::<Value>(edit.read(INPUT_TEXT).unwrap_or_default()).ok();
    if let Some(input) = input.filter(|input| patch::check_depth("/input", input).is_ok()) {
        edit.remove(INPUT_TEXT);
        edit.set(INPUT, input);
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
    let is_first = edit.read(STATE) != Some(CallState::Progress);
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
    let text = |member: Member<Str>| get(member.name()).and_then(Value::as_str);
    edit.set_some(MESSAGE, text(MESSAGE));
    // Clients that show reports apart from their call place them at the first report.
    if !edit.has(REPORTED) && envelope.text("awaits").is_none() {
        edit.set(REPORTED, envelope.sequence);
    }
    if has_ended(edit) && !reopen(edit) {
        return Ok(());
    }
    set_tool_name(envelope, edit);
    for member in [TOOL_NAME, NODE_ID, PARENT_NODE_ID, PARENT_CALL_ID] {
        edit.set_some(member, text(member).filter(|text| !text.is_empty()));
    }
    // Only a fraction is valid: the unit of a number above 1 is unknown.
    let is_fraction = |n: &Number| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n));
    edit.set_some(PROGRESS, number(get(PROGRESS.name())).filter(is_fraction));
    for member in [LOADED, TOTAL] {
        edit.set_some(member, number(get(member.name())));
    }
    // The run does not work on the call: it stays pending until the named party supplies the result.
    if let Some(awaits) = envelope.text("awaits") {
        edit.set(STATUS, CallStatus::Pending);
        edit.set(AWAITS, awaits);
        return Ok(());
    }
    edit.remove(AWAITS);
    match get(STATUS.name()).and_then(CallStatus::read) {
        None | Some(CallStatus::Pending) if waits => return Ok(()),
        status => edit.set(STATUS, status.unwrap_or(CallStatus::Running)),
    }
    edit.set(STATE, CallState::Progress);
    Ok(())
}

/// The reported members of the content.
fn reported_members(edit: &Edit<'_>) -> Map<String, Value> {
    let members = REPORT_MEMBERS.iter().filter_map(|member| Some(((*member).to_owned(), edit.get_named(member)?.clone())));
    members.collect()
}

fn output(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let chunk = envelope.text("text").unwrap_or_default();
    match envelope.text("channel").filter(|channel| !matches!(*channel, "" | "stdout")) {
        None => edit.append(OUTPUT_TEXT, chunk),
        Some(channel) => channel_output(edit, channel, chunk),
    }
    set_output_ref(envelope, edit);
    if !has_ended(edit) || reopen(edit) {
        edit.remove(AWAITS);
        edit.set(STATUS, CallStatus::Running);
        edit.set(STATE, CallState::Progress);
    }
}

/// Appends to a named channel. All named channels share the limit of one text.
fn channel_output(edit: &mut Edit<'_>, channel: &str, chunk: &str) {
    let channels = edit.read(OUTPUT_CHANNELS);
    let is_known = channels.is_some_and(|channels| channels.contains_key(channel));
    let count = channels.map_or(0, Map::len);
    let used: usize = channels.into_iter().flatten().map(|(_, text)| joined(Some(text)).len()).sum();
    let room = TEXT_BYTES_MAX.saturating_sub(used);
    let is_taken = is_known || count < CHANNELS_MAX && channel.len() <= CHANNEL_BYTES_MAX;
    // After a cut before a long character, a later short one must not fill the gap.
    if !is_taken || room < CHAR_BYTES_MAX && edit.has(CLIPPED) {
        return edit.set(CLIPPED, true);
    }
    let whole = &chunk[..chunk.floor_char_boundary(room)];
    if whole.len() < chunk.len() {
        edit.set(CLIPPED, true);
    }
    if let Some(mut channels) = edit.object(OUTPUT_CHANNELS) {
        channels.append_named(channel, whole);
    }
}

fn end(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    let (status, state) = match (&envelope.event_type, &envelope.phase) {
        (EventType::ToolResult, _) => (CallStatus::Done, CallState::OutputAvailable),
        // The call was stopped or did not finish; it did not fail.
        (_, Phase::Cancelled | Phase::Interrupted) => (CallStatus::Cancelled, CallState::Cancelled),
        _ => (CallStatus::Failed, CallState::OutputError),
    };
    edit.remove(SYNTHETIC);
    edit.remove(AWAITS);
    edit.set(STATUS, status);
    edit.set(STATE, state);
    edit.set_some(DURATION_MS, number(envelope.get("durationMs")));
    if envelope.is_withheld() {
        return edit.set(WITHHELD, true);
    }
    edit.remove(WITHHELD);
    edit.set_some(OUTPUT, envelope.payload.get("output").cloned());
    edit.set_some(STRUCTURED, envelope.get("structured").cloned());
    edit.set_some(COST_USD, number(envelope.get("costUsd")));
    edit.set_some(TRUNCATED, envelope.get("truncated").cloned());
    edit.set_some(UNTRUSTED, envelope.get("untrusted").cloned());
    if state == CallState::OutputAvailable {
        edit.remove(ERROR);
    } else {
        edit.set_some(ERROR, envelope.get("error").map(error_object));
        edit.set_some(NEVER_STARTED, envelope.get("neverStarted").cloned());
    }
    let error = if envelope.text("error").is_some() { "error/message" } else { "error" };
    bodies::carry(envelope, edit, &[("output", "output"), ("structured", "structured"), ("error", error)]);
    set_output_ref(envelope, edit);
}

/// An error as an object with a message.
fn error_object(error: &Value) -> Map<String, Value> {
    let message = match error {
        Value::Object(error) => return error.clone(),
        Value::String(message) => message.clone(),
        other => other.to_string(),
    };
    Map::from_iter([("message".to_owned(), message.into())])
}

fn set_output_ref(envelope: &EnvelopeView, edit: &mut Edit<'_>) {
    edit.set_some(OUTPUT_REF, envelope.get("outputRef").or_else(|| envelope.related("output")).cloned());
}

/// Links a call to its approval.
fn link_action(envelope: &EnvelopeView, fold: &mut FoldState) {
    let (Some(call), Some(action)) = (&envelope.ids.tool_call, &envelope.ids.action) else { return };
    if let Some(mut edit) = fold.activities.edit(KIND, call.as_str()) {
        edit.set(ACTION_ID, action.as_str());
        mark_pending(&mut edit);
    }
}

/// Marks a call as pending until the decision.
fn mark_pending(edit: &mut Edit<'_>) {
    if has_ended(edit) || edit.has(AWAITS) {
        return;
    }
    edit.set(STATUS, CallStatus::Pending);
    if edit.read(STATE) != Some(CallState::InputStreaming) {
        edit.set(STATE, CallState::InputAvailable);
    }
}

/// Continues an approved call. A refused call ends by its own fact.
fn on_action_resolved(envelope: &EnvelopeView, fold: &mut FoldState) {
    let Some(action) = &envelope.ids.action else { return };
    let stated = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let Some(call) = stated.or_else(|| waiting_call(fold, action.as_str())).map(str::to_owned) else { return };
    let Some(mut edit) = fold.activities.edit(KIND, &call) else { return };
    let waits = edit.read(STATUS) == Some(CallStatus::Pending) && !edit.has(AWAITS) && !has_ended(&edit);
    let is_about = edit.read(ACTION_ID) == Some(action.as_str());
    if waits && is_about && matches!(envelope.text("outcome"), Some("approved" | "answered")) {
        edit.set(STATUS, CallStatus::Running);
        edit.set(STATE, CallState::Running);
    }
}

/// Ends the open calls, because the run has ended.
///
/// A call whose result another party supplies keeps waiting. A call that another run started and only reported here is
/// not open in this run: it keeps the end that its reports state.
pub(super) fn end_all(fold: &mut FoldState) {
    let is_settled = fold.run.settled;
    let is_open = |call: &Map<String, Value>| !call.read(STATE).is_some_and(CallState::is_end) && !call.has(AWAITS);
    for id in fold.activities.ids(KIND, |call| is_open(&call.content)) {
        let mut edit = fold.activities.edit(KIND, &id).expect("the id was listed above");
        if is_settled {
            edit.set(SYNTHETIC, true);
        }
        let state = match edit.read(STATUS).filter(|_| edit.has(UNANNOUNCED)) {
            Some(CallStatus::Done) => CallState::OutputAvailable,
            Some(CallStatus::Failed) => CallState::OutputError,
            _ => {
                edit.set(STATUS, CallStatus::Cancelled);
                CallState::Cancelled
            }
        };
        edit.set(STATE, state);
    }
}
