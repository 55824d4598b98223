//! Snapshots of two nodes that write at once.

use crate::harness::{Client, Process, fact};
use crate::nats::Nats;
use proscenium::cluster::Snapshots;
use proscenium::log::Store;
use proscenium::log::commit::Orderer;
use proscenium::log::embedded::{EmbeddedStore, ReplicaDir, Sync};
use proscenium::log::journal::jetstream::StreamConnection;
use serde_json::json;
use std::sync::{Arc, Barrier};

#[tokio::test(flavor = "multi_thread")]
async fn two_snapshots_of_one_position_at_once_are_both_whole() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let mut single = Process::start_in(dir.path());
    for number in 0..20 {
        Client::new(single.at).append(&format!("r{number}"), &[fact("run.started", json!({}))]).await;
    }
    single.terminate();
    assert!(single.wait().success());
    let (store, journal) = EmbeddedStore::open(&dir.path().join("data"), Sync::Never).unwrap();
    let store = Orderer::open(Arc::new(store), Arc::new(journal)).await.unwrap().store().clone();
    let applied = store.mark().applied;
    assert!(applied > 0);
    let client = StreamConnection { urls: nats.urls(), credentials: None };
    let client = tokio::task::spawn_blocking(move || client.connect()).await.unwrap().unwrap();
    let snapshots = Snapshots::open(&client.context, "both", 1).await.unwrap();
    // Each has its first chunk before either goes on.
    let barrier = Arc::new(Barrier::new(2));
    let write = |node: &'static str, other: &str| {
        let (snapshots, store, barrier, others) = (snapshots.clone(), store.clone(), barrier.clone(), [other.to_owned()]);
        async move {
            let mut is_first = true;
            let export = move |write: &mut dyn FnMut(bytes::Bytes) -> bool| {
                store.export(&mut |chunk| {
                    let sent = write(chunk);
                    if std::mem::take(&mut is_first) {
                        barrier.wait();
                    }
                    sent
                })
            };
            snapshots.write(node, &others, export).await
        }
    };
    let (one, other) = tokio::join!(write("a", "b"), write("b", "a"));
    assert_eq!((one.unwrap(), other.unwrap()), (applied, applied));
    let listed = snapshots.list().await.unwrap();
    assert_eq!(listed.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [applied, applied]);
    for (_, name) in listed {
        let dir = tempfile::tempdir().unwrap();
        let restored = snapshots.restore(&name, ReplicaDir::open(dir.path(), "both").unwrap()).await.unwrap();
        assert_eq!(restored.mark().unwrap().applied, applied, "{name}");
    }
    // The runtime of a connection may not end inside another one.
    drop(client);
}
