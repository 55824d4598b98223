//! `proscenium doctor` names what is wrong in a store, and changes nothing.

use crate::harness::{Client, Process, fact, soon};
use crate::supervision::{loaded, opened, run, set, tell_everything};
use bytes::Bytes;
use proscenium::log::row::Row;
use proscenium::log::{Append, Loaded, Store};
use proscenium::model::Sequence;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Every file and directory below this one: when it was changed, and of files what is in them.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Option<Vec<u8>>)> {
    let mut all = BTreeMap::from([(dir.to_owned(), (dir.metadata().unwrap().modified().unwrap(), None))]);
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(everything(&path)),
            false => {
                let changed = path.metadata().unwrap().modified().unwrap();
                all.insert(path.clone(), (changed, Some(std::fs::read(&path).unwrap())));
            }
        }
    }
    all
}

/// Runs it on a directory, which stays as it is: the exit code, and the lines.
fn doctor(data: &Path) -> (Option<i32>, Vec<String>, String) {
    let before = everything(data);
    let ran = Command::new(env!("CARGO_BIN_EXE_proscenium")).args(["doctor", "--data-dir"]).arg(data).output().unwrap();
    assert!(before == everything(data), "nothing is changed");
    let text = String::from_utf8(ran.stdout).unwrap();
    (ran.status.code(), text.lines().map(str::to_owned).collect(), String::from_utf8(ran.stderr).unwrap())
}

