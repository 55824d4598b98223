//! Agents of the server for clients of the Agent2Agent protocol: cards, tasks, their streams, and their errors.

use crate::harness::{Client, fact, recordings, start_local, to_ndjson, with_timeout};
use crate::harness::{is_full, part_of};
use proscenium::attachments::{ATTACHMENT_BYTES_MAX, ATTACHMENTS_PER_SESSION_MAX};
use serde_json::{Map, Value, json};

pub const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

pub fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }).to_string()
}

pub async fn ask(client: &Client, method: &str, params: &Value) -> Value {
    let answer = client.post("/a2a/helper", &JSON, call(method, params)).await.ok();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("q")), "{answer}");
    answer
}

pub async fn error(client: &Client, method: &str, params: &Value) -> (i64, String) {
    let answer = ask(client, method, params).await;
    let error = &answer["error"];
    (error["code"].as_i64().unwrap_or_else(|| panic!("{answer}")), error["message"].as_str().unwrap().to_owned())
}

/// The results of a stream, and the id of each. An event without data must not occur.
fn events(body: &[u8]) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(body).unwrap();
    let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
    let of = |block: &str, name: &str| {
        let lines: Vec<_> = block.lines().filter_map(|line| line.strip_prefix(name)).collect();
        assert_eq!(lines.len(), 1, "{block}");
        lines[0].to_owned()
    };
    blocks.map(|block| (of(block, "id: "), serde_json::from_str(&of(block, "data: ")).unwrap())).collect()
}

/// A client's copy of a task, by the rules of the protocol.
fn fold(task: &mut Value, event: &Value) {
    assert_eq!((&event["jsonrpc"], &event["id"]), (&json!("2.0"), &json!("q")), "{event}");
    let result = &event["result"];
    // 1.0 names the kind by a member, 0.3 within the object.
    let of = |new: &str, old: &str| match result["kind"] == old {
        true => Some(result.clone()),
        false => result.get(new).cloned(),
    };
    if let Some(whole) = of("task", "task") {
        *task = whole;
    } else if let Some(update) = of("statusUpdate", "status-update") {
        assert_eq!(update["taskId"], task["id"], "the stream begins with the task");
        task["status"] = update["status"].clone();
    } else {
        let update = of("artifactUpdate", "artifact-update").unwrap_or_else(|| panic!("{event}"));
        let (artifact, appends) = (&update["artifact"], update["append"] == true);
        let known = task["artifacts"].as_array().into_iter().flatten();
        let at = known.clone().position(|known| known["artifactId"] == artifact["artifactId"]);
        match at {
            Some(at) if appends => {
                let known = &mut task["artifacts"][at]["parts"][0];
                let text = known["text"].as_str().unwrap().to_owned() + artifact["parts"][0]["text"].as_str().unwrap();
                known["text"] = text.into();
            }
            Some(at) => task["artifacts"][at] = artifact.clone(),
            None => {
                assert!(!appends, "nothing to append to: {event}");
                if task["artifacts"].is_null() {
                    task["artifacts"] = json!([]);
                }
                task["artifacts"].as_array_mut().unwrap().push(artifact.clone());
            }
        }
    }
}

fn folded<'e>(events: impl IntoIterator<Item = &'e (String, Value)>) -> Value {
    let mut task = Value::Null;
    events.into_iter().for_each(|(_, event)| fold(&mut task, event));
    task
}

/// Claims the request of a task, acknowledges it, and returns its value.
async fn accept(client: &Client) -> Value {
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
    let control = &claimed["controls"][0];
    let path = format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap());
    client.post(&path, &[], json!({ "lease": control["lease"] }).to_string()).await.ok();
    control["value"].clone()
}

async fn publish(client: &Client, of: &Value, facts: &[Value]) {
    let (run, session) = (of["runId"].as_str().unwrap(), of["threadId"].as_str().unwrap());
    let path = format!("/v1/runs/{run}/facts?sessionId={session}&agentId=helper");
    client.post_lines(&path, to_ndjson(facts)).await.ok();
}

