//! A run has one attempt from its first start to its end, however many processes say that it starts.

use crate::connect::endpoint::{Endpoint, Reply, post, say, wait_for_status};
use crate::harness::{AUDIENCES, Client, Process, fact, part_of, recordings, to_ndjson};
use serde_json::{Value, json};

/// The attempt that each audience sees.
async fn attempts(client: &Client, run: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    for audience in AUDIENCES {
        let shown = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
        let all = shown["activities"].as_array().expect("a list of activities");
        let run = all.iter().find(|one| one["activityType"] == "run").expect("the run is shown");
        seen.push(run["content"]["attempt"].clone());
    }
    seen
}

async fn publish(client: &Client, run: &str, source: &str, facts: &[Value]) {
    client.post_lines(&format!("/v1/runs/{run}/facts?source={source}&sessionId={run}"), to_ndjson(facts)).await.ok();
}

#[tokio::test]
async fn a_stream_of_any_source_in_a_run_that_was_opened_counts_as_it_does_alone() {
    let server = Process::start();
    let client = Client::new(server.at);
    let opened = [
        fact("run.started", json!({})),
        fact("text.final", json!({ "messageId": "u", "payload": { "role": "user", "text": "Go" } })),
    ];
    for (n, (source, name, facts)) in part_of(recordings(), 4).into_iter().enumerate() {
        let (alone, forwarded) = (format!("alone-{n}"), format!("forwarded-{n}"));
        publish(&client, &alone, source, &facts).await;
        publish(&client, &forwarded, "agentui", &opened).await;
        publish(&client, &forwarded, source, &facts).await;
        let expected: Vec<Value> =
            attempts(&client, &alone).await.iter().map(|attempt| attempt.as_u64().unwrap().max(1).into()).collect();
        assert_eq!(attempts(&client, &forwarded).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_worker_that_starts_the_run_of_a_page_and_forwards_a_stream_works_on_one_attempt() {
    let server = Process::start();
    let client = Client::new(server.at);
    let body = json!({ "threadId": "t", "runId": "r", "messages": [{ "id": "u", "role": "user", "content": "Go" }] });
    let page = tokio::spawn({
        let client = client.clone();
        async move { post(&client, "/ag-ui/helper", &body).await }
    });
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
    let control = &claimed["controls"][0];
    assert_eq!(control["value"]["runId"], "r");
    publish(&client, "r", "agentui", &[fact("run.started", json!({ "agentId": "helper" }))]).await;
    post(&client, &format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap()), &json!({ "lease": control["lease"] }))
        .await
        .ok();
    let started = json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" });
    let work = [
        started,
        json!({ "type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Ha" }),
    ];
    publish(&client, "r", "ag-ui", &work).await;
    assert_eq!(attempts(&client, "r").await, [1, 1, 1]);
    // The worker crashed, and begins again.
    publish(&client, "r", "agentui", &[fact("run.started", json!({}))]).await;
    assert_eq!(attempts(&client, "r").await, [2, 2, 2]);
    publish(&client, "r", "ag-ui", &[json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" })]).await;
    let events = client.read_events("r", "", 1000).await;
    let starts = events.iter().filter(|event| event["type"] == "run.started").map(|event| event["payload"]["continues"].clone());
    assert_eq!(starts.collect::<Vec<_>>(), [Value::Null, json!(true), Value::Null]);
    assert_eq!(page.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_restart_of_the_server_keeps_who_started_the_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let started = fact("run.started", json!({}));
    publish(&Client::new(server.at), "r", "agentui", std::slice::from_ref(&started)).await;
    server.kill();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let work =
        [json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }), json!({ "type": "STEP_STARTED", "stepName": "s" })];
    publish(&client, "r", "ag-ui", &work).await;
    publish(&client, "r", "agentui", &[fact("text.delta", json!({ "messageId": "m", "payload": { "text": "Ha" } })), started])
        .await;
    assert_eq!(attempts(&client, "r").await, [2, 2, 2]);
}

#[tokio::test]
async fn a_connector_s_run_is_one_attempt_from_its_message_over_its_question_to_its_end() {
    let started = || json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" });
    let interrupts = json!([{ "id": "ask", "reason": "confirmation", "message": "May I?" }]);
    let asks = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": { "type": "interrupt", "interrupts": interrupts } });
    let finished = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" });
    let endpoint = Endpoint::start(vec![Reply::Events(vec![started(), asks]), Reply::Events(vec![started(), finished])]).await;
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--connect", &format!("helper=ag-ui:{}", endpoint.url)]);
    let client = Client::new(server.at);
    say(&client, "t", "r", json!([{ "id": "u", "role": "user", "content": "Go" }])).await;
    assert_eq!(attempts(&client, "r").await, [1, 1, 1]);
    post(&client, "/v1/runs/r/controls", &json!({ "control": "approve", "actionId": "ask" })).await;
    wait_for_status(&client, "r", "completed").await;
    assert_eq!(attempts(&client, "r").await, [1, 1, 1]);
}
