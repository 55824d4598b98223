//! Tests of tails and positions after commits, and of the indexes of sessions and erased logs.

use super::*;
use crate::log::embedded::{EmbeddedStore, Sync};
use crate::log::journal::{LocalJournal, MemoryJournal};
use crate::log::memory::MemoryStore;
use crate::log::sessions::{ListPlace, SessionSort};
use crate::log::{Append, Commit, META, Place, PlacedAppend};
use crate::model::SessionId;
use crate::source::ledger::{RunState, Status};
use tokio::sync::oneshot;

fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

type Groups = mpsc::UnboundedReceiver<CommittedGroup>;

/// An append that adds one row to the log.
fn append(log: &LogId, last: Sequence, summary: &Summary) -> Append {
    let mut rows = Vec::new();
    Row::encode(&mut rows, last.next(), [last; 3], [Some(b"{}"); 3]);
    Append {
        log: log.clone(),
        epoch: Epoch::from_random(1),
        expected: last,
        last: last.next(),
        rows: rows.into(),
        blobs: Vec::new(),
        state: vec![(Bytes::from_static(META), Some(serde_json::to_vec(summary).unwrap().into()))],
    }
}

fn open((store, journal): (EmbeddedStore, LocalJournal)) -> (Arc<Logs>, Groups) {
    Logs::open(store, Arc::new(journal)).unwrap()
}

/// Writes one row to a log, and waits until it is visible.
async fn write(logs: &Logs, groups: &mut Groups, log: &Arc<Log>, summary: Summary) {
    let append = append(&log.id, log.tail().last, &summary);
    let (ack, durable) = oneshot::channel();
    let (appends, chain) = (vec![append], Arc::default());
    logs.submit(Submission { log: log.clone(), appends, summary: Arc::new(summary), chain, index: 0, ack });
    for (ack, result) in groups.recv().await.unwrap().acks {
        ack.send(result).unwrap();
    }
    durable.await.unwrap().unwrap();
}

#[tokio::test]
async fn recent_appends_equal_the_stored_ones_and_nothing_visible_lies_beyond_the_position() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    assert_eq!(logs.position(), 0);
    let (a, b) = (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap());
    a.watch();
    for n in 0..20 {
        write(&logs, &mut groups, if n % 3 == 0 { &b } else { &a }, Summary::default()).await;
        assert_eq!(logs.position(), n + 1);
    }
    let epoch = Epoch::from_random(1);
    for after in (0..=13).map(Sequence) {
        let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
        let stored = logs.read_appends(&a.id, epoch, after, limit).await.unwrap();
        let (tail, recent) = a.recent_appends_after(after);
        assert_eq!((tail.last, recent), (Sequence(13), Some(stored)), "after {after}");
    }
    assert_eq!(b.recent_appends_after(Sequence(1)).1, None, "the log is not watched");
    assert_eq!(logs.query(move |store| store.locate(&b.id, epoch, 4)).await.unwrap(), Sequence(2));
}

#[tokio::test]
async fn a_stored_append_beyond_the_tail_is_not_readable_yet() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let (log, closed) = (logs.log(&run("a")).await.unwrap(), run("closed"));
    write(&logs, &mut groups, &log, Summary::default()).await;
    // The state between the commit in the store and the move of the tail.
    let ahead = [append(&log.id, Sequence(1), &Summary::default()), append(&closed, Sequence::NONE, &Summary::default())];
    let places = [(2, 1, false), (3, 2, true)].map(|(position, number, creates)| Place { position, number, creates });
    let ahead = ahead.into_iter().zip(places).map(|(append, place)| PlacedAppend { append, place }).collect();
    logs.work(move |store| store.apply(2, &Commit::Group(ahead)).unwrap()).await;
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    let read = async |log: &LogId, after: u64| {
        let rows = logs.read(log, Epoch::from_random(1), Sequence(after), limit).await.unwrap();
        rows_after(rows, Sequence(after)).map(|row| row.sequence().0).collect::<Vec<_>>()
    };
    assert_eq!((read(&log.id, 0).await, read(&log.id, 1).await), (vec![1], vec![]));
    assert_eq!(read(&closed, 0).await, [1], "a closed log has no writer");
}

