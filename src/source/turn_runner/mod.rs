//! The source `turnrunner`: the facts of NHTIO ADK's `TurnRunner`, each `{bus, event, payload}`.
//!
//! The functional bus carries the agent's messages, thoughts and tool calls. The observability bus carries turns,
//! dispatches and gates, which the adapter also treats as functional because readers' views depend on them. All other
//! observability events are telemetry and become only diagnostics and metrics. So missing or garbled telemetry does not
//! change the agent's visible actions. The one exception is a gate that does not name its call, see [`gates`].
//!
//! Events do not name their run, and ids are unique only within a turn. So the adapter tracks the turn's state.
//!
//! * The streamed chunks are the text. `full` verifies them, and appears in the log only at a stream's seal.
//! * A turn's dispatch determines the turn's outcome; an error event alone does not.
//! * The adapter never rejects an unknown event or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `turns` | turns, dispatches, and the outcome of a turn |
//! | `failure` | the content of an exception, and the part that the adapter may store |
//! | `streams` | messages and thoughts |
//! | `calls` | tool calls and their results |
//! | `gates` | required actions |
//! | `telemetry` | logs, warnings, iterations, executions |

mod calls;
mod failure;
mod gates;
mod streams;
mod telemetry;
#[cfg(test)]
mod tests;
mod turns;

use super::bounded::{Bounded, CALLS_OPEN_MAX, PENDING_MAX};
use super::digest::{FNV1A_OFFSET_BASIS, fnv1a};
use super::members::{carry_all, diagnostic, known, malformed, take_type, unknown_type};
use super::{Fact, FactError, Runtime, SourceKind};
use crate::model::id::ID_BYTES_MAX;
use crate::model::{ActionId, Draft, Ids, TurnId};
use calls::Call;
use failure::Cause;
use gates::Gate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use streams::{Channel, STREAMS_OPEN_MAX, Stream};
use turns::{Outcome, TurnState};

/// The source `turnrunner`.
pub const SOURCE: SourceKind = SourceKind::of::<TurnRunner>("turnrunner");

/// The discriminator, beside `bus`.
const EVENT: &str = "event";

/// The events of both buses: first those of the functional one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Message,
    Thought,
    ToolCall,

    TurnStart,
    TurnEnd,
    DispatchStart,
    DispatchEnd,
    IterationStart,
    IterationEnd,
    ToolExecutionStart,
    ToolExecutionEnd,
    TurnGateOpen,
    TurnGateClosed,
    Log,
    Warning,
    Error,
}

impl Kind {
    /// Whether the bus has this event.
    /// Without a bus the name alone decides: event names are unique.
    fn is_on(self, bus: Option<&Value>) -> bool {
        let is_functional = matches!(self, Self::Message | Self::Thought | Self::ToolCall);
        match bus {
            None | Some(Value::Null) => true,
            Some(bus) => bus == if is_functional { "functional" } else { "observability" },
        }
    }

    /// Describes a required member that the event lacks.
    fn missing_member(self, fact: &Fact) -> Option<&'static str> {
        let said = |member: &str| fact.get("payload").and_then(|payload| payload.get(member));
        let names = |member: &str| said(member).and_then(Value::as_str).is_some_and(|id| ActionId::new(id).is_ok());
        let is_text = |member: &str| said(member).is_some_and(Value::is_string);
        match self {
            Self::Message | Self::Thought | Self::ToolCall | Self::TurnGateOpen if !names("id") => {
                Some("id as text of 1 to 256 bytes")
            }
            Self::TurnGateClosed if !names("gateId") => Some("gateId as text of 1 to 256 bytes"),
            Self::Message | Self::Thought
                if !is_text("aDelta") && !is_text("full") && said("isComplete") != Some(&Value::Bool(true)) =>
            {
                Some("aDelta or full as text, or isComplete")
            }
            _ => None,
        }
    }
}

/// The most ids of one turn whose use the adapter remembers, and the most of all earlier turns.
const IDS_MAX: usize = 256;

/// Hashes a turn's id of a message, thought or call.
/// The event name separates equal ids of different kinds.
fn key_of(event: &str, id: &str) -> u64 {
    [event, "\0", id].iter().fold(FNV1A_OFFSET_BASIS, |hash, text| fnv1a(hash, text.as_bytes()))
}

/// The adapter.
/// All its fields are memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct TurnRunner {
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
    /// Whether the turn is being aborted.
    /// A later failure is then a cancellation.
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
    /// Whether earlier turns used more ids than `earlier` holds.
    /// Any id may then be a reused one.
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

/// A parsed fact.
enum Event {
    Known {
        kind: Kind,
        name: String,
        /// Of any type for an error; an object otherwise.
        payload: Value,
        /// The members around the payload.
        rest: Fact,
    },
    /// An event without a meaning for the turn, as its diagnostic.
    Diagnostic(Box<Draft>),
}

impl Runtime for TurnRunner {
    type Event = Event;

    fn parse(mut fact: Fact) -> Result<Event, FactError> {
        let name = take_type(&mut fact, EVENT)?;
        let Some(kind) = known::<Kind>(&name).filter(|kind| kind.is_on(fact.get("bus"))) else {
            return Ok(Event::Diagnostic(unknown_type(&name, fact).into()));
        };
        if let Some(expected) = kind.missing_member(&fact) {
            return Ok(Event::Diagnostic(malformed(&name, fact, expected).into()));
        }
        fact.shift_remove("bus");
        let payload = match fact.shift_remove("payload") {
            // JavaScript can throw a value of any type.
            payload if kind == Kind::Error => payload.unwrap_or_default(),
            Some(payload @ Value::Object(_)) => payload,
            Some(Value::Null) | None => Fact::new().into(),
            Some(other) => {
                fact.insert("payload".into(), other);
                Fact::new().into()
            }
        };
        Ok(Event::Known { kind, name, payload, rest: fact })
    }

    fn apply(&mut self, event: Event, given: &Ids, out: &mut Vec<Draft>) {
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
            Kind::Message => handler.chunk(Channel::Message, payload),
            Kind::Thought => handler.chunk(Channel::Thought, payload),
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
    out: &'a mut Vec<Draft>,
    /// The event's name.
    event: &'a str,
    /// Members of the fact without a place of their own.
    /// The first draft carries them.
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
