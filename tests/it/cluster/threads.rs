//! Renames, the archive, marks and attachments in a cluster: any node takes them, and a change of the leader keeps them.

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
    let said = fact("text.final", json!({ "messageId": "m", "payload": { "text": "The lighthouse of Kap Arkona" } }));
    cluster.client(leader).append("r", &[fact("run.started", json!({ "sessionId": "s" })), said]).await;
    let finds = async |client: &Client| {
        let page = client.get("/v1/sessions?in=text&q=lighthouse+arkona&archived=all").await.ok();
        page["sessions"][0]["highlight"]["text"] == "The lighthouse of Kap Arkona"
    };
    let by_follower = cluster.client(follower);
    let renamed = by_follower.patch("/v1/sessions/s", &json!({ "title": "Mine", "archived": true })).await.ok();
    assert_eq!((&renamed["title"], &renamed["archived"]), (&json!("Mine"), &json!(true)));
    by_follower.put("/v1/sessions/s/marks", &json!({ "pinned": true })).await.ok();
    let is_so = |line: &Value| line["title"] == "Mine" && line["archived"] == true && line["pinned"] == true;
    // Larger than a message of the stream.
    let bytes = vec![7; 5 * 1024 * 1024];
    let attached = by_follower.post("/v1/sessions/s/attachments", &[("content-type", "image/png")], bytes.clone()).await;
    assert_eq!(attached.status, 201, "{attached:?}");
    let href = attached.json()["href"].as_str().unwrap().to_owned();
    for node in cluster.running() {
        eventually("the node has the changes", async || is_so(&line(cluster.client(node)).await)).await;
        eventually("the node finds the text", async || finds(cluster.client(node)).await).await;
        eventually("the node has the attachment", async || cluster.client(node).get(&href).await.body == bytes).await;
    }
    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    for node in cluster.running() {
        assert!(is_so(&line(cluster.client(node)).await));
        assert_eq!(cluster.client(node).get(&href).await.body, bytes);
        assert!(finds(cluster.client(node)).await);
    }
    cluster.restart(leader).await;
    eventually("the node finds the text again", async || finds(cluster.client(leader)).await).await;
    let by_follower = cluster.client(cluster.follower().await);
    assert_eq!(by_follower.patch("/v1/sessions/s", &json!({ "archived": false })).await.ok()["archived"], Value::Null);
    assert_eq!(by_follower.delete("/v1/sessions/s").await.status, 204);
    for node in cluster.running() {
        eventually("the attachment is gone", async || cluster.client(node).get(&href).await.status == 404).await;
        eventually("the text is not found", async || !finds(cluster.client(node)).await).await;
    }
}
