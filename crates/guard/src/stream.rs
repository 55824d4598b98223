//! Streamed text: the memory of each open stream between its chunks, and when a stream ends.
//!
//! A held tail belongs to the draft that brought it. If the next chunk decides it, both leave as one. If the stream
//! ends first, or the next chunk is for another audience, the tail leaves in a chunk of its own. Text for different
//! audiences is never joined: a tail of both is held in parts. Only a chunk or the end of the stream decides a tail,
//! never time.

use super::secrets::{DecidedPart, REDACTED, ScanState};
use proscenium_model::fact::MessagesFact;
use proscenium_model::halves::{self, FirstHalf, Halves};
use proscenium_model::{
    AgentId, Audience, CallFact, Draft, EventType, Ids, MessageId, Owner, PartId, Payload, Persistence, Phase, Scope, Surface,
    ToolCallId, Topology,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of chunks in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Text,
    Reasoning,
    Plan,
    Args,
    Output,
}

/// The identity of a stream in its log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StreamKey {
    kind: Kind,
    message: Option<MessageId>,
    part: Option<PartId>,
    agent: Option<AgentId>,
    call: Option<ToolCallId>,
    channel: Option<Box<str>>,
}

/// Takes the text that this draft streams, if the draft is a chunk. Returns its payload member, too.
pub(super) fn take_streamed(draft: &mut Draft) -> Option<(&'static str, String)> {
    streamed(draft).map(|(member, text)| (member, std::mem::take(text)))
}

/// The streamed text of a chunk, and its payload member.
fn streamed(draft: &mut Draft) -> Option<(&'static str, &mut String)> {
    use EventType as E;
    let (member, text) = match (&draft.event_type, &mut draft.payload) {
        (E::TextDelta | E::ReasoningDelta | E::PlanDelta, Payload::Words(words)) => ("text", &mut words.text),
        (E::ToolOutputDelta, Payload::Call(call)) => ("text", &mut call.text),
        (E::ToolArgs, Payload::Call(call)) if call.input.is_none() => ("inputText", &mut call.input_text),
        _ => return None,
    };
    Some((member, text.as_mut()?))
}

/// Whether a draft of `tool.args` has the whole arguments, or says that all chunks have come.
fn completes_input(draft: &Draft) -> bool {
    let call = draft.payload.as_fact::<CallFact>();
    call.is_some_and(|call| call.input.is_some() || call.state.as_deref() == Some("input-available"))
}

impl StreamKey {
    /// The stream of a chunk. The caller has redacted ids and channel, because the key is saved.
    pub(super) fn of(draft: &Draft) -> Self {
        let kind = match draft.event_type {
            EventType::ReasoningDelta => Kind::Reasoning,
            EventType::PlanDelta => Kind::Plan,
            EventType::ToolArgs => Kind::Args,
            EventType::ToolOutputDelta => Kind::Output,
            _ => Kind::Text,
        };
        let mut key = Self { kind, message: None, part: None, agent: None, call: None, channel: None };
        match kind {
            Kind::Args | Kind::Output => {
                key.call.clone_from(&draft.ids.tool_call);
                let channel = draft.payload.as_fact().and_then(|call: &CallFact| call.channel.as_deref());
                key.channel = channel.filter(|_| kind == Kind::Output).map(Into::into);
            }
            Kind::Text | Kind::Reasoning | Kind::Plan => {
                key.message.clone_from(&draft.ids.message);
                key.part.clone_from(&draft.ids.part);
                key.agent.clone_from(&draft.ids.agent);
            }
        }
        key
    }

    /// Whether `draft` ends this stream.
    pub(super) fn is_ended_by(&self, draft: &Draft) -> bool {
        let ids = &draft.ids;
        match draft.event_type {
            EventType::TextFinal => self.is_ended_by_final(Kind::Text, ids),
            EventType::ReasoningSummary => self.is_ended_by_final(Kind::Reasoning, ids),
            EventType::PlanFinal => self.is_ended_by_final(Kind::Plan, ids),
            EventType::ToolArgs => self.kind == Kind::Args && self.call == ids.tool_call,
            EventType::ToolResult | EventType::ToolFailed => {
                matches!(self.kind, Kind::Args | Kind::Output) && self.call == ids.tool_call
            }
            _ => true,
        }
    }

