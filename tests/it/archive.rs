//! Archived runs: their envelopes lie on object storage, and no reader sees a difference.

use crate::harness::{
    AUDIENCES, Client, Process, environment, fact, list_recordings, part_of, serve_until, storage_in, to_ndjson, with_timeout,
};
use crate::retention::{check, post_recording, read_before};
use crate::search::{message, names, until_indexed};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::archive::Archive;
use proscenium::log::commit::Logs;
use proscenium::log::embedded::Sync;
use proscenium::log::row::Rows;
use proscenium::log::{Limit, LogId};
use proscenium::model::{RunId, Sequence};
use proscenium::serve::maintenance::archive::Archiver;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub fn address(dir: &Path) -> String {
    format!("file://{}/objects", dir.display())
}

/// Starts a server whose clock stands still, with an archiver that takes every ended run.
async fn start(dir: &Path) -> (Client, Archiver, Arc<Logs>) {
    let storage = storage_in(&dir.join("data"), Sync::Always).await;
    let archive = Archive::open(&address(dir), &dir.join("data/archive-cache"), 1 << 20).unwrap();
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let clock = environment(|| jiff::Timestamp::UNIX_EPOCH);
    let server = Server::with_archive(storage, archive, Policy::default(), sizes, limits, pulse, clock).unwrap();
    let (archiver, logs) = (server.archiver(Duration::ZERO), server.logs());
    (serve_until(server, std::future::pending()).await.0, archiver, logs)
}

/// The rows of a run that the store itself has.
async fn stored_rows(logs: &Logs, run: &str) -> usize {
    let log = LogId::Run(RunId::new(run).unwrap());
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    logs.query(move |store| {
        let epoch = store.head(&log).unwrap().unwrap().epoch;
        let appends = store.read_stored(&log, epoch, Sequence::NONE, limit).unwrap();
        appends.into_iter().map(|append| Rows(append.rows).count()).sum()
    })
    .await
}

/// The files of the objects.
pub fn objects(dir: &Path) -> Vec<PathBuf> {
    let Ok(stores) = dir.join("objects").read_dir() else { return Vec::new() };
    stores.flat_map(|store| store.unwrap().path().read_dir().unwrap()).map(|object| object.unwrap().path()).collect()
}

async fn publish(client: &Client, run: &str, facts: &[Value]) {
    client.append(run, facts).await;
}

pub fn text(n: usize) -> Value {
    fact("text.final", json!({ "messageId": format!("m{n}"), "payload": { "role": "assistant", "text": format!("words {n}") } }))
}

pub fn end() -> Value {
    fact("run.finished", json!({}))
}

/// Everything that readers get of a run.
async fn all_of(client: &Client, run: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for audience in AUDIENCES {
        all.extend(client.export(run, &format!("audience={audience}")).await);
        all.push(client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok());
    }
    all
}

#[tokio::test]
async fn every_recording_reads_the_same_from_its_object() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, logs) = start(dir.path()).await;
    let archiver = archiver.with_step_appends(7);
    let recordings = part_of(list_recordings("awaken"), 4);
    for (n, name) in recordings.iter().enumerate() {
        let is_long = name == "long_40_steps";
        post_recording(&client, name, name, n % 2 == 0 && !is_long).await;
        let before = read_before(&client, name).await;
        until_indexed(&client).await;
        assert_eq!(archiver.run_once().await.unwrap(), 1, "{name}");
        assert_eq!(stored_rows(&logs, name).await, 1, "{name}: only its last row stays");
        let step = if is_long { before.cursor_count() / 5 } else { 1 + before.cursor_count() / 12 };
        let (had, has) = check(&client, name, &before, step).await;
        assert_eq!(had, has, "{name}");
    }
    assert_eq!(objects(dir.path()).len(), recordings.len());
    assert_eq!(archiver.run_once().await.unwrap(), 0);
    assert_eq!(archiver.sweep().await.unwrap(), 0, "each object is named by its run");
}

