//! Requests while NATS does not answer: each gets an answer, and a repeat makes no double.

use super::{Cluster, eventually};
use crate::harness::{Client, fact, with_timeout};
use crate::nats::Nats;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

fn text(number: u64) -> Value {
    fact("text.final", json!({ "messageId": format!("m{number}"), "payload": { "text": number.to_string() } }))
}

/// Sends the fact with this number as a producer of its own numbers.
async fn send(client: &Client, run: &str, number: u64) -> crate::harness::Response {
    let number_text = number.to_string();
    let headers =
        [("content-type", "application/json"), ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", &number_text)];
    client.at_once().post(&format!("/v1/runs/{run}/facts"), &headers, json!([text(number)]).to_string()).await
}

/// Repeats the fact until it is stored.
async fn send_until_stored(client: &Client, run: &str, number: u64) {
    eventually("the fact is stored", async || {
        let sent = send(client, run, number).await;
        if sent.status != 200 {
            sent.problem(503, "no_leader");
        }
        sent.status == 200
    })
    .await;
}

/// The numbers of the facts that a run has.
async fn numbers(client: &Client, run: &str) -> Vec<u64> {
    let events = client.read_events(run, "audience=internal", 100).await;
    let texts = events.iter().filter(|event| event["type"] == "text.final");
    texts.map(|event| event["payload"]["text"].as_str().unwrap().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_refused_in_time_while_nats_is_paused_and_its_repeat_is_stored_once() {
    let nats = Nats::start(3);
    let cluster = Cluster::start(&nats, "paused", 2, &[]).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let clients = [(cluster.client(leader), "at-leader"), (cluster.client(follower), "at-follower")];
    for (client, run) in clients {
        send(client, run, 0).await.ok();
    }
    let (mut socket, _) = crate::socket::connect(cluster.client(leader), &[]).await.unwrap();
    nats.signal("STOP");
    let published = async {
        let publish = json!({ "op": "publish", "id": 1, "runId": "by-socket", "facts": [text(0)] });
        socket.send(Message::text(publish.to_string())).await.unwrap();
        let answer = with_timeout("the answer", socket.next()).await.unwrap().unwrap();
        serde_json::from_str::<Value>(answer.to_text().unwrap()).unwrap()
    };
    // More than one at a time, so that some wait behind the others.
    let [(one, one_run), (other, other_run)] = clients;
    let (first, behind, forwarded, published) =
        tokio::join!(send(one, one_run, 1), send(one, "behind", 0), send(other, other_run, 1), published);
    for refused in [first, behind, forwarded] {
        refused.problem(503, "no_leader");
        assert_eq!(refused.headers["retry-after"], "1");
    }
    assert_eq!((&published["op"], &published["code"]), (&json!("error"), &json!("no_leader")), "{published}");
    // The nodes know that no node leads, and answer at once. Reading goes on.
    eventually("no node names a leader", async || {
        let mut leaders = 0;
        for (client, _) in clients {
            leaders += usize::from(!client.get("/v1/cluster").await.ok()["leader"].is_null());
        }
        leaders == 0
    })
    .await;
    for (client, run) in clients {
        send(client, run, 1).await.problem(503, "no_leader");
        assert_eq!(numbers(client, run).await, [0], "{run}");
    }
    nats.signal("CONT");
    for (client, run) in clients {
        send_until_stored(client, run, 1).await;
        send_until_stored(client, run, 2).await;
    }
    for (client, run) in clients {
        eventually("the node has every fact once", async || numbers(client, run).await == [0, 1, 2]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_full_refuses_writes_until_it_has_room() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "full", 1, &["--cluster-allow-r1"]).await;
    let client = cluster.client(0);
    send(client, "r", 0).await.ok();
    let context = async_nats::jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let mut config = context.get_stream("PROSCENIUM_full").await.unwrap().cached_info().config.clone();
    config.max_bytes = 1;
    context.update_stream(&config).await.unwrap();
    send(client, "r", 1).await.problem(503, "no_leader");
    config.max_bytes = -1;
    context.update_stream(&config).await.unwrap();
    send_until_stored(client, "r", 1).await;
    send_until_stored(client, "r", 2).await;
    assert_eq!(numbers(client, "r").await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_by_a_follower_is_refused_in_time_while_the_leader_is_paused() {
    let nats = Nats::start(1);
    let cluster = Cluster::start(&nats, "stuck", 2, &["--cluster-allow-r1"]).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let client = cluster.client(follower);
    send(client, "r", 0).await.ok();
    cluster.nodes[leader].process().signal("STOP");
    let first = send(client, "r", 1).await;
    if first.status != 200 {
        first.problem(503, "no_leader");
    }
    send_until_stored(client, "r", 1).await;
    cluster.nodes[leader].process().signal("CONT");
    send_until_stored(client, "r", 2).await;
    assert_eq!(numbers(client, "r").await, [0, 1, 2]);
}
