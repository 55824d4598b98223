//! Generated interfaces: A2UI surfaces of each source in each form, and the interfaces of tools (MCP Apps).

use crate::harness::{AUDIENCES, Client, Frame, Process, Transport, fact, start_local, to_ndjson};
use serde_json::{Value, json};

const KIND: &str = "a2ui-surface";

fn create(surface: &str) -> Value {
    json!({ "version": "v0.9", "createSurface": { "surfaceId": surface, "catalogId": "basic" } })
}

fn components(surface: &str, text: &str) -> Value {
    let components =
        json!([{ "id": "root", "component": "Column", "children": ["t"] }, { "id": "t", "component": "Text", "text": text }]);
    json!({ "version": "v0.9", "updateComponents": { "surfaceId": surface, "components": components } })
}

fn data(surface: &str, path: &str, value: Value) -> Value {
    json!({ "version": "v0.9", "updateDataModel": { "surfaceId": surface, "path": path, "value": value } })
}

/// The messages of two steps: the surface, and a change of its data.
fn steps() -> [Vec<Value>; 2] {
    [vec![create("s"), components("s", "Hello"), data("s", "/", json!({ "n": 1 }))], vec![data("s", "/n", json!(2))]]
}

/// The messages that lead to the state after both steps.
fn rebuilt() -> Value {
    json!([create("s"), components("s", "Hello"), data("s", "/", json!({ "n": 2 }))])
}

/// The facts of each source about the two steps, with the name of the source.
fn sources() -> Vec<(&'static str, Vec<Value>)> {
    let [first, second] = steps();
    let all = [first.clone(), second.clone()].concat();
    let snapshot = |messages: &[Value]| json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": KIND, "content": { "a2ui_operations": messages }, "replace": true });
    let started = json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" });
    let append = json!({ "type": "ACTIVITY_DELTA", "messageId": "a2ui-surface-s", "activityType": KIND, "patch": [{ "op": "add", "path": "/a2ui_operations/-", "value": second[0] }] });
    let awaken = |messages: &[Value]| json!({ "event_type": "activity_snapshot", "message_id": "a2ui-surface-s", "activity_type": KIND, "content": { "a2ui_operations": messages }, "replace": true });
    let v1 = |messages: &[Value]| -> Vec<Value> {
        messages.iter().map(|message| json!({ "data": message, "metadata": { "mimeType": "application/a2ui+json" } })).collect()
    };
    let v03 =
        |messages: &[Value]| json!([{ "kind": "data", "data": messages, "metadata": { "mimeType": "application/json+a2ui" } }]);
    let part = |messages: &[Value]| json!({ "type": "data-a2ui-surface", "id": "s", "data": { "a2ui_operations": messages } });
    let native = |messages: &[Value]| {
        fact(
            "state.snapshot",
            json!({ "messageId": "s", "payload": { "activityType": KIND, "content": { "a2ui_operations": messages } } }),
        )
    };
    let task = json!({ "task": { "id": "task", "contextId": "t", "status": { "state": "TASK_STATE_WORKING" } } });
    let artifact = |parts: Value| json!({ "artifactUpdate": { "taskId": "task", "contextId": "t", "artifact": { "artifactId": "a", "parts": parts }, "append": true } });
    let status = |parts: Value| json!({ "kind": "status-update", "taskId": "task", "contextId": "t", "final": false, "status": { "state": "working", "message": { "messageId": "m", "role": "agent", "parts": parts } } });
    vec![
        ("ag-ui", vec![started.clone(), snapshot(&first), snapshot(&all)]),
        ("ag-ui", vec![started, snapshot(&first), append]),
        ("awaken", vec![awaken(&first), awaken(&all)]),
        ("a2a", vec![task.clone(), artifact(v1(&first).into()), artifact(v1(&second).into())]),
        ("a2a", vec![task, status(v03(&first)), status(v03(&second))]),
        ("ai-sdk", vec![json!({ "type": "start", "messageId": "m" }), part(&first), part(&all)]),
        ("agentui", vec![native(&first), native(&second)]),
    ]
}

