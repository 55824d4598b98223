//! One node of a cluster: how it starts, takes the lease, and keeps the others informed.

use super::Membership;
use super::lease::{Bucket, HELD_TIME, LeaseValue, NodeValue, RENEW_INTERVAL, SeenLease};
use super::snapshot::Snapshots;
use super::tickets;
use crate::auth::shared_tickets::SharedTickets;
use crate::environment;
use crate::log::commit::Logs;
use crate::log::embedded::ReplicaDir;
use crate::log::journal::Journal;
use crate::log::journal::jetstream::{JetStreamJournal, StreamClient, StreamConnection, StreamOptions, open_stream};
use crate::log::{Leader, Storage, StoreError};
use async_nats::jetstream::context::Context;
use futures_util::future::select_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often a follower looks whether a snapshot is due.
const SNAPSHOT_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How often it looks for unfinished snapshots of processes that have ended.
const ABANDONED_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// How long a node tries to open what the nodes share, at its start.
const OPEN_TIME_MAX: Duration = Duration::from_secs(15);

/// What makes a server a node of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub connection: StreamConnection,
    /// The name of the cluster: letters, digits, `-` and `_`.
    pub name: String,
    /// Where other nodes reach this one, such as `http://10.0.0.5:8787`.
    pub url: String,
    /// Whether a stream with a single replica is accepted.
    pub allows_one_replica: bool,
    pub data_dir: PathBuf,
    /// Commits between two snapshots.
    pub snapshot_commits: u64,
    /// Distinguishes this process from all others.
    pub random: u64,
    /// Random text, which becomes the cluster's secret if it has none.
    pub secret: String,
    /// Whether appends are fenced. Only a test of the tests turns it off.
    pub is_fenced: bool,
}

/// What the nodes share beside the stream.
struct Parts {
    bucket: Bucket,
    tickets: SharedTickets,
    snapshots: Snapshots,
    /// The position of the newest snapshot; 0 without one.
    newest: u64,
}

impl Parts {
    /// Opens them, and says that this node is alive: from then on, the others keep the records that it lacks.
    async fn open(
        context: &Context,
        options: &ClusterOptions,
        replicas: usize,
        (id, node): (&str, &NodeValue),
    ) -> Result<Self, StoreError> {
        let failed = |error: String| StoreError::failed("opening the cluster's buckets", &error);
        let bucket = Bucket::open(context, &options.name, replicas).await.map_err(failed)?;
        bucket.write_node(id, node).await.map_err(failed)?;
        let snapshots = Snapshots::open(context, &options.name, replicas).await?;
        Ok(Self {
            bucket,
            tickets: tickets::open(context, &options.name, replicas, &options.secret).await.map_err(failed)?,
            newest: snapshots.list().await?.pop().map_or(0, |(position, _)| position),
            snapshots,
        })
    }
}

/// A node whose store is open.
pub struct ClusterNode {
    membership: Arc<Membership>,
    journal: Arc<JetStreamJournal>,
    bucket: Bucket,
    snapshots: Snapshots,
    tickets: Option<SharedTickets>,
    snapshot_commits: u64,
    /// How long the leader relies on its lease.
    held_time: Duration,
    /// Repeats the sign of life until the node takes part.
    announcing: JoinHandle<()>,
}

