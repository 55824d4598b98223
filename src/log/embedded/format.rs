//! The format of a data directory: its number, and how an older format becomes the current one.
//!
//! The number lies in a file of its own, so that the store knows it before the engine writes anything, an operator can
//! read it, and every copy of the directory has it. A rename replaces the file, so it is never half-written.
//!
//! ```text
//! file := "format " number "\nversion " version of Proscenium "\nchecksum " xxh3 of both lines, in hexadecimal "\n"
//! ```
//!
//! Every later version must keep this layout, because older versions read it to refuse a newer format. A directory
//! without the file has format 1: version 0.1.0 wrote none.
//!
//! The number increases when an older version could not read what this one writes. So a migration always keeps a copy
//! of the directory, even if it rewrites nothing: without the copy, no older version could be started again.
//!
//! Formats 1 and 2 have the same files, and so have 3 and 4: this version reads every entry of 0.1.0, and saves it in the
//! new form with the next append to its log. The module `migrate` makes the current format of all of them.
//!
//! | format | since | difference |
//! | --- | --- | --- |
//! | 1 | 0.1.0 | |
//! | 2 | 0.2.0 | held text in parts, counts of unread items, calls without a start, the format file itself |
//! | 3 | after 0.2.0 | a journal of its own, and trees without one; compressed blocks; states without the names of their fields |
//! | 4 | 0.3.0 | logs whose rows lie on object storage; entries of erasures, holds and branches, which older versions pass over |

use super::{StoreError, in_path, sync_dir};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The format that this version writes.
pub const CURRENT: u32 = 4;
/// The first format with the current files.
pub const FIRST_WITH_TREES: u32 = 3;
/// The format of directories without a format file.
pub const FIRST: u32 = 1;
/// The file's name in the data directory.
pub const FILE: &str = "format";
/// The entries of a data directory of formats 1 and 2 that belong to the store.
pub const OLD_ENTRIES: [&str; 3] = [FILE, "tail", "log"];
/// The entries of a data directory that belong to the store.
pub const ENTRIES: [&str; 3] = [FILE, super::JOURNAL_DIR, super::TREES_DIR];
/// The engine's version marker, up to its number.
const ENGINE_MAGIC: &[u8] = b"FJL";
const ENGINE_VERSION: u8 = 3;
/// Room that a copy leaves free: enough to write the format file and to open the store.
const COPY_MARGIN_BYTES: u64 = 1 << 20;

/// Reads the format of the data directory `dir`; `None` without a format file.
///
/// # Errors
/// `Unsupported` for a newer format, `Corrupt` for a damaged file.
pub fn read(dir: &Path) -> Result<Option<u32>, StoreError> {
    let path = dir.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StoreError::failed("reading the store's format", &in_path(&path, &e))),
    };
    match decode(&text) {
        None => Err(StoreError::Corrupt { path, what: "it names no format, or its checksum is wrong".into() }),
        Some((number, version)) if number > CURRENT => Err(StoreError::Unsupported {
            path: dir.to_owned(),
            found: format!("store format {number}, written by Proscenium {version}"),
            known: format!("formats {FIRST} to {CURRENT}"),
            remedy: format!(
                "Start Proscenium {version} or later, or go back to a copy of an older format, which lies in the data directory \
                 as `format-N`"
            ),
        }),
        Some((number, _)) => Ok(Some(number)),
    }
}

/// Records that the data directory `dir` has the current format, durably.
///
/// # Errors
/// `Failed`.
pub fn write_current(dir: &Path) -> Result<(), StoreError> {
    let (path, part) = (dir.join(FILE), dir.join("format.part"));
    let replace = || {
        let mut file = File::create(&part)?;
        file.write_all(encode(CURRENT, env!("CARGO_PKG_VERSION")).as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    replace().map_err(|e| StoreError::failed("writing the store's format", &in_path(&path, &e)))?;
    sync_dir(dir)
}

fn encode(number: u32, version: &str) -> String {
    let lines = format!("format {number}\nversion {version}\n");
    format!("{lines}checksum {:016x}\n", xxh3_64(lines.as_bytes()))
}

/// The number and the version of Proscenium; `None` for a damaged file.
fn decode(text: &[u8]) -> Option<(u32, &str)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    let number = lines.next()?.strip_prefix("format ")?.parse().ok().filter(|number| *number >= FIRST)?;
    let version = lines.next()?.strip_prefix("version ")?;
    (encode(number, version) == text).then_some((number, version))
}

/// Checks the engine's version marker.
///
/// Without the marker, the engine would create a new store beside the old one.
pub fn check_engine(engine: &Path) -> Result<(), StoreError> {
    let path = engine.join("version");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(StoreError::Corrupt { path, what: "it is missing".into() });
        }
        Err(e) => return Err(StoreError::failed("reading the engine's version", &in_path(&path, &e))),
    };
    match bytes.strip_prefix(ENGINE_MAGIC) {
        Some([ENGINE_VERSION]) => Ok(()),
        Some([other]) => Err(StoreError::Unsupported {
            path,
            found: format!("version {other} of the storage engine"),
            known: format!("version {ENGINE_VERSION}"),
            remedy: "Start the version of Proscenium that wrote the data directory".into(),
        }),
        _ => Err(StoreError::Corrupt { path, what: "it does not name a version of the storage engine".into() }),
    }
}

