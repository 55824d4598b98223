//! An answer reaches the question that was shown, or none.

use super::endpoint::{
    Ending, Endpoint, Reply, activities, events, post, say, start_server, start_server_on, wait_for_control, wait_for_status,
};
use super::protocols::{asking, langgraph, node_says, program, run_metadata};
use crate::harness::{Client, storage_in};
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use tokio::sync::oneshot;

fn user(id: &str, text: &str) -> Value {
    json!([{ "id": id, "role": "user", "content": text }])
}

fn asks(interrupt: &str, path: &str) -> (&'static str, Value) {
    let review = json!({ "action_requests": [{ "name": "delete", "args": { "path": path } }], "review_configs": [] });
    ("updates", json!({ "__interrupt__": [{ "id": interrupt, "value": review }] }))
}

async fn decide(client: &Client, run: &str, control: &str, action: &str) -> crate::harness::Response {
    post(client, &format!("/v1/runs/{run}/controls"), &json!({ "control": control, "actionId": action })).await
}

async fn outcome(client: &Client, run: &str) -> Value {
    activities(client, run, "user", "action").await[0]["outcome"].clone()
}

#[tokio::test]
async fn a_new_message_supersedes_the_question_that_langgraph_abandons_by_it() {
    for (control, decided) in [("approve", "approved"), ("reject", "rejected")] {
        let mut answers = vec![Reply::Named(vec![run_metadata("up-1"), asks("i1", "one.txt")], false)];
        answers.push(Reply::Named(vec![run_metadata("up-2"), asks("i2", "PRODUCTION.db")], false));
        answers.push(asking(&["i2"]));
        answers.push(Reply::Named(vec![run_metadata("up-3"), node_says("m", "Done")], false));
        answers.extend([Reply::Json(json!({ "status": "success" })), Reply::Json(json!({ "next": [], "tasks": [] }))]);
        let endpoint = Endpoint::start(answers).await;
        let client = start_server(&langgraph(&endpoint)).await;
        say(&client, "t", "r1", user("u1", "Delete one.txt")).await;
        wait_for_status(&client, "r1", "waiting").await;
        say(&client, "t", "r2", user("u2", "Delete PRODUCTION.db")).await;
        wait_for_status(&client, "r2", "waiting").await;
        wait_for_status(&client, "r1", "interrupted").await;
        assert_eq!(outcome(&client, "r1").await, "superseded");
        let refused = decide(&client, "r1", control, "i1").await;
        assert_eq!((refused.status, refused.json()["code"].clone()), (409, "action_not_pending".into()));
        let resume = json!([{ "interruptId": "i1", "status": "resolved", "payload": { "approved": true } }]);
        let body = json!({ "threadId": "t", "runId": "r3", "messages": [], "resume": resume });
        let refused = post(&client, "/ag-ui/helper", &body).await;
        assert_eq!((refused.status, refused.json()["code"].clone()), (409, "action_not_pending".into()));
        assert_eq!(decide(&client, "r2", control, "i2").await.status, 202);
        for _ in 0..3 {
            endpoint.received().await;
        }
        let resumed = endpoint.received().await.body["command"]["resume"].clone();
        assert_eq!(resumed, json!({ "i2": { "decisions": [{ "type": control }] } }));
        wait_for_status(&client, "r2", "completed").await;
        assert_eq!(outcome(&client, "r2").await, decided);
    }
}

#[tokio::test]
async fn an_answer_to_a_question_that_the_thread_no_longer_asks_is_not_sent() {
    let answers = vec![
        Reply::Named(vec![run_metadata("up-1"), asks("i1", "one.txt")], false),
        // Another client of the graph moved the thread on, to another question.
        asking(&["other"]),
    ];
    let endpoint = Endpoint::start(answers).await;
    let client = start_server(&langgraph(&endpoint)).await;
    say(&client, "t", "r1", user("u1", "Delete one.txt")).await;
    wait_for_status(&client, "r1", "waiting").await;
    let approval = decide(&client, "r1", "approve", "i1").await.json();
    let refused = wait_for_control(&client, "r1", &approval["controlId"], "nacked").await;
    assert!(refused["reason"].as_str().unwrap().contains("no longer asks"), "{refused}");
    wait_for_status(&client, "r1", "interrupted").await;
    assert_eq!(outcome(&client, "r1").await, "superseded");
    endpoint.received().await;
    endpoint.received().await;
    assert_eq!(endpoint.unread().await, 0, "only the state was read");
}

