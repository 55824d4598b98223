//! One order for all appends, and the tail of every log.
//!
//! A single committer thread takes the appends of all logs in the order in which they were submitted, commits them in
//! groups, and only then moves the tails: whoever sees an envelope may rely on its being durable. A group is whatever came
//! while the one before was being synced; there is no linger, which would cap producers that wait for their answer.
//!
//! Never looks inside a row. Knows nothing of readers beyond whether a log is watched.

use super::control::{AskedAction, OpenControl};
use super::ongoing::Ongoing;
use super::queues::Queues;
use super::row::Rows;
use super::sessions::{Changed, Sessions};
use super::{Append, Blob, Compaction, Limit, Listed, Loaded, LogId, LogKind, Outcome, Placed, Store, StoreError};
use crate::meter::{Counter, Histogram};
use crate::model::{AgentId, Audience, BlobId, Epoch, RunId, Sequence, SessionId, ThreadId};
use crate::source::ledger::RunState;
use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};

/// The most that one group commits, in bytes of rows and bodies; what is larger goes alone.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most appends in one group.
const GROUP_APPENDS_MAX: usize = 2048;
/// What a watched log keeps of its newest rows for those who encode them, in bytes. What fell out is read from the store.
const RECENT_BYTES_MAX: usize = 1024 * 1024;
/// What is kept of them once they have been encoded.
const RECENT_BYTES_KEPT: usize = 16 * 1024;

/// What a list shows of a log: only what every audience may see goes in here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// The beginning of the newest message, and which message that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
}

/// The longest title and preview, in characters.
pub const SHOWN_CHARS_MAX: usize = 160;

impl Shown {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// A log with this title.
    pub fn title(&mut self, title: &str) {
        self.title = Some(title.chars().take(SHOWN_CHARS_MAX).collect());
    }

    /// More text of a message; of another message than before it is the beginning.
    pub fn preview(&mut self, message: &str, chunk: &str) {
        if self.preview.as_ref().is_some_and(|(of, text)| **of == *message && text.len() >= SHOWN_CHARS_MAX) {
            return;
        }
        let known = self.preview.take_if(|(of, _)| **of == *message);
        let known = known.map(|(_, text)| String::from(text)).unwrap_or_default();
        let room = SHOWN_CHARS_MAX.saturating_sub(known.chars().count());
        let text = known + &chunk.chars().take(room).collect::<String>();
        self.preview = Some((message.into(), text.into()));
    }
}

/// What is known of a log without reading it: saved with every append, shown in lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<SessionId>,
    /// The run's own agent: that of its first start that names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// How the run stands, by all that is known.
    pub run: RunState,
    /// The same by what users and what operators saw, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_for_user: Option<Box<RunState>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_for_dashboard: Option<Box<RunState>>,
    /// RFC 3339 UTC, as all times here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Box<str>>,
    pub last_sequence: Sequence,
    /// What users are shown in lists.
    #[serde(default, skip_serializing_if = "Shown::is_nothing")]
    pub shown: Shown,
    /// Per audience: the last sequence that it sees, and how many it sees.
    pub seen_last: [Sequence; 3],
    pub seen_count: [u64; 3],
    #[serde(default, skip_serializing_if = "Compacted::is_never")]
    pub compacted: Compacted,
    /// Who asks, of the actions that wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asking: Vec<AskedAction>,
    /// The controls that are open, in the order in which they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<OpenControl>,
}

/// What compaction has made of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// How often rows were taken away. What was made of the rows at one number says nothing of what they come to at another,
    /// except at the tail.
    pub times: u64,
    /// Where the log ended the last time: of what lies before there is less than there was; from there on all.
    pub through: Sequence,
    /// Where the log ended when it was last looked through to its end.
    pub considered: Sequence,
}

impl Compacted {
    fn is_never(&self) -> bool {
        *self == Self::default()
    }
}

impl Summary {
    /// How the run stands, by what this audience saw of it.
    #[must_use]
    pub fn run_for(&self, audience: Audience) -> &RunState {
        let narrower = match audience {
            Audience::User => &self.run_for_user,
            Audience::Dashboard => &self.run_for_dashboard,
            Audience::Internal => &None,
        };
        narrower.as_deref().unwrap_or(&self.run)
    }
}

