//! The record: what an export with proofs shows about the rows of a run, and what it does not tell.

use crate::cli::{Running, proscenium};
use crate::harness::{Client, environment, fact, is_full, serve_until, storage_in, with_timeout};
use crate::retention::start_with_stopped_clock;
use crate::supervision::{loaded, opened, run, set};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::embedded::Sync;
use proscenium::log::{Storage, Store};
use proscenium::record::signing::PublicKey;
use proscenium::record::verify::{Known, Verified, VerifyError, verify};
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use tokio::sync::oneshot;

fn server(store: Storage) -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap()
}

async fn start() -> Client {
    serve_until(server(Storage::memory()), std::future::pending()).await.0
}

/// Runs `work` with a server on a data directory, and stops the server.
async fn with_server_in<T>(data: &Path, work: impl AsyncFnOnce(Client) -> T) -> T {
    let (stop, stopped) = oneshot::channel::<()>();
    let server = server(storage_in(data, Sync::Never).await);
    let (client, serving) = serve_until(server, async move { drop(stopped.await) }).await;
    let done = work(client).await;
    drop(stop);
    with_timeout("the server's stop", serving).await.unwrap();
    done
}

pub async fn export(client: &Client, run: &str, audience: &str) -> Vec<u8> {
    let answer = client.get(&format!("/v1/runs/{run}/export?proof=true&audience={audience}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

async fn keys(client: &Client) -> Known {
    let keys = PublicKey::read_all(&client.get("/v1/keys").await.body).unwrap();
    Known { keys: Some(keys), head: None }
}

pub fn verified(export: &[u8], known: &Known) -> Verified {
    verify(export, known).unwrap_or_else(|error| panic!("{error}:\n{}", String::from_utf8_lossy(export)))
}

/// The row and the reason of an export that does not fit.
fn misfit(export: &[u8], known: &Known) -> (Option<u64>, String) {
    match verify(export, known) {
        Err(VerifyError::Misfit { sequence, why, .. }) => (sequence, why),
        other => panic!("{other:?}"),
    }
}

fn note(text: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": text}}))
}

/// A fact that users do not see.
fn hidden(text: &str) -> Value {
    fact("diagnostic.warning", json!({"audience": "internal", "payload": {"message": text}}))
}

fn asks(action: &str) -> Value {
    fact("action.required", json!({"actionId": action, "payload": {"kind": "tool_approval", "message": "Really?"}}))
}

/// Facts of which users see some as they were written, some in another form, and some not at all.
fn mixed() -> Vec<Value> {
    vec![
        fact("run.started", json!({"payload": {"title": "A \u{2028} title"}})),
        note("Hello"),
        hidden("the disk is slow"),
        fact("tool.started", json!({"toolCallId": "c", "audience": "internal", "payload": {"toolName": "dig"}})),
        fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}})),
        fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved"}})),
        note(" and bye"),
        fact("run.finished", json!({})),
    ]
}

