//! Checks the engine's table files before the engine opens them.
//!
//! fjall checks each block as it is read, but takes a keyspace's manifest on trust, deletes every table that the manifest
//! does not list, and reserves memory by lengths that nothing covers. So manifests and directories are always checked first,
//! and whole files up to a bound; beyond it a damaged block is found when it is read, and [`blame`] finds its file.
//!
//! The formats are lsm-tree 3's (`src/version/{mod,persist,recovery}.rs`) and sfa 1's (`src/{toc,trailer}/`), all numbers
//! little-endian, all checksums xxh3 of 128 bits:
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
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const TRAILER_BYTES: usize = 4 + 1 + 1 + 16 + 8 + 8;

/// Checks all keyspaces in `dir`: manifests and directories of all files always, whole files when all together have at most
/// `whole_bytes_max` bytes.
///
/// # Errors
/// `Rot` with the path of the damaged file; `Failed` when one cannot be read.
pub fn check(dir: &Path, whole_bytes_max: u64) -> Result<(), StoreError> {
    let mut listed = Vec::new();
    for keyspace in entries(dir).map_err(|e| StoreError::failed("listing the keyspaces", &e))? {
        listed.extend(manifest(&keyspace)?);
    }
    let mut total = 0;
    for file in &listed {
        total += file.bytes()?;
        archive(&file.path)?;
    }
    if total <= whole_bytes_max {
        listed.iter().try_for_each(Listed::check)?;
    }
    Ok(())
}

/// All files that the keyspaces in `dir` list, and those that are damaged; each is read as a whole.
///
/// # Errors
/// `Failed` when one cannot be read.
pub fn examine(dir: &Path) -> Result<(Vec<PathBuf>, Vec<StoreError>), StoreError> {
    let (mut files, mut damaged) = (Vec::new(), Vec::new());
    let mut note = |checked: Result<(), StoreError>| match checked {
        Err(error @ StoreError::Rot { .. }) => {
            damaged.push(error);
            Ok(())
        }
        checked => checked,
    };
    for keyspace in entries(dir).map_err(|e| StoreError::failed("listing the keyspaces", &e))? {
        match manifest(&keyspace) {
            Err(error) => note(Err(error))?,
            Ok(listed) => {
                for file in listed {
                    note(file.check())?;
                    files.push(file.path);
                }
            }
        }
    }
    Ok((files, damaged))
}

/// The damaged file of one keyspace, looked for after a read has failed; `None` when all are whole, or are being replaced.
pub fn blame(keyspace: &Path) -> Option<StoreError> {
    let damage =
        |found: Result<(), StoreError>| found.err().filter(|e| matches!(e, StoreError::Rot { path, .. } if path.exists()));
    match manifest(keyspace) {
        Ok(listed) => listed.iter().find_map(|file| damage(file.check())),
        Err(e) => damage(Err(e)),
    }
}

fn rot(path: &Path, what: &str) -> StoreError {
    StoreError::Rot { path: path.to_owned(), what: what.to_owned() }
}

/// A file that cannot be opened is missing, or the disk fails.
fn unreadable(path: &Path, e: &io::Error) -> StoreError {
    match e.kind() {
        io::ErrorKind::NotFound => rot(path, "it is missing"),
        io::ErrorKind::UnexpectedEof => rot(path, "it is too short"),
        _ => StoreError::failed("reading a table file", e),
    }
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = dir.read_dir()?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}

/// A file that a manifest lists.
struct Listed {
    path: PathBuf,
    checksum: u128,
}

impl Listed {
    fn bytes(&self) -> Result<u64, StoreError> {
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
        if sum == self.checksum { Ok(()) } else { Err(rot(&self.path, "its checksum is not the one in the manifest")) }
    }
}

/// The files that the current manifest of a keyspace lists.
fn manifest(keyspace: &Path) -> Result<Vec<Listed>, StoreError> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| unreadable(path, &e));
    let current = keyspace.join("current");
    let pointer = read(&current)?;
    let damaged = || rot(&current, "it does not point to a manifest");
    let (version, checksum) = match Input(&pointer) {
        mut input if pointer.len() == 25 => (input.u64(), input.u128()),
        _ => return Err(damaged()),
    };
    let (Some(version), Some(checksum), Some(0)) = (version, checksum, pointer.last()) else { return Err(damaged()) };
    let path = keyspace.join(format!("v{version}"));
    if !path.exists() {
        return Err(rot(&current, &format!("it points to the manifest v{version}, which is not there")));
    }
    let bytes = read(&path)?;
    if xxh3_128(&bytes) != checksum {
        return Err(rot(&path, "its checksum is not the one in the file `current` beside it"));
    }
    let sections = archive(&path)?;
    let section = |name: &[u8]| {
        let (_, at, len) = sections.iter().find(|(found, _, _)| found == name)?;
        bytes.get(usize::try_from(*at).ok()?..)?.get(..usize::try_from(*len).ok()?)
    };
    let listed = || {
        let mut files = tables(&mut Input(section(b"tables")?), &keyspace.join("tables"))?;
        files.extend(blob_files(&mut Input(section(b"blob_files")?), &keyspace.join("blobs"))?);
        Some(files)
    };
    listed().ok_or_else(|| rot(&path, "it is no manifest that we know"))
}

fn tables(input: &mut Input<'_>, dir: &Path) -> Option<Vec<Listed>> {
    let mut files = Vec::new();
    for _ in 0..input.u8()? {
        for _ in 0..input.u8()? {
            for _ in 0..input.u32()? {
                files.push(listed(input, dir)?);
                input.u64()?;
            }
        }
    }
    Some(files)
}

fn blob_files(input: &mut Input<'_>, dir: &Path) -> Option<Vec<Listed>> {
    (0..input.u32()?).map(|_| listed(input, dir)).collect()
}

fn listed(input: &mut Input<'_>, dir: &Path) -> Option<Listed> {
    let id = input.u64()?;
    let is_xxh3 = input.u8()? == 0;
    let checksum = input.u128()?;
    is_xxh3.then(|| Listed { path: dir.join(id.to_string()), checksum })
}

/// Checks an archive's table of contents and gives it: name, place and length of each section.
fn archive(path: &Path) -> Result<Vec<(Vec<u8>, u64, u64)>, StoreError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let Some(toc_end) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, toc_end)?;
        let Some(rest) = trailer.strip_prefix(b"SFA!\x01\x00") else { return Ok(None) };
        let mut input = Input(rest);
        let (checksum, at, bytes) = (input.u128(), input.u64(), input.u64());
        let (Some(checksum), Some(at), Some(bytes)) = (checksum, at, bytes) else { return Ok(None) };
        if at.checked_add(bytes) != Some(toc_end) {
            return Ok(None);
        }
        let mut toc = vec![0; usize::try_from(bytes).expect("shorter than the file, which fits into memory")];
        file.read_exact_at(&mut toc, at)?;
        Ok((xxh3_128(&toc) == checksum).then_some(toc))
    };
    let toc = read().map_err(|e| unreadable(path, &e))?;
    let sections = toc.and_then(|toc| {
        let mut input = Input(toc.strip_prefix(b"TOC!")?);
        (0..input.u32()?).map(|_| input.section()).collect::<Option<Vec<_>>>()
    });
    sections.ok_or_else(|| rot(path, "its table of contents is damaged"))
}

/// Bytes to read from the front.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
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
