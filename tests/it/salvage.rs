//! `proscenium doctor --salvage`: everything readable of a damaged store, in a new one.

use crate::harness::{Client, Process, copy_directory, fact, files_below, with_timeout};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUNS: usize = 12;
/// Damaged places of each kind of file.
const PLACES: usize = 6;

fn doctor(data: &Path, salvage: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(["doctor", "--json", "--data-dir"]).arg(data);
    if let Some(out) = salvage {
        command.arg("--salvage").arg(out);
    }
    command.output().unwrap()
}

/// A store of a killed server: half of it in tables, and the rest in the journal alone. Returns what each run exports.
async fn written(dir: &Path) -> BTreeMap<String, Vec<Value>> {
    let server = Process::start_in(dir);
    let client = Client::new(server.at);
    let text = |n: usize| fact("text.delta", json!({"messageId": "m", "payload": {"text": format!("{n} {}", "x".repeat(100))}}));
    let fill = async |half: &str| {
        for run in 0..RUNS {
            let name = format!("{half}{run}");
            for n in 0..4 {
                client.append(&name, &(n * 20..n * 20 + 20).map(text).collect::<Vec<_>>()).await;
            }
            let result = json!({"toolCallId": "c", "payload": {"toolName": "dig", "result": format!("{run}").repeat(300_000)}});
            client.append(&name, &[fact("tool.finished", result)]).await;
        }
    };
    fill("old").await;
    let url = format!("http://{}", server.at);
    let backup = move |to: PathBuf| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
        command.args(["backup", "--url", &url, "--to"]).arg(to).output().unwrap()
    };
    // A backup writes all to tables.
    assert!(backup(dir.join("backup")).status.success());
    fill("new").await;
    let mut runs = BTreeMap::new();
    for half in ["old", "new"] {
        for run in 0..RUNS {
            let name = format!("{half}{run}");
            runs.insert(name.clone(), client.export(&name, "audience=internal").await);
        }
    }
    server.kill();
    runs
}

/// Salvages, checks what every salvage must keep, and returns the report and the runs that the new store lacks rows of.
async fn salvaged(data: &Path, out: &Path, runs: &BTreeMap<String, Vec<Value>>) -> (Value, Vec<String>) {
    let before = files_below(data);
    let output = doctor(data, Some(&out.join("data")));
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert!(before == files_below(data), "the damaged store is as it was");
    assert_eq!(report["findings"], json!([]), "{report}");
    let checked = doctor(&out.join("data"), None);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    let server = Process::start_in(out);
    let client = Client::new(server.at);
    let mut lacking = Vec::new();
    for (name, whole) in runs {
        let got = client.get(&format!("/v1/runs/{name}")).await;
        if got.status == 404 {
            lacking.push(name.clone());
            continue;
        }
        let rows = client.export(name, "audience=internal").await;
        assert!(rows.iter().all(|row| whole.contains(row)), "{name} has a row that it never had");
        let sequences: Vec<_> = rows.iter().map(|row| row["sequence"].as_u64().unwrap()).collect();
        assert!(sequences.is_sorted_by(|a, b| a < b), "{name}: {sequences:?}");
        if rows.len() < whole.len() {
            lacking.push(name.clone());
        }
        // It goes on.
        let last = sequences.last().copied();
        let receipt = client.append(name, &[fact("run.finished", json!({}))]).await;
        assert!(receipt["firstSequence"].as_u64() > last, "{receipt}");
        client.get(&format!("/v1/runs/{name}/activities?audience=internal")).await.ok();
    }
    server.terminate();
    (report, lacking)
}

/// Numbers that look random and are the same in each run of the test.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    for byte in bytes.iter_mut().skip(at).take(4) {
        *byte ^= 0xff;
    }
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn four_damaged_bytes_in_the_journal_cost_one_commit_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let runs = written(dir.path()).await;
    let mut number = numbers(1);
    for place in 0..PLACES {
        let (damaged, out) = (dir.path().join(format!("damaged-{place}")), dir.path().join(format!("out-{place}")));
        copy_directory(&dir.path().join("data"), &damaged);
        let segments = files_below(&damaged.join("journal"))
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"));
        let (segment, bytes) = segments.max_by_key(|(path, _)| path.clone()).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        flip(&segment, 64 + number(end - 68));
        assert_eq!(doctor(&damaged, None).status.code(), Some(1), "a server refuses it");
        let (report, lacking) = salvaged(&damaged, &out, &runs).await;
        assert!(lacking.len() <= 1, "{lacking:?} {report}");
        let losses = report["losses"].as_array().unwrap();
        assert!(losses.iter().any(|loss| loss["kind"] == "file" && loss["at"] == segment.to_str().unwrap()), "{report}");
        if !lacking.is_empty() {
            let commits: Vec<_> = losses.iter().filter(|loss| loss["kind"] == "commits").collect();
            assert!(matches!(commits[..], [one] if one["from"] == one["to"]), "{report}");
        }
    }
}

