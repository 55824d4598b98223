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

use crate::model::{Cursor, Epoch, ReceivedAt, Sequence};
use crate::projection::activity_set::{Activity, Change};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;

/// The comment that stops proxies from closing an idle stream, and the first bytes of every stream.
pub const HEARTBEAT: &[u8] = b":\n";

/// Encodes the frames of one log; holds the text that all of them share.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// `"runId":"…"` for a run's log, `"sessionId":"…"` for a session's own log.
    log: String,
}

impl Encoder {
    /// Creates the encoder of one log's frames.
    #[must_use]
    pub fn new(log: &crate::log::LogId) -> Self {
        let (member, id) = match log {
            crate::log::LogId::Run(id) => ("runId", id.as_str()),
            crate::log::LogId::Session(id) => ("sessionId", id.as_str()),
        };
        Self { log: format!("\"{member}\":{}", Value::from(id)) }
    }

    /// Appends an Event frame and its cursor.
    pub fn event(&self, out: &mut Vec<u8>, cursor: Cursor, sequence: Sequence, prev: Sequence, envelope: &[u8]) {
        out.extend_from_slice(b"data: {\"frame\":\"Event\",");
        out.extend_from_slice(self.log.as_bytes());
        out.extend_from_slice(b",\"sequence\":");
        push_decimal(out, sequence.0);
        out.extend_from_slice(b",\"prev\":");
        push_decimal(out, prev.0);
        out.extend_from_slice(b",\"event\":");
        out.extend_from_slice(envelope);
        out.extend_from_slice(b"}\n");
        id(out, cursor);
    }

    /// Appends an activity's change up to the end of the data line. The caller appends [`push_frame_end`].
    pub fn change(
        &self,
        out: &mut Vec<u8>,
        sequence: Sequence,
        prev: Sequence,
        activity: &Activity,
        change: &Change,
    ) -> PrevRange {
        if change.is_snapshot {
            return self.snapshot(out, sequence, Some(prev), activity);
        }
        let range = self.head(out, "ActivityDelta", sequence, Some(prev));
        member(out, "activityType", &activity.kind);
        member(out, "activityId", &activity.id);
        time(out, "at", activity.updated_at);
        if let Some(ended) = change.ended {
            member(out, "ended", &ended);
        }
        member(out, "patch", &change.patch);
        out.extend_from_slice(b"}\n");
        range
    }

    /// Appends a snapshot of an activity up to the end of the data line.
    ///
    /// Frames for joining or catching up have no `prev`.
    pub fn snapshot(&self, out: &mut Vec<u8>, sequence: Sequence, prev: Option<Sequence>, activity: &Activity) -> PrevRange {
        let range = self.head(out, "ActivitySnapshot", sequence, prev);
        member(out, "activityType", &activity.kind);
        member(out, "activityId", &activity.id);
        member(out, "surface", &activity.surface);
        member(out, "opened", &activity.opened);
        time(out, "openedAt", activity.opened_at);
        time(out, "updatedAt", activity.updated_at);
        if let Some(ended_at) = activity.ended_at {
            time(out, "endedAt", ended_at);
        }
        if let Some(agent) = &activity.agent {
            member(out, "agentId", agent);
        }
        member(out, "content", &activity.content);
        out.extend_from_slice(b"}\n");
        range
    }

