//! No planted secret reaches disk or wire: the real binary, secrets planted wherever a fact can hold text, then every file of
//! the data directory and everything that the server gives is searched for them.
//!
//! The guard's own properties are held beside it; here it is held that nothing goes round it.

use crate::harness::{AUDIENCES, Client, Process, Transport, fact, to_ndjson};
use serde_json::{Value, json};
use std::path::Path;

/// What is planted, and the part of it that must not be found anywhere.
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

/// Facts of the native source that hold `text` somewhere, and name a plain value as a secret.
fn planted(text: &str, plain: &str) -> Vec<Value> {
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

/// `text` as chunks of these classes and members, so many characters at a time.
fn streamed(text: &str, at_once: usize) -> Vec<Value> {
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

/// Facts of Awaken that hold `text`.
fn of_awaken(text: &str, plain: &str) -> Vec<Value> {
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

/// Every file below `dir`, and what is in it.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

async fn everything(client: &Client, run: &str) -> Vec<(String, Vec<u8>)> {
    let mut given = Vec::new();
    for audience in AUDIENCES {
        for path in ["events?", "export?"] {
            let path = format!("/v1/runs/{run}/{path}audience={audience}");
            given.push((path.clone(), client.get(&path).await.body));
        }
        let frames = client.open_stream(Transport::Raw, run, &format!("audience={audience}"), None).await.read_all().await;
        given.push((
            format!("stream of {run} for {audience}"),
            frames.into_iter().flat_map(|frame| frame.text.into_bytes()).collect(),
        ));
    }
    let events = client.read_events(run, "audience=internal", 1000).await;
    for link in events.iter().flat_map(|event| event["refs"].as_array().into_iter().flatten()) {
        if let Some(href) = link["href"].as_str() {
            given.push((href.to_owned(), client.get(&format!("{href}?audience=internal")).await.body));
        }
    }
    given
}

#[tokio::test]
async fn no_planted_secret_is_on_disk_or_on_the_wire() {
    const PLAIN: &str = "plainly-named-secret-value";
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_in(dir.path());
    let client = Client::new(server.at);
    let mut given = Vec::new();
    for (n, (text, _)) in SECRETS.iter().enumerate() {
        let streams = [1, 2, 3, 7, 40].map(|at_once| streamed(text, at_once));
        let native = planted(text, PLAIN).into_iter().chain(streams.into_iter().flatten()).collect::<Vec<_>>();
        let run = format!("native-{n}");
        client.post_lines(&format!("/v1/runs/{run}/facts"), to_ndjson(&native)).await.ok();
        given.extend(everything(&client, &run).await);
        let run = format!("awaken-{n}");
        client.post_lines(&format!("/v1/runs/{run}/facts?source=awaken"), to_ndjson(&of_awaken(text, PLAIN))).await.ok();
        given.extend(everything(&client, &run).await);
    }
    let marks = given.iter().filter(|(_, bytes)| memchr::memmem::find(bytes, b"[redacted]").is_some()).count();
    assert!(marks > SECRETS.len() * 6, "the secrets were planted: {marks} marks");
    server.kill();
    given.extend(files(dir.path()));
    for telling in SECRETS.iter().map(|(_, telling)| *telling).chain([PLAIN]) {
        for (place, bytes) in &given {
            assert!(memchr::memmem::find(bytes, telling.as_bytes()).is_none(), "{telling} is in {place}");
        }
    }
    // Chunks are stored apart: joined again they must not tell it either.
    for (n, (_, telling)) in SECRETS.iter().enumerate() {
        let reopened = given.iter().filter(|(place, _)| place.contains(&format!("native-{n}/events")));
        for (place, bytes) in reopened {
            let page: Value = serde_json::from_slice(bytes).unwrap();
            let joined: String = page["events"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|event| event["payload"]["text"].as_str().or_else(|| event["payload"]["inputText"].as_str()))
                .collect();
            assert!(!joined.contains(telling), "{telling} can be put together from {place}");
        }
    }
}