#[tokio::test]
async fn a_session_is_known_once_its_log_is_visible_and_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let id = |name: &str| SessionId::new(name).unwrap();
    let summary_of = |session: Option<&str>, parent: Option<&str>| Summary {
        session_id: session.map(id),
        parent_session_id: parent.map(id),
        ..Summary::default()
    };
    let of = |logs: &Logs, session: &str| {
        let sessions = logs.sessions();
        (sessions.created_order(&id(session)), sessions.runs_of(&id(session)), sessions.children_of(&id(session)))
    };
    let runs = |names: &[&str]| names.iter().map(|name| RunId::new(name).unwrap()).collect::<Vec<_>>();

    let (logs, mut groups) = open(EmbeddedStore::open(dir.path(), Sync::Never).unwrap());
    let (a, b, c) = (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap(), logs.log(&run("c")).await.unwrap());
    let waiting = logs.sessions().watch(&id("s"));
    write(&logs, &mut groups, &a, summary_of(None, None)).await;
    assert_eq!(of(&logs, "s"), (None, vec![], vec![]));
    write(&logs, &mut groups, &b, summary_of(Some("s"), None)).await;
    assert_eq!(of(&logs, "s"), (Some(2), runs(&["b"]), vec![]));
    waiting.woken().await;
    write(&logs, &mut groups, &a, summary_of(Some("s"), None)).await;
    assert_eq!(of(&logs, "s"), (Some(1), runs(&["a", "b"]), vec![]));
    write(&logs, &mut groups, &c, summary_of(Some("t"), Some("s"))).await;
    let own = logs.log(&LogId::Session(id("s"))).await.unwrap();
    write(&logs, &mut groups, &own, summary_of(Some("s"), None)).await;
    let all = of(&logs, "s");
    assert_eq!((&all, logs.sessions().has_own_log(&id("s"))), (&(Some(1), runs(&["a", "b"]), vec![id("t")]), true));
    drop((logs, a, b, c, own));
    // The committer releases the store after it has sent all answers.
    assert!(groups.recv().await.is_none());

    let store = loop {
        match EmbeddedStore::open(dir.path(), Sync::Never) {
            Err(StoreError::Locked { .. }) => {}
            opened => break opened.unwrap(),
        }
    };
    let (logs, _groups) = open(store);
    assert_eq!((of(&logs, "s"), logs.sessions().has_own_log(&id("s")), logs.position()), (all, true, 5));
}

#[test]
fn an_unread_flag_of_an_older_store_reads_as_a_number() {
    for (stored, unread) in [("true", Some(1)), ("false", Some(0)), ("7", Some(7)), ("null", None)] {
        let preview: Preview = serde_json::from_str(&format!("{{\"unread\":{stored}}}")).unwrap();
        assert_eq!(preview.unread, unread, "{stored}");
    }
    assert_eq!(serde_json::from_str::<Preview>("{}").unwrap(), Preview::default());
}

#[tokio::test]
async fn an_erased_log_is_open_like_an_unwritten_one_and_its_session_forgets_it() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let session = SessionId::new("s").unwrap();
    let summary_of = || Summary { session_id: Some(session.clone()), ..Summary::default() };
    let (a, b) = (logs.log(&run("a")).await.unwrap(), logs.log(&run("b")).await.unwrap());
    a.watch();
    for log in [&a, &a, &b] {
        write(&logs, &mut groups, log, summary_of()).await;
    }
    let waiting = logs.sessions().watch(&session);
    logs.erase(&a).await.unwrap();
    let tail = a.tail();
    assert_eq!((tail.epoch, tail.last, &*tail.summary), (None, Sequence::NONE, &Summary::default()));
    assert_eq!(a.recent_rows_after(Sequence::NONE).1, Some(Vec::new()));
    assert!(Arc::ptr_eq(&a, &logs.log(&a.id).await.unwrap()));
    assert_eq!(logs.sessions().runs_of(&session), [RunId::new("b").unwrap()]);
    assert!(waiting.has_changed());
    waiting.mark_unchanged();
    write(&logs, &mut groups, &a, summary_of()).await;
    assert_eq!(a.recent_appends_after(Sequence::NONE).1.unwrap()[0].position, 4);
    assert_eq!(logs.sessions().list(SessionSort::Created, None, None, 9), [(ListPlace { at: 0, created: 2 }, session.clone())]);
    assert_eq!(logs.sessions().runs_of(&session), ["b", "a"].map(|name| RunId::new(name).unwrap()));
    // The committer notifies session watchers last.
    waiting.woken().await;
}

