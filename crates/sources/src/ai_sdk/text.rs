//! Text and reasoning.
//!
//! The ids of blocks are the provider's: one id may come again in each step, after an approval, or twice at once from
//! merged streams. So each start opens a part of its own, and an id means its newest open part.

use super::{EventHandler, Unused};
use crate::Fact;
use crate::bounded::keyed;
use crate::members::{carry_all, diagnostic, name_of, next_id, take_list, take_text};
use crate::turn::Channel;
use proscenium_model::{Draft, EventType, EvidenceId, MessageId, PartId, Persistence, Phase, Scope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most open parts.
/// Beyond this limit the adapter ends the oldest.
pub(super) const OPEN_MAX: usize = 64;

/// The most parts of a step that the adapter remembers, to empty them when the step is reset.
pub(super) const STEP_PARTS_MAX: usize = 256;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    channel: Channel,
    message: MessageId,
    id: PartId,
}

impl Part {
    fn draft(&self, class: EventType) -> Draft {
        Draft::new(class).with_message(self.message.clone()).with_part(self.id.clone())
    }

    fn delta(&self, text: String) -> Draft {
        self.draft(self.channel.delta()).with_text(text)
    }

    fn end(&self) -> Draft {
        self.draft(self.channel.end())
    }
}

/// An open part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stream {
    part: Part,
    /// The provider's id of the block.
    block: String,
    /// Whether readers have seen the part. Reasoning without text (redacted thinking) shows nothing.
    is_shown: bool,
    unused: Unused,
}

keyed! { Stream: Part = part; }

impl EventHandler<'_> {
    pub(super) fn part_start(&mut self, channel: Channel, mut fact: Fact) {
        let block = take_text(&mut fact, "id").unwrap_or_default();
        let mut stream = self.open(channel, &block);
        if channel == Channel::Text || !fact.is_empty() {
            self.send(&mut stream, String::new(), fact);
        }
        self.keep(stream);
    }

    /// Opens a part of the current message.
    fn open(&mut self, channel: Channel, block: &str) -> Stream {
        let id = next_id("ai-sdk-part", &mut self.memory.parts_made);
        let part = Part { channel, message: self.memory.message(), id };
        Stream { part, block: name_of(block), is_shown: false, unused: Unused::default() }
    }

    /// Takes the newest open part of a block.
    fn take_open(&mut self, channel: Channel, block: &str) -> Option<Stream> {
        let block = name_of(block);
        let is_it = |stream: &&Stream| stream.part.channel == channel && stream.block == block;
        let part = self.memory.streams.iter().rfind(is_it)?.part.clone();
        self.memory.streams.take(&part)
    }

    fn keep(&mut self, stream: Stream) {
        if let Some(oldest) = self.memory.streams.push(stream) {
            self.end_stream(oldest, Map::new());
        }
    }

    fn send(&mut self, stream: &mut Stream, text: String, rest: Fact) {
        if !std::mem::replace(&mut stream.is_shown, true) {
            self.memory.step_parts.push(stream.part.clone());
        }
        self.push(carry_all(stream.part.delta(text), rest));
    }

    pub(super) fn part_delta(&mut self, channel: Channel, text: String, mut fact: Fact) {
        let block = take_text(&mut fact, "id").unwrap_or_default();
        let mut stream = self.take_open(channel, &block).unwrap_or_else(|| self.open(channel, &block));
        if !text.is_empty() || !fact.is_empty() {
            self.send(&mut stream, text, fact);
        }
        self.keep(stream);
    }

    pub(super) fn part_end(&mut self, channel: Channel, event_type: &str, mut fact: Fact) {
        let block = fact.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(stream) = self.take_open(channel, &block) else {
            return self.push(diagnostic("end_without_start", event_type, fact));
        };
        fact.shift_remove("id");
        let citations = take_list(&mut fact, "citations");
        let part = stream.part.clone();
        self.end_stream(stream, fact);
        for citation in citations {
            self.citation(&part, citation);
        }
    }

    /// Ends a part. The streamed chunks are its text.
    fn end_stream(&mut self, stream: Stream, rest: Fact) {
        if stream.is_shown || !rest.is_empty() {
            self.push(carry_all(stream.part.end(), rest));
        }
    }

    /// Ends the open parts.
    pub(super) fn end_streams(&mut self) {
        for stream in self.memory.streams.take_all() {
            self.end_stream(stream, Map::new());
        }
    }

    /// Closes the open parts without an end: the end of the run shows that they were interrupted.
    pub(super) fn close_streams(&mut self) {
        self.memory.streams.clear();
    }

    /// Empties the current step's parts: their final text is empty.
    pub(super) fn empty_parts_of_step(&mut self) {
        for part in self.memory.step_parts.take_all() {
            self.memory.streams.take(&part);
            self.push(part.end().with_text(String::new()));
        }
    }

    fn citation(&mut self, part: &Part, citation: Value) {
        let id: EvidenceId = next_id("ai-sdk-evidence", &mut self.memory.evidence_made);
        let mut draft = Draft::new(EventType::EvidenceChanged).with("kind", "citation");
        match citation {
            Value::Object(mut citation) => {
                let source = citation.shift_remove("source");
                let of_source = |member: &str| source.as_ref().and_then(|source| source.get(member)).cloned();
                for member in ["url", "title"] {
                    draft.set(member, of_source(member));
                }
                let range: Map<_, _> =
                    ["startIndex", "endIndex"].iter().filter_map(|m| citation.shift_remove_entry(*m)).collect();
                draft.set("range", (!range.is_empty()).then_some(range));
                draft.set("summary", citation.shift_remove("citedText"));
                draft.set("sourceId", of_source("id"));
                draft.payload.extend(citation);
            }
            odd => draft = draft.with("citation", odd),
        }
        (draft.scope, draft.phase, draft.persistence) = (Scope::Message, Phase::Producing, Persistence::Archive);
        self.push(draft.with_evidence(id).with_message(part.message.clone()).with_part(part.id.clone()));
    }
}
