//! The test suite of every store, and the durability of the embedded store.
//!
//! Acknowledged appends survive restarts, killed processes and torn writes, and a damaged byte is an error that names
//! its file.

use crate::harness::part_of;
use bytes::Bytes;
use proscenium::log::embedded::{EmbeddedStore, StoreInspection, Sync};
use proscenium::log::journal::Journal;
use proscenium::log::row::{Row, Rows};
use proscenium::log::testing::{OnDisk, Ordered, in_memory, on_disk};
use proscenium::log::{
    Append, AppendOutcome, Blob, Compaction, Limit, ListedLog, LoadedLog, LogId, LogKind, META, RewrittenAppend, Store,
    StoreError, StoredAppend,
};
use proscenium::model::{Audience, BlobId, Epoch, RunId, Sequence, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

macro_rules! suite {
    ($($test:ident)*) => {
        mod in_memory {
            $(#[test] fn $test() { super::$test(super::in_memory()); })*
        }
        mod on_disk {
            $(#[test] fn $test() {
                let dir = tempfile::tempdir().unwrap();
                super::$test(super::on_disk(dir.path(), super::Sync::Never).unwrap());
            })*
        }
    };
}

suite! {
    appends_to_all_logs_share_one_gapless_order_of_commits
    rows_are_read_in_order_and_unchanged
    appends_to_one_log_may_follow_each_other_in_one_group
    an_append_that_expects_another_tail_conflicts_and_the_rest_of_its_group_commits
    a_linked_append_conflicts_if_its_predecessor_conflicts
    an_append_that_expects_rows_in_a_missing_log_conflicts
    another_epoch_conflicts_and_reads_nothing
    state_is_set_replaced_and_removed_with_its_append
    an_append_may_contain_only_state
    an_empty_append_takes_no_position
    bodies_are_stored_with_their_append
    a_list_is_newest_first_and_its_pages_are_stable
    a_read_is_bounded_by_rows_and_bytes_and_always_advances
    a_read_from_inside_an_append_starts_with_the_whole_append
    rows_are_read_with_the_position_of_their_append
    a_position_maps_to_the_last_sequence_of_each_log
    a_store_keeps_the_epoch_of_its_first_append
    checkpoints_coexist_and_the_newest_at_or_before_a_sequence_is_found
    a_checkpoint_of_a_missing_log_a_later_sequence_or_another_epoch_is_dropped
    an_erased_log_is_gone_with_its_state_bodies_and_checkpoints
    an_erased_log_can_be_written_again_in_another_epoch
    readers_see_only_whole_appends_during_commits
    compaction_keeps_positions_and_readers_skip_removed_rows
    a_compaction_applies_only_to_the_expected_state_of_its_log
    a_removal_ends_one_body_and_no_other
    a_flush_changes_nothing_and_only_the_embedded_store_uses_disk
}

pub fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

pub fn epoch(bits: u64) -> Epoch {
    Epoch::from_random(bits)
}

const ALL: Limit = Limit { rows: usize::MAX, bytes: usize::MAX };

fn row(sequence: u64, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let text = Some(text.as_bytes());
    Row::encode(&mut out, Sequence(sequence), [Sequence(sequence - 1); 3], [text, text, text]);
    out
}

/// Builds an append of one row per text, after `expected`, in epoch 1.
pub fn append(log: &LogId, expected: u64, texts: &[&str]) -> Append {
    let rows = (expected + 1..).zip(texts).flat_map(|(sequence, text)| row(sequence, text)).collect();
    Append {
        log: log.clone(),
        epoch: epoch(1),
        expected: Sequence(expected),
        last: Sequence(expected + texts.len() as u64),
        rows: Bytes::from_iter::<Vec<u8>>(rows),
        blobs: Vec::new(),
        state: Vec::new(),
    }
}

pub fn with_state(mut append: Append, key: &[u8], value: Option<&str>) -> Append {
    append.state.push((Bytes::copy_from_slice(key), value.map(|value| Bytes::copy_from_slice(value.as_bytes()))));
    append
}

pub fn with_body(mut append: Append, id: &str, body: impl Into<Bytes>) -> Append {
    append.blobs.push(Blob { id: BlobId::new(id).unwrap(), meta: Bytes::from(format!("meta of {id}")), body: body.into() });
    append
}

fn commit_one(store: &Ordered<impl Store, impl Journal>, append: Append) -> u64 {
    match store.commit(&[append]).unwrap()[..] {
        [AppendOutcome::Committed { position, .. }] => position,
        ref other => panic!("{other:?}"),
    }
}

/// Builds the outcome of a commit at this position to the log with this creation position.
fn committed((position, created): (u64, u64)) -> AppendOutcome {
    AppendOutcome::Committed { position, created }
}

/// The sequence and text of each row.
pub type Texts = Vec<(u64, String)>;

fn texts(read: Vec<StoredAppend>) -> Texts {
    let rows = read.into_iter().flat_map(|append| Rows(append.rows));
    rows.map(|row| (row.sequence().0, String::from_utf8(row.view(Audience::User).unwrap().to_vec()).unwrap())).collect()
}

fn read(store: &Ordered<impl Store, impl Journal>, log: &LogId, after: u64, limit: Limit) -> Texts {
    texts(store.read(log, epoch(1), Sequence(after), limit).unwrap())
}

fn numbered(texts: &[&str]) -> Texts {
    (1..).zip(texts.iter().map(ToString::to_string)).collect()
}

fn a_store_keeps_the_epoch_of_its_first_append(store: Ordered<impl Store, impl Journal>) {
    assert_eq!(store.epoch().unwrap(), None);
    commit_one(&store, append(&run("a"), 0, &["1"]));
    commit_one(&store, Append { epoch: epoch(2), ..append(&run("b"), 0, &["1"]) });
    store.erase(&run("a")).unwrap();
    assert_eq!(store.epoch().unwrap(), Some(epoch(1)));
}

fn appends_to_all_logs_share_one_gapless_order_of_commits(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), LogId::Session(SessionId::new("a").unwrap()));
    let first = store.commit(&[append(&a, 0, &["1"]), append(&b, 0, &["1", "2"]), append(&a, 1, &["2"])]).unwrap();
    assert_eq!(first, [(1, 1), (2, 2), (3, 1)].map(committed));
    let conflict = AppendOutcome::Conflict { last: Sequence(2), epoch: Some(epoch(1)) };
    let second = store.commit(&[append(&b, 0, &["x"]), append(&b, 2, &["3"])]).unwrap();
    assert_eq!(second, [conflict, committed((4, 2))]);
    assert_eq!(store.commit(&[]).unwrap(), []);
    assert_eq!(commit_one(&store, append(&a, 2, &["3"])), 5);
}

fn rows_are_read_in_order_and_unchanged(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    for n in 0..40 {
        commit_one(&store, append(&a, n * 2, &[&format!("a{n}"), "and"]));
        if n % 3 == 0 {
            commit_one(&store, append(&b, n / 3, &[&format!("b{n}")]));
        }
    }
    let expected: Vec<_> = (0..80).map(|i| (i + 1, if i % 2 == 0 { format!("a{}", i / 2) } else { "and".into() })).collect();
    assert_eq!(read(&store, &a, 0, ALL), expected);
    assert_eq!(read(&store, &a, 60, ALL), expected[60..]);
    assert_eq!(read(&store, &a, 80, ALL), []);
    assert_eq!(read(&store, &a, 800, ALL), []);
    assert_eq!(read(&store, &b, 0, ALL).len(), 14);
    assert_eq!(read(&store, &run("unknown"), 0, ALL), []);
}

