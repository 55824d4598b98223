//! The journal: every commit of a server, in one order. Recovery is to apply its records again.
//!
//! ```text
//!   position     1      2      3      4      5    …
//!   records   [ group ][ group ][ erase ][ group ][ …          a record is whole or absent
//!                 ▲                          ▲
//!                 └ applied: the store has everything up to here, and follows
//!                                            └ last: durable when `append` returns
//! ```
//!
//! A journal knows nothing about the content of its records. Every implementation passes the suite
//! `tests/it/journal.rs`.

#[cfg(feature = "cluster")]
pub mod jetstream;
mod local;
mod memory;
mod record;
pub(in crate::log) mod salvage;
pub(in crate::log) mod tail;

#[cfg(feature = "cluster")]
pub use jetstream::JetStreamJournal;
pub use local::LocalJournal;
pub use memory::{Gate, MemoryJournal};

use super::StoreError;
use bytes::Bytes;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// When commits reach the disk.
///
/// In every mode a commit is whole or absent, and nothing after an absent commit is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before the caller gets its answer. Acknowledged data survives a killed process and a power loss.
    Always,
    /// Together, once per interval.
    ///
    /// Acknowledged data survives a killed process; a power loss costs at most the last interval.
    Interval(Duration),
    /// When the operating system writes them, and when the journal is closed.
    ///
    /// Acknowledged data survives a killed process; a power loss may cost minutes.
    Never,
}

/// One commit: its place in the order, counted from 1 without gaps, and its encoded content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub position: u64,
    pub body: Bytes,
}

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// The record has this position and is durable, as far as the sync mode says.
    At(u64),
    /// The journal's last position is another one: another writer appended. Nothing was kept.
    Moved { last: u64 },
}

/// Names a record that a reader wants and the journal no longer has.
fn forgotten(after: u64, first: u64) -> StoreError {
    let why = format!("the records {} to {} are gone; the first one left is {first}", after + 1, first - 1);
    StoreError::Forgotten { why }
}

/// What the server asks about a journal, beside its records.
pub trait JournalState: Send + std::marker::Sync + 'static {
    /// Where the journal is, for errors about the content of its records.
    fn path(&self) -> PathBuf;

    /// The size on this machine's disk, in bytes; 0 for a journal without one.
    fn bytes(&self) -> u64 {
        0
    }

    /// Begins a new file, so that no later record lies in one file with those before the call.
    ///
    /// # Errors
    /// `Failed` when the disk fails: final.
    fn rotate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Removes the files whose records are all before `position`, so that none of their bytes stays.
    ///
    /// # Errors
    /// `Failed` when the disk fails.
    fn retire(&self, _position: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Why a thread of the journal has failed for good, outside of any call. `None` for a journal without threads.
    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        None
    }

    /// The position of the last record, when it changes. `None` for a journal that only this process appends to.
    ///
    /// A journal that others follow forgets records only when all of them can do without, so no store decides that.
    fn others(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// An ordered, durable sequence of records.
pub trait Journal: JournalState {
    /// The position of the first record that the journal still has, and of the last one.
    ///
    /// `last + 1` and `last` without records.
    fn bounds(&self) -> (u64, u64);

    /// Appends one record after the position `expected`. `parts` are its body, in order.
    ///
    /// # Errors
    /// [`StoreError`]: final, as after any failed write.
    fn append(&self, expected: u64, parts: &[Bytes]) -> impl Future<Output = Result<Appended, StoreError>> + Send;

    /// Resolves when an append that begins now has been without an answer for too long. Never where only a failed disk
    /// keeps it waiting.
    fn overdue(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// The records after `after`, in order: as many as fit into `bytes_max`, at least one if there is one.
    ///
    /// # Errors
    /// `Corrupt` with the file and the offset of a damaged record; `Failed` when the disk fails, or when the journal no
    /// longer has the record `after + 1`.
    fn read(&self, after: u64, bytes_max: usize) -> impl Future<Output = Result<Vec<Record>, StoreError>> + Send;

    /// Lets the journal forget records before `position`. It may keep some of them.
    ///
    /// # Errors
    /// `Failed` when the disk fails.
    fn truncate_before(&self, position: u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes every record durable, in every sync mode.
    ///
    /// # Errors
    /// As [`Self::append`].
    fn flush(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
