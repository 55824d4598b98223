//! Compaction: data that was only useful while a run was live is removed, and no reader sees a difference.

use crate::activities::{Screen, read_activities, without_times};
use crate::harness::{
    AUDIENCES, Client, ClockedProcess, Frame, Process, TRANSPORTS, Transport, environment, fact, is_full, list_recordings,
    part_of, recording, serve_until, storage_in, to_ndjson, with_timeout,
};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::embedded::Sync;
use proscenium::serve::maintenance::compact::{CompactionOutcome, Compactor, StepSize};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

/// Steps so small that every run takes several.
const SMALL_STEPS: StepSize = StepSize { appends: 3, bytes: 4096 };

fn server(store: Storage, now: fn() -> jiff::Timestamp) -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(now)).unwrap()
}

/// Starts a server in memory whose clock stands still, with a compactor that takes every ended run.
pub async fn start_with_stopped_clock() -> (Client, Compactor) {
    let server = server(Storage::memory(), || jiff::Timestamp::UNIX_EPOCH);
    let compactor = server.compactor(Duration::ZERO);
    (serve_until(server, std::future::pending()).await.0, compactor)
}

/// Posts a recording, either one fact per append or all facts in few appends, and ends the run.
pub async fn post_recording(client: &Client, run: &str, name: &str, one_by_one: bool) {
    let path = format!("/v1/runs/{run}/facts?source=awaken");
    if one_by_one {
        for fact in recording(name) {
            client.post(&path, &[("content-type", "application/json")], fact.to_string()).await.ok();
        }
    } else {
        client.post_lines(&path, to_ndjson(&recording(name))).await.ok();
    }
    client.append(run, &[fact("run.finished", json!({}))]).await;
}

fn sequences(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect()
}

/// Reads everything of a run that compaction must not change for an audience.
pub async fn state(client: &Client, run: &str, audience: &str) -> Value {
    let activities = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    let mut run_state = client.get(&format!("/v1/runs/{run}?audience={audience}")).await.ok();
    run_state["counts"]["events"].take();
    run_state.as_object_mut().unwrap().remove("compacted");
    json!([activities, run_state])
}

/// Reads a stream of events to its end, and asserts that each frame names the one before it, the first names `last`.
async fn read_chain(client: &Client, via: Transport, run: &str, query: &str, cursor: Option<&str>, mut last: u64) -> Vec<Frame> {
    let mut frames = client.open_stream(via, run, query, cursor).await.read_all().await;
    assert_eq!(frames.pop().map(|frame| frame.kind().to_owned()).as_deref(), Some("End"), "{run} {query}");
    for frame in &frames {
        assert_eq!((frame.kind(), frame.prev()), ("Event", last), "{run} {query} after {cursor:?}: {}", frame.data);
        last = frame.sequence();
    }
    frames
}

fn frame_sequences(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(Frame::sequence).collect()
}

/// Reads the holes that a run's pages declare, from either end.
async fn read_holes(client: &Client, run: &str, limit: usize, backward: bool) -> Vec<(u64, u64)> {
    let (mut found, mut cursor) = (Vec::new(), if backward { u64::MAX.to_string() } else { "0".to_owned() });
    loop {
        let member = if backward { "before" } else { "after" };
        let page = client.get(&format!("/v1/runs/{run}/events?limit={limit}&{member}={cursor}&audience=internal")).await.ok();
        assert_ne!(page["holes"], json!([]), "a page without holes has no such member");
        let number = |value: &Value| value.as_u64().unwrap();
        let holes: Vec<_> = page["holes"].as_array().into_iter().flatten().map(|h| (number(&h[0]), number(&h[1]))).collect();
        let at = if backward { 0 } else { found.len() };
        found.splice(at..at, holes);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return found,
        }
    }
}

/// Everything that readers had before the compaction.
pub struct Before {
    states: Vec<Value>,
    events: Vec<Vec<u64>>,
    /// By audience: each frame's cursor and sequence; for activities the screen at that cursor.
    cursors: Vec<Vec<(String, u64)>>,
    screens: Vec<Vec<Screen>>,
}

impl Before {
    /// The cursors of the narrowest audience.
    pub fn cursor_count(&self) -> usize {
        self.cursors[2].len()
    }
}

