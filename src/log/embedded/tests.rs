//! Tests of the embedded store that need its inside.

use super::erase::DELETE_KEYS_MAX;
use super::*;
use crate::log::RewrittenAppend;
use crate::log::journal::{Appended, JournalState};
use crate::log::testing::{OnDisk, on_disk};
use crate::log::{Append, Compaction};
use crate::model::RunId;

fn log() -> LogId {
    LogId::Run(RunId::new("a").unwrap())
}

fn append(expected: u64) -> Append {
    Append {
        log: log(),
        epoch: Epoch::from_random(1),
        expected: Sequence(expected),
        last: Sequence(expected + 1),
        rows: Bytes::from(format!("row {expected}")),
        blobs: vec![Blob { id: BlobId::new(&format!("b{expected}")).unwrap(), meta: Bytes::from("m"), body: Bytes::new() }],
        state: vec![(Bytes::from("k"), Some(Bytes::from("v")))],
    }
}

#[test]
fn the_store_fails_when_its_maintenance_thread_ends() {
    let patience = Duration::from_mins(5);
    let wait = |failure: Option<watch::Receiver<Option<StoreError>>>| {
        let (runtime, mut failure) = (tokio::runtime::Builder::new_current_thread().enable_time().build(), failure.unwrap());
        let failed =
            async { tokio::time::timeout(patience, failure.wait_for(Option::is_some)).await.map(|e| e.unwrap().clone()) };
        runtime.unwrap().block_on(failed).expect("the failure is known").unwrap().to_string()
    };
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    store.deletes.as_ref().unwrap().send(PendingDelete::new(u64::MAX)).unwrap();
    let why = wait(store.failure());
    assert!(why.contains("maintenance") && why.contains("a test asked for this panic"), "{why}");
    assert_eq!(store.commit(&[append(0)]).unwrap_err().to_string(), why);
    drop(store);

    let store = on_disk(dir.path(), Sync::Interval(Duration::from_millis(1))).unwrap();
    store.journal.break_for_tests(true);
    store.commit(&[append(0)]).unwrap();
    assert!(wait(store.journal.failure()).contains("writing the tail file"), "the sync between commits failed");
}

#[test]
fn a_body_that_an_older_version_emptied_where_it_was_removed_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    store.commit(&[append(0)]).unwrap();
    let id = BlobId::new("b0").unwrap();
    assert!(store.blob(&id).unwrap().is_some());
    let number = store.head(&log()).unwrap().unwrap().number;
    // As a version without removals applies one.
    let mut batch = Batch::derived();
    batch.insert(TreeName::Bodies, log_key(number, b"b0"), body_value(&Blob::removal(id.clone())));
    store.shared.trees.write(batch);
    assert_eq!(store.blob(&id).unwrap(), None);
}

const ALL: Limit = Limit { rows: usize::MAX, bytes: usize::MAX };

#[test]
fn the_next_start_finishes_an_interrupted_erasure_and_no_reader_sees_half_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    for expected in 0..DELETE_KEYS_MAX as u64 + 10 {
        store.commit(&[append(expected)]).unwrap();
    }
    store.shared.save_checkpoint(&log(), Epoch::from_random(1), 0, Sequence(9), b"checkpoint").unwrap();
    // As an erasure does, without the request to the thread that deletes.
    let number = store.head(&log()).unwrap().unwrap().number;
    let erasure = Commit::Erasure { number, log: log() };
    let position = store.mark().applied + 1;
    assert_eq!(pollster::block_on(store.journal.append(position - 1, &[erasure.encode()])).unwrap(), Appended::At(position));
    store.shared.apply(position, &erasure).unwrap();
    assert!(!store.shared.delete_batch(&mut PendingDelete::new(number)).unwrap());
    let seen = || {
        assert_eq!(store.load(&log()).unwrap(), None);
        assert_eq!(store.blob(&BlobId::new("b9").unwrap()).unwrap(), None);
        assert_eq!(store.list(LogKind::Run, None, 9).unwrap(), []);
    };
    seen();
    // The log is written anew before the old data is deleted: the two share nothing but the name.
    store.commit(&[append(0)]).unwrap();
    drop(store);

    let store = on_disk(dir.path(), Sync::Always).unwrap();
    let left = |tree| store.shared.trees.snapshot().prefix(tree, number.to_be_bytes()).count();
    while store.shared.persist.state.lock().deleted[1].is_empty() {
        environment::sleep_thread(Duration::from_millis(1));
    }
    assert_eq!([TreeName::Index, TreeName::State, TreeName::Bodies].map(left), [0, 0, 0]);
    assert_eq!(store.shared.trees.snapshot().iter(TreeName::Rows).count(), 1);
    store.persist().unwrap();
    let has_tombstone = || store.shared.trees.snapshot().get(TreeName::Names, &tombstone_key(number)).unwrap().is_some();
    while has_tombstone() {
        environment::sleep_thread(Duration::from_millis(1));
    }
    let read = store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL).unwrap();
    assert_eq!(read.iter().map(|stored| &stored.rows[..]).collect::<Vec<_>>(), [b"row 0"]);
    assert!(store.blob(&BlobId::new("b0").unwrap()).unwrap().is_some());
}

