//! The operator's rules for actions that wait: reminders, escalation, and decisions of the server, each once.

use crate::harness::{Client, ClockedProcess, Process, Transport, fact};
use crate::webhooks::{Received, Receiver, SECRET as SECRET_OF_RECEIVERS, configure};
use proscenium_reporter::decisions::{AttentionPage, Decision, Quorum};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);
/// The members of the envelope of a reminder that users get.
const PUBLIC: [&str; 2] = ["at", "step"];

fn start(dir: &Path, rules: &str) -> ClockedProcess {
    let file = dir.join("proscenium.toml");
    std::fs::write(&file, rules).unwrap();
    // The socket of a process before, which a killed one leaves.
    let _ = std::fs::remove_file(dir.join("clock"));
    ClockedProcess::start(dir, &["--config", file.to_str().unwrap(), "--stale-after", "604800", "--settle-after", "604800"])
}

fn asks(action: &str, payload: Value) -> Value {
    let mut asks = json!({"kind": "tool_approval", "toolName": "rm", "message": "Really?"});
    asks.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
    fact("action.required", json!({"actionId": action, "payload": asks}))
}

async fn ask(client: &Client, run: &str, payload: Value) {
    client.append(run, &[fact("run.started", json!({})), asks("a", payload)]).await;
}

async fn action(client: &Client, run: &str, audience: &str) -> Value {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    let activities = shown["activities"].as_array().unwrap().iter().find(|shown| shown["activityType"] == "action");
    activities.map_or(Value::Null, |activity| activity["content"].clone())
}

async fn events(client: &Client, run: &str, kind: &str, audience: &str) -> Vec<Value> {
    client.read_events(run, &format!("type={kind}&audience={audience}"), 100).await
}

async fn controls(client: &Client, run: &str) -> Vec<Value> {
    client.get(&format!("/v1/runs/{run}/controls?audience=internal")).await.ok()["controls"].as_array().unwrap().clone()
}

async fn claim(client: &Client) -> Vec<Value> {
    client.post("/v1/agents/default/controls/claim?max=100", &[], "").await.ok()["controls"].as_array().unwrap().clone()
}

async fn answer(client: &Client, claimed: &Value, how: &str) {
    let path = format!("/v1/controls/{}/{how}", claimed["controlId"].as_str().unwrap());
    client.post(&path, &[("content-type", "application/json")], json!({"lease": claimed["lease"]}).to_string()).await.ok();
}

async fn decide(client: &Client, run: &str, control: &str) -> crate::harness::Response {
    let body = json!({"control": control, "actionId": "a"}).to_string();
    client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], body).await
}

