//! NHTIO ADK's `TurnRunner`: the facts of its two buses, each `{bus, event, payload}`, into our vocabulary.
//!
//! The functional bus is what the agent does: messages, thoughts, tool calls. Of the observability bus, turns, dispatches and
//! gates are functional too, for what a reader sees hangs on them. The rest there is telemetry: it becomes diagnostics and
//! metrics and nothing else, so that whether it comes, or comes garbled, changes nothing of what the agent is seen to do (a
//! gate that says nothing of its call is the one exception, see [`gates`]).
//!
//! No event names its run, and ids are a turn's own, which is why this adapter remembers where a turn stands. The text is what
//! was streamed; `full` verifies it and is told at a stream's seal alone. How a turn ended is what its dispatch said, never that
//! there was an error. Never refuses an event or a member that it does not know, and never remembers a body.
//!
//! | file | holds |
//! | --- | --- |
//! | `turns` | turns, dispatches, and what a turn came to |
//! | `failure` | what an exception says, and what of it may be remembered |
//! | `streams` | messages and thoughts |
//! | `calls` | tool calls and what they gave |
//! | `gates` | what waits for somebody |
//! | `telemetry` | logs, warnings, iterations, executions |

mod calls;
mod failure;
mod gates;
mod streams;
mod telemetry;
#[cfg(test)]
mod tests;
mod turns;

use super::members::{carrying, diagnostic, instant, take_type, unknown_type};
use super::print::{HASH_START, hashed};
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
use turns::{Life, Outcome};

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

/// Ids of one turn that are known to have been used, and as many of all the turns before.
const IDS_MAX: usize = 256;

/// A turn's id of a message, thought or call, as it is remembered. The three may share a name.
fn key_of(event: &str, id: &str) -> u64 {
    [event, "\0", id].iter().fold(HASH_START, |hash, text| hashed(hash, text.as_bytes()))
}

/// The adapter; all of it is memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct TurnRunner {
    life: Life,
    /// ADK's own id of the open turn, or of the last one.
    turn: Option<TurnId>,
    /// Turns that were started.
    turns: u64,
    /// Whether the turn's dispatch has begun.
    is_dispatched: bool,
    /// What the turn's dispatch came to.
    outcome: Option<Outcome>,
    /// Whether something went wrong after the dispatch had come to its end well.
    is_degraded: bool,
    /// Whether the turn was told to stop: what fails from here on was stopped.
    is_aborting: bool,
    /// What an error said that may have ended the turn.
    cause: Option<Cause>,
    used: Used,
    streams: Vec<Stream>,
    calls: Vec<Call>,
    gates: Vec<Gate>,
}

/// Which of ADK's ids were used, by hash. They are a turn's own: a later turn may use one again for something else.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Used {
    /// In this turn; at most [`IDS_MAX`], the last one used at the end.
    turn: VecDeque<u64>,
    /// Whether this turn used more than that.
    turn_has_more: bool,
    /// In the turns before; at most [`IDS_MAX`].
    earlier: BTreeSet<u64>,
    /// Whether they used more than that: then any id may have been used before.
    earlier_has_more: bool,
}

