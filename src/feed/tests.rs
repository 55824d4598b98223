//! Wakes, rings and joins: a reader misses nothing, for any interleaving of the threads, and reads no more than it needs.

use super::last_seen::LastSeen;
use super::*;
use crate::encode::encoded::EncodedFrames;
use crate::log::commit::{Submission, Summary};
use crate::log::erased::ErasedRecord;
use crate::log::journal::MemoryJournal;
use crate::log::memory::MemoryStore;
use crate::log::row::Row;
use crate::log::server_state::EntryChange;
use crate::log::{Append, META};
use crate::model::{Audience, Epoch, RunId, Sequence, SessionId};
use bytes::Bytes;
use futures_util::FutureExt;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use tokio::sync::oneshot;

/// A feed without a flusher: a test flushes.
fn open() -> (Arc<Feed>, Arc<Logs>, mpsc::UnboundedReceiver<CommittedGroup>) {
    let (logs, groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default())).unwrap();
    (Feed::new(logs.clone(), FeedConfig::default()), logs, groups)
}

fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

fn activities() -> ReadRequest {
    let filter = Filter::all(Audience::Internal);
    ReadRequest { filter, frames: Frames::Activities, replay: false }
}

/// Writes one row to a log, and returns the committer's result.
async fn write(logs: &Logs, groups: &mut mpsc::UnboundedReceiver<CommittedGroup>, log: &Arc<Log>) -> CommittedGroup {
    write_rows(logs, groups, log, &["text.delta"], [true; 3]).await
}

/// Writes rows of these types in one append, for the audiences that may see them.
async fn write_rows(
    logs: &Logs,
    groups: &mut mpsc::UnboundedReceiver<CommittedGroup>,
    log: &Arc<Log>,
    types: &[&str],
    seen: [bool; 3],
) -> CommittedGroup {
    let (expected, mut last, mut rows) = (log.tail().last, log.tail().last, Vec::new());
    for event_type in types {
        let (prev, sequence) = (last, last.next());
        let text = format!(
            r#"{{"type":"{event_type}","sequence":{sequence},"messageId":"m","partId":"p","phase":"producing","surface":"conversation","payload":{{"text":"x"}}}}"#
        );
        Row::encode(&mut rows, sequence, [prev; 3], seen.map(|seen| seen.then_some(text.as_bytes())));
        last = sequence;
    }
    let seen_last = seen.map(|seen| if seen { last } else { Sequence::NONE });
    let summary = Summary { last_sequence: last, seen_last, ..Summary::default() };
    let append = Append {
        log: log.id.clone(),
        epoch: Epoch::from_random(1),
        expected,
        last,
        rows: rows.into(),
        blobs: Vec::new(),
        state: vec![(Bytes::from_static(META), Some(serde_json::to_vec(&summary).unwrap().into()))],
    };
    let (ack, _durable) = oneshot::channel();
    let (appends, chain) = (vec![append], Arc::default());
    logs.submit(Submission { log: log.clone(), appends, summary: Arc::new(summary), chain, index: 0, ack });
    groups.recv().await.unwrap()
}

/// Opens a feed with runs that were written one after the other, in three appends that fill a page each.
async fn open_with_turns(count: usize) -> (Arc<Feed>, Arc<Logs>, mpsc::UnboundedReceiver<CommittedGroup>, Vec<LogId>) {
    let (feed, logs, mut groups) = open();
    let ids: Vec<_> = (0..count).map(|n| run(&format!("r{n}"))).collect();
    for id in &ids {
        let log = logs.log(id).await.unwrap();
        for _ in 0..3 {
            write_rows(&logs, &mut groups, &log, &["text.delta"; 1000], [true; 3]).await;
        }
    }
    (feed, logs, groups, ids)
}

