//! Erasing a run: nothing of it comes back, whoever writes or reads it meanwhile, and what is written after is a new life.

use crate::harness::{AUDIENCES, BOTH, Client, Frame, Process, Sse, Via, fact, local, soon};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    frame.id().split_once(':').expect("a cursor").0
}

fn words(frame: &Frame) -> &str {
    frame.data["event"]["payload"]["text"].as_str().expect("a text")
}

/// Reads a `Reset`, and then the new life's first event, which says this; the epoch of both.
async fn begins_anew(stream: &mut Sse, with: &str) -> String {
    let reset = stream.frame().await;
    assert_eq!((reset.kind(), reset.data["reason"].as_str()), ("Reset", Some("epoch")), "{reset:?}");
    let first = stream.frame().await;
    assert_eq!((first.kind(), first.sequence(), first.prev(), words(&first)), ("Event", 1, 0, with), "{first:?}");
    epoch(&first).to_owned()
}

#[tokio::test]
async fn an_erased_run_is_gone_with_its_bodies_and_a_restart_does_not_bring_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let numbered = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "0")];
    let facts = json!([text("a"), fact("task.changed", json!({"payload": {"output": "large ".repeat(10_000)}}))]).to_string();
    let receipt = client.post("/v1/runs/r/facts", &numbered, facts.clone()).await.ok();
    assert_eq!(client.post("/v1/runs/r/facts", &numbered, facts.clone()).await.ok()["duplicates"], 2);
    client.accept("kept", &[text("b")]).await;
    let events = client.events("r", "", 10).await;
    let body = events[1]["refs"].to_string();
    let body = body.split('"').find(|part| part.starts_with("/v1/blobs/")).expect("a body").to_owned();
    assert_eq!(client.get(&body).await.status, 200);

    erase(&client, "r").await;
    let check = async |client: &Client| {
        for path in ["", "/events", "/export"] {
            client.get(&format!("/v1/runs/r{path}")).await.problem(404, "no_such_run");
        }
        client.get(&body).await.problem(404, "no_such_blob");
        let listed = client.get("/v1/runs").await.ok();
        assert_eq!((listed["runs"].as_array().map(Vec::len), &listed["runs"][0]["runId"]), (Some(1), &json!("kept")));
        client.delete("/v1/runs/r").await.problem(404, "no_such_run");
    };
    check(&client).await;
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    check(&client).await;

    // A producer's numbers were the old life's: its first fact is number 0 again.
    let ahead = [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "2")];
    assert_eq!(client.post("/v1/runs/r/facts", &ahead, facts.clone()).await.problem(409, "producer_gap")["expected"], 0);
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    let anew = client.post("/v1/runs/r/facts", &numbered, facts).await.ok();
    assert_eq!((&anew["accepted"], &anew["duplicates"], &anew["firstSequence"]), (&json!(2), &json!(0), &json!(1)));
    assert_ne!(anew["epoch"], receipt["epoch"]);
    assert_eq!(client.events("r", "", 10).await.len(), 2);
    erase(&client, "r").await;
    client.get("/v1/runs/kept").await.ok();
}

#[tokio::test]
async fn a_run_that_was_never_written_is_not_there_to_be_erased_and_who_waits_for_it_goes_on_waiting() {
    let client = local().await;
    let mut streams = Vec::new();
    for via in BOTH {
        let mut stream = client.stream(via, "r", "", None).await;
        stream.opened().await;
        streams.push(stream);
    }
    let problem = client.delete("/v1/runs/r").await.problem(404, "no_such_run");
    assert!(problem["detail"].as_str().unwrap().contains("no run r"), "{problem}");
    client.delete("/v1/runs/%00").await.problem(400, "bad_id");
    client.accept("r", &[text("a"), finished()]).await;
    for mut stream in streams {
        let kinds: Vec<_> = stream.all().await.iter().map(|frame| frame.kind().to_owned()).collect();
        assert_eq!(kinds, ["Event", "Event", "End"], "nothing was reset");
    }
}

#[tokio::test]
async fn live_readers_of_an_erased_run_wait_and_get_its_new_life_after_a_reset() {
    let client = local().await;
    client.accept("r", &(0..300).map(|n| text(&format!("old {n}"))).collect::<Vec<_>>()).await;
    let mut streams = Vec::new();
    for via in BOTH {
        for query in AUDIENCES.map(|audience| format!("audience={audience}")).into_iter().chain(["type=text.delta".into()]) {
            let mut stream = client.stream(via, "r", &query, None).await;
            for n in 1..=300 {
                assert_eq!(stream.frame().await.sequence(), n, "{via:?} {query}");
            }
            streams.push((format!("{via:?} {query}"), stream));
        }
        streams.push((format!("{via:?} now"), client.stream(via, "r", "after=now", None).await));
    }
    erase(&client, "r").await;
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    // Who comes now comes to a run that nobody has written; who has a cursor of the old life is told.
    let mut fresh = client.stream(Via::Raw, "r", "", None).await;
    client.accept("r", &[text("new")]).await;
    let mut lives = Vec::new();
    for (_, stream) in &mut streams {
        lives.push(begins_anew(stream, "new").await);
    }
    let first = fresh.frame().await;
    assert_eq!((first.kind(), words(&first)), ("Event", "new"));
    assert!(lives.iter().all(|life| *life == epoch(&first)));

    // Once more, and so fast that nobody saw it gone.
    streams.push(("fresh".to_owned(), fresh));
    erase(&client, "r").await;
    client.accept("r", &[text("newer"), finished()]).await;
    for (name, stream) in &mut streams {
        assert!(!lives.contains(&begins_anew(stream, "newer").await), "{name}");
        let rest: Vec<_> = stream.all().await.iter().map(|frame| frame.kind().to_owned()).collect();
        assert_eq!(rest, if name.contains("type=") { vec!["End"] } else { vec!["Event", "End"] }, "{name}");
    }
}