/// A call with a body of its own.
fn call(id: &str) -> [Value; 2] {
    let letters: String = ('a'..='z').cycle().take(400_000).collect();
    let finished = json!({ "toolCallId": id, "payload": { "toolName": "dig", "result": letters } });
    [fact("tool.started", json!({ "toolCallId": id, "payload": { "toolName": "dig" } })), fact("tool.finished", finished)]
}

/// The body that a run's tool returned, by its address.
async fn body_of(client: &Client, run: &str) -> (String, Vec<u8>) {
    let events = client.read_events(run, "audience=internal", 50).await;
    let address = events.iter().find_map(|event| event["refs"][0]["href"].as_str()).expect("the run has a body").to_owned();
    let answer = client.get(&format!("{address}?audience=internal")).await;
    assert_eq!(answer.status, 200, "{address}");
    (address, answer.body)
}

#[tokio::test]
async fn a_body_moves_with_its_run_is_read_in_ranges_and_goes_with_its_erasure() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    publish(&client, "r", &call("c1")).await;
    publish(&client, "r", &[end()]).await;
    until_indexed(&client).await;
    let (address, before) = body_of(&client, "r").await;
    assert!(before.len() >= 400_000);
    assert_eq!(archiver.run_once().await.unwrap(), 1);
    assert_eq!(body_of(&client, "r").await, (address.clone(), before.clone()));
    let part = client.get_with(&format!("{address}?audience=internal"), &[("range", "bytes=5-9")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &before[5..10]));
    let object = objects(dir.path()).remove(0);
    assert!(std::fs::metadata(&object).unwrap().len() < 100_000, "it is compressed");

    // A late fact: both bodies are in the next object.
    publish(&client, "r", &call("c2")).await;
    publish(&client, "r", &[end()]).await;
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 1);
    assert_eq!(body_of(&client, "r").await, (address.clone(), before.clone()));
    assert_eq!(objects(dir.path()).len(), 1);
    assert_eq!(archiver.run_once().await.unwrap(), 0);

    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    assert!(objects(dir.path()).is_empty());
    client.get(&format!("{address}?audience=internal")).await.problem(404, "no_such_blob");
}

#[tokio::test]
async fn the_store_keeps_no_copy_of_an_archived_body() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let start = || Process::start_with(dir.path(), &["--archive-to", &address, "--archive-after", "1s"]);
    let mut server = start();
    let client = Client::new(server.at);
    publish(&client, "r", &call("c")).await;
    publish(&client, "r", &[end()]).await;
    let (body, _) = body_of(&client, "r").await;
    with_timeout("the archive", async {
        while !String::from_utf8_lossy(&client.get("/metrics").await.body).contains("proscenium_archived_runs_total 1") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    server.terminate();
    assert!(server.wait().success());
    let object = objects(dir.path()).remove(0);
    std::fs::rename(&object, dir.path().join("aside")).unwrap();
    let server = start();
    let client = Client::new(server.at);
    client.get(&format!("{body}?audience=internal")).await.problem(503, "archive_unavailable");
    std::fs::rename(dir.path().join("aside"), &object).unwrap();
    with_timeout("the object is asked for again", async {
        while client.get(&format!("{body}?audience=internal")).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_late_fact_continues_an_archived_run_which_is_archived_again_as_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, logs) = start(dir.path()).await;
    publish(&client, "r", &[fact("run.started", json!({})), text(1)]).await;
    publish(&client, "r", &[text(2), end()]).await;
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 1);
    let first = objects(dir.path());
    publish(&client, "r", &[text(3)]).await;
    publish(&client, "r", &[fact("custom.note", json!({ "payload": { "text": "late" } })), end()]).await;
    let all = all_of(&client, "r").await;
    assert_eq!(client.read_events("r", "audience=internal", 2).await.len(), 7);
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 1);
    assert_eq!(all_of(&client, "r").await, all);
    let second = objects(dir.path());
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    assert_eq!(stored_rows(&logs, "r").await, 1);
    // Rows of one append, and a cursor in the middle of it.
    let events = client.get("/v1/runs/r/events?after=5&limit=1&audience=internal").await.ok();
    assert_eq!(events["events"][0]["sequence"], 6, "{events}");
}