/// The frames, each with its cursor.
pub(super) fn decoded(frames: &EncodedFrames) -> impl Iterator<Item = (serde_json::Value, Option<Cursor>)> {
    let mut frames = frames.clone();
    let next = std::iter::from_fn(move || frames.next_frame());
    next.map(|(frame, cursor)| (serde_json::from_slice(&frame).unwrap(), cursor))
}

fn of_type(event_type: &str) -> Filter {
    Filter { types: vec![event_type.into()].into(), ..activities().filter }
}

#[tokio::test]
async fn a_filtered_reader_that_resumes_reads_no_row_before_a_checkpoint() {
    let (feed, logs, mut groups) = open();
    let log = logs.log(&run("r")).await.unwrap();
    let epoch = Epoch::from_random(1);
    write_rows(&logs, &mut groups, &log, &["first"], [true; 3]).await;
    for _ in 0..3 {
        write_rows(&logs, &mut groups, &log, &["text.delta"; 1000], [true; 3]).await;
    }
    let rare = of_type("first");
    assert_eq!(feed.prev_at(&log.id, epoch, &rare, Sequence(3001)).await.unwrap(), Sequence(1));
    // Only a reader of the checkpoint finds what no row says.
    let mut seen = LastSeen::default();
    seen.record(&"first".into(), &"conversation".into(), None, Sequence(7));
    let kind = folds::last_seen_kind(Audience::Internal);
    logs.save_checkpoint(&log.id, epoch, kind, Sequence(2000), seen.save().into()).await.unwrap();
    assert_eq!(feed.prev_at(&log.id, epoch, &rare, Sequence(3001)).await.unwrap(), Sequence(7));
    assert_eq!(feed.prev_at(&log.id, epoch, &rare, Sequence(1999)).await.unwrap(), Sequence(1));
    assert_eq!(feed.prev_at(&log.id, epoch, &of_type("text.delta"), Sequence(3000)).await.unwrap(), Sequence(3000));
}

#[tokio::test]
async fn a_log_that_has_grown_by_much_gets_several_checkpoints_one_after_the_other() {
    let (feed, logs, mut groups) = open();
    let log = logs.log(&run("r")).await.unwrap();
    for _ in 0..70 {
        write_rows(&logs, &mut groups, &log, &["text.delta"; 1000], [true; 3]).await;
    }
    let made = async |at| {
        let kind = Audience::Internal.index() as u8;
        logs.checkpoint(&log.id, Epoch::from_random(1), kind, Sequence(at)).await.unwrap().map(|(made_at, _)| made_at)
    };
    let due = folds::make_checkpoints(&logs, &log).await.unwrap();
    assert!(due <= log.tail().last, "the next one is due at once: {due}");
    assert_eq!(made(70_000).await, Some(Sequence(65_536)));
    // The rest, as after a compaction.
    feed.renew(&log.id).await.unwrap();
    assert_eq!([made(69_999).await, made(70_000).await], [65_536, 70_000].map(|at| Some(Sequence(at))));
}

#[tokio::test]
async fn the_last_envelope_before_a_position_is_the_same_with_and_without_a_checkpoint() {
    let (feed, logs, mut groups) = open();
    let log = logs.log(&run("r")).await.unwrap();
    let types: Vec<_> = (0..1000).map(|n| if n % 900 == 450 { "rare" } else { "text.delta" }).collect();
    for _ in 0..3 {
        write_rows(&logs, &mut groups, &log, &types, [true; 3]).await;
    }
    let found = async || {
        let mut found = Vec::new();
        for at in [0, 1, 450, 451, 1024, 2048, 2450, 2451, 2999, 3000] {
            for event_type in ["rare", "text.delta", "none"] {
                let filter = of_type(event_type);
                found.push(feed.prev_at(&log.id, Epoch::from_random(1), &filter, Sequence(at)).await.unwrap());
            }
        }
        found
    };
    let without = found().await;
    folds::make_checkpoints(&logs, &log).await.unwrap();
    let kind = folds::last_seen_kind(Audience::Internal);
    let saved = logs.checkpoint(&log.id, Epoch::from_random(1), kind, Sequence::MAX).await.unwrap();
    assert_eq!((saved.unwrap().0, found().await), (Sequence(3000), without));
}

