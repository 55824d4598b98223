//! The partial messages of the main agent.
//!
//! Each block comes in chunks, then whole as an `assistant` line, then its stop. A stream that breaks leaves blocks
//! without a line: they are void.

use super::EventHandler;
use crate::Fact;
use crate::members::{diagnostic, repair, take_members, take_text};
use crate::turn::error;
use proscenium_model::{Audience, Draft, EventType, MessageId, Owner, PartId, Phase, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most blocks of a partial message that are remembered. Real messages have a handful.
const BLOCKS_MAX: usize = 128;

/// The partial message of the main agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenMessage {
    pub id: MessageId,
    pub blocks: Vec<Block>,
}

/// A block of the partial message that has no `assistant` line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    pub index: u64,
    kind: BlockKind,
    /// For a tool: the call.
    call: Option<ToolCallId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BlockKind {
    Text,
    Thought,
    Tool,
    Other,
}

impl BlockKind {
    pub fn of(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "thinking" => Self::Thought,
            "tool_use" | "server_tool_use" | "mcp_tool_use" => Self::Tool,
            _ => Self::Other,
        }
    }
}

/// The part of a message's block.
pub(super) fn part_of(index: u64) -> PartId {
    PartId::new(&index.to_string()).expect("a number is a valid id")
}

