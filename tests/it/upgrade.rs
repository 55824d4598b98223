//! A store that an earlier version wrote reads as it did, is written on, and can be gone back to.
//!
//! `scripts/make-store-fixture` made the stores and the expected answers with the binaries of those versions.

use crate::cli::{Running, proscenium};
use crate::harness::{Client, environment, fact, repository, serve_until, storage_in, to_ndjson, with_timeout};
use crate::record::{export, verified};
use crate::supervision::{loaded, opened, run};
use data_encoding::HEXLOWER;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::embedded::{EmbeddedStore, FORMAT, Sync};
use proscenium::log::{Store, StoreError};
use proscenium::model::Audience;
use proscenium::record::verify::{Known, verify};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a version answered about the store that it wrote.
pub fn expected_of(version: &str) -> Value {
    let text = std::fs::read_to_string(repository(&format!("tests/stores/{version}/expected.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

static EXPECTED: LazyLock<Value> = LazyLock::new(|| expected_of("0.1.0"));

/// The time at which a version wrote its store: later, controls expire and silent runs are settled.
pub fn time_of(expected: &Value) -> jiff::Timestamp {
    expected["writtenAt"].as_str().unwrap().parse().unwrap()
}

fn written_at() -> jiff::Timestamp {
    time_of(&EXPECTED)
}

/// Unpacks the store of 0.1.0; returns its data directory.
fn unpack() -> (tempfile::TempDir, PathBuf) {
    unpack_of("0.1.0")
}

fn unpack_of(version: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let archive = repository(&format!("tests/stores/{version}/data.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let data = dir.path().join("data");
    (dir, data)
}

/// Serves a data directory at the time of 0.1.0.
async fn serve(data: &Path) -> (Client, oneshot::Sender<()>, JoinHandle<()>) {
    serve_at(data, written_at).await
}

async fn serve_at(data: &Path, now: fn() -> jiff::Timestamp) -> (Client, oneshot::Sender<()>, JoinHandle<()>) {
    let store = storage_in(data, Sync::Never).await;
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    let server = Server::new(store, Policy::default(), sizes, limits, pulse, environment(now)).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (client, serving) = serve_until(server, async move { drop(stopped.await) }).await;
    (client, stop, serving)
}

async fn close((_, stop, serving): (Client, oneshot::Sender<()>, JoinHandle<()>)) {
    drop(stop);
    with_timeout("the server's stop", serving).await.unwrap();
}

/// Whether an answer to this audience has all that an earlier version answered; members may have been added.
fn covers(now: &Value, before: &Value, audience: Audience) -> Result<(), String> {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => before.iter().try_for_each(|(name, before)| {
            let now = now.get(name).ok_or_else(|| format!("{name} is missing"))?;
            // Envelopes for narrower audiences no longer count.
            let is_earlier = || now.as_str().zip(before.as_str()).is_some_and(|(now, before)| now < before);
            match name == "lastActivity" && audience != Audience::Internal && is_earlier() {
                true => Ok(()),
                false => covers(now, before, audience).map_err(|what| format!("{name}: {what}")),
            }
        }),
        (Value::Array(now), Value::Array(before)) if now.len() == before.len() => now
            .iter()
            .zip(before)
            .enumerate()
            .try_for_each(|(n, (now, before))| covers(now, before, audience).map_err(|what| format!("{n}: {what}"))),
        // A flag became a count.
        (Value::Number(now), Value::Bool(before)) if now.as_u64() == Some(u64::from(*before)) => Ok(()),
        // A call that waits for an approval does not run yet.
        (Value::String(now), Value::String(before)) if now == "pending" && before == "running" => Ok(()),
        _ if now == before => Ok(()),
        _ => Err(format!("{now} instead of {before}")),
    }
}

/// Compares every answer with that of the earlier version.
async fn assert_answers(client: &Client, expected: &Value) {
    let count = expected["answers"].as_object().unwrap().len();
    assert!(count > 300, "{count}");
    assert_answers_of(client, expected, |_| true).await;
}

/// Compares the answers of these paths with those of the earlier version.
pub async fn assert_answers_of(client: &Client, expected: &Value, is_of: impl Fn(&str) -> bool) {
    let answers: &Map<String, Value> = expected["answers"].as_object().unwrap();
    let answers: Vec<_> = answers.iter().filter(|(path, _)| is_of(path)).collect();
    assert!(answers.len() > 20, "{}", answers.len());
    for (path, before) in answers {
        let now = client.get(path).await;
        let audience = path.split_once("audience=").map(|(_, rest)| rest.split('&').next().unwrap_or_default());
        let audience = audience.and_then(Audience::parse).unwrap_or(Audience::User);
        let text = String::from_utf8_lossy(&now.body);
        assert_eq!(before["status"], now.status, "{path}: {text}");
        match before.get("json") {
            Some(problem) if now.status >= 400 => assert_eq!(now.json()["code"], problem["code"], "{path}"),
            Some(before) => covers(&now.json(), before, audience).unwrap_or_else(|what| panic!("{path}: {what}")),
            None => {
                assert_eq!(before["bytes"], now.body.len(), "{path}");
                assert_eq!(before["sha256"], HEXLOWER.encode(&Sha256::digest(&now.body)), "{path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_about_a_store_of_0_1_0_is_that_of_0_1_0() {
    let (_dir, data) = unpack();
    for start in ["first", "second"] {
        let served = serve(&data).await;
        assert_answers(&served.0, &EXPECTED).await;
        close(served).await;
        assert!(data.join("format").exists(), "after the {start} start");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_about_a_store_of_0_2_0_is_that_of_0_2_0() {
    let ((_dir, data), expected) = (unpack_of("0.2.0"), expected_of("0.2.0"));
    for start in ["first", "second"] {
        let served = serve_at(&data, || time_of(&expected_of("0.2.0"))).await;
        assert_answers(&served.0, &expected).await;
        close(served).await;
        assert!(!data.join("log").exists(), "after the {start} start");
    }
    let mut entries: Vec<_> = data.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    entries.sort();
    assert_eq!(entries, ["format", "format-2", "journal", "search", "trees"]);
}

#[tokio::test]
async fn a_run_of_0_2_0_gets_its_hash_chain_with_its_next_row() {
    let ((_dir, data), known) = (unpack_of("0.2.0"), Known::default());
    let served = serve_at(&data, || time_of(&expected_of("0.2.0"))).await;
    let client = &served.0;
    let runs = client.get("/v1/runs?audience=internal").await.ok();
    let run = runs["runs"].as_array().unwrap().iter().find(|run| run["counts"]["events"].as_u64() > Some(3)).unwrap();
    let (name, rows) = (run["runId"].as_str().unwrap(), run["counts"]["events"].as_u64().unwrap());
    let before = verified(&export(client, name, "internal").await, &known);
    assert_eq!((before.head, before.outside_of_chain, before.checked_in_text), (None, rows, 0));
    client.append(name, &[fact("text.delta", json!({"messageId": "new", "payload": {"text": "x"}}))]).await;
    let after = verified(&export(client, name, "internal").await, &known);
    assert_eq!((after.outside_of_chain, after.checked_in_text), (rows, 1));
    // What an earlier version wrote is protected by the digest of the export, as far as a key signs it.
    let text = String::from_utf8(export(client, name, "internal").await).unwrap().replacen("receivedAt", "receivedAs", 1);
    assert!(verify(text.as_bytes(), &known).unwrap_err().to_string().starts_with("row 1 does not fit"));
    close(served).await;
}

#[tokio::test]
async fn every_adapter_keeps_what_0_1_0_saved() {
    let (_dir, data) = unpack();
    let store = opened(&data);
    let mut sources = std::collections::BTreeSet::new();
    for path in EXPECTED["answers"].as_object().unwrap().keys() {
        let Some(name) = path.strip_prefix("/v1/runs/").and_then(|rest| rest.strip_suffix("?audience=internal")) else {
            continue;
        };
        if name.contains('/') || name == "erased" {
            continue;
        }
        for (key, saved) in loaded(&store, name).await.state {
            let Some(source) = std::str::from_utf8(&key).unwrap().strip_prefix("a:").map(str::to_owned) else { continue };
            let kind = proscenium::source::by_name(&source).unwrap();
            let again = (kind.restore)(&saved).unwrap().save();
            assert!(again.len() < saved.len(), "{name}, {source}: {} bytes", again.len());
            let now = (kind.restore)(&again).unwrap().describe();
            let mut before = serde_json::from_slice::<Map<String, Value>>(&saved).unwrap();
            // The ledger has these now, and the audience of a call's start.
            before.retain(|member, _| !["attempt", "ended_calls", "has_forgotten_calls"].contains(&member.as_str()));
            if let Some(Value::Array(calls)) = before.get_mut("calls") {
                calls.iter_mut().filter_map(Value::as_object_mut).for_each(|call| drop(call.shift_remove("start")));
            }
            if let Some(Value::Object(billed)) = before.get_mut("just_ended") {
                billed.shift_remove("start");
            }
            if before.get("life").is_some_and(|life| life == "parked") {
                before.insert("life".into(), "paused".into());
            }
            let before = Value::Object(before);
            covers(&now, &before, Audience::Internal).unwrap_or_else(|what| panic!("{name}, {source}: {what}"));
            sources.insert(source);
        }
    }
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["ag-ui", "agentui", "awaken", "ethos", "turnrunner"]);
}

/// The text that a run streamed to users.
async fn text_of(client: &Client, run: &str) -> String {
    let events = client.read_events(run, "audience=user", 1000).await;
    events.iter().filter_map(|event| event["payload"]["text"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_goes_on_where_0_1_0_stopped() {
    let (_dir, data) = unpack();
    let served = serve(&data).await;
    let client = &served.0;
    // Held text is released or redacted with its rest.
    let more =
        |text: &str| [fact("text.delta", json!({"messageId": "m", "payload": {"text": text}})), fact("run.finished", json!({}))];
    client.append("held-word", &more("st/ for all")).await;
    assert_eq!(text_of(client, "held-word").await, "The page is at https://internal-host/ for all");
    client.append("held-secret", &more("0123456789 and on")).await;
    assert_eq!(text_of(client, "held-secret").await, "The key is [redacted] and on");
    // 0.1.0 did not save that the call is hidden.
    client.append("held-hidden", &[fact("tool.result", json!({"toolCallId": "c", "payload": {"output": ""}}))]).await;
    assert_eq!(text_of(client, "held-hidden").await, "");
    // A producer repeats its last fact, and goes on behind it.
    let headers = |seq: &'static str| {
        [("content-type", "application/x-ndjson"), ("producer-id", "p-long"), ("producer-epoch", "3"), ("producer-seq", seq)]
    };
    let word = to_ndjson(&[fact("text.delta", json!({"messageId": "m", "payload": {"text": "word "}}))]);
    for (seq, duplicates) in [("2200", 1), ("2201", 0)] {
        let receipt = client.post("/v1/runs/long/facts", &headers(seq), word.clone()).await.ok();
        assert_eq!((&receipt["duplicates"], &receipt["lastSequence"]), (&json!(duplicates), &json!(2202 - duplicates)));
    }
    // The erased run begins anew; the compacted one goes on.
    assert_eq!(client.append("erased", &[fact("run.started", json!({}))]).await["lastSequence"], 1);
    client.append("thin", &[fact("run.started", json!({}))]).await;
    // Open controls are claimed once more, with their values.
    for (agent, control, value) in [
        ("mate", "c-queued", json!({"words": "as you like"})),
        ("lead", "c-steer", json!("left, please")),
        ("default", "c-send", json!("hello")),
    ] {
        let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim"), &[], "").await.ok();
        assert_eq!(claimed["controls"].as_array().map(Vec::len), Some(1), "{agent}: {claimed}");
        assert_eq!((&claimed["controls"][0]["controlId"], &claimed["controls"][0]["value"]), (&json!(control), &value));
    }
    let before = client.export("held-word", "audience=internal").await;
    close(served).await;
    let served = serve(&data).await;
    assert_eq!(served.0.export("held-word", "audience=internal").await, before);
    assert_eq!(served.0.get("/v1/runs/long").await.ok()["lastSequence"], 2202);
    close(served).await;
}

#[test]
fn a_start_logs_each_step_of_the_migration_and_the_next_start_none() {
    let (dir, data) = unpack();
    let started = |name: &str| {
        let log = dir.path().join(name);
        let written = std::fs::File::create(&log).unwrap();
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        drop(Running::start_logging(&mut proscenium(&arguments), Stdio::from(written)));
        let lines = std::fs::read_to_string(log).unwrap();
        lines.lines().filter(|line| line.contains("the store is migrated")).map(str::to_owned).collect::<Vec<_>>()
    };
    let steps = started("first");
    for step in 1..=4 {
        assert_eq!(steps.iter().filter(|line| line.contains(&format!("{step} of 4"))).count(), 1, "{steps:?}");
    }
    assert!(steps.iter().any(|line| line.contains("format-1") && line.contains("stays until you delete it")), "{steps:?}");
    assert!(started("second").is_empty());
}

#[test]
fn the_copy_has_the_older_format_and_survives_writes_and_an_interrupted_migration() {
    let (_dir, data) = unpack();
    let copy = data.join("format-1");
    // A start that was interrupted while it copied.
    std::fs::create_dir(data.join("format-1.part")).unwrap();
    std::fs::write(data.join("format-1.part/half"), "").unwrap();
    drop(opened(&data));
    assert!(!data.join("format-1.part").exists());
    let mut entries: Vec<_> = copy.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    entries.sort();
    assert_eq!(entries, ["log", "tail"], "a copy of format 1 has no format file");

    // A start that was interrupted between copy and number, as a crash leaves it: the first copy stays.
    let (_other, data) = unpack();
    let untouched = unpack();
    std::fs::rename(untouched.1, data.join("format-1")).unwrap();
    std::fs::write(data.join("format-1/mark"), "").unwrap();
    let store = opened(&data);
    assert!(data.join("format-1/mark").exists());
    store.erase(&run("large")).unwrap();
    store.persist().unwrap();
    drop(store);

    // The copy is a store of its own, also when the migrated one goes on.
    let (_last, data) = unpack();
    let store = opened(&data);
    store.erase(&run("large")).unwrap();
    store.persist().unwrap();
    drop(store);
    let back = data.parent().unwrap().join("back");
    std::fs::rename(data.join("format-1"), &back).unwrap();
    let doctor = Command::new(env!("CARGO_BIN_EXE_proscenium")).args(["doctor", "--data-dir"]).arg(&back).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("No damage found. Logs: 28. Store format: 1.") && text.contains("from format 1 to 4"), "{text}");
    assert!(!back.join("format").exists() && !back.join("format-1").exists(), "the doctor migrates nothing");
    assert!(opened(&back).load(&run("large")).unwrap().is_some());
    assert!(opened(&data).load(&run("large")).unwrap().is_none());
}

/// Gives a data directory a format, as an older version writes it.
fn set_format(data: &Path, number: u32) {
    let lines = format!("format {number}\nversion 0.2.0\n");
    std::fs::write(data.join("format"), format!("{lines}checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(lines.as_bytes())))
        .unwrap();
}

#[tokio::test]
async fn a_store_of_format_3_gets_another_number_and_its_copy_is_the_way_back() {
    let (_dir, data) = unpack_of("0.2.0");
    let expected = expected_of("0.2.0");
    drop(opened(&data));
    std::fs::remove_dir_all(data.join("format-2")).unwrap();
    set_format(&data, 3);
    let doctor = Command::new(env!("CARGO_BIN_EXE_proscenium")).args(["doctor", "--data-dir"]).arg(&data).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("Store format: 3.") && text.contains("from format 3 to 4"), "{text}");
    let serve = async || serve_at(&data, || time_of(&expected_of("0.2.0"))).await;
    let served = serve().await;
    assert_answers(&served.0, &expected).await;
    served.0.append("later", &[fact("run.started", json!({}))]).await;
    close(served).await;
    assert!(std::fs::read_to_string(data.join("format")).unwrap().starts_with("format 4\n"));
    assert!(std::fs::read_to_string(data.join("format-3/format")).unwrap().starts_with("format 3\n"));
    // An interrupted start: the copy is there, and the number is not.
    set_format(&data, 3);
    let served = serve().await;
    assert_eq!(served.0.get("/v1/runs/later").await.status, 200, "the store goes on, and not its copy");
    close(served).await;
    let back = data.parent().unwrap().join("back");
    std::fs::rename(data.join("format-3"), &back).unwrap();
    let served = serve_at(&back, || time_of(&expected_of("0.2.0"))).await;
    assert_answers(&served.0, &expected).await;
    served.0.get("/v1/runs/later").await.problem(404, "no_such_run");
    close(served).await;
}

#[test]
fn a_store_of_another_version_is_refused_by_name_and_left_alone() {
    let (_dir, data) = unpack();
    drop(opened(&data));
    let format = data.join("format");
    let current = std::fs::read_to_string(&format).unwrap();
    assert!(current.starts_with(&format!("format {FORMAT}\nversion ")), "{current}");
    let refused = |what: &str| {
        let error = EmbeddedStore::open(&data, Sync::Never).err().unwrap_or_else(|| panic!("{what} was opened"));
        (error.to_string(), error)
    };

    let lines = "format 7\nversion 4.5.6\n";
    std::fs::write(&format, format!("{lines}checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(lines.as_bytes()))).unwrap();
    let (text, error) = refused("a newer format");
    assert!(matches!(error, StoreError::Unsupported { .. }));
    for part in ["store format 7", "Proscenium 4.5.6", env!("CARGO_PKG_VERSION"), "formats 1 to 4"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    std::fs::write(&format, "format 3").unwrap();
    assert!(matches!(refused("a damaged format"), (_, StoreError::Corrupt { path, .. }) if path == format));
    std::fs::remove_file(&format).unwrap();
    assert!(matches!(refused("a missing format"), (_, StoreError::Corrupt { path, .. }) if path == format));
    std::fs::write(&format, current).unwrap();

    let (_other, data) = unpack();
    let engine = data.join("log/version");
    let refused = || EmbeddedStore::open(&data, Sync::Never).err().expect("it is refused");
    std::fs::write(&engine, b"FJL\x04").unwrap();
    let error = refused();
    assert!(
        matches!(error, StoreError::Unsupported { .. }) && error.to_string().contains("version 4 of the storage engine"),
        "{error}"
    );
    std::fs::write(&engine, b"FJM\x03").unwrap();
    assert!(matches!(refused(), StoreError::Corrupt { path, .. } if path == engine));
    std::fs::write(&engine, b"FJL\x03").unwrap();
    drop(opened(&data));
}
