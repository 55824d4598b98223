//! Texts that JavaScript cut between the two halves of a UTF-16 pair, as `JSON.stringify` writes them.

use crate::harness::{Client, start_local};
use serde_json::{Value, json};

/// Three chunks of one text. The last half of the second chunk stays alone.
const CHUNKS: [&str; 3] = [r"Hi \ud83d", r"\udc4b and \ud83d", "!"];
const TEXT: &str = "Hi 👋 and \u{fffd}!";

/// Each source, a line of one of its streams with `@` for the text, and the lines before and after them.
const STREAMS: &[(&str, &str, &str, &str)] = &[
    (
        "agentui",
        "",
        r#"{"type":"text.delta","messageId":"m","payload":{"text":"@"}}"#,
        r#"{"type":"text.final","messageId":"m"}"#,
    ),
    ("awaken", "", r#"{"event_type":"text_delta","delta":"@"}"#, ""),
    ("ethos", "", r#"{"type":"text_delta","text":"@"}"#, ""),
    ("turnrunner", "", r#"{"event":"message","payload":{"id":"m","aDelta":"@"}}"#, ""),
    (
        "ag-ui",
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"@"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#,
    ),
    ("ai-sdk", r#"{"type":"start"}"#, r#"{"type":"text-delta","id":"0","delta":"@"}"#, r#"{"type":"text-end","id":"0"}"#),
    (
        "openai-responses",
        r#"{"type":"response.created","response":{"id":"r"}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"@"}"#,
        r#"{"type":"response.output_text.done","item_id":"m","output_index":0,"content_index":0,"text":"Hi 👋 and \ud83d!"}"#,
    ),
    ("acp", "", r#"{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"@"}}}"#, ""),
    (
        "claude-stream-json",
        concat!(
            r#"{"type":"stream_event","session_id":"s","event":{"type":"message_start","message":{"id":"m","role":"assistant"}}}"#,
            "\n",
            r#"{"type":"stream_event","session_id":"s","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}"#,
        ),
        r#"{"type":"stream_event","session_id":"s","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}}"#,
        "",
    ),
    (
        "a2a",
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#,
        r#"{"artifactUpdate":{"taskId":"t","contextId":"c","append":true,"artifact":{"artifactId":"a","parts":[{"text":"@"}]}}}"#,
        "",
    ),
    (
        "langgraph",
        r#"{"event":"metadata","data":{"run_id":"u","attempt":1}}"#,
        r#"{"event":"messages","data":[{"type":"AIMessageChunk","id":"m","content":"@"},{"langgraph_node":"agent"}]}"#,
        r#"{"event":"updates","data":{"agent":{"messages":[{"type":"ai","id":"m","content":"Hi 👋 and \ufffd!"}]}}}"#,
    ),
];

async fn read(client: &Client, run: &str) -> String {
    let page = client.get(&format!("/v1/runs/{run}/activities?audience=internal")).await.ok();
    let texts = page["activities"].as_array().unwrap().iter().map(|activity| joined(&activity["content"]).to_string());
    texts.collect::<Vec<_>>().join("\n")
}

/// Joins the chunks of every text.
fn joined(content: &Value) -> Value {
    match content {
        Value::Array(chunks) if !chunks.is_empty() && chunks.iter().all(Value::is_string) => {
            chunks.iter().filter_map(Value::as_str).collect::<String>().into()
        }
        Value::Array(items) => items.iter().map(joined).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), joined(value))).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn every_source_joins_halves_over_chunks_and_replaces_a_half_that_stays_alone() {
    let client = start_local().await;
    for (source, first, chunk, last) in STREAMS {
        let chunks = CHUNKS.map(|text| chunk.replace('@', text));
        let lines: Vec<&str> = first.lines().chain(chunks.iter().map(String::as_str)).chain(last.lines()).collect();
        let run = format!("whole-{source}");
        let path = format!("/v1/runs/{run}/facts?source={source}");
        let receipt = client.post_lines(&path, lines.join("\n")).await.ok();
        assert_eq!(receipt["accepted"], lines.len(), "{source}: {receipt}");
        let whole = read(&client, &run).await;
        assert_eq!(whole.matches(TEXT).count(), whole.matches("Hi ").count(), "{source}: {whole}");
        assert!(whole.contains(TEXT), "{source}: {whole}");

        let run = format!("apart-{source}");
        for line in &lines {
            let path = format!("/v1/runs/{run}/facts?source={source}");
            client.post(&path, &[("content-type", "application/json")], (*line).to_owned()).await.ok();
        }
        assert!(read(&client, &run).await.contains(TEXT), "{source}");
    }
}

#[tokio::test]
async fn a_half_at_the_end_of_a_text_is_replaced_before_the_end() {
    let client = start_local().await;
    let lines = [
        r#"{"type":"run.started"}"#,
        r#"{"type":"text.delta","messageId":"a","payload":{"text":"one \ud83d"}}"#,
        r#"{"type":"text.delta","messageId":"b","payload":{"text":"two \ud83d"}}"#,
        r#"{"type":"text.delta","messageId":"b","payload":{"text":"\udc4b"}}"#,
        r#"{"type":"text.final","messageId":"a"}"#,
        r#"{"type":"tool.started","toolCallId":"c\ud83d","payload":{"toolName":"t\udc4b","input":{"\ud83d":"\udc4b"}}}"#,
        r#"{"type":"session.updated","payload":{"title":"\ud83d"}}"#,
        r#"{"type":"run.finished"}"#,
    ];
    let receipt = client.post_lines("/v1/runs/r/facts?sessionId=s", lines.join("\n")).await.ok();
    assert_eq!((&receipt["accepted"], receipt.get("violations")), (&json!(lines.len()), None), "{receipt}");
    let events = client.read_events("r", "audience=internal", 100).await;
    let of = |class: &str, member: &str| {
        let texts = events.iter().filter(|event| event["type"] == class).map(|event| &event["payload"][member]);
        texts.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("text.delta", "text"), ["one ", "two ", "👋", "\u{fffd}"]);
    assert_eq!(of("tool.started", "input"), [json!({ "\u{fffd}": "\u{fffd}" })]);
    assert_eq!(of("tool.started", "toolName"), ["t\u{fffd}"]);
    assert_eq!(of("session.updated", "title"), ["\u{fffd}"]);
    let call = events.iter().find(|event| event["type"] == "tool.started").unwrap();
    assert_eq!(call["toolCallId"], "c\u{fffd}");
}

#[tokio::test]
async fn controls_and_messages_of_a_socket_accept_halves() {
    let client = start_local().await;
    client.append("r", &[json!({ "type": "run.started" })]).await;
    let body = r#"{"control":"send","value":{"text":"Hi \ud83d","\udc4b":1}}"#;
    let sent = client.post("/v1/runs/r/controls", &[("content-type", "application/json")], body).await.json();
    assert!(sent["controlId"].is_string(), "{sent}");
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_named_by_line_and_byte_and_lose_nothing_before() {
    let client = start_local().await;
    let fact = r#"{"type":"text.delta","messageId":"m","payload":{"text":"a"}}"#;
    // CESU-8: the halves of a pair, each as three bytes.
    let mut body = [fact, "\n", r#"{"type":"text.delta","payload":{"text":""#].concat().into_bytes();
    body.extend_from_slice(b"\xed\xa0\xbd\xed\xb1\x8b\"}}\n");
    let problem = client.post_lines("/v1/runs/r/facts", body.clone()).await.problem(422, "not_json");
    assert_eq!((&problem["line"], &problem["accepted"]), (&json!(2), &json!(1)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("byte 41 (0xed) is not UTF-8"), "{problem}");
    assert_eq!(client.read_events("r", "", 10).await.len(), 1);
}