async fn send(client: &Client, run: &str, source: &str, facts: &[Value]) -> Value {
    client.post_lines(&format!("/v1/runs/{run}/facts?sessionId=t&source={source}"), to_ndjson(facts)).await.ok()
}

async fn surfaces(client: &Client, run: &str, query: &str) -> Vec<Value> {
    let shown = client.get(&format!("/v1/runs/{run}/activities?{query}")).await.ok();
    let all = shown["activities"].as_array().unwrap().clone();
    all.into_iter().filter(|activity| activity["activityType"] == KIND).collect()
}

/// The activities of the thread as AG-UI's clients get them when they join it.
async fn joined(client: &Client) -> Vec<Value> {
    let body = json!({ "threadId": "t", "runId": "join", "messages": [] }).to_string();
    let path = "/copilotkit/agent/default/connect";
    let response = client.post(path, &[("content-type", "application/json")], body).await;
    let events = lines(&String::from_utf8(response.body).unwrap());
    let snapshot = events.into_iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").expect("a join has the messages");
    let messages = snapshot["messages"].as_array().unwrap().clone();
    messages.into_iter().filter(|message| message["role"] == "activity" && message["activityType"] == KIND).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

async fn stream(client: &Client, query: &str) -> Vec<Value> {
    lines(&String::from_utf8(client.get(&format!("/v1/runs/r/stream?{query}")).await.body).unwrap())
}

#[tokio::test]
async fn a_surface_of_every_source_is_one_activity_with_its_state_in_every_form() {
    for (source, facts) in sources() {
        let client = start_local().await;
        let receipt = send(&client, "r", source, &facts).await;
        assert_eq!(receipt["violations"], Value::Null, "{source}");
        let [surface] = &surfaces(&client, "r", "").await[..] else { panic!("{source}: one surface") };
        let content = &surface["content"];
        assert_eq!((&surface["activityId"], &content["dataModel"]), (&json!("s"), &json!({ "n": 2 })), "{source}: {content}");
        assert_eq!((&content["components"]["t"]["text"], &content["catalogId"]), (&json!("Hello"), &json!("basic")), "{source}");
        assert_eq!(content["status"], "ready", "{source}");
        client.append("r", &[fact("run.finished", json!({}))]).await;
        let [message] = &joined(&client).await[..] else { panic!("{source}: one message") };
        let expected = json!({ "id": "a2ui-surface-s", "role": "activity", "activityType": KIND, "content": { "a2ui_operations": rebuilt() } });
        assert_eq!(*message, expected, "{source}");
        let chat = client.get("/ai-sdk/default/t").await.ok();
        let parts = chat["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
        let of_surface: Vec<_> = parts.filter(|part| part["type"] == "data-a2ui-surface").collect();
        assert_eq!(
            of_surface,
            [&json!({ "type": "data-a2ui-surface", "id": "s", "data": { "surfaceId": "s", "a2ui_operations": rebuilt() } })],
            "{source}"
        );
    }
}

#[tokio::test]
async fn a_client_that_follows_live_has_what_a_late_one_gets() {
    let (client, [first, second]) = (start_local().await, steps());
    let snapshot = |messages: &[Value]| json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": KIND, "content": { "a2ui_operations": messages } });
    send(&client, "r", "ag-ui", &[json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })]).await;
    let open = async |query: &str| client.open(Transport::Raw, &format!("/v1/runs/r/stream?{query}"), None).await;
    let (mut native, mut page, mut chat) =
        (open("frames=activities").await, open("format=ag-ui").await, open("format=ai-sdk&version=7").await);
    // Each reader has begun before the surface comes: one that begins later gets it among the run's other messages.
    for reader in [&mut native, &mut page, &mut chat] {
        reader.next_frame().await;
    }
    send(&client, "r", "ag-ui", &[snapshot(&first)]).await;
    // Each reader has the first state before the second comes: a slow reader gets both as one.
    let until_surface = async |sse: &mut crate::harness::Sse| {
        let mut all: Vec<Value> = Vec::new();
        while !all.last().is_some_and(|data| data["activityType"] == KIND || data["type"] == "data-a2ui-surface") {
            all.push(sse.next_frame().await.data);
        }
        all
    };
    let (mut frames, mut events, mut chunks) =
        (until_surface(&mut native).await, until_surface(&mut page).await, until_surface(&mut chat).await);
    send(&client, "r", "ag-ui", &[snapshot(&second)]).await;
    send(&client, "r", "ag-ui", &[json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" })]).await;
    let read = async |sse: &mut crate::harness::Sse, all: &mut Vec<Value>| {
        while let Some(Frame { data, .. }) = sse.next().await {
            all.push(data);
        }
    };
    read(&mut native, &mut frames).await;
    let of_surface: Vec<_> = frames.iter().filter(|frame| frame["activityType"] == KIND).collect();
    assert_eq!(of_surface[0]["frame"], "ActivitySnapshot");
    assert_eq!(
        of_surface[1]["patch"],
        json!([{ "op": "add", "path": "/dataModel/n", "value": 2 }]),
        "a reader gets only the change"
    );
    read(&mut page, &mut events).await;
    let of_surface: Vec<_> = events.iter().filter(|event| event["activityType"] == KIND).collect();
    assert_eq!(of_surface.len(), 2, "{events:#?}");
    for event in &of_surface {
        assert_eq!(
            (&event["type"], &event["messageId"], &event["replace"]),
            (&json!("ACTIVITY_SNAPSHOT"), &json!("a2ui-surface-s"), &json!(true))
        );
    }
    assert_eq!(of_surface[1]["content"]["a2ui_operations"], rebuilt());
    chunks.extend(until_surface(&mut chat).await);
    let parts: Vec<_> = chunks.iter().filter(|chunk| chunk["type"] == "data-a2ui-surface").collect();
    assert_eq!((&parts[0]["id"], &parts[1]["id"]), (&json!("s"), &json!("s")));
    let late = stream(&client, "format=ai-sdk&version=7").await;
    let late: Vec<_> = late.iter().filter(|chunk| chunk["type"] == "data-a2ui-surface").collect();
    assert_eq!(late, [parts[1]]);
    assert_eq!(surfaces(&client, "r", "at=2").await[0]["content"]["dataModel"], json!({ "n": 1 }), "the state as it was");
}

#[tokio::test]
async fn a_surface_is_there_after_a_restart_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_, facts) = sources().remove(0);
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    send(&client, "r", "ag-ui", &facts).await;
    let before = surfaces(&client, "r", "").await;
    server.kill();
    let server = Process::start_in(dir.path());
    let client = client.for_server(server.at);
    assert_eq!(surfaces(&client, "r", "").await, before);
    let more = json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": KIND, "content": { "a2ui_operations": [data("s", "/n", json!(3))] } });
    send(&client, "r", "ag-ui", &[more]).await;
    assert_eq!(surfaces(&client, "r", "").await[0]["content"]["dataModel"], json!({ "n": 3 }));
}

