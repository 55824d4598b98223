//! Decisions: the first one stands, in time, about the question that was shown.

use crate::harness::{Client, ClockedProcess, Response, Transport, environment, fact, serve_until, storage_in, with_timeout};
use proscenium::control::ATTEMPTS_MAX;
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::log::embedded::Sync;
use proscenium::serve::maintenance::controls::ControlMaintenance;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

fn server(store: Storage) -> Server {
    let (sizes, limits, pulse) = (FeedConfig::default(), Limits::default(), KeepAlive::default());
    Server::new(store, Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap()
}

/// Starts a server on a store; returns its client and the maintenance of its controls.
async fn start_on(store: Storage) -> (Client, ControlMaintenance) {
    let server = server(store);
    let maintenance = server.control_maintenance();
    (serve_until(server, std::future::pending()).await.0, maintenance)
}

async fn start() -> (Client, ControlMaintenance) {
    start_on(Storage::memory()).await
}

/// Runs the maintenance as of this many seconds from now.
async fn run_maintenance_after(maintenance: &ControlMaintenance, seconds: i64) {
    let now = Instant::now() + Duration::from_secs(seconds.unsigned_abs());
    maintenance.run_once(now, jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).await.unwrap();
}

fn started() -> Value {
    fact("run.started", json!({}))
}

fn asks(action: &str, payload: Value) -> Value {
    let mut asks = json!({"kind": "tool_approval", "message": "Really?"});
    asks.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
    fact("action.required", json!({"actionId": action, "payload": asks}))
}

fn resolved(action: &str, outcome: &str) -> Value {
    fact("action.resolved", json!({"actionId": action, "payload": {"outcome": outcome}}))
}

/// A time this many seconds from now.
fn in_seconds(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

async fn decide(client: &Client, run: &str, body: Value) -> Response {
    client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], body.to_string()).await
}

async fn submit(client: &Client, run: &str, body: Value) -> String {
    let answer = decide(client, run, body).await;
    assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()["controlId"].as_str().unwrap().to_owned()
}

async fn claim(client: &Client) -> Vec<Value> {
    let claimed = client.post("/v1/agents/default/controls/claim?max=100", &[], "").await.ok();
    claimed["controls"].as_array().unwrap().clone()
}

async fn answer(client: &Client, claimed: &Value, how: &str) {
    let path = format!("/v1/controls/{}/{how}", claimed["controlId"].as_str().unwrap());
    client.post(&path, &[("content-type", "application/json")], json!({"lease": claimed["lease"]}).to_string()).await.ok();
}

async fn controls(client: &Client, run: &str) -> Vec<Value> {
    client.get(&format!("/v1/runs/{run}/controls?audience=internal")).await.ok()["controls"].as_array().unwrap().clone()
}

async fn activity(client: &Client, run: &str, kind: &str, audience: &str) -> Value {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    let activities = shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityType"] == kind);
    activities.map_or(Value::Null, |activity| activity["content"].clone())
}

#[tokio::test]
async fn the_first_decision_stands_until_its_control_is_nacked_or_expired() {
    let (client, _) = start().await;
    client.append("r", &[started(), asks("a1", json!({})), asks("a2", json!({}))]).await;
    let first = submit(&client, "r", json!({"control": "approve", "actionId": "a1"})).await;
    for control in ["reject", "approve"] {
        let refused = decide(&client, "r", json!({"control": control, "actionId": "a1"})).await;
        assert_eq!(refused.problem(409, "action_not_pending")["controlId"], first, "{control}");
    }
    let second = submit(&client, "r", json!({"control": "approve", "actionId": "a2"})).await;
    let claimed = claim(&client).await;
    let decided: Vec<_> = claimed.iter().map(|of| json!([of["controlId"], of["control"], of["actionId"]])).collect();
    assert_eq!(decided, [json!([first, "approve", "a1"]), json!([second, "approve", "a2"])]);
    answer(&client, &claimed[0], "ack").await;
    let late = decide(&client, "r", json!({"control": "reject", "actionId": "a1"})).await;
    assert_eq!(late.problem(409, "action_not_pending")["controlId"], first, "its owner accepted it");
    answer(&client, &claimed[1], "nack").await;
    submit(&client, "r", json!({"control": "reject", "actionId": "a2"})).await;
    // A runtime that asks again needs another answer.
    client.append("r", &[asks("a1", json!({}))]).await;
    submit(&client, "r", json!({"control": "reject", "actionId": "a1"})).await;
}

