//! What the events of ADK's buses mean.

mod calls;
mod failure;
mod gates;
mod streams;
mod telemetry;
mod turns;

use super::event::{Event, Kind, parse};
use crate::bounded::{Bounded, CALLS_OPEN_MAX, PENDING_MAX};
use crate::digest::{FNV1A_OFFSET_BASIS, fnv1a};
use crate::members::{carry_all, diagnostic};
use crate::turn::{Channel, TurnState};
use crate::{Drafts, Fact, Parser, Runtime};
use calls::Call;
use failure::Cause;
use gates::Gate;
use proscenium_model::id::ID_BYTES_MAX;
use proscenium_model::{Draft, Ids, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use streams::{STREAMS_OPEN_MAX, Stream};
use turns::Outcome;

/// The most ids of one turn whose use the adapter remembers, and the most of all earlier turns.
pub(super) const IDS_MAX: usize = 256;

/// Hashes a turn's id of a message, thought or call.
/// The event name separates equal ids of different kinds.
fn key_of(event: &str, id: &str) -> u64 {
    [event, "\0", id].iter().fold(FNV1A_OFFSET_BASIS, |hash, text| fnv1a(hash, text.as_bytes()))
}

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TurnRunner {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// ADK's own id of the open turn, or of the last one.
    turn: Option<TurnId>,
    /// The number of started turns.
    turns: u64,
    /// Whether the turn's dispatch has begun.
    is_dispatched: bool,
    /// The outcome of the turn's dispatch.
    outcome: Option<Outcome>,
    /// Whether an error followed a successful dispatch.
    is_degraded: bool,
    /// Whether the turn is being aborted. A later failure is then a cancellation.
    is_aborting: bool,
    /// The error that may have ended the turn.
    cause: Option<Cause>,
    used: UsedIds,
    streams: Bounded<Stream, STREAMS_OPEN_MAX>,
    calls: Bounded<Call, CALLS_OPEN_MAX>,
    gates: Bounded<Gate, PENDING_MAX>,
}

/// The hashes of used ADK ids.
/// Ids are unique only within a turn: a later turn may reuse one for another item.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UsedIds {
    /// Ids of this turn, at most [`IDS_MAX`], the most recently used last.
    turn: Bounded<u64, IDS_MAX>,
    /// Whether this turn used more ids than `turn` holds.
    turn_has_more: bool,
    /// Ids of earlier turns, at most [`IDS_MAX`].
    earlier: BTreeSet<u64>,
    /// Whether earlier turns used more ids than `earlier` holds. Any id may then be a reused one.
    earlier_has_more: bool,
}

impl UsedIds {
    fn add(&mut self, key: u64) {
        self.turn_has_more |= self.turn.add(key).is_some();
    }

    fn forget(&mut self, key: u64) {
        self.turn.take(&key);
        self.turn_has_more = true;
    }

    fn begin_turn(&mut self) {
        self.earlier.extend(self.turn.take_all());
        self.earlier_has_more |= std::mem::take(&mut self.turn_has_more) || self.earlier.len() > IDS_MAX;
        if self.earlier_has_more {
            self.earlier.clear();
        }
    }

    fn was_used_earlier(&self, key: u64) -> bool {
        self.earlier_has_more || self.earlier.contains(&key)
    }
}

impl Runtime for TurnRunner {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let (kind, event, payload, rest) = match event {
            Event::Known { kind, name, payload, rest } => (kind, name, payload, rest),
            Event::Diagnostic(draft) => {
                return EventHandler { memory: self, given, out, event: "", rest: Fact::new() }.push(*draft);
            }
        };
        let mut handler = EventHandler { memory: self, given, out, event: &event, rest };
        let payload = match payload {
            error if kind == Kind::Error => return handler.error(error),
            Value::Object(payload) => payload,
            _ => Fact::new(),
        };
        match kind {
            Kind::Message => handler.chunk(Channel::Text, payload),
            Kind::Thought => handler.chunk(Channel::Reasoning, payload),
            Kind::ToolCall => handler.tool_call(payload),
            Kind::TurnStart => handler.turn_start(payload),
            Kind::TurnEnd => handler.turn_end(payload),
            Kind::DispatchStart => handler.dispatch_start(payload),
            Kind::DispatchEnd => handler.dispatch_end(payload),
            Kind::IterationStart => handler.iteration_start(payload),
            Kind::IterationEnd => handler.iteration_end(payload),
            Kind::ToolExecutionStart => handler.tool_execution_start(payload),
            Kind::ToolExecutionEnd => handler.tool_execution_end(payload),
            Kind::TurnGateOpen => handler.turn_gate_open(payload),
            Kind::TurnGateClosed => handler.turn_gate_closed(payload),
            Kind::Log => handler.log(payload),
            Kind::Warning => handler.warning(payload),
            Kind::Error => {}
        }
        if !handler.rest.is_empty() {
            // The event gave no draft that could carry the remaining members.
            let rest = std::mem::take(&mut handler.rest);
            handler.push(diagnostic("unplaced_members", &event, rest));
        }
    }
}

impl TurnRunner {
    /// Returns the reader-visible id for a turn's id: the id itself, unless an earlier turn used it.
    fn name(&self, key: u64, id: &str) -> String {
        if !self.used.was_used_earlier(key) {
            return id.to_owned();
        }
        let name = format!("turnrunner-{}-{id}", self.turns);
        if name.len() <= ID_BYTES_MAX { name } else { format!("turnrunner-{}-{key:016x}", self.turns) }
    }

    /// Whether a stream or call of this turn with this key has ended.
    fn has_ended(&self, key: u64) -> bool {
        !self.streams.has(&key) && !self.calls.has(&key) && self.used.turn.has(&key)
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut TurnRunner,
    given: &'a Ids,
    out: Drafts<'a>,
    /// The event's name.
    event: &'a str,
    /// Members of the fact without a place of their own. The first draft carries them.
    rest: Fact,
}

impl EventHandler<'_> {
    fn push(&mut self, draft: Draft) {
        let mut draft = carry_all(draft, std::mem::take(&mut self.rest));
        // The request's ids override ADK's own.
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&Ids { turn: self.memory.turn.clone(), ..Ids::default() });
        self.out.push(draft);
    }

    /// Appends a draft that carries the payload's remaining members.
    fn push_carrying(&mut self, draft: Draft, payload: Fact) {
        self.carry_remaining(payload);
        self.push(draft);
    }

    /// Moves the payload's remaining members to those of the fact.
    /// A colliding fact member gets the prefix `fact.`.
    fn carry_remaining(&mut self, payload: Fact) {
        for (member, value) in payload {
            if let Some(around) = self.rest.insert(member.clone(), value) {
                self.rest.insert(format!("fact.{member}"), around);
            }
        }
    }
}
