//! The journal on this machine's disk: segments of a fixed size, written once and recycled.
//!
//! ```text
//! file    := NNN.seg, named by the position of its first record, in twenty digits
//! segment := header  record…  (zeros, or what an older segment left)
//! header  := "PSJ1"  1:u32  segment_bytes:u64  first:u64  salt:u64  xxh3(the 32 bytes before):u64  zeros to 64
//! ```
//!
//! A segment has its size before its first record, and every block of it was written before: `fdatasync` then writes no
//! metadata, which takes 0.6 of the processor time of a file that grows. Segments are small at first, so that an empty
//! store is small.
//!
//! A record that is not whole ends the journal if nothing that was acknowledged lies behind it: a write that did not
//! finish. If records were not synced one by one, whole ones may lie behind it; the journal then goes on in a new segment,
//! so that they never follow another record. In every other case a record that is not whole is damage, named with its
//! file and offset. The mark beside the segments says what was acknowledged.

use super::record::{self, BODY_BYTES_MAX, HEADER_BYTES, stored_bytes};
use super::tail::{self, DurableMark, TailFile};
use super::{Appended, Journal, JournalState, Record, Sync, forgotten};
use crate::log::{StoreError, panic_message};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 4] = b"PSJ1";
const VERSION: u32 = 1;
pub(super) const SEGMENT_HEADER_BYTES: u64 = 64;
/// The size of the first segment. Each further one is four times as large, up to the maximum.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// A segment that is being made. Its name does not end in `.seg`, so that no start takes it for one.
const NEXT: &str = "next";
/// The beginning of the names of segments whose records were forgotten, to be written over.
const SPARE: &str = "spare";
/// The most segments to write over while the journal is open, and in a closed one.
///
/// The store lets the journal forget about five segments at once. A new segment costs its size in zeros.
const SPARES_MAX: usize = 8;
const SPARES_CLOSED_MAX: usize = 1;

/// A journal in a directory of its own. One process at a time can open it. Dropping it syncs it.
pub struct LocalJournal {
    files: Arc<Files>,
    /// The thread that syncs at the interval, and the end of its work.
    keeper: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    /// Why that thread ended before the journal was dropped.
    failed: watch::Sender<Option<StoreError>>,
}

/// The files of a journal, which stay locked while this value lives.
struct Files {
    dir: PathBuf,
    mode: Sync,
    segments: RwLock<VecDeque<Arc<Segment>>>,
    /// Segments to write over, all of the largest size.
    spares: Mutex<Vec<PathBuf>>,
    /// The position of the last record that readers may see.
    last: AtomicU64,
    writer: Mutex<Writer>,
    /// Where the record after this position begins, for the reader that goes on.
    next_read: Mutex<Option<(u64, SegmentPlace)>>,
}

struct Writer {
    /// Where the next record begins in the last segment.
    end: u64,
    /// Makes the salts of segments.
    random: Box<dyn FnMut() -> u64 + Send>,
    mark: TailFile,
    /// The position of the last record that is synced.
    synced: u64,
    /// Why the journal accepts no more writes, once a write has failed.
    failed: Option<StoreError>,
}

struct Segment {
    path: PathBuf,
    file: File,
    first: u64,
    salt: u64,
    bytes: u64,
}

/// A place in a segment.
#[derive(Clone)]
struct SegmentPlace {
    segment: Arc<Segment>,
    offset: u64,
}

impl LocalJournal {
    /// Opens the journal in `dir`, or creates it. `random` makes the salts of segments.
    ///
    /// # Errors
    /// `Locked` when another process has it open, `Corrupt` with file and offset when a record that was acknowledged is
    /// damaged or missing, `Failed` when the disk fails.
    pub fn open(dir: &Path, sync: Sync, random: impl FnMut() -> u64 + Send + 'static) -> Result<Self, StoreError> {
        Self::start(Files::open(dir, sync, 0, random)?, sync)
    }