/// Keeps a copy of the store in `dir`, which has format `number`, and returns its path.
///
/// It lies in the data directory, because a service may write nowhere else. Tables and bodies, which the engine never
/// changes, are hard links where the file system allows it. A rename completes the copy, and an existing one stays: it
/// is from before an interrupted migration.
///
/// # Errors
/// `Failed`, also when the disk has too little space; the store is then unchanged.
pub fn keep_copy(dir: &Path, number: u32, immutable: &HashSet<PathBuf>) -> Result<PathBuf, StoreError> {
    let (copy, part) = (dir.join(format!("format-{number}")), dir.join(format!("format-{number}.part")));
    if copy.exists() {
        return Ok(copy);
    }
    let failed = |e: io::Error| StoreError::failed("copying the store before its migration", &in_path(&part, &e));
    if part.exists() {
        fs::remove_dir_all(&part).map_err(failed)?;
    }
    let mut plan = CopyPlan { immutable, links: true, dirs: vec![PathBuf::new()], files: Vec::new() };
    for entry in if number < FIRST_WITH_TREES { OLD_ENTRIES } else { ENTRIES } {
        plan.add(dir, Path::new(entry)).map_err(failed)?;
    }
    plan.apply(dir, &part)?;
    fs::rename(&part, &copy).map_err(failed)?;
    sync_dir(dir)?;
    Ok(copy)
}

struct CopyPlan<'f> {
    /// The files that the engine never changes.
    immutable: &'f HashSet<PathBuf>,
    /// Whether the file system can link them.
    links: bool,
    /// All paths are relative to the data directory; a directory comes before its content.
    dirs: Vec<PathBuf>,
    files: Vec<(PathBuf, u64)>,
}

impl CopyPlan<'_> {
    fn add(&mut self, dir: &Path, entry: &Path) -> io::Result<()> {
        let path = dir.join(entry);
        match path.metadata() {
            Ok(found) if found.is_dir() => {
                self.dirs.push(entry.to_owned());
                for inner in path.read_dir()? {
                    self.add(dir, &entry.join(inner?.file_name()))?;
                }
                Ok(())
            }
            Ok(found) => {
                self.files.push((entry.to_owned(), found.len()));
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn is_linked(&self, dir: &Path, file: &Path) -> bool {
        self.links && self.immutable.contains(&dir.join(file))
    }

    fn apply(mut self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let failed = |e: io::Error| StoreError::failed("copying the store before its migration", &in_path(to, &e));
        for dir in &self.dirs {
            fs::create_dir(to.join(dir)).map_err(failed)?;
        }
        // One attempt shows whether the file system has links.
        if let Some((file, _)) = self.files.iter().find(|(file, _)| self.is_linked(from, file)) {
            let place = to.join(file);
            self.links = fs::hard_link(from.join(file), &place).and_then(|()| fs::remove_file(&place)).is_ok();
        }
        let needed = self.files.iter().filter(|(file, _)| !self.is_linked(from, file)).map(|(_, bytes)| bytes).sum::<u64>();
        let disk = rustix::fs::statvfs(to).map_err(|e| failed(e.into()))?;
        check_space(to, needed, disk.f_bavail.saturating_mul(disk.f_frsize))?;
        let mut progress = Progress::new(needed);
        for (file, bytes) in &self.files {
            let (original, place) = (from.join(file), to.join(file));
            let is_linked = self.is_linked(from, file);
            let copied = match is_linked {
                true => fs::hard_link(original, &place),
                false => fs::copy(original, &place).and_then(|_| File::open(&place)?.sync_all()),
            };
            copied.map_err(failed)?;
            if let Some(percent) = progress.add(if is_linked { 0 } else { *bytes }) {
                tracing::info!(percent, bytes = needed, "the store is migrated: it is copied");
            }
        }
        self.dirs.iter().rev().try_for_each(|dir| sync_dir(&to.join(dir)))
    }
}

/// How much of a copy is done. It reports each tenth once.
struct Progress {
    total: u64,
    done: u64,
    tenths: u64,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { total, done: 0, tenths: 0 }
    }

    /// Adds copied bytes. Returns the percentage when another tenth is complete.
    fn add(&mut self, bytes: u64) -> Option<u64> {
        self.done += bytes;
        let tenths = (self.done * 10).checked_div(self.total)?;
        (std::mem::replace(&mut self.tenths, tenths) < tenths).then_some(tenths * 10)
    }
}

fn check_space(to: &Path, needed: u64, free: u64) -> Result<(), StoreError> {
    let needed = needed.saturating_add(COPY_MARGIN_BYTES);
    if needed <= free {
        return Ok(());
    }
    let what = format!(
        "{} needs {needed} bytes, and the disk has {free} free. Free some space, or move the data directory to a larger disk",
        to.display()
    );
    Err(StoreError::failed("copying the store before its migration", &what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_format_and_version_and_every_changed_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        write_current(dir.path()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(CURRENT));
        let path = dir.path().join(FILE);
        let written = fs::read(&path).unwrap();
        for at in 0..written.len() {
            let mut damaged = written.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(matches!(read(dir.path()), Err(StoreError::Corrupt { .. })), "byte {at}");
        }
        fs::write(&path, encode(CURRENT + 1, "9.8.7")).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        for part in ["store format 5", "Proscenium 9.8.7", env!("CARGO_PKG_VERSION"), "formats 1 to 4", "format-N"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_copy_reports_each_tenth_once_and_nothing_when_all_files_are_links() {
        let mut progress = Progress::new(200);
        let reported: Vec<_> = [5, 15, 1, 99, 0, 80].into_iter().map(|bytes| progress.add(bytes)).collect();
        assert_eq!(reported, [None, Some(10), None, Some(60), None, Some(100)]);
        assert_eq!(Progress::new(0).add(0), None);
    }

    #[test]
    fn a_copy_without_space_names_both_amounts() {
        let error = check_space(Path::new("data/format-1.part"), 5 << 20, 3 << 20).unwrap_err().to_string();
        assert!(error.contains("format-1") && error.contains("6291456") && error.contains("3145728"), "{error}");
        check_space(Path::new("data/format-1.part"), 2 << 20, 3 << 20).unwrap();
    }
}
