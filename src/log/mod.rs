//! Logs: one ordered, durable row of envelopes a run, and the contract of the stores that keep them.
//!
//! ```text
//!   sequence     1    2    3    4    5   …
//!   rows        [ append 1  ][ append 2 ]         an append is atomic: all of its rows, bodies and state, or nothing
//!                                       ▲
//!                                       └ tail: the last sequence; the next append must say that it expects it
//! ```
//!
//! A reader sees an append as a whole or not at all, and never before it is committed.
//!
//! Sequences are given without gaps. A [`Compaction`] may take rows away again, of a past that nobody adds to: what is left
//! keeps its sequence and its place, and whoever reads finds a hole where the others were, never a wrong row.
//!
//! Beside a log lie checkpoints: what somebody made of its rows up to a sequence, so as not to make it of all of them again.
//! They may be lost; a log that lost rows has none that knows them.
//!
//! A store on another machine can keep this contract: every call may wait, a conflict is an answer, nothing needs a lock
//! that spans logs. What a store never does: look inside a row, a body or a state entry.

pub mod control;
pub mod embedded;
pub mod memory;
pub mod ongoing;
pub mod queues;
pub mod row;
pub mod run;
pub mod sessions;

use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;

/// Which log: a run's, or a session's own for facts of no run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogId {
    Run(RunId),
    Session(SessionId),
}

impl LogId {
    /// Which kind of log it is.
    #[must_use]
    pub const fn kind(&self) -> LogKind {
        match self {
            Self::Run(_) => LogKind::Run,
            Self::Session(_) => LogKind::Session,
        }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(id) => write!(f, "run {id}"),
            Self::Session(id) => write!(f, "session {id}"),
        }
    }
}

/// One atomic addition to one log.
#[derive(Debug, Clone)]
pub struct Append {
    pub log: LogId,
    /// The log's life. The first append of a log (`expected` is [`Sequence::NONE`] and there is no log) creates it with this
    /// epoch; a log of another epoch is a conflict.
    pub epoch: Epoch,
    /// The log's last sequence before this append.
    pub expected: Sequence,
    /// The log's last sequence after it; equals `expected` when only state is saved.
    pub last: Sequence,
    /// The rows `expected + 1 ..= last`, one after another as [`row::Row`] encodes them: at most [`row::APPEND_ROWS_MAX`], so
    /// that the smallest read stays small. What must be stored as a whole and is longer goes as several appends of one group.
    pub rows: Bytes,
    /// Bodies that the rows refer to. They belong to this log: erasing it erases them.
    pub blobs: Vec<Blob>,
    /// State entries to set (`Some`) or to forget (`None`), in order: of one key the last counts. Keys are 1 to
    /// [`STATE_KEY_BYTES_MAX`] bytes long. The entry [`META`] is the one that [`Store::list`] gives.
    pub state: Vec<(Bytes, Option<Bytes>)>,
}

/// The longest key of a state entry.
pub const STATE_KEY_BYTES_MAX: usize = 1024;

impl Append {
    /// Whether it leaves a log that is there as it is. Such a one only waits for those before it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.blobs.is_empty() && self.state.is_empty()
    }

    /// Why this append cannot follow a log that stands at `standing` (`None`: there is no such log); `None` when it can.
    ///
    /// # Panics
    /// When the append contradicts itself, which only its maker can have caused.
    #[must_use]
    pub fn conflict(&self, standing: Option<(Epoch, Sequence)>) -> Option<Outcome> {
        assert!(self.last >= self.expected, "an append moves the tail forward or not at all");
        assert_eq!(self.last == self.expected, self.rows.is_empty(), "there are rows exactly when the tail moves");
        assert!(
            self.last.0 - self.expected.0 <= row::APPEND_ROWS_MAX as u64,
            "an append has at most {} rows",
            row::APPEND_ROWS_MAX
        );
        assert!(
            self.state.iter().all(|(key, _)| (1..=STATE_KEY_BYTES_MAX).contains(&key.len())),
            "state keys are 1 to {STATE_KEY_BYTES_MAX} bytes long"
        );
        match standing {
            None if self.expected == Sequence::NONE => None,
            None => Some(Outcome::Conflict { last: Sequence::NONE, epoch: None }),
            Some((epoch, last)) if epoch == self.epoch && last == self.expected => None,
            Some((epoch, last)) => Some(Outcome::Conflict { last, epoch: Some(epoch) }),
        }
    }
}

