//! What an agent knows in a branch: its own state at the point, or the conversation before it.

use super::endpoint::{Endpoint, Reply, activities, events, post, start_server, start_server_on, wait_for_status};
use super::protocols::{langgraph, node_says, program, run_metadata};
use crate::harness::{Client, storage_in};
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use std::path::Path;
use tokio::sync::oneshot;

/// Sends a message to a session, and waits for the end of its run.
async fn send(client: &Client, session: &str, run: &str, status: &str) {
    let message = json!({ "id": format!("u-{run}"), "role": "user", "content": format!("Say {run}") });
    let body = json!({ "control": "send", "agentId": "helper", "value": { "runId": run, "messages": [message] } });
    let sent = post(client, &format!("/v1/sessions/{session}/controls"), &body).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    wait_for_status(client, run, status).await;
}

/// Begins a branch after a message, and returns what its agent knows.
async fn branch_at(client: &Client, session: &str, after: Value, id: &str) -> Value {
    let made = post(client, &format!("/v1/sessions/{session}/branches"), &json!({ "after": after, "sessionId": id })).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["fork"].clone()
}

async fn branch(client: &Client, session: &str, message: &str, id: &str) -> Value {
    branch_at(client, session, json!({ "messageId": message }), id).await
}

/// The answers of LangGraph's server to a turn.
fn langgraph_turn(run: &'static str) -> Vec<Reply> {
    vec![
        Reply::Named(vec![run_metadata(run), node_says(&format!("m-{run}"), run)], false),
        Reply::Json(json!({ "run_id": run, "status": "success" })),
        Reply::Json(json!({ "next": [], "tasks": [] })),
    ]
}

/// The answers to the copy of a thread.
fn copied(run: &str, checkpoint: &str, thread: &str) -> Vec<Reply> {
    let state = json!({ "checkpoint": { "checkpoint_id": checkpoint }, "metadata": { "run_id": run } });
    vec![Reply::Json(json!([state])), Reply::Json(json!({ "thread_id": thread }))]
}

/// The next requests: where they went after `/agent/threads/`, and what they said.
async fn requests(endpoint: &Endpoint, count: usize) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let received = endpoint.received().await;
        all.push((received.path.trim_start_matches("/agent/threads/").to_owned(), received.body));
    }
    all
}

fn texts(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap_or("…")).collect()
}

const ROOT: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

#[tokio::test]
async fn a_branch_of_a_langgraph_session_runs_on_a_copy_of_the_thread_at_the_point() {
    let replies = [
        langgraph_turn("r1"),
        langgraph_turn("r2"),
        copied("r1", "check-1", "copy-1"),
        langgraph_turn("r3"),
        langgraph_turn("r4"),
        copied("r3", "check-3", "copy-2"),
        langgraph_turn("r5"),
        langgraph_turn("r6"),
    ];
    let endpoint = Endpoint::start(replies.into_iter().flatten().collect()).await;
    let client = start_server(&langgraph(&endpoint)).await;
    send(&client, ROOT, "r1", "completed").await;
    send(&client, ROOT, "r2", "completed").await;
    requests(&endpoint, 6).await;
    assert_eq!(branch(&client, ROOT, "m-r1", "b").await, "state", "the message is the last thing of an older run");
    send(&client, "b", "r3", "completed").await;
    let sent = requests(&endpoint, 5).await;
    assert_eq!(sent[0], (format!("{ROOT}/history"), json!({ "limit": 1, "metadata": { "run_id": "r1" } })));
    assert_eq!(sent[1], (format!("{ROOT}/copy"), json!({})));
    let (path, body) = &sent[2];
    assert_eq!(
        (path.as_str(), &body["checkpoint_id"], &body["if_not_exists"]),
        ("copy-1/runs/stream", &json!("check-1"), &json!("reject"))
    );
    assert_eq!(body["input"]["messages"], json!([{ "id": "u-r3", "role": "user", "content": "Say r3" }]), "only what is new");
    send(&client, "b", "r4", "completed").await;
    let (path, body) = requests(&endpoint, 3).await.remove(0);
    assert_eq!(
        (path.as_str(), &body["checkpoint_id"], &body["if_not_exists"]),
        ("copy-1/runs/stream", &Value::Null, &json!("create"))
    );

    // A branch of the branch, and the session itself.
    assert_eq!(branch(&client, "b", "m-r3", "c").await, "state");
    send(&client, "c", "r5", "completed").await;
    let sent = requests(&endpoint, 5).await;
    assert_eq!([&*sent[0].0, &sent[1].0, &sent[2].0], ["copy-1/history", "copy-1/copy", "copy-2/runs/stream"]);
    assert_eq!(sent[2].1["checkpoint_id"], "check-3");
    send(&client, ROOT, "r6", "completed").await;
    assert_eq!(requests(&endpoint, 3).await[0].0, format!("{ROOT}/runs/stream"), "the parent keeps its thread");
    let diagnostics = activities(&client, "r3", "dashboard", "diagnostics").await[0]["entries"][0].clone();
    assert_eq!(diagnostics["code"], "agent_state_copied", "{diagnostics}");
}

