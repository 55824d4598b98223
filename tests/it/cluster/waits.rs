//! Rules for actions that wait, in a cluster: its leader does what they say, and the next one goes on.

use super::{Cluster, eventually};
use crate::harness::{Client, fact};
use crate::nats::Nats;
use serde_json::{Value, json};

async fn events(client: &Client, kind: &str) -> Vec<Value> {
    client.read_events("r", &format!("type={kind}&audience=internal"), 100).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_a_rule_is_done_once_although_the_leader_dies_between_them() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("proscenium.toml");
    // The second step falls due while no node leads, or after that.
    let rules = "waits = [{ after = \"1s\", then = \"remind\" }, { after = \"4s\", then = \"reject\", name = \"give-up\" }]";
    std::fs::write(&file, rules).unwrap();
    let flags = ["--cluster-allow-r1", "--config", file.to_str().unwrap()];
    let mut cluster = Cluster::start(&nats, "waits", 3, &flags).await;
    let leader = cluster.leader().await;
    let asks = fact("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}}));
    cluster.client(leader).append("r", &[fact("run.started", json!({})), asks]).await;
    eventually("the reminder", async || !events(cluster.client(leader), "action.reminded").await.is_empty()).await;
    cluster.nodes[leader].kill();
    for node in cluster.running() {
        eventually("the rejection", async || !events(cluster.client(node), "control.changed").await.is_empty()).await;
    }
    let next = cluster.leader().await;
    let claimed = cluster.client(next).post("/v1/agents/default/controls/claim", &[], "").await.ok()["controls"].clone();
    let decided = json!([claimed[0]["control"], claimed[0]["decidedBy"]["via"], claimed[0]["decidedBy"]["name"], claimed[1]]);
    assert_eq!(decided, json!(["reject", "rule", "give-up", null]));
    let reminded = events(cluster.client(next), "action.reminded").await;
    assert_eq!(json!([reminded.len(), reminded[0]["payload"]["step"]]), json!([1, 1]));
    let submitted = events(cluster.client(next), "control.changed").await;
    assert_eq!(submitted.iter().filter(|event| event["payload"]["status"] == "submitted").count(), 1, "{submitted:?}");
}