/// Where a log stands, for its readers: everything in it is durable.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    /// `None` until the log is first written.
    pub epoch: Option<Epoch>,
    pub last: Sequence,
    pub summary: Arc<Summary>,
}

impl Tail {
    /// How the run has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        let status = self.summary.run.status;
        status.is_end().then(|| status.as_str())
    }
}

struct Recent {
    tail: Tail,
    /// The newest appends, oldest first, while somebody watches.
    rows: VecDeque<Placed>,
    bytes: usize,
    /// When the first of what is announced was committed.
    announced_at: Option<Instant>,
}

/// One log's tail.
pub struct Log {
    pub id: LogId,
    recent: Mutex<Recent>,
    watchers: AtomicUsize,
    /// Set while the log waits in a [`Group`] to be looked after, so that it waits there once.
    announced: AtomicBool,
    /// The sequence at which the log is [`Group::grown`] next; far off while that is being looked after.
    grown_at: AtomicU64,
    /// [`Compacted::times`], for those who ask often.
    compacted: AtomicU64,
    /// Counts what was heard of the log's producers, facts or less.
    heard: AtomicU64,
    /// Streamed bodies that are being read for it: somebody is there, whether or not he says something.
    bodies: AtomicUsize,
    /// Held by those who need the log's past to stay as it is while they read page after page.
    past: RwLock<()>,
}

/// How far a log grows before it is first announced as grown.
const GROWN_FIRST: u64 = 2048;

impl Log {
    fn new(id: LogId, tail: Tail) -> Self {
        Self {
            id,
            compacted: AtomicU64::new(tail.summary.compacted.times),
            recent: Mutex::new(Recent { tail, rows: VecDeque::new(), bytes: 0, announced_at: None }),
            watchers: AtomicUsize::new(0),
            announced: AtomicBool::new(false),
            grown_at: AtomicU64::new(GROWN_FIRST),
            heard: AtomicU64::new(0),
            bodies: AtomicUsize::new(0),
            past: RwLock::new(()),
        }
    }

