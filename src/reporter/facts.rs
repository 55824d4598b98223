//! What a report says on the wire: seed 002's state and activities, Ethos' progress event, and a call's own start and end, each
//! as one fact of the native source.
//!
//! A fact is written once, when it is reported, and carries that time: it may wait long for its server. Who it is for is said on
//! the fact wherever a class's default would say otherwise. Nothing here waits or sends.

use super::queue::{Fact, Role};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The activity type of a call's structured progress.
pub const TOOL_CALL_PROGRESS_ACTIVITY_TYPE: &str = "tool-call-progress";

/// What [`ToolCallProgressState::schema`] says.
pub const TOOL_CALL_PROGRESS_SCHEMA: &str = "tool-call-progress.v1";

/// Where a call is in its life, as its author reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Queued, not started.
    Pending,
    /// At work.
    Running,
    /// Completed.
    Done,
    /// Met an error.
    Failed,
    /// Stopped before it was done.
    Cancelled,
}

/// The whole state of a call's progress, by seed 002's names. What is `None` is left out of the JSON, and stays on a screen as
/// it was last reported.
///
/// ```
/// use proscenium::reporter::{ProgressStatus, ToolCallProgressState};
///
/// let state = ToolCallProgressState::new("call-1", "index_docs", ProgressStatus::Running).loaded(3).total(12);
/// assert_eq!(
///     serde_json::to_string(&state)?,
///     r#"{"schema":"tool-call-progress.v1","node_id":"call-1","call_id":"call-1","tool_name":"index_docs","#.to_owned()
///         + r#""status":"running","loaded":3,"total":12}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallProgressState {
    /// [`TOOL_CALL_PROGRESS_SCHEMA`].
    pub schema: String,
    /// The call's node in the tree of calls: the call's id.
    pub node_id: String,
    pub call_id: String,
    pub tool_name: String,
    pub status: ProgressStatus,
    /// A fraction, 0.0 to 1.0; `None` if nobody can say how much there is. A number beyond stays in the log and is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// How much is done, in the tool's own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<u64>,
    /// Of how much, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_node_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_call_id: Option<String>,
}

impl ToolCallProgressState {
    /// The state of this call, with nothing said beyond its status.
    #[must_use]
    pub fn new(call_id: &str, tool_name: &str, status: ProgressStatus) -> Self {
        Self {
            schema: TOOL_CALL_PROGRESS_SCHEMA.to_owned(),
            node_id: call_id.to_owned(),
            call_id: call_id.to_owned(),
            tool_name: tool_name.to_owned(),
            status,
            progress: None,
            loaded: None,
            total: None,
            message: None,
            parent_node_id: None,
            parent_call_id: None,
        }
    }

    /// With this said of it.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// With this fraction of it done, 0.0 to 1.0.
    #[must_use]
    pub const fn progress(mut self, fraction: f64) -> Self {
        self.progress = Some(fraction);
        self
    }

    /// With this much of it done.
    #[must_use]
    pub const fn loaded(mut self, loaded: u64) -> Self {
        self.loaded = Some(loaded);
        self
    }

    /// With so much to do.
    #[must_use]
    pub const fn total(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }

    /// As a part of this call.
    #[must_use]
    pub fn parent(mut self, call_id: &str) -> Self {
        self.parent_node_id = Some(call_id.to_owned());
        self.parent_call_id = Some(call_id.to_owned());
        self
    }

    /// Which of the optional members it has, a bit each.
    fn said(&self) -> u8 {
        let members = [
            self.progress.is_some(),
            self.loaded.is_some(),
            self.total.is_some(),
            self.message.is_some(),
            self.parent_node_id.is_some(),
            self.parent_call_id.is_some(),
        ];
        members.into_iter().enumerate().map(|(bit, is_said)| u8::from(is_said) << bit).sum()
    }
}

/// Ethos' progress event: what `ctx.emit` takes there, by the same names on the wire.
///
/// ```
/// use proscenium::reporter::ToolProgressEvent;
///
/// let chip = ToolProgressEvent::new("read_file", "reading 5 MB, this takes a few seconds").percent(12.5).audience("user");
/// assert_eq!(serde_json::to_value(&chip)?["type"], "progress");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "progress", rename_all = "camelCase")]
pub struct ToolProgressEvent {
    pub tool_name: String,
    pub message: String,
    /// 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Who it is for: `user`, `dashboard`, or `internal`, as it is when nobody says. A name that the server does not know is
    /// internal there, and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

impl ToolProgressEvent {
    /// An event for internal eyes.
    #[must_use]
    pub fn new(tool_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { tool_name: tool_name.into(), message: message.into(), percent: None, audience: None }
    }

    /// With so much of the work done, 0 to 100.
    #[must_use]
    pub const fn percent(mut self, percent: f64) -> Self {
        self.percent = Some(percent);
        self
    }

    /// For this audience.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }
}

/// What a report is for whose author decided to show it.
const USER: &str = "user";

fn fact(at: Timestamp, class: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), class.into()), ("timestamp".to_owned(), at.to_string().into())])
}

fn about(at: Timestamp, class: &str, call: &str) -> Map<String, Value> {
    let mut fact = fact(at, class);
    fact.insert("toolCallId".into(), call.into());
    fact
}

