//! Chunks that follow each other: rows that differ only in their text, as most rows of a log do.
//!
//! The fold of a chunk appends its text to an activity. If the next row equals it but for the text, the id, the number
//! and the times, its fold does the same at the same place, because nothing else has changed. Such a row is compared, not
//! parsed. It takes a fraction of the time, and folds of long logs consist of such rows.

use super::FoldOutcome;
use super::activity_set::ActivitySet;
use super::change::{ContentOperation, MemberPlace, Within};
use super::envelope_view::EnvelopeView;
use super::members::TEXT;
use memchr::memmem;
use proscenium_model::json::string_end;
use proscenium_model::{AgentId, EventType, ReceivedAt, Sequence, Surface};
use serde_json::Value;
use std::borrow::Cow;

const TYPE_NAME: &[u8] = b"{\"type\":\"";
/// The text is the first member of such a payload.
const TEXT_START: &[u8] = b",\"payload\":{\"text\":\"";

/// What the rows of a stream of chunks have in common.
#[derive(Debug, Clone)]
pub struct ChunkRows {
    /// The text of a row before its id.
    begin: Box<[u8]>,
    /// The text between the time and the chunk.
    head: Box<[u8]>,
    /// The text after the chunk.
    tail: Box<[u8]>,
    /// The index of the activity that grows, and of its part; `None` if the activity has the text itself.
    activity: usize,
    part: Option<usize>,
    pub event_type: EventType,
    pub surface: Surface,
    pub agent: Option<AgentId>,
}

/// A row without its id and numbers, which the fold ignores.
struct SplitRow<'r> {
    begin: &'r [u8],
    timestamp: Option<&'r [u8]>,
    received_at: &'r [u8],
    /// From the end of the time on.
    rest: &'r [u8],
}

/// Splits a row as `Envelope::write_json` writes it; `None` for any other text.
fn split(row: &[u8]) -> Option<SplitRow<'_>> {
    const ID_BYTES: usize = 36;
    let digits = |from: &'static [u8], text: &'_ [u8]| -> Option<usize> {
        let digits = text.strip_prefix(from)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        Some(from.len() + digits)
    };
    let at = TYPE_NAME.len() + memchr::memchr2(b'"', b'\\', row.strip_prefix(TYPE_NAME)?)? + 1;
    let (begin, rest) = row.split_at(at);
    let mut rest = rest.strip_prefix(b",\"eventId\":\"")?.get(ID_BYTES..)?.strip_prefix(b"\"")?;
    rest = &rest[digits(b",\"sequence\":", rest)?..];
    rest = &rest[digits(b",\"sourceSequence\":", rest).unwrap_or(0)..];
    let mut timestamp = None;
    if let Some(stated) = rest.strip_prefix(b",\"timestamp\":\"") {
        let end = memchr::memchr2(b'"', b'\\', stated)?;
        (timestamp, rest) = (Some(&stated[..end]), stated[end..].strip_prefix(b"\"")?);
    }
    rest = rest.strip_prefix(b",\"receivedAt\":\"")?;
    let (received_at, rest) = rest.split_at(memchr::memchr(b'"', rest)?);
    Some(SplitRow { begin, timestamp, received_at, rest })
}

impl ChunkRows {
    /// The rows like this one; `None` if its fold did anything else than to append its text to one activity.
    pub fn of(row: &[u8], envelope: &EnvelopeView, outcome: &FoldOutcome) -> Option<Self> {
        let [change] = &outcome.changes[..] else { return None };
        let [ContentOperation::Push(MemberPlace { within, member }, Value::String(chunk))] = &change.operations[..] else {
            return None;
        };
        let is_chunk = matches!(envelope.event_type, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta);
        let is_in_payload = !envelope.extra.contains_key("text");
        if !is_chunk || !is_in_payload || member != TEXT.name() || change.is_snapshot || change.ended.is_some() {
            return None;
        }
        let part = match *within {
            Within::Content => None,
            Within::Item(_, part) => Some(part),
            Within::Member(_) => return None,
        };
        let SplitRow { begin, rest, .. } = split(row)?;
        let from = memmem::find(rest, TEXT_START)? + TEXT_START.len();
        let to = string_end(rest, from);
        let (head, tail) = (rest[..from].into(), rest[to..].into());
        let (event_type, surface, agent) = (envelope.event_type.clone(), envelope.surface.clone(), envelope.ids.agent.clone());
        let rows = Self { begin: begin.into(), head, tail, activity: change.index, part, event_type, surface, agent };
        (rows.read(row)?.1 == *chunk).then_some(rows)
    }

    /// The text of a row, and the row split; `None` if it is no such row, or has no text.
    fn read<'r>(&self, row: &'r [u8]) -> Option<(SplitRow<'r>, Cow<'r, str>)> {
        let split = split(row)?;
        let text = split.rest.strip_prefix(&*self.head)?.strip_suffix(&*self.tail).filter(|text| !text.is_empty())?;
        if *split.begin != *self.begin {
            return None;
        }
        let text = match memchr::memchr2(b'"', b'\\', text) {
            None => Cow::Borrowed(std::str::from_utf8(text).ok()?),
            Some(_) => {
                let from = row.len() - self.tail.len() - text.len();
                Cow::Owned(serde_json::from_slice(&row[from - 1..=from + text.len()]).ok()?)
            }
        };
        Some((split, text))
    }

    /// Appends the text of a row. Returns whether it is such a row.
    pub(super) fn fold(&self, row: &[u8], sequence: Sequence, activities: &mut ActivitySet) -> bool {
        let Some((SplitRow { received_at, timestamp, .. }, text)) = self.read(row) else { return false };
        let time = |text| std::str::from_utf8(text).ok().and_then(ReceivedAt::parse);
        activities.begin_envelope(sequence, time(received_at).unwrap_or_default(), timestamp.and_then(time));
        activities.append_text(self.activity, self.part, &text);
        true
    }
}