#[tokio::test]
async fn facts_that_come_while_a_run_is_archived_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, logs) = start(dir.path()).await;
    let archiver = archiver.with_step_appends(1);
    for n in 0..20 {
        let run = &format!("r{n}");
        publish(&client, run, &call("c")).await;
        publish(&client, run, &[end()]).await;
        until_indexed(&client).await;
        // Twice, because the second time there is an older object. At another moment of the archiving each time.
        for first in [0, 6] {
            let come_late = async {
                tokio::time::sleep(Duration::from_millis(n % 10)).await;
                for late in [first, first + 2, first + 4] {
                    publish(&client, run, &[text(late), text(late + 1)]).await;
                }
            };
            let (archived, ()) = tokio::join!(archiver.run_once(), come_late);
            archived.unwrap();
            until_indexed(&client).await;
        }
        let all = all_of(&client, run).await;
        let texts = client.read_events(run, "audience=internal&type=text.final", 20).await;
        assert_eq!(texts.len(), 12, "{run}");
        if n == 5 {
            // A copy of a server that is at rest, with late facts beside their run's object.
            let copy = dir.path().join("copy");
            let copied = std::process::Command::new("cp").arg("-r").arg(dir.path().join("data")).arg(&copy).status().unwrap();
            assert!(copied.success());
            assert_healthy(&copy);
        }
        // They are archived like the others once their run has rested.
        archiver.run_once().await.unwrap();
        assert_eq!(all_of(&client, run).await, all, "{run}");
        assert_eq!(stored_rows(&logs, run).await, 1, "{run}");
    }
    assert_eq!(objects(dir.path()).len(), 20);
}

#[tokio::test]
async fn an_erasure_deletes_the_object_before_it_answers_and_erases_nothing_when_it_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    for run in ["gone", "stays"] {
        publish(&client, run, &[fact("run.started", json!({})), text(1), end()]).await;
    }
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 2);
    // A directory instead of each object: the storage can neither give nor delete it.
    let moved: Vec<_> =
        objects(dir.path()).into_iter().map(|object| (object.clone(), dir.path().join(object.file_name().unwrap()))).collect();
    for (object, aside) in &moved {
        std::fs::rename(object, aside).unwrap();
        std::fs::create_dir(object).unwrap();
    }
    let problem = client.delete("/v1/runs/gone").await.problem(503, "archive_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("gone"), "{problem}");
    for (object, aside) in &moved {
        std::fs::remove_dir(object).unwrap();
        std::fs::rename(aside, object).unwrap();
    }
    assert_eq!(client.read_events("gone", "", 10).await.len(), 3, "nothing was erased");
    assert_eq!(client.delete("/v1/runs/gone").await.status, 204);
    assert_eq!(objects(dir.path()).len(), 1);
    client.get("/v1/runs/gone/events").await.problem(410, "erased");
    assert_eq!(client.read_events("stays", "", 10).await.len(), 3);
}

#[tokio::test]
async fn a_run_that_is_erased_while_it_is_archived_leaves_no_object() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    for n in 0..20 {
        let run = format!("r{n}");
        publish(&client, &run, &call("c")).await;
        publish(&client, &run, &[end()]).await;
        until_indexed(&client).await;
        let path = format!("/v1/runs/{run}");
        // At another moment of the archiving each time.
        let erase = async {
            tokio::time::sleep(Duration::from_millis(n)).await;
            client.delete(&path).await
        };
        let (archived, erased) = tokio::join!(archiver.run_once(), erase);
        archived.unwrap();
        assert_eq!(erased.status, 204);
        assert_eq!(objects(dir.path()), Vec::<std::path::PathBuf>::new(), "{run}");
    }
}