    /// How often rows were taken out of its past: see [`Compacted::times`].
    #[must_use]
    pub fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// Keeps the log's past as it is for as long as this is held: for a thread that may wait, and that lets go soon.
    pub fn hold_still(&self) -> RwLockReadGuard<'_, ()> {
        self.past.read()
    }

    /// A producer was heard of.
    pub fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a producer was heard of since the log was opened; `None` while one is on the line.
    #[must_use]
    pub fn heard(&self) -> Option<u64> {
        (self.bodies.load(Ordering::Relaxed) == 0).then(|| self.heard.load(Ordering::Relaxed))
    }

    /// A producer is on the line for as long as this is held.
    #[must_use]
    pub fn on_the_line(self: &Arc<Self>) -> OnTheLine {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        OnTheLine(self.clone())
    }

    /// Where the log stands now.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.recent.lock().tail.clone()
    }

    /// Keeps recent rows, and announces this log's commits, from now on. Balanced by [`Self::unwatch`].
    pub fn watch(&self) -> Tail {
        let recent = self.recent.lock();
        self.watchers.fetch_add(1, Ordering::Relaxed);
        recent.tail.clone()
    }

    /// Undoes one [`Self::watch`].
    pub fn unwatch(&self) {
        let mut recent = self.recent.lock();
        if self.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            recent.rows = VecDeque::new();
            recent.bytes = 0;
            recent.announced_at = None;
        }
    }

    /// The tail, and the rows between `after` and it if they are all still at hand.
    #[must_use]
    pub fn recent_after(&self, after: Sequence) -> (Tail, Option<Vec<Bytes>>) {
        self.recent_appends(after, |placed| placed.rows.clone())
    }

    /// The same, with the place of each append in the order of all.
    #[must_use]
    pub fn recent_placed_after(&self, after: Sequence) -> (Tail, Option<Vec<Placed>>) {
        self.recent_appends(after, Placed::clone)
    }

    fn recent_appends<T>(&self, after: Sequence, give: impl Fn(&Placed) -> T) -> (Tail, Option<Vec<T>>) {
        let recent = self.recent.lock();
        let tail = recent.tail.clone();
        if after >= tail.last {
            return (tail, Some(Vec::new()));
        }
        let from = match recent.rows.back() {
            Some(newest) if newest.before <= after => recent.rows.len(),
            _ => recent.rows.partition_point(|placed| placed.before <= after),
        };
        let rows = (from > 0).then(|| recent.rows.range(from - 1..).map(give).collect());
        (tail, rows)
    }

    /// Whoever looks after the log says so first: what is committed from now on is announced anew. Returns when the first of
    /// what was announced was committed.
    pub fn take_announcement(&self) -> Option<Instant> {
        self.announced.store(false, Ordering::Release);
        self.recent.lock().announced_at.take()
    }

    /// When the first of what nobody has looked after yet was committed.
    #[must_use]
    pub fn announced_at(&self) -> Option<Instant> {
        self.recent.lock().announced_at
    }

    /// Lets go of rows up to `until`, which whoever encodes them has; a few stay for readers with a selection of their own.
    pub fn forget(&self, until: Sequence) {
        let mut recent = self.recent.lock();
        while recent.bytes > RECENT_BYTES_KEPT && recent.rows.get(1).is_some_and(|placed| placed.before <= until) {
            let dropped = recent.rows.pop_front().map_or(0, |placed| placed.rows.len());
            recent.bytes -= dropped;
        }
    }

    /// Announces the log as grown once it reaches `at`, and once only; false if it is there already, and will not be announced.
    pub fn announce_grown_at(&self, at: Sequence) -> bool {
        self.grown_at.store(at.0, Ordering::SeqCst);
        // Whoever commits looks at this after the tail has moved: one of the two sees the other.
        !self.has_grown(self.tail().last)
    }

    /// Whether the log has reached the place at which that is to be said.
    fn has_grown(&self, last: Sequence) -> bool {
        last.0 >= self.grown_at.load(Ordering::SeqCst) && self.grown_at.swap(u64::MAX, Ordering::SeqCst) != u64::MAX
    }

    /// Makes it a log that nobody has written; what it was before.
    fn unwrite(&self) -> Tail {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        // Unless that is being looked after; whoever does finds the tail as it is then.
        let _ = self.grown_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| (at != u64::MAX).then_some(GROWN_FIRST));
        self.compacted.store(0, Ordering::Release);
        std::mem::take(&mut recent.tail)
    }

    /// Its past is another now, of which this is known.
    fn rewrite(&self, summary: Arc<Summary>) {
        let mut recent = self.recent.lock();
        recent.rows = VecDeque::new();
        recent.bytes = 0;
        self.compacted.store(summary.compacted.times, Ordering::Release);
        recent.tail.summary = summary;
    }

    /// Moves the tail past an append that was committed at this position: where it was, and whether that is to be announced.
    fn publish(&self, append: &Append, position: u64, summary: Arc<Summary>) -> (Tail, bool) {
        let mut recent = self.recent.lock();
        let watched = self.watchers.load(Ordering::Relaxed) > 0;
        let before = std::mem::replace(&mut recent.tail, Tail { epoch: Some(append.epoch), last: append.last, summary });
        if watched && append.last > append.expected {
            recent.bytes += append.rows.len();
            recent.rows.push_back(Placed { position, before: append.expected, rows: append.rows.clone() });
            while recent.bytes > RECENT_BYTES_MAX && recent.rows.len() > 1 {
                let dropped = recent.rows.pop_front().map_or(0, |placed| placed.rows.len());
                recent.bytes -= dropped;
            }
        }
        let is_announced = watched && !self.announced.swap(true, Ordering::AcqRel);
        if watched {
            recent.announced_at.get_or_insert_with(Instant::now);
        }
        (before, is_announced)
    }
}

/// A producer that sends a body as long as it likes; see [`Log::on_the_line`].
pub struct OnTheLine(Arc<Log>);

impl Drop for OnTheLine {
    fn drop(&mut self) {
        // That it has gone is the last that was heard of it.
        self.0.hear();
        self.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An append on its way to the store.
pub struct Submission {
    pub log: Arc<Log>,
    pub append: Append,
    /// The log's summary once this is committed.
    pub summary: Arc<Summary>,
    /// Answered when the append is durable and visible.
    pub ack: Ack,
}

/// Who waits for a commit.
pub type Ack = oneshot::Sender<Result<(), StoreError>>;

/// What one group commit did. Whoever runs the runtime answers the acks first, then looks after the logs: so one wake
/// crosses threads per group, and no reader delays an answer.
pub struct Group {
    pub acks: Vec<(Ack, Result<(), StoreError>)>,
    /// The watched logs whose tails moved, in commit order.
    pub moved: Vec<Arc<Log>>,
    /// The logs that have grown as far as [`Log::announce_grown_at`] asked.
    pub grown: Vec<Arc<Log>>,
}

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
}

/// What the committer has done since it was started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Groups that were committed, and how long each took.
    pub commits: Histogram,
    /// Appends in them.
    pub appends: Counter,
    /// Logs there are: of runs, and of sessions of their own.
    logs: AtomicU64,
    /// Checkpoints that were saved.
    pub checkpoints: Counter,
}

