//! Owners of sessions in a cluster.

use super::{Cluster, eventually};
use crate::auth::{SECRET, admin, token};
use crate::harness::{Client, fact};
use crate::nats::Nats;
use serde_json::json;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn person(owner: &str) -> String {
    token(&json!({ "owner": owner, "owners": [owner], "agents": ["a"], "can": ["read", "control", "publish"] }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_owner_on_every_node_and_keeps_it_when_the_leader_dies() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let flags = ["--cluster-allow-r1", "--auth-key", key.to_str().unwrap(), "--owner-sessions-max", "9"];
    let mut cluster = Cluster::start_with(&nats, "owners", 3, &flags, true, Some(&admin())).await;
    let (alice, bob) = (person("alice"), person("bob"));
    let by = |cluster: &Cluster, token: &str, node: usize| Client::with_token(cluster.client(node).at, token).awaiting_leader();
    let says = json!([fact("text.final", json!({ "messageId": "m", "payload": { "text": "mine" } }))]).to_string();
    // Two owners begin one session at once, on two nodes.
    let mut owners = Vec::new();
    for n in 0..8 {
        let begin = async |token: &str, node: usize| {
            let path = format!("/v1/runs/r{n}-{node}/facts?sessionId=s{n}");
            by(&cluster, token, node).post(&path, &JSON, says.clone()).await.status
        };
        let statuses = tokio::join!(begin(&alice, n % 3), begin(&bob, (n + 1) % 3));
        assert!(matches!(statuses, (200, 403) | (403, 200)), "{statuses:?}");
        owners.push(if statuses.0 == 200 { (&alice, &bob) } else { (&bob, &alice) });
    }
    let leader = cluster.leader().await;
    for killed in [None, Some(leader)] {
        if let Some(killed) = killed {
            cluster.nodes[killed].kill();
            eventually("another leader", async || cluster.leader().await != killed).await;
        }
        for (n, (own, other)) in owners.iter().enumerate() {
            for node in cluster.running() {
                let path = format!("/v1/sessions/s{n}");
                eventually("the node has the session", async || by(&cluster, own, node).get(&path).await.status == 200).await;
                by(&cluster, other, node).get(&path).await.problem(403, "forbidden");
            }
        }
    }
    let (own, other) = owners[0];
    let node = cluster.running()[0];
    let path = "/v1/runs/after/facts?sessionId=s0";
    eventually("the leader accepts facts", async || by(&cluster, own, node).post(path, &JSON, says.clone()).await.status == 200)
        .await;
    let joins = by(&cluster, other, node).post("/v1/runs/joins/facts?sessionId=s0", &JSON, says.clone()).await;
    assert_eq!(joins.problem(403, "forbidden")["missing"], "session");
}
