//! Whole messages of the model and of its children, and the lines of the `user` role.
//!
//! An `assistant` line holds one block and no index: it is the ordinal of the lines of that message. A `user` line of the
//! process is a tool's result or talk of the runtime. The person's words come only from the host, or as a replay of it.

use super::event::Line;
use super::stream::{BlockKind, part_of};
use super::{EventHandler, id_from, internal};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{block_text, diagnostic, members_of, name_of, next_id, take_text};
use proscenium_model::{AgentId, Draft, EventType, MessageId, Persistence, Scope, Surface};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The model that the program names in messages that it wrote itself.
const SYNTHETIC: &str = "<synthetic>";

/// The beginnings of texts that no person typed, also where a line says that it repeats the person's input.
const RUNTIME_TALK: &[&str] = &["<local-command-", "<command-", "<system-reminder>", "[Request interrupted by user"];

/// The number of lines of a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LineCount {
    /// The agent and the message.
    pub message: String,
    count: u64,
}

impl EventHandler<'_> {
    /// Sets the agent of a line: a child has an id of its own, else that of the call that started it.
    pub(super) fn enter_agent(&mut self, line: &Line) {
        self.agent = line.parent.as_ref().map(|parent| {
            let by_call = || {
                self.memory.children.iter().find(|child| child.call.as_deref() == Some(parent)).map(|child| child.agent.clone())
            };
            line.agent.clone().or_else(by_call).unwrap_or_else(|| id_from::<AgentId>(parent))
        });
    }

    pub(super) fn assistant(&mut self, fact: Fact) {
        let mut line = Line::of(fact);
        self.enter_agent(&line);
        let is_error = line.message.get("model").and_then(Value::as_str) == Some(SYNTHETIC) || line.rest.contains_key("error");
        if is_error {
            return self.api_error(line);
        }
        let message = match line.id.take() {
            Some(named) => self.newest_message(named),
            None => next_id("claude-stream-json-message", &mut self.memory.messages_made),
        };
        for block in std::mem::take(&mut line.blocks) {
            let index = self.next_index(&message);
            if self.agent.is_none() {
                self.has_line(&message, index);
            }
            self.block(&message, index, block, std::mem::take(&mut line.rest));
        }
    }

    /// Reports a sentence about an error, which is no answer, and remembers the cause of the turn's failure.
    ///
    /// The result that follows may have no text, and the memory holds none.
    fn api_error(&mut self, mut line: Line) {
        let words: Vec<&str> = line.blocks.iter().filter_map(block_text).filter(|text| !text.trim().is_empty()).collect();
        if !words.is_empty() {
            let draft = Draft::new(EventType::RunStatus).with("notice", true).with("message", words.join("\n"));
            self.push(draft.with("severity", "error").with_scope(Scope::Turn));
        }
        if self.agent.is_none() {
            self.memory.api_error = line.rest.get("error").and_then(Value::as_str).map(name_of);
            self.memory.api_status = line.rest.get("api_error_status").and_then(Value::as_u64);
        }
        line.rest.insert("content".into(), line.blocks.into());
        self.push(diagnostic("api_error", "assistant", line.rest));
    }

    fn next_index(&mut self, message: &MessageId) -> u64 {
        let key = self.agent.as_ref().map_or_else(|| message.to_string(), |agent| format!("{agent}/{message}"));
        let key = name_of(&key);
        let index = self.memory.line_counts.find(&key).map_or(0, |known| known.count);
        self.memory.line_counts.add(LineCount { message: key, count: index + 1 });
        index
    }

    fn block(&mut self, message: &MessageId, index: u64, block: Value, rest: Fact) {
        let mut block = members_of(block, "value");
        let name = take_text(&mut block, "type").unwrap_or_default();
        let mut draft = match BlockKind::of(&name) {
            BlockKind::Text => {
                self.memory.has_text |= self.agent.is_none();
                Draft::new(EventType::TextFinal).with_text(take_text(&mut block, "text"))
            }
            BlockKind::Thought => {
                block.shift_remove("signature");
                Draft::new(EventType::ReasoningSummary).with_text(take_text(&mut block, "thinking"))
            }
            BlockKind::Tool => return self.requested(message, index, block, rest),
            BlockKind::Other if name.ends_with("_tool_result") => return self.server_result(block, rest),
            BlockKind::Other => {
                // Only the provider can read what is encrypted.
                let bytes = take_text(&mut block, "data").map(|data| data.len());
                let draft = internal(&name, "assistant").with("block", Value::Object(block)).with_some("bytes", bytes);
                return self.push_carrying(draft, rest);
            }
        };
        (draft.ids.message, draft.ids.part) = (Some(message.clone()), Some(part_of(index)));
        if draft.event_type == EventType::TextFinal {
            draft.persistence = Persistence::Transcript;
            if self.agent.is_some() {
                draft.surface = Surface::TeammateTranscript;
            }
        }
        draft.payload.extend(block);
        self.push_carrying(draft, rest);
    }

    // ── the role `user` ──

    pub(super) fn user(&mut self, fact: Fact) {
        let mut line = Line::of(fact);
        self.enter_agent(&line);
        let flag = |member: &str| line.rest.get(member) == Some(&Value::Bool(true));
        let is_replay = flag("isReplay") && !flag("isSynthetic");
        let is_prompt = self.takes_prompt();
        let blocks = std::mem::take(&mut line.blocks);
        let mut talk = Vec::new();
        for block in blocks {
            if block.get("type").and_then(Value::as_str) == Some("tool_result") {
                self.result_block(members_of(block, "value"), &mut line.rest);
                continue;
            }
            match block_text(&block) {
                Some(text) if (is_replay || is_prompt) && !is_runtime_talk(text) => {
                    let text = text.to_owned();
                    self.said(text);
                }
                _ => talk.push(block),
            }
        }
        if !talk.is_empty() {
            line.rest.insert("content".into(), talk.into());
            self.push(diagnostic("runtime_talk", "user", line.rest));
        }
    }

    /// Whether a text of this line is a child's prompt: the first one is.
    fn takes_prompt(&mut self) -> bool {
        let Some(agent) = &self.agent else { return false };
        self.memory.children.find_mut(agent).is_some_and(|child| !std::mem::replace(&mut child.has_prompt, true))
    }

    /// Reports words of the person, or a child's prompt. What the host sent comes again with a replay.
    fn said(&mut self, text: String) {
        let digest = TextDigest::of(text.as_bytes());
        if self.agent.is_none() && self.memory.inputs.take(&digest).is_some() {
            return self.push(internal("repeated", "user").with("text", text));
        }
        let message: MessageId = next_id("claude-stream-json-input", &mut self.memory.messages_made);
        let mut draft = Draft::new(EventType::TextFinal).with_message(message).words(|words| {
            words.role = Some("user".to_owned());
            words.text = Some(text);
        });
        if self.agent.is_some() {
            draft.surface = Surface::TeammateTranscript;
        }
        self.push(draft);
    }

    /// Reports what the host sends as the person's words.
    pub(super) fn host_input(&mut self, fact: Fact) {
        let line = Line::of(fact);
        let (texts, others): (Vec<_>, Vec<_>) = line.blocks.into_iter().partition(|block| block_text(block).is_some());
        for text in texts.iter().filter_map(block_text) {
            self.said(text.to_owned());
            self.memory.inputs.add(TextDigest::of(text.as_bytes()));
        }
        if !others.is_empty() || !line.rest.is_empty() {
            let mut rest = line.rest;
            rest.insert("content".into(), others.into());
            self.push(diagnostic("host_input", "user", rest));
        }
    }
}

fn is_runtime_talk(text: &str) -> bool {
    RUNTIME_TALK.iter().any(|head| text.trim_start().starts_with(head))
}