#[tokio::test]
async fn a_langgraph_thread_is_copied_once_although_the_server_restarts_before_the_run_begins() {
    let replies =
        [langgraph_turn("r1"), copied("r1", "check", "copy"), vec![Reply::Other(500, "text/plain", "no")], langgraph_turn("r3")];
    let endpoint = Endpoint::start(replies.into_iter().flatten().collect()).await;
    let dir = tempfile::tempdir().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, serving) = start_server_on(store, &langgraph(&endpoint), async { drop(stopped.await) }).await;
    send(&client, ROOT, "r1", "completed").await;
    assert_eq!(branch(&client, ROOT, "m-r1", "b").await, "state");
    send(&client, "b", "r2", "failed").await;
    requests(&endpoint, 6).await;
    drop(client);
    stop.send(()).unwrap();
    serving.await.unwrap();
    let store = storage_in(dir.path(), Sync::Never).await;
    let (client, _serving) = start_server_on(store, &langgraph(&endpoint), std::future::pending()).await;
    send(&client, "b", "r3", "completed").await;
    let (path, body) = requests(&endpoint, 3).await.remove(0);
    assert_eq!((path.as_str(), &body["checkpoint_id"]), ("copy/runs/stream", &json!("check")));
}

#[tokio::test]
async fn a_langgraph_branch_within_a_turn_has_a_new_thread_with_the_conversation() {
    let calls = json!([{ "name": "look", "args": { "path": "a" }, "id": "c1" }]);
    let looks = json!({ "type": "ai", "id": "m1", "content": "", "tool_calls": calls });
    let found = json!({ "type": "tool", "id": "t1", "tool_call_id": "c1", "name": "look", "content": "It is there" });
    let mut first = langgraph_turn("r1");
    first[0] = Reply::Named(
        vec![
            run_metadata("r1"),
            ("updates", json!({ "model": { "messages": [looks] } })),
            ("updates", json!({ "tools": { "messages": [found] } })),
            node_says("m2", "Found it"),
        ],
        false,
    );
    let replies = [first, langgraph_turn("r2"), langgraph_turn("r3"), langgraph_turn("r4")];
    let endpoint = Endpoint::start(replies.into_iter().flatten().collect()).await;
    let client = start_server(&langgraph(&endpoint)).await;
    send(&client, ROOT, "r1", "completed").await;
    send(&client, ROOT, "r2", "completed").await;
    requests(&endpoint, 6).await;
    assert_eq!(branch(&client, ROOT, "u-r2", "b").await, "transcript", "the run went on after this message");
    send(&client, "b", "r3", "completed").await;
    let (path, body) = requests(&endpoint, 3).await.remove(0);
    assert!(!path.starts_with(ROOT) && path.ends_with("/runs/stream"), "{path}");
    let messages = &body["input"]["messages"];
    assert_eq!(texts(messages), ["Say r1", "", "It is there", "Found it", "Say r2", "Say r3"], "{messages:#}");
    assert_eq!(messages[0]["id"], "u-r1");
    assert_eq!(messages[1]["tool_calls"], json!([{ "type": "tool_call", "id": "c1", "name": "look", "args": { "path": "a" } }]));
    assert_eq!((&messages[2]["role"], &messages[2]["tool_call_id"]), (&json!("tool"), &json!("c1")));
    assert_eq!(body["checkpoint_id"], Value::Null);
    send(&client, "b", "r4", "completed").await;
    let (again, body) = requests(&endpoint, 3).await.remove(0);
    assert_eq!((again, texts(&body["input"]["messages"])), (path, vec!["Say r4"]), "the thread has the rest");
}