fn appends_to_one_log_may_follow_each_other_in_one_group(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    let group = [append(&a, 0, &["one"]), with_state(append(&a, 1, &[]), b"k", Some("v")), append(&a, 1, &["two", "three"])];
    let outcomes = store.commit(&group).unwrap();
    assert_eq!(outcomes, [(1, 1), (2, 1), (3, 1)].map(committed));
    assert_eq!(read(&store, &a, 0, ALL), numbered(&["one", "two", "three"]));
    assert_eq!(store.load(&a).unwrap().unwrap().last, Sequence(3));
}

fn a_removal_ends_one_body_and_no_other(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    let body = |id: &str| store.blob(&BlobId::new(id).unwrap()).unwrap().map(|blob| blob.body);
    commit_one(&store, with_body(with_body(append(&a, 0, &[]), "first", "one"), "second", "two"));
    let mut removal = append(&a, 0, &[]);
    removal.blobs = ["first", "unknown"].map(|id| Blob::removal(BlobId::new(id).unwrap())).into();
    commit_one(&store, removal);
    assert_eq!((body("first"), body("second")), (None, Some(Bytes::from("two"))));
    store.flush().unwrap();
    assert_eq!((body("first"), body("second")), (None, Some(Bytes::from("two"))));
}

fn an_append_that_expects_another_tail_conflicts_and_the_rest_of_its_group_commits(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    commit_one(&store, append(&a, 0, &["one"]));
    let stale = with_body(with_state(append(&a, 0, &["other"]), b"k", Some("v")), "lost", "body");
    let outcomes = store.commit(&[stale, append(&b, 0, &["one"]), append(&a, 7, &["far"]), append(&a, 1, &["two"])]).unwrap();
    let conflict = AppendOutcome::Conflict { last: Sequence(1), epoch: Some(epoch(1)) };
    assert_eq!(outcomes, [conflict, committed((2, 2)), conflict, committed((3, 1))]);
    assert_eq!(read(&store, &a, 0, ALL), numbered(&["one", "two"]));
    assert_eq!(store.load(&a).unwrap().unwrap().state, []);
    assert_eq!(store.blob(&BlobId::new("lost").unwrap()).unwrap(), None);
}

fn a_linked_append_conflicts_if_its_predecessor_conflicts(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    commit_one(&store, append(&a, 0, &["one"]));
    commit_one(&store, append(&a, 1, &["of another writer"]));
    // The second append's expected sequence matches the log by chance.
    let group = [append(&a, 1, &["x"]), append(&a, 2, &["y"]), append(&b, 0, &["one"]), append(&b, 1, &["two"])];
    let outcomes = store.commit_linked(&group, &[false, true, false, true]).unwrap();
    let conflict = AppendOutcome::Conflict { last: Sequence(2), epoch: Some(epoch(1)) };
    assert_eq!(outcomes, [conflict, conflict, committed((3, 2)), committed((4, 2))]);
    assert_eq!(read(&store, &a, 0, ALL), numbered(&["one", "of another writer"]));
    assert_eq!(store.commit_linked(&group[1..2], &[false]).unwrap(), [committed((5, 1))], "unlinked it commits");
}

fn an_append_that_expects_rows_in_a_missing_log_conflicts(store: Ordered<impl Store, impl Journal>) {
    let outcomes = store.commit(&[append(&run("a"), 3, &["four"])]).unwrap();
    assert_eq!(outcomes, [AppendOutcome::Conflict { last: Sequence::NONE, epoch: None }]);
    assert_eq!(store.load(&run("a")).unwrap(), None);
    assert_eq!(store.list(LogKind::Run, None, 9).unwrap(), []);
}

fn another_epoch_conflicts_and_reads_nothing(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    commit_one(&store, append(&a, 0, &["one"]));
    let conflict = AppendOutcome::Conflict { last: Sequence(1), epoch: Some(epoch(1)) };
    for expected in [0, 1] {
        let other = Append { epoch: epoch(2), ..append(&a, expected, &["x"]) };
        assert_eq!(store.commit(&[other]).unwrap(), [conflict]);
    }
    assert_eq!(store.read(&a, epoch(2), Sequence::NONE, ALL).unwrap(), []);
    assert_eq!(store.load(&a).unwrap().unwrap().epoch, epoch(1));
}

fn state_is_set_replaced_and_removed_with_its_append(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    let set = with_state(with_state(append(&a, 0, &["one"]), b"y", Some("1")), b"x", Some("2"));
    commit_one(&store, set);
    commit_one(&store, with_state(append(&b, 0, &["one"]), b"x", Some("b's")));
    let twice = with_state(with_state(append(&a, 1, &["two"]), b"y", Some("3")), b"y", Some("4"));
    let forget = with_state(with_state(append(&a, 2, &["three"]), b"x", None), b"never", None);
    store.commit(&[twice, forget, with_state(append(&a, 3, &["four"]), b"xx", Some(""))]).unwrap();
    let state = |entries: &[(&'static str, &'static str)]| -> Vec<(Bytes, Bytes)> {
        entries.iter().map(|(key, value)| (Bytes::from(*key), Bytes::from(*value))).collect()
    };
    assert_eq!(store.load(&a).unwrap().unwrap().state, state(&[("xx", ""), ("y", "4")]));
    assert_eq!(store.load(&b).unwrap().unwrap().state, state(&[("x", "b's")]));
}

fn an_append_may_contain_only_state(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    assert_eq!(commit_one(&store, with_state(append(&a, 0, &[]), META, Some("made"))), 1);
    assert_eq!(store.load(&a).unwrap().unwrap().last, Sequence::NONE);
    assert_eq!(read(&store, &a, 0, ALL), []);
    assert_eq!(store.list(LogKind::Run, None, 9).unwrap()[0].meta, "made");
    assert_eq!(commit_one(&store, append(&a, 0, &["one"])), 2);
    assert_eq!(commit_one(&store, with_state(append(&a, 1, &[]), META, Some("changed"))), 3);
    assert_eq!(read(&store, &a, 0, ALL), numbered(&["one"]));
}

fn an_empty_append_takes_no_position(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    assert_eq!(commit_one(&store, append(&a, 0, &[])), 1, "it creates the log");
    assert_eq!(commit_one(&store, append(&a, 0, &[])), 1);
    let group = [append(&a, 0, &[]), append(&b, 0, &["one"]), append(&b, 1, &[]), append(&a, 0, &["one"])];
    let outcomes = store.commit(&group).unwrap();
    assert_eq!(outcomes, [(1, 1), (2, 2), (2, 2), (3, 1)].map(committed));
    assert_eq!((store.mark().position, commit_one(&store, append(&b, 1, &[]))), (3, 3));
    assert_eq!(commit_one(&store, append(&b, 1, &["two"])), 4);
}