#[tokio::test]
async fn a_session_reader_joins_logs_that_show_nothing_without_reading_their_rows() {
    let (feed, logs, mut groups) = open();
    let ids: Vec<_> = (0..3 * merged_reader::FOLDS_AT_ONCE).map(|n| run(&format!("r{n:03}"))).collect();
    for (n, id) in ids.iter().enumerate() {
        let log = logs.log(id).await.unwrap();
        write_rows(&logs, &mut groups, &log, &["text.delta"], [n % 50 == 0, true, true]).await;
    }
    // All threads for folds are busy. A fold of a log that shows nothing needs none.
    let request = ReadRequest { filter: Filter { audience: Audience::User, ..activities().filter }, ..activities() };
    let hidden: Vec<_> = ids.iter().skip(1).take(49).cloned().collect();
    let (held, free) = std::sync::mpsc::channel::<()>();
    let free = Arc::new(parking_lot::Mutex::new(free));
    for _ in 0..2 {
        let (logs, free) = (logs.clone(), free.clone());
        tokio::spawn(async move { logs.work(move |_| free.lock().recv()).await });
    }
    let mut reader = feed.read_merged(LogSet::Named(hidden), request.clone(), StartAt::Start);
    let frames = reader.next().await.unwrap();
    assert_eq!(decoded(&frames).filter(|(frame, _)| frame["frame"] == "Hydrated").count(), 49);
    drop(held);
    // Together with the others, in blocks, of which only the last has the position of the whole round.
    let (mut reader, mut kinds) = (feed.read_merged(LogSet::Named(ids.clone()), request, StartAt::Start), Vec::new());
    loop {
        let frames = reader.next().await.unwrap();
        kinds.extend(decoded(&frames).map(|(frame, cursor)| (frame["frame"].as_str().unwrap().to_owned(), cursor.is_some())));
        if kinds.last().is_some_and(|(_, has_cursor)| *has_cursor) {
            break;
        }
    }
    let count = |kind: &str| kinds.iter().filter(|(of, _)| of == kind).count();
    assert_eq!((count("ActivitySnapshot"), count("Hydrated")), (2 * ids.len().div_ceil(50), ids.len()));
    assert_eq!(kinds.iter().filter(|(_, has_cursor)| *has_cursor).count(), 1);
}

#[tokio::test]
async fn readers_of_several_logs_share_the_pages_of_a_large_one_and_get_the_others_meanwhile() {
    let (feed, logs, mut groups) = open();
    let (large, small) = (logs.log(&run("large")).await.unwrap(), logs.log(&run("small")).await.unwrap());
    for _ in 0..70 {
        write_rows(&logs, &mut groups, &large, &["text.delta"; 1000], [true; 3]).await;
    }
    write(&logs, &mut groups, &small).await;
    let mut pages = Vec::new();
    for _ in 0..2 {
        let logs = LogSet::Named(vec![large.id.clone(), small.id.clone()]);
        let mut reader = feed.read_merged(logs, activities(), StartAt::Start);
        let mut got = Vec::<(String, bool)>::new();
        while got.last().is_none_or(|(_, has_cursor)| !has_cursor) {
            let frames = reader.next().await.unwrap();
            let name = |frame: serde_json::Value| format!("{} of {}", frame["frame"], frame["runId"]).replace('"', "");
            got.extend(decoded(&frames).map(|(frame, cursor)| (name(frame), cursor.is_some())));
            pages.push(frames);
        }
        // Each run has a message and itself.
        let expected = [
            ("ActivitySnapshot of large", false),
            ("ActivitySnapshot of small", false),
            ("ActivitySnapshot of small", false),
            ("Hydrated of small", false),
            ("ActivitySnapshot of large", false),
            ("Hydrated of large", true),
        ];
        assert_eq!(got, expected.map(|(frame, has_cursor)| (frame.to_owned(), has_cursor)));
        assert!(matches!(reader.try_next(), TryNext::Idle));
    }
    let of_large: Vec<_> = pages.iter().filter(|page| page.len() > 64 * 1024).map(|page| page.as_ref().as_ptr()).collect();
    assert!(of_large.len() == 2 && of_large[0] == of_large[1], "{of_large:?}");
}

