//! Old runs of a cluster: its leader archives them, every node reads the same objects, and snapshots name them.

use super::{Cluster, eventually, is_empty_dir};
use crate::archive::{address, end, objects, text};
use crate::nats::Nats;

#[tokio::test(flavor = "multi_thread")]
async fn every_node_reads_an_archived_run_also_one_with_an_empty_directory_and_the_next_leader_erases_it() {
    let nats = Nats::start(1);
    let dir = tempfile::tempdir().unwrap();
    let objects_at = address(dir.path());
    let flags = [
        ["--cluster-allow-r1", "--cluster-snapshot-commits", "100"].as_slice(),
        &["--archive-to", &objects_at, "--archive-after", "1s"],
    ]
    .concat();
    let mut cluster = Cluster::start(&nats, "archive", 3, &flags).await;
    let leader = cluster.leader().await;
    let mut expected = Vec::new();
    for run in ["a", "b", "c"] {
        let facts: Vec<_> = (0..30).map(text).chain([end()]).collect();
        cluster.client(leader).append(run, &facts).await;
        expected.push((run, cluster.client(leader).read_events(run, "audience=internal", 50).await));
    }
    eventually("the archive", async || objects(dir.path()).len() == 3).await;
    let check = async |cluster: &Cluster, index: usize| {
        for (run, before) in &expected {
            let read = async || cluster.client(index).read_events(run, "audience=internal", 50).await == *before;
            eventually("the same envelopes", read).await;
        }
    };
    for index in cluster.running() {
        check(&cluster, index).await;
    }
    for n in 0..150 {
        cluster.client(leader).append("later", &[text(n)]).await;
    }
    let client = async_nats::connect(nats.urls()).await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("PROSCENIUM_archive").await.unwrap();
    eventually("the stream is shortened", async || stream.get_info().await.unwrap().state.first_sequence > 50).await;
    let follower = cluster.follower().await;
    cluster.nodes[follower].kill();
    std::fs::remove_dir_all(cluster.nodes[follower].data_dir()).unwrap();
    assert!(is_empty_dir(&cluster.nodes[follower].data_dir()));
    cluster.restart(follower).await;
    cluster.wait_ready().await;
    check(&cluster, follower).await;
    let metrics = String::from_utf8(cluster.client(follower).get("/metrics").await.body).unwrap();
    let fetched = metrics.lines().find_map(|line| line.strip_prefix("proscenium_archive_fetches_total ")).unwrap();
    assert!(fetched.parse::<u64>().unwrap() >= 3, "it reads from the objects: {fetched}");

    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    let next = cluster.follower().await;
    eventually("an erasure by the next leader", async || {
        let answer = cluster.client(next).delete("/v1/runs/b").await;
        assert!([204, 503].contains(&answer.status), "{answer:?}");
        answer.status == 204
    })
    .await;
    assert_eq!(objects(dir.path()).len(), 2, "the object is gone before the answer");
    for index in cluster.running() {
        eventually("the erasure", async || cluster.client(index).get("/v1/runs/b/events").await.status == 410).await;
    }
}
