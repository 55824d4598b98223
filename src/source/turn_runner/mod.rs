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

use super::digest::{FNV1A_OFFSET_BASIS, fnv1a};
use super::members::{carry_all, diagnostic, parse_timestamp, take_type, unknown_type};
use super::{Adapter, Fact, FactError, SourceKind};
use crate::model::id::ID_BYTES_MAX;
use crate::model::{ActionId, Draft, Ids, TurnId};
use calls::Call;
use failure::Cause;
use gates::Gate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use streams::{Channel, Stream};
use turns::{Outcome, TurnState};

/// The source `turnrunner`.
pub const SOURCE: SourceKind = SourceKind {
    name: "turnrunner",
    fresh: || Box::new(TurnRunner::default()),
    restore: |memory| Ok(Box::new(serde_json::from_slice::<TurnRunner>(memory)?)),
    answers: None,
};

/// The discriminator, beside `bus`.
const EVENT: &str = "event";

/// The events of the functional bus.
const FUNCTIONAL: &[&str] = &["message", "thought", "toolCall"];

/// The events of the observability bus.
#[rustfmt::skip]
const OBSERVABILITY: &[&str] = &[
    "turnStart", "turnEnd", "dispatchStart", "dispatchEnd", "iterationStart", "iterationEnd", "toolExecutionStart",
    "toolExecutionEnd", "turnGateOpen", "turnGateClosed", "log", "warning", "error",
];

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
    streams: Vec<Stream>,
    calls: Vec<Call>,
    gates: Vec<Gate>,
}

/// The hashes of used ADK ids.
/// Ids are unique only within a turn: a later turn may reuse one for another item.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UsedIds {
    /// Ids of this turn, at most [`IDS_MAX`], the most recently used last.
    turn: VecDeque<u64>,
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
        self.turn.retain(|used| *used != key);
        if self.turn.len() == IDS_MAX {
            self.turn.pop_front();
            self.turn_has_more = true;
        }
        self.turn.push_back(key);
    }

    fn forget(&mut self, key: u64) {
        self.turn.retain(|used| *used != key);
        self.turn_has_more = true;
    }

    fn begin_turn(&mut self) {
        self.earlier.extend(self.turn.drain(..));
        self.earlier_has_more |= std::mem::take(&mut self.turn_has_more) || self.earlier.len() > IDS_MAX;
        if self.earlier_has_more {
            self.earlier.clear();
        }
    }

    fn was_used_earlier(&self, key: u64) -> bool {
        self.earlier_has_more || self.earlier.contains(&key)
    }
}

/// Whether the bus has an event of this name.
/// Without a bus the name alone decides: event names are unique.
fn is_known(bus: Option<&Value>, event: &str) -> bool {
    match bus {
        None | Some(Value::Null) => FUNCTIONAL.contains(&event) || OBSERVABILITY.contains(&event),
        Some(Value::String(bus)) if bus == "functional" => FUNCTIONAL.contains(&event),
        Some(Value::String(bus)) if bus == "observability" => OBSERVABILITY.contains(&event),
        Some(_) => false,
    }
}

/// Describes a required member that the event lacks.
fn missing_member(event: &str, fact: &Fact) -> Option<&'static str> {
    let said = |member: &str| fact.get("payload").and_then(|payload| payload.get(member));
    let names = |member: &str| said(member).and_then(Value::as_str).is_some_and(|id| ActionId::new(id).is_ok());
    let is_text = |member: &str| said(member).is_some_and(Value::is_string);
    match event {
        "message" | "thought" | "toolCall" | "turnGateOpen" if !names("id") => Some("id as text of 1 to 256 bytes"),
        "turnGateClosed" if !names("gateId") => Some("gateId as text of 1 to 256 bytes"),
        "message" | "thought" if !is_text("aDelta") && !is_text("full") && said("isComplete") != Some(&Value::Bool(true)) => {
            Some("aDelta or full as text, or isComplete")
        }
        _ => None,
    }
}

impl Adapter for TurnRunner {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let event = take_type(&mut fact, EVENT)?;
        let mut handler = EventHandler { memory: self, given, out, event: &event, rest: Fact::new() };
        if !is_known(fact.get("bus"), &event) {
            handler.push(unknown_type(&event, fact));
            return Ok(());
        }
        if let Some(expected) = missing_member(&event, &fact) {
            handler.push(diagnostic("malformed_event", &event, fact).with("expected", expected));
            return Ok(());
        }
        fact.shift_remove("bus");
        if event == "error" {
            // JavaScript can throw a value of any type.
            let error = fact.shift_remove("payload").unwrap_or(Value::Null);
            handler.rest = fact;
            handler.error(error);
            return Ok(());
        }
        let payload = match fact.shift_remove("payload") {
            Some(Value::Object(payload)) => payload,
            Some(Value::Null) | None => Fact::new(),
            Some(other) => {
                fact.insert("payload".into(), other);
                Fact::new()
            }
        };
        handler.rest = fact;
        match event.as_str() {
            "message" => handler.chunk(Channel::Message, payload),
            "thought" => handler.chunk(Channel::Thought, payload),
            "toolCall" => handler.tool_call(payload),
            "turnStart" => handler.turn_start(payload),
            "turnEnd" => handler.turn_end(payload),
            "dispatchStart" => handler.dispatch_start(payload),
            "dispatchEnd" => handler.dispatch_end(payload),
            "iterationStart" => handler.iteration_start(payload),
            "iterationEnd" => handler.iteration_end(payload),
            "toolExecutionStart" => handler.tool_execution_start(payload),
            "toolExecutionEnd" => handler.tool_execution_end(payload),
            "turnGateOpen" => handler.turn_gate_open(payload),
            "turnGateClosed" => handler.turn_gate_closed(payload),
            "log" => handler.log(payload),
            "warning" => handler.warning(payload),
            _ => unreachable!("the events of both buses are listed above"),
        }
        if !handler.rest.is_empty() {
            // The event gave no draft that could carry the remaining members.
            let rest = std::mem::take(&mut handler.rest);
            handler.push(diagnostic("unplaced_members", &event, rest));
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
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
        let is_open = self.streams.iter().any(|stream| stream.key == key) || self.calls.iter().any(|call| call.key == key);
        !is_open && self.used.turn.contains(&key)
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

/// Takes a boolean member.
/// A value of any other type stays in the payload.
fn take_flag(payload: &mut Fact, member: &str) -> Option<bool> {
    let flag = payload.get(member)?.as_bool();
    if flag.is_some() {
        payload.shift_remove(member);
    }
    flag
}

/// Takes a timestamp.
/// An invalid value stays in the payload.
fn take_time(payload: &mut Fact, member: &str) -> Option<Box<str>> {
    let at = payload.get(member).and_then(parse_timestamp);
    if at.is_some() {
        payload.shift_remove(member);
    }
    at
}

/// Moves members unchanged into the draft's payload, each under its new name.
/// It drops null values.
fn move_members(draft: &mut Draft, payload: &mut Fact, members: &[(&str, &str)]) {
    for (member, ours) in members {
        let value = payload.shift_remove(*member).filter(|value| !value.is_null());
        draft.payload.extend(value.map(|value| ((*ours).to_owned(), value)));
    }
}
