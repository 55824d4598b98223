//! Snapshots of the store in the cluster's object store.
//!
//! A snapshot is an object whose name has the position of its last commit and the id of its node, so that two nodes that
//! write at once do not write one object. The object store checks its digest when it is read. The newest two stay, so
//! that a node that reads one is not cut off by the next.
//!
//! **Uploads.** The chunks of an object come first, under a random number, and its entry with the name comes last. A
//! process that ends in between leaves chunks that no snapshot has, and only time tells them from those of an upload
//! that goes on elsewhere. So an upload that stands still for [`STALL_TIME_MAX`] fails by its own clock, and a node
//! removes chunks that have not become more for [`ABANDONED_TIME`] by its own clock.

use crate::environment;
use crate::log::commit::Logs;
use crate::log::embedded::ReplicaDir;
use crate::log::{Mark, StoreError};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::object_store::{Config, ObjectInfo, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::{StorageType, Stream};
use bytes::Bytes;
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Snapshots that stay.
const KEPT: usize = 2;
/// Chunks of a snapshot that wait for the connection.
const CHUNKS_WAITING_MAX: usize = 4;
/// The time without a new chunk after which an upload fails: two such times are shorter than [`ABANDONED_TIME`].
const STALL_TIME_MAX: Duration = Duration::from_mins(1);
/// The time without a new chunk after which an upload has ended.
const ABANDONED_TIME: Duration = Duration::from_mins(5);

/// The snapshots of one cluster.
#[derive(Clone)]
pub struct Snapshots {
    store: ObjectStore,
    /// The stream of the object store, and the subjects of chunks in it, up to the upload's number.
    stream: Stream,
    chunk_subjects: String,
    /// The uploads without a snapshot: how many chunks each had, and since when.
    unfinished: Arc<Mutex<HashMap<String, (usize, Instant)>>>,
}

/// What the object store has.
struct Contents {
    objects: Vec<ObjectInfo>,
    /// The number of chunks of each upload.
    chunks: HashMap<String, usize>,
}

impl Contents {
    /// The complete snapshots, by position.
    fn snapshots(&self) -> Vec<(u64, &ObjectInfo)> {
        let is_whole = |object: &&ObjectInfo| self.chunks.get(&object.nuid).copied().unwrap_or_default() == object.chunks;
        let whole = self.objects.iter().filter(is_whole);
        let mut snapshots: Vec<_> = whole.filter_map(|object| Some((position_in(&object.name)?, object))).collect();
        snapshots.sort_unstable_by(|(a, one), (b, other)| (a, &one.name).cmp(&(b, &other.name)));
        snapshots
    }
}

fn failed(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::failed("using the snapshots of the cluster", error)
}

/// The position in a snapshot's name. `None` for any other object.
fn position_in(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-")?.split('-').next()?.parse().ok()
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
        let stream = context.get_stream(format!("OBJ_{bucket}")).await.map_err(|e| failed(&e))?;
        Ok(Self { store, stream, chunk_subjects: format!("$O.{bucket}.C."), unfinished: Arc::default() })
    }

    /// The positions and the names of the complete snapshots, in order.
    pub async fn list(&self) -> Result<Vec<(u64, String)>, StoreError> {
        let contents = self.contents().await?;
        Ok(contents.snapshots().into_iter().map(|(position, object)| (position, object.name.clone())).collect())
    }

    async fn contents(&self) -> Result<Contents, StoreError> {
        // The chunks first, so that the objects have the entry of each upload that ended before.
        let chunks = self.stream.info_with_subjects(format!("{}>", self.chunk_subjects)).await.map_err(|e| failed(&e))?;
        let number = |subject: &str| subject.strip_prefix(&self.chunk_subjects).unwrap_or(subject).to_owned();
        let chunks = chunks.map_ok(|(subject, count)| (number(&subject), count)).map_err(|e| failed(&e)).try_collect().await?;
        let objects = self.store.list().await.map_err(|e| failed(&e))?.map_err(|e| failed(&e)).try_collect().await?;
        Ok(Contents { objects, chunks })
    }

    /// Restores the store of a node from the snapshot with this name.
    ///
    /// # Errors
    /// `Unsupported` for a snapshot in the form of a newer version: the store is as it was. After every other error the
    /// directory may have none.
    pub async fn restore(&self, name: &str, mut dir: ReplicaDir) -> Result<ReplicaDir, StoreError> {
        let object = self.store.get(name).await.map_err(|e| failed(&e))?;
        let writer = object.info().description.clone().unwrap_or_else(|| "another version".into());
        let reader = SyncIoBridge::new(object);
        let restored = tokio::task::spawn_blocking(move || dir.import(reader).map(|_| dir)).await;
        restored.unwrap_or_else(|error| Err(failed(&error))).map_err(|error| match error {
            StoreError::Unsupported { found, known, remedy, .. } => {
                StoreError::Unsupported { path: name.into(), found: format!("{found}; {writer} wrote it"), known, remedy }
            }
            error => error,
        })
    }

    /// Writes a snapshot; returns its position. Older ones are removed.
    ///
    /// `export` writes the chunks, in a thread that may block. `node` is the writer's id.
    pub async fn write(
        &self,
        node: &str,
        export: impl FnOnce(&mut dyn FnMut(Bytes) -> bool) -> Result<Option<Mark>, StoreError> + Send + 'static,
    ) -> Result<u64, StoreError> {
        let (chunks, mut waiting) = mpsc::channel::<Bytes>(CHUNKS_WAITING_MAX);
        let exporting = tokio::task::spawn_blocking(move || export(&mut |chunk| chunks.blocking_send(chunk).is_ok()));
        let Some(first) = waiting.recv().await else {
            exporting.await.map_err(|e| failed(&e))??;
            return Err(failed(&"the store makes no snapshots"));
        };
        let mark = ReplicaDir::mark_of(&first)?;
        let progress = Mutex::new(environment::instant());
        let stalled = || environment::elapsed(*progress.lock()) > STALL_TIME_MAX;
        let chunks = futures_util::stream::unfold(Some((Some(first), waiting, exporting)), async |state| {
            let (first, mut waiting, exporting) = state?;
            let next = if first.is_some() { first } else { waiting.recv().await };
            let Some(chunk) = next else {
                // An export that failed must fail the upload, which would end as a snapshot otherwise.
                let error = match exporting.await {
                    Ok(Ok(Some(_))) => return None,
                    Ok(Ok(None)) => io::Error::other("the export was given up"),
                    Ok(Err(error)) => io::Error::other(error),
                    Err(panic) => io::Error::other(panic),
                };
                return Some((Err(error), None));
            };
            let chunk = if stalled() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(chunk) };
            *progress.lock() = environment::instant();
            Some((chunk, Some((None, waiting, exporting))))
        });
        let name = format!("snapshot-{:020}-{node}", mark.applied);
        let description = Some(format!("Proscenium {}", env!("CARGO_PKG_VERSION")));
        let metadata = ObjectMetadata { name: name.clone(), description, ..ObjectMetadata::default() };
        self.store.put(metadata, &mut StreamReader::new(Box::pin(chunks))).await.map_err(|e| failed(&e))?;
        let snapshots = self.list().await?;
        // A newer one of another node may have removed this one.
        if stalled() || snapshots.last().is_none_or(|(newest, _)| *newest < mark.applied) {
            return Err(failed(&format_args!("{name} is not complete; an upload must not stand still for {STALL_TIME_MAX:?}")));
        }
        for (_, old) in &snapshots[..snapshots.len().saturating_sub(KEPT)] {
            self.store.delete(old).await.map_err(|e| failed(&e))?;
        }
        Ok(mark.applied)
    }

    /// Removes the complete snapshots before a position.
    pub async fn remove_before(&self, position: u64) -> Result<(), StoreError> {
        for (_, old) in self.list().await?.iter().filter(|(of, _)| *of < position) {
            self.store.delete(old).await.map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    /// Writes a snapshot of what the logs have now.
    pub async fn write_of(&self, node: &str, logs: &Arc<Logs>) -> Result<u64, StoreError> {
        let (logs, inside) = (logs.clone(), Handle::current());
        self.write(node, move |write| {
            let _inside = inside.enter();
            logs.export(write)
        })
        .await
    }

    /// Removes what uploads left that ended before their snapshot was complete. It must be called at intervals.
    ///
    /// `now` is the time of this process. An upload has ended when no call has seen a new chunk for [`ABANDONED_TIME`].
    pub async fn remove_abandoned(&self, now: Instant) -> Result<(), StoreError> {
        let Contents { objects, mut chunks } = {
            let mut contents = self.contents().await?;
            let complete: Vec<_> = contents.snapshots().into_iter().map(|(_, object)| object.nuid.clone()).collect();
            contents.objects.retain(|object| !complete.contains(&object.nuid));
            contents.chunks.retain(|upload, _| !complete.contains(upload));
            contents
        };
        for object in &objects {
            chunks.entry(object.nuid.clone()).or_default();
        }
        let abandoned: Vec<_> = {
            let mut unfinished = self.unfinished.lock();
            unfinished.retain(|upload, _| chunks.contains_key(upload));
            for (upload, count) in chunks {
                let seen = unfinished.entry(upload).or_insert((count, now));
                if seen.0 != count {
                    *seen = (count, now);
                }
            }
            let ended = unfinished.iter().filter(|(_, (_, since))| now.duration_since(*since) >= ABANDONED_TIME);
            ended.map(|(upload, _)| upload.clone()).collect()
        };
        for upload in abandoned {
            for object in objects.iter().filter(|object| object.nuid == upload) {
                self.store.delete(&object.name).await.map_err(|e| failed(&e))?;
            }
            let purge = self.stream.purge().filter(format!("{}{upload}", self.chunk_subjects));
            let purged = purge.await.map_err(|e| failed(&e))?;
            tracing::info!(upload, chunks = purged.purged, "removed what an unfinished snapshot left");
        }
        Ok(())
    }
}
