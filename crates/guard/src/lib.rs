//! The guard: the only path into the log.
//!
//! It redacts secrets, moves large bodies out, and returns the type that the log stores.
//!
//! Only this module can build a [`Guarded`], so every stored, sent, exported or replayed draft has passed it. An
//! envelope that refers to a body is returned together with that body.
//!
//! | file | contents |
//! | --- | --- |
//! | `traces` | one pass over a short text, which says whether a rule may match |
//! | `names` | which member names denote secrets |
//! | `secrets` | secrets in text, whole or streamed, with one scanner for both |
//! | `places`, `rules`, `recall` | which positions it reads, what it takes for a secret, what it keeps between chunks |
//! | `walk` | names and scanner applied to JSON, ids and words |
//! | `echo` | values that a producer must not repeat, whole or streamed |
//! | `stream` | the memory of an open stream, and when the stream ends |
//! | `offload` | values that are too large for an envelope |
//!
//! The guard protects against accidents: a tool that prints its environment, a model that repeats a key letter by
//! letter, a patch that sets `/apiKey`. It does not protect against deliberate smuggling: a password in base64 is text.
//!
//! The guard does not decide what a particular reader may see; the audience does (`model/audience.rs`).

#![warn(missing_docs)]

mod echo;
mod names;
mod offload;
mod places;
mod recall;
mod rules;
mod secrets;
mod stream;
#[cfg(test)]
mod tests;
mod traces;
mod walk;

pub use echo::KnownSecrets;
pub use offload::stays_inline;
pub use secrets::redact_text;
pub use walk::redact_value;

use bytes::Bytes;
use echo::Echoes;
use proscenium_model::halves::Halves;
use proscenium_model::{BlobId, Draft, Ids};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use stream::{SavedStream, Stream, StreamKey, Streamed};

/// The most streams of one log that may hold back a tail.
///
/// Beyond it the guard decides the oldest tail at once: it sends the tail if that is too short for a secret, else it
/// redacts it. Each stream holds a skeleton draft of about 1 KiB.
pub const HOLDING_STREAMS_MAX: usize = 64;

/// The most streams of one log that the guard remembers.
///
/// It remembers a stream until its final, while the stream's end might be the middle of a word, a name or a secret.
/// Beyond the limit it forgets the oldest. If that one was inside a secret, the guard redacts unknown streams
/// completely until the run starts or ends, because any of them might continue the secret.
pub const STREAMS_MAX: usize = 1024;

/// The most streams that are saved only because their text ends inside a word; the youngest stay.
///
/// For the others a restart treats the rest of the word as a new word, which can only hide more.
const SAVED_WORDS_MAX: usize = 64;

/// The limits of the guard.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The largest string or output that stays in the envelope, in bytes of its JSON text.
    ///
    /// 32 KiB by default. A whole payload may have eight times as much. The words of a conversation and the question of
    /// a decision stay up to 4 MiB ([`stays_inline`]).
    pub inline_bytes_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { inline_bytes_max: 32 * 1024 }
    }
}

/// A body that was moved out of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadedBody {
    /// The id by which envelopes name the body.
    pub id: BlobId,
    /// `text/plain; charset=utf-8` or `application/json`.
    pub media_type: &'static str,
    /// The body as it is stored.
    pub bytes: Bytes,
}

/// A draft without secrets and large bodies, and the bodies that it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded<'d> {
    draft: Cow<'d, Draft>,
    bodies: Vec<OffloadedBody>,
}

impl<'d> Guarded<'d> {
    /// The draft in its storable form.
    #[must_use]
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// The bodies to store with the draft.
    #[must_use]
    pub fn bodies(&self) -> &[OffloadedBody] {
        &self.bodies
    }

    /// The draft and its bodies.
    #[must_use]
    pub fn into_parts(self) -> (Cow<'d, Draft>, Vec<OffloadedBody>) {
        (self.draft, self.bodies)
    }

    /// The same with a draft of its own.
    #[must_use]
    pub fn into_owned(self) -> Guarded<'static> {
        Guarded { draft: Cow::Owned(self.draft.into_owned()), bodies: self.bodies }
    }
}

/// The guard of one log: it remembers the log's open text streams.
#[derive(Debug, Default)]
pub struct Guard {
    streams: HashMap<StreamKey, Stream>,
    /// What the deliverer of the next drafts must not repeat.
    known: Option<Arc<KnownSecrets>>,
    echoes: Echoes,
    /// The number of streams that hold a tail.
    holding: usize,
    /// The number of chunks so far, which gives the age of streams.
    clock: u64,
    /// Whether a stream was forgotten inside a secret.
    has_forgotten: bool,
    /// The newest id of each member, redacted. Facts repeat their ids, so most ids need no scan.
    known_ids: Ids,
    /// Whether [`Self::save`] may return another state than before.
    has_changed: bool,
}