fn lines(export: &[u8]) -> Vec<&[u8]> {
    export.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The lines of each row: its proof and its envelope.
fn rows(export: &[u8]) -> Vec<Vec<u8>> {
    let mut rows = Vec::<Vec<u8>>::new();
    for line in lines(export) {
        match line.starts_with(b"{\"proof\":") {
            true => rows.push(line.to_vec()),
            false => rows.last_mut().unwrap().extend_from_slice(line),
        }
    }
    rows
}

#[tokio::test]
async fn the_own_log_of_a_session_is_exported_and_verified_as_a_run_is() {
    let client = start().await;
    client.append("r", &[fact("run.started", json!({"sessionId": "s"}))]).await;
    client.get("/v1/sessions/never/export").await.problem(404, "no_such_session");
    let none = client.get("/v1/sessions/s/export").await.problem(404, "no_such_session");
    assert_eq!(none["detail"], "Session s has no log of its own yet. Its runs have exports.");
    for title in ["First", "Second"] {
        client.patch("/v1/sessions/s", &json!({"title": title})).await.ok();
    }
    let plain = client.get("/v1/sessions/s/export?audience=internal").await.body;
    assert_eq!(lines(&plain).len(), 2);
    let (known, proved) = (keys(&client).await, client.get("/v1/sessions/s/export?audience=internal&proof=true").await.body);
    let Verified { run_id, session_id, checked_in_text, .. } = verified(&proved, &known);
    assert_eq!((run_id, session_id.as_deref(), checked_in_text), (None, Some("s"), 2));
    let text = String::from_utf8(proved).unwrap();
    assert_eq!(misfit(text.replace("First", "Worst").as_bytes(), &known).0, Some(1));
    let of_run = text.replacen("\"sessionId\":\"s\"", "\"runId\":\"s\"", 1);
    assert!(verify(of_run.as_bytes(), &known).is_err(), "another log of the same name");
}

#[tokio::test]
async fn an_export_with_proofs_is_verified_for_each_audience() {
    let client = start().await;
    client.append("r", &mixed()).await;
    let known = keys(&client).await;
    for (audience, text, leaf) in [("internal", 8, 0), ("dashboard", 5, 3), ("user", 5, 3)] {
        let plain = client.export("r", &format!("audience={audience}")).await;
        let export = export(&client, "r", audience).await;
        let shown: Vec<Value> = lines(&export)
            .iter()
            .map(|line| serde_json::from_slice::<Value>(line).unwrap())
            .filter(|line| line.get("proof").is_none())
            .collect();
        assert_eq!(shown, plain, "{audience}: the envelopes are those of an export without proofs");
        let verified = verified(&export, &known);
        assert_eq!((verified.checked_in_text, verified.checked_by_leaf), (text, leaf), "{audience}");
        assert_eq!((verified.outside_of_chain, verified.removed), (0, 0), "{audience}");
        assert!(verified.signatures_checked);
        assert_eq!(verified.head.unwrap().sequence, 8);
    }
}

#[tokio::test]
async fn large_and_small_deliveries_go_on_with_one_chain() {
    let client = start().await;
    client.append("r", &[fact("run.started", json!({}))]).await;
    let mut rows = 1;
    for facts in [2000, 1, 1500, 300] {
        let text = "a line of a long answer ".repeat(12);
        let fact = |n: u64| if n % 100 == 7 { asks(&format!("a{}", rows + n)) } else { note(&text) };
        let delivery: Vec<Value> = (0..facts).map(fact).collect();
        client.append("r", &delivery).await;
        rows += facts;
    }
    let verified = verified(&export(&client, "r", "internal").await, &keys(&client).await);
    assert_eq!((verified.checked_in_text, verified.outside_of_chain), (rows, 0));
    assert_eq!(verified.head.unwrap().sequence, rows);
}

#[tokio::test]
async fn a_changed_byte_at_any_place_is_named() {
    let client = start().await;
    client.append("r", &mixed()).await;
    let known = keys(&client).await;
    for audience in ["internal", "user"] {
        let export = export(&client, "r", audience).await;
        let line_of: Vec<u64> =
            lines(&export).iter().zip(1..).flat_map(|(line, number)| std::iter::repeat_n(number, line.len())).collect();
        for at in 0..export.len() {
            let flips = [1, 4, 32, 128];
            for flip in if is_full() { &flips[..] } else { &flips[at % 4..][..1] } {
                let mut changed = export.clone();
                changed[at] ^= flip;
                let line = match verify(&changed[..], &known) {
                    Err(VerifyError::Misfit { line, .. }) => line,
                    Err(VerifyError::NoProof(_)) if line_of[at] == 1 => 1,
                    other => panic!("byte {at} of {}: {other:?}", String::from_utf8_lossy(&export)),
                };
                // The envelope is reported with its proof. The first and the last line are about all others.
                let near = line.abs_diff(line_of[at]) <= 1;
                let of_all = line_of[at] == 1 || line == *line_of.last().unwrap();
                assert!(near || of_all, "byte {at} in line {} is reported in line {line}", line_of[at]);
            }
        }
    }
}

#[tokio::test]
async fn a_row_that_is_cut_out_added_swapped_or_changed_is_named() {
    let client = start().await;
    client.append("r", &mixed()).await;
    client.append("s", &mixed()).await;
    let (whole, other) = (export(&client, "r", "internal").await, export(&client, "s", "internal").await);
    let known = keys(&client).await;
    let (rows_of_run, of_other) = (rows(&whole), rows(&other));
    // Row n is group n: the first group is the first line.
    for n in 1..=8 {
        let mut cut = rows_of_run.clone();
        cut.remove(n);
        assert_eq!(misfit(&cut.concat(), &known).0, Some(n as u64), "row {n} was cut out");
        let mut added = rows_of_run.clone();
        added.insert(n, rows_of_run[n].clone());
        assert_eq!(misfit(&added.concat(), &known).0, Some(n as u64), "row {n} was added");
        let mut taken = rows_of_run.clone();
        taken[n] = of_other[n].clone();
        assert_eq!(misfit(&taken.concat(), &known).0, Some(n as u64), "row {n} of another run");
        let mut envelope_only = rows_of_run.clone();
        envelope_only[n] = lines(&rows_of_run[n])[0].to_vec();
        assert_eq!(misfit(&envelope_only.concat(), &known).0, Some(n as u64), "the envelope of row {n} was cut out");
        if n < 8 {
            let mut swapped = rows_of_run.clone();
            swapped.swap(n, n + 1);
            assert_eq!(misfit(&swapped.concat(), &known).0, Some(n as u64), "rows {n} and {} were swapped", n + 1);
            let mut envelopes = rows_of_run.clone();
            let of = |n: usize, m: usize| [lines(&rows_of_run[n])[0], lines(&rows_of_run[m])[1]].concat();
            (envelopes[n], envelopes[n + 1]) = (of(n, n + 1), of(n + 1, n));
            assert_eq!(misfit(&envelopes.concat(), &known).0, Some(n as u64), "the envelopes of {n} and {} were swapped", n + 1);
        }
    }
    // Cut at any byte.
    for end in 0..whole.len() {
        assert!(verify(&whole[..end], &known).is_err(), "cut at {end}");
    }
    let more = [&whole[..], &rows_of_run[8]].concat();
    assert!(misfit(&more, &known).1.contains("added after"), "lines after the last one");
}

#[tokio::test]
async fn a_file_that_fits_in_itself_is_refused_by_its_signature() {
    let (server, forger) = (start().await, start().await);
    forger.append("r", &mixed()).await;
    let forged = export(&forger, "r", "internal").await;
    let without_key = verified(&forged, &Known::default());
    assert!(!without_key.signatures_checked);
    let (sequence, why) = misfit(&forged, &keys(&server).await);
    assert_eq!(sequence, None);
    assert!(why.contains("signed with the key") && why.contains("--key"), "{why}");
}

#[tokio::test]
async fn a_head_that_was_kept_shows_whether_earlier_rows_are_still_the_same() {
    let client = start().await;
    client.append("r", &mixed()).await;
    let mut known = keys(&client).await;
    known.head = verified(&export(&client, "r", "user").await, &known).head;
    client.append("r", &[note("more")]).await;
    assert!(verified(&export(&client, "r", "internal").await, &known).kept_head_checked);
    // The same run, written anew.
    client.delete("/v1/runs/r").await;
    client.append("r", &mixed()).await;
    let (_, why) = misfit(&export(&client, "r", "internal").await, &known);
    assert!(why.contains("head that was kept"), "{why}");
}

#[tokio::test]
async fn an_export_confirms_no_guess_about_hidden_text() {
    // Times are not what the exports are compared by.
    let (client, _) = start_with_stopped_clock().await;
    let run = |secret: &str| {
        let mut facts = mixed();
        facts[2] = hidden(secret);
        facts
    };
    for (name, secret) in [("r1", "yes"), ("r2", "no!"), ("r3", "yes")] {
        client.append(name, &run(secret)).await;
    }
    // What is left of an export without what is random: hashes, keys, times and ids.
    let shape = |export: &[u8], run: &str| {
        let mut text = String::from_utf8(export.to_vec()).unwrap().replace(&format!("\"{run}\""), "\"r\"");
        let random = [64, 128].map(|digits| (digits, "#"));
        for (digits, mark) in random {
            let mut rest = std::mem::take(&mut text);
            while let Some(at) = find_digits(&rest, digits) {
                text += &rest[..at];
                text += mark;
                rest = rest.split_off(at + digits);
            }
            text += &rest;
        }
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines
            .into_iter()
            .map(|mut line| {
                for member in ["eventId", "receivedAt", "timestamp"] {
                    line.as_object_mut().unwrap().remove(member);
                }
                for of in ["begin", "end"] {
                    if let Some(proof) = line["proof"].get_mut(of).and_then(Value::as_object_mut) {
                        proof.retain(|member, _| !["epoch", "head", "kid", "signature"].contains(&member.as_str()));
                    }
                }
                if line.get("proof") == Some(&Value::Null) {
                    line.as_object_mut().unwrap().remove("proof");
                }
                line
            })
            .collect::<Vec<_>>()
    };
    let exports = [export(&client, "r1", "user").await, export(&client, "r2", "user").await, export(&client, "r3", "user").await];
    let shapes: Vec<_> = exports.iter().zip(["r1", "r2", "r3"]).map(|(export, run)| shape(export, run)).collect();
    assert_eq!(shapes[0], shapes[1], "two runs that differ in hidden text");
    // The same hidden text in two logs has two leaves: nothing can be compared across logs.
    let leaf = |export: &[u8]| -> Value {
        let row: Value = serde_json::from_slice(&rows(export)[3]).unwrap();
        assert_eq!(row["proof"]["row"]["key"], Value::Null, "a hidden row has no key");
        row["proof"]["row"]["leaf"].clone()
    };
    assert_ne!(leaf(&exports[0]), leaf(&exports[2]));
}

/// Finds a run of exactly so many hexadecimal digits.
fn find_digits(text: &str, count: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if length == count {
            return Some(at);
        }
        at += length.max(1);
    }
    None
}

