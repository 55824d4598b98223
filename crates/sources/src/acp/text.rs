//! Messages and thoughts of the model, and the user's prompts.
//!
//! Chunks of one message have one `messageId`, or none: a message without an id ends where another kind of content
//! comes. A thought and a text may have the same id, so each run of chunks is a part of its own.

use super::{EventHandler, block_text, id_from, internal, members_of, texts_of};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{carry_all, diagnostic, malformed, next_id, take_id, take_list, take_text};
use proscenium_model::{ArtifactId, Draft, EventType, MessageId, PartId, Phase, Scope, Surface, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Channel {
    Answer,
    Thought,
    Prompt,
    /// The prompt of the client, which the agent may repeat in chunks.
    Echo,
}

impl Channel {
    const fn delta(self) -> EventType {
        if matches!(self, Self::Thought) { EventType::ReasoningDelta } else { EventType::TextDelta }
    }

    const fn end(self) -> EventType {
        if matches!(self, Self::Thought) { EventType::ReasoningSummary } else { EventType::TextFinal }
    }
}

/// The part that a session's chunks continue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenPart {
    pub session: ThreadId,
    channel: Channel,
    message: MessageId,
    /// Whether the agent named the message.
    is_named: bool,
    part: PartId,
    text: TextDigest,
}

impl OpenPart {
    fn draft(&self, class: EventType) -> Draft {
        let role = (self.channel == Channel::Prompt).then(|| "user".to_owned());
        Draft::new(class).words(|words| words.role = role).with_message(self.message.clone()).with_part(self.part.clone())
    }
}