/// The state entry that describes a log in lists.
pub const META: &[u8] = b"m";

/// An offloaded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub id: BlobId,
    /// Who may read it, of what type it is: ours to read, opaque to the store.
    pub meta: Bytes,
    pub body: Bytes,
}

/// What became of one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable (as the store's sync mode says) at this place in the order of all appends of this store: counted from 1,
    /// without gaps, never reused, also by appends that only save state. One that changes nothing takes no place: it is
    /// answered with that of the append before it. `created` is the log's place in the order of creation; see
    /// [`Listed::created`].
    Committed { position: u64, created: u64 },
    /// The log stands elsewhere than expected (another writer, another epoch, or `None`: it is not there); nothing of this
    /// append was kept.
    Conflict { last: Sequence, epoch: Option<Epoch> },
}

impl Outcome {
    /// Where it was committed, and its log's place in the order of creation; `None` for a conflict.
    #[must_use]
    pub const fn position(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Committed { position, created } => Some((position, created)),
            Self::Conflict { .. } => None,
        }
    }
}

/// A log as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub epoch: Epoch,
    pub last: Sequence,
    /// Every state entry, in the order of keys.
    pub state: Vec<(Bytes, Bytes)>,
}

/// One line of a list of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub log: LogId,
    pub epoch: Epoch,
    /// The place in the order in which this store's logs of all kinds were created, counted from 1, never reused; a list is
    /// continued before it.
    pub created: u64,
    /// The state entry [`META`]; empty when there is none.
    pub meta: Bytes,
}

/// Of what a log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    Run,
    Session,
}

/// The rows of one append, and the append's place in the order of all appends of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub position: u64,
    /// The log's last sequence before the append, whatever is left of that.
    pub before: Sequence,
    /// One after another, as [`row::Rows`] iterates them: at least one.
    pub rows: Bytes,
}

/// How much to read at once. A read returns at least one append's rows when there are any, however large.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Rows that come after the place that is read from.
    pub rows: usize,
    /// Bytes of encoded rows, with those that the caller will skip.
    pub bytes: usize,
}

/// Appends of a log, rewritten in their places: rows that nobody needs any more are taken out of its past.
#[derive(Debug, Clone)]
pub struct Compaction {
    pub log: LogId,
    pub epoch: Epoch,
    /// The log's last sequence; it stays that.
    pub last: Sequence,
    /// The appends that change, in their order.
    pub appends: Vec<Rewritten>,
    /// State entries, as in [`Append::state`].
    pub state: Vec<(Bytes, Option<Bytes>)>,
}

/// What one append becomes.
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// The append's place in the order of all appends of the store.
    pub position: u64,
    /// The sequence of the last row that is left of it; [`Sequence::NONE`] where none is.
    pub last: Sequence,
    /// The rows that are left of it, with the sequences that they had. The log's last row is always left, or the tail would move.
    pub rows: Bytes,
}

impl Compaction {
    /// Whether the log stands where this one says.
    ///
    /// # Panics
    /// When it contradicts itself, which only its maker can have caused.
    #[must_use]
    pub fn fits(&self, standing: Option<(Epoch, Sequence)>) -> bool {
        assert!(self.appends.is_sorted_by(|a, b| a.position < b.position), "appends are in order, each once");
        assert!(
            self.appends.iter().all(|append| append.rows.is_empty() == (append.last == Sequence::NONE)),
            "there is a last row exactly when there are rows"
        );
        standing == Some((self.epoch, self.last))
    }
}

/// Why a store cannot answer. Each is for the operator; none is retried.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The data on disk is not what was written: refused rather than guessed at.
    #[error("{path} is damaged: {what}; restore it from a backup, or move the data directory away to start anew")]
    Rot { path: PathBuf, what: String },
    /// The disk or the machine failed. A failed sync is final: what was being written may or may not be there.
    #[error("{doing} failed: {why}")]
    Failed { doing: &'static str, why: String },
    /// What a log remembers between appends is stored, and cannot be read. Other logs go on.
    #[error(
        "the stored state of {log} cannot be read: entry {entry}: {why}; `proscenium doctor` lists what is wrong; restore the \
         data directory from a backup, or delete the run"
    )]
    Unreadable { log: String, entry: String, why: String },
    /// A stream of several logs would follow more of them than it may.
    #[error("The session has {count} runs and logs of its own, the limit of one stream is {limit}. Read its runs one by one.")]
    TooManyLogs { count: usize, limit: usize },
    /// Another process holds the data directory.
    #[error("the data directory {path} is in use by another process; stop it, or give --data-dir another directory")]
    Locked { path: PathBuf },
}