    /// Makes an empty journal in `dir`, whose first record has the position after `position`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn begin_after(dir: &Path, position: u64, random: impl FnMut() -> u64 + Send + 'static) -> Result<Self, StoreError> {
        Self::start(Files::open(dir, Sync::Always, position, random)?, Sync::Always)
    }

    fn start(files: Files, sync: Sync) -> Result<Self, StoreError> {
        let files = Arc::new(files);
        let failed = watch::Sender::new(None);
        let keeper = match sync {
            Sync::Interval(interval) => Some(spawn_keeper(files.clone(), interval, failed.clone())?),
            Sync::Always | Sync::Never => None,
        };
        Ok(Self { files, keeper, failed })
    }

    /// Makes every record durable, for a thread that knows only the store that follows the journal.
    ///
    /// The journal stays locked while the function lives.
    pub fn syncer(&self) -> impl Fn() -> Result<(), StoreError> + Send + std::marker::Sync + use<> {
        let files = self.files.clone();
        move || files.sync()
    }

    /// The file that the process locks that has the journal in `dir` open.
    #[must_use]
    pub fn lock_file(dir: &Path) -> PathBuf {
        dir.join(tail::FILE)
    }

    /// Makes every later write of the mark fail, or succeed again.
    #[cfg(test)]
    pub fn break_for_tests(&self, is_broken: bool) {
        self.files.writer.lock().mark.break_for_tests(is_broken);
    }
}

impl Drop for LocalJournal {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.keeper.take() {
            drop(stop);
            // The thread catches its own panics.
            let _ = thread.join();
        }
        // After a failure every caller has the error already.
        let is_usable = self.files.writer.lock().failed.is_none();
        if let Some(Err(error)) = is_usable.then(|| self.files.sync()) {
            tracing::error!(%error, "the journal could not be closed cleanly");
        }
        for path in self.files.spares.lock().iter().skip(SPARES_CLOSED_MAX) {
            // The next start finds one that stays.
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts the thread that syncs the journal at the interval. An error or a panic of it fails the journal.
fn spawn_keeper(
    files: Arc<Files>,
    interval: Duration,
    failed: watch::Sender<Option<StoreError>>,
) -> Result<(mpsc::Sender<()>, JoinHandle<()>), StoreError> {
    let (stop, stopped) = mpsc::channel::<()>();
    let run = move || {
        let work = || -> Result<(), StoreError> {
            while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                files.sync()?;
            }
            Ok(())
        };
        let ended = std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            Err(StoreError::failed("syncing the journal", &format_args!("it panicked: {}", panic_message(&*panic))))
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the thread that syncs the journal ended; the journal accepts no more writes");
            files.writer.lock().failed.get_or_insert_with(|| error.clone());
            failed.send_replace(Some(error));
        }
    };
    let thread = std::thread::Builder::new().name("journal-keeper".into()).spawn(run);
    thread.map(|thread| (stop, thread)).map_err(|e| StoreError::failed("starting a thread of the journal", &e))
}