#[tokio::test]
async fn a_later_run_changes_the_surface_of_an_earlier_one() {
    let client = start_local().await;
    let part = |message: Value| json!({ "artifactUpdate": { "taskId": "task", "contextId": "t", "artifact": { "artifactId": "a", "parts": [{ "data": message, "metadata": { "mimeType": "application/a2ui+json" } }] } } });
    let done = json!({ "statusUpdate": { "taskId": "task", "contextId": "t", "status": { "state": "TASK_STATE_COMPLETED" } } });
    let [first, _] = steps();
    let facts: Vec<_> = first.into_iter().map(part).chain([done.clone()]).collect();
    send(&client, "r1", "a2a", &facts).await;
    send(&client, "r2", "a2a", &[part(data("s", "/n", json!(7))), part(components("s", "Bye")), done]).await;
    let [message] = &joined(&client).await[..] else { panic!("one surface") };
    let expected = json!([create("s"), components("s", "Bye"), data("s", "/", json!({ "n": 7 }))]);
    assert_eq!(message["content"]["a2ui_operations"], expected);
    let own = surfaces(&client, "r2", "").await;
    assert_eq!(
        (&own[0]["content"]["created"], &own[0]["content"]["dataUpdates"]),
        (&Value::Null, &json!([{ "path": "/n", "value": 7 }]))
    );
}

