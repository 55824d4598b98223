//! Decodes native frames: the view of a client of the native dialect.

use crate::model::{Cursor, RunId, Sequence};
use crate::projection::activity_set::Activity;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

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
    pub content: Map<String, Value>,
}

impl From<&Activity> for ActivityView {
    fn from(activity: &Activity) -> Self {
        Self {
            run: None,
            kind: activity.kind.clone(),
            id: activity.id.clone(),
            opened: activity.opened,
            agent: activity.agent.as_ref().map(|agent| agent.as_str().into()),
            content: activity.content.clone(),
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
        patch: Vec<Value>,
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

/// Removes the first frame from `frames` and returns it with its cursor; `None` if none is left.
///
/// # Panics
/// If a block is not an activity frame. The server encodes every block itself.
pub fn next_frame(frames: &mut Bytes) -> Option<(Frame, Option<Cursor>)> {
    while let Some(end) = memchr::memmem::find(frames, b"\n\n") {
        let block = frames.split_to(end + 2);
        let (mut data, mut id) = (None, None);
        for line in block.split(|byte| *byte == b'\n') {
            data = line.strip_prefix(b"data: ").or(data);
            id = line.strip_prefix(b"id: ").or(id);
        }
        // A block without data is a keep-alive.
        let Some(data) = data else { continue };
        let frame = serde_json::from_slice(data).expect("every native activity frame decodes as a Frame");
        return Some((frame, id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok())));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::native::{Encoder, push_frame_end};
    use crate::log::LogId;
    use crate::model::Epoch;
    use crate::projection::activity_set::{ActivitySet, Change, PatchOperation};
    use serde_json::json;

    #[test]
    fn decoding_returns_the_frames_that_the_native_encoder_wrote() {
        let run = RunId::new("r").unwrap();
        let encoder = Encoder::new(&LogId::Run(run.clone()));
        let epoch = Epoch::from_random(1);
        let at = Cursor::at(epoch, Sequence(7));
        let activity: Activity = serde_json::from_value(json!({
            "kind": "message", "id": "m", "surface": "conversation", "opened": 3, "sequence": 7, "opened_at": 1, "updated_at": 2,
            "content": { "role": "assistant", "parts": [] },
        }))
        .unwrap();
        let stage = ActivitySet::restore(vec![activity], false);
        let activity = &stage.activities()[0];
        let mut out = b":\nretry: 1500\n".to_vec();
        encoder.snapshot(&mut out, Sequence(7), Some(Sequence(5)), activity);
        push_frame_end(&mut out, None);
        let mut change = Change::default();
        change.patch.push(PatchOperation::Add("/parts/0/text/-".into(), json!("a\n")));
        encoder.change(&mut out, Sequence(7), Sequence(5), activity, &change);
        push_frame_end(&mut out, Some(at));
        out.extend(encoder.hydrated(Sequence(7), Some(at)));
        out.extend(encoder.reset(epoch, "epoch"));
        out.extend(encoder.end(epoch, Sequence(7), "failed"));
        out.extend(encoder.error(Sequence(7), &json!({ "code": "x" })));
        let mut frames = Bytes::from(out);
        let read: Vec<_> = std::iter::from_fn(|| next_frame(&mut frames)).collect();
        let delta = json!([{ "op": "add", "path": "/parts/0/text/-", "value": "a\n" }]);
        let Value::Array(patch) = delta else { unreachable!("just made") };
        let end = Cursor { knows_end: true, ..at };
        assert_eq!(
            read,
            [
                (Frame::ActivitySnapshot(ActivityView::of(&run, activity)), None),
                (Frame::ActivityDelta { activity_type: "message".into(), activity_id: "m".into(), patch }, Some(at)),
                (Frame::Hydrated {}, Some(at)),
                (Frame::Reset { reason: "epoch".into() }, Some(Cursor::at(epoch, Sequence::NONE))),
                (Frame::End { status: "failed".into() }, Some(end)),
                (Frame::Error { problem: json!({ "code": "x" }) }, None),
            ]
        );
    }
}
