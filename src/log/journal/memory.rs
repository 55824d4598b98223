//! The journal of a server without a disk.

use super::{Appended, Journal, JournalState, Record};
use crate::log::StoreError;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

/// A journal in memory. Its records end with the process.
#[derive(Default)]
pub struct MemoryJournal {
    records: Mutex<Records>,
    gate: Gate,
    keeps_all: bool,
}

impl MemoryJournal {
    /// An empty journal, and the gate that its appends pass.
    #[must_use]
    pub fn with_gate() -> (Self, Gate) {
        let journal = Self::default();
        let gate = journal.gate.clone();
        (journal, gate)
    }

    /// Forgets nothing, so that several stores can follow the journal.
    #[must_use]
    pub const fn keeping_all(mut self) -> Self {
        self.keeps_all = true;
        self
    }
}

/// A gate that every append passes. While closed it delays appends as a slow disk would; for tests.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Delays appends from now on.
    pub fn close(&self) {
        *self.0.0.lock() = true;
    }

    /// Releases all appends.
    pub fn open(&self) {
        *self.0.0.lock() = false;
        self.0.1.notify_all();
    }

    fn wait_open(&self) {
        let (is_closed, opened) = &*self.0;
        opened.wait_while(&mut is_closed.lock(), |is_closed| *is_closed);
    }
}

#[derive(Default)]
struct Records {
    last: u64,
    kept: VecDeque<Record>,
}

impl Records {
    fn first(&self) -> u64 {
        self.kept.front().map_or(self.last + 1, |record| record.position)
    }
}

impl JournalState for MemoryJournal {
    fn path(&self) -> PathBuf {
        PathBuf::from("memory")
    }
}

impl Journal for MemoryJournal {
    fn bounds(&self) -> (u64, u64) {
        let records = self.records.lock();
        (records.first(), records.last)
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        self.gate.wait_open();
        let mut records = self.records.lock();
        if records.last != expected {
            return Ok(Appended::Moved { last: records.last });
        }
        records.last += 1;
        let record = Record { position: records.last, body: parts.concat().into() };
        records.kept.push_back(record);
        Ok(Appended::At(records.last))
    }

    async fn read(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let records = self.records.lock();
        let Some(skipped) = (after + 1).checked_sub(records.first()) else {
            return Err(super::forgotten(after, records.first()));
        };
        let (mut read, mut bytes) = (Vec::new(), 0);
        for record in records.kept.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)) {
            bytes += record.body.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            read.push(record.clone());
        }
        Ok(read)
    }

    async fn truncate_before(&self, position: u64) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        while !self.keeps_all && records.kept.front().is_some_and(|record| record.position < position) {
            records.kept.pop_front();
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
