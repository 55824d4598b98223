//! Messages, refusals and reasoning.
//!
//! A part ends once, with the first whole text that an event has of it.

use super::event::Channel;
use super::items::{ItemKind, PARTS_MAX, Part};
use super::{EventHandler, OpenAiResponses};
use crate::Fact;
use crate::members::{carry_all, next_id, take_list, take_text};
use proscenium_model::{Audience, Draft, EventType, EvidenceId, PartId, Persistence, Phase, Scope};
use serde_json::{Map, Value};

impl Channel {
    const fn is_of_message(self) -> bool {
        matches!(self, Self::Text | Self::Refusal)
    }

    const fn item(self) -> ItemKind {
        if self.is_of_message() { ItemKind::Message } else { ItemKind::Reasoning }
    }

    /// The member with the part's place in its item.
    const fn place(self) -> &'static str {
        if matches!(self, Self::Summary) { "summary_index" } else { "content_index" }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Refusal => "refusal",
            Self::Summary => "summary",
            Self::Thought => "thought",
        }
    }

    const fn delta(self) -> EventType {
        if self.is_of_message() { EventType::TextDelta } else { EventType::ReasoningDelta }
    }

    const fn end(self) -> EventType {
        if self.is_of_message() { EventType::TextFinal } else { EventType::ReasoningSummary }
    }
}

impl OpenAiResponses {
    /// Returns the tracked part, or `None` beyond the limit.
    fn part(&mut self, at: usize, channel: Channel, index: u64) -> Option<&mut Part> {
        let parts = &mut self.items[at].parts;
        let n = parts.iter().position(|part| part.channel == channel && part.index == index).unwrap_or(parts.len());
        if n == parts.len() && n < PARTS_MAX {
            parts.push(Part { channel, index, is_final: false, annotations: 0 });
        }
        parts.get_mut(n)
    }
}

