//! Erasing a run: none of its data returns, also under concurrent reads and writes. Its readers get 410 for a day, unless
//! later facts start a new epoch.

use crate::harness::{AUDIENCES, Client, Frame, Process, Sse, TRANSPORTS, Transport, fact, start_local, with_timeout};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn text(words: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "partId": "p", "payload": {"text": words}}))
}

fn finished() -> Value {
    fact("run.finished", json!({}))
}

async fn erase(client: &Client, run: &str) {
    let answer = client.delete(&format!("/v1/runs/{run}")).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store");
}

fn epoch(frame: &Frame) -> &str {
    frame.id().split_once(':').expect("an id is a cursor").0
}

fn words(frame: &Frame) -> &str {
    frame.data["event"]["payload"]["text"].as_str().expect("the event has text")
}

/// Reads the end of a stream of what was erased.
async fn read_erasure(stream: &mut Sse, name: &str) {
    let last = stream.read_all().await.pop().unwrap_or_else(|| panic!("{name}: the stream has no end"));
    let problem = &last.data["problem"];
    assert_eq!((last.kind(), &problem["status"], &problem["code"]), ("Error", &json!(410), &json!("erased")), "{name}: {last:?}");
}

/// Reads a `Reset`, and then the new epoch's first event with this text; returns the epoch of both.
async fn read_new_epoch(stream: &mut Sse, with: &str) -> String {
    let reset = stream.next_frame().await;
    assert_eq!((reset.kind(), reset.data["reason"].as_str()), ("Reset", Some("epoch")), "{reset:?}");
    let first = stream.next_frame().await;
    assert_eq!((first.kind(), first.sequence(), first.prev(), words(&first)), ("Event", 1, 0, with), "{first:?}");
    epoch(&first).to_owned()
}

#[tokio::test]
async fn an_erased_run_and_its_bodies_stay_erased_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let numbered = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "0")];
    let facts = json!([text("a"), fact("task.changed", json!({"payload": {"output": "large ".repeat(10_000)}}))]).to_string();
    let receipt = client.post("/v1/runs/r/facts", &numbered, facts.clone()).await.ok();
    assert_eq!(client.post("/v1/runs/r/facts", &numbered, facts.clone()).await.ok()["duplicates"], 2);
    client.append("kept", &[text("b")]).await;
    let events = client.read_events("r", "", 10).await;
    let body = events[1]["refs"].to_string();
    let body = body.split('"').find(|part| part.starts_with("/v1/blobs/")).expect("the run has a body").to_owned();
    assert_eq!(client.get(&body).await.status, 200);

    erase(&client, "r").await;
    let check = async |client: &Client| {
        for path in ["", "/events", "/export"] {
            client.get(&format!("/v1/runs/r{path}")).await.problem(410, "erased");
        }
        let problem = client.get("/v1/runs/r/stream").await.problem(410, "erased");
        assert!(problem["detail"].as_str().unwrap().contains("run r was erased"), "{problem}");
        client.get(&body).await.problem(404, "no_such_blob");
        let listed = client.get("/v1/runs").await.ok();
        assert_eq!((listed["runs"].as_array().map(Vec::len), &listed["runs"][0]["runId"]), (Some(1), &json!("kept")));
        client.delete("/v1/runs/r").await.problem(410, "erased");
        client.post("/v1/runs/r/settle", &[], "").await.problem(410, "erased");
    };
    check(&client).await;
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    check(&client).await;

    // Producer numbers are scoped to the epoch: the first fact is number 0 again.
    let ahead = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "2")];
    assert_eq!(client.post("/v1/runs/r/facts", &ahead, facts.clone()).await.problem(409, "producer_gap")["expected"], 0);
    client.get("/v1/runs/r").await.problem(410, "erased");
    let rewritten = client.post("/v1/runs/r/facts", &numbered, facts).await.ok();
    assert_eq!(
        (&rewritten["accepted"], &rewritten["duplicates"], &rewritten["firstSequence"]),
        (&json!(2), &json!(0), &json!(1))
    );
    assert_ne!(rewritten["epoch"], receipt["epoch"]);
    assert_eq!(client.read_events("r", "", 10).await.len(), 2);
    // Also after a restart, which reads the record of the erasure again.
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    assert_eq!(client.get("/v1/runs/r").await.ok()["epoch"], rewritten["epoch"]);
    erase(&client, "r").await;
    client.get("/v1/runs/r").await.problem(410, "erased");
    client.get("/v1/runs/kept").await.ok();
}

