//! Large texts and outputs reach every reader whole.
//!
//! The words of a conversation stay in their envelopes. Outputs move to bodies: existing clients get them whole, and
//! native readers a preview that says where the whole is.

use crate::harness::{Client, fact, part_of, start_local, to_ndjson};
use proscenium::model::TEXT_BYTES_MAX;
use serde_json::{Value, json};

/// A text of about this many bytes, without repetition.
fn long(seed: &str, bytes: usize) -> String {
    (0..)
        .map(|n| format!("{seed} \"{n}\"\n"))
        .scan(0, |sum, line| {
            (*sum < bytes).then(|| {
                *sum += line.len();
                line
            })
        })
        .collect()
}

/// The facts of a run with this text and this output, in each source's vocabulary.
///
/// `false`: the vocabulary has no result of a tool.
fn sources(text: &str, output: &str) -> Vec<(&'static str, bool, Vec<Value>)> {
    let update = |update: Value| json!({ "from": "agent", "message": { "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } } });
    let response = |kind: &str, members: Value| {
        let mut event = json!({ "type": format!("response.{kind}") });
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        event
    };
    let message = json!({ "id": "m", "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
    let claude = |kind: &str, content: Value| {
        json!({ "type": kind, "session_id": "s", "uuid": content.to_string().len().to_string(), "parent_tool_use_id": null,
            "message": { "id": format!("{kind}-{}", content.to_string().len()), "role": kind, "model": "m", "content": [content] } })
    };
    let turn = |event: &str, payload: Value| json!({ "event": event, "payload": payload });
    vec![
        (
            "agentui",
            true,
            vec![
                fact("run.started", json!({})),
                fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "f", "input": {} } })),
                fact("tool.result", json!({ "toolCallId": "c", "payload": { "output": output } })),
                fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } })),
                fact("text.final", json!({ "messageId": "m", "payload": { "text": text } })),
                fact("run.finished", json!({})),
            ],
        ),
        (
            "ag-ui",
            true,
            vec![
                json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }),
                json!({ "type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f" }),
                json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}" }),
                json!({ "type": "TOOL_CALL_END", "toolCallId": "c" }),
                json!({ "type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": output }),
                json!({ "type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant" }),
                json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text }),
                json!({ "type": "TEXT_MESSAGE_END", "messageId": "m" }),
                json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }),
            ],
        ),
        (
            "ai-sdk",
            true,
            vec![
                json!({ "type": "start", "messageId": "a" }),
                json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {} }),
                json!({ "type": "tool-output-available", "toolCallId": "c", "output": output }),
                json!({ "type": "text-start", "id": "m" }),
                json!({ "type": "text-delta", "id": "m", "delta": text }),
                json!({ "type": "text-end", "id": "m" }),
                json!({ "type": "finish" }),
            ],
        ),
        (
            "openai-responses",
            false,
            vec![
                response(
                    "created",
                    json!({ "response": { "id": "r", "object": "response", "status": "in_progress", "output": [] } }),
                ),
                response("output_item.added", json!({ "output_index": 0, "item": message })),
                response("output_item.done", json!({ "output_index": 0, "item": message })),
                response(
                    "completed",
                    json!({ "response": { "id": "r", "object": "response", "status": "completed", "output": [message] } }),
                ),
            ],
        ),
        (
            "claude-stream-json",
            true,
            vec![
                json!({ "type": "system", "subtype": "init", "session_id": "s", "uuid": "1", "model": "m", "permissionMode": "default", "tools": [] }),
                claude("assistant", json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} })),
                claude("user", json!({ "type": "tool_result", "tool_use_id": "c", "content": output })),
                claude("assistant", json!({ "type": "text", "text": text })),
                json!({ "type": "result", "subtype": "success", "session_id": "s", "uuid": "9", "is_error": false, "num_turns": 1, "result_index": 0, "result": text }),
            ],
        ),
        (
            "acp",
            false,
            vec![
                json!({ "from": "client", "message": { "id": 0, "method": "session/prompt", "params": { "sessionId": "s", "prompt": [{ "type": "text", "text": "Go" }] } } }),
                update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })),
                json!({ "from": "agent", "message": { "id": 0, "result": { "stopReason": "end_turn" } } }),
            ],
        ),
        (
            "ethos",
            false,
            vec![
                json!({ "type": "run_start", "provider": "p", "model": "m", "source": "global", "traceId": "t" }),
                json!({ "type": "text_delta", "text": text }),
                json!({ "type": "done", "text": text, "turnCount": 1, "traceId": "t" }),
            ],
        ),
        (
            "awaken",
            false,
            vec![
                json!({ "event_type": "run_start", "thread_id": "t", "run_id": "r" }),
                json!({ "event_type": "step_start", "message_id": "m" }),
                json!({ "event_type": "text_delta", "delta": text }),
                json!({ "event_type": "run_finish", "thread_id": "t", "run_id": "r", "termination": { "type": "natural_end" } }),
            ],
        ),
        (
            "langgraph",
            false,
            vec![
                json!({ "event": "metadata", "data": { "run_id": "r", "attempt": 1 } }),
                json!({ "event": "messages", "data": [{ "type": "AIMessageChunk", "id": "m", "content": text }, {}] }),
                json!({ "event": "end", "data": null }),
            ],
        ),
        (
            "turnrunner",
            true,
            vec![
                turn("turnStart", json!({ "turnId": "t" })),
                turn("toolCall", json!({ "id": "c", "tool": "f", "args": {}, "isComplete": false })),
                turn("toolCall", json!({ "id": "c", "tool": "f", "args": {}, "isComplete": true, "results": output })),
                turn("message", json!({ "id": "m", "full": text, "aDelta": text, "isComplete": false })),
                turn("message", json!({ "id": "m", "full": text, "isComplete": true })),
                turn("turnEnd", json!({ "turnId": "t" })),
            ],
        ),
        (
            "a2a",
            false,
            vec![
                json!({ "jsonrpc": "2.0", "id": 1, "result": { "artifactUpdate": { "taskId": "k", "contextId": "c", "artifact": { "artifactId": "a", "parts": [{ "text": text }] } } } }),
                json!({ "jsonrpc": "2.0", "id": 1, "result": { "statusUpdate": { "taskId": "k", "contextId": "c", "status": { "state": "TASK_STATE_COMPLETED", "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": text }] } } } } }),
            ],
        ),
    ]
}

