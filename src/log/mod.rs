//! Logs, and the contract of the stores that hold them.
//!
//! A log is one ordered, durable sequence of envelopes.
//!
//! ```text
//!   sequence     1    2    3    4    5   …
//!   rows        [ append 1  ][ append 2 ]         an append is atomic: all of its rows, bodies and state, or none
//!                                       ▲
//!                                       └ tail: the last sequence; the next append names it as `expected`
//! ```
//!
//! A reader sees a whole append or none of it, and never before the append is committed.
//!
//! Sequences have no gaps when they are assigned. A [`Compaction`] may later remove rows from a log's history. The rows
//! that remain keep their sequence and position, so a reader finds a gap but never a wrong row.
//!
//! Checkpoints lie beside a log. A checkpoint is state derived from the rows up to a sequence, so that its maker need
//! not read those rows again. A store may lose checkpoints. Compaction deletes the checkpoints of the log that it
//! changes.
//!
//! A store applies commits in the order of the [journal], and decides nothing: [`commit::Orderer`] compares
//! appends with the heads of their logs before it orders them. So a store that applies the same commits again, or on
//! another machine, has the same content. A store never looks inside a row, a body or a state entry.

pub mod active_runs;
pub mod agent_memory;
pub mod archive;
pub mod commit;
pub mod control;
pub mod deadlines;
pub mod embedded;
mod encoding;
pub mod erased;
mod erased_logs;
pub mod figures;
pub mod hash_chain;
pub mod holds;
pub mod journal;
pub mod list_changes;
pub mod marks;
pub mod memory;
pub mod moves;
pub mod pending_actions;
pub mod pinned;
pub mod question;
pub mod queues;
pub mod row;
pub mod run_index;
pub mod run_outcomes;
pub mod server_state;
pub mod sessions;
pub mod status_changes;
mod storage;
pub mod summary;
#[doc(hidden)]
pub mod testing;

pub use encoding::{Commit, Leader, Place, PlacedAppend};
pub use storage::Storage;

use crate::model::{BlobId, Epoch, Sequence};
pub use crate::model::{LogId, LogKind};
use bytes::Bytes;
use std::fmt;
use std::path::PathBuf;
use tokio::sync::watch;

/// One atomic addition to one log.
#[derive(Debug, Clone)]
pub struct Append {
    pub log: LogId,
    /// The log's epoch.
    ///
    /// If the log does not exist and `expected` is [`Sequence::NONE`], the append creates the log with this epoch. A
    /// log with another epoch is a conflict.
    pub epoch: Epoch,
    /// The log's last sequence before this append.
    pub expected: Sequence,
    /// The log's last sequence after this append. It equals `expected` when the append saves only state.
    pub last: Sequence,
    /// The rows `expected + 1 ..= last`, encoded by [`row::Row`].
    ///
    /// At most [`row::APPEND_ROWS_MAX`], so that the smallest read stays small. A longer addition that must be atomic
    /// is several appends of one group.
    pub rows: Bytes,
    /// Bodies that the rows refer to, and [removals](Blob::removal). They belong to this log: erasing the log erases them.
    pub blobs: Vec<Blob>,
    /// State entries to set (`Some`) or to delete (`None`), in order.
    ///
    /// The last entry for a key wins. Keys are 1 to [`STATE_KEY_BYTES_MAX`] bytes long. [`Store::list`] returns the
    /// entries [`META`] and [`FIGURES`](figures::FIGURES).
    pub state: Vec<(Bytes, Option<Bytes>)>,
}

/// The longest key of a state entry, in bytes.
pub const STATE_KEY_BYTES_MAX: usize = 1024;