impl EventHandler<'_> {
    /// Creates a draft of a part.
    fn part_draft(&self, class: EventType, at: usize, channel: Channel, index: u64) -> Draft {
        let mut draft = Draft::new(class);
        draft.ids.message = Some(self.memory.message(at));
        draft.ids.part = PartId::new(&format!("{}-{index}", channel.name())).ok();
        match channel {
            Channel::Refusal => draft = draft.with("refusal", true),
            Channel::Thought => draft.audience = Audience::Dashboard,
            Channel::Text | Channel::Summary => {}
        }
        draft
    }

    pub(super) fn text_delta(&mut self, channel: Channel, mut fact: Fact) {
        let at = self.item_of(channel.item(), &mut fact);
        let index = fact.shift_remove(channel.place()).as_ref().and_then(Value::as_u64).unwrap_or(0);
        self.memory.part(at, channel, index);
        self.memory.has_refused |= channel == Channel::Refusal;
        let text = take_text(&mut fact, "delta");
        let draft = self.part_draft(channel.delta(), at, channel, index).with_text(text);
        self.push(carry_all(draft, fact));
    }

    pub(super) fn text_done(&mut self, channel: Channel, member: &str, mut fact: Fact) {
        let at = self.item_of(channel.item(), &mut fact);
        let index = fact.shift_remove(channel.place()).as_ref().and_then(Value::as_u64).unwrap_or(0);
        let text = take_text(&mut fact, member).unwrap_or_default();
        self.end_part(at, channel, index, text, fact);
    }

    pub(super) fn part_done(&mut self, mut fact: Fact) {
        let Some(Value::Object(part)) = fact.shift_remove("part") else { return };
        let kind =
            if fact.contains_key("summary_index") || is_of_reasoning(&part) { ItemKind::Reasoning } else { ItemKind::Message };
        let at = self.item_of(kind, &mut fact);
        let place = fact.shift_remove("summary_index").or_else(|| fact.shift_remove("content_index"));
        let rest = self.whole_part(at, place.as_ref().and_then(Value::as_u64).unwrap_or(0), part);
        fact.extend(rest.map(|rest| ("part".to_owned(), rest.into())));
        self.push_internal("part", "response.content_part.done", fact);
    }

    /// Ends a part with the whole one, and reports its annotations. Returns a part of an unknown type.
    fn whole_part(&mut self, at: usize, index: u64, mut part: Map<String, Value>) -> Option<Map<String, Value>> {
        let (channel, member) = match part.get("type").and_then(Value::as_str)? {
            "output_text" => (Channel::Text, "text"),
            "refusal" => (Channel::Refusal, "refusal"),
            "summary_text" => (Channel::Summary, "text"),
            "reasoning_text" => (Channel::Thought, "text"),
            _ => return Some(part),
        };
        let text = take_text(&mut part, member)?;
        let annotations = take_list(&mut part, "annotations");
        let known = self.memory.part(at, channel, index).map_or(0, |part| std::mem::replace(&mut part.annotations, usize::MAX));
        for annotation in annotations.into_iter().skip(known) {
            self.annotation(at, channel, index, annotation);
        }
        self.end_part(at, channel, index, text, Map::new());
        None
    }

    /// Ends a part with its whole text, once.
    fn end_part(&mut self, at: usize, channel: Channel, index: u64, text: String, rest: Fact) {
        match self.memory.part(at, channel, index) {
            Some(part) if part.is_final => return,
            Some(part) => part.is_final = true,
            None => {}
        }
        self.memory.has_refused |= channel == Channel::Refusal;
        let draft = self.part_draft(channel.end(), at, channel, index).with_text(text);
        self.push(carry_all(draft, rest));
    }

    /// Ends the parts that no event ended: their text is the streamed one.
    pub(super) fn close_parts(&mut self) {
        for at in 0..self.memory.items.len() {
            for n in 0..self.memory.items[at].parts.len() {
                let part = &mut self.memory.items[at].parts[n];
                let (channel, index) = (part.channel, part.index);
                if !std::mem::replace(&mut part.is_final, true) {
                    self.push(self.part_draft(channel.end(), at, channel, index));
                }
            }
        }
    }

    pub(super) fn message_done(&mut self, at: usize, item: &mut Map<String, Value>) {
        let mut others = Vec::new();
        for (index, part) in (0..).zip(take_list(item, "content")) {
            match part {
                Value::Object(part) => others.extend(self.whole_part(at, index, part).map(Value::Object)),
                odd => others.push(odd),
            }
        }
        if !others.is_empty() {
            item.insert("content".into(), others.into());
        }
    }

    pub(super) fn reasoning_done(&mut self, at: usize, item: &mut Map<String, Value>) {
        for member in ["summary", "content"] {
            for (index, part) in (0..).zip(take_list(item, member)) {
                if let Value::Object(part) = part {
                    self.whole_part(at, index, part);
                }
            }
        }
    }

    // ── citations ──

    pub(super) fn annotation_added(&mut self, mut fact: Fact) {
        let at = self.item_of(ItemKind::Message, &mut fact);
        let index = fact.shift_remove("content_index").as_ref().and_then(Value::as_u64).unwrap_or(0);
        fact.shift_remove("annotation_index");
        let annotation = fact.shift_remove("annotation").unwrap_or(Value::Null);
        if let Some(part) = self.memory.part(at, Channel::Text, index) {
            part.annotations = part.annotations.saturating_add(1);
        }
        self.annotation(at, Channel::Text, index, annotation);
        self.push_internal("annotation", "response.output_text.annotation.added", fact);
    }

    fn annotation(&mut self, at: usize, channel: Channel, index: u64, annotation: Value) {
        let id: EvidenceId = next_id("openai-responses-evidence", &mut self.memory.evidence_made);
        let mut draft = self.part_draft(EventType::EvidenceChanged, at, channel, index);
        match annotation {
            Value::Object(mut annotation) => {
                let members = [
                    ("type", "kind"),
                    ("url", "url"),
                    ("title", "title"),
                    ("filename", "name"),
                    ("file_id", "fileId"),
                    ("container_id", "containerId"),
                ];
                draft.move_members(&mut annotation, &members);
                let range = ["start_index", "end_index", "index"].iter().filter_map(|m| annotation.shift_remove_entry(*m));
                let range: Map<_, _> = range.collect();
                draft.set("range", (!range.is_empty()).then_some(range));
                draft.payload.extend(annotation);
            }
            odd => draft = draft.with("citation", odd),
        }
        (draft.scope, draft.phase, draft.persistence) = (Scope::Message, Phase::Producing, Persistence::Archive);
        draft.ids.evidence = Some(id);
        self.push(draft);
    }
}

fn is_of_reasoning(part: &Map<String, Value>) -> bool {
    matches!(part.get("type").and_then(Value::as_str), Some("reasoning_text" | "summary_text"))
}