impl Files {
    /// `begin`: the position before the first record of a journal that is made.
    fn open(dir: &Path, sync: Sync, begin: u64, random: impl FnMut() -> u64 + Send + 'static) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(|e| failed("creating the journal", dir, &e))?;
        let (mark, acknowledged) = TailFile::open(dir)?;
        let (is_marked, acknowledged) = (acknowledged.is_some(), acknowledged.unwrap_or_default());
        let mut segments = VecDeque::new();
        let mut scanned = Scanned { last: begin, end: SEGMENT_HEADER_BYTES, is_torn: false };
        for path in segment_files(dir)? {
            let segment = Segment::open(path)?;
            if let Some(previous) = segments.back() {
                let previous: &Arc<Segment> = previous;
                if scanned.last + 1 != segment.first {
                    return Err(corrupt(&previous.path, scanned.end, "the record is damaged, and a later segment follows"));
                }
            } else {
                scanned.last = segment.first - 1;
            }
            scanned = segment.scan(scanned.last)?;
            segments.push_back(Arc::new(segment));
        }
        if !is_marked && scanned.last > begin {
            let what = "it is missing or empty, but a journal lies beside it".into();
            return Err(StoreError::Corrupt { path: mark.path().to_owned(), what });
        }
        if scanned.last < acknowledged.batch {
            let (path, end) = segments.back().map_or((dir, 0), |segment| (segment.path.as_path(), scanned.end));
            let what = format!(
                "the records {} to {} were acknowledged, and are damaged or missing",
                scanned.last + 1,
                acknowledged.batch
            );
            return Err(corrupt(path, end, &what));
        }
        if let Some(segment) = segments.back().filter(|_| scanned.is_torn && acknowledged.ordered) {
            let rest = segment.read(scanned.end, segment.bytes - scanned.end)?;
            if record::has_record_after(&rest, scanned.last, segment.salt) {
                return Err(corrupt(&segment.path, scanned.end, "the record is damaged, and a whole record follows"));
            }
        }
        let writer = Writer { end: scanned.end, random: Box::new(random), mark, synced: 0, failed: None };
        let journal = Self {
            dir: dir.to_owned(),
            mode: sync,
            segments: RwLock::new(segments),
            spares: Mutex::new(spares(dir)?),
            last: AtomicU64::new(scanned.last),
            writer: Mutex::new(writer),
            next_read: Mutex::new(None),
        };
        let mut writer = journal.writer.lock();
        if journal.segments.read().is_empty() || scanned.is_torn && !acknowledged.ordered {
            journal.begin_segment(&mut writer, 0)?;
        }
        journal.sync_active(&mut writer, scanned.last)?;
        let mark = journal.durable_mark(scanned.last);
        writer.mark.record_synced(mark)?;
        drop(writer);
        Ok(journal)
    }

    fn durable_mark(&self, last: u64) -> DurableMark {
        DurableMark { batch: last, made: true, ordered: self.mode == Sync::Always }
    }

    /// Starts a segment with room for a record of `needed` bytes after the last record.
    fn begin_segment(&self, writer: &mut Writer, needed: u64) -> Result<(), StoreError> {
        let next = self.dir.join(NEXT);
        let mut segments = self.segments.write();
        let previous = segments.back();
        if let Some(previous) = previous {
            // A later segment proves to the next start that this one is whole.
            previous.file.sync_data().map_err(|e| failed("syncing the journal", &previous.path, &e))?;
        }
        let usual = previous.map_or(SEGMENT_BYTES_MIN, |previous| (4 * previous.bytes).min(SEGMENT_BYTES_MAX));
        let bytes = usual.max(SEGMENT_HEADER_BYTES + needed).next_multiple_of(4096);
        let first = self.last.load(Ordering::Acquire) + 1;
        let (salt, path) = ((writer.random)(), self.dir.join(format!("{first:020}.seg")));
        let make = || -> io::Result<File> {
            match self.spares.lock().pop_if(|_| bytes == SEGMENT_BYTES_MAX) {
                Some(spare) => fs::rename(spare, &next)?,
                None => fill_with_zeros(&next, bytes)?,
            }
            let file = OpenOptions::new().read(true).write(true).open(&next)?;
            file.write_all_at(&encode_header(bytes, first, salt), 0)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(&self.dir)?.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|e| failed("making a segment of the journal", &next, &e))?;
        // A segment without a record had the same name: the new one has replaced its file.
        segments.pop_back_if(|previous| previous.first == first);
        segments.push_back(Arc::new(Segment { path, file, first, salt, bytes }));
        writer.end = SEGMENT_HEADER_BYTES;
        Ok(())
    }

    fn append_now(&self, writer: &mut Writer, parts: &[Bytes]) -> Result<u64, StoreError> {
        let body_bytes: usize = parts.iter().map(Bytes::len).sum();
        assert!(body_bytes <= BODY_BYTES_MAX, "the committer bounds its groups");
        let needed = stored_bytes(body_bytes) as u64;
        if writer.end + needed > self.active().bytes {
            self.begin_segment(writer, needed)?;
        }
        let (segment, position) = (self.active(), self.last.load(Ordering::Acquire) + 1);
        record::write(&segment.file, writer.end, position, parts, segment.salt)
            .map_err(|e| failed("writing the journal", &segment.path, &e))?;
        if self.mode == Sync::Always {
            self.sync_active(writer, position)?;
        }
        writer.end += needed;
        self.last.store(position, Ordering::Release);
        Ok(position)
    }

