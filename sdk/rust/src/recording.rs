//! A destination in memory, for tests of a tool.

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most facts that a [`Recording`] keeps.
/// It evicts the oldest.
pub const RECORDED_FACTS_MAX: usize = 10_000;

/// The facts that a reporter for tests has recorded.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    facts: Arc<Mutex<VecDeque<Bytes>>>,
}

impl Recording {
    /// Returns the newest [`RECORDED_FACTS_MAX`] facts in order, as a server would receive them.
    ///
    /// Call `Reporter::flush` first.
    #[must_use]
    pub fn facts(&self) -> Vec<Value> {
        let facts = self.facts.lock();
        facts.iter().map(|fact| serde_json::from_slice(fact).expect("this module wrote the facts as JSON")).collect()
    }

    pub(crate) fn extend(&self, facts: &[Bytes]) {
        let mut known = self.facts.lock();
        known.extend(facts.iter().cloned());
        let too_many = known.len().saturating_sub(RECORDED_FACTS_MAX);
        known.drain(..too_many);
    }
}
