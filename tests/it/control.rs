//! Controls: each request reaches its owner once, in order and across crashes, and changes nothing by itself.

use crate::harness::{
    AUDIENCES, Client, ClockedProcess, Process, Response, environment, fact, repository, serve_until, storage_in, with_timeout,
};
use futures_util::{SinkExt, StreamExt};
use proscenium::control::{ATTEMPTS_MAX, CONTROL_BYTES_MAX};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::control::{CLOSED_CONTROLS_MAX, OPEN_CONTROLS_MAX};
use proscenium::log::embedded::Sync;
use proscenium::serve::maintenance::controls::ControlMaintenance;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

fn server(store: Storage) -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap()
}

/// Starts a server in memory; returns its client and the maintenance of its controls.
async fn start_with_maintenance() -> (Client, ControlMaintenance) {
    let server = server(Storage::memory());
    let maintenance = server.control_maintenance();
    (serve_until(server, std::future::pending()).await.0, maintenance)
}

async fn client() -> Client {
    start_with_maintenance().await.0
}

/// Runs the maintenance as of this many seconds from now.
async fn run_maintenance_after(maintenance: &ControlMaintenance, seconds: i64) -> usize {
    let now = Instant::now() + Duration::from_secs(seconds.unsigned_abs());
    maintenance.run_once(now, jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).await.unwrap()
}

async fn post_json(client: &Client, path: &str, body: Value) -> Response {
    client.post(path, &[("content-type", "application/json")], body.to_string()).await
}

/// Submits a control to a run, asserts its acceptance, and returns its id.
async fn submit(client: &Client, run: &str, body: Value) -> String {
    accepted_id(&post_json(client, &format!("/v1/runs/{run}/controls"), body).await)
}

fn accepted_id(answer: &Response) -> String {
    assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.headers["cache-control"], "no-store");
    let payloads = answer.json();
    assert_eq!((payloads["status"].as_str(), payloads.as_object().unwrap().len()), (Some("queued"), 2), "{payloads}");
    payloads["controlId"].as_str().expect("the answer has an id").to_owned()
}

async fn submit_rejected(client: &Client, run: &str, body: Value, status: u16, code: &str) -> Value {
    post_json(client, &format!("/v1/runs/{run}/controls"), body).await.problem(status, code)
}

async fn claim(client: &Client, agent: &str, query: &str) -> Vec<Value> {
    let claimed = client.post(&format!("/v1/agents/{agent}/controls/claim?{query}"), &[], "").await;
    assert_eq!(claimed.headers["cache-control"], "no-store");
    claimed.ok()["controls"].as_array().expect("the answer has controls").clone()
}

/// Claims the only queued control.
async fn claim_one(client: &Client, agent: &str) -> Value {
    let claimed = claim(client, agent, "wait=30").await;
    let [one] = claimed.as_slice() else { panic!("expected one control: {claimed:?}") };
    one.clone()
}

/// Settles a claimed control.
async fn settle(client: &Client, handed: &Value, how: &str, mut body: Value) -> Response {
    body["lease"] = handed["lease"].clone();
    post_json(client, &format!("/v1/controls/{}/{how}", handed["controlId"].as_str().unwrap()), body).await
}

async fn ack(client: &Client, handed: &Value) -> Response {
    settle(client, handed, "ack", json!({})).await
}

fn ids(controls: &[Value]) -> Vec<&str> {
    controls.iter().map(|control| control["controlId"].as_str().expect("a control has an id")).collect()
}

async fn list_controls(client: &Client, run: &str, query: &str) -> Vec<Value> {
    client.get(&format!("/v1/runs/{run}/controls?{query}")).await.ok()["controls"].as_array().unwrap().clone()
}

/// Reads each control's id and status.
async fn statuses(client: &Client, run: &str) -> Vec<(String, String)> {
    let listed = list_controls(client, run, "audience=internal").await;
    let payloads = |control: &Value, member: &str| control[member].as_str().unwrap().to_owned();
    listed.iter().map(|control| (payloads(control, "controlId"), payloads(control, "status"))).collect()
}

/// Reads the run's control.changed events.
async fn changes(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let mut events = client.read_events(run, &format!("type=control.changed&audience={audience}"), 1000).await;
    for event in &mut events {
        crate::schema::assert_valid("agentui-event.schema.json", event);
        assert_eq!(event["owner"], "session");
        let decided_by = event["payload"].as_object_mut().unwrap().shift_remove("decidedBy").expect("the control has a maker");
        assert_eq!(decided_by["via"], "rest");
    }
    events
}

/// Reads the statuses of the run's control.changed events.
async fn read_statuses_in_log(client: &Client, run: &str) -> Vec<String> {
    let changes = changes(client, run, "internal").await;
    changes.iter().map(|event| event["payload"]["status"].as_str().expect("an event has a status").to_owned()).collect()
}

async fn read_action(client: &Client, run: &str, audience: &str) -> Option<Value> {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityType"] == "action").map(|a| a["content"].clone())
}

fn action_required(action: &str, members: Value) -> Value {
    let mut asks = fact("action.required", json!({"actionId": action, "payload": {"kind": "tool_approval"}}));
    asks.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    asks
}

fn action_resolved(action: &str) -> Value {
    fact("action.resolved", json!({"actionId": action, "payload": {"outcome": "approved"}}))
}

fn started() -> Value {
    fact("run.started", json!({}))
}