fn said(text: &str) -> Value {
    fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }))
}

fn message(members: Value) -> Value {
    let mut message = json!({ "messageId": "q1", "role": "user", "contextId": "chat", "parts": [{ "text": "Hello" }] });
    message.as_object_mut().unwrap().extend(members.as_object().cloned().unwrap_or_default());
    json!({ "message": message })
}

/// The two versions: a stream, a whole answer, and how each spells that a task is complete.
const VERSIONS: [(&str, &str, &str); 2] =
    [("message/stream", "message/send", "completed"), ("SendStreamingMessage", "SendMessage", "TASK_STATE_COMPLETED")];

#[tokio::test]
async fn a_message_begins_a_task_once_and_its_stream_tells_it_up_to_its_end() {
    for (stream, send, completed) in VERSIONS {
        let client = start_local().await;
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.post("/a2a/helper", &JSON, call(stream, &message(json!({})))).await }
        });
        let value = accept(&client).await;
        assert_eq!((&value["protocol"], &value["threadId"]), (&json!("a2a"), &json!("chat")));
        assert_eq!(value["messages"][0]["content"], "Hello");
        let facts = [fact("run.started", json!({})), said("One "), said("moment."), fact("run.finished", json!({}))];
        for one in facts {
            publish(&client, &value, &[one]).await;
        }
        let answer = with_timeout("the stream", asking).await.unwrap();
        let events = events(&answer.body);
        let task = folded(&events);
        assert_eq!((&task["id"], &task["contextId"]), (&value["runId"], &value["threadId"]));
        assert_eq!(task["status"]["state"], completed);
        assert_eq!(task["artifacts"][0]["artifactId"], "m");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "One moment.");
        if stream == "message/stream" {
            assert_eq!(events.last().unwrap().1["result"]["final"], true);
        }
        // The same message again asks for nothing.
        let again = ask(&client, send, &message(json!({}))).await["result"].clone();
        let again = if again["task"].is_object() { again["task"].clone() } else { again };
        assert_eq!((&again["id"], &again["artifacts"]), (&task["id"], &task["artifacts"]));
        let claimed = client.post("/v1/agents/helper/controls/claim?wait=0", &[], "").await.ok();
        assert_eq!(claimed["controls"], json!([]));
    }
}

