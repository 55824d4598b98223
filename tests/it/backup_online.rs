//! `proscenium backup` and `proscenium restore`: a running server's store in a directory, and back.

use crate::harness::{Client, Process, fact, files_below, with_timeout};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn run(arguments: &[&str], paths: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(arguments);
    for (flag, path) in paths {
        command.arg(flag).arg(path);
    }
    command.output().unwrap()
}

pub fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Backs the server up, without stopping the test's own tasks meanwhile.
pub async fn back_up(server: &Process, to: &Path) -> Value {
    let (url, to) = (format!("http://{}", server.at), to.to_owned());
    let backup = move || run(&["backup", "--json", "--url", &url], &[("--to", &to)]);
    told(&with_timeout("the backup", async { tokio::task::spawn_blocking(backup).await.unwrap() }).await)
}

pub fn restore(from: &Path, to: &Path) -> Value {
    told(&run(&["restore", "--json"], &[("--from", from), ("--data-dir", to)]))
}

fn assert_undamaged(data: &Path) {
    let doctor = run(&["doctor", "--json"], &[("--data-dir", data)]);
    assert_eq!(told(&doctor)["findings"], json!([]));
}

fn text(n: u64) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": format!("<{n}>")}}))
}

/// A server with a few runs, one with a body of its own file.
async fn filled(dir: &Path) -> (Process, Client) {
    let server = Process::start_in(dir);
    let client = Client::new(server.at);
    for n in 0..10 {
        client.append(&format!("r{n}"), &(0..20).map(text).collect::<Vec<_>>()).await;
    }
    let result = fact("tool.finished", json!({"toolCallId": "c", "payload": {"toolName": "dig", "result": "z".repeat(300_000)}}));
    client.append("r0", &[result]).await;
    (server, client)
}

#[tokio::test]
async fn a_backup_under_load_has_every_fact_acknowledged_before_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let (client, acknowledged) = (Client::new(server.at), Arc::new(AtomicU64::new(0)));
    let producing = tokio::spawn({
        let (client, acknowledged) = (client.clone(), acknowledged.clone());
        async move {
            for n in 0.. {
                let number = n.to_string();
                let numbers = [("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", &*number)];
                client.post("/v1/runs/r/facts", &numbers, text(n).to_string()).await.ok();
                acknowledged.store(n + 1, Ordering::SeqCst);
            }
        }
    });
    let (backups, mut restored) = (dir.path().join("backups"), Vec::new());
    for round in 1..=3u64 {
        let before = with_timeout("facts", async {
            loop {
                match acknowledged.load(Ordering::SeqCst) {
                    enough if enough >= 20 * round => break enough,
                    _ => tokio::task::yield_now().await,
                }
            }
        });
        let before = before.await;
        let backup = back_up(&server, &backups).await;
        let place = dir.path().join(format!("restored-{round}"));
        let told = restore(&backups, &place.join("data"));
        assert_eq!(told["position"], backup["position"]);
        assert_undamaged(&place.join("data"));
        restored.push((before, place));
    }
    producing.abort();
    for (before, place) in restored {
        let server = Process::start_in(&place);
        let events = Client::new(server.at).export("r", "audience=internal").await;
        let texts: Vec<_> = events.iter().filter_map(|event| event["payload"]["text"].as_str()).collect();
        assert!(texts.len() as u64 >= before, "{} of {before}", texts.len());
        let expected: Vec<_> = (0..texts.len()).map(|n| format!("<{n}>")).collect();
        assert_eq!(texts, expected, "each fact once and in order");
        // The same envelopes, byte for byte, as the first server has.
        let first = client.export("r", "audience=internal").await;
        assert_eq!(first[..events.len()], events[..]);
    }
}

