//! The commit path: one order for all appends, and the tail of every log.
//!
//! A single committer thread takes the appends of all logs in the order of submission, commits them in groups, and only
//! then moves the tails. So every visible envelope is durable. A group is everything submitted while the previous
//! group was being synced. The committer does not linger for more, because that would cap producers that wait for their
//! answers.
//!
//! This module never looks inside a row. All it knows about readers is whether a log is watched.

mod applier;
mod committer;
mod leadership;
mod open_logs;
mod orderer;
mod tail;

#[cfg(test)]
mod tests;

pub use crate::log::moves::Moves;
pub use crate::log::summary::{
    CompactionState, PENDING_KEY_PREFIX, PREVIEW_CHARS_MAX, Preview, SESSION_TITLE_CHARS_MAX, Summary, SummaryExtension,
    count_of, summary_of,
};
pub use committer::{Ack, Chain, CommitCounters, CommittedGroup, Submission};
pub use leadership::Leadership;
pub use orderer::{Follow, OrderedGroup, Orderer, StoreOnly};
pub use tail::{Connected, HistoryRewrite, Log, Tail};

use super::archive::{ARCHIVE, Archive, ArchiveEntry, ArchivedStore};
use super::deadlines::Deadlines;
use super::journal::{Journal, JournalState};
use super::list_changes::ListChanges;
use super::pending_actions::PendingActions;
use super::queues::Queues;
use super::row::{Row, Rows};
use super::run_index::RunIndex;
use super::run_outcomes::RunOutcomes;
use super::server_state::ServerState;
use super::sessions::Sessions;
use super::status_changes::StatusChanges;
use super::{
    Blob, Compaction, Leader, Limit, ListedLog, LoadedLog, LogId, LogKind, Mark, Remains, Store, StoreError, StoredAppend,
};
use crate::environment::sabotage;
use crate::environment::threads::{spawn_blocking, spawn_thread};
use crate::model::{BlobId, Epoch, RunId, Sequence, SessionId};
use applier::Applier;
use bytes::Bytes;
use committer::{CommitQueue, Committer, Follower, Queued, Request, Rewrite};
use futures_util::future::try_join_all;
use open_logs::OpenLogs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// All logs of one store.
pub struct Logs {
    store: Arc<dyn Store>,
    archive: Arc<Archive>,
    journal: Arc<dyn JournalState>,
    open: Arc<OpenLogs>,
    applier: Arc<Applier>,
    queue: Arc<CommitQueue>,
    failure: watch::Receiver<Option<StoreError>>,
    counts: Arc<CommitCounters>,
    blocking: BlockingLimits,
    leadership: Arc<Leadership>,
}

/// Threads that may block on the store at once, by kind of work.
///
/// The kinds are the state of single logs; pages and look-ups; and work that reads page after page. Readers use the
/// last two; a writer that opens its log needs only the first. The index of texts has a thread of its own.
const STATE_THREADS: usize = 2;
const READ_THREADS: usize = 4;
const LONG_THREADS: usize = 2;
const INDEX_THREADS: usize = 1;

/// The most logs that one of these threads loads in a row.
const LOADS_AT_ONCE: usize = 256;

/// How often a pass looks whether the tables are rewritten.
const REWRITE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The sum of these threads. In a runtime with fewer threads for blocking work, readers stall writers.
pub const STORE_THREADS: usize = STATE_THREADS + READ_THREADS + LONG_THREADS + INDEX_THREADS;

/// Limits on blocking work, so that one kind of work never takes the threads of another.
struct BlockingLimits {
    state: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    long: Arc<Semaphore>,
    index: Arc<Semaphore>,
}

impl Default for BlockingLimits {
    fn default() -> Self {
        let threads = [STATE_THREADS, READ_THREADS, LONG_THREADS, INDEX_THREADS];
        let [state, reads, long, index] = threads.map(|threads| Arc::new(Semaphore::new(threads)));
        Self { state, reads, long, index }
    }
}