#[tokio::test]
async fn erasing_an_unknown_run_is_404_and_its_waiting_readers_keep_waiting() {
    let client = start_local().await;
    let mut streams = Vec::new();
    for via in TRANSPORTS {
        let mut stream = client.open_stream(via, "r", "", None).await;
        stream.wait_until_open().await;
        streams.push(stream);
    }
    let problem = client.delete("/v1/runs/r").await.problem(404, "no_such_run");
    assert!(problem["detail"].as_str().unwrap().contains("Run r does not exist"), "{problem}");
    client.delete("/v1/runs/%00").await.problem(400, "bad_id");
    client.append("r", &[text("a"), finished()]).await;
    for mut stream in streams {
        let kinds: Vec<_> = stream.read_all().await.iter().map(|frame| frame.kind().to_owned()).collect();
        assert_eq!(kinds, ["Event", "Event", "End"], "no Reset frame was sent");
    }
}

#[tokio::test]
async fn live_readers_of_an_erased_run_end_and_get_its_new_epoch_after_a_reset() {
    let client = start_local().await;
    client.append("r", &(0..300).map(|n| text(&format!("old {n}"))).collect::<Vec<_>>()).await;
    let mut streams = Vec::new();
    for via in TRANSPORTS {
        for query in AUDIENCES.map(|audience| format!("audience={audience}")).into_iter().chain(["type=text.delta".into()]) {
            let mut stream = client.open_stream(via, "r", &query, None).await;
            let mut cursor = String::new();
            for n in 1..=300 {
                let frame = stream.next_frame().await;
                assert_eq!(frame.sequence(), n, "{via:?} {query}");
                cursor = frame.id().to_owned();
            }
            streams.push((via, query, stream, cursor));
        }
    }
    let mut of_now = client.open_stream(Transport::Raw, "r", "after=now", None).await;
    erase(&client, "r").await;
    read_erasure(&mut of_now, "after=now").await;
    for (via, query, stream, cursor) in &mut streams {
        read_erasure(stream, &format!("{via:?} {query}")).await;
        assert_eq!(client.open_stream(*via, "r", query, Some(cursor.as_str())).await.status, 410);
    }
    client.append("r", &[text("new")]).await;
    let mut epochs = Vec::new();
    for (via, query, stream, cursor) in &mut streams {
        *stream = client.open_stream(*via, "r", query, Some(cursor.as_str())).await;
        epochs.push(read_new_epoch(stream, "new").await);
    }
    let first = client.open_stream(Transport::Raw, "r", "", None).await.next_frame().await;
    assert_eq!((first.kind(), words(&first)), ("Event", "new"), "a new reader needs no Reset");
    assert!(epochs.iter().all(|epoch_seen| *epoch_seen == epoch(&first)));

    // Once more, so fast that a reader may not notice the time between.
    erase(&client, "r").await;
    client.append("r", &[text("newer"), finished()]).await;
    for (via, query, stream, _) in &mut streams {
        let name = format!("{via:?} {query}");
        let frames = stream.read_all().await;
        let kinds: Vec<_> = frames.iter().map(Frame::kind).collect();
        let rest = if name.contains("type=") { vec!["Reset", "Event", "End"] } else { vec!["Reset", "Event", "Event", "End"] };
        assert!(kinds == ["Error"] || kinds == rest, "{name}: {kinds:?}");
        assert!(frames.iter().all(|frame| frame.kind() != "Event" || !epochs.contains(&epoch(frame).to_owned())), "{name}");
    }
}

/// Reads up to a frame of this kind for this run; returns the frames before it, and the frame.
async fn read_up_to(stream: &mut Sse, kind: &str, run: &str) -> (Vec<Frame>, Frame) {
    let mut before = Vec::new();
    loop {
        let frame = stream.next_frame().await;
        match frame.kind() == kind && frame.data["runId"] == run {
            true => return (before, frame),
            false => before.push(frame),
        }
    }
}