#[tokio::test]
async fn an_equal_answer_of_another_client_joins_the_first_and_another_one_is_refused() {
    let (client, _) = start().await;
    let of_thread = |id: &str| fact("run.started", json!({"runId": "r", "sessionId": id, "threadId": id}));
    client.append("r", &[of_thread("t"), asks("a", json!({}))]).await;
    let first = submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    let resume = |run: &str, approved: bool| {
        json!({"threadId": "t", "runId": run, "messages": [],
            "resume": [{"interruptId": "a", "status": "resolved", "payload": {"approved": approved}}]})
    };
    for path in ["/ag-ui/default", "/copilotkit/agent/default/run"] {
        let refused = client.post(path, &[("content-type", "application/json")], resume("r2", false).to_string()).await;
        assert_eq!(refused.problem(409, "action_not_pending")["controlId"], first, "{path}");
    }
    let of_chat = |approved: bool| {
        json!({"id": "t", "trigger": "submit-message", "messages": [{"id": "m", "role": "assistant", "parts": [
            {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c", "state": "approval-responded", "input": {},
             "approval": {"id": "a", "approved": approved}}]}]})
    };
    let refused = client.post("/ai-sdk/default", &[("content-type", "application/json")], of_chat(false).to_string()).await;
    assert_eq!(refused.problem(409, "action_not_pending")["controlId"], first);

    let joining = ["/ag-ui/default", "/copilotkit/agent/default/run"].map(|path| (path, resume("r3", true)));
    let streams: Vec<_> = joining
        .into_iter()
        .chain([("/ai-sdk/default", of_chat(true))])
        .map(|(path, body)| {
            let client = client.clone();
            tokio::spawn(async move { client.post(path, &[("content-type", "application/json")], body.to_string()).await })
        })
        .collect();
    let claimed = claim(&client).await;
    answer(&client, &claimed[0], "ack").await;
    client.append("r", &[resolved("a", "approved"), fact("run.finished", json!({}))]).await;
    for stream in streams {
        assert_eq!(stream.await.unwrap().status, 200);
    }
    let listed = controls(&client, "r").await;
    assert_eq!((claimed.len(), listed.len()), (1, 1), "{listed:?}");
}