#[tokio::test]
async fn a_restart_goes_on_with_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let first = with_server_in(dir.path(), async |client| {
        client.append("r", &mixed()).await;
        verified(&export(&client, "r", "internal").await, &keys(&client).await).head.unwrap()
    })
    .await;
    with_server_in(dir.path(), async |client| {
        client.append("r", &[note("more")]).await;
        let known = Known { head: Some(first.clone()), keys: None };
        let verified = verified(&export(&client, "r", "internal").await, &known);
        assert_eq!((verified.checked_in_text, verified.outside_of_chain), (9, 0));
        assert!(verified.kept_head_checked, "row 8 has the same value as before the restart");
    })
    .await;
}

#[tokio::test]
async fn a_chain_begins_anew_after_rows_of_a_version_without_chains() {
    let dir = tempfile::tempdir().unwrap();
    let before = with_server_in(dir.path(), async |client| {
        client.append("r", &mixed()).await;
        let store = verified(&export(&client, "r", "internal").await, &keys(&client).await);
        store.head.unwrap()
    })
    .await;
    // Such a version leaves the head where it was.
    let store = opened(dir.path());
    let head = loaded(&store, "r").await.state.into_iter().find(|(key, _)| &**key == b"h").unwrap().1;
    drop(store);
    with_server_in(dir.path(), async |client| drop(client.append("r", &[note("more")]).await)).await;
    let store = opened(dir.path());
    set(&store, "r", b"h", &head).await;
    drop(store);
    with_server_in(dir.path(), async |client| {
        let known = keys(&client).await;
        let behind = verified(&export(&client, "r", "internal").await, &known);
        assert_eq!((behind.checked_in_text, behind.outside_of_chain), (8, 1), "the head is behind the log");
        assert_eq!(behind.head.unwrap().chain, before.chain);
        client.append("r", &[note("and more")]).await;
        let anew = verified(&export(&client, "r", "internal").await, &known);
        assert_eq!((anew.checked_in_text, anew.outside_of_chain), (1, 9));
    })
    .await;
}