#[tokio::test]
async fn commits_of_another_process_move_the_same_state_as_own_ones() {
    let journal = Arc::new(MemoryJournal::default().keeping_all());
    let open = || Logs::open(MemoryStore::new(), journal.clone()).unwrap();
    let ((here, mut groups), (there, mut others)) = (open(), open());
    let session = SessionId::new("s").unwrap();
    let summary_of = |last| Summary { session_id: Some(session.clone()), last_sequence: Sequence(last), ..Summary::default() };
    let (ours, theirs) = (here.log(&run("a")).await.unwrap(), there.log(&run("a")).await.unwrap());
    theirs.watch();
    let watcher = there.sessions().watch(&session);
    // The other process learns of these with its own next commit.
    write(&here, &mut groups, &ours, summary_of(1)).await;
    write(&here, &mut groups, &ours, summary_of(2)).await;
    write(&here, &mut groups, &here.log(&run("b")).await.unwrap(), summary_of(1)).await;
    assert_eq!((theirs.tail().last, there.position()), (Sequence::NONE, 0));
    let own = there.log(&run("c")).await.unwrap();
    let next = append(&own.id, Sequence::NONE, &summary_of(1));
    let (ack, durable) = oneshot::channel();
    let (appends, chain) = (vec![next], Arc::default());
    there.submit(Submission { log: own.clone(), appends, summary: Arc::new(summary_of(1)), chain, index: 0, ack });
    // The first commit announces the log, which stays announced until its readers have it.
    assert_eq!(others.recv().await.unwrap().moved.iter().map(|log| log.id.clone()).collect::<Vec<_>>(), [run("a")]);
    for (ack, result) in others.recv().await.unwrap().acks {
        ack.send(result).unwrap();
    }
    durable.await.unwrap().unwrap();
    watcher.woken().await;
    assert_eq!((theirs.tail().last, theirs.tail().summary.last_sequence, there.position()), (Sequence(2), Sequence(2), 4));
    assert_eq!(theirs.recent_appends_after(Sequence::NONE).1.unwrap().len(), 2);
    assert_eq!(there.sessions().runs_of(&session), ["a", "b", "c"].map(|name| RunId::new(name).unwrap()));
    assert_eq!((there.log_count(), there.store_epoch()), (3, here.store_epoch()));

    // A stale append conflicts, as with a faster writer in the same process.
    let (ack, durable) = oneshot::channel();
    let stale = append(&run("b"), Sequence::NONE, &summary_of(1));
    let (log, appends, chain) = (here.log(&run("b")).await.unwrap(), vec![stale], Arc::<Chain>::default());
    here.submit(Submission { log, appends, summary: Arc::new(summary_of(1)), chain: chain.clone(), index: 0, ack });
    for (ack, result) in groups.recv().await.unwrap().acks {
        ack.send(result).unwrap();
    }
    assert!(durable.await.unwrap().is_err() && chain.has_refused(0));

    // A compaction and an erasure, which the other process applies before its own erasure.
    let summary = summary_of(2);
    let compacted = Summary { compacted: CompactionState { times: 1, ..CompactionState::default() }, ..summary };
    let state = vec![(Bytes::from_static(META), Some(serde_json::to_vec(&compacted).unwrap().into()))];
    let (epoch, last, appends) = (Epoch::from_random(1), Sequence(2), Vec::new());
    let compaction = Compaction { log: run("a"), epoch, last, appends, state };
    let again = (compaction.clone(), Arc::new(compacted.clone()));
    let turn = ours.lock_for_rewrite().await;
    assert!(here.compact(turn, compaction, Arc::new(compacted)).await.unwrap());
    // The other process compacts the same log, and learns of the first compaction while it excludes readers.
    let patience = std::time::Duration::from_mins(5);
    let turn = theirs.lock_for_rewrite().await;
    let second = tokio::time::timeout(patience, there.compact(turn, again.0, again.1)).await;
    assert!(second.expect("it does not wait for itself").unwrap());
    here.erase(&here.log(&run("b")).await.unwrap()).await.unwrap();
    there.erase(&own).await.unwrap();
    assert_eq!(theirs.compaction_count(), 1);
    assert_eq!(there.sessions().runs_of(&session), [RunId::new("a").unwrap()]);
    assert_eq!((there.log_count(), there.load(&run("b")).await.unwrap()), (1, None));
}