    /// Whether a final ends this stream. A final without a part covers all parts of its message.
    fn is_ended_by_final(&self, kind: Kind, ids: &Ids) -> bool {
        self.kind == kind
            && self.message == ids.message
            && self.agent == ids.agent
            && (ids.part.is_none() || self.part == ids.part)
    }
}

/// Whether `draft` ends any stream.
///
/// Finals and results end theirs; a run's boundary and a repair end all.
pub(super) fn ends_streams(draft: &Draft) -> bool {
    match draft.event_type {
        EventType::TextFinal
        | EventType::ReasoningSummary
        | EventType::PlanFinal
        | EventType::ToolResult
        | EventType::ToolFailed => true,
        EventType::ToolArgs => completes_input(draft),
        _ => ends_every_stream(draft),
    }
}

/// Whether no earlier stream can continue after `draft`.
pub(super) fn ends_every_stream(draft: &Draft) -> bool {
    draft.event_type.is_run_boundary()
        || draft.payload.as_fact().is_some_and(|window: &MessagesFact| window.mode.as_deref() == Some("repair"))
}

/// The most parts of one held text that alternate between audiences.
///
/// Beyond it the guard decides the text at once, as with too many held tails: each part holds a skeleton draft.
pub(super) const PARTS_MAX: usize = 8;

/// The memory of one stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub scan: ScanState,
    /// The drafts for the held text, if the stream ends before its next chunk.
    ///
    /// Neighbours differ in visibility.
    held: Vec<Held>,
    /// The first half of a pair that the last chunk ended with.
    half: Option<HeldHalf>,
    /// Whether the save replaced the held text by the mark, which has not been sent yet.
    redaction_pending: bool,
    /// The time of the last chunk; larger is younger.
    pub age: u64,
}

/// A part of the held text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    draft: Box<Skeleton>,
    /// The length of the text that came with such drafts.
    ///
    /// The sum over all parts is the held length of the scan.
    bytes: usize,
}

/// The first half of a pair whose second half has not come.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HeldHalf {
    half: FirstHalf,
    /// The draft for its replacement, if the second half never comes.
    draft: Box<Skeleton>,
}

/// The text of a chunk.
pub(super) struct Streamed {
    /// The payload member that has it.
    pub member: &'static str,
    pub text: String,
    pub halves: Halves,
}

/// The part of a chunk's draft that is needed to send more of its text.
///
/// It keeps stream and audience, and omits members that would then be sent twice. It is also the saved form, so a new
/// member here survives a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skeleton {
    #[serde(rename = "class")]
    event_type: EventType,
    timestamp: Option<Box<str>>,
    source_sequence: Option<u64>,
    #[serde(with = "ids_as_map")]
    ids: Ids,
    owner: Owner,
    scope: Scope,
    phase: Phase,
    surface: Surface,
    persistence: Persistence,
    topology: Option<Topology>,
    #[serde(flatten)]
    visibility: Visibility,
    /// The streamed member, without its text, and the members that every chunk repeats.
    payload: Map<String, Value>,
}

/// The members that decide which readers get a draft.
///
/// Held text joins a chunk only if both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Visibility {
    audience: Audience,
    start_audience: Option<Audience>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call_audience: Option<Audience>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missed_by: Option<Audience>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_be_abort: bool,
}

impl Visibility {
    const fn of(draft: &Draft) -> Self {
        Self {
            audience: draft.audience,
            start_audience: draft.start_audience,
            call_audience: draft.call_audience,
            missed_by: draft.missed_by,
            may_be_abort: draft.may_be_abort,
        }
    }
}

/// Members besides the text that every chunk of a stream repeats.
const REPEATED_MEMBERS: &[&str] = &["role", "channel"];

