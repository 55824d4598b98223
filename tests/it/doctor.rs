//! `proscenium doctor` names the damage in a store, and changes nothing.

use crate::harness::{Client, Process, fact, with_timeout};
use crate::supervision::{loaded, opened, run, set, tell_everything};
use bytes::Bytes;
use proscenium::log::row::Row;
use proscenium::log::{Append, LoadedLog, Store};
use proscenium::model::Sequence;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Lists every file and directory below this one, with modification times and file contents.
fn snapshot_directory(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Option<Vec<u8>>)> {
    let mut all = BTreeMap::from([(dir.to_owned(), (dir.metadata().unwrap().modified().unwrap(), None))]);
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(snapshot_directory(&path)),
            false => {
                let changed = path.metadata().unwrap().modified().unwrap();
                all.insert(path.clone(), (changed, Some(std::fs::read(&path).unwrap())));
            }
        }
    }
    all
}

/// Runs the doctor on a directory, asserts that nothing changed, and returns the exit code and the output.
fn run_doctor(data: &Path) -> (Option<i32>, Vec<String>, String) {
    let before = snapshot_directory(data);
    let ran = Command::new(env!("CARGO_BIN_EXE_proscenium")).args(["doctor", "--data-dir"]).arg(data).output().unwrap();
    assert!(before == snapshot_directory(data), "the doctor changed a file");
    let text = String::from_utf8(ran.stdout).unwrap();
    (ran.status.code(), text.lines().map(str::to_owned).collect(), String::from_utf8(ran.stderr).unwrap())
}

