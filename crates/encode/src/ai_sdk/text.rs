//! Text and reasoning parts: they are opened, grow and are closed.
//!
//! No chunk takes back text. If a sent text turns out to be wrong, the correct text follows as a new part, and a
//! `data-correction` part names the parts that it replaces. Version 7 instead resets the step and receives everything
//! again.

use super::message_writer::{MessageWriter, data_part};
use crate::sent_text::SentText;
use serde_json::{Map, Value, json};

/// The type of the part, which prefixes the types of its chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Text,
    Reasoning,
}

impl Channel {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
}

/// The author as `providerMetadata`, which clients keep; `None` for the run's own agent.
pub(super) fn attribution(teammate: Option<&str>) -> Option<Value> {
    teammate.map(|agent| json!({ "proscenium": { "agentId": agent } }))
}

/// The reader's copy of a text: its length and hash, and whether the part is open.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text {
    id: String,
    channel: Channel,
    teammate: Option<Box<str>>,
    sent: SentText,
    /// Whether the source may still append to it.
    pub is_streaming: bool,
    /// Whether the reader's part accepts deltas.
    is_open: bool,
    /// The indices of its parts in the message: one, unless the text grew after its end.
    part_indices: Vec<usize>,
    corrections: u32,
}

impl Text {
    /// Opens the part of a new text.
    pub fn begin(id: String, channel: Channel, teammate: Option<&str>, writer: &mut MessageWriter) -> Self {
        let mut text = Self {
            id,
            channel,
            teammate: teammate.map(Into::into),
            sent: SentText::default(),
            is_streaming: true,
            is_open: false,
            part_indices: Vec::new(),
            corrections: 0,
        };
        text.open(writer);
        text
    }

    fn chunk(&self, edge: &str) -> Map<String, Value> {
        let kind = format!("{}-{edge}", self.channel.name());
        Map::from_iter([("type".to_owned(), kind.into()), ("id".to_owned(), self.id.as_str().into())])
    }

    fn open(&mut self, writer: &mut MessageWriter) {
        let mut start = self.chunk("start");
        start.extend(attribution(self.teammate.as_deref()).map(|by| ("providerMetadata".to_owned(), by)));
        self.part_indices.push(writer.add_part(start.into()));
        self.is_open = true;
    }

    /// Sends appended text.
    pub fn append(&mut self, more: &str, writer: &mut MessageWriter) {
        if more.is_empty() {
            return;
        }
        if !self.is_open {
            // The text grows after its end.
            if writer.can_reset() {
                writer.needs_reset = true;
                return;
            }
            self.open(writer);
        }
        let mut delta = self.chunk("delta");
        delta.insert("delta".into(), more.into());
        writer.push(delta.into());
        self.sent.push(more);
    }

    /// Updates the reader's text to this one.
    pub fn update(&mut self, whole: &str, writer: &mut MessageWriter) {
        match self.sent.rest(whole) {
            Some(rest) => self.append(rest, writer),
            None => self.correct(whole, writer),
        }
    }

    fn correct(&mut self, whole: &str, writer: &mut MessageWriter) {
        if writer.can_reset() {
            writer.needs_reset = true;
            return;
        }
        self.close(writer);
        self.corrections += 1;
        let mut data = json!({ "parts": std::mem::take(&mut self.part_indices) });
        if !whole.is_empty() {
            data["replacedBy"] = (writer.parts + 1).into();
        }
        let id = format!("{}:{}#{}", self.channel.name(), self.id, self.corrections);
        writer.add_part(data_part("correction", &id, data));
        self.sent = SentText::default();
        self.append(whole, writer);
    }

    /// Closes the part if its source has finished it.
    pub fn close_if_complete(&mut self, writer: &mut MessageWriter) {
        if !self.is_streaming {
            self.close(writer);
        }
    }

    /// Closes the part, if it is open.
    pub fn close(&mut self, writer: &mut MessageWriter) {
        if std::mem::take(&mut self.is_open) {
            writer.push(self.chunk("end").into());
        }
    }

    /// Marks the reader's part as closed, because its response has ended.
    pub const fn mark_closed(&mut self) {
        self.is_open = false;
    }
}

/// Builds the UI message part of a text.
pub(super) fn part(id: &str, channel: Channel, teammate: Option<&str>, text: &str, is_streaming: bool) -> Value {
    let mut part = Map::from_iter([("type".to_owned(), Value::from(channel.name()))]);
    // Clients keep the id of a reasoning part, and not of a text part.
    if channel == Channel::Reasoning {
        part.insert("id".into(), id.into());
    }
    part.insert("text".into(), text.into());
    part.extend(attribution(teammate).map(|by| ("providerMetadata".to_owned(), by)));
    part.insert("state".into(), if is_streaming { "streaming" } else { "done" }.into());
    part.into()
}
