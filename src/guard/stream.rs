//! Streamed text: what is remembered of each open stream between its chunks, and when a stream ends.
//!
//! A held tail belongs to the draft that brought it. When the next chunk decides it, the two go out as one; when the stream
//! ends first, or when the next chunk is for another audience, the tail goes out in a chunk of its own.

use super::secrets::{MARK, Scan};
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

/// What is remembered of one stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub scan: Scan,
    /// The draft to send the held tail in, should the stream end before another chunk comes.
    pub tail: Option<Box<Draft>>,
    /// Whether the tail was given up for the mark when it was saved, which is yet to be sent.
    owes_mark: bool,
    /// Larger is younger.
    pub age: u64,
}

impl Stream {
    /// A stream of which nothing may be seen but that.
    pub(super) fn muted() -> Self {
        Self { scan: Scan::muted(), owes_mark: true, ..Self::default() }
    }

    /// Whether something of it may still be sent.
    pub(super) const fn holds(&self) -> bool {
        self.tail.is_some()
    }

    /// Takes a chunk, `text` having been taken out of `draft`, and calls `send` with what may pass of the stream now.
    pub(super) fn take(&mut self, mut draft: Draft, member: &'static str, mut text: String, send: &mut dyn FnMut(Draft)) {
        if self.owes_mark {
            self.tail.get_or_insert_with(|| Box::new(bare(&draft, member)));
            self.send_tail(MARK.into(), send);
        }
        let came_empty = text.is_empty();
        let fed = if came_empty { None } else { Some(self.scan.feed(&mut text, false)) };
        // One letter is no part of any secret, and a chunk that is nothing else must not seem lost. What it may begin is still
        // recognised; then the letter stands before the mark.
        if fed.as_ref().is_some_and(|fed| fed.holds_one_letter) {
            text.push_str(&self.scan.force());
        }
        if let Some(fed) = fed {
            // A tail that was for other eyes stays for other eyes.
            if fed.before > 0 && self.tail.as_deref().is_some_and(|tail| !is_for_same(tail, &draft)) {
                let rest = text.split_off(fed.before);
                self.send_tail(std::mem::replace(&mut text, rest), send);
            }
            self.tail = (self.scan.held_bytes() > 0).then(|| {
                let mut tail = bare(&draft, member);
                if let Some(older) = self.tail.take().filter(|_| fed.still_holds) {
                    tail.audience = tail.audience.max(older.audience);
                    tail.start_audience = tail.start_audience.max(older.start_audience);
                }
                Box::new(tail)
            });
        }
        if came_empty || !text.is_empty() || carries_more(&draft, member) {
            if let Some(slot) = draft.payload.get_mut(member) {
                *slot = Value::String(text);
            }
            send(draft);
        }
    }

    /// Decides the held tail: nothing more will come.
    pub(super) fn end(mut self, send: &mut dyn FnMut(Draft)) {
        let mut text = String::new();
        if self.owes_mark {
            text.push_str(MARK);
        } else {
            self.scan.feed(&mut text, true);
        }
        if !text.is_empty() {
            self.send_tail(text, send);
        }
    }

    /// Sends the held tail before its time. What follows is still recognised.
    pub(super) fn force(&mut self, send: &mut dyn FnMut(Draft)) {
        let text = if self.owes_mark { MARK.into() } else { self.scan.force() };
        self.send_tail(text, send);
    }

    fn send_tail(&mut self, text: String, send: &mut dyn FnMut(Draft)) {
        self.owes_mark = false;
        if let Some(mut tail) = self.tail.take() {
            if let Some(member) = bare_member(&tail) {
                tail.payload.insert(member.into(), Value::String(text));
            }
            send(*tail);
        }
    }
}

/// Whether everyone who sees one draft sees the other.
fn is_for_same(one: &Draft, other: &Draft) -> bool {
    one.audience == other.audience && one.start_audience == other.start_audience
}

/// Members besides the text that every chunk of a stream repeats.
const REPEATED: &[&str] = &["role", "channel"];