/// The number of screens kept per run and audience.
const SCREENS_MAX: usize = 256;

pub async fn read_before(client: &Client, run: &str) -> Before {
    let mut before = Before { states: Vec::new(), events: Vec::new(), cursors: Vec::new(), screens: Vec::new() };
    for audience in AUDIENCES {
        let query = format!("audience={audience}");
        before.states.push(state(client, run, audience).await);
        before.events.push(sequences(&client.read_events(run, &query, 1000).await));
        let frames = read_chain(client, Transport::Raw, run, &query, None, 0).await;
        before.cursors.push(frames.iter().map(|frame| (frame.id().to_owned(), frame.sequence())).collect());
        let (mut screen, mut screens) = (Screen::default(), Vec::new());
        for frame in client.open_activities(run, &format!("{query}&replay=deltas"), None).await.read_all().await {
            screen.apply(&frame);
            if frame.id.is_some() && !screen.ended {
                screens.push(screen.clone());
            }
            // Of a long run only some: all of them would take gigabytes.
            if screens.len() > SCREENS_MAX {
                screens = screens.into_iter().step_by(2).collect();
            }
        }
        before.screens.push(screens);
    }
    before
}

/// Compares a compacted run with its former state; returns the numbers of rows before and after.
pub async fn check(client: &Client, run: &str, before: &Before, step: usize) -> (usize, usize) {
    let mut counts = (0, 0);
    let all = sequences(&client.read_events(run, "audience=internal", 7).await);
    for (who, audience) in AUDIENCES.into_iter().enumerate() {
        let query = format!("audience={audience}");
        let about = format!("{run} for {audience}");
        assert_eq!(state(client, run, audience).await, before.states[who], "{about}");
        let page = if before.events[who].len() > 1000 { 100 } else { 3 };
        let events = client.read_events(run, &query, page).await;
        let left = sequences(&events);
        counts = (before.events[who].len(), left.len());
        let expected: Vec<_> = before.events[who].iter().copied().filter(|sequence| all.contains(sequence)).collect();
        assert_eq!(left, expected, "{about}: not the remaining events of those it saw");
        assert_eq!(events, client.read_events_backward(run, &query, page).await, "{about}");
        assert_eq!(events, client.export(run, &query).await, "{about}");
        let run_state = client.get(&format!("/v1/runs/{run}?{query}")).await.ok();
        assert_eq!(run_state["counts"]["events"], left.len(), "{about}");

        // Streams, from the start and from every cursor that a reader may have.
        for via in TRANSPORTS {
            assert_eq!(frame_sequences(&read_chain(client, via, run, &query, None, 0).await), left, "{about}");
        }
        let of_type = format!("{query}&type=run.started,run.status,run.finished,tool.started,text.final");
        let typed = frame_sequences(&read_chain(client, Transport::Raw, run, &of_type, None, 0).await);
        for (cursor, last) in before.cursors[who].iter().step_by(step) {
            let rest = frame_sequences(&read_chain(client, Transport::Raw, run, &query, Some(cursor), *last).await);
            assert!(rest.iter().eq(left.iter().filter(|sequence| *sequence > last)), "{about} after {last}");
            let of_type = client.open_stream(Transport::Raw, run, &of_type, Some(cursor)).await.read_all().await;
            let rest: Vec<_> = frame_sequences(&of_type[..of_type.len() - 1]);
            assert!(rest.iter().eq(typed.iter().filter(|sequence| *sequence > last)), "{about} after {last}, by type");
        }

        // Activities, from the start and from every screen that a reader may have.
        let expected = read_activities(client, run, &query).await;
        let screens = step.min(1 + before.screens[who].len() / 5);
        for query in [query.clone(), format!("{query}&replay=deltas")] {
            for screen in [Screen::default()].iter().chain(before.screens[who].iter().step_by(screens)) {
                let mut resumed = screen.clone();
                for frame in client.open_activities(run, &query, screen.cursor.as_deref()).await.read_all().await {
                    resumed.apply(&frame);
                }
                assert!(resumed.ended);
                assert_eq!(resumed.shown(), expected, "{about} {query} from {:?}", screen.cursor);
            }
        }

        // The activities at a sequence inside a hole are those at the last row before it.
        let travel = async |at: u64| client.get(&format!("/v1/runs/{run}/activities?{query}&at={at}")).await.ok();
        for hole in all.windows(2).filter(|pair| pair[1] > pair[0] + 1).step_by(step) {
            assert_eq!(travel(hole[0] + 1).await, travel(hole[0]).await, "{about} at {}", hole[0] + 1);
            assert_eq!(travel(hole[1] - 1).await["sequence"], hole[0], "{about} at {}", hole[1] - 1);
        }
    }
    let gaps = [0].iter().chain(&all).zip(&all).filter(|(a, b)| **b > **a + 1).map(|(a, b)| (a + 1, b - 1));
    let gaps: Vec<_> = gaps.collect();
    for (limit, backward) in [(1000, false), (2, false), (1000, true), (2, true)] {
        assert_eq!(read_holes(client, run, limit, backward).await, gaps, "{run} by {limit}, backward: {backward}");
    }
    counts
}