#[test]
fn compaction_frees_disk_space_and_erasure_frees_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Never).unwrap();
    let large = |expected: u64| {
        let noise = (0..4096_u64).map(|n| (n * n * 31 + expected * 7919) as u8 ^ ((n * expected) >> 7) as u8);
        Append { rows: noise.collect(), ..append(expected) }
    };
    let group: Vec<_> = (0..1000).map(large).collect();
    store.commit(&group).unwrap();
    let bytes = || {
        store.persist().unwrap();
        store.shared.trees.rewrite(|| false).unwrap();
        store.shared.trees.bytes()
    };
    let before = bytes();
    let gone = |position| RewrittenAppend { position, last: Sequence::NONE, rows: Bytes::new() };
    let appends = (1..1000).filter(|position| position % 10 != 0).map(gone).collect();
    let (epoch, last) = (Epoch::from_random(1), Sequence(1000));
    assert!(store.compact(&Compaction { log: log(), epoch, last, appends, state: Vec::new() }).unwrap());
    let after = bytes();
    assert!(after * 8 < before, "{after} of {before}");
    assert_eq!(store.shared.trees.snapshot().iter(TreeName::Rows).count(), 100);
    store.erase(&log()).unwrap();
    let left = |tree| store.shared.trees.snapshot().iter(tree).count();
    while [TreeName::Index, TreeName::Rows].map(left) != [0, 0] {
        environment::sleep_thread(Duration::from_millis(1));
    }
}

#[test]
fn what_is_erased_during_a_pass_gets_a_pass_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    let of = |name: &str| LogId::Run(RunId::new(name).unwrap());
    for name in ["first", "second"] {
        store.commit(&[Append { log: of(name), ..append(0) }]).unwrap();
    }
    store.erase(&of("first")).unwrap();
    store.shared.wait_until_deleted();
    let pass = store.remains();
    store.erase(&of("second")).unwrap();
    store.shared.rewrite_tables().unwrap();
    assert!(store.remains().rewritten > pass.commit, "the tables are without both");
    store.forget_remains(&pass).unwrap();
    let left = store.remains();
    assert!(left.since.is_some() && left.rewritten < left.commit, "{left:?}");
    store.shared.rewrite_tables().unwrap();
    store.forget_remains(&left).unwrap();
    assert_eq!(store.remains().since, None);
}

#[test]
fn after_a_failed_write_every_later_commit_fails() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    store.commit(&[append(0)]).unwrap();
    store.journal.break_for_tests(true);
    assert!(matches!(store.commit(&[append(1)]), Err(StoreError::Failed { .. })));
    store.journal.break_for_tests(false);
    assert!(matches!(store.commit(&[append(1)]), Err(StoreError::Failed { .. })));
    assert!(matches!(store.erase(&log()), Err(StoreError::Failed { .. })));
    drop(store);
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    assert!(store.load(&log()).unwrap().unwrap().last >= Sequence(1), "acknowledged data is present");
}

#[test]
fn an_incompletely_created_store_is_created_anew_and_one_without_its_parts_is_refused() {
    let open = |dir: &Path| on_disk(dir, Sync::Always);
    let is_named = |refused: Result<OnDisk, StoreError>, named: &Path| match refused {
        Err(StoreError::Corrupt { path, .. }) => assert_eq!(path, named),
        other => panic!("{:?}", other.err()),
    };
    let dir = tempfile::tempdir().unwrap();
    format::write_current(dir.path()).unwrap();
    std::fs::create_dir(dir.path().join(JOURNAL_DIR)).unwrap();
    std::fs::write(dir.path().join(JOURNAL_DIR).join("next"), [0; 100]).unwrap();
    let store = open(dir.path()).unwrap();
    store.commit(&[append(0)]).unwrap();
    store.persist().unwrap();
    store.commit(&[append(1)]).unwrap();
    drop(store);

    for gone in [format::FILE, "journal/tail"] {
        let path = dir.path().join(gone);
        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        is_named(open(dir.path()), &path);
        std::fs::write(&path, content).unwrap();
    }
    let (trees, aside) = (dir.path().join(TREES_DIR), dir.path().join("aside"));
    std::fs::rename(&trees, &aside).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(store.load(&log()).unwrap().unwrap().last, Sequence(2), "the journal still has every commit");
    drop(store);
    std::fs::remove_dir_all(&trees).unwrap();
    std::fs::rename(&aside, &trees).unwrap();
    std::fs::remove_dir_all(dir.path().join(JOURNAL_DIR)).unwrap();
    is_named(open(dir.path()), &trees);
}

#[test]
fn a_table_that_open_does_not_check_is_checked_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Always).unwrap();
    // In another block than the mark, which is read first.
    let large = Append { rows: Bytes::from(format!("row 0{}", "x".repeat(100_000))), ..append(0) };
    store.commit(&[large]).unwrap();
    store.persist().unwrap();
    let tables = store.shared.trees.path(TreeName::Rows).join("tables");
    drop(store);
    let table = tables.read_dir().unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&table).unwrap();
    let at = memchr::memmem::find(&bytes, b"row 0").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&table, bytes).unwrap();

    let is_named = |e: StoreError| matches!(e, StoreError::Corrupt { path, .. } if path == table);
    assert!(EmbeddedStore::open_verified(dir.path(), Sync::Always).is_err_and(is_named));
    let (store, _journal) = EmbeddedStore::open_checking(dir.path(), Sync::Always, 0, KeepCopy::Yes).unwrap();
    let read = store.read(&log(), Epoch::from_random(1), Sequence::NONE, ALL);
    assert!(read.is_err_and(is_named));
}

#[test]
fn a_body_stays_that_another_log_writes_while_an_erased_log_with_its_name_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), Sync::Never).unwrap();
    for round in 0..500 {
        let of = |name: &str| Append { log: LogId::Run(RunId::new(&format!("{name}{round}")).unwrap()), ..append(0) };
        store.commit(&[of("first")]).unwrap();
        store.erase(&of("first").log).unwrap();
        store.commit(&[of("second")]).unwrap();
        while store.shared.trees.snapshot().prefix(TreeName::State, (2 * round + 1_u64).to_be_bytes()).count() > 0 {}
        assert!(store.blob(&BlobId::new("b0").unwrap()).unwrap().is_some(), "round {round}");
    }
}