/// A guard's memory as a log saves it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    streams: Vec<SavedStream>,
    has_forgotten: bool,
}

impl Guard {
    /// Creates the guard of an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a guard from the result of [`Self::save`].
    ///
    /// Tails that were not safe to save read `[redacted]`.
    ///
    /// # Errors
    /// The reason why the state is not a saved guard. A fresh guard instead would let the rest of a secret pass.
    pub fn restore(Memory { streams, has_forgotten }: Memory) -> Result<Self, String> {
        if streams.len() > STREAMS_MAX {
            return Err(format!("The saved guard has {} streams; the limit is {STREAMS_MAX}.", streams.len()));
        }
        let mut guard = Self { has_forgotten, ..Self::default() };
        for (n, saved) in streams.into_iter().enumerate() {
            guard.clock += 1;
            let (key, stream) =
                saved.restore(guard.clock).ok_or_else(|| format!("Stream {n} of the saved guard is inconsistent."))?;
            guard.holding += usize::from(stream.is_holding());
            guard.streams.insert(key, stream);
        }
        Ok(guard)
    }

    /// Returns the state to save in the commit of the passed drafts; `None` if there is none.
    ///
    /// The state goes to disk. So a tail that might be most of a secret is saved only as "redacted", with the rule for
    /// its rest. A caller that drops the guard while [`Self::is_lost_by_saving`] is true loses that text.
    #[must_use]
    pub fn save(&self) -> Option<Memory> {
        let mut kept: Vec<_> = self.streams.iter().filter(|(_, stream)| !is_forgettable(stream)).collect();
        kept.sort_unstable_by_key(|(_, stream)| std::cmp::Reverse(stream.age));
        let mut words = 0;
        kept.retain(|(_, stream)| {
            has_scan_context(stream) || {
                words += 1;
                words <= SAVED_WORDS_MAX
            }
        });
        if kept.is_empty() && !self.has_forgotten {
            return None;
        }
        let streams = kept.into_iter().rev().map(|(key, stream)| SavedStream::of(key, stream)).collect();
        Some(Memory { streams, has_forgotten: self.has_forgotten })
    }