impl EventHandler<'_> {
    pub(super) fn chunk(&mut self, channel: Channel, mut update: Fact) {
        let named = take_id(&mut update, "messageId");
        let Some(block) = update.shift_remove("content") else { return self.no_content(channel, update) };
        let Some(text) = block_text(&block).map(str::to_owned) else {
            return self.artifact(block, named, None, update);
        };
        let digest = TextDigest::of(text.as_bytes());
        if channel == Channel::Prompt && (self.memory.texts.has(&digest) || self.echoes(&text)) {
            return self.repeated("user_message_chunk", text, update);
        }
        let Some(session) = self.session.clone() else { return };
        let is_blank = text.trim().is_empty() && update.is_empty();
        if is_blank && self.open_part(&session, channel, named.as_ref()).is_none() {
            // Readers would see an empty message.
            return self.push(internal("blank_chunk", "chunk").with("text", text));
        }
        let mut part = self.part(session, channel, named);
        part.text.update(text.as_bytes());
        let (mut draft, end) = (part.draft(channel.delta()).with_text(text), part.draft(channel.end()));
        self.memory.parts.add(part);
        // No end follows a chunk outside a turn.
        let is_late = self.is_outside_turns();
        draft.reopens = is_late;
        self.push_carrying(draft, update);
        if is_late {
            self.push(end);
        }
    }

    /// Whether a chunk repeats the prompt, as far as lengths tell: the memory has only the digest of the whole.
    fn echoes(&mut self, text: &str) -> bool {
        let (Some(session), Some(prompt)) = (&self.session, self.memory.texts.last().copied()) else { return false };
        let Some(echo) = self.memory.parts.find_mut(session).filter(|part| part.channel == Channel::Echo) else { return false };
        echo.text.update(text.as_bytes());
        echo.text.len() < prompt.len() || echo.text == prompt
    }

    /// Returns the open part that a chunk continues.
    fn open_part(&self, session: &ThreadId, channel: Channel, named: Option<&MessageId>) -> Option<&OpenPart> {
        let continues = |part: &&OpenPart| {
            part.channel == channel && part.is_named == named.is_some() && named.is_none_or(|named| *named == part.message)
        };
        self.memory.parts.find(session).filter(continues)
    }

    /// Returns the part that a chunk continues: the open one, or a new one.
    fn part(&mut self, session: ThreadId, channel: Channel, named: Option<MessageId>) -> OpenPart {
        if let Some(open) = self.open_part(&session, channel, named.as_ref()) {
            return open.clone();
        }
        self.close_part();
        let memory = &mut *self.memory;
        let is_named = named.is_some();
        let message = named.unwrap_or_else(|| next_id("acp-message", &mut memory.messages_made));
        let part = next_id("acp-part", &mut memory.parts_made);
        OpenPart { session, channel, message, is_named, part, text: TextDigest::default() }
    }

    /// Ends the session's open part. The streamed chunks are the text.
    pub(super) fn close_part(&mut self) {
        let Some(part) = self.session().and_then(|session| self.memory.parts.take(&session)) else { return };
        if part.channel == Channel::Echo {
            return;
        }
        if !part.text.is_empty() {
            self.memory.texts.add(part.text);
        }
        // Outside a turn every part has its end already.
        if !self.is_outside_turns() {
            self.push(part.draft(part.channel.end()));
        }
    }

    /// Ends the parts of all sessions, because the run ends. Their late chunks still continue them.
    pub(super) fn close_all_parts(&mut self) {
        self.memory.parts.retain(|part| part.channel != Channel::Echo);
        let own = self.session.clone();
        let parts: Vec<_> = self.memory.parts.iter().cloned().collect();
        for part in parts {
            self.memory.texts.add(part.text);
            self.session = Some(part.session.clone());
            self.push(part.draft(part.channel.end()));
        }
        self.session = own;
    }

    /// Reports what the user said.
    pub(super) fn said(&mut self, text: String) {
        self.memory.texts.add(TextDigest::of(text.as_bytes()));
        let message: MessageId = next_id("acp-message", &mut self.memory.messages_made);
        if let Some(session) = self.session.clone() {
            let part = PartId::new("prompt").expect("a short name is a valid id");
            let (channel, message, text) = (Channel::Echo, message.clone(), TextDigest::default());
            self.memory.parts.add(OpenPart { session, channel, message, is_named: false, part, text });
        }
        let draft = Draft::new(EventType::TextFinal).words(|words| {
            words.role = Some("user".to_owned());
            words.text = Some(text);
        });
        self.push(draft.with_message(message));
    }

    /// Replaces what chunks built: a whole message of protocol 2.
    pub(super) fn whole(&mut self, channel: Channel, mut update: Fact) {
        let named: Option<MessageId> = take_id(&mut update, "messageId");
        let blocks = take_list(&mut update, "content");
        let text = texts_of(&blocks).unwrap_or_default();
        let digest = TextDigest::of(text.as_bytes());
        if channel == Channel::Prompt && self.memory.texts.has(&digest) {
            return self.repeated("user_message", text, update);
        }
        let Some(session) = self.session.clone() else { return };
        let open =
            self.memory.parts.take(&session).filter(|part| part.channel == channel && named.as_ref() == Some(&part.message));
        let part = open.unwrap_or_else(|| self.part(session, channel, named));
        let draft = part.draft(channel.end()).with_text(text);
        self.memory.texts.add(digest);
        self.push_carrying(draft, update);
        for block in blocks.into_iter().filter(|block| block_text(block).is_none()) {
            self.artifact(block, Some(part.message.clone()), None, Map::new());
        }
    }

    fn no_content(&mut self, channel: Channel, update: Fact) {
        let name = match channel {
            Channel::Answer => "agent_message_chunk",
            Channel::Thought => "agent_thought_chunk",
            Channel::Prompt | Channel::Echo => "user_message_chunk",
        };
        self.push(malformed(name, update, "content as a content block"));
    }

    /// Keeps a text that the log has already, for internal readers.
    pub(super) fn repeated(&mut self, kind: &str, text: String, mut update: Fact) {
        update.insert("text".into(), text.into());
        self.push(diagnostic("repeated", kind, update));
    }

    /// Reports an image, a recording or a file that the agent shows.
    pub(super) fn artifact(&mut self, block: Value, message: Option<MessageId>, call: Option<ToolCallId>, rest: Fact) {
        let mut block = members_of(block, "content");
        let kind = take_text(&mut block, "type").unwrap_or_else(|| "unknown".into());
        if let Some(Value::Object(resource)) = block.get("resource")
            && kind == "resource"
        {
            let resource = resource.clone();
            block.shift_remove("resource");
            block.extend(resource);
        }
        let uri = block.get("uri").and_then(Value::as_str).map(str::to_owned);
        let artifact: ArtifactId = match &uri {
            Some(uri) => id_from(uri),
            None => next_id("acp-artifact", &mut self.memory.artifacts_made),
        };
        let names = ["mimeType", "uri", "name", "title", "description", "size"].map(|member| (member, member));
        let mut draft = Draft::new(EventType::ArtifactChanged).with("kind", kind).with_moved(&mut block, &names);
        for member in ["data", "blob", "text"] {
            if let Some(body) = block.get(member).and_then(Value::as_str).filter(|_| !draft.payload.contains_key("sha256")) {
                draft = draft.with("sha256", format!("{:x}", Sha256::digest(body))).with("bodyBytes", body.len());
            }
            draft.set(member, block.shift_remove(member));
        }
        (draft.scope, draft.phase, draft.surface) = (Scope::Artifact, Phase::Producing, Surface::ArtifactWorkspace);
        (draft.ids.artifact, draft.ids.message, draft.ids.tool_call) = (Some(artifact), message, call);
        self.push_carrying(carry_all(draft, block), rest);
    }
}
