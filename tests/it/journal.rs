//! The test suite of every journal, and what the local one makes of damage.

use crate::nats::Nats;
use bytes::Bytes;
use proscenium::log::StoreError;
use proscenium::log::embedded::Sync;
use proscenium::log::journal::jetstream::{JetStreamJournal, StreamConnection, StreamOptions};
use proscenium::log::journal::{Appended, Journal, JournalState, LocalJournal, MemoryJournal};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

macro_rules! suite {
    ($($test:ident)*) => {
        mod in_memory {
            $(#[test] fn $test() { super::$test(&super::MemoryJournal::default()); })*
        }
        mod on_disk {
            $(#[test] fn $test() {
                let dir = tempfile::tempdir().unwrap();
                super::$test(&super::open(dir.path(), super::Sync::Never).unwrap());
            })*
        }
        mod in_a_stream {
            $(#[test] fn $test() {
                let nats = crate::nats::Nats::start(1);
                super::$test(&super::open_stream(&nats, 1));
            })*
        }
    };
}

suite! {
    records_are_read_in_order_and_unchanged
    a_read_is_bounded_and_always_advances
    an_append_that_expects_another_position_keeps_nothing
    forgotten_records_are_an_error_and_later_ones_stay
    a_record_may_be_larger_than_a_segment
}

/// The salts of a test: each segment has another one.
fn salts() -> impl FnMut() -> u64 + Send {
    let mut salt = 0;
    move || {
        salt = u64::wrapping_add(salt, 0x9e37_79b9_7f4a_7c15);
        salt
    }
}

fn open(dir: &Path, sync: Sync) -> Result<LocalJournal, StoreError> {
    LocalJournal::open(dir, sync, salts())
}

/// Opens the stream of one server, as the process with this number.
fn open_stream(nats: &Nats, writer: u64) -> JetStreamJournal {
    let connection = StreamConnection { urls: nats.urls(), ..StreamConnection::default() };
    let options = StreamOptions { cluster: "test".into(), allows_one_replica: true, is_fenced: true, writer };
    let connected = connection.connect().unwrap();
    JetStreamJournal::open(connected, options, 0).unwrap()
}

#[test]
fn of_two_processes_on_a_stream_one_appends_and_the_other_reads_the_same() {
    let nats = Nats::start(1);
    let (first, second) = (open_stream(&nats, 1), open_stream(&nats, 2));
    let outcome = |journal: &JetStreamJournal, expected, body: &Bytes| {
        pollster::block_on(journal.append(expected, std::slice::from_ref(body)))
    };
    let mut expected = Vec::new();
    for round in 0..20_u64 {
        // Larger than a message, so that a record has several parts.
        let (mine, other) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let own = Bytes::from(vec![b'a' + round as u8; 700_000]);
        // The writer of the round before knows its own record; the other one is refused until it has read it.
        while outcome(mine, round, &own).unwrap() != Appended::At(round + 1) {}
        expected.push(own);
        // The other process does not know of the record, or does by now: either way it cannot take its place.
        assert!(matches!(outcome(other, round, &Bytes::from_static(b"lost")).unwrap(), Appended::Moved { .. }), "{round}");
    }
    for journal in [&first, &second, &open_stream(&nats, 3)] {
        while journal.bounds().1 < 20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(bodies(journal) == expected);
    }
}

#[test]
fn a_reader_is_refused_where_another_process_has_shortened_the_stream() {
    let nats = Nats::start(1);
    let writer = open_stream(&nats, 1);
    for number in 1..=10 {
        append(&writer, body(number));
    }
    let reader = open_stream(&nats, 2);
    pollster::block_on(writer.truncate_before(5)).unwrap();
    let error = pollster::block_on(reader.read(0, 1 << 20)).unwrap_err().to_string();
    assert!(error.contains('5'), "{error}");
    assert_eq!(reader.refresh_first().unwrap(), 5);
    assert_eq!(bodies(&reader), (5..=10).map(body).collect::<Vec<_>>());
}

fn append(journal: &impl Journal, body: impl Into<Bytes>) -> u64 {
    let expected = journal.bounds().1;
    match pollster::block_on(journal.append(expected, &[body.into()])).unwrap() {
        Appended::At(position) => position,
        Appended::Moved { last } => panic!("another writer moved the journal to {last}"),
    }
}

fn bodies(journal: &impl Journal) -> Vec<Bytes> {
    let (first, last) = journal.bounds();
    let (mut read, mut after) = (Vec::new(), first - 1);
    while after < last {
        for record in pollster::block_on(journal.read(after, 1 << 16)).unwrap() {
            assert_eq!(record.position, after + 1);
            after = record.position;
            read.push(record.body);
        }
    }
    read
}

