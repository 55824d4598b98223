//! Erasure in a cluster: it goes on with the next leader, and its bytes leave every node, the stream and the snapshots.

use super::{Cluster, eventually};
use crate::harness::{Client, LITERAL_MARKER as MARKER, Transport, fact, has_literal_marker};
use crate::nats::Nats;
use async_nats::jetstream::Context;
use futures_util::TryStreamExt;
use proscenium::log::journal::jetstream::StreamConnection;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn has_marker(dir: &Path) -> bool {
    // A server at work removes files and directories.
    dir.read_dir().into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() { has_marker(&path) } else { std::fs::read(&path).is_ok_and(|bytes| has_literal_marker(&bytes)) }
    })
}

/// Whether a message of any stream has the marker: the commits, and the chunks of snapshots.
async fn streams_have_marker(context: &Context) -> bool {
    let streams: Vec<_> = context.streams().try_collect().await.unwrap();
    for info in streams {
        let stream = context.get_stream(&info.config.name).await.unwrap();
        for sequence in info.state.first_sequence..=info.state.last_sequence {
            if stream.get_raw_message(sequence).await.is_ok_and(|message| has_literal_marker(&message.payload)) {
                return true;
            }
        }
    }
    false
}

async fn waits(client: &Client) -> bool {
    let text = client.get("/metrics").await;
    !String::from_utf8_lossy(&text.body).contains("proscenium_erased_bytes 0\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_survives_its_leader_and_its_bytes_leave_every_node_the_stream_and_the_snapshots() {
    let nats = Nats::start(3);
    let connection = StreamConnection { urls: nats.urls(), credentials: None };
    let connected = tokio::task::spawn_blocking(move || connection.connect()).await.unwrap().unwrap();
    let flags = ["--erase-within", "4", "--cluster-snapshot-commits", "100"];
    let mut cluster = Cluster::start(&nats, "erase", 3, &flags).await;
    let follower = cluster.follower().await;
    for n in 0..120 {
        let says = |words: &str| json!([fact("text.final", json!({ "messageId": "m", "payload": { "text": words } }))]);
        for (run, session, words) in [("r", "s", MARKER), ("kept", "t", "stays")] {
            let path = format!("/v1/runs/{run}{n}/facts?sessionId={session}");
            let headers = [("content-type", "application/json")];
            cluster.client(follower).post(&path, &headers, says(words).to_string()).await.ok();
        }
    }
    assert!(streams_have_marker(&connected.context).await);
    let leader = cluster.leader().await;
    let mut streams = Vec::new();
    for node in cluster.running().into_iter().filter(|node| *node != leader) {
        for path in ["/v1/sessions/s/stream", "/v1/stream?runs=r7,kept7"] {
            let mut stream = cluster.client(node).open(Transport::Raw, path, None).await;
            while stream.next_frame().await.kind() != "Hydrated" {}
            streams.push((format!("node {node} {path}"), stream));
        }
    }
    let erasing = {
        let client = cluster.client(follower).clone();
        tokio::spawn(async move { client.delete("/v1/sessions/s").await.status })
    };
    tokio::time::sleep(Duration::from_millis(60)).await;
    cluster.nodes[leader].kill();
    assert!([204, 503].contains(&erasing.await.unwrap()));
    cluster.wait_ready().await;
    // The client repeats its request until it knows.
    eventually("an answer", async || [204, 410].contains(&cluster.client(follower).delete("/v1/sessions/s").await.status)).await;
    // One of these nodes leads now, and the other one follows.
    for (name, stream) in &mut streams {
        let last = stream.read_all().await.pop().expect("the stream has a frame");
        assert_eq!((last.kind(), &last.data["problem"]["code"]), ("Error", &json!("erased")), "{name}: {}", last.text);
    }
    cluster.restart(leader).await;
    cluster.wait_ready().await;
    for index in cluster.running() {
        let client = cluster.client(index);
        eventually("the node to follow", async || client.get("/v1/sessions/s").await.status == 410).await;
        client.get("/v1/runs/r7").await.problem(410, "erased");
        let runs = client.get("/v1/runs").await.ok();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 120, "node {index}");
    }
    for index in cluster.running() {
        // Nothing waits in between, too, while a node still learns of erased runs.
        let is_gone = async || !waits(cluster.client(index)).await && !has_marker(&cluster.nodes[index].data_dir());
        eventually("the bytes have left the files of the node", is_gone).await;
    }
    assert!(!streams_have_marker(&connected.context).await);
    let late = json!([fact("run.started", json!({}))]).to_string();
    let headers = [("content-type", "application/json")];
    cluster.client(follower).post("/v1/runs/r7/facts", &headers, late).await.problem(410, "erased");
    // The runtime of a connection may not end inside another one.
    drop(connected);
}