#[tokio::test]
async fn an_action_expires_at_its_deadline_and_the_run_waits_until_a_fact() {
    let (client, maintenance) = start().await;
    let interrupt =
        json!({"id": "i1", "reason": "tool_call", "message": "Delete the database?", "expiresAt": "2026-01-01T00:00:00Z"});
    let facts = json!([{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r",
        "outcome": {"type": "interrupt", "interrupts": [interrupt]}}]);
    let headers = [("content-type", "application/json")];
    client.post("/v1/runs/r/facts?source=ag-ui&sessionId=t", &headers, facts.to_string()).await.ok();
    let approve = json!({"control": "approve", "actionId": "i1"});
    decide(&client, "r", approve.clone()).await.problem(409, "action_expired");
    assert_eq!(claim(&client).await, Vec::<Value>::new());
    run_maintenance_after(&maintenance, 0).await;
    run_maintenance_after(&maintenance, 0).await;
    let events = client.read_events("r", "type=action.resolved&audience=internal", 100).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["payload"], json!({"outcome": "expired", "synthetic": true}));
    let action = activity(&client, "r", "action", "user").await;
    assert_eq!(json!([action["status"], action["outcome"]]), json!(["resolved", "expired"]));
    decide(&client, "r", approve).await.problem(409, "action_expired");
    let resume = json!({"threadId": "t", "runId": "r2", "messages": [],
        "resume": [{"interruptId": "i1", "status": "resolved", "payload": {"approved": true}}]});
    client.post("/ag-ui/default", &headers, resume.to_string()).await.problem(409, "action_expired");
    let session = client.get("/v1/sessions/t").await.ok();
    assert_eq!(session["pendingActions"], json!([]), "{session}");
    assert_eq!(client.get("/v1/sessions?needsAction=true").await.ok()["sessions"], json!([]));
    assert_eq!(client.get("/v1/runs/r").await.ok()["status"], "waiting");

    client.append("native", &[started(), asks("a", json!({"expiresAt": "2026-01-01T00:00:00Z"}))]).await;
    run_maintenance_after(&maintenance, 0).await;
    assert_eq!(client.get("/v1/runs/native").await.ok()["status"], "waiting");
    client.append("native", &[fact("text.delta", json!({"messageId": "m", "payload": {"text": "Without it, then."}}))]).await;
    assert_eq!(client.get("/v1/runs/native").await.ok()["status"], "running");
}

#[tokio::test]
async fn a_decision_that_no_owner_took_in_time_expires_with_its_action() {
    let (client, maintenance) = start().await;
    client.append("r", &[started(), asks("a", json!({"expiresAt": in_seconds(60)}))]).await;
    let queued = submit(&client, "r", json!({"control": "approve", "actionId": "a", "ttlSeconds": 3600})).await;
    run_maintenance_after(&maintenance, 59).await;
    assert_eq!(controls(&client, "r").await[0]["status"], "queued");
    run_maintenance_after(&maintenance, 61).await;
    let listed = controls(&client, "r").await;
    assert_eq!(
        json!([listed[0]["controlId"], listed[0]["status"], listed[0]["reason"]]),
        json!([queued, "expired", "action_expired"])
    );
    assert_eq!(activity(&client, "r", "action", "user").await["outcome"], "expired");
    assert_eq!(claim(&client).await, Vec::<Value>::new());
}

#[tokio::test]
async fn the_binary_ends_an_approval_at_its_deadline_for_readers_deciders_and_workers() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = ClockedProcess::start(dir.path(), &[]);
    let client = &clocked.client;
    let deadline = in_seconds(7200);
    client.append("r", &[started(), asks("a", json!({"expiresAt": deadline}))]).await;
    let mut reader = client.open_stream(Transport::Raw, "r", "audience=user", None).await;
    let approve = json!({"control": "approve", "actionId": "a"});
    submit(client, "r", approve.clone()).await;
    let is_over = async || activity(client, "r", "action", "user").await["status"] == "resolved";
    let passed = clocked.advance_until("the deadline", Duration::from_mins(10), is_over).await;
    assert!(passed >= Duration::from_hours(2), "{passed:?}");
    assert_eq!(activity(client, "r", "action", "user").await["outcome"], "expired");
    let queued = controls(client, "r").await.remove(0);
    assert_eq!(json!([queued["status"], queued["reason"]]), json!(["expired", "action_expired"]));
    assert_eq!(claim(client).await, Vec::<Value>::new());
    decide(client, "r", approve).await.problem(409, "action_expired");
    let end = loop {
        let event = reader.next_frame().await.data["event"].take();
        if event["type"] == "action.resolved" {
            break event;
        }
    };
    let [end, deadline] = [end["receivedAt"].as_str().unwrap(), &deadline].map(|at| at.parse::<jiff::Timestamp>().unwrap());
    assert!(end >= deadline, "it ended at {end}, before {deadline}");
}