#[tokio::test]
async fn compaction_of_every_recording_removes_rows_and_changes_no_state() {
    let (client, compactor) = start_with_stopped_clock().await;
    let (mut rows, mut left) = (0, 0);
    for (n, name) in part_of(list_recordings("awaken"), 4).iter().enumerate() {
        let is_long = name == "long_40_steps";
        post_recording(&client, name, name, n % 2 == 0 && !is_long).await;
        let was = read_before(&client, name).await;
        let compactor = if is_long { compactor.clone() } else { compactor.clone().with_step_size(SMALL_STEPS) };
        let outcome = compactor.run_once().await.unwrap();
        assert_eq!(outcome.runs, 1, "{name}: the compactor has checked the other runs");
        let step = if is_long { was.cursors[2].len() / 5 } else { 1 + was.cursors[2].len() / 12 };
        let (had, has) = check(&client, name, &was, step).await;
        assert_eq!(had - has, outcome.rows, "{name}");
        let compacted = &client.get(&format!("/v1/runs/{name}")).await.ok()["compacted"];
        assert_eq!(*compacted, if outcome.rows > 0 { json!(true) } else { Value::Null });
        println!("{name}: {} of {had} rows were removed", outcome.rows);
        (rows, left) = (rows + had, left + has);
    }
    println!("{} of {rows} rows were removed", rows - left);
    // Most of the rest is streamed text, which Awaken sends in chunks only: no later event repeats it. Decisions stay, too.
    assert!(!is_full() || rows - left > 550, "{left} of {rows} rows remain");
    assert_eq!(compactor.run_once().await.unwrap(), CompactionOutcome::default(), "a second pass removes nothing");
}

/// A small random generator (xorshift), so that a failure can be reproduced by its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Generates a fact about one of a few subjects, so that facts interact.
///
/// Of any persistence and audience.
fn any_fact(rng: &mut Rng) -> Value {
    let text = rng.one(&["a", "bc", "", "bcd", "e "]);
    let (message, part, call) = (rng.one(&["m", "n"]), rng.one(&["p", "q"]), rng.one(&["c", "d"]));
    let whole = rng.below(2) == 0;
    let mut fact = match rng.below(16) {
        0..=3 => fact("text.delta", json!({"messageId": message, "partId": part, "payload": {"text": text}})),
        4 if whole => fact("text.final", json!({"messageId": message, "payload": {"text": "abcbcd"}})),
        4 => fact("text.final", json!({"messageId": message, "partId": part, "payload": {"text": "abcbcde "}})),
        5 => fact("reasoning.delta", json!({"messageId": message, "partId": part, "payload": {"text": text}})),
        6 => fact("reasoning.summary", json!({"messageId": message, "partId": part, "payload": {"text": "abc"}})),
        7 => fact("tool.started", json!({"toolCallId": call, "payload": {"toolName": "dig"}})),
        8 if whole => fact("tool.args", json!({"toolCallId": call, "payload": {"input": {"a": text}}})),
        8 => fact("tool.args", json!({"toolCallId": call, "payload": {"inputText": text}})),
        9 if whole => fact("tool.progress", json!({"toolCallId": call, "payload": {"status": "pending", "awaits": "client"}})),
        9 => fact("tool.progress", json!({"toolCallId": call, "payload": {"message": text, "progress": 0.5}})),
        10 if whole => fact("tool.args", json!({"toolCallId": call, "payload": {"state": "input-available"}})),
        10 => fact("tool.result", json!({"toolCallId": call, "payload": {"output": text}})),
        11 => fact("run.status", json!({"payload": {"message": text}, "phase": rng.one(&["acting", "waiting", "reasoning"])})),
        12 if whole => fact("state.snapshot", json!({"payload": {"state": {"n": text}}})),
        12 => fact("state.delta", json!({"payload": {"patch": [{"op": "add", "path": "/n", "value": text}]}})),
        13 => fact("diagnostic.changed", json!({"payload": {"message": text}})),
        14 => fact("metric.changed", json!({"payload": {"usage": {"inputTokens": 1}}})),
        _ if whole => fact("run.started", json!({"agentId": rng.one(&["x", "y"])})),
        _ => fact("run.finished", json!({})),
    };
    match rng.below(4) {
        0 => fact["persistence"] = "ephemeral_live".into(),
        1 => fact["persistence"] = "archive".into(),
        _ => {}
    }
    if rng.below(3) == 0 {
        fact["audience"] = rng.one(&AUDIENCES).into();
    }
    fact
}

