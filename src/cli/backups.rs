//! The place of backups, a directory or object storage: what `backup` writes and `restore` reads.
//!
//! ```text
//! files/<sha256>        the content of a file of the store; backups share it
//! backups/<name>.json   a complete backup: its manifest, and in a second line the SHA-256 of the first
//! unfinished.json       the plan of a backup that has begun and not ended, with the SHA-256 of what has arrived
//! damaged/<sha256>      content that was not what its name says
//! lock                  there, and in a directory locked, while a command writes
//! ```
//! A manifest is written last. So a backup that is cut off leaves earlier ones as they are.

use super::CliError;
use super::backup_manifest::{Hashes, Manifest, age};
use futures_util::StreamExt;
use proscenium::environment::Environment;
use proscenium::object_storage::{Error, ListedObject, ObjectStorage, ObjectUpload, PART_SUFFIX, StorageAddressError};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The time after which the lock of a command that was killed counts no longer. A server sends a backup for at most six
/// hours.
const LOCK_TIME_MAX: jiff::SignedDuration = jiff::SignedDuration::from_hours(7);

/// Makes an error of a file.
pub fn file_error(path: &Path, reason: &dyn std::fmt::Display) -> CliError {
    CliError::File { file: path.to_owned(), reason: reason.to_string() }
}

/// Whether a command names object storage.
pub fn is_address(place: &Path) -> bool {
    place.to_str().is_some_and(|text| text.contains("://"))
}

/// A place of backups.
pub struct Backups {
    storage: ObjectStorage,
    /// `None`: object storage, where a reader pays for each byte, and which checks its content itself.
    directory: Option<PathBuf>,
}

/// The right to write to a place.
pub enum Lock {
    /// Ends with the process.
    File(#[expect(dead_code, reason = "it is locked as long as it is open")] File),
    Object,
}

impl Backups {
    /// Opens the place that a command names: a directory, or an address of object storage.
    ///
    /// # Errors
    /// An address that cannot be used, and a data directory. A directory that does not exist is made.
    pub fn open(place: &Path) -> Result<Self, CliError> {
        let usage = |error: StorageAddressError| file_error(place, &error);
        if let Some(address) = place.to_str().filter(|_| is_address(place)) {
            return Ok(Self { storage: ObjectStorage::open(address).map_err(usage)?, directory: None });
        }
        if super::is_data_dir(place) {
            return Err(file_error(place, &"this is a data directory; give backups a directory of their own"));
        }
        Ok(Self { storage: ObjectStorage::directory(place).map_err(usage)?, directory: Some(place.to_owned()) })
    }

    /// The directory or the address, for messages.
    pub fn shown(&self) -> &str {
        self.storage.address()
    }

    fn error(&self, name: &str, reason: &dyn std::fmt::Display) -> CliError {
        file_error(&Path::new(self.shown()).join(name), reason)
    }

    /// Locks the place for this process.
    ///
    /// # Errors
    /// Another command writes.
    pub async fn lock(&self) -> Result<Lock, CliError> {
        let busy = "another backup is being written here; wait until it ends";
        let Some(dir) = &self.directory else {
            let failed = |error: Error| self.error("lock", &error);
            if self.storage.create("lock", "").await.map_err(failed)? {
                return Ok(Lock::Object);
            }
            let begun = self.storage.written_at("lock").await.map_err(failed)?;
            if let Some(begun) = begun.filter(|begun| (Environment::SYSTEM.now)().duration_since(*begun) < LOCK_TIME_MAX) {
                return Err(self.error("lock", &format!("{busy}. It began at {begun}; if it was killed, delete this object")));
            }
            self.storage.put("lock", "").await.map_err(failed)?;
            return Ok(Lock::Object);
        };
        let path = dir.join("lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&path).map_err(|e| file_error(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => {
                self.remove_parts(dir)?;
                Ok(Lock::File(lock))
            }
            Err(fs::TryLockError::WouldBlock) => Err(file_error(dir, &busy)),
            Err(fs::TryLockError::Error(error)) => Err(file_error(&path, &error)),
        }
    }

