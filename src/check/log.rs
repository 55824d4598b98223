//! A log as it is checked: envelopes in the order in which they stand, and what they come to on a screen.

use super::Reading;
use crate::log::LogId;
use crate::model::id::IdError;
use crate::model::{Audience, EventType, Ids, RunId, Sequence, SessionId, schema};
use crate::projection::View;
use crate::projection::seen::EnvelopeView;
use crate::source::kind_of;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// One envelope.
#[derive(Debug)]
pub struct Entry {
    pub sequence: u64,
    pub event_type: EventType,
    /// As the projection reads it: without the members that are not what they must be.
    pub seen: EnvelopeView,
    /// As it stands.
    pub map: Map<String, Value>,
    /// What is wrong with its own members, a sentence each.
    pub faults: Vec<String>,
}

impl Entry {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no envelope, and what would be one.
    fn read(line: &[u8], required: &[String]) -> Result<Self, String> {
        let expected = "a line of an export is an envelope; a runtime's own facts are checked with --source NAME";
        let mut map = match serde_json::from_slice(line) {
            Ok(Value::Object(map)) => map,
            Ok(other) => return Err(format!("this is {}, not an object; {expected}", kind_of(&other))),
            Err(error) => return Err(format!("this is not JSON: {error}; {expected}")),
        };
        let Some(event_type) = map.get("type").and_then(Value::as_str).map(EventType::from) else {
            return Err(format!("this object has no \"type\"; {expected}"));
        };
        let Some(sequence) = map.get("sequence").and_then(Value::as_u64).filter(|sequence| *sequence > 0) else {
            let found = map.get("sequence").map_or_else(|| "none".to_owned(), Value::to_string);
            return Err(format!("the envelope's \"sequence\" is {found}, not a whole number from 1; {expected}"));
        };
        let faults = faults(&map, required);
        let mut sound = map.clone();
        sound.retain(|member, value| fault(member, value).is_none());
        let text = serde_json::to_vec(&sound).expect("what was JSON is JSON");
        let seen = EnvelopeView::parse(Sequence(sequence), &text).expect("what is at fault was left out");
        // Where a lazy writer left the ids to the payload they are there.
        for (member, value) in seen.payload.iter().filter(|(member, _)| Ids::MEMBERS.contains(&member.as_str())) {
            map.entry(member.clone()).or_insert_with(|| value.clone());
        }
        Ok(Self { sequence, event_type, seen, map, faults })
    }

    /// A member of the fact that says something: neither null nor empty.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<&Value> {
        self.seen.get(member).filter(|value| match value {
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        })
    }

    /// The same, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.get(member).and_then(Value::as_str)
    }

    /// A member of the envelope itself that is text: a dimension, an id.
    #[must_use]
    pub fn word(&self, member: &str) -> Option<&str> {
        self.map.get(member).and_then(Value::as_str).filter(|word| !word.is_empty())
    }

    /// Whether the fact has this id, this member, or any references.
    #[must_use]
    pub fn has(&self, member: &str) -> bool {
        match member {
            "refs" => self.seen.refs.as_ref().is_some_and(|refs| !refs.is_null()),
            id if Ids::MEMBERS.contains(&id) => self.word(id).is_some(),
            member => self.get(member).is_some(),
        }
    }

    /// What the fact lacks of these, one of each group.
    #[must_use]
    pub fn lacks(&self, groups: &[&[&str]]) -> Vec<String> {
        groups.iter().filter(|group| !group.iter().any(|member| self.has(member))).map(|group| group.join(" or ")).collect()
    }

    /// Who may see it; `None` for a name that nobody knows.
    #[must_use]
    pub fn audience(&self) -> Option<Audience> {
        self.word("audience").and_then(Audience::parse)
    }

    /// Whether its family begins so: `tool.`, `artifact.` …
    #[must_use]
    pub fn is_of(&self, family: &str) -> bool {
        self.event_type.as_str().starts_with(family)
    }

    /// Whether it is what the server logged in place of what it could not take, as one of these kinds.
    #[must_use]
    pub fn notes(&self, kinds: &[&str]) -> bool {
        self.event_type == EventType::DiagnosticChanged && self.text("kind").is_some_and(|kind| kinds.contains(&kind))
    }
}

