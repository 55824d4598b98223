//! The native dialect: each frame is one JSON object, sent as SSE.
//!
//! ```text
//! data: {"frame":"Event","runId":"r","sequence":7,"prev":5,"event":{…}}
//! id: 00000000deadbeef:14
//!
//! data: {"frame":"ActivityDelta","runId":"r","sequence":8,"prev":7,"activityType":"run","activityId":"r","patch":[…]}
//!
//! ```
//! Only the last frame of an envelope has an id: a reader resumes between envelopes, never inside one.
//!
//! The id follows the data: a client that commits an id as soon as it reads the line (`fetch-event-source` does) would
//! otherwise lose an event that is cut between the two lines. Lines end in LF alone, because `@ag-ui/client` splits on
//! `\n\n`. Frames have no `event:` line, because `EventSource.onmessage` would not fire. A heartbeat is a comment with
//! one newline: some clients deliver a blank line after it as an empty message (Azure/fetch-event-source#15).

use super::encoded::{EncodedFrames, FrameBuffer, FrameTag};
use super::frames::Frame;
use bytes::Bytes;
use proscenium_model::{Cursor, Epoch, LogId, ReceivedAt, RunId, Sequence};
use proscenium_projection::activity_set::Activity;
use proscenium_projection::change::Change;
use serde::Serialize;
use serde_json::Value;
use std::sync::LazyLock;

/// The comment that stops proxies from closing an idle stream, and the first bytes of every stream.
#[must_use]
pub fn heartbeat() -> EncodedFrames {
    static COMMENT: LazyLock<EncodedFrames> = LazyLock::new(|| Bytes::from_static(b":\n").into());
    COMMENT.clone()
}

/// The envelope of an Event frame, as it is stored. `None`: the frame is of another kind.
#[must_use]
pub fn envelope_of(frame: &Bytes) -> Option<Bytes> {
    const MEMBER: &[u8] = b",\"event\":";
    // Before it are only ids and numbers, and a quote in an id is escaped.
    let at = frame.starts_with(b"{\"frame\":\"Event\",").then(|| memchr::memmem::find(frame, MEMBER)).flatten()?;
    Some(frame.slice(at + MEMBER.len()..frame.len() - 1))
}

/// Whether a frame is a Reset: its reader must drop what it has of the log.
#[must_use]
pub fn is_reset(frame: &[u8]) -> bool {
    frame.starts_with(b"{\"frame\":\"Reset\",")
}

/// Encodes the frames of one log; holds the text that all of them share.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// `"runId":"…"` for a run's log, `"sessionId":"…"` for a session's own log.
    log: String,
    /// The run of a run's log.
    run: Option<RunId>,
}

impl Encoder {
    /// Creates the encoder of one log's frames.
    #[must_use]
    pub fn new(log: &LogId) -> Self {
        let (member, id, run) = match log {
            LogId::Run(id) => ("runId", id.as_str(), Some(id.clone())),
            LogId::Session(id) => ("sessionId", id.as_str(), None),
        };
        Self { log: format!("\"{member}\":{}", Value::from(id)), run }
    }

    /// Appends an Event frame, with the cursor of this position.
    pub fn event(&self, out: &mut FrameBuffer, position: Sequence, sequence: Sequence, prev: Sequence, envelope: &[u8]) {
        let object = self.begin(out, "Event", position, sequence, Some(prev));
        object.extend_from_slice(b",\"event\":");
        object.extend_from_slice(envelope);
        object.push(b'}');
        out.end(None);
        out.set_cursor();
    }

    /// Appends a change of an activity. Its envelope's last frame needs a cursor.
    pub fn change(&self, out: &mut FrameBuffer, sequence: Sequence, prev: Sequence, activity: &Activity, change: &Change) {
        match change.is_snapshot {
            true => self.snapshot(out, sequence, Some(prev), activity),
            false => self.delta(out, sequence, prev, activity, change),
        }
        out.keep_decoded(|| Frame::of_change(self.run.as_ref(), activity, change));
    }