#[tokio::test]
async fn compaction_changes_no_state_of_random_runs_also_after_late_facts() {
    let (client, compactor) = start_with_stopped_clock().await;
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let (mut rows, mut gone) = (0, 0);
    for n in 0..16 {
        let run = format!("r{n}");
        let compactor = if n % 2 == 0 { compactor.clone().with_step_size(SMALL_STEPS) } else { compactor.clone() };
        for _ in 0..2 {
            for _ in 0..=rng.below(7) {
                let facts: Vec<_> = (0..=rng.below(11)).map(|_| any_fact(&mut rng)).collect();
                client.append(&run, &facts).await;
            }
            client.append(&run, &[fact("run.finished", json!({}))]).await;
            let was = read_before(&client, &run).await;
            let outcome = compactor.run_once().await.unwrap();
            let step = 1 + was.cursors[2].len() / 6;
            let (had, has) = check(&client, &run, &was, step).await;
            assert_eq!((outcome.runs, outcome.rows), (1, had - has), "{run}");
            (rows, gone) = (rows + had, gone + outcome.rows);
        }
    }
    println!("{gone} of {rows} rows were removed");
    assert!(gone > 40, "{gone} of {rows}");
}

fn progress(n: u64, bytes: usize) -> Value {
    let class = if n == 0 { "tool.started" } else { "tool.progress" };
    fact(
        class,
        json!({"toolCallId": "c", "audience": "user", "payload": {"toolName": "dig", "message": format!("{n:04}{}", "x".repeat(bytes))}}),
    )
}

/// Writes a run that ends, and that can lose nearly all of its rows.
async fn write_compactable_run(client: &Client, run: &str, count: u64, bytes: usize) {
    for n in (0..count).collect::<Vec<_>>().chunks(10) {
        client.append(run, &n.iter().map(|n| progress(*n, bytes)).collect::<Vec<_>>()).await;
    }
    client.append(run, &[fact("run.finished", json!({}))]).await;
}

