//! One order for all appends, and the tail of every log.
//!
//! A single committer thread takes the appends of all logs in the order in which they were submitted, commits them in
//! groups, and only then moves the tails: whoever sees an envelope may rely on its being durable. A group is whatever came
//! while the one before was being synced; there is no linger, which would cap producers that wait for their answer.
//!
//! Never looks inside a row. Knows nothing of readers beyond whether a log is watched.

mod summary;

mod tail;

mod committer;

#[cfg(test)]
mod tests;

pub use committer::{Ack, Chain, Counts, Group, Submission};
pub use summary::{Compacted, SHOWN_CHARS_MAX, Shown, Summary, count_of, summary_of};
pub use tail::{Log, OnTheLine, Tail};

use super::ongoing::Ongoing;
use super::queues::Queues;
use super::row::{Row, Rows};
use super::sessions::Sessions;
use super::{Blob, Compaction, Limit, Listed, Loaded, LogId, LogKind, Placed, Store, StoreError};
use crate::model::{BlobId, Epoch, RunId, Sequence};
use bytes::Bytes;
use committer::{Committer, Line, Queued};
use dashmap::DashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{OnceCell, Semaphore, mpsc, watch};

/// All logs of one store.
pub struct Logs<S> {
    store: Arc<S>,
    /// An empty cell is of a log that is being loaded.
    open: DashMap<LogId, Arc<OnceCell<Arc<Log>>>>,
    /// The position up to which tails have moved.
    position: Arc<AtomicU64>,
    life: Arc<OnceLock<Epoch>>,
    sessions: Arc<Sessions>,
    ongoing: Arc<Ongoing>,
    queues: Arc<Queues>,
    line: Arc<Line>,
    failure: watch::Receiver<Option<StoreError>>,
    counts: Arc<Counts>,
    lanes: Lanes,
}

/// Threads that wait for the store, at once: for the state of single logs, for pages and look-ups, and for work that reads page
/// after page. Readers fill the last two; a writer that opens its log needs only the first.
const STATE_THREADS: usize = 2;
const READ_THREADS: usize = 4;
const LONG_THREADS: usize = 2;

/// All of them. A runtime that has fewer threads for blocking work lets readers stall writers.
pub const STORE_THREADS: usize = STATE_THREADS + READ_THREADS + LONG_THREADS;

/// Divides the runtime's threads for blocking work, so that one kind of it never takes those of another.
struct Lanes {
    state: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Default for Lanes {
    fn default() -> Self {
        let [state, reads, long] = [STATE_THREADS, READ_THREADS, LONG_THREADS].map(|threads| Arc::new(Semaphore::new(threads)));
        Self { state, reads, long }
    }
}

impl<S: Store> Logs<S> {
    /// Opens the logs of `store` and starts the committer. The groups it commits come out of the receiver; whoever holds it
    /// must keep receiving. It blocks for as long as the store does.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    ///
    /// # Panics
    /// When the machine gives no thread.
    pub fn open(store: S) -> Result<(Arc<Self>, mpsc::UnboundedReceiver<Group>), StoreError> {
        let store = Arc::new(store);
        let position = Arc::new(AtomicU64::new(pollster::block_on(store.position())?));
        let life = Arc::<OnceLock<Epoch>>::default();
        if let Some(known) = pollster::block_on(store.life())? {
            life.get_or_init(|| known);
        }
        let ongoing = Arc::<Ongoing>::default();
        let queues = Arc::<Queues>::default();
        let counts = Arc::<Counts>::default();
        let saw = |log: &LogId, summary: Option<&Summary>| {
            counts.logs.fetch_add(1, Ordering::Relaxed);
            let Some(summary) = summary else { return };
            ongoing.note(log, None, summary);
            queues.note(log, None, summary);
        };
        let sessions = Arc::new(pollster::block_on(Sessions::load(&*store, saw))?);
        let line = Arc::<Line>::default();
        let (groups, outbox) = mpsc::unbounded_channel();
        let (failed, failure) = watch::channel(None);
        let committer = Committer {
            store: store.clone(),
            position: position.clone(),
            life: life.clone(),
            sessions: sessions.clone(),
            ongoing: ongoing.clone(),
            queues: queues.clone(),
            line: line.clone(),
            groups,
            failed,
            counts: counts.clone(),
        };
        std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || committer.run())
            .expect("a process that cannot start one thread cannot serve");
        let open = DashMap::new();
        let lanes = Lanes::default();
        Ok((Arc::new(Self { store, open, position, life, sessions, ongoing, queues, line, failure, counts, lanes }), outbox))
    }

    /// The store's life; see [`Store::life`]. Of a store that was never written any epoch that means nothing.
    #[must_use]
    pub fn life(&self) -> Epoch {
        self.life.get().copied().unwrap_or(Epoch::from_random(0))
    }