#[tokio::test]
async fn an_action_is_reminded_escalated_and_rejected_once_each_also_over_restarts() {
    let rules = r#"
        waits = [
            { name = "give-up", tool = "rm", after = "2h", then = "reject" },
            { name = "nudge", kind = "tool_*", after = "15m", then = "remind" },
            { name = "wake", after = 3600, then = "escalate", to = "pager" },
            { name = "others", agent = "another", after = "1s", then = "reject" },
        ]
        webhooks = [{ name = "pager", url = "http://127.0.0.1:9/", allow-private = true, secrets = ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="] }]"#;
    let dir = tempfile::tempdir().unwrap();
    let clocked = start(dir.path(), rules);
    ask(&clocked.client, "r", json!({})).await;
    let client = &clocked.client;
    let is_reminded = async || !events(client, "r", "action.reminded", "user").await.is_empty();
    let passed = clocked.advance_until("the reminder", MINUTE, is_reminded).await;
    assert!(passed >= 15 * MINUTE, "{passed:?}");
    drop(clocked);

    // Its clock is back at the time of the request.
    let clocked = start(dir.path(), rules);
    let client = &clocked.client;
    let is_escalated = async || !action(client, "r", "user").await["escalated"].is_null();
    let passed = clocked.advance_until("the escalation", 5 * MINUTE, is_escalated).await;
    assert!(passed >= 59 * MINUTE, "{passed:?}");
    for (kind, step, rule, to) in
        [("action.reminded", 1, "nudge", Value::Null), ("action.escalated", 2, "wake", json!(["pager"]))]
    {
        let told = events(client, "r", kind, "dashboard").await;
        assert_eq!(told.len(), 1, "{told:?}");
        let payload = &told[0]["payload"];
        assert_eq!(json!([told[0]["actionId"], payload["step"], payload["rule"], payload["to"]]), json!(["a", step, rule, to]));
        let public = events(client, "r", kind, "user").await;
        let mut members: Vec<_> = public[0]["payload"].as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(members, PUBLIC, "{public:?}");
        let member = kind.strip_prefix("action.").unwrap();
        let noted = json!({"step": step, "at": payload["at"]});
        assert_eq!(action(client, "r", "user").await[member], noted);
        assert_eq!(client.get("/v1/attention").await.ok()["items"][0][member], noted);
    }
    assert_eq!(controls(client, "r").await, Vec::<Value>::new());
    drop(clocked);

    let clocked = start(dir.path(), rules);
    let client = &clocked.client;
    let is_decided = async || !controls(client, "r").await.is_empty();
    let passed = clocked.advance_until("the rejection", 10 * MINUTE, is_decided).await;
    assert!(passed >= 119 * MINUTE, "{passed:?}");
    let rejected = controls(client, "r").await.remove(0);
    let by = &rejected["decidedBy"];
    assert_eq!(
        json!([rejected["control"], rejected["status"], by["via"], by["name"]]),
        json!(["reject", "queued", "rule", "give-up"])
    );
    assert_eq!(decide(client, "r", "approve").await.problem(409, "action_not_pending")["controlId"], rejected["controlId"]);
    drop(clocked);

    let clocked = start(dir.path(), rules);
    let client = &clocked.client;
    clocked.advance(180 * MINUTE).await;
    let claimed = claim(client).await;
    assert_eq!((claimed.len(), &claimed[0]["controlId"]), (1, &rejected["controlId"]), "{claimed:?}");
    answer(client, &claimed[0], "ack").await;
    client.append("r", &[fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "rejected"}}))]).await;
    let resolved = events(client, "r", "action.resolved", "user").await.remove(0);
    assert_eq!(json!([resolved["payload"]["decidedBy"]["via"], resolved["payload"]["decidedBy"]["name"]]), json!(["rule", null]));
    clocked.advance(180 * MINUTE).await;
    assert_eq!(controls(client, "r").await.len(), 1);
    for kind in ["action.reminded", "action.escalated"] {
        assert_eq!(events(client, "r", kind, "internal").await.len(), 1, "{kind}");
    }
}

#[tokio::test]
async fn steps_stop_with_a_decision_and_go_on_when_its_owner_refuses_it() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = start(dir.path(), "waits = [{ after = \"30m\", then = \"remind\" }]");
    let client = &clocked.client;
    ask(client, "decided", json!({})).await;
    ask(client, "open", json!({})).await;
    assert_eq!(decide(client, "decided", "approve").await.status, 202);
    let is_reminded = async || !events(client, "open", "action.reminded", "user").await.is_empty();
    clocked.advance_until("the reminder", 10 * MINUTE, is_reminded).await;
    assert_eq!(events(client, "decided", "action.reminded", "internal").await, Vec::<Value>::new());
    let claimed = claim(client).await;
    answer(client, &claimed[0], "nack").await;
    let is_reminded = async || !events(client, "decided", "action.reminded", "user").await.is_empty();
    clocked.advance_until("the reminder", MINUTE, is_reminded).await;
    assert_eq!(events(client, "decided", "action.reminded", "internal").await[0]["payload"]["rule"], "waits-1");
}