impl ClusterNode {
    /// Connects to the cluster, restores the store if it lacks what the stream no longer has, and opens it.
    ///
    /// # Errors
    /// `Failed` when NATS cannot be reached or does not keep what this server promises; the errors of the store.
    pub fn open(options: ClusterOptions) -> Result<(Self, Storage), StoreError> {
        let connected = options.connection.connect()?;
        let dir = ReplicaDir::open(&options.data_dir, &options.name)?;
        let StreamClient { runtime, context } = &connected;
        let stream = StreamOptions {
            cluster: options.name.clone(),
            allows_one_replica: options.allows_one_replica,
            is_fenced: options.is_fenced,
            writer: options.random,
        };
        let (id, applied) = (format!("{:016x}", options.random), dir.mark().map_or(0, |mark| mark.applied));
        let announced = NodeValue { url: options.url.clone(), position: applied, lag_ms: 0 };
        let Parts { bucket, tickets, snapshots, newest } = runtime.run(async {
            let replicas = open_stream(context, &stream).await?.cached_info().config.num_replicas;
            let begun = environment::instant();
            loop {
                match Parts::open(context, &options, replicas, (&id, &announced)).await {
                    Err(error) if environment::elapsed(begun) < OPEN_TIME_MAX => {
                        // The NATS servers may be about to elect a leader for one of them.
                        tracing::warn!(%error, "cannot open the cluster yet; trying again");
                        tokio::time::sleep(RENEW_INTERVAL).await;
                    }
                    opened => return opened,
                }
            }
        })??;
        let announcing = runtime.spawn(bucket.clone().announce(id.clone(), announced));
        let journal = JetStreamJournal::open(connected, stream, newest)?;
        let (_, last) = journal.bounds();
        if applied > last {
            return Err(StoreError::Unsupported {
                path: options.data_dir,
                found: format!("the commits up to {applied}, and the cluster {} ends with {last}", options.name),
                known: "a copy of this cluster".into(),
                remedy: "If the stream was deleted or made anew, give the node an empty directory".into(),
            });
        }
        let dir = restore(dir, &options, &journal, &snapshots)?;
        let store = dir.into_store(journal.bounds())?;
        let membership = Arc::new(Membership::new(options.name, id, options.url));
        let journal = Arc::new(journal);
        let storage = Storage::Replica(store, journal.clone());
        // Without the fence, a test wants to see what two leaders do.
        let held_time = if options.is_fenced { HELD_TIME } else { Duration::from_hours(1) };
        let (tickets, snapshot_commits) = (Some(tickets), options.snapshot_commits);
        Ok((Self { membership, journal, bucket, snapshots, tickets, snapshot_commits, held_time, announcing }, storage))
    }

    /// The nodes of the cluster.
    #[must_use]
    pub fn membership(&self) -> Arc<Membership> {
        self.membership.clone()
    }

    /// The tickets of the cluster, for its first caller.
    pub const fn take_tickets(&mut self) -> Option<SharedTickets> {
        self.tickets.take()
    }

    /// Takes part in the cluster: signs of life, the lease, snapshots. It ends when `stopping` becomes true, or when one
    /// of its tasks has ended: the server cannot go on without it.
    pub async fn run(self, logs: Arc<Logs>, mut stopping: watch::Receiver<bool>) {
        self.announcing.abort();
        let (seen, _) = watch::channel(SeenLease::default());
        let seen = Arc::new(seen);
        let journal = self.journal.clone();
        let node = Arc::new(self);
        let mut tasks = [
            journal.spawn_task(node.bucket.clone().watch(node.membership.clone(), seen.clone())),
            journal.spawn_task(Bucket::expire_leader(node.membership.clone())),
            journal.spawn_task(node.clone().write_snapshots(logs.clone())),
        ];
        // On the thread of the connection, so that no work of this server delays a renewal.
        let mut leasing = journal.spawn_task(node.clone().keep_lease(logs, seen.clone(), stopping.clone()));
        let stopped = async { drop(stopping.wait_for(|is_stopping| *is_stopping).await) };
        tokio::select! {
            () = stopped => drop(leasing.await),
            _ = &mut leasing => {}
            _ = select_all(&mut tasks) => leasing.abort(),
        }
        for task in tasks {
            task.abort();
        }
    }

    async fn keep_lease(
        self: Arc<Self>,
        logs: Arc<Logs>,
        seen: Arc<watch::Sender<SeenLease>>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut lease = HeldLease { held: None, node: self, logs, seen };
        while !*stopping.borrow() {
            lease.turn().await;
            let _ = tokio::time::timeout(RENEW_INTERVAL, stopping.wait_for(|is_stopping| *is_stopping)).await;
        }
        lease.release().await;
    }

    /// Writes a snapshot when the stream has become long, and shortens the stream.
    ///
    /// The node with the smallest id among the followers does it; a cluster of one node does it itself.
    async fn write_snapshots(self: Arc<Self>, logs: Arc<Logs>) {
        let mut checked = environment::instant();
        loop {
            tokio::time::sleep(SNAPSHOT_CHECK_INTERVAL).await;
            let leader = self.membership.leader().map(|(id, _)| id);
            let nodes = self.membership.nodes();
            let deputy = nodes.iter().map(|(id, _)| id).find(|id| Some(*id) != leader.as_ref() || nodes.len() == 1);
            let is_deputy = deputy == Some(&self.membership.id);
            if let Err(error) = self.purge_stream(&logs, is_deputy).await {
                tracing::warn!(%error, "cannot remove from the stream what was erased; trying again");
            }
            if !is_deputy {
                continue;
            }
            if environment::elapsed(checked) > ABANDONED_CHECK_INTERVAL {
                checked = environment::instant();
                if let Err(error) = self.snapshots.remove_abandoned(checked).await {
                    tracing::warn!(%error, "cannot remove unfinished snapshots; trying again");
                }
            }
            if logs.mark().applied < self.journal.bounds().0 + self.snapshot_commits {
                continue;
            }
            if let Err(error) = self.write_snapshot(&logs).await {
                tracing::warn!(%error, "cannot write a snapshot; trying again");
            }
        }
    }