impl Append {
    /// Whether the append leaves an existing log unchanged.
    ///
    /// The commit of such an append only waits for those before it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.blobs.is_empty() && self.state.is_empty()
    }

    /// The conflict with a log at `current`; `None` when the append can follow.
    ///
    /// `current` is `None` for a log that does not exist.
    ///
    /// # Panics
    /// When the append contradicts itself. Only a bug in the caller can cause that.
    #[must_use]
    pub fn conflict(&self, current: Option<(Epoch, Sequence)>) -> Option<AppendOutcome> {
        assert!(self.last >= self.expected, "an append moves the tail forward or leaves it");
        assert_eq!(self.last == self.expected, self.rows.is_empty(), "an append has rows exactly when the tail moves");
        assert!(
            self.last.0 - self.expected.0 <= row::APPEND_ROWS_MAX as u64,
            "an append has at most {} rows",
            row::APPEND_ROWS_MAX
        );
        assert!(
            self.state.iter().all(|(key, _)| (1..=STATE_KEY_BYTES_MAX).contains(&key.len())),
            "state keys are 1 to {STATE_KEY_BYTES_MAX} bytes long"
        );
        match current {
            None if self.expected == Sequence::NONE => None,
            None => Some(AppendOutcome::Conflict { last: Sequence::NONE, epoch: None }),
            Some((epoch, last)) if epoch == self.epoch && last == self.expected => None,
            Some((epoch, last)) => Some(AppendOutcome::Conflict { last, epoch: Some(epoch) }),
        }
    }
}

/// The key of the state entry that describes a log in lists.
pub const META: &[u8] = b"m";

/// An offloaded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub id: BlobId,
    /// Its readers and its media type, written by the ingest stage. Opaque to the store.
    pub meta: Bytes,
    pub body: Bytes,
}

impl Blob {
    /// The removal of a body of the same log. A version without removals keeps an empty body instead.
    #[must_use]
    pub const fn removal(id: BlobId) -> Self {
        Self { id, meta: Bytes::new(), body: Bytes::new() }
    }

    /// Whether it removes the body of its id. A body has metadata.
    #[must_use]
    pub const fn is_removal(&self) -> bool {
        self.meta.is_empty() && self.body.is_empty()
    }
}

/// The result of one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The append is durable, as far as the store's sync mode says.
    ///
    /// `position` is the append's place in the order of all appends of the store: counted from 1, without gaps, never
    /// reused. Appends that save only state have a position too. An append that changes nothing gets the position of
    /// the append before it. `created` is the log's place in the order of creation; see [`ListedLog::created`].
    Committed { position: u64, created: u64 },
    /// The log's tail or epoch is not the expected one, or the log does not exist (`epoch: None`).
    ///
    /// Another writer appended. The store kept nothing of this append.
    Conflict { last: Sequence, epoch: Option<Epoch> },
}

impl AppendOutcome {
    /// The append's position and its log's place in the order of creation; `None` for a conflict.
    #[must_use]
    pub const fn position(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Committed { position, created } => Some((position, created)),
            Self::Conflict { .. } => None,
        }
    }
}

/// A log's epoch, tail and state in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedLog {
    pub epoch: Epoch,
    pub last: Sequence,
    /// Every state entry, ordered by key.
    pub state: Vec<(Bytes, Bytes)>,
}

/// One item of a list of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLog {
    pub log: LogId,
    pub epoch: Epoch,
    /// The log's place in the order of creation of all logs: counted from 1, never reused.
    ///
    /// The next page of a list begins before it.
    pub created: u64,
    /// The value of the state entry [`META`]; empty when the log has none.
    pub meta: Bytes,
    /// The value of the state entry [`FIGURES`](figures::FIGURES) of a run; empty when the log has none.
    pub figures: Bytes,
}

/// The rows of one append, and the append's position in the order of all appends of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAppend {
    pub position: u64,
    /// The log's last sequence before the append. Compaction may have removed that row.
    pub before: Sequence,
    /// The encoded rows, for [`row::Rows`]: at least one.
    pub rows: Bytes,
}

/// The bounds of one read. A read returns at least one append when the log has any, however large.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Rows after the sequence that the read starts from.
    pub rows: usize,
    /// Bytes of encoded rows, including the rows that the caller skips.
    pub bytes: usize,
}

/// Rewrites appends of a log in place, without the rows that readers no longer need.
#[derive(Debug, Clone)]
pub struct Compaction {
    pub log: LogId,
    pub epoch: Epoch,
    /// The log's last sequence. Compaction does not change it.
    pub last: Sequence,
    /// The appends that change, in order.
    pub appends: Vec<RewrittenAppend>,
    /// State entries, as in [`Append::state`].
    pub state: Vec<(Bytes, Option<Bytes>)>,
}