/// Reads up to a frame of this kind, of this run; the frames before it.
async fn up_to(stream: &mut Sse, kind: &str, run: &str) -> (Vec<Frame>, Frame) {
    let mut before = Vec::new();
    loop {
        let frame = stream.frame().await;
        match frame.kind() == kind && frame.data["runId"] == run {
            true => return (before, frame),
            false => before.push(frame),
        }
    }
}

#[tokio::test]
async fn activities_of_an_erased_run_are_dropped_by_a_reset_and_those_of_its_new_life_follow() {
    let client = local().await;
    client.accept("r", &[text("old"), fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t"}}))]).await;
    let mut streams = Vec::new();
    for query in ["", "surfaces=conversation", "replay=deltas"] {
        let mut stream = client.activities("r", query, None).await;
        up_to(&mut stream, "Hydrated", "r").await;
        streams.push((query, stream));
    }
    erase(&client, "r").await;
    client.get("/v1/runs/r/activities").await.problem(404, "no_such_run");
    let mut fresh = client.activities("r", "", None).await;
    assert_eq!(fresh.frame().await.kind(), "Hydrated", "there is nothing of it");
    client.accept("r", &[text("new")]).await;
    for (query, mut stream) in streams {
        let reset = stream.frame().await;
        assert_eq!((reset.kind(), reset.data["reason"].as_str()), ("Reset", Some("epoch")), "{query}");
        let (shown, _) = up_to(&mut stream, "Hydrated", "r").await;
        let shown = shown.iter().map(|frame| frame.data.to_string()).collect::<String>();
        assert!(shown.contains("new") && !shown.contains("old"), "{query}: {shown}");
    }
    assert_eq!(fresh.frame().await.kind(), "ActivitySnapshot", "and nothing to be dropped");
}

#[tokio::test]
async fn a_stream_of_several_runs_resets_the_one_that_was_erased_and_goes_on_with_the_others() {
    let client = local().await;
    let write = async |run: &str, words: &str| {
        let receipt = client.post(&format!("/v1/runs/{run}/facts?sessionId=s"), &[], json!([text(words)]).to_string()).await;
        receipt.ok()
    };
    for paths in [["/v1/stream?runs=a,b&frames=", "a"], ["/v1/sessions/s/stream?frames=", "b"]] {
        let [path, run] = paths;
        let other = if run == "a" { "b" } else { "a" };
        write(run, "old").await;
        write(other, "kept").await;
        for frames in ["events", "activities"] {
            let mut stream = client.open(Via::Raw, &format!("{path}{frames}"), None).await;
            match frames {
                "events" => drop(up_to(&mut stream, "Event", other).await),
                _ => drop(up_to(&mut stream, "Hydrated", other).await),
            }
            // Once so that it is seen to be gone, and once so that it need not be.
            for wait in [true, false] {
                erase(&client, run).await;
                if wait {
                    write(other, "meanwhile").await;
                    let kind = if frames == "events" { "Event" } else { "ActivityDelta" };
                    up_to(&mut stream, kind, other).await;
                }
                write(run, "new").await;
                let (_, reset) = up_to(&mut stream, "Reset", run).await;
                assert_eq!(reset.data["reason"], "epoch");
                let kind = if frames == "events" { "Event" } else { "ActivitySnapshot" };
                let (_, first) = up_to(&mut stream, kind, run).await;
                assert!(first.data.to_string().contains("new"), "{path}{frames}: {first:?}");
            }
        }
        erase(&client, run).await;
        erase(&client, other).await;
        client.get("/v1/sessions/s").await.problem(404, "no_such_session");
    }
}

#[tokio::test]
async fn a_cursor_of_an_erased_life_is_answered_by_a_reset_whether_the_new_one_is_there_or_not() {
    let client = local().await;
    client.accept("r", &[text("old"), finished()]).await;
    let end = client.stream(Via::Raw, "r", "", None).await.all().await.pop().expect("the end");
    assert_eq!(client.stream(Via::Raw, "r", "", end.id.as_deref()).await.status, 204);
    erase(&client, "r").await;
    for via in BOTH {
        let mut early = client.stream(via, "r", "", end.id.as_deref()).await;
        early.opened().await;
        client.accept("r", &[text("new")]).await;
        begins_anew(&mut early, "new").await;
        begins_anew(&mut client.stream(via, "r", "", end.id.as_deref()).await, "new").await;
        erase(&client, "r").await;
    }
    let cursor = end.id().to_owned();
    client.accept("r", &[text("new")]).await;
    client.get(&format!("/v1/runs/r/events?after={cursor}")).await.problem(410, "epoch_changed");
}

#[tokio::test]
async fn a_streamed_body_whose_beginning_was_erased_does_not_bring_back_its_rest() {
    let client = local().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<String>(1);
    let lines = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|line| (Ok::<_, std::io::Error>(line), receiver))
    });
    let path = "/v1/runs/r/facts";
    let producing = tokio::spawn({
        let client = client.clone();
        async move { client.lines(path, reqwest::Body::wrap_stream(lines)).await }
    });
    let mut reader = client.stream(Via::Raw, "r", "", None).await;
    for n in 0..3 {
        sender.send(format!("{}\n", text(&n.to_string()))).await.unwrap();
        assert_eq!(words(&reader.frame().await), n.to_string());
    }
    erase(&client, "r").await;
    sender.send(format!("{}\n", text("rest"))).await.unwrap();
    drop(sender);
    let problem = soon("an answer", producing).await.unwrap().problem(409, "run_erased");
    assert_eq!(problem["accepted"], 3);
    client.get("/v1/runs/r").await.problem(404, "no_such_run");
    client.lines(path, format!("{}\n", text("anew"))).await.ok();
    begins_anew(&mut reader, "anew").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn whatever_is_written_while_a_run_is_erased_is_wholly_of_the_life_before_or_of_the_one_after() {
    hold_erasures(&local().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_same_on_disk() {
    let server = Process::start();
    hold_erasures(&Client::new(server.at)).await;
}

/// Writes, reads and erases a run all at once.
async fn hold_erasures(client: &Client) {
    const ERASURES: usize = 60;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for via in BOTH {
        for query in ["", "type=text.delta,run.finished"] {
            let mut stream = client.stream(via, "r", query, None).await;
            readers.push(tokio::spawn(async move {
                // Each life that is seen is seen from its first event on, in order, and never again after another one.
                let (mut lives, mut last) = (Vec::<String>::new(), 0);
                while let Some(frame) = stream.next().await {
                    match frame.kind() {
                        "Reset" => last = 0,
                        "Event" => {
                            if last == 0 {
                                assert!(!lives.iter().any(|life| life == epoch(&frame)), "an old life comes again");
                                lives.push(epoch(&frame).to_owned());
                            }
                            assert_eq!((frame.sequence(), frame.prev()), (last + 1, last));
                            assert_eq!(Some(epoch(&frame)), lives.last().map(String::as_str));
                            last += 1;
                        }
                        _ => {}
                    }
                }
                lives
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
                    receipts.push(client.accept("r", &facts).await);
                }
                receipts
            })
        })
        .collect();
    let erasing = async {
        let mut erased = 0;
        while erased < ERASURES {
            // Two at once: each is told whether it was the one.
            let (one, other) = tokio::join!(client.delete("/v1/runs/r"), client.delete("/v1/runs/r"));
            for answer in [one, other] {
                match answer.status {
                    204 => erased += 1,
                    _ => drop(answer.problem(404, "no_such_run")),
                }
            }
        }
    };
    soon("as many erasures", erasing).await;
    done.store(true, Ordering::Relaxed);
    let mut lives = BTreeMap::<String, Vec<(u64, u64)>>::new();
    for producer in producers {
        for receipt in soon("a producer", producer).await.unwrap() {
            let place = |member: &str| receipt[member].as_u64().unwrap();
            let life = receipt["epoch"].as_str().unwrap().to_owned();
            lives.entry(life).or_default().push((place("firstSequence"), place("lastSequence")));
        }
    }
    for (life, bodies) in &mut lives {
        bodies.sort_unstable();
        let ends: Vec<_> = bodies.iter().map(|(_, last)| last + 1).collect();
        let begins: Vec<_> = bodies.iter().map(|(first, _)| *first).collect();
        assert_eq!(begins[0], 1, "{life} begins with a body of its own");
        assert_eq!(begins[1..], ends[..ends.len() - 1], "{life} has every body once, whole");
    }
    assert!(lives.len() > 3, "{} lives", lives.len());
    let last = client.accept("r", &[finished()]).await;
    let life = last["epoch"].as_str().unwrap();
    let count: u64 = lives.get(life).into_iter().flatten().map(|(first, last)| last + 1 - first).sum();
    assert_eq!(client.events("r", "", 1000).await.len() as u64, count + 1, "all of the last life, nothing of those before");
    for reader in readers {
        let seen = soon("a reader to reach the end", reader).await.unwrap();
        assert_eq!(seen.last().map(String::as_str), Some(life));
        assert!(seen.iter().all(|life| lives.contains_key(life) || life == last["epoch"].as_str().unwrap()));
    }
}