/// A directory with a store of a few runs, of which one is compacted and one erased, and where it is.
async fn written() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_with(dir.path(), &["--compact-after", "1"]);
    let client = Client::new(server.at);
    tell_everything(&client, "r").await;
    client.accept("erased", &[fact("run.started", json!({}))]).await;
    let text = |n: u64| fact("text.delta", json!({"messageId": "m", "payload": {"text": format!("{n} ")}}));
    let progress = |n: u64| fact("tool.progress", json!({"toolCallId": "c", "payload": {"toolName": "dig", "message": n}}));
    client.accept("thin", &[fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "dig"}}))]).await;
    for n in 0..30 {
        client.accept("thin", &[progress(n), text(n)]).await;
    }
    client.accept("thin", &[fact("run.finished", json!({}))]).await;
    client.delete("/v1/runs/erased").await;
    soon("a compaction", async {
        while client.get("/v1/runs/thin").await.ok()["compacted"] != true {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    server.terminate();
    assert!(soon("the server to stop", async { server.wait() }).await.success());
    let data = dir.path().join("data");
    (dir, data)
}

#[tokio::test]
async fn a_store_that_is_well_has_no_findings_whatever_happened_to_it() {
    let (_dir, data) = written().await;
    let (code, lines, said) = doctor(&data);
    assert_eq!((code, &lines[..]), (Some(0), &["Nothing is wrong. Logs: 2.".to_owned()][..]), "{said}");
    // With its rows in tables, and the journals gone.
    let store = opened(&data);
    store.settle().unwrap();
    drop(store);
    let (code, lines, said) = doctor(&data);
    assert_eq!(code, Some(0), "{lines:?} {said}");
}

#[tokio::test]
async fn each_kind_of_damage_is_named_with_its_log_and_entry() {
    let (_dir, data) = written().await;
    let store = opened(&data);
    let Loaded { epoch, last, state } = loaded(&store, "r").await;
    let thing = state.iter().find(|(key, _)| key.starts_with(b"t:")).unwrap().0.clone();
    set(&store, "r", b"g", b"{\"half").await;
    set(&store, "r", b"a:agentui", b"7").await;
    set(&store, "r", b"a:nobody", b"{}").await;
    set(&store, "r", b"p:p", b"{}").await;
    set(&store, "r", b"c:x", b"{}").await;
    set(&store, "r", &thing, b"\xff").await;
    set(&store, "thin", b"m", b"").await;
    store.save_checkpoint(&run("r"), epoch, 1, Sequence(2), "half".into()).await.unwrap();
    // A row that refers to a body that is not there, one whose text is none, and a hole.
    let mut rows = Vec::new();
    let text = format!(r#"{{"sequence":{},"refs":[{{"rel":"output","href":"/v1/blobs/gone"}}]}}"#, last.next());
    Row::encode(&mut rows, last.next(), [Sequence::NONE; 3], [None, None, Some(text.as_bytes())]);
    Row::encode(&mut rows, last.plus(3), [Sequence::NONE; 3], [None, Some(b"half"), None]);
    let append = |log: &str, epoch, expected: Sequence, last, rows: Vec<u8>| {
        let (rows, blobs, state) = (Bytes::from(rows), Vec::new(), Vec::new());
        Append { log: run(log), epoch, expected, last, rows, blobs, state }
    };
    store.commit(&[append("r", epoch, last, last.plus(3), rows)]).await.unwrap();
    store.commit(&[append("torn", epoch, Sequence::NONE, Sequence(1), vec![9, 0, 0, 0, 1])]).await.unwrap();
    drop(store);
    let (code, lines, said) = doctor(&data);
    assert_eq!(code, Some(1), "{lines:?} {said}");
    let thing = format!("{:?}", String::from_utf8(thing.to_vec()).unwrap());
    for (log, entry, what) in [
        ("run r", "state entry \"g\"", ""),
        ("run r", "state entry \"a:agentui\"", ""),
        ("run r", "state entry \"a:nobody\"", "no such source"),
        ("run r", "state entry \"p:p\"", ""),
        ("run r", "state entry \"c:x\"", ""),
        ("run r", &format!("state entry {thing}"), ""),
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
async fn a_damaged_file_is_named_and_so_is_one_that_is_gone() {
    let (_dir, data) = written().await;
    let store = opened(&data);
    store.settle().unwrap();
    drop(store);
    let tables: Vec<_> = everything(&data).into_keys().filter(|path| path.parent().unwrap().ends_with("tables")).collect();
    let (spoiled, gone) = (&tables[0], &tables[tables.len() - 1]);
    let mut bytes = std::fs::read(spoiled).unwrap();
    bytes[10] ^= 1;
    std::fs::write(spoiled, bytes).unwrap();
    std::fs::remove_file(gone).unwrap();
    let (code, lines, said) = doctor(&data);
    assert_eq!(code, Some(1), "{lines:?} {said}");
    for file in [spoiled, gone] {
        assert!(lines.iter().any(|line| line.contains(file.to_str().unwrap())), "{} in {lines:?}", file.display());
    }
}

#[tokio::test]
async fn a_damaged_journal_and_a_damaged_tail_are_named_by_the_names_that_they_have_there() {
    for name in ["tail", "0.jnl"] {
        let (_dir, data) = written().await;
        let files = everything(&data);
        let file = files.keys().find(|path| path.ends_with(name)).unwrap_or_else(|| panic!("{name} in {:?}", files.keys()));
        let mut bytes = std::fs::read(file).unwrap();
        // In a batch, and in both slots.
        for at in [10, 522] {
            bytes[at] ^= 1;
        }
        std::fs::write(file, bytes).unwrap();
        let (code, lines, said) = doctor(&data);
        assert_eq!(code, Some(1), "{lines:?} {said}");
        assert!(lines[0].contains(file.to_str().unwrap()), "{lines:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_examined_is_told_from_what_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let (code, lines, said) = doctor(dir.path());
    assert_eq!((code, lines.len()), (Some(2), 0), "{said}");
    assert!(said.contains("there is none"), "{said}");
    let server = Process::start_in(dir.path());
    Client::new(server.at).accept("r", &[fact("run.started", json!({}))]).await;
    let ran = Command::new(env!("CARGO_BIN_EXE_proscenium"))
        .args(["doctor", "--data-dir"])
        .arg(dir.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("in use by another process"), "{ran:?}");
    Client::new(server.at).accept("r", &[fact("run.finished", json!({}))]).await;
}