fn written(mut fact: Map<String, Value>, payload: Value, role: Role) -> Fact {
    fact.insert("payload".into(), payload);
    let text = serde_json::to_vec(&fact).expect("a JSON value has a text");
    Fact { text: Bytes::from(text), role }
}

/// `report_progress`. `begins` says that nothing was reported of the call before.
pub(super) fn state(at: Timestamp, call: &Arc<str>, mut state: ToolCallProgressState, begins: bool) -> Fact {
    // JSON has no such numbers.
    state.progress = state.progress.filter(|fraction| fraction.is_finite());
    let role = Role::State { call: call.clone(), status: state.status, said: state.said(), begins };
    let mut fact = about(at, "tool.progress", call);
    fact.insert("audience".into(), USER.into());
    written(fact, json!({ "activityType": TOOL_CALL_PROGRESS_ACTIVITY_TYPE, "content": state, "replace": true }), role)
}

/// `report_activity`: the whole of it.
pub(super) fn activity(at: Timestamp, call: &Arc<str>, activity_type: &str, content: Value) -> Fact {
    of_activity(at, call, activity_type, json!({ "activityType": activity_type, "content": content, "replace": true }))
}

/// `report_activity_delta`: a JSON Patch of it. A bare value is wrapped in an array.
pub(super) fn activity_delta(at: Timestamp, call: &Arc<str>, activity_type: &str, patch: Value) -> Fact {
    let patch = if patch.is_array() { patch } else { json!([patch]) };
    of_activity(at, call, activity_type, json!({ "activityType": activity_type, "patch": patch }))
}

fn of_activity(at: Timestamp, call: &Arc<str>, activity_type: &str, payload: Value) -> Fact {
    let mut fact = about(at, "tool.progress", call);
    fact.insert("audience".into(), USER.into());
    // A compacted log needs what an activity came from, and progress is of use only while it is live.
    fact.insert("persistence".into(), "snapshot".into());
    let role = if activity_type == TOOL_CALL_PROGRESS_ACTIVITY_TYPE { Role::Patch { call: call.clone() } } else { Role::Other };
    written(fact, payload, role)
}

/// Where an emitted event belongs.
pub(super) enum Place<'c> {
    /// To the call, whose progress was last reported as this.
    Call(&'c str, Option<ProgressStatus>),
    /// To nothing that may begin the call: what decides who sees a call is the first that is said of it, and that is no event
    /// for internal eyes.
    Beside(&'c str),
    /// To no call.
    None,
}

/// `emit`.
pub(super) fn event(at: Timestamp, place: &Place<'_>, event: ToolProgressEvent) -> Fact {
    let mut payload = json!({ "toolName": event.tool_name, "message": event.message });
    if let Some(percent) = event.percent.filter(|percent| percent.is_finite()) {
        payload["percent"] = percent.into();
        payload["progress"] = (percent / 100.0).clamp(0.0, 1.0).into();
    }
    let mut fact = fact(at, "tool.progress");
    match place {
        Place::Call(call, status) => {
            fact.insert("toolCallId".into(), (*call).into());
            // A call that is done stays so, whatever else is told of it.
            if let Some(status) = status {
                payload["status"] = json!(status);
            }
        }
        Place::Beside(call) => drop(fact.insert("refs".into(), json!({ "toolCallId": call }))),
        Place::None => {}
    }
    fact.insert("audience".into(), event.audience.unwrap_or_else(|| "internal".into()).into());
    written(fact, payload, Role::Other)
}

/// The start of a call that no runtime reports.
pub(super) fn started(at: Timestamp, call: &str, tool: &str, parent: Option<&str>, input: Value) -> Fact {
    let mut payload = json!({ "toolName": tool, "input": input });
    if let Some(parent) = parent {
        payload["parentToolCallId"] = parent.into();
    }
    written(about(at, "tool.started", call), payload, Role::Other)
}

/// Its result. Without an audience of its own it is internal, and whoever saw the start sees that it ended.
pub(super) fn result(at: Timestamp, call: &str, tool: &str, output: Value) -> Fact {
    written(about(at, "tool.result", call), json!({ "toolName": tool, "output": output }), Role::Other)
}

/// Its failure.
pub(super) fn failed(at: Timestamp, call: &str, tool: &str, code: Option<&str>, message: &str) -> Fact {
    let mut error = json!({ "message": message });
    if let Some(code) = code {
        error["code"] = code.into();
    }
    written(about(at, "tool.failed", call), json!({ "toolName": tool, "error": error }), Role::Other)
}

/// The most that a stand-in says of why, in characters.
const WHY_CHARS_MAX: usize = 300;

/// What stands in the log for a fact that no server takes: under the same number, so that no other fact changes its own.
pub(super) fn stand_in(at: Timestamp, why: &str, bytes: usize) -> Bytes {
    let mut fact = fact(at, "diagnostic.changed");
    fact.insert("audience".into(), "internal".into());
    let why: String = why.chars().take(WHY_CHARS_MAX).collect();
    written(fact, json!({ "kind": "report_refused", "message": why, "bytes": bytes }), Role::Other).text
}
