//! Writers under pressure: pending appends, conflicts, panics, and the limits of one append.

use crate::harness::{Client, Process, environment, fact, serve_until, start_local, to_ndjson, with_timeout};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use proscenium::environment::Environment;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::ingest::{CompactionPlan, Delivery, Ingest, Pending, Producer, Receipt};
use proscenium::log::commit::{Logs, Summary, rows_after};
use proscenium::log::journal::{Gate, MemoryJournal};
use proscenium::log::memory::MemoryStore;
use proscenium::log::row::{APPEND_BYTES_MAX, APPEND_ROWS_MAX, Row};
use proscenium::log::testing::Ordered;
use proscenium::log::{Append, AppendOutcome, Limit, LogId, META, Storage, Store};
use proscenium::model::{Audience, Ids, ProducerId, RunId, Sequence};
use proscenium::serve::maintenance::disk::DiskReserve;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

const MIB: u64 = 1024 * 1024;
const ALL: Limit = Limit { rows: usize::MAX, bytes: usize::MAX };

/// The write path, on a store whose commits pass a gate.
struct Line {
    logs: Arc<Logs>,
    ingest: Ingest,
    gate: Gate,
    journal: Arc<MemoryJournal>,
}

fn line() -> Line {
    line_in(environment(jiff::Timestamp::now))
}

fn line_in(environment: Environment) -> Line {
    let (journal, gate) = MemoryJournal::with_gate();
    let journal = Arc::new(journal.keeping_all());
    let (logs, mut groups) = Logs::open(MemoryStore::new(), journal.clone()).unwrap();
    // The part of the server that runs commits, without its readers.
    tokio::spawn(async move {
        while let Some(group) = groups.recv().await {
            group.acks.into_iter().for_each(|(ack, outcome)| drop(ack.send(outcome)));
        }
    });
    Line { ingest: Ingest::new(logs.clone(), Policy::default(), environment), logs, gate, journal }
}

fn log() -> LogId {
    LogId::Run(RunId::new("r").unwrap())
}

fn says(text: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": text}}))
}

fn facts(facts: &[Value], seq: Option<u64>) -> Delivery {
    let source = proscenium::source::by_name("agentui").unwrap();
    let producer = seq.map(|seq| Producer { id: ProducerId::new("p").unwrap(), epoch: 1, seq });
    Delivery { producer, atomic: false, ..Delivery::new(log(), source, facts.to_vec().into()) }
}

impl Line {
    async fn submit(&self, delivery: Delivery) -> Pending<'_> {
        let admitted = self.ingest.admit(&delivery).await.unwrap();
        self.ingest.submit(delivery, admitted).await.unwrap()
    }

    async fn rows(&self) -> Vec<Row> {
        let epoch = self.logs.log(&log()).await.unwrap().tail().epoch.unwrap();
        rows_after(self.logs.read(&log(), epoch, Sequence::NONE, ALL).await.unwrap(), Sequence::NONE).collect()
    }

    /// Reads the sequence and the text of each envelope.
    async fn texts(&self) -> Vec<(u64, String)> {
        let text = |row: &Row| serde_json::from_slice::<Value>(row.view(Audience::Internal).unwrap()).unwrap();
        let rows = self.rows().await;
        let text = |row: &Row| text(row)["payload"]["text"].as_str().unwrap_or_default().to_owned();
        rows.iter().map(|row| (row.sequence().0, text(row))).collect()
    }

    /// Appends one row as another writer, unknown to the one here.
    async fn another_writer_adds(&self, text: &str) {
        let tail = self.logs.log(&log()).await.unwrap().tail();
        let (epoch, last) = (tail.epoch.unwrap(), tail.last);
        let view = json!({"type": "text.delta", "sequence": last.next(), "payload": {"text": text}}).to_string();
        let mut rows = Vec::new();
        Row::encode(&mut rows, last.next(), [last; 3], [Some(view.as_bytes()); 3]);
        let summary = Summary { last_sequence: last.next(), ..(*tail.summary).clone() };
        let (log, rows, blobs, state) = (log(), rows.into(), Vec::new(), saved(&summary));
        let append = Append { log, epoch, expected: last, last: last.next(), rows, blobs, state };
        self.another_process_commits(append).await;
    }

    /// Commits an append as a second process that follows the same journal.
    async fn another_process_commits(&self, append: Append) {
        let journal = self.journal.clone();
        let commit = move || Ordered::new(MemoryStore::new(), journal)?.commit(&[append]);
        let outcomes = tokio::task::spawn_blocking(commit).await.unwrap().unwrap();
        assert!(matches!(outcomes[..], [AppendOutcome::Committed { .. }]), "{outcomes:?}");
    }
}