#[tokio::test]
async fn the_end_of_a_run_counts_in_the_process_that_committed_it() {
    let journal = Arc::new(MemoryJournal::default().keeping_all());
    let open = || Logs::open(MemoryStore::new(), journal.clone()).unwrap();
    let ended = || Summary { run: RunState { status: Status::Completed, ..RunState::default() }, ..Summary::default() };
    let end = async |logs: &Logs, groups: &mut Groups, name: &str| {
        let log = logs.log(&run(name)).await.unwrap();
        let append = append(&log.id, Sequence::NONE, &ended());
        let (ack, mut durable) = oneshot::channel();
        logs.submit(Submission { log, appends: vec![append], summary: ended().into(), chain: Arc::default(), index: 0, ack });
        // The commits of others come in groups without an answer.
        while durable.try_recv().is_err() {
            for (ack, result) in groups.recv().await.unwrap().acks {
                ack.send(result).unwrap();
            }
        }
    };
    let count = |logs: &Logs| logs.run_outcomes().all().iter().map(|(_, of)| of.ended["completed"]).sum::<u64>();
    let (here, mut groups) = open();
    end(&here, &mut groups, "before").await;
    let (there, mut others) = open();
    end(&here, &mut groups, "while it follows").await;
    end(&there, &mut others, "own").await;
    assert!(there.log(&run("while it follows")).await.unwrap().tail().summary.run.status.is_end(), "it has caught up");
    assert_eq!((count(&here), count(&there)), (2, 1));
}

#[tokio::test]
async fn a_panic_of_the_committer_fails_the_store_with_its_message_and_answers_every_caller() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let log = logs.log(&run("a")).await.unwrap();
    let submit = |append: Append| {
        let (ack, durable) = oneshot::channel();
        let (appends, chain) = (vec![append], Arc::default());
        logs.submit(Submission { log: log.clone(), appends, summary: Arc::default(), chain, index: 0, ack });
        durable
    };
    // Rows without a move of the tail: the store asserts against that.
    let contradiction = Append { last: Sequence::NONE, ..append(&log.id, Sequence::NONE, &Summary::default()) };
    let patience = std::time::Duration::from_mins(5);
    let _unanswered = submit(contradiction).await;
    assert!(groups.recv().await.is_none(), "the committer has ended without a commit");
    let failure = tokio::time::timeout(patience, logs.failed()).await.expect("the failure is known").to_string();
    assert!(failure.contains("committer") && failure.contains("rows exactly when the tail moves"), "{failure}");
    assert_eq!(logs.failure().unwrap().to_string(), failure);
    let later = submit(append(&log.id, Sequence::NONE, &Summary::default())).await.unwrap();
    assert_eq!(later.unwrap_err().to_string(), failure);
}

#[test]
fn a_writer_opens_its_log_while_all_threads_for_long_work_are_busy() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build().unwrap();
    let (free, taken) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Mutex::new(())));
    let held = taken.lock().unwrap();
    runtime.block_on(async {
        let (logs, _groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
        for n in 0..16 {
            let (logs, taken, free) = (logs.clone(), taken.clone(), free.clone());
            tokio::spawn(async move {
                let wait = move |_: &dyn Store| {
                    if n == 0 {
                        free.wait();
                    }
                    drop(taken.lock());
                };
                logs.work(wait).await;
            });
        }
        let begun = tokio::task::spawn_blocking(move || free.wait());
        let patience = std::time::Duration::from_mins(5);
        let opened = tokio::time::timeout(patience, async {
            begun.await.unwrap();
            (logs.log(&run("fresh")).await.unwrap(), logs.load(&run("fresh")).await.unwrap())
        });
        let opened = opened.await;
        drop(held);
        assert_eq!(opened.expect("a writer does not wait for readers").1, None);
    });
}

