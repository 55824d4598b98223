//! The order of commits: what is compared, appended to the journal, and applied to the store.
//!
//! ```text
//! appends ─▶ compare with heads ─▶ Journal::append ─▶ Store::apply
//!              refuses               the sync           no sync
//! ```
//!
//! Only one orderer of a process appends to a journal. Another process may append to the same journal. The orderer then
//! applies what the other one wrote, compares its own appends again, and orders those that still fit.

use crate::environment::sabotage;
use crate::log::encoding::encode_group;
use crate::log::journal::{Appended, Journal, Record};
use crate::log::{Append, AppendOutcome, Commit, Compaction, Leader, LogHead, LogId, Place, PlacedAppend, Store, StoreError};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of records that are read from the journal at once.
const READ_BYTES_MAX: usize = 8 << 20;
/// A start that applies many commits says how far it is at this interval.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Orders commits of one journal, and applies them to the store that follows it. One caller at a time may order.
pub struct Orderer<S: ?Sized, J, F = StoreOnly> {
    store: Arc<S>,
    journal: Arc<J>,
    follow: F,
    /// The journal may forget commits up to this position.
    forgotten: AtomicU64,
}

/// What applies the commits that others have appended to the journal.
pub trait Follow<S: ?Sized> {
    /// Applies the commit at this position, which follows the last one that the store has.
    fn apply(&self, store: &S, position: u64, commit: Commit) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether this process may append. A commit that was applied can take that away.
    fn leads(&self) -> bool {
        true
    }
}

/// Applies commits to the store, where nothing else follows it.
pub struct StoreOnly;

impl<S: Store + ?Sized> Follow<S> for StoreOnly {
    async fn apply(&self, store: &S, position: u64, commit: Commit) -> Result<(), StoreError> {
        store.apply(position, &commit)
    }
}

/// What came of a group of appends.
pub struct OrderedGroup {
    /// The outcome of each append, and its place if it is in `placed`.
    pub compared: Vec<(AppendOutcome, Option<Place>)>,
    /// The appends without a conflict, but for those that change nothing.
    pub placed: Vec<PlacedAppend>,
}

impl<S: Store + ?Sized, J: Journal> Orderer<S, J> {
    /// Applies the commits that the journal has and the store lacks, and starts the store.
    ///
    /// # Errors
    /// `Corrupt` for a record that is no commit, and the errors of the journal and of the store.
    pub async fn open(store: Arc<S>, journal: Arc<J>) -> Result<Self, StoreError> {
        let orderer = Self { store, journal, follow: StoreOnly, forgotten: AtomicU64::new(0) };
        let (from, (_, last), mut reported) = (orderer.store.mark().applied, orderer.journal.bounds(), Instant::now());
        while orderer.catch_up().await? {
            if reported.elapsed() > PROGRESS_INTERVAL {
                reported = Instant::now();
                let (done, of) = (orderer.store.mark().applied - from, last - from);
                tracing::info!(done, of, "applying commits of the journal to the store");
            }
        }
        orderer.store.start()?;
        orderer.forget().await?;
        Ok(orderer)
    }

    /// Sets what applies the commits of others from now on.
    pub fn with_follow<F>(self, follow: F) -> Orderer<S, J, F> {
        let Self { store, journal, forgotten, .. } = self;
        Orderer { store, journal, follow, forgotten }
    }
}

impl<S: Store + ?Sized, J: Journal, F: Follow<S>> Orderer<S, J, F> {
    /// The store.
    pub const fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// The journal.
    pub const fn journal(&self) -> &Arc<J> {
        &self.journal
    }

    /// What applies the commits of others.
    pub const fn follow(&self) -> &F {
        &self.follow
    }

