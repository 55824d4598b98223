//! What comes in: facts for one log, whose they are, and where whoever sends them may add.

use crate::log::LogId;
use crate::model::{Epoch, Ids, ProducerId, RunId, SessionId};
use crate::source::SourceKind;
use serde_json::Value;
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
    pub facts: Vec<Value>,
    /// The size of the facts' text, in bytes.
    pub bytes: usize,
    /// All or nothing; else what stands before a bad fact is kept.
    pub atomic: bool,
    /// The log's life that the facts before these went to, if they are the rest of something.
    pub life: Option<Epoch>,
    /// What whoever delivers is kept to; nothing, for most.
    pub fence: Option<Fence>,
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
