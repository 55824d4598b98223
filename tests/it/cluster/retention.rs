//! Retention in a cluster: its leader erases by the rules, the next one goes on, and holds stay over the change.

use super::{Cluster, eventually};
use crate::harness::{Client, fact};
use crate::nats::Nats;
use crate::retention_rules::{listed, write};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

async fn erased_sessions(client: &Client) -> Vec<String> {
    let audit = client.get("/v1/audit").await.ok();
    let entries = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["what"] == "erase");
    entries.map(|entry| entry["sessionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_retention_goes_on_with_the_next_leader_and_a_hold_outlives_the_one_that_set_it() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("proscenium.toml");
    std::fs::write(&file, "retention = [{ name = \"day\", owner = \"acme\", after = \"24h\", then = \"erase\" }]").unwrap();
    let week = ["--stale-after", "604800", "--settle-after", "604800"];
    let flags = [&["--cluster-allow-r1", "--config", file.to_str().unwrap()][..], &week].concat();
    let mut cluster = Cluster::start_clocked(&nats, "retain", 3, &flags).await;
    let leader = cluster.leader().await;
    let client = cluster.client(leader);
    for n in 0..60 {
        write(client, &format!("r{n}"), &format!("sessionId=s{n}&owner=acme"), &[fact("run.finished", json!({}))]).await;
    }
    write(client, "kept", "sessionId=kept&owner=umbrella", &[fact("run.finished", json!({}))]).await;
    client.put("/v1/sessions/s7/hold", &json!({ "reason": "Case 7" })).await.ok();
    cluster.advance(Duration::from_hours(23)).await;
    cluster.wait_ready().await;
    for index in cluster.running() {
        eventually("the node to follow", async || listed(cluster.client(index)).await.0.len() == 61).await;
    }
    // The day is over in the middle of an hour, and the leader dies in the middle of its work.
    cluster.advance(Duration::from_mins(70)).await;
    let leader = cluster.leader().await;
    let begun = async || listed(cluster.client(leader)).await.0.len() < 61;
    eventually("the first erasure", begun).await;
    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    let left = BTreeSet::from(["kept".to_owned(), "s7".to_owned()]);
    // The next leader takes back what the last one had only begun, and a later look judges it again.
    for _ in 0..20 {
        let next = cluster.leader().await;
        if listed(cluster.client(next)).await.0 == left {
            break;
        }
        cluster.advance(Duration::from_mins(11)).await;
        cluster.wait_ready().await;
    }
    for index in cluster.running() {
        let client = cluster.client(index);
        eventually("the rule", async || listed(client).await.0 == left).await;
        client.get("/v1/sessions/s3").await.problem(410, "erased");
        client.delete("/v1/sessions/s7").await.problem(409, "held");
        assert_eq!(client.get("/v1/sessions/s7?audience=internal").await.ok()["hold"]["reason"], "Case 7");
    }
    let next = cluster.leader().await;
    let entries = erased_sessions(cluster.client(next)).await;
    let each: BTreeSet<_> = entries.iter().cloned().collect();
    assert_eq!((entries.len(), each.len()), (59, 59), "each erasure has one entry");
}
