//! Traces in a cluster: the leader alone exports, and a leader that dies loses no run.

use super::{Cluster, eventually};
use crate::harness::fact;
use crate::nats::Nats;
use crate::traces::collector::TraceCollector;
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::json;
use std::collections::HashSet;

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_exports_what_the_last_one_did_not() {
    let (nats, collector) = (Nats::start(1), TraceCollector::start().await);
    let flags = ["--cluster-allow-r1", "--genai-endpoint", &collector.url.clone()];
    let mut cluster = Cluster::start_with(&nats, "traces", 3, &flags, true, None).await;
    let leader = cluster.leader().await;
    let publish = async |cluster: &Cluster, node: usize, n: usize| {
        let body = json!([fact("run.started", json!({})), fact("run.finished", json!({}))]).to_string();
        let producer =
            [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")];
        cluster.client(node).post(&format!("/v1/runs/r{n}/facts"), &producer, body).await.status == 200
    };
    assert!(publish(&cluster, leader, 0).await);
    collector.root("r0").await;
    assert_eq!(collector.requests(), 1, "one node exports");
    collector.answer(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    for n in 1..6 {
        assert!(publish(&cluster, leader, n).await);
    }
    collector.wait_for("an attempt", |collector| collector.requests() > 1).await;
    cluster.nodes[leader].kill();
    collector.answer(|_| StatusCode::OK.into_response());
    eventually("another leader", async || cluster.leader().await != leader).await;
    let node = cluster.running()[0];
    eventually("the fact is accepted", async || publish(&cluster, node, 6).await).await;
    collector.root("r6").await;
    let roots = collector.roots();
    assert_eq!(roots.len(), 7);
    let ids = |roots: &Vec<_>| {
        roots.iter().map(|root: &opentelemetry_proto::tonic::trace::v1::Span| root.span_id.clone()).collect::<HashSet<_>>().len()
    };
    assert!(roots.values().all(|roots| ids(roots) == 1), "each run is one trace");
}