#[tokio::test]
async fn damaged_tables_and_bodies_cost_what_they_held_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let runs = written(dir.path()).await;
    let mut number = numbers(2);
    let tables: Vec<_> = files_below(&dir.path().join("data/trees"))
        .into_iter()
        .filter(|(path, bytes)| {
            !bytes.is_empty() && path.parent().is_some_and(|dir| dir.ends_with("tables") || dir.ends_with("blobs"))
        })
        .collect();
    assert!(tables.len() >= 5);
    for (place, (path, bytes)) in tables.iter().enumerate() {
        let (damaged, out) = (dir.path().join(format!("damaged-{place}")), dir.path().join(format!("out-{place}")));
        copy_directory(&dir.path().join("data"), &damaged);
        let inside = damaged.join(path.strip_prefix(dir.path().join("data")).unwrap());
        flip(&inside, number(bytes.len() - 4));
        let (report, lacking) = salvaged(&damaged, &out, &runs).await;
        assert!(lacking.iter().all(|run| run.starts_with("old")), "the journal has the new ones: {lacking:?} {report}");
        assert!(report["losses"].as_array().unwrap().iter().any(|loss| loss["at"] == inside.to_str().unwrap()), "{report}");
        // What no store can hold lies beside it.
        let aside =
            files_below(&out.join("data")).into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "ndjson"));
        for (path, lines) in aside {
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let row: Value = serde_json::from_slice(line).unwrap();
                let run = row["runId"].as_str().map(|run| &runs[run]);
                assert!(run.is_none_or(|rows| rows.contains(&row)), "{path:?}: {row}");
            }
        }
    }
}

#[tokio::test]
async fn missing_and_truncated_files_are_named_and_the_rest_is_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let runs = written(dir.path()).await;
    let mut number = numbers(3);
    let data = dir.path().join("data");
    let files: Vec<_> = files_below(&data)
        .into_iter()
        .filter(|(path, _)| {
            let inner = path.strip_prefix(&data).unwrap();
            inner.starts_with("journal") || inner.starts_with("trees") || inner.ends_with("format")
        })
        .collect();
    for (place, (path, bytes)) in files.iter().enumerate().step_by(3) {
        let (damaged, out) = (dir.path().join(format!("damaged-{place}")), dir.path().join(format!("out-{place}")));
        copy_directory(&data, &damaged);
        let inside = damaged.join(path.strip_prefix(&data).unwrap());
        match place % 2 {
            0 => std::fs::remove_file(&inside).unwrap(),
            _ => std::fs::write(&inside, &bytes[..number(bytes.len().max(1))]).unwrap(),
        }
        let (report, _) = salvaged(&damaged, &out, &runs).await;
        let is_spare = inside.file_name().unwrap().to_str().unwrap().starts_with("spare");
        let is_old = is_unused(&data, path);
        assert!(is_spare || is_old || !report["losses"].as_array().unwrap().is_empty(), "{inside:?}: {report}");
    }
}

/// Whether no current list of a tree has this file, or no record that tables lack is in this segment.
fn is_unused(data: &Path, path: &Path) -> bool {
    let inner = path.strip_prefix(data).unwrap();
    inner.starts_with("journal") || path.file_name().unwrap().to_str().unwrap().starts_with('v')
}

#[tokio::test]
async fn a_salvage_never_writes_into_a_directory_that_has_something() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let data = dir.path().join("data");
    let refused = |out: &Path| {
        let output = doctor(&data, Some(out));
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&data).contains("must lie outside of the damaged one"));
    assert!(refused(&data.join("inside")).contains("must lie outside of the damaged one"));
    assert!(refused(dir.path()).contains("must lie outside of the damaged one"));
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("file"), "x").unwrap();
    assert!(refused(&full).contains("it is not empty"));
    let output = doctor(&full, Some(&dir.path().join("out")));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("contains no store"));
    let server = Process::start_in(dir.path());
    assert!(refused(&dir.path().join("out")).contains("in use by another process"));
    server.terminate();
    with_timeout("the stop", async { server.kill() }).await;
}
