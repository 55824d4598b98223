//! The one door to the log: redacts secrets, moves large bodies out, and hands back the only value that the log takes.
//!
//! A [`Guarded`] cannot be made anywhere else, so what is stored, sent, exported or replayed has passed here. Bodies come
//! first: an envelope that refers to a body is handed on together with it.
//!
//! | file | holds |
//! | --- | --- |
//! | `names` | which member names bear secrets |
//! | `secrets` | secrets in text, whole or streamed: one machine for both |
//! | `places`, `rules`, `recall` | where it looks, what it calls a secret, what it remembers between chunks |
//! | `walk` | the two applied to JSON, ids and words |
//! | `stream` | what is remembered of an open stream, and when it ends |
//! | `offload` | what is too large for an envelope |
//!
//! Whom this is against: the tool that prints its environment, the model that repeats a key it was shown a letter a chunk,
//! the patch that sets `/apiKey`. Not against who wants to smuggle a secret past it: base64 of a password is text.
//!
//! Never asks whether something is worth hiding from *this* reader; that is the audience's (`model/audience.rs`).

mod names;
mod offload;
mod places;
mod recall;
mod rules;
mod secrets;
mod stream;
#[cfg(test)]
mod tests;
mod walk;

pub use secrets::redact_text;
pub use walk::redact_value;

use crate::model::{BlobId, Draft};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use stream::{Key, Saved, Stream};

/// The most streams of one log that may hold back a tail. Beyond it the oldest tail is decided at once: sent if it is too
/// short to be any secret, else redacted. Each holds the skeleton of a draft, about a KiB.
pub const HOLDING_STREAMS_MAX: usize = 64;

/// The most streams of one log that are remembered at all; a stream is remembered until its final, while its end might be
/// the middle of a word, a name or a secret. Beyond it the oldest is forgotten. If that one was in the middle of a secret,
/// streams that are not remembered are redacted whole until the run starts or ends anew: nobody could tell its rest from theirs.
pub const STREAMS_MAX: usize = 1024;

/// The most streams that are saved only because their text ends inside a word: the youngest. In the others a restart takes the
/// rest of the word for a new word, which can only hide more.
const SAVED_WORDS_MAX: usize = 64;

/// What the guard is told to do.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The largest string or output that stays in the envelope, in bytes of its JSON text. Default 32 KiB. A whole payload is
    /// at most eight times that.
    pub inline_bytes_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { inline_bytes_max: 32 * 1024 }
    }
}

/// A body that was moved out of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub id: BlobId,
    /// `text/plain; charset=utf-8` or `application/json`.
    pub media_type: &'static str,
    pub bytes: Bytes,
}

/// A draft without secrets and without large bodies, and the bodies it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded {
    draft: Draft,
    bodies: Vec<Body>,
}

impl Guarded {
    /// The draft as it may be stored.
    #[must_use]
    pub const fn draft(&self) -> &Draft {
        &self.draft
    }

    /// What must be stored with it.
    #[must_use]
    pub fn bodies(&self) -> &[Body] {
        &self.bodies
    }

    /// Both, to store them.
    #[must_use]
    pub fn into_parts(self) -> (Draft, Vec<Body>) {
        (self.draft, self.bodies)
    }
}

/// The memory of one log's open text streams, and the door itself.
#[derive(Debug, Default)]
pub struct Guard {
    streams: HashMap<Key, Stream>,
    /// How many of them hold a tail.
    holding: usize,
    /// Grows with every chunk; the age of streams.
    clock: u64,
    /// Whether a stream was forgotten in the middle of a secret.
    has_forgotten: bool,
}

/// A guard's memory as a log saves it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    streams: Vec<Saved>,
    has_forgotten: bool,
}

impl Guard {
    /// A guard at the beginning of a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A guard as it was when [`Self::save`] gave this, but for tails that were too telling to be saved: those read
    /// `[redacted]`.
    ///
    /// # Errors
    /// Why it is not what was saved. A guard that began anew instead would let the rest of a secret pass.
    pub fn restore(Memory { streams, has_forgotten }: Memory) -> Result<Self, String> {
        if streams.len() > STREAMS_MAX {
            return Err(format!("it has {} streams, more than {STREAMS_MAX}", streams.len()));
        }
        let mut guard = Self { has_forgotten, ..Self::default() };
        for (n, saved) in streams.into_iter().enumerate() {
            guard.clock += 1;
            let (key, stream) = saved.restore(guard.clock).ok_or_else(|| format!("its stream {n} contradicts itself"))?;
            guard.holding += usize::from(stream.holds());
            guard.streams.insert(key, stream);
        }
        Ok(guard)
    }