#[tokio::test]
async fn a_second_backup_of_an_unchanged_store_sends_nothing_and_bodies_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let backups = dir.path().join("backups");
    let first = back_up(&server, &backups).await;
    assert_eq!(first["sentFiles"], first["files"]);
    // The first may be followed by a merge of tables.
    back_up(&server, &backups).await;
    let third = back_up(&server, &backups).await;
    assert_eq!((&third["sentFiles"], &third["sentBytes"]), (&json!(0), &json!(0)), "{third}");
    assert_eq!(third["position"], first["position"]);
    client.append("r3", &[text(99)]).await;
    let fourth = back_up(&server, &backups).await;
    assert!(fourth["position"].as_u64() > first["position"].as_u64());
    assert!(fourth["sentBytes"].as_u64() > Some(0));
    restore(&backups, &dir.path().join("copy/data"));
    assert_undamaged(&dir.path().join("copy/data"));
    let copy = Process::start_in(&dir.path().join("copy"));
    let restored = Client::new(copy.at);
    let events = restored.export("r0", "audience=internal").await;
    assert_eq!(client.export("r0", "audience=internal").await, events);
    let text = events.iter().map(Value::to_string).find(|event| event.contains("/v1/blobs/")).expect("the result lies apart");
    let href: String = text[text.find("/v1/blobs/").unwrap()..].chars().take_while(|c| *c != '"').collect();
    let body = restored.get(&format!("{href}?audience=internal")).await;
    assert_eq!((body.status, body.body.len()), (200, client.get(&format!("{href}?audience=internal")).await.body.len()));
}

#[tokio::test]
async fn a_reader_beyond_the_backup_begins_again_after_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let backups = dir.path().join("backups");
    back_up(&server, &backups).await;
    let run = client.get("/v1/runs/r1").await.ok();
    let beyond = client.append("r1", &[text(100), text(101)]).await;
    let cursor = format!("{}:{}", beyond["epoch"].as_str().unwrap(), 2 * beyond["lastSequence"].as_u64().unwrap());
    restore(&backups, &dir.path().join("copy/data"));
    let copy = Process::start_in(&dir.path().join("copy"));
    let restored = Client::new(copy.at);
    // Other facts take the same sequences.
    let receipt = restored.append("r1", &[text(200), text(201), text(202)]).await;
    assert_ne!(receipt["epoch"], beyond["epoch"]);
    assert_eq!(receipt["firstSequence"].as_u64(), run["lastSequence"].as_u64().map(|last| last + 1));
    let mut stream = restored.open_activities("r1", "", Some(&cursor)).await;
    let first = stream.next_frame().await;
    assert_eq!((first.kind(), &first.data["reason"]), ("Reset", &json!("epoch")), "{first:?}");
}

#[tokio::test]
async fn signed_heads_and_proofs_stay_valid_after_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let backups = dir.path().join("backups");
    back_up(&server, &backups).await;
    restore(&backups, &dir.path().join("copy/data"));
    std::fs::copy(dir.path().join("data/signing-key.pem"), dir.path().join("copy/data/signing-key.pem")).unwrap();
    let copy = Process::start_in(&dir.path().join("copy"));
    let restored = Client::new(copy.at);
    restored.append("r2", &[text(300)]).await;
    let proofs = |client: Client| async move { client.get("/v1/runs/r2/export?audience=internal&proof=true").await.body };
    let epoch = |lines: &[u8]| {
        serde_json::from_slice::<Value>(lines.split(|byte| *byte == b'\n').next().unwrap()).unwrap()["proof"]["begin"]["epoch"]
            .clone()
    };
    let (before, after) = (proofs(client).await, proofs(restored.clone()).await);
    assert!(epoch(&before).is_string());
    assert_eq!(epoch(&before), epoch(&after), "the chain keeps the epoch that it began with");
    let file = dir.path().join("r2.ndjson");
    std::fs::write(&file, &after).unwrap();
    let keys = dir.path().join("keys.json");
    std::fs::write(&keys, restored.get("/v1/keys").await.body).unwrap();
    let verified =
        Command::new(env!("CARGO_BIN_EXE_proscenium")).arg("verify").arg(&file).arg("--key").arg(&keys).output().unwrap();
    assert!(
        verified.status.success(),
        "{} {}",
        String::from_utf8_lossy(&verified.stdout),
        String::from_utf8_lossy(&verified.stderr)
    );
}

