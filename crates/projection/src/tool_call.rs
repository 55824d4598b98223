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
    ACTION_STATUS, ActionStatus, Any, CLIPPED, CallState, CallStatus, Flag, List, Mark, MemberType, Num, OUTPUT_CHANNELS,
    OUTPUT_TEXT, Object, Position, Str, TOOL_CALL_ID, Text, TypedContent, WITHHELD, WITHHELD_ABOUT, content, joined,
};
use super::{ACTION_KIND, FoldState, bodies, diagnostics, patch, stated};
use proscenium_model::{CallFact, EventType, MessageId, Phase, Surface, TEXT_BYTES_MAX, ToolCallId};
use serde_json::{Map, Number, Value, json};
use std::borrow::Cow;

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
    "kind": Str, Sometimes as TOOL_KIND, "The kind of the tool, in its runtime's words.";
    "title": Str, Sometimes as TITLE, "What the call does, in the runtime's words for people.";
    "blocks": List, Sometimes as BLOCKS,
        "What the call shows, where that is more than one text: texts, diffs and terminals in the form of ACP, at most 100.";
    "raw_output": Any, Sometimes as RAW_OUTPUT, "The result as the tool gave it, beside output.";
    "reported": Position, Sometimes as REPORTED, "The sequence of the envelope with the tool's first report.";
    "parent_node_id": Str, Sometimes as PARENT_NODE_ID, "The parent node in the tree of calls.";
    "parent_call_id": Str, Sometimes as PARENT_CALL_ID, "The call that made this one.";
    "source_call_id": Str, Sometimes as SOURCE_CALL_ID,
        "The runtime's own id of the call, where the server had to make call_id: the runtime used its id again, or no id is as long.";
    "locations": List, Sometimes as LOCATIONS with locations_schema(),
        "The files that the call touches, so that an editor can follow it: { path, line? }, at most 100.";
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
    "app": Any, Sometimes as APP,
        "The interface of the tool, of the MCP Apps extension: { resourceUri, mimeType?, visibility? }. The resource is not here.";
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

fn locations_schema() -> Value {
    let location = json!({
        "type": "object",
        "properties": { "path": { "description": "The file." }, "line": { "description": "The line, as its source counts." } },
    });
    json!({ "type": "array", "maxItems": LOCATIONS_MAX, "items": location })
}

const SCHEMA_NAME: &str = "tool-call-progress.v1";

/// Seed 002's `ToolCallProgressState`: the members of a tool's own report.
const REPORT_MEMBERS: &[&str] = &[
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
/// The most locations of a call; the first ones stay.
const LOCATIONS_MAX: usize = 100;
/// The most blocks of a call; the first ones stay.
const BLOCKS_MAX: usize = 100;
/// The longest name of an output channel, in bytes.
const CHANNEL_BYTES_MAX: usize = 256;

/// The most pending actions that are searched for one about a starting call.
const ACTIONS_SEARCHED_MAX: usize = 64;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    use EventType as E;
    match envelope.event_type {
        E::ActionRequired => link_action(envelope, fold),
        E::ActionResolved => on_action_resolved(envelope, fold),
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => {
            fold_fact(envelope, &envelope.fact(), fold);
        }
        // A reporter's activity may arrive as a state.
        E::StateSnapshot | E::StateDelta if envelope.text("activityType") == Some(KIND) => {
            fold_fact(envelope, &envelope.fact(), fold);
        }
        _ => {}
    }
}

