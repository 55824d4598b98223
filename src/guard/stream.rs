//! Streamed text: what is remembered of each open stream between its chunks, and when a stream ends.
//!
//! A held tail belongs to the draft that brought it. When the next chunk decides it, the two go out as one; when the stream
//! ends first, or when the next chunk is for another audience, the tail goes out in a chunk of its own. Text for different
//! audiences is never joined: a tail of both is kept in parts. Only a chunk or the stream's end decides a tail, never time.

use super::secrets::{MARK, Part, Scan};
use crate::model::{
    AgentId, Audience, Draft, EventType, Ids, MessageId, Owner, PartId, Persistence, Phase, Scope, Surface, ToolCallId, Topology,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which kind of chunk a stream is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Text,
    Reasoning,
    Plan,
    Args,
    Output,
}

/// One stream of a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    kind: Kind,
    message: Option<MessageId>,
    part: Option<PartId>,
    agent: Option<AgentId>,
    call: Option<ToolCallId>,
    channel: Option<Box<str>>,
}

/// The payload member that a class streams, if this draft is a chunk.
pub(super) fn streamed_member(draft: &Draft) -> Option<&'static str> {
    let member = match draft.class {
        EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolOutputDelta => "text",
        EventType::ToolArgs if !draft.payload.contains_key("input") => "inputText",
        _ => return None,
    };
    draft.payload.get(member).is_some_and(Value::is_string).then_some(member)
}

impl Key {
    /// The stream that a chunk belongs to. Ids and channel must be redacted already: the key is saved.
    pub(super) fn of(draft: &Draft) -> Self {
        let kind = match draft.class {
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
                key.channel = draft.text("channel").filter(|_| kind == Kind::Output).map(Into::into);
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
        match draft.class {
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

    /// A final without a part covers all of its message's parts.
    fn is_ended_by_final(&self, kind: Kind, ids: &Ids) -> bool {
        self.kind == kind
            && self.message == ids.message
            && self.agent == ids.agent
            && (ids.part.is_none() || self.part == ids.part)
    }
}

/// Whether `draft` ends any streams: finals and results theirs, a run's boundary and a repair all of them.
pub(super) fn ends_streams(draft: &Draft) -> bool {
    match draft.class {
        EventType::TextFinal
        | EventType::ReasoningSummary
        | EventType::PlanFinal
        | EventType::ToolResult
        | EventType::ToolFailed => true,
        EventType::ToolArgs => draft.payload.contains_key("input") || draft.text("state") == Some("input-available"),
        _ => ends_every_stream(draft),
    }
}

/// Whether after `draft` nothing that was open before can go on.
pub(super) fn ends_every_stream(draft: &Draft) -> bool {
    draft.class.is_run_boundary() || (draft.class == EventType::MessagesSnapshot && draft.text("mode") == Some("repair"))
}

/// The most parts of one held text that alternate between audiences. Beyond it the guard decides the text at once, as it does with
/// too many held tails: each part holds a skeleton of its draft.
pub(super) const PARTS_MAX: usize = 8;

/// What is remembered of one stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub scan: Scan,
    /// The drafts to send the held text in, should the stream end before another chunk comes. Neighbours differ in visibility.
    held: Vec<Held>,
    /// Whether the held text was given up for the mark when it was saved, which is yet to be sent.
    owes_mark: bool,
    /// Larger is younger.
    pub age: u64,
}

/// A part of the held text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    draft: Box<Skeleton>,
    /// How much of the text came with such drafts. Over all parts it is what the scan holds.
    bytes: usize,
}

/// As much of a chunk's draft as it takes to send more of its text: its place and its visibility, nothing that would be sent
/// twice. It is saved as it is, so a member that is added here survives a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Skeleton {
    class: EventType,
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

/// Everything that decides which readers get a draft. Held text joins a chunk only if the two have the same visibility.
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
const REPEATED: &[&str] = &["role", "channel"];

impl Skeleton {
    fn of(draft: &Draft, member: &str) -> Self {
        let mut payload = Map::new();
        for (name, value) in &draft.payload {
            if name == member || REPEATED.contains(&name.as_str()) {
                payload.insert(name.clone(), value.clone());
            }
        }
        Self {
            class: draft.class.clone(),
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

    /// A draft that sends this text.
    fn with_text(self, text: String) -> Draft {
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
            payload,
            ..Draft::new(self.class)
        }
    }
}

/// Ids are saved as the members of one map.
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
    /// A stream of which nothing may be seen but that.
    pub(super) fn muted() -> Self {
        Self { scan: Scan::muted(), owes_mark: true, ..Self::default() }
    }

