//! Controls: asked for, claimed, answered, listed, in any order and of any shape, while their run goes on or does not.
//!
//! ```text
//! input := line { "\n" line }
//! line  := 'r' body   a control of the run `r`            's' body   one of its session `s`
//!          'c' query  agent `default` claims              'd' query  agent `b` claims
//!          'a' n body an ack of the n-th that was claimed 'n' n body a nack of it; n is one digit; `LEASE` its lease
//!          'f' fact   a fact of the run                   'l' query  the run's controls are listed
//!          'm' query  the session's are                   't' body   a ticket is asked for
//! ```
//! The run has an action that waits for approval (`a`), one that asks something (`q`), a call (`c`) and a teammate (`b`). Nothing
//! panics. Whoever claims a control gets what was asked, to the letter, and nobody gets one that its owner has taken. What was
//! recorded is listed.

#![no_main]

use axum::body::Body;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium_fuzz::{Answer, Served, assert_valid, wait};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Lines of one input.
const LINES_MAX: usize = 24;

fuzz_target!(|input: &[u8]| {
    wait(async {
        let mut desk = Desk::open().await;
        for line in input.split(|byte| *byte == b'\n').take(LINES_MAX) {
            desk.does(line).await;
        }
        desk.close().await;
    });
});

/// A server with a run, and what is known of its controls.
struct Desk {
    served: Served,
    /// What was asked for and taken, by the control's id: whether of the run, and the body.
    asked: HashMap<String, (bool, Value)>,
    /// Each that was handed over: its id and its lease.
    handed: Vec<(String, String)>,
    acked: HashSet<String>,
}

impl Desk {
    async fn open() -> Self {
        let served = Served::start(Limits::default(), None).await;
        let facts = json!([
            { "type": "run.started", "payload": { "title": "t" } },
            { "type": "tool.started", "toolCallId": "c", "payload": { "toolName": "t" } },
            { "type": "agent.changed", "agentId": "b", "payload": { "runtimeStatus": "running" } },
            { "type": "action.required", "actionId": "a", "toolCallId": "c", "payload": { "kind": "tool_approval" } },
            { "type": "action.required", "actionId": "q", "payload": { "kind": "credential_request" } },
        ]);
        served.post("/v1/runs/r/facts?sessionId=s", facts.to_string()).await.ok();
        Self { served, asked: HashMap::new(), handed: Vec::new(), acked: HashSet::new() }
    }

    async fn does(&mut self, line: &[u8]) {
        let Some((what, rest)) = line.split_first() else { return };
        match what {
            b'r' => self.ask(true, rest).await,
            b's' => self.ask(false, rest).await,
            b'c' => self.claim("default", rest).await,
            b'd' => self.claim("b", rest).await,
            b'a' => self.answer("ack", rest).await,
            b'n' => self.answer("nack", rest).await,
            b'f' => drop(self.served.post("/v1/runs/r/facts", rest.to_vec()).await),
            b'l' => drop(self.get(b"/v1/runs/r/controls?", rest).await),
            b'm' => drop(self.get(b"/v1/sessions/s/controls?", rest).await),
            b't' => drop(self.served.post("/v1/tickets", rest.to_vec()).await),
            _ => {}
        }
    }

    async fn get(&self, path: &[u8], query: &[u8]) -> Option<Answer> {
        self.served.ask(Method::GET, &[path, query].concat(), &[], Body::empty()).await
    }

    async fn ask(&mut self, of_run: bool, body: &[u8]) {
        let target = if of_run { "/v1/runs/r/controls" } else { "/v1/sessions/s/controls" };
        let answer = self.served.post(target, body.to_vec()).await;
        if answer.status == 202 {
            let id = answer.json()["controlId"].as_str().expect("an id").to_owned();
            let body: Value = serde_json::from_slice(body).expect("it was taken");
            // The same id in the run and in its session are two controls, which are not told apart here.
            let known = self.asked.entry(id).or_insert((of_run, body));
            if known.0 != of_run {
                known.1 = Value::Null;
            }
        }
    }

    async fn claim(&mut self, agent: &str, query: &[u8]) {
        // Nobody has a minute for it.
        let target = [format!("/v1/agents/{agent}/controls/claim?wait=0&").as_bytes(), query].concat();
        let Some(answer) = self.served.ask(Method::POST, &target, &[], Body::empty()).await else { return };
        if answer.status != 200 {
            return;
        }
        for handed in answer.json()["controls"].as_array().expect("controls") {
            let id = handed["controlId"].as_str().expect("an id");
            let (_, asked) = &self.asked[id];
            if !asked.is_null() {
                assert!(!self.acked.contains(id), "its owner has taken {id}");
                for member in ["control", "value", "actionId", "toolCallId", "agentId", "taskId", "artifactId", "messageId"] {
                    // A teammate's, or the run's own: who is asked may be found out by the server.
                    if !asked[member].is_null() {
                        assert_eq!(handed[member], asked[member], "{member}");
                    }
                }
            }
            self.handed.push((id.to_owned(), handed["lease"].as_str().expect("a lease").to_owned()));
        }
    }

    async fn answer(&mut self, how: &str, rest: &[u8]) {
        let Some((n, body)) = rest.split_first() else { return };
        let Some((id, lease)) = self.handed.get(usize::from(n.wrapping_sub(b'0'))).cloned() else {
            drop(self.served.post(&format!("/v1/controls/none/{how}"), body.to_vec()).await);
            return;
        };
        let body = String::from_utf8_lossy(body).replace("LEASE", &lease);
        let Ok(target) = format!("/v1/controls/{}/{how}", percent(&id)).parse::<http::Uri>() else { return };
        let answer = self.served.post(&target.to_string(), body).await;
        if answer.status == 200 && answer.json()["status"] == "acked" {
            self.acked.insert(id);
        }
    }

    async fn close(self) {
        let listed = self.served.get("/v1/runs/r/controls?audience=internal").await.ok();
        let listed: HashSet<&str> =
            listed["controls"].as_array().expect("controls").iter().filter_map(|control| control["controlId"].as_str()).collect();
        for (id, (of_run, asked)) in &self.asked {
            assert!(!of_run || asked.is_null() || listed.contains(id.as_str()), "{id} is not listed");
        }
        for event in self.served.events("r", "internal").await {
            assert_valid("agentui-event.schema.json", &event);
        }
        self.served.stop().await;
    }
}

/// An id as it stands in a path.
fn percent(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
