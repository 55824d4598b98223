//! Webhooks and devices in a cluster: a leader that dies loses no message.

use super::{Cluster, eventually};
use crate::harness::fact;
use crate::nats::Nats;
use crate::push::PushService;
use crate::webhooks::{Receiver, configure};
use axum::response::IntoResponse;
use http::{Method, StatusCode};
use serde_json::json;
use std::collections::{HashMap, HashSet};

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_goes_on_where_the_last_one_stopped() {
    let (nats, dir, mut receiver) = (Nats::start(1), tempfile::tempdir().unwrap(), Receiver::start().await);
    let config = configure(dir.path(), &receiver.url, "events = [\"run.waiting\", \"run.completed\"]");
    let flags = ["--cluster-allow-r1", "--config", &config];
    let mut cluster = Cluster::start_with(&nats, "webhooks", 3, &flags, true, None).await;
    let leader = cluster.leader().await;
    let runs = 20;
    let facts = |n: usize| {
        let asks = |action: &str| fact("action.required", json!({ "actionId": action, "payload": { "title": "Go?" } }));
        let number = n.to_string();
        vec![fact("run.started", json!({ "sessionId": number })), asks("a"), asks("b"), fact("run.finished", json!({}))]
    };
    let publish = async |cluster: &Cluster, node: usize, n: usize| {
        let body = json!(facts(n)).to_string();
        let producer =
            [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")];
        cluster.client(node).post(&format!("/v1/runs/r{n}/facts"), &producer, body).await.status == 200
    };
    // The receiver takes nothing until the leader is dead.
    receiver.answer(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    for n in 0..runs / 2 {
        assert!(publish(&cluster, leader, n).await);
    }
    receiver.next().await;
    receiver.answer(|_| StatusCode::NO_CONTENT.into_response());
    cluster.nodes[leader].kill();
    eventually("another leader", async || cluster.leader().await != leader).await;
    for n in runs / 2..runs {
        let node = cluster.running()[0];
        eventually("the fact is accepted", async || publish(&cluster, node, n).await).await;
    }
    // Every message, each run's in order; one that was tried before is there again.
    let (mut times, mut last) = (HashMap::<String, usize>::new(), HashMap::new());
    let mut seen = HashSet::new();
    while seen.len() < runs * 3 {
        let received = receiver.next().await;
        let data = &received.body["data"];
        let (run, sequence) = (data["runId"].to_string(), data["sequence"].as_u64());
        *times.entry(received.id.clone()).or_default() += 1;
        if seen.insert((run.clone(), sequence)) {
            assert!(last.insert(run, sequence).flatten() < sequence, "{received:?}");
        }
    }
    assert_eq!(times.len(), runs * 3, "each message has one id");
    assert!(times.values().all(|times| *times <= 4), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_subscribed_at_any_node_and_hears_of_what_comes_after_the_leader_died() {
    let (nats, mut service) = (Nats::start(1), PushService::start().await);
    let flags = ["--cluster-allow-r1", "--push-host", &service.host.clone()];
    let mut cluster = Cluster::start_with(&nats, "push", 3, &flags, true, None).await;
    let leader = cluster.leader().await;
    let others: Vec<usize> = cluster.running().into_iter().filter(|node| *node != leader).collect();
    let wanted = service.subscription("phone").to_string();
    let made = cluster.client(others[0]).request(Method::PUT, "/v1/push", &[], wanted).await;
    assert_eq!(made.status, 201, "{made:?}");
    let of_node = async |node: usize| cluster.client(node).get("/v1/push").await.ok();
    let first = of_node(leader).await;
    assert_eq!(first["subscriptions"], json!([made.json()]));
    eventually("both other nodes know it", async || of_node(others[0]).await == first && of_node(others[1]).await == first).await;
    cluster.nodes[leader].kill();
    eventually("another leader", async || cluster.leader().await != leader).await;
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "title": "Go?" } }));
    let body = json!([fact("run.started", json!({})), asks]).to_string();
    let publish = async || {
        let json_body = [("content-type", "application/json")];
        cluster.client(others[0]).post("/v1/runs/r/facts", &json_body, body.clone()).await.status == 200
    };
    eventually("the fact is accepted", publish).await;
    let pushed = service.next().await;
    assert_eq!((&*pushed.device, pushed.title()), ("phone", "Go?"));
}
