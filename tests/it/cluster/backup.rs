//! The backup of a cluster's node, and a new cluster from it.

use super::{Cluster, eventually};
use crate::backup_online::{back_up, restore, run, told};
use crate::harness::fact;
use crate::nats::Nats;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn text(n: u64) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": format!("<{n}>")}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_any_node_under_load_begins_a_new_cluster_with_every_fact_that_node_had() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&nats, "kept", 3, &["--cluster-allow-r1"]).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let client = cluster.client(leader).clone();
    let (acknowledged, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let producing = tokio::spawn({
        let (client, acknowledged, is_over) = (client.clone(), acknowledged.clone(), is_over.clone());
        async move {
            for n in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                client.append("r", &[text(n)]).await;
                acknowledged.store(n + 1, Ordering::SeqCst);
            }
        }
    });
    eventually("facts", async || acknowledged.load(Ordering::SeqCst) > 30).await;
    let mut copies = Vec::new();
    for (name, index) in [("of-leader", leader), ("of-follower", follower)] {
        // What this node has applied is what its backup has.
        let has = cluster.client(index).export("r", "audience=internal").await.len();
        let backups = dir.path().join(name);
        let made = back_up(cluster.nodes[index].process(), &backups).await;
        let data = dir.path().join(format!("{name}-data"));
        assert_eq!(restore(&backups, &data)["position"], made["position"], "{name}");
        let doctor = told(&run(&["doctor", "--json"], &[("--data-dir", &data)]));
        assert_eq!(doctor["findings"], json!([]), "{name}");
        copies.push((name, has, data));
    }
    is_over.store(true, Ordering::SeqCst);
    producing.await.unwrap();
    let all = client.export("r", "audience=internal").await;
    for (name, has, data) in copies {
        let urls = nats.urls();
        let seed = ["cluster-seed", "--cluster", &urls, "--cluster-name", name, "--cluster-allow-r1"];
        let seeded = run(&seed, &[("--data-dir", &data)]);
        assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
        let again = Cluster::start(&nats, name, 2, &["--cluster-allow-r1"]).await;
        let events = again.client(0).export("r", "audience=internal").await;
        assert!(events.len() >= has, "{name}: {} of {has}", events.len());
        assert_eq!(all[..events.len()], events[..], "{name}: the same envelopes in the same order");
        let next = text(u64::MAX);
        again.client(1).append("r", &[next]).await;
        eventually("both nodes to have it", async || {
            again.client(0).export("r", "audience=internal").await.len() == events.len() + 1
        })
        .await;
    }
}
