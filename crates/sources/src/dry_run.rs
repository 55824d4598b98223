//! A run without a log, for tests and benchmarks.

use super::ledger::Ledger;
use super::{Adapter, Drafts, Fact, FactError, SourceKind};
use proscenium_model::stored::StoredError;
use proscenium_model::{Draft, Ids};

/// The state of a source, and the ledger of its drafts.
pub struct DryRun {
    source: &'static SourceKind,
    /// The state of the source.
    pub adapter: Box<dyn Adapter>,
    /// What the drafts so far have told.
    pub ledger: Ledger,
}

impl DryRun {
    /// A run at its beginning.
    #[must_use]
    pub fn new(source: &'static SourceKind) -> Self {
        Self { source, adapter: (source.fresh)(), ledger: Ledger::default() }
    }

    /// Returns the drafts of one fact, as they are before the ledger stamps them. A refused fact changes nothing.
    ///
    /// # Errors
    /// [`FactError`] for an invalid fact.
    pub fn adapt(&mut self, fact: Fact, given: &Ids) -> Result<Vec<Draft>, FactError> {
        let drafts = self.apply(fact, given)?;
        self.record(&mut drafts.clone());
        Ok(drafts)
    }

    /// Returns the drafts of one fact, as the ledger stamps them. A refused fact changes nothing.
    ///
    /// # Errors
    /// [`FactError`] for an invalid fact.
    pub fn stamp(&mut self, fact: Fact, given: &Ids) -> Result<Vec<Draft>, FactError> {
        let mut drafts = self.apply(fact, given)?;
        self.record(&mut drafts);
        Ok(drafts)
    }

    fn apply(&mut self, fact: Fact, given: &Ids) -> Result<Vec<Draft>, FactError> {
        let (event, mut drafts) = ((self.source.parse)(fact)?, Vec::new());
        self.adapter.apply_event(event, given, Drafts { ledger: &self.ledger, drafts: &mut drafts });
        Ok(drafts)
    }

    fn record(&mut self, drafts: &mut [Draft]) {
        for draft in drafts {
            self.ledger.record(draft, 0);
        }
    }

    /// Serialises the source's state, as [`Adapter::save`].
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        self.adapter.save()
    }

    /// Replaces the source's state with the one that was saved.
    ///
    /// # Errors
    /// As [`SourceKind::restore`].
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), StoredError> {
        self.adapter = (self.source.restore)(saved)?;
        Ok(())
    }
}