    /// Whether something of it may still be sent.
    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    #[cfg(test)]
    pub(super) const fn held_parts(&self) -> usize {
        self.held.len()
    }

    /// Whether the held text may be so much of a secret that [`Saved::of`] gives it up.
    pub(super) fn is_lost_by_saving(&self) -> bool {
        self.scan.is_telling()
    }

    /// Takes a chunk, `text` having been taken out of `draft`, and calls `send` with what may pass of the stream now.
    pub(super) fn take(&mut self, mut draft: Draft, member: &'static str, mut text: String, send: &mut dyn FnMut(Draft)) {
        if self.owes_mark {
            if self.held.is_empty() {
                self.held.push(Held { draft: Box::new(Skeleton::of(&draft, member)), bytes: 0 });
            }
            self.send_mark(send);
        }
        let came_empty = text.is_empty();
        if !came_empty {
            let fed = self.scan.feed(&mut text, false, self.held.iter().map(|part| part.bytes));
            // One letter is no part of any secret, and a chunk that is nothing else must not seem lost. What it may begin is
            // still recognised; then the letter stands before the mark.
            if fed.holds_one_letter {
                text.push_str(&self.scan.force());
            }
            // Held text keeps the visibility that it came with: it joins this chunk only where that has the same.
            let joined = self.send_parts(fed.parts, Some(&draft), send);
            if !joined.is_empty() {
                text.insert_str(0, &joined);
            }
            let bytes = self.scan.held_bytes() - self.held.iter().map(|part| part.bytes).sum::<usize>();
            if bytes > 0 {
                let tail = Box::new(Skeleton::of(&draft, member));
                match self.held.last_mut() {
                    Some(last) if last.draft.visibility == tail.visibility => {
                        *last = Held { draft: tail, bytes: last.bytes + bytes };
                    }
                    _ => self.held.push(Held { draft: tail, bytes }),
                }
            }
        }
        if came_empty || !text.is_empty() || carries_more(&draft, member) {
            if let Some(slot) = draft.payload.get_mut(member) {
                *slot = Value::String(text);
            }
            send(draft);
        }
        if self.held.len() > PARTS_MAX {
            self.force(send);
        }
    }

    /// Decides the held text: nothing more will come.
    pub(super) fn end(mut self, send: &mut dyn FnMut(Draft)) {
        if self.owes_mark {
            return self.send_mark(send);
        }
        let fed = self.scan.feed(&mut String::new(), true, self.held.iter().map(|part| part.bytes));
        self.send_parts(fed.parts, None, send);
    }

    /// Sends the held text before its time. What follows is still recognised.
    pub(super) fn force(&mut self, send: &mut dyn FnMut(Draft)) {
        if self.owes_mark || self.scan.is_telling() {
            self.scan.force();
            return self.send_mark(send);
        }
        let text = self.scan.force();
        let mut at = 0;
        let parts = self.held.iter().map(|part| {
            at += part.bytes;
            Part { text: text[at - part.bytes..at].into(), passed: part.bytes }
        });
        let parts = parts.collect();
        self.send_parts(parts, None, send);
    }