#[tokio::test]
async fn a_rule_approves_only_a_stated_risk_that_is_not_high_and_a_fact_cannot_loosen_that() {
    let rules =
        r#"waits = [{ name = "small", after = "10m", then = "approve", allow-approve = true, risk = ["low", "medium"] }]"#;
    let dir = tempfile::tempdir().unwrap();
    let clocked = start(dir.path(), rules);
    let client = &clocked.client;
    let deadline = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5)).to_string();
    let wishes = |risk: &str, wish: &str| json!({"risk": risk, "onExpiry": wish, "expiresAt": deadline});
    ask(client, "low", json!({"risk": "LOW"})).await;
    for (run, payload) in [
        ("high", json!({"risk": "high", "onExpiry": "approve"})),
        ("unstated", json!({"onExpiry": "approve"})),
        ("wishes-low", wishes("medium", "approve")),
        ("wishes-high", wishes("high", "approve")),
        ("wishes-no", wishes("high", "reject")),
        ("wishes-else", wishes("low", "allow")),
    ] {
        ask(client, run, payload).await;
    }
    let is_decided = async || !controls(client, "low").await.is_empty();
    clocked.advance_until("the approval", MINUTE, is_decided).await;
    clocked.advance(30 * MINUTE).await;
    let is_over = async || action(client, "wishes-else", "user").await["status"] == "resolved";
    clocked.advance_until("the deadline", MINUTE, is_over).await;
    let mut seen = Vec::new();
    for run in ["low", "high", "unstated", "wishes-low", "wishes-high", "wishes-no", "wishes-else"] {
        let decided: Vec<_> = controls(client, run)
            .await
            .iter()
            .map(|of| json!([of["control"], of["decidedBy"]["via"], of["decidedBy"]["name"]]))
            .collect();
        let shown = action(client, run, "user").await;
        seen.push(json!([run, decided, shown["status"], shown["outcome"]]));
    }
    let approved = json!([["approve", "rule", "small"]]);
    let expected = json!([
        ["low", approved, "pending", null],
        ["high", [], "pending", null],
        ["unstated", [], "pending", null],
        ["wishes-low", approved, "pending", null],
        ["wishes-high", [], "resolved", "expired"],
        ["wishes-no", [["reject", "rule", null]], "pending", null],
        ["wishes-else", [], "resolved", "expired"],
    ]);
    assert_eq!(json!(seen), expected);
    // No owner takes them: the actions expire with the controls.
    let is_over = async || action(client, "wishes-no", "user").await["outcome"] == "expired";
    clocked.advance_until("the end of the rejection", 60 * MINUTE, is_over).await;
    assert_eq!(controls(client, "wishes-no").await.len(), 1);
}

#[tokio::test]
async fn a_producer_cannot_remind_or_escalate() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = start(dir.path(), "waits = [{ after = \"30m\", then = \"remind\" }]");
    let client = &clocked.client;
    ask(client, "r", json!({"escalated": {"step": 7, "at": "now"}, "reminded": {"step": 7, "at": "now"}})).await;
    let forged = json!({"step": 7, "at": "2026-01-01T00:00:00Z", "rule": "mine", "to": ["push"]});
    for kind in ["action.reminded", "action.escalated"] {
        let mut event = json!({"actionId": "a", "payload": forged.clone()});
        event.as_object_mut().unwrap().extend(forged.as_object().unwrap().clone());
        client.append("r", &[fact(kind, event)]).await;
    }
    let shown = action(client, "r", "internal").await;
    assert_eq!(json!([shown["reminded"], shown["escalated"]]), json!([null, null]), "{shown}");
    let is_reminded = async || events(client, "r", "action.reminded", "internal").await.len() == 2;
    clocked.advance_until("the reminder", 10 * MINUTE, is_reminded).await;
    assert_eq!(action(client, "r", "user").await["reminded"]["step"], 1);
}