#[tokio::test]
async fn a_compacted_run_verifies_across_its_holes() {
    let (client, compactor) = start_with_stopped_clock().await;
    let mut facts = mixed();
    for n in 0..600 {
        facts.insert(3, hidden(&format!("noise {n}")));
        if n % 7 == 0 {
            facts.insert(3, note("x"));
        }
    }
    client.append("r", &facts).await;
    let known = keys(&client).await;
    let before = verified(&export(&client, "r", "internal").await, &known);
    assert!(compactor.run_once().await.unwrap().rows > 500);
    let after = verified(&export(&client, "r", "internal").await, &known);
    assert!(after.removed > 500 && after.outside_of_chain == 0, "{after:?}");
    assert_eq!(after.checked_in_text + after.removed, before.checked_in_text);
    let (head_before, head_after) = (before.head.unwrap(), after.head.unwrap());
    assert_eq!((head_after.sequence, &head_after.chain), (head_before.sequence, &head_before.chain));
    // Again, with holes that grow.
    client.append("r", &[hidden("late"), hidden("later"), fact("run.finished", json!({}))]).await;
    compactor.run_once().await.unwrap();
    let again = verified(&export(&client, "r", "user").await, &known);
    assert!(again.removed >= after.removed && again.outside_of_chain == 0, "{again:?}");
}