    /// Removes what a killed command has begun in a directory. In object storage, such parts are no objects.
    fn remove_parts(&self, dir: &Path) -> Result<(), CliError> {
        for below in ["files", "backups"].map(|name| dir.join(name)) {
            let entries = match below.read_dir() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|e| file_error(&below, &e))?,
            };
            for entry in entries {
                let path = entry.map_err(|e| file_error(&below, &e))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.contains(PART_SUFFIX) || name.contains('#') {
                    fs::remove_file(&path).map_err(|e| file_error(&path, &e))?;
                }
            }
        }
        Ok(())
    }

    /// Ends a lock.
    pub async fn unlock(&self, lock: Lock) -> Result<(), CliError> {
        match lock {
            Lock::File(_) => Ok(()),
            Lock::Object => self.storage.delete("lock").await.map_err(|error| self.error("lock", &error)),
        }
    }

    /// The SHA-256 of each content that is here, by the server's name of it.
    ///
    /// Content of a directory is read, and so is all content if `is_checked`; what is damaged is moved away, so that the
    /// server sends it again. Object storage is asked for the size alone.
    pub async fn known(&self, is_checked: bool) -> Result<HashMap<String, String>, CliError> {
        let listed = self.list("files").await?;
        if is_checked || self.directory.is_some() {
            return self.check(&listed).await;
        }
        let sizes: HashMap<&str, u64> = listed.iter().map(|object| (&*object.name, object.bytes)).collect();
        let mut known = HashMap::new();
        let mut add = |manifest: Manifest| {
            let here = manifest.files.into_iter().filter(|file| sizes.get(&*file.sha256) == Some(&file.bytes));
            known.extend(here.map(|file| (file.content(), file.sha256)));
        };
        for name in self.names().await? {
            add(self.manifest(Some(&name)).await?.1);
        }
        match self.storage.read("unfinished.json").await {
            // What cannot be used is sent again.
            Ok(text) => Manifest::plan(&text).into_iter().for_each(add),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(self.error("unfinished.json", &error)),
        }
        Ok(known)
    }

    async fn check(&self, listed: &[ListedObject]) -> Result<HashMap<String, String>, CliError> {
        let mut known = HashMap::new();
        for ListedObject { name, .. } in listed {
            let (sha256, content) = self.content(name, |_| Ok(())).await?.finish();
            if sha256 == *name {
                known.insert(content, sha256);
                continue;
            }
            let (here, there) = (format!("files/{name}"), format!("damaged/{name}"));
            let _ = writeln!(io::stderr(), "{}/{here} is damaged: its SHA-256 is {sha256}. It is now {there}.", self.shown());
            self.storage.rename(&here, &there).await.map_err(|error| self.error(&here, &error))?;
        }
        Ok(known)
    }

    /// Reads a content, gives it to `take` in pieces, and returns its hashes.
    pub async fn content(&self, sha256: &str, mut take: impl FnMut(&[u8]) -> Result<(), CliError>) -> Result<Hashes, CliError> {
        let name = format!("files/{sha256}");
        let failed = |error: Error| self.error(&name, &error);
        let (mut pieces, mut hashes) = (self.storage.get(&name).await.map_err(failed)?, Hashes::new());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(failed)?;
            hashes.update(&piece);
            take(&piece)?;
        }
        Ok(hashes)
    }

    /// Makes the error of a content that is not what the manifest says.
    pub fn content_error(&self, sha256: &str, reason: &dyn std::fmt::Display) -> CliError {
        self.error(&format!("files/{sha256}"), reason)
    }

    /// Begins a content, which the server calls by this name.
    pub fn upload(&self, content: &str) -> ObjectUpload<'_> {
        self.storage.upload(&format!("files/{content}"))
    }

    /// Completes a content.
    pub async fn finish_upload(&self, upload: ObjectUpload<'_>, sha256: &str) -> Result<(), CliError> {
        upload.finish(&format!("files/{sha256}")).await.map_err(|error| self.content_error(sha256, &error))
    }

    /// Notes a backup that has begun, and what of it has arrived.
    pub async fn note(&self, manifest: &Manifest) -> Result<(), CliError> {
        let text = serde_json::to_string(manifest).expect("a manifest is plain data");
        self.storage.put("unfinished.json", text).await.map_err(|error| self.error("unfinished.json", &error))
    }

    /// Writes a manifest, and notes that the backup has ended. Returns its name.
    pub async fn finish(&self, manifest: &Manifest) -> Result<String, CliError> {
        let name = manifest.name();
        let file = format!("backups/{name}.json");
        self.storage.put(&file, manifest.text()).await.map_err(|error| self.error(&file, &error))?;
        self.delete("unfinished.json").await?;
        Ok(name)
    }

    async fn delete(&self, name: &str) -> Result<(), CliError> {
        self.storage.delete(name).await.map_err(|error| self.error(name, &error))
    }

    async fn list(&self, below: &str) -> Result<Vec<ListedObject>, CliError> {
        self.storage.list(below).await.map_err(|error| self.error(below, &error))
    }

    /// The names of the complete backups, oldest first.
    pub async fn names(&self) -> Result<Vec<String>, CliError> {
        let listed = self.list("backups").await?;
        let mut names: Vec<_> = listed.iter().filter_map(|file| file.name.strip_suffix(".json").map(str::to_owned)).collect();
        names.sort_by(|one, other| age(one).cmp(&age(other)));
        Ok(names)
    }

    /// Reads a manifest: the one with this name, or the newest.
    pub async fn manifest(&self, wanted: Option<&str>) -> Result<(String, Manifest), CliError> {
        let mut names = self.names().await?;
        let here = Path::new(self.shown());
        let name = match wanted {
            Some(name) if !names.iter().any(|known| known == name) => {
                return Err(file_error(here, &format!("it has no backup {name}; it has {}", names.join(", "))));
            }
            Some(name) => name.to_owned(),
            None => match names.pop() {
                Some(newest) => newest,
                None => {
                    let reason = match self.storage.read("unfinished.json").await {
                        Ok(_) => "its only backup is unfinished; run `proscenium backup` again, which goes on with it",
                        Err(_) => "it has no backup",
                    };
                    return Err(file_error(here, &reason));
                }
            },
        };
        let file = format!("backups/{name}.json");
        let text = self.storage.read(&file).await.map_err(|error| self.error(&file, &error))?;
        let manifest = Manifest::read(&String::from_utf8_lossy(&text)).map_err(|reason| self.error(&file, &reason))?;
        Ok((name, manifest))
    }

    /// Removes all complete backups but the newest, and the content that no backup has. Returns the removed names.
    pub async fn keep_newest(&self, count: usize) -> Result<Vec<String>, CliError> {
        let mut removed = self.names().await?;
        removed.truncate(removed.len().saturating_sub(count));
        for name in &removed {
            self.delete(&format!("backups/{name}.json")).await?;
        }
        let mut used = HashSet::new();
        for name in self.names().await? {
            match self.manifest(Some(&name)).await {
                Ok((_, manifest)) => used.extend(manifest.files.into_iter().map(|file| file.sha256)),
                // What it has is unknown, so everything stays.
                Err(error) => {
                    let _ = writeln!(io::stderr(), "{error}. No file was removed.");
                    return Ok(removed);
                }
            }
        }
        for ListedObject { name, .. } in self.list("files").await? {
            if !used.contains(&name) {
                self.delete(&format!("files/{name}")).await?;
            }
        }
        Ok(removed)
    }
}
