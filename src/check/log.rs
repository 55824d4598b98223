//! The log under check: its envelopes in file order, and the patches that do not apply.

use super::CheckOptions;
use crate::log::LogId;
use crate::model::id::IdError;
use crate::model::{Audience, EventType, Ids, MemberRef, RunId, Sequence, SessionId, schema};
use crate::projection::View;
use crate::projection::envelope_view::EnvelopeView;
use crate::source::kind_of;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// One envelope.
#[derive(Debug)]
pub struct Entry {
    pub sequence: u64,
    pub event_type: EventType,
    /// The projection's view of the envelope, without the malformed members.
    pub view: EnvelopeView,
    /// The envelope as written, plus ids that the producer left in the payload.
    pub envelope: Map<String, Value>,
    /// The problems of the envelope's own members, one sentence each.
    pub faults: Vec<String>,
}

impl Entry {
    /// Parses one line.
    ///
    /// # Errors
    /// The reason why the line is not an envelope, and the expected form.
    fn read(line: &[u8], required: &[String]) -> Result<Self, String> {
        let expected = "each line of an export is an envelope; to check a runtime's own facts, pass --source NAME";
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
        let mut valid = map.clone();
        valid.retain(|member, value| fault(member, value).is_none());
        let text = serde_json::to_vec(&valid).expect("a JSON object serializes");
        let view = EnvelopeView::parse(Sequence(sequence), &text).expect("every remaining member is valid");
        // Some producers send the ids only in the payload.
        for (member, value) in view.payload.open().iter().filter(|(member, _)| Ids::MEMBERS.contains(&member.as_str())) {
            map.entry(member.clone()).or_insert_with(|| value.clone());
        }
        Ok(Self { sequence, event_type, view, envelope: map, faults })
    }

    /// Returns a payload member unless it is null or empty.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<MemberRef<'_>> {
        self.view.get(member).filter(|value| match value {
            MemberRef::Text(text) => !text.is_empty(),
            MemberRef::Value(Value::Array(items)) => !items.is_empty(),
            MemberRef::Value(Value::Object(map)) => !map.is_empty(),
            _ => true,
        })
    }

    /// Returns the payload as written.
    pub fn payload(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.envelope.get("payload").and_then(Value::as_object).into_iter().flatten()
    }

    /// Returns a payload member that is a non-empty string.
    #[must_use]
    pub fn payload_text(&self, member: &str) -> Option<&str> {
        self.get(member).and_then(MemberRef::text)
    }

    /// Returns a member of the envelope itself that is a non-empty string: a dimension or an id.
    #[must_use]
    pub fn envelope_text(&self, member: &str) -> Option<&str> {
        self.envelope.get(member).and_then(Value::as_str).filter(|word| !word.is_empty())
    }

    /// Returns whether the fact has this id or payload member; `refs` means any reference.
    #[must_use]
    pub fn has(&self, member: &str) -> bool {
        match member {
            "refs" => self.view.refs.as_ref().is_some_and(|refs| !refs.is_null()),
            id if Ids::MEMBERS.contains(&id) => self.envelope_text(id).is_some(),
            member => self.get(member).is_some(),
        }
    }

    /// Returns the groups of which the fact has no member.
    #[must_use]
    pub fn missing(&self, groups: &[&[&str]]) -> Vec<String> {
        groups.iter().filter(|group| !group.iter().any(|member| self.has(member))).map(|group| group.join(" or ")).collect()
    }

    /// Returns the audience; `None` for an unknown name.
    #[must_use]
    pub fn audience(&self) -> Option<Audience> {
        self.envelope_text("audience").and_then(Audience::parse)
    }

    /// Returns whether the event type begins with this prefix: `tool.`, `artifact.` …
    #[must_use]
    pub fn is_in_family(&self, family: &str) -> bool {
        self.event_type.as_str().starts_with(family)
    }

    /// Returns whether the entry is a diagnostic of one of these kinds.
    ///
    /// The server logs these in place of facts that it cannot map or apply.
    #[must_use]
    pub fn is_server_diagnostic(&self, kinds: &[&str]) -> bool {
        self.event_type == EventType::DiagnosticChanged && self.payload_text("kind").is_some_and(|kind| kinds.contains(&kind))
    }
}

/// Returns the problems of the envelope's own members.
fn faults(map: &Map<String, Value>, required: &[String]) -> Vec<String> {
    let missing = required.iter().filter(|member| map.get(*member).is_none_or(Value::is_null));
    let missing = missing.map(|member| format!("{member} is missing"));
    missing.chain(map.iter().filter_map(|(member, value)| fault(member, value))).collect()
}

/// Returns the problem of one member; `None` for correct members and for those outside the schema.
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
    Some(format!("{member} is {}; it must be {expected}", kind_of(value)))
}

/// A line that is not an envelope.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InvalidLine {
    /// The line number, from 1.
    pub line: u64,
    pub reason: String,
}

/// A parsed log.
#[derive(Debug)]
pub struct CheckedLog {
    pub entries: Vec<Entry>,
    pub options: CheckOptions,
    /// The patches that the projection could not apply: the sequence and the diagnostic.
    pub failed_patches: Vec<(u64, Value)>,
}

impl CheckedLog {
    /// Parses a log with one envelope per line; skips blank lines.
    ///
    /// # Errors
    /// The first line that is not an envelope.
    pub fn read<'l>(lines: impl IntoIterator<Item = &'l [u8]>, options: CheckOptions) -> Result<Self, InvalidLine> {
        let schema = schema::event();
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let required: Vec<String> = required.collect();
        let mut entries = Vec::new();
        for (line, text) in (1..).zip(lines) {
            if !text.iter().all(u8::is_ascii_whitespace) {
                entries.push(Entry::read(text, &required).map_err(|reason| InvalidLine { line, reason })?);
            }
        }
        let mut log = Self { entries, options, failed_patches: Vec::new() };
        log.failed_patches = log.find_failed_patches();
        Ok(log)
    }

    /// Returns the id of the run; `None` for a session's own log and for an empty log.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| entry.envelope_text("runId"))
    }

    /// Folds the log for its audience and returns the patches that do not apply.
    fn find_failed_patches(&self) -> Vec<(u64, Value)> {
        let run = self.run().and_then(|id| RunId::new(id).ok()).map(LogId::Run);
        let session =
            || self.entries.iter().find_map(|entry| SessionId::new(entry.envelope_text("sessionId")?).ok()).map(LogId::Session);
        let Some(id) = run.or_else(session) else { return Vec::new() };
        let mut projection = View::new(&id, self.options.audience);
        let mut failed_patches = Vec::new();
        for entry in &self.entries {
            // The fold accepts each envelope once, in order. Rule `sequence-increasing` reports the others.
            if Sequence(entry.sequence) <= projection.through {
                continue;
            }
            let folded = projection.fold_envelope(&entry.view);
            for change in &folded.changes {
                let activity = projection.changed_activity(change);
                let last = activity.content.get("entries").and_then(Value::as_array).and_then(|entries| entries.last());
                let is_failure =
                    |diagnostic: &&Value| &*activity.kind == "diagnostics" && diagnostic["kind"] == "patch_not_applied";
                if let Some(diagnostic) = last.filter(is_failure) {
                    failed_patches.push((entry.sequence, diagnostic.clone()));
                }
            }
        }
        failed_patches
    }
}