/// The new rows of one append.
#[derive(Debug, Clone)]
pub struct RewrittenAppend {
    /// The append's position in the order of all appends of the store.
    pub position: u64,
    /// The sequence of the last remaining row; [`Sequence::NONE`] when no row remains.
    pub last: Sequence,
    /// The remaining rows, with their original sequences.
    ///
    /// The log's last row always remains, or the tail would move.
    pub rows: Bytes,
}

impl Compaction {
    /// Whether the log is at the epoch and tail for which this compaction was planned.
    ///
    /// # Panics
    /// When the compaction contradicts itself. Only a bug in the caller can cause that.
    #[must_use]
    pub fn applies_to(&self, current: Option<(Epoch, Sequence)>) -> bool {
        assert!(self.appends.is_sorted_by(|a, b| a.position < b.position), "the appends are in order, each once");
        assert!(
            self.appends.iter().all(|append| append.rows.is_empty() == (append.last == Sequence::NONE)),
            "an append has a last row exactly when it has rows"
        );
        current == Some((self.epoch, self.last))
    }
}

/// Why a store cannot answer. Every variant needs an operator; the server retries none.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Stored data does not match its checksum or its format. The store refuses it rather than guess.
    #[error("{path} is damaged: {what}. Restore it from a backup, or move the data directory away to start with an empty one.")]
    Corrupt { path: PathBuf, what: String },
    /// Another version of Proscenium wrote the data.
    #[error("{path} has {found}. This is Proscenium {}, which reads {known}. {remedy}.", env!("CARGO_PKG_VERSION"))]
    Unsupported { path: PathBuf, found: String, known: String, remedy: String },
    /// The disk or the machine failed.
    ///
    /// A failed sync is final: the data being written may or may not be on disk.
    #[error("{doing} failed: {why}")]
    Failed { doing: &'static str, why: String },
    /// The journal was shortened: it no longer has what a reader of it wants.
    #[error("reading the journal failed: {why}")]
    Forgotten { why: String },
    /// The state that a log saves between appends cannot be read. Other logs are unaffected.
    #[error(
        "the stored state of {log} cannot be read: entry {entry}: {why}; `proscenium doctor` lists what is wrong; restore the \
         data directory from a backup, or delete the run"
    )]
    Unreadable { log: String, entry: String, why: String },
    /// The rows of an archived log cannot be read now. Other logs are unaffected.
    #[error(
        "The rows of the {log} are archived and cannot be read: object {object}: {why}. Nothing is lost; send the request again."
    )]
    Archived { log: String, object: String, why: String },
    /// A stream of a session would follow more logs than the limit allows.
    #[error("The session has {count} logs; one stream follows at most {limit}. Read its runs one by one.")]
    TooManyLogs { count: usize, limit: usize },
    /// The run or session was erased less than a day ago.
    #[error("The {log} was erased less than a day ago. Nothing was stored. Use another id.")]
    Erased { log: String },
    /// Another node of the cluster leads, or none does. Nothing was stored.
    #[error("This node does not lead the cluster. Nothing was stored. Send the request again.")]
    NotLeader,
    /// The journal of the cluster does not answer. Whether the write is stored shows when it does.
    #[error(
        "The cluster has not confirmed the write in time, so it is unknown whether it is stored. Send the request again; \
         producer numbers make a repeat safe."
    )]
    Unconfirmed,
    /// Another process holds the data directory.
    #[error("the data directory {path} is in use by another process; stop that process, or give --data-dir another directory")]
    Locked { path: PathBuf },
}

impl StoreError {
    /// Reports a failure of the disk or the machine.
    pub(crate) fn failed(doing: &'static str, why: &dyn fmt::Display) -> Self {
        Self::Failed { doing, why: why.to_string() }
    }

    /// Reports a state entry of `log` that cannot be read.
    pub(crate) fn unreadable(log: &impl fmt::Display, entry: &[u8], why: &dyn fmt::Display) -> Self {
        Self::Unreadable { log: log.to_string(), entry: format!("{:?}", String::from_utf8_lossy(entry)), why: why.to_string() }
    }

