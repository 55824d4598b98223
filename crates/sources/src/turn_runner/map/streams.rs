//! Messages and thoughts: append-only streams of text, each the only part of its own message.
//!
//! `aDelta` is the new chunk, `full` the whole text so far. The adapter forwards chunks; `full` appears in the log
//! once, at the seal. Between chunks the adapter stores the stream's length and hash. Together with `full` they reveal
//! a missed, a repeated or a different chunk. A sealed stream accepts no more text. An unsealed stream ends with its
//! run.

use super::{EventHandler, TurnRunner, key_of};
use crate::Fact;
use crate::bounded::keyed;
use crate::digest::TextDigest;
use crate::members::{self, diagnostic, id_from, take_flag, take_text, take_time};
use crate::turn::Channel;
use proscenium_model::{Audience, Draft, MessageId, Owner, PartId, Persistence, Scope};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most open streams.
/// Real turns have a handful.
///
/// Beyond this limit the adapter evicts the oldest; the next chunk of that stream starts it anew.
pub(super) const STREAMS_OPEN_MAX: usize = 64;

/// Returns the id of the only part of a stream's message.
const fn part_of(channel: Channel) -> &'static str {
    match channel {
        Channel::Text => "turnrunner-text",
        Channel::Reasoning => "turnrunner-thought",
    }
}

/// Creates a chunk or a seal. ADK intends thoughts for operators of the agent, not for its users.
fn draft(channel: Channel, seals: bool) -> Draft {
    let draft = Draft::new(if seals { channel.end() } else { channel.delta() });
    if channel == Channel::Reasoning { draft.with_audience(Audience::Dashboard) } else { draft }
}

/// An unsealed stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stream {
    pub key: u64,
    /// The digest of the forwarded text.
    forwarded: TextDigest,
}

keyed! { Stream: u64 = key; }

/// The effect of a chunk on a stream.
#[derive(Debug, PartialEq, Eq)]
enum ChunkEffect<'t> {
    /// The chunk appends `text`, of which `missed` bytes belong to missed chunks.
    Text { text: &'t str, missed: usize },
    /// The stream differs from the forwarded text; this is its whole text.
    Other(&'t str),
    /// The chunk is an old one.
    Stale,
}

impl Stream {
    fn effect_of<'t>(&self, delta: &'t str, full: Option<&'t str>) -> ChunkEffect<'t> {
        // A producer may omit `full` or leave it empty. The chunk is then the only information.
        let Some(full) = full.filter(|full| !full.is_empty() && full.ends_with(delta)) else {
            return ChunkEffect::Text { text: delta, missed: 0 };
        };
        let known = self.forwarded.len();
        if full.len() == known + delta.len() {
            return ChunkEffect::Text { text: delta, missed: 0 };
        }
        if full.len() < known {
            return ChunkEffect::Stale;
        }
        match full.get(known..).filter(|_| self.forwarded.is_prefix_of(full)) {
            Some(text) => ChunkEffect::Text { text, missed: text.len().saturating_sub(delta.len()) },
            None => ChunkEffect::Other(full),
        }
    }
}

impl TurnRunner {
    fn stream(&mut self, key: u64) -> &mut Stream {
        if !self.streams.has(&key) {
            if let Some(oldest) = self.streams.add(Stream { key, forwarded: TextDigest::default() }) {
                self.used.forget(oldest.key);
            }
            self.used.add(key);
        }
        self.streams.find_mut(&key).expect("the lines above have added it")
    }

    fn seal(&mut self, key: u64) {
        self.streams.take(&key);
        self.used.add(key);
    }
}

impl EventHandler<'_> {
    pub(super) fn chunk(&mut self, channel: Channel, mut payload: Fact) {
        let id = take_text(&mut payload, "id").unwrap_or_default();
        let key = key_of(self.event, &id);
        let message: MessageId = id_from(&self.memory.name(key, &id));
        let delta = take_text(&mut payload, "aDelta").unwrap_or_default();
        let full = take_text(&mut payload, "full");
        let seals = take_flag(&mut payload, "isComplete").unwrap_or(false);
        let at = take_time(&mut payload, "updatedAt");
        let part = PartId::new(part_of(channel)).ok();
        let of = |draft: Draft| draft.with_message(message.clone()).with_part(part.clone()).with_timestamp(at.clone());
        if self.memory.has_ended(key) {
            payload.shift_remove("createdAt");
            return self.late_chunk(of(draft(channel, false)), delta, payload);
        }
        let created = payload.shift_remove("createdAt");
        let completed = if seals { payload.shift_remove("completedAt") } else { None };
        self.carry_remaining(payload);
        let stream = self.memory.stream(key);
        let is_first = stream.forwarded.is_empty();
        let added = match stream.effect_of(&delta, full.as_deref()) {
            ChunkEffect::Text { text, missed } => {
                stream.forwarded.update(text.as_bytes());
                let draft =
                    of(draft(channel, false)).with_text(text.to_owned()).with_some("missedBytes", (missed > 0).then_some(missed));
                Some(draft).filter(|_| !text.is_empty())
            }
            // The seal below contains the whole text.
            _ if seals => None,
            ChunkEffect::Other(full) if channel == Channel::Text => {
                stream.forwarded = TextDigest::of(full.as_bytes());
                Some(of(repair(&message, channel, full)))
            }
            // A repair snapshot cannot replace a thought, so the thought stays as it is until its seal.
            ChunkEffect::Other(_) => {
                stream.forwarded.update(delta.as_bytes());
                Some(of(draft(channel, false)).with_text(delta.clone())).filter(|_| !delta.is_empty())
            }
            ChunkEffect::Stale => {
                let event = Fact::from_iter([("aDelta".to_owned(), delta.as_str().into())]);
                let draft = diagnostic("stale_chunk", self.event, event).with("toldBytes", stream.forwarded.len());
                Some(of(draft).with("fullBytes", full.as_ref().map_or(0, String::len)))
            }
        };
        let has_text = !stream.forwarded.is_empty();
        if let Some(mut draft) = added {
            if is_first {
                draft.set("createdAt", created);
                draft.add_ref("nativeId", (message.as_str() != id).then_some(id));
            }
            self.push(draft);
        }
        if seals {
            self.memory.seal(key);
            // An empty `full` of a non-empty stream means that the producer does not track the whole text.
            let whole = full.filter(|full| !full.is_empty() || !has_text);
            self.push(of(draft(channel, true)).with_text(whole).with_some("completedAt", completed));
        }
    }

    /// Handles a chunk of a sealed stream.
    ///
    /// The chunk keeps its part, so the ledger rejects it as late and reports it to the producer. A chunk without text
    /// becomes only a diagnostic.
    fn late_chunk(&mut self, chunk: Draft, delta: String, payload: Fact) {
        if delta.is_empty() {
            let mut draft = diagnostic("write_after_seal", self.event, payload);
            (draft.ids, draft.timestamp) = (chunk.ids, chunk.timestamp);
            return self.push(draft);
        }
        self.carry_remaining(payload);
        self.push(chunk.with_text(delta));
    }
}