/// As much of a chunk's draft as it takes to send more of its text: its place and its audience, nothing that it would say twice.
fn bare(draft: &Draft, member: &str) -> Draft {
    let mut payload = Map::new();
    for (name, value) in &draft.payload {
        if name == member || REPEATED.contains(&name.as_str()) {
            payload.insert(name.clone(), value.clone());
        }
    }
    Draft {
        class: draft.class.clone(),
        timestamp: draft.timestamp.clone(),
        source_sequence: draft.source_sequence,
        ids: draft.ids.clone(),
        owner: draft.owner.clone(),
        scope: draft.scope.clone(),
        phase: draft.phase.clone(),
        surface: draft.surface.clone(),
        persistence: draft.persistence.clone(),
        control: None,
        topology: draft.topology.clone(),
        audience: draft.audience,
        start_audience: draft.start_audience,
        call_audience: draft.call_audience,
        missed_by: draft.missed_by,
        may_be_abort: draft.may_be_abort,
        payload,
        refs: None,
        raw_event_ref: None,
        extra: Map::new(),
    }
}

fn bare_member(tail: &Draft) -> Option<&'static str> {
    ["text", "inputText"].into_iter().find(|member| tail.payload.contains_key(*member))
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
    ids: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Box<str>>,
    scan: Scan,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tail: Option<SavedDraft>,
    #[serde(default)]
    owes_mark: bool,
}

/// A bare draft as it is saved.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedDraft {
    class: EventType,
    timestamp: Option<Box<str>>,
    source_sequence: Option<u64>,
    ids: Map<String, Value>,
    owner: Owner,
    scope: Scope,
    phase: Phase,
    surface: Surface,
    persistence: Persistence,
    topology: Option<Topology>,
    audience: Audience,
    start_audience: Option<Audience>,
    payload: Map<String, Value>,
}

fn save_ids(ids: &Ids) -> Map<String, Value> {
    let mut map = Map::new();
    ids.for_each(|member, id| drop(map.insert(member.into(), id.into())));
    map
}

fn restore_ids(mut map: Map<String, Value>) -> Option<Ids> {
    let mut ids = Ids::default();
    ids.take_from(&mut map).ok()?;
    Some(ids)
}

impl Saved {
    /// What is saved goes to disk, where a held tail that may already be most of a secret must not be: such a tail is saved as
    /// the mark, and after a crash it reads so. A tail too short to be any secret is saved as text.
    pub(super) fn of(key: &Key, stream: &Stream) -> Self {
        let (scan, gives_up) = stream.scan.for_disk();
        let Key { kind, message, part, agent, call, channel } = key.clone();
        let ids = Ids { message, part, agent, tool_call: call, ..Ids::default() };
        Self {
            kind,
            ids: save_ids(&ids),
            channel,
            scan,
            owes_mark: stream.owes_mark || gives_up,
            tail: stream.tail.as_deref().map(|tail| SavedDraft {
                class: tail.class.clone(),
                timestamp: tail.timestamp.clone(),
                source_sequence: tail.source_sequence,
                ids: save_ids(&tail.ids),
                owner: tail.owner.clone(),
                scope: tail.scope.clone(),
                phase: tail.phase.clone(),
                surface: tail.surface.clone(),
                persistence: tail.persistence.clone(),
                topology: tail.topology.clone(),
                audience: tail.audience,
                start_audience: tail.start_audience,
                payload: tail.payload.clone(),
            }),
        }
    }

    pub(super) fn restore(self, age: u64) -> Option<(Key, Stream)> {
        if !self.scan.is_sound() {
            return None;
        }
        let ids = restore_ids(self.ids)?;
        let key = Key {
            kind: self.kind,
            message: ids.message,
            part: ids.part,
            agent: ids.agent,
            call: ids.tool_call,
            channel: self.channel,
        };
        let tail = match self.tail {
            None => None,
            Some(saved) => Some(Box::new(Draft {
                timestamp: saved.timestamp,
                source_sequence: saved.source_sequence,
                ids: restore_ids(saved.ids)?,
                owner: saved.owner,
                scope: saved.scope,
                phase: saved.phase,
                surface: saved.surface,
                persistence: saved.persistence,
                topology: saved.topology,
                audience: saved.audience,
                start_audience: saved.start_audience,
                payload: saved.payload,
                ..Draft::new(saved.class)
            })),
        };
        Some((key, Stream { scan: self.scan, tail, owes_mark: self.owes_mark, age }))
    }
}