/// What a user and an operator see of a run whose agent has lost its state.
async fn assert_lost(client: &Client, run: &str) {
    let shown = activities(client, run, "user", "run").await[0].clone();
    assert_eq!(json!([shown["error"]["code"], shown["retryable"]]), json!(["agent_state_lost", true]), "{shown:#}");
    let reasons = activities(client, run, "dashboard", "diagnostics").await[0]["entries"].clone();
    assert_eq!(reasons.as_array().unwrap().last().unwrap()["code"], "agent_state_lost", "{reasons:#}");
}

#[tokio::test]
async fn a_state_that_the_langgraph_server_lost_fails_the_run_and_the_next_one_gets_the_conversation() {
    let other = json!([{ "checkpoint": { "checkpoint_id": "c" }, "metadata": { "run_id": "another" } }]);
    let gone = || Reply::Other(404, "application/json", "{}");
    let copied = || copied("r1", "check", "copy");
    for lost in [
        vec![gone()],
        vec![Reply::Json(json!([]))],
        vec![Reply::Json(other)],
        vec![copied().remove(0), gone()],
        copied().into_iter().chain([gone()]).collect(),
    ] {
        let asked = lost.len();
        let replies = [langgraph_turn("r1"), lost, langgraph_turn("r3")];
        let endpoint = Endpoint::start(replies.into_iter().flatten().collect()).await;
        let client = start_server(&langgraph(&endpoint)).await;
        send(&client, ROOT, "r1", "completed").await;
        branch(&client, ROOT, "m-r1", "b").await;
        send(&client, "b", "r2", "failed").await;
        assert_lost(&client, "r2").await;
        requests(&endpoint, 3 + asked).await;
        assert_eq!(branch(&client, ROOT, "m-r1", "c").await, "transcript", "a further branch knows");
        send(&client, "b", "r3", "completed").await;
        let (_, body) = requests(&endpoint, 3).await.remove(0);
        assert_eq!(texts(&body["input"]["messages"]), ["Say r1", "r1", "Say r2", "Say r3"]);
        assert_eq!(json!([body["checkpoint_id"], body["if_not_exists"]]), json!([null, "create"]));
    }
}

fn responses(endpoint: &Endpoint) -> String {
    format!("[helper]\nprotocol = \"openai-responses\"\nurl = \"{}\"\noptions = {{ model = \"m\" }}\nretries = 0\n", endpoint.url)
}

/// A response with this item, and what the endpoint says of how it is kept.
fn response(id: &str, item: &Value, kept: &Value) -> Reply {
    let whole = |status: &str, output: Value| {
        let mut whole = json!({ "id": id, "object": "response", "status": status, "output": output });
        whole.as_object_mut().unwrap().extend(kept.as_object().unwrap().clone());
        whole
    };
    Reply::Events(vec![
        json!({ "type": "response.created", "sequence_number": 0, "response": whole("in_progress", json!([])) }),
        json!({ "type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "sequence_number": 3, "response": whole("completed", json!([item])) }),
    ])
}

fn says(id: &str) -> Value {
    json!({ "id": format!("m-{id}"), "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": id, "annotations": [] }] })
}

fn stored(id: &str) -> Reply {
    response(id, &says(id), &json!({ "store": true }))
}