    /// Removes from the stream, and from the snapshots, what was erased. The deputy does it; each node notes that it is
    /// done, so that another deputy goes on where one ended.
    ///
    /// Snapshots of this position on have nothing of it: a node writes one once its own deletions are done.
    async fn purge_stream(&self, logs: &Arc<Logs>, is_deputy: bool) -> Result<(), StoreError> {
        let remains = logs.remains();
        if remains.since.is_none() || remains.rewritten < remains.commit {
            return Ok(());
        }
        let (first, snapshots) = (self.journal.first().await?, self.snapshots.list().await?);
        if first >= remains.commit && snapshots.iter().all(|(position, _)| *position >= remains.commit) {
            return logs.forget_remains(remains).await;
        }
        if is_deputy {
            self.write_snapshot(logs).await?;
            self.snapshots.remove_before(remains.commit).await?;
        }
        Ok(())
    }

    async fn write_snapshot(&self, logs: &Arc<Logs>) -> Result<(), StoreError> {
        let position = match self.snapshots.list().await?.pop() {
            // An attempt that failed later has written it.
            Some((newest, _)) if newest >= logs.mark().applied => newest,
            _ => self.snapshots.write_of(&self.membership.id, logs).await?,
        };
        // A node that is behind still has to read what it lacks, also one that started meanwhile.
        let needed = self.membership.nodes().iter().map(|(_, node)| node.position).min().unwrap_or(position).min(position);
        self.journal.truncate_before(needed).await?;
        tracing::info!(position, first = needed, "wrote a snapshot, and shortened the stream");
        Ok(())
    }
}

/// Restores a store that lacks what the stream no longer has.
///
/// The stream may be shortened, and the snapshot removed, until the other nodes know of this one.
fn restore(
    mut dir: ReplicaDir,
    options: &ClusterOptions,
    journal: &JetStreamJournal,
    snapshots: &Snapshots,
) -> Result<ReplicaDir, StoreError> {
    let begun = environment::instant();
    loop {
        let (first, applied) = (journal.refresh_first()?, dir.mark().map_or(0, |mark| mark.applied));
        if applied + 1 >= first {
            return Ok(dir);
        }
        let newest = journal.run(snapshots.list())??.pop().filter(|(position, _)| position + 1 >= first);
        let restored = match newest {
            Some((position, name)) => {
                tracing::info!(position, "restoring the store from a snapshot of the cluster");
                journal.run(snapshots.restore(&name, dir))?
            }
            None => Err(StoreError::Failed {
                doing: "restoring the store",
                why: format!("the stream begins with the commit {first}, and no snapshot has what is before it"),
            }),
        };
        dir = match restored {
            Ok(restored) => restored,
            Err(error @ StoreError::Unsupported { .. }) => return Err(error),
            Err(error) if environment::elapsed(begun) > OPEN_TIME_MAX => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot restore the store yet; trying again");
                environment::sleep_thread(RENEW_INTERVAL);
                ReplicaDir::open(&options.data_dir, &options.name)?
            }
        };
    }
}

/// The lease, from the view of one node.
struct HeldLease {
    node: Arc<ClusterNode>,
    logs: Arc<Logs>,
    seen: Arc<watch::Sender<SeenLease>>,
    /// The revision of the lease that this node holds, and when its last renewal began.
    held: Option<(u64, Instant)>,
}

impl HeldLease {
    /// Renews the lease or takes it, and says that this node is alive.
    async fn turn(&mut self) {
        let membership = self.node.membership.clone();
        let applied = self.logs.mark().applied;
        membership.last.fetch_max(self.node.journal.bounds().1, Ordering::Relaxed);
        let (_, lag) = membership.lag(applied);
        match self.held {
            Some((revision, renewed)) => self.renew(revision, renewed).await,
            None => {
                // An append that was on its way when the lease ended may have succeeded, which ends following.
                self.node.journal.follow();
                self.take().await;
            }
        }
        let value = NodeValue { url: membership.url.clone(), position: applied, lag_ms: lag.as_millis() as u64 };
        if let Err(error) = self.node.bucket.write_node(&membership.id, &value).await {
            tracing::debug!(error, "cannot tell the cluster that this node is alive");
        }
    }