/// Creates a store with a few runs, one of them compacted and one erased; returns its directory.
async fn write_store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_with(dir.path(), &["--compact-after", "1"]);
    let client = Client::new(server.at);
    tell_everything(&client, "r").await;
    client.append("erased", &[fact("run.started", json!({}))]).await;
    let text = |n: u64| fact("text.delta", json!({"messageId": "m", "payload": {"text": format!("{n} ")}}));
    let progress = |n: u64| fact("tool.progress", json!({"toolCallId": "c", "payload": {"toolName": "dig", "message": n}}));
    client.append("thin", &[fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "dig"}}))]).await;
    for n in 0..30 {
        client.append("thin", &[progress(n), text(n)]).await;
    }
    client.append("thin", &[fact("run.finished", json!({}))]).await;
    client.delete("/v1/runs/erased").await;
    with_timeout("the compaction", async {
        while client.get("/v1/runs/thin").await.ok()["compacted"] != true {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    server.terminate();
    assert!(with_timeout("the server's stop", async { server.wait() }).await.success());
    let data = dir.path().join("data");
    (dir, data)
}

#[tokio::test]
async fn an_undamaged_store_has_no_findings() {
    let (_dir, data) = write_store().await;
    let (code, lines, stderr) = run_doctor(&data);
    // Two logs, and the server's own.
    assert_eq!((code, &lines[..]), (Some(0), &["No damage found. Logs: 3. Store format: 4.".to_owned()][..]), "{stderr}");
    // The rows are in tables.
    let store = opened(&data);
    store.persist().unwrap();
    drop(store);
    let (code, lines, stderr) = run_doctor(&data);
    assert_eq!(code, Some(0), "{lines:?} {stderr}");
}

#[tokio::test]
async fn each_kind_of_damage_is_named_with_its_log_and_entry() {
    let (_dir, data) = write_store().await;
    let store = opened(&data);
    let LoadedLog { epoch, last, state } = loaded(&store, "r").await;
    let subject = state.iter().find(|(key, _)| key.starts_with(b"t:")).unwrap().0.clone();
    set(&store, "r", b"g", b"{\"half").await;
    set(&store, "r", b"a:agentui", b"7").await;
    set(&store, "r", b"a:unknown", b"{}").await;
    set(&store, "r", b"p:p", b"{}").await;
    set(&store, "r", b"c:x", b"{}").await;
    set(&store, "r", b"n:a2a:x", b"[]").await;
    set(&store, "r", &subject, b"\xff").await;
    set(&store, "thin", b"m", b"").await;
    store.save_checkpoint(&run("r"), epoch, 1, Sequence(2), "half".into()).unwrap();
    // A row that refers to a missing body, a row with invalid text, and a gap.
    let mut rows = Vec::new();
    let text = format!(r#"{{"sequence":{},"refs":[{{"rel":"output","href":"/v1/blobs/gone"}}]}}"#, last.next());
    Row::encode(&mut rows, last.next(), [Sequence::NONE; 3], [None, None, Some(text.as_bytes())]);
    Row::encode(&mut rows, last.plus(3), [Sequence::NONE; 3], [None, Some(b"half"), None]);
    let append = |log: &str, epoch, expected: Sequence, last, rows: Vec<u8>| {
        let (rows, blobs, state) = (Bytes::from(rows), Vec::new(), Vec::new());
        Append { log: run(log), epoch, expected, last, rows, blobs, state }
    };
    store.commit(&[append("r", epoch, last, last.plus(3), rows)]).unwrap();
    store.commit(&[append("torn", epoch, Sequence::NONE, Sequence(1), vec![9, 0, 0, 0, 1])]).unwrap();
    store.persist().unwrap();
    drop(store);
    let (code, lines, stderr) = run_doctor(&data);
    assert_eq!(code, Some(1), "{lines:?} {stderr}");
    let subject = format!("{:?}", String::from_utf8(subject.to_vec()).unwrap());
    for (log, entry, what) in [
        ("run r", "state entry \"g\"", ""),
        ("run r", "state entry \"a:agentui\"", ""),
        ("run r", "state entry \"a:unknown\"", "no such source"),
        ("run r", "state entry \"p:p\"", ""),
        ("run r", "state entry \"c:x\"", ""),
        ("run r", "state entry \"n:a2a:x\"", ""),
        ("run r", &format!("state entry {subject}"), ""),
        ("run r", "state entry \"m\"", &format!("it ends at sequence {last}, the log at {}", last.plus(3))),
        ("run r", "state entry \"m\"", "rows for internal"),
        ("run thin", "state entry \"m\"", ""),
        ("run r", "checkpoint for dashboard at sequence 2", ""),
        ("run r", &format!("sequence {}", last.next()), "body gone"),
        ("run r", &format!("sequence {}", last.next()), "it follows sequence 0"),
        ("run r", &format!("sequence {}", last.plus(3)), "not JSON"),
        ("run r", &format!("sequence {}", last.plus(3)), "no compaction"),
        ("run torn", "state entry \"m\"", "it is missing"),
        ("run torn", "append after sequence 0", "a row's length"),
    ] {
        let is_it = |line: &&String| line.starts_with(&format!("{log}: {entry}: ")) && line.contains(what);
        assert!(lines.iter().any(|line| is_it(&line)), "{log}: {entry}: {what} in {lines:#?}");
    }
}

#[tokio::test]
async fn a_damaged_file_and_a_missing_file_are_named() {
    let (_dir, data) = write_store().await;
    let store = opened(&data);
    store.persist().unwrap();
    drop(store);
    // The index of texts is made anew if it is damaged.
    let is_table =
        |path: &std::path::PathBuf| path.parent().unwrap().ends_with("tables") && !path.starts_with(data.join("search"));
    let tables: Vec<_> = snapshot_directory(&data).into_keys().filter(is_table).collect();
    let (spoiled, gone) = (&tables[0], &tables[tables.len() - 1]);
    let mut bytes = std::fs::read(spoiled).unwrap();
    bytes[10] ^= 1;
    std::fs::write(spoiled, bytes).unwrap();
    std::fs::remove_file(gone).unwrap();
    let (code, lines, stderr) = run_doctor(&data);
    assert_eq!(code, Some(1), "{lines:?} {stderr}");
    for file in [spoiled, gone] {
        assert!(lines.iter().any(|line| line.contains(file.to_str().unwrap())), "{} in {lines:?}", file.display());
    }
}

#[tokio::test]
async fn a_damaged_journal_and_a_damaged_tail_file_are_named_by_path() {
    for name in ["tail", "00000000000000000001.seg"] {
        let (_dir, data) = write_store().await;
        let files = snapshot_directory(&data);
        let file = files.keys().find(|path| path.ends_with(name)).unwrap_or_else(|| panic!("{name} in {:?}", files.keys()));
        let mut bytes = std::fs::read(file).unwrap();
        // In the header of a segment, and in both slots of the tail file.
        for at in [10, 522] {
            bytes[at] ^= 1;
        }
        std::fs::write(file, bytes).unwrap();
        let (code, lines, stderr) = run_doctor(&data);
        assert_eq!(code, Some(1), "{lines:?} {stderr}");
        assert!(lines[0].contains(file.to_str().unwrap()), "{lines:?}");
    }
}

#[tokio::test]
async fn an_unreadable_store_has_another_exit_code_than_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let (code, lines, stderr) = run_doctor(dir.path());
    assert_eq!((code, lines.len()), (Some(2), 0), "{stderr}");
    assert!(stderr.contains("contains no store"), "{stderr}");
    let server = Process::start_in(dir.path());
    Client::new(server.at).append("r", &[fact("run.started", json!({}))]).await;
    let ran = Command::new(env!("CARGO_BIN_EXE_proscenium"))
        .args(["doctor", "--data-dir"])
        .arg(dir.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("in use by another process"), "{ran:?}");
    Client::new(server.at).append("r", &[fact("run.finished", json!({}))]).await;
}
