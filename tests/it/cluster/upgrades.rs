//! Nodes that are restarted one after the other, as for another version, while clients write and read.

use super::faults::{Addresses, History, PATIENCE, RUNS, check, produce, read, refresh};
use super::{Cluster, eventually};
use crate::harness::{Client, fact, repository, with_timeout};
use crate::nats::Nats;
use crate::upgrade::{assert_answers_of, expected_of, time_of};
use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_restarted_one_after_the_other_under_load_lose_nothing() {
    let nats = Nats::start(3);
    let mut cluster = Cluster::start(&nats, "rolling", 3, &["--drain-ms", "100"]).await;
    let (history, stop, addresses) = (Arc::<Mutex<History>>::default(), Arc::new(AtomicBool::new(false)), Addresses::default());
    refresh(&addresses, &cluster);
    let mut clients = Vec::new();
    for run in 0..RUNS {
        clients.push(tokio::spawn(produce(run, run + 1, addresses.clone(), history.clone(), stop.clone())));
        clients.push(tokio::spawn(read(run, run + 1, addresses.clone(), history.clone(), stop.clone())));
    }
    // The leader last: the node that leads then was restarted before.
    let leader = cluster.leader().await;
    for index in cluster.running().into_iter().filter(|index| *index != leader).chain([leader]).collect::<Vec<_>>() {
        let before = history.lock().acknowledged.values().sum::<u64>();
        let (mut process, _) = cluster.nodes[index].process.take().expect("the node runs");
        // Clients still know the node: a balancer notices a moment later.
        process.terminate();
        assert!(tokio::task::block_in_place(|| process.wait()).success());
        refresh(&addresses, &cluster);
        cluster.restart(index).await;
        cluster.wait_ready().await;
        refresh(&addresses, &cluster);
        eventually("the producers go on", async || history.lock().acknowledged.values().sum::<u64>() > before + 50).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    check(&cluster, &history, PATIENCE).await;
    assert_eq!(history.lock().violations, Vec::<String>::new());
}

/// The longest time without facts after which a run is not stale.
const STALE_SECONDS_MAX: i64 = 365 * 24 * 3600;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_goes_on_with_what_a_node_of_0_2_0_left_in_nats() {
    let nats = Nats::start_on(&repository("tests/stores/cluster-0.2.0/nats.tar.gz"));
    let year = STALE_SECONDS_MAX.to_string();
    let flags = ["--cluster-allow-r1", "--stale-after", &year, "--settle-after", &year];
    let mut cluster = Cluster::start(&nats, "upgrade", 2, &flags).await;
    let expected = expected_of("cluster-0.2.0");
    // Controls and the marks of erased runs end by the clock, and a year later all runs have an end.
    let is_open = time_of(&expected).duration_until(jiff::Timestamp::now()).as_secs() < STALE_SECONDS_MAX;
    let ended = ["failed", "settled", "thin", "rec-ethos-return_direct", "rec-awaken-short_text_reasoning"];
    let has_ended = |path: &str| ended.iter().any(|run| path.starts_with(&format!("/v1/runs/{run}/")));
    let lasts = |path: &str| !path.contains("/controls") && !path.starts_with("/v1/runs/erased") && (is_open || has_ended(path));
    for index in cluster.running() {
        assert_answers_of(cluster.client(index), &expected, lasts).await;
    }
    let last = fact("text.final", json!({ "messageId": "m", "payload": { "text": "here, and there" } }));
    let sequence = async |client: &Client| client.get("/v1/runs/reborn").await.ok()["lastSequence"].as_u64().unwrap();
    for _ in 0..2 {
        let leader = cluster.leader().await;
        let other = cluster.running().into_iter().find(|index| *index != leader).expect("two nodes run");
        let before = sequence(cluster.client(other)).await;
        cluster.client(other).append("reborn", std::slice::from_ref(&last)).await;
        eventually("all nodes have the fact", async || {
            sequence(cluster.client(leader)).await > before && sequence(cluster.client(other)).await > before
        })
        .await;
        cluster.nodes[leader].kill();
        cluster.restart(leader).await;
        cluster.wait_ready().await;
    }
    let others = |path: &str| lasts(path) && path.starts_with("/v1/runs/") && !path.starts_with("/v1/runs/reborn");
    for index in cluster.running() {
        assert_answers_of(cluster.client(index), &expected, others).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_in_the_form_of_a_newer_version_is_not_taken_and_named_until_it_is_given_back() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "newer", 2, &["--cluster-allow-r1"]).await;
    let stored = AtomicU64::new(0);
    let send = async |index: usize| {
        let number = stored.load(Ordering::Relaxed).to_string();
        let text = fact("text.final", json!({ "messageId": format!("m{number}"), "payload": { "text": number } }));
        let answer = cluster.client(index).at_once().post_facts("r", &json!([text])).await;
        stored.fetch_add(u64::from(answer.status == 200), Ordering::Relaxed);
        answer
    };
    send(0).await.ok();
    let context = async_nats::jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let bucket = context.get_key_value("PROSCENIUM_newer_nodes").await.unwrap();
    // A node of a newer version leads.
    let lease = json!({ "version": "9.1.0", "holder": { "id": "x" } });
    let revision = bucket.put("leader", lease.to_string().into()).await.unwrap();
    for index in 0..2 {
        eventually("the node names the lease", async || {
            let refused = send(index).await;
            if refused.status == 200 {
                return false;
            }
            let detail = refused.problem(503, "no_leader")["detail"].as_str().unwrap().to_owned();
            ["`leader`", "PROSCENIUM_newer_nodes", "9.1.0", "Upgrade this node"].iter().all(|part| detail.contains(part))
        })
        .await;
    }
    // More signs of life than fit into the time after which a lease is free.
    let mut signs = bucket.watch("node.>").await.unwrap();
    for _ in 0..20 {
        with_timeout("a sign of life", signs.next()).await.unwrap().unwrap();
    }
    assert_eq!(bucket.entry("leader").await.unwrap().unwrap().revision, revision, "no node takes the lease");
    for index in 0..2 {
        let client = cluster.client(index);
        let newer = json!({ "url": "http://x", "position": { "partition": 0 } });
        bucket.put("node.x", newer.to_string().into()).await.unwrap();
        eventually("the newer node is one that may lack every commit", async || {
            let nodes = client.get("/v1/cluster").await.ok()["nodes"].clone();
            nodes.as_array().unwrap().iter().any(|node| node["id"] == "x" && node["position"] == 0)
        })
        .await;
        eventually("the node has what was stored", async || {
            let events = client.read_events("r", "audience=internal", 50).await;
            let texts = events.iter().filter(|event| event["type"] == "text.final").count() as u64;
            texts == stored.load(Ordering::Relaxed)
        })
        .await;
    }
    let released = json!({ "node": "x", "url": "http://x", "is_released": true });
    bucket.put("leader", released.to_string().into()).await.unwrap();
    eventually("a node leads", async || send(0).await.status == 200).await;
}