#[tokio::test]
async fn live_readers_of_several_runs_continue_unaffected_by_a_compaction() {
    let (client, compactor) = start_with_stopped_clock().await;
    write_compactable_run(&client, "r", 200, 10).await;
    write_compactable_run(&client, "other", 3, 10).await;
    let mut streams = Vec::new();
    for audience in AUDIENCES {
        for query in ["frames=events", "frames=events&type=tool.progress,diagnostic.changed,run.finished", "", "replay=deltas"] {
            let path = format!("/v1/stream?runs=r,other&audience={audience}&{query}");
            let mut stream = client.open(Transport::Raw, &path, None).await;
            let (mut last, mut cursors, mut ends) = (BTreeMap::new(), Vec::new(), 0);
            let mut screen = Screen::default();
            while ends < 2 {
                let frame = stream.next_frame().await;
                let run = frame.data["runId"].as_str().unwrap().to_owned();
                if frame.kind() == "Event" {
                    assert_eq!(frame.prev(), last.insert(run.clone(), frame.sequence()).unwrap_or(0));
                } else if run == "r" {
                    screen.apply(&frame);
                }
                cursors.extend(frame.id.clone().map(|id| (id, last.clone(), screen.clone())));
                ends += u64::from(frame.kind() == "End");
            }
            streams.push((path, stream, last, screen, cursors));
        }
    }
    let outcome = compactor.run_once().await.unwrap();
    assert!(outcome.rows > 190, "{outcome:?}");
    let late = [fact("diagnostic.changed", json!({"audience": "user", "payload": {"message": "late"}}))];
    let sequence = client.append("r", &late).await["lastSequence"].as_u64().unwrap();
    let left = sequences(&client.read_events("r", "audience=internal", 1000).await);
    for (path, mut stream, mut last, mut screen, cursors) in streams {
        let expected = read_activities(&client, "r", &path[path.find("audience").unwrap()..]).await;
        if path.contains("events") {
            let frame = stream.next_frame().await;
            assert_eq!((frame.sequence(), frame.prev()), (sequence, last.insert("r".into(), sequence).unwrap()), "{path}");
        } else {
            screen.ended = false;
            loop {
                let frame = stream.next_frame().await;
                assert_ne!(frame.kind(), "Hydrated", "{path}: Hydrated would repeat what the reader has");
                screen.apply(&frame);
                if frame.kind() == "End" {
                    break;
                }
            }
            assert_eq!(screen.shown(), expected, "{path}");
        }
        // A reader that resumes at any cursor ends with the same state.
        for (cursor, mut last, mut screen) in cursors.into_iter().step_by(17) {
            let mut stream = client.open(Transport::Raw, &path, Some(&cursor)).await;
            let had = last.get("r").copied().unwrap_or(0);
            let mut rest = Vec::new();
            loop {
                let frame = stream.next_frame().await;
                let run = frame.data["runId"].as_str().unwrap().to_owned();
                if frame.kind() == "Event" {
                    assert_eq!(
                        frame.prev(),
                        last.insert(run.clone(), frame.sequence()).unwrap_or(0),
                        "{path} {cursor} {}",
                        frame.data
                    );
                    rest.extend((run == "r").then(|| frame.sequence()));
                } else if run == "r" {
                    screen.apply(&frame);
                }
                if frame.kind() == "End" && run == "r" {
                    break;
                }
            }
            if path.contains("events") && !path.contains("type=") {
                assert!(rest.iter().eq(left.iter().filter(|sequence| **sequence > had)), "{path} {cursor}: {rest:?}");
            } else if !path.contains("events") {
                assert_eq!(screen.shown(), expected, "{path} {cursor}");
            }
        }
    }
}

#[tokio::test]
async fn the_ring_and_the_log_agree_after_each_compaction() {
    let (client, compactor) = start_with_stopped_clock().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    // These readers join before the first fact, so that the ring holds every frame.
    let mut live = Vec::new();
    for query in ["frames=events", ""] {
        let mut stream = client.open(Transport::Raw, &format!("/v1/stream?runs=r&{query}"), None).await;
        let (mut screen, first) = (Screen::default(), stream.next_frame().await);
        if query.is_empty() {
            screen.apply(&first);
        }
        live.push((query, stream, screen, first.sequence()));
    }
    let mut last = 1;
    for attempt in 0..3 {
        let facts = (1..40).map(|n| progress(n, attempt)).chain([fact("run.finished", json!({}))]);
        for fact in [fact("run.started", json!({}))].into_iter().filter(|_| attempt > 0).chain(facts) {
            last = client.append("r", &[fact]).await["lastSequence"].as_u64().unwrap();
        }
        for (query, stream, screen, had) in &mut live {
            loop {
                let frame = stream.next_frame().await;
                match frame.kind() {
                    "Event" => assert_eq!(frame.prev(), std::mem::replace(had, frame.sequence()), "{query}"),
                    "Hydrated" if *had > 1 => panic!("{query}: Hydrated repeats what the reader has"),
                    "End" => break,
                    _ => screen.apply(&frame),
                }
                *had = frame.sequence();
            }
        }
        assert!(compactor.run_once().await.unwrap().rows > 30);
        let expected = read_activities(&client, "r", "").await;
        assert_eq!(live[1].2.shown(), expected);
        let left = sequences(&client.read_events("r", "", 1000).await);
        assert_eq!(frame_sequences(&read_chain(&client, Transport::Raw, "r", "", None, 0).await), left);
        let epoch = client.get("/v1/runs/r").await.ok()["epoch"].as_str().unwrap().to_owned();
        for at in 0..last {
            let rest = read_chain(&client, Transport::Raw, "r", "", Some(&format!("{epoch}:{}", 2 * at)), at).await;
            assert!(frame_sequences(&rest).iter().eq(left.iter().filter(|sequence| **sequence > at)), "after {at}");
            let then = client.get(&format!("/v1/runs/r/activities?at={at}")).await.ok();
            let cursor = then["cursor"].as_str().unwrap();
            for query in ["", "replay=deltas"] {
                let mut screen = Screen::from_page(&then);
                for frame in client.open_activities("r", query, Some(cursor)).await.read_all().await {
                    screen.apply(&frame);
                }
                assert_eq!(screen.shown(), expected, "{query} from {cursor}");
            }
        }
    }
}

