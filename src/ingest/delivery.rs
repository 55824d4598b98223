//! What comes in: facts for one log, whose they are, and where whoever sends them may add.

use crate::log::LogId;
use crate::model::{Epoch, Ids, ProducerId, RunId, SessionId};
use crate::source::SourceKind;
use bytes::Bytes;
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// Numbered producers of one log.
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
    /// All or nothing; else what stands before a bad fact is kept.
    pub atomic: bool,
    /// The log's life that the facts before these went to, if they are the rest of something.
    pub life: Option<Epoch>,
    /// What whoever delivers is kept to; nothing, for most.
    pub fence: Option<Fence>,
}

/// What an envelope's row takes beside its ids and what its fact says, in bytes; about what a fact without members leads to.
pub const ENVELOPE_BYTES: usize = 448;
/// What one parsed JSON value takes in memory, in bytes.
const VALUE_BYTES: usize = 80;

impl Delivery {
    /// The bytes of the envelopes that the facts lead to, if each leads to one. The ids of the request stand in every envelope.
    #[must_use]
    pub fn envelope_bytes(&self) -> usize {
        self.envelope_bytes_of(self.facts.len())
    }

    /// The same for this many envelopes.
    pub(super) fn envelope_bytes_of(&self, count: usize) -> usize {
        self.facts.text_bytes().saturating_add(count.saturating_mul(envelope_bytes_with(&self.given)))
    }

    /// The memory that the delivery takes until it is durable: its text, the envelopes twice (once on their way into the store),
    /// and its largest fact while that is parsed. Nothing for facts that the server makes itself.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.facts.0 {
            Source::Values(_) => 0,
            Source::Text { values, .. } => {
                let parsed = values.saturating_mul(VALUE_BYTES);
                self.facts.text_bytes().saturating_add(self.envelope_bytes().saturating_mul(2)).saturating_add(parsed)
            }
        }
    }
}

/// What an envelope takes with these ids in it, beside what its fact says, in bytes.
#[must_use]
pub fn envelope_bytes_with(given: &Ids) -> usize {
    let mut bytes = ENVELOPE_BYTES;
    given.for_each(|name, id| bytes += name.len() + id.len() + "\"\":\"\",".len());
    bytes
}

/// The facts of a delivery. Text stays text until a fact's turn comes: parsed, a body takes up to forty times its size, and it
/// may be needed again.
pub struct Facts(Source);

enum Source {
    Values(Vec<Value>),
    Text {
        body: Bytes,
        /// Where each fact stands in the body.
        places: Vec<Range<usize>>,
        /// About how many JSON values the largest fact has.
        values: usize,
    },
}

impl From<Vec<Value>> for Facts {
    fn from(facts: Vec<Value>) -> Self {
        Self(Source::Values(facts))
    }
}

/// Facts up to this size, in bytes, are too small for what they take while they are parsed to count.
const SMALL_FACT_BYTES: usize = 16 * 1024;

impl Facts {
    /// The facts that stand at these places of a text.
    #[must_use]
    pub fn of_text(body: Bytes, places: Vec<Range<usize>>) -> Self {
        let large = places.iter().filter(|place| place.len() > SMALL_FACT_BYTES);
        let values = large.map(|place| memchr::memchr3_iter(b',', b'[', b'{', &body[place.clone()]).count()).max().unwrap_or(0);
        Self(Source::Text { body, places, values })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Values(facts) => facts.len(),
            Source::Text { places, .. } => places.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of their text, in bytes; 0 for facts that were never text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match &self.0 {
            Source::Values(_) => 0,
            Source::Text { body, .. } => body.len(),
        }
    }

    /// The fact of this index.
    ///
    /// # Errors
    /// For text that is not JSON.
    pub(super) fn get(&self, index: usize) -> Result<Value, serde_json::Error> {
        match &self.0 {
            Source::Values(facts) => Ok(facts[index].clone()),
            Source::Text { body, places, .. } => serde_json::from_slice(&body[places[index].clone()]),
        }
    }

    /// What is wrong with the JSON of the first fact from this index on whose text is not JSON.
    pub(super) fn check(&self, from: usize) -> Option<(usize, serde_json::Error)> {
        let Source::Text { body, places, .. } = &self.0 else { return None };
        (from..).zip(places.get(from..)?).find_map(|(index, place)| {
            let checked = serde_json::from_slice::<serde::de::IgnoredAny>(&body[place.clone()]);
            checked.err().map(|error| (index, error))
        })
    }
}

/// To which runs and sessions somebody may add. A run is theirs by its name or by its session, and the session is what the
/// run's first envelope that names one says: so where a delivery decides that, it is looked at here, in the one place
/// where nobody else can decide it meanwhile.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn(Reach<'_>) -> bool + Send + Sync>);

/// What a [`Fence`] is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'a> {
    /// A run that belongs to this session, if to any.
    Run(&'a RunId, Option<&'a SessionId>),
    /// A session, to bring a run into.
    Session(&'a SessionId),
}

impl Fence {
    /// A fence around what `has` says yes to.
    pub fn new(has: impl Fn(Reach<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(has))
    }

    pub(super) fn has(&self, what: Reach<'_>) -> bool {
        (self.0)(what)
    }
}
