//! The things of a log, from their first envelope to their end: tool calls, parts of messages, actions, compactions.

use super::log::{Entry, Log};
use crate::model::EventType;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// One thing. One that starts again is another.
#[derive(Debug)]
pub struct Life<'l> {
    pub id: String,
    /// What it is called, where it says so.
    pub name: Option<&'l str>,
    pub begun: &'l Entry,
    /// Whether its beginning was said, not only shown by something that came of it.
    pub is_announced: bool,
    pub end: Option<&'l Entry>,
    /// The end of the run that came while it was open.
    pub cut: Option<&'l Entry>,
    /// What came after its end as if it were still open.
    pub late: Vec<&'l Entry>,
    /// Further ends.
    pub again: Vec<&'l Entry>,
}

impl<'l> Life<'l> {
    fn new(id: String, begun: &'l Entry, is_announced: bool) -> Self {
        let name = begun.text("toolName");
        Self { id, name, begun, is_announced, end: None, cut: None, late: Vec::new(), again: Vec::new() }
    }

    /// `call_1 (rm)`
    pub fn called(&self) -> String {
        self.name.map_or_else(|| self.id.clone(), |name| format!("{} ({name})", self.id))
    }

    /// Where it was left open.
    pub fn left(&self) -> String {
        match self.cut {
            Some(end) => format!("still open when the run ends with {} at sequence {}", end.event_type, end.sequence),
            None => "still open where the log ends".into(),
        }
    }
}

/// The lives of one kind of thing, while the log is read.
#[derive(Default)]
struct Lives<'l> {
    all: Vec<Life<'l>>,
    /// The newest of each id.
    newest: HashMap<String, usize>,
}

impl<'l> Lives<'l> {
    fn newest(&mut self, id: &str) -> Option<&mut Life<'l>> {
        self.newest.get(id).map(|at| &mut self.all[*at])
    }

    fn begin(&mut self, id: &str, entry: &'l Entry, is_announced: bool) -> &mut Life<'l> {
        self.newest.insert(id.to_owned(), self.all.len());
        self.all.push(Life::new(id.to_owned(), entry, is_announced));
        self.all.last_mut().expect("just pushed")
    }

    /// Its beginning is said: of one that has ended, or was begun so before, it is another.
    fn start(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(life) if life.end.is_none() && !life.is_announced => {
                life.is_announced = true;
                life.name = entry.text("toolName").or(life.name);
            }
            _ => drop(self.begin(id, entry, true)),
        }
    }

    /// Something comes of it.
    fn go_on(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(life) if life.end.is_some() => life.late.push(entry),
            Some(_) => {}
            None => drop(self.begin(id, entry, false)),
        }
    }

    fn end(&mut self, id: &str, entry: &'l Entry) {
        match self.newest(id) {
            Some(life) if life.end.is_some() => life.again.push(entry),
            Some(life) => life.end = Some(entry),
            None => self.begin(id, entry, false).end = Some(entry),
        }
    }

    /// The run ends: what is open is cut.
    fn cut(&mut self, entry: &'l Entry) {
        for life in self.all.iter_mut().filter(|life| life.end.is_none() && life.cut.is_none()) {
            life.cut = Some(entry);
        }
    }
}

/// Whether the entry is an activity of a source's own making, and no report of a call's progress.
pub fn is_custom(entry: &Entry) -> bool {
    entry.text("activityType").is_some_and(|kind| kind != "tool-call-progress")
}

/// Tool calls.
pub fn calls(log: &Log) -> Vec<Life<'_>> {
    let mut lives = Lives::default();
    for entry in &log.entries {
        let id = entry.word("toolCallId");
        match (&entry.event_type, id) {
            (EventType::ToolStarted, Some(id)) => lives.start(id, entry),
            (EventType::ToolArgs | EventType::ToolOutputDelta, Some(id)) => lives.go_on(id, entry),
            (EventType::ToolProgress, Some(id)) if !is_custom(entry) => lives.go_on(id, entry),
            (EventType::ToolResult | EventType::ToolFailed, Some(id)) => lives.end(id, entry),
            (EventType::RunFinished | EventType::RunFailed, _) => lives.cut(entry),
            _ => {}
        }
    }
    lives.all
}

/// What waits for somebody's decision.
pub fn actions(log: &Log) -> Vec<Life<'_>> {
    let mut lives = Lives::default();
    for entry in &log.entries {
        match (&entry.event_type, entry.word("actionId")) {
            // Asked again before an answer it is still the same question.
            (EventType::ActionRequired, Some(id)) if lives.newest(id).is_none_or(|life| life.end.is_some()) => {
                lives.begin(id, entry, true);
            }
            (EventType::ActionResolved, Some(id)) => lives.end(id, entry),
            (EventType::RunFinished | EventType::RunFailed, _) => lives.cut(entry),
            _ => {}
        }
    }
    lives.all
}

/// Compactions of the context.
pub fn compactions(log: &Log) -> Vec<Life<'_>> {
    let mut lives = Lives::default();
    let mut own_agent = None;
    for entry in &log.entries {
        if entry.event_type == EventType::RunStarted {
            own_agent = own_agent.or_else(|| entry.word("agentId"));
        }
        let teammate = || entry.word("agentId").filter(|agent| own_agent != Some(agent));
        let id = entry.text("compactionId").or_else(|| entry.text("id")).or_else(teammate).unwrap_or("compaction");
        match entry.event_type {
            EventType::ContextCompactionStarted => lives.start(id, entry),
            EventType::ContextCompactionCompleted => lives.end(id, entry),
            EventType::RunFinished | EventType::RunFailed => lives.cut(entry),
            _ => {}
        }
    }
    lives.all
}