#[tokio::test]
async fn a_stalled_reader_gets_the_remaining_rows_without_a_gap() {
    let (client, compactor) = start_with_stopped_clock().await;
    // Of these facts that compaction removes, one sets a member and another removes it: a reader with only the first
    // would keep it.
    let patch = |op: &str, path: &str, persistence: &str| {
        let patch = json!([{"op": op, "path": path, "value": 1}]);
        fact("state.delta", json!({"persistence": persistence, "payload": {"patch": patch}}))
    };
    let begun = [fact("state.snapshot", json!({"payload": {"state": {}}})), patch("add", "/n", "ephemeral_live")];
    client.append("r", &begun).await;
    for n in 0..800 {
        client.append("r", &[progress(n, 30_000)]).await;
    }
    let over = [patch("remove", "/n", "ephemeral_live"), patch("add", "/done", "snapshot"), fact("run.finished", json!({}))];
    client.append("r", &over).await;
    let mut streams = Vec::new();
    for query in ["frames=events", "frames=events&type=tool.started,tool.progress", "replay=deltas"] {
        for via in TRANSPORTS {
            let mut stream = client.open(via, &format!("/v1/runs/r/stream?{query}"), None).await;
            // The reader reads a little, and then no more than the buffers of both ends.
            let first = stream.next_frame().await;
            streams.push((query, via, stream, first));
        }
    }
    let outcome = compactor.run_once().await.unwrap();
    assert!(outcome.rows > 790, "{outcome:?}");
    let expected = read_activities(&client, "r", "").await;
    for (query, via, mut stream, first) in streams {
        let (mut screen, mut last, mut count) = (Screen::default(), 0, 0);
        let mut next = Some(first);
        while let Some(frame) = next {
            count += 1;
            if frame.kind() == "Event" {
                assert_eq!(frame.prev(), last, "{query} {via:?}");
                last = frame.sequence();
            } else if !query.contains("events") {
                screen.apply(&frame);
            }
            screen.ended |= frame.kind() == "End";
            next = stream.next().await;
        }
        assert!(screen.ended && count < 800, "{query} {via:?}: {count} frames, the reader did not stall");
        if !query.contains("events") {
            assert_eq!(screen.shown(), expected, "{query} {via:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn facts_and_readers_during_a_compaction_are_unaffected() {
    let (client, compactor) = start_with_stopped_clock().await;
    let (twin, _) = start_with_stopped_clock().await;
    let compactor = compactor.with_step_size(StepSize { appends: 20, bytes: usize::MAX });
    let mut readers = Vec::new();
    for (n, query) in
        ["frames=events", "frames=events&type=text.delta,tool.progress,task.changed", "", "replay=deltas"].into_iter().enumerate()
    {
        let path = format!("/v1/stream?runs=r&{query}&audience={}", AUDIENCES[n % 3]);
        let mut stream = client.open(Transport::Raw, &path, None).await;
        readers.push(tokio::spawn(async move {
            let (mut screen, mut last) = (Screen::default(), 0);
            loop {
                let frame = stream.next_frame().await;
                if frame.kind() == "Event" {
                    assert_eq!(frame.prev(), last, "{path}");
                    last = frame.sequence();
                } else if !path.contains("events") {
                    screen.apply(&frame);
                }
                if frame.data.to_string().contains("that is all") {
                    return (path, screen);
                }
            }
        }));
    }
    let rows = Arc::new(AtomicUsize::new(0));
    let compacting = tokio::spawn({
        let rows = rows.clone();
        async move {
            loop {
                rows.fetch_add(compactor.run_once().await.unwrap().rows, Ordering::Relaxed);
            }
        }
    });
    let mut rng = Rng(0x2545_f491_4f6c_dd1d);
    for n in 0..80 {
        let mut facts: Vec<_> = (0..=rng.below(15)).map(|_| any_fact(&mut rng)).collect();
        facts.extend((1..=rng.below(9)).map(|n| progress(n, 1)));
        facts.extend((n % 3 == 0 || n % 20 == 19).then(|| fact("run.finished", json!({}))));
        // The compactor may have removed them before the receipt is here.
        let gone = rows.load(Ordering::Relaxed);
        let receipt = client.append("r", &facts).await;
        let expected = twin.append("r", &facts).await;
        let sequences_of = |receipt: &Value| [receipt["firstSequence"].clone(), receipt["lastSequence"].clone()];
        assert_eq!(sequences_of(&receipt), sequences_of(&expected));
        if n % 20 == 19 {
            with_timeout("the removal of rows", async {
                while rows.load(Ordering::Relaxed) == gone {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
    compacting.abort();
    for client in [&client, &twin] {
        client.append("r", &[fact("task.changed", json!({"payload": {"taskId": "t", "title": "that is all"}}))]).await;
    }
    for audience in AUDIENCES {
        let query = format!("audience={audience}");
        let [own, twins] =
            [read_activities(&client, "r", &query).await, read_activities(&twin, "r", &query).await].map(without_times);
        assert_eq!(own, twins, "{audience}");
    }
    for reader in readers {
        let (path, screen) = with_timeout("a reader's last frame", reader).await.unwrap();
        if !path.contains("events") {
            let twins = read_activities(&twin, "r", &path[path.find("audience").unwrap()..]).await;
            assert_eq!(without_times(screen.shown()), without_times(twins), "{path}");
        }
    }
}

#[tokio::test]
async fn a_run_is_compacted_after_its_end_and_a_quiet_time() {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    let server = server(Storage::memory(), || jiff::Timestamp::from_second(NOW.load(Ordering::Relaxed)).unwrap());
    let compactor = server.compactor(Duration::from_mins(1));
    let (client, _serving) = serve_until(server, std::future::pending()).await;
    let round = async |passed: i64| {
        NOW.fetch_add(passed, Ordering::Relaxed);
        let outcome = compactor.run_once().await.unwrap();
        (outcome.runs, outcome.rows)
    };
    client.append("r", &(0..20).map(|n| progress(n, 1)).collect::<Vec<_>>()).await;
    assert_eq!(round(1000).await, (0, 0), "the run has not ended");
    client.append("r", &[fact("run.finished", json!({}))]).await;
    assert_eq!(round(59).await, (0, 0));
    let late = || [fact("diagnostic.changed", json!({"payload": {"message": "late"}}))];
    client.append("r", &late()).await;
    assert_eq!(round(59).await, (0, 0), "the quiet time is not over");
    assert_eq!(round(1).await, (1, 17), "the first fact, the first and last report, and the end remain");
    assert_eq!(round(1000).await, (0, 0), "a compacted run is not compacted again");
    assert_eq!(client.get("/v1/runs/r").await.ok()["compacted"], true);

    // The run continues with another attempt, and ends again.
    client.append("r", &late()).await;
    let facts: Vec<_> = [fact("run.started", json!({}))].into_iter().chain((1..20).map(|n| progress(n, 1))).collect();
    client.append("r", &facts).await;
    assert_eq!(round(1000).await, (0, 0), "the run is active");
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let was = read_before(&client, "r").await;
    assert_eq!(round(60).await, (1, 19), "and the former last report of the first attempt");
    check(&client, "r", &was, 1).await;
    assert_eq!(round(-5000).await, (0, 0), "a clock that goes back ages no run");
}

#[tokio::test]
async fn a_compacted_run_can_be_erased_and_its_next_epoch_is_complete() {
    let (client, compactor) = start_with_stopped_clock().await;
    write_compactable_run(&client, "r", 30, 10).await;
    assert!(compactor.run_once().await.unwrap().rows > 25);
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    client.get("/v1/runs/r").await.problem(410, "erased");
    write_compactable_run(&client, "r", 30, 10).await;
    assert_eq!(sequences(&client.read_events("r", "", 1000).await), (1..=31).collect::<Vec<_>>());
    assert_eq!(client.get("/v1/runs/r").await.ok()["compacted"], Value::Null);
    assert_eq!(compactor.run_once().await.unwrap().runs, 1);
}

#[tokio::test]
async fn an_imported_export_of_a_compacted_run_has_the_same_state() {
    let (client, compactor) = start_with_stopped_clock().await;
    post_recording(&client, "r", "multi_tool_sequential", false).await;
    assert!(compactor.run_once().await.unwrap().rows > 0);
    let mut exported = client.export("r", "audience=internal").await;
    for envelope in &mut exported {
        for stamp in ["runId", "eventId", "sequence", "receivedAt", "startAudience"] {
            envelope.as_object_mut().unwrap().remove(stamp);
        }
    }
    client.post_lines("/v1/runs/copy/facts", to_ndjson(&exported)).await.ok();
    for audience in AUDIENCES {
        let query = format!("audience={audience}");
        let contents = async |run: &str| {
            let mut shown: Vec<_> =
                read_activities(&client, run, &query).await.into_values().map(|a| a["content"].clone()).collect();
            // Sequences are the importing run's own.
            shown.iter_mut().for_each(without_sequences);
            let mut shown: Vec<_> = shown.iter().map(Value::to_string).collect();
            shown.sort();
            shown
        };
        assert_eq!(contents("copy").await, contents("r").await, "{audience}");
    }
}

fn without_sequences(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|member, value| !(value.is_u64() && ["opened", "sequence", "reported"].contains(&member.as_str())));
            members.values_mut().for_each(without_sequences);
        }
        Value::Array(values) => values.iter_mut().for_each(without_sequences),
        _ => {}
    }
}

#[tokio::test]
async fn a_compacted_run_on_disk_survives_a_restart_and_accepts_late_facts() {
    let dir = tempfile::tempdir().unwrap();
    let mut was = None;
    for restart in 0..3 {
        let server = server(storage_in(dir.path(), Sync::Always).await, || jiff::Timestamp::UNIX_EPOCH);
        let compactor = server.compactor(Duration::ZERO).with_step_size(SMALL_STEPS);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (client, serving) = serve_until(server, async { drop(stopped.await) }).await;
        match &was {
            None => {
                post_recording(&client, "r", "tool_progress_activity", true).await;
                let had = read_before(&client, "r").await;
                assert!(compactor.run_once().await.unwrap().rows > 0);
                check(&client, "r", &had, 5).await;
                was = Some(had);
            }
            Some(had) => {
                assert_eq!(compactor.run_once().await.unwrap(), CompactionOutcome::default(), "restart {restart}");
                check(&client, "r", had, 5).await;
            }
        }
        if restart == 1 {
            client.append("r", &[fact("task.changed", json!({"payload": {"taskId": "late"}}))]).await;
            let had = read_before(&client, "r").await;
            compactor.run_once().await.unwrap();
            check(&client, "r", &had, 5).await;
            // The state before the first compaction is not compared again; this one is.
            was = Some(read_before(&client, "r").await);
        }
        drop((stop, compactor, client));
        with_timeout("the server's stop", serving).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_compacts_a_run_by_itself_when_it_ended_a_day_ago() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &["--compact-after", "86400"]);
    let client = &clocked.client;
    write_compactable_run(client, "r", 50, 10).await;
    let is_compacted = async || client.get("/v1/runs/r").await.ok()["compacted"] == true;
    let passed = clocked.advance_until("the compaction", Duration::from_hours(1), is_compacted).await;
    assert!(passed >= Duration::from_hours(24), "{passed:?}");
    assert_eq!(client.read_events("r", "", 1000).await.len(), 4);
    clocked.server.kill();
    let server = Process::start_in(dir.path());
    assert_eq!(Client::new(server.at).read_events("r", "", 1000).await.len(), 4);
}