/// The line to the committer.
#[derive(Default)]
struct Line {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    submissions: VecDeque<Submission>,
    /// Whether somebody is about to wake the committer.
    is_announced: bool,
    /// Nobody submits any more, or nobody commits.
    is_closed: bool,
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
        let saw = |log: &LogId, summary: &Summary| {
            counts.logs.fetch_add(1, Ordering::Relaxed);
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
        Ok((Arc::new(Self { store, open, position, life, sessions, ongoing, queues, line, failure, counts }), outbox))
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
        let cell = self.open.get(id).map(|cell| cell.clone());
        let cell = cell.unwrap_or_else(|| self.open.entry(id.clone()).or_default().clone());
        // Loaded once for all who wait for it. Nobody can write or erase a log that is not open, so that a tail is never older
        // than its log.
        let load = async || {
            let tail = self.load(id).await?.map_or_else(Tail::default, |loaded| {
                let summary = Arc::new(summary_of(&loaded));
                Tail { epoch: Some(loaded.epoch), last: loaded.last, summary }
            });
            Ok(Arc::new(Log::new(id.clone(), tail)))
        };
        cell.get_or_try_init(load).await.cloned()
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
        blocking(move || pollster::block_on(store.load(&id))).await
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
        let mut placed = blocking(move || pollster::block_on(store.read(&of, epoch, after, limit))).await?;
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
        blocking(move || pollster::block_on(store.locate(&id, epoch, position))).await
    }

