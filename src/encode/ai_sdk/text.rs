//! Text and reasoning: a part that is opened, grows and is closed.
//!
//! No chunk takes back what was said. A text that turns out to be another one is told as a new part, and a `data-correction`
//! part says which part it stands for; where the client can be made to forget (version 7), everything is told anew instead.

use super::page::{Page, data_part};
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hasher};

/// What kind of part it is; the beginning of its chunks' types.
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

/// Who says it, where that is not the run's own agent: as `providerMetadata`, which clients keep with the part.
pub(super) fn attribution(teammate: Option<&str>) -> Option<Value> {
    teammate.map(|agent| json!({ "proscenium": { "agentId": agent } }))
}

/// A text as the reader has it: its length and hash, and whether it is open.
#[derive(Debug)]
pub(super) struct Text {
    id: String,
    channel: Channel,
    teammate: Option<Box<str>>,
    /// Bytes that were said, and what they hash to.
    said: usize,
    sum: DefaultHasher,
    /// Whether its source goes on with it.
    pub streams: bool,
    /// Whether the reader's part can be added to.
    is_open: bool,
    /// Where it stands among the message's parts: one, unless it went on after its end.
    at: Vec<usize>,
    corrections: u32,
}

impl Text {
    /// Opens a part.
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

    /// Says what is added.
    pub fn grow(&mut self, more: &str, page: &mut Page) {
        if more.is_empty() {
            return;
        }
        if !self.is_open {
            // It goes on after its end.
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

    /// Brings the reader's text to this one.
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

    /// Closes the part where its source is done with it.
    pub fn settle(&mut self, page: &mut Page) {
        if !self.streams {
            self.close(page);
        }
    }

    /// Closes the part.
    pub fn close(&mut self, page: &mut Page) {
        if std::mem::take(&mut self.is_open) {
            page.say(self.chunk("end").into());
        }
    }

    /// The reader's part is closed: its answer ended.
    pub const fn is_cut(&mut self) {
        self.is_open = false;
    }
}

/// The part that a text comes to.
pub(super) fn part(id: &str, channel: Channel, teammate: Option<&str>, text: &str, streams: bool, version: u8) -> Value {
    let mut part = Map::from_iter([("type".to_owned(), Value::from(channel.name()))]);
    // Later clients keep a thought's id.
    if channel == Channel::Reasoning && version >= 6 {
        part.insert("id".into(), id.into());
    }
    part.insert("text".into(), text.into());
    part.extend(attribution(teammate).map(|by| ("providerMetadata".to_owned(), by)));
    part.insert("state".into(), if streams { "streaming" } else { "done" }.into());
    part.into()
}