#[test]
fn a_configuration_with_a_rule_that_cannot_work_is_refused_at_the_start() {
    for (rules, says) in [
        ("[[waits]]\nname = \"n\"\nthen = \"reject\"", "[[waits]] 1 (n): then: reject needs the time after which it is due"),
        ("[[waits]]\nname = \"n\"\nafter = \"1h\"\nthen = \"reject\"\nwhy = 1", "[[waits]] 1 (n): unknown field `why`"),
        (
            "[[waits]]\nafter = \"1h\"\nthen = \"escalate\"\nto = \"pager\"",
            "[[waits]] 1: to: \"pager\" is neither push nor the name of",
        ),
        ("[[waits]]\napprovals = 2", "[[waits]] 1: approvals: counting people needs tokens"),
        ("[[waits]]\napprovals = 17", "[[waits]] 1: approvals: it is 17; it must be from 1 to 16"),
        ("[waits]\nafter = \"1h\"", "[[waits]]: it must be a list of tables"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proscenium.toml");
        std::fs::write(&file, rules).unwrap();
        let mut command = Process::command(dir.path(), "error");
        let output =
            command.args(["--config", file.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(says), "{rules}: {error}");
    }
}

/// The secret of the servers with tokens.
const SECRET: &str = "a secret of more than thirty-two bytes";

/// Starts a server with tokens on `dir`, as after a crash if one ran there before.
fn start_with_tokens(dir: &Path, rules: &str) -> Process {
    let (file, key) = (dir.join("proscenium.toml"), dir.join("key"));
    std::fs::write(&file, rules).unwrap();
    std::fs::write(&key, SECRET).unwrap();
    Process::start_with(dir, &["--config", file.to_str().unwrap(), "--auth-key", key.to_str().unwrap()])
}

fn person(server: &Process, sub: &str) -> Client {
    let rights = json!({"audience": "internal", "sessions": ["*"], "agents": ["*"],
        "can": ["read", "publish", "control", "impersonate"]});
    let expires = jiff::Timestamp::now().as_second() + 3600;
    let claims = json!({"sub": sub, "name": sub.to_uppercase(), "exp": expires, "aud": "proscenium", "proscenium": rights});
    let signer = proscenium::auth::keys::TokenSigner::from_file(SECRET.as_bytes()).unwrap();
    Client::with_token(server.at, &signer.sign(&claims, None).unwrap())
}

async fn submit(client: &Client, body: Value) -> crate::harness::Response {
    client.post("/v1/runs/r/controls", &[("content-type", "application/json")], body.to_string()).await
}

async fn approve(client: &Client) -> Value {
    let answer = decide(client, "r", "approve").await;
    assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// The controls of the run: what they are, their status, reason and approvals.
async fn states(client: &Client) -> Value {
    let state = |of: &Value| json!([of["control"], of["status"], of["reason"], of["have"], of["need"]]);
    controls(client, "r").await.iter().map(state).collect()
}

#[tokio::test]
async fn an_action_that_needs_two_people_is_handed_out_once_both_have_approved_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "waits = [{ tool = \"rm\", approvals = 2 }, { tool = \"other\", approvals = 9 }]";
    let server = start_with_tokens(dir.path(), rules);
    let [worker, alice, bob] = ["worker", "alice", "bob"].map(|sub| person(&server, sub));
    let call = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "rm", "input": {}}}));
    let asks = fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}}));
    worker.append("r", &[fact("run.started", json!({})), call, asks]).await;
    let mut listed = worker.open(Transport::Hyper, "/v1/lists/stream?attention=true&audience=dashboard", None).await;
    assert_eq!(listed.next_frame().await.data["entry"]["actionId"], "a");
    assert_eq!(listed.next_frame().await.data["frame"], "Hydrated");

    let first = approve(&alice).await;
    assert_eq!(listed.next_frame().await.data["entry"]["quorum"], json!({"have": 1, "need": 2}));
    assert_eq!(json!([first["status"], first["have"], first["need"]]), json!(["queued", 1, 2]));
    assert_eq!(approve(&alice).await, first, "a second approval of one person joins the first");
    let refused = decide(&worker, "r", "approve").await.problem(409, "approval_not_counted");
    assert!(refused["detail"].as_str().unwrap().contains("published the question"), "{refused}");
    for (body, why) in [
        (json!({"control": "approve", "actionId": "a", "onBehalfOf": "carol"}), "on behalf of"),
        (json!({"control": "approve", "actionId": "a", "value": {"path": "/tmp"}}), "says something else"),
        (json!({"control": "answer", "actionId": "a", "value": "yes"}), "says something else"),
    ] {
        let refused = submit(&bob, body).await.problem(409, "approval_not_counted");
        assert!(refused["detail"].as_str().unwrap().contains(why), "{refused}");
    }
    assert_eq!(claim(&worker).await, Vec::<Value>::new());
    for audience in ["user", "internal"] {
        let waiting = worker.get(&format!("/v1/attention?audience={audience}")).await.ok();
        let page: AttentionPage = serde_json::from_value(waiting.clone()).unwrap();
        assert_eq!(page.items[0].quorum, Some(Quorum { have: 1, need: 2 }));
        let item = &waiting["items"][0];
        let expected = json!([1, null, {"have": 1, "need": 2}]);
        assert_eq!(json!([waiting["total"], item["control"], item["quorum"]]), expected, "{waiting}");
    }
    let shown = action(&bob, "r", "user").await;
    assert_eq!(json!([shown["quorum"], shown["control"], shown["controlId"]]), json!([{"have": 1, "need": 2}, null, null]));
    server.kill();

    let server = start_with_tokens(dir.path(), rules);
    let [worker, alice, bob] = ["worker", "alice", "bob"].map(|sub| person(&server, sub));
    assert_eq!(claim(&worker).await, Vec::<Value>::new());
    assert_eq!(approve(&alice).await, first);
    let second = approve(&bob).await;
    assert_eq!(json!([second["have"], second["need"]]), json!([2, 2]));
    assert_ne!(second["controlId"], first["controlId"]);
    let shown = action(&bob, "r", "internal").await;
    let expected = json!([{"have": 2, "need": 2}, "submitted", first["controlId"], "alice"]);
    assert_eq!(json!([shown["quorum"], shown["control"], shown["controlId"], shown["decidedBy"]["sub"]]), expected);
    let claimed = claim(&worker).await;
    let subs: Vec<_> = claimed[0]["approvals"].as_array().unwrap().iter().map(|by| by["sub"].clone()).collect();
    assert_eq!(json!([claimed.len(), claimed[0]["controlId"], subs]), json!([1, first["controlId"], ["alice", "bob"]]));
    decide(&bob, "r", "reject").await.problem(409, "action_not_pending");
    answer(&worker, &claimed[0], "ack").await;
    assert_eq!(states(&worker).await, json!([["approve", "acked", null, 2, 2], ["approve", "acked", null, 2, 2]]));
    worker.append("r", &[fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved"}}))]).await;
    let resolved = events(&worker, "r", "action.resolved", "internal").await.remove(0);
    let by = &resolved["payload"];
    assert_eq!(json!([by["controlId"], by["decidedBy"]["sub"]]), json!([first["controlId"], "alice"]));
    let decisions = worker.get("/v1/runs/r/decisions?audience=internal").await.ok()["decisions"].clone();
    let subs: Vec<_> = decisions[0]["approvals"].as_array().unwrap().iter().map(|by| by["sub"].clone()).collect();
    let typed: Decision = serde_json::from_value(decisions[0].clone()).unwrap();
    assert_eq!((typed.approvals.len(), typed.decided_by.unwrap().sub.as_deref()), (2, Some("alice")));
    let decided = &decisions[0];
    assert_eq!(json!([subs, decided["decidedBy"]["sub"], decided["outcome"]]), json!([["alice", "bob"], "alice", "approved"]));
    let public = worker.get("/v1/runs/r/decisions?audience=user").await.ok()["decisions"][0]["approvals"].clone();
    assert!(public.as_array().unwrap().iter().all(|by| by["sub"].is_null() && by["via"] == "rest"), "{public}");
}

#[tokio::test]
async fn one_rejection_ends_a_quorum_and_approvals_that_are_taken_back_or_refused_count_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_with_tokens(dir.path(), "");
    let [worker, alice, bob, carol] = ["worker", "alice", "bob", "carol"].map(|sub| person(&server, sub));
    worker.append("r", &[fact("run.started", json!({})), asks("a", json!({"approvals": 2}))]).await;
    let withdraw = async |of: &Value| {
        let path = format!("/v1/controls/{}?audience=internal", of["controlId"].as_str().unwrap());
        alice.delete(&path).await.status
    };
    // Taken back: the last one before it is full, and one of those that are complete.
    let first = approve(&alice).await;
    assert_eq!(withdraw(&first).await, 204);
    assert_eq!(action(&bob, "r", "user").await["quorum"], Value::Null);
    approve(&alice).await;
    let second = approve(&bob).await;
    assert_eq!(second["have"], 2);
    assert_eq!(withdraw(&second).await, 204);
    assert_eq!(claim(&worker).await, Vec::<Value>::new());
    let shown = action(&bob, "r", "user").await;
    assert_eq!(json!([shown["quorum"], shown["control"], shown["controlId"]]), json!([{"have": 1, "need": 2}, null, null]));
    // Refused by the owner: all count no more.
    assert_eq!(approve(&carol).await["have"], 2);
    let claimed = claim(&worker).await.remove(0);
    answer(&worker, &claimed, "nack").await;
    assert_eq!(action(&bob, "r", "user").await["quorum"], Value::Null);
    assert_eq!(approve(&bob).await["have"], 1);
    assert_eq!(decide(&carol, "r", "reject").await.status, 202);
    let expected = json!([
        ["approve", "expired", "withdrawn", 0, 2],
        ["approve", "nacked", null, 2, 2],
        ["approve", "expired", "withdrawn", 1, 2],
        ["approve", "nacked", null, 2, 2],
        ["approve", "expired", "rejected", 0, 2],
        ["reject", "queued", null, null, null],
    ]);
    assert_eq!(states(&worker).await, expected);
    let claimed = claim(&worker).await;
    assert_eq!(json!([claimed.len(), claimed[0]["control"], claimed[0]["approvals"]]), json!([1, "reject", null]));
}

