//! Parts: the texts of a log that a search finds, each complete.
//!
//! | part | from | complete |
//! | --- | --- | --- |
//! | a message's text, of any author | `text.delta`, `text.final`, `messages.snapshot` | at its final text, or the end of the run |
//! | reasoning | `reasoning.delta`, `reasoning.summary` | the same |
//! | a question | `action.required`: title, message, reason, description | at once |
//! | a title | `session.updated`, `session.opened`, `run.started` | at once; it counts while it is the title |
//!
//! What tools got and gave is no part: it is long, and rarely what a person remembers. A text whose rest lies in a body
//! of its own is a part as far as its envelope has it.
//!
//! An audience may have another form of an envelope than the next one. So each part says which audiences it is for, and
//! each envelope is read once for all audiences that have the same bytes.

use crate::log::row::Row;
use crate::model::{Audience, Sequence};
use memchr::memmem::Finder;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// The text of an open part at which it becomes a part of its own, in bytes.
pub const TEXT_PART_BYTES_MAX: usize = 256 * 1024;
/// The last texts that a log remembers: a snapshot of messages repeats them.
const KNOWN_TEXTS_MAX: usize = 256;

/// The audiences that have a text: a bit for each.
pub type AudienceSet = u8;

/// The bit of one audience.
#[must_use]
pub const fn bit_of(audience: Audience) -> AudienceSet {
    1 << audience.index()
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartKind {
    Message,
    Reasoning,
    Question,
    Title,
    /// Why a run failed.
    Error,
}

impl PartKind {
    /// All kinds, by their numbers in the index.
    pub const ALL: [Self; 5] = [Self::Message, Self::Reasoning, Self::Question, Self::Title, Self::Error];
}

/// A complete text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPart {
    pub kind: PartKind,
    pub audiences: AudienceSet,
    /// The first and the last envelope that it is from.
    pub first: Sequence,
    pub last: Sequence,
    pub message: Option<Box<str>>,
    pub text: String,
}

/// A text that may still grow.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenPart {
    kind: PartKind,
    audiences: AudienceSet,
    first: u64,
    last: u64,
    message: Box<str>,
    part: Option<Box<str>>,
    text: String,
    /// How long it was when it was last given out, and when it was last looked at.
    given: usize,
    #[serde(skip)]
    seen: usize,
}

impl OpenPart {
    fn complete(self) -> TextPart {
        let Self { kind, audiences, first, last, message, text, .. } = self;
        TextPart { kind, audiences, first: Sequence(first), last: Sequence(last), message: Some(message), text }
    }
}

/// Reads the envelopes of one log, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PartReader {
    open: Vec<OpenPart>,
    /// Hashes of the last texts.
    #[serde(skip)]
    known: VecDeque<u64>,
}

