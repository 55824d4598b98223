//! Native frames, read back: what a client of the native dialect knows.

use crate::model::{Cursor, RunId, Sequence};
use crate::projection::stage::Activity;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

/// An activity as a reader is shown it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The run that it is of, where that is known.
    #[serde(rename = "runId", default)]
    pub run: Option<Box<str>>,
    #[serde(rename = "activityType")]
    pub kind: Box<str>,
    #[serde(rename = "activityId")]
    pub id: Box<str>,
    /// The envelope with which it appeared: activities are sorted by it.
    pub opened: Sequence,
    #[serde(rename = "agentId", default)]
    pub agent: Option<Box<str>>,
    pub content: Map<String, Value>,
}

impl From<&Activity> for Shown {
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

impl Shown {
    /// An activity of this run.
    #[must_use]
    pub fn of(run: &RunId, activity: &Activity) -> Self {
        Self { run: Some(run.as_str().into()), ..Self::from(activity) }
    }

    /// The text of a member, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.content.get(member).and_then(Value::as_str)
    }
}

/// One frame. `Event` is none of them: a dialect reads activities.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "frame")]
pub enum Frame {
    ActivitySnapshot(Shown),
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

/// Takes the first frame off what a reader was given, with its cursor, if it has one; `None` when there is none left.
///
/// # Panics
/// At what is no frame of activities: only we make them.
pub fn next(frames: &mut Bytes) -> Option<(Frame, Option<Cursor>)> {
    while let Some(end) = memchr::memmem::find(frames, b"\n\n") {
        let block = frames.split_to(end + 2);
        let (mut data, mut id) = (None, None);
        for line in block.split(|byte| *byte == b'\n') {
            data = line.strip_prefix(b"data: ").or(data);
            id = line.strip_prefix(b"id: ").or(id);
        }
        // A block without data keeps a connection open.
        let Some(data) = data else { continue };
        let frame = serde_json::from_slice(data).expect("a native frame of an activity is one of these");
        return Some((frame, id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok())));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::native::{Encoder, end_of_frame};
    use crate::log::LogId;
    use crate::model::Epoch;
    use crate::projection::stage::{Op, Stage, Touch};
    use serde_json::json;

    #[test]
    fn what_the_native_encoder_writes_is_read_back_as_it_was_meant() {
        let run = RunId::new("r").unwrap();
        let encoder = Encoder::new(&LogId::Run(run.clone()));
        let epoch = Epoch::from_random(1);
        let at = Cursor::at(epoch, Sequence(7));
        let activity: Activity = serde_json::from_value(json!({
            "kind": "message", "id": "m", "surface": "conversation", "opened": 3, "sequence": 7, "opened_at": 1, "updated_at": 2,
            "content": { "role": "assistant", "parts": [] },
        }))
        .unwrap();
        let stage = Stage::restore(vec![activity], false);
        let activity = &stage.activities()[0];
        let mut out = b":\nretry: 1500\n".to_vec();
        encoder.snapshot(&mut out, Sequence(7), Some(Sequence(5)), activity);
        end_of_frame(&mut out, None);
        let mut touch = Touch::default();
        touch.patch.push(Op::Add("/parts/0/text/-".into(), json!("a\n")));
        encoder.touched(&mut out, Sequence(7), Sequence(5), activity, &touch);
        end_of_frame(&mut out, Some(at));
        out.extend(encoder.hydrated(Sequence(7), Some(at)));
        out.extend(encoder.reset(epoch, "epoch"));
        out.extend(encoder.end(epoch, Sequence(7), "failed"));
        out.extend(encoder.error(Sequence(7), &json!({ "code": "x" })));
        let mut frames = Bytes::from(out);
        let read: Vec<_> = std::iter::from_fn(|| next(&mut frames)).collect();
        let delta = json!([{ "op": "add", "path": "/parts/0/text/-", "value": "a\n" }]);
        let Value::Array(patch) = delta else { unreachable!("just made") };
        let end = Cursor { knows_end: true, ..at };
        assert_eq!(
            read,
            [
                (Frame::ActivitySnapshot(Shown::of(&run, activity)), None),
                (Frame::ActivityDelta { activity_type: "message".into(), activity_id: "m".into(), patch }, Some(at)),
                (Frame::Hydrated {}, Some(at)),
                (Frame::Reset { reason: "epoch".into() }, Some(Cursor::at(epoch, Sequence::NONE))),
                (Frame::End { status: "failed".into() }, Some(end)),
                (Frame::Error { problem: json!({ "code": "x" }) }, None),
            ]
        );
    }
}
