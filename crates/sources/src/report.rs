//! Progress reports of tools: seed 002's `ToolCallProgressState`, for every runtime that carries it.
//!
//! The parent's run may carry a report of a child. Such a report names a call that no event announced here, its parent
//! call and its child run, but never the agent. A tool's author reports progress in order to show it, so reports are
//! for users.

use super::Fact;
use super::members::{RuntimeId, carry_all};
use proscenium_model::{Audience, Draft, EventType, RunId, Surface, ToolCallId};
use serde_json::{Map, Value};

/// The activity type of a report.
pub(super) const PROGRESS: &str = "tool-call-progress";

/// Reads the id of the reported call.
pub(super) fn call_of(content: &Map<String, Value>) -> Option<ToolCallId> {
    content.get("call_id").and_then(Value::as_str).and_then(ToolCallId::of)
}

/// Converts a report of this call into a draft, and returns whether the call is a child's.
///
/// `own` holds the two ids of the run that carries the report: the runtime's id and the server's id.
pub(super) fn report_draft(
    call: ToolCallId,
    mut content: Map<String, Value>,
    own: [Option<&RunId>; 2],
    rest: Fact,
) -> (Draft, bool) {
    let parent = content.get("parent_call_id").filter(|v| !v.is_null()).cloned();
    let [theirs, ours] = own;
    let child_run = content
        .get("run_id")
        .and_then(Value::as_str)
        .filter(|run| theirs.is_some_and(|theirs| theirs.as_str() != *run) && ours.is_none_or(|ours| ours.as_str() != *run));
    let child_run = child_run.map(|run| Value::from(run.to_owned()));
    let is_child = parent.is_some() || child_run.is_some();
    let mut draft = carry_all(Draft::new(EventType::ToolProgress), rest);
    draft.ids.tool_call = Some(call);
    draft.set("toolName", content.shift_remove("tool_name"));
    // All other members have the names of the payload's.
    draft.payload.extend(content);
    draft.audience = Audience::User;
    if is_child {
        draft = draft.with("runtimeEntity", "subagent_turn");
        draft.surface = Surface::TaskCapsule;
        for (rel, value) in [("parentToolCallId", parent), ("childRunId", child_run)] {
            draft.add_ref(rel, value);
        }
    }
    (draft, is_child)
}
