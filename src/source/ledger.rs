//! The ledger of one log: which things there are, who saw them start, which are sealed, and how the run stands.
//!
//! Every draft of every source passes here once, in order, before it is guarded. The ledger stamps what the audience rule
//! needs (`startAudience`, and for an action the audience of its call), turns a chunk for a sealed stream into a diagnostic,
//! and keeps the run's state. All of it is a pure function of the drafts, saved with the commit they lead to: a restart, a
//! replay and an import come to the same ledger. It never changes a body and never invents a fact.

use crate::model::audience::Audience;
use crate::model::{ActionId, AgentId, Draft, Envelope, EventType, Ids, MessageId, Phase, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};

/// The name of seed 002's activity of a tool call.
const PROGRESS: &str = "tool-call-progress";

/// The longest key of a thing, in bytes: three ids and what stands between them; a longer one is known by its hash.
const THING_BYTES_MAX: usize = 800;

/// What the ledger knows of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thing {
    /// The audience of its first envelope; of a message as a whole, the widest of its parts'.
    start: Audience,
    /// Of a message as a whole, the narrowest of its parts'; else the same as `start`.
    narrowest: Audience,
    sealed: bool,
    /// Of what is patched, and of calls that start again: the narrowest audience that lacks a change to it. Whoever is wider
    /// lacks it too.
    missed: Option<Audience>,
}

impl Thing {
    const fn new(start: Audience) -> Self {
        Self { start, narrowest: start, sealed: false, missed: None }
    }

    const fn to_byte(self) -> u8 {
        let missed = match self.missed {
            None => 0,
            Some(audience) => audience as u8 + 1,
        };
        self.start as u8 | (self.sealed as u8) << 2 | (self.narrowest as u8) << 3 | missed << 5
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let audience = |bits: u8| Audience::ALL.get(usize::from(bits & 3)).copied();
        let missed = match byte >> 5 & 3 {
            0 => None,
            more => audience(more - 1),
        };
        Some(Self { start: audience(byte)?, narrowest: audience(byte >> 3)?, sealed: byte & 4 != 0, missed })
    }
}

/// What a fact does to something that is kept by snapshots and patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Snapshot,
    Patch,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Accepted,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
    Interrupted,
    Unknown,
}