fn bodies_are_stored_with_their_append(store: Ordered<impl Store, impl Journal>) {
    let big = Bytes::from(vec![7; 100_000]);
    let both = with_body(with_body(append(&run("a"), 0, &["one"]), "big", big.clone()), "small", "");
    commit_one(&store, both);
    let found = store.blob(&BlobId::new("big").unwrap()).unwrap().unwrap();
    assert_eq!((found.meta, found.body), (Bytes::from("meta of big"), big));
    assert_eq!(store.blob(&BlobId::new("small").unwrap()).unwrap().unwrap().body, Bytes::new());
    assert_eq!(store.blob(&BlobId::new("other").unwrap()).unwrap(), None);
}

fn a_list_is_newest_first_and_its_pages_are_stable(store: Ordered<impl Store, impl Journal>) {
    for n in 0..10 {
        commit_one(&store, with_state(append(&run(&format!("r{n}")), 0, &["one"]), META, Some(&format!("meta {n}"))));
        commit_one(&store, append(&LogId::Session(SessionId::new(&format!("s{n}")).unwrap()), 0, &["one"]));
    }
    let names = |page: &[ListedLog]| -> Vec<String> { page.iter().map(|listed| listed.log.to_string()).collect() };
    let first = store.list(LogKind::Run, None, 4).unwrap();
    assert_eq!(names(&first), ["run r9", "run r8", "run r7", "run r6"]);
    assert_eq!(first[0].meta, "meta 9");
    commit_one(&store, append(&run("late"), 0, &["one"]));
    commit_one(&store, append(&run("r2"), 1, &["two"]));
    store.erase(&run("r6")).unwrap();
    store.erase(&run("r4")).unwrap();
    let second = store.list(LogKind::Run, Some(first[3].created), 4).unwrap();
    assert_eq!(names(&second), ["run r5", "run r3", "run r2", "run r1"]);
    let third = store.list(LogKind::Run, Some(second[3].created), 4).unwrap();
    assert_eq!(names(&third), ["run r0"]);
    assert_eq!(store.list(LogKind::Run, Some(third[0].created), 4).unwrap(), []);
    let sessions = store.list(LogKind::Session, None, 99).unwrap();
    assert_eq!((sessions.len(), &sessions[0].meta), (10, &Bytes::new()));
}

fn a_read_is_bounded_by_rows_and_bytes_and_always_advances(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    for n in 0..12 {
        commit_one(&store, append(&a, n * 3, &["x", "y", "z"]));
    }
    let append_bytes = 3 * row(1, "x").len();
    let rows = |rows| Limit { rows, bytes: usize::MAX };
    let bytes = |bytes| Limit { rows: usize::MAX, bytes };
    assert_eq!(read(&store, &a, 0, rows(0)).len(), 3, "at least one append");
    assert_eq!(read(&store, &a, 0, rows(5)).len(), 3);
    assert_eq!(read(&store, &a, 0, rows(6)).len(), 6);
    assert_eq!(read(&store, &a, 1, rows(5)).last().unwrap().0, 6, "skipped rows do not count");
    assert_eq!(read(&store, &a, 0, bytes(0)).len(), 3, "at least one append");
    assert_eq!(read(&store, &a, 0, bytes(2 * append_bytes - 1)).len(), 3);
    assert_eq!(read(&store, &a, 0, bytes(7 * append_bytes)).len(), 21);
    let (mut after, mut seen) = (0, 0);
    while let Some((last, _)) = read(&store, &a, after, Limit { rows: 4, bytes: 1 }).last() {
        (after, seen) = (*last, seen + 1);
    }
    assert_eq!((after, seen), (36, 12));
}

fn a_read_from_inside_an_append_starts_with_the_whole_append(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    commit_one(&store, append(&a, 0, &["one", "two", "three"]));
    commit_one(&store, append(&a, 3, &["four"]));
    let all = numbered(&["one", "two", "three", "four"]);
    assert_eq!(read(&store, &a, 1, ALL), all);
    assert_eq!(read(&store, &a, 2, ALL), all);
    assert_eq!(read(&store, &a, 3, ALL), all[3..]);
}

fn rows_are_read_with_the_position_of_their_append(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    assert_eq!(store.mark().position, 0);
    let mut appends = Vec::new();
    for n in 0..30 {
        let of_a = append(&a, n * 3, &["x", "y", "z"]);
        appends.push(StoredAppend { position: 0, before: Sequence(n * 3), rows: of_a.rows.clone() });
        // Consecutive appends to one log, and single ones.
        if n % 10 >= 5 {
            commit_one(&store, with_state(append(&b, 0, &[]), b"k", Some("v")));
        }
        appends.last_mut().unwrap().position = commit_one(&store, of_a);
    }
    assert!(appends.is_sorted_by_key(|append| append.position));
    for after in 0..=90 {
        let read = |limit| store.read(&a, epoch(1), Sequence(after), limit).unwrap();
        let from = usize::try_from(after / 3).unwrap();
        assert_eq!(read(ALL), appends[from..], "after {after}");
        let few = read(Limit { rows: 7, bytes: usize::MAX });
        assert_eq!(few, appends[from..][..few.len()], "after {after}");
    }
}

fn a_position_maps_to_the_last_sequence_of_each_log(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    let (mut lasts, mut reached) = ([0, 0], vec![[0, 0]]);
    for n in 0..200_usize {
        let (which, log) = if n % 7 < 4 { (0, &a) } else { (1, &b) };
        let texts = &["x"; 9][..n * n % 10];
        let position = commit_one(&store, with_state(append(log, lasts[which], texts), b"k", Some("v")));
        lasts[which] += texts.len() as u64;
        reached.push(lasts);
        assert_eq!(position, n as u64 + 1);
    }
    assert_eq!(store.mark().position, 200);
    let locate = |log: &LogId, bits, position| store.locate(log, epoch(bits), position).unwrap().0;
    let position_of = |log: &LogId, bits, sequence| store.position_of(log, epoch(bits), Sequence(sequence)).unwrap();
    for (position, lasts) in (0..).zip(&reached) {
        assert_eq!([locate(&a, 1, position), locate(&b, 1, position)], *lasts, "at {position}");
    }
    for (which, log) in [&a, &b].into_iter().enumerate() {
        for sequence in 1..=lasts[which] {
            let position = reached.iter().position(|lasts| lasts[which] >= sequence).map(|position| position as u64);
            assert_eq!(position_of(log, 1, sequence), position, "{log} {sequence}");
        }
        assert_eq!((position_of(log, 1, lasts[which] + 1), position_of(log, 2, 1)), (None, None));
    }
    assert_eq!([locate(&a, 1, u64::MAX), locate(&b, 1, 201)], lasts);
    assert_eq!((locate(&a, 2, 200), locate(&run("unknown"), 1, 200)), (0, 0));
    store.erase(&a).unwrap();
    assert_eq!((locate(&a, 1, 200), position_of(&a, 1, 1)), (0, None));
    assert_eq!(commit_one(&store, Append { epoch: epoch(3), ..append(&a, 0, &["anew"]) }), 201);
    assert_eq!((locate(&a, 3, 200), locate(&a, 3, 201), locate(&a, 1, 201)), (0, 1, 0));
}