/// A body that tells its number and its length.
fn body(number: u64) -> Bytes {
    let length = usize::try_from(number * 37 % 900).unwrap();
    format!("{number}:{}", "x".repeat(length)).into()
}

fn records_are_read_in_order_and_unchanged(journal: &impl Journal) {
    assert_eq!(journal.bounds(), (1, 0));
    for number in 1..=500 {
        assert_eq!(append(journal, body(number)), number);
    }
    assert_eq!(journal.bounds(), (1, 500));
    assert_eq!(bodies(journal), (1..=500).map(body).collect::<Vec<_>>());
    let parts = [Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")];
    pollster::block_on(journal.append(500, &parts)).unwrap();
    assert_eq!(pollster::block_on(journal.read(500, 0)).unwrap()[0].body, "abc");
}

fn a_read_is_bounded_and_always_advances(journal: &impl Journal) {
    for size in [10, 10, 100, 10] {
        append(journal, vec![b'x'; size]);
    }
    let read = |after, bytes_max| pollster::block_on(journal.read(after, bytes_max)).unwrap().len();
    assert_eq!([read(0, 0), read(0, 20), read(0, 25), read(2, 20), read(3, 20), read(4, 20)], [1, 2, 2, 1, 1, 0]);
    assert_eq!([read(0, 1000), read(1, 1000), read(2, 1000)], [4, 3, 2]);
}

fn an_append_that_expects_another_position_keeps_nothing(journal: &impl Journal) {
    append(journal, "first");
    for expected in [0, 2] {
        let outcome = pollster::block_on(journal.append(expected, &[Bytes::from_static(b"other")])).unwrap();
        assert_eq!(outcome, Appended::Moved { last: 1 });
    }
    assert_eq!(bodies(journal), ["first"]);
}

fn forgotten_records_are_an_error_and_later_ones_stay(journal: &impl Journal) {
    // More than one segment.
    for _ in 0..30 {
        append(journal, vec![b'x'; 100_000]);
    }
    pollster::block_on(journal.truncate_before(25)).unwrap();
    let (first, last) = journal.bounds();
    assert!((2..=25).contains(&first) && last == 30, "{first} {last}");
    assert_eq!(bodies(journal).len() as u64, last + 1 - first);
    let error = pollster::block_on(journal.read(0, 1000)).unwrap_err().to_string();
    assert!(error.contains(&format!("the first one left is {first}")), "{error}");
    assert_eq!(append(journal, "after"), 31);
}

fn a_record_may_be_larger_than_a_segment(journal: &impl Journal) {
    for size in [10, 3 << 20, 10, 80 << 20, 10] {
        append(journal, vec![b'y'; size]);
    }
    let lengths: Vec<_> = bodies(journal).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [10, 3 << 20, 10, 80 << 20, 10]);
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "seg"));
    paths.sort();
    paths
}

/// Copies a journal.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in from.read_dir().unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

