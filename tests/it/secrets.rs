//! Planted secrets: none reaches the disk or a reader.
//!
//! The test plants secrets wherever a fact can hold text, sends the facts to the real binary, and searches every file
//! of the data directory and every response. The guard's own properties are tested in its module; this test shows that
//! no path bypasses it.

use crate::harness::{AUDIENCES, Client, Process, Transport, fact, to_ndjson};
use serde_json::{Value, json};
use std::path::Path;

/// The planted text, and the part of it that must not appear anywhere.
const SECRETS: &[(&str, &str)] = &[
    ("sk-live-abcdef0123456789abcdef", "abcdef0123456789"),
    ("ghp_Zz0123456789abcdefghijABCDEFGHIJ0123", "Zz0123456789abcdefghij"),
    ("xoxb-424242424242-QwErTyUiOpAsDfGh", "QwErTyUiOpAsDfGh"),
    ("AKIAZ7QXMPL4242WXYZ9", "Z7QXMPL4242WXYZ9"),
    ("glpat-Yx9876543210zyxwvuts", "Yx9876543210zyxwvuts"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLW9mLWEtdG9rZW4", "eyJzdWIiOiJwbGFudGVkIn0"),
    ("Bearer 7fa3b9c2d1e0f4a5b6c7d8e9", "7fa3b9c2d1e0f4a5b6c7d8e9"),
    ("postgres://app:correct-horse-battery@db/x", "correct-horse-battery"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEvPLANTEDkeymaterial\n-----END PRIVATE KEY-----", "MIIEvPLANTEDkeymaterial"),
    ("{\"password\":\"staple-of-the-battery\"}", "staple-of-the-battery"),
];

/// Builds native facts that hold `text` in many members, and name a plain value as a secret.
fn facts_with_secrets(text: &str, plain: &str) -> Vec<Value> {
    vec![
        fact("run.started", json!({"payload": {"note": text}})),
        fact("text.delta", json!({"messageId": "a", "payload": {"text": format!("look: {text} ")}})),
        fact("text.final", json!({"messageId": "a", "payload": {"text": format!("look: {text} ")}})),
        fact(
            "tool.started",
            json!({"toolCallId": "t", "payload": {"toolName": "sh", "input": {"env": {"API_KEY": plain, "cmd": text}}}}),
        ),
        fact("tool.progress", json!({"toolCallId": "t", "payload": {"activityType": "log", "content": {"lines": [text]}}})),
        fact(
            "tool.progress",
            json!({"toolCallId": "t", "payload": {"activityType": "log", "patch": [{"op": "add", "path": "/apiKey", "value": plain}, {"op": "add", "path": "/x", "value": {"y": [text]}}]}}),
        ),
        fact("tool.failed", json!({"toolCallId": "t", "payload": {"error": {"message": text}}})),
        fact("tool.result", json!({"toolCallId": "big", "payload": {"output": format!("{}{text}\n", "line\n".repeat(20_000))}})),
        fact("state.snapshot", json!({"payload": {"state": {"deep": [[{"clientSecret": {"value": plain}}]], text: 1}}})),
        fact(
            "weather.changed",
            json!({"cookie": plain, "unknown": {"member": text}, "refs": {"log": text}, "rawEventRef": text}),
        ),
    ]
}

/// Streams `text` as chunks of every streamed type and member, this many characters at a time.
fn chunks_of(text: &str, at_once: usize) -> Vec<Value> {
    let letters: Vec<char> = format!("so: {text} and on").chars().collect();
    let chunks = || letters.chunks(at_once).map(|chunk| chunk.iter().collect::<String>());
    let mut facts = vec![fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "x"}}))];
    facts.extend(chunks().map(|text| fact("text.delta", json!({"messageId": "s", "partId": "p", "payload": {"text": text}}))));
    facts.extend(
        chunks().map(|text| fact("reasoning.delta", json!({"messageId": "s", "partId": "r", "payload": {"text": text}}))),
    );
    facts.extend(chunks().map(|text| fact("tool.args", json!({"toolCallId": "c", "payload": {"inputText": text}}))));
    facts.extend(
        chunks().map(|text| fact("tool.output.delta", json!({"toolCallId": "c", "audience": "user", "payload": {"text": text}}))),
    );
    facts.push(fact("run.finished", json!({})));
    facts
}