/// Reads the checkpoint of this kind at or before `at`: its sequence and its body.
fn read_checkpoint(store: &Ordered<impl Store, impl Journal>, log: &LogId, kind: u8, at: u64) -> Option<(u64, Bytes)> {
    let found = store.checkpoint(log, epoch(1), kind, Sequence(at)).unwrap();
    found.map(|(sequence, body)| (sequence.0, body))
}

fn save_checkpoint(store: &Ordered<impl Store, impl Journal>, log: &LogId, kind: u8, sequence: u64, body: impl Into<Bytes>) {
    store.save_checkpoint(log, epoch(1), kind, Sequence(sequence), body.into()).unwrap();
}

fn checkpoints_coexist_and_the_newest_at_or_before_a_sequence_is_found(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    let large = Bytes::from((0..3 << 20).map(|n: u32| n as u8).collect::<Vec<_>>());
    for log in [&a, &b] {
        commit_one(&store, with_body(append(log, 0, &["x"; 300]), &log.to_string(), "body"));
    }
    for (kind, sequence, body) in [(1, 2, "old"), (1, 2, "two"), (1, 256, "more"), (0, 9, "zero"), (255, 1, "")] {
        save_checkpoint(&store, &a, kind, sequence, body);
    }
    save_checkpoint(&store, &a, 1, 100, large.clone());
    save_checkpoint(&store, &b, 1, 50, "b's");
    let of_a = |kind, at| read_checkpoint(&store, &a, kind, at);
    let small = |sequence, text: &'static str| Some((sequence, Bytes::from(text)));
    assert_eq!(of_a(1, 1), None);
    assert_eq!(of_a(1, 2), small(2, "two"), "the later one of the same sequence");
    assert_eq!(of_a(1, 99), small(2, "two"));
    for at in [100, 255] {
        assert!(of_a(1, at) == Some((100, large.clone())), "at {at}");
    }
    for at in [256, 300, Sequence::MAX.0, u64::MAX] {
        assert_eq!(of_a(1, at), small(256, "more"), "at {at}");
    }
    assert_eq!((of_a(0, 300), of_a(255, 300), of_a(2, 300)), (small(9, "zero"), small(1, ""), None));
    assert_eq!(read_checkpoint(&store, &b, 1, 300), small(50, "b's"));
    assert_eq!(commit_one(&store, append(&a, 300, &["next"])), 3, "a checkpoint takes no position");
    assert_eq!(store.load(&a).unwrap().unwrap().state, []);
}

fn a_checkpoint_of_a_missing_log_a_later_sequence_or_another_epoch_is_dropped(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    save_checkpoint(&store, &a, 0, 0, "of nothing");
    assert_eq!(store.load(&a).unwrap(), None);
    commit_one(&store, append(&a, 0, &["one", "two"]));
    assert_eq!(read_checkpoint(&store, &a, 0, 9), None);
    save_checkpoint(&store, &a, 0, 3, "beyond the log");
    store.save_checkpoint(&a, epoch(2), 0, Sequence(1), Bytes::from("of another epoch")).unwrap();
    commit_one(&store, append(&a, 2, &["three"]));
    assert_eq!(read_checkpoint(&store, &a, 0, 9), None);
    save_checkpoint(&store, &a, 0, 3, "three");
    assert_eq!(read_checkpoint(&store, &a, 0, 9), Some((3, Bytes::from("three"))));
    assert_eq!(store.checkpoint(&a, epoch(2), 0, Sequence(9)).unwrap(), None);
}

fn an_erased_log_is_gone_with_its_state_bodies_and_checkpoints(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    for n in 0..1500 {
        let append = with_state(append(&a, n, &["row"]), format!("k{n}").as_bytes(), Some("v"));
        commit_one(&store, with_body(append, &format!("a{n}"), "body"));
    }
    commit_one(&store, with_body(with_state(append(&b, 0, &["kept"]), b"k", Some("v")), "b1", "body"));
    for (log, sequence) in [(&a, 1), (&a, 1500), (&b, 1)] {
        save_checkpoint(&store, log, 7, sequence, "checkpoint");
    }
    store.erase(&a).unwrap();
    store.erase(&a).unwrap();
    store.erase(&run("never there")).unwrap();
    assert_eq!(store.load(&a).unwrap(), None);
    assert_eq!(read(&store, &a, 0, ALL), []);
    assert_eq!(store.list(LogKind::Run, None, 9).unwrap().len(), 1);
    for id in ["a0", "a1499"] {
        assert_eq!(store.blob(&BlobId::new(id).unwrap()).unwrap(), None);
    }
    assert!(store.blob(&BlobId::new("b1").unwrap()).unwrap().is_some());
    assert_eq!((read_checkpoint(&store, &a, 7, 1500), read_checkpoint(&store, &b, 7, 1500).unwrap().0), (None, 1));
    save_checkpoint(&store, &a, 7, 1, "late");
    assert_eq!(store.load(&a).unwrap(), None, "a late checkpoint creates no log");
    assert_eq!(read(&store, &b, 0, ALL), numbered(&["kept"]));
    assert_eq!(commit_one(&store, append(&b, 1, &["next"])), 1502, "positions are not reused");
}

fn an_erased_log_can_be_written_again_in_another_epoch(store: Ordered<impl Store, impl Journal>) {
    let a = run("a");
    commit_one(&store, with_body(with_state(append(&a, 0, &["old", "older"]), META, Some("old")), "old", "body"));
    let created = store.list(LogKind::Run, None, 1).unwrap()[0].created;
    save_checkpoint(&store, &a, 0, 1, "old");
    store.erase(&a).unwrap();
    let late = store.commit(&[append(&a, 2, &["late"])]).unwrap();
    assert_eq!(late, [AppendOutcome::Conflict { last: Sequence::NONE, epoch: None }]);
    let anew = Append { epoch: epoch(2), ..append(&a, 0, &["new"]) };
    commit_one(&store, with_body(anew, "old", "another"));
    let loaded = store.load(&a).unwrap().unwrap();
    assert_eq!((loaded.epoch, loaded.last, loaded.state), (epoch(2), Sequence(1), Vec::new()));
    assert_eq!(store.checkpoint(&a, epoch(2), 0, Sequence(9)).unwrap(), None);
    assert_eq!(read(&store, &a, 0, ALL), []);
    assert_eq!(texts(store.read(&a, epoch(2), Sequence::NONE, ALL).unwrap()), numbered(&["new"]));
    assert_eq!(store.blob(&BlobId::new("old").unwrap()).unwrap().unwrap().body, "another");
    assert!(store.list(LogKind::Run, None, 1).unwrap()[0].created > created);
}