fn fold_fact(envelope: &EnvelopeView, fact: &CallFact, fold: &mut FoldState) {
    let is_report = is_report(&envelope.event_type);
    // Other activities are their source's own.
    if is_report && fact.activity_type.as_deref().is_some_and(|kind| kind != KIND) {
        return;
    }
    let Some(id) = call(envelope, fact) else { return };
    let is_known = fold.activities.get(KIND, id).is_some();
    let waits = action_of(fold, id).is_some_and(|action| waiting_call(fold, &action) == Some(id));
    let is_start = envelope.event_type == EventType::ToolStarted;
    let asked = if is_start || envelope.event_type == EventType::ToolArgs { pending_action_about(fold, id) } else { None };
    let mut edit = fold.activities.open(KIND, id, Surface::ToolUi, envelope.ids.agent.as_ref());
    if !is_known {
        init(&mut edit, id);
        if is_report || is_end(&envelope.event_type) {
            edit.set(UNANNOUNCED, true);
        }
    }
    if is_start && has_ended(&edit) && !edit.has(UNANNOUNCED) {
        restart(&mut edit, id);
    }
    match if is_report { reported(fact, &edit) } else { Ok(Some(Cow::Borrowed(fact))) } {
        Ok(Some(fact)) => apply(envelope, &fact, &mut edit, waits),
        Ok(None) => {}
        Err(error) => {
            let note = json!({ "kind": "patch_not_applied", "activityType": KIND, "activityId": id, "error": error });
            return diagnostics::add_entry(fold, note);
        }
    }
    if let Some(action) = asked {
        edit.set(ACTION_ID, action);
        mark_pending(&mut edit);
    }
}

/// Applies a fact to its call, which may wait for a decision.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
fn apply(envelope: &EnvelopeView, fact: &CallFact, edit: &mut Edit<'_>, waits: bool) {
    use EventType as E;
    #[rustfmt::skip]
    let CallFact {
        tool_name, kind, title, blocks, raw_output, parent_call, message, awaits, locations,
        input, input_text, state, end_withheld,
        status, progress, loaded, total, reported_name, node, parent_node, reported_parent,
        channel, text, output_ref, app,
        output, structured, error, duration_ms, cost_usd, truncated, untrusted, never_started, extra,
        // `reported` has read the activity. `EnvelopeView::is_withheld` reads the mark, and the action its version.
        activity_type: _, content: _, patch: _, replace: _, withheld: _, question_version: _,
    } = fact;
    if is_report(&envelope.event_type) {
        edit.set_some(MESSAGE, message.as_deref());
        // Clients that show reports apart from their call place them at the first report.
        if !edit.has(REPORTED) && awaits.is_none() {
            edit.set(REPORTED, envelope.sequence);
        }
        if has_ended(edit) && !reopen(edit) {
            return;
        }
    }
    edit.set_some(TOOL_NAME, tool_name.as_deref().filter(|name| !name.is_empty()));
    let parent = envelope.related("parentToolCallId").map_or(parent_call.as_deref(), Value::as_str);
    edit.set_some(PARENT_CALL_ID, parent);
    edit.set_some(TOOL_KIND, kind.as_deref());
    edit.set_some(TITLE, title.as_deref());
    set_locations(envelope, edit, locations.as_deref());
    set_blocks(envelope, edit, blocks.as_deref());
    edit.set_some(APP, stated(app.as_deref()));
    if !is_report(&envelope.event_type) {
        edit.set_some(SOURCE_CALL_ID, envelope.text("sourceToolCallId"));
        if envelope.event_type == E::ToolStarted || !is_end(&envelope.event_type) && !has_ended(edit) {
            edit.remove(UNANNOUNCED);
        }
    }
    match envelope.event_type {
        // The result came first. The start says whose it is.
        E::ToolStarted if has_ended(edit) => set_input(envelope, edit, stated(input.as_deref())),
        E::ToolStarted if end_withheld.is_some() => {
            set_input(envelope, edit, stated(input.as_deref()));
            edit.set(STATUS, CallStatus::Done);
            edit.set(STATE, CallState::OutputAvailable);
            edit.set(WITHHELD, true);
        }
        E::ToolStarted => {
            edit.remove(AWAITS);
            edit.set(STATUS, CallStatus::Running);
            edit.set(STATE, CallState::Running);
            set_input(envelope, edit, stated(input.as_deref()));
            edit.set_some(MESSAGE, message.as_deref());
        }
        E::ToolArgs => args(envelope, edit, input.as_deref(), input_text.as_deref(), state.as_deref()),
        E::ToolOutputDelta => {
            output_chunk(edit, channel.as_deref(), text.as_deref().unwrap_or_default());
            set_output_ref(envelope, edit, output_ref.as_deref());
            if !has_ended(edit) || reopen(edit) {
                edit.remove(AWAITS);
                edit.set(STATUS, CallStatus::Running);
                edit.set(STATE, CallState::Progress);
            }
        }
        E::ToolResult | E::ToolFailed => {
            end(envelope, edit);
            edit.set_some(DURATION_MS, duration_ms.clone());
            if envelope.is_withheld() {
                return edit.set(WITHHELD, true);
            }
            edit.remove(WITHHELD);
            // A mark of another JSON type is one too.
            let mark = |flag: Option<bool>, name: &str| flag.map(Value::Bool).or_else(|| stated(extra.get(name)));
            edit.set_some(OUTPUT, output.as_deref().cloned());
            edit.set_some(STRUCTURED, stated(structured.as_deref()));
            edit.set_some(RAW_OUTPUT, stated(raw_output.as_deref()));
            edit.set_some(COST_USD, cost_usd.clone());
            edit.set_some(TRUNCATED, stated(truncated.as_deref()));
            edit.set_some(UNTRUSTED, mark(*untrusted, "untrusted"));
            if envelope.event_type == E::ToolResult {
                edit.remove(ERROR);
            } else {
                edit.set_some(ERROR, stated(error.as_deref()).map(error_object));
                edit.set_some(NEVER_STARTED, mark(*never_started, "neverStarted"));
            }
            let error = if error.as_ref().is_some_and(|error| error.is_string()) { "error/message" } else { "error" };
            bodies::carry(
                envelope,
                edit,
                &[("output", "output"), ("structured", "structured"), ("rawOutput", "raw_output"), ("error", error)],
            );
            set_output_ref(envelope, edit, output_ref.as_deref());
        }
        _ => {
            for (member, text) in
                [(TOOL_NAME, reported_name), (NODE_ID, node), (PARENT_NODE_ID, parent_node), (PARENT_CALL_ID, reported_parent)]
            {
                edit.set_some(member, text.as_deref().filter(|text| !text.is_empty()));
            }
            // Only a fraction is valid: the unit of a number above 1 is unknown.
            let is_fraction = |n: &Number| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n));
            edit.set_some(PROGRESS, progress.clone().filter(is_fraction));
            edit.set_some(LOADED, loaded.clone());
            edit.set_some(TOTAL, total.clone());
            // The run does not work on the call: it stays pending until the named party supplies the result.
            if let Some(awaits) = awaits {
                edit.set(STATUS, CallStatus::Pending);
                return edit.set(AWAITS, awaits.as_str());
            }
            edit.remove(AWAITS);
            // A call that waits for a decision stays pending, unless the report states another status.
            match status.as_deref().and_then(CallStatus::of) {
                None | Some(CallStatus::Pending) if waits => {}
                status => {
                    edit.set(STATUS, status.unwrap_or(CallStatus::Running));
                    edit.set(STATE, CallState::Progress);
                }
            }
        }
    }
}

