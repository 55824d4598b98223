//! Text and reasoning streams, sent as start, content and end events or as chunks.
//!
//! A start opens a part at once, so that readers see the speaker before the first word. The end has no text: the
//! streamed chunks are the text. The adapter forwards late content under the same ids, and the ledger rejects it.

use super::{AgUi, EventHandler};
use crate::Fact;
use crate::bounded::keyed;
use crate::members::{RuntimeId, byte_count, carry_all, diagnostic, next_id, take_checked_id, take_id, take_text};
use crate::turn::Channel;
use proscenium_model::{AgentId, Audience, Draft, EventType, MessageId, Owner, PartId, Phase, Scope, Surface, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Map;

/// The most open messages. Beyond this limit the adapter ends the oldest.
pub(in crate::ag_ui) const STREAMS_MAX: usize = 64;

/// The most ended messages whose part count the adapter remembers.
pub(in crate::ag_ui) const ENDED_STREAMS_MAX: usize = 32;

/// The length of a stored role name, in characters.
const ROLE_CHARS_MAX: usize = 32;

/// A started message or reasoning stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stream {
    channel: Channel,
    message: MessageId,
    #[serde(default)]
    agent: Option<AgentId>,
    /// The part number: 1, plus 1 for each restart after an end.
    part: u32,
    /// The speaker's role. `None`: the assistant.
    #[serde(default)]
    role: Option<String>,
}

keyed! { Stream: Stream = ; }

impl Stream {
    fn is(&self, channel: Channel, message: &MessageId) -> bool {
        self.channel == channel && self.message == *message
    }

    fn part(&self) -> PartId {
        PartId::new(&part_name(self.channel.name(), self.part as usize)).expect("a short name with a number is a valid id")
    }

    fn draft(&self, class: EventType) -> Draft {
        let draft = Draft::new(class).words(|words| words.role.clone_from(&self.role));
        let mut draft = draft.with_message(self.message.clone()).with_part(self.part()).with_agent(self.agent.clone());
        if self.channel == Channel::Text && self.agent.is_some() {
            draft.surface = Surface::TeammateTranscript;
        }
        draft
    }
}

/// The item that the last chunk opened or continued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Chunk {
    Said(Channel, MessageId, Option<AgentId>),
    Called(ToolCallId, Option<AgentId>),
}

impl AgUi {
    /// Returns the newest stream of the message: an open one, otherwise an ended one.
    /// `matches_agent` filters by agent.
    fn stream(&self, channel: Channel, message: &MessageId, matches_agent: impl Fn(Option<&AgentId>) -> bool) -> Option<&Stream> {
        let is_it = |stream: &&Stream| stream.is(channel, message) && matches_agent(stream.agent.as_ref());
        self.streams.iter().rfind(is_it).or_else(|| self.ended_streams.iter().rfind(is_it))
    }

    /// Whether the run streamed this reasoning message.
    pub(super) fn knows_thought(&self, message: &MessageId) -> bool {
        self.stream(Channel::Reasoning, message, |_| true).is_some()
    }
}