    /// Syncs the last segment, and records that the journal is durable up to `position`.
    fn sync_active(&self, writer: &mut Writer, position: u64) -> Result<(), StoreError> {
        let segment = self.active();
        segment.file.sync_data().map_err(|e| failed("syncing the journal", &segment.path, &e))?;
        writer.synced = position;
        writer.mark.record(self.durable_mark(position))
    }

    fn active(&self) -> Arc<Segment> {
        self.segments.read().back().expect("a journal has a segment").clone()
    }

    /// Finds where the record `position` begins, which the journal has.
    fn find(&self, position: u64) -> Result<SegmentPlace, StoreError> {
        if let Some((known, place)) = &*self.next_read.lock()
            && *known == position
        {
            return Ok(place.clone());
        }
        let segment = {
            let segments = self.segments.read();
            let after = segments.partition_point(|segment| segment.first <= position);
            let found = after.checked_sub(1).map(|at| segments[at].clone());
            found.ok_or_else(|| forgotten(position - 1, segments[0].first))?
        };
        let mut place = SegmentPlace { offset: SEGMENT_HEADER_BYTES, segment };
        for skipped in place.segment.first..position {
            place.offset += place.segment.record(place.offset, skipped)?.1;
        }
        Ok(place)
    }

    fn records(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let last = self.last.load(Ordering::Acquire);
        let (mut read, mut bytes) = (Vec::new(), 0);
        let mut place = None;
        for position in after + 1..=last {
            let mut at = match place.take() {
                Some(at) => at,
                None => self.find(position)?,
            };
            if let Some(next) = self.next_segment(&at.segment).filter(|next| next.first == position) {
                at = SegmentPlace { segment: next, offset: SEGMENT_HEADER_BYTES };
            }
            let (body, stored) = match at.segment.record(at.offset, position) {
                Ok(found) => found,
                // The next read meets the damage first.
                Err(_) if !read.is_empty() => break,
                Err(error) => return Err(error),
            };
            bytes += body.len();
            if bytes > bytes_max && !read.is_empty() {
                place = Some(at);
                break;
            }
            read.push(Record { position, body });
            place = Some(SegmentPlace { offset: at.offset + stored, ..at });
        }
        if let (Some(place), Some(record)) = (place, read.last()) {
            *self.next_read.lock() = Some((record.position + 1, place));
        }
        Ok(read)
    }