const fn is_report(event_type: &EventType) -> bool {
    matches!(event_type, EventType::ToolProgress | EventType::StateSnapshot | EventType::StateDelta)
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
fn call<'e>(envelope: &'e EnvelopeView, fact: &'e CallFact) -> Option<&'e str> {
    let of = envelope.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let stated = || fact.content.as_ref()?.get("call_id")?.as_str().filter(|id| ToolCallId::new(id).is_ok());
    let named = || stated().or_else(|| envelope.ids.message.as_ref().map(MessageId::as_str));
    if fact.activity_type.is_some() { of.or_else(named) } else { of }
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

fn set_input(envelope: &EnvelopeView, edit: &mut Edit<'_>, input: Option<Value>) {
    edit.set_some(INPUT, input);
    bodies::carry(envelope, edit, &[("input", "input")]);
}

/// Sets the files that the call touches. An empty list removes them, and a value that is no list counts as none.
fn set_locations(envelope: &EnvelopeView, edit: &mut Edit<'_>, locations: Option<&Value>) {
    let Some(locations) = locations.and_then(Value::as_array) else { return };
    match locations.is_empty() {
        true => edit.remove(LOCATIONS),
        false => edit.set(LOCATIONS, locations.iter().take(LOCATIONS_MAX).cloned().collect::<Vec<_>>()),
    }
    bodies::carry(envelope, edit, &[("locations", "locations")]);
}

/// Sets what the call shows beside its output. An empty list removes it, and a value that is no list counts as none.
fn set_blocks(envelope: &EnvelopeView, edit: &mut Edit<'_>, blocks: Option<&Value>) {
    let Some(blocks) = blocks.and_then(Value::as_array).filter(|_| !envelope.is_withheld()) else { return };
    match blocks.is_empty() {
        true => edit.remove(BLOCKS),
        false => edit.set(BLOCKS, blocks.iter().take(BLOCKS_MAX).cloned().collect::<Vec<_>>()),
    }
    bodies::carry(envelope, edit, &[("blocks", "blocks")]);
}

fn args(envelope: &EnvelopeView, edit: &mut Edit<'_>, input: Option<&Value>, chunk: Option<&str>, state: Option<&str>) {
    let may_move = match edit.read(STATE) {
        None | Some(CallState::Running | CallState::InputStreaming | CallState::InputAvailable) => true,
        // A tool may report before its arguments arrive (Responses `in_progress`).
        Some(CallState::Progress) => !edit.has(INPUT) && !edit.has(INPUT_TEXT),
        Some(CallState::OutputAvailable | CallState::OutputError | CallState::Cancelled) => false,
    };
    let is_complete = state.and_then(CallState::of) == Some(CallState::InputAvailable);
    let mut state = None;
    if let Some(input) = input {
        edit.remove(INPUT_TEXT);
        set_input(envelope, edit, Some(input.clone()));
        state = Some(CallState::InputAvailable);
    } else if let Some(chunk) = chunk {
        edit.append(INPUT_TEXT, chunk);
        state = Some(CallState::InputStreaming);
    }
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

/// The tool's own report: the members of a fact, or in their place seed 002's state as an activity's content, or a patch
/// of that. `None`: readers of the activity have it already.
///
/// # Errors
/// The reason why a patch does not apply.
fn reported<'f>(fact: &'f CallFact, edit: &Edit<'_>) -> Result<Option<Cow<'f, CallFact>>, String> {
    if fact.activity_type.is_none() {
        return Ok(Some(Cow::Borrowed(fact)));
    }
    let content = fact.content.as_deref().or_else(|| fact.extra.get("state"));
    let is_known = edit.read(STATE) == Some(CallState::Progress);
    let members = match (content, stated(fact.patch.as_deref())) {
        (Some(_), _) if is_known && fact.replace == Some(false) => return Ok(None),
        (Some(Value::Object(content)), _) => Cow::Borrowed(content),
        (None, Some(patch)) => {
            // The patch applies to the reported members only; the reporter must not change the others.
            let known = |name: &&str| Some(((*name).to_owned(), edit.get_named(name)?.clone()));
            let mut reported = REPORT_MEMBERS.iter().filter_map(known).collect();
            patch::apply(&mut reported, &patch::operations(&patch), &mut None)?;
            Cow::Owned(reported)
        }
        _ => return Ok(Some(Cow::Borrowed(fact))),
    };
    let mut fact = fact.clone();
    for name in REPORT_MEMBERS {
        match members.get(*name) {
            Some(value) => fact.insert(*name, value.clone()),
            None => drop(fact.remove(name)),
        }
    }
    Ok(Some(Cow::Owned(fact)))
}

fn output_chunk(edit: &mut Edit<'_>, channel: Option<&str>, chunk: &str) {
    match channel.filter(|channel| !matches!(*channel, "" | "stdout")) {
        None => edit.append(OUTPUT_TEXT, chunk),
        Some(channel) => channel_output(edit, channel, chunk),
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
}

/// An error as an object with a message.
fn error_object(error: Value) -> Map<String, Value> {
    let message = match error {
        Value::Object(error) => return error,
        Value::String(message) => message,
        other => other.to_string(),
    };
    Map::from_iter([("message".to_owned(), message.into())])
}

fn set_output_ref(envelope: &EnvelopeView, edit: &mut Edit<'_>, stated_ref: Option<&Value>) {
    edit.set_some(OUTPUT_REF, stated(stated_ref).or_else(|| envelope.related("output").cloned()));
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