/// The events of a stream to its end.
async fn events(client: &Client, path: &str) -> Vec<Value> {
    let answer = client.get(path).await;
    let text = String::from_utf8(answer.body).expect("a stream is UTF-8");
    assert_eq!(answer.status, 200, "{text}");
    text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

/// The texts of members of this name in the values, joined.
fn joined<'v>(values: impl IntoIterator<Item = &'v Value>, member: &str) -> String {
    values.into_iter().filter_map(|value| value[member].as_str()).collect()
}

fn of_type<'v>(events: &'v [Value], kind: &'v str) -> impl Iterator<Item = &'v Value> {
    events.iter().filter(move |event| event["type"] == kind)
}

async fn activities(client: &Client, run: &str, kind: &str) -> Vec<Value> {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience=internal")).await.ok();
    let of_kind = shown["activities"].as_array().expect("a list").iter().filter(|shown| shown["activityType"] == kind);
    of_kind.map(|shown| shown["content"].clone()).collect()
}

fn assert_same(shown: &str, whole: &str, place: &str) {
    assert!(
        shown == whole,
        "{place}: {} of {} bytes, begins {:?}",
        shown.len(),
        whole.len(),
        shown.chars().take(80).collect::<String>()
    );
}

/// Asserts that every reader of a run gets its text and, with one, its output whole.
async fn assert_whole(client: &Client, run: &str, text: &str, output: Option<&str>) {
    let messages = activities(client, run, "message").await;
    let texts: Vec<String> = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| {
            message["parts"]
                .as_array()
                .expect("parts")
                .iter()
                .map(|part| part["text"].as_array().unwrap().iter().filter_map(Value::as_str).collect::<String>())
                .collect()
        })
        .collect();
    let is_text = |said: &String| said == text;
    assert!(texts.iter().any(is_text), "{run}, native: {:?}", texts.iter().map(String::len).collect::<Vec<_>>());

    let joined_view = events(client, &format!("/v1/runs/{run}/stream?format=ag-ui&audience=internal")).await;
    let snapshot = of_type(&joined_view, "MESSAGES_SNAPSHOT").next().expect("a snapshot");
    let thread = client.get(&format!("/ag-ui/default?threadId=s-{run}&audience=internal")).await.ok();
    for (place, messages) in [("AG-UI joined", &snapshot["messages"]), ("AG-UI thread", &thread["messages"])] {
        let messages = messages.as_array().expect("messages");
        let said: Vec<_> =
            messages.iter().filter(|message| message["role"] == "assistant").filter_map(|m| m["content"].as_str()).collect();
        assert!(said.contains(&text), "{run}, {place}: {:?}", said.iter().map(|said| said.len()).collect::<Vec<_>>());
    }
    let live = events(client, &format!("/v1/runs/{run}/stream?format=ag-ui&audience=internal&replay=deltas")).await;
    assert!(joined(of_type(&live, "TEXT_MESSAGE_CONTENT"), "delta").contains(text), "{run}, AG-UI live");

    let mut ai_sdk = Vec::new();
    for version in [5, 6, 7] {
        let path = format!("/v1/runs/{run}/stream?format=ai-sdk&version={version}&audience=internal");
        let stream = events(client, &path).await;
        assert!(joined(of_type(&stream, "text-delta"), "delta").contains(text), "{run}, AI SDK {version}");
        let chat = client.get(&format!("/ai-sdk/default/s-{run}?version={version}&audience=internal")).await.ok();
        let messages = chat["messages"].as_array().unwrap().iter();
        let parts: Vec<Value> = messages.flat_map(|message| message["parts"].as_array().unwrap().clone()).collect();
        assert!(parts.iter().any(|part| part["text"] == text), "{run}, AI SDK {version}, chat");
        ai_sdk.push((version, stream, parts));
    }

    let Some(output) = output else { return };
    for (version, stream, parts) in &ai_sdk {
        let streamed = of_type(stream, "tool-output-available").last().map(|result| &result["output"]);
        let loaded = parts.iter().find(|part| part["type"] == "dynamic-tool").map(|part| &part["output"]);
        for (place, shown) in [("stream", streamed), ("chat", loaded)] {
            assert_same(shown.and_then(Value::as_str).unwrap_or_default(), output, &format!("{run}, AI SDK {version}, {place}"));
        }
    }
    let call = activities(client, run, "tool-call-progress").await.remove(0);
    let preview = call["output"].as_str().expect("a preview");
    assert!(preview.len() < 2048 && output.starts_with(preview.strip_suffix('…').expect("a cut")), "{run}: {preview}");
    assert_eq!(call["clipped"], true, "{run}: {call}");
    let href = call["bodies"]["/output"]["href"].as_str().expect("a body");
    let body = client.get(&format!("{href}?audience=internal")).await.body;
    assert_same(&String::from_utf8(body).unwrap(), output, "the body");
    for (place, shown) in [
        (
            "AG-UI joined",
            snapshot["messages"].as_array().unwrap().iter().find(|message| message["role"] == "tool").map(|m| &m["content"]),
        ),
        ("AG-UI live", of_type(&live, "TOOL_CALL_RESULT").next().map(|result| &result["content"])),
    ] {
        assert_same(shown.and_then(Value::as_str).unwrap_or_default(), output, &format!("{run}, {place}"));
    }
    let mut parts = thread["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    let result = parts.find(|part| part["type"] == "tool-result").expect("a result");
    assert_same(result["content"].as_str().unwrap(), output, "the thread");
}