    fn next_segment(&self, segment: &Segment) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        segments.get(segments.partition_point(|other| other.first <= segment.first)).cloned()
    }

    fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        let mut writer = self.writer.lock();
        if let Some(error) = &writer.failed {
            return Err(error.clone());
        }
        let last = self.last.load(Ordering::Acquire);
        if last != expected {
            return Ok(Appended::Moved { last });
        }
        let appended = self.append_now(&mut writer, parts);
        appended.map(Appended::At).inspect_err(|e| writer.failed = Some(e.clone()))
    }

    fn truncate_before(&self, position: u64) -> Result<(), StoreError> {
        let mut segments = self.segments.write();
        while segments.get(1).is_some_and(|next| next.first <= position) {
            let forgotten = segments.pop_front().expect("it has two");
            let mut spares = self.spares.lock();
            let removed = match forgotten.bytes == SEGMENT_BYTES_MAX && spares.len() < SPARES_MAX {
                // The blocks of the file were written before, which a new file's were not.
                true => {
                    let spare = self.dir.join(format!("{SPARE}-{:020}", forgotten.first));
                    fs::rename(&forgotten.path, &spare).map(|()| spares.push(spare))
                }
                false => fs::remove_file(&forgotten.path),
            };
            removed.map_err(|e| failed("removing a segment of the journal", &forgotten.path, &e))?;
        }
        Ok(())
    }

    /// Begins a segment that was not written before, after the last record.
    fn rotate(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if let Some(error) = &writer.failed {
            return Err(error.clone());
        }
        self.remove_spares()?;
        let last = self.last.load(Ordering::Acquire);
        // Also in place of one without a record, which may be written over an older one.
        let begun = self.sync_active(&mut writer, last).and_then(|()| self.begin_segment(&mut writer, 0));
        begun.inspect_err(|e| writer.failed = Some(e.clone()))
    }

    /// Removes the segments with records before `position` only, and those to write over, which have such records, too.
    fn retire(&self, position: u64) -> Result<(), StoreError> {
        self.truncate_before(position)?;
        self.remove_spares()?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(|e| failed("syncing the journal", &self.dir, &e))
    }

    fn remove_spares(&self) -> Result<(), StoreError> {
        let mut spares = self.spares.lock();
        while let Some(spare) = spares.last() {
            fs::remove_file(spare).map_err(|e| failed("removing a segment of the journal", spare, &e))?;
            spares.pop();
        }
        Ok(())
    }

    /// Syncs what is not synced yet.
    fn sync(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if let Some(error) = &writer.failed {
            return Err(error.clone());
        }
        let last = self.last.load(Ordering::Acquire);
        if writer.synced == last {
            return Ok(());
        }
        self.sync_active(&mut writer, last).inspect_err(|e| writer.failed = Some(e.clone()))
    }
}

impl JournalState for LocalJournal {
    fn path(&self) -> PathBuf {
        self.files.dir.clone()
    }

    fn bytes(&self) -> u64 {
        let spares = self.files.spares.lock().len() as u64 * SEGMENT_BYTES_MAX;
        spares + self.files.segments.read().iter().map(|segment| segment.bytes).sum::<u64>()
    }

    fn rotate(&self) -> Result<(), StoreError> {
        self.files.rotate()
    }

    fn retire(&self, position: u64) -> Result<(), StoreError> {
        self.files.retire(position)
    }

    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        Some(self.failed.subscribe())
    }
}

impl Journal for LocalJournal {
    fn bounds(&self) -> (u64, u64) {
        (self.files.segments.read()[0].first, self.files.last.load(Ordering::Acquire))
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        self.files.append(expected, parts)
    }

    async fn read(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        self.files.records(after, bytes_max)
    }

    async fn truncate_before(&self, position: u64) -> Result<(), StoreError> {
        self.files.truncate_before(position)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.files.sync()
    }
}

/// What a scan of a segment found.
struct Scanned {
    /// The position of the last whole record.
    last: u64,
    /// Where the record after it would begin.
    end: u64,
    /// Whether something else than zeros lies there.
    is_torn: bool,
}

impl Segment {
    fn open(path: PathBuf) -> Result<Self, StoreError> {
        let read = || -> io::Result<(File, u64, [u8; SEGMENT_HEADER_BYTES as usize])> {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let (len, mut header) = (file.metadata()?.len(), [0; SEGMENT_HEADER_BYTES as usize]);
            file.read_exact_at(&mut header[..usize::try_from(len.min(SEGMENT_HEADER_BYTES)).unwrap_or(0)], 0)?;
            Ok((file, len, header))
        };
        let (file, len, header) = read().map_err(|e| failed("opening the journal", &path, &e))?;
        let named = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
        let (bytes, first, salt) =
            decode_header(&header).ok_or_else(|| corrupt(&path, 0, "the header of the segment is damaged"))?;
        if named != Some(first) {
            return Err(corrupt(&path, 0, &format!("the segment begins with record {first}, which its name does not say")));
        }
        if len < bytes {
            return Err(corrupt(&path, len, &format!("the segment has {len} of its {bytes} bytes")));
        }
        Ok(Self { path, file, first, salt, bytes })
    }

