//! A power cut: the data directory is cut at every byte of the last commits, and the whole server starts on it.
//!
//! The last commits contain facts of two runs, a control, and the answer to another control, concurrently. Each is
//! there completely or not at all; everything acknowledged before them is there. A repeated request is accepted once.
//!
//! The server runs inside the test on a copy of the directory: a start costs milliseconds, so that thousands are
//! feasible.

use super::control_load::list_controls;
use super::figures::Figures;
use super::follower::Follower;
use super::{gaps, kills, read_log};
use crate::harness::{Client, environment, fact, with_timeout};
use crate::store::{copy_directory, lose_power, mark_file, newest_segment};
use futures_util::StreamExt;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

/// Facts per body.
const FACTS: u64 = 2;
/// The number of concurrent servers.
const AT_ONCE: usize = 4;

/// Starts a server on this directory.
///
/// Returns its client, and a function that stops it and waits until the directory is free.
async fn serve_in(dir: &Path, client: &Client) -> (Client, impl AsyncFnOnce()) {
    let store = Storage::open(dir, Sync::Always).unwrap();
    let pulse = KeepAlive { drain: Duration::ZERO, ..KeepAlive::default() };
    let environment = environment(jiff::Timestamp::now);
    let server = Server::new(store, Policy::default(), FeedConfig::default(), Limits::default(), pulse, environment).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client.for_server(listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move { server.run(listener, async { drop(stopped.await) }).await.unwrap() });
    let lock = EmbeddedStore::lock_file(dir);
    let end = async move || {
        drop(stop);
        with_timeout("the server's end", serving).await.unwrap();
        let lock = File::open(lock).unwrap();
        while let Err(TryLockError::WouldBlock) = lock.try_lock() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    (client, end)
}

/// Creates a directory in memory if possible.
///
/// A sync takes most of the time of a start, and this test does not test it.
fn temporary_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Sends a producer's facts from this number on; returns the receipt.
async fn send_facts(client: &Client, run: &str, from: u64) -> Value {
    let numbered = |n| fact("tool.result", json!({"toolCallId": format!("call-{n}"), "payload": {"n": n}}));
    let body: Vec<_> = (from..from + FACTS).map(numbered).collect();
    let from = from.to_string();
    let headers = [("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", from.as_str())];
    client.post(&format!("/v1/runs/{run}/facts"), &headers, json!(body).to_string()).await.ok()
}

/// Submits a control to run `r`; returns the status.
async fn submit_control(client: &Client, id: &str, value: &str) -> u16 {
    let request = json!({"controlId": id, "control": "steer", "value": value});
    client.post("/v1/runs/r/controls", &[], request.to_string()).await.status
}

/// Claims up to `max` controls.
async fn claim(client: &Client, max: usize) -> Vec<Value> {
    let path = format!("/v1/agents/default/controls/claim?max={max}");
    client.post(&path, &[], "").await.ok()["controls"].as_array().unwrap().clone()
}

async fn ack(client: &Client, claimed: &Value) {
    let path = format!("/v1/controls/{}/ack", claimed["controlId"].as_str().unwrap());
    assert_eq!(client.post(&path, &[], json!({"lease": claimed["lease"]}).to_string()).await.ok()["status"], "acked");
}

/// Lists each control's id, status and attempt for run `r`, in order.
async fn control_states(client: &Client) -> Vec<(String, String, u64)> {
    let text = |control: &Value, member: &str| control[member].as_str().unwrap().to_owned();
    let state = |of: &Value| (text(of, "controlId"), text(of, "status"), of["attempt"].as_u64().unwrap());
    list_controls(client, "r").await.iter().map(state).collect()
}

/// Extracts the facts' numbers and each control's steps from the run's events.
fn numbers_and_steps(events: &[Value]) -> (Vec<u64>, BTreeMap<String, Vec<String>>) {
    let (mut numbers, mut steps) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for event in events {
        let payload = &event["payload"];
        match payload["n"].as_u64() {
            Some(n) => numbers.push(n),
            None => {
                let [id, status] = ["controlId", "status"].map(|member| payload[member].as_str().unwrap().to_owned());
                steps.entry(id).or_default().push(status);
            }
        }
    }
    (numbers, steps)
}

/// A directory with its state before and after the last commits.
struct Written {
    dir: tempfile::TempDir,
    /// The file that says which commits were acknowledged, as it was before the last ones.
    mark: Vec<u8>,
    /// The bytes of the journal that the last commits wrote.
    from: u64,
    to: u64,
}

/// The number of durable facts of a run before the last commits.
const BEFORE: u64 = 2 * FACTS;

async fn write(client: &Client) -> Written {
    let dir = temporary_directory();
    let (server, end) = serve_in(dir.path(), client).await;
    for run in ["r", "other"] {
        send_facts(&server, run, 0).await;
        send_facts(&server, run, FACTS).await;
    }
    for id in ["done", "out", "held", "open"] {
        assert_eq!(submit_control(&server, id, id).await, 202);
    }
    let [done, _out] = claim(&server, 2).await.try_into().unwrap();
    ack(&server, &done).await;
    end().await;
    // The open claim is lost with the restart, so the control is claimed again first.
    let (server, end) = serve_in(dir.path(), client).await;
    let [_out, held] = claim(&server, 2).await.try_into().unwrap();
    assert_eq!(held["controlId"], "held");
    let from = next_record(&newest_segment(dir.path()));
    let mark = std::fs::read(mark_file(dir.path())).unwrap();
    // The first commit keeps the committer busy while the others arrive.
    let last = async {
        tokio::join!(
            send_facts(&server, "other", BEFORE),
            send_facts(&server, "r", BEFORE),
            submit_control(&server, "last", "last"),
            ack(&server, &held)
        )
    };
    assert_eq!(with_timeout("the last commits", Box::pin(last)).await.2, 202);
    end().await;
    let to = next_record(&newest_segment(dir.path()));
    assert!(from < to, "{from} {to}");
    Written { dir, mark, from, to }
}

/// The ends of the records of a segment, in order.
fn record_ends(segment: &Path) -> Vec<u64> {
    let bytes = std::fs::read(segment).unwrap();
    let (mut at, mut ends) = (64, vec![64]);
    while let Some(body_bytes) = bytes.get(at..at + 4).map(|length| u32::from_le_bytes(length.try_into().unwrap())) {
        if body_bytes == 0 {
            break;
        }
        at += (24 + body_bytes as usize).next_multiple_of(8);
        ends.push(at as u64);
    }
    ends
}

/// Where the next record of a segment begins.
fn next_record(segment: &Path) -> u64 {
    *record_ends(segment).last().unwrap()
}

/// Returns the positions of cuts: all of them in the long form, otherwise samples and every record's end.
fn cuts(written: &Written) -> Vec<u64> {
    let Written { from, to, .. } = *written;
    let ends = record_ends(&newest_segment(written.dir.path()));
    let is_near = |end: u64| ends.iter().any(|near| near.abs_diff(end) <= 1);
    let all = kills().is_some();
    (from..=to).filter(|end| all || is_near(*end) || end.is_multiple_of(61)).collect()
}

/// Copies the directory as a power loss leaves it, which lost the journal from this byte on.
fn copy_cut_at(written: &Written, end: u64) -> tempfile::TempDir {
    let cut = temporary_directory();
    copy_directory(written.dir.path(), cut.path());
    lose_power(cut.path(), end, &written.mark);
    cut
}

/// Starts a server on the cut directory, checks all data, and repeats all requests.
///
/// Returns how many of the last four survived.
async fn try_cut(written: &Written, client: &Client, end_at: u64) -> (u64, Figures) {
    let cut = copy_cut_at(written, end_at);
    let (client, end) = serve_in(cut.path(), client).await;
    let mut found = Figures { cuts: 1, ..Figures::default() };
    let mut there = 0;
    for run in ["other", "r"] {
        let events = read_log(&client, run).await;
        let facts = numbers_and_steps(&events).0;
        found.gaps += gaps(&events);
        let is_whole = facts == (0..BEFORE + FACTS).collect::<Vec<_>>();
        assert!(is_whole || facts == (0..BEFORE).collect::<Vec<_>>(), "{end_at}: a body is there in part: {facts:?}");
        there += u64::from(is_whole);
        let again = send_facts(&client, run, BEFORE).await;
        let counts = ["accepted", "duplicates"].map(|member| again[member].as_u64().unwrap());
        assert_eq!(counts, if is_whole { [0, FACTS] } else { [FACTS, 0] }, "{end_at}");
    }

    let stood = control_states(&client).await;
    let is_acked = stood.get(2).is_some_and(|(_, status, _)| status == "acked");
    let is_asked = stood.len() == 5;
    there += u64::from(is_acked) + u64::from(is_asked);
    let of = |id: &str, status: &str, attempt: u64| (id.to_owned(), status.to_owned(), attempt);
    let held = if is_acked { "acked" } else { "queued" };
    let before = [of("done", "acked", 1), of("out", "queued", 2), of("held", held, 1), of("open", "queued", 0)];
    let last = is_asked.then(|| of("last", "queued", 0));
    assert_eq!(stood, before.into_iter().chain(last).collect::<Vec<_>>(), "{end_at}");
    let steps = numbers_and_steps(&read_log(&client, "r").await).1;
    assert_eq!(steps.contains_key("last"), is_asked, "{end_at}: stored and logged");
    assert_eq!(steps["held"].last().unwrap() == "acked", is_acked, "{end_at}: stored and logged");

    // Submitters repeat their requests, also for settled controls; another request under the same id is rejected.
    for id in ["last", "done", "held", "open", "last"] {
        assert_eq!(submit_control(&client, id, id).await, 202, "{end_at}: {id}");
    }
    assert_eq!(submit_control(&client, "last", "another").await, 409);
    let claimed = claim(&client, 100).await;
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed["controlId"].as_str().unwrap()).collect();
    let expected: Vec<_> = ["out", "held", "open", "last"].into_iter().filter(|id| *id != "held" || !is_acked).collect();
    assert_eq!(ids, expected, "{end_at}: the queued controls in order, and no settled ones");
    for claimed in &claimed {
        assert_eq!(claimed["value"], claimed["controlId"], "{end_at}: the value is complete");
        ack(&client, claimed).await;
    }
    assert_eq!(claim(&client, 100).await, Vec::<Value>::new());
    let held = if is_acked { 1 } else { 2 };
    let all = [("done", 1), ("out", 3), ("held", held), ("open", 1), ("last", 1)];
    assert_eq!(control_states(&client).await, all.map(|(id, attempt)| of(id, "acked", attempt)), "{end_at}");

    for run in ["other", "r"] {
        let events = read_log(&client, run).await;
        let (facts, steps) = numbers_and_steps(&events);
        assert_eq!(facts, (0..BEFORE + FACTS).collect::<Vec<_>>(), "{end_at}");
        found.gaps += gaps(&events);
        let count = |step: &str| steps.values().map(|steps| steps.iter().filter(|of| *of == step).count()).collect::<Vec<_>>();
        let once = vec![1; steps.len()];
        assert_eq!([count("submitted"), count("acked")], [once.clone(), once], "{end_at}: {steps:?}");
        for activities in [false, true] {
            let seen = Follower::new(run.into(), activities).check(&client).await;
            found.add(&Figures { followed: 0, ..seen });
        }
    }
    found.assert_none_wrong();
    end().await;
    (there, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_the_last_commits_keeps_everything_before_and_accepts_repeats_once() {
    let client = Client::new(([127, 0, 0, 1], 0).into());
    let written = write(&client).await;
    let cuts = cuts(&written);
    let mut tried = futures_util::stream::iter(cuts)
        .map(async |end_at| (end_at, try_cut(&written, &client, end_at).await))
        .buffer_unordered(AT_ONCE);
    let (mut found, mut outcomes) = (Figures::default(), BTreeMap::<u64, u64>::new());
    while let Some((end_at, (there, here))) = tried.next().await {
        // The last byte of a record may be padding.
        assert!(there == 4 || end_at < written.to, "cut at {end_at} of {}: {there} of the last four survived", written.to);
        *outcomes.entry(there).or_default() += 1;
        found.add(&here);
    }
    assert!(outcomes[&0] > 2 && outcomes[&4] > 0, "{outcomes:?}");
    found.print_sum();
}