fn readers_see_only_whole_appends_during_commits(store: Ordered<impl Store, impl Journal>) {
    const APPENDS: u64 = 1000;
    let (a, store) = (run("a"), &store);
    let follow = || {
        {
            let mut after = 0;
            while after < APPENDS * 3 {
                let before = store.load(&a).unwrap();
                for (sequence, _) in read(store, &a, after, Limit { rows: 64, bytes: 8192 }) {
                    after += 1;
                    assert_eq!(sequence, after, "the sequences have a gap");
                }
                assert_eq!(after % 3, 0, "an append is incomplete");
                if let Some(loaded) = before {
                    assert_eq!(loaded.state[0].1, loaded.last.to_string(), "state and rows are not of the same append");
                }
            }
        };
    };
    let write = || {
        {
            for n in (0..APPENDS).step_by(2) {
                let append = |n: u64| append(&a, n * 3, &["x", "y", "z"]);
                let counted = |n: u64| with_state(append(n), b"count", Some(&(n * 3 + 3).to_string()));
                store.commit(&[counted(n), counted(n + 1)]).unwrap();
            }
        };
    };
    std::thread::scope(|scope| {
        scope.spawn(follow);
        scope.spawn(follow);
        scope.spawn(write);
    });
}

/// Builds the compaction of a log at `last` that keeps, in the given appends, the rows for which `keeps` holds.
fn compaction(log: &LogId, last: u64, appends: &[StoredAppend], keeps: impl Fn(u64) -> bool) -> Compaction {
    let rewritten = appends.iter().map(|append| {
        let rows = Rows(append.rows.clone()).map(|row| row.sequence().0);
        let left: Vec<_> = rows.filter(|sequence| keeps(*sequence)).collect();
        let last = Sequence(left.last().copied().unwrap_or_default());
        let rows = left.into_iter().flat_map(|n| row(n, &format!("left {n}"))).collect();
        RewrittenAppend { position: append.position, last, rows }
    });
    Compaction { log: log.clone(), epoch: epoch(1), last: Sequence(last), appends: rewritten.collect(), state: Vec::new() }
}

/// Compacts a log that ends at `last`, and keeps the rows for which `keeps` holds.
pub fn compact(store: &Ordered<impl Store, impl Journal>, log: &LogId, last: u64, keeps: impl Fn(u64) -> bool) {
    let appends = store.read(log, epoch(1), Sequence::NONE, ALL).unwrap();
    assert!(store.compact(&compaction(log, last, &appends, keeps)).unwrap());
}

fn compaction_keeps_positions_and_readers_skip_removed_rows(store: Ordered<impl Store, impl Journal>) {
    let (a, b) = (run("a"), run("b"));
    let mut last = 0;
    for n in 0..300_u64 {
        let texts = &["x"; 4][..=((n * n + 3) % 4) as usize];
        commit_one(&store, with_body(append(&a, last, texts), &format!("body-{n}"), "body"));
        last += texts.len() as u64;
        if n % 3 == 0 {
            commit_one(&store, append(&b, n / 3, &["b"]));
        }
    }
    let whole = store.read(&a, epoch(1), Sequence::NONE, ALL).unwrap();
    let located = || {
        let mut located = Vec::new();
        for position in 0..=401 {
            located.push(store.locate(&a, epoch(1), position).unwrap());
        }
        located
    };
    let before = located();
    save_checkpoint(&store, &a, 3, 9, "before");
    save_checkpoint(&store, &b, 3, 9, "of the other");

    // First holes of every kind, then larger ones over them, and at last every row except the last.
    let rounds: [&dyn Fn(u64) -> bool; 4] =
        [&|n| n % 7 < 4 && !(100..200).contains(&n), &|n| n % 7 < 3 && !(90..230).contains(&n), &|n| n > 300, &|_| false];
    let mut left: Vec<StoredAppend> = whole.clone();
    for (round, keeps) in rounds.into_iter().enumerate() {
        let keeps = |n: u64| n == last || keeps(n);
        // The first round rewrites every other append only: the others stay unchanged.
        let named: Vec<_> = left.iter().enumerate().filter(|(at, _)| round > 0 || at % 2 == 0).map(|(_, p)| p.clone()).collect();
        let mut compaction = compaction(&a, last, &named, keeps);
        compaction.state.push((Bytes::from("round"), Some(Bytes::from(round.to_string()))));
        assert!(store.compact(&compaction).unwrap());
        left = left
            .into_iter()
            .filter_map(|mut append| {
                if let Some(rewritten) = compaction.appends.iter().find(|rewritten| rewritten.position == append.position) {
                    append.rows = rewritten.rows.clone();
                }
                (!append.rows.is_empty()).then_some(append)
            })
            .collect();
        assert_eq!(store.read(&a, epoch(1), Sequence::NONE, ALL).unwrap(), left, "round {round}");
        for after in 0..=last {
            let ends = |append: &&StoredAppend| Rows(append.rows.clone()).last().unwrap().sequence().0 > after;
            let expected: Vec<_> = left.iter().filter(ends).cloned().collect();
            assert_eq!(store.read(&a, epoch(1), Sequence(after), ALL).unwrap(), expected, "round {round} after {after}");
            let few = store.read(&a, epoch(1), Sequence(after), Limit { rows: 5, bytes: 300 }).unwrap();
            assert_eq!((few.is_empty(), &few[..]), (expected.is_empty(), &expected[..few.len()]), "round {round} after {after}");
        }
        assert_eq!(located(), before, "positions have changed");
        let loaded = store.load(&a).unwrap().unwrap();
        assert_eq!((loaded.last.0, loaded.state), (last, compaction.state.into_iter().map(|(k, v)| (k, v.unwrap())).collect()));
    }
    assert_eq!((read_checkpoint(&store, &a, 3, last), read_checkpoint(&store, &b, 3, 99).unwrap().0), (None, 9));
    assert_eq!(read(&store, &b, 0, ALL).len(), 100);
    assert!(store.blob(&BlobId::new("body-7").unwrap()).unwrap().is_some());

    assert_eq!(commit_one(&store, append(&a, last, &["late"])), 401, "a compaction takes no position");
    assert_eq!(read(&store, &a, last, ALL), [(last + 1, "late".to_owned())]);
    save_checkpoint(&store, &a, 3, last, "after");
    assert_eq!(read_checkpoint(&store, &a, 3, last).unwrap().0, last);
    store.erase(&a).unwrap();
    assert_eq!((store.load(&a).unwrap(), read(&store, &b, 0, ALL).len()), (None, 100));
}

fn a_compaction_applies_only_to_the_expected_state_of_its_log(store: Ordered<impl Store, impl Journal>) {
    let (a, gone) = (run("a"), |_| false);
    commit_one(&store, append(&a, 0, &["one"]));
    commit_one(&store, append(&a, 1, &["two"]));
    save_checkpoint(&store, &a, 0, 1, "kept");
    let first = store.read(&a, epoch(1), Sequence::NONE, ALL).unwrap()[..1].to_vec();
    let mut state = compaction(&a, 3, &first, gone);
    state.state.push((Bytes::from("k"), Some(Bytes::from("v"))));
    let other = Compaction { epoch: epoch(2), ..compaction(&a, 2, &first, gone) };
    for elsewhere in [compaction(&a, 1, &[], gone), state, other, compaction(&run("unknown"), 1, &[], gone)] {
        assert!(!store.compact(&elsewhere).unwrap());
    }
    assert_eq!(read(&store, &a, 0, ALL), numbered(&["one", "two"]));
    assert_eq!((store.load(&a).unwrap().unwrap().state, read_checkpoint(&store, &a, 0, 9).unwrap().0), (vec![], 1));
    assert_eq!(store.load(&run("unknown")).unwrap(), None);
    assert!(store.compact(&compaction(&a, 2, &[], gone)).unwrap(), "a compaction may remove nothing");
    assert_eq!(read_checkpoint(&store, &a, 0, 9).unwrap().0, 1);
    assert!(store.compact(&compaction(&a, 2, &first, gone)).unwrap());
    assert_eq!(read_checkpoint(&store, &a, 0, 9), None);
    assert_eq!(read(&store, &a, 0, ALL), [(2, "two".to_owned())]);
}

