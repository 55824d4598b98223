//! Backups: a copy of the data directory, made as `docs/src/guides/operate.md` says, restores the server.

use crate::harness::{Client, Process, copy_directory, fact, with_timeout};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test]
async fn a_snapshot_holds_everything_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let (client, acknowledged) = (Client::new(server.at), Arc::new(AtomicU64::new(0)));
    let producing = tokio::spawn({
        let (client, acknowledged) = (client.clone(), acknowledged.clone());
        async move {
            loop {
                client.append("r", &[fact("text.delta", json!({"messageId": "m", "payload": {"text": "x".repeat(500)}}))]).await;
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    for n in 0..5u64 {
        let before = loop {
            match acknowledged.load(Ordering::SeqCst) {
                enough if enough >= 20 * (n + 1) => break enough,
                _ => tokio::task::yield_now().await,
            }
        };
        // A file system snapshot has all files as they are at one moment.
        server.signal("STOP");
        let place = dir.path().join(format!("copy-{n}"));
        copy_directory(&dir.path().join("data"), &place.join("data"));
        server.signal("CONT");
        let restored = Process::start_in(&place);
        let run = Client::new(restored.at).get("/v1/runs/r").await.ok();
        assert!(run["lastSequence"].as_u64().unwrap() >= before, "{before}: {run}");
        let events = Client::new(restored.at).read_events("r", "", 1000).await;
        assert_eq!(events.len() as u64, run["lastSequence"].as_u64().unwrap());
    }
    producing.abort();
}

#[tokio::test]
async fn a_copy_of_a_stopped_server_s_directory_restores_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    client.append("r", &[fact("run.started", json!({"sessionId": "s"})), fact("run.finished", json!({}))]).await;
    let before = client.get("/v1/runs/r").await.ok();
    server.terminate();
    assert!(with_timeout("the server's stop", async { server.wait() }).await.success());
    let place = dir.path().join("elsewhere");
    copy_directory(&dir.path().join("data"), &place.join("data"));
    let restored = Process::start_in(&place);
    assert_eq!(Client::new(restored.at).get("/v1/runs/r").await.ok(), before);
}