/// Creates a repair snapshot that replaces the message's text with `full`.
fn repair(message: &MessageId, channel: Channel, full: &str) -> Draft {
    let part = json!({ "partId": part_of(channel), "kind": "assistant_text", "text": [full] });
    let draft = members::repair(message, json!([part])).with("reason", "what was streamed is not what the source has");
    draft.with_owner(Owner::Runtime).with_scope(Scope::Message).with_persistence(Persistence::EphemeralLive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a stream that has forwarded this text.
    fn forwarded(text: &str) -> Stream {
        Stream { key: 1, forwarded: TextDigest::of(text.as_bytes()) }
    }

    #[test]
    fn the_effect_of_a_chunk_follows_from_the_forwarded_and_the_full_text() {
        let text = |text, missed| ChunkEffect::Text { text, missed };
        for (before, delta, full, expected) in [
            ("", "a", Some("a"), text("a", 0)),
            ("a b ", "c", Some("a b c"), text("c", 0)),
            ("a b ", "c", None, text("c", 0)),
            ("a b ", "", Some("a b "), text("", 0)),
            // Missed chunks: in the middle, at the start, the whole text.
            ("a ", "c", Some("a b c"), text("b c", 2)),
            ("", "c", Some("a b c"), text("a b c", 4)),
            ("a ", "", Some("a b c"), text("b c", 3)),
            // Repeated chunks: the last one, an old one, and half of one.
            ("a b c", "c", Some("a b c"), text("", 0)),
            ("a b c", "b ", Some("a b "), ChunkEffect::Stale),
            ("a b", "b c", Some("a b c"), text(" c", 0)),
            // Different text.
            ("a x ", "c", Some("a b c d"), text("c", 0)),
            ("a x ", "c", Some("a b dc"), ChunkEffect::Other("a b dc")),
            ("a b c", "é", Some("a b é"), ChunkEffect::Other("a b é")),
            // An empty `full`.
            ("a b ", "c", Some(""), text("c", 0)),
        ] {
            assert_eq!(forwarded(before).effect_of(delta, full), expected, "{before:?} {delta:?} {full:?}");
        }
    }
}