/// Whether an envelope may change a part, by its first bytes: `{"type":"…`.
fn is_of_interest(view: &[u8]) -> bool {
    let Some(event_type) = view.strip_prefix(br#"{"type":""#) else { return false };
    [
        &b"text."[..],
        b"reasoning.",
        b"run.started",
        b"run.finished",
        b"run.failed",
        b"session.updated",
        b"session.opened",
        b"action.required",
        b"messages.snapshot",
    ]
    .iter()
    .any(|prefix| event_type.starts_with(prefix))
}

impl PartReader {
    /// Whether no part is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The bytes of open parts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.open.iter().map(|part| part.text.len() + size_of::<OpenPart>()).sum()
    }

    /// Whether a row may change a part.
    #[must_use]
    pub fn is_of_interest(row: &Row) -> bool {
        Audience::ALL.iter().any(|audience| row.view(*audience).is_some_and(is_of_interest))
    }

    /// Reads a row for all audiences.
    pub fn read(&mut self, row: &Row, out: &mut Vec<TextPart>) {
        let views = Audience::ALL.map(|audience| row.view(audience));
        for (at, view) in views.iter().enumerate() {
            let Some(view) = view.filter(|view| is_of_interest(view)) else { continue };
            let is_same = |other: &&[u8]| std::ptr::eq(*other, view);
            if views[..at].iter().flatten().any(is_same) {
                continue;
            }
            let sharing = views.iter().zip(Audience::ALL).filter(|(other, _)| other.as_ref().is_some_and(is_same));
            let audiences = sharing.fold(0, |set, (_, audience)| set | bit_of(audience));
            self.read_view(row.sequence(), view, audiences, out);
        }
    }

    /// Reads a row for one audience.
    pub fn read_for(&mut self, row: &Row, audience: Audience, out: &mut Vec<TextPart>) {
        if let Some(view) = row.view(audience).filter(|view| is_of_interest(view)) {
            self.read_view(row.sequence(), view, bit_of(audience), out);
        }
    }

    /// Gives out what is open as if it were complete. It stays open, and is given out again if it grows.
    ///
    /// `only_quiet`: only what has not grown since the last call.
    pub fn give_open(&mut self, only_quiet: bool, out: &mut Vec<TextPart>) {
        for part in &mut self.open {
            let length = part.text.len();
            if (std::mem::replace(&mut part.seen, length) == length || !only_quiet) && part.given < length {
                part.given = length;
                out.push(part.clone().complete());
            }
        }
    }

    fn read_view(&mut self, sequence: Sequence, view: &[u8], audiences: AudienceSet, out: &mut Vec<TextPart>) {
        // Checked as a whole, because the reader of JSON would check each of its strings alone.
        let Ok(view) = std::str::from_utf8(view) else { return };
        if let Some(PlainChunk { kind, message, part, text }) = PlainChunk::read(view) {
            return self.grow(kind, audiences, sequence, message, part, &text, out);
        }
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(view) else { return };
        let Envelope { event_type, message_id: Text(message_id), part_id: Text(part_id), payload, text, title } = envelope;
        let Payload { text: inner, withheld, title: inner_title, source_title, message, reason, description, messages, error } =
            payload;
        // A member at the envelope's top level wins.
        let text = text.0.or(inner.0).filter(|_| !withheld);
        let title = source_title.0.or(title.0).or(inner_title.0);
        let mut at_once = |kind, text: Cow<'_, str>, message: Option<Box<str>>| {
            if !text.trim().is_empty() {
                out.push(TextPart { kind, audiences, first: sequence, last: sequence, message, text: text.into_owned() });
            }
        };
        match &*event_type {
            "text.delta" | "reasoning.delta" => {
                if let (Some(message), Some(text)) = (message_id, text) {
                    self.grow(kind_of(&event_type), audiences, sequence, &message, part_id.as_deref(), &text, out);
                }
            }
            "text.final" | "reasoning.summary" => {
                if let Some(message) = message_id {
                    self.end(kind_of(&event_type), audiences, sequence, &message, part_id.as_deref(), text.as_deref(), out);
                }
            }
            "run.finished" | "run.failed" => {
                for part in std::mem::take(&mut self.open) {
                    self.give(part, out);
                }
                if let Some(text) = error.and_then(|error| error_text(error.get())).filter(|text| !text.trim().is_empty()) {
                    let (first, last) = (sequence, sequence);
                    out.push(TextPart { kind: PartKind::Error, audiences, first, last, message: None, text });
                }
            }
            "action.required" => {
                let all = [title, message.0, reason.0, description.0];
                let all: Vec<_> = all.iter().flatten().map(|text| &**text).collect();
                at_once(PartKind::Question, all.join("\n").into(), None);
            }
            "session.updated" | "session.opened" | "run.started" => {
                if let Some(title) = title {
                    at_once(PartKind::Title, title, None);
                }
            }
            "messages.snapshot" => {
                for SnapshotMessage { id, text } in messages.iter().flat_map(|messages| snapshot_messages(messages.get())) {
                    if !text.trim().is_empty() && self.is_new(PartKind::Message, audiences, &text) {
                        let (first, last) = (sequence, sequence);
                        out.push(TextPart { kind: PartKind::Message, audiences, first, last, message: Some(id), text });
                    }
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the members of one envelope")]
    fn grow(
        &mut self,
        kind: PartKind,
        audiences: AudienceSet,
        sequence: Sequence,
        message: &str,
        part: Option<&str>,
        text: &str,
        out: &mut Vec<TextPart>,
    ) {
        let is_it = |open: &OpenPart| {
            open.audiences == audiences && open.kind == kind && *open.message == *message && open.part.as_deref() == part
        };
        let at = self.open.iter().rposition(is_it).unwrap_or_else(|| {
            self.open.push(OpenPart {
                kind,
                audiences,
                first: sequence.0,
                last: sequence.0,
                message: message.into(),
                part: part.map(Into::into),
                text: String::new(),
                given: 0,
                seen: 0,
            });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.last = sequence.0;
        open.text.push_str(text);
        if open.text.len() > TEXT_PART_BYTES_MAX {
            let full = self.open.remove(at);
            self.give(full, out);
        }
    }

    /// Ends a part, or all parts of a message. `whole` is its final text, if the audience has one.
    #[expect(clippy::too_many_arguments, reason = "the members of one envelope")]
    fn end(
        &mut self,
        kind: PartKind,
        audiences: AudienceSet,
        sequence: Sequence,
        message: &str,
        part: Option<&str>,
        whole: Option<&str>,
        out: &mut Vec<TextPart>,
    ) {
        let ends = |open: &mut OpenPart| {
            let is_of = open.kind == kind && *open.message == *message && (part.is_none() || open.part.as_deref() == part);
            is_of && open.audiences & audiences != 0
        };
        let mut ended: Vec<_> = self.open.extract_if(.., ends).collect();
        let same = |open: &&OpenPart| open.audiences == audiences;
        let streamed: String = ended.iter().filter(same).map(|open| &*open.text).collect();
        // A runtime may repeat only the end of what it streamed, and trim it.
        let whole = whole.filter(|whole| !whole.trim().is_empty() && !streamed.trim_end().ends_with(whole.trim()));
        if let Some(whole) = whole {
            // The final text replaces what those that see it saw before.
            let first = ended.iter().filter(same).map(|open| open.first).min().unwrap_or(sequence.0);
            ended.retain(|open| open.audiences != audiences);
            ended.push(OpenPart {
                kind,
                audiences,
                first,
                last: sequence.0,
                message: message.into(),
                part: None,
                text: whole.to_owned(),
                given: 0,
                seen: 0,
            });
        }
        for mut part in ended {
            part.last = sequence.0;
            self.give(part, out);
        }
    }

    fn give(&mut self, part: OpenPart, out: &mut Vec<TextPart>) {
        if part.given < part.text.len() && !part.text.trim().is_empty() && self.is_new(part.kind, part.audiences, &part.text) {
            out.push(part.complete());
        }
    }

    fn is_new(&mut self, kind: PartKind, audiences: AudienceSet, text: &str) -> bool {
        let hash = xxh3_64(text.as_bytes()) ^ (u64::from(audiences) << 8 | kind as u64);
        if self.known.contains(&hash) {
            return false;
        }
        if self.known.len() == KNOWN_TEXTS_MAX {
            self.known.pop_front();
        }
        self.known.push_back(hash);
        true
    }
}

/// A chunk of a text that is all of its payload, as nearly all are.
struct PlainChunk<'e> {
    kind: PartKind,
    message: &'e str,
    part: Option<&'e str>,
    text: Cow<'e, str>,
}

impl<'e> PlainChunk<'e> {
    /// Reads the text alone of an envelope whose payload comes last and has nothing else. `None`: it has another form.
    ///
    /// Before the payload the writer has texts and numbers only, and a quote within a text is escaped. So a name with its
    /// quotes, found there, is that of a member.
    fn read(envelope: &'e str) -> Option<Self> {
        static PAYLOAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r#","payload":{"text":"#));
        static MESSAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r#","messageId":""#));
        static PART: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r#","partId":""#));
        let kind = match envelope.as_bytes().strip_prefix(br#"{"type":""#)? {
            rest if rest.starts_with(br#"text.delta""#) => PartKind::Message,
            rest if rest.starts_with(br#"reasoning.delta""#) => PartKind::Reasoning,
            _ => return None,
        };
        let (head, text) = envelope.split_at(PAYLOAD.find(envelope.as_bytes())?);
        let text = text[PAYLOAD.needle().len()..].strip_suffix("}}")?;
        let member = |name: &Finder<'_>| {
            let Some(at) = name.find(head.as_bytes()) else { return Some(None) };
            let (value, _) = head[at + name.needle().len()..].split_once('"')?;
            (!value.contains('\\')).then_some(Some(value))
        };
        let (message, part) = (member(&MESSAGE)??, member(&PART)?);
        let Text(text) = serde_json::from_str(text).ok()?;
        Some(Self { kind, message, part, text: text? })
    }
}

fn kind_of(event_type: &str) -> PartKind {
    if event_type.starts_with("reasoning") { PartKind::Reasoning } else { PartKind::Message }
}

/// The members of an envelope that make parts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'e> {
    #[serde(rename = "type", borrow)]
    event_type: Cow<'e, str>,
    #[serde(borrow, default)]
    message_id: Text<'e>,
    #[serde(borrow, default)]
    part_id: Text<'e>,
    #[serde(borrow, default)]
    payload: Payload<'e>,
    #[serde(borrow, default)]
    text: Text<'e>,
    #[serde(borrow, default)]
    title: Text<'e>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Payload<'e> {
    #[serde(borrow)]
    text: Text<'e>,
    withheld: bool,
    #[serde(borrow)]
    title: Text<'e>,
    #[serde(borrow)]
    source_title: Text<'e>,
    #[serde(borrow)]
    message: Text<'e>,
    #[serde(borrow)]
    reason: Text<'e>,
    #[serde(borrow)]
    description: Text<'e>,
    #[serde(borrow)]
    messages: Option<&'e RawValue>,
    #[serde(borrow)]
    error: Option<&'e RawValue>,
}

/// The text of an error: itself, or its message.
fn error_text(error: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Stated<'e> {
        #[serde(borrow, default)]
        message: Text<'e>,
    }
    let text = match error.starts_with('{') {
        true => serde_json::from_str::<Stated<'_>>(error).ok()?.message.0,
        false => serde_json::from_str::<Text<'_>>(error).ok()?.0,
    };
    text.map(Cow::into_owned)
}

/// A member that is a text, or something else, which counts as none.
#[derive(Default)]
struct Text<'e>(Option<Cow<'e, str>>);

impl<'de: 'e, 'e> Deserialize<'de> for Text<'e> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'e> Visitor<'e> for TextVisitor {
    type Value = Option<Cow<'e, str>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'e str) -> Result<Self::Value, E> {
        Ok(Some(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned().into()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'e>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'e>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// A message of a snapshot.
struct SnapshotMessage {
    id: Box<str>,
    text: String,
}

/// The messages of a snapshot, each with the texts of its parts.
fn snapshot_messages(messages: &str) -> Vec<SnapshotMessage> {
    let Ok(serde_json::Value::Array(messages)) = serde_json::from_str(messages) else { return Vec::new() };
    let text_of = |part: &serde_json::Value| part["text"].as_str().map(str::to_owned);
    let read = |message: &serde_json::Value| {
        let id = message["messageId"].as_str().or_else(|| message["id"].as_str())?.into();
        let parts = message["parts"].as_array().or_else(|| message["content"].as_array());
        let text = match parts {
            Some(parts) => parts.iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
            None => message["content"].as_str().map(str::to_owned).or_else(|| text_of(message))?,
        };
        Some(SnapshotMessage { id, text })
    };
    messages.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::{Value, json};

    const ALL: AudienceSet = 0b111;

    fn row(n: u64, views: [Option<&Value>; 3]) -> Row {
        // The writer puts the type first.
        let text = |view: &Value| {
            let mut rest = view.clone();
            let event_type = rest.as_object_mut().unwrap().remove("type").unwrap();
            format!("{{\"type\":{event_type},{}", &rest.to_string()[1..])
        };
        let texts = views.map(|view| view.map(text));
        let mut shared: [Option<&[u8]>; 3] = [None; 3];
        for at in 0..3 {
            // Equal views share their bytes, as the writer has it.
            let first = (0..at).find(|other| texts[*other] == texts[at]).unwrap_or(at);
            shared[at] = texts[first].as_ref().map(String::as_bytes);
        }
        let mut out = Vec::new();
        Row::encode(&mut out, Sequence(n), [Sequence::NONE; 3], shared);
        Row::decode_all(Bytes::from(out)).unwrap().pop().unwrap()
    }

    /// The envelope with its type first, as the log has it.
    fn envelope(event_type: &str, message: &str, payload: Value) -> Value {
        json!({ "type": event_type, "messageId": message, "payload": payload })
    }

    fn read(rows: &[[Option<&Value>; 3]]) -> Vec<(AudienceSet, String, u64, u64)> {
        let (mut reader, mut out) = (PartReader::default(), Vec::new());
        for (n, views) in (1..).zip(rows) {
            reader.read(&row(n, *views), &mut out);
        }
        out.into_iter().map(|part| (part.audiences, part.text, part.first.0, part.last.0)).collect()
    }

    #[test]
    fn a_text_is_complete_at_its_end_and_belongs_to_those_that_see_it() {
        let delta = |text: &str| envelope("text.delta", "m", json!({ "text": text }));
        let (one, two) = (delta("Hel"), delta("lo"));
        let (end, same) = (envelope("text.final", "m", json!({})), envelope("text.final", "m", json!({ "text": "lo" })));
        let other = envelope("text.final", "m", json!({ "text": "Goodbye" }));
        let all = |view| [Some(view); 3];
        let hello = (ALL, "Hello".to_owned(), 1, 3);
        assert_eq!(read(&[all(&one), all(&two), all(&end)]), std::slice::from_ref(&hello));
        assert_eq!(read(&[all(&one), all(&two), all(&same)]), [hello]);
        assert_eq!(read(&[all(&one), all(&two), all(&other)]), [(ALL, "Goodbye".to_owned(), 1, 3)]);
        let finished = json!({ "type": "run.finished", "payload": {} });
        assert_eq!(read(&[all(&one), all(&finished)]), [(ALL, "Hel".to_owned(), 1, 1)]);
        assert_eq!(read(&[all(&one)]), []);
        // Only the server's own audience sees the final text; others see that there was an end.
        let stub = envelope("text.final", "m", json!({ "withheld": true, "text": "no" }));
        let mixed = [Some(&stub), Some(&stub), Some(&other)];
        assert_eq!(read(&[all(&one), mixed]), [(ALL, "Hel".to_owned(), 1, 2), (0b100, "Goodbye".to_owned(), 2, 2)]);
        let hidden = [None, None, Some(&one)];
        assert_eq!(read(&[hidden, [None, None, Some(&end)]]), [(0b100, "Hel".to_owned(), 1, 2)]);
    }

    #[test]
    fn a_snapshot_repeats_no_text_and_questions_and_titles_are_complete_at_once() {
        let said = envelope("text.final", "u", json!({ "role": "user", "text": "Plan it" }));
        let messages = json!([{ "id": "u", "parts": [{ "text": "Plan it" }] }, { "id": "a", "content": "Done" }]);
        let snapshot = json!({ "type": "messages.snapshot", "payload": { "messages": messages } });
        let asked = json!({ "type": "action.required", "actionId": "a", "payload": { "title": "Send?", "message": 7, "reason": "To ann" } });
        let titled = json!({ "type": "session.updated", "payload": { "title": "Trip" } });
        let rows = [&said, &snapshot, &snapshot, &asked, &titled].map(|view| [Some(view); 3]);
        let texts: Vec<_> = read(&rows).into_iter().map(|(_, text, ..)| text).collect();
        assert_eq!(texts, ["Plan it", "Done", "Send?\nTo ann", "Trip"]);
    }

    #[test]
    fn a_chunk_that_is_all_of_its_payload_is_read_as_any_other() {
        let plain = |text: &str| {
            let chunk = PlainChunk::read(text)?;
            Some((chunk.kind, chunk.message.to_owned(), chunk.part.map(str::to_owned), chunk.text.into_owned()))
        };
        let head = r#"{"type":"text.delta","sequence":3,"toolName":",\"messageId\":\"x","messageId":"m"#;
        let all = format!(r#"{head}","partId":"p","payload":{{"text":"a\n\"}}}}"}}}}"#);
        let read = (PartKind::Message, "m".to_owned(), Some("p".to_owned()), "a\n\"}}".to_owned());
        assert_eq!(plain(&all), Some(read));
        let reasoning = r#"{"type":"reasoning.delta","messageId":"m","payload":{"text":""}}"#;
        assert_eq!(plain(reasoning), Some((PartKind::Reasoning, "m".to_owned(), None, String::new())));
        for other in [
            format!(r#"{head}","payload":{{"text":"a","withheld":true}}}}"#),
            format!(r#"{head}","payload":{{"text":"a"}},"text":"b"}}"#),
            format!(r#"{head}","payload":{{"text":7}}}}"#),
            format!(r#"{head}\u0041","payload":{{"text":"a"}}}}"#),
            format!(r#"{head}","text":"b"}}"#),
            r#"{"type":"text.delta","payload":{"text":"a"}}"#.into(),
            r#"{"type":"text.final","messageId":"m","payload":{"text":"a"}}"#.into(),
        ] {
            assert_eq!(plain(&other), None, "{other}");
        }
        let (mut reader, mut out) = (PartReader::default(), Vec::new());
        reader.read_view(Sequence(1), all.as_bytes(), ALL, &mut out);
        let with_more = format!(r#"{},"refs":{{}}}}"#, &all[..all.len() - 1]);
        reader.read_view(Sequence(2), with_more.as_bytes(), ALL, &mut out);
        reader.give_open(false, &mut out);
        assert_eq!(out.iter().map(|part| (&*part.text, part.last.0)).collect::<Vec<_>>(), [("a\n\"}}a\n\"}}", 2)]);
    }

    #[test]
    fn an_open_part_is_given_out_once_for_each_length() {
        let one = envelope("text.delta", "m", json!({ "text": "Hel" }));
        let (mut reader, mut out) = (PartReader::default(), Vec::new());
        reader.read(&row(1, [Some(&one); 3]), &mut out);
        reader.give_open(true, &mut out);
        assert_eq!(out.len(), 0, "it grew a moment ago");
        reader.give_open(true, &mut out);
        reader.give_open(true, &mut out);
        assert_eq!(out.len(), 1);
        reader.read(&row(2, [Some(&one); 3]), &mut out);
        reader.give_open(false, &mut out);
        assert_eq!((out[1].text.as_str(), out[1].first, out[1].last), ("HelHel", Sequence(1), Sequence(2)));
        let end = envelope("text.final", "m", json!({}));
        reader.read(&row(3, [Some(&end); 3]), &mut out);
        assert!(reader.is_idle() && out.len() == 2);
    }
}