#[tokio::test]
async fn storage_that_lost_or_changed_an_object_is_named_and_stops_no_other_reader() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    for run in ["lost", "warm"] {
        publish(&client, run, &[fact("run.started", json!({})), text(1), end()]).await;
        until_indexed(&client).await;
        if run == "lost" {
            assert_eq!(archiver.run_once().await.unwrap(), 1);
        }
    }
    let object = objects(dir.path()).remove(0);
    let whole = std::fs::read(&object).unwrap();
    let name = object.file_name().unwrap().to_str().unwrap().to_owned();
    for what in ["not found", "hash"] {
        match what {
            "hash" => std::fs::write(&object, &whole[..whole.len() / 2]).unwrap(),
            _ => std::fs::remove_file(&object).unwrap(),
        }
        for path in ["events", "activities", "export", "export?proof=true"].map(|what| format!("/v1/runs/lost/{what}")) {
            let answer = client.get(&path).await;
            assert_eq!(answer.status, 503, "{path}: {}", String::from_utf8_lossy(&answer.body));
            let problem = answer.problem(503, "archive_unavailable");
            let detail = problem["detail"].as_str().unwrap().to_lowercase();
            assert!(detail.contains(&name) && detail.contains(what) && detail.contains("lost"), "{problem}");
        }
        assert_eq!(client.read_events("warm", "", 10).await.len(), 3);
        assert_eq!(client.get("/v1/runs").await.ok()["runs"].as_array().unwrap().len(), 2);
    }
    std::fs::write(&object, &whole).unwrap();
    assert_eq!(client.read_events("lost", "", 10).await.len(), 3, "it reads again once the object is back");
}

#[tokio::test]
async fn a_session_shows_what_its_other_runs_have_beside_a_run_whose_object_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "kind": "tool_approval", "title": "May I?" } }));
    let decided = fact("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "approved" } }));
    for run in ["lost", "warm"] {
        let task = fact("task.changed", json!({ "taskId": run, "payload": { "status": "completed", "title": run } }));
        let facts = [fact("run.started", json!({})), task, asks.clone(), decided.clone(), end()];
        client.post_lines(&format!("/v1/runs/{run}/facts?sessionId=s"), to_ndjson(&facts)).await.ok();
        until_indexed(&client).await;
        if run == "lost" {
            assert_eq!(archiver.run_once().await.unwrap(), 1);
        }
    }
    std::fs::remove_file(objects(dir.path()).remove(0)).unwrap();
    let shell = client.get("/v1/sessions/s?audience=internal").await.ok();
    assert_eq!((shell["runs"].as_array().unwrap().len(), &shell["unreadable"]), (2, &json!(["lost"])), "{shell}");
    let tasks = shell["tasks"].as_array().unwrap();
    assert!(tasks.iter().all(|task| task["runId"] == "warm") && !tasks.is_empty(), "{shell}");
    let found = client.get("/v1/sessions/s/decisions?audience=internal").await.ok();
    assert_eq!((found["decisions"][0]["runId"].as_str(), &found["unreadable"]), (Some("warm"), &json!(["lost"])), "{found}");
    client.get("/v1/runs/lost/decisions?audience=internal").await.problem(503, "archive_unavailable");
}