#[tokio::test]
async fn a_reader_of_the_events_of_several_logs_reads_each_page_once_and_in_commit_order() {
    let (feed, logs, mut groups, ids) = open_with_turns(20).await;
    // The runs wait for each other, and each goes on once.
    for id in &ids {
        write(&logs, &mut groups, &logs.log(id).await.unwrap()).await;
    }
    let request = ReadRequest { frames: Frames::Events, ..activities() };
    let mut reader = feed.read_merged(LogSet::Named(ids.clone()), request, StartAt::Start);
    let (mut events, mut last) = (Vec::new(), None);
    while let TryNext::Frames(frames) = reader.advance().await.unwrap() {
        assert!(frames.len() < 512 * 1024, "a block has {} bytes", frames.len());
        for (frame, cursor) in decoded(&frames) {
            let cursor = cursor.unwrap().after;
            assert!(last.replace(cursor) < Some(cursor), "{frame}");
            events.push((frame["runId"].as_str().unwrap().to_owned(), frame["sequence"].as_u64().unwrap()));
        }
    }
    let of_each = |sequences: std::ops::RangeInclusive<u64>| {
        (0..20).flat_map(move |n| sequences.clone().map(move |sequence| (format!("r{n}"), sequence)))
    };
    assert!(events.into_iter().eq(of_each(1..=3000).chain(of_each(3001..=3001))));
    assert_eq!(feed.counts.ring_misses.get(), 20 * 4);
}

#[tokio::test]
async fn a_reader_that_replays_several_logs_holds_the_activities_of_one() {
    let (feed, _logs, _groups, ids) = open_with_turns(3).await;
    let mut reader = feed.read_merged(LogSet::Named(ids), ReadRequest { replay: true, ..activities() }, StartAt::Start);
    let (mut runs, mut deltas) = (Vec::new(), 0);
    while let TryNext::Frames(frames) = reader.advance().await.unwrap() {
        for (frame, _) in decoded(&frames) {
            runs.push(frame["runId"].as_str().unwrap().to_owned());
            deltas += usize::from(frame["frame"] == "ActivityDelta");
        }
    }
    runs.dedup();
    assert_eq!(runs, ["r0", "r1", "r2"], "each run's history comes in one piece");
    assert!(deltas > 3 * 2900, "{deltas}");
}