    /// Whether the error concerns one log alone, so that the store can go on.
    #[must_use]
    pub const fn affects_one_log(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Erased { .. } | Self::Archived { .. })
    }
}

/// The message of a panic.
#[must_use]
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// How far a store has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// The journal's position of the last commit that the store has applied.
    pub applied: u64,
    /// The position of the last append in or before that commit.
    pub position: u64,
    /// The number of logs created in or before that commit.
    pub created: u64,
}

/// What erasures have left in the files of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remains {
    /// Bytes of rows, bodies, state and checkpoints, before compression.
    pub bytes: u64,
    /// Since when the oldest of them waits, in milliseconds since 1970. `None`: nothing waits.
    pub since: Option<i64>,
    /// The journal's position of a commit at or after the last erasure among them.
    pub commit: u64,
    /// The tables have nothing that was erased at or before the commit at this position.
    pub rewritten: u64,
}

/// The log of this kind with this number in the order of creation. `None`: it was erased.
///
/// # Errors
/// [`StoreError`] from the store.
pub fn log_of_number(store: &dyn Store, kind: LogKind, number: u64) -> Result<Option<ListedLog>, StoreError> {
    let found = store.list(kind, Some(number + 1), 1)?.pop();
    Ok(found.filter(|found| found.created == number))
}

/// What a store knows of a log without reading its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// The log's place in the order of creation; see [`ListedLog::created`].
    pub number: u64,
    pub epoch: Epoch,
    pub last: Sequence,
}

