//! Nodes of one cluster: who leads, who follows, and how far.
//!
//! A node is one server whose journal is a stream that all nodes share ([`JetStreamJournal`]). Every node serves every
//! reader from its own store. One node appends; the others pass writes on to it.
//!
//! This module knows the nodes. What keeps two of them from appending is the fence of the journal, and nothing here:
//! a node that wrongly believes to lead cannot append, and learns it with its next append.
//!
//! [`JetStreamJournal`]: crate::log::journal

#[cfg(feature = "cluster")]
mod lease;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "cluster")]
mod snapshot;
#[cfg(feature = "cluster")]
mod tickets;

#[cfg(feature = "cluster")]
pub use node::{ClusterNode, ClusterOptions, seed};
#[cfg(feature = "cluster")]
pub use snapshot::Snapshots;

use crate::environment;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time without a sign of life after which a node is no longer listed.
const NODE_TIME_MAX: Duration = Duration::from_secs(10);
/// The time without a sign of any node, or of the leader, after which this node counts as cut off from it.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(3);

/// The nodes of the cluster, as this node knows them.
pub struct Membership {
    /// The name of the cluster.
    pub name: String,
    /// The id of this node. A process that starts again is another node.
    pub id: String,
    /// Where other nodes reach this one.
    pub url: String,
    nodes: RwLock<BTreeMap<String, Node>>,
    /// The node that holds the lease, and when this node last heard of it.
    leader: watch::Sender<Option<Leading>>,
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only the lease reads it"))]
    leader_heard: RwLock<Instant>,
    /// Why this node cannot read the lease.
    refused: RwLock<Option<String>>,
    /// When this node last heard of any node, itself included.
    heard: RwLock<Instant>,
    takeovers: AtomicU64,
    /// The position of the last commit that this node knows of, and since when its store is behind.
    last: AtomicU64,
    behind_since: RwLock<Option<Instant>>,
    is_ready: AtomicBool,
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    pub url: String,
    /// The position of the last commit that its store has.
    pub position: u64,
    pub lag: Duration,
    seen: Instant,
}

/// The id and the URL of the node that leads.
type Leading = (String, String);

impl Membership {
    /// A cluster whose nodes are not known yet.
    #[must_use]
    pub fn new(name: String, id: String, url: String) -> Self {
        Self {
            name,
            id,
            url,
            nodes: RwLock::default(),
            leader: watch::Sender::new(None),
            leader_heard: RwLock::new(environment::instant()),
            refused: RwLock::default(),
            heard: RwLock::new(environment::instant()),
            takeovers: AtomicU64::new(0),
            last: AtomicU64::new(0),
            behind_since: RwLock::default(),
            is_ready: AtomicBool::new(false),
        }
    }

    /// The id and the URL of the node that holds the lease; `None` while none does, as far as this node hears.
    #[must_use]
    pub fn leader(&self) -> Option<Leading> {
        self.leader.borrow().clone()
    }

    /// Why this node does not know who leads, although a node may: a newer version wrote the lease.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.refused.read().clone()
    }

    /// Waits until this node knows that the node `id` does not lead, or hears of it no more.
    pub async fn loses_leader(&self, id: &str) {
        // The sender, which `self` owns, exists.
        let _ = self.leader.subscribe().wait_for(|leader| leader.as_ref().is_none_or(|(leader, _)| leader != id)).await;
    }

    /// The nodes that were heard of lately, by id.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, Node)> {
        let nodes = self.nodes.read();
        let live = nodes.iter().filter(|(_, node)| environment::elapsed(node.seen) < NODE_TIME_MAX);
        live.map(|(id, node)| (id.clone(), node.clone())).collect()
    }

    /// Whether this node receives what the others append.
    #[must_use]
    pub fn is_following(&self) -> bool {
        environment::elapsed(*self.heard.read()) < SILENCE_TIME_MAX
    }

    /// Whether this node had everything once since its start.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// How far a store that is at `applied` is behind: in commits, and in time.
    #[must_use]
    pub fn lag(&self, applied: u64) -> (u64, Duration) {
        let commits = self.last.load(Ordering::Relaxed).saturating_sub(applied);
        let mut since = self.behind_since.write();
        if commits == 0 {
            *since = None;
            self.is_ready.store(true, Ordering::Relaxed);
        }
        let since = if commits == 0 { None } else { Some(*since.get_or_insert_with(environment::instant)) };
        (commits, since.map_or(Duration::ZERO, environment::elapsed))
    }

    /// How often this node has become the leader.
    #[must_use]
    pub fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::Relaxed)
    }
}
