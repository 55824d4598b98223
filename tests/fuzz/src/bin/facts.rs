//! Fuzzes `POST /v1/runs/{run}/facts` in the vocabulary of any source, as JSON or as lines.
//!
//! ```text
//! input := how query [ producer epoch seq ] "\n" body
//! how   := a letter counted from `a`: bits 0-2 the source, bit 3 lines or JSON, bit 4 a session's own log or a run's
//! ```
//! Properties: nothing panics. Stored envelopes match their schema and have no gaps. The server stores facts with
//! repeated sequence numbers once. A fold that is saved and restored continues unchanged, for each audience. A reader
//! of the frames has the same content as the fold and as the server's response, and it matches the schemas. A restored
//! adapter also continues unchanged.

#![no_main]

use axum::body::Body;
use http::Method;
use libfuzzer_sys::fuzz_target;
use proscenium::log::LogId;
use proscenium::model::{Audience, Ids, RunId, Sequence};
use proscenium::projection::View;
use proscenium::serve::Limits;
use proscenium::source::{DryRun, SOURCES, SourceKind};
use proscenium_fuzz::{AUDIENCES, ReceivedResponse, TestServer, assert_activity, assert_valid, block_on, split};
use serde_json::{Value, json};
use std::collections::HashMap;

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let how = how.wrapping_sub(b'a');
    let source = &SOURCES[usize::from(how & 15) % SOURCES.len()];
    let (is_lines, is_session) = (how & 16 != 0, how & 32 != 0);
    let (head, body) = split(rest, b'\n');
    let mut words = head.split(|byte| *byte == b' ');
    let query = words.next().unwrap_or_default();
    let numbering: Vec<&[u8]> = words.collect();

    assert_restored_adapter_continues(source, &facts_of(body, is_lines));
    block_on(async {
        let server = TestServer::start(Limits::default(), None).await;
        let log = if is_session { "sessions/s" } else { "runs/r" };
        let target = [format!("/v1/{log}/facts?source={}&", source.name).as_bytes(), query].concat();
        let kind: &[u8] = if is_lines { b"application/x-ndjson" } else { b"application/json" };
        let mut headers = vec![("content-type", kind)];
        headers.extend(["producer-id", "producer-epoch", "producer-seq"].into_iter().zip(numbering));
        let post = || server.request(Method::POST, &target, &headers, Body::from(body.to_vec()));
        if let Some(first) = post().await {
            let is_numbered = headers.len() == 4 && first.status == 200;
            if let (true, Some(again)) = (is_numbered, post().await) {
                assert_duplicates(&first.json(), &again.ok());
            }
            match is_session {
                true => assert_session_readable(&server).await,
                false => assert_run(&server, &first).await,
            }
        }
        server.stop().await;
    });
});

/// Parses the facts of a body, up to the first invalid one.
fn facts_of(body: &[u8], is_lines: bool) -> Vec<Value> {
    match is_lines {
        true => body.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice(line).ok()).collect(),
        false => match serde_json::from_slice(body) {
            Ok(Value::Array(facts)) => facts,
            Ok(fact) => vec![fact],
            Err(_) => Vec::new(),
        },
    }
}

/// Asserts that an adapter restored before each fact has the same output.
///
/// A rejected fact must not change its state.
fn assert_restored_adapter_continues(source: &'static SourceKind, facts: &[Value]) {
    let given = Ids { run: RunId::new("r").ok(), ..Ids::default() };
    let (mut original, mut restored) = (DryRun::new(source), DryRun::new(source));
    let mut saved = original.save();
    for fact in facts.iter().filter_map(Value::as_object) {
        // A text is refused exactly if its map is.
        let parsed = (source.parse)(fact.clone()).err();
        let text = serde_json::to_vec(fact).expect("a map is JSON");
        if let Some(by_text) = (source.parse_text)(&text) {
            assert_eq!(by_text.err(), parsed);
        }
        restored.restore(&saved).expect("a saved state is valid");
        let drafts = original.adapt(fact.clone(), &given);
        assert_eq!(restored.adapt(fact.clone(), &given), drafts);
        let now = original.save();
        assert_eq!(String::from_utf8_lossy(&restored.save()), String::from_utf8_lossy(&now));
        assert!(drafts.is_ok() || now == saved, "a rejected fact changes no state");
        saved = now;
    }
}

fn assert_duplicates(first: &Value, again: &Value) {
    let known = |receipt: &Value| receipt["accepted"].as_u64().unwrap() + receipt["duplicates"].as_u64().unwrap();
    assert_eq!((again["accepted"].as_u64(), known(again)), (Some(0), known(first)), "{first} {again}");
    assert_eq!((&again["lastSequence"], &again["firstSequence"]), (&first["lastSequence"], &Value::Null));
}