    /// The position up to which everything is visible. Whoever asks for it first, and for the tails of logs after that, sees
    /// in them all that was committed at or before it.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// The log's tail, loaded if nobody had it open. A log that was never written is open too: readers may wait for it.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn log(&self, id: &LogId) -> Result<Arc<Log>, StoreError> {
        // Loaded once for all who wait for it. Nobody can write or erase a log that is not open, so that a tail is never older
        // than its log.
        self.cell(id).get_or_try_init(|| self.opened(id)).await.cloned()
    }

    /// The log, for one who will erase it. One that cannot be opened, for its summary cannot be read, is erased first; whether it
    /// was.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn log_to_erase(&self, id: &LogId) -> Result<(Arc<Log>, bool), StoreError> {
        let mut is_erased = false;
        let open = async || match self.opened(id).await {
            Err(error) if error.is_of_one_log() => {
                let (store, gone) = (self.store.clone(), id.clone());
                blocking(&self.lanes.long, move || pollster::block_on(store.erase(&gone))).await?;
                self.counts.logs.fetch_sub(1, Ordering::Relaxed);
                is_erased = true;
                self.opened(id).await
            }
            opened => opened,
        };
        let log = self.cell(id).get_or_try_init(open).await?.clone();
        Ok((log, is_erased))
    }

    fn cell(&self, id: &LogId) -> Arc<OnceCell<Arc<Log>>> {
        let cell = self.open.get(id).map(|cell| cell.clone());
        cell.unwrap_or_else(|| self.open.entry(id.clone()).or_default().clone())
    }

    async fn opened(&self, id: &LogId) -> Result<Arc<Log>, StoreError> {
        let tail = match self.load(id).await? {
            None => Tail::default(),
            Some(loaded) => {
                let summary = Arc::new(summary_of(id, &loaded)?);
                Tail { epoch: Some(loaded.epoch), last: loaded.last, summary }
            }
        };
        Ok(Arc::new(Log::new(id.clone(), tail)))
    }

    /// Which sessions there are. Whatever log is visible is in there, too.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Which runs go on without anybody's decision.
    #[must_use]
    pub fn ongoing(&self) -> Vec<RunId> {
        self.ongoing.runs()
    }

    /// Which controls wait for whom. What is in there is durable.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// A log's state as the store has it. Only its one writer may rely on it, and only before it first appends.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn load(&self, id: &LogId) -> Result<Option<Loaded>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.lanes.state, move || pollster::block_on(store.load(&id))).await
    }

    /// Rows after `after`, up to the log's tail; see [`Store::read`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Bytes>, StoreError> {
        let placed = self.read_placed(id, epoch, after, limit).await?;
        Ok(placed.into_iter().map(|placed| placed.rows).collect())
    }

    /// The same, with the place of each append in the order of all.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read_placed(&self, id: &LogId, epoch: Epoch, after: Sequence, limit: Limit) -> Result<Vec<Placed>, StoreError> {
        let (store, of) = (self.store.clone(), id.clone());
        let mut placed = blocking(&self.lanes.reads, move || pollster::block_on(store.read(&of, epoch, after, limit))).await?;
        // The store has an append a moment before the tail tells of it. A reader that took it would stand beyond the log's end,
        // as one does that comes with a cursor of rows which are gone.
        let tail = self.open.get(id).and_then(|cell| cell.get().map(|log| log.tail()));
        if let Some(tail) = tail.filter(|tail| tail.epoch == Some(epoch)) {
            placed.retain(|placed| placed.before < tail.last);
        }
        Ok(placed)
    }

    /// The log's last sequence at or before a position; see [`Store::locate`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn locate(&self, id: &LogId, epoch: Epoch, position: u64) -> Result<Sequence, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.lanes.reads, move || pollster::block_on(store.locate(&id, epoch, position))).await
    }

    /// Logs, newest created first; see [`Store::list`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let store = self.store.clone();
        blocking(&self.lanes.reads, move || pollster::block_on(store.list(kind, before, limit))).await
    }

    /// An offloaded body; see [`Store::blob`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(&self.lanes.reads, move || pollster::block_on(store.blob(&id))).await
    }

    /// Keeps a checkpoint beside a log; see [`Store::save_checkpoint`].
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
        blocking(&self.lanes.long, move || pollster::block_on(store.save_checkpoint(&id, epoch, kind, sequence, body))).await
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
        blocking(&self.lanes.long, move || pollster::block_on(store.checkpoint(&id, epoch, kind, at))).await
    }

    /// Works on the store in a thread that may wait: for whoever reads page after page and makes something of each.
    pub async fn work<T: Send + 'static>(&self, job: impl FnOnce(&S) -> T + Send + 'static) -> T {
        let store = self.store.clone();
        blocking(&self.lanes.long, move || job(&store)).await
    }

    /// Rewrites a log's past; see [`Store::compact`]. `summary` is what is known of the log then. Only its one writer may ask for
    /// it, with nothing on its way to the store, and writes nothing until this is answered. It waits for those who
    /// [hold the past still](Log::hold_still).
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, log: &Arc<Log>, compaction: Compaction, summary: Arc<Summary>) -> Result<bool, StoreError> {
        let (store, log) = (self.store.clone(), log.clone());
        blocking(&self.lanes.long, move || {
            let _alone = log.past.write();
            let is_done = pollster::block_on(store.compact(&compaction))?;
            if is_done {
                log.rewrite(summary);
            }
            Ok(is_done)
        })
        .await
    }

    /// Erases a log; see [`Store::erase`]. It is then open as one that nobody has written. Only its one writer may ask for it,
    /// with nothing on its way to the store, and writes nothing until this is answered.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn erase(&self, log: &Log) -> Result<(), StoreError> {
        let (store, id) = (self.store.clone(), log.id.clone());
        let erased = blocking(&self.lanes.long, move || pollster::block_on(store.erase(&id))).await;
        // A failure may have come after the log was gone.
        if erased.is_ok() || matches!(self.load(&log.id).await, Ok(None)) {
            let before = log.unwrite();
            if before.epoch.is_some() {
                self.counts.logs.fetch_sub(1, Ordering::Relaxed);
            }
            self.sessions.forget(&log.id, &before.summary).tell();
            self.ongoing.forget(&log.id);
            self.queues.forget(&log.id);
        }
        erased
    }

    /// Puts appends of a log in the line to the store. The line's order is the order of commits; the caller holds its log's writer
    /// lock, so a log's appends stand in their own order too. Must be called inside a tokio runtime.
    pub fn submit(&self, submission: Submission) {
        let queued = Queued::new(submission);
        let mut waiting = self.line.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            let why = self.failure.borrow().clone();
            let why = why.unwrap_or(StoreError::Failed { doing: "commit", why: "the committer has stopped".into() });
            // The producer may be gone; then nobody needs the answer.
            let _ = queued.into_submission().ack.send(Err(why));
            return;
        }
        waiting.submissions.push_back(queued);
        if std::mem::replace(&mut waiting.is_announced, true) {
            return;
        }
        drop(waiting);
        // Whatever else this turn of the runtime takes in should go in the same group: a thread switch costs as much as a
        // small append, and on one core a committer that is woken at once would cut every group to one.
        let line = self.line.clone();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            line.waiting.lock().is_announced = false;
            line.came.notify_one();
        });
    }

    /// Waits until the store has failed for good, or the committer has ended. The process must then stop: what is on disk and
    /// what was promised may part.
    pub async fn failed(&self) -> StoreError {
        let mut failure = self.failure.clone();
        let committer = async {
            match failure.wait_for(Option::is_some).await.map(|error| error.clone()) {
                Ok(Some(error)) => error,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = committer => error,
            error = self.store.failed() => error,
        }
    }

    /// Has the committer panic at the next append: for tests of what follows.
    #[doc(hidden)]
    pub fn panic_in_committer(&self) {
        self.line.panics.store(true, Ordering::Relaxed);
    }

    /// Takes a log whose state cannot be read out of what is looked after without anybody's asking, and says so once: what asks
    /// for it is answered with the error.
    pub fn set_aside(&self, id: &LogId, error: &StoreError) {
        tracing::error!(%error, log = %id, "the log is not looked after until it is repaired or deleted");
        self.ongoing.forget(id);
        self.queues.forget(id);
    }

    /// Why the store has failed for good, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.failure.borrow().clone()
    }

    /// Ends the committer, once it has committed what was submitted, and makes everything durable, whatever the sync mode; see
    /// [`Store::flush`]. What is submitted later is refused.
    ///
    /// # Errors
    /// [`StoreError`] from the store, or from a committer that ended before.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.line.close();
        let mut failure = self.failure.clone();
        // Until the other end is gone, with the committer: one that panics answers those who wait before it can say why.
        while failure.changed().await.is_ok() {}
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let store = self.store.clone();
        blocking(&self.lanes.state, move || pollster::block_on(store.flush())).await
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many logs there are, of runs and of sessions.
    #[must_use]
    pub fn log_count(&self) -> u64 {
        self.counts.logs.load(Ordering::Relaxed)
    }

    /// Appends that wait for the committer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.waiting.lock().submissions.len()
    }

    /// Forgets tails that nobody holds. They come back on demand.
    pub fn sweep(&self) {
        let is_held = |cell: &Arc<OnceCell<Arc<Log>>>| {
            Arc::strong_count(cell) > 1 || cell.get().is_some_and(|log| Arc::strong_count(log) > 1)
        };
        self.open.retain(|_, cell| is_held(cell));
        self.sessions.sweep();
        self.queues.sweep();
    }

    /// How many logs are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }
}

impl<S> Drop for Logs<S> {
    fn drop(&mut self) {
        self.line.close();
    }
}

/// Rows after `after` out of runs of encoded rows.
pub fn rows_after(runs: Vec<Bytes>, after: Sequence) -> impl Iterator<Item = Row> {
    runs.into_iter().flat_map(Rows).filter(move |row| row.sequence() > after)
}

/// Works in a thread of this lane. The thread is the lane's until the work is done, whoever has ceased to wait for it.
async fn blocking<T: Send + 'static>(lane: &Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> T {
    let place = lane.clone().acquire_owned().await.expect("a lane is never closed");
    let working = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    working.await.expect("a store's call neither panics nor is cancelled")
}
