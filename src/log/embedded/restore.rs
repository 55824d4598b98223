//! A store from the files of a backup.
//!
//! The trees are the backup's. The store gets new epochs, and so does each log: a client that has read further than the
//! backup would otherwise take the facts that come next for those that it has. A hash chain keeps its epoch, in an entry
//! of its log, so that its proofs and signed heads stay valid. The journal begins after the backup's position.

use super::keys::{EPOCH_KEY, created_key, created_of, created_value, log_key, name_key, name_value, number_of};
use super::trees::{Batch, TreeName, Trees};
use super::{EmbeddedStore, Sync};
use super::{JOURNAL_DIR, KeepCopy, TREES_DIR, engine_error, format, sync_dir, tables};
use crate::environment;
use crate::log::hash_chain::ChainRecord;
use crate::log::journal::LocalJournal;
use crate::log::pinned::ChainHeads;
use crate::log::{LogHead, LogKind, Mark, StoreError};
use crate::model::{Epoch, Sequence};
use bytes::Bytes;
use std::path::Path;

/// The logs whose epochs are changed in one batch.
const BATCH_LOGS: usize = 4096;

/// Makes a store of the trees of a backup in the directory `dir`, which has nothing else.
///
/// # Errors
/// `Corrupt` when the trees are not those of one commit, `Failed` when the disk fails.
pub fn adopt(dir: &Path) -> Result<Mark, StoreError> {
    let path = dir.join(TREES_DIR);
    tables::check(&path, 0)?;
    let trees = Trees::open(&path).map_err(|(path, e)| engine_error(&path, "opening the restored store", &e))?;
    let Some(mark) = trees.persisted_mark() else {
        return Err(StoreError::Corrupt { path, what: "its trees are not of one commit".into() });
    };
    renew_epochs(&trees)?;
    trees.seal(mark);
    trees.write_sealed().map_err(|(of, e)| engine_error(&trees.path(of), "writing the restored store", &e))?;
    drop(trees);
    begin(dir, mark)?;
    Ok(mark)
}

/// Writes what a directory with trees lacks to be a store: an empty journal, and the format.
pub(super) fn begin(dir: &Path, mark: Mark) -> Result<(), StoreError> {
    let journal = LocalJournal::begin_after(&dir.join(JOURNAL_DIR), mark.applied, random)?;
    drop(journal);
    sync_dir(&dir.join(JOURNAL_DIR))?;
    // Last: without it, the directory is no store.
    format::write_current(dir)
}

/// Opens a restored store, checks every file, and returns its mark and the ends of its hash chains.
///
/// # Errors
/// As [`EmbeddedStore::open`].
pub fn verify_restored(dir: &Path) -> Result<(Mark, ChainHeads), StoreError> {
    let (store, journal) = EmbeddedStore::open_checking(dir, Sync::Always, u64::MAX, KeepCopy::No)?;
    let shared = &store.shared;
    let heads = shared.chain_heads(&shared.trees.snapshot())?;
    let mark = shared.writer.lock().mark;
    drop((store, journal));
    Ok((mark, heads))
}

pub(super) fn random() -> u64 {
    environment::random() as u64
}

/// Gives the store and each log another epoch.
fn renew_epochs(trees: &Trees) -> Result<(), StoreError> {
    let failed = |of: TreeName, e: &lsm_tree::Error| super::damaged_file(&trees.path(of), "reading the restored store", e);
    let corrupt =
        || StoreError::Corrupt { path: trees.path(TreeName::Names), what: "it holds an entry of an unknown format".into() };
    for kind in [LogKind::Run, LogKind::Session] {
        let mut from = 0;
        loop {
            let snapshot = trees.snapshot();
            let range = created_key(kind, from)..=created_key(kind, u64::MAX);
            let (mut batch, mut count) = (Batch::derived(), 0);
            for entry in snapshot.range(TreeName::Names, range).take(BATCH_LOGS) {
                let (key, value) = lsm_tree::Guard::into_inner(entry).map_err(|e| failed(TreeName::Names, &e))?;
                let number = key.get(2..).and_then(number_of).ok_or_else(corrupt)?;
                let (before, log) = created_of(kind, &value).ok_or_else(corrupt)?;
                let head = LogHead { number, epoch: Epoch::from_random(random()), last: Sequence::NONE };
                batch.insert(TreeName::Names, name_key(&log), name_value(&head));
                batch.insert(TreeName::Names, created_key(kind, number), created_value(head.epoch, &log));
                let mut chain = Vec::new();
                for name in [crate::log::hash_chain::LOG_KEY, crate::log::hash_chain::HEAD, crate::log::hash_chain::CHAIN_EPOCH] {
                    let value = snapshot.get(TreeName::State, &log_key(number, name.as_bytes()));
                    let value = value.map_err(|e| failed(TreeName::State, &e))?;
                    chain.extend(value.map(|value| (Bytes::from_static(name.as_bytes()), Bytes::copy_from_slice(&value))));
                }
                if let Some(record) = ChainRecord::read(&log, &chain)? {
                    let (name, value) = record.epoch_entry(before);
                    batch.insert(TreeName::State, log_key(number, name.as_bytes()), value);
                }
                (from, count) = (number + 1, count + 1);
            }
            drop(snapshot);
            trees.write(batch);
            if count < BATCH_LOGS {
                break;
            }
        }
    }
    let has_epoch = trees.snapshot().get(TreeName::Names, EPOCH_KEY).map_err(|e| failed(TreeName::Names, &e))?.is_some();
    if has_epoch {
        let mut batch = Batch::derived();
        batch.insert(TreeName::Names, EPOCH_KEY, random().to_be_bytes());
        trees.write(batch);
    }
    Ok(())
}