#[tokio::test]
async fn a_deadline_has_one_meaning_for_every_source_and_an_unreadable_one_is_named() {
    let (client, maintenance) = start().await;
    for (n, deadline) in
        [json!("2026-01-01T00:00:00"), json!(1_767_225_600), json!(1_767_225_600_000_i64)].into_iter().enumerate()
    {
        let run = format!("r{n}");
        let receipt = client.append(&run, &[started(), asks("a", json!({"expiresAt": deadline}))]).await;
        assert_eq!(receipt["violations"], Value::Null);
        let shown = activity(&client, &run, "action", "user").await;
        assert_eq!(shown["expiresAt"].as_str().unwrap().trim_end_matches('Z'), "2026-01-01T00:00:00", "{deadline}");
        run_maintenance_after(&maintenance, 0).await;
        assert_eq!(activity(&client, &run, "action", "user").await["outcome"], "expired", "{deadline}");
    }
    let receipt = client.append("r", &[started(), asks("a", json!({"expiresAt": "tomorrow"}))]).await;
    let violation = json!({"index": 1, "code": "unreadable_deadline", "eventType": "action.required", "thing": "action:a"});
    assert_eq!(receipt["violations"], json!([violation]));
    run_maintenance_after(&maintenance, 86_400 * 365).await;
    let shown = activity(&client, "r", "action", "user").await;
    assert_eq!(json!([shown["status"], shown["expiresAt"]]), json!(["pending", null]));
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_server_was_down_is_resolved_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = server(storage_in(dir.path(), Sync::Never).await);
    let (client, serving) = serve_until(server, async { drop(stopped.await) }).await;
    client.append("r", &[started(), asks("a", json!({"expiresAt": in_seconds(3600)}))]).await;
    submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    stop.send(()).unwrap();
    serving.await.unwrap();
    let (client, maintenance) = start_on(storage_in(dir.path(), Sync::Never).await).await;
    run_maintenance_after(&maintenance, 3601).await;
    assert_eq!(activity(&client, "r", "action", "user").await["outcome"], "expired");
    decide(&client, "r", json!({"control": "approve", "actionId": "a"})).await.problem(409, "action_expired");
}

#[tokio::test]
async fn an_answer_that_its_owner_holds_at_the_deadline_still_counts() {
    let (client, maintenance) = start().await;
    client.append("r", &[started(), asks("a", json!({"expiresAt": in_seconds(60)}))]).await;
    submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    let claimed = claim(&client).await.remove(0);
    answer(&client, &claimed, "ack").await;
    run_maintenance_after(&maintenance, 61).await;
    assert_eq!(activity(&client, "r", "action", "user").await["status"], "pending");
    client.append("r", &[resolved("a", "approved")]).await;
    assert_eq!(activity(&client, "r", "action", "user").await["outcome"], "approved");
}

/// How a worker's connection ends.
#[derive(Debug, Clone, Copy)]
enum ConnectionEnd {
    /// FIN, and the socket is closed.
    Closed,
    /// RST.
    Reset,
    /// FIN, but the client still reads.
    HalfClosed,
}

/// Opens a plain connection and writes a request on it.
async fn open_request(client: &Client, head: &str) -> TcpStream {
    let mut socket = TcpStream::connect(client.at).await.unwrap();
    socket.write_all(format!("{head} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", client.at).as_bytes()).await.unwrap();
    socket
}