async fn post(client: &Client, run: &str, source: &str, facts: &[Value]) {
    let receipt =
        client.post_lines(&format!("/v1/runs/{run}/facts?source={source}&sessionId=s-{run}"), to_ndjson(facts)).await.ok();
    assert_eq!(receipt["accepted"], facts.len(), "{run}: {receipt}");
    // A stream of an ended run has an end.
    client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok();
}

#[tokio::test]
async fn a_long_text_and_a_long_output_of_every_source_are_whole_for_every_client() {
    let client = start_local().await;
    let (text, output) = (long("said", 100_000), long("found", 100_000));
    for (source, has_output, facts) in sources(&text, &output) {
        post(&client, source, source, &facts).await;
        assert_whole(&client, source, &text, has_output.then_some(&*output)).await;
    }
}

#[tokio::test]
async fn a_text_of_4_mib_and_an_output_of_1_mib_of_every_source_are_whole() {
    let client = start_local().await;
    let (text, output) = ("x".repeat(TEXT_BYTES_MAX), long("found", 1 << 20));
    for (source, has_output, facts) in part_of(sources(&text, &output), 6) {
        post(&client, source, source, &facts).await;
        assert_whole(&client, source, &text, has_output.then_some(&*output)).await;
    }
}

#[tokio::test]
async fn a_longer_text_is_clipped_and_says_where_the_whole_is() {
    let client = start_local().await;
    let text = format!("{}é end", "x".repeat(TEXT_BYTES_MAX - 1));
    for (run, facts) in [
        ("at-once", vec![fact("text.final", json!({ "messageId": "m", "payload": { "text": text } }))]),
        (
            "streamed",
            vec![
                fact("text.delta", json!({ "messageId": "m", "payload": { "text": text[..1 << 20] } })),
                fact("text.delta", json!({ "messageId": "m", "payload": { "text": text[1 << 20..] } })),
                fact("text.final", json!({ "messageId": "m", "payload": { "text": text } })),
            ],
        ),
    ] {
        client.append(run, &facts).await;
        let message = activities(&client, run, "message").await.remove(0);
        let part = &message["parts"][0];
        assert_eq!((part["text"][0].as_str().map(str::len), &part["clipped"]), (Some(TEXT_BYTES_MAX - 1), &json!(true)), "{run}");
        let body = client.get(message["refs"][0]["href"].as_str().expect("a body")).await.body;
        assert!(body == text.as_bytes(), "{run}: {} bytes", body.len());
    }
}