/// The error of an open journal, which must name a file of it and an offset.
fn damage(dir: &Path, opened: Result<LocalJournal, StoreError>) -> String {
    match opened {
        Ok(journal) => panic!("it opens with {:?}", journal.bounds()),
        Err(StoreError::Corrupt { path, what }) => {
            assert!(path.starts_with(dir) && what.starts_with("byte "), "{} {what}", path.display());
            what
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_journal_that_is_opened_again_has_the_same_records_and_goes_on() {
    for sync in [Sync::Always, Sync::Never] {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for round in 0..4 {
            let journal = open(dir.path(), sync).unwrap();
            assert_eq!(bodies(&journal), expected, "{sync:?} {round}");
            for _ in 0..300 {
                let next = body(expected.len() as u64 * 11);
                append(&journal, next.clone());
                expected.push(next);
            }
            append(&journal, vec![b'z'; 600_000]);
            expected.push(vec![b'z'; 600_000].into());
            pollster::block_on(journal.flush()).unwrap();
        }
        assert!(segments(dir.path()).len() > 1, "the records lie in several segments");
    }
}

#[test]
fn recycled_segments_show_no_record_of_their_first_life() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Sync::Never).unwrap();
    // 12 MB a record, so that segments of 64 MiB fill and are written over.
    for number in 1..=40_u8 {
        append(&journal, vec![number; 12 << 20]);
        pollster::block_on(journal.truncate_before(u64::from(number))).unwrap();
    }
    let (first, last) = journal.bounds();
    assert!(first > 20 && last == 40, "{first} {last}");
    drop(journal);
    let journal = open(dir.path(), Sync::Never).unwrap();
    assert_eq!(journal.bounds(), (first, last));
    assert!(bodies(&journal).iter().zip(first..).all(|(body, number)| body.iter().all(|byte| u64::from(*byte) == number)));
}

#[test]
fn segments_that_are_forgotten_together_are_all_written_over_and_a_closed_journal_keeps_one() {
    let dir = tempfile::tempdir().unwrap();
    let is_spare = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("spare");
    let spares = || dir.path().read_dir().unwrap().map(Result::unwrap).filter(is_spare).count();
    let journal = open(dir.path(), Sync::Never).unwrap();
    // Each record takes a segment of its own.
    for number in 1..=12 {
        append(&journal, vec![number; 12 << 20]);
    }
    pollster::block_on(journal.truncate_before(12)).unwrap();
    assert_eq!(spares(), 8, "the first segment is smaller, and eight of the ten others stay");
    for left in [7, 6, 5] {
        append(&journal, vec![b'x'; 12 << 20]);
        assert_eq!(spares(), left);
    }
    drop(journal);
    assert_eq!(spares(), 1);
    let journal = open(dir.path(), Sync::Never).unwrap();
    append(&journal, vec![b'y'; 12 << 20]);
    assert_eq!((spares(), journal.bounds()), (0, (12, 16)));
}

#[test]
fn a_journal_that_is_cut_anywhere_names_the_place_if_acknowledged_records_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Sync::Always).unwrap();
    (1..=3).for_each(|number| _ = append(&journal, body(number)));
    drop(journal);
    let end = 64 + (1..=3).map(|number| (24 + body(number).len() as u64).next_multiple_of(8)).sum::<u64>();
    for bytes in 0..end {
        let cut = copy(dir.path());
        OpenOptions::new().write(true).open(&segments(cut.path())[0]).unwrap().set_len(bytes).unwrap();
        damage(cut.path(), open(cut.path(), Sync::Always));
        // The disk lost the end, and gives zeros.
        let zeroed = copy(dir.path());
        let file = OpenOptions::new().write(true).open(&segments(zeroed.path())[0]).unwrap();
        file.write_all_at(&vec![0; usize::try_from(end - bytes).unwrap()], bytes).unwrap();
        match open(zeroed.path(), Sync::Always) {
            // Only the zeros that end a record were overwritten.
            Ok(journal) => assert_eq!(bodies(&journal), (1..=3).map(body).collect::<Vec<_>>(), "zeros from {bytes}"),
            Err(error) => _ = damage(zeroed.path(), Err(error)),
        }
    }
}

#[test]
fn a_changed_bit_in_any_byte_is_found_and_named_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Sync::Always).unwrap();
    (1..=3).for_each(|number| _ = append(&journal, body(number)));
    drop(journal);
    let original = std::fs::read(&segments(dir.path())[0]).unwrap();
    let end = 64 + (1..=3).map(|number| (24 + body(number).len()).next_multiple_of(8)).sum::<usize>();
    let damaged = copy(dir.path());
    let file = OpenOptions::new().write(true).open(&segments(damaged.path())[0]).unwrap();
    for at in 0..end + 40 {
        let bit = 1 << (at % 8);
        file.write_all_at(&[original[at] ^ bit], at as u64).unwrap();
        match open(damaged.path(), Sync::Always) {
            Ok(journal) => {
                assert!(at >= end, "byte {at} was changed");
                assert_eq!(bodies(&journal), (1..=3).map(body).collect::<Vec<_>>(), "byte {at}");
            }
            Err(error) => _ = damage(damaged.path(), Err(error)),
        }
        file.write_all_at(&original[at..=at], at as u64).unwrap();
    }
}

#[test]
fn a_damaged_byte_that_a_reader_meets_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Sync::Never).unwrap();
    (1..=3).for_each(|number| _ = append(&journal, body(number)));
    let second = 64 + (24 + body(1).len() as u64).next_multiple_of(8);
    let file = OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    file.write_all_at(b"?", second + 26).unwrap();
    assert_eq!(pollster::block_on(journal.read(0, 10)).unwrap().len(), 1, "the record before it is read");
    let error = pollster::block_on(journal.read(1, 10)).unwrap_err().to_string();
    assert!(error.contains(&format!("byte {second}: record 2 is damaged")), "{error}");
}

/// A write that the disk may lose: where, and which bytes.
type Write = (u64, Vec<u8>);

