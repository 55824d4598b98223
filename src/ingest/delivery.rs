//! Deliveries: facts for one log, with their producer and their write scope.

use crate::guard::KnownSecrets;
use crate::log::LogId;
use crate::log::agent_memory::MemoryWrite;
use crate::model::json::string_end;
use crate::model::{Epoch, Ids, OwnerId, ProducerId, RunId, SessionId, SessionOwner};
use crate::source::SourceKind;
use bytes::Bytes;
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// The most numbered producers of one log.
pub const PRODUCERS_MAX: usize = 10_000;

/// A producer's own numbering of its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: u64,
    /// The number of the body's first fact, from 0.
    pub seq: u64,
}

/// Facts of one source for one log.
pub struct Delivery {
    pub log: LogId,
    pub source: &'static SourceKind,
    /// Ids from the request.
    pub given: Ids,
    pub producer: Option<Producer>,
    pub facts: Facts,
    /// All or nothing; otherwise the facts before an invalid one are kept.
    pub atomic: bool,
    /// The log's epoch that earlier facts of the same body went to, if any.
    pub epoch: Option<Epoch>,
    /// What the caller may write to. `None`: unrestricted.
    pub write_scope: Option<WriteScope>,
    /// Whose a session is that begins with it.
    pub owner: BeginOwner,
    /// The `sub` of the caller's token.
    pub publisher: Option<Box<str>>,
    /// What a connector stores in the same commit. `None` for every other producer.
    pub memory: Option<MemoryWrite>,
    /// What the facts must not repeat, known to a connector. `None` for every other producer.
    pub secrets: Option<Arc<KnownSecrets>>,
}

/// Bytes of an envelope's row besides ids and fact; roughly the row of a fact without members.
pub const ENVELOPE_BYTES: usize = 448;
/// The memory of one parsed JSON value, in bytes.
const VALUE_BYTES: usize = 80;
/// The memory of a parsed array or object besides its own items, in values.
///
/// Its first allocation has room for four.
const CONTAINER_VALUES: u8 = 4;
/// Maximum memory of one parsed fact, in bytes.
///
/// A fact of small nested arrays takes up to a hundred times its text. No fact of ordinary size comes near the limit.
pub const PARSED_FACT_BYTES_MAX: usize = 256 * 1024 * 1024;

impl Delivery {
    /// Facts of an unrestricted caller, all or nothing.
    #[must_use]
    pub fn new(log: LogId, source: &'static SourceKind, facts: Facts) -> Self {
        let (given, owner) = (Ids::default(), BeginOwner::default());
        let (producer, epoch, write_scope, publisher, memory, secrets) = (None, None, None, None, None, None);
        Self { log, source, given, producer, facts, atomic: true, epoch, write_scope, owner, publisher, memory, secrets }
    }

    /// The bytes of the envelopes if each fact leads to one.
    ///
    /// Every envelope contains the ids of the request.
    #[must_use]
    pub fn envelope_bytes(&self) -> usize {
        self.envelope_bytes_of(self.facts.len())
    }

    /// The bytes of `count` envelopes.
    pub(super) fn envelope_bytes_of(&self, count: usize) -> usize {
        self.facts.text_bytes().saturating_add(count.saturating_mul(envelope_bytes_with(&self.given)))
    }

    /// The memory that the delivery needs until it is durable, in bytes.
    ///
    /// It is the sum of the text, the envelopes twice (once on their way into the store), and the largest fact while
    /// parsed. Zero for facts of the server itself.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.facts.0 {
            Source::Values(_) => 0,
            Source::Text { .. } => {
                let envelopes = self.envelope_bytes().saturating_mul(2);
                self.facts.text_bytes().saturating_add(envelopes).saturating_add(self.facts.parsed_fact_bytes())
            }
        }
    }
}

/// The most facts, and the most bytes of text, that are parsed ahead of the writer.
pub const PARSED_FACTS_MAX: usize = 1024;
pub const PARSED_TEXT_BYTES_MAX: usize = 1024 * 1024;

impl Delivery {
    /// Whether the facts from this index on may wait for the writer in parsed form.
    ///
    /// They may if they take no more than the admission has reserved for their envelopes, which do not exist until then:
    /// twice, plus as much again because a value counts at its largest. Text of small nested arrays takes a hundred times
    /// its size.
    pub(super) fn may_hold_parsed(&self, from: usize) -> bool {
        self.facts.len().saturating_sub(from) <= PARSED_FACTS_MAX
            && self.facts.text_bytes() <= PARSED_TEXT_BYTES_MAX
            && self.facts.parse_within(self.envelope_bytes().saturating_mul(4))
    }
}

/// The bytes of an envelope with these ids, besides its fact.
#[must_use]
pub fn envelope_bytes_with(given: &Ids) -> usize {
    let mut bytes = ENVELOPE_BYTES;
    given.for_each(|name, id| bytes += name.len() + id.len() + "\"\":\"\",".len());
    bytes
}

/// The facts of a delivery.
///
/// Text stays text until a fact is accepted: parsed, a body takes up to forty times its size, and the server may need
/// it again.
pub struct Facts(Source);

enum Source {
    Values(Vec<Value>),
    Text {
        body: Bytes,
        /// The range of each fact in the body.
        ranges: Vec<Range<usize>>,
        /// The approximate number of JSON values in the largest fact.
        values: usize,
    },
}

impl From<Vec<Value>> for Facts {
    fn from(facts: Vec<Value>) -> Self {
        Self(Source::Values(facts))
    }
}