/// Waits until this is the log's last control status.
async fn wait_for_status(client: &Client, run: &str, step: &str) {
    with_timeout(step, async {
        while read_statuses_in_log(client, run).await.last().map(String::as_str) != Some(step) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_approval_reaches_the_asking_teammate_and_only_its_fact_resolves_the_action() {
    let client = client().await;
    let start = fact("run.started", json!({"agentId": "lead", "sessionId": "s"}));
    let spawned = fact("agent.spawned", json!({"agentId": "scout", "payload": {"agentName": "scout"}}));
    let asked = action_required("a", json!({"agentId": "scout", "payload": {"kind": "delegated_permission"}}));
    client.append("r", &[start, spawned, asked]).await;
    let id = submit(&client, "r", json!({"control": "approve", "actionId": "a", "value": {"scope": "once"}})).await;
    assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 7, "{id}");
    let shown = read_action(&client, "r", "user").await.unwrap();
    assert_eq!(json!([shown["status"], shown["control"], shown["agentId"]]), json!(["pending", "submitted", "scout"]));

    assert_eq!(claim(&client, "lead", "").await, Vec::<Value>::new());
    assert_eq!(claim(&client, "default", "wait=0").await, Vec::<Value>::new());
    let handed = claim_one(&client, "scout").await;
    let mut payloads = handed.clone();
    for (member, of) in [("lease", "text"), ("leaseExpiresAt", "time"), ("createdAt", "time"), ("expiresAt", "time")] {
        let answer = payloads.as_object_mut().unwrap().shift_remove(member).expect(member);
        assert!(of == "text" || answer.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{member} is {answer}");
    }
    payloads.as_object_mut().unwrap().shift_remove("decidedBy").expect("the control has a maker");
    let expected = json!({"controlId": id, "runId": "r", "sessionId": "s", "control": "approve", "actionId": "a", "agentId": "scout",
        "value": {"scope": "once"}, "attempt": 1});
    assert_eq!(payloads, expected);
    assert_eq!(read_action(&client, "r", "user").await.unwrap()["control"], "submitted");

    // The runtime's facts precede its acknowledgement: the action is resolved, and the control is still its own.
    client.append("r", &[action_resolved("a")]).await;
    let shown = read_action(&client, "r", "user").await.unwrap();
    assert_eq!(json!([shown["status"], shown["outcome"], shown["control"]]), json!(["resolved", "approved", null]));
    assert_eq!(ack(&client, &handed).await.ok(), json!({"controlId": id, "status": "acked"}));
    assert_eq!(ack(&client, &handed).await.ok()["status"], "acked", "repeated");
    assert_eq!(read_statuses_in_log(&client, "r").await, ["submitted", "claimed", "acked"]);
    let events = changes(&client, "r", "user").await;
    for (event, payload) in events.iter().zip([
        json!({"status": "submitted", "controlId": id}),
        json!({"status": "claimed", "controlId": id, "attempt": 1}),
        json!({"status": "acked", "controlId": id, "attempt": 1}),
    ]) {
        assert_eq!(event["payload"], payload, "the event contains no value");
        let payloads = json!([event["control"], event["actionId"], event["agentId"], event["sessionId"]]);
        assert_eq!(payloads, json!(["approve", "a", "scout", "s"]));
    }
    assert_eq!(statuses(&client, "r").await, [(id, "acked".to_owned())]);
}

#[tokio::test]
async fn a_control_goes_to_its_agent_the_action_s_agent_the_run_s_agent_or_default() {
    let client = client().await;
    client
        .append(
            "led",
            &[
                fact("run.started", json!({"agentId": "lead"})),
                action_required("a", json!({"agentId": "scout"})),
                action_required("b", json!({"agentId": "scout"})),
            ],
        )
        .await;
    client.append("status_without_stop", &[started(), action_required("a", json!({}))]).await;
    for (run, body, agent) in [
        ("led", json!({"control": "reject", "actionId": "a", "agentId": "named"}), "named"),
        ("led", json!({"control": "reject", "actionId": "b"}), "scout"),
        ("led", json!({"control": "interrupt"}), "lead"),
        ("status_without_stop", json!({"control": "interrupt"}), "default"),
        ("status_without_stop", json!({"control": "reject", "actionId": "a"}), "default"),
    ] {
        let id = submit(&client, run, body.clone()).await;
        let handed = claim_one(&client, agent).await;
        assert_eq!((&handed["controlId"], &handed["agentId"]), (&json!(id), &json!(agent)), "{body}");
    }
}

#[tokio::test]
async fn an_invalid_control_is_rejected_with_the_expected_value() {
    let client = client().await;
    let question = action_required("q", json!({"payload": {"kind": "clarification"}}));
    let call = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "t"}}));
    client.append("r", &[started(), action_required("a", json!({})), question, call]).await;
    for (body, member) in [
        (json!({"control": "open_detail"}), "control"),
        (json!({"control": "explode"}), "control"),
        (json!({"control": "approve"}), "actionId"),
        (json!({"control": "answer", "actionId": "q"}), "value"),
        (json!({"control": "approve", "actionId": "q"}), "control"),
        (json!({"control": "export"}), "artifactId"),
        (json!({"control": "edit", "value": 1}), "actionId"),
        (json!({"control": "assign", "agentId": "x"}), "taskId"),
        (json!({"control": "retry", "toolCallId": "never"}), "toolCallId"),
    ] {
        let problem = submit_rejected(&client, "r", body.clone(), 422, "bad_control").await;
        assert_eq!(problem["member"], member, "{body}");
        assert!(!problem["expected"].is_null(), "{body}: {problem}");
    }
    submit_rejected(&client, "never", json!({"control": "stop"}), 404, "no_such_run").await;
    assert_eq!(client.get("/v1/runs/never").await.status, 404, "a rejected control writes no run");
    client.get("/v1/runs/never/controls").await.problem(404, "no_such_run");
    submit_rejected(&client, "r", json!({"control": "approve", "actionId": "never"}), 409, "action_not_pending").await;
    submit_rejected(&client, "r", json!([]), 422, "not_an_object").await;
    client.post("/v1/runs/r/controls", &[], "{").await.problem(400, "not_json");
    for kind in ["text/plain", "application/x-ndjson"] {
        let answer = client.post("/v1/runs/r/controls", &[("content-type", kind)], "{\"control\":\"stop\"}").await;
        answer.problem(415, "unsupported_media_type");
    }
    let deep = format!("{{\"control\":\"steer\",\"value\":{}1{}}}", "[".repeat(64), "]".repeat(64));
    client.post("/v1/runs/r/controls", &[], deep).await.problem(422, "too_deep");
    let large = json!({"control": "steer", "value": "x".repeat(CONTROL_BYTES_MAX)});
    submit_rejected(&client, "r", large, 413, "control_too_large").await;
    post_json(&client, "/v1/sessions/s/controls", json!({"control": "steer", "value": "x"})).await.problem(422, "bad_control");
    for query in ["leaseSeconds=0", "leaseSeconds=601", "wait=soon"] {
        client.post(&format!("/v1/agents/a/controls/claim?{query}"), &[], "").await.problem(400, "bad_query");
    }
    assert_eq!(changes(&client, "r", "internal").await, Vec::<Value>::new(), "rejected controls are not recorded");
    client.append("r", &[action_resolved("a")]).await;
    submit_rejected(&client, "r", json!({"control": "approve", "actionId": "a"}), 409, "action_not_pending").await;
}

#[tokio::test]
async fn an_ended_run_accepts_only_controls_that_do_not_need_it_to_continue() {
    let client = client().await;
    client.append("r", &[started(), action_required("a", json!({})), fact("run.finished", json!({}))]).await;
    for body in [
        json!({"control": "steer", "value": "left"}),
        json!({"control": "interrupt"}),
        json!({"control": "stop"}),
        json!({"control": "wait"}),
    ] {
        let problem = submit_rejected(&client, "r", body, 409, "run_ended").await;
        assert!(problem["detail"].as_str().unwrap().contains("completed"), "{problem}");
    }
    submit_rejected(&client, "r", json!({"control": "approve", "actionId": "a"}), 409, "action_not_pending").await;
    for body in [
        json!({"control": "retry"}),
        json!({"control": "stop", "taskId": "background"}),
        json!({"control": "export", "artifactId": "x"}),
        json!({"control": "rollback"}),
    ] {
        submit(&client, "r", body).await;
    }
    assert_eq!(claim(&client, "default", "").await.len(), 4);
    assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "completed", "a control does not reopen the run");
}

#[tokio::test]
async fn a_repeated_request_is_one_control_and_another_body_under_its_id_is_rejected() {
    let client = client().await;
    client.append("r", &[started(), action_required("a", json!({}))]).await;
    let body = json!({"controlId": "mine", "control": "answer", "actionId": "a", "value": {"x": 1, "y": 2}});
    let same = json!({"value": {"y": 2, "x": 1}, "actionId": "a", "control": "answer", "controlId": "mine"});
    let other = json!({"controlId": "mine", "control": "answer", "actionId": "a", "value": {"x": 1, "y": 3}});
    for body in [&body, &same, &body] {
        assert_eq!(submit(&client, "r", body.clone()).await, "mine");
    }
    let problem = submit_rejected(&client, "r", other.clone(), 409, "control_conflict").await;
    assert_eq!(problem["member"], "controlId");
    let handed = claim_one(&client, "default").await;
    assert_eq!(handed["value"], json!({"x": 1, "y": 2}));
    client.append("r", &[action_resolved("a")]).await;
    ack(&client, &handed).await.ok();
    assert_eq!(submit(&client, "r", body).await, "mine", "also after the control and the action are settled");
    submit_rejected(&client, "r", other, 409, "control_conflict").await;
    assert_eq!(read_statuses_in_log(&client, "r").await, ["submitted", "claimed", "acked"]);
    assert_eq!(claim(&client, "default", "").await, Vec::<Value>::new());
    // Ids are scoped to their run.
    client.append("r2", &[started()]).await;
    submit(&client, "r2", json!({"controlId": "mine", "control": "stop"})).await;
}

#[tokio::test]
async fn each_agent_s_controls_are_first_in_first_out_over_queue_and_steer() {
    let client = client().await;
    client.append("r1", &[started()]).await;
    client.append("r2", &[started()]).await;
    let mut asked = Vec::new();
    for (run, name) in [("r1", "queue"), ("r2", "steer"), ("r1", "steer"), ("r2", "queue"), ("r1", "send")] {
        asked.push((submit(&client, run, json!({"control": name, "value": name})).await, run, name));
    }
    let first = claim(&client, "default", "max=2").await;
    let mut handed = first.clone();
    handed.extend(claim(&client, "default", "max=100").await);
    let got: Vec<_> =
        handed.iter().map(|of| ["controlId", "runId", "control"].map(|member| of[member].as_str().unwrap().to_owned())).collect();
    let expected: Vec<_> = asked.iter().map(|(id, run, name)| [id.clone(), (*run).to_owned(), (*name).to_owned()]).collect();
    assert_eq!((first.len(), got), (2, expected));
    // A requeued control keeps its position.
    for at in [3, 0] {
        assert_eq!(settle(&client, &handed[at], "nack", json!({"requeue": true})).await.ok()["status"], "queued");
    }
    let again = claim(&client, "default", "").await;
    assert_eq!(ids(&again), [&*asked[0].0, &*asked[3].0]);
    assert_eq!((&again[0]["attempt"], &again[0]["value"]), (&json!(2), &json!("queue")));
}

#[tokio::test]
async fn a_waiting_claim_wakes_at_once_and_two_claims_never_get_the_same_control() {
    let client = client().await;
    client.append("r", &[started()]).await;
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { claim(&client, "default", "wait=60&max=1").await })
        })
        .collect();
    let mut asked = Vec::new();
    for n in 0..4 {
        asked.push(submit(&client, "r", json!({"control": "steer", "value": n})).await);
    }
    let mut got = Vec::new();
    for waiting in waiting {
        let claimed = with_timeout("a control", waiting).await.unwrap();
        got.extend(ids(&claimed).into_iter().map(str::to_owned));
        assert_eq!(claimed.len(), 1);
    }
    got.sort();
    asked.sort();
    assert_eq!(got, asked);
    assert_eq!(claim(&client, "default", "wait=0").await, Vec::<Value>::new());
}