#[tokio::test]
async fn lists_and_searches_have_archived_runs_without_their_objects() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    let failed = fact("run.failed", json!({ "payload": { "error": { "message": "The bridge is closed" } } }));
    for (run, end) in [("fine", end()), ("broken", failed)] {
        let facts = [fact("run.started", json!({})), message("u", "Plan the trip to Oslo", "user"), end];
        let path = format!("/v1/runs/{run}/facts?sessionId=s-{run}");
        client.post(&path, &[("content-type", "application/json")], serde_json::to_string(&facts).unwrap()).await.ok();
    }
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 2);
    for object in objects(dir.path()) {
        std::fs::remove_file(object).unwrap();
    }
    let broken = json!({ "kind": "error", "text": "The bridge is closed" });
    for path in ["/v1/sessions", "/v1/sessions?in=text&q=oslo"] {
        let list = client.get(path).await.ok();
        let entry = |at: usize| [&list["sessions"][at]["sessionId"], &list["sessions"][at]["title"]];
        assert_eq!([entry(0), entry(1)], [["s-broken", "Plan the trip to Oslo"], ["s-fine", "Plan the trip to Oslo"]], "{path}");
    }
    assert_eq!(client.get("/v1/sessions").await.ok()["sessions"][0]["highlight"], broken);
    for path in ["/v1/runs?filter=status%3Afailed", "/v1/runs?filter=oslo%20status%3Afailed"] {
        let run = &client.get(path).await.ok()["runs"][0];
        assert_eq!((&run["runId"], &run["title"]), (&json!("broken"), &json!("Plan the trip to Oslo")), "{path}");
    }
    assert_eq!(client.get("/v1/runs?filter=status%3Afailed").await.ok()["runs"][0]["highlight"], broken);
    client.get("/v1/runs/broken/events").await.problem(503, "archive_unavailable");
}

#[tokio::test]
async fn an_export_of_an_owner_names_the_run_whose_object_is_lost_and_goes_on_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, _) = start(dir.path()).await;
    let facts = serde_json::to_string(&[fact("run.started", json!({})), text(1), end()]).unwrap();
    for run in ["first", "lost", "last"] {
        client
            .post(&format!("/v1/runs/{run}/facts?sessionId=s&owner=acme"), &[("content-type", "application/json")], facts.clone())
            .await
            .ok();
        until_indexed(&client).await;
        if run == "lost" {
            assert_eq!(archiver.run_once().await.unwrap(), 2);
        }
    }
    let all = objects(dir.path());
    for object in &all {
        std::fs::rename(object, object.with_extension("away")).unwrap();
    }
    let export = String::from_utf8(client.get("/v1/owners/acme/export").await.body).unwrap();
    let lines: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let parts: Vec<_> = lines.iter().filter(|line| line["export"].is_string()).collect();
    let kinds: Vec<_> = parts.iter().map(|part| part["export"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["owner", "session", "run", "unreadable", "run", "unreadable", "run", "end"]);
    assert_eq!((&parts[5]["runId"], &parts[5]["after"], &parts[7]["unreadable"]), (&json!("lost"), &json!(0), &json!(2)));
    assert!(parts[5]["why"].as_str().unwrap().contains("archived and cannot be read"), "{export}");
    assert_eq!(lines.iter().filter(|line| line["runId"] == "last" && line["type"].is_string()).count(), 3, "{export}");
}