    fn value(&self, is_released: bool) -> LeaseValue {
        let Membership { id, url, .. } = &*self.node.membership;
        LeaseValue { node: id.clone(), url: url.clone(), is_released, version: env!("CARGO_PKG_VERSION").into() }
    }

    async fn renew(&mut self, revision: u64, renewed: Instant) {
        let begun = environment::instant();
        let id = &self.node.membership.id;
        let is_taken = {
            let seen = self.seen.borrow();
            seen.entry.is_of_another(id) && seen.revision > revision
        };
        match self.node.bucket.write_lease(&self.value(false), revision).await {
            Ok(revision) => {
                self.held = Some((revision, begun));
                self.logs.leadership().extend(begun + self.node.held_time);
                if !self.logs.leadership().leads() {
                    self.lead(revision).await;
                }
            }
            Err(error) if is_taken || environment::elapsed(renewed) > self.node.held_time => {
                tracing::warn!(error, "this node has lost the lease, and follows");
                self.step_down();
            }
            // A write without an answer may have succeeded, and moved the revision.
            Err(_) => {
                let seen = self.seen.borrow().clone();
                if seen.entry.held().is_some_and(|value| value.node == *id) {
                    self.held = Some((seen.revision.max(revision), renewed));
                }
            }
        }
    }

    async fn take(&mut self) {
        let seen = self.seen.borrow().clone();
        let begun = environment::instant();
        if seen.may_be_dropped(begun) {
            self.node.bucket.refresh(&self.seen).await;
        }
        if !seen.is_free(begun) {
            return;
        }
        match self.node.bucket.write_lease(&self.value(false), seen.revision).await {
            Ok(revision) => {
                self.held = Some((revision, begun));
                self.logs.leadership().extend(begun + self.node.held_time);
                self.lead(revision).await;
            }
            // Another node was faster, or the entry is gone.
            Err(_) => self.node.bucket.refresh(&self.seen).await,
        }
    }

    async fn lead(&mut self, term: u64) {
        let leader = Leader { term, node: self.node.membership.id.clone() };
        match self.logs.lead(leader).await {
            Ok(()) => {
                self.node.membership.takeovers.fetch_add(1, Ordering::Relaxed);
                tracing::info!(term, "this node leads the cluster");
            }
            Err(error) => {
                tracing::warn!(%error, term, "this node has the lease, and cannot lead; it gives the lease back");
                self.give_back().await;
            }
        }
    }

    fn step_down(&mut self) {
        self.held = None;
        self.logs.leadership().step_down();
        self.node.journal.follow();
    }

    /// Gives the lease back, so that another node takes it at once.
    async fn give_back(&mut self) {
        let held = self.held;
        self.step_down();
        if let Some((revision, _)) = held {
            // Without an answer the lease ends by itself.
            let _ = self.node.bucket.write_lease(&self.value(true), revision).await;
        }
    }

    async fn release(&mut self) {
        self.give_back().await;
        self.node.bucket.remove_node(&self.node.membership.id).await;
        self.node.journal.abandon();
    }
}

/// Makes a snapshot of a single server's store, from which a new cluster begins.
///
/// # Errors
/// `Failed` when the cluster has commits or snapshots already; the errors of the store and of NATS.
pub fn seed(dir: &Path, connection: &StreamConnection, cluster: &str, allows_one_replica: bool) -> Result<u64, StoreError> {
    use crate::log::Store;
    use crate::log::commit::Orderer;
    use crate::log::embedded::{EmbeddedStore, Sync};
    let refuse = |why: String| Err(StoreError::Failed { doing: "moving the data to the cluster", why });
    let connected = connection.connect()?;
    let options = StreamOptions { cluster: cluster.into(), allows_one_replica, is_fenced: true, writer: 0 };
    let snapshots = connected.runtime.run(async {
        let replicas = open_stream(&connected.context, &options).await?.cached_info().config.num_replicas;
        Snapshots::open(&connected.context, cluster, replicas).await
    })??;
    if !connected.runtime.run(snapshots.list())??.is_empty() {
        return refuse(format!("the cluster {cluster} has snapshots already; choose another name"));
    }
    let journal = JetStreamJournal::open(connected, options, 0)?;
    if journal.bounds().1 > 0 {
        return refuse(format!("the cluster {cluster} has commits already; choose another name"));
    }
    let (store, local) = EmbeddedStore::open(dir, Sync::Always)?;
    let store = pollster::block_on(Orderer::open(Arc::new(store), Arc::new(local)))?.store().clone();
    journal.run(snapshots.write("seed", move |write| store.export(write)))?
}
