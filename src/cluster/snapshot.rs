//! Snapshots of the store in the cluster's object store.
//!
//! A snapshot is an object whose name has the position of its last commit and the id of its node, so that two nodes that
//! write at once do not write one object. The object store lists an object only once it is complete, and checks its digest
//! when it is read. The newest two stay, so that a node that reads one is not cut off by the next.

use crate::log::commit::Logs;
use crate::log::embedded::ReplicaDir;
use crate::log::{Mark, StoreError};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::object_store::{Config, ObjectStore, UpdateMetadata};
use async_nats::jetstream::stream::StorageType;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Snapshots that stay.
const KEPT: usize = 2;
/// Chunks of a snapshot that wait for the connection.
const CHUNKS_WAITING_MAX: usize = 4;

/// The snapshots of one cluster.
#[derive(Clone)]
pub struct Snapshots {
    store: ObjectStore,
}

fn failed(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::failed("using the snapshots of the cluster", error)
}

/// The position in a snapshot's name. `None` for an object that is being written.
fn position_in(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-")?.split('-').next()?.parse().ok()
}

/// The positions and the names of the snapshots among these objects, in order.
fn snapshots_of(objects: &[String]) -> Vec<(u64, String)> {
    let mut snapshots: Vec<_> = objects.iter().filter_map(|name| Some((position_in(name)?, name.clone()))).collect();
    snapshots.sort_unstable();
    snapshots
}

/// The name of an object that this node is writing.
fn part_of(node: &str) -> String {
    format!("part-{node}")
}

impl Snapshots {
    /// Opens the object store of a cluster, or creates it with so many replicas.
    pub async fn open(context: &Context, cluster: &str, num_replicas: usize) -> Result<Self, StoreError> {
        let bucket = format!("PROSCENIUM_{cluster}_snapshots");
        let config = Config {
            bucket: bucket.clone(),
            description: Some("Snapshots of a Proscenium cluster.".into()),
            storage: StorageType::File,
            num_replicas,
            ..Config::default()
        };
        let store = match context.get_object_store(&bucket).await {
            Ok(store) => store,
            Err(_) => context.create_object_store(config).await.map_err(|e| failed(&e))?,
        };
        Ok(Self { store })
    }

    /// The positions and the names of the complete snapshots, in order.
    pub async fn list(&self) -> Result<Vec<(u64, String)>, StoreError> {
        Ok(snapshots_of(&self.objects().await?))
    }

    async fn objects(&self) -> Result<Vec<String>, StoreError> {
        let objects = self.store.list().await.map_err(|e| failed(&e))?;
        objects.map(|object| object.map(|object| object.name).map_err(|e| failed(&e))).try_collect().await
    }

    /// Restores the store of a node from the snapshot with this name. After an error the directory has none.
    pub async fn restore(&self, name: &str, mut dir: ReplicaDir) -> Result<ReplicaDir, StoreError> {
        let object = self.store.get(name).await.map_err(|e| failed(&e))?;
        let reader = SyncIoBridge::new(object);
        let restored = tokio::task::spawn_blocking(move || dir.import(reader).map(|_| dir)).await;
        restored.unwrap_or_else(|error| Err(failed(&error)))
    }

    /// Writes a snapshot; returns its position. Older ones are removed.
    ///
    /// `export` writes the chunks, in a thread that may block. `node` is the writer's id. `others` are the ids of the other
    /// nodes that are alive: what they write now stays.
    pub async fn write(
        &self,
        node: &str,
        others: &[String],
        export: impl FnOnce(&mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> + Send + 'static,
    ) -> Result<u64, StoreError> {
        let (chunks, waiting) = mpsc::channel::<Bytes>(CHUNKS_WAITING_MAX);
        let exporting = tokio::task::spawn_blocking(move || export(&mut |chunk| chunks.blocking_send(chunk).is_ok()));
        // The name is known when the export has ended; the object gets a name of its own until then.
        let part = part_of(node);
        let chunks = futures_util::stream::unfold(waiting, async |mut waiting| {
            let chunk = waiting.recv().await?;
            Some((Ok::<_, io::Error>(chunk), waiting))
        });
        let mut reader = StreamReader::new(Box::pin(chunks));
        let put = self.store.put(part.as_str(), &mut reader).await;
        drop(reader);
        let mark = exporting.await.map_err(|e| failed(&e))??;
        put.map_err(|e| failed(&e))?;
        let mark = mark.ok_or_else(|| failed(&"the store makes no snapshots"))?;
        let name = format!("snapshot-{:020}-{node}", mark.applied);
        self.store.update_metadata(part, UpdateMetadata { name, ..UpdateMetadata::default() }).await.map_err(|e| failed(&e))?;
        // One list: another node may name a snapshot meanwhile.
        let objects = self.objects().await?;
        let kept: Vec<_> = snapshots_of(&objects).into_iter().rev().take(KEPT).map(|(_, name)| name).collect();
        let written: Vec<_> = others.iter().map(|other| part_of(other)).collect();
        // Also what a node left that ended before it named its snapshot.
        for old in objects.iter().filter(|object| !kept.contains(object) && !written.contains(object)) {
            self.store.delete(old).await.map_err(|e| failed(&e))?;
        }
        Ok(mark.applied)
    }

    /// Writes a snapshot of what the logs have now.
    pub async fn write_of(&self, node: &str, others: &[String], logs: &Arc<Logs>) -> Result<u64, StoreError> {
        let (logs, inside) = (logs.clone(), Handle::current());
        self.write(node, others, move |write| {
            let _inside = inside.enter();
            logs.export(write)
        })
        .await
    }
}