impl EventHandler<'_> {
    // ── in three events ──

    pub(super) fn message_start(&mut self, channel: Channel, mut fact: Fact) {
        let message = match channel {
            Channel::Text => take_checked_id(&mut fact, "messageId"),
            Channel::Reasoning => self.thought(&mut fact, true),
        };
        let stream = self.open(channel, message, role(channel, &mut fact));
        self.delta(&stream, String::new(), fact);
    }

    pub(super) fn message_content(&mut self, channel: Channel, mut fact: Fact) {
        let message = match channel {
            Channel::Text => take_checked_id(&mut fact, "messageId"),
            Channel::Reasoning => self.thought(&mut fact, false),
        };
        let text = take_text(&mut fact, "delta").unwrap_or_default();
        // Without a start, the first chunk starts the stream. The ledger reports chunks after the end.
        let known = self.memory.stream(channel, &message, |opener| self.may_continue(opener)).cloned();
        let stream = known.unwrap_or_else(|| self.open(channel, message, None));
        self.delta(&stream, text, fact);
    }

    pub(super) fn message_end(&mut self, channel: Channel, event_type: &str, mut fact: Fact) {
        let message = match channel {
            Channel::Text => Some(take_checked_id(&mut fact, "messageId")),
            Channel::Reasoning => take_id(&mut fact, "messageId").or_else(|| self.memory.thinking.take()),
        };
        let known = message.as_ref().and_then(|id| self.memory.stream(channel, id, |opener| self.may_continue(opener)).cloned());
        match known {
            Some(stream) => self.end_stream(stream, fact),
            None => self.push_own(diagnostic("end_without_start", event_type, fact).with_message(message)),
        }
    }

    /// Returns the message of a reasoning event.
    /// Before 1.0 reasoning had no ids: each start begins a new message.
    fn thought(&mut self, fact: &mut Fact, begins: bool) -> MessageId {
        if let Some(named) = take_id(fact, "messageId") {
            return named;
        }
        match self.memory.thinking.take().filter(|_| !begins) {
            Some(known) => self.memory.thinking.insert(known).clone(),
            None => {
                let made: MessageId = next_id("ag-ui-message", &mut self.memory.messages_made);
                self.memory.thinking.insert(made).clone()
            }
        }
    }

    /// Opens a message's stream. An open stream continues; an ended stream continues in a new part.
    fn open(&mut self, channel: Channel, message: MessageId, role: Option<String>) -> Stream {
        let agent = self.agent.clone();
        let known = self.memory.stream(channel, &message, |opener| opener == agent.as_ref()).cloned();
        let stream = match known {
            Some(open) if self.memory.streams.has(&open) => return open,
            Some(ended) => {
                self.memory.ended_streams.take(&ended);
                Stream { part: ended.part.saturating_add(1), role, ..ended }
            }
            None => Stream { channel, message, agent, part: 1, role },
        };
        if self.memory.streams.len() == STREAMS_MAX {
            let oldest = self.memory.streams[0].clone();
            self.end_stream(oldest, Map::new());
        }
        self.memory.streams.push(stream.clone());
        stream
    }

    fn delta(&mut self, stream: &Stream, text: String, rest: Fact) {
        let draft = stream.draft(stream.channel.delta()).with_text(text);
        self.push(carry_all(draft, rest));
    }

    fn end_stream(&mut self, stream: Stream, rest: Fact) {
        self.push(carry_all(stream.draft(stream.channel.end()), rest));
        if let Some(stream) = self.memory.streams.take(&stream) {
            self.memory.ended_streams.push(stream);
        }
    }

    /// Ends all open streams: the run succeeded or paused.
    pub(super) fn end_streams(&mut self) {
        while let Some(oldest) = self.memory.streams.first().cloned() {
            self.end_stream(oldest, Map::new());
        }
        self.memory.thinking = None;
    }

    /// Closes all open streams without an end event: the end of the run shows that they were interrupted.
    pub(super) fn close_streams(&mut self) {
        for stream in self.memory.streams.take_all() {
            self.memory.ended_streams.push(stream);
        }
        self.memory.thinking = None;
    }

    // ── in chunks ──

    pub(super) fn message_chunk(&mut self, channel: Channel, mut fact: Fact) {
        let named: Option<MessageId> = take_id(&mut fact, "messageId");
        let text = take_text(&mut fact, "delta").unwrap_or_default();
        let goes_on = match &self.memory.chunk {
            Some(Chunk::Said(of, message, opener)) if *of == channel && self.may_continue(opener.as_ref()) => {
                Some(message.clone()).filter(|message| named.as_ref().is_none_or(|named| named == message))
            }
            _ => None,
        };
        let known =
            goes_on.and_then(|message| self.memory.stream(channel, &message, |opener| self.may_continue(opener)).cloned());
        let stream = match known {
            Some(stream) => stream,
            None => {
                self.end_chunk();
                let message: MessageId = named.unwrap_or_else(|| next_id("ag-ui-message", &mut self.memory.messages_made));
                let stream = self.open(channel, message.clone(), role(channel, &mut fact));
                self.memory.chunk = Some(Chunk::Said(channel, message, stream.agent.clone()));
                stream
            }
        };
        self.delta(&stream, text, fact);
    }

    /// Ends the item that chunks opened, because another event arrived.
    pub(super) fn end_chunk(&mut self) {
        match self.memory.chunk.take() {
            Some(Chunk::Said(channel, message, agent)) => {
                let open = self.memory.streams.iter().rfind(|s| s.is(channel, &message) && s.agent == agent).cloned();
                if let Some(stream) = open {
                    self.end_stream(stream, Map::new());
                }
            }
            Some(Chunk::Called(call, _)) => self.report_complete_args(&call, Map::new()),
            None => {}
        }
    }

    // ── around reasoning ──

    /// Reports the span of reasoning around its messages, for operators.
    pub(super) fn reasoning_span(&mut self, edge: &str, mut fact: Fact) {
        let message = take_id(&mut fact, "messageId");
        let mut draft =
            Draft::new(EventType::RunStatus).with("reasoning", edge).with_some("title", take_text(&mut fact, "title"));
        if edge == "started" {
            draft.phase = Phase::Reasoning;
        }
        self.push_own(carry_all(draft.with_audience(Audience::Dashboard).with_message(message), fact));
    }

    pub(super) fn reasoning_encrypted_value(&mut self, mut fact: Fact) {
        // Only the provider can read the value, so the draft has only its length.
        let bytes = fact.shift_remove("encryptedValue").map_or(0, |value| byte_count(&value));
        let entity = take_text(&mut fact, "entityId");
        let subtype = take_text(&mut fact, "subtype");
        let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", "reasoning_encrypted_value").with("bytes", bytes);
        (draft.owner, draft.scope, draft.phase) = (Owner::Model, Scope::Part, Phase::Reasoning);
        match subtype.as_deref() {
            Some("tool-call") => draft.ids.tool_call = entity.as_deref().and_then(ToolCallId::of),
            _ => draft.ids.message = entity.as_deref().and_then(MessageId::of),
        }
        self.push_own(carry_all(draft.with_some("subtype", subtype).with_some("entityId", entity), fact));
    }
}

/// Names a message's n-th part of a kind, from 1.
pub(super) fn part_name(of: &str, nth: usize) -> String {
    if nth == 1 { of.to_owned() } else { format!("{of}-{nth}") }
}

/// Takes the speaker's role, if it is not the assistant. Reasoning always belongs to the model.
fn role(channel: Channel, fact: &mut Fact) -> Option<String> {
    let role = take_text(fact, "role").filter(|_| channel == Channel::Text)?;
    (role != "assistant" && !role.is_empty()).then(|| role.chars().take(ROLE_CHARS_MAX).collect())
}