#[tokio::test]
async fn a_branch_of_a_responses_session_follows_the_response_at_the_point_if_it_is_stored_and_open_to_none() {
    let function = json!({ "id": "fc", "type": "function_call", "call_id": "c1", "name": "where", "arguments": "{}", "status": "completed" });
    for (first, fork) in [
        (stored("resp-1"), "state"),
        (response("resp-1", &says("resp-1"), &json!({ "store": false })), "transcript"),
        (response("resp-1", &says("resp-1"), &json!({})), "transcript"),
        (response("resp-1", &function, &json!({ "store": true })), "transcript"),
    ] {
        let endpoint = Endpoint::start(vec![first, stored("resp-2"), stored("resp-3"), stored("resp-4")]).await;
        let client = start_server(&responses(&endpoint)).await;
        send(&client, "s", "r1", "completed").await;
        let last = client.get("/v1/runs/r1").await.ok()["lastSequence"].clone();
        send(&client, "s", "r2", "completed").await;
        requests(&endpoint, 2).await;
        assert_eq!(branch_at(&client, "s", json!({ "runId": "r1", "sequence": last }), "b").await, fork);
        send(&client, "b", "r3", "completed").await;
        let (_, body) = requests(&endpoint, 1).await.remove(0);
        let new = json!({ "role": "user", "content": "Say r3" });
        match fork {
            "state" => assert_eq!(json!([body["previous_response_id"], body["input"]]), json!(["resp-1", [new]])),
            _ => {
                assert_eq!(body["previous_response_id"], Value::Null);
                assert_eq!(
                    (&body["input"][0]["content"], body["input"].as_array().unwrap().last()),
                    (&json!("Say r1"), Some(&new))
                );
            }
        }
        send(&client, "b", "r4", "completed").await;
        let (_, body) = requests(&endpoint, 1).await.remove(0);
        let input = body["input"].as_array().unwrap();
        assert_eq!((&body["previous_response_id"], &input[0]["content"]), (&Value::Null, &json!("Say r1")));
        assert_eq!(input.iter().filter(|item| item["content"] == "Say r3").count(), 1);
    }
}

#[tokio::test]
async fn a_response_does_not_stand_for_what_another_agent_said_after_it() {
    let endpoint = Endpoint::start(vec![stored("resp-1"), stored("resp-2")]).await;
    let client = start_server(&responses(&endpoint)).await;
    send(&client, "s", "r1", "completed").await;
    let facts = json!([
        { "type": "run.started" },
        { "type": "text.final", "messageId": "m", "payload": { "role": "assistant", "text": "From another" } },
        { "type": "run.finished" },
    ]);
    post(&client, "/v1/runs/other/facts?sessionId=s&agentId=other", &facts).await;
    branch(&client, "s", "m", "b").await;
    requests(&endpoint, 1).await;
    send(&client, "b", "r2", "completed").await;
    let (_, body) = requests(&endpoint, 1).await.remove(0);
    assert_eq!(texts(&body["input"]), ["Say r1", "resp-1", "From another", "Say r2"]);
    assert_eq!(body["previous_response_id"], Value::Null);
}

#[tokio::test]
async fn a_response_that_the_endpoint_lost_or_ignores_fails_the_run_and_the_next_one_gets_the_conversation() {
    let not_found = r#"{"error":{"code":"previous_response_not_found","message":"Previous response not found."}}"#;
    for lost in [
        Reply::Other(404, "application/json", "{}"),
        Reply::Other(400, "application/json", not_found),
        response("resp-2", &says("resp-2"), &json!({ "previous_response_id": null, "store": true })),
    ] {
        let endpoint = Endpoint::start(vec![stored("resp-1"), lost, stored("resp-3")]).await;
        let client = start_server(&responses(&endpoint)).await;
        send(&client, "s", "r1", "completed").await;
        assert_eq!(branch_at(&client, "s", end_of(&client, "r1").await, "b").await, "state");
        send(&client, "b", "r2", "failed").await;
        assert_lost(&client, "r2").await;
        requests(&endpoint, 2).await;
        send(&client, "b", "r3", "completed").await;
        let (_, body) = requests(&endpoint, 1).await.remove(0);
        assert_eq!(body["previous_response_id"], Value::Null);
        assert_eq!(texts(&body["input"]), ["Say r1", "resp-1", "Say r2", "Say r3"]);
    }
}

const FORKED: &str = "0b2a5e0c-3a43-4a53-8a3e-0d5b0f6d9c11";

