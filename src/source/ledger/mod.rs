//! The ledger of one log: which things there are, who saw them start, which are sealed, and how the run stands.
//!
//! Every draft of every source passes here once, in order, before it is guarded. The ledger stamps what the audience rule
//! needs (`startAudience`, and for an action the audience of its call), turns a chunk for a sealed stream into a diagnostic,
//! and keeps the run's state. All of it is a pure function of the drafts, saved with the commit they lead to: a restart, a
//! replay and an import come to the same ledger. It never changes a body and never invents a fact.

mod run;

mod thing;

#[cfg(test)]
mod tests;

pub use run::{RunState, Status};

use crate::model::audience::Audience;
use crate::model::{AgentId, Draft, Envelope, EventType, Ids, ToolCallId};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use thing::{Change, Thing, bounded, change_of, thing_of, whole_message};

/// A chunk that came after its stream was sealed. It is logged as `diagnostic.changed`, and named in the producer's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// The fact's number in the body, from 0.
    pub index: u64,
    /// `write_after_seal`.
    pub code: &'static str,
    /// The event class that came too late.
    pub event_type: String,
    /// The sealed thing, as `kind:id`.
    pub thing: String,
}

/// The ledger of one log.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    things: HashMap<Box<str>, Thing>,
    /// Things changed since they were last saved.
    changed: BTreeSet<Box<str>>,
    pub run: RunState,
}