/// A store of logs: the state that the commits of a journal lead to. Every implementation passes the suite
/// `tests/it/store.rs`.
///
/// One caller at a time applies commits. Other calls may run concurrently from any thread; they block no longer than a
/// bounded read takes.
pub trait Store: Send + Sync + 'static {
    /// How far the store has come.
    fn mark(&self) -> Mark;

    /// The log's number, epoch and tail; `None` for a log that does not exist.
    fn head(&self, log: &LogId) -> Result<Option<LogHead>, StoreError>;

    /// Applies the commit at this position of the journal, which follows the last applied one.
    ///
    /// Readers see all of the commit or nothing of it. A crash may lose applied commits, and the journal has them:
    /// a start applies the commits after [`Mark::applied`] again.
    ///
    /// * A group adds its appends.
    /// * A compaction rewrites appends of a log in place. If any append changes, the store deletes the log's
    ///   checkpoints, because they were derived from the removed rows. Positions, the tail, [`StoredAppend::before`]
    ///   and bodies do not change.
    /// * An erasure hides a log with its bodies, state and checkpoints from every reader. The store may delete the data
    ///   later.
    ///
    /// # Errors
    /// [`StoreError`]: final. The caller must stop rather than continue as if only this commit had failed.
    fn apply(&self, position: u64, commit: &Commit) -> Result<(), StoreError>;

    /// Starts work in the background. The store has every commit that the journal had when it was opened.
    ///
    /// # Errors
    /// [`StoreError`]: final.
    fn start(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The position of the last commit that a crash of the machine cannot take from the store.
    ///
    /// The journal may forget the commits up to it.
    fn persisted(&self) -> u64;

    /// The log's epoch, tail and state; `None` for a log that was never written.
    fn load(&self, log: &LogId) -> Result<Option<LoadedLog>, StoreError>;

    /// One state entry of the log; `None` when the log lacks it, has another epoch, or does not exist.
    fn entry(&self, log: &LogId, epoch: Epoch, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let loaded = self.load(log)?.filter(|loaded| loaded.epoch == epoch);
        let mut entries = loaded.into_iter().flat_map(|loaded| loaded.state);
        Ok(entries.find(|(known, _)| known == key).map(|(_, value)| value))
    }

    /// The epoch of the store: the epoch of its first append ever; `None` before that.
    ///
    /// A position is valid in one store epoch only, so a reader that presents a position of another epoch gets a reset.
    fn epoch(&self) -> Result<Option<Epoch>, StoreError>;

    /// The log's last sequence among its appends at or before `position`.
    ///
    /// [`Sequence::NONE`] when the log has no such append, has another epoch, or does not exist. An append counts even
    /// if compaction removed all of its rows. So one position says how far a reader has read many logs. The cost is a
    /// few look-ups, however long the log is.
    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError>;

    /// The position of the append that added `sequence` to the log.
    ///
    /// `None` when the log is shorter, has another epoch, or does not exist. An append counts even if compaction
    /// removed all of its rows. The cost is one look-up.
    fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError>;

    /// Rows after `after`, in order, by append: as many whole appends as `limit` allows, at least one.
    ///
    /// The first append may begin at or before `after`: the caller skips those rows. The result omits only rows that
    /// compaction removed, and appends without rows. It is empty only at the tail, for a log of another epoch, and for
    /// a log that does not exist.
    fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError>;

    /// Like [`Self::read`], without rows that lie elsewhere: see [`archive`].
    fn read_stored(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<StoredAppend>, StoreError> {
        self.read(log, epoch, after, limit)
    }

    /// The rows of the appends at the positions after `after`, up to `until`, in the order of commits.
    ///
    /// At most `limit` appends of all logs; the rows say which. It omits appends without rows, those that
    /// compaction emptied, and those that an erasure has deleted; rows of an erased log may still be there.
    fn committed(&self, after: u64, until: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError>;

    /// Up to `limit` logs of this kind that were created before `before`, newest first.
    ///
    /// Logs created or erased between two pages never cause the list to repeat a log or to omit a log that stays.
    fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError>;

    /// An offloaded body.
    fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError>;

    /// The bodies of a log after one of them, by their ids: about `bytes_max` bytes, and at least one if there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    fn bodies(&self, log: &LogId, epoch: Epoch, after: Option<&BlobId>, bytes_max: usize) -> Result<Vec<Blob>, StoreError>;

    /// Saves a checkpoint beside a log: state of kind `kind`, derived from the rows up to `sequence`.
    ///
    /// Checkpoints of other kinds and sequences stay; the caller bounds their number. The call does nothing for a log
    /// that does not exist, has another epoch, or is shorter than `sequence`.
    ///
    /// A crash may lose a checkpoint that was already acknowledged. The store writes a checkpoint after its rows, so a
    /// checkpoint never survives a crash that lost one of its rows.
    fn save_checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, sequence: Sequence, body: Bytes) -> Result<(), StoreError>;

    /// The newest checkpoint of this kind at or before `at`, with its sequence.
    fn checkpoint(&self, log: &LogId, epoch: Epoch, kind: u8, at: Sequence) -> Result<Option<(Sequence, Bytes)>, StoreError>;

    /// Writes everything that the store has after one commit, in chunks, for a store on another machine.
    ///
    /// `write` returns whether to go on. `None` if it did not, or for a store that makes no snapshots.
    ///
    /// # Errors
    /// [`StoreError`]: final.
    fn export(&self, _write: &mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> {
        Ok(None)
    }

    /// Keeps the files that have everything up to the last commit. `None` for a store without files.
    ///
    /// Commits wait for a few milliseconds of it.
    ///
    /// # Errors
    /// [`StoreError`] when a file cannot be read or written.
    fn pin(&self) -> Result<Option<pinned::PinnedFiles>, StoreError> {
        Ok(None)
    }

    /// What erasures have left in files. Nothing for a store without files.
    fn remains(&self) -> Remains {
        Remains::default()
    }

    /// Begins to rewrite the files that have what was erased. [`Remains::rewritten`] says when it is done.
    fn begin_rewrite(&self) {}

    /// Notes that what [`Self::remains`] returned is gone from every file, also from those of the journal.
    ///
    /// # Errors
    /// [`StoreError`]: final.
    fn forget_remains(&self, _gone: &Remains) -> Result<(), StoreError> {
        Ok(())
    }

    /// The approximate size on disk, in bytes; 0 for a store without one.
    fn bytes(&self) -> u64;

    /// Why a thread of the store has failed for good, outside of any call. `None` for a store without threads.
    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        None
    }
}