/// A program like Claude Code, which notes its arguments and lines. It forks a session, unless it does not have it.
fn claude(dir: &Path, has_session: bool) -> String {
    let script = r#"
echo "$@" | sed 's/.*--permission-prompt-tool stdio //' >> DIR/arguments
for last; do :; done
session=${last#*=}
case "$*" in *--fork-session*)
  [ HAS = true ] || { read -r line; echo "No conversation found with session ID: $session" >&2; exit 1; }
  session=FORKED ;;
esac
n=0
while read -r line; do
  n=$((n + 1))
  printf '%s\n' "$line" >> DIR/lines
  echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\",\"uuid\":\"i$$$n\",\"model\":\"m\",\"permissionMode\":\"default\",\"tools\":[]}"
  echo "{\"type\":\"assistant\",\"session_id\":\"$session\",\"uuid\":\"a$$$n\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"m$$-$n\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"Yes\"}]}}"
  echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"$session\",\"uuid\":\"r$$$n\",\"result\":\"\",\"num_turns\":1,\"result_index\":0}"
done
"#;
    let script = script.replace("DIR", &dir.display().to_string()).replace("FORKED", FORKED);
    program(dir, "claude-stream-json", &script.replace("HAS", &has_session.to_string()))
}

/// The lines of a file that a program wrote.
fn noted(dir: &Path, file: &str) -> Vec<String> {
    std::fs::read_to_string(dir.join(file)).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The texts of the last line that a program got.
fn last_said(dir: &Path) -> Vec<String> {
    let line: Value = serde_json::from_str(noted(dir, "lines").last().unwrap()).unwrap();
    line["message"]["content"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap().to_owned()).collect()
}

/// The point after the last message of a run.
async fn end_of(client: &Client, run: &str) -> Value {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience=user")).await.ok()["activities"].clone();
    let last = shown.as_array().unwrap().iter().rfind(|activity| activity["activityType"] == "message").unwrap().clone();
    json!({ "messageId": last["activityId"] })
}

#[tokio::test]
async fn a_branch_at_the_end_of_claude_s_session_begins_with_a_fork_of_it_and_goes_on_with_that_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let table = claude(dir.path(), true);
    std::fs::create_dir(dir.path().join("store")).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let store = storage_in(&dir.path().join("store"), Sync::Never).await;
    let (client, serving) = start_server_on(store, &table, async { drop(stopped.await) }).await;
    send(&client, "s", "r1", "completed").await;
    // The session's own log is newer than its run.
    assert_eq!(client.patch("/v1/sessions/s", &json!({ "title": "Mine" })).await.status, 200);
    let end = end_of(&client, "r1").await;
    assert_eq!(branch_at(&client, "s", end.clone(), "b").await, "state");
    assert_eq!(branch_at(&client, "s", end.clone(), "late").await, "state");
    send(&client, "b", "r2", "completed").await;
    let session = noted(dir.path(), "arguments")[0].strip_prefix("--session-id=").unwrap().to_owned();
    assert_eq!(noted(dir.path(), "arguments")[1], format!("--fork-session --resume={session}"));
    assert_eq!(last_said(dir.path()), ["Say r2"], "the program has the rest");

    // The session goes on: its end is no longer the point.
    send(&client, "s", "r3", "completed").await;
    assert_eq!(branch_at(&client, "s", end, "c").await, "transcript");
    for (branch, run) in [("c", "r4"), ("late", "r5")] {
        send(&client, branch, run, "completed").await;
        assert!(noted(dir.path(), "arguments").last().unwrap().starts_with("--session-id="), "{branch}");
        let said = last_said(dir.path());
        assert_eq!(
            (said[0].as_str(), said[1].clone()),
            ("The conversation so far:\n\nuser: Say r1\n\nassistant: Yes", format!("Say {run}"))
        );
    }
    drop(client);
    stop.send(()).unwrap();
    serving.await.unwrap();
    let store = storage_in(&dir.path().join("store"), Sync::Never).await;
    let (client, _serving) = start_server_on(store, &table, std::future::pending()).await;
    send(&client, "b", "r6", "completed").await;
    assert_eq!(noted(dir.path(), "arguments").last().unwrap(), &format!("--resume={FORKED}"));
    let end = end_of(&client, "r6").await;
    assert_eq!(branch_at(&client, "b", end, "d").await, "state", "a branch of the branch");
    send(&client, "d", "r7", "completed").await;
    assert_eq!(noted(dir.path(), "arguments").last().unwrap(), &format!("--fork-session --resume={FORKED}"));
}