#[tokio::test]
async fn objects_that_no_run_names_are_swept_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (client, archiver, logs) = start(dir.path()).await;
    publish(&client, "r", &[fact("run.started", json!({})), text(1), end()]).await;
    until_indexed(&client).await;
    assert_eq!(archiver.run_once().await.unwrap(), 1);
    let (store, named) = (logs.store_epoch(), objects(dir.path()).remove(0));
    let of_store = dir.path().join("objects").join(store.to_string());
    let other_store = dir.path().join("objects/another-store");
    std::fs::create_dir(&other_store).unwrap();
    for file in [of_store.join("1-0000"), of_store.join("99-ffff"), of_store.join("notes.txt"), other_store.join("1-0000")] {
        std::fs::write(file, "left by a crash").unwrap();
    }
    assert_eq!(archiver.sweep().await.unwrap(), 2);
    let mut left = objects(dir.path());
    left.sort();
    let mut expected = vec![named, of_store.join("notes.txt"), other_store.join("1-0000")];
    expected.sort();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn archived_texts_are_found_also_by_an_index_that_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--archive-to", &address(dir.path()), "--archive-after", "1s"];
    let mut server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    for n in 0..5 {
        let path = format!("/v1/runs/r{n}/facts?sessionId=s{n}");
        let facts = json!([message("m", &format!("alpha number{n}"), "user"), end()]);
        client.post(&path, &[("content-type", "application/json")], facts.to_string()).await.ok();
    }
    archived(&client, 5).await;
    server.terminate();
    server.wait();
    std::fs::remove_dir_all(dir.path().join("data/search")).unwrap();
    // Without the address the runs cannot be read, and everything else can.
    let mut server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let problem = client.get("/v1/runs/r1/events").await.problem(503, "archive_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("--archive-to"), "{problem}");
    assert_eq!(client.get("/v1/runs").await.ok()["runs"].as_array().unwrap().len(), 5);
    server.terminate();
    server.wait();
    std::fs::remove_dir_all(dir.path().join("data/search")).unwrap();
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    until_indexed(&client).await;
    assert_eq!(names(&client, "number3", "").await, ["s3"]);
    assert_eq!(names(&client, "alpha", "sort=created").await, ["s4", "s3", "s2", "s1", "s0"]);
    drop(server);
}

#[tokio::test]
async fn the_doctor_finds_nothing_in_a_store_with_archived_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_with(dir.path(), &["--archive-to", &address(dir.path()), "--archive-after", "1s"]);
    let client = Client::new(server.at);
    publish(&client, "r", &[fact("run.started", json!({})), text(1)]).await;
    publish(&client, "r", &[text(2), end()]).await;
    archived(&client, 1).await;
    server.terminate();
    server.wait();
    assert_healthy(&dir.path().join("data"));
}

/// Asserts that the doctor finds nothing in a data directory.
fn assert_healthy(data: &Path) {
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_proscenium"));
    let output = doctor.args(["doctor", "--data-dir"]).arg(data).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

/// Waits until so many runs are archived.
async fn archived(client: &Client, runs: usize) {
    let wanted = format!("\nproscenium_archived_runs_total {runs}\n");
    let all = async {
        while !String::from_utf8_lossy(&client.get("/metrics").await.body).contains(&wanted) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the archive", all).await;
}

#[tokio::test]
async fn a_server_that_is_killed_while_it_archives_loses_no_envelope() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--archive-to", &address(dir.path()), "--archive-after", "1s"];
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    for n in 0..12 {
        publish(&client, &format!("r{n}"), &[fact("run.started", json!({})), text(n)]).await;
        publish(&client, &format!("r{n}"), &[text(n + 100), end()]).await;
    }
    let all = async |client: &Client| {
        let mut all = Vec::new();
        for n in 0..12 {
            all.push(all_of(client, &format!("r{n}")).await);
        }
        all
    };
    let before = all(&client).await;
    server.kill();
    // Each start archives for a moment longer.
    for moment in [900, 1000, 1050, 1100, 1200, 1500] {
        let server = Process::start_with(dir.path(), &flags);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        server.kill();
    }
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    assert_eq!(all(&client).await, before);
    drop(server);
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "no directory").unwrap();
    let refused = |flags: &[&str]| {
        let mut command = Process::command(dir.path(), "warn");
        let output = command.args(flags).output().unwrap();
        assert!(!output.status.success(), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let file = format!("file://{}/file", dir.path().display());
    for (flags, expected) in [
        (vec!["--archive-to", "nonsense"], "\"nonsense\" is no address"),
        (vec!["--archive-to", "ftp://host/path"], "ftp://host/path"),
        (vec!["--archive-to", &file], "/file cannot be used: File exists"),
        (vec!["--archive-after", "30d"], "--archive-to"),
        (vec!["--archive-to", "file:///tmp/x", "--archive-after", "soon"], "soon"),
        (vec!["--archive-to", "file:///tmp/x", "--store", "memory"], "memory keeps no archived runs"),
    ] {
        let error = refused(&flags);
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
}
