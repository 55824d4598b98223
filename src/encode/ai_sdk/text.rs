//! Text and reasoning parts: they are opened, grow and are closed.
//!
//! No chunk takes back text. If a sent text turns out to be wrong, the correct text follows as a new part, and a
//! `data-correction` part names the parts that it replaces. Version 7 instead resets the step and receives everything
//! again.

use super::page::{Page, data_part};
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hasher};

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

/// The author, if it is not the run's own agent, as `providerMetadata`, which clients keep with the part.
pub(super) fn attribution(teammate: Option<&str>) -> Option<Value> {
    teammate.map(|agent| json!({ "proscenium": { "agentId": agent } }))
}

/// The reader's copy of a text: its length and hash, and whether the part is open.
#[derive(Debug)]
pub(super) struct Text {
    id: String,
    channel: Channel,
    teammate: Option<Box<str>>,
    /// The length of the sent text, in bytes, and its hash.
    said: usize,
    sum: DefaultHasher,
    /// Whether the source may still append to it.
    pub streams: bool,
    /// Whether the reader's part accepts deltas.
    is_open: bool,
    /// The indices of its parts in the message: one, unless the text grew after its end.
    at: Vec<usize>,
    corrections: u32,
}

impl Text {
    /// Opens the part of a new text.
    pub fn begin(id: String, channel: Channel, teammate: Option<&str>, page: &mut Page) -> Self {
        let mut text = Self {
            id,
            channel,
            teammate: teammate.map(Into::into),
            said: 0,
            sum: DefaultHasher::new(),
            streams: true,
            is_open: false,
            at: Vec::new(),
            corrections: 0,
        };
        text.open(page);
        text
    }

    fn chunk(&self, edge: &str) -> Map<String, Value> {
        let kind = format!("{}-{edge}", self.channel.name());
        Map::from_iter([("type".to_owned(), kind.into()), ("id".to_owned(), self.id.as_str().into())])
    }

    fn open(&mut self, page: &mut Page) {
        let mut start = self.chunk("start");
        start.extend(attribution(self.teammate.as_deref()).map(|by| ("providerMetadata".to_owned(), by)));
        self.at.push(page.add(start.into()));
        self.is_open = true;
    }

    /// Sends appended text.
    pub fn grow(&mut self, more: &str, page: &mut Page) {
        if more.is_empty() {
            return;
        }
        if !self.is_open {
            // The text grows after its end.
            if page.can_retract() {
                page.is_spoilt = true;
                return;
            }
            self.open(page);
        }
        let mut delta = self.chunk("delta");
        delta.insert("delta".into(), more.into());
        page.say(delta.into());
        self.said += more.len();
        self.sum.write(more.as_bytes());
    }

    /// Updates the reader's text to this one.
    pub fn bring(&mut self, whole: &str, page: &mut Page) {
        let agrees = |said: &&str| {
            let mut sum = DefaultHasher::new();
            sum.write(said.as_bytes());
            sum.finish() == self.sum.finish()
        };
        match whole.get(..self.said).filter(agrees) {
            Some(said) => self.grow(&whole[said.len()..], page),
            None => self.correct(whole, page),
        }
    }

    fn correct(&mut self, whole: &str, page: &mut Page) {
        if page.can_retract() {
            page.is_spoilt = true;
            return;
        }
        self.close(page);
        self.corrections += 1;
        let mut data = json!({ "parts": std::mem::take(&mut self.at) });
        if !whole.is_empty() {
            data["replacedBy"] = (page.parts + 1).into();
        }
        let id = format!("{}:{}#{}", self.channel.name(), self.id, self.corrections);
        page.add(data_part("correction", &id, data));
        (self.said, self.sum) = (0, DefaultHasher::new());
        self.grow(whole, page);
    }

    /// Closes the part if its source has finished it.
    pub fn settle(&mut self, page: &mut Page) {
        if !self.streams {
            self.close(page);
        }
    }

    /// Closes the part, if it is open.
    pub fn close(&mut self, page: &mut Page) {
        if std::mem::take(&mut self.is_open) {
            page.say(self.chunk("end").into());
        }
    }

    /// Marks the reader's part as closed, because its response has ended.
    pub const fn is_cut(&mut self) {
        self.is_open = false;
    }
}

/// Builds the UI message part of a text.
pub(super) fn part(id: &str, channel: Channel, teammate: Option<&str>, text: &str, streams: bool) -> Value {
    let mut part = Map::from_iter([("type".to_owned(), Value::from(channel.name()))]);
    // Clients keep the id of a reasoning part, and not of a text part.
    if channel == Channel::Reasoning {
        part.insert("id".into(), id.into());
    }
    part.insert("text".into(), text.into());
    part.extend(attribution(teammate).map(|by| ("providerMetadata".to_owned(), by)));
    part.insert("state".into(), if streams { "streaming" } else { "done" }.into());
    part.into()
}