impl StoreError {
    /// A failure of the disk or the machine.
    pub(crate) fn failed(doing: &'static str, why: &dyn fmt::Display) -> Self {
        Self::Failed { doing, why: why.to_string() }
    }

    /// An entry of this log's stored state cannot be read.
    pub(crate) fn unreadable(log: &impl fmt::Display, entry: &[u8], why: &dyn fmt::Display) -> Self {
        Self::Unreadable { log: log.to_string(), entry: format!("{:?}", String::from_utf8_lossy(entry)), why: why.to_string() }
    }

    /// Whether it concerns one log alone, and the store goes on.
    #[must_use]
    pub const fn is_of_one_log(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}

/// What a panic says.
#[must_use]
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// A place that keeps logs. `tests/it/store.rs` is its suite: every store passes it.
pub trait Store: Send + Sync + 'static {
    /// Commits a group of appends in their order, durably, and answers for each. Each is judged as if the ones before it were
    /// in already, so appends of one log in one group may follow each other, and a conflict of one leaves the others alone.
    /// Those that do not conflict are stored all or none, whatever ends the process meanwhile.
    /// Called by one committer at a time; it may block the thread it is called on. The other calls may come from anywhere
    /// meanwhile, and block no longer than a bounded read takes.
    ///
    /// # Errors
    /// [`StoreError`]: final. The caller stops; it must not go on as if only this group had failed.
    fn commit(&self, group: &[Append]) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send;