#[tokio::test]
async fn several_logs_open_as_one_does_and_a_log_that_is_opened_twice_is_the_same() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let names: Vec<_> = (0..3 * LOADS_AT_ONCE).map(|n| run(&format!("r{n}"))).collect();
    let written = logs.log(&names[7]).await.unwrap();
    write(&logs, &mut groups, &written, Summary { last_sequence: Sequence(1), ..Summary::default() }).await;
    drop(written);
    logs.sweep();
    let open = logs.log(&names[1]).await.unwrap();
    let (opened, meanwhile) = tokio::join!(logs.open_all(&names), logs.open_all(&names[5..9]));
    let (opened, meanwhile) = (opened.unwrap(), meanwhile.unwrap());
    assert_eq!(opened.iter().map(|log| log.id.clone()).collect::<Vec<_>>(), names);
    assert_eq!((opened[7].tail().last, opened[8].tail().epoch), (Sequence(1), None));
    assert!(Arc::ptr_eq(&opened[1], &open) && Arc::ptr_eq(&opened[7], &meanwhile[2]));
    assert!(logs.open_all(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_failed_sync_between_commits_is_a_failure_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (store, journal) = EmbeddedStore::open(dir.path(), Sync::Interval(std::time::Duration::from_millis(1))).unwrap();
    let journal = Arc::new(journal);
    let (logs, _groups) = Logs::open(store, journal.clone()).unwrap();
    let log = logs.log(&run("a")).await.unwrap();
    journal.break_for_tests(true);
    let (ack, _durable) = oneshot::channel();
    let (appends, chain) = (vec![append(&log.id, Sequence::NONE, &Summary::default())], Arc::default());
    logs.submit(Submission { log, appends, summary: Arc::default(), chain, index: 0, ack });
    let failure = tokio::time::timeout(std::time::Duration::from_mins(5), logs.failed()).await;
    let failure = failure.expect("the failure is known").to_string();
    assert!(failure.contains("writing the tail file"), "{failure}");
}

#[test]
fn a_summary_has_the_form_of_its_version_and_the_json_of_earlier_releases_stays_readable() {
    let json = serde_json::json!({
        "sessionId": "s", "threadId": "t", "parentSessionId": "p", "agent": "a",
        "run": {"status": "waiting", "phase": "tools", "attempt": 2, "begun": true, "pending": ["x"], "stale": true},
        "runForUser": {"status": "running", "phase": "producing", "attempt": 1, "settled": true, "paused": true},
        "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-02T00:00:00Z", "lastActivity": "2026-01-03T00:00:00Z",
        "lastSequence": 9, "seenLast": [1, 2, 9], "seenCount": [1, 2, 3],
        "shown": {"title": "T", "preview": ["m", "text"], "unread": true, "pinned": true, "stale": false},
        "compacted": {"times": 1, "through": 4, "considered": 5},
        "asking": [{"action": "x", "agent": "a", "kind": "tool_approval", "expiresAt": -1, "options": {"once": true}}],
        "controls": [{"id": "c", "agent": "a", "number": 7, "expiresAt": 8, "attempt": 1, "action": "x", "ofAttempt": 2}],
    });
    let summary = Summary::read(&run("a"), json.to_string().as_bytes()).unwrap();
    assert_eq!((summary.preview.unread, summary.controls.len(), summary.pending_actions.len()), (Some(1), 1, 1));
    let saved = summary.save();
    assert_eq!(Summary::read(&run("a"), &saved).unwrap(), summary);
    let form = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&saved));
    assert_eq!(form, "06e24aa0598f45d5", "the stored form has changed: its version must change, and the old form stay readable");
    let empty = Summary::default();
    assert_eq!(Summary::read(&run("a"), &empty.save()).unwrap(), empty);
}
