//! Decoded native frames: what a client of the native dialect sees. Readers share their contents.

use crate::model::{Cursor, RunId, Sequence};
use crate::projection::activity_set::Activity;
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
    #[serde(rename = "activityType")]
    pub kind: Box<str>,
    #[serde(rename = "activityId")]
    pub id: Box<str>,
    /// The sequence of the envelope that opened the activity; activities are sorted by it.
    pub opened: Sequence,
    #[serde(rename = "agentId", default)]
    pub agent: Option<Box<str>>,
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

/// One decoded frame. `Event` is absent: dialects read activities only.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "frame")]
pub enum Frame {
    ActivitySnapshot(ActivityView),
    #[serde(rename_all = "camelCase")]
    ActivityDelta {
        activity_type: Box<str>,
        activity_id: Box<str>,
        patch: Arc<[Value]>,
    },
    Hydrated {},
    Reset {
        reason: Box<str>,
    },
    End {
        status: Box<str>,
    },
    Error {
        problem: Value,
    },
}

impl Frame {
    /// Decodes the JSON object of a native frame.
    ///
    /// # Errors
    /// The text is not such an object.
    pub fn decode(text: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Delta {
            activity_type: Box<str>,
            activity_id: Box<str>,
            patch: Arc<[Value]>,
        }
        // The kind stands first. An enum that is tagged inside would read all members into memory to find it.
        if text.starts_with(br#"{"frame":"ActivityDelta","#) {
            let Delta { activity_type, activity_id, patch } = serde_json::from_slice(text)?;
            return Ok(Self::ActivityDelta { activity_type, activity_id, patch });
        }
        if text.starts_with(br#"{"frame":"ActivitySnapshot","#) {
            return serde_json::from_slice(text).map(Self::ActivitySnapshot);
        }
        serde_json::from_slice(text)
    }

    /// Whether it may set arguments of a call that have moved to a body.
    pub(super) fn may_set_arguments_in_body(&self) -> bool {
        let sets = |patch: &[Value], member: &str| patch.iter().any(|op| op.get("path").and_then(Value::as_str) == Some(member));
        matches!(self, Self::ActivityDelta { patch, .. } if sets(patch, "/bodies") && sets(patch, "/input"))
    }
}

/// A decoded frame, with its cursor if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedFrame {
    pub frame: Frame,
    pub cursor: Option<Cursor>,
}
