//! Lifecycles in a log, from start to end: tool calls, message parts, actions, compactions.

use super::log::{CheckedLog, Entry};
use crate::model::{EventType, MemberRef};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// One tool call, action or compaction. A subject that starts again has another lifecycle.
#[derive(Debug)]
pub struct Lifecycle<'l> {
    pub id: String,
    /// The name of the tool, if an envelope gives it.
    pub name: Option<&'l str>,
    pub first_entry: &'l Entry,
    /// Whether the log has the start event. Without it, the first entry is an update or the end.
    pub has_start: bool,
    pub end: Option<&'l Entry>,
    /// The end of the run, if it came while this was open.
    pub run_end: Option<&'l Entry>,
    /// Updates after the end.
    pub late: Vec<&'l Entry>,
    /// Further ends after the first.
    pub repeated_ends: Vec<&'l Entry>,
}

impl<'l> Lifecycle<'l> {
    fn new(id: String, first_entry: &'l Entry, has_start: bool) -> Self {
        let name = first_entry.payload_text("toolName");
        Self { id, name, first_entry, has_start, end: None, run_end: None, late: Vec::new(), repeated_ends: Vec::new() }
    }

    /// Returns the id and name, such as `call_1 (rm)`.
    pub fn label(&self) -> String {
        self.name.map_or_else(|| self.id.clone(), |name| format!("{} ({name})", self.id))
    }

    /// Describes at which point it was still open.
    pub fn describe_open(&self) -> String {
        match self.run_end {
            Some(end) => format!("still open when the run ends with {} at sequence {}", end.event_type, end.sequence),
            None => "still open at the end of the log".into(),
        }
    }
}

/// Collects the lifecycles of one kind while the log is read.
#[derive(Default)]
struct Lifecycles<'l> {
    all: Vec<Lifecycle<'l>>,
    /// The index of the newest lifecycle of each id.
    newest: HashMap<String, usize>,
}

impl<'l> Lifecycles<'l> {
    fn newest(&mut self, id: &str) -> Option<&mut Lifecycle<'l>> {
        self.newest.get(id).map(|at| &mut self.all[*at])
    }

    fn begin(&mut self, id: &str, entry: &'l Entry, has_start: bool) -> &mut Lifecycle<'l> {
        self.newest.insert(id.to_owned(), self.all.len());
        self.all.push(Lifecycle::new(id.to_owned(), entry, has_start));
        self.all.last_mut().expect("the list has the new lifecycle")
    }

    /// Records a start event. It begins another lifecycle if the newest has ended or already has a start.
    fn start(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(lifecycle) if lifecycle.end.is_none() && !lifecycle.has_start => {
                lifecycle.has_start = true;
                lifecycle.name = entry.payload_text("toolName").or(lifecycle.name);
            }
            _ => drop(self.begin(id, entry, true)),
        }
    }

    /// Records an update.
    fn update(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(lifecycle) if lifecycle.end.is_some() => lifecycle.late.push(entry),
            Some(_) => {}
            None => drop(self.begin(id, entry, false)),
        }
    }

    fn end(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(lifecycle) if lifecycle.end.is_some() => lifecycle.repeated_ends.push(entry),
            Some(lifecycle) => lifecycle.end = Some(entry),
            None => self.begin(id, entry, false).end = Some(entry),
        }
    }

    /// Marks every open lifecycle with the end of the run.
    fn end_run(&mut self, entry: &'l Entry) {
        for lifecycle in self.all.iter_mut().filter(|lifecycle| lifecycle.end.is_none() && lifecycle.run_end.is_none()) {
            lifecycle.run_end = Some(entry);
        }
    }
}

/// Returns whether the entry is a source's custom activity rather than progress of a call.
pub fn is_custom(entry: &Entry) -> bool {
    entry.payload_text("activityType").is_some_and(|kind| kind != "tool-call-progress")
}