    /// Whether [`Self::save`] may return another state than at the last call of this function.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.has_changed, false)
    }

    /// Whether a held tail is not safe to save.
    #[must_use]
    pub fn is_lost_by_saving(&self) -> bool {
        !self.echoes.is_empty() || self.streams.values().any(Stream::is_lost_by_saving)
    }

    /// Passes one draft: calls `send` with each storable draft, in order.
    ///
    /// A chunk whose text is held back entirely yields none. The draft is changed in place, because it is large. Marks of
    /// halves leave as pairs or as U+FFFD.
    pub fn pass(
        &mut self,
        policy: &Policy,
        new_id: &mut dyn FnMut() -> BlobId,
        draft: &mut Draft,
        halves: Halves,
        send: &mut dyn FnMut(Guarded<'_>),
    ) {
        // The streamed text is removed before the redaction: half a secret must not be judged as a whole text.
        let streamed = stream::take_streamed(draft);
        if halves == Halves::Marked {
            walk::settle_halves(draft);
        }
        walk::redact_draft(draft, &mut self.known_ids);
        let mut send = |draft: &mut Draft| send(guarded(policy, new_id, draft));
        match streamed {
            Some((member, text)) => self.pass_echo(draft, Streamed { member, text, halves }, &mut send),
            None => {
                if stream::ends_streams(draft) {
                    self.end(|key| key.is_ended_by(draft), &mut send);
                    if stream::ends_every_stream(draft) {
                        self.has_changed |= std::mem::take(&mut self.has_forgotten);
                    }
                }
                send(draft);
            }
        }
    }

    /// Decides every held tail now, because the producer has ended or the run settles.
    pub fn flush(&mut self, policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, send: &mut dyn FnMut(Guarded<'_>)) {
        self.end(|_| true, &mut |draft| send(guarded(policy, new_id, draft)));
        self.has_changed |= std::mem::take(&mut self.has_forgotten);
    }

    /// Sets what the deliverer of the next drafts must not repeat.
    pub fn set_known_secrets(&mut self, known: Option<Arc<KnownSecrets>>) {
        self.known = known;
    }

    /// Passes a chunk without the values that its producer must not repeat.
    fn pass_echo(&mut self, draft: &mut Draft, mut streamed: Streamed, send: &mut dyn FnMut(&mut Draft)) {
        if self.known.is_some() || !self.echoes.is_empty() {
            let came_empty = streamed.text.is_empty();
            let known = self.known.clone().unwrap_or_default();
            let before = self.echoes.feed(&known, draft, &mut streamed);
            self.pass_held(before, send);
            if !came_empty && streamed.text.is_empty() && !stream::has_further_members(draft, streamed.member) {
                return;
            }
        }
        self.pass_chunk(draft, streamed, send);
    }

    /// Passes text that was held back as the possible beginning of a known value.
    fn pass_held(&mut self, held: Vec<Draft>, send: &mut dyn FnMut(&mut Draft)) {
        for mut draft in held {
            if let Some((member, text)) = stream::take_streamed(&mut draft).filter(|(_, text)| !text.is_empty()) {
                self.pass_chunk(&mut draft, Streamed { member, text, halves: Halves::Absent }, send);
            }
        }
    }

    fn pass_chunk(&mut self, draft: &mut Draft, streamed: Streamed, send: &mut dyn FnMut(&mut Draft)) {
        let key = StreamKey::of(draft);
        self.clock += 1;
        if let Some(stream) = self.streams.get_mut(&key) {
            let held = stream.is_holding();
            // The saved form has the streams in the order of their ages.
            let was_youngest = std::mem::replace(&mut stream.age, self.clock) + 1 == self.clock;
            self.has_changed |= stream.pass_chunk(draft, streamed, send) || !was_youngest;
            self.holding = self.holding + usize::from(stream.is_holding()) - usize::from(held);
            if is_forgettable(stream) {
                self.streams.remove(&key);
            }
        } else {
            let mut stream = if self.has_forgotten { Stream::suppressed() } else { Stream::default() };
            stream.age = self.clock;
            stream.pass_chunk(draft, streamed, send);
            if is_forgettable(&stream) {
                return;
            }
            self.free_entry(send);
            self.holding += usize::from(stream.is_holding());
            self.streams.insert(key, stream);
            self.has_changed = true;
        }
        if self.holding > HOLDING_STREAMS_MAX
            && let Some(oldest) = self.streams.values_mut().filter(|stream| stream.is_holding()).min_by_key(|stream| stream.age)
        {
            oldest.decide_early(send);
            self.holding -= 1;
            self.has_changed = true;
        }
    }

    /// Frees an entry for one more stream.
    fn free_entry(&mut self, send: &mut dyn FnMut(&mut Draft)) {
        if self.streams.len() < STREAMS_MAX {
            return;
        }
        // Streams that only wait for the rest of a word can be forgotten safely. All of them go at once, so that a log
        // of many messages without finals does not search for the oldest with every chunk.
        self.streams.retain(|_, stream| has_scan_context(stream));
        if self.streams.len() < STREAMS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.age).map(|(key, _)| key.clone());
        if let Some(stream) = oldest.and_then(|key| self.streams.remove(&key)) {
            self.has_forgotten |= stream.scan.is_in_secret();
            self.holding -= usize::from(stream.is_holding());
            stream.end(send);
        }
    }

    /// Ends the streams that `ended` selects, the oldest first.
    fn end(&mut self, ended: impl Fn(&StreamKey) -> bool, send: &mut dyn FnMut(&mut Draft)) {
        if !self.echoes.is_empty() {
            let held = self.echoes.end(&self.known.clone().unwrap_or_default(), &ended);
            self.pass_held(held, send);
        }
        if self.streams.is_empty() {
            return;
        }
        self.has_changed = true;
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
            self.holding -= usize::from(stream.is_holding());
            stream.end(send);
        }
    }
}

/// Whether forgetting the stream could leak a secret.
fn has_scan_context(stream: &Stream) -> bool {
    stream.is_holding() || !stream.scan.is_plain()
}

fn is_forgettable(stream: &Stream) -> bool {
    !stream.is_holding() && stream.scan.is_fresh()
}

/// Builds a [`Guarded`] from a redacted draft, and moves its large bodies out.
///
/// No other function builds one.
fn guarded<'d>(policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, draft: &'d mut Draft) -> Guarded<'d> {
    let mut bodies = Vec::new();
    offload::offload(policy, new_id, draft, &mut bodies);
    Guarded { draft: Cow::Borrowed(draft), bodies }
}