/// What is wrong with the envelope's own members.
fn faults(map: &Map<String, Value>, required: &[String]) -> Vec<String> {
    let missing = required.iter().filter(|member| map.get(*member).is_none_or(Value::is_null));
    let missing = missing.map(|member| format!("{member} is missing"));
    missing.chain(map.iter().filter_map(|(member, value)| fault(member, value))).collect()
}

/// What is wrong with this member; nothing for those that are not the envelope's own.
fn fault(member: &str, value: &Value) -> Option<String> {
    let is_time = |text: &str| text.parse::<Timestamp>().is_ok();
    let expected = match (member, value) {
        (member, Value::String(id)) if Ids::MEMBERS.contains(&member) => {
            return RunId::new(id).err().map(|error: IdError| format!("{member}: {error}"));
        }
        (member, _) if Ids::MEMBERS.contains(&member) => "text",
        ("timestamp" | "receivedAt", Value::String(text)) if is_time(text) => return None,
        ("timestamp" | "receivedAt", _) => "a time such as 2026-01-02T03:04:05Z",
        ("payload", Value::Object(_)) | ("refs", Value::Object(_) | Value::Array(_)) => return None,
        ("payload", _) => "an object",
        ("refs", _) => "a list or an object",
        (
            "eventId" | "owner" | "scope" | "phase" | "surface" | "persistence" | "control" | "topology" | "audience"
            | "startAudience",
            value,
        ) if !value.is_string() => "text",
        _ => return None,
    };
    Some(format!("{member} is {}, and must be {expected}", kind_of(value)))
}

/// A line that is no envelope.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    /// From 1.
    pub line: u64,
    pub why: String,
}

/// What is checked.
#[derive(Debug)]
pub struct Log {
    pub entries: Vec<Entry>,
    pub reading: Reading,
    /// What the projection was told and could not show: the sequence, and the note.
    pub notes: Vec<(u64, Value)>,
}

impl Log {
    /// Reads a log, an envelope a line; blank lines are passed over.
    ///
    /// # Errors
    /// The first line that is no envelope.
    pub fn read<'l>(lines: impl IntoIterator<Item = &'l [u8]>, reading: Reading) -> Result<Self, BadLine> {
        let schema = schema::event();
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let required: Vec<String> = required.collect();
        let mut entries = Vec::new();
        for (line, text) in (1..).zip(lines) {
            if !text.iter().all(u8::is_ascii_whitespace) {
                entries.push(Entry::read(text, &required).map_err(|why| BadLine { line, why })?);
            }
        }
        let mut log = Self { entries, reading, notes: Vec::new() };
        log.notes = log.unshown();
        Ok(log)
    }

    /// The run that this is the log of; `None` for a session's own log, and for an empty one.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| entry.word("runId"))
    }

    /// Folds the log as whoever it was written for sees it, and gives what the fold could not show.
    fn unshown(&self) -> Vec<(u64, Value)> {
        let run = self.run().and_then(|id| RunId::new(id).ok()).map(LogId::Run);
        let session = || self.entries.iter().find_map(|entry| SessionId::new(entry.word("sessionId")?).ok()).map(LogId::Session);
        let Some(id) = run.or_else(session) else { return Vec::new() };
        let mut view = View::new(&id, self.reading.audience);
        let mut notes = Vec::new();
        for entry in &self.entries {
            // What stands out of order is told by a rule of its own; a fold takes each envelope once, in order.
            if Sequence(entry.sequence) <= view.through {
                continue;
            }
            let folded = view.fold_envelope(&entry.seen);
            for change in &folded.changes {
                let activity = view.changed_activity(change);
                let last = activity.content.get("entries").and_then(Value::as_array).and_then(|entries| entries.last());
                if let Some(note) = last.filter(|note| &*activity.kind == "diagnostics" && note["kind"] == "patch_not_applied") {
                    notes.push((entry.sequence, note.clone()));
                }
            }
        }
        notes
    }
}