// The embedded store.

/// Everything that can be read from a store.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    pub logs: Vec<(ListedLog, LoadedLog, Texts)>,
    /// The newest checkpoint of each log by kind.
    pub checkpoints: Vec<Vec<Option<(Sequence, Bytes)>>>,
    bodies: BTreeMap<String, Bytes>,
}

const BODIES: [&str; 4] = ["b0", "b1", "b2", "large"];

pub fn read_contents(store: &Ordered<impl Store, impl Journal>) -> Result<Contents, StoreError> {
    let (mut logs, mut checkpoints) = (Vec::new(), Vec::new());
    for kind in [LogKind::Run, LogKind::Session] {
        for listed in store.list(kind, None, usize::MAX)? {
            let loaded = store.load(&listed.log)?.expect("a listed log exists");
            let rows = texts(store.read(&listed.log, listed.epoch, Sequence::NONE, ALL)?);
            let mut newest = Vec::new();
            for kind in 0..2 {
                newest.push(store.checkpoint(&listed.log, listed.epoch, kind, Sequence::MAX)?);
            }
            checkpoints.push(newest);
            logs.push((listed, loaded, rows));
        }
    }
    let mut bodies = BTreeMap::new();
    for id in BODIES {
        if let Some(blob) = store.blob(&BlobId::new(id).unwrap())? {
            bodies.insert(id.to_owned(), blob.body);
        }
    }
    Ok(Contents { logs, checkpoints, bodies })
}

fn open(dir: &Path, sync: Sync) -> OnDisk {
    on_disk(dir, sync).unwrap()
}

fn open_verified(dir: &Path, sync: Sync) -> OnDisk {
    let (store, journal) = EmbeddedStore::open_verified(dir, sync).unwrap();
    Ordered::new(store, Arc::new(journal)).unwrap()
}

/// Writes a little of everything, to tables and to the journal; returns the contents.
fn write_example(dir: &Path) -> Contents {
    let store = open(dir, Sync::Always);
    {
        for n in 0..10 {
            let of_a = with_state(append(&run("a"), n, &[&format!("a{n}")]), b"n", Some(&n.to_string()));
            store.commit(&[of_a, append(&run("b"), n * 2, &["b", "bb"])]).unwrap();
        }
        commit_one(&store, with_body(append(&run("a"), 10, &["with bodies"]), "b0", "small"));
        commit_one(&store, with_body(append(&run("a"), 11, &["with bodies"]), "large", vec![8; 5000]));
        commit_one(&store, append(&run("gone"), 0, &["gone"]));
        compact(&store, &run("b"), 20, |n| n % 5 > 1 || n == 20);
        save_checkpoint(&store, &run("a"), 0, 11, "small");
        save_checkpoint(&store, &run("b"), 1, 20, vec![9; 5000]);
        save_checkpoint(&store, &run("gone"), 1, 1, vec![10; 5000]);
    };
    store.persist().unwrap();
    drop(store);
    let store = open(dir, Sync::Always);
    {
        store.erase(&run("gone")).unwrap();
        for (n, body) in (0..5).zip(BODIES.iter().take(3).cycle()) {
            let of_c = with_body(append(&run("c"), n, &[&format!("c{n}")]), body, format!("body {n}"));
            store.commit(&[of_c, append(&run("b"), 20 + n, &["more"])]).unwrap();
        }
        compact(&store, &run("b"), 25, |n| n % 5 > 2 || n == 25);
        read_contents(&store).unwrap()
    }
}

pub fn list_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(list_files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_directory(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// The last segment of the journal.
pub fn newest_segment(dir: &Path) -> PathBuf {
    let mut segments = list_files(dir).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "seg"));
    segments.next_back().unwrap()
}

/// Where the data of a segment ends, and zeros begin.
pub fn data_end(segment: &Path) -> u64 {
    std::fs::read(segment).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// What a power loss leaves of a directory: a segment that is zeros from `end` on.
///
/// `mark` is what the file beside the segments held; it is written without a sync, so it may be older than they are.
pub fn lose_power(dir: &Path, end: u64, mark: &[u8]) {
    let segment = newest_segment(dir);
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    let lost = data_end(&segment).saturating_sub(end);
    file.write_all_at(&vec![0; usize::try_from(lost).unwrap()], end).unwrap();
    std::fs::write(mark_file(dir), mark).unwrap();
}

/// The file that says which commits were acknowledged.
pub fn mark_file(dir: &Path) -> PathBuf {
    EmbeddedStore::lock_file(dir)
}

fn a_flush_changes_nothing_and_only_the_embedded_store_uses_disk(store: Ordered<impl Store, impl Journal>) {
    store.flush().unwrap();
    assert_eq!(commit_one(&store, append(&run("a"), 0, &["one", "two"])), 1);
    store.flush().unwrap();
    assert_eq!(commit_one(&store, append(&run("a"), 2, &["three"])), 2);
    let rows: Vec<_> = read(&store, &run("a"), 0, ALL).into_iter().map(|(_, text)| text).collect();
    assert_eq!(rows, ["one", "two", "three"]);
    let is_on_disk = std::any::type_name_of_val(&store).contains("Embedded");
    assert_eq!(store.bytes_with_journal() > 0, is_on_disk);
}

#[test]
fn a_reopened_store_has_exactly_the_acknowledged_data() {
    for sync in [Sync::Always, Sync::Interval(Duration::from_millis(5)), Sync::Never] {
        let dir = tempfile::tempdir().unwrap();
        let written = write_example(dir.path());
        for _ in 0..3 {
            let store = open(dir.path(), sync);
            assert_eq!(read_contents(&store).unwrap(), written);
        }
        let store = open(dir.path(), sync);
        // 20 appends, 3, and 10.
        assert_eq!(store.mark().position, 33, "{sync:?}");
        assert_eq!([32, 33].map(|position| store.locate(&run("c"), epoch(1), position).unwrap().0), [5, 5]);
        assert_eq!(store.locate(&run("b"), epoch(1), 4).unwrap(), Sequence(4));
        assert_eq!(commit_one(&store, append(&run("a"), 12, &["next"])), 34, "{sync:?}");
        drop(store);
        let store = open_verified(dir.path(), sync);
        assert_eq!(read(&store, &run("a"), 12, ALL), [(13, "next".to_owned())]);
    }
}

#[test]
fn positions_are_not_reused_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Sync::Always);
    {
        commit_one(&store, append(&run("a"), 0, &["one"]));
        commit_one(&store, append(&run("last"), 0, &["one"]));
        store.erase(&run("last")).unwrap();
    };
    store.persist().unwrap();
    drop(store);
    let store = open(dir.path(), Sync::Always);
    assert_eq!(store.mark().position, 2, "also the position of an erased append");
    assert_eq!(commit_one(&store, append(&run("b"), 0, &["one"])), 3);
    assert_eq!(store.list(LogKind::Run, None, 1).unwrap()[0].created, 3);
}

