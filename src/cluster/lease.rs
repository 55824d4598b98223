//! The lease of the leader, and the signs of life of all nodes, in a key-value bucket.
//!
//! | key | value | written by |
//! | --- | --- | --- |
//! | `leader` | [`LeaseValue`] | the leader, each [`RENEW_INTERVAL`]; a node that takes over |
//! | `node.{id}` | [`NodeValue`] | that node, each [`RENEW_INTERVAL`] |
//!
//! A node takes the lease when its entry has not changed for [`LEASE_TIME`] by the node's own clock. The update names the
//! revision that it saw, so one of several nodes succeeds. The revision is the term of the leader. No clock of another
//! machine is compared.

use super::{Membership, Node, SILENCE_TIME_MAX};
use crate::environment;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::kv::{Config, Entry, Operation, Store};
use async_nats::jetstream::stream::StorageType;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The interval of renewals and signs of life.
pub const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// The time after which a lease that was not renewed is free, by the clocks of the other nodes.
pub const LEASE_TIME: Duration = Duration::from_millis(2500);
/// The time for which the leader relies on its lease after the begin of its last renewal.
///
/// Shorter, so that clocks may differ in speed.
pub const HELD_TIME: Duration = Duration::from_millis(2200);
/// The time to wait for an answer of the bucket.
pub const ANSWER_TIME_MAX: Duration = Duration::from_millis(700);
/// The bucket drops the entry of a node that is gone.
const ENTRY_TIME_MAX: Duration = Duration::from_mins(1);
/// Without any change for this long, the watch of the bucket is taken for lost.
const WATCH_TIME_MAX: Duration = Duration::from_secs(2);
const LEADER_KEY: &str = "leader";
const NODE_KEYS: &str = "node.";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeaseValue {
    pub node: String,
    pub url: String,
    /// Whether the leader has given the lease back.
    pub is_released: bool,
    /// The version that wrote it, which a version that cannot read the rest names.
    #[serde(default)]
    pub version: String,
}

/// A form that this version does not know reads as a node without a position, below which no stream is shortened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeValue {
    pub url: String,
    pub position: u64,
    pub lag_ms: u64,
}

/// What the entry of the lease has.
#[derive(Debug, Clone, Default)]
pub enum LeaseEntry {
    #[default]
    Absent,
    Known(LeaseValue),
    /// A newer version wrote it in a form that this one does not know.
    Unknown,
}

impl LeaseEntry {
    /// Whether a node other than `id` wrote it.
    pub fn is_of_another(&self, id: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Known(value) => value.node != id,
            Self::Unknown => true,
        }
    }

    /// The lease of a node that holds it.
    pub fn held(&self) -> Option<&LeaseValue> {
        match self {
            Self::Known(value) if !value.is_released => Some(value),
            _ => None,
        }
    }
}

/// The lease as this node last saw it.
#[derive(Debug, Clone, Default)]
pub struct SeenLease {
    /// The last revision; 0 without an entry.
    pub revision: u64,
    pub entry: LeaseEntry,
    /// When the revision was first seen. `None` before anything was seen.
    pub since: Option<Instant>,
}

impl SeenLease {
    /// Whether another node may take the lease now.
    ///
    /// Only its writer knows when a lease of an unknown form ends: it stays until the bucket has dropped it.
    pub fn is_free(&self, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        match &self.entry {
            LeaseEntry::Absent => true,
            LeaseEntry::Known(value) => value.is_released || now.duration_since(since) > LEASE_TIME,
            LeaseEntry::Unknown => false,
        }
    }

    /// Whether the bucket may have dropped the entry, about which a watch says nothing.
    pub fn may_be_dropped(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.duration_since(since) > ENTRY_TIME_MAX)
    }
}

/// The bucket of one cluster.
#[derive(Clone)]
pub struct Bucket {
    store: Store,
}

impl Bucket {
    /// Opens the bucket, or creates it with so many replicas.
    pub async fn open(context: &Context, cluster: &str, num_replicas: usize) -> Result<Self, String> {
        let config = Config {
            bucket: format!("PROSCENIUM_{cluster}_nodes"),
            description: "The leader and the nodes of a Proscenium cluster.".into(),
            max_age: ENTRY_TIME_MAX,
            num_replicas,
            ..Config::default()
        };
        Ok(Self { store: open_bucket(context, config).await? })
    }

    /// Writes the lease, if its entry still has this revision; returns the new revision.
    pub async fn write_lease(&self, value: &LeaseValue, revision: u64) -> Result<u64, String> {
        let bytes = serde_json::to_vec(value).expect("a lease serializes to JSON").into();
        answer(self.store.update(LEADER_KEY, bytes, revision)).await
    }

    /// Writes the sign of life of a node.
    pub async fn write_node(&self, id: &str, value: &NodeValue) -> Result<u64, String> {
        let bytes = serde_json::to_vec(value).expect("a node serializes to JSON").into();
        answer(self.store.put(format!("{NODE_KEYS}{id}"), bytes)).await
    }