    fn delta(&self, out: &mut FrameBuffer, sequence: Sequence, prev: Sequence, activity: &Activity, change: &Change) {
        let object = self.begin(out, "ActivityDelta", sequence, sequence, Some(prev));
        member(object, "activityType", &activity.kind);
        member(object, "activityId", &activity.id);
        time(object, "at", activity.updated_at);
        if let Some(ended) = change.ended {
            member(object, "ended", &ended);
        }
        let opened_at = activity.source_opened_at.filter(|_| change.is_source_time_new);
        source_times(object, opened_at, activity.source_ended_at.filter(|_| change.ended == Some(true)));
        member(object, "patch", &change.operations);
        object.push(b'}');
        out.end(Some(tag(activity)));
    }

    /// Appends a snapshot of an activity. Frames for joining or catching up have no `prev`.
    pub fn snapshot(&self, out: &mut FrameBuffer, sequence: Sequence, prev: Option<Sequence>, activity: &Activity) {
        let object = self.begin(out, "ActivitySnapshot", sequence, sequence, prev);
        member(object, "activityType", &activity.kind);
        member(object, "activityId", &activity.id);
        member(object, "surface", &activity.surface);
        member(object, "opened", &activity.opened);
        time(object, "openedAt", activity.opened_at);
        time(object, "updatedAt", activity.updated_at);
        if let Some(ended_at) = activity.ended_at {
            time(object, "endedAt", ended_at);
        }
        source_times(object, activity.source_opened_at, activity.source_ended_at);
        if let Some(agent) = &activity.agent {
            member(object, "agentId", agent);
        }
        member(object, "content", &activity.content);
        object.push(b'}');
        out.end(Some(tag(activity)));
    }

    /// Begins a frame, through its `prev`.
    fn begin<'o>(
        &self,
        out: &'o mut FrameBuffer,
        frame: &str,
        position: Sequence,
        sequence: Sequence,
        prev: Option<Sequence>,
    ) -> &'o mut Vec<u8> {
        let object = out.begin(position);
        object.extend_from_slice(b"{\"frame\":\"");
        object.extend_from_slice(frame.as_bytes());
        object.extend_from_slice(b"\",");
        object.extend_from_slice(self.log.as_bytes());
        object.extend_from_slice(b",\"sequence\":");
        sequence.append_to(object);
        if let Some(prev) = prev {
            object.extend_from_slice(b",\"prev\":");
            out.push_prev(prev);
        }
        out.object()
    }

    /// Appends a Hydrated frame.
    ///
    /// `sequence` is the last envelope that gave this reader's filter a frame, so that the next frame's `prev` equals
    /// it. `position` is the reader's; `None` before the log's first envelope.
    pub fn hydrated(&self, out: &mut FrameBuffer, sequence: Sequence, position: Option<Sequence>) {
        self.begin(out, "Hydrated", position.unwrap_or_default(), sequence, None).push(b'}');
        out.end(None);
        if position.is_some() {
            out.set_cursor();
        }
    }

    /// Encodes an End frame.
    ///
    /// Its cursor is later than every event's: a reader that resumes there has seen everything.
    #[must_use]
    pub fn end(&self, epoch: Epoch, sequence: Sequence, status: &str) -> EncodedFrames {
        let mut out = FrameBuffer::new(epoch);
        self.append_end(&mut out, sequence, sequence, status);
        out.finish()
    }

    /// Appends an End frame, with the cursor after the last event's, which has this position.
    pub fn append_end(&self, out: &mut FrameBuffer, position: Sequence, sequence: Sequence, status: &str) {
        self.control(out, "End", position, sequence, "status", &status);
        out.set_end_cursor();
    }

    /// Encodes a Reset frame: the reader must drop its copy of this log.
    ///
    /// The cursor precedes the log's first event.
    #[must_use]
    pub fn reset(&self, epoch: Epoch, reason: &str) -> EncodedFrames {
        let mut out = FrameBuffer::new(epoch);
        self.control(&mut out, "Reset", Sequence::NONE, Sequence::NONE, "reason", &reason);
        out.set_cursor();
        out.finish()
    }

    /// Encodes an Error frame; the stream ends after it.
    #[must_use]
    pub fn error(&self, sequence: Sequence, problem: &Value) -> EncodedFrames {
        let mut out = FrameBuffer::new(Epoch::from_random(0));
        self.control(&mut out, "Error", sequence, sequence, "problem", problem);
        out.finish()
    }

    /// Appends a frame with one member of its own.
    fn control(
        &self,
        out: &mut FrameBuffer,
        frame: &str,
        position: Sequence,
        sequence: Sequence,
        name: &str,
        value: &impl Serialize,
    ) {
        let object = self.begin(out, frame, position, sequence, None);
        member(object, name, value);
        object.push(b'}');
        out.end(None);
    }
}