/// The values that a byte of JSON text begins. Without branches, so that [`count_values_and_text`] reads many bytes at once.
fn values_of(byte: u8) -> u8 {
    u8::from(byte == b',') + CONTAINER_VALUES * (u8::from(byte == b'[') + u8::from(byte == b'{'))
}

/// Counts the values that a JSON text takes in memory as if it had no strings.
fn count_values_and_text(text: &[u8]) -> usize {
    // A sum of so few bytes fits into one.
    text.chunks(32).map(|chunk| usize::from(chunk.iter().map(|byte| values_of(*byte)).sum::<u8>())).sum()
}

/// Counts the values that a JSON text takes in memory, without parsing it.
///
/// Text within strings does not count.
fn count_values(mut text: &[u8]) -> usize {
    let mut values = 0;
    loop {
        let quote = memchr::memchr(b'"', text);
        let outside = &text[..quote.unwrap_or(text.len())];
        values += count_values_and_text(outside);
        let Some(quote) = quote else { return values };
        text = text.get(string_end(text, quote + 1) + 1..).unwrap_or_default();
    }
}

/// Up to this size, in bytes, the memory of a parsed fact is negligible.
const SMALL_FACT_BYTES: usize = 16 * 1024;

impl Facts {
    /// The facts in these ranges of a text.
    #[must_use]
    pub fn from_text(body: Bytes, ranges: Vec<Range<usize>>) -> Self {
        let large = ranges.iter().filter(|place| place.len() > SMALL_FACT_BYTES);
        let values = large.map(|place| count_values(&body[place.clone()])).max().unwrap_or(0);
        Self(Source::Text { body, ranges, values })
    }

    /// The approximate memory of the largest fact once it is parsed, in bytes; 0 for small facts.
    pub(super) fn parsed_fact_bytes(&self) -> usize {
        match &self.0 {
            Source::Values(_) => 0,
            Source::Text { values, .. } => values.saturating_mul(VALUE_BYTES),
        }
    }

    /// Whether all facts, once parsed, take about this many bytes at most. Facts that were never text take none.
    fn parse_within(&self, bytes: usize) -> bool {
        match &self.0 {
            Source::Values(_) => true,
            // The count with the text within strings is greater, and many times as fast.
            Source::Text { body, .. } => {
                count_values_and_text(body) * VALUE_BYTES <= bytes || count_values(body) * VALUE_BYTES <= bytes
            }
        }
    }

    /// The number of facts.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Values(facts) => facts.len(),
            Source::Text { ranges, .. } => ranges.len(),
        }
    }

    /// Whether the delivery has no fact.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the text, in bytes; 0 for facts that were never text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match &self.0 {
            Source::Values(_) => 0,
            Source::Text { body, .. } => body.len(),
        }
    }

    /// The text of the fact with this index, if it came as text.
    pub(super) fn text(&self, index: usize) -> Option<&[u8]> {
        match &self.0 {
            Source::Values(_) => None,
            Source::Text { body, ranges, .. } => Some(&body[ranges[index].clone()]),
        }
    }

    /// The fact with this index.
    ///
    /// # Errors
    /// For text that is not JSON.
    pub(super) fn get(&self, index: usize) -> Result<Value, serde_json::Error> {
        match &self.0 {
            Source::Values(facts) => Ok(facts[index].clone()),
            Source::Text { body, ranges, .. } => serde_json::from_slice(&body[ranges[index].clone()]),
        }
    }

    /// The JSON error of the first fact, from this index on, whose text is not JSON.
    pub(super) fn check(&self, from: usize) -> Option<(usize, serde_json::Error)> {
        let Source::Text { body, ranges, .. } = &self.0 else { return None };
        (from..).zip(ranges.get(from..)?).find_map(|(index, place)| {
            let checked = serde_json::from_slice::<serde::de::IgnoredAny>(&body[place.clone()]);
            checked.err().map(|error| (index, error))
        })
    }
}

/// Whose a session is that a caller begins. A child of a session has its parent's owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeginOwner {
    pub owner: Option<OwnerId>,
    /// Whether the request names the owner. A session that has another one refuses it then.
    pub is_requested: bool,
    /// The `sub` of the token that begins it.
    pub created_by: Option<Box<str>>,
}

/// The runs and sessions that a caller may write to.
///
/// A run is in scope by its name or by its session. The first envelope that names a session decides the run's session.
/// If a delivery decides it, the writer must check the scope, because only the writer's lock keeps others from deciding
/// first.
#[derive(Clone)]
pub struct WriteScope(Arc<dyn Fn(WriteTarget<'_>) -> bool + Send + Sync>);

/// The target that a [`WriteScope`] is asked about.
#[derive(Debug, Clone, Copy)]
pub enum WriteTarget<'a> {
    /// A run, with its session if it has one, and the owner of that session, or its own.
    Run(&'a RunId, Option<&'a SessionId>, Option<&'a OwnerId>),
    /// A session that a run would join, or that would begin.
    Session(&'a SessionId, SessionOwner<'a>),
}

impl std::fmt::Debug for WriteScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteScope")
    }
}

impl WriteScope {
    /// A scope of all targets for which `has` returns true.
    pub fn new(has: impl Fn(WriteTarget<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(has))
    }

    /// Returns whether the scope has this target.
    #[must_use]
    pub fn allows(&self, what: WriteTarget<'_>) -> bool {
        (self.0)(what)
    }
}
