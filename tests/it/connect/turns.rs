//! An agent does a limited number of turns at once. The rest stays in its queue, in order, and decisions pass it.

use super::endpoint::{Endpoint, Reply, post, start_server, wait_for_control, wait_for_status};
use crate::harness::Client;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// An agent that does one turn at once.
fn agent(endpoint: &Endpoint) -> String {
    format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{}\"\nturns-max = 1\n", endpoint.url)
}

fn started(run: &str) -> Value {
    json!({ "type": "RUN_STARTED", "threadId": "t", "runId": run })
}

fn finished(run: &str) -> Value {
    json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": run })
}

fn held(run: &str) -> (oneshot::Sender<()>, Reply) {
    let (release, released) = oneshot::channel();
    (release, Reply::Paused(vec![started(run)], released, vec![finished(run)]))
}

/// Sends a message for this run in a session of its own, and returns the control's id.
async fn ask(client: &Client, run: &str, control: &str) -> Value {
    let value = json!({ "runId": run, "messages": [{ "id": format!("of-{run}"), "role": "user", "content": "Go" }] });
    let body = json!({ "control": control, "agentId": "helper", "value": value });
    let answer = post(client, &format!("/v1/sessions/of-{run}/controls"), &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["controlId"].clone()
}

async fn status_of(client: &Client, run: &str) -> Value {
    client.get(&format!("/v1/sessions/of-{run}/controls")).await.ok()["controls"][0]["status"].clone()
}

async fn run_of(endpoint: &Endpoint) -> String {
    endpoint.received().await.body["runId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn further_turns_stay_in_the_queue_in_order_and_a_stop_passes_them() {
    let (first, second) = (held("a"), held("b"));
    let rest = ["c", "d"].map(|run| Reply::Events(vec![started(run), finished(run)]));
    let endpoint = Endpoint::start([first.1, second.1].into_iter().chain(rest).collect()).await;
    let client = start_server(&agent(&endpoint)).await;
    ask(&client, "a", "send").await;
    assert_eq!(run_of(&endpoint).await, "a");
    for (run, control) in [("b", "send"), ("c", "queue"), ("withdrawn", "send"), ("d", "send")] {
        ask(&client, run, control).await;
    }
    let withdrawn = client.get("/v1/sessions/of-withdrawn/controls").await.ok()["controls"][0]["controlId"].clone();
    let answer = client.delete(&format!("/v1/controls/{}", withdrawn.as_str().unwrap())).await;
    assert_eq!(answer.status, 204, "no worker has claimed it");
    // The stop is behind all of them in the agent's queue.
    wait_for_status(&client, "a", "accepted").await;
    let stop = post(&client, "/v1/runs/a/controls", &json!({ "control": "interrupt" })).await.json()["controlId"].clone();
    wait_for_control(&client, "a", &stop, "acked").await;
    assert_eq!(run_of(&endpoint).await, "b", "the room of the turn that was stopped");
    assert_eq!(json!([status_of(&client, "c").await, status_of(&client, "d").await]), json!(["queued", "queued"]));
    second.0.send(()).unwrap();
    assert_eq!([run_of(&endpoint).await, run_of(&endpoint).await], ["c", "d"]);
    wait_for_status(&client, "d", "completed").await;
    assert_eq!(endpoint.unread().await, 0);
}

#[tokio::test]
async fn a_decision_comes_before_the_messages_that_wait_for_room() {
    let interrupts = json!([{ "id": "ask", "reason": "confirmation", "message": "May I?" }]);
    let outcome = json!({ "type": "interrupt", "interrupts": interrupts });
    let asks = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "a", "outcome": outcome });
    let second = held("b");
    let replies = vec![
        Reply::Events(vec![started("a"), asks]),
        second.1,
        Reply::Events(vec![started("a"), finished("a")]),
        Reply::Events(vec![started("c"), finished("c")]),
    ];
    let endpoint = Endpoint::start(replies).await;
    let client = start_server(&agent(&endpoint)).await;
    ask(&client, "a", "send").await;
    wait_for_status(&client, "a", "waiting").await;
    ask(&client, "b", "send").await;
    assert_eq!([run_of(&endpoint).await, run_of(&endpoint).await], ["a", "b"]);
    ask(&client, "c", "send").await;
    let approve = json!({ "control": "approve", "actionId": "ask" });
    let approve = post(&client, "/v1/runs/a/controls", &approve).await.json()["controlId"].clone();
    wait_for_control(&client, "a", &approve, "claimed").await;
    second.0.send(()).unwrap();
    assert_eq!([run_of(&endpoint).await, run_of(&endpoint).await], ["a", "c"]);
    wait_for_status(&client, "c", "completed").await;
}