#[tokio::test]
async fn a_backup_that_is_cut_off_is_unfinished_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let (backups, fresh) = (dir.path().join("backups"), dir.path().join("fresh"));
    let first = back_up(&server, &backups).await;
    for n in 0..50 {
        client.append(&format!("more{n}"), &(0..50).map(text).collect::<Vec<_>>()).await;
    }
    let url = format!("http://{}", server.at);
    for to in [&backups, &fresh] {
        // A byte a second: it is never done.
        let mut slow = Command::new(env!("CARGO_BIN_EXE_proscenium"));
        let mut slow = slow.args(["backup", "--rate", "1", "--url", &url, "--to"]).arg(to).spawn().unwrap();
        with_timeout("the begin", async {
            while !to.join("unfinished.json").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
        let busy = refusal(&run(&["backup", "--url", &url], &[("--to", to)]));
        assert!(busy.contains("another backup is being written here"), "{busy}");
        slow.kill().unwrap();
        slow.wait().unwrap();
    }
    let unfinished = refusal(&run(&["restore"], &[("--from", &fresh), ("--data-dir", &dir.path().join("never"))]));
    assert!(unfinished.contains("its only backup is unfinished"), "{unfinished}");
    assert!(!dir.path().join("never").exists());
    assert_eq!(restore(&backups, &dir.path().join("old/data"))["position"], first["position"], "the earlier one stays usable");
    let whole = with_timeout("a free place", async {
        loop {
            let again = run(&["backup", "--json", "--url", &url], &[("--to", &fresh)]);
            // The server notices a moment later that the others are gone.
            if again.status.success() {
                break told(&again);
            }
            assert!(refusal(&again).contains("too_many_backups"), "{}", refusal(&again));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(restore(&fresh, &dir.path().join("new/data"))["position"], whole["position"]);
    assert!(!fresh.join("unfinished.json").exists());
}

#[tokio::test]
async fn two_backups_run_at_once_and_a_third_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let begin = || async { client.post("/v1/backup", &[], r#"{"bytesPerSecond":1}"#).await };
    let url = format!("http://{}", server.at);
    let mut slow = Vec::new();
    for name in ["a", "b"] {
        let to = dir.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
        slow.push(command.args(["backup", "--rate", "1", "--url", &url, "--to"]).arg(&to).spawn().unwrap());
        with_timeout("the begin", async {
            while !to.join("unfinished.json").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    let problem = begin().await.problem(429, "too_many_backups");
    assert_eq!(problem["limit"], 2);
    for mut slow in slow {
        slow.kill().unwrap();
        slow.wait().unwrap();
    }
    let whole = with_timeout("a free place", async {
        loop {
            let again = run(&["backup", "--json", "--url", &url], &[("--to", &dir.path().join("a"))]);
            if again.status.success() {
                break told(&again);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(whole["position"].as_u64() > Some(0));
}

#[tokio::test]
async fn what_was_erased_later_stays_in_the_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let backups = dir.path().join("backups");
    back_up(&server, &backups).await;
    assert_eq!(client.delete("/v1/runs/r4").await.status, 204);
    let old = dir.path().join("old");
    restore(&backups, &old.join("data"));
    back_up(&server, &backups).await;
    let new = dir.path().join("new");
    restore(&backups, &new.join("data"));
    let (old, new) = (Process::start_in(&old), Process::start_in(&new));
    assert_eq!(Client::new(old.at).get("/v1/runs/r4").await.status, 200);
    assert_eq!(Client::new(new.at).get("/v1/runs/r4").await.status, 410, "an erasure before the backup is in it");
}

#[tokio::test]
async fn a_backup_that_cannot_be_restored_is_refused_by_name_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _client) = filled(dir.path()).await;
    let backups = dir.path().join("backups");
    let made = back_up(&server, &backups).await;
    let target = dir.path().join("target/data");
    let refused = |data_dir: &Path| refusal(&run(&["restore"], &[("--from", &backups), ("--data-dir", data_dir)]));
    assert!(refused(&dir.path().join("data")).contains("it has a store already"));
    assert!(refused(&backups).contains("onto itself"));
    assert!(refused(&backups.join("inside")).contains("onto itself"));
    std::fs::create_dir_all(dir.path().join("other")).unwrap();
    std::fs::write(dir.path().join("other/file"), "x").unwrap();
    assert!(refused(&dir.path().join("other")).contains("it is not empty"));
    let none = refusal(&run(&["restore"], &[("--from", &dir.path().join("other")), ("--data-dir", &target)]));
    assert!(none.contains("it has no backup"), "{none}");
    let unknown = refusal(&run(&["restore", "--backup", "x"], &[("--from", &backups), ("--data-dir", &target)]));
    assert!(unknown.contains("it has no backup x; it has"), "{unknown}");
    for (address, wrong) in
        [("ftp://host/x", "\"ftp://host/x\" cannot be used"), ("s3://", "cannot be used"), ("s3:/x/://", "cannot be used")]
    {
        let remote = refusal(&run(&["backup", "--to", address], &[]));
        assert!(remote.contains(wrong), "{remote}");
        let remote = refusal(&run(&["restore", "--from", address], &[("--data-dir", &target)]));
        assert!(remote.contains(wrong), "{remote}");
    }
    let missing = dir.path().join("missing");
    let none = refusal(&run(&["restore"], &[("--from", &missing), ("--data-dir", &target)]));
    assert!(none.contains("missing") && !missing.exists(), "{none}");
    let plain = refusal(&run(&["backup", "--url", "http://192.0.2.1:8787"], &[("--to", &dir.path().join("plain"))]));
    assert!(plain.contains("is neither https nor this machine") && !dir.path().join("plain").exists(), "{plain}");
    let onto = refusal(&run(&["backup"], &[("--to", &dir.path().join("data"))]));
    assert!(onto.contains("this is a data directory"), "{onto}");

    let manifest = backups.join("backups").join(format!("{}.json", made["backup"].as_str().unwrap()));
    let good = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, good.replacen("\"logs\":", "\"logs\": ", 1)).unwrap();
    assert!(refused(&target).contains("the manifest is damaged: its SHA-256 is"), "{}", refused(&target));
    let rewrite = |change: &dyn Fn(&mut Value)| {
        use sha2::Digest;
        let mut value: Value = serde_json::from_str(good.lines().next().unwrap()).unwrap();
        change(&mut value);
        let text = value.to_string();
        let sum = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(&text));
        std::fs::write(&manifest, format!("{text}\n{sum}\n")).unwrap();
    };
    rewrite(&|value| value["backup"] = json!(2));
    assert!(refused(&target).contains("the manifest has form 2; this version reads form 1"));
    rewrite(&|value| value["storeFormat"] = json!(99));
    assert!(refused(&target).contains("has store format 99"));
    rewrite(&|value| value["files"][0]["path"] = json!("trees/../../x"));
    assert!(refused(&target).contains("is not a path of a store"));
    rewrite(&|value| value["position"] = json!(1));
    assert!(refused(&target).contains("is not what its manifest says"));
    std::fs::write(&manifest, &good).unwrap();

    let content = files_below(&backups.join("files")).into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let mut damaged = content.1.clone();
    damaged[7] ^= 1;
    std::fs::write(&content.0, &damaged).unwrap();
    let error = refused(&target);
    let name = content.0.file_name().unwrap().to_str().unwrap();
    assert!(error.contains("it is damaged: its SHA-256 is") && error.contains(&format!("the manifest says {name}")), "{error}");
    assert!(!target.exists() && dir.path().join("target").read_dir().unwrap().next().is_none(), "nothing is left");
    // A running server replaces it.
    let again = back_up(&server, &backups).await;
    assert!(again["sentFiles"].as_u64() >= Some(1));
    assert!(backups.join("damaged").join(name).exists());
    restore(&backups, &target);
    assert_undamaged(&target);
}

#[tokio::test]
async fn only_the_newest_backups_stay_and_each_of_them_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = filled(dir.path()).await;
    let (backups, url) = (dir.path().join("backups"), format!("http://{}", server.at));
    let mut names = Vec::new();
    for n in 0..4 {
        client.append("r5", &[text(n)]).await;
        let made = told(&run(&["backup", "--json", "--keep", "2", "--url", &url], &[("--to", &backups)]));
        names.push(made["backup"].as_str().unwrap().to_owned());
    }
    for (n, name) in names.iter().enumerate() {
        let restored =
            run(&["restore", "--backup", name], &[("--from", &backups), ("--data-dir", &dir.path().join(format!("at-{n}")))]);
        assert_eq!(restored.status.success(), n >= 2, "{n}: {}", String::from_utf8_lossy(&restored.stderr));
    }
}