impl Skeleton {
    pub(super) fn of(draft: &Draft, member: &str) -> Self {
        let mut payload = Map::new();
        draft.payload.each(|name, value| {
            if name == member || REPEATED_MEMBERS.contains(&name) {
                payload.insert(name.to_owned(), value.into_value());
            }
        });
        Self {
            event_type: draft.event_type.clone(),
            timestamp: draft.timestamp.clone(),
            source_sequence: draft.source_sequence,
            ids: draft.ids.clone(),
            owner: draft.owner.clone(),
            scope: draft.scope.clone(),
            phase: draft.phase.clone(),
            surface: draft.surface.clone(),
            persistence: draft.persistence.clone(),
            topology: draft.topology.clone(),
            visibility: Visibility::of(draft),
            payload,
        }
    }

    /// Whether the same readers see `draft`.
    pub(super) fn is_seen_as(&self, draft: &Draft) -> bool {
        self.visibility == Visibility::of(draft)
    }

    /// Makes a draft that sends this text.
    pub(super) fn with_text(self, text: String) -> Draft {
        let Self { visibility, mut payload, .. } = self;
        let streamed = ["text", "inputText"].into_iter().find(|member| payload.contains_key(*member));
        if let Some(member) = streamed {
            payload.insert(member.into(), Value::String(text));
        }
        Draft {
            timestamp: self.timestamp,
            source_sequence: self.source_sequence,
            ids: self.ids,
            owner: self.owner,
            scope: self.scope,
            phase: self.phase,
            surface: self.surface,
            persistence: self.persistence,
            topology: self.topology,
            audience: visibility.audience,
            start_audience: visibility.start_audience,
            call_audience: visibility.call_audience,
            missed_by: visibility.missed_by,
            may_be_abort: visibility.may_be_abort,
            payload: Payload::read(&self.event_type, payload),
            ..Draft::new(self.event_type)
        }
    }
}

/// Saves ids as the members of one map.
mod ids_as_map {
    use super::Ids;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::{Map, Value};

    pub(super) fn serialize<S: Serializer>(ids: &Ids, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = Vec::new();
        ids.for_each(|member, id| members.push((member, id.to_owned())));
        serializer.collect_map(members)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ids, D::Error> {
        let mut members = Map::<String, Value>::deserialize(deserializer)?;
        let mut ids = Ids::default();
        ids.take_from(&mut members).map_err(|(member, error)| D::Error::custom(format!("{member}: {error}")))?;
        Ok(ids)
    }
}

impl Stream {
    /// A stream of which only the mark may be shown.
    pub(super) fn suppressed() -> Self {
        Self { scan: ScanState::suppressed(), redaction_pending: true, ..Self::default() }
    }

    /// Whether held text may still be sent.
    pub(super) const fn is_holding(&self) -> bool {
        !self.held.is_empty() || self.half.is_some()
    }

    #[cfg(test)]
    pub(super) const fn held_parts(&self) -> usize {
        self.held.len()
    }

    /// Whether the held text may be so much of a secret that [`SavedStream::of`] replaces it by the mark.
    pub(super) fn is_lost_by_saving(&self) -> bool {
        self.scan.may_hold_secret()
    }