async fn assert_session_readable(server: &TestServer) {
    for audience in AUDIENCES {
        for resource in ["", "/window", "/timeline", "/controls"] {
            let answer = server.get(&format!("/v1/sessions/s{resource}?audience={audience}")).await;
            assert!([200, 404].contains(&answer.status), "{answer:?}");
        }
    }
}

async fn assert_run(server: &TestServer, posted: &ReceivedResponse) {
    let run = server.get("/v1/runs/r").await;
    if run.status == 404 {
        assert!(posted.status != 200 || posted.json()["accepted"] == 0, "{posted:?}");
        return;
    }
    let last = run.ok()["lastSequence"].as_u64().expect("a number");
    for (name, audience) in AUDIENCES.into_iter().zip(Audience::ALL) {
        let events = server.events("r", name).await;
        for event in &events {
            assert_valid("agentui-event.schema.json", event);
        }
        let sequences = events.iter().map(|event| event["sequence"].as_u64().expect("a number"));
        match audience {
            Audience::Internal => assert!(sequences.eq(1..=last), "the sequences have no gaps and no duplicates"),
            _ => assert!(sequences.is_sorted_by(|a, b| a < b)),
        }
        let shown = server.get(&format!("/v1/runs/r/activities?audience={name}")).await.ok();
        let shown = shown["activities"].as_array().expect("activities");
        assert_fold(audience, &events, shown);
    }
    // The lists over all logs must be readable as well.
    for list in ["/v1/runs", "/v1/sessions"] {
        let _ = server.get(list).await.ok();
    }
}

/// Compares three folds for an audience.
///
/// They are a view, a view that is saved and restored half-way, and a reader of its frames.
fn assert_fold(audience: Audience, events: &[Value], shown: &[Value]) {
    let log = LogId::Run(RunId::new("r").expect("an id"));
    let (mut view, mut framed) = (View::new(&log, audience), Sequence::NONE);
    let mut copies: HashMap<(Box<str>, Box<str>), Value> = HashMap::new();
    let mut half_way = None;
    for (n, event) in events.iter().enumerate() {
        if n == events.len() / 2 {
            half_way = View::restore(&log, audience, &view.save()).expect("a saved state is valid");
        }
        let (sequence, text) = (Sequence(event["sequence"].as_u64().expect("a number")), event.to_string());
        let folded = view.fold(sequence, Some(text.as_bytes()));
        assert_eq!(folded.prev, framed);
        for change in &folded.changes {
            framed = sequence;
            let activity = view.changed_activity(change);
            let key = (activity.kind.clone(), activity.id.clone());
            if change.is_snapshot {
                copies.insert(key, Value::Object(activity.content.clone()));
            } else {
                let patch = serde_json::to_value(&change.patch).expect("JSON");
                let copy = copies.get_mut(&key).expect("a snapshot comes first");
                let parsed: json_patch::Patch = serde_json::from_value(patch.clone()).expect("a patch");
                json_patch::patch(copy, &parsed).unwrap_or_else(|error| panic!("{key:?}: {error}: {patch}"));
            }
        }
        if let Some(restored) = &mut half_way {
            restored.fold(sequence, Some(text.as_bytes()));
        }
    }
    if let Some(restored) = half_way {
        assert_eq!(String::from_utf8_lossy(&restored.save()), String::from_utf8_lossy(&view.save()));
    }
    assert_eq!(copies.len(), view.activities().len());
    assert_eq!(shown.len(), view.activities().len());
    for (activity, shown) in view.activities().iter().zip(shown) {
        let content = Value::Object(activity.content.clone());
        let copy = &copies[&(activity.kind.clone(), activity.id.clone())];
        assert_eq!(
            join_texts(copy, activity.is_custom),
            join_texts(&content, activity.is_custom),
            "{} {}",
            activity.kind,
            activity.id
        );
        assert_activity(&activity.kind, activity.is_custom, &content);
        assert_eq!((&shown["activityType"], &shown["activityId"]), (&json!(activity.kind), &json!(activity.id)));
        assert_eq!(shown["content"], content);
    }
}

/// Joins the chunks of each text in a content.
fn join_texts(content: &Value, is_custom: bool) -> Value {
    let mut content = content.clone();
    let join = |of: &mut Value| {
        for member in ["text", "input_text", "output_text"] {
            if let Some(Value::Array(chunks)) = of.get_mut(member) {
                let whole: String = chunks.iter().map(|chunk| chunk.as_str().expect("a chunk is text")).collect();
                *chunks = if whole.is_empty() { Vec::new() } else { vec![whole.into()] };
            }
        }
    };
    if !is_custom {
        join(&mut content);
        content.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten().for_each(join);
    }
    content
}