#[tokio::test]
async fn questions_of_one_run_get_one_answer_each_in_one_call() {
    let both = |answers: Vec<Value>| ("updates", json!({ "__interrupt__": answers }));
    let ask = |id: &str| json!({ "id": id, "value": { "question": id } });
    let mut answers = vec![
        Reply::Named(vec![run_metadata("up-1"), both(vec![ask("i1"), ask("i2")])], false),
        asking(&["i1", "i2"]),
        Reply::Named(vec![run_metadata("up-2"), node_says("m", "Both")], false),
    ];
    answers.extend([Reply::Json(json!({ "status": "success" })), Reply::Json(json!({ "next": [], "tasks": [] }))]);
    let endpoint = Endpoint::start(answers).await;
    let client = start_server(&langgraph(&endpoint)).await;
    say(&client, "t", "r1", user("u1", "Ask")).await;
    wait_for_status(&client, "r1", "waiting").await;
    for action in ["i2", "i1"] {
        let answer = json!({ "control": "answer", "actionId": action, "value": format!("for {action}") });
        assert_eq!(post(&client, "/v1/runs/r1/controls", &answer).await.status, 202);
    }
    endpoint.received().await;
    endpoint.received().await;
    let resumed = endpoint.received().await.body["command"]["resume"].clone();
    assert_eq!(resumed, json!({ "i1": "for i1", "i2": "for i2" }));
    wait_for_status(&client, "r1", "completed").await;
}

#[tokio::test]
async fn a_question_ends_with_the_process_that_asked_it() {
    let claude = r#"
read -r line
echo '{"type":"system","subtype":"init","session_id":"s","uuid":"1","model":"m","permissionMode":"default","tools":[]}'
echo '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{"command":"rm a"}}}'
read -r line
"#;
    let dir = tempfile::tempdir().unwrap();
    let table = program(dir.path(), "claude-stream-json", claude);
    let store = dir.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (client, serving) = start_server_on(storage_in(&store, Sync::Never).await, &table, async { drop(stopped.await) }).await;
    let value = json!({ "runId": "r1", "messages": user("u1", "Delete") });
    post(&client, "/v1/sessions/t/controls", &json!({ "control": "send", "agentId": "helper", "value": value })).await;
    wait_for_status(&client, "r1", "waiting").await;
    stop.send(()).unwrap();
    serving.await.unwrap();
    let (client, _serving) = start_server_on(storage_in(&store, Sync::Never).await, &table, std::future::pending()).await;
    wait_for_status(&client, "r1", "failed").await;
    assert_eq!(outcome(&client, "r1").await, "superseded");
    let refused = decide(&client, "r1", "approve", "q1").await;
    assert_eq!((refused.status, refused.json()["code"].clone()), (409, "action_not_pending".into()));
}

/// A run that waits for the answer to a question of this id about a file.
async fn waiting(client: &Client, run: &str, path: &str) {
    let facts = json!([
        { "type": "run.started" },
        { "type": "tool.started", "toolCallId": "call", "payload": { "toolName": "delete", "input": { "path": path } } },
        { "type": "action.required", "actionId": "ask", "toolCallId": "call", "payload": { "kind": "tool_approval", "message": path } },
        { "type": "run.status", "payload": { "status": "waiting" } },
    ]);
    let path = format!("/v1/runs/{run}/facts?sessionId=t&agentId=helper");
    assert_eq!(post(client, &path, &facts).await.status, 200);
}

