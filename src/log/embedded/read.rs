//! Reads: each takes a snapshot of the trees, so it never sees part of a commit.

use super::Shared;
use super::keys::{
    IndexEntry, body_name_key, body_of, checkpoint_key, created_key, created_of, index_entry_of, index_key, log_key, name_key,
    name_of, number_of, tombstone_key,
};
use super::trees::{Snapshot, TreeName};
use crate::log::figures::FIGURES;
use crate::log::{Blob, Limit, ListedLog, LoadedLog, LogHead, LogId, LogKind, META, StoreError, StoredAppend};
use crate::model::{BlobId, Epoch, Sequence};
use bytes::Bytes;
use lsm_tree::{Guard, IterGuardImpl, Slice};

/// From this many adjacent appends on, one scan reads them; single look-ups are faster for fewer.
const SCAN_APPENDS_MIN: usize = 4;

impl Shared {
    /// The log's head in this snapshot.
    pub(super) fn find_head(&self, snapshot: &Snapshot<'_>, log: &LogId) -> Result<Option<LogHead>, StoreError> {
        let Some(named) = self.get(snapshot, TreeName::Names, &name_key(log))? else { return Ok(None) };
        let (number, epoch) = self.decode(TreeName::Names, name_of(&named))?;
        let mut appends =
            snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..=index_key(number, Sequence(u64::MAX)));
        let last =
            appends.next_back().map(|entry| self.index_entry(entry)).transpose()?.map_or(Sequence::NONE, |indexed| indexed.last);
        Ok(Some(LogHead { number, epoch, last }))
    }

    pub(super) fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(head) = self.find_head(&snapshot, log)? else { return Ok(None) };
        let mut state = Vec::new();
        for entry in snapshot.prefix(TreeName::State, head.number.to_be_bytes()) {
            let (key, value) = self.entry(TreeName::State, entry)?;
            state.push((Bytes::copy_from_slice(&key[8..]), Bytes::copy_from_slice(&value)));
        }
        Ok(Some(LoadedLog { epoch: head.epoch, last: head.last, state }))
    }

    pub(super) fn state_entry(&self, log: &LogId, epoch: Epoch, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)? else { return Ok(None) };
        let value = self.get(&snapshot, TreeName::State, &log_key(number, key))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// The number of the log, if it has this epoch.
    fn log_number(&self, snapshot: &Snapshot<'_>, log: &LogId, epoch: Epoch) -> Result<Option<u64>, StoreError> {
        let Some(named) = self.get(snapshot, TreeName::Names, &name_key(log))? else { return Ok(None) };
        let (number, found) = self.decode(TreeName::Names, name_of(&named))?;
        Ok((found == epoch).then_some(number))
    }

    pub(super) fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let snapshot = self.trees.snapshot();
        match self.log_number(&snapshot, log, epoch)? {
            Some(number) => self.last_at(&snapshot, number, position),
            None => Ok(Sequence::NONE),
        }
    }

    pub(super) fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)? else { return Ok(None) };
        let appends = index_key(number, sequence)..=index_key(number, Sequence(u64::MAX));
        let found = snapshot.range(TreeName::Index, appends).next().map(|entry| self.index_entry(entry)).transpose()?;
        Ok(found.map(|indexed| indexed.position))
    }

    /// The last sequence of a log's appends at or before this position.
    pub(super) fn last_at(&self, snapshot: &Snapshot<'_>, number: u64, position: u64) -> Result<Sequence, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let Some(newest) = snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..=end).next_back() else {
            return Ok(Sequence::NONE);
        };
        let newest = self.index_entry(newest)?;
        if newest.position <= position {
            return Ok(newest.last);
        }
        // Binary search: the result lies at or after `from` and before `to`.
        let (mut from, mut to) = (Sequence::NONE, newest.last);
        while from.next() < to {
            let middle = Sequence(from.0 + (to.0 - from.0) / 2);
            let Some(found) = snapshot.range(TreeName::Index, index_key(number, middle)..=end).next() else { break };
            let found = self.index_entry(found)?;
            if found.position <= position { from = found.last } else { to = middle }
        }
        Ok(from)
    }

    pub(super) fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(number) = self.log_number(&snapshot, log, epoch)?.filter(|_| after < Sequence::MAX) else {
            return Ok(Vec::new());
        };
        let indexed_appends = self.index_entries_after(&snapshot, number, after, limit.rows)?;
        let (mut read, mut ends) = (Vec::new(), Vec::with_capacity(indexed_appends.len()));
        for stretch in indexed_appends.chunk_by(|(_, a), (_, b)| b.position == a.position + 1) {
            if !self.read_rows(&snapshot, stretch, limit.bytes, &mut read, &mut ends)? {
                break;
            }
        }
        let read = Bytes::from(read);
        let mut from = 0;
        let stored = indexed_appends.into_iter().zip(ends).map(|((before, IndexEntry { position, .. }), end)| StoredAppend {
            position,
            before,
            rows: read.slice(std::mem::replace(&mut from, end)..end),
        });
        Ok(stored.collect())
    }

    /// The appends with the rows after `after`, each with the last sequence before it.
    ///
    /// They have up to `rows_max` such rows, but the result has at least one append.
    fn index_entries_after(
        &self,
        snapshot: &Snapshot<'_>,
        number: u64,
        after: Sequence,
        rows_max: usize,
    ) -> Result<Vec<(Sequence, IndexEntry)>, StoreError> {
        let end = index_key(number, Sequence(u64::MAX));
        let (mut before, mut indexed_appends, mut rows) = (None, Vec::new(), 0);
        // From `after` itself: nearly every reader is at the end of an append.
        let mut entries = snapshot.range(TreeName::Index, index_key(number, after)..=end);
        while let Some(entry) = entries.next() {
            let indexed = self.index_entry(entry)?;
            if let Some(empty_to) = indexed.empty_to {
                before = Some(empty_to);
                if empty_to > indexed.last {
                    entries = snapshot.range(TreeName::Index, index_key(number, empty_to.next())..=end);
                }
                continue;
            }
            if indexed.last == after {
                before = Some(after);
                continue;
            }
            let follows = match before {
                Some(before) => before,
                None => {
                    let mut older = snapshot.range(TreeName::Index, index_key(number, Sequence::NONE)..index_key(number, after));
                    older
                        .next_back()
                        .map(|entry| self.index_entry(entry))
                        .transpose()?
                        .map_or(Sequence::NONE, |indexed| indexed.last)
                }
            };
            rows += indexed.last.0 - follows.max(after).0;
            if rows > rows_max as u64 && !indexed_appends.is_empty() {
                break;
            }
            before = Some(indexed.last);
            indexed_appends.push((follows, indexed));
            if rows >= rows_max as u64 {
                break;
            }
        }
        Ok(indexed_appends)
    }

    /// Reads the appends at consecutive positions into `read`, and the end of each into `ends`.
    ///
    /// Returns `false` when not all of them fit.
    fn read_rows(
        &self,
        snapshot: &Snapshot<'_>,
        stretch: &[(Sequence, IndexEntry)],
        bytes_max: usize,
        read: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) -> Result<bool, StoreError> {
        let mut take = |rows: &[u8]| {
            let fits = read.is_empty() || read.len() + rows.len() <= bytes_max;
            if fits {
                read.extend_from_slice(rows);
                ends.push(read.len());
            }
            fits
        };
        if stretch.len() < SCAN_APPENDS_MIN {
            for (_, IndexEntry { position, .. }) in stretch {
                let rows = self.get(snapshot, TreeName::Rows, &position.to_be_bytes())?;
                let rows = rows.ok_or_else(|| self.missing_row(*position))?;
                if !take(&rows) {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let (first, last) = (stretch[0].1.position, stretch[stretch.len() - 1].1.position);
        let mut scan = snapshot.range(TreeName::Rows, first.to_be_bytes()..=last.to_be_bytes());
        for (_, IndexEntry { position, .. }) in stretch {
            let (key, rows) = self.entry(TreeName::Rows, scan.next().ok_or_else(|| self.missing_row(*position))?)?;
            if *key != position.to_be_bytes() {
                return Err(self.missing_row(*position));
            }
            if !take(&rows) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn committed(&self, after: u64, until: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let snapshot = self.trees.snapshot();
        let until = until.min(u64::MAX - 1);
        if after >= until {
            return Ok(Vec::new());
        }
        let appends = snapshot.range(TreeName::Rows, (after + 1).to_be_bytes()..=until.to_be_bytes()).take(limit);
        let read = appends.map(|entry| {
            let (key, rows) = self.entry(TreeName::Rows, entry)?;
            // Not a copy: most of these appends are new, and in memory as they were written.
            Ok((self.decode(TreeName::Rows, number_of(&key))?, Bytes::from_owner(rows)))
        });
        read.collect()
    }

    /// Decodes an entry of the index.
    pub(super) fn index_entry(&self, entry: IterGuardImpl) -> Result<IndexEntry, StoreError> {
        let (key, value) = self.entry(TreeName::Index, entry)?;
        self.decode(TreeName::Index, index_entry_of(&key, &value))
    }

    pub(super) fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        let snapshot = self.trees.snapshot();
        let end = created_key(kind, before.unwrap_or(u64::MAX));
        snapshot
            .range(TreeName::Names, created_key(kind, 0)..end)
            .rev()
            .take(limit)
            .map(|entry| {
                let (key, value) = self.entry(TreeName::Names, entry)?;
                let created = self.decode(TreeName::Names, key.get(2..).and_then(number_of))?;
                let (epoch, log) = self.decode(TreeName::Names, created_of(kind, &value))?;
                let entry = |key| -> Result<Bytes, StoreError> {
                    let value = self.get(&snapshot, TreeName::State, &log_key(created, key))?;
                    Ok(value.map(|value| Bytes::copy_from_slice(&value)).unwrap_or_default())
                };
                let figures = if kind == LogKind::Run { entry(FIGURES)? } else { Bytes::new() };
                Ok(ListedLog { log, epoch, created, meta: entry(META)?, figures })
            })
            .collect()
    }

    pub(super) fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(owner) = self.get(&snapshot, TreeName::Names, &body_name_key(id.as_str().as_bytes()))? else { return Ok(None) };
        let number = self.decode(TreeName::Names, number_of(&owner))?;
        // Its log may have a tombstone while the body still waits for deletion.
        if self.get(&snapshot, TreeName::Names, &tombstone_key(number))?.is_some() {
            return Ok(None);
        }
        let Some(body) = self.get(&snapshot, TreeName::Bodies, &log_key(number, id.as_str().as_bytes()))? else {
            return Ok(None);
        };
        let (meta, body) = self.decode(TreeName::Bodies, body_of(&body))?;
        // A node of an older version keeps an empty body for a removal that a newer leader has committed.
        Ok(Some(Blob { id: id.clone(), meta, body }).filter(|blob| !blob.is_removal()))
    }

    pub(super) fn bodies(
        &self,
        log: &LogId,
        epoch: Epoch,
        after: Option<&BlobId>,
        bytes_max: usize,
    ) -> Result<Vec<Blob>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(head) = self.find_head(&snapshot, log)?.filter(|head| head.epoch == epoch) else { return Ok(Vec::new()) };
        // Before the ids are the keys of checkpoints, which begin with 0.
        let from = after.map_or(vec![1], |after| [after.as_str().as_bytes(), &[0]].concat());
        let (from, to) = (log_key(head.number, &from), log_key(head.number, &[0xff]));
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        for entry in snapshot.range(TreeName::Bodies, from..=to) {
            let (key, value) = self.entry(TreeName::Bodies, entry)?;
            let id = key.get(8..).and_then(|id| BlobId::new(std::str::from_utf8(id).ok()?).ok());
            let id = self.decode(TreeName::Bodies, id)?;
            let (meta, body) = self.decode(TreeName::Bodies, body_of(&value))?;
            bytes += body.len();
            bodies.extend(Some(Blob { id, meta, body }).filter(|blob| !blob.is_removal()));
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(bodies)
    }

    pub(super) fn checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let snapshot = self.trees.snapshot();
        let Some(head) = self.find_head(&snapshot, log)?.filter(|head| head.epoch == epoch) else { return Ok(None) };
        // A checkpoint beyond the log's tail knows rows that a crash removed. The journal's order prevents that case,
        // but this read must not depend on it alone.
        let at = at.min(head.last);
        let (from, to) = (checkpoint_key(head.number, kind, Sequence::NONE), checkpoint_key(head.number, kind, at));
        let Some(newest) = snapshot.range(TreeName::Bodies, from..=to).next_back() else { return Ok(None) };
        let (key, body) = self.entry(TreeName::Bodies, newest)?;
        let sequence = self.decode(TreeName::Bodies, key.get(10..).and_then(number_of))?;
        Ok(Some((Sequence(sequence), Bytes::copy_from_slice(&body))))
    }

    pub(super) fn get(&self, snapshot: &Snapshot<'_>, from: TreeName, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        snapshot.get(from, key).map_err(|e| self.engine_error("reading the store", from, &e))
    }

    pub(super) fn entry(&self, of: TreeName, entry: IterGuardImpl) -> Result<(Slice, Slice), StoreError> {
        entry.into_inner().map_err(|e| self.engine_error("reading the store", of, &e))
    }

    pub(super) fn key(&self, of: TreeName, entry: IterGuardImpl) -> Result<Slice, StoreError> {
        entry.key().map_err(|e| self.engine_error("reading the store", of, &e))
    }

    /// Reports an entry with a right checksum and an unknown format as corrupt.
    pub(super) fn decode<T>(&self, from: TreeName, decoded: Option<T>) -> Result<T, StoreError> {
        decoded.ok_or_else(|| StoreError::Corrupt {
            path: self.trees.path(from),
            what: "it holds an entry of an unknown format".into(),
        })
    }

    fn missing_row(&self, position: u64) -> StoreError {
        StoreError::Corrupt {
            path: self.trees.path(TreeName::Rows),
            what: format!("the rows at position {position} are missing"),
        }
    }
}
