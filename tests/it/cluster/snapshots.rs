//! Snapshots: of two nodes that write at once, of a newer version, and what a crash leaves of one.

use super::eventually;
use crate::harness::{Client, Process, fact};
use crate::nats::Nats;
use async_nats::jetstream::object_store::ObjectMetadata;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures_util::TryStreamExt;
use proscenium::cluster::Snapshots;
use proscenium::log::commit::Orderer;
use proscenium::log::embedded::{EmbeddedStore, ReplicaDir, Sync};
use proscenium::log::journal::jetstream::{StreamClient, StreamConnection};
use proscenium::log::{Store, StoreError};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

/// The store of a server with 20 runs.
async fn store_with_runs(dir: &Path) -> Arc<EmbeddedStore> {
    let mut single = Process::start_in(dir);
    for number in 0..20 {
        Client::new(single.at).append(&format!("r{number}"), &[fact("run.started", json!({}))]).await;
    }
    single.terminate();
    assert!(single.wait().success());
    let (store, journal) = EmbeddedStore::open(&dir.join("data"), Sync::Never).unwrap();
    Orderer::open(Arc::new(store), Arc::new(journal)).await.unwrap().store().clone()
}

async fn connect(nats: &Nats) -> StreamClient {
    let client = StreamConnection { urls: nats.urls(), credentials: None };
    tokio::task::spawn_blocking(move || client.connect()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_snapshots_of_one_position_at_once_are_both_whole() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let store = store_with_runs(dir.path()).await;
    let applied = store.mark().applied;
    assert!(applied > 0);
    let client = connect(&nats).await;
    let snapshots = Snapshots::open(&client.context, "both", 1).await.unwrap();
    // Each has its first chunk before either goes on.
    let barrier = Arc::new(Barrier::new(2));
    let write = |node: &'static str| {
        let (snapshots, store, barrier) = (snapshots.clone(), store.clone(), barrier.clone());
        async move {
            let mut is_first = true;
            let export = move |write: &mut dyn FnMut(Bytes) -> bool| {
                store.export(&mut |chunk| {
                    let sent = write(chunk);
                    if std::mem::take(&mut is_first) {
                        barrier.wait();
                    }
                    sent
                })
            };
            snapshots.write(node, export).await
        }
    };
    let (one, other) = tokio::join!(write("a"), write("b"));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_in_the_form_of_a_newer_version_is_refused_by_name_and_leaves_the_store_as_it_was() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let store = store_with_runs(dir.path()).await;
    let client = connect(&nats).await;
    let snapshots = Snapshots::open(&client.context, "newer", 1).await.unwrap();
    let applied = store.mark().applied;
    snapshots.write("a", move |write| store.export(write)).await.unwrap();
    let (_, name) = snapshots.list().await.unwrap().pop().unwrap();
    let replica = tempfile::tempdir().unwrap();
    let open = || ReplicaDir::open(replica.path(), "newer").unwrap();
    drop(snapshots.restore(&name, open()).await.unwrap());
    // A newer version writes one with another form.
    let bucket = client.context.get_object_store("PROSCENIUM_newer_snapshots").await.unwrap();
    let newer = "snapshot-00000000000000000999-b";
    let description = Some("Proscenium 9.1.0".to_owned());
    let metadata = ObjectMetadata { name: newer.into(), description, ..ObjectMetadata::default() };
    bucket.put(metadata, &mut &b"PSS9 and what this version does not know"[..]).await.unwrap();
    let refused = snapshots.restore(newer, open()).await.err().expect("it is refused");
    assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
    let text = refused.to_string();
    for part in [newer, "PSS9", "Proscenium 9.1.0", "Upgrade this node"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(open().mark().map(|mark| mark.applied), Some(applied), "the store is as it was");
    drop(client);
}

/// The number of chunks of each upload.
async fn chunks(stream: &Stream) -> Vec<usize> {
    let subjects = stream.info_with_subjects("$O.PROSCENIUM_cut_snapshots.C.>").await.unwrap();
    let mut counts: Vec<_> = subjects.map_ok(|(_, count)| count).try_collect().await.unwrap();
    counts.sort_unstable();
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_leaves_of_a_snapshot_is_removed_and_an_upload_that_goes_on_elsewhere_is_not_harmed() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let store = store_with_runs(dir.path()).await;
    let client = connect(&nats).await;
    let snapshots = Snapshots::open(&client.context, "cut", 1).await.unwrap();
    let bucket = client.context.get_object_store("PROSCENIUM_cut_snapshots").await.unwrap();
    let stream = client.context.get_stream("OBJ_PROSCENIUM_cut_snapshots").await.unwrap();
    let (begun, later) = (Instant::now(), Duration::from_hours(1));
    // One process ends after its first chunk, and one goes on.
    let (end, held) = mpsc::channel::<()>();
    let cut = tokio::spawn({
        let snapshots = snapshots.clone();
        async move {
            let export = move |write: &mut dyn FnMut(Bytes) -> bool| {
                write(Bytes::from_static(b"PSS1 and what comes after the form"));
                held.recv().unwrap_or_default();
                Ok(None)
            };
            snapshots.write("a", export).await
        }
    });
    eventually("the first chunk is there", async || chunks(&stream).await == [1]).await;
    cut.abort();
    drop(end);
    let (go_on, held) = mpsc::channel::<()>();
    let going = tokio::spawn({
        let snapshots = snapshots.clone();
        async move {
            let export = move |write: &mut dyn FnMut(Bytes) -> bool| {
                store.export(&mut |chunk| {
                    let (some, rest) = (chunk.slice(..chunk.len() / 2), chunk.slice(chunk.len() / 2..));
                    let sent = write(some);
                    held.recv().unwrap();
                    let sent = sent && write(rest);
                    held.recv().unwrap();
                    sent
                })
            };
            snapshots.write("b", export).await
        }
    });
    eventually("both uploads have a chunk", async || chunks(&stream).await == [1, 1]).await;
    snapshots.remove_abandoned(begun).await.unwrap();
    go_on.send(()).unwrap();
    eventually("one goes on", async || chunks(&stream).await.first() == Some(&1) && chunks(&stream).await.last() > Some(&1))
        .await;
    assert_eq!(chunks(&stream).await.len(), 2);
    snapshots.remove_abandoned(begun + later).await.unwrap();
    assert_eq!(chunks(&stream).await.len(), 1, "what the crash left is gone");
    assert_eq!(snapshots.list().await.unwrap(), []);
    go_on.send(()).unwrap();
    let applied = going.await.unwrap().unwrap();
    let (_, name) = snapshots.list().await.unwrap().pop().unwrap();
    // A snapshot whose chunks are gone.
    let damaged = bucket.put("snapshot-00000000000000000999-d", &mut &b"a chunk"[..]).await.unwrap();
    stream.purge().filter(format!("$O.PROSCENIUM_cut_snapshots.C.{}", damaged.nuid)).await.unwrap();
    assert_eq!(snapshots.list().await.unwrap(), [(applied, name.clone())], "a snapshot without its chunks is none");
    snapshots.remove_abandoned(begun + later).await.unwrap();
    snapshots.remove_abandoned(begun + 2 * later).await.unwrap();
    let objects: Vec<_> = bucket.list().await.unwrap().map_ok(|object| object.name).try_collect().await.unwrap();
    assert_eq!(objects, std::slice::from_ref(&name));
    let replica = tempfile::tempdir().unwrap();
    let restored = snapshots.restore(&name, ReplicaDir::open(replica.path(), "cut").unwrap()).await.unwrap();
    assert_eq!(restored.mark().map(|mark| mark.applied), Some(applied));
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_fails_leaves_no_snapshot() {
    let nats = Nats::start(1);
    let client = connect(&nats).await;
    let snapshots = Snapshots::open(&client.context, "fails", 1).await.unwrap();
    let failing = snapshots.write("a", |write| {
        write(Bytes::from_static(b"PSS1 and what comes after the form"));
        Err(StoreError::Failed { doing: "reading a table", why: "the disk is broken".into() })
    });
    let error = failing.await.unwrap_err().to_string();
    assert!(error.contains("the disk is broken"), "{error}");
    assert_eq!(snapshots.list().await.unwrap(), []);
    drop(client);
}
