//! Renames, the archive and marks in a cluster: any node takes them, and a change of the leader keeps them.

use super::{Cluster, eventually};
use crate::auth::{SECRET, admin};
use crate::harness::{Client, fact};
use crate::nats::Nats;
use serde_json::{Value, json};

async fn line(client: &Client) -> Value {
    let page = client.get("/v1/sessions?archived=all").await.ok();
    page["sessions"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_do_to_a_session_by_any_node_shows_on_all_and_outlives_the_leader() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--cluster-allow-r1", "--auth-key", key.to_str().unwrap()];
    let mut cluster = Cluster::start_with(&nats, "threads", 3, &flags, true, Some(&admin())).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    cluster.client(leader).append("r", &[fact("run.started", json!({ "sessionId": "s" }))]).await;
    let by_follower = cluster.client(follower);
    let renamed = by_follower.patch("/v1/sessions/s", &json!({ "title": "Mine", "archived": true })).await.ok();
    assert_eq!((&renamed["title"], &renamed["archived"]), (&json!("Mine"), &json!(true)));
    by_follower.put("/v1/sessions/s/marks", &json!({ "pinned": true })).await.ok();
    let is_so = |line: &Value| line["title"] == "Mine" && line["archived"] == true && line["pinned"] == true;
    for node in cluster.running() {
        eventually("the node has the changes", async || is_so(&line(cluster.client(node)).await)).await;
    }
    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    for node in cluster.running() {
        assert!(is_so(&line(cluster.client(node)).await));
    }
    let by_follower = cluster.client(cluster.follower().await);
    assert_eq!(by_follower.patch("/v1/sessions/s", &json!({ "archived": false })).await.ok()["archived"], Value::Null);
}
