//! Pages of several stored logs, merged in commit order.
//!
//! Each log is already in commit order, so a page is a merge: it finds each log's position at the page's start and
//! reads the earliest appends. A page scans a bounded number of appends and bytes, even if its reader sees none of
//! them; it then ends with the position of the next page.

use super::Filter;
use crate::log::row::{APPEND_ROWS_MAX, Rows};
use crate::log::{Limit, LogId, Store, StoreError};
use crate::model::{Epoch, Sequence};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bits of a position that count the rows of an append.
const ROW_BITS: u32 = 20;
const _: () = assert!((APPEND_ROWS_MAX as u64) < ALL_ROWS, "two rows of an append must not share a position");

/// A position in commit order: this many rows of this append, and all appends before it.
pub(super) fn order_position(position: u64, rows: u64) -> Sequence {
    // Older appends had no limit and may be longer: a reader interrupted there reads some of their rows again.
    Sequence(position << ROW_BITS | rows.min(ALL_ROWS))
}

/// The position of the first append.
pub const FIRST_POSITION: Sequence = Sequence(1 << ROW_BITS);

/// The row count that means all rows of an append.
pub(super) const ALL_ROWS: u64 = (1 << ROW_BITS) - 1;

/// The commit position and the row count of a position.
#[must_use]
pub const fn position_and_rows(at: Sequence) -> (u64, u64) {
    (at.0 >> ROW_BITS, at.0 & ALL_ROWS)
}

/// The limit of a page's texts before its last event, in bytes.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The limit of the rows that one page scans before its last append, in bytes.
const SCANNED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most appends that one page scans.
const SCANNED_APPENDS_MAX: usize = 16 * 1024;
/// The most rows of one read, for a stretch in which only one log has appends.
const BURST_ROWS_MAX: usize = 256;

/// One page of events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The events' positions and texts, in order.
    pub events: Vec<(Sequence, Bytes)>,
    /// The position at which the next page starts; `None` after the last page.
    pub next: Option<Sequence>,
    bytes: usize,
    scanned_bytes: usize,
    scanned_appends: usize,
}

impl Page {
    fn is_exhausted(&self) -> bool {
        self.scanned_bytes > SCANNED_BYTES_MAX || self.scanned_appends > SCANNED_APPENDS_MAX
    }

    /// Adds an event. Returns false if the page is full.
    fn take(&mut self, at: Sequence, view: &[u8], limit: usize) -> bool {
        let has_room = self.events.len() < limit && self.bytes <= PAGE_BYTES_MAX;
        if has_room {
            self.bytes += view.len();
            self.events.push((at, Bytes::copy_from_slice(view)));
        }
        has_room
    }
}

/// Several logs that are read together, up to one position of the store.
pub struct MergedLogs<'s> {
    pub store: &'s dyn Store,
    pub logs: Vec<(LogId, Epoch)>,
    /// The position up to which commits are visible.
    pub until: u64,
}

/// The last sequence of a log that a reader at this position in commit order has read.
///
/// It comes with whether the event of that sequence has this position.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn sequence_at(store: &dyn Store, log: &LogId, epoch: Epoch, at: Sequence) -> Result<(Sequence, bool), StoreError> {
    let (position, rows) = position_and_rows(at);
    let last = store.locate(log, epoch, position)?;
    if rows == ALL_ROWS || last == Sequence::NONE {
        return Ok((last, false));
    }
    // The row count applies only if the append at this position belongs to this log.
    let before = store.locate(log, epoch, position.saturating_sub(1))?;
    Ok((before.plus(rows).min(last), before < last))
}

/// The position in commit order of a sequence of a log. `None`: the log is shorter, or has another epoch.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn order_of(store: &dyn Store, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<Sequence>, StoreError> {
    let Some(position) = store.position_of(log, epoch, sequence)? else { return Ok(None) };
    let before = store.locate(log, epoch, position.saturating_sub(1))?;
    Ok(Some(order_position(position, sequence.0.saturating_sub(before.0))))
}