#[tokio::test]
async fn approvals_of_another_version_of_the_question_count_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_with_tokens(dir.path(), "");
    let [worker, alice, bob] = ["worker", "alice", "bob"].map(|sub| person(&server, sub));
    worker.append("r", &[fact("run.started", json!({})), asks("a", json!({"approvals": 2}))]).await;
    approve(&alice).await;
    worker.append("r", &[asks("a", json!({"approvals": 2, "message": "Really, all of it?"}))]).await;
    assert_eq!(action(&bob, "r", "user").await["quorum"], Value::Null);
    assert_eq!(approve(&bob).await["have"], 1);
    assert_eq!(claim(&worker).await, Vec::<Value>::new());
    assert_eq!(approve(&alice).await["have"], 2);
    assert_eq!(claim(&worker).await.len(), 1);
}

#[tokio::test]
async fn every_face_counts_and_its_stream_waits_until_the_quorum_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_with_tokens(dir.path(), "waits = [{ kind = \"tool_approval\", approvals = 3 }]");
    let [worker, alice, bob, carol] = ["worker", "alice", "bob", "carol"].map(|sub| person(&server, sub));
    let started = fact("run.started", json!({"runId": "r", "sessionId": "t", "threadId": "t"}));
    worker.append("r", &[started, asks("a", json!({"toolCallId": "c"}))]).await;
    let resume = json!({"threadId": "t", "runId": "r2", "messages": [],
        "resume": [{"interruptId": "a", "status": "resolved", "payload": {"approved": true}}]});
    let chat = json!({"id": "t", "trigger": "submit-message", "messages": [{"id": "m", "role": "assistant", "parts": [
        {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c", "state": "approval-responded", "input": {},
         "approval": {"id": "a", "approved": true}}]}]});
    let mut streams = Vec::new();
    for (n, (client, path, body)) in
        [(alice.clone(), "/ag-ui/default", resume.clone()), (bob, "/ai-sdk/default", chat)].into_iter().enumerate()
    {
        streams.push(tokio::spawn(
            async move { client.post(path, &[("content-type", "application/json")], body.to_string()).await },
        ));
        let is_counted = async || action(&alice, "r", "user").await["quorum"]["have"] == n + 1;
        crate::harness::with_timeout("the approval", async {
            while !is_counted().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(claim(&worker).await, Vec::<Value>::new());
    }
    let refused = worker.post("/copilotkit/agent/default/run", &[("content-type", "application/json")], resume.to_string()).await;
    refused.problem(409, "approval_not_counted");
    assert_eq!(approve(&carol).await["have"], 3);
    let claimed = claim(&worker).await;
    let faces: Vec<_> = claimed[0]["approvals"].as_array().unwrap().iter().map(|by| by["via"].clone()).collect();
    assert_eq!(json!(faces), json!(["ag-ui", "ai-sdk", "rest"]));
    answer(&worker, &claimed[0], "ack").await;
    let resolved = fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "approved"}}));
    worker.append("r", &[resolved, fact("run.finished", json!({}))]).await;
    for stream in streams {
        let answer = stream.await.unwrap();
        assert_eq!(answer.status, 200);
        let text = String::from_utf8(answer.body).unwrap();
        assert!(!text.contains("control_expired") && !text.contains("control_refused"), "{text}");
    }
}

