//! Share links of a cluster: any node makes and opens them, and a change of the leader keeps them.

use super::{Cluster, eventually};
use crate::auth::{SECRET, admin};
use crate::harness::{Client, Response, fact};
use crate::nats::Nats;
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn asks(action: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "payload": { "kind": "tool_approval", "risk": "low" } }))
}

async fn exchange(client: &Client, secret: &str) -> Response {
    client.post("/v1/links/exchange", &JSON, json!({ "secret": secret }).to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_one_node_opens_on_all_and_outlives_the_leader() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--cluster-allow-r1", "--auth-key", key.to_str().unwrap()];
    let mut cluster = Cluster::start_with(&nats, "links", 3, &flags, true, Some(&admin())).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let facts = [fact("run.started", json!({ "sessionId": "s" })), asks("a"), asks("b")];
    cluster.client(leader).append("r", &facts).await;
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let wanted = json!({ "runId": "r", "until": until, "can": ["control"] });
    let made = cluster.client(follower).post("/v1/links", &JSON, wanted.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let (_, secret) = made["url"].as_str().unwrap().split_once("#link=").unwrap();
    let reader = exchange(cluster.client(follower), secret).await.ok()["token"].as_str().unwrap().to_owned();
    let by_link = |cluster: &Cluster, node: usize| Client::with_token(cluster.client(node).at, &reader).awaiting_leader();
    for node in cluster.running() {
        // A node that follows has the link a moment later.
        eventually("the node knows the link", async || by_link(&cluster, node).get("/v1/runs/r").await.status == 200).await;
    }
    let decide = async |cluster: &Cluster, node: usize, action: &str| {
        let body = json!({ "control": "approve", "actionId": action }).to_string();
        by_link(cluster, node).post("/v1/runs/r/controls", &JSON, body).await
    };
    assert_eq!(decide(&cluster, follower, "a").await.status, 202);

    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    for node in cluster.running() {
        by_link(&cluster, node).get("/v1/runs/r/events").await.ok();
        decide(&cluster, node, "b").await.problem(409, "link_has_decided");
        let opened = exchange(cluster.client(node), secret).await.ok();
        assert_eq!((&opened["runId"], &opened["can"]), (&json!("r"), &json!(["read"])));
    }
    let listed = cluster.client(follower).get("/v1/links").await.ok();
    assert_eq!(listed["links"][0]["decided"]["actionId"], "a", "{listed}");
    let path = format!("/v1/links/{}", made["id"].as_str().unwrap());
    assert_eq!(cluster.client(follower).delete(&path).await.status, 204);
    for node in cluster.running() {
        eventually("the node knows that the link has ended", async || {
            by_link(&cluster, node).get("/v1/runs/r").await.status == 401
        })
        .await;
        exchange(cluster.client(node), secret).await.problem(404, "no_such_link");
    }
}