    /// Takes a chunk with `text` removed from `draft`, and calls `send` with text that may pass now.
    ///
    /// Returns whether its saved form may have changed.
    pub(super) fn pass_chunk(
        &mut self,
        draft: &mut Draft,
        Streamed { member, text, halves }: Streamed,
        send: &mut dyn FnMut(&mut Draft),
    ) -> bool {
        let was_redacting = self.redaction_pending;
        let before = (!self.is_holding()).then(|| self.scan.clone());
        let came_empty = text.is_empty();
        let mut text = self.join_halves(draft, Streamed { member, text, halves }, send);
        if self.redaction_pending {
            if self.held.is_empty() {
                self.held.push(Held { draft: Box::new(Skeleton::of(draft, member)), bytes: 0 });
            }
            self.send_redaction(send);
        }
        if !text.is_empty() {
            let fed = self.scan.feed(&mut text, false, self.held.iter().map(|part| part.bytes));
            // One letter is not part of a secret, and a chunk of only that letter must not seem lost. A key that it
            // begins is still recognised; the letter then stands before the mark.
            if fed.holds_one_letter {
                text.push_str(&self.scan.decide_early());
            }
            // Held text keeps its visibility: it joins this chunk only if that has the same.
            let joined = self.send_parts(fed.parts, Some(draft), send);
            if !joined.is_empty() {
                text.insert_str(0, &joined);
            }
            let bytes = self.scan.held_bytes() - self.held.iter().map(|part| part.bytes).sum::<usize>();
            if bytes > 0 {
                let tail = Box::new(Skeleton::of(draft, member));
                match self.held.last_mut() {
                    Some(last) if last.draft.visibility == tail.visibility => {
                        *last = Held { draft: tail, bytes: last.bytes + bytes };
                    }
                    _ => self.held.push(Held { draft: tail, bytes }),
                }
            }
        }
        if came_empty || !text.is_empty() || has_further_members(draft, member) {
            if let Some((_, slot)) = streamed(draft) {
                *slot = text;
            }
            send(draft);
        }
        if self.held.len() > PARTS_MAX {
            self.decide_early(send);
        }
        was_redacting || self.is_holding() || before.as_ref() != Some(&self.scan)
    }

    /// Joins the marks in a chunk's text, behind the held half. Holds the half at the text's end.
    fn join_halves(&mut self, draft: &Draft, streamed: Streamed, send: &mut dyn FnMut(&mut Draft)) -> String {
        let Streamed { member, text, halves } = streamed;
        if text.is_empty() || (self.half.is_none() && halves == Halves::Absent) {
            return text;
        }
        if self.half.as_ref().is_some_and(|held| !held.draft.is_seen_as(draft)) {
            self.end_half(send);
        }
        let mut half = self.half.take().map(|held| held.half);
        match halves {
            Halves::Marked => {
                let joined = halves::join(&mut half, &text);
                self.half = half.map(|half| HeldHalf { half, draft: Box::new(Skeleton::of(draft, member)) });
                joined
            }
            Halves::Absent => half.map_or_else(String::new, |_| char::REPLACEMENT_CHARACTER.to_string()) + &text,
        }
    }

    /// Replaces the held half, because its second half does not come.
    fn end_half(&mut self, send: &mut dyn FnMut(&mut Draft)) {
        let Some(HeldHalf { draft, .. }) = self.half.take() else { return };
        let (mut draft, text) = (draft.with_text(String::new()), char::REPLACEMENT_CHARACTER.to_string());
        if let Some((member, _)) = take_streamed(&mut draft) {
            self.pass_chunk(&mut draft, Streamed { member, text, halves: Halves::Absent }, send);
        }
    }

    /// Decides the held text, because the stream has ended.
    pub(super) fn end(mut self, send: &mut dyn FnMut(&mut Draft)) {
        self.end_half(send);
        if self.redaction_pending {
            return self.send_redaction(send);
        }
        let fed = self.scan.feed(&mut String::new(), true, self.held.iter().map(|part| part.bytes));
        self.send_parts(fed.parts, None, send);
    }

    /// Sends the held text early. Later text is still recognised.
    pub(super) fn decide_early(&mut self, send: &mut dyn FnMut(&mut Draft)) {
        self.end_half(send);
        if self.redaction_pending || self.scan.may_hold_secret() {
            self.scan.decide_early();
            return self.send_redaction(send);
        }
        let text = self.scan.decide_early();
        let mut at = 0;
        let parts = self.held.iter().map(|part| {
            at += part.bytes;
            DecidedPart { text: text[at - part.bytes..at].into(), passed: part.bytes }
        });
        let parts = parts.collect();
        self.send_parts(parts, None, send);
    }

    /// Sends the mark for the whole held text, with the visibility of its first part.
    fn send_redaction(&mut self, send: &mut dyn FnMut(&mut Draft)) {
        self.redaction_pending = false;
        if let Some(first) = self.held.drain(..).next() {
            send(&mut first.draft.with_text(REDACTED.into()));
        }
    }

