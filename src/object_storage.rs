//! Object storage: a directory, S3, Google Cloud Storage or Azure, by its address.
//!
//! What is written is durable when the call returns, in a directory too.

use crate::environment;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};
use std::fs::{DirBuilder, File};
use std::io::{Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use url::Url;

pub use object_store::Error;

/// Bytes that one request sends.
const PART_BYTES: usize = 8 << 20;
/// The end of the name of an object that is not complete.
pub const PART_SUFFIX: &str = ".part";

/// What an address of object storage has wrong.
#[derive(Debug, thiserror::Error)]
pub enum StorageAddressError {
    #[error("{address:?} is no address: {why}. Use file:///…, s3://bucket/…, gs://bucket/… or az://container/….")]
    NoUrl { address: String, why: url::ParseError },
    #[error("{address:?} cannot be used: {why}")]
    Refused { address: String, why: String },
    #[error("the directory {} cannot be used: {why}", path.display())]
    Directory { path: PathBuf, why: std::io::Error },
}

/// Objects below one address. Names have `/` between their parts.
#[derive(Debug)]
pub struct ObjectStorage {
    store: Box<dyn ObjectStore>,
    prefix: ObjectPath,
    address: String,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// The last part of its name.
    pub name: String,
    pub bytes: u64,
}

impl ObjectStorage {
    /// Opens an address, with the credentials of its provider's environment variables.
    ///
    /// # Errors
    /// [`StorageAddressError`].
    pub fn open(address: &str) -> Result<Self, StorageAddressError> {
        let url = Url::parse(address).map_err(|why| StorageAddressError::NoUrl { address: address.to_owned(), why })?;
        if let Some(path) = url.to_file_path().ok().filter(|_| url.scheme() == "file") {
            return Self::directory(&path);
        }
        environment::install_crypto_provider();
        let variables = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let shown = without_credentials(&url);
        let refused = |why: Error| {
            let why = why.to_string().replace(url.as_str(), &shown);
            StorageAddressError::Refused { address: shown.clone(), why }
        };
        let (store, prefix) = object_store::parse_url_opts(&url, variables).map_err(refused)?;
        Ok(Self { store, prefix, address: shown })
    }

    /// Opens a directory, which it makes for its own user if it does not exist.
    ///
    /// # Errors
    /// `Directory`.
    pub fn directory(path: &Path) -> Result<Self, StorageAddressError> {
        let failed = |why| StorageAddressError::Directory { path: path.to_owned(), why };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let store = LocalFileSystem::new_with_prefix(path).map_err(|why| failed(why.into()))?.with_fsync(true);
        Ok(Self::of(store, path.display().to_string()))
    }

    /// A store that is open, with its address for messages.
    #[must_use]
    pub fn of(store: impl ObjectStore, address: String) -> Self {
        Self { store: Box::new(store), prefix: ObjectPath::default(), address }
    }

    /// The address without credentials, for messages.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), ObjectPath::join)
    }

    /// Writes a small object.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn put(&self, name: &str, bytes: impl Into<Bytes>) -> Result<(), Error> {
        self.store.put(&self.path(name), PutPayload::from(bytes.into())).await.map(drop)
    }

    /// Writes a small object unless one has this name. Returns whether it did.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn create(&self, name: &str, bytes: impl Into<Bytes>) -> Result<bool, Error> {
        match self.store.put_opts(&self.path(name), PutPayload::from(bytes.into()), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a file as an object.
    ///
    /// # Errors
    /// Those of the storage and of the file.
    pub async fn put_file(&self, name: &str, mut file: File) -> Result<(), Error> {
        let of_file = |error: std::io::Error| Error::Generic { store: "file", source: Box::new(error) };
        file.rewind().map_err(of_file)?;
        let (mut upload, mut part) = (self.upload(name), Vec::with_capacity(PART_BYTES));
        loop {
            part.clear();
            let written = match (&mut file).take(PART_BYTES as u64).read_to_end(&mut part) {
                Ok(0) => return upload.finish(name).await,
                Ok(_) => upload.write(&part).await,
                Err(error) => Err(of_file(error)),
            };
            if let Err(error) = written {
                upload.abort().await;
                return Err(error);
            }
        }
    }

    /// Begins an object whose name is known at its end. Its parts are below `name` and [`PART_SUFFIX`] until then.
    #[must_use]
    pub fn upload(&self, name: &str) -> ObjectUpload<'_> {
        ObjectUpload { storage: self, part: format!("{name}{PART_SUFFIX}"), small: BytesMut::new(), parts: None }
    }

    /// Reads an object in pieces.
    ///
    /// # Errors
    /// Those of the storage; `NotFound`.
    pub async fn get(&self, name: &str) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        Ok(self.store.get(&self.path(name)).await?.into_stream())
    }

    /// Reads a small object.
    ///
    /// # Errors
    /// Those of the storage; `NotFound`.
    pub async fn read(&self, name: &str) -> Result<Bytes, Error> {
        self.store.get(&self.path(name)).await?.bytes().await
    }

    /// When an object was written, if it is there.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn written_at(&self, name: &str) -> Result<Option<jiff::Timestamp>, Error> {
        match self.store.head(&self.path(name)).await {
            Ok(found) => Ok(jiff::Timestamp::from_second(found.last_modified.timestamp()).ok()),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives an object another name, and replaces one that has it.
    ///
    /// # Errors
    /// Those of the storage; `NotFound`.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        self.store.rename(&self.path(from), &self.path(to)).await
    }

    /// Deletes an object. It need not be there.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        match self.store.delete(&self.path(name)).await {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    /// The objects below a name.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn list(&self, below: &str) -> Result<Vec<ListedObject>, Error> {
        let below = self.path(below);
        let named = self.store.list(Some(&below)).try_filter_map(|found| async move {
            let name = found.location.filename().map(str::to_owned);
            Ok(name.map(|name| ListedObject { name, bytes: found.size }))
        });
        named.try_collect().await
    }
}