/// Counts the wakes of a reader.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_idle_session_reader_is_served_without_a_future_and_woken_by_flushes_and_new_logs() {
    let (feed, logs, mut groups) = open();
    let summary = Summary { session_id: Some(SessionId::new("s").unwrap()), ..Summary::default() };
    logs.sessions().apply(&run("r"), 1, None, &summary).notify();
    let log = logs.log(&run("r")).await.unwrap();
    for (number, frames) in [(2, Frames::Activities), (3, Frames::Events)] {
        let session = LogSet::of_session(logs.clone(), SessionId::new("s").unwrap(), false, None);
        let mut reader = feed.read_merged(session, ReadRequest { frames, ..activities() }, StartAt::Now);
        assert!(matches!(reader.try_next(), TryNext::Busy), "the logs are not open yet");
        while !matches!(reader.advance().await.unwrap(), TryNext::Idle) {}
        let wakes = Arc::new(Wakes::default());
        reader.follow(&wakes.clone().into());
        assert!(matches!(reader.try_next(), TryNext::Idle));
        let hub = feed.hubs.get(&log.id).unwrap().clone();
        for flushes in 1..3 {
            write(&logs, &mut groups, &log).await;
            hub.flush(&feed).await;
            hub.flush(&feed).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), flushes, "one wake until the reader looks");
            assert!(matches!(reader.try_next(), TryNext::Frames(_)));
            assert!(matches!(reader.try_next(), TryNext::Idle));
        }
        let new = run(&format!("{frames:?}"));
        logs.sessions().apply(&new, number, None, &summary).notify();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 3);
        assert!(matches!(reader.try_next(), TryNext::Busy), "the new log is not open yet");
        reader.advance().await.unwrap();
        assert!(feed.hubs.contains_key(&new));
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_finds_the_activities_of_the_last_one_unless_the_log_has_moved() {
    let (feed, logs, mut groups) = open();
    let log = logs.log(&run("r")).await.unwrap();
    let has_fold = || feed.hubs.get(&log.id).unwrap().view(Audience::Internal, Frames::Activities).ring.lock().fold.is_some();
    write(&logs, &mut groups, &log).await;
    for round in 1..=2 {
        let mut reader = feed.read(&log.id, activities(), StartAt::Start).await.unwrap();
        assert_eq!(has_fold(), round == 2, "round {round}");
        let hydration = reader.next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(hydration.as_ref()).contains(r#""text":["x"]"#));
    }
    write(&logs, &mut groups, &log).await;
    let mut reader = feed.read(&log.id, activities(), StartAt::Start).await.unwrap();
    assert!(!has_fold());
    let hydration = reader.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(hydration.as_ref()).contains(r#""text":["xx"]"#));
}

#[tokio::test]
async fn a_second_reader_finds_no_outdated_ring_while_the_first_one_joins() {
    let (feed, logs, mut groups) = open();
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
    let text = String::from_utf8_lossy(hydration.as_ref());
    assert!(
        text.contains(&Cursor::at(Epoch::from_random(1), Sequence(2)).to_string()),
        "the hydration lacks the second row: {text}"
    );
}

#[tokio::test]
async fn a_reader_that_returns_to_the_start_gets_nothing_older_than_what_it_had() {
    let (feed, logs, mut groups) = open();
    let log = logs.log(&run("r")).await.unwrap();
    write(&logs, &mut groups, &log).await;
    let mut early = feed.read(&log.id, activities(), StartAt::Start).await.unwrap();
    early.next().await.unwrap().unwrap();
    let mut reader = feed.read(&log.id, ReadRequest { replay: true, ..activities() }, StartAt::Start).await.unwrap();
    // The replay reads the log, which has a row more than the last flush.
    write(&logs, &mut groups, &log).await;
    let mut replayed = reader.next().await.unwrap().unwrap();
    let last = std::iter::from_fn(|| replayed.next_frame()).filter_map(|(_, cursor)| cursor).last();
    assert_eq!(last, Some(Cursor::at(Epoch::from_random(1), Sequence(2))));
    reader.restart();
    assert!(matches!(reader.try_next(), TryNext::Idle), "a snapshot without the last row");
    feed.hubs.get(&log.id).unwrap().clone().flush(&feed).await;
    let TryNext::Frames(hydration) = reader.try_next() else { panic!("no snapshot after the flush") };
    let text = String::from_utf8_lossy(hydration.as_ref());
    assert!(text.contains(&last.unwrap().to_string()), "{text}");
}

#[tokio::test]
async fn a_reader_that_subscribes_while_the_flusher_finds_none_misses_no_commit() {
    let (_feed, logs, mut groups) = open();
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
async fn a_flush_waits_for_the_readers_of_the_one_before_it_and_follows_when_they_have_it() {
    let (feed, logs, mut groups) = open();
    let (moved, mut flushes) = mpsc::unbounded_channel();
    feed.moved.set(moved.downgrade()).unwrap();
    let log = logs.log(&run("r")).await.unwrap();
    let _reader = feed.read(&log.id, activities(), StartAt::Now).await.unwrap();
    let hub = feed.hubs.get(&log.id).unwrap().clone();
    let followers = fan_out::Followers::new(Arc::default());
    hub.view(Audience::Internal, Frames::Activities).listeners().follow(&followers, 0);
    write(&logs, &mut groups, &log).await;
    hub.flush(&feed).await;
    let first = followers.take();
    write(&logs, &mut groups, &log).await;
    assert_eq!(feed.flush_or_delay(&hub).await, None);
    assert!(first.len() == 1 && followers.take().is_empty() && flushes.try_recv().is_err(), "the readers have the first flush");
    drop(first);
    assert_eq!(flushes.try_recv().map(|log| log.id.clone()), Ok(log.id.clone()));
    drop(moved);
}

#[tokio::test]
async fn a_reader_of_too_many_logs_gets_the_limit() {
    let (feed, _logs, _groups) = open();
    let members = LogSet::Named((0..=merged_reader::MEMBERS_MAX).map(|n| run(&format!("r{n}"))).collect());
    let mut reader = feed.read_merged(members, activities(), StartAt::Start);
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, StoreError::TooManyLogs { count: 16_385, limit: merged_reader::MEMBERS_MAX }), "{error}");
    assert!(feed.hubs.is_empty(), "no log was opened");
}

/// Has the server refuse the id of a log, as an erasure does first.
async fn refuse(logs: &Logs, groups: &mut mpsc::UnboundedReceiver<CommittedGroup>, log: &LogId) {
    let record = ErasedRecord { until: i64::MAX, session: None, owner: None, is_reusable: false };
    let change = EntryChange::set(&ErasedRecord::key(log), &record);
    let server = logs.log(&LogId::of_server()).await.unwrap();
    let summary = Summary::default();
    let append = Append {
        log: server.id.clone(),
        epoch: Epoch::from_random(1),
        expected: Sequence::NONE,
        last: Sequence::NONE,
        rows: Bytes::new(),
        blobs: Vec::new(),
        state: vec![(change.key, change.value), (Bytes::from_static(META), Some(summary.save()))],
    };
    let (ack, _durable) = oneshot::channel();
    logs.submit(Submission {
        log: server,
        appends: vec![append],
        summary: Arc::new(summary),
        chain: Arc::default(),
        index: 0,
        ack,
    });
    groups.recv().await.unwrap();
}

#[tokio::test]
async fn a_reader_of_an_erased_log_ends_if_the_id_is_refused_and_waits_for_its_next_epoch_if_not() {
    for (frames, is_refused) in [Frames::Activities, Frames::Events].into_iter().flat_map(|of| [(of, true), (of, false)]) {
        let (feed, logs, mut groups) = open();
        let log = logs.log(&run("r")).await.unwrap();
        write(&logs, &mut groups, &log).await;
        let request = ReadRequest { frames, ..activities() };
        let mut of_one = feed.read(&log.id, request.clone(), StartAt::Start).await.unwrap();
        let mut of_several = feed.read_merged(LogSet::Named(vec![run("other"), log.id.clone()]), request, StartAt::Start);
        // The first reader reads the log on its way to the end, so its future is not ready at once.
        while let Ok(frames) = tokio::time::timeout(Duration::from_millis(100), of_one.next()).await {
            frames.unwrap().expect("the run has not ended");
        }
        while matches!(of_several.advance().await.unwrap(), TryNext::Frames(_)) {}
        if is_refused {
            refuse(&logs, &mut groups, &log.id).await;
        }
        logs.erase(&log).await.unwrap();
        feed.forget(&log.id).await;
        if is_refused {
            let is_erased = |error: StoreError| matches!(&error, StoreError::Erased { log } if log.contains("run r"));
            assert!(is_erased(of_one.next().await.unwrap_err()) && is_erased(of_several.next().await.unwrap_err()), "{frames:?}");
        } else {
            assert!(of_one.next().now_or_never().is_none() && of_several.next().now_or_never().is_none(), "{frames:?}");
        }
    }
}