    /// Logs, newest created first; see [`Store::list`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn list(&self, kind: LogKind, before: Option<u64>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let store = self.store.clone();
        blocking(move || pollster::block_on(store.list(kind, before, limit))).await
    }

    /// An offloaded body; see [`Store::blob`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn blob(&self, id: &BlobId) -> Result<Option<Blob>, StoreError> {
        let (store, id) = (self.store.clone(), id.clone());
        blocking(move || pollster::block_on(store.blob(&id))).await
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
        blocking(move || pollster::block_on(store.save_checkpoint(&id, epoch, kind, sequence, body))).await
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
        blocking(move || pollster::block_on(store.checkpoint(&id, epoch, kind, at))).await
    }

    /// Works on the store in a thread that may wait: for whoever reads page after page and makes something of each.
    pub async fn work<T: Send + 'static>(&self, job: impl FnOnce(&S) -> T + Send + 'static) -> T {
        let store = self.store.clone();
        blocking(move || job(&store)).await
    }

    /// Rewrites a log's past; see [`Store::compact`]. `summary` is what is known of the log then. Only its one writer may ask for
    /// it, with nothing on its way to the store, and writes nothing until this is answered. It waits for those who
    /// [hold the past still](Log::hold_still).
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn compact(&self, log: &Arc<Log>, compaction: Compaction, summary: Arc<Summary>) -> Result<bool, StoreError> {
        let (store, log) = (self.store.clone(), log.clone());
        blocking(move || {
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
        let erased = blocking(move || pollster::block_on(store.erase(&id))).await;
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

    /// Puts an append in the line to the store. The line's order is the order of commits; the caller holds its log's writer
    /// lock, so a log's appends stand in their own order too. Must be called inside a tokio runtime.
    pub fn submit(&self, submission: Submission) {
        let mut waiting = self.line.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            let why = self.failure.borrow().clone();
            let why = why.unwrap_or(StoreError::Failed { doing: "commit", why: "the committer has stopped".into() });
            // The producer may be gone; then nobody needs the answer.
            let _ = submission.ack.send(Err(why));
            return;
        }
        waiting.submissions.push_back(submission);
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

    /// Waits until the store has failed for good. The process must then stop: what is on disk and what was promised may part.
    pub async fn failed(&self) -> StoreError {
        let mut failure = self.failure.clone();
        loop {
            if let Some(error) = failure.borrow_and_update().clone() {
                return error;
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why the store has failed for good, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.failure.borrow().clone()
    }

    /// Makes everything durable that was committed, whatever the sync mode; see [`Store::flush`].
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let store = self.store.clone();
        blocking(move || pollster::block_on(store.flush())).await
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

/// The summary that was saved with a log; a fresh one if it cannot be read.
#[must_use]
pub fn summary_of(loaded: &Loaded) -> Summary {
    let meta = loaded.state.iter().find(|(key, _)| key == super::META);
    meta.and_then(|(_, json)| serde_json::from_slice(json).ok()).unwrap_or_default()
}

/// Rows after `after` out of runs of encoded rows.
pub fn rows_after(runs: Vec<Bytes>, after: Sequence) -> impl Iterator<Item = super::row::Row> {
    runs.into_iter().flat_map(Rows).filter(move |row| row.sequence() > after)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("a store's call neither panics nor is cancelled")
}

struct Committer<S> {
    store: Arc<S>,
    position: Arc<AtomicU64>,
    life: Arc<OnceLock<Epoch>>,
    sessions: Arc<Sessions>,
    ongoing: Arc<Ongoing>,
    queues: Arc<Queues>,
    line: Arc<Line>,
    groups: mpsc::UnboundedSender<Group>,
    failed: watch::Sender<Option<StoreError>>,
    counts: Arc<Counts>,
}

impl<S> Drop for Logs<S> {
    fn drop(&mut self) {
        self.line.waiting.lock().is_closed = true;
        self.line.came.notify_one();
    }
}

impl<S: Store> Committer<S> {
    /// Commits until nobody can submit any more, or the store fails.
    fn run(self) {
        while let Some(group) = self.next_group() {
            if self.commit(group).is_err() {
                break;
            }
        }
        let mut waiting = self.line.waiting.lock();
        waiting.is_closed = true;
        // Dropped unanswered: who waits for them is told that the server is stopping.
        waiting.submissions.clear();
    }

    /// What has come, in its order and within a group's bounds; waits for something to come. `None` when nothing can.
    fn next_group(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.line.waiting.lock();
        while waiting.submissions.is_empty() {
            if waiting.is_closed {
                return None;
            }
            self.line.came.wait(&mut waiting);
        }
        let mut bytes = 0;
        let fits = |submission: &&Submission| {
            let room = bytes < GROUP_BYTES_MAX;
            bytes += weight(submission);
            room
        };
        let count = waiting.submissions.iter().take(GROUP_APPENDS_MAX).take_while(fits).count();
        Some(waiting.submissions.drain(..count).collect())
    }

    fn commit(&self, group: Vec<Submission>) -> Result<(), ()> {
        let (appends, waiting): (Vec<Append>, Vec<_>) = group.into_iter().map(|s| (s.append, (s.log, s.summary, s.ack))).unzip();
        let begun = Instant::now();
        let outcomes = pollster::block_on(self.store.commit(&appends));
        self.counts.commits.observe(begun.elapsed());
        self.counts.appends.add(appends.len() as u64);
        let mut done = Group { acks: Vec::with_capacity(appends.len()), moved: Vec::new(), grown: Vec::new() };
        let outcomes = outcomes.map_err(|error| {
            tracing::error!(%error, "the store failed; stopping, for what was being written may or may not be there");
            self.failed.send_replace(Some(error.clone()));
            error
        });
        let (mut reached, mut changed) = (None, Changed::default());
        for (i, (log, summary, ack)) in waiting.into_iter().enumerate() {
            let result = match outcomes.as_ref().map(|outcomes| outcomes[i]) {
                Ok(Outcome::Committed { position, created }) => {
                    reached = Some(position);
                    self.life.get_or_init(|| appends[i].epoch);
                    let (before, is_announced) = log.publish(&appends[i], position, summary.clone());
                    let is_new = before.epoch != Some(appends[i].epoch);
                    self.counts.logs.fetch_add(u64::from(is_new), Ordering::Relaxed);
                    let differs = is_new || Sessions::differ(&before.summary, &summary);
                    let before = before.epoch.map(|_| &*before.summary);
                    self.ongoing.note(&log.id, before, &summary);
                    self.queues.note(&log.id, before, &summary);
                    if differs {
                        changed.extend(self.sessions.note(&log.id, created, before, &summary));
                    }
                    if is_announced {
                        done.moved.push(log.clone());
                    }
                    if log.has_grown(appends[i].last) {
                        done.grown.push(log);
                    }
                    Ok(())
                }
                Ok(Outcome::Conflict { last, epoch }) => {
                    let why = format!("{} stands at {last} in {epoch:?}; somebody else writes it", log.id);
                    Err(StoreError::Failed { doing: "append", why })
                }
                Err(error) => Err(error.clone()),
            };
            done.acks.push((ack, result));
        }
        // After the tails: who reads it first must find them where it says that they are.
        if let Some(position) = reached {
            self.position.store(position, Ordering::Release);
        }
        // Without a receiver the process is on its way out.
        let _ = self.groups.send(done);
        changed.tell();
        outcomes.map(|_| ()).map_err(|_| ())
    }
}

fn weight(submission: &Submission) -> usize {
    submission.append.rows.len() + submission.append.blobs.iter().map(|blob| blob.body.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::META;
    use crate::log::embedded::{EmbeddedStore, Sync};
    use crate::log::memory::MemoryStore;
    use crate::log::row::Row;

    fn run(name: &str) -> LogId {
        LogId::Run(RunId::new(name).unwrap())
    }

    type Groups = mpsc::UnboundedReceiver<Group>;

    /// One row more than the log has.
    fn append(log: &LogId, last: Sequence, summary: &Summary) -> Append {
        let mut rows = Vec::new();
        Row::encode(&mut rows, last.next(), [last; 3], [Some(b"{}"); 3]);
        Append {
            log: log.clone(),
            epoch: Epoch::from_random(1),
            expected: last,
            last: last.next(),
            rows: rows.into(),
            blobs: Vec::new(),
            state: vec![(Bytes::from_static(META), Some(serde_json::to_vec(summary).unwrap().into()))],
        }
    }

    /// Writes one row to a log, and waits until it is visible.
    async fn write(logs: &Logs<impl Store>, groups: &mut Groups, log: &Arc<Log>, summary: Summary) {
        let append = append(&log.id, log.tail().last, &summary);
        let (ack, durable) = oneshot::channel();
        logs.submit(Submission { log: log.clone(), append, summary: Arc::new(summary), ack });
        for (ack, result) in groups.recv().await.unwrap().acks {
            ack.send(result).unwrap();
        }
        durable.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_is_recent_is_placed_as_the_store_places_it_and_nothing_visible_lies_beyond_the_position() {
        let (logs, mut groups) = Logs::open(MemoryStore::new()).unwrap();
        assert_eq!(logs.position(), 0);
        let (a, b) = (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap());
        a.watch();
        for n in 0..20 {
            write(&logs, &mut groups, if n % 3 == 0 { &b } else { &a }, Summary::default()).await;
            assert_eq!(logs.position(), n + 1);
        }
        let epoch = Epoch::from_random(1);
        for after in (0..=13).map(Sequence) {
            let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
            let stored = logs.read_placed(&a.id, epoch, after, limit).await.unwrap();
            let (tail, recent) = a.recent_placed_after(after);
            assert_eq!((tail.last, recent), (Sequence(13), Some(stored)), "after {after}");
        }
        assert_eq!(b.recent_placed_after(Sequence(1)).1, None, "nobody watches it");
        assert_eq!(logs.locate(&b.id, epoch, 4).await.unwrap(), Sequence(2));
    }

    #[tokio::test]
    async fn what_the_store_has_and_no_tail_tells_of_yet_is_read_by_nobody() {
        let (logs, mut groups) = Logs::open(MemoryStore::new()).unwrap();
        let (log, closed) = (logs.log(&run("a")).await.unwrap(), run("closed"));
        write(&logs, &mut groups, &log, Summary::default()).await;
        // As it is while the committer is between the two.
        let ahead = [append(&log.id, Sequence(1), &Summary::default()), append(&closed, Sequence::NONE, &Summary::default())];
        logs.work(move |store| pollster::block_on(store.commit(&ahead)).unwrap()).await;
        let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
        let read = async |log: &LogId, after: u64| {
            let rows = logs.read(log, Epoch::from_random(1), Sequence(after), limit).await.unwrap();
            rows_after(rows, Sequence(after)).map(|row| row.sequence().0).collect::<Vec<_>>()
        };
        assert_eq!((read(&log.id, 0).await, read(&log.id, 1).await), (vec![1], vec![]));
        assert_eq!(read(&closed, 0).await, [1], "nobody writes a log that is not open");
    }

    #[tokio::test]
    async fn a_session_is_known_once_what_belongs_to_it_is_visible_and_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let id = |name: &str| SessionId::new(name).unwrap();
        let says = |session: Option<&str>, parent: Option<&str>| Summary {
            session_id: session.map(id),
            parent_session_id: parent.map(id),
            ..Summary::default()
        };
        let of = |logs: &Logs<EmbeddedStore>, session: &str| {
            let sessions = logs.sessions();
            (sessions.place_of(&id(session)), sessions.runs_of(&id(session)), sessions.children_of(&id(session)))
        };
        let runs = |names: &[&str]| names.iter().map(|name| RunId::new(name).unwrap()).collect::<Vec<_>>();

        let (logs, mut groups) = Logs::open(EmbeddedStore::open(dir.path(), Sync::Never).unwrap()).unwrap();
        let (a, b, c) =
            (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap(), logs.log(&run("c")).await.unwrap());
        let mut waiting = logs.sessions().watch(&id("s"));
        write(&logs, &mut groups, &a, says(None, None)).await;
        assert_eq!(of(&logs, "s"), (None, vec![], vec![]));
        write(&logs, &mut groups, &b, says(Some("s"), None)).await;
        assert_eq!(of(&logs, "s"), (Some(2), runs(&["b"]), vec![]));
        waiting.changed().await.unwrap();
        write(&logs, &mut groups, &a, says(Some("s"), None)).await;
        assert_eq!(of(&logs, "s"), (Some(1), runs(&["a", "b"]), vec![]));
        write(&logs, &mut groups, &c, says(Some("t"), Some("s"))).await;
        let own = logs.log(&LogId::Session(id("s"))).await.unwrap();
        write(&logs, &mut groups, &own, says(Some("s"), None)).await;
        let all = of(&logs, "s");
        assert_eq!((&all, logs.sessions().has_own_log(&id("s"))), (&(Some(1), runs(&["a", "b"]), vec![id("t")]), true));
        drop((logs, a, b, c, own));
        // The committer lets go of the store once it has told everybody.
        assert!(groups.recv().await.is_none());

        let store = loop {
            match EmbeddedStore::open(dir.path(), Sync::Never) {
                Err(StoreError::Locked { .. }) => {}
                opened => break opened.unwrap(),
            }
        };
        let (logs, _groups) = Logs::open(store).unwrap();
        assert_eq!((of(&logs, "s"), logs.sessions().has_own_log(&id("s")), logs.position()), (all, true, 5));
    }

    #[tokio::test]
    async fn an_erased_log_is_open_as_one_that_nobody_has_written_and_its_session_forgets_it() {
        let (logs, mut groups) = Logs::open(MemoryStore::new()).unwrap();
        let session = SessionId::new("s").unwrap();
        let says = || Summary { session_id: Some(session.clone()), ..Summary::default() };
        let (a, b) = (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap());
        a.watch();
        for log in [&a, &a, &b] {
            write(&logs, &mut groups, log, says()).await;
        }
        let mut waiting = logs.sessions().watch(&session);
        logs.erase(&a).await.unwrap();
        let tail = a.tail();
        assert_eq!((tail.epoch, tail.last, &*tail.summary), (None, Sequence::NONE, &Summary::default()));
        assert_eq!(a.recent_after(Sequence::NONE).1, Some(Vec::new()));
        assert!(Arc::ptr_eq(&a, &logs.log(&a.id).await.unwrap()));
        assert_eq!(logs.sessions().runs_of(&session), [RunId::new("b").unwrap()]);
        assert!(waiting.has_changed().unwrap());
        waiting.mark_unchanged();
        write(&logs, &mut groups, &a, says()).await;
        assert_eq!(a.recent_placed_after(Sequence::NONE).1.unwrap()[0].position, 4);
        assert_eq!(logs.sessions().list(None, 9), [(2, session.clone())]);
        assert_eq!(logs.sessions().runs_of(&session), ["b", "a"].map(|name| RunId::new(name).unwrap()));
        // Those who wait are told last.
        waiting.changed().await.unwrap();
    }
}