async fn wait_until_present(client: &Client, is_present: bool) {
    with_timeout("the worker's presence", async {
        while client.get("/copilotkit/info").await.ok()["agents"]["default"]["present"] != is_present {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_connection_ended_is_not_present_and_gets_no_control() {
    let (client, _) = start().await;
    client.append("r", &[started(), asks("a", json!({}))]).await;
    // A keep-alive connection carries other requests before the claim.
    for before in [false, true] {
        for end in [ConnectionEnd::Closed, ConnectionEnd::Reset, ConnectionEnd::HalfClosed] {
            let claims = "POST /v1/agents/default/controls/claim?wait=60";
            let mut socket = open_request(&client, if before { "GET /healthz" } else { claims }).await;
            if before {
                let mut first = [0; 12];
                socket.read_exact(&mut first).await.unwrap();
                assert_eq!(&first, b"HTTP/1.1 200");
                socket
                    .write_all(format!("{claims} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", client.at).as_bytes())
                    .await
                    .unwrap();
            }
            wait_until_present(&client, true).await;
            match end {
                ConnectionEnd::Closed => drop(socket),
                ConnectionEnd::Reset => {
                    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
                    drop(socket);
                }
                ConnectionEnd::HalfClosed => {
                    socket.shutdown().await.unwrap();
                    let mut answer = Vec::new();
                    with_timeout("the end of the claim", socket.read_to_end(&mut answer)).await.unwrap();
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    assert!(answer.ends_with(r#"{"agentId":"default","controls":[]}"#), "{answer}");
                }
            }
            wait_until_present(&client, false).await;
        }
    }
    let id = submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    let claimed = claim(&client).await;
    assert_eq!(json!([claimed[0]["controlId"], claimed[0]["attempt"]]), json!([id, 1]));
}

#[tokio::test]
async fn claims_of_dead_workers_do_not_expire_a_decision() {
    let (client, maintenance) = start().await;
    client.append("r", &[started(), asks("a", json!({}))]).await;
    let id = submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    for _ in 0..ATTEMPTS_MAX + 2 {
        // The end of the socket comes with the request.
        let mut socket = open_request(&client, "POST /v1/agents/default/controls/claim").await;
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        with_timeout("an answer", socket.read_to_end(&mut answer)).await.unwrap();
    }
    run_maintenance_after(&maintenance, 31).await;
    let claimed = claim(&client).await;
    assert_eq!(claimed.len(), 1, "{:?}", controls(&client, "r").await);
    assert_eq!(claimed[0]["controlId"], id);
}

#[tokio::test]
async fn a_client_that_half_closes_after_an_ordinary_request_gets_its_answer() {
    let (client, _) = start().await;
    client.append("r", &[started()]).await;
    let mut socket = open_request(&client, "GET /v1/runs/r").await;
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    with_timeout("an answer", socket.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

fn call(kind: &str, id: &str, payload: Value) -> Value {
    fact(kind, json!({"toolCallId": id, "payload": payload}))
}

/// The sequence of the run's last envelope.
async fn last_sequence(client: &Client) -> u64 {
    client.get("/v1/runs/r").await.ok()["lastSequence"].as_u64().unwrap()
}

fn about_call(action: &str, call: &str) -> Value {
    fact("action.required", json!({"actionId": action, "toolCallId": call, "payload": {"kind": "tool_approval"}}))
}

#[tokio::test]
async fn a_decision_about_an_earlier_version_of_a_question_is_refused() {
    let (client, _) = start().await;
    let write = |path: &str| json!({"toolName": "write", "input": {"path": path}});
    client.append("r", &[started(), call("tool.started", "c", write("one.txt")), about_call("a", "c")]).await;
    let seen = last_sequence(&client).await;
    let approve = |seen: u64| json!({"control": "approve", "actionId": "a", "seenSequence": seen});
    let refused = async |seen: u64| decide(&client, "r", approve(seen)).await.problem(409, "action_changed");

    // The same content is the same version.
    client.append("r", &[about_call("a", "c"), call("tool.args", "c", json!({"input": {"path": "one.txt"}}))]).await;
    let first = submit(&client, "r", approve(seen)).await;
    assert_eq!(claim(&client).await[0]["controlId"], first);
    client.append("r", &[resolved("a", "approved")]).await;

    client.append("r", &[call("tool.started", "d", write("one.txt")), about_call("a", "d")]).await;
    refused(seen).await;
    let seen = last_sequence(&client).await;
    client.append("r", &[call("tool.args", "d", json!({"input": {"path": "PRODUCTION.db"}}))]).await;
    assert_eq!(refused(seen).await["sequence"], last_sequence(&client).await);
    let shown = activity(&client, "r", "action", "user").await;
    assert_eq!(shown["parameters"], json!({"path": "PRODUCTION.db"}), "the card shows what would run");
    let seen = last_sequence(&client).await;
    client
        .append("r", &[fact("action.required", json!({"actionId": "a", "toolCallId": "d", "payload": {"message": "Sure?"}}))])
        .await;
    refused(seen).await;
    submit(&client, "r", approve(last_sequence(&client).await)).await;
}

#[tokio::test]
async fn a_queued_decision_does_not_reach_the_owner_of_a_question_that_changed() {
    let (client, _) = start().await;
    client.append("r", &[started(), asks("a", json!({"message": "One?"}))]).await;
    let first = submit(&client, "r", json!({"control": "approve", "actionId": "a"})).await;
    client.append("r", &[asks("a", json!({"message": "Two?"}))]).await;
    let second = submit(&client, "r", json!({"control": "reject", "actionId": "a"})).await;
    let claimed = claim(&client).await;
    assert_eq!((claimed.len(), &claimed[0]["controlId"]), (1, &json!(second)));
    let closed = controls(&client, "r").await;
    assert_eq!(
        json!([closed[0]["controlId"], closed[0]["status"], closed[0]["reason"]]),
        json!([first, "expired", "action_changed"])
    );
}

#[tokio::test]
async fn faces_without_a_place_for_a_version_hand_it_out_in_the_id() {
    let (client, _) = start().await;
    let start = fact("run.started", json!({"sessionId": "t", "threadId": "t"}));
    let question = |path: &str| {
        let payload = json!({"kind": "tool_approval", "message": format!("Write {path}?")});
        fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": payload}))
    };
    let begun = call("tool.started", "c", json!({"toolName": "write", "input": {"path": "one"}}));
    client.append("r", &[start, begun, question("one")]).await;
    let interrupts = async || {
        let thread = client.get("/ag-ui/default?threadId=t").await.ok();
        thread["interrupts"]["pending"].as_array().unwrap().iter().map(|interrupt| interrupt["id"].clone()).collect::<Vec<_>>()
    };
    let approvals = async || {
        let chat = client.get("/ai-sdk/default/t?version=7").await.ok();
        chat.to_string().matches("\"approval\":{\"id\":\"a~2\"").count()
    };
    assert_eq!((interrupts().await, approvals().await), (vec![json!("a")], 0));
    client.append("r", &[question("two")]).await;
    assert_eq!((interrupts().await, approvals().await), (vec![json!("a~2")], 1));
    let resume = |id: &str| {
        json!({"threadId": "t", "runId": format!("of {id}"), "messages": [],
            "resume": [{"interruptId": id, "status": "resolved", "payload": {"approved": true}}]})
    };
    let approve = |id: &str| {
        json!({"id": "t", "messages": [{"id": "m", "role": "assistant", "parts": [{"type": "dynamic-tool", "toolName": "write",
            "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": {"id": id, "approved": true}}]}]})
    };
    for (path, body) in [
        ("/ag-ui/default", resume("a")),
        ("/copilotkit/agent/default/run", resume("a~1")),
        ("/ag-ui/default", resume("a~3")),
        ("/ai-sdk/default", approve("a")),
    ] {
        let refused = client.post(path, &[("content-type", "application/json")], body.to_string()).await;
        refused.problem(409, "action_changed");
    }
    let joining = tokio::spawn({
        let (client, body) = (client.clone(), resume("a~2").to_string());
        async move { client.post("/ag-ui/default", &[("content-type", "application/json")], body).await }
    });
    with_timeout("the decision", async {
        while claim(&client).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    client.append("r", &[resolved("a", "approved"), fact("run.finished", json!({}))]).await;
    assert_eq!(joining.await.unwrap().status, 200);
}
