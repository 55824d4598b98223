//! Checks the engine's table files before the engine opens them.
//!
//! The engine checks each block when it reads the block. But it trusts a tree's manifest, deletes every table that the
//! manifest does not list, and allocates memory by lengths that no checksum covers. So this module always checks
//! manifests and tables of contents first, and whole files up to a bound. Beyond the bound, a read discovers a damaged
//! block, and [`find_corrupt_file`] finds its file.
//!
//! The formats are those of lsm-tree 3 (`src/version/{mod,persist,recovery}.rs`) and sfa 1 (`src/{toc,trailer}/`). All
//! numbers are little-endian, all checksums xxh3 with 128 bits:
//!
//! ```text
//! current := version:u64  checksum of v<version>:u128  0:u8
//! v<n>, tables/<id>, blobs/<id> are archives := section…  toc  trailer
//! toc     := "TOC!"  count:u32  (at:u64 bytes:u64 name_bytes:u16 name)…
//! trailer := "SFA!" 1:u8 0:u8  checksum of toc:u128  toc_at:u64  toc_bytes:u64
//! section "tables"     := levels:u8 (runs:u8 (count:u32 (id:u64 0:u8 checksum of the file:u128 seqno:u64)…)…)…
//! section "blob_files" := count:u32 (id:u64 0:u8 checksum of the file:u128)…
//! ```

use crate::log::StoreError;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const TRAILER_BYTES: usize = 4 + 1 + 1 + 16 + 8 + 8;

/// Checks all trees in `dir`: manifests, tables of contents, and files up to a total size.
///
/// It reads the whole files when all of them together have at most `whole_bytes_max` bytes. Returns the listed files,
/// which the engine never changes.
///
/// # Errors
/// `Corrupt` with the path of the damaged file; `Failed` when one cannot be read.
pub fn check(dir: &Path, whole_bytes_max: u64) -> Result<HashSet<PathBuf>, StoreError> {
    let mut listed = Vec::new();
    for tree in trees(dir)? {
        listed.extend(read_manifest(&tree)?);
    }
    let mut total = 0;
    for file in &listed {
        total += file.bytes()?;
        read_toc(&file.path)?;
    }
    if total <= whole_bytes_max {
        listed.iter().try_for_each(ManifestFile::check)?;
    }
    Ok(listed.into_iter().map(|file| file.path).collect())
}

/// Reads every file that the trees in `dir` list completely.
///
/// Returns all files, and the errors of the damaged ones.
///
/// # Errors
/// `Failed` when one cannot be read.
pub fn verify_all(dir: &Path) -> Result<(Vec<PathBuf>, Vec<StoreError>), StoreError> {
    let (mut files, mut damaged) = (Vec::new(), Vec::new());
    let mut collect = |checked: Result<(), StoreError>| match checked {
        Err(error @ StoreError::Corrupt { .. }) => {
            damaged.push(error);
            Ok(())
        }
        checked => checked,
    };
    for tree in trees(dir)? {
        match read_manifest(&tree) {
            Err(error) => collect(Err(error))?,
            Ok(listed) => {
                for file in listed {
                    collect(file.check())?;
                    files.push(file.path);
                }
            }
        }
    }
    Ok((files, damaged))
}

/// Finds the damaged file of one tree after a read has failed.
///
/// `None` when all files are intact, or when the engine is replacing them.
pub fn find_corrupt_file(tree: &Path) -> Option<StoreError> {
    let damage =
        |found: Result<(), StoreError>| found.err().filter(|e| matches!(e, StoreError::Corrupt { path, .. } if path.exists()));
    match read_manifest(tree) {
        Ok(listed) => listed.iter().find_map(|file| damage(file.check())),
        Err(e) => damage(Err(e)),
    }
}

fn corrupt(path: &Path, what: &str) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), what: what.to_owned() }
}

/// A file that cannot be opened is missing, or the disk fails.
fn unreadable(path: &Path, e: &io::Error) -> StoreError {
    match e.kind() {
        io::ErrorKind::NotFound => corrupt(path, "it is missing"),
        io::ErrorKind::UnexpectedEof => corrupt(path, "it is too short"),
        _ => StoreError::failed("reading a table file", e),
    }
}

/// The trees in `dir`, but for one whose creation did not finish: it has no manifest and no table.
fn trees(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let is_empty = |dir: PathBuf| dir.read_dir().is_ok_and(|mut entries| entries.next().is_none()) || !dir.exists();
    let is_made = |path: &PathBuf| path.join("current").exists() || !is_empty(path.join("tables"));
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = dir.read_dir()?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.is_dir() && is_made(path));
        paths.sort();
        Ok(paths)
    };
    match list() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|e| StoreError::failed("listing the trees", &e)),
    }
}

/// The current manifest of a tree.
pub struct Manifest {
    /// Its number.
    pub version: u64,
    /// The content of the file that points to it, and its own.
    pub pointer: Vec<u8>,
    pub bytes: Vec<u8>,
    pub files: Vec<ManifestFile>,
}

/// A file that a manifest lists.
pub struct ManifestFile {
    pub path: PathBuf,
    pub checksum: u128,
}