#[tokio::test]
async fn a_malformed_message_is_named_in_the_receipt_and_takes_nothing_from_the_others() {
    let client = start_local().await;
    let snapshot = |messages: Value| json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": KIND, "content": { "a2ui_operations": messages } });
    let good = snapshot(json!([create("s"), { "updateComponents": { "surfaceId": "s" } }, data("s", "/n", json!(1))]));
    let patch = json!([{ "op": "add", "path": "/a2ui_operations/-", "value": { "createSurface": {} } }]);
    let delta = json!({ "type": "ACTIVITY_DELTA", "messageId": "a2ui-surface-s", "activityType": KIND, "patch": patch });
    let receipt = send(&client, "r", "ag-ui", &[good, snapshot(json!(7)), delta]).await;
    let named: Vec<_> =
        receipt["violations"].as_array().unwrap().iter().map(|of| (&of["index"], &of["code"], &of["thing"])).collect();
    let code = json!("unreadable_surface");
    assert_eq!(
        json!(named),
        json!([[0, code, "a2ui_operations:1"], [1, code, "a2ui_operations:0"], [2, code, "a2ui_operations:0"]])
    );
    assert_eq!(receipt["accepted"], 3, "{receipt}");
    assert_eq!(surfaces(&client, "r", "").await[0]["content"]["dataModel"], json!({ "n": 1 }));
}

#[tokio::test]
async fn a_huge_surface_stays_within_its_limit_and_every_reader_follows_it() {
    let client = start_local().await;
    let snapshot = |messages: Value| json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a2ui-surface-s", "activityType": KIND, "content": { "a2ui_operations": messages } });
    send(&client, "r", "ag-ui", &[json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })]).await;
    let mut page = client.open(Transport::Raw, "/v1/runs/r/stream?format=ag-ui", None).await;
    let large = "x".repeat(300_000);
    send(&client, "r", "ag-ui", &[snapshot(json!([create("s"), components("s", &large)]))]).await;
    let next = async |page: &mut crate::harness::Sse| loop {
        let event = page.next_frame().await.data;
        if event["activityType"] == KIND {
            return event;
        }
    };
    assert_eq!(next(&mut page).await["type"], "ACTIVITY_SNAPSHOT");
    for n in 0..10 {
        send(&client, "r", "ag-ui", &[snapshot(json!([data("s", "/n", json!(n))]))]).await;
        let event = next(&mut page).await;
        let message = &event["patch"][0]["value"]["updateDataModel"];
        assert_eq!(
            (&event["type"], message["value"].as_i64().or(message["value"]["n"].as_i64())),
            (&json!("ACTIVITY_DELTA"), Some(n)),
            "{event}"
        );
        assert!(event.to_string().len() < 300, "a large surface grows by the messages");
    }
    let beyond = "y".repeat(900_000);
    let fill: Vec<_> = (0..4).map(|n| snapshot(json!([data("s", &format!("/fill{n}"), json!(beyond))]))).collect();
    send(&client, "r", "ag-ui", &fill).await;
    send(&client, "r", "ag-ui", &[json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" })]).await;
    let content = surfaces(&client, "r", "").await[0]["content"].clone();
    assert_eq!(content["dataModel"].as_object().unwrap().len(), 2, "the data that does not fit is left out");
    assert!(content.to_string().len() < 2 * 1024 * 1024);
}

#[tokio::test]
async fn a_surface_for_operators_is_for_operators() {
    let client = start_local().await;
    let content = json!({ "a2ui_operations": [create("s"), data("s", "/", json!({ "n": "MARK" }))] });
    let hidden = fact(
        "state.snapshot",
        json!({ "messageId": "s", "audience": "dashboard", "payload": { "activityType": KIND, "content": content } }),
    );
    client.append("r", &[hidden]).await;
    for audience in AUDIENCES {
        let shown = surfaces(&client, "r", &format!("audience={audience}")).await.len();
        assert_eq!(shown, usize::from(audience != "user"), "{audience}");
    }
    let text = String::from_utf8(client.get("/v1/runs/r/export").await.body).unwrap();
    assert!(!text.contains("MARK"), "{text}");
}

#[tokio::test]
async fn an_activity_of_another_type_stays_its_source_s_own() {
    let client = start_local().await;
    let content =
        json!({ "result": { "content": [] }, "resourceUri": "ui://app", "serverHash": "h", "toolInput": { "city": "Oslo" } });
    let app =
        json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "mcp-apps", "content": content, "replace": true });
    send(&client, "r", "ag-ui", &[app]).await;
    let shown = client.get("/v1/runs/r/activities").await.ok();
    let own =
        shown["activities"].as_array().unwrap().iter().find(|activity| activity["activityType"] == "mcp-apps").unwrap().clone();
    assert_eq!(own["content"], content, "the user's page gets it");
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let events = stream(&client, "format=ag-ui").await;
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let message = snapshot["messages"].as_array().unwrap().iter().find(|message| message["activityType"] == "mcp-apps").unwrap();
    assert_eq!((&message["role"], &message["content"]), (&json!("activity"), &content));
}