    /// Appends the start of a frame, through its `prev`.
    fn head(&self, out: &mut Vec<u8>, frame: &str, sequence: Sequence, prev: Option<Sequence>) -> PrevRange {
        out.extend_from_slice(b"data: {\"frame\":\"");
        out.extend_from_slice(frame.as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(self.log.as_bytes());
        out.extend_from_slice(b",\"sequence\":");
        push_decimal(out, sequence.0);
        let Some(prev) = prev else { return PrevRange { prev: out.len(), after_prev: out.len() } };
        out.extend_from_slice(b",\"prev\":");
        let at = out.len();
        push_decimal(out, prev.0);
        PrevRange { prev: at, after_prev: out.len() }
    }

    /// Encodes a Hydrated frame.
    ///
    /// `sequence` is the last envelope that gave this reader's filter a frame, so that the next frame's `prev` equals
    /// it. `cursor` is the reader's position; `None` before the log's first envelope.
    #[must_use]
    pub fn hydrated(&self, sequence: Sequence, cursor: Option<Cursor>) -> Vec<u8> {
        self.control(&json!({ "frame": "Hydrated", "sequence": sequence }), cursor)
    }

    /// Encodes an End frame.
    ///
    /// Its cursor is later than every event's: a reader that resumes there has seen everything.
    #[must_use]
    pub fn end(&self, epoch: Epoch, sequence: Sequence, status: &str) -> Vec<u8> {
        let cursor = Cursor { knows_end: true, ..Cursor::at(epoch, sequence) };
        self.control(&json!({ "frame": "End", "sequence": sequence, "status": status }), Some(cursor))
    }

    /// Encodes a Reset frame: the reader must drop its copy of this log.
    ///
    /// The cursor precedes the log's first event.
    #[must_use]
    pub fn reset(&self, epoch: Epoch, reason: &str) -> Vec<u8> {
        self.control(&json!({ "frame": "Reset", "sequence": 0, "reason": reason }), Some(Cursor::at(epoch, Sequence::NONE)))
    }

    /// Encodes an Error frame; the stream ends after it.
    #[must_use]
    pub fn error(&self, sequence: Sequence, problem: &Value) -> Vec<u8> {
        self.control(&json!({ "frame": "Error", "sequence": sequence, "problem": problem }), None)
    }

    fn control(&self, frame: &Value, cursor: Option<Cursor>) -> Vec<u8> {
        let text = frame.to_string();
        let (kind, rest) = text.split_at(text.find(',').expect("a control frame has further members") + 1);
        let mut out = format!("data: {kind}{},{rest}\n", self.log).into_bytes();
        push_frame_end(&mut out, cursor);
        out
    }
}

/// Removes the cursors from frames: on a stream of several logs, one log's cursors are meaningless.
#[must_use]
pub fn without_cursors(frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(frames.len());
    for line in frames.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"id: ")) {
        out.extend_from_slice(line);
    }
    out
}

/// Appends a cursor to the last of these frames, which has none.
pub fn append_cursor(frames: &mut Vec<u8>, cursor: Cursor) {
    debug_assert!(frames.ends_with(b"}\n\n"), "the last of the whole frames has no cursor");
    frames.pop();
    id(frames, cursor);
}

/// Returns these Event frames with another `prev` on the first one.
#[must_use]
pub fn with_prev(frames: Bytes, prev: Sequence) -> Bytes {
    // The frame's own member comes first, and a JSON string cannot contain unescaped quotes.
    let member = b",\"prev\":";
    let Some(at) = memchr::memmem::find(&frames, member).map(|at| at + member.len()) else { return frames };
    let end = at + frames[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut digits = Vec::with_capacity(20);
    push_decimal(&mut digits, prev.0);
    if frames[at..end] == digits { frames } else { [&frames[..at], &digits, &frames[end..]].concat().into() }
}

/// The byte range of a frame's `prev` in its buffer.
///
/// A reader with its own filter needs another value there.
#[derive(Debug, Clone, Copy)]
pub struct PrevRange {
    pub prev: usize,
    pub after_prev: usize,
}

/// Appends the rest of a frame: its cursor, if the frame is the envelope's last, and the blank line.
pub fn push_frame_end(out: &mut Vec<u8>, cursor: Option<Cursor>) {
    match cursor {
        Some(cursor) => id(out, cursor),
        None => out.push(b'\n'),
    }
}

/// Appends a JSON member after others.
fn member(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, value).expect("plain data with string keys serializes, and writing to a Vec cannot fail");
}

/// Appends a timestamp member after others.
fn time(out: &mut Vec<u8>, name: &str, time: ReceivedAt) {
    write!(out, ",\"{name}\":\"{time}\"").expect("writing to a Vec cannot fail");
}

fn id(out: &mut Vec<u8>, cursor: Cursor) {
    write!(out, "id: {cursor}\n\n").expect("writing to a Vec cannot fail");
}