    /// Repeats the sign of life of a node that starts.
    pub async fn announce(self, id: String, value: NodeValue) {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            // If it fails, the next one comes soon enough.
            let _ = self.write_node(&id, &value).await;
        }
    }

    /// Removes the entry of a node that stops.
    pub async fn remove_node(&self, id: &str) {
        // If it fails, the bucket drops the entry later.
        let _ = answer(self.store.purge(format!("{NODE_KEYS}{id}"))).await;
    }

    /// Notices that the bucket has no entry for the lease, about which a watch says nothing.
    pub async fn refresh(&self, seen: &watch::Sender<SeenLease>) {
        if let Ok(Ok(None)) = tokio::time::timeout(WATCH_TIME_MAX, self.store.entry(LEADER_KEY)).await {
            seen.send_replace(SeenLease { since: Some(environment::instant()), ..SeenLease::default() });
        }
    }

    /// Forgets a leader that this node hears no more of.
    pub async fn expire_leader(membership: Arc<Membership>) {
        loop {
            tokio::time::sleep(RENEW_INTERVAL / 2).await;
            if environment::elapsed(*membership.leader_heard.read()) > SILENCE_TIME_MAX {
                membership.leader.send_if_modified(|leader| leader.take().is_some());
            }
        }
    }

    /// Keeps the membership and the lease up to date, through any failure of the connection.
    pub async fn watch(self, membership: Arc<Membership>, seen: Arc<watch::Sender<SeenLease>>) {
        loop {
            self.refresh(&seen).await;
            if let Ok(Ok(mut changes)) = tokio::time::timeout(WATCH_TIME_MAX, self.store.watch_with_history(">")).await {
                while let Ok(Some(Ok(entry))) = tokio::time::timeout(WATCH_TIME_MAX, changes.next()).await {
                    apply(&membership, &seen, &entry);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Opens a bucket with one value for each key, or creates it.
pub async fn open_bucket(context: &Context, config: Config) -> Result<Store, String> {
    let config = Config { history: 1, storage: StorageType::File, ..config };
    match context.get_key_value(&config.bucket).await {
        Ok(store) => Ok(store),
        Err(_) => context.create_key_value(config).await.map_err(|error| error.to_string()),
    }
}

/// Waits for an answer of a bucket, for a limited time.
pub async fn answer<T, E: std::fmt::Display>(asked: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_TIME_MAX, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("NATS does not answer".into()),
    }
}

fn apply(membership: &Membership, seen: &watch::Sender<SeenLease>, entry: &Entry) {
    *membership.heard.write() = environment::instant();
    let is_put = entry.operation == Operation::Put;
    if entry.key == LEADER_KEY {
        let lease = match serde_json::from_slice(&entry.value) {
            _ if !is_put => LeaseEntry::Absent,
            Ok(value) => LeaseEntry::Known(value),
            Err(_) => LeaseEntry::Unknown,
        };
        refuse_unknown(membership, &lease, entry);
        *membership.leader_heard.write() = environment::instant();
        let held = lease.held().map(|value| (value.node.clone(), value.url.clone()));
        membership.leader.send_if_modified(|leader| {
            let is_other = *leader != held;
            *leader = held;
            is_other
        });
        seen.send_modify(|seen| {
            if entry.revision != seen.revision {
                *seen = SeenLease { revision: entry.revision, entry: lease, since: Some(environment::instant()) };
            }
        });
    } else if let Some(id) = entry.key.strip_prefix(NODE_KEYS) {
        if !is_put {
            membership.nodes.write().remove(id);
            return;
        }
        let value = serde_json::from_slice::<NodeValue>(&entry.value).unwrap_or_default();
        membership.last.fetch_max(value.position, Ordering::Relaxed);
        let lag = Duration::from_millis(value.lag_ms);
        let node = Node { url: value.url, position: value.position, lag, seen: environment::instant() };
        membership.nodes.write().insert(id.to_owned(), node);
    }
}

/// Says once why this node does not take a lease of an unknown form, and lets its answers say so too.
fn refuse_unknown(membership: &Membership, lease: &LeaseEntry, entry: &Entry) {
    let why = matches!(lease, LeaseEntry::Unknown).then(|| {
        let value: serde_json::Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        format!(
            "The record `{}` of the bucket {} was written by {}. This is Proscenium {}, which does not know its form, takes no \
             lease and passes no writes on. Upgrade this node.",
            entry.key,
            entry.bucket,
            value["version"].as_str().map_or_else(|| "a newer version".into(), |version| format!("Proscenium {version}")),
            env!("CARGO_PKG_VERSION")
        )
    });
    let mut refused = membership.refused.write();
    if *refused != why {
        if let Some(why) = &why {
            tracing::error!("{why}");
        }
        *refused = why;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_free_when_it_was_given_back_or_not_renewed() {
        let begun = environment::instant();
        let value = |is_released| {
            LeaseEntry::Known(LeaseValue { node: "a".into(), url: "http://a".into(), is_released, version: String::new() })
        };
        let seen = |entry| SeenLease { revision: 7, entry, since: Some(begun) };
        let (early, late) = (begun + LEASE_TIME / 2, begun + LEASE_TIME * 2);
        assert!(!seen(value(false)).is_free(early) && seen(value(false)).is_free(late));
        assert!(seen(value(true)).is_free(early) && seen(LeaseEntry::Absent).is_free(early));
        assert!(!seen(LeaseEntry::Unknown).is_free(late), "only its writer knows when it ends");
        assert!(!SeenLease::default().is_free(late), "a node that has seen nothing knows nothing");
    }
}
