//! The compaction of a log: its history without the rows that readers no longer need.

use super::Shared;
use super::keys::{emptied_value, index_key, log_key};
use super::trees::{Batch, Snapshot, TreeName};
use crate::log::{Compaction, StoreError};
use crate::model::Sequence;

impl Shared {
    /// Rewrites appends, the index and the state of a log, and removes its checkpoints.
    pub(super) fn rewrite(
        &self,
        batch: &mut Batch,
        position: u64,
        number: u64,
        compaction: &Compaction,
    ) -> Result<(), StoreError> {
        let snapshot = self.trees.snapshot();
        for append in &compaction.appends {
            match append.rows.is_empty() {
                true => batch.remove(TreeName::Rows, append.position.to_be_bytes()),
                false => batch.insert(TreeName::Rows, append.position.to_be_bytes(), &append.rows[..]),
            }
        }
        // A tree that has the commit may have later ones too, so what it says is not what the commit changed.
        if self.trees.lacked(TreeName::Index, position) {
            self.rewrite_index(batch, &snapshot, number, compaction)?;
        }
        if self.trees.lacked(TreeName::Bodies, position) && !compaction.appends.is_empty() {
            for entry in snapshot.prefix(TreeName::Bodies, log_key(number, &[0])) {
                batch.remove(TreeName::Bodies, self.key(TreeName::Bodies, entry)?);
            }
        }
        super::set_state(batch, number, &compaction.state);
        Ok(())
    }

    fn rewrite_index(
        &self,
        batch: &mut Batch,
        snapshot: &Snapshot<'_>,
        number: u64,
        compaction: &Compaction,
    ) -> Result<(), StoreError> {
        let (before, until) = match (compaction.appends.first(), compaction.appends.last()) {
            (Some(first), Some(last)) => (
                self.last_at(snapshot, number, first.position.saturating_sub(1))?,
                self.last_at(snapshot, number, last.position)?,
            ),
            _ => (compaction.last, compaction.last),
        };
        // Backwards, so that each append knows whether the appends after it became empty.
        let mut rewritten = compaction.appends.iter().rev().peekable();
        let mut empty_after = None;
        let range = index_key(number, before.next())..index_key(number, until.next());
        for entry in snapshot.range(TreeName::Index, range).rev() {
            let indexed = self.index_entry(entry)?;
            let append = rewritten.next_if(|rewritten| rewritten.position == indexed.position && indexed.empty_to.is_none());
            let left = append.map_or(indexed.last, |append| append.last);
            assert!(left <= indexed.last, "a removed row does not come back");
            assert!(left == indexed.last || indexed.last < compaction.last, "the log's last row stays");
            let is_empty = indexed.empty_to.is_some() || left < indexed.last;
            let empty_to = empty_after.or(indexed.empty_to).unwrap_or(indexed.last);
            if is_empty && indexed.empty_to != Some(empty_to) {
                batch.insert(TreeName::Index, index_key(number, indexed.last), emptied_value(indexed.position, empty_to));
            }
            empty_after = is_empty.then_some(empty_to);
            if is_empty && left > Sequence::NONE && indexed.empty_to.is_none() {
                batch.insert(TreeName::Index, index_key(number, left), indexed.position.to_be_bytes());
                empty_after = None;
            }
        }
        assert!(rewritten.next().is_none(), "a compaction rewrites only existing appends");
        Ok(())
    }
}
