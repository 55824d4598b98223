//! Text and reasoning of the model: streamed parts, compared with the text in the turn's end.

use super::{Ethos, EventHandler};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{carry_all, next_id, take_text};
use proscenium_model::{Audience, Draft, EventType, MessageId, PartId};

impl Ethos {
    pub(super) const fn has_streamed(&self) -> bool {
        !self.streamed.is_empty()
    }

    /// Whether a tool returned the turn's final text in place of the model.
    /// Such text was never streamed.
    ///
    /// Either the text equals a result of the last batch of calls. Or it differs from the streamed text, and no text
    /// was streamed since the last call.
    fn is_returned_by_a_tool(&self, text: &str) -> bool {
        let digest = TextDigest::of(text.as_bytes());
        if digest == self.streamed {
            return false;
        }
        self.results.contains(&digest)
            || self.ends_with_tools && !self.has_gap && !self.streamed.is_prefix_of(text) && !self.streamed.is_suffix_of(text)
    }
}

impl EventHandler<'_> {
    pub(super) fn text_delta(&mut self, mut fact: Fact) {
        if self.memory.is_interleaved() {
            self.memory.has_gap = true;
            return self.set_aside("text_delta", fact);
        }
        self.end_thought();
        let memory = &mut *self.memory;
        memory.resume();
        let message = memory.message();
        let part = memory.text.take().unwrap_or_else(|| next_id("ethos-part", &mut memory.parts_made));
        memory.text = Some(part.clone());
        let text = take_text(&mut fact, "text").unwrap_or_default();
        memory.streamed.update(text.as_bytes());
        memory.ends_with_tools = false;
        self.chunk(EventType::TextDelta, text, message, part, fact);
    }

    pub(super) fn thinking_delta(&mut self, mut fact: Fact) {
        if self.memory.is_interleaved() {
            return self.set_aside("thinking_delta", fact);
        }
        let memory = &mut *self.memory;
        memory.resume();
        let message = memory.message();
        // Thoughts have a counter of their own, because fewer readers see reasoning than text.
        let part = memory.thought.take().unwrap_or_else(|| next_id("ethos-thought", &mut memory.thoughts_made));
        memory.thought = Some(part.clone());
        let text = take_text(&mut fact, "thinking").unwrap_or_default();
        self.chunk(EventType::ReasoningDelta, text, message, part, fact);
    }

    fn chunk(&mut self, class: EventType, text: String, message: MessageId, part: PartId, rest: Fact) {
        let audience = if class == EventType::ReasoningDelta { Audience::Dashboard } else { Audience::User };
        let draft = Draft::new(class).with_text(text).with_audience(audience).with_message(message).with_part(part);
        self.push(carry_all(draft, rest));
    }

    /// Ends the open reasoning part, because the model continues with something else.
    ///
    /// The end has no text: the streamed chunks are the reasoning.
    pub(super) fn end_thought(&mut self) {
        if let Some(part) = self.memory.thought.take() {
            let draft = Draft::new(EventType::ReasoningSummary).with_audience(Audience::Dashboard);
            self.push(draft.with_message(self.memory.message.clone()).with_part(part));
        }
    }

    /// Ends the turn's message with the text of the turn's end.
    ///
    /// The projection compares this text with all parts and changes only the differences. Text that a tool returned is
    /// a separate part beside the streamed ones.
    pub(super) fn answer(&mut self, text: Option<String>) {
        self.end_thought();
        let mut text = text.filter(|text| !text.is_empty());
        if text.is_none() && !self.memory.has_streamed() {
            return;
        }
        let message = self.memory.message();
        if self.memory.has_streamed() && text.as_deref().is_some_and(|text| self.memory.is_returned_by_a_tool(text)) {
            let part = next_id("ethos-part", &mut self.memory.parts_made);
            self.whole(text.take(), message.clone(), Some(part));
        }
        self.whole(text, message, None);
    }

    pub(super) fn whole(&mut self, text: Option<String>, message: MessageId, part: Option<PartId>) {
        self.push(Draft::new(EventType::TextFinal).with_text(text).with_message(message).with_part(part));
    }
}