impl EventHandler<'_> {
    pub(super) fn stream_event(&mut self, mut fact: Fact) {
        let parent = take_text(&mut fact, "parent_tool_use_id");
        fact.shift_remove("parent_tool_use_id");
        let named = take_text(&mut fact, "api_message_id");
        let abandoned = fact.shift_remove("abandoned_blocks");
        let mut event = take_members(&mut fact, "event", "value");
        let kind = take_text(&mut event, "type").unwrap_or_default();
        if parent.is_some() {
            // No version does this today; a child's chunks must not pass for the main agent's.
            event.insert("parent".into(), parent.into());
            return self.push(diagnostic("child_stream", &kind, event));
        }
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        match kind.as_str() {
            "message_start" => {
                let id = event.get("message").and_then(|message| message.get("id")).and_then(Value::as_str);
                self.close_message();
                if let Some(id) = id.or(named.as_deref()) {
                    let id = self.begin_message(super::id_from(id));
                    self.memory.message = Some(OpenMessage { id, blocks: Vec::new() });
                }
                event.extend(fact);
                self.push(diagnostic("message_start", "stream_event", event));
            }
            "content_block_start" => self.block_start(index, event, fact),
            "content_block_delta" => self.block_delta(index, event, fact),
            "message_stop" => {
                let from = abandoned.as_ref().and_then(|blocks| blocks.get("from_block_index")).and_then(Value::as_u64);
                if let Some(from) = from {
                    self.retract(from);
                }
                self.close_message();
            }
            "message_delta" => self.push(diagnostic("message_delta", "stream_event", event)),
            "content_block_stop" | "ping" => {}
            _ => self.push(diagnostic("stream_event", &kind, event)),
        }
    }

    /// Returns the id of a message that begins. Some servers use one id for every message.
    fn begin_message(&mut self, named: MessageId) -> MessageId {
        let uses = self.memory.message_uses.find(&named).map_or(0, |(_, uses)| *uses);
        self.memory.message_uses.add((named.clone(), uses + 1));
        self.newest_message(named)
    }

    /// Returns the id of the newest message under an id.
    pub(super) fn newest_message(&self, named: MessageId) -> MessageId {
        match self.memory.message_uses.find(&named) {
            Some((_, uses)) if *uses > 1 && self.agent.is_none() => super::id_from(&format!("{named}~{uses}")),
            _ => named,
        }
    }

    fn block_start(&mut self, index: u64, mut event: Fact, rest: Fact) {
        let mut block = take_members(&mut event, "content_block", "value");
        let name = take_text(&mut block, "type").unwrap_or_default();
        let kind = BlockKind::of(&name);
        let raw = take_text(&mut block, "id").filter(|_| kind == BlockKind::Tool);
        let call = raw.as_deref().map(|raw| self.call_id(raw));
        if let Some(message) = self.memory.message.as_mut().filter(|message| message.blocks.len() < BLOCKS_MAX) {
            message.blocks.push(Block { index, kind, call });
        }
        match (kind, raw) {
            (BlockKind::Text, _) => {
                let text = take_text(&mut block, "text").unwrap_or_default();
                self.chunk(EventType::TextDelta, index, text, rest);
            }
            (BlockKind::Thought, _) => {
                let text = take_text(&mut block, "thinking").unwrap_or_default();
                self.chunk(EventType::ReasoningDelta, index, text, rest);
            }
            (BlockKind::Tool, Some(raw)) => {
                let tool = take_text(&mut block, "name").unwrap_or_default();
                self.start_call(&raw, &tool, true);
            }
            _ => {}
        }
    }

    fn block_delta(&mut self, index: u64, mut event: Fact, rest: Fact) {
        let mut delta = take_members(&mut event, "delta", "value");
        match take_text(&mut delta, "type").as_deref() {
            Some("text_delta") => {
                let text = take_text(&mut delta, "text").unwrap_or_default();
                self.chunk(EventType::TextDelta, index, text, rest);
            }
            Some("thinking_delta") => {
                let text = take_text(&mut delta, "thinking").unwrap_or_default();
                self.chunk(EventType::ReasoningDelta, index, text, rest);
            }
            Some("input_json_delta") => {
                let text = take_text(&mut delta, "partial_json").filter(|text| !text.is_empty());
                let blocks = self.memory.message.as_ref().map_or(&[][..], |message| &message.blocks);
                let call = blocks.iter().rfind(|block| block.index == index).and_then(|block| block.call.clone());
                if let (Some(text), Some(call)) = (text, call) {
                    let draft = self.about_call(EventType::ToolArgs, call).call(|call| call.input_text = Some(text));
                    self.push_carrying(draft.with_owner(Owner::Model).with_audience(Audience::Dashboard), rest);
                }
            }
            // Only the provider can read it.
            Some("signature_delta") => {}
            kind => {
                let kind = kind.unwrap_or("unknown").to_owned();
                self.push(diagnostic("stream_delta", &kind, delta));
            }
        }
    }

    fn chunk(&mut self, class: EventType, index: u64, text: String, rest: Fact) {
        let Some(message) = self.memory.message.as_ref().map(|message| message.id.clone()) else {
            return self.push(diagnostic("chunk_without_message", "stream_event", rest).with("text", text));
        };
        self.memory.has_text |= class == EventType::TextDelta && !text.is_empty();
        self.push_carrying(Draft::new(class).with_text(text).with_message(message).with_part(part_of(index)), rest);
    }

    /// Ends the blocks of the partial message that have no line. The streamed chunks are their text.
    pub(super) fn close_message(&mut self) {
        let Some(OpenMessage { id, blocks }) = self.memory.message.take() else { return };
        for block in blocks {
            let class = match block.kind {
                BlockKind::Text => EventType::TextFinal,
                BlockKind::Thought => EventType::ReasoningSummary,
                BlockKind::Tool | BlockKind::Other => continue,
            };
            self.push(Draft::new(class).with_message(id.clone()).with_part(part_of(block.index)));
        }
    }

    /// Retracts the blocks from this index on that have no line: the connection broke, and another message follows.
    fn retract(&mut self, from: u64) {
        let Some(OpenMessage { id, blocks }) = &mut self.memory.message else { return };
        let id = id.clone();
        let (void, kept): (Vec<_>, Vec<_>) = blocks.drain(..).partition(|block| block.index >= from);
        *blocks = kept;
        let is_whole =
            void.first().is_some_and(|block| block.index == 0) && void.iter().any(|block| block.kind == BlockKind::Text);
        if is_whole {
            self.push(repair(&id, json!([])));
        }
        for block in void {
            match (block.kind, block.call) {
                (BlockKind::Tool, Some(call)) => {
                    let error = error(Some("retracted"), "the model's message broke off");
                    let draft = self.about_call(EventType::ToolFailed, call.clone()).call(|call| {
                        call.error = Some(Box::new(error.into()));
                        call.never_started = Some(true);
                    });
                    self.memory.calls.end(&call);
                    self.push(draft.with_phase(Phase::Cancelled));
                }
                (BlockKind::Text | BlockKind::Thought, _) if !is_whole => {
                    let is_text = block.kind == BlockKind::Text;
                    let class = if is_text { EventType::TextFinal } else { EventType::ReasoningSummary };
                    let draft = Draft::new(class).with_text(String::new()).with("retracted", true);
                    self.push(draft.with_message(id.clone()).with_part(part_of(block.index)));
                }
                _ => {}
            }
        }
    }

    /// Forgets the block whose line has come.
    pub(super) fn has_line(&mut self, message: &MessageId, index: u64) {
        if let Some(open) = self.memory.message.as_mut().filter(|open| open.id == *message) {
            open.blocks.retain(|block| block.index != index);
        }
    }
}