    /// The same, where `follows` says of each append whether it builds on the one of its log before it in the group. If that one
    /// conflicts, so does this one: it could stand by chance where the log really does, once another writer has added to it.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn commit_linked(&self, group: &[Append], follows: &[bool]) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send {
        debug_assert_eq!(group.len(), follows.len(), "there is a word on each");
        self.commit(group)
    }

    /// The log's epoch, tail and state; `None` for a log that nobody has written.
    fn load(&self, log: &LogId) -> impl Future<Output = Result<Option<Loaded>, StoreError>> + Send;

    /// The position of the last append; 0 before the first.
    fn position(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Which life of a store this is: the epoch of its first append ever; `None` before that. Another store's positions mean
    /// nothing here, and a reader who comes with one must be told.
    fn life(&self) -> impl Future<Output = Result<Option<Epoch>, StoreError>> + Send;

    /// The log's last sequence among its appends at or before this position; [`Sequence::NONE`] when there is none, for a log
    /// of another epoch, and for a log that is not there. An append counts though nothing may be left of it. So one number
    /// says how far many logs were read. It takes a few look-ups, however long the log is.
    fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> impl Future<Output = Result<Sequence, StoreError>> + Send;

    /// The position of the append that brought this sequence to the log; `None` when the log has not come so far, is of another
    /// epoch, or is not there. An append counts though nothing may be left of it. It takes one look-up.
    fn position_of(
        &self,
        log: &LogId,
        epoch: Epoch,
        sequence: Sequence,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Rows after `after`, in order, by append: as many whole ones as `limit` allows, at least one. The first may begin at or
    /// before `after`: the caller skips. Nothing is left out but what was compacted away; an append of which nothing is left
    /// is passed over. Empty only at the tail, for a log of another epoch, and for a log that is not there.
    fn read(
        &self,
        log: &LogId,
        epoch: Epoch,
        after: Sequence,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Placed>, StoreError>> + Send;

    /// Up to `limit` logs of this kind, the newest created first, from those created before `before`. Whatever is created or
    /// erased between two pages, no log is listed twice and none that stays is left out.
    fn list(
        &self,
        kind: LogKind,
        before: Option<u64>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Listed>, StoreError>> + Send;

    /// An offloaded body.
    fn blob(&self, id: &BlobId) -> impl Future<Output = Result<Option<Blob>, StoreError>> + Send;

    /// Keeps a checkpoint beside a log: what its maker, told apart by `kind`, made of the rows up to `sequence`. Those of other
    /// kinds and sequences stay; how many of them there are is up to who saves them. Nothing happens for a log that is not
    /// there, is of another epoch, or has not come to that sequence.
    ///
    /// A crash may lose it, though it was answered for. But it comes after its rows in whatever order the store makes things
    /// last: it is not there after a crash that lost one of them.
    fn save_checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        sequence: Sequence,
        body: Bytes,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The newest checkpoint of this kind at or before `at`, and its sequence.
    fn checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> impl Future<Output = Result<Option<(Sequence, Bytes)>, StoreError>> + Send;

    /// Rewrites appends of a log in their places, and erases its checkpoints if there are any such appends, for they were made of
    /// what was there before: all of it, or after a crash nothing. A read sees the log before it or after it. Positions, the tail and [`Placed::before`] stay
    /// what they are; bodies stay, too. False, and nothing happens, when the log does not stand where the compaction says.
    ///
    /// Like a commit it is durable as the sync mode says, and blocks.
    fn compact(&self, compaction: &Compaction) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Erases a log with its bodies, state and checkpoints, durably whatever the sync mode: once this is answered, and whenever the store
    /// is opened after it, there is nothing of it; at no time is there half of it. Nothing for a log that is not there. The
    /// next append with no expectations creates the log anew.
    fn erase(&self, log: &LogId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes everything durable that was committed before, whatever the sync mode. Like a commit it blocks.
    fn flush(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How many bytes it takes on disk, about; 0 for a store that has none.
    fn bytes(&self) -> impl Future<Output = u64> + Send;

    /// Waits until the store has failed for good by itself, outside of any call.
    fn failed(&self) -> impl Future<Output = StoreError> + Send {
        std::future::pending()
    }
}

/// The stores that a server can be started on.
pub enum AnyStore {
    Memory(memory::MemoryStore),
    Embedded(embedded::EmbeddedStore),
}

macro_rules! each_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            Self::Embedded($store) => $call,
        }
    };
}

impl Store for AnyStore {
    async fn commit(&self, group: &[Append]) -> Result<Vec<Outcome>, StoreError> {
        each_store!(self, store => store.commit(group).await)
    }

    async fn commit_linked(&self, group: &[Append], follows: &[bool]) -> Result<Vec<Outcome>, StoreError> {
        each_store!(self, store => store.commit_linked(group, follows).await)
    }

    async fn load(&self, log: &LogId) -> Result<Option<Loaded>, StoreError> {
        each_store!(self, store => store.load(log).await)
    }

    async fn position(&self) -> Result<u64, StoreError> {
        each_store!(self, store => store.position().await)
    }

    async fn life(&self) -> Result<Option<Epoch>, StoreError> {
        each_store!(self, store => store.life().await)
    }

    async fn locate(&self, log: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        each_store!(self, store => store.locate(log, epoch, position).await)
    }

    async fn position_of(&self, log: &LogId, epoch: Epoch, sequence: Sequence) -> Result<Option<u64>, StoreError> {
        each_store!(self, store => store.position_of(log, epoch, sequence).await)
    }

    async fn read(&self, log: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Placed>, StoreError> {
        each_store!(self, store => store.read(log, epoch, after, limit).await)
    }

    async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        each_store!(self, store => store.list(kind, before, limit).await)
    }

    async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        each_store!(self, store => store.blob(id).await)
    }

    async fn save_checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        sequence: Sequence,
        body: Bytes,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.save_checkpoint(log, epoch, kind, sequence, body).await)
    }

    async fn checkpoint(
        &self,
        log: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        each_store!(self, store => store.checkpoint(log, epoch, kind, at).await)
    }

    async fn compact(&self, compaction: &Compaction) -> Result<bool, StoreError> {
        each_store!(self, store => store.compact(compaction).await)
    }

    async fn erase(&self, log: &LogId) -> Result<(), StoreError> {
        each_store!(self, store => store.erase(log).await)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        each_store!(self, store => store.flush().await)
    }

    async fn bytes(&self) -> u64 {
        each_store!(self, store => store.bytes().await)
    }

    async fn failed(&self) -> StoreError {
        each_store!(self, store => store.failed().await)
    }
}