/// Returns the lifecycles of tool calls.
pub fn calls(log: &CheckedLog) -> Vec<Lifecycle<'_>> {
    let mut lifecycles = Lifecycles::default();
    for entry in &log.entries {
        let id = entry.envelope_text("toolCallId");
        match (&entry.event_type, id) {
            (EventType::ToolStarted, Some(id)) => lifecycles.start(id, entry),
            (EventType::ToolArgs | EventType::ToolOutputDelta, Some(id)) => lifecycles.update(id, entry),
            (EventType::ToolProgress, Some(id)) if !is_custom(entry) => lifecycles.update(id, entry),
            (EventType::ToolResult | EventType::ToolFailed, Some(id)) => lifecycles.end(id, entry),
            (EventType::RunFinished | EventType::RunFailed, _) => lifecycles.end_run(entry),
            _ => {}
        }
    }
    lifecycles.all
}

/// Returns the lifecycles of actions.
pub fn actions(log: &CheckedLog) -> Vec<Lifecycle<'_>> {
    let mut lifecycles = Lifecycles::default();
    for entry in &log.entries {
        match (&entry.event_type, entry.envelope_text("actionId")) {
            // A repeated request before the resolution belongs to the same action.
            (EventType::ActionRequired, Some(id)) if lifecycles.newest(id).is_none_or(|lifecycle| lifecycle.end.is_some()) => {
                lifecycles.begin(id, entry, true);
            }
            (EventType::ActionResolved, Some(id)) => lifecycles.end(id, entry),
            (EventType::RunFinished | EventType::RunFailed, _) => lifecycles.end_run(entry),
            _ => {}
        }
    }
    lifecycles.all
}

/// Returns the lifecycles of context compactions.
pub fn compactions(log: &CheckedLog) -> Vec<Lifecycle<'_>> {
    let mut lifecycles = Lifecycles::default();
    let mut own_agent = None;
    for entry in &log.entries {
        if entry.event_type.begins_run(&entry.view.phase) {
            own_agent = own_agent.or_else(|| entry.envelope_text("agentId"));
        }
        let teammate = || entry.envelope_text("agentId").filter(|agent| own_agent != Some(agent));
        let id =
            entry.payload_text("compactionId").or_else(|| entry.payload_text("id")).or_else(teammate).unwrap_or("compaction");
        match entry.event_type {
            EventType::ContextCompactionStarted => lifecycles.start(id, entry),
            EventType::ContextCompactionCompleted => lifecycles.end(id, entry),
            EventType::RunFinished | EventType::RunFailed => lifecycles.end_run(entry),
            _ => {}
        }
    }
    lifecycles.all
}

/// The kind of stream that a message part belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    Text,
    Reasoning,
    Plan,
}

impl Channel {
    /// Returns the channel of an event type, and whether the event type ends the stream.
    pub const fn of(event_type: &EventType) -> Option<(Self, bool)> {
        Some(match event_type {
            EventType::TextDelta => (Self::Text, false),
            EventType::TextFinal => (Self::Text, true),
            EventType::ReasoningDelta => (Self::Reasoning, false),
            EventType::ReasoningSummary => (Self::Reasoning, true),
            EventType::PlanDelta => (Self::Plan, false),
            EventType::PlanFinal => (Self::Plan, true),
            _ => return None,
        })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Plan => "plan",
        }
    }
}

/// Identifies one stream: the channel, the agent and the message. Each teammate has its own messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey<'l> {
    pub channel: Channel,
    pub agent: Option<&'l str>,
    pub message: &'l str,
}

impl fmt::Display for StreamKey<'_> {
    /// `agent/message`, or the message alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.agent.map_or(Ok(()), |agent| write!(f, "{agent}/"))?;
        f.write_str(self.message)
    }
}

/// A part of a message with its streamed text.
#[derive(Debug)]
pub struct Part<'l> {
    pub key: StreamKey<'l>,
    pub name: Option<&'l str>,
    /// The streamed text; empty for a part that arrived as a whole.
    pub text: String,
    pub last: &'l Entry,
    pub end: Option<&'l Entry>,
    /// The end of the run, if it came while the part was open.
    pub run_end: Option<&'l Entry>,
}

impl Part<'_> {
    /// Returns the message and the part, such as `m/p`.
    pub fn id(&self) -> String {
        self.name.map_or_else(|| self.key.to_string(), |part| format!("{}/{part}", self.key))
    }
}