#[tokio::test]
async fn a_session_that_claude_lost_fails_the_run_and_the_next_one_gets_the_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let client = start_server(&claude(dir.path(), false)).await;
    send(&client, "s", "r1", "completed").await;
    assert_eq!(branch_at(&client, "s", end_of(&client, "r1").await, "b").await, "state");
    send(&client, "b", "r2", "failed").await;
    assert_lost(&client, "r2").await;
    send(&client, "b", "r3", "completed").await;
    let said = last_said(dir.path());
    assert_eq!(said, ["The conversation so far:\n\nuser: Say r1\n\nassistant: Yes\n\nuser: Say r2", "Say r3"]);
}

/// What an agent over HTTP gets with the first and with the second message of a branch.
async fn in_a_branch(agent: &str, answer: impl Fn(&str) -> Reply) -> [Value; 2] {
    let endpoint = Endpoint::start(["r1", "r2", "r3"].map(&answer).into()).await;
    let client = start_server(&format!("[helper]\n{agent}\nurl = \"{}\"\n", endpoint.url)).await;
    send(&client, "s", "r1", "completed").await;
    assert_eq!(branch_at(&client, "s", end_of(&client, "r1").await, "b").await, "transcript", "{agent}");
    send(&client, "b", "r2", "completed").await;
    send(&client, "b", "r3", "completed").await;
    requests(&endpoint, 1).await;
    let sent = requests(&endpoint, 2).await;
    [sent[0].1.clone(), sent[1].1.clone()]
}

#[tokio::test]
async fn an_agent_that_has_no_states_gets_the_conversation_in_its_own_form() {
    let [first, _] = in_a_branch("protocol = \"ag-ui\"", |run| {
        let of = |kind: &str| json!({ "type": kind, "threadId": "t", "runId": run });
        let said = json!({ "type": "TEXT_MESSAGE_CHUNK", "messageId": format!("m-{run}"), "role": "assistant", "delta": run });
        Reply::Events(vec![of("RUN_STARTED"), said, of("RUN_FINISHED")])
    })
    .await;
    assert_eq!((&first["threadId"], texts(&first["messages"])), (&json!("b"), vec!["Say r1", "r1", "Say r2"]));

    let chat = |run: &str| {
        let step = |kind: &str| json!({ "type": kind, "id": "0", "delta": run });
        let steps = ["text-start", "text-delta", "text-end"].map(step);
        let begin = json!({ "type": "start", "messageId": format!("m-{run}") });
        Reply::Events([vec![begin], steps.to_vec(), vec![json!({ "type": "finish" })]].concat())
    };
    for (agent, again) in [("protocol = \"ai-sdk\"", 5), ("protocol = \"ai-sdk\"\noptions = { send = \"last\" }", 1)] {
        let [first, second] = in_a_branch(agent, chat).await;
        let said = |message: &Value| message["parts"].as_array().unwrap().last().unwrap()["text"].clone();
        let said: Vec<_> = first["messages"].as_array().unwrap().iter().map(said).collect();
        assert_eq!((&first["id"], json!(said)), (&json!("b"), json!(["Say r1", "r1", "Say r2"])), "{agent}");
        assert_eq!(second["messages"].as_array().unwrap().len(), again, "{agent}");
    }

    for (version, state, role) in [("1.0", "TASK_STATE_COMPLETED", "ROLE_AGENT"), ("0.3", "completed", "agent")] {
        let answer = |run: &str| {
            let is_03 = version == "0.3";
            let mut part = json!({ "text": run });
            let mut update = json!({ "taskId": format!("task-{run}"), "contextId": format!("context-{run}") });
            if is_03 {
                (part["kind"], update["kind"], update["final"]) = ("text".into(), "status-update".into(), true.into());
            }
            update["status"] =
                json!({ "state": state, "message": { "messageId": format!("m-{run}"), "role": role, "parts": [part] } });
            let result = if is_03 { update } else { json!({ "statusUpdate": update }) };
            Reply::Events(vec![json!({ "jsonrpc": "2.0", "id": run, "result": result })])
        };
        let agent = format!("protocol = \"a2a\"\noptions = {{ version = \"{version}\" }}");
        let [first, second] = in_a_branch(&agent, answer).await;
        let message = |of: &Value| of["params"]["message"].clone();
        let said =
            |of: &Value| message(of)["parts"].as_array().unwrap().iter().map(|part| part["text"].clone()).collect::<Value>();
        assert_eq!(said(&first), json!(["The conversation so far:\n\nuser: Say r1\n\nassistant: r1", "Say r2"]), "{version}");
        assert_eq!(message(&first)["contextId"], Value::Null, "a context of its own");
        assert_eq!((said(&second), &message(&second)["contextId"]), (json!(["Say r3"]), &json!("context-r2")));
    }
}