#[tokio::test]
async fn the_binary_ends_waits_leases_and_controls_in_their_time() {
    let dir = tempfile::tempdir().unwrap();
    // The run stays active although it is silent.
    let clocked = ClockedProcess::start(dir.path(), &["--stale-after", "604800", "--settle-after", "604800"]);
    let client = &clocked.client;
    let seconds = Duration::from_secs;
    client.append("r", &[started()]).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { claim(&client, "default", "wait=60").await }
    });
    let passed = clocked.advance_until("the empty claim", seconds(5), async || waiting.is_finished()).await;
    assert_eq!(waiting.await.unwrap(), Vec::<Value>::new(), "a claim that times out is 200 and empty");
    assert!(passed >= seconds(55), "{passed:?}");

    // A worker takes the control again and again and never answers. In the end no worker does.
    let id = submit(client, "r", json!({"control": "steer", "value": "left"})).await;
    let status = async || statuses(client, "r").await.remove(0).1;
    for attempt in 1..=ATTEMPTS_MAX {
        assert_eq!(claim_one(client, "default").await["attempt"], attempt);
        // After the last lease the control is queued for a moment, until it is closed.
        let after = if attempt == ATTEMPTS_MAX { "expired" } else { "queued" };
        let passed = clocked.advance_until("the end of the lease", seconds(5), async || status().await == after).await;
        assert!(passed >= seconds(25), "{passed:?}");
    }
    assert_eq!(statuses(client, "r").await, [(id, "expired".into())]);
    assert_eq!(changes(client, "r", "user").await.pop().unwrap()["payload"]["reason"], "never_answered");

    submit(client, "r", json!({"control": "steer", "value": "right"})).await;
    let status = async || statuses(client, "r").await.remove(1).1;
    let passed =
        clocked.advance_until("the end of the control", Duration::from_hours(1), async || status().await == "expired").await;
    assert!(passed >= Duration::from_hours(24), "{passed:?}");
    assert_eq!(changes(client, "r", "user").await.pop().unwrap()["payload"]["reason"], "not_taken_in_time");
}

#[tokio::test]
async fn an_unanswered_claim_is_requeued_and_its_lease_is_lost() {
    let (client, maintenance) = start_with_maintenance().await;
    client.append("r", &[started()]).await;
    let id = submit(&client, "r", json!({"control": "steer", "value": "left"})).await;
    let first = claim_one(&client, "default").await;
    assert_eq!(statuses(&client, "r").await, [(id.clone(), "claimed".into())]);
    assert_eq!(run_maintenance_after(&maintenance, 29).await, 0);
    assert_eq!(claim(&client, "default", "").await, Vec::<Value>::new());
    // A claim is waiting when the control is requeued.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { claim(&client, "default", "wait=60&leaseSeconds=600").await }
    });
    tokio::task::yield_now().await;
    run_maintenance_after(&maintenance, 31).await;
    let second = with_timeout("the control again", waiting).await.unwrap().remove(0);
    assert_eq!(json!([second["controlId"], second["attempt"]]), json!([id, 2]));
    assert_ne!(first["lease"], second["lease"]);
    assert_eq!(ack(&client, &first).await.problem(409, "lease_lost")["member"], "lease");
    settle(&client, &first, "nack", json!({})).await.problem(409, "lease_lost");
    let mut elsewhere = second.clone();
    elsewhere["controlId"] = json!("another");
    ack(&client, &elsewhere).await.problem(409, "lease_lost");
    post_json(&client, &format!("/v1/controls/{id}/ack"), json!({})).await.problem(422, "bad_member");
    assert_eq!(statuses(&client, "r").await, [(id, "claimed".into())]);
    ack(&client, &second).await.ok();
    assert_eq!(read_statuses_in_log(&client, "r").await, ["submitted", "claimed", "claimed", "acked"]);
}

#[tokio::test]
async fn a_nacked_control_may_be_requeued_and_expires_after_too_many_attempts() {
    let (client, maintenance) = start_with_maintenance().await;
    client.append("r", &[started(), action_required("a", json!({}))]).await;
    let approve = json!({"control": "approve", "actionId": "a"});
    let refused = submit(&client, "r", approve.clone()).await;
    let handed = claim_one(&client, "default").await;
    let given = settle(&client, &handed, "nack", json!({"requeue": true, "reason": "busy"})).await.ok();
    assert_eq!(given, json!({"controlId": refused, "status": "queued"}));
    assert_eq!(read_action(&client, "r", "user").await.unwrap()["control"], "submitted", "the action is still submitted");
    let handed = claim_one(&client, "default").await;
    let reason = "no: sk-live-abcdef0123456789abcdef";
    let answer = settle(&client, &handed, "nack", json!({"reason": reason})).await.ok();
    assert_eq!(answer["status"], "nacked");
    assert_eq!(read_action(&client, "r", "user").await.unwrap()["control"], Value::Null, "the action may be decided again");
    let changes = changes(&client, "r", "user").await;
    let payloads: Vec<_> = changes.iter().map(|event| event["payload"].clone()).collect();
    let id = &refused;
    assert_eq!(
        payloads,
        [
            json!({"status": "submitted", "controlId": id}),
            json!({"status": "claimed", "controlId": id, "attempt": 1}),
            json!({"status": "nacked", "controlId": id, "attempt": 1, "requeued": true, "reason": "busy"}),
            json!({"status": "claimed", "controlId": id, "attempt": 2}),
            json!({"status": "nacked", "controlId": id, "attempt": 2, "reason": "no: [redacted]"}),
        ]
    );
    assert_eq!(list_controls(&client, "r", "").await[0]["reason"], "no: [redacted]");

    let again = submit(&client, "r", approve).await;
    for attempt in 1..=ATTEMPTS_MAX {
        assert_eq!(claim_one(&client, "default").await["attempt"], attempt);
        assert_eq!(run_maintenance_after(&maintenance, 31).await, usize::from(attempt == ATTEMPTS_MAX), "attempt {attempt}");
    }
    assert_eq!(statuses(&client, "r").await, [(refused, "nacked".into()), (again, "expired".into())]);
    assert_eq!(read_action(&client, "r", "user").await.unwrap()["control"], Value::Null);
    let last = self::changes(&client, "r", "user").await.pop().unwrap();
    assert_eq!(json!([last["payload"]["status"], last["payload"]["reason"]]), json!(["expired", "never_answered"]));
}

