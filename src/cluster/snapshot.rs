//! Snapshots of the store in the cluster's object store.
//!
//! A snapshot is an object whose name has the position of its last commit. The object store lists an object only once it
//! is complete, and checks its digest when it is read. The newest two stay, so that a node that reads one is not cut off
//! by the next.

use crate::log::commit::Logs;
use crate::log::embedded::ReplicaDir;
use crate::log::{Mark, StoreError};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::object_store::{Config, ObjectStore};
use async_nats::jetstream::stream::StorageType;
use bytes::Bytes;
use futures_util::StreamExt;
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

fn name_of(position: u64) -> String {
    format!("snapshot-{position:020}")
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

    /// The positions of the complete snapshots, in order.
    pub async fn positions(&self) -> Result<Vec<u64>, StoreError> {
        let mut objects = self.store.list().await.map_err(|e| failed(&e))?;
        let mut positions = Vec::new();
        while let Some(object) = objects.next().await {
            let object = object.map_err(|e| failed(&e))?;
            positions.extend(object.name.strip_prefix("snapshot-").and_then(|position| position.parse::<u64>().ok()));
        }
        positions.sort_unstable();
        Ok(positions)
    }

    /// Restores the store of a node from the snapshot at `position`.
    pub async fn restore(&self, position: u64, mut dir: ReplicaDir) -> Result<ReplicaDir, StoreError> {
        let object = self.store.get(name_of(position)).await.map_err(|e| failed(&e))?;
        let reader = SyncIoBridge::new(object);
        let restored = tokio::task::spawn_blocking(move || dir.import(reader).map(|_| dir)).await;
        restored.unwrap_or_else(|error| Err(failed(&error)))
    }

    /// Writes a snapshot; returns its position. Older ones are removed.
    ///
    /// `export` writes the chunks, in a thread that may block.
    pub async fn write(
        &self,
        export: impl FnOnce(&mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> + Send + 'static,
    ) -> Result<u64, StoreError> {
        let (chunks, waiting) = mpsc::channel::<Bytes>(CHUNKS_WAITING_MAX);
        let exporting = tokio::task::spawn_blocking(move || export(&mut |chunk| chunks.blocking_send(chunk).is_ok()));
        // The name is known when the export has ended; the object gets a name of its own until then.
        let part = "part";
        let chunks = futures_util::stream::unfold(waiting, async |mut waiting| {
            let chunk = waiting.recv().await?;
            Some((Ok::<_, io::Error>(chunk), waiting))
        });
        let mut reader = StreamReader::new(Box::pin(chunks));
        let put = self.store.put(part, &mut reader).await;
        drop(reader);
        let mark = exporting.await.map_err(|e| failed(&e))??;
        put.map_err(|e| failed(&e))?;
        let mark = mark.ok_or_else(|| failed(&"the store makes no snapshots"))?;
        let metadata = async_nats::jetstream::object_store::UpdateMetadata { name: name_of(mark.applied), ..Default::default() };
        self.store.update_metadata(part, metadata).await.map_err(|e| failed(&e))?;
        let positions = self.positions().await?;
        for old in &positions[..positions.len().saturating_sub(KEPT)] {
            self.store.delete(name_of(*old)).await.map_err(|e| failed(&e))?;
        }
        Ok(mark.applied)
    }

    /// Writes a snapshot of what the logs have now.
    pub async fn write_of(&self, logs: &Arc<Logs>) -> Result<u64, StoreError> {
        let (logs, inside) = (logs.clone(), Handle::current());
        self.write(move |write| {
            let _inside = inside.enter();
            logs.export(write)
        })
        .await
    }
}