#[test]
fn a_directory_in_use_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Sync::Never);
    assert!(matches!(on_disk(dir.path(), Sync::Never), Err(StoreError::Locked { .. })));
    drop(store);
    open(dir.path(), Sync::Never);
}

/// The places between two ends at which this run of the gate cuts, and the last.
fn cuts(from: u64, to: u64) -> impl Iterator<Item = u64> {
    part_of((from..to).collect(), 4).into_iter().chain([to])
}

#[test]
fn a_last_commit_cut_at_any_byte_is_whole_or_absent_and_refused_if_it_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let before = write_example(dir.path());
    let (from, old_mark) = (data_end(&newest_segment(dir.path())), std::fs::read(mark_file(dir.path())).unwrap());
    let store = open(dir.path(), Sync::Always);
    store.commit(&[append(&run("c"), 5, &["last"]), append(&run("d"), 0, &["last"])]).unwrap();
    let after = read_contents(&store).unwrap();
    drop(store);
    let (to, new_mark) = (data_end(&newest_segment(dir.path())), std::fs::read(mark_file(dir.path())).unwrap());
    assert!(from < to, "{from} {to}");
    for end in cuts(from, to) {
        let cut = tempfile::tempdir().unwrap();
        copy_directory(dir.path(), cut.path());
        lose_power(cut.path(), end, &old_mark);
        let expected = if end == to { &after } else { &before };
        let store = open(cut.path(), Sync::Always);
        assert_eq!(&read_contents(&store).unwrap(), expected, "cut at {end} of {to}");
        commit_one(&store, append(&run("e"), 0, &["next"]));
        let expected = read_contents(&store).unwrap();
        drop(store);
        assert_eq!(read_contents(&open(cut.path(), Sync::Always)).unwrap(), expected);

        if end < to {
            let lost = tempfile::tempdir().unwrap();
            copy_directory(dir.path(), lost.path());
            lose_power(lost.path(), end, &new_mark);
            match on_disk(lost.path(), Sync::Always).err() {
                Some(StoreError::Corrupt { path, what }) => {
                    assert_eq!(path, newest_segment(lost.path()));
                    assert!(what.contains("were acknowledged"), "{what}");
                }
                other => panic!("cut at {end} of {to}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_compaction_cut_at_any_byte_is_whole_or_absent_and_keeps_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    write_example(dir.path());
    let store = open(dir.path(), Sync::Always);
    save_checkpoint(&store, &run("b"), 0, 25, "current");
    store.persist().unwrap();
    let before = read_contents(&store).unwrap();
    drop(store);
    let (from, mark) = (data_end(&newest_segment(dir.path())), std::fs::read(mark_file(dir.path())).unwrap());
    let store = open(dir.path(), Sync::Always);
    compact(&store, &run("b"), 25, |n| n % 10 == 8 || n == 25);
    let after = read_contents(&store).unwrap();
    let located = |store: &OnDisk| (0..35).map(|p| store.locate(&run("b"), epoch(1), p).unwrap()).collect::<Vec<_>>();
    let places = located(&store);
    drop(store);
    let to = data_end(&newest_segment(dir.path()));
    for end in cuts(from, to) {
        let cut = tempfile::tempdir().unwrap();
        copy_directory(dir.path(), cut.path());
        lose_power(cut.path(), end, &mark);
        let store = open(cut.path(), Sync::Always);
        assert_eq!(&read_contents(&store).unwrap(), if end == to { &after } else { &before }, "cut at {end} of {to}");
        assert_eq!(located(&store), places, "cut at {end} of {to}");
        // A repeated compaction succeeds.
        compact(&store, &run("b"), 25, |n| n % 10 == 8 || n == 25);
        assert_eq!(read_contents(&store).unwrap(), after, "cut at {end} of {to}");
    }
}

#[test]
fn a_checkpoint_survives_once_the_store_was_persisted() {
    let dir = tempfile::tempdir().unwrap();
    let (a, large) = (run("a"), Bytes::from(vec![5; 9 << 20]));
    let store = open(dir.path(), Sync::Always);
    {
        commit_one(&store, append(&a, 0, &["one"]));
        save_checkpoint(&store, &a, 1, 1, large.clone());
    };
    store.persist().unwrap();
    drop(store);
    let store = open(dir.path(), Sync::Always);
    assert!(read_checkpoint(&store, &a, 1, 9) == Some((1, large)));
}

#[test]
fn a_checkpoint_never_exists_without_its_rows() {
    for sync in [Sync::Always, Sync::Never] {
        let dir = tempfile::tempdir().unwrap();
        let a = run("a");
        let store = open(dir.path(), sync);
        {
            commit_one(&store, append(&a, 0, &["one"]));
            save_checkpoint(&store, &a, 1, 1, "of one");
        };
        store.persist().unwrap();
        drop(store);
        let (from, mark) = (data_end(&newest_segment(dir.path())), std::fs::read(mark_file(dir.path())).unwrap());
        let store = open(dir.path(), sync);
        {
            commit_one(&store, append(&a, 1, &["two"]));
            save_checkpoint(&store, &a, 1, 2, "of two");
            commit_one(&store, append(&a, 2, &["three"]));
        };
        drop(store);
        let to = data_end(&newest_segment(dir.path()));
        let mut seen = BTreeSet::new();
        for end in cuts(from, to) {
            let cut = tempfile::tempdir().unwrap();
            copy_directory(dir.path(), cut.path());
            lose_power(cut.path(), end, &mark);
            let store = open(cut.path(), sync);
            let last = store.load(&a).unwrap().unwrap().last.0;
            seen.insert((last, read_checkpoint(&store, &a, 1, 9).unwrap().0));
        }
        // The checkpoint of two was in memory, and is derived again.
        assert_eq!(Vec::from_iter(seen), [(1, 1), (2, 1), (3, 1)], "{sync:?}");
    }
}

/// A store that was killed while it wrote tables: some trees have the last commits, and others do not.
#[test]
fn trees_that_were_persisted_up_to_different_commits_are_made_equal() {
    let before = tempfile::tempdir().unwrap();
    let store = open(before.path(), Sync::Always);
    {
        for n in 0..10 {
            commit_one(&store, append(&run("b"), n * 2, &["b", "bb"]));
        }
        save_checkpoint(&store, &run("b"), 0, 20, "old");
    };
    store.persist().unwrap();
    drop(store);
    let after = tempfile::tempdir().unwrap();
    copy_directory(before.path(), after.path());
    let store = open(after.path(), Sync::Always);
    {
        compact(&store, &run("b"), 20, |n| n % 5 > 1 || n == 20);
        commit_one(&store, with_state(with_body(append(&run("a"), 0, &["one"]), "b0", "small"), b"n", Some("1")));
        commit_one(&store, append(&run("b"), 20, &["more"]));
        compact(&store, &run("b"), 21, |n| n % 5 > 2 || n == 21);
        commit_one(&store, with_body(append(&run("gone"), 0, &["gone"]), "b1", "gone"));
        store.erase(&run("gone")).unwrap();
    };
    let journal = tempfile::tempdir().unwrap();
    copy_directory(&after.path().join("journal"), journal.path());
    store.persist().unwrap();
    let expected = read_contents(&store).unwrap();
    drop(store);
    let trees = ["rows", "index", "state", "names", "bodies"];
    for persisted in 0..=trees.len() {
        let dir = tempfile::tempdir().unwrap();
        copy_directory(after.path(), dir.path());
        std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
        copy_directory(journal.path(), &dir.path().join("journal"));
        for tree in &trees[persisted..] {
            let place = dir.path().join("trees").join(tree);
            std::fs::remove_dir_all(&place).unwrap();
            copy_directory(&before.path().join("trees").join(tree), &place);
        }
        let store = open(dir.path(), Sync::Always);
        assert_eq!(read_contents(&store).unwrap(), expected, "{persisted} trees were persisted");
        drop(store);
        let inspection = StoreInspection::open(dir.path()).unwrap().ok().unwrap();
        assert_eq!(inspection.findings().unwrap(), [], "{persisted} trees were persisted");
    }
}

/// Flips bits of one byte of a file in a copy of `dir`.
///
/// The contents must be unchanged, or an error must name the file.
fn check_flip(dir: &Path, written: &Contents, file: &Path, at: u64, mask: u8) -> Result<bool, String> {
    let flipped = tempfile::tempdir().unwrap();
    copy_directory(dir, flipped.path());
    let target = flipped.path().join(file);
    let handle = OpenOptions::new().read(true).write(true).open(&target).unwrap();
    let mut byte = [0];
    handle.read_exact_at(&mut byte, at).unwrap();
    handle.write_all_at(&[byte[0] ^ mask], at).unwrap();
    let read = on_disk(flipped.path(), Sync::Always).and_then(|store| read_contents(&store));
    match read {
        Ok(read) if read == *written => Ok(false),
        Ok(_) => Err("the store returned other data".to_owned()),
        Err(StoreError::Corrupt { path, .. }) if path == target => Ok(true),
        // A wrong pointer and a wrong target of the pointer cannot be distinguished.
        Err(StoreError::Corrupt { path, .. }) if file.ends_with("current") && path.parent() == target.parent() => Ok(true),
        Err(e) => Err(e.to_string()),
    }
}

fn check_flips(mut is_sampled: impl FnMut(&Path, u64) -> Option<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let written = write_example(dir.path());
    let (mut refused, mut harmless, mut wrong) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut kinds = BTreeSet::new();
    for path in list_files(dir.path()) {
        let file = path.strip_prefix(dir.path()).unwrap();
        kinds.extend(file.components().map(|part| part.as_os_str().to_string_lossy().into_owned()));
        for at in 0..path.metadata().unwrap().len() {
            let Some(mask) = is_sampled(file, at) else { continue };
            match check_flip(dir.path(), &written, file, at, mask) {
                Ok(true) => *refused.entry(file.to_owned()).or_insert(0) += 1,
                Ok(false) => *harmless.entry(file.to_owned()).or_insert(0) += 1,
                Err(e) => wrong.push(format!("{} at {at} by {mask:#x}: {e}", file.display())),
            }
        }
    }
    println!("refused {refused:#?}\nharmless {harmless:#?}");
    assert!(wrong.is_empty(), "{} flips: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    for kind in ["format", "journal", "tail", "current", "tables", "blobs"] {
        assert!(kinds.contains(kind), "no byte of {kind} was flipped: {kinds:?}");
    }
}

#[test]
fn a_flipped_bit_is_harmless_or_an_error_that_names_the_file() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    check_flips(|file, at| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let is_segment = file.extension().is_some_and(|ext| ext == "seg");
        let one_in = if is_segment && at > 16 << 10 { 20_000 } else { 60 };
        (seed.is_multiple_of(one_in)).then_some(1 << (seed >> 32 & 7))
    });
}

#[test]
#[ignore = "minutes: every byte of every file"]
fn a_flipped_byte_at_every_position_is_harmless_or_an_error_that_names_the_file() {
    // The rest of a segment is zeros.
    check_flips(|file, at| (at < 32 << 10 || file.extension().is_none_or(|ext| ext != "seg")).then_some(0xff));
}

const KILLED_DIR: &str = "PROSCENIUM_TEST_KILLED_DIR";
const KILLED_ROW_BYTES: &str = "PROSCENIUM_TEST_KILLED_ROW_BYTES";
const KILLED_RUNS: [u64; 7] = [0, 1, 2, 3, 4, 5, 6];

#[test]
#[ignore = "the part of the next tests that is killed"]
fn write_until_killed() {
    let Some(dir) = std::env::var_os(KILLED_DIR) else { return };
    let text = "x".repeat(std::env::var(KILLED_ROW_BYTES).unwrap().parse().unwrap());
    let store = open(Path::new(&dir), Sync::Always);
    {
        let mut last = store.load(&run("0")).unwrap().map_or(0, |loaded| loaded.last.0);
        loop {
            let group = KILLED_RUNS.map(|n| {
                let append = append(&run(&n.to_string()), last, &[&text, "y"]);
                with_body(with_state(append, b"last", Some(&(last + 2).to_string())), &format!("{n}-{last}"), text.clone())
            });
            let outcomes = store.commit(&group).unwrap();
            assert!(outcomes.iter().all(|outcome| matches!(outcome, AppendOutcome::Committed { .. })));
            last += 2;
            println!("\nacknowledged {last}");
        }
    };
}

/// Kills a writing process again and again after so many commits.
///
/// Every acknowledged append must exist each time.
fn check_kills(commits: impl IntoIterator<Item = usize>, row_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    for commits in commits {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "store::write_until_killed"])
            .env(KILLED_DIR, dir.path())
            .env(KILLED_ROW_BYTES, row_bytes.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut numbers = lines.filter_map(|line| line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u64>().ok()));
        let last = numbers.by_ref().take(commits).last().expect("the process writes");
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = numbers.last().unwrap_or(last);
        let store = open(dir.path(), Sync::Always);
        for n in KILLED_RUNS {
            let log = run(&n.to_string());
            let loaded = store.load(&log).unwrap().unwrap();
            let last = loaded.last.0;
            assert!((acknowledged..=acknowledged + 2).contains(&last), "{last} and {acknowledged}");
            assert_eq!(loaded.state, [(Bytes::from("last"), Bytes::from(last.to_string()))]);
            let rows = read(&store, &log, 0, ALL).into_iter().map(|(sequence, _)| sequence);
            assert!(rows.eq(1..=last), "not every row exactly once and in order");
            for at in [0, last - 2] {
                let id = BlobId::new(&format!("{n}-{at}")).unwrap();
                assert_eq!(store.blob(&id).unwrap().unwrap().body.len(), row_bytes);
            }
        }
    }
}

#[test]
fn acknowledged_appends_survive_a_killed_process() {
    check_kills([1, 2, 5, 50, 50, 90], 20);
}

#[test]
#[ignore = "minutes: hundreds of megabytes, so that journals are changed and tables written when it is killed"]
fn acknowledged_appends_survive_a_process_killed_during_table_writes() {
    check_kills((0..20).map(|n| 500 + n * 173 % 1000), 6000);
}
