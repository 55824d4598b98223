//! Concurrency of wakes and rings: a reader misses nothing, for any interleaving of the threads.

use super::*;
use crate::log::commit::{Submission, Summary};
use crate::log::journal::MemoryJournal;
use crate::log::memory::MemoryStore;
use crate::log::{Append, META};
use crate::model::RunId;
use tokio::sync::oneshot;

fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

fn activities() -> ReadRequest {
    let filter = Filter { audience: Audience::Internal, surfaces: Vec::new(), types: Vec::new(), agent: None };
    ReadRequest { filter, frames: Frames::Activities, replay: false }
}

/// Writes one row to a log, and returns the committer's result.
async fn write(logs: &Logs, groups: &mut mpsc::UnboundedReceiver<CommittedGroup>, log: &Arc<Log>) -> CommittedGroup {
    let last = log.tail().last;
    let text = format!(
        r#"{{"type":"text.delta","sequence":{},"messageId":"m","partId":"p","phase":"producing","surface":"conversation","payload":{{"text":"x"}}}}"#,
        last.next()
    );
    let mut rows = Vec::new();
    Row::encode(&mut rows, last.next(), [last; 3], [Some(text.as_bytes()); 3]);
    let summary = Summary { last_sequence: last.next(), seen_last: [last.next(); 3], ..Summary::default() };
    let append = Append {
        log: log.id.clone(),
        epoch: Epoch::from_random(1),
        expected: last,
        last: last.next(),
        rows: rows.into(),
        blobs: Vec::new(),
        state: vec![(Bytes::from_static(META), Some(serde_json::to_vec(&summary).unwrap().into()))],
    };
    let (ack, _durable) = oneshot::channel();
    let (appends, chain) = (vec![append], Arc::default());
    logs.submit(Submission { log: log.clone(), appends, summary: Arc::new(summary), chain, index: 0, ack });
    groups.recv().await.unwrap()
}

#[tokio::test]
async fn a_second_reader_finds_no_outdated_ring_while_the_first_one_joins() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let feed = Feed::new(logs.clone(), FeedConfig::default());
    let log = logs.log(&run("r")).await.unwrap();
    write(&logs, &mut groups, &log).await;
    let mut early = feed.read(&log.id, activities(), StartAt::Start).await.unwrap();
    early.next().await.unwrap().unwrap();
    drop(early);
    // The view has no readers, so its ring does not move.
    write(&logs, &mut groups, &log).await;
    // The first reader has subscribed, and its thread goes no further.
    let _first = feed.subscribe(&log.id, &activities(), |_, listeners| listeners.join()).await.unwrap();
    let mut second = feed.read(&log.id, activities(), StartAt::Start).await.unwrap();
    let hydration = second.next().await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&hydration);
    assert!(
        text.contains(&Cursor::at(Epoch::from_random(1), Sequence(2)).to_string()),
        "the hydration lacks the second row: {text}"
    );
}

#[tokio::test]
async fn a_reader_that_subscribes_while_the_flusher_finds_none_misses_no_commit() {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let log = logs.log(&run("r")).await.unwrap();
    log.watch();
    assert_eq!(write(&logs, &mut groups, &log).await.moved.len(), 1);
    // The reader subscribes after the flusher found none; so does a commit, which is not announced again.
    let found = write(&logs, &mut groups, &log).await.moved.is_empty().then_some(());
    let times = std::cell::Cell::new(0);
    let look = || found.filter(|()| times.replace(times.get() + 1) > 0);
    assert_eq!(find_readers(&log, look), Some(()), "the flusher looks again");
    assert_eq!(find_readers(&log, || None::<()>), None);
    assert_eq!(write(&logs, &mut groups, &log).await.moved.len(), 1, "the next commit is announced");
}

#[tokio::test]
async fn a_reader_of_too_many_logs_gets_the_limit() {
    let (logs, _groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    let feed = Feed::new(logs, FeedConfig::default());
    let members = LogSet::Named((0..=merged_reader::MEMBERS_MAX).map(|n| run(&format!("r{n}"))).collect());
    let mut reader = feed.read_merged(members, activities(), StartAt::Start);
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, StoreError::TooManyLogs { count: 16_385, limit: merged_reader::MEMBERS_MAX }), "{error}");
    assert!(feed.hubs.is_empty(), "no log was opened");
}