/// Removes the first SSE frame from `frames` and returns it as WebSocket text with its cursor.
///
/// A WebSocket message has no `id:` line, so the object carries the cursor and the subscription. `sub` is the
/// subscription's id, as JSON.
pub fn message(frames: &mut Bytes, sub: &str) -> Option<(Vec<u8>, Option<Cursor>)> {
    while let Some(end) = memchr::memmem::find(frames, b"\n\n") {
        let block = frames.split_to(end + 2);
        let (mut object, mut id) = (None, None);
        for line in block.split(|byte| *byte == b'\n') {
            object = line.strip_prefix(b"data: {").or(object);
            id = line.strip_prefix(b"id: ").or(id);
        }
        // A block without data only keeps an SSE connection open.
        let Some(object) = object else { continue };
        let (cursor, of, end): (&[u8], _, &[u8]) = match id {
            Some(id) => (b"\"cursor\":\"", id, b"\","),
            None => Default::default(),
        };
        let text = [b"{\"sub\":", sub.as_bytes(), b",", cursor, of, end, object].concat();
        return Some((text, id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok())));
    }
    None
}

/// Appends a decimal number; the standard formatter would cost as much as the rest of a frame.
pub fn push_decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(n % 10).expect("n % 10 is a digit");
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogId;
    use crate::model::RunId;

    fn encoder() -> Encoder {
        Encoder::new(&LogId::Run(RunId::new("r\"1").unwrap()))
    }

    #[test]
    fn an_event_frame_is_one_data_line_followed_by_its_cursor() {
        let mut out = Vec::new();
        encoder().event(
            &mut out,
            Cursor::at(Epoch::from_random(0xe), Sequence(7)),
            Sequence(7),
            Sequence(5),
            b"{\"type\":\"x\"}",
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "data: {\"frame\":\"Event\",\"runId\":\"r\\\"1\",\"sequence\":7,\"prev\":5,\"event\":{\"type\":\"x\"}}\nid: 000000000000000e:14\n\n"
        );
    }

    #[test]
    fn with_prev_replaces_only_the_first_prev_even_if_texts_contain_the_member() {
        let encoder = Encoder::new(&LogId::Run(RunId::new(",\"prev\":9").unwrap()));
        let event = |sequence, prev| {
            let mut out = Vec::new();
            let at = Cursor::at(Epoch::from_random(1), Sequence(3));
            encoder.event(&mut out, at, Sequence(sequence), Sequence(prev), b"{\"prev\":5,\"a\":0}");
            out
        };
        let frames = Bytes::from([event(12, 5), event(13, 12)].concat());
        assert_eq!(with_prev(frames.clone(), Sequence(111)), [event(12, 111), event(13, 12)].concat());
        assert_eq!(with_prev(frames.clone(), Sequence(5)), frames);
        assert_eq!(with_prev(Bytes::new(), Sequence(5)), Bytes::new());
    }

    #[test]
    fn control_frames_name_the_run_and_the_end_cursor_follows_the_last_event() {
        let end = String::from_utf8(encoder().end(Epoch::from_random(0xe), Sequence(7), "completed")).unwrap();
        assert_eq!(
            end,
            "data: {\"frame\":\"End\",\"runId\":\"r\\\"1\",\"sequence\":7,\"status\":\"completed\"}\nid: 000000000000000e:15\n\n"
        );
        let reset = String::from_utf8(encoder().reset(Epoch::from_random(0xe), "epoch")).unwrap();
        assert!(reset.ends_with("id: 000000000000000e:0\n\n"), "{reset}");
    }

    #[test]
    fn a_websocket_message_is_the_sse_object_with_its_subscription_and_cursor() {
        let mut out = b":\nretry: 1500\n".to_vec();
        encoder().event(
            &mut out,
            Cursor::at(Epoch::from_random(0xe), Sequence(7)),
            Sequence(7),
            Sequence(5),
            br#"{"type":"x","text":"id: \n"}"#,
        );
        out.extend_from_slice(b":\n\n");
        out.extend(encoder().hydrated(Sequence(7), None));
        let mut frames = Bytes::from(out);
        let (text, cursor) = message(&mut frames, "\"s\\\"1\"").unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"sub":"s\"1","cursor":"000000000000000e:14","frame":"Event","runId":"r\"1","sequence":7,"prev":5,"event":{"type":"x","text":"id: \n"}}"#
        );
        assert_eq!(cursor, Some(Cursor::at(Epoch::from_random(0xe), Sequence(7))));
        let (text, cursor) = message(&mut frames, "7").unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"sub":7,"frame":"Hydrated","runId":"r\"1","sequence":7}"#);
        assert_eq!((cursor, message(&mut frames, "7")), (None, None));
    }
}
