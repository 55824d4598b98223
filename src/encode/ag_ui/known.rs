//! The sent state: each message's id, length and digest, and the members of a call that decide how to translate its
//! next change. It retains no contents.

use super::call::{Kept, Scan, name};
use super::events::Bracket;
use super::items::{Body, Entry, Item, Key, Names, PartOf, is_message, part_key};
use crate::encode::frames::Shown;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// The digest of a sent text: enough to test whether another text starts with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print {
    /// The length in bytes.
    len: usize,
    /// FNV-1a, which does not depend on how the text was cut into chunks.
    hash: u64,
}

impl Default for Print {
    fn default() -> Self {
        Self { len: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Print {
    pub fn of(text: &str) -> Self {
        let mut print = Self::default();
        print.push(text);
        print
    }

    pub fn push(&mut self, text: &str) {
        self.len += text.len();
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The remainder of a text after the sent part; `None` if the text does not start with the sent part.
    pub fn rest<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let (sent, rest) = whole.split_at_checked(self.len)?;
        (Self::of(sent) == *self).then_some(rest)
    }
}

/// A message that the reader has.
#[derive(Debug)]
pub(super) enum Record {
    Text {
        id: Box<str>,
        role: &'static str,
        print: Print,
    },
    Reasoning {
        id: Box<str>,
        print: Print,
    },
    Call {
        /// The id of the message.
        id: Box<str>,
        call: Box<str>,
        print: Print,
        scan: Scan,
        kept: Kept,
        /// Whether it belongs to the streamed run.
        is_current: bool,
    },
    Result(Print),
    Activity {
        id: Box<str>,
        kind: Box<str>,
    },
}

impl Record {
    pub fn of(id: &str, item: &Item, is_current: bool) -> Self {
        let id = Box::from(id);
        match &item.body {
            Body::Text { role, text, .. } => Self::Text { id, role, print: Print::of(text) },
            Body::Reasoning { text, .. } => Self::Reasoning { id, print: Print::of(text) },
            Body::Call { id: call, arguments, scan, kept, .. } => Self::Call {
                id,
                call: call.clone(),
                print: Print::of(arguments),
                scan: scan.clone(),
                kept: kept.clone(),
                is_current,
            },
            Body::Result { answer, .. } => Self::Result(result_print(&answer.content, &answer.told)),
            Body::Activity { kind, .. } => Self::Activity { id, kind: kind.clone() },
        }
    }

    /// The digest of its text, if the text can grow.
    pub fn print_mut(&mut self) -> Option<&mut Print> {
        match self {
            Self::Text { print, .. } | Self::Reasoning { print, .. } | Self::Call { print, .. } => Some(print),
            Self::Result(_) | Self::Activity { .. } => None,
        }
    }

    /// Its bracket, and the events that reopen it.
    pub fn bracket(&self) -> Option<(Bracket, Vec<Value>)> {
        Some(match self {
            Self::Text { id, role, .. } => {
                let start = json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": role });
                (Bracket::Text(id.clone()), vec![start])
            }
            Self::Reasoning { id, .. } => {
                let start = json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" });
                (Bracket::Reasoning(id.clone()), vec![json!({ "type": "REASONING_START", "messageId": id }), start])
            }
            Self::Call { id, call, kept, .. } => {
                let mut start = json!({ "type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name(kept.members()) });
                if id != call {
                    start["parentMessageId"] = (**id).into();
                }
                (Bracket::Call(call.clone()), vec![start])
            }
            Self::Result(_) | Self::Activity { .. } => return None,
        })
    }
}

/// The digest of a result and its metadata.
pub(super) fn result_print(content: &str, told: &Map<String, Value>) -> Print {
    let mut print = Print::of(content);
    print.push(&json!(told).to_string());
    print
}

/// The messages that the client sent as its own copy of the thread.
#[derive(Debug, Default)]
pub(super) struct Has {
    texts: HashMap<Box<str>, Had>,
    calls: HashMap<Box<str>, Print>,
    /// The id of the tool message for each call.
    results: HashMap<Box<str>, Box<str>>,
}

/// The client's copy of one message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Had {
    Text(Print),
    /// More than text, which a text stream must not change.
    More,
}

impl Has {
    pub fn of(messages: &[Value]) -> Self {
        let mut has = Self::default();
        for message in messages {
            let text = |member: &str| message.get(member).and_then(Value::as_str);
            let Some(id) = text("id") else { continue };
            if let (Some("tool"), Some(call)) = (text("role"), text("toolCallId")) {
                has.results.insert(call.into(), id.into());
                continue;
            }
            let had = match message.get("content") {
                Some(Value::String(text)) => Some(Had::Text(Print::of(text))),
                Some(Value::Array(_)) => Some(Had::More),
                _ => None,
            };
            has.texts.extend(had.map(|had| (id.into(), had)));
            for made in message.get("toolCalls").and_then(Value::as_array).into_iter().flatten() {
                if let Some(call) = made.get("id").and_then(Value::as_str) {
                    let arguments = made.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default();
                    has.calls.insert(call.into(), Print::of(arguments));
                }
            }
        }
        has
    }

    /// The client's copy of a new message.
    pub fn had(&self, id: &str, item: &Item) -> Option<Had> {
        match &item.body {
            Body::Text { .. } | Body::Reasoning { .. } => self.texts.get(id).copied(),
            Body::Call { id: call, .. } => self.calls.get(call).copied().map(Had::Text),
            Body::Result { call, .. } => self.results.contains_key(call).then_some(Had::More),
            Body::Activity { .. } => None,
        }
    }

    /// The id of the client's tool message for a call.
    pub fn result(&self, call: &str) -> Option<&str> {
        self.results.get(call).map(|id| &**id)
    }
}

/// An activity that was sent.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Its position among the activities.
    pub number: u32,
    /// The teammate that it belongs to.
    pub agent: Option<Box<str>>,
    /// The parts, if it is a message.
    pub message: Option<Parts>,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub role: Box<str>,
    pub parts: Vec<(Key, PartOf)>,
}

impl Parts {
    /// Adds the next part.
    pub fn add(&mut self, message: &str, part: &Map<String, Value>) -> (Key, PartOf) {
        let of = PartOf::of(part, &self.role);
        let is_first = !self.parts.iter().any(|(_, of)| *of == PartOf::Text);
        let key = part_key(message, part, of, is_first);
        self.parts.push((key.clone(), of));
        (key, of)
    }
}

/// Everything that the server knows about the reader's copy.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub names: Names,
    pub records: HashMap<Key, Record>,
    /// By kind, then id.
    places: HashMap<Box<str>, HashMap<Box<str>, Place>>,
    count: u32,
    /// Messages outside the window: the server sends no further events about them.
    pub omitted: HashSet<Key>,
    pub has: Has,
}

impl Known {
    /// Creates the state for a client that sent these messages.
    pub fn of(has: Has) -> Self {
        Self { has, ..Self::default() }
    }

    /// Records an activity and returns its position among the others.
    pub fn place(&mut self, shown: &Shown, agent: Option<Box<str>>) -> u32 {
        let ids = self.places.entry(shown.kind.clone()).or_default();
        let place = ids.entry(shown.id.clone()).or_insert_with(|| {
            self.count += 1;
            Place { number: self.count, agent, message: None }
        });
        if is_message(shown) {
            let mut parts = Parts { role: shown.text("role").unwrap_or_default().into(), parts: Vec::new() };
            for part in shown.content["parts"].as_array().into_iter().flatten().filter_map(Value::as_object) {
                parts.add(&shown.id, part);
            }
            place.message = Some(parts);
        }
        place.number
    }

    /// The record of a sent activity.
    pub fn placed(&mut self, kind: &str, id: &str) -> Option<&mut Place> {
        self.places.get_mut(kind)?.get_mut(id)
    }

    /// Records the messages of a snapshot.
    pub fn learn(&mut self, entries: &[Entry]) {
        for entry in entries.iter().flat_map(|entry| std::iter::once(entry).chain(entry.result.as_deref())) {
            self.records.insert(entry.item.key.clone(), Record::of(&entry.id, &entry.item, entry.is_current));
        }
    }

    /// The calls that the reader has without a result.
    pub fn lacking_results(&self) -> HashSet<Box<str>> {
        let told = self.records.keys().filter_map(|key| match key {
            Key::Call(call) if !self.records.contains_key(&Key::Result(call.clone())) => Some(call),
            _ => None,
        });
        let theirs = self.has.calls.keys().filter(|call| self.has.result(call).is_none());
        told.chain(theirs).cloned().collect()
    }

    /// Reduces the client's own messages to `theirs`; for the rest the client now has the log's messages.
    pub fn keep(&mut self, theirs: &[Value]) {
        let mut has = Has::of(theirs);
        let answered = |call: &str| self.records.contains_key(&Key::Result(call.into()));
        has.results.extend(std::mem::take(&mut self.has.results).into_iter().filter(|(call, _)| answered(call)));
        self.has = has;
    }

    /// The id of a new message.
    pub fn name(&mut self, item: &Item) -> Box<str> {
        if let Body::Result { call, id, .. } = &item.body {
            if let Some(theirs) = self.has.result(call) {
                return theirs.into();
            }
            if let Some(given) = id.as_deref().filter(|id| self.names.take(id)) {
                return given.into();
            }
        }
        self.names.claim(&item.key, item.run.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_matches_only_texts_that_start_with_the_sent_text() {
        let mut print = Print::of("Zug");
        print.push(" nach ");
        assert_eq!(print, Print::of("Zug nach "));
        assert_eq!(print.rest("Zug nach Köln"), Some("Köln"));
        assert_eq!(print.rest("Zug nach "), Some(""));
        assert_eq!(print.rest("Zug"), None);
        assert_eq!(print.rest("Bus nach Köln"), None);
        assert_eq!(Print::of("K\u{f6}").rest("Ko\u{308}ln"), None, "cut within a character");
        assert_eq!(Print::default().rest("all"), Some("all"));
    }

    #[test]
    fn the_clients_messages_are_indexed_by_their_ids() {
        let has = Has::of(&[
            json!({"id": "u", "role": "user", "content": "hi"}),
            json!({"id": "v", "role": "user", "content": [{"type": "image"}]}),
            json!({"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "x", "arguments": "{}"}}]}),
            json!({"id": "t", "role": "tool", "toolCallId": "c", "content": "1"}),
            json!({"role": "user", "content": "nameless"}),
        ]);
        assert!(matches!(has.texts["u"], Had::Text(print) if print == Print::of("hi")));
        assert!(matches!(has.texts["v"], Had::More));
        assert_eq!((has.texts.len(), has.calls["c"], has.result("c")), (2, Print::of("{}"), Some("t")));
    }
}