#[tokio::test]
async fn two_runs_that_ask_different_things_by_one_id_are_told_apart_or_refused() {
    let client = start_server("").await;
    waiting(&client, "r1", "one.txt").await;
    waiting(&client, "r2", "PRODUCTION.db").await;
    let resume = json!([{ "interruptId": "ask", "status": "resolved", "payload": { "approved": true } }]);
    for path in ["/ag-ui/helper", "/copilotkit/agent/helper/run"] {
        let body = json!({ "threadId": "t", "runId": "r3", "messages": [], "resume": resume });
        let refused = post(&client, path, &body).await;
        assert_eq!((refused.status, refused.json()["code"].clone()), (409, "action_not_pending".into()), "{path}");
    }
    // A message of `useChat` is one run.
    let approval = json!({ "id": "ask", "approved": true });
    let part =
        json!({ "type": "tool-delete", "toolCallId": "call", "state": "approval-responded", "input": {}, "approval": approval });
    let body = json!({ "id": "t", "messages": [{ "id": "r1", "role": "assistant", "parts": [part] }] });
    let chat = tokio::spawn({
        let client = client.clone();
        async move { post(&client, "/ai-sdk/helper?version=7", &body).await }
    });
    let submitted = async {
        while client.get("/v1/runs/r1/controls").await.ok()["controls"].as_array().unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    crate::harness::with_timeout("the decision", submitted).await;
    assert_eq!(client.get("/v1/runs/r2/controls").await.ok()["controls"], json!([]), "the other run gets no decision");
    chat.abort();
}

#[tokio::test]
async fn a_new_question_under_an_old_run_id_is_refused_and_not_lost() {
    let answer = |run: &str, id: &str, text: &str| {
        Reply::Events(vec![
            json!({ "type": "RUN_STARTED", "threadId": "t", "runId": run }),
            json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }),
            json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text }),
            json!({ "type": "TEXT_MESSAGE_END", "messageId": id }),
            json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": run }),
        ])
    };
    let endpoint = Endpoint::start(vec![answer("r1", "a1", "Bonjour"), answer("r2", "a2", "Encore")]).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ag-ui\"\nurl = \"{}\"\n", endpoint.url)).await;
    let first = json!({ "threadId": "t", "runId": "r1", "messages": user("u1", "Hello") });
    for path in ["/ag-ui/helper", "/copilotkit/agent/helper/run", "/ag-ui/helper"] {
        // The same request again attaches to the run.
        assert!(events(&post(&client, path, &first).await).iter().any(|event| event["type"] == "RUN_FINISHED"));
    }
    let history =
        json!([user("u1", "Hello")[0], { "id": "a1", "role": "assistant", "content": "Bonjour" }, user("u2", "Again")[0]]);
    let ask = |run: &str| json!({ "threadId": "t", "runId": run, "messages": history });
    for path in ["/ag-ui/helper", "/copilotkit/agent/helper/run"] {
        let refused = post(&client, path, &ask("r1")).await;
        assert_eq!((refused.status, refused.json()["code"].clone()), (409, "run_exists".into()), "{path}");
    }
    let asked = events(&post(&client, "/ag-ui/helper", &ask("r2")).await);
    assert!(asked.iter().any(|event| event["delta"] == "Encore"), "{asked:#?}");
    // A native message says its fate in its control.
    let value = json!({ "runId": "r1", "messages": user("u3", "Once more") });
    let send = json!({ "control": "send", "agentId": "helper", "value": value });
    let id = post(&client, "/v1/sessions/t/controls", &send).await.json()["controlId"].clone();
    let refused = async {
        loop {
            let all = client.get("/v1/sessions/t/controls").await.ok()["controls"].clone();
            let control = all.as_array().unwrap().iter().find(|control| control["controlId"] == id).unwrap();
            if control["status"] == "nacked" {
                return control["reason"].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let reason = crate::harness::with_timeout("the refusal", refused).await;
    assert!(reason.as_str().unwrap().contains("r1 exists"), "{reason}");
}

#[tokio::test]
async fn a_stop_ends_an_agent_that_goes_on_writing() {
    let endless = r#"
read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
while echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"and on "}}}}'; do :; done
"#;
    let dir = tempfile::tempdir().unwrap();
    let client = start_server(&program(dir.path(), "acp", endless)).await;
    let value = json!({ "runId": "r1", "messages": user("u1", "Write") });
    post(&client, "/v1/sessions/t/controls", &json!({ "control": "send", "agentId": "helper", "value": value })).await;
    wait_for_status(&client, "r1", "running").await;
    let stop = post(&client, "/v1/runs/r1/controls", &json!({ "control": "stop" })).await.json();
    wait_for_control(&client, "r1", &stop["controlId"], "acked").await;
    wait_for_status(&client, "r1", "cancelled").await;
    let rows = client.get("/v1/runs/r1/events?audience=internal&limit=1000&before=1000000000").await.ok()["events"].clone();
    let types: Vec<_> = rows.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let acked = rows.as_array().unwrap().iter().rposition(|event| event["payload"]["status"] == "acked").unwrap();
    assert!(!types[acked..].iter().any(|kind| kind == "text.delta"), "nothing follows the stop: {types:?}");
}

/// Events of a `LangGraph` stream, each with its id.
fn numbered(list: &[(&str, (&str, Value))]) -> String {
    list.iter().map(|(id, (name, data))| format!("event: {name}\r\ndata: {data}\r\nid: {id}\r\n\r\n")).collect()
}

#[tokio::test]
async fn a_joined_langgraph_stream_continues_after_the_last_event_of_the_log() {
    let said = |text: &str| node_says(text, text);
    // Ids of the server are not unique.
    let before = numbered(&[("1-0", run_metadata("up")), ("2-0", said("A")), ("2-0", said("B"))]);
    let after = numbered(&[("2-0", said("A")), ("2-0", said("B")), ("2-0", said("C")), ("3-0", said("D"))]);
    let texts = |messages: Vec<Value>| -> Vec<Value> {
        messages.iter().skip(1).map(|message| message["parts"][0]["text"][0].clone()).collect()
    };
    let (release, released) = oneshot::channel();
    let endpoint = Endpoint::start(vec![Reply::Text(before, Ending::Open), Reply::Held(after, released)]).await;
    let dir = tempfile::tempdir().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, serving) = start_server_on(store, &langgraph(&endpoint), async { drop(stopped.await) }).await;
    let value = json!({ "runId": "r1", "messages": user("u1", "Go") });
    post(&client, "/v1/sessions/t/controls", &json!({ "control": "send", "agentId": "helper", "value": value })).await;
    endpoint.received().await;
    let shows = async |client: &Client, count: usize| {
        while activities(client, "r1", "user", "message").await.len() <= count {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    wait_for_status(&client, "r1", "running").await;
    crate::harness::with_timeout("the first messages", shows(&client, 2)).await;
    stop.send(()).unwrap();
    serving.await.unwrap();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, _serving) = start_server_on(store, &langgraph(&endpoint), std::future::pending()).await;
    let joined = endpoint.received().await;
    assert!(joined.path.ends_with("/runs/up/stream"));
    assert_eq!(joined.headers["last-event-id"], "1-0", "the events of the last id come again, and are counted");
    crate::harness::with_timeout("the missed messages", shows(&client, 4)).await;
    assert_eq!(texts(activities(&client, "r1", "user", "message").await), ["A", "B", "C", "D"], "while the run goes on");
    drop(release);
}
