//! What nodes do without faults, and with one.

use super::{Cluster, eventually, is_empty_dir};
use crate::harness::{Client, Process, fact, to_ndjson, with_timeout};
use crate::nats::Nats;
use futures_util::{SinkExt, StreamExt};
use proscenium::environment::Environment;
use proscenium::record::signing::SigningKey;
use serde_json::{Value, json};
use std::time::Instant;
use tokio_tungstenite::tungstenite::Message;

fn text(number: u64) -> Value {
    fact("text.delta", json!({ "messageId": "m", "payload": { "text": format!("{number} ") } }))
}

fn cursor_of(receipt: &Value) -> String {
    format!("{}:{}", receipt["epoch"].as_str().unwrap(), receipt["lastSequence"].as_u64().unwrap() * 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_that_any_node_takes_is_read_on_every_node_with_the_same_cursor() {
    let nats = Nats::start(3);
    let cluster = Cluster::start(&nats, "agree", 3, &[]).await;
    for number in 0..30 {
        let receipt = cluster.client(number % 3).append("r", &[text(number as u64)]).await;
        // The next node may not have it yet, and waits until it has.
        let reader = cluster.client((number + 1) % 3);
        let after = cursor_of(&receipt);
        let page = reader.get(&format!("/v1/runs/r/events?after={after}")).await.ok();
        assert_eq!(page["events"], json!([]), "{page}");
        let last = cluster.client((number + 2) % 3).get(&format!("/v1/runs/r?at={after}")).await;
        assert!(last.status == 200 || last.status == 400, "{last:?}");
    }
    let first = cluster.client(0).read_events("r", "audience=internal", 7).await;
    assert!(first.len() >= 30);
    for index in 1..3 {
        eventually("the node has all of the run", async || {
            cluster.client(index).read_events("r", "audience=internal", 7).await == first
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_pushes_the_same_lists_and_takes_the_cursors_of_the_others() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "lists", 3, &["--cluster-allow-r1"]).await;
    let ask = |action: &str| fact("action.required", json!({"actionId": action, "payload": {"kind": "tool_approval"}}));
    let query = "/v1/lists/stream?attention=true&sessions=true";
    let (mut entries, mut cursor) = (crate::lists::Entries::new(), None);
    for number in 0..6 {
        let action = format!("a{number}");
        cluster.client(number % 3).append("r", &[ask(&action)]).await;
        let node = cluster.client((number + 1) % 3);
        let mut sse = node.open(crate::harness::Transport::Hyper, query, cursor.as_deref()).await;
        while !entries.contains_key(&("attention".to_owned(), format!("run/r/{action}"))) {
            let frame = sse.next_frame().await;
            cursor = frame.id.clone().or(cursor);
            crate::lists::apply(&mut entries, &frame.data);
        }
    }
    assert_eq!(entries.keys().filter(|(list, _)| list == "attention").count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_passes_every_kind_of_write_on_to_the_leader() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "writes", 2, &["--cluster-allow-r1"]).await;
    let follower = cluster.client(cluster.follower().await);
    // Streamed lines.
    let lines = to_ndjson(&(0..50).map(text).collect::<Vec<_>>());
    let receipt = follower.post_lines("/v1/runs/lines/facts", lines).await.ok();
    assert_eq!(receipt["accepted"], 50);
    // A body that is refused, in the leader's words.
    let refused = follower.post_facts("lines", &json!([{ "payload": {} }])).await;
    refused.problem(422, "no_type");
    // A control, its claim and its answer.
    follower.append("work", &[fact("run.started", json!({ "agentId": "a" }))]).await;
    let json = [("content-type", "application/json")];
    let control = json!({ "control": "interrupt" }).to_string();
    let sent = follower.post("/v1/runs/work/controls", &json, control).await;
    assert!(sent.status < 300, "{sent:?}");
    let claimed = follower.post("/v1/agents/a/controls/claim?wait=5", &json, "{}").await.ok();
    let first = &claimed["controls"][0];
    assert!(first["controlId"].is_string(), "{claimed}");
    let ack = json!({ "lease": first["lease"] }).to_string();
    let path = format!("/v1/controls/{}/ack", first["controlId"].as_str().unwrap());
    let acked = follower.post(&path, &json, ack).await;
    assert!(acked.status < 300, "{acked:?}");
    // A message of a WebSocket.
    let (mut socket, _) = crate::socket::connect(follower, &[]).await.unwrap();
    let publish = json!({ "op": "publish", "id": 1, "runId": "socket", "facts": [text(0)] });
    socket.send(Message::text(publish.to_string())).await.unwrap();
    let answer = with_timeout("the answer", socket.next()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!((answer["id"].as_u64(), answer["accepted"].as_u64()), (Some(1), Some(1)), "{answer}");
    // Settling and erasing.
    let settled = follower.post("/v1/runs/lines/settle", &json, "{}").await;
    assert!(settled.status < 300, "{settled:?}");
    let mut streams = Vec::new();
    for index in 0..2 {
        let mut stream = cluster.client(index).open_stream(crate::harness::Transport::Hyper, "work", "", None).await;
        assert_eq!(stream.next_frame().await.sequence(), 1);
        streams.push(stream);
    }
    assert_eq!(follower.delete("/v1/runs/work").await.status, 204);
    eventually("the erasure reaches the follower", async || follower.get("/v1/runs/work").await.status == 410).await;
    // Every node ends the streams of the run, and takes what begins it again.
    for mut stream in streams {
        let last = stream.read_all().await.pop().expect("the stream has an end");
        assert_eq!((last.kind(), &last.data["problem"]["code"]), ("Error", &json!("erased")), "{}", last.text);
    }
    follower.append("work", &[fact("run.started", json!({}))]).await;
    for index in 0..2 {
        eventually("the run has begun again", async || cluster.client(index).get("/v1/runs/work").await.status == 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_names_the_leader_and_the_nodes() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "names", 2, &["--cluster-allow-r1"]).await;
    eventually("both nodes are listed on both", async || {
        let mut leaders = Vec::new();
        for index in 0..2 {
            let view = cluster.client(index).get("/v1/cluster").await.ok();
            assert_eq!(view["name"], "names");
            let nodes = view["nodes"].as_array().unwrap();
            let roles = |role: &str| nodes.iter().filter(|node| node["role"] == role).count();
            if (roles("leader"), roles("follower")) != (1, 1) || !nodes.iter().any(|node| node["id"] == view["self"]) {
                return false;
            }
            leaders.push(view["leader"].clone());
        }
        leaders[0] == leaders[1] && leaders[0].is_string()
    })
    .await;
    let metrics = cluster.client(0).get("/metrics").await;
    assert!(String::from_utf8(metrics.body).unwrap().contains("proscenium_cluster_leader_info"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_and_nothing_that_it_acknowledged_is_lost() {
    let nats = Nats::start(3);
    let mut cluster = Cluster::start(&nats, "replace", 3, &[]).await;
    let leader = cluster.leader().await;
    cluster.client(leader).append("r", &(0..100).map(text).collect::<Vec<_>>()).await;
    cluster.nodes[leader].kill();
    let begun = Instant::now();
    let other = cluster.running()[0];
    eventually("another node leads", async || {
        let answer = cluster.client(other).post_facts("r", &json!([text(100)])).await;
        if answer.status != 200 {
            answer.problem(503, "no_leader");
        }
        answer.status == 200
    })
    .await;
    println!("take-over after a killed leader: {:?}", begun.elapsed());
    let all = cluster.client(other).get("/v1/runs/r/activities?audience=internal").await.ok();
    assert!(all.to_string().contains("99 100 "), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_a_single_server_becomes_a_cluster_with_the_same_cursors() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let mut single = Process::start_in(dir.path());
    let client = Client::new(single.at);
    for number in 0..20 {
        client.append("r", &[text(number)]).await;
    }
    let before = client.read_events("r", "audience=internal", 50).await;
    let page = client.get("/v1/runs/r/events?limit=10&audience=internal").await.ok();
    single.terminate();
    assert!(single.wait().success());
    let seed = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_proscenium"))
            .args(["cluster-seed", "--cluster", &nats.urls(), "--cluster-name", "moved", "--cluster-allow-r1", "--data-dir"])
            .arg(dir.path().join("data"))
            .output()
            .unwrap()
    };
    let seeded = seed();
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
    let again = seed();
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("choose another name"));
    let cluster = Cluster::start(&nats, "moved", 2, &["--cluster-allow-r1"]).await;
    for index in 0..2 {
        assert!(cluster.client(index).read_events("r", "audience=internal", 50).await == before);
    }
    let after = page["nextCursor"].as_str().unwrap();
    let rest = cluster.client(1).get(&format!("/v1/runs/r/events?limit=1000&audience=internal&after={after}")).await.ok();
    assert_eq!(rest["events"].as_array().unwrap().len(), before.len() - 10);
    cluster.client(0).append("r", &[text(20)]).await;
}

#[test]
fn a_data_directory_serves_one_purpose_and_an_unsafe_stream_is_refused_by_name() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let serve = |flags: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proscenium"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).args(flags).output().unwrap()
    };
    let (urls, key) = (nats.urls(), dir.path().join("key.pem"));
    let key = key.to_str().unwrap();
    let refused = serve(&["--cluster", &urls, "--cluster-name", "one"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("--signing-key"), "{error}");
    let of_cluster = ["--cluster", &urls, "--cluster-name", "one", "--signing-key", key];
    let refused = serve(&of_cluster);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("key.pem"), "each node would make a key of its own: {error}");
    std::fs::write(key, SigningKey::generate(Environment::SYSTEM).to_pem()).unwrap();
    let refused = serve(&of_cluster);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("3 replicas"), "{error}");
    // The directory is marked as a node's by now.
    let refused = serve(&[]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("a copy of the cluster one"), "{error}");
    let refused = serve(&["--cluster", &urls, "--cluster-name", "two", "--signing-key", key, "--cluster-allow-r1"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("a copy of the cluster one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_empty_directory_is_restored_from_a_snapshot_and_the_stream_is_shortened() {
    let nats = Nats::start(1);
    let mut cluster = Cluster::start(&nats, "snap", 2, &["--cluster-allow-r1", "--cluster-snapshot-commits", "100"]).await;
    for number in 0..150 {
        cluster.client(0).append("r", &[text(number)]).await;
    }
    let client = async_nats::connect(nats.urls()).await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("PROSCENIUM_snap").await.unwrap();
    eventually("the stream is shortened", async || stream.get_info().await.unwrap().state.first_sequence > 50).await;
    let expected = cluster.client(0).read_events("r", "audience=internal", 50).await;
    let follower = cluster.follower().await;
    cluster.nodes[follower].kill();
    std::fs::remove_dir_all(cluster.nodes[follower].data_dir()).unwrap();
    assert!(is_empty_dir(&cluster.nodes[follower].data_dir()));
    cluster.restart(follower).await;
    cluster.wait_ready().await;
    let restored = cluster.client(follower).read_events("r", "audience=internal", 50).await;
    assert!(restored == expected, "{} of {}", restored.len(), expected.len());
    cluster.client(follower).append("r", &[text(150)]).await;
}