    /// Sends the decided text of each held part and drops it. Returns the text that joins `next`.
    fn send_parts(&mut self, parts: Vec<DecidedPart>, next: Option<&Draft>, send: &mut dyn FnMut(&mut Draft)) -> String {
        let mut joined = String::new();
        let count = parts.len();
        let held = std::mem::take(&mut self.held);
        for (i, (mut held, part)) in held.into_iter().zip(parts).enumerate() {
            held.bytes -= part.passed;
            let is_joined = i + 1 == count && next.is_some_and(|next| held.draft.is_seen_as(next));
            if is_joined {
                joined = part.text;
            } else if !part.text.is_empty() {
                send(&mut held.draft.clone().with_text(part.text));
            }
            if held.bytes > 0 {
                self.held.push(held);
            }
        }
        joined
    }
}

/// Whether a chunk has members besides its text.
///
/// Such a chunk is sent even if its whole text is held back.
pub(super) fn has_further_members(draft: &Draft, member: &str) -> bool {
    let mut has_further =
        !draft.extra.is_empty() || draft.refs.is_some() || draft.raw_event_ref.is_some() || draft.control.is_some();
    draft.payload.each(|name, _| has_further |= name != member && !REPEATED_MEMBERS.contains(&name));
    has_further
}

/// A stream in its saved form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedStream {
    kind: Kind,
    /// The key's ids.
    #[serde(with = "ids_as_map")]
    ids: Ids,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Box<str>>,
    scan: ScanState,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Held>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    half: Option<HeldHalf>,
    /// The only draft of the held text, as versions up to 0.1.0 saved it.
    ///
    /// It lacks the members that decide its visibility.
    #[serde(default, skip_serializing)]
    tail: Option<Box<Skeleton>>,
    #[serde(default)]
    owes_mark: bool,
}

impl SavedStream {
    /// Converts a stream to its saved form.
    ///
    /// The saved form goes to disk. A held text that may be most of a secret is saved as the mark, and reads so after a
    /// restart. A text too short for a secret is saved unchanged.
    pub(super) fn of(key: &StreamKey, stream: &Stream) -> Self {
        let (scan, gives_up) = stream.scan.for_storage();
        let StreamKey { kind, message, part, agent, call, channel } = key.clone();
        let ids = Ids { message, part, agent, tool_call: call, ..Ids::default() };
        let kept = if gives_up { 1 } else { stream.held.len() };
        let held = stream.held.iter().take(kept);
        let held = held.map(|part| Held { draft: part.draft.clone(), bytes: if gives_up { 0 } else { part.bytes } }).collect();
        let half = stream.half.clone();
        Self { kind, ids, channel, scan, held, half, tail: None, owes_mark: stream.redaction_pending || gives_up }
    }

    /// Restores the stream; `None` if the saved form is inconsistent.
    pub(super) fn restore(self, age: u64) -> Option<(StreamKey, Stream)> {
        let mut held = self.held;
        if let Some(mut draft) = self.tail {
            if draft.event_type == EventType::ToolOutputDelta {
                // A call that started again may have hidden it; the older version did not save that.
                draft.visibility.missed_by = Some(Audience::Dashboard);
            }
            held.push(Held { draft, bytes: self.scan.held_bytes() });
        }
        // The disk is not trusted: other programs may have written to it.
        let bytes = held.iter().try_fold(0, |sum: usize, part| sum.checked_add(part.bytes))?;
        let is_consistent = bytes == self.scan.held_bytes() && held.iter().all(|part| part.bytes > 0 || self.owes_mark);
        if !self.scan.is_consistent(held.iter().map(|part| part.bytes)) || !is_consistent || held.len() > PARTS_MAX {
            return None;
        }
        let ids = self.ids;
        let key = StreamKey {
            kind: self.kind,
            message: ids.message,
            part: ids.part,
            agent: ids.agent,
            call: ids.tool_call,
            channel: self.channel,
        };
        Some((key, Stream { scan: self.scan, held, half: self.half, redaction_pending: self.owes_mark, age }))
    }
}