    /// Makes every commit durable, in every sync mode.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.journal.flush().await
    }

    /// Orders a group of appends, durably, and applies it.
    ///
    /// Each append is compared as if the appends before it were committed already. So appends of one log in one group
    /// may follow each other, and a conflict of one append leaves the others alone. All appends without a conflict are
    /// kept or none of them, even if the process dies meanwhile.
    ///
    /// `follows[i]` says whether append `i` builds on the append of its log before it. If that earlier append conflicts,
    /// append `i` conflicts too. Otherwise its `expected` could match by chance once another writer has appended.
    ///
    /// # Errors
    /// [`StoreError`]: `NotLeader` if another process leads, and nothing was kept. Every other one is final: the data may
    /// or may not be on disk, and a repeated sync can report success for pages that the first one dropped.
    pub async fn append(&self, group: Vec<Append>, follows: &[bool]) -> Result<OrderedGroup, StoreError> {
        debug_assert_eq!(group.len(), follows.len(), "`follows` has one entry per append");
        loop {
            self.check_leads()?;
            let compared = self.compare(&group, follows)?;
            let placed = group.iter().zip(&compared).filter_map(|(append, (_, place))| place.map(|place| (append, place)));
            if placed.clone().next().is_none() {
                return Ok(OrderedGroup { compared, placed: Vec::new() });
            }
            let Some(position) = self.try_append(&encode_group(placed)).await? else { continue };
            let placed = group.into_iter().zip(&compared);
            let placed = placed.filter_map(|(append, (_, place))| place.map(|place| PlacedAppend { append, place }));
            let commit = Commit::Group(placed.collect());
            self.store.apply(position, &commit)?;
            self.forget().await?;
            return Ok(OrderedGroup { compared, placed: commit.into_appends() });
        }
    }

    /// Orders a compaction, durably, and applies it; `None`, without effect, if the log is not at the tail for which it
    /// was planned. Returns the log's number.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn compact(&self, compaction: Compaction) -> Result<Option<u64>, StoreError> {
        self.order(|store| {
            let head = store.head(&compaction.log)?;
            let applies = compaction.applies_to(head.map(|head| (head.epoch, head.last)));
            Ok(head
                .filter(|_| applies)
                .map(|head| (head.number, Commit::Compaction { number: head.number, compaction: compaction.clone() })))
        })
        .await
    }

    /// Orders the erasure of a log, durably in every sync mode, and applies it. Returns the log's place in the order of
    /// creation; `None` for a log that does not exist.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn erase(&self, log: &LogId) -> Result<Option<u64>, StoreError> {
        if sabotage::is(19) {
            return Ok(None);
        }
        let erased = self.order(|store| {
            let head = store.head(log)?;
            Ok(head.map(|LogHead { number, .. }| (number, Commit::Erasure { number, log: log.clone() })))
        });
        let erased = erased.await?;
        if erased.is_some() {
            self.journal.flush().await?;
        }
        Ok(erased)
    }

    /// Orders the commit that `plan` makes of what the store has, if it makes one.
    async fn order<T>(&self, plan: impl Fn(&S) -> Result<Option<(T, Commit)>, StoreError>) -> Result<Option<T>, StoreError> {
        loop {
            self.check_leads()?;
            let Some((planned, commit)) = plan(&self.store)? else { return Ok(None) };
            if let Some(position) = self.try_append(&[commit.encode()]).await? {
                self.store.apply(position, &commit)?;
                self.forget().await?;
                return Ok(Some(planned));
            }
        }
    }

    /// Orders the record of a leader. All that others appended before is applied then, and they append no more.
    ///
    /// # Errors
    /// `NotLeader` if the journal has a leader of this term or a later one; otherwise as [`Self::append`].
    pub async fn lead(&self, leader: Leader, last: impl Fn() -> Option<Leader>) -> Result<(), StoreError> {
        loop {
            while self.catch_up().await? {}
            if last().is_some_and(|last| last.term >= leader.term) {
                return Err(StoreError::NotLeader);
            }
            let commit = Commit::Leader(leader.clone());
            if let Some(position) = self.try_append(&[commit.encode()]).await? {
                return self.store.apply(position, &commit);
            }
        }
    }

    fn check_leads(&self) -> Result<(), StoreError> {
        if self.follow.leads() { Ok(()) } else { Err(StoreError::NotLeader) }
    }

    /// Compares each append with the head of its log, and places those that can follow and change something.
    fn compare(&self, group: &[Append], follows: &[bool]) -> Result<Vec<(AppendOutcome, Option<Place>)>, StoreError> {
        let (mut mark, mut compared) = (self.store.mark(), Vec::with_capacity(group.len()));
        // The logs as the appends before leave them, and the first conflict of each log.
        let (mut heads, mut refused) = (HashMap::new(), HashMap::new());
        for (append, follows) in group.iter().zip(follows) {
            let head = match heads.get(&append.log) {
                Some(head) => Some(*head),
                None => self.store.head(&append.log)?,
            };
            let behind = refused.get(&append.log).copied().filter(|_| *follows);
            if let Some(conflict) = behind.or_else(|| append.conflict(head.map(|head| (head.epoch, head.last)))) {
                refused.insert(&append.log, conflict);
                compared.push((conflict, None));
                continue;
            }
            let number = head.map_or(mark.created + 1, |head| head.number);
            let changes = head.is_none() || !append.is_empty();
            if changes {
                mark.created = mark.created.max(number);
                mark.position += 1;
                heads.insert(&append.log, LogHead { number, epoch: append.epoch, last: append.last });
            }
            let place = Place { position: mark.position, number, creates: head.is_none() };
            let outcome = AppendOutcome::Committed { position: mark.position, created: number };
            compared.push((outcome, changes.then_some(place)));
        }
        Ok(compared)
    }

    /// Appends a record after the last commit that the store has.
    ///
    /// `None` if others have appended records before. The store has them then.
    async fn try_append(&self, encoded: &[Bytes]) -> Result<Option<u64>, StoreError> {
        match self.journal.append(self.store.mark().applied, encoded).await? {
            Appended::At(position) => Ok(Some(position)),
            Appended::Moved { .. } => {
                while self.catch_up().await? {}
                Ok(None)
            }
        }
    }

    /// Applies some of the commits that the journal has and the store lacks; `false` if it lacks none.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn catch_up(&self) -> Result<bool, StoreError> {
        let applied = self.store.mark().applied;
        if applied >= self.journal.bounds().1 {
            return Ok(false);
        }
        for Record { position, body } in self.journal.read(applied, READ_BYTES_MAX).await? {
            let commit = Commit::decode(body).map_err(|what| StoreError::Corrupt {
                path: self.journal.path(),
                what: format!("the record {position} is no commit: {what}"),
            })?;
            self.follow.apply(&self.store, position, commit).await?;
        }
        Ok(true)
    }

    /// Lets the journal forget what no crash can take from the store.
    async fn forget(&self) -> Result<(), StoreError> {
        if self.journal.others().is_some() {
            return Ok(());
        }
        let persisted = self.store.persisted();
        if persisted > self.forgotten.swap(persisted, Ordering::Relaxed) {
            self.journal.truncate_before(persisted + 1).await?;
        }
        Ok(())
    }
}