impl Logs {
    /// Opens the logs of `store`, which follows `journal`, and starts the committer.
    ///
    /// The receiver yields the commits; its holder must keep receiving. The call blocks on the store.
    ///
    /// # Errors
    /// [`StoreError`] from the store and the journal.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn open<J: Journal>(
        store: impl Store,
        journal: Arc<J>,
    ) -> Result<(Arc<Self>, mpsc::UnboundedReceiver<CommittedGroup>), StoreError> {
        Self::open_with(store, journal, Archive::none())
    }

    /// The same, with the archive that has the rows of some logs.
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Panics
    /// As [`Self::open`].
    pub fn open_with<J: Journal>(
        store: impl Store,
        journal: Arc<J>,
        archive: Archive,
    ) -> Result<(Arc<Self>, mpsc::UnboundedReceiver<CommittedGroup>), StoreError> {
        let archive = Arc::new(archive);
        let store: Arc<dyn Store> = Arc::new(ArchivedStore::new(store, archive.clone()));
        let (counts, open) = (Arc::<CommitCounters>::default(), Arc::<OpenLogs>::default());
        let queue = Arc::<CommitQueue>::default();
        let (groups, outbox) = mpsc::unbounded_channel();
        let (failed, failure) = watch::channel(None);
        let (ready, opened) = std::sync::mpsc::channel();
        let others = journal.others();
        let leadership = Arc::new(if others.is_some() { Leadership::of_cluster() } else { Leadership::alone() });
        let work = {
            let (store, journal, leadership) = (store.clone(), journal.clone(), leadership.clone());
            let (queue, open, counts) = (queue.clone(), open.clone(), counts.clone());
            async move || {
                let load = async {
                    let orderer = Orderer::open(store, journal).await?;
                    let applier = Arc::new(Applier::load(&**orderer.store())?);
                    Ok((orderer, applier))
                };
                let (orderer, applier) = match load.await {
                    Ok(loaded) => loaded,
                    // Without a receiver the caller has panicked.
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let follower = Follower { applier: applier.clone(), open, groups, leadership };
                drop(ready.send(Ok(applier)));
                let orderer = orderer.with_follow(follower);
                Committer { orderer, queue, failed, counts }.run().await;
            }
        };
        spawn_thread("committer", work);
        let panicked = |_| Err(StoreError::Failed { doing: "opening the store", why: "the committer panicked".into() });
        let (applier, blocking) = (opened.recv().unwrap_or_else(panicked)?, BlockingLimits::default());
        if let Some(others) = others {
            let queue = Arc::downgrade(&queue);
            let wake = move || queue.upgrade().map(|queue| queue.catch_up());
            spawn_thread("journal-watch", async move || watch_others(others, wake).await);
        }
        Ok((Arc::new(Self { store, archive, journal, open, applier, queue, failure, counts, blocking, leadership }), outbox))
    }

    /// Whether this process appends to the journal, and the last leader of the cluster.
    #[must_use]
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// How far the store has come.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.store.mark()
    }

    /// Writes a snapshot of the store; see [`Store::export`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub fn export(&self, write: &mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> {
        self.store.export(write)
    }

    /// Appends the record of this process as the leader, after everything that others have appended.
    ///
    /// # Errors
    /// `NotLeader` if the journal has a leader of this term or a later one; otherwise as [`Self::log`].
    pub async fn lead(&self, leader: Leader) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        let is_queued = self.queue.push(Request::Lead(leader, done));
        let answer = if is_queued { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| Err(self.end_of_committer()))
    }

    /// The store's epoch; see [`Store::epoch`].
    ///
    /// For a store that was never written, a constant without meaning.
    #[must_use]
    pub fn store_epoch(&self) -> Epoch {
        self.applier.store_epoch().unwrap_or(Epoch::from_random(0))
    }

    /// The position up to which everything is visible.
    ///
    /// A caller that reads the position first, and the tails of logs afterwards, sees every envelope committed at or
    /// before it.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.applier.position()
    }

    /// Opens a log and loads its tail if necessary.
    ///
    /// A log that was never written opens too, so that readers can wait for it.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn log(&self, id: &LogId) -> Result<Arc<Log>, StoreError> {
        self.open.open(id, async || self.load(id).await).await
    }

    /// Opens several logs. Those that are not open are loaded together.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn open_all(&self, ids: &[LogId]) -> Result<Vec<Arc<Log>>, StoreError> {
        let (wanted, mut asked) = mpsc::unbounded_channel();
        let open = async |id, wanted: mpsc::UnboundedSender<(LogId, oneshot::Sender<_>)>| {
            let load = async || {
                let (answer, loaded) = oneshot::channel();
                // Both ends are in this call, and a load that panics ends the process.
                wanted.send((LogId::clone(id), answer)).expect("the loads are received until every log is open");
                loaded.await.expect("every load is answered")
            };
            self.open.open(id, load).await
        };
        let opening = try_join_all(ids.iter().map(|id| open(id, wanted.clone())));
        drop(wanted);
        let loading = async {
            let mut batch = Vec::new();
            while asked.recv_many(&mut batch, LOADS_AT_ONCE).await > 0 {
                let (store, batch) = (self.store.clone(), std::mem::take(&mut batch));
                let load = move || {
                    for (id, answer) in batch {
                        // A caller that has gone away needs no answer.
                        let _ = answer.send(store.load(&id));
                    }
                };
                blocking(&self.blocking.reads, load).await;
            }
        };
        let (opened, ()) = tokio::join!(opening, loading);
        opened
    }

    /// Opens a log that the caller is about to erase.
    ///
    /// If its summary cannot be read, erases it first; returns whether it did.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn open_for_erase(&self, id: &LogId) -> Result<(Arc<Log>, bool), StoreError> {
        let mut is_erased = false;
        loop {
            match self.log(id).await {
                Err(error) if error.affects_one_log() => self.request_erasure(id.clone(), None).await?,
                log => return Ok((log?, is_erased)),
            }
            is_erased = true;
        }
    }

    /// The index of sessions. It contains every visible log.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        self.applier.sessions()
    }

    /// The index of runs. It contains every visible run.
    #[must_use]
    pub fn runs(&self) -> &RunIndex {
        self.applier.runs()
    }

    /// How the runs ended whose ends this process committed.
    #[must_use]
    pub fn run_outcomes(&self) -> &RunOutcomes {
        self.applier.run_outcomes()
    }

    /// The active runs: runs that no user decision holds up.
    #[must_use]
    pub fn active_runs(&self) -> Vec<RunId> {
        self.applier.active_runs()
    }

    /// The deadlines of pending actions.
    #[must_use]
    pub fn deadlines(&self) -> &Deadlines {
        self.applier.deadlines()
    }

    /// The pending actions of all logs.
    #[must_use]
    pub fn pending_actions(&self) -> &PendingActions {
        self.applier.pending_actions()
    }

    /// What has changed in the lists of sessions, of runs and of pending actions.
    #[must_use]
    pub fn list_changes(&self) -> &ListChanges {
        self.applier.list_changes()
    }

    /// Which commits changed how a run stands.
    #[must_use]
    pub fn status_changes(&self) -> &StatusChanges {
        self.applier.status_changes()
    }

    /// The server's own state. Every entry is durable.
    #[must_use]
    pub fn server_state(&self) -> &ServerState {
        self.applier.server_state()
    }

    /// The queues of open controls. Every queued control is durable.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        self.applier.queues()
    }

    /// Waits for something that may wait for the journal.
    ///
    /// # Errors
    /// `NotLeader` when this process does not lead: the journal of the cluster may not answer for any time.
    pub async fn while_leading<T>(&self, waiting: impl Future<Output = T>) -> Result<T, StoreError> {
        let mut leads = self.leadership.watch();
        tokio::select! {
            biased;
            result = waiting => Ok(result),
            _ = leads.wait_for(|leads| !leads) => Err(StoreError::NotLeader),
        }
    }

    /// Loads a log's state from the store.
    ///
    /// Only the log's writer may rely on it, and only before its first append.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn load(&self, id: &LogId) -> Result<Option<LoadedLog>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.blocking.state, move || store.load(&id)).await
    }

    /// Rows after `after`, up to the log's tail; see [`Store::read`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Bytes>, StoreError> {
        let stored = self.read_appends(id, epoch, after, limit).await?;
        Ok(stored.into_iter().map(|stored| stored.rows).collect())
    }

    /// Like [`Self::read`], with the position of each append.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read_appends(
        &self,
        id: &LogId,
        epoch: Epoch,
        after: Sequence,
        limit: Limit,
    ) -> Result<Vec<StoredAppend>, StoreError> {
        let (store, of) = (self.store.clone(), id.clone());
        let mut stored = blocking(&self.blocking.reads, move || store.read(&of, epoch, after, limit)).await?;
        // The store has an append a moment before the tail moves. A reader with that append would be beyond the log's
        // end, like a reader whose cursor names rows that are gone.
        let tail = self.open.get(id).map(|log| log.tail());
        if let Some(tail) = tail.filter(|tail| tail.epoch == Some(epoch)) {
            stored.retain(|stored| stored.before < tail.last);
        }
        Ok(stored)
    }

    /// Runs a short `job` on the store in a blocking thread; it does not wait behind [`Self::work`].
    pub async fn query<T: Send + 'static>(&self, job: impl FnOnce(&dyn Store) -> T + Send + 'static) -> T {
        let store = self.store.clone();
        blocking(&self.blocking.reads, move || job(&*store)).await
    }

    /// Logs, newest created first; see [`Store::list`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<ListedLog>, StoreError> {
        let store = self.store.clone();
        blocking(&self.blocking.reads, move || store.list(kind, before, limit)).await
    }

    /// An offloaded body; see [`Store::blob`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.blocking.reads, move || store.blob(&id)).await
    }

    /// Saves a checkpoint beside a log; see [`Store::save_checkpoint`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn save_checkpoint(
        &self,
        id: &LogId,
        epoch: Epoch,
        kind: u8,
        sequence: Sequence,
        body: Bytes,
    ) -> Result<(), StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.blocking.long, move || store.save_checkpoint(&id, epoch, kind, sequence, body)).await
    }

    /// The newest checkpoint of this kind at or before `at`; see [`Store::checkpoint`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn checkpoint(
        &self,
        id: &LogId,
        epoch: Epoch,
        kind: u8,
        at: Sequence,
    ) -> Result<Option<(Sequence, Bytes)>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.blocking.long, move || store.checkpoint(&id, epoch, kind, at)).await
    }

    /// Runs `job` on the store in a blocking thread; for callers that read page after page.
    pub async fn work<T: Send + 'static>(&self, job: impl FnOnce(&dyn Store) -> T + Send + 'static) -> T {
        let store = self.store.clone();
        blocking(&self.blocking.long, move || job(&*store)).await
    }

    /// Like [`Self::work`], while nothing rewrites the history of these logs.
    pub async fn work_on<T: Send + 'static>(
        &self,
        mut logs: Vec<Arc<Log>>,
        job: impl FnOnce(&dyn Store) -> T + Send + 'static,
    ) -> T {
        // In one order, so that no two callers wait for each other.
        logs.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        logs.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let mut still = Vec::with_capacity(logs.len());
        for log in logs {
            still.push(log.lock_history().await);
        }
        self.work(move |store| {
            let _still = still;
            job(store)
        })
        .await
    }

    /// Runs a `job` of the index of texts on the store, one at a time.
    pub async fn index<T: Send + 'static>(&self, job: impl FnOnce(&dyn Store) -> T + Send + 'static) -> T {
        let store = self.store.clone();
        blocking(&self.blocking.index, move || job(&*store)).await
    }

    /// Rewrites a log's history; `false`, without effect, if the log is not at the tail that the compaction names.
    ///
    /// `summary` is the log's summary after it. Only the log's writer may call this, with nothing in flight, and must
    /// not write until the call returns.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, turn: HistoryRewrite, compaction: Compaction, summary: Arc<Summary>) -> Result<bool, StoreError> {
        let (done, answer) = oneshot::channel();
        let is_queued = self.queue.push(Request::Rewrite(Rewrite::Compact { turn, compaction, summary, done }));
        let answer = if is_queued { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| Err(self.end_of_committer()))
    }

    /// Refuses a log that was erased lately, or whose session was.
    ///
    /// # Errors
    /// `Erased`.
    pub fn check_not_erased(&self, log: &LogId, session: Option<&SessionId>) -> Result<(), StoreError> {
        match self.server_state().erased().refuses(log, session) {
            None => Ok(()),
            Some(erased) => Err(StoreError::Erased { log: erased.to_string() }),
        }
    }

    /// Erases a log, durably in every sync mode. Afterwards the log is open like one that was never written.
    ///
    /// Only the log's writer may call this, with nothing in flight, and must not write until the call returns.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn erase(&self, log: &Arc<Log>) -> Result<(), StoreError> {
        self.request_erasure(log.id.clone(), Some(log.clone())).await
    }

    /// The archive of this server.
    #[must_use]
    pub const fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    async fn request_erasure(&self, id: LogId, log: Option<Arc<Log>>) -> Result<(), StoreError> {
        // First: an erasure that has succeeded has left nothing.
        self.delete_archived(&id).await?;
        let (done, answer) = oneshot::channel();
        let is_queued = self.queue.push(Request::Rewrite(Rewrite::Erase { id, log, done }));
        let answer = if is_queued { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| Err(self.end_of_committer()))
    }

    /// Deletes the objects of an archived log.
    async fn delete_archived(&self, id: &LogId) -> Result<(), StoreError> {
        let (store, of) = (self.store.clone(), id.clone());
        let entry = move || match store.head(&of)? {
            Some(head) => store.entry(&of, head.epoch, ARCHIVE),
            None => Ok(None),
        };
        let entry = blocking(&self.blocking.state, entry).await?;
        // A sweep deletes what no run names.
        let unknown = |error: StoreError| tracing::warn!(%error, "an erased run was archived, and it is unknown where");
        let named = entry.and_then(|entry| ArchiveEntry::read(id, &entry).map_err(unknown).ok()).map(|entry| entry.object);
        if self.archive.is_open() && !sabotage::is(57) {
            return self.archive.delete_all(id, named).await;
        }
        if let Some(object) = named {
            tracing::warn!(log = %id, object, "without --archive-to, the object of an erased run stays where it is");
        }
        Ok(())
    }

    /// Why the committer answers no more requests.
    fn end_of_committer(&self) -> StoreError {
        self.failure().unwrap_or(StoreError::Failed { doing: "commit", why: "the committer has ended".into() })
    }

    /// Adds appends of a log to the commit queue. The queue's order is the order of commits.
    ///
    /// The caller holds the lock of the log's writer, so a log's appends stay in order. Must run inside a tokio
    /// runtime.
    pub fn submit(&self, submission: Submission) {
        let queued = Queued::new(submission);
        let mut waiting = self.queue.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            // If the producer is gone, the answer is not needed.
            let _ = queued.into_submission().ack.send(Err(self.end_of_committer()));
            return;
        }
        waiting.requests.push_back(Request::Append(queued));
        if std::mem::replace(&mut waiting.is_announced, true) {
            return;
        }
        drop(waiting);
        // Everything else that this turn of the runtime accepts should join the group. A thread switch costs as much as
        // a small append, and on one core an early wake-up would cut every group to one append.
        let queue = self.queue.clone();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            queue.waiting.lock().is_announced = false;
            queue.arrived.notify();
        });
    }

    /// Whether the committer has requests to work on.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.queue.is_working.load(Ordering::Relaxed) || !self.queue.waiting.lock().requests.is_empty()
    }

    /// Waits until the store or the journal has failed for good, or the committer has ended.
    ///
    /// The process must then stop, because the data on disk may differ from the acknowledged data.
    pub async fn failed(&self) -> StoreError {
        let wait = async |failure: Option<watch::Receiver<Option<StoreError>>>| {
            if let Some(mut failure) = failure
                && let Ok(error) = failure.wait_for(Option::is_some).await
            {
                return error.clone().expect("the wait is for an error");
            }
            // The sender is gone without a failure.
            std::future::pending().await
        };
        tokio::select! {
            biased;
            error = wait(Some(self.failure.clone())) => error,
            error = wait(self.store.failure()) => error,
            error = wait(self.journal.failure()) => error,
        }
    }

    /// Makes the committer panic at the next append of a run or a session; for tests.
    #[doc(hidden)]
    pub fn panic_in_committer(&self) {
        self.queue.panics.store(true, Ordering::Relaxed);
    }

    /// Excludes a log with unreadable state from background work, and logs the error.
    ///
    /// Requests for the log get the error.
    pub fn quarantine(&self, id: &LogId, error: &StoreError) {
        match error {
            StoreError::Erased { .. } => tracing::debug!(log = %id, "background tasks skip a log that is being erased"),
            error => tracing::error!(%error, log = %id, "background tasks skip the log until it is repaired or deleted"),
        }
        self.applier.quarantine(id);
    }

    /// Why the store has failed for good, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.failure.borrow().clone()
    }

    /// Ends the committer after all queued requests, and makes everything durable, in every sync mode.
    ///
    /// The server refuses later submissions.
    ///
    /// # Errors
    /// [`StoreError`] from the store or the journal, or from a committer that ended earlier.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.queue.close();
        let mut failure = self.failure.clone();
        // The committer drops its sender when it ends. After a panic it answers its callers before the failure is
        // visible.
        while failure.changed().await.is_ok() {}
        self.failure().map_or(Ok(()), Err)
    }

    /// The approximate size of the store and the journal on disk, in bytes.
    pub async fn bytes(&self) -> u64 {
        let (store, journal) = (self.store.clone(), self.journal.clone());
        blocking(&self.blocking.reads, move || store.bytes() + journal.bytes()).await
    }

    /// What erasures have left in the files of this process.
    #[must_use]
    pub fn remains(&self) -> Remains {
        self.store.remains()
    }

    /// Removes what erasures have left in tables and in the journal of this machine: `remains`, from [`Self::remains`].
    ///
    /// `false`: the journal is one that others follow, and [`Self::forget_remains`] ends the pass once it has none of it.
    ///
    /// # Errors
    /// [`StoreError`] from the store and the journal.
    pub async fn purge(&self, remains: Remains) -> Result<bool, StoreError> {
        let journal = self.journal.clone();
        // Before the tables have what was committed so far: what is committed meanwhile must keep no file alive.
        blocking(&self.blocking.state, move || journal.rotate()).await?;
        self.store.begin_rewrite();
        while self.remains().rewritten < remains.commit {
            tokio::time::sleep(REWRITE_POLL_INTERVAL).await;
        }
        if self.leadership.is_of_cluster() {
            return Ok(false);
        }
        let (store, journal) = (self.store.clone(), self.journal.clone());
        let retire = move || {
            journal.retire(store.persisted() + 1)?;
            store.forget_remains(&remains)
        };
        blocking(&self.blocking.state, retire).await.map(|()| true)
    }

    /// Notes that no file and no journal has what these remains were.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn forget_remains(&self, gone: Remains) -> Result<(), StoreError> {
        let store = self.store.clone();
        blocking(&self.blocking.state, move || store.forget_remains(&gone)).await
    }

    /// The counters of the committer.
    #[must_use]
    pub fn counts(&self) -> &CommitCounters {
        &self.counts
    }

    /// The number of logs, of runs and of sessions.
    #[must_use]
    pub fn log_count(&self) -> u64 {
        self.applier.log_count()
    }

    /// The number of logs that were erased since the start.
    ///
    /// A caller that reads [`Self::position`] first counts each erasure at or before it.
    #[must_use]
    pub fn erasure_count(&self) -> u64 {
        self.applier.erasure_count()
    }

    /// The number of queued requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting.lock().requests.len()
    }

    /// Closes logs that no caller holds. They are loaded again on demand.
    pub fn sweep(&self) {
        self.open.sweep();
        self.applier.sessions().sweep();
        self.applier.queues().sweep();
    }

    /// The number of open logs.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }
}

/// Calls `wake` whenever another process may have appended to the journal, until it returns `None`.
async fn watch_others(mut others: watch::Receiver<u64>, wake: impl Fn() -> Option<()>) {
    while others.changed().await.is_ok() && wake().is_some() {}
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The rows after `after` in runs of encoded rows.
pub fn rows_after(runs: Vec<Bytes>, after: Sequence) -> impl Iterator<Item = Row> {
    runs.into_iter().flat_map(Rows).filter(move |row| row.sequence() > after)
}

/// Runs `work` in a blocking thread of this kind.
///
/// The work keeps its permit until it ends, even if the caller stops waiting.
async fn blocking<T: Send + 'static>(lane: &Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> T {
    let place = lane.clone().acquire_owned().await.expect("the semaphore is never closed");
    let working = spawn_blocking(move || {
        let _place = place;
        work()
    });
    working.await.expect("a store call neither panics nor is cancelled")
}