    /// The memory to save in the commit of the drafts that were passed; `None` when there is nothing to remember.
    ///
    /// It goes to disk, so a tail that might already be most of a secret is in it only as "redacted", and how to swallow the
    /// rest. A caller that drops the guard while [`Self::is_lost_by_saving`] loses that text.
    #[must_use]
    pub fn save(&self) -> Option<Memory> {
        let mut kept: Vec<_> = self.streams.iter().filter(|(_, stream)| !is_forgettable(stream)).collect();
        kept.sort_unstable_by_key(|(_, stream)| std::cmp::Reverse(stream.age));
        let mut words = 0;
        kept.retain(|(_, stream)| {
            matters(stream) || {
                words += 1;
                words <= SAVED_WORDS_MAX
            }
        });
        if kept.is_empty() && !self.has_forgotten {
            return None;
        }
        let streams = kept.into_iter().rev().map(|(key, stream)| Saved::of(key, stream)).collect();
        Some(Memory { streams, has_forgotten: self.has_forgotten })
    }

    /// Whether a tail is held that is too telling to be saved.
    #[must_use]
    pub fn is_lost_by_saving(&self) -> bool {
        self.streams.values().any(Stream::is_lost_by_saving)
    }

    /// Passes one draft; appends what may be stored, in order. A chunk whose text is held back entirely gives nothing.
    pub fn pass(&mut self, policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, mut draft: Draft, out: &mut Vec<Guarded>) {
        // The streamed text is taken out before the draft is redacted: half a secret is none, and must not be judged as whole.
        let streamed = stream::streamed_member(&draft).and_then(|member| match draft.payload.get_mut(member).map(Value::take) {
            Some(Value::String(text)) => Some((member, text)),
            _ => None,
        });
        walk::redact_draft(&mut draft);
        let mut send = |draft: Draft| out.push(guarded(policy, new_id, draft));
        match streamed {
            Some((member, text)) => self.take_chunk(draft, member, text, &mut send),
            None => {
                if stream::ends_streams(&draft) {
                    self.end(|key| key.is_ended_by(&draft), &mut send);
                    self.has_forgotten &= !stream::ends_every_stream(&draft);
                }
                send(draft);
            }
        }
    }

    /// Decides every held tail now: the producer has ended, or the run settles.
    pub fn flush(&mut self, policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, out: &mut Vec<Guarded>) {
        self.end(|_| true, &mut |draft| out.push(guarded(policy, new_id, draft)));
        self.has_forgotten = false;
    }

    fn take_chunk(&mut self, draft: Draft, member: &'static str, text: String, send: &mut dyn FnMut(Draft)) {
        let key = Key::of(&draft);
        self.clock += 1;
        if let Some(stream) = self.streams.get_mut(&key) {
            let held = stream.holds();
            stream.age = self.clock;
            stream.take(draft, member, text, send);
            self.holding = self.holding + usize::from(stream.holds()) - usize::from(held);
            if is_forgettable(stream) {
                self.streams.remove(&key);
            }
        } else {
            let mut stream = if self.has_forgotten { Stream::muted() } else { Stream::default() };
            stream.age = self.clock;
            stream.take(draft, member, text, send);
            if is_forgettable(&stream) {
                return;
            }
            self.make_room(send);
            self.holding += usize::from(stream.holds());
            self.streams.insert(key, stream);
        }
        if self.holding > HOLDING_STREAMS_MAX
            && let Some(oldest) = self.streams.values_mut().filter(|stream| stream.holds()).min_by_key(|stream| stream.age)
        {
            oldest.force(send);
            self.holding -= 1;
        }
    }

    /// Makes room for one more stream.
    fn make_room(&mut self, send: &mut dyn FnMut(Draft)) {
        if self.streams.len() < STREAMS_MAX {
            return;
        }
        // Who only waits for the rest of a word can be forgotten at no cost to secrecy. All at once, so that a log of many
        // messages without finals does not search for the oldest at every chunk.
        self.streams.retain(|_, stream| matters(stream));
        if self.streams.len() < STREAMS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.age).map(|(key, _)| key.clone());
        if let Some(stream) = oldest.and_then(|key| self.streams.remove(&key)) {
            self.has_forgotten |= stream.scan.is_in_secret();
            self.holding -= usize::from(stream.holds());
            stream.end(send);
        }
    }

    /// Ends the streams that `ended` chooses, the oldest first.
    fn end(&mut self, ended: impl Fn(&Key) -> bool, send: &mut dyn FnMut(Draft)) {
        let mut all: Vec<Stream> = Vec::new();
        self.streams.retain(|key, stream| {
            let ends = ended(key);
            if ends {
                all.push(std::mem::take(stream));
            }
            !ends
        });
        all.sort_by_key(|stream| stream.age);
        for stream in all {
            self.holding -= usize::from(stream.holds());
            stream.end(send);
        }
    }
}

/// Whether forgetting the stream could let something out.
fn matters(stream: &Stream) -> bool {
    stream.holds() || !stream.scan.is_plain()
}

fn is_forgettable(stream: &Stream) -> bool {
    !stream.holds() && stream.scan.is_fresh()
}

/// The one place where a draft becomes guarded: it has been redacted, and here its large bodies are moved out.
fn guarded(policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, mut draft: Draft) -> Guarded {
    let mut bodies = Vec::new();
    offload::offload(policy, new_id, &mut draft, &mut bodies);
    Guarded { draft, bodies }
}
