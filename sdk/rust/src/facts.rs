//! The wire form of reports: one fact of the native source for each report.
//!
//! Reports are seed 002's state and activities, Ethos' progress event, and a call's own start and end. The reporter
//! serialises a fact once, when the tool reports it, with the time of the report: the fact may wait long for the
//! server. A fact has an explicit audience if the default of its event type differs. This module neither waits nor
//! sends.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// One serialised fact, and its role for coalescing.
#[derive(Clone)]
pub(crate) struct Fact {
    pub text: Bytes,
    pub role: Role,
}

#[derive(Clone)]
pub(crate) enum Role {
    /// The whole progress state of a call.
    ///
    /// `members` has a bit for each present optional member. A state that `begins` the call decides its audience, and
    /// the queue never coalesces it.
    State { call: Arc<str>, status: ProgressStatus, members: u8, begins: bool },
    /// A patch that builds on the earlier progress reports of the call.
    Patch { call: Arc<str> },
    /// A fact without relation to other facts.
    Other,
}

impl Role {
    /// Whether this state has all members of `older`.
    /// Both must be states of the same call.
    pub fn repeats(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::State { members, .. }, Self::State { members: older, begins: false, .. }) => members & older == *older,
            _ => false,
        }
    }
}

/// The activity type of a call's structured progress.
pub const TOOL_CALL_PROGRESS_ACTIVITY_TYPE: &str = "tool-call-progress";

/// The value of [`ToolCallProgressState::schema`].
pub const TOOL_CALL_PROGRESS_SCHEMA: &str = "tool-call-progress.v1";

/// The status of a call, as the tool's author reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Queued, not started.
    Pending,
    /// Running.
    Running,
    /// Completed.
    Done,
    /// Ended with an error.
    Failed,
    /// Stopped before completion.
    Cancelled,
}

/// The whole progress state of a call, with seed 002's names.
///
/// The JSON omits `None` members; readers keep their last reported value.
///
/// ```
/// use proscenium_reporter::{ProgressStatus, ToolCallProgressState};
///
/// let state = ToolCallProgressState::new("call-1", "index_docs", ProgressStatus::Running).with_loaded(3).with_total(12);
/// assert_eq!(
///     serde_json::to_string(&state)?,
///     r#"{"schema":"tool-call-progress.v1","node_id":"call-1","call_id":"call-1","tool_name":"index_docs","#.to_owned()
///         + r#""status":"running","loaded":3,"total":12}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallProgressState {
    /// Always [`TOOL_CALL_PROGRESS_SCHEMA`].
    pub schema: String,
    /// The call's node in the tree of calls: the call's id.
    pub node_id: String,
    pub call_id: String,
    pub tool_name: String,
    pub status: ProgressStatus,
    /// The completed fraction, 0.0 to 1.0.
    /// `None`: the total is unknown.
    ///
    /// A number outside the range stays in the log, but readers do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// The completed amount, in the tool's own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<u64>,
    /// The total amount, in the same unit.
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
    /// Creates a state with only a status.
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

    /// Sets the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the completed fraction, 0.0 to 1.0.
    #[must_use]
    pub const fn with_progress(mut self, fraction: f64) -> Self {
        self.progress = Some(fraction);
        self
    }

    /// Sets the completed amount.
    #[must_use]
    pub const fn with_loaded(mut self, loaded: u64) -> Self {
        self.loaded = Some(loaded);
        self
    }

    /// Sets the total amount.
    #[must_use]
    pub const fn with_total(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }

    /// Sets the parent call.
    #[must_use]
    pub fn with_parent(mut self, call_id: &str) -> Self {
        self.parent_node_id = Some(call_id.to_owned());
        self.parent_call_id = Some(call_id.to_owned());
        self
    }

    /// Returns the set of present optional members, one bit for each.
    fn member_bits(&self) -> u8 {
        let members = [
            self.progress.is_some(),
            self.loaded.is_some(),
            self.total.is_some(),
            self.message.is_some(),
            self.parent_node_id.is_some(),
            self.parent_call_id.is_some(),
        ];
        members.into_iter().enumerate().map(|(bit, is_present)| u8::from(is_present) << bit).sum()
    }
}

/// Ethos' progress event: the argument of `ctx.emit`, with the same names on the wire.
///
/// ```
/// use proscenium_reporter::ToolProgressEvent;
///
/// let chip = ToolProgressEvent::new("read_file", "reading 5 MB, this takes a few seconds").with_percent(12.5).with_audience("user");
/// assert_eq!(serde_json::to_value(&chip)?["type"], "progress");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "progress", rename_all = "camelCase")]
pub struct ToolProgressEvent {
    pub tool_name: String,
    pub message: String,
    /// The completed percentage, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// The audience: `user`, `dashboard` or `internal`.
    /// `None`: internal.
    ///
    /// The server treats an unknown name as internal and keeps the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

impl ToolProgressEvent {
    /// Creates an internal event.
    #[must_use]
    pub fn new(tool_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { tool_name: tool_name.into(), message: message.into(), percent: None, audience: None }
    }

    /// Sets the completed percentage, 0 to 100.
    #[must_use]
    pub const fn with_percent(mut self, percent: f64) -> Self {
        self.percent = Some(percent);
        self
    }

    /// Sets the audience.
    #[must_use]
    pub fn with_audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }
}