/// A final event with a text, and the streamed text of the parts that it ends.
#[derive(Debug)]
pub struct Final<'l> {
    pub key: StreamKey<'l>,
    pub entry: &'l Entry,
    pub streamed: String,
}

/// The parts of all messages, their final events, and the chunks after those.
#[derive(Debug, Default)]
pub struct Streams<'l> {
    pub parts: Vec<Part<'l>>,
    pub finals: Vec<Final<'l>>,
    pub late: Vec<&'l Entry>,
    /// The indexes in `parts` per stream, for streams that no snapshot has repaired.
    part_indexes: HashMap<StreamKey<'l>, Vec<usize>>,
    /// The streams that a final event without a part id ended.
    sealed: HashSet<StreamKey<'l>>,
}

/// Collects the message parts of a log.
pub fn streams(log: &CheckedLog) -> Streams<'_> {
    let mut streams = Streams::default();
    for entry in &log.entries {
        if let Some((channel, is_final)) = Channel::of(&entry.event_type) {
            let Some(message) = entry.envelope_text("messageId") else { continue };
            let of = StreamKey { channel, agent: entry.envelope_text("agentId"), message };
            if is_final { streams.end(of, entry) } else { streams.chunk(of, entry) }
        } else if entry.view.ends_run() {
            let open = streams.parts.iter_mut().filter(|part| part.end.is_none() && part.run_end.is_none());
            open.for_each(|part| part.run_end = Some(entry));
        } else if entry.event_type == EventType::MessagesSnapshot && entry.payload_text("mode") == Some("repair") {
            streams.repair(entry);
        }
    }
    streams
}

impl<'l> Streams<'l> {
    fn chunk(&mut self, key: StreamKey<'l>, entry: &'l Entry) {
        let name = entry.envelope_text("partId");
        let text = entry.view.text("text").unwrap_or_default();
        let part_indexes = self.part_indexes.entry(key).or_default();
        match part_indexes.iter().copied().find(|at| self.parts[*at].name == name) {
            Some(at) if self.parts[at].end.is_some() => self.late.push(entry),
            Some(at) => {
                self.parts[at].text.push_str(text);
                self.parts[at].last = entry;
            }
            None if self.sealed.contains(&key) => self.late.push(entry),
            None => {
                part_indexes.push(self.parts.len());
                self.parts.push(Part { key, name, text: text.to_owned(), last: entry, end: None, run_end: None });
            }
        }
    }

    /// Records a final event. It ends the part that it names, or all parts of the message.
    fn end(&mut self, key: StreamKey<'l>, entry: &'l Entry) {
        let name = entry.envelope_text("partId");
        let (mut streamed, mut is_known) = (String::new(), false);
        let part_indexes = self.part_indexes.entry(key).or_default();
        for at in part_indexes.iter() {
            let part = &mut self.parts[*at];
            if name.is_none() || part.name == name {
                is_known = true;
                streamed.push_str(&part.text);
                part.end = part.end.or(Some(entry));
            }
        }
        if !is_known {
            part_indexes.push(self.parts.len());
            self.parts.push(Part { key, name, text: String::new(), last: entry, end: Some(entry), run_end: None });
        }
        if name.is_none() {
            self.sealed.insert(key);
        }
        if entry.view.text("text").is_some() && !entry.view.is_withheld() {
            self.finals.push(Final { key, entry, streamed });
        }
    }

    /// Records a repair snapshot: it replaces the messages that it contains, so their streams begin anew.
    fn repair(&mut self, entry: &'l Entry) {
        let messages = entry.get("messages").and_then(MemberRef::list).into_iter().flatten();
        let ids: Vec<&str> = messages.filter_map(|message| message.get("messageId").and_then(Value::as_str)).collect();
        for (_, part_indexes) in self.part_indexes.extract_if(|of, _| ids.contains(&of.message)) {
            for at in part_indexes {
                self.parts[at].end = self.parts[at].end.or(Some(entry));
            }
        }
        self.sealed.retain(|of| !ids.contains(&of.message));
    }
}
