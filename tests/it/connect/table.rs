//! What every protocol does when its agent fails, is stopped, or outlives this server: one table, one row a protocol.

use super::endpoint::{Ending, Endpoint, Received, Reply, activities, post, start_server, start_server_on, wait_for_status};
use super::failures::agent_fails;
use crate::harness::{Client, fact, storage_in, with_timeout};
use futures_util::future::join_all;
use proscenium::connect::{CONNECTORS, TargetKind};
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

/// An agent behind a URL.
struct UrlAgent {
    name: &'static str,
    protocol: &'static str,
    options: &'static str,
    /// The beginning of its stream.
    begins: &'static [&'static str],
    /// The request that cancels its work. `None`: the connection is closed.
    cancels: Option<fn(&Received) -> bool>,
    /// The request that reads on after a restart, and the rest of the stream. `None`: the run fails.
    rejoins: Option<(fn(&Received) -> bool, &'static [&'static str])>,
}

const RESPONSE: &str = r#"data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}}"#;

const URL_AGENTS: &[UrlAgent] = &[
    UrlAgent {
        name: "ag-ui",
        protocol: "ag-ui",
        options: "",
        begins: &[r#"data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}"#],
        cancels: None,
        rejoins: None,
    },
    UrlAgent {
        name: "ai-sdk",
        protocol: "ai-sdk",
        options: "",
        begins: &[r#"data: {"type":"start","messageId":"a"}"#, r#"data: {"type":"start-step"}"#],
        cancels: None,
        rejoins: None,
    },
    UrlAgent {
        name: "langgraph",
        protocol: "langgraph",
        options: "",
        begins: &["event: metadata\ndata: {\"run_id\":\"up\",\"attempt\":1}"],
        cancels: Some(|request| request.path.ends_with("/runs/up/cancel")),
        rejoins: Some((
            |request| request.path.ends_with("/runs/up/stream"),
            &["event: error\ndata: {\"error\":\"E\",\"message\":\"it ended\"}"],
        )),
    },
    UrlAgent {
        name: "openai-responses",
        protocol: "openai-responses",
        options: "options = { model = \"m\" }",
        begins: &[RESPONSE],
        cancels: None,
        rejoins: None,
    },
    UrlAgent {
        name: "openai-responses in the background",
        protocol: "openai-responses",
        options: "options = { model = \"m\", background = true }",
        begins: &[RESPONSE],
        cancels: Some(|request| request.path.ends_with("/responses/resp_1/cancel")),
        rejoins: Some((
            |request| request.path.ends_with("/responses/resp_1"),
            &[
                RESPONSE,
                r#"data: {"type":"response.completed","sequence_number":1,"response":{"id":"resp_1","object":"response","status":"completed","output":[]}}"#,
            ],
        )),
    },
    UrlAgent {
        name: "a2a",
        protocol: "a2a",
        options: "",
        begins: &[
            r#"data: {"jsonrpc":"2.0","id":"r","result":{"task":{"id":"task-1","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}}"#,
        ],
        cancels: Some(|request| request.body["method"] == "CancelTask"),
        rejoins: Some((
            |request| request.body["method"] == "SubscribeToTask",
            &[
                r#"data: {"jsonrpc":"2.0","id":"r","result":{"statusUpdate":{"taskId":"task-1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}"#,
            ],
        )),
    },
];

fn text(blocks: &[&str]) -> String {
    blocks.iter().map(|block| format!("{block}\n\n")).collect()
}

impl UrlAgent {
    fn table(&self, url: &str, settings: &str) -> String {
        format!("[helper]\nprotocol = \"{}\"\nurl = \"{url}\"\n{}\n{settings}\n", self.protocol, self.options)
    }

    fn begins(&self, ending: Ending) -> Reply {
        Reply::Text(text(self.begins), ending)
    }
}

/// A program that speaks a protocol of processes, as far as its first turn.
struct ProgramAgent {
    protocol: &'static str,
    /// Reads the connector's greeting, and begins the turn.
    begins: &'static str,
}

const PROGRAM_AGENTS: [ProgramAgent; 2] = [
    ProgramAgent {
        protocol: "acp",
        begins: r#"
read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Half"}}}}'
"#,
    },
    ProgramAgent {
        protocol: "claude-stream-json",
        begins: r#"
read -r line
echo '{"type":"system","subtype":"init","session_id":"s","uuid":"1","model":"m","permissionMode":"default","tools":[]}'
echo '{"type":"assistant","session_id":"s","uuid":"2","parent_tool_use_id":null,"message":{"id":"m1","role":"assistant","model":"m","content":[{"type":"text","text":"Half"}]}}'
"#,
    },
];

impl ProgramAgent {
    fn table(&self, directory: &Path, script: &str, settings: &str) -> String {
        let file = directory.join(format!("{}.sh", self.protocol));
        std::fs::write(&file, script).unwrap();
        let file = file.to_str().unwrap();
        format!("[helper]\nprotocol = \"{}\"\ncommand = [\"/bin/sh\", {file:?}]\n{settings}\n", self.protocol)
    }
}

#[test]
fn the_table_has_every_protocol() {
    for kind in CONNECTORS {
        let is_listed = match kind.target {
            TargetKind::Url => URL_AGENTS.iter().any(|agent| agent.protocol == kind.name),
            TargetKind::Command => PROGRAM_AGENTS.iter().any(|agent| agent.protocol == kind.name),
        };
        assert!(is_listed, "{}", kind.name);
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_fails_the_run_with_the_reason_in_every_protocol() {
    let rows = URL_AGENTS.iter().map(|agent| async move {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let down = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        agent_fails(&agent.table(&down, "retries = 0"), "endpoint_unreachable").await;
        for (reply, code) in [
            (Reply::Other(500, "text/plain", "boom"), "endpoint_failed"),
            (Reply::Other(200, "text/html", "<p>Hello"), "endpoint_content_type"),
            (agent.begins(Ending::Broken), "endpoint_closed"),
            (Reply::Silence, "endpoint_silent"),
            (agent.begins(Ending::Open), "endpoint_silent"),
        ] {
            let endpoint = Endpoint::start(vec![reply]).await;
            println!("{} {code}", agent.name);
            agent_fails(&agent.table(&endpoint.url, "first-byte-seconds = 1\nsilence-seconds = 1"), code).await;
            endpoint.received().await;
            assert_eq!(endpoint.unread().await, 0, "{}: the call is not repeated", agent.name);
        }
    });
    join_all(rows).await;
}

#[tokio::test]
async fn a_program_that_fails_fails_the_run_with_the_reason_in_every_protocol() {
    let dir = tempfile::tempdir().unwrap();
    for agent in PROGRAM_AGENTS {
        let missing = format!("[helper]\nprotocol = \"{}\"\ncommand = [\"/nowhere/at/all\"]\n", agent.protocol);
        agent_fails(&missing, "process_not_started").await;
        let limits = "first-byte-seconds = 1\nsilence-seconds = 1";
        let read_on = "while read -r line; do :; done";
        for (script, code) in [
            ("echo 'no licence found' >&2; exit 3".to_owned(), "process_ended"),
            (format!("echo '<p>Hello'; {read_on}"), "endpoint_not_json"),
            (format!("{} exit 1", agent.begins), "process_ended"),
            (read_on.to_owned(), "process_silent"),
            (format!("{} {read_on}", agent.begins), "process_silent"),
        ] {
            println!("{} {code}", agent.protocol);
            agent_fails(&agent.table(dir.path(), &script, limits), code).await;
        }
    }
}

async fn send(client: &Client, run: &str) {
    send_text(client, run, "Go").await;
}

async fn send_text(client: &Client, run: &str, text: &str) {
    let value = json!({ "runId": run, "messages": [{ "id": run, "role": "user", "content": text }] });
    let control = json!({ "control": "send", "agentId": "helper", "value": value });
    assert_eq!(post(client, "/v1/sessions/t/controls", &control).await.status, 202);
}

/// Whether a text stands whole in a request.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found.contains(text),
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(members) => members.values().any(|value| has_text(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[tokio::test]
async fn long_texts_and_outputs_are_whole_in_the_request_of_every_protocol() {
    let (asked, said, found) = ("ask ".repeat(50_000), "said ".repeat(1 << 19), "found ".repeat(1 << 17));
    // The servers of the others keep the conversation themselves.
    let with_history = ["ag-ui", "ai-sdk", "openai-responses"];
    let facts = [
        fact("run.started", json!({ "sessionId": "t", "agentId": "helper" })),
        fact("text.final", json!({ "messageId": "q", "payload": { "role": "user", "text": "Look" } })),
        fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "look", "input": {} } })),
        fact("tool.result", json!({ "toolCallId": "c", "payload": { "output": found } })),
        fact("text.final", json!({ "messageId": "a", "payload": { "text": said } })),
        fact("run.finished", json!({})),
    ];
    for agent in URL_AGENTS {
        let endpoint = Endpoint::start(vec![agent.begins(Ending::Open)]).await;
        let client = start_server(&agent.table(&endpoint.url, "")).await;
        client.append("before", &facts).await;
        send_text(&client, "r", &asked).await;
        let mut requests = vec![endpoint.received().await];
        // LangGraph's thread is made first.
        while !has_text(&requests.last().unwrap().body, &asked) {
            requests.push(endpoint.received().await);
        }
        let body = &requests.last().unwrap().body;
        if with_history.contains(&agent.protocol) {
            assert!(has_text(body, &said) && has_text(body, &found), "{}", agent.name);
        }
    }
}

/// Waits until a fact of the agent is in the log, with what the connector remembers of it.
async fn wait_until_begun(client: &Client, run: &str) {
    let begun = async {
        loop {
            let answer = client.get(&format!("/v1/runs/{run}")).await;
            // The acceptance and the user's message come before it.
            if answer.status == 200 && answer.json()["lastSequence"].as_u64() > Some(2) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_timeout("the beginning of the run", begun).await;
}

#[tokio::test]
async fn a_stop_reaches_the_agent_in_every_protocol() {
    let rows = URL_AGENTS.iter().map(|agent| async move {
        println!("{}", agent.name);
        let (release, released) = oneshot::channel();
        let begins = match agent.cancels {
            None => agent.begins(Ending::Open),
            Some(_) => Reply::Held(text(agent.begins), released),
        };
        let endpoint =
            Endpoint::start(vec![begins, Reply::Json(json!({ "jsonrpc": "2.0", "id": "cancel", "result": {} }))]).await;
        let client = start_server(&agent.table(&endpoint.url, "")).await;
        send(&client, "r").await;
        endpoint.received().await;
        wait_until_begun(&client, "r").await;
        post(&client, "/v1/runs/r/controls", &json!({ "control": "stop" })).await;
        match agent.cancels {
            None => endpoint.wait_until_closed().await,
            Some(is_cancellation) => {
                let request = endpoint.received().await;
                assert!(is_cancellation(&request), "{}: {request:?}", agent.name);
                release.send(()).unwrap();
            }
        }
        wait_for_status(&client, "r", "cancelled").await;
        let controls = client.get("/v1/runs/r/controls").await.ok();
        assert_eq!(controls["controls"][0]["status"], "acked", "{}", agent.name);
    });
    join_all(rows).await;
}

#[tokio::test]
async fn a_stop_reaches_a_program_in_every_protocol() {
    let ends = [
        "read -r line; case \"$line\" in *session/cancel*) echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"stopReason\":\"cancelled\"}}';; esac; read -r line",
        "read -r line; case \"$line\" in *'\"subtype\":\"interrupt\"'*) echo '{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"terminal_reason\":\"aborted_streaming\",\"is_error\":true,\"session_id\":\"s\",\"uuid\":\"3\",\"num_turns\":1,\"result_index\":0}';; esac; read -r line",
    ];
    for (agent, ends) in PROGRAM_AGENTS.iter().zip(ends) {
        println!("{}", agent.protocol);
        let dir = tempfile::tempdir().unwrap();
        let client = start_server(&agent.table(dir.path(), &format!("{} {ends}", agent.begins), "")).await;
        send(&client, "r").await;
        wait_until_begun(&client, "r").await;
        wait_for_status(&client, "r", "running").await;
        post(&client, "/v1/runs/r/controls", &json!({ "control": "interrupt" })).await;
        wait_for_status(&client, "r", "cancelled").await;
    }
}

/// The code of a failed run, for operators.
async fn code_of(client: &Client, run: &str) -> Value {
    let entries = activities(client, run, "dashboard", "diagnostics").await[0]["entries"].clone();
    entries.as_array().unwrap().last().unwrap()["code"].clone()
}

#[tokio::test]
async fn a_run_continues_or_fails_after_a_restart_in_every_protocol() {
    let rows = URL_AGENTS.iter().map(|agent| async move {
        println!("{}", agent.name);
        let dir = tempfile::tempdir().unwrap();
        let mut replies = vec![agent.begins(Ending::Open)];
        replies.extend(agent.rejoins.map(|(_, rest)| Reply::Text(text(rest), Ending::Regular)));
        let endpoint = Endpoint::start(replies).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let store = storage_in(dir.path(), Sync::Never).await;
        let (client, serving) = start_server_on(store, &agent.table(&endpoint.url, ""), async { drop(stopped.await) }).await;
        send(&client, "r").await;
        endpoint.received().await;
        wait_until_begun(&client, "r").await;
        stop.send(()).unwrap();
        serving.await.unwrap();
        let store = storage_in(dir.path(), Sync::Never).await;
        let (client, _serving) = start_server_on(store, &agent.table(&endpoint.url, ""), std::future::pending()).await;
        match agent.rejoins {
            None => {
                wait_for_status(&client, "r", "failed").await;
                assert_eq!(code_of(&client, "r").await, "server_restarted", "{}", agent.name);
                assert_eq!(endpoint.unread().await, 0, "{}: the call is not repeated", agent.name);
            }
            Some((is_join, _)) => {
                let request = endpoint.received().await;
                assert!(is_join(&request), "{}: {request:?}", agent.name);
                wait_for_status(&client, "r", if agent.protocol == "langgraph" { "failed" } else { "completed" }).await;
            }
        }
        assert_eq!(activities(&client, "r", "user", "run").await[0]["attempt"], 1, "{}", agent.name);
    });
    join_all(rows).await;
}

/// Whether a process runs. One that has ended but was not yet waited for does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[tokio::test]
async fn a_program_ends_with_its_server_and_takes_its_children_along() {
    for agent in PROGRAM_AGENTS {
        println!("{}", agent.protocol);
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let starts_child = format!("sleep 600 & echo \"$! $$\" > {}", pids.to_str().unwrap());
        let script = format!("{starts_child}\n{}\nwhile read -r line; do :; done", agent.begins);
        let store = dir.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let table = agent.table(dir.path(), &script, "");
        let (client, serving) =
            start_server_on(storage_in(&store, Sync::Never).await, &table, async { drop(stopped.await) }).await;
        send(&client, "r").await;
        // The user's message alone makes the run one at work.
        wait_until_begun(&client, "r").await;
        let pids = std::fs::read_to_string(&pids).unwrap();
        assert!(pids.split_whitespace().count() == 2 && pids.split_whitespace().all(is_running), "{pids}");
        stop.send(()).unwrap();
        serving.await.unwrap();
        let gone = async {
            while pids.split_whitespace().any(is_running) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        with_timeout("the end of the program and its child", gone).await;
        let (client, _serving) = start_server_on(storage_in(&store, Sync::Never).await, &table, std::future::pending()).await;
        wait_for_status(&client, "r", "failed").await;
        assert_eq!(code_of(&client, "r").await, "server_restarted");
    }
}

#[tokio::test]
async fn a_program_that_is_silent_is_killed_with_its_children() {
    for agent in PROGRAM_AGENTS {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 600 & echo \"$! $$\" > {}\n{}\nwait", pids.to_str().unwrap(), agent.begins);
        agent_fails(&agent.table(dir.path(), &script, "silence-seconds = 1"), "process_silent").await;
        let pids = std::fs::read_to_string(&pids).unwrap();
        let gone = async {
            while pids.split_whitespace().any(is_running) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        with_timeout("the end of the program and its child", gone).await;
    }
}