/// What streams as parts of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    Text,
    Reasoning,
    Plan,
}

impl Channel {
    /// The channel of a class, and whether the class ends it.
    pub const fn of(class: &EventType) -> Option<(Self, bool)> {
        Some(match class {
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

/// What of one message streams through one channel. A teammate's messages are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Of<'l> {
    pub channel: Channel,
    pub agent: Option<&'l str>,
    pub message: &'l str,
}

impl fmt::Display for Of<'_> {
    /// `agent/message`, or the message alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.agent.map_or(Ok(()), |agent| write!(f, "{agent}/"))?;
        f.write_str(self.message)
    }
}

/// A part of a message, and what was streamed of it.
#[derive(Debug)]
pub struct Part<'l> {
    pub of: Of<'l>,
    pub name: Option<&'l str>,
    /// What was streamed; nothing, of a part that came as a whole.
    pub text: String,
    pub last: &'l Entry,
    pub end: Option<&'l Entry>,
    /// The end of the run that came while it was open.
    pub cut: Option<&'l Entry>,
}

impl Part<'_> {
    /// `m/p`
    pub fn id(&self) -> String {
        self.name.map_or_else(|| self.of.to_string(), |part| format!("{}/{part}", self.of))
    }
}

/// A final with a text, and what had been streamed of what it ends.
#[derive(Debug)]
pub struct Final<'l> {
    pub of: Of<'l>,
    pub entry: &'l Entry,
    pub streamed: String,
}

/// The parts of all messages, the finals that repeat them, and chunks that came after those.
#[derive(Debug, Default)]
pub struct Speech<'l> {
    pub parts: Vec<Part<'l>>,
    pub finals: Vec<Final<'l>>,
    pub late: Vec<&'l Entry>,
    /// Where the parts of a message are, as far as it was not repaired since.
    places: HashMap<Of<'l>, Vec<usize>>,
    /// Messages that were ended as a whole.
    sealed: HashSet<Of<'l>>,
}

/// Reads what was said.
pub fn speech(log: &Log) -> Speech<'_> {
    let mut speech = Speech::default();
    for entry in &log.entries {
        if let Some((channel, is_final)) = Channel::of(&entry.event_type) {
            let Some(message) = entry.word("messageId") else { continue };
            let of = Of { channel, agent: entry.word("agentId"), message };
            if is_final { speech.end(of, entry) } else { speech.chunk(of, entry) }
        } else if entry.seen.ends_run() {
            let open = speech.parts.iter_mut().filter(|part| part.end.is_none() && part.cut.is_none());
            open.for_each(|part| part.cut = Some(entry));
        } else if entry.event_type == EventType::MessagesSnapshot && entry.text("mode") == Some("repair") {
            speech.repair(entry);
        }
    }
    speech
}

impl<'l> Speech<'l> {
    fn chunk(&mut self, of: Of<'l>, entry: &'l Entry) {
        let name = entry.word("partId");
        let text = entry.seen.text("text").unwrap_or_default();
        let places = self.places.entry(of).or_default();
        match places.iter().copied().find(|at| self.parts[*at].name == name) {
            Some(at) if self.parts[at].end.is_some() => self.late.push(entry),
            Some(at) => {
                self.parts[at].text.push_str(text);
                self.parts[at].last = entry;
            }
            None if self.sealed.contains(&of) => self.late.push(entry),
            None => {
                places.push(self.parts.len());
                self.parts.push(Part { of, name, text: text.to_owned(), last: entry, end: None, cut: None });
            }
        }
    }

    /// An end names its part, or ends all of the message.
    fn end(&mut self, of: Of<'l>, entry: &'l Entry) {
        let name = entry.word("partId");
        let (mut streamed, mut is_known) = (String::new(), false);
        let places = self.places.entry(of).or_default();
        for at in places.iter() {
            let part = &mut self.parts[*at];
            if name.is_none() || part.name == name {
                is_known = true;
                streamed.push_str(&part.text);
                part.end = part.end.or(Some(entry));
            }
        }
        if !is_known {
            places.push(self.parts.len());
            self.parts.push(Part { of, name, text: String::new(), last: entry, end: Some(entry), cut: None });
        }
        if name.is_none() {
            self.sealed.insert(of);
        }
        if entry.seen.text("text").is_some() && !entry.seen.is_withheld() {
            self.finals.push(Final { of, entry, streamed });
        }
    }

    /// What is repaired begins anew: nothing of it was streamed, and nothing of it is open.
    fn repair(&mut self, entry: &'l Entry) {
        let messages = entry.get("messages").and_then(Value::as_array).into_iter().flatten();
        let ids: Vec<&str> = messages.filter_map(|message| message.get("messageId").and_then(Value::as_str)).collect();
        for (_, places) in self.places.extract_if(|of, _| ids.contains(&of.message)) {
            for at in places {
                self.parts[at].end = self.parts[at].end.or(Some(entry));
            }
        }
        self.sealed.retain(|of| !ids.contains(&of.message));
    }
}