fn tag(activity: &Activity) -> FrameTag {
    FrameTag { event_type: None, surface: activity.surface.clone(), agent: activity.agent.clone() }
}

/// Appends a JSON member after others.
pub(super) fn member(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, value).expect("plain data with string keys serializes, and writing to a Vec cannot fail");
}

/// Appends a timestamp member after others.
fn time(out: &mut Vec<u8>, name: &str, time: ReceivedAt) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    time.append_to(out);
    out.push(b'"');
}

/// Appends the times by the clock of an activity's source.
fn source_times(out: &mut Vec<u8>, opened_at: Option<ReceivedAt>, ended_at: Option<ReceivedAt>) {
    for (name, at) in [("sourceOpenedAt", opened_at), ("sourceEndedAt", ended_at)] {
        if let Some(at) = at {
            time(out, name, at);
        }
    }
}

/// Takes the next frame as WebSocket text, with its cursor.
///
/// A WebSocket message has no `id:` line, so the object carries the cursor and the subscription. `sub` is the
/// subscription's id, as JSON.
pub fn message(frames: &mut EncodedFrames, sub: &str) -> Option<(Vec<u8>, Option<Cursor>)> {
    let (object, cursor) = frames.next_frame()?;
    let at = cursor.map(|cursor| format!("\"cursor\":\"{cursor}\",")).unwrap_or_default();
    Some(([b"{\"sub\":", sub.as_bytes(), b",", at.as_bytes(), &object[1..]].concat(), cursor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{ActivityView, DecodedFrame, Delta};
    use proscenium_projection::activity_set::ActivitySet;
    use proscenium_projection::change::{ContentOperation, MemberPlace, Within};
    use proscenium_projection::source_clock::SourceClock;
    use serde_json::json;
    use std::sync::Arc;

    fn encoder() -> Encoder {
        Encoder::new(&LogId::Run(RunId::new("r\"1").unwrap()))
    }

    fn text(frames: EncodedFrames) -> String {
        String::from_utf8(frames.into_bytes().into()).unwrap()
    }

    fn event(encoder: &Encoder, sequence: u64, prev: u64, envelope: &[u8]) -> EncodedFrames {
        let mut out = FrameBuffer::new(Epoch::from_random(0xe));
        encoder.event(&mut out, Sequence(sequence), Sequence(sequence), Sequence(prev), envelope);
        out.finish()
    }

    #[test]
    fn an_event_frame_is_one_data_line_followed_by_its_cursor() {
        assert_eq!(
            text(event(&encoder(), 7, 5, b"{\"type\":\"x\"}")),
            "data: {\"frame\":\"Event\",\"runId\":\"r\\\"1\",\"sequence\":7,\"prev\":5,\"event\":{\"type\":\"x\"}}\nid: 000000000000000e:14\n\n"
        );
    }

    #[test]
    fn control_frames_name_the_run_and_the_end_cursor_follows_the_last_event() {
        assert_eq!(
            text(encoder().end(Epoch::from_random(0xe), Sequence(7), "completed")),
            "data: {\"frame\":\"End\",\"runId\":\"r\\\"1\",\"sequence\":7,\"status\":\"completed\"}\nid: 000000000000000e:15\n\n"
        );
        let reset = text(encoder().reset(Epoch::from_random(0xe), "epoch"));
        assert!(reset.ends_with("id: 000000000000000e:0\n\n"), "{reset}");
    }

    #[test]
    fn a_websocket_message_is_the_object_of_a_frame_with_its_subscription_and_cursor() {
        let mut out = FrameBuffer::new(Epoch::from_random(0xe));
        encoder().event(&mut out, Sequence(7), Sequence(7), Sequence(5), br#"{"type":"x","text":"id: \n"}"#);
        encoder().hydrated(&mut out, Sequence(7), None);
        let mut frames = out.finish().copied_after(b"retry: 1500\n");
        let (text, cursor) = message(&mut frames, "\"s\\\"1\"").unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"sub":"s\"1","cursor":"000000000000000e:14","frame":"Event","runId":"r\"1","sequence":7,"prev":5,"event":{"type":"x","text":"id: \n"}}"#
        );
        assert_eq!(cursor, Some(Cursor::at(Epoch::from_random(0xe), Sequence(7))));
        let (text, cursor) = message(&mut frames, "7").unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"sub":7,"frame":"Hydrated","runId":"r\"1","sequence":7}"#);
        assert_eq!((cursor, message(&mut frames, "7")), (None, None));
        assert_eq!(message(&mut heartbeat(), "7"), None, "a heartbeat is no message");
    }

    #[test]
    fn decoded_frames_are_what_was_encoded_and_all_readers_share_them() {
        let run = RunId::new("r").unwrap();
        let encoder = Encoder::new(&LogId::Run(run.clone()));
        let epoch = Epoch::from_random(1);
        let at = Cursor::at(epoch, Sequence(7));
        let activity: Activity = serde_json::from_value(json!({
            "kind": "message", "id": "m", "surface": "conversation", "opened": 3, "sequence": 7, "opened_at": 1, "updated_at": 2,
            "content": { "role": "assistant", "parts": [] },
        }))
        .unwrap();
        let set = ActivitySet::restore(vec![activity], false, SourceClock::default());
        let activity = &set.activities()[0];
        let mut out = FrameBuffer::new(epoch);
        encoder.snapshot(&mut out, Sequence(7), Some(Sequence(5)), activity);
        let mut change = Change::default();
        let part = MemberPlace { within: Within::Item("parts", 0), member: "text".into() };
        change.operations.push(ContentOperation::Push(part, "a\n".into()));
        encoder.change(&mut out, Sequence(7), Sequence(5), activity, &change);
        out.set_cursor();
        encoder.hydrated(&mut out, Sequence(7), Some(Sequence(7)));
        let frames = out.finish();
        let delta = Delta {
            run: Some(run.as_str().into()),
            kind: "message".into(),
            id: "m".into(),
            operations: change.operations.clone().into(),
        };
        let decoded = |frame, cursor| DecodedFrame { frame, cursor };
        let (all, of) = frames.decoded();
        let expected = [
            decoded(Frame::ActivitySnapshot(ActivityView::of(&run, activity)), None),
            decoded(Frame::ActivityDelta(delta), Some(at)),
            decoded(Frame::Hydrated {}, Some(at)),
        ];
        assert_eq!((&*all, of), (&expected[..], 0..3));
        let (again, of) = frames.after(Sequence(6)).unwrap().decoded();
        assert!(Arc::ptr_eq(&all, &again) && of == (0..3));
        frames.forget_decoded();
        assert!(!Arc::ptr_eq(&all, &frames.decoded().0), "the chunk no longer keeps them");
        let decode = |frames: EncodedFrames| frames.decoded().0[0].clone();
        let end = Cursor { knows_end: true, ..at };
        assert_eq!(
            [
                encoder.reset(epoch, "epoch"),
                encoder.end(epoch, Sequence(7), "failed"),
                encoder.error(Sequence(7), &json!({ "code": "x" }))
            ]
            .map(decode),
            [
                decoded(Frame::Reset { reason: "epoch".into() }, Some(Cursor::at(epoch, Sequence::NONE))),
                decoded(Frame::End { status: "failed".into() }, Some(end)),
                decoded(Frame::Error { problem: json!({ "code": "x" }) }, None),
            ]
        );
    }

    #[test]
    fn a_copy_with_another_prev_changes_no_text_that_contains_the_member() {
        let encoder = Encoder::new(&LogId::Run(RunId::new(",\"prev\":9").unwrap()));
        let events = |first| {
            let mut out = FrameBuffer::new(Epoch::from_random(0xe));
            for (sequence, prev) in [(12, first), (13, 12)] {
                encoder.event(&mut out, Sequence(sequence), Sequence(sequence), Sequence(prev), b"{\"prev\":5,\"a\":0}");
            }
            out.finish()
        };
        let mut prev = Sequence(111);
        let copy = events(5).copied_where(None::<fn(&FrameTag) -> bool>, &mut prev).unwrap();
        assert_eq!((text(copy), prev), (text(events(111)), Sequence(13)));
    }

    #[test]
    fn a_filtered_reader_gets_each_accepted_frame_with_its_own_prev_and_cursor() {
        let mut out = FrameBuffer::new(Epoch::from_random(0xe));
        for (sequence, surface) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
            let envelope = format!(r#"{{"type":"text.delta","surface":"{surface}","agentId":"x"}}"#);
            encoder().event(&mut out, Sequence(sequence), Sequence(sequence), Sequence(sequence - 1), envelope.as_bytes());
        }
        let (frames, mut prev) = (out.finish(), Sequence(9));
        let memory = frames.memory_bytes();
        let seen = frames.copied_where(Some(|tag: &FrameTag| tag.surface.as_str() == "a"), &mut prev).unwrap();
        let (text, lines) = (text(seen), r#""surface":"a","agentId":"x"}}"#);
        let prevs: Vec<_> = text.split("\"prev\":").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
        assert_eq!((prevs, prev, text.matches(lines).count()), (vec!["9", "1", "3"], Sequence(4), 3));
        assert!(text.ends_with("id: 000000000000000e:8\n\n"));
        assert!(frames.copied_where(Some(|_: &FrameTag| false), &mut prev).is_none() && prev == Sequence(4));
        assert_eq!(frames.memory_bytes(), memory, "a cache adds and subtracts the same weight");
    }

    #[test]
    fn the_rest_of_a_frame_that_was_sent_in_part_is_found_without_a_look_at_its_text() {
        let mut out = FrameBuffer::new(Epoch::from_random(0xe));
        for sequence in [7, 8] {
            encoder().event(&mut out, Sequence(sequence), Sequence(sequence), Sequence(5), b"{\"text\":\"\\n\\nid: 1\"}");
        }
        let whole = out.finish();
        let first = whole.len() - whole.after(Sequence(7)).unwrap().len();
        for sent in 0..first {
            let mut unsent = whole.clone();
            unsent.advance(sent);
            let (frame, cursor) = unsent.current_frame();
            assert_eq!(frame.as_ref(), &whole.as_ref()[sent..first]);
            assert_eq!(cursor, Some(Cursor::at(Epoch::from_random(0xe), Sequence(7))));
            let (copy, cursor) = (frame.copied_after(b""), cursor);
            assert_eq!((copy.as_ref(), copy.current_frame().1), (frame.as_ref(), cursor));
        }
    }
}