impl MergedLogs<'_> {
    /// The first events after `after` and before `before` that the filter accepts.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn forward(&self, want: &Filter, after: Sequence, before: Sequence, limit: usize) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let (mut heads, mut read) = (BinaryHeap::new(), Vec::with_capacity(self.logs.len()));
        for (n, (log, epoch)) in self.logs.iter().enumerate() {
            let (from, _) = sequence_at(self.store, log, *epoch, after)?;
            read.push((from, 1));
            heads.extend(self.store.position_of(log, *epoch, from.next())?.map(|position| Reverse((position, n))));
        }
        let mut at = after;
        while let Some(Reverse((position, n))) = heads.pop() {
            if position > self.until || order_position(position, 0) >= before {
                break;
            }
            if page.is_exhausted() {
                page.next = Some(at);
                break;
            }
            let (log, epoch) = &self.logs[n];
            let alone_to = heads.peek().map_or(self.until, |Reverse((other, _))| self.until.min(*other));
            let (from, burst) = &mut read[n];
            let appends = self.store.read(log, *epoch, *from, Limit { rows: *burst, bytes: SCANNED_BYTES_MAX / 32 })?;
            if appends.is_empty() {
                // The log was erased meanwhile.
                continue;
            }
            *burst = (*burst * 2).min(BURST_ROWS_MAX);
            let mut goes_on_at = None;
            for append in appends {
                if append.position > alone_to {
                    (goes_on_at, *burst) = (Some(append.position), 1);
                    break;
                }
                page.scanned_appends += 1;
                page.scanned_bytes += append.rows.len();
                for row in Rows(append.rows).filter(|row| row.sequence() > *from).collect::<Vec<_>>() {
                    let here = order_position(append.position, row.sequence().0 - append.before.0);
                    if here >= before {
                        return Ok(page);
                    }
                    if want.text_of(&row).is_some_and(|view| !page.take(here, view, limit)) {
                        page.next = Some(at);
                        return Ok(page);
                    }
                    (at, *from) = (here, row.sequence());
                }
            }
            let goes_on_at = match goes_on_at {
                None => self.store.position_of(log, *epoch, from.next())?,
                known => known,
            };
            heads.extend(goes_on_at.map(|position| Reverse((position, n))));
        }
        Ok(page)
    }

    /// The last events before `before` that the filter accepts, in order.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn backward(&self, want: &Filter, before: Sequence, limit: usize) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let mut at = before.min(order_position(self.until, ALL_ROWS).next());
        let newest = Sequence(at.0.saturating_sub(1));
        let (mut heads, mut left) = (BinaryHeap::new(), Vec::with_capacity(self.logs.len()));
        for (n, (log, epoch)) in self.logs.iter().enumerate() {
            left.push(sequence_at(self.store, log, *epoch, newest)?.0);
            heads.extend(self.position_of_last(log, *epoch, left[n])?.map(|position| (position, n)));
        }
        'heads: while let Some((position, n)) = heads.pop() {
            if page.is_exhausted() {
                // Everything after this append was scanned, even if it had no rows.
                page.next = Some(at.min(order_position(position + 1, 0)));
                break;
            }
            let (log, epoch) = &self.logs[n];
            let start = self.store.locate(log, *epoch, position.saturating_sub(1))?;
            let append = self.store.read(log, *epoch, start, Limit { rows: 1, bytes: 0 })?.into_iter().next();
            page.scanned_appends += 1;
            // Compaction may have deleted all of its rows.
            if let Some(append) = append.filter(|append| append.position == position) {
                page.scanned_bytes += append.rows.len();
                let rows: Vec<_> = Rows(append.rows).filter(|row| row.sequence() <= left[n]).collect();
                for row in rows.into_iter().rev() {
                    let here = order_position(position, row.sequence().0 - append.before.0);
                    if want.text_of(&row).is_some_and(|view| !page.take(here, view, limit)) {
                        page.next = Some(at);
                        break 'heads;
                    }
                    at = here;
                }
            }
            left[n] = start;
            heads.extend(self.position_of_last(log, *epoch, start)?.map(|position| (position, n)));
        }
        page.events.reverse();
        Ok(page)
    }

    fn position_of_last(&self, log: &LogId, epoch: Epoch, last: Sequence) -> Result<Option<u64>, StoreError> {
        if last == Sequence::NONE {
            return Ok(None);
        }
        self.store.position_of(log, epoch, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::journal::MemoryJournal;
    use crate::log::memory::MemoryStore;
    use crate::log::row::Row;
    use crate::log::testing::{Ordered, in_memory};
    use crate::log::{Append, META};
    use crate::model::{Audience, RunId};

    /// Two logs with this many appends in alternation; only the first and the last have the type `b`.
    fn two_logs(count: u64) -> (Ordered<MemoryStore, MemoryJournal>, Vec<(LogId, Epoch)>) {
        let (store, epoch) = (in_memory(), Epoch::from_random(1));
        let logs = ["x", "y"].map(|name| LogId::Run(RunId::new(name).unwrap()));
        let append = |n: u64| {
            let class = if n == 0 || n == count - 1 { "b" } else { "a" };
            let text = format!("{{\"type\":\"{class}\",\"surface\":\"s\",\"n\":{n}}}");
            let (expected, mut rows) = (Sequence(n / 2), Vec::new());
            Row::encode(&mut rows, expected.next(), [expected; 3], [Some(text.as_bytes()); 3]);
            Append {
                log: logs[usize::from(n % 2 == 1)].clone(),
                epoch,
                expected,
                last: expected.next(),
                rows: rows.into(),
                blobs: Vec::new(),
                state: vec![(Bytes::from_static(META), Some(Bytes::from_static(b"{}")))],
            }
        };
        store.commit(&(0..count).map(append).collect::<Vec<_>>()).unwrap();
        (store, logs.map(|log| (log, epoch)).to_vec())
    }

    #[test]
    fn a_page_scans_a_limited_number_of_appends_and_the_next_continues_there() {
        let count = 3 * SCANNED_APPENDS_MAX as u64;
        let (store, logs) = two_logs(count);
        let merged = MergedLogs { store: &*store, logs, until: count };
        let want = Filter { types: vec!["b".into()].into(), ..Filter::all(Audience::User) };
        let (mut pages, mut found, mut after) = (0, Vec::new(), Sequence::NONE);
        loop {
            let page = merged.forward(&want, after, Sequence::MAX, 10).unwrap();
            assert!(page.scanned_appends <= SCANNED_APPENDS_MAX + BURST_ROWS_MAX);
            (pages, after) = (pages + 1, page.next.unwrap_or_default());
            found.extend(page.events);
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!((pages, found.len()), (3, 2));
        let (mut pages, mut again, mut before) = (0, Vec::new(), Sequence::MAX);
        loop {
            let page = merged.backward(&want, before, 10).unwrap();
            assert!(page.scanned_appends <= SCANNED_APPENDS_MAX + 1);
            (pages, before) = (pages + 1, page.next.unwrap_or_default());
            again.splice(0..0, page.events);
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!((pages, again), (3, found));
    }

    #[test]
    fn commits_beyond_the_visible_position_are_not_read() {
        let (store, logs) = two_logs(10);
        let merged = MergedLogs { store: &*store, logs, until: 7 };
        let want = Filter::all(Audience::User);
        let forward = merged.forward(&want, Sequence::NONE, Sequence::MAX, 100).unwrap();
        let backward = merged.backward(&want, Sequence::MAX, 100).unwrap();
        assert_eq!((forward.events.len(), forward.next), (7, None));
        assert_eq!(forward.events, backward.events);
    }
}