#[tokio::test]
async fn a_task_that_waits_is_answered_by_a_message_and_goes_on() {
    let client = start_local().await;
    let mut params = message(json!({}));
    params["configuration"] = json!({ "returnImmediately": true });
    let task = ask(&client, "SendMessage", &params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
    let value = accept(&client).await;
    let asks = |action: &str, kind: &str| {
        fact("action.required", json!({ "actionId": action, "payload": { "kind": kind, "message": "Which file?" } }))
    };
    publish(&client, &value, &[fact("run.started", json!({})), asks("a", "clarification")]).await;
    let id = json!({ "id": task["id"] });
    let waits = ask(&client, "tasks/get", &id).await["result"].clone();
    assert_eq!(waits["status"]["state"], "input-required", "{waits}");
    assert_eq!(waits["status"]["message"]["parts"][0]["text"], "Which file?");
    assert_eq!(waits["history"][0]["parts"], json!(null), "the runtime told no message of the user");

    // Another context, and another task.
    let reply = |id: &str, parts: Value| message(json!({ "messageId": id, "taskId": task["id"], "parts": parts }));
    let mut elsewhere = reply("q2", json!([{ "text": "a.txt" }]));
    elsewhere["message"]["contextId"] = "other".into();
    assert!(error(&client, "SendMessage", &elsewhere).await.1.contains("contextId"));

    let answering = tokio::spawn({
        let (client, params) = (client.clone(), reply("q2", json!([{ "text": "a.txt" }])));
        async move { ask(&client, "SendMessage", &params).await["result"]["task"].clone() }
    });
    assert_eq!(accept(&client).await, "a.txt");
    let resolved = fact("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "answered" } }));
    publish(&client, &value, &[resolved, asks("b", "tool_approval")]).await;
    let waits = with_timeout("the answer", answering).await.unwrap();
    assert_eq!(waits["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{waits}");

    // Words do not approve.
    let (code, why) = error(&client, "SendMessage", &reply("q3", json!([{ "text": "yes" }]))).await;
    assert!(code == -32602 && why.contains("interruptId"), "{why}");
    let asked = waits["status"]["message"]["parts"].as_array().unwrap().iter().find(|part| part["data"].is_object()).unwrap();
    let interrupt = &asked["data"]["interrupts"][0]["id"];
    let unknown = json!([{ "data": { "interruptId": "never", "status": "resolved" } }]);
    assert!(error(&client, "SendMessage", &reply("q4", unknown)).await.1.contains("never"));
    let approval = json!([{ "data": { "interruptId": interrupt, "status": "resolved", "payload": { "approved": true } } }]);
    let approving = tokio::spawn({
        let (client, params) = (client.clone(), reply("q5", approval));
        async move { ask(&client, "SendMessage", &params).await["result"]["task"].clone() }
    });
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
    assert_eq!(claimed["controls"][0]["control"], "approve");
    let resolved = fact("action.resolved", json!({ "actionId": "b", "payload": { "outcome": "approved" } }));
    publish(&client, &value, &[resolved, said("Done."), fact("run.finished", json!({}))]).await;
    let done = with_timeout("the end", approving).await.unwrap();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(done["artifacts"][0]["parts"], json!([{ "text": "Done." }]));
    let (code, why) = error(&client, "SendMessage", &reply("q6", json!([{ "text": "More" }]))).await;
    assert!(code == -32004 && why.contains("without a taskId"), "{why}");
    let decisions = client.get(&format!("/v1/runs/{}/decisions?audience=internal", task["id"].as_str().unwrap())).await.ok();
    assert_eq!(decisions["decisions"][0]["decidedBy"]["via"], "a2a", "{decisions}");
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_owner_or_withdrawn_before_that() {
    let client = start_local().await;
    let begin = async |id: &str| {
        let mut params = message(json!({ "messageId": id }));
        params["configuration"] = json!({ "blocking": false });
        ask(&client, "message/send", &params).await["result"].clone()
    };
    let withdrawn = begin("one").await;
    let answer = ask(&client, "tasks/cancel", &json!({ "id": withdrawn["id"] })).await["result"].clone();
    assert_eq!((&answer["id"], &answer["status"]["state"]), (&withdrawn["id"], &json!("canceled")));
    assert_eq!(error(&client, "tasks/cancel", &json!({ "id": withdrawn["id"] })).await.0, -32001);

    let task = begin("two").await;
    let value = accept(&client).await;
    assert_eq!(value["runId"], task["id"], "the withdrawn request reaches no agent");
    publish(&client, &value, &[fact("run.started", json!({}))]).await;
    let cancelling = tokio::spawn({
        let (client, id) = (client.clone(), json!({ "id": task["id"] }));
        async move { ask(&client, "CancelTask", &id).await["result"].clone() }
    });
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
    assert_eq!(claimed["controls"][0]["control"], "interrupt");
    publish(&client, &value, &[fact("run.finished", json!({ "payload": { "status": "cancelled" } }))]).await;
    let cancelled = with_timeout("the cancelled task", cancelling).await.unwrap();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    let (code, why) = error(&client, "tasks/cancel", &json!({ "id": task["id"] })).await;
    assert!(code == -32002 && why.contains("has ended"), "{why}");
}

#[tokio::test]
async fn a_task_that_its_agent_refuses_is_an_error_of_the_request() {
    let client = start_local().await;
    for method in ["message/send", "message/stream"] {
        let asking = tokio::spawn({
            let (client, params) = (client.clone(), message(json!({ "messageId": method })));
            async move { client.post("/a2a/helper", &JSON, call(method, &params)).await }
        });
        let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
        let control = &claimed["controls"][0];
        let path = format!("/v1/controls/{}/nack", control["controlId"].as_str().unwrap());
        client.post(&path, &[], json!({ "lease": control["lease"], "reason": "No model is there." }).to_string()).await.ok();
        let answer = with_timeout("the answer", asking).await.unwrap();
        let answer = match method {
            "message/send" => answer.ok(),
            _ => events_without_ids(&answer.body).pop().unwrap(),
        };
        assert!(answer["error"]["message"].as_str().unwrap().contains("No model is there."), "{answer}");
        assert_eq!(answer["error"]["data"]["code"], "control_refused", "{answer}");
    }
}

/// The events of a stream that failed before its task had a position.
fn events_without_ids(body: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(body).unwrap().lines();
    lines.filter_map(|line| line.strip_prefix("data: ")).map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_file_reaches_the_agent_as_an_attachment_and_stands_in_the_history_of_its_task() {
    let url = "https://a.example/b.pdf";
    let new = json!([{ "text": "See" }, { "raw": "QUI=", "mediaType": "image/png", "filename": "a.png" }, { "url": url }]);
    let old = json!([
        { "kind": "text", "text": "See" },
        { "kind": "file", "file": { "bytes": "QUI=", "mimeType": "image/png", "name": "a.png" } },
        { "kind": "file", "file": { "uri": url } },
    ]);
    for (method, get, sent) in [("message/send", "tasks/get", &old), ("SendMessage", "GetTask", &new)] {
        let client = start_local().await;
        let mut params = message(json!({ "parts": sent }));
        params["configuration"] = json!({ "blocking": false });
        let task = ask(&client, method, &params).await["result"].clone();
        // The same message again attaches nothing.
        let again = ask(&client, method, &params).await["result"].clone();
        assert_eq!(again, task);
        let value = accept(&client).await;
        let content = &value["messages"][0]["content"];
        let href = content[1]["url"].as_str().unwrap();
        assert_eq!(content[0], json!({ "type": "text", "text": "See" }));
        assert_eq!(content[1], json!({ "type": "binary", "mimeType": "image/png", "filename": "a.png", "url": href }));
        assert_eq!(content[2], json!({ "type": "binary", "mimeType": "application/octet-stream", "url": url }));
        let attached = client.get(href).await;
        assert_eq!((attached.status, &attached.body[..]), (200, &b"AB"[..]));
        let payload = json!({ "role": "user", "text": "See", "attachments": [content[1], content[2]] });
        let asked = fact("text.final", json!({ "messageId": "q1", "payload": payload }));
        publish(&client, &value, &[fact("run.started", json!({})), asked]).await;
        let got = ask(&client, get, &json!({ "id": value["runId"] })).await["result"]["history"][0]["parts"].clone();
        let mut expected = sent.clone();
        if method == "SendMessage" {
            expected[1] = json!({ "url": href, "mediaType": "image/png", "filename": "a.png" });
            expected[2]["mediaType"] = "application/octet-stream".into();
        } else {
            expected[1]["file"] = json!({ "uri": href, "mimeType": "image/png", "name": "a.png" });
            expected[2]["file"]["mimeType"] = "application/octet-stream".into();
        }
        assert_eq!(got, expected);
        // An answer has no place for one.
        publish(&client, &value, &[question("a")]).await;
        let reply = message(json!({ "messageId": "q2", "taskId": value["runId"], "parts": [new[1]] }));
        let (code, why) = error(&client, "SendMessage", &reply).await;
        assert!(code == -32005 && why.contains("without a taskId"), "{why}");
    }
}

#[tokio::test]
async fn a_file_beyond_the_limits_of_attachments_begins_no_task() {
    let client = start_local().await;
    let large = data_encoding::BASE64.encode(&vec![1; ATTACHMENT_BYTES_MAX + 1]);
    let answer = ask(&client, "SendMessage", &message(json!({ "parts": [{ "raw": large }] }))).await;
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["limit"]), (&json!(-32602), &json!(ATTACHMENT_BYTES_MAX)));
    for _ in 0..ATTACHMENTS_PER_SESSION_MAX {
        client.post("/v1/sessions/chat/attachments", &[("content-type", "image/png")], "x").await;
    }
    let params = message(json!({ "parts": [{ "raw": "QUI=" }] }));
    client.post("/a2a/helper", &JSON, call("SendMessage", &params)).await.problem(429, "too_many_attachments");
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=0", &[], "").await.ok();
    assert_eq!(claimed["controls"], json!([]));
}

fn question(action: &str) -> Value {
    fact("action.required", json!({ "actionId": action, "payload": { "kind": "clarification", "message": "Which file?" } }))
}

async fn list(client: &Client, params: Value) -> Value {
    ask(client, "ListTasks", &params).await["result"].clone()
}

fn ids(page: &Value) -> Vec<&str> {
    page["tasks"].as_array().unwrap_or_else(|| panic!("{page}")).iter().map(|task| task["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tasks_are_listed_by_state_and_context_those_that_go_on_first() {
    let client = start_local().await;
    // Of two that began in the same millisecond, the one whose id sorts first comes first.
    let run = async |run: &str, session: &str, agent: &str, facts: &[Value]| {
        let path = format!("/v1/runs/{run}/facts?sessionId={session}&agentId={agent}");
        let started = [fact("run.started", json!({})), said("Hi."), fact("text.final", asked_by_user())];
        client.post_lines(&path, to_ndjson(&[&started[..], facts].concat())).await.ok();
    };
    let end = |status: &str| fact("run.finished", json!({ "payload": { "status": status } }));
    run("z-done", "s", "helper", &[end("completed")]).await;
    run("x-aborted", "t", "helper", &[end("cancelled")]).await;
    run("works", "s", "helper", &[]).await;
    run("waits", "t", "helper", &[question("a")]).await;
    let credential = json!({ "actionId": "b", "payload": { "kind": "credential_request", "message": "Key?" } });
    run("l", "u", "helper", &[fact("action.required", credential)]).await;
    run("other", "s", "another", &[]).await;
    let mut params = message(json!({ "contextId": "s" }));
    params["configuration"] = json!({ "blocking": false });
    let requested = ask(&client, "SendMessage", &params).await["result"]["task"]["id"].as_str().unwrap().to_owned();

    let all = list(&client, json!({})).await;
    assert_eq!(ids(&all), [&*requested, "l", "waits", "works", "x-aborted", "z-done"], "{all}");
    assert_eq!((&all["totalSize"], &all["pageSize"], &all["nextPageToken"]), (&json!(6), &json!(50), &json!("")));
    let works = &all["tasks"][3];
    assert_eq!((&works["contextId"], &works["status"]["state"]), (&json!("s"), &json!("TASK_STATE_WORKING")));
    assert_eq!((&works["artifacts"], works["history"].as_array().unwrap().len()), (&Value::Null, 1));
    for (params, expected) in [
        (json!({ "contextId": "s" }), vec![&*requested, "works", "z-done"]),
        (json!({ "contextId": "never" }), vec![]),
        (json!({ "status": "TASK_STATE_SUBMITTED" }), vec![&*requested]),
        (json!({ "status": "TASK_STATE_WORKING" }), vec!["works"]),
        (json!({ "status": "TASK_STATE_INPUT_REQUIRED" }), vec!["waits"]),
        (json!({ "status": "TASK_STATE_AUTH_REQUIRED" }), vec!["l"]),
        (json!({ "status": "TASK_STATE_COMPLETED", "contextId": "s" }), vec!["z-done"]),
        (json!({ "status": "TASK_STATE_CANCELED" }), vec!["x-aborted"]),
        (json!({ "status": "TASK_STATE_REJECTED" }), vec![]),
        (json!({ "status": "TASK_STATE_UNSPECIFIED", "contextId": "t" }), vec!["waits", "x-aborted"]),
        (json!({ "statusTimestampAfter": "2999-01-01T00:00:00Z" }), vec![&*requested, "l", "waits", "works"]),
    ] {
        assert_eq!(ids(&list(&client, params.clone()).await), expected, "{params}");
    }
    let whole = list(&client, json!({ "status": "TASK_STATE_COMPLETED", "includeArtifacts": true, "historyLength": 0 })).await;
    assert_eq!(whole["tasks"][0]["artifacts"][0]["parts"], json!([{ "text": "Hi." }]));
    assert_eq!(whole["tasks"][0]["history"], Value::Null);

    // Page by page: each once, also while tasks end and begin.
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&client, json!({ "pageSize": 2, "pageToken": token })).await;
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if seen.len() == 2 {
            run("begun-meanwhile", "s", "helper", &[]).await;
            client.append("l", &[end("completed")]).await;
        }
        if token.is_empty() {
            break;
        }
    }
    // What ended after its page came is there again, and what began is before the first page.
    assert_eq!(seen, [&*requested, "l", "waits", "works", "l", "x-aborted", "z-done"]);
}

fn asked_by_user() -> Value {
    json!({ "messageId": "u", "payload": { "role": "user", "text": "Hello" } })
}

#[tokio::test]
async fn a_subscriber_that_is_cut_after_any_event_ends_with_the_whole_task() {
    let client = start_local().await;
    let mut read = 0;
    let parts = if is_full() { 1 } else { 24 };
    for (source, name, facts) in part_of(recordings(), parts).into_iter().filter(|(.., facts)| facts.len() < 60) {
        let run = name.replace('/', "-");
        let path = format!("/v1/runs/{run}/facts?sessionId={run}&source={source}");
        for some in facts.chunks(3) {
            client.post_lines(&path, to_ndjson(some)).await;
        }
        client.append(&run, &[fact("run.finished", json!({}))]).await;
        for method in ["tasks/resubscribe", "SubscribeToTask"] {
            let body = call(method, &json!({ "id": run }));
            let whole = client.post("/a2a/helper", &JSON, body.clone()).await;
            let whole = events(&whole.body);
            let task = folded(&whole);
            for cut in 1..whole.len() {
                let headers = [JSON[0], ("last-event-id", whole[cut - 1].0.as_str())];
                let rest = events(&client.post("/a2a/helper", &headers, body.clone()).await.body);
                assert_eq!(folded(whole[..cut].iter().chain(&rest)), task, "{name}, cut at {cut}");
            }
            let method = if method == "tasks/resubscribe" { "tasks/get" } else { "GetTask" };
            let mut got = ask(&client, method, &json!({ "id": run })).await["result"].clone();
            got.as_object_mut().map(|task| task.remove("history"));
            assert_eq!(got, task, "{name}: what is read is what was streamed");
            read += whole.len();
        }
    }
    assert!(read > 0);
}

#[tokio::test]
async fn a_wrong_request_gets_an_error_of_the_protocol_that_names_what_and_where() {
    let client = start_local().await;
    for (body, code, names) in [
        ("{".to_owned(), -32700, "not JSON"),
        ("[]".to_owned(), -32600, "an array"),
        (r#"{"id":1,"method":"tasks/get"}"#.to_owned(), -32600, "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tasks/get"}"#.to_owned(), -32600, "an id"),
        (call("tasks/list", &json!({})), -32601, "tasks/list"),
        (call("ListTasks", &json!({ "pageSize": 0 })), -32602, "1 to 100"),
        (call("ListTasks", &json!({ "pageSize": 101 })), -32602, "1 to 100"),
        (call("ListTasks", &json!({ "pageToken": "x" })), -32602, "nextPageToken"),
        (call("ListTasks", &json!({ "status": "done" })), -32602, "TASK_STATE_WORKING"),
        (call("ListTasks", &json!({ "statusTimestampAfter": "today" })), -32602, "RFC 3339"),
        (call("ListTasks", &json!({ "contextId": "\u{0}" })), -32602, "contextId"),
        (call("tasks/pushNotificationConfig/set", &json!({})), -32602, "taskId is missing"),
        (call("GetTaskPushNotificationConfig", &json!({ "taskId": "never" })), -32001, "never"),
        (call("tasks/get", &json!([])), -32602, "params"),
        (call("tasks/get", &json!({})), -32602, "id is missing"),
        (call("tasks/get", &json!({ "id": 7 })), -32602, "id is a number"),
        (call("tasks/get", &json!({ "id": "never" })), -32001, "never"),
        (call("tasks/get", &json!({ "id": "\u{0}" })), -32001, "No task"),
        (call("tasks/cancel", &json!({ "id": "never" })), -32001, "never"),
        (call("tasks/resubscribe", &json!({ "id": "never" })), -32001, "never"),
        (call("SendMessage", &json!({})), -32602, "message is missing"),
        (call("SendMessage", &message(json!({ "messageId": "" }))), -32602, "messageId"),
        (call("SendMessage", &message(json!({ "messageId": "x".repeat(257) }))), -32602, "256 bytes"),
        (call("SendMessage", &message(json!({ "contextId": "\u{0}" }))), -32602, "contextId"),
        (call("SendMessage", &message(json!({ "parts": [] }))), -32602, "parts"),
        (call("SendMessage", &message(json!({ "parts": "x" }))), -32602, "parts"),
        (call("SendMessage", &message(json!({ "parts": [{ "raw": "*" }] }))), -32602, "parts[0]"),
        (
            call("message/send", &message(json!({ "parts": [{ "kind": "file", "file": { "uri": "file:///x" } }] }))),
            -32005,
            "parts[0]",
        ),
        (call("SendMessage", &message(json!({ "parts": vec![json!({ "url": "https://a.example/" }); 33] }))), -32602, "32"),
        (call("SendMessage", &message(json!({ "taskId": "never" }))), -32001, "never"),
    ] {
        let answer = client.post("/a2a/helper", &JSON, body.clone()).await.ok();
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{body}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(names), "{body}: {answer}");
    }
    let mut params = message(json!({}));
    params["configuration"] = json!({ "historyLength": -1 });
    assert!(error(&client, "SendMessage", &params).await.1.contains("historyLength"));
    let headers = [JSON[0], ("last-event-id", "x")];
    client.post("/a2a/helper", &headers, call("SubscribeToTask", &json!({ "id": "never" }))).await.problem(400, "bad_cursor");
    // None of them began anything.
    assert_eq!(client.get("/v1/sessions").await.ok()["sessions"], json!([]));
}

#[tokio::test]
async fn a_card_names_the_address_by_which_it_was_asked() {
    let client = start_local().await;
    let path = "/a2a/helper/.well-known/agent-card.json";
    let card = client.get(path).await.ok();
    assert_eq!((&card["name"], &card["capabilities"]["streaming"]), (&json!("helper"), &json!(true)));
    assert_eq!(card["url"], format!("http://{}/a2a/helper", client.at));
    let versions: Vec<_> =
        card["supportedInterfaces"].as_array().unwrap().iter().map(|of| of["protocolVersion"].clone()).collect();
    assert_eq!(versions, [json!("1.0"), json!("0.3")]);
    let behind = client.get_with(path, &[("x-forwarded-proto", "https")]).await.ok();
    assert!(behind["url"].as_str().unwrap().starts_with("https://"), "{behind}");
    let whole: Map<String, Value> = serde_json::from_value(card).unwrap();
    assert!(!whole.contains_key("securitySchemes"), "a server without keys asks for no token");
}