#[tokio::test]
async fn compaction_keeps_the_rows_of_actions_and_of_their_calls() {
    let (client, compactor) = start_with_stopped_clock().await;
    let ephemeral = |mut fact: Value| {
        fact["persistence"] = "ephemeral_live".into();
        fact
    };
    let kept = [
        ephemeral(fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "dig"}}))),
        ephemeral(fact("tool.args", json!({"toolCallId": "c", "payload": {"inputText": "{\"a\":"}}))),
        ephemeral(fact("tool.args", json!({"toolCallId": "c", "payload": {"input": {"a": 1}}}))),
        ephemeral(asks("a")),
        ephemeral(fact("action.required", json!({"actionId": "b", "toolCallId": "c", "payload": {"kind": "tool_approval"}}))),
        ephemeral(fact("action.required", json!({"actionId": "b", "toolCallId": "c", "payload": {"kind": "input"}}))),
        ephemeral(fact("action.resolved", json!({"actionId": "b", "payload": {"outcome": "approved"}}))),
        ephemeral(fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "rejected"}}))),
        ephemeral(fact("tool.progress", json!({"toolCallId": "c", "payload": {"message": "half"}}))),
        ephemeral(fact("tool.progress", json!({"toolCallId": "c", "payload": {"message": "more"}}))),
        ephemeral(fact("tool.completed", json!({"toolCallId": "c", "payload": {"output": "ok"}}))),
    ];
    let mut facts = vec![fact("run.started", json!({}))];
    let other = |n| ephemeral(fact("tool.progress", json!({"toolCallId": "d", "payload": {"message": format!("{n}")}})));
    facts.extend(kept.iter().zip(0..).flat_map(|(fact, n)| [fact.clone(), other(n)]));
    facts.push(fact("run.finished", json!({})));
    client.append("r", &facts).await;
    let types = async || {
        let events = client.export("r", "audience=internal").await;
        let kept = events.iter().filter(|event| event["toolCallId"] != "d");
        let types = kept.map(|event| event["type"].as_str().unwrap().to_owned());
        types.filter(|of| of.starts_with("action.") || of.starts_with("tool.")).collect::<Vec<_>>()
    };
    let (before, decisions) = (types().await, client.get("/v1/runs/r/decisions?audience=internal").await.ok());
    assert!(compactor.run_once().await.unwrap().rows > 0);
    assert_eq!(types().await, before);
    assert_eq!(client.get("/v1/runs/r/decisions?audience=internal").await.ok(), decisions);
}