impl Used {
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

/// Whether an event of this name is known on this bus. Without a bus the name alone decides: no two events share one.
fn is_known(bus: Option<&Value>, event: &str) -> bool {
    match bus {
        None | Some(Value::Null) => FUNCTIONAL.contains(&event) || OBSERVABILITY.contains(&event),
        Some(Value::String(bus)) if bus == "functional" => FUNCTIONAL.contains(&event),
        Some(Value::String(bus)) if bus == "observability" => OBSERVABILITY.contains(&event),
        Some(_) => false,
    }
}

/// What the event cannot do without and lacks.
fn lacking(event: &str, fact: &Fact) -> Option<&'static str> {
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
        let mut step = Step { memory: self, given, out, event: &event, rest: Fact::new() };
        if !is_known(fact.get("bus"), &event) {
            step.push(unknown_type(&event, fact));
            return Ok(());
        }
        if let Some(expected) = lacking(&event, &fact) {
            step.push(diagnostic("malformed_event", &event, fact).with("expected", expected));
            return Ok(());
        }
        fact.shift_remove("bus");
        if event == "error" {
            // Anything may be thrown.
            let error = fact.shift_remove("payload").unwrap_or(Value::Null);
            step.rest = fact;
            step.error(error);
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
        step.rest = fact;
        match event.as_str() {
            "message" => step.chunk(Channel::Message, payload),
            "thought" => step.chunk(Channel::Thought, payload),
            "toolCall" => step.tool_call(payload),
            "turnStart" => step.turn_start(payload),
            "turnEnd" => step.turn_end(payload),
            "dispatchStart" => step.dispatch_start(payload),
            "dispatchEnd" => step.dispatch_end(payload),
            "iterationStart" => step.iteration_start(payload),
            "iterationEnd" => step.iteration_end(payload),
            "toolExecutionStart" => step.tool_execution_start(payload),
            "toolExecutionEnd" => step.tool_execution_end(payload),
            "turnGateOpen" => step.turn_gate_open(payload),
            "turnGateClosed" => step.turn_gate_closed(payload),
            "log" => step.log(payload),
            "warning" => step.warning(payload),
            _ => unreachable!("the events of both buses are listed above"),
        }
        if !step.rest.is_empty() {
            // The event itself led to nothing.
            let rest = std::mem::take(&mut step.rest);
            step.push(diagnostic("unplaced_members", &event, rest));
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
    }
}

impl TurnRunner {
    /// The name under which readers know a turn's id: the id itself, unless an earlier turn used it for something else.
    fn name(&self, key: u64, id: &str) -> String {
        if !self.used.was_used_earlier(key) {
            return id.to_owned();
        }
        let name = format!("turnrunner-{}-{id}", self.turns);
        if name.len() <= ID_BYTES_MAX { name } else { format!("turnrunner-{}-{key:016x}", self.turns) }
    }

    /// Whether this turn had a stream or call of that key, which has ended.
    fn has_ended(&self, key: u64) -> bool {
        let is_open = self.streams.iter().any(|stream| stream.key == key) || self.calls.iter().any(|call| call.key == key);
        !is_open && self.used.turn.contains(&key)
    }
}

/// One event on its way.
struct Step<'a> {
    memory: &'a mut TurnRunner,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
    /// The event's name.
    event: &'a str,
    /// What of the fact has no place of its own: it goes along with the first draft.
    rest: Fact,
}

impl Step<'_> {
    fn push(&mut self, draft: Draft) {
        let mut draft = carrying(draft, std::mem::take(&mut self.rest));
        // What was given wins over ADK's own notion.
        draft.ids.or(self.given);
        draft.ids.or(&Ids { turn: self.memory.turn.clone(), ..Ids::default() });
        self.out.push(draft);
    }

    /// What is left of the payload is carried beside what the fact has around it.
    fn leave(&mut self, payload: Fact) {
        for (member, value) in payload {
            if let Some(around) = self.rest.insert(member.clone(), value) {
                self.rest.insert(format!("fact.{member}"), around);
            }
        }
    }
}

/// Takes a member that is true or false; of any other kind it stays and is carried.
fn take_flag(payload: &mut Fact, member: &str) -> Option<bool> {
    let flag = payload.get(member)?.as_bool();
    if flag.is_some() {
        payload.shift_remove(member);
    }
    flag
}

/// Takes a point in time; what is none stays and is carried.
fn take_time(payload: &mut Fact, member: &str) -> Option<Box<str>> {
    let at = payload.get(member).and_then(instant);
    if at.is_some() {
        payload.shift_remove(member);
    }
    at
}

/// Moves members to the draft's payload under the names given beside them; null is nothing.
fn tell(draft: &mut Draft, payload: &mut Fact, members: &[(&str, &str)]) {
    for (member, ours) in members {
        let value = payload.shift_remove(*member).filter(|value| !value.is_null());
        draft.payload.extend(value.map(|value| ((*ours).to_owned(), value)));
    }
}