impl Status {
    /// Whether the run has ended: only a new start reopens it.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

/// The run's state, as it is saved and as summaries show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunState {
    pub status: Status,
    pub phase: Phase,
    /// 1 for the first start; one more for each start after an end.
    pub attempt: u32,
    /// Ids of actions that wait for somebody.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pending: BTreeSet<String>,
    /// Whether the source itself said that the run waits, beside any pending action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether nobody was heard of the run for so long that the server said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Whether it was the server that ended the run, and not its source: then any fact reopens it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            status: Status::Unknown,
            phase: Phase::Unknown,
            attempt: 0,
            pending: BTreeSet::new(),
            paused: false,
            stale: false,
            settled: false,
        }
    }
}

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
        self.stamp(draft, thing.as_deref());
        if let Some((key, before)) = call {
            self.attempt(draft, key, before);
        }
        // A snapshot that replaces nothing is for those who have none.
        if let Some((key, change)) = change.filter(|_| !(is_known && draft.said("replace") == Some(&Value::Bool(false)))) {
            self.change(draft, &key, change);
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
                draft.ids.tool_call.as_ref().and_then(|id| self.things.get(format!("tool:{id}").as_str())).map(|t| t.start)
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
        // The thing's first envelope decides for good who sees it.
        let first = known.map_or_else(|| if is_agent { draft.audience } else { first_audience(draft).max(agent) }, |t| t.start);
        let ends = draft.class.is_end() && !is_agent;
        draft.start_audience = Some(match known {
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
        let thing = known.unwrap_or(Thing::new(first));
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
        self.things.get(format!("{kind}:{id}").as_str()).is_some_and(|t| !reader.admits(t.start))
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

impl RunState {
    /// Follows what a fact says of the run, and says whether it came too late to change how the run stands: that has ended.
    pub fn follow(&mut self, class: &EventType, phase: &Phase, action: Option<&ActionId>, payload: &Map<String, Value>) -> bool {
        let marked = |member: &str| payload.get(member) == Some(&Value::Bool(true));
        match class {
            // What is said of a reader's answer is no sign of the runtime.
            EventType::ControlChanged => return self.status.is_end(),
            EventType::RunStatus if marked("stale") => {
                self.stale = self.ages();
                return self.status.is_end();
            }
            _ => self.stale = false,
        }
        let is_settlement = *class == EventType::RunFailed && marked("synthetic");
        if self.settled && !is_settlement {
            self.settled = false;
            if *class != EventType::RunStarted {
                self.stand(Status::Running, &Phase::Acting);
            }
        }
        match class {
            EventType::RunStarted => {
                self.attempt += 1;
                self.pending.clear();
                self.paused = false;
                self.stand(Status::Accepted, phase);
            }
            // An ended run stays ended, whatever else arrives late.
            _ if self.status.is_end() => return true,
            EventType::RunFinished | EventType::RunFailed => {
                self.pending.clear();
                self.paused = false;
                self.settled = is_settlement;
                let status = match phase {
                    Phase::Failed => Status::Failed,
                    Phase::Cancelled => Status::Cancelled,
                    Phase::Interrupted => Status::Interrupted,
                    _ if *class == EventType::RunFailed => Status::Failed,
                    _ => Status::Completed,
                };
                self.stand(status, phase);
            }
            EventType::RunStatus => {
                self.paused = *phase == Phase::Waiting;
                let status = match phase {
                    Phase::Accepted | Phase::Submitted => Status::Accepted,
                    _ => self.awake(),
                };
                self.stand(status, phase);
            }
            EventType::ActionRequired => {
                if let Some(id) = action {
                    self.pending.insert(id.as_str().to_owned());
                }
                self.stand(Status::Waiting, phase);
            }
            EventType::ActionResolved => {
                if let Some(id) = action {
                    self.pending.remove(id.as_str());
                }
                self.stand(self.awake(), phase);
            }
            EventType::DiagnosticChanged | EventType::MetricChanged => {}
            _ if matches!(self.status, Status::Accepted | Status::Unknown) => self.stand(Status::Running, phase),
            // What the run is busy with. That one tool has completed says nothing of the run's phase.
            EventType::TextDelta
            | EventType::ReasoningDelta
            | EventType::PlanDelta
            | EventType::ToolStarted
            | EventType::ReviewRequested => self.phase.clone_from(phase),
            _ => {}
        }
        false
    }

    /// Whether the run goes on without anybody's decision, so that silence means something.
    #[must_use]
    pub const fn ages(&self) -> bool {
        matches!(self.status, Status::Accepted | Status::Running)
    }

    fn awake(&self) -> Status {
        if self.paused || !self.pending.is_empty() { Status::Waiting } else { Status::Running }
    }

    fn stand(&mut self, status: Status, phase: &Phase) {
        self.status = status;
        self.phase.clone_from(phase);
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

/// Names in payloads may be of any length; keys of things are saved, and are not.
fn bounded(key: String) -> String {
    if key.len() <= THING_BYTES_MAX {
        return key;
    }
    let kind = key.split(':').next().unwrap_or_default();
    format!("{kind}:{:x}", Sha256::digest(&key))
}

/// The activity that a draft is of, by the name that its source gave it; empty names name nothing.
fn activity_of(draft: &Draft) -> Option<&str> {
    use EventType as E;
    let can_be = matches!(draft.class, E::ToolProgress | E::StateSnapshot | E::StateDelta);
    draft.said("activityType").filter(|_| can_be).and_then(Value::as_str)
}

/// The call that a report of its progress is about: an activity of that name may give the call's id in its content, or, as
/// Awaken does, in the place of a message's.
fn reported_call(draft: &Draft) -> Option<&str> {
    let of = draft.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let told = || draft.said("content").and_then(|content| content.get("call_id")).and_then(Value::as_str);
    of.or_else(|| told().filter(|id| ToolCallId::new(id).is_ok())).or_else(|| draft.ids.message.as_ref().map(MessageId::as_str))
}

/// What a draft changes by a snapshot or a patch: an activity of the source, or the state (`state:`).
fn change_of(draft: &Draft) -> Option<(String, Change)> {
    let ids = &draft.ids;
    let says = |member: &str| draft.said(member).is_some_and(|value| !value.is_null());
    if let Some(activity) = activity_of(draft) {
        let change = match draft.said("content").or_else(|| draft.said("state")) {
            Some(_) => Change::Snapshot,
            None if says("patch") => Change::Patch,
            None => return None,
        };
        let of = match activity {
            PROGRESS => reported_call(draft),
            _ => ids.tool_call.as_ref().map(ToolCallId::as_str).or_else(|| ids.message.as_ref().map(MessageId::as_str)),
        };
        return Some((format!("activity:{activity}/{}", of.unwrap_or_default()), change));
    }
    match draft.class {
        EventType::StateSnapshot if draft.said("state").is_some() => Some(("state:".into(), Change::Snapshot)),
        EventType::StateDelta if says("patch") => Some(("state:".into(), Change::Patch)),
        _ => None,
    }
}

/// The thing that a draft is about, as `kind:id`; `None` for what is about none (runs, sessions, state, diagnostics …).
fn thing_of(draft: &Draft) -> Option<String> {
    use EventType as E;
    let ids = &draft.ids;
    match activity_of(draft) {
        // The call itself, whoever saw that start.
        Some(PROGRESS) => return reported_call(draft).map(|id| format!("tool:{id}")),
        Some(activity) => {
            let message = ids.message.as_ref().map(MessageId::as_str);
            let of = ids.tool_call.as_ref().map(ToolCallId::as_str).or(message).unwrap_or_default();
            return Some(format!("activity:{activity}/{of}"));
        }
        None => {}
    }
    let by_payload = |members: &[&str]| {
        members.iter().find_map(|member| match draft.said(member)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            _ => None,
        })
    };
    match draft.class {
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => {
            ids.tool_call.as_ref().map(|id| format!("tool:{id}"))
        }
        E::ActionRequired | E::ActionResolved => ids.action.as_ref().map(|id| format!("action:{id}")),
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => match &ids.part {
            Some(part) => whole_message(draft).map(|message| format!("{message}/{part}")),
            None => whole_message(draft),
        },
        E::AgentSpawned | E::AgentChanged | E::AgentCompleted => ids.agent.as_ref().map(|id| format!("agent:{id}")),
        E::ReviewRequested | E::ReviewCompleted => by_payload(&["reviewId"])
            .or_else(|| ids.evidence.as_ref().map(|id| id.as_str().to_owned()))
            .map(|id| format!("review:{id}")),
        E::ContextCompactionStarted | E::ContextCompactionCompleted => {
            Some(format!("compaction:{}", by_payload(&["compactionId", "id"]).unwrap_or_default()))
        }
        _ => None,
    }
}

/// The message, reasoning or plan that the draft's part belongs to, as `kind:id`.
fn whole_message(draft: &Draft) -> Option<String> {
    use EventType as E;
    let kind = match draft.class {
        E::TextDelta | E::TextFinal => "text",
        E::ReasoningDelta | E::ReasoningSummary => "reasoning",
        E::PlanDelta | E::PlanFinal => "plan",
        _ => return None,
    };
    let message = draft.ids.message.as_ref()?;
    Some(match &draft.ids.agent {
        Some(agent) => format!("{kind}:{agent}/{message}"),
        None => format!("{kind}:{message}"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ActionId, AgentId, PartId, Sequence, Sight};

    fn tool(class: EventType, id: &str) -> Draft {
        let mut draft = Draft::new(class);
        draft.ids.tool_call = Some(ToolCallId::new(id).unwrap());
        draft
    }

    fn text(class: EventType, message: &str, part: Option<&str>) -> Draft {
        let mut draft = Draft::new(class).with("text", "x");
        draft.ids.message = Some(MessageId::new(message).unwrap());
        draft.ids.part = part.map(|p| PartId::new(p).unwrap());
        draft
    }

    fn envelope(draft: Draft) -> Envelope {
        Envelope { sequence: Sequence(1), event_id: uuid::Uuid::nil(), received_at: "".into(), draft }
    }

    /// What user, dashboard and internal readers get of each draft, in order.
    fn sights(ledger: &mut Ledger, drafts: Vec<Draft>) -> Vec<[Sight; 3]> {
        let enter = |mut draft: Draft| {
            ledger.enter(&mut draft, 0);
            let envelope = envelope(draft);
            Audience::ALL.map(|reader| reader.sight(&envelope))
        };
        drafts.into_iter().map(enter).collect()
    }

    use Sight::{Body, Edge, Hidden, Trimmed};

    #[test]
    fn whoever_saw_a_call_start_sees_it_end_without_the_body_that_is_not_theirs() {
        let seen = sights(
            &mut Ledger::default(),
            vec![tool(EventType::ToolStarted, "c"), tool(EventType::ToolProgress, "c"), tool(EventType::ToolResult, "c")],
        );
        assert_eq!(seen, [[Body, Body, Body], [Hidden, Hidden, Body], [Edge, Edge, Body]]);
    }

    #[test]
    fn a_hidden_call_stays_hidden_whatever_its_later_facts_say() {
        let mut start = tool(EventType::ToolStarted, "c");
        start.audience = Audience::Internal;
        let mut progress = tool(EventType::ToolProgress, "c");
        progress.audience = Audience::User;
        let seen = sights(&mut Ledger::default(), vec![start, progress, tool(EventType::ToolFailed, "c")]);
        assert_eq!(seen, [[Hidden, Hidden, Body]; 3]);
    }

    #[test]
    fn a_failure_is_seen_by_whoever_saw_the_start_and_by_users_when_nothing_started() {
        let mut fail = tool(EventType::ToolFailed, "c");
        fail.audience = Audience::Internal;
        let seen = sights(&mut Ledger::default(), vec![tool(EventType::ToolStarted, "c"), fail.clone()]);
        assert_eq!(seen[1], [Body, Body, Body]);
        assert_eq!(sights(&mut Ledger::default(), vec![fail.clone()]), [[Body, Body, Body]]);
        fail.refs = Some(json!({"parentToolCallId": "p"}));
        assert_eq!(sights(&mut Ledger::default(), vec![fail]), [[Hidden, Hidden, Body]], "nested and marked narrower");
    }

    #[test]
    fn what_becomes_of_a_control_is_told_to_those_who_see_what_it_is_about() {
        let mut ledger = Ledger::default();
        let mut spy = tool(EventType::ToolStarted, "spy");
        spy.audience = Audience::Internal;
        let asks = |action: &str, audience: Audience| {
            let mut draft = Draft::new(EventType::ActionRequired);
            (draft.ids.action, draft.audience) = (ActionId::new(action).ok(), audience);
            draft
        };
        let mut mole = Draft::new(EventType::AgentSpawned);
        (mole.ids.agent, mole.audience) = (AgentId::new("mole").ok(), Audience::Dashboard);
        sights(&mut ledger, vec![spy, mole, asks("shown", Audience::User), asks("hidden", Audience::Dashboard)]);
        let control = |action: Option<&str>, call: Option<&str>, agent: Option<&str>| {
            let mut draft = Draft::new(EventType::ControlChanged).with("status", "submitted");
            draft.ids.action = action.and_then(|id| ActionId::new(id).ok());
            draft.ids.tool_call = call.and_then(|id| ToolCallId::new(id).ok());
            draft.ids.agent = agent.and_then(|id| AgentId::new(id).ok());
            draft
        };
        let seen = sights(
            &mut ledger,
            vec![
                control(None, None, None),
                control(Some("shown"), None, Some("nobody knows")),
                control(Some("shown"), Some("spy"), None),
                control(Some("hidden"), None, None),
                control(None, Some("spy"), None),
                control(Some("shown"), None, Some("mole")),
            ],
        );
        let dashboard = [Hidden, Body, Body];
        let expected = [[Body; 3], [Body; 3], [Trimmed, Trimmed, Body], dashboard, [Hidden, Hidden, Body], dashboard];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_hidden_agent_says_and_does_nothing_that_others_see() {
        let mut spawned = Draft::new(EventType::AgentSpawned);
        spawned.audience = Audience::Dashboard;
        let mut said = text(EventType::TextDelta, "m", Some("p"));
        let mut called = tool(EventType::ToolStarted, "c");
        let mut status = Draft::new(EventType::RunStatus);
        for draft in [&mut spawned, &mut said, &mut called, &mut status] {
            draft.ids.agent = Some(AgentId::new("ghost").unwrap());
        }
        let seen = sights(&mut Ledger::default(), vec![spawned, said, called, status]);
        assert_eq!(seen, [[Hidden, Body, Body]; 4]);
    }

    #[test]
    fn an_action_on_a_hidden_call_loses_what_tells_of_the_call() {
        let mut start = tool(EventType::ToolStarted, "c");
        start.audience = Audience::Internal;
        let mut ask = tool(EventType::ActionRequired, "c").with("input", json!({"rm": "-rf"}));
        ask.ids.action = Some(ActionId::new("a").unwrap());
        let mut ledger = Ledger::default();
        assert_eq!(sights(&mut ledger, vec![start, ask.clone()])[1], [Trimmed, Trimmed, Body]);
        let trimmed = crate::model::audience::trimmed(&envelope(ask));
        assert_eq!(trimmed.draft.ids.tool_call, None);
        assert!(!trimmed.draft.payload.contains_key("input"));
    }

    #[test]
    fn starts_and_ends_of_runs_reach_everyone() {
        let seen = [EventType::RunStarted, EventType::RunFinished, EventType::RunFailed].map(|class| {
            let mut draft = Draft::new(class);
            draft.audience = Audience::Internal;
            sights(&mut Ledger::default(), vec![draft])[0]
        });
        assert_eq!(seen, [[Edge, Edge, Body], [Edge, Edge, Body], [Body, Body, Body]]);
    }

    #[test]
    fn a_chunk_after_the_seal_is_a_diagnostic_and_named() {
        let mut ledger = Ledger::default();
        ledger.enter(&mut text(EventType::TextDelta, "m", Some("p")), 0);
        ledger.enter(&mut text(EventType::TextFinal, "m", None), 1);
        let mut late = text(EventType::TextDelta, "m", Some("p"));
        let violation = ledger.enter(&mut late, 2).expect("sealed");
        assert_eq!((violation.index, violation.code), (2, "write_after_seal"));
        assert_eq!(late.class, EventType::DiagnosticChanged);
        assert_eq!(late.payload["event"]["text"], "x");
        assert!(ledger.enter(&mut text(EventType::TextDelta, "m2", Some("p")), 3).is_none(), "another message is open");
    }

    #[test]
    fn a_final_of_one_part_leaves_the_other_parts_open() {
        let mut ledger = Ledger::default();
        ledger.enter(&mut text(EventType::TextDelta, "m", Some("p1")), 0);
        ledger.enter(&mut text(EventType::TextFinal, "m", Some("p1")), 0);
        assert!(ledger.enter(&mut text(EventType::TextDelta, "m", Some("p2")), 0).is_none());
        assert!(ledger.enter(&mut text(EventType::TextDelta, "m", Some("p1")), 0).is_some());
    }

    #[test]
    fn the_end_of_a_message_that_was_hidden_from_a_reader_ends_nothing_that_begins_for_it() {
        let mut hidden = text(EventType::TextDelta, "m", Some("p1"));
        hidden.audience = Audience::Dashboard;
        let delta = |part: &str| text(EventType::TextDelta, "m", Some(part));
        let mut ledger = Ledger::default();
        let drafts = vec![hidden.clone(), text(EventType::TextFinal, "m", None), delta("p0"), delta("p0")];
        let two = [Hidden, Body, Body];
        assert_eq!(sights(&mut ledger, drafts), [two, two, [Body; 3], [Body; 3]]);
        ledger.enter(&mut text(EventType::TextFinal, "m", None), 0);
        assert!(
            ledger.enter(&mut delta("p2"), 0).is_some() && ledger.enter(&mut hidden, 0).is_some(),
            "now it has ended for all"
        );
    }

    #[test]
    fn a_call_that_starts_again_takes_output_again() {
        let mut ledger = Ledger::default();
        for class in [EventType::ToolStarted, EventType::ToolFailed] {
            ledger.enter(&mut tool(class, "c"), 0);
        }
        assert!(ledger.enter(&mut tool(EventType::ToolOutputDelta, "c"), 0).is_some());
        ledger.enter(&mut tool(EventType::ToolStarted, "c"), 0);
        assert!(ledger.enter(&mut tool(EventType::ToolOutputDelta, "c"), 0).is_none());
    }

    #[test]
    fn what_a_call_puts_out_after_a_hidden_restart_is_for_whoever_saw_the_restart() {
        let of = |class: EventType, audience: Audience| {
            let mut draft = tool(class, "c");
            draft.audience = audience;
            draft
        };
        use Audience::{Dashboard, User};
        use EventType::{ToolFailed, ToolOutputDelta, ToolStarted};
        let story = [
            (ToolStarted, User),
            (ToolFailed, User),
            (ToolStarted, Dashboard),
            (ToolOutputDelta, User),
            (ToolStarted, User),
            (ToolOutputDelta, User),
        ];
        let seen = sights(&mut Ledger::default(), story.map(|(class, audience)| of(class, audience)).to_vec());
        let (all, two) = ([Body, Body, Body], [Hidden, Body, Body]);
        assert_eq!(seen, [all, all, two, two, all, all]);
    }

    #[test]
    fn a_run_waits_while_an_action_is_pending_and_ends_only_by_its_end() {
        let mut ledger = Ledger::default();
        let mut ask = Draft::new(EventType::ActionRequired);
        ask.ids.action = Some(ActionId::new("a").unwrap());
        let mut answer = Draft::new(EventType::ActionResolved);
        answer.ids.action = Some(ActionId::new("a").unwrap());
        let mut states = Vec::new();
        for mut draft in [
            Draft::new(EventType::RunStarted),
            Draft::new(EventType::ToolStarted),
            ask,
            answer,
            Draft::new(EventType::RunFinished),
            Draft::new(EventType::TextDelta),
            Draft::new(EventType::RunStarted),
        ] {
            ledger.enter(&mut draft, 0);
            states.push((ledger.run.status, ledger.run.attempt));
        }
        use Status::{Accepted, Completed, Running, Waiting};
        let expected = [(Accepted, 1), (Running, 1), (Waiting, 1), (Running, 1), (Completed, 1), (Completed, 1), (Accepted, 2)];
        assert_eq!(states, expected);
    }

    /// A change of an activity (of a call `c`), or of the state where `activity` is empty.
    fn change(activity: &str, member: &str, audience: Audience) -> Draft {
        let class = if member == "patch" { EventType::StateDelta } else { EventType::StateSnapshot };
        let mut draft = Draft::new(class).with(member, json!([]));
        if !activity.is_empty() {
            draft = draft.with("activityType", activity);
            draft.ids.tool_call = Some(ToolCallId::new("c").unwrap());
        }
        draft.audience = audience;
        draft
    }

    #[test]
    fn whoever_missed_a_change_gets_no_patch_of_it_until_a_snapshot_that_it_sees() {
        use Audience::{Dashboard, Internal, User};
        for activity in ["", "search", "tool-call-progress"] {
            let of = |member: &str, audience: Audience| change(activity, member, audience);
            let seen = sights(
                &mut Ledger::default(),
                vec![
                    of("state", User),
                    of("patch", User),
                    of("patch", Dashboard),
                    of("patch", User),
                    of("patch", Internal),
                    of("patch", User),
                    of("state", Dashboard),
                    of("patch", User),
                    of("state", Internal),
                    of("patch", Dashboard),
                    of("state", User),
                    of("patch", User),
                ],
            );
            let (all, two, one) = ([Body, Body, Body], [Hidden, Body, Body], [Hidden, Hidden, Body]);
            assert_eq!(seen, [all, all, two, two, one, one, two, two, one, one, all, all], "{activity:?}");
        }
    }

    #[test]
    fn a_snapshot_that_replaces_nothing_neither_heals_nor_harms() {
        let keep = |audience: Audience| change("search", "content", audience).with("replace", false);
        let patch = |audience: Audience| change("search", "patch", audience);
        let mut ledger = Ledger::default();
        let seen = sights(&mut ledger, vec![keep(Audience::User), keep(Audience::Internal), patch(Audience::User)]);
        assert_eq!(seen[2], [Body, Body, Body]);
        let seen = sights(&mut ledger, vec![patch(Audience::Internal), keep(Audience::User), patch(Audience::User)]);
        assert_eq!(seen[2], [Hidden, Hidden, Body]);
    }

    #[test]
    fn who_missed_what_is_saved_beside_the_rest_and_old_bytes_are_read() {
        let mut ledger = Ledger::default();
        sights(&mut ledger, vec![change("", "state", Audience::User), change("", "patch", Audience::Internal)]);
        let saved = ledger.take_changed();
        let mut restored = Ledger::restore(RunState::default(), saved.iter().map(|(key, byte)| (&**key, *byte)));
        assert_eq!(sights(&mut restored, vec![change("", "patch", Audience::User)]), [[Hidden, Hidden, Body]]);
        for start in Audience::ALL {
            for (sealed, narrowest) in [(false, start), (true, Audience::Internal)] {
                let old = start as u8 | u8::from(sealed) << 2 | (narrowest as u8) << 3;
                assert_eq!(Thing::from_byte(old), Some(Thing { start, narrowest, sealed, missed: None }));
                for missed in [None, Some(Audience::User), Some(Audience::Dashboard)] {
                    let thing = Thing { start, narrowest, sealed, missed };
                    assert_eq!(Thing::from_byte(thing.to_byte()), Some(thing));
                }
            }
        }
    }

    #[test]
    fn a_report_of_a_call_s_progress_is_of_the_call() {
        let mut start = tool(EventType::ToolStarted, "c");
        start.audience = Audience::Internal;
        let mut report = Draft::new(EventType::StateSnapshot).with("activityType", "tool-call-progress");
        report.ids.message = Some(MessageId::new("c").unwrap());
        let named = Draft::new(EventType::StateSnapshot)
            .with("activityType", "tool-call-progress")
            .with("content", json!({"call_id": "c"}));
        assert_eq!(sights(&mut Ledger::default(), vec![start, report, named])[1..], [[Hidden, Hidden, Body]; 2]);
    }

    #[test]
    fn the_edge_of_a_review_says_which_review_ended() {
        let mut ledger = Ledger::default();
        for id in [json!("v"), json!(7)] {
            let mut end = Draft::new(EventType::ReviewCompleted).with("reviewId", id.clone()).with("verdict", "secret");
            end.audience = Audience::Internal;
            let seen =
                sights(&mut ledger, vec![Draft::new(EventType::ReviewRequested).with("reviewId", id.clone()), end.clone()]);
            assert_eq!(seen[1], [Edge, Edge, Body]);
            let edge = crate::model::audience::edge(&envelope(end)).draft.payload;
            assert_eq!(Value::Object(edge), json!({"reviewId": id, "withheld": true}));
        }
    }

    #[test]
    fn a_restored_ledger_stamps_as_the_one_that_was_saved() {
        let mut ledger = Ledger::default();
        let mut start = tool(EventType::ToolStarted, "c");
        start.audience = Audience::Dashboard;
        ledger.enter(&mut start, 0);
        let saved = ledger.take_changed();
        assert_eq!(saved.len(), 1);
        assert!(ledger.take_changed().is_empty());
        let mut restored = Ledger::restore(ledger.run.clone(), saved.iter().map(|(key, byte)| (&**key, *byte)));
        let mut end = tool(EventType::ToolResult, "c");
        restored.enter(&mut end, 0);
        assert_eq!(end.start_audience, Some(Audience::Dashboard));
    }

    #[test]
    fn however_long_a_name_is_the_key_that_is_saved_is_bounded() {
        let mut ledger = Ledger::default();
        let mut draft = tool(EventType::ToolProgress, "c").with("activityType", "x".repeat(100_000));
        ledger.enter(&mut draft, 0);
        assert!(ledger.take_changed().iter().all(|(key, _)| key.len() <= THING_BYTES_MAX));
    }

    #[test]
    fn a_snapshot_of_messages_tells_nothing_of_hidden_calls_and_agents() {
        let mut ledger = Ledger::default();
        let mut start = tool(EventType::ToolStarted, "c");
        start.audience = Audience::Internal;
        ledger.enter(&mut start, 0);
        let snapshot = Draft::new(EventType::MessagesSnapshot).with(
            "messages",
            json!([{"messageId": "1", "parts": [{"kind": "tool_call", "toolCallId": "c"}, {"kind": "assistant_text"}]}, {"messageId": "2", "toolCallId": "c"}]),
        );
        let envelope = envelope(snapshot);
        assert_eq!(ledger.messages_for(&envelope, Audience::Internal), None);
        let seen = ledger.messages_for(&envelope, Audience::User).unwrap();
        assert_eq!(seen.draft.payload["messages"], json!([{"messageId": "1", "parts": [{"kind": "assistant_text"}]}]));
    }
}
