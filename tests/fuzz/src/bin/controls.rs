//! Fuzzes controls: submitted, claimed, completed and listed in any order and shape.
//!
//! ```text
//! input := line { "\n" line }
//! line  := 'r' body   a control of the run `r`            's' body   one of its session `s`
//!          'c' query  agent `default` claims              'd' query  agent `b` claims
//!          'a' n body an ack of the n-th claimed control  'n' n body a nack of it; n is one digit; `LEASE` is its lease
//!          'f' fact   a fact of the run                   'l' query  list the run's controls
//!          'm' query  list the session's controls         't' body   request a ticket
//! ```
//! The run has an action that waits for approval (`a`), one that asks a question (`q`), a call (`c`) and a teammate
//! (`b`).
//!
//! Properties: nothing panics. A claimed control equals the submitted one. The server never hands out an acknowledged
//! control. It lists every recorded control.

#![no_main]

use axum::body::Body;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium_fuzz::{ReceivedResponse, TestServer, assert_valid, block_on};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// The maximum number of lines of one input.
const LINES_MAX: usize = 24;

fuzz_target!(|input: &[u8]| {
    block_on(async {
        let mut harness = Harness::open().await;
        for line in input.split(|byte| *byte == b'\n').take(LINES_MAX) {
            harness.execute(line).await;
        }
        harness.close().await;
    });
});

/// A server with a run, and the expected state of its controls.
struct Harness {
    server: TestServer,
    /// The accepted controls by id: whether the control is of the run, and the submitted body.
    submitted: HashMap<String, (bool, Value)>,
    /// The id and the lease of each claimed control.
    claimed: Vec<(String, String)>,
    acked: HashSet<String>,
}

impl Harness {
    async fn open() -> Self {
        let server = TestServer::start(Limits::default(), None).await;
        let facts = json!([
            { "type": "run.started", "payload": { "title": "t" } },
            { "type": "tool.started", "toolCallId": "c", "payload": { "toolName": "t" } },
            { "type": "agent.changed", "agentId": "b", "payload": { "runtimeStatus": "running" } },
            { "type": "action.required", "actionId": "a", "toolCallId": "c", "payload": { "kind": "tool_approval" } },
            { "type": "action.required", "actionId": "q", "payload": { "kind": "credential_request" } },
        ]);
        server.post("/v1/runs/r/facts?sessionId=s", facts.to_string()).await.ok();
        Self { server, submitted: HashMap::new(), claimed: Vec::new(), acked: HashSet::new() }
    }

    async fn execute(&mut self, line: &[u8]) {
        let Some((operation, rest)) = line.split_first() else { return };
        match operation {
            b'r' => self.submit(true, rest).await,
            b's' => self.submit(false, rest).await,
            b'c' => self.claim("default", rest).await,
            b'd' => self.claim("b", rest).await,
            b'a' => self.complete("ack", rest).await,
            b'n' => self.complete("nack", rest).await,
            b'f' => drop(self.server.post("/v1/runs/r/facts", rest.to_vec()).await),
            b'l' => drop(self.get(b"/v1/runs/r/controls?", rest).await),
            b'm' => drop(self.get(b"/v1/sessions/s/controls?", rest).await),
            b't' => drop(self.server.post("/v1/tickets", rest.to_vec()).await),
            _ => {}
        }
    }

    async fn get(&self, path: &[u8], query: &[u8]) -> Option<ReceivedResponse> {
        self.server.request(Method::GET, &[path, query].concat(), &[], Body::empty()).await
    }

    async fn submit(&mut self, of_run: bool, body: &[u8]) {
        let target = if of_run { "/v1/runs/r/controls" } else { "/v1/sessions/s/controls" };
        let answer = self.server.post(target, body.to_vec()).await;
        if answer.status == 202 {
            let id = answer.json()["controlId"].as_str().expect("an id").to_owned();
            let body: Value = serde_json::from_slice(body).expect("the server accepted it as JSON");
            // The run and its session can each have a control with this id; this target cannot distinguish them.
            let known = self.submitted.entry(id).or_insert((of_run, body));
            if known.0 != of_run {
                known.1 = Value::Null;
            }
        }
    }

    async fn claim(&mut self, agent: &str, query: &[u8]) {
        // A long poll would take too long.
        let target = [format!("/v1/agents/{agent}/controls/claim?wait=0&").as_bytes(), query].concat();
        let Some(answer) = self.server.request(Method::POST, &target, &[], Body::empty()).await else { return };
        if answer.status != 200 {
            return;
        }
        for claimed in answer.json()["controls"].as_array().expect("controls") {
            let id = claimed["controlId"].as_str().expect("an id");
            let (_, submitted) = &self.submitted[id];
            if !submitted.is_null() {
                assert!(!self.acked.contains(id), "its owner has acknowledged {id}");
                for member in ["control", "value", "actionId", "toolCallId", "agentId", "taskId", "artifactId", "messageId"] {
                    // The server may add members, such as the agent of the run.
                    if !submitted[member].is_null() {
                        assert_eq!(claimed[member], submitted[member], "{member}");
                    }
                }
            }
            self.claimed.push((id.to_owned(), claimed["lease"].as_str().expect("a lease").to_owned()));
        }
    }

    async fn complete(&mut self, operation: &str, rest: &[u8]) {
        let Some((n, body)) = rest.split_first() else { return };
        let Some((id, lease)) = self.claimed.get(usize::from(n.wrapping_sub(b'0'))).cloned() else {
            drop(self.server.post(&format!("/v1/controls/none/{operation}"), body.to_vec()).await);
            return;
        };
        let body = String::from_utf8_lossy(body).replace("LEASE", &lease);
        let Ok(target) = format!("/v1/controls/{}/{operation}", percent(&id)).parse::<http::Uri>() else { return };
        let answer = self.server.post(&target.to_string(), body).await;
        if answer.status == 200 && answer.json()["status"] == "acked" {
            self.acked.insert(id);
        }
    }

    async fn close(self) {
        let listed = self.server.get("/v1/runs/r/controls?audience=internal").await.ok();
        let listed: HashSet<&str> =
            listed["controls"].as_array().expect("controls").iter().filter_map(|control| control["controlId"].as_str()).collect();
        for (id, (of_run, submitted)) in &self.submitted {
            assert!(!of_run || submitted.is_null() || listed.contains(id.as_str()), "{id} is not listed");
        }
        for event in self.server.events("r", "internal").await {
            assert_valid("agentui-event.schema.json", &event);
        }
        self.server.stop().await;
    }
}

/// Encodes an id as a path segment.
fn percent(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