    fn scan(&self, before: u64) -> Result<Scanned, StoreError> {
        let data = self.read(0, self.bytes)?;
        let (mut last, mut end) = (before, SEGMENT_HEADER_BYTES as usize);
        while let Some((position, body)) = data.get(end..).and_then(|rest| record::decode(rest, self.salt)) {
            if position != last + 1 {
                return Err(corrupt(&self.path, end as u64, &format!("record {position} follows record {last}")));
            }
            last = position;
            end += stored_bytes(body.len());
        }
        let is_torn = data.get(end..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0));
        Ok(Scanned { last, end: end as u64, is_torn })
    }

    /// Reads the record `position` at `offset`: its body, and the bytes that it takes.
    fn record(&self, offset: u64, position: u64) -> Result<(Bytes, u64), StoreError> {
        let damaged = || corrupt(&self.path, offset, &format!("record {position} is damaged"));
        if offset + HEADER_BYTES as u64 > self.bytes {
            return Err(damaged());
        }
        let header = self.read(offset, HEADER_BYTES as u64)?;
        let body_bytes = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
        let stored = stored_bytes(body_bytes) as u64;
        if offset + stored > self.bytes {
            return Err(damaged());
        }
        let bytes = self.read(offset, stored)?;
        match record::decode(&bytes, self.salt) {
            Some((found, body)) if found == position => Ok((bytes.slice_ref(body), stored)),
            _ => Err(damaged()),
        }
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let mut read = vec![0; usize::try_from(bytes).expect("a segment fits into memory")];
        self.file.read_exact_at(&mut read, offset).map_err(|e| failed("reading the journal", &self.path, &e))?;
        Ok(read.into())
    }
}

fn encode_header(bytes: u64, first: u64, salt: u64) -> [u8; SEGMENT_HEADER_BYTES as usize] {
    let mut header = [0; SEGMENT_HEADER_BYTES as usize];
    header[..4].copy_from_slice(MAGIC);
    header[4..8].copy_from_slice(&VERSION.to_le_bytes());
    for (i, word) in [bytes, first, salt].into_iter().enumerate() {
        header[8 + i * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    let checksum = xxh3_64(&header[..32]);
    header[32..40].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Decodes a header: the size of the segment, its first position, its salt. `None` if it is damaged.
pub(super) fn decode_header(header: &[u8; SEGMENT_HEADER_BYTES as usize]) -> Option<(u64, u64, u64)> {
    let word = |i: usize| u64::from_le_bytes(header[8 + i * 8..][..8].try_into().expect("eight bytes"));
    let (bytes, first, salt) = (word(0), word(1), word(2));
    (encode_header(bytes, first, salt) == *header && first > 0 && bytes > SEGMENT_HEADER_BYTES).then_some((bytes, first, salt))
}

/// The segments in the order of their records.
pub(super) fn segment_files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = dir.read_dir()?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "seg"));
        paths.sort();
        Ok(paths)
    };
    list().map_err(|e| failed("listing the journal", dir, &e))
}

/// The segments to write over. An unfinished one that a crash left is no spare.
fn spares(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut spares = Vec::new();
        for entry in dir.read_dir()? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(SPARE) && entry.metadata()?.len() == SEGMENT_BYTES_MAX {
                spares.push(entry.path());
            }
        }
        Ok(spares)
    };
    list().map_err(|e| failed("listing the journal", dir, &e))
}

/// Writes a file of zeros.
///
/// Blocks that were never written would cost metadata with the first sync after each.
fn fill_with_zeros(path: &Path, bytes: u64) -> io::Result<()> {
    let (mut file, zeros) = (File::create(path)?, vec![0; 1 << 18]);
    let mut left = bytes;
    while left > 0 {
        let part = left.min(zeros.len() as u64);
        file.write_all(&zeros[..usize::try_from(part).expect("it is at most 256 KiB")])?;
        left -= part;
    }
    Ok(())
}

fn failed(doing: &'static str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::failed(doing, &format_args!("{}: {error}", path.display()))
}

fn corrupt(path: &Path, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), what: format!("byte {offset}: {what}") }
}