/// Builds a log's summary as a writer saves it.
fn saved(summary: &Summary) -> Vec<(Bytes, Option<Bytes>)> {
    vec![(Bytes::from_static(META), Some(serde_json::to_vec(summary).unwrap().into()))]
}

/// Returns whether the answer is ready.
async fn is_answered(pending: &mut Pending<'_>) -> bool {
    let mut answer = pin!(pending.durable());
    poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_ready())).await
}

fn numbers(receipt: &Receipt) -> (u64, u64, Option<u64>) {
    (receipt.accepted, receipt.duplicates, receipt.first_sequence.map(|sequence| sequence.0))
}

#[tokio::test]
async fn a_fact_of_a_run_that_is_compacted_does_not_wait_for_the_readers_before_the_compaction() {
    let line = line();
    line.ingest.deliver(facts(&[says("0")], None)).await.unwrap();
    let read = line.logs.log(&log()).await.unwrap();
    let tail = read.tail();
    // Deep folds of the run, which need its history, take every thread for long work.
    let (busy, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (held, readers_end) = std::sync::mpsc::channel::<()>();
    let readers_end = Arc::new(std::sync::Mutex::new(readers_end));
    for _ in 0..16 {
        let (logs, read, busy, readers_end) = (line.logs.clone(), read.clone(), busy.clone(), readers_end.clone());
        let fold = move |_: &dyn Store| {
            let _ = busy.send(());
            let _ = readers_end.lock().unwrap().recv();
        };
        tokio::spawn(async move { logs.work_on(vec![read], fold).await });
    }
    with_timeout("two deep folds", async { (begun.recv().await, begun.recv().await) }).await;
    let id = log();
    let mut compacting = pin!(line.ingest.compact(&id, &tail, CompactionPlan::default()));
    // The compaction gets as far as it can.
    assert!(poll_fn(|context| Poll::Ready(compacting.as_mut().poll(context).is_pending())).await);
    let delivering = async {
        line.ingest.deliver(facts(&[says("1")], None)).await.unwrap();
    };
    tokio::select! {
        _ = &mut compacting => unreachable!("it waits for the readers of the history"),
        () = with_timeout("the answer to the fact", delivering) => {}
    }
    drop(held);
    assert!(!with_timeout("the compaction", compacting).await.unwrap(), "the log has moved since");
    assert_eq!(line.texts().await.len(), 2);
}

#[tokio::test]
async fn a_writer_with_a_pending_append_survives_any_number_of_sweeps() {
    let line = line();
    line.ingest.deliver(facts(&[says("0")], Some(0))).await.unwrap();
    line.gate.close();
    let first = line.submit(facts(&[says("1")], Some(1))).await;
    // Its client disconnects; the append stays in flight.
    drop(first);
    for _ in 0..5 {
        line.ingest.sweep();
    }
    assert_eq!(line.ingest.writer_count(), 1);
    let mut second = line.submit(facts(&[says("2")], Some(2))).await;
    let mut again = line.submit(facts(&[says("1"), says("2")], Some(1))).await;
    for _ in 0..5 {
        line.ingest.sweep();
    }
    assert!(!is_answered(&mut second).await && !is_answered(&mut again).await, "an answer came before the commit");
    line.gate.open();
    assert_eq!(numbers(&second.durable().await.unwrap()), (1, 0, Some(3)));
    assert_eq!(
        numbers(&again.durable().await.unwrap()),
        (0, 2, None),
        "a duplicate is acknowledged when the original is durable"
    );
    assert_eq!(line.texts().await, [(1, "0".into()), (2, "1".into()), (3, "2".into())]);
    drop((second, again));
    for _ in 0..5 {
        line.ingest.sweep();
    }
    assert_eq!(line.ingest.writer_count(), 0, "a sweep retires an idle writer");
}

#[tokio::test]
async fn the_next_group_of_a_body_is_parsed_and_applied_while_the_commit_of_the_last_one_runs() {
    let line = line();
    line.ingest.deliver(facts(&[says("0")], None)).await.unwrap();
    line.gate.close();
    let mut first = line.submit(facts(&[says("1")], None)).await;
    with_timeout("the committer", async {
        while line.logs.waiting() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut second = line.submit(facts(&[says("2"), json!({"text": "a fact without a type"})], None)).await;
    assert!(second.is_refused(), "the group is judged");
    assert_eq!(line.logs.waiting(), 1, "its first fact is queued for the next commit");
    assert!(!is_answered(&mut first).await && !is_answered(&mut second).await, "the gate holds the commit");
    line.gate.open();
    assert_eq!(numbers(&first.durable().await.unwrap()), (1, 0, Some(2)));
    let refused = second.durable().await.unwrap_err();
    assert_eq!(refused.kept().map(numbers), Some((1, 0, Some(3))));
}

#[tokio::test]
async fn conflicting_appends_are_retried_in_order_behind_another_writer_s_rows() {
    for is_one_group in [true, false] {
        let line = line();
        line.ingest.deliver(facts(&[says("0")], Some(0))).await.unwrap();
        line.another_writer_adds("theirs").await;
        if !is_one_group {
            line.gate.close();
        }
        let mut sent = Vec::new();
        for n in 1..6 {
            sent.push(line.submit(facts(&[says(&n.to_string())], Some(n))).await);
            if !is_one_group && n == 1 {
                // The commit is before the gate, alone.
                with_timeout("the committer", async {
                    while line.logs.waiting() > 0 {
                        tokio::task::yield_now().await;
                    }
                })
                .await;
            }
        }
        // These are not duplicates yet: the originals are not stored.
        let mut again = line.submit(facts(&[says("1"), says("2")], Some(1))).await;
        line.gate.open();
        assert_eq!(numbers(&again.durable().await.unwrap()), (0, 2, None));
        let mut got = Vec::new();
        for pending in &mut sent {
            got.push(numbers(&pending.durable().await.unwrap()));
        }
        assert_eq!(got, (3..8).map(|sequence| (1, 0, Some(sequence))).collect::<Vec<_>>());
        let texts: Vec<_> = line.texts().await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["0", "theirs", "1", "2", "3", "4", "5"], "in one group: {is_one_group}");
        assert_eq!(line.logs.failure().map(|error| error.to_string()), None);
    }
}

#[tokio::test]
async fn a_run_started_by_another_writer_accepts_the_pending_appends() {
    let line = line();
    // The writer is loaded before the run exists.
    line.ingest.deliver(facts(&[], None)).await.unwrap();
    let epoch = proscenium::model::Epoch::from_random(9);
    let mut rows = Vec::new();
    Row::encode(&mut rows, Sequence(1), [Sequence::NONE; 3], [Some(b"{}"); 3]);
    let summary = Summary { last_sequence: Sequence(1), ..Summary::default() };
    let (rows, blobs, state) = (rows.into(), Vec::new(), saved(&summary));
    let append = Append { log: log(), epoch, expected: Sequence::NONE, last: Sequence(1), rows, blobs, state };
    line.another_process_commits(append).await;
    // Two appends of one body: the second names the epoch of the first, of which nothing was stored.
    let mut first = line.submit(facts(&[says("1")], None)).await;
    let first_epoch = first.epoch();
    let mut second = line.submit(Delivery { epoch: first_epoch, ..facts(&[says("2")], None) }).await;
    for pending in [&mut first, &mut second] {
        assert_eq!(pending.durable().await.unwrap().epoch, Some(epoch));
    }
    assert_eq!(line.rows().await.len(), 3);
}

static PANICS: AtomicBool = AtomicBool::new(false);

/// Randomness that panics on request: it names bodies, in the middle of a delivery.
fn panicking() -> Environment {
    let random = || {
        assert!(!PANICS.load(Ordering::SeqCst), "a test has randomness fail");
        u128::from(std::process::id())
    };
    Environment { now: jiff::Timestamp::now, random }
}

#[tokio::test]
async fn a_panic_in_a_delivery_fails_only_its_request_and_the_run_continues_from_the_store() {
    let server = Server::new(
        Storage::memory(),
        Policy::default(),
        FeedConfig::default(),
        Limits::default(),
        KeepAlive::default(),
        panicking(),
    );
    let client = serve_until(server.unwrap(), std::future::pending()).await.0;
    let text = |n: u64| fact("text.delta", json!({"messageId": "m", "payload": {"text": n.to_string()}}));
    client.append("r", &[text(1)]).await;
    // The first fact changes the writer; the body of the second one gets a name.
    let large = fact("tool.result", json!({"toolCallId": "c", "payload": {"output": "x".repeat(100_000)}}));
    let body = json!([fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t"}})), large]);
    for is_streamed in [false, true] {
        PANICS.store(true, Ordering::SeqCst);
        let answer = match is_streamed {
            false => client.post_facts("r", &body).await,
            true => client.post_lines("/v1/runs/r/facts", to_ndjson(body.as_array().unwrap())).await,
        };
        PANICS.store(false, Ordering::SeqCst);
        answer.problem(500, "internal_error");
    }
    let receipt = client.append("r", &[text(2)]).await;
    assert_eq!(receipt["firstSequence"], 2, "a row of the failed request exists: {receipt}");
    let receipt = client.append("r", body.as_array().unwrap()).await;
    assert_eq!((&receipt["firstSequence"], &receipt["lastSequence"]), (&json!(3), &json!(4)));
    let events = client.read_events("r", "audience=internal", 100).await;
    assert_eq!(events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_json_body_has_at_most_65_536_facts_and_ndjson_has_no_limit() {
    let client = start_local().await;
    let body = |count: usize| format!("[{}]", vec!["{\"type\":\"x\"}"; count].join(","));
    let json = [("content-type", "application/json")];
    let problem = client.post("/v1/runs/r/facts", &json, body(65_537)).await.problem(413, "too_many_facts");
    assert_eq!(problem["limit"], 65_536);
    assert_eq!(client.get("/v1/runs/r").await.status, 404, "the server kept no fact of the body");
    assert_eq!(client.post("/v1/runs/r/facts", &json, body(65_536)).await.ok()["accepted"], 65_536);
    let lines = "{\"type\":\"x\"}\n".repeat(70_000);
    assert_eq!(client.post_lines("/v1/runs/r/facts", lines).await.ok()["lastSequence"], 65_536 + 70_000);
    // Every row has its own cursor, across appends, for a reader that is cut off at any point.
    let mut stream = client.open(crate::harness::Transport::Raw, "/v1/stream?runs=r&frames=events&audience=internal", None).await;
    let mut cursors = std::collections::HashSet::new();
    for sequence in 1..=3_000 {
        let frame = stream.next().await.unwrap();
        assert_eq!(frame.data["sequence"], sequence);
        assert!(cursors.insert(frame.id.unwrap()), "two frames share a cursor");
    }
}

#[tokio::test]
async fn a_large_body_is_split_into_small_appends_and_committed_as_a_whole() {
    let line = line();
    line.gate.close();
    let many = vec![says("x"); 5000];
    let text = json!(many).to_string();
    let mut whole = line.submit(Delivery { atomic: true, ..facts(&many, None) }).await;
    line.gate.open();
    assert_eq!(numbers(&whole.durable().await.unwrap()), (5000, 0, Some(1)));
    let epoch = line.logs.log(&log()).await.unwrap().tail().epoch.unwrap();
    let placed = line.logs.read_appends(&log(), epoch, Sequence::NONE, ALL).await.unwrap();
    for append in &placed {
        let rows = rows_after(vec![append.rows.clone()], Sequence::NONE).collect::<Vec<_>>();
        let before_last = append.rows.len() - rows.last().unwrap().size();
        assert!(rows.len() <= APPEND_ROWS_MAX && before_last < APPEND_BYTES_MAX + 4, "{} rows", rows.len());
    }
    let one = line.logs.read(&log(), epoch, Sequence(2500), Limit { rows: 1, bytes: 0 }).await.unwrap();
    let bytes: usize = one.iter().map(bytes::Bytes::len).sum();
    assert!(bytes < 2 * APPEND_BYTES_MAX, "one row costs {bytes} bytes");
    // The estimated size before parsing is close to the stored size.
    let stored: usize = placed.iter().map(|append| append.rows.len()).sum();
    let known = text.len() + 5000 * proscenium::ingest::envelope_bytes_with(&Ids::default());
    assert!(stored < 2 * known && known < 2 * stored, "{known} bytes were expected, {stored} came");
    println!("writers: {} bytes of facts, {known} expected, {stored} stored", text.len());
    assert!(placed.len() > 10, "too few appends: {}", placed.len());
    assert_eq!(line.logs.position(), placed.len() as u64, "the body was not committed at once");
}

#[tokio::test]
async fn a_rejected_fact_in_a_long_body_discards_the_json_body_and_keeps_earlier_lines() {
    let client = start_local().await;
    let mut facts = vec![says("x"); 3000];
    facts[2500] = json!({"no": "type"});
    let problem = client.post_facts("r", &json!(facts)).await.problem(422, "no_type");
    assert_eq!(problem["index"], 2500);
    assert_eq!(client.get("/v1/runs/r").await.status, 404);
    let problem = client.post_lines("/v1/runs/r/facts", to_ndjson(&facts)).await.problem(422, "no_type");
    assert_eq!((&problem["line"], &problem["accepted"]), (&json!(2501), &json!(2500)));
    // Invalid JSON takes precedence over any invalid fact.
    let text = json!(facts).to_string().replace(']', ",{]");
    let json = [("content-type", "application/json")];
    client.post("/v1/runs/s/facts", &json, text).await.problem(400, "not_json");
    for text in ["[{\"type\":\"x\"},]", "[{\"type\":\"x\"}", "[{\"type\":\"x\"}] 1", "[,]", "[}", "[{\"a\":\"]", "", "[\"\\"] {
        client.post("/v1/runs/s/facts", &json, text).await.problem(400, "not_json");
    }
    for text in ["[]", " [ ] ", "[{\"type\":\"x\",\"payload\":{\"text\":\"a,]\\\"[{\\\\\"}}]"] {
        client.post("/v1/runs/t/facts", &json, text).await.ok();
    }
    assert_eq!(client.get("/v1/runs/t").await.ok()["lastSequence"], 1);
}

/// Builds a query with ids of 256 bytes.
fn long_ids() -> String {
    let names = ["threadId", "turnId", "messageId", "partId", "taskId", "agentId", "parentSessionId", "parentThreadId"];
    let names = names.into_iter().chain(["toolCallId", "actionId", "artifactId", "evidenceId", "sessionId"]);
    names.map(|name| format!("{name}={}&", "i".repeat(256))).collect()
}

#[tokio::test]
async fn ids_repeated_in_every_envelope_count_against_the_limit_of_a_body() {
    let client = start_local().await;
    let path = format!("/v1/runs/r/facts?{}", long_ids());
    let json = [("content-type", "application/json")];
    let body = |count: usize| format!("[{}]", vec!["{\"type\":\"x\"}"; count].join(","));
    let problem = client.post(&path, &json, body(65_536)).await.problem(413, "envelopes_too_large");
    let (bytes, limit) = (problem["bytes"].as_u64().unwrap(), problem["limit"].as_u64().unwrap());
    assert!(limit == 64 * MIB && bytes > 65_536 * 13 * 256, "{problem}");
    assert_eq!(client.get("/v1/runs/r").await.status, 404, "the server kept no fact of the body");
    // Lines become small appends, however large their envelopes are.
    assert_eq!(client.post_lines(&path, "{\"type\":\"x\"}\n".repeat(5_000)).await.ok()["lastSequence"], 5_000);
    let page = client.get("/v1/runs/r/events?limit=1&after=2500&audience=internal").await.ok();
    assert_eq!(page["events"][0]["sequence"], 2501);
}

#[tokio::test]
async fn a_web_socket_message_has_the_fact_limit_of_a_body() {
    let client = start_local().await;
    let (mut socket, _) = crate::socket::connect(&client, &[]).await.unwrap();
    let facts = vec![json!({"type": "x"}); 65_537];
    let publish = json!({"op": "publish", "id": 1, "runId": "r", "facts": facts});
    socket.send(Message::text(publish.to_string())).await.unwrap();
    let answer = with_timeout("an answer", socket.next()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!((&answer["op"], &answer["code"], &answer["limit"]), (&json!("error"), &json!("too_many_facts"), &json!(65_536)));
}

#[tokio::test]
async fn a_small_body_for_another_run_is_answered_during_a_large_one() {
    let client = start_local().await;
    let large = format!("[{}]", vec!["{\"type\":\"x\"}"; 65_536].join(","));
    let taking = tokio::spawn({
        let client = client.clone();
        async move { client.post("/v1/runs/large/facts", &[("content-type", "application/json")], large).await.ok() }
    });
    let mut answered = 0;
    while !taking.is_finished() {
        client.append("small", &[says("x")]).await;
        answered += 1;
    }
    assert_eq!(taking.await.unwrap()["accepted"], 65_536);
    assert!(answered >= 10, "only {answered} small bodies were answered during the large one");
}

#[tokio::test]
async fn bodies_waiting_for_the_ingest_budget_cost_little_more_than_their_text() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--in-flight-max", "4MiB"]);
    let client = Client::new(server.at);
    client.append("r", &[says("x")]).await;
    let before = server.resident_kib();
    // 60,000 facts of 35 bytes each: two MiB of text, and 60 MiB once parsed.
    let body: bytes::Bytes = format!("[{}]", vec!["{\"type\":\"x\",\"payload\":{\"n\":[1,2]}}"; 60_000].join(",")).into();
    let posts = (0..16).map(|n| {
        let (client, body) = (client.clone(), body.clone());
        tokio::spawn(async move {
            client.post(&format!("/v1/runs/r{n}/facts"), &[("content-type", "application/json")], body).await.status
        })
    });
    let mut peak = before;
    let posts: Vec<_> = posts.collect();
    while posts.iter().any(|post| !post.is_finished()) {
        peak = peak.max(server.resident_kib());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    for post in posts {
        let status = post.await.unwrap();
        assert!(status == 200 || status == 503, "{status}");
    }
    let grown = (peak - before) / 1024;
    println!("writers: 16 bodies of {} KiB: {grown} MiB more", body.len() / 1024);
    // Sixteen parsed at once took more than a GiB.
    assert!(grown < 500, "{grown} MiB");
}

#[tokio::test]
async fn bytes_in_flight_count_against_the_disk_reserve() {
    let free = Arc::new(AtomicU64::new(50 * MIB));
    let probe = {
        let free = free.clone();
        Arc::new(move || Ok(free.load(Ordering::SeqCst)))
    };
    let (journal, gate) = MemoryJournal::with_gate();
    let (limits, pulse, environment) = (Limits::default(), KeepAlive::default(), environment(jiff::Timestamp::now));
    let server = Server::new(
        Storage::Memory(MemoryStore::new(), journal),
        Policy::default(),
        FeedConfig::default(),
        limits,
        pulse,
        environment,
    );
    let server = server.unwrap().with_disk_reserve(Some(DiskReserve { bytes: 40 * MIB, probe }));
    let client = serve_until(server, std::future::pending()).await.0;
    client.append("r", &[says("x")]).await;
    let body = |mib: usize| json!([says(&"x".repeat(mib << 20))]);
    client.post_facts("r", &body(7)).await.problem(507, "disk_full");
    // Several small bodies are rejected like a large one while they are in flight.
    gate.close();
    let waiting = tokio::spawn({
        let (client, body) = (client.clone(), body(4));
        async move { client.post_facts("r", &body).await }
    });
    with_timeout("the bytes in flight", async {
        while crate::ops::read_metric(&client, "proscenium_in_flight_bytes").await < 4.0 * MIB as f64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let problem = client.post_facts("r", &body(2)).await.problem(507, "disk_full");
    assert_eq!(problem["limit"], 40 * MIB);
    client.post_lines("/v1/runs/r/facts", to_ndjson(body(2).as_array().unwrap())).await.problem(507, "disk_full");
    gate.open();
    waiting.await.unwrap().ok();
    // After the write, the free space itself shows it.
    with_timeout("free disk space", async {
        while client.post_facts("r", &body(2)).await.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_silent_streamed_body_holds_no_share_of_the_ingest_budget() {
    let client = start_local().await;
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    let head = "POST /v1/runs/r/facts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(format!("{head}17\r\n{{\"type\":\"run.started\"}}\n\r\n").as_bytes()).await.unwrap();
    with_timeout("the fact", async {
        while client.get("/v1/runs/r").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    with_timeout("the release of its share", async {
        while crate::ops::read_metric(&client, "proscenium_in_flight_bytes").await > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 15];
    with_timeout("an answer", socket.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_writer_continues_behind_another_after_each_of_many_conflicts() {
    let line = line();
    line.ingest.deliver(facts(&[says("0")], None)).await.unwrap();
    for n in 0..3 {
        line.another_writer_adds(&n.to_string()).await;
        // The writer's tail lacks the other row; the next delivery detects it, and is appended behind it.
        let receipt = line.ingest.deliver(facts(&[says("mine")], None)).await.unwrap();
        assert_eq!(receipt.first_sequence, Some(Sequence(3 + 2 * n)));
    }
}