impl Ledger {
    /// The ledger as it was saved: the run's state, and a byte a thing.
    pub fn restore<'a>(run: RunState, things: impl Iterator<Item = (&'a str, u8)>) -> Self {
        let things = things.filter_map(|(key, byte)| Some((key.into(), Thing::from_byte(byte)?))).collect();
        Self { things, changed: BTreeSet::new(), run }
    }

    /// How many things it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether it remembers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Whether a thing can have been saved as this byte.
    #[must_use]
    pub fn has_byte(byte: u8) -> bool {
        Thing::from_byte(byte).is_some()
    }

    /// The things that changed since the last call, with the byte to save.
    pub fn take_changed(&mut self) -> Vec<(Box<str>, u8)> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .filter_map(|key| self.things.get(&key).map(|t| t.to_byte()).map(|b| (key, b)))
            .collect()
    }

    /// Enters a draft: stamps it, moves the run's state, and says so when it came too late for its stream.
    pub fn enter(&mut self, draft: &mut Draft, index: u64) -> Option<Violation> {
        let thing = thing_of(draft).map(bounded);
        if let Some(key) = thing.as_deref().filter(|_| is_chunk(&draft.class)).filter(|key| self.is_sealed(key, draft)) {
            let violation =
                Violation { index, code: "write_after_seal", event_type: draft.class.as_str().into(), thing: key.to_owned() };
            *draft = rejected(draft, &violation);
            return Some(violation);
        }
        let change = change_of(draft).map(|(key, change)| (bounded(key), change));
        let is_known = change.as_ref().is_some_and(|(key, _)| self.things.contains_key(key.as_str()));
        let call = thing.as_deref().filter(|key| key.starts_with("tool:")).and_then(|key| Some((key, *self.things.get(key)?)));
        let before = call.map(|(_, before)| before);
        self.stamp(draft, thing.as_deref());
        if let Some((key, before)) = call {
            self.attempt(draft, key, before);
        }
        // A snapshot that replaces nothing is for those who have none.
        if let Some((key, change)) = change.filter(|_| !(is_known && draft.said("replace") == Some(&Value::Bool(false)))) {
            self.change(draft, &key, change);
        }
        if let (Some(key), Some(missed)) = (thing.as_deref(), draft.missed_by) {
            self.unseen(draft, key, missed, before);
        }
        self.run.follow(&draft.class, &draft.phase, draft.ids.action.as_ref(), &draft.payload);
        None
    }

    fn is_sealed(&self, key: &str, draft: &Draft) -> bool {
        if let Some(thing) = self.things.get(key)
            && (thing.sealed || draft.ids.part.is_none())
        {
            return thing.sealed;
        }
        // The end of the whole message ends every part. A new part for those who saw nothing of the message, nor that it ended,
        // begins it for them.
        let start = self.things.get(key).map_or_else(|| first_audience(draft).max(self.agent_of(draft)), |part| part.start);
        let whole = whole_message(draft).and_then(|message| self.things.get(message.as_str()));
        draft.ids.part.is_some() && whole.is_some_and(|whole| whole.sealed && whole.start <= start)
    }

    /// The audience of the agent that the draft is of; users', if nobody said another.
    fn agent_of(&self, draft: &Draft) -> Audience {
        self.agent_audience(draft.ids.agent.as_ref())
    }

    fn agent_audience(&self, agent: Option<&AgentId>) -> Audience {
        let agent = agent.and_then(|id| self.things.get(format!("agent:{id}").as_str()));
        agent.map_or(Audience::User, |agent| agent.start)
    }

    /// Who may know of something that is done to these: those who see the action, else the call, and the agent.
    #[must_use]
    pub fn audience_about(&self, ids: &Ids) -> Audience {
        let action = ids.action.as_ref().map(|id| format!("action:{id}"));
        let target = action.or_else(|| ids.tool_call.as_ref().map(|id| format!("tool:{id}"))).map(bounded);
        let target = target.and_then(|key| self.things.get(key.as_str())).map_or(Audience::User, |thing| thing.start);
        target.max(self.agent_audience(ids.agent.as_ref()))
    }

    /// The audience of a call; `None` for one that never started here.
    #[must_use]
    pub fn call(&self, call: &ToolCallId) -> Option<Audience> {
        self.things.get(bounded(format!("tool:{call}")).as_str()).map(|thing| thing.start)
    }

    /// Whether this is an agent that was told of here: a teammate, not the run's own.
    #[must_use]
    pub fn knows_agent(&self, agent: &AgentId) -> bool {
        self.things.contains_key(format!("agent:{agent}").as_str())
    }

    fn stamp(&mut self, draft: &mut Draft, thing: Option<&str>) {
        let agent = self.agent_of(draft);
        draft.call_audience = match draft.class {
            EventType::ActionRequired | EventType::ActionResolved | EventType::ControlChanged => {
                let call = draft.ids.tool_call.as_ref().and_then(|id| self.things.get(bounded(format!("tool:{id}")).as_str()));
                call.filter(|call| !call.unstarted).map(|call| call.start)
            }
            _ => None,
        };
        let Some(key) = thing else {
            // What becomes of a control is told to those who see what it is about.
            let about = match draft.class {
                EventType::ControlChanged => self.audience_about(&draft.ids),
                _ => agent,
            };
            // What a hidden agent says or does is hidden, even where it is about no thing of its own.
            draft.start_audience = Some(about).filter(|a| *a != Audience::User && !draft.class.is_run_boundary());
            return;
        };
        let is_agent = key.starts_with("agent:");
        let known = self.things.get(key).copied();
        let own = if is_agent { draft.audience } else { first_audience(draft).max(agent) };
        // The thing's first envelope decides for good who sees it. A call's is its start: what was told before starts nothing.
        let unstarted =
            key.starts_with("tool:") && draft.class != EventType::ToolStarted && known.is_none_or(|thing| thing.unstarted);
        let first = match known {
            Some(thing) if !thing.unstarted => thing.start,
            Some(thing) if unstarted => thing.start.min(own),
            _ => own,
        };
        let ends = draft.class.is_end() && !is_agent;
        draft.start_audience = Some(match known.filter(|thing| !thing.unstarted) {
            // Whoever saw the start sees the end. What of it comes from a hidden agent, or covers a hidden part, is withheld.
            Some(thing) if ends => {
                draft.audience = draft.audience.max(agent).max(thing.narrowest);
                first
            }
            // A hidden agent that touches a thing hides only what it says itself.
            _ if !is_agent => first.max(agent),
            _ => first,
        });
        // A call that starts again is another attempt under the same id: providers reuse them after a reset.
        let sealed = ends || draft.class != EventType::ToolStarted && known.is_some_and(|t| t.sealed);
        let thing = match known {
            Some(thing) if !thing.unstarted => thing,
            thing => Thing { missed: thing.and_then(|thing| thing.missed), unstarted, ..Thing::new(first) },
        };
        self.put(key, Thing { start: first, sealed, ..thing });
        if draft.ids.part.is_some()
            && let Some(message) = whole_message(draft)
        {
            let whole = self.things.get(message.as_str()).copied();
            let whole = whole.unwrap_or(Thing::new(first));
            let sealed = whole.sealed && whole.start <= first;
            self.put(&message, Thing { start: whole.start.min(first), narrowest: whole.narrowest.max(first), sealed, ..whole });
        }
    }

    /// Keeps account of who lacks what: a patch is nothing to whoever missed what it builds on, and a snapshot heals whoever
    /// sees it.
    fn change(&mut self, draft: &mut Draft, key: &str, change: Change) {
        let thing = self.things.get(key).copied().unwrap_or(Thing::new(Audience::User));
        let missed = match change {
            Change::Snapshot => hidden_from(draft),
            Change::Patch => {
                draft.missed_by = thing.missed;
                thing.missed.max(hidden_from(draft))
            }
        };
        self.put(key, Thing { missed, ..thing });
    }

    /// What a reader misses tells it nothing of a call that has not started.
    fn unseen(&mut self, draft: &Draft, key: &str, missed: Audience, before: Option<Thing>) {
        let Some(thing) = self.things.get(key).copied().filter(|thing| thing.unstarted) else { return };
        let seen_by = draft.audience.max(self.agent_of(draft)).max(narrower(missed));
        let start = before.filter(|before| before.unstarted).map_or(seen_by, |before| before.start.min(seen_by));
        self.put(key, Thing { start, narrowest: start, ..thing });
    }

    /// The same of a call that starts again: to whoever does not see that, it has ended, and its output is nothing.
    fn attempt(&mut self, draft: &mut Draft, key: &str, before: Thing) {
        match draft.class {
            EventType::ToolOutputDelta => draft.missed_by = before.missed,
            EventType::ToolStarted => {
                let hidden_from = hidden_from(draft);
                let missed = if before.sealed { hidden_from } else { before.missed.min(hidden_from) };
                let thing = self.things.get(key).copied().unwrap_or(before);
                self.put(key, Thing { missed, ..thing });
            }
            _ => {}
        }
    }

    fn put(&mut self, key: &str, thing: Thing) {
        if self.things.get(key) != Some(&thing) {
            self.things.insert(key.into(), thing);
            self.changed.insert(key.into());
        }
    }

    fn hides(&self, kind: &str, id: Option<&Value>, reader: Audience) -> bool {
        let Some(id) = id.and_then(Value::as_str) else { return false };
        self.things.get(format!("{kind}:{id}").as_str()).is_some_and(|t| !t.unstarted && !reader.admits(t.start))
    }

    /// Whether there is anything that this reader cannot see.
    #[must_use]
    pub fn hides_from(&self, reader: Audience) -> bool {
        self.things.values().any(|thing| !reader.admits(thing.narrowest))
    }

    /// A `messages.snapshot` as `reader` gets it: without the messages of agents, and the parts and calls, that this reader
    /// cannot see. `None` when nothing has to go.
    #[must_use]
    pub fn messages_for(&self, envelope: &Envelope, reader: Audience) -> Option<Envelope> {
        if envelope.draft.class != EventType::MessagesSnapshot {
            return None;
        }
        let messages = envelope.draft.payload.get("messages")?.as_array()?;
        let call = |of: &Value| self.hides("tool", of.get("toolCallId").or_else(|| of.get("tool_call_id")), reader);
        let mut gone = false;
        let kept = messages
            .iter()
            .filter(|m| !(self.hides("agent", m.get("agentId"), reader) || call(m)))
            .map(|message| {
                let mut message = message.clone();
                for (member, by) in [("parts", None), ("toolCalls", Some("id")), ("tool_calls", Some("id"))] {
                    let Some(list) = message.get_mut(member).and_then(Value::as_array_mut) else { continue };
                    let before = list.len();
                    list.retain(|of| !(call(of) || by.is_some_and(|id| self.hides("tool", of.get(id), reader))));
                    gone |= list.len() != before;
                }
                message
            })
            .collect::<Vec<_>>();
        if !gone && kept.len() == messages.len() {
            return None;
        }
        let mut filtered = envelope.clone();
        filtered.draft.payload.insert("messages".into(), Value::Array(kept));
        Some(filtered)
    }
}