#[tokio::test]
async fn a_control_expires_at_its_ttl_its_action_s_expiry_or_after_a_day() {
    let (client, maintenance) = start_with_maintenance().await;
    let at = |seconds: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
    let hurried = action_required("hurried", json!({"payload": {"kind": "tool_approval", "expiresAt": at(3600)}}));
    let late = action_required("late", json!({"payload": {"kind": "tool_approval", "expiresAt": at(-3600)}}));
    client.append("r", &[started(), action_required("a", json!({})), hurried, late]).await;
    submit_rejected(&client, "r", json!({"control": "approve", "actionId": "late"}), 409, "action_expired").await;
    for (body, expires, reason) in [
        (json!({"controlId": "ttl", "control": "approve", "actionId": "a", "ttlSeconds": 60}), 60, "not_taken_in_time"),
        (json!({"controlId": "at", "control": "approve", "actionId": "a", "expiresAt": at(600)}), 600, "not_taken_in_time"),
        (json!({"controlId": "action", "control": "approve", "actionId": "hurried"}), 3600, "action_expired"),
        (json!({"controlId": "day", "control": "approve", "actionId": "a"}), 86_400, "not_taken_in_time"),
    ] {
        let id = submit(&client, "r", body).await;
        run_maintenance_after(&maintenance, expires - 30).await;
        let status = async || statuses(&client, "r").await.into_iter().find(|(of, _)| *of == id).unwrap().1;
        assert_eq!(status().await, "queued", "{id}");
        run_maintenance_after(&maintenance, expires + 30).await;
        assert_eq!(status().await, "expired", "{id}");
        let last = changes(&client, "r", "user").await.pop().unwrap();
        assert_eq!(json!([last["payload"]["status"], last["payload"]["reason"]]), json!(["expired", reason]));
    }
    assert_eq!(claim(&client, "default", "").await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_obsolete_control_expires_unless_it_is_claimed() {
    let client = client().await;
    client.append("r", &[started(), action_required("a", json!({}))]).await;
    let ours = submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    client.append("r", &[action_resolved("a")]).await;
    wait_for_status(&client, "r", "expired").await;
    assert_eq!(statuses(&client, "r").await, [(ours, "expired".into())]);
    let steer = submit(&client, "r", json!({"control": "steer", "value": "left"})).await;
    let held = claim_one(&client, "default").await;
    let stop = submit(&client, "r", json!({"control": "stop"})).await;
    let retry = submit(&client, "r", json!({"control": "retry"})).await;
    client.append("r", &[fact("run.finished", json!({}))]).await;
    wait_for_status(&client, "r", "expired").await;
    let payloads = changes(&client, "r", "user").await.pop().unwrap();
    assert_eq!(json!([payloads["payload"]["controlId"], payloads["payload"]["reason"]]), json!([stop, "run_ended"]));
    assert_eq!(ids(&claim(&client, "default", "").await), [retry], "a control that outlives the run stays");
    ack(&client, &held).await.ok();
    assert_eq!(held["controlId"], steer);
    assert_eq!(statuses(&client, "r").await[1], (steer, "acked".into()));

    // A control for an attempt that has ended.
    client.append("again", &[started()]).await;
    submit(&client, "again", json!({"control": "interrupt"})).await;
    client.append("again", &[fact("run.failed", json!({})), started()]).await;
    wait_for_status(&client, "again", "expired").await;
    assert_eq!(client.get("/v1/runs/again").await.ok()["status"], "accepted");
}

#[tokio::test]
async fn an_action_hidden_from_an_audience_takes_no_controls_from_it() {
    let client = client().await;
    let call = fact("tool.started", json!({"toolCallId": "spy", "audience": "internal", "payload": {"toolName": "spy"}}));
    let hidden = action_required("hidden", json!({"audience": "dashboard"}));
    let shown = action_required("shown", json!({"toolCallId": "spy"}));
    let mole = fact("agent.spawned", json!({"agentId": "mole", "audience": "internal", "payload": {"agentName": "mole"}}));
    client.append("r", &[started(), call, hidden, shown, mole]).await;
    let typed = json!({"control": "answer", "actionId": "hidden", "value": "typed-in-confidence"});
    submit_rejected(&client, "r", typed.clone(), 409, "action_not_pending").await;
    let ask_as =
        async |audience: &str, body: Value| post_json(&client, &format!("/v1/runs/r/controls?audience={audience}"), body).await;
    ask_as("unknown", typed.clone()).await.problem(400, "bad_audience");
    let of_hidden = accepted_id(&ask_as("dashboard", typed).await);
    let of_call = json!({"control": "approve", "actionId": "shown", "toolCallId": "spy"});
    submit_rejected(&client, "r", of_call.clone(), 422, "bad_control").await;
    let of_shown = accepted_id(&ask_as("internal", of_call).await);
    let to_mole = accepted_id(&ask_as("internal", json!({"control": "continue_agent", "agentId": "mole", "value": "dig"})).await);
    let everything = [&of_hidden, &of_shown, &to_mole];
    for (audience, seen) in AUDIENCES.into_iter().zip([&everything[1..2], &everything[..2], &everything[..]]) {
        let payloads = changes(&client, "r", audience).await;
        let of: Vec<_> = payloads.iter().map(|event| event["payload"]["controlId"].as_str().unwrap()).collect();
        assert_eq!(of, seen, "{audience}");
        let call = payloads.iter().find(|event| event["actionId"] == "shown").unwrap()["toolCallId"].clone();
        assert_eq!(call, if audience == "internal" { json!("spy") } else { Value::Null });
        let listed = list_controls(&client, "r", &format!("audience={audience}")).await;
        assert!(listed.iter().all(|of| of.get("value").is_none()), "{audience}: {listed:?}");
        assert_eq!(ids(&listed), *seen, "{audience}");
        let export = format!("{:?} {listed:?}", client.export("r", &format!("audience={audience}")).await);
        assert!(!export.contains("typed-in-confidence") && !export.contains("\"dig\""), "{audience}: {export}");
    }
    assert_eq!(claim_one(&client, "mole").await["value"], "dig");
}

/// Returns whether a file below the folder contains this text.
fn contains_text(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => contains_text(&path, text),
            false => memchr::memmem::find(&std::fs::read(&path).unwrap_or_default(), text.as_bytes()).is_some(),
        }
    })
}

#[tokio::test]
async fn a_secret_is_given_to_the_claimer_and_never_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let credential = action_required("login", json!({"payload": {"kind": "credential_request"}}));
    client.append("r", &[started(), action_required("a", json!({})), credential]).await;
    let key = "sk-live-abcdef0123456789abcdef";
    let body = json!({"controlId": "key", "control": "answer", "actionId": "a", "value": {"note": "for you", "text": key}});
    submit(&client, "r", body.clone()).await;
    submit(&client, "r", body.clone()).await;
    let mut other = body;
    other["value"]["text"] = json!("sk-live-abcdef0123456789abcdeg");
    submit_rejected(&client, "r", other, 409, "control_conflict").await;
    // Only the question marks this value as a secret.
    let word = "correct-horse-battery";
    let login = json!({"controlId": "login", "control": "answer", "actionId": "login", "value": word});
    submit(&client, "r", login.clone()).await;
    submit(&client, "r", login).await;
    let handed = claim(&client, "default", "leaseSeconds=600").await;
    assert_eq!(
        handed.iter().map(|of| of["value"].clone()).collect::<Vec<_>>(),
        [json!({"note": "for you", "text": key}), json!(word)]
    );
    assert!(handed.iter().all(|of| of.get("redacted").is_none()), "{handed:?}");
    assert!(contains_text(dir.path(), "for you"), "the check finds text in the files");
    for secret in [key, word] {
        assert!(!contains_text(dir.path(), secret), "{secret} is on disk");
    }
    server.kill();

    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let handed = claim(&client, "default", "").await;
    let payloads: Vec<_> = handed.iter().map(|of| json!([of["value"], of["redacted"], of["attempt"]])).collect();
    assert_eq!(payloads, [json!([{"note": "for you", "text": "[redacted]"}, true, 2]), json!(["[redacted]", true, 2])]);
}

#[tokio::test]
async fn sessions_have_controls_of_their_own_and_a_send_creates_the_session() {
    let client = client().await;
    let path = "/v1/sessions/s/controls";
    client.get(path).await.problem(404, "no_such_session");
    post_json(&client, path, json!({"control": "close"})).await.problem(404, "no_such_session");
    let send =
        accepted_id(&post_json(&client, path, json!({"control": "send", "value": {"text": "hello"}, "agentId": "lead"})).await);
    let close = accepted_id(&post_json(&client, path, json!({"control": "close"})).await);
    let handed = claim_one(&client, "lead").await;
    let payloads = ["controlId", "sessionId", "runId", "control", "value"].map(|member| handed[member].clone());
    assert_eq!(json!(payloads), json!([send, "s", null, "send", {"text": "hello"}]));
    ack(&client, &handed).await.ok();
    let listed = client.get(path).await.ok()["controls"].clone();
    let payloads: Vec<_> = listed.as_array().unwrap().iter().map(|of| json!([of["controlId"], of["status"]])).collect();
    assert_eq!(payloads, [json!([send, "acked"]), json!([close, "queued"])]);
    assert_eq!(client.get("/v1/sessions/s").await.ok()["sessionId"], "s");
    // A session that has only runs gets its own log with its first control.
    client.append("r", &[fact("run.started", json!({"sessionId": "t"}))]).await;
    assert_eq!(client.get("/v1/sessions/t/controls").await.ok(), json!({"controls": [], "nextCursor": null}));
    accepted_id(&post_json(&client, "/v1/sessions/t/controls", json!({"control": "close"})).await);
    // Actions of the session's own log accept controls, too.
    let asked = json!([action_required("a", json!({}))]).to_string();
    client.post("/v1/sessions/t/facts", &[("content-type", "application/json")], asked).await.ok();
    accepted_id(&post_json(&client, "/v1/sessions/t/controls", json!({"control": "approve", "actionId": "a"})).await);
    let approve = json!({"control": "approve", "actionId": "never"});
    post_json(&client, "/v1/sessions/t/controls", approve).await.problem(409, "action_not_pending");
}

#[tokio::test]
async fn open_controls_are_limited_closed_ones_are_forgotten_and_lists_are_paged() {
    let client = client().await;
    client.append("r", &[started()]).await;
    let steer = |n: usize| json!({"controlId": format!("c{n}"), "control": "steer", "value": n});
    for n in 0..OPEN_CONTROLS_MAX {
        submit(&client, "r", steer(n)).await;
    }
    let problem = submit_rejected(&client, "r", steer(OPEN_CONTROLS_MAX), 429, "too_many_controls").await;
    assert_eq!(problem["limit"], OPEN_CONTROLS_MAX);
    submit(&client, "r", steer(0)).await;
    let page = client.get("/v1/runs/r/controls?limit=60&activation=7").await.ok();
    assert_eq!((page["controls"].as_array().unwrap().len(), &page["activation"]), (60, &json!("7")));
    let next = page["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/runs/r/controls?limit=60&cursor={next}")).await.ok();
    assert_eq!(ids(rest["controls"].as_array().unwrap()), ["c60", "c61", "c62", "c63"]);
    assert_eq!(rest["nextCursor"], Value::Null);

    let mut asked = OPEN_CONTROLS_MAX;
    while asked < CLOSED_CONTROLS_MAX + 10 {
        for handed in claim(&client, "default", "max=100").await {
            ack(&client, &handed).await.ok();
            submit(&client, "r", steer(asked)).await;
            asked += 1;
        }
    }
    for handed in claim(&client, "default", "max=100").await {
        ack(&client, &handed).await.ok();
    }
    let kept = list_controls(&client, "r", "").await;
    assert_eq!(kept.len(), CLOSED_CONTROLS_MAX);
    assert_eq!(kept[0]["controlId"], format!("c{}", asked - CLOSED_CONTROLS_MAX), "the log forgets the oldest");
}