#[tokio::test]
async fn without_tokens_no_approval_counts_and_the_receipt_names_a_wait_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let clocked = start(dir.path(), "");
    let client = &clocked.client;
    ask(client, "r", json!({"approvals": 2})).await;
    let refused = decide(client, "r", "approve").await.problem(409, "approval_not_counted");
    assert!(refused["need"] == 2 && refused["detail"].as_str().unwrap().contains("no token"), "{refused}");
    assert_eq!(decide(client, "r", "reject").await.status, 202);
    for (payload, code) in [
        (json!({"approvals": "two"}), "unreadable_approvals"),
        (json!({"approvals": 17}), "unreadable_approvals"),
        (json!({"approvals": 0}), "unreadable_approvals"),
        (json!({"onExpiry": "allow"}), "unreadable_on_expiry"),
    ] {
        let receipt = client.append("other", &[asks("a", payload)]).await;
        assert_eq!(receipt["violations"][0]["code"], code, "{receipt}");
    }
}

#[tokio::test]
async fn an_escalation_reaches_the_receivers_that_its_rule_names_and_a_reminder_all_that_hear_of_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ops, mut pager) = (Receiver::start().await, Receiver::start().await);
    let more = format!(
        "events = [\"run.waiting\"]\n\n[[webhooks]]\nname = \"pager\"\nurl = \"{}\"\nsecrets = [\"{SECRET_OF_RECEIVERS}\"]\n\
         events = [\"run.failed\"]\nallow-private = true\n\n[[waits]]\nafter = \"10m\"\nthen = \"remind\"\n\n\
         [[waits]]\nafter = \"20m\"\nthen = \"escalate\"\nto = \"pager\"\n",
        pager.url
    );
    let file = configure(dir.path(), &ops.url, &more);
    let clocked = ClockedProcess::start(dir.path(), &["--config", &file]);
    ask(&clocked.client, "r", json!({"title": "Delete it?"})).await;
    let mut seen = HashSet::new();
    // A message that is under way when the clock is set forward may come again, with its id.
    let mut next = async |receiver: &mut Receiver| loop {
        let received = receiver.next().await;
        if seen.insert(received.id.clone()) {
            return received;
        }
    };
    let is_escalated = async || !action(&clocked.client, "r", "user").await["escalated"].is_null();
    clocked.advance_until("the escalation", MINUTE, is_escalated).await;
    let told = |received: &Received| {
        let data = &received.body["data"];
        json!([received.kind(), data["actionId"], data["title"], data["step"], data["to"], data["rule"]])
    };
    let [asked, reminded] = [next(&mut ops).await, next(&mut ops).await];
    assert_eq!(told(&asked), json!(["run.waiting", "a", "Delete it?", null, null, null]));
    assert_eq!(told(&reminded), json!(["run.waiting", "a", "Delete it?", 1, null, null]));
    assert_eq!(told(&next(&mut pager).await), json!(["run.waiting", "a", "Delete it?", 2, null, null]));
    clocked.client.append("r", &[fact("run.failed", json!({}))]).await;
    assert_eq!(next(&mut pager).await.kind(), "run.failed");
    let mut rest = ops.rest().into_iter().chain(pager.rest());
    assert!(rest.all(|again| seen.contains(&again.id)), "the step was told to others");
}