#[tokio::test]
async fn streamed_text_is_not_taken_back_when_the_final_repeats_it() {
    let client = start_local().await;
    let facts: Vec<Value> = include_str!("../cases/F01-long-message.agentui.ndjson")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    post(&client, "r", "agentui", &facts).await;
    let text = facts[3]["payload"]["text"].as_str().expect("the final text");
    assert_whole(&client, "r", text, None).await;
    let frames = events(&client, "/v1/runs/r/stream?replay=deltas").await;
    let taken = frames
        .iter()
        .flat_map(|frame| frame["patch"].as_array().cloned().unwrap_or_default())
        .filter(|op| op["path"] == "/parts/0/text");
    assert_eq!(taken.count(), 0, "no delta replaces the text");
}

/// Numbers that no 64-bit integer or double holds, and some that are written in another way than usual.
const NUMBERS: [&str; 7] = [
    "123456789012345678901234567890",
    "18446744073709551616",
    "-9223372036854775809",
    "1e+400",
    "0.10000000000000000555",
    "1.0",
    "-0",
];

#[tokio::test]
async fn the_digits_of_a_number_reach_every_reader_as_they_came() {
    let client = start_local().await;
    for number in NUMBERS {
        let facts = r#"{"type":"run.started"}
{"type":"tool.started","toolCallId":"c","payload":{"toolName":"f","input":{"n":@}}}
{"type":"tool.result","toolCallId":"c","payload":{"output":{"n":@}}}
{"type":"state.snapshot","payload":{"state":{"n":@}}}
{"type":"action.required","actionId":"a","payload":{"kind":"input","input":{"n":@}}}
{"type":"run.finished"}
"#;
        let run = &format!("r{number}");
        client.post_lines(&format!("/v1/runs/{run}/facts?sessionId=s{number}"), facts.replace('@', number)).await.ok();
        for (path, times) in [
            ("events?audience=internal", 4),
            ("activities?audience=internal", 4),
            ("stream?audience=internal", 4),
            ("stream?audience=internal&replay=deltas", 4),
            ("stream?format=ag-ui&audience=internal", 3),
            ("stream?format=ag-ui&audience=internal&replay=deltas", 3),
            ("stream?format=ai-sdk&version=7&audience=internal", 2),
            ("export?audience=internal", 4),
        ] {
            let answer = client.get(&format!("/v1/runs/{run}/{path}")).await;
            let text = String::from_utf8(answer.body).unwrap().replace('\\', "");
            let found = text.matches(&format!(r#""n":{number}}}"#)).count();
            assert!(found >= times, "{number} {path}: {found} times in {text}");
        }
        let open = &format!("open{number}");
        client.append(open, &[fact("run.started", json!({}))]).await;
        let control = format!(r#"{{"control":"steer","value":{{"n":{number}}}}}"#);
        client.post(&format!("/v1/runs/{open}/controls"), &[], control).await;
        let claimed = client.post("/v1/agents/default/controls/claim?wait=30", &[], "").await;
        let claimed = String::from_utf8(claimed.body).unwrap();
        assert!(claimed.contains(&format!(r#""n":{number}}}"#)), "{number}: {claimed}");
    }
}

#[tokio::test]
async fn a_large_input_is_whole_where_it_is_decided() {
    let client = start_local().await;
    let content = long("new", 100_000);
    let input = json!({ "path": "a.txt", "content": content });
    let facts = [
        fact("run.started", json!({})),
        fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "write" } })),
        fact("tool.args", json!({ "toolCallId": "c", "payload": { "inputText": input.to_string() } })),
        fact("tool.args", json!({ "toolCallId": "c", "payload": { "input": input } })),
        fact("action.required", json!({ "actionId": "of-call", "toolCallId": "c", "payload": { "kind": "tool_approval" } })),
        fact(
            "action.required",
            json!({ "actionId": "own", "payload": { "kind": "tool_approval", "toolName": "write", "input": input } }),
        ),
    ];
    client.append("r", &facts).await;
    let actions = activities(&client, "r", "action").await;
    let link = &actions[0]["bodies"]["/parameters/content"];
    assert_eq!((&actions[0]["parameters"]["path"], &actions[0]["clipped"]), (&json!("a.txt"), &json!(true)));
    assert_same(&String::from_utf8(client.get(link["href"].as_str().expect("a body")).await.body).unwrap(), &content, "the body");
    assert_eq!((&actions[1]["parameters"], actions[1].get("clipped")), (&input, None));
    for replay in ["", "&replay=deltas"] {
        let stream = events(&client, &format!("/v1/runs/r/stream?format=ag-ui&until=pause{replay}")).await;
        assert_eq!(of_type(&stream, "MESSAGES_SNAPSHOT").count(), usize::from(replay.is_empty()), "no restart");
        let arguments = match replay {
            "" => {
                let messages = of_type(&stream, "MESSAGES_SNAPSHOT").next().unwrap()["messages"].as_array().unwrap().clone();
                joined(messages.iter().map(|message| &message["toolCalls"][0]["function"]), "arguments")
            }
            _ => joined(of_type(&stream, "TOOL_CALL_ARGS"), "delta"),
        };
        assert_same(&arguments, &input.to_string(), "the arguments");
        let end = stream.last().unwrap();
        let asked = end.pointer("/outcome/interrupts").or(end.pointer("/metadata")).unwrap_or(end).to_string();
        assert!(!asked.contains('…'), "{}", asked.chars().take(400).collect::<String>());
    }
}

#[tokio::test]
async fn a_large_state_is_whole_for_existing_clients_through_its_patches() {
    let client = start_local().await;
    let (doc, other) = (long("doc", 60_000), long("other", 60_000));
    let patch = |ops: Value| fact("state.delta", json!({ "payload": { "patch": ops } }));
    let facts = [
        fact("run.started", json!({})),
        fact("state.snapshot", json!({ "payload": { "state": { "docs": [{ "text": doc }], "n": 1 } } })),
        patch(
            json!([{ "op": "add", "path": "/docs/0", "value": { "text": "small" } }, { "op": "replace", "path": "/n", "value": 2 }]),
        ),
        patch(json!([{ "op": "add", "path": "/docs/-", "value": { "text": other } }])),
        patch(json!([{ "op": "move", "from": "/docs/1/text", "path": "/moved" }])),
        fact("run.finished", json!({})),
    ];
    client.append("r", &facts).await;
    let whole = json!({ "docs": [{ "text": "small" }, {}, { "text": other }], "n": 2, "moved": doc });
    let native = activities(&client, "r", "state").await.remove(0);
    let bodies: Vec<_> = native["bodies"].as_object().expect("bodies").keys().map(String::as_str).collect();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
    assert!(bodies.contains(&"/state/moved") && bodies.contains(&"/state/docs/2/text"), "{bodies:?}");
    let joined = events(&client, "/v1/runs/r/stream?format=ag-ui").await;
    assert!(of_type(&joined, "STATE_SNAPSHOT").last().expect("a state")["snapshot"] == whole, "joined");
    let live = events(&client, "/v1/runs/r/stream?format=ag-ui&replay=deltas").await;
    let mut state = Value::Null;
    for event in &live {
        match event["type"].as_str() {
            Some("STATE_SNAPSHOT") => state = event["snapshot"].clone(),
            Some("STATE_DELTA") => {
                json_patch::patch(&mut state, &serde_json::from_value::<json_patch::Patch>(event["delta"].clone()).unwrap())
                    .unwrap();
            }
            _ => {}
        }
    }
    assert!(state == whole, "live");
}

#[tokio::test]
async fn a_body_of_another_run_is_not_sent_whatever_a_fact_says() {
    let client = start_local().await;
    let secret = long("secret", 60_000);
    client
        .append("a", &[fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": secret } }))])
        .await;
    let link = client.read_events("a", "audience=internal", 10).await[0]["refs"][0].clone();
    let mut forged = fact("tool.result", json!({ "toolCallId": "c", "audience": "user", "payload": { "output": "mine" } }));
    forged["refs"] = json!([link]);
    client.append("b", &[fact("tool.started", json!({ "toolCallId": "c" })), forged, fact("run.finished", json!({}))]).await;
    let stream = events(&client, "/v1/runs/b/stream?format=ag-ui&replay=deltas").await;
    assert_eq!(of_type(&stream, "TOOL_CALL_RESULT").next().expect("a result")["content"], "mine");
}