#[test]
fn after_a_power_loss_the_journal_is_a_prefix_with_every_acknowledged_record() {
    for (sync, is_synced) in [(Sync::Always, true), (Sync::Never, false)] {
        for seed in 0..60_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = move |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let dir = tempfile::tempdir().unwrap();
            let journal = open(dir.path(), sync).unwrap();
            let synced = 2 + next(6);
            (1..=synced).for_each(|number| _ = append(&journal, body(number + seed)));
            pollster::block_on(journal.flush()).unwrap();
            let before = std::fs::read(&segments(dir.path())[0]).unwrap();
            let mark = std::fs::read(dir.path().join("tail")).unwrap();
            // In this mode the disk holds at most one record that was not synced.
            let unsynced = if is_synced { 1 } else { 1 + next(5) };
            (1..=unsynced).for_each(|number| _ = append(&journal, body(synced + number + seed)));
            drop(journal);
            let after = std::fs::read(&segments(dir.path())[0]).unwrap();
            let changed: Vec<Write> = (0..after.len() / 512)
                .map(|sector| (sector as u64 * 512, after[sector * 512..][..512].to_vec()))
                .filter(|(at, bytes)| before[usize::try_from(*at).unwrap()..][..512] != **bytes)
                .collect();

            let lost = tempfile::tempdir().unwrap();
            let segment = lost.path().join(segments(dir.path())[0].file_name().unwrap());
            std::fs::write(&segment, &before).unwrap();
            std::fs::write(lost.path().join("tail"), &mark).unwrap();
            let file = OpenOptions::new().write(true).open(&segment).unwrap();
            for (at, bytes) in &changed {
                if next(2) == 0 {
                    file.write_all_at(bytes, *at).unwrap();
                }
            }
            let journal = open(lost.path(), sync).unwrap_or_else(|error| panic!("{sync:?} seed {seed}: {error}"));
            let last = journal.bounds().1;
            assert!((synced..=synced + unsynced).contains(&last), "{sync:?} seed {seed}: {last} of {synced} + {unsynced}");
            let expected: Vec<_> = (1..=last).map(|number| body(number + seed)).collect();
            assert_eq!(bodies(&journal), expected, "{sync:?} seed {seed}");
            // What was lost does not come back behind what is written now.
            let mut written = expected;
            for number in 0..3 {
                append(&journal, body(900 + number));
                written.push(body(900 + number));
            }
            drop(journal);
            assert_eq!(bodies(&open(lost.path(), sync).unwrap()), written, "{sync:?} seed {seed}");
        }
    }
}

#[test]
fn one_process_at_a_time_has_the_journal_open_and_a_missing_segment_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Sync::Always).unwrap();
    append(&journal, "a");
    assert!(matches!(open(dir.path(), Sync::Always), Err(StoreError::Locked { .. })));
    drop(journal);
    // A start that ended while it made a segment.
    std::fs::write(dir.path().join("next"), "half").unwrap();
    assert_eq!(bodies(&open(dir.path(), Sync::Always).unwrap()), ["a"]);
    std::fs::remove_file(&segments(dir.path())[0]).unwrap();
    let what = damage(dir.path(), open(dir.path(), Sync::Always));
    assert!(what.contains("the records 1 to 1 were acknowledged"), "{what}");
}

#[test]
fn a_journal_keeps_no_byte_of_records_that_were_retired_and_goes_on() {
    const MARKER: &str = "quagga-fjord-mnemonic";
    let dir = tempfile::tempdir().unwrap();
    let has_marker = || {
        let files = dir.path().read_dir().unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.into_iter().any(|bytes| memchr::memmem::find(&bytes, MARKER.as_bytes()).is_some())
    };
    let append = |journal: &LocalJournal, expected: u64, text: String| {
        let appended = pollster::block_on(journal.append(expected, &[Bytes::from(text)])).unwrap();
        assert_eq!(appended, Appended::At(expected + 1));
    };
    let journal = open(dir.path(), Sync::Always).unwrap();
    // So many that segments of the largest size are forgotten, and kept to be written over.
    for position in 0..90 {
        append(&journal, position, MARKER.repeat(40_000));
    }
    pollster::block_on(journal.truncate_before(80)).unwrap();
    assert!(dir.path().read_dir().unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("spare")));
    journal.rotate().unwrap();
    assert_eq!(journal.bounds().1, 90);
    append(&journal, 90, "later".into());
    journal.retire(91).unwrap();
    assert!(!has_marker());
    assert_eq!(journal.bounds(), (91, 91));
    assert_eq!(pollster::block_on(journal.read(90, 1000)).unwrap().len(), 1, "a record that is not retired stays");
    drop(journal);
    let journal = open(dir.path(), Sync::Always).unwrap();
    assert_eq!((journal.bounds(), has_marker()), ((91, 91), false));
    append(&journal, 91, "last".into());
}
