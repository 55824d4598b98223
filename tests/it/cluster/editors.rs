//! Editors (ACP) and other agents (A2A) at a follower: what they ask for passes the leader, and outlives it.

use super::Cluster;
use crate::a2a::ask as call;
use crate::a2a_push::{Receiver, begun, ended};
use crate::acp_face::editor::{Editor, ask, begin_turn, claim, end_turn, resolve, say, texts};
use crate::nats::Nats;
use serde_json::json;

/// The running node that is not this one.
fn other_than(cluster: &Cluster, node: usize) -> usize {
    cluster.running().into_iter().find(|index| *index != node).expect("another node runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_at_a_follower_prompts_and_decides_and_goes_on_after_the_leader_is_killed() {
    let nats = Nats::start(1);
    let mut cluster = Cluster::start(&nats, "editors", 3, &["--cluster-allow-r1"]).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let mut editor = Editor::open(cluster.client(follower)).await;
    let session = editor.new_session().await;
    editor.prompt(&session, "Delete it").await;
    let worker = cluster.client(leader);
    let run = begin_turn(worker).await;
    ask(worker, &run, "a").await;
    let asked = editor.next("session/request_permission").await;
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    editor.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome })).await;
    let decided = claim(worker).await;
    let expected = json!(["approve", "a", "acp"]);
    assert_eq!(json!([decided["control"], decided["actionId"], decided["decidedBy"]["via"]]), expected);
    // A connection at a follower leads to the leader, and ends with it.
    editor.kill();
    cluster.nodes[leader].kill();
    cluster.wait_ready().await;
    let mut again = Editor::open(cluster.client(follower)).await;
    again.ok("session/resume", json!({ "sessionId": session, "cwd": "/" })).await;
    let worker = cluster.client(other_than(&cluster, follower));
    resolve(worker, &run, "a").await;
    say(worker, &run, &["It is ", "gone."]).await;
    end_turn(worker, &run).await;
    let mut said = String::new();
    while said != "It is gone." {
        said += &texts(&[again.next("session/update").await["params"].clone()], "agent_message_chunk");
        assert!("It is gone.".starts_with(&said), "{said}");
    }
    let next = again.prompt(&session, "Thanks").await;
    let run = begin_turn(worker).await;
    end_turn(worker, &run).await;
    assert_eq!(again.finish(next).await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_begins_at_a_follower_is_told_of_by_each_leader() {
    let nats = Nats::start(1);
    let mut receiver = Receiver::start().await;
    let flags = ["--cluster-allow-r1", "--push-host", &receiver.host.clone()];
    let mut cluster = Cluster::start(&nats, "tasks", 3, &flags).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "Go." }] });
    let configuration = json!({ "returnImmediately": true, "taskPushNotificationConfig": { "url": receiver.url() } });
    let asked =
        call(cluster.client(follower), "SendMessage", &json!({ "message": message, "configuration": configuration })).await;
    let task = &asked["result"]["task"];
    let run = task["id"].as_str().unwrap_or_else(|| panic!("{asked}"));
    cluster.client(follower).append(run, &begun(task["contextId"].as_str().unwrap())).await;
    assert_eq!(receiver.next().await.1["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    cluster.nodes[leader].kill();
    cluster.client(other_than(&cluster, follower)).append(run, &ended()).await;
    // The next leader does not know that the first one has delivered.
    let told = loop {
        let (_, told) = receiver.next().await;
        if told["statusUpdate"]["status"]["state"] != "TASK_STATE_INPUT_REQUIRED" {
            break told;
        }
    };
    let told = &told["statusUpdate"];
    assert_eq!((&told["taskId"], &told["status"]["state"]), (&json!(run), &json!("TASK_STATE_COMPLETED")));
}
