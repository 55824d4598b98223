//! Frames as dialects read them: what a client of the native dialect sees. Readers share their contents.

use proscenium_model::{Cursor, RunId, Sequence};
use proscenium_projection::activity_set::Activity;
use proscenium_projection::bodies::BODIES;
use proscenium_projection::change::{Change, ContentOperation};
use proscenium_projection::operations;
use proscenium_projection::tool_call::INPUT;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// An activity as a native frame carries it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityView {
    /// The run of the activity, where it is known.
    #[serde(rename = "runId", default)]
    pub run: Option<Box<str>>,
    /// The activity type.
    #[serde(rename = "activityType")]
    pub kind: Box<str>,
    /// The activity id, unique within its type.
    #[serde(rename = "activityId")]
    pub id: Box<str>,
    /// The sequence of the envelope that opened the activity; activities are sorted by it.
    pub opened: Sequence,
    /// The agent that it belongs to.
    #[serde(rename = "agentId", default)]
    pub agent: Option<Box<str>>,
    /// What clients show of it.
    pub content: Arc<Map<String, Value>>,
}

impl From<&Activity> for ActivityView {
    fn from(activity: &Activity) -> Self {
        Self {
            run: None,
            kind: activity.kind.clone(),
            id: activity.id.clone(),
            opened: activity.opened,
            agent: activity.agent.as_ref().map(|agent| agent.as_str().into()),
            content: Arc::new(activity.content.clone()),
        }
    }
}

impl ActivityView {
    /// Builds the view of an activity of this run.
    #[must_use]
    pub fn of(run: &RunId, activity: &Activity) -> Self {
        Self { run: Some(run.as_str().into()), ..Self::from(activity) }
    }

    /// The value of a content member, if it is a string.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.content.get(member).and_then(Value::as_str)
    }
}

/// The reason of a reset for a reader that was cut off between events that the server cannot repeat.
///
/// It may have begun messages that the server does not know of, so its stream begins anew.
pub const CUT_INSIDE: &str = "cursor";

/// One frame. `Event` is absent: dialects read activities only.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "frame")]
pub enum Frame {
    /// A whole activity.
    ActivitySnapshot(ActivityView),
    /// A change of an activity that the reader has.
    ActivityDelta(Delta),
    /// The reader has all activities as of here.
    Hydrated {},
    /// The reader drops its copy, and gets everything again.
    Reset {
        /// Why, in a word of the protocol, or [`CUT_INSIDE`].
        reason: Box<str>,
    },
    /// The run has ended.
    End {
        /// How the run ended.
        status: Box<str>,
    },
    /// The stream ends here, because it cannot go on.
    Error {
        /// The problem document.
        problem: Value,
    },
}

/// A change of an activity.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta {
    /// The run of the activity, where it is known.
    #[serde(rename = "runId", default)]
    pub run: Option<Box<str>>,
    /// The activity type.
    #[serde(rename = "activityType")]
    pub kind: Box<str>,
    /// The activity id.
    #[serde(rename = "activityId")]
    pub id: Box<str>,
    /// What changed, in order.
    #[serde(rename = "patch")]
    pub operations: Arc<[ContentOperation]>,
}

impl Frame {
    /// Decodes the JSON object of a native frame.
    ///
    /// # Errors
    /// The text is not such an object.
    pub fn decode(text: &[u8]) -> serde_json::Result<Self> {
        // The kind stands first. An enum that is tagged inside would read all members into memory to find it.
        if text.starts_with(br#"{"frame":"ActivityDelta","#) {
            return serde_json::from_slice(text).map(Self::ActivityDelta);
        }
        if text.starts_with(br#"{"frame":"ActivitySnapshot","#) {
            return serde_json::from_slice(text).map(Self::ActivitySnapshot);
        }
        serde_json::from_slice(text)
    }

    /// The frame of a change, equal to the decoded one.
    #[must_use]
    pub fn of_change(run: Option<&RunId>, activity: &Activity, change: &Change) -> Self {
        if change.is_snapshot {
            let run = run.map(|run| run.as_str().into());
            return Self::ActivitySnapshot(ActivityView { run, ..ActivityView::from(activity) });
        }
        let as_read = |operation: &ContentOperation| match operation {
            ContentOperation::FromSource(op) => operations::read(op.clone()),
            own => own.clone(),
        };
        let operations = change.operations.iter().map(as_read).collect();
        let run = run.map(|run| run.as_str().into());
        Self::ActivityDelta(Delta { run, kind: activity.kind.clone(), id: activity.id.clone(), operations })
    }

    /// Whether it may set arguments of a call that have moved to a body.
    pub(super) fn may_set_arguments_in_body(&self) -> bool {
        let Self::ActivityDelta(Delta { operations, .. }) = self else { return false };
        operations.iter().any(|operation| operation.is_about(BODIES))
            && operations.iter().any(|operation| operation.is_about(INPUT))
    }
}

/// A decoded frame, with its cursor if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedFrame {
    /// The frame itself.
    pub frame: Frame,
    /// Where a reader resumes that has this frame.
    pub cursor: Option<Cursor>,
}