/// The next narrower audience.
const fn narrower(audience: Audience) -> Audience {
    match audience {
        Audience::User => Audience::Dashboard,
        Audience::Dashboard | Audience::Internal => Audience::Internal,
    }
}

/// The narrowest audience that gets nothing of a draft which ends nothing.
fn hidden_from(draft: &Draft) -> Option<Audience> {
    match draft.start_audience.map_or(draft.audience, |start| start.max(draft.audience)) {
        Audience::User => None,
        Audience::Dashboard => Some(Audience::User),
        Audience::Internal => Some(Audience::Dashboard),
    }
}

/// The audience of a thing whose first envelope this is. A failure of something that nobody saw start is for users, unless it
/// is nested in another call and was marked narrower on purpose (an inner failure is data for the script that made the call).
fn first_audience(draft: &Draft) -> Audience {
    if draft.class == EventType::ToolFailed && !is_nested(draft) { Audience::User } else { draft.audience }
}

fn is_nested(draft: &Draft) -> bool {
    let names_parent = |refs: &Value| refs.get("parentToolCallId").is_some_and(|v| !v.is_null());
    draft.refs.as_ref().is_some_and(names_parent)
        || draft.payload.get("parentToolCallId").or_else(|| draft.extra.get("parentToolCallId")).is_some_and(|v| !v.is_null())
}

const fn is_chunk(class: &EventType) -> bool {
    matches!(class, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolOutputDelta)
}

/// What is logged in place of a chunk that came too late: everything that it said, for internal eyes.
fn rejected(draft: &Draft, violation: &Violation) -> Draft {
    let mut diagnostic = Draft::new(EventType::DiagnosticChanged);
    diagnostic.ids.clone_from(&draft.ids);
    diagnostic.timestamp.clone_from(&draft.timestamp);
    diagnostic.source_sequence = draft.source_sequence;
    diagnostic.payload = Map::from_iter([
        ("kind".to_owned(), json!(violation.code)),
        ("thing".to_owned(), json!(violation.thing)),
        ("eventType".to_owned(), json!(violation.event_type)),
        ("event".to_owned(), Value::Object(draft.payload.clone())),
    ]);
    diagnostic
}
