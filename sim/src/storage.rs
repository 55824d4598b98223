//! Object storage that fails, in memory. It outlives the node.
//!
//! Writes and deletions take up to a second. While the storage is down, each request fails: of a write or a deletion
//! either before or after it is done. Reads answer at once, since a reader blocks its thread. Not modelled: objects that
//! are damaged or lost, and requests that never answer.

use crate::chance::Chance;
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The object storage of a simulation.
#[derive(Debug, Clone)]
pub struct Storage(Arc<State>);

#[derive(Debug)]
struct State {
    objects: InMemory,
    chance: Mutex<Chance>,
    down_until: Mutex<Option<Instant>>,
}

impl Storage {
    /// Storage without objects.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self(Arc::new(State { objects: InMemory::new(), chance: Mutex::new(chance), down_until: Mutex::default() }))
    }

    /// Lets each request fail for this time.
    pub fn fail(&self, time: Duration) {
        *self.0.down_until.lock() = Some(Instant::now() + time);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        *self.0.down_until.lock() = None;
    }

    /// The number of objects.
    pub async fn count(&self) -> usize {
        self.0.objects.list(None).count().await
    }

    fn is_down(&self) -> bool {
        self.0.down_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Does something that takes time, and may fail before it or after it.
    async fn change<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        let (pause, is_late) = {
            let mut chance = self.0.chance.lock();
            (chance.pick(&[0, 1, 20, 1000]).to_owned(), chance.once_in(2))
        };
        sleep(Duration::from_millis(pause)).await;
        if self.is_down() && !is_late {
            return Err(down());
        }
        let done = change.await;
        if self.is_down() { Err(down()) } else { done }
    }
}

fn down() -> Error {
    Error::Generic { store: "simulated", source: "the storage does not answer".into() }
}

impl fmt::Display for Storage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("simulated storage")
    }
}

#[async_trait]
impl ObjectStore for Storage {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.change(self.0.objects.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.change(self.0.objects.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_down() { Err(down()) } else { self.0.objects.get_opts(location, options).await }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let storage = self.clone();
        locations
            .then(move |location| {
                let storage = storage.clone();
                async move {
                    let location = location?;
                    let mut deleted = storage.0.objects.delete_stream(stream::once(async { Ok(location) }).boxed());
                    storage.change(async { deleted.next().await.expect("one is asked for") }).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.is_down() { stream::once(async { Err(down()) }).boxed() } else { self.0.objects.list(prefix) }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        if self.is_down() { Err(down()) } else { self.0.objects.list_with_delimiter(prefix).await }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.change(self.0.objects.copy_opts(from, to, options)).await
    }
}
