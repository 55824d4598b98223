//! Agents that a cluster calls: its leader does.

use super::Cluster;
use crate::connect::endpoint::{Endpoint, Reply, events, post, text_of, wait_for_status};
use crate::harness::with_timeout;
use crate::nats::Nats;
use serde_json::{Value, json};

/// A run with one answer.
fn answer(run: &str, text: &str) -> Reply {
    Reply::Events(vec![
        json!({ "type": "RUN_STARTED", "threadId": "t", "runId": run }),
        json!({ "type": "TEXT_MESSAGE_START", "messageId": run, "role": "assistant" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": run, "delta": text }),
        json!({ "type": "TEXT_MESSAGE_END", "messageId": run }),
        json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": run }),
    ])
}

fn asks(run: &str) -> Value {
    json!({ "threadId": "t", "runId": run, "messages": [{ "id": format!("u-{run}"), "role": "user", "content": run }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_calls_a_connected_agent_and_after_a_take_over_the_next_leader_does() {
    let nats = Nats::start(1);
    let endpoint = Endpoint::start(vec![answer("r1", "from the first leader"), answer("r2", "from the next one")]).await;
    let agent = format!("helper=ag-ui:{}", endpoint.url);
    let mut cluster = Cluster::start(&nats, "agents", 3, &["--cluster-allow-r1", "--connect", &agent]).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let answered = events(&post(cluster.client(follower), "/ag-ui/helper", &asks("r1")).await);
    assert_eq!(text_of(&answered), "from the first leader", "{answered:#?}");
    cluster.nodes[leader].kill();
    // A request that finds no leader stores nothing, so that its repeat is the first one.
    let answered = with_timeout("an answer after the take-over", async {
        loop {
            let answered = post(cluster.client(follower), "/ag-ui/helper", &asks("r2")).await;
            if answered.status == 200 {
                return events(&answered);
            }
            answered.problem(503, "no_leader");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(text_of(&answered), "from the next one", "{answered:#?}");
    for index in cluster.running() {
        wait_for_status(cluster.client(index), "r2", "completed").await;
    }
    // Each call was made once, although three nodes have the agent.
    assert_eq!([endpoint.received().await.body["runId"].clone(), endpoint.received().await.body["runId"].clone()], ["r1", "r2"]);
    assert_eq!(endpoint.unread().await, 0);
}