#[tokio::test]
async fn a_branch_of_an_acp_session_is_a_new_session_that_begins_with_the_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
while read -r line; do
  id=$(printf '%s\n' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  printf '%s\n' "$line" >> DIR/lines
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
    *'"session/new"'*) result="{\"sessionId\":\"s$$\"}" ;;
    *) echo "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s$$\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"Yes\"}}}}"
      result='{"stopReason":"end_turn"}' ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
done
"#;
    let client = start_server(&program(dir.path(), "acp", &script.replace("DIR", &dir.path().display().to_string()))).await;
    send(&client, "s", "r1", "completed").await;
    assert_eq!(branch_at(&client, "s", end_of(&client, "r1").await, "b").await, "transcript");
    send(&client, "b", "r2", "completed").await;
    let methods: Vec<Value> =
        noted(dir.path(), "lines").iter().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    let last = methods.last().unwrap();
    assert_eq!(methods[methods.len() - 2]["method"], "session/new");
    let said: Vec<_> = last["params"]["prompt"].as_array().unwrap().iter().map(|part| part["text"].clone()).collect();
    assert_eq!(json!(said), json!(["The conversation so far:\n\nuser: Say r1\n\nassistant: Yes", "Say r2"]));
}

fn chat_message(id: &str, role: &str, text: &str) -> Value {
    json!({ "id": id, "role": role, "parts": [{ "type": "text", "text": text }] })
}

