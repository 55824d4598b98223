//! The files of the store as they are after one commit, for a backup of a running server.
//!
//! ```text
//!   commits … ─▶ seal ─▶ memory to tables ─▶ list of each tree's files ─▶ a reader copies them
//!                 └ mark: the backup's position        └ under the writer's lock, a few milliseconds
//! ```
//! Tables never change, and the journal has nothing that tables lack at this moment. So tables and manifests are the
//! whole backup, also of a node in a cluster, which has no journal. The engine deletes a table when no list of tables
//! has it: the pin keeps the lists.

use super::keys::{created_of, log_key, number_of, tagged};
use super::trees::{Snapshot, TreeName};
use super::{FORMAT, Shared, TREES_DIR, tables};
use crate::environment;
use crate::log::hash_chain;
use crate::log::pinned::{ChainHeads, PinnedContent, PinnedFile, PinnedFiles};
use crate::log::{LogKind, StoreError};
use crate::model::Epoch;
use lsm_tree::SeqNo;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128;

/// How often the store tries to find all trees at one commit while others write.
const ATTEMPTS_MAX: usize = 100;
/// The pause between two attempts to read a manifest that a merge replaces.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);

/// What keeps the files of a pin: the lists of tables, and an open snapshot, for which an erasure's rewrite waits.
struct Hold {
    shared: Arc<Shared>,
    number: SeqNo,
    _versions: Vec<Box<dyn Any + Send + Sync>>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.trees.unregister(self.number);
    }
}

impl Shared {
    /// Pins the files that have everything up to the last commit.
    pub(super) fn pin(self: &Arc<Self>) -> Result<PinnedFiles, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            // A backup must not have what was erased before it, but for bytes that wait for their removal.
            self.wait_until_deleted();
            let mut writer = self.writer.lock();
            writer.check_usable()?;
            if self.purge.undeleted.load(Ordering::Acquire) > 0 {
                continue;
            }
            if self.trees.unsealed_bytes() > 0 || self.trees.persisted_mark().is_none_or(|mark| mark != writer.mark) {
                self.begin_persist(&mut writer)?;
            }
            let (mark, snapshot) = (writer.mark, self.trees.snapshot());
            self.wait_until_persisted(&mut writer)?;
            // The wait lets others write, so the tables may be further than the snapshot.
            if self.trees.persisted_mark() != Some(mark) {
                continue;
            }
            let (mut files, mut versions) = (Vec::new(), Vec::new());
            for name in TreeName::ALL {
                versions.push(self.pin_tree(name, &mut files)?);
            }
            let hold = Hold { shared: self.clone(), number: self.trees.register(), _versions: versions };
            drop(writer);
            let heads = self.chain_heads(&snapshot)?;
            let epoch = self.get(&snapshot, TreeName::Names, super::EPOCH_KEY)?;
            let epoch = epoch.map(|bits| self.decode(TreeName::Names, number_of(&bits))).transpose()?.map(Epoch::from_random);
            return Ok(PinnedFiles { mark, epoch, format: FORMAT, heads, files, _hold: Box::new(hold) });
        }
        Err(StoreError::failed("reading the files of the store", &"it is written faster than it can be read; try again"))
    }

    /// Adds the files of a tree, and returns what keeps them. The caller has the writer's lock.
    fn pin_tree(&self, name: TreeName, files: &mut Vec<PinnedFile>) -> Result<Box<dyn Any + Send + Sync>, StoreError> {
        let dir = self.trees.path(name);
        let mut failed = None;
        for _ in 0..ATTEMPTS_MAX {
            let (version, hold) = self.trees.version(name);
            match tables::read_current(&dir) {
                // A merge may be between the list in memory and the one on disk.
                Ok(manifest) if manifest.version == version => {
                    let path = |file: &str| format!("{TREES_DIR}/{}/{file}", name.as_str());
                    let small = [("current".to_owned(), manifest.pointer), (format!("v{version}"), manifest.bytes)];
                    files.extend(small.into_iter().map(|(file, content)| PinnedFile {
                        path: path(&file),
                        bytes: content.len() as u64,
                        checksum: xxh3_128(&content),
                        content: PinnedContent::Memory(content.into()),
                    }));
                    for listed in manifest.files {
                        let inner = listed.path.strip_prefix(&dir).unwrap_or(&listed.path).to_string_lossy().into_owned();
                        files.push(PinnedFile {
                            path: path(&inner),
                            bytes: listed.bytes()?,
                            checksum: listed.checksum,
                            content: PinnedContent::Disk(listed.path),
                        });
                    }
                    return Ok(hold);
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            environment::sleep_thread(ATTEMPT_PAUSE);
        }
        let merging = || StoreError::failed("reading the files of the store", &"its tables are being merged; try again");
        Err(failed.unwrap_or_else(merging))
    }

    /// The ends of all hash chains in this snapshot.
    pub(super) fn chain_heads(&self, snapshot: &Snapshot<'_>) -> Result<ChainHeads, StoreError> {
        let (mut hasher, mut logs) = (blake3::Hasher::new(), 0);
        for kind in [LogKind::Run, LogKind::Session] {
            for entry in snapshot.prefix(TreeName::Names, [b'c', super::keys::tag(kind)]) {
                let (key, value) = self.entry(TreeName::Names, entry)?;
                let number = self.decode(TreeName::Names, key.get(2..).and_then(number_of))?;
                let (epoch, log) = self.decode(TreeName::Names, created_of(kind, &value))?;
                let head = |entry: &str| self.get(snapshot, TreeName::State, &log_key(number, entry.as_bytes()));
                let Some(end) = head(hash_chain::HEAD)? else { continue };
                // A restored log has another epoch than its chain.
                let began = head(hash_chain::CHAIN_EPOCH)?;
                let epoch = epoch.bits().to_be_bytes();
                let (kind, id) = tagged(&log);
                hasher.update(&[kind]).update(&(id.len() as u64).to_be_bytes()).update(id);
                hasher.update(began.as_deref().and_then(|began| began.get(8..)).unwrap_or(&epoch)).update(&end);
                logs += 1;
            }
        }
        Ok(ChainHeads { logs, digest: *hasher.finalize().as_bytes() })
    }
}