#[tokio::test]
async fn the_key_of_an_erased_log_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    with_server_in(dir.path(), async |client| {
        client.append("r", &mixed()).await;
        let row = |export: &[u8]| serde_json::from_slice::<Value>(lines(export)[1]).unwrap()["proof"]["row"].clone();
        let before = row(&export(&client, "r", "internal").await);
        client.delete("/v1/runs/r").await;
        client.append("r", &mixed()).await;
        let export = export(&client, "r", "internal").await;
        let after = row(&export);
        assert_eq!(verified(&export, &keys(&client).await).checked_in_text, 8);
        assert_ne!(before["key"], after["key"], "the new log has another key");
        assert_ne!(before["chain"], after["chain"]);
        client.delete("/v1/runs/r").await;
    })
    .await;
    assert!(opened(dir.path()).load(&run("r")).unwrap().is_none(), "the key was in the state of the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_makes_its_signing_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data").join("signing-key.pem");
    let flags = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
    let serve = || Running::start_logging(proscenium(&flags).arg(dir.path().join("data")), Stdio::null());
    let kid = async |server: &Running| {
        let keys: Value = reqwest::get(format!("{}/v1/keys", server.url)).await.unwrap().json().await.unwrap();
        keys["keys"][0]["kid"].as_str().unwrap().to_owned()
    };
    let mut server = serve();
    let first = kid(&server).await;
    server.terminate();
    assert_eq!(server.exit_code(), Some(0));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = serve();
    assert_eq!(kid(&server).await, first, "the key is that of the first start");
    drop(server);
    std::fs::write(&file, "no key").unwrap();
    let refused = proscenium(&flags).arg(dir.path().join("data")).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("signing-key.pem") && error.contains("openssl genpkey"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_print_the_record_and_tell_by_their_exit_codes_whether_it_fits() {
    let (server, dir) = (Running::serve(), tempfile::tempdir().unwrap());
    let facts = [
        fact("run.started", json!({"sessionId": "s"})),
        asks("a"),
        fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "rejected"}})),
    ];
    server.post("r", "agentui", "application/json", json!(facts).to_string()).await;
    let run = |arguments: &[&str]| {
        let output = proscenium(arguments).current_dir(dir.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let url = &*server.url;
    assert_eq!(run(&["export", "r", "--proof", "--url", url, "-o", "r.ndjson"]).0, Some(0));
    let (code, json, _) = run(&["verify", "r.ndjson", "--key", url, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["verified"], &json["export"]["checkedInText"]), (Some(0), &json!(true), &json!(3)), "{json}");
    assert_eq!(json["export"]["signaturesChecked"], true);
    let (code, text, _) = run(&["verify", "r.ndjson"]);
    assert!(code == Some(0) && text.contains("3 rows checked in text") && text.contains("pass --key"), "{text}");

    let whole = std::fs::read_to_string(dir.path().join("r.ndjson")).unwrap();
    std::fs::write(dir.path().join("forged.ndjson"), whole.replace("rejected", "approved")).unwrap();
    let (code, json, _) = run(&["verify", "forged.ndjson", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["verified"], &json["sequence"]), (Some(1), &json!(false), &json!(3)), "{json}");

    // What is no export with proofs, no file, and no key.
    assert_eq!(run(&["export", "r", "--url", url, "-o", "plain.ndjson"]).0, Some(0));
    let (code, _, error) = run(&["verify", "plain.ndjson"]);
    assert!(code == Some(2) && error.contains("--proof"), "{error}");
    let (code, _, error) = run(&["verify", "missing.ndjson"]);
    assert!(code == Some(2) && error.contains("missing.ndjson"), "{error}");
    let (code, _, error) = run(&["verify", "r.ndjson", "--key", "r.ndjson"]);
    assert!(code == Some(2) && error.contains("no public Ed25519 key"), "{error}");

    // An import and a check pass over the proofs.
    assert_eq!(run(&["import", "r.ndjson", "--run", "copy", "--url", url]).0, Some(0));
    let copy: Value = reqwest::get(format!("{url}/v1/runs/copy?audience=internal")).await.unwrap().json().await.unwrap();
    assert_eq!(copy["counts"]["events"], 3);
    let (code, text, error) = run(&["check", "r.ndjson"]);
    assert_eq!(code, Some(0), "{text}{error}");

    for of in [&["r"][..], &["--session", "s"]] {
        let (code, text, _) = run(&[&["decisions"], of, &["--url", url]].concat());
        assert!(code == Some(0) && text.starts_with("Really?\n  action   a"), "{text}");
        assert!(text.contains("decided  rejected, by the runtime"), "{text}");
        let (_, json, _) = run(&[&["decisions"], of, &["--url", url, "--json"]].concat());
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["decisions"][0]["outcome"], "rejected");
    }
    assert!(run(&["decisions", "copy", "--url", url]).1.contains("Really?"));
    assert!(run(&["decisions", "none", "--url", url]).2.contains("no_such_run"));
}