/// Builds facts of Awaken that hold `text`.
fn awaken_facts_with_secrets(text: &str, plain: &str) -> Vec<Value> {
    let mut facts = vec![
        json!({"event_type": "run_start", "thread_id": "t", "run_id": "n"}),
        json!({"event_type": "step_start", "message_id": "m"}),
        json!({"event_type": "tool_call_start", "id": "c", "name": "sh"}),
        json!({"event_type": "tool_call_ready", "id": "c", "name": "sh", "arguments": {"password": plain, "cmd": text}}),
        json!({"event_type": "activity_snapshot", "message_id": "c", "activity_type": "log", "content": text}),
        json!({"event_type": "state_snapshot", "snapshot": {"extensions": {"__runtime.x": {"token": plain, "text": text}}}}),
        json!({"event_type": "tool_call_done", "id": "c", "message_id": "", "outcome": "failed", "result": {"tool_name": "sh", "status": "error", "data": {"access_token": plain}, "message": text}}),
        json!({"event_type": "reasoning_encrypted_value", "encrypted_value": plain}),
        json!({"event_type": "of_tomorrow", "credentials": {"user": plain}, "said": text}),
    ];
    facts.extend(text.chars().map(|c| json!({"event_type": "text_delta", "delta": c.to_string()})));
    facts.push(json!({"event_type": "error", "message": text}));
    facts
}

/// Reads every file below `dir`.
fn read_files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(read_files(&path)),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

async fn read_all_responses(client: &Client, run: &str) -> Vec<(String, Vec<u8>)> {
    let mut responses = Vec::new();
    for audience in AUDIENCES {
        for path in ["events?", "export?"] {
            let path = format!("/v1/runs/{run}/{path}audience={audience}");
            responses.push((path.clone(), client.get(&path).await.body));
        }
        let frames = client.open_stream(Transport::Raw, run, &format!("audience={audience}"), None).await.read_all().await;
        responses.push((
            format!("stream of {run} for {audience}"),
            frames.into_iter().flat_map(|frame| frame.text.into_bytes()).collect(),
        ));
    }
    let events = client.read_events(run, "audience=internal", 1000).await;
    for link in events.iter().flat_map(|event| event["refs"].as_array().into_iter().flatten()) {
        if let Some(href) = link["href"].as_str() {
            responses.push((href.to_owned(), client.get(&format!("{href}?audience=internal")).await.body));
        }
    }
    responses
}

#[tokio::test]
async fn no_planted_secret_is_on_disk_or_on_the_wire() {
    const PLAIN: &str = "plainly-named-secret-value";
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let mut responses = Vec::new();
    for (n, (text, _)) in SECRETS.iter().enumerate() {
        let streams = [1, 2, 3, 7, 40].map(|at_once| chunks_of(text, at_once));
        let native = facts_with_secrets(text, PLAIN).into_iter().chain(streams.into_iter().flatten()).collect::<Vec<_>>();
        let run = format!("native-{n}");
        client.post_lines(&format!("/v1/runs/{run}/facts"), to_ndjson(&native)).await.ok();
        responses.extend(read_all_responses(&client, &run).await);
        let run = format!("awaken-{n}");
        client
            .post_lines(&format!("/v1/runs/{run}/facts?source=awaken"), to_ndjson(&awaken_facts_with_secrets(text, PLAIN)))
            .await
            .ok();
        responses.extend(read_all_responses(&client, &run).await);
    }
    let marks = responses.iter().filter(|(_, bytes)| memchr::memmem::find(bytes, b"[redacted]").is_some()).count();
    assert!(marks > SECRETS.len() * 6, "too few redactions: {marks}");
    server.kill();
    responses.extend(read_files(dir.path()));
    for secret_part in SECRETS.iter().map(|(_, secret_part)| *secret_part).chain([PLAIN]) {
        for (location, bytes) in &responses {
            assert!(memchr::memmem::find(bytes, secret_part.as_bytes()).is_none(), "{secret_part} is in {location}");
        }
    }
    // Chunks are stored separately: their concatenation must not contain the secret, either.
    for (n, (_, secret_part)) in SECRETS.iter().enumerate() {
        let reopened = responses.iter().filter(|(location, _)| location.contains(&format!("native-{n}/events")));
        for (location, bytes) in reopened {
            let page: Value = serde_json::from_slice(bytes).unwrap();
            let joined: String = page["events"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|event| event["payload"]["text"].as_str().or_else(|| event["payload"]["inputText"].as_str()))
                .collect();
            assert!(!joined.contains(secret_part), "{secret_part} can be joined from {location}");
        }
    }
}