impl ManifestFile {
    /// Its size.
    ///
    /// # Errors
    /// `Corrupt` if it is missing, `Failed` when the disk fails.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        self.path.metadata().map(|meta| meta.len()).map_err(|e| unreadable(&self.path, &e))
    }

    fn check(&self) -> Result<(), StoreError> {
        let sum = || -> io::Result<u128> {
            let mut file = File::open(&self.path)?;
            let (mut hasher, mut chunk) = (Xxh3::new(), vec![0; 1 << 18]);
            loop {
                match file.read(&mut chunk)? {
                    0 => return Ok(hasher.digest128()),
                    n => hasher.update(&chunk[..n]),
                }
            }
        };
        let sum = sum().map_err(|e| unreadable(&self.path, &e))?;
        if sum == self.checksum { Ok(()) } else { Err(corrupt(&self.path, "its checksum differs from the one in the manifest")) }
    }
}

/// The files that the current manifest of a tree lists.
fn read_manifest(tree: &Path) -> Result<Vec<ManifestFile>, StoreError> {
    read_current(tree).map(|manifest| manifest.files)
}

/// Reads the current manifest of a tree.
///
/// # Errors
/// `Corrupt` with the path of the damaged file; `Failed` when one cannot be read.
pub fn read_current(tree: &Path) -> Result<Manifest, StoreError> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| unreadable(path, &e));
    let current = tree.join("current");
    let pointer = read(&current)?;
    let damaged = || corrupt(&current, "it points to no manifest");
    let (version, checksum) = match ByteReader(&pointer) {
        mut input if pointer.len() == 25 => (input.u64(), input.u128()),
        _ => return Err(damaged()),
    };
    let (Some(version), Some(checksum), Some(0)) = (version, checksum, pointer.last()) else { return Err(damaged()) };
    let path = tree.join(format!("v{version}"));
    if !path.exists() {
        return Err(corrupt(&current, &format!("it points to the manifest v{version}, which is missing")));
    }
    let bytes = read(&path)?;
    if xxh3_128(&bytes) != checksum {
        return Err(corrupt(&path, "its checksum differs from the one in the file `current` beside it"));
    }
    let sections = read_toc(&path)?;
    let section = |name: &[u8]| {
        let (_, at, len) = sections.iter().find(|(found, _, _)| found == name)?;
        bytes.get(usize::try_from(*at).ok()?..)?.get(..usize::try_from(*len).ok()?)
    };
    let listed = || {
        let mut files = table_files(&mut ByteReader(section(b"tables")?), &tree.join("tables"))?;
        files.extend(blob_files(&mut ByteReader(section(b"blob_files")?), &tree.join("blobs"))?);
        Some(files)
    };
    let files = listed().ok_or_else(|| corrupt(&path, "it is not a manifest of a known format"))?;
    Ok(Manifest { version, pointer, bytes, files })
}

fn table_files(input: &mut ByteReader<'_>, dir: &Path) -> Option<Vec<ManifestFile>> {
    let mut files = Vec::new();
    for _ in 0..input.u8()? {
        for _ in 0..input.u8()? {
            for _ in 0..input.u32()? {
                files.push(manifest_file(input, dir)?);
                input.u64()?;
            }
        }
    }
    Some(files)
}

fn blob_files(input: &mut ByteReader<'_>, dir: &Path) -> Option<Vec<ManifestFile>> {
    (0..input.u32()?).map(|_| manifest_file(input, dir)).collect()
}

fn manifest_file(input: &mut ByteReader<'_>, dir: &Path) -> Option<ManifestFile> {
    let id = input.u64()?;
    let is_xxh3 = input.u8()? == 0;
    let checksum = input.u128()?;
    is_xxh3.then(|| ManifestFile { path: dir.join(id.to_string()), checksum })
}

/// Where a table has its entries.
///
/// # Errors
/// `Corrupt` for a damaged table of contents; `Failed` when the file cannot be read.
pub fn entries_of(table: &Path) -> Result<Range<u64>, StoreError> {
    let sections = read_toc(table)?;
    let entries = sections.iter().find(|(name, ..)| name == b"data").map(|(_, at, bytes)| *at..at.saturating_add(*bytes));
    entries.ok_or_else(|| corrupt(table, "it names no entries"))
}

/// Checks an archive's table of contents and returns the name, offset and length of each section.
fn read_toc(path: &Path) -> Result<Vec<(Vec<u8>, u64, u64)>, StoreError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let Some(toc_end) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, toc_end)?;
        let Some(rest) = trailer.strip_prefix(b"SFA!\x01\x00") else { return Ok(None) };
        let mut input = ByteReader(rest);
        let (checksum, at, bytes) = (input.u128(), input.u64(), input.u64());
        let (Some(checksum), Some(at), Some(bytes)) = (checksum, at, bytes) else { return Ok(None) };
        if at.checked_add(bytes) != Some(toc_end) {
            return Ok(None);
        }
        let mut toc =
            vec![0; usize::try_from(bytes).expect("the table of contents is shorter than the file, which fits into memory")];
        file.read_exact_at(&mut toc, at)?;
        Ok((xxh3_128(&toc) == checksum).then_some(toc))
    };
    let toc = read().map_err(|e| unreadable(path, &e))?;
    let sections = toc.and_then(|toc| {
        let mut input = ByteReader(toc.strip_prefix(b"TOC!")?);
        (0..input.u32()?).map(|_| input.section()).collect::<Option<Vec<_>>>()
    });
    sections.ok_or_else(|| corrupt(path, "its table of contents is damaged"))
}

/// Reads bytes from the front.
struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    fn section(&mut self) -> Option<(Vec<u8>, u64, u64)> {
        let (at, bytes, name_bytes) = (self.u64()?, self.u64()?, usize::from(self.u16()?));
        let (name, rest) = self.0.split_at_checked(name_bytes)?;
        self.0 = rest;
        Some((name.to_vec(), at, bytes))
    }
}