    /// Sends the mark for all of the held text, with the visibility of its first part.
    fn send_mark(&mut self, send: &mut dyn FnMut(Draft)) {
        self.owes_mark = false;
        if let Some(first) = self.held.drain(..).next() {
            send(first.draft.with_text(MARK.into()));
        }
    }

    /// Sends the decided text of each held part and forgets it; returns the text that goes out with `next`.
    fn send_parts(&mut self, parts: Vec<Part>, next: Option<&Draft>, send: &mut dyn FnMut(Draft)) -> String {
        let mut joined = String::new();
        let count = parts.len();
        let held = std::mem::take(&mut self.held);
        for (i, (mut held, part)) in held.into_iter().zip(parts).enumerate() {
            held.bytes -= part.passed;
            let is_joined = i + 1 == count && next.is_some_and(|next| held.draft.visibility == Visibility::of(next));
            if is_joined {
                joined = part.text;
            } else if !part.text.is_empty() {
                send(held.draft.clone().with_text(part.text));
            }
            if held.bytes > 0 {
                self.held.push(held);
            }
        }
        joined
    }
}

/// Whether a chunk says something besides its text, so that it must be sent even if all of that is held back.
fn carries_more(draft: &Draft, member: &str) -> bool {
    !draft.extra.is_empty()
        || draft.refs.is_some()
        || draft.raw_event_ref.is_some()
        || draft.control.is_some()
        || draft.payload.keys().any(|name| name != member && !REPEATED.contains(&name.as_str()))
}

/// A stream as it is saved.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saved {
    kind: Kind,
    /// The ids and the channel of the key.
    #[serde(with = "ids_as_map")]
    ids: Ids,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Box<str>>,
    scan: Scan,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Held>,
    /// The held text's one draft, as it was saved up to version 0.1.0: without all that decides who sees it.
    #[serde(default, skip_serializing)]
    tail: Option<Box<Skeleton>>,
    #[serde(default)]
    owes_mark: bool,
}

impl Saved {
    /// What is saved goes to disk, where a held text that may already be most of a secret must not be: such a text is saved as
    /// the mark, and after a restart it reads so. A text too short to be any secret is saved as it is.
    pub(super) fn of(key: &Key, stream: &Stream) -> Self {
        let (scan, gives_up) = stream.scan.for_disk();
        let Key { kind, message, part, agent, call, channel } = key.clone();
        let ids = Ids { message, part, agent, tool_call: call, ..Ids::default() };
        let kept = if gives_up { 1 } else { stream.held.len() };
        let held = stream.held.iter().take(kept);
        let held = held.map(|part| Held { draft: part.draft.clone(), bytes: if gives_up { 0 } else { part.bytes } }).collect();
        Self { kind, ids, channel, scan, held, tail: None, owes_mark: stream.owes_mark || gives_up }
    }

    /// The stream, unless what was saved cannot be one.
    pub(super) fn restore(self, age: u64) -> Option<(Key, Stream)> {
        let mut held = self.held;
        if let Some(mut draft) = self.tail {
            if draft.class == EventType::ToolOutputDelta {
                // A call that started again may have hidden it; the older version did not save that.
                draft.visibility.missed_by = Some(Audience::Dashboard);
            }
            held.push(Held { draft, bytes: self.scan.held_bytes() });
        }
        // It may come from a disk that others wrote to.
        let bytes = held.iter().try_fold(0, |sum: usize, part| sum.checked_add(part.bytes))?;
        let fits = bytes == self.scan.held_bytes() && held.iter().all(|part| part.bytes > 0 || self.owes_mark);
        if !self.scan.is_sound(held.iter().map(|part| part.bytes)) || !fits || held.len() > PARTS_MAX {
            return None;
        }
        let ids = self.ids;
        let key = Key {
            kind: self.kind,
            message: ids.message,
            part: ids.part,
            agent: ids.agent,
            call: ids.tool_call,
            channel: self.channel,
        };
        Some((key, Stream { scan: self.scan, held, owes_mark: self.owes_mark, age }))
    }
}