#[tokio::test]
async fn erasing_a_run_erases_its_controls() {
    let client = client().await;
    client.append("r", &[started()]).await;
    submit(&client, "r", json!({"controlId": "out", "control": "steer", "value": 1})).await;
    let out = claim_one(&client, "default").await;
    submit(&client, "r", json!({"controlId": "in", "control": "steer", "value": 1})).await;
    assert_eq!(client.delete("/v1/runs/r").await.status, 204);
    assert_eq!(claim(&client, "default", "").await, Vec::<Value>::new());
    ack(&client, &out).await.problem(409, "lease_lost");
    client.get("/v1/runs/r/controls").await.problem(410, "erased");
    client.append("r", &[started()]).await;
    assert_eq!(list_controls(&client, "r", "").await, Vec::<Value>::new());
    submit(&client, "r", json!({"controlId": "in", "control": "steer", "value": 2})).await;
    assert_eq!(claim_one(&client, "default").await["value"], 2);
}

#[tokio::test]
async fn compaction_keeps_controls() {
    let server = server(Storage::memory());
    let compactor = server.compactor(Duration::ZERO);
    let client = serve_until(server, std::future::pending()).await.0;
    let chunks = (0..50).map(|_| fact("text.delta", json!({"messageId": "m", "payload": {"text": "x"}})));
    let all: Vec<_> = std::iter::once(started()).chain(chunks).collect();
    client.append("r", &all).await;
    let ended =
        [fact("text.final", json!({"messageId": "m", "payload": {"text": "x".repeat(50)}})), fact("run.finished", json!({}))];
    client.append("r", &ended).await;
    let id = submit(&client, "r", json!({"control": "retry"})).await;
    with_timeout("the compaction", async {
        while compactor.run_once().await.unwrap().rows == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.get("/v1/runs/r").await.ok()["compacted"], true);
    let handed = claim_one(&client, "default").await;
    assert_eq!(handed["controlId"], id);
    ack(&client, &handed).await.ok();
    assert_eq!(read_statuses_in_log(&client, "r").await, ["submitted", "claimed", "acked"]);
}

#[tokio::test]
async fn a_restart_restores_every_queue_and_requeues_claimed_controls() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Storage::open(dir.path(), Sync::Never).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (client, serving) = serve_until(server(open()), async { stopped.await.unwrap() }).await;
    for run in ["r1", "r2"] {
        client.append(run, &[started(), action_required("a", json!({}))]).await;
    }
    let mut asked = Vec::new();
    for n in 0..6 {
        let run = if n % 2 == 0 { "r1" } else { "r2" };
        asked.push(submit(&client, run, json!({"control": "steer", "value": n})).await);
    }
    let done = claim(&client, "default", "max=1").await.remove(0);
    ack(&client, &done).await.ok();
    let out = claim(&client, "default", "max=2&leaseSeconds=600").await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { claim(&client, "idle", "wait=60").await }
    });
    with_timeout("the poll", async {
        while client.get("/copilotkit/info").await.ok()["agents"]["idle"]["present"] != true {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    stop.send(()).unwrap();
    assert_eq!(with_timeout("the poll's end with the server", waiting).await.unwrap(), Vec::<Value>::new());
    with_timeout("the end of the server", serving).await.unwrap();

    let again = server(storage_in(dir.path(), Sync::Never).await);
    let (client, _serving) = serve_until(again, std::future::pending()).await;
    ack(&client, &out[0]).await.problem(409, "lease_lost");
    assert_eq!(ack(&client, &done).await.problem(409, "lease_lost")["member"], "lease");
    let later = submit(&client, "r1", json!({"control": "steer", "value": "new"})).await;
    asked.push(later);
    let handed = claim(&client, "default", "max=100").await;
    assert_eq!(ids(&handed), asked[1..].iter().map(String::as_str).collect::<Vec<_>>());
    let attempts: Vec<_> = handed.iter().map(|of| of["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [2, 2, 1, 1, 1, 1]);
    assert_eq!(handed[0]["value"], 1);
}

/// The number of kills, and the minimum number of submissions and of claims before each.
const ROUNDS: u64 = 12;
const PROGRESS: u32 = 2;

#[tokio::test]
async fn a_kill_at_any_moment_loses_no_control_and_repeats_no_attempt_number() {
    let dir = tempfile::tempdir().unwrap();
    let (mut asked, mut acked, mut attempts) = (0_u64, 0_u64, BTreeMap::<String, u64>::new());
    let mut pause = 0x9e37_79b9_u64;
    for round in 0..ROUNDS {
        let server = Process::start_in(dir.path());
        let client = Client::new(server.at);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let base = format!("http://{}", server.at);
        if round == 0 {
            client.append("r", &[started()]).await;
        }
        let (submitted, taken) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let asking = tokio::spawn({
            let (http, base, submitted) = (http.clone(), base.clone(), submitted.clone());
            async move {
                let mut next = asked;
                loop {
                    let body = json!({"controlId": format!("c{next}"), "control": "queue", "value": next}).to_string();
                    let Ok(answer) = http.post(format!("{base}/v1/runs/r/controls")).body(body).send().await else { return next };
                    match answer.status().as_u16() {
                        202 => {
                            next += 1;
                            submitted.add_permits(1);
                        }
                        429 => tokio::time::sleep(Duration::from_millis(1)).await,
                        other => panic!("{other}"),
                    }
                }
            }
        });
        let working = tokio::spawn({
            let (known, taken) = (attempts.clone(), taken.clone());
            async move {
                let (mut known, mut done) = (known, 0);
                loop {
                    let claiming = http.post(format!("{base}/v1/agents/default/controls/claim?wait=5&max=3")).send().await;
                    let Ok(answer) = claiming else { return (known, done) };
                    let Ok(answer) = answer.json::<Value>().await else { return (known, done) };
                    for handed in answer["controls"].as_array().unwrap() {
                        let id = handed["controlId"].as_str().unwrap().to_owned();
                        let attempt = handed["attempt"].as_u64().unwrap();
                        let before = known.insert(id.clone(), attempt).unwrap_or(0);
                        assert!(attempt > before, "{id} again as attempt {attempt}");
                        assert_eq!(format!("c{}", handed["value"]), id);
                        let body = json!({"lease": handed["lease"]}).to_string();
                        match http.post(format!("{base}/v1/controls/{id}/ack")).body(body).send().await {
                            Ok(answer) => assert_eq!(answer.status(), 200),
                            Err(_) => return (known, done),
                        }
                        done += 1;
                        taken.add_permits(1);
                    }
                }
            }
        });
        pause = pause.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Kill at any moment after both sides have made progress.
        for progress in [&submitted, &taken] {
            with_timeout("progress", progress.acquire_many(PROGRESS)).await.unwrap().forget();
        }
        tokio::time::sleep(Duration::from_micros((pause >> 33) % 90_000)).await;
        server.kill();
        asked = with_timeout("the submitter's end", asking).await.unwrap();
        let (known, done) = with_timeout("the worker's end", working).await.unwrap();
        (attempts, acked) = (known, acked + done);
    }
    let least = u64::from(PROGRESS) * ROUNDS;
    assert!(asked >= least && acked >= least, "{asked} submitted, {acked} acknowledged");
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    loop {
        let claimed = claim(&client, "default", "max=100").await;
        if claimed.is_empty() {
            break;
        }
        for handed in claimed {
            let id = handed["controlId"].as_str().unwrap().to_owned();
            let attempt = handed["attempt"].as_u64().unwrap();
            assert!(attempt > attempts.insert(id.clone(), attempt).unwrap_or(0), "{id}");
            ack(&client, &handed).await.ok();
        }
    }
    for n in 0..asked {
        assert!(attempts.contains_key(&format!("c{n}")), "c{n} was recorded and never claimed");
    }
    let mut payloads = BTreeMap::<String, Vec<String>>::new();
    for event in changes(&client, "r", "internal").await {
        let text = |member: &str| event["payload"][member].as_str().unwrap().to_owned();
        payloads.entry(text("controlId")).or_default().push(text("status"));
    }
    for (id, steps) in payloads {
        assert_eq!(steps.iter().filter(|step| *step == "submitted").count(), 1, "{id}: {steps:?}");
        assert_eq!(steps.iter().filter(|step| *step == "acked").count(), 1, "{id}: {steps:?}");
        assert_eq!(steps.iter().filter(|step| *step == "claimed").count() as u64, attempts[&id], "{id}: {steps:?}");
    }
}

/// Reads a recording of a source.
fn read_recording(source: &str, name: &str) -> String {
    std::fs::read_to_string(repository(&format!("tests/recordings/{source}/{name}.ndjson"))).unwrap()
}

#[tokio::test]
async fn an_ambiguous_end_counts_as_cancelled_if_a_stop_was_requested() {
    let client = client().await;
    let executor = "handwritten-port-error_executor_throws";
    let domexception = "handwritten-port-abort_domexception_looks_like_error";
    for (source, folder, name, status_without_stop, asked) in [
        ("ethos", "ethos", "abort_mid_text", "completed", "cancelled"),
        ("ethos", "ethos", "abort_mid_text_provider_throws", "failed", "cancelled"),
        ("ethos", "ethos", "abort_before_start", "cancelled", "cancelled"),
        ("ethos", "ethos", "error_context_overflow", "failed", "failed"),
        ("ethos", "ethos", "error_llm_midstream", "failed", "failed"),
        ("ethos", "ethos", "refused_personality_locked", "failed", "failed"),
        ("ethos", "ethos", "halt_budget_then_done", "interrupted", "interrupted"),
        ("turnrunner", "turn-runner", domexception, "failed", "cancelled"),
        // This recording cannot be distinguished from the one above.
        ("turnrunner", "turn-runner", executor, "failed", "cancelled"),
        ("turnrunner", "turn-runner", &format!("{executor}_expanded"), "failed", "failed"),
        ("turnrunner", "turn-runner", "handwritten-port-error_nack", "failed", "failed"),
        ("turnrunner", "turn-runner", "handwritten-port-short_text", "completed", "completed"),
        ("awaken", "awaken", "cancel_mid_tool", "cancelled", "cancelled"),
        ("awaken", "awaken", "server_mailbox_error_permanent", "failed", "failed"),
    ] {
        let text = read_recording(folder, name);
        let (begin, rest) = text.split_once('\n').unwrap();
        let send = async |run: &str, text: &str| {
            client.post_lines(&format!("/v1/runs/{run}/facts?source={source}"), text.to_owned()).await.ok();
        };
        let ended = async |run: &str| client.get(&format!("/v1/runs/{run}?audience=internal")).await.ok()["status"].clone();
        let run = |how: &str| format!("{source}-{name}-{how}");
        let (plain, stopped, named, refused) = (run("plain"), run("stopped"), run("named"), run("refused"));
        send(&plain, &text).await;
        assert_eq!(ended(&plain).await, status_without_stop, "{source} {name}");
        for (run, body) in [
            (&stopped, json!({"control": "stop"})),
            (&named, json!({"control": "interrupt", "toolCallId": null, "agentId": "own"})),
        ] {
            send(run, begin).await;
            let id = submit(&client, run, body).await;
            send(run, rest).await;
            assert_eq!(ended(run).await, asked, "{source} {name}");
            let ends = client.read_events(run, "type=run.finished,run.failed&audience=user", 10).await;
            if status_without_stop != asked {
                let [end] = ends.as_slice() else { panic!("expected one end: {ends:?}") };
                let payload = &end["payload"];
                let payloads = json!([end["type"], end["phase"], payload["status"], payload["cancelledBy"], payload["error"]]);
                assert_eq!(payloads, json!(["run.finished", "cancelled", "cancelled", id, null]));
                assert_eq!(payload["cause"].is_object(), status_without_stop == "failed", "{payload}");
            }
        }
        send(&refused, begin).await;
        submit(&client, &refused, json!({"control": "stop", "agentId": "worker"})).await;
        let handed = claim_one(&client, "worker").await;
        settle(&client, &handed, "nack", json!({})).await.ok();
        submit(&client, &refused, json!({"control": "stop", "taskId": "another"})).await;
        submit(&client, &refused, json!({"control": "steer", "value": "go on"})).await;
        send(&refused, rest).await;
        assert_eq!(ended(&refused).await, status_without_stop, "{source} {name}: its owner refused");
    }
}

#[tokio::test]
async fn a_stop_request_applies_to_the_attempt_in_which_it_was_made() {
    let client = client().await;
    let text = read_recording("ethos", "abort_mid_text");
    let (begin, rest) = text.split_once('\n').unwrap();
    let send = async |text: &str| client.post_lines("/v1/runs/r/facts?source=ethos", text.to_owned()).await.ok();
    let status = async || client.get("/v1/runs/r").await.ok()["status"].clone();
    send(begin).await;
    submit(&client, "r", json!({"control": "stop"})).await;
    ack(&client, &claim_one(&client, "default").await).await.ok();
    send(rest).await;
    assert_eq!(status().await, "cancelled", "also after the stop is acknowledged");
    send(&text).await;
    assert_eq!(json!([status().await, client.get("/v1/runs/r").await.ok()["attempt"]]), json!(["completed", 2]));
    let shown = client.get("/v1/runs/r/activities").await.ok();
    let run = shown["activities"].as_array().unwrap().iter().find(|a| a["activityType"] == "run").unwrap();
    assert_eq!(run["content"]["status"], "completed");
}

struct Worker(WebSocketStream<TcpStream>);

impl Worker {
    async fn open(client: &Client) -> Self {
        let socket = TcpStream::connect(client.at).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(format!("ws://{}/v1/ws", client.at), socket).await.unwrap();
        Self(socket)
    }

    async fn send(&mut self, what: Value) {
        self.0.send(Message::text(what.to_string())).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        loop {
            match with_timeout("a message", self.0.next()).await.expect("the socket is open").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn request(&mut self, what: Value) -> Value {
        self.send(what).await;
        self.receive().await
    }
}

#[tokio::test]
async fn websocket_controls_are_pushed_up_to_max_and_answered_on_the_same_socket() {
    let client = client().await;
    client.append("r", &[started()]).await;
    let mut worker = Worker::open(&client).await;
    let payloads = worker.request(json!({"op": "claim", "id": "w", "agentId": "default", "max": 2, "leaseSeconds": 600})).await;
    assert_eq!(payloads, json!({"op": "claiming", "id": "w", "agentId": "default"}));
    let mut asked = Vec::new();
    for n in 0..4 {
        asked.push(submit(&client, "r", json!({"control": "steer", "value": n})).await);
    }
    let first = worker.receive().await;
    let payloads = ["op", "id", "controlId", "runId", "control", "value", "attempt"].map(|member| first[member].clone());
    assert_eq!(json!(payloads), json!(["control", "w", asked[0], "r", "steer", 0, 1]));
    let second = worker.receive().await;
    assert_eq!(second["controlId"], asked[1]);
    // Two controls are out, which is the requested maximum: the worker gets the next one after it has answered one.
    assert_eq!(worker.request(json!({"op": "ping", "id": 1})).await["op"], "pong");
    assert_eq!(ids(&claim(&client, "default", "max=1").await), [&*asked[2]], "claimed by another worker");
    worker.send(json!({"op": "ack", "id": 9, "control": asked[0], "lease": first["lease"]})).await;
    let mut messages = [worker.receive().await, worker.receive().await];
    messages.sort_by_key(|answer| answer["op"].as_str().unwrap().to_owned());
    assert_eq!(messages[0], json!({"op": "acked", "id": 9, "controlId": asked[0], "status": "acked"}));
    assert_eq!(json!([messages[1]["op"], messages[1]["controlId"]]), json!(["control", asked[3]]));
    let payloads = worker.request(json!({"op": "unclaim", "id": "w"})).await;
    assert_eq!(payloads, json!({"op": "unclaimed", "id": "w"}));
    let nack = json!({"op": "nack", "control": asked[1], "lease": second["lease"], "requeue": true, "reason": "leaving"});
    assert_eq!(worker.request(nack.clone()).await, json!({"op": "nacked", "controlId": asked[1], "status": "queued"}));
    assert_eq!(ids(&claim(&client, "default", "").await), [&*asked[1]]);
    // A publish has its own `ack`.
    let publish = json!({"op": "publish", "id": 3, "runId": "r", "facts": [{"type": "run.finished"}]});
    assert_eq!(worker.request(publish).await["op"], "ack");
    for (what, code) in [
        (json!({"op": "ack", "id": 1, "control": asked[0], "lease": "never"}), "lease_lost"),
        (json!({"op": "ack", "id": 1, "lease": "x"}), "missing_member"),
        (json!({"op": "ack", "id": 1, "control": "x"}), "missing_member"),
        (json!({"op": "nack", "id": 1, "control": "x", "lease": "x", "requeue": 7}), "bad_member"),
        (json!({"op": "claim", "agentId": "a"}), "missing_member"),
        (json!({"op": "claim", "id": 1}), "missing_member"),
        (json!({"op": "claim", "id": 1, "agentId": "a", "leaseSeconds": 601}), "bad_query"),
    ] {
        let refused = worker.request(what.clone()).await;
        assert_eq!(json!([refused["op"], refused["code"]]), json!(["error", code]), "{what}: {refused}");
    }
    assert_eq!(worker.request(json!({"op": "claim", "id": "twice", "agentId": "a"})).await["op"], "claiming");
    assert_eq!(worker.request(json!({"op": "claim", "id": "twice", "agentId": "b"})).await["code"], "id_in_use");
}

#[tokio::test]
async fn a_worker_that_disconnects_loses_its_controls_to_the_next_after_the_lease() {
    let (client, maintenance) = start_with_maintenance().await;
    client.append("r", &[started()]).await;
    let mut worker = Worker::open(&client).await;
    worker.request(json!({"op": "claim", "id": 1, "agentId": "default", "max": 1})).await;
    let id = submit(&client, "r", json!({"control": "steer", "value": 1})).await;
    assert_eq!(worker.receive().await["controlId"], id);
    drop(worker);
    let next = submit(&client, "r", json!({"control": "steer", "value": 2})).await;
    assert_eq!(ids(&claim(&client, "default", "wait=30").await), [&*next]);
    run_maintenance_after(&maintenance, 31).await;
    let handed = claim(&client, "default", "max=1").await;
    assert_eq!(json!([handed[0]["controlId"], handed[0]["attempt"]]), json!([id, 2]));
}

/// A session whose runs ask: `r1` and `r2` of agent `a`, and a run of agent `b`.
async fn asking_session(client: &Client) {
    for (run, agent) in [("r1", "a"), ("r2", "a"), ("other", "b")] {
        let start = fact("run.started", json!({"agentId": agent, "sessionId": "s"}));
        client.append(run, &[start, action_required(&format!("of-{run}"), json!({}))]).await;
    }
}

async fn send_to(client: &Client, agent: &str, members: Value) -> Response {
    let mut body = json!({"control": "send", "agentId": agent, "value": "Go on"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    post_json(client, "/v1/sessions/s/controls", body).await
}

/// Claims what is leasable now.
async fn claimable(client: &Client, agent: &str) -> Vec<Value> {
    claim(client, agent, "wait=0").await
}

#[tokio::test]
async fn a_queued_message_waits_for_every_pending_action_of_its_agent_and_decisions_pass_it() {
    let (client, maintenance) = start_with_maintenance().await;
    asking_session(&client).await;
    let queued = json!({"control": "queue", "value": "later", "ttlSeconds": 60});
    let id = accepted_id(&post_json(&client, "/v1/runs/r1/controls", queued).await);
    let elsewhere = json!({"control": "queue", "agentId": "a", "value": "elsewhere"});
    let elsewhere = accepted_id(&post_json(&client, "/v1/sessions/t/controls", elsewhere).await);
    let claimed = claimable(&client, "a").await;
    assert_eq!(ids(&claimed), [&*elsewhere], "another session does not wait");
    ack(&client, &claimed[0]).await.ok();
    let shown = &list_controls(&client, "r1", "").await[0];
    assert_eq!(json!([shown["status"], shown["expiresAt"]]), json!(["queued", null]), "its time to live has not started");

    let approved = submit(&client, "r1", json!({"control": "approve", "actionId": "of-r1"})).await;
    let claimed = claimable(&client, "a").await;
    assert_eq!(ids(&claimed), [&*approved], "the decision passes it");
    client.append("r1", &[action_resolved("of-r1")]).await;
    ack(&client, &claimed[0]).await.ok();
    run_maintenance_after(&maintenance, 3600).await;
    assert_eq!(claimable(&client, "a").await, Vec::<Value>::new(), "the other run still asks");
    assert_eq!(statuses(&client, "r1").await[0], (id.clone(), "queued".into()), "it does not expire while it is held back");

    client.append("r2", &[action_resolved("of-r2")]).await;
    let claimed = claim_one(&client, "a").await;
    assert_eq!(claimed["controlId"], json!(id));
    let lives = |member: &str| claimed[member].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(lives("expiresAt").as_second() - jiff::Timestamp::now().as_second() <= 60, "{claimed}");
    ack(&client, &claimed).await.ok();
}

#[tokio::test]
async fn a_send_over_a_question_is_refused_with_its_ids_and_supersedes_it_on_request() {
    let client = client().await;
    asking_session(&client).await;
    let refused = send_to(&client, "a", json!({})).await.problem(409, "would_supersede");
    assert_eq!(refused["actionIds"], json!(["of-r1", "of-r2"]));
    let nothing = client.get("/v1/sessions/s/controls").await.ok();
    assert_eq!(nothing["controls"], json!([]), "nothing was recorded");
    accepted_id(&send_to(&client, "c", json!({})).await);

    let body = json!({"controlId": "m", "supersede": true});
    for _ in 0..2 {
        accepted_id(&send_to(&client, "a", body.clone()).await);
    }
    let claimed = claim_one(&client, "a").await;
    assert_eq!(json!([claimed["controlId"], claimed["supersedes"]]), json!(["m", ["of-r1", "of-r2"]]));
    for run in ["r1", "r2"] {
        let action = read_action(&client, run, "user").await.unwrap();
        assert_eq!(json!([action["status"], action["outcome"]]), json!(["resolved", "superseded"]));
        let resolved = client.read_events(run, "type=action.resolved", 10).await;
        let payload = &resolved[0]["payload"];
        assert_eq!(json!([resolved.len(), payload["synthetic"], resolved[0]["owner"]]), json!([1, true, "diagnostics"]));
        assert_eq!(client.get(&format!("/v1/runs/{run}")).await.ok()["status"], "waiting", "its runtime has not continued");
        let decision = json!({"control": "approve", "actionId": format!("of-{run}")});
        submit_rejected(&client, run, decision, 409, "action_not_pending").await;
    }
    assert_eq!(read_action(&client, "other", "user").await.unwrap()["status"], "pending", "another agent's question stays");
    client.append("r1", &[fact("text.delta", json!({"messageId": "m", "payload": {"text": "Well"}}))]).await;
    assert_eq!(client.get("/v1/runs/r1").await.ok()["status"], "running");
}

#[tokio::test]
async fn a_send_waits_for_questions_that_its_sender_cannot_see_and_for_decisions_under_way() {
    let client = client().await;
    let start = fact("run.started", json!({"agentId": "a", "sessionId": "s"}));
    let hidden = action_required("hidden", json!({"audience": "internal"}));
    client.append("r1", &[start, hidden, action_required("seen", json!({}))]).await;
    let refused = send_to(&client, "a", json!({})).await.problem(409, "would_supersede");
    assert_eq!(refused["actionIds"], json!(["seen"]), "a hidden question is not named");
    let message = accepted_id(&send_to(&client, "a", json!({"supersede": true})).await);
    assert_eq!(read_action(&client, "r1", "user").await.unwrap()["outcome"], "superseded");
    assert_eq!(claimable(&client, "a").await, Vec::<Value>::new(), "it waits as a queued message does");
    client.append("r1", &[action_resolved("hidden")]).await;
    assert_eq!(claim_one(&client, "a").await["controlId"], json!(message));

    client.append("r1", &[action_required("decided", json!({}))]).await;
    let decision = submit(&client, "r1", json!({"control": "approve", "actionId": "decided"})).await;
    let second = accepted_id(&send_to(&client, "a", json!({"supersede": true})).await);
    let claimed = claim_one(&client, "a").await;
    assert_eq!(claimed["controlId"], json!(decision), "the first decision stands");
    client.append("r1", &[action_resolved("decided")]).await;
    ack(&client, &claimed).await.ok();
    let claimed = claim_one(&client, "a").await;
    assert_eq!(json!([claimed["controlId"], claimed["supersedes"]]), json!([second, null]));
}

#[tokio::test]
async fn a_held_message_is_still_held_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let start = async || {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = server(storage_in(dir.path(), Sync::Never).await);
        let (client, serving) = serve_until(server, async move { drop(stopped.await) }).await;
        (client, stop, serving)
    };
    let (client, stop, serving) = start().await;
    asking_session(&client).await;
    let id = accepted_id(&post_json(&client, "/v1/runs/r1/controls", json!({"control": "queue", "value": "later"})).await);
    drop(stop);
    with_timeout("the server's stop", serving).await.unwrap();

    let (client, stop, serving) = start().await;
    assert_eq!(claimable(&client, "a").await, Vec::<Value>::new());
    client.append("r1", &[action_resolved("of-r1")]).await;
    client.append("r2", &[action_resolved("of-r2")]).await;
    assert_eq!(claim_one(&client, "a").await["controlId"], json!(id));
    drop(stop);
    with_timeout("the server's stop", serving).await.unwrap();
}

#[tokio::test]
async fn a_control_that_nobody_claimed_can_be_withdrawn() {
    let client = client().await;
    client.append("r", &[fact("run.started", json!({"agentId": "a", "sessionId": "s"}))]).await;
    let first = submit(&client, "r", json!({"control": "queue", "value": "1"})).await;
    let second = accepted_id(&send_to(&client, "a", json!({})).await);
    let claimed = claim(&client, "a", "max=1").await;
    assert_eq!(ids(&claimed), [&*first]);
    let problem = client.delete(&format!("/v1/controls/{first}")).await.problem(409, "control_claimed");
    assert_eq!(problem["member"], "controlId");
    assert_eq!(client.delete(&format!("/v1/controls/{second}")).await.status, 204);
    client.delete(&format!("/v1/controls/{second}")).await.problem(404, "no_such_control");
    client.delete("/v1/controls/never").await.problem(404, "no_such_control");
    assert_eq!(claimable(&client, "a").await, Vec::<Value>::new());
    let listed = client.get("/v1/sessions/s/controls").await.ok()["controls"][0].clone();
    assert_eq!(json!([listed["status"], listed["reason"]]), json!(["expired", "withdrawn"]));
}

#[tokio::test]
async fn a_socket_submits_controls_as_the_addresses_take_them() {
    let client = client().await;
    asking_session(&client).await;
    let mut socket = Worker::open(&client).await;
    let approve = json!({"op": "submit", "id": 1, "runId": "r1", "control": "approve", "actionId": "of-r1", "controlId": "c"});
    let submitted = json!({"op": "submitted", "id": 1, "controlId": "c", "status": "queued"});
    assert_eq!(socket.request(approve.clone()).await, submitted);
    assert_eq!(socket.request(approve).await, submitted, "repeated");
    let send = json!({"op": "submit", "id": 2, "sessionId": "s", "agentId": "b", "control": "send", "value": "Hello"});
    let refused = socket.request(send.clone()).await;
    assert_eq!(json!([refused["op"], refused["code"], refused["actionIds"]]), json!(["error", "would_supersede", ["of-other"]]));
    let mut superseding = send;
    superseding["supersede"] = true.into();
    assert_eq!(socket.request(superseding).await["op"], "submitted");
    assert_eq!(claim_one(&client, "b").await["supersedes"], json!(["of-other"]));
    for (bad, code) in [
        (json!({"op": "submit", "id": 3, "control": "stop"}), "missing_member"),
        (json!({"op": "submit", "runId": "r1", "control": "stop"}), "missing_member"),
        (json!({"op": "submit", "id": 3, "runId": "never", "control": "stop"}), "no_such_run"),
        (json!({"op": "submit", "id": 3, "runId": "r1", "control": "explode"}), "bad_control"),
        (
            json!({"op": "submit", "id": 3, "runId": "r1", "control": "steer", "value": "x".repeat(CONTROL_BYTES_MAX)}),
            "control_too_large",
        ),
    ] {
        assert_eq!(socket.request(bad).await["code"], code);
    }
}

#[tokio::test]
async fn the_decisions_of_a_run_and_a_session_say_what_was_asked_decided_and_done() {
    let client = client().await;
    let start = fact("run.started", json!({"agentId": "a", "sessionId": "s"}));
    let call = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "rm"}}));
    client
        .append("r1", &[start, call, action_required("one", json!({"toolCallId": "c"})), action_required("two", json!({}))])
        .await;
    let refused = submit(&client, "r1", json!({"control": "reject", "actionId": "one"})).await;
    assert_eq!(client.delete(&format!("/v1/controls/{refused}")).await.status, 204, "a withdrawn decision does not count");
    let approved = submit(&client, "r1", json!({"control": "approve", "actionId": "one"})).await;
    client.append("r1", &[action_resolved("one"), action_resolved("two"), action_required("one", json!({}))]).await;
    accepted_id(&send_to(&client, "a", json!({"supersede": true})).await);
    client.append("r1", &[action_required("open", json!({})), action_required("hidden", json!({"audience": "internal"}))]).await;
    client.append("r1", &[action_resolved("hidden")]).await;

    let all = client.get("/v1/runs/r1/decisions").await.ok();
    assert_eq!(all["nextCursor"], Value::Null);
    let decisions = all["decisions"].as_array().unwrap();
    let told = |one: &Value| json!([one["actionId"], one["control"], one["outcome"], one["decidedBy"]["via"], one["callIds"]]);
    assert_eq!(
        decisions.iter().map(told).collect::<Vec<_>>(),
        [
            json!(["one", "approve", "approved", "rest", ["c"]]),
            json!(["two", null, "approved", "runtime", []]),
            json!(["one", null, "superseded", null, []]),
        ]
    );
    let first = &decisions[0];
    assert_eq!(first["controlId"], json!(approved));
    assert!(first["waitedMs"].is_u64() && first["subject"]["kind"].is_string(), "{first}");
    let events = client.read_events("r1", "", 1000).await;
    for (step, kind) in [("asked", "action.required"), ("decided", "control.changed"), ("resolved", "action.resolved")] {
        let event = events.iter().find(|event| event["sequence"] == first["sequences"][step]).unwrap();
        assert_eq!((&event["type"], &event["actionId"]), (&json!(kind), &json!("one")), "{step}");
    }
    assert_eq!(client.get("/v1/runs/r1/decisions?audience=internal").await.ok()["decisions"].as_array().unwrap().len(), 4);

    client
        .append("r2", &[fact("run.started", json!({"agentId": "a", "sessionId": "s"})), action_required("three", json!({}))])
        .await;
    client.append("r2", &[action_resolved("three")]).await;
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/sessions/s/decisions?limit=1{cursor}")).await.ok();
        paged.extend(page["decisions"].as_array().unwrap().iter().map(|one| one["actionId"].clone()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), json!(["one", "two", "one", "three"]));
    client.get("/v1/runs/never/decisions").await.problem(404, "no_such_run");
    client.get("/v1/sessions/never/decisions").await.problem(404, "no_such_session");
    client.get("/v1/runs/r1/decisions?cursor=x").await.problem(400, "bad_cursor");
}

#[tokio::test]
async fn a_message_that_waits_is_listed_with_its_words_until_an_agent_has_it() {
    let client = client().await;
    client.append("r", &[fact("run.started", json!({"sessionId": "s", "agentId": "w"}))]).await;
    let send = |text: &str| json!({"control": "send", "agentId": "w", "value": {"text": text}});
    for text in ["Are you there?".to_owned(), "x".repeat(5000)] {
        accepted_id(&post_json(&client, "/v1/sessions/s/controls", send(&text)).await);
    }
    submit(&client, "r", json!({"control": "interrupt", "value": {"text": "no message"}})).await;
    let listed = client.get("/v1/sessions/s/controls").await.ok()["controls"].clone();
    assert_eq!(listed[0]["text"], "Are you there?");
    assert_eq!(listed[1]["text"].as_str().unwrap().len(), 4096);
    assert_eq!(client.get("/v1/runs/r/controls").await.ok()["controls"][0].get("text"), None);
    let claimed = post_json(&client, "/v1/agents/w/controls/claim?max=9", json!({})).await.ok();
    for control in claimed["controls"].as_array().unwrap() {
        let ack = format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap());
        post_json(&client, &ack, json!({"lease": control["lease"]})).await.ok();
    }
    let listed = client.get("/v1/sessions/s/controls").await.ok()["controls"].clone();
    assert!(listed.as_array().unwrap().iter().all(|control| control.get("text").is_none()), "{listed}");
}

#[tokio::test]
async fn a_claimed_decision_names_its_session_thread_and_run_in_every_way_of_claiming() {
    let client = client().await;
    let asked = [
        fact("run.started", json!({})),
        fact("action.required", json!({ "actionId": "ask-1", "payload": { "kind": "tool_approval" } })),
        fact("action.required", json!({ "actionId": "ask-2", "payload": { "kind": "tool_approval" } })),
    ];
    post_json(&client, "/v1/runs/r/facts?sessionId=s&threadId=t&agentId=a", json!(asked)).await.ok();
    submit(&client, "r", json!({ "control": "approve", "actionId": "ask-1" })).await;
    let mut claimed = claim(&client, "a", "").await;
    let mut worker = Worker::open(&client).await;
    worker.request(json!({ "op": "claim", "id": "w", "agentId": "a" })).await;
    submit(&client, "r", json!({ "control": "reject", "actionId": "ask-2" })).await;
    claimed.push(worker.receive().await);
    assert_eq!(claimed.len(), 2);
    for control in claimed {
        let named = ["sessionId", "threadId", "runId", "agentId"].map(|member| control[member].clone());
        assert_eq!(json!(named), json!(["s", "t", "r", "a"]), "{control}");
        assert!(control["decidedBy"]["via"].is_string(), "{control}");
    }
}
