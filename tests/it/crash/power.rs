//! The power goes: what a data directory holds then, tried at every byte of the last commits, with the whole server.
//!
//! The last commits bring facts of two runs, a control and the answer to another, all at once. Of each of them all or nothing is
//! there; of what was acknowledged before, everything. Whoever repeats himself is taken once.
//!
//! The server runs inside the test, over a copy of the directory: a start costs milliseconds, so that there can be thousands.

use super::figures::Figures;
use super::follower::Follower;
use super::office::listed;
use super::{gaps, kills, story};
use crate::harness::{Client, fact, soon, world};
use crate::store::{copy, journal};
use futures_util::StreamExt;
use proscenium::feed::Sizes;
use proscenium::guard::Policy;
use proscenium::log::AnyStore;
use proscenium::log::embedded::{EmbeddedStore, Sync};
use proscenium::serve::{Limits, Pulse, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

/// Facts of one body.
const FACTS: u64 = 2;
/// Servers at once.
const AT_ONCE: usize = 4;

/// A server on this directory, and what stops it and waits until the directory is free.
async fn serve_in(dir: &Path, client: &Client) -> (Client, impl AsyncFnOnce()) {
    let store = AnyStore::Embedded(EmbeddedStore::open(dir, Sync::Always).unwrap());
    let pulse = Pulse { drain: Duration::ZERO, ..Pulse::default() };
    let world = world(jiff::Timestamp::now);
    let server = Server::new(store, Policy::default(), Sizes::default(), Limits::default(), pulse, world).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client.of(listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move { server.run(listener, async { drop(stopped.await) }).await.unwrap() });
    let lock = dir.join("tail");
    let end = async move || {
        drop(stop);
        soon("the server to end", serving).await.unwrap();
        let lock = File::open(lock).unwrap();
        while let Err(TryLockError::WouldBlock) = lock.try_lock() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    (client, end)
}

/// A directory in memory, where the system has such: a sync takes most of the time of a start, and here it is not what is tried.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Facts of a run from this number on, as its producer sends them; the receipt.
async fn send(client: &Client, run: &str, from: u64) -> Value {
    let numbered = |n| fact("tool.result", json!({"toolCallId": format!("call-{n}"), "payload": {"n": n}}));
    let body: Vec<_> = (from..from + FACTS).map(numbered).collect();
    let from = from.to_string();
    let headers = [("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", from.as_str())];
    client.post(&format!("/v1/runs/{run}/facts"), &headers, json!(body).to_string()).await.ok()
}

/// Asks for a control of run `r`; the status.
async fn ask(client: &Client, id: &str, value: &str) -> u16 {
    let wish = json!({"controlId": id, "control": "steer", "value": value});
    client.post("/v1/runs/r/controls", &[], wish.to_string()).await.status
}

/// Claims up to so many.
async fn claim(client: &Client, max: usize) -> Vec<Value> {
    let path = format!("/v1/agents/default/controls/claim?max={max}");
    client.post(&path, &[], "").await.ok()["controls"].as_array().unwrap().clone()
}

async fn ack(client: &Client, handed: &Value) {
    let path = format!("/v1/controls/{}/ack", handed["controlId"].as_str().unwrap());
    assert_eq!(client.post(&path, &[], json!({"lease": handed["lease"]}).to_string()).await.ok()["status"], "acked");
}

/// Each control's status and attempt as run `r` lists it, in order.
async fn stand(client: &Client) -> Vec<(String, String, u64)> {
    let text = |control: &Value, member: &str| control[member].as_str().unwrap().to_owned();
    let told = |of: &Value| (text(of, "controlId"), text(of, "status"), of["attempt"].as_u64().unwrap());
    listed(client, "r").await.iter().map(told).collect()
}

/// The facts' numbers and the steps of each control, as the run's log tells of them.
fn told(events: &[Value]) -> (Vec<u64>, BTreeMap<String, Vec<String>>) {
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

/// How the power went.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The journal ends here, and the tail file tells of more.
    Cut,
    /// The journal ends here, and the tail file is as old as what went before.
    CutWithTail,
    /// From here on the journal is zeros, and the tail file is old.
    Zeros,
}

/// A directory as it was before the last commits, and after them.
struct Written {
    dir: tempfile::TempDir,
    tail: Vec<u8>,
    /// The bytes of the journal that the last commits wrote.
    from: u64,
    to: u64,
}

/// How many facts a run has for good before the last commits.
const BEFORE: u64 = 2 * FACTS;

async fn write(client: &Client) -> Written {
    let dir = scratch();
    let (server, end) = serve_in(dir.path(), client).await;
    for run in ["r", "other"] {
        send(&server, run, 0).await;
        send(&server, run, FACTS).await;
    }
    for id in ["done", "out", "held", "open"] {
        assert_eq!(ask(&server, id, id).await, 202);
    }
    let [done, _out] = claim(&server, 2).await.try_into().unwrap();
    ack(&server, &done).await;
    end().await;
    // A journal that was opened again is as long as what is in it. Nobody has what was out: it is handed over first.
    let (server, end) = serve_in(dir.path(), client).await;
    let [_out, held] = claim(&server, 2).await.try_into().unwrap();
    assert_eq!(held["controlId"], "held");
    let from = journal(dir.path()).metadata().unwrap().len();
    let tail = std::fs::read(dir.path().join("tail")).unwrap();
    // The first of them keeps the committer busy while the others come.
    let last = async {
        tokio::join!(
            send(&server, "other", BEFORE),
            send(&server, "r", BEFORE),
            ask(&server, "last", "last"),
            ack(&server, &held)
        )
    };
    assert_eq!(soon("the last commits", Box::pin(last)).await.2, 202);
    end().await;
    let to = journal(dir.path()).metadata().unwrap().len();
    assert!(from < to, "{from} {to}");
    Written { dir, tail, from, to }
}

/// Where to cut, and how: everywhere and in every way, or in turns here and there and wherever something begins or ends.
fn cuts(written: &Written) -> Vec<(u64, Loss)> {
    let Written { from, to, .. } = *written;
    let bytes = std::fs::read(journal(written.dir.path())).unwrap();
    let ends = memchr::memmem::find_iter(&bytes, b"FJL\x03").map(|at| at as u64 + 4);
    let ends: Vec<u64> = ends.filter(|end| (from..=to).contains(end)).collect();
    assert_eq!(ends.last(), Some(&to), "the journal ends with a batch");
    let is_near = |len: u64| ends.iter().chain([&from]).any(|end| end.abs_diff(len) <= 1);
    let losses = [Loss::Cut, Loss::CutWithTail, Loss::Zeros];
    if kills().is_some() {
        return (from..=to).flat_map(|len| losses.map(|loss| (len, loss))).collect();
    }
    let some = (from..=to).filter(|len| is_near(*len) || len.is_multiple_of(61));
    some.zip(losses.into_iter().cycle()).collect()
}

/// A copy of the directory from which the power has taken everything from this byte of the journal on.
fn lose(written: &Written, len: u64, loss: Loss) -> tempfile::TempDir {
    let cut = scratch();
    copy(written.dir.path(), cut.path());
    if !matches!(loss, Loss::Cut) {
        std::fs::write(cut.path().join("tail"), &written.tail).unwrap();
    }
    let file = OpenOptions::new().write(true).open(journal(cut.path())).unwrap();
    match loss {
        Loss::Cut | Loss::CutWithTail => file.set_len(len).unwrap(),
        Loss::Zeros => file.write_all_at(&vec![0; (written.to - len) as usize], len).unwrap(),
    }
    cut
}

/// Starts a server on what is left, looks for everything, and repeats everything; how many of the last four were there.
async fn try_cut(written: &Written, client: &Client, len: u64, loss: Loss) -> (u64, Figures) {
    let cut = lose(written, len, loss);
    let (client, end) = serve_in(cut.path(), client).await;
    let mut found = Figures { cuts: 1, ..Figures::default() };
    let mut there = 0;
    for run in ["other", "r"] {
        let events = story(&client, run).await;
        let facts = told(&events).0;
        found.gaps += gaps(&events);
        let is_whole = facts == (0..BEFORE + FACTS).collect::<Vec<_>>();
        assert!(is_whole || facts == (0..BEFORE).collect::<Vec<_>>(), "{len} {loss:?}: whole or not at all: {facts:?}");
        there += u64::from(is_whole);
        let again = send(&client, run, BEFORE).await;
        let taken = ["accepted", "duplicates"].map(|member| again[member].as_u64().unwrap());
        assert_eq!(taken, if is_whole { [0, FACTS] } else { [FACTS, 0] }, "{len} {loss:?}");
    }

    let stood = stand(&client).await;
    let is_acked = stood.get(2).is_some_and(|(_, status, _)| status == "acked");
    let is_asked = stood.len() == 5;
    there += u64::from(is_acked) + u64::from(is_asked);
    let of = |id: &str, status: &str, attempt: u64| (id.to_owned(), status.to_owned(), attempt);
    let held = if is_acked { "acked" } else { "queued" };
    let before = [of("done", "acked", 1), of("out", "queued", 2), of("held", held, 1), of("open", "queued", 0)];
    let last = is_asked.then(|| of("last", "queued", 0));
    assert_eq!(stood, before.into_iter().chain(last).collect::<Vec<_>>(), "{len} {loss:?}");
    let steps = told(&story(&client, "r").await).1;
    assert_eq!(steps.contains_key("last"), is_asked, "{len} {loss:?}: recorded and told of");
    assert_eq!(steps["held"].last().unwrap() == "acked", is_acked, "{len} {loss:?}: recorded and told of");

    // Whoever asked asks again, also for what is over; another request under the same id is another control.
    for id in ["last", "done", "held", "open", "last"] {
        assert_eq!(ask(&client, id, id).await, 202, "{len} {loss:?}: {id}");
    }
    assert_eq!(ask(&client, "last", "another").await, 409);
    let handed = claim(&client, 100).await;
    let ids: Vec<_> = handed.iter().map(|handed| handed["controlId"].as_str().unwrap()).collect();
    let expected: Vec<_> = ["out", "held", "open", "last"].into_iter().filter(|id| *id != "held" || !is_acked).collect();
    assert_eq!(ids, expected, "{len} {loss:?}: what waits, in its order, and nothing that is over");
    for handed in &handed {
        assert_eq!(handed["value"], handed["controlId"], "{len} {loss:?}: whole");
        ack(&client, handed).await;
    }
    assert_eq!(claim(&client, 100).await, Vec::<Value>::new());
    let held = if is_acked { 1 } else { 2 };
    let all = [("done", 1), ("out", 3), ("held", held), ("open", 1), ("last", 1)];
    assert_eq!(stand(&client).await, all.map(|(id, attempt)| of(id, "acked", attempt)), "{len} {loss:?}");

    for run in ["other", "r"] {
        let events = story(&client, run).await;
        let (facts, steps) = told(&events);
        assert_eq!(facts, (0..BEFORE + FACTS).collect::<Vec<_>>(), "{len} {loss:?}");
        found.gaps += gaps(&events);
        let count = |step: &str| steps.values().map(|steps| steps.iter().filter(|of| *of == step).count()).collect::<Vec<_>>();
        let once = vec![1; steps.len()];
        assert_eq!([count("submitted"), count("acked")], [once.clone(), once], "{len} {loss:?}: {steps:?}");
        for activities in [false, true] {
            let seen = Follower::new(run.into(), activities).check(&client).await;
            found.add(&Figures { followed: 0, ..seen });
        }
    }
    found.hold();
    end().await;
    (there, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_anywhere_in_the_last_commits_all_before_is_there_and_who_repeats_himself_is_taken_once() {
    let client = Client::new(([127, 0, 0, 1], 0).into());
    let written = write(&client).await;
    let cuts = cuts(&written);
    let mut tried = futures_util::stream::iter(cuts)
        .map(async |(len, loss)| (len, try_cut(&written, &client, len, loss).await))
        .buffer_unordered(AT_ONCE);
    let (mut found, mut outcomes) = (Figures::default(), BTreeMap::<u64, u64>::new());
    while let Some((len, (there, here))) = tried.next().await {
        assert_eq!(there == 4, len == written.to, "cut at {len} of {}: {there} of the last four are there", written.to);
        *outcomes.entry(there).or_default() += 1;
        found.add(&here);
    }
    assert!(outcomes[&0] > 2 && outcomes[&4] > 0, "{outcomes:?}");
    found.tell();
}