/// Two turns of a `useChat` page, and then the second answer again. Returns the messages of the branch.
async fn regenerate(client: &Client, file: Option<&Value>) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut answer = String::new();
    for n in 1..=2 {
        let mut asked = chat_message(&format!("u{n}"), "user", &format!("Question {n}"));
        asked["parts"].as_array_mut().unwrap().extend(file.filter(|_| n == 2).cloned());
        messages.push(asked);
        let body = json!({ "id": ROOT, "trigger": "submit-message", "messages": messages });
        let said = events(&post(client, "/ai-sdk/helper", &body).await);
        answer = said.iter().find(|chunk| chunk["type"] == "start").unwrap()["messageId"].as_str().unwrap().to_owned();
        messages.push(chat_message(&answer, "assistant", "Yes"));
    }
    messages.pop();
    let body = json!({ "id": ROOT, "trigger": "regenerate-message", "messageId": answer, "messages": messages });
    let chunks = events(&post(client, "/ai-sdk/helper", &body).await);
    assert_eq!(chunks.last().unwrap()["type"], "finish", "{chunks:#?}");
    let head = client.get(&format!("/v1/sessions/{ROOT}")).await.ok()["head"].as_str().unwrap().to_owned();
    assert_ne!(head, ROOT, "the regenerated answer is in a branch");
    let window = client.get(&format!("/v1/sessions/{head}/window?messages=100")).await.ok();
    window["messages"].as_array().unwrap().iter().filter(|message| message["content"]["role"] == "user").cloned().collect()
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["activityId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_regenerated_answer_leaves_before_the_turn_and_the_agent_gets_the_question_once() {
    let replies = [langgraph_turn("r1"), langgraph_turn("r2"), copied("r1", "check-1", "copy"), langgraph_turn("r3")];
    let endpoint = Endpoint::start(replies.into_iter().flatten().collect()).await;
    let client = start_server(&langgraph(&endpoint)).await;
    assert_eq!(ids(&regenerate(&client, None).await), ["u1", "u2"]);
    requests(&endpoint, 6).await;
    let sent = requests(&endpoint, 3).await;
    assert_eq!(sent[0].1["metadata"]["run_id"], "r1", "the last run before the question");
    let (path, body) = &sent[2];
    assert_eq!((path.as_str(), &body["checkpoint_id"]), ("copy/runs/stream", &json!("check-1")));
    assert_eq!(body["input"]["messages"], json!([{ "id": "u2", "role": "user", "content": "Question 2" }]));

    let endpoint = Endpoint::start(["resp-1", "resp-2", "resp-3"].map(stored).into()).await;
    let client = start_server(&responses(&endpoint)).await;
    assert_eq!(ids(&regenerate(&client, None).await), ["u1", "u2"]);
    let (_, body) = requests(&endpoint, 3).await.remove(2);
    assert_eq!(
        json!([body["previous_response_id"], body["input"]]),
        json!(["resp-1", [{ "role": "user", "content": "Question 2" }]])
    );

    let dir = tempfile::tempdir().unwrap();
    let client = start_server(&claude(dir.path(), true)).await;
    assert_eq!(ids(&regenerate(&client, None).await), ["u1", "u2"]);
    assert_eq!(last_said(dir.path()), ["The conversation so far:\n\nuser: Question 1\n\nassistant: Yes", "Question 2"]);
}

#[tokio::test]
async fn an_attachment_of_the_session_that_a_branch_left_reaches_the_agent_and_one_of_another_session_does_not() {
    let answer = |run: &str| Reply::Events(vec![json!({ "type": "start", "messageId": run }), json!({ "type": "finish" })]);
    let endpoint = Endpoint::start(["a1", "a2", "a3", "a4"].map(answer).into()).await;
    let client = start_server(&format!("[helper]\nprotocol = \"ai-sdk\"\nurl = \"{}\"\n", endpoint.url)).await;
    let attach = async |session: &str| {
        let added = client.post(&format!("/v1/sessions/{session}/attachments"), &[("content-type", "image/png")], "AB").await;
        assert_eq!(added.status, 201, "{added:?}");
        json!({ "type": "file", "mediaType": "image/png", "url": added.json()["href"] })
    };
    let bytes = "data:image/png;base64,QUI=";
    let file = attach(ROOT).await;
    assert_eq!(ids(&regenerate(&client, Some(&file)).await), ["u1", "u2"]);
    let (_, sent) = requests(&endpoint, 3).await.remove(2);
    assert_eq!(sent["messages"].as_array().unwrap().last().unwrap()["parts"][1]["url"], bytes, "a message that is sent again");

    // A message of the frozen part, and the file of a branch in its parent.
    let end = json!({ "messageId": "u2" });
    assert_eq!(branch_at(&client, ROOT, end, "b").await, "transcript");
    send(&client, "b", "later", "completed").await;
    let (_, sent) = requests(&endpoint, 1).await.remove(0);
    let with_file = |message: &Value| message["parts"][1]["url"] == bytes;
    assert_eq!(sent["messages"].as_array().unwrap().iter().filter(|message| with_file(message)).count(), 1, "{sent:#}");
    let of_branch = attach("b").await;
    let attachments = json!([{ "href": of_branch["url"], "mediaType": "image/png" }]);
    let send = json!({ "control": "send", "agentId": "helper", "controlId": "c", "value": { "text": "See", "attachments": attachments } });
    post(&client, "/v1/sessions/other/controls", &send).await;
    wait_for_status(&client, "c", "failed").await;
    assert_eq!(activities(&client, "c", "user", "run").await[0]["error"]["code"], "file_refused");
}