/// The audience of reports that a tool's author shows on purpose.
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
    let text = serde_json::to_vec(&fact).expect("a JSON map has string keys and serialises");
    Fact { text: Bytes::from(text), role }
}

/// Builds the fact of `report_progress`.
/// `begins`: this is the first report of the call.
pub(crate) fn state(at: Timestamp, call: &Arc<str>, mut state: ToolCallProgressState, begins: bool) -> Fact {
    // JSON cannot represent NaN or infinity.
    state.progress = state.progress.filter(|fraction| fraction.is_finite());
    let role = Role::State { call: call.clone(), status: state.status, members: state.member_bits(), begins };
    let mut fact = about(at, "tool.progress", call);
    fact.insert("audience".into(), USER.into());
    written(fact, json!({ "activityType": TOOL_CALL_PROGRESS_ACTIVITY_TYPE, "content": state, "replace": true }), role)
}

/// Builds the fact of `report_activity`, with the whole content.
pub(crate) fn activity(at: Timestamp, call: &Arc<str>, activity_type: &str, content: Value) -> Fact {
    of_activity(at, call, activity_type, json!({ "activityType": activity_type, "content": content, "replace": true }))
}

/// Builds the fact of `report_activity_delta`, with a JSON Patch.
/// Wraps a single operation in an array.
pub(crate) fn activity_delta(at: Timestamp, call: &Arc<str>, activity_type: &str, patch: Value) -> Fact {
    let patch = if patch.is_array() { patch } else { json!([patch]) };
    of_activity(at, call, activity_type, json!({ "activityType": activity_type, "patch": patch }))
}

fn of_activity(at: Timestamp, call: &Arc<str>, activity_type: &str, payload: Value) -> Fact {
    let mut fact = about(at, "tool.progress", call);
    fact.insert("audience".into(), USER.into());
    // A compacted log needs the history of an activity. Progress itself is useful only while the run is live.
    fact.insert("persistence".into(), "snapshot".into());
    let role = if activity_type == TOOL_CALL_PROGRESS_ACTIVITY_TYPE { Role::Patch { call: call.clone() } } else { Role::Other };
    written(fact, payload, role)
}

/// The target of an emitted event.
pub(crate) enum EventTarget<'c> {
    /// The call, with its last reported status.
    Call(&'c str, Option<ProgressStatus>),
    /// The run, with a reference to the call.
    ///
    /// The first report of a call decides its audience, so an internal event must not be the first one.
    RunNotice(&'c str),
    /// The run, without a call.
    None,
}

/// Builds the fact of `emit`.
pub(crate) fn event(at: Timestamp, target: &EventTarget<'_>, event: ToolProgressEvent) -> Fact {
    let mut payload = json!({ "toolName": event.tool_name, "message": event.message });
    if let Some(percent) = event.percent.filter(|percent| percent.is_finite()) {
        payload["percent"] = percent.into();
        payload["progress"] = (percent / 100.0).clamp(0.0, 1.0).into();
    }
    let mut fact = fact(at, "tool.progress");
    match target {
        EventTarget::Call(call, status) => {
            fact.insert("toolCallId".into(), (*call).into());
            // The event repeats the last status, so that it does not reopen a completed call.
            if let Some(status) = status {
                payload["status"] = json!(status);
            }
        }
        EventTarget::RunNotice(call) => drop(fact.insert("refs".into(), json!({ "toolCallId": call }))),
        EventTarget::None => {}
    }
    fact.insert("audience".into(), event.audience.unwrap_or_else(|| "internal".into()).into());
    written(fact, payload, Role::Other)
}

/// Builds the start of a call that no runtime reports.
pub(crate) fn started(at: Timestamp, call: &str, tool: &str, parent: Option<&str>, input: Value) -> Fact {
    let mut payload = json!({ "toolName": tool, "input": input });
    if let Some(parent) = parent {
        payload["parentToolCallId"] = parent.into();
    }
    written(about(at, "tool.started", call), payload, Role::Other)
}

/// Builds the result of such a call.
/// It is internal by default, and every reader of the start sees the end.
pub(crate) fn result(at: Timestamp, call: &str, tool: &str, output: Value) -> Fact {
    written(about(at, "tool.result", call), json!({ "toolName": tool, "output": output }), Role::Other)
}

/// Builds the failure of such a call.
pub(crate) fn failed(at: Timestamp, call: &str, tool: &str, code: Option<&str>, message: &str) -> Fact {
    let mut error = json!({ "message": message });
    if let Some(code) = code {
        error["code"] = code.into();
    }
    written(about(at, "tool.failed", call), json!({ "toolName": tool, "error": error }), Role::Other)
}

/// The length of the reason in a placeholder, in characters.
const WHY_CHARS_MAX: usize = 300;

/// Builds the placeholder of a rejected fact.
/// It takes the fact's number, so that other facts keep theirs.
pub(crate) fn placeholder(at: Timestamp, why: &str, bytes: usize) -> Bytes {
    let mut fact = fact(at, "diagnostic.changed");
    fact.insert("audience".into(), "internal".into());
    let why: String = why.chars().take(WHY_CHARS_MAX).collect();
    written(fact, json!({ "kind": "report_refused", "message": why, "bytes": bytes }), Role::Other).text
}