#[tokio::test]
async fn activities_of_an_erased_run_are_reset_and_those_of_its_new_epoch_follow() {
    let client = start_local().await;
    client.append("r", &[text("old"), fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t"}}))]).await;
    let mut streams = Vec::new();
    for query in ["", "surfaces=conversation", "replay=deltas"] {
        let mut stream = client.open_activities("r", query, None).await;
        let (_, hydrated) = read_up_to(&mut stream, "Hydrated", "r").await;
        streams.push((query, stream, hydrated.id().to_owned()));
    }
    erase(&client, "r").await;
    client.get("/v1/runs/r/activities").await.problem(410, "erased");
    for (query, stream, _) in &mut streams {
        read_erasure(stream, query).await;
    }
    client.append("r", &[text("new")]).await;
    for (query, _, cursor) in streams {
        let mut stream = client.open_activities("r", query, Some(&cursor)).await;
        let reset = stream.next_frame().await;
        assert_eq!((reset.kind(), reset.data["reason"].as_str()), ("Reset", Some("epoch")), "{query}");
        let (shown, _) = read_up_to(&mut stream, "Hydrated", "r").await;
        let shown = shown.iter().map(|frame| frame.data.to_string()).collect::<String>();
        assert!(shown.contains("new") && !shown.contains("old"), "{query}: {shown}");
    }
    let first = client.open_activities("r", "", None).await.next_frame().await;
    assert_eq!(first.kind(), "ActivitySnapshot", "a new reader needs no Reset");
}

#[tokio::test]
async fn a_stream_of_named_runs_ends_with_one_of_them_and_a_session_goes_on_without_it() {
    let client = start_local().await;
    let write = async |run: &str, words: &str| {
        let receipt = client.post(&format!("/v1/runs/{run}/facts?sessionId=s"), &[], json!([text(words)]).to_string()).await;
        receipt.ok()
    };
    for frames in ["events", "activities"] {
        write("a", "old").await;
        write("b", "kept").await;
        let open = async |path: &str| {
            let mut stream = client.open(Transport::Raw, &format!("{path}frames={frames}"), None).await;
            match frames {
                "events" => drop(read_up_to(&mut stream, "Event", "b").await),
                _ => drop(read_up_to(&mut stream, "Hydrated", "b").await),
            }
            stream
        };
        let (mut named, mut of_session) = (open("/v1/stream?runs=a,b&").await, open("/v1/sessions/s/stream?").await);
        erase(&client, "a").await;
        read_erasure(&mut named, frames).await;
        read_erasure(&mut client.open(Transport::Raw, &format!("/v1/stream?runs=a,b&frames={frames}"), None).await, "again")
            .await;
        let (event, first) = if frames == "events" { ("Event", "Event") } else { ("ActivityDelta", "ActivitySnapshot") };
        write("b", "meanwhile").await;
        read_up_to(&mut of_session, event, "b").await;
        write("a", "new").await;
        let (_, reset) = read_up_to(&mut of_session, "Reset", "a").await;
        assert_eq!(reset.data["reason"], "epoch");
        let (_, first) = read_up_to(&mut of_session, first, "a").await;
        assert!(first.data.to_string().contains("new"), "{frames}: {first:?}");
        // Once more, so fast that the reader may not notice the time between.
        erase(&client, "a").await;
        write("a", "newer").await;
        while !of_session.next_frame().await.data.to_string().contains("newer") {}
    }
    erase(&client, "a").await;
    erase(&client, "b").await;
    client.get("/v1/sessions/s").await.problem(404, "no_such_session");
}

#[tokio::test]
async fn a_cursor_of_an_erased_epoch_gets_a_reset_after_the_rewrite() {
    let client = start_local().await;
    client.append("r", &[text("old"), finished()]).await;
    let end = client.open_stream(Transport::Raw, "r", "", None).await.read_all().await.pop().expect("the stream has an end");
    assert_eq!(client.open_stream(Transport::Raw, "r", "", end.id.as_deref()).await.status, 204);
    erase(&client, "r").await;
    for via in TRANSPORTS {
        assert_eq!(client.open_stream(via, "r", "", end.id.as_deref()).await.status, 410);
        client.append("r", &[text("new")]).await;
        read_new_epoch(&mut client.open_stream(via, "r", "", end.id.as_deref()).await, "new").await;
        erase(&client, "r").await;
    }
    let cursor = end.id().to_owned();
    client.append("r", &[text("new")]).await;
    client.get(&format!("/v1/runs/r/events?after={cursor}")).await.problem(410, "epoch_changed");
}

#[tokio::test]
async fn a_streamed_body_whose_start_was_erased_is_rejected() {
    let client = start_local().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<String>(1);
    let lines = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|line| (Ok::<_, std::io::Error>(line), receiver))
    });
    let path = "/v1/runs/r/facts";
    let producing = tokio::spawn({
        let client = client.clone();
        async move { client.post_lines(path, reqwest::Body::wrap_stream(lines)).await }
    });
    let mut reader = client.open_stream(Transport::Raw, "r", "", None).await;
    for n in 0..3 {
        sender.send(format!("{}\n", text(&n.to_string()))).await.unwrap();
        assert_eq!(words(&reader.next_frame().await), n.to_string());
    }
    erase(&client, "r").await;
    sender.send(format!("{}\n", text("rest"))).await.unwrap();
    drop(sender);
    let problem = with_timeout("the response", producing).await.unwrap().problem(409, "run_erased");
    assert_eq!(problem["accepted"], 3);
    client.get("/v1/runs/r").await.problem(410, "erased");
    read_erasure(&mut reader, "the reader").await;
    client.post_lines(path, format!("{}\n", text("rewritten"))).await.ok();
    let first = client.open_stream(Transport::Raw, "r", "", None).await.next_frame().await;
    assert_eq!((first.sequence(), words(&first)), (1, "rewritten"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_body_written_during_an_erasure_belongs_wholly_to_one_epoch() {
    check_concurrent_erasures(&start_local().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_body_written_during_an_erasure_belongs_to_one_epoch_on_disk_too() {
    let server = Process::start();
    check_concurrent_erasures(&Client::new(server.at)).await;
}

/// Writes, reads and erases a run concurrently.
async fn check_concurrent_erasures(client: &Client) {
    const ERASURES: usize = 60;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for via in TRANSPORTS {
        for query in ["", "type=text.delta,run.finished"] {
            let mut stream = client.open_stream(via, "r", query, None).await;
            let client = client.clone();
            readers.push(tokio::spawn(async move {
                // A reader sees an epoch from its first event on, in order, and never again after another one.
                let (mut epochs, mut last) = (Vec::<String>::new(), 0);
                let mut cursor = None;
                loop {
                    let frame = if stream.status == 200 { stream.next().await } else { None };
                    let Some(frame) = frame else {
                        // It was refused, or ended with the erasure: the reader connects again.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        stream = client.open_stream(via, "r", query, cursor.as_deref()).await;
                        continue;
                    };
                    cursor = frame.id.clone().or(cursor);
                    match frame.kind() {
                        "End" => break,
                        "Reset" => last = 0,
                        "Event" => {
                            if last == 0 {
                                assert!(
                                    !epochs.iter().any(|epoch_seen| epoch_seen == epoch(&frame)),
                                    "an old epoch appears again"
                                );
                                epochs.push(epoch(&frame).to_owned());
                            }
                            assert_eq!((frame.sequence(), frame.prev()), (last + 1, last));
                            assert_eq!(Some(epoch(&frame)), epochs.last().map(String::as_str));
                            last += 1;
                        }
                        _ => {}
                    }
                }
                epochs
            }));
        }
    }
    let producers: Vec<_> = (0..4)
        .map(|n| {
            let (client, done) = (client.clone(), done.clone());
            tokio::spawn(async move {
                let mut receipts = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let facts = vec![text(&format!("{n} {}", receipts.len())); 1 + n];
                    receipts.push(client.append("r", &facts).await);
                }
                receipts
            })
        })
        .collect();
    let erasing = async {
        let mut erased = 0;
        while erased < ERASURES {
            // Two at once: exactly one of them reports the erasure.
            let (one, other) = tokio::join!(client.delete("/v1/runs/r"), client.delete("/v1/runs/r"));
            for answer in [one, other] {
                match answer.status {
                    204 => erased += 1,
                    404 => drop(answer.problem(404, "no_such_run")),
                    _ => drop(answer.problem(410, "erased")),
                }
            }
        }
    };
    with_timeout("the erasures", erasing).await;
    done.store(true, Ordering::Relaxed);
    let mut epochs = BTreeMap::<String, Vec<(u64, u64)>>::new();
    for producer in producers {
        for receipt in with_timeout("the producer's end", producer).await.unwrap() {
            let sequence = |member: &str| receipt[member].as_u64().unwrap();
            let epoch_seen = receipt["epoch"].as_str().unwrap().to_owned();
            epochs.entry(epoch_seen).or_default().push((sequence("firstSequence"), sequence("lastSequence")));
        }
    }
    for (epoch_seen, bodies) in &mut epochs {
        bodies.sort_unstable();
        let ends: Vec<_> = bodies.iter().map(|(_, last)| last + 1).collect();
        let begins: Vec<_> = bodies.iter().map(|(first, _)| *first).collect();
        assert_eq!(begins[0], 1, "{epoch_seen} begins with a body of its own");
        assert_eq!(begins[1..], ends[..ends.len() - 1], "{epoch_seen} has every body once, whole");
    }
    assert!(epochs.len() > 3, "{} epochs", epochs.len());
    let last = client.append("r", &[finished()]).await;
    let epoch_seen = last["epoch"].as_str().unwrap();
    let count: u64 = epochs.get(epoch_seen).into_iter().flatten().map(|(first, last)| last + 1 - first).sum();
    assert_eq!(client.read_events("r", "", 1000).await.len() as u64, count + 1, "all of the last epoch, nothing of earlier ones");
    for reader in readers {
        let seen = with_timeout("the reader's end", reader).await.unwrap();
        assert_eq!(seen.last().map(String::as_str), Some(epoch_seen));
        assert!(seen.iter().all(|epoch_seen| epochs.contains_key(epoch_seen) || epoch_seen == last["epoch"].as_str().unwrap()));
    }
}
