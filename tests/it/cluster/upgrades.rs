//! Nodes that are restarted one after the other, as for another version, while clients write and read.

use super::Cluster;
use super::faults::{Addresses, History, PATIENCE, RUNS, check, produce, read, refresh};
use crate::nats::Nats;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
        super::eventually("the producers go on", async || history.lock().acknowledged.values().sum::<u64>() > before + 50).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    check(&cluster, &history, PATIENCE).await;
    assert_eq!(history.lock().violations, Vec::<String>::new());
}
