//! The files of a store as they are after one commit, kept for a reader that copies them.

use super::Mark;
use crate::model::Epoch;
use bytes::Bytes;
use std::any::Any;
use std::path::PathBuf;

/// The files of a store after one commit. While this value lives, the store deletes none of them.
pub struct PinnedFiles {
    /// The commit.
    pub mark: Mark,
    /// The store's epoch; `None` for a store that was never written.
    pub epoch: Option<Epoch>,
    /// The number of the store's format.
    pub format: u32,
    /// The ends of the hash chains.
    pub heads: ChainHeads,
    pub files: Vec<PinnedFile>,
    /// What keeps the files.
    pub(super) _hold: Box<dyn Any + Send + Sync>,
}

/// One file, which never changes.
pub struct PinnedFile {
    /// Where it belongs in the data directory, with `/` between names.
    pub path: String,
    pub bytes: u64,
    /// The XXH3 of its content, with 128 bits.
    pub checksum: u128,
    pub content: PinnedContent,
}

/// Where the content of a file is.
#[derive(Clone)]
pub enum PinnedContent {
    /// The store replaces the file by renaming, so the content was read at once.
    Memory(Bytes),
    Disk(PathBuf),
}

/// One value for the ends of all hash chains of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHeads {
    /// The logs that have a hash chain.
    pub logs: u64,
    /// The BLAKE3 of their ids, epochs, last sequences and chain values, in the order of creation.
    pub digest: [u8; 32],
}