/// An object that is being written.
pub struct ObjectUpload<'s> {
    storage: &'s ObjectStorage,
    /// The name that its parts have.
    part: String,
    /// All of it, as long as one request can send it.
    small: BytesMut,
    parts: Option<WriteMultipart>,
}

impl ObjectUpload<'_> {
    /// Writes the next bytes.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.parts.is_none() && self.small.len() + bytes.len() <= PART_BYTES {
            self.small.extend_from_slice(bytes);
            return Ok(());
        }
        if self.parts.is_none() {
            let upload = self.storage.store.put_multipart(&self.storage.path(&self.part)).await?;
            let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
            parts.put(self.small.split().freeze());
            self.parts = Some(parts);
        }
        if let Some(parts) = &mut self.parts {
            parts.wait_for_capacity(1).await?;
            parts.write(bytes);
        }
        Ok(())
    }

    /// Completes the object under a name. Nothing has that name before.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn finish(self, name: &str) -> Result<(), Error> {
        let Some(parts) = self.parts else { return self.storage.put(name, self.small.freeze()).await };
        parts.finish().await?;
        self.storage.rename(&self.part, name).await
    }

    /// Removes what was written.
    pub async fn abort(self) {
        if let Some(parts) = self.parts
            && let Err(error) = parts.abort().await
        {
            tracing::warn!(%error, object = self.part, "parts of an object that was given up stay in the storage");
        }
    }
}

/// An address without credentials.
fn without_credentials(url: &Url) -> String {
    let mut shown = url.clone();
    // An address that takes no credentials has none.
    let _ = (shown.set_password(None), shown.set_username(""));
    shown.set_query(None);
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_directory_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        for storage in [
            ObjectStorage::directory(&dir.path().join("by path")).unwrap(),
            ObjectStorage::open(&format!("file://{}/by-address", dir.path().display())).unwrap(),
        ] {
            assert!(format!("{storage:?}").contains("fsync: true"), "{storage:?}");
        }
    }

    #[tokio::test]
    async fn an_object_of_any_size_is_read_as_it_was_written_and_an_aborted_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let storage = ObjectStorage::directory(dir.path()).unwrap();
        for size in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 7] {
            let content: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let mut upload = storage.upload("files/x");
            for piece in content.chunks(1_000_003) {
                upload.write(piece).await.unwrap();
            }
            upload.finish("files/named").await.unwrap();
            assert_eq!(storage.read("files/named").await.unwrap(), content, "{size}");
            let listed = storage.list("files").await.unwrap();
            assert_eq!(listed.iter().map(|found| (&*found.name, found.bytes)).collect::<Vec<_>>(), [("named", size as u64)]);
            let mut given_up = storage.upload("files/y");
            given_up.write(&content).await.unwrap();
            given_up.abort().await;
            assert_eq!(dir.path().join("files").read_dir().unwrap().count(), 1, "{size}");
        }
    }

    #[tokio::test]
    async fn an_object_is_created_once_renamed_over_another_and_deleted_twice() {
        let dir = tempfile::tempdir().unwrap();
        let storage = ObjectStorage::directory(dir.path()).unwrap();
        assert!(storage.create("a", "1").await.unwrap());
        assert!(!storage.create("a", "2").await.unwrap());
        storage.put("b/c", "3").await.unwrap();
        storage.rename("a", "b/c").await.unwrap();
        assert_eq!(storage.read("b/c").await.unwrap(), "1");
        for _ in 0..2 {
            storage.delete("b/c").await.unwrap();
        }
        assert!(matches!(storage.read("b/c").await, Err(Error::NotFound { .. })));
        assert_eq!(storage.list("never").await.unwrap(), []);
    }

    #[test]
    fn an_address_that_is_none_is_named_and_credentials_are_not_shown() {
        let error = ObjectStorage::open("bucket").unwrap_err().to_string();
        assert!(error.starts_with("\"bucket\" is no address: "), "{error}");
        let error = ObjectStorage::open("ftp://user:secret@host/x").unwrap_err().to_string();
        assert!(error.contains("ftp://host/x") && !error.contains("secret"), "{error}");
    }
}
