//! The journal of a server without a disk.

use super::{Appended, Journal, Record};
use crate::log::StoreError;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// A journal in memory. Its records end with the process.
#[derive(Default)]
pub struct MemoryJournal {
    records: Mutex<Records>,
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

impl Journal for MemoryJournal {
    fn bounds(&self) -> (u64, u64) {
        let records = self.records.lock();
        (records.first(), records.last)
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
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
            return Err(StoreError::Failed { doing: "reading the journal", why: super::forgotten(after, records.first()) });
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
        while records.kept.front().is_some_and(|record| record.position < position) {
            records.kept.pop_front();
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