#[tokio::test]
async fn the_interface_of_a_tool_reaches_the_page_and_the_backend_s_other_data_does_not() {
    let client = start_local().await;
    let metadata = json!({ "app": { "resourceUri": "ui://app", "mimeType": "text/html;profile=mcp-app", "visibility": ["model", "app"], "inner": "MARK-A" }, "server": "MARK-B" });
    let facts = [
        json!({ "type": "start", "messageId": "m" }),
        json!({ "type": "tool-input-start", "toolCallId": "c", "toolName": "map", "toolMetadata": metadata }),
        json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "map", "input": { "city": "Oslo" }, "toolMetadata": metadata }),
        json!({ "type": "tool-output-available", "toolCallId": "c", "output": { "n": 1 } }),
        json!({ "type": "finish" }),
    ];
    send(&client, "r", "ai-sdk", &facts).await;
    let app = json!({ "resourceUri": "ui://app", "mimeType": "text/html;profile=mcp-app", "visibility": ["model", "app"] });
    let shown = client.get("/v1/runs/r/activities?type=tool-call-progress").await.ok();
    let call = shown["activities"].as_array().unwrap().iter().find(|activity| activity["activityId"] == "c").unwrap();
    assert_eq!(call["content"]["app"], app);
    for (version, expected) in [(5, Value::Null), (6, json!({ "app": app })), (7, json!({ "app": app }))] {
        let chunks = stream(&client, &format!("format=ai-sdk&version={version}")).await;
        let of_call: Vec<_> = chunks.iter().filter(|chunk| chunk["type"] == "tool-input-available").collect();
        assert_eq!(of_call.iter().map(|chunk| &chunk["toolMetadata"]).collect::<Vec<_>>(), [&expected], "version {version}");
        let chat = client.get(&format!("/ai-sdk/default/t?version={version}")).await.ok();
        let parts = chat["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
        let tool: Vec<_> = parts.filter(|part| part["toolCallId"] == "c").map(|part| &part["toolMetadata"]).collect();
        assert_eq!(tool, [&expected], "version {version}");
    }
    let events = stream(&client, "format=ag-ui&protocolVersion=1.0").await;
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let result = snapshot["messages"].as_array().unwrap().iter().find(|message| message["role"] == "tool").unwrap();
    assert_eq!(result["metadata"]["proscenium"]["app"], app, "{result:#}");
    let user = String::from_utf8(client.get("/v1/runs/r/export").await.body).unwrap();
    assert!(!user.contains("MARK-"), "{user}");
    let internal = String::from_utf8(client.get("/v1/runs/r/export?audience=internal").await.body).unwrap();
    assert!(internal.contains("MARK-A") && internal.contains("MARK-B"), "{internal}");
}
